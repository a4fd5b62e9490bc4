"""The cells of a network inside an event: only those that can meet it are looked for.

The traversal is that of `reluscope.cells.subdivide`. Before a batch of cells is cut by the next layer, the event's rows
are bounded on them: the pre-activations of the next layer are affine on a cell, and each later layer is replaced by its
linear relaxation over the range that its units take there,

    act(h) in slope * h + [down, up]    on    [least h, largest h],

with the chord's slope, so a row is `affine +- slack` and its range is read off at the cell's vertices. A cell on which
every case fails somewhere is dropped, one on which a whole case holds is taken as it is, and only the others go on. On
the final cells the network is affine: each case is a polytope and cut out exactly; what is left of the cell
meets the next case, so that overlapping cases are counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope.answers._edges import SLICE, FlatRows, HiddenEdges, bounds_on, ranges
from reluscope.cells.balance import balanced
from reluscope.cells.split import Geometry
from reluscope.cells.subdivide import PROBABLE_ERRORS, Batch, CutPlan, Stack, first_labels, traverse
from reluscope.events import PlacedEvent, feature_errors
from reluscope.network import Network, Pattern
from reluscope.threads import blas_threads
from reluscope.workers import jobs_at_hand

if TYPE_CHECKING:
    from reluscope.budget import Budget
    from reluscope.inputs import Component

Index = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]

_CAUTION = 1e-9
"""Bounds this close to a row's limit, as a share of the numbers in them, decide nothing."""
_TERMS = 8.0
"""Rounding errors of the largest terms of a row that its bounds may be off by."""
_IDLE = 8
"""Of the batches of a layer whose bounds decide almost nothing, one in so many is still tried."""
_NUMBERS = 1 << 18
"""Values at break points that are held at once."""


@dataclass(frozen=True, eq=False)
class Inside:
    """A batch of cells inside the event. `blur[i]` bounds how far rounding may move the cuts of cell i.

    `pattern[i]` has the units' pieces on final cells; where the event held before all layers were cut, `pattern` is
    None. Cells that are not `sure` lie on a limit as far as rounding can tell, and may be outside; those that are not
    `counted` either lie just outside as computed, and may be inside. If these have a `blur`, they are slices that thin.
    """

    cells: Geometry
    blur: FloatArray
    pattern: Pattern | None
    sure: bool = True
    counted: bool = True


