"""Cells cut by the level sets of an affine function: how much lies below each level, and how dense it is there.

On cell i the function is `y = coef[i] . u + offset[i]`. For thresholds t, over all cells at once,

    below(t)   = sum_i measure(cell i and y <= t),      density(t) = sum_i measure of the slice {y = t} / |coef[i]|,

where the measure is N(0, I) or plain volume. One dimension: intervals. Two: only cells that straddle a threshold are
clipped, the others count whole; the slice is a chord, a closed form of two Phi's. Three: the slices across `coef`
are polygons, measured exactly, and one quadrature along `coef` serves all thresholds of a cell. Cells on which the
function is constant are left out (they are atoms). Kernels do not validate.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.measure.exact.interval import interval_mass_kernel
from reluscope.measure.exact.polygon import WORKSPACE, polygon_mass_with, segment_density_kernel
from reluscope.measure.exact.polyhedron import (
    ends_of_corners,
    frame_of,
    hull_of_crossings,
    nearest_in_hull,
    piece_rule,
    piece_sum,
)
from reluscope.measure.normal import EPS, RULE_SIZES, normal_pdf

IntArray = npt.NDArray[np.int64]

# Rounding of a threshold, as a multiple of eps times the numbers that meet in it.
_LEVEL_ROUNDING = 8.0 * EPS
_NO_RULE = len(RULE_SIZES)
_TOLERANCE = 1e-12
_SHORTEST = 1e-6
# Slices are dropped where the density is below exp(-50) of the largest one in the cell.
_DROP = 100.0
_MOMENTS = 10


class _Cut(NamedTuple):
    """What the kernels take: cells (vertices, or the two ends of intervals), the function on each, levels, results."""

    points: FloatArray
    offsets: IntArray
    coef: FloatArray
    offset: FloatArray
    whole: FloatArray
    whole_error: FloatArray
    scale: float
    t: FloatArray
    gaussian: bool
    out: FloatArray
    error: FloatArray


def _corners(cells: Any) -> tuple[FloatArray, IntArray]:
    if cells.dimension == 1:
        return np.stack([cells.low, cells.high], axis=1), np.zeros(0, np.int64)
    return cells.points, cells.offsets


def below(
    cells: Any,
    coef: FloatArray,
    offset: FloatArray,
    whole: FloatArray,
    whole_error: FloatArray,
    scale: float,
    t: FloatArray,
    gaussian: bool,
) -> tuple[FloatArray, FloatArray]:
    """`P(y <= t)` over all cells with a non-zero coefficient, and a bound on its rounding; t sorted.

    coef: (n, r), offset, whole, whole_error: (n,). `whole` is the final mass of each cell; masses of parts are
    multiplied by `scale`. Returns two arrays of the shape of `t`.
    """
    # Row 0: parts of cells at their threshold; row 1: whole cells, at the first threshold above them.
    out, error = np.zeros((2, len(t))), np.zeros((2, len(t)))
    cut = _Cut(*_corners(cells), coef, offset, whole, whole_error, scale, t, gaussian, out, error)
    (_interval_below, _polygon_below, _solid_below)[cells.dimension - 1](cut)
    value = out[0] + np.cumsum(out[1])
    return np.maximum.accumulate(value) if len(t) else value, error[0] + np.cumsum(error[1])


def density(
    cells: Any, coef: FloatArray, offset: FloatArray, scale: float, t: FloatArray, gaussian: bool
) -> tuple[FloatArray, FloatArray]:
    """Density of y at the sorted levels t over all cells with a non-zero coefficient, and a bound on its rounding."""
    out, error, none = np.zeros(len(t)), np.zeros(len(t)), np.zeros(0)
    cut = _Cut(*_corners(cells), coef, offset, none, none, scale, t, gaussian, out, error)
    (_interval_density, _polygon_density, _solid_density)[cells.dimension - 1](cut)
    return out, error


def ranges(cells: Any, coef: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Least and largest y on each cell, shapes (n,)."""
    if cells.dimension == 1:
        with np.errstate(invalid="ignore"):
            ends = np.stack([cells.low, cells.high], axis=1) * coef
        ends = np.where(coef == 0, 0.0, ends) + offset[:, None]
        return ends.min(axis=1), ends.max(axis=1)
    owner = np.repeat(np.arange(len(cells)), np.diff(cells.offsets))
    y = np.einsum("vi,vi->v", cells.points, coef[owner]) + offset[owner]
    starts = cells.offsets[:-1]
    return np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)


