"""How likely linear models and decisions change, against closed forms, one-dimensional integrals and pairs of draws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from nets import random_net
from reluscope import Gaussian, GaussianMixture, InputError, Network, Particles, Truncated, Uniform
from reluscope.answers._patterns import enumerated_patterns
from reluscope.answers.change import change

SURE = 1 - 1e-9  # every interval below misses with at most this probability, and the seeds are fixed
LAW = Gaussian([0.3, -0.2], [[1.0, 0.4], [0.4, 0.7]])
MIX = GaussianMixture([0.3, 0.7], [LAW, Gaussian([1.0, 1.0], 0.5)])


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before anything is timed: a budget in seconds counts compilation too."""
    for d in (1, 2, 3):
        enumerated_patterns(random_net([d, 3, 1]), Gaussian(np.zeros(d)), None)
        enumerated_patterns(random_net([d, 3, 1]), Uniform(-np.ones(d), 1.0), None)


def relu_of(*row):
    """y = relu(row . x): the function changes with the sign of row . x."""
    return Network([([list(row)], None), ([[1.0]], None)])


def holds(answer, truth):
    return answer.lower <= truth <= answer.upper


@pytest.mark.parametrize("method", ["enumeration", "draws"])
@pytest.mark.parametrize("rho", [0.0, 0.6, -0.9])
def test_redrawn_gaussian_closed_form(method, rho):
    """s and s' have correlation rho^2 given nothing, so their signs differ with probability acos(rho^2) / pi."""
    law = Gaussian([0.0, 0.0], [[1.0, rho], [rho, 1.0]])
    found = change(relu_of(0.0, 1.0), law, [1], method=method, draws=20_000, level=SURE, rng=0)
    truth = math.acos(rho**2) / math.pi
    assert holds(found.linear_model, truth) and holds(found.pattern, truth) and found.decision is None
    if method == "enumeration":
        assert found.linear_model.guarantee == "exact" and float(found) == pytest.approx(truth, rel=1e-9)
    # the other input does not reach the unit
    other = change(relu_of(0.0, 1.0), law, [0], method=method, draws=2000, rng=0)
    assert float(other) == 0.0


@pytest.mark.parametrize("method", ["enumeration", "draws"])
def test_everything_redrawn(method):
    law = Gaussian([0.5])
    p = norm.cdf(0.5)
    found = change(relu_of(1.0), law, [0], method=method, draws=20_000, level=SURE, rng=1)
    assert holds(found.linear_model, 2 * p * (1 - p))
    net = random_net([2, 6, 6, 3], 1)
    masses = enumerated_patterns(net, MIX, None).mass.value
    found = change(net, MIX, [0, 1], method=method, draws=20_000, level=SURE, rng=1)
    assert holds(found.pattern, 1 - (masses**2).sum())


@pytest.mark.parametrize("method", ["enumeration", "draws"])
def test_noise_closed_form(method):
    """x and x + e have correlation 1 / sqrt(1 + t^2)."""
    found = change(relu_of(1.0), Gaussian([0.0]), noise=0.5, method=method, draws=20_000, level=SURE, rng=1)
    truth = math.acos(1 / math.sqrt(1.25)) / math.pi
    assert holds(found.linear_model, truth)
    shifted = change(relu_of(1.0), Gaussian([0.0]), noise=Gaussian([1.0], 0.0), method=method, level=SURE, rng=2)
    assert holds(shifted.linear_model, norm.cdf(1.0) - 0.5)
    mixture = GaussianMixture([0.25, 0.75], [Gaussian([-1.0]), Gaussian([1.0])])
    moved = change(relu_of(1.0), mixture, noise=Gaussian([1.0], 0.0), method=method, level=SURE, rng=3)
    truth = 0.25 * (norm.cdf(1) - norm.cdf(0)) + 0.75 * (norm.cdf(-1) - norm.cdf(-2))
    assert holds(moved.linear_model, truth)


