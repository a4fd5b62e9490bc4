"""n-D cells as sets of half-spaces, for 6 dimensions and more, where vertices are too many to carry.

Cells are stored back to back: cell `i` is the part of the starting domain where `A x <= b` holds for the rows
`offsets[i]:offsets[i+1]`; the bounds of the starting box are stored once. With each cell travels one of its
vertices, as the set of the `d` facets that meet there.

This module holds the record, `HPolytopes`, and its coordinates, in which the domain has size 1. A layer splits cells
by linear programs, but few of them: see `reluscope.cells.polytope_split`. What is asked about cells (inner points,
boxes, facets, vertices, volumes) is in `reluscope.cells.polytope_shape`. A cell that the compiled code finds doubtful
is left to whole numbers (`reluscope.cells.polytope_exact`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, integer, real_array
from reluscope.cells.csr import joined, places, stacked
from reluscope.cells.polytope_exact import (
    Cell,
    exact_bounds,
    exact_centre,
    exact_facets,
    exact_units,
    exact_vertex,
    split_exactly,
)
from reluscope.cells.polytope_shape import (
    bounding_boxes,
    centres,
    find_bases,
    find_facets,
)
from reluscope.cells.polytope_split import Index, Labels, split_polytopes
from reluscope.cells.simplex import BEYOND, DOUBTFUL, OPTIMAL
from reluscope.cells.split import Split, for_reading
from reluscope.cells.vertex import VertexCells
from reluscope.errors import InputError
from reluscope.threads import interruptible, look, stop_flag

_KEPT = 24
"""Points remembered per cell while it is being split."""
_STEP_LIMIT = 200
"""Simplex steps per search (plus ten per row) before a cell is called doubtful."""
_ASKED = 1 << 16
"""Slopes of 0 that one split of unbounded cells may ask for; cells that ask for more are cut once more in whole
numbers."""

MOST_VOLUME_DIMENSIONS = 8
"""Volumes are computed up to here."""
_CONVERTED = 64
"""Cells that are turned into cells with vertices together."""


class Frame(NamedTuple):
    """What all cells of a batch share: coordinates `x = origin + scale * y`, and bounds in terms of `y`.

    `lower <= y <= upper` are the sides of the starting box (infinite where there is none), labelled by
    `sides` (lower and upper of each axis in turn). All cells lie between `outer_low` and `outer_up`.
    """

    origin: FloatArray
    scale: FloatArray
    lower: FloatArray
    upper: FloatArray
    outer_low: FloatArray
    outer_up: FloatArray
    sides: Labels


@dataclass(frozen=True, eq=False)
class HPolytopes:
    """Polyhedra `A y <= b` inside the box of `frame`, in CSR layout, in the coordinates of `frame`.

    Rows have norms near 1; `error` is the probable error of `b` (times 16), `labels` names the hyperplanes.
    `basis[i]` are the `d` facets that meet at a vertex of cell i: `2 q` and `2 q + 1` for the lower and upper
    side of axis q, `2 d + r` for row r of the cell, `-1 - q` for an axis along which nothing was met (then
    `y_q = 0`). The first `clean[i]` rows were found irredundant at some time; later cuts may have made them
    redundant.
    """

    frame: Frame
    A: FloatArray
    b: FloatArray
    error: FloatArray
    labels: Labels
    offsets: Index
    basis: Labels
    clean: Labels

    # -- starting cells ------------------------------------------------------------------------------------------

    @classmethod
    def box(cls, lower: npt.ArrayLike, upper: npt.ArrayLike) -> HPolytopes:
        """The box `lower <= x <= upper`; the sides of axis q carry the labels `-1 - 2q` (lower) and `-2 - 2q`
        (upper)."""
        low, high = real_array(lower, "lower", ndim=1), real_array(upper, "upper", ndim=1)
        if len(low) != len(high) or not len(low):
            raise InputError(f"lower and upper must have one entry per axis, got {len(low)} and {len(high)}")
        if not (low < high).all():
            axis = int(np.argmin(low < high))
            raise InputError(
                f"lower must be below upper on every axis, got {low[axis]} and {high[axis]} on axis {axis}; "
                "a box without inner points has no cells"
            )
        return cls._domain(_frame(low, high, low, high, _side_labels(len(low))))

    @classmethod
    def space(cls, dimension: int) -> HPolytopes:
        """The whole space."""
        d = integer(dimension, "dimension", low=1)
        none = np.full(d, np.inf)
        return cls._domain(_frame(-none, none, -none, none, _side_labels(d)))

    @classmethod
    def _domain(cls, frame: Frame) -> HPolytopes:
        d = len(frame.origin)
        axes = np.arange(d)
        basis = np.where(np.isfinite(frame.lower), 2 * axes, -1 - axes)
        none = np.zeros(0)
        return cls(
            frame,
            np.zeros((0, d)),
            none,
            none,
            np.zeros(0, np.int32),
            np.zeros(2, np.int64),
            basis.astype(np.int32)[None],
            np.zeros(1, np.int32),
        )

    # -- batches -------------------------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return int(self.A.shape[1])

    @property
    def is_open(self) -> bool:
        """Whether cells of this batch may be unbounded."""
        return bool(np.isinf([self.frame.outer_low, self.frame.outer_up]).any())

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, start: int, stop: int) -> HPolytopes:
        """Cells `start:stop`, as views."""
        offsets = self.offsets[start : stop + 1] - self.offsets[start]
        return self._chosen(slice(self.offsets[start], self.offsets[stop]), offsets, slice(start, stop))

    def take(self, index: npt.NDArray[np.integer]) -> HPolytopes:
        """The cells at `index`, in that order."""
        return self._chosen(*places(self.offsets, index), index)

    def _chosen(self, rows: slice | Index, offsets: Index, cells: slice | npt.NDArray[np.integer]) -> HPolytopes:
        parts = self.A[rows], self.b[rows], self.error[rows], self.labels[rows]
        return HPolytopes(self.frame, *parts, offsets, self.basis[cells], self.clean[cells])

    def corners(self) -> tuple[FloatArray, Index]:
        """Vertices of all cells, back to back, and where each cell's start; for bounded cells."""
        each = [self.vertices(i) for i in range(len(self))]
        offsets = np.concatenate([[0], np.cumsum([len(v) for v in each])]).astype(np.int64)
        return np.concatenate([np.zeros((0, self.dimension)), *each]), offsets

    @classmethod
    def join(cls, parts: list[HPolytopes]) -> HPolytopes:
        """The cells of several batches, one after the other. Batches of different domains get all bounds as
        rows."""
        if not parts:
            raise InputError("parts must hold at least one batch of cells, to know the dimension")
        if not all(p.frame is parts[0].frame or _same_frame(p.frame, parts[0].frame) for p in parts[1:]):
            parts = [p._with_all_rows() for p in parts]
        return cls(
            parts[0].frame,
            stacked([p.A for p in parts]),
            stacked([p.b for p in parts]),
            stacked([p.error for p in parts]),
            stacked([p.labels for p in parts]),
            joined([p.offsets for p in parts]),
            stacked([p.basis for p in parts]),
            stacked([p.clean for p in parts]),
        )

    def relabelled(self, rename: Callable[[Labels], Labels]) -> HPolytopes:
        """The same cells with other facet labels."""
        frame = self.frame._replace(sides=rename(self.frame.sides))
        return replace(self, labels=rename(self.labels), frame=frame)

    # -- splitting -----------------------------------------------------------------------------------------------

    def split(self, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int) -> Split[HPolytopes]:
        """Cut every cell by the hyperplanes where a unit reaches a break point; see `reluscope.cells.split`.

        Here `top` is a bound: the largest `|h_j|` on the box around the domain (on the unit box around the
        origin, where the domain is unbounded).
        """
        cells = self
        if len(self) == 1 and len(self.b) and (self.labels < 0).all():
            cells = self._fitted()  # a domain cut out of a larger box: coordinates that fit it
        asked = np.zeros((_ASKED if cells.is_open else 0, cells.dimension + 1), np.int32)
        *found, top, near, doubtful = interruptible(
            split_polytopes,
            cells.A,
            cells.b,
            cells.error,
            cells.labels,
            cells.offsets,
            cells.basis,
            cells.clean,
            cells.frame,
            maps,
            tolerance,
            for_reading(breaks),
            first_label,
            _KEPT,
            _STEP_LIMIT,
            stop_flag(),
            asked,
        )
        parent, piece = found[-2:]
        children = HPolytopes(cells.frame, *found[:-2])
        if doubtful.any():
            clear = np.flatnonzero(~doubtful)
            parts, parents, pieces = [children.take(clear)], [parent[clear]], [piece[clear]]
            for i in np.flatnonzero(doubtful):
                c = int(parent[i])
                part, piece_of_part, touched = children._split_exactly(
                    int(i), maps[c], tolerance[c], breaks, first_label
                )
                near[c] |= 2 * (touched or self.is_open)
                parts.append(part)
                parents.append(np.full(len(part), c))
                pieces.append(piece_of_part)
            children, parent, piece = HPolytopes.join(parts), np.concatenate(parents), np.concatenate(pieces)
        return Split(children, parent, piece, top, near, asked[1 : 1 + asked[0, 0]].copy() if len(asked) else None)

    def _split_exactly(
        self, i: int, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int
    ) -> tuple[HPolytopes, npt.NDArray[np.uint8], bool]:
        """The children of cell i and their pieces, in whole numbers, and whether a unit only just touches one."""
        f, one = self.frame, self.part(i, i + 1)
        units = exact_units(maps, f.origin, f.scale)
        children, pieces, near = [], [], False
        for part in split_exactly(self._cell(i), units, tolerance, breaks, first_label):
            children.append(
                replace(
                    one,
                    A=np.concatenate([one.A, part.A]),
                    b=np.concatenate([one.b, part.b]),
                    error=np.concatenate([one.error, part.error]),
                    labels=np.concatenate([one.labels, part.labels]),
                    offsets=np.array([0, len(one.b) + len(part.b)]),
                    basis=part.basis[None],
                )
            )
            pieces.append(part.piece)
            near |= part.near
        cut = HPolytopes.join(children) if children else self.part(0, 0)
        return cut, np.array(pieces, np.uint8).reshape(-1, maps.shape[1]), near

    def _cell(self, i: int) -> Cell:
        """Cell i for the functions in whole numbers."""
        f, rows = self.frame, slice(self.offsets[i], self.offsets[i + 1])
        return Cell(self.A[rows], self.b[rows], self.error[rows], self.basis[i].tolist(), f.lower, f.upper)

    def _fitted(self) -> HPolytopes:
        """One cell, in coordinates in which its bounding box has size 1."""
        low, high = self.bounds()
        f = self.frame
        sides = f.origin + f.scale * f.lower, f.origin + f.scale * f.upper
        return self._reframed(_frame(*sides, low[0], high[0], f.sides))._based()

    def _reframed(self, frame: Frame) -> HPolytopes:
        """The same rows in other coordinates; the vertices are not carried over."""
        old = self.frame
        A = self.A * (frame.scale / old.scale)
        norm = np.linalg.norm(A, axis=1)
        b = self.b + self.A @ ((old.origin - frame.origin) / old.scale)
        A, b, error = A / norm[:, None], b / norm, self.error / norm
        return replace(self, frame=frame, A=A, b=b, error=error + 2 * EPS * (1 + np.abs(b)))

    def _based(self) -> HPolytopes:
        """With a vertex for each cell, found anew; cells that turn out to be empty are left out."""
        f = self.frame
        basis, status = find_bases(self.A, self.b, self.error, self.offsets, f.lower, f.upper)
        if (status == DOUBTFUL).any():
            for i in np.flatnonzero(status == DOUBTFUL):
                found = exact_vertex(self._cell(int(i)))
                status[i] = BEYOND if found is None else OPTIMAL
                basis[i] = 0 if found is None else found
        kept = replace(self, basis=basis)
        if (status == OPTIMAL).all():
            return kept
        return kept.take(np.flatnonzero(status == OPTIMAL))

    def _with_all_rows(self) -> HPolytopes:
        """The sides of the box as rows of every cell, in the coordinates of `x`."""
        d, n = self.dimension, len(self)
        rows = [self._rows(i) for i in range(n)]
        free = HPolytopes.space(d).frame
        counts = np.array([len(r[1]) for r in rows], dtype=np.int64)
        return replace(
            self,
            frame=free,
            A=np.concatenate([np.zeros((0, d)), *(r[0] for r in rows)]),
            b=np.concatenate([np.zeros(0), *(r[1] for r in rows)]),
            error=np.concatenate([np.zeros(0), *(r[3] for r in rows)]),
            labels=np.concatenate([np.zeros(0, np.int32), *(r[2] for r in rows)]).astype(np.int32),
            offsets=np.concatenate([[0], np.cumsum(counts)]),
            clean=np.zeros(n, np.int32),
        )._based()

    # -- what a cell is ------------------------------------------------------------------------------------------

    def rows(self, i: int) -> tuple[FloatArray, FloatArray, Labels]:
        """`A x <= b` of cell i with unit rows, and the labels: the sides of the domain, then the cuts.
        Redundant rows stay."""
        return self._rows(i)[:3]

    def _rows(self, i: int) -> tuple[FloatArray, FloatArray, Labels, FloatArray]:
        f, mine = self.frame, slice(self.offsets[i], self.offsets[i + 1])
        unit = np.eye(self.dimension)
        low, high = np.isfinite(f.lower), np.isfinite(f.upper)
        A = np.concatenate([-unit[low], unit[high], self.A[mine] / f.scale])
        b = np.concatenate(
            [
                -(f.origin + f.scale * f.lower)[low],
                (f.origin + f.scale * f.upper)[high],
                self.b[mine] + (self.A[mine] / f.scale) @ f.origin,
            ]
        )
        labels = np.concatenate([f.sides[0::2][low], f.sides[1::2][high], self.labels[mine]])
        norm = np.linalg.norm(A, axis=1)
        error = np.concatenate([np.zeros(low.sum() + high.sum()), self.error[mine]]) / norm
        return A / norm[:, None], b / norm, labels, error + 2 * EPS * np.abs(b / norm)

    def facets(self, i: int) -> tuple[FloatArray, FloatArray, Labels]:
        """The irredundant rows of cell i: `A x <= b` with unit rows, and the labels."""
        kept, _ = self.part(i, i + 1)._facets
        A, b, labels = self.rows(i)
        return A[kept], b[kept], labels[kept]

    def interior(self) -> FloatArray:
        """A point strictly inside each cell, shape (n, dimension): the centre of a largest ball in it.

        Where balls of any size fit, that of a ball about as large as the cell's vertex is far out. One small
        linear program per cell, done once.
        """
        return self._middle[0]

    def inradius(self) -> FloatArray:
        """Radius of the largest ball inside each cell, shape (n,); `inf` where balls of any size fit."""
        if np.isfinite(self.frame.outer_low).all() and np.isfinite(self.frame.outer_up).all():
            return self._middle[1]
        return self._centres(np.inf)[1]

    @cached_property
    def _middle(self) -> tuple[FloatArray, FloatArray]:
        return self._centres(1.0)

    def _centres(self, cap: float) -> tuple[FloatArray, FloatArray]:
        f = self.frame
        y, radius = centres(self.A, self.b, self.error, self.offsets, self.basis, f, cap)
        centre = f.origin + f.scale * y
        for i in np.flatnonzero(~(radius > 0)):
            y0 = f.origin + f.scale * y[i]
            far = max(1.0, float(np.abs(y0[np.isfinite(y0)]).max(initial=0.0)))
            inside, radius[i] = exact_centre(self._cell(int(i)), f.scale, cap * far)
            centre[i] = f.origin + f.scale * inside
        return centre, radius

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """The smallest box around each cell: lower and upper bounds, (n, dimension) each, infinite where
        unbounded."""
        return self._boxes()[:2]

    def reach(self) -> FloatArray:
        """Largest absolute value of each coordinate on each cell, (n, dimension).

        Where that is infinite: the largest at the vertices met on the way, but at least 1.
        """
        low, high, met = self._boxes()
        ends = np.maximum(np.abs(low), np.abs(high))
        return np.where(np.isfinite(ends), ends, met)

    def _boxes(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        f = self.frame
        if not len(self.b):
            low, high = (np.tile(f.origin + f.scale * side, (len(self), 1)) for side in (f.lower, f.upper))
            return low, high, np.ones(low.shape)
        low, high, met, doubtful = bounding_boxes(self.A, self.b, self.error, self.offsets, self.basis, f)
        low, high = f.origin + f.scale * low, f.origin + f.scale * high
        for i in np.flatnonzero(doubtful):
            ends = exact_bounds(self._cell(int(i)))
            low[i], high[i] = (f.origin + f.scale * end for end in ends)
        return low, high, np.maximum(1.0, np.abs(f.origin) + f.scale * met)

    @cached_property
    def _facets(self) -> tuple[npt.NDArray[np.bool_], FloatArray]:
        """Which rows (in the order of `rows`, cells back to back) are facets, and a point inside each of
        those."""
        f = self.frame
        inside = (self.interior() - f.origin) / f.scale
        kept, points, doubtful = find_facets(
            self.A, self.b, self.error, self.offsets, self.basis, f, np.ascontiguousarray(inside)
        )
        for i in np.flatnonzero(doubtful):
            self._careful_facets(int(i), kept, points)
        return kept, f.origin + f.scale * points[kept]

    def _careful_facets(self, i: int, kept: npt.NDArray[np.bool_], points: FloatArray) -> None:
        """The same for one cell, in whole numbers, into the arrays for all."""
        cell, f = self._cell(i), self.frame
        total = len(cell.b) + int(np.isfinite(f.lower).sum() + np.isfinite(f.upper).sum())
        start = int(self.offsets[i]) + i * (total - len(cell.b))
        kept[start : start + total] = False
        rows, middle = exact_facets(cell, (self.interior()[i] - f.origin) / f.scale)
        kept[start + rows] = True
        points[start + rows] = middle

    def facet_labels(self) -> tuple[Labels, Index]:
        """Labels of the facets of all cells, none redundant, and where each cell's start. One small LP per
        row."""
        kept, _ = self._facets
        sides = np.isfinite(np.stack([self.frame.lower, self.frame.upper]))
        fixed = np.concatenate([self.frame.sides[0::2][sides[0]], self.frame.sides[1::2][sides[1]]])
        counts = np.diff(self.offsets) + len(fixed)
        ends = np.cumsum(counts)
        labels = np.empty(int(ends[-1]) if len(ends) else 0, np.int32)
        position = np.arange(len(labels)) - np.repeat(ends - counts, counts)
        labels[position < len(fixed)] = np.tile(fixed, len(self))
        labels[position >= len(fixed)] = self.labels
        before = np.concatenate([[0], np.cumsum(kept)])
        return labels[kept], before[np.concatenate([[0], ends])].astype(np.int64)

    def facet_points(self) -> FloatArray:
        """A point inside each facet, in the order of `facet_labels`."""
        return self._facets[1]

    def vertices(self, i: int) -> FloatArray:
        """Finite vertices of cell i, shape (k, dimension); there may be very many."""
        one = self.part(i, i + 1)
        low, high = one.bounds()
        if np.isfinite(low).all() and np.isfinite(high).all():
            return one._with_vertices(low, high).points
        return self._unbounded(i).vertices(0)

    def rays_of(self, i: int) -> FloatArray:
        """Unit directions of the unbounded edges of cell i, shape (k, dimension)."""
        low, high = self.part(i, i + 1).bounds()
        if np.isfinite(low).all() and np.isfinite(high).all():
            return np.zeros((0, self.dimension))
        return self._unbounded(i).rays_of(0)

    def volumes(self) -> FloatArray:
        """Volume of each cell (`inf` when unbounded): cells with vertices, cut into simplices.

        Up to `MOST_VOLUME_DIMENSIONS`: a cube alone has `d!` simplices.
        """
        if self.dimension > MOST_VOLUME_DIMENSIONS:
            raise InputError(
                f"volumes are computed for up to {MOST_VOLUME_DIMENSIONS} inputs, got {self.dimension}; "
                "regions.masses(rs.Uniform(lower, upper)) gives their shares of a box, with intervals"
            )
        low, high = self.bounds()
        out = np.full(len(self), np.inf)
        bounded = np.flatnonzero(np.isfinite(low).all(axis=1) & np.isfinite(high).all(axis=1))
        for start in range(0, len(bounded), _CONVERTED):
            look()
            here = bounded[start : start + _CONVERTED]
            out[here] = self.take(here)._with_vertices(low[here], high[here]).volumes()
        return out

    def _with_vertices(self, low: FloatArray, high: FloatArray) -> VertexCells:
        """These bounded cells with vertices: a box around each, cut by all of its rows, one row of every cell at a
        time."""
        n, d, f = len(self), self.dimension, self.frame
        # No side touches the cell, but for those of the domain: a vertex that is cut off by rounding would be two.
        wider = 0.25 * (high - low) + 64 * EPS * np.maximum(np.abs(low), np.abs(high))
        low = np.maximum(low - wider, f.origin + f.scale * f.lower)
        high = np.minimum(high + wider, f.origin + f.scale * f.upper)
        whole = VertexCells.box(np.zeros(d), np.ones(d)).take(np.zeros(n, np.int64))
        corner = whole.points == 1.0
        cells = replace(whole, points=np.where(corner, np.repeat(high, 1 << d, axis=0), np.repeat(low, 1 << d, axis=0)))
        counts = np.diff(self.offsets)
        bound = np.zeros((1, 1))
        for k in range(int(counts.max(initial=0))):
            has = counts > k
            row = np.where(has, self.offsets[:-1] + k, 0)
            normal = np.where(has[:, None], self.A[row] / f.scale, 0.0)
            level = np.where(has, self.b[row] + normal @ f.origin, 1.0)  # a cell with fewer rows: 0 <= 1
            maps = np.concatenate([normal, -level[:, None]], axis=1)[:, :, None]
            found = cells.split(maps, np.where(has, self.error[row], 0.0)[:, None], bound, k)
            # The part inside; where rounding leaves none, the cell as it was.
            inside = found.piece[:, 0] == 0
            inside[~np.isin(found.parent, found.parent[inside])] = True
            order = np.flatnonzero(inside)
            cells = found.cells.take(order[np.argsort(found.parent[order], kind="stable")])
        return cells

    def _unbounded(self, i: int) -> VertexCells:
        return VertexCells.from_polytope(*self.facets(i)[:2])


def _side_labels(d: int) -> Labels:
    return (-1 - np.arange(2 * d)).astype(np.int32)


def _power_of_two(size: float) -> float:
    return float(2.0 ** np.round(np.log2(size))) if 0 < size < np.inf else 1.0


def _frame(lower: FloatArray, upper: FloatArray, low: FloatArray, high: FloatArray, sides: Labels) -> Frame:
    """Coordinates that fit the box `low, high`: its half-widths near 1, its middle near 0.

    Scales are powers of two and the origin stays where it is when the box holds it: then nothing is rounded.
    """
    bounded = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        middle = np.where(bounded, low + 0.5 * (high - low), 0.0)
        half = np.where(bounded, 0.5 * (high - low), 1.0)
    origin = np.where((low <= 0) & (high >= 0), 0.0, middle)
    one_sided = np.isfinite(low) ^ np.isfinite(high)
    origin[one_sided] = np.where(np.isfinite(low), low, high)[one_sided]
    half = np.where(bounded & (origin == 0), np.maximum(np.abs(low), np.abs(high)), half)
    scale = np.array([_power_of_two(float(h)) for h in half])
    return Frame(
        origin,
        scale,
        (lower - origin) / scale,
        (upper - origin) / scale,
        (low - origin) / scale,
        (high - origin) / scale,
        sides,
    )


def _same_frame(a: Frame, b: Frame) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in Frame._fields)
