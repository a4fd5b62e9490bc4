"""Train the built-in example networks and write them beside `reluscope.examples`. Run with `make examples`."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits, make_circles, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor

from reluscope.formats import load
from reluscope.inputs import Gaussian, GaussianMixture
from reluscope.network import Network

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
    law = GaussianMixture.fit_classes(X, y, components=3, covariance="diag", rng=0)
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


def cocircles() -> None:
    """Two noisy circles (the toy of the local-linear-model literature): 2,000 points, noise 0.1; four layers of 12."""
    X, y = make_circles(2000, noise=0.1, random_state=0)
    model = MLPClassifier((12, 12, 12, 12), learning_rate_init=3e-3, max_iter=60, random_state=0)
    net = load(_quietly(model, X, y))
    net.save(FOLDER / "cocircles.npz")
    law = GaussianMixture.fit(X, components=8, rng=0)
    _write_law(law, "cocircles")
    print(f"cocircles: {net}, accuracy {model.score(X, y):.3f}")


def controller() -> None:
    """A collision-avoidance adviser with five inputs: score of each of five advisories, the smallest wins.

    Inputs, each scaled to [-1, 1]: distance, bearing of the intruder, its heading relative to ours, our speed, its
    speed. The teacher's score of a turn rate is how near the two aircraft come within a minute when we turn at it, plus
    a small cost for turning, so "clear of conflict" wins when nothing is near.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (40_000, 5))
    scores = teacher(X)
    model = MLPRegressor(
        hidden_layer_sizes=(25, 25, 25), learning_rate_init=2e-3, batch_size=256, max_iter=150, random_state=0
    )
    net = load(_quietly(model, X, scores))
    order = "clear, weak left, weak right, strong left, strong right"
    net = Network(net.layers, name="controller", notes=[f"outputs are scores of {order}; the smallest wins"])
    net.save(FOLDER / "controller.npz")
    # an intruder ahead at middle distance, slightly to the right, flying towards us, with sensor noise
    law = Gaussian([-0.4, -0.08, 0.9, 0.1, 0.2], np.array([0.06, 0.05, 0.08, 0.05, 0.08]) ** 2)
    _write_law(law, "controller")
    fresh = rng.uniform(-1.0, 1.0, (20_000, 5))
    same = (net(fresh).argmin(axis=1) == teacher(fresh).argmin(axis=1)).mean()
    print(f"controller: {net}, same advisory as the teacher for {same:.3f}")


def teacher(X: FloatArray) -> FloatArray:
    """Scores (n, 5) of the advisories clear, weak left, weak right, strong left, strong right; lower is better."""
    distance, bearing, heading = 1.05 + X[:, 0], np.pi * X[:, 1], np.pi * X[:, 2]
    own, other = 0.6 + 0.4 * X[:, 3], 0.6 + 0.4 * X[:, 4]
    away = distance[:, None] * np.stack([np.cos(bearing), np.sin(bearing)], axis=1)
    theirs = other[:, None] * np.stack([np.cos(heading), np.sin(heading)], axis=1)
    out = np.empty((len(X), 5))
    for k, (rate, cost) in enumerate([(0.0, 0.0), (0.5, 0.03), (-0.5, 0.03), (1.2, 0.06), (-1.2, 0.06)]):
        nearest = np.full(len(X), np.inf)
        for t in np.linspace(0.0, 2.0, 21):
            turned = rate * min(t, 1.0)
            ahead = own * t
            place = np.stack([ahead * np.cos(turned / 2), ahead * np.sin(turned / 2)], axis=1)
            nearest = np.minimum(nearest, np.linalg.norm(away + theirs * t - place, axis=1))
        out[:, k] = np.exp(-2.0 * nearest) + cost
    return out


def digits() -> None:
    """Handwritten digits, 8 x 8 pixels (scikit-learn's own set): 64-16-16-10."""
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    model = MLPClassifier((16, 16), learning_rate_init=5e-3, max_iter=60, random_state=1)
    net = load(_quietly(model, X, y))
    net.save(FOLDER / "digits.npz")
    threes = X[y == 3]
    _write_law(Gaussian(threes.mean(axis=0).round(6), np.cov(threes.T).round(8) + 1e-4 * np.eye(64)), "digits")
    print(f"digits: {net}, accuracy {model.score(X, y):.3f}")


def _quietly(
    model: MLPClassifier | MLPRegressor, X: FloatArray, y: FloatArray | IntArray
) -> MLPClassifier | MLPRegressor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of epochs is part of the recipe
        return model.fit(X, y)


def _write_law(law: Gaussian | GaussianMixture, name: str) -> None:
    (FOLDER / f"{name}.json").write_text(json.dumps(law.to_dict()) + "\n")


if __name__ == "__main__":
    for make in (moons, cocircles, controller, digits):
        make()
