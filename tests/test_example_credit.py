"""`examples/credit.py` from table to report, and its numbers recomputed by numpy, statsmodels and scikit-learn."""

import importlib.util
import os
import sqlite3
from pathlib import Path

import matplotlib
import numpy as np
import onnxruntime
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from sklearn.metrics import brier_score_loss, roc_auc_score

matplotlib.use("Agg")

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "credit.py"

pytestmark = [
    pytest.mark.filterwarnings("ignore::reluscope.ReluscopeWarning"),
    pytest.mark.skipif(not SCRIPT.exists(), reason="the examples are not part of this distribution"),
]


@pytest.fixture(scope="module")
def credit():
    spec = importlib.util.spec_from_file_location("credit", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def desk(credit, tmp_path_factory):
    out = tmp_path_factory.mktemp("credit")
    return credit.main(credit.made_sample(1500), out, hidden=(12, 6), quick=True), out


def _checks(found, out):
    """Fifteen numbers of the report, each by another way."""
    X, T, y, t = found["split"]
    p, q = (found["model"].predict_proba(rows)[:, 1] for rows in (X, T))
    line = found["outcome"]["all"]
    # 1-3: scikit-learn
    assert line["auc"] == pytest.approx(roc_auc_score(y, p))
    assert line["test_auc"] == pytest.approx(roc_auc_score(t, q))
    assert line["test_brier"] == pytest.approx(brier_score_loss(t, q))
    # 4: scipy
    assert line["test_ks"] == pytest.approx(stats.ks_2samp(q[t == 1], q[t == 0]).statistic)
    # 5-6: the calibration line by statsmodels
    logit = np.log(q) - np.log1p(-q)
    fit = sm.Logit(t.to_numpy(), sm.add_constant(logit)).fit(disp=0)
    assert line["test_slope"] == pytest.approx(fit.params[1], rel=1e-5)
    assert line["test_intercept"] == pytest.approx(fit.params[0], rel=1e-5, abs=1e-6)
    # 7: the cut-off is on the PD
    assert line["test_above"] == pytest.approx((q > 0.3).mean())
    # 8: a segment
    assert found["outcome"]["SEX = 2"]["test_rate"] == pytest.approx(t[T.SEX == 2].mean())
    # 9-10: the logistic benchmark, by statsmodels on standardised inputs without the redundant levels
    codes = found["net"].schema.encode(X, quiet=True), found["net"].schema.encode(T, quiet=True)
    keep = [j for j, name in enumerate(found["net"].schema.inputs) if not name.endswith("=1")]
    centre, size = codes[0][:, keep].mean(axis=0), codes[0][:, keep].std(axis=0)
    design = [sm.add_constant((c[:, keep] - centre) / size) for c in codes]
    plain = sm.GLM(y.to_numpy(), design[0], family=sm.families.Binomial()).fit()
    bench = {row["model"]: row for row in found["compared"].rows()}["logistic regression"]
    assert bench["auc"] == pytest.approx(roc_auc_score(y, plain.predict(design[0])), abs=5e-4)
    assert bench["test_auc"] == pytest.approx(roc_auc_score(t, plain.predict(design[1])), abs=5e-4)
    # 11: PSI of a column by hand
    limit = T["LIMIT_BAL"]
    moved = T[limit > limit.median()]
    edges = np.unique(np.quantile(X.AGE, np.linspace(0, 1, 11)[1:-1]))
    a, b = (np.bincount(np.searchsorted(edges, v.AGE), minlength=len(edges) + 1) / len(v) for v in (X, moved))
    a, b = np.maximum(a, 1e-4), np.maximum(b, 1e-4)
    assert found["drift"].features["AGE"] == pytest.approx(((b - a) * np.log(b / a)).sum())
    # 12: the merged models' table
    merged = found["merged"]
    total = found["committee"].rows()[-1]
    assert total["test_auc"] == pytest.approx(roc_auc_score(t, merged.predict_proba(T)[:, 1]))
    # 13: signs, from gradients at the rows
    J = found["net"].jacobian(codes[0])[:, 0]
    signs = {row["feature"]: row for row in found["signs"].rows()}
    j = found["net"].schema.inputs.index("PAY_0")
    assert signs["PAY_0"]["wrong"] == pytest.approx((J[:, j] < 0).mean())
    # 14: reasons add up to the logit
    c = found["reasons"].contributions
    assert np.abs(c.base + c.parts.sum(axis=2) - c.output).max() <= 1e-9
    assert np.abs(c.output[:, 0] - (np.log(p) - np.log1p(-p))).max() < 1e-6
    # 15: each counterfactual flips the pipeline's own decision
    assert found["counterfactuals"].proved >= 0.8 * len(found["refused"])
    for i, (nearest, *_) in enumerate(found["counterfactuals"].by_row):
        if nearest.x is None:
            continue
        row = found["refused"].iloc[[i]].copy()
        for name, (old, new) in nearest.changes.items():
            assert row[name].iloc[0] == old
            row[name] = int(new)
        assert found["model"].predict_proba(row)[0, 1] <= 0.3 < nearest.before
    # 16: selection rates by sex
    assert found["fairness"]["1"].selection_rate.value == pytest.approx((q[T.SEX == 1] <= 0.3).mean())
    # 17-18: the exported models, by SQLite and onnxruntime
    some = T[:50]
    with sqlite3.connect(":memory:") as base:
        some.assign(ID=range(len(some))).to_sql("applicants", base, index=False)
        rows = sorted(base.execute((out / "merged.sql").read_text()).fetchall())
    np.testing.assert_allclose([r[2] for r in rows], merged.decision_function(some), rtol=1e-9, atol=1e-9)
    session = onnxruntime.InferenceSession(out / "merged.onnx", providers=["CPUExecutionProvider"])
    there = session.run(["output"], {"x": codes[1][:50]})[0][:, 0]
    np.testing.assert_allclose(there, merged.decision_function(some), rtol=1e-9, atol=1e-9)


def test_the_numbers_on_a_made_sample(desk):
    found, out = desk
    _checks(found, out)
    for name in ("committee.csv", "outcome.csv", "counterfactuals.csv", "importance.png", "explanation.png"):
        assert (out / name).stat().st_size > 100


@pytest.mark.slow
@pytest.mark.skipif("RELUSCOPE_DATA" not in os.environ, reason="needs the data folder")
def test_the_numbers_on_the_taiwan_data(credit, tmp_path):
    file = Path(os.environ["RELUSCOPE_DATA"]) / "taiwan_credit" / "default_of_credit_card_clients.csv.gz"
    found = credit.main(pd.read_csv(file), tmp_path)
    _checks(found, tmp_path)
    assert found["reasons"].contributions.error <= 1e-9
    assert (tmp_path / "report").exists()
