"""n-D cells as sets of half-spaces, for about 7 dimensions and more, where vertices are too many to carry.

Cells are stored back to back: cell `i` is the part of the starting domain where `A x <= b` holds for the rows
`offsets[i]:offsets[i+1]`; the bounds of the starting box are stored once. With each cell travels one of its
vertices, as the set of the `d` facets that meet there.

A layer splits a cell by linear programs, but few of them. All units are rows of one simplex dictionary (see
`reluscope.cells.simplex`), so every vertex that any search visits shows the values of all units there; a unit
with values on both sides cuts the cell, and needs no search. A unit with values on one side only is pushed
towards the other one, until it gets there or is at its optimum: then it is settled for this cell and all
parts of it. When all remaining units are known to cut, one of them does: the dictionary walks to a vertex on
the hyperplane, and that vertex and dictionary serve both parts. On random nets of 8 to 10 inputs this takes
about one search, of two steps, per region.

Computation is in coordinates in which the domain has size 1. Where an optimum is so close to a break point
that rounding decides, it is computed afresh in doubled precision, and compared with the tolerance of the unit
plus what the tolerances of the facets at the optimal vertex amount to. A cell that the compiled code finds
doubtful is split with HiGHS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, integer, real_array
from reluscope.cells.lp import Outcome, Program, interior_point, irredundant
from reluscope.cells.simplex import (
    BEYOND,
    DOUBTFUL,
    DUAL,
    GONE,
    OPTIMAL,
    SURE,
    Dictionary,
    drop_row,
    first_point,
    gets_beyond,
    new_dictionary,
    note,
    rebuild,
    search,
    start_at_corner,
    walk_to,
)
from reluscope.cells.split import Split
from reluscope.errors import InputError

Labels = npt.NDArray[np.int32]
Index = npt.NDArray[np.int64]

_KEPT = 24
"""Points remembered per cell while it is being split."""
_STEP_LIMIT = 200
"""Simplex steps per search (plus ten per row) before a cell is called doubtful."""


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

    Rows have unit norm; `error` is the probable error of `b` (times 16), `labels` names the hyperplanes.
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
    def from_rows(cls, A: npt.ArrayLike, b: npt.ArrayLike) -> HPolytopes:
        """The polyhedron `A x <= b`, bounded or not; row i is labelled `-1 - i`.

        No cells when it has no inner points. Cost: one linear program per row and two per axis.
        """
        A, b = real_array(A, "A", ndim=2), real_array(b, "b", ndim=1)
        if len(A) != len(b) or not A.shape[1]:
            raise InputError(f"A and b must have one row per inequality, got shapes {A.shape} and {b.shape}")
        norm = np.linalg.norm(A, axis=1)
        cell = cls.space(A.shape[1])
        if (b[norm == 0] < 0).any():
            return cell.part(0, 0)
        keep = np.flatnonzero(norm > 0)
        unit, bound = A[keep] / norm[keep, None], b[keep] / norm[keep]
        size = _power_of_two(np.abs(bound).max(initial=0.0))
        frame = cell.frame._replace(scale=np.full(A.shape[1], size))
        cell = replace(
            cell,
            frame=frame,
            A=unit,
            b=bound / size,
            error=4 * EPS * (1 + np.abs(bound) / size),
            labels=(-1 - keep).astype(np.int32),
            offsets=np.array([0, len(keep)]),
        )._based()
        return cell if len(cell) == 0 or cell._centres(np.inf)[1][0] > 16 * EPS * size else cell.part(0, 0)

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

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, start: int, stop: int) -> HPolytopes:
        """Cells `start:stop`, as views."""
        rows = slice(self.offsets[start], self.offsets[stop])
        return HPolytopes(
            self.frame,
            self.A[rows],
            self.b[rows],
            self.error[rows],
            self.labels[rows],
            self.offsets[start : stop + 1] - self.offsets[start],
            self.basis[start:stop],
            self.clean[start:stop],
        )

    @classmethod
    def join(cls, parts: list[HPolytopes]) -> HPolytopes:
        """The cells of several batches, one after the other. Batches of different domains get all bounds as
        rows."""
        if not parts:
            raise InputError("parts must hold at least one batch of cells, to know the dimension")
        if not all(_same_frame(p.frame, parts[0].frame) for p in parts[1:]):
            parts = [p._with_all_rows() for p in parts]
        starts = np.cumsum([0, *(p.offsets[-1] for p in parts)])
        offsets = [p.offsets[:-1] + s for p, s in zip(parts, starts[:-1], strict=True)]
        return cls(
            parts[0].frame,
            np.concatenate([p.A for p in parts]),
            np.concatenate([p.b for p in parts]),
            np.concatenate([p.error for p in parts]),
            np.concatenate([p.labels for p in parts]),
            np.concatenate([*offsets, starts[-1:]]).astype(np.int64),
            np.concatenate([p.basis for p in parts]),
            np.concatenate([p.clean for p in parts]),
        )

    def relabelled(self, rename: Callable[[Labels], Labels]) -> HPolytopes:
        """The same cells with other facet labels."""
        frame = self.frame._replace(sides=rename(self.frame.sides))
        return replace(self, labels=rename(self.labels), frame=frame)

    # -- splitting -----------------------------------------------------------------------------------------------

    def split(self, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int) -> Split:
        """Cut every cell by the hyperplanes where a unit reaches a break point; see `reluscope.cells.split`.

        Here `top` is a bound: the largest `|h_j|` on the box around the domain (on the unit box around the
        origin, where the domain is unbounded).
        """
        return self._split(maps, tolerance, breaks, first_label, _STEP_LIMIT)

    def _split(
        self, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int, step_limit: int
    ) -> Split:
        cells = self
        if len(self) == 1 and len(self.b) and (self.labels < 0).all():
            cells = self._fitted()  # a domain cut out of a larger box: coordinates that fit it
        *found, top, doubtful = _split_polytopes(
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
            breaks,
            first_label,
            _KEPT,
            step_limit,
        )
        parent, piece = found[-2:]
        children = HPolytopes(cells.frame, *found[:-2])
        if doubtful.any():
            careful = [
                _split_carefully(cells.part(int(c), int(c) + 1), maps[c], tolerance[c], breaks, first_label)
                for c in np.flatnonzero(doubtful)
            ]
            more = [np.full(len(p), c) for c, (_, p) in zip(np.flatnonzero(doubtful), careful, strict=True)]
            children = HPolytopes.join([children, *(x for x, _ in careful)])
            parent = np.concatenate([parent, *more])
            piece = np.concatenate([piece, *(p for _, p in careful)])
        return Split(children, parent, piece, top)

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
        basis, status = _find_bases(self.A, self.b, self.error, self.offsets, f.lower, f.upper)
        if (status == DOUBTFUL).any():
            for i in np.flatnonzero(status == DOUBTFUL):
                found = _vertex_basis(self.part(int(i), int(i) + 1))
                status[i] = BEYOND if found is None else OPTIMAL
                basis[i] = 0 if found is None else found
        kept = replace(self, basis=basis)
        if (status == OPTIMAL).all():
            return kept
        good = [kept.part(int(i), int(i) + 1) for i in np.flatnonzero(status == OPTIMAL)]
        return HPolytopes.join(good) if good else kept.part(0, 0)

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
        y, radius = _centres(self.A, self.b, self.error, self.offsets, self.basis, f, cap)
        centre = f.origin + f.scale * y
        for i in np.flatnonzero(np.isnan(radius)):
            centre[i], radius[i] = interior_point(*self.rows(int(i))[:2])
        return centre, radius

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """The smallest box around each cell: lower and upper ends, (n, dimension) each, infinite where
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
        low, high, met, doubtful = _bounding_boxes(self.A, self.b, self.error, self.offsets, self.basis, f)
        low, high = f.origin + f.scale * low, f.origin + f.scale * high
        for i in np.flatnonzero(doubtful):
            low[i], high[i] = _careful_bounds(*self.rows(int(i))[:2])
        return low, high, np.maximum(1.0, np.abs(f.origin) + f.scale * met)

    @cached_property
    def _facets(self) -> tuple[npt.NDArray[np.bool_], FloatArray]:
        """Which rows (in the order of `rows`, cells back to back) are facets, and a point inside each of
        those."""
        f = self.frame
        inside = (self.interior() - f.origin) / f.scale
        kept, points, doubtful = _find_facets(
            self.A, self.b, self.error, self.offsets, self.basis, f, np.ascontiguousarray(inside)
        )
        for i in np.flatnonzero(doubtful):
            self._careful_facets(int(i), kept, points)
        return kept, f.origin + f.scale * points[kept]

    def _careful_facets(self, i: int, kept: npt.NDArray[np.bool_], points: FloatArray) -> None:
        """The same for one cell, by HiGHS, into the arrays for all."""
        f, (A, b, _) = self.frame, self.rows(i)
        fixed = len(b) - int(self.offsets[i + 1] - self.offsets[i])
        start = int(self.offsets[i]) + i * fixed
        kept[start : start + len(b)] = False
        for r in irredundant(A, b):
            # The middle of a facet is the middle of a slice of no thickness.
            others = np.arange(len(b)) != r
            flat = np.linalg.svd(A[r : r + 1])[2]
            base = A[r] * b[r]
            point, _ = interior_point(A[others] @ flat[1:].T, b[others] - A[others] @ base)
            kept[start + r] = True
            points[start + r] = (base + flat[1:].T @ point - f.origin) / f.scale

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
        """Finite vertices of cell i, shape (k, dimension), by Qhull; there may be very many."""
        return _vertices(*self.facets(i)[:2], self.part(i, i + 1).interior()[0])

    def rays_of(self, i: int) -> FloatArray:
        """Unit directions of the unbounded edges of cell i, shape (k, dimension)."""
        low, high = self.part(i, i + 1).bounds()
        if np.isfinite(low).all() and np.isfinite(high).all():
            return np.zeros((0, self.dimension))
        from reluscope.cells.vertex import VertexCells

        return VertexCells.from_polytope(*self.facets(i)[:2]).rays_of(0)

    def volumes(self) -> FloatArray:
        """Volume of each cell (`inf` when unbounded), from its vertices: slow, and out of reach beyond about
        8 dimensions."""
        low, high = self.bounds()
        size = (high - low).max(axis=1)
        return np.array([_volume(self.vertices(i)) if size[i] < np.inf else np.inf for i in range(len(self))])


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


