"""What a network makes of a box, layer by layer: the image of every region and of the whole box, as exact polytopes.

On a region the network is affine up to every layer, so the image of the region is the convex hull of the images of its
vertices; the image of the box is the union of these polytopes. It need not be convex, and images may overlap: several
inputs can have one output.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, integer, real, real_array
from reluscope._doors import door
from reluscope._lazy import late
from reluscope.answer import Answer, Status, status_of
from reluscope.cells.domain import MOST_DIMENSIONS, vertex_geometry
from reluscope.cells.regions import Regions, uninterrupted
from reluscope.cells.union import union_of_intervals, union_of_polygons
from reluscope.errors import InputError
from reluscope.network import Network, check_network

_FLAT, _ROUNDING = 1e-9, 1e-13
"""A direction counts as flat if the image has less than this share of its own extent there, or of all coordinates."""
_MOST_HULL = 8
"""Dimensions up to which convex hulls are built."""


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """The images of all regions after one layer: polytopes whose union is the image of the box.

    Image i has the points `start[i]:start[i + 1]` of `points`: the images of the vertices of region i. Its vertices are
    among them.

    Attributes
    ----------
    regions : Regions
    layer : int
        Hidden layers count from 0 (after the activation); the number of hidden layers stands for the output.
    points : (m, units) array
    start : (regions + 1,) array of int
    """

    regions: Regions
    layer: int
    points: FloatArray
    start: npt.NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def units(self) -> int:
        """Number of units of the layer."""
        return self.points.shape[1]

    def vertices(self, i: int) -> FloatArray:
        """Vertices of image i, shape (k, units); counter-clockwise where the layer has two units.

        Parameters
        ----------
        i : int

        Returns
        -------
        (k, units) array
        """
        return outline(self._points(i), self.size)

    def half_spaces(self, i: int) -> tuple[FloatArray, FloatArray]:
        """`(A, b)` with `A z <= b`: image i. A flat image has two opposite rows for every direction across it.

        Parameters
        ----------
        i : int

        Returns
        -------
        A, b : (facets, units) and (facets,) arrays
        """
        return hull_rows(self._points(i), self.size)

    @cached_property
    def size(self) -> float:
        """The largest coordinate of any image."""
        return float(np.abs(self.points).max(initial=0.0))

    @cached_property
    def dimension(self) -> npt.NDArray[np.intp]:
        """Dimension of each image: the rank of the linear map on the region."""
        return np.array([_flat(self._points(i), self.size)[1].shape[1] for i in range(len(self))], dtype=np.intp)

    @cached_property
    def measure(self) -> FloatArray:
        """Length, area or volume of each image, in its own dimension (1 for a point)."""
        return np.array([_volume(self._points(i), self.size) for i in range(len(self))])

    @property
    def lower(self) -> FloatArray:
        """The smallest value of each unit on the box."""
        return np.asarray(self.points.min(axis=0))

    @property
    def upper(self) -> FloatArray:
        """The largest value of each unit on the box."""
        return np.asarray(self.points.max(axis=0))

    def largest(self, direction: npt.ArrayLike) -> float:
        """The largest value of `direction . z` on the image of the box.

        Parameters
        ----------
        direction : (units,)

        Returns
        -------
        float
        """
        direction = real_array(direction, "direction", ndim=1)
        if len(direction) != self.units:
            raise InputError(f"direction must have {self.units} entries, one for each unit, got {len(direction)}")
        return float((self.points @ direction).max())

    def hull(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The convex hull of the image of the box.

        Returns
        -------
        vertices, A, b : (k, units), (facets, units) and (facets,) arrays
            The hull is `A z <= b`.
        """
        vertices = outline(self.points, self.size)
        return vertices, *hull_rows(vertices, self.size)

    def hull_volume(self) -> float:
        """Length, area or volume of the convex hull, in its own dimension."""
        return _volume(self.points, self.size)

    def volume(self) -> Answer:
        """Length, area or volume of the image of the box, in as many dimensions as the layer has units.

        Exact for one and two units: the union of intervals or polygons. For more a bracket: at least the largest image,
        at most the sum of all, or the convex hull.

        Returns
        -------
        Answer
        """
        full = self.measure[self.dimension == self.units]
        note = "" if self.regions.complete else f"regions are missing: {self.regions.reason}"
        stopped, doubt = self.regions.stopped, self.regions.doubt
        status = status_of(stopped) if stopped or not doubt else Status.UNDECIDED
        if not len(full) and self.regions.complete:
            return Answer(0.0, 0.0, 0.0, "exact", note=note, method="every image is flat", status=status)
        total = float(full.sum())
        if self.units <= 2:
            if self.units == 1:
                value = union_of_intervals(
                    *np.array([(p.min(), p.max()) for p in map(self._points, range(len(self)))]).T
                )
            else:
                value = union_of_polygons([self.vertices(int(i)) for i in np.flatnonzero(self.dimension == 2)])
            slack = 1e-9 * total
            top = value + slack if self.regions.complete else np.inf
            what = "union of intervals" if self.units == 1 else "union of polygons"
            kind = "exact" if self.regions.complete else "sound"
            return Answer(value, max(value - slack, 0.0), top, kind, method=what, note=note, status=status)
        low = float(full.max(initial=0.0))
        high = min(total, self.hull_volume()) * (1 + 1e-9) if self.regions.complete else np.inf
        middle = 0.5 * (low + high) if np.isfinite(high) else low
        what = "largest image; sum of all images or convex hull"
        return Answer(middle, low * (1 - 1e-9), high, "sound", method=what, note=note, status=status)

    def contains(self, Z: npt.ArrayLike, slack: float = 1e-9) -> npt.NDArray[np.bool_]:
        """Whether each row is a value that the layer takes on the box.

        Parameters
        ----------
        Z : (n, units)
        slack : float
            How far from an image a row may be, as a share of the largest coordinate.

        Returns
        -------
        (n,) array of bool
        """
        Z = real_array(Z, "Z", ndim=2)
        if Z.shape[1] != self.units:
            raise InputError(f"Z must have {self.units} columns, one for each unit, got shape {Z.shape}")
        slack = real(slack, "slack", low=0.0) * max(1.0, self.size)
        inside = np.zeros(len(Z), dtype=bool)
        for i in range(len(self)):
            points = self._points(i)
            near = (points.min(axis=0) - slack <= Z) & (points.max(axis=0) + slack >= Z)
            todo = np.flatnonzero(near.all(axis=1) & ~inside)
            if len(todo):
                A, b = hull_rows(points, self.size)
                inside[todo] = (Z[todo] @ A.T <= b + slack).all(axis=1)
        return inside

    def plot(self, ax: Any = None, *, units: tuple[int, int] = (0, 1), **patch: Any) -> Any:
        """A picture of the images, on two units; see `reluscope.plot.plot_images`."""
        return door("Images.plot")(self, ax, units=units, **patch)

    def to_dict(self) -> dict[str, Any]:
        """Columns by name, one row per region: dimension and measure of its image."""
        return {"region": np.arange(len(self)), "dimension": self.dimension, "measure": self.measure}

    def __repr__(self) -> str:
        where = "the output" if self.layer == len(self.regions.network.hidden) else f"hidden layer {self.layer}"
        return f"Images({len(self):,} polytopes in R^{self.units}, after {where})"

    def _points(self, i: int) -> FloatArray:
        i = integer(i, "i", low=0, high=len(self) - 1)
        return self.points[self.start[i] : self.start[i + 1]]


