"""Alignment: a recovered network beside a known one, up to what queries cannot tell.

Hidden units may come in another order and scaled by any positive number (the next layer's weights divided by it). After
units are matched and scaled, parameters can be compared, and their differences bound the difference of the outputs:
with `|z| <= r` from interval arithmetic on the box,

    |dz_l| <= |W_l| |dz_{l-1}| + |dW_l| r_{l-1} + |db_l|,

since a ReLU never enlarges a difference. The bound is sound for the real-valued networks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.network import Network


@dataclass(frozen=True, eq=False)
class Alignment:
    """How well a recovered network's parameters match a known one's.

    `order[l][i]` is the recovered unit that plays unit i of hidden layer l, -1 where there is none. `parameter_error`
    is the largest difference of a weight or bias after alignment (None when shapes differ or a unit is missing),
    `bound` a sound bound on the largest output difference on the box from it (None likewise), `missing` the units
    without a match.

    Attributes
    ----------
    order : tuple of arrays
    parameter_error, bound : float or None
    missing : tuple of int
        How many, by hidden layer.
    note : str
    """

    order: tuple[npt.NDArray[np.intp], ...]
    parameter_error: float | None
    bound: float | None
    missing: tuple[int, ...]
    note: str


def align(known: Network, found: Network, box: tuple[FloatArray, FloatArray], max_distance: float = 1e-3) -> Alignment:
    """Match the units of `found` to those of `known`, layer by layer."""
    linear_sum_assignment = late("scipy.optimize", "linear_sum_assignment")

    missing = tuple(a.width for a in known.hidden)
    if len(known.layers) != len(found.layers):
        text = f"depths differ: {len(known.hidden)} hidden layers and {len(found.hidden)}"
        return Alignment((), None, None, missing, text)
    kinds = [(a.units.describe(), b.units.describe()) for a, b in zip(known.hidden, found.hidden, strict=True)]
    if any(a != b or not a.startswith(("relu", "leaky_relu")) or " x " in a for a, b in kinds):
        text = "a layer holds units other than ReLU, or not the same; parameters are not compared"
        return Alignment((), None, None, missing, text)
    orders: list[npt.NDArray[np.intp]] = []
    lost: list[int] = []
    scale, order = np.ones(found.n_inputs), np.arange(found.n_inputs)
    layers: list[tuple[FloatArray, FloatArray]] = []
    for a, b in zip(known.hidden, found.hidden, strict=True):
        # The found layer in the known one's input coordinates; columns of missing inputs are 0.
        moved = np.zeros((b.width, a.n_inputs))
        here = order >= 0
        moved[:, here] = b.dense()[:, order[here]] * scale[here]
        rows_a, rows_b = np.column_stack([a.dense(), a.bias]), np.column_stack([moved, b.bias])
        norm_a, norm_b = np.linalg.norm(rows_a, axis=1), np.linalg.norm(rows_b, axis=1)
        unit_a = rows_a / np.maximum(norm_a, 1e-300)[:, None]
        unit_b = rows_b / np.maximum(norm_b, 1e-300)[:, None]
        apart = np.linalg.norm(unit_a[:, None] - unit_b[None], axis=2)
        # Beyond the largest distance all misses cost the same: no good match is given up to make a bad one less bad.
        one, two = linear_sum_assignment(np.minimum(apart, 2 * max_distance))
        good = np.linalg.norm(unit_a[one] - unit_b[two], axis=1) < max_distance
        order, scale = np.full(a.width, -1, dtype=np.intp), np.ones(a.width)
        order[one[good]] = two[good]
        ratio = (rows_a[one] * rows_b[two]).sum(axis=1) / np.maximum((rows_b[two] ** 2).sum(axis=1), 1e-300)
        fitted = np.where(order >= 0, 1.0, 0.0)
        lookup = dict(zip(one.tolist(), ratio.tolist(), strict=True))
        grow = np.array([lookup.get(i, 1.0) if fitted[i] else 1.0 for i in range(a.width)])
        scale = 1.0 / grow  # z_known = grow * z_found, so the next weights are divided by it
        layers.append((grow[:, None] * rows_b[np.maximum(order, 0), :-1], grow * rows_b[np.maximum(order, 0), -1]))
        orders.append(order)
        lost.append(int((order < 0).sum()))
    if any(lost) or any(a.width != b.width for a, b in zip(known.hidden, found.hidden, strict=True)):
        text = "not every unit has a match (dead, always on, or not recovered); parameters are not compared"
        return Alignment(tuple(orders), None, None, tuple(lost), text)
    layers.append((found.layers[-1].dense()[:, order] * scale, found.layers[-1].bias))
    error = max(
        float(max(np.abs(W - layer.dense()).max(), np.abs(b - layer.bias).max()))
        for (W, b), layer in zip(layers, known.layers, strict=True)
    )
    return Alignment(tuple(orders), error, _bound(known, layers, box), tuple(lost), "all units matched")


def _bound(known: Network, layers: list[tuple[FloatArray, FloatArray]], box: tuple[FloatArray, FloatArray]) -> float:
    """Largest output difference that the parameter differences allow on the box."""
    low, high = box
    away = np.zeros(known.n_inputs)
    for k, (layer, (V, c)) in enumerate(zip(known.layers, layers, strict=True)):
        W, size = layer.dense(), np.maximum(np.abs(low), np.abs(high))
        # The found network's inputs lie within `away` of these intervals.
        away = np.abs(W) @ away + np.abs(V - W) @ (size + away) + np.abs(c - layer.bias)
        up, down = np.maximum(W, 0), np.minimum(W, 0)
        low, high = up @ low + down @ high + layer.bias, up @ high + down @ low + layer.bias
        if k < len(layers) - 1:  # units that rise with a slope of at most 1
            low, high = layer.units(low), layer.units(high)
    return float(away.max())
