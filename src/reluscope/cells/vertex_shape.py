"""What cells with vertices look like: the corners of a cube to start from; volumes, ways to infinity, facets' points.

The record that these functions serve is `reluscope.cells.vertex.VertexCells`; the sets of facets are explained there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reluscope._kernels import kernel
from reluscope.cells.vertex_split import NONE, ONE, Words, popcount, spans_edge


def corners(d: int) -> npt.NDArray[np.bool_]:
    """The corners of a cube, shape (2^d, d): whether each coordinate is the upper one."""
    return (np.arange(1 << d)[:, None] >> np.arange(d)) & 1 != 0


def corner_bits(corner: npt.NDArray[np.bool_]) -> Words:
    """The sides through each corner of a cube: lower and upper of each axis in turn."""
    on = np.empty((len(corner), 2 * corner.shape[1]), np.bool_)
    on[:, 0::2], on[:, 1::2] = ~corner, corner
    return pack(on)


def side_labels(d: int) -> npt.NDArray[np.int32]:
    """The labels of the sides of a cube, in the order of `corner_bits`."""
    return (-1 - np.arange(2 * d)).astype(np.int32)


def pack(on: npt.NDArray[np.bool_]) -> Words:
    """Rows of truth values as sets in 64-bit words."""
    words = max(1, -(-on.shape[1] // 64))
    out = np.zeros((len(on), words), np.uint64)
    for f in range(on.shape[1]):
        out[:, f // 64] |= on[:, f].astype(np.uint64) << np.uint64(f % 64)
    return out


# -- compiled ----------------------------------------------------------------------------------------------------


@kernel
def affine_integrals(points, bits, offsets, values, p):  # type: ignore[no-untyped-def]
    """Volume of each cell and the integral of `sum_k g_k^p`, p = 1 or 2, with g affine and `values` at the vertices.

    Far vertices are taken at their finite parts; see `VertexCells.volumes` for the formula. A cell is cut into
    simplices by pulling: its first vertex with the simplices of the facets that miss it, and so on down. All terms are
    positive where the values are.
    """
    n, d, words, m = len(offsets) - 1, points.shape[1], bits.shape[1], values.shape[1]
    most = 1
    for c in range(n):
        most = max(most, offsets[c + 1] - offsets[c])
    factorial = 1.0
    for q in range(d):
        factorial *= q + 1
    out, sums = np.empty(n), np.zeros(n)
    # A chain of faces: level 0 is the cell, level d a vertex. `vertex[level]` lists a face's vertices, its apex first.
    vertex, count = np.empty((d + 1, most), np.int64), np.empty(d + 1, np.int64)
    carriers = np.empty((d + 1, words), np.uint64)  # the facets of the cell that contain the face
    remaining = np.empty((d + 1, words), np.uint64)  # those that meet the face, but not its apex, still to visit
    within, product = np.empty(words, np.uint64), np.empty(d + 1)
    edge = np.empty((d + 1, d))  # the parts of `apex - first apex` orthogonal to those before, at unit length

    for c in range(n):
        root = offsets[c]
        count[0] = offsets[c + 1] - root
        for i in range(count[0]):
            vertex[0, i] = root + i
        product[0] = 1.0
        total = 0.0
        level, entering = 0, True
        while level >= 0:
            if entering:
                entering = False
                apex = vertex[level, 0]
                for w in range(words):
                    all_, any_ = ~NONE, NONE
                    for i in range(count[level]):
                        all_ &= bits[vertex[level, i], w]
                        any_ |= bits[vertex[level, i], w]
                    carriers[level, w], remaining[level, w] = all_, any_ & ~bits[apex, w]
            word = 0
            while word < words and remaining[level, word] == NONE:
                word += 1
            if word == words:
                level -= 1
                continue
            facet = remaining[level, word] & (~remaining[level, word] + ONE)
            remaining[level, word] ^= facet
            # The part of this face in the facet; it is a facet of the face iff no other such part holds it.
            below = level + 1
            found = 0
            for w in range(words):
                within[w] = ~NONE
            for i in range(count[level]):
                v = vertex[level, i]
                if bits[v, word] & facet != NONE:
                    vertex[below, found] = v
                    found += 1
                    for w in range(words):
                        within[w] &= bits[v, w]
            largest = True
            for w in range(words):
                others = within[w] & ~carriers[level, w]
                if w == word:
                    others ^= facet
                while others != NONE and largest:
                    other = others & (~others + ONE)
                    others ^= other
                    held = 0
                    for i in range(count[level]):
                        held += bits[vertex[level, i], w] & other != NONE
                    earlier = w < word or (w == word and other < facet)
                    largest = held < found or (held == found and not earlier)
            if not largest:
                continue
            count[below] = found
            new = vertex[below, 0]
            for q in range(d):
                edge[below, q] = points[new, q] - points[root, q]
            for k in range(1, below):
                along = 0.0
                for q in range(d):
                    along += edge[below, q] * edge[k, q]
                for q in range(d):
                    edge[below, q] -= along * edge[k, q]
            length = 0.0
            for q in range(d):
                length += edge[below, q] * edge[below, q]
            length = np.sqrt(length)
            if below == d:
                size = product[level] * length
                total += size
                volume = size / factorial
                for k in range(m):
                    plain, square = 0.0, 0.0
                    for i in range(d + 1):
                        g = values[vertex[i, 0], k]
                        plain += g
                        square += g * g
                    if p == 1:
                        sums[c] += volume * plain / (d + 1)
                    else:
                        sums[c] += volume * (square + plain * plain) / ((d + 1) * (d + 2))
            elif length > 0.0:
                for q in range(d):
                    edge[below, q] /= length
                product[below] = product[level] * length
                level, entering = below, True
        out[c] = total / factorial
    return out, sums


@kernel
def far_ends(bits, size, d, far, sides):  # type: ignore[no-untyped-def]
    """Which far vertices of one cell end an edge that lies on no symbolic side."""
    words = bits.shape[1]
    out = np.zeros(size, np.bool_)
    for a in range(size):
        if not far[a]:
            continue
        for b in range(size):
            shared, symbolic = 0, False
            for w in range(words):
                common = bits[a, w] & bits[b, w]
                shared += popcount(common)
                symbolic |= common & sides[w] != NONE
            if a != b and shared >= d - 1 and not symbolic and spans_edge(bits, size, a, b):
                out[a] = True
                break
    return out


@kernel
def facet_means(points, rays, radius, bits, offsets, facet_offsets):  # type: ignore[no-untyped-def]
    """A point inside each facet: the mean of its vertices, see `VertexCells.interior` where they are far."""
    n, d = len(offsets) - 1, points.shape[1]
    open_ = len(rays) > 0
    out = np.empty((facet_offsets[n], d))
    near, onward, least, most = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    every = np.empty(d)
    for c in range(n):
        for f in range(facet_offsets[c + 1] - facet_offsets[c]):
            word, bit = f >> 6, ONE << np.uint64(f & 63)
            finite, count = 0, 0
            for q in range(d):
                near[q], onward[q], every[q], least[q], most[q] = 0.0, 0.0, 0.0, np.inf, -np.inf
            for v in range(offsets[c], offsets[c + 1]):
                if bits[v, word] & bit == NONE:
                    continue
                count += 1
                far = False
                if open_:
                    for q in range(d):
                        far |= rays[v, q] != 0.0
                        onward[q] += rays[v, q]
                finite += not far
                for q in range(d):
                    every[q] += points[v, q]
                    if not far:
                        near[q] += points[v, q]
                        least[q], most[q] = min(least[q], points[v, q]), max(most[q], points[v, q])
            step = 1.0 + 2.0 * radius[c] if open_ else 0.0
            if finite > 0:
                step = 1.0
                for q in range(d):
                    step = max(step, most[q] - least[q])
            for q in range(d):
                base = near[q] / finite if finite > 0 else every[q] / count
                out[facet_offsets[c] + f, q] = base + step * onward[q] / count
    return out
