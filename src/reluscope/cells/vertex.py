"""n-D cells that carry their vertices, for 3 to about 7 dimensions. No linear program anywhere.

Cells are stored back to back: cell `i` has the vertices `offsets[i]:offsets[i+1]` and the facets
`facet_offsets[i]:facet_offsets[i+1]`, none of them redundant, and `bits[v]` is the set of the cell's facets that pass
through vertex `v` (bit `f` of the words = facet number `f` of the cell).

A hyperplane `h = 0` cuts a cell exactly when `h` has both signs at its vertices. The vertices of the two parts are
those of their side, those on the hyperplane, and one new vertex on each edge from a negative to a positive vertex.
With `F(v)` the facets through `v`, the segment `ab` is an edge iff `F(a) & F(b)` has at least `d - 1` members and no
third vertex lies on all of them; the second half need not be looked at when `a` or `b` lies on exactly `d` facets.
A facet of the cell is a facet of a part iff it has a vertex strictly inside that part's half-space.

The whole space is a cube whose half-width `R` is a symbol larger than every number: a vertex is `point + R * ray`. A
vertex of an arrangement inside the cube solves a linear system whose right-hand side is affine in `R`, so it is exactly
of that form, and its ray is either zero or reaches the unit cube's surface. Values of affine functions are compared
first by the coefficient of `R`; a cell is unbounded exactly when one of its vertices has a non-zero ray.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
from numba.extending import intrinsic

from reluscope._check import FloatArray, describe, integer, real_array
from reluscope.cells.split import Split
from reluscope.errors import InputError

Words = npt.NDArray[np.uint64]

MAX_DIMENSION = 16
"""A box in d dimensions has 2^d vertices; cells with vertices are of no use long before this."""

_EPS = 2.220446049250313e-16
_RAY_TOLERANCE = 64 * _EPS
"""A hyperplane is parallel to a ray when the inner product is at most this share of the normal's size."""
_POINT_TOLERANCE = 16 * _EPS
"""Rounding of a vertex of the whole space's cells, as a share of the numbers it was made of."""


