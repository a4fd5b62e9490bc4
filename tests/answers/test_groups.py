"""Change and fairness by the columns of a table, against direct counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

import reluscope as rs
from reluscope.errors import InputError

RNG = np.random.default_rng(11)
N = 600
TABLE = {
    "SEX": RNG.choice(["f", "m"], N, p=[0.6, 0.4]),
    "school": RNG.choice([0, 1, 2], N, p=[0.2, 0.5, 0.3]),
    "income": RNG.normal(size=N).round(1),
    "AGE": RNG.normal(size=N),
}
SCHEMA = rs.Schema(
    [
        rs.Column("SEX", "category", levels=["f", "m"]),
        rs.Column("school", "category", levels=[0, 1, 2], codes=[[0, 0], [1, 0], [0, 1]]),
        "income",
        "AGE",
    ],
    [rs.Output("PD", link="sigmoid")],
    classes=["pays", "defaults"],
    cutoff=0.4,
    groups={"who": ["SEX", "school"]},
)
_W = RNG.normal(size=(8, 6))
X = SCHEMA.encode(TABLE)
_FIRST, _LAST = (_W, RNG.normal(size=8)), RNG.normal(size=(1, 8))
_MIDDLE = np.median(rs.Network([_FIRST, (_LAST, None)])(X))
NET = rs.Network([_FIRST, (_LAST, [-_MIDDLE])], schema=SCHEMA)


def decides(table):
    return NET.schema.values(NET(table))[:, 0] > 0.4


def flips(name, levels):
    """Rows whose decision some other level changes, and for each level the share of rows that it changes."""
    base = decides(TABLE)
    moved = np.stack([decides(TABLE | {name: [v] * N}) != base for v in levels])
    return moved.any(axis=0).mean(), moved.mean(axis=1)


@pytest.mark.parametrize(("name", "levels"), [("SEX", ["f", "m"]), ("school", [0, 1, 2])])
@pytest.mark.parametrize("rows", [TABLE, X, rs.Particles(X)], ids=["table", "array", "particles"])
def test_flips_equal_a_direct_count(name, levels, rows):
    want, each = flips(name, levels)
    found = rs.change(NET, rows, name)
    assert 0 < want < 1 and found.decision.value == pytest.approx(want, abs=1e-12)
    assert found.decision.guarantee == "exact" and found.rows == N
    assert [found.to_level[v].value for v in levels] == pytest.approx(each.tolist(), abs=1e-12)
    assert f"of 600 rows change their decision when {name} is flipped to every other level" in repr(found)
    assert found.linear_model.value <= found.pattern.value


@pytest.mark.parametrize("name", ["SEX", "school", "income"])
def test_a_redraw_from_the_marginal_equals_a_direct_count(name):
    base, values = decides(TABLE), TABLE[name]
    levels, counts = np.unique(values, return_counts=True)
    want = sum((decides(TABLE | {name: [v] * N}) != base).mean() * c / N for v, c in zip(levels, counts, strict=True))
    found = rs.change(NET, TABLE, name, how="marginal")
    assert found.decision.value == pytest.approx(want, abs=1e-12) and found.decision.guarantee == "exact"


def test_groups_and_pairs_of_columns():
    base = decides(TABLE)
    moved = np.zeros(N, dtype=bool)
    for sex in ("f", "m"):
        for school in (0, 1, 2):
            moved |= decides(TABLE | {"SEX": [sex] * N, "school": [school] * N}) != base
    for what in ("who", ["SEX", "school"], ["school", "SEX"]):
        found = rs.change(NET, TABLE, what)
        assert found.decision.value == pytest.approx(moved.mean(), abs=1e-12)
        pairs = {(s, k) for s in "fm" for k in (0, 1, 2)}
        assert set(found.to_level) == ({(k, s) for s, k in pairs} if what == ["school", "SEX"] else pairs)


def test_rows_without_a_partner_are_no_exact_zero():
    with pytest.raises(InputError, match=r"no two of the 600 rows agree.*SEX given the others.*how='marginal'"):
        rs.change(NET, TABLE, "SEX", how="given")
    with pytest.raises(InputError, match=r"no two of the 600 rows agree.*input 4 given"):
        rs.change(NET, rs.Particles(X), [4])
    some = rs.Particles(np.concatenate([X[:50], X[:1]]))
    found = rs.change(NET, some, [0, 1], decision=True)
    assert found.decision.note == "only 2 of 51 rows agree with another in all other inputs"


def test_a_law_of_categories_and_numbers_agrees_with_its_rows():
    """The rows as a mixture of narrow Gaussians: the categories stay codes, so that levels can be flipped."""
    spread = np.array([0, 0, 0, 0, 1e-9, 1e-9])
    law = rs.GaussianMixture(np.full(N, 1 / N), [rs.Gaussian(x, spread**2) for x in X])
    for how in ("flipped", "marginal"):
        want = rs.change(NET, TABLE, "school", how=how).decision.value
        found = rs.change(NET, law, "school", how=how, draws=20_000, level=1 - 1e-9, rng=1)
        assert found.decision.lower <= want <= found.decision.upper and found.rows is None
        assert found.seed == 1
    with pytest.raises(InputError, match=r"have no level of school.*a Gaussian over one-hot inputs does not"):
        rs.change(NET, rs.Gaussian.fit(X), "school", how="flipped", draws=10)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: rs.change(NET, TABLE, "sex"), "there is no column 'sex'; the columns are 'SEX'"),
        (
            lambda: rs.change(NET, TABLE, "AGE", how="flipped"),
            r"'AGE' has no levels: it is no category of the schema; use how='marginal' or 'given'",
        ),
        (lambda: rs.change(NET, TABLE, "SEX", how="swapped"), "how must be one of"),
        (lambda: rs.change(NET, TABLE, ["SEX", 3]), "all names or all indices"),
        (lambda: rs.change(NET, TABLE, "SEX", how="flipped", noise=1.0), "leave it out with noise"),
        (lambda: rs.change(NET, TABLE | {"SEX": ["x"] * N}, "SEX"), "column 'SEX' has the level 'x'"),
        (lambda: rs.change(NET, TABLE | {"AGE": [math.nan] * N}, "SEX"), "column 'AGE'.*nan in row 0"),
        (lambda: rs.change(rs.Network(NET.layers), X, "SEX"), "features names 'SEX', but net has no schema"),
        (
            lambda: rs.fairness(NET, TABLE, "income"),
            r"'income' has no levels: it is no category of the schema; groups are the levels of a category$",
        ),
        (lambda: rs.fairness(NET, TABLE, "SEX", y=[0] * 3), "y must have one class for each of the 600 rows"),
        (lambda: rs.fairness(NET, TABLE, "SEX", y=["maybe"] * N), "y must hold the classes 'pays', 'defaults'"),
        (lambda: rs.fairness(NET, TABLE, "SEX", selected="maybe"), "selected must be one of the classes"),
        (lambda: rs.fairness(NET, TABLE, "SEX", reference="x"), "reference must be a level of SEX"),
        (lambda: rs.fairness(rs.Network(NET.layers), X, "SEX"), "net has no schema"),
    ],
)
def test_bad_questions(call, match):
    with pytest.raises(InputError, match=match):
        call()


# -- fairness --------------------------------------------------------------------------------------------------------


def test_rates_by_group_equal_direct_counts():
    score = NET(TABLE)[:, 0]
    y = np.where(score + RNG.normal(size=N) * 2 > -0.5, "defaults", "pays")
    found = rs.fairness(NET, TABLE, "SEX", y=y, level=0.95)
    taken = decides(TABLE)
    assert found.selected == "defaults" and found.reference == "f" and [g.level for g in found.groups] == ["f", "m"]
    rate = {}
    for g in found.groups:
        mine = TABLE["SEX"] == g.level
        rate[g.level] = taken[mine].mean()
        assert g.rows == mine.sum() and g.selection_rate.value == pytest.approx(rate[g.level])
        good, bad = mine & (y == "defaults"), mine & (y == "pays")
        assert g.false_positive_rate.value == pytest.approx(taken[bad].mean())
        assert g.false_negative_rate.value == pytest.approx((~taken[good]).mean())
        auc = mannwhitneyu(score[good], score[bad]).statistic / (good.sum() * bad.sum())
        assert g.auc.value == pytest.approx(auc) and g.auc.lower < auc < g.auc.upper
    m = found["m"]
    assert m.impact_ratio.value == pytest.approx(rate["m"] / rate["f"])
    assert m.impact_ratio.lower < m.impact_ratio.value < m.impact_ratio.upper
    one, two = score[TABLE["SEX"] == "m"], score[TABLE["SEX"] == "f"]
    pooled = math.sqrt(((len(one) - 1) * one.var(ddof=1) + (len(two) - 1) * two.var(ddof=1)) / (N - 2))
    assert m.mean_difference.value == pytest.approx((one.mean() - two.mean()) / pooled)
    other = rs.fairness(NET, TABLE, "SEX", selected="pays", reference="m")
    assert other["f"].impact_ratio.value == pytest.approx((1 - rate["f"]) / (1 - rate["m"]))
    assert other["f"].auc is None and "AUC" not in repr(other) and "AUC" in repr(found)
    assert found.to_dict()["groups"][0]["rows"] == found.groups[0].rows


def test_intervals_by_group_hold_as_often_as_they_say():
    """400 samples of 80 rows of a known population: a 90 % interval may miss in at most 62 of 400 (1 in 10^4)."""
    truth = rs.fairness(NET, X, "SEX", level=0.9)["m"]
    rng = np.random.default_rng(0)
    missed = dict.fromkeys(("selection_rate", "impact_ratio", "mean_difference"), 0)
    for _ in range(400):
        found = rs.fairness(NET, X[rng.integers(0, N, 80)], "SEX", level=0.9, reference="f")["m"]
        for name in missed:
            answer = getattr(found, name)
            missed[name] += not answer.lower <= getattr(truth, name).value <= answer.upper
    assert max(missed.values()) <= 62, missed


def test_fairness_under_a_law():
    spread = np.array([0, 0, 0, 0, 1e-9, 1e-9])
    law = rs.GaussianMixture(np.full(N, 1 / N), [rs.Gaussian(x, spread**2) for x in X])
    want = rs.fairness(NET, TABLE, "SEX", reference="f")
    found = rs.fairness(NET, law, "SEX", reference="f", draws=20_000, level=1 - 1e-9, rng=2)
    assert not found.of_data and found.seed == 2
    for name in ("selection_rate", "impact_ratio", "mean_difference"):
        answer = getattr(found["m"], name)
        assert answer.lower <= getattr(want["m"], name).value <= answer.upper
    with pytest.raises(InputError, match="y belongs to rows of data"):
        rs.fairness(NET, law, "SEX", y=[1])