def test_uniform_closed_form():
    """h = a + s on [-1, 1]^2: given a the unit is on with q = (1 + a) / 2, and E 2 q (1 - q) = 1/3."""
    law = Uniform([-1.0, -1.0], 1.0)
    exact = change(relu_of(1.0, 1.0), law, [1])
    assert exact.linear_model.guarantee == "exact" and float(exact) == pytest.approx(1 / 3, rel=1e-9)
    drawn = change(relu_of(1.0, 1.0), law, [1], method="draws", level=SURE, rng=0)
    assert holds(drawn.linear_model, 1 / 3)
    cut = Truncated(Gaussian([0.0, 0.0], [1.0, 1e6]), [-1.0, -1.0], 1.0)  # nearly uniform in the second input
    q, _ = quad(lambda a: norm.pdf(a) * (1 - a * a) / 2 / (norm.cdf(1) - norm.cdf(-1)), -1, 1)
    for method in ("enumeration", "draws"):
        found = change(relu_of(1.0, 1.0), cut, [1], method=method, level=SURE, rng=0)
        assert found.linear_model.lower - 1e-5 <= q <= found.linear_model.upper + 1e-5


def test_mixture_uses_the_exact_conditional():
    """q(a) = P(s > 0 | a) mixes the components by their posterior given a; P = E 2 q(a) (1 - q(a))."""
    parts = [
        Gaussian([-1.0, -1.0], [[1.0, 0.5], [0.5, 1.0]]),
        Gaussian([1.5, 1.0], [[0.5, -0.2], [-0.2, 0.8]]),
    ]
    law = GaussianMixture([0.15, 0.85], parts)

    def density(a, g):
        return norm.pdf(a, g.mean[0], g.sd[0])

    def above(a, g):
        slope = g.cov[0, 1] / g.cov[0, 0]
        sd = math.sqrt(g.cov[1, 1] - slope * g.cov[0, 1])
        return norm.cdf((g.mean[1] + slope * (a - g.mean[0])) / sd)

    def integrand(a):
        weights = [w * density(a, g) for w, g in law.components]
        q = sum(w * above(a, g) for w, (_, g) in zip(weights, law.components, strict=True)) / sum(weights)
        return sum(weights) * 2 * q * (1 - q)

    truth, _ = quad(integrand, -8, 8, limit=200)
    found = change(relu_of(0.0, 1.0), law, [1], draws=200_000, level=SURE, rng=4)
    assert holds(found.linear_model, truth) and found.linear_model.upper - found.linear_model.lower < 0.015
    same = sum(
        w * quad(lambda a, g=g: density(a, g) * 2 * above(a, g) * (1 - above(a, g)), -8, 8)[0]
        for w, g in law.components
    )
    assert not holds(found.linear_model, same)  # keeping the component would be another number


def test_a_unit_without_effect_changes_the_pattern_only():
    net = Network([([[1.0], [1.0]], [0.0, -0.5]), ([[1.0, 0.0]], None)])
    found = change(net, Gaussian([0.0]), [0])
    a, b = norm.cdf(0.0), norm.cdf(0.5)
    states = [a, b - a, 1 - b]
    assert found.pattern.value == pytest.approx(1 - sum(p * p for p in states), rel=1e-9)
    assert found.linear_model.value == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize("method", ["enumeration", "draws"])
def test_decisions(method):
    law = Gaussian([0.5, 0.0])
    options = {"method": method, "decision": True, "level": SURE, "rng": 0}
    two = Network([([[1.0, 0.0], [0.0, 1.0]], None)])  # an affine classifier: x0 against x1
    # x1 - x0 and x1' - x0 are normal with mean -0.5, variance 2 and covariance 1; P(signs differ) by one integral
    q, _ = quad(lambda a: norm.pdf(a, 0.5) * 2 * norm.cdf(a) * norm.cdf(-a), -8, 9)
    found = change(two, law, [1], **options)
    assert holds(found.decision, q) and found.linear_model.value == 0.0 and found.probability is found.decision
    sign = Network([([[1.0, 1.0]], None)])
    q, _ = quad(lambda a: norm.pdf(a, 0.5) * 2 * norm.cdf(a) * norm.cdf(-a), -8, 9)
    assert holds(change(sign, law, [1], **options).decision, q)
    p = norm.cdf(0.5 / math.sqrt(2))
    assert holds(change(sign, law, [0, 1], **options).decision, 2 * p * (1 - p))


