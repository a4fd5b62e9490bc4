"""A small linear-programming kernel: the bounded-variable simplex method on a dense dictionary, compiled.

The variables are the `d` coordinates of `x` and the values `y_i = G[i, :d] . x + G[i, d]` of `n` affine functions; each
lies between a lower and an upper bound (either may be infinite). A *dictionary* writes the `n` basic variables as
affine functions of the `d` nonbasic ones, which sit at a bound (or, if free, at any fixed value):

    basic_i = D[d, i] + sum_j D[j, i] * (nonbasic_j - C[0, j]).

Layout (all arrays belong to the caller and are changed in place):

    D (d + 3, >= n)   rows 0..d-1 the coefficients, then value, lower and upper bound of the basic variables
    C (3, d)          value, lower and upper bound of the nonbasic variables
    basic (>= n), nonbasic (d)   variable numbers: 0..d-1 the coordinates, d + i the function i
    where (d + len(G))           row of a basic variable, -1 - column of a nonbasic one, GONE of one left out

A function with infinite bounds never blocks a step, so its row simply reports its value: one dictionary serves to
maximise any of its rows, starting from wherever the last search ended. There is no phase 1: a bound that the current point
violates is switched on after walking to it (`walk_to`).

Lengths are in units of `x` when the rows of `G` have unit norm; every caller normalises them. A step costs `n d`
multiplications, 0.1 to 0.3 us for d = 10 and n = 30.
"""

from __future__ import annotations

import numba as nb
import numpy as np

GONE = -(1 << 30)

# What a search ended with.
OPTIMAL = 0
BEYOND = 1
DOUBTFUL = 2

_DUAL = 1e-11
"""Reduced costs of unit rows up to this are zero, unless the answer hangs on them."""
_FINE_DUAL = 1e-14
"""... and up to this when it does."""
_PIVOT = 1e-11
"""A rate of change up to this does not block a step."""
_TIE = 1e-13
"""Steps that differ by this share of the cell's size are equal: the larger pivot is taken."""


@nb.njit(cache=True)
def exchange(D, C, basic, nonbasic, where, n, r, j, column):  # type: ignore[no-untyped-def]
    """Make basic row `r` nonbasic in column `j` and the other way round. `column` is scratch of length >= n."""
    d = C.shape[1]
    inverse = 1.0 / D[j, r]
    for i in range(n):
        column[i] = D[j, i]
    for q in range(d):
        if q != j:
            row = D[q]
            f = row[r] * inverse
            if f != 0.0:
                for i in range(n):
                    row[i] -= f * column[i]
            row[r] = -f
    row = D[j]
    for i in range(n):
        row[i] = column[i] * inverse
    row[r] = inverse
    for q in range(3):
        D[d + q, r], C[q, j] = C[q, j], D[d + q, r]
    leaving, entering = basic[r], nonbasic[j]
    basic[r], nonbasic[j] = entering, leaving
    where[entering], where[leaving] = r, -1 - j


@nb.njit(cache=True)
def drop_row(D, C, basic, where, n, r):  # type: ignore[no-untyped-def]
    """Forget the basic variable of row `r`; returns the new number of rows."""
    last = n - 1
    where[basic[r]] = GONE
    if r != last:
        for q in range(C.shape[1] + 3):
            D[q, r] = D[q, last]
        basic[r] = basic[last]
        where[basic[r]] = r
    return last


