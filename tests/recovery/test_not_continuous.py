"""Oracles that are not continuous are named, and nothing about them is called complete."""

from __future__ import annotations

import numpy as np
import pytest

import reluscope as rs
from nets import random_net

NET = random_net((2, 5, 3), 0, bias=0.5)


def step(X):
    return np.where(X[:, :1] + 0.3 * X[:, 1:] > 0.1, 0.7312, -0.2123)


def tilted_step(X):
    return step(X) + 0.5 * X[:, 1:]


def label(X):
    return NET(X).argmax(axis=1)[:, None].astype(float)


def noise(X, rng=np.random.default_rng(5)):
    return rng.normal(size=(len(X), 1))


def hashed(X):
    """Noise that is the same each time."""
    return np.modf(np.sin(X @ [12.9898, 78.233]) * 43758.5453)[0][:, None]


@pytest.mark.parametrize("method", ["exact", "regions", "samples"])
@pytest.mark.parametrize(
    ("oracle", "words"),
    [
        (step, "not continuous: it took 2 different values"),
        (tilted_step, "not continuous: its values jump"),
        (label, "not continuous: it took"),
        (noise, "noisy: the same input"),
        (hashed, "nothing piecewise affine is seen"),
    ],
)
def test_what_is_not_continuous_is_named(oracle, words, method):
    found = rs.recover(rs.Oracle(oracle, 2), (-1, 1), method=method, rng=0)
    assert not found.complete and not found
    assert found.result is None
    assert words in found.statement[0]


def test_steep_and_rounded_networks_are_not_taken_for_jumps():
    steep = rs.Network([([[1.0, 0.0], [1.0, 0.0]], [0.0, -1e-3]), ([[1e3, -1e3]], None)])  # a ramp 1e-3 wide
    for oracle in (steep, lambda X: np.round(NET(X)[:, :1], 3), lambda X: NET(X).astype(np.float32)):
        found = rs.recover(rs.Oracle(oracle, 2), (-1, 1), rng=0, budget="2s")
        assert "continuous" not in found.statement[0] and "noisy" not in found.statement[0]
