"""The compiled search: linear bounds of a ReLU network over boxes, and bisection until little mass is undecided.

The network of a box is a list of units in order, each a ReLU of an affine form of the inputs and of earlier units,

    z_i = max(h_i, 0),      h_i = C_i u + V_i z + c_i,      V_ij = 0 for j >= first_i,

and rows `g_r = C_r u + V_r z + c_r`, one for each inequality `g_r <= 0` of the event. Units that keep one sign on the
box are folded away, so the list gets shorter as boxes get smaller, whatever the depth of the network was.

A row of the store is `[C (d numbers), c, padding | V, padding]`, both parts padded to blocks of eight.
"""

from __future__ import annotations

import math

import numpy as np

from reluscope._kernels import inner, kernel
from reluscope.measure.simd import add_absolute, add_rows, axpy, copy, dot, dot_absolute, relax
from reluscope.measure.sound.mass import fraction, side_mass

MOST_NODES = 1200
"""Boxes that may wait on the stack of one search."""

HUGE = 1e290
"""Bounds beyond this are not believed: sums on the way to them may have left the range of the numbers."""
ABSENT, IMPOSSIBLE = -1, -2

NORM_INF, NORM_2, NORM_1 = 0, 1, 2
"""How moves of the input are measured."""

MOVES_REST = 0.02
"""Boxes that stretch the relaxed units by less than this share of what moves do are not split further."""

FAINTLY, NEARLY = 0.05, 2.0
"""A box is looked at more closely if what is undecided in it seems to be between these shares of the threshold."""

MOST_LEVELS = 64
"""Networks that one search may hold, each a reduction of the one before."""


@inner
def farthest(form: np.ndarray, start: int, stop: int, radius: float, norm: int) -> float:
    """The largest value of `form[start:stop] . m` over moves m of at most a length."""
    total = 0.0
    for i in range(start, stop):
        a = abs(form[i])
        if norm == NORM_INF:
            total += a
        elif norm == NORM_2:
            total += a * a
        else:
            total = max(total, a)
    return radius * (math.sqrt(total) if norm == NORM_2 else total)


