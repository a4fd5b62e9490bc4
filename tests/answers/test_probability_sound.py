"""The three guarantees agree: sound brackets and estimates hold the exact value."""

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
            exact = rs.probability(net, law, text, "exact")
            sound = rs.probability(net, law, text, "sound", budget="0.1s")
            assert sound.guarantee in ("sound", "exact")
            assert sound.lower <= exact.upper and exact.lower <= sound.upper, (law, text)


def test_function_events_have_no_bounds_but_enumeration():
    net = random_net((2, 6, 2), 0)
    found = rs.probability(net, rs.Gaussian([0.0, 0.0]), "J[0,0] > 0", "sound")
    assert found.guarantee == "exact" and "function itself" in found.note
    with pytest.raises(rs.InputError, match="Jacobian"):
        rs.probability(random_net((8, 6, 2), 0), rs.Gaussian(np.zeros(8)), "J[0,0] > 0", "sound")
