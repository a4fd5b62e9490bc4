"""The law of the output: closed forms, draws with exact binomial acceptance, and the identities that must hold."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import binom, norm

import reluscope as rs
from nets import integer_net, random_net
from reluscope import activations
from reluscope.answers import _output_regions
from reluscope.answers.outputs import bracketed_roots, error_rates, outputs
from reluscope.errors import InputError
from reluscope.inputs import ClassMixtures
from reluscope.measure import lines as lines_module
from reluscope.measure.regions import enumeration

G2 = rs.Gaussian([0.3, -0.2], [[1.0, 0.3], [0.3, 2.0]])
LAWS = {
    "gaussian 1": rs.Gaussian([0.5], 2.0),
    "gaussian 2": G2,
    "gaussian 3": rs.Gaussian([0.1, 0.2, 0.3], [1.0, 2.0, 0.5]),
    "singular": rs.Gaussian([1.0, 2.0, 0.0], factor=[[1.0], [2.0], [-1.0]]),
    "constant": rs.Gaussian([1.0, 2.0], [0.0, 0.0]),
    "mixture": rs.GaussianMixture([0.3, 0.7], [rs.Gaussian([30.0, 0.0], [0.5, 0.1]), rs.Gaussian([-2.0, 1.0], 1.0)]),
    "mixed ranks": rs.GaussianMixture(
        [0.2, 0.5, 0.3],
        [rs.Gaussian([1.0, 1.0], [0.0, 0.0]), rs.Gaussian([0.0, 0.0], [0.0, 1.0]), rs.Gaussian([-1.0, 1.0], 1.0)],
    ),
    "uniform 1": rs.Uniform([-1.0], [2.0]),
    "uniform 2": rs.Uniform([-1.0, 0.0], [1.0, 3.0]),
    "uniform 3": rs.Uniform(-np.ones(3), np.ones(3)),
    "uniform 4": rs.Uniform(-np.ones(4), np.ones(4)),
    "truncated": rs.Truncated(rs.Gaussian([0.0, 0.0], 1.0), [-1.0, -1.0], [1.0, 2.0]),
    "truncated, correlated": rs.Truncated(G2, [-1.0, -np.inf], [1.0, 2.0]),
    "truncated 3": rs.Truncated(rs.Gaussian(np.zeros(3), 1.0), [-1.0, 0.0, -np.inf], [1.0, 2.0, np.inf]),
    "particles": rs.Particles(np.random.default_rng(0).normal(size=(50, 2))),
}


def plausible(count, n, lower, upper, alarm=1e-9):
    """Whether counts of n draws fit a probability in [lower, upper]: exact binomial tails, `alarm` per number."""
    low, high = np.clip(lower, 0, 1), np.clip(upper, 0, 1)
    return (binom.cdf(count, n, low) > alarm / 2) & (binom.sf(count - 1, n, high) > alarm / 2)


def small_net(n, seed=3, outputs_=2):
    return random_net((n, 6, 5, outputs_), seed, bias=0.6)


# -- closed forms ------------------------------------------------------------------------------------------------


def test_a_linear_network_has_a_gaussian_output():
    W, b = np.array([[1.0, -2.0], [0.5, 1.0]]), np.array([0.3, -1.0])
    out = outputs(rs.Network([(W, b)]), G2)
    mean, cov = W @ G2.mean + b, W @ G2.cov @ W.T
    np.testing.assert_allclose(out.mean.value, mean, rtol=1e-12)
    np.testing.assert_allclose(out.cov.value, cov, rtol=1e-11)
    for o in range(2):
        s = np.sqrt(cov[o, o])
        z = np.array([-30.0, -10.0, -3.0, -0.5, 0.0, 1.0, 4.0, 8.0])
        t = mean[o] + s * z
        np.testing.assert_allclose(out.cdf(t, o).value, ndtr(z), rtol=1e-10)
        np.testing.assert_allclose(out.sf(t, o).value, ndtr(-z), rtol=1e-10)
        np.testing.assert_allclose(out.pdf(t, o).value, norm.pdf(z) / s, rtol=1e-10)
        q = np.array([1e-12, 0.01, 0.5, 0.9, 1 - 1e-12])
        np.testing.assert_allclose(out.quantile(q, o).value, mean[o] + s * norm.ppf(q), rtol=1e-4 * 1e-8, atol=1e-11)
        assert len(out.atoms(o)) == 0
    assert out.guarantee == "exact"
    assert out.mixture.degenerate_mass == 0.0


@pytest.mark.parametrize(("mu", "s"), [(0.0, 1.0), (0.7, 2.0), (-3.0, 0.5), (-30.0, 1.0), (30.0, 1.0)])
def test_one_relu(mu, s):
    net = rs.Network([([[1.0]], None), ([[1.0]], None)])
    out = outputs(net, rs.Gaussian([mu], s * s))
    atoms = out.atoms()
    assert atoms.value.tolist() == [0.0]
    assert atoms.mass.value[0] == pytest.approx(ndtr(-mu / s), rel=1e-11)
    mean = mu * ndtr(mu / s) + s * norm.pdf(mu / s)
    square = (mu**2 + s**2) * ndtr(mu / s) + mu * s * norm.pdf(mu / s)
    if mu > -10:  # further out the textbook form itself cancels
        assert float(out.mean.value[0]) == pytest.approx(mean, rel=1e-10)
        assert float(out.cov.value[0, 0]) == pytest.approx(square - mean**2, rel=1e-9)
    t = np.array([-1.0, -1e-300, 0.0, 0.3, 2.0])
    expected = np.where(t < 0, 0.0, ndtr((t - mu) / s))
    np.testing.assert_allclose(out.cdf(t).value, expected, rtol=1e-12)
    np.testing.assert_allclose(out.sf(t).value, np.where(t < 0, 1.0, ndtr(-(t - mu) / s)), rtol=1e-12)
    assert out.quantile(0.5 * ndtr(-mu / s)).value == 0.0


def test_two_relus_in_the_plane():
    # E relu(X) relu(Y) at correlation r, and P(both off).
    r = 0.6
    law = rs.Gaussian([0.0, 0.0], [[1.0, r], [r, 1.0]])
    net = rs.Network([(np.eye(2), None), (np.eye(2), None)])
    out = outputs(net, law)
    cross = (np.sqrt(1 - r * r) + r * (np.pi - np.arccos(r))) / (2 * np.pi)
    assert out.cov.value[0, 1] == pytest.approx(cross - 1 / (2 * np.pi), rel=1e-12)
    both_off = 0.25 + np.arcsin(r) / (2 * np.pi)
    found = out.probability((np.eye(2), [0.0, 0.0]))
    assert found.value == pytest.approx(both_off, rel=1e-12)
    assert found.lower <= both_off <= found.upper
    ranks = out.mixture
    assert ranks.mass.value[ranks.rank == 0].sum() == pytest.approx(both_off, rel=1e-12)
    assert ranks.degenerate_mass == pytest.approx(1 - both_off, rel=1e-12)


def test_uniform_sum_of_three():
    # Irwin-Hall: P(x0 + x1 + x2 <= t).
    out = outputs(rs.Network([(np.ones((1, 3)), None)]), rs.Uniform(np.zeros(3), np.ones(3)))
    t = np.array([-0.5, 0.3, 1.0, 1.5, 2.2, 3.5])
    cdf = [0.0, 0.3**3 / 6, 1 / 6, 0.5, 1 - 0.8**3 / 6, 1.0]
    np.testing.assert_allclose(out.cdf(t).value, cdf, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(out.pdf([0.3, 1.5, 2.2]).value, [0.3**2 / 2, 0.75, 0.8**2 / 2], rtol=1e-12)
    assert float(out.mean.value[0]) == pytest.approx(1.5)
    assert float(out.cov.value[0, 0]) == pytest.approx(0.25)


def test_cancelling_units_make_an_atom_in_spite_of_rounding():
    # y = relu(a x) - a relu(x) in floating point: zero up to rounding on both sides, and a real slope in a third piece.
    W = np.array([[0.1], [0.7], [1.0]])
    net = rs.Network([(W, [0.0, 0.0, -2.0]), ([[3.0, -0.3 / 0.7, 1.0]], [0.25])])
    out = outputs(net, rs.Gaussian([0.0], 1.0))
    assert len(out.atoms()) == 1
    assert out.atoms().value[0] == pytest.approx(0.25, abs=1e-15)
    assert out.atoms().mass.value[0] == pytest.approx(ndtr(2.0), rel=1e-12)
    assert out.cdf(out.atoms().value[0]).value == pytest.approx(ndtr(2.0), rel=1e-12)


def test_the_cdf_jumps_where_the_network_does():
    """Units that cancel leave an atom at 1, which is 1.0000000000000002 in floats and the coordinates of the law."""
    clipped = activations.hardtanh()
    net = rs.Network(
        [
            ([[1.0], [-1.0], [-1.5], [-0.5]], [0.0, 1.0, 0.0, -1.0], clipped),
            ([[-0.5, 0.5, 1.0, 1.0], [1.5, -1.0, 1.5, -1.5]], [-0.5, 0.0]),
            ([[-1.0, 1.0]], [0.5]),
        ]
    )
    law = rs.Gaussian([0.2], 1.3)
    out = outputs(net, law)
    atoms = out.atoms()
    assert 1.0 in atoms.value.tolist() and len(atoms) == 3
    for v in atoms.value.tolist():
        for t in (np.nextafter(v, -np.inf), v, np.nextafter(v, np.inf)):
            wanted = rs.probability(net, law, f"y[0] <= {float(t)!r}", guarantee="exact")
            for found in (out.cdf(t), 1.0 - out.sf(t).value):
                assert float(getattr(found, "value", found)) == pytest.approx(wanted.value, abs=1e-9)


def test_the_cdf_of_particles_is_that_of_the_real_network():
    """0.1 + 0.7 is rounded down: the network of these weights, in real numbers, is above its value in floats."""
    net, law = rs.Network([([[0.1, 0.7]], None)]), rs.Particles([[1.0, 1.0], [5.0, 5.0]])
    y = float(net([1.0, 1.0])[0])
    assert Fraction(0.1) + Fraction(0.7) > Fraction(y)
    assert rs.probability(net, law, f"y[0] <= {y!r}", guarantee="exact").value == 0.0
    out = outputs(net, law)
    assert out.cdf(y).value == 0.0 and out.cdf(np.nextafter(y, 1.0)).value == 0.5


def test_what_fractions_do_not_decide_is_in_the_bracket(monkeypatch):
    net = rs.Network([([[0.1, 0.7], [1.0, 1.0]], [0.0, -50.0]), ([[1.0, 1.0]], [0.3])])
    monkeypatch.setattr(_output_regions, "_MOST_WORK", 0)
    for law, y in ((rs.Particles([[1.0, 1.0], [5.0, 5.0]]), 1.1), (rs.Gaussian([-9.0, -9.0], [1.0, 2.0]), 0.3)):
        out = outputs(net, law)
        assert out.atoms().value.min() == pytest.approx(y)
        share = float(out.atoms().mass.value[0])
        assert share > 0.4
        for found in (out.cdf(out.atoms().value[0]), out.sf(out.atoms().value[0])):
            assert found.upper - found.lower == pytest.approx(share, rel=1e-6)
        far = out.cdf(y + 1e-9)
        assert far.upper - far.lower < 1e-9


def test_clipped_output_has_two_atoms():
    net = rs.Network([([[2.0]], [0.5], "hardtanh"), ([[1.0]], None)])
    atoms = outputs(net, rs.Gaussian([0.0], 1.0)).atoms()
    np.testing.assert_allclose(atoms.value, [-1.0, 1.0])
    np.testing.assert_allclose(atoms.mass.value, [ndtr(-0.75), ndtr(-0.25)], rtol=1e-12)


def test_constant_outputs():
    dead = rs.Network([(np.ones((3, 2)), [-1e4] * 3), (np.ones((1, 3)), [0.7])])
    for law in (G2, LAWS["uniform 2"], LAWS["constant"], LAWS["particles"]):
        out = outputs(dead, law)
        assert out.atoms().value.tolist() == [0.7]
        assert out.atoms().mass.value[0] == pytest.approx(1.0, abs=1e-12)
        assert out.cdf([0.7 - 1e-12, 0.7]).value == pytest.approx([0.0, 1.0], abs=1e-12)
        assert out.quantile([0.1, 0.9]).value.tolist() == [0.7, 0.7]
        assert out.pdf([0.7, 0.0]).value.tolist() == [0.0, 0.0]
        assert float(out.mean.value[0]) == pytest.approx(0.7)
        assert float(out.cov.value[0, 0]) == pytest.approx(0.0, abs=1e-12)


# -- every law ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
def test_agrees_with_draws(name):
    law = LAWS[name]
    net = small_net(law.n)
    out = outputs(net, law)
    n = 200_000
    y = net(law.sample(n, rng=7))
    assert out.guarantee == "exact"
    for o in range(2):
        low, high = np.quantile(y[:, o], [0.0005, 0.9995])
        t = np.unique(np.concatenate([np.linspace(low, high, 20), out.atoms(o).value[:5]]))
        # Rounding of the draws must not decide which side of an atom they are on.
        t += 1e-12 * (1 + np.abs(t))
        counts = (y[:, o, None] <= t).sum(axis=0)
        found = out.cdf(t, o)
        assert plausible(counts, n, found.lower, found.upper).all()
        np.testing.assert_allclose(out.sf(t, o).value, 1 - found.value, atol=1e-12)
        assert (np.diff(found.value) >= 0).all()
        assert (found.lower <= found.value).all() and (found.value <= found.upper).all()
    # Means of draws: 6.5 standard errors, false alarms 1e-10 each.
    error = y.std(axis=0) / np.sqrt(n) + 1e-10
    assert (np.abs(y.mean(axis=0) - out.mean.value) <= 6.5 * error).all()
    centred = y - out.mean.value
    products = centred[:, :, None] * centred[:, None, :]
    error = products.std(axis=0) / np.sqrt(n) + 1e-10
    assert (np.abs(products.mean(axis=0) - out.cov.value) <= 6.5 * error).all()
    G, g = np.array([[1.0, -1.0], [0.5, 1.0]]), np.quantile(y @ np.array([[1.0, -1.0], [0.5, 1.0]]).T, 0.6, axis=0)
    g = g + 1e-9
    event = out.probability((G, g))
    assert plausible((y @ G.T <= g).all(axis=1).sum(), n, event.lower, event.upper)


@pytest.mark.parametrize("name", [k for k in LAWS if k != "uniform 4"])
def test_density_is_the_derivative_of_the_cdf(name):
    law = LAWS[name]
    out = outputs(small_net(law.n), law)
    if name in ("particles", "constant"):  # atoms only
        assert not out.pdf(np.linspace(-1, 1, 5)).value.any() and out.atoms().mass.value.sum() == pytest.approx(1)
        return
    low, high = out.quantile([1e-6, 1 - 1e-6]).value
    t = np.linspace(low, high, 43)[1:-1]
    h = 1e-5 * (high - low + 1e-9)
    atoms = out.atoms().value
    if len(atoms):
        t = t[np.abs(t[:, None] - atoms).min(axis=1) > 2 * h]
    slope = (out.cdf(t + h).value - out.cdf(t - h).value) / (2 * h)
    smooth = np.abs(out.pdf(t + h).value - out.pdf(t - h).value) < 1e-3 * (1e-6 + out.pdf(t).value)
    assert smooth.sum() >= len(t) // 2 > 10
    np.testing.assert_allclose(out.pdf(t).value[smooth], slope[smooth], rtol=2e-3, atol=1e-9)


def vertex_levels(out):
    """All levels at which a cell's density may have a kink or a jump."""
    levels = [out.atoms().value]
    for part in out.regions.components:
        if part.dimension == 1:
            ends = np.stack([part.cells.low, part.cells.high], axis=1)
            levels.append((ends * part.C[:, 0] + part.d[:, :1]).ravel())
        else:
            owner = np.repeat(np.arange(len(part.cells)), np.diff(part.cells.offsets))
            levels.append((part.cells.points * part.C[owner, 0]).sum(axis=1) + part.d[owner, 0])
    return np.unique(np.concatenate(levels))


