"""A network along many lines at once: compiled, exact up to rounding.

On a line `u(t) = base + t direction` the network is piecewise linear in t. The walk goes layer by layer: the units of
layer 1 cut the line once; on each piece [a, b] the pre-activations of layer 2 are linear, `v(b) = v(a) + s (b - a)`, so a
unit crosses a break point exactly when its two end values say so, and only then is there a division. A unit j of layer l
that switches changes the next layer's slopes by one column,

    s_{l+1} += W_{l+1}[:, j] (a' - a) s_l[j],

and the slopes of the layers behind it are formed afresh. Values are carried along by continuity, never recomputed.

Cost per line, with N_l the pieces that layers 1..l cut: `3 N_l n_{l+1}` operations for carrying and comparing and
`N_{l-1} n_l n_{l+1}` for fresh slopes, over all layers, all of it in vector registers.

Rounding. A pre-activation is the sum of its start value and at most N_l increments, so its error stays below
`2 N_l eps max|v|` plus that of the slopes, which are sums of at most `REFRESH` rank-one terms before they are formed
afresh: `REFRESH eps max|s|`. A unit counts as crossing only when it gets past a break point by more than `HOVER`
of its layer's largest value on the line, so that units which sit on a break point do not flicker; crossings closer than
`SNAP (1 + |t|)` count as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.errors import InputError
from reluscope.measure.special import kernel
from reluscope.network import Network, Pattern

REFRESH = 64
"""Rank-one updates of a layer's slopes before they are formed afresh."""

HOVER = 2e-14
SNAP = 4e-15

LARGEST_TABLES = 1 << 26
"""Numbers in the dense weight tables of a network that is traced: 512 MB."""

_LANES = 8
_FEW_FORMS = 3


@dataclass(frozen=True, eq=False)
class Tables:
    """A network and linear forms of its outputs, as the arrays that the compiled walk reads.

    Layers are padded to a multiple of 8 units with units that are always 0. Row `start[l] + k` of `columns` holds the weights
    from unit k of hidden layer l to the next layer (or to the forms, for the last hidden layer).
    """

    first: FloatArray
    """Weights of the first layer, transposed: (inputs, padded units)."""
    bias: FloatArray
    """Biases of each hidden layer and then of the forms, (layers + 1, widest)."""
    columns: FloatArray
    start: npt.NDArray[np.int64]
    width: npt.NDArray[np.int64]
    padded: npt.NDArray[np.int64]
    breaks: FloatArray
    """(layers, widest, most pieces + 1): piece p covers breaks[p] < v <= breaks[p + 1]."""
    slopes: FloatArray
    intercepts: FloatArray
    offsets: npt.NDArray[np.int64]
    """Where each hidden layer starts in a pattern."""
    rows: FloatArray
    """The forms' weights on the last hidden layer, (forms, padded units)."""
    n_forms: int

    @property
    def n_units(self) -> int:
        """Hidden units."""
        return int(self.offsets[-1])

    @property
    def depth(self) -> int:
        """Hidden layers."""
        return len(self.width)


@dataclass(frozen=True, eq=False)
class Segments:
    """Lines cut into segments, back to back: line i has the segments `offsets[i]:offsets[i+1]`, in order of t.

    Segment k starts at `t[k]` and ends where the next one of its line starts, or at `high[i]`. There form f is
    `value[k, f] + slope[k, f] (t - t[k])`. With `switches`, unit `unit[q]` goes to piece `piece[q]` at the start of segment
    `at[q]`, for the switches `switch_offsets[i]:switch_offsets[i+1]` of line i, which starts on the pieces `pattern[i]`.
    """

    offsets: npt.NDArray[np.int64]
    t: FloatArray
    value: FloatArray
    slope: FloatArray
    low: FloatArray
    high: FloatArray
    switch_offsets: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    unit: npt.NDArray[np.int32]
    piece: npt.NDArray[np.uint8]
    pattern: Pattern

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def stop(self) -> FloatArray:
        """End of every segment."""
        out = np.empty_like(self.t)
        out[:-1] = self.t[1:]
        filled = self.offsets[1:] > self.offsets[:-1]
        out[self.offsets[1:][filled] - 1] = self.high[filled]
        return out

    def patterns(self) -> Pattern:
        """The pieces of all hidden units on every segment, shape (segments, units). Needs `switches`."""
        out = np.empty((len(self.t), self.pattern.shape[1]), np.uint8)
        _spread_patterns(self.offsets, self.switch_offsets, self.at, self.unit, self.piece, self.pattern, out)
        return out