# -- compiled ------------------------------------------------------------------------------------------------------

_UNDECIDED, _BELOW, _ABOVE = 0, 1, 2
_UNKNOWN = -(1 << 20)


class _Units(NamedTuple):
    """The units of a layer on the cell at hand, in its coordinates and with unit norm, after the cell's rows
    in `G`.

    An *item* is a break point that a unit may pass inside the cell: its unit, its number, its level.
    """

    G: FloatArray
    error: FloatArray
    unit: Index
    step: Index
    level: FloatArray
    fixed: Index


class _Node(NamedTuple):
    """A part of the cell at hand: its dictionary, points seen in it, the state of each item, and the cuts
    that made it.

    `tally` holds: rows of the dictionary, points seen, cuts, simplex steps since the dictionary was last
    computed anew.
    """

    at: Dictionary
    seen: FloatArray
    state: Index
    cut_item: Index
    cut_above: Index
    tally: Index


@nb.njit(cache=True, error_model="numpy")
def _node(stack, f):  # type: ignore[no-untyped-def]
    """Level `f` of the stack, as views."""
    at = Dictionary(stack.at.D[f], stack.at.C[f], stack.at.basic[f], stack.at.nonbasic[f], stack.at.where[f])
    return _Node(at, stack.seen[f], stack.state[f], stack.cut_item[f], stack.cut_above[f], stack.tally[f])


