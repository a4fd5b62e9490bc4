"""Where hyperplanes meet: the affine space `{x : A x = b}`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, islice
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, real, real_array
from reluscope.errors import InputError

_MOST_SUBSETS, _AT_A_TIME = 10_000_000, 20_000
"""Subsets of hyperplanes that are looked at for general position: in all (less than a minute), and together."""


@dataclass(frozen=True, eq=False)
class Intersection:
    """The points `point + basis.T s` with any `s`: the solutions of `A x = b`.

    Attributes
    ----------
    point : (inputs,) array
        The solution nearest to the origin; where there is none, the point with the least sum of squared distances to
        the hyperplanes.
    basis : (inputs - rank, inputs) array
        Orthonormal rows, orthogonal to `point`.
    rank : int
        Independent hyperplanes.
    consistent : bool
        Whether the hyperplanes have a point in common.
    residual : float
        The largest distance from `point` to a hyperplane.
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


def hyperplane_intersection(A: npt.ArrayLike, b: npt.ArrayLike, *, rounding: float | None = None) -> Intersection:
    """The intersection of the hyperplanes `A x = b`: least-norm point and null-space basis.

    Parameters
    ----------
    A, b : (rows, inputs) and (rows,)
    rounding : float, optional
        What counts as 0, see Notes; `16 eps (rows + inputs)` by default.

    Returns
    -------
    Intersection

    Raises
    ------
    InputError
        If there is not one `b` for each row, or a hyperplane is too far from the origin for float64.

    Notes
    -----
    Rows are scaled to unit length, so that `A_i . x - b_i` is the distance from `x` to hyperplane i, and the singular
    value decomposition `A = U S V^T` gives `point = V S^+ U^T b`. The rank is the number of singular values above
    `rounding` times the largest; the hyperplanes are consistent when `point` is within `rounding * (|point| + max |b|)
    / (least singular value kept)` of each. A zero row means the whole space if its `b` is 0, and nothing otherwise.
    Cost: one decomposition.
    """
    rows, bound = real_array(A, "A", ndim=2), real_array(b, "b", ndim=1)
    if len(rows) != len(bound) or not rows.shape[1]:
        raise InputError(f"A and b must have one row per hyperplane, got shapes {rows.shape} and {bound.shape}")
    share = _share(len(rows), rows.shape[1], rounding)
    unit, level = _distances(rows, bound)
    impossible = bool((bound[~rows.any(axis=1)] != 0).any())
    left, size, right = np.linalg.svd(unit, full_matrices=True)
    rank = int((size > share * size[0]).sum()) if len(size) else 0
    point = right[:rank].T @ ((left[:, :rank].T @ level) / size[:rank])
    residual = float(np.abs(unit @ point - level).max(initial=0.0))
    blur = share * (np.linalg.norm(point) + np.abs(level).max(initial=0.0)) / (size[rank - 1] if rank else 1.0)
    consistent = bool(residual <= blur) and not impossible
    return Intersection(point, np.ascontiguousarray(right[rank:]), rank, consistent, np.inf if impossible else residual)


def _share(rows: int, n: int, rounding: float | None) -> float:
    """The relative size below which a singular value counts as 0."""
    return 16 * EPS * (rows + n) if rounding is None else real(rounding, "rounding", low=0.0, high=1.0)


def _distances(rows: FloatArray, bound: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The hyperplanes whose rows are not 0, rows of length 1: `unit @ x - level` are distances."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    real_rows = largest > 0
    # Two steps, so that rows of any size have a norm that neither overflows nor vanishes.
    unit = rows[real_rows] / largest[real_rows, None]
    norm = np.linalg.norm(unit, axis=1)
    with np.errstate(over="ignore"):
        level = bound[real_rows] / largest[real_rows] / norm
    if not np.isfinite(level).all():
        i = int(np.flatnonzero(real_rows)[np.argmin(np.isfinite(level))])
        raise InputError(f"hyperplane {i} is too far from the origin for float64: |b| / |A row| overflows; rescale it")
    return unit / norm[:, None], level


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


def general_position(A: npt.ArrayLike, b: npt.ArrayLike, *, rounding: float | None = None) -> Position:
    """Whether the hyperplanes `A x = b` are generic: any k of them meet in dimension n - k, and not at all for k > n.

    Parameters
    ----------
    A, b : (rows, inputs) and (rows,)
        For layer k of a network: `net.layers[k].dense()` and `-net.layers[k].bias`.
    rounding : float, optional
        As in `hyperplane_intersection`.

    Returns
    -------
    Position

    Raises
    ------
    InputError
        If there are more than 10,000,000 subsets to look at.

    Notes
    -----
    Every subset of up to n + 1 hyperplanes is decomposed, many at a time; one that is near its limits is decided by
    `hyperplane_intersection`. Cost: some microseconds a subset.

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
    for i in range(len(rows)):
        if not hyperplane_intersection(rows[[i]], bound[[i]], rounding=rounding).rank:
            return Position(False, (i,), "a row is zero")
    unit, level = _distances(rows, bound)
    for k in range(2, most + 1):
        for subset in _suspects(unit, level, k, rounding):
            found = hyperplane_intersection(rows[list(subset)], bound[list(subset)], rounding=rounding)
            if k > n and found.consistent:
                return Position(False, subset, f"{k} hyperplanes of R^{n} meet")
            if k <= n and found.rank < k:
                return Position(False, subset, "their normals are linearly dependent")
    return Position(True)


def _suspects(unit: FloatArray, level: FloatArray, k: int, rounding: float | None) -> Iterator[tuple[int, ...]]:
    """Subsets of k hyperplanes that `hyperplane_intersection` might call dependent, or for k > n consistent: those
    within twice what it counts as 0.
    """
    n = unit.shape[1]
    share = 2.0 * _share(k, n, rounding)
    every = combinations(range(len(unit)), k)
    while len(some := np.fromiter(chain.from_iterable(islice(every, _AT_A_TIME)), dtype=np.intp).reshape(-1, k)):
        left, size, right = np.linalg.svd(unit[some], full_matrices=False)
        near = size[:, -1] <= share * size[:, 0]
        if k > n:
            value = level[some]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                point = np.einsum("sri,sr->si", right, np.einsum("sir,si->sr", left, value) / size)
                apart = np.abs(np.einsum("sij,sj->si", unit[some], point) - value).max(axis=1)
                blur = share * (np.linalg.norm(point, axis=1) + np.abs(value).max(axis=1)) / size[:, -1]
                near |= ~(apart > blur)
        for subset in some[near].tolist():
            yield tuple(subset)
