"""What rounding could hide: hyperplanes that pass a cell so closely that floats cannot say whether they cut it.

A geometry says of which cells that is so (`Split.near`). Most often the hyperplanes meet exactly: copies of units,
units without biases, whole numbers. Whether a hyperplane passes exactly through a vertex, where others meet, is a
determinant of the network's numbers that is 0 or not. It is computed modulo two primes of 31 bits, for all cells at
once (a determinant that is not 0 passes for 0 with a chance of about 1e-18). So is, in the whole space, whether a unit
has no slope along an edge without end.

Where they do not meet exactly, the cell is cut once more in whole numbers, from the weights themselves and without any
tolerance, and the parts are compared. That takes about a millisecond per part, so only so much of it is done. What is
missing, and what was not decided, is counted: an enumeration with such a count does not call itself complete.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope._text import count
from reluscope.cells.polytope import HPolytopes
from reluscope.cells.polytope_exact import Cell, Units, split_exactly
from reluscope.cells.split import Geometry, Labels, Split
from reluscope.cells.vertex import VertexCells, with_vertices
from reluscope.cells.vertex_split import POINT_TOLERANCE, RAY_DOUBT, RAY_TOLERANCE
from reluscope.network import Network, Pattern

if TYPE_CHECKING:
    from reluscope.events import ExactNetwork

Whole = npt.NDArray[np.int64]
Index = npt.NDArray[np.int64]

_PRIMES = (2147483647, 2147483629)
_FAR = 1234567891
"""Stands for the symbolic half-width of the whole space: any number will do, but for a chance of 1e-9."""
_MOST_MULTIPLICATIONS = 1 << 31
"""Multiplications modulo primes for one batch of cells: a few seconds."""
_MOST_NUMBERS = 1 << 22
"""Values at vertices that are held at once."""
_EXACT_WORK = 150_000
"""Parts times rows that may be cut in whole numbers in one enumeration: about ten seconds."""


UNKNOWN = 255
"""Stands for the piece of a unit that bounds nothing."""


class Cut(NamedTuple):
    """A batch of cells that units of a layer have cut: the first label of each layer's facets, the pieces of the layers
    before, and those of units of this layer that have cut before, from the first on (`UNKNOWN` where a unit has not, or
    need not be looked at)."""

    layer: int
    labels: list[int]
    pattern: Pattern
    piece: Pattern


class Doubts:
    """Counts, over one enumeration, the parts of cells that are missing and the cells that could not be decided."""

    def __init__(
        self,
        net: Network,
        box: tuple[FloatArray, FloatArray] | None = None,
        half_spaces: tuple[FloatArray, FloatArray] | None = None,
    ) -> None:
        self.net, self.box, self.half_spaces = net, box, half_spaces
        self.missing = self.empty = self.undecided = 0
        self._work = _EXACT_WORK
        self._exact: ExactNetwork | None = None

    def clear(self) -> None:
        """Forget all counts: the enumeration begins anew."""
        self.missing = self.empty = self.undecided = 0
        self._work = _EXACT_WORK

    def state(self) -> list[int]:
        """The counts and the work that is left, for `resume`."""
        return [self.missing, self.empty, self.undecided, self._work]

    def resume(self, state: list[int]) -> None:
        """Go on with the counts of an enumeration that was stopped."""
        self.missing, self.empty, self.undecided, self._work = state

    def text(self) -> str | None:
        """The counts in words; None if nothing is in doubt."""
        said = []
        if self.missing:
            said.append(f"at least {count(self.missing, 'part')} of cells, thinner than that, missing")
        if self.empty:
            said.append(f"{count(self.empty, 'part')} of cells listed that have no inner point")
        if self.undecided:
            said.append(f"{count(self.undecided, 'cell')} in which a part thinner than that may be missing")
        return f"hyperplanes closer together than rounding can tell: {'; '.join(said)}" if said else None

    def look(self, batch: Cut, units: Index, maps: FloatArray, tolerance: FloatArray, found: Split[Geometry]) -> None:
        """Decide about the cells of a batch that some units of their layer came near to."""
        if found.near is None or not found.near.any():
            return
        parents = np.flatnonzero(found.near)
        breaks = self.net.layers[batch.layer].units.breaks[units]
        open_ = found.near[parents] > 1
        if not isinstance(found.cells, HPolytopes):
            open_ |= ~self._meet_exactly(batch, units, maps, tolerance, breaks, found, parents)
        elif found.asked is not None and not open_.all():
            open_ |= ~self._are_level(batch, units, found.asked, parents)
        for c in parents[open_]:
            self._cut_again(batch, units, breaks, found, int(c))

    # -- modulo primes -----------------------------------------------------------------------------------------------

    def _meet_exactly(
        self,
        batch: Cut,
        units: Index,
        maps: FloatArray,
        tolerance: FloatArray,
        breaks: FloatArray,
        found: Split[Geometry],
        parents: Index,
    ) -> npt.NDArray[np.bool_]:
        """Of which parents it is true that all units near a vertex pass exactly through it."""
        exact = np.ones(len(parents), np.bool_)
        of_child = _places(batch, parents)[found.parent]
        children = np.flatnonzero(of_child >= 0)
        of_child = of_child[children]
        modular = _modular(self.net, batch, parents)
        if modular is None:
            return ~exact
        step = max(1, _MOST_NUMBERS // (16 * (found.cells.dimension + 1) * maps.shape[2]))
        for at in range(0, len(children), step):
            cells = with_vertices(found.cells.take(children[at : at + step]))
            mine = of_child[at : at + step]
            here = parents[mine]
            labels = batch.labels[batch.layer] + units * breaks.shape[1]
            for near in _near(cells, maps, tolerance, breaks, here, labels):
                fit = near.taken.copy()
                for p, layers in zip(_PRIMES, modular, strict=True):
                    fit &= self._through(p, layers, cells, mine, near, batch, units, breaks)
                exact[mine[near.cell[~fit]]] = False
        return exact

    def _are_level(self, batch: Cut, units: Index, asked: Labels, parents: Index) -> npt.NDArray[np.bool_]:
        """Of which parents it is true that all slopes are 0 that were taken for it."""
        exact = np.ones(len(parents), np.bool_)
        modular = _modular(self.net, batch, parents)
        if modular is None:
            return ~exact
        place, others = _places(batch, parents)[asked[:, 0]], asked.shape[1] - 2
        starts = others * np.arange(len(asked) + 1)
        for p, layers in zip(_PRIMES, modular, strict=True):
            rows = self._facets(p, layers, asked[:, 2:].ravel(), np.repeat(place, others), batch)
            slopes = layers[batch.layer][place, :, units[asked[:, 1]]].copy()
            rows[:, -1] = slopes[:, -1] = 0
            exact[place[~_in_span(rows % p, starts, slopes % p, np.arange(len(asked)), p)]] = False
        return exact

    def _through(
        self,
        p: int,
        layers: list[Whole],
        cells: VertexCells,
        mine: Index,
        near: _Near,
        batch: Cut,
        cutting: Index,
        breaks: FloatArray,
    ) -> npt.NDArray[np.bool_]:
        """Whether each of the near units passes, modulo a prime, through its vertex (or has no slope along its ray)."""
        d = cells.dimension
        vertex, which = np.unique(near.vertex, return_inverse=True)
        counts = np.diff(cells.facet_offsets)
        cell = np.searchsorted(cells.offsets, vertex, side="right") - 1
        facet = np.arange(int(counts.max(initial=1)))
        words = cells.bits[vertex]
        on = words[:, facet // 64] >> (facet % 64).astype(np.uint64) & np.uint64(1) != 0
        at, f = np.nonzero(on)
        labels = cells.labels[cells.facet_offsets[cell[at]] + f]
        rows = self._facets(p, layers, labels, mine[cell[at]], batch)
        units = layers[batch.layer][mine[near.cell], :, cutting[near.unit]].copy()
        units[:, -1] -= _residues(breaks[near.unit, near.step], p)
        if near.rays:  # what is left when R is divided by: the sides of the cube, and slopes
            units[:, -1] = 0
            rows[(labels >= 0) | (labels < -2 * d), -1] = 0
        starts = np.concatenate([[0], np.cumsum(on.sum(axis=1))])
        out: npt.NDArray[np.bool_] = _in_span(rows % p, starts, units % p, which.ravel().astype(np.int64), p)
        return out

    def _facets(self, p: int, layers: list[Whole], labels: npt.NDArray[np.integer], place: Index, batch: Cut) -> Whole:
        """The rows of facets by their labels, each on one of the parents."""
        d = layers[0].shape[1] - 1
        rows = np.zeros((len(labels), d + 1), np.int64)
        firsts = np.asarray(batch.labels)
        inner = np.flatnonzero(labels >= 0)
        of_layer = np.searchsorted(firsts, labels[inner], side="right") - 1
        for k in np.unique(of_layer):
            i = inner[of_layer == k]
            table = self.net.layers[k].units.breaks
            unit, step = np.divmod(labels[i] - firsts[k], table.shape[1])
            rows[i] = layers[k][place[i], :, unit]
            rows[i, -1] -= _residues(table[unit, step], p)
        for label in np.unique(labels[labels < 0]):
            rows[labels == label] = self._side(int(label), d, p)
        return rows

    def _side(self, label: int, d: int, p: int) -> Whole:
        """The row of a facet of the domain."""
        row = np.zeros(d + 1, np.int64)
        if label < -2 * d:
            assert self.half_spaces is not None
            A, b = self.half_spaces
            k = -1 - 2 * d - label
            return np.append(_residues(A[k], p), -_residues(b[k : k + 1], p))
        q, upper = divmod(-1 - label, 2)
        row[q] = 1
        if self.box is None:
            row[-1] = -_FAR if upper else _FAR
        else:
            row[-1] = -int(_residues(self.box[upper][q : q + 1], p)[0])
        return row

    # -- whole numbers -----------------------------------------------------------------------------------------------

    def _cut_again(self, batch: Cut, cutting: Index, breaks: FloatArray, found: Split[Geometry], c: int) -> None:
        """Cut one cell in whole numbers, and count what differs."""
        mine = {tuple(p) for p in found.piece[found.parent == c].tolist()}
        pieces = [*batch.pattern[c].tolist(), *batch.piece[c].tolist()]
        before = len(pieces) - pieces.count(UNKNOWN)
        d = self.net.n_inputs
        weights = sum(layer.width * layer.n_inputs for layer in self.net.layers[: batch.layer + 1])
        self._work -= (len(mine) + 1) * (before + breaks.shape[0]) + (d + 1) * weights // 100
        if self._work < 0:
            self.undecided += 1
            return
        rows, units = self._rows(batch.layer, pieces, cutting)
        none = np.full(d, np.inf)
        lower, upper = (-none, none) if self.box is None else self.box
        if self.half_spaces is not None:
            A, b = self.half_spaces
            for normal, bound in zip(A, b, strict=True):
                rows.append(([Fraction(float(a)) for a in normal], Fraction(float(bound))))
        A_rows = np.empty((len(rows), d), object)
        b_rows = np.empty(len(rows), object)
        for i, (a, bound) in enumerate(rows):
            A_rows[i], b_rows[i] = a, bound
        cell = Cell(A_rows, b_rows, np.zeros(len(rows)), (), lower, upper)
        truth = set()
        for part in split_exactly(cell, units, np.zeros(breaks.shape[0]), breaks, 0):
            truth.add(tuple(part.piece.tolist()))
            if len(truth) > 4 * len(mine) + 1000:
                break
        else:
            self.empty += len(mine - truth)
        self._work -= max(0, len(truth) - len(mine)) * (before + breaks.shape[0])
        self.missing += len(truth - mine)

    def _rows(
        self, layer: int, pieces: Sequence[int], cutting: Index
    ) -> tuple[list[tuple[list[Fraction], Fraction]], Units]:
        """Half-spaces `a . x <= b` of the given pieces, in the order of the units, and the units that cut."""
        from reluscope.events import ExactNetwork

        if self._exact is None:
            self._exact = ExactNetwork(self.net)
        d = self.net.n_inputs
        z = [[Fraction(int(i == j)) for j in range(d)] + [Fraction(0)] for i in range(d)]
        rows: list[tuple[list[Fraction], Fraction]] = []
        at, wanted, kept = 0, set(cutting.tolist()), {}
        for k in range(layer + 1):
            weights, bias, acts = self._exact.layers[k]
            out = []
            for j, (row, b, act) in enumerate(zip(weights, bias, acts, strict=True)):
                piece = pieces[at] if at < len(pieces) else UNKNOWN
                at += 1
                if piece == UNKNOWN and not (k == layer and j in wanted):
                    continue
                h = [sum((w * z[i][q] for i, w in row if z[i][q]), Fraction(0)) for q in range(d + 1)]
                h[-1] += b
                if k == layer and j in wanted:
                    kept[j] = h
                    continue
                ends = [Fraction(t) for t in act.breaks]
                if any(h[:-1]):
                    if piece > 0:
                        rows.append(([-a for a in h[:-1]], h[-1] - ends[piece - 1]))
                    if piece < len(ends):
                        rows.append((h[:-1], ends[piece] - h[-1]))
                if k < layer:
                    slope = Fraction(act.slopes[piece])
                    out.append([*(slope * a for a in h[:-1]), slope * h[-1] + Fraction(act.intercepts[piece])])
            z = out
        z = [kept[j] for j in cutting.tolist()]
        size = np.array([np.linalg.norm([float(a) for a in h[:-1]]) if any(h[:-1]) else 0.0 for h in z])
        with np.errstate(divide="ignore", invalid="ignore"):
            norm = np.where(size > 0, 2.0 ** np.round(np.log2(size)), 0.0)
        return rows, Units([h[:-1] for h in z], [h[-1] for h in z], norm)


@np.errstate(over="ignore", invalid="ignore")
def least_slopes(net: Network) -> list[FloatArray]:
    """For each unit of each layer the sum of absolute slopes from which on `RAY_DOUBT` allows for their rounding.

    Whatever the pattern: rounding is bounded by sums of absolute values.
    """
    largest = np.abs(net.layers[0].dense()).sum(axis=1)
    out, roundings = [np.zeros(len(largest))], 0
    for here, following in itertools.pairwise(net.layers):
        largest = abs(following.weight) @ (np.abs(here.units.slopes).max(axis=1) * largest)
        roundings += here.width + 2
        out.append(4.0 * roundings * EPS / RAY_DOUBT * largest)
    return out


@np.errstate(over="ignore", invalid="ignore")
def inexact_slopes(
    net: Network, batch: Cut, units: Index, maps: FloatArray, least: FloatArray
) -> npt.NDArray[np.bool_]:
    """Of which cells it is true that rounding of a unit's slopes may be more than `RAY_DOUBT` allows for.

    Where slopes are below `least`, rounding is bounded once more for the pattern of the cell. Slopes may be exactly 0.
    """
    if (np.abs(maps[:, 0]) >= least).all():  # the slopes along one input are enough, most often
        return np.zeros(len(maps), np.bool_)
    weight: FloatArray = np.einsum("ndm->nm", np.abs(maps[:, :-1]))
    out: npt.NDArray[np.bool_] = np.any(~(weight >= least), axis=1)
    some = np.flatnonzero(out)
    if not len(some):
        return out
    slopes = np.broadcast_to(net.layers[0].dense().T, (len(some), net.n_inputs, net.layers[0].width))
    error, done = np.zeros(()), 0
    for here, following in itertools.pairwise(net.layers[: batch.layer + 1]):
        piece = batch.pattern[some, done : done + here.width]
        done += here.width
        steep = here.units.slopes[np.arange(here.width), piece]
        slopes = slopes * steep[:, None, :]
        error = np.abs(steep) * error + (here.width + 2) * EPS * np.abs(slopes).sum(axis=1)
        error = (abs(following.weight) @ error.T).T
        slopes = (following.weight @ slopes.reshape(-1, here.width).T).T.reshape(len(some), net.n_inputs, -1)
    unsure = ~(4.0 / RAY_DOUBT * error[:, units] <= weight[some])
    level = unsure & (weight[some] == 0.0)
    if level.any():
        modular = _modular(net, batch, some)
        level &= modular is not None
        for layers in modular or ():
            level &= ~layers[-1][:, :-1, units].any(axis=1)
    out[some] = np.any(unsure & ~level, axis=1)
    return out


def _modular(net: Network, batch: Cut, parents: Index) -> list[list[Whole]] | None:
    """`_maps_modulo` of both primes; None where that takes too long."""
    widths = [layer.width for layer in net.layers[: batch.layer + 1]]
    work = len(parents) * (net.n_inputs + 1) * sum(a * b for a, b in itertools.pairwise(widths))
    return None if work > _MOST_MULTIPLICATIONS else [_maps_modulo(net, p, batch, parents) for p in _PRIMES]


def _maps_modulo(net: Network, p: int, batch: Cut, parents: Index) -> list[Whole]:
    """Pre-activations of all layers up to the batch's on some of its cells, (cells, dimension + 1, units) each."""
    first = net.layers[0]
    start = np.concatenate([first.dense().T, first.bias[None]])
    maps = np.broadcast_to(_residues(start, p)[None], (len(parents), *start.shape))
    out, done = [maps], 0
    for k in range(batch.layer):
        units, following = net.layers[k].units, net.layers[k + 1]
        piece = batch.pattern[parents, done : done + units.slopes.shape[0]].astype(np.int64)
        done += piece.shape[1]
        each = np.arange(piece.shape[1])
        z = maps * _residues(units.slopes, p)[each, piece][:, None, :] % p
        z[:, -1, :] += _residues(units.intercepts, p)[each, piece]
        weight = _residues(following.dense(), p).T
        low, high = weight & 0x7FFF, weight >> 15
        flat = (z % p).reshape(-1, z.shape[2])
        maps = (flat @ low + (flat @ high % p << 15)) % p
        maps = maps.reshape(*z.shape[:2], following.width)
        maps[:, -1, :] = (maps[:, -1, :] + _residues(following.bias, p)) % p
        out.append(maps)
    return out


