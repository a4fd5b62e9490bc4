"""How much of a box's mass lies in a half-space: rigorous bounds for independent normal or uniform coordinates.

Scaled to `x_i` in [-1, 1], a box and a half-space ask for `F = P(S <= t)` with `S = sum_i alpha_i x_i`, a sum of
independent bounded variables. S lives in [-R, R], `R = sum_i |alpha_i|`, so its law is a Fourier series there:

    F(t) = (t + R) / 2R + sum_k [A_k sin(k psi) - B_k (cos(k psi) - (-1)^k)] / (pi k),      psi = pi t / R,

with `A_k + i B_k = prod_i E exp(i pi k alpha_i x_i / R)`. Each factor is a Gauss-Legendre sum (a sine over its
argument for a uniform law). What is left out after K terms is bounded: a unimodal density with maximum p has
`|E exp(i w x)| <= 2 p / |w|`, so the terms fall like `k^-(d + 1)`. A half-space along one axis is a closed form.
"""

from __future__ import annotations

import math

import numpy as np

from reluscope._kernels import inner, kernel
from reluscope.measure.normal import exp_minus, half_square_exp, inlined_kernel, upper_tail

INV_SQRT_2PI = 0.3989422804014327

MASS_ERROR = 1e-13
"""Relative error allowed for in the mass of one side of a box."""

MOST_TERMS = 64
"""Terms of the longest Fourier sum."""

_CF_ERROR = 1e-8
"""Error of one quadrature for a characteristic function, relative to its value at 0."""

_SIZES = (8, 16, 24, 32, 48, 64)
_TILTS = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
"""Steps for |beta| + delta^2 / 2, which measures how far a density is from constant on its side."""

_TERMS = np.array([4, 6, 8, 12, 16, 24, 32, 48, 64])


