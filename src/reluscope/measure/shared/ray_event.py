"""A placed event in the coordinates of one component of a law, and where rays meet it.

With `x` the inputs and `y` the outputs, row i of an event is `a_i x + g_i y <= c_i`. In the component's coordinates
v it reads `g_i net(v) + l_i v + s_i <= c_i`: a form of the outputs, which is traced, and a linear part, which is added
to it. A case is a conjunction of rows, the event a union of cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.events import PlacedEvent
from reluscope.inputs import Component
from reluscope.measure.shared.line_sums import FLAT, TIE
from reluscope.measure.shared.trace import Segments, Tracer
from reluscope.network import Layer, Network

_MOST_NUMBERS = 1 << 20
"""Numbers in the largest temporary of `RayRows.margin`."""


@dataclass(frozen=True, eq=False)
class RayRows:
    """The event on one component: case k has the rows `start[k]:start[k+1]`.

    Row i is `net(v) @ forms[form[i]] + v @ linear[i] + shift[i] <= bound[i]` (`<` where `strict`); `form[i] < 0`: no
    output in it. `plain` says that no row has a linear part. Made by `ray_rows`, or from forms of the outputs alone.
    """

    net: Network
    forms: FloatArray
    form: npt.NDArray[np.int64]
    linear: FloatArray
    shift: FloatArray
    bound: FloatArray
    strict: npt.NDArray[np.bool_]
    start: npt.NDArray[np.int64]

    @property
    def plain(self) -> bool:
        """Whether no row reads the coordinates directly."""
        return not self.linear.any()

    def tracer(self) -> Tracer:
        """A tracer of the forms."""
        return Tracer(self.net, self.forms)

    def excess(self, V: FloatArray) -> FloatArray:
        """Left side minus right side of every row at the points `V` (n, r), shape (n, rows)."""
        values = self.net(V) @ self.forms.T
        out = np.where(self.form >= 0, values[:, self.form], 0.0) + (self.shift - self.bound)
        if not self.plain:
            out += V @ self.linear.T
        return out

    def margin(self, V: FloatArray, scale: FloatArray) -> FloatArray:
        """How far outside each point is: the worst row of a case, the best case; at most 0 inside. Shape (n,)."""
        out = np.empty(len(V))
        step = max(1, _MOST_NUMBERS // max(1, len(self.bound)))
        for begin in range(0, len(V), step):
            part = slice(begin, begin + step)
            excess = self.excess(V[part]) / scale
            if self.strict.any():  # on the bound is outside
                excess = np.where(self.strict & (excess >= 0.0), excess + 1e-300, excess)
            out[part] = np.maximum.reduceat(excess, self.start[:-1], axis=1).min(axis=1)
        return out

    def gradient(self, V: FloatArray, scale: FloatArray) -> FloatArray:
        """Derivative of the margin's row by the coordinates at the points `V` (n, r): of the row that decides there."""
        excess = self.excess(V) / scale
        case = np.maximum.reduceat(excess, self.start[:-1], axis=1).argmin(axis=1)
        mine = (np.arange(len(self.bound)) >= self.start[case][:, None]) & (
            np.arange(len(self.bound)) < self.start[case + 1][:, None]
        )
        row = np.where(mine, excess, -np.inf).argmax(axis=1)
        back = np.where(self.form[row, None] >= 0, self.forms[self.form[row]], 0.0)
        *hidden, _ = self.net.preactivations(V)
        back = np.asarray(back @ self.net.layers[-1].weight)
        for layer, h in zip(reversed(self.net.hidden), reversed(hidden), strict=True):
            slopes, _ = layer.units.on(layer.units.pattern(h))
            back = np.asarray((back * slopes) @ layer.weight)
        return back + self.linear[row]

    def moved(self, centre: FloatArray, scale: FloatArray) -> RayRows:
        """The same event in the coordinates v with `u = centre + scale v`."""
        return RayRows(
            self.net.after(np.diag(scale), centre), self.forms, self.form, self.linear * scale,
            self.shift + self.linear @ centre, self.bound, self.strict, self.start,
        )  # fmt: skip

    def within(self, A: FloatArray, b: FloatArray) -> RayRows:
        """The event cut with the half-spaces `A v <= b`: they become rows of every case."""
        cases = len(self.start) - 1
        k = len(b)
        order = np.concatenate(
            [
                np.concatenate([np.arange(self.start[c], self.start[c + 1]), len(self.bound) + np.arange(k)])
                for c in range(cases)
            ]
        )
        sizes = np.diff(self.start) + k
        return RayRows(
            self.net, self.forms, np.concatenate([self.form, np.full(k, -1)])[order],
            np.concatenate([self.linear, A])[order], np.concatenate([self.shift, np.zeros(k)])[order],
            np.concatenate([self.bound, b])[order], np.concatenate([self.strict, np.zeros(k, bool)])[order],
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        )  # fmt: skip


