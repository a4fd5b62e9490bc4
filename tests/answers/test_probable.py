"""The most probable patterns and their certificate, against complete enumeration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

import reluscope.answers._probable_search as module
import reluscope.measure.regions as masses_room
from nets import integer_net, random_net
from reluscope import Gaussian, GaussianMixture, InputError, Network, Particles, Truncated, Uniform
from reluscope.answers._patterns import enumerated_patterns
from reluscope.answers._probable_draws import most_mass_with
from reluscope.answers.linear_models import linear_models
from reluscope.answers.probable import probable

SURE = 1 - 1e-9  # every interval below misses with at most this probability, and the seeds are fixed
LAW = Gaussian([0.3, -0.2], [[1.0, 0.4], [0.4, 0.7]])
MIX = GaussianMixture([0.3, 0.7], [LAW, Gaussian([1.0, 1.0], 0.5)])
LAWS = {
    "gaussian": LAW,
    "mixture": MIX,
    "uniform": Uniform([-1.0, -1.0], [1.0, 2.0]),
    "truncated": Truncated(Gaussian([0.0, 0.0], [1.0, 2.0]), -1, [1.0, np.inf]),
    "correlated truncated": Truncated(LAW, -1, [1.0, np.inf]),
    "singular": Gaussian([0.1, 0.2], factor=[[1.0], [0.5]]),
}
NET = random_net([2, 12, 12, 3], 1)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before anything is timed: a budget in seconds counts compilation too."""
    for d in (1, 2, 3):
        enumerated_patterns(random_net([d, 3, 1]), Gaussian(np.zeros(d)), None)
        enumerated_patterns(random_net([d, 3, 1]), Uniform(-np.ones(d), 1.0), None)
    probable(random_net([4, 3, 2, 1]), Gaussian(np.zeros(4)), k=1, method="search", budget=None, rng=0)


def ordered(net, law):
    found = enumerated_patterns(net, law, None)
    order = np.argsort(-found.mass.value, kind="stable")
    return {net.key(p): v for p, v in zip(found.pattern, found.mass.value, strict=True)}, found.mass.value[order]


def check_certificate(found, masses, tolerance=1e-9):
    """Everything a `Probable` claims, against the masses of all patterns."""
    keys = [found.network.key(p) for p in found.pattern]
    assert len(set(keys)) == len(keys)
    truth = np.array([masses.get(key, 0.0) for key in keys])
    assert (found.mass.lower <= truth + tolerance).all() and (truth <= found.mass.upper + tolerance).all()
    assert found.total.lower - tolerance <= truth.sum() <= found.total.upper + tolerance
    assert found.left.lower - tolerance <= 1 - truth.sum() <= found.left.upper + tolerance
    rest = max((v for k, v in masses.items() if k not in set(keys)), default=0.0)
    assert rest <= found.next.upper + tolerance
    best = sorted(masses.values(), reverse=True)
    n = found.ranked
    np.testing.assert_allclose(sorted(truth[:n], reverse=True), best[:n], atol=tolerance)
    assert (np.diff(found.mass.value) <= 1e-12).all()


@pytest.mark.parametrize("name", LAWS)
def test_search_finds_the_k_most_probable(name):
    law = LAWS[name]
    masses, best = ordered(NET, law)
    found = probable(NET, law, k=15)
    assert found.reached and len(found) == 15 and found.mass.guarantee == "exact" and found.ranked == 15
    np.testing.assert_allclose(found.mass.value, best[:15], rtol=1e-9)
    if name != "mixture":  # there the bounds of the components are added up
        assert found.next.upper == pytest.approx(best[15], rel=1e-9)
    check_certificate(found, masses)


