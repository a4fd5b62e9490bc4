"""How cells with vertices are split by the units of a layer: the compiled kernels and their buffers.

A hyperplane `h = 0` cuts a cell exactly when `h` has both signs at its vertices. The vertices of the two parts are
those of their side, those on the hyperplane, and one new vertex on each edge from a negative to a positive vertex.
With `F(v)` the facets through `v`, the segment `ab` is an edge iff `F(a) & F(b)` has at least `d - 1` members and no
third vertex lies on all of them; the second half need not be looked at when `a` or `b` lies on exactly `d` facets.
A facet of the cell is a facet of a part iff it has a vertex strictly inside that part's half-space.

The record that these functions serve is `reluscope.cells.vertex.VertexCells`; vertices at infinity are explained there.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt
from numba.extending import intrinsic

from reluscope._check import EPS, FloatArray
from reluscope._kernels import inner, kernel
from reluscope.cells.split import SHALLOW
from reluscope.threads import interruptible, stop_flag

Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.uint8]

RAY_TOLERANCE = 64 * EPS
"""A hyperplane is parallel to a ray when the inner product is at most this share of the normal's size."""
RAY_DOUBT = 2.0**-26
"""Up to this share rounding may have decided that, and `reluscope.cells.doubt` looks. It allows for rays that come from
crossings at angles down to `_LEAN`, and for slopes that layers before have computed (see `inexact_slopes` there)."""
_LEAN = 1e-6
"""The sine of the angle at which a hyperplane crosses an edge to infinity: below it, the new ray is less exact."""
POINT_TOLERANCE = 16 * EPS
"""Rounding of a vertex of the whole space's cells, as a share of the numbers it was made of."""
_THIN = 1e4
"""A part that no vertex takes further from the hyperplane than so many tolerances is thin: rounding may have put its
vertices on wrong facets, and what later units do in it cannot be told from them. In the whole space so are parts with a
vertex where the hyperplane crosses an edge at a shallow angle."""


class Given(NamedTuple):
    """The cells to split."""

    points: FloatArray
    bits: Words
    labels: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    facet_offsets: npt.NDArray[np.int64]
    rays: FloatArray
    scales: FloatArray
    radius: FloatArray
    thin: Flags


class Out(NamedTuple):
    """The children, with room to grow. `x` holds points, and for open cells rays and scales, side by side."""

    x: FloatArray
    bits: Words
    labels: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    facet_offsets: npt.NDArray[np.int64]
    radius: FloatArray
    parent: npt.NDArray[np.int64]
    piece: npt.NDArray[np.uint8]
    thin: Flags

    @classmethod
    def empty(cls, sizes: tuple[int, int, int], wide: int, words: int, m: int) -> Out:
        """Room for some numbers of cells, vertices and facets."""
        cells, vertices, facets = sizes
        return cls(
            np.empty((vertices, wide)),
            np.empty((vertices, words), np.uint64),
            np.empty(facets, np.int32),
            np.zeros(cells + 1, np.int64),
            np.zeros(cells + 1, np.int64),
            np.empty(cells),
            np.empty(cells, np.int64),
            np.empty((cells, m), np.uint8),
            np.empty(cells, np.uint8),
        )

    def take(self, other: Out) -> None:
        """Copy a smaller record into the beginning of this one."""
        mine: tuple[npt.NDArray[Any], ...] = tuple(self)
        theirs: tuple[npt.NDArray[Any], ...] = tuple(other)
        for array, filled in zip(mine, theirs, strict=True):
            array[: len(filled)] = filled

    def first(self, cells: int, vertices: int, facets: int) -> Out:
        """The used part of each array."""
        return Out(
            self.x[:vertices],
            self.bits[:vertices],
            self.labels[:facets],
            self.offsets[: cells + 1],
            self.facet_offsets[: cells + 1],
            self.radius[:cells],
            self.parent[:cells],
            self.piece[:cells],
            self.thin[:cells],
        )


