"""Pictures of a cloud on its way through the layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reluscope._check import FloatArray, choice, flag, text
from reluscope.plot._axes import BLUE, RED, axes, expect, limit, name_axes
from reluscope.plot._axes import figure as new_figure
from reluscope.representation.layers import COLUMNS, Layers
from reluscope.representation.metrics import expected_angle

GREEN, GREY = "#2e8b57", "#8a8f98"

CLOUDS = ("pca", "coordinates")


def plot_layers(layers: Layers, figure: Any = None) -> Any:
    """Eight panels on one page: activity (histogram, heat map), norm, ranks, widths, dimensions of regions.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    figure : matplotlib Figure, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    ndarray of matplotlib Axes, shape (2, 4)
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    page = new_figure(figure, (17, 7.6), 130)
    panels = page.subplots(2, 4)
    plot_activity(layers, panels[0, 0])
    plot_heat(layers, panels[0, 1])
    plot_column(layers, "mean_norm", panels[0, 2], label="mean distance from the origin")
    plot_ranks(layers, panels[0, 3])
    plot_column(layers, "nonzero_eigenvalues", panels[1, 0], label="non-zero covariance eigenvalues")
    panels[1, 0].plot(_layers(layers), layers["units"], ":", color=GREY, linewidth=1.2, label="units")
    panels[1, 0].legend(frameon=False, fontsize="small")
    panels[1, 0].set_ylim(bottom=0)
    plot_width(layers, panels[1, 1])
    plot_width(layers, panels[1, 2], by_norm=True)
    plot_dimensions(layers, panels[1, 3])
    what = "a torch module" if layers.network is None else _short(layers)
    page.suptitle(f"{layers.n_points:,} inputs through {what}", fontsize="medium")
    return panels


def plot_activity(layers: Layers, ax: Any = None, *, layer: int | None = None, bins: int = 20, **style: Any) -> Any:
    """Histogram of the share of inputs for which a unit is on: of one layer, or of all.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    layer : int, optional
        Index of the layer; by default all.
    bins : int
        Bins of the histogram.
    **style
        Goes to matplotlib.

    Returns
    -------
    matplotlib Axes
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    ax = axes(ax)
    share, edges = layers.histogram(layer, bins)
    ax.bar(edges[:-1], share, np.diff(edges), align="edge", **({"color": BLUE, "edgecolor": "white"} | style))
    ax.set_xlim(0, 1)
    name_axes(ax, "share of inputs with the unit on", "share of units")
    what = "all layers" if layer is None else f"layer {layer}"
    name_axes(ax, title=f"activity of units, {what}")
    return ax


def plot_heat(layers: Layers, ax: Any = None, *, sort: bool = True, **style: Any) -> Any:
    """Activity of every unit (rows) in every layer (columns): dark off, light on; sorted within a layer by default.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    sort : bool
        Sort the units of a layer by activity.
    **style
        Goes to matplotlib.

    Returns
    -------
    matplotlib Axes
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    flag(sort, "sort")
    ax = axes(ax)
    columns = [a for a in layers.activity if a is not None]
    if columns:
        tall = max(len(c) for c in columns)
        grid = np.full((tall, len(columns)), np.nan)
        for k, column in enumerate(columns):
            grid[: len(column), k] = np.sort(column) if sort else column
        shown = ax.imshow(
            grid,
            aspect="auto",
            origin="lower",
            extent=(layers.hidden[0] - 0.5, layers.hidden[-1] + 0.5, 0, tall),
            **({"cmap": "cividis", "vmin": 0.0, "vmax": 1.0, "interpolation": "nearest"} | style),
        )
        ax.figure.colorbar(shown, ax=ax, label="share of inputs on", shrink=0.9)
        ax.xaxis.get_major_locator().set_params(integer=True)
    name_axes(ax, "layer", "unit, by activity" if sort else "unit", "activity by layer")
    return ax


