"""Standard coordinates: the same network, the same law, in the fewest coordinates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

from nets import integer_net, random_net
from reluscope.errors import InputError
from reluscope.inputs import Gaussian, GaussianMixture, Law, Particles, Truncated, Uniform, _standard, kde, standard
from reluscope.network import Network

Z = 6.0  # standard errors: a false alarm once in 5e8, with fixed seeds


def psd(n: int, seed: int, rank: int | None = None) -> np.ndarray:
    A = np.random.default_rng(seed).normal(size=(n, rank or n))
    return A @ A.T


def assert_same_network(net, component, x):
    """`network(to_u(x)) = net(x)`, and back through x, to 1e-12 of the size of the numbers that meet there."""
    size = 1.0 + max(float(np.abs(h).max()) for h in net.preactivations(x))
    u = component.to_u(x)
    assert u.shape == (len(x), component.network.n_inputs)
    np.testing.assert_allclose(component.network(u), net(x), atol=1e-12 * size, rtol=0)
    for rng in (None, 3):
        np.testing.assert_allclose(net(component.to_x(u, rng)), net(x), atol=1e-12 * size, rtol=0)
    np.testing.assert_allclose(component.to_u(x[0]), u[0], rtol=1e-9, atol=1e-12)


GAUSSIANS = {
    "full": (Gaussian(np.arange(6.0), psd(6, 1)), 6),
    "diagonal": (Gaussian(np.arange(6.0), np.arange(1.0, 7.0)), 6),
    "zero variance": (Gaussian(np.arange(6.0), [0.0, 1.0, 0.0, 2.0, 3.0, 0.0]), 3),
    "rank 2 matrix": (Gaussian(np.zeros(6), psd(6, 2, 2)), 2),
    "narrow factor": (Gaussian(np.ones(6), factor=np.random.default_rng(0).normal(size=(6, 3))), 3),
    "wide factor": (Gaussian(np.ones(6), factor=np.random.default_rng(0).normal(size=(6, 9))), 6),
    "low rank": (Gaussian(np.ones(6), 0.5, low_rank=np.arange(6.0)), 6),
    "point": (Gaussian(np.ones(6), 0.0), 0),
}


@pytest.mark.parametrize("widths", [(6, 4, 5, 2), (6, 12, 2), (6, 1, 1), (6, 3)])
@pytest.mark.parametrize("name", GAUSSIANS)
def test_gaussian_components(name, widths):
    law, rank = GAUSSIANS[name]
    net = random_net(widths, 1)
    (component,) = standard(law, net)
    assert component.kind == "gaussian" and component.weight == 1.0
    assert component.r == min(rank, widths[1])
    assert component.network.n_inputs == max(component.r, 1)
    assert_same_network(net, component, law.sample(50, 2))
    assert component.inequalities()[0].shape == (0, component.network.n_inputs)


@pytest.mark.parametrize("name", [n for n in GAUSSIANS if n != "point"])
def test_coordinates_and_way_back_have_the_right_law(name):
    law, _ = GAUSSIANS[name]
    (component,) = standard(law, random_net((6, 2, 1), 4))
    u = component.to_u(law.sample(20_000, 1))
    assert np.abs(np.cov(u.T) - np.eye(component.r)).max() <= Z * np.sqrt(2 / 20_000)
    assert np.abs(u.mean(axis=0)).max() <= Z / np.sqrt(20_000)
    x = component.to_x(np.random.default_rng(2).normal(size=(20_000, component.r)), 3)
    sd = np.sqrt(np.outer(law.variance, law.variance)) + 1e-15
    assert (np.abs(np.cov(x.T) - law.cov) / sd).max() <= Z * np.sqrt(2 / 20_000)
    assert (np.abs(x.mean(axis=0) - law.mean) <= Z * law.sd / np.sqrt(20_000) + 1e-12).all()


def test_least_norm_way_back():
    net = Network([([[1.0, 1.0]], None), ([[1.0]], None)])
    (component,) = standard(Gaussian([0.0, 0.0]), net)
    x = component.to_x([2.0])
    np.testing.assert_allclose(x[0], x[1], rtol=1e-15)
    assert np.linalg.norm(x) == pytest.approx(2.0)


def test_784_inputs_before_16_units():
    net = random_net((784, 16, 8, 10), 0)
    for law in (Gaussian(np.zeros(784), psd(784, 0) / 784), Gaussian(np.zeros(784), 0.3), kde(np.eye(800, 784))):
        component = standard(law, net)[0]
        assert component.r == 16
        assert_same_network(net, component, law.sample(20, 0))


def test_full_rank_is_not_rotated():
    law = Gaussian([0.5, -0.5], [4.0, 9.0])
    net = random_net((2, 5, 1), 0)
    (component,) = standard(law, net)
    np.testing.assert_allclose(component.network.layers[0].weight, net.layers[0].weight * [2.0, 3.0], rtol=1e-15)
    np.testing.assert_allclose(component.to_u([[2.5, 2.5]]), [[1.0, 1.0]])


def test_ignored_and_fixed_inputs_are_dropped_without_rotation():
    W = np.array([[1.0, 0.0, 2.0, 3.0], [0.0, 0.0, 1.0, 1.0]])
    net = Network([(W, None), (np.ones((1, 2)), None)])
    (component,) = standard(Gaussian([0.0, 9.0, 0.0, 5.0], [1.0, 1.0, 4.0, 0.0]), net)
    assert component.r == 2
    np.testing.assert_allclose(component.network.layers[0].weight, [[1.0, 4.0], [0.0, 2.0]])
    np.testing.assert_allclose(component.network.layers[0].bias, [15.0, 5.0])


def test_a_direction_the_covariance_does_not_have():
    # The unit sees x0 - x1, but x0 = x1 always: the network is constant, up to rounding in W L.
    law = Gaussian([0.1, 0.4], [[0.09, 0.09], [0.09, 0.09]])
    (component,) = standard(law, Network([([[0.7, -0.7]], [1.0]), ([[1.0]], None)]))
    assert component.r == 0
    np.testing.assert_allclose(component.network([[0.0]]), [[0.79]], rtol=1e-14)


def test_scale_of_units_and_inputs_does_not_decide_the_rank():
    net = Network([([[1e16, 0.0], [0.0, 1.0]], None), (np.ones((1, 2)), None)])
    assert standard(Gaussian([0.0, 0.0]), net)[0].r == 2
    net = Network([([[1e-200, 0.0], [0.0, 1e200]], None), (np.ones((1, 2)), None)])
    assert standard(Gaussian([0.0, 0.0]), net)[0].r == 2
    assert standard(Gaussian([0.0, 0.0], [1e-30, 1e30]), random_net((2, 3, 1)))[0].r == 1


@pytest.mark.parametrize("gap, r", [(1e-3, 2), (1e-6, 2), (1e-10, 2), (1e-15, 1)])
def test_nearly_parallel_units(gap, r):
    net = Network([([[1.0, 1.0, 0.0], [1.0, 1.0 + gap, 0.0]], None), (np.array([[1.0, -1.0]]), None)])
    law = Gaussian(np.zeros(3), psd(3, 0) + np.eye(3))
    (component,) = standard(law, net)
    assert component.r == r
    assert_same_network(net, component, law.sample(20, 0))


def test_network_that_ignores_everything():
    net = Network([(np.zeros((3, 2)), [1.0, -1.0, 2.0]), (np.ones((1, 3)), None)])
    for law in (Gaussian([0.0, 0.0]), Uniform([0.0, 0.0], 1.0), Truncated(Gaussian([0.0, 0.0]), 0.0, 1.0)):
        (component,) = standard(law, net)
        assert component.r == 0 and component.network.n_inputs == 1
        assert component.network([[5.0]]).tolist() == [[3.0]]
        assert component.to_x([[0.0]], 1).shape == (1, 2)
        assert_same_network(net, component, law.sample(5, 0))


def test_sparse_first_layer_stays_sparse():
    rng = np.random.default_rng(0)
    W = sparse.random_array((900, 300), density=0.02, rng=rng)
    net = Network([(W, None), (rng.normal(size=(2, 900)), None)])
    law = Gaussian(rng.normal(size=300), np.linspace(0.0, 2.0, 300))
    (component,) = standard(law, net)
    assert component.r == 299 and sparse.issparse(component.network.layers[0].weight)
    assert_same_network(net, component, law.sample(10, 0))
    (dense,) = standard(Gaussian(law.mean, psd(300, 0)), net)
    assert_same_network(net, dense, dense.to_x(rng.normal(size=(5, dense.r)), 0))
    few = Network([(sparse.random_array((80, 300), density=0.05, rng=rng), None), (rng.normal(size=(2, 80)), None)])
    (reduced,) = standard(law, few)
    assert reduced.r <= 80
    assert_same_network(few, reduced, law.sample(10, 0))


def test_huge_layers_skip_the_svd(monkeypatch):
    monkeypatch.setattr(_standard, "LARGEST_SVD", 2)
    net = random_net((6, 4, 1), 0)
    for law, r in ((GAUSSIANS["diagonal"][0], 6), (GAUSSIANS["full"][0], 6), (GAUSSIANS["wide factor"][0], 9)):
        (component,) = standard(law, net)
        assert component.r == r
        assert_same_network(net, component, law.sample(10, 0))


def test_mixtures_and_shared_factors(monkeypatch):
    calls = []
    see = _standard._see
    monkeypatch.setattr(_standard, "_see", lambda *a: calls.append(1) or see(*a))
    net = random_net((2, 5, 1), 0)
    rng = np.random.default_rng(0)
    law = kde(rng.normal(size=(300, 2)))
    components = standard(law, net)
    assert len(calls) == 1 and len(components) == 300
    assert len({id(c.network.layers[0].weight) for c in components}) == 1
    for c, mean in zip(components[:5], law.means, strict=False):
        np.testing.assert_allclose(c.to_x(np.zeros(2)), mean)
        assert_same_network(net, c, rng.normal(size=(4, 2)))
    two = GaussianMixture(
        [0.3, 0.0, 0.7], [Gaussian([0.0, 0.0]), Gaussian([1.0, 1.0]), Gaussian([2.0, 2.0], psd(2, 0))]
    )
    assert [c.weight for c in standard(two, net)] == [0.3, 0.7]


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6), st.booleans())
def test_any_gaussian_and_any_network(n, width, rank, seed, whole):
    net = (integer_net if whole else random_net)((n, width, 3, 1), seed)
    rng = np.random.default_rng(seed)
    factor = rng.integers(-2, 3, (n, rank)) if whole else rng.normal(size=(n, rank))
    law = Gaussian(rng.normal(size=n), factor=factor)
    (component,) = standard(law, net)
    assert component.r == np.linalg.matrix_rank(net.layers[0].weight @ factor)
    assert_same_network(net, component, law.sample(8, seed))


# -- laws with a box ---------------------------------------------------------------------------------------------


def test_uniform_component():
    W = np.array([[1.0, 0.0, 2.0, 3.0], [0.0, 0.0, 1.0, 1.0]])
    net = Network([(W, [0.1, 0.2]), (np.ones((1, 2)), None)])
    law = Uniform([0.0, 1.0, -1.0, 7.0], [1.0, 2.0, 3.0, 7.0])
    (component,) = standard(law, net)
    assert component.kind == "uniform" and component.r == 2 and component.rows is None
    assert component.lower.tolist() == [0.0, -1.0] and component.upper.tolist() == [1.0, 3.0]
    assert component.log_mass == pytest.approx(np.log(4.0))
    assert_same_network(net, component, law.sample(20, 0))
    x = component.to_x(component.to_u(law.sample(2000, 0)), 1)
    assert ((x >= law.lower) & (x <= law.upper)).all()
    assert stats.kstest(x[:, 1] - 1.0, "uniform").pvalue > 1e-8
    A, b = component.inequalities()
    assert A.tolist() == [[1, 0], [0, 1], [-1, 0], [0, -1]] and b.tolist() == [1, 3, 0, 1]


def test_truncated_independent_component():
    net = Network([([[1.0, 0.0, 2.0, 3.0], [1.0, 0.0, 1.0, 1.0]], None), (np.ones((1, 2)), None)])
    law = Truncated(
        Gaussian([1.0, 0.0, 2.0, 5.0], [4.0, 1.0, 9.0, 0.0]), [0.0, 1.0, -np.inf, 4.0], [2.0, 2.0, 2.0, 6.0]
    )
    (component,) = standard(law, net)
    assert component.kind == "truncated" and component.r == 2 and component.rows is None
    np.testing.assert_allclose(component.lower, [-0.5, -np.inf])
    np.testing.assert_allclose(component.upper, [0.5, 0.0])
    assert component.log_mass == pytest.approx(np.log((stats.norm.cdf(0.5) - stats.norm.cdf(-0.5)) * 0.5))
    x = law.sample(3000, 0)
    assert_same_network(net, component, x)
    back = component.to_x(component.to_u(x), 1)
    assert stats.ks_2samp(back[:, 1], x[:, 1]).pvalue > 1e-8  # the ignored input is drawn from its own law
    A, b = component.inequalities()
    assert (component.to_u(x) @ A.T <= b + 1e-12).all() and A.shape == (3, 2)


@pytest.mark.parametrize("width", [1, 5])
def test_truncated_correlated_component(width):
    net = random_net((4, width, 1), 0)
    law = Truncated(Gaussian(np.ones(4), psd(4, 3)), [0.0, -np.inf, -1.0, -np.inf], [np.inf, np.inf, 3.0, np.inf])
    (component,) = standard(law, net)
    # Seen: the units' directions and the two restricted inputs.
    assert component.kind == "truncated" and component.lower is None and component.log_mass is None
    assert component.r == min(4, width + 2)
    A, b = component.rows
    assert A.shape == (3, component.r)
    plain = law.gaussian.sample(4000, 0)
    inside = ((plain >= law.lower) & (plain <= law.upper)).all(axis=1)
    u = component.to_u(plain)
    np.testing.assert_array_equal((u @ A.T <= b).all(axis=1), inside)  # the rows are the box
    assert_same_network(net, component, law.sample(50, 1))
    x = component.to_x(np.random.default_rng(1).normal(size=(4000, component.r)), 2)
    sd = np.sqrt(np.outer(law.gaussian.variance, law.gaussian.variance))
    assert (np.abs(np.cov(x.T) - law.gaussian.cov) / sd).max() <= Z * np.sqrt(2 / 4000)


def test_truncated_correlated_but_independently_restricted_knows_its_mass():
    law = Truncated(Gaussian(np.zeros(3), psd(3, 3)), [0.0, -np.inf, -np.inf], np.inf)
    (component,) = standard(law, random_net((3, 2, 1)))
    assert component.log_mass == pytest.approx(np.log(0.5), rel=1e-14) and component.r == 3


def test_truncated_singular_component():
    V = np.random.default_rng(0).normal(size=(5, 2))
    law = Truncated(Gaussian(np.zeros(5), factor=V), -1.0, [1.0, 1.0, 1.0, 1.0, np.inf])
    net = random_net((5, 3, 1), 1)
    (component,) = standard(law, net)
    assert component.r == 2 and component.rows[0].shape == (9, 2)
    assert_same_network(net, component, law.sample(20, 0))


def test_truncated_without_a_finite_side_is_gaussian():
    net = random_net((3, 2, 1))
    (component,) = standard(Truncated(Gaussian(np.zeros(3)), -np.inf, np.inf), net)
    assert component.kind == "gaussian" and component.r == 2


def test_particles_component():
    net = random_net((2, 3, 1), 0)
    law = Particles([[0.0, 1.0], [1.0, 2.0]], [0.25, 0.75])
    (component,) = standard(law, net)
    assert component.kind == "point" and component.network is net
    assert component.points.tolist() == [[0, 1], [1, 2]] and component.point_weights.tolist() == [0.25, 0.75]
    assert_same_network(net, component, law.points)


# -- what is refused ---------------------------------------------------------------------------------------------

NET = random_net((2, 3, 1), 0)
LAW = Gaussian([0.0, 0.0])

BAD = [
    ("inputs", lambda: standard(Gaussian(np.zeros(3)), NET), "3 inputs but the network takes 2"),
    ("law", lambda: standard([0.0, 0.0], NET), "law must be"),
    ("net", lambda: standard(LAW, lambda x: x), "net must be a Network"),
    ("no net", lambda: standard(LAW, None), "net must be a Network"),
    ("overflow", lambda: standard(Gaussian([0.0], 1e300), Network([([[1e300]], None)])), "overflow"),
    ("mean overflow", lambda: standard(Gaussian([1e300], 1.0), Network([([[1e300]], None)])), "overflows at the law"),
    ("U shape", lambda: standard(LAW, NET)[0].to_x([[1.0]]), r"U must have shape \(m, 2\)"),
    ("U nan", lambda: standard(LAW, NET)[0].to_x([np.nan, 0.0]), "U must be finite"),
    ("X shape", lambda: standard(LAW, NET)[0].to_u(np.zeros((2, 3))), r"X must have shape \(m, 2\)"),
    ("rng", lambda: standard(LAW, NET)[0].to_x([0.0, 0.0], "x"), "rng must be"),
]


@pytest.mark.parametrize("call, words", [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_inputs(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_reading_a_component():
    assert repr(standard(LAW, NET)[0]).startswith("Component(weight 1, gaussian, r = 2")


def test_a_law_without_standard_coordinates_is_refused_instead_of_taken_for_uniform():
    """A density of 2x on [0, 1]: taken for uniform, "exact" would say 1/2 where the truth is 3/4."""

    class Triangular(Law):
        kind = "triangular"
        n = 1

        def support(self):
            return np.zeros(1), np.ones(1)

    Triangular.__abstractmethods__ = frozenset()
    with pytest.raises(InputError, match="law must"):
        standard(Triangular(), Network([([[1.0]], None)]))
