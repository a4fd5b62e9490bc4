"""Covariances held as factors: `cov = L L^T` with `L = [diag(sd) | V]`; never an inverse, never n x n unless asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray, describe, real_array
from reluscope._lazy import late
from reluscope.errors import InputError
from reluscope.inputs._law import frozen

ROUNDING = 1e-11
"""Asymmetry and negative eigenvalues up to this share of the largest entry or eigenvalue count as rounding."""

_SINGULAR = 1e-13
"""A pivot below this share of its input's standard deviation means that there is no density."""


@dataclass(frozen=True, eq=False)
class Factor:
    """`L = [diag(sd) | V]` of shape (n, k); either part may be absent (None).

    `triangular` says that `L = V` is square, lower triangular and has no zero on its diagonal.
    """

    sd: FloatArray | None
    V: FloatArray | None
    triangular: bool = False

    @property
    def n(self) -> int:
        """Number of inputs (rows)."""
        part = self.V if self.sd is None else self.sd
        assert part is not None
        return len(part)

    @property
    def k(self) -> int:
        """Number of independent standard normals (columns)."""
        return (0 if self.sd is None else len(self.sd)) + (0 if self.V is None else self.V.shape[1])

    @property
    def diagonal(self) -> bool:
        """Whether the inputs are independent because only `sd` is there."""
        return self.V is None

    @cached_property
    def variance(self) -> FloatArray:
        """Diagonal of the covariance, shape (n,)."""
        own = np.zeros(self.n) if self.sd is None else self.sd**2
        return frozen(own if self.V is None else own + np.einsum("ij,ij->i", self.V, self.V))

    @cached_property
    def spread(self) -> FloatArray:
        """Standard deviations, shape (n,)."""
        if self.V is None:
            assert self.sd is not None
            return self.sd
        scale = np.abs(self.V).max(axis=1, initial=0.0)
        if self.sd is not None:
            scale = np.maximum(scale, self.sd)
        safe = np.where(scale > 0, scale, 1.0)  # squares of tiny or huge entries would under- or overflow
        total = ((self.V / safe[:, None]) ** 2).sum(axis=1)
        if self.sd is not None:
            total += (self.sd / safe) ** 2
        return frozen(scale * np.sqrt(total))

    def cov(self) -> FloatArray:
        """`L L^T`, shape (n, n)."""
        out = np.zeros((self.n, self.n)) if self.V is None else self.V @ self.V.T
        if self.sd is not None:
            out[np.diag_indices(self.n)] += self.sd**2
        return out

    def push(self, U: FloatArray) -> FloatArray:
        """`U L^T`: rows (m, k) of standard coordinates to rows (m, n)."""
        if self.sd is None:
            assert self.V is not None
            return U @ self.V.T
        out = U[:, : self.n] * self.sd
        if self.V is not None:
            out += U[:, self.n :] @ self.V.T
        return out

    def pull(self, W: Any) -> Any:
        """`W L`, shape (m, k): sparse when `W` is sparse and `L` diagonal, dense otherwise."""
        if self.sd is None:
            return np.asarray(W @ self.V)
        scaled = W @ sparse.diags_array(self.sd) if sparse.issparse(W) else W * self.sd
        if self.V is None:
            return sparse.csr_array(scaled) if sparse.issparse(scaled) else scaled
        dense = scaled.toarray() if sparse.issparse(scaled) else scaled
        return np.concatenate([dense, np.asarray(W @ self.V)], axis=1)

    def rows(self, index: npt.NDArray[np.intp]) -> FloatArray:
        """The named rows of `L`, dense, shape (len(index), k)."""
        parts = []
        if self.sd is not None:
            own = np.zeros((len(index), self.n))
            own[np.arange(len(index)), index] = self.sd[index]
            parts.append(own)
        if self.V is not None:
            parts.append(self.V[index])
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def whiten(self, Z: FloatArray) -> FloatArray:
        """A linear image of the rows of `Z` (m, n) whose squared lengths are `z^T cov^-1 z`; needs a density."""
        solve_triangular = late("scipy.linalg", "solve_triangular")

        if self._core is not None:  # diagonal plus low rank: the residual and the coefficients of a ridge regression
            assert self.sd is not None and self.V is not None
            w = Z / self.sd
            scaled = self.V / self.sd[:, None]
            half = solve_triangular(self._core, (w @ scaled).T, lower=True)
            z = solve_triangular(self._core, half, lower=True, trans="T").T
            return np.concatenate([w - z @ scaled.T, z], axis=1)
        if self.V is None:
            assert self.sd is not None
            return Z / self.sd
        return np.asarray(solve_triangular(self._lower, Z.T, lower=True).T)

    @cached_property
    def log_det(self) -> float:
        """`log sqrt(det cov)`; `-inf` when the covariance is singular."""
        if self._core is not None:
            assert self.sd is not None
            return float(np.log(self.sd).sum() + np.log(np.diag(self._core)).sum())
        if self.V is None:
            assert self.sd is not None
            return float(np.log(self.sd).sum()) if (self.sd > 0).all() else -np.inf
        if self.k < self.n:
            return -np.inf
        pivots = np.abs(np.diag(self._lower))
        if (pivots <= _SINGULAR * self.spread).any():
            return -np.inf
        return float(np.log(pivots).sum())

    @cached_property
    def _core(self) -> FloatArray | None:
        """Cholesky factor of `I + (V/sd)^T (V/sd)` when both parts are there and every sd is positive."""
        if self.sd is None or self.V is None or not (self.sd > 0).all():
            return None
        scaled = self.V / self.sd[:, None]
        return np.asarray(np.linalg.cholesky(np.eye(scaled.shape[1]) + scaled.T @ scaled), dtype=np.float64)

    @cached_property
    def _lower(self) -> FloatArray:
        """A lower triangular square factor, by QR of `L^T`."""
        assert self.V is not None
        if self.triangular:
            return self.V
        L = self.V if self.sd is None else np.concatenate([np.diag(self.sd), self.V], axis=1)
        return np.asarray(np.linalg.qr(L.T, mode="r")).T

    def plain(self) -> dict[str, Any]:
        """The constructor arguments of `Gaussian` that give this factor back, as lists."""
        if self.V is None:
            return {"cov": self.variance.tolist()}
        if self.sd is None:
            return {"factor": self.V.tolist()}
        return {"cov": (self.sd**2).tolist(), "low_rank": self.V.tolist()}

    def __repr__(self) -> str:
        return f"Factor({self.n} inputs, {self.describe()})"

    def describe(self) -> str:
        """`diagonal`, `full covariance`, `rank 5` or `diagonal + rank 5`."""
        if self.V is None:
            return "diagonal"
        if self.sd is not None:
            return f"diagonal + rank {self.V.shape[1]}"
        return "full covariance" if self.k >= self.n else f"rank {self.k}"


