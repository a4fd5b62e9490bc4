"""Ctrl-C at any moment of a sound search: the bracket holds all the same."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest

import reluscope as rs
from reluscope.answer import Answer, Status
from reluscope.budget import parse_budget
from reluscope.measure.sound import boxes

probability = importlib.import_module("reluscope.answers.probability")


@pytest.mark.parametrize("when", [1, 2, 7, 40, 300])
@pytest.mark.parametrize("step", ["halves", "start", "chain"])
def test_a_bracket_that_was_interrupted_holds(when, step, monkeypatch):
    """The first boxes are split one by one: none of them may be forgotten, or counted twice."""
    rng = np.random.default_rng(0)
    widths = (3, 12, 12, 1)
    net = rs.Network([(rng.normal(size=(m, n)) / 2, 0.3 * rng.normal(size=m)) for n, m in itertools.pairwise(widths)])
    law = rs.Gaussian(np.zeros(3), np.eye(3))
    event = "y[0] > 0.1"
    drawn = float((net(law.sample(200_000, rng=1))[:, 0] > 0.1).mean())
    real, calls = getattr(boxes, step), itertools.count(1)

    def interrupted(*arguments):
        if next(calls) == when:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(boxes, step, interrupted)
    try:
        found = rs.probability(net, law, event, guarantee="sound", budget="4000 regions")
    except KeyboardInterrupt:
        return
    assert 0.02 < drawn < 0.98
    assert found.lower <= drawn + 0.01 and drawn - 0.01 <= found.upper


def test_components_that_were_not_come_to_stay_open(monkeypatch):
    """The second of three is interrupted: the third counts as nothing known, and is not begun."""
    net = rs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])
    begun = []

    def bracket(*arguments):
        begun.append(arguments[1])
        low, high, status = [(0.2, 0.4, Status.DONE), (0.0, 0.5, Status.INTERRUPTED)][len(begun) - 1]
        return Answer(0.5 * (low + high), low, high, "sound", method="boxes", status=status)

    monkeypatch.setattr(probability, "_sound", bracket)
    parts = [(w, rs.Gaussian([m])) for w, m in ((0.5, 0.0), (0.25, 1.0), (0.25, 2.0))]
    found = probability._sound_mixture(net, parts, rs.event("y[0] > 1", 1, 1), None, parse_budget("1s"), None)
    assert len(begun) == 2 and found.status is Status.INTERRUPTED
    assert found.lower == pytest.approx(0.1) and found.upper == pytest.approx(0.2 + 0.125 + 0.25)
