"""Pictures of local linear models: functions that take and return an Axes.

`plot(u, kind)` draws one of `KINDS`; `plot_explanation`, `plot_intervals`, `plot_merged` and `plot_l1_path` belong to
the records of the same name, which call them from their `plot` methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray, choice, integer
from reluscope._text import count
from reluscope.cells.domain import box_bounds
from reluscope.errors import InputError
from reluscope.plot._axes import EDGE, axes

if TYPE_CHECKING:
    from reluscope.local_models.explain import Explanation
    from reluscope.local_models.inference import Intervals
    from reluscope.local_models.l1_path import L1Path
    from reluscope.local_models.merge import MergedModels
    from reluscope.local_models.unwrap import Unwrapped

BLUE, RED, GREY, ORANGE = "#1d6fb8", "#d1495b", "#8d99ae", "#e09f3e"

_MOST_POINTS = 4000
"""Rows drawn as points; more are thinned out evenly."""


def plot(u: Unwrapped, kind: str, ax: Any = None, **options: Any) -> Any:
    """Draw one of `KINDS` and return the Axes."""
    choice(kind, "kind", tuple(KINDS))
    return KINDS[kind](u, ax, **options)


def plot_models_2d(
    u: Unwrapped, ax: Any = None, *, view: Any = None, arrows: int = 40, output: int = 0, points: bool = True
) -> Any:
    """Regions of a network with two inputs, the data, and the coefficients of the largest regions as arrows.

    The ground shows the output (blue below 0, red above); an arrow starts at the middle of a region's rows and
    points where its local model rises, longer for larger coefficients.
    """
    if u.network.n_inputs != 2:
        raise InputError(f'the picture "regions" is for 2 inputs, got {u.network.n_inputs}; try "parallel"')
    from reluscope.cells.regions import regions
    from reluscope.local_models.merge import _centroids
    from reluscope.plot.regions import plot_regions

    ax = axes(ax, figsize=(6.2, 5.2))
    lower, upper = _box(u, view)
    drawn = plot_regions(
        regions(u.network, (lower, upper), progress=None), ax, output=output, linewidths=0.25, alpha=0.75
    )
    if points:
        _scatter(u, drawn)
    some = np.arange(min(integer(arrows, "arrows", low=0), len(u)))
    if len(some):
        start = _centroids(u)[0][some]
        slope = u.maps(some)[0][:, output, :]
        reach = 0.09 * float(np.min(upper - lower)) / max(float(np.linalg.norm(slope, axis=1).max()), 1e-300)
        # White under black, so that arrows stand out on any colour.
        for colour, width in (("white", 0.009), ("black", 0.0045)):
            drawn.quiver(
                *start.T,
                *(reach * slope).T,
                angles="xy",
                scale_units="xy",
                scale=1,
                width=width,
                color=colour,
                zorder=4,
                headwidth=3.6,
            )
    drawn.set_xlabel(u.feature_names[0])
    drawn.set_ylabel(u.feature_names[1])
    drawn.set_title(f"{len(u):,} regions with data", fontsize="medium")
    return drawn


def plot_parallel(
    u: Unwrapped, ax: Any = None, *, top: int = 30, features: int = 20, output: int = 0, scaled: bool = True
) -> Any:
    """Coefficients of the largest regions as lines across the features, coloured by their mean response.

    `scaled` coefficients are multiplied by the feature's standard deviation over the data: the change of the output for
    one standard deviation, which can be compared across features of unlike units.
    """
    ax = axes(ax, figsize=(7.2, 4.2))
    shown = np.arange(min(integer(top, "top", low=1), len(u)))
    columns = _top_features(u, features, output)
    C = u.maps(shown)[0][:, output][:, columns] * (u.spread[columns] if scaled else 1.0)
    value, label = _colour(u, shown, output)
    place = np.arange(len(columns))
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    norm = Normalize(float(np.nanmin(value)), max(float(np.nanmax(value)), float(np.nanmin(value)) + 1e-12))
    cmap = colormaps["viridis"]
    weight = np.sqrt(u.count[shown] / u.count[shown].max())
    for k in shown[::-1].tolist():
        ax.plot(place, C[k], color=cmap(norm(value[k])), alpha=0.35 + 0.6 * weight[k], linewidth=0.6 + 1.8 * weight[k])
    ax.axhline(0, color=EDGE, linewidth=0.6, linestyle=":")
    _name_ticks(ax, place, [u.feature_names[j] for j in columns])
    ax.set_xlabel("feature, most important first")
    ax.set_ylabel(_coefficient_name(scaled))
    ax.set_title(f"the {len(shown)} largest regions", fontsize="medium")
    ax.figure.colorbar(ScalarMappable(norm, cmap), ax=ax, label=label, shrink=0.85)
    return ax


def plot_violin(u: Unwrapped, ax: Any = None, *, features: int = 20, output: int = 0, scaled: bool = True) -> Any:
    """How the local coefficient of each feature varies over the rows; most important feature on top.

    `scaled` coefficients are multiplied by the feature's standard deviation over the data (see `plot_parallel`).
    """
    columns = _top_features(u, features, output)
    ax = axes(ax, figsize=(5.6, 1.2 + 0.32 * len(columns)))
    every = np.arange(0, len(u.region), max(1, len(u.region) // _MOST_POINTS))
    found, row = np.unique(u.region[every], return_inverse=True)
    C = u.maps(found)[0][row, output][:, columns] * (u.spread[columns] if scaled else 1.0)
    place = np.arange(len(columns))[::-1]
    varied = [k for k in range(len(columns)) if np.ptp(C[:, k]) > 0]
    if varied:
        parts = ax.violinplot(
            [C[:, k] for k in varied], place[varied], orientation="horizontal", widths=0.85, showextrema=False
        )
        for body in parts["bodies"]:
            body.set(facecolor=BLUE, alpha=0.55, edgecolor=EDGE, linewidth=0.5)
    low, mid, high = np.quantile(C, [0.25, 0.5, 0.75], axis=0)
    ax.hlines(place, low, high, color=EDGE, linewidth=2.2)
    ax.plot(mid, place, "o", color="white", markersize=3.5, markeredgecolor=EDGE, zorder=4)
    ax.axvline(0, color=EDGE, linewidth=0.6, linestyle=":")
    ax.set_yticks(place, [u.feature_names[j] for j in columns], fontsize="small")
    ax.set_xlabel(f"{_coefficient_name(scaled)}, over rows")
    return ax


def plot_importance(u: Unwrapped, ax: Any = None, *, features: int = 20, output: int | None = None) -> Any:
    """Importance of the features by both conventions, largest (by variance) on top."""
    found = u.importance(output=output)
    order = np.argsort(-found.variance, kind="stable")[: integer(features, "features", low=1)]
    ax = axes(ax, figsize=(5.6, 1.2 + 0.3 * len(order)))
    place = np.arange(len(order))[::-1]
    ax.barh(place + 0.2, found.variance[order], 0.38, color=BLUE, label="variance of contributions")
    ax.barh(place - 0.2, found.squares[order], 0.38, color=GREY, label="count × coefficient² (depends on units)")
    ax.set_yticks(place, [u.feature_names[j] for j in order], fontsize="small")
    ax.set_xlabel("share")
    _legend_above(ax)
    return ax


def plot_profile(u: Unwrapped, ax: Any = None, *, feature: Any = None, output: int = 0) -> Any:
    """The local coefficient of one feature in every row, and its mean along the feature."""
    p = u.profile(_default(u, feature, output), output=output)
    ax = axes(ax, figsize=(5.2, 3.6))
    _cloud(ax, u, p.value, p.coefficient, output)
    bins = p.binned()
    ax.errorbar(
        bins["value"], bins["coefficient"], bins["coefficient_std"], color=EDGE, linewidth=1.4, capsize=2, zorder=4
    )
    ax.axhline(0, color=EDGE, linewidth=0.6, linestyle=":")
    ax.set_xlabel(p.feature)
    ax.set_ylabel("local coefficient")
    ax.set_title("coefficient in each row; mean and deviation in bins", fontsize="medium")
    return ax


def plot_partial(u: Unwrapped, ax: Any = None, *, feature: Any = None, output: int = 0, fraction: float = 0.3) -> Any:
    """The centred contribution of one feature in every row, and a smooth curve through it."""
    p = u.profile(_default(u, feature, output), output=output)
    ax = axes(ax, figsize=(5.2, 3.6))
    _cloud(ax, u, p.value, p.contribution, output)
    ax.plot(*p.partial(fraction), color=EDGE, linewidth=1.8, zorder=4)
    ax.axhline(0, color=EDGE, linewidth=0.6, linestyle=":")
    ax.set_xlabel(p.feature)
    ax.set_ylabel("contribution to the output, centred")
    ax.set_title("contribution in each row; smooth mean", fontsize="medium")
    return ax


def plot_pair(u: Unwrapped, ax: Any = None, *, first: Any = None, second: Any = None, output: int = 0) -> Any:
    """Mean joint contribution of two features on a grid of their quantiles."""
    order = _top_features(u, 2, output)
    one = order[0] if first is None else first
    two = order[min(1, len(order) - 1)] if second is None else second
    found = u.pair(one, two, output=output)
    ax = axes(ax, figsize=(5.4, 4.2))
    top = max(float(np.nanmax(np.abs(found.mean))), 1e-12)
    drawn = ax.pcolormesh(*found.edges, found.mean.T, cmap="RdBu_r", vmin=-top, vmax=top, edgecolors="none")
    ax.set_facecolor("#eeeeee")  # cells without rows
    ax.set_xlabel(found.features[0])
    ax.set_ylabel(found.features[1])
    ax.figure.colorbar(drawn, ax=ax, label="mean joint contribution", shrink=0.85)
    return ax


def plot_performance(u: Unwrapped, ax: Any = None, *, top: int = 20) -> Any:
    """Local and global score of the largest regions, with the network's own as a line."""
    table, metric = _scored(u)
    n = min(integer(top, "top", low=1), len(u))
    place = np.arange(n)
    ax = axes(ax, figsize=(6.4, 3.6))
    ax.bar(place - 0.2, table[f"local_{metric}"][:n], 0.38, color=BLUE, label="its own rows")
    ax.bar(place + 0.2, table[f"global_{metric}"][:n], 0.38, color=ORANGE, label="all rows")
    ax.axhline(u.score, color=RED, linewidth=1.1, label="network")
    missing = np.flatnonzero(np.isnan(table[f"local_{metric}"][:n]))
    ax.plot(missing - 0.2, np.zeros(len(missing)), "x", color=BLUE, markersize=4, clip_on=False)
    _name_ticks(ax, place, [f"{c:,}" for c in table["count"][:n]], rotation=60 if n > 8 else 0)
    ax.set_xlabel("rows in the region")
    ax.set_ylabel(_score_name(metric))
    mark = "; × one class only" if len(missing) and metric == "auc" else ""
    ax.set_title(f"local models of the {n} largest regions{mark}", fontsize="medium")
    if metric == "mse":
        ax.set_yscale("log")
    ax.legend(frameon=False, fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.28))
    return ax


