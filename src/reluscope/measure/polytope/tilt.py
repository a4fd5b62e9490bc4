"""Compiled parts of the n-dimensional Gaussian mass: truncated normals, triangular rows, and the two proposals.

A polytope {u : A u <= b} is brought to the form lo_i <= L_i . y <= hi_i where `y = Qᵀu` is again standard normal,
`L` is lower triangular as far as its rows allow, and row i ends (has its last non-zero entry) at coordinate
`end_i`. Coordinates are drawn in order, each from a normal law truncated to the interval which the rows ending
there leave. Two families of such laws are built here, both from one expectation-propagation pass that
replaces every row by a Gaussian factor exp(ν t - τ t²/2), t = L_i . y:

* *guided*: the exact conditional law of y_k under the Gaussian factors of all rows which end later. Close to the
  target, but its tails can be lighter than the target's.
* *tilted*: unit variance and the mean shift μ_k = Σ L_ik (ν_i - τ_i t_i) over the rows which end later, t_i being
  the mean of L_i . y. To first order this is the saddle point of minimax tilting (Botev 2017), and like it
  keeps the weights bounded.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from reluscope._kernels import kernel

LANES = 16
"""Points drawn side by side, so that row products and special functions become vector instructions."""

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
NARROW = 1e-4
_FAR = 35.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_LARGEST_PRECISION = 1e8
"""Cap on a factor's precision: thinner slabs are left to the exact truncation, and matrices stay well conditioned."""


@kernel
def quantile(p: float) -> float:
    """Φ⁻¹(p) for 0 < p < 1 to about 1e-15 relative (Wichura 1988, algorithm AS 241)."""
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        top = 2509.0809287301226727 * r + 33430.575583588128105
        top = (top * r + 67265.770927008700853) * r + 45921.953931549871457
        top = (top * r + 13731.693765509461125) * r + 1971.5909503065514427
        top = (top * r + 133.14166789178437745) * r + 3.387132872796366608
        low = 5226.495278852854561 * r + 28729.085735721942674
        low = (low * r + 39307.89580009271061) * r + 21213.794301586595867
        low = (low * r + 5394.1960214247511077) * r + 687.1870074920579083
        low = (low * r + 42.313330701600911252) * r + 1.0
        return q * top / low
    r = math.sqrt(-math.log(p if q < 0.0 else 1.0 - p))
    if r <= 5.0:
        r -= 1.6
        top = 7.7454501427834140764e-4 * r + 0.0227238449892691845833
        top = (top * r + 0.24178072517745061177) * r + 1.27045825245236838258
        top = (top * r + 3.64784832476320460504) * r + 5.7694972214606914055
        top = (top * r + 4.6303378461565452959) * r + 1.42343711074968357734
        low = 1.05075007164441684324e-9 * r + 5.475938084995344946e-4
        low = (low * r + 0.0151986665636164571966) * r + 0.14810397642748007459
        low = (low * r + 0.68976733498510000455) * r + 1.6763848301838038494
        low = (low * r + 2.05319162663775882187) * r + 1.0
    else:
        r -= 5.0
        top = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
        top = (top * r + 0.0012426609473880784386) * r + 0.026532189526576123093
        top = (top * r + 0.29656057182850489123) * r + 1.7848265399172913358
        top = (top * r + 5.4637849111641143699) * r + 6.6579046435011037772
        low = 2.04426310338993978564e-15 * r + 1.4215117583164458887e-7
        low = (low * r + 1.8463183175100546818e-5) * r + 7.868691311456132591e-4
        low = (low * r + 0.0148753612908506148525) * r + 0.1369298809227358053
        low = (low * r + 0.59983220655588793769) * r + 1.0
    return -top / low if q < 0.0 else top / low


@kernel
def upper_tail(x: float) -> float:
    """1 - Φ(x), relatively accurate for x > 0 up to 37."""
    return 0.5 * math.erfc(x * _SQRT_HALF)


@kernel
def log_upper_tail(x: float) -> float:
    """log(1 - Φ(x)) for any x."""
    if x < -5.0:
        return math.log1p(-upper_tail(-x))
    if x < _FAR:
        return math.log(upper_tail(x))
    t = 1.0 / (x * x)
    return -0.5 * x * x - _LOG_SQRT_2PI - math.log(x) + math.log1p(-t * (1.0 - t * (3.0 - t * (15.0 - 105.0 * t))))