@nb.njit(cache=True)
def rebuild(G, D, C, basic, nonbasic, where, n, column):  # type: ignore[no-untyped-def]
    """Recompute the dictionary of the present nonbasic set from the data `G`, by elimination with complete pivoting.

    Bounds, and the values of nonbasic variables, are taken from the arrays as they are. Returns False when the
    set is not a basis (a pivot below 1e-10).
    """
    d = C.shape[1]
    total = len(where)
    value, low, up = np.empty(total), np.empty(total), np.empty(total)
    wanted = np.zeros(total, np.bool_)
    for i in range(n):
        low[basic[i]], up[basic[i]] = D[d + 1, i], D[d + 2, i]
    for j in range(d):
        v = nonbasic[j]
        value[v], low[v], up[v] = C[0, j], C[1, j], C[2, j]
        wanted[v] = True
    rows = 0
    for v in range(d, total):
        if where[v] != GONE:
            basic[rows] = v
            where[v] = rows
            rows += 1
    for j in range(d):
        nonbasic[j] = j
        where[j] = -1 - j
        C[0, j] = value[j] if wanted[j] else 0.0
        C[1, j], C[2, j] = low[j], up[j]
    for i in range(rows):
        v = basic[i]
        total_value = G[v - d, d]
        for q in range(d):
            D[q, i] = G[v - d, q]
            total_value += G[v - d, q] * C[0, q]
        D[d, i], D[d + 1, i], D[d + 2, i] = total_value, low[v], up[v]
    while True:
        best, r, j = 0.0, -1, -1
        missing = False
        for i in range(rows):
            if wanted[basic[i]]:
                missing = True
                for q in range(d):
                    if not wanted[nonbasic[q]] and abs(D[q, i]) > best:
                        best, r, j = abs(D[q, i]), i, q
        if not missing:
            return True
        if best < 1e-10:
            return False
        step = (value[basic[r]] - D[d, r]) / D[j, r]
        for i in range(rows):
            D[d, i] += step * D[j, i]
        C[0, j] += step
        D[d, r] = value[basic[r]]
        exchange(D, C, basic, nonbasic, where, rows, r, j, column)


@nb.njit(cache=True)
def entering_column(D, C, nonbasic, k, sign, dual, bland):  # type: ignore[no-untyped-def]
    """The column that raises `sign * row k` fastest (with `bland`, the one of lowest number), and its direction."""
    d = C.shape[1]
    best, column, direction = dual, -1, 1.0
    lowest = 1 << 30
    for q in range(d):
        gain = sign * D[q, k]
        if gain > dual:
            if C[0, q] < C[2, q]:
                if bland:
                    if nonbasic[q] < lowest:
                        lowest, column, direction = nonbasic[q], q, 1.0
                elif gain > best:
                    best, column, direction = gain, q, 1.0
        elif gain < -dual and C[0, q] > C[1, q]:
            if bland:
                if nonbasic[q] < lowest:
                    lowest, column, direction = nonbasic[q], q, -1.0
            elif -gain > best:
                best, column, direction = -gain, q, -1.0
    return column, direction


@nb.njit(cache=True, error_model="numpy")
def blocking_row(D, C, basic, n, j, direction, tie, bland):  # type: ignore[no-untyped-def]
    """How far column `j` may move, and the row that stops it (-1: its own other bound, or nothing if infinite)."""
    d = C.shape[1]
    rates, value, low, up = D[j], D[d], D[d + 1], D[d + 2]
    step, r, pivot = np.inf, -1, np.inf  # its own other bound needs no exchange: it wins ties
    if direction > 0.0:
        step = C[2, j] - C[0, j]
    else:
        step = C[0, j] - C[1, j]
    for i in range(n):
        rate = direction * rates[i]
        if rate > _PIVOT:
            room = up[i] - value[i]
            size = rate
        elif rate < -_PIVOT:
            room = value[i] - low[i]
            size = -rate
        else:
            continue
        if room == np.inf or room > (step + tie) * size:
            continue
        if room < 0.0:
            room = 0.0
        reach = room / size
        if reach < step - tie:
            better = True
        elif bland:
            better = r >= 0 and basic[i] < basic[r]
        else:
            better = size > pivot
        if better:
            step, r, pivot = reach, i, size
    return step, r


@nb.njit(cache=True)
def take_step(D, C, basic, nonbasic, where, n, r, j, direction, step, column):  # type: ignore[no-untyped-def]
    """Move column `j` by `step`; exchange it with row `r`, which lands on the bound it moved towards (r < 0: no exchange)."""
    d = C.shape[1]
    move = direction * step
    rates, value = D[j], D[d]
    if move != 0.0:
        for i in range(n):
            value[i] += move * rates[i]
    if r < 0:
        C[0, j] = C[2, j] if direction > 0.0 else C[1, j]
        return
    C[0, j] += move
    value[r] = D[d + 2, r] if direction * rates[r] > 0.0 else D[d + 1, r]
    exchange(D, C, basic, nonbasic, where, n, r, j, column)


