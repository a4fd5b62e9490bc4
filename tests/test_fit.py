"""Laws fitted to tables, and how well they fit."""

from __future__ import annotations

import json

import matplotlib as mpl
import numpy as np
import pytest
from scipy import stats

import reluscope as rs
from reluscope.inputs import Copula

mpl.use("agg")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 4000, p=[0.6, 0.4])
    z = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 4000) + (sex == "m")[:, None] * [1.0, 0.0]
    return {
        "SEX": sex,
        "AMOUNT": np.exp(z[:, 0]),
        "COUNT": np.floor(np.maximum(z[:, 1], 0.0) * 2),
        "ONE": np.ones(4000),
    }


def test_a_fitted_law_has_the_columns_of_the_table(table):
    law = rs.fit(table)
    assert isinstance(law, Copula) and law.names == ("SEX=f", "SEX=m", "AMOUNT", "COUNT", "ONE")
    x = law.sample(100_000, 0)
    assert set(np.unique(x[:, 0])) == {0.0, 1.0} and (x[:, 0] + x[:, 1] == 1).all() and (x[:, 4] == 1).all()
    assert abs(x[:, 1].mean() - (table["SEX"] == "m").mean()) < 0.01
    assert abs((x[:, 3] == 0).mean() - (table["COUNT"] == 0).mean()) < 0.02 and (x[:, 2] > 0).all()
    men = table["SEX"] == "m"
    assert abs(np.median(x[x[:, 1] == 1, 2]) / np.median(table["AMOUNT"][men]) - 1) < 0.15
    found = law.check(table, rng=0)
    assert found.good and found.text.startswith("The law fits") and found.ks.max() < 0.03 and found.auc < 0.56
    assert found.to_dict()["name"] == list(law.names) and found.plot() is not None


def test_a_law_that_does_not_fit_is_called_so(table):
    X = rs.Schema.of(table).encode(table)
    found = rs.Gaussian.fit(X).check(table, rng=0)
    assert found.seed == 0
    assert not found.good and "DOES NOT FIT" in found.text and found.impossible.max() > 0.1
    turned = Copula([X[:, 2], X[:, 3]], [[1.0, -0.6], [-0.6, 1.0]])
    told = turned.check(X[:, 2:4], rng=0)
    assert "rank correlation of x[0] and x[1]" in told.text and told.ks.max() < 0.01


def _incomes(rows):
    rng = np.random.default_rng(3)
    income = rng.lognormal(10.0, 0.6, rows)
    return {"income": income, "debt": np.where(rng.random(rows) < 0.25, 0.0, income * rng.uniform(0, 1, rows))}


def test_an_order_that_all_rows_keep_and_draws_break_is_named():
    table = _incomes(800)
    columns = [rs.Column("income", scale=1e-4, shift=-2.0), rs.Column("debt", scale=3e-4)]
    law = rs.fit(table)
    found = law.check(table, rng=0)
    draws = law.sample(100_000, 1)
    assert found.orders[1, 0] == pytest.approx(np.mean(draws[:, 1] > draws[:, 0]), abs=0.005)
    assert not found.good and "debt is above income in" in found.text and found.orders[0, 1] == 0.0
    assert found.to_dict()["worst_order"] == [found.orders[1, 0]] * 2
    scaled = rs.fit(table, rs.Schema(columns)).check(table, rs.Schema(columns), rng=0)  # compared in their own units
    assert scaled.orders[1, 0] == pytest.approx(found.orders[1, 0], abs=0.005)
    income, debt = np.array([table["income"], table["debt"]])
    kept = np.column_stack([income, debt])
    assert rs.Particles(kept).check(kept, rng=0).orders.max() == 0.0


