"""A small ReLU network at many points, compiled: several times faster than a matrix product per thin layer.

Sixteen points go side by side in vector registers through all layers; a layer's rows are taken four at a time. The
weights stay in the cache, so the cost is about one multiplication per weight and point, eight to a clock cycle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.measure.simd import POINTS, mix_rows
from reluscope.network import Layer, Network

_ROWS = 4
_MOST_WEIGHTS = 1 << 17
"""Beyond, the weights leave the nearest caches and a plain matrix product is as good."""


class SmallForms:
    """The forms `forms @ net(u)` at points `u = turn @ z`."""

    def __init__(self, net: Network, forms: FloatArray, turn: FloatArray) -> None:
        weights, biases = folded(net, forms, turn)
        height = [-(-len(w) // _ROWS) * _ROWS for w in weights]
        self.n_forms = len(forms)
        self._packed = np.concatenate([packed(w, h) for w, h in zip(weights, height, strict=True)])
        self._bias = np.concatenate([np.pad(b, (0, h - len(b))) for b, h in zip(biases, height, strict=True)])
        self._inputs = np.array([w.shape[1] for w in weights], np.uint64)
        self._height = np.array(height, np.uint64)
        self._widest = max(self._inputs.max(), self._height.max())

    @staticmethod
    def suits(net: Network) -> bool:
        """Whether the network is small and all its units are ReLUs."""
        return n_weights(net) <= _MOST_WEIGHTS and rectifies(net)

    def __call__(self, Z: FloatArray) -> FloatArray:
        """The forms (n, forms) at the points (n, inputs)."""
        out = np.empty((len(Z), self.n_forms))
        _forward(Z, self._packed, self._bias, self._inputs, self._height, self._widest, out)
        return out


def n_weights(net: Network) -> int:
    """Weights of all layers."""
    return int(sum(np.prod(layer.weight.shape) for layer in net.layers))


def rectifies(net: Network) -> bool:
    """Whether all units are ReLUs."""
    return all(map(_rectifies, net.hidden))


def _rectifies(layer: Layer) -> bool:
    units = layer.units
    return (
        units.breaks.shape[1] == 1
        and not units.breaks.any()
        and bool((units.slopes == [0.0, 1.0]).all())
        and not units.intercepts.any()
    )


def folded(net: Network, forms: FloatArray, turn: FloatArray) -> tuple[list[FloatArray], list[FloatArray]]:
    """Weights and biases of all layers of `forms @ net(turn @ z)`."""
    weights = [layer.dense() for layer in net.layers]
    biases = [np.array(layer.bias) for layer in net.layers]
    weights[0] = weights[0] @ turn
    weights[-1], biases[-1] = forms @ weights[-1], forms @ biases[-1]
    return weights, biases


def packed(weight: FloatArray, height: int) -> FloatArray:
    """Rows four by four, the four weights of a column side by side."""
    rows = np.pad(weight, ((0, height - len(weight)), (0, 0)))
    return np.ascontiguousarray(rows.reshape(height // _ROWS, _ROWS, -1).transpose(0, 2, 1)).ravel()


@kernel
def _forward(Z: Any, packed: Any, bias: Any, inputs: Any, height: Any, widest: Any, out: Any) -> None:
    n, depth, forms = Z.shape[0], inputs.size, out.shape[1]
    four = np.uint64(4)
    lanes = np.zeros((2 * widest, POINTS))
    for begin in range(0, n, POINTS):
        count = min(POINTS, n - begin)
        for p in range(count):
            for i in range(Z.shape[1]):
                lanes[i, p] = Z[begin + p, i]
        source, target = np.uint64(0), widest
        place, row = np.uint64(0), np.uint64(0)
        for layer in range(depth):
            k = inputs[layer]
            rectify = 1 if layer + 1 < depth else 0
            j = np.uint64(0)
            while j < height[layer]:
                mix_rows(lanes, target + j, source, packed, place, bias, row, k, rectify)
                place += four * k
                row += four
                j += four
            source, target = target, source
        for p in range(count):
            for f in range(forms):
                out[begin + p, f] = lanes[source + np.uint64(f), p]
