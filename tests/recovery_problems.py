"""Small networks behind oracles, of mixed kinds, and a check of what was recovered that shares nothing with it."""

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
    """A name, and the function behind the oracle: rows (n, inputs) to values (n, outputs)."""

    name: str
    n_inputs: int
    function: Callable[[np.ndarray], np.ndarray]


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
        return Problem(name, widths[0], net.__call__)
    past = rng.normal(size=(widths[-1], widths[0]))
    return Problem(name, widths[0], lambda X: net(X) + X @ past.T)


def largest_error(task: Problem, found: Any, seed: int, points: int = 20_000) -> float:
    """The largest error over the spread of the values: at fresh uniform points, and as many on segments between random
    points, half of them corners of the box."""
    rng = np.random.default_rng([seed, 5])
    X = rng.uniform(*BOX, (points, task.n_inputs))
    ends = rng.uniform(*BOX, (2, points // len(_SHARES), task.n_inputs))
    ends[:, ::2] = BOX[1] * np.sign(ends[:, ::2])
    lines = ends[0][:, None] + _SHARES[:, None] * (ends[1] - ends[0])[:, None]
    X = np.concatenate([X, lines.reshape(-1, task.n_inputs)])
    Y = task.function(X)
    return float(np.abs(found(X) - Y).max() / max(1.0, Y.std()))
