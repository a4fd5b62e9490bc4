"""The dimension of a region's image after each layer, at given points: the rank of the local Jacobian."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.network import Layer, Network
from reluscope.threads import blas_threads

ZERO_BELOW = 1e-11
"""A diagonal entry of the pivoted QR factorisation below this share of the first counts as zero."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LocalDimensions:
    """Dimension of the image of each point's region after each hidden layer, shape (hidden layers, points).

    `rank` is the rank of the derivative of the layer's output by the input; `active` the number of units with a
    non-zero slope; `bound` the smallest such number up to that layer (and the number of inputs), which no rank exceeds.

    Attributes
    ----------
    rank, active, bound : (hidden layers, points) arrays
    """

    rank: Counts
    active: Counts
    bound: Counts

    @property
    def bound_holds(self) -> npt.NDArray[np.bool_]:
        """Whether `rank <= bound` at every point, by layer."""
        return np.asarray((self.rank <= self.bound).all(axis=1))


def local_dimensions(net: Network, X: FloatArray) -> LocalDimensions:
    """Ranks at the rows of X. Cost: one pivoted QR factorisation per point and layer.

    The derivative after layer l is `D_l W_l J_{l-1}`. Only the space that the columns of `J` span matters, so an
    orthonormal basis of it is carried on: the rank is not blurred by singular values that shrink from layer to layer.
    """
    points, depth = len(X), len(net.hidden)
    rank = np.zeros((depth, points), np.int64)
    active = np.zeros((depth, points), np.int64)
    bound = np.zeros((depth, points), np.int64)
    with blas_threads(max(net.widths)):
        for p in range(points):
            z, basis, least = X[p], None, net.n_inputs
            for k, layer in enumerate(net.hidden):
                h = layer.weight @ z + layer.bias
                slopes, shifts = layer.units.on(layer.units.pattern(h))
                z = slopes * h + shifts
                on = np.flatnonzero(slopes)
                least = min(least, len(on))
                basis = _next_basis(layer, basis, on, slopes)
                rank[k, p], active[k, p], bound[k, p] = basis.shape[1], len(on), least
    return LocalDimensions(rank, active, bound)


def _next_basis(layer: Layer, basis: FloatArray | None, on: npt.NDArray[np.intp], slopes: FloatArray) -> FloatArray:
    """An orthonormal basis of the span of `diag(slopes) W basis`, shape (units, rank)."""
    linalg = late("scipy.linalg")

    out = np.zeros((layer.width, 0))
    if not len(on) or (basis is not None and not basis.shape[1]):
        return out
    rows = layer.weight[on]
    spread = np.asarray(rows @ basis) if basis is not None else layer.dense()[on]
    Q, R, _ = linalg.qr(slopes[on, None] * spread, mode="economic", pivoting=True, check_finite=False)
    size = np.abs(np.diagonal(R))
    if not size[0] > 0:
        return out
    r = int((size > ZERO_BELOW * size[0]).sum())
    out = np.zeros((layer.width, r))
    out[on] = Q[:, :r]
    return out
