"""Wide first layers: every cell is cut by the units that can cross it, and by no others.

An arrangement of n lines has about n^2 cells, but a cell is crossed by few of the lines. Here the first layer cuts the
starting cell by a few units, spread over all of them; each child keeps the list of those others that cross it, and is
cut by a few of them in turn, until a list is short. Its units then cut together. So the cost per cell does not grow
with the layer. What the next layer sees is summed up in the same way: once for the units that are settled on a short
list's cell, and then, for its children, over the list alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray
from reluscope.cells.doubt import UNKNOWN, Cut, Doubts
from reluscope.cells.split import Geometry, Index
from reluscope.network import Network, Pattern

if TYPE_CHECKING:
    from reluscope.cells.split import Split

_SHORT = {2: 64, 3: 16}
"""Units that cut together at the end, by dimension."""
_FEWEST = {2: 8, 3: 4}
_MOST = {2: 32, 3: 8}
"""Units that cut together before that."""
_LABELS = 1 << 30
"""Labels from here on number the units of a list."""


class FirstCells(NamedTuple):
    """Cells of the first layer: their pieces, and the maps and squared errors of the units of the second."""

    cells: Geometry
    pattern: Pattern
    maps: FloatArray
    error2: FloatArray

    @classmethod
    def join(cls, parts: list[FirstCells]) -> FirstCells:
        """The cells of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        cells, *arrays = zip(*parts, strict=True)
        return cls(type(cells[0]).join(list(cells)), *map(np.concatenate, arrays))


class Listed(NamedTuple):
    """One cell, the units that may cross it, and the piece of every unit (`UNKNOWN` for those)."""

    cell: Geometry
    units: Index
    piece: npt.NDArray[np.uint8]

    @property
    def short(self) -> bool:
        """Whether all units of the list cut together."""
        return len(self.units) <= _SHORT[self.cell.dimension]

    @property
    def expected(self) -> int:
        """About how many cells come of a short list."""
        d, n = self.cell.dimension, len(self.units)
        return 1 + n + n**d // (3 * math.factorial(d))


def is_wide(net: Network, cells: Geometry) -> bool:
    """Whether the first layer is cut here: a bounded cell of two or three dimensions, more units than a short list."""
    short = _SHORT.get(cells.dimension)
    if short is None or len(cells) != 1 or not net.hidden or len(getattr(cells, "rays", ())):
        return False
    units = net.hidden[0].units
    return net.hidden[0].width > short and units.breaks.shape[1] == 1


