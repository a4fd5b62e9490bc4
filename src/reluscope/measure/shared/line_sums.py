"""What a traced line contributes: compiled sums over its segments, exact integrals under the law along the line.

The law of t on a line is one of

- `NORMAL`: N(0, 1), also restricted to [low, high] (then `scale` is one over the mass of that interval);
- `UNIFORM`: uniform on [low, high], `scale = 1 / (high - low)`;
- `RADIAL`: the signed distance from the origin of N(0, I_r), density `|t|^(r-1) exp(-t^2/2) / (2^(r/2) Gamma(r/2))`.

Masses are differences of tails taken on the near side, so small probabilities keep their relative accuracy. Kernels
write one row per line where lines are squared later (finite-sample intervals), and sums by group of lines elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reluscope._kernels import inner, kernel
from reluscope.measure.normal import INV_SQRT_2PI, mills, upper_tail

NORMAL, UNIFORM, RADIAL = 0, 1, 2

FLAT = 1e-12
"""Slopes below this share of the largest slope met on the line count as 0: the form is constant there."""

TIE = 1e-11
"""A constant form this close to a threshold (relative to its size on the line) counts as being on it."""


@inner
def radial_tail(t: float, r: int) -> float:
    """P(|u| > t) for u ~ N(0, I_r) and t >= 0: positive terms only, r/2 of them."""
    half = 0.5 * t * t
    if t == 0.0:
        return 1.0
    if half > 740.0:
        return 0.0
    density = math.exp(-half)
    # Q_{k+2} = Q_k + t^k exp(-t^2/2) / (2^(k/2) Gamma(k/2 + 1))
    if r % 2 == 0:
        total, term, k = density, density, 2
    else:
        total, term, k = 2.0 * upper_tail(t), 2.0 * INV_SQRT_2PI * density / t, 1
    while k < r:
        term *= t * t / k
        total += term
        k += 2
    return min(total, 1.0)


@inner
def radial_density(t: float, r: int) -> float:
    """Density of the signed distance at t."""
    if t == 0.0:
        return INV_SQRT_2PI if r == 1 else 0.0
    return math.exp((r - 1) * math.log(abs(t)) - 0.5 * t * t - 0.5 * r * math.log(2.0) - math.lgamma(0.5 * r))


@inner
def far_side(law: int, r: int, t: float) -> float:
    """Mass beyond t, on the side away from 0 (for `UNIFORM` t itself)."""
    if law == NORMAL:
        t = abs(t)
        return INV_SQRT_2PI * math.exp(-0.5 * t * t) * mills(t)
    return t if law == UNIFORM else 0.5 * radial_tail(abs(t), r)


@inner
def between(law: int, a: float, beyond_a: float, b: float, beyond_b: float) -> float:
    """Mass of [a, b] given the masses beyond its ends, before `scale`."""
    if law == UNIFORM:
        return max(b - a, 0.0)
    if a >= 0.0:
        return max(beyond_a - beyond_b, 0.0)
    if b <= 0.0:
        return max(beyond_b - beyond_a, 0.0)
    return 1.0 - beyond_a - beyond_b


@inner
def line_density(law: int, r: int, t: float) -> float:
    """Density at t under the law along the line, before `scale`."""
    if law == NORMAL:
        return INV_SQRT_2PI * math.exp(-0.5 * t * t)
    return 1.0 if law == UNIFORM else radial_density(t, r)


@kernel
def levels(
    law: int,
    r: int,
    offsets: Any,
    t: Any,
    value: Any,
    slope: Any,
    low: Any,
    high: Any,
    scale: Any,
    form: int,
    thresholds: Any,
    column: int,
    below: Any,
    above: Any,
    density: Any,
) -> None:
    """P(y <= c), P(y > c) and the density of y at c on each line, for increasing thresholds c; y is form `form`.

    Results go to columns `column`, `column + 1`, ... The density is the sum of phi(t*) / |slope| over the points t*
    where y passes c (`density` with no rows: not computed). A stretch where y is constant and equal to c counts as y
    <= c.
    """
    count = thresholds.size
    since, beyond = np.empty(count), np.empty(count)
    dense = density.shape[0] > 0
    for line in range(offsets.size - 1):
        begin, end = offsets[line], offsets[line + 1]
        for q in range(count):
            below[line, column + q] = 0.0
            above[line, column + q] = 0.0
            if dense:
                density[line, column + q] = 0.0
        if begin == end:
            continue
        start = far_side(law, r, low[line])
        for q in range(count):
            since[q] = low[line]
            beyond[q] = start
        steep, size = 0.0, 0.0
        k = 0
        while k < count and value[begin, form] > thresholds[k]:
            k += 1
        for q in range(begin, end):
            y0, s = value[q, form], slope[q, form]
            steep = max(steep, abs(s))
            size = max(size, abs(y0))
            t0 = t[q]
            if abs(s) <= FLAT * steep:
                tie = TIE * size
                while k > 0 and y0 <= thresholds[k - 1] + tie:
                    k -= 1
                    tail = far_side(law, r, t0)
                    above[line, column + k] += between(law, since[k], beyond[k], t0, tail)
                    since[k], beyond[k] = t0, tail
                while k < count and y0 > thresholds[k] + tie:
                    tail = far_side(law, r, t0)
                    below[line, column + k] += between(law, since[k], beyond[k], t0, tail)
                    since[k], beyond[k] = t0, tail
                    k += 1
                continue
            t1 = t[q + 1] if q + 1 < end else high[line]
            y1 = y0 + s * (t1 - t0)
            while k < count and y1 > thresholds[k]:
                at = min(max(t0 + (thresholds[k] - y0) / s, t0), t1)
                tail = far_side(law, r, at)
                below[line, column + k] += between(law, since[k], beyond[k], at, tail)
                since[k], beyond[k] = at, tail
                if dense:
                    density[line, column + k] += line_density(law, r, at) / abs(s)
                k += 1
            while k > 0 and y1 <= thresholds[k - 1]:
                k -= 1
                at = min(max(t0 + (thresholds[k] - y0) / s, t0), t1)
                tail = far_side(law, r, at)
                above[line, column + k] += between(law, since[k], beyond[k], at, tail)
                since[k], beyond[k] = at, tail
                if dense:
                    density[line, column + k] += line_density(law, r, at) / abs(s)
        tail = far_side(law, r, high[line])
        for q in range(count):
            rest = between(law, since[q], beyond[q], high[line], tail)
            if q < k:
                above[line, column + q] += rest
            else:
                below[line, column + q] += rest
            below[line, column + q] *= scale[line]
            above[line, column + q] *= scale[line]
            if dense:
                density[line, column + q] *= scale[line]


@kernel
def events(
    law: int,
    r: int,
    offsets: Any,
    t: Any,
    value: Any,
    slope: Any,
    low: Any,
    high: Any,
    scale: Any,
    row_form: Any,
    row_bound: Any,
    row_strict: Any,
    row_parts: Any,
    row_part_start: Any,
    part_event: Any,
    part_size: Any,
    out: Any,
) -> None:
    """P(event) on each line for unions of conjunctions of rows `form <= bound` (or `<`), by exact intersection.

    Row i belongs to the conjunctions `row_parts[row_part_start[i]:row_part_start[i+1]]`; conjunction p has
    `part_size[p]` rows and belongs to event `part_event[p]`.
    """
    n_rows, n_parts, n_events = row_form.size, part_event.size, out.shape[1]
    inside = np.empty(n_rows, np.bool_)
    met, true_parts = np.empty(n_parts, np.int64), np.empty(n_events, np.int64)
    since, beyond = np.empty(n_events), np.empty(n_events)
    steep, size = np.empty(n_rows), np.empty(n_rows)
    queue_t, queue_row = np.empty(n_rows), np.empty(n_rows, np.int64)
    for line in range(offsets.size - 1):
        begin, end = offsets[line], offsets[line + 1]
        for e in range(n_events):
            out[line, e] = 0.0
            true_parts[e] = 0
            since[e] = low[line]
        for p in range(n_parts):
            met[p] = 0
            if part_size[p] == 0:
                true_parts[part_event[p]] += 1
        if begin == end:
            continue
        start = far_side(law, r, low[line])
        for e in range(n_events):
            beyond[e] = start
        for i in range(n_rows):
            y, f = value[begin, row_form[i]], row_form[i]
            steep[i], size[i] = 0.0, abs(y)
            s = slope[begin, f]
            inside[i] = y < row_bound[i] or (y == row_bound[i] and s <= 0.0 and not (row_strict[i] and s == 0.0))
            if inside[i]:
                for k in range(row_part_start[i], row_part_start[i + 1]):
                    p = row_parts[k]
                    met[p] += 1
                    if met[p] == part_size[p]:
                        true_parts[part_event[p]] += 1
        for q in range(begin, end):
            t0 = t[q]
            t1 = t[q + 1] if q + 1 < end else high[line]
            queued = 0
            for i in range(n_rows):
                f = row_form[i]
                y0, s, bound = value[q, f], slope[q, f], row_bound[i]
                steep[i] = max(steep[i], abs(s))
                size[i] = max(size[i], abs(y0))
                if abs(s) <= FLAT * steep[i]:
                    tie = TIE * size[i]
                    now = y0 < bound - tie if row_strict[i] else y0 <= bound + tie
                    at = t0
                else:
                    now = y0 + s * (t1 - t0) <= bound
                    at = min(max(t0 + (bound - y0) / s, t0), t1)
                if now != inside[i]:
                    k = queued
                    while k > 0 and queue_t[k - 1] > at:
                        queue_t[k], queue_row[k] = queue_t[k - 1], queue_row[k - 1]
                        k -= 1
                    queue_t[k], queue_row[k] = at, i
                    queued += 1
            for k in range(queued):
                i, at = queue_row[k], queue_t[k]
                inside[i] = not inside[i]
                for j in range(row_part_start[i], row_part_start[i + 1]):
                    p = row_parts[j]
                    e = part_event[p]
                    if inside[i]:
                        met[p] += 1
                        if met[p] == part_size[p]:
                            true_parts[e] += 1
                            if true_parts[e] == 1:
                                since[e], beyond[e] = at, far_side(law, r, at)
                    else:
                        if met[p] == part_size[p]:
                            true_parts[e] -= 1
                            if true_parts[e] == 0:
                                out[line, e] += between(law, since[e], beyond[e], at, far_side(law, r, at))
                        met[p] -= 1
        tail = far_side(law, r, high[line])
        for e in range(n_events):
            if true_parts[e] > 0:
                out[line, e] += between(law, since[e], beyond[e], high[line], tail)
            out[line, e] *= scale[line]


@kernel
def moments(
    law: int,
    r: int,
    offsets: Any,
    t: Any,
    value: Any,
    slope: Any,
    low: Any,
    high: Any,
    scale: Any,
    forms: Any,
    first: Any,
    second: Any,
) -> None:
    """E y (lines, k) and E y y' (lines, k, k) of the chosen forms on each line.

    On a segment y = d + s t, so E y = d m0 + s m1 and E y y' = d d' m0 + (d s' + s d') m1 + s s' m2 with the moments
    m0, m1, m2 of the law on the segment.
    """
    count = forms.size
    d, s = np.empty(count), np.empty(count)
    root = math.sqrt(2.0) * math.exp(math.lgamma(0.5 * (r + 1)) - math.lgamma(0.5 * r)) if law == RADIAL else 1.0
    for line in range(offsets.size - 1):
        begin, end = offsets[line], offsets[line + 1]
        for i in range(count):
            first[line, i] = 0.0
            for j in range(count):
                second[line, i, j] = 0.0
        for q in range(begin, end):
            a = t[q]
            b = t[q + 1] if q + 1 < end else high[line]
            if law == NORMAL:
                m0 = between(law, a, far_side(law, r, a), b, far_side(law, r, b))
                pa, pb = line_density(law, r, a), line_density(law, r, b)
                m1 = pa - pb
                m2 = m0 + a * pa - b * pb
            elif law == UNIFORM:
                m0 = b - a
                m1 = 0.5 * (a + b) * m0
                m2 = (a * a + a * b + b * b) / 3.0 * m0
            else:
                # E |t| and t^2 on a half line are tails of the laws with r + 1 and r + 2 degrees of freedom.
                m0 = between(law, a, far_side(law, r, a), b, far_side(law, r, b))
                one_a, one_b = far_side(law, r + 1, a), far_side(law, r + 1, b)
                two_a, two_b = far_side(law, r + 2, a), far_side(law, r + 2, b)
                m1 = root * (one_a - one_b)
                m2 = r * between(law, a, two_a, b, two_b)
            for i in range(count):
                s[i] = slope[q, forms[i]]
                d[i] = value[q, forms[i]] - s[i] * a
                first[line, i] += scale[line] * (d[i] * m0 + s[i] * m1)
            for i in range(count):
                for j in range(i + 1):
                    cross = d[i] * d[j] * m0 + (d[i] * s[j] + s[i] * d[j]) * m1 + s[i] * s[j] * m2
                    second[line, i, j] += scale[line] * cross
        for i in range(count):
            for j in range(i):
                second[line, j, i] = second[line, i, j]


@kernel
def segment_masses(law: int, r: int, offsets: Any, t: Any, high: Any, scale: Any, out: Any) -> None:
    """Mass of every segment under the law of its line."""
    for line in range(offsets.size - 1):
        end = offsets[line + 1]
        if offsets[line] == end:
            continue
        beyond = far_side(law, r, t[offsets[line]])
        for q in range(offsets[line], end):
            b = t[q + 1] if q + 1 < end else high[line]
            tail = far_side(law, r, b)
            out[q] = scale[line] * between(law, t[q], beyond, b, tail)
            beyond = tail


@kernel
def unit_marginals(
    mass: Any,
    offsets: Any,
    switch_offsets: Any,
    at: Any,
    unit: Any,
    piece: Any,
    pattern: Any,
    group: Any,
    total: Any,
    square: Any,
    most: Any,
    least: Any,
) -> None:
    """Add each line's P(unit is on piece p) to `total[group[line], unit, p]` and its square to `square[unit, p]`.

    `most` and `least` keep up with the largest and smallest.
    """
    units, pieces = total.shape[1], total.shape[2]
    share = np.zeros((units, pieces))
    now, since = np.zeros(units, np.int64), np.zeros(units)
    for line in range(offsets.size - 1):
        share[:] = 0.0
        for j in range(units):
            now[j] = pattern[line, j]
            since[j] = 0.0
        done = 0.0
        q = switch_offsets[line]
        for k in range(offsets[line], offsets[line + 1]):
            while q < switch_offsets[line + 1] and at[q] <= k:
                j = unit[q]
                share[j, now[j]] += done - since[j]
                now[j] = piece[q]
                since[j] = done
                q += 1
            done += mass[k]
        for j in range(units):
            share[j, now[j]] += done - since[j]
            for p in range(pieces):
                total[group[line], j, p] += share[j, p]
                square[j, p] += share[j, p] * share[j, p]
                most[j, p] = max(most[j, p], share[j, p])
                least[j, p] = min(least[j, p], share[j, p])


@kernel
def pattern_masses(
    mass: Any,
    offsets: Any,
    switch_offsets: Any,
    at: Any,
    unit: Any,
    piece: Any,
    pattern: Any,
    group: Any,
    codes: Any,
    slots: Any,
    keys: Any,
    known: Any,
    total: Any,
    square: Any,
    most: Any,
    line_of: Any,
    line_mass: Any,
    rest: Any,
    first_line: int,
    used: int,
) -> int:
    """Add the mass of every segment to its pattern's entry; returns the number of entries in use.

    A pattern's key is the exclusive-or of two random words per (unit, piece) in `codes`: 128 bits, so that two
    patterns among a million share a key with probability 1e-27. `slots` is the open-addressed index (0: free, else
    entry + 1). When all entries are taken, the mass of new patterns goes to `rest[group]`. `square` sums squares of a
    line's whole mass per pattern, of which `line_of` and `line_mass` hold the unfinished one; `most` is the largest.
    """
    units = pattern.shape[1]
    room = known.shape[0]
    mask = np.uint64(slots.size - 1)
    now = np.zeros(units, np.int64)
    for line in range(offsets.size - 1):
        a, b = np.uint64(0), np.uint64(0)
        for j in range(units):
            now[j] = pattern[line, j]
            a ^= codes[j, now[j], 0]
            b ^= codes[j, now[j], 1]
        q = switch_offsets[line]
        for k in range(offsets[line], offsets[line + 1]):
            while q < switch_offsets[line + 1] and at[q] <= k:
                j, p = unit[q], piece[q]
                a ^= codes[j, now[j], 0] ^ codes[j, p, 0]
                b ^= codes[j, now[j], 1] ^ codes[j, p, 1]
                now[j] = p
                q += 1
            if mass[k] <= 0.0:
                continue
            slot = a & mask
            entry = slots[slot] - 1
            while entry >= 0 and not (keys[entry, 0] == a and keys[entry, 1] == b):
                slot = (slot + np.uint64(1)) & mask
                entry = slots[slot] - 1
            if entry < 0:
                if used == room:
                    rest[group[line]] += mass[k]
                    continue
                entry = used
                slots[slot] = entry + 1
                keys[entry, 0], keys[entry, 1] = a, b
                for j in range(units):
                    known[entry, j] = now[j]
                line_of[entry] = -1
                used += 1
            total[entry, group[line]] += mass[k]
            if line_of[entry] != first_line + line:
                square[entry] += line_mass[entry] * line_mass[entry]
                line_of[entry] = first_line + line
                line_mass[entry] = 0.0
            line_mass[entry] += mass[k]
            most[entry] = max(most[entry], line_mass[entry])
    return used


@kernel
def flat_parts(offsets: Any, slope: Any, form: int, flat: Any) -> None:
    """Mark the segments on which form `form` is constant."""
    for line in range(offsets.size - 1):
        steep = 0.0
        for q in range(offsets[line], offsets[line + 1]):
            steep = max(steep, abs(slope[q, form]))
        for q in range(offsets[line], offsets[line + 1]):
            flat[q] = abs(slope[q, form]) <= FLAT * steep
