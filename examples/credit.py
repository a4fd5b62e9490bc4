"""From a CSV file to a signed-off report: the validation of a credit scoring network.

    python examples/credit.py default_of_credit_card_clients.csv.gz out

With the Taiwan credit data (UCI 350), or without arguments on a sample made here. Each cell prints what a validator
would write down; `main` returns the numbers.
"""

# %% The data, and a pipeline with one-hot categories
from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import reluscope as rs

TARGET = "default payment next month"
CATEGORIES = ["SEX", "EDUCATION", "MARRIAGE"]
LATE = ["PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"]


def made_sample(n: int, seed: int = 0) -> pd.DataFrame:
    """A small table with the columns of the real one, for a first try."""
    rng = np.random.default_rng(seed)
    status = np.clip(rng.normal(0, 1, (n, 1)) + rng.normal(0, 0.7, (n, 6)), -2, 6).round().astype(int)
    limit = (rng.lognormal(11.7, 0.8, n) // 10_000 + 1).astype(int) * 10_000
    frame = pd.DataFrame(
        {
            "LIMIT_BAL": limit,
            "SEX": rng.integers(1, 3, n),
            "EDUCATION": rng.integers(1, 5, n),
            "MARRIAGE": rng.integers(1, 4, n),
            "AGE": rng.integers(21, 70, n),
        }
        | {name: status[:, i] for i, name in enumerate(LATE)}
        | {f"BILL_AMT{i}": (limit * rng.uniform(0, 0.9, n)).astype(int) for i in range(1, 7)}
        | {f"PAY_AMT{i}": (limit * rng.uniform(0, 0.1, n)).astype(int) for i in range(1, 7)}
    )
    eta = -1.8 + 0.9 * np.maximum(frame.PAY_0, 0) + 0.3 * np.maximum(frame.PAY_2, 0) - 0.8 * np.log(limit / 150_000)
    frame[TARGET] = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
    return frame


def train(X: pd.DataFrame, y: pd.Series, hidden: tuple[int, ...]) -> Any:
    """One-hot categories, standardised numbers, a ReLU network."""
    numbers = [c for c in X if c not in CATEGORIES]
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), CATEGORIES), (StandardScaler(), numbers), sparse_threshold=0
    )
    network = MLPClassifier(
        hidden,
        alpha=0.01,
        learning_rate_init=0.003,
        early_stopping=True,
        n_iter_no_change=8,
        max_iter=60,
        random_state=0,
    )
    return make_pipeline(columns, network).fit(X, y)


# %% The whole way
def main(data: pd.DataFrame, out: Path, *, hidden: tuple[int, ...] = (64, 32), quick: bool = False) -> dict[str, Any]:
    """Every step of the validation; returns its numbers and the objects they came from."""
    began = time.process_time()
    out.mkdir(parents=True, exist_ok=True)
    data = data.drop(columns="ID", errors="ignore")
    y, X = data[TARGET], data.drop(columns=TARGET)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    model = train(X, y, hidden)

    # %% The network with its schema: names, categories, whole numbers, what was seen; the bank's cut-off on PD
    net = rs.load(model)
    net = net.with_schema(net.schema.seen_in(X).with_names(outputs="PD", cutoff=0.3))
    u = rs.unwrap(net, X, y)
    print(u, u.certificate, sep="\n")

    # %% A few models in its place
    merged = u.merge(5, adjacency="nearest")
    committee = merged.summary(X_test, y_test)
    print(committee)
    (out / "merged.sql").write_text(merged.to_sql("applicants", key="ID"))
    merged.to_onnx(out / "merged.onnx")
    committee.to_pandas().to_csv(out / "committee.csv", index=False)

    # %% Outcome analysis on held-out rows
    outcome = u.outcome(X_test, y_test, segments=["SEX", "EDUCATION", "AGE"], clusters=merged, regions=10)
    weak = outcome.weak(3)
    print(outcome, pd.DataFrame(weak), sep="\n")
    compared = u.benchmarks(X_test, y_test)
    noise = u.noise(X_test[:500], percent=5, draws=50, rng=0)
    signs = u.monotonicity({"LIMIT_BAL": "down", "PAY_0": "up"})
    print(compared, noise, signs, sep="\n")

    # %% Drift: the large limits against all
    limit = X_test["LIMIT_BAL"]
    drift = u.drift(X_test[limit > limit.median()])
    print(drift)

    # %% Reasons for every row, path contributions from the median applicant
    start = time.process_time()
    reasons = u.reasons(k=4, reference="median")
    seconds = time.process_time() - start
    print(reasons, *reasons.words(0), sep="\n")

    # %% Counterfactuals of refused applicants: what they can change, proved nearest
    pd_test = net.schema.values(net(net.schema.encode(X_test, quiet=True)))[:, 0]
    refused = X_test[pd_test > 0.3][: 3 if quick else 10]
    change = ["LIMIT_BAL", *[f"BILL_AMT{i}" for i in range(1, 7)], *[f"PAY_AMT{i}" for i in range(1, 7)], *LATE]
    found = u.counterfactuals(refused, change=change, direction=dict.fromkeys(LATE, "down"), budget="20s")
    print(found)

    # %% Fairness by sex, on held-out rows
    fair = rs.fairness(net, X_test, "SEX", selected=0, y=y_test)
    print(fair)

    # %% The report and the pictures
    u.plot("importance").figure.savefig(out / "importance.png", dpi=110, bbox_inches="tight")
    u.explain(0, reference="median").plot().figure.savefig(out / "explanation.png", dpi=110, bbox_inches="tight")
    outcome.to_pandas().to_csv(out / "outcome.csv", index=False)
    found.to_pandas().to_csv(out / "counterfactuals.csv", index=False)
    if not quick:
        report = rs.report(
            net, X=X, y=y, X_test=X_test, y_test=y_test, events="PD > 0.3", title="Credit score", budget="20s", rng=0
        )
        report.save(out / "report")
    took = time.process_time() - began
    print(f"{took:.0f} CPU seconds")
    return {
        "model": model, "net": net, "u": u, "merged": merged, "committee": committee, "outcome": outcome, "weak": weak,
        "compared": compared, "noise": noise, "signs": signs, "drift": drift, "reasons": reasons,
        "counterfactuals": found, "fairness": fair, "reason_seconds": seconds, "seconds": took,
        "split": (X, X_test, y, y_test), "refused": refused,
    }  # fmt: skip


if __name__ == "__main__":
    table = pd.read_csv(sys.argv[1]) if len(sys.argv) > 1 else made_sample(4000)
    main(table, Path(sys.argv[2] if len(sys.argv) > 2 else "credit_report"))
