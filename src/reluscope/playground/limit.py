"""Where an event holds in the plane, and where it begins and ends, for drawing.

On a region the network is affine, so every row of an event is a half-plane there. The limit of the event is made of
those parts of the rows' lines (and of the regions' edges, where the event may jump) on whose two sides the event
differs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.errors import InputError
from reluscope.playground.session import View

_MOST_VALUES = 4_000_000
_MOST_SEGMENTS = 20_000
_STEP = 1e-6
"""How far to each side of a line the event is looked at, as a share of the view."""

_SHORT = 1e-4
"""Pieces of a line shorter than this share of the view are not drawn."""


def event_limit(view: View, regions: Any, event: Any) -> FloatArray:
    """The limit of `event` in the view: segments (k, 4) in a plane, places (k, 1) on a line."""
    if not event.cases or not len(regions):
        return np.zeros((0, 2 * len(view.axes) if len(view.axes) == 2 else 1))
    slopes, level = _rows(view, regions, event)
    if len(view.axes) == 1:
        return _places(view, regions, event, slopes[..., 0], level)
    return _segments(view, regions, event, slopes, level)


def event_side(view: View, regions: Any, event: Any) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Where the event holds in the view: convex polygons (points (k, 2) and offsets), or intervals (points (k, 2)).

    On each region a case of the event is a polygon; the polygons of different cases may overlap.
    """
    none = np.zeros((0, 2)), np.zeros(1, dtype=np.int64)
    if not event.cases or not len(regions):
        return none
    if len(view.axes) == 1:
        spots = np.sort(event_limit(view, regions, event).ravel())
        ends = np.concatenate([view.lower, spots, view.upper])
        frame, origin = view.frame()
        inside = event.holds(view.net, (0.5 * (ends[1:] + ends[:-1]))[:, None] @ frame.T + origin)
        return np.column_stack([ends[:-1], ends[1:]])[inside], np.zeros(1, dtype=np.int64)
    slopes, level = _rows(view, regions, event)
    kept, row = [], 0
    for case in event.cases:
        rows = len(case.g) + int(np.isfinite(case.lower).sum() + np.isfinite(case.upper).sum())
        points, offsets, owner = regions.cells.points, regions.cells.offsets, np.arange(len(regions))
        for k in range(row, row + rows):
            points, offsets, owner = _clipped(points, offsets, owner, slopes[:, k], level[:, k])
        row += rows
        kept.append((points, np.diff(offsets)))
    sizes = np.concatenate([size for _, size in kept])
    return np.concatenate([points for points, _ in kept]), np.concatenate([[0], np.cumsum(sizes)])


