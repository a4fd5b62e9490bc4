"""Edges of events: atoms on them, values on the limit up to rounding, extreme scales; references in fractions."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

import reluscope as rs
from campaign.problems import problem
from campaign.truth import Axis, Share, probability
from nets import random_net

LINE = rs.Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, -1.0]], None)])
"""y = x."""


def exact(net, law, event):
    answer = rs.probability(net, law, event, guarantee="exact")
    assert answer.guarantee == "exact" and answer.lower <= answer.value <= answer.upper
    return answer


# -- atoms on the edge ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "value"),
    [
        ("x[0] >= 1", 0.5), ("x[0] > 1", 0.0), ("x[0] == 1", 0.5), ("x[0] != 1", 0.5), ("x[0] <= 0", 0.5),
        ("x[0] == 0 or x[0] == 1", 1.0), ("0 <= x[0] < 1", 0.5), ("y[0] >= 1", 0.5), ("x[0] > 0 and y[0] <= 1", 0.5),
    ],
)  # fmt: skip
@pytest.mark.parametrize("guarantee", ["exact", "sound", "confidence", "auto"])
def test_particles_on_the_edge(event, value, guarantee):
    answer = rs.probability(LINE, rs.Particles([[0.0], [1.0]]), event, guarantee=guarantee)
    assert answer.lower <= value <= answer.upper and answer.width < 1e-13


def test_a_component_without_spread_sits_on_the_edge():
    law = rs.GaussianMixture([0.25, 0.75], [rs.Gaussian([1.0, 2.0], [0.0, 0.0]), rs.Gaussian([1.0, 0.0], [0.0, 1.0])])
    net = random_net((2, 4, 2), 0)
    for event, value in (
        ("x[0] >= 1", 1.0),
        ("x[0] > 1", 0.0),
        ("x[0] == 1 and x[1] >= 2", 0.25 + 0.75 * norm.sf(2)),
        ("x[0] == 1 and x[1] == 2", 0.25),
        ("x[1] < 2", 0.75 * norm.cdf(2)),
    ):
        answer, other = exact(net, law, event), exact(net, law, f"not ({event})")
        assert answer.lower - 1e-15 <= value <= answer.upper + 1e-15 and answer.width < 1e-9, event
        assert answer.lower + other.lower <= 1 + 1e-15 and answer.upper + other.upper >= 1 - 1e-15


def test_a_strict_bound_on_a_fixed_input_is_not_forgotten():
    law = rs.Uniform([1.0, 0.0], [1.0, 2.0])
    net = random_net((2, 4, 1), 0)
    assert exact(net, law, "x[0] < 1 and x[1] <= 1").upper == 0.0
    assert exact(net, law, "x[0] <= 1 and x[1] <= 1").value == pytest.approx(0.5, abs=1e-12)


def test_many_data_rows_on_the_edge():
    """Codes such as 1, 2, 3 in a data set; the network is wide, so that fractions at every row would take minutes."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(1, 4, 20_000), rng.normal(size=20_000)])
    net = random_net((2, 200, 200, 1), 0)
    for guarantee in ("exact", "sound"):
        answer = rs.probability(net, rs.Particles(X), "x[0] == 2", guarantee=guarantee)
        assert answer.lower <= np.mean(X[:, 0] == 2) <= answer.upper and answer.width < 1e-10


def test_sound_decides_inputs_without_spread():
    for event, value in (("x[0] >= 1", 1.0), ("x[0] > 1", 0.0), ("y[0] <= 1", 1.0), ("y[0] < 1", 0.0)):
        answer = rs.probability(LINE, rs.Gaussian([1.0], [0.0]), event, guarantee="sound", budget="2s")
        assert (answer.lower, answer.upper) == (value, value)
    law = rs.GaussianMixture([0.5, 0.5], [rs.Gaussian([1.0], [0.0]), rs.Gaussian([0.0], [1.0])])
    answer = rs.probability(LINE, law, "y[0] >= 1", guarantee="sound", budget="5s", tolerance=1e-3)
    assert answer.lower <= 0.5 + 0.5 * norm.sf(1) <= answer.upper and answer.width < 0.01