@dataclass(frozen=True, eq=False)
class VertexCells:
    """Convex polytopes by vertices and facets, in CSR layout.

    `rays`, `scales` (one row per vertex) and `radius` (one entry per cell) are empty when every cell is bounded. Else
    a vertex is `points[v] + R * rays[v]`, its coordinates were computed from numbers of the size `scales[v]`, and the
    vertices of cell `i` lie in the cell for every `R >= radius[i]`.
    """

    points: FloatArray
    bits: Words
    labels: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    facet_offsets: npt.NDArray[np.int64]
    rays: FloatArray
    scales: FloatArray
    radius: FloatArray

    # -- starting cells ------------------------------------------------------------------------------------------

    @classmethod
    def box(cls, lower: npt.ArrayLike, upper: npt.ArrayLike) -> VertexCells:
        """The box `lower <= x <= upper`; the sides of axis q carry the labels `-1 - 2q` (lower) and `-2 - 2q`."""
        low, high = real_array(lower, "lower", ndim=1), real_array(upper, "upper", ndim=1)
        if len(low) != len(high):
            raise InputError(f"lower and upper must have one entry per axis, got {len(low)} and {len(high)}")
        integer(len(low), "the dimension of the box", low=1, high=MAX_DIMENSION)
        if not (low < high).all():
            axis = int(np.argmin(low < high))
            raise InputError(
                f"lower must be below upper on every axis, got {low[axis]} and {high[axis]} on axis {axis}; "
                "a box without inner points has no cells"
            )
        corner = _corners(len(low))
        return cls._one(np.where(corner, high, low), _corner_bits(corner), _side_labels(len(low)))

    @classmethod
    def space(cls, dimension: int) -> VertexCells:
        """The whole space, as the cube of symbolic half-width R; its sides are labelled as those of a box."""
        d = integer(dimension, "dimension", low=1, high=MAX_DIMENSION)
        corner = _corners(d)
        rays = np.where(corner, 1.0, -1.0)
        return cls._one(np.zeros(rays.shape), _corner_bits(corner), _side_labels(d), rays)

    @classmethod
    def from_vertices(
        cls, vertices: npt.ArrayLike, incidence: npt.ArrayLike, labels: npt.ArrayLike | None = None
    ) -> VertexCells:
        """The polytope with these vertices (v, d); `incidence[i, f]` says whether facet f passes through vertex i.

        Facet f is labelled `labels[f]`, by default `-1 - f`. Counts and the rank are checked; that the vertices are
        extreme and the facets complete is up to the caller.
        """
        points = real_array(vertices, "vertices", ndim=2)
        on = np.asarray(incidence)
        v, d = points.shape
        integer(d, "the dimension of the vertices", low=1, high=MAX_DIMENSION)
        if on.dtype != np.bool_ or on.ndim != 2 or len(on) != v:
            raise InputError(f"incidence must be a boolean array of shape ({v}, facets), got {describe(incidence)}")
        if v <= d or np.linalg.matrix_rank(points[1:] - points[0]) < d:
            raise InputError(f"vertices must span {d} dimensions, got {v} points in a lower-dimensional plane")
        if (on.sum(axis=0) < d).any() or (on.sum(axis=1) < d).any() or on.all(axis=0).any():
            raise InputError(
                f"incidence must have at least {d} facets through each vertex and at least {d}, but not all, "
                "vertices on each facet"
            )
        names = -1 - np.arange(on.shape[1]) if labels is None else np.asarray(labels)
        if names.shape != (on.shape[1],) or names.dtype.kind not in "iu":
            raise InputError(f"labels must be {on.shape[1]} whole numbers, got {describe(labels)}")
        return cls._one(points, _pack(on), names.astype(np.int32))

    @classmethod
    def from_polytope(cls, A: npt.ArrayLike, b: npt.ArrayLike) -> VertexCells:
        """The polyhedron `A x <= b`, bounded or not; row i is labelled `-1 - i`, redundant rows drop out.

        Cost: one cut per row. An empty or lower-dimensional polyhedron gives no cells. Where it is unbounded, the
        symbolic sides carry the labels below `-len(b)`.
        """
        A, b = real_array(A, "A", ndim=2), real_array(b, "b", ndim=1)
        if len(A) != len(b):
            raise InputError(f"A and b must have one row per inequality, got {len(A)} and {len(b)}")
        cell = cls.space(A.shape[1])
        cell = cell._replaced(labels=(cell.labels - len(b)).astype(np.int32))
        zero = np.zeros((1, 1))
        for i, (normal, bound) in enumerate(zip(A, b, strict=True)):
            maps = np.append(normal, -bound)[None, :, None]
            found = cell.split(maps, np.full((1, 1), 4 * _EPS * abs(bound)), zero, -1 - i)
            inside = np.flatnonzero(found.piece[:, 0] == 0)
            if not len(inside):
                return cell.part(0, 0)
            cell = found.cells.part(int(inside[0]), int(inside[0]) + 1)
        none = np.zeros((0, cell.dimension))
        return cell if cell.rays.any() else cell._replaced(rays=none, scales=none, radius=np.zeros(0))

    @classmethod
    def _one(
        cls, points: FloatArray, bits: Words, labels: npt.NDArray[np.int32], rays: FloatArray | None = None
    ) -> VertexCells:
        none = np.zeros((0, points.shape[1]))
        return cls(
            points,
            bits,
            labels,
            np.array([0, len(points)]),
            np.array([0, len(labels)]),
            none if rays is None else rays,
            none if rays is None else np.zeros(rays.shape),
            np.zeros(0 if rays is None else 1),
        )

    # -- a batch of cells ----------------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """Dimension of the space."""
        return self.points.shape[1]

    @property
    def is_open(self) -> bool:
        """Whether cells of this batch may be unbounded (they were cut from the whole space)."""
        return len(self.rays) > 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, start: int, stop: int) -> VertexCells:
        """Cells `start:stop`, as views."""
        v0, v1 = self.offsets[start], self.offsets[stop]
        f0, f1 = self.facet_offsets[start], self.facet_offsets[stop]
        return VertexCells(
            self.points[v0:v1],
            self.bits[v0:v1],
            self.labels[f0:f1],
            self.offsets[start : stop + 1] - v0,
            self.facet_offsets[start : stop + 1] - f0,
            self.rays[v0:v1],
            self.scales[v0:v1],
            self.radius[start:stop],
        )

    @classmethod
    def join(cls, parts: list[VertexCells]) -> VertexCells:
        """The cells of several batches, one after the other: all cut from bounded cells, or all from the space."""
        if not parts:
            none, start = np.zeros((0, 0)), np.zeros(1, np.int64)
            return cls(none, np.zeros((0, 1), np.uint64), np.zeros(0, np.int32), start, start, none, none, np.zeros(0))
        words = max(p.bits.shape[1] for p in parts)
        return cls(
            np.concatenate([p.points for p in parts]),
            np.concatenate([_widened(p.bits, words) for p in parts]),
            np.concatenate([p.labels for p in parts]),
            _joined([p.offsets for p in parts]),
            _joined([p.facet_offsets for p in parts]),
            np.concatenate([p.rays for p in parts]),
            np.concatenate([p.scales for p in parts]),
            np.concatenate([p.radius for p in parts]),
        )

    def split(self, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int) -> Split:
        """Cut every cell by the hyperplanes where a unit reaches a break point; see `reluscope.cells.split`.

        Cost of one cut: negative times positive vertices (one `and` and one bit count each), plus copying the parts.
        """
        bits = self.bits
        arrays = (np.require(maps, requirements=("C", "W")), np.ascontiguousarray(tolerance), np.array(breaks))
        while True:
            done, vertices, new_bits, labels, offsets, facet_offsets, radius, parent, piece, top = _split_cells(
                self.points,
                self.rays,
                self.scales,
                self.radius,
                bits,
                self.labels,
                self.offsets,
                self.facet_offsets,
                *arrays,
                first_label,
            )
            if done:
                break
            bits = _widened(bits, bits.shape[1] + 1)  # a cell got more facets than the words have bits
        d = self.dimension
        if self.is_open:
            columns = [np.ascontiguousarray(vertices[:, k * d : (k + 1) * d]) for k in range(3)]
        else:
            columns = [vertices, np.zeros((0, d)), np.zeros((0, d))]
        points, rays, scales = columns
        cells = VertexCells(points, new_bits, labels, offsets, facet_offsets, rays, scales, radius)
        return Split(cells, parent, piece, top)

    # -- single cells --------------------------------------------------------------------------------------------

    def vertices(self, i: int) -> FloatArray:
        """The vertices of cell i, shape (v, d); finite parts only where the cell is unbounded."""
        return self.points[self.offsets[i] : self.offsets[i + 1]]

    def facets(self, i: int) -> npt.NDArray[np.int32]:
        """The labels of the facets of cell i, none redundant; symbolic sides of the whole space included."""
        return self.labels[self.facet_offsets[i] : self.facet_offsets[i + 1]]

    def incidence(self, i: int) -> npt.NDArray[np.bool_]:
        """Which facets of cell i pass through which of its vertices, shape (vertices, facets)."""
        count = len(self.facets(i))
        words = self.bits[self.offsets[i] : self.offsets[i + 1]]
        each = np.arange(count)
        return (words[:, each // 64] >> (each % 64).astype(np.uint64)) & np.uint64(1) != 0

    # -- measures ------------------------------------------------------------------------------------------------

    def bounded(self) -> npt.NDArray[np.bool_]:
        """Whether each cell is bounded, shape (n,)."""
        if not self.is_open or not len(self):
            return np.ones(len(self), np.bool_)
        return np.add.reduceat(np.abs(self.rays).sum(axis=1), self.offsets[:-1]) == 0

    def interior(self) -> FloatArray:
        """A point strictly inside each cell, shape (n, d): the mean of the vertices, at an R past `radius`."""
        if not len(self):
            return np.zeros((0, self.dimension))
        count = np.diff(self.offsets)[:, None]
        inside = np.add.reduceat(self.points, self.offsets[:-1]) / count
        if self.is_open:
            inside += np.add.reduceat(self.rays, self.offsets[:-1]) / count * (1.0 + 2.0 * self.radius[:, None])
        return inside

    def reach(self) -> FloatArray:
        """Largest `|x_q|` on each cell, shape (n, d); that of the finite parts where it is unbounded."""
        if not len(self):
            return np.zeros((0, self.dimension))
        return np.maximum.reduceat(np.abs(self.points), self.offsets[:-1])

    def volumes(self) -> FloatArray:
        """Volume of each cell, shape (n,); `inf` where it is unbounded.

        vol(P) = sum of |det(a_1 - a_0, ..., a_d - a_0)| / d! over the simplices of a triangulation: `a_0` is the first
        vertex of P, `a_1` the first one of a facet without `a_0`, and so on down to a point. All terms are positive,
        so only rounding of relative size about `d * eps * (size / width)` of the cell remains. Cost: the number of
        simplices, `d!` for a cube.
        """
        volume: FloatArray = _volumes(self.points, self.bits, self.offsets, self.facet_offsets)
        volume[~self.bounded()] = np.inf
        return volume

    def _replaced(self, **changes: Any) -> VertexCells:
        return VertexCells(**{**self.__dict__, **changes})

    def __repr__(self) -> str:
        return f"VertexCells({len(self)} cells in R^{self.dimension}, {len(self.points)} vertices)"


def _corners(d: int) -> npt.NDArray[np.bool_]:
    """The corners of a cube, shape (2^d, d): whether each coordinate is the upper one."""
    return (np.arange(1 << d)[:, None] >> np.arange(d)) & 1 != 0


def _corner_bits(corner: npt.NDArray[np.bool_]) -> Words:
    on = np.empty((len(corner), 2 * corner.shape[1]), np.bool_)
    on[:, 0::2], on[:, 1::2] = ~corner, corner
    return _pack(on)


def _side_labels(d: int) -> npt.NDArray[np.int32]:
    return (-1 - np.arange(2 * d)).astype(np.int32)


def _pack(on: npt.NDArray[np.bool_]) -> Words:
    """Rows of truth values as sets in 64-bit words."""
    words = max(1, -(-on.shape[1] // 64))
    out = np.zeros((len(on), words), np.uint64)
    for f in range(on.shape[1]):
        out[:, f // 64] |= on[:, f].astype(np.uint64) << np.uint64(f % 64)
    return out


def _widened(bits: Words, words: int) -> Words:
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, words - bits.shape[1]))))


def _joined(offsets: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    starts = np.cumsum([0, *(o[-1] for o in offsets)])
    return np.concatenate([*(o[:-1] + s for o, s in zip(offsets, starts[:-1], strict=True)), starts[-1:]])


# -- kernels -----------------------------------------------------------------------------------------------------


@intrinsic  # type: ignore[misc]
def _ctpop(typingctx, word):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]  # noqa: ARG001
        return builder.ctpop(args[0])

    return nb.types.uint64(nb.types.uint64), generate


if nb.config.DISABLE_JIT:

    def _count(word):  # type: ignore[no-untyped-def]
        return int(word).bit_count()
else:

    @nb.njit(cache=True)
    def _count(word):  # type: ignore[no-untyped-def]
        return np.int64(_ctpop(word))


_ONE = np.uint64(1)
_NONE = np.uint64(0)


@nb.njit(cache=True)
def _grown1(a, need):  # type: ignore[no-untyped-def]
    out = np.empty(max(need, 2 * len(a)), a.dtype)
    out[: len(a)] = a
    return out


@nb.njit(cache=True)
def _grown2(a, need):  # type: ignore[no-untyped-def]
    out = np.empty((max(need, 2 * len(a)), a.shape[1]), a.dtype)
    out[: len(a)] = a
    return out


@nb.njit(cache=True)
def _free_slot(used):  # type: ignore[no-untyped-def]
    """The lowest bit that is not in the set, or -1."""
    for w in range(len(used)):
        if ~used[w] != _NONE:
            return 64 * w + _count(((used[w] + _ONE) & ~used[w]) - _ONE)
    return -1


@nb.njit(cache=True)
def _spans_edge(bits, size, a, b):  # type: ignore[no-untyped-def]
    """Whether no third vertex lies on all facets that a and b share."""
    for v in range(size):
        if v == a or v == b:
            continue
        inside = True
        for w in range(bits.shape[1]):
            common = bits[a, w] & bits[b, w]
            if common & bits[v, w] != common:
                inside = False
                break
        if inside:
            return False
    return True


@nb.njit(cache=True)
def _find_edges(bits, size, d, neg, n_neg, pos, n_pos, hits, words_of, edge_a, edge_b):  # type: ignore[no-untyped-def]
    """All edges from a vertex in `neg` to one in `pos`; returns their number and the (possibly grown) lists."""
    words = bits.shape[1]
    n = 0
    for k in range(n_pos):
        words_of[k] = bits[pos[k], 0]
    for i in range(n_neg):
        a = neg[i]
        found = 0
        if words == 1:
            mine = bits[a, 0]
            for k in range(n_pos):  # no branch: hits are rare and unpredictable
                hits[found] = k
                found += _count(mine & words_of[k]) >= d - 1
        else:
            for k in range(n_pos):
                shared = 0
                for w in range(words):
                    shared += _count(bits[a, w] & bits[pos[k], w])
                hits[found] = k
                found += shared >= d - 1
        if found == 0:
            continue
        on = 0
        for w in range(words):
            on += _count(bits[a, w])
        if n + found > len(edge_a):
            edge_a, edge_b = _grown1(edge_a, n + found), _grown1(edge_b, n + found)
        for k in range(found):
            b = pos[hits[k]]
            if on > d:
                other = 0
                for w in range(words):
                    other += _count(bits[b, w])
                if other > d and not _spans_edge(bits, size, a, b):
                    continue
            edge_a[n], edge_b[n] = a, b
            n += 1
    return n, edge_a, edge_b


@nb.njit(cache=True, error_model="numpy")
def _split_cells(  # type: ignore[no-untyped-def]
    points, rays, scales, radius, bits, labels, offsets, facet_offsets, maps, tolerance, breaks, first_label
):
    n, m, steps = len(offsets) - 1, maps.shape[2], breaks.shape[1]
    d, words = points.shape[1], bits.shape[1]
    open_ = len(rays) > 0
    # Numbers of a vertex: point, and for open cells ray and scale. At hand they are stored by coordinate.
    wide = 3 * d if open_ else d
    slots = 64 * words
    steps_max = m * max(steps, 1)

    out_x = np.empty((4 * len(points) + 64, wide))
    out_bits = np.empty((len(out_x), words), np.uint64)
    out_labels = np.empty(4 * len(labels) + 64, np.int32)
    out_offset, out_facet = np.empty(2 * n + 16, np.int64), np.empty(2 * n + 16, np.int64)
    out_radius = np.empty(2 * n + 16 if open_ else 0)
    out_parent, out_piece = np.empty(2 * n + 16, np.int64), np.empty((2 * n + 16, m), np.uint8)
    top = np.empty((n, m))
    n_out, v_out, f_out = 0, 0, 0
    out_offset[0], out_facet[0] = 0, 0

    low, high, here = np.empty(m), np.empty(m), np.empty(m)
    item_unit, item_break = np.empty(steps_max, np.int64), np.empty(steps_max, np.int64)
    piece = np.empty(m, np.uint8)
    coef = np.empty(d)
    # Pending sub-cells of the cell at hand, as a stack.
    pool_x, pool_bits = np.empty(4096), np.empty((512, words), np.uint64)
    frame_x, frame_v = np.empty(steps_max + 2, np.int64), np.empty(steps_max + 2, np.int64)
    frame_item, frame_size = np.empty(steps_max + 2, np.int64), np.empty(steps_max + 2, np.int64)
    frame_piece = np.empty((steps_max + 2, m), np.uint8)
    frame_label = np.empty((steps_max + 2, slots), np.int32)
    frame_used = np.empty((steps_max + 2, words), np.uint64)
    frame_radius = np.empty(steps_max + 2)
    room = 256
    cur, one = np.empty((wide, room)), np.empty((wide, room))
    cur_bits, one_bits = np.empty((room, words), np.uint64), np.empty((room, words), np.uint64)
    cur_label, used = np.empty(slots, np.int32), np.empty(words, np.uint64)
    used_neg, used_pos = np.empty(words, np.uint64), np.empty(words, np.uint64)
    value, slope = np.empty(room), np.empty(room)
    neg, pos, zero = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    hits, words_of = np.empty(room, np.int64), np.empty(room, np.uint64)
    edge_a, edge_b = np.empty(room, np.int64), np.empty(room, np.int64)
    complete = True

    for c in range(n):
        start, stop = offsets[c], offsets[c + 1]
        size = stop - start
        tol = tolerance[c]

        # Range of every unit over the cell's vertices.
        for j in range(m):
            low[j], high[j] = np.inf, -np.inf
        for v in range(start, stop):
            for j in range(m):
                here[j] = maps[c, d, j]
            for q in range(d):
                x = points[v, q]
                for j in range(m):
                    here[j] += maps[c, q, j] * x
            for j in range(m):
                low[j], high[j] = min(low[j], here[j]), max(high[j], here[j])
        for j in range(m):
            top[c, j] = max(abs(low[j]), abs(high[j]))
        if open_:
            for j in range(m):
                weight = 0.0
                for q in range(d):
                    weight += abs(maps[c, q, j])
                for v in range(start, stop):
                    rise = 0.0
                    for q in range(d):
                        rise += maps[c, q, j] * rays[v, q]
                    if rise > _RAY_TOLERANCE * weight:
                        high[j] = np.inf
                    elif rise < -_RAY_TOLERANCE * weight:
                        low[j] = -np.inf

        items = 0
        for j in range(m):
            below = 0
            for k in range(steps):
                t = breaks[j, k]
                if high[j] <= t + tol[j]:
                    break  # below this break point and all later ones
                if low[j] >= t - tol[j]:
                    below += 1
                else:
                    item_unit[items], item_break[items] = j, k
                    items += 1
            piece[j] = below

        if size > cur.shape[1]:
            cur, cur_bits = np.empty((wide, 2 * size)), np.empty((2 * size, words), np.uint64)

        for i in range(size):
            for q in range(d):
                cur[q, i] = points[start + i, q]
            for w in range(words):
                cur_bits[i, w] = bits[start + i, w]
            if open_:
                for q in range(d):
                    cur[d + q, i] = rays[start + i, q]
                    cur[2 * d + q, i] = scales[start + i, q]
        facets = facet_offsets[c + 1] - facet_offsets[c]
        for w in range(words):
            used[w] = _NONE
        for f in range(facets):
            cur_label[f] = labels[facet_offsets[c] + f]
            used[f >> 6] |= _ONE << np.uint64(f & 63)
        far = radius[c] if open_ else 0.0
        frames, pooled_x, pooled_v, item = 0, 0, 0, 0

        while True:
            while item < items:
                if size > len(value):
                    room = 2 * size
                    value, slope = np.empty(room), np.empty(room)
                    neg, pos, zero = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
                    hits, words_of = np.empty(room, np.int64), np.empty(room, np.uint64)
                j, k = item_unit[item], item_break[item]
                item += 1
                eps = tol[j]
                offset = maps[c, d, j] - breaks[j, k]
                for i in range(size):
                    value[i] = offset
                for q in range(d):
                    factor = maps[c, q, j]
                    coef[q] = factor
                    for i in range(size):
                        value[i] += factor * cur[q, i]
                # Sorting into sides without branches: they would be unpredictable.
                n_neg, n_pos, n_zero = 0, 0, 0
                if not open_:
                    for i in range(size):
                        neg[n_neg] = i
                        pos[n_pos] = i
                        zero[n_zero] = i
                        up, down = value[i] > eps, value[i] < -eps
                        n_pos += up
                        n_neg += down
                        n_zero = i + 1 - n_pos - n_neg
                else:
                    weight = 0.0
                    for q in range(d):
                        weight += abs(coef[q])
                    for i in range(size):
                        rise, blur = 0.0, 0.0
                        for q in range(d):
                            rise += coef[q] * cur[d + q, i]
                            blur += abs(coef[q]) * cur[2 * d + q, i]
                        if abs(rise) <= _RAY_TOLERANCE * weight:
                            rise = 0.0
                        slope[i] = rise
                        sign = rise
                        if rise == 0.0 and abs(value[i]) > eps + _POINT_TOLERANCE * blur:
                            sign = value[i]
                        if sign > 0.0:
                            pos[n_pos] = i
                            n_pos += 1
                        elif sign < 0.0:
                            neg[n_neg] = i
                            n_neg += 1
                        else:
                            zero[n_zero] = i
                            n_zero += 1
                if n_pos == 0:
                    continue
                if n_neg == 0:
                    piece[j] += 1
                    continue

                n_edge, edge_a, edge_b = _find_edges(
                    cur_bits, size, d, neg, n_neg, pos, n_pos, hits, words_of, edge_a, edge_b
                )
                if n_zero + n_edge < d:
                    # Only rounding gets here: the common face would have no inner points. Take the larger part.
                    lowest, highest = 0.0, 0.0
                    for i in range(size):
                        lowest, highest = min(lowest, value[i]), max(highest, value[i])
                    if highest > -lowest:
                        piece[j] += 1
                    continue
                for w in range(words):
                    used_neg[w], used_pos[w] = _NONE, _NONE
                    for i in range(n_neg):
                        used_neg[w] |= cur_bits[neg[i], w]
                    for i in range(n_pos):
                        used_pos[w] |= cur_bits[pos[i], w]
                slot_neg, slot_pos = _free_slot(used_neg), _free_slot(used_pos)
                if slot_neg < 0 or slot_pos < 0:
                    complete = False
                    break
                if open_:
                    for i in range(size):
                        if slope[i] != 0.0:
                            far = max(far, -value[i] / slope[i])

                n1, n2 = n_neg + n_zero + n_edge, n_pos + n_zero + n_edge
                if n1 > one.shape[1]:
                    one, one_bits = np.empty((wide, 2 * n1)), np.empty((2 * n1, words), np.uint64)
                while pooled_x + wide * n2 > len(pool_x):
                    pool_x = _grown1(pool_x, pooled_x + wide * n2)
                while pooled_v + n2 > len(pool_bits):
                    pool_bits = _grown2(pool_bits, pooled_v + n2)

                # The lower part stays at hand, the upper one is put aside.
                first, second = n_neg + n_zero, n_pos + n_zero
                for q in range(wide):
                    at = pooled_x + q * n2
                    for i in range(n_neg):
                        one[q, i] = cur[q, neg[i]]
                    for i in range(n_pos):
                        pool_x[at + i] = cur[q, pos[i]]
                    for i in range(n_zero):
                        x = cur[q, zero[i]]
                        one[q, n_neg + i] = x
                        pool_x[at + n_pos + i] = x
                for e in range(n_edge):
                    a, b = edge_a[e], edge_b[e]
                    if abs(value[a]) > abs(value[b]):
                        a, b = b, a  # start at the nearer end: the step is then at most half the edge
                    s1, s2 = 0.0, 0.0
                    if open_:
                        s1, s2 = slope[a], slope[b]
                    if s1 == s2:
                        share = value[a] / (value[a] - value[b])
                        for q in range(wide):
                            one[q, first + e] = cur[q, a] + share * (cur[q, b] - cur[q, a])
                    else:
                        # share = share0 + share1 / R: the crossing of an edge that reaches to infinity.
                        share0 = s1 / (s1 - s2)
                        share1 = (value[a] - share0 * (value[a] - value[b])) / (s1 - s2)
                        longest = 0.0
                        for q in range(d):
                            along = cur[d + q, b] - cur[d + q, a]
                            one[q, first + e] = cur[q, a] + share0 * (cur[q, b] - cur[q, a]) + share1 * along
                            one[d + q, first + e] = cur[d + q, a] + share0 * along
                            one[2 * d + q, first + e] = (
                                cur[2 * d + q, a]
                                + share0 * (cur[2 * d + q, b] - cur[2 * d + q, a])
                                + abs(share1 * along)
                            )
                            longest = max(longest, abs(one[d + q, first + e]))
                        if longest < 0.5:  # a ray is zero or reaches the unit cube's surface
                            for q in range(d):
                                one[d + q, first + e] = 0.0
                for q in range(wide):
                    at = pooled_x + q * n2 + second
                    for e in range(n_edge):
                        pool_x[at + e] = one[q, first + e]
                for w in range(words):
                    new_neg = _ONE << np.uint64(slot_neg & 63) if slot_neg >> 6 == w else _NONE
                    new_pos = _ONE << np.uint64(slot_pos & 63) if slot_pos >> 6 == w else _NONE
                    for i in range(n_neg):
                        one_bits[i, w] = cur_bits[neg[i], w]
                    for i in range(n_pos):
                        pool_bits[pooled_v + i, w] = cur_bits[pos[i], w]
                    for i in range(n_zero):
                        word = cur_bits[zero[i], w]
                        one_bits[n_neg + i, w] = word & used_neg[w] | new_neg
                        pool_bits[pooled_v + n_pos + i, w] = word & used_pos[w] | new_pos
                    for e in range(n_edge):
                        word = cur_bits[edge_a[e], w] & cur_bits[edge_b[e], w]
                        one_bits[first + e, w] = word | new_neg
                        pool_bits[pooled_v + second + e, w] = word | new_pos
                    frame_used[frames, w] = used_pos[w] | new_pos
                    used[w] = used_neg[w] | new_neg
                for f in range(slots):
                    frame_label[frames, f] = cur_label[f]
                cut = first_label + j * steps + k
                frame_label[frames, slot_pos] = cut
                cur_label[slot_neg] = cut
                frame_x[frames], frame_v[frames] = pooled_x, pooled_v
                frame_size[frames], frame_item[frames], frame_radius[frames] = n2, item, far
                for q in range(m):
                    frame_piece[frames, q] = piece[q]
                frame_piece[frames, j] += 1
                frames += 1
                pooled_x += wide * n2
                pooled_v += n2
                cur, one = one, cur
                cur_bits, one_bits = one_bits, cur_bits
                size = n1

            if not complete:
                break
            # All units are decided on the cell at hand: it is a child. Its facets move to the lowest numbers.
            facets = 0
            for w in range(words):
                facets += _count(used[w])
            while v_out + size > len(out_x):
                out_x, out_bits = _grown2(out_x, v_out + size), _grown2(out_bits, v_out + size)
            if f_out + facets > len(out_labels):
                out_labels = _grown1(out_labels, f_out + facets)
            if n_out + 2 > len(out_parent):
                out_offset, out_facet = _grown1(out_offset, n_out + 2), _grown1(out_facet, n_out + 2)
                out_parent, out_piece = _grown1(out_parent, n_out + 2), _grown2(out_piece, n_out + 2)
                if open_:
                    out_radius = _grown1(out_radius, n_out + 2)
            for i in range(size):
                for w in range(words):
                    out_bits[v_out + i, w] = cur_bits[i, w]
            hole = 0
            for f in range(slots):
                if used[f >> 6] >> np.uint64(f & 63) & _ONE == _NONE:
                    continue
                to = f
                if f >= facets:
                    while used[hole >> 6] >> np.uint64(hole & 63) & _ONE != _NONE:
                        hole += 1
                    to = hole
                    hole += 1
                    word, shift = f >> 6, np.uint64(f & 63)
                    to_word, to_shift = to >> 6, np.uint64(to & 63)
                    for i in range(v_out, v_out + size):
                        bit = out_bits[i, word] >> shift & _ONE
                        out_bits[i, word] &= ~(_ONE << shift)
                        out_bits[i, to_word] |= bit << to_shift
                out_labels[f_out + to] = cur_label[f]
            for i in range(size):
                for q in range(wide):
                    out_x[v_out + i, q] = cur[q, i]
            if open_:
                out_radius[n_out] = far
            v_out += size
            f_out += facets
            out_parent[n_out] = c
            for q in range(m):
                out_piece[n_out, q] = piece[q]
            n_out += 1
            out_offset[n_out], out_facet[n_out] = v_out, f_out

            if frames == 0:
                break
            frames -= 1
            size, item, far = frame_size[frames], frame_item[frames], frame_radius[frames]
            pooled_x, pooled_v = frame_x[frames], frame_v[frames]
            if size > cur.shape[1]:
                cur, cur_bits = np.empty((wide, 2 * size)), np.empty((2 * size, words), np.uint64)
            for q in range(wide):
                at = pooled_x + q * size
                for i in range(size):
                    cur[q, i] = pool_x[at + i]
            for w in range(words):
                used[w] = frame_used[frames, w]
                for i in range(size):
                    cur_bits[i, w] = pool_bits[pooled_v + i, w]
            for f in range(slots):
                cur_label[f] = frame_label[frames, f]
            for q in range(m):
                piece[q] = frame_piece[frames, q]
        if not complete:
            break

    return (
        complete,
        out_x[:v_out],
        out_bits[:v_out],
        out_labels[:f_out],
        out_offset[: n_out + 1],
        out_facet[: n_out + 1],
        out_radius[:n_out] if open_ else out_radius,
        out_parent[:n_out],
        out_piece[:n_out],
        top,
    )


@nb.njit(cache=True, error_model="numpy")
def _volumes(points, bits, offsets, facet_offsets):  # type: ignore[no-untyped-def]
    n, d, words = len(offsets) - 1, points.shape[1], bits.shape[1]
    most, widest = 1, 1
    for c in range(n):
        most = max(most, offsets[c + 1] - offsets[c])
        widest = max(widest, facet_offsets[c + 1] - facet_offsets[c])
    factorial = 1.0
    for q in range(d):
        factorial *= q + 1
    out = np.empty(n)
    # A chain of faces: level 0 is the cell, level d a vertex. `vertex[level]` lists a face's vertices, its apex first.
    vertex, count = np.empty((d + 1, most), np.int64), np.empty(d + 1, np.int64)
    carriers = np.empty((d + 1, words), np.uint64)  # the facets of the cell that contain the face
    shared, within = np.empty((d + 1, widest), np.int64), np.empty(words, np.uint64)
    following, product = np.empty(d + 1, np.int64), np.empty(d + 1)
    edge = np.empty((d + 1, d))  # orthogonal parts of apex - first apex, of unit length

    for c in range(n):
        facets = facet_offsets[c + 1] - facet_offsets[c]
        count[0] = offsets[c + 1] - offsets[c]
        for i in range(count[0]):
            vertex[0, i] = offsets[c] + i
        root = offsets[c]
        product[0] = 1.0
        total = 0.0
        level, entering = 0, True
        while level >= 0:
            if entering:
                for f in range(facets):
                    shared[level, f] = 0
                for w in range(words):
                    carriers[level, w] = ~_NONE
                for i in range(count[level]):
                    v = vertex[level, i]
                    for w in range(words):
                        carriers[level, w] &= bits[v, w]
                    for f in range(facets):
                        shared[level, f] += np.int64(bits[v, f >> 6] >> np.uint64(f & 63) & _ONE)
                following[level] = 0
                entering = False
            f = following[level]
            if f >= facets:
                level -= 1
                continue
            following[level] = f + 1
            word, shift = f >> 6, np.uint64(f & 63)
            apex = vertex[level, 0]
            if shared[level, f] == 0 or bits[apex, word] >> shift & _ONE != _NONE:
                continue
            # The part of this face in facet f; it is a facet of the face iff no other such part holds it.
            below = level + 1
            found = 0
            for w in range(words):
                within[w] = ~_NONE
            for i in range(count[level]):
                v = vertex[level, i]
                if bits[v, word] >> shift & _ONE != _NONE:
                    vertex[below, found] = v
                    found += 1
                    for w in range(words):
                        within[w] &= bits[v, w]
            largest = True
            for g in range(facets):
                bit = _ONE << np.uint64(g & 63)
                if g != f and within[g >> 6] & bit != _NONE and carriers[level, g >> 6] & bit == _NONE:
                    if shared[level, g] > found or (shared[level, g] == found and g < f):
                        largest = False
                        break
            if not largest:
                continue
            count[below] = found
            new = vertex[below, 0]
            for q in range(d):
                edge[below, q] = points[new, q] - points[root, q]
            for k in range(1, below):
                along = 0.0
                for q in range(d):
                    along += edge[below, q] * edge[k, q]
                for q in range(d):
                    edge[below, q] -= along * edge[k, q]
            length = 0.0
            for q in range(d):
                length += edge[below, q] * edge[below, q]
            length = np.sqrt(length)
            if below == d:
                total += product[level] * length
                continue
            if length == 0.0:
                continue
            for q in range(d):
                edge[below, q] /= length
            product[below] = product[level] * length
            level, entering = below, True
        out[c] = total / factorial
    return out