# --- one dimension ---------------------------------------------------------------------------------------------


@kernel
def _interval_below(cut: _Cut) -> None:
    ends, _, coef, offset, whole, whole_error, scale, t, gaussian, out, error = cut
    for i in range(ends.shape[0]):
        c, d = coef[i, 0], offset[i]
        if c == 0.0:
            continue
        first, last = c * ends[i, 0] + d, c * ends[i, 1] + d
        low, high = min(first, last), max(first, last)
        k = np.searchsorted(t, low, side="right")
        while k < t.size and t[k] < high:
            u = (t[k] - d) / c
            u = min(max(u, ends[i, 0]), ends[i, 1])
            a, b = (ends[i, 0], u) if c > 0.0 else (u, ends[i, 1])
            mass = interval_mass_kernel(a, b) if gaussian else b - a
            around = normal_pdf(u) if gaussian else 1.0
            out[0, k] += scale * mass
            shift = _LEVEL_ROUNDING * (abs(t[k]) + abs(d)) / abs(c) + EPS * abs(u)
            error[0, k] += scale * (1e-13 * mass + shift * around)
            k += 1
        if k < t.size:
            out[1, k] += whole[i]
            error[1, k] += whole_error[i]


@kernel
def _interval_density(cut: _Cut) -> None:
    ends, _, coef, offset, _, _, scale, t, gaussian, out, error = cut
    for i in range(ends.shape[0]):
        c, d = coef[i, 0], offset[i]
        if c == 0.0:
            continue
        first, last = c * ends[i, 0] + d, c * ends[i, 1] + d
        low, high = min(first, last), max(first, last)
        k = np.searchsorted(t, low, side="left")
        while k < t.size and t[k] < high:  # half open: neighbours share their ends
            u = (t[k] - d) / c
            value = scale * (normal_pdf(u) if gaussian else 1.0) / abs(c)
            shift = _LEVEL_ROUNDING * (abs(t[k]) + abs(d)) / abs(c)
            out[k] += value
            error[k] += value * (1e-13 + abs(u) * shift)
            k += 1


# --- two dimensions --------------------------------------------------------------------------------------------


@kernel
def _levels(
    points: FloatArray, start: int, stop: int, coef: FloatArray, offset: float, y: FloatArray
) -> tuple[float, float]:
    """Fill y[:stop - start] with the function at the vertices; returns its least and largest value."""
    low, high = np.inf, -np.inf
    for v in range(start, stop):
        total = offset
        for j in range(coef.size):
            total += coef[j] * points[v, j]
        y[v - start] = total
        low, high = min(low, total), max(high, total)
    return low, high


@kernel
def _crossing(points: FloatArray, p: int, q: int, yp: float, yq: float, t: float, to: FloatArray, row: int) -> None:
    """The point between vertices p and q where the function is t, measured from the nearer end."""
    if abs(t - yp) <= abs(yq - t):
        s = (t - yp) / (yq - yp)
        for j in range(to.shape[1]):
            to[row, j] = points[p, j] + s * (points[q, j] - points[p, j])
    else:
        s = (yq - t) / (yq - yp)
        for j in range(to.shape[1]):
            to[row, j] = points[q, j] + s * (points[p, j] - points[q, j])


@kernel
def _area(polygon: FloatArray, count: int) -> float:
    total = 0.0
    for k in range(1, count - 1):
        ax, ay = polygon[k, 0] - polygon[0, 0], polygon[k, 1] - polygon[0, 1]
        bx, by = polygon[k + 1, 0] - polygon[0, 0], polygon[k + 1, 1] - polygon[0, 1]
        total += ax * by - ay * bx
    return 0.5 * total


