"""Section 5.2 of Chaudhari and Moura, Table 1: how much of a class do the sets of Algorithm 1 hold?

Their recipe: 784-16-16-16-10 on MNIST, Adam with step 1e-3, batches of 128, 10 epochs; each class is a Gaussian with
the sample mean and covariance of its training images; thresholds 0.1 to 0.4, at most 10 free units a layer. An entry is
the share of the class's test images whose pattern is in the set. Beside it we print what the set holds under the fitted
law itself: the difference between the two is how well a Gaussian describes a class of images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray, generator
from reluscope.answers.support import support
from reluscope.inputs import Gaussian
from reluscope.progress import meter
from reluscope.reproduce import Reproduction
from reluscope.reproduce._images import Images, classifier, digits, images

THRESHOLDS = (0.1, 0.2, 0.3, 0.4)

PUBLISHED = np.array(
    [
        [0.07, 0.14, 0.37, 1.00],
        [0.04, 0.18, 0.70, 0.85],
        [0.06, 0.16, 0.39, 0.63],
        [0.04, 0.16, 0.34, 1.00],
        [0.01, 0.16, 0.38, 0.74],
        [0.09, 0.12, 0.39, 1.00],
        [0.06, 0.13, 0.35, 0.69],
        [0.03, 0.31, 0.41, 1.00],
        [0.16, 0.18, 0.45, 0.65],
        [0.08, 0.24, 0.60, 0.76],
    ]
)
"""Table 1: classes by thresholds."""


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """Train, walk the test images' patterns, draw from the fitted laws, write the picture."""
    rng = generator(rng)
    data = digits() if quick else images("mnist")
    seeds, draws = (2, 1000) if quick else (5, 4000)
    # Digits are few: smaller batches and more rounds bring the network as far as the recipe does on MNIST.
    recipe: dict[str, int] = {"epochs": 30, "batch": 32} if quick else {}
    on_data, under_law = np.empty((2, seeds, 10, len(THRESHOLDS)))
    accuracy = []
    with meter(progress, "mnist") as report:
        laws = [Gaussian.fit(data.train[data.train_label == c], ddof=1) for c in range(10)]
        for k in range(seeds):
            net, right = classifier(data, (16, 16, 16), k, **recipe)
            accuracy.append(right)
            for c, law in enumerate(laws):
                for i, threshold in enumerate(THRESHOLDS):
                    found = support(net, law, threshold, 10)
                    on_data[k, c, i] = found.coverage(data.test[data.test_label == c]).value
                    under_law[k, c, i] = found.mass(draws=draws, rng=rng).value
                report(10 * k + c + 1, f"network {k + 1} of {seeds}, class {c}")
    rows = []
    for c in range(10):
        row: dict[str, Any] = {"class": c}
        for i, threshold in enumerate(THRESHOLDS):
            row[f"{threshold} paper"] = f"{PUBLISHED[c, i]:.2f}"
            row[f"{threshold} data"] = _range(on_data[:, c, i])
            row[f"{threshold} law"] = _range(under_law[:, c, i])
        rows.append(row)
    _picture(folder / "table-1.png", data, on_data, under_law, None if quick else PUBLISHED)
    inside = (on_data.min(axis=0) <= PUBLISHED) & (on_data.max(axis=0) >= PUBLISHED)
    remarks = [
        f"{data.name}, {seeds} training runs, test accuracy {min(accuracy):.3f} to {max(accuracy):.3f}; columns by "
        "threshold: share of the class's test images in the set of Algorithm 1, least to most over the "
        f"runs; probability of the set under the fitted Gaussian ({draws:,} draws a run)",
        f"means over classes, test images: {_means(on_data.mean(axis=0))}; fitted law: "
        f"{_means(under_law.mean(axis=0))}",
        f"picture in {folder}/: table-1.png",
    ]
    compared = [
        f"'paper': table 1 of the paper, one training run; means over classes {_means(PUBLISHED)}",
        f"{int(inside.sum())} of {inside.size} published entries lie within our range over training runs",
    ]
    columns = tuple(f"{threshold} paper" for threshold in THRESHOLDS)
    return Reproduction("mnist", rows, remarks, ["table-1.png"], columns, compared)


def _range(values: FloatArray) -> str:
    return f"{values.min():.2f}-{values.max():.2f}"


def _means(table: FloatArray) -> str:
    return ", ".join(f"{m:.2f}" for m in table.mean(axis=0))


def _picture(
    path: Path, data: Images, on_data: FloatArray, under_law: FloatArray, published: FloatArray | None
) -> None:
    """One panel per threshold: published entries, and our ranges over training runs on data and under the law."""
    from reluscope.plot._axes import figure as new_figure
    from reluscope.plot._axes import save

    figure = new_figure(None, (11, 3.4), 130)
    axes = figure.subplots(1, len(THRESHOLDS), sharey=True)
    classes = np.arange(10)
    for i, (ax, threshold) in enumerate(zip(axes, THRESHOLDS, strict=True)):
        for shift, values, color, label in (
            (-0.17, on_data[:, :, i], "#1d6fb8", f"{data.name} test images"),
            (0.17, under_law[:, :, i], "#e09f3e", "fitted Gaussian"),
        ):
            low, middle, high = values.min(axis=0), np.median(values, axis=0), values.max(axis=0)
            ax.errorbar(
                classes + shift, middle, [middle - low, high - middle], fmt="o", color=color, markersize=4, label=label
            )
        if published is not None:
            ax.plot(classes, published[:, i], "x", color="#d1495b", markersize=7, label="published (MNIST)")
        ax.set_title(f"threshold {threshold}", fontsize="medium")
        ax.set(xticks=classes, xlabel="class", ylim=(-0.03, 1.05))
    axes[0].set_ylabel("share of patterns in the set")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    save(axes[0], path)