@kernel
def _far_ratio(low: float, high: float) -> float:
    """log of (1-Φ(high)) / (1-Φ(low)) for 35 <= low < high: the squares are subtracted before they are rounded."""
    s = 1.0 / (low * low)
    t = 1.0 / (high * high)
    return (
        -0.5 * (high - low) * (high + low)
        + math.log(low / high)
        + math.log1p(-t * (1.0 - 3.0 * t))
        - math.log1p(-s * (1.0 - 3.0 * s))
    )


@kernel
def log_interval(low: float, high: float) -> float:
    """log(Φ(high) - Φ(low)), relatively accurate in both tails and for narrow intervals; -inf if low >= high."""
    if not low < high:
        return -np.inf
    if low + high < 0.0:
        low, high = -high, -low
    width = high - low
    if width * max(1.0, high) < NARROW:
        middle = 0.5 * (low + high)
        return math.log(width) - 0.5 * middle * middle - _LOG_SQRT_2PI + (middle * middle - 1.0) * width * width / 24.0
    if low <= 0.0:
        out = 0.0
        if low > -38.0:
            out += upper_tail(-low)
        if high < 38.0:
            out += upper_tail(high)
        return math.log1p(-out)
    if low < _FAR:
        inside = upper_tail(low)
        if high < 38.0:
            inside -= upper_tail(high)
        return math.log(inside)
    if high == np.inf:
        return log_upper_tail(low)
    return log_upper_tail(low) + math.log(-math.expm1(_far_ratio(low, high)))


@kernel
def draw(v: float, low: float, high: float) -> tuple[float, float]:
    """The v-quantile of the standard normal law truncated to [low, high], and log(Φ(high) - Φ(low)).

    Wants low < high and 0 < v < 1; monotone in v.
    """
    mirrored = low + high < 0.0
    if mirrored:
        low, high, v = -high, -low, 1.0 - v
    width = high - low
    if width * max(1.0, high) < NARROW:
        middle = 0.5 * (low + high)
        x = low + width * (v - 0.5 * middle * width * v * (1.0 - v))
        log_mass = (
            math.log(width) - 0.5 * middle * middle - _LOG_SQRT_2PI + (middle * middle - 1.0) * width * width / 24.0
        )
    elif low <= 0.0:
        below = upper_tail(-low) if low > -38.0 else 0.0
        above = upper_tail(high) if high < 38.0 else 0.0
        inside = 1.0 - below - above
        log_mass = math.log1p(-(below + above))
        p = below + v * inside
        x = quantile(max(p, 1e-300)) if p < 0.5 else -quantile(max(above + (1.0 - v) * inside, 1e-300))
    elif low < _FAR:
        inside = upper_tail(low)
        above = upper_tail(high) if high < 38.0 else 0.0
        inside -= above
        log_mass = math.log(inside)
        x = -quantile(above + (1.0 - v) * inside)
    else:
        ratio = _far_ratio(low, high) if high < np.inf else -np.inf
        share = -math.expm1(ratio)
        log_mass = log_upper_tail(low) + math.log(share)
        wanted = math.log1p(-v * share)
        x = math.sqrt(low * low - 2.0 * wanted)
        for _ in range(2):  # Newton on log tail(x) - log tail(low), whose slope is -(x + 1/x)
            x += (_far_ratio(low, x) - wanted) / (x + 1.0 / x)
    x = min(max(x, low), high)
    return (-x if mirrored else x), log_mass


# The same functions for LANES points at once. They are written without branches and without calls to the system's
# mathematics library, both of which would keep the compiler from using vector instructions.


@intrinsic
def _bits_of(typing_context: Any, x: Any) -> Any:
    """The 64 bits of a float."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), codegen


@intrinsic
def _float_of(typing_context: Any, bits: Any) -> Any:
    """The float that has these 64 bits."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), codegen


@kernel
def fast_exp(x: float) -> float:
    """e^x for -700 <= x <= 700: x = k log 2 + r, Taylor for e^r; relative error 3e-16."""
    t = x * 1.4426950408889634 + 6755399441055744.0  # adding 1.5 * 2**52 rounds to a whole number k in the low bits
    k = t - 6755399441055744.0
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
    r2 = r * r
    r4 = r2 * r2
    s = (1.0 + r) + (0.5 + r * (1.0 / 6.0)) * r2
    t4 = (1.0 / 24.0 + r * (1.0 / 120.0)) + (1.0 / 720.0 + r * (1.0 / 5040.0)) * r2
    t8 = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + (1.0 / 3628800.0 + r * (1.0 / 39916800.0)) * r2
    s = s + (t4 + (t8 + r4 * (1.0 / 479001600.0)) * r4) * r4
    return s * _float_of((_bits_of(t) << np.uint64(52)) + np.uint64(0x3FF0000000000000))