@pytest.mark.parametrize("name", ["gaussian 1", "gaussian 2", "mixture", "truncated", "uniform 1", "uniform 2"])
def test_density_integrates_to_one_without_the_atoms(name):
    law = LAWS[name]
    out = outputs(small_net(law.n, outputs_=1), law)
    low, high = out.quantile([1e-13, 1 - 1e-13]).value
    # Between these cuts the density is analytic: a Gauss rule on each of them, long ones cut further.
    cuts = np.unique(np.concatenate([np.clip(vertex_levels(out), low, high), np.linspace(low, high, 60)]))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = 0.5 * np.diff(cuts)
    t = 0.5 * (cuts[1:] + cuts[:-1])[:, None] + half[:, None] * nodes
    total = (out.pdf(t).value * weights).sum(axis=1) @ half
    assert total + out.atoms().mass.value.sum() == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("name", LAWS)
def test_quantile_inverts_the_cdf(name):
    law = LAWS[name]
    out = outputs(small_net(law.n), law)
    q = np.array([1e-9, 0.01, 0.2, 0.5, 0.77, 0.99, 1 - 1e-9])
    for o in range(1 if name == "gaussian 3" else 2):
        found = out.quantile(q, o)
        t = found.value
        assert (np.diff(t) >= 0).all()
        assert (found.lower <= t).all() and (t <= found.upper).all()
        assert (out.cdf(t, o).upper >= q).all()
        # Just below, the cdf has not reached q.
        under = t - 1e-9 * (1 + np.abs(t))
        assert (out.cdf(under, o).lower < q).all()
        at_atom = np.isin(t, out.atoms(o).value)
        np.testing.assert_allclose(out.cdf(t[~at_atom], o).value, q[~at_atom], rtol=1e-6, atol=1e-14)


