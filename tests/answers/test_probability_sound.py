"""The three guarantees agree: sound brackets and estimates hold the exact value."""

import math

import numpy as np
import pytest

import reluscope as rs
from nets import integer_net, random_net

EVENTS = ("y[0] > y[1]", "argmax != 0", "y[0] < 0 or y[1] > 0.5 and x[0] <= 0.2", "0 <= x[0] <= 1 and y[0] >= 0")


@pytest.mark.parametrize("seed", range(4))
def test_sound_holds_the_exact_value(seed):
    net = random_net((2, 6, 5, 2), seed) if seed % 2 else integer_net((2, 4, 3, 2), seed, top=2)
    laws = (
        rs.Uniform([-1.0, -1.0], [1.0, 2.0]),
        rs.Gaussian([0.1, 0.0], [0.5, 1.0]),
        rs.Particles(np.random.default_rng(seed).normal(size=(100, 2))),
    )
    for law in laws:
        for text in EVENTS:
            exact = rs.probability(net, law, text, guarantee="exact")
            sound = rs.probability(net, law, text, guarantee="sound", budget="0.1s")
            assert sound.guarantee in ("sound", "exact")
            assert sound.lower <= exact.upper and exact.lower <= sound.upper, (law, text)


def test_function_events_have_no_bounds_but_enumeration():
    net = random_net((2, 6, 2), 0)
    found = rs.probability(net, rs.Gaussian([0.0, 0.0]), "J[0,0] > 0", guarantee="sound")
    assert found.guarantee == "exact" and "function itself" in found.note
    with pytest.raises(rs.InputError, match="Jacobian"):
        rs.probability(random_net((8, 6, 2), 0), rs.Gaussian(np.zeros(8)), "J[0,0] > 0", guarantee="sound")


def planted(centre, width):
    """relu(width - sum |x_i - c_i|): above 0 on a cross-polytope of volume (2 width)^d / d! alone."""
    d = len(centre)
    first = np.concatenate([np.eye(d), -np.eye(d)])
    bias = np.concatenate([-centre, centre])
    return rs.Network([(first, bias), (-np.ones((1, 2 * d)), [width]), ([[1.0]], [0.0])])


@pytest.mark.parametrize(("d", "width"), [(2, 1e-3), (3, 1e-2), (3, 1e-3)])
def test_no_guarantee_misses_a_planted_tiny_region(d, width):
    """Mass 5e-7, 1.7e-7 and 1.7e-10. `confidence` at 0.99: fewer than 8 of 10 intervals that cover, 1e-4 by chance.

    The finite-sample interval is the one that holds at its level; the other one never has width 0 at least.
    """
    covered = 0
    for seed in range(10):
        centre = np.random.default_rng(seed).uniform(-0.9, 0.9, d)
        net, law, text = planted(centre, width), rs.Uniform(-np.ones(d), np.ones(d)), f"y > {1e-12 * width!r}"
        truth = (2 * width) ** d / math.factorial(d) / 2**d
        ask = {"level": 0.99, "rng": seed}
        guess = rs.probability(net, law, text, guarantee="confidence", budget="0.2s", interval="finite-sample", **ask)
        covered += guess.lower <= truth * (1 + 1e-9) and truth * (1 - 1e-9) <= guess.upper
        if seed < 3:
            hasty = rs.probability(net, law, text, guarantee="confidence", budget="0.02s", **ask)
            assert hasty.lower < hasty.upper
            exact = rs.probability(net, law, text, guarantee="exact")
            assert exact.value == pytest.approx(truth, rel=1e-6)
            sound = rs.probability(net, law, text, guarantee="sound", budget="20000 regions")
            assert 0 < sound.lower <= truth <= sound.upper
    assert covered >= 8