@dataclass(frozen=True, eq=False, repr=False)
class Reachable:
    """The images of a box under the first layers of a network: `reachable[k]` after hidden layer k, `[-1]` the output.

    Attributes
    ----------
    regions : Regions
        The regions of the whole network in the box; the images after every layer are theirs.
    """

    regions: Regions

    def __len__(self) -> int:
        """Number of layers, the output included."""
        return len(self.regions.network.layers)

    def __getitem__(self, layer: int) -> Images:
        layer = integer(layer, "layer", low=-len(self), high=len(self) - 1) % len(self)
        net = self.regions.network
        z, start = self._vertices
        pattern = np.repeat(self.regions.pattern, np.diff(start), axis=0)
        for k, part in enumerate(net.hidden[: layer + 1]):  # on the region's own pieces: what is constant stays so
            slopes, constants = part.units.on(pattern[:, net.offsets[k] : net.offsets[k + 1]])
            z = slopes * part.affine(z) + constants
        if layer == len(self) - 1:
            z = net.layers[-1].affine(z)
        return Images(self.regions, layer, z, start)

    def to_dict(self) -> dict[str, Any]:
        """Columns by name, one row per layer: units, largest dimension, number of images of each kind, volume."""
        rows = [self[k] for k in range(len(self))]
        volumes = [image.volume() for image in rows]
        return {
            "layer": list(range(len(rows))),
            "units": [image.units for image in rows],
            "images": [len(image) for image in rows],
            "largest dimension": [int(image.dimension.max()) for image in rows],
            "points only": [int((image.dimension == 0).sum()) for image in rows],
            "volume at least": [v.lower for v in volumes],
            "volume at most": [v.upper for v in volumes],
        }

    def __repr__(self) -> str:
        return f"Reachable({len(self)} layers, {len(self.regions):,} regions)"

    @cached_property
    def _vertices(self) -> tuple[FloatArray, npt.NDArray[np.intp]]:
        parts = [self.regions.vertices(i) for i in range(len(self.regions))]
        start = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.intp)
        return np.concatenate(parts), start


