"""Intervals for the coefficients of a linear model refitted to the rows of one region or cluster.

The region's rows alone say nothing about the sampling error of the network's own coefficients. So the model is fitted
again to those rows, by maximum likelihood (or with a ridge), and

- `wald`: estimate ± z · se, with covariance `σ² (XᵀX)⁻¹` (regression, t quantiles) or `(Xᵀ W X)⁻¹` (logistic); with a
  ridge Λ the sandwich `(I + Λ)⁻¹ I (I + Λ)⁻¹`. Valid for many rows;
- `bootstrap`: quantiles over resampled rows; makes no assumption of normality.

Both treat the region as given: that the network found it on the same data is not accounted for.

Rows may not determine every coefficient: two features may be equal in all of them, or dummies add up to one. The
singular values of the standardised design below `1e-10` times the largest count as 0; a coefficient with a component
(above `1e-7`) in the null space that belongs to them is *aliased*: another one fits equally well. It has no standard
error, interval or p-value, and without a ridge no estimate: these are nan. A feature that does not vary in the rows is
left out and aliased too; its part is in the intercept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, Rng, choice, integer, real, seeded
from reluscope._doors import door
from reluscope._tables import Tabular
from reluscope._text import table as text_table
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL, normal_quantile, student_quantile
from reluscope.local_models import glm
from reluscope.local_models._data import Response, read
from reluscope.parallel import blas_threads

if TYPE_CHECKING:
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]

_RANK = 1e-10
"""Singular values of the standardised design below this share of the largest count as 0."""

_COMPONENT = 1e-7
"""Smallest component in the null space (of a vector of length 1) that makes a coefficient aliased."""


@dataclass(frozen=True, eq=False, repr=False)
class Intervals(Tabular):
    """Estimates with intervals, intercept first; arrays have one entry per name.

    Attributes
    ----------
    names : tuple of str
        "intercept" and the features.
    network : array
        Coefficients of the network's own linear model (or of the merged one) before the refit.
    estimate, error, lower, upper : array
        Refitted coefficients, their standard errors and intervals; nan where the rows do not determine them.
    p_value : array
        Test whether the coefficient is 0 (Wald only, else nan).
    level : float
        Confidence level.
    method : str
        "wald" or "bootstrap".
    rows_used : int
    aliased : array of bool
        Coefficients that the rows do not determine.
    seed : int or None
        `rng=seed` repeats a bootstrap; None if there was none, or a Generator was given.
    """

    names: tuple[str, ...]
    network: FloatArray
    estimate: FloatArray
    error: FloatArray
    lower: FloatArray
    upper: FloatArray
    p_value: FloatArray
    level: float
    method: str
    rows_used: int
    aliased: npt.NDArray[np.bool_]
    seed: int | None = None

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per coefficient."""
        columns = {
            "network": self.network,
            "estimate": self.estimate,
            "error": self.error,
            "lower": self.lower,
            "upper": self.upper,
            "p_value": self.p_value,
        }
        return [
            {"coefficient": name} | {k: float(v[i]) for k, v in columns.items()} | {"aliased": bool(self.aliased[i])}
            for i, name in enumerate(self.names)
        ]

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Intervals as bars; returns the Axes."""
        return door("Intervals.plot")(self, ax, **options)

    def __repr__(self) -> str:
        head = f"{self.method} intervals at {100 * self.level:g} %, {self.rows_used:,} rows"
        lost = int(self.aliased.sum())
        note = f"\n{lost} aliased: these rows do not determine them one by one" if lost else ""
        return f"{head}\n{text_table(self.rows())}{note}"


def _single(response: Response, output: int) -> Response:
    """One output as a response of its own: a number, or a class against the others."""
    if response.task == "none":
        raise InputError("intervals need a response; pass y to unwrap")
    column = response.column(output)
    assert column is not None
    if response.task == "regression":
        return Response("regression", column[:, None])
    return Response("binary", None, column.astype(np.int64), (0, 1))


def of_rows(
    u: Unwrapped,
    rows: Index,
    output: int,
    C: FloatArray,
    d: float,
    *,
    draws: int = 500,
    penalty: float = 0.0,
    method: str = "wald",
    level: float = DEFAULT_LEVEL,
    rng: Rng = None,
) -> Intervals:
    """Intervals for the coefficients of a model refitted to some rows, beside the model `C x + d` that they had."""
    X, response, names = read(u.X, rows), _single(u.response.part(rows), output), u.feature_names
    weight = None if u.weight is None else u.weight[rows]
    choice(method, "method", ("wald", "bootstrap"))
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    penalty = real(penalty, "penalty", low=0.0)
    if weight is not None and not weight.all():  # rows that count for nothing determine nothing
        counted = np.flatnonzero(weight)
        X, response, weight = X[counted], response.part(counted), weight[counted]
    free = np.flatnonzero(np.ptp(X, axis=0) > 0)  # features that vary here; the others have no estimate
    scale = glm.Scale.of(X[:, free], weight)
    design = _Design.of(X[:, free], scale)
    _enough(response, len(X), len(free) + 1, design.rank, penalty)
    labelled, seed = ("intercept", *names), None
    spots = np.append(0, 1 + free)
    with blas_threads(X.shape[1]):
        if method == "wald":
            value, error, lower, upper, p = _wald(X[:, free], response, weight, scale, design, level, penalty)
        else:
            draws = integer(draws, "draws", low=20)
            generator, seed = seeded(rng)
            value, error, lower, upper = _bootstrap(
                X[:, free], response, weight, scale, level, penalty, draws, generator
            )
            p = np.full(len(value), np.nan)
    if penalty == 0:
        for column in (value, error, lower, upper):
            column[design.aliased] = np.nan
    columns = [np.full(len(labelled), np.nan) for _ in range(5)]
    for column, known in zip(columns, (value, error, lower, upper, p), strict=True):
        column[spots] = known
    estimate, error, lower, upper, p_value = columns
    aliased = np.ones(len(labelled), dtype=bool)
    aliased[spots] = design.aliased
    return Intervals(
        labelled, np.append(d, C), estimate, error, lower, upper, p_value, level, method, len(X), aliased, seed
    )


@dataclass(frozen=True, eq=False)
class _Design:
    """What the rows determine: an orthonormal basis `seen` (k + 1, rank) of the standardised coefficients (intercept
    last) that they do, and which of (intercept, coefficients) are `aliased`.
    """

    seen: FloatArray
    aliased: npt.NDArray[np.bool_]

    @property
    def rank(self) -> int:
        return self.seen.shape[1]

    @classmethod
    def of(cls, X: FloatArray, scale: glm.Scale) -> _Design:
        """By singular values of the triangular factor: as accurate as of the design itself, and small."""
        Z = scale.design(X)
        _, values, basis = np.linalg.svd(np.linalg.qr(Z, mode="r"))
        rank = int((values > _RANK * values[0]).sum())
        J = _back(scale)
        hidden = np.linalg.norm(J @ basis[rank:].T, axis=1) > _COMPONENT * np.linalg.norm(J, axis=1)
        return cls(np.ascontiguousarray(basis[:rank].T), hidden)


def _enough(response: Response, n: int, coefficients: int, rank: int, penalty: float) -> None:
    if response.code is not None and len(np.unique(response.code)) < 2 and penalty == 0:
        raise InputError("the region holds a single class, so the model has no finite estimate; pass penalty=1.0")
    if n < rank + 1 and penalty == 0:
        raise InputError(
            f"the region has {n} rows for {coefficients} coefficients; take a larger region, merge regions, or pass "
            'penalty=1.0 and method="bootstrap"'
        )


def _back(scale: glm.Scale) -> FloatArray:
    """(intercept, C) as a linear function of (standardised C, value at the centre)."""
    k = len(scale.spread)
    J = np.zeros((k + 1, k + 1))
    J[0, :k], J[0, k] = -scale.centre / scale.spread, 1.0
    J[1 + np.arange(k), np.arange(k)] = 1.0 / scale.spread
    return J


def _wald(
    X: FloatArray,
    response: Response,
    weight: FloatArray | None,
    scale: glm.Scale,
    design: _Design,
    level: float,
    penalty: float,
) -> tuple[FloatArray, ...]:
    from scipy.special import ndtr, stdtr

    Z = scale.design(X)
    w = np.ones(len(X)) if weight is None else weight * (len(X) / weight.sum())
    model = glm.fit(X, response, penalty=penalty, scale=scale, weight=w)
    eta = model(X)[:, 0]
    ridge = np.full(Z.shape[1], penalty)
    ridge[-1] = 0.0
    if response.target is not None:
        freedom = max(len(X) - design.rank, 1)
        noise = float(w @ (response.target[:, 0] - eta) ** 2) / freedom
        fisher, outer = (Z * w[:, None]).T @ Z, noise
    else:
        if penalty == 0 and np.abs(eta).min() > 12:
            raise InputError(
                "the classes of the region can be separated, so the model has no finite estimate; pass penalty=1.0"
            )
        freedom, fisher, outer = 0, glm.information(Z, eta, w), 1.0
    # Within what the rows determine the information is regular; outside there is nothing to invert.
    V, J = design.seen, _back(scale)
    if penalty > 0:
        half = np.linalg.solve(fisher + np.diag(ridge), J.T)
        variance = ((fisher @ half) * half).sum(axis=0)
    else:
        half = J @ V
        variance = (half * np.linalg.solve(V.T @ fisher @ V, half.T).T).sum(axis=1)
    error = np.sqrt(outer * np.maximum(variance, 0.0))
    error[design.aliased] = np.nan
    value = np.append(model.d, model.C)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = value / error
    if freedom:
        reach, p = student_quantile(freedom, level), 2 * stdtr(freedom, -np.abs(z))
    else:
        reach, p = normal_quantile(level), 2 * ndtr(-np.abs(z))
    return value, error, value - reach * error, value + reach * error, p


def _bootstrap(
    X: FloatArray,
    response: Response,
    weight: FloatArray | None,
    scale: glm.Scale,
    level: float,
    penalty: float,
    draws: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, ...]:
    chance = None if weight is None else weight / weight.sum()
    soft = max(penalty, 1e-2) if response.code is not None else max(penalty, 1e-8)  # a resample may be separable
    found = np.empty((draws, X.shape[1] + 1))
    for k in range(draws):
        rows = rng.choice(len(X), len(X), p=chance)
        model = glm.fit(X[rows], response.part(rows), penalty=soft, scale=scale)
        found[k] = np.append(model.d, model.C)
    whole = glm.fit(X, response, penalty=soft, scale=scale, weight=weight)
    tail = (1 - level) / 2
    lower, upper = np.quantile(found, [tail, 1 - tail], axis=0)
    return np.append(whole.d, whole.C), found.std(axis=0, ddof=1), lower, upper
