"""Integrals of products of affine functions over the intersection of two balls, in closed form.

Two balls of radii r, s whose centres are D apart meet in two caps. A cap `{|y| <= r, y.e >= h}` is rotationally
symmetric about e, so the integral of any quadratic needs four numbers, with k the volume of the unit ball of
dimension n - 1 and `I_a = int_h^r (r^2 - t^2)^a dt` an incomplete beta function:

    volume = k I_{(n-1)/2},     axial mean = k (r^2 - h^2)^{(n+1)/2} / (n + 1),
    across = k I_{(n+1)/2} / (n + 1)  (per direction),     axial square = r^2 volume - k I_{(n+1)/2}.
"""

from __future__ import annotations

import numpy as np

from reluscope._check import FloatArray
from reluscope._lazy import late


def gram(centres: FloatArray, slopes: FloatArray, values: FloatArray, radii: FloatArray) -> FloatArray:
    """`G_ij = int_{B_i n B_j} g_i g_j dx` with `g_i(x) = slopes_i . (x - centres_i) + values_i`, shape (N, N).

    Symmetric and positive semidefinite up to rounding: it is a Gram matrix. Cost: N^2 pairs.
    """
    i, j = np.triu_indices(len(centres))
    apart = centres[j] - centres[i]
    D = np.linalg.norm(apart, axis=1)
    meet = radii[i] + radii[j] > D
    i, j, apart, D = i[meet], j[meet], apart[meet], D[meet]
    axis = apart / np.where(D > 0, D, 1.0)[:, None]
    volume, first, second, across = lens_moments(radii[i], radii[j], D, centres.shape[1])
    p, q = slopes[i], slopes[j]
    pe, qe = (p * axis).sum(axis=1), (q * axis).sum(axis=1)
    a, c = values[i], values[j] - D * qe
    entry = pe * qe * second + ((p * q).sum(axis=1) - pe * qe) * across + (a * qe + c * pe) * first + a * c * volume
    G = np.zeros((len(centres), len(centres)))
    G[i, j] = entry
    G[j, i] = entry
    return G


def lens_moments(r: FloatArray, s: FloatArray, D: FloatArray, n: int) -> tuple[FloatArray, ...]:
    """Volume, axial first and second moment (from the first centre) and across moment of two balls' intersection."""
    inside_second, inside_first = D + r <= s, D + s <= r
    safe = np.where(D > 0, D, 1.0)
    h = np.where(inside_second | inside_first, 0.0, (D**2 + r**2 - s**2) / (2 * safe))
    first_cap = _cap(r, np.clip(h, -r, r), n)
    # The second ball's cap, seen from its own centre, looks the other way.
    V, m1, m2, T = _cap(s, np.clip(D - h, -s, s), n)
    second_cap = (V, D * V - m1, D**2 * V - 2 * D * m1 + m2, T)
    whole_first, whole = _cap(r, -r, n), _cap(s, -s, n)
    V, m1, m2, T = whole
    whole_second = (V, D * V - m1, D**2 * V - 2 * D * m1 + m2, T)
    return tuple(
        np.where(inside_second, wf, np.where(inside_first, ws, a + b))
        for a, b, wf, ws in zip(first_cap, second_cap, whole_first, whole_second, strict=True)
    )


def _cap(r: FloatArray, h: FloatArray, n: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Volume, axial first and second moments and across moment of `{|y| <= r, y.e >= h}`, from the ball's centre."""
    gammaln = late("scipy.special", "gammaln")

    unit = np.exp(0.5 * (n - 1) * np.log(np.pi) - gammaln(0.5 * (n - 1) + 1))
    low, high = _power_integral(r, h, 0.5 * (n - 1)), _power_integral(r, h, 0.5 * (n + 1))
    volume = unit * low
    first = unit * np.maximum(r**2 - h**2, 0.0) ** (0.5 * (n + 1)) / (n + 1)
    return volume, first, r**2 * volume - unit * high, unit * high / (n + 1)


def _power_integral(r: FloatArray, h: FloatArray, a: float) -> FloatArray:
    """`int_h^r (r^2 - t^2)^a dt`."""
    beta, betainc = late("scipy.special", "beta", "betainc")

    u = h / r
    tail = betainc(a + 1, 0.5, np.clip(1 - u**2, 0.0, 1.0))
    share = np.where(u >= 0, 0.5 * tail, 1 - 0.5 * tail)
    return np.asarray(r ** (2 * a + 1) * beta(a + 1, 0.5) * share)
