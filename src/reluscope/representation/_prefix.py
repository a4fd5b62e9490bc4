"""Parts of a network: its first layers, and what is left of them far from the origin."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._check import FloatArray, integer
from reluscope.activations import Activation, Units
from reluscope.errors import InputError
from reluscope.network import Network, Pattern, check_network

_CHUNK_NUMBERS = 1 << 21


def checked(net: Any, layer: Any) -> tuple[Network, int]:
    """`net` and the hidden layer, counted from 0; None stands for the last one."""
    check_network(net)
    if not net.hidden:
        raise InputError("the network has no hidden layer")
    if layer is None:
        return net, len(net.hidden) - 1
    return net, integer(layer, "layer", low=0, high=len(net.hidden) - 1)


def prefix(net: Network, depth: int) -> Network:
    """The first `depth` hidden layers, the last one's activation included, as a network of their own."""
    kept = [(part.weight, part.bias, part.units) for part in net.layers[:depth]]
    return Network(kept, input_shape=net.input_shape, name=f"{net.name}, first {depth} layers")


def recession(net: Network, depth: int | None = None) -> Network:
    """The bias-free network `G*(v) = lim G(t v) / t`: biases 0, every unit with the slopes of its two outer pieces.

    For ReLU units this is the same network without biases. `depth` keeps that many hidden layers and no output.
    """
    kept: list[Any] = []
    hidden = net.hidden if depth is None else net.hidden[:depth]
    for part in hidden:
        outer = [_far(kind) for kind in part.units.kinds]
        kept.append((part.weight, np.zeros(part.width), Units.of([outer[k] for k in part.units.kind.tolist()])))
    if depth is None:
        kept.append((net.layers[-1].weight, np.zeros(net.n_outputs)))
    return Network(kept, input_shape=net.input_shape, name=f"{net.name}, bias-free")


def layer_maps(net: Network, patterns: Pattern) -> list[FloatArray]:
    """For each hidden layer the linear part of `z_l` on the regions of the patterns, shape (regions, units, inputs)."""
    C = np.broadcast_to(net.layers[0].dense(), (len(patterns), *net.layers[0].weight.shape))
    maps = []
    for k, layer in enumerate(net.hidden):
        slopes, _ = layer.units.on(patterns[:, net.offsets[k] : net.offsets[k + 1]])
        Z = slopes[:, :, None] * C
        maps.append(Z)
        if k + 1 < len(net.hidden):
            C = net.layers[k + 1].dense() @ Z
    return maps


def chunk_size(net: Network) -> int:
    """Regions whose maps of all layers are held at once."""
    return max(1, _CHUNK_NUMBERS // max(1, net.n_units * net.n_inputs))


def _far(kind: Activation) -> Activation:
    """The activation seen from far away: its first and its last slope, a kink at 0."""
    low, high = kind.slopes[0], kind.slopes[-1]
    if low == high:
        return Activation((), (low,), (0.0,), f"{low:g} h")
    return Activation((0.0,), (low, high), (0.0, 0.0), "relu" if (low, high) == (0.0, 1.0) else f"far {kind.name}")
