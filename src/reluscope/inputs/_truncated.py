"""A Gaussian conditioned on a box."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe
from reluscope._lazy import late
from reluscope.errors import InputError
from reluscope.inputs._gaussian import Gaussian
from reluscope.inputs._law import NEVER, VERSION, Box, Conditional, Index, Law, Restriction, box_sides, far_sides, short
from reluscope.inputs._normal1 import draw, from_offset, log_mass, moments
from reluscope.inputs._tilting import TiltedSampler, collect, tilted_sampler

SMALLEST_LOG_MASS = float(np.log(np.finfo(float).tiny))
"""A box with less mass in one input than the smallest normal float64 (2.2e-308) is refused."""

_UNCORRELATED = 1e-14
_PILOT = 512
_PLAIN_RATE = 0.05


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Truncated(Law):
    """Gaussian inputs given a box: `x ~ N(mean, cov)` given `lower <= x <= upper`.

    Parameters
    ----------
    gaussian : Gaussian
        The law before the restriction; it may be correlated or singular.
    lower, upper : array_like, shape (n,), or float
        Sides of the box; they may be infinite. A number stands for every input.

    Raises
    ------
    InputError
        If the box has no probability or one of its sides has less than 2.2e-308 (nothing can be conditioned on it),
        or if an input of zero variance lies outside its side. When inputs determine one another, a linear program
        finds out whether they can all be inside.

    Notes
    -----
    Draws are exact. Independent inputs: inverse cdf, accurate in the tails. Correlated: rejection from the Gaussian
    when the box holds 5 % or more, else minimax-tilted rejection; if that accepts fewer than 1 in 10,000 (as
    it may with far more than 100 correlated, restricted inputs) `sample` raises instead of approximating.

    `mean`, `variance`, `cov`, `log_mass` and `log_density` are closed forms as long as the *restricted* inputs (a
    finite side, positive variance) are uncorrelated with one another, and raise `InputError` otherwise.

    Examples
    --------
    >>> Truncated(Gaussian([0.0]), 0.0, np.inf).mean
    array([0.79788456])
    """

    kind: ClassVar[str] = "truncated"

    gaussian: Gaussian
    lower: FloatArray
    upper: FloatArray

    def __init__(self, gaussian: Gaussian, lower: npt.ArrayLike, upper: npt.ArrayLike) -> None:
        if not isinstance(gaussian, Gaussian):
            raise InputError(
                f"gaussian must be a Gaussian law, got {describe(gaussian)}; another law, such as a mixture, given a "
                "box is law.truncated(lower, upper)"
            )
        lo, hi = box_sides(lower, upper, gaussian.n, finite=False)
        for side, name, never in ((lo, "lower", np.inf), (hi, "upper", -np.inf)):
            if (side == never).any():
                raise InputError(
                    f"{name} must be below infinity, got {never} for input {int(np.argmax(side == never))}"
                )
        object.__setattr__(self, "gaussian", gaussian)
        object.__setattr__(self, "lower", lo)
        object.__setattr__(self, "upper", hi)
        self._refuse_empty_box()

    @property
    def n(self) -> int:
        """Number of inputs."""
        return self.gaussian.n

    @cached_property
    def restricted(self) -> npt.NDArray[np.intp]:
        """Indices of the inputs with a finite side and positive variance."""
        finite = np.isfinite(self.lower) | np.isfinite(self.upper)
        return np.flatnonzero(finite & (self.gaussian.sd > 0))

    @cached_property
    def independent(self) -> bool:
        """Whether the restricted inputs are uncorrelated with one another, so that closed forms apply."""
        if self.gaussian.factor.diagonal or len(self.restricted) < 2:
            return True
        rows = self._rows / self.gaussian.sd[self.restricted][:, None]
        correlation = rows @ rows.T
        np.fill_diagonal(correlation, 0.0)
        return bool(np.abs(correlation).max() <= _UNCORRELATED)

    @property
    def log_mass(self) -> float:
        """Logarithm of the Gaussian's mass in the box (closed form, see the class)."""
        self._need_closed_form("mass of the box")
        return float(log_mass(*self._interval).sum())

    @property
    def log_box(self) -> float:
        """The same; nan where it has no closed form."""
        return self.log_mass if self.independent else np.nan

    @property
    def mean(self) -> FloatArray:
        """E x given the box, shape (n,): `m + B (E y - m_y)`, y the restricted inputs and B the regression on them."""
        self._need_closed_form("mean")
        i = self.restricted
        out = self.gaussian.mean.copy()
        inside = self._restricted_moments[0]
        if not self.gaussian.factor.diagonal:
            out += self._regression @ (inside - self.gaussian.mean[i])
        out[i] = inside
        return out

    @property
    def variance(self) -> FloatArray:
        """Variances given the box, shape (n,)."""
        if not self.gaussian.factor.diagonal:
            return np.diag(self.cov).copy()
        out = self.gaussian.variance.copy()
        out[self.restricted] = self._restricted_moments[1]
        return out

    @property
    def cov(self) -> FloatArray:
        """Covariance given the box, shape (n, n): `cov + B (Var y - Var_gaussian y) B^T`."""
        if self.gaussian.factor.diagonal:
            return np.diag(self.variance)
        self._need_closed_form("covariance")
        B, i = self._regression, self.restricted
        inside = self._restricted_moments[1]
        out = self.gaussian.cov + (B * (inside - self.gaussian.variance[i])) @ B.T
        out[i] = inside[:, None] * B.T
        out[:, i] = inside * B
        out[i, i] = inside
        return out

    @property
    def gaussians(self) -> tuple[tuple[float, Gaussian], ...]:
        """The Gaussian when no input is restricted; none otherwise."""
        return () if len(self.restricted) else self.gaussian.gaussians

    @property
    def unrestricted(self) -> Gaussian:
        """The Gaussian before its restriction to the box."""
        return self.gaussian

    @property
    def independent_inputs(self) -> bool:
        """Whether the Gaussian's covariance is held as variances."""
        return self.gaussian.factor.diagonal

    @property
    def keeps_axes(self) -> bool:
        """Whether the inputs are independent, all with spread, and one or more restricted."""
        return self.independent_inputs and bool(len(self.restricted)) and bool((self.gaussian.sd > 0).all())

    def support(self) -> Box:
        """The box, and the mean where an input has no variance."""
        low, high = self.gaussian.support()
        return np.maximum(low, self.lower), np.minimum(high, self.upper)

    def far_box(self) -> Box:
        """The part of the box within 38.5 standard deviations of the mean, or of the side that is nearest to it."""
        mean, sd = self.gaussian.mean, np.where(self.gaussian.sd > 0, self.gaussian.sd, 1.0)
        low, high = self.support()
        a, b = far_sides((low - mean) / sd, (high - mean) / sd)
        return np.maximum(low, mean + sd * a), np.minimum(high, mean + sd * b)

    def _restricted(self, lower: FloatArray, upper: FloatArray) -> Restriction | None:
        return restricted_gaussian(self.gaussian, lower, upper, self.log_mass) if self.independent_inputs else None

    def _given(self, lower: FloatArray, upper: FloatArray) -> Law:
        return Truncated(self.gaussian, *_both((self.lower, self.upper), (lower, upper)))

    def _at(self, index: Index, values: FloatArray) -> Conditional:
        found = self.gaussian._at(index, values)
        if found.law is None:
            return NEVER
        lower, upper = self.lower.copy(), self.upper.copy()
        lower[index], upper[index] = -np.inf, np.inf
        try:
            rest = Truncated(found.law, lower, upper)  # type: ignore[arg-type]
        except InputError:
            return NEVER
        inner = rest.log_box - self.log_box
        return Conditional(rest if len(rest.restricted) else found.law, found.order, found.log_weight + inner)

    def _keep(self, index: Index) -> Truncated:
        dropped = np.setdiff1d(self.restricted, index)
        if len(dropped) and not self.independent_inputs:
            raise InputError(
                f"the law without input {int(dropped[0])}, which is restricted and correlated with others, has no "
                "closed form"
            )
        return Truncated(self.gaussian._keep(index), self.lower[index], self.upper[index])

    def _affine(self, s: FloatArray, t: FloatArray) -> Truncated:
        return Truncated(self.gaussian._affine(s, t), s * self.lower + t, s * self.upper + t)

    def _blocks(self) -> list[tuple[float, Law]]:
        return [(1.0, self)]

    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray:
        low, high = self.support()
        mean, sd = self.gaussian.mean[i], self.gaussian.sd[i]
        if low[i] == high[i]:
            return np.asarray(low[i] < t if strict else low[i] <= t)
        alone = np.setdiff1d(self.restricted, [i])
        if len(alone) and not self.independent_inputs:
            raise InputError(
                "the cdf of one input of a Gaussian truncated in correlated inputs has no closed form; "
                "estimate it from law.sample(n, rng), whose draws are exact"
            )
        above = t > low[i]
        ends = np.stack([np.where(above, np.minimum(t, high[i]), high[i]), np.full(t.shape, high[i])])
        with np.errstate(over="ignore"):
            start = np.full(ends.shape, (low[i] - mean) / sd)
            mass = log_mass(start, (ends - mean) / sd, (ends - low[i]) / sd)
        return np.where(above, np.exp(mass[0] - mass[1]), 0.0)

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        gaussian = self.gaussian
        i = self.restricted
        if gaussian.factor.diagonal:
            out = gaussian._sample(n, rng)
            if len(i):
                side, offset = draw(*self._interval, rng.random((n, len(i))))
                out[:, i] = from_offset(side, offset, gaussian.mean[i], gaussian.sd[i], self.lower[i], self.upper[i])
            return out
        if not len(i):
            return gaussian._sample(n, rng)

        def propose(batch: int) -> FloatArray:
            if self._sampler is None:
                x = gaussian._sample(batch, rng)
                return x[self._inside(x)]
            x = gaussian.factor.push(self._sampler.propose(batch, rng)) + gaussian.mean
            # Rows that the sampler handles are in the box up to rounding; the others are checked here.
            near = np.clip(x, self.lower, self.upper)
            kept = (np.abs(near - x)[:, i] <= self._rounding).all(axis=1)
            x[:, i] = near[:, i]
            return x[kept]

        return collect(propose, n, max(gaussian.factor.k, self.n))

    def _log_density(self, x: FloatArray) -> FloatArray:
        value = self.gaussian.log_density(x) - self.log_mass
        return np.where(((x >= self.lower) & (x <= self.upper)).all(axis=1), value, -np.inf)

    def to_dict(self) -> dict[str, Any]:
        """`{"law": "truncated", "version": 1, "gaussian": ..., "lower": ..., "upper": ...}`; null: an infinite side."""

        def sides(v: FloatArray) -> list[float | None]:
            return [float(s) if np.isfinite(s) else None for s in v]

        return {
            "law": self.kind, "version": VERSION, "gaussian": self.gaussian.to_dict(),
            "lower": sides(self.lower), "upper": sides(self.upper),
        }  # fmt: skip

    def __repr__(self) -> str:
        inner = repr(self.gaussian)[len("Gaussian(") : -1]
        return f"Truncated({inner}, from {short(self.lower)} to {short(self.upper)})"

    # -- inside --------------------------------------------------------------------------------------------------

    @cached_property
    def _rows(self) -> FloatArray:
        """Rows of the factor for the restricted inputs."""
        return self.gaussian.factor.rows(self.restricted)

    @cached_property
    def _interval(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Ends and width of each restricted input's interval, in its standard deviations."""
        i = self.restricted
        mean, sd = self.gaussian.mean[i], self.gaussian.sd[i]
        with np.errstate(over="ignore"):
            lower, upper = (self.lower[i] - mean) / sd, (self.upper[i] - mean) / sd
            return lower, upper, (self.upper[i] - self.lower[i]) / sd

    @cached_property
    def _rounding(self) -> FloatArray:
        """How far outside its side a restricted input of a draw may be by rounding alone."""
        i = self.restricted
        sd = self.gaussian.sd[i]
        narrow = np.minimum(1.0, self._interval[2])
        return 1e-12 * sd * narrow + 1e-14 * (sd + np.abs(self.gaussian.mean[i]))

    @cached_property
    def _restricted_moments(self) -> tuple[FloatArray, FloatArray]:
        i = self.restricted
        mean, sd = self.gaussian.mean[i], self.gaussian.sd[i]
        side, offset, variance = moments(*self._interval)
        return from_offset(side, offset, mean, sd, self.lower[i], self.upper[i]), variance * sd**2

    @cached_property
    def _regression(self) -> FloatArray:
        """Coefficients of all inputs on the restricted ones, shape (n, m)."""
        return self.gaussian.factor.push(self._rows).T / self.gaussian.variance[self.restricted]

    @cached_property
    def _sampler(self) -> TiltedSampler | None:
        """The tilted sampler, or None when plain rejection accepts often enough (a pilot with a fixed seed)."""
        pilot = self.gaussian._sample(_PILOT, np.random.default_rng(0))
        if self._inside(pilot).mean() >= _PLAIN_RATE:
            return None
        i = self.restricted
        return tilted_sampler(self._rows, self.lower[i] - self.gaussian.mean[i], self.upper[i] - self.gaussian.mean[i])

    def _inside(self, x: FloatArray) -> npt.NDArray[np.bool_]:
        i = self.restricted
        return np.asarray(((x[:, i] >= self.lower[i]) & (x[:, i] <= self.upper[i])).all(axis=1))

    def _need_closed_form(self, what: str) -> None:
        if not self.independent:
            raise InputError(
                f"the {what} of a Gaussian truncated in correlated inputs has no closed form; "
                "estimate it from law.sample(n, rng), whose draws are exact"
            )

    def _refuse_empty_box(self) -> None:
        mean, sd = self.gaussian.mean, self.gaussian.sd
        outside = (sd == 0) & ((mean < self.lower) | (mean > self.upper))
        if outside.any():
            j = int(np.argmax(outside))
            raise InputError(
                f"the box has zero mass: input {j} is always {mean[j]} (zero variance) "
                f"but its side is [{self.lower[j]}, {self.upper[j]}]"
            )
        i = self.restricted
        if not len(i):
            return
        flat = self.lower[i] == self.upper[i]
        if flat.any():
            j = int(i[np.argmax(flat)])
            raise InputError(
                f"the box has zero mass: its side for input {j} is the single value {self.lower[j]}; "
                "to fix an input, give it zero variance"
            )
        each = log_mass(*self._interval)
        # Input by input: the product over thousands of independent inputs may underflow and still be measured well.
        if not each.min() >= SMALLEST_LOG_MASS:
            j = int(i[np.argmin(each)])
            raise InputError(
                f"the mass of the box underflows: it is at most exp({each.min():.4g}), below the smallest float64 "
                f"2.2e-308; input {j} is the furthest out, with mean {mean[j]:.6g}, sd {sd[j]:.6g} and side "
                f"[{self.lower[j]:.6g}, {self.upper[j]:.6g}]"
            )
        if not self.independent:
            self._refuse_missed_support()

    def _refuse_missed_support(self) -> None:
        """When the inputs determine one another, their common subspace must pass through the inside of the box."""
        i = self.restricted
        mean = self.gaussian.mean[i]
        if ((mean > self.lower[i]) & (mean < self.upper[i])).all() or self.gaussian.factor.triangular:
            return
        sd = self.gaussian.sd[i]
        rows = self._rows / sd[:, None]
        if rows.shape[1] >= len(i) and np.linalg.matrix_rank(rows) == len(i):
            return
        linprog = late("scipy.optimize", "linprog")

        lower, upper, width = self._interval
        inner = np.minimum(1.0, 0.5 * width)  # how far inside counts as well inside
        A = np.block([[rows, inner[:, None]], [-rows, inner[:, None]]])
        b = np.concatenate([upper, -lower])
        use = np.isfinite(b)
        goal = np.zeros(A.shape[1])
        goal[-1] = -1.0
        bounds = [(None, None)] * rows.shape[1] + [(None, 1.0)]
        found = linprog(goal, A[use], b[use], bounds=bounds, method="highs")
        # Depth below the solver's own tolerance (1e-7) says nothing when a side is that narrow.
        if found.status == 0 and -found.fun <= 1e-6 and (inner.min() > 1e-4 or found.fun > 1e-6 / inner.min()):
            raise InputError(
                "the box has zero mass: the covariance is singular and the inputs it allows meet the box nowhere, "
                "or only on its boundary"
            )


def _both(one: Box, two: Box) -> Box:
    """The box that two boxes share."""
    lower, upper = np.maximum(one[0], two[0]), np.minimum(one[1], two[1])
    if (lower > upper).any():
        i = int(np.argmax(lower > upper))
        raise InputError(f"the box has zero mass: input {i} of the law is in [{one[0][i]}, {one[1][i]}]")
    return lower, upper


def restricted_gaussian(gaussian: Gaussian, lower: FloatArray, upper: FloatArray, before: float) -> Restriction | None:
    """A Gaussian with independent inputs given a box; `before` is the logarithm of the mass it is already given.

    None if the inputs are correlated, or if the box has less mass than can be conditioned on.
    """
    if not gaussian.factor.diagonal:
        return None
    try:
        law = Truncated(gaussian, lower, upper)
    except InputError:
        return None
    return Restriction(law, law.log_mass - before, 1e-12 * (1 + gaussian.n))
