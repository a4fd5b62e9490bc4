"""Outcome analysis against scikit-learn, scipy and plain loops."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

import reluscope as rs
from reluscope.errors import InputError


def _data(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.integers(0, 4, n).astype(float), "c": rng.normal(size=n)})
    eta = np.abs(X.a) + 0.6 * X.b - 2 + np.where(X.b == 3, 1.5 * X.c, 0.0)
    return X, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int).to_numpy()


@pytest.fixture(scope="module")
def desk():
    X, y = _data(2000, 0)
    T, t = _data(1200, 1)
    model = rs.ReluClassifier((8,), rate=0.01, epochs=40, random_state=0).fit(X, y)
    return X, y, T, t, model, rs.unwrap(model, X, y)


def test_all_numbers_of_a_group_agree_with_scikit_learn(desk):
    X, y, T, t, model, u = desk
    found = u.outcome(T, t, segments=["b", "a"], min_rows=50)
    p, q = model.predict_proba(X)[:, 1], model.predict_proba(T)[:, 1]
    for group, here, there in (
        ("all", np.ones(len(X), bool), np.ones(len(T), bool)),
        ("b = 3", (X.b == 3).to_numpy(), (T.b == 3).to_numpy()),
    ):
        line = found[group]
        for prefix, score, label, which in (("", p, y, here), ("test_", q, t, there)):
            s, bad = score[which], label[which]
            assert line[prefix + "rows"] == which.sum()
            assert line[prefix + "auc"] == pytest.approx(roc_auc_score(bad, s))
            assert line[prefix + "gini"] == pytest.approx(2 * roc_auc_score(bad, s) - 1)
            assert line[prefix + "ks"] == pytest.approx(stats.ks_2samp(s[bad == 1], s[bad == 0]).statistic)
            assert line[prefix + "brier"] == pytest.approx(brier_score_loss(bad, s))
            assert line[prefix + "log_loss"] == pytest.approx(log_loss(bad, s))
            assert line[prefix + "above"] == pytest.approx((s > 0.5).mean())
            logit = np.log(s / (1 - s))[:, None]
            fit = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(logit, bad)
            assert line[prefix + "slope"] == pytest.approx(fit.coef_[0, 0], rel=1e-4)
            assert line[prefix + "intercept"] == pytest.approx(fit.intercept_[0], abs=1e-4)
        assert line["gap"] == pytest.approx(line["auc"] - line["test_auc"])
    fifths = [line for line in found.rows() if " a" in f" {line['group']}" and line["kind"] == "segment"]
    assert sum(line["rows"] for line in found.rows() if line["group"].startswith("b = ")) == len(X)
    assert len(fifths) == 5
    assert {"auc", "test_auc", "slope"} <= set(found.to_pandas())


def test_regions_and_clusters_are_groups(desk):
    X, y, T, t, _, u = desk
    m = u.merge(3)
    found = u.outcome(T, t, clusters=m, regions=3, min_rows=20)
    p = u.outcome()._train.pd
    for i in range(3):
        mine = m.assign(X) == i
        assert found[f"cluster {i}"]["rate"] == pytest.approx(y[mine].mean())
        assert found[f"cluster {i}"]["test_rows"] == (m.assign(T) == i).sum()
    first = u.region == 0
    assert found["region 0"]["auc"] == pytest.approx(roc_auc_score(y[first], p[first]))
    other = rs.unwrap(u.network, X, y).merge(2)
    with pytest.raises(InputError, match="clusters must be merged models of this network"):
        u.outcome(clusters=other)


def test_weights_count_as_copies(desk):
    X, y, *_, model, _ = desk
    copies = np.random.default_rng(0).integers(0, 4, len(X))
    weighted = rs.unwrap(model, X, y, sample_weight=copies.astype(float)).outcome()["all"]
    again = np.repeat(np.arange(len(X)), copies)
    plain = rs.unwrap(model, X.iloc[again], y[again]).outcome()["all"]
    for name in ("rate", "pd", "auc", "ks", "brier", "slope", "intercept"):
        assert weighted[name] == pytest.approx(plain[name], rel=1e-9)


def test_a_planted_weak_segment_is_named_and_confirmed_on_held_out_rows(desk):
    X, y, T, t, model, _ = desk
    rng = np.random.default_rng(5)
    bad, worse = y.copy(), t.copy()
    for frame, label in ((X, bad), (T, worse)):  # where b is 2, the outcome has nothing to do with the score
        here = (frame.b == 2).to_numpy()
        label[here] = rng.random(here.sum()) < 0.5
    found = rs.unwrap(model, X, bad).outcome(T, worse, segments="b", regions=0).weak(2, level=0.95)
    assert found[0]["group"] == "b = 2"
    assert found[0]["p_value"] < 0.01
    loss = rs.unwrap(model, T, worse).outcome()._train
    each = -np.where(worse == 1, np.log(loss.pd), np.log1p(-loss.pd))
    here = (T.b == 2).to_numpy()
    assert found[0]["excess"] == pytest.approx(each[here].mean() - each[~here].mean())
    welch = stats.ttest_ind(each[here], each[~here], equal_var=False, alternative="greater")
    assert found[0]["excess"] / ((found[0]["upper"] - found[0]["lower"]) / (2 * 1.959964)) == pytest.approx(
        welch.statistic, rel=1e-5
    )


def test_the_calibration_curve_counts_rows(desk):
    *_, T, t, model, u = desk
    found = u.outcome(T, t)
    curve = found.calibration(bins=8, test=True, level=0.95)
    q = model.predict_proba(T)[:, 1]
    order = np.argsort(q, kind="stable")
    for bin_, rows in zip(curve, np.array_split(order, 8), strict=True):
        assert bin_["pd"] == pytest.approx(q[rows].mean())
        assert bin_["rate"] == pytest.approx(t[rows].mean())
        exact = stats.binomtest(int(t[rows].sum()), len(rows)).proportion_ci(method="exact")
        assert (bin_["lower"], bin_["upper"]) == pytest.approx((exact.low, exact.high))
    with pytest.raises(InputError, match="test rows"):
        u.outcome().calibration(test=True)


def test_drift_is_zero_for_the_same_rows_and_as_by_hand_for_others(desk):
    X, _, T, _, _, u = desk
    assert u.drift(X).output == 0.0
    assert u.drift(X).regions == 0.0
    moved = T.assign(a=T.a + 0.7)
    found = u.drift(moved, min_rows=30)
    edges = np.quantile(X.a, np.linspace(0, 1, 11)[1:-1])
    p = np.bincount(np.searchsorted(edges, X.a), minlength=10) / len(X)
    q = np.bincount(np.searchsorted(edges, moved.a), minlength=10) / len(moved)
    assert found.features["a"] == pytest.approx(((q - p) * np.log(q / p)).sum())
    assert found.features["a"] > 0.25 > found.features["c"]
    assert next(iter(found.features)) == "a"
    assert sum(s["psi"] for s in found.shares) == pytest.approx(found.regions)
    assert sum(s["now"] for s in found.shares) == pytest.approx(1.0)
    assert found.unseen == pytest.approx((u.find(moved) < 0).mean())
    assert list(found.to_pandas()["what"])[:2] == ["output", "regions"]


def test_without_drift_a_psi_stays_below_its_limit_as_often_as_it_says(desk):
    """300 splits of one population: the mean of the PSI of ten bins, and how often it passes the 95 % point. A rate of
    5 % gives fewer than 4 or more than 29 of 300 with probability below 0.001.
    """
    *_, model, _ = desk
    rng, psi, over = np.random.default_rng(0), [], 0
    for _ in range(300):
        x = rng.normal(size=(900, 3))
        found = rs.unwrap(model, pd.DataFrame(x[:500], columns=list("abc"))).drift(x[500:], level=0.95)
        line = next(row for row in found.rows() if row["what"] == "a")
        psi.append(line["psi"])
        over += line["drift"]
        assert line["no_drift"] == pytest.approx(9 * (1 / 500 + 1 / 400))
        assert line["limit"] == pytest.approx((1 / 500 + 1 / 400) * stats.chi2.ppf(0.95, 9))
    assert np.mean(psi) == pytest.approx(line["no_drift"], rel=0.15) and 4 <= over <= 29


def test_sparse_regions_are_no_drift():
    """Most regions hold one row, and most new rows fall into regions without data: by chance."""
    rng = np.random.default_rng(0)
    net = rs.Network([(rng.normal(size=(40, 6)), rng.normal(size=40)), (rng.normal(size=(1, 40)), [0.0])])
    u = rs.unwrap(net, rng.normal(size=(800, 6)), rng.integers(0, 2, 800))
    assert (u.count == 1).mean() > 0.9 and f"({(u.count == 1).sum()} of a single row)" in repr(u)
    found = u.drift(rng.normal(size=(800, 6)))
    assert found.unseen > 0.8 and found.unseen == pytest.approx(found.unseen_expected, abs=0.06)
    assert np.isnan(found.regions) and not found.rows()[1]["drift"]
    assert "none of the regions (all are too small)" in repr(found) and "without drift" in repr(found)


def test_an_unseen_level_is_drift_and_no_error():
    rng = np.random.default_rng(0)
    columns = [rs.Column("a"), rs.Column("job", "category", levels=["x", "y"])]
    net = rs.Network([(rng.normal(size=(3, 3)), np.zeros(3)), (rng.normal(size=(1, 3)), [0.0])]).with_schema(
        columns=columns
    )
    old = pd.DataFrame({"a": rng.normal(size=200), "job": rng.choice(["x", "y"], 200)})
    new = pd.DataFrame({"a": rng.normal(size=100), "job": np.repeat(["x", "y", "z"], [40, 50, 10])})
    u = rs.unwrap(net, old)
    found = u.drift(new)
    p = np.array([(old.job == "x").mean(), (old.job == "y").mean(), 1e-4])
    q = np.array([0.4, 0.5, 0.1])
    assert found.features["job"] == pytest.approx(((q - p) * np.log(q / p)).sum())
    assert found.unknown == {"job": {"z": 10}} and found.rows_now == 90
    assert "unknown levels of job (rows): 'z' (10)" in repr(found)
    kept = u.drift(new[new.job != "z"])
    assert (found.output, found.features["a"]) == (kept.output, kept.features["a"])
    ignore = net.with_schema(columns=[columns[0], rs.Column("job", "category", levels=["x", "y"], unknown=(0.0, 0.0))])
    with pytest.warns(rs.errors.ReluscopeWarning, match="unknown level 'z'"):
        again = rs.unwrap(ignore, old).drift(new)
    assert again.features["job"] == found.features["job"] and again.rows_now == 100 and again.unknown == found.unknown
    with pytest.raises(InputError, match="no row of X has known levels only"):
        u.drift(new[new.job == "z"])


def test_categories_are_one_feature_and_have_no_direction():
    rng = np.random.default_rng(0)
    net = rs.Network([(rng.normal(size=(4, 4)), np.zeros(4)), (rng.normal(size=(1, 4)), [0.0])])
    net = net.with_schema(columns=[rs.Column("a"), rs.Column("job", "category", levels=["x", "y", "z"])])
    X = pd.DataFrame({"a": rng.normal(size=60), "job": rng.choice(["x", "y", "z"], 60)})
    u = rs.unwrap(net, X, rng.integers(0, 2, 60))
    assert u.importance().feature_names == u.contributions().names == ("a", "job")
    assert u.importance(groups=None).feature_names == u.contributions(groups=None).names == u.feature_names
    e = u.explain(0)
    rows = {row["feature"]: row for row in e.rows()}
    assert set(rows) == {"a", "job"} and rows["job"]["value"] == X.job[0] and rows["job"]["coefficient"] is None
    assert rows["job"]["path"] == pytest.approx(e.path[0, 1:].sum())
    assert rows["job"]["local"] == pytest.approx(e.contribution[0, 1:].sum())
    assert {row["feature"] for row in e.rows(groups=None)} == set(u.feature_names)
    table = repr(e).splitlines()[2]
    assert table.split() == list(e.to_pandas().columns) == ["feature", "value", "coefficient", "path", "local"]
    assert "job=" not in repr(e)
    signs = u.monotonicity()
    assert [row["feature"] for row in signs.rows()] == ["a"] and signs.categories == ("job",)
    assert "categories have no direction: job" in repr(signs)
    assert [row["feature"] for row in u.monotonicity(groups=None).rows()] == list(u.feature_names)
    assert [row["feature"] for row in u.monotonicity({"job=y": "up"}).rows()] == ["a", "job=y"]


def test_tables_become_data_frames_and_names_are_suggested(desk):
    _, _, T, t, _, u = desk
    found = u.outcome(T, t, segments="b")
    assert list(found.weak().to_pandas()["group"]) == [row["group"] for row in found.weak()]
    assert list(found.calibration().to_pandas()["rows"]) == [row["rows"] for row in found.calibration()]
    with pytest.raises(InputError, match=r"segments must be one of a, b, c, got 'B'; did you mean 'b'\?"):
        u.outcome(segments=["B"])
    many = rs.Network([(np.ones((1, 40)), [0.0]), ([[1.0]], [0.0])])
    with pytest.raises(InputError, match=r"x29 and 10 more, got 'X3'; did you mean 'x3'\?"):
        rs.unwrap(many, np.eye(40)).monotonicity({"X3": "up"})


def test_benchmarks_are_those_of_scikit_learn(desk):
    X, y, T, t, model, u = desk
    lines = {line["model"]: line for line in u.benchmarks(T, t).rows()}
    assert lines["network"]["test_auc"] == pytest.approx(roc_auc_score(t, model.predict_proba(T)[:, 1]))
    plain = LogisticRegression(C=np.inf, max_iter=1000).fit(X, y)
    mine = lines["logistic regression"]
    assert mine["test_auc"] == pytest.approx(roc_auc_score(t, plain.predict_proba(T)[:, 1]), abs=2e-4)
    assert mine["gap"] == pytest.approx(mine["auc"] - mine["test_auc"])
    assert lines["boosted trees"]["auc"] > mine["auc"]  # |a| is not linear


def test_noise_changes_as_many_decisions_as_the_normal_law_says():
    net = rs.Network([([[1.0]], [10.0]), ([[1.0]], [-10.0])])  # decides by the sign of x
    x = np.array([[-1.0], [0.02], [0.1], [1.0]])
    u = rs.unwrap(net, x, [0, 1, 1, 1])
    sd = 0.1 * x.std()
    found = u.noise(percent=10.0, draws=4000, rng=0)
    truth = stats.norm.cdf(-np.abs(x[:, 0]) / sd)
    assert ((found.lower <= truth) & (truth <= found.upper)).all()
    assert found.average.value == pytest.approx(truth.mean(), abs=0.01)
    assert (
        u.noise(percent=10.0, draws=50, rng=3).by_row.tolist() == u.noise(percent=10.0, draws=50, rng=3).by_row.tolist()
    )


def test_signs_by_feature_are_those_of_the_gradients_at_the_rows(desk):
    X, *_, u = desk
    J = u.network.jacobian(X.to_numpy())[:, 0]
    lines = {line["feature"]: line for line in u.monotonicity({"b": "up"}).rows()}
    for j, name in enumerate(X.columns):
        assert lines[name]["rises"] == pytest.approx((J[:, j] > 0).mean())
        assert lines[name]["falls"] == pytest.approx((J[:, j] < 0).mean())
    assert lines["b"]["wrong"] == pytest.approx((J[:, 1] < 0).mean())
    assert lines["a"]["wrong"] is None
    with pytest.raises(InputError, match="expected"):
        u.monotonicity({"b": "sideways"})


def test_signs_under_a_law_are_those_of_the_exact_answer():
    net = rs.Network([([[1.0, 1.0], [-1.0, 0.5]], [0.2, 0.1]), ([[1.0, 1.0]], None)])
    law = rs.Gaussian([0.3, -0.2], [[1.0, 0.4], [0.4, 1.0]])
    u = rs.unwrap(net, law.sample(50, 0))
    lines = u.monotonicity({0: "up"}, law=law, draws=40_000, level=0.999999, rng=1).rows()
    for i, line in enumerate(lines):
        for side, sign in (("rises", ">"), ("falls", "<")):
            exact = rs.probability(net, law, f"J[0,{i}] {sign} 0", guarantee="exact").value
            assert line[f"{side}_mass_lower"] <= exact <= line[f"{side}_mass_upper"]
    assert lines[0]["wrong_mass"] == lines[0]["falls_mass"] and lines[1]["wrong_mass"] is None
    with pytest.raises(rs.InputError, match="law"):
        u.monotonicity(law=rs.Gaussian([0.0]))


def test_only_two_classes_have_an_outcome(desk):
    X, *_ = desk
    net = rs.Network([(np.ones((2, 3)), np.zeros(2)), (np.ones((1, 2)), [0.0])])
    with pytest.raises(InputError, match="two classes"):
        rs.unwrap(net, X, X.a).outcome()


def test_drift_counts_rows_by_their_weights():
    """A row of weight 2 is two rows, on either side; one of weight 0 is none."""
    rng = np.random.default_rng(5)
    net = rs.Network([(rng.normal(size=(6, 3)), rng.normal(size=6)), (rng.normal(size=(1, 6)), np.zeros(1))])
    old, new = rng.normal(size=(400, 3)), rng.normal(0.3, 1.0, size=(300, 3))
    w, v = rng.integers(1, 3, 400), rng.integers(0, 3, 300)
    plain = rs.unwrap(net, old)
    weighted = rs.unwrap(net, old, sample_weight=w.astype(float))
    assert weighted.drift(new).output != plain.drift(new).output
    by_weight = weighted.drift(new, sample_weight=v.astype(float), min_rows=20)
    assert by_weight.rows_now == 300
    assert by_weight.worth_now == pytest.approx(v.sum() ** 2 / (v**2).sum())
    region = weighted.region
    shares = {line["group"]: line["then"] for line in by_weight.shares}
    for group, share in shares.items():
        if group.startswith("region "):
            assert share == pytest.approx(w[region == int(group.split()[1])].sum() / w.sum())
    ones = plain.drift(new, sample_weight=np.full(300, 2.0))
    assert ones.output == pytest.approx(plain.drift(new).output)
    assert [line["limit"] for line in ones.rows()] == pytest.approx([line["limit"] for line in plain.drift(new).rows()])
    with pytest.raises(rs.InputError, match="sample_weight must be 300 numbers"):
        plain.drift(new, sample_weight=np.ones(3))