def plot_bubble(u: Unwrapped, ax: Any = None, *, top: int = 100) -> Any:
    """The largest regions: mean response against local score, bubbles by rows, colour by global score."""
    table, metric = _scored(u)
    n = min(integer(top, "top", low=1), len(u))
    ax = axes(ax, figsize=(5.8, 4.2))
    mean = "majority_share" if "majority_share" in table.columns else "response_mean"
    if mean not in table.columns:
        raise InputError("the bubble picture needs one output; pass a network with one, or use the table")
    x, y, c = table[mean][:n], table[f"local_{metric}"][:n], table[f"global_{metric}"][:n]
    size = 20 + 480 * table["count"][:n] / table["count"].max()
    known = np.isfinite(y)
    drawn = ax.scatter(
        x[known], y[known], s=size[known], c=c[known], cmap="viridis", alpha=0.75, edgecolors=EDGE, linewidths=0.5
    )
    ax.set_xlabel("share of the most frequent class" if mean == "majority_share" else "mean response in the region")
    ax.set_ylabel(f"local {_score_name(metric)}")
    left_out = int((~known).sum())
    note = f" ({left_out} of one class left out)" if left_out else ""
    ax.set_title(f"the {n} largest regions{note}", fontsize="medium")
    ax.margins(0.12)
    ax.figure.colorbar(drawn, ax=ax, label=f"global {_score_name(metric)}", shrink=0.85)
    return ax


