"""Pictures of local linear models: functions that take and return an Axes.

`plot(u, kind)` draws one of `KINDS`; `plot_explanation`, `plot_intervals`, `plot_merged` and `plot_l1_path` belong to
the records of the same name, which call them from their `plot` methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray, choice, flag, integer
from reluscope.errors import InputError
from reluscope.local_models._data import Units, headed
from reluscope.local_models.unwrap import Unwrapped
from reluscope.plot._axes import BLUE, EDGE, GREY, ORANGE, RED, axes, expect, in_units, legend_above, name_axes
from reluscope.plot._data import data_view, feature_labels
from reluscope.plot.instances import plot_instances, plot_local_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_POINTS = 4000
"""Rows drawn as points; more are thinned out evenly."""


def plot(u: Unwrapped, kind: str | None = None, ax: Axes | None = None, **options: Any) -> Axes:
    """Draw one of `KINDS`.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    kind : str, optional
        One of `KINDS`; by default "regions" for two inputs, else "importance".
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    **options
        Those of the function in `KINDS`.

    Returns
    -------
    matplotlib Axes
    """
    if kind is None:
        kind = "regions" if u.network.n_inputs == 2 else "importance"
    choice(kind, "kind", tuple(KINDS))
    return KINDS[kind](u, ax, **options)


def plot_models_2d(
    u: Unwrapped, ax: Axes | None = None, *, view: Any = None, arrows: int = 40, output: int = 0, points: bool = True
) -> Axes:
    """Regions of a network with two inputs, the data, and the coefficients of the largest regions as arrows.

    The ground shows the output (blue below 0, red above); an arrow starts at the middle of a region's rows and
    points where its local model rises, longer for larger coefficients.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    view : (lower, upper), optional
        The part of the plane to show.
    arrows : int
        How many of the largest regions get an arrow.
    output : int
        Index of the output.
    points : bool
        Draw the rows.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
    flag(points, "points")
    if u.network.n_inputs != 2:
        raise InputError(f'the picture "regions" is for 2 inputs, got {u.network.n_inputs}; try "parallel"')
    from reluscope.cells.regions import uninterrupted
    from reluscope.local_models.table import centroids
    from reluscope.plot.regions import plot_regions

    ax = axes(ax, figsize=(6.2, 5.2))
    lower, upper = data_view(u, view)
    drawn = plot_regions(
        uninterrupted(u.network, (lower, upper), progress=None), ax, output=output, linewidths=0.25, alpha=0.75
    )
    if points:
        scatter_rows(u, drawn)
    some = np.arange(min(integer(arrows, "arrows", low=0), len(u)))
    if len(some):
        start = centroids(u)[0][some]
        slope = u.maps(some)[0][:, output, :]
        reach = 0.09 * float(np.min(upper - lower)) / max(float(np.linalg.norm(slope, axis=1).max()), 1e-300)
        # White under black, so that arrows stand out on any colour.
        for colour, width in (("white", 0.009), ("black", 0.0045)):
            style: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "zorder": 4, "headwidth": 3.6}
            drawn.quiver(*start.T, *(reach * slope).T, width=width, color=colour, **style)
    in_units(drawn, *feature_labels(u))
    name_axes(drawn, title=f"{len(u):,} regions with data")
    return drawn


