"""Integration along lines and points: do the stated intervals hold, in 2 to 16 dimensions and in awkward cases?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

import reluscope as rs
from nets import random_net
from reluscope.events import Event
from reluscope.measure.lines import boxes as _boxes
from reluscope.measure.lines import pilot as _pilot
from reluscope.measure.lines import plan as _plan
from reluscope.measure.lines.integration import Request, integrate
from reluscope.measure.points.small import SmallForms
from reluscope.network import Network

DIMENSIONS = (2, 3, 5, 8, 16)
SAFE = 1 - 1e-7
"""Level of intervals that must hold one by one: a few hundred of them, false alarms below 1e-4."""


def setting(r: int):
    """A network and a law in r dimensions, and a request for quantities common and rare."""
    net, law = random_net((r, 8, 8, 2), r), rs.Gaussian(np.full(r, 0.1), 1.0)
    y = net(law.sample(100_000, 0))
    levels = {0: np.quantile(y[:, 0], [0.02, 0.5, 0.95, 0.999])}
    events = (
        Event.below([[1.0, -1.0], [0.0, 1.0]], [0.0, np.quantile(y[:, 1], 0.3)], net.n_inputs),
        Event.below([0.0, -1.0], -np.quantile(y[:, 1], 0.9995), net.n_inputs),
    )
    return net, law, levels, events


def flat(found, moments: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All estimates of an answer in one row each: value, lower, upper."""
    parts = [found.levels[0].cdf, found.levels[0].sf, found.events]
    if found.marginals is not None:
        parts.append(found.marginals)
    if moments:
        parts += [found.mean, found.second]
    return tuple(np.concatenate([getattr(p, k).ravel() for p in parts]) for k in ("value", "lower", "upper"))


def misses(r: int, interval: str, repetitions: int, lines: int, level: float, truth_lines: int, **how) -> np.ndarray:
    """How often the intervals of each quantity miss what a far larger run finds (within three of its own widths)."""
    net, law, levels, events = setting(r)
    moments = interval != "finite-sample"
    request = Request(levels=levels, events=events, marginals=True, moments=moments)
    truth, low, high = flat(integrate(net, law, request, lines=truth_lines, rng=10**6), moments) if moments else (
        flat(integrate(net, law, request, lines=truth_lines, rng=10**6), False)
    )  # fmt: skip
    slack = 0.5 * (high - low)
    out = np.zeros(len(truth), int)
    for k in range(repetitions):
        found = integrate(net, law, request, lines=lines, interval=interval, level=level, rng=k, **how)
        _, lower, upper = flat(found, moments)
        out += (lower - slack > truth) | (upper + slack < truth)
    return out


def single_misses(r: int, interval: str, repetitions: int, n: int, level: float, truth_lines: int) -> np.ndarray:
    """The same for levels and events by points, which are in single precision where nothing else is asked for."""
    net, law, levels, events = setting(r)
    request = Request(levels=levels, events=events)
    truth, low, high = flat(integrate(net, law, request, lines=truth_lines, rng=10**6), False)
    slack = 0.5 * (high - low)
    out = np.zeros(len(truth), int)
    for k in range(repetitions):
        how = {"interval": interval, "level": level, "method": "points", "rng": k}
        _, lower, upper = flat(integrate(net, law, request, lines=n, **how), False)
        out += (lower - slack > truth) | (upper + slack < truth)
    return out


@pytest.mark.parametrize("r", DIMENSIONS)
def test_intervals_hold(r):
    # 30 intervals of level 0.9 miss more than 12 with probability 2e-6 when they miss one in ten; some 200 quantities.
    assert misses(r, "replicate", 30, 512, 0.9, 1 << 15).max() <= 12


@pytest.mark.slow
@pytest.mark.parametrize("r", DIMENSIONS)
@pytest.mark.parametrize("interval", ["replicate", "block", "finite-sample"])
def test_intervals_hold_at_length(r, interval):
    # 500 intervals of level 0.99 miss more than 15 with probability 7e-5 when they miss one in a hundred.
    assert misses(r, interval, 500, 2048, 0.99, 1 << 18).max() <= 15


