"""The layers of a network as affine parts and ReLU units, with the rows of an event: what splitting units reads.

A piecewise-linear unit is `s h + i + sum over its breaks t of step * relu(h - t)`. Each such ReLU is bounded and
split on its own, so that every activation is served by what is known of ReLU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray
from reluscope.events import PlacedEvent
from reluscope.measure.sound.frame import REACH, Frame

_SMALL = 1 << 22
"""Entries up to which a sparse matrix is better dense."""

Index = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Relus:
    """One ReLU for each of some units of a layer: `step * relu(h[unit] - at)`."""

    unit: Index
    at: FloatArray
    step: FloatArray


@dataclass(frozen=True, eq=False)
class FormLayer:
    """`h = W z + b`; `z = slope * h + intercept` plus the ReLUs of every group (in a group no unit comes twice)."""

    W: Any
    b: FloatArray
    slope: FloatArray
    intercept: FloatArray
    groups: tuple[Relus, ...]
    error: FloatArray
    """What rounding has left unsure about h (first layer)."""
    jump: FloatArray
    """What is unsure about z because stored pieces meet only up to rounding."""

    @property
    def width(self) -> int:
        """Units of the layer."""
        return len(self.b)


@dataclass(frozen=True, eq=False)
class ReluForm:
    """The hidden layers, and rows `G z + g0 <= 0` on the last of them; case k has the rows `start[k]:start[k + 1]`."""

    layers: tuple[FormLayer, ...]
    G: Any
    g0: FloatArray
    g_error: FloatArray
    start: npt.NDArray[np.int64]

    @property
    def n_inputs(self) -> int:
        """Coordinates of the input."""
        return int(self.layers[0].W.shape[1])


def relu_form(frame: Frame, rows: PlacedEvent) -> ReluForm:
    """The network of a frame in ReLU form; a network without hidden layers gets one of identity units."""
    net = frame.network
    layers = []
    for index, layer in enumerate(net.hidden):
        units = layer.units
        groups, jump = [], np.zeros(layer.width)
        for m in range(units.breaks.shape[1]):
            live = np.flatnonzero(np.isfinite(units.breaks[:, m]))
            step = units.slopes[live, m + 1] - units.slopes[live, m]
            at = units.breaks[live, m]
            groups.append(Relus(live.astype(np.intp), at, step))
            terms = np.abs(units.intercepts[live, m + 1]) + np.abs(units.intercepts[live, m]) + np.abs(step * at)
            gap = np.abs(units.intercepts[live, m + 1] - (units.intercepts[live, m] - step * at))
            jump[live] += gap + 8 * EPS * terms
        error = frame.first_error if index == 0 else np.zeros(layer.width)
        layers.append(
            FormLayer(
                layer.weight, layer.bias, units.slopes[:, 0].copy(), units.intercepts[:, 0].copy(), tuple(groups),
                error, jump,
            )
        )  # fmt: skip
    last = net.layers[-1]
    if not layers:
        width = last.width
        flat = np.ones(width), np.zeros(width)
        layers.append(FormLayer(last.weight, last.bias, *flat, (), frame.first_error, np.zeros(width)))
        G: Any = rows.G
        g0, size = -rows.g, np.abs(rows.g)
    else:
        G = rows.G @ last.weight
        g0 = rows.G @ last.bias - rows.g
        size = np.abs(rows.G) @ np.abs(last.bias) + np.abs(rows.g)
    G = np.asarray(G.toarray() if sparse.issparse(G) else G, dtype=np.float64)
    # What the product G W rounds off is bounded with the sizes of the layer below, see `Bounds`.
    error = (last.width + 8) * EPS * size
    return ReluForm(tuple(layers), G, np.asarray(g0), error, rows.start)


def product(Q: FloatArray, W: Any) -> FloatArray:
    """`Q W` for a stack of dense rows and a dense or sparse matrix."""
    if sparse.issparse(W):
        flat = Q.reshape(-1, Q.shape[-1])
        return np.asarray((W.T @ flat.T).T, dtype=np.float64).reshape(*Q.shape[:-1], W.shape[1])
    return np.asarray(Q @ W)


def reduced(form: ReluForm, k: int, keep: npt.NDArray[np.bool_], off: list[npt.NDArray[np.bool_]]) -> ReluForm:
    """The form without what is known of layer k: its units outside `keep`, which are zero, and its ReLUs that are off.

    The input is given in fewer coordinates where the units left see fewer: a rotation, whose rounding is added to the
    first layer's error.
    """
    layers = list(form.layers)
    layer = layers[k]
    place = np.cumsum(keep) - 1
    groups = []
    for group, dead in zip(layer.groups, off, strict=True):
        stay = keep[group.unit] & ~dead
        groups.append(Relus(place[group.unit[stay]], group.at[stay], group.step[stay]))
    layers[k] = FormLayer(
        _light(layer.W[keep]), layer.b[keep], layer.slope[keep], layer.intercept[keep], tuple(groups),
        layer.error[keep], layer.jump[keep],
    )  # fmt: skip
    G = form.G
    if k + 1 < len(layers):
        layers[k + 1] = replace(layers[k + 1], W=_light(layers[k + 1].W[:, keep]))
    else:
        G = G[:, keep]
    if k == 0 and layers[0].width < form.n_inputs:
        layers[0] = _rotated(layers[0])
    return ReluForm(tuple(layers), G, form.g0, form.g_error, form.start)


def _light(W: Any) -> Any:
    """A sparse matrix as a dense one where that is small."""
    return W.toarray() if sparse.issparse(W) and W.shape[0] * W.shape[1] < _SMALL else W


def _rotated(layer: FormLayer) -> FormLayer:
    """The first layer in coordinates of its own row space: `A = R Q^T`, u' = Q^T u is standard normal again.

    With Q' the orthonormal matrix next to the computed Q, `A u = R Q'^T u` up to the residual of the factorisation
    and the distance between Q and Q', times the length of u.
    """
    A = np.asarray(layer.W.toarray() if sparse.issparse(layer.W) else layer.W)
    n, d = A.shape
    Q, R = np.linalg.qr(A.T)
    R = R.T.copy()
    size = np.linalg.norm(A, axis=1)
    skew = float(np.linalg.norm(Q.T @ Q - np.eye(Q.shape[1]))) + 4 * d * EPS * Q.shape[1]
    rest = np.linalg.norm(A - R @ Q.T, axis=1) + 4 * (d + n) * EPS * size
    error = layer.error + REACH * np.sqrt(d) * (rest + 2 * skew * size)
    return FormLayer(R, layer.b, layer.slope, layer.intercept, layer.groups, error, layer.jump)