def plot_parallel(
    u: Unwrapped, ax: Axes | None = None, *, top: int = 30, features: int = 20, output: int = 0, scaled: bool = True
) -> Axes:
    """Coefficients of the largest regions as lines across the features, coloured by their mean response.

    `scaled` coefficients are multiplied by the feature's standard deviation over the data: the change of the output for
    one standard deviation, which can be compared across features of unlike units.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    top : int
        How many, the largest first.
    features : int
        How many features, the most important first.
    output : int
        Index of the output.
    scaled : bool
        Multiply each coefficient by the standard deviation of its feature.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
    flag(scaled, "scaled")
    ax = axes(ax, figsize=(7.2, 4.2))
    shown = np.arange(min(integer(top, "top", low=1), len(u)))
    columns = _top_features(u, features, output)
    C = _slopes(u, shown, output, columns, scaled)
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
    _name_ticks(ax, place, _slope_names(u, columns, output, scaled))
    across = f"feature, most important first{_left_out(u.network.n_inputs - len(columns))}"
    name_axes(ax, across, _coefficient_name(u, output, scaled), f"the {len(shown)} largest regions")
    ax.figure.colorbar(ScalarMappable(norm, cmap), ax=ax, label=label, shrink=0.85)
    return ax


def plot_violin(
    u: Unwrapped, ax: Axes | None = None, *, features: int = 20, output: int = 0, scaled: bool = True
) -> Axes:
    """How the local coefficient of each feature varies over the rows; most important feature on top.

    `scaled` coefficients are multiplied by the feature's standard deviation over the data (see `plot_parallel`).

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    features : int
        How many features, the most important first.
    output : int
        Index of the output.
    scaled : bool
        Multiply each coefficient by the standard deviation of its feature.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
    flag(scaled, "scaled")
    columns = _top_features(u, features, output)
    ax = axes(ax, figsize=(5.6, 1.2 + 0.32 * len(columns)))
    every = np.arange(0, len(u.region), max(1, len(u.region) // _MOST_POINTS))
    found, row = np.unique(u.region[every], return_inverse=True)
    C = _slopes(u, found, output, columns, scaled)[row]
    place = np.arange(len(columns))[::-1]
    varied = [k for k in range(len(columns)) if np.ptp(C[:, k]) > 0]
    if varied:
        parts = ax.violinplot(
            [C[:, k] for k in varied], place[varied], orientation="horizontal", widths=0.85, showextrema=False
        )
        for body in list(parts["bodies"]):  # type: ignore[call-overload]
            body.set(facecolor=BLUE, alpha=0.55, edgecolor=EDGE, linewidth=0.5)
    low, mid, high = np.quantile(C, [0.25, 0.5, 0.75], axis=0)
    ax.hlines(place, low, high, color=EDGE, linewidth=2.2)
    ax.plot(mid, place, "o", color="white", markersize=3.5, markeredgecolor=EDGE, zorder=4)
    ax.axvline(0, color=EDGE, linewidth=0.6, linestyle=":")
    ax.set_yticks(place, _slope_names(u, columns, output, scaled), fontsize="small")
    ax.set_xlabel(f"{_coefficient_name(u, output, scaled)}, over rows{_left_out(u.network.n_inputs - len(columns))}")
    return ax


def plot_importance(
    u: Unwrapped,
    ax: Axes | None = None,
    *,
    features: int | None = None,
    output: int | None = None,
    squares: bool | None = None,
) -> Axes:
    """Importance of the features by variance of contributions, largest on top; a category is one feature.

    The other convention, count times squared coefficient, depends on the units: it is drawn beside for standardised
    inputs, or when asked for.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    features : int, optional
        How many features, the most important first; by default all.
    output : int, optional
        Index of the output; by default the sum over outputs.
    squares : bool, optional
        Draw shares by squared coefficients too; by default for standardised inputs.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
    found = u.importance(output=output)
    wanted = len(found.variance) if features is None else integer(features, "features", low=1)
    order = np.argsort(-found.variance, kind="stable")[:wanted]
    both = found.standardised if squares is None else flag(squares, "squares")
    ax = axes(ax, figsize=(5.6, 1.2 + 0.3 * len(order)))
    place = np.arange(len(order))[::-1]
    thick = 0.38 if both else 0.7
    ax.barh(place + (0.2 if both else 0.0), found.variance[order], thick, color=BLUE, label="variance of contributions")
    if both:
        ax.barh(place - 0.2, found.squares[order], thick, color=GREY, label="count × coefficient² (depends on units)")
        legend_above(ax)
    ax.set_yticks(place, [found.feature_names[j] for j in order], fontsize="small")
    left = _left_out(len(found.feature_names) - len(order))
    ax.set_xlabel(f"share{'' if both else ' of the variance of contributions'}{left}")
    return ax


def plot_profile(u: Unwrapped, ax: Axes | None = None, *, feature: Any = None, output: int = 0) -> Axes:
    """The local coefficient of one feature in every row, and its mean along the feature.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    feature : int or str, optional
        Index or name; by default the most important one.
    output : int
        Index of the output.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
    p = u.profile(_default(u, feature, output), output=output)
    ax = axes(ax, figsize=(5.2, 3.6))
    _cloud(ax, u, p.value, p.coefficient, output)
    at, mean, spread = (p.binned()[name] for name in ("value", "coefficient", "coefficient_std"))
    ax.errorbar(at, mean, spread, color=EDGE, linewidth=1.4, capsize=2, zorder=4)
    ax.axhline(0, color=EDGE, linewidth=0.6, linestyle=":")
    name_axes(
        ax,
        _with_unit(u, p.feature),
        headed("local coefficient", Units.of(u.network).coefficient(output, u.feature_names.index(p.feature))),
        "coefficient in each row; mean and deviation in bins",
    )
    return ax


def plot_partial(
    u: Unwrapped, ax: Axes | None = None, *, feature: Any = None, output: int = 0, fraction: float = 0.3
) -> Axes:
    """The centred contribution of one feature in every row, and a smooth curve through it.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    feature : int or str, optional
        Index or name; by default the most important one.
    output : int
        Index of the output.
    fraction : float
        Share of the rows that the smooth curve looks at around each place.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
    p = u.profile(_default(u, feature, output), output=output)
    ax = axes(ax, figsize=(5.2, 3.6))
    _cloud(ax, u, p.value, p.contribution, output)
    ax.plot(*p.partial(fraction), color=EDGE, linewidth=1.8, zorder=4)
    ax.axhline(0, color=EDGE, linewidth=0.6, linestyle=":")
    name_axes(
        ax,
        _with_unit(u, p.feature),
        _result(u, "coefficient × (value − mean)", output),
        "local-linear contribution in each row; smooth mean",
    )
    return ax


def plot_pair(u: Unwrapped, ax: Axes | None = None, *, first: Any = None, second: Any = None, output: int = 0) -> Axes:
    """Mean joint contribution of two features on a grid of their quantiles.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    first : int or str, optional
        Index or name; by default the most important feature.
    second : int or str, optional
        Index or name; by default the second most important one.
    output : int
        Index of the output.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
    order = _top_features(u, 2, output)
    one = order[0] if first is None else first
    two = order[min(1, len(order) - 1)] if second is None else second
    found = u.pair(one, two, output=output)
    ax = axes(ax, figsize=(5.4, 4.2))
    top = max(float(np.nanmax(np.abs(found.mean))), 1e-12)
    drawn = ax.pcolormesh(*found.edges, found.mean.T, cmap="RdBu_r", vmin=-top, vmax=top, edgecolors="none")
    ax.set_facecolor("#eeeeee")  # cells without rows
    name_axes(ax, *(_with_unit(u, name) for name in found.features))
    ax.figure.colorbar(drawn, ax=ax, label=_result(u, "mean joint contribution", output), shrink=0.85)
    return ax


def plot_performance(u: Unwrapped, ax: Axes | None = None, *, top: int = 20) -> Axes:
    """Local and global score of the largest regions, with the network's own as a line.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    top : int
        How many, the largest first.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
    table, metric = _scored(u)
    n = min(integer(top, "top", low=1), len(u))
    place = np.arange(n)
    ax = axes(ax, figsize=(6.4, 3.6))
    ax.bar(place - 0.2, table[f"local_{metric}"][:n], 0.38, color=BLUE, label="its own rows")
    ax.bar(place + 0.2, table[f"global_{metric}"][:n], 0.38, color=ORANGE, label="all rows")
    ax.axhline(_network_score(u, metric), color=RED, linewidth=1.1, label="network")
    missing = np.flatnonzero(np.isnan(table[f"local_{metric}"][:n]))
    ax.plot(missing - 0.2, np.zeros(len(missing)), "x", color=BLUE, markersize=4, clip_on=False)
    _name_ticks(ax, place, [f"{c:,}" for c in table["count"][:n]], rotation=60 if n > 8 else 0)
    name_axes(ax, "rows in the region", score_name(metric))
    mark = "; × one class only" if len(missing) and metric == "auc" else ""
    name_axes(ax, title=f"local models of the {n} largest regions{mark}")
    if metric == "mse":
        ax.set_yscale("log")
    ax.legend(frameon=False, fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.28))
    return ax


def plot_bubble(u: Unwrapped, ax: Axes | None = None, *, top: int = 100) -> Axes:
    """The largest regions: mean response against local score, bubbles by rows, colour by global score.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    top : int
        How many, the largest first.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
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
    across = "share of the most frequent class" if mean == "majority_share" else "mean response in the region"
    name_axes(ax, across, f"local {score_name(metric)}")
    left_out = int((~known).sum())
    note = f" ({left_out} of one class left out)" if left_out else ""
    name_axes(ax, title=f"the {n} largest regions{note}")
    ax.margins(0.12)
    ax.figure.colorbar(drawn, ax=ax, label=f"global {score_name(metric)}", shrink=0.85)
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
    "models": plot_local_lines,
    "instances": plot_instances,
}
"""What `Unwrapped.plot` can draw."""


# -- small things ----------------------------------------------------------------------------------------------


def scatter_rows(u: Unwrapped, ax: Axes) -> None:
    """The rows as points, coloured by class (numbers: all alike)."""
    step = max(1, len(u.region) // _MOST_POINTS)
    X = np.asarray(u.X[::step], dtype=np.float64)
    if u.response.code is None:
        ax.scatter(X[:, 0], X[:, 1], s=3, color=EDGE, alpha=0.5, linewidths=0)
        return
    code = u.response.code[::step]
    for k, name in enumerate(u.response.classes):
        colour = (BLUE, RED)[k] if len(u.response.classes) == 2 else f"C{k % 10}"
        own = X[code == k]
        ax.scatter(
            own[:, 0], own[:, 1], s=5, color=colour, edgecolors="white", linewidths=0.15, label=str(name), zorder=3
        )


def _cloud(ax: Axes, u: Unwrapped, x: FloatArray, y: FloatArray, output: int) -> None:
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
    return np.argsort(-u.importance(output=output, groups=None).variance, kind="stable")[:n]


def _left_out(more: int) -> str:
    """A note about features that are not in the picture."""
    return f" ({more} less important ones not shown)" if more > 0 else ""


def _default(u: Unwrapped, feature: Any, output: int) -> Any:
    """The feature asked for, or the most important one."""
    return int(_top_features(u, 1, output)[0]) if feature is None else feature


def _name_ticks(ax: Axes, place: Any, names: list[str], rotation: int | None = None) -> None:
    turn = (0 if len(names) <= 6 and max(map(len, names)) <= 10 else 50) if rotation is None else rotation
    ax.set_xticks(place, names, rotation=turn, ha="right" if turn else "center", fontsize="small")


def _scored(u: Unwrapped) -> tuple[Any, str]:
    if u.task == "none":
        raise InputError("this picture shows scores and needs a response; pass y to unwrap")
    return u.table, "mse" if u.task == "regression" else u.metric


def _network_score(u: Unwrapped, metric: str) -> float:
    if metric != "mse":
        return u.score
    assert u.response.target is not None
    return float(np.average(((u.response.target - u.prediction) ** 2).mean(axis=1), weights=u.weight))


def _with_unit(u: Unwrapped, feature: str) -> str:
    """A feature with its unit, for values in it."""
    return str(feature_labels(u)[u.feature_names.index(feature)])


def _result(u: Unwrapped, name: str, output: int) -> str:
    """A part of an output, with the output's unit."""
    return headed(name, Units.of(u.network).outputs[output])


def _slopes(u: Unwrapped, regions: Any, output: int, columns: Any, scaled: bool) -> FloatArray:
    """Coefficients of some regions and features: per standard deviation, or per unit of the column."""
    C = u.maps(regions, units=not scaled)[0][:, output][:, columns]
    return np.asarray(C * u.spread[columns] if scaled else C)


def _slope_names(u: Unwrapped, columns: Any, output: int, scaled: bool) -> list[str]:
    known = Units.of(u.network)
    return [u.feature_names[j] if scaled else headed(u.feature_names[j], known.coefficient(output, j)) for j in columns]


def _coefficient_name(u: Unwrapped, output: int, scaled: bool) -> str:
    unit = Units.of(u.network).outputs[output]
    return headed("local coefficient × sd of the feature", unit) if scaled else "local coefficient"


def score_name(metric: str) -> str:
    """A score as it is written beside an axis."""
    return {"auc": "AUC", "mse": "mean squared error", "accuracy": "accuracy", "r2": "R²"}[metric]
