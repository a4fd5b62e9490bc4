"""Intervals for the coefficients of a linear model refitted to the rows of one region or cluster.

The region's rows alone say nothing about the sampling error of the network's own coefficients. So the model is fitted
again to those rows, by maximum likelihood (or with a ridge), and

- `wald`: estimate ± z · se, with covariance `σ² (XᵀX)⁻¹` (regression, t quantiles) or `(Xᵀ W X)⁻¹` (logistic); with a
  ridge Λ the sandwich `(I + Λ)⁻¹ I (I + Λ)⁻¹`. Valid for many rows;
- `bootstrap`: quantiles over resampled rows; makes no assumption of normality.

Both treat the region as given: that the network found it on the same data is not accounted for.

Neighbouring features of zeros and ones that add up to 1 in every row are the *levels* of a category: only differences
between them are determined. The most frequent one is the *base*: it is left out of the fit, its coefficient is 0, those
of the others are differences from it, and the intercept is that of the base levels.

Rows may not determine every other coefficient: two features may be equal in all of them, say. The singular values of
the standardised design below `1e-10` times the largest count as 0; a coefficient with a component (above `1e-7`) in the
null space that belongs to them is *aliased*: another one fits equally well. It has no standard error, interval or
p-value, and without a ridge no estimate: these are nan. A feature that does not vary in the rows is left out and
aliased too; its part is in the intercept.

Rows may also be *separated*: a direction of the coefficients puts no row on the wrong side, and the likelihood rises
along it for ever (`_separation`). A coefficient that changes along such directions has no finite estimate. By `wald` it
has the estimate `inf` or `-inf`, no standard error, and the one-sided interval of its profile likelihood (both sides
infinite, and the estimate nan, if it may go either way); its p-value is that of the likelihood ratio. By `bootstrap` it
has no interval. The others are those of the limit: fitted to the rows that are not separated. Where single resamples
are separated, their estimates count as infinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, Rng, choice, integer, real, seeded
from reluscope._doors import door
from reluscope._lazy import late
from reluscope._tables import Tabular
from reluscope._text import table as text_table
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL, normal_quantile, student_quantile
from reluscope.local_models import glm
from reluscope.local_models._data import Response, Units, headed, read
from reluscope.local_models._separation import Separated, analyse, profile_limit, separated_rows, suspicious
from reluscope.threads import blas_threads

if TYPE_CHECKING:
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]

_RANK = 1e-10
"""Singular values of the standardised design below this share of the largest count as 0."""

_COMPONENT = 1e-7
"""Smallest component in the null space (of a vector of length 1) that makes a coefficient aliased."""


@dataclass(frozen=True, eq=False, repr=False)
class Intervals(Tabular):
    """Estimates with intervals, intercept first; arrays have one entry per name. All are for values in the units of the
    columns.

    Attributes
    ----------
    names : tuple of str
        "intercept" and the features, with the unit of their coefficients where it is known.
    network : array
        Coefficients of the network's own linear model (or of the merged one, see `model`) before the refit.
    estimate, error, lower, upper : array
        Refitted coefficients, their standard errors and intervals; nan where the rows do not determine them.
    p_value : array
        Test whether the coefficient is 0 (Wald, likelihood ratio where separated; nan by bootstrap).
    level : float
        Confidence level.
    method : str
        "wald" or "bootstrap".
    rows_used : int
    support : array of int
        Rows behind each coefficient: those of its level, where the feature is a level (or is 0 or 1).
    base : array of bool
        Base levels, with which the other levels of their category are compared; `network` is compared with them too.
    aliased : array of bool
        Coefficients that the rows do not determine.
    separated : array of bool
        Coefficients without a finite estimate, because classes are separated; a ridge gives them one.
    penalty : float
        Ridge of the refit, 0 for maximum likelihood.
    model : str
        What the column `network` holds: "network", or "merged" for merged models.
    resamples : int
        Bootstrap: resamples that are separated or lack a class, whose estimates count as infinite.
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
    support: Index
    base: npt.NDArray[np.bool_]
    aliased: npt.NDArray[np.bool_]
    separated: npt.NDArray[np.bool_]
    penalty: float = 0.0
    model: str = "network"
    resamples: int = 0
    seed: int | None = None

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per coefficient."""
        columns = {
            self.model: self.network,
            "estimate": self.estimate,
            "error": self.error,
            "lower": self.lower,
            "upper": self.upper,
            "p_value": self.p_value,
        }
        return [
            {"coefficient": name, "rows": int(self.support[i])}
            | {k: float(v[i]) for k, v in columns.items()}
            | {"base": bool(self.base[i]), "aliased": bool(self.aliased[i]), "separated": bool(self.separated[i])}
            for i, name in enumerate(self.names)
        ]

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Intervals as bars; returns the Axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **options
            Go to the function that draws.

        Returns
        -------
        matplotlib Axes
        """
        return door("Intervals.plot")(self, ax, **options)

    def __repr__(self) -> str:
        how = f"with a ridge of {self.penalty:g}, which pulls them to 0" if self.penalty else "by maximum likelihood"
        lines = [
            f"{self.method} intervals at {100 * self.level:g} % of coefficients refitted to {self.rows_used:,} rows "
            f"{how}; {self.model}: before the refit",
            text_table(self.rows()),
        ]
        lost, apart = int(self.aliased.sum()), int(self.separated.sum())
        if self.base.any():
            bases = [name for name, base in zip(self.names, self.base.tolist(), strict=True) if base]
            lines.append(
                f"the levels of a category are compared with its most frequent one: {', '.join(bases)} (the base, 0)"
            )
        if lost:
            empty = int((self.aliased & (self.support == 0)).sum())
            none = f" ({empty} of them have no rows here)" if empty else ""
            lines.append(f"{lost} aliased{none}: these rows do not determine them one by one")
        if apart and self.penalty:
            lines.append(f"{apart} separated: the rows set no bound to them, and their size comes from the ridge")
        elif apart:
            says = "no interval by bootstrap" if self.method == "bootstrap" else "one-sided by profile likelihood"
            lines.append(f"{apart} separated: the likelihood has no maximum, so there is no finite estimate ({says})")
        if self.resamples:
            lines.append(f"{self.resamples:,} resamples were separated or lacked a class: infinite estimates there")
        return "\n".join(lines)


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
    model: str = "network",
) -> Intervals:
    """Intervals for the coefficients of a model refitted to some rows, beside the model `C x + d` that they had, for
    rows in the units of the columns.
    """
    X, response, units = read(u.X, rows), _single(u.response.part(rows), output), Units.of(u.network)
    names = [headed(name, units.coefficient(output, j)) for j, name in enumerate(u.feature_names)]
    if u.scaling is not None:
        X = u.scaling.original(X)
    weight = None if u.weight is None else u.weight[rows]
    choice(method, "method", ("wald", "bootstrap"))
    draws = integer(draws, "draws", low=2)
    seeded(0 if rng is None else rng)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    penalty = real(penalty, "penalty", low=0.0)
    if weight is not None and not weight.all():  # rows that count for nothing determine nothing
        counted = np.flatnonzero(weight)
        X, response, weight = X[counted], response.part(counted), weight[counted]
    varied = np.ptp(X, axis=0) > 0  # the others have no estimate
    base, C, d = _against_bases(X, varied, weight, C, d)
    free = np.flatnonzero(varied & ~base)
    scale = glm.Scale.of(X[:, free], weight)
    design = _Design.of(X[:, free], scale)
    _enough(response, len(X), len(free) + 1, design.rank, penalty)
    labelled, seed, resamples = (headed("intercept", units.outputs[output]), *names), None, 0
    spots = np.append(0, 1 + free)
    with blas_threads(X.shape[1]):
        apart = _separation_of(X[:, free], response, weight, scale, design)
        if method == "wald":
            found = _wald(X[:, free], response, weight, scale, design, level, penalty, apart)
        else:
            draws = integer(draws, "draws", low=20)
            generator, seed = seeded(rng)
            sample = _Sample(X[:, free], response, weight, scale, penalty)
            found, resamples = _bootstrap(sample, design, level, draws, generator, apart)
    if penalty == 0:
        for column in found:
            column[design.aliased] = np.nan
    columns = [np.full(len(labelled), np.nan) for _ in range(5)]
    for column, known in zip(columns, found, strict=True):
        column[spots] = known
    estimate, error, lower, upper, p_value = columns
    aliased, separated = np.ones(len(labelled), dtype=bool), np.zeros(len(labelled), dtype=bool)
    aliased[spots] = design.aliased
    base = np.append(False, base)
    estimate[base], aliased[base] = 0.0, False
    flags = ((X == 0) | (X == 1)).all(axis=0)
    support = np.append(len(X), np.where(flags, np.count_nonzero(X, axis=0), len(X)))
    if apart is not None:
        separated[spots] = apart.infinite & ~design.aliased
    return Intervals(
        labelled, np.append(d, C), estimate, error, lower, upper, p_value, level, method, len(X), support,
        base, aliased, separated, penalty, model, resamples, seed,
    )  # fmt: skip