def plot_column(layers: Layers, column: str, ax: Any = None, *, label: str | None = None, **style: Any) -> Any:
    """One column of the table against the layer.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    column : str
        Name of a column of the table.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    label : str, optional
        Name of the upright axis.
    **style
        Goes to matplotlib.

    Returns
    -------
    matplotlib Axes
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    ax = axes(ax)
    choice(column, "column", tuple(name for name in COLUMNS if name not in ("name", "kind")))
    if label is not None:
        text(label, "label")
    ax.plot(_layers(layers), layers[column], **(_marks(layers) | {"color": BLUE} | style))
    _by_layer(ax, label or column.replace("_", " "))
    ax.set_ylim(bottom=0)
    return ax


def plot_ranks(layers: Layers, ax: Any = None) -> Any:
    """Stable rank of the centred and of the uncentred cloud, and the participation ratio, on a logarithmic axis.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib Axes
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    ax = axes(ax)
    for column, colour, label in (
        ("stable_rank", BLUE, "stable rank, centred"),
        ("stable_rank_uncentred", RED, "stable rank, uncentred"),
        ("participation_ratio", GREEN, "participation ratio"),
    ):
        values = layers[column]
        ax.plot(
            _layers(layers),
            np.where(values > 0, values, np.nan),
            **(_marks(layers) | {"color": colour, "label": label}),
        )
    ax.set_yscale("log")
    _plain_ticks(ax)
    _by_layer(ax, "effective rank")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_width(layers: Layers, ax: Any = None, *, by_norm: bool = False) -> Any:
    """Spherical mean width with error bars of two standard errors; divided by the mean norm when `by_norm`.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    by_norm : bool
        Divide by the mean norm.

    Returns
    -------
    matplotlib Axes
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    flag(by_norm, "by_norm")
    ax = axes(ax)
    width, error = layers["mean_width"], layers["mean_width_error"]
    if by_norm:
        norm = layers["mean_norm"]
        with np.errstate(divide="ignore", invalid="ignore"):
            width, error = np.where(norm > 0, width / norm, np.nan), np.where(norm > 0, error / norm, 0.0)
        if layers.rows[-1].kind == "output":  # one number near 0 would set the scale
            width[-1] = np.nan
    style = _marks(layers) | {"color": BLUE}
    ax.errorbar(_layers(layers), width, yerr=2 * error, capsize=2, elinewidth=0.8, **style)
    _by_layer(ax, "spherical mean width" + (" / mean norm" if by_norm else ""))
    ax.set_ylim(bottom=0)
    return ax


def plot_dimensions(layers: Layers, ax: Any = None) -> Any:
    """Dimension of the regions' images: active units, rank of the local Jacobian, and the bound it obeys.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib Axes
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    ax = axes(ax)
    layer = _layers(layers)
    ax.plot(layer, layers["active"], **(_marks(layers) | {"color": GREY, "label": "active units (mean)"}))
    if np.isfinite(layers["rank"]).any():
        ax.plot(layer, layers["rank"], **(_marks(layers) | {"color": BLUE, "label": "rank of the local Jacobian"}))
        ax.plot(layer, layers["rank_bound"], "--", color=RED, linewidth=1.2, label="bound: fewest active so far")
    _by_layer(ax, "dimension of a region's image")
    ax.set_ylim(0.0, 1.4 * ax.get_ylim()[1])  # room for the legend above the curves
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return ax


