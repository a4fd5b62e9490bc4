"""How half-space cells are split by the units of a layer: the compiled kernel.

All units are rows of one simplex dictionary (see `reluscope.cells.simplex`), so every vertex that any search visits
shows the values of all units there; a unit with values on both sides cuts the cell, and needs no search. A unit with
values on one side only is pushed towards the other one, until it gets there or is at its optimum: then it is settled
for this cell and all parts of it. When all remaining units are known to cut, one of them does: the dictionary walks
to a vertex on the hyperplane, and that vertex and dictionary serve both parts. On random nets of 8 to 10 inputs this
takes about one search, of two steps, per region.

Where an optimum is so close to a break point that rounding decides, it is computed afresh in doubled precision, and
compared with the tolerance of the unit plus what the tolerances of the facets at the optimal vertex amount to. A part
of a cell on which that does not decide, or on which a small pivot would spoil the dictionary (hyperplanes that nearly
coincide), is given back as it is, marked doubtful: `reluscope.cells.polytope_exact` goes on with it in whole numbers.

The record that these functions serve is `reluscope.cells.polytope.HPolytopes`; arrays and codes are explained there.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import apart, inner, kernel
from reluscope.cells.grow import grow, grow_rows
from reluscope.cells.simplex import (
    DOUBTFUL,
    GONE,
    OPTIMAL,
    SURE,
    Dictionary,
    drop_row,
    gets_beyond,
    note,
    rebuild,
    walk_to,
)

Labels = npt.NDArray[np.int32]
Index = npt.NDArray[np.int64]

_UNDECIDED, _BELOW, _ABOVE = 0, 1, 2
_UNKNOWN = -(1 << 20)


class _Units(NamedTuple):
    """The units of a layer on the cell at hand, in its coordinates and with norms near 1, after the cell's
    rows in `G`.

    An *item* is a break point that a unit may pass inside the cell: its unit, its number, its level.
    """

    G: FloatArray
    error: FloatArray
    unit: Index
    step: Index
    level: FloatArray
    fixed: Index


class _Node(NamedTuple):
    """A part of the cell at hand: its dictionary, points seen in it, the state of each item, and the cuts
    that made it.

    `tally` holds: rows of the dictionary, points seen, cuts, simplex steps since the dictionary was last
    computed anew.
    """

    at: Dictionary
    seen: FloatArray
    state: Index
    cut_item: Index
    cut_above: Index
    tally: Index


class _Work(NamedTuple):
    """Scratch: of the simplex method, ranges of the units, and which rows of the cell are left out."""

    column: FloatArray
    low: FloatArray
    high: FloatArray
    dropped: Index
    rank: Index


class _Out(NamedTuple):
    """The children, with room to grow; see `reluscope.cells.polytope.HPolytopes`."""

    A: FloatArray
    b: FloatArray
    error: FloatArray
    label: Labels
    offset: Index
    parent: Index
    piece: npt.NDArray[np.uint8]
    basis: Labels
    clean: Labels
    doubtful: npt.NDArray[np.bool_]


@partial(inner, inline="always")
def _dictionary(stack, f):  # type: ignore[no-untyped-def]
    """The dictionary of level `f` of the stack, as views."""
    at = stack.at
    return Dictionary(at.D[f], at.C[f], at.basic[f], at.nonbasic[f], at.where[f])


@partial(inner, inline="always")
def _node(stack, f):  # type: ignore[no-untyped-def]
    """Level `f` of the stack, as views."""
    at = stack.at
    dictionary = Dictionary(at.D[f], at.C[f], at.basic[f], at.nonbasic[f], at.where[f])
    return _Node(dictionary, stack.seen[f], stack.state[f], stack.cut_item[f], stack.cut_above[f], stack.tally[f])


@inner
def _copy(target, source, n):  # type: ignore[no-untyped-def]
    for i in range(n):
        target[i] = source[i]


@apart
def load_rows(at, G, error, A, b, row_error, start, R, basis, lower, upper):  # type: ignore[no-untyped-def]
    """Rows of one cell into `G`, and its vertex into the dictionary: what `rebuild` needs to know."""
    D, C, basic, nonbasic, where = at
    d = len(lower)
    for i in range(R):
        for q in range(d):
            G[i, q] = A[start + i, q]
        G[i, d] = 0.0
        error[i] = row_error[start + i]
        where[d + i] = 0
    for q in range(d):
        where[q] = 0
    for j in range(d):
        code = basis[j]
        if code >= 2 * d:
            v = code - d
            value, low, up = b[start + v - d], -np.inf, b[start + v - d]
        else:
            v = code >> 1 if code >= 0 else -1 - code
            value, low, up = 0.0, lower[v], upper[v]
            if code >= 0:
                value = up if code & 1 else low
        nonbasic[j], where[v] = v, -1 - j
        C[0, j], C[1, j], C[2, j] = value, low, up
    n = 0
    for v in range(d + R):
        if where[v] >= 0:
            where[v], basic[n] = n, v
            if v < d:
                D[d + 1, n], D[d + 2, n] = lower[v], upper[v]
            else:
                D[d + 1, n], D[d + 2, n] = -np.inf, b[start + v - d]
            n += 1
    return n


@inner
def vertex_code(at, j, d):  # type: ignore[no-untyped-def]
    """The code of the bound at which column `j`, a coordinate or a row of the cell, sits."""
    v = at.nonbasic[j]
    if v >= d:
        return v + d
    if at.C[0, j] == at.C[1, j]:
        return 2 * v
    if at.C[0, j] == at.C[2, j]:
        return 2 * v + 1
    return -1 - v


@inner
def is_feasible(at, n):  # type: ignore[no-untyped-def]
    """Whether the present point is within all bounds, but for rounding."""
    D, d = at.D, at.C.shape[1]
    worst = 0.0
    for i in range(n):
        worst = max(worst, D[d + 1, i] - D[d, i], D[d, i] - D[d + 2, i])
    return worst <= SURE


@apart
def _load_units(units, at, n, R, maps, tolerance, breaks, frame, top, near):  # type: ignore[no-untyped-def]
    """The layer's units as rows without bounds; returns the numbers of rows and of items.

    Units that the box around all cells settles get no row. `top` receives the largest `|h|` on that box, `near` a 2
    where a unit only just stays on one side, or is constant but for rounding on cells without an end.
    """
    G, D, where, basic = units.G, at.D, at.where, at.basic
    d, m = len(frame.origin), maps.shape[1]
    items = 0
    for k in range(m):
        row = G[R + k]
        total, largest = maps[d, k], 0.0
        for q in range(d):
            total += maps[q, k] * frame.origin[q]
            row[q] = maps[q, k] * frame.scale[q]
            largest = max(largest, abs(row[q]))
        norm = 0.0
        if largest > 0.0:
            for q in range(d):
                norm += (row[q] / largest) ** 2
            # A power of two: rows are scaled without rounding.
            norm = 2.0 ** np.rint(np.log2(largest * np.sqrt(norm)))
        low, high = total, total
        for q in range(d):
            if row[q] > 0.0:
                low += row[q] * frame.outer_low[q]
                high += row[q] * frame.outer_up[q]
            elif row[q] < 0.0:
                low += row[q] * frame.outer_up[q]
                high += row[q] * frame.outer_low[q]
        top[k] = max(abs(low), abs(high))
        if not np.isfinite(top[k]):
            top[k] = abs(total) + norm
        tol = tolerance[k]
        constant = norm <= tol or norm == 0.0
        if constant:
            if norm > 0.0 and not np.isfinite(high - low):
                near[0] = 2
            low, high = total, total
        units.fixed[k] = 0
        before = items
        for s in range(breaks.shape[1]):
            t = breaks[k, s]
            if high <= t + tol:
                if high >= t - tol:
                    near[0] = 2
                break
            if low >= t - tol or constant:
                if low <= t + tol:
                    near[0] = 2
                units.fixed[k] += 1
            else:
                units.unit[items], units.step[items], units.level[items] = k, s, t / norm
                items += 1
        if items == before:
            where[d + R + k] = GONE
            continue
        for q in range(d):
            row[q] /= norm
        row[d] = total / norm
        units.error[R + k] = tol / norm
        where[d + R + k], basic[n] = n, d + R + k
        D[d + 1, n], D[d + 2, n] = -np.inf, np.inf
        n += 1
    return n, items


@apart
def _drop_redundant(at, n, units, R, b, start, dropped, limit, column):  # type: ignore[no-untyped-def]
    """Find rows of the cell that follow from the others; returns the number of rows left in the
    dictionary."""
    d = at.C.shape[1]
    none, zero = np.empty((0, 0)), np.int64(0)
    for i in range(R):
        v, t = d + i, b[start + i]
        k = at.where[v]
        if k >= 0:
            at.D[d + 2, k] = np.inf
        else:
            at.C[2, -1 - k] = np.inf
        status, _, _ = gets_beyond(
            at, n, units.G, v, 1.0, t, units.error[i], units.error, limit, column, none, zero, zero
        )
        k = at.where[v]
        if status == OPTIMAL and k >= 0:
            dropped[i] = 1
            n = drop_row(at, n, k)
            continue
        # A facet, or not worth the trouble: back to where its bound holds.
        if (at.D[d, k] if k >= 0 else at.C[0, -1 - k]) > t:
            took, _ = walk_to(at, n, v, t, limit, column)
            if took < 0:
                return -1
            k = at.where[v]
        if k >= 0:
            at.D[d + 2, k] = t
        else:
            at.C[2, -1 - k] = t
    return n


@inner
def _ask(asked, at, q, k, c, labels, R, first_label, steps):  # type: ignore[no-untyped-def]
    """Note that unit `k` of cell `c` should have no slope along column `q`. Returns what becomes of `near`.

    `asked[0, 0]` is the number of notes; a note has the cell, the unit and the labels of the other columns.
    """
    n, d = asked[0, 0] + 1, at.C.shape[1]
    if n == len(asked):
        return 2
    asked[0, 0], asked[n, 0], asked[n, 1] = n, c, k
    e = 2
    for j in range(d):
        v = at.nonbasic[j]
        if j != q:
            asked[n, e] = -1 - 2 * v if v < d else labels[v - d] if v < d + R else first_label + (v - d - R) * steps
            e += 1
    return 1


@apart
def _settle(node, units, R, items, low, high, limit, column, near, asked, c, labels, first_label, steps):  # type: ignore[no-untyped-def]
    """Decide which items cut the node. Returns one that does, -1 if none does, -2 in doubt.

    On return the state of every item is known to be below, above, or (undecided) to cut; `near` has a 2 where one
    only just stays on its side. Where there is room in `asked`, cells are unbounded: along an edge without end a slope
    that rounding may have made leads anywhere, so it is asked whether there is none.
    """
    at, seen, state, tally = node.at, node.seen, node.state, node.tally
    D, C, where = at.D, at.C, at.where
    d, m, kept = C.shape[1], seen.shape[1], len(seen)
    first = d + R
    for k in range(m):
        low[k], high[k] = np.inf, -np.inf
    for w in range(min(tally[1], kept)):
        for k in range(m):
            low[k], high[k] = min(low[k], seen[w, k]), max(high[k], seen[w, k])
    chosen = -1
    for a in range(items):
        if state[a] != _UNDECIDED:
            continue
        k, t = units.unit[a], units.level[a]
        tol = units.error[R + k]
        before = tally[1]
        verdict = _UNDECIDED
        for side in range(2):
            sign = 1.0 - 2.0 * side
            if verdict != _UNDECIDED or (high[k] > t + tol + SURE if side == 0 else low[k] < t - tol - SURE):
                continue
            status, took, tally[1] = gets_beyond(
                at, tally[0], units.G, first + k, sign, t, tol, units.error, limit, column, seen, tally[1], first
            )
            tally[3] += took
            if status == DOUBTFUL:
                return -2
            if status == OPTIMAL:
                verdict = _BELOW if side == 0 else _ABOVE
                i = where[first + k]
                if i < 0 or sign * (D[d, i] - t) > -SURE:
                    near[0] = 2
                elif len(asked):
                    for q in range(d):
                        if abs(D[q, i]) <= SURE and C[1, q] < C[2, q]:
                            near[0] |= _ask(asked, at, q, k, c, labels, R, first_label, steps)
        for w in range(before, tally[1]):
            for q in range(m):
                value = seen[w % kept, q]
                low[q], high[q] = min(low[q], value), max(high[q], value)
        if verdict == _UNDECIDED:
            chosen = a
            continue
        state[a] = verdict
        settled = True
        for e in range(items):
            if units.unit[e] == k:
                if e > a and verdict == _BELOW:
                    state[e] = _BELOW
                settled = settled and state[e] != _UNDECIDED
        # A unit that is settled and bounds nothing only costs time.
        i = where[first + k]
        if settled and i >= 0 and D[d + 1, i] == -np.inf and D[d + 2, i] == np.inf:
            tally[0] = drop_row(at, tally[0], i)
    return chosen


@apart
def _fork(lower, upper, units, R, items, a, j, first):  # type: ignore[no-untyped-def]
    """Part `lower` along item `a`, whose unit sits on the break point in column `j`: the part above goes to
    `upper`."""
    d, m, kept = lower.at.C.shape[1], lower.seen.shape[1], len(lower.seen)
    k, t = units.unit[a], units.level[a]
    n, cuts = lower.tally[0], lower.tally[2]
    # The point reached belongs to both parts.
    seen = min(note(lower.at, lower.seen, lower.tally[1], first, j, 0.0), kept)
    for q in range(d + 3):
        for i in range(n):
            upper.at.D[q, i] = lower.at.D[q, i]
    for q in range(3):
        _copy(upper.at.C[q], lower.at.C[q], d)
    _copy(upper.at.basic, lower.at.basic, n)
    _copy(upper.at.nonbasic, lower.at.nonbasic, d)
    _copy(upper.at.where, lower.at.where, d + R + m)
    upper.at.C[1, j] = t
    lower.at.C[2, j] = t
    above, below = 0, 0
    for w in range(seen):
        value = lower.seen[w, k]
        if value >= t:
            for q in range(m):
                upper.seen[above, q] = lower.seen[w, q]
            above += 1
        if value <= t:
            if below != w:
                for q in range(m):
                    lower.seen[below, q] = lower.seen[w, q]
            below += 1
    for e in range(items):
        upper.state[e] = lower.state[e]
        if units.unit[e] == k:
            if e <= a:
                upper.state[e] = _ABOVE
            if e >= a:
                lower.state[e] = _BELOW
    _copy(upper.cut_item, lower.cut_item, cuts)
    _copy(upper.cut_above, lower.cut_above, cuts)
    upper.cut_item[cuts], upper.cut_above[cuts] = a, 1
    lower.cut_item[cuts], lower.cut_above[cuts] = a, 0
    upper.tally[0], upper.tally[1], upper.tally[2], upper.tally[3] = n, above, cuts + 1, lower.tally[3]
    lower.tally[1], lower.tally[2] = below, cuts + 1


@apart
def _write_child(node, units, R, rank, out_A, out_b, out_error, out_label, r, first_label, steps, basis):  # type: ignore[no-untyped-def]
    """The cuts of a part as rows from `r` on, and its vertex; returns the end of the rows, and whether the
    vertex is known.

    `rank[i]` is the place of the parent's row i among those that were kept; `r - rank[R]` is where the child
    starts.
    """
    at, G = node.at, units.G
    d = at.C.shape[1]
    begin = r - rank[R]
    for j in range(d):
        v = at.nonbasic[j]
        if v < d:
            basis[j] = vertex_code(at, j, d)
        elif v < d + R:
            basis[j] = 2 * d + rank[v - d]
        else:
            basis[j] = _UNKNOWN
    for e in range(node.tally[2]):
        a = node.cut_item[e]
        k, t = units.unit[a], units.level[a]
        i = at.where[d + R + k]
        bound = 1 if node.cut_above[e] == 1 else 2
        in_force = at.D[d + bound, i] if i >= 0 else at.C[bound, -1 - i]
        if in_force != t:
            continue  # another break point of the same unit cut deeper
        sign = -1.0 if bound == 1 else 1.0
        for q in range(d):
            out_A[r, q] = sign * G[R + k, q]
        out_b[r] = sign * (t - G[R + k, d])
        out_error[r] = units.error[R + k]
        out_label[r] = first_label + k * steps + units.step[a]
        if i < 0 and at.C[0, -1 - i] == t:
            basis[-1 - i] = 2 * d + r - begin
        r += 1
    known = True
    for j in range(d):
        known = known and basis[j] != _UNKNOWN
    return r, known


@inner
def _cut(  # type: ignore[no-untyped-def]
    place, A, b, error, labels, offsets, basis, clean, frame, maps, tolerance, breaks, first_label, step_limit,
    stop, asked, units, stack, work, out, top, near,
):  # fmt: skip
    """Go on with the cells where `place` says; -1 when all are done, or how many rows the output must have room for.

    `place` holds the cell, the level of the stack, the numbers of children and of their rows; whether a part of the
    cell waits to be written and, if so, the cell's items, how many of its rows are known to be facets, the limit on
    steps, and whether the part is sure. No arrays are made here, so that none is counted.
    """
    n, d, m, steps = len(offsets) - 1, A.shape[1], maps.shape[2], breaks.shape[1]
    zero = np.int64(0)  # typed: a literal would compile every callee once more
    column, dropped, rank, tallies, states = work.column, work.dropped, work.rank, stack.tally, stack.state
    n_out, r_out = place[2], place[3]
    for c in range(place[0], n):
        if stop[0] != 0:
            break
        start = offsets[c]
        R = offsets[c + 1] - start
        first = d + R
        waits = place[4] != 0
        frames, items, known, limit, sure = place[1], place[5], place[6], place[7], place[8] != 0
        if not waits:
            frames = zero
            at = _dictionary(stack, zero)
            rows = load_rows(at, units.G, units.error, A, b, error, start, R, basis[c], frame.lower, frame.upper)
            rows, items = _load_units(units, at, rows, R, maps[c], tolerance[c], breaks, frame, top[c], near[c : c + 1])
            limit = step_limit + 10 * (rows + d)
            rows = rebuild(at, units.G, R + m, column)
            known = np.int64(clean[c])
            for i in range(R):
                dropped[i] = 0
            sure = rows >= 0 and is_feasible(at, rows)
            if sure and known + known // 2 + 2 * d < R and items > 0:
                rows = _drop_redundant(at, rows, units, R, b, start, dropped, limit, column)
                if rows >= 0:
                    known = R
                else:
                    sure = False
                    for i in range(R):
                        dropped[i] = 0
            rank[0] = 0
            for i in range(R):
                rank[i + 1] = rank[i] + 1 - dropped[i]
            known = min(known, rank[R])
            for a in range(items):
                states[0, a] = _UNDECIDED
            tallies[0, 0], tallies[0, 2], tallies[0, 3] = rows, 0, 0
            tallies[0, 1] = note(at, stack.seen[0], zero, first, zero, 0.0) if sure else zero

        while stop[0] == 0:
            node = _node(stack, frames)
            if sure and not waits and tallies[frames, 3] > 60 + 2 * d:
                tallies[frames, 0] = rebuild(node.at, units.G, R + m, column)
                tallies[frames, 3] = 0
                sure = tallies[frames, 0] >= 0
            if sure and not waits:
                a = _settle(
                    node,
                    units,
                    R,
                    items,
                    work.low,
                    work.high,
                    limit,
                    column,
                    near[c : c + 1],
                    asked,
                    c,
                    labels[start:],
                    first_label,
                    steps,
                )
                if a >= 0:
                    k = units.unit[a]
                    took, j = walk_to(node.at, tallies[frames, 0], first + k, units.level[a], limit, column)
                    if took >= 0:
                        tallies[frames, 3] += took + 1
                        _fork(node, _node(stack, frames + 1), units, R, items, a, j, first)
                        frames += 1
                        continue
                sure = a == -1

            # All units are settled, or not sure: the part at hand is a child.
            need = r_out + R + tallies[frames, 2]
            if need > len(out.b) or n_out + 2 > len(out.parent):
                place[0], place[1], place[2], place[3], place[4] = c, frames, n_out, r_out, 1
                place[5], place[6], place[7], place[8] = items, known, limit, sure
                return need
            waits = False
            for i in range(R):
                if dropped[i] == 0:
                    for q in range(d):
                        out.A[r_out, q] = A[start + i, q]
                    out.b[r_out], out.error[r_out] = b[start + i], error[start + i]
                    out.label[r_out] = labels[start + i]
                    r_out += 1
            r_out, whole = _write_child(
                node, units, R, rank, out.A, out.b, out.error, out.label, r_out, first_label, steps, out.basis[n_out]
            )
            out.doubtful[n_out] = not (sure and whole)
            out.parent[n_out], out.clean[n_out] = c, known
            for k in range(m):
                out.piece[n_out, k] = units.fixed[k]
            for a in range(items):
                if states[frames, a] == _ABOVE:
                    out.piece[n_out, units.unit[a]] += 1
            n_out += 1
            out.offset[n_out] = r_out
            frames -= 1
            sure = True
            if frames < 0:
                break
        place[4] = 0
    place[2], place[3] = n_out, r_out
    return -1


@kernel
def split_polytopes(  # type: ignore[no-untyped-def]
    A,
    b,
    error,
    labels,
    offsets,
    basis,
    clean,
    frame,
    maps,
    tolerance,
    breaks,
    first_label,
    kept,
    step_limit,
    stop,
    asked,
):
    """Cut every cell by the units of a layer: arrays of the children, their parents and pieces, `top`, which parents
    a unit comes near to (see `reluscope.cells.split`), and which children are in doubt (units may still cut those, and
    their pieces and vertices mean nothing).

    `kept` points are remembered per cell while it is being split; a search may take `step_limit` simplex steps, and
    ten more per row. Ends early, with cells missing, when `stop[0]` is set. For `asked` see `_settle`.
    """
    n, d, m, steps = len(offsets) - 1, A.shape[1], maps.shape[2], breaks.shape[1]
    most = 0
    for c in range(n):
        most = max(most, offsets[c + 1] - offsets[c])
    room, n_items = most + m, m * steps
    depth = n_items + 1

    out_A, out_b = np.empty((4 * len(b) + 64, d)), np.empty(4 * len(b) + 64)
    out_error, out_label = np.empty(len(out_b)), np.empty(len(out_b), np.int32)
    out_offset, out_parent = np.empty(2 * n + 16, np.int64), np.empty(2 * n + 16, np.int64)
    out_piece, out_basis = np.empty((2 * n + 16, m), np.uint8), np.empty((2 * n + 16, d), np.int32)
    out_clean, doubtful = np.empty(2 * n + 16, np.int32), np.empty(2 * n + 16, np.bool_)
    top, near = np.empty((n, m)), np.zeros(n, np.int8)
    out_offset[0] = 0

    units = _Units(
        np.empty((room, d + 1)),
        np.zeros(room),
        np.empty(n_items, np.int64),
        np.empty(n_items, np.int64),
        np.empty(n_items),
        np.empty(m, np.int64),
    )
    stack = _Node(
        Dictionary(
            np.empty((depth, d + 3, room)),
            np.empty((depth, 3, d)),
            np.empty((depth, room), np.int64),
            np.empty((depth, d), np.int64),
            np.empty((depth, d + room), np.int64),
        ),
        np.zeros((depth, kept, m)),
        np.empty((depth, n_items), np.int64),
        np.empty((depth, depth), np.int64),
        np.empty((depth, depth), np.int64),
        np.empty((depth, 4), np.int64),
    )
    work = _Work(np.empty(room), np.empty(m), np.empty(m), np.zeros(most, np.int64), np.empty(most + 1, np.int64))
    place = np.zeros(9, np.int64)
    while True:
        out = _Out(
            out_A, out_b, out_error, out_label, out_offset, out_parent, out_piece, out_basis, out_clean, doubtful
        )
        need = _cut(
            place, A, b, error, labels, offsets, basis, clean, frame, maps, tolerance, breaks, first_label, step_limit,
            stop, asked, units, stack, work, out, top, near,
        )  # fmt: skip
        n_out, r_out = place[2], place[3]
        if need < 0:
            break
        if need > len(out_b):
            out_A, out_b = grow_rows(out_A, need), grow(out_b, need)
            out_error, out_label = grow(out_error, need), grow(out_label, need)
        if n_out + 2 > len(out_parent):
            out_offset, out_parent = grow(out_offset, n_out + 2), grow(out_parent, n_out + 2)
            out_piece, out_basis = grow_rows(out_piece, n_out + 2), grow_rows(out_basis, n_out + 2)
            out_clean, doubtful = grow(out_clean, n_out + 2), grow(doubtful, n_out + 2)

    return (
        out_A[:r_out].copy(),
        out_b[:r_out].copy(),
        out_error[:r_out].copy(),
        out_label[:r_out].copy(),
        out_offset[: n_out + 1].copy(),
        out_basis[:n_out].copy(),
        out_clean[:n_out].copy(),
        out_parent[:n_out].copy(),
        out_piece[:n_out].copy(),
        top,
        near,
        doubtful[:n_out].copy(),
    )
