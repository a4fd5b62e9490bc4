"""What half-space cells look like: a vertex, bounding boxes, largest balls, facets.

Compiled, for all cells of a batch at once: a first vertex (`find_bases`), `bounding_boxes`, `centres` of largest balls
and `find_facets`; cells that those find doubtful are left to `reluscope.cells.polytope_exact`.

The record that these functions serve is `reluscope.cells.polytope.HPolytopes`; arrays and codes are explained there.
"""

from __future__ import annotations

import numpy as np

from reluscope._kernels import kernel
from reluscope.cells.polytope_split import is_feasible, load_rows, vertex_code
from reluscope.cells.simplex import (
    BEYOND,
    DOUBTFUL,
    DUAL,
    OPTIMAL,
    SURE,
    drop_row,
    first_point,
    gets_beyond,
    new_dictionary,
    rebuild,
    search,
    start_at_corner,
    walk_to,
)


@kernel
def _load_cell(at, G, row_error, A, b, error, offsets, basis, frame, c, column):  # type: ignore[no-untyped-def]
    """The dictionary of cell `c` at its vertex; returns the number of rows, -1 in doubt."""
    start = offsets[c]
    R = offsets[c + 1] - start
    load_rows(at, G, row_error, A, b, error, start, R, basis[c], frame.lower, frame.upper)
    n = rebuild(at, G, R, column)
    return n if n >= 0 and is_feasible(at, n) else -1


@kernel
def _most_rows(offsets):  # type: ignore[no-untyped-def]
    most = 0
    for c in range(len(offsets) - 1):
        most = max(most, offsets[c + 1] - offsets[c])
    return most


@kernel
def _coordinates(at, y):  # type: ignore[no-untyped-def]
    """The present point."""
    d = len(y)
    for q in range(d):
        i = at.where[q]
        y[q] = at.D[d, i] if i >= 0 else at.C[0, -1 - i]


@kernel
def find_bases(A, b, error, offsets, lower, upper):  # type: ignore[no-untyped-def]
    """A vertex of each cell, from nothing: codes, and OPTIMAL, BEYOND (the cell is empty) or DOUBTFUL."""
    n, d = len(offsets) - 1, A.shape[1]
    room = _most_rows(offsets)
    at, G, column = new_dictionary(d, room), np.zeros((room, d + 1)), np.empty(room)
    row_error, origin = np.zeros(room), np.zeros(d)
    basis, status = np.zeros((n, d), np.int32), np.zeros(n, np.int64)
    for c in range(n):
        start = offsets[c]
        R = offsets[c + 1] - start
        for i in range(R):
            for q in range(d):
                G[i, q] = A[start + i, q]
            row_error[i] = error[start + i]
        start_at_corner(at, lower, upper, origin, G, R)
        status[c] = first_point(at, R, b[start : start + R], row_error, G, 200 + 20 * (R + d), column)
        if status[c] == OPTIMAL and not is_feasible(at, R):
            status[c] = DOUBTFUL
        for j in range(d):
            basis[c, j] = vertex_code(at, j, d)
    return basis, status


@kernel
def bounding_boxes(A, b, error, offsets, basis, frame):  # type: ignore[no-untyped-def]
    """Lower and upper bound of each coordinate on each cell, and its largest size at the vertices met on the
    way."""
    n, d = len(offsets) - 1, A.shape[1]
    room = _most_rows(offsets)
    at, G, column, row_error = new_dictionary(d, room), np.zeros((room, d + 1)), np.empty(room), np.zeros(room)
    low, high, met = np.empty((n, d)), np.empty((n, d)), np.zeros((n, d))
    y, none, doubtful = np.empty(d), np.empty((0, 0)), np.zeros(n, np.bool_)
    zero = np.int64(0)
    for c in range(n):
        rows = _load_cell(at, G, row_error, A, b, error, offsets, basis, frame, c, column)
        limit = 200 + 20 * (rows + d)
        for q in range(d):
            for side in range(2):
                sign = 1.0 - 2.0 * side
                status = DOUBTFUL
                if rows >= 0:
                    status, _, _ = search(at, rows, q, sign, np.inf, DUAL, limit, column, none, zero, zero)
                if status == DOUBTFUL:
                    doubtful[c] = True
                    continue
                _coordinates(at, y)
                for p in range(d):
                    met[c, p] = max(met[c, p], abs(y[p]))
                end = sign * np.inf if status == BEYOND else y[q]
                if side == 0:
                    high[c, q] = end
                else:
                    low[c, q] = end
    return low, high, met, doubtful


