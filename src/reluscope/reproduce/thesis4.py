"""Chapter 4 of Hamidi's thesis: what random ReLU networks do to clouds, in the manner of figures 4.1 to 4.16.

The thesis does not print its seeds or biases, so pictures are the same in kind, not point by point. Beside them: a
table of trends over many random networks, and the printed claims about one layer, checked by name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import generator
from reluscope._extras import require
from reluscope.progress import meter
from reluscope.representation.claims import check_claims
from reluscope.representation.laboratory import layer_widths, measure, random_cloud, random_network, sweep
from reluscope.representation.layers import Layers, layers
from reluscope.reproduce import Reproduction

BIAS = 0.1
"""Standard deviation of biases in the figures that have them."""

_WIDTHS = (15, 30, 60, 100)
_GROWTH = 1.1
"""Growing networks of Figure 4.6 and of the table: each layer 10 % wider than the one before, 15 units to 101."""


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """Sweep, check the claims, write the figures."""
    require("matplotlib", "plot")
    rng = generator(rng)
    seed = int(rng.integers(2**31))
    with meter(progress, "thesis4") as report:
        report(0, "random networks")
        found = sweep(
            depths=(3, 12) if quick else (3, 12, 64),
            widths=(15, 40) if quick else _WIDTHS,
            inputs=("normal",) if quick else ("normal", "sphere", "uniform"),
            seeds=1 if quick else 3,
            points=200 if quick else 1000,
            rng=seed,
        )
        rows = found.means("depth", "width")
        grown = sweep(depths=(12,) if quick else (12, 21), widths=(15,), inputs=("normal",), growths=(1.0, _GROWTH),
                      seeds=1 if quick else 6, points=200 if quick else 1000, rng=seed)  # fmt: skip
        grown_rows = grown.means("depth", "width", "growth")
        report(1, "claims")
        claims = check_claims(draws=40_000 if quick else 400_000, rng=rng)
        files = _figures(folder, seed, quick, report)
    remarks = [
        f"means over {rows[0]['trials']} random networks each, seed {seed}; the last hidden layer unless named all_*",
        *(
            f"{c.name}: printed {c.printed_value:.4g} ({c.printed}), measured {c.measured:.4g}, "
            f"right {c.right_value:.4g} ({c.right}): {'holds' if c.holds else 'fails as printed'}"
            for c in claims
        ),
        "layers that grow (section 4.4.3), first layer whose centred stable rank is below 1.1:",
        *(
            f"depth {row['depth']}, from {row['width']} units, growth {row['growth']:g}: "
            f"{'none' if row['collapse'] is None else format(row['collapse'], 'g')}; at the end stable rank "
            f"{row['stable_rank']:.3g}, {row['nonzero_eigenvalues']:.0f} non-zero eigenvalues"
            for row in grown_rows
        ),
        f"pictures in {folder}/: {', '.join(files)}",
    ]
    return Reproduction("thesis4", rows, remarks, files)


def _figures(folder: Path, seed: int, quick: bool, report: Any) -> list[str]:
    """Write the figures; `quick` draws one of each kind from small networks."""
    from reluscope.plot._axes import save

    points, deep = (200, 12) if quick else (1000, 64)
    files: list[str] = []
    for number, draw in _plans(seed, points, deep).items():
        if quick and number not in _ONE_OF_EACH_KIND:
            continue
        name = f"figure-4.{number}.png"
        save(np.ravel(draw())[0], folder / name)
        files.append(name)
        report(1 + len(files), name)
    return files


_ONE_OF_EACH_KIND = (1, 3, 7, 12)


def _plans(seed: int, points: int, deep: int) -> dict[int, Callable[[], Any]]:
    """What draws each figure, by its number in chapter 4."""

    def net(
        width: int,
        depth: int,
        kind: str,
        bias: float = BIAS,
        mean: float = 0.0,
        scale: float = 1.0,
        growth: float = 1.0,
    ) -> Layers:
        child = np.random.default_rng([seed, width, depth])
        drawn = random_network([width, *layer_widths(width, depth, growth), 1], bias=bias * scale, rng=child)
        return measure(drawn, random_cloud(kind, points, width, mean=mean, scale=scale, rng=child), cloud=400)

    def page(widths: list[int], kind: str, bias: float = BIAS, scale: float = 1.0) -> Any:
        child = np.random.default_rng([seed, *widths[:2], len(widths)])
        drawn = random_network(widths, bias=bias * scale, rng=child)
        X = random_cloud(kind, points, widths[0], scale=scale, rng=child)
        return layers(drawn, X, jacobians=8, rng=child).plot()

    by_layer = [k for k in (0, 3, 7, 15, 31, 63) if k < deep]
    few, fewer = min(deep, 50), min(deep, 20)

    def by_width(depth: int) -> Any:
        return _histograms([net(w, depth, "normal") for w in _WIDTHS], [None], f"depth {depth}, all layers")

    return {
        1: lambda: _histograms([net(100, deep, "uniform")], by_layer, "width 100, uniform inputs"),
        2: lambda: _histograms([net(15, deep, "normal")], by_layer, "width 15, normal inputs"),
        3: lambda: by_width(3),
        4: lambda: by_width(12),
        5: lambda: by_width(deep),
        6: lambda: _histograms(
            [*(net(w, 21, "normal") for w in _WIDTHS), net(15, 21, "normal", growth=_GROWTH)],
            [0, 2, 6, 9, 14, 20],
            "by layer and width",
        ),
        7: lambda: net(20, deep - 1, "sphere").plot_clouds(),
        8: lambda: net(20, deep - 1, "sphere", bias=0.0, scale=100.0).plot_clouds(),
        9: lambda: net(100, deep - 1, "normal", scale=20.0).plot_clouds(),
        10: lambda: net(100, deep - 1, "normal", bias=0.0, mean=-20.0, scale=100.0).plot_clouds(),
        11: lambda: net(20, deep - 1, "normal", scale=100.0).plot_clouds("coordinates"),
        12: lambda: page([2] + [20] * few + [1], "normal"),
        13: lambda: page([100] * (few + 1) + [1], "normal", scale=100.0),
        14: lambda: page([20] * (few + 1) + [1], "sphere"),
        15: lambda: page([100] * (fewer + 1) + [1], "sphere"),
        16: lambda: page([100] * (fewer + 1) + [1], "sphere", bias=0.0),
    }


def _histograms(found: list[Layers], chosen: list[Any], title: str) -> Any:
    """Activity histograms: one row per network, one column per layer (None: all layers), or the other way for one."""
    from matplotlib.figure import Figure

    from reluscope.plot.layers import plot_activity

    across = len(found) == 1 or len(chosen) > 1
    shape = (len(found), len(chosen)) if across else (1, len(found))
    figure = Figure(figsize=(2.9 * shape[1], 2.3 * shape[0] + 0.3), dpi=130, layout="constrained")
    panels = figure.subplots(*shape, sharey=True, squeeze=False)
    cells = [(f, layer) for f in found for layer in chosen]
    for k, (ax, (one, layer)) in enumerate(zip(panels.ravel(), cells, strict=True)):
        plot_activity(one, ax, layer=layer)
        first, last = one.rows[1].units, one.rows[-2].units
        width = f"width {first}" if first == last else f"width {first} to {last}"
        where = "all layers" if layer is None else f"layer {layer}"
        ax.set_title(where if len(found) == 1 else width if layer is None else f"{width}, {where}", fontsize="small")
        if k % shape[1]:
            ax.set_ylabel("")
        if k < (shape[0] - 1) * shape[1]:
            ax.set_xlabel("")
    figure.suptitle(title, fontsize="medium")
    return panels
