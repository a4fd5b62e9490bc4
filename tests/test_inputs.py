"""The input laws: moments, draws, densities, fits, files, and what they refuse."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from conformance import check_law
from reluscope.errors import InputError, InputLimitError, MissingExtraError, ReluscopeWarning
from reluscope.inputs import (
    Categorical,
    Copula,
    Gaussian,
    GaussianMixture,
    Marginal,
    Mixture,
    Particles,
    Restriction,
    Truncated,
    Uniform,
    _normal1,
    classes_from_json,
    kde,
    law_from_dict,
    law_from_json,
    product,
)
from reluscope.limits import Limits

# Statistical tests: a z-score beyond 6 (or a p-value under 1e-8) is a false alarm once in 5e8 (1e8); seeds are fixed.
Z = 6.0


def psd(n: int, seed: int, rank: int | None = None) -> np.ndarray:
    A = np.random.default_rng(seed).normal(size=(n, rank or n))
    return A @ A.T


def psd_correlation(n: int, seed: int) -> np.ndarray:
    C = psd(n, seed)
    return C / np.sqrt(np.outer(np.diag(C), np.diag(C)))


def assert_sample_moments(law, n=20_000, seed=0, mean=None, cov=None):
    """Sample mean and covariance within Z standard errors of the law's own."""
    x = law.sample(n, seed)
    assert x.shape == (n, law.n)
    mean = law.mean if mean is None else mean
    cov = law.cov if cov is None else cov
    se = x.std(axis=0) / np.sqrt(n)
    assert (np.abs(x.mean(axis=0) - mean) <= Z * se + 1e-12).all()
    c = x - mean
    products = c[:, :, None] * c[:, None, :]
    se = products.std(axis=0) / np.sqrt(n)
    assert (np.abs(products.mean(axis=0) - cov) <= Z * se + 1e-12).all()
    return x


LAWS = {
    "gaussian full": Gaussian([1.0, -2.0, 0.5], psd(3, 1)),
    "gaussian diagonal": Gaussian([1.0, -2.0, 0.5], [1.0, 4.0, 0.25]),
    "gaussian scalar": Gaussian([1.0, -2.0], 3.0),
    "gaussian factor": Gaussian([0.0, 1.0, 2.0], factor=[[1.0, 0.5], [0.0, 2.0], [1.0, 1.0]]),
    "gaussian low rank": Gaussian([0.0, 1.0, 2.0], [0.5, 1.0, 2.0], low_rank=[[1.0], [0.5], [-1.0]]),
    "gaussian zero variance": Gaussian([1.0, 2.0], [[0.0, 0.0], [0.0, 1.0]]),
    "gaussian singular": Gaussian([1.0, 2.0, 3.0], psd(3, 7, 2)),
    "gaussian point": Gaussian([1.0, 2.0], 0.0),
    "gaussian one input": Gaussian(2.0, 4.0),
    "mixture with a zero weight and a fixed input": GaussianMixture(
        [0.5, 0.0, 0.5], [Gaussian([0.0, 1.0], [1.0, 0.0]), Gaussian([9.0, 9.0]), Gaussian([2.0, 1.0], [4.0, 0.0])]
    ),
    "mixture of one": GaussianMixture([1.0], [Gaussian([0.0, 1.0], [1.0, 2.0])]),
    "mixture": GaussianMixture([0.3, 0.7], [Gaussian([0.0, 0.0], psd(2, 2)), Gaussian([3.0, 1.0], 0.5)]),
    "mixture of laws": Mixture(
        [0.2, 0.3, 0.0, 0.5],
        [
            Gaussian([0.0, 1.0], psd(2, 3)),
            Uniform([-1.0, 0.0], [2.0, 5.0]),
            Uniform([50.0, 50.0], [51.0, 51.0]),
            Truncated(Gaussian([1.0, 1.0], [1.0, 2.0]), [0.0, -np.inf], [np.inf, 2.0]),
        ],
    ),
    "mixture given a box": GaussianMixture(
        [0.3, 0.7], [Gaussian([0.0, 0.0], [1.0, 4.0]), Gaussian([3.0, 1.0], 0.5)]
    ).truncated([0.5, -np.inf], [2.0, 1.0]),
    "correlated mixture given one side": GaussianMixture(
        [0.3, 0.7], [Gaussian([0.0, 0.0], psd(2, 2)), Gaussian([3.0, 1.0], psd(2, 8))]
    ).truncated([1.0, -np.inf], np.inf),
    "mixture of Gaussians as laws": Mixture([0.5, 0.5], [Gaussian([0.0, 0.0]), Gaussian([2.0, 1.0], psd(2, 9))]),
    "kde": kde(np.random.default_rng(3).normal(size=(40, 2)) * [1.0, 3.0]),
    "uniform": Uniform([-1.0, 2.0, 5.0], [1.0, 2.0, 9.0]),
    "uniform point": Uniform([1.0, 2.0], [1.0, 2.0]),
    "truncated far out": Truncated(Gaussian([0.0, 0.0], [1.0, 4.0]), [20.0, -np.inf], [np.inf, -9.0]),
    "truncated correlated": Truncated(Gaussian([0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]]), [0.0, -1.0], [2.0, np.inf]),
    "truncated nowhere": Truncated(Gaussian([0.0, 1.0], psd(2, 4)), -np.inf, np.inf),
    "truncated diagonal": Truncated(Gaussian([0.0, 1.0, 2.0], [1.0, 4.0, 0.0]), [0.0, -np.inf, 1.0], [1.0, 8.0, 3.0]),
    "truncated one of three": Truncated(Gaussian(np.zeros(3), psd(3, 5)), [-np.inf, 1.0, -np.inf], np.inf),
    "truncated low rank": Truncated(
        Gaussian(np.zeros(3), factor=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [-1.0, 0.5, -np.inf], [0.5, np.inf, np.inf]
    ),
    "copula": Copula([stats.lognorm(0.5), stats.uniform(-1, 2), stats.t(4)], psd_correlation(3, 1)),
    "copula of independent inputs": Copula([stats.gamma(2.0), stats.norm(1.0, 2.0)], names=["waiting", "error"]),
    "copula with atoms": Copula(
        [stats.poisson(1.5), Marginal.from_points([0.0, 0.0, 3.0], [0.0, 0.25, 1.0])], [[1.0, -0.6], [-0.6, 1.0]]
    ),
    "copula of truncated scores": Copula.of_scores(
        Truncated(Gaussian([0.0, 0.0]), [0.5, -np.inf], np.inf), [Marginal.of(stats.expon()), Marginal([0.0], [0.0])]
    ),
    "copula of a mixture": Copula.of_scores(
        GaussianMixture([0.5, 0.5], [Gaussian([0.0, 0.0], psd(2, 2)), Gaussian([1.0, 2.0], [1.0, 0.0])]),
        [Marginal.of(stats.expon()), Marginal([0.0], [0.0], below=1.0, above=1.0)],
    ),
    "categorical": Categorical(["a", "b", "c"], [0.2, 0.5, 0.3], name="KIND"),
    "categorical codes": Categorical([1, 2, 4], [0.2, 0.5, 0.3], encoding="codes"),
    "mixture with points": Mixture([0.4, 0.6], [Particles([[0.0, 1.0], [2.0, 2.0]]), Gaussian([0.0, 1.0], psd(2, 2))]),
    "mixture of points": Mixture([0.4, 0.6], [Particles([[0.0, 1.0], [2.0, 2.0]]), Particles([[5.0, 1.0]])]),
    "mixture with a copula": Mixture([0.4, 0.6], [Copula([stats.expon(), stats.norm()]), Gaussian([0.0, 1.0])]),
    "product of a category and a copula": product(Categorical(["a", "b"], [0.3, 0.7]), Copula([stats.expon()])),
    "sequence": Gaussian.ar1(4, 0.8, 0.5, mean=1.0),
    "particles": Particles([[0.0, 1.0], [2.0, 2.0], [5.0, -1.0]], [0.5, 0.25, 0.25]),
}