def test_three_dimensions_against_one_quadrature():
    # Independent method: condition on u2, then the plane's exact law.
    net = random_net((3, 5, 4, 1), 1, bias=0.5)
    out = outputs(net, rs.Gaussian(np.zeros(3), 1.0))
    t = np.array([-1.0, 0.2, 0.5])

    def given(z, kind, level):
        inner = net.after(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), np.array([0.0, 0.0, z]))
        return getattr(outputs(inner, rs.Gaussian([0.0, 0.0], 1.0)), kind)(level).value * norm.pdf(z)

    for level in t:
        reference = quad(given, -9, 9, args=("cdf", level), epsabs=1e-7, limit=60)[0]
        assert out.cdf(level).value == pytest.approx(reference, abs=2e-6)
    nodes, weights = np.polynomial.legendre.leggauss(120)
    reference = sum(w * 6.5 * given(6.5 * x, "pdf", 0.2) for x, w in zip(nodes, weights, strict=True))
    assert out.pdf(0.2).value == pytest.approx(reference, rel=1e-3)


def test_law_of_total_expectation():
    for name in ("gaussian 2", "mixture", "gaussian 3", "uniform 3"):
        law = LAWS[name]
        out = outputs(small_net(law.n), law)
        cells = out.mixture
        assert cells.mass.value.sum() == pytest.approx(1.0, abs=1e-9)
        mean = cells.mass.value @ cells.mean
        np.testing.assert_allclose(mean, out.mean.value, rtol=1e-9, atol=1e-9)
        spread = cells.mean - mean
        cov = np.einsum("n,nop->op", cells.mass.value, cells.cov) + np.einsum(
            "n,no,np->op", cells.mass.value, spread, spread
        )
        np.testing.assert_allclose(cov, out.cov.value, rtol=1e-7, atol=1e-8)
        assert (np.linalg.eigvalsh(cells.cov) > -1e-7).all()


