"""The set of probable patterns (Algorithms 1-3), against a plain listing of the algorithm."""

from __future__ import annotations

import itertools
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reluscope.answers.support as module
import reluscope.measure.regions as masses_room
from nets import random_net
from reluscope import Gaussian, GaussianMixture, InputError, Network, Particles, Truncated, Uniform
from reluscope.answers._marginals import marginals, piece_probabilities
from reluscope.answers._patterns import enumerated_patterns, share
from reluscope.answers.support import support

SURE = 1 - 1e-9  # every interval below misses with at most this probability, and the seeds are fixed


def listed(net, law, threshold, cap, kind="distance"):
    """The algorithm written out for one Gaussian in the original inputs: {pattern: product of marginals}."""
    mean, cov = law.mean, law.cov
    found = {(): (1.0, net.layers[0].dense(), net.layers[0].bias)}
    for i, layer in enumerate(net.hidden):
        following, out = net.layers[i + 1], {}
        for prefix, (score, C, d) in found.items():
            m, s = C @ mean + d, np.sqrt(np.maximum(np.diag(C @ cov @ C.T), 0))
            options, doubt = [], []
            for j in range(layer.width):
                ends = [-np.inf, *layer.units.breaks[j], np.inf]
                pieces = int(layer.units.pieces[j])
                if s[j] > 1e-12:
                    cdf = [NormalDist(m[j], s[j]).cdf(t) if np.isfinite(t) else float(t > 0) for t in ends]
                    p = np.diff(cdf)[:pieces]
                else:
                    p = np.eye(pieces)[int((m[j] > np.array(ends[1:pieces])).sum())]
                entropy = -sum(q * np.log2(q) for q in p if q > 0)
                free = p.max() <= 0.5 + threshold if kind == "distance" else entropy >= threshold
                doubt.append((p.max() if kind == "distance" else -entropy) if free else np.inf)
                options.append(p)
            allowed = set(np.argsort(doubt, kind="stable")[:cap]) & set(np.flatnonzero(np.isfinite(doubt)))
            choices = [
                [q for q in range(len(p)) if p[q] > 1e-12] if j in allowed else [int(np.argmax(p))]
                for j, p in enumerate(options)
            ]
            for z in itertools.product(*choices):
                slope, intercept = layer.units.on(np.array(z, np.uint8))
                C2 = following.dense() @ (slope[:, None] * C)
                d2 = following.dense() @ (slope * d + intercept) + following.bias
                out[prefix + z] = (score * np.prod([p[q] for p, q in zip(options, z, strict=True)]), C2, d2)
        found = out
    return {p: s for p, (s, _, _) in found.items()}


