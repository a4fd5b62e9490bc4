"""A network along many lines at once: compiled, exact up to rounding.

On a line `u(t) = base + t direction` the network is piecewise linear in t. The walk goes layer by layer: the units of
layer 1 cut the line once; on each piece [a, b] the pre-activations of layer 2 are linear, `v(b) = v(a) + s (b - a)`,
so a unit crosses a break point exactly when its two end values say so, and only then is there a division. A unit j of
layer l that switches changes the next layer's slopes by one column,

    s_{l+1} += W_{l+1}[:, j] (a' - a) s_l[j],

and the slopes of the layers behind it are formed afresh. Values are carried along by continuity, never recomputed.

Cost per line, with N_l the pieces that layers 1..l cut: `3 N_l n_{l+1}` operations for carrying and comparing and
`N_{l-1} n_l n_{l+1}` for fresh slopes, over all layers, all of it in vector registers.

Rounding. A pre-activation is the sum of its start value and at most N_l increments, so its error stays below
`2 N_l eps max|v|` plus that of the slopes, which are sums of at most `REFRESH` rank-one terms before they are formed
afresh: `REFRESH eps max|s|`. A unit counts as crossing only when it gets past a break point by more than `HOVER`
of its layer's largest value at the start of the line, so that units which sit on a break point do not flicker (they
belong to the piece below it); crossings closer than `SNAP (1 + |t|)` count as one. Units of one layer whose sizes
differ much are first brought to one size by powers of two (`_exponents`): a small one would never get past its own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.errors import InputError
from reluscope.measure.simd import (
    BLOCK,
    WORD_BLOCKS,
    add_column,
    add_columns,
    advance,
    advance_summed,
    advance_switched,
    count_below,
    lowest_bit,
    weighted_sum,
)
from reluscope.network import Network, Pattern

REFRESH = 64
"""Rank-one updates of a layer's slopes before they are formed afresh."""

HOVER = 2e-14
SNAP = 4e-15

_UNEVEN = 1e3
"""Units of a layer whose sizes differ by more than this are scaled."""

LARGEST_TABLES = 1 << 26
"""Numbers in the dense weight tables of a network that is traced: 512 MB."""

RUN = np.uint64(12)
"""Crossings are sorted by insertion in runs of this size."""

RANKED = np.uint64(192)
ZERO, ONE, HALF, LOW = np.uint64(0), np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
FREE = np.uint64(0xFFFFFFFFFFFFFFFF)

FEW_FORMS = 3
"""Up to so many forms have their slopes formed row by row."""


@dataclass(frozen=True, eq=False)
class Tables:
    """A network and linear forms of its outputs, as the arrays that the compiled walk reads.

    Units are numbered through all hidden layers by *places*: layer l starts at `place[l]` and is padded to a multiple
    of 8 with units that are always 0. Row p of `columns` holds the weights from the unit at place p to the next layer
    (or to the forms, for the last hidden layer).
    """

    first: FloatArray
    """Weights of the first layer, transposed: (inputs, padded units)."""
    bias: FloatArray
    """Biases of each hidden layer, then of the forms, then zeros: (layers + 2, widest)."""
    columns: FloatArray
    place: npt.NDArray[np.uint64]
    """Where each hidden layer starts; the last entry is the number of places."""
    width: npt.NDArray[np.int64]
    breaks: FloatArray
    """(places, most pieces + 1): piece p covers breaks[p] < v <= breaks[p + 1]."""
    slopes: FloatArray
    intercepts: FloatArray
    unit: npt.NDArray[np.int32]
    """Index into a pattern of the unit at each place."""
    rows: FloatArray
    """The forms' weights on the last hidden layer, (forms, padded units)."""
    n_forms: int
    n_units: int

    @property
    def depth(self) -> int:
        """Hidden layers."""
        return len(self.width)


