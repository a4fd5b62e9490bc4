"""Events at points, decided: float arithmetic with an error bound, exact fractions where that cannot tell."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from reluscope._check import FloatArray
from reluscope.events import Event
from reluscope.network import Network

_MOST_EXACT = 2000
"""Points that are worked out in fractions before the rest is left undecided."""


def point_masses(net: Network, event: Event, points: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Bounds of the total weight of the points inside the event."""
    size = np.abs(points)
    for layer in net.layers:
        size = size @ np.abs(layer.dense()).T + np.abs(layer.bias)
        slopes = np.abs(layer.units.slopes).max(axis=1)
        size = size * slopes + np.abs(layer.units.intercepts).max(axis=1)
    error = 2.3e-16 * (sum(net.widths) + 4 * len(net.layers) + net.n_inputs + 8) * size
    y = net(points)
    surely = np.zeros(len(points), bool)
    maybe = np.zeros(len(points), bool)
    for case in event.cases:
        box = ((points >= case.lower) & (points <= case.upper)).all(axis=1)
        A = np.asarray(case.A)
        value = y @ case.G.T + points @ A.T - case.g
        terms = np.abs(points) @ np.abs(A).T + (np.abs(y) + error) @ np.abs(case.G).T + np.abs(case.g)
        doubt = error @ np.abs(case.G).T + 2.3e-16 * (net.n_inputs + net.n_outputs + 8) * terms
        surely |= box & (value < -doubt).all(axis=1)
        maybe |= box & (value <= doubt).all(axis=1)
    open_ = np.flatnonzero(maybe & ~surely)
    for i in open_[:_MOST_EXACT]:
        surely[i] = maybe[i] = _inside(net, event, points[i])
    slack = 1e-15 * (len(points) + 8)
    low = float(weights[surely].sum()) * (1 - slack)
    high = float(weights[maybe].sum()) * (1 + slack)
    if surely.all():
        low = 1.0
    return low, min(1.0, high)


def _inside(net: Network, event: Event, point: FloatArray) -> bool:
    """Whether a point lies in the event, in exact arithmetic."""
    x = [Fraction(float(v)) for v in point]
    z = x
    for layer in net.layers:
        h = [
            sum((Fraction(float(w)) * v for w, v in zip(row, z, strict=True) if w and v), Fraction(float(b)))
            for row, b in zip(layer.dense(), layer.bias, strict=True)
        ]
        z = []
        for v, kind in zip(h, layer.units.kind, strict=True):
            act = layer.units.kinds[kind]
            piece = sum(v > Fraction(t) for t in act.breaks)
            z.append(Fraction(act.slopes[piece]) * v + Fraction(act.intercepts[piece]))
    for case in event.cases:
        if not ((point >= case.lower) & (point <= case.upper)).all():
            continue
        for a, gains, bound, strict in zip(np.asarray(case.A), case.G, case.g, case.strict, strict=True):
            value = sum((Fraction(float(c)) * v for c, v in zip(a, x, strict=True) if c), -Fraction(float(bound)))
            value += sum((Fraction(float(c)) * v for c, v in zip(gains, z, strict=True) if c), Fraction(0))
            if value > 0 or (strict and value == 0):
                break
        else:
            return True
    return False