@pytest.mark.parametrize("name", LAWS)
def test_every_law(name):
    check_law(LAWS[name])


BROKEN = {
    "support too small": (Uniform, "support", lambda law: (law.lower, 0.5 * (law.lower + law.upper))),
    "support too large": (Particles, "support", lambda law: (law.points.min(0), law.points.max(0) + 1.0)),
    "far box beyond the support": (Truncated, "far_box", lambda law: law.gaussian.far_box()),
    "mean": (Gaussian, "mean", property(lambda law: law._mean + 0.1)),
    "variance": (GaussianMixture, "variance", property(lambda law: 1.1 * np.diag(law.cov))),
    "mass of a box": (Uniform, "_restricted", lambda law, a, b: Restriction(Uniform(a, b), -0.1, 1e-13)),
    "law given a box": (Gaussian, "_restricted", lambda law, a, b: Restriction(Uniform(a - 1, b), -0.1, 1e-13)),
    "cdf": (Gaussian, "_cdf", lambda law, t, i, strict: np.clip(0.5 + t, 0.0, 1.0)),
    "atoms": (Particles, "atoms", property(lambda law: (law.points + 1.0, law.weights))),
    "noise": (Uniform, "noise", property(lambda law: ("uniform", law.n + 1))),
    "kind": (Uniform, "kind", "particles"),
    "independence": (GaussianMixture, "independent_inputs", property(lambda law: True)),
    "axes": (Gaussian, "keeps_axes", property(lambda law: True)),
    "draws": (GaussianMixture, "_sample", lambda law, n, rng: np.tile(law.mean, (n, 1))),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_law_is_noticed(what, monkeypatch):
    kind, name, wrong = BROKEN[what]
    monkeypatch.setattr(kind, name, wrong)
    with pytest.raises((AssertionError, InputError, ValueError, pytest.fail.Exception)):
        for law in (law for law in LAWS.values() if type(law) is kind):
            check_law(law)


# -- Gaussian ----------------------------------------------------------------------------------------------------


def test_covariance_forms_agree():
    C = psd(4, 0)
    L = np.linalg.cholesky(C)
    for law in (Gaussian(np.zeros(4), C), Gaussian(np.zeros(4), factor=L)):
        np.testing.assert_allclose(law.cov, C, rtol=1e-13, atol=1e-14)
    V = np.arange(8.0).reshape(4, 2)
    low = Gaussian(np.zeros(4), [1.0, 2.0, 3.0, 4.0], low_rank=V)
    np.testing.assert_allclose(low.cov, np.diag([1.0, 2, 3, 4]) + V @ V.T, rtol=1e-14)
    assert Gaussian(np.zeros(3), np.diag([1.0, 0.0, 2.0])).factor.diagonal
    assert Gaussian(2.0).n == 1 and Gaussian([0.0, 0.0]).cov.tolist() == [[1, 0], [0, 1]]


def test_diagonal_stays_a_vector():
    law = Gaussian(np.zeros(3072), np.ones(3072))
    assert law.factor.V is None and law.factor.sd.shape == (3072,)
    assert Truncated(law, 0.0, 1.0).sample(3, 0).shape == (3, 3072)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6), st.floats(-12, 12))