@nb.njit(cache=True, error_model="numpy")
def _grow_rows(a, need):  # type: ignore[no-untyped-def]
    out = np.empty((max(need, 2 * len(a)), a.shape[1]), a.dtype)
    for i in range(len(a)):
        for q in range(a.shape[1]):
            out[i, q] = a[i, q]
    return out


@nb.njit(cache=True, error_model="numpy")
def _grow(a, need):  # type: ignore[no-untyped-def]
    out = np.empty(max(need, 2 * len(a)), a.dtype)
    for i in range(len(a)):
        out[i] = a[i]
    return out


@nb.njit(cache=True, error_model="numpy")
def _copy(target, source, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        target[i] = source[i]


@nb.njit(cache=True, error_model="numpy")
def _load_rows(at, G, error, A, b, row_error, start, R, basis, lower, upper):  # type: ignore[no-untyped-def]
    """Rows of one cell into `G`, and its vertex into the dictionary: what `rebuild` needs to know."""
    D, C, basic, nonbasic, where = at
    d = len(lower)
    for i in range(R):
        for q in range(d):
            G[i, q] = A[start + i, q]
        G[i, d] = 0.0
        error[i] = row_error[start + i]
        where[d + i] = 0
    for q in range(d):
        where[q] = 0
    for j in range(d):
        code = basis[j]
        if code >= 2 * d:
            v = code - d
            value, low, up = b[start + v - d], -np.inf, b[start + v - d]
        else:
            v = code >> 1 if code >= 0 else -1 - code
            value, low, up = 0.0, lower[v], upper[v]
            if code >= 0:
                value = up if code & 1 else low
        nonbasic[j], where[v] = v, -1 - j
        C[0, j], C[1, j], C[2, j] = value, low, up
    n = 0
    for v in range(d + R):
        if where[v] >= 0:
            where[v], basic[n] = n, v
            if v < d:
                D[d + 1, n], D[d + 2, n] = lower[v], upper[v]
            else:
                D[d + 1, n], D[d + 2, n] = -np.inf, b[start + v - d]
            n += 1
    return n


@nb.njit(cache=True, error_model="numpy")
def _vertex_code(at, j, d):  # type: ignore[no-untyped-def]
    """The code of the bound at which column `j`, a coordinate or a row of the cell, sits."""
    v = at.nonbasic[j]
    if v >= d:
        return v + d
    if at.C[0, j] == at.C[1, j]:
        return 2 * v
    if at.C[0, j] == at.C[2, j]:
        return 2 * v + 1
    return -1 - v


@nb.njit(cache=True, error_model="numpy")
def _is_feasible(at, n):  # type: ignore[no-untyped-def]
    D, d = at.D, at.C.shape[1]
    worst = 0.0
    for i in range(n):
        worst = max(worst, D[d + 1, i] - D[d, i], D[d, i] - D[d + 2, i])
    return worst <= SURE


@nb.njit(cache=True, error_model="numpy")
def _load_units(units, at, n, R, maps, tolerance, breaks, frame, top):  # type: ignore[no-untyped-def]
    """The layer's units as rows without bounds; returns the numbers of rows and of items.

    Units that the box around all cells settles get no row. `top` receives the largest `|h|` on that box.
    """
    G, D, where, basic = units.G, at.D, at.where, at.basic
    d, m = len(frame.origin), maps.shape[1]
    items = 0
    for k in range(m):
        row = G[R + k]
        total, largest = maps[d, k], 0.0
        for q in range(d):
            total += maps[q, k] * frame.origin[q]
            row[q] = maps[q, k] * frame.scale[q]
            largest = max(largest, abs(row[q]))
        norm = 0.0
        if largest > 0.0:
            for q in range(d):
                norm += (row[q] / largest) ** 2
            norm = largest * np.sqrt(norm)
        low, high = total, total
        for q in range(d):
            if row[q] > 0.0:
                low += row[q] * frame.outer_low[q]
                high += row[q] * frame.outer_up[q]
            elif row[q] < 0.0:
                low += row[q] * frame.outer_up[q]
                high += row[q] * frame.outer_low[q]
        top[k] = max(abs(low), abs(high))
        if not np.isfinite(top[k]):
            top[k] = abs(total) + norm
        tol = tolerance[k]
        constant = norm <= tol or norm == 0.0
        if constant:
            low, high = total, total
        units.fixed[k] = 0
        before = items
        for s in range(breaks.shape[1]):
            t = breaks[k, s]
            if high <= t + tol:
                break
            if low >= t - tol or constant:
                units.fixed[k] += 1
            else:
                units.unit[items], units.step[items], units.level[items] = k, s, t / norm
                items += 1
        if items == before:
            where[d + R + k] = GONE
            continue
        for q in range(d):
            row[q] /= norm
        row[d] = total / norm
        units.error[R + k] = tol / norm
        where[d + R + k], basic[n] = n, d + R + k
        D[d + 1, n], D[d + 2, n] = -np.inf, np.inf
        n += 1
    return n, items


@nb.njit(cache=True, error_model="numpy")
def _drop_redundant(at, n, units, R, functions, b, start, dropped, limit, column):  # type: ignore[no-untyped-def]
    """Find rows of the cell that follow from the others; returns the number of rows left in the
    dictionary."""
    d = at.C.shape[1]
    none, zero = np.empty((0, 0)), np.int64(0)
    for i in range(R):
        v, t = d + i, b[start + i]
        k = at.where[v]
        if k >= 0:
            at.D[d + 2, k] = np.inf
        else:
            at.C[2, -1 - k] = np.inf
        status, _, _ = gets_beyond(
            at, n, units.G, v, 1.0, t, units.error[i], units.error, limit, column, none, zero, zero
        )
        k = at.where[v]
        if status == OPTIMAL and k >= 0:
            dropped[i] = 1
            n = drop_row(at, n, k)
            continue
        # A facet, or not worth the trouble: back to where its bound holds.
        if (at.D[d, k] if k >= 0 else at.C[0, -1 - k]) > t:
            took, _ = walk_to(at, n, v, t, limit, column)
            if took < 0:
                return -1
            k = at.where[v]
        if k >= 0:
            at.D[d + 2, k] = t
        else:
            at.C[2, -1 - k] = t
    return n


@nb.njit(cache=True, error_model="numpy")
def _settle(node, units, R, items, low, high, limit, column):  # type: ignore[no-untyped-def]
    """Decide which items cut the node. Returns one that does, -1 if none does, -2 in doubt.

    On return the state of every item is known to be below, above, or (undecided) to cut.
    """
    at, seen, state, tally = node.at, node.seen, node.state, node.tally
    D, C, where = at.D, at.C, at.where
    d, m, kept = C.shape[1], seen.shape[1], len(seen)
    first = d + R
    for k in range(m):
        low[k], high[k] = np.inf, -np.inf
    for w in range(min(tally[1], kept)):
        for k in range(m):
            low[k], high[k] = min(low[k], seen[w, k]), max(high[k], seen[w, k])
    chosen = -1
    for a in range(items):
        if state[a] != _UNDECIDED:
            continue
        k, t = units.unit[a], units.level[a]
        tol = units.error[R + k]
        before = tally[1]
        verdict = _UNDECIDED
        for side in range(2):
            sign = 1.0 - 2.0 * side
            if verdict != _UNDECIDED or (high[k] > t + tol + SURE if side == 0 else low[k] < t - tol - SURE):
                continue
            status, took, tally[1] = gets_beyond(
                at, tally[0], units.G, first + k, sign, t, tol, units.error, limit, column, seen, tally[1], first
            )
            tally[3] += took
            if status == DOUBTFUL:
                return -2
            if status == OPTIMAL:
                verdict = _BELOW if side == 0 else _ABOVE
        for w in range(before, tally[1]):
            for q in range(m):
                value = seen[w % kept, q]
                low[q], high[q] = min(low[q], value), max(high[q], value)
        if verdict == _UNDECIDED:
            chosen = a
            continue
        state[a] = verdict
        settled = True
        for e in range(items):
            if units.unit[e] == k:
                if e > a and verdict == _BELOW:
                    state[e] = _BELOW
                settled = settled and state[e] != _UNDECIDED
        # A unit that is settled and bounds nothing only costs time.
        i = where[first + k]
        if settled and i >= 0 and D[d + 1, i] == -np.inf and D[d + 2, i] == np.inf:
            tally[0] = drop_row(at, tally[0], i)
    return chosen


@nb.njit(cache=True, error_model="numpy")
def _fork(lower, upper, units, R, items, a, j, first):  # type: ignore[no-untyped-def]
    """Part `lower` along item `a`, whose unit sits on the break point in column `j`: the part above goes to
    `upper`."""
    d, m, kept = lower.at.C.shape[1], lower.seen.shape[1], len(lower.seen)
    k, t = units.unit[a], units.level[a]
    n, cuts = lower.tally[0], lower.tally[2]
    # The point reached belongs to both parts.
    seen = min(note(lower.at, lower.seen, lower.tally[1], first, j, 0.0), kept)
    for q in range(d + 3):
        for i in range(n):
            upper.at.D[q, i] = lower.at.D[q, i]
    for q in range(3):
        _copy(upper.at.C[q], lower.at.C[q], d)
    _copy(upper.at.basic, lower.at.basic, n)
    _copy(upper.at.nonbasic, lower.at.nonbasic, d)
    _copy(upper.at.where, lower.at.where, d + R + m)
    upper.at.C[1, j] = t
    lower.at.C[2, j] = t
    above, below = 0, 0
    for w in range(seen):
        value = lower.seen[w, k]
        if value >= t:
            for q in range(m):
                upper.seen[above, q] = lower.seen[w, q]
            above += 1
        if value <= t:
            if below != w:
                for q in range(m):
                    lower.seen[below, q] = lower.seen[w, q]
            below += 1
    for e in range(items):
        upper.state[e] = lower.state[e]
        if units.unit[e] == k:
            if e <= a:
                upper.state[e] = _ABOVE
            if e >= a:
                lower.state[e] = _BELOW
    _copy(upper.cut_item, lower.cut_item, cuts)
    _copy(upper.cut_above, lower.cut_above, cuts)
    upper.cut_item[cuts], upper.cut_above[cuts] = a, 1
    lower.cut_item[cuts], lower.cut_above[cuts] = a, 0
    upper.tally[0], upper.tally[1], upper.tally[2], upper.tally[3] = n, above, cuts + 1, lower.tally[3]
    lower.tally[1], lower.tally[2] = below, cuts + 1


@nb.njit(cache=True, error_model="numpy")
def _write_child(node, units, R, rank, out_A, out_b, out_error, out_label, r, first_label, steps, basis):  # type: ignore[no-untyped-def]
    """The cuts of a finished part as rows from `r` on, and its vertex; returns the end of the rows, -1 in doubt.

    `rank[i]` is the place of the parent's row i among those that were kept; `r - rank[R]` is where the child
    starts.
    """
    at, G = node.at, units.G
    d = at.C.shape[1]
    begin = r - rank[R]
    for j in range(d):
        v = at.nonbasic[j]
        if v < d:
            basis[j] = _vertex_code(at, j, d)
        elif v < d + R:
            basis[j] = 2 * d + rank[v - d]
        else:
            basis[j] = _UNKNOWN
    for e in range(node.tally[2]):
        a = node.cut_item[e]
        k, t = units.unit[a], units.level[a]
        i = at.where[d + R + k]
        bound = 1 if node.cut_above[e] == 1 else 2
        in_force = at.D[d + bound, i] if i >= 0 else at.C[bound, -1 - i]
        if in_force != t:
            continue  # another break point of the same unit cut deeper
        sign = -1.0 if bound == 1 else 1.0
        for q in range(d):
            out_A[r, q] = sign * G[R + k, q]
        out_b[r] = sign * (t - G[R + k, d])
        out_error[r] = units.error[R + k]
        out_label[r] = first_label + k * steps + units.step[a]
        if i < 0 and at.C[0, -1 - i] == t:
            basis[-1 - i] = 2 * d + r - begin
        r += 1
    for j in range(d):
        if basis[j] == _UNKNOWN:
            return -1
    return r


@nb.njit(cache=True, error_model="numpy")
def _split_polytopes(  # type: ignore[no-untyped-def]
    A, b, error, labels, offsets, basis, clean, frame, maps, tolerance, breaks, first_label, kept, step_limit
):
    n, d, m, steps = len(offsets) - 1, A.shape[1], maps.shape[2], breaks.shape[1]
    most = 0
    for c in range(n):
        most = max(most, offsets[c + 1] - offsets[c])
    room, n_items = most + m, m * steps
    depth = n_items + 1

    out_A, out_b = np.empty((4 * len(b) + 64, d)), np.empty(4 * len(b) + 64)
    out_error, out_label = np.empty(len(out_b)), np.empty(len(out_b), np.int32)
    out_offset, out_parent = np.empty(2 * n + 16, np.int64), np.empty(2 * n + 16, np.int64)
    out_piece, out_basis = np.empty((2 * n + 16, m), np.uint8), np.empty((2 * n + 16, d), np.int32)
    out_clean = np.empty(2 * n + 16, np.int32)
    top, doubtful = np.empty((n, m)), np.zeros(n, np.bool_)
    zero = np.int64(0)  # typed: a literal would compile every callee once more
    n_out, r_out = zero, zero
    out_offset[0] = 0

    units = _Units(
        np.empty((room, d + 1)),
        np.zeros(room),
        np.empty(n_items, np.int64),
        np.empty(n_items, np.int64),
        np.empty(n_items),
        np.empty(m, np.int64),
    )
    stack = _Node(
        Dictionary(
            np.empty((depth, d + 3, room)),
            np.empty((depth, 3, d)),
            np.empty((depth, room), np.int64),
            np.empty((depth, d), np.int64),
            np.empty((depth, d + room), np.int64),
        ),
        np.zeros((depth, kept, m)),
        np.empty((depth, n_items), np.int64),
        np.empty((depth, depth), np.int64),
        np.empty((depth, depth), np.int64),
        np.empty((depth, 4), np.int64),
    )
    column, low, high = np.empty(room), np.empty(m), np.empty(m)
    dropped, rank = np.zeros(most, np.int64), np.empty(most + 1, np.int64)

    for c in range(n):
        start = offsets[c]
        R = offsets[c + 1] - start
        first = d + R
        frames = 0
        node = _node(stack, zero)
        rows = _load_rows(node.at, units.G, units.error, A, b, error, start, R, basis[c], frame.lower, frame.upper)
        rows, items = _load_units(units, node.at, rows, R, maps[c], tolerance[c], breaks, frame, top[c])
        limit = step_limit + 10 * (rows + d)
        rows = rebuild(node.at, units.G, R + m, column)
        if rows < 0 or not _is_feasible(node.at, rows):
            doubtful[c] = True
            continue
        known = np.int64(clean[c])
        for i in range(R):
            dropped[i] = 0
        if known + known // 2 + 2 * d < R and items > 0:
            rows = _drop_redundant(node.at, rows, units, R, R + m, b, start, dropped, limit, column)
            if rows < 0:
                doubtful[c] = True
                continue
            known = R
        rank[0] = 0
        for i in range(R):
            rank[i + 1] = rank[i] + 1 - dropped[i]
        known = min(known, rank[R])
        for a in range(items):
            node.state[a] = _UNDECIDED
        node.tally[0], node.tally[2], node.tally[3] = rows, 0, 0
        node.tally[1] = note(node.at, node.seen, zero, first, zero, 0.0)
        n_start, r_start = n_out, r_out

        while True:
            node = _node(stack, frames)
            if node.tally[3] > 60 + 2 * d:
                node.tally[0] = rebuild(node.at, units.G, R + m, column)
                node.tally[3] = 0
                if node.tally[0] < 0:
                    doubtful[c] = True
                    break
            a = _settle(node, units, R, items, low, high, limit, column)
            if a >= 0:
                k = units.unit[a]
                took, j = walk_to(node.at, node.tally[0], first + k, units.level[a], limit, column)
                if took < 0:
                    doubtful[c] = True
                    break
                node.tally[3] += took + 1
                _fork(node, _node(stack, frames + 1), units, R, items, a, j, first)
                frames += 1
                continue
            if a == -2:
                doubtful[c] = True
                break

            # All units are settled: the part at hand is a child.
            need = r_out + R + node.tally[2]
            if need > len(out_b):
                out_A, out_b = _grow_rows(out_A, need), _grow(out_b, need)
                out_error, out_label = _grow(out_error, need), _grow(out_label, need)
            if n_out + 2 > len(out_parent):
                out_offset, out_parent = _grow(out_offset, n_out + 2), _grow(out_parent, n_out + 2)
                out_piece, out_basis = _grow_rows(out_piece, n_out + 2), _grow_rows(out_basis, n_out + 2)
                out_clean = _grow(out_clean, n_out + 2)
            for i in range(R):
                if dropped[i] == 0:
                    for q in range(d):
                        out_A[r_out, q] = A[start + i, q]
                    out_b[r_out], out_error[r_out] = b[start + i], error[start + i]
                    out_label[r_out] = labels[start + i]
                    r_out += 1
            r_out = _write_child(
                node, units, R, rank, out_A, out_b, out_error, out_label, r_out, first_label, steps, out_basis[n_out]
            )
            if r_out < 0:
                doubtful[c] = True
                break
            out_parent[n_out], out_clean[n_out] = c, known
            for k in range(m):
                out_piece[n_out, k] = units.fixed[k]
            for a in range(items):
                if node.state[a] == _ABOVE:
                    out_piece[n_out, units.unit[a]] += 1
            n_out += 1
            out_offset[n_out] = r_out
            frames -= 1
            if frames < 0:
                break

        if doubtful[c]:
            n_out, r_out = n_start, r_start

    return (
        out_A[:r_out].copy(),
        out_b[:r_out].copy(),
        out_error[:r_out].copy(),
        out_label[:r_out].copy(),
        out_offset[: n_out + 1].copy(),
        out_basis[:n_out].copy(),
        out_clean[:n_out].copy(),
        out_parent[:n_out].copy(),
        out_piece[:n_out].copy(),
        top,
        doubtful,
    )


@nb.njit(cache=True, error_model="numpy")
def _load_cell(at, G, row_error, A, b, error, offsets, basis, frame, c, column):  # type: ignore[no-untyped-def]
    """The dictionary of cell `c` at its vertex; returns the number of rows, -1 in doubt."""
    start = offsets[c]
    R = offsets[c + 1] - start
    _load_rows(at, G, row_error, A, b, error, start, R, basis[c], frame.lower, frame.upper)
    n = rebuild(at, G, R, column)
    return n if n >= 0 and _is_feasible(at, n) else -1


@nb.njit(cache=True, error_model="numpy")
def _most_rows(offsets):  # type: ignore[no-untyped-def]
    most = 0
    for c in range(len(offsets) - 1):
        most = max(most, offsets[c + 1] - offsets[c])
    return most


@nb.njit(cache=True, error_model="numpy")
def _coordinates(at, y):  # type: ignore[no-untyped-def]
    """The present point."""
    d = len(y)
    for q in range(d):
        i = at.where[q]
        y[q] = at.D[d, i] if i >= 0 else at.C[0, -1 - i]


@nb.njit(cache=True, error_model="numpy")
def _find_bases(A, b, error, offsets, lower, upper):  # type: ignore[no-untyped-def]
    """A vertex of each cell, from nothing: codes, and OPTIMAL, BEYOND (the cell is empty) or DOUBTFUL."""
    n, d = len(offsets) - 1, A.shape[1]
    room = _most_rows(offsets)
    at, G, column = new_dictionary(d, room), np.zeros((room, d + 1)), np.empty(room)
    row_error, origin = np.zeros(room), np.zeros(d)
    basis, status = np.zeros((n, d), np.int32), np.zeros(n, np.int64)
    for c in range(n):
        start = offsets[c]
        R = offsets[c + 1] - start
        for i in range(R):
            for q in range(d):
                G[i, q] = A[start + i, q]
            row_error[i] = error[start + i]
        start_at_corner(at, lower, upper, origin, G, R)
        status[c] = first_point(at, R, b[start : start + R], row_error, G, 200 + 20 * (R + d), column)
        if status[c] == OPTIMAL and not _is_feasible(at, R):
            status[c] = DOUBTFUL
        for j in range(d):
            basis[c, j] = _vertex_code(at, j, d)
    return basis, status


@nb.njit(cache=True, error_model="numpy")
def _bounding_boxes(A, b, error, offsets, basis, frame):  # type: ignore[no-untyped-def]
    """Lower and upper end of each coordinate on each cell, and its largest size at the vertices met on the
    way."""
    n, d = len(offsets) - 1, A.shape[1]
    room = _most_rows(offsets)
    at, G, column, row_error = new_dictionary(d, room), np.zeros((room, d + 1)), np.empty(room), np.zeros(room)
    low, high, met = np.empty((n, d)), np.empty((n, d)), np.zeros((n, d))
    y, none, doubtful = np.empty(d), np.empty((0, 0)), np.zeros(n, np.bool_)
    zero = np.int64(0)
    for c in range(n):
        rows = _load_cell(at, G, row_error, A, b, error, offsets, basis, frame, c, column)
        limit = 200 + 20 * (rows + d)
        for q in range(d):
            for side in range(2):
                sign = 1.0 - 2.0 * side
                status = DOUBTFUL
                if rows >= 0:
                    status, _, _ = search(at, rows, q, sign, np.inf, DUAL, limit, column, none, zero, zero)
                if status == DOUBTFUL:
                    doubtful[c] = True
                    continue
                _coordinates(at, y)
                for p in range(d):
                    met[c, p] = max(met[c, p], abs(y[p]))
                end = sign * np.inf if status == BEYOND else y[q]
                if side == 0:
                    high[c, q] = end
                else:
                    low[c, q] = end
    return low, high, met, doubtful


@nb.njit(cache=True, error_model="numpy")
def _centres(A, b, error, offsets, basis, frame, cap):  # type: ignore[no-untyped-def]
    """Centre and radius of the largest ball in each cell (of radius at most `cap` times the distance of the
    vertex).

    Radii are in units of `x`: the ball is `A_i . y + |A_i / scale| r <= b_i`. The radius is recomputed from
    the centre; it is nan in doubt.
    """
    n, d = len(offsets) - 1, A.shape[1]
    room = _most_rows(offsets)
    at, G, column, row_error = new_dictionary(d, room), np.zeros((room, d + 1)), np.empty(room), np.zeros(room)
    more = room + 2 * d
    ball, H, ball_column = new_dictionary(d + 1, more), np.zeros((more, d + 2)), np.empty(more)
    y, y0, none, zero = np.empty(d), np.empty(d), np.empty((0, 0)), np.int64(0)
    centre, radius = np.empty((n, d)), np.empty(n)
    unit = frame.scale.min()
    for c in range(n):
        start = offsets[c]
        R = offsets[c + 1] - start
        radius[c] = np.nan
        rows = _load_cell(at, G, row_error, A, b, error, offsets, basis, frame, c, column)
        if rows < 0:
            continue
        _coordinates(at, y0)
        # Coordinates relative to the vertex, all free; the radius (in units of the smallest scale) is the last one.
        m = zero
        far = 1.0
        for q in range(d):
            far = max(far, abs(frame.origin[q] + frame.scale[q] * y0[q]))
            for side in range(2):
                bound = frame.upper[q] if side == 0 else frame.lower[q]
                if np.isfinite(bound):
                    for p in range(d + 2):
                        H[m, p] = 0.0
                    H[m, q] = 1.0 - 2.0 * side
                    H[m, d] = unit / frame.scale[q]
                    ball.D[d + 3, m] = max(0.0, H[m, q] * (bound - y0[q]))
                    m += 1
        for i in range(R):
            room_left, norm2 = b[start + i], 0.0
            for q in range(d):
                H[m, q] = A[start + i, q]
                room_left -= A[start + i, q] * y0[q]
                norm2 += (A[start + i, q] / frame.scale[q]) ** 2
            H[m, d], H[m, d + 1] = unit * np.sqrt(norm2), 0.0
            ball.D[d + 3, m] = max(0.0, room_left)
            m += 1
        for q in range(d + 1):
            ball.nonbasic[q], ball.where[q] = q, -1 - q
            ball.C[0, q], ball.C[1, q], ball.C[2, q] = 0.0, -np.inf, np.inf
            for i in range(m):
                ball.D[q, i] = H[i, q]
        ball.C[1, d], ball.C[2, d] = 0.0, cap * far / unit
        for i in range(m):
            ball.basic[i], ball.where[d + 1 + i] = d + 1 + i, i
            ball.D[d + 1, i], ball.D[d + 2, i] = 0.0, -np.inf
        status, _, _ = search(
            ball, m, np.int64(d), 1.0, np.inf, DUAL, 200 + 20 * (m + d), ball_column, none, zero, zero
        )
        if status == DOUBTFUL:
            continue
        for q in range(d):
            i = ball.where[q]
            y[q] = y0[q] + (ball.D[d + 1, i] if i >= 0 else ball.C[0, -1 - i])
            centre[c, q] = y[q]
        radius[c] = np.inf
        if status == OPTIMAL:
            for q in range(d):
                radius[c] = min(radius[c], frame.scale[q] * min(frame.upper[q] - y[q], y[q] - frame.lower[q]))
            for i in range(R):
                room_left, norm2 = b[start + i], 0.0
                for q in range(d):
                    room_left -= A[start + i, q] * y[q]
                    norm2 += (A[start + i, q] / frame.scale[q]) ** 2
                radius[c] = min(radius[c], room_left / np.sqrt(norm2))
    return centre, radius


@nb.njit(cache=True, error_model="numpy")
def _set_bound(at, v, bound, value):  # type: ignore[no-untyped-def]
    """Set the lower (1) or upper (2) bound of a variable."""
    k = at.where[v]
    if k >= 0:
        at.D[at.C.shape[1] + bound, k] = value
    else:
        at.C[bound, -1 - k] = value


@nb.njit(cache=True, error_model="numpy")
def _find_facets(A, b, error, offsets, basis, frame, inside):  # type: ignore[no-untyped-def]
    """Which bounds and rows of each cell are facets, a point inside each, and which cells are in doubt.

    Each in turn is lifted and pushed outwards as far as the others let it: a point beyond it that the others
    allow makes it a facet, and the segment from there to the inner point meets the facet inside. What is no
    facet stays lifted.
    """
    n, d = len(offsets) - 1, A.shape[1]
    room = _most_rows(offsets)
    at, G, column, row_error = new_dictionary(d, room), np.zeros((room, d + 1)), np.empty(room), np.zeros(room)
    fixed_v, fixed_b = np.empty(2 * d, np.int64), np.empty(2 * d, np.int64)
    fixed = 0
    for bound in range(1, 3):
        for q in range(d):
            if np.isfinite(frame.lower[q] if bound == 1 else frame.upper[q]):
                fixed_v[fixed], fixed_b[fixed] = q, bound
                fixed += 1
    total = len(b) + n * fixed
    kept, points = np.zeros(total, np.bool_), np.zeros((total, d))
    seen, y, doubtful = np.empty((1, d)), np.empty(d), np.zeros(n, np.bool_)
    zero = np.int64(0)
    place = 0
    for c in range(n):
        start = offsets[c]
        R = offsets[c + 1] - start
        rows = _load_cell(at, G, row_error, A, b, error, offsets, basis, frame, c, column)
        limit = 200 + 20 * (rows + d)
        for e in range(fixed + R):
            here = place
            place += 1
            if rows < 0 or doubtful[c]:
                doubtful[c] = True
                continue
            if e < fixed:
                v, bound, tol = fixed_v[e], fixed_b[e], 0.0
                t = frame.lower[v] if bound == 1 else frame.upper[v]
            else:
                v, bound, tol = d + e - fixed, 2, error[start + e - fixed]
                t = b[start + e - fixed]
            sign = 1.0 if bound == 2 else -1.0
            _set_bound(at, v, bound, sign * np.inf)
            status, _, n_seen = search(at, rows, v, sign, sign * t + 4.0, DUAL, limit, column, seen, zero, zero)
            k = at.where[v]
            value = at.D[d, k] if k >= 0 else at.C[0, -1 - k]
            if status == OPTIMAL:
                if sign * (value - t) > SURE:
                    status = BEYOND
                elif sign * (value - t) > -SURE:
                    status, _, n_seen = gets_beyond(
                        at, rows, G, v, sign, t, tol, row_error, limit, column, seen, n_seen, zero
                    )
            if status == DOUBTFUL:
                doubtful[c] = True
                continue
            k = at.where[v]
            if status == OPTIMAL:
                if k >= 0 and v >= d:
                    rows = drop_row(at, rows, k)
                continue
            if n_seen > 0:
                for q in range(d):
                    y[q] = seen[0, q]
            else:
                _coordinates(at, y)
            here_value, there_value = 0.0, 0.0
            if v < d:
                here_value, there_value = inside[c, v], y[v]
            else:
                for q in range(d):
                    here_value += G[v - d, q] * inside[c, q]
                    there_value += G[v - d, q] * y[q]
            share = (t - here_value) / (there_value - here_value)
            kept[here] = True
            for q in range(d):
                points[here, q] = inside[c, q] + share * (y[q] - inside[c, q])
            value = at.D[d, k] if k >= 0 else at.C[0, -1 - k]
            if sign * (value - t) > 0.0:
                took, _ = walk_to(at, rows, v, t, limit, column)
                if took < 0:
                    doubtful[c] = True
                    continue
            _set_bound(at, v, bound, t)
    return kept, points, doubtful


# -- with HiGHS and Qhull: slow, rare or on request -----------------------------------------------------------------

_CAREFUL = 1e-9
"""Resolution of HiGHS: units that pass a break point by less, in units of the domain's size, do not cut."""


def _split_carefully(
    cell: HPolytopes, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int
) -> tuple[HPolytopes, npt.NDArray[np.uint8]]:
    """The children of one cell and their pieces, by one warm linear program per side, unit and part."""
    f, (d, m) = cell.frame, (maps.shape[0] - 1, maps.shape[1])
    steps = breaks.shape[1]
    R = len(cell.b)
    C = maps[:d].T * f.scale[None, :]
    offset = maps[d] + maps[:d].T @ f.origin
    norm = np.linalg.norm(C, axis=1)
    norm[norm == 0] = 1.0
    unit, offset = C / norm[:, None], offset / norm
    level = breaks / norm[:, None]
    margin = np.maximum(tolerance / norm, _CAREFUL)
    program = Program(np.concatenate([cell.A, unit]), np.concatenate([cell.b, np.full(m, np.inf)]), f.lower, f.upper)
    children, pieces = [], []
    work = [(np.full(m, -np.inf), np.full(m, np.inf), 0)]
    while work:
        low, high, k = work.pop()
        for j in range(m):
            program.set_row(R + j, float(high[j] - offset[j]), float(low[j] - offset[j]))
        while k < m:
            most = program.maximise(unit[k]).value + offset[k]
            least = -program.maximise(-unit[k]).value + offset[k]
            cut = np.flatnonzero((most > level[k] + margin[k]) & (least < level[k] - margin[k]))
            if len(cut):
                t = level[k, cut[0]]
                above, below = low.copy(), high.copy()
                above[k], below[k] = t, t
                work += [(above, high, k), (low, below, k)]
                break
            k += 1
        if k < m:
            continue
        piece = np.zeros(m, np.uint8)
        rows = []
        for j in range(m):
            most = program.maximise(unit[j]).value + offset[j]
            piece[j] = int((most > level[j] + margin[j]).sum())
            for bound, sign in ((low[j], -1.0), (high[j], 1.0)):
                if np.isfinite(bound):
                    label = first_label + j * steps + int(np.flatnonzero(level[j] == bound)[0])
                    rows.append((sign * unit[j], sign * (bound - offset[j]), tolerance[j] / norm[j], label))
        A, b, error, labels = zip(*rows, strict=True) if rows else ((), (), (), ())
        child = replace(
            cell,
            A=np.concatenate([cell.A, np.reshape(A, (-1, d))]),
            b=np.concatenate([cell.b, b]),
            error=np.concatenate([cell.error, error]),
            labels=np.concatenate([cell.labels, np.array(labels, np.int32)]),
            offsets=np.array([0, R + len(rows)]),
        )._based()
        if len(child):
            children.append(child)
            pieces.append(piece)
    return HPolytopes.join(children) if children else cell.part(0, 0), np.array(pieces, np.uint8).reshape(-1, m)


def _vertex_basis(cell: HPolytopes) -> Labels | None:
    """The codes of a vertex of one cell, None when it is empty."""
    d, f = cell.dimension, cell.frame
    program = Program(cell.A, cell.b, f.lower, f.upper)
    if program.maximise(np.zeros(d)).outcome is not Outcome.OPTIMAL:
        return None
    columns, rows = program.basis()
    codes = [-1 - q if s == 2 else 2 * q + int(s > 0) for q, s in enumerate(columns) if s]
    codes += (2 * d + np.flatnonzero(rows)).tolist()
    return np.array(codes, np.int32)


def _careful_bounds(A: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper end of each coordinate on one cell."""
    program = Program(A, b)
    axes = np.eye(A.shape[1])
    return (
        np.array([-program.maximise(-e).value for e in axes]),
        np.array([program.maximise(e).value for e in axes]),
    )


def _vertices(A: FloatArray, b: FloatArray, inside: FloatArray) -> FloatArray:
    """Finite vertices of `A x <= b` around an inner point."""
    from scipy.spatial import ConvexHull

    slack, d = b - A @ inside, A.shape[1]
    if d == 1:
        ends = inside + slack[:, None] / A
        return np.unique(ends, axis=0)
    # A vertex is a facet of the hull of the normals over their slacks; one through the origin is at infinity.
    dual = A / slack[:, None]
    if np.linalg.matrix_rank(A) < d:
        return np.zeros((0, d))  # the cell contains a line
    hull = ConvexHull(np.concatenate([dual, np.zeros((1, d))]))
    normals, offsets = hull.equations[:, :d], hull.equations[:, d]
    finite = offsets < -1e-12 * np.abs(dual).max()
    points = normals[finite] / -offsets[finite, None]
    size = np.abs(points).max(initial=1.0)
    _, first = np.unique(np.round(points / (1e-9 * size)), axis=0, return_index=True)
    return inside + points[np.sort(first)]


def _volume(points: FloatArray) -> float:
    from scipy.spatial import ConvexHull

    return float(np.ptp(points)) if points.shape[1] == 1 else float(ConvexHull(points).volume)
