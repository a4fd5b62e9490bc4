"""A smooth curve through points: local straight lines."""

from __future__ import annotations

import numpy as np

from reluscope._check import FloatArray, integer, real


def local_line(x: FloatArray, y: FloatArray, fraction: float, points: int) -> tuple[FloatArray, FloatArray]:
    """Local linear regression with tricube weights `(1 - |u|³)³` on the nearest `fraction` of the points.

    Evaluated at quantiles of `x`; cost `points * fraction * n` after one sort.
    """
    fraction = real(fraction, "fraction", low=0.0, high=1.0, open_=False)
    points = integer(points, "points", low=2)
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    n = len(x)
    k = min(n, max(2, int(np.ceil(fraction * n))))
    grid = np.unique(np.quantile(x, np.linspace(0, 1, points)))
    out = np.empty(len(grid))
    for i, g in enumerate(grid.tolist()):  # as many as points of the curve, not of the data
        start = min(max(int(np.searchsorted(x, g)) - k // 2, 0), n - k)
        while start + k < n and g - x[start] > x[start + k] - g:
            start += 1
        while start > 0 and x[start + k - 1] - g > g - x[start - 1]:
            start -= 1
        t = x[start : start + k] - g
        reach = np.abs(t).max()
        w = (1 - (np.abs(t) / reach) ** 3) ** 3 + 1e-12 if reach > 0 else np.ones(k)
        mean_t, mean_y = w @ t / w.sum(), w @ y[start : start + k] / w.sum()
        spread = w @ (t - mean_t) ** 2
        slope = w @ ((t - mean_t) * (y[start : start + k] - mean_y)) / spread if spread > 0 else 0.0
        out[i] = mean_y - slope * mean_t
    return grid, out