def plot_angles(layers: Layers, ax: Any = None, *, expected: bool = True) -> Any:
    """Angle between pairs of points by layer, in degrees: mean, middle 90 %, and (dashed) infinitely wide layers.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    expected : bool
        Draw the curve of infinitely wide random layers.

    Returns
    -------
    matplotlib Axes
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    flag(expected, "expected")
    ax = axes(ax)
    layer = _layers(layers)
    low, mean, high = (np.degrees(layers[f"angle_{k}"]) for k in ("low", "mean", "high"))
    ax.fill_between(layer, low, high, color=BLUE, alpha=0.18, linewidth=0)
    ax.plot(layer, mean, **(_marks(layers) | {"color": BLUE, "label": "mean, middle 90 %"}))
    if expected and len(layers) > 1 and np.isfinite(mean[0]):
        start = layers.angles[0][np.isfinite(layers.angles[0])]
        curve = [float(np.degrees(expected_angle(start, k).mean())) for k in range(len(layers.hidden) + 1)]
        ax.plot(
            np.arange(len(curve)) - 1, curve, "--", color=RED, linewidth=1.2, label="infinitely wide, random, no bias"
        )
    _by_layer(ax, "angle between two points (degrees)")
    ax.set_ylim(0, None)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_distances(layers: Layers, ax: Any = None) -> Any:
    """How far distances are stretched: median and middle 90 % of the ratio to the distance of the inputs.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib Axes
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    ax = axes(ax)
    layer = _layers(layers)
    low, middle, high = (
        np.maximum(layers[f"distance_{k}"], _smallest(layers.ratios)) for k in ("low", "median", "high")
    )
    ax.fill_between(layer, low, high, color=GREEN, alpha=0.18, linewidth=0)
    ax.plot(layer, middle, **(_marks(layers) | {"color": GREEN, "label": "median, middle 90 %"}))
    ax.axhline(1, color=GREY, linewidth=0.8)
    ax.set_yscale("log")
    _by_layer(ax, "distance / distance of the inputs")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_geometry(layers: Layers, figure: Any = None) -> Any:
    """Angles and distances side by side.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    figure : matplotlib Figure, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    ndarray of two matplotlib Axes
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    pair = new_figure(figure, (10, 3.8), 130).subplots(1, 2)
    plot_angles(layers, pair[0])
    plot_distances(layers, pair[1])
    return pair


def plot_clouds(layers: Layers, kind: str = "pca", figure: Any = None) -> Any:
    """The cloud after every layer on one page, by principal directions or by two random coordinates of each layer.

    Each panel has its own scale, the same in both directions, so that shapes can be compared and sizes cannot; the
    number below is the half-width of the panel.

    Parameters
    ----------
    layers : Layers
        What `reluscope.layers(net, X)` gives.
    kind : {"pca", "coordinates"}
        Principal directions, or two random coordinates.
    figure : matplotlib Figure, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    ndarray of matplotlib Axes
    """
    expect(layers, Layers, "layers", "reluscope.layers(net, X)")
    choice(kind, "kind", CLOUDS)
    clouds = layers.pca if kind == "pca" else layers.coordinates
    n = len(clouds)
    columns = min(n, max(4, math.ceil(math.sqrt(1.8 * n))))
    rows = math.ceil(n / columns)
    figure = new_figure(figure, (1.45 * columns, 1.65 * rows + 0.4), 130)
    panels = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    shade = _shades(clouds[0])
    for k, ax in enumerate(panels):
        if k >= n:
            ax.set_axis_off()
            continue
        _cloud(ax, clouds[k], shade)
        ax.set_title(layers.rows[k].name if k in (0, n - 1) else str(k - 1), fontsize=7, pad=2)
    what = "two principal directions" if kind == "pca" else "two random coordinates"
    figure.suptitle(f"the cloud after each layer on {what} (colour: place in the input cloud)", fontsize="medium")
    return panels[:n]


def _cloud(ax: Any, points: FloatArray, shade: FloatArray) -> None:
    low, high = points.min(axis=0), points.max(axis=0)
    middle = 0.5 * (low + high)
    half = float((high - low).max()) / 2
    ax.scatter(*points.T, s=3, c=shade, cmap="twilight_shifted", linewidths=0)
    room = 1.08 * half if half > 0 else 1.0
    limit(ax, middle - room, middle + room)
    ax.set(xticks=[], yticks=[], aspect="equal")
    ax.set_xlabel(f"± {half:.2g}", fontsize=6, labelpad=1)
    for side in ax.spines.values():
        side.set_linewidth(0.4)


def _shades(first: FloatArray) -> FloatArray:
    return np.arctan2(first[:, 1], first[:, 0])


def _smallest(ratios: FloatArray) -> float:
    positive = ratios[np.isfinite(ratios) & (ratios > 0)]
    return float(positive.min()) if len(positive) else 1e-3


def _layers(layers: Layers) -> FloatArray:
    """Where each row is drawn: the input at -1, layer k at k."""
    return np.arange(-1.0, len(layers) - 1)


def _marks(layers: Layers) -> dict[str, Any]:
    return {"linewidth": 1.5, "marker": "o", "markersize": 3.5 if len(layers) <= 30 else 2.0}


def _by_layer(ax: Any, label: str) -> None:
    name_axes(ax, "layer (−1: input)", label)
    ax.xaxis.get_major_locator().set_params(integer=True)


def _plain_ticks(ax: Any) -> None:
    """Numbers such as 2 and 50 on a logarithmic axis, instead of powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _short(layers: Layers) -> str:
    return repr(layers.network).removeprefix("Network(").split(",")[0]
