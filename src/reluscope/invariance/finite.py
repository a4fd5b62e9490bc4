"""Finite support: particles go through any layer as points."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._check import describe, integer
from reluscope.errors import InputError
from reluscope.inputs import Particles, check_law
from reluscope.network import Network, check_network


def push(law: Particles, net: Network, *, layer: int | None = None, merge: bool = True) -> Particles:
    """The law of the units of hidden layer `layer` (counted from 1; the output when None) for inputs from `law`.

    Exact: each point is mapped, weights stay; points that meet (bit for bit) are joined when `merge`. The number of
    points never grows. Cost: one forward pass.
    """
    if check_law(law).atoms is None:
        raise InputError(f"law must be Particles, got {describe(law)}")
    check_network(net)
    if layer is None:
        values = net(law.points)
    else:
        k = integer(layer, "layer", low=1, high=len(net.layers))
        values = net.preactivations(law.points)[k - 1]
        values = net.layers[k - 1].units(values)
    return _joined(values, law.weights) if merge else Particles(values, law.weights)


def _joined(points: Any, weights: Any) -> Particles:
    same, index = np.unique(points + 0.0, axis=0, return_inverse=True)  # + 0.0 joins -0 and 0
    return Particles(same, np.bincount(index.ravel(), weights=weights, minlength=len(same)))
