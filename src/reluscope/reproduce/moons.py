"""Section 5.1 of Chaudhari and Moura: the distribution over affine functions and outputs of a moons classifier.

Their recipe: 1,000 moons with noise 0.2; 2-4-4-4-1, Adam with step 1e-2, batches of 64, 20 epochs. Figure 1: noise
of variance 0.5 around two test points. Figure 2: one mixture of three diagonal Gaussians per class, and the false
positive and negative rates. Another training run gives other rates, so we print three for each of several seeds: exact
under the fitted law, Monte Carlo under the fitted law (the two must agree), and the rate on data (which differs by how
well the mixture fits). Both figures are of the network of seed 0 in the table; the red lines and bars of Figure 2 are
counts over fresh moons, as in the paper.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray, generator
from reluscope._extras import require
from reluscope.answers.linear_models import linear_models
from reluscope.answers.outputs import outputs
from reluscope.inputs import Gaussian, GaussianMixture, Law
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.reproduce import Reproduction

PUBLISHED = {"false positive": (0.1449, 0.1310), "false negative": (0.0876, 0.0978)}
"""Numeric and Monte Carlo rates printed in the paper."""


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """Train, compare with draws, write the two figures."""
    rng = generator(rng)
    draws, seeds = (100_000, 2) if quick else (1_000_000, 8)
    rows: list[dict[str, Any]] = []
    worst = 0.0
    with meter(progress, "moons") as report:
        for k in range(seeds):
            net, laws, fresh = _trained(k)
            rows.append({"seed": k, "regions": 0})
            for label, (name, tail) in enumerate((("false positive", "above"), ("false negative", "below"))):
                cdf = outputs(net, laws[label]).cdf(np.zeros(1))
                exact = float(1 - cdf.value[0]) if tail == "above" else float(cdf.value[0])
                y = net(laws[label].sample(draws, rng))[:, 0]
                drawn = float((y > 0).mean() if tail == "above" else (y <= 0).mean())
                data = net(fresh[label])[:, 0]
                rows[-1] |= {
                    f"{name} exact": exact,
                    f"{name} drawn": drawn,
                    f"{name} on data": float((data > 0).mean() if tail == "above" else (data <= 0).mean()),
                }
                worst = max(worst, abs(exact - drawn) / np.sqrt(max(exact * (1 - exact), 1e-12) / draws))
            rows[-1]["regions"] = linear_models(net, laws[0]).support_size
            report(k + 1, f"{k + 1} of {seeds} networks")
        files = _figures(folder, rng, draws)
    remarks = [
        f"largest difference between exact and drawn rates: {worst:.2f} standard errors of {draws:,} draws",
        f"pictures in {folder}/: {', '.join(files)}",
    ]
    compared = [
        "published (one training run): false positive 14.49 % numeric, 13.10 % Monte Carlo; negative 8.76 %, 9.78 %"
    ]
    return Reproduction("moons", rows, remarks, files, compared=compared)


def _trained(seed: int) -> tuple[Network, list[GaussianMixture], list[FloatArray]]:
    """A network of the paper's recipe, the fitted law of each class, and fresh data of each class."""
    require("sklearn", "sklearn")
    from sklearn.datasets import make_moons
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    from reluscope.formats import load

    X, y = make_moons(1000, noise=0.2, random_state=seed)
    model = MLPClassifier((4, 4, 4), learning_rate_init=1e-2, batch_size=64, max_iter=20, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 20 epochs are the recipe
        model.fit(X, y)
    laws = [GaussianMixture.fit(X[y == c], components=3, covariance="diag", rng=seed) for c in (0, 1)]
    fresh, label = make_moons(20_000, noise=0.2, random_state=1000 + seed)
    return load(model), laws, [fresh[label == c] for c in (0, 1)]


def _figures(folder: Path, rng: np.random.Generator, draws: int) -> list[str]:
    """Figure 1: two random test points with noise. Figure 2: the fitted law of each class beside fresh moons."""
    net, laws, fresh = _trained(0)
    points = [rows[rng.integers(len(rows))].round(2) for rows in fresh]
    noisy = [Gaussian(point, 0.5) for point in points]
    _figure(
        folder / "figure-1.png", net, noisy, [f"N(({x:g}, {y:g}), 0.5 I)" for x, y in points],
        [law.sample(draws, rng) for law in noisy], "draws",
    )  # fmt: skip
    _figure(folder / "figure-2.png", net, laws, ["class 0", "class 1"], _moons(2 * draws, rng), "moons")
    return ["figure-1.png", "figure-2.png"]


def _moons(n: int, rng: np.random.Generator) -> list[FloatArray]:
    """Fresh moons of each class, n in all."""
    from sklearn.datasets import make_moons

    X, label = make_moons(n, noise=0.2, random_state=int(rng.integers(2**31)))
    return [X[label == c] for c in (0, 1)]


def _figure(
    path: Path, net: Network, laws: Sequence[Law], titles: list[str], inputs: list[FloatArray], of: str
) -> None:
    """One row per law: the law, probabilities of the activation patterns, the cdf of the output, and counts beside."""
    from reluscope.plot._axes import figure as new_figure
    from reluscope.plot._axes import save
    from reluscope.plot.answers import plot_cdf, plot_masses
    from reluscope.plot.laws import plot_law

    figure = new_figure(None, (14, 3.6 * len(laws)), 120)
    axes = figure.subplots(len(laws), 3, squeeze=False)
    for (left, middle, right), law, title, x in zip(axes, laws, titles, inputs, strict=True):
        plot_law(law, left, points=x[:400])
        left.set_title(f"{title}: law of the inputs, 400 {of}", fontsize="medium")
        plot_masses(linear_models(net, law), middle, patterns=net.pattern(x), of=of)
        middle.set_title(f"{title}: {middle.get_title()}", fontsize="medium")
        plot_cdf(outputs(net, law), right, draws=net(x)[:, 0], of=of)
        right.set_xlabel("output y (logit)")
        right.set_title(f"{title}: law of the output", fontsize="medium")
    save(axes[0, 0], path)
