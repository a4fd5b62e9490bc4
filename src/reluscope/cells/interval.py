"""1-D cells: intervals `[low, high]`, possibly on many lines at once (`line[i]` says on which)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.cells.grow import grow, grow_rows
from reluscope.cells.split import Split, for_reading


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals with the labels of their two ends; an end may be infinite. Sorted along each line."""

    low: FloatArray
    high: FloatArray
    labels: npt.NDArray[np.int32]

    dimension = 1

    @classmethod
    def box(cls, lower: FloatArray, upper: FloatArray) -> Intervals:
        """One interval per entry of `lower` and `upper`."""
        low, high = np.atleast_1d(lower).astype(float), np.atleast_1d(upper).astype(float)
        return cls(low, high, np.tile(np.array([-1, -2], np.int32), (len(low), 1)))

    @classmethod
    def space(cls, dimension: int = 1) -> Intervals:
        """The whole line."""
        return cls.box(np.array([-np.inf]), np.array([np.inf]))

    def take(self, index: npt.NDArray[np.integer]) -> Intervals:
        """The cells at `index`, in that order."""
        return Intervals(self.low[index], self.high[index], self.labels[index])

    def corners(self) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """Both ends of every interval, back to back, and where each cell's start."""
        return np.stack([self.low, self.high], axis=1).reshape(-1, 1), 2 * np.arange(len(self) + 1)

    def relabelled(self, rename: Callable[[npt.NDArray[np.int32]], npt.NDArray[np.int32]]) -> Intervals:
        """The same cells with other facet labels."""
        return replace(self, labels=rename(self.labels))

    @property
    def is_open(self) -> bool:
        """Whether cells of this batch are unbounded."""
        return bool(np.isinf([self.low, self.high]).any())

    def __len__(self) -> int:
        return len(self.low)

    def part(self, start: int, stop: int) -> Intervals:
        """Cells `start:stop`, as views."""
        return Intervals(self.low[start:stop], self.high[start:stop], self.labels[start:stop])

    @classmethod
    def join(cls, parts: list[Intervals]) -> Intervals:
        """The cells of several batches, one after the other."""
        if not parts:
            return cls(np.zeros(0), np.zeros(0), np.zeros((0, 2), np.int32))
        return cls(
            np.concatenate([p.low for p in parts]),
            np.concatenate([p.high for p in parts]),
            np.concatenate([p.labels for p in parts]),
        )

    def split(self, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int) -> Split[Intervals]:
        """Cut every interval where a unit reaches a break point; see `reluscope.cells.split`."""
        low, high, labels, parent, piece, top, near = _split_intervals(
            self.low, self.high, self.labels, maps, tolerance, for_reading(breaks), first_label
        )
        return Split(Intervals(low, high, labels), parent, piece, top, near)

    def reach(self) -> FloatArray:
        """Largest absolute value on each cell, shape (n, 1); the finite part where unbounded."""
        ends = np.abs(np.stack([self.low, self.high]))
        return np.where(np.isfinite(ends), ends, 0.0).max(axis=0)[:, None]

    def interior(self) -> FloatArray:
        """A point strictly inside each cell, shape (n, 1)."""
        low, high = self.low, self.high
        with np.errstate(invalid="ignore"):
            middle = np.where(
                np.isfinite(low),
                np.where(np.isfinite(high), low + 0.5 * (high - low), low + 1.0 + np.abs(low)),
                np.where(np.isfinite(high), high - 1.0 - np.abs(high), 0.0),
            )
        return middle[:, None]

    def vertices(self, i: int) -> FloatArray:
        """Finite ends of interval i, shape (k, 1)."""
        ends = np.array([[self.low[i]], [self.high[i]]])
        return ends[np.isfinite(ends[:, 0])]

    def rays_of(self, i: int) -> FloatArray:
        """Directions in which interval i is unbounded, shape (k, 1)."""
        return np.array([[-1.0]] * int(np.isinf(self.low[i])) + [[1.0]] * int(np.isinf(self.high[i]))).reshape(-1, 1)

    def facet_labels(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Labels of the finite ends of all cells, and where each cell's start."""
        real = np.isfinite(np.stack([self.low, self.high], axis=1))
        return self.labels[real], np.concatenate([[0], np.cumsum(real.sum(axis=1))])

    def facet_points(self) -> FloatArray:
        """The finite ends, in the order of `facet_labels`."""
        ends = np.stack([self.low, self.high], axis=1)
        return ends[np.isfinite(ends)][:, None]

    def volumes(self) -> FloatArray:
        """Length of each interval."""
        return self.high - self.low


@kernel
def _split_intervals(low, high, labels, maps, tolerance, breaks, first_label):  # type: ignore[no-untyped-def]
    n, m, steps = len(low), maps.shape[2], breaks.shape[1]
    capacity = 4 * n + 16
    out_low, out_high, out_labels = np.empty(capacity), np.empty(capacity), np.empty((capacity, 2), np.int32)
    out_parent, out_piece = np.empty(capacity, np.int64), np.empty((capacity, m), np.uint8)
    top, near = np.empty((n, m)), np.zeros(n, np.int8)
    most = m * max(steps, 1)
    at, fuzz, cut, up = np.empty(most), np.empty(most), np.empty(most, np.int64), np.empty(most, np.int64)
    piece = np.empty(m, np.uint8)
    n_out = 0
    for c in range(n):
        a, b = low[c], high[c]
        crossings = 0
        for j in range(m):
            slope, offset, tol = maps[c, 0, j], maps[c, 1, j], tolerance[c, j]
            va = slope * a + offset if slope != 0.0 else offset
            vb = slope * b + offset if slope != 0.0 else offset
            top[c, j] = abs(offset)
            if np.isfinite(va):
                top[c, j] = max(top[c, j], abs(va))
            if np.isfinite(vb):
                top[c, j] = max(top[c, j], abs(vb))
            here = 0  # piece at the left end of the interval
            for k in range(steps):
                t = breaks[j, k]
                if max(va, vb) <= t + tol:
                    near[c] |= max(va, vb) >= t - tol
                    break
                if min(va, vb) >= t - tol:
                    near[c] |= min(va, vb) <= t + tol
                    here += 1
                    continue
                if va > vb:
                    here += 1
                x = (t - offset) / slope
                at[crossings] = min(max(x, a), b)
                fuzz[crossings] = tol / abs(slope)
                cut[crossings] = j * steps + k
                up[crossings] = 1 if vb > va else -1
                crossings += 1
            piece[j] = here
        order = np.argsort(at[:crossings], kind="mergesort")
        left, left_label, left_fuzz = a, labels[c, 0], 0.0
        q = 0
        while True:
            # Units that cross at one and the same point, as far as rounding can tell, flip together.
            right = at[order[q]] if q < crossings else b
            right_fuzz = fuzz[order[q]] if q < crossings else 0.0
            right_label = np.int32(first_label + cut[order[q]]) if q < crossings else labels[c, 1]
            if right > left and right - left > left_fuzz + right_fuzz:
                if n_out >= len(out_low):
                    out_low, out_high, out_labels = grow(out_low, 0), grow(out_high, 0), grow_rows(out_labels, 0)
                    out_parent, out_piece = grow(out_parent, 0), grow_rows(out_piece, 0)
                out_low[n_out], out_high[n_out] = left, right
                out_labels[n_out, 0], out_labels[n_out, 1] = left_label, right_label
                out_parent[n_out] = c
                for j in range(m):
                    out_piece[n_out, j] = piece[j]
                n_out += 1
                left, left_label, left_fuzz = right, right_label, right_fuzz
            elif b > a:
                near[c] |= 1
            if q >= crossings:
                break
            unit = cut[order[q]] // steps
            piece[unit] = piece[unit] + up[order[q]]
            q += 1
    return (
        out_low[:n_out].copy(),
        out_high[:n_out].copy(),
        out_labels[:n_out].copy(),
        out_parent[:n_out].copy(),
        out_piece[:n_out].copy(),
        top,
        near,
    )
