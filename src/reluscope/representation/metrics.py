"""Numbers that describe a cloud of points: spectra, widths, angles, distances.

A cloud is an array `Z` of shape (n, d), one row per point. With the mean `m` of the rows, the *centred* cloud is
`Z - m`; its singular values `s_1 >= s_2 >= ...` are the square roots of n times the eigenvalues of the covariance.
Singular values come from the Gram matrix, which loses half of the digits of small ones; so the small ones are found
again from the cloud projected to their own directions, which gives them to 1e-12 of the largest.
A singular value counts as zero when it is at most `zero_below` times the largest one of the cloud *before* centring:
rounding in the points is relative to their size, not to their spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, integer, real_array
from reluscope._lazy import late
from reluscope.errors import InputError

ZERO_BELOW = 1e-10
"""Singular values below this share of the largest uncentred one count as zero (1e-20 for eigenvalues)."""

_THIN = 1e-8
"""Eigenvalues of the Gram matrix above this share of the largest have eight digits; smaller ones are found again."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values of one cloud. `centred` and `uncentred` are in decreasing order, zeros included.

    `axes` (min(n, d), d) holds the principal directions, `mean` (d,) the mean of the rows.
    """

    centred: FloatArray
    uncentred: FloatArray
    axes: FloatArray
    mean: FloatArray

    def stable_rank(self, centred: bool = True) -> float:
        """`sum s_i^2 / s_1^2`; 0 for a cloud of no extent."""
        return _stable_rank(self.centred if centred else self.uncentred)

    @cached_property
    def participation_ratio(self) -> float:
        """`(sum s_i^2)^2 / sum s_i^4` of the centred cloud; 0 for a single point."""
        if not self.rank:
            return 0.0
        share = (self.centred / self.centred[0]) ** 2
        return float(share.sum() ** 2 / (share**2).sum())

    @property
    def rank(self) -> int:
        """Number of non-zero singular values of the centred cloud, which is that of the covariance's eigenvalues."""
        return int(np.count_nonzero(self.centred))


def spectrum_of(Z: FloatArray, zero_below: float = ZERO_BELOW) -> Spectrum:
    """The spectrum of a cloud (n, d). Cost: two to four times `n d^2` operations."""
    n, d = Z.shape
    size = float(np.abs(Z).max(initial=0.0))
    if not n or size == 0.0:
        zeros = np.zeros(min(n, d))
        return Spectrum(zeros, zeros, np.eye(len(zeros), d), np.zeros(d))
    scaled = Z / size  # the squares of very small and very large clouds stay within range
    mean = scaled.mean(axis=0)
    apart = scaled - mean
    if n > d:
        gram = apart.T @ apart
        centred, axes = _from_gram(gram, apart)
        uncentred = np.sqrt(np.maximum(np.linalg.eigvalsh(gram + n * np.outer(mean, mean))[::-1], 0.0))
    else:
        _, centred, axes = np.linalg.svd(apart, full_matrices=False)
        uncentred = np.linalg.svd(scaled, compute_uv=False)
    floor = zero_below * float(uncentred[0])
    return Spectrum(
        np.where(centred > floor, centred, 0.0) * size,
        np.where(uncentred > floor, uncentred, 0.0) * size,
        axes,
        mean * size,
    )


