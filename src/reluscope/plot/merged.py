"""Pictures of simpler models: merged models and the L1 path; the records call them from their `plot` methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import choice, integer
from reluscope._lazy import late
from reluscope.errors import InputError
from reluscope.local_models.l1_path import L1Path
from reluscope.local_models.merged import MergedModels, unwrapped_of
from reluscope.plot._axes import BLUE, EDGE, GREY, RED, axes, expect, in_units, name_axes
from reluscope.plot._data import data_view, feature_labels
from reluscope.plot.local_models import scatter_rows, score_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_merged(m: MergedModels, kind: str = "dendrogram", ax: Axes | None = None, **options: Any) -> Axes:
    """`"dendrogram"`, `"validation"` (loss against the number of models) or `"regions"` (two inputs).

    Parameters
    ----------
    m : MergedModels
        What `Unwrapped.merge` or `Unwrapped.prune` gives.
    kind : {"dendrogram", "validation", "regions"}
        Which picture.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    **options
        `leaves=` of the dendrogram, `view=` of the regions.

    Returns
    -------
    matplotlib Axes
    """
    expect(m, MergedModels, "m", "u.merge()")
    choice(kind, "kind", ("dendrogram", "validation", "regions"))
    if kind == "dendrogram":
        return _dendrogram(m, ax, **options)
    return _validation(m, ax, **options) if kind == "validation" else _clusters(m, ax, **options)


def _dendrogram(m: MergedModels, ax: Axes | None, *, leaves: int = 40) -> Axes:
    if m.dendrogram is None:
        raise InputError("these models were pruned, not merged: there is no dendrogram")
    dendrogram = late("scipy.cluster.hierarchy", "dendrogram")

    ax = axes(ax, figsize=(7.2, 4.0))
    n = min(integer(leaves, "leaves", low=2), len(m.dendrogram))
    if n < 2:
        raise InputError("a single region makes no dendrogram")
    Z, weight = m.dendrogram.linkage(n)
    Z[:, 2] = np.sqrt(Z[:, 2])  # roots: the last merges would hide all others
    cut = 0.0
    if 1 < len(m) <= n:
        cut = 0.5 * (Z[n - len(m) - 1, 2] + Z[n - len(m), 2]) if len(m) < n else 0.5 * Z[0, 2]
    labels = [f"{w:,.0f}" for w in weight]
    dendrogram(Z, ax=ax, labels=labels, color_threshold=cut or 0.0, above_threshold_color=GREY, leaf_font_size=7)
    if cut:
        ax.axhline(cut, color=RED, linewidth=0.9, linestyle="--")
        style: dict[str, Any] = {"color": RED, "fontsize": "small", "ha": "right", "va": "bottom"}
        ax.text(0.995, cut, f"{len(m)} models ", transform=ax.get_yaxis_transform(), **style)
    ax.tick_params(axis="x", rotation=60)
    name_axes(ax, f"rows in each of the last {n} clusters", "root of the cost of the merge")
    name_axes(ax, title=f"{len(m.dendrogram):,} regions merged ({m.adjacency})")
    return ax


def _validation(m: MergedModels, ax: Axes | None) -> Axes:
    if not m.validation:
        raise InputError("the number of models was given, so nothing was cross-validated; merge with n=None")
    ax = axes(ax, figsize=(5.4, 3.6))
    n = [v.n for v in m.validation]
    loss = np.array([v.loss for v in m.validation])
    error = np.array([v.error for v in m.validation])
    ax.errorbar(n, loss, error, fmt="o-", color=BLUE, markersize=4, capsize=2, linewidth=1.1)
    best = int(loss.argmin())
    ax.axhline(loss[best] + error[best], color=GREY, linewidth=0.8, linestyle="--", label="best + 1 standard error")
    ax.axvline(len(m), color=RED, linewidth=1.0, label=f"chosen: {len(m)}")
    name_axes(
        ax, "number of models", "mean squared error, held out" if m.task == "regression" else "log loss, held out"
    )
    ax.legend(frameon=False, fontsize="small")
    return ax


def _clusters(m: MergedModels, ax: Axes | None, *, view: Any = None) -> Axes:
    u = unwrapped_of(m, "this picture")
    if m.network.n_inputs != 2:
        raise InputError(f'the picture "regions" is for 2 inputs, got {m.network.n_inputs}')
    ax = axes(ax, figsize=(5.6, 5.0))
    lower, upper = data_view(u, view)
    sides = [np.linspace(lo, hi, 401)[1::2] for lo, hi in zip(lower, upper, strict=True)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    cluster = m.assign(grid).reshape(200, 200)
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    pale = ListedColormap(0.45 + 0.55 * colormaps["tab20"](np.arange(len(m)) % 20)[:, :3])
    extent = (lower[0], upper[0], lower[1], upper[1])
    ax.imshow(cluster, extent=extent, origin="lower", aspect="auto", cmap=pale, vmin=-0.5, vmax=len(m) - 0.5)
    scatter_rows(u, ax)
    eta = m.outputs(grid)[:, 0].reshape(200, 200)
    level = _limit(u) if m.task == "binary" else float(np.median(eta))
    if m.task != "multiclass" and eta.min() < level < eta.max():
        for k in range(len(m)):
            own = np.where(cluster == k, eta, np.nan)
            if np.nanmin(own) < level < np.nanmax(own):
                ax.contour(*sides, own, levels=[level], colors="black", linewidths=1.3)
    middle = np.array(
        [grid[(cluster == k).ravel()].mean(axis=0) if (cluster == k).any() else [np.nan] * 2 for k in range(len(m))]
    )
    for k, (x, y) in enumerate(middle.tolist()):
        if np.isfinite(x):
            box = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": EDGE, "linewidth": 0.6}
            ax.text(x, y, str(k), fontsize="small", ha="center", va="center", bbox=box)
    in_units(ax, *feature_labels(u)[:2])
    name_axes(ax, title=f"{len(m)} merged models of {len(m.cluster_of_region):,} regions")
    return ax


def _limit(u: Any) -> float:
    """The logit at which the decision turns."""
    schema = u.network.schema
    found = None if schema is None else schema.threshold()
    return 0.0 if found is None else found


def plot_l1_path(path: L1Path, ax: Axes | None = None) -> Axes:
    """Regions with data (log scale) and test score against the penalty; a penalty of 0 stands at the left end.

    Parameters
    ----------
    path : L1Path
        What `reluscope.l1_path(X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib Axes
    """
    expect(path, L1Path, "path", "reluscope.l1_path(X, y)")
    ax = axes(ax, figsize=(6.2, 3.8))
    penalty = path.penalties
    positive = penalty[penalty > 0]
    place = np.where(penalty > 0, penalty, (positive.min() / 3) if len(positive) else 1e-5)
    regions = [p.regions for p in path.points]
    single = [p.regions * p.single_row_share for p in path.points]
    ax.plot(place, regions, "o-", color=BLUE, label="regions with data")
    ax.fill_between(place, 0.8, np.maximum(single, 0.8), color=BLUE, alpha=0.15, label="of these with a single row")
    ax.set(xscale="log", yscale="log", ylim=(0.8, 2 * max(regions)), xlabel="L1 penalty")
    ax.set_ylabel("regions", color=BLUE)
    if len(positive) < len(penalty):
        ticks = place if len(place) <= 9 else place[:: len(place) // 8 + 1]
        labels = ["0" if p == place[0] else f"{p:.2g}" for p in ticks]
        ax.set_xticks(ticks, labels, fontsize="small")
        ax.minorticks_off()
    other = ax.twinx()
    test = [p.test_score for p in path.points]
    train = [p.train_score for p in path.points]
    other.plot(place, test, "s-", color=RED, markersize=4, label=f"test {score_name(path.metric)}")
    other.plot(place, train, "s--", color=RED, markersize=3, alpha=0.45, label=f"training {score_name(path.metric)}")
    other.set_ylabel(score_name(path.metric), color=RED)
    other.margins(y=0.35)
    lines = [*ax.get_legend_handles_labels()[0], *other.get_legend_handles_labels()[0]]
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncols": 2}
    ax.legend(lines, [str(line.get_label()) for line in lines], frameon=False, fontsize="small", **below)
    return ax
