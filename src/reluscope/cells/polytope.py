"""n-D cells as H-polytopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.cells.simplex import (
    BEYOND,
    DOUBTFUL,
    GONE,
    OPTIMAL,
    drop_row,
    exact_value,
    rebuild,
    search,
    walk_to,
)

_KEPT = 24
_STATS = 8


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


_UNDECIDED, _BELOW, _ABOVE = 0, 1, 2


@nb.njit(cache=True)
def _one_sided(G, D, C, basic, nonbasic, where, n, variable, sign, t, sure, tol, error, tie, limit, column, x,
               seen, first, n_seen, stats):  # type: ignore[no-untyped-def]
    """Whether `variable` gets beyond `t` (by more than the tolerance) in direction `sign`: (answer, steps, n_seen)."""
    status, steps, n_seen = search(
        D, C, basic, nonbasic, where, n, variable, sign, sign * t + sure, tie, limit, False, column, seen, first, n_seen
    )
    stats[0] += 1
    stats[1] += steps
    if status != OPTIMAL:
        return status, steps, n_seen
    stats[2] += 1
    d = C.shape[1]
    k = where[variable]
    if k < 0:
        return (BEYOND if sign * (C[0, -1 - k] - t) > tol else OPTIMAL), steps, n_seen
    if sign * (D[d, k] - t) <= -sure:
        return OPTIMAL, steps, n_seen
    # The answer hangs on rounding: finish the search to the last digit, and compute the optimum afresh.
    stats[3] += 1
    status, more, n_seen = search(
        D, C, basic, nonbasic, where, n, variable, sign, sign * t + sure, tie, 4 * d + 20, True, column, seen, first,
        n_seen,
    )
    steps += more
    if status == BEYOND:
        return BEYOND, steps, n_seen
    k = where[variable]
    if k < 0:
        return (BEYOND if sign * (C[0, -1 - k] - t) > tol else OPTIMAL), steps, n_seen
    value, moved = exact_value(G, D, C, nonbasic, where, variable, error, x)
    return (BEYOND if sign * (value - t) > tol + moved else OPTIMAL), steps, n_seen


@nb.njit(cache=True)
def _split_polytopes(A, b, error, labels, offsets, basis, lower, upper, outer_low, outer_up, origin, scale, maps, tolerance,
                     breaks, first_label, kept, step_limit, stats):  # type: ignore[no-untyped-def]
    n, d, m, steps = len(offsets) - 1, len(lower), maps.shape[2], breaks.shape[1]
    most_rows = 0
    for c in range(n):
        most_rows = max(most_rows, offsets[c + 1] - offsets[c])
    room = most_rows + m
    n_items_max = m * steps + 1
    depth = n_items_max + 2

    out_A = np.empty((4 * len(b) + 64, d))
    out_b, out_error = np.empty(len(out_A)), np.empty(len(out_A))
    out_label = np.empty(len(out_A), np.int32)
    out_offset, out_parent = np.empty(2 * n + 16, np.int64), np.empty(2 * n + 16, np.int64)
    out_piece = np.empty((2 * n + 16, m), np.uint8)
    out_basis = np.empty((2 * n + 16, d), np.int32)
    top = np.empty((n, m))
    doubtful = np.zeros(n, np.bool_)
    n_out, r_out = 0, 0
    out_offset[0] = 0

    G, row_error = np.empty((room, d + 1)), np.empty(room)
    D, C = np.empty((d + 3, room)), np.empty((3, d))
    basic, nonbasic, where = np.empty(room, np.int32), np.empty(d, np.int32), np.empty(d + room, np.int32)
    column, x = np.empty(room), np.empty(d)
    seen = np.empty((kept, m))
    norm, tol, sure = np.empty(m), np.empty(m), np.empty(m)
    low, high = np.empty(m), np.empty(m)
    item_unit, item_break = np.empty(n_items_max, np.int64), np.empty(n_items_max, np.int64)
    item_t = np.empty(n_items_max)
    state = np.empty(n_items_max, np.uint8)
    above, below = np.empty(n_items_max, np.bool_), np.empty(n_items_max, np.bool_)
    cut_item, cut_side = np.empty(depth, np.int64), np.empty(depth, np.int64)
    piece, fixed_piece = np.empty(m, np.uint8), np.empty(m, np.uint8)

    f_D, f_C = np.empty((depth, d + 3, room)), np.empty((depth, 3, d))
    f_basic, f_nonbasic = np.empty((depth, room), np.int32), np.empty((depth, d), np.int32)
    f_where = np.empty((depth, d + room), np.int32)
    f_seen, f_n_seen = np.empty((depth, kept, m)), np.empty(depth, np.int64)
    f_state = np.empty((depth, n_items_max), np.uint8)
    f_cut_item, f_cut_side = np.empty((depth, depth), np.int64), np.empty((depth, depth), np.int64)
    f_cuts, f_rows, f_steps = np.empty(depth, np.int64), np.empty(depth, np.int64), np.empty(depth, np.int64)

    size = 1.0
    tie = 1e-13 * size

    for c in range(n):
        start = offsets[c]
        R = offsets[c + 1] - start
        first = d + R
        for i in range(R):
            for q in range(d):
                G[i, q] = A[start + i, q]
            G[i, d] = 0.0
            row_error[i] = error[start + i]

        # Units in the cell's own coordinates, with unit norm; their range over the outer box.
        items = 0
        rows = R
        for v in range(d + R + m):
            where[v] = GONE
        for k in range(m):
            total, norm2 = maps[c, d, k], 0.0
            for q in range(d):
                total += maps[c, q, k] * origin[q]
                x[q] = maps[c, q, k] * scale[q]
                norm2 += x[q] * x[q]
            lo, hi = total, total
            for q in range(d):
                if x[q] > 0.0:
                    lo += x[q] * outer_low[q]
                    hi += x[q] * outer_up[q]
                elif x[q] < 0.0:
                    lo += x[q] * outer_up[q]
                    hi += x[q] * outer_low[q]
            top[c, k] = max(abs(lo), abs(hi))
            here, before = 0, items
            if not np.isfinite(top[c, k]):
                top[c, k] = abs(total) + np.sqrt(norm2)
            norm[k] = np.sqrt(norm2)
            constant = norm[k] <= tolerance[c, k]
            if constant:
                lo, hi = total, total
            for s in range(steps):
                t = breaks[k, s]
                if hi <= t + tolerance[c, k]:
                    break
                if lo >= t - tolerance[c, k] or constant:
                    here += 1
                    continue
                item_unit[items], item_break[items] = k, s
                item_t[items] = t / norm[k]
                state[items] = _UNDECIDED
                items += 1
            fixed_piece[k] = here
            if items > before:
                inverse = 1.0 / norm[k]
                for q in range(d):
                    G[R + k, q] = x[q] * inverse
                G[R + k, d] = total * inverse
                tol[k] = tolerance[c, k] * inverse
                row_error[R + k] = tol[k]
                sure[k] = tol[k] + 1e-9 * size
                where[first + k] = rows
                basic[rows] = first + k
                D[d + 1, rows], D[d + 2, rows] = -np.inf, np.inf
                rows += 1

        # The dictionary of the vertex that the cell came with.
        for q in range(d):
            where[q] = 0
        for i in range(R):
            where[d + i] = i
            basic[i] = d + i
            D[d + 1, i], D[d + 2, i] = -np.inf, b[start + i]
        at = 0
        for j in range(d):
            code = basis[c, j]
            if code >= 2 * d:
                r = code - 2 * d
                nonbasic[j] = d + r
                C[0, j], C[1, j], C[2, j] = b[start + r], -np.inf, b[start + r]
            elif code >= 0:
                q = code >> 1
                nonbasic[j] = q
                C[0, j], C[1, j], C[2, j] = (upper[q] if code & 1 else lower[q]), lower[q], upper[q]
            else:
                nonbasic[j] = -1 - code
                C[0, j], C[1, j], C[2, j] = 0.0, -np.inf, np.inf
        for j in range(d):
            where[nonbasic[j]] = -1 - j
        # Rows of the basic list that are nonbasic are replaced by the missing coordinates.
        at = 0
        for q in range(d):
            if where[q] >= 0:
                while where[basic[at]] >= 0:
                    at += 1
                basic[at] = q
                where[q] = at
                D[d + 1, at], D[d + 2, at] = lower[q], upper[q]
                at += 1
        if not rebuild(G[: R + m], D, C, basic, nonbasic, where[: d + R + m], rows, column):
            doubtful[c] = True
            continue
        for i in range(rows):
            if D[d, i] < D[d + 1, i] - 1e-9 * size or D[d, i] > D[d + 2, i] + 1e-9 * size:
                doubtful[c] = True
        if doubtful[c]:
            continue
        limit = step_limit + 10 * (rows + d)
        stepped = 0
        for k in range(m):
            i = where[first + k]
            if i >= 0:
                seen[0, k] = D[d, i]
        n_seen = 1
        frames, cuts = 0, 0
        n_start, r_start = n_out, r_out

        while True:
            if stepped > 60 + 2 * d:
                if not rebuild(G[: R + m], D, C, basic, nonbasic, where[: d + R + m], rows, column):
                    doubtful[c] = True
                    break
                stepped = 0
            for k in range(m):
                low[k], high[k] = np.inf, -np.inf
            for w in range(min(n_seen, kept)):
                for k in range(m):
                    low[k], high[k] = min(low[k], seen[w, k]), max(high[k], seen[w, k])
            undecided = 0
            chosen = -1
            for a in range(items):
                if state[a] != _UNDECIDED:
                    continue
                k = item_unit[a]
                t = item_t[a]
                up_known, down_known = high[k] > t + sure[k], low[k] < t - sure[k]
                before = n_seen
                if not up_known:
                    status, took, n_seen = _one_sided(
                        G, D, C, basic, nonbasic, where, rows, first + k, 1.0, t, sure[k], tol[k], row_error, tie, limit,
                        column, x, seen, first, n_seen, stats,
                    )
                    stepped += took
                    if status == DOUBTFUL:
                        doubtful[c] = True
                        break
                    if status == OPTIMAL:
                        state[a] = _BELOW
                        for e in range(a + 1, items):
                            if item_unit[e] == k:
                                state[e] = _BELOW
                if state[a] == _UNDECIDED and not down_known:
                    status, took, n_seen = _one_sided(
                        G, D, C, basic, nonbasic, where, rows, first + k, -1.0, t, sure[k], tol[k], row_error, tie, limit,
                        column, x, seen, first, n_seen, stats,
                    )
                    stepped += took
                    if status == DOUBTFUL:
                        doubtful[c] = True
                        break
                    if status == OPTIMAL:
                        state[a] = _ABOVE
                for w in range(before, n_seen):
                    w1 = w % kept
                    for q in range(m):
                        low[q], high[q] = min(low[q], seen[w1, q]), max(high[q], seen[w1, q])
                if state[a] == _UNDECIDED:
                    undecided += 1
                    chosen = a
                else:
                    # A unit that is settled and bounds nothing only costs time.
                    i = where[first + k]
                    settled = i >= 0 and D[d + 1, i] == -np.inf and D[d + 2, i] == np.inf
                    for e in range(items):
                        if item_unit[e] == k and state[e] == _UNDECIDED:
                            settled = False
                    if settled:
                        rows = drop_row(D, C, basic, where, rows, i)
            if doubtful[c]:
                break

            if chosen >= 0:
                a = chosen
                k, t = item_unit[a], item_t[a]
                took, j = walk_to(D, C, basic, nonbasic, where, rows, first + k, t, tie, limit, column)
                stats[4] += 1
                stats[5] += took
                if took < 0:
                    doubtful[c] = True
                    break
                stepped += took + 1
                # The point reached belongs to both parts.
                at = n_seen % kept
                for q in range(m):
                    i = where[first + q]
                    if i >= 0:
                        seen[at, q] = D[d, i]
                    elif i != GONE:
                        seen[at, q] = C[0, -1 - i]
                n_seen = min(n_seen + 1, kept)
                # The upper part is put aside.
                f = frames
                for q in range(d + 3):
                    for i in range(rows):
                        f_D[f, q, i] = D[q, i]
                f_C[f] = C
                f_C[f, 1, j] = t
                f_basic[f, :rows] = basic[:rows]
                f_nonbasic[f] = nonbasic
                f_where[f, : d + R + m] = where[: d + R + m]
                above_count, below_count = 0, 0
                for w in range(n_seen):
                    if seen[w, k] >= t:
                        for q in range(m):
                            f_seen[f, above_count, q] = seen[w, q]
                        above_count += 1
                    if seen[w, k] <= t:
                        if below_count != w:
                            for q in range(m):
                                seen[below_count, q] = seen[w, q]
                        below_count += 1
                f_n_seen[f] = above_count
                n_seen = below_count
                for e in range(items):
                    f_state[f, e] = state[e]
                    if item_unit[e] == k and e <= a:
                        f_state[f, e] = _ABOVE
                    if item_unit[e] == k and e >= a:
                        state[e] = _BELOW
                cut_item[cuts], cut_side[cuts] = a, 1
                f_cut_item[f, : cuts + 1] = cut_item[: cuts + 1]
                f_cut_side[f, : cuts + 1] = cut_side[: cuts + 1]
                cut_side[cuts] = 0
                cuts += 1
                f_cuts[f], f_rows[f], f_steps[f] = cuts, rows, stepped
                frames += 1
                C[2, j] = t
                continue

            # All units are settled: the cell at hand is a child.
            while r_out + R + cuts > len(out_b):
                need = r_out + R + cuts
                out_A, out_b = _grown2(out_A, need), _grown1(out_b, need)
                out_error, out_label = _grown1(out_error, need), _grown1(out_label, need)
            if n_out + 2 > len(out_parent):
                out_offset, out_parent = _grown1(out_offset, n_out + 2), _grown1(out_parent, n_out + 2)
                out_piece, out_basis = _grown2(out_piece, n_out + 2), _grown2(out_basis, n_out + 2)
            for i in range(R):
                for q in range(d):
                    out_A[r_out + i, q] = A[start + i, q]
                out_b[r_out + i], out_error[r_out + i] = b[start + i], error[start + i]
                out_label[r_out + i] = labels[start + i]
            for j in range(d):
                v = nonbasic[j]
                if v < d:
                    if C[1, j] == -np.inf and C[2, j] == np.inf:
                        out_basis[n_out, j] = -1 - v
                    else:
                        out_basis[n_out, j] = 2 * v + (1 if C[0, j] == C[2, j] else 0)
                elif v < first:
                    out_basis[n_out, j] = 2 * d + v - d
            r = r_out + R
            for e in range(cuts):
                a = cut_item[e]
                k, t = item_unit[a], item_t[a]
                i = where[first + k]
                upper_side = cut_side[e] == 0
                bound = 2 if upper_side else 1
                in_force = D[d + bound, i] if i >= 0 else C[bound, -1 - i]
                if in_force != t:
                    continue  # a later break point of the same unit cut deeper
                sign = 1.0 if upper_side else -1.0
                for q in range(d):
                    out_A[r, q] = sign * G[R + k, q]
                out_b[r] = sign * (t - G[R + k, d])
                out_error[r] = tol[k]
                out_label[r] = first_label + k * steps + item_break[a]
                if i < 0 and C[0, -1 - i] == t:
                    out_basis[n_out, -1 - i] = 2 * d + r - r_out
                r += 1
            r_out = r
            out_parent[n_out] = c
            for k in range(m):
                out_piece[n_out, k] = fixed_piece[k]
            for a in range(items):
                if state[a] == _ABOVE:
                    out_piece[n_out, item_unit[a]] += 1
            n_out += 1
            out_offset[n_out] = r_out

            if frames == 0:
                break
            frames -= 1
            f = frames
            rows, cuts, stepped, n_seen = f_rows[f], f_cuts[f], f_steps[f], f_n_seen[f]
            for q in range(d + 3):
                for i in range(rows):
                    D[q, i] = f_D[f, q, i]
            C[:] = f_C[f]
            basic[:rows] = f_basic[f, :rows]
            nonbasic[:] = f_nonbasic[f]
            where[: d + R + m] = f_where[f, : d + R + m]
            for w in range(n_seen):
                for q in range(m):
                    seen[w, q] = f_seen[f, w, q]
            state[:items] = f_state[f, :items]
            cut_item[:cuts] = f_cut_item[f, :cuts]
            cut_side[:cuts] = f_cut_side[f, :cuts]

        if doubtful[c]:
            n_out, r_out = n_start, r_start

    return (
        out_A[:r_out].copy(),
        out_b[:r_out].copy(),
        out_error[:r_out].copy(),
        out_label[:r_out].copy(),
        out_offset[: n_out + 1].copy(),
        out_basis[:n_out].copy(),
        out_parent[:n_out].copy(),
        out_piece[:n_out].copy(),
        top,
        doubtful,
    )