def reachable(net: Network, box: Any, *, budget: Any = None, progress: Any = None) -> Reachable:
    """The set of values that each layer takes on a box: the image of every region, as exact polytopes.

    Parameters
    ----------
    net : Network
        A network with up to 6 inputs.
    box : tuple
        `(lower, upper)`, numbers or one entry per input.
    budget, progress
        When to end the search for regions early, and whether to show how far it is. After a budget images are missing.

    Returns
    -------
    Reachable
        `[k]` gives the images after hidden layer k, `[-1]` those of the output: vertices, half-spaces, dimension and
        volume of each, bounds, convex hull and volume of their union, and a picture.

    Raises
    ------
    InputError
        If there are more than 6 inputs, or the box does not fit the network.

    Notes
    -----
    Guarantee: complete, up to rounding. Cost: the traversal and one evaluation for each vertex of each region; hulls
    and volumes are computed when asked for.

    Examples
    --------
    >>> net = Network([([[1.0, 0.0], [0.0, 1.0]], None), ([[1.0, -1.0]], None)])
    >>> found = reachable(net, (-1, 1), progress=None)
    >>> found[0].volume().value, found[-1].lower.tolist(), found[-1].upper.tolist()
    (1.0, [-1.0], [1.0])
    >>> found[0].dimension.tolist().count(2)
    1
    """
    check_network(net)
    if net.n_inputs > MOST_DIMENSIONS:
        raise InputError(
            f"images of regions are for networks with up to {MOST_DIMENSIONS} inputs, this one has {net.n_inputs}: "
            "its regions have too many vertices to list"
        )
    if box is None:
        raise InputError("box is needed: (lower, upper); images of the whole space are unbounded")
    found = uninterrupted(net, box, geometry=vertex_geometry(net.n_inputs), budget=budget, progress=progress)
    return Reachable(found)


def _flat(points: FloatArray, size: float) -> tuple[FloatArray, FloatArray]:
    """A point of the affine span, and an orthonormal basis of its directions as columns (units, dimension).

    `size` is the largest coordinate in sight, with whose rounding flatness is judged.
    """
    centre = points.mean(axis=0)
    values, basis = np.linalg.svd(points - centre, full_matrices=False)[1:]
    least = max(_FLAT * float(values.max(initial=0.0)), _ROUNDING * size * np.sqrt(len(points)))
    return centre, basis[values > least].T


def _hull(points: FloatArray, size: float) -> tuple[Any, FloatArray, FloatArray]:
    """The convex hull in coordinates of the span (None for a point or a segment), the centre and the basis."""
    ConvexHull = late("scipy.spatial", "ConvexHull")
    centre, basis = _flat(points, size)
    if basis.shape[1] > _MOST_HULL:
        raise InputError(f"convex hulls are built in up to {_MOST_HULL} dimensions, this one has {basis.shape[1]}")
    inner = (points - centre) @ basis
    return (ConvexHull(inner) if basis.shape[1] > 1 else None), centre, basis


def outline(points: FloatArray, size: float) -> FloatArray:
    """The corners of a convex hull: counter-clockwise in the plane, two ends of a segment, one point."""
    hull, centre, basis = _hull(points, size)
    if hull is not None:
        found = points[hull.vertices]
        if points.shape[1] == 2 and basis.shape[1] == 2:
            x, y = found.T
            if (x * np.roll(y, -1) - np.roll(x, -1) * y).sum() < 0:
                found = found[::-1]
        return np.asarray(found)
    if basis.shape[1] == 0:
        return points[:1].copy()
    along = (points - centre) @ basis[:, 0]
    return points[[along.argmin(), along.argmax()]]


def hull_rows(points: FloatArray, size: float) -> tuple[FloatArray, FloatArray]:
    """The convex hull of points as inequalities `A z <= b`: a flat hull with pairs of opposite rows."""
    hull, centre, basis = _hull(points, size)
    k = basis.shape[1]
    if hull is not None:
        A, b = hull.equations[:, :-1], -hull.equations[:, -1]
    elif k:
        along = (points - centre) @ basis[:, 0]
        A, b = np.array([[1.0], [-1.0]]), np.array([along.max(), -along.min()])
    else:
        A, b = np.zeros((0, 0)), np.zeros(0)
    across = np.linalg.svd(basis, full_matrices=True)[0][:, k:].T if k else np.eye(points.shape[1])
    rows = np.concatenate([A @ basis.T, across, -across])
    shift = rows @ centre
    return rows, np.concatenate([b, np.zeros(2 * len(across))]) + shift


def _volume(points: FloatArray, size: float) -> float:
    hull, centre, basis = _hull(points, size)
    if hull is not None:
        return float(hull.volume)
    return float(np.ptp((points - centre) @ basis[:, 0])) if basis.shape[1] else 1.0
