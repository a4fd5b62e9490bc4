"""Points aimed at what is rare: closed forms, the weights, the shares, and intervals that hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import multivariate_normal

import reluscope as rs
from nets import random_net
from reluscope.activations import Activation
from reluscope.errors import InputError
from reluscope.events import Event
from reluscope.measure.lines.integration import Request, integrate, job_of
from reluscope.measure.points import aimed
from reluscope.measure.shared.draws import SobolDraws
from reluscope.measure.shared.mixture import Directions
from reluscope.measure.shared.tally import Tally

LINEAR = rs.Network([([[1.0, -2.0, 0.5], [0.3, 0.1, 2.0], [0.0, 1.0, 0.0]], [0.2, -1.0, 0.0])])
STANDARD = rs.Gaussian(np.zeros(3), 1.0)
SAFE = 1 - 1e-7
"""Level of intervals that must hold one by one: some tens of them."""


def check(estimate, exact, relative=0.05):
    """The interval holds the exact values and the estimates are near them."""
    exact = np.asarray(exact)
    assert (estimate.lower <= exact).all()
    assert (estimate.upper >= exact).all()
    np.testing.assert_allclose(estimate.value, exact, rtol=relative)


@pytest.mark.parametrize("interval", ["replicate", "block"])
@pytest.mark.parametrize("chance", [1e-2, 1e-4, 1e-8, 1e-14])
def test_tails_of_a_linear_form(interval, chance):
    sd = math.sqrt(5.25)
    c = 0.2 + sd * np.array([ndtri(chance), -ndtri(chance)])
    found = integrate(LINEAR, STANDARD, Request(levels={0: c}), lines=1 << 16, method="aimed", level=SAFE,
                      interval=interval, rng=1)  # fmt: skip
    assert found.method == "aimed points"
    check(found.levels[0].cdf, [chance, 1 - chance])
    check(found.levels[0].sf, [1 - chance, chance])


def test_common_levels_beside_rare_ones():
    z = np.array([-4.0, -3.0, 0.3, 2.5, 5.0])
    c = 0.2 + math.sqrt(5.25) * z
    found = integrate(LINEAR, STANDARD, Request(levels={0: c}), lines=1 << 17, method="aimed", level=SAFE, rng=2)
    assert found.method == "aimed points"
    check(found.levels[0].cdf, ndtr(z))
    check(found.levels[0].sf, ndtr(-z))


def test_two_modes_far_apart():
    # |u0| + 0.3 relu(u1) - 0.2 relu(-u1) > 4.5: two tails, whose masses enumeration gives.
    net = rs.Network([(np.vstack([np.eye(2), -np.eye(2)]), np.zeros(4)), ([[1.0, 0.3, 1.0, -0.2]], [0.0])], "relu")
    law = rs.Gaussian(np.zeros(2), 1.0)
    exact = rs.outputs(net, law).sf([4.5]).value
    found = integrate(net, law, Request(levels=[4.5]), lines=1 << 16, method="aimed", level=SAFE, rng=0)
    assert found.method == "aimed points"
    check(found.levels[0].sf, exact)


def test_events_their_unions_and_complements():
    net = rs.Network([(np.eye(3), np.zeros(3))])
    corner = Event.below(-np.eye(3), [-2.0, -1.5, -1.0], net.n_inputs)
    either = Event.below([1.0, 0.0, 0.0], -3.5, net.n_inputs) | Event.below([0.0, -1.0, 0.0], -3.0, net.n_inputs)
    most = Event.below([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], [3.2, 4.0], net.n_inputs)
    exact = [
        ndtr(-2.0) * ndtr(-1.5) * ndtr(-1.0),
        1 - (1 - ndtr(-3.5)) * (1 - ndtr(-3.0)),
        ndtr(3.2) * ndtr(4.0),
    ]  # fmt: skip
    request = Request(events=[corner, either, most])
    found = integrate(net, STANDARD, request, lines=1 << 17, method="aimed", level=SAFE, rng=5)
    assert found.method == "aimed points"
    check(found.events, exact)
    outside = 1 - exact[2]
    assert abs(1 - found.events.value[2] - outside) < 0.05 * outside


def test_a_mixture_of_laws():
    law = rs.GaussianMixture([0.3, 0.7], [STANDARD, rs.Gaussian(np.ones(3), 0.5 * np.eye(3))])
    c = 9.0
    parts = [(0.3, 0.2, math.sqrt(5.25)), (0.7, -0.3, math.sqrt(0.5 * 5.25))]
    exact = sum(w * ndtr(-(c - m) / s) for w, m, s in parts)
    found = integrate(LINEAR, law, Request(levels={0: [c]}), lines=1 << 17, method="aimed", level=SAFE, rng=1)
    check(found.levels[0].sf, [exact])


def test_units_that_need_double_precision():
    many = Activation(range(5), (0, 1, 0, 1, 0, 1), (0, 0, 1, -1, 2, -2))
    net = random_net((4, 10, 10, 1), 3, activation=many)
    law = rs.Gaussian(np.zeros(4), 1.0)
    c = np.quantile(net(law.sample(200_000, 0))[:, 0], [0.002, 0.999])
    request = Request(levels=c)
    found = integrate(net, law, request, lines=1 << 17, method="aimed", level=SAFE, rng=1)
    other = integrate(net, law, request, lines=1 << 15, method="lines", level=SAFE, rng=2)
    assert found.method == "aimed points"
    for a, b in ((found.levels[0].cdf, other.levels[0].cdf), (found.levels[0].sf, other.levels[0].sf)):
        assert (a.lower <= b.upper).all()
        assert (b.lower <= a.upper).all()


def test_where_it_does_not_apply_points_are_plain():
    request = Request(levels={0: [9.0]})
    how = {"lines": 1 << 12, "method": "aimed", "rng": 0}
    two = rs.GaussianMixture([0.5, 0.5], [STANDARD, rs.Gaussian(np.ones(3), 1.0)])
    assert integrate(LINEAR, STANDARD, request, interval="finite-sample", **how).method == "aimed points"
    assert integrate(LINEAR, two, request, interval="finite-sample", **how).method == "points"
    assert integrate(LINEAR, STANDARD, Request(levels={0: [0.0]}), **how).method == "points"
    assert integrate(LINEAR, rs.Uniform([-1.0] * 3, [1.0] * 3), Request(levels={0: [3.4]}), **how).method == "points"
    assert integrate(LINEAR, STANDARD, Request(levels={0: [9.0]}, marginals=True), **how).method == "points"
    with pytest.raises(InputError, match="densities"):
        integrate(LINEAR, STANDARD, Request(levels={0: [9.0]}, density=True), **how)


def test_a_level_that_nothing_reaches():
    net = rs.Network([(np.eye(3), np.zeros(3)), ([[-1.0, -1.0, -1.0]], [0.0])], "relu")
    found = integrate(net, STANDARD, Request(levels=[-9.0, 1.0]), lines=1 << 14, method="aimed", level=0.99, rng=0)
    sf = found.levels[0].sf
    assert sf.value[1] == 0.0
    assert sf.lower[1] == 0.0
    # No less than what as many points of the law itself could have missed.
    assert sf.upper[1] >= math.log(200.0) / found.lines


def test_the_same_seed_gives_the_same_answer():
    request = Request(levels={0: [-8.0, 9.0]})
    a, b = (integrate(LINEAR, STANDARD, request, lines=4096, method="aimed", rng=7).levels[0].sf for _ in range(2))
    np.testing.assert_array_equal(a.value, b.value)
    np.testing.assert_array_equal(a.upper, b.upper)


# -- the parts ---------------------------------------------------------------------------------------------------


def proposal(r: int, k: int, seed: int) -> Directions:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(k, r, r)) / math.sqrt(r) + np.eye(r)
    share = rng.random(k) + 0.2
    return Directions(share / share.sum(), rng.normal(size=(k, r)), np.linalg.cholesky(roots @ roots.mT))


@pytest.mark.parametrize(("r", "k"), [(1, 1), (3, 2), (6, 5)])
def test_log_ratios_and_weights(r, k):
    net = random_net((r, 6, 1), 0)
    job = job_of(net, Request(levels=[100.0]))
    sides = aimed.Sides(np.ones(1, bool), np.zeros(0, bool))
    fitted = proposal(r, k, r)
    points = aimed.AimedPoints.around(net, job, np.eye(r), sides, fitted)
    bits = np.zeros((r, 256), np.uint32)
    SobolDraws(r, 1, 256, np.random.default_rng(0)).fill_bits(0, bits, 0, 256)
    columns = np.arange(3, 203, 2)
    Z = np.empty((256, r))
    aimed.normals_of(bits, Z)
    for which, (mean, root) in enumerate(zip(points._mean, points._root, strict=True)):
        U = mean + Z[columns] @ root.T
        logs = points._log_ratios(which, bits, columns)
        own = multivariate_normal(np.zeros(r), np.eye(r)).logpdf(U)
        expected = [
            np.zeros(len(U)),
            *(multivariate_normal(m, f @ f.T).logpdf(U) - own for m, f in zip(fitted.mean, fitted.factor, strict=True)),
        ]
        np.testing.assert_allclose(logs, expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(points._log_ratios_at(U), expected, rtol=1e-9, atol=1e-9)
    share = points.parts / points.parts.sum()
    weights = np.empty(len(columns))
    aimed._weigh(logs, np.log(np.maximum(share, 1e-300)), weights)
    np.testing.assert_allclose(weights, 1 / (share @ np.exp(logs)), rtol=1e-12)


def test_weights_far_out():
    logs = np.array([[0.0, 0.0, 0.0, 0.0], [-800.0, -5.0, 300.0, 700.0]])
    weights = np.empty(4)
    aimed._weigh(logs, np.log([0.125, 0.875]), weights)
    np.testing.assert_allclose(weights, [8.0, 1 / (0.125 + 0.875 * math.exp(-5)), math.exp(-300) / 0.875,
                                         math.exp(-700) / 0.875], rtol=1e-12)  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_parts(seed):
    rng = np.random.default_rng(seed)
    share = rng.random(rng.integers(2, 15)) ** 3
    parts = aimed._in_parts(share)
    assert parts.sum() == 32
    assert parts[0] >= aimed.LEAST_OWN
    assert (parts >= 0).all()
    for n in (0, 1, 37, 4096):
        counts = aimed._shared_out(n, share)
        assert counts.sum() == n
        assert np.abs(counts - n * share / share.sum()).max() < 1


def test_best_shares_lower_the_second_moments():
    # Two events far apart, one Gaussian at each and one at neither: the shares leave that one.
    rng = np.random.default_rng(0)
    means = np.array([[4.0, 0.0], [0.0, -4.0], [-6.0, 6.0]])
    share = np.array([0.25, 0.25, 0.25, 0.25])
    which = rng.choice(4, 40_000, p=share)
    U = rng.standard_normal((40_000, 2)) + np.vstack([np.zeros(2), means])[which]
    logs = np.vstack([np.zeros(len(U)), means @ U.T - 0.5 * (means**2).sum(axis=1)[:, None]])
    marks = np.column_stack([U[:, 0] > 4, U[:, 1] < -4])
    kept = marks.any(axis=1)
    best = aimed._best_shares(logs[:, kept], marks[kept], share)
    assert math.isclose(best.sum(), 1.0, rel_tol=1e-12)

    def score(s):
        q0, q = (a @ np.exp(logs) for a in (share, s))
        return np.log(np.mean(marks.T / (q0 * q), axis=1)).sum()

    assert score(best) < score(share)
    assert best[3] < 1e-3
    assert abs(best[1] - best[2]) < 0.1


def test_a_mode_that_is_not_aimed_at_is_in_the_variance():
    # |u0| + |u1| / 10 > 5 with a Gaussian at one of the two modes: the points hardly show the other, the search does.
    net = rs.Network([(np.vstack([np.eye(2), -np.eye(2)]), np.zeros(4)), ([[1.0, 0.1, 1.0, 0.1]], [0.0])], "relu")
    job = job_of(net, Request(levels=[5.0]))
    sides = aimed.Sides(np.ones(1, bool), np.zeros(0, bool))
    rng = np.random.default_rng(0)
    # Draws of the law given the event: uniform in the tail of u0 beyond what u1 leaves, weighted by that tail.
    second = rng.standard_normal(20_000)
    tail = ndtr(-(5.0 - 0.1 * np.abs(second)))
    second = rng.choice(second, 4000, p=tail / tail.sum())
    first = -ndtri(ndtr(-(5.0 - 0.1 * np.abs(second))) * rng.random(4000)) * rng.choice([-1, 1], 4000)
    known = aimed.Population(np.column_stack([first, second]), net(np.column_stack([first, second])), 2 * tail.mean())
    assert (known.outputs > 5.0 - 1e-9).all()
    one = Directions(np.ones(1), np.array([[5.2, 0.0]]), np.diag([0.3, 1.1])[None])
    blind = aimed.AimedPoints.around(net, job, np.eye(2), sides, one).share_out(rng, [known])
    own = 32 / blind.parts[0]
    # Half of the event is out of the Gaussian's reach, where points weigh 32 / parts of the law.
    assert 0.45 * own < blind.heavy[0] < 0.6 * own
    tally = Tally(job, net, 16)
    blind.run(1024, 16, rng, 1, tally)
    chance = tally.total["above"].sum() / tally.count.sum()
    assert tally.hidden["above"][0] == pytest.approx(chance * blind.heavy[0], rel=0.05)
    both = Directions(
        np.full(2, 0.5), np.array([[5.2, 0.0], [-5.2, 0.0]]), np.repeat(np.diag([0.3, 1.1])[None], 2, axis=0)
    )
    seeing = aimed.AimedPoints.around(net, job, np.eye(2), sides, both).share_out(rng, [known])
    assert seeing.heavy[0] < 1e-3 * own
    tally = Tally(job, net, 16)
    seeing.run(1024, 16, rng, 1, tally)
    assert tally.hidden["above"][0] == 0.0
    assert tally.total["above"].sum() / tally.count.sum() == pytest.approx(known.probability, rel=0.1)


# -- coverage ----------------------------------------------------------------------------------------------------


def misses(r: int, interval: str, repetitions: int, n: int, level: float, truth_lines: int) -> np.ndarray:
    """How often the intervals miss what a far larger run of lines finds (within three of its own widths)."""
    net, law = random_net((r, 8, 8, 2), r), rs.Gaussian(np.full(r, 0.1), 1.0)
    y = net(law.sample(200_000, 0))
    events = (
        Event.below([[1.0, -1.0], [0.0, 1.0]], np.quantile(y, [0.1, 0.05]), net.n_inputs),
        Event.below([0.0, -1.0], -np.quantile(y[:, 1], 0.9995), net.n_inputs),
    )
    request = Request(levels={0: np.quantile(y[:, 0], [0.001, 0.02, 0.5, 0.95, 0.999, 0.9999])}, events=events)

    def flat(found):
        parts = (found.levels[0].cdf, found.levels[0].sf, found.events)
        return [np.concatenate([getattr(p, k) for p in parts]) for k in ("value", "lower", "upper")]

    truth, low, high = flat(integrate(net, law, request, lines=truth_lines, rng=10**6))
    slack = 0.5 * (high - low)
    out = np.zeros(len(truth), int)
    for k in range(repetitions):
        found = integrate(net, law, request, lines=n, interval=interval, level=level, method="aimed", rng=k)
        assert found.method == "aimed points"
        _, lower, upper = flat(found)
        out += (lower - slack > truth) | (upper + slack < truth)
    return out


@pytest.mark.parametrize("r", [2, 8])
def test_intervals_hold(r):
    # 30 intervals of level 0.9 miss more than 12 with probability 2e-6 when they miss one in ten; 28 quantities.
    assert misses(r, "replicate", 30, 4096, 0.9, 1 << 15).max() <= 12


@pytest.mark.slow
@pytest.mark.parametrize("r", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("interval", ["replicate", "block"])
def test_intervals_hold_at_length(r, interval):
    # 500 intervals of level 0.99 miss more than 15 with probability 7e-5 when they miss one in a hundred.
    assert misses(r, interval, 500, 8192, 0.99, 1 << 18).max() <= 15
