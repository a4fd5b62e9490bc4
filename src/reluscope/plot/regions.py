"""Pictures of regions in the plane, and of functions along a line."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, flag, integer, real_array
from reluscope.answer import Answers
from reluscope.cells.along import Paths
from reluscope.cells.domain import box_bounds
from reluscope.cells.polygon import Polygons
from reluscope.cells.reachable import Images, outline
from reluscope.cells.regions import Regions
from reluscope.cells.slices import Slice
from reluscope.errors import InputError
from reluscope.plot._axes import BLUE, EDGE, RED, axes, colour_bar, expect, in_units, limit, name_axes
from reluscope.schema import Label, input_labels, output_labels

COLOURS = ("output", "mass", "gradient", "pattern")


def plot_regions(
    regions: Regions,
    ax: Any = None,
    *,
    colour: str = "output",
    output: int = 0,
    masses: Answers | npt.ArrayLike | None = None,
    view: Any = None,
    edges: bool = True,
    **patch: Any,
) -> Any:
    """The regions of a network with two inputs, exactly, as polygons.

    `colour="output"` shows the output itself (pixels under the exact edges), `"mass"` the probabilities given in
    `masses` (of `Regions.masses`, or one number per region), `"gradient"` the length of the output's gradient,
    `"pattern"` arbitrary colours. `view=(lo, hi)` is the part of the plane shown.

    Parameters
    ----------
    regions : Regions
        What `reluscope.regions(net, box)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    colour : {"output", "mass", "gradient", "pattern"}
        What the colours show.
    output : int
        Index of the output.
    masses : Answers or (regions,), optional
        Probabilities, for `colour="mass"`.
    view : (lower, upper), optional
        The part of the plane to show. By default the box of the regions; in the whole plane, and with `masses`, the
        part of it around the middle 80 % of their corners.
    edges : bool
        Draw the edges of the regions.
    **patch
        Goes to `PolyCollection`.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Coordinates are the network's numbers. Where its schema has names and units, axes and ticks are in these.
    """
    expect(regions, Regions, "regions", "reluscope.regions(net, box)")
    if "color" in patch:
        raise InputError(f"say colour= (one of {', '.join(COLOURS)}); for one plain colour, facecolors=")
    if regions.network.n_inputs != 2:
        raise InputError(f"plot_regions draws networks with 2 inputs, got {regions.network.n_inputs}")
    choice(colour, "colour", COLOURS)
    output = integer(output, "output", low=0, high=regions.network.n_outputs - 1)
    ax = axes(ax)
    from matplotlib.collections import PolyCollection

    try:
        PolyCollection([], **patch)
    except (AttributeError, TypeError) as error:
        own = "colour=, output=, masses=, view=, edges="
        raise InputError(f"plot_regions takes {own} and what PolyCollection takes: {error}") from None
    lower, upper = _view(regions, view, closer=masses is not None)
    count, regions, which = len(regions), *_seen(regions, lower, upper)
    if masses is not None:
        given = real_array(masses.value if isinstance(masses, Answers) else masses, "masses", ndim=1)
        if len(given) != count:
            raise InputError(f"masses must have one entry per region ({count}), got {len(given)}")
        masses = given[which]
    points, offsets = regions.cells.corners()
    shapes = np.split(points, offsets[1:-1])
    cmap = {"output": "RdBu_r", "mass": "viridis", "gradient": "magma_r", "pattern": "tab20"}[colour]
    style: dict[str, Any] = {
        "edgecolors": EDGE if flag(edges, "edges") else "face",
        "linewidths": 0.4 if edges else 0.0,
        "antialiased": True,
    }
    label: Label | str = _output(regions, output)
    if colour == "output":
        drawn = _image(regions, ax, output, lower, upper, cmap)
        ax.add_collection(PolyCollection(shapes, **(style | {"facecolors": "none"} | patch)))
    else:
        values, label = _values(regions, colour, output, masses)
        drawn = PolyCollection(shapes, **(style | {"cmap": cmap} | patch))
        drawn.set_array(values)
        ax.add_collection(drawn)
    limit(ax, lower, upper)
    in_units(ax, *input_labels(regions.network.schema, 2))
    met = _met(points, offsets, lower, upper)
    name_axes(ax, title=f"{met:,} of {count:,} regions" if met < count else f"{count:,} region{'s' * (count != 1)}")
    if label:
        colour_bar(ax, drawn, label)
    return ax


def plot_slice(part: Slice, box: Any = None, ax: Any = None, **style: Any) -> Any:
    """The regions on a slice of two dimensions, with the points that it was put through.

    Parameters
    ----------
    part : Slice
        What `reluscope.slice(net, points)` gives.
    box : pair, optional
        Part of the slice to show, in its own coordinates; around its points by default.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    **style
        As in `plot_regions`.

    Returns
    -------
    matplotlib Axes
    """
    expect(part, Slice, "part", "reluscope.slice(net, points)")
    if len(part.directions) != 2:
        raise InputError(f"a slice of 2 dimensions can be drawn, this one has {len(part.directions)}")
    found = part.regions(box, progress=None)
    ax = plot_regions(found, ax, **({"view": part.box} | style if found.domain.box is None else style))
    if len(part.points):
        from matplotlib import patheffects

        ax.plot(*part.points.T, "o", color="black", markersize=5, markeredgecolor="white", zorder=5)
        # White around the figures: the ground may be as dark as they are.
        halo = [patheffects.withStroke(linewidth=2, foreground="white")]
        for k, (x, y) in enumerate(part.points):
            ax.annotate(
                str(k), (x, y), xytext=(5, 5), textcoords="offset points", fontsize=9, zorder=6, path_effects=halo
            )
    ax.set_xlabel("along the slice, first direction")
    ax.set_ylabel("second direction")
    return ax


def plot_images(images: Images, ax: Any = None, *, units: tuple[int, int] = (0, 1), **patch: Any) -> Any:
    """What a layer makes of a box: the image of every region, seen on two of its units.

    Each image is drawn see-through, so darker places are reached from several regions; flat images are lines
    and points. A layer with one unit is drawn along one axis.

    Parameters
    ----------
    images : Images
        What `reluscope.reachable(net, box)[layer]` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    units : (int, int)
        The two units shown.
    **patch
        Goes to `PolyCollection`.

    Returns
    -------
    matplotlib Axes
    """
    expect(images, Images, "images", "reluscope.reachable(net, box)[layer]")
    if not isinstance(units, (tuple, list)) or len(units) != 2:
        raise InputError(f"units must be two numbers of units, such as (0, 1), got {describe(units)}")
    last = images.units - 1
    first, second = (integer(k, "units", low=0, high=max(last, 1)) for k in units)
    ax = axes(ax)
    from matplotlib.collections import LineCollection, PolyCollection

    pad = np.zeros((len(images.points), 1))
    plane = np.hstack([images.points, pad])[:, [min(first, last + 1), min(second, last + 1)]]
    shapes = [outline(plane[images.start[i] : images.start[i + 1]], images.size) for i in range(len(images))]
    style: dict[str, Any] = {"facecolors": BLUE, "edgecolors": EDGE, "linewidths": 0.4, "alpha": 0.35}
    ax.add_collection(PolyCollection([s for s in shapes if len(s) > 2], **(style | patch)))
    ax.add_collection(LineCollection([s for s in shapes if len(s) == 2], colors=RED, linewidths=1.6))
    points = np.array([s[0] for s in shapes if len(s) == 1]).reshape(-1, 2)
    ax.plot(points[:, 0], points[:, 1], "o", color=RED, markersize=4)
    low, high = plane.min(axis=0), plane.max(axis=0)
    room = 0.05 * np.maximum(high - low, 1e-9 + 0.05 * float((high - low).max()))
    limit(ax, low - room, high + room)
    where = "output" if images.layer == len(images.regions.network.hidden) else f"hidden layer {images.layer}"
    names = [Label(f"z[{k}]") for k in range(images.units)]
    if where == "output":
        names = list(output_labels(images.regions.network.schema, images.units))
    in_units(ax, names[first], names[second] if last else None)
    name_axes(ax, title=f"{where}: images of {len(images):,} regions")
    return ax


def plot_function(paths: Paths, ax: Any = None, *, line: int = 0, output: int = 0, **style: Any) -> Any:
    """One output along a segment, with its break points.

    Parameters
    ----------
    paths : Paths
        What `reluscope.along(net, a, b)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    line : int
        Index of the segment.
    output : int
        Index of the output.
    **style
        Goes to `ax.plot`.

    Returns
    -------
    matplotlib Axes
    """
    expect(paths, Paths, "paths", "reluscope.along(net, a, b)")
    ax = axes(ax, figsize=(5.2, 3.2))
    t = paths.breaks(line)
    if not np.isfinite(t).all():
        inner = t[np.isfinite(t)]
        span = float(np.ptp(inner)) if len(inner) > 1 else 1.0
        middle = inner if len(inner) else np.zeros(1)
        t = np.concatenate([[middle[0] - 0.5 * span], middle, [middle[-1] + 0.5 * span]])
    y = paths.at(t, line)[:, integer(output, "output", low=0, high=paths.slope.shape[1] - 1)]
    ax.plot(t, y, **({"color": "#1d6fb8", "linewidth": 1.4, "marker": "o", "markersize": 2.5} | style))
    in_units(ax, None, output_labels(paths.schema, paths.slope.shape[1])[output])
    name_axes(ax, "t (position on the line)", title=f"{len(t) - 1:,} linear piece{'s' * (len(t) != 2)}")
    return ax


def _seen(regions: Regions, lower: FloatArray, upper: FloatArray) -> tuple[Regions, npt.NDArray[np.int64]]:
    """The regions as polygons, and which of the given ones each is; unbounded ones are cut off at the view."""
    if isinstance(regions.cells, Polygons):
        return regions, np.arange(len(regions))
    from reluscope.cells.regions import uninterrupted

    polytope = regions.domain.half_spaces
    shown = uninterrupted(regions.network, (lower, upper), polytope=polytope, progress=None)
    which = regions.find(shown.interior)
    if (which < 0).any():
        raise InputError("these regions are incomplete; draw regions found in a box")
    return shown, which


def _met(points: FloatArray, offsets: npt.NDArray[np.int64], lower: FloatArray, upper: FloatArray) -> int:
    """How many convex polygons have a part inside the rectangle: no side of either keeps the other out."""
    if len(offsets) < 2:
        return 0
    starts, sizes = offsets[:-1], np.diff(offsets)
    low, high = np.minimum.reduceat(points, starts), np.maximum.reduceat(points, starts)
    near = (low < upper).all(axis=1) & (high > lower).all(axis=1)
    after = np.arange(1, len(points) + 1)
    after[offsets[1:] - 1] = starts
    side = points[after] - points
    normal = np.column_stack([side[:, 1], -side[:, 0]])
    middle = np.repeat(np.add.reduceat(points, starts) / sizes[:, None], sizes, axis=0)
    normal *= np.sign(np.einsum("ij,ij->i", normal, middle - points))[:, None]  # towards the inside
    corners = np.array([(x, y) for x in (lower[0], upper[0]) for y in (lower[1], upper[1])])
    reach = (normal @ corners.T).max(axis=1) - np.einsum("ij,ij->i", normal, points)
    flat = ~normal.any(axis=1)
    return int((near & np.logical_and.reduceat((reach > 0) | flat, starts)).sum())


def _view(regions: Regions, view: Any, closer: bool = False) -> tuple[FloatArray, FloatArray]:
    """The part to show; `closer`: not the whole box, which for a law reaches far beyond what there is to see."""
    if view is not None:
        return box_bounds(view, 2, "view")
    box = regions.domain.box
    if box is not None and not closer:
        return box
    points = np.concatenate([regions.vertices(i) for i in range(len(regions))])
    if box is not None:
        points = points[((points > box[0]) & (points < box[1])).all(axis=1)]
    if not len(points):
        return (np.full(2, -1.0), np.full(2, 1.0)) if box is None else box
    low, high = np.quantile(points, [0.1, 0.9], axis=0)
    margin = 0.3 * np.maximum(high - low, 1e-3 * (1.0 + np.abs(low)))
    low, high = low - margin, high + margin
    return (low, high) if box is None else (np.maximum(low, box[0]), np.minimum(high, box[1]))


def _image(regions: Regions, ax: Any, output: int, lower: FloatArray, upper: FloatArray, cmap: str) -> Any:
    """The output on a grid of pixels, blue below zero and red above."""
    sides = [np.linspace(lo, hi, 2 * _PIXELS + 1)[1::2] for lo, hi in zip(lower, upper, strict=True)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    values = regions.network(grid)[:, output].reshape(_PIXELS, _PIXELS)
    top = float(np.abs(values).max()) or 1.0
    extent = (lower[0], upper[0], lower[1], upper[1])
    return ax.imshow(values, extent=extent, origin="lower", aspect="auto", cmap=cmap, vmin=-top, vmax=top)


_PIXELS = 300


def _output(regions: Regions, output: int) -> Label:
    return output_labels(regions.network.schema, regions.network.n_outputs)[output]


def _values(regions: Regions, colour: str, output: int, masses: npt.ArrayLike | None) -> tuple[FloatArray, str]:
    if colour == "gradient":
        name = _output(regions, output).name
        return np.linalg.norm(regions.C[:, output], axis=1), f"length of the gradient of {name} (network's numbers)"
    if colour == "mass":
        if masses is None:
            raise InputError('colour="mass" needs masses, one entry per region; see Regions.masses(law)')
        values = np.asarray(masses)
        return np.log10(np.maximum(values, 1e-6)), "log10 of the probability (at least 1e-6)"
    return (np.arange(len(regions)) * 7919 % 20).astype(float), ""
