"""The figures of docs/unwrap.md on merging and pruning: CPU seconds, and scores by the way regions are adopted.

Run: OPENBLAS_NUM_THREADS=1 RELUSCOPE_DATA=folder python benchmarks/merge.py

Needs scikit-learn and pandas; the first part also the Taiwan credit data.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

import reluscope as rs
from reluscope.local_models import _adjacency
from reluscope.local_models.table import centroids


def credit():
    """23 raw features, pipeline of StandardScaler and MLP 16-8 (scikit-learn, seed 0); 70 % of the rows to train."""
    import pandas as pd
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    file = Path(os.environ["RELUSCOPE_DATA"]) / "taiwan_credit" / "default_of_credit_card_clients.csv.gz"
    rows = pd.read_csv(file)
    y = rows.pop("default payment next month")
    rows.pop("ID")
    train, test, y_train, y_test = train_test_split(rows, y, test_size=0.3, random_state=0)
    model = make_pipeline(
        StandardScaler(), MLPClassifier((16, 8), alpha=1e-3, early_stopping=True, random_state=0)
    ).fit(train, y_train)
    return model, train, test, y_train, y_test


def friedman(inputs: int, seed: int):
    """Friedman's first function of uniform inputs with noise 1, MLP 12-8; 4,000 rows to train, 2,000 to test."""
    from sklearn.datasets import make_friedman1
    from sklearn.neural_network import MLPRegressor

    X, y = make_friedman1(6000, inputs, noise=1.0, random_state=seed)
    X = (X - 0.5) * np.sqrt(12)
    model = MLPRegressor(hidden_layer_sizes=(12, 8), max_iter=150, random_state=seed).fit(X[:4000], y[:4000])
    return model, X[:4000], X[4000:], y[:4000], y[4000:]


def cancer(seed: int):
    """The breast cancer data of scikit-learn, standardised; MLP 8; two thirds of the rows to train."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    X, y = load_breast_cancer(return_X_y=True)
    train, test, y_train, y_test = train_test_split(X, y, test_size=1 / 3, random_state=seed)
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    return MLPClassifier((8,), max_iter=200, random_state=seed).fit(train, y_train), train, test, y_train, y_test


def nearest_centroid(u: rs.Unwrapped, kept: int, breadth: float):
    """The rule to compare with: adopted by the kept region with the nearest centroid."""
    centroid, spread = centroids(u)
    owner = cKDTree(centroid[:kept] / spread).query(centroid / spread)[1]
    owner[:kept] = np.arange(kept)
    return owner


def compare(name: str, u: rs.Unwrapped, X_test, y_test, min_count: int) -> None:
    """Scores of the pruned models, adopted by cost and by centroid, beside the network's."""
    by_cost = u.prune(min_count)
    rule = _adjacency.adopted
    _adjacency.adopted = nearest_centroid
    try:
        by_centroid = u.prune(min_count)
    finally:
        _adjacency.adopted = rule
    found = " ".join(
        f"{label} {m.data_score:.4f} / {m.score(X_test, y_test):.4f};"
        for label, m in (("by cost", by_cost), ("by centroid", by_centroid))
    )
    network = f"network {u.score:.4f} / {u.evaluate(X_test, y_test).score:.4f}"
    print(
        f"{name}, at least {min_count} rows: {len(by_cost)} of {len(u):,} regions, "
        f"{100 * by_cost.own_count.sum() / len(u.region):.0f} % own rows; {u.metric} training / test: "
        f"{found} {network}",
        flush=True,
    )


def clocked(what: str, call):
    start = time.process_time()
    found = call()
    print(f"{what}: {time.process_time() - start:.2f} CPU s", flush=True)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    if os.environ.get("RELUSCOPE_DATA"):
        model, train, test, y_train, y_test = credit()
        rs.unwrap(model, train[:500], y_train[:500]).merge(5, progress=None)  # compiles
        u = rs.unwrap(model, train, y_train)
        print(f"credit: {u!r}")
        found = u.intervals(0)
        lost = [name for name, aliased in zip(found.names, found.aliased.tolist(), strict=True) if aliased]
        print(f"aliased in the largest region, {found.rows_used} rows: {', '.join(lost)}; {u.portrait(0)}")
        clocked("merge(5)", lambda: u.merge(5))
        clocked("merge(8) after it", lambda: u.merge(8))
        u = rs.unwrap(model, train, y_train)
        m = clocked("merge(), cross-validated", u.merge)
        print(f"{len(m)} models, AUC training / test {m.data_score:.4f} / {m.score(test, y_test):.4f}")
        clocked("flatten(tune=False) after it", lambda: u.flatten(tune=False))
        clocked("prune(30)", lambda: u.prune(30))
        for least in (30, 60):
            compare("credit", u, test, y_test, least)
    for inputs in (5, 10):
        for seed in (0, 1):
            model, train, test, y_train, y_test = friedman(inputs, seed)
            u = rs.unwrap(model, train, y_train, task="regression")
            for least in (15, 40):
                compare(f"friedman, {inputs} inputs, seed {seed}", u, test, y_test, least)
    for seed in range(4):
        model, train, test, y_train, y_test = cancer(seed)
        u = rs.unwrap(model, train, y_train)
        for least in (5, 10):
            compare(f"cancer, seed {seed}", u, test, y_test, least)


if __name__ == "__main__":
    main()
