"""Sound brackets by boxes with a budget of regions are the same to the last bit, however busy the machine is."""

from __future__ import annotations

import time

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.measure.sound import boxes

CASES = {
    "two dimensions": (random_net((2, 12, 12, 2), 1), rs.Gaussian([0.1, -0.2]), "y[0] > y[1] + 0.3", 20_000),
    "few boxes": (random_net((2, 12, 12, 2), 1), rs.Gaussian([0.1, -0.2]), "y[0] > y[1] + 0.3", 300),
    "a mixture": (
        random_net((3, 10, 2), 2),
        rs.GaussianMixture([0.4, 0.6], [rs.Gaussian(np.zeros(3)), rs.Gaussian(np.ones(3), 0.5)]),
        "y[0] > 0 and y[1] > 0.1",
        5_000,
    ),
    "points and a box": (
        random_net((2, 10, 2), 4),
        rs.Mixture([0.3, 0.3, 0.4], [rs.Particles([[0.0, 1.0]]), rs.Uniform([0, 0], [1, 2]), rs.Gaussian([0.0, 0.0])]),
        "y[0] > 0.1",
        900,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_clock_decides_nothing(name, monkeypatch):
    """Every look at the clock finds another second gone: a busy machine."""
    net, law, event, regions = CASES[name]
    first = rs.probability(net, law, event, guarantee="sound", budget=f"{regions} regions")
    bisect, ticks = boxes.bisect, [time.monotonic()]

    def slowly(*arguments):
        time.sleep(0.002 * (len(ticks) % 3))
        return bisect(*arguments)

    def clock():
        ticks.append(ticks[-1] + 1.0)
        return ticks[-1]

    monkeypatch.setattr(boxes, "bisect", slowly)
    monkeypatch.setattr(boxes.time, "monotonic", clock)
    monkeypatch.setattr("reluscope.budget.Budget.elapsed", lambda self: clock())
    again = rs.probability(net, law, event, guarantee="sound", budget=f"{regions} regions")
    assert (again.lower, again.upper, again.evaluations) == (first.lower, first.upper, first.evaluations)