@kernel
def centres(A, b, error, offsets, basis, frame, cap):  # type: ignore[no-untyped-def]
    """Centre and radius of the largest ball in each cell (of radius at most `cap` times the distance of the
    vertex).

    Radii are in units of `x`: the ball is `A_i . y + |A_i / scale| r <= b_i`. The radius is recomputed from
    the centre; it is nan in doubt.
    """
    n, d = len(offsets) - 1, A.shape[1]
    room = _most_rows(offsets)
    at, G, column, row_error = new_dictionary(d, room), np.zeros((room, d + 1)), np.empty(room), np.zeros(room)
    more = room + 2 * d
    ball, H, ball_column = new_dictionary(d + 1, more), np.zeros((more, d + 2)), np.empty(more)
    y, y0, none, zero = np.empty(d), np.empty(d), np.empty((0, 0)), np.int64(0)
    centre, radius = np.empty((n, d)), np.empty(n)
    unit = frame.scale.min()
    for c in range(n):
        start = offsets[c]
        R = offsets[c + 1] - start
        radius[c] = np.nan
        rows = _load_cell(at, G, row_error, A, b, error, offsets, basis, frame, c, column)
        if rows < 0:
            continue
        _coordinates(at, y0)
        # Coordinates relative to the vertex, all free; the radius (in units of the smallest scale) is the last one.
        m = zero
        far = 1.0
        for q in range(d):
            far = max(far, abs(frame.origin[q] + frame.scale[q] * y0[q]))
            for side in range(2):
                bound = frame.upper[q] if side == 0 else frame.lower[q]
                if np.isfinite(bound):
                    for p in range(d + 2):
                        H[m, p] = 0.0
                    H[m, q] = 1.0 - 2.0 * side
                    H[m, d] = unit / frame.scale[q]
                    ball.D[d + 3, m] = max(0.0, H[m, q] * (bound - y0[q]))
                    m += 1
        for i in range(R):
            room_left, norm2 = b[start + i], 0.0
            for q in range(d):
                H[m, q] = A[start + i, q]
                room_left -= A[start + i, q] * y0[q]
                norm2 += (A[start + i, q] / frame.scale[q]) ** 2
            H[m, d], H[m, d + 1] = unit * np.sqrt(norm2), 0.0
            ball.D[d + 3, m] = max(0.0, room_left)
            m += 1
        for q in range(d + 1):
            ball.nonbasic[q], ball.where[q] = q, -1 - q
            ball.C[0, q], ball.C[1, q], ball.C[2, q] = 0.0, -np.inf, np.inf
            for i in range(m):
                ball.D[q, i] = H[i, q]
        ball.C[1, d], ball.C[2, d] = 0.0, cap * far / unit
        for i in range(m):
            ball.basic[i], ball.where[d + 1 + i] = d + 1 + i, i
            ball.D[d + 1, i], ball.D[d + 2, i] = 0.0, -np.inf
        status, _, _ = search(
            ball, m, np.int64(d), 1.0, np.inf, DUAL, 200 + 20 * (m + d), ball_column, none, zero, zero
        )
        if status == DOUBTFUL:
            continue
        for q in range(d):
            i = ball.where[q]
            y[q] = y0[q] + (ball.D[d + 1, i] if i >= 0 else ball.C[0, -1 - i])
            centre[c, q] = y[q]
        radius[c] = np.inf
        if status == OPTIMAL:
            for q in range(d):
                radius[c] = min(radius[c], frame.scale[q] * min(frame.upper[q] - y[q], y[q] - frame.lower[q]))
            for i in range(R):
                room_left, norm2 = b[start + i], 0.0
                for q in range(d):
                    room_left -= A[start + i, q] * y[q]
                    norm2 += (A[start + i, q] / frame.scale[q]) ** 2
                radius[c] = min(radius[c], room_left / np.sqrt(norm2))
    return centre, radius