def test_order_is_right_for_every_k(monkeypatch):
    """Patterns come out one by one: none may pass a prefix that is heavier, however many are continued at once."""
    net = random_net([2, 3, 3, 3, 3, 3, 1], 5, bias=0.5)
    _, best = ordered(net, LAW)
    for at_once in (5, 1000):
        monkeypatch.setattr(module, "_AT_ONCE", at_once)
        for k in range(1, len(best) + 1, 2):
            np.testing.assert_allclose(probable(net, LAW, k=k).mass.value, best[:k], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("target", [0.5, 0.95, 1.0])
def test_search_reaches_a_mass(name, target):
    law = LAWS[name]
    masses, best = ordered(NET, law)
    found = probable(NET, law, mass=target)
    assert found.reached and found.total.value >= target - 1e-9
    fewest = int(np.searchsorted(np.cumsum(best), target - 1e-12)) + 1
    if name != "mixture" and target < 1:
        assert len(found) == fewest
    check_certificate(found, masses)


def test_closed_form():
    """Two thresholds on a line: P(off, off), P(on, off), P(on, on) = 0.5, Phi(1) - 0.5, Phi(-1)."""
    net = Network([([[1.0], [1.0]], [0.0, -1.0]), ([[1.0, 1.0]], None)])
    found = probable(net, Gaussian([0.0]), mass=0.9)
    assert found.pattern.tolist() == [[0, 0], [1, 0], [1, 1]]
    np.testing.assert_allclose(found.mass.value, [0.5, norm.cdf(1) - 0.5, norm.cdf(-1)], rtol=1e-12)
    pattern, answer = found[0]
    assert pattern.tolist() == [0, 0] and answer.value == pytest.approx(0.5) and len(list(found)) == 3
    short = probable(net, Gaussian([0.0]), mass=0.8)
    assert len(short) == 2 and short.next.upper == pytest.approx(norm.cdf(-1))
    assert short.to_dict()["pattern"] == ["00", "10"]
    more = probable(net, Gaussian([0.0]), k=7)
    assert len(more) == 3 and not more.reached and "fewer" in more.stopped and more.next.upper == 0


def test_the_heaviest_is_not_where_the_marginals_point():
    """Anticorrelated units: each is likelier on, but the joint masses decide."""
    net = Network([([[1.0, 0.0], [-1.0, 0.1]], [0.1, 0.1]), ([[1.0, 1.0]], None)])
    law = Gaussian([0.0, 0.0])
    _, best = ordered(net, law)
    found = probable(net, law, k=1)
    assert found.pattern[0].tolist() != [1, 1] and found.mass.value[0] == pytest.approx(best[0])


def test_a_budget_ends_the_search_with_a_true_certificate():
    masses, _ = ordered(NET, LAW)
    for budget in ("5 regions", "120 regions"):
        found = probable(NET, LAW, mass=0.999, budget=budget)
        assert not found.reached and "budget" in found.stopped
        check_certificate(found, masses)


def test_three_dimensions_agree_with_draws():
    net = random_net([3, 6, 6, 2], 4)
    law = Gaussian([0.1, 0.0, -0.2], [[1.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 0.5]])
    found = probable(net, law, k=10)
    drawn = probable(net, law, k=10, method="draws", draws=50_000, level=SURE, rng=0)
    assert drawn.total.lower <= found.total.upper and found.total.lower <= drawn.total.upper + drawn.next.upper
    keys = {net.key(p): m for p, m in zip(drawn.pattern, drawn.mass.value, strict=True)}
    for p, m in zip(found.pattern[:3], found.mass.value, strict=False):
        assert m == pytest.approx(keys[net.key(p)], rel=1e-2)


def test_four_dimensions():
    net = random_net([4, 4, 3, 2], 2)
    law = Gaussian(np.zeros(4))
    searched = probable(net, law, k=4, method="search", rng=0)
    drawn = probable(net, law, k=4, draws=50_000, level=SURE, rng=0)
    assert searched.mass.guarantee == drawn.mass.guarantee == "confidence" and searched.mass.level == 0.99
    np.testing.assert_allclose(searched.mass.value, drawn.mass.value, rtol=1e-2)
    assert searched.total.lower <= drawn.total.upper and drawn.total.lower <= searched.total.upper
    assert searched.next.upper <= 2 * searched.mass.value[-1]


@pytest.mark.parametrize("name", ["gaussian", "mixture", "uniform"])
@pytest.mark.parametrize("target", [{"k": 10}, {"mass": 0.8}])
def test_certificate_of_draws(name, target):
    """All brackets hold together with probability above 1 - 1e-6."""
    law = LAWS[name]
    masses, _ = ordered(NET, law)
    found = probable(NET, law, **target, method="draws", draws=20_000, level=SURE, relative=0.01, rng=3)
    assert found.reached and found.total.guarantee == "confidence"
    check_certificate(found, masses, 1e-12)
    if "mass" in target:
        assert found.total.lower >= 0.8
    again = probable(NET, law, **target, method="draws", draws=20_000, level=SURE, relative=0.01, rng=3)
    np.testing.assert_array_equal(found.pattern, again.pattern)


def test_certificate_of_draws_in_five_dimensions():
    """60 seeded runs at 90 % against enumeration: `total` and `next` miss more than 16 times with probability 1e-4."""
    net, law = random_net((5, 4, 1), 3), Gaussian(np.full(5, 0.3))
    exact = linear_models(net, law, method="enumeration", relative=1e-3, rng=0)
    masses = dict(zip(net.key(exact.pattern).tolist(), exact.masses.value.tolist(), strict=True))
    misses = {"total": 0, "next": 0, "left": 0}
    for k in range(60):
        some = probable(net, law, k=6, draws=400, level=0.9, budget="0.001s", rng=k)
        listed = net.key(some.pattern).tolist()
        truth = sum(masses[key] for key in listed)
        others = max(m for key, m in masses.items() if key not in set(listed))
        misses["total"] += not some.total.lower <= truth <= some.total.upper
        misses["left"] += not some.left.lower <= 1 - truth <= some.left.upper
        misses["next"] += others > some.next.upper
    assert max(misses.values()) <= 16


def test_draws_that_cannot_show_the_target_say_so():
    net = random_net([8, 20, 20, 2], 0)
    found = probable(net, Gaussian(np.zeros(8)), mass=0.99, draws=200, rng=0, budget="1s")
    assert not found.reached and "draws do not show" in found.stopped and found.left.upper > 0.5
    few = probable(net, Gaussian(np.zeros(8)), k=10_000, draws=200, rng=0, budget="1s")
    assert not few.reached and "only" in few.stopped


@pytest.mark.parametrize("draws", [100, 20_000])
def test_bound_on_patterns_by_their_count(draws):
    previous = 0.0
    for hits in (0, 1, 2, 10, 50):
        p = most_mass_with(hits, draws, 1e-3)
        assert previous < p <= 1.0
        if p < 1:
            assert binom.cdf(hits, draws, p) / p <= 1e-3 / ((hits + 1) * (hits + 2))
            assert binom.cdf(hits, draws, 0.99 * p) / p > 1e-3 / ((hits + 1) * (hits + 2)) * 0.5
        previous = p
    assert most_mass_with(draws, draws, 1e-3) == 1.0


def test_bound_by_count_holds_for_all_patterns_at_once():
    """30 equally likely states, 40 draws, risk 20 %: in 400 rounds at most 114 may break it (binomial, 1e-5)."""
    rng = np.random.default_rng(0)
    limits = np.array([most_mass_with(c, 40, 0.2) for c in range(41)])
    broken = 0
    for _ in range(400):
        counts = rng.multinomial(40, np.full(30, 1 / 30))
        broken += bool((limits[counts] < 1 / 30).any())
    assert broken <= 114
    assert limits[0] < 0.5


def test_masses_that_do_not_add_up_are_not_called_exact(monkeypatch):
    honest = masses_room.component_masses
    monkeypatch.setattr(
        masses_room, "component_masses", lambda *args: replace(honest(*args), value=0.9 * honest(*args).value)
    )
    found = probable(NET, LAW, k=3)
    assert found.mass.guarantee == "sound"


def test_particles_may_be_searched():
    law = Particles(np.random.default_rng(0).normal(size=(20, 2)))
    assert len(probable(NET, law, k=2, method="search")) == 2


def test_particles_and_affine_networks():
    points = np.random.default_rng(0).normal(size=(200, 2))
    law = Particles(points)
    masses, best = ordered(NET, law)
    found = probable(NET, law, k=5)
    np.testing.assert_allclose(found.mass.value, best[:5])
    check_certificate(found, masses)
    assert probable(NET, law, mass=1.0).total.value == pytest.approx(1.0)
    affine = probable(Network([([[1.0, 2.0]], None)]), LAW)
    assert len(affine) == 1 and affine.pattern.shape == (1, 0) and affine.total.value == 1.0


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([[1, 4, 3, 1], [2, 4, 4, 1], [2, 3, 3, 3, 1]]), st.integers(1, 12))
def test_degenerate_networks(seed, widths, k):
    """Whole-number weights: parallel, coincident and dead units."""
    net = integer_net(widths, seed)
    law = Gaussian(np.zeros(widths[0]), np.arange(1.0, widths[0] + 1))
    masses, best = ordered(net, law)
    found = probable(net, law, k=k)
    np.testing.assert_allclose(found.mass.value, best[: len(found)], atol=1e-10)
    assert len(found) == min(k, np.count_nonzero(best > 0))
    check_certificate(found, masses)