LAW = Gaussian([0.3, -0.2], [[1.0, 0.4], [0.4, 0.7]])


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before anything is timed: a budget in seconds counts compilation too."""
    for d in (1, 2, 3):
        enumerated_patterns(random_net([d, 3, 1]), Gaussian(np.zeros(d)), None)
        enumerated_patterns(random_net([d, 3, 1]), Uniform(-np.ones(d), 1.0), None)


@pytest.mark.parametrize(
    ("widths", "activation", "threshold", "cap", "kind"),
    [
        ([2, 4, 4, 1], "relu", 0.1, 10, "distance"),
        ([2, 4, 4, 1], "relu", 0.35, 2, "distance"),
        ([2, 4, 3, 3, 2], "relu", 0.3, 3, "distance"),
        ([2, 4, 4, 1], "leaky_relu", 0.25, 10, "distance"),
        ([2, 3, 3, 1], "hardtanh", 0.2, 2, "distance"),
        ([2, 3, 3, 1], "relu6", 0.4, 10, "distance"),
        ([2, 4, 4, 1], "relu", 0.8, 10, "entropy"),
        ([2, 3, 3, 1], "hardtanh", 0.9, 2, "entropy"),
        ([2, 5, 1], "abs", 0.5, 10, "distance"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_same_set_as_the_algorithm_written_out(widths, activation, threshold, cap, kind, seed):
    net = random_net(widths, seed, activation, bias=0.5)
    wanted = listed(net, LAW, threshold, cap, kind)
    s = support(net, LAW, threshold, cap, threshold_kind=kind)
    assert len(s) == len(wanted)
    patterns, scores = s.top(10**6)
    assert {tuple(p) for p in patterns.tolist()} == set(wanted)
    np.testing.assert_allclose(scores, [wanted[tuple(p)] for p in patterns.tolist()], rtol=1e-9, atol=1e-15)
    assert (np.diff(scores) <= 1e-12 * scores[:-1]).all()
    every = np.array(list(itertools.product(*[range(k) for k in net.pieces])), np.uint8)
    inside = s.contains(every)
    assert {tuple(p) for p in every[inside].tolist()} == set(wanted)
    assert (every[0] in s) == inside[0] and (patterns[-1] in s)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.0, 0.5), st.integers(0, 5), st.sampled_from(["relu", "hardtanh"]))
def test_set_properties(seed, threshold, cap, activation):
    """Counting, listing and membership describe one set; it grows with the threshold and with the cap."""
    net = random_net([3, 4, 3, 1], seed, activation, bias=0.5)
    law = Gaussian(np.random.default_rng(seed).normal(size=3))
    s = support(net, law, threshold, cap)
    patterns, scores = s.top(10**5)
    assert len(s) == len(patterns) == len({bytes(p) for p in patterns})
    assert s.contains(patterns).all() and scores.sum() <= 1 + 1e-9
    assert support(net, law, threshold, cap + 1).contains(patterns).all()
    if cap >= 4:  # with every unit allowed to be free the sets are nested in the threshold too
        assert support(net, law, min(0.5, threshold + 0.1), cap).contains(patterns).all()


def test_iteration_without_look_ahead_gives_the_same_set_and_scores(monkeypatch):
    net = random_net([2, 4, 4, 4, 1], 1)
    s = support(net, LAW, 0.3)
    exact = dict(zip(map(bytes, s.top(10**6)[0]), s.top(10**6)[1], strict=True))
    monkeypatch.setattr(module, "_RANKED_PREFIXES", 1)
    patterns, scores = s.top(10**6)
    assert len(patterns) == len(exact)
    np.testing.assert_allclose(scores, [exact[bytes(p)] for p in patterns], rtol=1e-9)
    # the first one follows the likeliest piece of every unit
    assert bytes(patterns[0]) in exact and len(s.top(3)[0]) == 3


def test_the_standard_deviation_decides_not_the_variance():
    """h ~ N(1, 4): on with Phi(1/2) = 0.69, so fixed at threshold 0.1; Phi(1/4) = 0.599 would leave it free."""
    net = Network([([[2.0]], [1.0]), ([[1.0]], None)])
    s = support(net, Gaussian([0.0]), 0.1)
    assert len(s) == 1 and [1] in s


def test_probability_06_has_entropy_0971_bits():
    net = Network([([[1.0]], [NormalDist().inv_cdf(0.6)]), ([[1.0]], None)])
    law = Gaussian([0.0])
    sizes = [len(support(net, law, t, threshold_kind="entropy")) for t in (0.92, 0.970, 0.972)]
    assert sizes == [2, 2, 1]
    assert [len(support(net, law, t)) for t in (0.099, 0.1, 0.101)] == [1, 2, 2]


def test_the_cap_is_on_the_free_units_and_the_surest_are_fixed():
    W = np.ones((3, 1))
    net = Network([(W, [0.0, 0.2, -0.1]), (np.ones((1, 3)), None)])
    s = support(net, Gaussian([0.0]), 0.4, cap=2)
    assert len(s) == 4 and all(p[1] == 1 for p in s)  # unit 1 is the surest (0.579) and stays on
    assert len(support(net, Gaussian([0.0]), 0.4, cap=0)) == 1


def test_thresholds_by_layer():
    net = random_net([2, 4, 4, 1], 0)
    one, two = support(net, LAW, [0.0, 0.4]), support(net, LAW, [0.4, 0.0])
    assert {tuple(p[:4]) for p in one} != {tuple(p[:4]) for p in two}
    assert len({tuple(p[:4]) for p in one}) == 1


def test_piece_probabilities_in_the_tails_and_at_points():
    mean, sd = np.array([[-20.0, 0.0, 5.0, 0.0]]), np.array([[1.0, 0.0, 0.0, 2.0]])
    breaks = np.array([[0.0, 1.0]] * 4)
    p = piece_probabilities(mean, sd, breaks)[0]
    assert p[0, 1] == pytest.approx(NormalDist().cdf(-20) - NormalDist().cdf(-21), rel=1e-9)
    assert p[1].tolist() == [1, 0, 0]  # exactly on the break point: the piece below
    assert p[2].tolist() == [0, 0, 1]
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)


# -- mixtures and other laws -------------------------------------------------------------------------------------

MIX = GaussianMixture([0.3, 0.7], [LAW, Gaussian([1.0, 1.0], 0.5)])


def test_mixture_is_the_union_of_its_components():
    net = random_net([2, 4, 4, 1], 3)
    parts = [{tuple(p) for p in support(net, g, 0.25)} for _, g in MIX.components]
    assert parts[0] & parts[1] and parts[0] != parts[1]
    both = support(net, MIX, 0.25, mixture="each")
    assert {tuple(p) for p in both} == parts[0] | parts[1]
    assert len(both) == len(parts[0] | parts[1]) == len(list(both))


def test_mixture_together_uses_the_weighted_marginals():
    net = Network([([[1.0]], [0.0]), ([[1.0]], None)])
    law = GaussianMixture([0.5, 0.5], [Gaussian([-3.0]), Gaussian([3.0])])
    assert len(support(net, law, 0.1, mixture="together")) == 2  # 1/2 each
    assert len(support(net, law, 0.1, mixture="each")) == 2  # one fixed on, one fixed off: the union
    lop = GaussianMixture([0.9, 0.1], [Gaussian([-3.0]), Gaussian([3.0])])
    assert len(support(net, lop, 0.1, mixture="together")) == 1
    assert len(support(net, lop, 0.1)) == 1  # the paper's equation (21) is the default
    assert len(support(net, lop, 0.1, mixture="each")) == 2


def test_equation_21_has_each_component_s_own_mean():
    # As printed, the mean has no index of its unit: P(h_j > 0) = sum_k w_k Phi(mu_kj / sigma_kj), unit by unit.
    net = Network([(np.eye(2), [0.0, 3.0]), ([[1.0, 1.0]], None)])
    parts = [Gaussian([-0.1, 0.0], np.diag([1.0, 0.25])), Gaussian([0.2, 0.0], np.diag([4.0, 0.25]))]
    law = GaussianMixture([0.5, 0.5], parts)
    (run,) = support(net, law).runs
    on = marginals(net.layers[0].units, list(run.first), run.weights)[0, :, 1]
    Phi = NormalDist().cdf
    assert on == pytest.approx([0.5 * Phi(-0.1) + 0.5 * Phi(0.1), Phi(6.0)], abs=1e-12)
    assert on[0] != pytest.approx(0.5 * Phi(-0.1 / 1.0) + 0.5 * Phi(0.2 / 4.0), abs=1e-3)  # variances under Phi


@pytest.mark.parametrize(
    "law", [Uniform([-1.0, -1.0], 1.0), Truncated(Gaussian([0.0, 0.0]), -1, 1), Particles(np.eye(2))]
)
def test_other_laws_are_walked_as_a_gaussian_of_the_same_moments(law):
    net = random_net([2, 4, 4, 1], 3)
    same = support(net, Gaussian(law.mean, law.cov), 0.3)
    assert {tuple(p) for p in support(net, law, 0.3)} == {tuple(p) for p in same}


# -- mass and coverage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [LAW, MIX, Uniform([-1.0, -2.0], 1.0)])
def test_mass_by_enumeration_agrees_with_draws(law):
    net = random_net([2, 4, 4, 1], 3)
    s = support(net, law, 0.2)
    exact, drawn = s.mass(), s.mass(method="draws", draws=20_000, level=SURE, rng=1)
    assert exact.guarantee == "exact" and exact.upper - exact.lower < 1e-9
    assert drawn.guarantee == "confidence" and drawn.lower <= exact.value <= drawn.upper
    assert 0.02 < exact.value < 0.999


def test_drawn_patterns_are_in_the_set_and_follow_its_marginals():
    net, law = random_net((5, 6, 6, 2), 1), Gaussian(np.zeros(5), 1.0)
    found = support(net, law, 0.25, 3)
    drawn = found.sample(400, 0)
    assert drawn.shape == (400, 12) and found.contains(drawn).all()
    assert len(np.unique(drawn, axis=0)) > 10
    # One layer: free units are on with their own probability Phi(b / |w|). 5 standard errors, a false alarm in 1.7e6.
    W, b = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), np.array([0.1, -0.2, 3.0])
    single = Network([(W, b), (np.ones((1, 3)), None)])
    share = support(single, Gaussian([0.0, 0.0], 1.0), 0.25, 3).sample(20_000, 1).mean(axis=0)
    expected = np.array([NormalDist().cdf(0.1), NormalDist().cdf(-0.2), 1.0])
    assert (np.abs(share - expected) <= 5 * np.sqrt(0.25 / 20_000)).all() and share[2] == 1.0
    parts = GaussianMixture([0.9, 0.1], [Gaussian([4.0, 4.0], 0.1), Gaussian([-4.0, -4.0], 0.1)])
    both = support(single, parts, 0.25, 3, mixture="each").sample(2000, 2)
    assert abs(both[:, 0].mean() - 0.9) < 5 * np.sqrt(0.09 / 2000)


def test_everything_free_holds_everything():
    s = support(random_net([2, 4, 4, 1], 3), LAW, 0.5)
    assert s.mass().value == pytest.approx(1.0, abs=1e-12)


def test_a_budget_leaves_a_sound_bracket():
    net = random_net([2, 16, 16, 1], 3)
    s = support(net, LAW, 0.3)
    exact, part = s.mass(method="enumeration"), s.mass(method="enumeration", budget="60 regions")
    assert part.guarantee == "sound" and part.lower <= exact.value <= part.upper


def test_masses_that_do_not_sum_to_one_are_not_called_exact(monkeypatch):
    net = random_net([2, 4, 4, 1], 3)
    s = support(net, LAW, 0.5)
    honest = masses_room.enumerate_law

    def lossy(*args, **kwargs):
        return tuple(replace(p, masses=masses_room.scaled(p.masses, 0.9)) for p in honest(*args, **kwargs))

    monkeypatch.setattr(masses_room, "enumerate_law", lossy)
    found = s.mass(method="enumeration")
    assert found.guarantee == "sound" and found.lower <= 1.0 <= found.upper + 1e-12 and "instead of 1" in found.note
    assert s.mass(draws=1000, rng=0).guarantee == "confidence"


def test_coverage_is_the_share_of_rows_and_batches_change_nothing(monkeypatch):
    net = random_net([6, 8, 8, 8, 3], 0)
    law = Gaussian(np.zeros(6))
    X = law.sample(400, 0)
    s = support(net, law, 0.45, cap=6)
    single = np.array([p in s for p in net.pattern(X)])
    assert 0 < single.sum() < len(X)
    assert s.coverage(X).value == single.mean()
    monkeypatch.setattr(module, "_MAP_NUMBERS", 1)
    np.testing.assert_array_equal(s.contains(net.pattern(X)), single)


def test_coverage_of_ten_thousand_rows_of_a_wide_input():
    net = random_net([784, 16, 16, 16, 10], 1)
    rng = np.random.default_rng(0)
    law = Gaussian(rng.normal(size=784) * 0.2, factor=rng.normal(size=(784, 30)) / 28)
    s = support(net, law, 0.4)
    assert s.runs[0].first[0].shape == (16, 1, 17)  # 784 inputs are seen in 16 dimensions
    inside = s.coverage(law.sample(10_000, rng)).value
    drawn = s.mass(draws=10_000, level=SURE, rng=3)
    assert abs(inside - drawn.value) < 0.1


def test_counting_beyond_the_allowance_gives_a_bracket():
    net = random_net([2, 4, 4, 4, 1], 1)
    s = support(net, LAW, 0.4)
    exact, rough = s.count(), s.count(prefixes=20)
    assert exact.guarantee == "exact" and rough.guarantee == "sound"
    assert rough.lower <= exact.value <= rough.upper
    huge = support(random_net([8, 40, 40, 40, 1], 1), Gaussian(np.zeros(8)), 0.5, cap=40)
    with pytest.raises(InputError, match="too many to count"):
        len(huge)
    assert len(huge.top(5)[0]) == 5


def test_affine_network_has_one_empty_pattern():
    s = support(Network([([[1.0, 2.0]], [0.0])]), Gaussian([0.0, 0.0]))
    assert len(s) == 1 and s.coverage(np.zeros((3, 2))).value == 1.0 and [p.shape for p in s] == [(0,)]


def test_share_is_the_clopper_pearson_interval():
    """R: binom.test(3, 20, conf.level = 0.95)$conf.int gives 0.03207094 0.37892683."""
    found = share(3, 20, 0.95)
    assert (found.lower, found.upper) == (pytest.approx(0.03207094, rel=1e-6), pytest.approx(0.37892683, rel=1e-6))
    assert share(0, 10, 0.9).lower == 0 and share(10, 10, 0.9).upper == 1


NET = random_net([2, 3, 1], 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: support("net", LAW), "net must be a Network"),
        (lambda: support(NET, "law"), "law must be"),
        (lambda: support(NET, Gaussian([0.0])), "1 inputs but the network takes 2"),
        (lambda: support(NET, LAW, 0.6), "threshold must be a distance"),
        (lambda: support(NET, LAW, -0.1), "threshold must be"),
        (lambda: support(NET, LAW, [0.1, 0.2]), "one per hidden layer"),
        (lambda: support(NET, LAW, float("nan")), "threshold must be finite"),
        (lambda: support(NET, LAW, 9.0, threshold_kind="entropy"), "entropy in bits"),
        (lambda: support(NET, LAW, threshold_kind="bits"), "threshold_kind must be one of"),
        (lambda: support(NET, LAW, cap=-1), "cap must be at least 0"),
        (lambda: support(NET, LAW, cap=2.5), "cap must be a whole number"),
        (lambda: support(NET, LAW, mixture="sum"), "mixture must be one of"),
        (lambda: support(NET, LAW).contains([[0, 1]]), "pattern must hold"),
        (lambda: support(NET, LAW).contains([[0, 1, 2]]), "outside 0..1"),
        (lambda: support(NET, LAW).coverage(np.zeros((0, 2))), "X has no rows"),
        (lambda: support(NET, LAW).top(0), "k must be at least 1"),
        (lambda: support(NET, LAW).mass(method="lines"), "method must be one of"),
        (lambda: support(NET, LAW).mass(draws=0), "draws must be at least 1"),
        (lambda: support(NET, LAW).mass(level=1.0), "level must be"),
        (
            lambda: support(random_net([5, 6, 1]), Gaussian(np.zeros(5))).mass(method="enumeration"),
            "at most 3 dimensions",
        ),
    ],
)
def test_bad_inputs(call, words):
    with pytest.raises(InputError, match=words):
        call()
