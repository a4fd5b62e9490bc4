"""Confidence intervals: one place for every bound that holds with a probability.

`level` is the probability with which an interval holds, `1 - level` its risk; two-sided intervals give half of the risk
to each side. Unless a function says otherwise its interval is *finite-sample*: it holds at the level or more for every
number of independent draws that was fixed beforehand, whatever their law.
"""

from __future__ import annotations

import math
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late

DEFAULT_LEVEL = 0.99
"""The confidence level of every call that is given none."""

_BETS = 0.5 ** np.arange(0, 14)
_BINS_PER_E = 2000.0
"""Numbers are rounded to a relative grid this fine (outwards) and counted: the cost does not depend on their number."""

_MOST, _SIZES = 0.97, 20
"""The largest bet on sums, and how many there are, each half of the one before."""

_LARGEST: FloatArray = np.ldexp(1.0, -np.arange(_SIZES + 1))
"""The largest numbers of each size, as shares of the top."""

_LONGEST_WAY = 80
_SUM_ERROR = 1e-13
"""Relative rounding error of a sum of squares, and more."""

_SMALL = 1e-4
"""Numbers below this share of the mean are rounded to 0 or to it."""


# -- counts --------------------------------------------------------------------------------------------------------


@overload
def binomial(
    hits: int, draws: int, level: float = ..., *, side: Literal["both", "lower", "upper"] = ...
) -> tuple[float, float]: ...
@overload
def binomial(
    hits: npt.NDArray[Any], draws: Any, level: float = ..., *, side: Literal["both", "lower", "upper"] = ...
) -> tuple[FloatArray, FloatArray]: ...
def binomial(
    hits: Any, draws: Any, level: float = DEFAULT_LEVEL, *, side: Literal["both", "lower", "upper"] = "both"
) -> tuple[Any, Any]:
    """The exact interval for a probability from `hits` in `draws` independent trials (Clopper and Pearson 1934).

    `lower` solves `P(Bin(n, p) >= hits) = a` and `upper` solves `P(Bin(n, p) <= hits) = a`, which are quantiles of
    beta laws; `a` is half the risk, or all of it with `side="lower"` or `"upper"` (the other bound is then 0 or 1).
    Holds for every probability and every number of draws. Arrays give arrays.
    """
    betaincinv = late("scipy.special", "betaincinv")

    k, n = np.asarray(hits, dtype=np.float64), np.asarray(draws, dtype=np.float64)
    tail = (1.0 - level) * (0.5 if side == "both" else 1.0)
    lower, upper = np.zeros(np.broadcast(k, n).shape), np.ones(np.broadcast(k, n).shape)
    if side != "upper":
        lower = np.where(k > 0, betaincinv(np.maximum(k, 1.0), n - k + 1.0, tail), lower)
    if side != "lower":
        upper = np.where(k < n, betaincinv(k + 1.0, np.maximum(n - k, 1.0), 1.0 - tail), upper)
    return (lower, upper) if lower.ndim else (float(lower), float(upper))


def unseen(draws: float, level: float = DEFAULT_LEVEL) -> float:
    """How likely something may be that none of `draws` independent draws showed: `log(2 / (1 - level)) / draws`.

    Something of probability q stays away with probability `(1 - q)^n <= exp(-n q)`. Half of the risk, so that it can
    be one side of a two-sided interval; may exceed 1.
    """
    return math.log(2.0 / (1.0 - level)) / draws


def order_statistics(q: float, draws: int, level: float = DEFAULT_LEVEL) -> tuple[int, int]:
    """Ranks (from 1) of the two sorted draws that enclose the q-quantile, for any law, atoms included.

    `P(X_(k) > quantile) <= P(Bin(n, q) < k)` and `P(X_(k) < quantile) <= P(Bin(n, q) >= k)`. A rank of 0 or of
    `draws + 1` means that no draw bounds that side.
    """
    binom = late("scipy.stats", "binom")

    tail = 0.5 * (1.0 - level)
    return int(binom.ppf(tail, draws, q)), int(binom.isf(tail, draws, q)) + 1


