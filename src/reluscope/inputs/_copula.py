"""Any marginals with a Gaussian copula: a Gaussian pushed through one piecewise-linear function per input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, real, real_array, several
from reluscope._lazy import late
from reluscope.activations import Units
from reluscope.errors import InputError
from reluscope.inputs._gaussian import Gaussian
from reluscope.inputs._law import NEVER, VERSION, Box, Conditional, Flags, Index, Law, data_rows, frozen
from reluscope.inputs._marginal import DEFAULT_ACCURACY, Marginal, marginal
from reluscope.inputs._names import column_names
from reluscope.inputs._truncated import Truncated
from reluscope.network import Layer

_SAME = 1e-12
"""Correlations this close to 1 make one score a function of the other."""

_NODES = 20
_REACH = 9.0


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Copula(Law):
    """Inputs with any marginals and a Gaussian copula: `x_i = T_i(z_i)`, z Gaussian, T_i piecewise linear.

    Parameters
    ----------
    marginals : sequence
        One per input: a frozen distribution of `scipy.stats` (anything with a quantile function), a sample of the
        column, a pair `(values, probabilities)`, or a `Marginal`. A mapping gives the inputs their names.
    correlation : array_like, shape (n, n), optional
        Correlations of the normal scores z; independent inputs when it is None.
    accuracy : float
        Largest distance of each marginal's cdf from the one asked for; `cdf_error` says what it came to.
    names : sequence of str, optional
        Names of the inputs.

    Raises
    ------
    InputError
        If a marginal has no quantile function, or `correlation` is no correlation matrix.

    Notes
    -----
    The law *is* the piecewise-linear one: every answer about it is as exact as about a Gaussian, because T is a layer
    before the network. What differs from the marginals asked for is `cdf_error` per input; tails beyond the last knot
    (probability 1e-7) are linear in the normal score, or end at the distribution's bound. Constant pieces of T are
    atoms, and exact. `of_scores` takes any law of the scores that is made of Gaussians.

    Examples
    --------
    >>> from scipy import stats
    >>> law = Copula([stats.lognorm(0.5), stats.uniform()], [[1.0, 0.3], [0.3, 1.0]])
    >>> law.n, bool((law.cdf_error <= 1e-3).all())
    (2, True)
    """

    kind: ClassVar[str] = "copula"

    scores: Law
    """The law of the normal scores z."""
    marginals: tuple[Marginal, ...]
    names: tuple[str, ...] | None

    def __init__(
        self,
        marginals: Sequence[Any] | Mapping[str, Any],
        correlation: npt.ArrayLike | None = None,
        *,
        accuracy: float = DEFAULT_ACCURACY,
        names: Sequence[str] | None = None,
    ) -> None:
        accuracy = real(accuracy, "accuracy", low=0.0, high=0.5, open_=True)
        if isinstance(marginals, Mapping):
            names, marginals = tuple(marginals) if names is None else names, list(marginals.values())
        if not isinstance(marginals, (list, tuple)) or not len(marginals):
            raise InputError(f"marginals must be a list of distributions, one per input, got {describe(marginals)}")
        n = len(marginals)
        said = column_names(names, n)
        places = [f"marginals[{i}]" + (f" ({said[i]})" if said else "") for i in range(n)]
        parts = tuple(marginal(m, accuracy=accuracy, name=place) for m, place in zip(marginals, places, strict=True))
        scores = Gaussian(np.zeros(n), None if correlation is None else _correlation(correlation, n, said))
        self._set(scores, parts, said)

    def _set(self, scores: Law, marginals: tuple[Marginal, ...], names: tuple[str, ...] | None) -> None:
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "marginals", marginals)
        object.__setattr__(self, "names", names)

    @classmethod
    def of_scores(cls, scores: Law, marginals: Sequence[Marginal], *, names: Sequence[str] | None = None) -> Copula:
        """The law of `T_i(z_i)` for any law of the scores z that is made of Gaussians.

        Parameters
        ----------
        scores : Gaussian, GaussianMixture or Truncated
            One score per input. Marginals are those asked for where a score is standard normal.
        marginals : sequence of Marginal
        names : sequence of str, optional

        Returns
        -------
        Copula
        """
        if not isinstance(scores, Law) or not all(part.unrestricted.gaussians for _, part in scores.components):
            raise InputError(f"scores must be a Gaussian, a mixture of them or a Truncated law, got {describe(scores)}")
        marginals = several(marginals, "marginals", "Marginal records")
        if len(marginals) != scores.n or not all(isinstance(m, Marginal) for m in marginals):
            raise InputError(f"marginals must be {scores.n} Marginal records, one per score, got {describe(marginals)}")
        out = cls.__new__(cls)
        out._set(scores, tuple(marginals), column_names(names, scores.n))
        return out

    @classmethod
    def fit(
        cls,
        X: npt.ArrayLike,
        *,
        accuracy: float = DEFAULT_ACCURACY,
        names: Sequence[str] | None = None,
    ) -> Copula:
        """Marginals from the quantiles of each column, correlations from the normal scores of the ranks.

        Parameters
        ----------
        X : array_like, shape (N, n)
        accuracy : float
            See `Marginal.from_data`.
        names : sequence of str, optional

        Returns
        -------
        Copula
        """
        x = data_rows(X)
        said = column_names(names, x.shape[1])
        parts = tuple(
            Marginal.from_data(x[:, i], accuracy=accuracy, name=said[i] if said else f"column {i}")
            for i in range(x.shape[1])
        )
        return cls.of_scores(Gaussian(np.zeros(len(parts)), score_correlation(x)), parts, names=said)

    # -- the law -------------------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of inputs."""
        return len(self.marginals)

    @property
    def cdf_error(self) -> FloatArray:
        """For each input the largest distance of the marginal's cdf to the one asked for, shape (n,)."""
        return np.array([m.cdf_error for m in self.marginals])

    @property
    def marginal_error(self) -> float:
        """The largest `cdf_error`."""
        return float(self.cdf_error.max())

    @cached_property
    def pushed(self) -> tuple[Law, Layer]:
        """The law of the scores, and the layer `x = T(z)`."""
        unit = np.eye(self.n)
        zero = np.zeros(self.n)
        for array in (unit, zero):
            array.setflags(write=False)
        return self.scores, Layer(unit, zero, Units.of([m.activation for m in self.marginals]))

    def push(self, Z: FloatArray) -> FloatArray:
        """Inputs of scores.

        Parameters
        ----------
        Z : (m, n) array

        Returns
        -------
        (m, n) array
        """
        return np.stack([m(Z[:, i]) for i, m in enumerate(self.marginals)], axis=1)

    def pull(self, X: FloatArray) -> FloatArray:
        """Scores of inputs; in the middle where several scores give the same value.

        Parameters
        ----------
        X : (m, n) array

        Returns
        -------
        (m, n) array
        """
        return np.stack([m.inverse(X[:, i]) for i, m in enumerate(self.marginals)], axis=1)

    def base_box(
        self, lower: FloatArray, upper: FloatArray, open_below: npt.NDArray[np.bool_], open_above: npt.NDArray[np.bool_]
    ) -> Box:
        """The scores for which `lower <= x <= upper`, with `<` where a side is open.

        Parameters
        ----------
        lower, upper : (n,) arrays
        open_below, open_above : (n,) arrays of bool

        Returns
        -------
        (lower, upper) : tuple of arrays
        """
        low, high = np.full(self.n, -np.inf), np.full(self.n, np.inf)
        for i, m in enumerate(self.marginals):
            # Scores without spread may sit on a side: an open one is moved to the next number.
            if lower[i] > -np.inf:
                low[i] = m.score(lower[i], "right" if open_below[i] else "left")
                low[i] = np.nextafter(low[i], np.inf) if open_below[i] else low[i]
            if upper[i] < np.inf:
                high[i] = m.score(upper[i], "left" if open_above[i] else "right")
                high[i] = np.nextafter(high[i], -np.inf) if open_above[i] else high[i]
        return low, high

    @property
    def point_masses(self) -> bool:
        """Whether an input sits on one value with positive probability."""
        return any(len(m.atoms[0]) for m in self.marginals) or self.scores.point_masses

    @property
    def mean(self) -> FloatArray:
        """E x, shape (n,)."""
        return frozen(np.sum([w * m for w, m, _ in self._spots], axis=0))

    @property
    def variance(self) -> FloatArray:
        """Variances, shape (n,)."""
        mean = self.mean
        return np.asarray(np.sum([w * (v + (m - mean) ** 2) for w, m, v in self._spots], axis=0))

    @property
    def cov(self) -> FloatArray:
        """The covariance matrix, shape (n, n): one-dimensional integrals to about 1e-10 of the variances."""
        return self._cov.copy()

    @cached_property
    def _spots(self) -> list[tuple[float, FloatArray, FloatArray]]:
        """Weight, means and variances of every component of the scores: no pairs of inputs, so it is quick."""
        return [(w, *_marginal_moments(self.marginals, part)) for w, part in self.scores.components if w > 0]

    @cached_property
    def _cov(self) -> FloatArray:
        mean = self.mean
        parts = [part for w, part in self.scores.components if w > 0]
        covs = [_component_cov(self.marginals, part, m, v) for part, (_, m, v) in zip(parts, self._spots, strict=True)]
        each = zip(self._spots, covs, strict=True)
        return np.asarray(np.sum([w * (C + np.outer(m - mean, m - mean)) for (w, m, _), C in each], axis=0))

    def support(self) -> Box:
        """T at the ends of the scores."""
        low, high = self.scores.support()
        return self.push(low[None])[0], self.push(high[None])[0]

    def far_box(self) -> Box:
        """T at the far box of the scores."""
        low, high = self.scores.far_box()
        return self.push(low[None])[0], self.push(high[None])[0]

    def _given(self, lower: FloatArray, upper: FloatArray) -> Law:
        closed = np.zeros(self.n, bool)
        return self._between(lower, upper, closed, closed)

    def _at(self, index: Index, values: FloatArray) -> Conditional:
        """Values become scores; an atom is an interval of scores."""
        exact, scores, slopes = [], [], []
        lower, upper = np.full(self.n, -np.inf), np.full(self.n, np.inf)
        for i, x in zip(index.tolist(), values.tolist(), strict=True):
            m = self.marginals[i]
            a, b = (float(m.score(x, side)) for side in ("left", "right"))
            if a < b:
                lower[i], upper[i] = a, b
            else:
                exact.append(i)
                scores.append(a)
                slopes.append(float(np.asarray(m.activation.slopes)[m.activation.piece(a)]))
        found = Conditional(self.scores, 0, 0.0)
        if exact:
            found = self.scores._conditional(np.array(exact, dtype=np.intp), np.array(scores))
            if found.law is None:
                return found
        base, log = found.law, found.log_weight - float(np.log(slopes).sum() if found.order else 0.0)
        assert base is not None
        if np.isfinite(lower).any() or np.isfinite(upper).any():
            try:
                box = base.restrict(lower, upper)
                base = base.truncated(lower, upper)
            except InputError:
                return NEVER
            log += box.log_mass if box is not None else base.log_box if isinstance(base, Truncated) else np.nan
        return Conditional(Copula.of_scores(base, self.marginals, names=self.names), found.order, log)

    def _between(self, lower: FloatArray, upper: FloatArray, open_below: Flags, open_above: Flags) -> Copula:
        base = self.scores.truncated(*self.base_box(lower, upper, open_below, open_above))
        return Copula.of_scores(base, self.marginals, names=self.names)

    def _keep(self, index: Index) -> Copula:
        names = None if self.names is None else [self.names[i] for i in index]
        return Copula.of_scores(self.scores._keep(index), [self.marginals[i] for i in index], names=names)

    def _affine(self, s: FloatArray, t: FloatArray) -> Copula:
        parts = [m.moved(float(a), float(b)) for m, a, b in zip(self.marginals, s, t, strict=True)]
        return Copula.of_scores(self.scores, parts, names=self.names)

    def _blocks(self) -> list[tuple[float, Law]]:
        parts = [(w, part) for w, part in self.scores.components if w > 0]
        return [(w, Copula.of_scores(part, self.marginals) if len(parts) > 1 else self) for w, part in parts]

    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray:
        m = self.marginals[i]
        return self.scores.cdf(m.score(t, "left" if strict else "right"), i, strict=strict)

    @property
    def noise(self) -> tuple[Literal["normal", "uniform"], int] | None:
        """What drives the scores."""
        return self.scores.noise

    def from_noise(self, Z: FloatArray) -> FloatArray:
        """`T` of the scores of the noise, shape (m, n).

        Parameters
        ----------
        Z : (m, k) array

        Returns
        -------
        (m, n) array
        """
        if self.noise is None:
            return super().from_noise(Z)
        return self.push(self.scores.from_noise(Z))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.push(self.scores._sample(n, rng))

    def _log_density(self, x: FloatArray) -> FloatArray:
        for i, m in enumerate(self.marginals):
            if len(m.atoms[0]):
                who = self.names[i] if self.names else f"input {i}"
                raise InputError(
                    f"this law has no density: {who} takes the value {m.atoms[0][0]:g} with positive probability; "
                    "ask for probabilities or samples instead"
                )
        z = self.pull(x)
        slopes = np.stack(
            [np.asarray(m.activation.slopes)[m.activation.piece(z[:, i])] for i, m in enumerate(self.marginals)]
        )
        return np.asarray(self.scores.log_density(z)) - np.log(slopes).sum(axis=0)

    def to_dict(self) -> dict[str, Any]:
        """`{"law": "copula", "version": 1, "scores": ..., "marginals": [...], "names": ...}`."""
        return {
            "law": self.kind,
            "version": VERSION,
            "scores": self.scores.to_dict(),
            "marginals": [m.plain() for m in self.marginals],
            "names": None if self.names is None else list(self.names),
        }

    def __repr__(self) -> str:
        inputs = "1 input" if self.n == 1 else f"{self.n} inputs"
        pieces = sum(m.pieces for m in self.marginals)
        return f"Copula({inputs}, {pieces} pieces, cdf error {self.cdf_error.max():.1e})"


