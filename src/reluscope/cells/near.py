"""Two networks of one architecture whose weights nearly agree: bounds on how far apart their outputs are on a box.

With `dW`, `db` the differences of the weights, `|z| <= r` from interval arithmetic for the first network, and units
that stretch no difference by more than their steepest slope `s`,

    |dz_l| <= s (|W_l| |dz_{l-1}| + |dW_l| (r_{l-1} + |dz_{l-1}|) + |db_l|),

and 0 where both units stay on a flat piece. Where that does not decide on the whole box, the box is halved along the
input that moves the first layer most, and so on: parts on which the bound decides are done, and the search ends at the
first point that shows a larger difference than is allowed.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from reluscope._check import FloatArray
from reluscope.network import Network
from reluscope.threads import OutOfTimeError, look

_NEAR = 1e-6
"""Weights that agree to this share of the largest of their layer nearly agree: float32 keeps 6e-8."""
_INFLATED = 1.0 + 1e-9
"""More than all rounding of the sums of one bound, relatively."""
_WORK = 1 << 31
"""Multiplications that halving the box may take."""
_MOST_BOXES = 1 << 16
"""Parts of the box that are looked at together: more would take memory, and decide little."""
_TRIED = 1024
"""Points where a witness is looked for before any bound."""


class Apart(NamedTuple):
    """An upper bound of the largest difference on a box, and the point with the largest one seen."""

    bound: float
    witness: FloatArray


def nearly_agree(net: Network, other: Network) -> bool:
    """Whether two networks have the same units, and weights that agree to about single precision."""
    if net.widths != other.widths:
        return False
    for a, b in zip(net.layers, other.layers, strict=True):
        if not (np.array_equal(a.units.slopes, b.units.slopes) and np.array_equal(a.units.breaks, b.units.breaks)):
            return False
        if not np.array_equal(a.units.intercepts, b.units.intercepts):
            return False
        size = max(float(abs(a.weight).max()), float(np.abs(a.bias).max()))
        apart = max(float(abs(a.weight - b.weight).max()), float(np.abs(a.bias - b.bias).max()))
        if apart > _NEAR * size:
            return False
    return True


def bound_difference(
    net: Network, other: Network, box: tuple[FloatArray, FloatArray], allowed: float, rounding: float
) -> Apart:
    """Bound `max |net - other|` on the box, until the bound is at most `allowed` or a difference is above it."""
    lower, upper = box
    draws = np.random.default_rng(20261117).uniform(size=(_TRIED, len(lower)))
    draws[::2] = np.round(draws[::2])
    worst, witness = _worst(net, other, lower + draws * (upper - lower))
    low, high = lower[None], upper[None]
    bounds = _bounds(net, other, low, high)
    done = 0.0
    cost = 3 * sum(layer.width * layer.n_inputs for layer in net.layers)
    work = 0
    pull = np.abs(net.layers[0].dense()).max(axis=0)
    while worst - rounding <= allowed and (bounds > allowed).any():
        try:
            look()
        except OutOfTimeError:
            break
        open_ = bounds > allowed
        done = max(done, float(bounds[~open_].max(initial=0.0)))
        low, high, bounds = low[open_], high[open_], bounds[open_]
        work += 2 * len(low) * cost
        if work > _WORK or len(low) > _MOST_BOXES:
            break
        side = ((high - low) * pull).argmax(axis=1)
        here = np.arange(len(low))
        middle = 0.5 * (low[here, side] + high[here, side])
        left, right = high.copy(), low.copy()
        left[here, side], right[here, side] = middle, middle
        low, high = np.concatenate([low, right]), np.concatenate([left, high])
        bounds = np.minimum(_bounds(net, other, low, high), np.tile(bounds, 2))
        seen, point = _worst(net, other, 0.5 * (low + high))
        if seen > worst:
            worst, witness = seen, point
    return Apart(max(done, float(bounds.max(initial=0.0))), witness)


def _worst(net: Network, other: Network, X: FloatArray) -> tuple[float, FloatArray]:
    size = np.abs(net(X) - other(X)).max(axis=1)
    i = int(size.argmax())
    return float(size[i]), X[i]


def _bounds(net: Network, other: Network, low: FloatArray, high: FloatArray) -> FloatArray:
    """The bound of the module's text on each of some boxes, (n, inputs) each."""
    away = np.zeros(low.shape)
    for a, b in zip(net.layers, other.layers, strict=True):
        size = np.maximum(np.abs(low), np.abs(high))
        W, dW, db = abs(a.weight), abs(a.weight - b.weight), np.abs(a.bias - b.bias)
        away = _INFLATED * ((W @ away.T + dW @ (size + away).T).T + db)
        middle, radius = 0.5 * (low + high), 0.5 * (high - low)
        centre = (a.weight @ middle.T).T + a.bias
        spread = (W @ radius.T).T * _INFLATED + 1e-12 * ((W @ size.T).T + np.abs(a.bias))
        low, high = centre - spread, centre + spread
        slopes, breaks = a.units.slopes, a.units.breaks
        steepest = np.abs(slopes).max(axis=1)
        # Below all break points in both networks: the slope of the first piece holds.
        below = high + away < breaks.min(axis=1, initial=inf)
        away = away * np.where(below, np.abs(slopes[:, 0]), steepest)
        # The range of a unit on its interval: at the ends, and at the break points in between.
        inside = [np.clip(breaks[:, k], low, high) for k in range(breaks.shape[1])]
        values = np.stack([a.units(h) for h in (low, high, *inside)])
        low, high = values.min(axis=0), values.max(axis=0)
    out: FloatArray = away.max(axis=1)
    return out