@pytest.mark.slow
@pytest.mark.parametrize("r", DIMENSIONS)
def test_intervals_of_points_hold_at_length(r):
    assert misses(r, "replicate", 500, 4096, 0.99, 1 << 18, method="points").max() <= 15


@pytest.mark.slow
@pytest.mark.parametrize("r", DIMENSIONS)
@pytest.mark.parametrize("interval", ["replicate", "block", "finite-sample"])
def test_intervals_of_points_in_single_precision_hold_at_length(r, interval):
    assert single_misses(r, interval, 500, 4096, 0.99, 1 << 18).max() <= 15


@pytest.mark.parametrize("r", [2, 8])
def test_intervals_of_points_in_single_precision_hold(r):
    # 30 intervals of level 0.9 miss more than 12 with probability 2e-6 when they miss one in ten; 20 quantities.
    assert single_misses(r, "block", 30, 4096, 0.9, 1 << 14).max() <= 12


@pytest.mark.parametrize("r", DIMENSIONS)
def test_enumeration_lines_points_and_draws_agree(r):
    widths = {2: (2, 7, 6, 1), 3: (3, 6, 5, 1), 5: (5, 6, 1), 8: (8, 8, 8, 1), 16: (16, 12, 12, 1)}[r]
    net, law = random_net(widths, 40 + r), rs.Gaussian(np.full(r, 0.2), 0.7)
    n = 200_000
    y = net(law.sample(n, 1))[:, 0]
    c = np.quantile(y, [0.05, 0.5, 0.97])
    drawn = (y[:, None] <= c).mean(axis=0)
    pattern, count = np.unique(net.pattern(law.sample(n, 2)), axis=0, return_counts=True)
    modal, share = pattern[count.argmax()], count.max() / n
    # Draws: 6 standard errors, a false alarm in 5e8 comparisons.
    noise = 6 * np.sqrt(drawn * (1 - drawn) / n)
    noisy = 6 * math.sqrt(share * (1 - share) / n)
    ways = [
        integrate(net, law, Request(levels=c, patterns=3000), lines=1 << 14, interval=kind, level=SAFE, rng=3)
        for kind in ("replicate", "block", "finite-sample")
    ]
    ways.append(integrate(net, law, Request(levels=c), lines=1 << 15, method="points", level=SAFE, rng=3))
    assert [found.patterns is not None for found in ways] == [True, True, True, False]
    for found in ways:
        cdf = found.levels[0].cdf
        assert (cdf.lower <= drawn + noise).all()
        assert (cdf.upper >= drawn - noise).all()
        if found.patterns is not None:
            (i,) = np.flatnonzero((found.patterns.pattern == modal).all(axis=1))
            assert found.patterns.mass.lower[i] <= share + noisy
            assert found.patterns.mass.upper[i] >= share - noisy
    if r <= 3:
        exact = rs.outputs(net, law)
        assert exact.cdf(c).guarantee == "exact"
        mass = rs.linear_models(net, law, method="enumeration").mass(modal)
        for found in ways:
            cdf = found.levels[0].cdf
            assert (cdf.lower <= exact.cdf(c).value).all()
            assert (cdf.upper >= exact.cdf(c).value).all()
            if found.patterns is not None:
                (i,) = np.flatnonzero((found.patterns.pattern == modal).all(axis=1))
                assert found.patterns.mass.lower[i] <= mass.value <= found.patterns.mass.upper[i]
    elif r == 5:
        mass = rs.linear_models(net, law, method="enumeration", relative=1e-2, level=SAFE, rng=0).mass(modal)
        assert abs(mass.value - share) <= noisy + mass.upper - mass.lower


# -- finite-sample intervals and their values ----------------------------------------------------------------------


