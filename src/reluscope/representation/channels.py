"""Channels of a convolutional layer, found again in its matrix.

A network here is a chain of matrices, so a convolution has lost its shape. It shows in the matrix: the rows of one
channel are consecutive, share one bias, and where the kernel lies fully inside the image hold the same weights.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from reluscope.network import Layer

_SMALLEST_MAP = 4
"""Fewer positions than this per channel may be a coincidence of equal rows."""
_FILLED = 0.6
"""A layer with a larger share of non-zero weights is taken for a dense one."""


def channels_of(layer: Layer) -> int | None:
    """Number of channels of a convolution whose units are ordered (channel, position), or None for another layer."""
    units = layer.width
    if units < 2 * _SMALLEST_MAP:
        return None
    matrix = sparse.csr_array(layer.weight)
    filled = np.diff(matrix.indptr)
    if matrix.nnz > _FILLED * units * layer.n_inputs or not matrix.nnz or len(set(layer.units.kind.tolist())) > 1:
        return None
    full = np.flatnonzero(filled == filled.max())
    weights = np.sort(matrix.data[matrix.indptr[full][:, None] + np.arange(filled.max())], axis=1)
    _, same = np.unique(weights, axis=0, return_inverse=True)
    same = same.ravel()
    for count in (c for c in range(1, units // _SMALLEST_MAP + 1) if units % c == 0):
        size = units // count
        if (np.ptp(layer.bias.reshape(count, size), axis=1) > 0).any():
            continue
        group = full // size
        if len(np.unique(group)) == count and all(len(np.unique(same[group == g])) == 1 for g in range(count)):
            return count
    return None
