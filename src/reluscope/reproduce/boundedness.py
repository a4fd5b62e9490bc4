"""Theorems 4 and 5 of Hamidi's thesis: how likely is the image of a random ReLU network bounded?

The theorems bound the probability from both sides. Here every random network is decided exactly, by listing the cones
of its bias-free part, and the share of bounded ones is drawn between the two bounds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray, generator
from reluscope.intervals import binomial
from reluscope.progress import meter
from reluscope.representation.laboratory import bounded_shares
from reluscope.representation.rays import BoundednessBounds, boundedness_bounds
from reluscope.reproduce import Reproduction

LEVEL = 1e-6
"""Chance that a Clopper-Pearson interval misses the probability it is for."""


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """Draw networks, decide them, compare with the bounds, write the figure."""
    rng = generator(rng)
    count, depth = (60, 6) if quick else (1000, 12)
    inputs = 2
    cases = []
    rows: list[dict[str, Any]] = []
    widths = (1, 2, 3) if quick else (1, 2, 3, 4)
    broken = 0
    with meter(progress, "boundedness") as report:
        for k, width in enumerate(widths):
            sizes = (inputs, *[width] * depth)
            share = bounded_shares(sizes, count, rng=rng)
            bounds = boundedness_bounds(sizes)
            low, high = intervals(share, count)
            cases.append((width, share, low, high, bounds))
            for layer in range(depth):
                fails = high[layer] < bounds.bounded[layer] or low[layer] > 1 - bounds.unbounded[layer]
                broken += fails
                rows.append(
                    {
                        "width": width,
                        "layer": layer,
                        "Theorem 5: at least": bounds.bounded[layer],
                        "bounded": float(share[layer]),
                        "from": float(low[layer]),
                        "to": float(high[layer]),
                        "Theorem 4: at most": 1 - bounds.unbounded[layer],
                        "holds": not fails,
                    }
                )
            report(k + 1, f"width {width}")
    _figure(folder / "boundedness.png", cases, count)
    remarks = [
        f"{count:,} networks per width, {inputs} inputs, He weights, each decided exactly; "
        f"an interval misses with probability {LEVEL:g}",
        f"{broken} of {len(rows)} shares contradict a bound",
        f"picture in {folder}/: boundedness.png",
    ]
    return Reproduction("boundedness", rows, remarks, ["boundedness.png"])


def intervals(share: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Clopper-Pearson intervals for shares of `count` draws, each missing with probability at most `LEVEL`."""
    return binomial(np.rint(share * count), count, 1.0 - LEVEL)


def _figure(
    path: Path, cases: list[tuple[int, FloatArray, FloatArray, FloatArray, BoundednessBounds]], count: int
) -> None:
    from reluscope.plot._axes import figure as new_figure
    from reluscope.plot._axes import save

    figure = new_figure(None, (3.4 * len(cases), 3.6), 130)
    axes = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
    for ax, (width, share, low, high, bounds) in zip(axes, cases, strict=True):
        layer = np.arange(len(share))
        top, bottom = 1 - np.array(bounds.unbounded), np.array(bounds.bounded)
        ax.fill_between(layer, bottom, top, color="#8a8f98", alpha=0.2, linewidth=0)
        ax.plot(layer, top, "--", color="#d1495b", label="Theorem 4: at most")
        ax.plot(layer, bottom, "--", color="#2e8b57", label="Theorem 5: at least")
        gap = np.maximum([share - low, high - share], 0.0)
        style = {"color": "#1d6fb8", "markersize": 3.5, "capsize": 2}
        ax.errorbar(layer, share, gap, fmt="o-", label=f"{count:,} networks, exact", **style)
        ax.set_title(f"width {width}", fontsize="medium")
        ax.set(xlabel="layer", ylim=(-0.02, 1.02))
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("share of networks with a bounded image")
    axes[-1].legend(frameon=False, fontsize="small")
    save(axes[0], path)
