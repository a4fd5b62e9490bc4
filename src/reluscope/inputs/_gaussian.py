"""The Gaussian law, singular covariances included."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, instance, integer, real, real_array
from reluscope._lazy import late
from reluscope._text import count
from reluscope.errors import InputError, ReluscopeWarning
from reluscope.inputs._factor import Factor, covariance_factor, diagonal_factor, loading_factor
from reluscope.inputs._law import (
    FAR,
    NEVER,
    VERSION,
    Box,
    Conditional,
    Index,
    Law,
    Restriction,
    data_rows,
    frozen,
    noise_rows,
    short,
    vector,
)

LOG_ROOT_2PI = 0.9189385332046727418  # log sqrt(2 pi)

_RANK = 1e-10
"""Directions of fixed inputs whose singular value is below this share of the largest have no spread."""


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
        """A Gaussian on a factor that several laws share; neither is copied.

        Parameters
        ----------
        mean : (n,) array
        factor : Factor

        Returns
        -------
        Gaussian
        """
        instance(factor, "factor", Factor, "the factor of a Gaussian")
        out = cls.__new__(cls)
        out._set(mean if isinstance(mean, np.ndarray) and mean.dtype == np.float64 else vector(mean, "mean"), factor)
        if out._mean.shape != (factor.n,) or not np.isfinite(out._mean).all():
            raise InputError(f"mean must hold {factor.n} finite numbers, got {describe(mean)}")
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

    @classmethod
    def ar1(
        cls, steps: int, coefficient: float, noise: float, *, mean: float = 0.0, start: float | None = None
    ) -> Gaussian:
        """A window of an AR(1) sequence: `x[t+1] - mean = coefficient (x[t] - mean) + noise e[t]`, e standard normal.

        Parameters
        ----------
        steps : int
            Length of the window: the number of inputs.
        coefficient, noise : float
            The noise is a standard deviation.
        mean : float
        start : float, optional
            The value of `x[0]`; by default it is drawn from the stationary law, which needs `|coefficient| < 1`.

        Returns
        -------
        Gaussian

        Examples
        --------
        >>> Gaussian.ar1(3, 0.5, 1.0).cov.round(4).tolist()
        [[1.3333, 0.6667, 0.3333], [0.6667, 1.3333, 0.6667], [0.3333, 0.6667, 1.3333]]
        """
        a, sd = real(coefficient, "coefficient"), real(noise, "noise", low=0.0)
        if start is None and not abs(a) < 1:
            raise InputError(f"coefficient must be between -1 and 1 for a stationary sequence, got {a}; give start")
        spread = 0.0 if start is not None else sd / np.sqrt(1.0 - a * a)
        first = 0.0 if start is None else real(start, "start") - mean
        out = cls.sequence(steps, [[a]], [[sd * sd]], [first], [[spread**2]])
        return cls.of_factor(frozen(out.mean + real(mean, "mean")), out.factor)

    @classmethod
    def sequence(
        cls,
        steps: int,
        transition: npt.ArrayLike,
        noise: npt.ArrayLike,
        start: npt.ArrayLike,
        start_cov: npt.ArrayLike | None = None,
    ) -> Gaussian:
        """A window of a linear-Gaussian sequence as one Gaussian: `x[t+1] = A x[t] + w[t]`, `w[t] ~ N(0, Q)`.

        Parameters
        ----------
        steps : int
            Length of the window. Inputs are `x[0]`, then `x[1]`, and so on: `steps` times the size of the state.
        transition, noise : array_like, shape (d, d)
            A, and the covariance Q.
        start : array_like, shape (d,)
            The mean of `x[0]`.
        start_cov : array_like, optional
            Its covariance; none by default: `x[0]` is known.

        Returns
        -------
        Gaussian

        Notes
        -----
        An event on any of the steps is a union: `"y[0] > 1 or y[1] > 1 or ..."` for a network that is applied to
        each step.
        """
        count = integer(steps, "steps", low=1, high=100_000)
        A = real_array(transition, "transition", ndim=2)
        d = len(A)
        mean = vector(start, "start", d)
        if A.shape != (d, d):
            raise InputError(f"transition must be square, got shape {A.shape}")
        Q = cls(np.zeros(d), noise).factor
        first = cls(mean, np.zeros(d) if start_cov is None else start_cov).factor
        if Q.n != d:
            raise InputError(f"noise must have shape ({d}, {d}), got {np.shape(noise)}")
        each = [first.rows(np.arange(d))] + [Q.rows(np.arange(d))] * (count - 1)
        L = np.zeros((count * d, sum(e.shape[1] for e in each)))
        means = np.zeros(count * d)
        column = 0
        for t, own in enumerate(each):
            here = slice(t * d, (t + 1) * d)
            if t:
                before = slice((t - 1) * d, t * d)
                L[here], means[here] = A @ L[before], A @ means[before]
            else:
                means[here] = mean
            L[here, column : column + own.shape[1]] += own
            column += own.shape[1]
        if not np.isfinite(L).all() or not np.isfinite(means).all():
            raise InputError("the sequence overflows within the window: transition has an eigenvalue far above 1")
        return cls.of_factor(frozen(means), loading_factor(L))

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

    def _given(self, lower: FloatArray, upper: FloatArray) -> Law:
        from reluscope.inputs._truncated import Truncated

        return Truncated(self, lower, upper)

    def _at(self, index: Index, values: FloatArray) -> Conditional:
        """`x = m + L u` given `L_i u = v - m_i`: u is fixed along the rows of L_i, and free across."""
        rows = self.factor.rows(index)
        scale = np.where(self.sd[index] > 0, self.sd[index], 1.0)
        U, s, Vt = np.linalg.svd(rows / scale[:, None], full_matrices=False)
        r = int((s > _RANK * max(float(s.max(initial=0.0)), 1e-300)).sum()) if rows.any() else 0
        wanted = (values - self.mean[index]) / scale
        along = U[:, :r].T @ wanted
        if np.abs(U[:, :r] @ along - wanted).max() > 1e-9 * (1.0 + np.abs(wanted).max()):
            return NEVER
        u = Vt[:r].T @ (along / s[:r])
        mean = self.mean + self.factor.push(u[None])[0]
        mean[index] = values
        log = -0.5 * float(u @ u) - r * LOG_ROOT_2PI
        if r == int((self.sd[index] > 0).sum()):
            log -= float(np.log(s[:r]).sum()) + float(np.log(scale[self.sd[index] > 0]).sum())
        else:  # the values lie on a plane of r dimensions: the density there
            log -= float(np.log(np.linalg.svd(rows, compute_uv=False)[:r]).sum())
        if self.factor.diagonal:
            sd = self.sd.copy()
            sd[index] = 0.0
            return Conditional(Gaussian.of_factor(frozen(mean), diagonal_factor(sd)), r, log)
        L = self.factor.rows(np.arange(self.n))
        L = L - (L @ Vt[:r].T) @ Vt[:r]
        L[index] = 0.0
        # What is left of inputs that the fixed ones determine is rounding.
        L[np.sqrt((L**2).sum(axis=1)) <= 1e-12 * self.sd] = 0.0
        return Conditional(Gaussian.of_factor(frozen(mean), loading_factor(frozen(L))), r, log)

    def _keep(self, index: Index) -> Gaussian:
        factor = self.factor
        small = diagonal_factor(frozen(self.sd[index])) if factor.diagonal else loading_factor(factor.rows(index))
        return Gaussian.of_factor(frozen(self._mean[index]), small)

    def _affine(self, s: FloatArray, t: FloatArray) -> Gaussian:
        return self._moved(s, t, {})

    def _moved(self, s: FloatArray, t: FloatArray, known: dict[int, Factor]) -> Gaussian:
        """The law of `s x + t`; Gaussians that share a factor share the new one through `known`, by its id."""
        own = self.factor
        if id(own) not in known:
            known[id(own)] = (
                diagonal_factor(frozen(s * self.sd))
                if own.diagonal
                else loading_factor(frozen(s[:, None] * own.rows(np.arange(self.n))), triangular=own.triangular)
            )
        return Gaussian.of_factor(frozen(s * self._mean + t), known[id(own)])

    def _blocks(self) -> list[tuple[float, Law]]:
        return [(1.0, self)]

    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray:
        ndtr = late("scipy.special", "ndtr")

        mean, sd = self._mean[i], self.sd[i]
        if sd == 0:
            return np.asarray(mean < t if strict else mean <= t)
        return np.asarray(ndtr((t - mean) / sd))

    @property
    def noise(self) -> tuple[Literal["normal"], int]:
        """One normal number per column of the factor."""
        return "normal", self.factor.k

    def from_noise(self, Z: FloatArray) -> FloatArray:
        """`mean + L z` for each row z, shape (m, n).

        Parameters
        ----------
        Z : (m, k) array
            Standard normal numbers.

        Returns
        -------
        (m, n) array
        """
        return self._pushed(noise_rows(Z, self.factor.k))

    def _pushed(self, Z: FloatArray) -> FloatArray:
        return self.factor.push(Z) + self._mean

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self._pushed(rng.standard_normal((n, self.factor.k)))

    def _log_density(self, x: FloatArray) -> FloatArray:
        log_det = density_log_det(self.factor)
        white = self.factor.whiten(x - self._mean)
        return -0.5 * np.einsum("ij,ij->i", white, white) - log_det - self.n * LOG_ROOT_2PI

    def to_dict(self) -> dict[str, Any]:
        """`{"law": "gaussian", "version": 1, "mean": ..., "cov" | "factor" | "low_rank": ...}`."""
        return {"law": self.kind, "version": VERSION, "mean": self._mean.tolist(), **self.factor.plain()}

    def __repr__(self) -> str:
        inputs = "1 input" if self.n == 1 else f"{self.n} inputs"
        return f"Gaussian({inputs}, {self.factor.describe()}, mean {short(self._mean)})"


def shared_factors(laws: Sequence[Law]) -> list[Gaussian]:
    """Gaussians, those with equal factors made to share one: what is worked out for a factor is worked out once."""
    known: dict[tuple[bytes, ...], Factor] = {}
    out = []
    for g in laws:
        assert isinstance(g, Gaussian)
        parts = tuple(b"" if part is None else part.tobytes() for part in (g.factor.sd, g.factor.V))
        out.append(Gaussian.of_factor(g.mean, known.setdefault(parts, g.factor)))
    return out


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
