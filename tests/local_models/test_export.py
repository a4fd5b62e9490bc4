"""Merged models as Python, SQL and ONNX: every row as the original says; and their table for a committee paper."""

import sqlite3

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import reluscope as rs
from reluscope.errors import InputError


def _table(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "limit": rng.integers(1, 50, n) * 10_000,
            "job": rng.choice(["clerk", "o'brien", "none"], n),
            "late": rng.integers(-2, 5, n),
        }
    )
    eta = 0.8 * X.late + np.where(X.job == "none", np.abs(X.limit / 1e5 - 2), -0.5) - 1.5
    return X, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int).to_numpy()


@pytest.fixture(scope="module")
def merged():
    from sklearn.compose import make_column_transformer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    X, y = _table(1500, 0)
    columns = make_column_transformer(
        (OneHotEncoder(), ["job"]), (StandardScaler(), ["limit", "late"]), sparse_threshold=0
    )
    model = make_pipeline(columns, MLPClassifier((10, 6), max_iter=60, early_stopping=True, random_state=1)).fit(X, y)
    u = rs.unwrap(model, X, y)
    return X, y, u, u.merge(4)


def _new(u, seed: int = 7) -> pd.DataFrame:
    """New rows, some of them in regions without data."""
    X, _ = _table(400, seed)
    X.loc[:40, "limit"] = 900_000
    return X