def test_a_tie_goes_to_the_first_output():
    """Both outputs are 0 where the unit is off: output 0 decides there, output 1 where it is on."""
    net = Network([([[1.0]], None), ([[0.0], [1.0]], None)])
    for method in ("enumeration", "draws"):
        found = change(net, Gaussian([0.0]), [0], decision=True, method=method, level=SURE, rng=0)
        assert holds(found.decision, 0.5)


@pytest.mark.parametrize("features", [[0], [1], [0, 1]])
@pytest.mark.parametrize(
    "law", [LAW, Uniform([-1.0, -1.0], [1.0, 2.0]), Truncated(Gaussian([0.0, 0.0], [1.0, 2.0]), -1, 2)]
)
def test_the_two_methods_agree_on_a_network(law, features):
    """Whatever "auto" says it is, its bracket must meet that of many pairs of draws."""
    net = random_net([2, 4, 4, 3], 1)
    auto = change(net, law, features, decision=True, rng=0, level=SURE)
    drawn = change(net, law, features, decision=True, method="draws", draws=100_000, level=SURE, rng=1)
    for name in ("pattern", "linear_model", "decision"):
        a, b = getattr(auto, name), getattr(drawn, name)
        assert a.lower <= b.upper and b.lower <= a.upper, name
    assert auto.linear_model.value <= auto.pattern.value


def test_noise_on_a_network_agrees_with_draws():
    net = random_net([2, 4, 4, 3], 1)
    for law in (LAW, MIX):
        auto = change(net, law, [0], noise=0.3, decision=True, rng=0, level=SURE)
        drawn = change(net, law, [0], noise=0.3, decision=True, method="draws", draws=100_000, level=SURE, rng=1)
        for name in ("pattern", "linear_model", "decision"):
            a, b = getattr(auto, name), getattr(drawn, name)
            assert a.lower <= b.upper and b.lower <= a.upper, name


def test_particles_by_brute_force():
    rng = np.random.default_rng(0)
    points = rng.integers(-2, 3, (40, 2)).astype(float)
    weights = rng.dirichlet(np.ones(40))
    net = random_net([2, 3, 3, 3], 2, bias=1.0)
    found = change(net, Particles(points, weights), [0], decision=True)
    pattern, decision, local = net.pattern(points), net(points).argmax(axis=1), net.local(points)
    total = {"pattern": 0.0, "linear_model": 0.0, "decision": 0.0}
    for i, j in itertools.product(range(40), repeat=2):
        if points[i, 1] == points[j, 1]:
            mass = weights[i] * weights[j] / weights[points[:, 1] == points[i, 1]].sum()
            total["pattern"] += mass * (pattern[i] != pattern[j]).any()
            total["decision"] += mass * (decision[i] != decision[j])
            same = np.allclose(local.C[i], local.C[j], atol=1e-12) and np.allclose(local.d[i], local.d[j], atol=1e-12)
            total["linear_model"] += mass * (not same)
    for name, value in total.items():
        assert getattr(found, name).value == pytest.approx(value, abs=1e-12)
    assert found.pattern.guarantee == "exact"


def test_singular_covariance_and_determined_inputs():
    """s is a copy of a: re-drawing it given a changes nothing."""
    law = Gaussian([0.0, 0.0], factor=[[1.0], [1.0]])
    for method in ("enumeration", "draws"):
        assert float(change(relu_of(1.0, 1.0), law, [1], method=method, draws=1000, rng=0)) == 0.0


