"""Section 5.3 of Chaudhari and Moura, Figure 3: the singular values of the Jacobian under noise.

Their recipe: 784-32-32-32-10 on MNIST and on Fashion-MNIST; 100 test images, to each a Gaussian around it with one
random covariance of largest eigenvalue 1; the singular values' law from Algorithm 1 with threshold 0.25 against 2,000
Monte Carlo draws. Here are four laws, each over all images and all ten singular values:

- *lines*: patterns met on lines, weighted by their exact mass on the line;
- *draws*: Jacobians at random inputs;
- *Algorithm 1*: patterns of its set, drawn with its own marginal probabilities (no exact masses: the set is too large);
- the singular values of the *mean Jacobian* of each image. The paper calls this and the Jacobian at the most probable
  pattern by one name; neither has the law of the singular values.

Distances are Wasserstein-1 distances, in units of the median singular value; "between draws" compares two sets of draws
with one another, which is what chance alone makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray, generator
from reluscope.answers.spectrum import decomposed, narrowed, singular_values
from reluscope.answers.support import support
from reluscope.inputs import Gaussian
from reluscope.measure.lines import segment_patterns
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.reproduce import Reproduction
from reluscope.reproduce._images import classifier, digits, images
from reluscope.threads import blas_threads

_THRESHOLD = 0.25
_CAP = 10


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """Train one network per set, compare the laws of its singular values, write the picture."""
    rng = generator(rng)
    names = ("digits",) if quick else ("mnist", "fashion_mnist")
    points, draws, lines = (8, 400, 16) if quick else (100, 2000, 64)
    recipe: dict[str, int] = {"epochs": 20, "batch": 32} if quick else {}
    rows, shown = [], []
    with meter(progress, "spectrum") as report:
        for name in names:
            data = digits() if quick else images(name)
            net, accuracy = classifier(data, (32, 32, 32), 0, **recipe)
            noise = Gaussian(np.zeros(net.n_inputs), _covariance(net.n_inputs, rng))
            laws: dict[str, list[tuple[FloatArray, FloatArray]]] = {k: [] for k in _STYLES}
            again: list[tuple[FloatArray, FloatArray]] = []
            for i, x in enumerate(data.test[rng.choice(len(data.test), points, replace=False)]):
                found = _spectra(net, Gaussian.of_factor(x, noise.factor), draws, lines, rng)
                again.append(found.pop("again"))
                for key, part in found.items():
                    laws[key].append(part)
                report(i + 1, f"{name}, image {i + 1} of {points}")
            pooled = {key: _pooled(parts) for key, parts in laws.items()}
            chance = _distance(pooled["draws"], _pooled(again))
            unit = _quantile(pooled["draws"], 0.5)
            row: dict[str, Any] = {"data": name, "accuracy": round(accuracy, 4), "median": unit}
            for key in ("lines", "Algorithm 1", "mean Jacobian"):
                row[f"{key} to draws"] = _distance(pooled[key], pooled["draws"]) / unit
            row["between draws"] = chance / unit
            for key in ("draws", "lines", "Algorithm 1"):
                row[f"99 % {key}"] = _quantile(pooled[key], 0.99)
            rows.append(row)
            shown.append((name, pooled))
    _picture(folder / "figure-3.png", shown)
    remarks = [
        f"{points} test images; for each {draws:,} draws, {lines} lines, {draws:,} patterns of Algorithm 1's set",
        "the paper shows histograms and calls the agreement accurate, without a number; distances are in units of the "
        "median singular value",
        f"picture in {folder}/: figure-3.png",
    ]
    return Reproduction("spectrum", rows, remarks, ["figure-3.png"])


_STYLES: dict[str, dict[str, Any]] = {
    "draws": {"color": "#e09f3e", "fill": True},
    "lines": {"color": "#1d6fb8"},
    "Algorithm 1": {"color": "#d1495b"},
    "mean Jacobian": {"color": "#555555", "linestyle": ":"},
}


def _covariance(n: int, rng: np.random.Generator) -> FloatArray:
    """A random covariance (Wishart, as many degrees of freedom as inputs) of largest eigenvalue 1."""
    A = rng.normal(size=(n, n))
    cov = A @ A.T
    return np.asarray(cov / np.linalg.eigvalsh(cov)[-1])


def _spectra(
    net: Network, law: Gaussian, draws: int, lines: int, rng: np.random.Generator
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Singular values (n, ranks) with weights (n,), by each method."""
    narrow, _ = narrowed(net)
    weight = np.full(draws, 1.0 / draws)
    out = {}
    with blas_threads(max(net.widths)):
        mean = np.zeros((1, 1))
        for key in ("draws", "again"):
            singular, mean, _ = decomposed(narrow, net.pattern(law.sample(draws, rng)), weight, None)
            out[key] = singular, weight
        parts = [(w * mass, pattern) for w, _, mass, pattern in segment_patterns(net, law, lines, rng=rng)]
        share, pattern = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
        out["lines"] = decomposed(narrow, pattern, share, None)[0], share
        chosen = support(net, law, _THRESHOLD, _CAP).sample(draws, rng)
        out["Algorithm 1"] = decomposed(narrow, chosen, weight, None)[0], weight
        out["mean Jacobian"] = singular_values(mean[None]), np.ones(1)
    return out