@inner
def on_boundary(
    d: int,
    k: int,
    kind: np.ndarray,
    weight: np.ndarray,
    unit_low: np.ndarray,
    unit_high: np.ndarray,
    head: int,
    least: np.ndarray,
    most: np.ndarray,
    largest: np.ndarray,
    own_slack: np.ndarray,
    roundoff: float,
    edge: np.ndarray,
    centre: np.ndarray,
    half: np.ndarray,
    size: np.ndarray,
    moments: np.ndarray,
    slope_low: np.ndarray,
    slope_high: np.ndarray,
    intercept: np.ndarray,
    doubt: np.ndarray,
    work: np.ndarray,
) -> None:
    """Linear bounds of every unit that hold where a row g is 0: there its lower bound is <= 0, its upper bound >= 0.

    `edge` holds both bounds of g over the box, `unit_low`, `unit_high` those of units, errors included. Where g is 0 a
    unit is at most the maximum over the box of its upper bound minus t times a bound of g, for any t: the lower
    one if t > 0, the upper one if t < 0. Two t are tried: the slope of the regression of the unit on g, and the one
    that takes out the input along which g varies most. The lower slope of a unit's relaxation is 0 or 1, as its mean on
    the boundary is negative or positive.
    """
    heads = head // 8
    middle = edge[d] + edge[head + d]
    spread = 0.0
    for i in range(head):
        work[i] = work[head + i] = 0.0
    main, widest, main_slope = 0, -1.0, 1.0
    for i in range(d):
        g = edge[i] + edge[head + i]
        middle += g * moments[i]
        spread += g * g * moments[d + i]
        work[i] = g * moments[d + i]
        work[head + i] = moments[i]
        if abs(g) * half[i] > widest:
            main, widest, main_slope = i, abs(g) * half[i], g
    work[head + d] = 1.0
    row_size = dot_absolute(edge, 0, size, 0, heads) + dot_absolute(edge, head, size, 0, heads)
    rounding = 3e-16 * (head + 8)
    both, bound = 2 * head, 3 * head
    for j in range(k):
        if kind[j] != 2 or not weight[j] > 0.0:
            continue
        place = j * head
        copy(work, both, unit_low, place, heads)
        axpy(work, both, unit_high, place, 1.0, heads)
        t = dot(work, both, work, 0, heads) / (spread + 1e-300)
        mean = dot(work, both, work, head, heads) - t * middle
        r, left = most[j], least[j]
        high_own = dot_absolute(unit_high, place, size, 0, heads)
        low_own = dot_absolute(unit_low, place, size, 0, heads)
        for attempt in range(2):
            if attempt == 1:
                t = work[both + main] / main_slope
            if not abs(t) < 1e150:
                continue
            above, below = (0, head) if t > 0.0 else (head, 0)
            blur = abs(t) * row_size
            copy(work, bound, unit_high, place, heads)
            axpy(work, bound, edge, above, -t, heads)
            value = dot(work, bound, centre, 0, heads) + dot_absolute(work, bound, half, 0, heads)
            r = min(r, value + rounding * (high_own + blur))
            copy(work, bound, unit_low, place, heads)
            axpy(work, bound, edge, below, -t, heads)
            value = dot(work, bound, centre, 0, heads) - dot_absolute(work, bound, half, 0, heads)
            left = max(left, value - rounding * (low_own + blur))
        if not r > 0.0:
            slope_low[j] = slope_high[j] = intercept[j] = doubt[j] = 0.0
            size[head + j] = 0.0
            continue
        if left >= 0.0:
            slope_low[j] = slope_high[j] = 1.0
            intercept[j] = 0.0
        else:
            s = r / (r - left)
            slope_high[j] = s
            intercept[j] = max(-s * left, (1.0 - s) * r) * (1.0 + 1e-15) + 1e-300
            slope_low[j] = 1.0 if mean > 0.0 else 0.0
        doubt[j] = roundoff * (largest[j] + intercept[j]) + own_slack[j]
        size[head + j] = largest[j] + intercept[j]


@inner
def crosses(
    d: int,
    old: np.ndarray,
    at: int,
    new: np.ndarray,
    centre: np.ndarray,
    half: np.ndarray,
    size: np.ndarray,
    sign: float,
) -> bool:
    """Whether `sign * old` and `sign * new` are both positive somewhere in the box, beyond rounding."""
    first, second = sign * old[at + d], sign * new[d]
    first_size, second_size = abs(first), abs(second)
    for i in range(d):
        a, b = sign * old[at + i], sign * new[i]
        x = centre[i] + half[i] if a + b > 0.0 else centre[i] - half[i]
        first += a * x
        second += b * x
        first_size += abs(a) * size[i]
        second_size += abs(b) * size[i]
    return first > 1e-14 * first_size and second > 1e-14 * second_size


@inner
def tail_guess(form: np.ndarray, at: int, d: int, moments: np.ndarray, sign: float) -> float:
    """About how much of the box has `sign * form <= 0`: as if the form were normal."""
    mean, variance = form[at + d], 0.0
    for i in range(d):
        mean += form[at + i] * moments[i]
        variance += form[at + i] * form[at + i] * moments[d + i]
    return 0.5 * math.erfc(sign * mean / math.sqrt(2.0 * variance + 1e-300))


