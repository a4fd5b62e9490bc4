"""Intervals of every ReLU off tails of known mass, from one ball around the mean: where the searches start."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray
from reluscope.measure.sound.distance import tail
from reluscope.measure.sound.frame import REACH
from reluscope.measure.sound.linear import Bounds, Intervals, whole
from reluscope.measure.sound.relu_form import ReluForm, reduced

_STEPS = 12
_FEW_STEPS = 3
_MOST_PRODUCTS = 1 << 28
"""Products in one substitution of a layer's units above which few steps are taken, for the units that need them."""


def root(form: ReluForm, radius: float, gaussian: bool) -> tuple[ReluForm, Bounds, Intervals, float]:
    """Intervals of every ReLU at this radius, the form without what is off, and the tails paid."""
    bounds = Bounds(form)
    box: Intervals = []
    paid = 0.0
    for k in range(len(form.layers)):
        layer = form.layers[k]
        if k == 0:
            size = _row_sizes(layer.W)
            bounds.sizes.append(np.abs(layer.b) + layer.error + REACH * size)
            _, error = bounds.rounding(0)
            lower, upper, low_size, up_size = layer.b - error, layer.b + error, size, size
        else:
            lower, upper, low_size, up_size = _layer(bounds, k, box, radius)
            largest = np.maximum(np.abs(lower) + REACH * low_size, np.abs(upper) + REACH * up_size)
            bounds.sizes.append(np.where(np.isfinite(largest), largest, bounds.reads(k) + layer.error))
        own, dead = [], []
        for group in layer.groups:
            u = group.unit
            low, up = lower[u] - group.at, upper[u] - group.at
            reach = radius * (1 + 1e-10)
            ends = low - reach * low_size[u], up + reach * up_size[u]
            # After overflow a unit may be anything; an end that is no number would pass for off.
            ends = np.where(np.isnan(ends[0]), -np.inf, ends[0]), np.where(np.isnan(ends[1]), np.inf, ends[1])
            on, off = ends[0] >= 0, ends[1] <= 0
            wide = ~on & ~off
            with np.errstate(divide="ignore", invalid="ignore"):
                paid += float(tail((low / low_size[u] * (1 - 1e-12))[on & (low_size[u] > 0)], gaussian).sum())
                paid += float(tail((-up / up_size[u] * (1 - 1e-12))[off & ~on & (up_size[u] > 0)], gaussian).sum())
            paid += 2 * float(wide.sum()) * float(tail(radius, gaussian))
            own.append((np.where(on, np.maximum(ends[0], 0.0), ends[0])[None], np.where(off, 0.0, ends[1])[None]))
            dead.append(off)
        box.append(own)
        form, bounds, box = _without(form, bounds, box, k, dead)
    return form, bounds, box, paid


def _layer(bounds: Bounds, k: int, box: Intervals, radius: float) -> tuple[FloatArray, ...]:
    """Functions around the units of layer k that have ReLUs: constants below and above, sizes of coefficients.

    Infinite for units without one. In a large layer slopes are improved only for units whose sign is open without that.
    """
    layer, r = bounds.form.layers[k], bounds.form.n_inputs
    out = np.full(layer.width, -np.inf), np.full(layer.width, np.inf), *np.full((2, layer.width), np.inf)
    bent = np.unique(np.concatenate([np.zeros(0, np.intp), *(group.unit for group in layer.groups)]))
    part = whole(1, r, radius)

    def look_at(units: npt.NDArray[np.intp], steps: int) -> None:
        below, above = bounds.functions(k, units, box, part, steps)
        out[0][units], out[1][units] = below[1][0], -above[1][0]
        for size, (X, _) in zip(out[2:], (below, above), strict=True):
            size[units] = np.sqrt(np.einsum("tr,tr->t", X[0], X[0]))

    below_it = bounds.form.layers[:k]
    if len(bent) * sum(la.W.nnz if sparse.issparse(la.W) else la.W.size for la in below_it) < _MOST_PRODUCTS:
        look_at(bent, _STEPS)
        return out
    look_at(bent, 0)
    open_ = np.zeros(layer.width, bool)
    for group in layer.groups:
        u, reach = group.unit, radius * (1 + 1e-10)
        low, up = out[0][u] - group.at - reach * out[2][u], out[1][u] - group.at + reach * out[3][u]
        open_[u[(low < 0) & (up > 0)]] = True
    if open_.any():
        look_at(np.flatnonzero(open_), _FEW_STEPS)
    return out


def _without(
    form: ReluForm, bounds: Bounds, box: Intervals, k: int, dead: list[npt.NDArray[np.bool_]]
) -> tuple[ReluForm, Bounds, Intervals]:
    """The form, bounds and intervals without the ReLUs of layer k that are off, and units that are then zero."""
    layer = form.layers[k]
    keep = (layer.slope != 0) | (layer.intercept != 0)
    for group, off in zip(layer.groups, dead, strict=True):
        keep[group.unit[~off]] = True
    if not keep.any():
        keep[:1] = True
    small = reduced(form, k, keep, dead)
    kept = Bounds(small)
    kept.sizes = [size[keep] if j == k else size for j, size in enumerate(bounds.sizes)]
    own = [
        (low[:, s], up[:, s])
        for group, off, (low, up) in zip(layer.groups, dead, box[k], strict=True)
        for s in [keep[group.unit] & ~off]
    ]
    return small, kept, [*box[:k], own]


def _row_sizes(W: Any) -> FloatArray:
    return np.sqrt(np.asarray(W.multiply(W).sum(axis=1)).ravel()) if sparse.issparse(W) else np.linalg.norm(W, axis=1)
