"""Exact standard normal masses and moments of convex polygons, and densities along segments.

For u ~ N(0, I) in the plane and convex polygons given by their vertices (counter-clockwise, taken as exact), two
methods share the work:

*Boundary sum.* Each directed edge p -> q contributes the signed mass of the triangle (0, p, q),

    cross(p, q)/(4 pi) int_0^1 G(|p + t (q - p)|^2 / 2) dt,      G(x) = (1 - exp(-x))/x,

which is the difference of an angle and an Owen's T, but with a smooth positive integrand: a fixed Gauss rule gives
it to full relative accuracy, without a single arctangent for edges shorter than 11. The sum over edges has absolute
accuracy of about 1e-16; it is taken when nothing (much) cancels.

*Slices.* Far, small or thin cells are cut by the slices through their vertices into trapezoids, and
phi(s) P(lower(s) < v < upper(s)) is integrated along s by Gauss rules whose size follows from a bound on the growth
of the integrand in the complex plane. Everything summed is positive, and the widths of the slices at the vertices
come from orientation determinants in doubled precision, so slivers of any width keep their relative accuracy.

Polygons with fewer than three distinct vertices, or without area, have mass 0. Clockwise
polygons too; non-convex ones are not detected.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reluscope._kernels import inner, kernel
from reluscope.measure.exact.interval import (
    NARROW_HALF_WIDTH,
    NARROW_PRODUCT,
    interval_moments_kernel,
    slice_mass_kernel,
    slice_moments_kernel,
)
from reluscope.measure.exact.vertices import checked_vertices
from reluscope.measure.normal import (
    EPS,
    INV_2PI,
    INV_4PI,
    RULE_NODES,
    RULE_SIZES,
    RULE_START,
    RULE_WEIGHTS,
    decay_mean,
    exp_minus,
    inlined_kernel,
    normal_pdf,
    two_product,
    two_sum,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Moments = tuple[float, float, float, float, float, float]
Wanted = Literal[True] | None
"""Whether moments are asked for. None, not False, says no: then their code is not compiled."""

# Beyond this squared radius exp(-r^2/2) < 1e-16: an edge contributes its angle alone.
_RADIUS2 = 74.0
# Cells smaller than this go straight to the slices; so do cells further than _FAR from the origin.
_SMALL = 0.35
_FAR2 = 16.0
# The boundary sum is kept if its error bound is below this fraction of the mass.
_CANCELLATION = 5e-12
# Slices are dropped where the density is below exp(-50) of the largest one in the cell.
_DROP = 100.0
# Squared coordinates beyond this are refused: the geometry would lose its digits.
_HUGE2 = 1e24
_NO_RULE = len(RULE_SIZES)
WORKSPACE = RULE_SIZES[-1]


def _edge_limits() -> FloatArray:
    """Squared edge lengths up to which each Gauss rule integrates G(|p + t d|^2/2) with an error below 1e-17.

    With half length H, |G| <= exp(H^2 (rho - 1/rho)^2 / 8) on the Bernstein ellipse of parameter rho, so n nodes err
    by less than 5 exp(H^2 (rho - 1/rho)^2/8) rho^(-2n) for every rho.
    """
    rho = np.exp(np.linspace(0.05, 5.0, 2000))
    limits = [np.max((2 * n * np.log(rho) - 40.8) * 8 / (rho - 1 / rho) ** 2) for n in RULE_SIZES]
    return np.array([4.0 * max(limit, 0.0) for limit in limits])


def _strip_rules() -> tuple[FloatArray, FloatArray]:
    """Rows (a, b) per Gauss rule: the rule serves a strip if a X + b H^2 <= 1 for one of its columns.

    On the ellipse rho the slice integrand grows by at most exp(X ((rho + 1/rho)/2 - 1) + H^2 (rho - 1/rho)^2/8), X
    being its logarithmic slope and H the longest boundary piece, both halved; 33 is -log of the tolerance 5e-15.
    """
    columns = 6
    a, b = np.empty((len(RULE_SIZES), columns)), np.empty((len(RULE_SIZES), columns))
    for row, n in enumerate(RULE_SIZES):
        least = math.exp(33.0 / (2 * n))
        rho = least * np.array([1.25, 1.6, 2.2, 3.2, 5.0, 8.0])
        room = 2 * n * np.log(rho) - 33.0
        a[row] = ((rho + 1 / rho) / 2 - 1) / room
        b[row] = (rho - 1 / rho) ** 2 / 8 / room
    return a, b


_EDGE_LIMITS = _edge_limits()
STRIP_LINEAR, STRIP_QUADRATIC = _strip_rules()


# --- the boundary sum ------------------------------------------------------------------------------------------


@inner
def cross_exact(px: float, py: float, qx: float, qy: float) -> float:
    """px qy - py qx with relative accuracy (products are formed exactly)."""
    left, left_rest = two_product(px, qy)
    right, right_rest = two_product(py, qx)
    return (left - right) + (left_rest - right_rest)


@inner
def _mean_decay(c0: float, c1: float, c2: float, rule: int, buffer: FloatArray) -> float:
    """int_{-1}^{1} G(c0 + c1 t + c2 t^2) dt by one Gauss rule; the loop over nodes vectorises."""
    first = RULE_START[rule]
    count = RULE_START[rule + 1] - first
    for i in range(count):
        t = RULE_NODES[first + i]
        buffer[i] = RULE_WEIGHTS[first + i] * decay_mean(abs(c0 + t * (c1 + t * c2)))
    total = 0.0
    for i in range(count):
        total += buffer[i]
    return total


@inner
def _long_edge(px: float, py: float, qx: float, qy: float, area2: float, length2: float, buffer: FloatArray) -> float:
    """Triangle mass of a long edge: panels where |r|^2 < 74, plain angles outside."""
    length = math.sqrt(length2)
    h = area2 / length
    reach2 = _RADIUS2 - h * h
    if reach2 <= 0.0:
        return math.atan2(area2, px * qx + py * qy) * INV_2PI
    reach = math.sqrt(reach2)
    tx, ty = (qx - px) / length, (qy - py) / length
    begin, end = px * tx + py * ty, qx * tx + qy * ty
    if begin >= reach or end <= -reach:
        return math.atan2(area2, px * qx + py * qy) * INV_2PI
    total = 0.0
    if begin < -reach:
        total += math.atan2(h * (-reach - begin), h * h - reach * begin) * INV_2PI
        begin = -reach
    if end > reach:
        total += math.atan2(h * (end - reach), h * h + reach * end) * INV_2PI
        end = reach
    span = end - begin
    panels = 1 if span * span <= _EDGE_LIMITS[3] else 2
    step = span / panels
    rule = 3
    while rule > 0 and step * step <= _EDGE_LIMITS[rule - 1]:
        rule -= 1
    inner = 0.0
    for panel in range(panels):
        middle = begin + (panel + 0.5) * step
        inner += _mean_decay(0.5 * (h * h + middle * middle), 0.5 * middle * step, step * step / 8.0, rule, buffer)
    return total + h * INV_4PI * 0.5 * step * inner


@inner
def triangle_mass_kernel(px: float, py: float, qx: float, qy: float, buffer: FloatArray) -> float:
    """Signed mass of the triangle (0, p, q), positive if p -> q turns counter-clockwise about the origin.

    `buffer` is a work array of at least `WORKSPACE` floats. Relative accuracy about 1e-15.
    """
    area2 = cross_exact(px, py, qx, qy)
    if area2 == 0.0:
        return 0.0
    dx, dy = qx - px, qy - py
    length2 = dx * dx + dy * dy
    if length2 > _EDGE_LIMITS[2]:
        return _long_edge(px, py, qx, qy, area2, length2, buffer)
    rule = 2
    if length2 <= _EDGE_LIMITS[1]:
        rule = 0 if length2 <= _EDGE_LIMITS[0] else 1
    mx, my = 0.5 * (px + qx), 0.5 * (py + qy)
    inner = _mean_decay(0.5 * (mx * mx + my * my), 0.5 * (mx * dx + my * dy), length2 / 8.0, rule, buffer)
    return area2 * INV_4PI * 0.5 * inner


@inner
def _boundary_sum(vertices: FloatArray, start: int, stop: int, buffer: FloatArray) -> tuple[float, float]:
    """(sum, sum of absolute values) of the triangle masses of the edges."""
    total, size = 0.0, 0.0
    px, py = vertices[stop - 1, 0], vertices[stop - 1, 1]
    for i in range(start, stop):
        qx, qy = vertices[i, 0], vertices[i, 1]
        term = triangle_mass_kernel(px, py, qx, qy, buffer)
        total += term
        size += abs(term)
        px, py = qx, qy
    return total, size


# --- the slices ------------------------------------------------------------------------------------------------


@inner
def orientation_exact(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> float:
    """(b - a) x (c - a), twice the signed area of (a, b, c), in doubled precision throughout."""
    ux, ux_rest = two_sum(bx, -ax)
    uy, uy_rest = two_sum(by, -ay)
    vx, vx_rest = two_sum(cx, -ax)
    vy, vy_rest = two_sum(cy, -ay)
    left, left_rest = two_product(ux, vy)
    right, right_rest = two_product(uy, vx)
    high, low = two_sum(left, -right)
    small = (left_rest - right_rest) + (ux * vy_rest + ux_rest * vy) - (uy * vx_rest + uy_rest * vx)
    return high + (low + small)


@inlined_kernel
def _strip_rule(slope: float, half2: float) -> int:
    """The smallest Gauss rule that serves a strip, or `_NO_RULE` if the strip must be split."""
    for rule in range(_NO_RULE):
        for j in range(STRIP_LINEAR.shape[1]):
            if slope * STRIP_LINEAR[rule, j] + half2 * STRIP_QUADRATIC[rule, j] <= 1.0:
                return rule
    return _NO_RULE


@inner
def _narrow_strip(
    s: float, ds: float, m: float, dm: float, e: float, de: float, rule: int, terms: int, buffer: FloatArray
) -> float:
    """2 pi times the mass of a trapezoid of narrow slices; the loop over nodes vectorises.

    Slice x in [0, 1] lies at s + x ds, has middle m + x dm and half width e + x de; see `interval.narrow_mean`.
    """
    first = RULE_START[rule]
    count = RULE_START[rule + 1] - first
    for i in range(count):
        x = 0.5 + 0.5 * RULE_NODES[first + i]
        level, middle, half = s + x * ds, m + x * dm, e + x * de
        square, width = middle * middle, half * half
        before, term, total = 0.0, 1.0, 1.0
        for k in range(terms):
            scale = width / ((2.0 * k + 2.0) * (2.0 * k + 3.0))
            after = scale * ((square - (4.0 * k + 1.0)) * term - width * ((2.0 * k - 1.0) / (2.0 * k + 1.0)) * before)
            before, term = term, after
            total += term
        buffer[i] = RULE_WEIGHTS[first + i] * half * total * exp_minus(0.5 * (level * level + square))
    result = 0.0
    for i in range(count):
        result += buffer[i]
    return result * ds


@inner
def _strip_mass(s: float, ds: float, m: float, dm: float, e: float, de: float, rule: int, buffer: FloatArray) -> float:
    """Mass of one trapezoid (or a part of it) by one Gauss rule."""
    widest = max(e, e + de)
    product = widest * max(abs(m), abs(m + dm))
    if widest <= NARROW_HALF_WIDTH and product <= NARROW_PRODUCT:
        if widest <= 0.12 and product <= 0.2:
            return _narrow_strip(s, ds, m, dm, e, de, rule, 5, buffer) * INV_2PI
        return _narrow_strip(s, ds, m, dm, e, de, rule, 11, buffer) * INV_2PI
    total = 0.0
    for i in range(RULE_START[rule], RULE_START[rule + 1]):
        x = 0.5 + 0.5 * RULE_NODES[i]
        total += RULE_WEIGHTS[i] * normal_pdf(s + x * ds) * slice_mass_kernel(m + x * dm, e + x * de)
    return 0.5 * ds * total


@inner
def _strip_moments(s: float, ds: float, m: float, dm: float, e: float, de: float, rule: int) -> Moments:
    """Mass and raw moments 1, s, v, s^2, s v, v^2 of one trapezoid, v being the coordinate along the slices."""
    m0, ms, mv, mss, msv, mvv = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(RULE_START[rule], RULE_START[rule + 1]):
        x = 0.5 + 0.5 * RULE_NODES[i]
        level = s + x * ds
        weight = 0.5 * ds * RULE_WEIGHTS[i] * normal_pdf(level)
        zeroth, first, second = slice_moments_kernel(m + x * dm, e + x * de)
        m0 += weight * zeroth
        ms += weight * level * zeroth
        mv += weight * first
        mss += weight * level * level * zeroth
        msv += weight * level * first
        mvv += weight * second
    return m0, ms, mv, mss, msv, mvv


@inner
def _nearest2_on_segment(px: float, py: float, dx: float, dy: float) -> tuple[float, float, float]:
    """(squared distance, x, y) of the point of the segment p, p + d nearest to the origin."""
    length2 = dx * dx + dy * dy
    t = 0.0
    if length2 > 0.0:
        t = min(1.0, max(0.0, -(px * dx + py * dy) / length2))
    x, y = px + t * dx, py + t * dy
    return x * x + y * y, x, y


@inner
def _panel_rule(s: float, ds: float, m: float, dm: float, e: float, de: float, radius2: float) -> int:
    """Gauss rule for a part of a trapezoid; `_NO_RULE` to split it, -1 if it lies outside the disc `radius2`.

    A boundary line outside the disc on this part has no influence on the integrand and does not count.
    """
    level = s + 0.5 * ds
    slope, half2 = 0.5 * abs(level * ds), 0.25 * ds * ds
    low, dlow, high, dhigh = m - e, dm - de, m + e, dm + de
    near_low = _nearest2_on_segment(s, low, ds, dlow)[0]
    near_high = _nearest2_on_segment(s, high, ds, dhigh)[0]
    if near_low > radius2 and near_high > radius2:
        nearest_level = 0.0 if s * (s + ds) <= 0.0 else min(abs(s), abs(s + ds))
        above = min(low, low + dlow) > 0.0
        below = max(high, high + dhigh) < 0.0
        if above or below or nearest_level * nearest_level > radius2:
            return -1
    if near_low <= radius2:
        slope = max(slope, 0.5 * abs(level * ds + (low + 0.5 * dlow) * dlow))
        half2 = max(half2, 0.25 * (ds * ds + dlow * dlow))
    if near_high <= radius2:
        slope = max(slope, 0.5 * abs(level * ds + (high + 0.5 * dhigh) * dhigh))
        half2 = max(half2, 0.25 * (ds * ds + dhigh * dhigh))
    return _strip_rule(slope, half2)


@inner
def _nearest_point(vertices: FloatArray, start: int, stop: int, ox: float, oy: float) -> tuple[float, float, float]:
    """(squared distance, x, y) of the point of the polygon, moved by (ox, oy), nearest to the origin."""
    best, best_x, best_y = np.inf, 0.0, 0.0
    inside = True
    px, py = vertices[stop - 1, 0] + ox, vertices[stop - 1, 1] + oy
    for i in range(start, stop):
        qx, qy = vertices[i, 0] + ox, vertices[i, 1] + oy
        distance2, x, y = _nearest2_on_segment(px, py, qx - px, qy - py)
        if distance2 < best:
            best, best_x, best_y = distance2, x, y
        if cross_exact(px, py, qx, qy) < 0.0:
            inside = False
        px, py = qx, qy
    if inside:
        return 0.0, 0.0, 0.0
    return best, best_x, best_y


@inner
def _slice_direction(
    vertices: FloatArray,
    start: int,
    stop: int,
    ox: float,
    oy: float,
    wide_x: float,
    wide_y: float,
    far2: float,
) -> tuple[float, float, float]:
    """(direction of s, squared radius beyond which nothing counts).

    Cells over which the density varies little: the axis of larger extent. Others: towards the nearest point, which
    resolves the decay, unless the cell is thin in that direction; then along the cell.
    """
    diameter = max(wide_x, wide_y)
    radius2 = np.inf
    if far2 * diameter * diameter > 256.0:
        distance2, x, y = _nearest_point(vertices, start, stop, ox, oy)
        radius2 = distance2 + _DROP
        if distance2 > 2.0:
            distance = math.sqrt(distance2)
            x, y = x / distance, y / distance
            extent = 0.0
            for i in range(start, stop):
                extent = max(extent, (vertices[i, 0] + ox) * x + (vertices[i, 1] + oy) * y - distance)
            if min(extent, _DROP / distance) > 1e-3 * min(diameter, 10.0):
                return x, y, radius2
    if wide_x >= wide_y:
        return 1.0, 0.0, radius2
    return 0.0, 1.0, radius2


@inner
def _chord(vertices: FloatArray, p: int, a: int, b: int, run: float, rise: float, side: float) -> float:
    """Half the slice from vertex p to the line a -> b: orientation/(2 run); 0 if p is on the wrong side.

    Between near-duplicates a and b the direction may be rounding noise, but then the vertex b is met at the same
    level, up to rounding, and starts the next trapezoid with a width of its own.
    """
    if run <= 0.0:
        return max(0.0, 0.5 * rise)
    area2 = orientation_exact(
        vertices[a, 0], vertices[a, 1], vertices[b, 0], vertices[b, 1], vertices[p, 0], vertices[p, 1]
    )
    return max(0.0, 0.5 * side * area2 / run)


@inlined_kernel
def _position(vertices: FloatArray, i: int, rx: float, ry: float, nx: float, ny: float) -> tuple[float, float]:
    """Coordinates (s, v) of vertex i relative to (rx, ry), s along (nx, ny) and v along the slices."""
    x, y = vertices[i, 0] - rx, vertices[i, 1] - ry
    return nx * x + ny * y, nx * y - ny * x


@inner
def slices_kernel(
    vertices: FloatArray, start: int, stop: int, ox: float, oy: float, moments: Wanted, buffer: FloatArray
) -> tuple[float, float, float, float, float, float, float]:
    """Mass, error bound, and (if asked) raw moments x, y, xx, xy, yy of a convex polygon, by positive slices.

    The polygon is vertices[start:stop] moved by (ox, oy): a caller that holds a tiny far cell relative to a point of
    its own keeps the digits. The error bound, relative to the mass, counts the quadrature (1e-13) and the
    rounding of positions and exponents (4 eps times the distances of the nearest and the furthest point).
    Coordinates beyond 1e12 give NaN.
    """
    low_x, high_x = vertices[start, 0], vertices[start, 0]
    low_y, high_y = vertices[start, 1], vertices[start, 1]
    far2, near2, nearest = 0.0, np.inf, start
    for i in range(start, stop):
        x, y = vertices[i, 0], vertices[i, 1]
        low_x, high_x = min(low_x, x), max(high_x, x)
        low_y, high_y = min(low_y, y), max(high_y, y)
        square = (x + ox) * (x + ox) + (y + oy) * (y + oy)
        far2 = max(far2, square)
        if square < near2:
            near2, nearest = square, i
    wide_x, wide_y = high_x - low_x, high_y - low_y
    if not wide_x + wide_y + far2 <= _HUGE2:
        return np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan
    if stop - start < 3 or not max(wide_x, wide_y) > 0.0:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    nx, ny, radius2 = _slice_direction(vertices, start, stop, ox, oy, wide_x, wide_y, far2)
    # Positions are taken relative to a nearby vertex, so that tiny cells lose nothing, or to the origin if it is
    # within reach, so that huge cells lose nothing near it.
    rx, ry = -ox, -oy
    if near2 > wide_x * wide_x + wide_y * wide_y:
        rx, ry = vertices[nearest, 0], vertices[nearest, 1]
    base_s, base_v = nx * (rx + ox) + ny * (ry + oy), nx * (ry + oy) - ny * (rx + ox)
    left, right = start, start
    least, most = np.inf, -np.inf
    for i in range(start, stop):
        s, _ = _position(vertices, i, rx, ry, nx, ny)
        if s < least:
            least, left = s, i
        if s > most:
            most, right = s, i
    m0, ms, mv, mss, msv, mvv = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    # Walk both chains from the leftmost to the rightmost vertex: `lower` forwards, `upper` backwards.
    lower, upper = left, left
    lower_s, upper_s = least, least
    _, lower_v = _position(vertices, left, rx, ry, nx, ny)
    upper_v = lower_v
    next_lower = lower + 1 if lower + 1 < stop else start
    next_upper = upper - 1 if upper > start else stop - 1
    next_lower_s, next_lower_v = _position(vertices, next_lower, rx, ry, nx, ny)
    next_upper_s, next_upper_v = _position(vertices, next_upper, rx, ry, nx, ny)
    s, m, e = least, lower_v, 0.0
    while lower != right or upper != right:
        if upper == right or (lower != right and next_lower_s <= next_upper_s):
            s_next = next_lower_s
            if upper == right:
                e_next = max(0.0, 0.5 * (upper_v - next_lower_v))
            else:
                e_next = _chord(
                    vertices,
                    next_lower,
                    upper,
                    next_upper,
                    next_upper_s - upper_s,
                    upper_v - next_lower_v,
                    -1.0,
                )
            m_next = next_lower_v + e_next
            lower, lower_s, lower_v = next_lower, next_lower_s, next_lower_v
            next_lower = lower + 1 if lower + 1 < stop else start
            next_lower_s, next_lower_v = _position(vertices, next_lower, rx, ry, nx, ny)
        else:
            s_next = next_upper_s
            if lower == right:
                e_next = max(0.0, 0.5 * (next_upper_v - lower_v))
            else:
                e_next = _chord(
                    vertices,
                    next_upper,
                    lower,
                    next_lower,
                    next_lower_s - lower_s,
                    next_upper_v - lower_v,
                    1.0,
                )
            m_next = next_upper_v - e_next
            upper, upper_s, upper_v = next_upper, next_upper_s, next_upper_v
            next_upper = upper - 1 if upper > start else stop - 1
            next_upper_s, next_upper_v = _position(vertices, next_upper, rx, ry, nx, ny)
        ds, dm, de = s_next - s, m_next - m, e_next - e
        if ds > 0.0 and e + e_next > 0.0:
            # March over the trapezoid, halving the step until a rule fits and doubling it after each success.
            done, step = 0.0, 1.0
            while done < 1.0:
                step = min(step, 1.0 - done)
                part_s, part_m, part_e = base_s + (s + done * ds), base_v + (m + done * dm), e + done * de
                while True:
                    part_ds, part_dm, part_de = step * ds, step * dm, step * de
                    rule = _panel_rule(part_s, part_ds, part_m, part_dm, part_e, part_de, radius2)
                    if rule < _NO_RULE or step < 1e-15:
                        break
                    step *= 0.5
                if rule == _NO_RULE:
                    rule -= 1
                if rule >= 0:
                    if moments is not None:
                        part = _strip_moments(part_s, part_ds, part_m, part_dm, part_e, part_de, rule)
                        m0 += part[0]
                        ms += part[1]
                        mv += part[2]
                        mss += part[3]
                        msv += part[4]
                        mvv += part[5]
                    else:
                        m0 += _strip_mass(part_s, part_ds, part_m, part_dm, part_e, part_de, rule, buffer)
                done += step
                step *= 2.0
        s, m, e = s_next, m_next, e_next
    if near2 > 25.0:  # the nearest vertex may be much further than the nearest edge
        near2 = _nearest_point(vertices, start, stop, ox, oy)[0]
    return (
        m0,
        m0 * (1e-13 + 4.0 * EPS * math.sqrt(max(1.0, near2) * far2)),
        nx * ms - ny * mv,
        ny * ms + nx * mv,
        nx * nx * mss - 2.0 * nx * ny * msv + ny * ny * mvv,
        nx * ny * (mss - mvv) + (nx * nx - ny * ny) * msv,
        ny * ny * mss + 2.0 * nx * ny * msv + nx * nx * mvv,
    )


# --- masses ----------------------------------------------------------------------------------------------------


@inner
def _boundary_suits(vertices: FloatArray, start: int, stop: int) -> bool:
    """Whether the boundary sum is worth trying: the cell is neither small nor far (judged by its bounding box)."""
    low_x, high_x = vertices[start, 0], vertices[start, 0]
    low_y, high_y = vertices[start, 1], vertices[start, 1]
    for i in range(start + 1, stop):
        x, y = vertices[i, 0], vertices[i, 1]
        low_x, high_x = min(low_x, x), max(high_x, x)
        low_y, high_y = min(low_y, y), max(high_y, y)
    if max(high_x - low_x, high_y - low_y) < _SMALL:
        return False
    gap_x, gap_y = max(low_x, -high_x, 0.0), max(low_y, -high_y, 0.0)
    return gap_x * gap_x + gap_y * gap_y < _FAR2


@inner
def _segment_moments(px: float, py: float, qx: float, qy: float) -> tuple[float, float, float, float, float]:
    """(tangent x, tangent y, signed distance h of the line, int phi_2, int s phi_2) along the segment p -> q.

    With s the coordinate along the line from the foot of the origin, phi_2 = phi(h) phi(s). h > 0 if the origin
    lies to the left.
    """
    dx, dy = qx - px, qy - py
    length = math.sqrt(dx * dx + dy * dy)
    if length == 0.0:
        return 0.0, 0.0, 0.0, 0.0, 0.0
    h = cross_exact(px, py, qx, qy) / length
    tx, ty = dx / length, dy / length
    density = normal_pdf(h)
    if length <= 1.0:  # the middle and the half width are more precise than the ends
        middle = 0.5 * ((px + qx) * tx + (py + qy) * ty)
        zeroth, first, _ = slice_moments_kernel(middle, 0.5 * length)
    else:
        zeroth, first, _ = interval_moments_kernel(px * tx + py * ty, qx * tx + qy * ty)
    return tx, ty, h, density * zeroth, density * first


@kernel
def segment_density_kernel(px: float, py: float, qx: float, qy: float) -> float:
    """int phi_2 along the segment p -> q = phi(h) (Phi(s_q) - Phi(s_p)), phi_2 the standard normal density."""
    return _segment_moments(px, py, qx, qy)[3]


@inner
def _boundary_moments(vertices: FloatArray, start: int, stop: int, mass: float) -> Moments:
    """Raw moments from the mass by Stokes: E[u 1] = -oint phi_2 n, E[u u' 1] = mass I - oint u phi_2 n'."""
    x, y, xx, xy, yy = 0.0, 0.0, mass, 0.0, mass
    px, py = vertices[stop - 1, 0], vertices[stop - 1, 1]
    for i in range(start, stop):
        qx, qy = vertices[i, 0], vertices[i, 1]
        tx, ty, h, zeroth, first = _segment_moments(px, py, qx, qy)
        nx, ny = ty, -tx
        x -= nx * zeroth
        y -= ny * zeroth
        xx -= nx * (h * nx * zeroth + tx * first)
        xy -= nx * (h * ny * zeroth + ty * first)
        yy -= ny * (h * ny * zeroth + ty * first)
        px, py = qx, qy
    return mass, x, y, xx, xy, yy


@inner
def polygon_kernel(
    vertices: FloatArray, start: int, stop: int, ox: float, oy: float, moments: Wanted, buffer: FloatArray
) -> tuple[float, float, float, float, float, float, float]:
    """(mass, error bound, E[x 1], E[y 1], E[xx 1], E[xy 1], E[yy 1]) of vertices[start:stop] moved by (ox, oy).

    `buffer`: work array of `WORKSPACE` floats. The moments are only computed if asked for. The one entry to both
    methods: the boundary sum if nothing cancels in it (and nothing is moved), else the slices.
    """
    if stop - start < 3:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    if ox == 0.0 and oy == 0.0 and _boundary_suits(vertices, start, stop):
        mass, size = _boundary_sum(vertices, start, stop, buffer)
        error = 8.0 * EPS * size
        if error <= _CANCELLATION * mass:
            if moments is None:
                return mass, error, 0.0, 0.0, 0.0, 0.0, 0.0
            # Near the origin the mass of a sliver loses nothing in the boundary sum, but its moments do.
            if mass >= 1e-3:
                _, x, y, xx, xy, yy = _boundary_moments(vertices, start, stop, mass)
                return mass, error, x, y, xx, xy, yy
    return slices_kernel(vertices, start, stop, ox, oy, moments, buffer)


@inner
def polygon_mass_with(vertices: FloatArray, start: int, stop: int, buffer: FloatArray) -> tuple[float, float]:
    """(mass, error bound) of the polygon vertices[start:stop]; `buffer`: work array of `WORKSPACE` floats."""
    result = polygon_kernel(vertices, start, stop, 0.0, 0.0, None, buffer)
    return result[0], result[1]


@kernel
def _polygon_loop(vertices: FloatArray, offsets: IntArray, moments: Wanted, out: FloatArray, error: FloatArray) -> None:
    """Rows of `out`: mass, and the five moments if asked for."""
    buffer = np.empty(WORKSPACE)
    for i in range(error.size):
        result = polygon_kernel(vertices, offsets[i], offsets[i + 1], 0.0, 0.0, moments, buffer)
        out[0, i], error[i] = result[0], result[1]
        if moments is not None:
            out[1, i], out[2, i] = result[2], result[3]
            out[3, i], out[4, i], out[5, i] = result[4], result[5], result[6]


def polygon_mass(vertices: Any, offsets: Any) -> tuple[FloatArray, FloatArray]:
    """P(u in polygon) for u ~ N(0, I_2), many convex polygons at once.

    vertices: (V, 2), counter-clockwise within each polygon, taken as exact; duplicates and collinear ones are fine,
    coordinates up to 1e6 and beyond too. offsets: (n + 1,), polygon i owns vertices[offsets[i]:offsets[i + 1]].
    Returns (mass, error), each (n,): `error` bounds the error of `mass`. Absolute accuracy 1e-15, relative 1e-10 or
    better (measured: 2e-13) down to masses of 1e-200, thin, tiny and far cells included.
    Cost: about 0.5 microseconds for a cell of 4 to 6 edges in the bulk, 2 to 5 for huge or far ones.
    """
    points, starts = checked_vertices(vertices, offsets, "polygon", ("x", "y"), far=1e12)
    out, error = np.empty((1, starts.size - 1)), np.empty(starts.size - 1)
    _polygon_loop(points, starts, None, out, error)
    return out[0], error


# --- moments and densities -------------------------------------------------------------------------------------


def polygon_moments(vertices: Any, offsets: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mass (n,), E[u 1] (n, 2) and E[u u' 1] (n, 2, 2) of convex polygons, for u ~ N(0, I_2).

    Same layout and same two methods as `polygon_mass`: for ordinary cells boundary integrals that are closed forms,
    E[u 1] = -oint phi n and E[u u' 1] = mass I - oint u phi n'; for far, small and thin cells positive slices, so
    that the moments keep their relative accuracy there.
    """
    points, starts = checked_vertices(vertices, offsets, "polygon", ("x", "y"), far=1e12)
    out, error = np.empty((6, starts.size - 1)), np.empty(starts.size - 1)
    _polygon_loop(points, starts, True, out, error)
    return out[0], out[1:3].T.copy(), out[[3, 4, 4, 5]].T.reshape(-1, 2, 2).copy()