def test_other_activations():
    net = random_net([2, 5, 4, 1], 2, "hardtanh")
    masses, best = ordered(net, LAW)
    found = probable(net, LAW, k=6)
    np.testing.assert_allclose(found.mass.value, best[:6], rtol=1e-9)
    check_certificate(found, masses)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: probable([], LAW), "net must be a Network"),
        (lambda: probable(NET, {}), "law must be"),
        (lambda: probable(NET, LAW, mass=0.9, k=3), "either mass or k"),
        (lambda: probable(NET, LAW, mass=1.1), "mass must be"),
        (lambda: probable(NET, LAW, mass="all"), "mass must be a real number"),
        (lambda: probable(NET, LAW, k=0), "k must be at least 1"),
        (lambda: probable(NET, LAW, k=2.0), "k must be a whole number"),
        (lambda: probable(NET, LAW, method="best"), "method must be one of"),
        (lambda: probable(NET, LAW, draws=1), "draws must be at least 10"),
        (lambda: probable(NET, LAW, relative=0), "relative must be"),
        (lambda: probable(NET, LAW, level=1), "level must be"),
        (lambda: probable(NET, LAW, budget=-1), "budget must be like"),
        (lambda: probable(NET, LAW, k=1)[5], "i must be between"),
        (
            lambda: probable(random_net([9, 9, 1]), Gaussian(np.zeros(9)), method="search"),
            "at most 6 dimensions",
        ),
    ],
)
def test_bad_inputs(call, words):
    with pytest.raises(InputError, match=words):
        call()