# -- on the limit up to rounding --------------------------------------------------------------------------------------


def constant(a, b):
    """y = a + b everywhere, a real number that float64 rounds."""
    return rs.Network([([[0.0]], [a]), ([[1.0]], [b])])


@pytest.mark.parametrize(("a", "b", "limit"), [(0.1, 0.2, 0.3), (0.1, 0.3, 0.4), (0.7, 0.1, 0.8), (1.0, 2.0, 3.0)])
@pytest.mark.parametrize("law", [rs.Gaussian([0.0]), rs.Uniform(0.0, 1.0), rs.Particles([[0.0]])], ids=lambda v: v.kind)
def test_the_real_sum_decides(a, b, limit, law):
    net, total = constant(a, b), Fraction(a) + Fraction(b)
    for op, value in (
        (">", total > Fraction(limit)),
        (">=", total >= Fraction(limit)),
        ("==", total == Fraction(limit)),
    ):
        for guarantee in ("exact", "sound", "auto"):
            answer = rs.probability(net, law, f"y[0] {op} {limit}", guarantee=guarantee, budget="2s")
            assert answer.lower <= value <= answer.upper, (op, guarantee)
            if guarantee != "sound":
                assert answer.width < 1e-12
        found = rs.witness(net, law, f"y[0] {op} {limit}", rng=0, budget="1s")
        assert bool(found.items) == bool(value) and found.proved_empty == (not value)


def test_what_nothing_can_decide_is_inside_the_bracket(monkeypatch):
    """Constant on the event's side only: one dimension is seen, and the fractions may cost nothing."""
    from reluscope.answers import _edges

    monkeypatch.setattr(_edges, "_MOST_WORK", 0)
    net = rs.Network([([[0.0], [1.0]], [0.1, 0.0]), ([[1.0, 0.0], [0.0, 1.0]], [0.2, 0.0])])
    answer = exact(net, rs.Gaussian([0.0]), "y[0] > 0.3")
    assert answer.lower == 0.0 and answer.upper > 1 - 1e-12 and "rounding" in answer.note


def test_jacobian_on_the_limit():
    """J = 0.1 * 3 in real numbers, above the float 0.3."""
    net = rs.Network([([[3.0]], [0.0]), ([[0.1]], None)])
    law = rs.Gaussian([0.0])
    value = 0.5 if Fraction(0.1) * 3 > Fraction(0.30000000000000004) else 0.0
    for guarantee in ("exact", "sound", "confidence"):
        answer = rs.probability(net, law, "J[0,0] > 0.30000000000000004", guarantee=guarantee, budget="1s", rng=0)
        assert answer.lower <= value <= answer.upper


def test_confidence_decides_points_on_the_limit():
    """Five dimensions, y = 0.1 + 0.3 on half of them: a real number below the float 0.4 that it rounds to."""
    W = np.zeros((2, 5))
    W[0], W[1, 0] = 1.0, 0.0
    net = rs.Network([(W, [0.0, 0.1]), ([[1.0, 1.0]], [0.3])])
    below = Fraction(0.1) + Fraction(0.3) < Fraction(0.4)
    law = rs.Gaussian(np.zeros(5), np.diag(np.arange(1.0, 6.0)) + 0.5)
    for event, value in (("y[0] < 0.4 and x[0] < 100", 0.5 * below), ("y[0] >= 0.4 or x[1] > 100", 1 - 0.5 * below)):
        answer = rs.probability(net, law, event, guarantee="confidence", level=1 - 1e-9, budget="1s", rng=0)
        assert answer.lower <= value <= answer.upper and answer.width < 0.3


