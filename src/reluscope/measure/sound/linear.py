"""Linear bounds of units and rows by substitution, for many nodes of a search at once.

On a node every ReLU has an interval `[l, u]` for its argument h. There `a h <= relu(h)` for any slope a in [0, 1], and
`relu(h) <= us h + uc`, the chord. Put into a row from the last layer down to the first, these give an affine function
of the input below the row. Its least value over the node's part of a ball picks better slopes (at the minimiser, the
slope wants to be 1 where the line's own argument is positive): a few steps of Frank and Wolfe, each of which is valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numba
import numpy as np
from scipy import sparse

from reluscope._check import EPS, FloatArray
from reluscope.measure.sound.frame import REACH
from reluscope.measure.sound.relu_form import Index, ReluForm, product
from reluscope.threads import look

_NUMBERS = 1 << 23
"""Numbers in the largest temporary when all units of a layer are bounded: the clock is looked at between such parts."""

Intervals = list[list[tuple[FloatArray, FloatArray]]]
"""Per layer and group: the ends of the ReLUs' arguments, each (nodes, ReLUs)."""


Function = tuple[FloatArray, FloatArray]
"""Affine functions `X x + x0`: coefficients (nodes, rows, r) and constants (nodes, rows)."""


class Place(Protocol):
    """Where the input is, per node of a search: what slopes are chosen for."""

    @property
    def nodes(self) -> int:
        """How many nodes."""
        ...

    def least(self, X: FloatArray, x0: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The least value of `X x + x0` (nodes, rows, r) there, and where."""
        ...

    def reached(self, X: FloatArray, x0: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A score that grows with the distance at which `X x + x0` reaches 0, and a point to improve slopes at."""
        ...


@dataclass(frozen=True, eq=False)
class Part:
    """Part of a ball, per node: `|x| <= reach` and `w x >= far` (no such half-space where far is -inf)."""

    reach: float
    w: FloatArray
    far: FloatArray

    @property
    def nodes(self) -> int:
        """See `Place`."""
        return len(self.far)

    def pick(self, nodes: Any) -> Part:
        """The part of some nodes."""
        return Part(self.reach, self.w[nodes], self.far[nodes])

    def least(self, X: FloatArray, x0: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `Place`."""
        return self._within(X, x0, np.full(x0.shape, self.reach))

    def reached(self, X: FloatArray, x0: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `Place`: the score is the distance itself."""
        away = x0 / np.maximum(np.sqrt(np.einsum("ntr,ntr->nt", X, X)), 1e-300)
        return away, self._within(X, x0, np.clip(away, 0.5, self.reach))[1]

    def _within(self, X: FloatArray, x0: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        size = np.sqrt(np.einsum("ntr,ntr->nt", X, X))
        unit = X / np.maximum(size, 1e-300)[..., None]
        point = -radius[..., None] * unit
        along = np.einsum("ntr,nr->nt", unit, self.w)
        far = np.minimum(self.far[:, None], radius * (1 - 1e-9))
        cut = -radius * along < far
        if cut.any():
            rest = unit - along[..., None] * self.w[:, None, :]
            length = np.sqrt(np.einsum("ntr,ntr->nt", rest, rest))
            out = np.sqrt(np.maximum(radius**2 - np.where(np.isfinite(far), far, 0.0) ** 2, 0.0))
            held = np.where(np.isfinite(far), far, 0.0)[..., None] * self.w[:, None, :]
            held = held - (out / np.maximum(length, 1e-300))[..., None] * rest
            point = np.where(cut[..., None], held, point)
        return x0 + np.einsum("ntr,ntr->nt", X, point), point


def whole(n: int, r: int, reach: float) -> Part:
    """The ball alone, for n nodes in r coordinates."""
    return Part(reach, np.zeros((n, r)), np.full(n, -np.inf))


@dataclass(eq=False)
class Bounds:
    """Substitution through one form, with the sizes that bound its rounding.

    `sizes[k]` holds the largest |h| of layer k, set as layers are bounded from the first on.
    """

    form: ReluForm

    def __post_init__(self) -> None:
        self.sizes: list[FloatArray] = []

    @cached_property
    def _absolute(self) -> list[Any]:
        return [abs(layer.W) for layer in self.form.layers]

    def reads(self, k: int) -> FloatArray:
        """The sum of absolute terms of `W z + b` in layer k."""
        layer = self.form.layers[k]
        if k == 0:
            return np.asarray(self._absolute[0] @ np.full(self.form.n_inputs, REACH)) + np.abs(layer.b)
        return np.asarray(self._absolute[k] @ self._made(k - 1)) + np.abs(layer.b)

    def _made(self, k: int) -> FloatArray:
        """The sum of absolute terms of z in layer k."""
        layer, size = self.form.layers[k], self.sizes[k]
        made = np.abs(layer.slope) * size + np.abs(layer.intercept)
        for group in layer.groups:
            made[group.unit] += 3 * np.abs(group.step) * (size[group.unit] + np.abs(group.at))
        return made

    @cached_property
    def _errors(self) -> dict[int, tuple[FloatArray, FloatArray]]:
        return {}

    def rounding(self, k: int) -> tuple[FloatArray, FloatArray]:
        """Errors per coefficient of z and of h of layer k."""
        if k not in self._errors:
            layer = self.form.layers[k]
            gamma = 4 * EPS * (layer.width + layer.W.shape[1] + 16)
            on_h = layer.error + gamma * self.reads(k)
            on_z = layer.jump + gamma * self._made(k)
            self._errors[k] = on_z, on_h
        return self._errors[k]

    def row_error(self, G: FloatArray) -> FloatArray:
        """Rounding of rows on the last layer that are products themselves."""
        last = len(self.form.layers) - 1
        return np.asarray(self.form.g_error + 4 * EPS * (G.shape[1] + 64) * (np.abs(G) @ self._made(last)))

    def chords(self, ends: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Slope and offset of the chord, and a first lower slope, for intervals (nodes, ReLUs)."""
        low, up = ends
        wide = (low < 0) & (up > 0)
        us = np.where(low >= 0, 1.0, np.where(wide, up / np.where(wide, up - low, 1.0), 0.0))
        uc = np.where(wide, -low * us, 0.0)
        ls = np.where(low >= 0, 1.0, np.where(wide & (up > -low), 1.0, 0.0))
        return us, uc, ls

    def lower(
        self, k: int, Q: FloatArray, q: FloatArray, box: Intervals, part: Place, steps: int, *, nearest: bool = False
    ) -> tuple[FloatArray, FloatArray, list[list[FloatArray]]]:
        """Affine functions of x below `Q z_k + q` (nodes, rows, units) on each node: (X, x0, coefficients of ReLUs).

        With `nearest`, slopes are chosen for the distance at which the function reaches 0, else for its least value.
        """
        lines = [[self.chords(ends) for ends in box[j]] for j in range(k + 1)]
        slopes = [[np.broadcast_to(c[2][:, None, :], (*Q.shape[:2], c[2].shape[-1])) for c in ls] for ls in lines]
        best: tuple[FloatArray, FloatArray, list[list[FloatArray]]] | None = None
        top = np.full(Q.shape[:2], -np.inf)
        for step in range(steps + 1):
            look()
            X, x0, coefficients = self._down(k, Q, q, lines, slopes)
            score, point = part.reached(X, x0) if nearest else part.least(X, x0)
            if best is None:
                best, top = (X, x0, coefficients), score
            else:
                better = score > top
                if better.any():
                    top = np.where(better, score, top)
                    best = (
                        np.where(better[..., None], X, best[0]),
                        np.where(better, x0, best[1]),
                        [
                            [np.where(better[..., None], c, old) for c, old in zip(a, b, strict=True)]
                            for a, b in zip(coefficients, best[2], strict=True)
                        ],
                    )
            if step < steps:
                slopes = self._stepped(k, point, lines, slopes, coefficients, 2.0 / (step + 3.0))
        assert best is not None
        return best

    def functions(
        self, k: int, units: Index, boxes: Intervals, part: Place, steps: int, each: bool = False
    ) -> tuple[Function, Function]:
        """Affine functions below h and below -h of units of layer k; with `each`, unit i for node i only."""
        layer = self.form.layers[k]
        n = part.nodes
        rows = dense_rows(layer.W, units)
        Q = rows[:, None, :] if each else np.broadcast_to(rows, (n, *rows.shape))
        b = layer.b[units][:, None] if each else np.broadcast_to(layer.b[units], (n, len(units)))
        if k == 0:
            _, on_h = self.rounding(0) if self.sizes else (None, layer.error)
            error = on_h[units][:, None] if each else on_h[units]
            return (Q, b - error), (-Q, -b - error)
        width = max(self.form.n_inputs, *(la.width for la in self.form.layers[:k]))
        most = max(1, _NUMBERS // (2 * Q.shape[0] * width))
        parts = []
        for at in range(0, max(Q.shape[1], 1), most):  # without units: once, for the shapes
            some, own = Q[:, at : at + most], b[:, at : at + most]
            both = np.concatenate([some, -some], axis=1)
            X, x0, _ = self.lower(k - 1, both, np.concatenate([own, -own], axis=1), boxes, part, steps)
            half = some.shape[1]
            parts.append((X[:, :half], x0[:, :half], X[:, half:], x0[:, half:]))
        below, below0, above, above0 = (
            parts[0] if len(parts) == 1 else (np.concatenate(p, axis=1) for p in zip(*parts, strict=True))
        )
        return (below, below0), (above, above0)

    def _down(
        self, k: int, Q: FloatArray, q: FloatArray, lines: Any, slopes: Any
    ) -> tuple[FloatArray, FloatArray, list[list[FloatArray]]]:
        coefficients: list[list[FloatArray]] = []
        for j in range(k, -1, -1):
            layer = self.form.layers[j]
            on_z, on_h = self.rounding(j)
            q = q - np.abs(Q) @ on_z + Q @ layer.intercept
            h = Q * layer.slope
            own = []
            for m, group in enumerate(layer.groups):
                us, uc, _ = lines[j][m]
                c = np.empty((*Q.shape[:2], len(group.unit)))
                q = q + _lines_kernel(
                    _plain(Q), group.unit, group.step, group.at, _plain(us), _plain(uc), _plain(slopes[j][m]), h, c
                )
                own.append(c)
            coefficients.append(own)
            q = q - np.abs(h) @ on_h + h @ layer.b
            Q = product(h, layer.W)
        return Q, q, coefficients[::-1]

    def _stepped(self, k: int, point: FloatArray, lines: Any, slopes: Any, coefficients: Any, rate: float) -> Any:
        """Slopes moved towards those that are best at `point`."""
        out = []
        z = point
        for j in range(k + 1):
            layer = self.form.layers[j]
            h = product(z, layer.W.T) + layer.b
            z = h * layer.slope + layer.intercept
            own = []
            for m, group in enumerate(layer.groups):
                us, uc, _ = lines[j][m]
                a = slopes[j][m].copy()
                _slopes_kernel(
                    h, group.unit, group.step, group.at, _plain(us), _plain(uc), coefficients[j][m], a, z, rate
                )
                own.append(a)
            out.append(own)
        return out


def _plain(numbers: FloatArray) -> FloatArray:
    """The same numbers row by row and read-only: a kernel compiles once, not for each kind of array that comes."""
    own = np.ascontiguousarray(numbers).view()
    own.flags.writeable = False
    return own


@numba.njit(cache=True, nogil=True)
def _lines_kernel(Q, unit, step, at, us, uc, a, h, c):  # type: ignore[no-untyped-def]
    """Coefficients c of the ReLUs of a group, their lines added to h; returns what is added to the constants."""
    n, rows, _ = Q.shape
    out = np.zeros((n, rows))
    for i in range(n):
        for t in range(rows):
            total = 0.0
            for k in range(len(unit)):
                own = Q[i, t, unit[k]] * step[k]
                c[i, t, k] = own
                part = own * a[i, t, k]
                if own <= 0.0:
                    part = own * us[i, k]
                    total += own * uc[i, k]
                total -= part * at[k]
                h[i, t, unit[k]] += part
            out[i, t] = total
    return out


@numba.njit(cache=True, nogil=True)
def _slopes_kernel(h, unit, step, at, us, uc, c, a, z, rate):  # type: ignore[no-untyped-def]
    """The lines' values added to z; slopes a moved towards 1 where their argument is positive, else towards 0."""
    n, rows, _ = h.shape
    for i in range(n):
        for t in range(rows):
            for k in range(len(unit)):
                x = h[i, t, unit[k]] - at[k]
                if c[i, t, k] > 0.0:
                    z[i, t, unit[k]] += step[k] * a[i, t, k] * x
                    if 0.0 < us[i, k] < 1.0:
                        a[i, t, k] = (1.0 - rate) * a[i, t, k] + (rate if x > 0.0 else 0.0)
                else:
                    z[i, t, unit[k]] += step[k] * (us[i, k] * x + uc[i, k])


def dense_rows(W: Any, rows: Any) -> FloatArray:
    """Rows of a dense or sparse matrix, dense."""
    part = W[rows]
    return np.asarray(part.toarray() if sparse.issparse(part) else part, dtype=np.float64)