def test_any_psd_matrix_is_factored(n, rank, seed, exponent):
    scale = 10.0 ** np.linspace(0, exponent, n)
    C = psd(n, seed, rank) * scale[:, None] * scale
    law = Gaussian(np.zeros(n), C)
    # Entry by entry, in units of the two inputs' own spreads, however different these are.
    assert (np.abs(law.cov - C) <= 1e-10 * np.sqrt(np.outer(np.diag(C), np.diag(C)))).all()


def test_rounding_is_repaired_and_more_is_refused():
    q = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    slightly = (q * [1.0, 0.5, 0.2, -1e-12]) @ q.T
    np.testing.assert_allclose(Gaussian(np.zeros(4), slightly).cov, slightly, atol=3e-12)
    tilted = np.eye(3) + 1e-12 * np.triu(np.ones((3, 3)), 1)
    assert Gaussian(np.zeros(3), tilted).n == 3
    with pytest.raises(InputError, match="positive semidefinite"):
        Gaussian(np.zeros(4), (q * [1.0, 0.5, 0.2, -1e-6]) @ q.T)
    with pytest.raises(InputError, match="symmetric"):
        Gaussian(np.zeros(2), [[1.0, 0.2], [0.1, 1.0]])


@pytest.mark.parametrize("name", ["gaussian full", "gaussian diagonal", "gaussian scalar", "gaussian low rank"])
def test_density_against_scipy(name):
    law = LAWS[name]
    x = law.sample(50, 1) * 3
    want = stats.multivariate_normal(law.mean, law.cov).logpdf(x)
    np.testing.assert_allclose(law.log_density(x), want, rtol=1e-10, atol=1e-10)
    assert isinstance(law.density(x[0]), float)


def test_density_of_wide_factor_and_ill_conditioned_low_rank():
    F = np.random.default_rng(0).normal(size=(3, 5))
    law, x = Gaussian(np.zeros(3), factor=F), np.ones((2, 3))
    np.testing.assert_allclose(
        law.log_density(x), stats.multivariate_normal(np.zeros(3), F @ F.T).logpdf(x), rtol=1e-12
    )
    # cov = diag(1e-8) + 1e8 * ones: x = (1, -1) is orthogonal to the large direction, so the quadratic form is 2e8
    # and det = 1e-16 (1 + 2e16), both by hand.
    law = Gaussian([0.0, 0.0], 1e-8, low_rank=[[1e4], [1e4]])
    want = -1e8 - 0.5 * np.log(1e-16 * (1 + 2e16)) - np.log(2 * np.pi)
    assert law.log_density([1.0, -1.0]) == pytest.approx(want, rel=1e-8)


def test_singular_has_no_density():
    for name in ("gaussian factor", "gaussian zero variance", "particles", "uniform"):
        with pytest.raises(InputError, match="no density"):
            LAWS[name].log_density(np.zeros(LAWS[name].n))


def test_closed_form_fit():
    x = np.random.default_rng(0).normal(size=(50, 3)) @ np.diag([1.0, 10.0, 0.1]) + 5
    law = Gaussian.fit(x)
    np.testing.assert_allclose(law.mean, x.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(law.cov, np.cov(x.T, bias=True), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(Gaussian.fit(x, ddof=1).cov, np.cov(x.T), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(Gaussian.fit(x, covariance="diag").variance, x.var(axis=0), rtol=1e-13)
    np.testing.assert_allclose(Gaussian.fit(x, covariance="spherical").variance, x.var(axis=0).mean(), rtol=1e-13)


def test_fit_of_degenerate_samples():
    few = np.random.default_rng(1).normal(size=(3, 10))
    with pytest.warns(ReluscopeWarning, match="singular: 3 samples of 10 inputs leave no spread in 8 directions"):
        law = Gaussian.fit(few)
    np.testing.assert_allclose(law.cov, np.cov(few.T, bias=True), atol=1e-14)
    assert Gaussian.fit(few, covariance="diag").variance.all()  # enough for variances: no warning
    for components in (1, 2):
        with pytest.warns(ReluscopeWarning, match="singular"):
            GaussianMixture.fit(few, components, rng=0)
    constant = Gaussian.fit(np.full((5, 2), 0.1))
    assert constant.variance.tolist() == [0.0, 0.0] and constant.mean.tolist() == [0.1, 0.1]
    with pytest.warns(ReluscopeWarning, match="1 sample of 2 inputs"):
        assert Gaussian.fit([[1.0, 2.0]]).cov.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    mixed = np.column_stack([np.full(20, 0.1), np.arange(20.0)])
    assert Gaussian.fit(mixed).variance[0] == 0.0


# -- mixtures ----------------------------------------------------------------------------------------------------


def test_mixture_density_and_moments_by_hand():
    law = GaussianMixture([0.25, 0.75], [Gaussian([0.0], 1.0), Gaussian([4.0], 9.0)])
    x = np.linspace(-5, 12, 9)[:, None]
    want = 0.25 * stats.norm.pdf(x[:, 0]) + 0.75 * stats.norm.pdf(x[:, 0], 4, 3)
    np.testing.assert_allclose(law.density(x), want, rtol=1e-13)
    assert law.mean[0] == 3.0
    assert law.variance[0] == pytest.approx(0.25 * (1 + 9) + 0.75 * (9 + 1), rel=1e-15)


def test_mixture_weights():
    parts = [Gaussian([0.0]), Gaussian([1.0])]
    law = GaussianMixture([0.4, 0.6 + 5e-10], parts)
    assert law.weights.sum() == pytest.approx(1.0, abs=1e-15)
    assert (GaussianMixture([0.0, 1.0], parts).sample(50, 0) > -9).all()
    assert np.isfinite(GaussianMixture([0.0, 1.0], parts).log_density([[0.0]])).all()


@pytest.mark.parametrize("covariance", ["full", "diag", "spherical", "tied"])
def test_fit_recovers_a_mixture_in_any_units(covariance):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(300, 2)), rng.normal(size=(600, 2)) + 8])
    law = GaussianMixture.fit(x, 2, covariance, rng=1)
    order = np.argsort(law.weights)
    np.testing.assert_allclose(law.weights[order], [1 / 3, 2 / 3], atol=1e-3)
    np.testing.assert_allclose(law.means[order], [x[:300].mean(axis=0), x[300:].mean(axis=0)], atol=1e-3)
    tiny = GaussianMixture.fit(x * 1e-6, 2, covariance, rng=1)
    np.testing.assert_allclose(tiny.cov, law.cov * 1e-12, rtol=1e-6)
    np.testing.assert_array_equal(GaussianMixture.fit(x, 2, covariance, rng=1).means, law.means)


