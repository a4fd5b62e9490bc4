"""Faces of all dimensions from cells that carry vertices: labels, gluing, and the lattice of faces.

`reluscope.cells.complex` says how it is done, and what can go wrong.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope.cells._advance import after_layer
from reluscope.cells.interval import Intervals
from reluscope.cells.polygon import Polygons
from reluscope.cells.regions import Regions
from reluscope.cells.subdivide import first_labels
from reluscope.cells.vertex import VertexCells
from reluscope.errors import InputError
from reluscope.network import Network

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

MOST_DIMENSIONS = 6
"""Above this, cells have too many vertices and faces to list them all."""

PROBABLE_ERRORS = 32.0
FAR_TOLERANCE = 64 * EPS
"""A function is constant along a ray when its slope is at most this share of its terms."""
_CHUNK_NUMBERS = 1 << 21
"""Numbers in the affine maps of one chunk of cells."""
_GEOMETRIC_MATCH = 1e-6
"""Facets that are paired by position alone must agree to this share of their size."""
_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Level(NamedTuple):
    """The faces of one dimension, those at infinity included.

    Face i is the part of cell `owner[i]` on all facets in the set `carriers[i]`; its vertices are
    `nodes[offsets[i]:offsets[i+1]]`, its facets the faces `below[below_offsets[i]:below_offsets[i+1]]` one dimension
    down. `zero` and `positive` are the sets of label columns with 0 and 1, `sides` that of the sides of the domain it
    lies on.
    """

    owner: Index
    carriers: Words
    offsets: Index
    nodes: Index
    zero: Words
    positive: Words
    sides: Words
    below_offsets: Index
    below: Index


class Nodes(NamedTuple):
    """The vertices of the complex, finite ones first: `points + R * rays`, one cell around each, label sets, sides."""

    points: FloatArray
    rays: FloatArray
    cell: Index
    zero: Words
    sides: Words
    finite: int


def vertex_geometry(dimension: int) -> str:
    """The geometry whose cells carry vertices, by name; the one of half-spaces beyond `MOST_DIMENSIONS`."""
    return "auto" if dimension <= 2 else "vertex" if dimension <= MOST_DIMENSIONS else "polytope"


def with_vertices(cells: Any) -> VertexCells:
    """Cells of one or two dimensions in the form that carries vertices and facets; those of more pass unchanged."""
    if isinstance(cells, VertexCells):
        return cells
    if isinstance(cells, Intervals):
        n = len(cells)
        ends = np.stack([cells.low, cells.high], axis=1).reshape(-1, 1)
        far = np.isinf(ends)
        points, rays = np.where(far, 0.0, ends), np.where(far, np.sign(ends), 0.0)
        bits = np.tile(np.array([1, 2], np.uint64), n)[:, None]
        offsets, facets, labels = 2 * np.arange(n + 1), 2 * np.arange(n + 1), cells.labels.reshape(-1)
        open_ = bool(far.any())
    elif isinstance(cells, Polygons):
        counts = np.diff(cells.offsets)
        here = np.arange(len(cells.points)) - np.repeat(cells.offsets[:-1], counts)
        before = np.where(here == 0, np.repeat(counts, counts) - 1, here - 1)
        bits = np.zeros((len(here), max(1, -(-int(counts.max(initial=1)) // 64))), np.uint64)
        each = np.arange(len(here))
        for edge in (here, before):
            bits[each, edge // 64] |= np.uint64(1) << (edge % 64).astype(np.uint64)
        points, rays, labels = cells.points, np.zeros((0, 2)), cells.labels
        offsets = facets = cells.offsets
        open_ = False
    else:
        raise InputError(f"cells must carry vertices, got {type(cells).__name__}; use another geometry")
    none = np.zeros((0, points.shape[1]))
    return VertexCells(
        points,
        bits,
        labels,
        offsets,
        facets,
        rays if open_ else none,
        np.abs(points) if open_ else none,
        np.zeros(len(offsets) - 1 if open_ else 0),
    )


# -- labels --------------------------------------------------------------------------------------------------------


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
                PROBABLE_ERRORS * np.sqrt(error2),
                breaks,
                columns,
                piece,
                zero[vertices],
                positive[begin:end],
                top,
            )
            units = layer.units
            maps, error2 = after_layer(
                maps, error2, top, same, piece, units.slopes, units.intercepts, units.is_relu, True
            )
            following = net.layers[i + 1]
            weight = following.weight
            flat = maps.reshape(count * (d + 1), layer.width)
            maps = np.ascontiguousarray((weight @ flat.T).T).reshape(count, d + 1, following.width)
            maps[:, -1] += following.bias
            error2 = np.ascontiguousarray(((weight**2) @ error2.T).T) + (EPS * EPS) * following.bias**2
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


# -- gluing --------------------------------------------------------------------------------------------------------


def glue(cells: VertexCells, zero: Words, positive: Words) -> tuple[Index, int]:
    """For each vertex of each cell the first of all its copies, and how many inner facets stayed alone."""
    owner = np.repeat(np.arange(len(cells)), np.diff(cells.facet_offsets))
    keys = _facet_keys(cells.bits, cells.offsets, cells.facet_offsets, zero, positive)
    root = np.arange(len(cells.points))
    alone = np.flatnonzero(cells.labels >= 0)
    # Nearly coincident hyperplanes may have the same ternary label: the facet's own label tells them apart where it
    # can.
    mixed = keys + cells.labels.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for key in (mixed, keys):
        pairs = _twins(alone, key, owner)
        alone = _joined(cells, root, pairs, owner, alone, np.inf)
    if len(alone):
        alone = _joined(cells, root, _nearest(cells, alone, owner), owner, alone, _GEOMETRIC_MATCH)
    return root, len(alone)


def _twins(facets: Index, key: Words, owner: Index) -> Index:
    """Pairs of facets of two cells with the same key that no third facet has, shape (2, pairs)."""
    order = facets[np.argsort(key[facets], kind="stable")]
    sorted_key = key[order]
    same = sorted_key[1:] == sorted_key[:-1]
    before, after = np.concatenate([[False], same]), np.concatenate([same, [False]])
    first = np.flatnonzero(after & ~before)
    lone = first[~after[np.minimum(first + 1, len(order) - 1)]]
    pairs = np.stack([order[lone], order[lone + 1]])
    return pairs[:, owner[pairs[0]] != owner[pairs[1]]]


def _joined(cells: VertexCells, root: Index, pairs: Index, owner: Index, alone: Index, closeness: float) -> Index:
    """Glue these pairs; returns the facets that are still alone."""
    done = _join_pairs(
        cells.points,
        cells.rays,
        cells.bits,
        cells.offsets,
        cells.facet_offsets,
        np.ascontiguousarray(pairs),
        owner,
        root,
        closeness,
    )
    return np.setdiff1d(alone, pairs[:, done], assume_unique=True)


def _nearest(cells: VertexCells, facets: Index, owner: Index) -> Index:
    """Pairs of facets of two cells that are each other's nearest, by the mean of their vertices, shape (2, pairs)."""
    from scipy.spatial import cKDTree

    first = cells.facet_offsets[owner[facets]]
    place = _facet_places(
        cells.points, cells.rays, cells.bits, cells.offsets, np.ascontiguousarray(facets - first), owner[facets]
    )
    _, near = cKDTree(place).query(place, k=min(4, len(place)))
    near = near.reshape(len(place), -1)
    other = owner[facets][near] != owner[facets][:, None]
    partner = near[np.arange(len(near)), np.argmax(other, axis=1)]
    mutual = other.any(axis=1) & (partner[partner] == np.arange(len(partner))) & (np.arange(len(partner)) < partner)
    return np.stack([facets[mutual], facets[partner[mutual]]])