@kernel
def search(
    d: int,
    free: int,
    norm: int,
    head: int,
    n_units: int,
    n_rows: int,
    net: np.ndarray,
    first: np.ndarray,
    slack: np.ndarray,
    case_of: np.ndarray,
    n_cases: int,
    lower: np.ndarray,
    upper: np.ndarray,
    root_width: np.ndarray,
    gaussian: bool,
    threshold: float,
    most_boxes: int,
    stop: np.ndarray,
    out: np.ndarray,
    children: np.ndarray,
    child_net: np.ndarray,
    child_first: np.ndarray,
    child_slack: np.ndarray,
    child_counts: np.ndarray,
) -> None:
    """Bracket the mass of the event in one box.

    `net` holds `n_units` unit rows and then `n_rows` event rows, each of `stride = head + 8 * ceil(n_units / 8)`
    numbers; `first` (units + rows) how many earlier units each reads; `slack` (units + rows) its error so far, negative
    for rows that are exactly their constant where every unit they read is off.
    Row r belongs to case `case_of[r]`; the event is the union of its cases, a case the intersection of its rows.
    Boxes whose undecided mass is above `threshold` are bisected, at most `most_boxes` of them.

    The last `free` inputs are moves of length at most `upper[d - 1]` by `norm`, and no coordinates of the law: a row
    holds where it holds for every move. They are not split.

    `out` gets: mass surely inside, mass possibly inside, boxes looked at, boxes left, whether it was stopped, mass
    surely outside. With `most_boxes = 1` nothing is bisected: `children` gets the axis and place to split at
    and `child_*` the reduced network.
    """
    stride = head + 8 * ((n_units + 7) // 8)
    length = (n_units + n_rows) * stride
    store = np.zeros(4 * length + 64 * stride)
    for i in range(length):  # a slice assigned to a slice compiles its error message too: three seconds
        store[i] = net[i]
    firsts = np.zeros(6 * (n_units + n_rows) + 64, np.int64)
    slacks = np.zeros(6 * (n_units + n_rows) + 64)
    row_ids = np.zeros((MOST_LEVELS, n_rows), np.int64)
    # per level: units, rows kept, stride, place in store, place in firsts
    level = np.zeros((MOST_LEVELS, 5), np.int64)
    for r in range(n_rows):
        row_ids[0, r] = r
    level[0, 0], level[0, 1], level[0, 2] = n_units, n_rows, stride
    for i in range(n_units + n_rows):
        firsts[i] = first[i]
        slacks[i] = slack[i]

    lo = np.zeros(MOST_NODES * d)
    hi = np.zeros(MOST_NODES * d)
    sides = np.zeros(MOST_NODES * d)
    at_level = np.zeros(MOST_NODES, np.int64)
    for i in range(d):
        lo[i], hi[i] = lower[i], upper[i]
        sides[i] = side_mass(lower[i], upper[i]) if gaussian else (upper[i] - lower[i]) / root_width[i]
    own = d - free
    for i in range(own, d):
        sides[i] = 1.0
    waiting = 1

    below = np.zeros(stride + 8)
    above = np.zeros(stride + 8)
    slope_low = np.zeros(n_units + 8)
    slope_high = np.zeros(n_units + 8)
    intercept = np.zeros(n_units + 8)
    kind = np.zeros(n_units + 1, np.int64)
    for_below = np.zeros(n_units + 8)
    for_above = np.zeros(n_units + 8)
    sums = np.zeros(4)
    gain = np.zeros(n_units + 1)
    weight = np.zeros(n_units + 1)
    twice = np.zeros(n_units + 1)
    middle = np.zeros((n_units + 1) * head)
    centre = np.zeros(head)
    half = np.zeros(head)
    score = np.zeros(head)
    heads = head // 8
    # Running error analysis: no result below goes through more than this many roundings, each relative to a sum of
    # absolute terms: `largest` bounds that sum for a unit's own row, `size` holds the sizes of inputs and units, and
    # `doubt` is what a unit's value may be off when it is replaced by its row, per unit of coefficient.
    roundoff = 2.3e-16 * (n_units + 2 * d + 24)
    size = np.zeros(stride)
    largest = np.zeros(n_units + n_rows)
    doubt = np.zeros(n_units + 8)
    centre[d] = 1.0
    moments = np.zeros(2 * d)
    form_low = np.zeros(n_rows * (own + 1))
    form_high = np.zeros(n_rows * (own + 1))
    state = np.zeros(n_rows, np.int64)
    firm = np.zeros(n_rows, np.bool_)
    case_high = np.zeros(n_cases)
    case_low = np.zeros(n_cases)
    case_open = np.zeros(n_cases, np.int64)
    renumber = np.zeros(n_units + 1, np.int64)
    # The same where a row is 0, and bounds of units in the inputs, with their errors.
    unit_low = np.zeros((n_units + 1) * head)
    unit_high = np.zeros((n_units + 1) * head)
    lows = np.zeros(n_units + 1)
    highs = np.zeros(n_units + 1)
    near_low = np.zeros(n_units + 8)
    near_high = np.zeros(n_units + 8)
    near_intercept = np.zeros(n_units + 8)
    near_doubt = np.zeros(n_units + 8)
    near_size = np.zeros(stride)
    near_slack = np.zeros(n_units + 1)
    edge = np.zeros(2 * head)
    spare = np.zeros(4 * head)
    work = np.zeros(2 * d + 512)

    inside = 0.0
    possible = 0.0
    outside = 0.0
    boxes = 0
    left = 0
    faint = 0.0
    while waiting > 0:
        if stop[0] != 0:
            break
        waiting -= 1
        node = waiting * d
        e = at_level[waiting]
        k, rows_here, step, base, fbase = level[e, 0], level[e, 1], level[e, 2], level[e, 3], level[e, 4]
        boxes += 1
        mass = 1.0
        for i in range(d):
            centre[i] = 0.5 * (lo[node + i] + hi[node + i])
            half[i] = 0.5 * (hi[node + i] - lo[node + i])
            mass *= sides[node + i]
            size[i] = abs(centre[i]) + half[i]
        size[d] = 1.0
        # -- bounds of every unit ------------------------------------------------------------------------------
        unstable = 0
        loose = 0
        for j in range(k):
            place = base + j * step
            f = firsts[fbase + j]
            largest[j] = dot_absolute(store, place, size, 0, heads + (f + 7) // 8)
            error_low = error_high = roundoff * largest[j] + slacks[fbase + j]
            if f == 0:
                value_low = value_high = dot(store, place, centre, 0, heads)
                radius_low = radius_high = dot_absolute(store, place, half, 0, heads)
                copy(middle, j * head, store, place, heads)
                twice[j] = 2.0
            else:
                blocks = heads + (f + 7) // 8
                copy(below, 0, store, place, blocks)
                copy(above, 0, store, place, blocks)
                for i in range(4):
                    sums[i] = 0.0
                end = f
                while end > 0:
                    begin = firsts[fbase + end - 1]
                    relax(
                        below, above, head + begin, slope_low, slope_high, intercept, doubt, begin, end - begin,
                        for_below, for_above, sums,
                    )  # fmt: skip
                    add_rows(
                        below, above, store, base + begin * step, step, end - begin, for_below, for_above,
                        heads + (begin + 7) // 8,
                    )  # fmt: skip
                    end = begin
                below[d] += sums[0]
                above[d] += sums[1]
                error_low += sums[2]
                error_high += sums[3]
                value_low = dot(below, 0, centre, 0, heads)
                value_high = dot(above, 0, centre, 0, heads)
                radius_low = dot_absolute(below, 0, half, 0, heads)
                radius_high = dot_absolute(above, 0, half, 0, heads)
                copy(middle, j * head, below, 0, heads)
                axpy(middle, j * head, above, 0, 1.0, heads)
                twice[j] = 1.0
            least = value_low - radius_low - error_low
            most = value_high + radius_high + error_high
            weight[j] = 0.0
            clear = abs(least) < HUGE and abs(most) < HUGE  # else a sum may have left the range of the numbers
            if clear and most <= 0.0:
                kind[j] = 0
                slope_low[j] = slope_high[j] = intercept[j] = doubt[j] = 0.0
                size[head + j] = 0.0
            elif clear and least >= 0.0:
                kind[j] = 1
                slope_low[j] = slope_high[j] = 1.0
                intercept[j] = 0.0
                doubt[j] = roundoff * largest[j] + slacks[fbase + j]
                size[head + j] = largest[j]
            else:
                kind[j] = 2
                unstable += 1
                if not clear or most - least > 64.0 * (error_low + error_high):
                    loose += 1
                if clear and least > -1e150 and most < 1e150:
                    s = most / (most - least)
                    slope_high[j] = s
                    intercept[j] = max(-s * least, (1.0 - s) * most) * (1.0 + 1e-15) + 1e-300
                    slope_low[j] = 1.0 if most > -least else 0.0
                    mid = (most + least) / (most - least)
                    gain[j] = 1.0 - mid * mid
                else:  # a constant above, or nothing at all
                    if not clear:
                        least, most = -np.inf, np.inf
                    slope_low[j] = slope_high[j] = 0.0
                    intercept[j] = most
                    gain[j] = 1.0
                doubt[j] = roundoff * (largest[j] + intercept[j]) + slacks[fbase + j]
                size[head + j] = max(slope_low[j], slope_high[j]) * largest[j] + intercept[j]
                lows[j], highs[j] = least, most
                near_slack[j] = slacks[fbase + j]
                if f == 0:
                    copy(unit_low, j * head, store, place, heads)
                    copy(unit_high, j * head, store, place, heads)
                else:
                    copy(unit_low, j * head, below, 0, heads)
                    copy(unit_high, j * head, above, 0, heads)
                unit_low[j * head + d] -= error_low
                unit_high[j * head + d] += error_high
        # -- bounds of the event's rows ------------------------------------------------------------------------
        for c in range(n_cases):
            case_open[c] = ABSENT
        for q in range(rows_here):
            c = case_of[row_ids[e, q]]
            if case_open[c] == IMPOSSIBLE:
                continue
            place = base + (k + q) * step
            copy(below, 0, store, place, step // 8)
            copy(above, 0, store, place, step // 8)
            touched = False
            largest[k + q] = dot_absolute(store, place, size, 0, step // 8)
            error_low = error_high = roundoff * largest[k + q] + abs(slacks[fbase + k + q])
            for i in range(4):
                sums[i] = 0.0
            end = firsts[fbase + k + q]
            while end > 0:
                begin = firsts[fbase + end - 1]
                for m in range(begin, end):
                    if kind[m] != 0:
                        size_here = abs(below[head + m]) + abs(above[head + m])
                        weight[m] += size_here
                        touched = touched or size_here > 0.0
                relax(
                    below, above, head + begin, slope_low, slope_high, intercept, doubt, begin, end - begin,
                    for_below, for_above, sums,
                )  # fmt: skip
                add_rows(
                    below, above, store, base + begin * step, step, end - begin, for_below, for_above,
                    heads + (begin + 7) // 8,
                )  # fmt: skip
                end = begin
            below[d] += sums[0]
            above[d] += sums[1]
            error_low += sums[2]
            error_high += sums[3]
            if slacks[fbase + k + q] < 0.0 and not touched:
                error_low = error_high = 0.0
            at = q * (own + 1)
            below[d] -= error_low
            above[d] += error_high
            if free > 0:  # the worst move, rounded outward
                below[d] += farthest(below, own, d, half[own], norm) * (1.0 - 1e-15 * (free + 8))
                above[d] += farthest(above, own, d, half[own], norm) * (1.0 + 1e-15 * (free + 8))
                below[d] -= 4e-16 * abs(below[d])
                above[d] += 4e-16 * abs(above[d])
                for i in range(own, d):
                    below[i] = above[i] = 0.0
            for i in range(own):
                form_low[at + i] = below[i]
                form_high[at + i] = above[i]
            form_low[at + own] = below[d]
            form_high[at + own] = above[d]
            value_low = dot(below, 0, centre, 0, heads)
            value_high = dot(above, 0, centre, 0, heads)
            radius_low = dot_absolute(below, 0, half, 0, heads)
            radius_high = dot_absolute(above, 0, half, 0, heads)
            clear = abs(value_low - radius_low) < HUGE and abs(value_high + radius_high) < HUGE
            if not clear:
                form_low[at + own], form_high[at + own] = -np.inf, np.inf
            firm[q] = clear and value_high + radius_high - (value_low - radius_low) <= 64.0 * (error_low + error_high)
            if case_open[c] == ABSENT:
                case_open[c] = 0
            if clear and value_low - radius_low > 0.0:
                case_open[c] = IMPOSSIBLE
            elif clear and value_high + radius_high <= 0.0:
                state[q] = 1
            else:
                state[q] = 0
                case_open[c] += 1
        sure = False
        alive = 0
        for c in range(n_cases):
            if case_open[c] == 0:
                sure = True
            elif case_open[c] > 0:
                alive += 1
            case_high[c] = case_low[c] = 1.0 if case_open[c] > 0 else 0.0
        if sure:
            inside += mass
            possible += mass
            continue
        if alive == 0:
            outside += mass
            continue
        n_open = 0
        for q in range(rows_here):
            if case_open[case_of[row_ids[e, q]]] == IMPOSSIBLE:
                state[q] = 2
            elif state[q] == 0:
                n_open += 1
        if mass < 1e-290:
            faint = 1.0
        # -- how much is undecided: first a guess, then bounds ---------------------------------------------------
        for i in range(own):
            beta = centre[i] * half[i] if gaussian else 0.0
            if abs(beta) > 30.0 or half[i] > 4.0:
                beta = 0.0
            moments[i] = centre[i] - half[i] * (beta / (3.0 + abs(beta)))
            moments[own + i] = half[i] * half[i] / (3.0 + 0.5 * beta * beta)
        guess = 1.0
        for attempt in range(2):
            if attempt == 1:
                # A box that may be split no further: bounds that hold where the row is 0 are enough, and tighter. A
                # linear function phi <= g on {g = 0} with one point at which g > 0 and phi > 0 has
                # {g <= 0} in {phi <= 0}: on the way from a point with g <= 0 < phi to that one, phi > 0 and g has a 0.
                if unstable == 0 or free > 0:
                    break
                if most_boxes > 1 and not FAINTLY * threshold < guess < NEARLY * threshold:
                    break
                for q in range(rows_here):
                    if state[q] != 0:
                        continue
                    at = q * (own + 1)
                    for i in range(step):
                        near_size[i] = size[i]
                    for j in range(k):
                        near_low[j], near_high[j] = slope_low[j], slope_high[j]
                        near_intercept[j], near_doubt[j] = intercept[j], doubt[j]
                    for i in range(own + 1):
                        edge[i], edge[head + i] = form_low[at + i], form_high[at + i]
                    on_boundary(
                        d, k, kind, weight, unit_low, unit_high, head, lows, highs, largest, near_slack, roundoff,
                        edge, centre, half, near_size, moments, near_low, near_high, near_intercept, near_doubt, spare,
                    )  # fmt: skip
                    place = base + (k + q) * step
                    copy(below, 0, store, place, step // 8)
                    copy(above, 0, store, place, step // 8)
                    error_low = error_high = roundoff * dot_absolute(store, place, near_size, 0, step // 8) + abs(
                        slacks[fbase + k + q]
                    )
                    for i in range(4):
                        sums[i] = 0.0
                    end = firsts[fbase + k + q]
                    while end > 0:
                        begin = firsts[fbase + end - 1]
                        relax(
                            below, above, head + begin, near_low, near_high, near_intercept, near_doubt, begin,
                            end - begin, for_below, for_above, sums,
                        )  # fmt: skip
                        add_rows(
                            below, above, store, base + begin * step, step, end - begin, for_below, for_above,
                            heads + (begin + 7) // 8,
                        )  # fmt: skip
                        end = begin
                    below[d] += sums[0] - error_low - sums[2]
                    above[d] += sums[1] + error_high + sums[3]
                    below[d] -= 4e-16 * (abs(below[d]) + error_low + sums[2])
                    above[d] += 4e-16 * (abs(above[d]) + error_high + sums[3])
                    better = tail_guess(below, 0, own, moments, 1.0) < tail_guess(form_low, at, own, moments, 1.0)
                    better = better and abs(below[d]) < HUGE
                    if better and crosses(own, form_low, at, below, centre, half, size, 1.0):
                        for i in range(own + 1):
                            form_low[at + i] = below[i]
                    better = tail_guess(above, 0, own, moments, -1.0) < tail_guess(form_high, at, own, moments, -1.0)
                    better = better and abs(above[d]) < HUGE
                    if better and crosses(own, form_high, at, above, centre, half, size, -1.0):
                        for i in range(own + 1):
                            form_high[at + i] = above[i]
                for c in range(n_cases):
                    case_high[c] = case_low[c] = 1.0 if case_open[c] > 0 else 0.0
            guess_high = 0.0
            guess_low = 0.0
            for q in range(rows_here):
                if state[q] != 0:
                    continue
                c = case_of[row_ids[e, q]]
                at = q * (own + 1)
                case_high[c] = min(case_high[c], tail_guess(form_low, at, own, moments, 1.0))
                case_low[c] -= tail_guess(form_high, at, own, moments, -1.0)
            for c in range(n_cases):
                guess_high += case_high[c]
                guess_low = max(guess_low, case_low[c])
            guess = mass * (min(1.0, guess_high) - guess_low)
        high = 1.0
        low = 0.0
        resolved = not guess > 1.3 * threshold
        if resolved or most_boxes <= 1:
            tolerance = 0.01
            if 0.1 * threshold < 0.01 * mass:
                tolerance = 0.1 * threshold / mass
            for c in range(n_cases):
                case_high[c] = case_low[c] = 1.0 if case_open[c] > 0 else 0.0
            for q in range(rows_here):
                if state[q] != 0:
                    continue
                c = case_of[row_ids[e, q]]
                at = q * (own + 1)
                p = fraction(form_low, at, own, lo, hi, sides, node, gaussian, tolerance, work)
                case_high[c] = min(case_high[c], p[1])
                p = fraction(form_high, at, own, lo, hi, sides, node, gaussian, tolerance, work)
                case_low[c] -= 1.0 - p[0]
            high = 0.0
            low = 0.0
            for c in range(n_cases):
                high += case_high[c]
                low = max(low, case_low[c])
            high = min(high, 1.0)
            resolved = mass * (high - low) <= threshold
        # -- where to split --------------------------------------------------------------------------------------
        axis = -1
        if not resolved or most_boxes <= 1:
            for i in range(head):
                score[i] = 0.0
            for j in range(k):
                if kind[j] == 2 and weight[j] > 0.0:
                    add_absolute(score, 0, middle, j * head, weight[j] * gain[j] * twice[j], heads)
            total = 0.0
            for i in range(own):
                score[i] *= half[i]
                total += score[i]
            by_moves = 0.0
            for i in range(own, d):
                by_moves += score[i] * half[i]
            if n_open > 1 or not total > 0.0:
                for q in range(rows_here):
                    if state[q] == 0:
                        at = q * (own + 1)
                        for i in range(own):
                            score[i] += 0.25 * half[i] * (abs(form_low[at + i]) + abs(form_high[at + i]))
            best = -1.0
            for i in range(own):
                s = score[i]
                if not s < np.inf:
                    s = half[i] * 1e300 if gaussian else half[i] / root_width[i] * 1e300
                if s > best and half[i] > 1e-13 * (abs(centre[i]) + root_width[i]):
                    best = s
                    axis = i
            if best <= 0.0 or (free > 0 and total < MOVES_REST * by_moves and n_open == 1):
                axis = -1  # nothing to split, or what is left open is left open by the moves
            hopeless = loose == 0  # what varies less than its rounding error is not decided by smaller boxes
            for q in range(rows_here):
                if state[q] == 0 and not firm[q]:
                    hopeless = False
            if hopeless:
                axis = -1
        if resolved or axis < 0 or boxes >= most_boxes or waiting + 2 > MOST_NODES:
            if not resolved and boxes >= most_boxes > 1 and guess > 1.3 * threshold:
                high, low = 1.0, 0.0
            inside += mass * low
            possible += mass * high
            outside += mass * (1.0 - high)
            left += 1
            if most_boxes > 1:
                continue
        # -- fold what is settled --------------------------------------------------------------------------------
        top = base + (k + rows_here) * step
        ftop = fbase + k + rows_here
        live = n_open
        target = e
        if most_boxes <= 1 or (unstable <= 0.8 * k and k > 2) or live < rows_here:
            new_step = head + 8 * ((unstable + 7) // 8)
            if (
                e + 1 < MOST_LEVELS
                and top + (unstable + live) * new_step <= len(store)
                and ftop + unstable + live <= len(firsts)
            ):
                target = e + 1
                count = 0
                for j in range(k):
                    renumber[j] = count
                    if kind[j] == 2:
                        count += 1
                renumber[k] = count
                made = 0
                for j in range(k + rows_here):
                    if j < k:
                        if kind[j] != 2:
                            continue
                    elif state[j - k] != 0:
                        continue
                    f = firsts[fbase + j]
                    place = base + j * step
                    copy(below, 0, store, place, heads + (f + 7) // 8)
                    folded = False
                    error = roundoff * largest[j] + abs(slacks[fbase + j])
                    for m in range(f - 1, -1, -1):
                        if kind[m] == 1:
                            x = below[head + m]
                            if x != 0.0:
                                folded = True
                                error += abs(x) * doubt[m]
                                axpy(below, 0, store, base + m * step, x, (head + 7 + firsts[fbase + m]) // 8)
                    goal = top + made * new_step
                    copy(store, goal, below, 0, heads)
                    for i in range(head, new_step):
                        store[goal + i] = 0.0
                    for m in range(f):
                        if kind[m] == 2:
                            store[goal + head + renumber[m]] = below[head + m]
                    firsts[ftop + made] = renumber[f]
                    slacks[ftop + made] = error if folded else slacks[fbase + j]
                    if j >= k:
                        q = made - unstable
                        row_ids[target, q] = row_ids[e, j - k]
                    made += 1
                level[target, 0] = unstable
                level[target, 1] = live
                level[target, 2] = new_step
                level[target, 3] = top
                level[target, 4] = ftop
        cut = 0.0
        if axis >= 0:
            low_end, high_end = lo[node + axis], hi[node + axis]
            cut = 0.5 * (low_end + high_end)
            if gaussian and high_end - low_end > 1.5:
                if low_end < -0.5 and high_end > 0.5:
                    cut = 0.0
                elif low_end >= -0.5 and high_end > low_end + 2.0:
                    cut = max(low_end, 0.0) + 1.0
                elif high_end <= 0.5 and low_end < high_end - 2.0:
                    cut = min(high_end, 0.0) - 1.0
        if most_boxes <= 1:
            children[0] = axis
            children[1] = cut
            child_counts[0] = unstable
            child_counts[1] = live
            if target != e:
                n = (unstable + live) * level[target, 2]
                for i in range(n):
                    child_net[i] = store[top + i]
                for i in range(unstable + live):
                    child_first[i] = firsts[ftop + i]
                    child_slack[i] = slacks[ftop + i]
                for q in range(live):
                    child_counts[2 + q] = row_ids[target, q]
                child_counts[2 + n_rows] = 1
            continue
        # the first child stays in place, the second goes on top
        other = node + d
        for i in range(d):
            lo[other + i], hi[other + i], sides[other + i] = lo[node + i], hi[node + i], sides[node + i]
        hi[node + axis] = cut
        lo[other + axis] = cut
        if gaussian:
            sides[node + axis] = side_mass(lo[node + axis], cut)
            sides[other + axis] = side_mass(cut, hi[other + axis])
        else:
            sides[node + axis] = (cut - lo[node + axis]) / root_width[axis]
            sides[other + axis] = (hi[other + axis] - cut) / root_width[axis]
        at_level[waiting] = target
        at_level[waiting + 1] = target
        waiting += 2
    out[0] = inside
    out[1] = possible
    out[2] = boxes
    out[3] = left
    out[4] = 0.0
    out[5] = outside
    out[6] = faint
    if waiting > 0:
        out[4] = 1.0
        for b in range(waiting):
            mass = 1.0
            for i in range(d):
                mass *= sides[b * d + i]
            out[1] += mass