@kernel
def _set_bound(at, v, bound, value):  # type: ignore[no-untyped-def]
    """Set the lower (1) or upper (2) bound of a variable."""
    k = at.where[v]
    if k >= 0:
        at.D[at.C.shape[1] + bound, k] = value
    else:
        at.C[bound, -1 - k] = value


@kernel
def find_facets(A, b, error, offsets, basis, frame, inside):  # type: ignore[no-untyped-def]
    """Which bounds and rows of each cell are facets, a point inside each, and which cells are in doubt.

    Each in turn is lifted and pushed outwards as far as the others let it: a point beyond it that the others
    allow makes it a facet, and the segment from there to the inner point meets the facet inside. What is no
    facet stays lifted.
    """
    n, d = len(offsets) - 1, A.shape[1]
    room = _most_rows(offsets)
    at, G, column, row_error = new_dictionary(d, room), np.zeros((room, d + 1)), np.empty(room), np.zeros(room)
    fixed_v, fixed_b = np.empty(2 * d, np.int64), np.empty(2 * d, np.int64)
    fixed = 0
    for bound in range(1, 3):
        for q in range(d):
            if np.isfinite(frame.lower[q] if bound == 1 else frame.upper[q]):
                fixed_v[fixed], fixed_b[fixed] = q, bound
                fixed += 1
    total = len(b) + n * fixed
    kept, points = np.zeros(total, np.bool_), np.zeros((total, d))
    seen, y, doubtful = np.empty((1, d)), np.empty(d), np.zeros(n, np.bool_)
    zero = np.int64(0)
    place = 0
    for c in range(n):
        start = offsets[c]
        R = offsets[c + 1] - start
        rows = _load_cell(at, G, row_error, A, b, error, offsets, basis, frame, c, column)
        limit = 200 + 20 * (rows + d)
        for e in range(fixed + R):
            here = place
            place += 1
            if rows < 0 or doubtful[c]:
                doubtful[c] = True
                continue
            if e < fixed:
                v, bound, tol = fixed_v[e], fixed_b[e], 0.0
                t = frame.lower[v] if bound == 1 else frame.upper[v]
            else:
                v, bound, tol = d + e - fixed, 2, error[start + e - fixed]
                t = b[start + e - fixed]
            sign = 1.0 if bound == 2 else -1.0
            _set_bound(at, v, bound, sign * np.inf)
            status, _, n_seen = search(at, rows, v, sign, sign * t + 4.0, DUAL, limit, column, seen, zero, zero)
            k = at.where[v]
            value = at.D[d, k] if k >= 0 else at.C[0, -1 - k]
            if status == OPTIMAL:
                if sign * (value - t) > SURE:
                    status = BEYOND
                elif sign * (value - t) > -SURE:
                    status, _, n_seen = gets_beyond(
                        at, rows, G, v, sign, t, tol, row_error, limit, column, seen, n_seen, zero
                    )
            if status == DOUBTFUL:
                doubtful[c] = True
                continue
            k = at.where[v]
            if status == OPTIMAL:
                if k >= 0 and v >= d:
                    rows = drop_row(at, rows, k)
                continue
            if n_seen > 0:
                for q in range(d):
                    y[q] = seen[0, q]
            else:
                _coordinates(at, y)
            here_value, there_value = 0.0, 0.0
            if v < d:
                here_value, there_value = inside[c, v], y[v]
            else:
                for q in range(d):
                    here_value += G[v - d, q] * inside[c, q]
                    there_value += G[v - d, q] * y[q]
            share = (t - here_value) / (there_value - here_value)
            kept[here] = True
            for q in range(d):
                points[here, q] = inside[c, q] + share * (y[q] - inside[c, q])
            value = at.D[d, k] if k >= 0 else at.C[0, -1 - k]
            if sign * (value - t) > 0.0:
                took, _ = walk_to(at, rows, v, t, limit, column)
                if took < 0:
                    doubtful[c] = True
                    continue
            _set_bound(at, v, bound, t)
    return kept, points, doubtful