@nb.njit(cache=True)
def _mix(x):  # type: ignore[no-untyped-def]
    """A 64-bit number that looks random (the finaliser of the splitmix generator)."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@nb.njit(cache=True)
def _facet_keys(bits, offsets, facet_offsets, zero, positive):  # type: ignore[no-untyped-def]
    """A hash of the ternary label of each facet of each cell."""
    words = zero.shape[1]
    out = np.empty(facet_offsets[-1], np.uint64)
    for c in range(len(offsets) - 1):
        first = facet_offsets[c]
        for f in range(facet_offsets[c + 1] - first):
            bit = _ONE << np.uint64(f & 63)
            key = _NONE
            for w in range(words):
                common = ~_NONE
                for v in range(offsets[c], offsets[c + 1]):
                    if bits[v, f >> 6] & bit != _NONE:
                        common &= zero[v, w]
                key = _mix(key ^ common)
                key = _mix(key ^ (positive[c, w] & ~common))
            out[first + f] = key
    return out


@nb.njit(cache=True)
def _facet_places(points, rays, bits, offsets, facet, owner):  # type: ignore[no-untyped-def]
    """Mean point and mean ray of the vertices of each facet."""
    d = points.shape[1]
    out = np.zeros((len(facet), 2 * d))
    for i in range(len(facet)):
        f, c = facet[i], owner[i]
        bit = _ONE << np.uint64(f & 63)
        count = 0
        for v in range(offsets[c], offsets[c + 1]):
            if bits[v, f >> 6] & bit != _NONE:
                count += 1
                for q in range(d):
                    out[i, q] += points[v, q]
                    if len(rays) > 0:
                        out[i, d + q] += rays[v, q]
        for q in range(2 * d):
            out[i, q] /= count
    return out


@nb.njit(cache=True)
def _find(root, v):  # type: ignore[no-untyped-def]
    while root[v] != v:
        root[v] = root[root[v]]
        v = root[v]
    return v


@nb.njit(cache=True)
def _join_pairs(  # type: ignore[no-untyped-def]
    points, rays, bits, offsets, facet_offsets, pairs, owner, root, closeness
):
    """Glue pairs of facets vertex by vertex, the nearest ones together; says which pairs fit."""
    d, open_ = points.shape[1], len(rays) > 0
    most = 1
    for c in range(len(offsets) - 1):
        most = max(most, offsets[c + 1] - offsets[c])
    mine, theirs, match = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    taken = np.empty(most, np.bool_)
    done = np.zeros(pairs.shape[1], np.bool_)
    for p in range(pairs.shape[1]):
        n_mine, n_theirs = 0, 0
        for side in range(2):
            c = owner[pairs[side, p]]
            f = pairs[side, p] - facet_offsets[c]
            bit = _ONE << np.uint64(f & 63)
            for v in range(offsets[c], offsets[c + 1]):
                if bits[v, f >> 6] & bit != _NONE:
                    if side == 0:
                        mine[n_mine] = v
                        n_mine += 1
                    else:
                        theirs[n_theirs] = v
                        n_theirs += 1
        if n_mine != n_theirs:
            continue
        size = 0.0
        for i in range(n_mine):
            taken[i] = False
            for q in range(d):
                size = max(size, abs(points[mine[i], q] - points[mine[0], q]))
        fits, worst = True, 0.0
        for i in range(n_mine):
            best, at = np.inf, 0
            for j in range(n_theirs):
                gap, turn = 0.0, 0.0
                for q in range(d):
                    gap = max(gap, abs(points[mine[i], q] - points[theirs[j], q]))
                    if open_:
                        turn = max(turn, abs(rays[mine[i], q] - rays[theirs[j], q]))
                gap += turn * 1e6 * (1.0 + size)
                if gap < best:
                    best, at = gap, j
            fits = fits and not taken[at]
            taken[at] = True
            match[i] = theirs[at]
            worst = max(worst, best)
        if not fits or worst > closeness * size:
            continue
        for i in range(n_mine):
            a, b = _find(root, mine[i]), _find(root, match[i])
            if a < b:
                root[b] = a
            else:
                root[a] = b
        done[p] = True
    return done


def gather(cells: VertexCells, root: Index, zero: Words, positive: Words, sides: Words) -> tuple[Nodes, Index, float]:
    """The vertices without their copies, and the node of each copy."""
    _flatten(root)
    first = np.flatnonzero(root == np.arange(len(root)))
    open_ = cells.is_open
    # A ray is zero or reaches the surface of the unit cube.
    far = np.abs(cells.rays[first]).max(axis=1) > 0.5 if open_ else np.zeros(len(first), np.bool_)
    first = np.concatenate([first[~far], first[far]])
    number = np.empty(len(root), np.int64)
    number[first] = np.arange(len(first))
    node_of = number[root]
    cell = np.repeat(np.arange(len(cells)), np.diff(cells.offsets))
    node_zero = np.zeros((len(first), zero.shape[1]), np.uint64)
    node_sides = np.zeros(len(first), np.uint64)
    _star(node_of, cell, zero, positive, sides, node_zero, node_sides)
    rays = cells.rays[first] if open_ else np.zeros((len(first), cells.dimension))
    finite = len(first) - int(far.sum())
    rays[:finite] = 0.0
    points = cells.points[first]
    copies = node_of < finite
    moved = np.abs(cells.points[copies] - points[node_of[copies]]).max(axis=1, initial=0.0)
    gap = float((moved / (1.0 + np.abs(cells.points[copies]).max(axis=1, initial=0.0))).max(initial=0.0))
    return Nodes(points, rays, cell[first], node_zero, node_sides, finite), node_of, gap


@nb.njit(cache=True)
def _flatten(root):  # type: ignore[no-untyped-def]
    for v in range(len(root)):
        root[v] = _find(root, v)


@nb.njit(cache=True)
def _star(node_of, cell, zero, positive, sides, node_zero, node_sides):  # type: ignore[no-untyped-def]
    """Labels of vertices from all cells around: zero if it is so for one cell, or if two disagree about the sign."""
    words = zero.shape[1]
    some, every = np.zeros(node_zero.shape, np.uint64), np.full(node_zero.shape, ~_NONE)
    for v in range(len(node_of)):
        i, c = node_of[v], cell[v]
        node_sides[i] |= sides[v]
        for w in range(words):
            node_zero[i, w] |= zero[v, w]
            some[i, w] |= positive[c, w]
            every[i, w] &= positive[c, w]
    for i in range(len(node_zero)):
        for w in range(words):
            node_zero[i, w] |= some[i, w] & ~every[i, w]


# -- the lattice of faces ------------------------------------------------------------------------------------------


def lattice(cells: VertexCells, nodes: Nodes, node_of: Index, positive: Words) -> tuple[Level, ...]:
    """The faces of all dimensions, 0 to d, from the cells downwards."""
    n, d = len(cells), cells.dimension
    owner, carriers = np.arange(n), np.zeros((n, cells.bits.shape[1]), np.uint64)
    levels: list[Level] = []
    for k in range(d, -1, -1):
        offsets, listed, zero, sides = _face_nodes(
            owner, carriers, cells.bits, cells.offsets, node_of, nodes.zero, nodes.sides
        )
        plus = positive[owner] & ~zero
        if k == 0:
            none = np.zeros(len(owner) + 1, np.int64)
            levels.append(Level(owner, carriers, offsets, listed, zero, plus, sides, none, none[:0]))
            break
        parent, inner, key = _subfaces(owner, carriers, cells.bits, cells.offsets, cells.facet_offsets, node_of, k == 1)
        _, first, same = np.unique(key, return_index=True, return_inverse=True)
        if k > 1:  # in the order in which they were met; vertices keep their own numbers
            order = np.argsort(first)
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            first, same = first[order], rank[same]
        counts = np.bincount(parent, minlength=len(owner))
        below_offsets = np.concatenate([[0], np.cumsum(counts)])
        levels.append(Level(owner, carriers, offsets, listed, zero, plus, sides, below_offsets, same))
        owner, carriers = owner[parent[first]], inner[first]
    return tuple(levels[::-1])


@nb.njit(cache=True)
def _face_nodes(owner, carriers, bits, offsets, node_of, node_zero, node_sides):  # type: ignore[no-untyped-def]
    """The vertices of each face, back to back, and the sets of columns and of sides that all of them are on."""
    n, words, columns = len(owner), bits.shape[1], node_zero.shape[1]
    starts = np.zeros(n + 1, np.int64)
    zero, sides = np.full((n, columns), ~_NONE), np.full(n, ~_NONE)
    listed = np.empty(0, np.int64)
    for filling in range(2):
        at = 0
        for i in range(n):
            c = owner[i]
            for v in range(offsets[c], offsets[c + 1]):
                inside = True
                for w in range(words):
                    inside &= carriers[i, w] & ~bits[v, w] == _NONE
                if inside:
                    if filling == 1:
                        node = node_of[v]
                        listed[at] = node
                        sides[i] &= node_sides[node]
                        for w in range(columns):
                            zero[i, w] &= node_zero[node, w]
                    at += 1
            starts[i + 1] = at
        if filling == 0:
            listed = np.empty(at, np.int64)
    return starts, listed, zero, sides


@nb.njit(cache=True)
def _subfaces(owner, carriers, bits, offsets, facet_offsets, node_of, points):  # type: ignore[no-untyped-def]
    """The facets of each face: whose they are, their carriers, and a key that depends on their vertices alone.

    The part of a face on a further facet of its cell is a facet of the face iff it is maximal among those parts; of
    facets with the same part the first one counts. With `points`, the key is the vertex itself.
    """
    words = bits.shape[1]
    most_facets, most_vertices = 1, 1
    for c in range(len(offsets) - 1):
        most_facets = max(most_facets, facet_offsets[c + 1] - facet_offsets[c])
        most_vertices = max(most_vertices, offsets[c + 1] - offsets[c])
    held, mine = np.empty(most_facets, np.int64), np.empty(most_vertices, np.int64)
    within = np.empty(words, np.uint64)
    room = 4 * len(owner) + 16
    out_parent, out_key = np.empty(room, np.int64), np.empty(room, np.uint64)
    out_carriers = np.empty((room, words), np.uint64)
    n_out = 0
    for i in range(len(owner)):
        c = owner[i]
        facets = facet_offsets[c + 1] - facet_offsets[c]
        size = 0
        for f in range(facets):
            held[f] = 0
        for v in range(offsets[c], offsets[c + 1]):
            inside = True
            for w in range(words):
                inside &= carriers[i, w] & ~bits[v, w] == _NONE
            if not inside:
                continue
            mine[size] = v
            size += 1
            for f in range(facets):
                held[f] += (bits[v, f >> 6] >> np.uint64(f & 63)) & _ONE != _NONE
        if n_out + facets > room:
            room *= 2
            more_parent, more_key = np.empty(room, np.int64), np.empty(room, np.uint64)
            more_carriers = np.empty((room, words), np.uint64)
            more_parent[:n_out], more_key[:n_out] = out_parent[:n_out], out_key[:n_out]
            more_carriers[:n_out] = out_carriers[:n_out]
            out_parent, out_key, out_carriers = more_parent, more_key, more_carriers
        for f in range(facets):
            if held[f] == 0 or held[f] == size:
                continue
            bit = _ONE << np.uint64(f & 63)
            key = _NONE
            for w in range(words):
                within[w] = ~_NONE
            for s in range(size):
                v = mine[s]
                if bits[v, f >> 6] & bit == _NONE:
                    continue
                key = np.uint64(node_of[v]) if points else key + _mix(node_of[v])
                for w in range(words):
                    within[w] &= bits[v, w]
            largest = True
            for g in range(facets):
                if g != f and (within[g >> 6] >> np.uint64(g & 63)) & _ONE != _NONE and held[g] < size:
                    largest &= held[g] == held[f] and g > f
            if largest:
                out_parent[n_out], out_key[n_out] = i, key
                for w in range(words):
                    out_carriers[n_out, w] = within[w]
                n_out += 1
    return out_parent[:n_out].copy(), out_carriers[:n_out].copy(), out_key[:n_out].copy()