def _rules() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positive nodes of each rule and their weights, one after the other, and where each rule starts."""
    nodes, weights, start = [], [], [0]
    for size in _SIZES:
        x, w = np.polynomial.legendre.leggauss(size)
        nodes.append(x[size // 2 :])
        weights.append(w[size // 2 :])
        start.append(start[-1] + size // 2)
    return np.concatenate(nodes), np.concatenate(weights), np.array(start)


def _frequencies() -> np.ndarray:
    """Largest frequency w for which each rule integrates exp(i w x - beta x - delta^2 x^2 / 2) well enough.

    An n-point Gauss rule errs by at most `64 M rho^(2 - 2n) / (15 (1 - rho^-2))` for a function bounded by M on
    the ellipse with foci -1, 1 and semi-axes `a, b = (rho +- 1/rho) / 2`; here
    `M <= exp(w b + |beta| a + delta^2 b^2 / 2)` and the integral at w = 0 is at least `2 exp(-delta^2 / 2)`. With
    `tilt = |beta| + delta^2 / 2`, `M / integral <= exp(w b + tilt * max(a, b^2, 1) + tilt)`.
    """
    rho = np.linspace(1.2, 12.0, 200)
    a, b = (rho + 1 / rho) / 2, (rho - 1 / rho) / 2
    out = np.zeros((len(_TILTS), len(_SIZES)))
    for i, tilt in enumerate(_TILTS):
        for j, n in enumerate(_SIZES):
            room = math.log(_CF_ERROR / 4) - np.log(64 / 15 / (1 - rho**-2)) + (2 * n - 2) * np.log(rho)
            out[i, j] = max(0.0, float(((room - tilt * (1 + np.maximum(np.maximum(a, b * b), 1.0))) / b).max()))
    return out


_NODES, _WEIGHTS, _STARTS = _rules()
_REACH = _frequencies()


@inlined_kernel
def _cosh_small(x: float) -> float:
    """cosh x for |x| <= 1/2, without a call; what the series leaves out is below 1e-17."""
    y = x * x
    low = 1.0 + y * (1 / 2 + y * (1 / 24))
    high = 1 / 720 + y * (1 / 40320 + y * (1 / 3628800 + y * (1 / 479001600 + y * (1 / 87178291200))))
    return low + y * y * y * high


@inlined_kernel
def _cosine_sine(x: float) -> tuple[float, float]:
    """cos x and sin x for 0 <= x <= pi without a call, by their series at x/2; error below 1e-12."""
    h = 0.5 * x
    y = h * h
    c = 1 / 20922789888000 + y * (-1 / 6402373705728000)
    c = -1 / 3628800 + y * (1 / 479001600 + y * (-1 / 87178291200 + y * c))
    c = 1.0 + y * (-1 / 2 + y * (1 / 24 + y * (-1 / 720 + y * (1 / 40320 + y * c))))
    s = 1 / 355687428096000 + y * (-1 / 121645100408832000)
    s = -1 / 39916800 + y * (1 / 6227020800 + y * (-1 / 1307674368000 + y * s))
    s = h * (1.0 + y * (-1 / 6 + y * (1 / 120 + y * (-1 / 5040 + y * (1 / 362880 + y * s)))))
    return 1.0 - 2.0 * s * s, 2.0 * s * c


@kernel
def side_mass(lo: float, hi: float) -> float:
    """`P(lo < u < hi)` for a standard normal u, relative error below `MASS_ERROR`."""
    centre, half = 0.5 * (lo + hi), 0.5 * (hi - lo)
    if 2.0 * half * (1.0 + abs(centre)) <= 1.0:
        total = 0.0
        for i in range(4):
            x = half * _NODES[i]
            total += _WEIGHTS[i] * exp_minus(0.5 * x * x) * _cosh_small(centre * x)
        return 2.0 * total * half * INV_SQRT_2PI * half_square_exp(centre)
    if lo >= 0.0:
        return upper_tail(lo) - upper_tail(hi)
    if hi <= 0.0:
        return upper_tail(-hi) - upper_tail(-lo)
    return 1.0 - upper_tail(-lo) - upper_tail(hi)


@inner
def fraction(
    form: np.ndarray,
    at: int,
    d: int,
    lo: np.ndarray,
    hi: np.ndarray,
    sides: np.ndarray,
    box: int,
    gaussian: bool,
    tolerance: float,
    work: np.ndarray,
) -> tuple[float, float]:
    """Bounds of `P(form . (u, 1) <= 0 | box)`; `form[at:]` holds d coefficients and the constant.

    `lo`, `hi`, `sides` hold d numbers from `box` on: the box and the masses of its sides (normal law). Asks for
    an error of `tolerance`; gives (0, 1) where the box is too wide for the quadrature. `work` has 1024 numbers.
    """
    value = form[at + d]
    reach = 0.0
    largest = 0.0
    main = 0
    for i in range(d):
        half = 0.5 * (hi[box + i] - lo[box + i])
        value += form[at + i] * (0.5 * (hi[box + i] + lo[box + i]))
        alpha = abs(form[at + i]) * half
        reach += alpha
        if alpha > largest:
            largest = alpha
            main = i
    t = -value
    if not t < reach:
        return (1.0, 1.0) if t >= reach else (0.0, 1.0)
    if not t > -reach:
        return 0.0, 0.0
    if not reach < np.inf:
        return 0.0, 1.0
    # How far each density is from constant, how fast its characteristic function falls, and the tails they give.
    rest = reach - largest
    spread = 0.0
    for i in range(d):
        half = 0.5 * (hi[box + i] - lo[box + i])
        share = abs(form[at + i]) * half / reach
        work[i] = share
        top = 1.0
        if gaussian:
            low, high = lo[box + i], hi[box + i]
            near = 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))
            top = 2.0 * half * INV_SQRT_2PI * half_square_exp(near) / sides[box + i]
        # |E exp(i k w x)| <= fall / k with w = pi share; top is 2 * (largest density on [-1, 1])
        work[d + i] = top / (math.pi * share) if share > 1e-12 else np.inf
        if i == main:
            spread = top
    shifted = 0.5 * spread * 2.0 * rest / largest  # what the closed form along the main axis leaves open, at most
    terms = 0
    tail = np.inf
    for index in range(len(_TERMS)):
        K = _TERMS[index]
        product = 2.0 / math.pi
        used = 0
        for i in range(d):
            if work[d + i] < K:
                product *= work[d + i] / K
                used += 1
        if used == 0:
            continue
        possible = True
        if gaussian:
            for i in range(d):
                if _rule(math.pi * K * work[i], lo[box + i], hi[box + i]) < 0:
                    possible = False
                    break
        if not possible:
            break
        terms = K
        tail = product / used
        if tail <= tolerance:
            break
    if shifted <= tail or terms == 0:
        a = form[at + main]
        middle = 0.5 * (hi[box + main] + lo[box + main])
        first = middle + (t - rest) / a
        second = middle + (t + rest) / a
        low, high = lo[box + main], hi[box + main]
        # a > 0: u <= (t - S') / a; a < 0: u >= ...
        if a > 0.0:
            under = _share(low, first, low, high, sides[box + main], gaussian)
            over = _share(low, second, low, high, sides[box + main], gaussian)
        else:
            under = _share(first, high, low, high, sides[box + main], gaussian)
            over = _share(second, high, low, high, sides[box + main], gaussian)
        slack = 1e-11
        return max(0.0, under - slack), min(1.0, over + slack)
    real, imaginary = 2 * d, 2 * d + MOST_TERMS
    for k in range(terms):
        work[real + k] = 1.0
        work[imaginary + k] = 0.0
    even = imaginary + MOST_TERMS
    odd, cosine, sine, before_c, before_s, twice = even + 32, even + 64, even + 96, even + 128, even + 160, even + 192
    for i in range(d):
        share = work[i]
        if share < 1e-12:
            continue
        omega = math.pi * share
        if not gaussian:
            c1, s1 = math.cos(omega), math.sin(omega)
            c, s = c1, s1
            for k in range(terms):
                factor = s / (omega * (k + 1))
                work[real + k] *= factor
                c, s = c * c1 - s * s1, s * c1 + c * s1
            continue
        low, high = lo[box + i], hi[box + i]
        half, centre = 0.5 * (high - low), 0.5 * (high + low)
        rule = _rule(omega * terms, low, high)
        start, n = _STARTS[rule], _STARTS[rule + 1] - _STARTS[rule]
        turn = 1.0 if (form[at + i] > 0.0) == (centre > 0.0) else -1.0
        norm = 0.0
        for j in range(n):
            x = _NODES[start + j]
            flat = _WEIGHTS[start + j] * exp_minus(0.5 * half * half * x * x)
            shrink = exp_minus(abs(centre) * half * x)
            grow = 1.0 / shrink
            work[even + j] = flat * (shrink + grow)
            work[odd + j] = turn * flat * (shrink - grow)
            norm += work[even + j]
            c1, s1 = _cosine_sine(omega * x)
            work[twice + j] = 2.0 * c1
            work[before_c + j] = 1.0
            work[before_s + j] = 0.0
            work[cosine + j] = c1
            work[sine + j] = s1
        norm = 1.0 / norm
        for k in range(terms):
            a = 0.0
            b = 0.0
            for j in range(n):
                c, s = work[cosine + j], work[sine + j]
                a += work[even + j] * c
                b += work[odd + j] * s
                work[cosine + j] = work[twice + j] * c - work[before_c + j]
                work[sine + j] = work[twice + j] * s - work[before_s + j]
                work[before_c + j] = c
                work[before_s + j] = s
            a *= norm
            b *= norm
            p, q = work[real + k], work[imaginary + k]
            work[real + k] = p * a - q * b
            work[imaginary + k] = p * b + q * a
    psi = math.pi * (t / reach)
    c1, s1 = math.cos(psi), math.sin(psi)
    c, s = c1, s1
    total = 0.5 + 0.5 * t / reach
    parity = -1.0
    for k in range(terms):
        total += (work[real + k] * s - work[imaginary + k] * (c - parity)) / (math.pi * (k + 1))
        c, s = c * c1 - s * s1, s * c1 + c * s1
        parity = -parity
    slack = tail + (4.0 * d * _CF_ERROR if gaussian else 0.0) + 1e-11
    return max(0.0, total - slack), min(1.0, total + slack)


@inner
def _rule(frequency: float, lo: float, hi: float) -> int:
    """The smallest quadrature rule that is good enough for this frequency and side, or -1."""
    half, centre = 0.5 * (hi - lo), 0.5 * (hi + lo)
    tilt = abs(centre) * half + 0.5 * half * half
    row = 0
    while row < len(_TILTS) and _TILTS[row] < tilt:
        row += 1
    if row == len(_TILTS):
        return -1
    for j in range(len(_SIZES)):
        if frequency <= _REACH[row, j]:
            return j
    return -1


@inner
def _share(a: float, b: float, low: float, high: float, mass: float, gaussian: bool) -> float:
    """Part of the side [low, high] between a and b."""
    a, b = max(a, low), min(b, high)
    if not a < b:
        return 0.0
    return side_mass(a, b) / mass if gaussian else (b - a) / (high - low)
