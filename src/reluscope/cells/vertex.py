"""n-D cells that carry their vertices, for 3 to 5 dimensions (6 where vertices are needed). No linear program anywhere.

Cells are stored back to back: cell `i` has the vertices `offsets[i]:offsets[i+1]` and the facets
`facet_offsets[i]:facet_offsets[i+1]`, none of them redundant, and `bits[v]` is the set of the cell's facets that pass
through vertex `v` (bit `f` of the words = facet number `f` of the cell).

The whole space is a cube whose half-width `R` is a symbol larger than every number: a vertex is `point + R * ray`. A
vertex of an arrangement inside the cube solves a linear system whose right-hand side is affine in `R`, so it is exactly
of that form, and its ray is either zero or reaches the unit cube's surface. Values of affine functions are compared
first by the coefficient of `R`; a cell is unbounded exactly when one of its vertices has a non-zero ray.

This module holds the record, `VertexCells`. How cells are split is in `reluscope.cells.vertex_split`; cubes to start
from, volumes and faces are in `reluscope.cells.vertex_shape`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, integer, real_array
from reluscope.cells.csr import joined, places, stacked
from reluscope.cells.interval import Intervals
from reluscope.cells.polygon import Polygons
from reluscope.cells.split import Geometry, Split
from reluscope.cells.vertex_shape import (
    affine_integrals,
    corner_bits,
    corners,
    facet_means,
    far_ends,
    pack,
    side_labels,
)
from reluscope.cells.vertex_split import Flags, Given, Words, split_cells, widened
from reluscope.errors import InputError

MAX_DIMENSION = 16
"""A box in d dimensions has 2^d vertices; cells with vertices are of no use long before this."""


@dataclass(frozen=True, eq=False)
class VertexCells:
    """Convex polytopes by vertices and facets, in CSR layout.

    `rays`, `scales` (one row per vertex) and `radius` (one entry per cell) are empty when every cell is bounded. Else
    a vertex is `points[v] + R * rays[v]`, its coordinates were computed from numbers of the size `scales[v]`, and the
    vertices of cell `i` lie in the cell for every `R >= radius[i]`. `thin` says of which cells rounding may have put
    vertices on wrong facets (see `vertex_split`); it is empty when there are none.
    """

    points: FloatArray
    bits: Words
    labels: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    facet_offsets: npt.NDArray[np.int64]
    rays: FloatArray
    scales: FloatArray
    radius: FloatArray
    thin: Flags = field(default_factory=lambda: np.zeros(0, np.uint8))

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
        corner = corners(len(low))
        return cls._one(np.where(corner, high, low), corner_bits(corner), side_labels(len(low)))

    @classmethod
    def space(cls, dimension: int) -> VertexCells:
        """The whole space, as the cube of symbolic half-width R; its sides are labelled as those of a box."""
        d = integer(dimension, "dimension", low=1, high=MAX_DIMENSION)
        corner = corners(d)
        rays = np.where(corner, 1.0, -1.0)
        return cls._one(np.zeros(rays.shape), corner_bits(corner), side_labels(d), rays)

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
            found = cell.split(maps, np.full((1, 1), 4 * EPS * abs(bound)), zero, -1 - 2 * cell.dimension - k)
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
            self.thin[start:stop],
        )

    def take(self, index: npt.NDArray[np.integer]) -> VertexCells:
        """The cells at `index`, in that order."""
        rows, offsets = places(self.offsets, index)
        facets, facet_offsets = places(self.facet_offsets, index)
        open_ = self.is_open
        return VertexCells(
            self.points[rows],
            self.bits[rows],
            self.labels[facets],
            offsets,
            facet_offsets,
            self.rays[rows] if open_ else self.rays,
            self.scales[rows] if open_ else self.scales,
            self.radius[index] if open_ else self.radius,
            self.thin[index] if len(self.thin) else self.thin,
        )

    def corners(self) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """Vertices of all cells, back to back, and where each cell's start; for bounded cells."""
        if self.is_open:
            raise InputError("cells cut from the whole space have corners at infinity; give a box")
        return self.points, self.offsets

    @classmethod
    def join(cls, parts: list[VertexCells]) -> VertexCells:
        """The cells of several batches, one after the other: all cut from bounded cells, or all from the space."""
        if not parts:
            none, start = np.zeros((0, 0)), np.zeros(1, np.int64)
            return cls(none, np.zeros((0, 1), np.uint64), np.zeros(0, np.int32), start, start, none, none, np.zeros(0))
        words = max(p.bits.shape[1] for p in parts)
        return cls(
            stacked([p.points for p in parts]),
            stacked([widened(p.bits, words) for p in parts]),
            stacked([p.labels for p in parts]),
            joined([p.offsets for p in parts]),
            joined([p.facet_offsets for p in parts]),
            stacked([p.rays for p in parts]),
            stacked([p.scales for p in parts]),
            stacked([p.radius for p in parts]),
            stacked([p.thin if len(p.thin) else np.zeros(len(p), np.uint8) for p in parts])
            if any(len(p.thin) for p in parts)
            else np.zeros(0, np.uint8),
        )

    def split(
        self, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int
    ) -> Split[VertexCells]:
        """Cut every cell by the hyperplanes where a unit reaches a break point; see `reluscope.cells.split`.

        Cost of one cut: negative times positive vertices (one `and` and one bit count each), plus copying the parts.
        """
        d = self.dimension
        given = Given(
            self.points,
            self.bits,
            self.labels,
            self.offsets,
            self.facet_offsets,
            self.rays,
            self.scales,
            self.radius,
            self.thin if len(self.thin) else np.zeros(len(self), np.uint8),
        )
        found, top, near = split_cells(given, maps, tolerance, breaks, first_label)
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
            found.thin if found.thin.any() else np.zeros(0, np.uint8),
        )
        return Split(cells, found.parent, found.piece, top, near)

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
            sides = pack(self._symbolic(self.facets(i))[None])[0]
            sides = widened(sides[None], self.bits.shape[1])[0]
            far = far_ends(self.bits[mine], len(far), self.dimension, far, sides)
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
        points: FloatArray = facet_means(
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
        volume: FloatArray = affine_integrals(self.points, self.bits, self.offsets, np.empty((0, 0)), 1)[0]
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


def with_vertices(cells: Geometry) -> VertexCells:
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
