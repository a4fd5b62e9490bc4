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


_POOL_FULL, _VERTICES_FULL, _CELLS_FULL, _WORK_FULL = -1, -2, -3, -4

_RAY_TOLERANCE = 64 * 2.220446049250313e-16
"""A line is parallel to a ray when their inner product is at most this share of its terms."""

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
def _grown2(a):  # type: ignore[no-untyped-def]
    out = np.empty((2 * len(a), a.shape[1]), a.dtype)
    out[: len(a)] = a
    return out


@nb.njit(cache=True)
def _grown1(a):  # type: ignore[no-untyped-def]
    out = np.empty(2 * len(a), a.dtype)
    out[: len(a)] = a
    return out


@nb.njit(cache=True)
def _split_polygons(points, rays, labels, offsets, maps, tolerance, breaks, first_label):  # type: ignore[no-untyped-def]
    n, m, steps = len(offsets) - 1, maps.shape[2], breaks.shape[1]
    # Vertices are rows (x, y, ray x, ray y); the last two columns are absent when every cell is bounded.
    wide = 4 if len(rays) > 0 else 2
    most = m * max(steps, 1)

    out_v, out_label = np.empty((3 * len(points) + 64, wide)), np.empty(3 * len(points) + 64, np.int32)
    out_offset, out_parent = np.empty(2 * n + 17, np.int64), np.empty(2 * n + 16, np.int64)
    out_piece = np.empty((2 * n + 16, m), np.uint8)
    out_offset[0] = 0
    top = np.empty((n, m))

    low, high, state = np.empty(m), np.empty(m), np.empty(m, np.int8)
    item_unit, item_break = np.empty(most, np.int64), np.empty(most, np.int64)
    # `work` holds three polygons: the one at hand and its two parts; `pool` is the stack of those put aside.
    work, work_label = np.empty((3, 64, wide)), np.empty((3, 64), np.int32)
    alpha, beta, side = np.empty(64), np.empty(64), np.empty(64, np.int8)
    pool, pool_label = np.empty((256, wide)), np.empty(256, np.int32)
    frame = np.empty((most + 2, 2), np.int64)
    frame_piece = np.empty((most + 2, m), np.uint8)
    piece = np.empty(m, np.uint8)

    n_out, v_out, c = 0, 0, 0
    while c < n:
        # One call for all cells: it comes back only when a buffer is full, which then grows.
        c, n_out, v_out, full = _split_from(
            c,
            n_out,
            v_out,
            points,
            rays,
            labels,
            offsets,
            maps,
            tolerance,
            breaks,
            first_label,
            low,
            high,
            state,
            top,
            item_unit,
            item_break,
            piece,
            work,
            work_label,
            alpha,
            beta,
            side,
            pool,
            pool_label,
            frame,
            frame_piece,
            out_v,
            out_label,
            out_offset,
            out_parent,
            out_piece,
        )
        if full == _WORK_FULL:
            size = 2 * work.shape[1]
            work, work_label = np.empty((3, size, wide)), np.empty((3, size), np.int32)
            alpha, beta, side = np.empty(size), np.empty(size), np.empty(size, np.int8)
        elif full == _POOL_FULL:
            pool, pool_label = np.empty((2 * len(pool), wide)), np.empty(2 * len(pool), np.int32)
        elif full == _VERTICES_FULL:
            out_v, out_label = _grown2(out_v), _grown1(out_label)
        elif full == _CELLS_FULL:
            out_offset, out_parent, out_piece = _grown1(out_offset), _grown1(out_parent), _grown2(out_piece)

    new_rays = out_v[:v_out, 2:].copy() if wide == 4 else np.empty((0, 2))
    return (
        out_v[:v_out, :2].copy(),
        new_rays,
        out_label[:v_out].copy(),
        out_offset[: n_out + 1].copy(),
        out_parent[:n_out].copy(),
        out_piece[:n_out].copy(),
        top,
    )