def dkw(draws: int, level: float = DEFAULT_LEVEL) -> float:
    """Half-width of a band around an empirical cdf that holds everywhere at once: `sqrt(log(2 / (1 - level)) / (2 n))`.

    Dvoretzky, Kiefer and Wolfowitz 1956 with the constant of Massart 1990.
    """
    return math.sqrt(math.log(2.0 / (1.0 - level)) / (2.0 * draws))


# -- replicates ----------------------------------------------------------------------------------------------------


def normal_quantile(level: float = DEFAULT_LEVEL) -> float:
    """Half-width of the central interval of N(0, 1) that has probability `level`."""
    ndtri = late("scipy.special", "ndtri")

    return float(ndtri(0.5 + 0.5 * level))


def student_quantile(freedom: float, level: float = DEFAULT_LEVEL) -> float:
    """Half-width of the central interval of Student's t with that many degrees of freedom."""
    stdtrit = late("scipy.special", "stdtrit")

    return float(stdtrit(freedom, 0.5 + 0.5 * level))


def student(replicates: npt.ArrayLike, level: float = DEFAULT_LEVEL) -> tuple[Any, Any]:
    """Mean of independent replicates along the first axis, and the half-width `t s / sqrt(n)` (Student 1908).

    Exact for normal replicates; otherwise asymptotic: about the parts of the law that the replicates have seen.
    """
    rows = np.asarray(replicates, dtype=np.float64)
    n = len(rows)
    return rows.mean(axis=0), student_quantile(n - 1, level) * deviation(rows) / math.sqrt(n)


def deviation(rows: FloatArray) -> Any:
    """Sample standard deviation along the first axis, of numbers whose squares may be too small for floats."""
    scale = np.ldexp(1.0, np.frexp(np.abs(rows).max(axis=0))[1] - 1)  # a power of two: no rounding
    return scale * (rows / scale).std(axis=0, ddof=1)


# -- bounded numbers -----------------------------------------------------------------------------------------------


def bernstein(variance: Any, draws: float, risk: float, top: float = 1.0) -> Any:
    """Half-width of an interval for the mean of numbers in an interval of length `top`, from their sample variance.

    `sqrt(2 V log(4/risk) / n) + 7 top log(4/risk) / (3 (n - 1))`: empirical Bernstein (Maurer and Pontil 2009,
    theorem 4, on both sides). Needs two draws.
    """
    log = math.log(4.0 / risk)
    return np.sqrt(2.0 * variance * log / draws) + 7.0 * top * log / (3.0 * (draws - 1))


def chernoff(mean: FloatArray, draws: int, risk: float) -> tuple[FloatArray, FloatArray]:
    """All q with `n KL(mean, q) <= log(2/risk)`, rounded outwards; for means of numbers in [0, 1].

    Chernoff 1952, Hoeffding 1963; KL is the relative entropy of two coins.
    """
    rel_entr = late("scipy.special", "rel_entr")

    reach = math.log(2.0 / risk) / draws
    ends = []
    for side in (0.0, 1.0):
        near, far = mean.copy(), np.full_like(mean, side)
        for _ in range(60):
            middle = 0.5 * (near + far)
            inside = rel_entr(mean, middle) + rel_entr(1.0 - mean, 1.0 - middle) <= reach
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        ends.append(far)
    return ends[0], ends[1]


