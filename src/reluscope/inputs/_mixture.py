"""Gaussian mixtures: given, fitted to data, fitted per class, or one kernel per sample."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, any_array, choice, describe, generator, integer, real, real_array
from reluscope._lazy import late
from reluscope.errors import InputError, MissingExtraError, ReluscopeWarning
from reluscope.inputs._factor import Factor, covariance_factor, diagonal_factor, loading_factor, matrix_factor
from reluscope.inputs._gaussian import (
    LOG_ROOT_2PI,
    Gaussian,
    centre,
    density_log_det,
    scatter_factor,
    shared_factors,
    warn_if_singular,
)
from reluscope.inputs._law import (
    FAR,
    VERSION,
    Box,
    Conditional,
    Index,
    Law,
    Restriction,
    data_rows,
    frozen,
    weight_vector,
)

COVARIANCES = ("full", "diag", "spherical", "tied")

_DISTANCE_NUMBERS = 1 << 22
"""Squared distances held at once when a density is evaluated: 32 MB."""

_FEW, _AT_ONCE = 64, 1 << 17
"""Components up to which a cdf is added up one by one; numbers held at once for more: 1 MB, which caches hold."""


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class GaussianMixture(Law):
    """Inputs from a mixture of Gaussians: `x ~ sum_k weights[k] N(mean_k, cov_k)`.

    `from_arrays` takes arrays instead, `fit` and `fit_classes` learn from data, `kde` puts one kernel on each sample.

    Parameters
    ----------
    weights : array_like, shape (k,)
        Probabilities of the components; they must sum to 1 (within 1e-9, then they are normalised) and may be 0.
    components : sequence of Gaussian
        Laws over the same inputs.

    Raises
    ------
    InputError
        If a component is not a `Gaussian` or has other inputs, or the weights are negative or do not sum to 1.

    Notes
    -----
    Components may share one factor (`tied` covariance, kernels): it is then stored once.

    Examples
    --------
    >>> GaussianMixture([0.5, 0.5], [Gaussian([0.0]), Gaussian([3.0])])
    GaussianMixture(2 components, 1 input)
    """

    kind: ClassVar[str] = "mixture"
    is_mixture: ClassVar[bool] = True

    weights: FloatArray
    means: FloatArray
    factors: tuple[Factor, ...]
    """One factor per component, or a single one that all share."""

    def __init__(self, weights: npt.ArrayLike, components: Sequence[Gaussian]) -> None:
        if not isinstance(components, Sequence) or not len(components):
            raise InputError(f"components must be a non-empty list of Gaussian laws, got {describe(components)}")
        for i, part in enumerate(components):
            if not isinstance(part, Gaussian):
                raise InputError(f"components must be Gaussian laws, got {describe(part)} at index {i}")
            if part.n != components[0].n:
                raise InputError(
                    f"components must have the same inputs, got {components[0].n} at index 0 and {part.n} at index {i}"
                )
        factors = tuple(part.factor for part in components)
        if all(f is factors[0] for f in factors):
            factors = factors[:1]
        self._set(weight_vector(weights, "weights", len(components)), np.stack([p.mean for p in components]), factors)

    def _set(self, weights: FloatArray, means: FloatArray, factors: tuple[Factor, ...]) -> None:
        object.__setattr__(self, "weights", frozen(weights))
        object.__setattr__(self, "means", frozen(means))
        object.__setattr__(self, "factors", factors)

    @classmethod
    def _of(cls, weights: FloatArray, means: FloatArray, factors: tuple[Factor, ...]) -> GaussianMixture:
        out = cls.__new__(cls)
        out._set(weights, means, factors)
        return out

    @classmethod
    def from_arrays(
        cls, weights: npt.ArrayLike, means: npt.ArrayLike, covariances: npt.ArrayLike, covariance: str = "full"
    ) -> GaussianMixture:
        """A mixture from arrays, in the layouts of a fitted scikit-learn mixture.

        Parameters
        ----------
        weights : array_like, shape (k,)
        means : array_like, shape (k, n)
        covariances : array_like
            "full": (k, n, n); "diag": variances (k, n); "spherical": variances (k,); "tied": one matrix (n, n).
        covariance : {"full", "diag", "spherical", "tied"}
            The layout of `covariances`.

        Returns
        -------
        GaussianMixture

        Examples
        --------
        >>> GaussianMixture.from_arrays([0.5, 0.5], [[0.0], [3.0]], [1.0, 4.0], "spherical").variance
        array([4.75])
        """
        kind = choice(covariance, "covariance", COVARIANCES)
        m = data_rows(means, "means")
        w = weight_vector(weights, "weights", len(m))
        k, n = m.shape
        shape = {"full": (k, n, n), "diag": (k, n), "spherical": (k,), "tied": (n, n)}[kind]
        C = real_array(covariances, "covariances")
        if C.shape != shape:
            raise InputError(f"covariances must have shape {shape} for covariance={kind!r}, got {C.shape}")
        if kind == "tied":
            return cls._of(w, m, (matrix_factor(C, "covariances"),))
        return cls._of(w, m, tuple(covariance_factor(n, c, None, None) for c in C))

    @classmethod
    def fit(
        cls,
        X: npt.ArrayLike,
        components: int = 3,
        covariance: str = "full",
        *,
        rng: Any = None,
        regularisation: float = 1e-6,
        restarts: int = 1,
        iterations: int = 200,
    ) -> GaussianMixture:
        """The mixture that maximises the likelihood of the samples, by expectation maximisation (EM).

        Parameters
        ----------
        X : array_like, shape (N, n)
            Samples, one per row.
        components : int
            How many Gaussians.
        covariance : {"full", "diag", "spherical", "tied"}
            Form of the covariances; "tied" is one matrix for all components.
        rng : None, int, SeedSequence or Generator
            Source of the starts.
        regularisation : float
            Added to every variance after the columns were put on a common scale.
        restarts : int
            EM finds a local optimum: it runs from that many starts and keeps the best.
        iterations : int
            The most steps of one run.

        Returns
        -------
        GaussianMixture

        Raises
        ------
        MissingExtraError
            If scikit-learn (extra `sklearn`) is needed and not there; one component needs none.

        Notes
        -----
        EM is scikit-learn's, started from k-means. Columns are put on a common scale first, so the result does not
        depend on units (one scale for all columns when "spherical"). Constant columns keep variance 0 (except when
        "spherical"). One component is the closed form of `Gaussian.fit`, without regularisation. No more samples than
        inputs give a `ReluscopeWarning`: full covariances are then singular but for the regularisation.

        Examples
        --------
        >>> GaussianMixture.fit([[0.0], [2.0]], components=1).variance
        array([1.])
        """
        x = data_rows(X)
        k = integer(components, "components", low=1)
        kind = choice(covariance, "covariance", COVARIANCES)
        extra = real(regularisation, "regularisation", low=0.0)
        runs = integer(restarts, "restarts", low=1)
        steps = integer(iterations, "iterations", low=1)
        gen = generator(rng)
        if k > len(x):
            raise InputError(f"components must be at most the number of samples, {len(x)}, got {k}")
        if k == 1:
            one = Gaussian.fit(x, covariance="full" if kind == "tied" else kind)
            return cls._of(np.ones(1), one.mean[None], (one.factor,))
        if kind in ("full", "tied"):
            warn_if_singular(x)
        return cls._of(*_expectation_maximisation(x, k, kind, gen, extra, runs, steps))

    @classmethod
    def fit_classes(
        cls,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        components: int = 1,
        covariance: str = "full",
        *,
        rng: Any = None,
        regularisation: float = 1e-6,
        restarts: int = 1,
        iterations: int = 200,
    ) -> ClassMixtures:
        """One mixture per class, fitted by `fit` to that class's rows, and the classes' probabilities.

        Parameters
        ----------
        X : array_like, shape (N, n)
            Samples, one per row.
        y : array_like, shape (N,)
            Their labels: numbers or texts.
        components, covariance, rng, regularisation, restarts, iterations
            As for `fit`. Each class draws from its own child of `rng`, so its mixture does not depend on the others.

        Returns
        -------
        ClassMixtures

        Examples
        --------
        >>> classes = GaussianMixture.fit_classes([[0.0], [2.0], [5.0], [9.0]], ["a", "a", "b", "b"])
        >>> classes["b"].mean
        array([7.])
        """
        x = data_rows(X)
        labels = any_array(y, "y", "a list of labels")
        if labels.shape != (len(x),) or labels.dtype.kind not in "iubUSf":
            raise InputError(f"y must hold one label (number or text) per row of X, {len(x)} in all, got {describe(y)}")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise InputError("y must hold finite labels, got nan or infinity")
        classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
        k = integer(components, "components", low=1)
        if counts.min() < k:
            few = int(np.argmin(counts))
            raise InputError(
                f"components must be at most the size of every class, got {k} where class {classes[few].item()!r} "
                f"has {counts[few]} samples"
            )
        laws = tuple(
            cls.fit(
                x[codes == i], k, covariance, rng=child, regularisation=regularisation,
                restarts=restarts, iterations=iterations,
            )
            for i, child in enumerate(generator(rng).spawn(len(classes)))
        )  # fmt: skip
        return ClassMixtures(tuple(classes.tolist()), frozen(counts / counts.sum()), laws)

    @property
    def n(self) -> int:
        """Number of inputs."""
        return int(self.means.shape[1])

    def __len__(self) -> int:
        return len(self.weights)

    def factor(self, k: int) -> Factor:
        """The factor of component k.

        Parameters
        ----------
        k : int

        Returns
        -------
        Factor
        """
        k = integer(k, "k", low=0, high=len(self) - 1)
        return self.factors[0] if len(self.factors) == 1 else self.factors[k]

    @cached_property
    def components(self) -> tuple[tuple[float, Gaussian], ...]:
        """Pairs (weight, `Gaussian`), built when first asked for."""
        return tuple(
            (float(w), Gaussian.of_factor(m, self.factor(k)))
            for k, (w, m) in enumerate(zip(self.weights, self.means, strict=True))
        )

    @property
    def gaussians(self) -> tuple[tuple[float, Gaussian], ...]:
        """The components of positive weight."""
        return tuple(part for part in self.components if part[0] > 0)

    @property
    def independent_inputs(self) -> bool:
        """Whether one component has all the weight, and independent inputs."""
        live = np.flatnonzero(self.weights)
        return len(live) == 1 and self.factor(int(live[0])).diagonal

    def support(self) -> Box:
        """The smallest box around the supports of the components of positive weight."""
        means, sd = self._live
        return np.where(sd > 0, -np.inf, means).min(axis=0), np.where(sd > 0, np.inf, means).max(axis=0)

    def far_box(self) -> Box:
        """The smallest box around `mean_k - 38.5 sd_k` and `mean_k + 38.5 sd_k` of those components."""
        means, sd = self._live
        return (means - FAR * sd).min(axis=0), (means + FAR * sd).max(axis=0)

    @property
    def _live(self) -> tuple[FloatArray, FloatArray]:
        """Means of the components of positive weight, and their standard deviations (one row if they share them)."""
        live = self.weights > 0
        sd = np.stack([f.spread for f in self.factors])
        return self.means[live], sd if len(sd) == 1 else sd[live]

    def _restricted(self, lower: FloatArray, upper: FloatArray) -> Restriction | None:
        from reluscope.inputs._mixed import restricted_mixture

        return restricted_mixture(self, lower, upper)

    def _given(self, lower: FloatArray, upper: FloatArray) -> Law:
        from reluscope.inputs._mixed import mixture_given_box

        return mixture_given_box(self, lower, upper)

    def _at(self, index: Index, values: FloatArray) -> Conditional:
        from reluscope.inputs._mixed import mixture_at

        return mixture_at(self, index, values)

    def _keep(self, index: Index) -> GaussianMixture:
        return GaussianMixture(self.weights, shared_factors([g._keep(index) for _, g in self.components]))

    def _affine(self, s: FloatArray, t: FloatArray) -> GaussianMixture:
        known: dict[int, Factor] = {}
        return GaussianMixture(self.weights, [g._moved(s, t, known) for _, g in self.components])

    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray:
        if len(self.weights) <= _FEW or t.ndim != 1:
            return np.asarray(sum(w * g._cdf(t, i, strict) for w, g in self.gaussians))
        place, distinct = self._factor_places
        sd = np.array([f.spread[i] for f in distinct])[place]
        return mixture_cdf(t, self.weights, self.means[:, i], sd, strict=strict)

    @property
    def mean(self) -> FloatArray:
        """`sum_k w_k m_k`, shape (n,)."""
        first = self.means[0]
        # Weights sum to 1 up to rounding, but an input that is the same in all components is just that.
        return np.where((self.means == first).all(axis=0), first, self.weights @ self.means)

    @property
    def variance(self) -> FloatArray:
        """`sum_k w_k (var_k + (m_k - mean)^2)`, shape (n,)."""
        return self._within([f.variance for f in self.factors]) + self.weights @ (self.means - self.mean) ** 2

    @property
    def cov(self) -> FloatArray:
        """`sum_k w_k (cov_k + (m_k - mean)(m_k - mean)^T)`, shape (n, n)."""
        apart = self.means - self.mean
        return self._within([f.cov() for f in self.factors]) + (self.weights[:, None] * apart).T @ apart

    def _within(self, parts: list[FloatArray]) -> FloatArray:
        if len(parts) == 1:
            return parts[0]
        return np.asarray(sum(w * part for w, part in zip(self.weights, parts, strict=True)))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        which = rng.choice(len(self.weights), size=n, p=self.weights)
        if len(self.factors) == 1:
            factor = self.factors[0]
            return factor.push(rng.standard_normal((n, factor.k))) + self.means[which]
        out = np.empty((n, self.n))
        place, distinct = self._factor_places
        of = place[which]
        order = np.argsort(of, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(of[order])) + 1) if n else ():
            factor = distinct[of[rows[0]]]
            out[rows] = factor.push(rng.standard_normal((len(rows), factor.k))) + self.means[which[rows]]
        return out

    @cached_property
    def _factor_places(self) -> tuple[npt.NDArray[np.intp], tuple[Factor, ...]]:
        """For each component the number of its factor among the distinct ones, and those: many components may share."""
        first: dict[int, int] = {}
        place = np.array([first.setdefault(id(f), len(first)) for f in self.factors], dtype=np.intp)
        if len(place) == 1:
            place = np.zeros(len(self.weights), np.intp)
        distinct = {int(k): f for k, f in zip(place[: len(self.factors)], self.factors, strict=True)}
        return place, tuple(distinct[k] for k in range(len(distinct)))

    def _log_density(self, x: FloatArray) -> FloatArray:
        cdist = late("scipy.spatial.distance", "cdist")

        live = np.flatnonzero(self.weights)
        out = np.empty(len(x))
        log_weights = np.log(self.weights[live])
        centres = None
        if len(self.factors) == 1:
            log_det = density_log_det(self.factors[0])
            centres = self.factors[0].whiten(self.means[live] - self.mean)
        step = max(1, _DISTANCE_NUMBERS // len(live))
        for i in range(0, len(x), step):
            part = x[i : i + step]
            if centres is not None:
                squared = cdist(self.factors[0].whiten(part - self.mean), centres, "sqeuclidean")
                terms = log_weights - 0.5 * squared - log_det - self.n * LOG_ROOT_2PI
            else:
                terms = np.stack([self.components[k][1].log_density(part) for k in live], axis=1) + log_weights
            peak = terms.max(axis=1)
            out[i : i + step] = peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1))
        return out

    def to_dict(self) -> dict[str, Any]:
        """`{"law": "mixture", "weights": ..., "components": [...]}`, or `means` and the covariances that they share."""
        start = {"law": self.kind, "version": VERSION, "weights": self.weights.tolist()}
        if len(self.factors) == 1:
            return {**start, "means": self.means.tolist(), **self.factors[0].plain()}
        place, distinct = self._factor_places
        if len(distinct) < len(self.factors):
            shared = [f.plain() for f in distinct]
            return {**start, "means": self.means.tolist(), "covariances": shared, "covariance_of": place.tolist()}
        return {**start, "components": [part.to_dict() for _, part in self.components]}

    def __repr__(self) -> str:
        k, n = self.means.shape
        shared = ", one shared covariance" if len(self.factors) == 1 and k > 1 else ""
        parts = "component" if k == 1 else "components"
        return f"GaussianMixture({k} {parts}, {n} {'input' if n == 1 else 'inputs'}{shared})"


@dataclass(frozen=True, eq=False)
class ClassMixtures:
    """One law per class. Made by `GaussianMixture.fit_classes`; `classes[label]` is the law of one class.

    Attributes
    ----------
    labels : tuple
        The classes.
    weights : array, shape (classes,)
        Their probabilities.
    laws : tuple of GaussianMixture
        The law of the inputs given each class.
    """

    labels: tuple[Any, ...]
    weights: FloatArray
    laws: tuple[GaussianMixture, ...]

    def __getitem__(self, label: Any) -> GaussianMixture:
        if label not in self.labels:
            raise InputError(f"label must be one of {list(self.labels)[:10]}, got {describe(label)}")
        return self.laws[self.labels.index(label)]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def joint(self) -> GaussianMixture:
        """The law of the input whatever its class: one mixture of all components."""
        weights = np.concatenate([w * law.weights for w, law in zip(self.weights, self.laws, strict=True)])
        factors = tuple(law.factor(k) for law in self.laws for k in range(len(law)))
        means = np.concatenate([law.means for law in self.laws])
        return GaussianMixture._of(weights / weights.sum(), means, factors)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, fit for JSON; `classes_from_json` reads it back."""
        return {
            "law": "classes",
            "version": VERSION,
            "labels": list(self.labels),
            "weights": self.weights.tolist(),
            "laws": [law.to_dict() for law in self.laws],
        }

    def __repr__(self) -> str:
        return f"ClassMixtures({len(self)} classes, {self.laws[0].n} inputs)"