@kernel
def _chord(points: FloatArray, start: int, stop: int, y: FloatArray, t: float, ends: FloatArray) -> int:
    """The two ends of the chord {y = t} of a polygon into `ends`; how many points were found (0, 1 or 2)."""
    count = 0
    n = stop - start
    for k in range(n):
        following = k + 1 if k + 1 < n else 0
        if y[k] == t:
            if count < 2:
                ends[count, 0], ends[count, 1] = points[start + k, 0], points[start + k, 1]
            count += 1
        elif (y[k] < t and y[following] > t) or (y[k] > t and y[following] < t):
            if count < 2:
                _crossing(points, start + k, start + following, y[k], y[following], t, ends, count)
            count += 1
    return min(count, 2)


@kernel
def _chord_measure(ends: FloatArray, gaussian: bool) -> float:
    if gaussian:
        return segment_density_kernel(ends[0, 0], ends[0, 1], ends[1, 0], ends[1, 1])
    return math.hypot(ends[1, 0] - ends[0, 0], ends[1, 1] - ends[0, 1])


@kernel
def _most(offsets: IntArray) -> int:
    most = 0
    for i in range(offsets.size - 1):
        most = max(most, offsets[i + 1] - offsets[i])
    return most


@kernel
def _polygon_below(cut: _Cut) -> None:
    points, offsets, coef, offset, whole, whole_error, scale, t, gaussian, out, error = cut
    most = _most(offsets)
    y, polygon, ends, buffer = np.empty(most), np.empty((2 * most + 2, 2)), np.empty((2, 2)), np.empty(WORKSPACE)
    for i in range(offsets.size - 1):
        size = math.hypot(coef[i, 0], coef[i, 1])
        if size == 0.0:
            continue
        start, stop = offsets[i], offsets[i + 1]
        low, high = _levels(points, start, stop, coef[i], offset[i], y)
        k = np.searchsorted(t, low, side="right")
        while k < t.size and t[k] < high:
            count: Any = np.int64(0)  # a plain 0 would compile the polygon kernels once more
            for v in range(stop - start):
                following = v + 1 if v + 1 < stop - start else 0
                if y[v] <= t[k]:
                    polygon[count, 0], polygon[count, 1] = points[start + v, 0], points[start + v, 1]
                    count += 1
                if (y[v] < t[k] and y[following] > t[k]) or (y[v] > t[k] and y[following] < t[k]):
                    _crossing(points, start + v, start + following, y[v], y[following], t[k], polygon, count)
                    count += 1
            if gaussian:
                first: Any = np.int64(0)
                mass, bound = polygon_mass_with(polygon, first, count, buffer)
            else:
                mass = _area(polygon, count)
                bound = 16.0 * EPS * mass
            bound += (
                _LEVEL_ROUNDING
                * (abs(t[k]) + abs(offset[i]) + max(abs(low), abs(high)))
                * (_chord_measure(ends, gaussian) / size if _chord(points, start, stop, y, t[k], ends) == 2 else 0.0)
            )
            # A part is never more than the whole, whatever the rounding.
            out[0, k] += min(scale * mass, whole[i])
            error[0, k] += scale * bound + whole_error[i] * (scale * mass / whole[i] if whole[i] > 0.0 else 0.0)
            k += 1
        if k < t.size:
            out[1, k] += whole[i]
            error[1, k] += whole_error[i]


@kernel
def _polygon_density(cut: _Cut) -> None:
    points, offsets, coef, offset, _, _, scale, t, gaussian, out, error = cut
    y, ends = np.empty(_most(offsets)), np.empty((2, 2))
    for i in range(offsets.size - 1):
        size = math.hypot(coef[i, 0], coef[i, 1])
        if size == 0.0:
            continue
        start, stop = offsets[i], offsets[i + 1]
        low, high = _levels(points, start, stop, coef[i], offset[i], y)
        k = np.searchsorted(t, low, side="left")
        while k < t.size and t[k] < high:  # half open: neighbours share their edges
            if _chord(points, start, stop, y, t[k], ends) == 2:
                value = scale * _chord_measure(ends, gaussian) / size
                far = max(abs(ends[0, 0]), abs(ends[0, 1]), abs(ends[1, 0]), abs(ends[1, 1]))
                shift = _LEVEL_ROUNDING * (abs(t[k]) + abs(offset[i])) / size + EPS * far
                level = abs(t[k] - offset[i]) / size
                around = scale * normal_pdf(level) if gaussian else scale
                out[k] += value
                error[k] += value * (1e-12 + shift * (1.0 + level)) + shift * around / size
            k += 1


