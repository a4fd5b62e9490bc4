"""Units of one layer that differ in size by many powers of ten: lines and rays see all of them cross."""

from __future__ import annotations

import numpy as np
import pytest

import reluscope as rs

LEVEL = 1 - 1e-9


def uneven(a):
    """`relu(x0) - relu(x1)`, its units scaled by a and 1 / a."""
    return rs.Network([([[a, 0.0], [0.0, 1 / a]], [0.0, 0.0]), ([[1 / a, -a]], [0.0])])


@pytest.mark.parametrize("a", [1e4, 1e9, 1e15, 1e30])
@pytest.mark.parametrize("law", [rs.Uniform([-1.0, 0.0], [1.0, 2.0]), rs.Gaussian([0.2, 0.5], [1.0, 0.5])])
def test_small_units_cross(a, law):
    wanted = rs.probability(uneven(1.0), law, "y[0] > 0.31", guarantee="exact").value
    for interval in ("finite-sample", "replicate"):
        found = rs.probability(
            uneven(a), law, "y[0] > 0.31", guarantee="confidence", interval=interval, level=LEVEL, budget=0.05, rng=1
        )
        assert found.lower <= wanted <= found.upper
    by_lines = rs.outputs(uneven(a), law, method="lines", level=LEVEL, budget=0.1, rng=0).sf(0.31)
    assert by_lines.lower <= wanted <= by_lines.upper


@pytest.mark.parametrize("side", [1e-9, 1e9])
def test_small_sides_of_a_box_count(side):
    law = rs.Uniform([-side, 0.0], [side, 2.0 / side])
    net = rs.Network([(np.eye(2), [0.0, 0.0]), ([[1 / side, -side]], [0.0])])
    by_lines = rs.outputs(net, law, method="lines", level=LEVEL, budget=0.1, rng=0).sf(0.31)
    assert by_lines.lower <= 0.0595125 <= by_lines.upper
