"""The three invariant families, the ones that fail, and the growth of the exact law."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import reluscope as rs
from nets import random_net
from reluscope import invariance as inv
from reluscope.errors import InputError

numbers = st.floats(-3, 3).map(lambda v: round(v, 3))


# -- finite support ------------------------------------------------------------------------------------------------


def test_particles_move_exactly_and_never_multiply():
    net = random_net((3, 5, 4, 2), 0)
    law = rs.Particles(np.random.default_rng(0).normal(size=(20, 3)))
    out = inv.push(law, net)
    assert np.array_equal(out.points, np.unique(net(law.points), axis=0))
    assert len(out) < 20  # four of the points meet
    assert out.mean == pytest.approx(net(law.points).mean(axis=0))
    hidden = inv.push(law, net, layer=0)
    assert np.array_equal(
        inv.push(law, net, layer=0, merge=False).points, np.maximum(net.preactivations(law.points)[0], 0)
    )
    assert len(hidden) <= 20
    assert hidden.mean == pytest.approx(law.weights @ np.maximum(net.preactivations(law.points)[0], 0))
    dead = rs.Network([(-np.eye(2), [-9.0, -9.0]), (np.eye(2), None)])
    joined = inv.push(rs.Particles([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], [0.2, 0.3, 0.5]), dead)
    assert len(joined) == 1
    assert joined.weights.tolist() == [1.0]


# -- width one -----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), st.integers(0, 100))
def test_clamped_laws_follow_any_network_of_width_one(layers, seed):
    net = rs.Network([([[w]], [b], "relu") for w, b in layers])
    x = np.random.default_rng(seed).normal(size=2000)
    law = inv.Clamped(rs.Gaussian([0.0], 1.0)).through(net)
    a, b, lo, hi = law.parameters
    assert np.allclose(np.clip(a * x + b, lo, hi), net(x[:, None])[:, 0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "base",
    [
        rs.Gaussian([0.3], 2.0),
        rs.GaussianMixture([0.3, 0.7], [rs.Gaussian([-1.0], 1.0), rs.Gaussian([2.0], 0.1)]),
        rs.Uniform([-1.0], [2.0]),
        rs.Particles([[-1.0], [0.0], [0.5]], [0.2, 0.3, 0.5]),
        stats.t(3),
        stats.poisson(2),
    ],
)
@pytest.mark.parametrize("a", [1.5, -0.75, 0.0])
def test_cdf_and_atoms_against_draws_of_the_base(base, a):
    law = inv.Clamped(base, a, 0.2, -0.5, 1.0)
    draws = np.sort(law.sample(100_000, 0))
    t = np.array([-0.6, -0.5, -0.2, 0.2, 0.5, 0.95, 1.0, 2.0])
    # Dvoretzky-Kiefer-Wolfowitz: beyond 0.012 with probability 2 exp(-2 * 1e5 * 0.012^2) = 6e-13.
    assert np.abs(law.cdf(t) - np.searchsorted(draws, t, side="right") / 1e5).max() < 0.012
    for value, mass in law.atoms:
        assert (draws == value).mean() == pytest.approx(mass, abs=0.012)
    assert law.cdf([-np.inf, np.inf]).tolist() == [0.0, 1.0]


def test_clamped_closed_forms():
    y = inv.Clamped(rs.Gaussian([0.0], 1.0)).push(2.0, 1.0)
    assert y.atoms == [(0.0, pytest.approx(special.ndtr(-0.5)))]
    assert y.cdf([0.0, 3.0]) == pytest.approx(special.ndtr([-0.5, 1.0]))
    z = y.push(-1.0, 2.0, "relu6")
    assert z.parameters == (-2.0, 1.0, 0.0, 2.0)
    assert repr(y) == "Clamped(2 x + 1 in [0, inf], x from Gaussian)"
    for bad in (
        lambda: inv.Clamped(rs.Gaussian([0.0, 0.0], 1.0)),
        lambda: inv.Clamped(3),
        lambda: inv.Clamped(rs.Gaussian([0.0], 1.0), lo=2.0, hi=1.0),
        lambda: y.push(1.0, 0.0, "leaky_relu"),
        lambda: y.push(math.inf),
        lambda: y.through(random_net((1, 2, 1))),
    ):
        with pytest.raises(InputError):
            bad()


# -- coded ---------------------------------------------------------------------------------------------------------

rationals = st.fractions(min_value=-5, max_value=5, max_denominator=30)


@st.composite
def layer_lists(draw):
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    layers, before = [], 2
    for m in sizes:
        W = [
            [draw(st.one_of(rationals, st.floats(-1e10, 1e10).map(Fraction))) for _ in range(before)] for _ in range(m)
        ]
        layers.append((tuple(map(tuple, W)), tuple(draw(rationals) for _ in range(m))))
        before = m
    return layers


@settings(max_examples=40)
@given(layer_lists())
def test_codes_are_read_back_exactly(layers):
    theta = inv.encode(layers)
    assert 0 <= theta < 1
    assert inv.decode(theta) == layers
    assert inv.encode(inv.decode(theta)) == theta


def test_coded_laws_are_closed_and_exact():
    law = inv.Coded.start(rs.Uniform([0.0, 0.0], [1.0, 1.0]))
    assert law.layers == []
    rng = np.random.default_rng(0)
    maps = [(rng.normal(size=(3, 2)), rng.normal(size=3)), (rng.normal(size=(2, 3)), rng.normal(size=2))]
    for W, b in maps:
        law = law.push(W, b)
    x = np.array([[0.25, 0.75]])
    z = np.maximum(np.maximum(x @ maps[0][0].T + maps[0][1], 0) @ maps[1][0].T + maps[1][1], 0)
    assert np.array([float(v) for v in law.exact([Fraction(1, 4), Fraction(3, 4)])]) == pytest.approx(z[0], rel=1e-12)
    assert np.allclose(law.network(x), z)
    assert law.sample(5, 0).shape == (5, 2)
    assert "2 layers" in repr(law)
    # a parameter that differs in the last digit spells something else or nothing
    with pytest.raises(InputError):
        inv.decode(law.theta + Fraction(1, law.theta.denominator * 8) - Fraction(1, 2**40))


def test_the_code_is_not_locally_lipschitz():
    found = inv.lipschitz_quotients((1, 2, 4, 8, 16, 64))
    gaps = [q.log2_gap for q in found]
    assert all(later < earlier for earlier, later in itertools.pairwise(gaps))
    assert all(q.distance == pytest.approx(math.sqrt(0.5)) for q in found)
    assert found[-1].log2_quotient > 1000
    eye, none = np.eye(2), np.zeros(2)
    one, two = inv.encode([(eye, none)] * 4), inv.encode([(eye, none)] * 4 + [(2 * eye, none)])
    assert math.log2(abs(one - two)) == pytest.approx(found[2].log2_gap)
    base = rs.Uniform([0.0, 0.0], [1.0, 1.0])
    means = [inv.Coded(theta, base).sample(40_000, 1).mean(axis=0) for theta in (one, two)]
    assert np.linalg.norm(means[1] - means[0]) == pytest.approx(math.sqrt(0.5), abs=0.02)


@pytest.mark.parametrize(
    "call",
    [
        lambda: inv.decode(0.5),
        lambda: inv.decode(Fraction(1, 3)),
        lambda: inv.decode(Fraction(3, 2)),
        lambda: inv.decode(Fraction(3, 4)),
        lambda: inv.encode([3]),
        lambda: inv.encode([([[1.0]], [math.nan])]),
        lambda: inv.encode([([[1.0]], [0.0, 0.0])]),
        lambda: inv.Coded.start(rs.Uniform([0.0], [1.0])).push([[1.0, 2.0]], [0.0]),
        lambda: inv.push(rs.Gaussian([0.0], 1.0), random_net((1, 2, 1))),
        lambda: inv.push(rs.Particles([[0.0]]), "net"),
    ],
)
def test_bad_input_is_one_clear_error(call):
    with pytest.raises(InputError):
        call()


# -- the checker ---------------------------------------------------------------------------------------------------


def test_the_three_families_hold():
    for family in (inv.FiniteSupport(3), inv.WidthOne(), inv.WidthOne(rs.Uniform([-1.0], [1.0])), inv.CodedFamily(2)):
        found = inv.is_invariant(family, rng=0)
        assert found
        assert found.tried == 60
        assert "closed" in str(found)


def test_width_one_fails_for_wider_layers():
    found = inv.is_invariant(inv.WidthOne(), [(np.ones((2, 1)), np.zeros(2))])
    assert not found
    assert "width one" in found.counterexample.reason


def test_gaussians_fail_with_a_proved_gap():
    found = inv.is_invariant(inv.Gaussians(2), rng=0)
    case = found.counterexample
    assert not found
    g, W, b, i = case.member, case.weight, case.bias, case.unit
    mean, sd = float(W[i] @ g.mean + b[i]), math.sqrt(W[i] @ g.cov @ W[i])
    t = np.linspace(-8, 8, 4001) * sd + mean
    truth = np.where(t < 0, 0.0, special.ndtr((t - mean) / sd))
    # No Gaussian comes nearer than the gap: not the moment-matched one, nor any on a grid.
    nearest = min(
        np.abs(truth - special.ndtr((t - mean - u * sd) / (s * sd))).max()
        for u in np.linspace(-2, 2, 41)
        for s in (0.01, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.5)
    )
    assert nearest >= case.gap - 1e-3
    assert case.gap > 0.01


@pytest.mark.parametrize("k", [1, 2, 3])
def test_mixtures_fail(k):
    found = inv.is_invariant(inv.Mixtures(2, k), trials=4, rng=0)
    assert not found
    assert found.counterexample.gap > 1e-3
    assert "no mass below 0" in str(found)


def test_points_are_gaussians_that_survive():
    point = rs.Gaussian([1.0, -2.0], np.zeros((2, 2)))
    image = inv.Gaussians(2).step(point, np.eye(2), np.zeros(2))
    assert image.mean.tolist() == [1.0, 0.0]


def test_checker_refuses_what_does_not_fit():
    with pytest.raises(InputError, match="3 inputs"):
        inv.is_invariant(inv.Gaussians(3), random_net((2, 3, 1)))
    with pytest.raises(InputError, match="ReLU"):
        inv.is_invariant(inv.Gaussians(2), random_net((2, 3, 1), activation="abs"))
    with pytest.raises(InputError):
        inv.is_invariant(inv.Gaussians(2), [3])
    assert not inv.is_invariant(inv.Gaussians(2), random_net((2, 3, 1)))


# -- growth --------------------------------------------------------------------------------------------------------


def test_relu_moments_closed_forms_and_draws():
    mean, cov = inv.relu_moments(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    # E relu(X) relu(Y) = (sqrt(1 - r^2) + r (pi - acos r)) / (2 pi)
    joint = (math.sqrt(0.75) + 0.5 * (math.pi - math.acos(0.5))) / (2 * math.pi)
    assert mean == pytest.approx([1 / math.sqrt(2 * math.pi)] * 2)
    assert cov[0, 1] == pytest.approx(joint - 1 / (2 * math.pi), rel=1e-13)
    assert cov[0, 0] == pytest.approx(0.5 - 0.5 / math.pi, rel=1e-13)
    rng = np.random.default_rng(0)
    root, m = rng.normal(size=(4, 3)), np.array([0.0, 1.0, -1.0, 0.3])  # a singular covariance
    z = np.maximum(m + rng.normal(size=(400_000, 3)) @ root.T, 0)
    mean, cov = inv.relu_moments(m, root @ root.T)
    sd = z.std(axis=0)
    assert (np.abs(mean - z.mean(axis=0)) < 6 * sd / math.sqrt(4e5)).all()
    assert np.abs(cov - np.cov(z.T)).max() < 0.03 * sd.max() ** 2
    same, equal = inv.relu_moments(np.array([0.2, 0.2, -1.0]), np.array([[1.0, 1, 0], [1, 1, 0], [0, 0, 0]]))
    assert equal[0, 1] == pytest.approx(equal[0, 0], abs=1e-7)
    assert same[2] == equal[2, 2] == 0.0


def test_growth_counts_cells_and_shows_the_error_of_moment_matching():
    net = random_net((2, 4, 4, 1), 1, bias=0.3)
    law = rs.Gaussian([0.1, -0.2], 1.0)
    found = inv.growth(net, law)
    rows = found.rows
    assert [row.layer for row in rows] == [0, 1, 2]
    # layer 0 is a Gaussian; layer 1 has moments right and shape wrong; later both are wrong
    assert rows[0].components == 1
    assert rows[0].kolmogorov < 1e-12
    assert rows[1].mean_error < 1e-12
    assert rows[1].cov_error < 1e-10
    assert rows[1].kolmogorov > 0.01
    assert rows[2].mean_error > 1e-4
    for k, row in enumerate(rows[1:], start=1):
        part = rs.Network([(p.weight, p.bias, p.units) for p in net.layers[:k]])
        assert row.components == len(rs.regions(part, law=law))
    x = law.sample(400_000, 0)
    y = net(x)[:, 0]
    exact = rs.outputs(net, law)
    assert abs(exact.mean.value[0] - y.mean()) < 6 * y.std() / math.sqrt(4e5)
    assert found.guarantee == "exact"
    assert len(found.to_pandas()) == 3
    assert found.plot().get_xlabel()
    assert "3 layers" in repr(found)
    assert "kolmogorov" in str(found)
    for call in (
        lambda: inv.growth(random_net((2, 3, 1), activation="abs"), law),
        lambda: inv.growth("net", law),
        lambda: inv.growth(net, 3),
        lambda: inv.growth(random_net((8, 9, 1)), rs.Gaussian(np.zeros(8), 1.0)),
    ):
        with pytest.raises(InputError):
            call()


def test_the_module_is_public_without_being_imported():
    import subprocess
    import sys

    code = "import reluscope, sys; print('numpy' in sys.modules, reluscope.invariance.Clamped.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "Clamped"]
