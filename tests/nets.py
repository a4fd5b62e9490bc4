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