class _Work(NamedTuple):
    """Buffers of the splitting kernel: two cells, a pool of pending sub-cells, their frames."""

    x: FloatArray
    bits: Words
    value: FloatArray
    slope: FloatArray
    lists: npt.NDArray[np.int64]
    words_of: Words
    edges: npt.NDArray[np.int64]
    pool_x: FloatArray
    pool_bits: Words
    item_unit: npt.NDArray[np.int64]
    item_break: npt.NDArray[np.int64]
    piece: npt.NDArray[np.uint8]
    label: npt.NDArray[np.int32]
    used: Words
    frame: npt.NDArray[np.int64]
    frame_far: FloatArray
    coef: FloatArray
    slots: npt.NDArray[np.int64]

    @classmethod
    def empty(cls, room: int, d: int, wide: int, words: int, m: int, steps: int) -> _Work:
        items = m * max(steps, 1)
        return cls(
            np.empty((2, wide, room)),
            np.empty((2, room, words), np.uint64),
            np.empty(room),
            np.empty(room),
            np.empty((4, room), np.int64),
            np.empty(room, np.uint64),
            np.empty((2, room), np.int64),
            np.empty(wide * 8 * room),
            np.empty((8 * room, words), np.uint64),
            np.empty(items, np.int64),
            np.empty(items, np.int64),
            np.empty((items + 2, m), np.uint8),
            np.empty((items + 2, 64 * words), np.int32),
            np.empty((items + 2, words), np.uint64),
            np.empty((items + 2, 4), np.int64),
            np.empty(items + 2),
            np.empty(d),
            np.empty(2, np.int64),
        )


_MOST_EXPECTED = 32.0


class _Expected(threading.local):
    """Cells, vertices and facets that one gives when it is split, by the last batch of this thread: only a guess."""

    each: tuple[float, ...] = (2.0, 4.0, 4.0)


_EXPECTED = _Expected()


def split_cells(
    given: Given, maps: FloatArray, tolerance: FloatArray, breaks: FloatArray, first_label: int
) -> tuple[Out, FloatArray, npt.NDArray[np.int8]]:
    """The children of all cells, the largest `|h_j|` of every unit at the vertices of every cell, shape (n, m), and
    which cells a unit comes near to (see `reluscope.cells.split`).

    Calls the compiled kernel until all cells are done, with larger buffers each time.
    """
    n, d, m = len(given.offsets) - 1, given.points.shape[1], maps.shape[2]
    maps, tolerance = np.require(maps, requirements=("C", "W")), np.ascontiguousarray(tolerance)
    breaks = np.array(breaks)  # one kind of array (writable) means one compilation
    low, high, top = np.empty((n, m)), np.empty((n, m)), np.empty((n, m))
    near = np.zeros(n, np.int8)
    _ranges(given.points, given.rays, given.scales, given.offsets, maps, low, high, top)

    wide = 3 * d if len(given.rays) else d
    room = 64 + 2 * int(np.diff(given.offsets).max(initial=0))
    given_sizes = n, len(given.points), len(given.labels)
    each = _EXPECTED.each
    sizes = (
        int(each[0] * n) + 16,
        int(each[1] * given_sizes[1]) + 64,
        int(each[2] * given_sizes[2]) + 64 * given.bits.shape[1],
    )
    work = _Work.empty(room, d, wide, given.bits.shape[1], m, breaks.shape[1])
    out = Out.empty(sizes, wide, given.bits.shape[1], m)
    state = np.zeros(4, np.int64)  # next cell, and how many children, vertices, facets are there
    while True:
        short_of = interruptible(
            _split, given, maps, tolerance, breaks, low, high, first_label, work, out, state, near, stop_flag()
        )
        if short_of == _DONE:
            break
        words = given.bits.shape[1]
        if short_of == _MORE_OUT:
            used = out.first(*state[1:].tolist())
            # Memory that is never touched costs nothing, copies do: take what the cells so far foretell.
            growth = min(max(2, 3 * n // (2 * max(int(state[0]), 1))), 32)
            sizes = (growth * sizes[0], growth * sizes[1], growth * sizes[2])
            out = Out.empty(sizes, wide, words, m)
            out.take(used)
            continue
        if short_of == _MORE_WORDS:  # a cell got more facets than the words have bits: begin anew
            words += 1
            given = given._replace(bits=widened(given.bits, words))
            out = Out.empty(sizes, wide, words, m)
            state[:] = 0
        else:
            room *= 2
        work = _Work.empty(room, d, wide, words, m, breaks.shape[1])
    made = state[1:].tolist()
    if n:
        _EXPECTED.each = tuple(min(1.3 * a / b, _MOST_EXPECTED) for a, b in zip(made, given_sizes, strict=True))
    return out.first(*made), top, near


def widened(bits: Words, words: int) -> Words:
    """The same sets in more words."""
    if words == bits.shape[1]:
        return bits
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, words - bits.shape[1]))))


