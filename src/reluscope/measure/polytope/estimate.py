"""The mass of a polytope by tilted quasi-Monte Carlo: a pilot, replicates of Sobol points, rays where they pay.

`estimate` is one long kernel: its arrays live in one frame, and passing them on costs an atomic reference count each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reluscope._kernels import kernel
from reluscope.measure.polytope.families import choose_mixture, finish, mixture_weight, walk
from reluscope.measure.polytope.lanes import (
    ALIVE,
    CONTROL,
    GUIDED_LOG,
    ROOM,
    TILTED_LOG,
    WEIGHT,
    keep,
    restore,
    settle,
    weigh,
)
from reluscope.measure.polytope.nearest import nearest_point
from reluscope.measure.polytope.rays import basis_cost, radius_table, ray_block, scaled_rows
from reluscope.measure.polytope.sobol import DIGITS, next_random, scramble, trailing_ones
from reluscope.measure.polytope.tilt import (
    LANES,
    gaussian_factors,
    log_interval,
    log_upper_tail,
    proposals,
    triangular_rows,
    unit_rows,
)

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


@kernel
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
    stop: Any,
) -> bool:
    """The mass by rays (see `rays`), if that promises to cost less than `other_cost` nanoseconds; else False.

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
            if stop[0] != 0:
                return False
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


@kernel
def _scale(array: Any, factor: float) -> None:
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            array[i, j] *= factor


@kernel
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
    stop: Any,
) -> int:
    """Mass of {A u <= b}; returns the method code and fills `result`. Gives up when `stop[0]` is not 0.

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
                if stop[0] != 0:  # nobody waits for the result
                    return MISSED
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
                if along_rays(L, lo, hi, rank, state, relative, factor, max_points, cost, result, sums, stop):
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


@kernel
def estimate_all(
    A: Any, b: Any, offsets: Any, seeds: Any, table: Any, relatives: Any, factor: float, max_points: int, stop: Any
) -> Any:
    """`estimate` for rows offsets[i]:offsets[i+1] of A and b, each with its own seed and relative error wanted.

    Returns the results, shape (cells, 6), and the method codes; nothing of use once `stop[0]` is not 0.
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
            A[part],
            b[part],
            seeds[i],
            table,
            relatives[i],
            factor,
            max_points,
            results[i],
            basis,
            sums,
            first,
            second,
            stop,
        )
    return results, methods
