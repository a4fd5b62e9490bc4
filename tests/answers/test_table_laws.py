"""Laws of tables: categories, products, mixtures with points, laws given values or bounds; closed forms and draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import reluscope as rs
from reluscope.inputs import Categorical, Copula, Gaussian, GaussianMixture, Mixture, Particles, Truncated

DRAWS = 200_000
C2 = [[1.0, 0.6], [0.6, 1.0]]


def near(value: float, share: float, n: int = DRAWS) -> bool:
    return abs(value - share) <= 6 * np.sqrt(max(share * (1 - share), 1e-6) / n)


def network(n: int, seed: int = 0) -> rs.Network:
    rng = np.random.default_rng(seed)
    return rs.Network([(rng.normal(size=(5, n)), 0.3 * rng.normal(size=5)), (rng.normal(size=(2, 5)), None)])


# -- mixtures with points, products ------------------------------------------------------------------------------------

MIXED = {
    "points and a Gaussian": Mixture([0.3, 0.7], [Particles([[0.0, 1.0], [1.0, -1.0]]), Gaussian([0.0, 0.5], C2)]),
    "points and a copula": Mixture(
        [0.3, 0.7], [Particles([[0.0, 1.0]]), Copula([stats.expon(), stats.poisson(1.0)], C2)]
    ),
    "category and Gaussian": rs.product(Categorical([0, 1], [0.3, 0.7], encoding="codes"), Gaussian([0.5])),
    "category and copula": rs.product(Categorical([0, 1], [0.3, 0.7], encoding="codes"), Copula([stats.expon()])),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("text", ["y[0] > y[1]", "y[0] > 0.2 and x[1] <= 0.5", "x[0] >= 1 or y[1] < 0"])
def test_all_guarantees_agree_with_draws(name, text):
    law, net = MIXED[name], network(2)
    x = law.sample(DRAWS, 1)
    share = float(rs.event(text, 2, 2).holds(net, x).mean())
    exact = rs.probability(net, law, text, guarantee="exact")
    assert near(exact.value, share)
    for guarantee in ("sound", "confidence"):
        found = rs.probability(net, law, text, guarantee=guarantee, budget="1s", level=1 - 1e-5, rng=0)
        assert found.lower <= exact.upper and exact.lower <= found.upper


@pytest.mark.parametrize("name", MIXED)
def test_patterns_and_outputs_of_mixed_laws(name):
    law, net = MIXED[name], network(2, 1)
    x = law.sample(DRAWS, 2)
    keys, counts = np.unique(net.key(net.pattern(x)), return_counts=True)
    shares = dict(zip(keys.tolist(), (counts / DRAWS).tolist(), strict=True))
    models = rs.linear_models(net, law)
    assert models.masses.guarantee == "exact" and len(shares) > 2
    for key, m in zip(net.key(models.pattern).tolist(), models.masses.value.tolist(), strict=True):
        assert near(m, shares.get(key, 0.0))
    out = rs.outputs(net, law)
    y = net(x)
    assert np.abs(out.mean.value - y.mean(axis=0)).max() < 6 * y.std() / np.sqrt(DRAWS)
    assert rs.probable(net, law, k=2, rng=0).pattern.shape == (2, net.n_units)


def test_bounds_on_a_category_are_decided_before_rounding():
    """A category that sits on a bound is in or out; only the other input is searched."""
    law = rs.product(Categorical([0, 1, 2], [0.2, 0.3, 0.5], encoding="codes"), Gaussian([0.0]))
    net = rs.Network([([[0.0, 1.0]], None), ([[1.0]], None)])
    for text, wanted in {
        "x[0] >= 1": 0.8,
        "x[0] > 1": 0.5,
        "x[0] == 1 and y > 1": 0.3 * stats.norm.sf(1),
        "x[0] < 2 and y > 1": 0.5 * stats.norm.sf(1),
    }.items():
        found = rs.probability(net, law, text, guarantee="sound", budget="20000 regions")
        assert found.lower <= wanted * (1 + 1e-12) and wanted * (1 - 1e-12) <= found.upper and found.width < 1e-3, text


def test_the_class_of_a_product():
    a, g = Categorical(["a", "b"], [0.3, 0.7]), Gaussian([0.0, 1.0], C2)
    assert isinstance(rs.product(a, a), Particles) and len(rs.product(a, a)) == 4
    assert isinstance(rs.product(a, g), GaussianMixture) and isinstance(rs.product(g, g), Gaussian)
    np.testing.assert_allclose(rs.product(g, Gaussian([5.0], 4.0)).cov[:2, :2], C2)
    assert isinstance(rs.product(rs.Uniform(0, 1), rs.Uniform(0, 2)), rs.Uniform)
    assert isinstance(rs.product(g, Truncated(Gaussian([0.0]), 0.0, 1.0)), Truncated)
    with pytest.raises(rs.InputError, match="marginals of a Copula"):
        rs.product(g, rs.Uniform(0, 1))
    with pytest.raises(rs.InputError, match="more than 100,000"):
        rs.product(*[Categorical([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], np.full(10, 0.1))] * 6)


def test_components_of_a_product_share_their_factor():
    """One SVD for thousands of combinations, not one each."""
    law = rs.product(Categorical(list(range(50)), np.full(50, 0.02)), Gaussian([0.0, 1.0], C2))
    assert len(law.weights) == 50 and len(law.factors) == 1


@pytest.mark.parametrize(
    ("words", "call"),
    {
        "SEX: the level 'other' never occurs in the 2 rows; leave it out": lambda: Categorical.fit(
            ["m", "f"], levels=["m", "f", "other"], name="SEX"
        ),
        "SEX holds the level 'x'": lambda: Categorical.fit(["m", "x"], levels=["m", "f"], name="SEX"),
        "SEX has a missing value in row 1": lambda: Categorical.fit(["m", None], name="SEX"),
        "levels must differ": lambda: Categorical(["a", "a"], [0.5, 0.5]),
        "needs numbers": lambda: Categorical(["a", "b"], [0.5, 0.5], encoding="codes"),
        "probabilities must sum to 1": lambda: Categorical(["a", "b"], [0.5, 0.4]),
    }.items(),
)
def test_bad_categories_are_refused_by_name(words, call):
    with pytest.raises(rs.InputError, match=words):
        call()


def test_smoothing_gives_a_level_its_share():
    law = Categorical.fit(["m", "m", "f"], levels=["m", "f", "other"], smoothing=1.0)
    np.testing.assert_allclose(law.probabilities, [3 / 6, 2 / 6, 1 / 6])


# -- given values and bounds -------------------------------------------------------------------------------------------

GIVEN = {
    "gaussian": Gaussian([0.0, 1.0, 2.0], [[1.0, 0.6, 0.2], [0.6, 1.0, 0.0], [0.2, 0.0, 2.0]]),
    "mixture": GaussianMixture(
        [0.3, 0.7],
        [Gaussian([0.0, 0.0, 0.0], 1.0), Gaussian([2.0, 1.0, 0.0], [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0, 0, 1.0]])],
    ),
    "copula": Copula(
        [stats.expon(), stats.norm(), stats.lognorm(0.5)], [[1.0, 0.6, 0.2], [0.6, 1.0, 0.0], [0.2, 0.0, 1.0]]
    ),
    "truncated": Truncated(
        Gaussian([0.0, 1.0, 2.0], [[1.0, 0.6, 0.0], [0.6, 1.0, 0.0], [0.0, 0.0, 1.0]]), [-np.inf, 0.0, -np.inf], np.inf
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
def test_given_a_value_as_draws_near_it(name):
    law = GIVEN[name]
    at = float(np.median(law.sample(2000, 0)[:, 0]))
    found = law.given({0: at})
    x = law.sample(1_000_000, 3)
    close = x[np.abs(x[:, 0] - at) < 0.02]
    y = found.sample(40_000, 4)
    assert (y[:, 0] == at).all() and len(close) > 3000
    for i in (1, 2):
        assert stats.ks_2samp(close[:, i], y[:, i]).pvalue > 1e-6
    assert abs(np.corrcoef(close[:, 1:].T)[0, 1] - np.corrcoef(y[:, 1:].T)[0, 1]) < 0.1


@pytest.mark.parametrize("name", GIVEN)
def test_where_as_draws_inside(name):
    law = GIVEN[name]
    level = float(np.quantile(law.sample(2000, 0)[:, 1], 0.7))
    found = law.where(f"x[1] > {level}")
    x = law.sample(200_000, 3)
    inside, y = x[x[:, 1] > level], found.sample(40_000, 4)
    assert (y[:, 1] >= level - 1e-9).all()
    for i in range(3):
        assert stats.ks_2samp(inside[:, i], y[:, i]).pvalue > 1e-6


@pytest.mark.parametrize("name", MIXED)
def test_where_on_mixed_laws_as_draws_inside(name):
    law = MIXED[name]
    found = law.where("x[1] > 0.2 and x[1] <= 1")
    x = law.sample(200_000, 3)
    inside, y = x[(x[:, 1] > 0.2) & (x[:, 1] <= 1)], found.sample(40_000, 4)
    assert ((y[:, 1] > 0.2 - 1e-9) & (y[:, 1] <= 1 + 1e-9)).all()
    for i in range(2):
        for t in np.quantile(inside[:, i], [0.1, 0.5, 0.9]):
            a, b = (inside[:, i] <= t).mean(), (y[:, i] <= t + 1e-9).mean()
            assert abs(a - b) < 6 * np.sqrt(0.25 / len(inside) + 0.25 / len(y))


def test_given_an_atom_the_score_is_in_its_interval():
    law = Copula({"count": stats.poisson(1.0), "size": stats.norm()}, C2)
    x = law.sample(400_000, 0)
    for found in (law.given({"count": 2}), law.where("count > 1 and count < 2.5")):
        y = found.sample(40_000, 1)
        assert near(float((y[:, 0] == 2).mean()), 1.0, 40_000)
        assert stats.ks_2samp(x[x[:, 0] == 2, 1], y[:, 1]).pvalue > 1e-6
    assert law.where("count > 0").cdf(0.5) < 1e-5 and law.where("count >= 0").cdf(0.5) > 0.3


def test_given_a_category_only_its_components_are_left():
    law = rs.product(Categorical([0, 1], [0.3, 0.7], encoding="codes"), Gaussian([0.0, 1.0], C2))
    found = law.given({0: 1})
    np.testing.assert_allclose(found.mean, [1.0, 0.0, 1.0])
    with pytest.raises(rs.InputError, match="never takes"):
        law.given({0: 0.5})


def test_marginals_and_moves():
    for law in [
        *GIVEN.values(),
        *MIXED.values(),
        rs.Uniform([0.0, 1.0], [1.0, 2.0]),
        Particles([[0.0, 1.0], [2.0, 2.0]]),
    ]:
        if not isinstance(law, Truncated):
            kept = law.marginal([1])
            assert kept.n == 1 and kept.mean[0] == pytest.approx(law.mean[1], rel=1e-9)
            assert kept.variance[0] == pytest.approx(law.variance[1], rel=1e-7)
        moved = law.move(mean=law.mean + 1.0, scale=2.0)
        assert len(moved.components) == len(law.components)
        np.testing.assert_allclose(moved.mean, law.mean + 1.0, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(moved.cov, 4 * law.cov, rtol=1e-7, atol=1e-9)
    assert Copula({"a": stats.norm(), "b": stats.expon()}).marginal("b").names == ("b",)
    assert GIVEN["truncated"].marginal([0, 1]).n == 2


@pytest.mark.parametrize(
    ("words", "call"),
    {
        "values must be a dictionary": lambda: GIVEN["gaussian"].given([0]),
        "key of values must be between 0 and 2": lambda: GIVEN["gaussian"].given({3: 1.0}),
        "have no names": lambda: GIVEN["gaussian"].given({"a": 1.0}),
        "cannot read 'x\\[0\\] is big'": lambda: GIVEN["gaussian"].where("x[0] is big"),
        "scale must be positive": lambda: GIVEN["gaussian"].move(scale=-1.0),
        "give mean, scale or both": lambda: GIVEN["gaussian"].move(),
        "never takes": lambda: GIVEN["copula"].given({0: -1.0}),
        "each once": lambda: GIVEN["gaussian"].marginal([0, 0]),
    }.items(),
)
def test_bad_conditions_are_refused_by_name(words, call):
    with pytest.raises(rs.InputError, match=words):
        call()


# -- time --------------------------------------------------------------------------------------------------------------


def test_at_least_one_of_ten_steps():
    """The largest of ten steps of an AR(1) sequence above a level; the reference is scipy's orthant probability."""
    law = Gaussian.ar1(10, 0.7, 0.5, mean=0.2)
    lag = np.abs(np.subtract.outer(np.arange(10), np.arange(10)))
    cov = 0.25 / (1 - 0.49) * 0.7**lag
    np.testing.assert_allclose(law.cov, cov, rtol=1e-12)
    wanted = 1 - stats.multivariate_normal(np.full(10, 0.2), cov, maxpts=2_000_000, abseps=1e-6, seed=1).cdf(
        np.full(10, 1.5)
    )
    net = rs.Network([(np.eye(10), np.zeros(10)), (np.eye(10), None)])
    text = " or ".join(f"y[{t}] > 1.5" for t in range(10))
    found = rs.probability(net, law, text, budget="1s", rng=0, level=1 - 1e-5)
    assert found.lower - 1e-4 <= wanted <= found.upper + 1e-4 and found.width < 0.05