# -- compiled ----------------------------------------------------------------------------------------------------

_DONE, _MORE_WORK, _MORE_OUT, _MORE_WORDS = 0, 1, 2, 3


@intrinsic
def _ctpop(typingctx, word):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return nb.types.uint64(nb.types.uint64), generate


if nb.config.DISABLE_JIT:

    def popcount(word: Any) -> Any:
        """Number of members of a word."""
        return int(word).bit_count()
else:

    @inner
    def popcount(word: Any) -> Any:
        """Number of members of a word."""
        return np.int64(_ctpop(word))


ONE = np.uint64(1)
NONE = np.uint64(0)


@inner
def _free_slot(used, words):  # type: ignore[no-untyped-def]
    """The lowest bit that is not in the set, or -1."""
    for w in range(words):
        if ~used[w] != NONE:
            return 64 * w + popcount(((used[w] + ONE) & ~used[w]) - ONE)
    return -1


@inner
def spans_edge(bits, size, a, b):  # type: ignore[no-untyped-def]
    """Whether no third vertex lies on all facets that a and b share."""
    for v in range(size):
        inside = v != a and v != b
        for w in range(bits.shape[1]):
            inside &= bits[a, w] & bits[b, w] & ~bits[v, w] == NONE
        if inside:
            return False
    return True


@kernel
def _ranges(points, rays, scales, offsets, maps, low, high, top):  # type: ignore[no-untyped-def]
    """Least, largest, and largest absolute value (of finite parts) of every unit at the vertices of every cell.

    In open cells the range is wide enough for rounding of the vertices: `_sides` decides what that leaves open.
    """
    n, m, d = len(offsets) - 1, maps.shape[2], points.shape[1]
    here, weight, scale = np.empty(m), np.empty(m), np.empty(d)
    for c in range(n):
        for j in range(m):
            low[c, j], high[c, j] = np.inf, -np.inf
        for v in range(offsets[c], offsets[c + 1]):
            for j in range(m):
                here[j] = maps[c, d, j]
            for q in range(d):
                x = points[v, q]
                for j in range(m):
                    here[j] += maps[c, q, j] * x
            for j in range(m):
                low[c, j], high[c, j] = min(low[c, j], here[j]), max(high[c, j], here[j])
        for j in range(m):
            top[c, j] = max(abs(low[c, j]), abs(high[c, j]))
        if len(rays) == 0:
            continue
        for q in range(d):
            scale[q] = 0.0
            for v in range(offsets[c], offsets[c + 1]):
                scale[q] = max(scale[q], scales[v, q])
        for j in range(m):
            weight[j], blur = 0.0, 0.0
            for q in range(d):
                weight[j] += abs(maps[c, q, j])
                blur += abs(maps[c, q, j]) * scale[q]
            low[c, j] -= POINT_TOLERANCE * blur
            high[c, j] += POINT_TOLERANCE * blur
        for v in range(offsets[c], offsets[c + 1]):
            far = False
            for q in range(d):
                far |= rays[v, q] != 0.0
            if not far:
                continue
            for j in range(m):
                rise = 0.0
                for q in range(d):
                    rise += maps[c, q, j] * rays[v, q]
                if rise > -RAY_DOUBT * weight[j]:
                    high[c, j] = np.inf
                if rise < RAY_DOUBT * weight[j]:
                    low[c, j] = -np.inf


