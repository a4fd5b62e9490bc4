"""Where hyperplanes meet: the affine space `{x : A x = b}`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, real, real_array
from reluscope.errors import InputError

_MOST_SUBSETS = 200_000
"""Subsets of hyperplanes that are looked at for general position."""


@dataclass(frozen=True, eq=False)
class Intersection:
    """The points `point + basis.T s` with any `s`: the solutions of `A x = b`.

    `point` (inputs,) is the solution nearest to the origin, orthogonal to the rows of `basis` (inputs - rank,
    inputs), which are orthonormal. `rank` counts independent hyperplanes. When the hyperplanes have no point in
    common, `consistent` is False and `point` is the one with the least sum of squared distances to them. `residual`
    is the largest distance from `point` to a hyperplane.
    """

    point: FloatArray
    basis: FloatArray
    rank: int
    consistent: bool
    residual: float

    @property
    def dimension(self) -> int:
        """Dimension of the intersection; -1 when it is empty."""
        return len(self.basis) if self.consistent else -1

    def __repr__(self) -> str:
        if not self.consistent:
            return f"Intersection(empty, rank {self.rank}, residual {self.residual:.3g})"
        return f"Intersection(dimension {self.dimension} in R^{len(self.point)}, rank {self.rank})"

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {
            "point": self.point.tolist(),
            "basis": self.basis.tolist(),
            "rank": self.rank,
            "consistent": self.consistent,
            "residual": self.residual,
            "dimension": self.dimension,
        }


def hyperplane_intersection(A: npt.ArrayLike, b: npt.ArrayLike, *, tolerance: float | None = None) -> Intersection:
    """The intersection of the hyperplanes `A x = b`, `A` (rows, inputs): least-norm point and null-space basis.

    Rows are scaled to unit length, so that `A_i . x - b_i` is the distance from `x` to hyperplane i, and the singular
    value decomposition `A = U S V^T` gives `point = V S^+ U^T b`. Two decisions take the tolerance, by default `16
    eps (rows + inputs)`: the rank is the number of singular values above `tolerance` times the largest; the
    hyperplanes are consistent when `point` is within `tolerance * (|point| + max |b|) / (least singular value kept)`
    of each. A zero row means the whole space if its `b` is 0, and nothing otherwise. Cost: one decomposition.
    """
    rows, bound = real_array(A, "A", ndim=2), real_array(b, "b", ndim=1)
    if len(rows) != len(bound) or not rows.shape[1]:
        raise InputError(f"A and b must have one row per hyperplane, got shapes {rows.shape} and {bound.shape}")
    n = rows.shape[1]
    share = 16 * EPS * (len(rows) + n) if tolerance is None else real(tolerance, "tolerance", low=0.0, high=1.0)
    largest = np.abs(rows).max(axis=1, initial=0.0)
    real_rows = largest > 0
    # Two steps, so that rows of any size have a norm that neither overflows nor vanishes.
    unit = rows[real_rows] / largest[real_rows, None]
    norm = np.linalg.norm(unit, axis=1)
    with np.errstate(over="ignore"):
        level = bound[real_rows] / largest[real_rows] / norm
    unit /= norm[:, None]
    if not np.isfinite(level).all():
        i = int(np.flatnonzero(real_rows)[np.argmin(np.isfinite(level))])
        raise InputError(f"hyperplane {i} is too far from the origin for float64: |b| / |A row| overflows; rescale it")
    impossible = bool((bound[~real_rows] != 0).any())
    left, size, right = np.linalg.svd(unit, full_matrices=True)
    rank = int((size > share * size[0]).sum()) if len(size) else 0
    point = right[:rank].T @ ((left[:, :rank].T @ level) / size[:rank])
    residual = float(np.abs(unit @ point - level).max(initial=0.0))
    blur = share * (np.linalg.norm(point) + np.abs(level).max(initial=0.0)) / (size[rank - 1] if rank else 1.0)
    consistent = bool(residual <= blur) and not impossible
    return Intersection(point, np.ascontiguousarray(right[rank:]), rank, consistent, np.inf if impossible else residual)


@dataclass(frozen=True)
class Position:
    """Whether hyperplanes are in general position, which is also its truth value; if not, which rows are not and why.

    Attributes
    ----------
    generic : bool
    subset : tuple of int
    reason : str
    """

    generic: bool
    subset: tuple[int, ...] = ()
    reason: str = ""

    def __bool__(self) -> bool:
        return self.generic


def general_position(A: npt.ArrayLike, b: npt.ArrayLike, *, tolerance: float | None = None) -> Position:
    """Whether the hyperplanes `A x = b` are generic: any k of them meet in dimension n - k, and not at all for k > n.

    Parameters
    ----------
    A, b : (rows, inputs) and (rows,)
        For layer k of a network: `net.layers[k].dense()` and `-net.layers[k].bias`.
    tolerance : float, optional
        As in `hyperplane_intersection`.

    Returns
    -------
    Position

    Raises
    ------
    InputError
        If there are more than 200,000 subsets to look at.

    Examples
    --------
    >>> general_position([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 1.0]).generic
    True
    >>> general_position([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 0.0])
    Position(generic=False, subset=(0, 1, 2), reason='3 hyperplanes of R^2 meet')
    """
    rows, bound = real_array(A, "A", ndim=2), real_array(b, "b", ndim=1)
    if len(rows) != len(bound) or not rows.shape[1]:
        raise InputError(f"A and b must have one row per hyperplane, got shapes {rows.shape} and {bound.shape}")
    n = rows.shape[1]
    most = min(n + 1, len(rows))
    if sum(comb(len(rows), k) for k in range(1, most + 1)) > _MOST_SUBSETS:
        raise InputError(
            f"{len(rows)} hyperplanes of R^{n} have more than {_MOST_SUBSETS:,} subsets of up to {most}: give fewer"
        )
    for k in range(1, most + 1):
        for subset in combinations(range(len(rows)), k):
            found = hyperplane_intersection(rows[list(subset)], bound[list(subset)], tolerance=tolerance)
            if k > n and found.consistent:
                return Position(False, subset, f"{k} hyperplanes of R^{n} meet")
            if k <= n and found.rank < k:
                return Position(False, subset, "a row is zero" if k == 1 else "their normals are linearly dependent")
    return Position(True)