# --- three dimensions ------------------------------------------------------------------------------------------


@kernel
def _turned(points: FloatArray, start: int, direction: FloatArray, local: FloatArray) -> float:
    """Vertices of one cell in coordinates whose first axis is `direction`, into `local`; returns the cell's width."""
    frame = frame_of(direction[0], direction[1], direction[2])
    wide = 0.0
    for v in range(local.shape[0]):
        for row in range(3):
            local[v, row] = 0.0
            for j in range(3):
                local[v, row] += frame[row, j] * points[start + v, j]
        for j in range(3):
            wide = max(wide, abs(points[start + v, j] - points[start, j]))
    return wide


@kernel
def _solid_below(cut: _Cut) -> None:
    """Gaussian mass only: one quadrature along `coef` per cell, interrupted at every threshold.

    Between the levels of two vertices the slice is a polygon whose corners move on straight lines, so the
    integrand is entire; see `reluscope.measure.exact.polyhedron`, whose rules and error estimates are used.
    """
    points, offsets, coef, offset, whole, whole_error, scale, t, _, out, error = cut
    most = _most(offsets)
    capacity = most * most // 4 + most + 1
    pairs, chain = np.empty((capacity, 2), dtype=np.int64), np.empty(2 * capacity + 2, dtype=np.int64)
    crossings, low, high = np.empty((capacity, 2)), np.empty((capacity, 2)), np.empty((capacity, 2))
    begin, end, polygon = np.empty((capacity, 2)), np.empty((capacity, 2)), np.empty((capacity, 2))
    buffer, part, y = np.empty(WORKSPACE), np.zeros(_MOMENTS), np.empty(most)
    local_all, levels = np.empty((most, 3)), np.empty(most)
    for i in range(offsets.size - 1):
        size = math.sqrt(coef[i, 0] ** 2 + coef[i, 1] ** 2 + coef[i, 2] ** 2)
        if size == 0.0:
            continue
        start, stop = offsets[i], offsets[i + 1]
        n = stop - start
        least, largest = _levels(points, start, stop, coef[i], offset[i], y)
        k = np.searchsorted(t, least, side="right")
        k_whole = np.searchsorted(t, largest, side="left")
        if k_whole < t.size:
            out[1, k_whole] += whole[i]
            error[1, k_whole] += whole_error[i]
        if k >= k_whole:
            continue
        local = local_all[:n]
        wide = _turned(points, start, coef[i] / size, local)
        for v in range(n):
            place = v
            while place > 0 and levels[place - 1] > local[v, 0]:
                levels[place] = levels[place - 1]
                place -= 1
            levels[place] = local[v, 0]
        x0, x1, x2 = nearest_in_hull(points, start, stop)
        radius2 = x0 * x0 + x1 * x1 + x2 * x2 + _DROP
        rounding = 2.0 * EPS * min(wide, 100.0)
        total, total_error = 0.0, 0.0
        for panel in range(n - 1):
            if k >= k_whole:
                break
            under, over = levels[panel], levels[panel + 1]
            ds = over - under
            if not ds > 0.0:
                continue
            count = hull_of_crossings(local, under, over, pairs, crossings, chain, 16.0 * EPS * wide)
            if count >= 3:
                ends_of_corners(local, pairs, chain, count, under, low)
                ends_of_corners(local, pairs, chain, count, over, high)
            done, step = 0.0, 1.0
            while done < 1.0:
                goal = 1.0
                if k < k_whole:
                    goal = min(1.0, ((t[k] - offset[i]) / size - under) / ds)
                if goal <= done:  # the threshold has been reached
                    out[0, k] += min(scale * total, whole[i])
                    shift = _LEVEL_ROUNDING * (abs(t[k]) + abs(offset[i]) + max(abs(least), abs(largest))) / size
                    around = 0.0
                    if count >= 3:
                        for q in range(count):
                            polygon[q, 0] = low[q, 0] * (1.0 - done) + high[q, 0] * done
                            polygon[q, 1] = low[q, 1] * (1.0 - done) + high[q, 1] * done
                        first: Any = np.int64(0)
                        around = polygon_mass_with(polygon, first, count, buffer)[0] * normal_pdf(under + done * ds)
                    error[0, k] += scale * (total_error + shift * around)
                    if whole[i] > 0.0:
                        error[0, k] += whole_error[i] * min(1.0, scale * total / whole[i])
                    k += 1
                    continue
                if k >= k_whole:
                    break
                step = min(step, goal - done)
                quadrature, rounded = 0.0, 0.0
                part[0] = 0.0
                while count >= 3:
                    reach = done + step
                    for q in range(count):
                        for j in range(2):
                            begin[q, j] = low[q, j] * (1.0 - done) + high[q, j] * done
                            end[q, j] = low[q, j] * (1.0 - reach) + high[q, j] * reach
                    s = under + done * ds
                    rule = piece_rule(s, step * ds, 0.0, 0.0, begin, end, count, radius2)
                    quadrature, rounded = 0.0, 0.0
                    part[0] = 0.0
                    if rule < 0:
                        break
                    short = step <= _SHORTEST * min(1.0, 1.0 / ds)
                    if rule == _NO_RULE and short:
                        rule -= 1
                    if rule < _NO_RULE:
                        quadrature, rounded = piece_sum(
                            s, step * ds, 0.0, 0.0, begin, end, count, rule, rounding, None, polygon, buffer, part
                        )
                        if short or quadrature <= _TOLERANCE * max(part[0], total):
                            break
                    step *= 0.5
                total += part[0]
                total_error += quadrature + rounded
                # Reaching the goal exactly matters: the sum of many steps would stop short of it.
                done = goal if done + step >= goal else done + step
                step *= 2.0
        while k < k_whole:  # thresholds that rounding put beyond the last vertex
            out[0, k] += min(scale * total, whole[i])
            error[0, k] += scale * total_error
            k += 1