@kernel
def fast_log(x: float) -> float:
    """log x for normal positive x: mantissa m in [√½, √2), series in (m - 1)/(m + 1); error 2e-16 max(1, |log x|)."""
    shifted = _bits_of(x) + np.uint64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
    k = _float_of((shifted >> np.uint64(52)) | np.uint64(0x4330000000000000)) - 4503599627371519.0
    m = _float_of((shifted & np.uint64(0x000FFFFFFFFFFFFF)) + np.uint64(0x3FE6A09E667F3BCD))
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    s2 = s * s
    s4 = s2 * s2
    t = (2.0 + s * (2.0 / 3.0)) + (2.0 / 5.0 + s * (2.0 / 7.0)) * s2
    t4 = (2.0 / 9.0 + s * (2.0 / 11.0)) + (2.0 / 13.0 + s * (2.0 / 15.0)) * s2
    t = t + (t4 + (2.0 / 17.0 + s * (2.0 / 19.0)) * s4) * s4
    return k * 0.6931471805599453 + f * t


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def fast_tail(x: float) -> float:
    """1 - Φ(x) for 0 <= x <= 37, relative error 1e-13.

    (x + 4)(1 - Φ(x)) e^(x²/2) is interpolated at 19 Chebyshev points in t = (x - 4)/(x + 4), 0 <= x <= 40 (computed
    with mpmath at 40 digits); the interpolation error is 1e-14.
    """
    t = (x - 4.0) / (x + 4.0)
    t2 = t * t
    t4 = t2 * t2
    t8 = t4 * t4
    p0 = (0.755285130415751 + t * -0.6078966419718831) + (0.3871374007423 + t * -0.18652185796106788) * t2
    p4 = (0.06039657488878389 + t * -0.0075401889194223835) + (-0.0034796923425349843 + t * 0.0016308178108757245) * t2
    p8 = (0.00013334408138005312 + t * -0.0002310903836048716) + (
        -1.9064910021698975e-06 + t * 3.5126369646671666e-05
    ) * t2
    p12 = (7.078414141574796e-07 + t * -5.8763256315651856e-06) + (
        -6.033996673338365e-07 + t * 9.59923342211178e-07
    ) * t2
    p16 = (2.2627720839697144e-07 + t * -1.0851330387783218e-07) + -4.1984686176676184e-08 * t2
    s = (p0 + p4 * t4) + ((p8 + p12 * t4) + p16 * t8) * t8
    return s / (x + 4.0) * fast_exp(-0.5 * x * x)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def fast_quantile(p: float) -> float:
    """-Φ⁻¹(p) >= 0 for 1e-300 <= p <= 1/2: the three ranges of AS 241, all computed, one kept."""
    q = 0.5 - p
    r = 0.180625 - q * q
    r2 = r * r
    low = (3.3871328727963665 + r * 133.14166789178438) + (1971.5909503065513 + r * 13731.69376550946) * r2
    high = (45921.95393154987 + r * 67265.7709270087) + (33430.57558358813 + r * 2509.0809287301227) * r2
    top = low + high * (r2 * r2)
    low = (1.0 + r * 42.31333070160091) + (687.1870074920579 + r * 5394.196021424751) * r2
    high = (21213.794301586597 + r * 39307.89580009271) + (28729.085735721943 + r * 5226.495278852854) * r2
    under = low + high * (r2 * r2)
    middle = q * top / under
    root = math.sqrt(-fast_log(p))
    r = root - 1.6
    r2 = r * r
    low = (1.4234371107496835 + r * 4.630337846156546) + (5.769497221460691 + r * 3.6478483247632045) * r2
    high = (1.2704582524523684 + r * 0.2417807251774506) + (0.022723844989269184 + r * 0.0007745450142783414) * r2
    top = low + high * (r2 * r2)
    low = (1.0 + r * 2.053191626637759) + (1.6763848301838038 + r * 0.6897673349851) * r2
    high = (0.14810397642748008 + r * 0.015198666563616457) + (0.0005475938084995345 + r * 1.0507500716444169e-09) * r2
    under = low + high * (r2 * r2)
    near = top / under
    r = root - 5.0
    r2 = r * r
    low = (6.657904643501103 + r * 5.463784911164114) + (1.7848265399172913 + r * 0.29656057182850487) * r2
    high = (0.026532189526576124 + r * 0.0012426609473880784) + (
        2.7115555687434876e-05 + r * 2.0103343992922881e-07
    ) * r2
    top = low + high * (r2 * r2)
    low = (1.0 + r * 0.599832206555888) + (0.1369298809227358 + r * 0.014875361290850615) * r2
    high = (0.0007868691311456133 + r * 1.8463183175100548e-05) + (
        1.421511758316446e-07 + r * 2.0442631033899397e-15
    ) * r2
    under = low + high * (r2 * r2)
    far = top / under
    tail = near if root <= 5.0 else far
    return middle if q <= 0.425 else tail