def test_any_linear_sequence():
    A, Q = np.array([[1.0, 0.1], [0.0, 0.9]]), np.array([[0.0, 0.0], [0.0, 0.04]])
    law = Gaussian.sequence(5, A, Q, [1.0, 2.0])
    x = np.tile([1.0, 2.0], (DRAWS, 1))
    rng = np.random.default_rng(0)
    steps = [x]
    for _ in range(4):
        x = x @ A.T + rng.normal(size=(DRAWS, 1)) * [0.0, 0.2]
        steps.append(x)
    window = np.concatenate(steps, axis=1)
    np.testing.assert_allclose(law.mean, window.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(law.cov, np.cov(window.T), atol=0.01)
    with pytest.raises(rs.InputError, match="stationary"):
        Gaussian.ar1(3, 1.2, 1.0)
    assert Gaussian.ar1(3, 1.2, 1.0, start=2.0).mean.tolist() == pytest.approx([2.0, 2.4, 2.88])


def test_one_input_cannot_have_two_values():
    law = Copula([stats.expon(), stats.norm()], names=["a", "b"])
    with pytest.raises(rs.InputError, match="cannot be both 1 and 2"):
        law.where("x[0] == 1 and x[0] == 2")
    with pytest.raises(rs.InputError, match="cannot be both"):
        law.given({0: 1.0, "a": 2.0})
    assert law.where("x[0] == 1 and a == 1").mean[0] == pytest.approx(1.0)


def test_components_on_a_line_are_weighted_by_their_density_on_it():
    """Both components live on x0 = x1; fixing both inputs must tell the same as fixing one."""
    C = np.ones((2, 2))
    law = GaussianMixture([0.5, 0.5], [Gaussian([0.0, 0.0], C), Gaussian([0.0, 0.0], 4 * C)])
    np.testing.assert_allclose(law.given({0: 0.0}).weights, [2 / 3, 1 / 3])
    np.testing.assert_allclose(law.given({0: 0.0, 1: 0.0}).weights, [2 / 3, 1 / 3])


@pytest.mark.parametrize("spread", [Gaussian([5.0]), rs.Uniform([4.0], [6.0]), Copula([stats.expon(4.0)])])
@pytest.mark.parametrize("block", [Particles([[1.0]]), Categorical([1, 2], [0.25, 0.75], encoding="codes")])
def test_products_keep_the_points_of_a_mixture(spread, block):
    """Half of the mass is on the point 0, whatever stands beside it."""
    law = rs.product(Mixture([0.5, 0.5], [Particles([[0.0]]), spread]), block)
    net = rs.Network([(np.eye(2), None)])
    assert rs.probability(net, law, "x[0] == 0", guarantee="exact").value == pytest.approx(0.5)
    assert law.mean == pytest.approx([0.5 * spread.mean[0], block.mean[0]])
    x = law.sample(4000, 0)
    assert abs((x[:, 0] == 0).mean() - 0.5) < 0.05


def test_what_is_certain_is_at_most_certain():
    """The weights are one rounding above 1 together; no probability is."""
    weights = [0.3388598663711345, 0.2758104284508164, 0.3853297051780493]
    law = Mixture(weights, [Particles([[0.0]]), rs.Uniform([0.0], [1.0]), rs.Uniform([0.0], [2.0])])
    found = rs.probability(rs.Network([([[1.0]], None)]), law, "y >= 0", guarantee="exact")
    assert found.lower <= found.value <= found.upper <= 1.0