def behind(*layers):
    """The same function behind units that see all inputs: x = relu(x) - relu(-x)."""
    (weight, bias), *rest = layers
    eye = np.eye(weight.shape[1])
    return rs.Network([(np.vstack([eye, -eye]), None), (np.hstack([weight, -weight]), bias), *rest])


def maximum(directions, distances):
    """y = max of two half-space functions `d x - b`: max(a, b) = relu(a - b) + relu(b) - relu(-b)."""
    (a, b), (s, t) = np.asarray(directions, float), distances
    return behind((np.array([a - b, b, -b]), np.array([t - s, -t, t])), ([[1.0, 1.0, -1.0]], None))


def half_space(direction, bias):
    return behind((np.array([direction]), np.array([bias])))


def union(distances):
    """P(max > 0) of two half-spaces with orthogonal directions."""
    one, two = ndtr(-np.asarray(distances))
    return one + two - one * two


EYE = np.eye(6)
BOX = rs.Uniform([-1.0] * 6, [1.0] * 6)
MIXTURE = rs.GaussianMixture([0.9, 0.1], [rs.Gaussian(np.zeros(6)), rs.Gaussian(2.0 * EYE[0])])
GUARANTEED = {
    # (network, law, P(y > 0), settings): what a line contributes is, from above: all alike, next to always 0 and seldom
    # all of the line, weighted, counted, of a mixture, on a box
    "alike": (half_space(EYE[0], -2.0), rs.Gaussian(np.zeros(6)), ndtr(-2.0), {"method": "lines"}),
    "seldom": (
        maximum(EYE[:2], (3.0, 2.6)), rs.Gaussian(np.zeros(6)), union((3.0, 2.6)),
        {"method": "lines", "direction": EYE[2]},
    ),
    "half": (
        maximum(EYE[:2], (2.2, 2.6)), rs.Gaussian(np.zeros(6)), union((2.2, 2.6)),
        {"method": "lines", "direction": EYE[0]},
    ),
    "aimed": (maximum(EYE[:2], (2.5, 2.5)), rs.Gaussian(np.zeros(6)), union((2.5, 2.5)), {"method": "aimed"}),
    "aimed at the complement": (
        maximum(-EYE[:2], (-2.5, -6.0)), rs.Gaussian(np.zeros(6)), union((-2.5, -6.0)), {"method": "aimed"}
    ),
    "points": (maximum(EYE[:2], (2.5, 2.5)), rs.Gaussian(np.zeros(6)), union((2.5, 2.5)), {"method": "points"}),
    "mixture": (half_space(EYE[0], -2.0), MIXTURE, 0.9 * ndtr(-2.0) + 0.05, {}),
    "box": (half_space(EYE[0] + EYE[1], -1.5), BOX, 0.5**2 / 8, {}),
    "open": (maximum(EYE[:2], (2.5, 2.5)), rs.Gaussian(np.zeros(6)), union((2.5, 2.5)), {}),
}  # fmt: skip


@pytest.mark.parametrize("case", GUARANTEED)
def test_finite_sample_intervals_hold_with_any_draws(case):
    """40 intervals of level 0.8, of 256 draws each: more than 18 misses at exactly one in five: 4e-5, for 9 cases."""
    net, law, truth, how = GUARANTEED[case]
    request = Request(events=(Event.below([-1.0], 0.0, 6),), levels=[0.0])
    missed = np.zeros(3, int)
    for seed in range(40):
        found = integrate(net, law, request, lines=256, interval="finite-sample", level=0.8, rng=seed, **how)
        assert found.interval == "finite-sample" and not found.value_by
        for i, (answer, target) in enumerate(
            [(found.events, truth), (found.levels[0].sf, truth), (found.levels[0].cdf, 1.0 - truth)]
        ):
            missed[i] += not answer.lower[0] <= target <= answer.upper[0]
            assert answer.lower[0] <= answer.value[0] <= answer.upper[0]
    assert missed.max() <= 18