def test_fit_matches_scikit_learn():
    from sklearn.mixture import GaussianMixture as Estimator

    x = np.random.default_rng(2).normal(size=(400, 3))
    x = np.concatenate([x, 2 * x[:200] + 6])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    seed = int(np.random.default_rng(7).integers(2**31 - 1))
    want = Estimator(2, random_state=seed, max_iter=200).fit(x)
    law = GaussianMixture.fit(x, 2, rng=7)
    np.testing.assert_allclose(law.means, want.means_, atol=1e-9)
    np.testing.assert_allclose(law.log_density(x).mean(), want.score(x), rtol=1e-9)


def test_fit_keeps_constant_columns_constant():
    x = np.random.default_rng(0).normal(size=(100, 2))
    x = np.column_stack([x[:, 0], np.full(100, 3.3), x[:, 1]])
    for kind in ("full", "diag", "tied"):
        law = GaussianMixture.fit(x, 2, kind, rng=0)
        assert law.variance[1] == 0 and (law.sample(5, 0)[:, 1] == 3.3).all()
    assert len(GaussianMixture.fit(np.ones((9, 2)), 3)) == 1


def test_fit_says_when_it_did_not_converge():
    x = np.random.default_rng(0).normal(size=(200, 2))
    with pytest.warns(ReluscopeWarning, match="converged"):
        GaussianMixture.fit(x, 4, rng=0, iterations=1)


def test_fit_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.mixture", None)
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(MissingExtraError, match=r"reluscope\[sklearn\]"):
        GaussianMixture.fit(x, 2)
    np.testing.assert_allclose(GaussianMixture.fit(x, 1).cov, np.cov(x.T, bias=True), rtol=1e-12)


def test_fit_classes():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(300, 2)) + 4])
    y = np.repeat(["cat", "dog"], [100, 300])
    found = GaussianMixture.fit_classes(x, y)
    assert found.labels == ("cat", "dog") and found.weights.tolist() == [0.25, 0.75]
    np.testing.assert_allclose(found["dog"].mean, x[100:].mean(axis=0))
    np.testing.assert_allclose(found.joint.mean, x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.joint.cov, np.cov(x.T, bias=True), rtol=1e-12)
    two = GaussianMixture.fit_classes(x, y, 2, rng=3)
    assert len(two.joint) == 4
    with pytest.raises(InputError, match="label"):
        found["cow"]


@pytest.mark.parametrize("rule", ["scott", "silverman"])
def test_kde_against_scipy(rule):
    x = np.random.default_rng(0).normal(size=(200, 2)) @ [[1.0, 0.5], [0.0, 2.0]]
    law = kde(x, rule)
    at = np.random.default_rng(1).normal(size=(20, 2)) * 2
    np.testing.assert_allclose(law.density(at), stats.gaussian_kde(x.T, rule)(at.T), rtol=1e-10)
    assert len(law) == 200 and len(law.factors) == 1


def test_kde_bandwidths():
    x = np.random.default_rng(0).normal(size=(30, 2))
    np.testing.assert_allclose(kde(x, 0.5).factors[0].cov(), 0.25 * np.eye(2))
    H = psd(2, 4)
    np.testing.assert_allclose(kde(x, H).factors[0].cov(), H, rtol=1e-13)
    np.testing.assert_allclose(kde(x, H).cov, H + np.cov(x.T, bias=True), rtol=1e-12)


def test_thousands_of_kernels_are_cheap_and_share_their_factor():
    law = kde(np.random.default_rng(0).normal(size=(5000, 30)), 0.1)
    assert all(part.factor is law.factors[0] for _, part in law.components)
    assert law.log_density(np.zeros((10, 30))).shape == (10,)


# -- the restricted normal in one dimension ----------------------------------------------------------------------

# mpmath, 60 digits:
#   Z = ncdf(b) - ncdf(a) on the side without cancellation; m = (npdf(a) - npdf(b)) / Z
#   v = 1 + (a npdf(a) - b npdf(b)) / Z - m^2;  offset = m - a if a > 0, m - b if b < 0, else m


def reference(a, b):
    import mpmath as mp

    with mp.workdps(60):
        a, b = mp.mpf(a), mp.mpf(b)
        mass = mp.ncdf(b) - mp.ncdf(a) if a < 0 else mp.ncdf(-a) - mp.ncdf(-b)
        m = (mp.npdf(a) - mp.npdf(b)) / mass
        ends = [0 if mp.isinf(e) else e * mp.npdf(e) for e in (a, b)]
        v = 1 + (ends[0] - ends[1]) / mass - m * m
        return float(mp.log(mass)), float(m - (a if a > 0 else b if b < 0 else 0)), float(v)


