"""Measure, first and second moments of batches of cells, in the cells' own coordinates `u`."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._check import EPS, FloatArray
from reluscope._lazy import late


def gaussian_moments(cells: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """`P(cell)` (n,), `E[u 1]` (n, r) and `E[u u' 1]` (n, r, r) under N(0, I_r), for r up to three."""
    if cells.dimension == 1:
        from reluscope.measure.exact import interval_moments

        mass, first, second = interval_moments(cells.low, cells.high)
        return mass, first[:, None], second[:, None, None]
    if cells.dimension == 2:
        from reluscope.measure.exact import polygon_moments as measured
    else:
        from reluscope.measure.exact import polyhedra_moments as measured
    return measured(*cells.corners())


def volume_moments(cells: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Volume (n,), `int u` (n, r) and `int u u'` (n, r, r).

    By simplices with corners `v`: `int u = V s / (r+1)`, `int u u' = V (sum v v' + s s') / ((r+1) (r+2))`, `s = sum v`.
    """
    r = cells.dimension
    if r == 1:
        low, high = cells.low, cells.high
        length = high - low
        return length, 0.5 * (length * (high + low))[:, None], ((high**3 - low**3) / 3.0)[:, None, None]
    if r == 2:
        # A fan of triangles around each polygon's first vertex.
        count = np.diff(cells.offsets)
        owner = np.repeat(np.arange(len(cells)), count - 2)
        inner = np.arange(len(owner)) - np.repeat(np.cumsum(count - 2) - (count - 2), count - 2)
        start = cells.offsets[:-1][owner]
        corners = np.stack([cells.points[start], cells.points[start + 1 + inner], cells.points[start + 2 + inner]], 1)
    else:
        each = [simplices(cells.vertices(i)) for i in range(len(cells))]
        owner = np.repeat(np.arange(len(cells)), [len(e) for e in each])
        corners = np.concatenate(each)
    volume = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])) / np.prod(np.arange(1, r + 1))
    total = corners.sum(axis=1)
    first, second = np.zeros((len(cells), r)), np.zeros((len(cells), r, r))
    np.add.at(first, owner, volume[:, None] * total / (r + 1))
    pairs = np.einsum("sci,scj->sij", corners, corners) + total[:, :, None] * total[:, None, :]
    np.add.at(second, owner, volume[:, None, None] * pairs / ((r + 1) * (r + 2)))
    whole: FloatArray = np.bincount(owner, volume, minlength=len(cells)).astype(np.float64)
    return whole, first, second


def simplices(vertices: FloatArray) -> FloatArray:
    """The convex hull of points cut into simplices, shape (s, d + 1, d)."""
    if vertices.shape[1] == 1:
        return np.array([[vertices.min(axis=0), vertices.max(axis=0)]])
    Delaunay, ConvexHull, QhullError = (
        late("scipy.spatial", name) for name in ("Delaunay", "ConvexHull", "QhullError")
    )

    centre = vertices.mean(axis=0)
    scaled = (vertices - centre) / np.maximum(np.ptp(vertices, axis=0), EPS)
    try:
        return vertices[Delaunay(scaled).simplices]
    except (
        QhullError
    ):  # happens from four dimensions on, when many vertices lie near one sphere: facets from the centre
        facets = vertices[ConvexHull(scaled).simplices]
        return np.concatenate([np.broadcast_to(centre, (len(facets), 1, len(centre))), facets], axis=1)
