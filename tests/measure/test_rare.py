"""Rare events: closed forms, independent quadrature, honest intervals.

Statistical tests run with fixed seeds; the chance that a right program would fail them with fresh seeds is given at
each.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import chdtrc, ndtr

import reluscope as rs
from nets import random_net
from reluscope.errors import InputError
from reluscope.events import Case, Event
from reluscope.events.placed import place
from reluscope.measure.rare.probability import rare_probability
from reluscope.measure.shared.mixture import Directions, _log_radial_integral, fit
from reluscope.measure.shared.ray_event import ray_rows
from reluscope.measure.shared.ray_sampler import Proposal, Sampler
from reluscope.measure.shared.rays import CHI, POWER, Rays


def half_spaces(n, m, *rows, box=None, strict=False):
    """The property `a x + g y <= c` for all rows (a, g, c)."""
    A = np.array([row[0] if np.ndim(row[0]) else np.zeros(n) for row in rows], float).reshape(len(rows), n)
    G = np.array([row[1] for row in rows], float).reshape(len(rows), m)
    lower, upper = box if box is not None else (np.full(n, -np.inf), np.full(n, np.inf))
    g = np.array([row[2] for row in rows], float)
    return Case(np.asarray(lower, float), np.asarray(upper, float), A, G, g, np.full(len(rows), strict))


def above(net, threshold, *, strict=False, box=None):
    """y[0] >= threshold."""
    row = np.zeros(net.n_outputs)
    row[0] = -1.0
    case = half_spaces(net.n_inputs, net.n_outputs, (0, row, -threshold), strict=strict, box=box)
    return Event("property", net.n_inputs, net.n_outputs, (case,))


def maximum_net(directions, distances):
    """y = max_i (d_i x - b_i), by a tournament of max(a, b) = relu(a - b) + relu(b) - relu(-b)."""
    W, c = np.asarray(directions, float), -np.asarray(distances, float)
    layers = []
    while len(W) > 1:
        k = len(W) // 2
        a, b = slice(0, k), slice(k, 2 * k)
        layers.append((np.concatenate([W[a] - W[b], W[b], -W[b]]), np.concatenate([c[a] - c[b], c[b], -c[b]])))
        W, c = np.hstack([np.eye(k), np.eye(k), -np.eye(k)]), np.zeros(k)
    return rs.Network([*layers, (W, c)])


def axes_net(r, distances):
    """Separate modes at +x_0, -x_0, +x_1, -x_1, ... with the given distances; the tail probability is a product."""
    eye = np.eye(r)
    directions = np.array([(-1) ** i * eye[i // 2] for i in range(len(distances))])
    pairs = ndtr(-np.asarray(distances, float)).reshape(-1, 2).sum(axis=1)
    return maximum_net(directions, distances), float(-np.expm1(np.log1p(-pairs).sum()))


def normal(n):
    return rs.Gaussian(np.zeros(n), 1.0)


def runs(net, law, prop, seeds, **options):
    found = [rare_probability(net, law, prop, rng=seed, **options) for seed in seeds]
    return found, np.array([f.value for f in found])


# -- exact cases -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [1.0, 6.0, 20.0])
def test_affine_networks_are_exact(distance):
    net = rs.Network([(np.array([[3.0, 4.0]]), [0.0])])
    answer = rare_probability(net, normal(2), above(net, 5.0 * distance))
    assert answer.guarantee == "exact"
    assert answer.value == pytest.approx(ndtr(-distance), rel=1e-10)
    assert answer.lower <= ndtr(-distance) <= answer.upper


def test_one_dimension_is_exact_for_every_law():
    net = rs.Network([([[1.0], [-1.0]], [-2.0, -2.5]), ([[1.0, 1.0]], [0.0])])
    prop = above(net, 0.0, strict=True)
    assert rare_probability(net, normal(1), prop).value == pytest.approx(ndtr(-2.0) + ndtr(-2.5), rel=1e-12)
    assert rare_probability(net, rs.Uniform([-3.0], [4.0]), prop).value == pytest.approx(2.5 / 7.0, rel=1e-12)
    cut = rs.Truncated(normal(1), [-2.75], [3.0])
    inside = ndtr(3.0) - ndtr(-2.75)
    expected = (ndtr(3.0) - ndtr(2.0) + ndtr(-2.5) - ndtr(-2.75)) / inside
    assert rare_probability(net, cut, prop).value == pytest.approx(expected, rel=1e-10)


def test_particles_constants_and_empty_events():
    net = random_net((2, 4, 1))
    law = rs.Particles(np.array([[0.0, 0.0], [1.0, 2.0], [3.0, -1.0]]))
    level = float(np.sort(net(law.points)[:, 0])[1])
    assert rare_probability(net, law, above(net, level)).value == pytest.approx(2 / 3)
    constant = rs.Network([(np.zeros((3, 2)), [1.0, 2.0, 3.0]), ([[1.0, 1.0, 1.0]], [0.0])])
    assert rare_probability(constant, normal(2), above(constant, 6.0)).value == 1.0
    assert rare_probability(constant, normal(2), above(constant, 6.0, strict=True)).value == 0.0
    outside = above(net, 0.0, box=([5.0, 5.0], [6.0, 6.0]))
    found = rare_probability(net, rs.Uniform([-1, -1], [1, 1]), outside)
    assert (found.value, found.upper, found.guarantee) == (0.0, 0.0, "exact")


def test_an_atom_on_the_bound_counts_unless_strict():
    net = rs.Network([(np.eye(2), [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])  # y = 0 on a quadrant
    at_most = half_spaces(2, 1, (0, [1.0], 0.0))
    below = half_spaces(2, 1, (0, [1.0], 0.0), strict=True)
    found = rare_probability(net, normal(2), Event("property", 2, 1, (at_most,)), rng=0, relative=0.02)
    assert found.lower <= 0.25 <= found.upper and found.upper < 0.27
    nothing = rare_probability(net, normal(2), Event("property", 2, 1, (below,)), rng=0)
    assert nothing.value == 0.0 and 0.0 < nothing.upper < 1e-2


# -- closed forms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("r", "distances"),
    [(3, [4.0, 4.1]), (5, [4.75, 4.8, 5.0, 5.2]), (10, [6.1, 6.2, 6.15, 6.2]), (4, [2.0, 2.5])],
)
def test_separate_modes_are_all_found(r, distances):
    """False-alarm rate: 8 intervals at 99.9 %, at most 1 miss: 3e-5 a case; the mean within 5 standard errors."""
    net, truth = axes_net(r, distances)
    if len(distances) == 2:  # a turned copy, so that the network sees more than one direction
        other, beyond = axes_net(r, [*distances, 30.0, 30.0])
        net, truth = other, beyond
    found, values = runs(net, normal(r), above(net, 0.0), range(8), level=0.999)
    assert sum(not f.lower <= truth <= f.upper for f in found) <= 1
    assert abs(values.mean() / truth - 1) < 5 * max(values.std() / truth, 0.005) / math.sqrt(8)
    assert all(f.upper - f.lower <= 0.2 * f.value * 1.01 for f in found)


def test_flat_networks_are_climbed_by_rays():
    """The output is 0 up to the event itself: no margin leads there, rays do. Same false-alarm rate as above."""
    net = rs.Network([(np.eye(6), np.full(6, -5.0)), (np.ones((1, 6)), [0.0])])
    truth = -np.expm1(6 * np.log1p(-ndtr(-5.0)))
    found, _ = runs(net, normal(6), above(net, 0.0, strict=True), range(4), level=0.999)
    assert sum(not f.lower <= truth <= f.upper for f in found) <= 1


def test_a_corner_under_a_uniform_law():
    """P(sum x <= s) = s^r / r! for small s; 6 intervals at 99.9 %, at most 1 miss (2e-5)."""
    r, s = 4, 0.06
    net = rs.Network([(np.ones((1, r)), [0.0])])
    prop = Event("property", r, 1, (half_spaces(r, 1, (0, [1.0], s)),))
    truth = s**r / math.factorial(r)
    found, _ = runs(net, rs.Uniform(np.zeros(r), np.ones(r)), prop, range(6), level=0.999)
    assert sum(not f.lower <= truth <= f.upper for f in found) <= 1
    assert found[0].value == pytest.approx(truth, rel=0.15)


def test_restricted_gaussians():
    """A box with independent inputs: a product of tails; correlated inputs: one-dimensional quadrature."""
    net = rs.Network([(np.eye(3), np.zeros(3)), (np.eye(3), np.zeros(3))])  # y = relu(x)
    rows = [(0, [-1.0, 0, 0], -2.5), (0, [0, -1.0, 0], -1.5)]
    prop = Event("property", 3, 3, (half_spaces(3, 3, *rows),))
    law = rs.Truncated(normal(3), [-3, -2, -1], [3, 2, np.inf])
    truth = (ndtr(-2.5) - ndtr(-3)) * (ndtr(-1.5) - ndtr(-2)) / ((1 - 2 * ndtr(-3)) * (1 - 2 * ndtr(-2)))
    found, _ = runs(net, law, prop, range(4), level=0.999)
    assert sum(not f.lower <= truth <= f.upper for f in found) <= 1

    rho = 0.6
    law2 = rs.Truncated(rs.Gaussian(np.zeros(2), [[1, rho], [rho, 1]]), [-np.inf, -0.5], [np.inf, 1.0])
    two = rs.Network([(np.eye(2), np.zeros(2)), (np.eye(2), np.zeros(2))])
    event = Event("property", 2, 2, (half_spaces(2, 2, (0, [-1.0, 0.0], -3.5)),))
    tail = math.sqrt(1 - rho**2)
    density = lambda v: math.exp(-v * v / 2) / math.sqrt(2 * math.pi) * ndtr(-(3.5 - rho * v) / tail)  # noqa: E731
    truth2 = quad(density, -0.5, 1.0, epsabs=0, epsrel=1e-10)[0] / (ndtr(1.0) - ndtr(-0.5))
    found, _ = runs(two, law2, event, range(4), level=0.999)
    assert sum(not f.lower <= truth2 <= f.upper for f in found) <= 1


def test_mixtures_and_rows_on_inputs():
    net = rs.Network([(np.eye(2, 3), np.zeros(2)), (np.eye(2), np.zeros(2))])  # y = relu(x0), relu(x1); x2 unseen
    means = np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.5]])
    law = rs.GaussianMixture([0.7, 0.3], [rs.Gaussian(m, 1.0) for m in means])
    case = half_spaces(3, 2, (0, [-1.0, 0.0], -3.0), ([0.0, 0.0, -1.0], [0.0, 0.0], -1.5))
    truth = sum(w * ndtr(m[0] - 3.0) * ndtr(m[2] - 1.5) for w, m in zip([0.7, 0.3], means, strict=True))
    found, _ = runs(net, law, Event("property", 3, 2, (case,)), range(4), level=0.999)
    assert sum(not f.lower <= truth <= f.upper for f in found) <= 1
    box = above(net, 3.0, box=([-np.inf, -np.inf, 1.5], [np.inf, np.inf, 2.5]))
    inside = sum(
        w * ndtr(m[0] - 3.0) * (ndtr(2.5 - m[2]) - ndtr(1.5 - m[2])) for w, m in zip([0.7, 0.3], means, strict=True)
    )
    found, _ = runs(net, law, box, range(4), level=0.999)
    assert sum(not f.lower <= inside <= f.upper for f in found) <= 1


# -- the parts ---------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 4), st.booleans())
def test_a_ray_is_integrated_exactly(seed, r, boxed):
    """fraction(w) against the membership of 20,000 points of the ray in the event, by plain evaluation."""
    rng = np.random.default_rng(seed)
    net = random_net((r, 8, 6, 2), seed)
    rows = [(rng.normal(size=r) * rng.integers(0, 2), rng.normal(size=2), rng.normal()) for _ in range(2)]
    prop = Event("property", r, 2, tuple(half_spaces(r, 2, row) for row in rows))
    placed = place(net, normal(r), prop)
    event = ray_rows(placed, placed.components[0])
    assert event.net.n_units == net.n_units  # carried inputs are not traced
    ends = np.full(r, 2.0)
    rays = Rays(POWER, r, -ends, ends, r * math.log(4.0)) if boxed else Rays(CHI, r)
    W = rng.normal(size=(3, r))
    value = Sampler(event, rays, rays.reach).measure(W).value
    W /= np.linalg.norm(W, axis=1)[:, None]
    _, high = rays.span(W)
    for i in range(3):
        top = min(high[i], 12.0)
        edges = np.linspace(0.0, top, 20001)
        tail = (edges / top) ** r if boxed else 1.0 - chdtrc(r, edges**2)
        inside = prop.holds(net, 0.5 * (edges[1:] + edges[:-1])[:, None] * W[i])
        assert value[i] == pytest.approx(float(np.diff(tail)[inside].sum()), abs=4e-3)


def test_the_density_of_projected_gaussians():
    for h in (-12.0, -3.0, -0.1, 0.0, 0.4, 5.0, 30.0):
        for r in (1, 2, 5, 12):
            peak = max(h, 0.0)
            reference = quad(lambda s: s ** (r - 1) * math.exp(-0.5 * (s - h) ** 2), 0, peak + 15, points=[peak])[0]
            out = np.empty(1)
            _log_radial_integral(r, np.array([h]), out)
            assert math.exp(out[0]) == pytest.approx(reference, rel=1e-7)
    mixture = Directions(np.ones(1), np.array([[1.0, -2.0]]), np.array([[[0.7, 0.0], [0.4, 1.1]]]))
    angle = np.linspace(0, 2 * np.pi, 4001)[:-1]
    W = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    density = np.exp(mixture.log_density(W)[0])
    assert density.mean() == pytest.approx(1.0, rel=1e-10)  # the trapezium rule is exact for smooth periodic functions
    draws = mixture.points(0, np.random.default_rng(0).standard_normal((200_000, 2)))
    seen = np.histogram(np.arctan2(draws[:, 1], draws[:, 0]) % (2 * np.pi), 20, (0, 2 * np.pi))[0] / len(draws)
    expected = density.reshape(20, -1).mean(axis=1) / 20
    assert np.abs(seen - expected).max() < 6 * math.sqrt(0.3 / len(draws))


def test_fits_survive_few_and_equal_points():
    rng = np.random.default_rng(0)
    for points in (np.zeros((1, 3)), np.ones((50, 3)), rng.normal(size=(4, 3)), np.eye(3)):
        found = fit(points, np.ones(len(points)), 8, rng)
        assert np.isfinite(found.log_density(np.array([[0.6, 0.8, 0.0]]))).all()
    clusters = np.concatenate([rng.normal(size=(300, 3)) * 0.3 + 4, rng.normal(size=(300, 3)) * 0.3 - 4])
    assert len(fit(clusters, np.ones(600), 8, rng)) == 2


def test_weights_have_mean_one_whatever_is_fitted():
    """With the sure event every ray contributes f0 / f; 40,000 of them, bounded by 5: within 6 standard errors."""
    net = random_net((3, 4, 1))
    sure = Event("property", 3, 1, (half_spaces(3, 1, (0, [0.0], 1.0)),))
    placed = place(net, normal(3), sure)
    event = ray_rows(placed, placed.components[0])
    fitted = Directions(
        np.array([0.5, 0.5]), np.array([[3.0, 0, 0], [0.5, -2, 1]]), np.array([np.eye(3), 0.2 * np.eye(3)])
    )
    low, high = np.array([-1.0, 0.5, -2.0]), np.array([2.0, 3.0, np.inf])
    box = Rays(CHI, 3, low, high, float(np.log(np.prod(ndtr(high) - ndtr(low)))))
    for rays in (Rays(CHI, 3), Rays(POWER, 3, -np.ones(3), np.ones(3), 3 * math.log(2.0)), box):
        drawn = Sampler(event, rays, rays.reach).independent(Proposal(0.2, fitted), 40_000, np.random.default_rng(3))
        assert drawn.value.max() <= 5.0 + 1e-9
        assert abs(drawn.value.mean() - 1.0) < 6 * drawn.value.std() / 200


# -- the front ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.012, 0.0005])
def test_finite_sample_intervals_hold_a_planted_region(radius):
    """A spike near the mean, of mass 3e-5 or 6e-8 (which no search is sure to find), stays inside the interval."""
    eye = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    centre, height = np.array([0.7, -0.4]), 50.0
    bumps = np.concatenate([eye, [[0.3, 0.2]]])  # the last unit only keeps the output from being flat elsewhere
    weight = np.append(-height * np.ones(4), -0.01)[None]
    net = rs.Network([(bumps, np.append(-eye @ centre, 0.0)), (weight, [height * radius + 0.0013])])
    found = rare_probability(net, normal(2), above(net, 0.0), rng=0, interval="finite-sample", budget="1s")
    # The diamond |x - c| <= radius in the 1-norm, where the density is constant up to 2 %.
    mass = 2 * radius**2 * math.exp(-0.5 * float(centre @ centre)) / (2 * math.pi)
    assert 0.98 * found.lower <= mass <= 1.02 * found.upper


def test_the_same_seed_gives_the_same_answer():
    net, _ = axes_net(4, [4.0, 4.5, 5.0, 5.5])
    first, second = (rare_probability(net, normal(4), above(net, 0.0), rng=7) for _ in range(2))
    assert (first.value, first.lower, first.upper) == (second.value, second.lower, second.upper)
    assert first.guarantee == "confidence" and first.evaluations > 0 and "replicate" in first.note
    assert first.lower < first.value < first.upper
    other = rare_probability(net, normal(4), above(net, 0.0), rng=8)
    assert other.value != first.value


def test_events_that_are_not_rare():
    net = random_net((4, 10, 10, 1), 3)
    law = normal(4)
    p = float((net(law.sample(400_000, 0))[:, 0] >= 0.0).mean())
    found = rare_probability(net, law, above(net, 0.0), rng=0, relative=0.01, level=0.999)
    assert found.lower - 0.004 <= p <= found.upper + 0.004


def test_relative_and_budget_are_kept():
    net, truth = axes_net(5, [4.0, 4.2, 4.5, 4.5])
    fine = rare_probability(net, normal(5), above(net, 0.0), rng=1, relative=0.01, level=0.999)
    assert fine.upper - fine.lower <= 0.021 * fine.value and fine.lower <= truth <= fine.upper
    hurried = rare_probability(net, normal(5), above(net, 0.0), rng=1, relative=1e-6, budget="0.5s")
    assert "budget" in hurried.note and hurried.lower <= hurried.value <= hurried.upper
    assert hurried.upper - hurried.lower > 1e-6 * hurried.value  # it stopped before it was done


def test_progress_is_reported():
    seen = []
    net, _ = axes_net(3, [4.0, 4.2, 4.5, 4.5])
    rare_probability(net, normal(3), above(net, 0.0), rng=1, progress=lambda done, text: seen.append((done, text)))
    assert seen and seen[-1][0] > 0 and "±" in seen[-1][1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"net": 3}, "net"),
        ({"property": 3}, "event"),
        ({"relative": 0.0}, "relative"),
        ({"relative": float("nan")}, "relative"),
        ({"level": 1.0}, "level"),
        ({"interval": "block"}, "interval"),
        ({"budget": "soon"}, "budget"),
        ({"rng": -1}, "rng"),
        ({"law": rs.Gaussian(np.zeros(3), 1.0)}, "inputs"),
        ({"progress": 5}, "progress"),
    ],
)
def test_bad_arguments(change, words):
    net, _ = axes_net(2, [2.0, 2.0, 3.0, 3.0])
    given_ = {"net": net, "law": normal(2), "property": above(net, 0.0)} | change
    positional = [given_.pop(name) for name in ("net", "law", "property")]
    with pytest.raises(InputError, match=words):
        rare_probability(*positional, **given_)


def test_a_property_of_another_network_is_refused():
    net, _ = axes_net(2, [2.0, 2.0, 3.0, 3.0])
    with pytest.raises(InputError, match="speaks of 5 inputs"):
        rare_probability(net, normal(2), above(random_net((5, 3, 1)), 0.0))


# -- intervals over many repetitions, real networks ---------------------------------------------------------------


def coverage(count, net, law, prop, truth):
    found, values = runs(net, law, prop, range(5000, 5000 + count))
    return sum(f.lower <= truth <= f.upper for f in found) / count, values / truth


def test_intervals_cover_small():
    """30 runs at 95 %: at most 6 misses (chance of more at exactly 95 %: 0.0004)."""
    net, truth = axes_net(5, [5.0, 5.0, 5.1, 5.3])
    share, ratio = coverage(30, net, normal(5), above(net, 0.0), truth)
    assert share >= 24 / 30
    assert abs(ratio.mean() - 1) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize(
    ("r", "distances"), [(5, [3.9, 4.0, 4.1, 4.2]), (5, [5.0, 5.0, 5.1, 5.3]), (10, [6.1, 6.2, 6.15, 6.2])]
)
def test_intervals_cover(r, distances):
    """200 runs at 95 %: at least 180 cover (chance of fewer at exactly 95 %: 0.001)."""
    net, truth = axes_net(r, distances)
    share, ratio = coverage(200, net, normal(r), above(net, 0.0), truth)
    assert share >= 180 / 200
    assert abs(ratio.mean() - 1) < 0.01


@pytest.mark.slow
def test_acas_property_2(data_folder):
    """N_5_3, uniform law: 3.4e-7 by runs with different searches; and Gaussians restricted to the box, against 12
    million points each (two standard errors: 0.3 %).
    """
    folder = data_folder / "nets" / "acasxu"
    prop = rs.vnnlib(folder / "vnnlib" / "prop_2.vnnlib")
    low, high = prop.boxes[0]
    net = rs.load(folder / "onnx" / "ACASXU_run2a_5_3_batch_2000.onnx")
    found, _ = runs(net, rs.Uniform(low, high), prop, range(2), budget="60s")
    assert all(f.lower > 2.8e-7 and f.upper < 4.1e-7 for f in found)
    law = rs.Truncated(rs.Gaussian((low + high) / 2, ((high - low) / 6) ** 2), low, high)
    for name, truth, error in (("2_2", 0.03602, 0.00011), ("3_1", 0.04644, 0.00012), ("2_9", 0.00111, 0.00002)):
        net = rs.load(folder / "onnx" / f"ACASXU_run2a_{name}_batch_2000.onnx")
        f = rare_probability(net, law, prop, rng=0, relative=0.01, budget="60s")
        assert f.lower - error <= truth <= f.upper + error