@kernel
def truncated_moments(low: float, high: float) -> tuple[float, float]:
    """Mean and variance of the standard normal law truncated to [low, high]; about six digits, for proposals only."""
    mirrored = low + high < 0.0
    if mirrored:
        low, high = -high, -low
    width = high - low
    if width * max(1.0, high) < 1e-3:
        middle = 0.5 * (low + high)
        mean = middle - middle * width * width / 12.0
        variance = width * width / 12.0
    elif low == -np.inf:
        mean, variance = 0.0, 1.0
    elif width * max(1.0, low) > 30.0 and low > 8.0:
        t = 1.0 / (low * low)
        mean = low / (1.0 - t * (1.0 - t * (3.0 - 15.0 * t)))
        variance = t * (1.0 - t * (6.0 - 50.0 * t))
    elif low > 8.0 or width < 0.5:
        reach = min(high, low + 30.0 / max(low, 1.0))
        half = 0.5 * (reach - low)
        total = 0.0
        first = 0.0
        second = 0.0
        for i in range(_NODES.size):
            step = half * (1.0 + _NODES[i])
            w = _WEIGHTS[i] * math.exp(-step * (low + 0.5 * step))
            total += w
            first += w * step
            second += w * step * step
        first /= total
        mean = low + first
        variance = second / total - first * first
    else:
        density_low = math.exp(-0.5 * low * low - _LOG_SQRT_2PI)
        density_high = math.exp(-0.5 * high * high - _LOG_SQRT_2PI)
        inside = upper_tail(low) - upper_tail(high)
        mean = (density_low - density_high) / inside
        pull = low * density_low - (high * density_high if high < 40.0 else 0.0)
        variance = 1.0 + pull / inside - mean * mean
    return (-mean if mirrored else mean), max(variance, 1e-300)


@kernel
def unit_rows(A: Any, b: Any, rows: Any, lo: Any, hi: Any) -> int:
    """Fill `rows`, `lo`, `hi` with unit, pairwise non-parallel rows lo <= a.u <= hi; return how many, -1 if empty.

    Zero rows are dropped (or make the set empty), parallel rows are merged into one interval. O(m² n) at worst.
    """
    m, n = A.shape
    count = 0
    for i in range(m):
        top = 0.0
        for j in range(n):
            top = max(top, abs(A[i, j]))
        if b[i] == np.inf:
            continue
        if top == 0.0:
            if b[i] < 0.0:
                return -1
            continue
        length = 0.0
        for j in range(n):
            entry = A[i, j] / top
            rows[count, j] = entry
            length += entry * entry
        length = math.sqrt(length)
        for j in range(n):
            rows[count, j] /= length
        bound = b[i] / top / length
        if bound == np.inf:
            continue
        if bound == -np.inf:
            return -1
        merged = False
        for other in range(count):
            dot = 0.0
            for j in range(n):
                dot += rows[count, j] * rows[other, j]
            if abs(dot) > 1.0 - 1e-9:
                sign = 1.0 if dot > 0.0 else -1.0
                gap = 0.0
                for j in range(n):
                    gap = max(gap, abs(rows[count, j] - sign * rows[other, j]))
                if gap <= 4e-15:
                    if sign > 0.0:
                        hi[other] = min(hi[other], bound)
                    else:
                        lo[other] = max(lo[other], -bound)
                    if not lo[other] < hi[other]:
                        return -1
                    merged = True
                    break
        if not merged:
            lo[count] = -np.inf
            hi[count] = bound
            count += 1
    return count


