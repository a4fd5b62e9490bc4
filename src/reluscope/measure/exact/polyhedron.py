"""Standard normal masses and moments of bounded convex polyhedra, by one quadrature over polygon slices.

For u ~ N(0, I) in three dimensions and a polytope P with vertices v_1..v_k,

    P(u in P) = int phi(s) mass_2(P cut at level s) ds

along a direction chosen by the cell: an axis for cells over which the density varies little, the direction of the
nearest point for far ones (it resolves the decay), a tangential one if the cell is thin there. Between the levels of
two consecutive vertices the slice is a polygon whose corners move on straight lines, so the integrand is entire
there: a Gauss rule whose size follows from the same growth bound as in `polygon` integrates it, its last Legendre
coefficients are watched, and the piece is halved where they have not died out. The slices themselves are exact
(`polygon`). The corners come from the vertices alone: the slice is the hull of the crossings of all segments between a
vertex below and one above, so no tolerance decides what is an edge.

Relative accuracy about 1e-12 for well-shaped cells, near or far; thin cells lose eps * diameter / thickness to the
rounding of the corners, which the error estimate counts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._kernels import inner, kernel
from reluscope.measure.exact.polygon import (
    STRIP_LINEAR,
    STRIP_QUADRATIC,
    WORKSPACE,
    Wanted,
    orientation_exact,
    polygon_kernel,
)
from reluscope.measure.exact.vertices import checked_vertices
from reluscope.measure.normal import EPS, RULE_NODES, RULE_SIZES, RULE_START, RULE_WEIGHTS, normal_pdf

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Slices are dropped where the density is below exp(-50) of the largest one in the cell.
_DROP = 100.0
_NO_RULE = len(RULE_SIZES)
# Estimated relative error of one piece above which it is halved, as long as it is longer than _SHORTEST of its panel.
_TOLERANCE = 1e-12
_SHORTEST = 1e-6
# Moments are kept in the order 1, s, x, y, ss, sx, sy, xx, xy, yy.
_MOMENTS = 10


def _tail_weights() -> FloatArray:
    """Row j: for each rule, the weights that turn values at the nodes into the Legendre coefficient n - 1 - j."""
    out = np.empty((3, RULE_NODES.size))
    for rule, size in enumerate(RULE_SIZES):
        part = slice(RULE_START[rule], RULE_START[rule + 1])
        for j in range(3):
            degree = size - 1 - j
            values = np.polynomial.legendre.legval(RULE_NODES[part], [0.0] * degree + [1.0])
            out[j, part] = (degree + 0.5) * RULE_WEIGHTS[part] * values
    return out


_TAIL = _tail_weights()


# --- geometry --------------------------------------------------------------------------------------------------


@inner
def nearest_in_hull(points: FloatArray, start: int, stop: int) -> tuple[float, float, float]:
    """A point of the hull of points[start:stop] close to the one nearest to the origin (Gilbert's iteration).

    Only a direction and a radius follow from it, so a hundred steps suffice: each moves to the best point of the
    segment towards the vertex that reaches furthest back to the origin.
    """
    best, i_best = np.inf, start
    for i in range(start, stop):
        square = points[i, 0] ** 2 + points[i, 1] ** 2 + points[i, 2] ** 2
        if square < best:
            best, i_best = square, i
    x, y, z = points[i_best, 0], points[i_best, 1], points[i_best, 2]
    for _ in range(100):
        least, j = np.inf, start
        for i in range(start, stop):
            dot = points[i, 0] * x + points[i, 1] * y + points[i, 2] * z
            if dot < least:
                least, j = dot, i
        square = x * x + y * y + z * z
        if square - least <= 1e-6 * square:
            break
        dx, dy, dz = points[j, 0] - x, points[j, 1] - y, points[j, 2] - z
        length2 = dx * dx + dy * dy + dz * dz
        if length2 == 0.0:
            break
        t = min(1.0, max(0.0, -(x * dx + y * dy + z * dz) / length2))
        x, y, z = x + t * dx, y + t * dy, z + t * dz
    return x, y, z


@inner
def _axis_frame(axis: int) -> FloatArray:
    """Rows: the coordinate axis `axis`, then the other two in cyclic order."""
    frame = np.zeros((3, 3))
    for row in range(3):
        frame[row, (axis + row) % 3] = 1.0
    return frame


@inner
def frame_of(nx: float, ny: float, nz: float) -> FloatArray:
    """Rows: the unit vector n and two that complete it to a right-handed orthonormal frame."""
    frame = np.empty((3, 3))
    frame[0, 0], frame[0, 1], frame[0, 2] = nx, ny, nz
    ax, ay, az = abs(nx), abs(ny), abs(nz)
    if ax <= ay and ax <= az:
        ux, uy, uz = 0.0, nz, -ny
    elif ay <= az:
        ux, uy, uz = -nz, 0.0, nx
    else:
        ux, uy, uz = ny, -nx, 0.0
    length = math.sqrt(ux * ux + uy * uy + uz * uz)
    ux, uy, uz = ux / length, uy / length, uz / length
    frame[1, 0], frame[1, 1], frame[1, 2] = ux, uy, uz
    frame[2, 0], frame[2, 1], frame[2, 2] = ny * uz - nz * uy, nz * ux - nx * uz, nx * uy - ny * ux
    return frame


@inner
def _choose_frame(points: FloatArray, start: int, stop: int) -> tuple[FloatArray, float, float]:
    """(frame whose first row is the slicing direction, squared radius beyond which nothing counts, diameter)."""
    wide, axis, far2 = 0.0, 0, 0.0
    for d in range(3):
        low, high = np.inf, -np.inf
        for i in range(start, stop):
            low, high = min(low, points[i, d]), max(high, points[i, d])
        if high - low > wide:
            wide, axis = high - low, d
    for i in range(start, stop):
        far2 = max(far2, points[i, 0] ** 2 + points[i, 1] ** 2 + points[i, 2] ** 2)
    if far2 * wide * wide <= 256.0:
        return _axis_frame(axis), np.inf, wide
    x, y, z = nearest_in_hull(points, start, stop)
    distance2 = x * x + y * y + z * z
    radius2 = distance2 + _DROP
    if distance2 <= 2.0:
        return _axis_frame(axis), radius2, wide
    distance = math.sqrt(distance2)
    nx, ny, nz = x / distance, y / distance, z / distance
    extent, apart, tx, ty, tz = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(start, stop):
        reach = points[i, 0] * nx + points[i, 1] * ny + points[i, 2] * nz
        extent = max(extent, reach - distance)
        ux, uy, uz = points[i, 0] - reach * nx, points[i, 1] - reach * ny, points[i, 2] - reach * nz
        square = ux * ux + uy * uy + uz * uz
        if square > apart:
            apart, tx, ty, tz = square, ux, uy, uz
    if min(extent, _DROP / distance) > 1e-3 * min(wide, 10.0) or apart == 0.0:
        return frame_of(nx, ny, nz), radius2, wide
    apart = math.sqrt(apart)
    return frame_of(tx / apart, ty / apart, tz / apart), radius2, wide


@inner
def hull_of_crossings(
    local: FloatArray,
    below: float,
    above: float,
    pairs: IntArray,
    crossings: FloatArray,
    chain: IntArray,
    noise: float,
) -> int:
    """Corners of the slice half way between two consecutive levels, counter-clockwise; returns how many.

    On return chain[:count] indexes rows of `pairs`: the segments whose crossings are the corners. A corner closer
    than `noise` (the rounding of crossings) to the chord of its neighbours comes from a diagonal of a face and is
    left out: it would not keep its place along the side at other levels.
    """
    level = 0.5 * (below + above)
    count = 0
    for i in range(local.shape[0]):
        if local[i, 0] > below:
            continue
        for j in range(local.shape[0]):
            if local[j, 0] < above:
                continue
            t = (level - local[i, 0]) / (local[j, 0] - local[i, 0])
            pairs[count, 0], pairs[count, 1] = i, j
            crossings[count, 0] = local[i, 1] + t * (local[j, 1] - local[i, 1])
            crossings[count, 1] = local[i, 2] + t * (local[j, 2] - local[i, 2])
            count += 1
    # Lexicographic order by insertion: there are few crossings.
    order = np.empty(count, dtype=np.int64)
    for k in range(count):
        x, y, place = crossings[k, 0], crossings[k, 1], k
        while place > 0:
            before = order[place - 1]
            if crossings[before, 0] < x or (crossings[before, 0] == x and crossings[before, 1] <= y):
                break
            order[place] = before
            place -= 1
        order[place] = k
    size, floor = 0, 0
    for sweep in range(2):
        floor = size
        for k in range(count):
            entry = order[k] if sweep == 0 else order[count - 1 - k]
            while size >= floor + 2:
                a, b = chain[size - 2], chain[size - 1]
                turn = orientation_exact(
                    crossings[a, 0],
                    crossings[a, 1],
                    crossings[b, 0],
                    crossings[b, 1],
                    crossings[entry, 0],
                    crossings[entry, 1],
                )
                if turn > 0.0:
                    break
                size -= 1
            chain[size] = entry
            size += 1
        size -= 1  # the last point of a sweep is the first of the next
    # The hull is exact so far. Only now drop what rounding put outside a straight side: doing it during the sweep would
    # drop true corners of sides that are vertical in this frame, whose crossings come in no particular order.
    k, kept = 0, 0
    while size > 2 and kept < size:
        a, b, c = chain[(k + size - 1) % size], chain[k], chain[(k + 1) % size]
        dx, dy = crossings[c, 0] - crossings[a, 0], crossings[c, 1] - crossings[a, 1]
        ex, ey = crossings[b, 0] - crossings[a, 0], crossings[b, 1] - crossings[a, 1]
        if dx * ey - dy * ex >= -noise * math.sqrt(dx * dx + dy * dy):
            for i in range(k, size - 1):
                chain[i] = chain[i + 1]
            size -= 1
            k = (k + size - 1) % size if size > 0 else 0
            kept = 0
        else:
            k = (k + 1) % size
            kept += 1
    return size


@inner
def ends_of_corners(
    local: FloatArray, pairs: IntArray, chain: IntArray, count: int, level: float, corners: FloatArray
) -> None:
    """Positions of the corners at one level."""
    for k in range(count):
        i, j = pairs[chain[k], 0], pairs[chain[k], 1]
        t = (level - local[i, 0]) / (local[j, 0] - local[i, 0])
        # From the nearer end, so that a corner that has reached a vertex is that vertex.
        if t <= 0.5:
            corners[k, 0] = local[i, 1] + t * (local[j, 1] - local[i, 1])
            corners[k, 1] = local[i, 2] + t * (local[j, 2] - local[i, 2])
        else:
            t = (local[j, 0] - level) / (local[j, 0] - local[i, 0])
            corners[k, 0] = local[j, 1] + t * (local[i, 1] - local[j, 1])
            corners[k, 1] = local[j, 2] + t * (local[i, 2] - local[j, 2])


@inner
def _segment_nearest2(px: float, py: float, qx: float, qy: float) -> tuple[float, float]:
    """(squared distance of the segment from the origin, parameter of the nearest point)."""
    dx, dy = qx - px, qy - py
    length2 = dx * dx + dy * dy
    t = 0.0
    if length2 > 0.0:
        t = min(1.0, max(0.0, -(px * dx + py * dy) / length2))
    x, y = px + t * dx, py + t * dy
    return x * x + y * y, t


@inner
def piece_rule(
    s: float, ds: float, ox: float, oy: float, begin: FloatArray, end: FloatArray, count: int, radius2: float
) -> int:
    """Gauss rule for the piece of a panel with corners `begin` at s and `end` at s + ds.

    `_NO_RULE` asks for a split; -1 says that the piece lies outside the disc of squared radius `radius2`. Corners
    count while they are inside the disc; sides count with their normal motion, since a side may pass the origin
    closely while its far ends run away.
    """
    level = s + 0.5 * ds
    slope, half2 = 0.5 * abs(level * ds), 0.25 * ds * ds
    nearest_level = 0.0 if s * (s + ds) <= 0.0 else min(abs(s), abs(s + ds))
    rest2 = radius2 - nearest_level * nearest_level
    if rest2 <= 0.0:
        return -1
    inside, met = True, False
    for k in range(count):
        following = k + 1 if k + 1 < count else 0
        bx, by = begin[k, 0] + ox, begin[k, 1] + oy
        ex, ey = end[k, 0] + ox, end[k, 1] + oy
        mx, my, dx, dy = 0.5 * (bx + ex), 0.5 * (by + ey), ex - bx, ey - by
        near2 = _segment_nearest2(bx, by, ex, ey)[0]
        if near2 <= rest2:
            met = True
            slope = max(slope, 0.5 * abs(level * ds + mx * dx + my * dy))
            half2 = max(half2, 0.25 * (ds * ds + dx * dx + dy * dy))
        px, py = begin[following, 0] + ox, begin[following, 1] + oy
        qx, qy = end[following, 0] + ox, end[following, 1] + oy
        nx, ny = 0.5 * (px + qx), 0.5 * (py + qy)
        if mx * ny - my * nx < 0.0:
            inside = False
        side_near2, t = _segment_nearest2(mx, my, nx, ny)
        tx, ty = nx - mx, ny - my
        length = math.sqrt(tx * tx + ty * ty)
        if length > 0.0:
            # Motion of the side across its own direction, at its nearest point.
            motion = ((dx + t * (qx - px - dx)) * ty - (dy + t * (qy - py - dy)) * tx) / length
            if math.sqrt(side_near2) - 0.5 * abs(motion) <= math.sqrt(rest2):
                met = True
                offset = (mx * ty - my * tx) / length
                slope = max(slope, 0.5 * abs(level * ds + offset * motion))
                half2 = max(half2, 0.25 * (ds * ds + motion * motion))
    if not met and not inside:
        return -1
    for rule in range(_NO_RULE):
        for j in range(STRIP_LINEAR.shape[1]):
            if slope * STRIP_LINEAR[rule, j] + half2 * STRIP_QUADRATIC[rule, j] <= 1.0:
                return rule
    return _NO_RULE


# --- the quadrature --------------------------------------------------------------------------------------------


@inner
def _thinness(polygon: FloatArray, count: int) -> float:
    """perimeter / area of a slice (relative change of its area per unit motion of its sides)."""
    area2, perimeter = 0.0, 0.0
    for k in range(count):
        following = k + 1 if k + 1 < count else 0
        dx, dy = polygon[following, 0] - polygon[k, 0], polygon[following, 1] - polygon[k, 1]
        perimeter += math.sqrt(dx * dx + dy * dy)
        if k > 0 and following > 0:
            ax, ay = polygon[k, 0] - polygon[0, 0], polygon[k, 1] - polygon[0, 1]
            area2 += ax * dy - ay * dx
    if area2 <= 0.0:
        return 0.0 if perimeter == 0.0 else np.inf
    return 2.0 * perimeter / area2


@inner
def piece_sum(
    s: float,
    ds: float,
    ox: float,
    oy: float,
    begin: FloatArray,
    end: FloatArray,
    count: int,
    rule: int,
    rounding: float,
    moments: Wanted,
    polygon: FloatArray,
    buffer: FloatArray,
    out: FloatArray,
) -> tuple[float, float]:
    """Integrate one piece by one rule into `out` (set, not added); returns (quadrature error, rounding error).

    `rounding` is the absolute uncertainty of the corners.
    """
    for k in range(_MOMENTS):
        out[k] = 0.0
    error, size = 0.0, 0.0
    first = count - count  # a plain 0 would compile the polygon kernels once more, for a literal argument
    tail0, tail1, tail2 = 0.0, 0.0, 0.0
    for i in range(RULE_START[rule], RULE_START[rule + 1]):
        t = 0.5 + 0.5 * RULE_NODES[i]
        level = s + t * ds
        for k in range(count):
            polygon[k, 0] = begin[k, 0] + t * (end[k, 0] - begin[k, 0])
            polygon[k, 1] = begin[k, 1] + t * (end[k, 1] - begin[k, 1])
        density = normal_pdf(level)
        weight = 0.5 * ds * RULE_WEIGHTS[i] * density
        mass, bound, x, y, xx, xy, yy = polygon_kernel(polygon, first, count, ox, oy, moments, buffer)
        out[0] += weight * mass
        if moments is not None:
            out[1] += weight * level * mass
            out[2] += weight * x
            out[3] += weight * y
            out[4] += weight * level * level * mass
            out[5] += weight * level * x
            out[6] += weight * level * y
            out[7] += weight * xx
            out[8] += weight * xy
            out[9] += weight * yy
        if mass > 0.0:
            error += weight * (bound + mass * min(1.0, rounding * _thinness(polygon, count)))
        value = density * mass
        size = max(size, value)
        tail0 += _TAIL[0, i] * value
        tail1 += _TAIL[1, i] * value
        tail2 += _TAIL[2, i] * value
    # Legendre coefficients fall like rho^-k and the error of n nodes like rho^-2n: the square of the last ones.
    last = max(abs(tail0), abs(tail1), abs(tail2))
    quadrature = 2.0 * ds * last * last / size if size > 0.0 else 0.0
    return quadrature, error


@inner
def polyhedron_kernel(points: FloatArray, start: int, stop: int, moments: Wanted, out: FloatArray) -> float:
    """Mass and moments of the hull of points[start:stop] into out (10,) = 1, x, y, z, xx, xy, xz, yy, yz, zz.

    Returns an estimate of the error of the mass. Without `moments` only out[0] is meaningful.
    """
    for k in range(_MOMENTS):
        out[k] = 0.0
    size = stop - start
    if size < 4:
        return 0.0
    frame, radius2, wide = _choose_frame(points, start, stop)
    if not wide > 0.0:
        return 0.0
    # Positions relative to the nearest vertex if the cell is small against its distance; see polygon.slices_kernel.
    near2, nearest = np.inf, start
    for i in range(start, stop):
        square = points[i, 0] ** 2 + points[i, 1] ** 2 + points[i, 2] ** 2
        if square < near2:
            near2, nearest = square, i
    reference = np.zeros(3)
    if near2 > 3.0 * wide * wide:
        for d in range(3):
            reference[d] = points[nearest, d]
    base = np.zeros(3)
    local = np.zeros((size, 3))
    for row in range(3):
        for d in range(3):
            base[row] += frame[row, d] * reference[d]
            for i in range(size):
                local[i, row] += frame[row, d] * (points[start + i, d] - reference[d])
    ox, oy = base[1], base[2]
    levels = np.empty(size)
    for i in range(size):
        place = i
        while place > 0 and levels[place - 1] > local[i, 0]:
            levels[place] = levels[place - 1]
            place -= 1
        levels[place] = local[i, 0]
    capacity = size * size // 4 + size + 1
    pairs = np.empty((capacity, 2), dtype=np.int64)
    crossings = np.empty((capacity, 2))
    chain = np.empty(2 * capacity + 2, dtype=np.int64)
    low, high = np.empty((capacity, 2)), np.empty((capacity, 2))
    begin, end = np.empty((capacity, 2)), np.empty((capacity, 2))
    polygon, buffer = np.empty((capacity, 2)), np.empty(WORKSPACE)
    part, total = np.zeros(_MOMENTS), np.zeros(_MOMENTS)
    rounding = 2.0 * EPS * min(wide, 100.0)
    error = 0.0
    for panel in range(size - 1):
        below, above = levels[panel], levels[panel + 1]
        ds = above - below
        if not ds > 0.0:
            continue
        count = hull_of_crossings(local, below, above, pairs, crossings, chain, 64.0 * EPS * wide)
        if count < 3:
            continue
        ends_of_corners(local, pairs, chain, count, below, low)
        ends_of_corners(local, pairs, chain, count, above, high)
        done, step = 0.0, 1.0
        while done < 1.0:
            step = min(step, 1.0 - done)
            while True:
                rest = 1.0 - (done + step)
                for k in range(count):
                    for d in range(2):
                        begin[k, d] = low[k, d] * (1.0 - done) + high[k, d] * done
                        end[k, d] = low[k, d] * max(rest, 0.0) + high[k, d] * (1.0 - max(rest, 0.0))
                s = base[0] + (below + done * ds)
                rule = piece_rule(s, step * ds, ox, oy, begin, end, count, radius2)
                quadrature, rounded = 0.0, 0.0
                for k in range(_MOMENTS):
                    part[k] = 0.0
                if rule < 0:
                    break
                short = step <= _SHORTEST * min(1.0, 1.0 / ds)
                if rule == _NO_RULE and short:
                    rule -= 1
                if rule < _NO_RULE:
                    quadrature, rounded = piece_sum(
                        s, step * ds, ox, oy, begin, end, count, rule, rounding, moments, polygon, buffer, part
                    )
                    if short or quadrature <= _TOLERANCE * max(part[0], total[0]):
                        break
                step *= 0.5
            for k in range(_MOMENTS):
                total[k] += part[k]
            error += quadrature + rounded
            done += step
            step *= 2.0
    out[0] = total[0]
    if moments is not None:
        _rotate_moments(frame, total, out)
    return error


@inner
def _rotate_moments(frame: FloatArray, total: FloatArray, out: FloatArray) -> None:
    """Moments in the slicing frame back to the given coordinates."""
    second = np.empty((3, 3))
    second[0, 0], second[1, 1], second[2, 2] = total[4], total[7], total[9]
    second[0, 1] = second[1, 0] = total[5]
    second[0, 2] = second[2, 0] = total[6]
    second[1, 2] = second[2, 1] = total[8]
    place = 4
    for i in range(3):
        for row in range(3):
            out[1 + i] += frame[row, i] * total[1 + row]
        for j in range(i, 3):
            for row in range(3):
                for col in range(3):
                    out[place] += frame[row, i] * second[row, col] * frame[col, j]
            place += 1


# --- vertices from rows ----------------------------------------------------------------------------------------


# --- public ----------------------------------------------------------------------------------------------------


@kernel
def _batch_loop(points: FloatArray, offsets: IntArray, moments: Wanted, out: FloatArray, error: FloatArray) -> None:
    for i in range(error.size):
        error[i] = polyhedron_kernel(points, offsets[i], offsets[i + 1], moments, out[i])


def polyhedra_mass(vertices: Any, offsets: Any) -> tuple[FloatArray, FloatArray]:
    """P(u in P_i) for u ~ N(0, I_3) and bounded convex polytopes P_i given by their vertices.

    vertices: (V, 3), in any order within a polytope (interior and repeated points do no harm). offsets: (n + 1,),
    polytope i is the hull of vertices[offsets[i]:offsets[i + 1]]. Returns (mass, error), each (n,): `error`
    estimates the error of `mass` (quadrature, slices, rounding of thin cells). Relative accuracy 1e-9 or better down to
    1e-100 for cells thicker than 1e-6 of their diameter. Cost: 0.1 to 1 milliseconds per cell.
    """
    points, starts = checked_vertices(vertices, offsets, "polytope", ("x", "y", "z"), far=1e6)
    out, error = np.empty((starts.size - 1, _MOMENTS)), np.empty(starts.size - 1)
    _batch_loop(points, starts, None, out, error)
    return out[:, 0].copy(), error


def polyhedra_moments(vertices: Any, offsets: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mass (n,), E[u 1] (n, 3) and E[u u' 1] (n, 3, 3) of bounded convex polytopes; layout as `polyhedra_mass`."""
    points, starts = checked_vertices(vertices, offsets, "polytope", ("x", "y", "z"), far=1e6)
    out, error = np.empty((starts.size - 1, _MOMENTS)), np.empty(starts.size - 1)
    _batch_loop(points, starts, True, out, error)
    second = out[:, [4, 5, 6, 5, 7, 8, 6, 8, 9]].reshape(-1, 3, 3)
    return out[:, 0].copy(), out[:, 1:4].copy(), second
