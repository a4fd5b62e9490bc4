"""Points from two families, tilted and guided: drawing them coordinate by coordinate, and mixing the families."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reluscope._kernels import kernel
from reluscope.measure.polytope.lanes import (
    CENTRE,
    HIGH,
    LEFT,
    LOW,
    RIGHT,
    V,
    X,
    begin,
    bury,
    combine,
    count_guided,
    count_tilted,
    draw_lanes,
    interval_lanes,
    step,
    tighten,
    widest,
)
from reluscope.measure.polytope.tilt import LANES


@kernel
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


@kernel
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


@kernel
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


@kernel
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