# -- scales -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [-160, -100, 100, 160])
@pytest.mark.parametrize("act", ["relu", "abs", "hardtanh", "leaky_relu"])
def test_extreme_weights(power, act):
    scale = 10.0**power
    net = rs.Network(
        [(np.array([[1.0], [-0.5]]) * scale, np.array([0.25, 0.5]) * scale), ([[1.0, -2.0]], [0.1 * scale])], act
    )
    share = Share(Fraction(1), (Fraction(0),), ((Fraction(1),),), (Axis("normal"),))
    for limit in (0.0, 0.3 * scale, -0.7 * scale, 1.5):
        truth, _ = probability(net, [share], ("row", {("y", 0): 1.0}, ">", limit))
        answer = exact(net, rs.Gaussian([0.0]), f"y[0] > {limit!r}")
        assert answer.lower <= truth <= answer.upper and answer.width < 1e-9


def test_a_far_box_of_huge_sides():
    net = rs.Network([([[1.0, 2.0], [1.0, -1.0]], [0.0, 1e60]), ([[1.0, 1.0]], None)])
    law = rs.Uniform([0.0, 1e60], [1e60, 3e60])
    low, high = (Fraction(float(v)) for v in (1e60, 3e60))
    share = Share(
        Fraction(1), (Fraction(0), Fraction(0)), ((Fraction(1), Fraction(0)), (Fraction(0), Fraction(1))),
        (Axis("uniform", Fraction(0), low), Axis("uniform", low, high)),
    )  # fmt: skip
    truth, _ = probability(net, [share], ("row", {("y", 0): 1.0}, ">", 5e60))
    answer = exact(net, law, "y[0] > 5e60")
    assert 0.1 < truth < 0.9 and answer.lower <= truth <= answer.upper and answer.width < 1e-11


def test_brackets_do_not_depend_on_units():
    """The same question in metres and in other units: the slabs of rounding grew with the longest side."""
    net = random_net((4, 10, 10, 2), 1)
    plain = exact(net, rs.Uniform(-np.ones(4), np.ones(4)), "y[0] > y[1] + 1")
    unit, start = np.array([60261.0, 6.28, 1100.0, 0.01]), np.array([19791.0, 0.0, 650.0, 5.0])
    first = net.layers[0]
    W = first.dense() / unit
    moved = rs.Network([(W, first.bias - W @ start), *[(layer.weight, layer.bias) for layer in net.layers[1:]]])
    other = exact(moved, rs.Uniform(start - unit, start + unit), "y[0] > y[1] + 1")
    assert 1e-3 < plain.value < 0.5 and plain.value == pytest.approx(other.value, rel=1e-9)
    assert plain.width < 1e-9 and other.width < 100 * plain.width


def test_a_far_mean_cancels_against_the_bias():
    """W m + b = 2^-20 in real numbers where W m is 1e9: rounded before the sum it would be off by 1e-7."""
    mean = 1e9 / 3
    weight = 3.0 + 2.0**-30
    bias = -float(Fraction(weight) * Fraction(mean))
    net = rs.Network([([[weight]], [bias]), ([[1.0]], None)])
    sd = 2.0**-24
    share = Share(Fraction(1), (Fraction(mean),), ((Fraction(sd),),), (Axis("normal"),))
    truth, _ = probability(net, [share], ("row", {("y", 0): 1.0}, ">", 0.0))
    answer = exact(net, rs.Gaussian([mean], [sd**2]), "y[0] > 0")
    assert answer.lower <= truth <= answer.upper and answer.width < 1e-9


def test_confidence_in_one_dimension_is_the_exact_engine():
    net = rs.Network([([[1e6], [1e6]], [1.0, -1e6]), ([[1.0, -1.0]], [-2e5])])
    share = Share(Fraction(1), (Fraction(0),), ((Fraction(1),),), (Axis("normal"),))
    truth, _ = probability(net, [share], ("row", {("y", 0): 1.0}, ">", 0.25))
    answer = rs.probability(net, rs.Gaussian([0.0]), "y[0] > 0.25", guarantee="confidence", rng=0)
    assert 0.01 < truth < 0.99 and answer.guarantee == "exact"
    assert answer.lower <= truth <= answer.upper and answer.width < 1e-10


