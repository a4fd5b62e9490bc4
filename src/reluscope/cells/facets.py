"""Facets of regions: their inequalities, and which region lies on the other side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.cells.subdivide import first_labels
from reluscope.network import Network, Pattern

if TYPE_CHECKING:
    from reluscope.cells.regions import Domain, Regions

Index = npt.NDArray[np.int64]

_NUMBERS_AT_ONCE = 1 << 22
"""Numbers in the hidden maps of one batch of regions whose inequalities are written out."""

_STEPS = 10.0 ** np.arange(-3, -13, -1)
"""Lengths of the step across a facet, relative to the size of the region, tried in turn."""


def facet_rows(regions: Regions, which: Index) -> tuple[FloatArray, FloatArray, Index]:
    """`A x <= b` for the facets of some regions, in any order: rows of unit length, back to back, and their offsets.

    Row k belongs to the k-th facet label. Batched passes through the layers, in portions of bounded memory.
    """
    net = regions.network
    labels, offsets = regions._facets
    size = np.diff(offsets)[which]
    starts = np.concatenate([[0], np.cumsum(size)])
    place = np.arange(starts[-1]) + np.repeat(offsets[:-1][which] - starts[:-1], size)
    mine = labels[place].astype(np.int64)
    step = int(max(1, _NUMBERS_AT_ONCE // (max(net.widths) * (net.n_inputs + 1))))
    parts = []
    for i in range(0, len(which), step):
        j = min(i + step, len(which))
        pattern, own = regions.pattern[which[i:j]], np.repeat(np.arange(j - i), size[i:j])
        parts.append(_rows(net, regions.domain, pattern, mine[starts[i] : starts[j]], own))
    return np.concatenate([A for A, _ in parts]), np.concatenate([b for _, b in parts]), starts


def _rows(net: Network, domain: Domain, pattern: Pattern, labels: Index, owner: Index) -> tuple[FloatArray, FloatArray]:
    """The rows of facets: facet k has `labels[k]` and belongs to the region of `pattern[owner[k]]`."""
    n = net.n_inputs
    A, b = np.zeros((len(labels), n)), np.zeros(len(labels))
    starts = np.array(first_labels(net))
    for layer, (maps, piece) in enumerate(hidden_maps(net, pattern)):
        rows = np.flatnonzero((labels >= starts[layer]) & (labels < starts[layer + 1]))
        if not len(rows):
            continue
        steps = net.layers[layer].units.breaks.shape[1]
        unit, step = np.divmod(labels[rows] - starts[layer], steps)
        cell = owner[rows]
        level = net.layers[layer].units.breaks[unit, step]
        sign = np.where(piece[cell, unit] > step, -1.0, 1.0)  # above the break point: h >= level
        A[rows] = sign[:, None] * maps[unit, cell, :n]
        b[rows] = sign * (level - maps[unit, cell, n])
    sides = np.flatnonzero((labels < 0) & (labels >= -2 * n))
    if len(sides) and domain.box is not None:
        k, upper = np.divmod(-1 - labels[sides], 2)
        A[sides, k] = np.where(upper, 1.0, -1.0)
        b[sides] = np.where(upper, domain.box[1][k], -domain.box[0][k])
    cuts = np.flatnonzero(labels < -2 * n)
    if len(cuts) and domain.half_spaces is not None:
        k = -1 - labels[cuts] - 2 * n
        A[cuts], b[cuts] = domain.half_spaces[0][k], domain.half_spaces[1][k]
    norm = np.linalg.norm(A, axis=1)
    return A / norm[:, None], b / norm


def hidden_maps(net: Network, patterns: Pattern) -> Iterator[tuple[FloatArray, Pattern]]:
    """For each hidden layer the affine maps of its units on many cells, shape (units, cells, inputs + 1)."""
    count, columns = len(patterns), net.n_inputs + 1
    first = net.layers[0]
    maps = np.broadcast_to(np.column_stack([first.dense(), first.bias])[:, None, :], (first.width, count, columns))
    for i, layer in enumerate(net.hidden):
        piece = patterns[:, net.offsets[i] : net.offsets[i + 1]]
        yield maps, piece
        slopes, intercepts = layer.units.on(piece)
        scaled = maps * slopes.T[:, :, None]
        scaled[:, :, -1] += intercepts.T
        following = net.layers[i + 1]
        maps = (following.weight @ scaled.reshape(layer.width, -1)).reshape(following.width, count, columns)
        maps[:, :, -1] += following.bias[:, None]


def _portions(regions: Regions) -> Iterator[tuple[int, int]]:
    """Ranges of regions whose facets have patterns of bounded memory."""
    _, offsets = regions._facets
    facets = max(1, _NUMBERS_AT_ONCE // max(regions.network.n_units, 1))
    begin = 0
    while begin < len(regions):
        end = int(np.searchsorted(offsets, offsets[begin] + facets, side="right")) - 1
        end = min(max(end, begin + 1), len(regions))
        yield begin, end
        begin = end


def across_facets(regions: Regions) -> npt.NDArray[np.int64]:
    """The region on the other side of every facet, in the order of the facet labels; -1 where there is none."""
    labels, offsets = regions._facets
    across = np.empty(len(labels), dtype=np.int64)
    for begin, end in _portions(regions):
        across[offsets[begin] : offsets[end]] = across_some(regions, begin, end)
    return across


def adjacent_pairs(regions: Regions) -> Iterator[npt.NDArray[np.int64]]:
    """All pairs (i, j), i < j, of regions that share a facet, in order and each once, a portion at a time.

    Near-linear in the number of facets: each is looked up among the sorted patterns. Memory: that of a portion, and two
    numbers for each region.
    """
    _, offsets = regions._facets
    n = len(regions)
    for begin, end in _portions(regions):
        one = np.repeat(np.arange(begin, end), np.diff(offsets[begin : end + 1]))
        other = across_some(regions, begin, end)
        later = other > one
        key = np.unique(one[later] * n + other[later])  # one number for each pair: rows take ten times as long to sort
        yield np.column_stack(np.divmod(key, n))


def across_some(regions: Regions, begin: int, end: int) -> npt.NDArray[np.int64]:
    """The same for the facets of regions `begin:end`.

    Pre-activations are continuous, so in general position the two sides of a facet differ in one unit's piece: if there
    is a region with this pattern, it lies across. Where several units share the facet there is none, and a small step
    across it decides.
    """
    net = regions.network
    labels, offsets = regions._facets
    owner = np.repeat(np.arange(end - begin), np.diff(offsets[begin : end + 1]))
    labels = np.asarray(labels[offsets[begin] : offsets[end]], np.int64)
    across = np.full(len(labels), -1, dtype=np.int64)
    inner = np.flatnonzero(labels >= 0)
    if not len(inner):
        return across
    starts = np.array(first_labels(net))
    layer = np.searchsorted(starts, labels[inner], side="right") - 1
    steps = np.array([max(h.units.breaks.shape[1], 1) for h in net.hidden])[layer]
    unit, step = np.divmod(labels[inner] - starts[layer], steps)
    unit = net.offsets[layer] + unit
    me = owner[inner]
    mine = np.asarray(regions.pattern[begin:end])
    pattern = mine[me]
    rows = np.arange(len(inner))
    here = pattern[rows, unit].astype(np.int64)
    there = np.where(here > step, step, step + 1)
    pattern[rows, unit] = there
    hashes = regions._hash(mine)[me] + regions._hash_weights[unit] * (there - here).astype(np.uint64)
    across[inner] = regions._lookup(pattern, hashes)
    lonely = inner[across[inner] < 0]
    if len(lonely):
        across[lonely] = _step_across(regions, begin, end, lonely, owner[lonely])
    return across


def _step_across(regions: Regions, begin: int, end: int, facets: Index, owner: Index) -> npt.NDArray[np.int64]:
    cells = regions.cells.part(begin, end)
    middle, inside = cells.facet_points()[facets], cells.interior()[owner]
    found = np.full(len(facets), -1, dtype=np.int64)
    for step in _STEPS:
        # From the interior through the middle of the facet and a little beyond; shorter steps overrule longer ones.
        hit = regions.find(middle + step * (middle - inside))
        ok = (hit >= 0) & (hit != begin + owner)
        found[ok] = hit[ok]
    return found
