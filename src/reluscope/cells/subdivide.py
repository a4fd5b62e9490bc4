"""The one traversal: layer by layer, split each cell by the hyperplanes that cross it.

Cells are worked on in batches. A geometry cuts a batch by the units of one layer (compiled code); one matrix
product gives the next layer's affine maps on all children at once; the children wait on a stack, in batches again,
so memory is bounded by depth times batch size however many regions there are. Nothing is visited twice: the cost
is linear in the number of cells over all layers.

Rounding. Next to every affine map travels the probable error `e` of the pre-activations on its cell,

    e'^2 = (W o W) (s^2 e^2 + eps^2 z^2) + eps^2 b^2,

with `z` the largest activation on the cell. A unit whose value at a vertex is within `16 e` of a break point counts as
being on it. Thus coincident hyperplanes (duplicate units, zero biases, integer weights) cut once, and true slivers
stay, however thin, as long as double precision can tell them from a coincidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray
from reluscope.network import Layer, Network, Pattern
from reluscope.parallel import blas_threads

BATCH_NUMBERS = 1 << 17
"""Numbers in the affine maps of one batch of cells: 1 MB, so that a batch stays in the cache."""

MOST_CHILDREN = 1 << 17
"""Children that one split by units of the first layer may make."""

PROBABLE_ERRORS = 16.0
"""A unit switches inside a cell when it does so by more than this many probable rounding errors."""


class Leaves(NamedTuple):
    """A batch of final cells: where the whole network is affine.

    `maps[i]` has shape (dimension + 1, outputs): `y = maps[i, :-1].T x + maps[i, -1]`. `root[i]` is the starting cell.
    """

    cells: Any
    pattern: Pattern
    maps: FloatArray
    root: npt.NDArray[np.int64]


class Pending(NamedTuple):
    """Children waiting to be split by layer `layer`; maps are made from the parents' when their turn comes.

    `piece` holds the pieces of the layer before; fewer than it has units where these take their turn in groups.
    """

    layer: int
    cells: Any
    parent: npt.NDArray[np.int64]
    piece: Pattern
    before: Batch


class Batch(NamedTuple):
    """Cells about to be split by a layer: its maps on them, squared errors, scales, and what is known so far."""

    maps: FloatArray
    error2: FloatArray
    top: FloatArray
    pattern: Pattern
    root: npt.NDArray[np.int64]


def subdivide(
    net: Network, cells: Any, start: FloatArray | None = None, *, batch: int | None = None
) -> Iterator[Leaves]:
    """All cells on which `net` is affine inside the starting cells, in batches.

    `cells` is a geometry (see `reluscope.cells.split`). `start` gives the first layer's pre-activations on the starting
    cells, shape (n, dimension + 1, units) or (1, ...); by default the cells live in the network's input space.
    """
    first = net.layers[0]
    if start is None:
        start = np.concatenate([first.dense().T, first.bias[None]])[None]
    n = len(cells)
    maps = np.broadcast_to(start, (n, *start.shape[1:]))
    width = max(net.widths[1:])
    size = batch or max(64, BATCH_NUMBERS // ((maps.shape[1] + 1) * width))
    error2 = (EPS * EPS) * squared_scale(cells, maps)
    empty = np.zeros((n, 0), np.uint8)
    root = np.arange(n)
    with blas_threads(width):
        if not net.hidden:
            yield Leaves(cells, empty, np.ascontiguousarray(maps), root)
            return
        stack: list[Pending] = []
        for begin in reversed(range(0, n, size)):
            end = min(begin + size, n)
            none = np.zeros((end - begin, 0))
            part = Batch(maps[begin:end], error2[begin:end], none, empty[begin:end], root[begin:end])
            # All units of the first layer may cross a starting cell: in groups, so that it takes no time without end.
            stack += children(net, 0, cells.part(begin, end), part, size, empty[begin:end])
        while stack:
            pending = stack.pop()
            if pending.piece.shape[1] < net.layers[pending.layer - 1].width:
                stack += children(net, pending.layer - 1, pending.cells, _taken(pending), size, pending.piece)
                continue
            last = pending.layer == len(net.hidden)
            made = advance(net.layers[pending.layer - 1], net.layers[pending.layer], pending, last)
            if last:
                yield Leaves(pending.cells, made.pattern, made.maps, made.root)
            else:
                stack += children(net, pending.layer, pending.cells, made, size)


def children(net: Network, layer: int, cells: Any, at: Batch, size: int, known: Pattern | None = None) -> list[Pending]:
    """Split a batch by one layer's units; the children come in batches, last first.

    With `known` (n, k), the pieces of the layer's first k units (k may be 0), by which the cells are split already,
    only the next units take their turn, so many that they cannot make more than about `MOST_CHILDREN`.
    """
    units = net.layers[layer].units
    width, steps = units.breaks.shape
    begin = 0 if known is None else known.shape[1]
    group = width if known is None else _group(at.maps.shape[1] - 1, width - begin, steps, len(cells))
    end = min(begin + group, width)
    part = slice(begin, end)
    tolerance = PROBABLE_ERRORS * np.sqrt(at.error2[:, part])
    first_label = first_labels(net)[layer] + begin * steps
    found = cells.split(np.ascontiguousarray(at.maps[:, :, part]), tolerance, units.breaks[part], first_label)
    piece, top = found.piece, found.top
    if begin:
        assert known is not None
        piece, top = np.concatenate([known[found.parent], piece], axis=1), np.concatenate([at.top, top], axis=1)
    at = at._replace(top=top)
    total = len(found.cells)
    return [
        Pending(
            layer + 1,
            found.cells.part(first, min(first + size, total)),
            found.parent[first : first + size],
            piece[first : first + size],
            at,
        )
        for first in reversed(range(0, total, size))
    ]


def _taken(pending: Pending) -> Batch:
    """What is known of the parents, for the children."""
    maps, error2, top, pattern, root = pending.before
    i = pending.parent
    return Batch(maps[i], error2[i], top[i], pattern[i], root[i])


def _group(dimension: int, units: int, steps: int, cells: int) -> int:
    """How many units may take their turn: n hyperplanes cut a cell into at most `sum of C(n, i), i <= dimension`."""
    count = min(units, 8)
    while count < units:
        pieces = sum(math.comb((count + 1) * steps, i) for i in range(dimension + 1))
        if cells * pieces > MOST_CHILDREN:
            break
        count += 1
    return count


def advance(layer: Layer, following: Layer, pending: Pending, last: bool) -> Batch:
    """Affine maps, probable errors and patterns of the children, for the units of the following layer."""
    from reluscope.cells._advance import after_layer

    before, parent = pending.before, pending.parent
    maps, error2 = after_layer(
        before.maps,
        before.error2,
        before.top,
        parent,
        pending.piece,
        layer.units.slopes,
        layer.units.intercepts,
        layer.units.is_relu,
        not last,
    )
    n, rows, m = maps.shape
    new = _times(maps.reshape(n * rows, m), following.weight).reshape(n, rows, following.width)
    new[:, -1, :] += following.bias
    if not last:
        error2 = _times(error2, following.weight**2)
        error2 += (EPS * EPS) * following.bias**2
    pattern = np.concatenate([before.pattern[parent], pending.piece], axis=1)
    return Batch(new, error2, np.zeros((0, 0)), pattern, before.root[parent])


def _times(rows: FloatArray, weight: Any) -> FloatArray:
    if sparse.issparse(weight):
        return np.ascontiguousarray((weight @ rows.T).T)
    return rows @ weight.T


def squared_scale(cells: Any, maps: FloatArray) -> FloatArray:
    """Sum of squares of the terms of each first-layer pre-activation, at the far corner of each starting cell."""
    reach = cells.reach()
    with np.errstate(over="ignore"):
        return np.einsum("nd,ndm->nm", reach**2, maps[:, :-1] ** 2) + maps[:, -1] ** 2


def first_labels(net: Network) -> list[int]:
    """The label of the first facet of each hidden layer: labels number (layer, unit, break point)."""
    sizes = [layer.width * layer.units.breaks.shape[1] for layer in net.hidden]
    return [int(n) for n in np.concatenate([[0], np.cumsum(sizes)])]