def test_moments_agree_with_integrals_of_the_cdf():
    # E y = int (1 - F) over y > 0 minus int F over y < 0.
    out = outputs(small_net(2, outputs_=1), G2)
    low, high = out.quantile([1e-15, 1 - 1e-15]).value
    nodes, weights = np.polynomial.legendre.leggauss(8)

    def integral(function, cuts):
        half = 0.5 * np.diff(cuts)
        t = 0.5 * (cuts[1:] + cuts[:-1])[:, None] + half[:, None] * nodes
        return (function(t).value * weights).sum(axis=1) @ half

    levels = vertex_levels(out)
    right = integral(out.sf, np.unique(np.clip(np.concatenate([levels, np.linspace(0, high, 40)]), 0, high)))
    left = integral(out.cdf, np.unique(np.clip(np.concatenate([levels, np.linspace(low, 0, 40)]), low, 0)))
    assert float(out.mean.value[0]) == pytest.approx(right - left, abs=1e-8)


# -- the built-in example ----------------------------------------------------------------------------------------


def check_example(draws):
    example = rs.example("moons")
    out = outputs(example.network, example.law)
    low, high = out.quantile([1e-6, 1 - 1e-6]).value
    t = np.linspace(low, high, 200)
    counts = np.zeros(200, np.int64)
    rng = np.random.default_rng(11)
    total = 0
    sums = np.zeros(2)
    for _ in range(draws // 500_000):
        y = example.network(example.law.sample(500_000, rng))[:, 0]
        counts += np.searchsorted(np.sort(y), t, side="right")
        total += len(y)
        sums += [y.sum(), (y**2).sum()]
    found = out.cdf(t)
    assert plausible(counts, total, found.lower, found.upper).all()
    assert (found.upper - found.lower).max() < 1e-12
    mean = float(out.mean.value[0])
    sd = float(np.sqrt(out.cov.value[0, 0]))
    assert abs(sums[0] / total - mean) < 6.5 * sd / np.sqrt(total)
    assert sums[1] / total - mean**2 == pytest.approx(sd**2, rel=1e-2)
    q = out.quantile([0.1, 0.5, 0.999])
    np.testing.assert_allclose(out.cdf(q.value).value, [0.1, 0.5, 0.999], rtol=1e-12)


def test_example_agrees_with_draws():
    check_example(1_000_000)


@pytest.mark.slow
def test_example_agrees_with_ten_million_draws():
    check_example(10_000_000)


def test_hidden_layers():
    net = small_net(2)
    out = outputs(net, G2)
    first = out.hidden(0)
    W, b = net.layers[0].weight, net.layers[0].bias
    np.testing.assert_allclose(first.mean.value, W @ G2.mean + b, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(first.cov.value, W @ G2.cov @ W.T, rtol=1e-10, atol=1e-11)
    h = net.preactivations(G2.sample(200_000, rng=3))[1]
    second = out.hidden(1)
    counts = (h[:, 4] <= 0.3).sum()
    found = second.cdf(0.3, 4)
    assert plausible(counts, 200_000, found.lower, found.upper)
    np.testing.assert_allclose(out.hidden(2).mean.value, out.mean.value, rtol=1e-12)


def test_error_rates():
    net = rs.Network([([[1.0, 1.0]], [0.0])])
    negative, positive = rs.Gaussian([-1.0, 0.0], 0.5), rs.Gaussian([1.0, 1.0], 0.5)
    t = np.array([-1.0, 0.0, 0.5])
    rates = error_rates(net, (negative, positive), t)
    np.testing.assert_allclose(rates.false_positive.value, ndtr(-(t + 1.0)), rtol=1e-11)
    np.testing.assert_allclose(rates.false_negative.value, ndtr(t - 2.0), rtol=1e-11)
    np.testing.assert_allclose(rates.error.value, 0.5 * (ndtr(-(t + 1)) + ndtr(t - 2)), rtol=1e-11)
    classes = ClassMixtures(
        ("no", "yes"), np.array([0.25, 0.75]), tuple(rs.GaussianMixture([1.0], [g]) for g in (negative, positive))
    )
    both = error_rates(net, classes, 0.0)
    assert float(both.error.value) == pytest.approx(0.25 * ndtr(-1.0) + 0.75 * ndtr(-2.0), rel=1e-11)
    swapped = error_rates(net, classes, 0.0, positive="no")
    assert float(swapped.false_positive.value) == pytest.approx(1 - ndtr(-2.0), rel=1e-11)


def test_a_budget_gives_sound_brackets():
    net, law = random_net((2, 16, 16, 1), 5, bias=0.7), G2
    whole, part = outputs(net, law), outputs(net, law, budget="40 regions")
    assert part.guarantee == "sound" and "40 regions" in part.stopped
    t = np.linspace(*whole.quantile([0.01, 0.99]).value, 30)
    truth, found = whole.cdf(t), part.cdf(t)
    assert ((found.lower <= truth.upper) & (truth.lower <= found.upper)).all()
    assert (found.value <= truth.value + 1e-12).all()
    assert np.isinf(part.mean.upper).all()
    q = part.quantile([0.2, 0.5])
    truth = whole.quantile([0.2, 0.5]).value
    assert (q.lower <= truth).all() and (truth <= q.upper).all()
    assert ((q.lower <= q.value) & (q.value <= q.upper)).all()


def test_far_tails_keep_their_digits():
    # The output is linear, the law far from the threshold: both tails to 1e-200 and beyond.
    net = rs.Network([(np.array([[1.0, 0.0], [-1.0, 0.0]]), None), ([[1.0, -1.0]], None)])  # y = x0 by two relus
    out = outputs(net, rs.Gaussian([0.0, 0.0], 1.0))
    z = np.array([-35.0, -20.0, -8.0])
    np.testing.assert_allclose(out.cdf(z).value, ndtr(z), rtol=1e-9)
    np.testing.assert_allclose(out.sf(-z).value, ndtr(z), rtol=1e-9)
    assert len(out.atoms()) == 0


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), widths=st.sampled_from([(1, 4, 3, 1), (2, 4, 3, 1), (2, 3, 3, 2)]))
def test_integer_networks_with_ties_and_dead_units(seed, widths):
    net = integer_net(widths, seed)
    law = rs.Gaussian(np.zeros(widths[0]), 1.0)
    out = outputs(net, law)
    y = net(law.sample(4000, rng=seed))
    for o in range(widths[-1]):
        t = np.unique(np.concatenate([np.quantile(y[:, o], [0.1, 0.5, 0.9]), out.atoms(o).value]))
        counts = (y[:, o, None] <= t + 1e-9).sum(axis=0)
        near = out.cdf(t + 1e-9, o)
        assert plausible(counts, len(y), near.lower, near.upper, alarm=1e-8).all()
        assert out.cdf(np.inf, o).value == pytest.approx(1.0, abs=1e-12)
        assert out.cdf(-np.inf, o).value == 0.0
        # The jump at each atom is its mass.
        for a, m in zip(out.atoms(o).value, out.atoms(o).mass.value, strict=True):
            jump = out.cdf(a, o).value - out.cdf(np.nextafter(a, -np.inf), o).value
            assert jump == pytest.approx(m, abs=1e-12)