KINDS: dict[str, Callable[..., Any]] = {
    "regions": plot_models_2d,
    "parallel": plot_parallel,
    "violin": plot_violin,
    "importance": plot_importance,
    "profile": plot_profile,
    "partial": plot_partial,
    "pair": plot_pair,
    "performance": plot_performance,
    "bubble": plot_bubble,
}
"""What `Unwrapped.plot` can draw."""


def plot_explanation(
    e: Explanation, ax: Any = None, *, output: int | None = None, top: int = 10, centred: bool = True
) -> Any:
    """Waterfall to the prediction, feature by feature, largest step first.

    Centred, it starts from the local model at the mean of the data; else from its intercept, in original units.
    """
    k = int(np.argmax(e.output)) if output is None else integer(output, "output", low=0, high=len(e.output) - 1)
    value, coefficient, intercept = e.original
    steps = e.centred[k] if centred else coefficient[k] * value
    start = float(e.baseline[k] if centred else intercept[k])
    order = np.argsort(-np.abs(steps), kind="stable")
    shown = order[: integer(top, "top", low=1)]
    rest = order[len(shown) :]
    parts = [(f"{e.unwrapped.feature_names[j]} = {value[j]:.4g}", float(steps[j])) for j in shown]
    if len(rest):
        parts.append((f"{len(rest)} others", float(steps[rest].sum())))
    ax = axes(ax, figsize=(6.0, 1.4 + 0.34 * (len(parts) + 2)))
    levels = start + np.concatenate([[0.0], np.cumsum([step for _, step in parts])])
    reach = max(float(np.ptp(levels)), 1e-12)
    place = len(parts)
    for i, (_, step) in enumerate(parts):
        end = levels[i + 1]
        ax.barh(place - i, step, 0.62, left=levels[i], color=RED if step > 0 else BLUE)
        ax.plot([end] * 2, [place - i - 0.31, place - i - 1 + 0.31], color=EDGE, linewidth=0.6)
        at = max(levels[i], end) + 0.015 * reach
        ax.text(at, place - i, f"{step:+.3g}", va="center", fontsize="x-small", color=EDGE)
    ax.plot(levels[0], place + 1, "|", color=EDGE, markersize=12)
    ax.plot(levels[-1], 0, "D", color=EDGE, markersize=5)
    first = "at the mean" if centred else "intercept"
    names = [f"{first}: {levels[0]:.4g}", *(name for name, _ in parts), f"prediction: {levels[-1]:.4g}"]
    ax.set_yticks(np.arange(place + 1, -1, -1), names, fontsize="small")
    ax.set_xlim(levels.min() - 0.06 * reach, levels.max() + 0.16 * reach)
    which = "" if len(e.output) == 1 else f" {e.unwrapped.output_names[k]}"
    ax.set_xlabel(f"output{which}")
    where = f"region {e.region}, {count(e.count, 'row')}" if e.has_data else "no data in this region"
    ax.set_title(f"exact contributions ({where})", fontsize="medium")
    return ax