def diagonal_factor(sd: FloatArray) -> Factor:
    """Independent inputs with these standard deviations."""
    return Factor(frozen(sd), None)


def covariance_factor(n: int, cov: Any, factor: Any, low_rank: Any) -> Factor:
    """The factor behind the arguments of `Gaussian`; see there."""
    if factor is not None:
        if cov is not None or low_rank is not None:
            raise InputError("factor stands for the whole covariance (cov = factor factor^T): give no cov or low_rank")
        return loading_factor(_loading(factor, "factor", n))
    if low_rank is not None:
        V = _loading(low_rank, "low_rank", n)
        if cov is None:
            return loading_factor(V)
        own = real_array(cov, "cov", ndim=(0, 1))
        sd = _sd(own, n)
        return Factor(frozen(sd), frozen(V)) if (sd > 0).any() else loading_factor(V)
    if cov is None:
        return diagonal_factor(np.ones(n))
    C = real_array(cov, "cov", ndim=(0, 1, 2))
    if C.ndim < 2:
        return diagonal_factor(_sd(C, n))
    if C.shape != (n, n):
        raise InputError(
            f"cov must be a variance, {n} variances or a matrix of shape ({n}, {n}) as mean has {n} entries, "
            f"got shape {C.shape}"
        )
    return matrix_factor(C)


