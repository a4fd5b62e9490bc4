"""The weight of points inside an event, bounded; `reluscope.events` decides each point."""

from __future__ import annotations

from reluscope._check import FloatArray
from reluscope.events import Event, decided
from reluscope.network import Network


def point_masses(net: Network, event: Event, points: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Bounds of the total weight of the points inside the event."""
    surely, maybe = decided(net, event, points)
    slack = 1e-15 * (len(points) + 8)
    low = 1.0 if surely.all() else float(weights[surely].sum()) * (1 - slack)
    high = float(weights[maybe].sum()) * (1 + slack)
    return low, min(1.0, max(low, high))
