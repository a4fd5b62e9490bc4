"""Wide first layers: every cell is cut by the units that can cross it, and by no others.

An arrangement of n lines has about n^2 cells, but a cell is crossed by few of the lines. Here the first layer cuts the
starting cell by a few units, spread over all of them; each child keeps the list of those others that cross it, and is
cut by a few of them in turn, until a list is short. Its units then cut together. So the cost per cell does not grow
with the layer. What the next layer sees is summed up in the same way: once for the units that are settled on a short
list's cell, and then, for its children, over the list alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


class _Node(NamedTuple):
    """One cell, the units that may cross it, and the piece of every unit (`UNKNOWN` for those)."""

    cell: Geometry
    units: Index
    piece: npt.NDArray[np.uint8]


def is_wide(net: Network, cells: Geometry) -> bool:
    """Whether the first layer is cut here: a bounded cell of two or three dimensions, more units than a short list."""
    short = _SHORT.get(cells.dimension)
    if short is None or len(cells) != 1 or not net.hidden or len(getattr(cells, "rays", ())):
        return False
    units = net.hidden[0].units
    return net.hidden[0].width > short and units.breaks.shape[1] == 1


def first_layer(
    net: Network,
    cell: Geometry,
    maps: FloatArray,
    error2: FloatArray,
    *,
    tolerance: FloatArray,
    errors: bool,
    doubts: Doubts | None,
    stop: Callable[[int], bool] | None,
) -> Iterator[FirstCells]:
    """The cells of the first layer in a starting cell, some hundreds at a time.

    `maps` (dimension + 1, units), `error2` and `tolerance` (units) are those of the first layer. With `errors`, the
    errors of the second layer are computed too.
    """
    d = cell.dimension
    short, fewest, most = _SHORT[d], _FEWEST[d], _MOST[d]
    units = net.hidden[0].units
    t = units.breaks[:, 0]
    bent = np.flatnonzero(np.isfinite(t))
    piece = np.zeros(len(t), np.uint8)
    piece[bent] = UNKNOWN
    cutter = _Cutter(maps, tolerance, units.breaks, doubts)
    after = _After(net, maps, error2, errors)
    nodes = [_Node(cell, bent, piece)]
    done = 0
    while nodes:
        if stop is not None and stop(done):
            return
        node = nodes.pop()
        n = len(node.units)
        if n <= short:
            found = cutter.cut(node, node.units)
            done += len(found.parent)
            pattern = np.repeat(node.piece[None], len(found.parent), axis=0)
            pattern[:, node.units] = found.piece
            yield FirstCells(found.cells, pattern, *after(node, found.piece))
            continue
        few = min(most, max(fewest, n // short))
        chosen = node.units[(np.arange(few) * n) // few]
        rest = np.setdiff1d(node.units, chosen, assume_unique=True)
        found = cutter.cut(node, chosen)
        below, above = _settled(found.cells, maps[:, rest], tolerance[rest], t[rest])
        for i in range(len(found.parent)):
            mine = node.piece.copy()
            mine[chosen] = found.piece[i]
            mine[rest[below[i]]] = 0
            mine[rest[above[i]]] = 1
            nodes.append(_Node(found.cells.take(np.array([i])), rest[~(below[i] | above[i])], mine))


class _Cutter:
    """Cuts a node by some units."""

    def __init__(self, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, doubts: Doubts | None) -> None:
        self.maps, self.tolerance, self.breaks, self.doubts = maps, tolerance, breaks, doubts

    def cut(self, node: _Node, units: Index) -> Split[Geometry]:
        maps = np.ascontiguousarray(self.maps[None, :, units])
        tolerance = self.tolerance[None, units]
        found: Any = node.cell.split(maps, tolerance, self.breaks[units], _LABELS)
        table = units.astype(np.int32)

        def rename(labels: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
            inner = labels >= _LABELS
            return np.where(inner, table[np.where(inner, labels - _LABELS, 0)], labels)

        if len(units):
            found = found._replace(cells=found.cells.relabelled(rename))
        if self.doubts is not None and found.near is not None and found.near.any():
            # The facets of the cell bound it; what is clear of all its vertices does not.
            labels, _ = node.cell.facet_labels()
            own = labels[labels >= 0]
            bounding = np.full(len(node.piece), UNKNOWN, np.uint8)
            bounding[own] = node.piece[own]
            cut = Cut(0, [0, len(node.piece)], np.zeros((1, 0), np.uint8), bounding[None])
            self.doubts.look(cut, units, maps, tolerance, found)
        return found


def _settled(
    cells: Geometry, maps: FloatArray, tolerance: FloatArray, t: FloatArray
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which units are clearly below, and clearly above, their break point all over each cell, (cells, units) each."""
    points, offsets = cells.corners()
    value = points @ maps[:-1] + (maps[-1] - t)
    return (
        np.maximum.reduceat(value, offsets[:-1]) < -2.0 * tolerance,
        np.minimum.reduceat(value, offsets[:-1]) > 2.0 * tolerance,
    )


class _After:
    """The maps of the second layer on the children of a node."""

    def __init__(self, net: Network, maps: FloatArray, error2: FloatArray, errors: bool) -> None:
        self.maps, self.error2, self.errors = maps, error2, errors
        units, self.next = net.hidden[0].units, net.layers[1]
        self.slopes, self.shifts = units.slopes, units.intercepts
        self.weight: Any = self.next.weight
        self.squares: Any = (
            self.weight.multiply(self.weight).tocsr() if sparse.issparse(self.weight) else self.weight**2
        )

    def __call__(self, node: _Node, piece: Pattern) -> tuple[FloatArray, FloatArray]:
        listed = node.units
        each = np.arange(len(node.piece))
        start = np.where(node.piece == UNKNOWN, 0, node.piece)
        s, t = self.slopes[each, start], self.shifts[each, start]
        base = self.maps * s
        base[-1] += t
        rows, m = base.shape[0], self.next.width
        first = (self.weight @ base.T).T
        first[-1] += self.next.bias
        if not len(listed):
            more = np.zeros((len(piece), rows, m))
        else:
            more_s = self.slopes[listed, 1] - self.slopes[listed, 0]
            step = self.maps[:, listed] * more_s
            step[-1] += self.shifts[listed, 1] - self.shifts[listed, 0]
            part = self._columns(self.weight, listed)
            table = (step.T[:, :, None] * part.T[:, None, :]).reshape(len(listed), rows * m)
            more = (piece.astype(float) @ table).reshape(len(piece), rows, m)
        maps = first[None] + more
        if not self.errors:
            return maps, np.zeros((len(piece), 0))
        points, _ = node.cell.corners()
        top = np.abs(points @ self.maps[:-1] + self.maps[-1]).max(axis=0)
        size2 = self.error2 + EPS * EPS * top * top
        error = s * s * size2 + EPS * EPS * t * t
        total = self.squares @ error + EPS * EPS * self.next.bias**2
        if len(listed):
            s0, s1, t0, t1 = (
                self.slopes[listed, 0],
                self.slopes[listed, 1],
                self.shifts[listed, 0],
                self.shifts[listed, 1],
            )
            rise = (s1 * s1 - s0 * s0) * size2[listed] + EPS * EPS * (t1 * t1 - t0 * t0)
            total = total + (piece * rise) @ self._columns(self.squares, listed).T
        return maps, np.maximum(np.broadcast_to(total, (len(piece), m)), 0.0)

    def _columns(self, weight: Any, listed: Index) -> FloatArray:
        part: Any = weight[:, listed]
        return part.toarray() if sparse.issparse(part) else part
