"""2-D cells: convex polygons, split by clipping. No linear program anywhere.

Polygons are stored back to back: polygon `i` has the vertices `offsets[i]:offsets[i+1]`, counter-clockwise, and
`labels[v]` names the line that carries the edge from vertex `v` to the next one.

The whole plane is a square whose half-width `R` is a symbol larger than every number: a vertex is `point + R * ray`.
All vertices of an arrangement inside such a square are exactly of that form, values of affine functions on them are
compared first by the coefficient of `R`, and a cell is unbounded exactly when a vertex has a non-zero ray.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numba as nb
import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.cells.split import Split


@dataclass(frozen=True, eq=False)
class Polygons:
    """Convex polygons in CSR layout. `rays` has no rows when every cell is bounded."""

    points: FloatArray
    rays: FloatArray
    labels: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    dimension = 2

    @classmethod
    def box(cls, lower: FloatArray, upper: FloatArray) -> Polygons:
        """One rectangle; the sides carry the labels -1 (left), -2 (right), -3 (bottom), -4 (top)."""
        (x0, y0), (x1, y1) = lower, upper
        points = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])
        return cls(points, np.zeros((0, 2)), _SIDES, np.array([0, 4]))

    @classmethod
    def space(cls, dimension: int = 2) -> Polygons:
        """The whole plane, as the square of symbolic half-width R."""
        rays = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
        return cls(np.zeros((4, 2)), rays, _SIDES, np.array([0, 4]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, start: int, stop: int) -> Polygons:
        """Cells `start:stop`, as views."""
        first, last = self.offsets[start], self.offsets[stop]
        rays = self.rays[first:last] if len(self.rays) else self.rays
        return Polygons(self.points[first:last], rays, self.labels[first:last], self.offsets[start : stop + 1] - first)

    def relabelled(self, rename: Callable[[npt.NDArray[np.int32]], npt.NDArray[np.int32]]) -> Polygons:
        """The same cells with other facet labels."""
        return replace(self, labels=rename(self.labels))

    @classmethod
    def join(cls, parts: list[Polygons]) -> Polygons:
        """The cells of several batches, one after the other."""
        if not parts:
            return cls(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, np.int32), np.zeros(1, np.int64))
        starts = np.cumsum([0, *(p.offsets[-1] for p in parts)])
        offsets = [p.offsets[:-1] + s for p, s in zip(parts, starts[:-1], strict=True)]
        return cls(
            np.concatenate([p.points for p in parts]),
            np.concatenate([p.rays for p in parts]),
            np.concatenate([p.labels for p in parts]),
            np.concatenate([*offsets, starts[-1:]]).astype(np.int64),
        )

    def split(self, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int) -> Split:
        """Cut every cell by the lines where a unit reaches a break point; see `reluscope.cells.split`."""
        points, rays, labels, offsets, parent, piece, top = _split_polygons(
            self.points, self.rays, self.labels, self.offsets, maps, tolerance, breaks, first_label
        )
        return Split(Polygons(points, rays, labels, offsets), parent, piece, top)

    def interior(self) -> FloatArray:
        """A point strictly inside each cell, shape (n, 2).

        The mean of the finite vertices, plus the mean direction to infinity. A cell without vertices lies between
        parallel lines: there a point on those lines takes the place of the vertices.
        """
        starts = self.offsets[:-1]
        if not len(self.rays):
            return np.add.reduceat(self.points, starts) / np.diff(self.offsets)[:, None]
        far, real = self._far(), ~self._at_infinity()
        before = np.empty_like(real)
        before[self._next()] = real
        finite = np.add.reduceat((~far).astype(float), starts)
        base = np.where(np.repeat(finite > 0, np.diff(self.offsets)), ~far, real | before).astype(float)
        weight = np.maximum(np.add.reduceat(base, starts), 1.0)
        length = np.maximum(np.linalg.norm(self.rays, axis=1), np.finfo(float).tiny)
        onward = np.add.reduceat(self.rays / length[:, None], starts) / np.diff(self.offsets)[:, None]
        return np.add.reduceat(self.points * base[:, None], starts) / weight[:, None] + onward

    def reach(self) -> FloatArray:
        """Largest absolute value of each coordinate on each cell, shape (n, 2); the finite part where unbounded."""
        return np.maximum.reduceat(np.abs(self.points), self.offsets[:-1])

    def vertices(self, i: int) -> FloatArray:
        """Finite vertices of cell i, counter-clockwise, shape (k, 2)."""
        mine = slice(self.offsets[i], self.offsets[i + 1])
        points = self.points[mine]
        return points[~self._far()[mine]] if len(self.rays) else points

    def rays_of(self, i: int) -> FloatArray:
        """Unit directions of the unbounded edges of cell i, shape (k, 2)."""
        if not len(self.rays):
            return np.zeros((0, 2))
        start, stop = self.offsets[i], self.offsets[i + 1]
        real = ~self._at_infinity()[start:stop]
        ends = self._far()[start:stop] & (real | np.roll(real, 1))  # vertices at infinity that end a real edge
        rays = self.rays[start:stop][ends]
        return rays / np.linalg.norm(rays, axis=1, keepdims=True)

    def facet_labels(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Labels of the edges of all cells, and where each cell's start; sides at infinity are left out."""
        if not len(self.rays):
            return self.labels, self.offsets
        real = ~self._at_infinity()
        counts = np.add.reduceat(real.astype(np.int64), self.offsets[:-1])
        return self.labels[real], np.concatenate([[0], np.cumsum(counts)])

    def facet_points(self) -> FloatArray:
        """A point inside each facet, in the order of `facet_labels`."""
        last = self._next()
        points = 0.5 * (self.points + self.points[last])
        if not len(self.rays):
            return points
        points += 0.5 * (self.rays + self.rays[last])
        return points[~self._at_infinity()]

    def _next(self) -> npt.NDArray[np.int64]:
        """Index of the vertex after each one, around its polygon."""
        following = np.arange(1, len(self.points) + 1)
        following[self.offsets[1:] - 1] = self.offsets[:-1]
        return following

    def _far(self) -> npt.NDArray[np.bool_]:
        return (self.rays != 0).any(axis=1)

    def _at_infinity(self) -> npt.NDArray[np.bool_]:
        """Which edges are pieces of the square of symbolic size."""
        return (self.labels < 0) & (self.labels >= -4) & self._far() & self._far()[self._next()]

    def volumes(self) -> FloatArray:
        """Area of each cell (`inf` when unbounded), by the shoelace formula around the first vertex."""
        area = _areas(self.points, self.offsets)
        if len(self.rays):
            unbounded = np.add.reduceat(np.abs(self.rays).sum(axis=1), self.offsets[:-1]) > 0
            area[unbounded] = np.inf
        return area