def test_orders_that_chance_or_rounding_breaks_are_not_held_against_a_law():
    rng = np.random.default_rng(4)
    for n in (12, 60, 400):  # independent columns that overlap little: small tables keep an order that the law breaks
        x = np.column_stack([rng.normal(size=n), rng.normal(2.5, 1.0, size=n)])
        found = rs.Gaussian([0.0, 2.5], np.eye(2)).check(x, rng=0)
        assert "is above" not in found.text
    x = rng.normal(size=(500, 1)) @ [[1.0, 1.0]]  # the same column twice, and draws that differ by rounding
    assert rs.Gaussian.fit(x).check(x, rng=0).orders.max() == 0.0


def test_the_law_answers_as_the_rows_do(table):
    schema = rs.Schema.of(table)
    rng = np.random.default_rng(1)
    net = rs.Network([(0.3 * rng.normal(size=(6, 5)), rng.normal(size=6)), (rng.normal(size=(1, 6)), None)])
    X = schema.encode(table)
    law = rs.fit(table)
    level = float(np.quantile(net(X), 0.7))
    found = rs.probability(net, law, f"y > {level}", tolerance=0.005, rng=0)
    assert abs(found.value - 0.3) < 0.02


@pytest.fixture(scope="module")
def months():
    """A status in each of four months, and amounts that are 0 where the status says so."""
    rng = np.random.default_rng(3)
    rows = 3000
    stays = rng.random((rows, 4)) < 0.85
    fresh = rng.choice([-1, 0, 1, 2], (rows, 4), p=[0.3, 0.5, 0.1, 0.1])
    status = fresh.copy()
    for t in range(1, 4):
        status[:, t] = np.where(stays[:, t], status[:, t - 1], fresh[:, t])
    base = rng.normal(8.0, 1.0, rows)
    paid = np.exp(base[:, None] + 0.3 * rng.normal(size=(rows, 4))) * (status >= 0) * (rng.random((rows, 4)) < 0.9)
    columns = {f"STATUS{t}": status[:, t] for t in range(4)} | {f"PAID{t}": paid[:, t] for t in range(4)}
    return {"LIMIT": np.exp(base + 2.0 + 0.5 * rng.normal(size=rows)), **columns}


def test_repeated_columns_and_amounts_of_zero_are_fitted(months):
    law = rs.fit(months)
    X = rs.Schema.of(months).encode(months)
    x = law.sample(60_000, 0)
    patterns = {tuple(row) for row in X[:, 1:5].tolist()}
    assert {tuple(row) for row in x[:, 1:5].tolist()} <= patterns and len(patterns) > 40
    for j in range(5, 9):
        assert abs((x[:, j] == 0).mean() - (X[:, j] == 0).mean()) < 0.02 and x[:, j].min() == 0
    assert ((x[:, 1] < 0) & (x[:, 5] > 0)).mean() < 0.02  # nobody paid then
    scale = X.std(axis=0)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        W = rng.normal(size=(12, 9)) / scale
        net = rs.Network([(W, -W @ X.mean(axis=0)), (rng.normal(size=(1, 12)), None)])
        for q in (0.2, 0.5, 0.8, 0.95):
            level = np.quantile(net(X), q)
            assert abs((net(x) > level).mean() - (1 - q)) < 0.03
    found = law.check(months, rng=0)
    assert found.ks.max() < 0.05 and np.abs(found.pairs).max() < 0.1
    assert found.good or "boosted trees" in found.text  # trees see what neither columns nor pairs show, and it is said


def test_trees_see_a_dependence_that_columns_and_pairs_do_not():
    rng = np.random.default_rng(0)
    x = rng.random((20_000, 2))
    x = x[np.floor(8 * x).sum(axis=1) % 2 == 0]  # the white fields of a chessboard
    found = rs.Uniform([0.0, 0.0], [1.0, 1.0]).check(x, rng=0)
    assert found.ks.max() < 0.05 and np.abs(found.pairs).max() < 0.1
    assert found.classifier == "boosted trees" and found.auc > 0.6 and "DOES NOT FIT" in found.text


