"""`dimensions`: how many dimensions the image of a layer fills.

For hidden layer k with the map G_(k), on the regions of the network (all of space, or a box):

- convex-hull dimension: that of the convex hull of the image. Adjacent regions share a facet, so their images meet; the
  affine hull of the image is a point plus the span of all columns of all linear parts `C_i`: `rank [C_1 C_2 ...]`;
- unbounded convex-hull dimension: that of the convex hull of the ray space, the same rank for the bias-free network;
- max region dimension: the largest dimension of the image of one region, `max rank C_i`.

They are ranks of matrices of floats: a singular value below `1e-9` of the largest counts as zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.budget import parse_budget
from reluscope.cells.regions import uninterrupted
from reluscope.errors import InputError
from reluscope.network import Network
from reluscope.representation._prefix import checked, chunk_size, layer_maps, prefix, recession
from reluscope.threads import clean_interrupt

ZERO_BELOW = 1e-9
"""A singular value below this share of the largest counts as zero."""


@dataclass(frozen=True, eq=False, repr=False)
class Dimensions:
    """Dimensions of the image of one hidden layer.

    Attributes
    ----------
    network, layer : Network, int
        The network, and the hidden layer counted from 0.
    convex_hull : int
        Dimension of the convex hull of the image.
    unbounded_convex_hull : int
        Dimension of the convex hull of the ray space; always for all of space.
    max_region : int
        The largest dimension of the image of one region.
    region, bound : ndarray, shape (regions,)
        Dimension of each region's image, and the smallest number of active units up to the layer (or the number of
        inputs, if smaller), which it never exceeds.
    domain : str
        Where the regions were listed.
    """

    network: Network
    layer: int
    convex_hull: int
    unbounded_convex_hull: int
    max_region: int
    region: npt.NDArray[np.int64]
    bound: npt.NDArray[np.int64]
    domain: str

    @property
    def bound_holds(self) -> bool:
        """Whether no region's dimension exceeds its bound."""
        return bool((self.region <= self.bound).all())

    def to_dict(self) -> dict[str, Any]:
        """The facts by name, fit for JSON."""
        return {
            "layer": self.layer,
            "convex_hull": self.convex_hull,
            "unbounded_convex_hull": self.unbounded_convex_hull,
            "max_region": self.max_region,
            "regions": len(self.region),
            "regions_by_dimension": np.bincount(self.region, minlength=self.network.n_inputs + 1).tolist(),
            "bound_holds": self.bound_holds,
            "domain": self.domain,
        }

    def __repr__(self) -> str:
        return (
            f"Dimensions(layer {self.layer}: convex hull {self.convex_hull}, unbounded {self.unbounded_convex_hull}, "
            f"max region {self.max_region}; {len(self.region):,} regions in {self.domain})"
        )


@clean_interrupt()
def dimensions(net: Network, layer: int | None = None, *, box: Any = None, budget: Any = None) -> Dimensions:
    """How many dimensions the image of a hidden layer fills.

    Parameters
    ----------
    net : Network
    layer : int, optional
        Hidden layer, counted from 0; the last by default.
    box : tuple, optional
        `(lo, hi)`: where regions are listed; all of space by default.
    budget : str or Budget, optional
        Such as "60s" or "10000 regions".

    Returns
    -------
    Dimensions

    Raises
    ------
    InputError
        If the budget ends before all regions are listed: half a list gives no dimension.

    Notes
    -----
    With the linear parts `C_i` on the regions, the convex hull has dimension `rank [C_1 C_2 ...]`, a region
    `rank C_i`. Cost: the regions of the first layers and the cones of the bias-free network, one singular value
    decomposition each. Exact up to the rounding of the enumeration; a singular value below 1e-9 of the largest is 0.

    Examples
    --------
    The image of `relu(x, -x)` is two half-axes:

    >>> from reluscope import Network
    >>> net = Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])
    >>> dimensions(net)
    Dimensions(layer 0: convex hull 2, unbounded 2, max region 1; 2 regions in the whole space)
    """
    net, k = checked(net, layer)
    limit = parse_budget(budget)
    part = prefix(net, k + 1)
    found = uninterrupted(part, box, budget=limit, progress=None)
    cones = uninterrupted(recession(net, k + 1), (-1.0, 1.0), budget=limit, progress=None)
    for listed in (found, cones):
        if listed.stopped:
            raise InputError(
                f"{listed.stopped}: not all regions of layer {k} were listed, and a dimension needs all of them; "
                "give a larger budget, a box, or an earlier layer"
            )
    ranks, bounds, hull = [], [], _Span(part.n_outputs)
    for start in range(0, len(found), chunk_size(part)):
        pattern = found.pattern[start : start + chunk_size(part)]
        C = layer_maps(part, pattern)[-1]
        ranks.append(_ranks(C))
        bounds.append(_fewest_active(part, pattern))
        hull.add(C)
    rays = _Span(part.n_outputs)
    for start in range(0, len(cones), chunk_size(part)):
        rays.add(layer_maps(cones.network, cones.pattern[start : start + chunk_size(part)])[-1])
    region = np.concatenate(ranks)
    return Dimensions(
        net, k, hull.dimension, rays.dimension, int(region.max()), region, np.concatenate(bounds), str(found.domain)
    )


def span_dimension(maps: FloatArray) -> int:
    """Dimension of the span of all columns of the matrices `maps` (count, units, inputs)."""
    span = _Span(maps.shape[1])
    span.add(maps)
    return span.dimension


class _Span:
    """The span of columns that come in batches, kept as the triangle of their QR factorisation."""

    def __init__(self, units: int) -> None:
        self._rows: FloatArray = np.zeros((0, units))

    def add(self, maps: FloatArray) -> None:
        columns = maps.transpose(0, 2, 1).reshape(-1, maps.shape[1])
        stacked = np.vstack([self._rows, columns])
        self._rows = np.asarray(np.linalg.qr(stacked, mode="r")) if len(stacked) > stacked.shape[1] else stacked

    @property
    def dimension(self) -> int:
        if not self._rows.size:
            return 0
        values = np.linalg.svd(self._rows, compute_uv=False)
        return int((values > ZERO_BELOW * values[0]).sum()) if values[0] > 0 else 0


def _ranks(C: FloatArray) -> npt.NDArray[np.int64]:
    """Rank of each matrix of a stack (regions, units, inputs)."""
    values = np.linalg.svd(C, compute_uv=False)
    return ((values > ZERO_BELOW * values[:, :1]) & (values > 0)).sum(axis=1)


def _fewest_active(net: Network, pattern: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    least = np.full(len(pattern), net.n_inputs, dtype=np.int64)
    for k, layer in enumerate(net.hidden):
        slopes, _ = layer.units.on(pattern[:, net.offsets[k] : net.offsets[k + 1]])
        least = np.minimum(least, np.count_nonzero(slopes, axis=1))
    return least
