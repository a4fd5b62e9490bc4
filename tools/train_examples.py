"""Train the built-in example networks and write them beside `reluscope.examples`. Run with `make examples`."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from reluscope.formats import load
from reluscope.inputs import GaussianMixture

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FOLDER = Path(__file__).resolve().parents[1] / "src" / "reluscope" / "examples"


def moons() -> None:
    """The network of section 5.1 of the paper: 1,000 moons, noise 0.2, Adam 1e-2, batches of 64, 20 epochs."""
    X, y = make_moons(1000, noise=0.2, random_state=0)
    # 20 epochs often end before the net is trained; take the best of a few starts.
    models = [_moons_model(X, y, seed) for seed in range(20)]
    model = max(models, key=lambda m: m.score(X, y))
    net = load(model)
    net.save(FOLDER / "moons.npz")
    law = GaussianMixture.fit_classes(X, y, components=3, covariance="diag", rng=0).joint
    (FOLDER / "moons.json").write_text(json.dumps(law.to_dict(), indent=1) + "\n")
    print(f"moons: {net}, accuracy {model.score(X, y):.3f}")


def _moons_model(X: FloatArray, y: IntArray, seed: int) -> MLPClassifier:
    model = MLPClassifier(
        (4, 4, 4),
        activation="relu",
        solver="adam",
        learning_rate_init=1e-2,
        batch_size=64,
        max_iter=20,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 20 epochs are the recipe
        return model.fit(X, y)


if __name__ == "__main__":
    moons()
