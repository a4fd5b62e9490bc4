"""The joint density of several outputs, the parts of the mixture, and formula (20) of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm, qmc

import reluscope as rs
from nets import random_net
from reluscope import activations as ac
from reluscope.answers.orthant import orthant_density
from reluscope.errors import InputError

G2 = rs.Gaussian([0.3, -0.2], [[1.0, 0.3], [0.3, 2.0]])
G3 = rs.Gaussian([0.1, 0.2, 0.3], [1.0, 2.0, 0.5])
LAWS = {
    "gaussian 2": G2,
    "gaussian 3": G3,
    "mixture": rs.GaussianMixture([0.3, 0.7], [rs.Gaussian([1.0, 0.0], [0.5, 0.1]), G2]),
    "uniform 2": rs.Uniform([-1.0, 0.0], [1.0, 3.0]),
    "uniform 3": rs.Uniform(-np.ones(3), np.ones(3)),
    "truncated 2": rs.Truncated(G2, [-1.0, -np.inf], [1.0, 2.0]),
    "copula": rs.Copula(
        [rs.Marginal.from_points([0, 1, 3], [0.1, 0.5, 0.9]), rs.Marginal.from_points([-1, 0, 2], [0.2, 0.6, 0.95])],
        [[1.0, 0.4], [0.4, 1.0]],
    ),
    "truncated 3": rs.Truncated(rs.Gaussian(np.zeros(3), 1.0), [-1.0, 0.0, -np.inf], [1.0, 2.0, np.inf]),
}


def leaky_net(widths, seed):
    """No region has a flat image: the whole law has a density."""
    return random_net(widths, seed, activation=ac.leaky_relu(0.3), bias=0.6)


def test_a_linear_network_has_the_gaussian_density():
    W, b = np.array([[1.0, -2.0], [0.5, 1.0]]), np.array([0.3, -1.0])
    y = np.random.default_rng(0).normal(size=(20, 2))
    found = rs.outputs(rs.Network([(W, b)]), G2).joint_pdf(y)
    np.testing.assert_allclose(found.value, multivariate_normal(W @ G2.mean + b, W @ G2.cov @ W.T).pdf(y), rtol=1e-11)
    assert found.guarantee == "exact"
    assert ((found.lower <= found.value) & (found.value <= found.upper)).all()
    # Three directions seen through two outputs: the third is integrated out.
    W3 = np.array([[1.0, -2.0, 0.5], [0.5, 1.0, 1.0]])
    found = rs.outputs(rs.Network([(W3, b)]), G3).joint_pdf(y.reshape(4, 5, 2))
    expected = multivariate_normal(W3 @ G3.mean + b, W3 @ np.diag([1.0, 2.0, 0.5]) @ W3.T).pdf(y)
    np.testing.assert_allclose(found.value.ravel(), expected, rtol=1e-10)


@pytest.mark.parametrize("name", LAWS)
def test_boxes_hold_the_integral_of_the_density(name):
    """`probability` cuts regions and measures the parts; the density comes from fibres: two ways to one number."""
    law = LAWS[name]
    net = random_net((law.n, 5, 2), 3, activation=ac.leaky_relu(0.5), bias=0.6)
    out = rs.outputs(net, law)
    low, high = np.quantile(net(law.sample(2000, 0)), [0.3, 0.7], axis=0)
    eye = np.eye(2)
    held = out.probability((np.concatenate([eye, -eye]), np.concatenate([high, -low]))).value
    u = qmc.Sobol(2, rng=np.random.default_rng(1)).random_base2(16)
    found = out.joint_pdf(low + u * (high - low))
    # The density jumps along lines: 65,536 points of a Sobol sequence miss some parts in 10,000.
    assert found.value.mean() * np.prod(high - low) == pytest.approx(held, rel=3e-3)
    assert ((found.lower <= found.value) & (found.value <= found.upper)).all()
    assert (found.upper - found.lower <= 1e-9 * found.value + 1e-12).mean() > 0.99
    assert out.mixture.degenerate_mass == 0.0


@pytest.mark.parametrize("widths", [(2, 5, 4, 2), (3, 4, 3)])
def test_one_to_one_parts_are_truncated_gaussians_with_the_parameters_of_17(widths):
    law = G2 if widths[0] == 2 else G3
    net = leaky_net(widths, 5)
    mixture = rs.outputs(net, law).mixture
    assert mixture.one_to_one.all() and (mixture.rank == widths[-1]).all()
    y = net(law.sample(400, 1))
    total = np.zeros(len(y))
    C, d = net.output_maps(mixture.pattern)
    cov = np.asarray(law.cov) if widths[0] == 2 else np.diag([1.0, 2.0, 0.5])
    for i in range(len(mixture)):
        # Equation (17), from the network's own maps in the original inputs.
        np.testing.assert_allclose(mixture.location[i], C[i] @ law.mean + d[i], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(mixture.scale[i], C[i] @ cov @ C[i].T, rtol=1e-9, atol=1e-9)
        A, b = mixture.half_spaces(i)
        slack = (b - y @ A.T).min(axis=1)
        sure = np.abs(slack) > 1e-7
        inside = slack > 0
        expected = multivariate_normal(C[i] @ law.mean + d[i], C[i] @ cov @ C[i].T).pdf(y) * inside
        value = mixture.density(i, y).value
        np.testing.assert_allclose(value[sure], expected[sure], rtol=1e-8, atol=1e-300)
        # The image is that of the region: an output is in it exactly where the input with that output has the pattern.
        x = np.linalg.solve(C[i], (y - d[i]).T).T
        sure &= np.linalg.norm(x, axis=1) < 20  # beyond 38.5 standard deviations there is no mass, and no image
        np.testing.assert_array_equal(inside[sure], (net.pattern(x) == mixture.pattern[i]).all(axis=1)[sure])
        total += value
    np.testing.assert_allclose(total, rs.outputs(net, law).joint_pdf(y).value, rtol=1e-10)


def test_degenerate_parts_have_a_density_on_their_subspace():
    """Two ReLUs: a quarter of the mass in the quadrant, a quarter on each half-axis, a quarter at 0."""
    net = rs.Network([(np.eye(2), None), (np.eye(2), None)])
    out = rs.outputs(net, rs.Gaussian([0.0, 0.0], 1.0))
    mixture = out.mixture
    assert sorted(mixture.rank.tolist()) == [0, 1, 1, 2]
    assert mixture.degenerate_mass == pytest.approx(0.75, abs=1e-12)
    t = np.array([0.3, 1.0, -0.5])
    for i, rank in enumerate(mixture.rank.tolist()):
        point, basis = mixture.subspace(i)
        assert basis.shape == (2, rank)
        on, off = mixture.pattern[i].astype(float), np.array([5.0, 7.0])
        if rank == 0:
            assert mixture.density(i, [0.0, 0.0]).value == pytest.approx(0.25, abs=1e-12)
            assert mixture.density(i, [0.0, 1e-3]).value == 0.0
            np.testing.assert_array_equal(point, [0.0, 0.0])
        if rank == 1:
            axis = int(on.argmax())
            y = np.zeros((3, 2))
            y[:, axis] = t
            np.testing.assert_allclose(mixture.density(i, y).value, np.where(t > 0, 0.5 * norm.pdf(t), 0), atol=1e-14)
            assert mixture.density(i, off).value == 0.0
            assert not mixture.one_to_one[i]
            A, b = mixture.half_spaces(i)
            assert (A @ (2.0 * on) <= b + 1e-9).all() and not (A @ (-2.0 * on) <= b + 1e-9).all()
        if rank == 2:
            np.testing.assert_allclose(mixture.density(i, [[0.3, 1.0]]).value, norm.pdf(0.3) * norm.pdf(1.0))
    np.testing.assert_allclose(out.joint_pdf([[0.3, 1.0], [-0.3, 1.0]]).value, [norm.pdf(0.3) * norm.pdf(1.0), 0.0])
    # On the border of the quadrant the density jumps: the bracket holds both sides.
    edge = out.joint_pdf([0.0, 1.0])
    assert edge.lower == 0.0 and edge.upper >= norm.pdf(0.0) * norm.pdf(1.0) * (1 - 1e-9)


def test_some_outputs_of_many():
    net = leaky_net((2, 5, 4), 2)
    out = rs.outputs(net, G2)
    assert (out.mixture.degenerate).all()  # four outputs of two directions
    assert (out.joint_pdf(np.zeros((3, 4))).value == 0).all()
    y = net(G2.sample(5, 0))
    alone = rs.outputs(net.select_outputs([3, 1]), G2).joint_pdf(y[:, [3, 1]])
    np.testing.assert_allclose(out.joint_pdf(y[:, [3, 1]], outputs=[3, 1]).value, alone.value, rtol=1e-12)
    np.testing.assert_allclose(out.joint_pdf(y[:, [2]], outputs=[2]).value, out.pdf(y[:, 2], 2).value, rtol=1e-12)


def test_a_budget_leaves_the_upper_end_open():
    net = leaky_net((2, 20, 20, 2), 1)
    out = rs.outputs(net, G2, budget="40 regions")
    assert out.guarantee == "sound"
    found, whole = out.joint_pdf([0.1, 0.2]), rs.outputs(net, G2).joint_pdf([0.1, 0.2])
    assert found.lower <= whole.upper and found.upper == np.inf


@pytest.mark.parametrize("widths", [(2, 3, 2), (3, 4, 2), (3, 3, 1)])
def test_formula_20_agrees_where_it_applies(widths):
    law = G2 if widths[0] == 2 else G3
    net = random_net(widths, 7, bias=0.6)
    patterns = rs.linear_models(net, law).pattern
    y = net(law.sample(6, 2))
    exact = rs.outputs(net, law).joint_pdf(y)
    sure = exact.upper - exact.lower < 1e-9
    assert sure.any()
    found = orthant_density(net, law, patterns, y, rng=0)
    np.testing.assert_allclose(found[sure], exact.value[sure], rtol=2e-3, atol=1e-4)
    # Given the outputs at most two directions are left: two factors drop nothing.
    low = orthant_density(net, law, patterns, y, "lowrank", rank=2, rng=0)
    np.testing.assert_allclose(low[sure], exact.value[sure], rtol=2e-2, atol=1e-3)


def test_the_diagonal_form_of_20_is_a_product_and_wrong():
    """One unit on, y = 2 h: the printed product against the truth, which is a Gaussian density."""
    net = rs.Network([([[1.0]], [0.5]), ([[2.0]], None)])
    law = rs.Gaussian([0.0], 1.0)
    found = orthant_density(net, law, [[0], [1]], [[1.0]], "diagonal")
    assert found[0] == pytest.approx(norm.pdf(1.0, 1.0, 2.0) * norm.cdf(0.5), rel=1e-12)
    assert orthant_density(net, law, [[0], [1]], [[1.0]])[0] == pytest.approx(norm.pdf(1.0, 1.0, 2.0), rel=1e-12)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda out: out.joint_pdf([0.0]), "y must have 2 numbers"),
        (lambda out: out.joint_pdf([0.0, 0.0], outputs=[0, 0]), "different from one another"),
        (lambda out: out.joint_pdf([0.0], outputs=0), "outputs must be"),
        (lambda out: out.joint_pdf([0.0, 0.0], outputs=[0, 5]), "output"),
        (lambda out: out.mixture.density(0, [0.0]), "y must have 2 numbers"),
        (lambda out: out.mixture.density(99999, [0.0, 0.0]), "i must"),
        (lambda out: orthant_density(out.network, rs.Uniform([0, 0], [1, 1]), [[0] * 5], [[0.0, 0.0]]), "formula"),
        (lambda out: orthant_density(out.network, out.law, [[0] * 5], [[0.0]]), "one column for each of 2 outputs"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, says):
    out = rs.outputs(leaky_net((2, 5, 2), 1), G2)
    with pytest.raises(InputError, match=says):
        call(out)


def test_lines_and_many_uniform_inputs_are_refused():
    net = leaky_net((4, 5, 2), 1)
    with pytest.raises(InputError, match="at most 3 dimensions"):
        rs.outputs(net, rs.Uniform(-np.ones(4), np.ones(4))).joint_pdf([0.0, 0.0])
    with pytest.raises(InputError, match="enumerated"):
        rs.outputs(net, rs.Gaussian(np.zeros(4), 1.0)).joint_pdf([0.0, 0.0])