def loading_factor(V: FloatArray, *, triangular: bool = False) -> Factor:
    """`cov = V V^T`."""
    out = Factor(None, frozen(V), triangular)
    if not np.isfinite(out.spread).all():
        raise InputError("the covariance overflows: an entry of the factor is too large; rescale the inputs")
    return out


def matrix_factor(C: FloatArray, name: str = "cov") -> Factor:
    """A factor of a symmetric positive semidefinite matrix: Cholesky, or eigenvectors when that breaks down.

    Asymmetry and negative eigenvalues within `ROUNDING` are repaired, anything beyond is refused.
    """
    n = len(C)
    scale = float(np.abs(C).max())
    if scale == 0:
        return diagonal_factor(np.zeros(n))
    unit = C / scale
    gap = np.abs(unit - unit.T)
    if gap.max() > ROUNDING:
        i, j = (int(v) for v in np.unravel_index(int(np.argmax(gap)), gap.shape))
        raise InputError(
            f"{name} must be symmetric, got {C[i, j]} at ({i}, {j}) and {C[j, i]} at ({j}, {i}); "
            "if that is meant as rounding, pass (cov + cov.T) / 2"
        )
    unit = (unit + unit.T) / 2
    own = np.diag(unit).copy()
    if own.min() < -ROUNDING:
        i = int(np.argmin(own))
        raise InputError(f"{name} has the negative variance {C[i, i]} at ({i}, {i})")
    own = np.maximum(own, 0.0)
    if np.count_nonzero(unit) == np.count_nonzero(np.diag(unit)):
        return diagonal_factor(np.sqrt(own) * np.sqrt(scale))
    try:
        return loading_factor(np.linalg.cholesky(unit) * np.sqrt(scale), triangular=True)
    except np.linalg.LinAlgError:
        V = _eigen_factor(unit, own, name)
        return loading_factor(V * np.sqrt(scale)) if V.shape[1] else diagonal_factor(np.zeros(n))


def _eigen_factor(unit: FloatArray, own: FloatArray, name: str) -> FloatArray:
    """A factor with as many columns as the matrix has rank; `own` is its diagonal, cleared of negative rounding."""
    n = len(unit)
    live = np.flatnonzero(own > 0)
    rest = np.abs(unit[own == 0]).max(initial=0.0)
    # In units of each input's own spread first: inputs may differ by many orders of magnitude.
    if rest <= ROUNDING and len(live):
        s = np.sqrt(own[live])
        values, vectors = np.linalg.eigh(unit[np.ix_(live, live)] / s[:, None] / s)
        if values[0] >= -ROUNDING * values[-1]:
            keep = values > len(live) * np.finfo(float).eps * values[-1]
            V = np.zeros((n, int(keep.sum())))
            V[live] = s[:, None] * vectors[:, keep] * np.sqrt(values[keep])
            return V
    values, vectors = np.linalg.eigh(unit)
    if values[0] < -ROUNDING * max(values[-1], 0.0) or values[-1] <= 0:
        raise InputError(
            f"{name} must be positive semidefinite, but its smallest eigenvalue is {values[0]:.3g} where the largest "
            f"is {values[-1]:.3g} (in units of its largest entry); compute it in float64, or add a small "
            "multiple of the identity if it came from rounded numbers"
        )
    keep = values > n * np.finfo(float).eps * values[-1]
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep]))


def _sd(variances: FloatArray, n: int) -> FloatArray:
    if variances.ndim == 1 and len(variances) != n:
        raise InputError(
            f"cov must be a variance, {n} variances or a matrix of shape ({n}, {n}) as mean has {n} entries, "
            f"got {len(variances)} variances"
        )
    if (variances < 0).any():
        raise InputError(f"cov holds the negative variance {variances.min()}")
    return np.broadcast_to(np.sqrt(variances), (n,))


def _loading(value: Any, name: str, n: int) -> FloatArray:
    V = real_array(value, name, ndim=(1, 2))
    if V.ndim == 1:
        V = V[:, None]
    if V.shape[0] != n or V.shape[1] < 1:
        raise InputError(f"{name} must have shape ({n}, k) as mean has {n} entries, got {describe(value)}")
    return V
