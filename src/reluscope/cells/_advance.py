"""Compiled step of the traversal: pre-activation maps of a layer become activation maps of its children."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reluscope._check import EPS
from reluscope._kernels import inner, kernel

_NARROW = 8
"""Below this many units of a layer, sums run over the units before it and not over its own."""


@kernel
def after_layer(  # type: ignore[no-untyped-def]
    maps, error2, top, parent, piece, slopes, intercepts, with_errors
) -> Any:
    """Maps `z = s (C x + d) + t` of each child, shape (children, rows, units), and the squared errors of `z`.

    The error of an activation is the error of its pre-activation times the slope, plus one rounding of its size.
    """
    n, rows, m = len(parent), maps.shape[1], maps.shape[2]
    out = np.empty((n, rows, m))
    out_error2 = np.empty((n if with_errors else 0, m))
    s, t = np.empty(m), np.empty(m)
    for i in range(n):
        p = parent[i]
        for j in range(m):
            s[j] = slopes[j, piece[i, j]]
            t[j] = intercepts[j, piece[i, j]]
        for r in range(rows):
            for j in range(m):
                out[i, r, j] = maps[p, r, j] * s[j]
        for j in range(m):
            out[i, rows - 1, j] += t[j]
        if with_errors:
            for j in range(m):
                size2 = top[p, j] * top[p, j] * (s[j] * s[j]) + t[j] * t[j]
                out_error2[i, j] = error2[p, j] * (s[j] * s[j]) + EPS * EPS * size2
    return out, out_error2


@kernel
def after_relus(maps, error2, top, parent, piece, columns, with_errors):  # type: ignore[no-untyped-def]
    """The same for ReLUs, whose pieces are the slopes, and of the units `columns` alone: the others are off everywhere.

    Where these are all units no table is looked up, and the loops run on whole vectors.
    """
    n, rows, m = len(parent), maps.shape[1], len(columns)
    whole = m == maps.shape[2]
    out = np.empty((n, rows, m))
    out_error2 = np.empty((n if with_errors else 0, m))
    s = np.empty(m)
    for i in range(n):
        p = parent[i]
        if whole:
            for j in range(m):
                s[j] = piece[i, j]
            for r in range(rows):
                for j in range(m):
                    out[i, r, j] = maps[p, r, j] * s[j]
            if with_errors:
                for j in range(m):
                    out_error2[i, j] = (error2[p, j] + EPS * EPS * (top[p, j] * top[p, j])) * s[j]
            continue
        for q in range(m):
            s[q] = piece[i, columns[q]]
        for r in range(rows):
            for q in range(m):
                out[i, r, q] = maps[p, r, columns[q]] * s[q]
        if with_errors:
            for q in range(m):
                j = columns[q]
                out_error2[i, q] = (error2[p, j] + EPS * EPS * (top[p, j] * top[p, j])) * s[q]
    return out, out_error2


@inner
def _add_fours(by_unit, listed, n, maps, p, size2, to, to_error2, c):  # type: ignore[no-untyped-def]
    """In the plane, what `_add_units` does for as many units as make fours: the same sums in the same order.

    All three rows and the errors go through the weights together: each weight is loaded once, not four times.
    """
    for q in range(0, n - 3, 4):
        h, i, j, s = listed[q], listed[q + 1], listed[q + 2], listed[q + 3]
        a0, b0, e0, f0 = maps[p, 0, h], maps[p, 0, i], maps[p, 0, j], maps[p, 0, s]
        a1, b1, e1, f1 = maps[p, 1, h], maps[p, 1, i], maps[p, 1, j], maps[p, 1, s]
        a2, b2, e2, f2 = maps[p, 2, h], maps[p, 2, i], maps[p, 2, j], maps[p, 2, s]
        a, b, e, f = size2[h], size2[i], size2[j], size2[s]
        for k in range(to.shape[2]):
            u, v, w, x = by_unit[h, k], by_unit[i, k], by_unit[j, k], by_unit[s, k]
            to[c, 0, k] += (a0 * u + b0 * v) + (e0 * w + f0 * x)
            to[c, 1, k] += (a1 * u + b1 * v) + (e1 * w + f1 * x)
            to[c, 2, k] += (a2 * u + b2 * v) + (e2 * w + f2 * x)
            to_error2[c, k] = to_error2[c, k] + (a * (u * u) + b * (v * v)) + (e * (w * w) + f * (x * x))


@inner
def _add_units(by_unit, listed, n, maps, p, size2, to, to_error2, c):  # type: ignore[no-untyped-def]
    """Add to the maps of child c, and to their squared errors, what the first n units of a list give on cell p."""
    rows, m = to.shape[1], to.shape[2]
    begin = 0
    if m >= _NARROW and rows == 3 and len(to_error2):
        _add_fours(by_unit, listed, n, maps, p, size2, to, to_error2, c)
        begin = n & ~3
    if m < _NARROW:
        for r in range(rows):
            for k in range(m):
                one, two = to[c, r, k], 0.0
                for q in range(0, n - 1, 2):
                    h, i = listed[q], listed[q + 1]
                    one += maps[p, r, h] * by_unit[h, k]
                    two += maps[p, r, i] * by_unit[i, k]
                if n & 1:
                    h = listed[n - 1]
                    one += maps[p, r, h] * by_unit[h, k]
                to[c, r, k] = one + two
    else:
        for r in range(rows):
            for q in range(begin, n - 3, 4):
                h, i, j, s = listed[q], listed[q + 1], listed[q + 2], listed[q + 3]
                a, b, e, f = maps[p, r, h], maps[p, r, i], maps[p, r, j], maps[p, r, s]
                for k in range(m):
                    to[c, r, k] += (a * by_unit[h, k] + b * by_unit[i, k]) + (e * by_unit[j, k] + f * by_unit[s, k])
            for q in range(n & ~3, n):
                h = listed[q]
                a = maps[p, r, h]
                for k in range(m):
                    to[c, r, k] += a * by_unit[h, k]
    if len(to_error2):
        for q in range(begin, n - 1, 2):
            h, i = listed[q], listed[q + 1]
            a, b = size2[h], size2[i]
            for k in range(m):
                to_error2[c, k] += a * (by_unit[h, k] * by_unit[h, k]) + b * (by_unit[i, k] * by_unit[i, k])
        if n & 1:
            h = listed[n - 1]
            a = size2[h]
            for k in range(m):
                to_error2[c, k] += a * (by_unit[h, k] * by_unit[h, k])


@inner
def _longer(pattern, root, parent, piece):  # type: ignore[no-untyped-def]
    n, before, units = len(parent), pattern.shape[1], piece.shape[1]
    out, roots = np.empty((n, before + units), np.uint8), np.empty(n, np.int64)
    for i in range(n):
        p = parent[i]
        roots[i] = root[p]
        for j in range(before):
            out[i, j] = pattern[p, j]
        for j in range(units):
            out[i, before + j] = piece[i, j]
    return out, roots


@kernel
def longer(pattern, root, parent, piece):  # type: ignore[no-untyped-def]
    """The patterns of the parents, each followed by the pieces of the child, and the roots."""
    return _longer(pattern, root, parent, piece)


@kernel
def tolerances(error2, times):  # type: ignore[no-untyped-def]
    """`times` the probable errors, from their squares."""
    n, m = error2.shape
    out = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            out[i, j] = times * math.sqrt(error2[i, j])
    return out


@kernel
def through_relus(  # type: ignore[no-untyped-def]
    maps, error2, top, parent, piece, by_unit, bias, with_errors, pattern, root
) -> Any:
    """The maps of the layer after one of ReLUs for each child, their squared errors; patterns and roots as `longer`.

    Children of one cell, which follow one another, differ in the few units that cross it: what the others give is
    summed up once for all. The terms are those of the whole product, and none is taken away again: sums that are exact
    stay so. Row j of `by_unit` has the weights that the following layer gives to unit j.
    """
    n, rows, units, m = len(parent), maps.shape[1], maps.shape[2], by_unit.shape[1]
    out = np.empty((n, rows, m))
    out_error2 = np.empty((n if with_errors else 0, m))
    size2 = np.empty(units)
    every, some = np.empty(units, np.uint8), np.empty(units, np.uint8)
    # Unsigned numbers: an index that may be negative costs a comparison each time.
    settled, varied, own = np.empty(units, np.uint64), np.empty(units, np.uint64), np.empty(units, np.uint64)
    end = np.int64(0)  # a literal number would compile what it is given to once more
    while end < n:
        first, p = end, parent[end]
        for j in range(units):
            every[j] = some[j] = piece[first, j]
        end += 1
        while end < n and parent[end] == p:
            for j in range(units):
                every[j] &= piece[end, j]
                some[j] |= piece[end, j]
            end += 1
        on, vary = np.int64(0), np.int64(0)
        for j in range(units):
            settled[on], varied[vary] = j, j
            on += every[j]
            vary += every[j] ^ some[j]
        for r in range(rows - 1):
            for k in range(m):
                out[first, r, k] = 0.0
        for k in range(m):
            out[first, rows - 1, k] = bias[k]
        if with_errors:
            for j in range(units):
                size2[j] = error2[p, j] + EPS * EPS * (top[p, j] * top[p, j])
            for k in range(m):
                out_error2[first, k] = EPS * EPS * (bias[k] * bias[k])
        _add_units(by_unit, settled, on, maps, p, size2, out, out_error2, first)
        for c in range(end - 1, first - 1, -1):  # the first child, which has the sums, comes last
            if c > first:
                for r in range(rows):
                    for k in range(m):
                        out[c, r, k] = out[first, r, k]
                for k in range(m if with_errors else 0):
                    out_error2[c, k] = out_error2[first, k]
            mine = np.int64(0)
            for q in range(vary):
                own[mine] = varied[q]
                mine += piece[c, varied[q]]
            _add_units(by_unit, own, mine, maps, p, size2, out, out_error2, c)
    new, roots = _longer(pattern, root, parent, piece)
    return out, out_error2, new, roots


@kernel
def passed_on(points, corners, piece, chosen, listed, known, maps, tolerance, level, unknown):  # type: ignore[no-untyped-def]
    """What is left to do in the parts of a cell that some units of its list, `chosen`, have cut.

    The parts have the vertices `points[corners[i]:corners[i + 1]]` and the pieces `piece` of those units. Each gets the
    piece of every unit, `unknown` for those others of the list that may cross it, and these units back to back, with
    where each part's start. Both lists of units increase.
    """
    n, d, units = len(corners) - 1, points.shape[1], len(known)
    rest, some = np.empty(len(listed) - len(chosen), np.int64), np.int64(0)
    for q in range(len(listed)):
        if some < len(chosen) and listed[q] == chosen[some]:
            some += 1
        else:
            rest[q - some] = listed[q]
    m = len(rest)
    slope, offset, wide = np.empty((d, m)), np.empty(m), np.empty(m)
    for q in range(m):
        j = rest[q]
        offset[q], wide[q] = maps[d, j] - level[j], 2.0 * tolerance[j]
        for r in range(d):
            slope[r, q] = maps[r, j]
    value, low, high, state = np.empty(m), np.empty(m), np.empty(m), np.empty(m, np.uint8)
    out, starts = np.empty((n, units), np.uint8), np.zeros(n + 1, np.int64)
    for i in range(n):
        for q in range(m):
            low[q], high[q] = np.inf, -np.inf
        for v in range(corners[i], corners[i + 1]):
            for q in range(m):
                value[q] = offset[q]
            for r in range(d):
                x = points[v, r]
                for q in range(m):
                    value[q] += x * slope[r, q]
            for q in range(m):
                low[q] = value[q] if value[q] < low[q] else low[q]
                high[q] = value[q] if value[q] > high[q] else high[q]
        for q in range(m):
            state[q] = 0 if high[q] < -wide[q] else (1 if low[q] > wide[q] else unknown)
        for j in range(units):
            out[i, j] = known[j]
        for q in range(len(chosen)):
            out[i, chosen[q]] = piece[i, q]
        own = np.int64(0)
        for q in range(m):
            out[i, rest[q]] = state[q]
            own += state[q] == unknown
        starts[i + 1] = starts[i] + own
    left = np.empty(starts[n], np.int64)
    for i in range(n):
        own = starts[i]
        for q in range(m):
            if out[i, rest[q]] == unknown:
                left[own] = rest[q]
                own += 1
    return out, left, starts


@kernel
def filled_up(listed, starts, maps, tolerance, level):  # type: ignore[no-untyped-def]
    """Maps (nodes, rows, longest) and tolerances (nodes, longest) of the units on the lists of some nodes.

    Node k has the units `listed[starts[k]:starts[k + 1]]`. Lists shorter than the longest are filled up with units that
    are below the break point everywhere.
    """
    nodes, rows, longest = len(starts) - 1, maps.shape[0], np.int64(1)
    for k in range(nodes):
        longest = max(longest, starts[k + 1] - starts[k])
    out, out_tolerance = np.zeros((nodes, rows, longest)), np.zeros((nodes, longest))
    for k in range(nodes):
        own = starts[k + 1] - starts[k]
        for q in range(own):
            j = listed[starts[k] + q]
            for r in range(rows):
                out[k, r, q] = maps[r, j]
            out_tolerance[k, q] = tolerance[j]
        for q in range(own, longest):
            out[k, rows - 1, q] = level - 1.0
    return out, out_tolerance


@kernel
def named(labels, offsets, parent, listed, starts, begin):  # type: ignore[no-untyped-def]
    """Labels of facets; those from `begin` on count the units on the list of the node that a cell is from."""
    out = np.empty(len(labels), np.int32)
    for c in range(len(parent)):
        first = starts[parent[c]]
        for i in range(offsets[c], offsets[c + 1]):
            out[i] = labels[i] if labels[i] < begin else listed[first + (labels[i] - begin)]
    return out


@kernel
def in_all(known, listed, starts, piece, ends):  # type: ignore[no-untyped-def]
    """The pieces of all units on the children of some nodes: those that are known, and those of units on lists."""
    units = known.shape[1]
    out = np.empty((len(piece), units), np.uint8)
    for k in range(len(known)):
        for i in range(ends[k], ends[k + 1]):
            for j in range(units):
                out[i, j] = known[k, j]
            for q in range(starts[k + 1] - starts[k]):
                out[i, listed[starts[k] + q]] = piece[i, q]
    return out


@kernel
def from_lists(  # type: ignore[no-untyped-def]
    points, corners, known, listed, starts, piece, ends, before, after, by_unit, with_errors
) -> Any:
    """Maps and squared errors of the children of some nodes, those of node k at `ends[k]:ends[k + 1]`.

    What is the same on all children of a node is summed up once: the units that `known` has on piece 1. Then each child
    adds those units of the node's list, `listed[starts[k]:starts[k + 1]]`, that are on piece 1. Unit j adds
    `step[0, :, j]` to the maps before the following layer, and to their squared errors, of the size that it has at the
    vertices `points[corners[k]:corners[k + 1]]` of the node.

    `before` are the first layer's maps and squared errors, the squares of slopes (2, units) and of shifts (2, units) of
    both pieces; `after` the second layer's maps where all units are on piece 0, the squares of its biases, and `step`.
    """
    maps, error2, slope2, shift2 = before
    first, bias2, step = after
    n, d, units, m = len(piece), points.shape[1], maps.shape[1], by_unit.shape[1]
    out = np.empty((n + 1, d + 1, m))  # the last row is the node at hand
    out_error2 = np.empty((n + 1 if with_errors else 0, m))
    own = np.empty(units, np.uint64)
    rise, value, top = np.zeros(units), np.empty(units), np.empty(units)
    for node in range(len(known)):
        for r in range(d + 1):
            for k in range(m):
                out[n, r, k] = first[r, k]
        if with_errors:
            for j in range(units):
                top[j] = 0.0
            for v in range(corners[node], corners[node + 1]):
                for j in range(units):
                    value[j] = maps[d, j]
                for r in range(d):
                    x = points[v, r]
                    for j in range(units):
                        value[j] += x * maps[r, j]
                for j in range(units):
                    top[j] = max(top[j], abs(value[j]))
            for k in range(m):
                out_error2[n, k] = bias2[k]
            for j in range(units):
                size2 = error2[j] + EPS * EPS * top[j] * top[j]
                least = slope2[0, j] * size2 + EPS * EPS * shift2[0, j]
                rise[j] = slope2[1, j] * size2 + EPS * EPS * shift2[1, j] - least
                if least != 0.0:
                    for k in range(m):
                        out_error2[n, k] += least * (by_unit[j, k] * by_unit[j, k])
        for i in range(ends[node] - 1, ends[node + 1]):
            mine = np.int64(0)
            if i < ends[node]:
                to = n
                for j in range(units):
                    own[mine] = j
                    mine += known[node, j] == 1
            else:
                to = i
                for r in range(d + 1):
                    for k in range(m):
                        out[to, r, k] = out[n, r, k]
                for k in range(m if with_errors else 0):
                    out_error2[to, k] = out_error2[n, k]
                for q in range(starts[node + 1] - starts[node]):
                    own[mine] = listed[starts[node] + q]
                    mine += piece[i, q]
            _add_units(by_unit, own, mine, step, np.int64(0), rise, out, out_error2, to)
            for k in range(m if with_errors else 0):
                out_error2[to, k] = max(out_error2[to, k], 0.0)
    return out[:n], out_error2[: n if with_errors else 0]


@kernel
def by_columns(first, error2, piece, listed, step, rise, columns, with_errors):  # type: ignore[no-untyped-def]
    """Maps `first` plus those that the units of a list add where they are above their break point; squared errors too.

    Unit `listed[k]` adds `step[:, k]` before the following layer; `columns` has that layer's weights unit by unit.
    """
    indptr, indices, data = columns
    n, (rows, m) = len(piece), first.shape
    out = np.empty((n, rows, m))
    out_error2 = np.empty((n if with_errors else 0, m))
    for i in range(n):
        for r in range(rows):
            for j in range(m):
                out[i, r, j] = first[r, j]
        if with_errors:
            for j in range(m):
                out_error2[i, j] = error2[j]
        for k in range(piece.shape[1]):
            if piece[i, k]:
                for q in range(indptr[listed[k]], indptr[listed[k] + 1]):
                    j, w = indices[q], data[q]
                    for r in range(rows):
                        out[i, r, j] += w * step[r, k]
                    if with_errors:
                        out_error2[i, j] += w * w * rise[k]
        if with_errors:
            for j in range(m):
                out_error2[i, j] = max(out_error2[i, j], 0.0)
    return out, out_error2