def test_values_and_shapes():
    out = outputs(small_net(2), G2)
    assert out.cdf(0.0).shape == ()
    assert isinstance(float(out.cdf(0.0)), float)
    assert out.cdf(np.zeros((2, 3)), 1).shape == (2, 3)
    assert out.cdf([]).shape == (0,)
    t = np.array([1.0, -1.0, 0.0])
    np.testing.assert_allclose(out.cdf(t).value, [float(out.cdf(x)) for x in t], rtol=1e-12)
    assert out.cdf([0.0, 1.0], -1).value.tolist() == out.cdf([0.0, 1.0], 1).value.tolist()
    assert isinstance(out.cdf([0.0, 1.0])[1], rs.Answer)
    assert len(out.cdf([0.0, 1.0])[:1]) == 1
    assert "exact" in repr(out.cdf([0.0])) and "exact" in repr(out)
    assert set(out.to_dict()) == {"guarantee", "method", "mean", "cov", "outputs"}
    assert repr(out.atoms()) == f"Atoms({out.atoms().value[0]:.6g}: {out.atoms().mass.value[0]:.6g})"
    assert "none" in repr(outputs(rs.Network([([[1.0, 1.0]], [0.0])]), G2).atoms())
    assert "regions" in repr(out.mixture)


def test_roots():
    a = np.array([0.3, -2.0, 5.0])
    found = bracketed_roots(lambda t, i: np.tanh(t - a[i]), np.full(3, -50.0), np.full(3, 70.0))
    np.testing.assert_allclose(found, a, rtol=1e-13)
    step = bracketed_roots(lambda t, i: np.where(t < 0.1, -1.0, 1.0), np.array([-1.0]), np.array([1.0]))
    assert step[0] == pytest.approx(0.1, rel=1e-14)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda out: outputs("net", G2), "net must be a Network"),
        (lambda out: outputs(small_net(2), "normal"), "law must be"),
        (lambda out: outputs(small_net(2), rs.Gaussian([0.0], 1.0)), "1 inputs"),
        (lambda out: outputs(small_net(2), G2, method="magic"), "method must be one of"),
        (lambda out: outputs(small_net(2), G2, budget="-1s"), "budget"),
        (lambda out: outputs(small_net(2), G2, rng=-1), "rng"),
        (lambda out: out.cdf("a"), "t must"),
        (lambda out: out.cdf([0.0, np.nan]), "nan"),
        (lambda out: out.cdf(0.0, output=2), "output must be"),
        (lambda out: out.cdf(0.0, output=1.0), "output must be"),
        (lambda out: out.pdf(1j), "t must"),
        (lambda out: out.quantile(0.0), "strictly between"),
        (lambda out: out.quantile([0.5, 1.5]), "strictly between"),
        (lambda out: out.quantile(np.nan), "finite"),
        (lambda out: out.probability([[1.0, 0.0]]), "pair"),
        (lambda out: out.probability(([[1.0]], [0.0])), "rows needs G"),
        (lambda out: out.probability(([[1.0, np.inf]], [0.0])), "finite"),
        (lambda out: out.hidden(-1), "layer must be"),
        (lambda out: out.hidden(3), "layer must be"),
        (lambda out: out.atoms(5), "output must be"),
        (lambda out: error_rates(small_net(2), G2), "laws must be"),
        (lambda out: error_rates(small_net(2), (G2, G2), np.nan), "nan"),
        (lambda out: error_rates(small_net(2), (G2, G2), positive=1), "ClassMixtures"),
        (lambda out: outputs(small_net(4), LAWS["uniform 4"]).pdf(0.0), "density"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, says):
    out = outputs(small_net(2), G2)
    with pytest.raises(InputError, match=says) as caught:
        call(out)
    assert "\n" not in str(caught.value)