@pytest.mark.parametrize("shift", [1e6, 1e6 / 3, 7e5, 1e5 / 7])
def test_events_on_units_hold_the_truth(shift):
    """A unit's switch is the edge of the event, and off by rounding: here large values cancel before it."""
    net = rs.Network([([[1.0], [1.5]], [shift, shift]), ([[1.0, -1.0], [0.3, 0.1]], [0.1, 0.0]), ([[1.0, 1.0]], None)])
    share = Share(Fraction(1), (Fraction(0.1),), ((Fraction(1),),), (Axis("normal"),))
    truth, _ = probability(net, [share], ("unit", 1, 0, "==", 1))
    for guarantee in ("exact", "sound"):
        answer = rs.probability(net, rs.Gaussian([0.1]), "unit[1,0] on", guarantee=guarantee)
        assert answer.lower <= truth <= answer.upper and 1e-12 < answer.width < 1e-7


# -- witness and probability ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [6.0, 7.5, 30.0])
def test_a_rare_unit_has_a_witness(far):
    net = rs.Network([([[1.0], [0.3]], [-far, 0.1]), ([[1.0, 0.5]], None)])
    law = rs.Gaussian([0.1])
    answer = exact(net, law, "unit[0,0] on")
    found = rs.witness(net, law, "unit[0,0] on", rng=0, budget="2s")
    assert answer.lower > 0 and len(found) == 1 and not found.proved_empty
    assert net.pattern(found.x)[0] == 1


@pytest.mark.parametrize("seed", [3078, 3229, 8879, 11130])
def test_nothing_is_proved_empty_that_has_a_probability(seed):
    """Problems of the campaign with events on units, as thin as rounding."""
    p = problem(seed)
    truth, _ = probability(p.net, p.shares, p.formula)
    answer = exact(p.net, p.law, p.text)
    found = rs.witness(p.net, p.law, p.text, rng=0, budget="1s")
    assert 0 < truth < 1e-10 and answer.lower <= truth <= answer.upper
    assert not found.proved_empty


def test_witnesses_stay_in_the_support():
    """The nearest input is on the law's side, which the standard coordinate rounds."""
    law = rs.Truncated(rs.Gaussian([0.0], [9.0]), [-6.0], [-4.5])
    found = rs.witness(LINE, law, "x[0] <= 1", rng=155, budget="1s")
    assert len(found) == 1 and (found.x >= -6.0).all() and (found.x <= -4.5).all()


def test_derivatives_without_a_path_are_zero_and_take_no_fractions(monkeypatch):
    """Where every path has a unit that is off, the derivative is 0 for certain: no doubt, however large the network."""
    from reluscope.answers import _edges

    monkeypatch.setattr(_edges, "_MOST_WORK", 0)
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=(6, 2)), rng.normal(size=6)), (-np.abs(rng.normal(size=(5, 6))), np.full(5, 0.2))]
    net = rs.Network([*layers, (rng.normal(size=(1, 5)), [0.3])])
    law = rs.Uniform([-2, -2], [2, 2])
    answer = rs.probability(net, law, "J[0,0] < 0", guarantee="exact")
    J = net.jacobian(law.sample(200_000, 0))[:, 0, 0]
    assert 0.05 < (J == 0).mean() < 0.95 and answer.upper - answer.lower < 1e-9
    assert abs(answer.value - (J < 0).mean()) < 5 * np.sqrt(0.25 / 200_000)
    zero = rs.probability(net, law, "J[0,0] >= 0 and J[0,0] <= 0", guarantee="exact")
    assert abs(zero.value - (J == 0).mean()) < 5 * np.sqrt(0.25 / 200_000)