def test_the_support_of_a_column_bounds_the_law_and_the_table():
    x = np.random.default_rng(0).exponential(size=300)
    open_, closed = rs.Schema([rs.Column("A", scale=-2.0)]), rs.Schema([rs.Column("A", support=(0.0, 9.0))])
    law = rs.fit({"A": x}, open_)
    assert law.marginals[0].support == (-np.inf, 0.0)  # never negative, and larger than anything seen now and then
    assert law.cdf(-2.0 * x.max() - 1e-9, 0) == pytest.approx(1 / 300, abs=1 / 300) and law.cdf(-2.0 * x.max(), 0) > 0
    assert rs.fit({"A": x}, closed).marginals[0].support == (0.0, 9.0)
    assert rs.fit(x[:, None]).marginals[0].support == (x.min(), x.max())
    with pytest.raises(rs.InputError, match=r"column 'A' has the value -1, which its support \(0, 9\)"):
        rs.fit({"A": [*x.tolist(), -1.0]}, closed)


@pytest.mark.parametrize("place", [1e3, 1e6, 1e9])
def test_columns_far_from_zero_keep_their_mean_and_spread(place):
    """Amounts are never negative; that does not mean that a temperature in kelvin goes down to 0."""
    rng = np.random.default_rng(0)
    x = place + rng.normal(size=200)
    law = rs.fit({"A": x, "B": rng.normal(size=200)})
    assert law.marginals[0].support == (0.0, np.inf)
    assert float(law.mean[0]) == pytest.approx(x.mean(), abs=0.05)
    assert float(np.sqrt(law.variance[0])) == pytest.approx(x.std(), rel=0.1)


def test_a_column_of_many_whole_numbers_takes_fewer_pieces():
    x = np.random.default_rng(0).integers(0, 240, 60_000)
    law = rs.fit({"SCORE": x, "B": np.random.default_rng(1).normal(size=60_000)}, clusters=1)
    assert law.marginals[0].pieces <= 255 and law.cdf_error[0] < 0.02


def test_a_fitted_law_is_kept_in_a_file_with_each_covariance_once(table):
    law = rs.fit(table)
    plain = json.loads(json.dumps(law.to_dict()))
    assert len(plain["scores"]["covariances"]) < len(law.scores.components) / 3
    back = rs.inputs.law_from_dict(plain)
    assert (back.sample(500, 0) == law.sample(500, 0)).all()
    for words, change in {
        "which of the": {"covariance_of": [99] * len(law.scores.components)},
        "list of objects": {"covariances": [1.0]},
    }.items():
        with pytest.raises(rs.InputError, match=words):
            rs.inputs.law_from_dict({**plain["scores"], **change})


def test_the_cdf_of_many_components_is_the_sum():
    rng = np.random.default_rng(0)
    parts = [rs.Gaussian(rng.normal(size=2), [v, 1.0]) for v in rng.exponential(size=100) * (rng.random(100) < 0.7)]
    law = rs.GaussianMixture(rng.dirichlet(np.ones(100)), parts)
    t = np.concatenate([np.linspace(-4, 4, 30), law.means[:10, 0]])
    for strict in (False, True):
        one_by_one = sum(w * g.cdf(t, 0, strict=strict) for w, g in law.components)
        assert law.cdf(t, 0, strict=strict) == pytest.approx(one_by_one, abs=1e-14)