@pytest.mark.parametrize("case", GUARANTEED)
def test_with_a_budget_the_value_has_a_run_of_its_own(case, monkeypatch):
    """Intervals of level 1 - 1e-7; the value is closer to the truth than the interval is wide."""
    monkeypatch.setattr(_boxes, "suits", lambda components, settings: False)  # boxes need no such run
    net, law, truth, how = GUARANTEED[case]
    request = Request(events=(Event.below([-1.0], 0.0, 6),))
    found = integrate(net, law, request, budget=0.1, interval="finite-sample", level=SAFE, rng=1, **how)
    assert found.value_by and found.value_lines > 0 and "value by" in found.how
    assert found.events.lower[0] <= truth <= found.events.upper[0]
    assert found.events.lower[0] <= found.events.value[0] <= found.events.upper[0]
    assert abs(found.events.value[0] - truth) < 0.5 * (found.events.upper[0] - found.events.lower[0])


def test_a_value_outside_of_its_interval_is_moved_to_its_end(monkeypatch):
    net, law, truth, _ = GUARANTEED["open"]
    request = Request(events=(Event.below([-1.0], 0.0, 6),))
    real = _plan.run_plan

    def wrong(plan, n, groups, rng, per_scramble):
        tally = real(plan, n, groups, rng, per_scramble)
        if groups == 16 and per_scramble == 16:  # the value's own run
            tally.total["events"][:] = 0.9 * tally.count[:, None]
        return tally

    monkeypatch.setattr(_plan, "run_plan", wrong)
    monkeypatch.setattr(_boxes, "suits", lambda components, settings: False)
    found = integrate(net, law, request, budget=0.1, interval="finite-sample", level=SAFE, rng=1)
    assert found.events.lower[0] <= truth <= found.events.upper[0] < 0.5
    assert found.events.value[0] == pytest.approx(found.events.upper[0], rel=1e-9)


@pytest.mark.parametrize("kind", ["replicate", "block", "finite-sample"])
def test_lines_that_are_cut_widen_their_intervals(kind):
    """All lines say the same, and are cut at six standard deviations, with 2e-9 beyond: no interval is narrower."""
    net, law, truth = half_space(np.eye(3)[0], 1.0), rs.Gaussian(np.zeros(3), 1.0), ndtr(1.0)
    request = Request(events=(Event.below([-1.0], 0.0, 3),), levels=[0.0])
    found = integrate(net, law, request, budget=0.05, interval=kind, method="lines", level=SAFE, rng=0)
    for answer, target in ((found.events, truth), (found.levels[0].sf, truth), (found.levels[0].cdf, 1 - truth)):
        assert answer.lower[0] <= target <= answer.upper[0]


# -- what no line has met ------------------------------------------------------------------------------------------


def test_what_no_line_has_met_is_not_ruled_out():
    """A half-space of probability 2e-4 beside which the lines run: 64 of them miss it, the intervals do not."""
    net, law = rs.Network([(np.eye(3), None), ([[1.0, 1e-3, 0.0]], None)]), rs.Gaussian(np.zeros(3), 1.0)
    truth = ndtr(-3.5)
    request = Request(events=(Event.below([-1.0], -3.5, net.n_inputs),), levels=[3.5])
    for kind in ("replicate", "block", "finite-sample"):
        found = integrate(net, law, request, lines=64, interval=kind, direction=[0.0, 1.0, 0.0], level=0.99, rng=0)
        sf, events = found.levels[0].sf, found.events
        assert events.value[0] == sf.value[0] == 0.0
        assert events.lower[0] == sf.lower[0] == 0.0
        assert truth < events.upper[0] < 0.2
        assert found.levels[0].cdf.lower[0] < 1 - truth
        if kind != "finite-sample":
            assert events.upper[0] == pytest.approx(math.log(200) / 64)


