"""Linear programs: HiGHS behind its wrapper, the compiled simplex method, and the hazards both must survive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from reluscope.cells.lp import Outcome, Program, interior_point, irredundant
from reluscope.cells.simplex import maximise_small
from reluscope.errors import InputError, ReluscopeError

FREE = (None, None)
OUTCOME = {0: Outcome.OPTIMAL, 2: Outcome.INFEASIBLE, 3: Outcome.UNBOUNDED}
SMALL_OUTCOME = {0: Outcome.OPTIMAL, 1: Outcome.UNBOUNDED, 2: Outcome.INFEASIBLE}


def maximise(c, A, b, lower=None, upper=None):
    return Program(A, b, lower, upper).maximise(c)


def reference(c, A, b, bounds=FREE):
    found = linprog(-np.asarray(c), A, b, bounds=bounds, method="highs")
    if found.status == 4:  # scipy cannot tell infeasible from unbounded: ask for any point
        found.status = 3 if linprog(np.zeros(len(c)), A, b, bounds=bounds, method="highs").status == 0 else 2
    return OUTCOME[found.status], -found.fun if found.status == 0 else None


def small(c, A, b, lower=None, upper=None):
    A = np.asarray(A, dtype=float)
    norm = np.linalg.norm(A, axis=1)
    d = A.shape[1]
    low = np.full(d, -np.inf) if lower is None else np.asarray(lower, dtype=float)
    high = np.full(d, np.inf) if upper is None else np.asarray(upper, dtype=float)
    return maximise_small(np.asarray(c, dtype=float), A / norm[:, None], np.asarray(b, dtype=float) / norm, low, high)


def problem(rng: np.random.Generator, integer: bool):
    """Random rows around or away from a point: feasible, infeasible, unbounded and (with integers) degenerate ones."""
    d, m = int(rng.integers(1, 7)), int(rng.integers(1, 16))
    if integer:
        A, c = rng.integers(-2, 3, (m, d)).astype(float), rng.integers(-2, 3, d).astype(float)
        A[~A.any(axis=1), 0] = 1.0
        b = rng.integers(-1, 3, m).astype(float)
    else:
        A, c = rng.normal(size=(m, d)), rng.normal(size=d)
        b = A @ rng.normal(size=d) + rng.exponential(size=m) - 0.2
    return c, A, b


@pytest.mark.parametrize("integer", [False, True])
def test_agrees_with_linprog(integer: bool) -> None:
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(120):
        c, A, b = problem(rng, integer)
        outcome, value = reference(c, A, b)
        seen.add(outcome)
        found = maximise(c, A, b)
        assert found.outcome is outcome
        status, small_value, x, multipliers = small(c, A, b)
        assert SMALL_OUTCOME[status] is outcome
        if outcome is Outcome.OPTIMAL:
            assert found.value == pytest.approx(value, rel=1e-8, abs=1e-8)
            assert small_value == pytest.approx(value, rel=1e-8, abs=1e-8)
            assert found.residual <= 1e-9 * max(1.0, np.abs(found.point).max())
            norm = np.linalg.norm(A, axis=1)
            # The multipliers prove the value: they are non-negative and combine the rows to c.
            assert (multipliers >= -1e-9).all()
            np.testing.assert_allclose(multipliers @ (A / norm[:, None]), c, atol=1e-9)
            assert multipliers @ (b / norm) == pytest.approx(small_value, abs=1e-9)
            assert (A @ x <= b + 1e-9 * norm).all()
    assert seen == set(Outcome)


def test_box_bounds_agree_with_linprog() -> None:
    rng = np.random.default_rng(6)
    for _ in range(60):
        c, A, b = problem(rng, bool(rng.integers(2)))
        d = len(c)
        lower, upper = -rng.exponential(size=d), rng.exponential(size=d)
        outcome, value = reference(c, A, b, list(zip(lower, upper, strict=True)))
        found = maximise(c, A, b, lower, upper)
        status, small_value, _, _ = small(c, A, b, lower, upper)
        assert found.outcome is outcome and SMALL_OUTCOME[status] is outcome
        if outcome is Outcome.OPTIMAL:
            assert found.value == pytest.approx(value, abs=1e-8)
            assert small_value == pytest.approx(value, abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), integer=st.booleans())
def test_small_and_large_solver_agree(seed: int, integer: bool) -> None:
    c, A, b = problem(np.random.default_rng(seed), integer)
    found = maximise(c, A, b)
    status, value, _, _ = small(c, A, b)
    assert SMALL_OUTCOME[status] is found.outcome
    if found.outcome is Outcome.OPTIMAL:
        assert value == pytest.approx(found.value, rel=1e-7, abs=1e-7)


def test_cycling_example_ends() -> None:
    """Beale's problem, on which the largest-coefficient rule without safeguards cycles; the optimum is 1/20."""
    c = [0.75, -150.0, 0.02, -6.0]
    A = [[0.25, -60.0, -1 / 25, 9.0], [0.5, -90.0, -1 / 50, 3.0], [0.0, 0.0, 1.0, 0.0]]
    b = [0.0, 0.0, 1.0]
    zero = np.zeros(4)
    assert maximise(c, A, b, lower=zero).value == pytest.approx(0.05, abs=1e-12)
    status, value, x, _ = small(c, A, b, lower=zero)
    assert status == 0 and value == pytest.approx(0.05, abs=1e-15)
    np.testing.assert_allclose(x, [0.04, 0.0, 1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("d", [3, 6, 9])
def test_twisted_cubes(d: int) -> None:
    """Klee-Minty cubes: maximise sum 2^(d-j) x_j with 2 sum_{j<i} 2^(i-j) x_j + x_i <= 5^i; the optimum is 5^d."""
    A = np.array([[2.0 ** (i - j + 1) if j < i else float(i == j) for j in range(d)] for i in range(d)])
    b = 5.0 ** np.arange(1, d + 1)
    c = 2.0 ** np.arange(d - 1, -1, -1)
    status, value, _, _ = small(c, A, b, lower=np.zeros(d))
    assert status == 0 and value == pytest.approx(5.0**d, rel=1e-12)
    assert maximise(c, A, b, lower=np.zeros(d)).value == pytest.approx(5.0**d, rel=1e-9)


def test_a_kept_program_follows_its_changes() -> None:
    program = Program([[1.0, 0.0], [0.0, 2.0]], [1.0, 2.0], lower=[0.0, 0.0])
    assert program.maximise([1.0, 1.0]).value == pytest.approx(2.0)
    program.set_row(0, 3.0)
    assert program.maximise([1.0, 1.0]).value == pytest.approx(4.0)
    program.set_row(1, np.inf)
    assert program.maximise([0.0, 1.0]).outcome is Outcome.UNBOUNDED
    program.set_row(1, -1.0)
    assert program.maximise([0.0, 1.0]).outcome is Outcome.INFEASIBLE
    program.set_row(1, 1.0, 3.0)
    assert program.maximise([0.0, 1.0]).outcome is Outcome.INFEASIBLE
    program.set_row(1, 2.0, 2.0)
    assert program.maximise([0.0, -1.0]).value == pytest.approx(-1.0)


# -- hazards of HiGHS --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("c", "A", "b", "name"),
    [
        ([np.nan], [[1.0]], [1.0], "c"),
        ([np.inf], [[1.0]], [1.0], "c"),
        ([1.0], [[np.nan]], [1.0], "A"),
        ([1.0], [[np.inf]], [1.0], "A"),
        ([1.0], [[1.0]], [np.nan], "b"),
        ([1.0, 1.0], [[1.0]], [1.0], "c"),
        ([1.0], [[1.0]], [1.0, 2.0], "A and b"),
    ],
)
def test_bad_numbers_are_named(c, A, b, name: str) -> None:
    """HiGHS by itself calls a NaN cost optimal and a NaN coefficient unbounded."""
    with pytest.raises(InputError, match=name):
        maximise(c, A, b)


def test_small_coefficients_still_bind() -> None:
    """HiGHS drops coefficients below 1e-9 and then finds this unbounded."""
    assert maximise([1.0], [[1e-10]], [1.0]).value == pytest.approx(1e10)
    assert maximise([1.0], [[1e-300]], [1e-300]).value == pytest.approx(1.0)


def test_large_bounds_still_bind() -> None:
    """HiGHS takes 1e20 for infinity and refuses coefficients above 1e15."""
    assert maximise([1.0], [[1.0]], [1e25]).value == pytest.approx(1e25)
    assert maximise([1.0], [[1e25]], [1e25]).value == pytest.approx(1.0)
    assert maximise([1.0], [[1.0], [-1.0]], [1e30, 0.0]).value == pytest.approx(1e30)
    assert maximise([1e300], [[1.0]], [1e-300]).value == pytest.approx(1.0)


@pytest.mark.parametrize("gap", [9e-8, 1e-9, 1e-11, 1e-13])
def test_empty_slivers_are_empty(gap: float) -> None:
    """HiGHS by itself accepts `x <= 0, x >= 9e-8`."""
    assert small([1.0, 0.0], [[1.0, 0.0], [-1.0, 0.0]], [gap, 0.0])[0] == 0
    assert small([1.0, 0.0], [[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0])[0] == 0
    assert small([1.0, 0.0], [[1.0, 0.0], [-1.0, 0.0]], [0.0, -gap])[0] == 2


def test_no_rows() -> None:
    none = np.zeros((0, 2))
    assert maximise([1.0, 1.0], none, []).outcome is Outcome.UNBOUNDED
    assert maximise([1.0, 1.0], none, [], upper=[1.0, 2.0]).value == pytest.approx(3.0)
    assert maximise([1.0, 0.0], none, [], lower=[1.0, 0.0], upper=[0.0, 2.0]).outcome is Outcome.INFEASIBLE
    assert maximise([1.0, 0.0], [[1.0, 0.0]], [np.inf]).outcome is Outcome.UNBOUNDED


def test_zero_rows() -> None:
    assert maximise([1.0], [[0.0], [1.0]], [0.0, 2.0]).value == pytest.approx(2.0)
    assert maximise([1.0], [[0.0], [1.0]], [-1.0, 2.0]).outcome is Outcome.INFEASIBLE


def test_a_failing_solver_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import highspy

    program = Program([[1.0]], [1.0])

    class Failing:
        def __getattr__(self, name):
            return lambda *args: highspy.HighsStatus.kError

    monkeypatch.setattr(program, "_solver", Failing())
    with pytest.raises(ReluscopeError, match="HiGHS"):
        program.maximise([1.0])


def test_no_basis_before_the_first_solve() -> None:
    with pytest.raises(ReluscopeError, match="not been solved"):
        Program([[1.0]], [1.0]).basis()


# -- largest balls and redundancy --------------------------------------------------------------------------------------


def test_largest_balls() -> None:
    square = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 3.0], [0.0, -1.0]])
    point, radius = interior_point(square, [2.0, 0.0, 6.0, 0.0])
    np.testing.assert_allclose(point, [1.0, 1.0], atol=1e-9)
    assert radius == pytest.approx(1.0)
    # The right triangle with legs 3 and 4 has inradius 1.
    point, radius = interior_point([[-1.0, 0.0], [0.0, -1.0], [4.0, 3.0]], [0.0, 0.0, 12.0])
    np.testing.assert_allclose(point, [1.0, 1.0], atol=1e-9)
    assert radius == pytest.approx(1.0)