@nb.njit(cache=True)
def _split_from(  # type: ignore[no-untyped-def]
    begin,
    n_out,
    v_out,
    points,
    rays,
    labels,
    offsets,
    maps,
    tolerance,
    breaks,
    first_label,
    low,
    high,
    state,
    top,
    item_unit,
    item_break,
    piece,
    work,
    work_label,
    alpha,
    beta,
    side,
    pool,
    pool_label,
    frame,
    frame_piece,
    out_v,
    out_label,
    out_offset,
    out_parent,
    out_piece,
):
    """Split cells `begin`, `begin + 1`, ...; returns the next cell, the ends of the output, and which buffer is full.

    One long function on purpose: arrays that are passed to helpers or reassigned inside the loop cost an atomic
    reference count each, which doubled the time per cell.
    """
    m, steps, wide = maps.shape[2], breaks.shape[1], work.shape[2]
    open_ = wide == 4
    for c in range(begin, len(offsets) - 1):
        start, stop = offsets[c], offsets[c + 1]
        n_begin, v_begin = n_out, v_out

        # Range of every unit over the cell's vertices, two at a time so that the loops vectorise well.
        x, y, x1, y1 = points[start, 0], points[start, 1], points[start + 1, 0], points[start + 1, 1]
        for j in range(m):
            first, second = maps[c, 0, j] * x + maps[c, 1, j] * y, maps[c, 0, j] * x1 + maps[c, 1, j] * y1
            low[j] = first if first < second else second
            high[j] = second if first < second else first
        for v in range(start + 2, stop, 2):
            w = v + 1 if v + 1 < stop else v
            x, y, x1, y1 = points[v, 0], points[v, 1], points[w, 0], points[w, 1]
            for j in range(m):
                first, second = maps[c, 0, j] * x + maps[c, 1, j] * y, maps[c, 0, j] * x1 + maps[c, 1, j] * y1
                less = first if first < second else second
                more = second if first < second else first
                low[j] = less if less < low[j] else low[j]
                high[j] = more if more > high[j] else high[j]
        for j in range(m):
            low[j] += maps[c, 2, j]
            high[j] += maps[c, 2, j]
            top[c, j] = abs(low[j]) if abs(low[j]) > abs(high[j]) else abs(high[j])
        if len(rays) > 0:
            for v in range(start, stop):
                rx, ry = rays[v, 0], rays[v, 1]
                for j in range(m):
                    slope = _along(maps[c, 0, j], maps[c, 1, j], rx, ry)
                    if slope > 0.0:
                        high[j] = np.inf
                    elif slope < 0.0:
                        low[j] = -np.inf
        # 0 below the first break point all over the cell, 1 across it, 2 above it.
        for j in range(m if steps > 0 else 0):
            reaches = high[j] > breaks[j, 0] + tolerance[c, j]
            state[j] = reaches + (reaches & (low[j] >= breaks[j, 0] - tolerance[c, j]))
        items = 0
        for j in range(m):
            if steps == 0:
                state[j] = 0
            piece[j] = state[j] >> 1
            if state[j] == 1:
                item_unit[items], item_break[items] = j, 0
                items += 1
        for j in range(m if steps > 1 else 0):
            for k in range(1, steps):
                t = breaks[j, k]
                if high[j] <= t + tolerance[c, j]:
                    break  # below this break point and all later ones
                if low[j] >= t - tolerance[c, j]:
                    piece[j] += 1
                else:
                    item_unit[items], item_break[items] = j, k
                    items += 1
        if stop - start + items + 4 > work.shape[1]:
            return c, n_begin, v_begin, _WORK_FULL

        # Cut the cell by its crossing units one after the other.
        cur, one, two = 0, 1, 2
        size = stop - start
        for i in range(size):
            work[cur, i, 0], work[cur, i, 1] = points[start + i, 0], points[start + i, 1]
            if open_:
                work[cur, i, 2], work[cur, i, 3] = rays[start + i, 0], rays[start + i, 1]
            work_label[cur, i] = labels[start + i]
        frames, pooled, item = 0, 0, 0
        for q in range(m):
            frame_piece[0, q] = piece[q]

        while True:
            # Row `frames` of `frame_piece` belongs to the polygon at hand, the rows below to those put aside.
            while item < items:
                j, k = item_unit[item], item_break[item]
                cx, cy, cd, t = maps[c, 0, j], maps[c, 1, j], maps[c, 2, j], breaks[j, k]
                above, below = False, False
                for i in range(size):
                    x, y = work[cur, i, 0], work[cur, i, 1]
                    value, eps = cx * x + cy * y + cd - t, tolerance[c, j]
                    beta[i] = value
                    if open_:
                        # Vertices of the plane's cells have no bound known beforehand: add their own rounding.
                        eps += _RAY_TOLERANCE * (abs(cx * x) + abs(cy * y))
                    sign = 0
                    if value > eps:
                        sign = 1
                    elif value < -eps:
                        sign = -1
                    if open_:
                        slope = _along(cx, cy, work[cur, i, 2], work[cur, i, 3])
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
                    frame_piece[frames, j] += 1
                    continue

                # Walk around once; `one` takes what is below, `two` what is above.
                n1, n2 = 0, 0
                cut = first_label + j * steps + k
                for i in range(size):
                    nxt = i + 1 if i + 1 < size else 0
                    s, s_next = side[i], side[nxt]
                    if s <= 0:
                        work[one, n1, 0], work[one, n1, 1] = work[cur, i, 0], work[cur, i, 1]
                        if open_:
                            work[one, n1, 2], work[one, n1, 3] = work[cur, i, 2], work[cur, i, 3]
                        # The edge leaving this vertex stays below unless the walk crosses the line here.
                        work_label[one, n1] = cut if (s == 0 and s_next > 0) else work_label[cur, i]
                        n1 += 1
                    if s >= 0:
                        work[two, n2, 0], work[two, n2, 1] = work[cur, i, 0], work[cur, i, 1]
                        if open_:
                            work[two, n2, 2], work[two, n2, 3] = work[cur, i, 2], work[cur, i, 3]
                        work_label[two, n2] = cut if (s == 0 and s_next < 0) else work_label[cur, i]
                        n2 += 1
                    if s * s_next < 0:
                        b1, b2 = beta[i], beta[nxt]
                        if not open_ or alpha[i] == alpha[nxt]:
                            w = b1 / (b1 - b2)
                            x = work[cur, i, 0] + w * (work[cur, nxt, 0] - work[cur, i, 0])
                            y = work[cur, i, 1] + w * (work[cur, nxt, 1] - work[cur, i, 1])
                            work[one, n1, 0], work[one, n1, 1] = x, y
                            work[two, n2, 0], work[two, n2, 1] = x, y
                            if open_:
                                x = work[cur, i, 2] + w * (work[cur, nxt, 2] - work[cur, i, 2])
                                y = work[cur, i, 3] + w * (work[cur, nxt, 3] - work[cur, i, 3])
                                work[one, n1, 2], work[one, n1, 3] = x, y
                                work[two, n2, 2], work[two, n2, 3] = x, y
                        else:
                            # w = w0 + w1 / R: the crossing of an edge that reaches to infinity.
                            a1, a2 = alpha[i], alpha[nxt]
                            w0 = a1 / (a1 - a2)
                            w1 = (b1 - w0 * (b1 - b2)) / (a1 - a2)
                            for q in range(2):
                                ray = work[cur, nxt, 2 + q] - work[cur, i, 2 + q]
                                at = work[cur, i, q] + w0 * (work[cur, nxt, q] - work[cur, i, q]) + w1 * ray
                                work[one, n1, q], work[two, n2, q] = at, at
                                ray = work[cur, i, 2 + q] + w0 * ray
                                work[one, n1, 2 + q], work[two, n2, 2 + q] = ray, ray
                        if s < 0:
                            work_label[one, n1], work_label[two, n2] = cut, work_label[cur, i]
                        else:
                            work_label[one, n1], work_label[two, n2] = work_label[cur, i], cut
                        n1 += 1
                        n2 += 1

                # Put the upper part aside and keep the lower one at hand.
                if pooled + n2 > len(pool):
                    return c, n_begin, v_begin, _POOL_FULL
                for i in range(n2):
                    pool[pooled + i, 0], pool[pooled + i, 1] = work[two, i, 0], work[two, i, 1]
                    if open_:
                        pool[pooled + i, 2], pool[pooled + i, 3] = work[two, i, 2], work[two, i, 3]
                    pool_label[pooled + i] = work_label[two, i]
                frame[frames, 0], frame[frames, 1] = pooled, item
                for q in range(m):
                    frame_piece[frames + 1, q] = frame_piece[frames, q]
                frame_piece[frames, j] += 1
                pooled += n2
                frames += 1
                cur, one = one, cur
                size = n1

            # All units are decided on the polygon at hand: it is a child.
            if v_out + size > len(out_v):
                return c, n_begin, v_begin, _VERTICES_FULL
            if n_out >= len(out_parent):
                return c, n_begin, v_begin, _CELLS_FULL
            for i in range(size):
                out_v[v_out + i, 0], out_v[v_out + i, 1] = work[cur, i, 0], work[cur, i, 1]
                if open_:
                    out_v[v_out + i, 2], out_v[v_out + i, 3] = work[cur, i, 2], work[cur, i, 3]
                out_label[v_out + i] = work_label[cur, i]
            v_out += size
            out_parent[n_out] = c
            for q in range(m):
                out_piece[n_out, q] = frame_piece[frames, q]
            n_out += 1
            out_offset[n_out] = v_out

            if frames == 0:
                break
            frames -= 1
            size = pooled - frame[frames, 0]
            pooled, item = frame[frames, 0], frame[frames, 1]
            for i in range(size):
                work[cur, i, 0], work[cur, i, 1] = pool[pooled + i, 0], pool[pooled + i, 1]
                if open_:
                    work[cur, i, 2], work[cur, i, 3] = pool[pooled + i, 2], pool[pooled + i, 3]
                work_label[cur, i] = pool_label[pooled + i]
    return len(offsets) - 1, n_out, v_out, 0


@nb.njit(cache=True)
def _along(cx, cy, rx, ry):  # type: ignore[no-untyped-def]
    """Slope of an affine function along a ray; 0 when they are parallel within rounding."""
    slope = cx * rx + cy * ry
    return slope if abs(slope) > _RAY_TOLERANCE * (abs(cx * rx) + abs(cy * ry)) else 0.0
