"""Finite support: particles go through any layer as points."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._check import describe, flag, integer
from reluscope.errors import InputError
from reluscope.inputs import Particles, check_law
from reluscope.network import Network, check_network


def push(law: Particles, net: Network, *, layer: int | None = None, merge: bool = True) -> Particles:
    """The law of a layer's units, or of the output, for inputs from a law with finite support.

    Parameters
    ----------
    law : Particles
    net : Network
    layer : int, optional
        Layer whose units are looked at, counted from 0; the output by default.
    merge : bool
        Whether points with equal images (bit for bit) are joined.

    Returns
    -------
    Particles

    Raises
    ------
    InputError
        If `law` has no finite support, or there is no such layer.

    Notes
    -----
    Exact: each point is mapped, its weight stays, and the number of points never grows. Cost: one forward pass.

    Examples
    --------
    >>> import reluscope as rs
    >>> net = rs.Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])
    >>> image = push(rs.Particles([[-1.0], [1.0], [2.0]]), net)
    >>> image.points[:, 0].tolist(), image.weights.round(3).tolist()
    ([1.0, 2.0], [0.667, 0.333])
    """
    if check_law(law).atoms is None:
        raise InputError(f"law must be Particles, got {describe(law)}")
    check_network(net)
    merge = flag(merge, "merge")
    if layer is None:
        values = net(law.points)
    else:
        k = integer(layer, "layer", low=0, high=len(net.layers) - 1)
        values = net.layers[k].units(net.preactivations(law.points)[k])
    return _joined(values, law.weights) if merge else Particles(values, law.weights)


def _joined(points: Any, weights: Any) -> Particles:
    same, index = np.unique(points + 0.0, axis=0, return_inverse=True)  # + 0.0 joins -0 and 0
    return Particles(same, np.bincount(index.ravel(), weights=weights, minlength=len(same)))
