"""Scalar kernels for the standard normal law: density, both tails, logarithms, Mills' ratio.

Everything here is compiled, takes and returns plain floats, validates nothing, and never subtracts near-equal
numbers. Relative accuracy is a few units in the last place wherever the result is a normal number. Arguments
are exact: the rounding of the square in exp(-x^2/2), which matters from |x| of about 10 on, is corrected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from reluscope._kernels import inner, kernel

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def inlined_kernel(function: Kernel) -> Kernel:
    """A short part of kernels that is copied into its callers, so that loops over it can be vectorised."""
    return cast(Kernel, inner(function, forceinline=True))


INV_SQRT_2PI = 0.3989422804014327
LOG_SQRT_2PI = 0.9189385332046728
INV_2PI = 0.15915494309189535
INV_4PI = 0.07957747154594767
EPS = 2.220446049250313e-16

# exp(-x) for x above this is below the smallest normal number.
_EXP_LIMIT = 708.0
_LOG2_E = 1.4426950408889634
# Adding and subtracting 1.5 * 2**52 rounds to the nearest whole number and leaves it in the low bits.
_ROUNDER = 6755399441055744.0
_LN2_HIGH = 0.6931471803691238
_LN2_LOW = 1.9082149292705877e-10
_C2, _C3, _C4, _C5, _C6, _C7 = 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040
_C8, _C9, _C10, _C11, _C12, _C13 = (1 / math.factorial(k) for k in range(8, 14))

# Row i: (x + 4) Q(x)/phi(x) as a function of y = 4/(4 + x) on [i/8, (i + 1)/8], in powers of 16 y - 2 i - 1.
# Relative error below 6e-18 before rounding; made by tests/measure/references/make_mills_table.py.
_MILLS = np.array(
    [
        (
            1.0663706169416802,
            0.07046032700617408,
            0.00431984572684072,
            0.00024165015058908977,
            1.200161877469097e-05,
            5.0251496782031e-07,
            1.5571854795015915e-08,
            1.7089526966090857e-10,
            -1.7897236212944538e-11,
            -1.4140424433571392e-12,
            -4.1000092429430884e-14,
        ),
        (
            1.2267129745727068,
            0.09106680929175712,
            0.006101799735295567,
            0.0003603106463379157,
            1.798269275439871e-05,
            6.925806650669282e-07,
            1.4898895570938867e-08,
            -3.474459677096994e-10,
            -4.7530619268248306e-11,
            -1.5729422658351713e-12,
            4.392591517444656e-14,
        ),
        (
            1.436447059067625,
            0.12043124151101849,
            0.008753905138023705,
            0.0005339718990626822,
            2.5646368526270814e-05,
            8.182284143791292e-07,
            3.885838976582031e-09,
            -1.260672835977911e-09,
            -5.977907041764551e-11,
            6.735125539755201e-13,
            1.6816179689106206e-13,
        ),
        (
            1.7170335355828603,
            0.16274078942719947,
            0.012638691024859061,
            0.0007716868659165709,
            3.364688247203881e-05,
            7.349239398310933e-07,
            -1.9429150248437602e-08,
            -1.956049994017073e-09,
            -1.7450290540287924e-11,
            3.787163970893314e-12,
            1.0135757118853897e-13,
        ),
        (
            2.0998037448766684,
            0.22368667468587108,
            0.018129141046189096,
            0.0010660452153113138,
            3.927947630016938e-05,
            3.378780674142461e-07,
            -4.6002844650679575e-08,
            -1.6383206484164316e-09,
            5.691822241851274e-11,
            3.7092148061034936e-12,
            -1.0751093031665674e-13,
        ),
        (
            2.6288581663406085,
            0.31027025466326613,
            0.025483126107325702,
            0.0013856383147240108,
            3.951639238172107e-05,
            -3.1983069702988397e-07,
            -6.051912168382308e-08,
            -3.2761366325936736e-10,
            9.689369603758873e-11,
            4.644746522694178e-13,
            -1.8212050776222911e-13,
        ),
        (
            3.36303442400971,
            0.43005768989663273,
            0.03470519192341732,
            0.0016792830987182109,
            3.2703224387085324e-05,
            -1.0306459577659188e-06,
            -5.4520634223143516e-08,
            1.1280725455363827e-09,
            7.63172706819645e-11,
            -2.407326200006043e-12,
            -8.891188154070665e-14,
        ),
        (
            4.375891780497789,
            0.5899840158757225,
            0.045471114080024494,
            0.0018917140950592392,
            1.9516145252725003e-05,
            -1.5613758554539957e-06,
            -3.2022142504601025e-08,
            1.9449725420020706e-09,
            2.4135489144276016e-11,
            -2.9816444081709203e-12,
            2.3982445105257222e-14,
        ),
    ]
)

# Gauss-Legendre rules whose sizes suit vector registers: rule r has 8 (r + 1) nodes, from RULE_START[r] on.
RULE_SIZES = (8, 16, 24, 32)
RULE_START = np.array([0, 8, 24, 48, 80])
_RULES = [np.polynomial.legendre.leggauss(size) for size in RULE_SIZES]
RULE_NODES = np.concatenate([rule[0] for rule in _RULES])
RULE_WEIGHTS = np.concatenate([rule[1] for rule in _RULES])


@inlined_kernel
def two_product(a: float, b: float) -> tuple[float, float]:
    """a*b = high + low exactly, for |a|, |b| below 1e150 (Dekker's splitting)."""
    high = a * b
    c = 134217729.0 * a
    a1 = c - (c - a)
    a2 = a - a1
    c = 134217729.0 * b
    b1 = c - (c - b)
    b2 = b - b1
    return high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2


@inlined_kernel
def two_sum(a: float, b: float) -> tuple[float, float]:
    """a + b = high + low exactly."""
    high = a + b
    part = high - a
    return high, (a - (high - part)) + (b - part)


@inlined_kernel
def exp_minus(x: float) -> float:
    """exp(-x) for x >= 0 without branches or calls, so that loops vectorise; 0 for x > 708. Within 2 ulp."""
    y = min(x, _EXP_LIMIT)
    shifted = _ROUNDER - y * _LOG2_E
    bits = np.float64(shifted).view(np.int64)
    k = shifted - _ROUNDER
    r = (-y - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (_C2 + r * _C3) + r2 * (_C4 + r * _C5)
    middle = (_C6 + r * _C7) + r2 * (_C8 + r * _C9)
    high = (_C10 + r * _C11) + r2 * (_C12 + r * _C13)
    p = r + r2 * (low + r4 * (middle + r4 * high))
    scale = np.int64((bits + 1023) << 52).view(np.float64)
    return scale + scale * p if x <= _EXP_LIMIT else 0.0


@inlined_kernel
def decay_mean(x: float) -> float:
    """(1 - exp(-x))/x for x >= 0 (1 at 0) without branches or calls, so loops vectorise. Within 3 ulp."""
    y = min(x + 1e-300, _EXP_LIMIT)
    shifted = _ROUNDER - y * _LOG2_E
    bits = np.float64(shifted).view(np.int64)
    k = shifted - _ROUNDER
    r = (-y - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (_C2 + r * _C3) + r2 * (_C4 + r * _C5)
    middle = (_C6 + r * _C7) + r2 * (_C8 + r * _C9)
    high = (_C10 + r * _C11) + r2 * (_C12 + r * _C13)
    p = r + r2 * (low + r4 * (middle + r4 * high))
    scale = np.int64((bits + 1023) << 52).view(np.float64)
    return ((1.0 - scale) - scale * p) / (x + 1e-300)


@inner
def half_square_exp(x: float) -> float:
    """exp(-x^2/2), the argument exact: relative error of one exp even where x^2/2 is large."""
    if abs(x) > 40.0:
        return 0.0
    square, rest = two_product(x, x)
    return math.exp(-0.5 * square) * (1.0 - 0.5 * rest)


@inner
def normal_pdf(x: float) -> float:
    """phi(x) = exp(-x^2/2)/sqrt(2 pi)."""
    return INV_SQRT_2PI * half_square_exp(x)


@inner
def mills(x: float) -> float:
    """Mills' ratio R(x) = Q(x)/phi(x) for x >= 0, Q the upper tail; R(0) = sqrt(pi/2), R(x) ~ 1/x."""
    inverse = 1.0 / (x + 4.0)
    y = 32.0 * inverse  # 8 * 4/(4 + x), in (0, 8]
    piece = int(y) if y < 7.0 else 7  # a NaN lands in a valid row and stays NaN
    t = 2.0 * (y - piece) - 1.0
    c = _MILLS[piece]
    t2 = t * t
    t4 = t2 * t2
    low = (c[0] + t * c[1]) + t2 * (c[2] + t * c[3])
    middle = (c[4] + t * c[5]) + t2 * (c[6] + t * c[7])
    high = (c[8] + t * c[9]) + t2 * c[10]
    return (low + t4 * (middle + t4 * high)) * inverse


@inner
def upper_tail(x: float) -> float:
    """Q(x) = P(u > x), relative accuracy in both directions (the upper tail never as 1 - Phi)."""
    if x >= 0.0:
        return normal_pdf(x) * mills(x) if x <= 40.0 else 0.0
    return 1.0 - normal_pdf(x) * mills(-x) if x >= -40.0 else 1.0


@kernel
def log_upper_tail(x: float) -> float:
    """log Q(x), finite for every |x| up to 1e154."""
    if x == np.inf:
        return -np.inf
    if x >= 0.0:
        return math.log(mills(x)) - LOG_SQRT_2PI - 0.5 * x * x
    return math.log1p(-upper_tail(-x))