class _Near(NamedTuple):
    """Units near a vertex that they do not bound: the cell and the vertex in their batch, the unit and break point, and
    whether it was taken for one that the unit passes through. With `rays`, units that may be parallel to its ray."""

    cell: Index
    vertex: Index
    unit: Index
    step: Index
    taken: npt.NDArray[np.bool_]
    rays: bool


def _near(
    cells: VertexCells, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, parent: Index, labels: Index
) -> list[_Near]:
    counts = np.diff(cells.offsets)
    of_vertex = np.repeat(np.arange(len(cells)), counts)
    mine = parent[of_vertex]
    value = np.einsum("vd,vdm->vm", cells.points, maps[mine, :-1]) + maps[mine, -1]
    wide = 2.0 * tolerance[mine]
    if cells.dimension == 1:  # points are told apart, not values: crossings move by the tolerance over the slope
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = tolerance / np.abs(maps[:, 0])
        moved[~np.isfinite(moved)] = 0.0
        wide = wide + 2.0 * np.abs(maps[mine, 0]) * moved.max(axis=1)[mine][:, None]
    parallel = np.ones(value.shape, np.bool_)
    out = []
    if cells.is_open:
        size = np.abs(maps[:, :-1])
        weight = size.sum(axis=1)[mine]
        rise = np.abs(np.einsum("vd,vdm->vm", cells.rays, maps[mine, :-1]))
        parallel = rise <= 2.0 * RAY_TOLERANCE * weight
        wide = wide + 2.0 * POINT_TOLERANCE * np.einsum("vd,vdm->vm", cells.scales, size[mine])
        vertex, unit = np.nonzero((rise <= 2.0 * RAY_DOUBT * weight) & np.any(cells.rays != 0, axis=1, keepdims=True))
        other = ~_bounds(cells, of_vertex, vertex, labels[unit], breaks.shape[1])
        vertex, unit = vertex[other], unit[other]
        taken = rise[vertex, unit] <= 0.5 * RAY_TOLERANCE * weight[vertex, unit]
        out.append(_Near(of_vertex[vertex], vertex, unit, np.zeros(len(unit), np.int64), taken, rays=True))
    vertex, unit, step = np.nonzero(
        (np.abs(value[:, :, None] - breaks[None]) <= wide[:, :, None]) & parallel[:, :, None]
    )
    other = ~_bounds(cells, of_vertex, vertex, labels[unit] + step, 1)
    vertex, unit, step = vertex[other], unit[other], step[other]
    out.append(_Near(of_vertex[vertex], vertex, unit, step, np.ones(len(unit), np.bool_), rays=False))
    return [near for near in out if len(near.vertex)]


