"""One seed, one answer: estimates without a time in their budget are the same, bit for bit, on every run."""

from __future__ import annotations

import time

import numpy as np
import pytest

import reluscope as rs
from long_calls import kernels, law, mixture, net
from reluscope import pace
from reluscope.answer import Status
from reluscope.answers import probability as module
from reluscope.budget import Budget

SIDES = "y[0] > y[1]"
CASES = {
    "boxes": (net(5, 20, 20, 1), law(5), "y[0] > -0.5", {}),
    "in a box": (net(4, 16, 16, 1), rs.Uniform(-np.ones(4), np.ones(4)), "y[0] > -0.5", {}),
    "many inputs": (net(30, 16, 16, 2), law(30), SIDES, {}),
    "replicate": (net(8, 16, 16, 2), law(8), SIDES, {"interval": "replicate"}),
    "mixture": (net(6, 16, 16, 2), mixture(6), SIDES, {}),
    "kernels": (net(5, 16, 2), kernels(5), "y[0] > y[1] - 2", {}),
    "tolerance": (net(5, 20, 20, 1), law(5), "y[0] > -0.5", {"tolerance": 2e-3}),
    "a count": (net(5, 20, 20, 1), law(5), "y[0] > -0.5", {"tolerance": 2e-3, "budget": "1000 regions"}),
    "rare": (net(5, 20, 20, 2), law(5), "y[0] > y[1] + 9", {}),
    "rare, finite-sample": (net(5, 20, 2), law(5), "y[0] > y[1] + 9", {"interval": "finite-sample"}),
    "rare, mixture": (net(5, 20, 2), mixture(5), "y[0] > y[1] + 12", {}),
    "rare, many inputs": (net(20, 16, 2), law(20), "y[0] > y[1] + 9", {}),
    "slopes": (net(5, 16, 16, 1), law(5), "J[0,0] > 0", {"tolerance": 0.01}),
    "slopes, replicate": (net(5, 16, 16, 1), law(5), "J[0,0] > 0", {"interval": "replicate"}),
}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A fifth of the usual work is enough to tell."""
    monkeypatch.setattr(module, "_SECONDS", 0.4)
    monkeypatch.setattr(module, "_MANY_DIMENSIONS", 2.0)


def bits(answer):
    return answer.value, answer.lower, answer.upper, answer.evaluations, answer.method, answer.note, answer.status


@pytest.mark.parametrize("name", CASES)
def test_one_seed_one_answer(name, monkeypatch):
    """Also for two workers, and on a machine on which time passes quite differently."""
    f, under, event, options = CASES[name]

    def ask(jobs):
        return bits(rs.probability(f, under, event, guarantee="confidence", rng=5, jobs=jobs, **options))

    first = ask(1)
    assert ask(2) == first
    real = time.perf_counter, time.thread_time
    monkeypatch.setattr(time, "perf_counter", lambda: 7.0 * real[0]())
    monkeypatch.setattr(time, "thread_time", lambda: 0.3 * real[1]())
    assert ask(1) == first


def test_another_seed_another_answer():
    f, under, event, _ = CASES["boxes"]
    one, two = (rs.probability(f, under, event, guarantee="confidence", rng=k) for k in (5, 6))
    assert one.value != two.value
    assert one.lower <= two.upper
    assert two.lower <= one.upper


def test_the_work_is_about_what_was_meant(monkeypatch):
    """Formulas for costs are no more than a factor of a few off."""
    monkeypatch.setattr(module, "_SECONDS", 1.0)
    for name in ("boxes", "in a box", "many inputs", "mixture"):
        f, under, event, options = CASES[name]
        rs.probability(f, under, event, guarantee="confidence", rng=0, budget=0.2, **options)  # compile
        begin = time.process_time()
        rs.probability(f, under, event, guarantee="confidence", rng=0, **options)
        assert 0.2 < time.process_time() - begin < 5.0, name


def test_the_safety_limit_ends_the_work_and_is_named(monkeypatch):
    monkeypatch.setattr(module, "_GUARD", 0.0)
    monkeypatch.setattr(module, "_LEAST_GUARD", 0.01)
    monkeypatch.setattr(module, "_SECONDS", 1e4)
    f, under, event, _ = CASES["rare"]
    answer = rs.probability(f, under, event, guarantee="confidence", rng=0)
    assert pace.LATE in answer.note
    assert answer.status is Status.BUDGET
    record = rs.record(f, under, event, answer, guarantee="confidence")
    assert rs.replay(record, f).compared == "brackets"


def test_a_budget_of_charged_seconds():
    with pace.counted(guard=np.inf):
        limit = Budget(1.0)
        pace.charge(0.25)
        assert limit.elapsed() == 0.25
        with pace.by_the_clock():
            pace.charge(10.0)
            assert not pace.counting()
            assert Budget(1.0).elapsed() < 0.5
        assert limit.part(0.5).seconds == 0.625
        assert limit.spent() is None
        pace.charge(0.75)
        assert "work of about 1 s done" in limit.spent()
    pace.charge(10.0)
    assert limit.elapsed() == 1.0
