"""Truncated normal draws for LANES points side by side.

Everything the points of one block need lives in the rows of one array `room` of shape (ROOM, LANES), at fixed places:
the compiler then knows that they do not overlap and uses vector instructions without guards. The functions are
written without branches and without calls to the system's mathematics library; the few lanes that need another
formula (narrow or far intervals) are redone one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from reluscope._kernels import kernel
from reluscope.measure.polytope.tilt import LANES, NARROW, draw, fast_exp, fast_log, fast_tail, log_interval
from reluscope.measure.simd import BLOCK, load_vector, spread_vector, store_vector, vector_row

LOW, HIGH, CENTRE, LEFT, RIGHT, X, PART, LOG_PART, V = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Interval of the coordinate, guided mean, interval and place in units of a family, its mass (and log), uniforms."""

TILTED_MASS, GUIDED_MASS, TILTED_LOG, GUIDED_LOG, ALIVE = 9, 10, 11, 12, 13
"""The ratio φ/q of each family, as a product and the logarithm of another factor; 0 in ALIVE: an empty interval."""

STATE = TILTED_MASS
STATES = 5
KEPT = 14
"""From here on a copy of the five rows of the state."""

WEIGHT, CONTROL = 19, 20
ROOM = 21

_FAR = 30.0
_SMALL = 1e-90
_VECTORS = LANES // BLOCK