@dataclass(eq=False)
class Walk:
    """Walks the cells of one component that can meet the event; iterate over `Inside` batches.

    `visited` counts cells looked at, `pending` holds the cells left over when the budget ended (`stopped` says why).
    `skip(cells)` may name cells that need not be looked at.
    """

    component: Component
    event: PlacedEvent
    start: Geometry
    budget: Budget
    skip: Callable[[Geometry], BoolArray] | None = None
    whole: bool = True
    """Whether cells on which the event holds throughout may be given out before they are affine."""
    visited: int = 0
    stopped: str | None = None
    pending: list[Geometry] = field(default_factory=list)

    def __iter__(self) -> Iterator[Inside]:
        if not self.event.n_cases:
            return
        self._rows = rows = _Rows.of(self.component, self.event, self.start.reach().max(axis=0))
        self._flat = FlatRows(self.component, self.event)
        net = rows.net
        plan = CutPlan.by_influence(net, self.start.dimension)
        screens: dict[tuple[int, int], _Screen] = {}
        stack = Stack(plan.start(self.start))

        def screen(batch: Batch) -> tuple[Index, Index]:
            near = np.arange(len(batch.root)) if self.skip is None else np.flatnonzero(~self.skip(batch.cells))
            if batch.final or not len(near):
                return near[:0], near
            place = batch.layer, batch.piece.shape[1]
            if place not in screens:
                screens[place] = _Screen(rows, batch.layer, self.whole)
            batch = batch.take(near)
            settled, left = screens[place](batch.cells, batch.maps)
            return near[settled], near[left]

        def stop(visited: int) -> bool:
            self.stopped = self.budget.spent(visited) if visited else None
            return self.stopped is not None

        def seen(cells: int) -> None:
            self.visited += cells

        # What may be skipped depends on what came before.
        jobs = jobs_at_hand() if self.skip is None else 1
        with blas_threads(max(net.widths[1:])):
            for batch in traverse(stack, screen=screen, stop=stop, seen=seen, jobs=jobs):
                if batch.final:
                    yield from self._final(batch)
                else:
                    yield Inside(batch.cells, np.zeros(len(batch.root)), None)
        self.pending = [w.cells for w in stack.waiting]

    def _final(self, at: Batch) -> Iterator[Inside]:
        """Cut the cases out of cells on which the network is affine, one after the other."""
        event, rows, cells = self.event, self._rows, at.cells
        features = event.features(at.pattern)
        left = np.arange(len(cells))  # which cell each remaining part was cut from
        label = first_labels(rows.net)[-1]
        edges = HiddenEdges.of(rows.net, event, cells, at.pattern, rows.start_maps)
        open_ = np.zeros(len(cells), bool) if edges is None else edges.open
        if edges is not None:
            for thin, which, thickness in edges.slices(label):
                yield Inside(thin, thickness, at.pattern[which], sure=False, counted=False)
        for case in event.cases:
            if not len(left):
                return
            maps, tolerance = rows.on_cells(case, at, features)
            strict = event.strict[case]
            inside, owner, blur = cells, left, np.zeros(len(left))
            sure = np.ones(len(left), bool)
            outside: list[tuple[Geometry, Index]] = []
            for k in range(len(strict)):
                if not len(owner):
                    break
                sign = -1.0 if strict[k] else 1.0
                here = np.ascontiguousarray(sign * maps[owner, :, k : k + 1])
                tol = tolerance[owner, k : k + 1]
                touching, flat = _touched(inside, here, tol[:, 0])
                found = inside.split(here, tol, np.zeros((1, 1)), label)
                label += 1
                # A cell that lies on the limit all over belongs to the piece below: in for <=, out for <.
                is_in = (found.piece[:, 0] == 0) != bool(strict[k])
                cut = (np.bincount(found.parent, minlength=len(owner)) > 1)[found.parent]
                parent = owner[found.parent]
                slope = np.sqrt((maps[parent, :-1, k] ** 2).sum(axis=1))
                doubtful = np.zeros(len(parent), bool)
                for i in np.flatnonzero(flat[found.parent]).tolist():
                    # Fractions decide what rounding cannot, where the row is constant and they do not take too long.
                    truth = self._flat.holds(at.pattern[parent[i]], case.start + k)
                    doubtful[i] = truth is None
                    is_in[i] = is_in[i] if truth is None else truth
                with np.errstate(divide="ignore", invalid="ignore"):
                    moved = cut | (touching & ~flat)[found.parent]
                    shift = np.where(moved, tolerance[parent, k] / slope, 0.0)
                blur, sure = blur[found.parent] + shift, sure[found.parent] & ~doubtful
                out = np.flatnonzero(~is_in)
                if len(out):
                    parts = found.cells.take(out)
                    outside.append((parts, parent[out]))
                    lost = np.flatnonzero(doubtful[out])
                    if len(lost):
                        pattern = at.pattern[parent[out[lost]]]
                        yield Inside(parts.take(lost), np.zeros(len(lost)), pattern, sure=False, counted=False)
                    near = np.flatnonzero((touching & ~flat & (tol[:, 0] > 0))[found.parent[out]] & ~cut[out])
                    if len(near):
                        yield from self._nearly(parts.take(near), parent[out[near]], at, maps, tolerance, k, label)
                keep = np.flatnonzero(is_in)
                inside, owner, blur, sure = found.cells.take(keep), parent[keep], blur[keep], sure[keep]
            if len(owner):
                blur = blur if edges is None else blur + edges.blur[owner]
                yield from _given_out(inside, blur, at.pattern[owner], sure & ~open_[owner])
            if not outside:
                return
            cells = type(inside).join([c for c, _ in outside])
            left = np.concatenate([o for _, o in outside])
        if open_[left].any():  # the state of a unit that the event reads is not known
            rest = np.flatnonzero(open_[left])
            yield Inside(cells.take(rest), np.zeros(len(rest)), at.pattern[left[rest]], sure=False, counted=False)

    def _nearly(
        self, cells: Geometry, owner: Index, at: Batch, maps: FloatArray, tolerance: FloatArray, k: int, label: int
    ) -> Iterator[Inside]:
        """Of cells just outside of row k, the slices that rounding may have put there, if all other rows can hold."""
        low, _ = bounds_on(*cells.corners(), maps[owner])
        can = np.flatnonzero((low <= tolerance[owner]).all(axis=1))
        if not len(can):
            return
        cells, owner = cells.take(can), owner[can]
        here, tol = np.ascontiguousarray(maps[owner, :, k : k + 1]), tolerance[owner, k : k + 1]
        # In units of the tolerance, so that one break point serves all cells.
        found = cells.split(here / tol[:, :, None], np.ones(tol.shape), np.full((1, 1), SLICE), label)
        slices = np.flatnonzero(found.piece[:, 0] == 0)
        if len(slices):
            which = owner[found.parent[slices]]
            thickness = (SLICE + 2.0) * tolerance[which, k] / np.sqrt((maps[which, :-1, k] ** 2).sum(axis=1))
            yield Inside(found.cells.take(slices), thickness, at.pattern[which], sure=False, counted=False)