def plot_intervals(found: Intervals, ax: Any = None, *, intercept: bool = False) -> Any:
    """Intervals of the refitted coefficients, with those of the local model as crosses."""
    first = 0 if intercept else 1
    place = np.arange(len(found.names) - first)[::-1]
    ax = axes(ax, figsize=(5.4, 1.2 + 0.3 * len(place)))
    estimate = found.estimate[first:]
    gap = np.vstack([estimate - found.lower[first:], found.upper[first:] - estimate])
    ax.errorbar(
        estimate, place, xerr=np.maximum(gap, 0), fmt="o", color=BLUE, markersize=4, capsize=2, label="refitted"
    )
    ax.plot(found.network[first:], place, "x", color=RED, markersize=5, label="local model")
    ax.axvline(0, color=EDGE, linewidth=0.6, linestyle=":")
    named = zip(found.names[first:], found.aliased[first:].tolist(), strict=True)
    ax.set_yticks(place, [f"{name} (aliased)" if lost else name for name, lost in named], fontsize="small")
    ax.set_ylim(-0.7, len(place) - 0.3)
    ax.set_xlabel(f"coefficient ({found.method}, {100 * found.level:g} %, {found.rows_used:,} rows)")
    _legend_above(ax)
    return ax


def plot_merged(m: MergedModels, kind: str = "dendrogram", ax: Any = None, **options: Any) -> Any:
    """`"dendrogram"`, `"validation"` (loss against the number of models) or `"regions"` (two inputs)."""
    choice(kind, "kind", ("dendrogram", "validation", "regions"))
    if kind == "dendrogram":
        return _dendrogram(m, ax, **options)
    return _validation(m, ax, **options) if kind == "validation" else _clusters(m, ax, **options)


