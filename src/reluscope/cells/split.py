"""What a geometry gives back when it splits its cells by the units of one layer.

A geometry (`Intervals`, `Polygons`, `VertexCells`, `HPolytopes`) is a batch of cells with

    len(cells)                                     how many
    Cells.box(lower, upper), Cells.space(d)        one starting cell: a box, or the whole space
    cells.part(start, stop), Cells.join(parts)     slices and concatenation
    cells.relabelled(rename)                       the same cells with other facet labels
    cells.split(maps, tolerance, breaks, first_label) -> Split
    cells.reach()                                  largest |x_i| on each cell, (n, dimension)
    cells.interior()                               a point strictly inside each cell, (n, dimension)
    cells.vertices(i), cells.rays_of(i)            finite vertices and unit directions to infinity of cell i
    cells.facet_labels() -> labels, offsets        irredundant facets of all cells, back to back
    cells.facet_points()                           a point inside each of those facets
    cells.volumes()                                length, area, volume of each cell

`maps` has shape (n, dimension + 1, m): on cell c, unit j of the layer has the pre-activation
`h_j(x) = maps[c, :-1, j] . x + maps[c, -1, j]`. `breaks` (m, steps) holds the units' break points, padded with +inf. A
value within `tolerance[c, j]` of a break point counts as being on it: such a unit touches the cell but does not
cut it. Cutting is strict: both parts have points with values beyond the tolerance, so no lower-dimensional cell
is ever produced. The facet cut by break point k of unit j is labelled `first_label + j * steps + k`; facets of the
starting domain have negative labels, -1 - 2 i and -2 - 2 i for the lower and upper side of input i.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray


class Split(NamedTuple):
    """The children of a batch of cells.

    `parent[i]` is the cell that child i was cut from, `piece[i, j]` the piece of unit j on child i (a unit that is
    on a break point all over the cell belongs to the piece below it), and `top[c, j]` is the
    largest `|h_j|` at the vertices of *parent* c (the finite parts of those at infinity): the scale of rounding.
    """

    cells: Any
    parent: npt.NDArray[np.int64]
    piece: npt.NDArray[np.uint8]
    top: FloatArray
