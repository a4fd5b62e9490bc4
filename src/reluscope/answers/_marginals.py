"""Marginal laws of units on prefixes of patterns, and sets of patterns given by the pieces that each unit may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.network import Layer, Network, Pattern

if TYPE_CHECKING:
    from reluscope.activations import Units

Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


def advance(net: Network, layer: int, maps: list[FloatArray], piece: Pattern) -> list[FloatArray]:
    """Maps of the next layer's pre-activations on each prefix, shape (units, prefixes, r + 1), per Gaussian part."""
    here: Layer = net.hidden[layer]
    following = net.layers[layer + 1]
    slope, intercept = here.units.on(piece)
    out = []
    for m in maps:
        scaled = m * slope.T[:, :, None]
        scaled[:, :, -1] += intercept.T
        n, columns = scaled.shape[1:]
        new = np.asarray(following.weight @ scaled.reshape(here.width, n * columns))
        new = new.reshape(following.width, n, columns)
        new[:, :, -1] += following.bias[:, None]
        out.append(new)
    return out


def marginals(units: Units, maps: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Piece probabilities, shape (prefixes, units, pieces), of units with the maps (units, prefixes, r + 1)."""
    total: Any = 0.0
    for m, weight in zip(maps, weights, strict=True):
        sd = np.sqrt(np.einsum("ijk,ijk->ji", m[:, :, :-1], m[:, :, :-1]))
        total = total + weight * piece_probabilities(m[:, :, -1].T, sd, units.breaks)
    return np.asarray(total)


def piece_probabilities(mean: FloatArray, sd: FloatArray, breaks: FloatArray) -> FloatArray:
    """`P(t_j < h <= t_{j+1})` for `h ~ N(mean, sd^2)`, shape (..., units, k + 1).

    `mean` and `sd` have shape (..., units), `breaks` (units, k). Differences of Phi are taken on the side where they
    are small; `sd = 0` is a point and follows the tie rule.
    """
    ndtr = late("scipy.special", "ndtr")

    ends = np.full((len(breaks), 1), np.inf)
    edges = np.concatenate([-ends, breaks, ends], axis=1)
    gap = edges - mean[..., None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = np.where(sd[..., None] > 0, gap / sd[..., None], np.where(gap >= 0, np.inf, -np.inf))
    low, high = z[..., :-1], z[..., 1:]
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def products(allowed: Mask) -> npt.NDArray[Any]:
    """Number of combinations of allowed pieces per prefix, as Python integers (they may be huge)."""
    counts = allowed.sum(axis=2)
    if allowed.shape[0] and np.log2(np.maximum(counts, 1)).sum(axis=1).max() < 52:
        return np.prod(counts, axis=1, dtype=np.int64).astype(object)
    out = np.ones(len(counts), dtype=object)
    for column in counts.T:
        out = out * column.astype(object)
    return out


def combinations(allowed: Mask) -> tuple[Index, Pattern]:
    """All combinations of allowed pieces: the prefix each comes from, and its pieces (n, units)."""
    each = products(allowed).astype(np.int64)
    parent = np.repeat(np.arange(len(allowed)), each)
    number = np.arange(len(parent)) - np.repeat(np.cumsum(each) - each, each)
    counts = allowed.sum(axis=2)
    places = np.argsort(~allowed, axis=2, kind="stable").astype(np.uint8)  # the allowed pieces first
    piece = np.empty((len(parent), allowed.shape[1]), dtype=np.uint8)
    for unit in range(allowed.shape[1]):
        number, digit = np.divmod(number, counts[parent, unit])
        piece[:, unit] = places[parent, unit, digit]
    return parent, piece


def unique_rows(owner: Index, piece: Pattern) -> tuple[Index, Index]:
    """First occurrence and inverse of the distinct rows (owner, piece)."""
    label = np.ascontiguousarray(owner, dtype=np.int64).view(np.uint8).reshape(len(owner), 8)
    rows = np.ascontiguousarray(np.concatenate([label, piece], axis=1))
    keys = rows.view(f"V{rows.shape[1]}")[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse
