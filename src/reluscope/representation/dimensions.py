"""`dimensions`: how many dimensions the image of a layer fills.

For hidden layer k with the map G_(k), on the cells of the network (all of space, or a box):

- convex-hull dimension: that of the convex hull of the image. Adjacent cells share a facet, so their images meet; the
  affine hull of the image is a point plus the span of all columns of all linear parts `C_i`: `rank [C_1 C_2 ...]`;
- unbounded convex-hull dimension: that of the convex hull of the ray space, the same rank for the bias-free network;
- max cell dimension: the largest dimension of the image of one cell, `max rank C_i`.

They are ranks of matrices of floats: a singular value below `1e-9` of the largest counts as zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.budget import parse_budget
from reluscope.cells.regions import regions
from reluscope.errors import InputError
from reluscope.network import Network
from reluscope.representation._prefix import checked, chunk_size, layer_maps, prefix, recession

RANK_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class Dimensions:
    """Dimensions of the image of one hidden layer.

    `convex_hull`, `unbounded_convex_hull` and `max_cell` as in the module's text; `cell` (cells,) the dimension of each
    cell's image and `bound` (cells,) the smallest number of active units up to the layer (and the number of inputs),
    which it never exceeds. `domain` says where the cells were listed; the unbounded dimension always looks at all of
    space.
    """

    network: Network
    layer: int
    convex_hull: int
    unbounded_convex_hull: int
    max_cell: int
    cell: npt.NDArray[np.int64]
    bound: npt.NDArray[np.int64]
    domain: str

    @property
    def bound_holds(self) -> bool:
        """Whether no cell's dimension exceeds its bound."""
        return bool((self.cell <= self.bound).all())

    def to_dict(self) -> dict[str, Any]:
        """The facts by name, fit for JSON."""
        return {
            "layer": self.layer,
            "convex_hull": self.convex_hull,
            "unbounded_convex_hull": self.unbounded_convex_hull,
            "max_cell": self.max_cell,
            "cells": len(self.cell),
            "cells_by_dimension": np.bincount(self.cell, minlength=self.network.n_inputs + 1).tolist(),
            "bound_holds": self.bound_holds,
            "domain": self.domain,
        }

    def __repr__(self) -> str:
        return (
            f"Dimensions(layer {self.layer}: convex hull {self.convex_hull}, unbounded {self.unbounded_convex_hull}, "
            f"max cell {self.max_cell}; {len(self.cell):,} cells in {self.domain})"
        )


def dimensions(net: Network, layer: int | None = None, *, box: Any = None, budget: Any = None) -> Dimensions:
    """Dimensions of the image of hidden layer `layer` (counted from 1; the last by default).

    Lists the regions of the first layers in `box` (all of space by default), and the cones of the bias-free network.
    Guarantee: exact up to the rounding of the enumeration and the rank tolerance. A budget that ends is an error: half
    a list of cells gives no dimension.
    """
    net, k = checked(net, layer)
    limit = parse_budget(budget)
    part = prefix(net, k)
    found = regions(part, box, budget=limit, progress=None)
    cones = regions(recession(net, k), (-1.0, 1.0), budget=limit, progress=None)
    for listed in (found, cones):
        if not listed.complete:
            raise InputError(f"{listed.stopped}: not all cells of layer {k} were listed; give a larger budget")
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
    cell = np.concatenate(ranks)
    return Dimensions(
        net, k, hull.dimension, rays.dimension, int(cell.max()), cell, np.concatenate(bounds), str(found.domain)
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
        return int((values > RANK_TOLERANCE * values[0]).sum()) if values[0] > 0 else 0


def _ranks(C: FloatArray) -> npt.NDArray[np.int64]:
    """Rank of each matrix of a stack (cells, units, inputs)."""
    values = np.linalg.svd(C, compute_uv=False)
    return ((values > RANK_TOLERANCE * values[:, :1]) & (values > 0)).sum(axis=1)


def _fewest_active(net: Network, pattern: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    least = np.full(len(pattern), net.n_inputs, dtype=np.int64)
    for k, layer in enumerate(net.hidden):
        slopes, _ = layer.units.on(pattern[:, net.offsets[k] : net.offsets[k + 1]])
        least = np.minimum(least, np.count_nonzero(slopes, axis=1))
    return least