def _clipped(
    points: FloatArray,
    offsets: npt.NDArray[np.int64],
    owner: npt.NDArray[np.int64],
    slope: FloatArray,
    level: FloatArray,
) -> tuple[FloatArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Convex polygons cut by `slope[owner] . u <= level[owner]`; those with nothing left are dropped."""
    if not len(owner):
        return points, offsets, owner
    of = np.repeat(owner, np.diff(offsets))
    following = np.arange(1, len(points) + 1)
    following[offsets[1:] - 1] = offsets[:-1]
    value = np.einsum("vi,vi->v", points, slope[of]) - level[of]
    inside = value <= 0
    crossing = inside != inside[following]
    emitted = inside.astype(np.int64) + crossing
    ends = np.cumsum(emitted)
    out = np.empty((int(ends[-1]), 2))
    out[(ends - emitted)[inside]] = points[inside]
    at = np.flatnonzero(crossing)
    part = value[at] / (value[at] - value[following[at]])
    out[ends[at] - 1] = points[at] + part[:, None] * (points[following[at]] - points[at])
    sizes = np.add.reduceat(emitted, offsets[:-1])
    keep = sizes >= 3
    return out[np.repeat(keep, sizes)], np.concatenate([[0], np.cumsum(sizes[keep])]), owner[keep]


def _rows(view: View, regions: Any, event: Any) -> tuple[FloatArray, FloatArray]:
    """Each row of each case on each region: `slopes[r, k] . u <= level[r, k]`."""
    A, G, F, g = [], [], [], []
    for case in event.cases:
        sides = [(1.0, case.upper), (-1.0, case.lower)]
        bounds = [(sign, i, sign * side[i]) for sign, side in sides for i in np.flatnonzero(np.isfinite(side)).tolist()]
        box = np.zeros((len(bounds), event.n_inputs))
        for k, (sign, i, _) in enumerate(bounds):
            box[k, i] = sign
        A += [np.asarray(case.A), box]
        G += [case.G, np.zeros((len(bounds), event.n_outputs))]
        F += [case.F, np.zeros((len(bounds), len(event.features)))]
        g += [case.g, np.array([b for _, _, b in bounds])]
    a, y, f, level = np.concatenate(A), np.concatenate(G), np.concatenate(F), np.concatenate(g)
    if len(level) * (len(regions) * (event.n_outputs + 8)) > _MOST_VALUES:
        raise InputError("the event has too many parts to draw its boundary; its probability is not affected")
    frame, origin = view.frame()
    features = event.feature_values(view.net, regions.pattern)
    slopes = (a @ frame)[None] + np.einsum("km,rmi->rki", y, regions.C, optimize=True)
    return slopes, (level - a @ origin)[None] - regions.d @ y.T - features @ f.T


def _segments(view: View, regions: Any, event: Any, slopes: FloatArray, level: FloatArray) -> FloatArray:
    points, offsets = regions.cells.points, regions.cells.offsets
    owner = np.repeat(np.arange(len(regions)), np.diff(offsets))
    following = np.arange(1, len(points) + 1)
    following[offsets[1:] - 1] = offsets[:-1]
    value = np.einsum("vi,vki->vk", points, slopes[owner]) - level[owner]
    size = np.abs(points)[:, None] * np.abs(slopes[owner])
    on = np.abs(value) <= 1e-9 * (size.sum(axis=2) + np.abs(level[owner]) + 1e-300)
    start, end, where = _crossings(points, following, owner, value)
    # Edges on which a row is at its limit all along, or that may change a feature, are candidates as well.
    edge = np.flatnonzero((on & on[following]).any(axis=1) if event.linear else np.ones(len(points), bool))
    start, end = np.concatenate([start, points[edge]]), np.concatenate([end, points[following[edge]]])
    where = np.concatenate([where, owner[edge]])
    if len(where) > _MOST_SEGMENTS:
        raise InputError("the event's boundary has too many segments to draw; zoom in to see it")
    start, end = _cut(start, end, slopes[where], level[where])
    scale = view.upper - view.lower
    along = (end - start) / scale
    length = np.linalg.norm(along, axis=1)
    keep = length > _SHORT
    start, end, along, length = start[keep], end[keep], along[keep], length[keep]
    normal = np.column_stack([-along[:, 1], along[:, 0]]) / length[:, None] * _STEP * scale
    differs = _differs(view, event, 0.5 * (start + end), normal)
    return np.unique(np.concatenate([start, end], axis=1)[differs], axis=0)


def _crossings(
    points: FloatArray, following: npt.NDArray[np.int64], owner: npt.NDArray[np.int64], value: FloatArray
) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int64]]:
    """Where each row's line enters and leaves each convex polygon: two ends and the polygon, one row per chord."""
    up = value > 0
    row, at = np.nonzero((up != up[following]).T)
    a, b = value[at, row], value[following[at], row]
    spot = points[at] + (a / (a - b))[:, None] * (points[following[at]] - points[at])
    # Rows come in order, and within a row polygons do: a chord's two ends are neighbours.
    same = np.flatnonzero((row[:-1] == row[1:]) & (owner[at[:-1]] == owner[at[1:]]))
    return spot[same], spot[same + 1], owner[at[same]]


def _cut(start: FloatArray, end: FloatArray, slopes: FloatArray, level: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The segments cut wherever another row of their region changes sign."""
    a = np.einsum("si,ski->sk", start, slopes) - level
    b = np.einsum("si,ski->sk", end, slopes) - level
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where((a > 0) != (b > 0), a / (a - b), 1.0)
    t = np.sort(np.concatenate([np.zeros((len(t), 1)), np.clip(t, 0.0, 1.0), np.ones((len(t), 1))], axis=1), axis=1)
    segment, piece = np.nonzero(np.diff(t, axis=1) > 1e-9)
    way = (end - start)[segment]
    return start[segment] + t[segment, piece, None] * way, start[segment] + t[segment, piece + 1, None] * way


def _places(view: View, regions: Any, event: Any, slopes: FloatArray, level: FloatArray) -> FloatArray:
    low, high = regions.cells.low, regions.cells.high
    with np.errstate(divide="ignore", invalid="ignore"):
        root = level / slopes
    inside = (root > low[:, None]) & (root < high[:, None])
    spot = np.unique(np.concatenate([root[inside], low, high]))[:, None]
    step = np.full_like(spot, _STEP * float(view.upper[0] - view.lower[0]))
    return spot[_differs(view, event, spot, step)]


def _differs(view: View, event: Any, middle: FloatArray, step: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether the event holds on one side only."""
    if not len(middle):
        return np.zeros(0, bool)
    frame, origin = view.frame()
    sides = [event.holds(view.net, (middle + sign * step) @ frame.T + origin) for sign in (-1.0, 1.0)]
    return np.asarray(sides[0] != sides[1])