def test_many_inputs_and_the_seed():
    rng = np.random.default_rng(0)
    net = random_net([60, 20, 20, 4], 0)
    law = Gaussian(rng.normal(size=60), factor=rng.normal(size=(60, 60)) / 8)
    a, b = (change(net, law, [0, 5], decision=True, draws=2000, rng=3) for _ in range(2))
    assert a.to_dict() == b.to_dict() and a.linear_model.guarantee == "confidence"
    assert 0 < a.decision.value < a.pattern.value and "re-drawn" in repr(a)
    # the unchanged inputs are kept to the bit: nothing to see when only unseen inputs are drawn
    blind = Network([(np.eye(1, 60), None), ([[1.0]], None)])
    assert float(change(blind, law, [3], draws=500, rng=0)) == 0.0


NET = random_net([2, 3, 2], 0)
WIDE = random_net([6, 6, 2], 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: change(None, LAW, [0]), "net must be a Network"),
        (lambda: change(NET, 1.0, [0]), "law must be"),
        (lambda: change(NET, LAW), "features must name what to re-draw"),
        (lambda: change(NET, LAW, []), "at least one input"),
        (lambda: change(NET, LAW, [0, 0]), "each once"),
        (lambda: change(NET, LAW, [2]), "features must be between 0 and 1"),
        (lambda: change(NET, LAW, "0"), "features names '0', but net has no schema"),
        (lambda: change(NET, LAW, 1), "features must be the name of a column or a list of input indices"),
        (lambda: change(NET, LAW, [0.5]), "features must be a whole number"),
        (lambda: change(NET, LAW, [0], decision="yes"), "decision must be True or False"),
        (lambda: change(NET, LAW, [0], noise=-1.0), "noise must be a standard deviation"),
        (lambda: change(NET, LAW, [0], noise=[1.0, 2.0]), "noise must be a standard deviation"),
        (lambda: change(NET, LAW, [0], noise=LAW), "noise must be a law of 1 inputs"),
        (lambda: change(NET, LAW, [0], noise="loud"), "noise must hold real numbers"),
        (lambda: change(NET, LAW, [0], method="pairs"), "method must be one of"),
        (lambda: change(NET, LAW, [0], draws=0), "draws must be at least 1"),
        (lambda: change(NET, LAW, [0], level=2), "level must be"),
        (lambda: change(WIDE, Gaussian(np.zeros(6)), [0], method="enumeration"), "at most 3 dimensions"),
        (lambda: change(NET, MIX, [0], method="enumeration"), "no conditional mixture"),
        (
            lambda: change(NET, GaussianMixture([0.5, 0.5], [Gaussian([0.0, 0.0], [1.0, 0.0]), LAW]), [0]),
            "have no density in some component",
        ),
        (lambda: change(NET, Truncated(LAW, -1, 1), [0]), "correlated truncated law"),
    ],
)
def test_bad_inputs(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_many_inputs_are_not_cut_off_in_silence():
    net = random_net((23, 4, 1), 0)
    X = np.random.default_rng(0).normal(size=(50, 23))
    one, some, many = (repr(change(net, Particles(X), list(range(k)), how="marginal")) for k in (1, 3, 12))
    assert "input 0 " in one and "inputs 0, 1, 2 " in some
    assert "inputs 0, 1, 2, 3, 4, 5, 6, 7 and 4 more" in many


def test_what_is_assumed_about_the_decision_is_said():
    rng = np.random.default_rng(0)
    net = Network([(rng.normal(size=(4, 2)), np.zeros(4)), (rng.normal(size=(2, 4)), np.zeros(2))])
    law = Gaussian(np.zeros(2))
    found = change(net, law, [0], decision=True, rng=0)
    assert "the largest output decides" in found.assumption
    assert found.assumption in repr(found)
    assert found.assumption in found.decision.note
    assert change(net, law, [0], rng=0).assumption == ""
    one = Network([(rng.normal(size=(4, 2)), np.zeros(4)), (rng.normal(size=(1, 4)), np.zeros(1))])
    assert change(one, law, [0], decision=True, rng=0).assumption == ""
