"""Scrambled Sobol points for compiled loops: a direction table from SciPy, a random scramble, and a small generator.

A Sobol point is an exclusive-or of direction numbers, so a scrambled sequence is just a scrambled table: the
random lower-triangular matrix (Matoušek's linear scramble) is applied once to the table and the random digital
shift once to the first point; each further point costs one exclusive-or per dimension.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from reluscope.measure.polytope.lanes import (
    ALIVE,
    CENTRE,
    CONTROL,
    GUIDED_LOG,
    HIGH,
    LEFT,
    LOW,
    RIGHT,
    ROOM,
    TILTED_LOG,
    WEIGHT,
    V,
    X,
    begin,
    bury,
    combine,
    count_guided,
    count_tilted,
    draw_lanes,
    interval_lanes,
    keep,
    restore,
    settle,
    step,
    tighten,
    weigh,
    widest,
)
from reluscope.measure.polytope.rays import basis_cost, radius_table, ray_block, scaled_rows
from reluscope.measure.polytope.tilt import (
    LANES,
    gaussian_factors,
    log_interval,
    log_upper_tail,
    proposals,
    triangular_rows,
    unit_rows,
)

DIGITS = 52
"""Binary digits of a point: all of a float64 fraction, so that a half-step offset keeps it inside (0, 1)."""

DirectionTable = npt.NDArray[np.uint64]


@lru_cache(maxsize=8)
def direction_table(dimensions: int, bits: int) -> DirectionTable:
    """Direction numbers of the first `dimensions` Sobol sequences, shape (dimensions, bits), leading digit 2**51.

    Enough for 2**bits points. Read off SciPy's unscrambled sequence: in Gray-code order, points 2**j - 1 and 2**j
    differ exactly by direction number j. The result is read-only and cached.
    """
    from scipy.stats import qmc

    sequence = qmc.Sobol(dimensions, scramble=False, bits=30)
    table = np.zeros((dimensions, bits), dtype=np.uint64)
    before, after = sequence.random(1), sequence.random(1)
    for j in range(bits):
        if j == 1:
            before, after = after, sequence.random(1)
        elif j > 1:  # from just behind point 2**(j-1) to points 2**j - 1 and 2**j
            sequence.fast_forward((1 << (j - 1)) - 2)
            before, after = sequence.random(1), sequence.random(1)
        table[:, j] = ((before * 2.0**DIGITS).astype(np.uint64) ^ (after * 2.0**DIGITS).astype(np.uint64))[0]
    table.setflags(write=False)
    return table


@njit(cache=True, nogil=True)
def next_random(state: Any) -> Any:
    """Next 64 random bits of the splitmix64 generator whose state is `state[0]` (uint64, updated in place)."""
    state[0] = state[0] + np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def scramble(table: Any, dimensions: int, bits: int, state: Any, directions: Any, point: Any) -> None:
    """Write a randomly scrambled copy of `table` into `directions` and its first point into `point` (uint64)."""
    columns = np.empty(bits, dtype=np.uint64)
    top = np.uint64(1) << np.uint64(DIGITS - 1)
    for d in range(dimensions):
        for c in range(bits):  # column c of a unit lower-triangular random binary matrix
            lead = top >> np.uint64(c)
            columns[c] = lead | (next_random(state) & (lead - np.uint64(1)))
        for j in range(bits):
            word = table[d, j]
            mixed = np.uint64(0)
            for c in range(j + 1):
                if word & (top >> np.uint64(c)):
                    mixed ^= columns[c]
            directions[d, j] = mixed
        point[d] = next_random(state) >> np.uint64(64 - DIGITS)


@njit(cache=True, nogil=True)
def trailing_ones(index: int) -> int:
    """Position of the lowest zero bit of `index`: the direction number that leads from this point to the next."""
    j = 0
    while index & 1:
        index >>= 1
        j += 1
    return j


REPLICATES = 16
"""Independently scrambled copies of the point set; their spread is the error estimate."""

BRANCHES = 4
"""Values of the last but one coordinate tried for each draw of those before it, evenly spread: nearly free."""

PILOT_BLOCKS = 16

ROUGH = 0.1
"""From this relative error on a short pilot and the fewest points will do."""

RAY_PILOT = 8
"""Blocks of LANES bases that show how well rays would do."""

LEAST_RAY_MASS = 1e-4
"""Rays are not tried below: too few of them would see the mass."""

EMPTY, EXACT, TILTED, GUIDED, PLAIN, MISSED, RAYS = 0, 1, 2, 3, 4, 5, 6


@njit(cache=True, nogil=True, error_model="numpy")
def walk(
    L: Any,
    lo: Any,
    hi: Any,
    ends: Any,
    sides: Any,
    family: Any,
    slope: Any,
    guided: bool,
    both: bool,
    uniforms: Any,
    y: Any,
    along: Any,
    room: Any,
) -> None:
    """Draw all but the last two coordinates of LANES points `y` (rank, LANES) from one family.

    The state in `room` gets the ratios φ/q of the families; lanes that met an empty interval are dead (their ratios
    stay as they were, which is what the control variate needs). `along` (m + 1, LANES) gets the products of the rows
    not yet ended with what is drawn, and in its last row the guided mean of what comes next. Only the ratio of the
    family drawn from is filled unless `both`.
    """
    m = L.shape[0]
    rank = y.shape[0]
    begin(room)
    row = 0
    stop = max(rank - 2, 0)
    for k in range(stop):
        widest(room)
        while row < m and ends[row] == k:
            for w in range(LANES):
                along[row, w] = 0.0
            combine(along, row, L, row, y, k)
            tighten(lo[row], hi[row], L[row, k], along, row, room)
            row += 1
        for w in range(LANES):
            room[CENTRE, w] = family[1, k]
            room[V, w] = uniforms[k, w]
        if guided or both:
            combine(room, CENTRE, slope, k, y, k)
        step(k, sides[k], family[0, k], family[2, k], guided, both, y, room)
    for i in range(row, m):
        for w in range(LANES):
            along[i, w] = 0.0
        combine(along, i, L, i, y, stop)
    if rank > 1:
        for w in range(LANES):
            along[m, w] = family[1, stop]
        combine(along, m, slope, stop, y, stop)


@njit(cache=True, nogil=True, error_model="numpy")
def finish(
    L: Any,
    lo: Any,
    hi: Any,
    ends: Any,
    sides: Any,
    family: Any,
    guided: bool,
    both: bool,
    need_last: bool,
    uniforms: Any,
    branch: float,
    y: Any,
    along: Any,
    room: Any,
) -> None:
    """The last two coordinates: one drawn at its uniform moved on by `branch` (modulo 1), the last integrated exactly.

    Updates the state: `keep` and `restore` it when branching. The last coordinate is drawn only if `need_last`.
    """
    m = L.shape[0]
    rank = y.shape[0]
    row = m
    first = max(rank - 2, 0)
    while row > 0 and ends[row - 1] >= first:
        row -= 1
    if rank > 1:
        k = rank - 2
        widest(room)
        for w in range(LANES):
            room[CENTRE, w] = along[m, w]
            moved = uniforms[k, w] + branch
            room[V, w] = moved - 1.0 if moved >= 1.0 else moved
        while row < m and ends[row] == k:
            tighten(lo[row], hi[row], L[row, k], along, row, room)
            row += 1
        step(k, sides[k], family[0, k], family[2, k], guided, both, y, room)
    k = rank - 1
    widest(room)
    for i in range(row, m):
        end = L[i, k]
        entry = L[i, k - 1] / end if k > 0 else 0.0
        inverse = 1.0 / end
        before = k - 1 if k > 0 else 0
        if hi[i] < np.inf:
            for w in range(LANES):
                bound = (hi[i] - along[i, w]) * inverse - entry * y[before, w]
                room[HIGH, w] = bound if bound < room[HIGH, w] else room[HIGH, w]
        if lo[i] > -np.inf:
            for w in range(LANES):
                bound = (lo[i] - along[i, w]) * inverse - entry * y[before, w]
                room[LOW, w] = bound if bound > room[LOW, w] else room[LOW, w]
    bury(room)
    for w in range(LANES):
        room[LEFT, w] = room[LOW, w]
        room[RIGHT, w] = room[HIGH, w]
    if need_last:
        for w in range(LANES):
            room[V, w] = uniforms[k, w]
        odd = draw_lanes(room)
        for w in range(LANES):
            y[k, w] = room[X, w]
    else:
        odd = interval_lanes(room)
    count_tilted(room, odd)
    count_guided(room, odd)


@njit(cache=True, nogil=True, error_model="numpy")
def mixture_weight(log_tilted: float, log_guided: float, share: float) -> tuple[float, float]:
    """log φ/q and the control q_tilted/q for the mixture q = share q_tilted + (1 - share) q_guided."""
    if share >= 1.0:
        return log_tilted, 1.0
    gap = log_tilted - log_guided  # log q_guided / q_tilted
    if gap > 0.0:
        other = math.exp(-gap)
        total = share * other + 1.0 - share
        return log_guided - math.log(total), other / total
    total = share + (1.0 - share) * math.exp(gap)
    return log_tilted - math.log(total), 1.0 / total


@njit(cache=True, nogil=True, error_model="numpy")
def choose_mixture(pilot: Any, guided: bool) -> tuple[int, float, float]:
    """Guided points per tilted one (0, 1, 4 or 8), the coefficient of the control variate, and a log scale.

    `pilot` (2, P, 3) holds log ratios (tilted, guided) and life at P points of each family. The variance of any
    mixture can be read off them; the one with the least variance times cost wins. The control variate
    q_tilted/q - 1, of mean zero, takes away what the tilted share adds to the variance (Owen & Zhou 2000); its
    coefficient is in units of e^scale. The scale is -inf if no point of the pilot is alive.
    """
    size = pilot.shape[1]
    scale = -np.inf
    for f in range(2):
        for i in range(size):
            if pilot[f, i, 2] > 0.0:
                scale = max(scale, mixture_weight(pilot[f, i, 0], pilot[f, i, 1], 0.5)[0])
    best_ratio = 4 if guided else 0
    best_coefficient = 0.0
    best_cost = np.inf
    if scale == -np.inf:
        return best_ratio, best_coefficient, scale
    weight = np.empty((2, size))
    control = np.empty((2, size))
    for ratio in (0, 1, 4, 8):
        if ratio > 0 and not guided:
            break
        share = 1.0 / (1.0 + ratio)
        mean_weight = np.zeros(2)
        mean_control = np.zeros(2)
        for f in range(2 if ratio else 1):
            for i in range(size):
                log_weight, control[f, i] = mixture_weight(pilot[f, i, 0], pilot[f, i, 1], share)
                weight[f, i] = math.exp(min(log_weight - scale, 300.0)) if pilot[f, i, 2] > 0.0 else 0.0
                mean_weight[f] += weight[f, i] / size
                mean_control[f] += control[f, i] / size
        cross = 0.0
        square = 0.0
        spread = 0.0
        for f in range(2 if ratio else 1):
            part = share if f == 0 else 1.0 - share
            for i in range(size):
                dw = weight[f, i] - mean_weight[f]
                dc = control[f, i] - mean_control[f]
                cross += part * dw * dc
                square += part * dc * dc
                spread += part * dw * dw
        mean = share * mean_weight[0] + (1.0 - share) * mean_weight[1]
        if not mean > 0.0:
            continue
        coefficient = 0.0
        if square > 1e-12 * size:
            coefficient = cross / square
            spread -= coefficient * cross
        cost = spread / (mean * mean) * (0.6 if ratio == 0 else 1.0)
        if cost < best_cost:
            best_ratio, best_coefficient, best_cost = ratio, coefficient, cost
    return best_ratio, best_coefficient, scale


@njit(cache=True, nogil=True, error_model="numpy")
def _fit_last(E: Any, chosen: Any, size: int, Q: Any, R: Any, x: Any) -> None:
    """Least-squares x for the last unit vector in terms of the chosen columns of E, by twice-done Gram-Schmidt.

    A column that depends on those before it gets the coefficient 0.
    """
    rows = E.shape[0]
    for q in range(size):
        for j in range(rows):
            Q[q, j] = E[j, chosen[q]]
        for p in range(q):
            R[p, q] = 0.0
        for _ in range(2):
            for p in range(q):
                dot = 0.0
                for j in range(rows):
                    dot += Q[p, j] * Q[q, j]
                for j in range(rows):
                    Q[q, j] -= dot * Q[p, j]
                R[p, q] += dot
        norm = 0.0
        for j in range(rows):
            norm += Q[q, j] * Q[q, j]
        norm = math.sqrt(norm)
        R[q, q] = norm
        for j in range(rows):
            Q[q, j] = Q[q, j] / norm if norm > 1e-13 else 0.0
    for q in range(size - 1, -1, -1):
        total = Q[q, rows - 1]
        for p in range(q + 1, size):
            total -= R[q, p] * x[p]
        x[q] = total / R[q, q] if R[q, q] > 1e-13 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def nearest_point(rows: Any, lo: Any, hi: Any) -> float:
    """Distance of the origin from {lo <= rows u <= hi} (rows of unit length); inf if the set is empty.

    Least-distance programming by non-negative least squares (Lawson & Hanson 1974, chapter 23): with one-sided
    rows g u >= h the residual of min |E x - e|, x >= 0, where E stacks gᵀ over hᵀ and e is the last unit vector, is
    zero exactly when the set is empty.
    """
    m, n = rows.shape
    E = np.zeros((n + 1, 2 * m))
    count = 0
    for i in range(m):
        for side in range(2):
            bound = lo[i] if side == 0 else -hi[i]
            if bound > -np.inf:
                sign = 1.0 if side == 0 else -1.0
                length = math.sqrt(1.0 + bound * bound)
                for j in range(n):
                    E[j, count] = sign * rows[i, j] / length
                E[n, count] = bound / length
                count += 1
    x = np.zeros(count)
    passive = np.zeros(count, dtype=np.bool_)
    chosen = np.zeros(count, dtype=np.int64)
    trial = np.zeros(count)
    Q = np.zeros((count, n + 1))
    R = np.zeros((count, count))
    residual = np.zeros(n + 1)
    residual[n] = 1.0
    for _ in range(3 * count + 10):
        best = -1
        best_gain = 1e-12
        for c in range(count):
            if not passive[c]:
                gain = 0.0
                for j in range(n + 1):
                    gain += E[j, c] * residual[j]
                if gain > best_gain:
                    best, best_gain = c, gain
        if best < 0:
            break
        passive[best] = True
        for _ in range(count + 1):
            size = 0
            for c in range(count):
                if passive[c]:
                    chosen[size] = c
                    size += 1
            _fit_last(E, chosen, size, Q, R, trial)
            step = 1.0
            for q in range(size):
                if trial[q] <= 0.0:
                    gap = x[chosen[q]] - trial[q]
                    step = min(step, x[chosen[q]] / gap if gap > 0.0 else 0.0)
            for q in range(size):
                c = chosen[q]
                x[c] += step * (trial[q] - x[c])
                if trial[q] <= 0.0 and x[c] <= 1e-15:
                    x[c] = 0.0
                    passive[c] = False
            if step == 1.0:
                break
        for j in range(n + 1):
            total = 1.0 if j == n else 0.0
            for c in range(count):
                total -= E[j, c] * x[c]
            residual[j] = total
    if not residual[n] > 1e-13:
        return np.inf
    square = 0.0
    for j in range(n):
        square += residual[j] * residual[j]
    return math.sqrt(square) / residual[n]


@njit(cache=True, nogil=True, error_model="numpy")
def along_rays(
    L: Any,
    lo: Any,
    hi: Any,
    rank: int,
    state: Any,
    relative: float,
    factor: float,
    max_points: int,
    other_cost: float,
    result: Any,
    sums: Any,
) -> bool:
    """The mass by rays (see `_rays`), if that promises to cost less than `other_cost` nanoseconds; else False.

    Fills `result` and `sums` like `estimate`. A lane is a replicate; the standard error comes from all bases.
    """
    rows = scaled_rows(L, lo, hi, rank)
    count = rows.shape[0]
    cost = basis_cost(count, rank)
    if count == 0 or other_cost < 3.0 * RAY_PILOT * LANES * cost:
        return False
    table = radius_table(rank)
    bases = np.empty((rank * rank, LANES))
    products = np.empty((rank * count, LANES))
    scratch = np.empty((8, LANES))
    means = np.empty(LANES)
    totals = np.zeros(LANES)
    square = 0.0
    done = 0
    goal = RAY_PILOT
    while True:
        for _ in range(goal - done):
            ray_block(rows, table, state, bases, products, scratch, means)
            for w in range(LANES):
                totals[w] += means[w]
                square += means[w] * means[w]
        done = goal
        size = done * LANES
        average = 0.0
        for w in range(LANES):
            average += totals[w] / size
        if not average > LEAST_RAY_MASS:
            return False
        spread = math.sqrt(max(square / size - average * average, 0.0) / (size - 1.0)) / average
        spread += 1e-9 / average / factor  # the table
        growth = (factor * spread / relative) ** 2
        if done == RAY_PILOT and growth * size * cost > other_cost:
            return False
        if growth <= 1.0 or 2 * size * rank > max_points:
            break
        goal = min(int(done * min(1.03 * growth, 4.0)) + 1, max(max_points // (LANES * rank), done + 1))
    result[0] = math.log(average)
    result[1] = spread
    result[2] = max(factor * spread, 0.1 * relative) + 1e-12
    result[3] = size * rank
    for w in range(LANES):
        sums[w] = totals[w] / done / average
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _scale(array: Any, factor: float) -> None:
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            array[i, j] *= factor


@njit(cache=True, nogil=True, error_model="numpy")
def estimate(
    A: Any,
    b: Any,
    seed: Any,
    table: Any,
    relative: float,
    factor: float,
    max_points: int,
    result: Any,
    basis: Any,
    sums: Any,
    first: Any,
    second: Any,
) -> int:
    """Mass of {A u <= b}; returns the method code and fills `result`.

    `result` gets log mass, standard error / mass, half-width / mass, points used, log of a sure upper bound
    (0 unless every point missed) and the rank. `sums` (REPLICATES,) gets the replicates' masses in units of the mass.
    If `first` (REPLICATES, n) and `second` (REPLICATES, n n) are not empty they get the replicates' raw moments in
    the coordinates of `basis`, also in units of the mass. `factor` turns a standard error into a half-width.
    """
    m, n = A.shape
    moments = first.size > 0
    for i in range(result.size):
        result[i] = -np.inf if i == 0 else 0.0
    for r in range(REPLICATES):
        sums[r] = 1.0
    rows = np.empty((m, n))
    lo = np.empty(m)
    hi = np.empty(m)
    count = unit_rows(A, b, rows, lo, hi)
    if count < 0:
        return EMPTY
    if count == 0:
        result[0] = 0.0
        return EXACT
    rows = rows[:count]
    lo = lo[:count]
    hi = hi[:count]
    spanned = np.empty((count, n))
    first_lo = np.empty(count)
    first_hi = np.empty(count)
    for i in range(count):
        first_lo[i] = lo[i]
        first_hi[i] = hi[i]
        for j in range(n):
            spanned[i, j] = rows[i, j]
    precision = np.empty(count)
    linear = np.empty(count)
    chance = np.empty(count)
    mean = np.empty(n)
    settled = gaussian_factors(rows, lo, hi, precision, linear, mean, chance)
    L = np.zeros((count, n))
    ends = np.zeros(count, dtype=np.int64)
    rank = triangular_rows(rows, lo, hi, precision, linear, chance, L, ends, basis)
    result[5] = rank
    if rank == 1 and not moments:
        low = -np.inf
        high = np.inf
        for i in range(count):
            low = max(low, lo[i] / L[i, 0])
            high = min(high, hi[i] / L[i, 0])
        result[0] = log_interval(low, high)
        result[2] = 1e-13
        return EXACT if low < high else EMPTY
    family = np.zeros((3, rank))
    slope = np.zeros((rank, rank))
    guided = settled and proposals(L, ends, basis, rank, precision, linear, mean, family, slope)
    if not guided:
        for k in range(rank):
            family[0, k] = 0.0
            family[1, k] = 0.0
            family[2, k] = 1.0
            for j in range(rank):
                slope[k, j] = 0.0
    state = np.empty(1, dtype=np.uint64)
    state[0] = seed
    uniforms = np.empty((rank, LANES))
    y = np.zeros((rank, LANES))
    along = np.empty((count + 1, LANES))
    room = np.empty((ROOM, LANES))
    sides = np.zeros(rank, dtype=np.int64)
    for i in range(count):
        sides[ends[i]] |= (1 if hi[i] < np.inf else 0) | (2 if lo[i] > -np.inf else 0)
    for k in range(rank):
        if sides[k] == 0:
            sides[k] = 3
    unit = 1.0 / 2.0**DIGITS

    rough = relative >= ROUGH
    pilot_blocks = 4 if rough else PILOT_BLOCKS
    pilot = np.empty((2, pilot_blocks * LANES, 3))
    for f in range(2):
        for block in range(pilot_blocks):
            for k in range(rank):
                for w in range(LANES):
                    uniforms[k, w] = (np.float64(next_random(state) >> np.uint64(64 - DIGITS)) + 0.5) * unit
            walk(L, lo, hi, ends, sides, family, slope, f == 1, True, uniforms, y, along, room)
            finish(L, lo, hi, ends, sides, family, f == 1, True, False, uniforms, 0.0, y, along, room)
            settle(room)
            for w in range(LANES):
                i = block * LANES + w
                pilot[f, i, 0] = room[TILTED_LOG, w]
                pilot[f, i, 1] = room[GUIDED_LOG, w]
                pilot[f, i, 2] = room[ALIVE, w]
    per_tilted, coefficient, scale = choose_mixture(pilot, guided)
    if rough:
        per_tilted = min(per_tilted, 1)
    share = 1.0 / (1.0 + per_tilted)
    if scale == -np.inf:
        distance = nearest_point(spanned, first_lo, first_hi)
        if distance == np.inf:
            return EMPTY
        result[4] = log_upper_tail(distance)

    bits = table.shape[1]
    dimensions = rank if moments else rank - 1
    families = 2 if per_tilted else 1
    directions = np.empty((families, REPLICATES, dimensions, bits), dtype=np.uint64)
    points = np.empty((families, REPLICATES, dimensions), dtype=np.uint64)
    for f in range(families):
        for r in range(REPLICATES):
            scramble(table, dimensions, bits, state, directions[f, r], points[f, r])
    weights = np.zeros(REPLICATES)
    controls = np.zeros(REPLICATES)
    drawn = np.zeros(2, dtype=np.int64)
    goal = 4 if per_tilted == 0 and not rough else 1
    used = 0
    earlier_error = np.inf
    relative_error = np.inf
    spread = np.inf
    average = 0.0
    growth = 2.0
    while True:
        for f in range(families):
            blocks = goal if f == 0 else goal * per_tilted
            for r in range(REPLICATES):
                now = drawn[f]
                for _ in range(blocks - drawn[f] // LANES):
                    for w in range(LANES):
                        for k in range(dimensions):
                            uniforms[k, w] = (np.float64(points[f, r, k]) + 0.5) * unit
                        j = trailing_ones(now)
                        for k in range(dimensions):
                            points[f, r, k] ^= directions[f, r, k, j]
                        now += 1
                    guided_now, both = f == 1, families == 2
                    walk(L, lo, hi, ends, sides, family, slope, guided_now, both, uniforms, y, along, room)
                    keep(room)
                    for leaf in range(BRANCHES):
                        if leaf > 0:
                            restore(room)
                        finish(
                            L,
                            lo,
                            hi,
                            ends,
                            sides,
                            family,
                            guided_now,
                            both,
                            moments,
                            uniforms,
                            leaf / BRANCHES,
                            y,
                            along,
                            room,
                        )
                        most = weigh(room, share, scale) if scale > -np.inf else np.inf
                        if most > 1e100:  # the weights are in units of e^scale: raise it
                            settle(room)
                            raised = -np.inf
                            for w in range(LANES):
                                if room[ALIVE, w] > 0.0:
                                    raised = max(
                                        raised, mixture_weight(room[TILTED_LOG, w], room[GUIDED_LOG, w], share)[0]
                                    )
                            if raised > -np.inf:
                                smaller = math.exp(scale - raised)
                                for copy in range(REPLICATES):
                                    weights[copy] *= smaller
                                _scale(first, smaller)
                                _scale(second, smaller)
                                coefficient *= smaller
                                scale = raised
                            weigh(room, share, scale if scale > -np.inf else 0.0)
                        for w in range(LANES):
                            controls[r] += room[CONTROL, w] - 1.0
                            weights[r] += room[WEIGHT, w]
                        if moments:
                            for a in range(rank):
                                for w in range(LANES):
                                    part = room[WEIGHT, w] * y[a, w]
                                    first[r, a] += part
                                    for c in range(a + 1):
                                        second[r, a * n + c] += part * y[c, w]
            drawn[f] = blocks * LANES
        used = (drawn[0] + drawn[1]) * REPLICATES
        total = np.float64((drawn[0] + drawn[1]) * BRANCHES)
        average = 0.0
        for r in range(REPLICATES):
            sums[r] = (weights[r] - coefficient * controls[r]) / total
            average += sums[r] / REPLICATES
        spread = 0.0
        for r in range(REPLICATES):
            spread += (sums[r] - average) ** 2
        spread = math.sqrt(spread / (REPLICATES * (REPLICATES - 1)))
        if average > 0.0:
            spread /= average
            # a lucky small spread is not believed: it is credited with falling in proportion to the points at most
            first_round = earlier_error == np.inf
            relative_error = factor * (1.5 * spread if first_round else max(spread, earlier_error / growth))
            earlier_error = spread
            if relative_error <= relative:
                break
            if first_round and not moments and rank > 3 and math.log(average) + scale > math.log(LEAST_RAY_MASS):
                # errors fall like points^-3/4 in few dimensions, hardly faster than independent draws in many
                wanted = used * (factor * spread / relative) ** (2.0 - min(1.0, 8.0 / rank) * (2.0 / 3.0))
                cost = min(wanted, 1.0 * max_points) * (300.0 + 50.0 * rank)
                if along_rays(L, lo, hi, rank, state, relative, factor, max_points, cost, result, sums):
                    return RAYS
        # powers of two and, between them, three quarters of the next
        growth = 1.5 if goal > 1 and goal & (goal - 1) == 0 else (4.0 / 3.0 if goal > 1 else 2.0)
        if growth * used > max_points:
            break
        goal = int(growth * goal + 0.5)
    if moments:
        for r in range(REPLICATES):
            for a in range(rank):
                first[r, a] /= total
                for c in range(a + 1):
                    second[r, a * n + c] /= total
                    second[r, c * n + a] = second[r, a * n + c]
    result[3] = used
    if not average > 0.0:
        if result[4] == 0.0:
            result[4] = log_upper_tail(nearest_point(spanned, first_lo, first_hi))
        return MISSED
    result[0] = math.log(average) + scale
    result[1] = spread
    if spread > 1e-12:  # a corner that few points would find shows in no spread: do not claim far more than was asked
        relative_error = max(relative_error, 0.1 * relative)
    result[2] = relative_error + 1e-12
    for r in range(REPLICATES):
        sums[r] /= average
    _scale(first, 1.0 / average)
    _scale(second, 1.0 / average)
    result[4] = 0.0
    if not guided:
        return PLAIN
    return GUIDED if per_tilted else TILTED


@njit(cache=True, nogil=True, error_model="numpy")
def estimate_all(
    A: Any, b: Any, offsets: Any, seeds: Any, table: Any, relatives: Any, factor: float, max_points: int
) -> Any:
    """`estimate` for rows offsets[i]:offsets[i+1] of A and b, each with its own seed and relative error wanted.

    Returns the results, shape (cells, 6), and the method codes.
    """
    cells = offsets.size - 1
    n = A.shape[1]
    results = np.zeros((cells, 6))
    methods = np.zeros(cells, dtype=np.int64)
    basis = np.zeros((n, n))
    sums = np.zeros(REPLICATES)
    first = np.zeros((0, n))
    second = np.zeros((0, n * n))
    for i in range(cells):
        part = slice(offsets[i], offsets[i + 1])
        methods[i] = estimate(
            A[part], b[part], seeds[i], table, relatives[i], factor, max_points, results[i], basis, sums, first, second
        )
    return results, methods