def _from_gram(gram: FloatArray, cloud: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Singular values (decreasing) and right singular vectors (rows) of a cloud with the Gram matrix `gram`."""
    squares, columns = np.linalg.eigh(gram)
    thin = int((squares <= _THIN * squares[-1]).sum())
    if thin:
        narrow = cloud @ columns[:, :thin]
        own, turn = np.linalg.eigh(narrow.T @ narrow)
        squares[:thin], columns[:, :thin] = own, columns[:, :thin] @ turn
    order = np.argsort(squares)[::-1]
    return np.sqrt(np.maximum(squares[order], 0.0)), columns.T[order]


def stable_rank(Z: npt.ArrayLike, *, centred: bool = True) -> float:
    """`|Z|_F^2 / |Z|_2^2`, of the rows minus their mean when `centred`, of the rows as they are otherwise.

    Between 1 and the rank (0 for a cloud of no extent). The two differ a lot after a ReLU: all coordinates are
    non-negative, so the mean is the leading direction of the uncentred cloud.
    """
    return spectrum_of(_cloud(Z)).stable_rank(centred)


@dataclass(frozen=True, slots=True)
class Width:
    """A spherical mean width: its value, one standard error (0 when exact), and whether it is exact."""

    value: float
    error: float
    exact: bool


def mean_width(
    Z: npt.ArrayLike, *, directions: int = 128, rng: np.random.Generator | None = None, spectrum: Spectrum | None = None
) -> Width:
    """`E[max_i u.z_i - min_i u.z_i]` for a direction `u` uniform on the unit sphere of R^d.

    Exact when the points lie on a line or in a plane: in the plane the mean width is the perimeter of the convex hull
    over π, and a set in a k-plane of R^d has `w_d = w_k g(k) / g(d)` with `g(k) = Γ((k+1)/2) / Γ(k/2)`, the mean
    length of the projection of a random direction. Otherwise the mean over random directions with its standard error.
    """
    cloud = _cloud(Z)
    n, d = cloud.shape
    found = spectrum_of(cloud) if spectrum is None else spectrum
    if found.rank <= 2:
        k = found.rank
        if k == 0:
            return Width(0.0, 0.0, True)
        flat = (cloud - found.mean) @ found.axes[:k].T
        own = float(np.ptp(flat[:, 0])) if k == 1 else _hull_perimeter(flat) / math.pi
        return Width(own * _projection(k, d), 0.0, True)
    count = integer(directions, "directions", low=2)
    draw = (np.random.default_rng(0) if rng is None else rng).normal(size=(count, d))
    draw /= np.linalg.norm(draw, axis=1, keepdims=True)
    widths = np.empty(count)
    step = max(1, (1 << 22) // max(n, 1))  # products of 32 MB at a time
    for start in range(0, count, step):
        along = draw[start : start + step] @ cloud.T
        widths[start : start + step] = along.max(axis=1) - along.min(axis=1)
    size = float(widths.max()) or 1.0
    return Width(float(widths.mean()), size * float((widths / size).std(ddof=1)) / math.sqrt(count), False)


def angles(A: npt.ArrayLike, B: npt.ArrayLike) -> FloatArray:
    """The angle in [0, π] between row i of A and row i of B; nan where one of them is 0.

    `2 atan2(|a - b|, |a + b|)` for the unit vectors a and b: accurate for small angles and near π too.
    """
    a, b = _cloud(A, "A"), _cloud(B, "B")
    if a.shape != b.shape:
        raise InputError(f"A and B must have the same shape, got {a.shape} and {b.shape}")
    with np.errstate(invalid="ignore", divide="ignore"):
        a = a / _norms(a)[:, None]
        b = b / _norms(b)[:, None]
    return 2 * np.arctan2(np.linalg.norm(a - b, axis=1), np.linalg.norm(a + b, axis=1))


def expected_angle(angle: npt.ArrayLike, layers: int = 1) -> FloatArray:
    """The angle between two vectors after `layers` infinitely wide bias-free ReLU layers with Gaussian weights.

    `cos θ' = (sin θ + (π - θ) cos θ) / π`, applied `layers` times: it falls to 0 like `3π / layers`.
    """
    theta = real_array(angle, "angle")
    for _ in range(integer(layers, "layers", low=0)):
        # 1 - cos θ' without cancellation, then θ' = 2 asin sqrt((1 - cos θ') / 2)
        gap = (theta * np.cos(theta) - np.sin(theta)) / np.pi + 2 * np.sin(theta / 2) ** 2
        theta = 2 * np.arcsin(np.sqrt(np.clip(gap / 2, 0.0, 1.0)))
    return theta


def row_norms(Z: FloatArray) -> FloatArray:
    """Euclidean norm of each row, without overflow or underflow."""
    return _norms(Z)


def _cloud(Z: npt.ArrayLike, name: str = "Z") -> FloatArray:
    cloud = real_array(Z, name, ndim=2)
    if not cloud.size:
        raise InputError(f"{name} must have at least one row and one column, got shape {cloud.shape}")
    return cloud


def _stable_rank(values: FloatArray) -> float:
    if not len(values) or values[0] == 0:
        return 0.0
    return float(((values / values[0]) ** 2).sum())


def _projection(k: int, d: int) -> float:
    """Mean length of the projection of a random unit vector of R^d to a k-plane, relative to k = d."""

    def g(j: int) -> float:
        return math.lgamma((j + 1) / 2) - math.lgamma(j / 2)

    return math.exp(g(k) - g(d))


def _hull_perimeter(points: FloatArray) -> float:
    ConvexHull = late("scipy.spatial", "ConvexHull")

    scale = float(np.abs(points).max())
    # Joggling is not wanted; nearly flat sets come here only above the rank's threshold, which Qhull accepts scaled.
    spread = points / np.maximum(np.abs(points).max(axis=0), 1e-300)
    hull = points[ConvexHull(spread).vertices] / scale
    return float(np.linalg.norm(hull - np.roll(hull, 1, axis=0), axis=1).sum()) * scale


def _norms(Z: FloatArray) -> FloatArray:
    size = np.abs(Z).max(axis=1, initial=0.0)
    safe = np.where(size > 0, size, 1.0)
    return size * np.sqrt(((Z / safe[:, None]) ** 2).sum(axis=1))
