"""The law of the Jacobian's singular values, against closed forms, direct decompositions and its own other method."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

import reluscope.answers.spectrum as module
from nets import random_net
from reluscope import Gaussian, GaussianMixture, InputError, Network, Particles, Uniform
from reluscope.answers._patterns import enumerated_patterns
from reluscope.answers.linear_models import linear_models
from reluscope.answers.spectrum import spectrum
from reluscope.answers.support import support

PHI = NormalDist().cdf
SURE = 1 - 1e-9  # every interval below misses with at most this probability, and the seeds are fixed
LAW = Gaussian([0.3, -0.2], [[1.0, 0.4], [0.4, 0.7]])


def holds(answer, truth):
    return answer.lower <= truth <= answer.upper


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before anything is timed: a budget in seconds counts compilation too."""
    for d in (1, 2, 3):
        enumerated_patterns(random_net([d, 3, 1]), Gaussian(np.zeros(d)), None)
        enumerated_patterns(random_net([d, 3, 1]), Uniform(-np.ones(d), 1.0), None)


@pytest.fixture(scope="module")
def one_unit():
    """y = 3 relu(2 x): s = 6 with probability Phi(mu), else 0."""
    return Network([([[2.0]], [0.0]), ([[3.0]], [1.0])])


@pytest.mark.parametrize("method", ["enumeration", "draws"])
@pytest.mark.parametrize("mu", [0.4, -0.4])
def test_one_unit_closed_form(one_unit, method, mu):
    s = spectrum(one_unit, Gaussian([mu]), method=method, draws=4000, level=SURE, rng=0)
    p = PHI(mu)
    assert holds(s.tail(1.0), p) and holds(s.cdf(0.0), 1 - p) and holds(s.cdf(6.0), 1.0) and holds(s.tail(6.0), 0.0)
    assert holds(s.mean(), 6 * p) and holds(s.quantile(0.5), 6.0 * (mu > 0)) and holds(s.quantile(0.99), 6.0)
    assert s.quantile(0.5).value == pytest.approx(6.0 * (mu > 0), abs=1e-12)
    assert abs(s.expected.jacobian[0, 0] - 6 * p) <= s.expected.error
    assert abs(s.expected.singular[0] - 6 * p) <= s.expected.error
    assert s.modal.pattern.tolist() == [int(mu > 0)] and holds(s.modal.mass, max(p, 1 - p)) and not s.modal.mass.note
    assert s.modal.singular[0] == pytest.approx(6.0 * (mu > 0))
    assert s.bound[0] == pytest.approx(6.0)
    h = s.histogram(bins=[-1.0, 3.0, 7.0])
    assert h.mass.lower[1] <= p <= h.mass.upper[1] and h.mass.value.sum() == pytest.approx(1.0)
    if method == "enumeration":
        assert s.tail(1.0).guarantee == "exact" and s.tail(1.0).value == pytest.approx(p, rel=1e-12)
        assert s.expected.error < 1e-10
    else:
        assert s.tail(1.0).guarantee == "confidence" and s.tail(1.0).level == SURE


def test_expected_jacobian_is_not_the_one_at_the_modal_pattern():
    """y = |x|: J is -1 or 1, so E J = 2 Phi(mu) - 1 has a small singular value while every Jacobian has 1."""
    s = spectrum(Network([([[1.0]], None, "abs"), ([[1.0]], None)]), Gaussian([0.1]))
    assert s.mean().value == pytest.approx(1.0) and s.modal.singular[0] == pytest.approx(1.0)
    assert s.expected.singular[0] == pytest.approx(2 * PHI(0.1) - 1)


