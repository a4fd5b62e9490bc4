"""Pictures of single local models and of rows in them: the line of each model, and what it makes of some rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import generator, integer
from reluscope.errors import InputError
from reluscope.local_models.unwrap import Unwrapped
from reluscope.plot._axes import EDGE, GREY, axes, expect, in_units, name_axes
from reluscope.plot._data import data_view, feature_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREEN = "#2a9d5c"


def plot_local_lines(
    u: Unwrapped, ax: Axes | None = None, *, top: int = 12, instances: int = 3, output: int = 0, rng: Any = 0
) -> Axes:
    """For two inputs: the largest regions, some rows of each, and the line on which each local model is 0.

    Lines are drawn within their region and, thinner, half as far again beyond it. Models whose line passes further
    away have none.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    top : int
        How many regions, the largest first.
    instances : int
        Rows to mark in each, drawn at random.
    output : int
        Index of the output.
    rng : None, int, SeedSequence or Generator
        Which rows.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
    from reluscope.cells.regions import uninterrupted

    if u.network.n_inputs != 2:
        raise InputError(f'the picture "models" is for 2 inputs, got {u.network.n_inputs}; try "instances"')
    from matplotlib.collections import PolyCollection

    shown = min(integer(top, "top", low=1), len(u))
    output = integer(output, "output", low=0, high=u.network.n_outputs - 1)
    lower, upper = data_view(u, None)
    cells = uninterrupted(u.network, (lower, upper), progress=None)
    rows = some_rows(u, shown, instances, rng)
    place = cells.find(np.asarray(u.X[[np.flatnonzero(u.region == k)[0] for k in range(shown)]], float))
    ax = axes(ax, figsize=(6.0, 5.2))
    every = slice(None, None, max(1, len(u.region) // 4000))
    some = np.asarray(u.X[every], float)
    ax.scatter(some[:, 0], some[:, 1], s=3, color=GREY, alpha=0.5, linewidths=0)
    polygons = [cells.vertices(int(i)) for i in place]
    patch: dict[str, Any] = {"facecolors": "#1d6fb822", "edgecolors": EDGE, "linewidths": 0.7}
    ax.add_collection(PolyCollection(polygons, **patch))
    C, d = u.maps(np.arange(shown))
    for k, polygon in enumerate(polygons):
        for reach, width in ((1.5, 0.9), (1.0, 2.4)):
            ends = _chord(polygon, C[k, output], float(d[k, output]), reach)
            if ends is not None:
                ax.plot(*ends.T, color=GREEN, linewidth=width, solid_capstyle="round", zorder=3)
    ax.plot(*np.asarray(u.X[rows.ravel()], float).T, "o", color="black", markersize=3.5, zorder=4)
    ax.set(xlim=(lower[0], upper[0]), ylim=(lower[1], upper[1]))
    title = f"the {shown} largest of {len(u):,} regions, {rows.shape[1]} rows each; green: local model = 0"
    name_axes(ax, title=title)
    in_units(ax, *feature_labels(u))
    return ax


def plot_instances(
    u: Unwrapped, ax: Axes | None = None, *, top: int = 4, instances: int = 3, features: int = 12, output: int = 0,
    rng: Any = 0,
) -> Axes:  # fmt: skip
    """What the local models of the largest regions make of some rows: coefficient times distance from the mean.

    Each line is a row, drawn at random from its region; rows of one region share their coefficients.

    Parameters
    ----------
    u : Unwrapped
        What `reluscope.unwrap(model, X, y)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    top : int
        How many regions, the largest first.
    instances : int
        Rows of each.
    features : int
        How many features, the most important first.
    output : int
        Index of the output.
    rng : None, int, SeedSequence or Generator
        Which rows.

    Returns
    -------
    matplotlib Axes
    """
    expect(u, Unwrapped, "u", "reluscope.unwrap(model, X, y)")
    shown = min(integer(top, "top", low=1), len(u))
    output = integer(output, "output", low=0, high=u.network.n_outputs - 1)
    rows = some_rows(u, shown, instances, rng)
    columns = np.argsort(-u.importance(output=output, groups=None).variance, kind="stable")[
        : integer(features, "features", low=1)
    ]
    X = np.asarray(u.X, float)
    C = u.maps(np.arange(shown))[0][:, output]
    effect = (C[:, None, :] * (X[rows] - np.average(X, axis=0, weights=u.weight)))[:, :, columns]
    flat = effect.reshape(-1, len(columns))
    ax = axes(ax, figsize=(2.4 + 0.72 * len(columns), 1.3 + 0.3 * len(flat)))
    size = float(np.abs(flat).max(initial=0.0)) or 1.0
    picture = ax.imshow(flat, cmap="RdBu_r", vmin=-size, vmax=size, aspect="auto")
    for (i, j), value in np.ndenumerate(flat):
        shade = "white" if abs(value) > 0.6 * size else "black"
        ax.annotate(f"{value:.2g}", (j, i), ha="center", va="center", fontsize=7, color=shade)
    for k in range(1, shown):
        ax.axhline(k * rows.shape[1] - 0.5, color=EDGE, linewidth=1.6)
    names = [f"region {k} of {u.count[k]:,} rows, row {row}" for k in range(shown) for row in rows[k].tolist()]
    ax.set_yticks(np.arange(len(flat)), names, fontsize="small")
    tilt: dict[str, Any] = {"rotation": 40, "ha": "right"} if len(columns) > 3 else {}
    ax.set_xticks(np.arange(len(columns)), [u.feature_names[j] for j in columns], fontsize="small", **tilt)
    more = u.network.n_inputs - len(columns)
    note = f" ({more} less important ones not shown)" if more > 0 else ""
    name_axes(ax, f"feature{note}", title="coefficient × (value − mean)")
    ax.figure.colorbar(picture, ax=ax, label="part of the output", shrink=0.85)
    return ax


def some_rows(u: Unwrapped, regions: int, instances: int, rng: Any) -> npt.NDArray[np.intp]:
    """Rows of the largest regions, drawn at random: (regions, instances), as many as the smallest of them holds."""
    draw = generator(rng)
    count = min(integer(instances, "instances", low=1), int(u.count[:regions].min()))
    return np.stack([np.sort(draw.choice(np.flatnonzero(u.region == k), count, replace=False)) for k in range(regions)])


def _chord(polygon: npt.NDArray[np.float64], slope: Any, offset: float, reach: float) -> Any:
    """The ends of the line `slope . x + offset = 0` in a polygon enlarged about its middle, None if it misses it."""
    middle = polygon.mean(axis=0)
    corners = middle + reach * (polygon - middle)
    height = corners @ slope + offset
    after = np.roll(height, -1)
    cut = np.flatnonzero((height < 0) != (after < 0))
    if len(cut) != 2:
        return None
    share = height[cut] / (height[cut] - after[cut])
    return corners[cut] + share[:, None] * (np.roll(corners, -1, axis=0)[cut] - corners[cut])
