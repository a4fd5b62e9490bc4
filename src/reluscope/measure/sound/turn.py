"""Normal coordinates turned so that boxes may be long where the network bends little.

What a box leaves undecided comes from the units that change sign in it: it grows with how far the box moves them. A
normal law looks the same in every orthonormal basis, so the basis is free. One is chosen in which few directions move
the units that matter: then the others need not be split.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from reluscope._check import EPS, FloatArray
from reluscope.events import PlacedEvent
from reluscope.measure.sound.frame import REACH, Frame
from reluscope.measure.sound.relu_form import ReluForm, product, relu_form
from reluscope.network import Network

_MOST = 24
"""Coordinates up to which better ones are looked for: with more of them boxes decide little in any."""

_POINTS = 512
_NUMBERS = 1 << 22
"""Numbers in the largest array of derivatives."""

_VECTORS = 4000
"""Units at points, by their weight, for which a basis is made."""

_STEPS = 3
_SWEEPS = 3
_ANGLES = 16
_NEAR = 0.3
"""Units and rows count that are within so many of their deviations of a change of sign."""

_WORTH = 0.95
"""The coordinates stay as they are unless boxes get fewer by this factor."""


def turned(frame: Frame, rows: PlacedEvent) -> Frame:
    """The same component in better coordinates, if it is a whole normal law and there are any."""
    whole = bool((frame.lower == -REACH).all() and (frame.upper == REACH).all())
    if not (frame.gaussian and whole and 1 < frame.d <= _MOST and frame.free == 0 and frame.network.hidden):
        return frame
    with np.errstate(all="ignore"):
        Q = _basis(relu_form(frame, rows), rows)
    return frame if Q is None or not np.isfinite(Q).all() else _in_basis(frame, Q)


def _in_basis(frame: Frame, Q: FloatArray) -> Frame:
    """The frame in coordinates v with u = Q v.

    With Q' the orthonormal matrix next to Q, `W u = W Q' v` exactly. The stored `W Q` misses `W Q'` by rounding and by
    the distance of Q from Q', times the length of v.
    """
    first = frame.network.layers[0]
    W, d = first.dense(), frame.d
    size = np.linalg.norm(W, axis=1)
    skew = float(np.linalg.norm(Q.T @ Q - np.eye(d))) + 4 * d * d * EPS
    error = REACH * math.sqrt(d) * (2 * skew + 4 * (d + 4) * math.sqrt(d) * EPS) * size
    layers = [(W @ Q, first.bias, first.units)]
    layers += [(la.weight, la.bias, la.units) for la in frame.network.layers[1:-1]]
    last = frame.network.layers[-1]
    network = Network([*layers, (last.weight, last.bias)])
    return replace(frame, network=network, first_error=frame.first_error + error * (1 + 1e-9))


def _basis(form: ReluForm, rows: PlacedEvent) -> FloatArray | None:
    """A basis in which the product over directions of how far they move units is small; None: leave it as it is."""
    if not any(layer.groups for layer in form.layers):
        return None  # no ReLU, nothing bends
    vectors, weights = _bends(form, rows)
    if not len(vectors):
        return None
    d = form.n_inputs
    V = np.linalg.eigh(
        (vectors * (weights / np.maximum(np.linalg.norm(vectors, axis=1), 1e-300))[:, None]).T @ vectors
    )[1]
    best, least = None, _logs(vectors, weights, np.eye(d)) + math.log(_WORTH)
    for start in (np.eye(d), V):
        Q = _sharpened(vectors, weights, start)
        if (logs := _logs(vectors, weights, Q)) < least:
            best, least = Q, logs
    return best


def _logs(vectors: FloatArray, weights: FloatArray, Q: FloatArray) -> float:
    moves = weights @ np.abs(vectors @ Q)
    return float(np.log(np.maximum(moves, 1e-9 * moves.max())).sum())


def _sharpened(vectors: FloatArray, weights: FloatArray, Q: FloatArray) -> FloatArray:
    """Pairs of directions turned in their plane while that makes the product smaller."""
    d = Q.shape[1]
    X = vectors @ Q
    angles = np.linspace(0.0, 0.5 * np.pi, _ANGLES, endpoint=False)
    c, s = np.cos(angles), np.sin(angles)
    Q = Q.copy()
    for _ in range(_SWEEPS):
        before = Q.copy()
        floor = 1e-9 * (weights @ np.abs(X)).max()
        for i in range(d):
            for j in range(i + 1, d):
                a, b = X[:, i, None], X[:, j, None]
                product_ = np.maximum(weights @ np.abs(a * c + b * s), floor)
                product_ *= np.maximum(weights @ np.abs(b * c - a * s), floor)
                k = int(product_.argmin())
                if product_[k] < (1 - 1e-9) * product_[0]:
                    turn = np.array([[c[k], -s[k]], [s[k], c[k]]])
                    Q[:, [i, j]] = Q[:, [i, j]] @ turn
                    X[:, [i, j]] = X[:, [i, j]] @ turn
        if np.array_equal(before, Q):
            break
    return np.asarray(np.linalg.qr(Q)[0])


def _bends(form: ReluForm, rows: PlacedEvent) -> tuple[FloatArray, FloatArray]:
    """Derivatives of ReLUs near their break, near the boundary of the event, and how much each bends its row."""
    r = form.n_inputs
    width = max(layer.width for layer in form.layers)
    count = max(16, min(_POINTS, _NUMBERS // (width * r)))
    x = np.random.default_rng(0).standard_normal((count, r))
    moved = np.zeros(count)
    for step in range(_STEPS):  # towards the boundary
        value, gradient, bends = _derivatives(form, rows, x, step == _STEPS - 1)
        if step == _STEPS - 1:
            break
        size = np.maximum(np.linalg.norm(gradient, axis=1), 1e-300)
        go = np.clip(value / size, -8.0, 8.0)
        x = x - (go / size)[:, None] * gradient
        moved += np.abs(go)
    likely = np.exp(-0.5 * np.maximum(moved**2 - np.quantile(moved, 0.1) ** 2, 0.0))
    at = np.abs(value) / np.maximum(np.linalg.norm(gradient, axis=1), 1e-300)
    likely *= np.exp(-0.5 * (at / _NEAR) ** 2) + 1e-6
    vectors = np.concatenate([v.reshape(-1, r) for v, _ in bends])
    weights = np.concatenate([(w * likely[:, None]).ravel() for _, w in bends])
    keep = np.argsort(-weights, kind="stable")[:_VECTORS]
    keep = keep[weights[keep] > 0]
    return vectors[keep], weights[keep] / max(float(weights.max(initial=0.0)), 1e-300)


def _derivatives(
    form: ReluForm, rows: PlacedEvent, x: FloatArray, all_: bool
) -> tuple[FloatArray, FloatArray, list[tuple[FloatArray, FloatArray]]]:
    """The event's row that decides at each point: its value and gradient; of all ReLUs: gradients and bends."""
    z, slopes, states = x, [], []
    for layer in form.layers:
        h = product(z, layer.W.T) + layer.b
        z, slope = h * layer.slope + layer.intercept, np.broadcast_to(layer.slope, h.shape).copy()
        for group in layer.groups:
            on = h[:, group.unit] > group.at
            z[:, group.unit] += group.step * np.where(on, h[:, group.unit] - group.at, 0.0)
            slope[:, group.unit] += group.step * on
        slopes.append(slope)
        states.append(h)
    values = z @ form.G.T + form.g0
    worst, row = np.full(len(x), np.inf), np.zeros(len(x), np.intp)
    for case in range(rows.n_cases):
        mine = np.arange(rows.start[case], rows.start[case + 1])
        pick = mine[values[:, mine].argmax(axis=1)]
        own = values[np.arange(len(x)), pick]
        row, worst = np.where(own < worst, pick, row), np.minimum(own, worst)
    g = form.G[row]
    found: list[FloatArray] = []
    for layer, slope in zip(form.layers[::-1], slopes[::-1], strict=True):
        found.append(g)
        g = product(g * slope, layer.W)
    bends = []
    if all_:
        J = np.broadcast_to(np.eye(form.n_inputs), (len(x), form.n_inputs, form.n_inputs))
        for layer, slope, h, back in zip(form.layers, slopes, states, found[::-1], strict=True):
            J = np.swapaxes(product(np.swapaxes(J, 1, 2), layer.W.T), 1, 2)
            size = np.maximum(np.linalg.norm(J, axis=2), 1e-300)
            for group in layer.groups:
                u = group.unit
                near = np.exp(-0.5 * ((h[:, u] - group.at) / (_NEAR * size[:, u])) ** 2)
                bends.append((J[:, u], np.abs(back[:, u] * group.step) * near))
            J = J * slope[:, :, None]
    return worst, g, bends