@kernel
def _solid_density(cut: _Cut) -> None:
    """Slice polygons across `coef`: mass_2(slice) phi(distance) / |coef|, or area / |coef|."""
    points, offsets, coef, offset, _, _, scale, t, gaussian, out, error = cut
    most = _most(offsets)
    capacity = most * most // 4 + most + 1
    pairs, chain = np.empty((capacity, 2), dtype=np.int64), np.empty(2 * capacity + 2, dtype=np.int64)
    crossings, corners = np.empty((capacity, 2)), np.empty((capacity, 2))
    buffer, y, local_all = np.empty(WORKSPACE), np.empty(most), np.empty((most, 3))
    for i in range(offsets.size - 1):
        size = math.sqrt(coef[i, 0] ** 2 + coef[i, 1] ** 2 + coef[i, 2] ** 2)
        if size == 0.0:
            continue
        start, stop = offsets[i], offsets[i + 1]
        n = stop - start
        least, largest = _levels(points, start, stop, coef[i], offset[i], y)
        k = np.searchsorted(t, least, side="left")
        if k >= t.size or not t[k] < largest:
            continue
        local = local_all[:n]
        wide = _turned(points, start, coef[i] / size, local)
        while k < t.size and t[k] < largest:
            level = (t[k] - offset[i]) / size
            under, over = -np.inf, np.inf
            for v in range(n):
                if local[v, 0] <= level:
                    under = max(under, local[v, 0])
                else:
                    over = min(over, local[v, 0])
            if under > -np.inf and over < np.inf:
                count = hull_of_crossings(local, under, over, pairs, crossings, chain, 16.0 * EPS * wide)
                if count >= 3:
                    ends_of_corners(local, pairs, chain, count, level, corners)
                    if gaussian:
                        first: Any = np.int64(0)
                        value, bound = polygon_mass_with(corners, first, count, buffer)
                        value, bound = value * normal_pdf(level), bound * normal_pdf(level)
                    else:
                        value = _area(corners, count)
                        bound = 16.0 * EPS * value
                    shift = _LEVEL_ROUNDING * (abs(t[k]) + abs(offset[i])) / size + EPS * wide
                    around = normal_pdf(level) if gaussian else wide
                    out[k] += scale * value / size
                    error[k] += scale * (bound + value * (1e-12 + shift * (1.0 + abs(level))) + shift * around) / size
            k += 1