def mixture_cdf(
    t: FloatArray, weights: FloatArray, mean: FloatArray, sd: FloatArray, *, strict: bool = False
) -> FloatArray:
    """The cdf of a mixture of many normals (or, where sd is 0, points) at t, shape (m,)."""
    ndtr = late("scipy.special", "ndtr")

    still = sd == 0
    order = np.argsort(mean[still], kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(weights[still][order])])
    out = sums[np.searchsorted(mean[still][order], t, side="left" if strict else "right")]
    if still.all():
        return np.asarray(out)
    mean, scale, weights = mean[~still], 1.0 / sd[~still], weights[~still]
    step = max(1, _AT_ONCE // len(mean))
    for k in range(0, len(t), step):
        apart = np.subtract.outer(t[k : k + step], mean)
        apart *= scale
        out[k : k + step] += ndtr(apart, out=apart) @ weights
    return np.asarray(out)


def kde(X: npt.ArrayLike, bandwidth: Any = "scott") -> GaussianMixture:
    """A kernel density estimate: one Gaussian of weight 1/N on each sample.

    Parameters
    ----------
    X : array_like, shape (N, n)
        Samples, one per row.
    bandwidth : {"scott", "silverman"}, float or array_like, shape (n, n)
        A rule: the kernel's covariance is that of the sample (divided by N - 1) times `N^(-2/(n+4))` for "scott" and
        `(N (n+2)/4)^(-2/(n+4))` for "silverman". A number: the kernel's standard deviation in every input, in the
        units of `X`. A matrix: the kernel's covariance.

    Returns
    -------
    GaussianMixture
        With N components that share one factor, stored once.

    Raises
    ------
    InputError
        If a rule meets fewer than two samples, or a number or a matrix is not a valid bandwidth.

    Examples
    --------
    >>> kde([[0.0], [1.0], [4.0]], bandwidth=0.5)
    GaussianMixture(3 components, 1 input, one shared covariance)
    """
    x = data_rows(X)
    N, n = x.shape
    if isinstance(bandwidth, str):
        rule = choice(bandwidth, "bandwidth", ("scott", "silverman"))
        if N < 2:
            raise InputError(f"bandwidth={rule!r} needs two samples or more, got {N}; give a number or a matrix")
        size = float(N) if rule == "scott" else N * (n + 2) / 4.0
        _, centred = centre(x)
        factor = scatter_factor(centred * (size ** (-1.0 / (n + 4)) / np.sqrt(N - 1.0)))
    elif real_array(bandwidth, "bandwidth").ndim == 0:
        factor = diagonal_factor(np.full(n, real(bandwidth, "bandwidth", low=0.0, high=1e150, open_=True)))
    else:
        H = real_array(bandwidth, "bandwidth")
        if H.shape != (n, n):
            raise InputError(f"bandwidth must be a rule, a number or a matrix of shape ({n}, {n}), got {H.shape}")
        factor = matrix_factor(H, "bandwidth")
    return GaussianMixture._of(np.full(N, 1.0 / N), x, (factor,))


def _expectation_maximisation(
    x: FloatArray, k: int, kind: str, gen: np.random.Generator, extra: float, runs: int, steps: int
) -> tuple[FloatArray, FloatArray, tuple[Factor, ...]]:
    """Weights, means and factors of scikit-learn's mixture, fitted on a common scale and put back."""
    try:
        ConvergenceWarning = late("sklearn.exceptions", "ConvergenceWarning")
        Estimator = late("sklearn.mixture", "GaussianMixture")
    except ImportError as error:
        raise MissingExtraError(
            "fitting a mixture of several Gaussians needs scikit-learn: pip install 'reluscope[sklearn]' "
            "(one component, or kde, works without it)"
        ) from error
    mean, centred = centre(x)
    n = len(mean)
    sd = np.sqrt((centred**2).mean(axis=0))
    if not sd.any():  # one point, many times
        return np.ones(1), mean[None], (diagonal_factor(np.zeros(n)),)
    if kind == "spherical":
        sd = np.full(n, np.sqrt((sd**2).mean()))
    live = np.flatnonzero(sd)
    estimator = Estimator(
        k, covariance_type=kind, reg_covar=extra, n_init=runs, max_iter=steps, random_state=int(gen.integers(2**31 - 1))
    )
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            estimator.fit(centred[:, live] / sd[live])
        except ValueError as error:
            raise InputError(
                f"EM broke down on {len(x)} samples with {k} components ({kind}); raise regularisation, "
                "or ask for fewer components or covariance='diag'"
            ) from error
    if any(issubclass(w.category, ConvergenceWarning) for w in heard):
        warnings.warn(
            f"EM may not have converged in {steps} iterations, or X has fewer distinct rows than {k}: "
            "raise iterations or restarts, or ask for fewer components",
            ReluscopeWarning,
            stacklevel=3,
        )
    means = np.tile(mean, (k, 1))
    means[:, live] += estimator.means_ * sd[live]
    scales = sd[live]

    def back(c: FloatArray) -> Factor:
        if c.ndim < 2:
            out = np.zeros(n)
            out[live] = np.sqrt(c) * scales
            return diagonal_factor(out)
        inner = matrix_factor(c)
        rows = inner.rows(np.arange(len(live))) * scales[:, None]
        V = np.zeros((n, rows.shape[1]))
        V[live] = rows
        return loading_factor(V, triangular=inner.triangular and len(live) == n)

    found = estimator.covariances_
    factors = (back(found),) if kind == "tied" else tuple(back(np.asarray(c)) for c in found)
    return estimator.weights_ / estimator.weights_.sum(), means, factors