def test_dead_units_and_unmet_densities():
    net = rs.Network([([[1.0, 0.3], [0.0, 0.0], [0.2, 1.0]], [0.0, -1.0, 0.5]), ([[1.0, 1.0, 1.0]], None)])
    law = rs.Gaussian([0.0, 0.0], 1.0)
    found = integrate(
        net, law, Request(marginals=True, levels=[1.0, 100.0], density=True), lines=256, level=0.99, rng=0
    )
    assert found.marginals.value[1].tolist() == [1.0, 0.0]
    assert found.marginals.upper[1, 1] == pytest.approx(math.log(200) / 256)
    assert found.marginals.lower[1, 0] == pytest.approx(1 - math.log(200) / 256)
    assert found.levels[0].pdf.value[1] == 0.0
    assert found.levels[0].pdf.upper[1] == np.inf
    assert np.isfinite(found.levels[0].pdf.upper[0])


def test_exact_lines_stay_exact():
    """A linear network along its own direction: every line says the same, and the tail keeps its relative accuracy."""
    net, law = rs.Network([([[2.0, 1.0, -2.0]], [0.5])]), rs.Gaussian(np.zeros(3), 1.0)
    found = integrate(net, law, Request(levels=[0.5, 20.0]), lines=64, direction=[2.0, 1.0, -2.0], level=0.99, rng=0)
    exact = ndtr(-np.array([0.0, 19.5 / 3.0]))
    sf = found.levels[0].sf
    assert np.allclose(sf.value, exact, rtol=1e-10, atol=0.0)
    assert (sf.upper - sf.lower < 1e-10 * exact).all()


# -- awkward laws and networks -------------------------------------------------------------------------------------


def test_singular_covariances():
    net = random_net((6, 9, 8, 1), 2)
    factor = np.random.default_rng(0).normal(size=(6, 2))
    plane = rs.Gaussian(np.zeros(6), factor=factor)  # seen in two dimensions: exact
    four = rs.Gaussian(np.zeros(6), factor=np.random.default_rng(1).normal(size=(6, 4)))
    for law, guarantee in ((plane, "exact"), (four, "confidence")):
        y = net(law.sample(200_000, 3))[:, 0]
        c = np.quantile(y, [0.1, 0.6]) + 1e-6  # off the atom that one of the two laws has
        drawn = (y[:, None] <= c).mean(axis=0)
        cdf = rs.outputs(net, law, level=SAFE, rng=0).cdf(c)
        assert cdf.guarantee == guarantee
        noise = 6 * np.sqrt(0.25 / 200_000)
        assert (cdf.lower - noise <= drawn).all()
        assert (cdf.upper + noise >= drawn).all()


def test_constant_outputs_and_dead_layers():
    law = rs.Gaussian(np.zeros(5), 1.0)
    dead = rs.Network([(np.eye(5), None), (-np.ones((2, 5)), [-1.0, -2.0]), ([[3.0, 1.0]], [0.25])])
    found = integrate(dead, law, Request(levels=[0.2, 0.25, 0.3], atoms=True, marginals=True), lines=512, rng=0)
    assert found.levels[0].cdf.value.tolist() == [0.0, 1.0, 1.0]
    assert found.atoms[0].value.tolist() == [0.25]
    assert found.atoms[0].mass.upper[0] == 1.0
    assert found.atoms[0].mass.lower[0] > 0.98
    assert found.marginals.value[5:].tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_mixtures_with_components_far_apart():
    """Eight sigma between components of unlike weight; each has its share of the lines."""
    net = random_net((5, 7, 6, 1), 9)
    parts = [rs.Gaussian(np.full(5, m), 1.0) for m in (-40.0, 0.0, 40.0)]
    law = rs.GaussianMixture([0.001, 0.9, 0.099], parts)
    y = net(law.sample(400_000, 5))[:, 0]
    c = np.quantile(y, [0.02, 0.5, 0.93])
    drawn = (y[:, None] <= c).mean(axis=0)
    for kind in ("replicate", "block", "finite-sample"):
        found = integrate(net, law, Request(levels=c, patterns=500), lines=1 << 13, interval=kind, level=SAFE, rng=1)
        cdf = found.levels[0].cdf
        assert (cdf.lower <= drawn + 6 * np.sqrt(0.25 / 400_000)).all()
        assert (cdf.upper >= drawn - 6 * np.sqrt(0.25 / 400_000)).all()
        assert abs(found.patterns.mass.value.sum() + found.patterns.rest - 1.0) < 1e-9 if kind != "finite-sample" else 1


