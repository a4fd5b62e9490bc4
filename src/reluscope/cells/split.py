"""What a geometry offers to the traversal, and what it gives back when it splits its cells by the units of one layer.

`Intervals`, `Polygons`, `VertexCells` and `HPolytopes` are geometries: each is a batch of cells of one dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray

Index = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int32]
SHALLOW = 1e-9
"""The sine of an angle at which a hyperplane crosses an edge: below it, the crossing is known to 1e-6 or less."""
Cells = TypeVar("Cells", bound="Geometry")


def for_reading(breaks: FloatArray) -> FloatArray:
    """The same numbers, read-only whether or not the caller's are: a kernel compiles once for both."""
    own = breaks.view()
    own.flags.writeable = False
    return own


class Split(NamedTuple, Generic[Cells]):
    """The children of a batch of cells.

    `parent[i]` is the cell that child i was cut from, `piece[i, j]` the piece of unit j on child i (a unit that is
    on a break point all over the cell belongs to the piece below it), and `top[c, j]` is the
    largest `|h_j|` at the vertices of *parent* c (the finite parts of those at infinity): the scale of rounding.
    `near[c]` is not 0 where a part of parent c that is thinner than rounding may be missing: 1 if a unit comes within
    its tolerance of a vertex of the cell or its children, 2 or 3 if one crosses an edge at an angle below `SHALLOW`,
    or if vertices are not known. `reluscope.cells.doubt` then looks. `asked` (cells of half-spaces) are slopes that
    were taken for 0: parent and unit, and the labels of hyperplanes along whose intersection the unit is constant.
    """

    cells: Cells
    parent: Index
    piece: npt.NDArray[np.uint8]
    top: FloatArray
    near: npt.NDArray[np.int8] | None = None
    asked: Labels | None = None


class Geometry(Protocol):
    """A batch of convex cells.

    Facets of the starting domain have negative labels, -1 - 2 i and -2 - 2 i for the lower and upper side of input i.
    """

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        ...

    def __len__(self) -> int: ...

    @classmethod
    def box(cls, lower: FloatArray, upper: FloatArray) -> Self:
        """One starting cell, a box. Geometries that have unbounded cells also have `space(dimension)`."""
        ...

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        """The cells of several batches, one after the other."""
        ...

    def part(self, start: int, stop: int) -> Self:
        """Cells `start:stop`, as views."""
        ...

    def take(self, index: npt.NDArray[np.integer]) -> Self:
        """The cells at `index`, in that order."""
        ...

    def relabelled(self, rename: Callable[[Labels], Labels]) -> Self:
        """The same cells with other facet labels."""
        ...

    def split(self, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int) -> Split[Self]:
        """Cut every cell by the hyperplanes where a unit reaches a break point.

        `maps` has shape (n, dimension + 1, m): on cell c, unit j has the pre-activation
        `h_j(x) = maps[c, :-1, j] . x + maps[c, -1, j]`. `breaks` (m, steps) holds the break points, padded with +inf.
        A value within `tolerance[c, j]` of a break point counts as being on it: such a unit touches the cell but does
        not cut it. Cutting is strict: both parts have points with values beyond the tolerance, so no lower-dimensional
        cell is ever produced. The facet cut by break point k of unit j is labelled `first_label + j * steps + k`.
        """
        ...

    def reach(self) -> FloatArray:
        """Largest `|x_i|` on each cell, shape (n, dimension); of the finite parts where it is unbounded."""
        ...

    def interior(self) -> FloatArray:
        """A point strictly inside each cell, shape (n, dimension)."""
        ...

    def vertices(self, i: int) -> FloatArray:
        """The finite vertices of cell i."""
        ...

    def rays_of(self, i: int) -> FloatArray:
        """Unit directions in which cell i is unbounded; no rows when it is bounded."""
        ...

    def corners(self) -> tuple[FloatArray, Index]:
        """Vertices of all cells, back to back, and where each cell's start; for bounded cells."""
        ...

    def facet_labels(self) -> tuple[Labels, Index]:
        """Labels of the irredundant facets of all cells, back to back, and where each cell's start."""
        ...

    def facet_points(self) -> FloatArray:
        """A point inside each of those facets."""
        ...

    def volumes(self) -> FloatArray:
        """Length, area or volume of each cell; `inf` when unbounded."""
        ...
