"""Bounds on what a network does: on the pre-activations over a box, and on its outputs over a box.

For every layer, linear bounds `a . x + c` on each pre-activation are carried back to the input through the chords of
the units below (of the convex hull of each unit's graph over its own interval) and maximised over the box. Rounding is
inside: next to each row travels a bound on the rounding error of all its products, from
`|fl(a . b) - a . b| <= γ_n |a| . |b|`. So a bound holds for the real-valued network with the stored weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray
from reluscope.activations import Units
from reluscope.network import Layer, Network
from reluscope.threads import blas_threads

_WIDEST_FOR_LINEAR_BOUNDS = 1500


@dataclass(frozen=True, eq=False)
class LayerBounds:
    """`lower <= h <= upper` for the pre-activations of one layer all over a box, rounding included; shape (units,).

    Attributes
    ----------
    lower, upper : (units,) arrays
    """

    lower: FloatArray
    upper: FloatArray


def box_preactivations(net: Network, lower: FloatArray, upper: FloatArray) -> list[LayerBounds]:
    """Sound bounds on the pre-activations of every hidden layer over a box."""
    found: list[LayerBounds] = []
    lines: list[_Lines] = []
    low, high = lower, upper
    with blas_threads(max(net.widths)):
        for k, layer in enumerate(net.hidden):
            bound = _interval(layer, low, high)
            wide = max(net.widths[: k + 2]) > _WIDEST_FOR_LINEAR_BOUNDS
            if k and not wide:
                bound = _backward(net, k, lines, found, bound, lower, upper)
            found.append(bound)
            lines.append(_hull_lines(layer.units, bound))
            low, high = _unit_range(layer.units, bound)
    return found


def box_outputs(net: Network, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sound bounds on the outputs over a box by interval arithmetic: fast and loose."""
    low, high = lower, upper
    for layer in net.layers:
        low, high = _unit_range(layer.units, _interval(layer, low, high))
    return low, high


@dataclass(frozen=True, eq=False)
class _Lines:
    """`low_slope h + low_shift <= act(h) <= high_slope h + high_shift` on the unit's interval."""

    low_slope: FloatArray
    low_shift: FloatArray
    high_slope: FloatArray
    high_shift: FloatArray


def _interval(layer: Layer, low: FloatArray, high: FloatArray) -> LayerBounds:
    """Interval arithmetic through one affine map."""
    middle, radius = 0.5 * (low + high), 0.5 * (high - low)
    size = abs(layer.weight)
    centre = layer.weight @ middle + layer.bias
    spread = size @ radius
    error = _gamma(layer.n_inputs + 3) * (size @ (np.abs(middle) + radius) + np.abs(layer.bias))
    return LayerBounds(centre - spread - error, centre + spread + error)


def _backward(
    net: Network,
    k: int,
    lines: list[_Lines],
    known: list[LayerBounds],
    first: LayerBounds,
    lower: FloatArray,
    upper: FloatArray,
) -> LayerBounds:
    """Tighten the bounds of hidden layer k by carrying linear bounds back to the box."""
    layer = net.layers[k]
    open_ = np.flatnonzero(_breaks_inside(layer.units, first))
    if not len(open_):
        return first
    rows = layer.weight[open_]
    rows = rows.toarray() if sparse.issparse(rows) else rows
    A = np.vstack([rows, -rows])  # the upper bounds of h and of -h
    c = np.concatenate([layer.bias[open_], -layer.bias[open_]])
    error = np.zeros(len(c))
    for j in range(k - 1, -1, -1):
        below, line, bound = net.layers[j], lines[j], known[j]
        up = A > 0
        reach = np.maximum(np.abs(bound.lower), np.abs(bound.upper))
        shift = np.where(up, line.high_shift, line.low_shift)
        B = A * np.where(up, line.high_slope, line.low_slope)
        size = np.abs(B)
        g = _gamma(below.width + 4)
        error += g * (np.abs(A * shift).sum(axis=1) + size @ (np.abs(below.bias) + reach) + np.abs(c))
        c = c + (A * shift).sum(axis=1) + B @ below.bias
        if j:
            z_low, z_high = _unit_range(net.layers[j - 1].units, known[j - 1])
        else:
            z_low, z_high = lower, upper
        z_reach = np.maximum(np.abs(z_low), np.abs(z_high))
        error += _gamma(below.width + 2) * (size @ (abs(below.weight) @ z_reach))
        A = (below.weight.T @ B.T).T if sparse.issparse(below.weight) else B @ below.weight
    reach = np.maximum(np.abs(lower), np.abs(upper))
    error += _gamma(len(lower) + 3) * (np.abs(A) @ reach + np.abs(c))
    top = c + np.where(A > 0, A * upper, A * lower).sum(axis=1) + 2 * error  # twice: the error itself was rounded
    n = len(open_)
    low, high = first.lower.copy(), first.upper.copy()
    high[open_] = np.minimum(high[open_], top[:n])
    low[open_] = np.maximum(low[open_], -top[n:])
    return LayerBounds(low, high)


