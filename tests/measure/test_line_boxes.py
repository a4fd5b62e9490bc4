"""Points in boxes: do boxes cover the space once, do counts and intervals hold, and are they narrower than counts?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import reluscope as rs
from nets import random_net
from reluscope import intervals
from reluscope.events import as_event, place_together
from reluscope.measure.lines import boxes as _boxes
from reluscope.measure.lines.boxes import make_strata, points_for, run_strata, suits
from reluscope.measure.lines.integration import Request, integrate, job_of
from reluscope.measure.lines.plan import Settings
from reluscope.measure.points import strata as _strata
from reluscope.network import Network
from reluscope.workers import sharing

SAFE = 1 - 1e-7
"""Level of intervals that must hold one by one: a few dozen of them, false alarms below 1e-5."""


def small_tree(monkeypatch):
    """Few boxes, whatever they promise, and a short pilot."""
    _strata.warm_up_strata()
    monkeypatch.setattr(_strata, "_MOST_BOXES", 1500)
    monkeypatch.setattr(_boxes, "_PROMISING", 0.0)
    monkeypatch.setattr(_boxes, "_PILOT_SHARE", 5e-4)


def made(net, law, event, seed=0, level=0.99, seconds=60.0):
    placed = place_together(net, law, [as_event(event, net, law)])
    settings = Settings(law, job_of(net, Request(events=placed), placed), "finite-sample", 16, "auto", "auto", seconds)
    components = list(placed[0].components)
    assert suits(components, settings)
    strata = make_strata(components, settings, None, level, np.random.default_rng(seed))
    assert strata is not None
    return strata


def corner(r: int, p: float) -> tuple[Network, str]:
    """The event that one of r orthogonal directions is beyond a limit, of probability p; the output is 0 elsewhere."""
    turn = np.linalg.qr(np.random.default_rng(r).normal(size=(r, r)))[0]
    t = float(ndtri((1.0 - p) ** (1.0 / r)))
    return Network([(turn, np.full(r, -t)), (np.ones((1, r)), None)]), "y[0] > 0"


def test_boxes_cover_the_space_once(monkeypatch):
    small_tree(monkeypatch)
    net, law = random_net((4, 10, 10, 2), 3), rs.Gaussian(np.zeros(4), 1.0)
    boxes = made(net, law, "y[0] > 0.5 and y[1] < 0.2 or y[0] < -1").boxes
    assert boxes.shares.sum() == pytest.approx(1.0, abs=1e-12)
    points = np.random.default_rng(0).integers(0, 1 << 32, (200, 1, 4))
    inside = ((boxes.low <= points) & (points < boxes.high)).all(axis=2)
    assert (inside.sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("law", "event"),
    [
        (rs.Gaussian(np.zeros(4), 1.0), "y[0] > 0.5 and y[1] < 0.2 or y[0] < -1"),
        (rs.Uniform(np.full(4, -1.0), np.array([1.0, 2.0, 1.0, 3.0])), "argmax == 1 and x[2] <= 0.3"),
        (
            rs.Mixture(
                [0.3, 0.7], [rs.Gaussian(np.zeros(4), 1.0), rs.Gaussian(np.full(4, 0.5), np.diag([1, 2, 1, 1]))]
            ),
            "y[0] > y[1]",
        ),
        (rs.Gaussian(np.zeros(4), 1.0).truncated([-1.0] * 4, [np.inf, 2.0, 1.0, 1.5]), "y[0] > 0.5 or y[1] > 1"),
    ],
)
def test_points_in_boxes_agree_with_draws_of_the_law(monkeypatch, law, event):
    small_tree(monkeypatch)
    net = random_net((4, 10, 10, 2), 3)
    strata = made(net, law, event)
    found = run_strata(strata, 200_000 * strata.cost, None, np.zeros(1), SAFE, np.random.default_rng(1)).events
    X = law.sample(200_000, 2)
    held = int(as_event(event, net, law).holds(net, X).sum())
    low, high = intervals.binomial(held, len(X), SAFE)
    assert found.lower[0] <= high and low <= found.upper[0]
    # Boxes leave less open than a count of as many draws does.
    assert found.upper[0] - found.lower[0] < 0.75 * (high - low)


@pytest.mark.parametrize("p", [0.5, 0.01, 1e-4, 1 - 1e-4])
def test_intervals_hold_and_are_not_by_chance(monkeypatch, p):
    """30 runs at 80 %: more than 16 miss with probability 4e-5 when one in five does; betting misses fewer."""
    small_tree(monkeypatch)
    net, event = corner(3, p)
    strata = made(net, rs.Gaussian(np.zeros(3), 1.0), event, level=0.8)
    missed, z = 0, []
    for k in range(30):
        found = run_strata(strata, 30_000 * strata.cost, None, np.zeros(1), 0.8, np.random.default_rng(k)).events
        missed += not found.lower[0] <= p <= found.upper[0]
        z.append((found.value[0] - p) / (0.5 * (found.upper[0] - found.lower[0])))
    assert missed <= 16
    # Unbiased: the mean of 30 estimates is within half of a half-width (nearly four of its standard errors).
    assert abs(np.mean(z)) < 0.5


def test_what_never_or_always_happens(monkeypatch):
    small_tree(monkeypatch)
    net, law = random_net((3, 8, 1), 1), rs.Gaussian(np.zeros(3), 1.0)
    for event, truth in (("y[0] > 1e3", 0.0), ("y[0] < 1e3", 1.0)):
        placed = place_together(net, law, [as_event(event, net, law)])
        found = integrate(net, law, Request(events=placed), budget=0.1, interval="finite-sample", rng=0).events
        assert found.lower[0] <= truth <= found.upper[0]
        assert found.upper[0] - found.lower[0] < 1e-2


def test_a_part_that_the_pilot_misses_is_allowed_for(monkeypatch):
    """A sliver of mass 1e-4 that no box was split for: its hits count, and the interval holds."""
    small_tree(monkeypatch)
    # y = x0 beyond 1, and a spike far out on the other side.
    first = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    net = Network([(first, np.array([0.0, -3.7, 0.0])), ([[1.0, 400.0, 1e-9]], None)])
    truth = ndtr(-2.0) + ndtr(-3.7 - 2.0 / 400.0)  # the second direction is next to nothing
    strata = made(net, rs.Gaussian(np.zeros(2), 1.0), "y[0] > 2")
    sure = np.where(strata.boxes.inside < 0.5, 1e-9, 1 - 1e-9)
    blind = replace(strata, boxes=replace(strata.boxes, inside=sure))
    for k in range(5):
        found = run_strata(blind, 200_000 * strata.cost, None, np.zeros(1), SAFE, np.random.default_rng(k)).events
        assert found.lower[0] <= truth <= found.upper[0]


def test_any_number_of_workers_counts_the_same(monkeypatch):
    small_tree(monkeypatch)
    net, law = random_net((4, 10, 10, 2), 3), rs.Gaussian(np.zeros(4), 1.0)
    strata = made(net, law, "y[0] > 0.5 and y[1] < 0.2")
    draws = strata.allotted(50_000, 0.99)[0].astype(np.int64)
    one = strata.hits(draws, np.random.default_rng(5))
    for jobs in (2, 3):
        with sharing(jobs):
            assert np.array_equal(strata.hits(draws, np.random.default_rng(5)), one)


def test_a_tolerance_takes_no_more_points_than_it_needs(monkeypatch):
    small_tree(monkeypatch)
    net, event = corner(3, 0.2)
    strata = made(net, rs.Gaussian(np.zeros(3), 1.0), event)
    few, note = points_for(strata, 1e6 * strata.cost, 1e-3, 0.99)
    many, _ = points_for(strata, 1e6 * strata.cost, None, 0.99)
    assert not note and few < many
    assert points_for(strata, 1e5 * strata.cost, 1e-8, 0.99)[1]
    found = run_strata(strata, 1e6 * strata.cost, 1e-3, np.zeros(1), 0.99, np.random.default_rng(0))
    assert 0.5 * (found.events.upper[0] - found.events.lower[0]) < 1.5e-3


def test_the_default_interval_comes_from_boxes():
    net, law = random_net((4, 10, 10, 2), 3), rs.Gaussian(np.zeros(4), 1.0)
    answer = rs.probability(net, law, "y[0] > y[1]", guarantee="confidence", budget=1.0, rng=0)
    assert "boxes" in answer.method and answer.note == "finite-sample interval"
    assert answer.lower < answer.value < answer.upper
