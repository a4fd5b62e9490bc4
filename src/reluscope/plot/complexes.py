"""Pictures of a polyhedral complex in the plane: bent hyperplanes layer by layer, and decision boundaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import flag
from reluscope.cells.complex import Complex
from reluscope.cells.level_set import LevelSet
from reluscope.cells.topology import Topology
from reluscope.errors import InputError
from reluscope.plot._axes import BLUE, axes, expect, in_units, limit, name_axes
from reluscope.schema import input_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_complex(
    complex_: Complex, ax: Axes | None = None, *, boundary: LevelSet | None = None, vertices: bool = True
) -> Axes:
    """The edges of the complex of a network with two inputs, coloured by the hidden layer that bends there.

    Parameters
    ----------
    complex_ : Complex
        What `reluscope.polyhedral_complex(net, box)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    boundary : LevelSet, optional
        A level set of the complex (`complex_.level_set(...)`), drawn on top.
    vertices : bool
        Draw the vertices, if there are at most 2000.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Edges that go to infinity end at the border of the picture.
    """
    expect(complex_, Complex, "complex_", "reluscope.polyhedral_complex(net, box)")
    if complex_.dimension != 2:
        raise InputError(f"plot_complex draws networks with 2 inputs, got {complex_.dimension}")
    ax = axes(ax)
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection

    points = complex_.vertices
    if complex_.box is not None:
        lower, upper = complex_.box
    elif len(points):
        pad = 0.25 * np.maximum(np.ptp(points, axis=0), 1e-9)
        lower, upper = points.min(axis=0) - pad, points.max(axis=0) + pad
    else:
        lower, upper = np.full(2, -1.0), np.full(2, 1.0)
    reach = 2.0 * float(np.linalg.norm(upper - lower))
    depth = len(complex_.network.hidden)
    for layer in range(depth):
        units = complex_.network.hidden[layer].units
        drawn = [
            complex_.bent_hyperplane(layer, unit, step).segments(reach)
            for unit in range(len(units))
            for step in range(int(units.pieces[unit]) - 1)
        ]
        colour = colormaps["viridis"](0.0 if depth == 1 else 0.85 * layer / (depth - 1))
        lines = [line for part in drawn for line in part]
        ax.add_collection(LineCollection(lines, colors=[colour], linewidths=1.1, label=f"hidden layer {layer}"))
    if boundary is not None:
        expect(boundary, LevelSet, "boundary", "complex_.level_set(...)")
        ax.add_collection(
            LineCollection(list(boundary.segments(reach)), colors="#d1495b", linewidths=2.2, label="level set")
        )
    if flag(vertices, "vertices") and len(points) <= 2000:
        ax.plot(*points.T, ".", color="#222222", markersize=2.0)
    limit(ax, lower, upper)
    in_units(ax, *input_labels(complex_.network.schema, 2))
    counts = ", ".join(
        f"{n:,} {name}" for n, name in zip(complex_.f_vector, ("vertices", "edges", "regions"), strict=True)
    )
    name_axes(ax, title=counts)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    return ax


def plot_topology(topology: Topology, ax: Axes | None = None, **style: Any) -> Axes:
    """A set of the plane and its Betti numbers: cells filled, edges as lines, single points as dots.

    Parameters
    ----------
    topology : Topology
        What `reluscope.topology(net, box)` gives for a network with two inputs.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    **style
        Goes to `LineCollection`, for the edges.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Lines inside a filled set are edges between regions of the network.
    """
    expect(topology, Topology, "topology", "reluscope.topology(net, box)")
    part = topology.part
    whole = part.complex
    if whole.dimension != 2:
        raise InputError(f"plot_topology draws networks with 2 inputs, got {whole.dimension}")
    ax = axes(ax)
    from matplotlib.collections import LineCollection, PolyCollection

    assert whole.box is not None
    offsets, ids = whole.face_vertices(2)
    cells = [whole.vertices[ids[offsets[i] : offsets[i + 1]]] for i in part.regions]
    ax.add_collection(PolyCollection(cells, facecolors=BLUE, alpha=0.25, linewidths=0.0))
    # A set with an area is told by its colour; its edges are fine lines then.
    lines: dict[str, Any] = {"colors": BLUE, "linewidths": 0.6 if cells else 1.8} | style
    ax.add_collection(LineCollection(list(part.segments()), **lines))
    alone = np.setdiff1d(part.faces[0], whole.edges[part.faces[1]])
    ax.plot(*whole.vertices[alone].T, "o", color=BLUE, markersize=4.0)
    limit(ax, *whole.box)
    in_units(ax, *input_labels(whole.network.schema, 2))
    said = topology.of[:1].upper() + topology.of[1:]
    name_axes(ax, title=f"{said}: Betti numbers {topology.betti}")
    return ax