_SIDES = np.array([-3, -2, -4, -1], dtype=np.int32)


@nb.njit(cache=True)
def _areas(points: FloatArray, offsets: npt.NDArray[np.int64]) -> FloatArray:
    n = len(offsets) - 1
    out = np.empty(n)
    for c in range(n):
        i0 = offsets[c]
        total = 0.0
        for i in range(i0 + 1, offsets[c + 1] - 1):
            ax, ay = points[i, 0] - points[i0, 0], points[i, 1] - points[i0, 1]
            bx, by = points[i + 1, 0] - points[i0, 0], points[i + 1, 1] - points[i0, 1]
            total += ax * by - ay * bx
        out[c] = 0.5 * total
    return out


@nb.njit(cache=True)
def _grown2(a, need):  # type: ignore[no-untyped-def]
    out = np.empty((max(need, 2 * len(a)), a.shape[1]), a.dtype)
    out[: len(a)] = a
    return out


@nb.njit(cache=True)
def _grown1(a, need):  # type: ignore[no-untyped-def]
    out = np.empty(max(need, 2 * len(a)), a.dtype)
    out[: len(a)] = a
    return out


@nb.njit(cache=True)
def _split_polygons(points, rays, labels, offsets, maps, tolerance, breaks, first_label):  # type: ignore[no-untyped-def]
    n, m, steps = len(offsets) - 1, maps.shape[2], breaks.shape[1]
    open_ = len(rays) > 0
    # Vertices are rows (x, y, ray x, ray y); the last two columns are absent when every cell is bounded.
    wide = 4 if open_ else 2

    out_v = np.empty((4 * len(points) + 64, wide))
    out_label = np.empty(len(out_v), np.int32)
    out_offset = np.empty(2 * n + 16, np.int64)
    out_parent = np.empty(2 * n + 16, np.int64)
    out_piece = np.empty((2 * n + 16, m), np.uint8)
    top = np.empty((n, m))
    n_out, v_out = 0, 0
    out_offset[0] = 0

    low, high = np.empty(m), np.empty(m)
    item_unit, item_break = np.empty(m * max(steps, 1), np.int64), np.empty(m * max(steps, 1), np.int64)
    # Pending sub-cells of the cell at hand, as a stack.
    pool, pool_label = np.empty((256, wide)), np.empty(256, np.int32)
    frame_start, frame_item = np.empty(m * max(steps, 1) + 2, np.int64), np.empty(m * max(steps, 1) + 2, np.int64)
    frame_piece = np.empty((m * max(steps, 1) + 2, m), np.uint8)
    cur, cur_label = np.empty((64, wide)), np.empty(64, np.int32)
    one, one_label = np.empty((64, wide)), np.empty(64, np.int32)
    two, two_label = np.empty((64, wide)), np.empty(64, np.int32)
    alpha, beta, side = np.empty(64), np.empty(64), np.empty(64, np.int8)
    piece = np.empty(m, np.uint8)

    for c in range(n):
        start, stop = offsets[c], offsets[c + 1]
        size = stop - start
        cx, cy, cd, tol = maps[c, 0], maps[c, 1], maps[c, 2], tolerance[c]

        # Range of every unit over the cell's vertices.
        for j in range(m):
            low[j], high[j] = np.inf, -np.inf
        for v in range(start, stop):
            x, y = points[v, 0], points[v, 1]
            for j in range(m):
                value = cx[j] * x + cy[j] * y + cd[j]
                low[j], high[j] = min(low[j], value), max(high[j], value)
        for j in range(m):
            top[c, j] = max(abs(low[j]), abs(high[j]))
        if open_:
            for v in range(start, stop):
                rx, ry = rays[v, 0], rays[v, 1]
                for j in range(m):
                    slope = cx[j] * rx + cy[j] * ry
                    if abs(slope) > _RAY_TOLERANCE * (abs(cx[j] * rx) + abs(cy[j] * ry)):
                        if slope > 0.0:
                            high[j] = np.inf
                        else:
                            low[j] = -np.inf

        items = 0
        for j in range(m):
            here = 0
            for k in range(steps):
                t = breaks[j, k]
                if high[j] <= t + tol[j]:
                    break  # below this break point and all later ones
                if low[j] >= t - tol[j]:
                    here += 1
                else:
                    item_unit[items], item_break[items] = j, k
                    items += 1
            piece[j] = here

        need = size + items + 4
        if need > len(cur):
            cur, cur_label = np.empty((2 * need, wide)), np.empty(2 * need, np.int32)
            one, one_label = np.empty((2 * need, wide)), np.empty(2 * need, np.int32)
            two, two_label = np.empty((2 * need, wide)), np.empty(2 * need, np.int32)
            alpha, beta, side = np.empty(2 * need), np.empty(2 * need), np.empty(2 * need, np.int8)

        for i in range(size):
            cur[i, 0], cur[i, 1] = points[start + i, 0], points[start + i, 1]
            if open_:
                cur[i, 2], cur[i, 3] = rays[start + i, 0], rays[start + i, 1]
            cur_label[i] = labels[start + i]
        frames, pooled, item = 0, 0, 0

        while True:
            while item < items:
                j, k = item_unit[item], item_break[item]
                t, eps = breaks[j, k], tol[j]
                above, below = False, False
                for i in range(size):
                    value = cx[j] * cur[i, 0] + cy[j] * cur[i, 1] + cd[j] - t
                    beta[i] = value
                    if open_:
                        # Vertices of the plane's cells have no bound known beforehand: add their own rounding.
                        eps = tol[j] + _RAY_TOLERANCE * (abs(cx[j] * cur[i, 0]) + abs(cy[j] * cur[i, 1]))
                    sign = 0
                    if value > eps:
                        sign = 1
                    elif value < -eps:
                        sign = -1
                    if open_:
                        slope = cx[j] * cur[i, 2] + cy[j] * cur[i, 3]
                        if abs(slope) <= _RAY_TOLERANCE * (abs(cx[j] * cur[i, 2]) + abs(cy[j] * cur[i, 3])):
                            slope = 0.0
                        alpha[i] = slope
                        if slope > 0.0:
                            sign = 1
                        elif slope < 0.0:
                            sign = -1
                    side[i] = sign
                    above = above or sign > 0
                    below = below or sign < 0
                item += 1
                if not above:
                    continue
                if not below:
                    piece[j] += 1
                    continue

                # Walk around once; `one` takes what is below, `two` what is above.
                n1, n2 = 0, 0
                cut = first_label + j * steps + k
                for i in range(size):
                    nxt = i + 1 if i + 1 < size else 0
                    s, s_next = side[i], side[nxt]
                    if s <= 0:
                        one[n1] = cur[i]
                        # The edge leaving this vertex stays below unless the walk crosses the line here.
                        one_label[n1] = cut if (s == 0 and s_next > 0) else cur_label[i]
                        n1 += 1
                    if s >= 0:
                        two[n2] = cur[i]
                        two_label[n2] = cut if (s == 0 and s_next < 0) else cur_label[i]
                        n2 += 1
                    if s * s_next < 0:
                        a1, a2, b1, b2 = 0.0, 0.0, beta[i], beta[nxt]
                        if open_:
                            a1, a2 = alpha[i], alpha[nxt]
                        if a1 == a2:
                            w = b1 / (b1 - b2)
                            for q in range(wide):
                                one[n1, q] = cur[i, q] + w * (cur[nxt, q] - cur[i, q])
                        else:
                            # w = w0 + w1 / R: the crossing of an edge that reaches to infinity.
                            w0 = a1 / (a1 - a2)
                            w1 = (b1 - w0 * (b1 - b2)) / (a1 - a2)
                            for q in range(2):
                                ray = cur[nxt, 2 + q] - cur[i, 2 + q]
                                one[n1, q] = cur[i, q] + w0 * (cur[nxt, q] - cur[i, q]) + w1 * ray
                                one[n1, 2 + q] = cur[i, 2 + q] + w0 * ray
                        two[n2] = one[n1]
                        if s < 0:
                            one_label[n1], two_label[n2] = cut, cur_label[i]
                        else:
                            one_label[n1], two_label[n2] = cur_label[i], cut
                        n1 += 1
                        n2 += 1

                # Keep the lower part at hand, put the upper one aside.
                while pooled + n2 > len(pool):
                    pool, pool_label = _grown2(pool, pooled + n2), _grown1(pool_label, pooled + n2)
                for i in range(n2):
                    pool[pooled + i] = two[i]
                    pool_label[pooled + i] = two_label[i]
                frame_start[frames], frame_item[frames] = pooled, item
                for q in range(m):
                    frame_piece[frames, q] = piece[q]
                frame_piece[frames, j] += 1
                pooled += n2
                frames += 1
                cur, one = one, cur
                cur_label, one_label = one_label, cur_label
                size = n1

            # All units are decided on the cell at hand: it is a child.
            while v_out + size > len(out_v):
                out_v, out_label = _grown2(out_v, v_out + size), _grown1(out_label, v_out + size)
            if n_out + 2 > len(out_parent):
                out_offset, out_parent = _grown1(out_offset, n_out + 2), _grown1(out_parent, n_out + 2)
                out_piece = _grown2(out_piece, n_out + 2)
            for i in range(size):
                out_v[v_out + i] = cur[i]
                out_label[v_out + i] = cur_label[i]
            v_out += size
            out_parent[n_out] = c
            for q in range(m):
                out_piece[n_out, q] = piece[q]
            n_out += 1
            out_offset[n_out] = v_out

            if frames == 0:
                break
            frames -= 1
            size = pooled - frame_start[frames]
            pooled = frame_start[frames]
            item = frame_item[frames]
            for i in range(size):
                cur[i] = pool[pooled + i]
                cur_label[i] = pool_label[pooled + i]
            for q in range(m):
                piece[q] = frame_piece[frames, q]

    new_rays = out_v[:v_out, 2:].copy() if open_ else np.empty((0, 2))
    return (
        out_v[:v_out, :2].copy(),
        new_rays,
        out_label[:v_out].copy(),
        out_offset[: n_out + 1].copy(),
        out_parent[:n_out].copy(),
        out_piece[:n_out].copy(),
        top,
    )


_RAY_TOLERANCE = 64 * 2.220446049250313e-16
"""A line is parallel to a ray when their inner product is at most this share of its terms."""