def test_values_and_bounds_by_column_and_level(table):
    scaled = rs.Schema([*rs.Schema.of(table).columns[:1], rs.Column("AMOUNT", unit="EUR", scale=-0.5, shift=1.0)])
    law = rs.fit({k: table[k] for k in ("SEX", "AMOUNT")}, scaled)
    men = law.given({"SEX": "m"}).sample(2000, 0)
    assert (men[:, :2] == [0, 1]).all()
    assert (law.given({"SEX": "m"}, scaled).sample(2000, 0) == men).all()
    assert (law.where("SEX == m").sample(2000, 0) == men).all()
    rich = law.where("AMOUNT > 2 and SEX == f", scaled).sample(2000, 0)
    assert (rich[:, :2] == [1, 0]).all() and (scaled.columns[1].decode(rich[:, 2:]) > 2).all()
    assert law.given({"AMOUNT": 3.0}, scaled).sample(9, 0)[:, 2] == pytest.approx(np.full(9, -0.5), abs=1e-12)
    assert law.marginal("SEX").names == ("SEX=f", "SEX=m")
    coded = rs.fit({"SEX": np.tile([1, 2], 50), "A": np.arange(100.0)}, rs.Schema([
        rs.Column("SEX", "category", levels=[1, 2]), "A"]))  # fmt: skip
    assert (coded.where("SEX == 2").sample(9, 0)[:, 1] == 1).all()
    for words, call in {
        "value of 'SEX' must be one of its levels 'f', 'm', got": lambda: law.given({"SEX": "male"}),
        "must be one of its levels 'f', 'm'": lambda: law.given({"SEX": "male"}, scaled),
        "SEX is a category: ask for a level, such as SEX == f": lambda: law.where("SEX > 1", scaled),
        "schema has 5 inputs but the law has 3": lambda: law.given({"SEX": "m"}, rs.Schema.of(table)),
    }.items():
        with pytest.raises(rs.InputError, match=words):
            call()


def test_a_category_is_redrawn_under_a_fitted_law(table):
    columns = {k: table[k] for k in ("SEX", "AMOUNT")}
    schema = rs.Schema.of(columns)
    law = rs.fit(columns, schema)
    # Selected where log-like score of AMOUNT plus a bonus for one sex passes a limit.
    net = rs.Network([([[0.0, 1.5, 0.5]], [-0.5]), ([[1.0]], [-0.8])]).with_schema(schema)
    x = law.sample(200_000, 1)
    score = np.maximum(x @ [0.0, 1.5, 0.5] - 0.5, 0) > 0.8
    turned = np.maximum(x[:, [1, 0, 2]] @ [0.0, 1.5, 0.5] - 0.5, 0) > 0.8
    flips = rs.change(net, law, "SEX", how="flipped", decision=True, draws=40_000, rng=0).decision
    assert flips.lower - 0.005 <= (score != turned).mean() <= flips.upper + 0.005
    own = rs.change(net, law, "SEX", how="marginal", decision=True, draws=40_000, rng=0).decision
    p = x[:, 1].mean()
    other = np.where(x[:, 1] == 1, 1 - p, p)
    assert own.lower - 0.005 <= ((score != turned) * other).mean() <= own.upper + 0.005
    given = rs.change(net, law, "SEX", how="given", decision=True, draws=40_000, rng=0)
    # P(the other sex | AMOUNT), from the law's own draws in narrow bands of AMOUNT.
    order = np.argsort(x[:, 2])
    men = np.empty(len(x))
    men[order] = np.repeat(x[order, 1].reshape(-1, 500).mean(axis=1), 500)
    want = ((score != turned) * np.where(x[:, 1] == 1, 1 - men, men)).mean()
    assert given.decision.lower - 0.01 <= want <= given.decision.upper + 0.01 and "given the others" in given.how
    assert given.decision.value < own.value - 0.01
    atoms = Copula([stats.poisson(1.0), stats.norm()], [[1.0, 0.5], [0.5, 1.0]])
    plain = rs.Network([([[1.0, 1.0]], [0.0]), ([[1.0]], None)])
    assert rs.change(plain, atoms, [1], draws=500, rng=0).how == "re-drawn given the normal scores of the others"


@pytest.mark.parametrize(
    ("words", "call"),
    {
        "AMOUNT": lambda: rs.fit({"AMOUNT": [1.0, np.nan, 2.0]}),
        "at least two rows": lambda: rs.fit([[1.0, 2.0]]),
        "table must be finite": lambda: rs.fit([[1.0], [np.inf]]),
        "the law has 2": lambda: Copula([stats.norm()] * 2).check(np.zeros((4, 3))),
    }.items(),
)
def test_bad_tables_are_refused_by_name(words, call):
    with pytest.raises(rs.InputError, match=words):
        call()
