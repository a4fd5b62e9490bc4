"""The Gaussian law, singular covariances included."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, integer
from reluscope._text import count
from reluscope.errors import InputError, ReluscopeWarning
from reluscope.inputs._factor import Factor, covariance_factor, diagonal_factor, loading_factor
from reluscope.inputs._law import FAR, Box, Law, Restriction, data_rows, frozen, short, vector

LOG_ROOT_2PI = 0.9189385332046727418  # log sqrt(2 pi)


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Gaussian(Law):
    """Gaussian inputs: `x = mean + L u` with `u ~ N(0, I)`, so that `x ~ N(mean, L L^T)`.

    Parameters
    ----------
    mean : array_like, shape (n,), or float
        Expectation; a number stands for n = 1.
    cov : array_like, optional
        One variance, n variances, or a covariance matrix (n, n); the identity when nothing is given.
    factor : array_like, shape (n, k), optional
        `L` itself, any k, instead of `cov`.
    low_rank : array_like, shape (n, k), optional
        With `cov` as a number or n variances: `cov = diag(cov) + low_rank low_rank^T`.

    Raises
    ------
    InputError
        If shapes do not fit, entries are not finite, or the covariance is not symmetric or has a negative eigenvalue
        (beyond 1e-11 of its largest entry or eigenvalue, which counts as rounding and is repaired).

    Notes
    -----
    Zero variances and singular covariances are allowed. Only a factor is stored: a vector for independent inputs,
    a Cholesky factor (or eigenvectors, when singular) for a matrix, at O(n^3) once; nothing is ever inverted.

    Examples
    --------
    >>> Gaussian([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]])
    Gaussian(2 inputs, full covariance, mean [0, 1])
    """

    kind: ClassVar[str] = "gaussian"

    _mean: FloatArray
    factor: Factor

    def __init__(
        self,
        mean: npt.ArrayLike,
        cov: npt.ArrayLike | None = None,
        *,
        factor: npt.ArrayLike | None = None,
        low_rank: npt.ArrayLike | None = None,
    ) -> None:
        m = vector(mean, "mean")
        self._set(frozen(m), covariance_factor(len(m), cov, factor, low_rank))

    @classmethod
    def of_factor(cls, mean: FloatArray, factor: Factor) -> Gaussian:
        """A Gaussian on a factor that several laws share (no copy, no checks)."""
        out = cls.__new__(cls)
        out._set(mean, factor)
        return out

    def _set(self, mean: FloatArray, factor: Factor) -> None:
        object.__setattr__(self, "_mean", mean)
        object.__setattr__(self, "factor", factor)

    @classmethod
    def fit(cls, X: npt.ArrayLike, *, covariance: str = "full", ddof: int = 0) -> Gaussian:
        """The Gaussian with the sample's mean and covariance `sum (x - mean)(x - mean)^T / (N - ddof)`.

        Parameters
        ----------
        X : array_like, shape (N, n)
            Samples, one per row.
        covariance : {"full", "diag", "spherical"}
            A matrix, one variance per input, or one variance for all.
        ddof : int
            Subtracted from N in the divisor: 0 for maximum likelihood, 1 for the unbiased estimate.

        Returns
        -------
        Gaussian

        Notes
        -----
        Closed form, no regularisation: a constant column gets variance 0, and N <= n gives a singular full covariance,
        which is allowed with a `ReluscopeWarning`. The full factor comes from a QR decomposition of the centred data
        (cost N n^2), not from squared data.

        Examples
        --------
        >>> Gaussian.fit([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]]).mean
        array([2., 2.])
        """
        x = data_rows(X)
        kind = choice(covariance, "covariance", ("full", "diag", "spherical"))
        if kind == "full":
            warn_if_singular(x)
        below = integer(ddof, "ddof", low=0, high=len(x) - 1)
        mean, centred = centre(x)
        centred /= np.sqrt(len(x) - below)
        if kind == "full":
            factor = scatter_factor(centred)
        else:
            variance = (centred**2).sum(axis=0)
            sd = np.sqrt(variance if kind == "diag" else np.full(len(mean), variance.mean()))
            factor = diagonal_factor(sd)
        return cls.of_factor(frozen(mean), factor)

    @property
    def n(self) -> int:
        """Number of inputs."""
        return len(self._mean)

    @property
    def mean(self) -> FloatArray:
        """E x, shape (n,)."""
        return self._mean

    @property
    def variance(self) -> FloatArray:
        """Variances of the inputs, shape (n,)."""
        return self.factor.variance

    @property
    def sd(self) -> FloatArray:
        """Standard deviations of the inputs, shape (n,)."""
        return self.factor.spread

    @property
    def cov(self) -> FloatArray:
        """The covariance matrix `L L^T`, shape (n, n), built at each call."""
        return self.factor.cov()

    @property
    def gaussians(self) -> tuple[tuple[float, Gaussian], ...]:
        """`((1.0, self),)`."""
        return ((1.0, self),)

    @property
    def independent_inputs(self) -> bool:
        """Whether the covariance is held as variances."""
        return self.factor.diagonal

    def support(self) -> Box:
        """The mean where an input has no variance, infinite sides elsewhere."""
        still = self.sd == 0
        return np.where(still, self._mean, -np.inf), np.where(still, self._mean, np.inf)

    def far_box(self) -> Box:
        """`mean - 38.5 sd` and `mean + 38.5 sd`."""
        return self._mean - FAR * self.sd, self._mean + FAR * self.sd

    def _restricted(self, lower: FloatArray, upper: FloatArray) -> Restriction | None:
        from reluscope.inputs._truncated import restricted_gaussian

        return restricted_gaussian(self, lower, upper, 0.0)

    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray:
        from scipy.special import ndtr

        mean, sd = self._mean[i], self.sd[i]
        if sd == 0:
            return np.asarray(mean < t if strict else mean <= t)
        return np.asarray(ndtr((t - mean) / sd))

    @property
    def noise(self) -> tuple[Literal["normal"], int]:
        """One normal number per column of the factor."""
        return "normal", self.factor.k

    def from_noise(self, Z: FloatArray) -> FloatArray:
        """`mean + L z` for each row z, shape (m, n)."""
        return self.factor.push(Z) + self._mean

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.from_noise(rng.standard_normal((n, self.factor.k)))

    def _log_density(self, x: FloatArray) -> FloatArray:
        log_det = density_log_det(self.factor)
        white = self.factor.whiten(x - self._mean)
        return -0.5 * np.einsum("ij,ij->i", white, white) - log_det - self.n * LOG_ROOT_2PI

    def to_dict(self) -> dict[str, Any]:
        """`{"law": "gaussian", "mean": ..., "cov" | "factor" | "low_rank": ...}`."""
        return {"law": self.kind, "mean": self._mean.tolist(), **self.factor.plain()}

    def __repr__(self) -> str:
        inputs = "1 input" if self.n == 1 else f"{self.n} inputs"
        return f"Gaussian({inputs}, {self.factor.describe()}, mean {short(self._mean)})"


def warn_if_singular(x: FloatArray) -> None:
    """Warn when samples are too few for a covariance of full rank: some combinations of inputs then never vary."""
    rows, inputs = x.shape
    if rows <= inputs:
        warnings.warn(
            f"the fitted covariance is singular: {count(rows, 'sample')} of {count(inputs, 'input')} leave no spread "
            f"in {count(inputs - rows + 1, 'direction')}; give more samples, or fit covariance='diag'",
            ReluscopeWarning,
            stacklevel=3,
        )


def density_log_det(factor: Factor) -> float:
    """`log sqrt(det cov)`, or an `InputError` when the covariance is singular."""
    if factor.log_det == -np.inf:
        raise InputError(
            "this law has no density: its covariance is singular (an input with zero variance, or inputs that "
            "determine one another); ask for probabilities or samples instead"
        )
    return factor.log_det


def centre(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and centred rows; a constant column is centred to exact zeros."""
    low, high = x.min(axis=0), x.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = x.mean(axis=0)
        mean = np.where(low == high, low, np.clip(mean, low, high))
        centred = x - mean
        fits = np.isfinite(centred).all() and np.isfinite(np.square(high - low).sum() * len(x))
    if not fits:
        raise InputError("X has values so large that their variance overflows; rescale the data first")
    return mean, centred


def scatter_factor(rows: FloatArray) -> Factor:
    """A factor of `rows^T rows`, by QR: `min(N, n)` columns."""
    n = rows.shape[1]
    R = np.asarray(np.linalg.qr(rows, mode="r"))
    R = R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]
    V = R.T
    if (np.count_nonzero(V, axis=1) == 0).all():
        return diagonal_factor(np.zeros(n))
    pivots, spread = np.abs(np.diag(V)), np.sqrt(np.einsum("ij,ij->i", V, V))
    full = V.shape[1] == n and bool((pivots > n * np.finfo(float).eps * spread).all())
    if full and np.count_nonzero(V) == np.count_nonzero(pivots):
        return diagonal_factor(pivots)
    return loading_factor(V, triangular=full)