@inner
def _sides(x, size, d, coef, offset, eps, open_, value, slope, lists):  # type: ignore[no-untyped-def]
    """Sort the vertices into `lists`: below, above, on the hyperplane.

    Returns how many are below and above, and whether rounding may have decided.
    """
    for i in range(size):
        value[i] = offset
    for q in range(d):
        factor = coef[q]
        for i in range(size):
            value[i] += factor * x[q, i]
    n_neg, n_pos = 0, 0
    if not open_:
        # No branches: they would be unpredictable.
        for i in range(size):
            lists[0, n_neg] = i
            lists[1, n_pos] = i
            lists[2, i - n_neg - n_pos] = i
            n_neg += value[i] < -eps
            n_pos += value[i] > eps
        return n_neg, n_pos, n_neg + n_pos < size
    weight, doubt = 0.0, False
    for q in range(d):
        weight += abs(coef[q])
    for i in range(size):
        rise, blur, far = 0.0, 0.0, False
        for q in range(d):
            rise += coef[q] * x[d + q, i]
            blur += abs(coef[q]) * x[2 * d + q, i]
            far |= x[d + q, i] != 0.0
        doubt |= far and abs(rise) <= RAY_DOUBT * weight
        if abs(rise) <= RAY_TOLERANCE * weight:
            rise = 0.0
        slope[i] = rise
        sign = rise
        if rise == 0.0 and abs(value[i]) > eps + POINT_TOLERANCE * blur:
            sign = value[i]
        lists[0, n_neg] = i
        lists[1, n_pos] = i
        lists[2, i - n_neg - n_pos] = i
        n_neg += sign < 0.0
        n_pos += sign > 0.0
    return n_neg, n_pos, doubt or n_neg + n_pos < size


@inner
def _find_edges(bits, size, d, lists, n_neg, n_pos, words_of, edges):  # type: ignore[no-untyped-def]
    """All edges from a vertex in `lists[0]` to one in `lists[1]`; their number, or -1 when there is no room."""
    words = bits.shape[1]
    n = 0
    for k in range(n_pos):
        words_of[k] = bits[lists[1, k], 0]
    for i in range(n_neg):
        a = lists[0, i]
        found = 0
        if words == 1:
            mine = bits[a, 0]
            for k in range(n_pos):  # no branch: hits are rare and unpredictable
                lists[3, found] = k
                found += popcount(mine & words_of[k]) >= d - 1
        else:
            for k in range(n_pos):
                shared = 0
                for w in range(words):
                    shared += popcount(bits[a, w] & bits[lists[1, k], w])
                lists[3, found] = k
                found += shared >= d - 1
        if found == 0:
            continue
        if n + found > edges.shape[1]:
            return -1
        on = 0
        for w in range(words):
            on += popcount(bits[a, w])
        for k in range(found):
            b = lists[1, lists[3, k]]
            if on > d:
                other = 0
                for w in range(words):
                    other += popcount(bits[b, w])
                if other > d and not spans_edge(bits, size, a, b):
                    continue
            edges[0, n], edges[1, n] = a, b
            n += 1
    return n


