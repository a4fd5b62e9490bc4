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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
        """The polyhedron `A x <= b`, bounded or not; row k is labelled `-1 - 2d - k`, redundant rows drop out.

        Cost: one cut per row. An empty or lower-dimensional polyhedron gives no cells.
        """
        A, b = real_array(A, "A", ndim=2), real_array(b, "b", ndim=1)
        if len(A) != len(b):
            raise InputError(f"A and b must have one row per inequality, got {len(A)} and {len(b)}")
        cell = cls.space(A.shape[1])
        zero = np.zeros((1, 1))
        for k, (normal, bound) in enumerate(zip(A, b, strict=True)):
            maps = np.append(normal, -bound)[None, :, None]
            found = cell.split(maps, np.full((1, 1), 4 * _EPS * abs(bound)), zero, -1 - 2 * cell.dimension - k)
            inside = np.flatnonzero(found.piece[:, 0] == 0)
            if not len(inside):
                return cell.part(0, 0)
            cell = found.cells.part(int(inside[0]), int(inside[0]) + 1)
        none = np.zeros((0, cell.dimension))
        return cell if cell.rays.any() else replace(cell, rays=none, scales=none, radius=np.zeros(0))

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
        n, d, m = len(self), self.dimension, maps.shape[2]
        maps, tolerance = np.require(maps, requirements=("C", "W")), np.ascontiguousarray(tolerance)
        breaks = np.array(breaks)  # one kind of array (writable) means one compilation
        low, high, top = np.empty((n, m)), np.empty((n, m)), np.empty((n, m))
        _ranges(self.points, self.rays, self.offsets, maps, low, high, top)

        given = _Given(
            self.points,
            self.bits,
            self.labels,
            self.offsets,
            self.facet_offsets,
            self.rays,
            self.scales,
            self.radius,
        )
        wide = 3 * d if self.is_open else d
        room = 64 + 2 * int(np.diff(self.offsets).max(initial=0))
        sizes = (2 * n + 16, 4 * len(self.points) + 64, 4 * len(self.labels) + 64 * self.bits.shape[1])
        work = _Work.empty(room, d, wide, self.bits.shape[1], m, breaks.shape[1])
        out = _Out.empty(sizes, wide, self.bits.shape[1], m)
        state = np.zeros(4, np.int64)  # next cell, and how many children, vertices, facets are there
        while True:
            short_of = _split_cells(given, maps, tolerance, breaks, low, high, first_label, work, out, state)
            if short_of == _DONE:
                break
            words = given.bits.shape[1]
            if short_of == _MORE_OUT:
                used = out.first(*state[1:].tolist())
                # Memory that is never touched costs nothing, copies do: take what the cells so far foretell.
                growth = min(max(2, 3 * n // (2 * max(int(state[0]), 1))), 32)
                sizes = (growth * sizes[0], growth * sizes[1], growth * sizes[2])
                out = _Out.empty(sizes, wide, words, m)
                out.take(used)
                continue
            if short_of == _MORE_WORDS:  # a cell got more facets than the words have bits: begin anew
                words += 1
                given = given._replace(bits=_widened(given.bits, words))
                out = _Out.empty(sizes, wide, words, m)
                state[:] = 0
            else:
                room *= 2
            work = _Work.empty(room, d, wide, words, m, breaks.shape[1])
        found = out.first(*state[1:].tolist())
        if self.is_open:
            points, rays, scales = (np.ascontiguousarray(found.x[:, k * d : (k + 1) * d]) for k in range(3))
        else:
            points, rays, scales = found.x, np.zeros((0, d)), np.zeros((0, d))
        cells = VertexCells(
            points,
            found.bits,
            found.labels,
            found.offsets,
            found.facet_offsets,
            rays,
            scales,
            found.radius if self.is_open else np.zeros(0),
        )
        return Split(cells, found.parent, found.piece, top)

    def relabelled(self, rename: Callable[[npt.NDArray[np.int32]], npt.NDArray[np.int32]]) -> VertexCells:
        """The same cells with other facet labels; symbolic sides of the whole space must keep theirs."""
        return replace(self, labels=np.asarray(rename(self.labels), np.int32))

    # -- single cells --------------------------------------------------------------------------------------------

    def vertices(self, i: int) -> FloatArray:
        """The finite vertices of cell i, shape (k, d)."""
        mine = slice(self.offsets[i], self.offsets[i + 1])
        return self.points[mine][~self._far()[mine]] if self.is_open else self.points[mine]

    def rays_of(self, i: int) -> FloatArray:
        """Unit directions that span the ways to infinity of cell i, shape (k, d); no rows when it is bounded.

        Where the cell has a vertex these are its extreme directions, those of its unbounded edges, once each: the cell
        is the convex hull of its vertices plus their cone. A cell that contains a line gives some spanning directions.
        """
        if not self.is_open:
            return np.zeros((0, self.dimension))
        mine = slice(self.offsets[i], self.offsets[i + 1])
        far, rays = self._far()[mine], self.rays[mine]
        if not far.all():
            sides = _pack(self._symbolic(self.facets(i))[None])[0]
            sides = _widened(sides[None], self.bits.shape[1])[0]
            far = _far_ends(self.bits[mine], len(far), self.dimension, far, sides)
        found = rays[far]
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def facets(self, i: int) -> npt.NDArray[np.int32]:
        """The labels of the facets of cell i, none redundant; symbolic sides of the whole space included."""
        return self.labels[self.facet_offsets[i] : self.facet_offsets[i + 1]]

    def incidence(self, i: int) -> npt.NDArray[np.bool_]:
        """Which of `facets(i)` pass through which vertices of cell i, far ones included, shape (vertices, facets)."""
        each = np.arange(len(self.facets(i)))
        words = self.bits[self.offsets[i] : self.offsets[i + 1]]
        return (words[:, each // 64] >> (each % 64).astype(np.uint64)) & np.uint64(1) != 0

    # -- all cells -----------------------------------------------------------------------------------------------

    def facet_labels(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Labels of the facets of all cells, and where each cell's start; symbolic sides are left out."""
        if not self.is_open:
            return self.labels, self.facet_offsets
        real = ~self._symbolic(self.labels)
        before = np.concatenate([[0], np.cumsum(real)])
        return self.labels[real], before[self.facet_offsets]

    def facet_points(self) -> FloatArray:
        """A point inside each facet, in the order of `facet_labels`."""
        points: FloatArray = _facet_means(
            self.points, self.rays, self.radius, self.bits, self.offsets, self.facet_offsets
        )
        return points[~self._symbolic(self.labels)] if self.is_open else points

    def bounded(self) -> npt.NDArray[np.bool_]:
        """Whether each cell is bounded, shape (n,)."""
        if not self.is_open:
            return np.ones(len(self), np.bool_)
        return ~np.logical_or.reduceat(self._far(), self.offsets[:-1])

    def interior(self) -> FloatArray:
        """A point strictly inside each cell, shape (n, d).

        The mean of the vertices; where some are far, the mean of the finite ones plus the mean direction to infinity;
        where all are far (the cell contains a line), the mean of the vertices at an R past `radius`.
        """
        if not len(self):
            return np.zeros((0, self.dimension))
        starts, count = self.offsets[:-1], np.diff(self.offsets)[:, None]
        if not self.is_open:
            return np.add.reduceat(self.points, starts) / count
        near = ~self._far()[:, None]
        finite = np.add.reduceat(near.astype(np.int64), starts)
        base = near | np.repeat(finite == 0, count[:, 0], axis=0)
        inside = np.add.reduceat(self.points * base, starts) / np.add.reduceat(base.astype(np.int64), starts)
        low = np.minimum.reduceat(np.where(near, self.points, np.inf), starts)
        high = np.maximum.reduceat(np.where(near, self.points, -np.inf), starts)
        with np.errstate(invalid="ignore"):
            spread = np.maximum(1.0, (high - low).max(axis=1, keepdims=True))
        step = np.where(finite > 0, spread, 1.0 + 2.0 * self.radius[:, None])
        return inside + step * np.add.reduceat(self.rays, starts) / count

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
        volume: FloatArray = _volumes(self.points, self.bits, self.offsets)
        volume[~self.bounded()] = np.inf
        return volume

    def _far(self) -> npt.NDArray[np.bool_]:
        """Which vertices are at infinity."""
        return (self.rays != 0).any(axis=1)

    def _symbolic(self, labels: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Which facets of an open batch are sides of the cube of symbolic size."""
        return (labels < 0) & (labels >= -2 * self.dimension)

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


class _Given(NamedTuple):
    """The cells to split."""

    points: FloatArray
    bits: Words
    labels: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    facet_offsets: npt.NDArray[np.int64]
    rays: FloatArray
    scales: FloatArray
    radius: FloatArray


class _Out(NamedTuple):
    """The children, with room to grow. `x` holds points, and for open cells rays and scales, side by side."""

    x: FloatArray
    bits: Words
    labels: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    facet_offsets: npt.NDArray[np.int64]
    radius: FloatArray
    parent: npt.NDArray[np.int64]
    piece: npt.NDArray[np.uint8]

    @classmethod
    def empty(cls, sizes: tuple[int, int, int], wide: int, words: int, m: int) -> _Out:
        cells, vertices, facets = sizes
        return cls(
            np.empty((vertices, wide)),
            np.empty((vertices, words), np.uint64),
            np.empty(facets, np.int32),
            np.zeros(cells + 1, np.int64),
            np.zeros(cells + 1, np.int64),
            np.empty(cells),
            np.empty(cells, np.int64),
            np.empty((cells, m), np.uint8),
        )

    def take(self, other: _Out) -> None:
        """Copy a smaller record into the beginning of this one."""
        mine: tuple[npt.NDArray[Any], ...] = tuple(self)
        theirs: tuple[npt.NDArray[Any], ...] = tuple(other)
        for array, filled in zip(mine, theirs, strict=True):
            array[: len(filled)] = filled

    def first(self, cells: int, vertices: int, facets: int) -> _Out:
        """The used part of each array."""
        return _Out(
            self.x[:vertices],
            self.bits[:vertices],
            self.labels[:facets],
            self.offsets[: cells + 1],
            self.facet_offsets[: cells + 1],
            self.radius[:cells],
            self.parent[:cells],
            self.piece[:cells],
        )


class _Work(NamedTuple):
    """Buffers of the splitting kernel: two cells, a pool of pending sub-cells, their frames."""

    x: FloatArray
    bits: Words
    value: FloatArray
    slope: FloatArray
    lists: npt.NDArray[np.int64]
    words_of: Words
    edges: npt.NDArray[np.int64]
    pool_x: FloatArray
    pool_bits: Words
    item_unit: npt.NDArray[np.int64]
    item_break: npt.NDArray[np.int64]
    piece: npt.NDArray[np.uint8]
    label: npt.NDArray[np.int32]
    used: Words
    frame: npt.NDArray[np.int64]
    frame_far: FloatArray
    coef: FloatArray
    slots: npt.NDArray[np.int64]

    @classmethod
    def empty(cls, room: int, d: int, wide: int, words: int, m: int, steps: int) -> _Work:
        items = m * max(steps, 1)
        return cls(
            np.empty((2, wide, room)),
            np.empty((2, room, words), np.uint64),
            np.empty(room),
            np.empty(room),
            np.empty((4, room), np.int64),
            np.empty(room, np.uint64),
            np.empty((2, room), np.int64),
            np.empty(wide * 8 * room),
            np.empty((8 * room, words), np.uint64),
            np.empty(items, np.int64),
            np.empty(items, np.int64),
            np.empty((items + 2, m), np.uint8),
            np.empty((items + 2, 64 * words), np.int32),
            np.empty((items + 2, words), np.uint64),
            np.empty((items + 2, 3), np.int64),
            np.empty(items + 2),
            np.empty(d),
            np.empty(2, np.int64),
        )


_DONE, _MORE_WORK, _MORE_OUT, _MORE_WORDS = 0, 1, 2, 3


@intrinsic
def _ctpop(typingctx, word):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return nb.types.uint64(nb.types.uint64), generate


if nb.config.DISABLE_JIT:

    def _count(word: Any) -> Any:
        return int(word).bit_count()
else:

    @nb.njit(cache=True)
    def _count(word: Any) -> Any:
        return np.int64(_ctpop(word))


_ONE = np.uint64(1)
_NONE = np.uint64(0)


@nb.njit(cache=True)
def _free_slot(used, words):  # type: ignore[no-untyped-def]
    """The lowest bit that is not in the set, or -1."""
    for w in range(words):
        if ~used[w] != _NONE:
            return 64 * w + _count(((used[w] + _ONE) & ~used[w]) - _ONE)
    return -1


@nb.njit(cache=True)
def _spans_edge(bits, size, a, b):  # type: ignore[no-untyped-def]
    """Whether no third vertex lies on all facets that a and b share."""
    for v in range(size):
        inside = v != a and v != b
        for w in range(bits.shape[1]):
            inside &= bits[a, w] & bits[b, w] & ~bits[v, w] == _NONE
        if inside:
            return False
    return True


@nb.njit(cache=True, error_model="numpy")
def _ranges(points, rays, offsets, maps, low, high, top):  # type: ignore[no-untyped-def]
    """Least, largest, and largest absolute value (of finite parts) of every unit at the vertices of every cell."""
    n, m, d = len(offsets) - 1, maps.shape[2], points.shape[1]
    here, weight = np.empty(m), np.empty(m)
    for c in range(n):
        for j in range(m):
            low[c, j], high[c, j] = np.inf, -np.inf
        for v in range(offsets[c], offsets[c + 1]):
            for j in range(m):
                here[j] = maps[c, d, j]
            for q in range(d):
                x = points[v, q]
                for j in range(m):
                    here[j] += maps[c, q, j] * x
            for j in range(m):
                low[c, j], high[c, j] = min(low[c, j], here[j]), max(high[c, j], here[j])
        for j in range(m):
            top[c, j] = max(abs(low[c, j]), abs(high[c, j]))
        if len(rays) == 0:
            continue
        for j in range(m):
            weight[j] = 0.0
            for q in range(d):
                weight[j] += abs(maps[c, q, j])
        for v in range(offsets[c], offsets[c + 1]):
            for j in range(m):
                rise = 0.0
                for q in range(d):
                    rise += maps[c, q, j] * rays[v, q]
                if rise > _RAY_TOLERANCE * weight[j]:
                    high[c, j] = np.inf
                elif rise < -_RAY_TOLERANCE * weight[j]:
                    low[c, j] = -np.inf


@nb.njit(cache=True, error_model="numpy")
def _sides(x, size, d, coef, offset, eps, open_, value, slope, lists):  # type: ignore[no-untyped-def]
    """Sort the vertices into `lists`: below, above, on the hyperplane. Returns how many are below and above."""
    for i in range(size):
        value[i] = offset
    for q in range(d):
        factor = coef[q]
        for i in range(size):
            value[i] += factor * x[q, i]
    n_neg, n_pos = 0, 0
    if not open_:
        # No branches: they would be unpredictable.
        for i in range(size):
            lists[0, n_neg] = i
            lists[1, n_pos] = i
            lists[2, i - n_neg - n_pos] = i
            n_neg += value[i] < -eps
            n_pos += value[i] > eps
        return n_neg, n_pos
    weight = 0.0
    for q in range(d):
        weight += abs(coef[q])
    for i in range(size):
        rise, blur = 0.0, 0.0
        for q in range(d):
            rise += coef[q] * x[d + q, i]
            blur += abs(coef[q]) * x[2 * d + q, i]
        if abs(rise) <= _RAY_TOLERANCE * weight:
            rise = 0.0
        slope[i] = rise
        sign = rise
        if rise == 0.0 and abs(value[i]) > eps + _POINT_TOLERANCE * blur:
            sign = value[i]
        lists[0, n_neg] = i
        lists[1, n_pos] = i
        lists[2, i - n_neg - n_pos] = i
        n_neg += sign < 0.0
        n_pos += sign > 0.0
    return n_neg, n_pos


@nb.njit(cache=True)
def _find_edges(bits, size, d, lists, n_neg, n_pos, words_of, edges):  # type: ignore[no-untyped-def]
    """All edges from a vertex in `lists[0]` to one in `lists[1]`; their number, or -1 when there is no room."""
    words = bits.shape[1]
    n = 0
    for k in range(n_pos):
        words_of[k] = bits[lists[1, k], 0]
    for i in range(n_neg):
        a = lists[0, i]
        found = 0
        if words == 1:
            mine = bits[a, 0]
            for k in range(n_pos):  # no branch: hits are rare and unpredictable
                lists[3, found] = k
                found += _count(mine & words_of[k]) >= d - 1
        else:
            for k in range(n_pos):
                shared = 0
                for w in range(words):
                    shared += _count(bits[a, w] & bits[lists[1, k], w])
                lists[3, found] = k
                found += shared >= d - 1
        if found == 0:
            continue
        if n + found > edges.shape[1]:
            return -1
        on = 0
        for w in range(words):
            on += _count(bits[a, w])
        for k in range(found):
            b = lists[1, lists[3, k]]
            if on > d:
                other = 0
                for w in range(words):
                    other += _count(bits[b, w])
                if other > d and not _spans_edge(bits, size, a, b):
                    continue
            edges[0, n], edges[1, n] = a, b
            n += 1
    return n


@nb.njit(cache=True, error_model="numpy")
def _new_vertices(x, d, open_, value, slope, edges, n_edge, to, at):  # type: ignore[no-untyped-def]
    """Where the edges cross the hyperplane, into the columns `at...` of `to`."""
    for e in range(n_edge):
        a, b = edges[0, e], edges[1, e]
        if abs(value[a]) > abs(value[b]):
            a, b = b, a  # start at the nearer end: the step is then at most half the edge
        if not open_:
            share = value[a] / (value[a] - value[b])
            for q in range(d):
                to[q, at + e] = x[q, a] + share * (x[q, b] - x[q, a])
        elif slope[a] == slope[b]:
            share = value[a] / (value[a] - value[b])
            for q in range(3 * d):
                to[q, at + e] = x[q, a] + share * (x[q, b] - x[q, a])
        else:
            # share = first + second / R: the crossing of an edge that reaches to infinity.
            first = slope[a] / (slope[a] - slope[b])
            second = (value[a] - first * (value[a] - value[b])) / (slope[a] - slope[b])
            longest = 0.0
            for q in range(d):
                p, r, s = q, d + q, 2 * d + q
                along = x[r, b] - x[r, a]
                to[p, at + e] = x[p, a] + first * (x[p, b] - x[p, a]) + second * along
                to[r, at + e] = x[r, a] + first * along
                to[s, at + e] = x[s, a] + first * (x[s, b] - x[s, a]) + abs(second * along)
                longest = max(longest, abs(to[r, at + e]))
            if longest < 0.5:  # a ray is zero or reaches the unit cube's surface
                for q in range(d, 2 * d):
                    to[q, at + e] = 0.0


@nb.njit(cache=True)
def _sort_out(x, bits, lists, n_neg, n_pos, n_zero, edges, n_edge, used, slots, low, low_bits, high, high_bits):  # type: ignore[no-untyped-def]
    """Fill the lower part (whose new vertices are there already) and the upper one, `high` by coordinate."""
    wide, words = x.shape[0], bits.shape[1]
    first, second = n_neg + n_zero, n_pos + n_zero
    n_high = second + n_edge
    for q in range(wide):
        for i in range(n_neg):
            low[q, i] = x[q, lists[0, i]]
        for i in range(n_zero):
            low[q, n_neg + i] = x[q, lists[2, i]]
        at = q * n_high
        for i in range(n_pos):
            high[at + i] = x[q, lists[1, i]]
        for i in range(n_zero):
            high[at + n_pos + i] = x[q, lists[2, i]]
        for e in range(n_edge):
            high[at + second + e] = low[q, first + e]
    for w in range(words):
        new_low = _ONE << np.uint64(slots[0] & 63) if slots[0] >> 6 == w else _NONE
        new_high = _ONE << np.uint64(slots[1] & 63) if slots[1] >> 6 == w else _NONE
        for i in range(n_neg):
            low_bits[i, w] = bits[lists[0, i], w]
        for i in range(n_pos):
            high_bits[i, w] = bits[lists[1, i], w]
        for i in range(n_zero):
            word = bits[lists[2, i], w]
            low_bits[n_neg + i, w] = word & used[0, w] | new_low
            high_bits[n_pos + i, w] = word & used[1, w] | new_high
        for e in range(n_edge):
            word = bits[edges[0, e], w] & bits[edges[1, e], w]
            low_bits[first + e, w] = word | new_low
            high_bits[second + e, w] = word | new_high
        used[0, w] |= new_low
        used[1, w] |= new_high


@nb.njit(cache=True)
def _store(x, bits, size, used, label, to_x, to_bits, to_label):  # type: ignore[no-untyped-def]
    """Write a finished cell; its facets move to the lowest numbers. Returns how many there are."""
    wide, words = x.shape[0], bits.shape[1]
    facets = 0
    for w in range(words):
        facets += _count(used[w])
    for i in range(size):
        for w in range(words):
            to_bits[i, w] = bits[i, w]
        for q in range(wide):
            to_x[i, q] = x[q, i]
    hole = 0
    for w in range(words):
        rest = used[w]
        while rest != _NONE:
            lowest = rest & (~rest + _ONE)
            rest ^= lowest
            f = 64 * w + _count(lowest - _ONE)
            to = f
            if f >= facets:
                while used[hole >> 6] >> np.uint64(hole & 63) & _ONE != _NONE:
                    hole += 1
                to = hole
                hole += 1
                to_word, to_bit = to >> 6, _ONE << np.uint64(to & 63)
                for i in range(size):
                    if to_bits[i, w] & lowest != _NONE:
                        to_bits[i, w] ^= lowest
                        to_bits[i, to_word] |= to_bit
            to_label[to] = label[f]
    return facets


@nb.njit(cache=True, error_model="numpy")
def _split_cells(given, maps, tolerance, breaks, low, high, first_label, work, out, state):  # type: ignore[no-untyped-def]
    """Cut the cells `state[0]...` and append their children to `out`.

    Nothing is allocated here: where a buffer is too small, `state` is left at the last whole cell, and the return value
    says which kind of buffer it was.
    """
    m, steps = maps.shape[2], breaks.shape[1]
    d, words = given.points.shape[1], given.bits.shape[1]
    open_ = len(given.rays) > 0
    # Numbers of a vertex: point, and for open cells ray and scale. At hand they are stored by coordinate.
    wide, room = work.x.shape[1], work.x.shape[2]
    value, slope, lists, edges = work.value, work.slope, work.lists, work.edges
    item_unit, item_break, piece, label = work.item_unit, work.item_break, work.piece, work.label
    coef, slots = work.coef, work.slots

    for c in range(state[0], len(given.offsets) - 1):
        n_out, v_out, f_out = state[1], state[2], state[3]
        start, size = given.offsets[c], given.offsets[c + 1] - given.offsets[c]
        if size > room:
            return _MORE_WORK
        items = 0
        for j in range(m):
            below = 0
            for k in range(steps):
                t = breaks[j, k]
                if high[c, j] <= t + tolerance[c, j]:
                    break  # below this break point and all later ones
                if low[c, j] >= t - tolerance[c, j]:
                    below += 1
                else:
                    item_unit[items], item_break[items] = j, k
                    items += 1
            piece[0, j] = below

        hand = 0  # which of the two buffers holds the cell at hand
        for i in range(size):
            for q in range(d):
                work.x[0, q, i] = given.points[start + i, q]
            for w in range(words):
                work.bits[0, i, w] = given.bits[start + i, w]
            if open_:
                for q in range(d):
                    work.x[0, d + q, i] = given.rays[start + i, q]
                    work.x[0, 2 * d + q, i] = given.scales[start + i, q]
        for w in range(words):
            work.used[0, w] = _NONE
        first_facet = given.facet_offsets[c]
        for f in range(given.facet_offsets[c + 1] - first_facet):
            label[0, f] = given.labels[first_facet + f]
            work.used[0, f >> 6] |= _ONE << np.uint64(f & 63)
        far = given.radius[c] if open_ else 0.0
        # Pending sub-cells wait on a stack: each has a row, from 2 on, of `frame`, `piece`, `label`, `used`.
        frames, pooled, item = 0, 0, 0

        while True:
            while item < items:
                j, k = item_unit[item], item_break[item]
                item += 1
                for q in range(d):
                    coef[q] = maps[c, q, j]
                n_neg, n_pos = _sides(
                    work.x[hand],
                    size,
                    d,
                    coef,
                    maps[c, d, j] - breaks[j, k],
                    tolerance[c, j],
                    open_,
                    value,
                    slope,
                    lists,
                )
                if n_pos == 0:
                    continue
                if n_neg == 0:
                    piece[0, j] += 1
                    continue
                n_zero = size - n_neg - n_pos
                n_edge = _find_edges(work.bits[hand], size, d, lists, n_neg, n_pos, work.words_of, edges)
                if n_edge < 0:
                    return _MORE_WORK
                n_low, n_high = n_neg + n_zero + n_edge, n_pos + n_zero + n_edge
                if n_zero + n_edge < d:
                    # Only rounding gets here: the common face would have no inner points. Take the larger part.
                    lowest, highest = 0.0, 0.0
                    for i in range(size):
                        lowest, highest = min(lowest, value[i]), max(highest, value[i])
                    if highest > -lowest:
                        piece[0, j] += 1
                    continue
                if max(n_low, n_high) > room or pooled + n_high > len(work.pool_bits):
                    return _MORE_WORK
                for w in range(words):
                    below_, above = _NONE, _NONE
                    for i in range(n_neg):
                        below_ |= work.bits[hand, lists[0, i], w]
                    for i in range(n_pos):
                        above |= work.bits[hand, lists[1, i], w]
                    work.used[0, w], work.used[1, w] = below_, above
                slots[0], slots[1] = _free_slot(work.used[0], words), _free_slot(work.used[1], words)
                if slots[0] < 0 or slots[1] < 0:
                    return _MORE_WORDS
                if open_:
                    for i in range(size):
                        if slope[i] != 0.0:
                            far = max(far, -value[i] / slope[i])

                # The lower part stays at hand, the upper one is put aside.
                _new_vertices(work.x[hand], d, open_, value, slope, edges, n_edge, work.x[1 - hand], n_neg + n_zero)
                _sort_out(
                    work.x[hand],
                    work.bits[hand],
                    lists,
                    n_neg,
                    n_pos,
                    n_zero,
                    edges,
                    n_edge,
                    work.used,
                    slots,
                    work.x[1 - hand],
                    work.bits[1 - hand],
                    work.pool_x[wide * pooled :],
                    work.pool_bits[pooled:],
                )
                frame = 2 + frames
                for w in range(words):
                    work.used[frame, w] = work.used[1, w]
                for f in range(64 * words):
                    label[frame, f] = label[0, f]
                label[0, slots[0]] = label[frame, slots[1]] = first_label + j * steps + k
                for q in range(m):
                    piece[frame, q] = piece[0, q]
                piece[frame, j] += 1
                work.frame[frame, 0], work.frame[frame, 1], work.frame[frame, 2] = pooled, n_high, item
                work.frame_far[frame] = far
                frames += 1
                pooled += n_high
                hand = 1 - hand
                size = n_low

            # All units are decided on the cell at hand: it is a child.
            if v_out + size > len(out.bits) or f_out + 64 * words > len(out.labels) or n_out + 2 > len(out.offsets):
                return _MORE_OUT
            f_out += _store(
                work.x[hand],
                work.bits[hand],
                size,
                work.used[0],
                label[0],
                out.x[v_out:],
                out.bits[v_out:],
                out.labels[f_out:],
            )
            v_out += size
            if open_:
                out.radius[n_out] = far
            out.parent[n_out] = c
            for q in range(m):
                out.piece[n_out, q] = piece[0, q]
            n_out += 1
            out.offsets[n_out], out.facet_offsets[n_out] = v_out, f_out
            if frames == 0:
                break

            frames -= 1
            frame = 2 + frames
            pooled, size, item = work.frame[frame, 0], work.frame[frame, 1], work.frame[frame, 2]
            far = work.frame_far[frame]
            for q in range(wide):
                at = wide * pooled + q * size
                for i in range(size):
                    work.x[hand, q, i] = work.pool_x[at + i]
            for w in range(words):
                work.used[0, w] = work.used[frame, w]
                for i in range(size):
                    work.bits[hand, i, w] = work.pool_bits[pooled + i, w]
            for f in range(64 * words):
                label[0, f] = label[frame, f]
            for q in range(m):
                piece[0, q] = piece[frame, q]
        state[0], state[1], state[2], state[3] = c + 1, n_out, v_out, f_out
    return _DONE


@nb.njit(cache=True, error_model="numpy")
def _volumes(points, bits, offsets):  # type: ignore[no-untyped-def]
    n, d, words = len(offsets) - 1, points.shape[1], bits.shape[1]
    most = 1
    for c in range(n):
        most = max(most, offsets[c + 1] - offsets[c])
    factorial = 1.0
    for q in range(d):
        factorial *= q + 1
    out = np.empty(n)
    # A chain of faces: level 0 is the cell, level d a vertex. `vertex[level]` lists a face's vertices, its apex first.
    vertex, count = np.empty((d + 1, most), np.int64), np.empty(d + 1, np.int64)
    carriers = np.empty((d + 1, words), np.uint64)  # the facets of the cell that contain the face
    remaining = np.empty((d + 1, words), np.uint64)  # those that meet the face, but not its apex, still to visit
    within, product = np.empty(words, np.uint64), np.empty(d + 1)
    edge = np.empty((d + 1, d))  # the parts of `apex - first apex` orthogonal to those before, at unit length

    for c in range(n):
        root = offsets[c]
        count[0] = offsets[c + 1] - root
        for i in range(count[0]):
            vertex[0, i] = root + i
        product[0] = 1.0
        total = 0.0
        level, entering = 0, True
        while level >= 0:
            if entering:
                entering = False
                apex = vertex[level, 0]
                for w in range(words):
                    all_, any_ = ~_NONE, _NONE
                    for i in range(count[level]):
                        all_ &= bits[vertex[level, i], w]
                        any_ |= bits[vertex[level, i], w]
                    carriers[level, w], remaining[level, w] = all_, any_ & ~bits[apex, w]
            word = 0
            while word < words and remaining[level, word] == _NONE:
                word += 1
            if word == words:
                level -= 1
                continue
            facet = remaining[level, word] & (~remaining[level, word] + _ONE)
            remaining[level, word] ^= facet
            # The part of this face in the facet; it is a facet of the face iff no other such part holds it.
            below = level + 1
            found = 0
            for w in range(words):
                within[w] = ~_NONE
            for i in range(count[level]):
                v = vertex[level, i]
                if bits[v, word] & facet != _NONE:
                    vertex[below, found] = v
                    found += 1
                    for w in range(words):
                        within[w] &= bits[v, w]
            largest = True
            for w in range(words):
                others = within[w] & ~carriers[level, w]
                if w == word:
                    others ^= facet
                while others != _NONE and largest:
                    other = others & (~others + _ONE)
                    others ^= other
                    held = 0
                    for i in range(count[level]):
                        held += bits[vertex[level, i], w] & other != _NONE
                    earlier = w < word or (w == word and other < facet)
                    largest = held < found or (held == found and not earlier)
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
            elif length > 0.0:
                for q in range(d):
                    edge[below, q] /= length
                product[below] = product[level] * length
                level, entering = below, True
        out[c] = total / factorial
    return out


@nb.njit(cache=True)
def _far_ends(bits, size, d, far, sides):  # type: ignore[no-untyped-def]
    """Which far vertices of one cell end an edge that lies on no symbolic side."""
    words = bits.shape[1]
    out = np.zeros(size, np.bool_)
    for a in range(size):
        if not far[a]:
            continue
        for b in range(size):
            shared, symbolic = 0, False
            for w in range(words):
                common = bits[a, w] & bits[b, w]
                shared += _count(common)
                symbolic |= common & sides[w] != _NONE
            if a != b and shared >= d - 1 and not symbolic and _spans_edge(bits, size, a, b):
                out[a] = True
                break
    return out


@nb.njit(cache=True)
def _facet_means(points, rays, radius, bits, offsets, facet_offsets):  # type: ignore[no-untyped-def]
    """A point inside each facet: the mean of its vertices, see `VertexCells.interior` where they are far."""
    n, d = len(offsets) - 1, points.shape[1]
    open_ = len(rays) > 0
    out = np.empty((facet_offsets[n], d))
    near, onward, least, most = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    every = np.empty(d)
    for c in range(n):
        for f in range(facet_offsets[c + 1] - facet_offsets[c]):
            word, bit = f >> 6, _ONE << np.uint64(f & 63)
            finite, count = 0, 0
            for q in range(d):
                near[q], onward[q], every[q], least[q], most[q] = 0.0, 0.0, 0.0, np.inf, -np.inf
            for v in range(offsets[c], offsets[c + 1]):
                if bits[v, word] & bit == _NONE:
                    continue
                count += 1
                far = False
                if open_:
                    for q in range(d):
                        far |= rays[v, q] != 0.0
                        onward[q] += rays[v, q]
                finite += not far
                for q in range(d):
                    every[q] += points[v, q]
                    if not far:
                        near[q] += points[v, q]
                        least[q], most[q] = min(least[q], points[v, q]), max(most[q], points[v, q])
            step = 1.0 + 2.0 * radius[c] if open_ else 0.0
            if finite > 0:
                step = 1.0
                for q in range(d):
                    step = max(step, most[q] - least[q])
            for q in range(d):
                base = near[q] / finite if finite > 0 else every[q] / count
                out[facet_offsets[c] + f, q] = base + step * onward[q] / count
    return out