@nb.njit(cache=True)
def search(D, C, basic, nonbasic, where, n, variable, sign, goal, tie, limit, fine, column, seen, first, n_seen):  # type: ignore[no-untyped-def]
    """Raise `sign * variable` from the present vertex until it passes `goal` or is at its largest.

    Returns (BEYOND | OPTIMAL | DOUBTFUL, steps taken, n_seen). The dictionary ends at a vertex beyond the goal (at the last
    vertex before it when the edge beyond is unbounded), at an optimal vertex, or wherever `limit` steps lead.
    Each vertex visited leaves the values of the variables `first, first + 1, ...` in the next row of `seen`, round robin;
    `n_seen` counts them all.
    """
    d = C.shape[1]
    dual = _FINE_DUAL if fine else _DUAL
    stalled = 0
    width, kept = seen.shape[1], seen.shape[0]
    for taken in range(limit):
        k = where[variable]
        bland = stalled > 2 * d + 10
        if k >= 0:
            if sign * D[d, k] > goal:
                return BEYOND, taken, n_seen
            j, direction = entering_column(D, C, nonbasic, k, sign, dual, bland)
            if j < 0:
                return OPTIMAL, taken, n_seen
        else:
            j, direction = -1 - k, sign
            if sign * C[0, j] > goal:
                return BEYOND, taken, n_seen
            if (sign > 0.0 and C[0, j] >= C[2, j]) or (sign < 0.0 and C[0, j] <= C[1, j]):
                return OPTIMAL, taken, n_seen
        step, r = blocking_row(D, C, basic, n, j, direction, tie, bland)
        if step == np.inf:
            # A point on the unbounded edge, well beyond the goal, is as good as a vertex there.
            if k >= 0:
                far = (goal - sign * D[d, k]) / abs(D[j, k])
            else:
                far = goal - sign * C[0, j]
            far = direction * (1.0 + 2.0 * far)
            if kept:
                at = n_seen % kept
                for q in range(width):
                    i = where[first + q]
                    if i >= 0:
                        seen[at, q] = D[d, i] + far * D[j, i]
                    elif i != GONE:
                        seen[at, q] = C[0, -1 - i] + (far if -1 - i == j else 0.0)
                n_seen += 1
            return BEYOND, taken, n_seen
        stalled = stalled + 1 if step <= tie else 0
        take_step(D, C, basic, nonbasic, where, n, r, j, direction, step, column)
        if kept:
            at = n_seen % kept
            for q in range(width):
                i = where[first + q]
                if i >= 0:
                    seen[at, q] = D[d, i]
                elif i != GONE:
                    seen[at, q] = C[0, -1 - i]
            n_seen += 1
    return DOUBTFUL, limit, n_seen