# -- lines -------------------------------------------------------------------------------------------------------


def near(estimate, truth, rounding=1e-9):
    """Within three widths of a 99 % Student interval from 16 replicates: false alarms below 1e-9 each."""
    return np.abs(estimate.value - truth) <= 3 * (estimate.upper - estimate.lower) + rounding


def test_lines_agree_with_the_exact_law():
    net = small_net(2)
    exact, lines = outputs(net, G2), outputs(net, G2, method="lines", budget="0.2s", rng=1)
    lines.cdf(0.0)  # compiles
    assert lines.guarantee == "confidence"
    t = np.linspace(*exact.quantile([0.01, 0.99]).value, 7)
    for kind in ("cdf", "sf", "pdf"):
        found = getattr(lines, kind)(t)
        assert near(found, getattr(exact, kind)(t).value).all()
        assert (found.lower <= found.value).all() and (found.value <= found.upper).all()
    assert near(lines.mean, exact.mean.value).all()
    assert near(lines.cov, exact.cov.value).all()
    rows = ([[1.0, -1.0], [0.0, 1.0]], [0.2, 0.5])
    assert near(lines.probability(rows), exact.probability(rows).value)
    q = lines.quantile([0.1, 0.5, 0.9])
    assert near(q, exact.quantile([0.1, 0.5, 0.9]).value).all()
    assert lines.cdf([-np.inf, np.inf]).value.tolist() == [0.0, 1.0]
    assert lines.hidden(0).cdf([0.0, 0.3], 2).value == pytest.approx(exact.hidden(0).cdf([0.0, 0.3], 2).value, abs=1e-9)