@dataclass(frozen=True, eq=False)
class Segments:
    """Lines cut into segments, back to back: line i has the segments `offsets[i]:offsets[i+1]`, in order of t.

    Segment k starts at `t[k]` and ends where the next one of its line starts, or at `high[i]`. There form f is
    `value[k, f] + slope[k, f] (t - t[k])`. With `switches`, unit `unit[q]` goes to piece `piece[q]` at the start of
    segment `at[q]`, for the switches `switch_offsets[i]:switch_offsets[i+1]` of line i, which starts on the pieces
    `pattern[i]`.
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


def _exponents(net: Network, reach: FloatArray) -> list[npt.NDArray[np.int32]]:
    """Powers of two that bring the units of each hidden layer to one size, after zeros for the inputs.

    Zeros for layers whose units are of much the same size, and where float64 cannot hold the sizes. `reach` (inputs)
    are the sizes of the inputs.
    """
    size = np.asarray(reach, dtype=np.float64)
    out = [np.zeros(net.n_inputs, np.int32)]
    with np.errstate(over="ignore", invalid="ignore"):
        for layer in net.hidden:
            size = np.asarray(abs(layer.weight) @ size).ravel() + np.abs(layer.bias)
            known = np.isfinite(size) & (size > 0)
            uneven = known.any() and size[known].max() > _UNEVEN * size[known].min()
            out.append(np.where(known & uneven, -np.frexp(np.where(known, size, 1.0))[1], 0).astype(np.int32))
            size = np.abs(layer.units.slopes).max(axis=1) * size + np.abs(layer.units.intercepts).max(axis=1)
    return out


def tables(
    net: Network, forms: FloatArray | None = None, shift: FloatArray | None = None, reach: FloatArray | None = None
) -> Tables:
    """The tables of `net` with the linear forms `forms @ y + shift` of its outputs (all outputs by default).

    `reach` (inputs) are the sizes of the inputs, 1 by default.
    """
    hidden, last, first = net.hidden, net.layers[-1], net.layers[0]
    F = np.eye(net.n_outputs) if forms is None else forms
    c = np.zeros(len(F)) if shift is None else shift
    scale = _exponents(net, np.ones(net.n_inputs) if reach is None else reach)
    weight, bias = np.ldexp(np.asarray(F @ last.dense()), -scale[-1]), F @ last.bias + c
    width = np.array([layer.width for layer in hidden], np.int64)
    padded = -(-width // BLOCK) * BLOCK
    place = np.concatenate([[0], np.cumsum(padded)]).astype(np.int64)
    places = max(int(place[-1]), 1)
    widest = int(max(padded.max(initial=BLOCK), -(-len(F) // BLOCK) * BLOCK))
    if widest * places > LARGEST_TABLES:
        raise InputError(
            f"net needs {widest * places:,} weights in dense tables, more than the {LARGEST_TABLES:,} that lines are "
            'traced with; use method="points"'
        )
    columns, biases = np.zeros((places, widest)), np.zeros((len(hidden) + 2, widest))
    biases[-2, : len(F)] = bias
    most = max([layer.units.slopes.shape[1] for layer in hidden], default=1)
    breaks, unit = np.full((places, most + 1), np.inf), np.zeros(places, np.int32)
    breaks[:, 0] = -np.inf
    slopes, intercepts = np.zeros((2, places, most))
    for i, layer in enumerate(hidden):
        here = slice(int(place[i]), int(place[i]) + layer.width)
        own, after = scale[i + 1], scale[i + 2] if i + 1 < len(hidden) else None
        following = weight if after is None else np.ldexp(hidden[i + 1].dense(), after[:, None] - own)
        columns[here, : following.shape[0]] = following.T
        biases[i, : layer.width] = np.ldexp(layer.bias, own)
        k = layer.units.slopes.shape[1]
        breaks[here, 1:k] = np.ldexp(layer.units.breaks, own[:, None])
        slopes[here, :k], intercepts[here, :k] = layer.units.slopes, np.ldexp(layer.units.intercepts, own[:, None])
        unit[here] = np.arange(net.offsets[i], net.offsets[i + 1])
    entry = np.ldexp(first.dense(), scale[1][:, None]) if hidden else weight
    top = np.zeros((net.n_inputs, int(padded[0]) if hidden else len(F)))
    top[:, : len(entry)] = entry.T
    rows = np.zeros((len(F), int(padded[-1]) if hidden else 1))
    if hidden:
        rows[:, : width[-1]] = weight
    return Tables(
        top,
        biases,
        columns,
        place.astype(np.uint64),
        width,
        breaks,
        slopes,
        intercepts,
        unit,
        rows,
        len(F),
        net.n_units,
    )


class Tracer:
    """Traces batches of lines through one network; keeps its buffers from batch to batch."""

    def __init__(
        self,
        net: Network,
        forms: FloatArray | None = None,
        shift: FloatArray | None = None,
        reach: FloatArray | None = None,
    ) -> None:
        self.tables = tables(net, forms, shift, reach)
        self._numbers: tuple[FloatArray, FloatArray, FloatArray] | None = None
        self._marks: tuple[Any, Any, Any] | None = None
        self._segments = 1 << 12
        self._switches = 1 << 12

    def __call__(
        self, base: FloatArray, direction: FloatArray, low: FloatArray, high: FloatArray, *, switches: bool = False
    ) -> Segments:
        """The lines `base[i] + t direction` (one direction, or one per line) for `low[i] <= t <= high[i]`, both finite.

        Guarantee: complete up to rounding, see the module. The segments live in this tracer's buffers and are
        overwritten by its next call.
        """
        T = self.tables
        n = len(base)
        shape = T.bias[0, : T.first.shape[1]] if T.depth else T.bias[-2, : T.n_forms]
        at_zero = base @ T.first + shape
        steep = np.atleast_2d(direction) @ T.first
        if not T.depth:
            return self._affine(at_zero, steep, low, high)
        offsets, switch_offsets = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
        pattern = np.zeros((n if switches else 0, T.n_units), np.uint8)
        done = 0
        parts: list[tuple[Any, ...]] = []
        while True:
            t, value, slope = self._segment_buffers()
            at, unit, piece = self._switch_buffers(self._switches if switches else 0)
            reached = _walk(
                done, at_zero, steep, low, high, T.bias, T.columns, T.place, T.width, T.breaks, T.slopes, T.intercepts,
                T.unit, T.rows, switches, offsets, t, value, slope, switch_offsets, at, unit, piece, pattern,
            )  # fmt: skip
            begin, switch_begin = int(offsets[done]), int(switch_offsets[done])
            stop, switch_stop = int(offsets[reached]) - begin, int(switch_offsets[reached]) - switch_begin
            found = (t[:stop], value[:stop], slope[:stop], at[:switch_stop], unit[:switch_stop], piece[:switch_stop])
            if reached == n and not parts:
                t, value, slope, at, unit, piece = found
                break
            if reached > done:
                parts.append(tuple(part.copy() for part in found))
            if reached == n:
                self._segments = max(self._segments, int(1.25 * offsets[n]))
                self._switches = max(self._switches, int(1.25 * switch_offsets[n]))
                t, value, slope, at, unit, piece = (np.concatenate([p[i] for p in parts]) for i in range(6))
                break
            share = max(reached - done, 1)
            self._segments = int(max(2 * self._segments, 1.25 * stop / share * (n - reached)))
            self._switches = int(max(2 * self._switches, 1.25 * switch_stop / share * (n - reached)))
            done = reached
        return Segments(offsets, t, value, slope, low, high, switch_offsets, at, unit, piece, pattern)

    def twin(self) -> Tracer:
        """The same with buffers of its own, for another thread."""
        other = copy.copy(self)
        other._numbers, other._marks = None, None
        return other

    def _segment_buffers(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Kept from call to call: fresh ones would cost a page fault for every 4096 bytes."""
        if self._numbers is None or len(self._numbers[0]) < self._segments:
            n, m = self._segments, self.tables.n_forms
            self._numbers = np.empty(n), np.empty((n, m)), np.empty((n, m))
        return self._numbers

    def _switch_buffers(self, n: int) -> tuple[Any, Any, Any]:
        if self._marks is None or len(self._marks[0]) < n:
            self._marks = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.uint8)
        return self._marks

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
    place: Any,
    width: Any,
    breaks: Any,
    slopes: Any,
    intercepts: Any,
    unit: Any,
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
    Places, pieces and positions in lists are unsigned, which spares a test of the sign at every access.
    """
    n_lines = at_zero.shape[0]
    depth = width.size
    last = depth - 1
    widest = bias.shape[1]
    places = columns.shape[0]
    forms = rows.shape[0]
    form_blocks = (forms + BLOCK - 1) // BLOCK
    by_rows = forms <= FEW_FORMS
    one_form = forms == 1
    weights = np.zeros(widest)
    no_bias = depth + 1
    # One by one, and in few types: every function of numpy, in every type, compiles for a tenth of a second.
    blocks, listed = np.empty(depth, np.int64), np.empty(depth, np.uint64)
    per_unit = np.uint64(max(breaks.shape[1] - 2, 1))
    for at in range(depth):
        blocks[at] = (width[at] + BLOCK - 1) // BLOCK
        listed[at] = place[at] * per_unit
    # State of every unit: slope and value at the current point, slope and ends of its piece, the piece.
    S, V, A = np.zeros(places), np.zeros(places), np.zeros(places)
    HI, LO, P = np.empty(places), np.empty(places), np.empty(places, np.uint64)
    for at in range(places):
        HI[at], LO[at], P[at] = np.inf, -np.inf, ZERO
    # Crossings of a layer's units on its current interval, in order (from `listed` on), and how far they have been
    # worked off.
    room = max(1, places * (breaks.shape[1] - 2))
    cross_t, cross_key = np.empty(room), np.empty(room, np.uint64)
    scratch_t, scratch_key = np.zeros(room + BLOCK), np.empty(room, np.uint64)
    list_end, list_at = np.empty(depth, np.uint64), np.empty(depth, np.uint64)
    here, stop, there = np.zeros(depth), np.zeros(depth), np.zeros(depth)
    stale, updates = np.empty(depth + 1, np.bool_), np.empty(depth + 1, np.int64)
    hover = np.zeros(depth)
    live, coefficient, extra = np.empty(widest, np.uint64), np.empty(widest), np.empty(widest)
    y, ys = np.zeros(widest), np.zeros(widest)
    shared = steep.shape[0] == 1
    # A switch that the next layer's slopes have not been told of yet.
    pending, pending_layer, pending_row, pending_change = False, 0, ZERO, 0.0

    segment_base, switch_base = offsets[done], switch_offsets[done]
    n_segments, n_switches = ZERO, ZERO
    segment_room, switch_room = np.uint64(out_t.size), np.uint64(out_unit.size)
    for line in range(done, n_lines):
        t_low, t_high = low[line], high[line]
        if not t_high > t_low:
            offsets[line + 1] = segment_base + np.int64(n_segments)
            switch_offsets[line + 1] = switch_base + np.int64(n_switches)
            continue
        which = 0 if shared else line
        for j in range(width[0]):
            S[j] = steep[which, j]
            V[j] = at_zero[line, j] + steep[which, j] * t_low
        # The state of every layer at the left end.
        for layer in range(depth):
            begin, end = place[layer], place[layer] + np.uint64(width[layer])
            top = 0.0
            for u in range(begin, end):
                top = max(top, abs(V[u]))
            edge = HOVER * top
            hover[layer] = edge
            active = ZERO
            for u in range(begin, end):
                v = V[u]
                p = ZERO
                while v > breaks[u, p + ONE]:
                    p += ONE
                P[u] = p
                slope = slopes[u, p]
                A[u] = slope
                HI[u] = breaks[u, p + ONE] + edge
                LO[u] = breaks[u, p] + edge
                z = slope * v + intercepts[u, p]
                live[active] = u
                coefficient[active] = slope * S[u]
                extra[active] = z
                if (slope != 0.0) | (z != 0.0):
                    active += ONE
                if layer == last and one_form:
                    weights[u - begin] = columns[u, 0] * slope
                if switches:
                    pattern[line, unit[u]] = p
            stale[layer] = False
            updates[layer] = 0
            if layer < last:
                to = place[layer + 1]
                add_columns(V, to, bias, layer + 1, columns, live, extra, active, blocks[layer + 1])
                add_columns(S, to, bias, no_bias, columns, live, coefficient, active, blocks[layer + 1])
            else:
                add_columns(y, ZERO, bias, depth, columns, live, extra, active, form_blocks)
                add_columns(ys, ZERO, bias, no_bias, columns, live, coefficient, active, form_blocks)
        stale[depth] = False
        updates[depth] = 0
        pending = False

        layer = 0
        entering = True
        a, b = t_low, t_high
        while True:
            returning = False
            if entering:
                entering = False
                first = place[layer]
                if stale[layer]:
                    # Fresh slopes: a sum over the active units of the layer before.
                    stale[layer] = False
                    updates[layer] = 0
                    pending = False
                    active = ZERO
                    begin = place[layer - 1]
                    for u in range(begin, begin + np.uint64(width[layer - 1])):
                        c = A[u] * S[u]
                        live[active] = u
                        coefficient[active] = c
                        if c != 0.0:
                            active += ONE
                    add_columns(S, first, bias, no_bias, columns, live, coefficient, active, blocks[layer])
                # Values at the right end, and who has left his piece.
                head = listed[layer]
                found = head
                step = b - a
                for w in range((blocks[layer] + WORD_BLOCKS - 1) // WORD_BLOCKS):
                    skip = WORD_BLOCKS * w
                    part = min(blocks[layer] - skip, WORD_BLOCKS)
                    origin = first + np.uint64(BLOCK * skip)
                    if layer == last and one_form:
                        if skip == 0:
                            ys[0] = 0.0
                        word = advance_summed(
                            S, V, HI, LO, origin, step, part, columns, pending_row, skip,
                            pending_change if pending else 0.0, weights, ys,
                        )  # fmt: skip
                    elif pending:
                        word = advance_switched(
                            S, V, HI, LO, origin, step, part, columns, pending_row, skip, pending_change
                        )
                    else:
                        word = advance(S, V, HI, LO, origin, step, part)
                    while word != ZERO:
                        u = origin + lowest_bit(word)
                        word &= word - ONE
                        e, p = V[u], P[u]
                        upward = e > HI[u]
                        inverse = 1.0 / S[u]
                        if not upward and e >= breaks[u, p] - hover[layer]:
                            # Near the lower end of its piece. A unit that sits there belongs to the piece below.
                            if abs(e - S[u] * step - breaks[u, p]) > hover[layer]:
                                continue
                            inverse = -np.inf
                        while True:
                            level = breaks[u, p + ONE] if upward else breaks[u, p]
                            # On the first layer straight from the line's own offset: no error from the far start.
                            t = (level - at_zero[line, u]) / S[u] if layer == 0 else b + (level - e) * inverse
                            t = t if t > a and inverse != -np.inf else a
                            t = t if t < b else b
                            p = p + ONE if upward else p - ONE
                            k = found
                            if found - head < RUN:
                                while k > head and cross_t[k - ONE] > t:
                                    cross_t[k] = cross_t[k - ONE]
                                    cross_key[k] = cross_key[k - ONE]
                                    k -= ONE
                            cross_t[k] = t
                            cross_key[k] = (p << HALF) | u
                            found += ONE
                            if upward:
                                if not e > breaks[u, p + ONE] + hover[layer]:
                                    break
                            elif not e < breaks[u, p] - hover[layer]:
                                break
                pending = False
                if layer == last and one_form:
                    stale[depth] = False
                    updates[depth] = 0
                if RUN < found - head <= RANKED:
                    # Sort by counting how many come before: no branches to mispredict.
                    n = found - head
                    for i in range(n):
                        scratch_t[i] = cross_t[head + i]
                        scratch_key[i] = cross_key[head + i]
                        cross_key[head + i] = FREE
                    for i in range(n):
                        k = head + count_below(scratch_t, ZERO, n, scratch_t[i])
                        while cross_key[k] != FREE:
                            k += ONE
                        cross_t[k] = scratch_t[i]
                        cross_key[k] = scratch_key[i]
                elif found - head > RUN:
                    # Sort by t, stable: insertion in runs (the first is in order already), then merging.
                    begin = head + RUN
                    while begin < found:
                        end = min(begin + RUN, found)
                        for i in range(begin + ONE, end):
                            t, key = cross_t[i], cross_key[i]
                            k = i
                            while k > begin and cross_t[k - ONE] > t:
                                cross_t[k] = cross_t[k - ONE]
                                cross_key[k] = cross_key[k - ONE]
                                k -= ONE
                            cross_t[k] = t
                            cross_key[k] = key
                        begin = end
                    run = RUN
                    while run < found - head:
                        begin = head
                        while begin + run < found:
                            middle, end = begin + run, min(begin + run + run, found)
                            for i in range(begin, middle):
                                scratch_t[i] = cross_t[i]
                                scratch_key[i] = cross_key[i]
                            i, k, q = begin, middle, begin
                            while i < middle:
                                if k < end and cross_t[k] < scratch_t[i]:
                                    cross_t[q] = cross_t[k]
                                    cross_key[q] = cross_key[k]
                                    k += ONE
                                else:
                                    cross_t[q] = scratch_t[i]
                                    cross_key[q] = scratch_key[i]
                                    i += ONE
                                q += ONE
                            begin = end
                        run += run
                if layer < last:
                    list_end[layer] = found
                    list_at[layer] = head
                    here[layer] = a
                    stop[layer] = b
                else:
                    # The last hidden layer: its pieces are the segments.
                    begin_t = a
                    i = head
                    while True:
                        t = b
                        if i < found:
                            t = cross_t[i]
                            near = SNAP * (1.0 + abs(t))
                            if t - begin_t <= near:
                                t = begin_t
                            elif b - t <= near:
                                t = b
                        if t > begin_t:
                            if stale[depth]:
                                stale[depth] = False
                                updates[depth] = 0
                                if by_rows:
                                    for f in range(forms):
                                        ys[f] = weighted_sum(rows, f, A, S, first, blocks[last])
                                else:
                                    active = ZERO
                                    for u in range(first, first + np.uint64(width[last])):
                                        c = A[u] * S[u]
                                        live[active] = u
                                        coefficient[active] = c
                                        if c != 0.0:
                                            active += ONE
                                    add_columns(
                                        ys, ZERO, bias, no_bias, columns, live, coefficient, active, form_blocks
                                    )
                            if n_segments >= segment_room:
                                return line
                            step = t - begin_t
                            out_t[n_segments] = begin_t
                            for f in range(forms):
                                out_value[n_segments, f] = y[f]
                                out_slope[n_segments, f] = ys[f]
                                y[f] += ys[f] * step
                            n_segments += ONE
                        if i == found:
                            break
                        begin_t = t
                        key = cross_key[i]
                        i += ONE
                        p = key >> HALF
                        u = key & LOW
                        change = (slopes[u, p] - A[u]) * S[u]
                        P[u] = p
                        A[u] = slopes[u, p]
                        HI[u] = breaks[u, p + ONE] + hover[last]
                        LO[u] = breaks[u, p] + hover[last]
                        updates[depth] += 1
                        if updates[depth] >= REFRESH:
                            stale[depth] = True
                        elif not stale[depth]:
                            for f in range(forms):
                                ys[f] += columns[u, f] * change
                        if one_form:
                            weights[u - first] = columns[u, 0] * A[u]
                        if switches:
                            if n_switches >= switch_room:
                                return line
                            out_at[n_switches] = segment_base + np.int64(n_segments)
                            out_unit[n_switches] = unit[u]
                            out_piece[n_switches] = p
                            n_switches += ONE
                    layer -= 1
                    if layer < 0:
                        break
                    returning = True
            if not returning:
                # The next piece of this layer's interval, or back to the layer above.
                i = list_at[layer]
                if i > list_end[layer]:
                    layer -= 1
                    if layer < 0:
                        break
                else:
                    begin_t, end_t = here[layer], stop[layer]
                    t = end_t
                    if i < list_end[layer]:
                        t = cross_t[i]
                        near = SNAP * (1.0 + abs(t))
                        if t - begin_t <= near:
                            t = begin_t
                        elif end_t - t <= near:
                            t = end_t
                    there[layer] = t
                    if t > begin_t:
                        a, b = begin_t, t
                        layer += 1
                        entering = True
                        continue
            # The piece up to there[layer] is done: switch the unit that ends it.
            i = list_at[layer]
            here[layer] = there[layer]
            list_at[layer] = i + ONE
            if i < list_end[layer]:
                key = cross_key[i]
                p = key >> HALF
                u = key & LOW
                change = (slopes[u, p] - A[u]) * S[u]
                P[u] = p
                A[u] = slopes[u, p]
                HI[u] = breaks[u, p + ONE] + hover[layer]
                LO[u] = breaks[u, p] + hover[layer]
                following = layer + 1
                if not stale[following]:
                    updates[following] += 1
                    if updates[following] >= REFRESH:
                        stale[following] = True
                    else:
                        if pending and pending_layer == following:
                            add_column(S, place[following], columns, pending_row, pending_change, blocks[following])
                        pending, pending_layer, pending_row, pending_change = True, following, u, change
                for k in range(layer + 2, depth + 1):
                    stale[k] = True
                if switches:
                    if n_switches >= switch_room:
                        return line
                    out_at[n_switches] = segment_base + np.int64(n_segments)
                    out_unit[n_switches] = unit[u]
                    out_piece[n_switches] = p
                    n_switches += ONE
        offsets[line + 1] = segment_base + np.int64(n_segments)
        switch_offsets[line + 1] = switch_base + np.int64(n_switches)
    return n_lines


@kernel
def _spread_patterns(offsets: Any, switch_offsets: Any, at: Any, unit: Any, piece: Any, pattern: Any, out: Any) -> None:
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
