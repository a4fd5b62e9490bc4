"""Intervals for the mean of independent numbers in [0, B], valid at any sample size (betting).

For a candidate mean m and a fixed bet t, `product of (1 + t (X_i / m - 1))` is a gambler's wealth with mean at most 1
when the true mean is at most m: so m can be refused at level d once the wealth (an average over several bets) reaches
1/d. Refusing all too small m needs no upper bound on X; refusing all too large ones needs B.
"""

from __future__ import annotations

import math

import numpy as np

from reluscope._check import FloatArray

_BETS = 0.5 ** np.arange(0, 14)
_BINS_PER_E = 2000.0
"""Numbers are rounded to a relative grid this fine (outwards) and counted: the cost does not depend on their number."""

_SMALL = 1e-4
"""Numbers below this share of the mean are rounded to 0 or to it."""


def betting_interval(values: FloatArray, bound: float, level: float) -> tuple[float, float]:
    """A confidence interval for the mean of independent numbers in [0, bound]."""
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
    floor = max(mean, 1e-300)
    near, far = floor, bound
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