@inner
def _new_vertices(x, d, open_, coef, value, slope, edges, n_edge, to, at):  # type: ignore[no-untyped-def]
    """Where the edges cross the hyperplane, into the columns `at...` of `to`; whether one does at a shallow angle."""
    size2, shallow = 0.0, False
    for q in range(d):
        size2 += coef[q] * coef[q]
    for e in range(n_edge):
        a, b = edges[0, e], edges[1, e]
        if abs(value[a]) > abs(value[b]):
            a, b = b, a  # start at the nearer end: the step is then at most half the edge
        if not open_:
            share = value[a] / (value[a] - value[b])
            length2 = 0.0
            for q in range(d):
                along = x[q, b] - x[q, a]
                length2 += along * along
                to[q, at + e] = x[q, a] + share * along
            shallow |= (value[a] - value[b]) ** 2 <= SHALLOW**2 * size2 * length2
        elif slope[a] == slope[b]:
            share = value[a] / (value[a] - value[b])
            length2 = 0.0
            for q in range(3 * d):
                to[q, at + e] = x[q, a] + share * (x[q, b] - x[q, a])
            for q in range(d):
                length2 += (x[q, b] - x[q, a]) ** 2
            shallow |= (value[a] - value[b]) ** 2 <= SHALLOW**2 * size2 * length2
        else:
            # share = first + second / R: the crossing of an edge that reaches to infinity.
            first = slope[a] / (slope[a] - slope[b])
            second = (value[a] - first * (value[a] - value[b])) / (slope[a] - slope[b])
            longest, length2 = 0.0, 0.0
            for q in range(d):
                length2 += (x[d + q, b] - x[d + q, a]) ** 2
            shallow |= (slope[a] - slope[b]) ** 2 <= _LEAN**2 * size2 * length2
            for q in range(d):
                p, r, s = q, d + q, 2 * d + q
                along = x[r, b] - x[r, a]
                to[p, at + e] = x[p, a] + first * (x[p, b] - x[p, a]) + second * along
                to[r, at + e] = x[r, a] + first * along
                to[s, at + e] = x[s, a] + first * (x[s, b] - x[s, a]) + abs(second * along)
                longest = max(longest, abs(to[r, at + e]))
            if longest < 0.5:  # a ray is zero or reaches the unit cube's surface
                for q in range(d, 2 * d):
                    to[q, at + e] = 0.0
    return shallow


@inner
def _sort_out(x, bits, lists, n_neg, n_pos, n_zero, edges, n_edge, used, slots, low, low_bits, high, high_bits):  # type: ignore[no-untyped-def]
    """Fill the lower part (whose new vertices are there already) and the upper one, `high` by coordinate."""
    wide, words = x.shape[0], bits.shape[1]
    first, second = n_neg + n_zero, n_pos + n_zero
    n_high = second + n_edge
    for q in range(wide):
        for i in range(n_neg):
            low[q, i] = x[q, lists[0, i]]
        for i in range(n_zero):
            low[q, n_neg + i] = x[q, lists[2, i]]
        at = q * n_high
        for i in range(n_pos):
            high[at + i] = x[q, lists[1, i]]
        for i in range(n_zero):
            high[at + n_pos + i] = x[q, lists[2, i]]
        for e in range(n_edge):
            high[at + second + e] = low[q, first + e]
    for w in range(words):
        new_low = ONE << np.uint64(slots[0] & 63) if slots[0] >> 6 == w else NONE
        new_high = ONE << np.uint64(slots[1] & 63) if slots[1] >> 6 == w else NONE
        for i in range(n_neg):
            low_bits[i, w] = bits[lists[0, i], w]
        for i in range(n_pos):
            high_bits[i, w] = bits[lists[1, i], w]
        for i in range(n_zero):
            word = bits[lists[2, i], w]
            low_bits[n_neg + i, w] = word & used[0, w] | new_low
            high_bits[n_pos + i, w] = word & used[1, w] | new_high
        for e in range(n_edge):
            word = bits[edges[0, e], w] & bits[edges[1, e], w]
            low_bits[first + e, w] = word | new_low
            high_bits[second + e, w] = word | new_high
        used[0, w] |= new_low
        used[1, w] |= new_high


@inner
def _store(x, bits, size, used, label, to_x, to_bits, to_label):  # type: ignore[no-untyped-def]
    """Write a finished cell; its facets move to the lowest numbers. Returns how many there are."""
    wide, words = x.shape[0], bits.shape[1]
    facets = 0
    for w in range(words):
        facets += popcount(used[w])
    for i in range(size):
        for w in range(words):
            to_bits[i, w] = bits[i, w]
        for q in range(wide):
            to_x[i, q] = x[q, i]
    hole = 0
    for w in range(words):
        rest = used[w]
        while rest != NONE:
            lowest = rest & (~rest + ONE)
            rest ^= lowest
            f = 64 * w + popcount(lowest - ONE)
            to = f
            if f >= facets:
                while used[hole >> 6] >> np.uint64(hole & 63) & ONE != NONE:
                    hole += 1
                to = hole
                hole += 1
                to_word, to_bit = to >> 6, ONE << np.uint64(to & 63)
                for i in range(size):
                    if to_bits[i, w] & lowest != NONE:
                        to_bits[i, w] ^= lowest
                        to_bits[i, to_word] |= to_bit
            to_label[to] = label[f]
    return facets


