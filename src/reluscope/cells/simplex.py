"""A small linear-programming kernel: the bounded-variable simplex method on a dense dictionary, compiled.

The variables are the `d` coordinates of `x` and the values `y_i = G[i, :d] . x + G[i, d]` of some affine
functions; each lies between a lower and an upper bound (either may be infinite). A *dictionary* writes `n`
basic variables as affine functions of the `d` nonbasic ones, which sit at a bound (or, if free, at any fixed
value):

    basic_i = D[d, i] + sum_j D[j, i] * (nonbasic_j - C[0, j]).

A function with infinite bounds never blocks a step, so its row simply reports its value: one dictionary
serves to maximise any of its rows, starting from wherever the last search ended. There is no phase 1: a bound
that the current point violates is switched on after walking to it (`walk_to`; `first_point` does so for all
of them).

Rows of `G` have unit norm, and tolerances are meant for coordinates of order 1: callers scale. Pivoting is
deterministic: the steepest reduced cost, ties to the larger pivot, Bland's rule when steps stay at zero. What
cannot be decided within a number of steps is called DOUBTFUL, for a more careful solver. A step costs `n d`
multiplications: 0.1 to 0.3 us for d = 10 and n = 30.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import apart, inner

GONE = -(1 << 30)
"""`where` of a variable that is left out."""

OPTIMAL = 0
BEYOND = 1
DOUBTFUL = 2

DUAL = 1e-11
"""Reduced costs up to this are zero, unless the answer hangs on them."""
FINE_DUAL = 1e-14
"""... and up to this when it does."""
TIE = 1e-13
"""Steps that differ by this are equal: the larger pivot is taken."""
SURE = 1e-9
"""Values further apart than this differ, whatever rounding did to the dictionary."""
WEAK = 1e-6
"""A dictionary made with a smaller pivot is not exact enough for SURE: the search is DOUBTFUL."""
MOST_MOVED = 1.0
"""The tolerance of a facet is allowed to move an optimum by at most this many times as much. At the tip of a sliver,
between two hyperplanes that nearly coincide, it could be any number: then no cut there would count."""
_ZERO = 1e-14
"""A rate of change up to this is rounding, and does not block a step."""


class Dictionary(NamedTuple):
    """The arrays of a dictionary with `d` columns and room for some number of rows; all are changed in place.

    `D` (d + 3, rows) holds the coefficients, then value, lower and upper bound of the basic variables; `C`
    (3, d) the value, lower and upper bound of the nonbasic ones; `basic` and `nonbasic` their numbers (0..d-1
    the coordinates, d + i function i); `where` the row of a basic variable, -1 - column of a nonbasic one,
    GONE if left out.
    """

    D: FloatArray
    C: FloatArray
    basic: npt.NDArray[np.int64]
    nonbasic: npt.NDArray[np.int64]
    where: npt.NDArray[np.int64]


@inner
def new_dictionary(d, rows):  # type: ignore[no-untyped-def]
    """Arrays for a dictionary with at most `rows` rows."""
    return Dictionary(
        np.empty((d + 3, rows)),
        np.empty((3, d)),
        np.empty(rows, np.int64),
        np.empty(d, np.int64),
        np.empty(d + rows, np.int64),
    )


@inner
def exchange(at, n, r, j, column):  # type: ignore[no-untyped-def]
    """Make basic row `r` nonbasic in column `j` and the other way round. `column` is scratch of length >=
    n."""
    D, C = at.D, at.C
    d = C.shape[1]
    inverse = 1.0 / D[j, r]
    for i in range(n):
        column[i] = D[j, i]
    for q in range(d):
        if q != j:
            f = D[q, r] * inverse
            if f != 0.0:
                for i in range(n):
                    D[q, i] -= f * column[i]
            D[q, r] = -f
    for i in range(n):
        D[j, i] = column[i] * inverse
    D[j, r] = inverse
    for q in range(3):
        D[d + q, r], C[q, j] = C[q, j], D[d + q, r]
    leaving, entering = at.basic[r], at.nonbasic[j]
    at.basic[r], at.nonbasic[j] = entering, leaving
    at.where[entering], at.where[leaving] = r, -1 - j


@inner
def shift(at, n, j, move):  # type: ignore[no-untyped-def]
    """Move the variable of column `j` by `move`."""
    D, d = at.D, at.C.shape[1]
    if move != 0.0:
        for i in range(n):
            D[d, i] += move * D[j, i]
        at.C[0, j] += move


@inner
def drop_row(at, n, r):  # type: ignore[no-untyped-def]
    """Forget the basic variable of row `r`; returns the new number of rows."""
    last = n - 1
    at.where[at.basic[r]] = GONE
    if r != last:
        for q in range(at.C.shape[1] + 3):
            at.D[q, r] = at.D[q, last]
        at.basic[r] = at.basic[last]
        at.where[at.basic[r]] = r
    return last


@apart
def rebuild(at, G, functions, column):  # type: ignore[no-untyped-def]
    """Recompute the dictionary of the present nonbasic set from the data, by elimination with complete
    pivoting.

    Bounds, and the values of nonbasic variables, are taken from the arrays as they are. Returns the number of
    rows, or -1 when the set is not a basis, or nearly so (a pivot below WEAK).
    """
    D, C, basic, nonbasic, where = at
    d = C.shape[1]
    total = d + functions
    value, low, up = np.empty(total), np.empty(total), np.empty(total)
    wanted = np.zeros(total, np.bool_)
    rows = -d
    for v in range(total):
        i = where[v]
        if i == GONE:
            continue
        rows += 1
        if i >= 0:
            low[v], up[v] = D[d + 1, i], D[d + 2, i]
        else:
            value[v], low[v], up[v] = C[0, -1 - i], C[1, -1 - i], C[2, -1 - i]
            wanted[v] = True
    n: Any = np.int64(0)  # typed: a literal would compile every callee once more
    for v in range(d, total):
        if where[v] != GONE:
            basic[n] = v
            where[v] = n
            n += 1
    for q in range(d):
        nonbasic[q] = q
        where[q] = -1 - q
        C[0, q] = value[q] if wanted[q] else 0.0
        C[1, q], C[2, q] = low[q], up[q]
    for i in range(n):
        v = basic[i]
        at_zero = G[v - d, d]
        for q in range(d):
            D[q, i] = G[v - d, q]
            at_zero += G[v - d, q] * C[0, q]
        D[d, i], D[d + 1, i], D[d + 2, i] = at_zero, low[v], up[v]
    while True:
        best = 0.0
        r: Any = np.int64(-1)
        j: Any = np.int64(-1)
        missing = False
        for i in range(n):
            if wanted[basic[i]]:
                missing = True
                for q in range(d):
                    if not wanted[nonbasic[q]] and abs(D[q, i]) > best:
                        best, r, j = abs(D[q, i]), i, q
        if not missing:
            return n
        if best < WEAK:
            return -1
        target = value[basic[r]]
        shift(at, n, j, (target - D[d, r]) / D[j, r])
        D[d, r] = target
        exchange(at, n, r, j, column)


@inner
def entering_column(at, k, sign, dual, bland):  # type: ignore[no-untyped-def]
    """The column that raises `sign * row k` fastest (with `bland`, the one of lowest number), and its
    direction."""
    D, C = at.D, at.C
    best, direction = dual, 1.0
    column: Any = np.int64(-1)
    lowest = 1 << 30
    for q in range(C.shape[1]):
        gain = sign * D[q, k]
        if gain > dual and C[0, q] < C[2, q]:
            way = 1.0
        elif gain < -dual and C[0, q] > C[1, q]:
            way = -1.0
        else:
            continue
        if bland:
            if at.nonbasic[q] < lowest:
                lowest, column, direction = at.nonbasic[q], q, way
        elif way * gain > best:
            best, column, direction = way * gain, q, way
    return column, direction


@inner
def blocking_row(at, n, j, direction, bland):  # type: ignore[no-untyped-def]
    """How far column `j` may move, and the row that stops it (-1: its own other bound, or nothing if
    infinite)."""
    D, C, basic = at.D, at.C, at.basic
    d = C.shape[1]
    step = C[2, j] - C[0, j] if direction > 0.0 else C[0, j] - C[1, j]
    r: Any = np.int64(-1)
    pivot = np.inf  # its own other bound needs no exchange: it wins ties
    for i in range(n):
        rate = direction * D[j, i]
        if rate > _ZERO:
            room = D[d + 2, i] - D[d, i]
        elif rate < -_ZERO:
            room = D[d, i] - D[d + 1, i]
            rate = -rate
        else:
            continue
        if room == np.inf or room > (step + TIE) * rate:
            continue
        reach = max(room, 0.0) / rate
        if reach >= step - TIE:
            if bland:
                if r < 0 or basic[i] >= basic[r]:
                    continue
            elif rate <= pivot:
                continue
        step, r, pivot = reach, i, rate
    return step, r


@inner
def take_step(at, n, r, j, direction, step, column):  # type: ignore[no-untyped-def]
    """Move column `j` by `step`; exchange it with row `r`, which lands on the bound it moved towards (r < 0:
    none)."""
    D, C = at.D, at.C
    d = C.shape[1]
    shift(at, n, j, direction * step)
    if r < 0:
        C[0, j] = C[2, j] if direction > 0.0 else C[1, j]
        return
    D[d, r] = D[d + 2, r] if direction * D[j, r] > 0.0 else D[d + 1, r]
    exchange(at, n, r, j, column)


@inner
def note(at, seen, n_seen, first, j, move):  # type: ignore[no-untyped-def]
    """Write the values of the variables `first, ...`, when column `j` has moved on by `move`, to the next row
    of `seen`.

    The rows are used round robin; returns `n_seen + 1`.
    """
    kept = len(seen)
    if kept == 0:
        return n_seen
    D, d = at.D, at.C.shape[1]
    row = n_seen % kept
    for q in range(seen.shape[1]):
        i = at.where[first + q]
        if i >= 0:
            seen[row, q] = D[d, i] + move * D[j, i] if move != 0.0 else D[d, i]
        elif i != GONE:
            seen[row, q] = at.C[0, -1 - i] + (move if -1 - i == j else 0.0)
    return n_seen + 1


@inner
def search(at, n, variable, sign, goal, dual, limit, column, seen, n_seen, first):  # type: ignore[no-untyped-def]
    """Raise `sign * variable` from the present vertex until it exceeds `goal` or is at its largest.

    Returns (status, steps taken, n_seen). The dictionary ends at a vertex beyond the goal (BEYOND; at the
    last vertex before it when the edge beyond is unbounded), at an optimal vertex (OPTIMAL), or wherever
    `limit` steps lead (DOUBTFUL). Each point visited is noted in `seen`.
    """
    D, C = at.D, at.C
    d = C.shape[1]
    stalled = 0
    for taken in range(limit):
        k = at.where[variable]
        bland = stalled > 2 * d + 10
        if k >= 0:
            if sign * D[d, k] > goal:
                return BEYOND, taken, n_seen
            j, direction = entering_column(at, k, sign, dual, bland)
            if j < 0:
                return OPTIMAL, taken, n_seen
        else:
            j, direction = -1 - k, sign
            if sign * C[0, j] > goal:
                return BEYOND, taken, n_seen
            if (sign > 0.0 and C[0, j] >= C[2, j]) or (sign < 0.0 and C[0, j] <= C[1, j]):
                return OPTIMAL, taken, n_seen
        step, r = blocking_row(at, n, j, direction, bland)
        if step == np.inf:
            # A point on the unbounded edge, well beyond the goal, is as good as a vertex there.
            if k >= 0:
                if abs(D[j, k]) <= SURE:  # where that leads, rounding decides
                    return DOUBTFUL, taken, n_seen
                far = (goal - sign * D[d, k]) / abs(D[j, k])
            else:
                far = goal - sign * C[0, j]
            return BEYOND, taken, note(at, seen, n_seen, first, j, direction * (1.0 + 2.0 * far))
        if r >= 0 and abs(D[j, r]) < WEAK:
            return DOUBTFUL, taken, n_seen
        stalled = stalled + 1 if step <= TIE else 0
        take_step(at, n, r, j, direction, step, column)
        n_seen = note(at, seen, n_seen, first, j, 0.0)
    return DOUBTFUL, limit, n_seen


@apart
def walk_to(at, n, variable, target, limit, column):  # type: ignore[no-untyped-def]
    """Walk to a point where `variable` equals `target` and make it nonbasic there.

    Returns (steps taken, column of the variable); -1 steps when the target is out of reach or the limit came
    first. The variable's own bounds must let it pass the target.
    """
    D, C = at.D, at.C
    d = C.shape[1]
    stalled = 0
    for taken in range(limit):
        k = at.where[variable]
        bland = stalled > 2 * d + 10
        if k < 0:
            # Nonbasic at another value (the variable has several break points): it moves itself.
            j = -1 - k
            ahead = target - C[0, j]
            direction = 1.0 if ahead > 0.0 else -1.0
            rate = 1.0
        else:
            ahead = target - D[d, k]
            sign = 1.0 if ahead > 0.0 else -1.0
            if abs(ahead) <= TIE:
                # On the target already: any column will do, the largest pivot is the safest.
                j, rate, direction = np.int64(-1), WEAK, 1.0
                for q in range(d):
                    if abs(D[q, k]) > rate and C[1, q] < C[2, q]:
                        j, rate = q, abs(D[q, k])
                if j >= 0:
                    shift(at, n, j, ahead / D[j, k])
                    D[d, k] = target
                    exchange(at, n, k, j, column)
                    return taken, j
            j, direction = entering_column(at, k, sign, DUAL, bland)
            if j < 0:
                j, direction = entering_column(at, k, sign, FINE_DUAL, bland)
                if j < 0:
                    return -1, -1
            rate = abs(D[j, k])
        step, r = blocking_row(at, n, j, direction, bland)
        if abs(ahead) <= step * rate:
            shift(at, n, j, direction * (abs(ahead) / rate))
            if k < 0:
                C[0, j] = target
            elif rate < WEAK:
                return -1, -1
            else:
                D[d, k] = target
                exchange(at, n, k, j, column)
            return taken, j
        if r >= 0 and abs(D[j, r]) < WEAK:
            return -1, -1
        stalled = stalled + 1 if step <= TIE else 0
        take_step(at, n, r, j, direction, step, column)
    return -1, -1


@inner
def two_product(a, b):  # type: ignore[no-untyped-def]
    """`a b` as a rounded product and its exact rounding error (Dekker)."""
    p = a * b
    s = 134217729.0 * a
    a1 = s - (s - a)
    a2 = a - a1
    s = 134217729.0 * b
    b1 = s - (s - b)
    b2 = b - b1
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


@inner
def _add_product(total, rest, a, b):  # type: ignore[no-untyped-def]
    """Add `a b` to the doubled-precision sum `total + rest`."""
    p, e = two_product(a, b)
    s = total + p
    z = s - total
    return s, rest + (((total - (s - z)) + (p - z)) + e)


@apart
def exact_value(at, G, variable, error):  # type: ignore[no-untyped-def]
    """Value of a basic variable at the present basis, to second order in the dictionary's rounding, and its
    error.

    With `mu_j = D[j, k]`, `g` the data of the variable and `g_j` those of nonbasic variable j, the residual
    `rho = g - sum_j mu_j g_j` would vanish without rounding, and

        value = g_d + sum_j mu_j (value_j - g_jd) + rho . x

    holds for any `mu`; the sums are taken in doubled precision. The second number is `sum_j |mu_j| error_j`:
    how far the uncertainty of the data moves the value (with `|mu|` up to MOST_MOVED; `error` is per function;
    bounds of coordinates are exact).
    """
    D, C, nonbasic, where = at.D, at.C, at.nonbasic, at.where
    d = C.shape[1]
    k = where[variable]
    total, rest, moved = 0.0, 0.0, 0.0
    if variable >= d:
        total = G[variable - d, d]
    for j in range(d):
        mu = D[j, k]
        if mu != 0.0:
            total, rest = _add_product(total, rest, mu, C[0, j])
            v = nonbasic[j]
            if v >= d:
                total, rest = _add_product(total, rest, -mu, G[v - d, d])
                moved += min(abs(mu), MOST_MOVED) * error[v - d]
    for q in range(d):
        rho, rho_rest = 0.0, 0.0
        if variable >= d:
            rho = G[variable - d, q]
        elif variable == q:
            rho = 1.0
        for j in range(d):
            v = nonbasic[j]
            if v >= d:
                rho, rho_rest = _add_product(rho, rho_rest, -D[j, k], G[v - d, q])
            elif v == q:
                rho, rho_rest = _add_product(rho, rho_rest, -D[j, k], 1.0)
        i = where[q]
        rest += (rho + rho_rest) * (D[d, i] if i >= 0 else C[0, -1 - i])
    return total + rest, moved


@apart
def gets_beyond(at, n, G, variable, sign, t, tol, error, limit, column, seen, n_seen, first):  # type: ignore[no-untyped-def]
    """Whether `sign * (variable - t)` exceeds the tolerance somewhere: (BEYOND | OPTIMAL | DOUBTFUL, steps,
    n_seen).

    OPTIMAL says no. When the optimum is close to `t`, the search goes on with reduced costs that are normally
    taken for zero, and the optimum is computed afresh from the data; its tolerance is `tol` plus what the
    errors of the facets at the optimal vertex may move it by. An optimum that is neither that close nor
    SURE to be apart is DOUBTFUL: the vertex may not be the right one.
    """
    D, C, where = at.D, at.C, at.where
    d = C.shape[1]
    goal = sign * t + tol + SURE
    status, steps, n_seen = search(at, n, variable, sign, goal, DUAL, limit, column, seen, n_seen, first)
    if status != OPTIMAL:
        return status, steps, n_seen
    k = where[variable]
    if k >= 0:
        if sign * (D[d, k] - t) <= -SURE:
            return OPTIMAL, steps, n_seen
        status, more, n_seen = search(at, n, variable, sign, goal, FINE_DUAL, 4 * d + 20, column, seen, n_seen, first)
        steps += more
        if status != OPTIMAL:
            return status, steps, n_seen
        k = where[variable]
    if k >= 0:
        value, moved = exact_value(at, G, variable, error)
    else:
        value, moved = C[0, -1 - k], 0.0
    return (OPTIMAL if abs(value - t) <= tol + moved else DOUBTFUL), steps, n_seen


@inner
def start_at_corner(at, lower, upper, origin, G, functions):  # type: ignore[no-untyped-def]
    """The dictionary with all coordinates nonbasic: at a finite bound, or at `origin` where there is none."""
    D, C, basic, nonbasic, where = at
    d = C.shape[1]
    for q in range(d):
        nonbasic[q], where[q] = q, -1 - q
        C[1, q], C[2, q] = lower[q], upper[q]
        if lower[q] > -np.inf:
            C[0, q] = lower[q]
        elif upper[q] < np.inf:
            C[0, q] = upper[q]
        else:
            C[0, q] = origin[q]
    for i in range(functions):
        basic[i], where[d + i] = d + i, i
        value = G[i, d]
        for q in range(d):
            D[q, i] = G[i, q]
            value += G[i, q] * C[0, q]
        D[d, i], D[d + 1, i], D[d + 2, i] = value, -np.inf, np.inf


@inner
def first_point(at, n, up, error, G, limit, column):  # type: ignore[no-untyped-def]
    """Switch on the upper bounds `up` of the functions, one after the other: OPTIMAL when all hold, BEYOND
    when they cannot.

    From a dictionary in which the functions have no bounds. BEYOND means that some bound is exceeded
    everywhere by more than the tolerance (its own `error` and that of the facets in the way).
    """
    D, C, where = at.D, at.C, at.where
    d = C.shape[1]
    none, zero = np.empty((0, 0)), np.int64(0)
    for i in range(len(up)):
        if up[i] == np.inf:
            continue
        k = where[d + i]
        value = D[d, k] if k >= 0 else C[0, -1 - k]
        if value > up[i]:
            status, _, _ = search(at, n, d + i, -1.0, -up[i], DUAL, limit, column, none, zero, zero)
            if status == DOUBTFUL:
                return DOUBTFUL
            k = where[d + i]
            value = D[d, k] if k >= 0 else C[0, -1 - k]
            if status == OPTIMAL and value > up[i]:
                moved = 0.0
                if k >= 0:
                    value, moved = exact_value(at, G, d + i, error)
                if value - up[i] > error[i] + moved:
                    return BEYOND
                if value > up[i] and k >= 0:
                    D[d, k] = up[i]
            elif value > up[i]:
                # The edge beyond the bound is unbounded: stop on it.
                steps, _ = walk_to(at, n, d + i, up[i], limit, column)
                if steps < 0:
                    return DOUBTFUL
            k = where[d + i]
        if k >= 0:
            D[d + 2, k] = up[i]
        else:
            C[2, -1 - k] = up[i]
    return OPTIMAL


@nb.njit(cache=True, error_model="numpy")
def maximise_small(c, A, b, lower, upper):  # type: ignore[no-untyped-def]
    """Maximise `c . x` over `A x <= b`, `lower <= x <= upper`: (status, value, x, multipliers of the rows).

    Rows of `A` have unit norm. status 0 optimal, 1 unbounded, 2 infeasible, 3 doubtful. The value is
    recomputed in doubled precision from the optimal basis; the multipliers are those of the rows that are
    tight there.
    """
    rows, d = A.shape
    G, error, up = np.zeros((rows + 1, d + 1)), np.zeros(rows + 1), np.full(rows + 1, np.inf)
    size = 0.0
    for q in range(d):
        G[rows, q] = c[q]
        size += c[q] * c[q]
    size = np.sqrt(size)
    for i in range(rows):
        for q in range(d):
            G[i, q] = A[i, q]
        up[i] = b[i]
        error[i] = 4e-16 * (1.0 + abs(b[i]))
    x, multipliers = np.zeros(d), np.zeros(rows)
    for q in range(d):
        if size > 0.0:
            G[rows, q] /= size
    at, column = new_dictionary(d, rows + 1), np.empty(rows + 1)
    start_at_corner(at, lower, upper, x, G, rows + 1)
    limit = 200 + 20 * (rows + d)
    n = rows + 1
    none, zero = np.empty((0, 0)), np.int64(0)
    status = first_point(at, n, up, error, G, limit, column)
    if status != OPTIMAL:
        return (2 if status == BEYOND else 3), np.nan, x, multipliers
    objective = d + rows
    status, _, _ = search(at, n, objective, 1.0, np.inf, DUAL, limit, column, none, zero, zero)
    if status == DOUBTFUL:
        return 3, np.nan, x, multipliers
    if status == BEYOND:
        return 1, np.inf, x, multipliers
    search(at, n, objective, 1.0, np.inf, FINE_DUAL, 4 * d + 20, column, none, zero, zero)
    for q in range(d):
        i = at.where[q]
        x[q] = at.D[d, i] if i >= 0 else at.C[0, -1 - i]
    value, _ = exact_value(at, G, objective, error)
    k = at.where[objective]
    for j in range(d):
        if at.nonbasic[j] >= d:
            multipliers[at.nonbasic[j] - d] = size * at.D[j, k]
    worst = 0.0
    for i in range(rows):
        y = -b[i]
        for q in range(d):
            y += A[i, q] * x[q]
        worst = max(worst, y / (1.0 + abs(b[i])))
    return (0 if worst <= SURE else 3), size * value, x, multipliers