def _breaks_inside(units: Units, bound: LayerBounds) -> npt.NDArray[np.bool_]:
    inside = (units.breaks >= bound.lower[:, None]) & (units.breaks < bound.upper[:, None])
    return np.asarray(inside.any(axis=1))


def _hull_lines(units: Units, bound: LayerBounds) -> _Lines:
    """Lines above and below each unit's graph on its interval; tight when the unit stays on one piece."""
    rows = np.arange(len(units))
    low_piece, high_piece = units.pattern(bound.lower), units.pattern(bound.upper)
    left_slope, left_shift = units.slopes[rows, low_piece], units.intercepts[rows, low_piece]
    one = low_piece == high_piece
    low_slope, low_shift = left_slope.copy(), left_shift.copy()
    high_slope, high_shift = left_slope.copy(), left_shift.copy()
    bent = np.flatnonzero(~one)
    if len(bent):
        least, most = _unit_range(units, bound)
        low_slope[bent], high_slope[bent] = 0.0, 0.0
        low_shift[bent], high_shift[bent] = least[bent], most[bent]
        kink = bent[(high_piece[bent] - low_piece[bent]) == 1]
        right_slope, right_shift = units.slopes[rows, high_piece], units.intercepts[rows, high_piece]
        width = bound.upper - bound.lower
        kink = kink[np.isfinite(width[kink])]
        if len(kink):
            a, b = bound.lower[kink], bound.upper[kink]
            fa = left_slope[kink] * a + left_shift[kink]
            fb = right_slope[kink] * b + right_shift[kink]
            chord = (fb - fa) / width[kink]
            slack = 16 * EPS * (np.abs(fa) + np.abs(fb) + np.abs(chord) * (np.abs(a) + np.abs(b)))
            at = fa - chord * a
            # The tangent of the side that takes more of the interval makes the thinner strip.
            t = units.breaks[kink, low_piece[kink]]
            right = (b - t) >= (t - a)
            tangent = np.where(right, right_slope[kink], left_slope[kink])
            tangent_at = np.where(right, right_shift[kink], left_shift[kink])
            convex = right_slope[kink] >= left_slope[kink]
            low_slope[kink], low_shift[kink] = (
                np.where(convex, tangent, chord),
                np.where(convex, tangent_at, at - slack),
            )
            high_slope[kink], high_shift[kink] = (
                np.where(convex, chord, tangent),
                np.where(convex, at + slack, tangent_at),
            )
    return _Lines(low_slope, low_shift, high_slope, high_shift)


def _unit_range(units: Units, bound: LayerBounds) -> tuple[FloatArray, FloatArray]:
    """Least and largest value of each unit on its interval: at an end, or at a break point inside."""
    if units.is_identity:
        return bound.lower, bound.upper
    values = [units(bound.lower), units(bound.upper)]
    for k in range(units.breaks.shape[1]):
        at = np.clip(units.breaks[:, k], bound.lower, bound.upper)
        values.append(units(at))
    stack = np.stack(values)
    least, most = stack.min(axis=0), stack.max(axis=0)
    if units.is_relu:
        return least, most
    slack = 4 * EPS * np.abs(stack).max(axis=0)
    return least - slack, most + slack


def _gamma(n: int) -> float:
    """`n u / (1 - n u)`, u = 2^-53: the relative error of n roundings in any order."""
    return n * EPS / 2 / (1 - n * EPS / 2)