def score_correlation(x: FloatArray) -> FloatArray:
    """Correlations of the normal scores of the ranks (mean ranks where values are equal); 0 for constant columns."""
    ndtri, rankdata = late("scipy.special", "ndtri"), late("scipy.stats", "rankdata")

    z = ndtri(rankdata(x, axis=0) / (len(x) + 1.0))
    z = z - z.mean(axis=0)
    size = np.sqrt((z**2).sum(axis=0))
    z = z / np.where(size > 0, size, 1.0)
    C = z.T @ z
    np.fill_diagonal(C, 1.0)
    return np.asarray(0.5 * (C + C.T))


def _correlation(value: npt.ArrayLike, n: int, names: tuple[str, ...] | None) -> FloatArray:
    C = real_array(value, "correlation")
    if C.shape != (n, n):
        raise InputError(f"correlation must have shape ({n}, {n}), one row per marginal, got {C.shape}")

    def pair(flags: npt.NDArray[np.bool_]) -> str:
        i, j = (int(k) for k in np.argwhere(flags)[0])
        return f"{names[i]} and {names[j]}" if names else f"inputs {i} and {j}"

    if (bad := np.abs(C - C.T) > 1e-9).any():
        raise InputError(f"correlation must be symmetric; it differs across the diagonal for {pair(bad)}")
    if (np.abs(np.diag(C) - 1.0) > 1e-9).any():
        i = int(np.argmax(np.abs(np.diag(C) - 1.0)))
        raise InputError(
            f"correlation must have 1 on the diagonal, got {C[i, i]} at index {i}; divide by deviations first"
        )
    if (bad := np.abs(C) > 1.0 + 1e-9).any():
        raise InputError(f"correlation must be within [-1, 1], got {C[bad][0]} for {pair(bad)}")
    least, vector = (a[..., 0] for a in np.linalg.eigh(0.5 * (C + C.T)))
    if least < -1e-9:
        who = np.argsort(-np.abs(vector))[: min(3, n)]
        listed = ", ".join(names[i] if names else f"input {i}" for i in who.tolist())
        raise InputError(
            f"correlation is indefinite: its smallest eigenvalue is {least:.3g}, so no variables have these "
            f"correlations (look at {listed}); shrink it towards the identity, such as 0.95 * C + 0.05 * I"
        )
    if np.array_equal(C, np.eye(n)):
        return np.ones(n)
    return np.asarray(0.5 * (C + C.T))


