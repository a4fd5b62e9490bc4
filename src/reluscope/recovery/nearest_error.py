"""The exact error of the nearest linear model in the plane: Voronoi cells meet the network's regions in polygons.

On such a polygon the difference of the two maps is affine: its square integrates in closed form over triangles, and
it is largest at a vertex.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.network import Network
from reluscope.recovery.samples import LocalFit


@dataclass(frozen=True)
class NearestError:
    """Share of the box's area with the right affine map, root mean square error, and largest error."""

    right: float
    l2: float
    sup: float


def nearest_error(known: Network, fit: LocalFit) -> NearestError:
    """Exact error of `fit(X, "nearest")` against a network with two inputs and one output."""
    Delaunay = late("scipy.spatial", "Delaunay")

    from reluscope.cells.regions import uninterrupted

    box = (fit.centre - fit.half, fit.centre + fit.half)
    found = uninterrupted(known, box)
    polygons = [(found.vertices(i) - fit.centre) / fit.half for i in range(len(found))]
    low, high = np.array([p.min(axis=0) for p in polygons]), np.array([p.max(axis=0) for p in polygons])
    slope = found.C[:, 0, :] * fit.half
    offset = found.d[:, 0] + found.C[:, 0, :] @ fit.centre
    start, list_ = Delaunay(fit.centres).vertex_neighbor_vertices
    square = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    right = total = sup = 0.0
    for i, v in enumerate(fit.centres):
        cell = square
        for j in list_[start[i] : start[i + 1]]:
            a = fit.centres[j] - v
            cell = _clip(cell, a, float(a @ (fit.centres[j] + v)) / 2)
        if len(cell) < 3:
            continue
        mine, constant = fit.slopes[i], fit.values[i] - fit.slopes[i] @ v
        for r in np.flatnonzero((low < cell.max(axis=0)).all(axis=1) & (high > cell.min(axis=0)).all(axis=1)):
            part = _meet(cell, polygons[r])
            if len(part) < 3:
                continue
            gap = part @ (mine - slope[r]) + constant - offset[r]
            edges = part[1:] - part[0]
            area = 0.5 * np.abs(edges[:-1, 0] * edges[1:, 1] - edges[:-1, 1] * edges[1:, 0])
            trio = np.stack([np.broadcast_to(gap[0], len(area)), gap[1:-1], gap[2:]])
            total += float((area / 12 * ((trio**2).sum(axis=0) + trio.sum(axis=0) ** 2)).sum())
            size = np.abs(slope[r]).max() + np.abs(offset[r]) + 1e-300
            if max(np.abs(mine - slope[r]).max(), abs(constant - offset[r])) <= 1e-6 * size:
                right += float(area.sum())
            sup = max(sup, float(np.abs(gap).max()))
    return NearestError(right / 4, float(np.sqrt(total / 4)), sup)


def _clip(polygon: FloatArray, a: FloatArray, b: float) -> FloatArray:
    """The part of a convex polygon with `a.x <= b`."""
    if not len(polygon):
        return polygon
    value = polygon @ a - b
    if (value <= 0).all():
        return polygon
    following, next_value = np.roll(polygon, -1, axis=0), np.roll(value, -1)
    kept: list[FloatArray] = []
    for p, q, s, t in zip(polygon, following, value, next_value, strict=True):
        if s <= 0:
            kept.append(p)
        if (s < 0 < t) or (t < 0 < s):
            kept.append(p + (q - p) * (s / (s - t)))
    return np.array(kept).reshape(-1, 2)


def _meet(one: FloatArray, two: FloatArray) -> FloatArray:
    """The intersection of two convex polygons, the second counter-clockwise."""
    for p, q in zip(two, np.roll(two, -1, axis=0), strict=True):
        edge = q - p
        outward = np.array([edge[1], -edge[0]])
        one = _clip(one, outward, float(outward @ p))
        if len(one) < 3:
            break
    return one
