"""CoCircles, from Zhang's slides on deep ReLU networks as local linear models.

Their recipe: 2,000 points on two circles with noise 0.1, 80/20 split; a network of 4 x 40 ReLU units, Adam, early
stopping; unwrapped, merged to 8 models, flattened to one hidden layer. Training differs between seeds (and between
versions of a library), so the published figures are set beside the mean and the range of 20 seeds. Their "85 % of
regions with a single instance" is the share with a single class.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._extras import require
from reluscope._tables import write_csv
from reluscope.cells.regions import regions
from reluscope.local_models.l1_path import l1_path
from reluscope.local_models.unwrap import Unwrapped, unwrap
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.reproduce import Reproduction

PUBLISHED = {
    "regions with data": 530,
    "single-class share": 0.85,
    "network AUC, training": 0.9215,
    "network AUC, test": 0.9320,
    "8 merged models, AUC training": 0.9002,
    "8 merged models, AUC test": 0.9015,
    "flattened, AUC training": 0.9015,
    "flattened, AUC test": 0.9093,
}
"""One training run of theirs."""

IN_TEXT = {"regions with data": "530", "single-class share": "~85 %", "network AUC, test": "~0.93"}
"""What the text of the slides says. The other numbers are not in it, so they cannot be checked there."""

TOY_REGIONS = 22
"""Regions of the small network printed on the slides."""


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """Train on several seeds, compare, write the table of seeds and the pictures of the first."""
    seeds = 2 if quick else 20
    found: list[dict[str, float]] = []
    worst = 0.0
    first: Unwrapped | None = None
    with meter(progress, "cocircles") as report:
        for seed in range(seeds):
            numbers, u = _one(seed)
            found.append(numbers)
            worst = max(worst, u.certificate.relative)
            first = u if first is None else first
            report(seed + 1, f"{seed + 1} of {seeds} networks")
    assert first is not None
    rows = []
    for name in found[0]:
        ours = np.array([f[name] for f in found])
        published = PUBLISHED.get(name)
        inside = None if published is None else bool(ours.min() - 5e-5 <= published <= ours.max() + 5e-5)
        rows.append(
            {
                "quantity": name,
                "published": published,
                "in the slides' text": IN_TEXT.get(name, "" if published is None else "no"),
                "seed 0": float(ours[0]),
                "mean": float(ours.mean()),
                "lowest": float(ours.min()),
                "highest": float(ours.max()),
                "published inside": inside,
            }
        )
    toy = len(regions(toy_network(), progress=None))
    write_csv({"seed": np.arange(seeds)} | {k: np.array([f[k] for f in found]) for k in found[0]}, folder / "seeds.csv")
    files = ["seeds.csv", *_pictures(first, folder, quick)]
    remarks = [
        f"{seeds} seeds; largest relative difference between local models and network: {worst:.1e}",
        f"the small network on the slides has {toy} regions (printed: {TOY_REGIONS})",
        f"files in {folder}/: {', '.join(files)}",
    ]
    compared = [
        "published: one training run; 'no' marks numbers that are not in the text of the slides and cannot be checked "
        "there"
    ]
    columns = ("published", "in the slides' text", "published inside")
    return Reproduction("cocircles", rows, remarks, files, columns, compared)


def toy_network() -> Network:
    """The 2-2-4 network of the slides, with one output that sums its units."""
    W0 = np.array([[-1.0, 1.0], [1.0, 1.0]]) / np.sqrt(2)
    W1 = np.array([[1, 1 / 4], [1 / 2, 1 / 3], [1 / 3, 1 / 2], [1 / 4, 1]])
    return Network([(W0, np.zeros(2)), (W1, np.full(4, -0.3)), (np.ones((1, 4)), None)])


def data() -> tuple[Any, Any, Any, Any]:
    """Training and test rows and labels."""
    require("sklearn", "sklearn")
    from sklearn.datasets import make_circles
    from sklearn.model_selection import train_test_split

    X, y = make_circles(2000, noise=0.1, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
    return X_train, y_train, X_test, y_test


def trained(seed: int) -> Any:
    """Their network: scikit-learn's, 4 x 40 units, early stopping with 100 epochs of patience."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    X, y, _, _ = data()
    model = MLPClassifier(
        [40] * 4,
        max_iter=2000,
        early_stopping=True,
        n_iter_no_change=100,
        validation_fraction=0.2,
        learning_rate_init=1e-3,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def _one(seed: int) -> tuple[dict[str, float], Unwrapped]:
    X, y, X_test, y_test = data()
    u = unwrap(trained(seed), X, y, feature_names=["x1", "x2"])
    merged = u.merge(8)
    flat = unwrap(merged.flatten(rng=seed), X, y)
    facts = u.describe()
    return {
        "regions with data": len(u),
        "single-class share": facts["single_class_share"],
        "single-row share": facts["single_row_share"],
        "network AUC, training": u.score,
        "network AUC, test": u.evaluate(X_test, y_test).score,
        "8 merged models, AUC training": merged.score(X, y),
        "8 merged models, AUC test": merged.score(X_test, y_test),
        "flattened, AUC training": flat.score,
        "flattened, AUC test": flat.evaluate(X_test, y_test).score,
        "flattened, regions with data": len(flat),
    }, u


def _pictures(u: Unwrapped, folder: Path, quick: bool) -> list[str]:
    from reluscope.plot._axes import save

    chosen = u.merge(**({"most": 4, "rng": 0} if quick else {}))
    X, y, X_test, y_test = data()
    # The slides' own example of the penalty: the same data, and the same network at each penalty.
    path = l1_path(
        X, y, (0.0, 1e-3) if quick else (0.0, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3), X_test=X_test, y_test=y_test,
        hidden=(8, 8) if quick else (40,) * 4, epochs=10 if quick else 300, rng=0,
    )  # fmt: skip
    pictures = {
        "regions": u.plot("regions"),
        "profile": u.plot("profile"),
        "performance": u.plot("performance"),
        "merged": u.merge(8).plot("regions"),
        "dendrogram": chosen.plot("dendrogram"),
        "validation": chosen.plot("validation"),
        "explanation": u.explain(0).plot(),
        "models": u.plot("models"),
        "instances": u.plot("instances"),
        "l1": path.plot(),
    }
    for name, ax in pictures.items():
        save(ax, folder / f"{name}.png")
    return [f"{name}.png" for name in pictures]
