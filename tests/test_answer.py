"""Answers: what every public call that gives numbers with brackets promises, and that seeds repeat them."""

import re
from decimal import Decimal

import numpy as np
import pytest

import reluscope as rs
from conformance import check_answer
from nets import random_net
from reluscope._text import in_bracket
from reluscope.answer import Answer, Answers, Status, Stop, status_of

PLANE = rs.Gaussian(np.zeros(2), np.eye(2))
FOUR = rs.Gaussian(np.zeros(4), np.eye(4))
OTHER = rs.Gaussian(np.full(2, 0.1), np.eye(2))
ESTIMATE = {"guarantee": "confidence", "budget": 0.2, "rng": 0}
NET = random_net((2, 4, 1), 0)
HIGH = random_net((4, 3, 1), 1)


def _coverage():
    X = np.random.default_rng(0).normal(size=(60, 4))
    return rs.unwrap(HIGH, X).coverage(X, draws=500, rng=0, budget="1 regions").unseen_volume


CALLS = {
    "exact": lambda: rs.probability(NET, PLANE, "y > 0", guarantee="exact"),
    "budget": lambda: rs.probability(NET, PLANE, "y > 0", guarantee="exact", budget="1 regions"),
    "sound": lambda: rs.probability(NET, PLANE, "y > 0", guarantee="sound", budget="200 regions"),
    "confidence": lambda: rs.probability(HIGH, FOUR, "y > 0", **ESTIMATE),
    "replicate": lambda: rs.probability(HIGH, FOUR, "y > 0", interval="replicate", **ESTIMATE),
    "difference": lambda: rs.compare(NET, PLANE, OTHER, "y > 0").difference,
    "difference by draws": lambda: rs.compare(HIGH, FOUR, rs.Gaussian(np.full(4, 0.1)), "y > 0", **ESTIMATE).difference,
    "change": lambda: rs.change(NET, PLANE, [0], decision=True).decision,
    "certify": lambda: rs.certify(NET, [[0.0, 1.0], [1.0, 1.0]], [0.1, 0.2]).change,
    "change by draws": lambda: rs.change(NET, PLANE, [0], method="draws", draws=200, rng=0).linear_model,
    "probable": lambda: rs.probable(NET, PLANE, k=2).mass,
    "lipschitz": lambda: rs.lipschitz(NET),
    "lipschitz, budget": lambda: rs.lipschitz(NET, budget="1 regions"),
    "volume of an image": lambda: rs.reachable(NET, (-1, 1))[-1].volume(),
    "rare event": lambda: rs.probability(HIGH, FOUR, "x[0] + x[1] > 7", **ESTIMATE),
    "never": lambda: rs.probability(NET, PLANE, "y > 0 and y < 0"),
    "mass": lambda: rs.mass(np.eye(2), np.zeros(2), PLANE),
    "mass by sampling": lambda: rs.mass(np.ones((1, 4)) + np.eye(4), np.zeros(4), FOUR, rng=0),
    "masses": lambda: rs.regions(NET, law=PLANE).masses(PLANE),
    "masses by sampling": lambda: rs.regions(HIGH, law=FOUR).masses(FOUR, tolerance=0.1, rng=0),
    "total": lambda: rs.regions(NET, law=PLANE).masses(PLANE).total,
    "cdf": lambda: rs.outputs(NET, PLANE).cdf([0.0, 0.1]),
    "cdf at one": lambda: rs.outputs(NET, PLANE).cdf(0.0),
    "pdf": lambda: rs.outputs(NET, PLANE).pdf([0.0, 0.1]),
    "quantile": lambda: rs.outputs(NET, PLANE).quantile([0.1, 0.9]),
    "mean": lambda: rs.outputs(NET, PLANE).mean,
    "cov": lambda: rs.outputs(NET, PLANE).cov,
    "marginals": lambda: rs.linear_models(NET, PLANE).marginals,
    "spectrum": lambda: rs.spectrum(NET, PLANE).cdf(0.5),
    "spectrum by draws": lambda: rs.spectrum(NET, PLANE, method="draws", draws=200, rng=0).quantile(0.5),
    "sensitivity": lambda: rs.sensitivity(NET, PLANE, "y > 0").mean,
    "coverage": _coverage,
    "relational": lambda: rs.probability({"f": NET, "g": random_net((2, 3, 1), 3)}, PLANE, "f.y > g.y"),
    "monotone": lambda: rs.monotone(NET, PLANE, 0, places=0).falls[0],
    "robust": lambda: rs.robust(NET, PLANE, 0.1, draws=50, rng=0),
    "robust on a line": lambda: rs.robust(random_net((1, 4, 2), 0), rs.Gaussian([0.0]), 0.1),
    "agreement": lambda: rs.agreement(NET, rs.quantised(NET), PLANE, rng=0).alike,
}