def _against_bases(
    X: FloatArray, varied: npt.NDArray[np.bool_], weight: FloatArray | None, C: FloatArray, d: float
) -> tuple[npt.NDArray[np.bool_], FloatArray, float]:
    """Which features are the base levels of categories, and the model `C x + d` with other levels as differences."""
    base, C, d, j = np.zeros(X.shape[1], dtype=bool), C.copy(), float(d), 0
    while j < X.shape[1]:
        end = _levels_from(X, j)
        if varied[j:end].sum() > 1:
            frequent = j + int(np.argmax(np.average(X[:, j:end], axis=0, weights=weight)))
            base[frequent] = True
            d += float(C[frequent])
            C[j:end] -= C[frequent]
        j = max(end, j + 1)
    return base, C, d


def _levels_from(X: FloatArray, first: int) -> int:
    """Where the levels of a category end that start with this feature (zeros and ones, adding up to 1), or `first`."""
    total = np.zeros(len(X))
    for j in range(first, X.shape[1]):
        if not ((X[:, j] == 0) | (X[:, j] == 1)).all():
            break
        total += X[:, j]
        if (total == 1).all():
            return j + 1
        if (total > 1).any():
            break
    return first


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


def _separation_of(
    X: FloatArray,
    response: Response,
    weight: FloatArray | None,
    scale: glm.Scale,
    design: _Design,
    value: FloatArray | None = None,
) -> Separated | None:
    """What (intercept, C) are worth where rows are separated; None where the estimate is finite.

    With the `value` of a fit without penalty it is not looked to which side infinite ones go.
    """
    if response.code is None or len(np.unique(response.code)) < 2:
        return None
    positive, w = response.code == 1, _weights(weight, len(X))
    Z = scale.design(X) @ design.seen
    if value is None:
        eta = glm.fit(X, response, penalty=0.0, scale=scale, weight=w)(X)[:, 0]
    else:
        eta = X @ value[1:] + value[0]
    if not suspicious(eta, positive):
        return None
    rows = separated_rows(Z, positive)
    return analyse(Z, positive, w, _back(scale) @ design.seen, rows, value is None) if rows.any() else None