# -- moments ---------------------------------------------------------------------------------------------------------


def _marginal_moments(marginals: tuple[Marginal, ...], part: Law) -> tuple[FloatArray, FloatArray]:
    """Means and variances of `T(z)` for one Gaussian (possibly truncated in independent inputs)."""
    n = len(marginals)
    base = part.unrestricted
    ((_, g),) = base.gaussians
    cut = base is not part and bool(part.gaussians == ())
    if cut and not part.independent_inputs:
        raise InputError(
            "the moments of scores truncated in correlated inputs have no closed form; estimate them from "
            "law.sample(n, rng), whose draws are exact"
        )
    low, high = part.support() if cut else (np.full(n, -np.inf), np.full(n, np.inf))
    mean, variance = np.zeros(n), np.zeros(n)
    for i, m in enumerate(marginals):
        mean[i], variance[i] = m.moments(g.mean[i], g.sd[i], low[i], high[i])
    return mean, variance


def _component_cov(marginals: tuple[Marginal, ...], part: Law, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """The covariance of `T(z)` for the same Gaussian: an integral for each pair of inputs."""
    cov = np.diag(variance)
    ((_, g),) = part.unrestricted.gaussians
    if g.factor.diagonal:
        return cov
    sd = np.where(g.sd > 0, g.sd, 1.0)
    rho = g.cov / np.outer(sd, sd)
    for i in range(len(marginals)):
        for j in range(i):
            if abs(rho[i, j]) > 1e-15 and variance[i] > 0 and variance[j] > 0:
                cov[i, j] = cov[j, i] = _covariance(
                    marginals[i], marginals[j], g.mean[[i, j]], g.sd[[i, j]], rho[i, j], mean[[i, j]]
                )
    return cov


def _covariance(
    first: Marginal, second: Marginal, mean: FloatArray, sd: FloatArray, rho: float, centre: FloatArray
) -> float:
    """`E (x - Ex)(y - Ey)` by Gauss quadrature over the pieces of x, with `E[y | z]` in closed form."""
    rho = float(np.clip(rho, -1.0, 1.0))
    rest = np.sqrt(max(1.0 - rho * rho, 0.0))
    edges = [-_REACH, _REACH, *((np.asarray(first.activation.breaks) - mean[0]) / sd[0]).tolist()]
    if rest <= 1e-3:  # the other one's break points are nearly as sharp
        edges += ((np.asarray(second.activation.breaks) - mean[1]) / (sd[1] * rho)).tolist()
    cuts = np.unique(np.clip(edges, -_REACH, _REACH))
    widest = max(min(1.0, 4.0 * rest), 0.05)
    cuts = np.concatenate(
        [np.linspace(a, b, int(np.ceil((b - a) / widest)) + 1)[:-1] for a, b in pairwise(cuts)] + [cuts[-1:]]
    )
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = 0.5 * np.diff(cuts)[:, None]
    u = (cuts[:-1, None] + half * (1.0 + nodes)).ravel()
    w = (half * weights).ravel() * np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi)
    x = first(mean[0] + sd[0] * u) - centre[0]
    middle = mean[1] + sd[1] * rho * u
    y = (second(middle) if rest <= _SAME else second.moments(middle, np.full(len(u), sd[1] * rest))[0]) - centre[1]
    return float(w @ (x * y))