INTERVALS = [
    (-1.0, 2.0), (0.0, np.inf), (5.0, 6.0), (30.0, np.inf), (30.0, 30.5), (-37.0, -36.9), (0.3, 0.3 + 2.0**-30),
    (-(2.0**-20), 2.0**-19), (3.9, 50.0), (-np.inf, -3.99), (1.0, 1.01), (100.0, np.inf), (-20.0, 0.001),
    (-np.inf, np.inf), (1e-3, 12.0), (8.0, 8.0 + 2.0**-8),
]  # fmt: skip


@pytest.mark.parametrize("a, b", INTERVALS)
def test_restricted_normal(a, b):
    log_mass, offset, variance = reference(a, b)
    ends = np.array([a]), np.array([b]), np.array([b]) - np.array([a])
    got = _normal1.log_mass(*ends)[0]
    assert abs(got - log_mass) <= 1e-13 + 4e-16 * abs(log_mass)
    _, o, v = _normal1.moments(*ends)
    assert o[0] == pytest.approx(offset, rel=2e-14, abs=1e-15)
    assert v[0] == pytest.approx(variance, rel=2e-14)


@pytest.mark.parametrize("a, b", [i for i in INTERVALS if i[1] - i[0] > 1e-3])
def test_restricted_quantile(a, b):
    import mpmath as mp

    u = np.array([1e-12, 0.01, 0.5, 0.75, 0.999999])
    full = [np.full(5, v) for v in (a, b, b - a)]
    side, offset = _normal1.draw(*full, u)
    with mp.workdps(60):
        for s, o, want in zip(side, offset, u, strict=True):
            x = (mp.mpf(a) if s == -1 else mp.mpf(b) if s == 1 else 0) + mp.mpf(float(o))
            below = mp.ncdf(x) - mp.ncdf(a) if x < 0 else mp.ncdf(-mp.mpf(a)) - mp.ncdf(-x)
            mass = mp.ncdf(b) - mp.ncdf(a) if a < 0 else mp.ncdf(-mp.mpf(a)) - mp.ncdf(-mp.mpf(b))
            assert abs(float(below / mass) - want) <= 3e-13


# -- truncated ---------------------------------------------------------------------------------------------------


def test_truncated_tail_draws_follow_their_law():
    law = Truncated(Gaussian([0.0, 10.0], [1.0, 4.0]), [30.0, -np.inf], [np.inf, -14.0])
    x = law.sample(20_000, 0)
    assert (x >= law.lower).all() and (x <= law.upper).all()
    # Far out the excess is exponential up to 1/a^2; compare with the exact survival function instead.
    u = np.exp(stats.norm.logsf(x[:, 0]) - stats.norm.logsf(30.0))
    assert stats.kstest(u, "uniform").pvalue > 1e-8
    u = np.exp(stats.norm.logcdf((x[:, 1] - 10) / 2) - stats.norm.logcdf(-12.0))
    assert stats.kstest(u, "uniform").pvalue > 1e-8


def test_truncated_keeps_resolution_at_a_distant_box():
    law = Truncated(Gaussian([0.0], 1.0), 37.0, 37.0 + 2.0**-20)
    assert len(np.unique(law.sample(1000, 0))) > 990
    assert 37.0 < law.mean[0] < 37.0 + 2.0**-20
    assert law.variance[0] == pytest.approx(2.0**-40 / 12, rel=1e-4)


def test_truncated_density_integrates_to_one():
    law = Truncated(Gaussian([1.0], 4.0), 2.0, 3.0)
    x = np.linspace(2, 3, 2001)[:, None]
    assert np.trapezoid(law.density(x), dx=1 / 2000) == pytest.approx(1.0, abs=1e-7)
    assert law.density([1.9]) == 0.0


def test_correlated_rejection_against_orthant_moments():
    # First quadrant, correlation r: E x = (1 + r) / (2 sqrt(2 pi) P), P = 1/4 + asin(r) / (2 pi).
    r = 0.6
    law = Truncated(Gaussian([0.0, 0.0], [[1.0, r], [r, 1.0]]), 0.0, np.inf)
    assert law._sampler is None
    P = 0.25 + np.arcsin(r) / (2 * np.pi)
    x = law.sample(40_000, 0)
    want = (1 + r) / (2 * np.sqrt(2 * np.pi) * P)
    assert (np.abs(x.mean(axis=0) - want) <= Z * x.std(axis=0) / 200).all()


def test_tilted_draws_against_a_one_dimensional_integral():
    # x = (a, a + s e): the marginal density of a given {x > t} is phi(a) Phi((a - t)/s) / const for a > t.
    t, s = 4.0, 0.5
    law = Truncated(Gaussian([0.0, 0.0], [[1.0, 1.0], [1.0, 1 + s * s]]), t, np.inf)
    assert law._sampler is not None
    x = law.sample(20_000, 1)
    assert (x >= t).all()
    grid = np.linspace(t, t + 4, 40_001)
    density = np.exp(-0.5 * (grid**2 - t**2)) * stats.norm.cdf((grid - t) / s)
    cdf = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    cdf /= cdf[-1]
    assert stats.kstest(np.interp(x[:, 0], grid, cdf), "uniform").pvalue > 1e-8


