"""Linear programs of any size, by HiGHS, in one place and with nothing taken on trust.

    maximise c . x   over   A x <= b

HiGHS calls a NaN cost optimal, drops coefficients below 1e-9 with a warning, takes numbers from 1e20 on for
infinity and accepts points outside by 1e-7. So: every number is checked, rows are scaled to unit norm and
lengths to order 1, the tolerances are the tightest there are (1e-10), every status is tested, and the
residual of every point is recomputed from the data as given. A `Program` keeps its last basis, so a sequence
of similar problems costs a few pivots each (0.3 ms for 40 rows in 10 variables, most of it outside the
simplex method). The compiled solver for small problems is `reluscope.cells.simplex`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, real_array
from reluscope._lazy import late
from reluscope.errors import InputError, ReluscopeError

_SMALLEST_COEFFICIENT = 1e-12
"""HiGHS drops what is smaller; so do we, knowingly, and recompute residuals with the full rows."""
_MOST_RESIDUAL = 1e-7
"""A point that violates a row by more, in units of the problem's size, is refused."""
_REDUNDANT = 1e-9
"""A row that can be exceeded by no more than this, in units of the problem's size, is redundant."""


class Outcome(Enum):
    """What became of a linear program."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"


@dataclass(frozen=True, eq=False)
class Solution:
    """The outcome of a maximisation.

    `value` is `c . point` when optimal, `inf` when unbounded and `-inf` when infeasible; `point` is nan
    unless optimal. `residual` is the largest violation of a row of unit norm at `point` (0 if none).
    """

    outcome: Outcome
    value: float
    point: FloatArray
    residual: float


class InteriorPoint(NamedTuple):
    """The centre and the radius of a largest ball in a polyhedron; `inf` when balls of any size fit.

    A negative radius says that the polyhedron is empty, and by how far; zero that it has no inner points.
    """

    point: FloatArray
    radius: float


class Program:
    """Linear programs over `{x : A x <= b, lower <= x <= upper}`, kept warm from one to the next.

    `A` has shape (rows, variables). Right-hand sides may be `inf`; `lower` and `upper` may be left out or
    infinite. Rows may be changed between solves with `set_row`.
    """

    def __init__(
        self,
        A: npt.ArrayLike,
        b: npt.ArrayLike,
        lower: npt.ArrayLike | None = None,
        upper: npt.ArrayLike | None = None,
    ) -> None:
        rows, bound = real_array(A, "A", ndim=2), real_array(b, "b", ndim=1, finite=False)
        m, d = rows.shape
        if len(bound) != m or d == 0:
            raise InputError(f"A and b must have one row per inequality, got shapes {rows.shape} and {bound.shape}")
        low = np.full(d, -np.inf) if lower is None else real_array(lower, "lower", ndim=1, finite=False)
        high = np.full(d, np.inf) if upper is None else real_array(upper, "upper", ndim=1, finite=False)
        if len(low) != d or len(high) != d:
            raise InputError(f"lower and upper must have {d} entries, got {len(low)} and {len(high)}")
        for name, array in (("b", bound), ("lower", low), ("upper", high)):
            if np.isnan(array).any():
                raise InputError(f"{name} must not be nan, got nan at index {int(np.argmax(np.isnan(array)))}")
        self._norm = _norms(rows)
        self._A = rows / self._norm[:, None]
        self._low_rows, self._up_rows = np.full(m, -np.inf), bound / self._norm
        self._low, self._high = low, high
        sizes = np.abs(np.concatenate([self._up_rows, low, high]))
        self._size = _power_of_two(float(sizes[np.isfinite(sizes)].max(initial=0.0)))
        self._solver = self._build()

    def _build(self) -> Any:
        highspy = late("highspy")

        m, d = self._A.shape
        coefficients = np.where(np.abs(self._A) < _SMALLEST_COEFFICIENT, 0.0, self._A)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = d, m
        model.col_cost_ = np.zeros(d)
        model.col_lower_, model.col_upper_ = self._low / self._size, np.maximum(self._low, self._high) / self._size
        model.row_lower_, model.row_upper_ = self._low_rows / self._size, self._up_rows / self._size
        row, column = np.nonzero(coefficients)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.searchsorted(row, np.arange(m + 1)).astype(np.int32)
        model.a_matrix_.index_ = column.astype(np.int32)
        model.a_matrix_.value_ = coefficients[row, column]
        solver = highspy.Highs()
        for name, value in (
            ("output_flag", False),
            ("threads", 1),
            ("presolve", "off"),
            ("solver", "simplex"),
            ("small_matrix_value", _SMALLEST_COEFFICIENT),
            ("primal_feasibility_tolerance", 1e-10),
            ("dual_feasibility_tolerance", 1e-10),
        ):
            _good(solver.setOptionValue(name, value), f"the option {name}")
        _good(solver.passModel(model), "the problem")
        _good(solver.changeObjectiveSense(highspy.ObjSense.kMaximize), "the sense")
        return solver

    def set_row(self, i: int, up: float, low: float = -np.inf) -> None:
        """Change row i to `low <= A[i] . x <= up`, in the units of `b`."""
        self._low_rows[i], self._up_rows[i] = low / self._norm[i], up / self._norm[i]
        # Bounds that exclude each other are answered without HiGHS, which does not take them.
        top = max(self._low_rows[i], self._up_rows[i])
        _good(self._solver.changeRowBounds(i, self._low_rows[i] / self._size, top / self._size), f"row {i}")

    def maximise(self, c: npt.ArrayLike) -> Solution:
        """The largest `c . x`. Cost: some pivots from the last optimal basis."""
        highspy = late("highspy")

        d = self._A.shape[1]
        cost = real_array(c, "c", ndim=1)
        if len(cost) != d:
            raise InputError(f"c must have {d} entries, one per column of A, got {len(cost)}")
        nothing = np.full(d, np.nan)
        empty = (self._low > self._high).any() or (self._low_rows > self._up_rows).any()
        constant = ~self._A.any(axis=1)
        if empty or (constant & ((self._up_rows < 0) | (self._low_rows > 0))).any():
            return Solution(Outcome.INFEASIBLE, -np.inf, nothing, 0.0)
        largest = float(np.abs(cost).max())
        scaled = cost / largest if largest > 0 else cost
        status = self._solve(scaled)
        kinds = highspy.HighsModelStatus
        if status in (kinds.kUnbounded, kinds.kUnboundedOrInfeasible):
            # HiGHS may find a direction before it finds a point: ask for a point.
            status = self._solve(np.zeros(d))
            if status == kinds.kOptimal:
                return Solution(Outcome.UNBOUNDED, np.inf, nothing, 0.0)
        if status == kinds.kInfeasible:
            return Solution(Outcome.INFEASIBLE, -np.inf, nothing, 0.0)
        point, residual = self._point(status)
        return Solution(Outcome.OPTIMAL, float(cost @ point), point, residual)

    def basis(self) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
        """Where columns and rows sit after the last solve: 0 basic, -1 lower bound, 1 upper, 2 free at 0."""
        highspy = late("highspy")

        kinds = highspy.HighsBasisStatus
        code = {kinds.kBasic: 0, kinds.kLower: -1, kinds.kUpper: 1, kinds.kZero: 2}
        found = self._solver.getBasis()
        if not found.valid:
            raise ReluscopeError("the linear program has not been solved: there is no basis")
        columns, rows = ([code.get(s, 2) for s in part] for part in (found.col_status, found.row_status))
        return np.array(columns, np.int8), np.array(rows, np.int8)

    def _solve(self, cost: FloatArray) -> Any:
        highspy = late("highspy")

        d = len(cost)
        _good(self._solver.changeColsCost(d, np.arange(d, dtype=np.int32), cost), "the objective")
        known = highspy.HighsModelStatus
        decided = (known.kOptimal, known.kInfeasible, known.kUnbounded, known.kUnboundedOrInfeasible)
        run = self._solver.run()
        status = self._solver.getModelStatus()
        if run != highspy.HighsStatus.kOk or status not in decided:
            # A warm start can run into trouble that a cold one does not meet.
            _good(self._solver.clearSolver(), "a fresh start")
            run = self._solver.run()
            status = self._solver.getModelStatus()
        _good(run, "the run")
        if status not in decided:
            raise ReluscopeError(
                f"HiGHS ended with {self._solver.modelStatusToString(status)!r} on a linear program of "
                f"{self._A.shape[0]} rows and {d} variables; rescale the data or relax the tolerance"
            )
        return status

    def _point(self, status: Any) -> tuple[FloatArray, float]:
        highspy = late("highspy")

        if status != highspy.HighsModelStatus.kOptimal:
            raise ReluscopeError(f"HiGHS ended with {self._solver.modelStatusToString(status)!r} where a point was due")
        point = np.array(self._solver.getSolution().col_value) * self._size
        point = np.clip(point, self._low, self._high)
        value = self._A @ point
        residual = float(max((value - self._up_rows).max(initial=0.0), (self._low_rows - value).max(initial=0.0)))
        if not residual <= _MOST_RESIDUAL * max(self._size, float(np.abs(point).max())):
            raise ReluscopeError(
                f"HiGHS returned a point that violates a row by {residual:.3g}; the rows span too many orders of "
                "magnitude for double precision"
            )
        return point, residual


def interior_point(A: npt.ArrayLike, b: npt.ArrayLike) -> InteriorPoint:
    """The centre and radius of a largest ball in `{x : A x <= b}`: maximise r over `A_i . x + |A_i| r <=
    b_i`.

    Where balls of any size fit, the radius is `inf` and the point is the centre of one as large as the data:
    its radius is the largest `|b_i| / |A_i|`, or 1. The finite radius is recomputed from the point.
    """
    rows, bound = _clean_rows(A, b)
    d = np.shape(A)[1]
    if rows is None:
        return InteriorPoint(np.full(d, np.nan), -np.inf)
    if not len(rows):
        return InteriorPoint(np.zeros(d), np.inf)
    # The radius counts fully in every row, so that the rows of the larger problem have norm sqrt(2).
    program = Program(np.column_stack([rows, np.ones(len(rows))]), bound)
    goal = np.append(np.zeros(d), 1.0)
    found = program.maximise(goal)
    if found.outcome is Outcome.UNBOUNDED:
        cap = max(1.0, float(np.abs(bound).max()))
        high = np.append(np.full(d, np.inf), cap)
        found = Program(np.column_stack([rows, np.ones(len(rows))]), bound, upper=high).maximise(goal)
        return InteriorPoint(found.point[:d], np.inf)
    point = found.point[:d]
    return InteriorPoint(point, float((bound - rows @ point).min()))


def irredundant(A: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Indices of rows that together mean the same as all of `A x <= b`, none of which can be left out.

    Row i is redundant when `A_i . x` cannot exceed `b_i` by more than 1e-9 times the size of the
    problem (largest `|b_i| / |A_i|`, at least 1, for unit rows) while the other rows hold; of equal rows the
    first stays. Rows that a ray from the inner point meets first are facets without further ado; each other
    row takes one warm linear program. An empty polyhedron is an error, since every row of it could be called
    redundant.
    """
    rows, bound = _clean_rows(A, b)
    if rows is None:
        raise InputError("A x <= b has no solution: a zero row demands less than 0")
    given = np.flatnonzero(_norms(real_array(A, "A", ndim=2), zero=0.0) > 0)
    if not len(rows):
        return given
    scale = _REDUNDANT * max(1.0, float(np.abs(bound).max()))
    inside, radius = interior_point(rows, bound)
    if radius < -scale:
        raise InputError(f"A x <= b has no solution: every point violates some row by at least {-radius:.3g}")
    kept = np.ones(len(rows), dtype=np.bool_)
    facet = np.zeros(len(rows), dtype=np.bool_)
    if radius > scale:
        first = _met_first(rows, bound, inside)
        facet[first] = True
    program = Program(rows, bound)
    for i in np.flatnonzero(~facet)[::-1]:  # backwards, so that of equal rows the first stays
        # A lifted row keeps a far bound, so that the program stays bounded in its direction.
        program.set_row(int(i), float(bound[i]) + 1.0 + abs(float(bound[i])))
        found = program.maximise(rows[i])
        if found.outcome is Outcome.OPTIMAL and found.value <= bound[i] + scale:
            kept[i] = False
            program.set_row(int(i), np.inf)
        else:
            program.set_row(int(i), float(bound[i]))
    return given[kept]


