"""Small networks behind oracles, of mixed kinds, and checks of what was recovered that share nothing with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import reluscope as rs

WIDTHS = ((2, 6, 4, 1), (3, 8, 1), (5, 10, 5, 1), (10, 20, 1))
KINDS = ("plain", "no biases", "leaky", "duplicated units", "dead units", "two outputs", "skip connection", "weak unit")
BOX = (-2.0, 2.0)
_SHARES = np.linspace(0.0, 1.0, 200)


class Problem(NamedTuple):
    """A name, the function behind the oracle: rows (n, inputs) to values (n, outputs), and the network in it."""

    name: str
    n_inputs: int
    function: Callable[[np.ndarray], np.ndarray]
    network: rs.Network


def problem(seed: int) -> Problem:
    """Problem `seed`: the widths and kinds in turn, so that `len(WIDTHS) * len(KINDS)` of them have all pairs."""
    widths, kind = WIDTHS[seed % len(WIDTHS)], KINDS[seed // len(WIDTHS) % len(KINDS)]
    rng = np.random.default_rng([seed, 20261117])
    widths = (*widths[:-1], 2) if kind == "two outputs" else widths
    layers = [
        [rng.normal(size=(out, inn)) * np.sqrt(2 / inn), 0.5 * rng.normal(size=out)]
        for inn, out in itertools.pairwise(widths)
    ]
    units: Any = "relu"
    if kind == "no biases":
        for _, b in layers:
            b[:] = 0.0
    elif kind == "leaky":
        units = rs.activations.leaky_relu(float(rng.choice([0.01, 0.1, 0.3])))
    elif kind == "duplicated units":  # the same surface twice, once turned round
        for W, b in layers[:-1]:
            W[1], b[1] = 2.0 * W[0], 2.0 * b[0]
            W[2], b[2] = -W[0], -b[0]
    elif kind == "dead units":  # one never on in the box, one never off
        W, b = layers[0]
        b[0], b[1] = -2.0 * np.abs(W[0]).sum() - 0.1, 2.0 * np.abs(W[1]).sum() + 0.1
    elif kind == "weak unit":  # hardly seen at the output, and rarely on
        W, b = layers[0]
        b[0] = -1.2 * np.abs(W[0]).sum()
        layers[-1][0][:, 0] *= 1e-3
    net = rs.Network([tuple(layer) for layer in layers], units)
    name = f"{'-'.join(map(str, widths))} {kind} {seed}"
    if kind != "skip connection":
        return Problem(name, widths[0], net.__call__, net)
    past = rng.normal(size=(widths[-1], widths[0]))
    return Problem(name, widths[0], lambda X: net(X) + X @ past.T, net)


def largest_error(task: Problem, found: Any, seed: int, points: int = 20_000) -> float:
    """The largest error over the spread of the values: at fresh uniform points, as many on segments between random
    points, half of them corners of the box, and extreme points of the network."""
    rng = np.random.default_rng([seed, 5])
    X = rng.uniform(*BOX, (points, task.n_inputs))
    ends = rng.uniform(*BOX, (2, points // len(_SHARES), task.n_inputs))
    ends[:, ::2] = BOX[1] * np.sign(ends[:, ::2])
    lines = ends[0][:, None] + _SHARES[:, None] * (ends[1] - ends[0])[:, None]
    X = np.concatenate([X, lines.reshape(-1, task.n_inputs), extreme_points(task.network, seed)])
    Y = task.function(X)
    return float(np.abs(found(X) - Y).max() / max(1.0, Y.std()))


def extreme_points(net: rs.Network, seed: int, starts: int = 16, passes: int = 3) -> np.ndarray:
    """Points of the box at which units of the network are as far on, or as far off, as single inputs can move them.

    For each unit and each sign from `starts` random corners: one input after the other goes to either side of the box,
    or somewhere in between, if that leads up. Beside each of them, one with some inputs moved a little, and one on the
    way back to where the unit switches. About `6 units starts` points; only the network is looked at.
    """
    rng, found = np.random.default_rng([seed, 31]), []
    for k, layer in enumerate(net.hidden):
        unit = np.repeat(np.arange(len(layer.bias)), 2 * starts)
        sign = np.tile([1.0, -1.0], len(unit) // 2)
        first = rng.choice(BOX, (len(unit), net.n_inputs))
        X = first.copy()
        best = sign * reached(net, k, X)[np.arange(len(X)), unit]
        low = best
        for _, i in itertools.product(range(passes), range(net.n_inputs)):
            for value in (*BOX, None):
                trial = X.copy()
                trial[:, i] = rng.uniform(*BOX, len(X)) if value is None else value
                h = sign * reached(net, k, trial)[np.arange(len(X)), unit]
                X, best = np.where((h > best)[:, None], trial, X), np.maximum(h, best)
        near = np.clip(X + rng.uniform(-0.4, 0.4, X.shape) * (rng.random(X.shape) < 0.3), *BOX)
        share = np.where((low < 0) & (best > 0), best / np.maximum(best - low, 1e-300), 0.5) * rng.random(len(X))
        found += [X, near, X + share[:, None] * (first - X)]
    return np.concatenate(found)


def reached(net: rs.Network, k: int, X: np.ndarray) -> np.ndarray:
    """The units of layer k before they bend."""
    for layer in net.hidden[:k]:
        X = layer.units(X @ layer.weight.T + layer.bias)
    return np.asarray(X @ net.hidden[k].weight.T + net.hidden[k].bias)


def error_everywhere(net: rs.Network, found: Any, seed: int, points: int = 200_000) -> tuple[float, float, float]:
    """The largest errors over the spread of the values: at uniform points, at as many corners, at extreme points."""
    rng = np.random.default_rng([seed, 7])
    places = (
        rng.uniform(*BOX, (points, net.n_inputs)),
        rng.choice(BOX, (points, net.n_inputs)),
        extreme_points(net, seed),
    )
    size = max(1.0, float(net(places[0]).std()))
    one, two, three = (float(np.abs(found(X) - net(X)).max()) / size for X in places)
    return one, two, three