def plot_l1_path(path: L1Path, ax: Any = None) -> Any:
    """Regions with data (log scale) and test score against the penalty; a penalty of 0 stands at the left end."""
    ax = axes(ax, figsize=(6.2, 3.8))
    penalty = path.penalties
    positive = penalty[penalty > 0]
    place = np.where(penalty > 0, penalty, (positive.min() / 3) if len(positive) else 1e-5)
    regions = [p.regions for p in path.points]
    single = [p.regions * p.single_row_share for p in path.points]
    ax.plot(place, regions, "o-", color=BLUE, label="regions with data")
    ax.fill_between(place, 0.8, np.maximum(single, 0.8), color=BLUE, alpha=0.15, label="of these with a single row")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(0.8, 2 * max(regions))
    ax.set_xlabel("L1 penalty")
    ax.set_ylabel("regions", color=BLUE)
    if len(positive) < len(penalty):
        ticks = place if len(place) <= 9 else place[:: len(place) // 8 + 1]
        labels = ["0" if p == place[0] else f"{p:.2g}" for p in ticks]
        ax.set_xticks(ticks, labels, fontsize="small")
        ax.minorticks_off()
    other = ax.twinx()
    test = [p.test_score for p in path.points]
    train = [p.train_score for p in path.points]
    other.plot(place, test, "s-", color=RED, markersize=4, label=f"test {_score_name(path.metric)}")
    other.plot(place, train, "s--", color=RED, markersize=3, alpha=0.45, label=f"training {_score_name(path.metric)}")
    other.set_ylabel(_score_name(path.metric), color=RED)
    other.margins(y=0.35)
    lines = [*ax.get_legend_handles_labels()[0], *other.get_legend_handles_labels()[0]]
    ax.legend(
        lines,
        [line.get_label() for line in lines],
        frameon=False,
        fontsize="small",
        ncols=2,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.18),
    )
    return ax


def _dendrogram(m: MergedModels, ax: Any, *, leaves: int = 40) -> Any:
    if m.dendrogram is None:
        raise InputError("these models were pruned, not merged: there is no dendrogram")
    from scipy.cluster.hierarchy import dendrogram

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
        ax.text(
            0.995,
            cut,
            f"{len(m)} models ",
            color=RED,
            fontsize="small",
            ha="right",
            va="bottom",
            transform=ax.get_yaxis_transform(),
        )
    ax.tick_params(axis="x", rotation=60)
    ax.set_xlabel(f"rows in each of the last {n} clusters")
    ax.set_ylabel("root of the cost of the merge")
    ax.set_title(f"{len(m.dendrogram):,} regions merged ({m.adjacency})", fontsize="medium")
    return ax


def _validation(m: MergedModels, ax: Any) -> Any:
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
    ax.set_xlabel("number of models")
    ax.set_ylabel("mean squared error, held out" if m.task == "regression" else "log loss, held out")
    ax.legend(frameon=False, fontsize="small")
    return ax