@kernel
def gaussian_factors(rows: Any, lo: Any, hi: Any, precision: Any, linear: Any, mean: Any, chance: Any) -> bool:
    """Expectation propagation: factors exp(linear_i t - precision_i t²/2), t = a_i.u, and the mean of their product.

    `chance` receives log P(lo_i <= t <= hi_i) under the standard normal times all other factors: how much row i
    cuts off that the others leave. Sequential updates, O(m n²) a sweep; stops when the mean has settled to 1e-3
    of its spread (the result steers proposals, it never enters a result unweighted). False if it broke down.
    """
    m, n = rows.shape
    covariance = np.eye(n)
    mean[:] = 0.0
    precision[:] = 0.0
    linear[:] = 0.0
    column = np.empty(n)
    for _ in range(40):
        worst = 0.0
        for i in range(m):
            column[:] = 0.0
            for c in range(n):
                entry = rows[i, c]
                if entry != 0.0:
                    for a in range(n):
                        column[a] += entry * covariance[c, a]
            spread = 0.0
            centre = 0.0
            for c in range(n):
                spread += rows[i, c] * column[c]
                centre += rows[i, c] * mean[c]
            chance[i] = -np.inf
            if not spread > 1e-14:
                continue
            cavity = 1.0 / spread - precision[i]
            if not cavity > 1e-12:
                continue
            cavity_mean = (centre / spread - linear[i]) / cavity
            root = math.sqrt(cavity)
            low = (lo[i] - cavity_mean) * root
            high = (hi[i] - cavity_mean) * root
            chance[i] = log_interval(low, high)
            shift, shrink = truncated_moments(low, high)
            target = cavity_mean + shift / root
            new_precision = min(max(cavity * (1.0 / shrink - 1.0), 0.0), _LARGEST_PRECISION)
            new_linear = target * (new_precision + cavity) - cavity_mean * cavity
            change = new_precision - precision[i]
            denominator = 1.0 + change * spread
            if not (math.isfinite(new_linear) and denominator > 1e-12):
                continue
            move = (new_linear - linear[i] - change * centre) / denominator
            precision[i] = new_precision
            linear[i] = new_linear
            factor = change / denominator
            for a in range(n):
                mean[a] += move * column[a]
                scaled = factor * column[a]
                for c in range(n):
                    covariance[a, c] -= scaled * column[c]
            worst = max(worst, abs(move) * math.sqrt(spread), abs(change) * spread)
        if worst < 1e-3:
            break
    total = 0.0
    for c in range(n):
        total += mean[c]
    return math.isfinite(total)


@kernel
def triangular_rows(
    rows: Any, lo: Any, hi: Any, precision: Any, linear: Any, chance: Any, L: Any, ends: Any, basis: Any
) -> int:
    """Greedy order and orthogonal basis that make the rows lower triangular; returns their rank.

    Next comes the row which cuts off most (least `chance`), unless hardly anything of it is not yet spanned: the
    first rank rows are met exactly as they come, all others only with the last coordinate they need, so those
    should matter least. On return `L` (m, n), `lo`, `hi`, `precision`, `linear` are sorted by `ends`, each row's last
    entry L[i, ends[i]] is positive, and the first rank rows of `basis` (n, n) are the new directions. `rows` is
    overwritten.
    """
    m, n = rows.shape
    tolerance = 1e-11
    length = np.ones(m)
    done = np.full(m, -1, dtype=np.int64)
    work = np.zeros((m, n))
    rank = 0
    for k in range(n):
        best = -1
        best_score = np.inf
        for i in range(m):
            if done[i] < 0:
                score = max(chance[i], -1e6) * min(1.0, 20.0 * length[i])
                if best < 0 or score < best_score:
                    best, best_score = i, score
        if best < 0:
            break
        direction = basis[k]
        for j in range(n):
            direction[j] = rows[best, j]
        for _ in range(2):  # orthogonal to what came before, to rounding
            size = 0.0
            for j in range(n):
                size += direction[j] * direction[j]
            size = math.sqrt(size)
            for j in range(n):
                direction[j] /= size
            for earlier in range(k):
                dot = 0.0
                for j in range(n):
                    dot += direction[j] * basis[earlier, j]
                for j in range(n):
                    direction[j] -= dot * basis[earlier, j]
        for i in range(m):
            if done[i] >= 0:
                continue
            dot = 0.0
            for j in range(n):
                dot += rows[i, j] * direction[j]
            left = 0.0
            for j in range(n):
                rows[i, j] -= dot * direction[j]
                left += rows[i, j] * rows[i, j]
            work[i, k] = dot
            length[i] = math.sqrt(left)
            if i == best or k == n - 1 or length[i] <= tolerance:
                last = k
                while last > 0 and abs(work[i, last]) <= tolerance:  # rounding, not a coordinate of the row
                    work[i, last] = 0.0
                    last -= 1
                done[i] = last
        rank = k + 1
    order = np.empty(m, dtype=np.int64)
    placed = 0
    for k in range(rank):
        for i in range(m):
            if done[i] == k:
                order[placed] = i
                placed += 1
    old = np.empty((4, m))
    for i in range(m):
        old[0, i] = lo[i]
        old[1, i] = hi[i]
        old[2, i] = precision[i]
        old[3, i] = linear[i]
    for new in range(m):
        i = order[new]
        ends[new] = done[i]
        sign = 1.0 if work[i, done[i]] > 0.0 else -1.0
        for j in range(n):
            L[new, j] = sign * work[i, j]
        lo[new] = old[0, i] if sign > 0.0 else -old[1, i]
        hi[new] = old[1, i] if sign > 0.0 else -old[0, i]
        precision[new] = old[2, i]
        linear[new] = sign * old[3, i]
    return rank