class FirstLayer:
    """The first layer of a network, and how it cuts a cell of two or three dimensions, a few units at a time.

    `maps` (dimension + 1, units), `error2` and `tolerance` (units) are those of the first layer. With `errors`, the
    errors of the second layer are computed too.
    """

    def __init__(
        self, net: Network, maps: FloatArray, error2: FloatArray, *, tolerance: FloatArray, errors: bool
    ) -> None:
        self.maps, self.tolerance, self.breaks = maps, tolerance, net.hidden[0].units.breaks
        self._level = np.ascontiguousarray(self.breaks[:, 0])
        self._levels = np.unique(self.breaks[np.isfinite(self.breaks)])
        self._after = _After(net, maps, error2, errors)

    def root(self, cell: Geometry) -> Listed:
        """A starting cell, with all units that bend on its list."""
        bent = np.flatnonzero(np.isfinite(self.breaks[:, 0]))
        piece = np.zeros(len(self.breaks), np.uint8)
        piece[bent] = UNKNOWN
        return Listed(cell, bent, piece)

    def cut(self, node: Listed, doubts: Doubts | None) -> list[Listed]:
        """A cell with a long list, cut by a few units of it."""
        from reluscope.cells._advance import passed_on

        d, n = node.cell.dimension, len(node.units)
        few = min(_MOST[d], max(_FEWEST[d], n // _SHORT[d]))
        chosen = node.units[(np.arange(few) * n) // few]
        found = self._split(node, chosen, doubts)
        known = node.piece, self.maps, self.tolerance, self._level, UNKNOWN
        piece, units, starts = passed_on(*found.cells.corners(), found.piece, chosen, node.units, *known)
        ends = itertools.pairwise(starts.tolist())
        return [Listed(found.cells.part(i, i + 1), units[a:b], piece[i]) for i, (a, b) in enumerate(ends)]

    def finish(self, nodes: Sequence[Listed], doubts: Doubts | None) -> FirstCells:
        """The cells of the first layer in some cells with short lists.

        All are cut at once. Lists shorter than the longest are filled up with units that cut nothing.
        """
        if len(nodes) == 1 or len(self._levels) != 1:
            return FirstCells.join([self._finish_one(node, doubts) for node in nodes])
        from reluscope.cells._advance import filled_up, named

        lists = _lists(nodes)
        maps, tolerance = filled_up(*lists, self.maps, self.tolerance, self._levels[0])
        start = type(nodes[0].cell).join([node.cell for node in nodes])
        found: Any = start.split(maps, tolerance, np.full((maps.shape[2], 1), self._levels), _LABELS)
        labels, offsets = found.cells.facet_labels()
        own = named(labels, offsets, found.parent, *lists, _LABELS)
        if doubts is not None and found.near is not None:
            for k in np.flatnonzero(found.near).tolist():
                self._split(nodes[k], nodes[k].units, doubts)  # for what it says of this one alone
        ends = np.searchsorted(found.parent, np.arange(len(nodes) + 1))
        cells = found.cells.relabelled(lambda _: own)
        return self._listed(nodes, lists, start, cells, found.piece, ends)

    def _finish_one(self, node: Listed, doubts: Doubts | None) -> FirstCells:
        found = self._split(node, node.units, doubts)
        ends = np.array([0, len(found.parent)])
        return self._listed([node], _lists([node]), node.cell, found.cells, found.piece, ends)

    def _listed(
        self, nodes: Sequence[Listed], lists: Lists, start: Geometry, cells: Geometry, piece: Pattern, ends: Index
    ) -> FirstCells:
        """The children of nodes, those of node k at `ends[k]:ends[k + 1]`, from the pieces of the units on its list."""
        from reluscope.cells._advance import in_all

        known = np.stack([node.piece for node in nodes])
        piece = np.ascontiguousarray(piece)
        pattern = in_all(known, *lists, piece, ends)
        return FirstCells(cells, pattern, *self._after(nodes, known, lists, start, piece, ends))

    def _split(self, node: Listed, units: Index, doubts: Doubts | None) -> Split[Geometry]:
        maps = np.ascontiguousarray(self.maps[None, :, units])
        tolerance = self.tolerance[None, units]
        found: Any = node.cell.split(maps, tolerance, self.breaks[units], _LABELS)
        table = units.astype(np.int32)

        def rename(labels: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
            inner = labels >= _LABELS
            return np.where(inner, table[np.where(inner, labels - _LABELS, 0)], labels)

        if len(units):
            found = found._replace(cells=found.cells.relabelled(rename))
        if doubts is not None and found.near is not None and found.near.any():
            # The facets of the cell bound it; what is clear of all its vertices does not.
            labels, _ = node.cell.facet_labels()
            own = labels[labels >= 0]
            bounding = np.full(len(node.piece), UNKNOWN, np.uint8)
            bounding[own] = node.piece[own]
            cut = Cut(0, [0, len(node.piece)], np.zeros((1, 0), np.uint8), bounding[None])
            doubts.look(cut, units, maps, tolerance, found)
        return found


Lists = tuple[npt.NDArray[np.uint64], Index]


def _lists(nodes: Sequence[Listed]) -> Lists:
    """The units on the lists of nodes, back to back, and where each list starts."""
    return np.concatenate([node.units for node in nodes]).astype(np.uint64), np.cumsum(
        [0, *(len(node.units) for node in nodes)]
    )


class _After:
    """The maps of the second layer on the children of nodes: those of piece 0, and what each unit on piece 1 adds."""

    def __init__(self, net: Network, maps: FloatArray, error2: FloatArray, errors: bool) -> None:
        self.maps, self.error2, self.errors = maps, error2, errors
        units, self.next = net.hidden[0].units, net.layers[1]
        bent = np.isfinite(units.breaks[:, 0])
        self.slopes, self.shifts = (
            np.where(bent[:, None], both, both[:, :1]) for both in (units.slopes[:, :2], units.intercepts[:, :2])
        )
        self.by_unit: Any = self.next.weight.tocsc() if sparse.issparse(self.next.weight) else None
        if self.by_unit is not None:
            return
        base = maps * self.slopes[:, 0]
        base[-1] += self.shifts[:, 0]
        first = np.ascontiguousarray((self.next.weight @ base.T).T)
        first[-1] += self.next.bias
        step = maps * (self.slopes[:, 1] - self.slopes[:, 0])
        step[-1] += self.shifts[:, 1] - self.shifts[:, 0]
        squares = (np.ascontiguousarray(both.T**2) for both in (self.slopes, self.shifts))
        self.given = (maps, error2, *squares), (first, (EPS * self.next.bias) ** 2, step[None])

    def __call__(
        self, nodes: Sequence[Listed], known: Pattern, lists: Lists, start: Geometry, piece: Pattern, ends: Index
    ) -> tuple[FloatArray, FloatArray]:
        if self.by_unit is not None:
            each = [
                self._sparse_node(node, piece[begin:end, : len(node.units)])
                for node, begin, end in zip(nodes, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
            ]
            return np.concatenate([maps for maps, _ in each]), np.concatenate([error2 for _, error2 in each])
        from reluscope.cells._advance import from_lists

        given = (*start.corners(), known, *lists, piece, ends, *self.given, self.next.by_unit)
        maps, error2 = from_lists(*given, self.errors)
        return maps, error2 if self.errors else np.zeros((len(piece), 0))

    def _sparse_node(self, node: Listed, piece: Pattern) -> tuple[FloatArray, FloatArray]:
        """The same for one node, by the weights that are not zero."""
        listed = node.units
        each = np.arange(len(node.piece))
        start = np.where(node.piece == UNKNOWN, 0, node.piece)
        s, t = self.slopes[each, start], self.shifts[each, start]
        base = self.maps * s
        base[-1] += t
        (s0, s1), (t0, t1) = self.slopes[listed].T, self.shifts[listed].T
        step = self.maps[:, listed] * (s1 - s0)
        step[-1] += t1 - t0
        error, rise = np.zeros(len(each)), np.zeros(len(listed))
        if self.errors:
            points, _ = node.cell.corners()
            top = np.abs(points @ self.maps[:-1] + self.maps[-1]).max(axis=0)
            size2 = self.error2 + EPS * EPS * top * top
            error = s * s * size2 + EPS * EPS * t * t
            rise = (s1 * s1 - s0 * s0) * size2[listed] + EPS * EPS * (t1 * t1 - t0 * t0)
        first = np.zeros((len(base), self.next.width))
        first[-1] = self.next.bias
        total = EPS * EPS * self.next.bias**2
        on = np.flatnonzero((s != 0) | (t != 0))
        all_on = np.ones((1, len(on)), np.uint8)
        one, one_total = self._by_columns(on, all_on, first, total, np.ascontiguousarray(base[:, on]), error[on])
        return self._by_columns(listed, piece, one[0], one_total[0] if self.errors else total, step, rise)

    def _by_columns(
        self, listed: Index, piece: Pattern, first: FloatArray, total: FloatArray, step: FloatArray, rise: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        from reluscope.cells._advance import by_columns

        columns = self.by_unit.indptr, self.by_unit.indices, self.by_unit.data
        piece = np.ascontiguousarray(piece)
        maps, error2 = by_columns(first, total, piece, listed, step, rise, columns, self.errors)
        return maps, error2 if self.errors else np.zeros((len(piece), 0))
