"""Exact standard normal masses and moments of intervals.

For u ~ N(0, 1) and an interval [a, b]: the mass Phi(b) - Phi(a), its logarithm, and the raw moments E[u 1] and
E[u^2 1]. No branch subtracts near-equal numbers:

- narrow intervals (half width e, middle m): phi(m) 2e sum_k He_2k(m) e^2k/(2k+1)!, a Taylor series;
- intervals that contain 0: 1 - Q(b) - Q(-a);
- the rest, mirrored to a >= 0: phi(a) (R(a) - exp(-(b-a)(b+a)/2) R(b)) with Mills' ratio R = Q/phi.

The end points are taken as exact. Relative accuracy is about 1e-15 for every mass above 1e-300; the logarithm stays
valid far below.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import real_array
from reluscope._kernels import inner, kernel
from reluscope.errors import InputError
from reluscope.measure.normal import (
    half_square_exp,
    mills,
    normal_pdf,
    two_sum,
    upper_tail,
)

FloatArray = npt.NDArray[np.float64]

# The series is used up to these values of the half width e and of |m| e; it then needs at most 12 terms.
NARROW_HALF_WIDTH = 0.6
NARROW_PRODUCT = 0.8


@inner
def narrow_mean(m: float, half: float) -> float:
    """Mean of phi over [m - half, m + half] divided by phi(m): sum_k He_2k(m) half^2k/(2k+1)!, narrow only."""
    square, width = m * m, half * half
    before, term, total = 0.0, 1.0, 1.0
    for k in range(30):
        # He_{2k+2} = (m^2 - 4k - 1) He_{2k} - 2k (2k - 1) He_{2k-2}, with powers and factorials folded in.
        scale = width / ((2.0 * k + 2.0) * (2.0 * k + 3.0))
        after = scale * ((square - (4.0 * k + 1.0)) * term - width * ((2.0 * k - 1.0) / (2.0 * k + 1.0)) * before)
        before, term = term, after
        total += term
        if abs(term) + abs(before) < 1e-17:
            break
    return total


@inner
def narrow_central_moments(m: float, half: float) -> tuple[float, float, float]:
    """Means of 1, t, t^2 times phi(m + t)/phi(m) over |t| <= half, by the same series, narrow only.

    sum_k He_2k half^2k/(2k+1)!, -sum_k He_{2k+1} half^{2k+2}/((2k+3)(2k+1)!), and
    sum_k He_2k half^{2k+2}/((2k+3)(2k)!).
    """
    width = half * half
    # `even` is He_2k half^2k/(2k)!, `odd` is He_{2k+1} half^2k/(2k+1)!.
    even, odd = 1.0, m
    zeroth, first, second = 0.0, 0.0, 0.0
    for k in range(40):
        zeroth += even / (2.0 * k + 1.0)
        first -= odd / (2.0 * k + 3.0)
        second += even / (2.0 * k + 3.0)
        even_next = width * (m * odd - even) / (2.0 * k + 2.0)
        odd_next = (m * even_next - width * odd) / (2.0 * k + 3.0)
        if abs(even) + abs(even_next) + abs(odd) + abs(odd_next) < 1e-17:
            break
        even, odd = even_next, odd_next
    return zeroth, width * first, width * second


@inner
def interval_mass_kernel(a: float, b: float) -> float:
    """P(a < u < b) for u ~ N(0, 1); 0 when b <= a. End points may be infinite and are taken as exact."""
    if not a < b:
        return 0.0 if b <= a else np.nan
    if a == -np.inf:
        return upper_tail(-b)
    if b == np.inf:
        return upper_tail(a)
    if a + b < 0.0:
        a, b = -b, -a
    half = 0.5 * (b - a)
    if half <= NARROW_HALF_WIDTH and half * (a + half) <= NARROW_PRODUCT:
        m, rest = two_sum(a, half)
        return normal_pdf(m) * (1.0 - m * rest) * (b - a) * narrow_mean(m, half)
    if a <= 0.0:
        return 1.0 - upper_tail(b) - upper_tail(-a)
    return normal_pdf(a) * (mills(a) - math.exp(-half * (a + b)) * mills(b))


@inner
def interval_moments_kernel(a: float, b: float) -> tuple[float, float, float]:
    """(P(a < u < b), E[u 1], E[u^2 1]), all relatively accurate; zeros when b <= a.

    E[u 1] = phi(a) - phi(b) = -phi(a) expm1(-(b-a)(b+a)/2) with |a| the smaller end;
    E[u^2 1] = mass + a phi(a) - b phi(b), or by the narrow series around the middle.
    """
    if not a < b:
        return (0.0, 0.0, 0.0) if b <= a else (np.nan, np.nan, np.nan)
    sign = 1.0
    if a + b < 0.0 or a == -np.inf:
        a, b, sign = -b, -a, -1.0
    if b == np.inf:
        if a == -np.inf:
            return 1.0, 0.0, 1.0
        mass, density = upper_tail(a), normal_pdf(a)
        return mass, sign * density, mass + a * density
    half = 0.5 * (b - a)
    density = normal_pdf(a)
    first = -density * math.expm1(-half * (a + b))
    if half <= NARROW_HALF_WIDTH and half * (a + half) <= NARROW_PRODUCT:
        m, rest = two_sum(a, half)
        zeroth, central, second = narrow_central_moments(m, half)
        scale = normal_pdf(m) * (1.0 - m * rest) * (b - a)
        return scale * zeroth, sign * first, scale * (m * (m * zeroth + 2.0 * central) + second)
    if a <= 0.0:
        mass = 1.0 - upper_tail(b) - upper_tail(-a)
        return mass, sign * first, mass + (a * density - b * normal_pdf(b))
    drop = math.exp(-half * (a + b))
    inner = mills(a) - drop * mills(b)
    return density * inner, sign * first, density * (inner + (a - drop * b))


@inner
def slice_mass_kernel(m: float, half: float) -> float:
    """P(|u - m| < half) given middle and half width: relative accuracy also where m +- half rounds."""
    m = abs(m)
    if half <= NARROW_HALF_WIDTH and half * m <= NARROW_PRODUCT:
        return normal_pdf(m) * 2.0 * half * narrow_mean(m, half)
    return interval_mass_kernel(m - half, m + half)


@inner
def slice_moments_kernel(m: float, half: float) -> tuple[float, float, float]:
    """Mass, E[u 1] and E[u^2 1] of |u - m| < half, given the middle and the half width."""
    sign = 1.0
    if m < 0.0:
        m, sign = -m, -1.0
    if half <= NARROW_HALF_WIDTH and half * m <= NARROW_PRODUCT:
        zeroth, central, second = narrow_central_moments(m, half)
        scale = normal_pdf(m) * 2.0 * half
        # The first moment by its closed form: m + central/zeroth would cancel where half is near 1.
        first = half_square_exp(half) * math.sinh(m * half) * 2.0 * normal_pdf(m)
        return scale * zeroth, sign * first, scale * (m * (m * zeroth + 2.0 * central) + second)
    mass, first, second = interval_moments_kernel(m - half, m + half)
    return mass, sign * first, second


@kernel
def _mass_loop(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    for i in range(a.size):
        out[i] = interval_mass_kernel(a[i], b[i])


@kernel
def _moments_loop(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    for i in range(a.size):
        out[0, i], out[1, i], out[2, i] = interval_moments_kernel(a[i], b[i])


def _ends(a: Any, b: Any) -> tuple[FloatArray, FloatArray, tuple[int, ...]]:
    """Check and broadcast the end points; returns flat copies and the common shape."""
    left, right = real_array(a, "a", finite=False), real_array(b, "b", finite=False)
    for name, ends in (("a", left), ("b", right)):
        if np.isnan(ends).any():
            raise InputError(f"{name} must hold numbers or infinities, got NaN; drop those intervals first")
    try:
        wide_left, wide_right = np.broadcast_arrays(left, right)
    except ValueError as error:
        raise InputError(
            f"a and b must have shapes that broadcast together, got {left.shape} and {right.shape}"
        ) from error
    return wide_left.ravel(), wide_right.ravel(), wide_left.shape


def interval_mass(a: Any, b: Any) -> FloatArray:
    """P(a < u < b) = Phi(b) - Phi(a) for u ~ N(0, 1), elementwise over broadcast arrays.

    a, b: end points, exact, possibly infinite; b <= a gives 0. Returns an array of the broadcast shape.
    Relative accuracy 1e-12 (measured: 1e-15) for masses from 1 down to 1e-300, narrow intervals included.
    Cost: 40 to 80 ns per interval.
    """
    left, right, shape = _ends(a, b)
    out = np.empty(left.size)
    _mass_loop(left, right, out)
    return out.reshape(shape)


def interval_moments(a: Any, b: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mass, E[u 1{a<u<b}] and E[u^2 1{a<u<b}] for u ~ N(0, 1), elementwise; all relatively accurate.

    E[u 1] = phi(a) - phi(b) and E[u^2 1] = mass + a phi(a) - b phi(b), evaluated without cancellation.
    """
    left, right, shape = _ends(a, b)
    out = np.empty((3, left.size))
    _moments_loop(left, right, out)
    return out[0].reshape(shape), out[1].reshape(shape), out[2].reshape(shape)