def _clusters(m: MergedModels, ax: Any, *, view: Any = None) -> Any:
    u = m._source("this picture")
    if m.network.n_inputs != 2:
        raise InputError(f'the picture "regions" is for 2 inputs, got {m.network.n_inputs}')
    ax = axes(ax, figsize=(5.6, 5.0))
    lower, upper = _box(u, view)
    sides = [np.linspace(lo, hi, 401)[1::2] for lo, hi in zip(lower, upper, strict=True)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    cluster = m.assign(grid).reshape(200, 200)
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    pale = ListedColormap(0.45 + 0.55 * colormaps["tab20"](np.arange(len(m)) % 20)[:, :3])
    extent = (lower[0], upper[0], lower[1], upper[1])
    ax.imshow(cluster, extent=extent, origin="lower", aspect="auto", cmap=pale, vmin=-0.5, vmax=len(m) - 0.5)
    _scatter(u, ax)
    eta = m.decision(grid)[:, 0].reshape(200, 200)
    level = 0.0 if m.task == "binary" else float(np.median(eta))
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
    ax.set_xlabel(m.feature_names[0])
    ax.set_ylabel(m.feature_names[1])
    ax.set_title(f"{len(m)} merged models of {len(m.centroid):,} regions", fontsize="medium")
    return ax


# -- small things ----------------------------------------------------------------------------------------------


def _box(u: Unwrapped, view: Any) -> tuple[FloatArray, FloatArray]:
    if view is not None:
        return box_bounds(view, 2, "view")
    from reluscope.local_models.coverage import data_box

    low, high = data_box(u)
    margin = 0.04 * np.maximum(high - low, 1e-9)
    return low - margin, high + margin


def _scatter(u: Unwrapped, ax: Any) -> None:
    """The rows as points, coloured by class (numbers: all alike)."""
    step = max(1, len(u.region) // _MOST_POINTS)
    X = np.asarray(u.X[::step], dtype=np.float64)
    if u.response.code is None:
        ax.scatter(*X.T, s=3, color=EDGE, alpha=0.5, linewidths=0)
        return
    code = u.response.code[::step]
    for k, name in enumerate(u.response.classes):
        colour = (BLUE, RED)[k] if len(u.response.classes) == 2 else f"C{k % 10}"
        ax.scatter(*X[code == k].T, s=5, color=colour, edgecolors="white", linewidths=0.15, label=str(name), zorder=3)


def _cloud(ax: Any, u: Unwrapped, x: FloatArray, y: FloatArray, output: int) -> None:
    step = max(1, len(x) // _MOST_POINTS)
    response = u.response.column(output)
    distinct = np.unique(x)
    if 1 < len(distinct) <= 30:  # a few values: spread the points, or they would hide one another
        x = x + np.random.default_rng(0).uniform(-0.2, 0.2, len(x)) * np.diff(distinct).min()
    if response is None:
        ax.scatter(x[::step], y[::step], s=4, color=GREY, alpha=0.5, linewidths=0)
        return
    chosen = slice(None, None, step)
    if u.response.code is not None:
        for value, colour in ((0.0, BLUE), (1.0, RED)):
            some = response[chosen] == value
            name = _class_name(u, output, value)
            ax.scatter(x[chosen][some], y[chosen][some], s=5, color=colour, alpha=0.35, linewidths=0, label=name)
        ax.legend(frameon=False, fontsize="small", markerscale=2)
        return
    drawn = ax.scatter(x[chosen], y[chosen], s=5, c=response[chosen], cmap="viridis", alpha=0.6, linewidths=0)
    ax.figure.colorbar(drawn, ax=ax, label="response", shrink=0.85)


def _class_name(u: Unwrapped, output: int, value: float) -> str:
    if u.task == "binary":
        return str(u.response.classes[int(value)])
    return str(u.response.classes[output]) if value else "others"


def _colour(u: Unwrapped, regions: Any, output: int) -> tuple[FloatArray, str]:
    response = u.response.column(output)
    if response is None:
        return np.log10(u.count[regions]), "log10 of the rows"
    mean = np.bincount(u.region, response, minlength=len(u))[regions] / u.count[regions]
    return mean, "mean response"


def _top_features(u: Unwrapped, features: int, output: int | None) -> Any:
    n = integer(features, "features", low=1)
    return np.argsort(-u.importance(output=output).variance, kind="stable")[:n]


def _default(u: Unwrapped, feature: Any, output: int) -> Any:
    """The feature asked for, or the most important one."""
    return int(_top_features(u, 1, output)[0]) if feature is None else feature


def _name_ticks(ax: Any, place: Any, names: list[str], rotation: int | None = None) -> None:
    turn = (0 if len(names) <= 6 and max(map(len, names)) <= 10 else 50) if rotation is None else rotation
    ax.set_xticks(place, names, rotation=turn, ha="right" if turn else "center", fontsize="small")


def _legend_above(ax: Any) -> None:
    ax.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def _scored(u: Unwrapped) -> tuple[Any, str]:
    if u.task == "none":
        raise InputError("this picture shows scores and needs a response; pass y to unwrap")
    return u.table, u.metric


def _coefficient_name(scaled: bool) -> str:
    return "local coefficient × sd of the feature" if scaled else "local coefficient"


def _score_name(metric: str) -> str:
    return {"auc": "AUC", "mse": "mean squared error", "accuracy": "accuracy"}[metric]