def test_exact_and_sampled_components_together():
    """One component has no spread in the directions the network sees: its part is exact in every kind of interval."""
    net = random_net((3, 4, 1), 3)
    law = rs.GaussianMixture([0.4, 0.6], [rs.Gaussian(np.zeros(3), 0.0), rs.Gaussian(np.ones(3), 1.0)])
    exact = rs.linear_models(net, law, method="enumeration")
    for kind in ("replicate", "finite-sample"):
        found = integrate(net, law, Request(patterns=50), lines=4096, interval=kind, level=SAFE, rng=0).patterns
        for pattern, low, high in zip(found.pattern, found.mass.lower, found.mass.upper, strict=True):
            assert low - 1e-12 <= exact.mass(pattern).value <= high + 1e-12
        assert found.mass.lower.max() >= 0.4


def test_laws_far_from_the_boundary():
    """One direction matters: P(y <= c) = Phi((c - m) / s) near 0 and near 1, to relative accuracy on its small side."""
    a = np.array([1.0, 2.0, -1.0, 0.5, 0.0])
    net = rs.Network([(np.stack([a, -a]), [0.0, 0.0]), ([[1.0, -1.0]], None)])
    for shift in (-9.0, 9.0):
        law = rs.Gaussian(shift * a / (a @ a), 1.0)
        exact = ndtr(-abs(shift) / np.linalg.norm(a))
        found = integrate(net, law, Request(levels=[0.0]), lines=256, direction=a, rng=0).levels[0]
        small = found.cdf if shift > 0 else found.sf
        assert small.value[0] == pytest.approx(exact, rel=1e-9)