def test_quantiles_by_lines_have_narrow_brackets(monkeypatch):
    # The widest was a tenth of the range when the finer grid ended with the first bracket.
    law = rs.Gaussian(np.zeros(5), 1.0)
    net = random_net((5, 20, 20, 1), 4)
    q = np.array([1e-3, 0.01, 0.3, 0.5, 0.9, 0.999])
    # A number of lines in place of a time: how narrow they are may not depend on the machine.
    real = lines_module.integrate
    monkeypatch.setattr(
        lines_module, "integrate", lambda *a, **k: real(*a, **(k | {"lines": 1 << 15, "method": "lines"}))
    )
    found = outputs(net, law, budget="0.8s", rng=0).quantile(q)
    y = np.sort(net(law.sample(200_000, rng=1))[:, 0])
    assert (found.upper - found.lower).max() < 0.05 * (y[-1] - y[0])
    # Draws: six standard errors in rank, a false alarm in 5e8 comparisons.
    reach = 6 * np.sqrt(q * (1 - q) * len(y)) + 1
    low, high = (y[np.clip((q * len(y) + s * reach).astype(int), 0, len(y) - 1)] for s in (-1, 1))
    assert (found.lower <= high).all()
    assert (found.upper >= low).all()


def test_five_dimensions_go_by_lines():
    law = rs.Gaussian(np.zeros(5), 1.0)
    inner = random_net((5, 8, 8, 1), 1, bias=0.5)
    net = rs.Network([*inner.layers[:-1], (inner.layers[-1].weight, inner.layers[-1].bias, "relu"), ([[1.0]], [0.25])])
    out = outputs(net, law, budget="0.2s", rng=0)
    out.cdf(0.0)
    n = 400_000
    y = net(law.sample(n, rng=1))[:, 0]
    off = (y <= 0.25).sum()
    atoms = out.atoms()
    k = int(np.argmax(atoms.mass.value))
    assert atoms.value[k] == pytest.approx(0.25)
    room = atoms.mass.upper[k] - atoms.mass.lower[k]
    assert plausible(off, n, atoms.mass.lower[k] - 3 * room, atoms.mass.upper[k] + 3 * room)
    q = out.quantile([0.5 * off / n])
    assert q.value[0] == pytest.approx(0.25) and np.isfinite(q.lower[0])
    with pytest.raises(InputError, match="at most 3"):
        outputs(net, law, method="enumeration")
    with pytest.raises(InputError, match="enumeration only"):
        _ = out.mixture
    assert out.probability((np.zeros((0, 1)), [])).value == 1.0