def _weights(weight: FloatArray | None, n: int) -> FloatArray:
    return np.ones(n) if weight is None else weight * (n / weight.sum())


def _wald(
    X: FloatArray,
    response: Response,
    weight: FloatArray | None,
    scale: glm.Scale,
    design: _Design,
    level: float,
    penalty: float,
    apart: Separated | None,
) -> tuple[FloatArray, ...]:
    ndtr, stdtr = late("scipy.special", "ndtr", "stdtr")

    Z, w = scale.design(X), _weights(weight, len(X))
    if apart is not None and penalty == 0:
        return _wald_separated(Z @ design.seen, response, w, _back(scale) @ design.seen, level, apart)
    model = glm.fit(X, response, penalty=penalty, scale=scale, weight=w)
    eta = model(X)[:, 0]
    ridge = np.full(Z.shape[1], penalty)
    ridge[-1] = 0.0
    if response.target is not None:
        freedom = max(len(X) - design.rank, 1)
        noise = float(w @ (response.target[:, 0] - eta) ** 2) / freedom
        fisher, outer = (Z * w[:, None]).T @ Z, noise
    else:
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


def _wald_separated(
    Z: FloatArray, response: Response, weight: FloatArray, of: FloatArray, level: float, apart: Separated
) -> tuple[FloatArray, ...]:
    """Wald where the limit is finite, one-sided by profile likelihood where it is not."""
    ndtr = late("scipy.special", "ndtr")

    assert response.code is not None
    reach = normal_quantile(level)
    value, error = apart.value.copy(), np.sqrt(apart.variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * ndtr(-np.abs(value / error))
    lower, upper = value - reach * error, value + reach * error
    for j in np.flatnonzero(apart.infinite).tolist():
        lower[j], upper[j] = -np.inf, np.inf
        if apart.up[j] == apart.down[j]:
            continue
        sign = 1.0 if apart.up[j] else -1.0
        value[j] = sign * np.inf
        end, lost = profile_limit(Z, response.code == 1, weight, of[j], apart.best, reach**2, sign)
        lower[j], upper[j] = (end, np.inf) if sign > 0 else (-np.inf, end)
        p[j] = 2 * ndtr(-np.sqrt(max(lost, 0.0)))
    return value, error, lower, upper, p


@dataclass(frozen=True, eq=False)
class _Sample:
    """Rows that a model is fitted to."""

    X: FloatArray
    response: Response
    weight: FloatArray | None
    scale: glm.Scale
    penalty: float

    def fit(self, rows: Any = slice(None), weight: FloatArray | None = None) -> FloatArray:
        """(intercept, C) of some rows."""
        model = glm.fit(self.X[rows], self.response.part(rows), penalty=self.penalty, scale=self.scale, weight=weight)
        return np.append(model.d, model.C)

    def ends(self, rows: Index, design: _Design) -> tuple[FloatArray, FloatArray, bool]:
        """The estimate of a resample as (lower, upper) ends, equal where it is determined; whether it runs away."""
        value = self.fit(rows)
        if self.penalty > 0:
            return value, value, False
        low, high = value.copy(), value.copy()
        X, part, away = self.X[rows], self.response.part(rows), False
        inner = _Design.of(X, self.scale)
        lost = inner.aliased & ~design.aliased  # a rare dummy may be missing here
        if part.code is not None:
            away = len(np.unique(part.code)) < 2
            if away:
                lost = ~design.aliased
            else:
                found = _separation_of(X, part, None, self.scale, inner, value)
                if found is not None:
                    away = True
                    # The fit runs away to the side on which the likelihood rises fastest.
                    ran = found.infinite & ~lost
                    low[ran] = high[ran] = np.copysign(np.inf, value[ran])
                    sure = ~found.infinite & ~lost
                    low[sure] = high[sure] = found.value[sure]
        low[lost], high[lost] = -np.inf, np.inf
        return low, high, away


def _bootstrap(
    sample: _Sample, design: _Design, level: float, draws: int, rng: np.random.Generator, apart: Separated | None
) -> tuple[tuple[FloatArray, ...], int]:
    weight, n = sample.weight, len(sample.X)
    chance = None if weight is None else weight / weight.sum()
    low, high = np.empty((2, draws, sample.X.shape[1] + 1))
    away = 0
    for k in range(draws):
        low[k], high[k], ran = sample.ends(rng.choice(n, n, p=chance), design)
        away += ran
    value = sample.fit(weight=weight)
    tail = (1 - level) / 2
    finite = np.isfinite(low).all(axis=0) & np.isfinite(high).all(axis=0)
    lower, upper, error = (np.full(len(value), np.nan) for _ in range(3))
    lower[finite], upper[finite] = np.quantile(low[:, finite], [tail, 1 - tail], axis=0)
    error[finite] = low[:, finite].std(axis=0, ddof=1)
    for j in np.flatnonzero(~finite).tolist():  # no interpolation between infinite numbers
        lower[j] = np.sort(low[:, j])[int(np.floor(tail * (draws - 1)))]
        upper[j] = np.sort(high[:, j])[int(np.ceil((1 - tail) * (draws - 1)))]
    if apart is not None and sample.penalty == 0:
        value = apart.value.copy()
        one = apart.infinite & (apart.up != apart.down)
        value[one] = np.where(apart.up[one], np.inf, -np.inf)
        for column in (lower, upper, error):
            column[apart.infinite] = np.nan
    return (value, error, lower, upper, np.full(len(value), np.nan)), away
