"""Facets of regions: their inequalities, and which region lies on the other side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.cells.subdivide import first_labels

if TYPE_CHECKING:
    from reluscope.cells.regions import Regions

_STEPS = 10.0 ** np.arange(-3, -13, -1)
"""Lengths of the step across a facet, relative to the size of the region, tried in turn."""


def facet_rows(regions: Regions, i: int) -> tuple[FloatArray, FloatArray]:
    """`A x <= b` for the facets of region i, rows of unit length, in the order of its facet labels."""
    net = regions.network
    labels, offsets = regions._facets
    mine = labels[offsets[i] : offsets[i + 1]]
    n = net.n_inputs
    A, b = np.zeros((len(mine), n)), np.zeros(len(mine))
    starts = np.array(first_labels(net))
    layers = np.searchsorted(starts, mine, side="right") - 1
    hidden = net.affine(regions.pattern[i]).hidden if (mine >= 0).any() else ()
    for row, (label, layer) in enumerate(zip(mine.tolist(), layers.tolist(), strict=True)):
        if label >= 0:
            steps = net.layers[layer].units.breaks.shape[1]
            unit, step = divmod(label - int(starts[layer]), steps)
            C, d = hidden[layer]
            level = net.layers[layer].units.breaks[unit, step]
            above = regions.pattern[i, net.offsets[layer] + unit] > step
            sign = -1.0 if above else 1.0
            A[row], b[row] = sign * C[unit], sign * (level - d[unit])
        elif -label <= 2 * n:
            k, upper = divmod(-1 - label, 2)
            box = regions.domain.box
            assert box is not None
            A[row, k], b[row] = (1.0, box[1][k]) if upper else (-1.0, -box[0][k])
        else:
            rows = regions.domain.half_spaces
            assert rows is not None
            k = -1 - label - 2 * n
            A[row], b[row] = rows[0][k], rows[1][k]
    norm = np.linalg.norm(A, axis=1)
    return A / norm[:, None], b / norm


def across_facets(regions: Regions) -> npt.NDArray[np.int64]:
    """The region on the other side of every facet, in the order of the facet labels; -1 where there is none.

    Pre-activations are continuous, so in general position the two sides of a facet differ in one unit's piece:
    the facet and its twin have the same key (label, pattern with that unit on the lower piece). Where several units
    share the facet that fails, and a small step across it decides.
    """
    net = regions.network
    labels, offsets = regions._facets
    owner = np.repeat(np.arange(len(regions)), np.diff(offsets))
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
    here = regions.pattern[me, unit].astype(np.uint64)
    base = regions._hash(regions.pattern)[me]
    weight = regions._hash_weights[unit]
    key = base + weight * (step.astype(np.uint64) - here)
    order = np.lexsort((me, labels[inner], key))
    first, second = order[:-1], order[1:]
    twins = (key[first] == key[second]) & (labels[inner[first]] == labels[inner[second]]) & (me[first] != me[second])
    a, b = first[twins], second[twins]
    across[inner[a]], across[inner[b]] = me[b], me[a]
    lonely = inner[across[inner] < 0]
    if len(lonely):
        across[lonely] = _step_across(regions, lonely, owner[lonely])
    return across


def _step_across(
    regions: Regions, facets: npt.NDArray[np.int64], owner: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    middle = regions.cells.facet_points()[facets]
    inside = regions.interior[owner]
    found = np.full(len(facets), -1, dtype=np.int64)
    for step in _STEPS:
        # From the interior through the middle of the facet and a little beyond; shorter steps overrule longer ones.
        hit = regions.find(middle + step * (middle - inside))
        ok = (hit >= 0) & (hit != owner)
        found[ok] = hit[ok]
    return found
