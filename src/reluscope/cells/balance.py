"""Layers scaled by powers of two: neither their numbers nor their squared rounding errors over- or underflow.

    h_i = W_i z + b_i   becomes   2^k_i h_i,      z_j = act(h_j)   becomes   2^m_j z_j,

with exponents that bring the largest value of every unit near 1. Powers of two round nothing, and the pieces of all
units stay what they are. A term that is smaller than 1e-300 of the largest in its row would be lost, and where the
largest is 0 (a ReLU that is off) it may be all there is: such networks are refused. Networks whose numbers are moderate
are left alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.activations import Activation, Units
from reluscope.errors import InputError
from reluscope.network import Layer, Network

_MODERATE = 1e60
"""Values up to here, and down to one over it, need no scaling: their squared errors stay far inside float64."""

_MOST = 500
"""Exponents of the slopes of scaled activations: their squares stay finite."""

_LARGEST = 1e140
"""Values up to here have squares that are finite."""

Exponents = npt.NDArray[np.int64]


def balanced(net: Network, reach: FloatArray) -> tuple[Network, Exponents, FloatArray]:
    """The network scaled, exponents of its outputs, and the base-2 logarithms of their largest absolute values.

    `reach` (inputs) are the largest `|u_i|` that will be asked about. The scaled network's output j is `2^m_j` times
    the old one.
    """
    if _moderate(net, reach):
        return net, np.zeros(net.n_outputs, np.int64), np.zeros(net.n_outputs)
    with np.errstate(divide="ignore"):
        size = np.log2(np.abs(reach))
    shift = np.zeros(len(reach), np.int64)
    layers: list[Layer] = []
    for layer in net.layers:
        W = np.asarray(layer.dense())
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.concatenate([np.log2(np.abs(W)) + size, np.log2(np.abs(layer.bias))[:, None]], axis=1)
        top = _log_sum(np.where(np.isnan(terms), -np.inf, terms))
        rows = -np.ceil(np.where(np.isfinite(top), top, 0.0)).astype(np.int64)
        made = [
            _scaled(layer.units.kinds[kind], int(k), float(t))
            for kind, k, t in zip(layer.units.kind, rows, top, strict=True)
        ]
        weight = scaled(W, rows[:, None] - shift)
        layers.append(Layer(weight, scaled(layer.bias, rows), Units.of([act for act, *_ in made])))
        shift = np.array([k for _, k, _ in made], np.int64)
        size = np.array([t for *_, t in made])
    return Network([_spec(a, last=a is layers[-1]) for a in layers], name=net.name), shift, size


def scaled(numbers: npt.ArrayLike, exponents: npt.ArrayLike) -> FloatArray:
    """The numbers times powers of two; an error where one of them would lose digits."""
    old, k = np.asarray(numbers, dtype=np.float64), np.asarray(exponents, dtype=np.int32)
    with np.errstate(over="ignore", under="ignore"):
        out = np.ldexp(old, k)
        lost = np.ldexp(out, -k) != old
    if lost.any():
        raise InputError(
            "net: numbers that are added up differ by more than 1e300 in size, and float64 cannot hold both; rescale "
            "the network, or ask for a sound bracket"
        )
    return np.asarray(out)


def check_range(net: Network) -> None:
    """Refuse networks whose numbers, multiplied layer by layer, have no finite squares: geometry would be wrong there.

    Cost: one forward pass with absolute weights.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.ones(net.n_inputs)
        for index, layer in enumerate(net.layers):
            weights = abs(layer.weight)
            size = np.asarray(weights @ size) + np.abs(layer.bias)
            top = max(float(size.max(initial=0.0)), float(weights.max()))  # a weight on a value that is always 0 too
            if not top < _LARGEST:
                raise InputError(
                    f"net: values of layer {index} may reach {top:.0e} for inputs of size 1, and regions can be "
                    f"told apart up to {_LARGEST:.0e} only; divide the layers before by a constant, and multiply "
                    "the weights after them by it"
                )
            size = np.abs(layer.units.slopes).max(axis=1) * size + np.abs(layer.units.intercepts).max(axis=1)


def _spec(layer: Layer, *, last: bool) -> Any:
    return (layer.weight, layer.bias) if last else (layer.weight, layer.bias, layer.units)


def _moderate(net: Network, reach: FloatArray) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(reach)
        for layer in net.layers:
            data = layer.weight.data if hasattr(layer.weight, "indptr") else layer.weight
            own = np.abs(np.asarray(data)[np.asarray(data) != 0])
            if own.size and not (own.max() <= _MODERATE and own.min() >= 1 / _MODERATE):
                return False
            size = np.asarray(abs(layer.weight) @ size) + np.abs(layer.bias)
            live = size[size > 0]
            if live.size and not (live.max() <= _MODERATE and live.min() >= 1 / _MODERATE):
                return False
            size = np.abs(layer.units.slopes).max(axis=1) * size + np.abs(layer.units.intercepts).max(axis=1)
    return True


def _log_sum(terms: FloatArray) -> FloatArray:
    """Base-2 logarithms of row sums of `2^terms`; -inf for rows of zeros."""
    top = terms.max(axis=1, initial=-np.inf)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(safe + np.log2(np.exp2(terms - safe[:, None]).sum(axis=1)))


def _scaled(act: Activation, row: int, top: float) -> tuple[Activation, int, float]:
    """The activation of a unit whose values are `2^row` times the old ones, the exponent of what it gives, its size.

    `top` is the logarithm of the largest value before, and the size that of the largest activation.
    """
    ends = max(abs(act.slopes[0]), abs(act.slopes[-1]))
    inner = max((abs(act(t).item()) for t in act.breaks), default=abs(act.intercepts[0]))
    with np.errstate(divide="ignore"):
        size = float(np.logaddexp2(np.log2(ends) + top if np.isfinite(top) else -np.inf, np.log2(inner)))
    if not any(act.breaks) and not any(act.intercepts):
        return act, row, size
    out = -int(np.ceil(size)) if np.isfinite(size) else row
    out = int(np.clip(out, row - _MOST, row + _MOST))
    try:
        moved = Activation(
            tuple(scaled(act.breaks, row).tolist()),
            tuple(scaled(act.slopes, out - row).tolist()),
            tuple(scaled(act.intercepts, out).tolist()),
            act.name,
        )
    except Exception as error:
        raise InputError(
            f"the values of a unit ({act.name}) are so large or small beside its break points that float64 cannot hold "
            "both; rescale the network"
        ) from error
    return moved, out, size