def _given_out(cells: Geometry, blur: FloatArray, pattern: Pattern, sure: BoolArray) -> Iterator[Inside]:
    if sure.all():
        yield Inside(cells, blur, pattern)
        return
    for known in (True, False):
        some = np.flatnonzero(sure == known)
        if len(some):
            yield Inside(cells.take(some), blur[some], pattern[some], sure=known)


def _touched(cells: Geometry, maps: FloatArray, tolerance: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Which cells one affine map comes within the tolerance of 0 on, and on which it never leaves that."""
    low, high = bounds_on(*cells.corners(), maps)
    with np.errstate(invalid="ignore"):
        touching = ~((low[:, 0] > tolerance) | (high[:, 0] < -tolerance))
        flat = ~((low[:, 0] < -tolerance) | (high[:, 0] > tolerance))
    return touching, flat


@dataclass(frozen=True, eq=False)
class _Rows:
    """A component's network and the event's rows on it, scaled by powers of two where their numbers are extreme."""

    net: Network
    event: PlacedEvent
    G: FloatArray
    F: FloatArray
    g: FloatArray
    unsure: FloatArray
    """What each row may be off by because of its features."""

    @classmethod
    def of(cls, component: Component, event: PlacedEvent, reach: FloatArray) -> _Rows:
        net, shift, size = balanced(component.network, reach)
        G, F, g = event.G, event.F, event.g
        with np.errstate(over="ignore", invalid="ignore"):
            unsure = np.abs(F) @ feature_errors(event.net, event.event) if F.shape[1] else np.zeros(len(g))
        if net is not component.network:
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.concatenate([np.log2(np.abs(G)) + size, np.log2(np.abs(g))[:, None]], axis=1)
            top = np.where(np.isnan(terms), -np.inf, terms).max(axis=1)
            up = -np.ceil(np.where(np.isfinite(top), top, 0.0)).astype(np.int32)
            G = np.ldexp(G, (up[:, None] - shift).astype(np.int32))
            F, g, unsure = np.ldexp(F, up[:, None]), np.ldexp(g, up), np.ldexp(unsure, up)
        return cls(net, event, G, F, g, unsure)

    @cached_property
    def start_maps(self) -> FloatArray:
        """The first layer as affine maps, shape (1, d + 1, units)."""
        first = self.net.layers[0]
        return np.concatenate([first.dense().T, first.bias[None]])[None]

    def on_cells(self, case: slice, at: Batch, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Each row minus its limit as an affine map on each cell, (n, d + 1, rows); what counts as zero, (n, rows)."""
        G, F, g = self.G[case], self.F[case], self.g[case]
        maps = at.maps @ G.T
        error2 = at.error2 @ (G.T**2) + (EPS * EPS) * g**2
        if F.shape[1]:
            with np.errstate(over="ignore", invalid="ignore"):
                maps[:, -1, :] += features @ F.T
                error2 += (EPS * EPS) * ((features**2) @ (F.T**2))
        maps[:, -1, :] -= g
        tolerance = PROBABLE_ERRORS * np.sqrt(error2) + self.unsure[case]
        lost = ~np.isfinite(maps).all(axis=1) | np.isnan(tolerance)
        if lost.any():  # overflow: nothing is known of the row there
            maps = np.where(lost[:, None, :], 0.0, maps)
            tolerance = np.where(lost, np.inf, tolerance)
        return maps, tolerance


# -- which cells can meet the event --------------------------------------------------------------------------------


class _Screen:
    """Sorts cells about to be cut by hidden layer `layer`: the event holds on them, or cannot hold, or is open."""

    def __init__(self, rows: _Rows, layer: int, whole: bool) -> None:
        event = rows.event
        self.net, self.layer = rows.net, layer
        # All rows that do not depend on features, as outputs of one last layer.
        plain: BoolArray = ~np.any(rows.F, axis=1)
        self.G, self.g = rows.G[plain], rows.g[plain]
        ends = np.cumsum([int(plain[case].sum()) for case in event.cases])
        self.cases = [slice(a, b) for a, b in pairwise([0, *ends.tolist()])]
        self.whole = [whole and bool(plain[case].all()) for case in event.cases]
        self.tried, self.decided, self.turn = 0, 0, 0

    def __call__(self, cells: Geometry, maps: FloatArray) -> tuple[Index, Index]:
        """Indices of cells on which the event holds, and of those that are open."""
        everything, none = np.arange(len(cells)), np.zeros(0, np.intp)
        self.turn += 1
        if self.tried > 500 and self.decided < 0.01 * self.tried and self.turn % _IDLE:
            return none, everything
        low, high = self._row_bounds(cells, maps)
        size = _CAUTION * (np.maximum(np.abs(low), np.abs(high)) + np.abs(self.g)) + self._rounding(cells, maps)
        fails, holds = low > self.g + size, high < self.g - size
        can, does = np.zeros(len(cells), bool), np.zeros(len(cells), bool)
        for mine, whole in zip(self.cases, self.whole, strict=True):
            can |= ~fails[:, mine].any(axis=1)
            if whole:
                does |= holds[:, mine].all(axis=1)
        self.tried += len(cells)
        self.decided += int((does | ~can).sum())
        return np.flatnonzero(does), np.flatnonzero(can & ~does)

    def _rounding(self, cells: Geometry, maps: FloatArray) -> FloatArray:
        """What the bounds may be off by where large terms cancel, over all cells of a batch, shape (rows,)."""
        points, _ = cells.corners()
        size = np.abs(points).max(axis=0) @ np.abs(maps[:, :-1]).max(axis=0) + np.abs(maps[:, -1]).max(axis=0)
        layers = self.net.layers
        for i in range(self.layer, len(layers)):
            if i > self.layer:
                size = np.asarray(abs(layers[i].weight) @ size) + np.abs(layers[i].bias)
            units = layers[i].units
            size = np.abs(units.slopes).max(axis=1) * size + np.abs(units.intercepts).max(axis=1)
        return _TERMS * EPS * (np.abs(self.G) @ size + np.abs(self.g))

    def _row_bounds(self, cells: Geometry, maps: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Least and largest value of each row on each cell, shapes (n, rows)."""
        points, offsets = cells.corners()
        n = len(cells)
        least, largest = np.zeros((n, maps.shape[2])), np.zeros((n, maps.shape[2]))  # slack around the affine part
        layers = self.net.layers
        for i in range(self.layer, len(layers) - 1):
            low, high = np.empty(least.shape), np.empty(least.shape)
            ranges(points, offsets, maps, low, high)
            slope, down, up = _relaxed(layers[i].units, low + least, high + largest)
            maps = maps * slope[:, None, :]
            a, b = slope * least, slope * largest
            least, largest = np.minimum(a, b) + down, np.maximum(a, b) + up
            last = i + 1 == len(layers) - 1
            weight = layers[i + 1].weight
            bias = layers[i + 1].bias
            if last:
                weight, bias = self.G @ weight, self.G @ bias
            maps = _times(maps, weight)
            maps[:, -1, :] += bias
            least, largest = _interval_times(least, largest, weight)
        low, high = np.empty(least.shape), np.empty(least.shape)
        ranges(points, offsets, np.ascontiguousarray(maps), low, high)
        return low + least, high + largest


def _times(maps: FloatArray, weight: Any) -> FloatArray:
    n, rows, m = maps.shape
    flat = maps.reshape(n * rows, m)
    return np.ascontiguousarray((weight @ flat.T).T).reshape(n, rows, weight.shape[0])


def _interval_times(low: FloatArray, high: FloatArray, weight: Any) -> tuple[FloatArray, FloatArray]:
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    centre, spread = (weight @ middle.T).T, (abs(weight) @ half.T).T
    return np.asarray(centre - spread), np.asarray(centre + spread)


def _relaxed(units: Any, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """`act(h)` in `slope h + [down, up]` for `low <= h <= high`: the chord's slope, extremes at the break points."""
    at_low, at_high = units(low), units(high)
    width = high - low
    flat = width <= 0
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(flat, 0.0, (at_high - at_low) / np.where(flat, 1.0, width))
    first = at_low - slope * low
    second = at_high - slope * high
    down, up = np.minimum(first, second), np.maximum(first, second)
    mine = np.flatnonzero(units.pieces > 1)
    breaks = units.breaks[mine]  # padded with infinity, which is never inside
    with np.errstate(invalid="ignore"):
        at_break = units.slopes[mine, :-1] * breaks + units.intercepts[mine, :-1]
    low, high, chord, here = (a[:, mine, None] for a in (low, high, slope, first))
    step = max(1, _NUMBERS // max(low.size, 1))
    for k in range(0, breaks.shape[1], step):  # beyond the ends a break point says nothing
        t, value = breaks[:, k : k + step], at_break[:, k : k + step]
        with np.errstate(invalid="ignore"):
            rest = np.where((t > low) & (t < high), value - chord * t, here)
        down[:, mine], up[:, mine] = (
            np.minimum(down[:, mine], rest.min(axis=2)),
            np.maximum(up[:, mine], rest.max(axis=2)),
        )
    return slope, down, up