def test_tilted_draws_match_rejection_in_five_dimensions():
    C = psd(5, 8) / 5 + np.eye(5)
    lower = np.array([0.6, -np.inf, 0.5, -np.inf, 0.4])
    upper = np.array([np.inf, 0.2, np.inf, np.inf, 1.5])
    law = Truncated(Gaussian(np.zeros(5), C), lower, upper)
    plain = law.gaussian.sample(1_000_000, 0)
    plain = plain[((plain >= lower) & (plain <= upper)).all(axis=1)]
    assert len(plain) > 2000 and law._sampler is not None
    x = law.sample(20_000, 1)
    for k in range(5):
        assert stats.ks_2samp(x[:, k], plain[:, k]).pvalue > 1e-8
    for i, j in [(0, 1), (2, 4), (1, 3)]:
        assert stats.ks_2samp(x[:, i] * x[:, j], plain[:, i] * plain[:, j]).pvalue > 1e-8


def test_tilted_bound_holds_the_mass():
    # Orthant with correlation 1/2 in n dimensions: mass 1/(n+1); the bound is above it and not far.
    n = 40
    law = Truncated(Gaussian(np.zeros(n), 0.5 * np.eye(n) + 0.5), 0.0, np.inf)
    assert law._sampler is not None
    assert 1.0 <= np.exp(law._sampler.bound) * (n + 1) < 4.0
    x = law.sample(500, 0)
    assert x.shape == (500, n) and (x >= 0).all()


def test_truncated_singular_with_more_restrictions_than_directions():
    V = np.random.default_rng(1).normal(size=(6, 2))
    lower, upper = np.full(6, 1.35), np.full(6, 1.75)
    law = Truncated(Gaussian(np.full(6, 1.5), factor=V), lower, upper)
    assert law._sampler is not None and law._sampler.Q.shape == (2, 2)  # two rows are tilted, four are checked
    x = law.sample(3000, 0)
    assert (x >= lower).all() and (x <= upper).all()
    u = np.linalg.lstsq(V, (x - 1.5).T, rcond=None)[0].T
    np.testing.assert_allclose(u @ V.T + 1.5, x, atol=1e-9)  # still in the plane the covariance spans
    plain = law.gaussian.sample(400_000, 1)
    plain = plain[((plain >= lower) & (plain <= upper)).all(axis=1)]
    assert len(plain) > 500
    for k in range(6):
        assert stats.ks_2samp(x[:, k], plain[:, k]).pvalue > 1e-8


def test_truncated_without_restriction_is_the_gaussian():
    g = LAWS["gaussian full"]
    law = Truncated(g, -np.inf, np.inf)
    np.testing.assert_array_equal(law.sample(5, 0), g.sample(5, 0))
    np.testing.assert_allclose(law.cov, g.cov)
    assert law.log_mass == 0.0


def test_correlated_truncated_has_no_closed_form():
    law = Truncated(Gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]]), 0.0, 1.0)
    for what in ("mean", "variance", "cov", "log_mass"):
        with pytest.raises(InputError, match=r"no closed form.*sample"):
            getattr(law, what)


def test_sampling_out_of_reach_is_said():
    n = 520
    C = 0.3 + 0.7 * np.eye(n)
    law = Truncated(Gaussian(np.where(np.arange(n) % 2, 1.0, -1.0), C), -0.05, 0.05)
    with pytest.raises(InputError, match="out of reach"):
        law.sample(1, 0)


@given(
    arrays(float, 3, elements=st.floats(-5, 5)),
    arrays(float, 3, elements=st.floats(0.4, 3)),
    arrays(float, 3, elements=st.floats(-6, 6)),
    arrays(float, 3, elements=st.floats(1e-3, 5)),
)
def test_truncated_diagonal_properties(mean, sd, lower, width):
    law = Truncated(Gaussian(mean, sd**2), lower, lower + width)
    assert (law.mean >= law.lower).all() and (law.mean <= law.upper).all()
    assert (law.variance > 0).all() and (law.variance <= np.minimum(sd**2, width**2 / 4) * (1 + 1e-9)).all()
    x = law.sample(20, 0)
    assert (x >= law.lower).all() and (x <= law.upper).all()
    assert law.log_mass <= 0


# -- uniform and particles ---------------------------------------------------------------------------------------


def test_uniform_by_hand():
    law = Uniform([0.0, -1.0], [2.0, 3.0])
    assert law.mean.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(law.cov, np.diag([4 / 12, 16 / 12]))
    assert law.density([1.0, 0.0]) == pytest.approx(1 / 8) and law.density([3.0, 0.0]) == 0.0
    assert Uniform(0.0, 1.0).n == 1 and Uniform([0.0, 0.0, 0.0], 1.0).n == 3


def test_particles_are_one_component():
    law = Particles(np.arange(6.0).reshape(3, 2))
    assert law.components == ((1.0, law),)
    assert set(map(tuple, law.sample(100, 0))) == {(0.0, 1.0), (2.0, 3.0), (4.0, 5.0)}