def test_balls_in_unbounded_and_empty_sets() -> None:
    point, radius = interior_point([[-1.0, 0.0], [0.0, -1.0]], [0.0, 5.0])
    assert radius == np.inf and point[0] > 0 and point[1] > -5
    strip = interior_point([[1.0, 0.0], [-1.0, 0.0]], [2.0, 4.0])
    assert strip.radius == pytest.approx(3.0) and strip.point[0] == pytest.approx(-1.0)
    assert interior_point([[1.0], [-1.0]], [0.0, -2.0]).radius == pytest.approx(-1.0)
    assert interior_point(np.zeros((0, 3)), []).radius == np.inf


def test_redundant_rows() -> None:
    cube = np.concatenate([np.eye(3), -np.eye(3)])
    rows = np.concatenate([cube, [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [2.0, 0.0, 0.0], [1.0, 1.0, 1.0]]])
    bound = np.concatenate([np.ones(6), [3.0, 5.0, 2.0, 2.5]])
    # Touching a corner, far away, a copy of row 0: all redundant. The last one cuts a corner off.
    assert irredundant(rows, bound).tolist() == [0, 1, 2, 3, 4, 5, 9]
    assert irredundant(cube[:1], [1.0]).tolist() == [0]
    assert irredundant([[0.0, 0.0], [1.0, 0.0]], [1.0, 1.0]).tolist() == [1]
    with pytest.raises(InputError, match="no solution"):
        irredundant([[1.0], [-1.0]], [0.0, -1.0])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), d=st.integers(1, 5))
def test_irredundant_rows_suffice_and_are_needed(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(d + 1, 25))
    A = rng.normal(size=(m, d))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    b = rng.uniform(0.5, 1.5, m)
    kept = irredundant(A, b)
    for i in range(m):
        others = kept[kept != i]
        value = reference(A[i], A[others], b[others])[1] if len(others) else None
        beyond = value is None or value > b[i] + 1e-9
        assert beyond == (i in kept)