@kernel
def proposals(
    L: Any, ends: Any, basis: Any, rank: int, precision: Any, linear: Any, mean: Any, family: Any, slope: Any
) -> bool:
    """Parameters of the two families from the Gaussian factors.

    Tilted: y_k ~ N(family[0, k], 1). Guided: y_k ~ N(family[1, k] + slope[k] . y_<k, 1/family[2, k]), the
    conditional law of y_k under the standard normal times the factors of all rows ending after k, later coordinates
    integrated out. Both are then truncated. `mean` is in the coordinates of u. O(rank⁴/12 + m rank²).
    False if a parameter is not finite.
    """
    m = L.shape[0]
    tilt, base, sharp = family[0], family[1], family[2]
    tilt[:] = 0.0
    place = np.zeros(rank)
    for k in range(rank):
        for j in range(mean.size):
            place[k] += basis[k, j] * mean[j]
    for i in range(m):
        along = 0.0
        for c in range(ends[i] + 1):
            along += L[i, c] * place[c]
        force = linear[i] - precision[i] * along
        for c in range(ends[i]):
            tilt[c] += L[i, c] * force
    joint = np.eye(rank)
    pull = np.zeros(rank)
    row = m
    factor = np.zeros((rank, rank))
    solved = np.zeros(rank)
    for k in range(rank - 1, -1, -1):
        # Here `joint` and `pull` hold the factors of the rows ending after k.
        size = rank - 1 - k
        for a in range(size):
            for c in range(a + 1):
                total = joint[k + 1 + a, k + 1 + c]
                for e in range(c):
                    total -= factor[a, e] * factor[c, e]
                if a == c:
                    factor[a, a] = math.sqrt(max(total, 1e-300))
                else:
                    factor[a, c] = total / factor[c, c]
        for a in range(size):
            total = joint[k + 1 + a, k]
            for e in range(a):
                total -= factor[a, e] * solved[e]
            solved[a] = total / factor[a, a]
        for a in range(size - 1, -1, -1):
            total = solved[a]
            for e in range(a + 1, size):
                total -= factor[e, a] * solved[e]
            solved[a] = total / factor[a, a]
        own = joint[k, k]
        force = pull[k]
        for a in range(size):
            own -= joint[k, k + 1 + a] * solved[a]
            force -= pull[k + 1 + a] * solved[a]
        sharp[k] = max(own, 1.0)
        base[k] = force / sharp[k]
        for j in range(k):
            total = joint[k, j]
            for a in range(size):
                total -= joint[k + 1 + a, j] * solved[a]
            slope[k, j] = -total / sharp[k]
        while row > 0 and ends[row - 1] == k:
            row -= 1
            for a in range(k + 1):
                pull[a] += linear[row] * L[row, a]
                for c in range(k + 1):
                    joint[a, c] += precision[row] * L[row, a] * L[row, c]
    for k in range(rank):
        total = tilt[k] + base[k] + sharp[k]
        for j in range(k):
            total += slope[k, j]
        if not math.isfinite(total):
            return False
    return True
