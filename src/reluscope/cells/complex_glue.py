"""Gluing: the copies of each vertex that the cells around it have, joined facet by facet.

The two copies of a facet are found by its label. Coordinates only say which corner of one is which corner of the other.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from reluscope._lazy import late
from reluscope.cells.vertex import VertexCells

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_GEOMETRIC_MATCH = 1e-6
"""Facets that are paired by position alone must agree to this share of their size."""
_ONE = np.uint64(1)
_NONE = np.uint64(0)


def glue(cells: VertexCells, zero: Words, positive: Words) -> tuple[Index, int]:
    """For each vertex of each cell the first of all its copies, and how many inner facets stayed alone."""
    owner = np.repeat(np.arange(len(cells)), np.diff(cells.facet_offsets))
    keys = _facet_keys(cells.bits, cells.offsets, cells.facet_offsets, zero, positive)
    root = np.arange(len(cells.points))
    alone = np.flatnonzero(cells.labels >= 0)
    # Nearly coincident hyperplanes may have the same ternary label: the facet's own label tells them apart where it
    # can.
    mixed = keys + cells.labels.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for key in (mixed, keys):
        pairs = _twins(alone, key, owner)
        alone = _joined(cells, root, pairs, owner, alone, np.inf)
    if len(alone):
        alone = _joined(cells, root, _nearest(cells, alone, owner), owner, alone, _GEOMETRIC_MATCH)
    return root, len(alone)


def _twins(facets: Index, key: Words, owner: Index) -> Index:
    """Pairs of facets of two cells with the same key that no third facet has, shape (2, pairs)."""
    order = facets[np.argsort(key[facets], kind="stable")]
    sorted_key = key[order]
    same = sorted_key[1:] == sorted_key[:-1]
    before, after = np.concatenate([[False], same]), np.concatenate([same, [False]])
    first = np.flatnonzero(after & ~before)
    lone = first[~after[np.minimum(first + 1, len(order) - 1)]]
    pairs = np.stack([order[lone], order[lone + 1]])
    return pairs[:, owner[pairs[0]] != owner[pairs[1]]]


def _joined(cells: VertexCells, root: Index, pairs: Index, owner: Index, alone: Index, closeness: float) -> Index:
    """Glue these pairs; returns the facets that are still alone."""
    done = _join_pairs(
        cells.points,
        cells.rays,
        cells.bits,
        cells.offsets,
        cells.facet_offsets,
        np.ascontiguousarray(pairs),
        owner,
        root,
        closeness,
    )
    return np.setdiff1d(alone, pairs[:, done], assume_unique=True)


def _nearest(cells: VertexCells, facets: Index, owner: Index) -> Index:
    """Pairs of facets of two cells that are each other's nearest, by the mean of their vertices, shape (2, pairs)."""
    cKDTree = late("scipy.spatial", "cKDTree")

    first = cells.facet_offsets[owner[facets]]
    place = _facet_places(
        cells.points, cells.rays, cells.bits, cells.offsets, np.ascontiguousarray(facets - first), owner[facets]
    )
    _, near = cKDTree(place).query(place, k=min(4, len(place)))
    near = near.reshape(len(place), -1)
    other = owner[facets][near] != owner[facets][:, None]
    partner = near[np.arange(len(near)), np.argmax(other, axis=1)]
    mutual = other.any(axis=1) & (partner[partner] == np.arange(len(partner))) & (np.arange(len(partner)) < partner)
    return np.stack([facets[mutual], facets[partner[mutual]]])


@nb.njit(cache=True)
def mix(x):  # type: ignore[no-untyped-def]
    """A 64-bit number that looks random (the finaliser of the splitmix generator)."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@nb.njit(cache=True)
def _facet_keys(bits, offsets, facet_offsets, zero, positive):  # type: ignore[no-untyped-def]
    """A hash of the ternary label of each facet of each cell."""
    words = zero.shape[1]
    out = np.empty(facet_offsets[-1], np.uint64)
    for c in range(len(offsets) - 1):
        first = facet_offsets[c]
        for f in range(facet_offsets[c + 1] - first):
            bit = _ONE << np.uint64(f & 63)
            key = _NONE
            for w in range(words):
                common = ~_NONE
                for v in range(offsets[c], offsets[c + 1]):
                    if bits[v, f >> 6] & bit != _NONE:
                        common &= zero[v, w]
                key = mix(key ^ common)
                key = mix(key ^ (positive[c, w] & ~common))
            out[first + f] = key
    return out


@nb.njit(cache=True)
def _facet_places(points, rays, bits, offsets, facet, owner):  # type: ignore[no-untyped-def]
    """Mean point and mean ray of the vertices of each facet."""
    d = points.shape[1]
    out = np.zeros((len(facet), 2 * d))
    for i in range(len(facet)):
        f, c = facet[i], owner[i]
        bit = _ONE << np.uint64(f & 63)
        count = 0
        for v in range(offsets[c], offsets[c + 1]):
            if bits[v, f >> 6] & bit != _NONE:
                count += 1
                for q in range(d):
                    out[i, q] += points[v, q]
                    if len(rays) > 0:
                        out[i, d + q] += rays[v, q]
        for q in range(2 * d):
            out[i, q] /= count
    return out


@nb.njit(cache=True)
def find_root(root, v):  # type: ignore[no-untyped-def]
    """The representative of v in a union-find forest; paths are halved on the way."""
    while root[v] != v:
        root[v] = root[root[v]]
        v = root[v]
    return v


@nb.njit(cache=True)
def _join_pairs(  # type: ignore[no-untyped-def]
    points, rays, bits, offsets, facet_offsets, pairs, owner, root, closeness
):
    """Glue pairs of facets vertex by vertex, the nearest ones together; says which pairs fit."""
    d, open_ = points.shape[1], len(rays) > 0
    most = 1
    for c in range(len(offsets) - 1):
        most = max(most, offsets[c + 1] - offsets[c])
    mine, theirs, match = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    taken = np.empty(most, np.bool_)
    done = np.zeros(pairs.shape[1], np.bool_)
    for p in range(pairs.shape[1]):
        n_mine, n_theirs = 0, 0
        for side in range(2):
            c = owner[pairs[side, p]]
            f = pairs[side, p] - facet_offsets[c]
            bit = _ONE << np.uint64(f & 63)
            for v in range(offsets[c], offsets[c + 1]):
                if bits[v, f >> 6] & bit != _NONE:
                    if side == 0:
                        mine[n_mine] = v
                        n_mine += 1
                    else:
                        theirs[n_theirs] = v
                        n_theirs += 1
        if n_mine != n_theirs:
            continue
        size = 0.0
        for i in range(n_mine):
            taken[i] = False
            for q in range(d):
                size = max(size, abs(points[mine[i], q] - points[mine[0], q]))
        fits, worst = True, 0.0
        for i in range(n_mine):
            best, at = np.inf, 0
            for j in range(n_theirs):
                gap, turn = 0.0, 0.0
                for q in range(d):
                    gap = max(gap, abs(points[mine[i], q] - points[theirs[j], q]))
                    if open_:
                        turn = max(turn, abs(rays[mine[i], q] - rays[theirs[j], q]))
                gap += turn * 1e6 * (1.0 + size)
                if gap < best:
                    best, at = gap, j
            fits = fits and not taken[at]
            taken[at] = True
            match[i] = theirs[at]
            worst = max(worst, best)
        if not fits or worst > closeness * size:
            continue
        for i in range(n_mine):
            a, b = find_root(root, mine[i]), find_root(root, match[i])
            if a < b:
                root[b] = a
            else:
                root[a] = b
        done[p] = True
    return done
