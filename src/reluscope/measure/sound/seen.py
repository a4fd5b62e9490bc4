"""The part of a network that the rows of a placed event can read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reluscope.events import PlacedEvent
from reluscope.network import Network


def seen(rows: PlacedEvent) -> PlacedEvent:
    """The same event on a network without the outputs and units that no row can read.

    Inputs that only those read have no weight then, and are no coordinates of the law.
    """
    if rows.within is not None:
        return rows  # inputs of the box are coordinates although no row reads them
    used = (rows.G != 0).any(axis=0)
    keep = [used]
    for layer in reversed(rows.network.layers):
        keep.append(np.asarray(abs(layer.weight[keep[-1]]).sum(axis=0)).ravel() > 0)
    keep.reverse()  # inputs first
    if not all(k.any() for k in keep) or all(k.all() for k in keep[1:]):
        return rows
    layers: list[Any] = []
    for k, layer in enumerate(rows.network.layers):
        W = layer.weight[keep[k + 1]]
        if k > 0:
            W = W[:, keep[k]]
        hidden = layer is not rows.network.layers[-1]
        layers.append((W, layer.bias[keep[k + 1]], *([layer.units[keep[k + 1]]] if hidden else [])))
    return replace(rows, network=Network(layers, name=rows.network.name), G=rows.G[:, used])