@pytest.mark.filterwarnings("ignore::reluscope.ReluscopeWarning")
def test_python_gives_the_same_rows(merged):
    _, _, u, m = merged
    X = _new(u)
    space: dict = {}
    exec(compile(m.to_python(), "merged.py", "exec"), space)
    rows = X.to_dict("records")
    assert [space["cluster"](r) for r in rows] == m.assign(X).tolist()
    np.testing.assert_allclose([space["outputs"](r)[0] for r in rows], m.outputs(X)[:, 0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([space["probability"](r) for r in rows], m.predict_proba(X)[:, 1], rtol=1e-9)
    assert (u.find(X) < 0).any()  # the nearest centroid was asked too, or the region next door


@pytest.mark.filterwarnings("ignore::reluscope.ReluscopeWarning")
def test_sql_gives_the_same_rows(merged):
    _, _, u, m = merged
    X = _new(u)
    with sqlite3.connect(":memory:") as base:
        X.assign(id=np.arange(len(X))).to_sql("people", base, index=False)
        found = sorted(base.execute(m.to_sql("people")).fetchall())
    assert [row[0] for row in found] == list(range(len(X)))
    assert [row[1] for row in found] == m.assign(X).tolist()
    np.testing.assert_allclose([row[2] for row in found], m.outputs(X)[:, 0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([row[3] for row in found], m.predict_proba(X)[:, 1], rtol=1e-9)
    assert "CASE cluster" in m.to_sql() and "REAL" not in m.to_sql() and "AS DOUBLE PRECISION)" in m.to_sql()


def test_unknown_levels_have_a_defined_result_in_code(merged):
    *_, m = merged
    X, _ = _table(5, 0)
    X.loc[2, "job"], X.loc[3, "limit"] = "astronaut", None
    with sqlite3.connect(":memory:") as base:
        X.assign(id=range(5)).to_sql("people", base, index=False)
        cursor = base.execute(m.to_sql("people"))
        head, found = [c[0] for c in cursor.description], sorted(cursor.fetchall())
    label = m.classes[1]
    assert head == ["row_key", "cluster", f"logit of {label}", f"probability of {label}"]
    assert found[2] == (2, None, None, None) and found[3] == (3, None, None, None)
    assert all(None not in found[i] for i in (0, 1, 4))
    space: dict = {}
    exec(compile(m.to_python(), "merged.py", "exec"), space)
    with pytest.raises(ValueError, match=r"column 'job' has the unknown level 'astronaut'; its levels are \["):
        space["outputs"](X.loc[2].to_dict())
    with pytest.raises(ValueError, match="column 'limit' has a missing entry"):
        space["outputs"](X.loc[0].to_dict() | {"limit": None})


@pytest.mark.filterwarnings("ignore::reluscope.ReluscopeWarning")
def test_code_takes_unknown_and_missing_levels_as_the_schema_says():
    columns = [rs.Column("a", fill=2.0), rs.Column("job", "category", levels=["x", "y"], unknown=(0.0, 0.0), fill="y")]
    rng = np.random.default_rng(0)
    net = rs.Network([(rng.normal(size=(3, 3)), np.zeros(3)), (rng.normal(size=(1, 3)), [0.0])]).with_schema(
        columns=columns
    )
    X = pd.DataFrame({"a": rng.normal(size=60), "job": rng.choice(["x", "y"], 60)})
    m = rs.unwrap(net, X, rng.integers(0, 2, 60)).merge(2)
    new = pd.DataFrame({"a": [None, 1.0, 0.5], "job": ["x", None, "z"]})
    known = pd.DataFrame({"a": [2.0, 1.0], "job": ["x", "y"]})
    wanted = [*m.outputs(known)[:, 0], m.outputs(np.array([[0.5, 0.0, 0.0]]))[0, 0]]
    with sqlite3.connect(":memory:") as base:
        new.assign(id=range(3)).to_sql("applicants", base, index=False)
        found = sorted(base.execute(m.to_sql()).fetchall())
    np.testing.assert_allclose([row[2] for row in found], wanted, rtol=1e-9)
    space: dict = {}
    exec(compile(m.to_python(), "merged.py", "exec"), space)
    rows = [{"a": None, "job": "x"}, {"a": 1.0, "job": None}, {"a": 0.5, "job": "z"}]
    np.testing.assert_allclose([space["outputs"](row)[0] for row in rows], wanted, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::reluscope.ReluscopeWarning")
def test_onnx_gives_the_same_rows(merged, tmp_path):
    _, _, u, m = merged
    X = _new(u)
    m.to_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    rows = u.network.schema.encode(X, quiet=True)
    output, cluster = session.run(None, {"x": rows})
    assert cluster.tolist() == m.assign(X).tolist()
    np.testing.assert_allclose(output, m.outputs(X), rtol=1e-9, atol=1e-9)


def test_exports_of_several_classes_and_other_units(tmp_path):
    from reluscope.activations import hardtanh

    rng = np.random.default_rng(0)
    net = rs.Network(
        [(rng.normal(size=(5, 2)), rng.normal(size=5), hardtanh()), (rng.normal(size=(3, 5)), np.zeros(3))]
    )
    X = rng.normal(size=(300, 2))
    m = rs.unwrap(net, X, net(X).argmax(axis=1)).merge(3)
    new = 2 * rng.normal(size=(100, 2))
    space: dict = {}
    exec(compile(m.to_python(), "merged.py", "exec"), space)
    names = m.feature_names
    mine = [space["outputs"](dict(zip(names, row, strict=True))) for row in new]
    np.testing.assert_allclose(mine, m.outputs(new), rtol=1e-9, atol=1e-9)
    m.to_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["output"], {"x": new})[0], m.outputs(new), rtol=1e-9, atol=1e-9)
    with sqlite3.connect(":memory:") as base:
        pd.DataFrame(new, columns=list(names)).assign(id=range(len(new))).to_sql("applicants", base, index=False)
        found = np.array(sorted(base.execute(m.to_sql()).fetchall()))
    np.testing.assert_allclose(found[:, 2:5], m.outputs(new), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found[:, 5:], m.predict_proba(new), rtol=1e-9, atol=1e-12)


def test_the_table_agrees_with_scikit_learn(merged):
    X, y, _, m = merged
    T, t = _table(800, 3)
    lines = m.summary(T, t).rows()
    cluster, p = m.assign(X), m.predict_proba(X)[:, 1]
    there, q = m.assign(T), m.predict_proba(T)[:, 1]
    assert len(lines) == len(m) + 1
    for i, line in enumerate(lines[:-1]):
        here, new = cluster == i, there == i
        assert (line["rows"], line["test_rows"]) == (here.sum(), new.sum())
        assert line["rate"] == pytest.approx(y[here].mean())
        assert line["predicted"] == pytest.approx(p[here].mean())
        assert line["auc"] == pytest.approx(roc_auc_score(y[here], p[here]))
        if len(np.unique(t[new])) == 2:
            assert line["test_auc"] == pytest.approx(roc_auc_score(t[new], q[new]))
    assert lines[-1]["auc"] == pytest.approx(roc_auc_score(y, p))
    assert lines[-1]["test_auc"] == pytest.approx(roc_auc_score(t, q))
    assert set(m.summary().to_pandas()) < set(m.summary(T, t).to_pandas())


def test_explanations_add_up_and_shares_sum_to_one(merged):
    X, _, u, m = merged
    for i in (0, 17):
        e = m.explain(i)
        assert e.base[0] + e.parts[0].sum() == pytest.approx(m.outputs(X)[i, 0], rel=1e-12)
        assert e.cluster == m.assign(X)[i]
    assert sum(m.importance().values()) == pytest.approx(1.0)
    assert list(m.importance(0).values()) == sorted(m.importance(0).values(), reverse=True)
    assert set(m.importance()) == {"limit", "job", "late"} and set(m.importance(groups=None)) == set(m.feature_names)
    mine = m.assign(X) == 0
    part = u.network.schema.encode(X)[mine] * m.C[0, 0]
    level = np.flatnonzero([name.startswith("job=") for name in m.feature_names])
    spread = {"job": part[:, level].sum(axis=1).var()}
    spread |= {n: part[:, m.feature_names.index(n)].var() for n in ("limit", "late")}
    assert m.importance(0)["job"] == pytest.approx(spread["job"] / sum(spread.values()))
    told = {row["feature"]: row for row in m.explain(0).rows()}
    assert told["job"]["value"] == X.job.iloc[0] and told["job"]["coefficient"] is None
    assert told["job"]["part"] == pytest.approx(m.explain(0).parts[0, level].sum())
    assert {row["feature"] for row in m.explain(0).rows(groups=None)} == set(m.feature_names)
    assert [row["feature"] for row in m.monotone()] == ["limit", "late"]  # a category has no direction
    assert list(m.monotone().to_pandas()["feature"]) == ["limit", "late"]
    share = {row["feature"]: row for row in m.monotone(groups=None)}
    C = m.C[:, 0]
    for j, name in enumerate(m.feature_names):
        assert share[name]["rises"] == pytest.approx((m.count * (C[:, j] > 0)).sum() / m.count.sum())
    rows = u.network.schema.encode(X)
    mine = m.assign(X) == 1
    p = m.portrait(1, 2)
    j = m.feature_names.index(p.features[0])
    assert p.deviation[0] == pytest.approx((rows[mine, j].mean() - rows[:, j].mean()) / rows[:, j].std())


def test_intervals_of_a_cluster_are_those_of_its_logistic_regression(merged):
    X, y, u, m = merged
    found = m.intervals(0)
    mine = m.assign(X) == 0
    rows = u.network.schema.encode(X)[mine]
    rows[:, found.base[1:]] = 0.0  # the levels of a category are compared with its base
    free = np.flatnonzero(~found.aliased[1:] & (np.ptp(rows, axis=0) > 0) & ~found.separated[1:])
    assert len(free) >= 2
    fit = LogisticRegression(C=np.inf, max_iter=5000, tol=1e-10)
    size = rows.std(axis=0) + (rows.std(axis=0) == 0)
    fit.fit(rows / size, y[mine])
    estimate = found.estimate[1:][free] * size[free]
    np.testing.assert_allclose(estimate, fit.coef_[0, free], rtol=0.01, atol=0.01)


def test_a_gate_that_is_too_large_is_refused(merged, monkeypatch):
    from reluscope.local_models import export

    monkeypatch.setattr(export, "_MOST_NUMBERS", 10)
    with pytest.raises(InputError, match="bits and numbers"):
        merged[3].to_python()