def _combine(typing: Any, out: Any, place: Any, weights: Any, row: Any, values: Any, count: Any) -> Any:
    """out[place] += sum over q < count of weights[row, q] * values[q], on rows of LANES numbers."""
    signature = types.void(out, types.int64, weights, types.int64, values, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        target = vector_row(context, builder, sig.args[0], args[0], args[1])
        factors = vector_row(context, builder, sig.args[2], args[2], args[3])
        source = vector_row(context, builder, sig.args[4], args[4], ir.IntType(64)(0))
        places = [ir.IntType(64)(i) for i in range(_VECTORS)]
        sums = [cgutils.alloca_once_value(builder, load_vector(builder, target, i)) for i in places]
        with cgutils.for_range(builder, args[5]) as loop:
            factor = spread_vector(builder, builder.load(builder.gep(factors, [loop.index])))
            start = builder.gep(source, [builder.mul(loop.index, ir.IntType(64)(LANES))])
            for i, total in zip(places, sums, strict=True):
                part = builder.fmul(load_vector(builder, start, i), factor)
                builder.store(builder.fadd(builder.load(total), part), total)
        for i, total in zip(places, sums, strict=True):
            store_vector(builder, builder.load(total), target, i)
        return context.get_dummy_value()

    return signature, generate


def _plain_combine(out: Any, place: int, weights: Any, row: int, values: Any, count: int) -> None:
    for q in range(count):
        out[place] += weights[row, q] * values[q]


combine: Any = _plain_combine if config.DISABLE_JIT else intrinsic(_combine)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def quick_quantile(p: float) -> float:
    """-Φ⁻¹(p) >= 0 for 1e-300 <= p <= 1/2, relative error 1e-7 (Wichura 1988, the short formula of AS 241).

    Enough for placing draws: the error moves a draw, not the mass of its interval.
    """
    q = 0.5 - p
    r = 0.180625 - q * q
    top = (3.3871327179 + r * 50.434271938) + (159.29113202 + r * 59.10937472) * (r * r)
    low = (1.0 + r * 17.895169469) + (78.757757664 + r * 67.1875636) * (r * r)
    middle = q * top / low
    root = np.sqrt(-fast_log(p))
    near = root <= 5.0
    r = root - (1.6 if near else 5.0)
    c0 = 1.4234372777 if near else 6.657905115
    c1 = 2.75681539 if near else 3.081226386
    c2 = 1.3067284816 if near else 0.42868294337
    c3 = 0.17023821103 if near else 0.017337203997
    d1 = 0.7370016425 if near else 0.24197894225
    d2 = 0.12021132975 if near else 0.012258202635
    tail = ((c0 + r * c1) + (c2 + r * c3) * (r * r)) / (1.0 + r * (d1 + r * d2))
    return middle if q <= 0.425 else tail


@kernel
def draw_lanes(room: Any) -> bool:
    """X = the V-quantile of the standard normal law truncated to [LEFT, RIGHT], PART = its mass Φ(RIGHT) - Φ(LEFT).

    True if some interval was odd (narrow or far out): its PART is 1, and LOG_PART holds the logarithm.
    """
    for w in range(LANES):
        mirrored = room[LEFT, w] + room[RIGHT, w] < 0.0
        near = -room[RIGHT, w] if mirrored else room[LEFT, w]
        far = -room[LEFT, w] if mirrored else room[RIGHT, w]
        other = 1.0 - room[V, w]
        share = other if mirrored else room[V, w]
        near = near if near > -37.0 else -37.0
        far = far if far < 37.0 else 37.0
        size = abs(near)
        size = size if size < 37.0 else 37.0
        tail_near = fast_tail(size)
        tail_far = fast_tail(far)
        rest_near = 1.0 - tail_near
        head = rest_near if near < 0.0 else tail_near
        behind = tail_near if near < 0.0 else rest_near
        inside = head - tail_far
        reach = far if far > 1.0 else 1.0
        odd = ((far - near) * reach < NARROW) | (near > _FAR)
        above = tail_far + (1.0 - share) * inside
        below = behind + share * inside
        right = above < below
        p = above if right else below
        p = p if p > 1e-300 else 1e-300
        p = p if p < 0.5 else 0.5
        room[X, w] = p if right == mirrored else -p  # the sign waits here: minus for the right-hand side
        room[PART, w] = 0.0 if odd else inside
    for w in range(LANES):
        size = quick_quantile(abs(room[X, w]))
        place = size if room[X, w] < 0.0 else -size
        place = place if place > room[LEFT, w] else room[LEFT, w]
        room[X, w] = place if place < room[RIGHT, w] else room[RIGHT, w]
    return _redraw(room)


@kernel
def _least(room: Any, row: int) -> float:
    least = room[row, 0]
    for w in range(1, LANES):
        least = min(least, room[row, w])
    return least


@kernel
def _redraw(room: Any) -> bool:
    if _least(room, PART) > 0.0:
        return False
    for w in range(LANES):
        room[LOG_PART, w] = 0.0
        if not room[PART, w] > 0.0:
            room[X, w], room[LOG_PART, w] = draw(room[V, w], room[LEFT, w], room[RIGHT, w])
            room[PART, w] = 1.0
    return True


@kernel
def draw_above_lanes(room: Any) -> bool:
    """`draw_lanes` for intervals [LEFT, inf): RIGHT must hold inf."""
    for w in range(LANES):
        near = room[LEFT, w]
        size = abs(near)
        size = size if size < 37.0 else 37.0
        tail = fast_tail(size)
        rest = 1.0 - tail
        inside = rest if near < 0.0 else tail
        above = (1.0 - room[V, w]) * inside
        below = 1.0 - above
        right = above < 0.5
        p = above if right else below
        p = p if p > 1e-300 else 1e-300
        room[X, w] = -p if right else p
        room[PART, w] = 0.0 if near > _FAR else inside
    for w in range(LANES):
        size = quick_quantile(abs(room[X, w]))
        place = size if room[X, w] < 0.0 else -size
        room[X, w] = place if place > room[LEFT, w] else room[LEFT, w]
    return _redraw(room)


@kernel
def interval_lanes(room: Any) -> bool:
    """PART = Φ(RIGHT) - Φ(LEFT), LEFT < RIGHT; True if some are odd, as in `draw_lanes`."""
    for w in range(LANES):
        mirrored = room[LEFT, w] + room[RIGHT, w] < 0.0
        near = -room[RIGHT, w] if mirrored else room[LEFT, w]
        far = -room[LEFT, w] if mirrored else room[RIGHT, w]
        near = near if near > -37.0 else -37.0
        far = far if far < 37.0 else 37.0
        size = abs(near)
        size = size if size < 37.0 else 37.0
        tail_near = fast_tail(size)
        inside = (1.0 - tail_near if near < 0.0 else tail_near) - fast_tail(far)
        reach = far if far > 1.0 else 1.0
        odd = ((far - near) * reach < NARROW) | (near > _FAR)
        room[PART, w] = 0.0 if odd else inside
    return _remeasure(room)


@kernel
def _remeasure(room: Any) -> bool:
    if _least(room, PART) > 0.0:
        return False
    for w in range(LANES):
        room[LOG_PART, w] = 0.0
        if not room[PART, w] > 0.0:
            room[LOG_PART, w] = log_interval(room[LEFT, w], room[RIGHT, w])
            room[PART, w] = 1.0
    return True


@kernel
def interval_above_lanes(room: Any) -> bool:
    """`interval_lanes` for intervals [LEFT, inf): RIGHT must hold inf."""
    for w in range(LANES):
        near = room[LEFT, w]
        size = abs(near)
        size = size if size < 37.0 else 37.0
        tail = fast_tail(size)
        inside = 1.0 - tail if near < 0.0 else tail
        room[PART, w] = 0.0 if near > _FAR else inside
    return _remeasure(room)


@kernel
def tighten(lo: float, hi: float, entry: float, along: Any, row: int, room: Any) -> None:
    """Cut the intervals [LOW, HIGH] of a coordinate down to lo <= along[row] + entry y <= hi, entry > 0."""
    inverse = 1.0 / entry
    if hi < np.inf:
        for w in range(LANES):
            bound = (hi - along[row, w]) * inverse
            room[HIGH, w] = bound if bound < room[HIGH, w] else room[HIGH, w]
    if lo > -np.inf:
        for w in range(LANES):
            bound = (lo - along[row, w]) * inverse
            room[LOW, w] = bound if bound > room[LOW, w] else room[LOW, w]


@kernel
def widest(room: Any) -> None:
    """Start a coordinate with the whole line."""
    for w in range(LANES):
        room[LOW, w] = -np.inf
        room[HIGH, w] = np.inf


@kernel
def bury(room: Any) -> None:
    """Lanes whose interval is empty die; the dead walk on in [-1, 1], but count for nothing."""
    for w in range(LANES):
        life = room[ALIVE, w] if room[LOW, w] < room[HIGH, w] else 0.0
        room[LOW, w] = room[LOW, w] if life > 0.0 else -1.0
        room[HIGH, w] = room[HIGH, w] if life > 0.0 else 1.0
        room[ALIVE, w] = life


@kernel
def _count_mass(room: Any, product: int, total: int, odd: bool) -> None:
    """Multiply the living lanes' products by PART; where they get small, turn them into logarithms."""
    for w in range(LANES):
        room[product, w] *= room[PART, w] if room[ALIVE, w] > 0.0 else 1.0
    if odd:
        for w in range(LANES):
            room[total, w] += room[ALIVE, w] * room[LOG_PART, w]
    if _least(room, product) < _SMALL:
        for w in range(LANES):
            room[total, w] += fast_log(room[product, w])
            room[product, w] = 1.0


@kernel
def count_tilted(room: Any, odd: bool) -> None:
    """Take PART (and LOG_PART if odd) into the ratio of the tilted family."""
    _count_mass(room, TILTED_MASS, TILTED_LOG, odd)


@kernel
def count_guided(room: Any, odd: bool) -> None:
    """Take PART (and LOG_PART if odd) into the ratio of the guided family."""
    _count_mass(room, GUIDED_MASS, GUIDED_LOG, odd)


@kernel
def step(k: int, side: int, move: float, sharp: float, guided: bool, both: bool, y: Any, room: Any) -> None:
    """Draw coordinate k of LANES points in [LOW, HIGH] at the uniforms V, from one family; y[k] and the state follow.

    `side` is 1 if only HIGH is finite, 2 if only LOW is, else 3. The guided family is N(CENTRE, 1/sharp), the
    tilted N(move, 1), both truncated. Only the ratio of the family drawn from is kept unless `both`.
    """
    root = np.sqrt(sharp)
    shrink = 1.0 / root
    offset = np.log(root)
    sign = -1.0 if side == 1 else 1.0
    if side == 3:
        bury(room)
    if side == 1:
        for w in range(LANES):
            room[V, w] = 1.0 - room[V, w]
    if guided or both:
        if side == 3:
            for w in range(LANES):
                room[LEFT, w] = (room[LOW, w] - room[CENTRE, w]) * root
                room[RIGHT, w] = (room[HIGH, w] - room[CENTRE, w]) * root
        else:
            for w in range(LANES):
                end = -room[HIGH, w] if side == 1 else room[LOW, w]
                room[LEFT, w] = (end - sign * room[CENTRE, w]) * root
                room[RIGHT, w] = np.inf
        if guided:
            odd = draw_lanes(room) if side == 3 else draw_above_lanes(room)
            for w in range(LANES):
                place = room[CENTRE, w] + sign * room[X, w] * shrink
                place = place if place > room[LOW, w] else room[LOW, w]
                place = place if place < room[HIGH, w] else room[HIGH, w]
                y[k, w] = place
        else:
            odd = interval_lanes(room) if side == 3 else interval_above_lanes(room)
        count_guided(room, odd)
    if both or not guided:
        if side == 3:
            for w in range(LANES):
                room[LEFT, w] = room[LOW, w] - move
                room[RIGHT, w] = room[HIGH, w] - move
        else:
            for w in range(LANES):
                end = -room[HIGH, w] if side == 1 else room[LOW, w]
                room[LEFT, w] = end - sign * move
                room[RIGHT, w] = np.inf
        if not guided:
            odd = draw_lanes(room) if side == 3 else draw_above_lanes(room)
            for w in range(LANES):
                place = move + sign * room[X, w]
                place = place if place > room[LOW, w] else room[LOW, w]
                place = place if place < room[HIGH, w] else room[HIGH, w]
                y[k, w] = place
        else:
            odd = interval_lanes(room) if side == 3 else interval_above_lanes(room)
        count_tilted(room, odd)
        for w in range(LANES):
            room[TILTED_LOG, w] += room[ALIVE, w] * (move * (0.5 * move - y[k, w]))
    if guided or both:
        for w in range(LANES):
            scaled = (y[k, w] - room[CENTRE, w]) * root
            room[GUIDED_LOG, w] += room[ALIVE, w] * (0.5 * (scaled * scaled - y[k, w] * y[k, w]) - offset)


@kernel
def begin(room: Any) -> None:
    """A new block of points: all alive, ratios 1."""
    for w in range(LANES):
        room[TILTED_MASS, w] = 1.0
        room[GUIDED_MASS, w] = 1.0
        room[TILTED_LOG, w] = 0.0
        room[GUIDED_LOG, w] = 0.0
        room[ALIVE, w] = 1.0


@kernel
def keep(room: Any) -> None:
    """Set the state aside before branching."""
    for row in range(STATES):
        for w in range(LANES):
            room[KEPT + row, w] = room[STATE + row, w]


@kernel
def restore(room: Any) -> None:
    """Back to the state set aside."""
    for row in range(STATES):
        for w in range(LANES):
            room[STATE + row, w] = room[KEPT + row, w]


@kernel
def settle(room: Any) -> None:
    """Turn the products of the state into logarithms."""
    for w in range(LANES):
        room[TILTED_LOG, w] += fast_log(room[TILTED_MASS, w])
        room[GUIDED_LOG, w] += fast_log(room[GUIDED_MASS, w])
        room[TILTED_MASS, w] = 1.0
        room[GUIDED_MASS, w] = 1.0


@kernel
def _small_exp(x: float) -> float:
    x = x if x < 700.0 else 700.0
    x = x if x > -700.0 else -700.0
    return fast_exp(x)


@kernel
def weigh(room: Any, share: float, scale: float) -> float:
    """WEIGHT = e^-scale φ/q (0 for the dead) and CONTROL = q_tilted/q for q = share q_tilted + (1 - share) q_guided.

    Returns the largest weight of the living, so that the caller can change the scale before weights overflow.
    """
    if share >= 1.0:
        for w in range(LANES):
            room[WEIGHT, w] = room[ALIVE, w] * room[TILTED_MASS, w] * _small_exp(room[TILTED_LOG, w] - scale)
            room[CONTROL, w] = 1.0
    else:
        for w in range(LANES):
            # q_guided / q_tilted; it may be anything from 0 to inf
            ratio = _small_exp(room[TILTED_LOG, w] - room[GUIDED_LOG, w]) * (
                room[TILTED_MASS, w] / room[GUIDED_MASS, w]
            )
            inverse = 1.0 / ratio
            first = ratio <= 1.0
            part = ratio if first else 1.0
            other = 1.0 if first else inverse
            factor = 1.0 / (share * other + (1.0 - share) * part)
            total = room[TILTED_LOG, w] if first else room[GUIDED_LOG, w]
            product = room[TILTED_MASS, w] if first else room[GUIDED_MASS, w]
            room[WEIGHT, w] = room[ALIVE, w] * factor * product * _small_exp(total - scale)
            room[CONTROL, w] = factor * other
    most = 0.0
    for w in range(LANES):
        most = max(most, room[WEIGHT, w])
    return most
