"""A network as a torch module, to be trained on, deployed or compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._extras import require
from reluscope.activations import Units
from reluscope.network import Network, check_network


def torch_module(net: Network) -> Any:
    """The network as a `torch.nn.Sequential` of double precision: a `Linear` for each layer, then its activation.

    ReLU and leaky ReLU become torch's own; other units a module that looks up slope and intercept of their piece.
    """
    check_network(net)
    torch = require("torch", "torch")
    modules: list[Any] = []
    for k, layer in enumerate(net.layers):
        linear = torch.nn.Linear(layer.n_inputs, layer.width, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(np.array(layer.dense())))
            linear.bias.copy_(torch.from_numpy(np.array(layer.bias)))
        modules.append(linear)
        if k < len(net.hidden) and not layer.units.is_identity:
            modules.append(_activation(torch, layer.units))
    return torch.nn.Sequential(*modules)


def _activation(torch: Any, units: Units) -> Any:
    if units.is_relu:
        return torch.nn.ReLU()
    kinds = {(a.breaks, a.slopes, a.intercepts) for a in (units.kinds[k] for k in units.kind)}
    if len(kinds) == 1:
        breaks, slopes, shifts = kinds.pop()
        if breaks == (0.0,) and slopes[1] == 1.0 and shifts == (0.0, 0.0):
            return torch.nn.LeakyReLU(slopes[0])

    class PiecewiseLinear(torch.nn.Module):
        """Units of any pieces: `slope * h + intercept` of the piece that `h` lies in."""

        def __init__(self) -> None:
            super().__init__()
            for name in ("breaks", "slopes", "intercepts"):
                self.register_buffer(name, torch.from_numpy(np.array(getattr(units, name))))

        def forward(self, h: Any) -> Any:
            piece = (h[..., None] > self.breaks).sum(dim=-1, keepdim=True)
            slope = self.slopes.expand(*h.shape, -1).gather(-1, piece)[..., 0]
            shift = self.intercepts.expand(*h.shape, -1).gather(-1, piece)[..., 0]
            return slope * h + shift

    return PiecewiseLinear()