def bounded_mean(
    total: FloatArray,
    square: FloatArray,
    draws: int,
    level: float = DEFAULT_LEVEL,
    *,
    top: float = 1.0,
    expected: tuple[FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, lower and upper bound from the sums of n >= 2 independent numbers in [0, top] and of their squares.

    Betting, as in `betting`, with what the wealth is at least: `log(1 + x) >= x - k(c) x^2` for x >= -c, with
    `k(c) = (-log(1 - c) - c) / c^2` (Fan, Grama and Liu 2015), so sums are enough. Half of the stake is on the bet that
    is best for the `expected` mean and variance, where these are given (known without the numbers), the rest on bets of
    all sizes. The numbers need not have one law, only their means' mean counts: a product of `1 + t (m - m_i)` is
    largest where all m_i are the same. A tenth of the risk is for `chernoff`, which is better for few large numbers.
    """
    mean = np.clip(total / draws, 0.0, top)
    # Rounding in the sums may not make the numbers look alike.
    variance = np.maximum(square / draws - mean * mean, 0.0) + _SUM_ERROR * square / draws
    risk = 0.9 * (1.0 - level)
    reach = math.log(2.0 / risk)
    spread = np.sqrt(2.0 * variance * reach / draws)
    lower, upper = np.zeros_like(mean), np.full_like(mean, top)
    for side, ends in ((-1.0, lower), (1.0, upper)):
        bets, shares = _bets(mean.shape, side, draws, top, reach, expected)
        # Steps away from the mean until one is refused, then bisection. Refusing m refuses all that is beyond.
        near, found = np.zeros_like(mean), np.zeros(mean.shape, bool)
        step = 0.25 * spread + 0.05 * reach * (top if side > 0 else mean) / draws
        far = step.copy()
        for _ in range(_LONGEST_WAY):
            m = mean + side * far
            refused = _refused(m, mean, variance, draws, top, side, bets, shares, reach)
            found |= refused
            if found.all() or not (~found & (m > 0.0) & (m < top)).any():
                break
            near, far = np.where(found, near, far), np.where(found, far, 1.5 * far)
        for _ in range(30):
            middle = 0.5 * (near + far)
            refused = _refused(mean + side * middle, mean, variance, draws, top, side, bets, shares, reach)
            near, far = np.where(refused, near, middle), np.where(refused, middle, far)
        ends[...] = np.where(found, mean + side * far, ends)
    low, high = chernoff(mean / top, draws, 0.1 * (1.0 - level))
    return mean, np.maximum(np.maximum(lower, top * low), 0.0), np.minimum(np.minimum(upper, top * high), top)


def _bets(
    shape: tuple[int, ...],
    side: float,
    draws: int,
    top: float,
    reach: float,
    expected: tuple[FloatArray, FloatArray] | None,
) -> tuple[FloatArray, FloatArray]:
    """Bets (as shares of the most that can be bet) and what is staked on each; the first axis counts them."""
    column = (-1, *[1] * len(shape))
    usual = np.broadcast_to((_MOST * 0.5 ** np.arange(_SIZES)).reshape(column), (_SIZES, *shape))
    shares = np.append(0.25, np.full(_SIZES - 1, 0.75 / (_SIZES - 1)))  # rare events need the largest bet
    if expected is None:
        return usual, shares.reshape(column)
    mean, variance = expected
    # The gain of a bet of g on each unit of distance is g d - g^2 V / 2 a draw, at the distance d that is refused.
    best = np.sqrt(2.0 * reach / (draws * np.maximum(variance, 1e-300))) * (top - mean if side > 0 else mean)
    bets = np.concatenate([np.clip(best, 1e-9, _MOST)[None], usual])
    return bets, np.append(0.5, 0.5 * shares).reshape(column)


def _refused(
    m: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    draws: int,
    top: float,
    side: float,
    bets: FloatArray,
    shares: FloatArray,
    reach: float,
) -> npt.NDArray[np.bool_]:
    """Whether the wealth of bets that the mean is not as far out as m is large enough to refuse m."""
    most = top - m if side > 0 else m
    inside = most > 0.0
    unit = bets / np.where(inside, most, 1.0)
    away = side * (m - mean)
    curve = (-np.log1p(-bets) - bets) / (bets * bets)
    logs = draws * (unit * away - curve * unit * unit * (variance + away * away))
    highest = logs.max(axis=0)
    wealth = highest + np.log((shares * np.exp(logs - highest)).sum(axis=0))
    return np.asarray(inside & (wealth >= reach))


# -- strata --------------------------------------------------------------------------------------------------------


def strata(
    hits: FloatArray,
    draws: FloatArray,
    mass: FloatArray,
    guess: FloatArray,
    level: float = DEFAULT_LEVEL,
) -> tuple[float, float, float]:
    """Estimate, lower and upper bound of `P = sum of mass_i p_i` from `hits_i` in `draws_i` trials of probability p_i.

    Betting, as in `bounded_mean`, on the numbers `Z = mass_i / draws_i (X - guess_i)` of all trials X: `guess` (K,) is
    known without the hits, so `sum of mass_i guess_i` plus the sum of all Z estimates P, and where the guesses are good
    the squares of Z are as small as variances. A stratum of few draws has large numbers, one of many has small ones:
    `log(1 + x) >= x - k(c) x^2` for x >= -c is used with the c of each size of numbers (powers of two), so that the
    largest do not spoil it for all. Half of the stake is on the bet that is best if the guesses are right.
    """
    weight = mass / draws
    high, low = weight * (1.0 - guess), weight * guess
    sums = weight * (hits - draws * guess)
    square = (hits * high * high + (draws - hits) * low * low) * (1.0 + _SUM_ERROR)
    known = draws * (guess * high * high + (1.0 - guess) * low * low)
    base = float((mass * guess).sum())
    up = _sum_reach(sums, square, known, draws, high, level)
    down = _sum_reach(-sums, square, known, draws, low, level)
    value = base + float(sums.sum())
    blur = _SUM_ERROR * (base + float((weight * hits).sum()))
    whole = float(mass.sum())
    return min(max(value, 0.0), whole), max(value - down - blur, 0.0), min(value + up + blur, whole)


def strata_half_width(draws: FloatArray, mass: FloatArray, guess: FloatArray, level: float = DEFAULT_LEVEL) -> float:
    """About the half-width that `strata` will give if the guesses are right."""
    weight = mass / draws
    high, low = weight * (1.0 - guess), weight * guess
    known = draws * (guess * high * high + (1.0 - guess) * low * low)
    return 0.5 * sum(_best_bet(known, side, float(side.max()), level)[1] for side in (high, low))


def _best_bet(known: FloatArray, high: FloatArray, top: float, level: float) -> tuple[float, float]:
    """The best bet, as a share of the most that can be bet, if sums of squares are as `known`; how far it reaches."""
    if top <= 0.0:
        return _MOST, 0.0
    bets = _MOST * 0.5 ** np.arange(0.0, _SIZES, 0.25)
    squares = np.bincount(_size(high, top), known, _SIZES + 1) / (top * top)
    reach = math.log(4.0 / (1.0 - level))  # half of the stake is on it
    needed = top * (reach + _curves(bets, _LARGEST) @ squares) / bets
    best = int(np.argmin(needed))
    return float(bets[best]), float(needed[best])


def _size(high: FloatArray, top: float) -> npt.NDArray[np.int64]:
    """How many times the largest numbers must be halved to be no larger than the top."""
    return np.floor(-np.log2(np.maximum(high / top, 2.0**-_SIZES))).astype(np.int64)


def _sum_reach(
    sums: FloatArray, square: FloatArray, known: FloatArray, draws: FloatArray, high: FloatArray, level: float
) -> float:
    """How far above the sum of all numbers its mean can be; kind i has `draws_i` numbers, none above `high_i`.

    `sums` and `square` are sums of numbers and of their squares by kind, `known` what the squares were expected to be.
    The numbers need not have one mean: a product of factors with mean `1 + b (m - m_i)` has a mean of at most 1 if m
    is the average of the m_i.
    """
    top = float(high.max())
    if top <= 0.0:
        return 0.0
    reach = math.log(2.0 / (1.0 - level))
    size = _size(high, top)
    squares, totals, counts = (np.bincount(size, each, _SIZES + 1) for each in (square, sums, draws))
    total, n = float(sums.sum()), float(draws.sum())
    bets = np.append(_best_bet(known, high, top, level)[0], _MOST * 0.5 ** np.arange(_SIZES))
    shares = 0.5 * np.append(1.0, np.append(0.25, np.full(_SIZES - 1, 0.75 / (_SIZES - 1))))

    def refused(away: float) -> bool:
        """Whether the wealth of bets that the mean of the sum is not that far out is large enough to refuse it."""
        mean = (total + away) / n
        room = top - mean
        if room <= 0.0:
            return True
        # The largest numbers of each size, seen from the mean that is refused.
        ends = np.maximum(top * _LARGEST - mean, 0.0) / room
        # Squares around that mean: by how much they are more than those around 0.
        around = np.maximum(counts * mean * mean - 2.0 * mean * totals, 0.0)
        logs = bets * away / room - _curves(bets, ends) @ (squares + around) / (room * room)
        largest = float(logs.max())
        return largest + math.log(float(shares @ np.exp(logs - largest))) >= reach

    near, far = 0.0, reach * top
    for _ in range(_LONGEST_WAY):
        if refused(far):
            break
        near, far = far, 2.0 * far
    else:
        return math.inf
    for _ in range(20):
        middle = 0.5 * (near + far)
        near, far = (near, middle) if refused(middle) else (middle, far)
    return far


def _curves(bets: FloatArray, ends: FloatArray) -> FloatArray:
    """`bet^2 k(bet end)` for each bet (rows) and end (columns), `k(c) = (-log(1 - c) - c) / c^2`."""
    c = bets[:, None] * ends
    small = c < 1e-3
    safe = np.where(small, 0.5, c)
    curve = np.where(small, 0.5 + 0.34 * c, (-np.log1p(-safe) - safe) / (safe * safe))
    return np.asarray(bets[:, None] ** 2 * curve)


def betting(values: FloatArray, bound: float, level: float = DEFAULT_LEVEL) -> tuple[float, float]:
    """An interval for the mean of numbers in [0, bound] by betting (Waudby-Smith and Ramdas 2024).

    For a candidate mean m and a fixed bet t, `product of (1 + t (X_i / m - 1))` is a gambler's wealth with mean at
    most 1 when the true mean is at most m: so m can be refused once the wealth (an average over several bets) reaches
    the reciprocal of half the risk. Refusing all too small m needs no upper bound on X; refusing all too large ones
    needs `bound`.
    """
    n = len(values)
    reach = math.log(2.0 / (1.0 - level))
    mean = float(values.mean())
    low, low_count = _binned(values, mean, -1)
    high, high_count = _binned(values, mean, +1)
    lower = 0.0
    if mean > 0.0:
        # log-wealth falls as m grows, so the last m refused is found by bisection on a log scale.
        below, above = math.log(mean) - 60.0, math.log(mean)
        if _wealth_against_small(math.exp(below), low, low_count, n) >= reach:
            while above - below > 1e-5:
                middle = 0.5 * (below + above)
                refused = _wealth_against_small(math.exp(middle), low, low_count, n) >= reach
                below, above = (middle, above) if refused else (below, middle)
            lower = math.exp(below)
    high = np.minimum(high, bound)
    near, far = max(mean, 1e-300), bound
    for _ in range(200):
        middle = math.sqrt(near * far)
        refused = _wealth_against_large(middle, high, high_count, n, bound) >= reach
        near, far = (near, middle) if refused else (middle, far)
        if far <= near * (1.0 + 1e-5):
            break
    return min(lower, mean), max(far, mean)


def _binned(values: FloatArray, mean: float, side: int) -> tuple[FloatArray, FloatArray]:
    """The distinct positive values rounded down (-1) or up (+1) to the grid, and how often they occur."""
    floor = _SMALL * mean
    kept = values[values >= floor] if side < 0 else np.maximum(values[values > 0.0], floor)
    logs = np.log(kept[kept > 0.0]) * _BINS_PER_E
    places, counts = np.unique(np.floor(logs) if side < 0 else np.ceil(logs), return_counts=True)
    return np.exp(places / _BINS_PER_E), counts.astype(np.float64)


def _average(logs: FloatArray, shares: FloatArray) -> float:
    top = float(logs.max())
    return top + math.log(float(shares @ np.exp(logs - top)))


def _wealth_against_small(m: float, values: FloatArray, counts: FloatArray, n: int) -> float:
    """Log-wealth of bets that the mean is above m."""
    bets = 0.999 * _BETS
    zero = n - counts.sum()
    logs = np.array([counts @ np.log1p(t * (values / m - 1.0)) + zero * math.log1p(-t) for t in bets])
    return _average(logs, np.full(len(bets), 1.0 / len(bets)))


def _wealth_against_large(m: float, values: FloatArray, counts: FloatArray, n: int, bound: float) -> float:
    """Log-wealth of bets that the mean is below m. The largest bet, which rare events need, has half of the stake."""
    if m >= bound:
        return math.inf
    bets = 0.999 * _BETS / (bound - m)
    zero = n - counts.sum()
    logs = np.array([counts @ np.log1p(t * (m - values)) + zero * math.log1p(t * m) for t in bets])
    shares = np.full(len(bets), 0.5 / (len(bets) - 1))
    shares[0] = 0.5
    return _average(logs, shares)
