"""Length and area of unions: of intervals, and of convex polygons in the plane.

The area is the integral of `(x dy - y dx) / 2` along the boundary of the union. That boundary is made of the parts of
all edges that lie inside no other polygon. Where two edges lie on one line, opposite ones cancel (neighbours that share
an edge), and of equal ones the first counts.
"""

from __future__ import annotations

import numpy as np

from reluscope._check import FloatArray

_NEAR = 1e-11
"""Two points count as equal within this share of the size of the picture."""


def union_of_intervals(low: FloatArray, high: FloatArray) -> float:
    """Length of the union of the intervals `[low, high]`."""
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    before = np.concatenate([[low[0]], reach[:-1]])
    return float(np.maximum(reach - np.maximum(low, before), 0.0).sum())


def union_of_polygons(polygons: list[FloatArray]) -> float:
    """Area of the union of convex polygons, each with its corners counter-clockwise."""
    if not polygons:
        return 0.0
    start = np.concatenate([[0], np.cumsum([len(p) for p in polygons])])
    size = max(max(float(np.abs(p).max()) for p in polygons), 1e-300)
    P = np.concatenate(polygons)
    Q = np.concatenate([np.roll(p, -1, axis=0) for p in polygons])
    way = Q - P
    length = np.linalg.norm(way, axis=1)
    normal = np.column_stack([way[:, 1], -way[:, 0]]) / np.maximum(length, 1e-300)[:, None]
    offset = (normal * P).sum(axis=1)  # inside: normal . x <= offset
    low = np.array([p.min(axis=0) for p in polygons])
    high = np.array([p.max(axis=0) for p in polygons])
    owner = np.repeat(np.arange(len(polygons)), np.diff(start))
    near, total = _NEAR * size, 0.0
    for e in range(len(P)):
        if length[e] <= near:
            continue
        box_low, box_high = np.minimum(P[e], Q[e]) - near, np.maximum(P[e], Q[e]) + near
        others = np.flatnonzero((low <= box_high).all(axis=1) & (high >= box_low).all(axis=1))
        hidden = [
            _inside(P[e], way[e], length[e], normal, offset, start, int(j), bool(j < owner[e]), near)
            for j in others[others != owner[e]]
        ]
        for a, b in _left([part for part in hidden if part is not None]):
            u, v = P[e] + a * way[e], P[e] + b * way[e]
            total += 0.5 * float(u[0] * v[1] - v[0] * u[1])
    return total


def _inside(
    p: FloatArray,
    way: FloatArray,
    length: float,
    normal: FloatArray,
    offset: FloatArray,
    start: FloatArray,
    j: int,
    first: bool,
    near: float,
) -> tuple[float, float] | None:
    """The part `[a, b]` of the edge `p + t way`, t in [0, 1], that polygon j hides; None if it hides nothing."""
    rows = slice(start[j], start[j + 1])
    at = normal[rows] @ p - offset[rows]
    slope = normal[rows] @ way
    flat = (np.abs(at) <= near) & (np.abs(at + slope) <= near)
    if flat.any():  # on a line with an edge of j: seen from the same side, the first of the two counts
        same = (normal[rows][flat] @ np.array([way[1], -way[0]]) > 0).all()
        if not (same and first):
            return None
    elif ((at >= -near) & (at + slope >= -near)).any():
        return None
    rising, falling = (slope > 0) & ~flat, (slope < 0) & ~flat
    if ((at > near) & ~rising & ~falling & ~flat).any():
        return None
    a = max(float((-at[falling] / slope[falling]).max(initial=0.0)), 0.0)
    b = min(float((-at[rising] / slope[rising]).min(initial=1.0)), 1.0)
    return (a, b) if (b - a) * length > near else None


def _left(hidden: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What is left of [0, 1] without the hidden parts."""
    left, reach = [], 0.0
    for a, b in sorted(hidden):
        if a > reach:
            left.append((reach, a))
        reach = max(reach, b)
    if reach < 1.0:
        left.append((reach, 1.0))
    return left
