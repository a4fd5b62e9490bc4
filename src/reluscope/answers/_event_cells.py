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
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numba as nb
import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope.cells.split import Geometry
from reluscope.cells.subdivide import PROBABLE_ERRORS, Batch, Plan, Stack, first_labels, traverse
from reluscope.events import PlacedEvent
from reluscope.network import Network, Pattern
from reluscope.parallel import blas_threads

if TYPE_CHECKING:
    from reluscope.budget import Budget
    from reluscope.inputs import Component

Index = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]

_CAUTION = 1e-9
"""Bounds this close to a row's limit, as a share of the numbers in them, decide nothing."""
_IDLE = 8
"""Of the batches of a layer whose bounds decide almost nothing, one in so many is still tried."""


@dataclass(frozen=True, eq=False)
class Inside:
    """A batch of cells inside the event. `blur[i]` bounds how far rounding may move the cuts of cell i.

    `pattern[i]` has the units' pieces on final cells; where the event held before all layers were cut, `pattern` is
    None.
    """

    cells: Geometry
    blur: FloatArray
    pattern: Pattern | None


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
        net = self.component.network
        plan = Plan.by_influence(net, self.start.dimension)
        screens: dict[tuple[int, int], _Screen] = {}
        stack = Stack(plan.start(self.start))

        def screen(batch: Batch) -> tuple[Index, Index]:
            self.visited += len(batch.root)
            near = np.arange(len(batch.root)) if self.skip is None else np.flatnonzero(~self.skip(batch.cells))
            if batch.final or not len(near):
                return near[:0], near
            place = batch.layer, batch.piece.shape[1]
            if place not in screens:
                screens[place] = _Screen(net, self.event, batch.layer, self.whole)
            batch = batch.take(near)
            settled, left = screens[place](batch.cells, batch.maps)
            return near[settled], near[left]

        def stop(visited: int) -> bool:
            self.stopped = self.budget.spent(visited) if visited else None
            return self.stopped is not None

        with blas_threads(max(net.widths[1:])):
            for batch in traverse(stack, screen=screen, stop=stop):
                if batch.final:
                    yield from self._final(batch)
                else:
                    yield Inside(batch.cells, np.zeros(len(batch.root)), None)
        self.pending = [w.cells for w in stack.waiting]

    def _final(self, at: Batch) -> Iterator[Inside]:
        """Cut the cases out of cells on which the network is affine, one after the other."""
        event, cells = self.event, at.cells
        features = event.features(at.pattern)
        left = np.arange(len(cells))  # which cell each remaining part was cut from
        label = first_labels(self.component.network)[-1]
        for case in event.cases:
            if not len(left):
                return
            maps, tolerance = _row_maps(event, case, at, features)
            strict = event.strict[case]
            inside, owner, blur = cells, left, np.zeros(len(left))
            outside: list[tuple[Geometry, Index]] = []
            for k in range(len(strict)):
                if not len(owner):
                    break
                sign = -1.0 if strict[k] else 1.0
                here = np.ascontiguousarray(sign * maps[owner, :, k : k + 1])
                found = inside.split(here, tolerance[owner, k : k + 1], np.zeros((1, 1)), label)
                label += 1
                # A cell that lies on the limit all over belongs to the piece below: in for <=, out for <.
                is_in = (found.piece[:, 0] == 0) != bool(strict[k])
                cut = (np.bincount(found.parent, minlength=len(owner)) > 1)[found.parent]
                parent = owner[found.parent]
                slope = np.sqrt((maps[parent, :-1, k] ** 2).sum(axis=1))
                with np.errstate(divide="ignore", invalid="ignore"):
                    shift = np.where(cut, tolerance[parent, k] / slope, 0.0)
                blur = blur[found.parent] + shift
                out = np.flatnonzero(~is_in)
                if len(out):
                    outside.append((found.cells.take(out), parent[out]))
                keep = np.flatnonzero(is_in)
                inside, owner, blur = found.cells.take(keep), parent[keep], blur[keep]
            if len(owner):
                yield Inside(inside, blur, at.pattern[owner])
            if not outside:
                return
            cells = type(inside).join([c for c, _ in outside])
            left = np.concatenate([o for _, o in outside])


def _row_maps(event: PlacedEvent, case: slice, at: Batch, features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Each row minus its limit as an affine map on each cell, (n, d + 1, rows), and what counts as zero, (n, rows)."""
    G, F, g = event.G[case], event.F[case], event.g[case]
    maps = at.maps @ G.T
    maps[:, -1, :] += features @ F.T - g
    error2 = at.error2 @ (G.T**2) + (EPS * EPS) * (g**2 + (features**2) @ (F.T**2))
    return maps, PROBABLE_ERRORS * np.sqrt(error2)


# -- which cells can meet the event --------------------------------------------------------------------------------


class _Screen:
    """Sorts cells about to be cut by hidden layer `layer`: the event holds on them, or cannot hold, or is open."""

    def __init__(self, net: Network, event: PlacedEvent, layer: int, whole: bool) -> None:
        self.net, self.layer = net, layer
        # All rows that do not depend on features, as outputs of one last layer.
        plain: BoolArray = ~np.any(event.F, axis=1)
        self.G, self.g = event.G[plain], event.g[plain]
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
        size = _CAUTION * (np.maximum(np.abs(low), np.abs(high)) + np.abs(self.g))
        fails, holds = low > self.g + size, high < self.g - size
        can, does = np.zeros(len(cells), bool), np.zeros(len(cells), bool)
        for mine, whole in zip(self.cases, self.whole, strict=True):
            can |= ~fails[:, mine].any(axis=1)
            if whole:
                does |= holds[:, mine].all(axis=1)
        self.tried += len(cells)
        self.decided += int((does | ~can).sum())
        return np.flatnonzero(does), np.flatnonzero(can & ~does)

    def _row_bounds(self, cells: Geometry, maps: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Least and largest value of each row on each cell, shapes (n, rows)."""
        points, offsets = cells.corners()
        n = len(cells)
        least, largest = np.zeros((n, maps.shape[2])), np.zeros((n, maps.shape[2]))  # slack around the affine part
        layers = self.net.layers
        for i in range(self.layer, len(layers) - 1):
            low, high = np.empty(least.shape), np.empty(least.shape)
            _ranges(points, offsets, maps, low, high)
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
        _ranges(points, offsets, np.ascontiguousarray(maps), low, high)
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
    for k in range(units.breaks.shape[1]):
        t = np.clip(units.breaks[:, k], low, high)
        rest = units(t) - slope * t
        down, up = np.minimum(down, rest), np.maximum(up, rest)
    return slope, down, up


@nb.njit(cache=True)
def _ranges(points, offsets, maps, low, high):  # type: ignore[no-untyped-def]
    """Least and largest value of each affine map over the vertices of each cell."""
    n, rows, m = maps.shape
    value = np.empty(m)
    for c in range(n):
        for j in range(m):
            low[c, j] = np.inf
            high[c, j] = -np.inf
        for v in range(offsets[c], offsets[c + 1]):
            for j in range(m):
                value[j] = maps[c, rows - 1, j]
            for q in range(rows - 1):
                x = points[v, q]
                for j in range(m):
                    value[j] += maps[c, q, j] * x
            for j in range(m):
                low[c, j] = min(low[c, j], value[j])
                high[c, j] = max(high[c, j], value[j])
