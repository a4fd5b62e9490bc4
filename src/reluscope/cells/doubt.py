"""What rounding could hide: hyperplanes that pass a cell so closely that floats cannot say whether they cut it.

A geometry says of which cells that is so (`Split.near`). Most often the hyperplanes meet exactly: copies of units,
units without biases, whole numbers. Whether a hyperplane passes exactly through a vertex, where others meet, is a
determinant of the network's numbers that is 0 or not. It is computed modulo two primes of 31 bits, for all cells at
once (a determinant that is not 0 passes for 0 with a chance of about 1e-18).

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

from reluscope._check import FloatArray
from reluscope._text import count
from reluscope.cells.polytope import HPolytopes
from reluscope.cells.polytope_exact import Cell, Units, split_exactly
from reluscope.cells.split import Geometry, Split
from reluscope.cells.vertex import VertexCells, with_vertices
from reluscope.cells.vertex_split import POINT_TOLERANCE, RAY_TOLERANCE
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
        place = np.full(len(batch.pattern), -1)
        place[parents] = np.arange(len(parents))
        of_child = place[found.parent]
        children = np.flatnonzero(of_child >= 0)
        of_child = of_child[children]
        widths = [layer.width for layer in self.net.layers[: batch.layer + 1]]
        rows = found.cells.dimension + 1
        work = len(parents) * rows * sum(a * b for a, b in itertools.pairwise(widths))
        if work > _MOST_MULTIPLICATIONS:
            exact[:] = False
            return exact
        modular = [self._maps_modulo(p, batch, parents) for p in _PRIMES]
        step = max(1, _MOST_NUMBERS // (16 * rows * maps.shape[2]))
        for at in range(0, len(children), step):
            cells = with_vertices(found.cells.take(children[at : at + step]))
            mine = of_child[at : at + step]
            here = parents[mine]
            near = _near(cells, maps, tolerance, breaks, here, batch.labels[batch.layer] + units * breaks.shape[1])
            if not len(near.vertex):
                continue
            fit = np.ones(len(near.vertex), np.bool_)
            for p, layers in zip(_PRIMES, modular, strict=True):
                fit &= self._through(p, layers, cells, mine, near, batch, units, breaks)
            exact[mine[near.cell[~fit]]] = False
        return exact

    def _maps_modulo(self, p: int, batch: Cut, parents: Index) -> list[Whole]:
        """Pre-activations of all layers up to the batch's on some of its cells, (cells, dimension + 1, units) each."""
        first = self.net.layers[0]
        start = np.concatenate([first.dense().T, first.bias[None]])
        maps = np.broadcast_to(_residues(start, p)[None], (len(parents), *start.shape))
        out, done = [maps], 0
        for k in range(batch.layer):
            units, following = self.net.layers[k].units, self.net.layers[k + 1]
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
        """Whether each of the near units passes, modulo a prime, through its vertex."""
        d = cells.dimension
        vertex, which = np.unique(near.vertex, return_inverse=True)
        counts = np.diff(cells.facet_offsets)
        cell = np.searchsorted(cells.offsets, vertex, side="right") - 1
        facet = np.arange(int(counts.max(initial=1)))
        words = cells.bits[vertex]
        on = words[:, facet // 64] >> (facet % 64).astype(np.uint64) & np.uint64(1) != 0
        at, f = np.nonzero(on)
        labels = cells.labels[cells.facet_offsets[cell[at]] + f]
        rows = np.zeros((len(labels), d + 1), np.int64)
        firsts = np.asarray(batch.labels)
        inner = np.flatnonzero(labels >= 0)
        of_layer = np.searchsorted(firsts, labels[inner], side="right") - 1
        for k in np.unique(of_layer):
            i = inner[of_layer == k]
            table = self.net.layers[k].units.breaks
            unit, step = np.divmod(labels[i] - firsts[k], table.shape[1])
            rows[i] = layers[k][mine[cell[at[i]]], :, unit]
            rows[i, -1] -= _residues(table[unit, step], p)
        for i in np.flatnonzero(labels < 0):
            rows[i] = self._side(int(labels[i]), d, p)
        units = layers[batch.layer][mine[near.cell], :, cutting[near.unit]].copy()
        units[:, -1] -= _residues(breaks[near.unit, near.step], p)
        starts = np.concatenate([[0], np.cumsum(on.sum(axis=1))])
        out: npt.NDArray[np.bool_] = _in_span(rows % p, starts, units % p, which.ravel().astype(np.int64), p)
        return out

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


class _Near(NamedTuple):
    """Units near a vertex that they do not bound: the cell and the vertex in their batch, the unit and break point."""

    cell: Index
    vertex: Index
    unit: Index
    step: Index


def _near(
    cells: VertexCells, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, parent: Index, labels: Index
) -> _Near:
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
    if cells.is_open:
        size = np.abs(maps[:, :-1])
        rise = np.einsum("vd,vdm->vm", cells.rays, maps[mine, :-1])
        parallel = np.abs(rise) <= 2.0 * RAY_TOLERANCE * size.sum(axis=1)[mine]
        wide = wide + 2.0 * POINT_TOLERANCE * np.einsum("vd,vdm->vm", cells.scales, size[mine])
    vertex, unit, step = np.nonzero(
        (np.abs(value[:, :, None] - breaks[None]) <= wide[:, :, None]) & parallel[:, :, None]
    )
    if len(vertex):
        label, cell = labels[unit] + step, of_vertex[vertex]
        own = np.zeros(len(vertex), np.bool_)
        for f in range(int(np.diff(cells.facet_offsets).max())):
            has = f < np.diff(cells.facet_offsets)[cell]
            at = np.where(has, cells.facet_offsets[cell] + f, 0)
            on = cells.bits[vertex, f // 64] >> np.uint64(f % 64) & np.uint64(1) != 0
            own |= has & on & (cells.labels[at] == label)
        vertex, unit, step = vertex[~own], unit[~own], step[~own]
    return _Near(of_vertex[vertex], vertex, unit, step)


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