def tables(net: Network, forms: FloatArray | None = None, shift: FloatArray | None = None) -> Tables:
    """The tables of `net` with the linear forms `forms @ y + shift` of its outputs (all outputs by default)."""
    last = net.layers[-1]
    F = np.eye(net.n_outputs) if forms is None else forms
    c = np.zeros(len(F)) if shift is None else shift
    weight, bias = np.asarray(F @ last.dense()), F @ last.bias + c
    hidden = net.hidden
    width = np.array([layer.width for layer in hidden], np.int64)
    padded = -(-width // _LANES) * _LANES
    widest = int(max(padded.max(initial=_LANES), -(-len(F) // _LANES) * _LANES))
    following = [layer.dense() for layer in hidden[1:]] + ([weight] if hidden else [])
    if widest * int(width.sum()) > LARGEST_TABLES:
        raise InputError(
            f"the network needs {widest * int(width.sum()):,} weights in dense tables, more than {LARGEST_TABLES:,}; "
            "use method='points'"
        )
    start = np.concatenate([[0], np.cumsum(width)]).astype(np.int64)
    columns = np.zeros((max(int(start[-1]), 1), widest))
    for i, W in enumerate(following):
        columns[start[i] : start[i + 1], : W.shape[0]] = W.T
    biases = np.zeros((len(hidden) + 1, widest))
    for i, layer in enumerate(hidden):
        biases[i, : layer.width] = layer.bias
    biases[-1, : len(bias)] = bias
    most = max([layer.units.slopes.shape[1] for layer in hidden], default=1)
    breaks = np.full((max(len(hidden), 1), widest, most + 1), np.inf)
    breaks[:, :, 0] = -np.inf
    slopes, intercepts = np.zeros((2, max(len(hidden), 1), widest, most))
    for i, layer in enumerate(hidden):
        units = layer.units
        k = units.slopes.shape[1]
        breaks[i, : layer.width, 1:k] = units.breaks
        slopes[i, : layer.width, :k], intercepts[i, : layer.width, :k] = units.slopes, units.intercepts
    first = net.layers[0]
    top = np.zeros((net.n_inputs, int(padded[0]) if hidden else len(F)))
    top[:, : first.width if hidden else len(F)] = first.dense().T if hidden else weight.T
    rows = np.zeros((len(F), int(padded[-1]) if hidden else 1))
    if hidden:
        rows[:, : width[-1]] = weight
    return Tables(top, biases, columns, start, width, padded, breaks, slopes, intercepts, start, rows, len(F))


class Tracer:
    """Traces batches of lines through one network; keeps its buffers from batch to batch."""

    def __init__(self, net: Network, forms: FloatArray | None = None, shift: FloatArray | None = None) -> None:
        self.tables = tables(net, forms, shift)
        self._segments = 1 << 12
        self._switches = 1 << 12

    def __call__(
        self, base: FloatArray, direction: FloatArray, low: FloatArray, high: FloatArray, *, switches: bool = False
    ) -> Segments:
        """The lines `base[i] + t direction` (one direction, or one per line) for `low[i] <= t <= high[i]`, both finite.

        Guarantee: complete up to rounding, see the module. The returned arrays belong to the caller.
        """
        T = self.tables
        n = len(base)
        shape = T.bias[0, : T.first.shape[1]] if T.depth else T.bias[-1, : T.n_forms]
        at_zero = base @ T.first + shape
        steep = np.atleast_2d(direction) @ T.first
        if not T.depth:
            return self._affine(at_zero, steep, low, high)
        offsets, switch_offsets = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
        pattern = np.zeros((n if switches else 0, T.n_units), np.uint8)
        done = 0
        parts: list[tuple[Any, ...]] = []
        while True:
            t = np.empty(self._segments)
            value, slope = np.empty((2, self._segments, T.n_forms))
            room = self._switches if switches else 0
            at, unit, piece = np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.uint8)
            reached = _walk(
                done, at_zero, steep, low, high, T.bias, T.columns, T.start, T.width, T.padded, T.breaks, T.slopes,
                T.intercepts, T.rows, switches, offsets, t, value, slope, switch_offsets, at, unit, piece, pattern,
            )  # fmt: skip
            begin, switch_begin = int(offsets[done]), int(switch_offsets[done])
            stop, switch_stop = int(offsets[reached]) - begin, int(switch_offsets[reached]) - switch_begin
            found = (t[:stop], value[:stop], slope[:stop], at[:switch_stop], unit[:switch_stop], piece[:switch_stop])
            if reached == n and not parts:
                t, value, slope, at, unit, piece = found
                break
            if reached > done:
                parts.append(found)
            if reached == n:
                t, value, slope, at, unit, piece = (np.concatenate([p[i] for p in parts]) for i in range(6))
                break
            share = max(reached - done, 1)
            self._segments = int(max(2 * self._segments, 1.25 * stop / share * n))
            self._switches = int(max(2 * self._switches, 1.25 * switch_stop / share * n))
            done = reached
        return Segments(offsets, t, value, slope, low, high, switch_offsets, at, unit, piece, pattern)

    def _affine(self, at_zero: FloatArray, steep: FloatArray, low: FloatArray, high: FloatArray) -> Segments:
        """No hidden layer: one segment per line."""
        n = len(at_zero)
        slope = np.ascontiguousarray(np.broadcast_to(steep, at_zero.shape))
        none = np.zeros(0, np.int64)
        return Segments(
            np.arange(n + 1, dtype=np.int64), low.copy(), at_zero + slope * low[:, None], slope, low, high,
            np.zeros(n + 1, np.int64), none, none.astype(np.int32), none.astype(np.uint8), np.zeros((n, 0), np.uint8),
        )  # fmt: skip


@kernel
def _walk(
    done: int,
    at_zero: Any,
    steep: Any,
    low: Any,
    high: Any,
    bias: Any,
    columns: Any,
    start: Any,
    width: Any,
    padded: Any,
    breaks: Any,
    slopes: Any,
    intercepts: Any,
    rows: Any,
    switches: bool,
    offsets: Any,
    out_t: Any,
    out_value: Any,
    out_slope: Any,
    switch_offsets: Any,
    out_at: Any,
    out_unit: Any,
    out_piece: Any,
    pattern: Any,
) -> int:
    """Trace lines `done, done + 1, ...` until the end or until a buffer is full; returns the first line not traced.

    One long function on purpose: arrays handed to helpers inside the loop would each cost an atomic reference count.
    """
    n_lines = at_zero.shape[0]
    depth = width.size
    last = depth - 1
    widest = bias.shape[1]
    forms = rows.shape[0]
    forms_padded = (forms + 7) // 8 * 8
    by_rows = forms <= 3
    tail = padded[last]
    S, V, E = np.zeros((depth, widest)), np.zeros((depth, widest)), np.zeros((depth, widest))
    A, HI, LO = np.zeros((depth, widest)), np.zeros((depth, widest)), np.zeros((depth, widest))
    P = np.zeros((depth, widest), np.int64)
    most = breaks.shape[2] - 2
    room = max(1, widest * most)
    cross_t, cross_key = np.empty((depth, room)), np.empty((depth, room), np.int64)
    scratch_t, scratch_key = np.empty(room), np.empty(room, np.int64)
    count, at = np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    here, stop, there = np.zeros(depth), np.zeros(depth), np.zeros(depth)
    stale = np.zeros(depth + 1, np.bool_)
    updates = np.zeros(depth + 1, np.int64)
    hover = np.zeros(depth)
    flags = np.zeros(widest, np.uint8)
    words = flags.view(np.uint64)
    live, coefficient, extra = np.empty(widest, np.int64), np.empty(widest), np.empty(widest)
    y, ys = np.zeros(forms_padded), np.zeros(forms_padded)
    shared = steep.shape[0] == 1

    segment_base, switch_base = offsets[done], switch_offsets[done]
    n_segments, n_switches = 0, 0
    for line in range(done, n_lines):
        first_segment, first_switch = n_segments, n_switches
        t_low, t_high = low[line], high[line]
        if not t_high > t_low:
            offsets[line + 1] = segment_base + n_segments
            switch_offsets[line + 1] = switch_base + n_switches
            if switches:
                for q in range(pattern.shape[1]):
                    pattern[line, q] = 0
            continue
        which = 0 if shared else line
        for j in range(padded[0]):
            S[0, j] = steep[which, j]
            V[0, j] = at_zero[line, j] + steep[which, j] * t_low
        # The state of every layer at the left end.
        for layer in range(depth):
            n = width[layer]
            top = 0.0
            for j in range(n):
                top = max(top, abs(V[layer, j]), abs(V[layer, j] + S[layer, j] * (t_high - t_low)))
            hover[layer] = HOVER * top
            active = 0
            for j in range(n):
                v = V[layer, j]
                p = 0
                while v > breaks[layer, j, p + 1]:
                    p += 1
                P[layer, j] = p
                a = slopes[layer, j, p]
                A[layer, j] = a
                HI[layer, j] = breaks[layer, j, p + 1] + hover[layer]
                LO[layer, j] = breaks[layer, j, p] - hover[layer]
                z = a * v + intercepts[layer, j, p]
                live[active] = j
                coefficient[active] = a * S[layer, j]
                extra[active] = z
                active += (a != 0.0) | (z != 0.0)
                if switches:
                    pattern[line, start[layer] + j] = p
            for j in range(n, padded[layer]):
                HI[layer, j] = np.inf
                LO[layer, j] = -np.inf
                A[layer, j] = 0.0
            stale[layer] = False
            updates[layer] = 0
            row = start[layer]
            if layer < last:
                m = padded[layer + 1]
                for j in range(m):
                    V[layer + 1, j] = bias[layer + 1, j]
                    S[layer + 1, j] = 0.0
                for q in range(active):
                    k, c, z = row + live[q], coefficient[q], extra[q]
                    for j in range(m):
                        w = columns[k, j]
                        V[layer + 1, j] += w * z
                        S[layer + 1, j] += w * c
            else:
                for j in range(forms_padded):
                    y[j] = bias[depth, j]
                    ys[j] = 0.0
                for q in range(active):
                    k, c, z = row + live[q], coefficient[q], extra[q]
                    for j in range(forms_padded):
                        w = columns[k, j]
                        y[j] += w * z
                        ys[j] += w * c
        stale[depth] = False
        updates[depth] = 0

        layer = 0
        entering = True
        a, b = t_low, t_high
        while True:
            if entering:
                entering = False
                m = padded[layer]
                if stale[layer]:
                    # Fresh slopes of this layer: a sum over the active units of the one before, four at a time.
                    stale[layer] = False
                    updates[layer] = 0
                    before = layer - 1
                    active = 0
                    for k in range(width[before]):
                        c = A[before, k] * S[before, k]
                        live[active] = start[before] + k
                        coefficient[active] = c
                        active += c != 0.0
                    for j in range(m):
                        S[layer, j] = 0.0
                    q = 0
                    while q + 4 <= active:
                        k0, k1, k2, k3 = live[q], live[q + 1], live[q + 2], live[q + 3]
                        c0, c1, c2, c3 = coefficient[q], coefficient[q + 1], coefficient[q + 2], coefficient[q + 3]
                        for j in range(m):
                            S[layer, j] += (columns[k0, j] * c0 + columns[k1, j] * c1) + (
                                columns[k2, j] * c2 + columns[k3, j] * c3
                            )
                        q += 4
                    while q < active:
                        k0, c0 = live[q], coefficient[q]
                        for j in range(m):
                            S[layer, j] += columns[k0, j] * c0
                        q += 1
                # Values at the right end, and who has left his piece.
                step = b - a
                for j in range(m):
                    E[layer, j] = V[layer, j] + S[layer, j] * step
                for j in range(m):
                    flags[j] = (E[layer, j] > HI[layer, j]) | (E[layer, j] < LO[layer, j])
                found = 0
                for word in range(m // 8):
                    if words[word] == 0:
                        continue
                    for j in range(8 * word, 8 * word + 8):
                        if flags[j] == 0:
                            continue
                        e, v, s, p = E[layer, j], V[layer, j], S[layer, j], P[layer, j]
                        upward = e > HI[layer, j]
                        while True:
                            level = breaks[layer, j, p + 1] if upward else breaks[layer, j, p]
                            if upward:
                                if not e > level + hover[layer]:
                                    break
                            elif not e < level - hover[layer]:
                                break
                            # On the first layer straight from the line's own offset: no error from the far start.
                            t = (level - at_zero[line, j]) / s if layer == 0 else a + (level - v) / s
                            if not t > a:
                                t = a
                            if t > b:
                                t = b
                            p = p + 1 if upward else p - 1
                            cross_t[layer, found] = t
                            cross_key[layer, found] = p * widest + j
                            found += 1
                # Sort by t, stable: insertion in runs of 12, then merging.
                run = 12
                begin = 0
                while begin < found:
                    end = min(begin + run, found)
                    for i in range(begin + 1, end):
                        t, key = cross_t[layer, i], cross_key[layer, i]
                        k = i
                        while k > begin and cross_t[layer, k - 1] > t:
                            cross_t[layer, k] = cross_t[layer, k - 1]
                            cross_key[layer, k] = cross_key[layer, k - 1]
                            k -= 1
                        cross_t[layer, k] = t
                        cross_key[layer, k] = key
                    begin = end
                while run < found:
                    begin = 0
                    while begin + run < found:
                        middle, end = begin + run, min(begin + 2 * run, found)
                        for i in range(begin, middle):
                            scratch_t[i] = cross_t[layer, i]
                            scratch_key[i] = cross_key[layer, i]
                        i, k, q = begin, middle, begin
                        while i < middle:
                            if k < end and cross_t[layer, k] < scratch_t[i]:
                                cross_t[layer, q] = cross_t[layer, k]
                                cross_key[layer, q] = cross_key[layer, k]
                                k += 1
                            else:
                                cross_t[layer, q] = scratch_t[i]
                                cross_key[layer, q] = scratch_key[i]
                                i += 1
                            q += 1
                        begin = end
                    run *= 2
                count[layer] = found
                at[layer] = 0
                here[layer] = a
                stop[layer] = b

            # The next piece of this layer's interval.
            i = at[layer]
            if i <= count[layer]:
                begin_t, end_t = here[layer], stop[layer]
                if i < count[layer]:
                    t = cross_t[layer, i]
                    if t - begin_t <= SNAP * (1.0 + abs(t)):
                        t = begin_t
                    elif end_t - t <= SNAP * (1.0 + abs(t)):
                        t = end_t
                else:
                    t = end_t
                if layer < last and t > begin_t:
                    there[layer] = t
                    a, b = begin_t, t
                    layer += 1
                    entering = True
                    continue
                if layer == last and t > begin_t:
                    if stale[depth]:
                        stale[depth] = False
                        updates[depth] = 0
                        if by_rows:
                            for f in range(forms):
                                p0, p1, p2, p3, p4, p5, p6, p7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                                for j in range(0, tail, 8):
                                    p0 += rows[f, j] * (A[last, j] * S[last, j])
                                    p1 += rows[f, j + 1] * (A[last, j + 1] * S[last, j + 1])
                                    p2 += rows[f, j + 2] * (A[last, j + 2] * S[last, j + 2])
                                    p3 += rows[f, j + 3] * (A[last, j + 3] * S[last, j + 3])
                                    p4 += rows[f, j + 4] * (A[last, j + 4] * S[last, j + 4])
                                    p5 += rows[f, j + 5] * (A[last, j + 5] * S[last, j + 5])
                                    p6 += rows[f, j + 6] * (A[last, j + 6] * S[last, j + 6])
                                    p7 += rows[f, j + 7] * (A[last, j + 7] * S[last, j + 7])
                                ys[f] = ((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 + p7))
                        else:
                            for j in range(forms_padded):
                                ys[j] = 0.0
                            row = start[last]
                            for k in range(width[last]):
                                c = A[last, k] * S[last, k]
                                if c != 0.0:
                                    for j in range(forms_padded):
                                        ys[j] += columns[row + k, j] * c
                    if n_segments >= out_t.size:
                        return line
                    step = t - begin_t
                    out_t[n_segments] = begin_t
                    for f in range(forms):
                        out_value[n_segments, f] = y[f]
                        out_slope[n_segments, f] = ys[f]
                        y[f] += ys[f] * step
                    n_segments += 1
            else:
                # This interval is done: its right end is the left end of the layer's next one.
                for j in range(padded[layer]):
                    V[layer, j] = E[layer, j]
                layer -= 1
                if layer < 0:
                    break
                i = at[layer]
                t = there[layer]

            # Switch the unit that ends the piece.
            here[layer] = t
            at[layer] = i + 1
            if i < count[layer]:
                key = cross_key[layer, i]
                j, p = key % widest, key // widest
                P[layer, j] = p
                change = (slopes[layer, j, p] - A[layer, j]) * S[layer, j]
                A[layer, j] = slopes[layer, j, p]
                HI[layer, j] = breaks[layer, j, p + 1] + hover[layer]
                LO[layer, j] = breaks[layer, j, p] - hover[layer]
                row = start[layer] + j
                updates[layer + 1] += 1
                if updates[layer + 1] >= REFRESH:
                    stale[layer + 1] = True
                elif not stale[layer + 1]:
                    if layer < last:
                        for k in range(padded[layer + 1]):
                            S[layer + 1, k] += columns[row, k] * change
                    else:
                        for f in range(forms):
                            ys[f] += columns[row, f] * change
                for k in range(layer + 2, depth + 1):
                    stale[k] = True
                if switches:
                    if n_switches >= out_unit.size:
                        return line
                    out_at[n_switches] = segment_base + n_segments
                    out_unit[n_switches] = row
                    out_piece[n_switches] = p
                    n_switches += 1
        offsets[line + 1] = segment_base + n_segments
        switch_offsets[line + 1] = switch_base + n_switches
        _ = first_segment + first_switch
    return n_lines


@kernel
def _spread_patterns(
    offsets: Any, switch_offsets: Any, at: Any, unit: Any, piece: Any, pattern: Any, out: Any
) -> None:
    """Write the pattern of every segment into `out`, from the starting patterns and the switches."""
    units = pattern.shape[1]
    for line in range(offsets.size - 1):
        q, end = switch_offsets[line], switch_offsets[line + 1]
        for k in range(offsets[line], offsets[line + 1]):
            if k == offsets[line]:
                for j in range(units):
                    out[k, j] = pattern[line, j]
            else:
                for j in range(units):
                    out[k, j] = out[k - 1, j]
            while q < end and at[q] <= k:
                out[k, unit[q]] = piece[q]
                q += 1