def ray_rows(event: PlacedEvent, component: Component) -> RayRows:
    """A placed event on one of its components: carried forms become linear parts, so that they need no tracing."""
    event = event.filled
    net, m = event.net, event.net.n_outputs
    own = component.network
    linear, shift = np.zeros((len(event.g), own.n_inputs)), np.zeros(len(event.g))
    if event.network is not net:
        # The first layer of the component's network is that of `net` and, below it, the carried forms.
        first, width = own.layers[0], net.layers[0].width
        carried = first.weight[width:]
        linear = event.G[:, m:] @ (carried.toarray() if sparse.issparse(carried) else carried)
        shift = event.G[:, m:] @ first.bias[width:]
        head = Layer(first.weight[:width].copy(), first.bias[:width].copy(), net.layers[0].units)
        own = Network([head, *net.layers[1:]], output_shape=net.output_shape, name=net.name)
    forms, form = _distinct(event.G[:, :m])
    return RayRows(own, forms, form, linear, shift, event.g, event.strict, event.start)


def _distinct(G: FloatArray) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """The different rows of G that are not zero, and which of them each row is (-1: zero)."""
    live = G.any(axis=1)
    form = np.full(len(G), -1, np.int64)
    if not live.any():
        return np.zeros((1, G.shape[1])), form
    forms, inverse = np.unique(G[live], axis=0, return_inverse=True)
    form[live] = inverse.ravel()
    return forms, form


def ray_intervals(
    event: RayRows, found: Segments, directions: FloatArray
) -> tuple[npt.NDArray[np.int64], FloatArray, FloatArray]:
    """The stretches of each ray inside the event: ray i has `[a[k], b[k]]` for k in `offsets[i]:offsets[i+1]`."""
    steep = np.zeros((len(found), 0)) if event.plain else directions @ event.linear.T
    offsets = np.zeros(len(found) + 1, np.int64)
    cases = len(event.start) - 1
    room = 2 * len(found) + 16 * cases
    while True:
        a, b = np.empty(room), np.empty(room)
        if _inside(
            found.offsets, found.t, found.value, found.slope, found.high, steep, event.form, event.shift, event.bound,
            event.strict, event.start, offsets, a, b,
        ):  # fmt: skip
            return offsets, a[: offsets[-1]], b[: offsets[-1]]
        room *= 4


@kernel
def _inside(
    offsets: Any,
    t: Any,
    value: Any,
    slope: Any,
    high: Any,
    steep: Any,
    form: Any,
    shift: Any,
    bound: Any,
    strict: Any,
    start: Any,
    out_offsets: Any,
    out_a: Any,
    out_b: Any,
) -> bool:
    """List the stretches; False when there is no room for them.

    Stretches that touch are joined. On a segment every row is linear, so a case holds on one interval of it; a row that
    is constant on a segment is compared with a tolerance (see `line_sums`), so that an atom on its bound counts.
    """
    cases = start.size - 1
    room = out_a.size
    linear = steep.shape[1] > 0
    lows, highs = np.empty(cases), np.empty(cases)
    largest, size = np.zeros(bound.size), np.zeros(bound.size)
    count = 0
    out_offsets[0] = 0
    for line in range(offsets.size - 1):
        first = count
        largest[:] = 0.0
        size[:] = 0.0
        for q in range(offsets[line], offsets[line + 1]):
            t0 = t[q]
            t1 = t[q + 1] if q + 1 < offsets[line + 1] else high[line]
            found = 0
            for case in range(cases):
                a, b = t0, t1
                for i in range(start[case], start[case + 1]):
                    f = form[i]
                    y, s = shift[i], 0.0
                    if f >= 0:
                        y += value[q, f]
                        s += slope[q, f]
                    if linear:
                        y += steep[line, i] * t0
                        s += steep[line, i]
                    largest[i] = max(largest[i], abs(s))
                    size[i] = max(size[i], abs(y))
                    if a > b:
                        continue
                    if abs(s) <= FLAT * largest[i]:
                        tie = TIE * size[i]
                        if not (y < bound[i] - tie if strict[i] else y <= bound[i] + tie):
                            a, b = 1.0, 0.0
                    else:
                        at = t0 + (bound[i] - y) / s
                        if s > 0.0:
                            b = min(b, at)
                        else:
                            a = max(a, at)
                if a < b:
                    k = found
                    while k > 0 and lows[k - 1] > a:
                        lows[k], highs[k] = lows[k - 1], highs[k - 1]
                        k -= 1
                    lows[k], highs[k] = a, b
                    found += 1
            for k in range(found):
                if count > first and lows[k] <= out_b[count - 1]:
                    out_b[count - 1] = max(out_b[count - 1], highs[k])
                    continue
                if count == room:
                    return False
                out_a[count], out_b[count] = lows[k], highs[k]
                count += 1
        out_offsets[line + 1] = count
    return True
