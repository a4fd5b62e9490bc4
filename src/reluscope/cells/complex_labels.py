"""Ternary labels of faces: for every break point of every hidden unit, the sign of `h - t` at a vertex or on a cell."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope.cells.regions import Regions
from reluscope.cells.subdivide import first_labels, next_maps
from reluscope.cells.vertex import VertexCells
from reluscope.network import Network

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

LABEL_ERRORS = 32.0
"""A unit counts as being on its break point at a vertex when it is within this many probable errors of it."""
FAR_TOLERANCE = 64 * EPS
"""A function is constant along a ray when its slope is at most this share of its terms."""
_CHUNK_NUMBERS = 1 << 21
"""Numbers in the affine maps of one chunk of cells."""
_ONE = np.uint64(1)
_NONE = np.uint64(0)


def label_columns(net: Network) -> tuple[Index, Index]:
    """Layer, unit and break point of each label column, and the column of each facet label (-1 for padding)."""
    starts = first_labels(net)
    column_of_label = np.full(max(starts[-1], 1), -1)
    rows: list[Index] = []
    count = 0
    for layer, hidden in enumerate(net.hidden):
        unit, step = np.nonzero(np.isfinite(hidden.units.breaks))
        label = starts[layer] + unit * hidden.units.breaks.shape[1] + step
        column_of_label[label] = count + np.arange(len(unit))
        count += len(unit)
        rows.append(np.column_stack([np.full(len(unit), layer), unit, step]))
    return np.concatenate([np.zeros((0, 3), np.int64), *rows]).astype(np.int64), column_of_label


def mark_zeros(found: Regions, cells: VertexCells, column_of_label: Index, zero: Words, positive: Words) -> FloatArray:
    """Fill the sets of label columns: zero at each vertex of each cell, positive on each cell.

    Returns the probable errors of the outputs on each cell, shape (n, outputs). The errors travel through the layers as
    they do in the traversal.
    """
    net, n, d = found.network, len(cells), cells.dimension
    starts = first_labels(net)
    width = max(net.widths[1:])
    size = max(64, _CHUNK_NUMBERS // ((d + 1) * width))
    reach = cells.reach() if found.domain.box is None else np.abs(np.stack(found.domain.box)).max(axis=0)[None]
    output_error = np.empty((n, net.n_outputs))
    first = net.layers[0]
    start = np.concatenate([first.dense().T, first.bias[None]])
    for begin in range(0, n, size):
        end = min(begin + size, n)
        count = end - begin
        part = cells.part(begin, end)
        vertices = slice(int(cells.offsets[begin]), int(cells.offsets[end]))
        maps = np.array(np.broadcast_to(start, (count, *start.shape)), order="C")
        here = reach[begin:end] if len(reach) > 1 else reach
        error2 = (EPS * EPS) * (here**2 @ start[:-1] ** 2 + start[-1] ** 2)
        error2 = np.array(np.broadcast_to(error2, (count, first.width)), order="C")
        same = np.arange(count)
        for i, layer in enumerate(net.hidden):
            breaks = np.array(layer.units.breaks)
            columns = column_of_label[starts[i] : starts[i + 1]].reshape(breaks.shape)
            piece = np.ascontiguousarray(found.pattern[begin:end, net.offsets[i] : net.offsets[i + 1]])
            top = np.empty((count, layer.width))
            _mark_layer(
                part.points,
                part.rays,
                part.scales,
                part.offsets,
                maps,
                LABEL_ERRORS * np.sqrt(error2),
                breaks,
                columns,
                piece,
                zero[vertices],
                positive[begin:end],
                top,
            )
            maps, error2 = next_maps(net, i, maps, error2, top, same, piece)
        output_error[begin:end] = np.sqrt(error2)
    return output_error


@nb.njit(cache=True)
def _mark_layer(  # type: ignore[no-untyped-def]
    points, rays, scales, offsets, maps, tolerance, breaks, columns, piece, zero, positive, top
):
    n, d, m, steps = len(offsets) - 1, points.shape[1], maps.shape[2], breaks.shape[1]
    open_ = len(rays) > 0
    for c in range(n):
        for j in range(m):
            top[c, j] = 0.0
            for k in range(min(steps, piece[c, j])):
                if columns[j, k] >= 0:
                    positive[c, columns[j, k] >> 6] |= _ONE << np.uint64(columns[j, k] & 63)
        for v in range(offsets[c], offsets[c + 1]):
            for j in range(m):
                value, blur = maps[c, d, j], tolerance[c, j]
                for q in range(d):
                    value += maps[c, q, j] * points[v, q]
                top[c, j] = max(top[c, j], abs(value))
                if open_:
                    rise, terms = 0.0, 0.0
                    for q in range(d):
                        rise += maps[c, q, j] * rays[v, q]
                        terms += abs(maps[c, q, j])
                        blur += FAR_TOLERANCE * abs(maps[c, q, j]) * max(scales[v, q], abs(points[v, q]))
                    if abs(rise) > FAR_TOLERANCE * terms:
                        continue
                for k in range(steps):
                    if columns[j, k] >= 0 and abs(value - breaks[j, k]) <= blur:
                        zero[v, columns[j, k] >> 6] |= _ONE << np.uint64(columns[j, k] & 63)


@nb.njit(cache=True)
def mark_facets(bits, labels, offsets, facet_offsets, column_of_label, zero, sides):  # type: ignore[no-untyped-def]
    """A vertex on a facet is on that facet's break point, or on that side of the domain, whatever rounding says."""
    for c in range(len(offsets) - 1):
        first = facet_offsets[c]
        for f in range(facet_offsets[c + 1] - first):
            label = labels[first + f]
            bit = _ONE << np.uint64(f & 63)
            for v in range(offsets[c], offsets[c + 1]):
                if bits[v, f >> 6] & bit != _NONE:
                    if label < 0:
                        sides[v] |= _ONE << np.uint64(-1 - label)
                    else:
                        column = column_of_label[label]
                        zero[v, column >> 6] |= _ONE << np.uint64(column & 63)


def unpacked(sets: Words, n: int) -> Flags:
    """Sets in 64-bit words as rows of n truth values."""
    each = np.arange(n)
    return (sets[:, each // 64] >> (each % 64).astype(np.uint64)) & np.uint64(1) != 0