def test_laws_do_not_follow_the_callers_array():
    m = np.zeros(2)
    law = Gaussian(m)
    m[0] = 7.0
    assert law.mean[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        law.mean[0] = 1.0


# -- bad inputs --------------------------------------------------------------------------------------------------

G2 = Gaussian([0.0, 0.0])
X3 = [[0.0, 1.0], [2.0, 3.0], [1.0, 1.0]]

BAD = [
    ("mean nan", lambda: Gaussian([0.0, np.nan]), "mean must be finite"),
    ("mean inf", lambda: Gaussian([np.inf]), "mean must be finite"),
    ("mean matrix", lambda: Gaussian(np.zeros((2, 2))), "mean must be a 0-D or 1-D"),
    ("mean empty", lambda: Gaussian([]), "mean is empty"),
    ("mean text", lambda: Gaussian("abc"), "mean must hold real numbers"),
    ("mean complex", lambda: Gaussian([1j]), "mean must hold real numbers"),
    ("cov shape", lambda: Gaussian([0.0, 0.0], np.eye(3)), r"shape \(2, 2\)"),
    ("cov variances", lambda: Gaussian([0.0, 0.0], [1.0, 2.0, 3.0]), "2 variances"),
    ("cov nan", lambda: Gaussian([0.0], [[np.nan]]), "cov must be finite"),
    ("negative variance", lambda: Gaussian([0.0], -1.0), "negative variance"),
    ("negative diagonal", lambda: Gaussian([0.0, 0.0], [[-1.0, 0.0], [0.0, 1.0]]), "negative variance"),
    ("indefinite", lambda: Gaussian([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "positive semidefinite"),
    ("indefinite zero", lambda: Gaussian([0.0, 0.0], [[0.0, 1.0], [1.0, 0.0]]), "positive semidefinite"),
    ("cov and factor", lambda: Gaussian([0.0], 1.0, factor=[[1.0]]), "give no cov"),
    ("matrix and low rank", lambda: Gaussian([0.0, 0.0], np.eye(2), low_rank=[[1.0], [1.0]]), "0-D or 1-D"),
    ("factor shape", lambda: Gaussian([0.0, 0.0], factor=[[1.0]]), r"shape \(2, k\)"),
    ("unknown keyword", lambda: Gaussian([0.0], variance=1.0), "unexpected keyword"),
    ("sample negative", lambda: G2.sample(-1), "n must be"),
    ("sample float", lambda: G2.sample(1.5), "whole number"),
    ("sample huge", lambda: G2.sample(2**63), "n must be"),
    ("rng float", lambda: G2.sample(1, 0.5), "rng must be"),
    ("rng negative", lambda: G2.sample(1, -1), "rng must be"),
    ("density shape", lambda: G2.density([[0.0]]), r"\(m, 2\)"),
    ("density column", lambda: Gaussian(0.0).density([0.0, 1.0]), "reshape"),
    ("fit empty", lambda: Gaussian.fit(np.zeros((0, 2))), "at least one sample"),
    ("fit flat", lambda: Gaussian.fit([1.0, 2.0]), "reshape"),
    ("fit huge", lambda: Gaussian.fit([[1e200], [-1e200]]), "overflows"),
    ("fit kind", lambda: Gaussian.fit(X3, covariance="tied"), "covariance must be one of"),
    ("fit ddof", lambda: Gaussian.fit(X3, ddof=3), "ddof"),
    ("weights sum", lambda: GaussianMixture([0.5, 0.6], [G2, G2]), "sum to 1"),
    ("weights negative", lambda: GaussianMixture([1.5, -0.5], [G2, G2]), "negative"),
    ("weights nan", lambda: GaussianMixture([np.nan, 1.0], [G2, G2]), "weights must be finite"),
    ("weights count", lambda: GaussianMixture([1.0], [G2, G2]), "2 entries"),
    ("no components", lambda: GaussianMixture([], []), "non-empty"),
    ("one Gaussian bare", lambda: GaussianMixture([1.0], G2), "non-empty list"),
    ("not Gaussian", lambda: GaussianMixture([1.0], [Uniform(0, 1)]), "Gaussian laws"),
    ("unequal inputs", lambda: GaussianMixture([0.5, 0.5], [G2, Gaussian(0.0)]), "same inputs"),
    ("arrays layout", lambda: GaussianMixture.from_arrays([1.0], [[0.0, 0.0]], np.eye(2)), r"shape \(1, 2, 2\)"),
    ("mixture k", lambda: GaussianMixture.fit(X3, 4), "at most the number of samples"),
    ("mixture k 0", lambda: GaussianMixture.fit(X3, 0), "components must be"),
    ("mixture kind", lambda: GaussianMixture.fit(X3, 2, "banana"), "covariance must be one of"),
    ("mixture nan", lambda: GaussianMixture.fit([[np.nan, 0.0]], 1), "X must be finite"),
    ("classes length", lambda: GaussianMixture.fit_classes(X3, [0, 1]), "one label"),
    ("classes small", lambda: GaussianMixture.fit_classes(X3, [0, 0, 1], 2), "class 1"),
    ("classes nan", lambda: GaussianMixture.fit_classes(X3, [0.0, np.nan, 1.0]), "finite labels"),
    ("kde one", lambda: kde([[1.0]]), "two samples"),
    ("kde rule", lambda: kde(X3, "magic"), "bandwidth must be one of"),
    ("kde zero", lambda: kde(X3, 0.0), "bandwidth"),
    ("kde matrix", lambda: kde(X3, np.eye(3)), r"\(2, 2\)"),
    ("uniform order", lambda: Uniform([0.0, 2.0], 1.0), "for input 1"),
    ("uniform infinite", lambda: Uniform(0.0, np.inf), "upper must be finite"),
    ("uniform lengths", lambda: Uniform([0.0, 0.0], [1.0, 1.0, 1.0]), "3 entries"),
    ("uniform too wide", lambda: Uniform(-1.7e308, 1.7e308), "overflows"),
    ("truncated law", lambda: Truncated(Uniform(0, 1), 0, 1), "must be a Gaussian"),
    ("truncated order", lambda: Truncated(G2, 1.0, 0.0), "must not exceed"),
    ("truncated nan", lambda: Truncated(G2, np.nan, 0.0), "nan"),
    ("truncated +inf", lambda: Truncated(G2, np.inf, np.inf), "below infinity"),
    ("truncated flat", lambda: Truncated(G2, [0.0, 0.5], [1.0, 0.5]), "zero mass.*input 1"),
    ("truncated fixed outside", lambda: Truncated(Gaussian([0.0, 3.0], [1.0, 0.0]), 0, 1), "zero mass.*input 1"),
    ("truncated underflow", lambda: Truncated(G2, [0.0, 50.0], np.inf), "underflows"),
    ("truncated far", lambda: Truncated(Gaussian([1e8]), -1.0, 1.0), "underflows"),
    ("truncated too far", lambda: Truncated(Gaussian([1e308], 1e-300), -1.0, 1.0), "underflows"),
    (
        "truncated misses the line",
        lambda: Truncated(Gaussian([0.0, 3.0], factor=[[1.0], [1.0]]), [0.0, 0.0], [1.0, 1.0]),
        "zero mass.*singular",
    ),
    (
        "truncated touches the line",
        lambda: Truncated(Gaussian([0.0, 1.0], factor=[[1.0], [1.0]]), [0.0, 0.0], [1.0, 1.0]),
        "zero mass.*singular",
    ),
    ("particles empty", lambda: Particles(np.zeros((0, 2))), "at least one sample"),
    ("particles flat", lambda: Particles([1.0, 2.0]), "reshape"),
    ("particles weights", lambda: Particles(X3, [1.0, 1.0, 1.0]), "sum to 1"),
    ("dict type", lambda: law_from_dict([1]), "dictionary"),
    ("dict law", lambda: law_from_dict({"law": "cauchy"}), "'law' must be one of"),
    ("dict list law", lambda: law_from_dict({"law": []}), "'law' must be one of"),
    ("dict missing", lambda: law_from_dict({"law": "uniform", "lower": 0}), "missing 'upper'"),
    ("dict unknown", lambda: law_from_dict({"law": "gaussian", "mean": 0, "sd": 1}), "unknown 'sd'"),
    ("dict class", lambda: Uniform.from_dict({"law": "gaussian", "mean": 0}), "must describe a Uniform"),
    ("dict null", lambda: law_from_dict({"law": "gaussian", "mean": [None]}), "mean must hold real numbers"),
    (
        "dict nested mixture",
        lambda: law_from_dict({"law": "mixture", "weights": [1], "components": [{"law": "mixture"}]}),
        "gaussian laws",
    ),
]


@pytest.mark.parametrize("call, words", [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_inputs(call, words):
    with pytest.raises((InputError, TypeError) if "keyword" in words else InputError, match=words):
        call()


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ('{"law": "gaussian", "mean": NaN}', "NaN"),
        ('{"law": "gaussian", "mean": -Infinity}', "Infinity"),
        ('{"law": "gaussian", "mean": 1e999}', "finite"),
        ('{"law": "gaussian", "mean": 0, "mean": 1}', "'mean' twice"),
        ("[" * 200_000, "nested"),
        ('{"a":' * 100_000, "nested"),
        ('{"law": "gaussian", "mean": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"law": "gaussian", "mean": ' + "9" * 400 + "}", "mean"),
        ("[1, 2]", "dictionary"),
        (b"\xff\xfe\x00", "not a text file"),
    ],
)
def test_bad_law_files(tmp_path, text, words):
    file = tmp_path / "law.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=words) as caught:
        law_from_json(file)
    assert "law" in str(caught.value)


def test_law_files(tmp_path):
    file = tmp_path / "law.json"
    file.write_text(
        '\ufeff{"law": "truncated", "gaussian": {"law": "gaussian", "mean": [0, 1]}, "lower": 0, "upper": null}'
    )
    law = law_from_json(str(file))
    assert isinstance(law, Truncated) and law.upper.tolist() == [np.inf, np.inf]
    with pytest.raises(InputLimitError, match="file_bytes"):
        law_from_json(file, limits=Limits(file_bytes=10))
    with pytest.raises(InputError, match="there is no file"):
        law_from_json(tmp_path / "none.json")


def test_one_law_per_class_goes_through_json(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    classes = GaussianMixture.fit_classes(X, y, rng=0)
    file = tmp_path / "classes.json"
    file.write_text(json.dumps(classes.to_dict()))
    again = classes_from_json(file)
    assert again.labels == classes.labels and np.array_equal(again.weights, classes.weights)
    assert np.array_equal(again[1].means, classes[1].means)
    assert np.array_equal(law_from_json(file).means, classes.joint.means)
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps(classes[0].to_dict()))
    assert isinstance(classes_from_json(plain), GaussianMixture)
    for change, words in (
        ({"labels": [0]}, "one per label"),
        ({"labels": [0, 0]}, "differ"),
        ({"weights": [1.0]}, "weights"),
        ({"laws": [classes.to_dict()["laws"][0], {"law": "uniform", "lower": [0], "upper": [1]}]}, "GaussianMixture"),
    ):
        file.write_text(json.dumps(classes.to_dict() | change))
        with pytest.raises(InputError, match=words):
            classes_from_json(file)


def test_an_input_that_is_the_same_in_all_components_has_no_variance():
    weights = np.full(49, 1 / 49)
    means = np.column_stack([np.arange(49.0), np.full(49, 3.3)])
    law = GaussianMixture(weights, [Gaussian(m, np.diag([1.0, 0.0])) for m in means])
    assert law.mean[1] == 3.3 and law.variance[1] == 0 and not law.cov[1].any()
