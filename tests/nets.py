"""Random networks for tests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from reluscope.network import Network


def random_net(widths: Sequence[int], seed: int = 0, activation: Any = "relu", bias: float = 0.1) -> Network:
    """He weights N(0, 2 / inputs) and biases N(0, bias^2)."""
    rng = np.random.default_rng(seed)
    return Network(
        [
            (rng.normal(size=(out, inn)) * np.sqrt(2 / inn), bias * rng.normal(size=out))
            for inn, out in itertools.pairwise(widths)
        ],
        activation,
    )


def integer_net(widths: Sequence[int], seed: int = 0, activation: Any = "relu", top: int = 3) -> Network:
    """Small whole-number weights and biases: full of parallel, coincident and dead units."""
    rng = np.random.default_rng(seed)
    return Network(
        [
            (rng.integers(-top, top + 1, (out, inn)), rng.integers(-top, top + 1, out))
            for inn, out in itertools.pairwise(widths)
        ],
        activation,
    )


def trained_net(widths: Sequence[int], seed: int = 0, steps: int = 2000) -> Network:
    """A network trained by Adam on a smooth function with noise: units die, turn parallel, or hardly ever switch."""
    rng = np.random.default_rng(seed)
    layers = [
        (rng.normal(size=(out, inn)) * np.sqrt(2 / inn), np.zeros(out)) for inn, out in itertools.pairwise(widths)
    ]
    X, A = rng.uniform(-2, 2, (2000, widths[0])), rng.normal(size=(2, widths[0]))
    y = np.sin(X @ A[0]) + 0.25 * (X @ A[1]) * X[:, 0] + 0.05 * rng.normal(size=2000)
    flat = [p for pair in layers for p in pair]
    mean, square = [np.zeros_like(p) for p in flat], [np.zeros_like(p) for p in flat]
    for t in range(1, steps + 1):
        rows = rng.integers(0, 2000, 128)
        z = [X[rows]]
        for k, (W, b) in enumerate(layers):
            h = z[-1] @ W.T + b
            z.append(h if k == len(layers) - 1 else np.maximum(h, 0))
        back, slopes = 2 * (z[-1] - y[rows][:, None]) / 128, []
        for k in range(len(layers) - 1, -1, -1):
            if k < len(layers) - 1:
                back = back * (z[k + 1] > 0)
            slopes[:0] = [back.T @ z[k], back.sum(axis=0)]
            back = back @ layers[k][0]
        for p, g, m, v in zip(flat, slopes, mean, square, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            p -= 3e-3 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return Network(layers)