@pytest.mark.parametrize("widths", [[30, 6, 5, 3], [3, 8, 8, 7], [8, 8, 3, 8], [4, 9, 1]])
def test_values_are_those_of_a_direct_decomposition(widths):
    net = random_net(widths, 3)
    X = np.random.default_rng(0).normal(size=(60, widths[0]))
    s = spectrum(net, Particles(X))
    direct = np.linalg.svd(net.jacobian(X), compute_uv=False)
    for rank in range(s.ranks):
        np.testing.assert_allclose(s.mean(rank).value, direct[:, rank].mean(), rtol=1e-10, atol=1e-13)
        assert s.mean(rank).guarantee == "exact"
        assert (direct[:, rank] <= s.bound[rank] + 1e-12).all()
    np.testing.assert_allclose(s.expected.jacobian, net.jacobian(X).mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(s.modal.jacobian.shape, (widths[-1], widths[0]))


def test_small_batches_change_nothing(monkeypatch):
    net = random_net([30, 6, 5, 3], 3)
    law = Particles(np.random.default_rng(0).normal(size=(50, 30)))
    whole = spectrum(net, law)
    monkeypatch.setattr(module, "_JACOBIAN_NUMBERS", 1)
    parts = spectrum(net, law)
    np.testing.assert_allclose(parts.singular, whole.singular, atol=1e-13)
    np.testing.assert_allclose(parts.expected.jacobian, whole.expected.jacobian, atol=1e-13)


def test_values_are_in_the_original_input():
    """x = 2 z makes the same function of z twice as steep, whatever coordinates the work is done in."""
    net = random_net([2, 5, 5, 2], 1)
    scaled = net.after(2 * np.eye(2), np.zeros(2))
    a, b = spectrum(net, LAW), spectrum(scaled, Gaussian(LAW.mean / 2, LAW.cov / 4))
    for rank in (0, 1):
        assert b.mean(rank).value == pytest.approx(2 * a.mean(rank).value, rel=1e-9)
        assert b.quantile(0.9, rank).value == pytest.approx(2 * a.quantile(0.9, rank).value, rel=1e-9)


@pytest.mark.parametrize(
    "law", [LAW, GaussianMixture([0.3, 0.7], [LAW, Gaussian([1.0, 1.0], 0.5)]), Uniform([-1.0, -1.0], [1.0, 2.0])]
)
def test_draws_agree_with_enumeration(law):
    net = random_net([2, 6, 6, 2], 1)
    a = spectrum(net, law)
    b = spectrum(net, law, method="draws", draws=5000, level=SURE, rng=2)
    assert a.stopped is None
    for rank in (0, 1):
        for q in (0.1, 0.5, 0.9):
            assert holds(b.quantile(q, rank), a.quantile(q, rank).value)
            t = 1.1 * a.quantile(q, rank).value + 0.01
            assert holds(b.cdf(t, rank), a.cdf(t, rank).value)
        assert holds(b.mean(rank), a.mean(rank).value)
    gap = np.linalg.norm(a.expected.jacobian - b.expected.jacobian, 2)
    assert gap <= b.expected.error < 4 * np.linalg.norm(a.bound)
    t, value, low, high = b.band()
    truth = np.array([a.cdf(x + 1e-9).value for x in t])
    assert (low <= truth).all() and (truth <= high).all() and (np.diff(value) >= 0).all()


def test_intervals_hold_as_often_as_they_say():
    """500 repetitions of 30 draws at 80 %: misses are binomial with p <= 0.2; more than 142 has probability 1e-5."""
    net = Network([([[1.0]], [0.0]), ([[1.0]], None)])
    law = Gaussian([0.5])
    p = PHI(0.5)
    rng = np.random.default_rng(5)
    missed = np.zeros(4, int)
    for _ in range(500):
        s = spectrum(net, law, method="draws", draws=30, level=0.8, rng=rng)
        missed += [
            not holds(s.tail(0.5), p),
            not holds(s.mean(), p),
            not holds(s.quantile(0.3), 0.0 if p <= 0.7 else 1.0),
            abs(s.expected.jacobian[0, 0] - p) > s.expected.error,
        ]
    assert (missed <= 142).all(), missed


def test_quantile_intervals_hold_as_often_as_they_say():
    """As above, for quantiles of a value that takes many levels: 400 repetitions, more than 119 misses: 3e-6."""
    net = random_net([2, 8, 8, 1], 1)
    exact = spectrum(net, LAW)
    levels = (0.3, 0.7, 0.9)
    truth = [exact.quantile(q).value for q in levels]
    assert len(exact.weight) > 40
    rng = np.random.default_rng(6)
    missed = np.zeros(3, int)
    for _ in range(400):
        s = spectrum(net, LAW, method="draws", draws=60, level=0.8, rng=rng)
        missed += [not holds(s.quantile(q), t) for q, t in zip(levels, truth, strict=True)]
    assert (missed <= 119).all(), missed


def test_within_a_set_masses_are_divided_by_that_of_the_set():
    net = random_net([2, 5, 4, 2], 3)
    chosen = support(net, LAW, 0.2, 3)
    found = spectrum(net, LAW, within=chosen)
    listed = linear_models(net, LAW)
    inside = chosen.contains(listed.pattern)
    assert 0 < inside.sum() < len(inside)
    mass = listed.masses.value[inside] / listed.masses.value[inside].sum()
    # Singular values of each Jacobian by numpy, weights from the law over linear models: nothing in common but the set.
    values = np.linalg.svd(net.output_maps(listed.pattern[inside])[0], compute_uv=False)
    assert found.mean().value == pytest.approx(float(mass @ values[:, 0]), rel=1e-9)
    t = float(np.median(values[:, 0]))
    assert holds(found.tail(t + 1e-6), float(mass[values[:, 0] > t + 1e-6].sum()))
    assert found.tail(t + 1e-6).guarantee == "exact"
    drawn = spectrum(net, LAW, within=chosen, method="draws", draws=4000, level=SURE, rng=0)
    assert "of 4,000 draws in the set" in drawn.method
    assert drawn.draws < 4000 and holds(drawn.tail(t + 1e-6), float(mass[values[:, 0] > t + 1e-6].sum()))
    assert holds(drawn.mean(), float(mass @ values[:, 0]))
    assert np.linalg.norm(drawn.expected.jacobian - found.expected.jacobian, 2) <= drawn.expected.error + 1e-9


def test_within_a_set_after_a_budget_is_sound():
    net = random_net([2, 12, 12, 2], 4)
    chosen = support(net, LAW, 0.3, 6)
    whole = spectrum(net, LAW, within=chosen)
    part = spectrum(net, LAW, within=chosen, method="enumeration", budget="60 regions")
    assert part.stopped
    for t in np.quantile(whole.singular[:, 0], [0.2, 0.5, 0.8]).tolist():
        assert part.cdf(t).lower <= whole.cdf(t).upper and part.cdf(t).upper >= whole.cdf(t).lower


def test_histogram_and_band_add_up():
    s = spectrum(random_net([2, 6, 6, 2], 1), LAW)
    h = s.histogram(bins=7)
    assert h.mass.guarantee == "exact" and h.mass.value.sum() == pytest.approx(1.0, abs=1e-12)
    assert (h.mass.width < 1e-6).all()
    t, value, low, high = s.band(1)
    assert value[-1] == pytest.approx(1.0) and (low <= value + 1e-12).all() and (value <= high + 1e-12).all()
    assert (np.diff(t) > 0).all()


def test_a_budget_leaves_sound_brackets():
    net = random_net([2, 16, 16, 2], 1)
    full = spectrum(net, LAW)
    part = spectrum(net, LAW, method="enumeration", budget="80 regions")
    assert part.stopped and part.mean().guarantee == "sound"
    for rank in (0, 1):
        assert holds(part.mean(rank), full.mean(rank).value)
        assert holds(part.quantile(0.5, rank), full.quantile(0.5, rank).value)
        assert holds(part.cdf(0.5, rank), full.cdf(0.5, rank).value)
    gap = np.linalg.norm(full.expected.jacobian - part.expected.jacobian, 2)
    assert 1e-6 < gap <= part.expected.error
    assert part.modal.mass.guarantee == "sound"


def test_auto_turns_to_draws_and_the_seed_decides():
    net = random_net([6, 8, 8, 3], 0)
    law = Gaussian(np.zeros(6))
    a, b = (spectrum(net, law, draws=500, rng=7) for _ in range(2))
    assert a.draws == 500 and a.weight.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(a.singular, b.singular)
    # 200,000 fresh draws: the bracket of the most frequent pattern holds its share (its error is 4e-4 or less).
    share = (net.pattern(law.sample(200_000, 0)) == a.modal.pattern).all(axis=1).mean()
    assert 0 < a.modal.mass.lower < share < a.modal.mass.upper < 0.1
    assert "20 of 500 draws, the next has 15: not told apart" in a.modal.mass.note
    assert len(a.to_dict()["ranks"]) == 3


def test_affine_network_has_one_value():
    s = spectrum(Network([([[3.0, 4.0]], None)]), Gaussian([0.0, 0.0]))
    assert s.mean().value == pytest.approx(5.0) and s.tail(4.9).value == 1.0 and s.tail(5.1).value == 0.0


def test_wide_network():
    rng = np.random.default_rng(0)
    net = random_net([200, 128, 128, 10], 1)
    law = Gaussian(rng.normal(size=200), factor=rng.normal(size=(200, 200)) / 14)
    s = spectrum(net, law, draws=400, rng=0)
    direct = np.linalg.svd(net.jacobian(law.sample(400, 1)), compute_uv=False)
    # two samples of 400: both means within Bernstein's interval of the truth
    assert abs(direct[:, 0].mean() - s.mean().value) < s.mean().upper - s.mean().lower
    assert abs(np.median(direct[:, 4]) - s.quantile(0.5, 4).value) < 0.1


NET = random_net([2, 3, 2], 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: spectrum(3, LAW), "net must be a Network"),
        (lambda: spectrum(NET, None), "law must be"),
        (lambda: spectrum(NET, LAW, method="svd"), "method must be one of"),
        (lambda: spectrum(NET, LAW, draws=3), "draws must be at least 20"),
        (lambda: spectrum(NET, LAW, level=0), "level must be"),
        (lambda: spectrum(NET, LAW, budget="soon"), "budget must be like"),
        (lambda: spectrum(NET, LAW, rng=-1), "rng must be"),
        (lambda: spectrum(NET, LAW, within=[0, 1]), "within must be"),
        (lambda: spectrum(NET, LAW, within=support(random_net([2, 3, 2], 1), LAW)), "of this network"),
        (lambda: spectrum(NET, LAW).mean(-1), "rank must be between 0 and 1"),
        (lambda: spectrum(NET, LAW).mean(2), "rank must be between 0 and 1"),
        (lambda: spectrum(NET, LAW).quantile(1.0), "q must be"),
        (lambda: spectrum(NET, LAW).cdf(float("nan")), "t must be"),
        (lambda: spectrum(NET, LAW).histogram(bins=[1.0, 0.0]), "bins must be"),
        (lambda: spectrum(NET, LAW).histogram(bins=0), "bins must be"),
        (lambda: spectrum(random_net([5, 6, 1]), Gaussian(np.zeros(5)), method="enumeration"), "at most 3 dimensions"),
    ],
)
def test_bad_inputs(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_one_singular_value_is_one_in_words():
    found = spectrum(Network([([[1.0]], None), ([[2.0]], None)]), Gaussian([0.0]))
    assert repr(found).startswith("Spectrum(1 singular value on ")