def _met_first(rows: FloatArray, bound: FloatArray, inside: FloatArray) -> npt.NDArray[np.int64]:
    """Rows that a ray from the inner point along some row's normal meets clearly before all others."""
    slack = bound - rows @ inside
    found = set()
    for start in range(0, len(rows), 256):
        speed = rows[start : start + 256] @ rows.T
        with np.errstate(divide="ignore"):
            time = np.where(speed > 1e-9, slack / np.maximum(speed, 1e-300), np.inf)
        order = np.argpartition(time, min(1, len(rows) - 1), axis=1)
        first = time.argmin(axis=1)
        here = np.arange(len(time))
        runner_up = time[here, order[:, min(1, len(rows) - 1)]] if len(rows) > 1 else np.full(len(time), np.inf)
        best = time[here, first]
        found.update(first[(runner_up > best * (1 + 1e-6)) & np.isfinite(best)].tolist())
    return np.array(sorted(found), dtype=np.int64)


def _clean_rows(A: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Any, FloatArray]:
    """Rows of unit norm without the zero rows; None for the rows when a zero row cannot hold."""
    rows, bound = real_array(A, "A", ndim=2), real_array(b, "b", ndim=1)
    if len(rows) != len(bound) or not rows.shape[1]:
        raise InputError(f"A and b must have one row per inequality, got shapes {rows.shape} and {bound.shape}")
    norm = _norms(rows, zero=0.0)
    if (bound[norm == 0] < 0).any():
        return None, bound
    keep = norm > 0
    return rows[keep] / norm[keep, None], bound[keep] / norm[keep]


def _norms(rows: FloatArray, zero: float = 1.0) -> FloatArray:
    """Norms of rows without overflow or underflow; `zero` for zero rows."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    norm = safe * np.sqrt(((rows / safe[:, None]) ** 2).sum(axis=1))
    return np.where(largest > 0, np.maximum(norm, 5e-324), zero)


def _power_of_two(size: float) -> float:
    """A power of two near `size`, by which lengths are scaled: exact, and 1 when the size is unremarkable."""
    return float(2.0 ** np.round(np.log2(size))) if size > 0 and not 1e-3 < size < 1e3 else 1.0


def _good(status: Any, what: str) -> None:
    highspy = late("highspy")

    if status != highspy.HighsStatus.kOk:
        raise ReluscopeError(f"HiGHS did not accept {what} (status {status})")
