"""TaiwanCredit, from Zhang's slides: L1 turns thousands of regions into tens for less than a point of AUC.

30,000 credit card clients, 18 payment features (amounts as signed logarithms, all scaled to [0, 1]), a network of 2 x
40 ReLU units, L1 penalties as in the slides. The data are read from the folder named by RELUSCOPE_DATA
(`taiwan_credit/default_of_credit_card_clients.csv.gz`, UCI data set 350).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._tables import read_csv, write_csv
from reluscope.errors import InputError
from reluscope.local_models.l1_path import L1Path, l1_path
from reluscope.local_models.unwrap import Unwrapped, unwrap
from reluscope.progress import meter
from reluscope.reproduce import Reproduction

PUBLISHED = {0.0: (7853, 0.771), 2e-4: (352, 0.7708), 8e-4: (16, 0.766)}
"""Regions with data and test AUC, by penalty. None of these numbers is in the text of the slides."""

_PENALTIES = (0.0, 1e-4, 2e-4, 4e-4, 8e-4)
_FILE = Path("taiwan_credit") / "default_of_credit_card_clients.csv.gz"


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """The path on several seeds, with the published figures beside ours, and the pictures of the first."""
    X, y, names, scaler = data()
    kept = np.random.default_rng(0).permutation(len(X))
    if quick:
        kept = kept[:6000]
    test, train = kept[: len(kept) // 5], kept[len(kept) // 5 :]
    seeds, penalties = (1, (0.0, 8e-4)) if quick else (5, _PENALTIES)
    epochs = 60 if quick else 200
    paths: list[L1Path] = []
    with meter(progress, "taiwancredit") as report:
        for seed in range(seeds):

            def note(done: int, text: str, seed: int = seed) -> None:
                report(done, f"seed {seed + 1} of {seeds}, {text}")

            path = l1_path(
                X[train],
                y[train],
                penalties,
                X_test=X[test],
                y_test=y[test],
                feature_names=names,
                standardise=False,
                epochs=epochs,
                batch=500,
                rng=seed,
                progress=note,
            )
            paths.append(path)
    rows = [_row(k, penalty, paths) for k, penalty in enumerate(penalties)]
    worst = max(u.certificate.relative for p in paths for u in p.unwrapped)
    lost = rows[0]["test AUC"] - rows[-1]["test AUC"]
    columns = {"seed": np.repeat(np.arange(seeds), len(penalties))}
    columns |= {name: np.array([r[name] for p in paths for r in p.rows()]) for name in paths[0].rows()[0]}
    write_csv(columns, folder / "path.csv")
    files = [
        "path.csv",
        *_pictures(
            paths[0], unwrap(paths[0].networks[-1], X[train], y[train], feature_names=names, scaler=scaler), folder
        ),
    ]
    remarks = [
        f"from penalty 0 to {penalties[-1]:g} the regions fall from {rows[0]['regions']:,.0f} to "
        f"{rows[-1]['regions']:,.0f} and the test AUC by {100 * lost:.2f} points (means of {seeds} seeds)",
        f"largest relative difference between local models and network: {worst:.1e}",
        f"files in {folder}/: {', '.join(files)}",
    ]
    compared = ["the published numbers are not in the text of the slides and cannot be checked there"]
    return Reproduction("taiwancredit", rows, remarks, files, ("published regions", "published test AUC"), compared)


def data() -> tuple[FloatArray, Any, list[str], tuple[FloatArray, FloatArray]]:
    """The 18 payment features scaled to [0, 1], the target, the names, and (centre, scale) of the features."""
    home = os.environ.get("RELUSCOPE_DATA")
    path = None if not home else Path(home) / _FILE
    if path is None or not path.is_file():
        raise InputError(
            f"set RELUSCOPE_DATA to a folder that holds {_FILE} (UCI data set 350, default of credit card clients)"
        )
    rows = read_csv(path, target="default payment next month")
    names = [name for name in rows.names if name.startswith(("PAY_", "BILL_"))]
    X = rows.X[:, [name in names for name in rows.names]]
    amounts = np.array(["AMT" in name for name in names])
    X[:, amounts] = np.sign(X[:, amounts]) * np.log10(1 + np.abs(X[:, amounts]))
    low, high = X.min(axis=0), X.max(axis=0)
    y = rows.y.astype(np.int64)
    return (X - low) / (high - low), y, names, (low, high - low)


def _row(k: int, penalty: float, paths: list[L1Path]) -> dict[str, Any]:
    points = [path.points[k] for path in paths]
    published = PUBLISHED.get(penalty, (None, None))
    regions = [p.regions for p in points]
    return {
        "penalty": penalty,
        "published regions": published[0],
        "regions": float(np.mean(regions)),
        "lowest": min(regions),
        "highest": max(regions),
        "single-row share": float(np.mean([p.single_row_share for p in points])),
        "published test AUC": published[1],
        "test AUC": float(np.mean([p.test_score for p in points])),
        "training AUC": float(np.mean([p.train_score for p in points])),
        "test rows without data": float(np.mean([p.unseen_share for p in points])),
    }


def _pictures(path: L1Path, sparse: Unwrapped, folder: Path) -> list[str]:
    """The path, and the sparsest network in the original units of the features."""
    from reluscope.plot._axes import save

    pictures = {
        "path": path.plot(),
        "importance": sparse.plot("importance"),
        "parallel": sparse.plot("parallel"),
        "partial": sparse.plot("partial"),
        "explanation": sparse.explain(0).plot(),
    }
    for name, ax in pictures.items():
        save(ax, folder / f"{name}.png")
    return [f"{name}.png" for name in pictures]