@pytest.mark.parametrize("call", CALLS)
def test_every_answer_is_one(call):
    check_answer(CALLS[call]())


def test_seeds_repeat_answers():
    """The seed of a call without rng= gives the same numbers again; None where nothing was drawn."""
    regions = rs.regions(HIGH, law=FOUR)
    rows = np.ones((1, 4)) + np.eye(4)
    for call in (
        lambda rng: rs.mass(rows, np.zeros(4), FOUR, rng=rng),
        lambda rng: regions.masses(FOUR, tolerance=0.1, rng=rng),
    ):
        first = call(None)
        assert isinstance(first.seed, int)
        again = call(first.seed)
        assert again.seed == first.seed
        for name in ("value", "lower", "upper"):
            assert np.array_equal(getattr(first, name), getattr(again, name))
        assert call(None).seed != first.seed
        assert call(np.random.default_rng(0)).seed is None
    assert rs.mass(np.eye(2), np.zeros(2), PLANE).seed is None
    assert rs.probability(HIGH, FOUR, "y > 0", guarantee="confidence", budget=0.2, rng=7).seed == 7


class Clock:
    """A clock that every look moves on by a millisecond, so that a time budget always buys the same work."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-3
        return self.now


WIDE = random_net((4, 6, 1), 1)
SEEDED = {
    "outputs": (lambda rng: rs.outputs(WIDE, FOUR, budget=0.05, rng=rng), lambda r: [r.cdf([0.0, 0.1]), r.mean]),
    "linear models": (lambda rng: rs.linear_models(WIDE, FOUR, rng=rng), lambda r: [r.marginals, r.entropy]),
    "linear models by lines": (
        lambda rng: rs.linear_models(WIDE, FOUR, method="lines", budget=0.05, rng=rng),
        lambda r: [r.marginals, r.entropy],
    ),
    "probable": (lambda rng: rs.probable(WIDE, FOUR, k=2, draws=1000, rng=rng), lambda r: [r.mass, r.total, r.next]),
    "spectrum": (lambda rng: rs.spectrum(WIDE, FOUR, draws=100, rng=rng), lambda r: [r.mean(), r.modal.mass]),
    "change": (lambda rng: rs.change(WIDE, FOUR, [0], draws=1000, rng=rng), lambda r: [r.pattern, r.linear_model]),
    "sensitivity": (
        lambda rng: rs.sensitivity(WIDE, FOUR, "y > 0", budget=0.05, rng=rng),
        lambda r: [r.probability, r.mean, r.cov],
    ),
    "compare": (
        lambda rng: rs.compare(WIDE, FOUR, rs.Gaussian(np.full(4, 0.1)), "y > 0", budget=0.05, rng=rng),
        lambda r: [r.probability, r.other_probability, r.difference],
    ),
}


def test_witnesses_record_a_seed_that_repeats_them():
    first = rs.witness(WIDE, rs.Uniform(np.zeros(4), np.ones(4)), "y > 0", n=3)
    again = rs.witness(WIDE, rs.Uniform(np.zeros(4), np.ones(4)), "y > 0", n=3, rng=first.seed)
    assert isinstance(first.seed, int) and len(first) == 3
    assert [w.x.tolist() for w in first] == [w.x.tolist() for w in again] and again.seed == first.seed
    assert rs.witness(WIDE, rs.Particles([[0.0] * 4]), "y > 1e9").seed is None


@pytest.mark.parametrize("call", SEEDED)
def test_results_record_a_seed_that_repeats_them(call, monkeypatch):
    make, answers = SEEDED[call]

    def run(rng):
        for clock in ("perf_counter", "monotonic", "thread_time"):
            monkeypatch.setattr(f"time.{clock}", Clock())
        result = make(rng)
        return result, [np.stack([a.value, a.lower, a.upper]) for a in answers(result)]

    make(0)  # imports and compiles, at which the clock is looked at too
    first, numbers = run(None)
    assert isinstance(first.seed, int)
    again, same = run(first.seed)
    assert again.seed == first.seed
    for one, two in zip(numbers, same, strict=True):
        np.testing.assert_array_equal(one, two)
    assert any((a != b).any() for a, b in zip(run(1)[1], run(2)[1], strict=True))
    assert run(np.random.default_rng(0))[0].seed is None


def test_status_says_how_the_work_ended():
    part = rs.probability(NET, PLANE, "y > 0", guarantee="exact", budget="1 regions")
    assert part.status is Status.BUDGET and "budget=" in part.status.advice
    assert rs.probability(NET, PLANE, "y > 0", guarantee="exact").status is Status.DONE
    assert {s for s in Status if not s.advice} == {Status.DONE}
    assert status_of(None) is Status.DONE and status_of("words") is Status.BUDGET
    assert status_of(Stop("words", Status.INTERRUPTED)) is Status.INTERRUPTED


def test_many_print_as_a_table():
    value = np.linspace(0.0, 1.0, 25)
    text = str(Answers(value, value, value, "exact"))
    assert len(text.splitlines()) == 23 and "5 more" in text and text.endswith("(exact)")
    assert str(Answer(0.5, 0.4, 0.6, "confidence", 0.99)) == "0.5 in [0.4, 0.6] (confidence 99 %)"


def test_numbers_have_the_digits_that_their_bracket_supports():
    rng = np.random.default_rng(0)
    shown = 0
    for _ in range(2_000):
        value = float(rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-300, 12))
        below, above = (abs(value) * float(10.0 ** rng.uniform(-12, 1)) for _ in range(2))
        lower, upper = value - below, value + above
        said = in_bracket(value, lower, upper)
        if " in [" not in said:
            assert upper - lower <= 1e-9 * max(abs(lower), abs(upper))
            continue
        shown += 1
        number, low, high = (Decimal(part) for part in re.split(r" in \[|, |\]", said)[:3])
        width = Decimal(upper) - Decimal(lower)
        assert low <= Decimal(repr(lower)) and Decimal(repr(upper)) <= high, said  # outward
        assert high - low <= Decimal("1.14") * width, said
        assert low <= number <= high, said
        assert len(number.as_tuple().digits) <= 3 + max(0, number.adjusted() - width.adjusted()), said
    assert shown > 1_000


def test_notebooks_show_escaped_tables():
    answer = Answer(0.5, 0.4, 0.6, "confidence", 0.99, method="<script>")
    assert "<b>0.5 in [0.4, 0.6]</b>" in answer._repr_html_()
    assert "<script>" not in answer._repr_html_() and "&lt;script&gt;" in answer._repr_html_()
    many = Answers(np.full(50, 0.5), np.full(50, 0.4), np.full(50, 0.6), "sound")
    assert many._repr_html_().count("<tr>") == 21
    assert "30 more rows" in many._repr_html_()
