"""What a table or a law can have wrong with it: every error names the column, and says what to do."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

import reluscope as rs


class Falling:
    """A quantile function of the upper tail in the place of one."""

    def ppf(self, q):
        return -np.asarray(q)

    def cdf(self, x):
        return np.clip(-np.asarray(x), 0, 1)


class Nowhere:
    def ppf(self, q):
        return np.full(np.shape(q), np.nan)


@pytest.mark.parametrize(
    ("marginal", "said"),
    [
        (object(), r"\(range\) has no quantile function.*frozen distribution"),
        (stats.multivariate_normal([0, 0]), r"\(range\) has no quantile function.*frozen distribution"),
        (stats.gaussian_kde(np.arange(9.0)), r"\(range\) has no quantile function.*a sample of the column"),
        ("normal", r"\(range\) has no quantile function"),
        (Nowhere(), r"\(range\): its quantile function gives nan.*parameters"),
        (Falling(), r"\(range\): its quantile function falls, from .* upper tail"),
        (np.array([1.0, np.nan, 2.0]), r"\(range\) must be finite"),
    ],
)
def test_marginals_that_are_none(marginal, said):
    with pytest.raises(rs.InputError, match=said):
        rs.Copula({"range": marginal, "speed": stats.norm()})


@pytest.mark.parametrize(
    ("correlation", "said"),
    [
        ([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]], "indefinite.*look at b, c, a.*shrink"),
        ([[1, 0.5, 0], [0.2, 1, 0], [0, 0, 1]], "symmetric.*a and b"),
        ([[1, 1.5, 0], [1.5, 1, 0], [0, 0, 1]], "got 1.5 for a and b"),
        ([[2, 0, 0], [0, 1, 0], [0, 0, 1]], "1 on the diagonal.*divide"),
    ],
)
def test_correlations_that_are_none(correlation, said):
    with pytest.raises(rs.InputError, match=said):
        rs.Copula({name: stats.norm() for name in "abc"}, correlation)


SCHEMA = rs.Schema([rs.Column("SEX", "category", levels=["m", "f", "d"]), rs.Column("AGE", support=(0, np.inf))])
TABLE = {"SEX": ["m", "f", "m", "f"], "AGE": [20.0, 30.0, 41.0, 52.0]}


def test_levels_that_never_occur():
    with pytest.raises(rs.InputError, match=r"'c' never occurs.*smoothing"):
        rs.Categorical.fit(["a", "b", "a"], levels=["a", "b", "c"])
    with pytest.raises(rs.InputError, match=r"'SEX' has the level 'q'.*drop or recode"):
        rs.fit(TABLE | {"SEX": ["m", "q", "m", "f"]}, SCHEMA)
    law = rs.fit(TABLE, SCHEMA)  # one level of the model has no rows here: it has probability 0
    with pytest.raises(rs.InputError, match=r"never takes the values {'SEX': 'd'}.*choose values that occur"):
        law.given({"SEX": "d"})
    with pytest.raises(rs.InputError, match=r"never takes.*SEX=d.*choose values that occur"):
        law.where("SEX == d", SCHEMA)
    with pytest.raises(rs.InputError, match=r"one of its levels"):
        law.given({"SEX": "x"})


@pytest.mark.parametrize("bad", [np.nan, np.inf, None])
def test_entries_that_are_missing(bad):
    ages = TABLE | {"AGE": [20.0, bad, 41.0, 52.0]}
    law = rs.fit(TABLE, SCHEMA)
    net = rs.Network([(np.ones((2, 4)), None), (np.ones((1, 2)), None)], schema=rs.Schema(SCHEMA.columns, ["PD"]))
    for call in (
        lambda: rs.fit(ages, SCHEMA),
        lambda: law.check(ages, SCHEMA),
        lambda: rs.change(net, ages, "SEX"),
        lambda: rs.fairness(net, ages, "SEX"),
        lambda: rs.unwrap(net, ages),
        lambda: net(ages),
    ):
        with pytest.raises(rs.InputError, match=r"column 'AGE'.*row 1.*drop those rows, or fill"):
            call()
    if bad is not np.inf:
        with pytest.raises(rs.InputError, match=r"column 'SEX'.*row 2.*drop those rows"):
            rs.fit(TABLE | {"SEX": ["m", "f", None, "f"]}, SCHEMA)
        with pytest.raises(rs.InputError, match=r"row 0, column 1.*drop or fill"):
            rs.fit([[1.0, np.nan], [2.0, 3.0]])


def test_values_that_cannot_be():
    with pytest.raises(rs.InputError, match=r"'AGE' has the value -1.*correct the table"):
        rs.fit(TABLE | {"AGE": [20.0, -1.0, 41.0, 52.0]}, SCHEMA)


def test_schemas_that_do_not_fit():
    net = rs.Network([(np.ones((2, 4)), None), (np.ones((1, 2)), None)])
    with pytest.raises(rs.InputError, match=r"make 1 inputs, but the network takes 4.*in order"):
        net.with_schema(rs.Schema(["a"]))
    with pytest.raises(rs.InputError, match=r"2 outputs .*but the network has 1"):
        net.with_schema(rs.Schema(SCHEMA.columns, ["p", "q"]))
    with pytest.raises(rs.InputError, match=r"missing: 'AGE'"):
        rs.fit({"SEX": ["m", "f"]}, SCHEMA)
    with pytest.raises(rs.InputError, match=r"not known: 'ZIP'.*drop 'ZIP'"):
        rs.fit(TABLE | {"ZIP": [1, 2, 3, 4]}, SCHEMA)


def test_a_law_in_another_order_is_refused_and_can_be_put_right():
    rng = np.random.default_rng(0)
    net = rs.Network(
        [(rng.normal(size=(5, 3)), None), (rng.normal(size=(1, 5)), None)], schema=rs.Schema(["a", "b", "c"])
    )
    right = rs.Copula({"a": stats.norm(), "b": stats.expon(), "c": stats.uniform()}, accuracy=0.01)
    turned = rs.Copula({"c": stats.uniform(), "a": stats.norm(), "b": stats.expon()}, accuracy=0.01)
    with pytest.raises(rs.InputError, match=r"another order.*law.marginal"):
        rs.probability(net, turned, "y[0] > 0")
    with pytest.raises(rs.InputError, match=r"another order"):
        rs.outputs(net, turned)
    with pytest.raises(rs.InputError, match=r"'z' not known"):
        rs.probability(net, rs.Copula({"a": stats.norm(), "b": stats.norm(), "z": stats.norm()}), "y[0] > 0")
    one, two = (
        rs.probability(net, law, "y[0] > 0.1", guarantee="exact").value
        for law in (right, turned.marginal(list(net.schema.inputs)))
    )
    assert one == pytest.approx(two, abs=1e-9)


# -- laws as plain data ----------------------------------------------------------------------------------------------

LAWS = [
    rs.Gaussian([0.0, 1.0], [[1.0, 0.3], [0.3, 1.0]]),
    rs.GaussianMixture([0.5, 0.5], [rs.Gaussian([0.0, 0.0]), rs.Gaussian([1.0, 1.0], 2.0)]),
    rs.Uniform([0.0, 0.0], [1.0, 2.0]),
    rs.Particles([[0.0, 1.0], [1.0, 2.0]]),
    rs.Gaussian([0.0, 0.0]).truncated([-1, -1], [1, 1]),
    rs.Copula([stats.lognorm(0.5), stats.uniform()], accuracy=0.02),
    rs.Categorical(["a", "b"], [0.4, 0.6]),
    rs.Mixture([0.3, 0.7], [rs.Particles([[0.0, 1.0]]), rs.Uniform([0.0, 0.0], [1.0, 1.0])]),
    rs.kde(np.arange(12.0).reshape(6, 2) % 5),
    rs.Gaussian.ar1(4, 0.7, 0.5),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_every_law_is_written_with_its_version_and_read_back(law):
    plain = json.loads(json.dumps(law.to_dict()))
    assert plain["version"] == 1
    again = rs.inputs.law_from_dict(plain)
    assert again.to_dict() == law.to_dict() and (np.asarray(again.mean) == np.asarray(law.mean)).all()
    old = {k: v for k, v in plain.items() if k != "version"}  # as it may be written by hand
    assert rs.inputs.law_from_dict(old).to_dict() == law.to_dict()
    with pytest.raises(rs.InputError, match=r"version"):
        rs.inputs.law_from_dict(plain | {"version": 2})


def test_fairness_and_noise_as_tables():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    schema = rs.Schema([rs.Column("SEX", "category", levels=["f", "m"]), "AGE"], [rs.Output("PD", link="sigmoid")])
    net = rs.Network([(rng.normal(size=(6, 3)), None), (rng.normal(size=(1, 6)), None)], schema=schema)
    table = {"SEX": rng.choice(["f", "m"], 200), "AGE": rng.normal(size=200)}
    y = (rng.random(200) < 0.5).astype(int)
    found = rs.fairness(net, table, "SEX", y=y)
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame["level"].tolist() == ["f", "m"]
    assert frame["selection_rate"][0] == found["f"].selection_rate.value
    assert frame["auc_lower"][1] == found["m"].auc.lower
    noise = rs.unwrap(net, table, y).noise(percent=20, draws=20, rng=0)
    assert noise.to_pandas()["changed"].tolist() == noise.by_row.tolist()