# -- points and plans ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "widths", [(1, 1, 1), (3, 5, 2), (5, 50, 50, 1), (16, 16, 16, 16, 10), (7, 33, 2, 9, 3), (4, 2)]
)
def test_small_networks_at_points(widths):
    net = random_net(widths, 4)
    rng = np.random.default_rng(0)
    forms, turn = rng.normal(size=(3, widths[-1])), np.linalg.qr(rng.normal(size=(widths[0], widths[0])))[0]
    for n in (1, 15, 16, 41):
        Z = rng.normal(size=(n, widths[0]))
        expected = net(Z @ turn.T) @ forms.T
        assert np.allclose(SmallForms(net, forms, turn)(Z), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    assert SmallForms.suits(net)


def test_only_small_relu_networks_take_the_fast_way():
    assert not SmallForms.suits(random_net((3, 4, 1), 0, "abs"))
    assert not SmallForms.suits(random_net((3, 400, 400, 1), 0))
    assert SmallForms.suits(Network([([[1.0, 2.0]], None)]))


@pytest.mark.parametrize("kind", ["relu", "abs"])
def test_points_under_every_law(kind):
    net = random_net((3, 6, 1), 5, kind)
    for law in (rs.Gaussian(np.zeros(3), 1.0), rs.Uniform([-1.0] * 3, [2.0] * 3)):
        y = net(law.sample(200_000, 0))[:, 0]
        c = np.quantile(y, [0.2, 0.7])
        request = Request(levels=c, events=(Event.below([1.0], c[0], net.n_inputs),), moments=True)
        found = integrate(net, law, request, lines=1 << 14, method="points", level=SAFE, rng=0)
        noise = 6 * np.sqrt(0.25 / 200_000)
        assert (np.abs(found.levels[0].cdf.value - [0.2, 0.7]) <= found.levels[0].cdf.upper - [0.2, 0.7] + noise).all()
        assert found.events.value[0] == pytest.approx(found.levels[0].cdf.value[0], abs=1e-15)
        assert np.allclose(found.levels[0].cdf.value + found.levels[0].sf.value, 1.0, atol=1e-15)
        assert (
            abs(found.mean.value[0] - y.mean())
            < 6 * y.std() / math.sqrt(200_000) + found.mean.upper[0] - found.mean.lower[0]
        )


def pilot(method: str = "lines", mean: float = 1e-3, variance: float = 1e-9, met: float = 100.0) -> _pilot.LinePlan:
    """A plan after a pilot that has shown the given numbers for one probability, and others for a moment."""
    made = object.__new__(_pilot.LinePlan)
    for name, value in {
        "n": 64, "cost": 1e-5 if method == "lines" else 1e-7, "slope": 1.2, "span": 1.0, "component": None,
        "source": None, "method": method, "job": None, "tracer": None, "quick": None, "aimed": None,
        "rare": np.array([mean, np.nan]), "common": np.zeros(2, bool),
        "variance": np.array([variance, 1e-6]), "single": np.array([variance * 64, 1e-4]),
        "met": np.array([met, np.inf]),
    }.items():  # fmt: skip
        object.__setattr__(made, name, value)
    return made


def test_a_plan_that_misses_what_another_sees_is_doubted():
    blind, seeing, alike = pilot(mean=1e-7, variance=1e-16), pilot(), pilot(mean=1.0001e-3)
    doubted = _pilot._doubted([blind, seeing, alike])
    assert doubted[0].variance[0] > 1e-7
    assert doubted[0].variance[1] == 1e-6
    assert doubted[1].variance[0] == doubted[2].variance[0] == 1e-9


def test_what_points_have_not_met_tells_their_variance():
    """Points that meet a set of probability 1e-6 once or never seem to know it well: another plan says what it is."""
    seeing, points = pilot("aimed", mean=1e-6, variance=1e-18), pilot("points", mean=0.0, variance=0.0, met=0.0)
    assert _pilot._doubted([points, seeing])[0].variance[0] == pytest.approx(1e-6 / 64)
    wanted = _pilot.Settings(None, None, "block", 16, "auto", "auto", 1.0)
    assert _pilot._ranked([points, seeing], 1.0, wanted)[0].method == "aimed"


def test_where_no_plan_meets_anything_the_one_of_most_draws_is_taken():
    net, law = random_net((5, 20, 20, 1), 1), rs.Gaussian(np.zeros(5), 1.0)
    far = 100.0 * np.abs(net(law.sample(1000, 0))).max()
    found = integrate(net, law, Request(levels=[far]), budget="0.3s", level=0.95, rng=0)
    assert found.method == "points"
    sf = found.levels[0].sf
    assert sf.value[0] == 0.0
    assert sf.upper[0] == pytest.approx(math.log(40.0) / found.lines)


def test_short_lines_lose_nothing():
    """A run under a budget ends its lines at six sigma: the answer is that of long lines."""
    net, law = random_net((4, 10, 10, 1), 6), rs.Gaussian(np.zeros(4), 1.0)
    c = np.quantile(net(law.sample(20_000, 0)), [0.1, 0.5, 0.9])
    short = integrate(net, law, Request(levels=c), budget="0.2s", method="lines", level=SAFE, rng=0).levels[0].cdf
    long = integrate(net, law, Request(levels=c), lines=1 << 14, level=SAFE, rng=1).levels[0].cdf
    assert (short.lower <= long.upper).all()
    assert (long.lower <= short.upper).all()


def test_a_plan_that_rests_on_few_lines_is_not_preferred():
    """Lines whose estimate comes from five of them look certain, and are not; from five hundred they are."""
    wanted = _pilot.Settings(None, None, "block", 16, "auto", "auto", 1.0)
    points = pilot("points", variance=1e-8, met=20.0)
    object.__setattr__(points, "cost", 1e-5)
    for met, best in ((500.0, "lines"), (2.0, "points"), (1.0, "points"), (0.0, "points")):
        lines = pilot("lines", variance=1e-11, met=met)
        assert _pilot._ranked([lines, points], 1.0, wanted)[0].method == best
        assert _pilot._ranked([points, lines], 1.0, wanted)[0].method == best
