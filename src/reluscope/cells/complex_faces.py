"""The lattice of faces: vertices without their copies, and the faces of every dimension with what lies in them."""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.cells.complex_glue import find_root, mix
from reluscope.cells.grow import grow, grow_rows
from reluscope.cells.vertex import VertexCells

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

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
        root[v] = find_root(root, v)


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
        need = n_out + facets
        if need > len(out_parent):
            out_parent, out_key, out_carriers = (
                grow(out_parent, need),
                grow(out_key, need),
                grow_rows(out_carriers, need),
            )
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
                key = np.uint64(node_of[v]) if points else key + mix(node_of[v])
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


def count_components(n: int, pairs: Index) -> int:
    """In how many connected parts n nodes fall that are joined by these pairs, shape (2, pairs)."""
    connected_components = late("scipy.sparse.csgraph", "connected_components")

    graph = sparse.coo_array((np.ones(pairs.shape[1]), (pairs[0], pairs[1])), shape=(n, n))
    return int(connected_components(graph, directed=False)[0])


def segments(points: FloatArray, rays: FloatArray, ends: Index, finite: int, reach: float) -> FloatArray:
    """Segments between nodes; a far end becomes a point at the distance `reach` from the other end."""
    out = points[ends]
    for here, there in ((0, 1), (1, 0)):
        far = ends[:, here] >= finite
        ray = rays[ends[far, here]]
        # A line without vertices: the finite parts of its far ends lie on it.
        other = points[ends[far, there]]
        base = np.where((ends[far, there] < finite)[:, None], other, 0.5 * (other + points[ends[far, here]]))
        out[far, here] = base + reach * ray / np.linalg.norm(ray, axis=1, keepdims=True)
    return out