@kernel
def _split(  # type: ignore[no-untyped-def]
    given, maps, tolerance, breaks, low, high, first_label, work, out, state, near, stop
):
    """Cut the cells `state[0]...` and append their children to `out`.

    Nothing is allocated here: where a buffer is too small, `state` is left at the last whole cell, and the return value
    says which kind of buffer it was. Ends early, with cells missing, when `stop[0]` is set.
    """
    m, steps = maps.shape[2], breaks.shape[1]
    d, words = given.points.shape[1], given.bits.shape[1]
    open_ = len(given.rays) > 0
    # Numbers of a vertex: point, and for open cells ray and scale. At hand they are stored by coordinate.
    wide, room = work.x.shape[1], work.x.shape[2]
    value, slope, lists, edges = work.value, work.slope, work.lists, work.edges
    item_unit, item_break, piece, label = work.item_unit, work.item_break, work.piece, work.label
    coef, slots = work.coef, work.slots

    for c in range(state[0], len(given.offsets) - 1):
        n_out, v_out, f_out = state[1], state[2], state[3]
        start, size = given.offsets[c], given.offsets[c + 1] - given.offsets[c]
        if size > room:
            return _MORE_WORK
        thin = np.int64(given.thin[c])
        items, close = 0, 2 * thin
        for j in range(m):
            below = 0
            for k in range(steps):
                t = breaks[j, k]
                if high[c, j] <= t + tolerance[c, j]:
                    close |= high[c, j] >= t - tolerance[c, j]
                    break  # below this break point and all later ones
                if low[c, j] >= t - tolerance[c, j]:
                    close |= low[c, j] <= t + tolerance[c, j]
                    below += 1
                else:
                    item_unit[items], item_break[items] = j, k
                    items += 1
            piece[0, j] = below

        hand = 0  # which of the two buffers holds the cell at hand
        for i in range(size):
            for q in range(d):
                work.x[0, q, i] = given.points[start + i, q]
            for w in range(words):
                work.bits[0, i, w] = given.bits[start + i, w]
            if open_:
                for q in range(d):
                    work.x[0, d + q, i] = given.rays[start + i, q]
                    work.x[0, 2 * d + q, i] = given.scales[start + i, q]
        for w in range(words):
            work.used[0, w] = NONE
        first_facet = given.facet_offsets[c]
        for f in range(given.facet_offsets[c + 1] - first_facet):
            label[0, f] = given.labels[first_facet + f]
            work.used[0, f >> 6] |= ONE << np.uint64(f & 63)
        far = given.radius[c] if open_ else 0.0
        # Pending sub-cells wait on a stack: each has a row, from 2 on, of `frame`, `piece`, `label`, `used`.
        frames, pooled, item = 0, 0, 0

        while True:
            if stop[0] != 0:
                return _DONE
            while item < items:
                j, k = item_unit[item], item_break[item]
                item += 1
                for q in range(d):
                    coef[q] = maps[c, q, j]
                n_neg, n_pos, doubt = _sides(
                    work.x[hand],
                    size,
                    d,
                    coef,
                    maps[c, d, j] - breaks[j, k],
                    tolerance[c, j],
                    open_,
                    value,
                    slope,
                    lists,
                )
                close |= doubt
                if n_pos == 0:
                    continue
                if n_neg == 0:
                    piece[0, j] += 1
                    continue
                n_zero = size - n_neg - n_pos
                n_edge = _find_edges(work.bits[hand], size, d, lists, n_neg, n_pos, work.words_of, edges)
                if n_edge < 0:
                    return _MORE_WORK
                n_low, n_high = n_neg + n_zero + n_edge, n_pos + n_zero + n_edge
                lowest, highest = 0.0, 0.0
                for i in range(size):
                    lowest, highest = min(lowest, value[i]), max(highest, value[i])
                if n_zero + n_edge < d:
                    # Only rounding gets here: the common face would have no inner points. Take the larger part.
                    close |= 2
                    if highest > -lowest:
                        piece[0, j] += 1
                    continue
                if max(n_low, n_high) > room or pooled + n_high > len(work.pool_bits):
                    return _MORE_WORK
                for w in range(words):
                    below_, above = NONE, NONE
                    for i in range(n_neg):
                        below_ |= work.bits[hand, lists[0, i], w]
                    for i in range(n_pos):
                        above |= work.bits[hand, lists[1, i], w]
                    work.used[0, w], work.used[1, w] = below_, above
                slots[0], slots[1] = _free_slot(work.used[0], words), _free_slot(work.used[1], words)
                if slots[0] < 0 or slots[1] < 0:
                    return _MORE_WORDS
                if open_:
                    for i in range(size):
                        if slope[i] != 0.0:
                            far = max(far, -value[i] / slope[i])

                # The lower part stays at hand, the upper one is put aside.
                if _new_vertices(
                    work.x[hand], d, open_, coef, value, slope, edges, n_edge, work.x[1 - hand], n_neg + n_zero
                ):
                    close |= 2
                    thin |= open_
                _sort_out(
                    work.x[hand],
                    work.bits[hand],
                    lists,
                    n_neg,
                    n_pos,
                    n_zero,
                    edges,
                    n_edge,
                    work.used,
                    slots,
                    work.x[1 - hand],
                    work.bits[1 - hand],
                    work.pool_x[wide * pooled :],
                    work.pool_bits[pooled:],
                )
                frame = 2 + frames
                for w in range(words):
                    work.used[frame, w] = work.used[1, w]
                for f in range(64 * words):
                    label[frame, f] = label[0, f]
                label[0, slots[0]] = label[frame, slots[1]] = first_label + j * steps + k
                for q in range(m):
                    piece[frame, q] = piece[0, q]
                piece[frame, j] += 1
                work.frame[frame, 0], work.frame[frame, 1], work.frame[frame, 2] = pooled, n_high, item
                if open_:  # a part is not thin that a ray leads away from the hyperplane
                    weight = 0.0
                    for q in range(d):
                        weight += abs(coef[q])
                    for i in range(size):
                        highest = np.inf if slope[i] > _THIN * RAY_TOLERANCE * weight else highest
                        lowest = -np.inf if slope[i] < -_THIN * RAY_TOLERANCE * weight else lowest
                within = _THIN * tolerance[c, j]
                work.frame[frame, 3] = thin | (highest <= within)
                thin |= -lowest <= within
                close |= 2 * (thin | work.frame[frame, 3])
                work.frame_far[frame] = far
                frames += 1
                pooled += n_high
                hand = 1 - hand
                size = n_low

            # All units are decided on the cell at hand: it is a child.
            if v_out + size > len(out.bits) or f_out + 64 * words > len(out.labels) or n_out + 2 > len(out.offsets):
                return _MORE_OUT
            f_out += _store(
                work.x[hand],
                work.bits[hand],
                size,
                work.used[0],
                label[0],
                out.x[v_out:],
                out.bits[v_out:],
                out.labels[f_out:],
            )
            v_out += size
            if open_:
                out.radius[n_out] = far
            out.parent[n_out] = c
            out.thin[n_out] = thin
            for q in range(m):
                out.piece[n_out, q] = piece[0, q]
            n_out += 1
            out.offsets[n_out], out.facet_offsets[n_out] = v_out, f_out
            if frames == 0:
                break

            frames -= 1
            frame = 2 + frames
            pooled, size, item = work.frame[frame, 0], work.frame[frame, 1], work.frame[frame, 2]
            far, thin = work.frame_far[frame], work.frame[frame, 3]
            for q in range(wide):
                at = wide * pooled + q * size
                for i in range(size):
                    work.x[hand, q, i] = work.pool_x[at + i]
            for w in range(words):
                work.used[0, w] = work.used[frame, w]
                for i in range(size):
                    work.bits[hand, i, w] = work.pool_bits[pooled + i, w]
            for f in range(64 * words):
                label[0, f] = label[frame, f]
            for q in range(m):
                piece[0, q] = piece[frame, q]
        near[c] = close
        state[0], state[1], state[2], state[3] = c + 1, n_out, v_out, f_out
    return _DONE