def test_budgets_hold_while_cells_are_measured(monkeypatch):
    """Cells in three dimensions take time to measure: those near the centre come first, the others are left out."""
    from reluscope.budget import Budget

    law, net = rs.Gaussian(np.zeros(3), 1.0), random_net((3, 12, 12, 1), 0)
    exact = outputs(net, law)
    asked = []

    def spent(self, regions=0):
        asked.append(regions)
        return "budget of 9 s reached" if len(asked) > 23 else None

    enumerated = enumeration.enumerate_law(net, law, budget="1000s")[0].regions
    assert len(enumerated) > 60 * enumeration._BLOCK
    monkeypatch.setattr(enumeration, "uninterrupted", lambda *args, **kwargs: enumerated)
    monkeypatch.setattr(Budget, "spent", spent)
    out = outputs(net, law, budget="9s")
    assert out.guarantee == "sound"
    assert "9 s reached" in repr(out)
    kept = out.regions.components[0]
    assert 23 * enumeration._BLOCK < len(kept.mass) <= 24 * enumeration._BLOCK
    assert kept.mass.sum() > 24 * enumeration._BLOCK / len(enumerated)  # near the centre there is more
    assert out.regions.missing == pytest.approx(1 - kept.mass.sum(), abs=1e-9)
    everyone = exact.regions.components[0]
    mass = dict(zip([p.tobytes() for p in everyone.pattern], everyone.mass.tolist(), strict=True))
    np.testing.assert_allclose(kept.mass, [mass[p.tobytes()] for p in kept.pattern], rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(kept.C, net.output_maps(kept.pattern)[0], atol=1e-12)
    t = exact.quantile([0.1, 0.5, 0.9]).value
    found = out.cdf(t)
    assert (found.lower <= exact.cdf(t).value).all()
    assert (found.upper >= exact.cdf(t).value).all()
    assert (found.upper - found.lower).max() == pytest.approx(out.regions.missing, abs=1e-9)


def test_moments_without_a_triangulation_of_the_region(monkeypatch):
    """Qhull may fail on the Delaunay triangulation of an ordinary region: its facets and its centre do as well."""
    import scipy.spatial

    from reluscope.measure.regions import cell_moments

    def fails(points):
        raise scipy.spatial.QhullError("wide merge")

    for d in (3, 4, 5):
        corners = np.random.default_rng(d).normal(size=(24, d))
        truth = scipy.spatial.ConvexHull(corners).volume
        whole = cell_moments.simplices(corners)
        with monkeypatch.context() as patched:
            patched.setattr(scipy.spatial, "Delaunay", fails)
            parts = cell_moments.simplices(corners)
        assert parts.shape[1:] == (d + 1, d) and len(parts) >= d + 1
        assert (parts[:, 0] == corners.mean(axis=0)).all()
        volumes = [np.abs(np.linalg.det(s[:, 1:] - s[:, :1])) / math.factorial(d) for s in (whole, parts)]
        centres = [v @ s.mean(axis=1) / v.sum() for v, s in zip(volumes, (whole, parts), strict=True)]
        assert [v.sum() for v in volumes] == pytest.approx([truth, truth], rel=1e-10)
        np.testing.assert_allclose(centres[0], centres[1], atol=1e-10)