def _bounds(cells: VertexCells, of_vertex: Index, vertex: Index, first: Index, steps: int) -> npt.NDArray[np.bool_]:
    """Whether each of some vertices lies on a facet with one of the labels `first, ..., first + steps - 1`."""
    cell, counts = of_vertex[vertex], np.diff(cells.facet_offsets)
    own = np.zeros(len(vertex), np.bool_)
    for f in range(int(counts.max()) if len(vertex) else 0):
        has = f < counts[cell]
        label = cells.labels[np.where(has, cells.facet_offsets[cell] + f, 0)]
        on = cells.bits[vertex, f // 64] >> np.uint64(f % 64) & np.uint64(1) != 0
        own |= has & on & (first <= label) & (label < first + steps)
    return own


def _places(batch: Cut, parents: Index) -> Index:
    """The place of each cell of a batch among some of them; -1 for the others."""
    place = np.full(len(batch.pattern), -1)
    place[parents] = np.arange(len(parents))
    return place


def _residues(x: FloatArray, p: int) -> Whole:
    """Floats, each a whole number times a power of two, modulo a prime; infinite ones give 0."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))
    number = np.ldexp(mantissa, 53).astype(np.int64) % p
    powers, which = np.unique(exponent, return_inverse=True)
    table = np.array([pow(2, int(e) - 53, p) for e in powers], np.int64)
    out: Whole = number * table[which].reshape(number.shape) % p
    return out


@nb.njit(cache=True, nogil=True)
def _in_span(rows, starts, units, which, p):  # type: ignore[no-untyped-def]
    """Whether row `units[i]` is a combination, modulo p, of the rows of set `which[i]`, which must not span it all.

    Set s has the rows `starts[s]:starts[s + 1]`.
    """
    n, wide = len(starts) - 1, rows.shape[1]
    reduced = np.zeros((n, wide, wide), np.int64)  # reduced[s, q] has its leading 1 in column q
    full = np.zeros((n, wide), np.bool_)
    row = np.empty(wide, np.int64)
    for s in range(n):
        for i in range(starts[s], starts[s + 1]):
            for q in range(wide):
                row[q] = rows[i, q]
            for q in range(wide):
                if row[q] == 0:
                    continue
                if full[s, q]:
                    factor = row[q]
                    for r in range(q, wide):
                        row[r] = (row[r] + (p - factor) * reduced[s, q, r]) % p
                    continue
                # The inverse by Fermat: row[q] to the power p - 2.
                inverse, base, power = np.int64(1), row[q], p - 2
                while power > 0:
                    if power & 1:
                        inverse = inverse * base % p
                    base = base * base % p
                    power >>= 1
                for r in range(wide):
                    reduced[s, q, r] = row[r] * inverse % p
                full[s, q] = True
                break
    out = np.empty(len(units), np.bool_)
    for i in range(len(units)):
        s = which[i]
        out[i] = not full[s].all()
        for q in range(wide):
            row[q] = units[i, q]
        for q in range(wide):
            if row[q] == 0:
                continue
            if not full[s, q]:
                out[i] = False
                break
            factor = row[q]
            for r in range(q, wide):
                row[r] = (row[r] + (p - factor) * reduced[s, q, r]) % p
    return out
