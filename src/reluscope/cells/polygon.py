"""2-D cells: convex polygons, split by clipping. No linear program anywhere.

Polygons are stored back to back: polygon `i` has the vertices `offsets[i]:offsets[i+1]`, counter-clockwise, and
`labels[v]` names the line that carries the edge from vertex `v` to the next one.

The whole plane, with its unbounded cells, is left to `reluscope.cells.vertex`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import inner, kernel
from reluscope.cells.csr import joined, places, stacked
from reluscope.cells.split import SHALLOW, Split, for_reading


@dataclass(frozen=True, eq=False)
class Polygons:
    """Convex polygons in CSR layout."""

    points: FloatArray
    labels: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    dimension = 2

    @classmethod
    def box(cls, lower: FloatArray, upper: FloatArray) -> Polygons:
        """One rectangle; the sides carry the labels -1 (left), -2 (right), -3 (bottom), -4 (top)."""
        (x0, y0), (x1, y1) = lower, upper
        points = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])
        return cls(points, np.array([-3, -2, -4, -1], dtype=np.int32), np.array([0, 4]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, start: int, stop: int) -> Polygons:
        """Cells `start:stop`, as views."""
        first, last = self.offsets[start], self.offsets[stop]
        return Polygons(self.points[first:last], self.labels[first:last], self.offsets[start : stop + 1] - first)

    def take(self, index: npt.NDArray[np.integer]) -> Polygons:
        """The cells at `index`, in that order."""
        rows, offsets = places(self.offsets, index)
        return Polygons(self.points[rows], self.labels[rows], offsets)

    def corners(self) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """Vertices of all cells, back to back, and where each cell's start."""
        return self.points, self.offsets

    def relabelled(self, rename: Callable[[npt.NDArray[np.int32]], npt.NDArray[np.int32]]) -> Polygons:
        """The same cells with other facet labels."""
        return replace(self, labels=rename(self.labels))

    @classmethod
    def join(cls, parts: list[Polygons]) -> Polygons:
        """The cells of several batches, one after the other."""
        if not parts:
            return cls(np.zeros((0, 2)), np.zeros(0, np.int32), np.zeros(1, np.int64))
        return cls(
            stacked([p.points for p in parts]),
            stacked([p.labels for p in parts]),
            joined([p.offsets for p in parts]),
        )

    def split(self, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int) -> Split[Polygons]:
        """Cut every cell by the lines where a unit reaches a break point; see `reluscope.cells.split`."""
        points, labels, offsets, parent, piece, top, near = _split_polygons(
            self.points, self.labels, self.offsets, maps, tolerance, for_reading(breaks), first_label
        )
        return Split(Polygons(points, labels, offsets), parent, piece, top, near)

    def interior(self) -> FloatArray:
        """A point strictly inside each cell, shape (n, 2): the mean of its vertices."""
        return np.add.reduceat(self.points, self.offsets[:-1]) / np.diff(self.offsets)[:, None]

    def reach(self) -> FloatArray:
        """Largest absolute value of each coordinate on each cell, shape (n, 2)."""
        return np.maximum.reduceat(np.abs(self.points), self.offsets[:-1])

    def vertices(self, i: int) -> FloatArray:
        """Vertices of cell i, counter-clockwise, shape (k, 2)."""
        return self.points[self.offsets[i] : self.offsets[i + 1]]

    def rays_of(self, i: int) -> FloatArray:
        """No rows: polygons are bounded."""
        return np.zeros((0, 2))

    def facet_labels(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Labels of the edges of all cells, and where each cell's start."""
        return self.labels, self.offsets

    def facet_points(self) -> FloatArray:
        """The middle of each edge, in the order of `facet_labels`."""
        following = np.arange(1, len(self.points) + 1)
        following[self.offsets[1:] - 1] = self.offsets[:-1]
        return 0.5 * (self.points + self.points[following])

    def volumes(self) -> FloatArray:
        """Area of each cell, by the shoelace formula around its first vertex."""
        return _areas(self.points, self.offsets)


_POOL_FULL, _VERTICES_FULL, _CELLS_FULL, _WORK_FULL = -1, -2, -3, -4


@kernel
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


_MOST_KEPT = 1 << 22
"""Bytes of a buffer that is kept for the next call."""


class _Room(threading.local):
    """Buffers for children, kept by each thread: memory that the system gives out anew costs as much as cutting."""

    def __init__(self) -> None:
        self._kept: dict[str, npt.NDArray[Any]] = {}

    def empty(self, name: str, dtype: Any, rows: int, *tail: int) -> npt.NDArray[Any]:
        """An array with at least so many rows, whatever they hold."""
        each, kept = math.prod(tail), self._kept.pop(name, None)
        if kept is None or len(kept) < rows * each:
            return np.empty((rows, *tail), dtype)
        rows = len(kept) // max(each, 1)
        return kept[: rows * each].reshape(rows, *tail)

    def keep(self, **arrays: npt.NDArray[Any]) -> None:
        """These are no longer in use."""
        self._kept |= {name: array.reshape(-1) for name, array in arrays.items() if array.nbytes <= _MOST_KEPT}


_ROOM = _Room()


def _grown(a: npt.NDArray[Any], times: int) -> npt.NDArray[Any]:
    """The same rows, and room for so many times as many: less where the buffer would be too large to be kept."""
    times = max(2, min(times, _MOST_KEPT // max(a.nbytes, 1)))
    out = np.empty((times * len(a), *a.shape[1:]), a.dtype)
    out[: len(a)] = a
    return out


def _split_polygons(
    points: FloatArray,
    labels: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
    maps: FloatArray,
    tolerance: FloatArray,
    breaks: FloatArray,
    first_label: int,
) -> tuple[npt.NDArray[Any], ...]:
    """Vertices, labels, offsets, parents and pieces of the children; largest values and closeness of the cells."""
    n, m, steps = len(offsets) - 1, maps.shape[2], breaks.shape[1]
    most = m * max(steps, 1)

    # A single cell may have many children: a full buffer means to begin it anew.
    cells = 2 * n + 16 + (min(m * most // 2, 4096) if n == 1 else 0)
    vertices = 3 * len(points) + 64 + (5 * cells if n == 1 else 0)
    out_v, out_label = _ROOM.empty("v", np.float64, vertices, 2), _ROOM.empty("label", np.int32, vertices)
    out_offset, out_parent = _ROOM.empty("offset", np.int64, cells + 1), _ROOM.empty("parent", np.int64, cells)
    out_piece = _ROOM.empty("piece", np.uint8, cells, m)
    out_offset[0] = 0
    top, near = np.empty((n, m)), np.zeros(n, np.int8)

    given = points, labels, offsets, maps, tolerance, breaks, first_label
    n_out, v_out, c, full, size, pool = 0, 0, 0, 1, 64, 1024
    while full != 0:
        # One call for all cells: it comes back earlier only when a buffer is full, which then grows.
        out = out_v, out_label, out_offset, out_parent, out_piece
        c, n_out, v_out, full, close, found = _split_all(c, n_out, v_out, given, top, near, size, pool, out)
        times = min(max(2, 3 * n // (2 * c + 2)), 16)  # what the cells so far foretell
        if full == _WORK_FULL:
            size *= 2
        elif full == _POOL_FULL:
            pool *= 2
        elif full == _VERTICES_FULL:
            out_v, out_label = _grown(out_v, times), _grown(out_label, times)
        elif full == _CELLS_FULL:
            out_offset, out_parent, out_piece = (_grown(a, times) for a in (out_offset, out_parent, out_piece))

    _ROOM.keep(v=out_v, label=out_label, offset=out_offset, parent=out_parent, piece=out_piece)
    return (*found, top, near if close else None)


@kernel
def _split_all(begin, n_out, v_out, given, top, near, size, room, out):  # type: ignore[no-untyped-def]
    """What `_split_from` gives, whether a unit is close to any cell, and the children once all cells are split.

    One kernel for all of it: after each of them a thread waits for the interpreter. Polygons may have `size` vertices,
    those put aside `room` together.
    """
    m, steps = given[3].shape[2], given[5].shape[1]
    most = m * max(steps, 1)
    items = np.empty(most, np.int64), np.empty(most, np.int64)
    # `work` holds three polygons: the one at hand and its two parts; `pool` is the stack of those put aside.
    work, work_label = np.empty((3, size, 2)), np.empty((3, size), np.int32)
    pool, pool_label = np.empty((room, 2)), np.empty(room, np.int32)
    frame, frame_piece = np.empty((most + 2, 2), np.int64), np.empty((most + 2, m), np.uint8)
    ranges = np.empty(m), np.empty(m), np.empty(m, np.int8), top, near
    scratch = (*ranges, *items, np.empty(m, np.uint8), frame, frame_piece)
    buffers = work, work_label, np.empty(size), np.empty(size, np.int8), pool, pool_label
    c, n, v, full = _split_from(begin, n_out, v_out, given, scratch, buffers, out)
    close = False
    for i in range(len(near) if full == 0 else 0):
        close |= near[i] != 0
    children = _copied(n if full == 0 else 0, v if full == 0 else 0, out)
    return c, n, v, full, close, children


@inner
def _copied(n, v, out):  # type: ignore[no-untyped-def]
    """The used part of each buffer."""
    points, labels, offsets, parents, pieces = out
    out_v, out_label = np.empty((v, 2)), np.empty(v, np.int32)
    out_offset, out_parent, out_piece = (
        np.empty(n + 1, np.int64),
        np.empty(n, np.int64),
        np.empty((n, pieces.shape[1]), np.uint8),
    )
    for i in range(v):
        out_v[i, 0], out_v[i, 1] = points[i, 0], points[i, 1]
        out_label[i] = labels[i]
    out_offset[0] = 0
    for i in range(n):
        out_offset[i + 1], out_parent[i] = offsets[i + 1], parents[i]
        for q in range(pieces.shape[1]):
            out_piece[i, q] = pieces[i, q]
    return out_v, out_label, out_offset, out_parent, out_piece


@inner
def _split_from(begin, n_out, v_out, given, scratch, buffers, out):  # type: ignore[no-untyped-def]
    """Split cells `begin`, `begin + 1`, ...; returns the next cell, the ends of the output, and which buffer is full.

    One long function on purpose: arrays that are passed to helpers or reassigned inside the loop cost an atomic
    reference count each, which doubled the time per cell.
    """
    points, labels, offsets, maps, tolerance, breaks, first_label = given
    low, high, state, top, near, item_unit, item_break, piece, frame, frame_piece = scratch
    work, work_label, beta, side, pool, pool_label = buffers
    out_v, out_label, out_offset, out_parent, out_piece = out
    m, steps = maps.shape[2], breaks.shape[1]
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
        # 0 below the first break point all over the cell, 1 across it, 2 above it; `close` if it gets near without.
        close = 0
        for j in range(m if steps > 0 else 0):
            reaches = high[j] > breaks[j, 0] + tolerance[c, j]
            leaves = low[j] >= breaks[j, 0] - tolerance[c, j]
            state[j] = reaches + (reaches & leaves)
            close |= (not reaches) & (high[j] >= breaks[j, 0] - tolerance[c, j])
            close |= leaves & (low[j] <= breaks[j, 0] + tolerance[c, j])
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
                    close |= high[j] >= t - tolerance[c, j]
                    break  # below this break point and all later ones
                if low[j] >= t - tolerance[c, j]:
                    close |= low[j] <= t + tolerance[c, j]
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
                    value = cx * x + cy * y + cd - t
                    beta[i] = value
                    sign = 0
                    if value > tolerance[c, j]:
                        sign = 1
                    elif value < -tolerance[c, j]:
                        sign = -1
                    side[i] = sign
                    close |= sign == 0
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
                        # The edge leaving this vertex stays below unless the walk crosses the line here.
                        work_label[one, n1] = cut if (s == 0 and s_next > 0) else work_label[cur, i]
                        n1 += 1
                    if s >= 0:
                        work[two, n2, 0], work[two, n2, 1] = work[cur, i, 0], work[cur, i, 1]
                        work_label[two, n2] = cut if (s == 0 and s_next < 0) else work_label[cur, i]
                        n2 += 1
                    if s * s_next < 0:
                        b1, b2 = beta[i], beta[nxt]
                        w = b1 / (b1 - b2)
                        dx, dy = work[cur, nxt, 0] - work[cur, i, 0], work[cur, nxt, 1] - work[cur, i, 1]
                        if (b1 - b2) ** 2 <= SHALLOW**2 * (cx * cx + cy * cy) * (dx * dx + dy * dy):
                            close |= 2
                        x = work[cur, i, 0] + w * dx
                        y = work[cur, i, 1] + w * dy
                        work[one, n1, 0], work[one, n1, 1] = x, y
                        work[two, n2, 0], work[two, n2, 1] = x, y
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
            if v_out + size > min(len(out_v), len(out_label)):
                return c, n_begin, v_begin, _VERTICES_FULL
            if n_out >= min(len(out_parent), len(out_offset) - 1, len(out_piece)):
                return c, n_begin, v_begin, _CELLS_FULL
            for i in range(size):
                out_v[v_out + i, 0], out_v[v_out + i, 1] = work[cur, i, 0], work[cur, i, 1]
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
                work_label[cur, i] = pool_label[pooled + i]
        near[c] = close
    return len(offsets) - 1, n_out, v_out, 0