def _pooled(parts: list[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """All singular values of all images, sorted, with weights that sum to 1."""
    values = np.concatenate([s.ravel() for s, _ in parts])
    weights = np.concatenate([np.repeat(w, s.shape[1]) for s, w in parts])
    order = np.argsort(values, kind="stable")
    return values[order], weights[order] / weights.sum()


def _distance(a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray]) -> float:
    """The Wasserstein-1 distance: the area between the two cdfs."""
    t = np.sort(np.concatenate([a[0], b[0]]))
    F, G = (np.append(0.0, np.cumsum(w))[np.searchsorted(v, t[:-1], side="right")] for v, w in (a, b))
    return float(np.abs(F - G) @ np.diff(t))


def _quantile(law: tuple[FloatArray, FloatArray], q: float) -> float:
    return float(law[0][min(int(np.searchsorted(np.cumsum(law[1]), q)), len(law[0]) - 1)])


def _picture(path: Path, shown: list[tuple[str, dict[str, tuple[FloatArray, FloatArray]]]]) -> None:
    """One row per set of images: histograms on a plain and on a logarithmic scale."""
    from reluscope.plot._axes import figure as new_figure
    from reluscope.plot._axes import save

    figure = new_figure(None, (10, 3.3 * len(shown)), 130)
    axes = figure.subplots(len(shown), 2, squeeze=False)
    for (plain, log), (name, pooled) in zip(axes, shown, strict=True):
        top = 1.02 * max(_quantile(pooled[key], 1.0) for key in ("draws", "lines"))
        edges = np.linspace(0.0, top, 61)
        for ax in (plain, log):
            for key, style in _STYLES.items():
                if ax is log and key == "mean Jacobian":
                    continue  # a few values an image: no tail to speak of
                values, weights = pooled[key]
                height, _ = np.histogram(values, edges, weights=weights)
                height = height / np.diff(edges)
                options = {k: v for k, v in style.items() if k != "fill"}
                if "fill" in style:
                    ax.stairs(height, edges, fill=True, alpha=0.45, label=key, **options)
                else:
                    ax.stairs(height, edges, linewidth=1.5, label=key, **options)
            ax.set_xlabel("singular value of the Jacobian")
            ax.set_ylabel("density")
        log.set_yscale("log")
        plain.set_title(name.replace("_", "-"), fontsize="medium")
        log.set_title(f"{name.replace('_', '-')}, tails", fontsize="medium")
        plain.legend(frameon=False, fontsize=8)
    save(axes[0, 0], path)