@nb.njit(cache=True)
def walk_to(D, C, basic, nonbasic, where, n, variable, target, tie, limit, column):  # type: ignore[no-untyped-def]
    """Walk to a point where `variable` equals `target` and make it nonbasic there.

    Returns (steps taken, or -1 when the target is out of reach or the limit came first, column of the variable). The
    bounds of the variable must allow it to pass the target.
    """
    d = C.shape[1]
    stalled = 0
    for taken in range(limit):
        k = where[variable]
        bland = stalled > 2 * d + 10
        if k < 0:
            # Nonbasic at another value (the variable has several break points): it moves itself.
            j = -1 - k
            direction = 1.0 if target > C[0, j] else -1.0
            step, r = blocking_row(D, C, basic, n, j, direction, tie, bland)
            if step >= abs(target - C[0, j]):
                step = abs(target - C[0, j])
                for i in range(n):
                    D[d, i] += direction * step * D[j, i]
                C[0, j] = target
                return taken, j
            if r < 0:
                return -1, -1
            take_step(D, C, basic, nonbasic, where, n, r, j, direction, step, column)
            stalled = stalled + 1 if step <= tie else 0
            continue
        ahead = target - D[d, k]
        if abs(ahead) <= tie:
            # On the target already: any column will do, the largest pivot is the safest.
            j, best = -1, 1e-7
            for q in range(d):
                if abs(D[q, k]) > best and C[1, q] < C[2, q]:
                    j, best = q, abs(D[q, k])
            if j < 0:
                return -1, -1
            move = ahead / D[j, k]
            for i in range(n):
                D[d, i] += move * D[j, i]
            C[0, j] += move
            D[d, k] = target
            exchange(D, C, basic, nonbasic, where, n, k, j, column)
            return taken, j
        sign = 1.0 if ahead > 0.0 else -1.0
        j, direction = entering_column(D, C, nonbasic, k, sign, _DUAL, bland)
        if j < 0:
            j, direction = entering_column(D, C, nonbasic, k, sign, _FINE_DUAL, bland)
        if j < 0:
            return -1, -1
        step, r = blocking_row(D, C, basic, n, j, direction, tie, bland)
        to_target = abs(ahead) / abs(D[j, k])
        if to_target <= step:
            move = direction * to_target
            for i in range(n):
                D[d, i] += move * D[j, i]
            C[0, j] += move
            D[d, k] = target
            exchange(D, C, basic, nonbasic, where, n, k, j, column)
            return taken, j
        stalled = stalled + 1 if step <= tie else 0
        take_step(D, C, basic, nonbasic, where, n, r, j, direction, step, column)
    return -1, -1


@nb.njit(cache=True)
def _two_product(a, b):  # type: ignore[no-untyped-def]
    """`a b` as a rounded product and its exact rounding error (Dekker)."""
    p = a * b
    s = 134217729.0 * a
    a1 = s - (s - a)
    a2 = a - a1
    s = 134217729.0 * b
    b1 = s - (s - b)
    b2 = b - b1
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


@nb.njit(cache=True)
def exact_value(G, D, C, nonbasic, where, variable, error, x):  # type: ignore[no-untyped-def]
    """Value of a basic function at the present basis, to second order in the dictionary's rounding, and its error.

    With `mu_j = D[j, k]`, `g` the data of the function and `g_j` those of nonbasic variable j, the residual
    `rho = g - sum_j mu_j g_j` would vanish without rounding, and `value = g_d + sum_j mu_j (value_j - g_jd) + rho . x`
    holds for any `mu`; all sums are taken in doubled precision. The second number is `sum_j |mu_j| error_j`: what the
    uncertainty of the data moves it by (`error` is per function; coordinates' bounds are exact). `x` is scratch (d,).
    """
    d = C.shape[1]
    k = where[variable]
    for q in range(d):
        i = where[q]
        x[q] = D[d, i] if i >= 0 else C[0, -1 - i]
    total, rest = G[variable - d, d], 0.0
    moved = 0.0
    for j in range(d):
        mu = D[j, k]
        if mu == 0.0:
            continue
        v = nonbasic[j]
        p, e = _two_product(mu, C[0, j])
        s = total + p
        z = s - total
        rest += ((total - (s - z)) + (p - z)) + e
        total = s
        if v >= d:
            moved += abs(mu) * error[v - d]
            p, e = _two_product(-mu, G[v - d, d])
            s = total + p
            z = s - total
            rest += ((total - (s - z)) + (p - z)) + e
            total = s
    for q in range(d):
        rho, rho_rest = G[variable - d, q], 0.0
        for j in range(d):
            v = nonbasic[j]
            if v >= d:
                p, e = _two_product(-D[j, k], G[v - d, q])
            elif v == q:
                p, e = -D[j, k], 0.0
            else:
                continue
            s = rho + p
            z = s - rho
            rho_rest += ((rho - (s - z)) + (p - z)) + e
            rho = s
        rest += (rho + rho_rest) * x[q]
    return total + rest, moved
