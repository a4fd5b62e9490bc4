"""Counterfactuals of 100 rows of the Taiwan credit data, proved nearest: how many in how much CPU time.

    RELUSCOPE_DATA=folder python benchmarks/counterfactuals.py [seconds]

Two 23-64-32-1 networks: scikit-learn's with early stopping, and one trained with an L1 penalty. All 23 columns may
change, in whole numbers, between the smallest and largest value of the training rows; distance is the sum over columns
in standard deviations. The budget is wall time: on a busy machine compare CPU seconds.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import reluscope as rs


def main() -> None:
    """Train, ask, print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    file = Path(os.environ["RELUSCOPE_DATA"]) / "taiwan_credit" / "default_of_credit_card_clients.csv.gz"
    table = pd.read_csv(file).drop(columns="ID")
    y = table.pop("default payment next month")
    X, X_test, y, y_test = train_test_split(table, y, test_size=0.3, random_state=0, stratify=y)
    models = {
        "L1 penalty": rs.ReluClassifier((64, 32), l1=1e-4, random_state=0),
        "scikit-learn": make_pipeline(StandardScaler(), MLPClassifier((64, 32), early_stopping=True, random_state=0)),
    }
    for name, model in models.items():
        model.fit(X, y)
        score = roc_auc_score(y_test, model.predict_proba(X_test)[:, 1])
        net = rs.load(model)
        net = net.with_schema(net.schema.seen_in(X))
        rs.counterfactuals(net, X_test[:1], data=X, budget="1s")  # compiles
        start = time.process_time()
        found = rs.counterfactuals(net, X_test[:100], data=X, budget=seconds)
        cpu = time.process_time() - start
        print(f"{name}: AUC {score:.4f}; {found.proved} of 100 proved nearest in {cpu:.0f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
