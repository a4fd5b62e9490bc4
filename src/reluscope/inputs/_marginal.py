"""The distribution of one input as a piecewise-linear function of a standard normal score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, flag, real, real_array, text
from reluscope._lazy import late
from reluscope.activations import MAX_PIECES, Activation
from reluscope.errors import InputError
from reluscope.inputs._law import FAR, frozen

DEFAULT_ACCURACY = 1e-3
"""Largest distance of a marginal's cdf from the one asked for, unless said otherwise."""

TAIL = 1e-7
"""Probability beyond the last knot on either side."""

_TAIL_RELATIVE = 0.15
"""Relative error of the probability beyond a value in the tails, up to the last knot."""

_LAST, _BOUND = -30.0, -37.0
"""Scores up to which x goes on beyond the last knot where its bound is far away, and at which it is then at the bound:
probability 1e-197 and 1e-299, so that a far bound adds nothing to a mean or a variance."""

_RAMP = 1e-6
"""Probability of the ramp between two values of a discrete distribution: pieces must meet."""

_GRID = 801
_MOST_LEVELS = MAX_PIECES // 2
_CHECKS = 33
"""Points in every piece at which the cdf is compared with the one asked for."""


class _Target(NamedTuple):
    """Points `(z, x)` of the function wanted, non-decreasing in both, and whether it is constant beyond its ends."""

    z: FloatArray
    x: FloatArray
    flat_below: bool
    flat_above: bool
    smooth: bool = False


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Marginal:
    """One input's distribution: `x = T(z)` with z standard normal and T non-decreasing and piecewise linear.

    Parameters
    ----------
    scores : array_like, shape (k,)
        Knots of T, increasing: values of z.
    values : array_like, shape (k,)
        `T` at the knots, never decreasing. Where two are equal, x has an atom: it takes that value with the
        probability that z has between the knots.
    below, above : float, optional
        Slopes before the first and after the last knot; by default those of the first and the last piece. With 0 the
        end value is a bound, and an atom.

    Raises
    ------
    InputError
        If the knots do not increase, the values decrease, or there are too many (255 pieces).

    Notes
    -----
    `Marginal.of(distribution)`, `Marginal.from_data(column)` and `Marginal.from_points(values, probabilities)` work out
    the knots; `cdf_error` is then the largest distance between the cdf of this marginal and that of what was given.

    Examples
    --------
    >>> Marginal([-1.0, 1.0], [0.0, 4.0], below=0.0)  # never negative
    Marginal(from 0 to inf, 2 pieces)
    """

    scores: FloatArray
    values: FloatArray
    below: float
    above: float
    cdf_error: float
    """Largest distance to the cdf asked for; 0 when the knots themselves were given."""

    def __init__(
        self,
        scores: npt.ArrayLike,
        values: npt.ArrayLike,
        *,
        below: float | None = None,
        above: float | None = None,
    ) -> None:
        z, x = real_array(scores, "scores", ndim=1), real_array(values, "values", ndim=1)
        if not len(z) or len(z) != len(x):
            raise InputError(f"scores and values must have equally many entries, at least one, got {len(z)}, {len(x)}")
        if len(z) >= MAX_PIECES:
            raise InputError(f"a marginal may have at most {MAX_PIECES} pieces, got {len(z) + 1}")
        for name, array, bad in (
            ("scores must increase", z, np.diff(z) <= 0),
            ("values must not decrease", x, np.diff(x) < 0),
        ):
            if bad.any():
                k = int(np.argmax(bad))
                raise InputError(f"{name}, got {array[k]} before {array[k + 1]} at index {k}")
        slopes = np.diff(x) / np.diff(z) if len(z) > 1 else np.zeros(1)
        ends = [
            slopes[0] if below is None else real(below, "below", low=0.0),
            slopes[-1] if above is None else real(above, "above", low=0.0),
        ]
        self._set(frozen(z), frozen(x), float(ends[0]), float(ends[1]), 0.0)

    def _set(self, z: FloatArray, x: FloatArray, below: float, above: float, error: float) -> None:
        for name, value in (("scores", z), ("values", x), ("below", below), ("above", above), ("cdf_error", error)):
            object.__setattr__(self, name, value)

    @classmethod
    def _of(cls, z: FloatArray, x: FloatArray, below: float, above: float, error: float) -> Marginal:
        out = cls.__new__(cls)
        out._set(frozen(z), frozen(x), float(below), float(above), float(error))
        return out

    # -- ways in -------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, distribution: Any, *, accuracy: float = DEFAULT_ACCURACY, name: str = "distribution") -> Marginal:
        """The marginal of a distribution with a quantile function, such as a frozen one of `scipy.stats`.

        Parameters
        ----------
        distribution : object
            Has `ppf` (or `icdf`), the quantile function; `cdf`, `isf` and `support` are used where it has them.
        accuracy : float
            Largest distance of the cdf; `cdf_error` says what it came to.
        name : str
            For error messages.

        Returns
        -------
        Marginal

        Raises
        ------
        InputError
            If it has no quantile function, or the accuracy needs more than 255 pieces.

        Notes
        -----
        Knots reach to probability 1e-7 on either side, with a relative error of tail probabilities of about 15 %.
        Beyond the last knot x is linear in the score, up to the distribution's bound where it has one: the bound is
        then an atom of probability 1e-7 at most. Values of a discrete distribution are atoms; ramps of probability 1e-6
        join them.

        Examples
        --------
        >>> from scipy import stats
        >>> law = Marginal.of(stats.lognorm(0.5))
        >>> law.cdf_error < 1e-3, round(float(law.quantile(0.5)), 2)
        (True, 1.0)
        """
        text(name, "name")
        accuracy = real(accuracy, "accuracy", low=0.0, high=0.5, open_=True)
        quantile, upper = _quantiles(distribution, name)
        cdf = getattr(distribution, "cdf", None)
        if hasattr(getattr(distribution, "dist", None), "pmf") or (
            hasattr(distribution, "pmf") and not hasattr(distribution, "pdf")
        ):
            levels, below = _levels(distribution, quantile, name)
            if len(levels) <= _MOST_LEVELS:
                return _fitted(_steps(levels, below), accuracy, name, lambda m: _step_error(m, levels, below))
        target = _curve(distribution, quantile, upper, name)
        return _fitted(target, accuracy, name, lambda m: _curve_error(m, cdf, target))

    @classmethod
    def from_data(
        cls,
        column: npt.ArrayLike,
        *,
        accuracy: float = DEFAULT_ACCURACY,
        support: tuple[float, float] | None = None,
        name: str = "column",
    ) -> Marginal:
        """The marginal with the quantiles of a sample.

        Parameters
        ----------
        column : array_like, shape (N,)
            The sample: at least two different finite values.
        accuracy : float
            Largest distance to the sample's own cdf, as far as knots go; values that are more frequent than twice that
            are atoms.
        support : (float, float), optional
            Bounds that no value passes; by default the smallest and largest value seen. Up to a bound, or for ever if
            it is infinite, x goes on beyond the data, linear in the score.
        name : str
            For error messages.

        Returns
        -------
        Marginal

        Examples
        --------
        >>> law = Marginal.from_data([0.0, 0.0, 0.0, 1.0, 2.0, 5.0])
        >>> round(float(law.cdf(0.0)), 3)
        0.5
        """
        x = real_array(column, text(name, "name"), ndim=1)
        accuracy = real(accuracy, "accuracy", low=0.0, high=0.5, open_=True)
        if not len(x):
            raise InputError(f"{name} has no values")
        levels, counts = np.unique(x, return_counts=True)
        below = np.cumsum(counts) / len(x)
        low, high = levels[0], levels[-1]
        if support is not None:
            sides = real_array(support, f"support of {name}", ndim=1, finite=False)
            if len(sides) != 2 or np.isnan(sides).any():
                raise InputError(f"support of {name} must be a pair (low, high), got {describe(support)}")
            low, high = sides.tolist()
        if not (low <= levels[0] and levels[-1] <= high):
            raise InputError(
                f"support of {name} must hold all values, which are in [{levels[0]:g}, {levels[-1]:g}]; got {support}"
            )
        if len(levels) == 1:
            return cls([0.0], levels)
        target = _sample_curve(levels, counts / len(x), below, accuracy, low, high)
        return _fitted(target, accuracy, name, lambda m: _step_error(m, levels, below))

    @classmethod
    def from_points(cls, values: npt.ArrayLike, probabilities: npt.ArrayLike) -> Marginal:
        """The marginal with `P(x <= values[k]) = probabilities[k]`, linear in the normal score in between.

        Parameters
        ----------
        values : array_like, shape (k,)
            Never decreasing; a value given twice is an atom.
        probabilities : array_like, shape (k,)
            Increasing. A first one of 0 (a last one of 1) makes the value a bound, reached at probability 1e-7.

        Returns
        -------
        Marginal

        Examples
        --------
        >>> Marginal.from_points([0.0, 0.0, 3.0], [0.0, 0.25, 1.0]).cdf([0.0, 3.0]).round(6).tolist()
        [0.25, 1.0]
        """
        ndtri = late("scipy.special", "ndtri")

        x, p = real_array(values, "values", ndim=1), real_array(probabilities, "probabilities", ndim=1)
        if len(x) != len(p) or not len(x):
            raise InputError(f"values and probabilities must have equally many entries, got {len(x)} and {len(p)}")
        if (p < 0).any() or (p > 1).any() or (np.diff(p) <= 0).any():
            raise InputError(f"probabilities must increase within [0, 1], got {describe(p.tolist())}")
        z = ndtri(np.clip(p, TAIL, 1.0 - TAIL))
        return cls(z, x, below=0.0 if p[0] == 0 else None, above=0.0 if p[-1] == 1 else None)

    # -- the function --------------------------------------------------------------------------------------------

    @cached_property
    def activation(self) -> Activation:
        """T as the activation of a unit."""
        z, x = self.scores, self.values
        if len(z) == 1 and self.below == self.above:
            return Activation((), (self.below,), (float(x[0] - self.below * z[0]),), "marginal")
        slopes = np.concatenate([[self.below], np.diff(x) / np.diff(z), [self.above]])
        # From the knot nearest to 0: fewer digits are lost to cancellation.
        first = np.concatenate([[0], np.arange(len(z) - 1), [len(z) - 1]])
        last = np.concatenate([[0], np.arange(1, len(z)), [len(z) - 1]])
        near = np.where(np.abs(z[first]) <= np.abs(z[last]), first, last)
        intercepts = x[near] - slopes * z[near]
        keep = np.flatnonzero(np.diff(slopes) != 0)  # pieces in one line are one piece
        pieces = np.append(keep, len(slopes) - 1)
        return Activation(
            tuple(z[keep].tolist()), tuple(slopes[pieces].tolist()), tuple(intercepts[pieces].tolist()), "marginal"
        )

    @property
    def pieces(self) -> int:
        """Number of linear pieces."""
        return self.activation.pieces

    def __call__(self, z: npt.ArrayLike) -> FloatArray:
        """`T(z)`; z may be infinite."""
        z = np.asarray(z, dtype=np.float64)
        inner = np.where(np.isfinite(z), z, 0.0)
        a = self.activation
        piece = a.piece(inner)
        low, high = self.support
        out = np.asarray(a.slopes)[piece] * inner + np.asarray(a.intercepts)[piece]
        out = np.clip(out, low, high)
        return np.where(np.isfinite(z), out, np.where(z > 0, high, low))

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest value, possibly infinite."""
        return (
            float(self.values[0]) if self.below == 0 else -np.inf,
            float(self.values[-1]) if self.above == 0 else np.inf,
        )

    @property
    def affine(self) -> bool:
        """Whether T is one line: x is normal, or constant."""
        return self.pieces == 1

    @cached_property
    def atoms(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values that x takes with positive probability, and the scores between which it does, each shape (m,)."""
        z, x = self.scores, self.values
        edges = np.concatenate([[-np.inf], z, [np.inf]])
        level = np.concatenate([[x[0]], x[1:], [x[-1]]])
        flat = np.concatenate([[self.below == 0], np.diff(x) == 0, [self.above == 0]])
        value: list[float] = []
        low: list[float] = []
        high: list[float] = []
        for k in np.flatnonzero(flat).tolist():
            if value and value[-1] == level[k] and high[-1] == edges[k]:
                high[-1] = float(edges[k + 1])
            else:
                value.append(float(level[k]))
                low.append(float(edges[k]))
                high.append(float(edges[k + 1]))
        return np.array(value), np.array(low), np.array(high)

    def score(self, x: npt.ArrayLike, side: str = "right") -> FloatArray:
        """The scores of values: the largest z with `T(z) <= x` ("right"), or the smallest with `T(z) >= x` ("left").

        Infinite where there is none: beyond a bound.

        Parameters
        ----------
        x : array
        side : {"right", "left"}

        Returns
        -------
        array of the shape of `x`
        """
        x = real_array(x, "x", finite=False)
        if np.isnan(x).any():
            raise InputError("x must not hold nan")
        choice(side, "side", ("right", "left"))
        z, v = self.scores, self.values
        right = side == "right"
        k = np.searchsorted(v, x, side="right" if right else "left")  # values[:k] are <= x (or < x)
        inside = (k > 0) & (k < len(z))
        i = np.clip(k, 1, max(len(z) - 1, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            if len(z) > 1:
                share = (x - v[i - 1]) / (v[i] - v[i - 1])
                out = z[i - 1] + share * (z[i] - z[i - 1])
            else:
                out = np.full(x.shape, z[0])
            low = z[0] + (x - v[0]) / self.below if self.below > 0 else np.full(x.shape, -np.inf)
            high = z[-1] + (x - v[-1]) / self.above if self.above > 0 else np.full(x.shape, np.inf)
        if self.below == 0:  # on the bound itself z is at the first knot, below it there is none
            low = np.where((x == v[0]) & right, z[0], -np.inf)
        if self.above == 0:
            high = np.where((x == v[-1]) & (not right), z[-1], np.inf)
        return np.where(inside, out, np.where(k == 0, low, high))

    def inverse(self, x: npt.ArrayLike) -> FloatArray:
        """One finite score of each value; in the middle where several have it, at the end beyond a bound.

        Parameters
        ----------
        x : array

        Returns
        -------
        array of the shape of `x`
        """
        ends = np.clip(np.stack([self.score(x, "left"), self.score(x, "right")]), -FAR, FAR)
        ends.sort(axis=0)
        return np.asarray(ends.mean(axis=0))

    def cdf(self, t: npt.ArrayLike, *, strict: bool = False) -> FloatArray:
        """`P(x <= t)`, or `P(x < t)`, for a standard normal score.

        Parameters
        ----------
        t : array
        strict : bool

        Returns
        -------
        array of the shape of `t`
        """
        ndtr = late("scipy.special", "ndtr")

        t = real_array(t, "t", finite=False)
        if np.isnan(t).any():
            raise InputError("t must not hold nan")
        return np.asarray(ndtr(self.score(t, "left" if flag(strict, "strict") else "right")))

    def quantile(self, q: npt.ArrayLike) -> FloatArray:
        """`T` at the normal score of probabilities.

        Parameters
        ----------
        q : array

        Returns
        -------
        array of the shape of `q`
        """
        ndtri = late("scipy.special", "ndtri")

        q = real_array(q, "q")
        if ((q < 0) | (q > 1)).any():
            raise InputError("q must hold probabilities, from 0 to 1")
        return self(ndtri(q))

    def moved(self, scale: float, shift: float) -> Marginal:
        """The marginal of `scale x + shift`.

        Parameters
        ----------
        scale : float
            Positive.
        shift : float

        Returns
        -------
        Marginal
        """
        scale, shift = real(scale, "scale", low=0.0, open_=True), real(shift, "shift")
        return Marginal._of(
            self.scores, scale * self.values + shift, scale * self.below, scale * self.above, self.cdf_error
        )

    # -- moments ---------------------------------------------------------------------------------------------------

    def moments(
        self, mean: npt.ArrayLike, sd: npt.ArrayLike, low: float = -np.inf, high: float = np.inf
    ) -> tuple[FloatArray, FloatArray]:
        """`E x` and `Var x` for `z ~ N(mean, sd^2)` given `low <= z <= high`.

        Parameters
        ----------
        mean, sd : array
            Of any shape.
        low, high : float

        Returns
        -------
        expected, variance : arrays of the shape of `mean`
        """
        ndtr = late("scipy.special", "ndtr")

        a = self.activation
        m, s = np.broadcast_arrays(
            np.asarray(mean, dtype=np.float64)[..., None], np.asarray(sd, dtype=np.float64)[..., None]
        )
        slope, start = np.asarray(a.slopes), np.asarray(a.intercepts)
        edges = np.concatenate([[-np.inf], a.breaks, [np.inf]])
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(s > 0, (np.clip(edges, low, high) - m) / np.where(s > 0, s, 1.0), 0.0)
        lo, hi = t[..., :-1], t[..., 1:]
        flip = lo > 0
        p = np.where(flip, ndtr(-lo) - ndtr(-hi), ndtr(hi) - ndtr(lo))
        density = np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
        tail = np.where(np.isfinite(t), t, 0.0) * density
        first, second = density[..., :-1] - density[..., 1:], p + tail[..., :-1] - tail[..., 1:]
        level, step = start + slope * m, slope * s
        whole = p.sum(axis=-1)
        still = s[..., 0] == 0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            one = np.where(still, self(m[..., 0]), (level * p + step * first).sum(axis=-1) / whole)
            # About the mean, which may be many standard deviations from 0, in a unit whose square is a float.
            level = level - one[..., None]
            unit = np.maximum(np.abs(level), np.abs(step)).max(axis=-1, keepdims=True)
            unit = np.where(unit > 0, unit, 1.0)
            level, step = level / unit, step / unit
            two = (level**2 * p + 2 * level * step * first + step**2 * second).sum(axis=-1) / whole
            return one, np.where(still, 0.0, unit[..., 0] ** 2 * np.maximum(two, 0.0))

    def plain(self) -> dict[str, Any]:
        """The knots as lists, fit for JSON."""
        return {
            "scores": self.scores.tolist(),
            "values": self.values.tolist(),
            "below": self.below,
            "above": self.above,
            "cdf_error": self.cdf_error,
        }

    def __repr__(self) -> str:
        low, high = self.support
        count = "1 piece" if self.pieces == 1 else f"{self.pieces} pieces"
        error = f", cdf error {self.cdf_error:.1e}" if self.cdf_error else ""
        return f"Marginal(from {low:.4g} to {high:.4g}, {count}{error})"


def marginal(value: Any, *, accuracy: float, name: str) -> Marginal:
    """A marginal from what users have: a marginal, a distribution, a sample, or (values, probabilities)."""
    if isinstance(value, Marginal):
        return value
    if isinstance(value, tuple) and len(value) == 2 and np.ndim(value[0]) == 1 and np.ndim(value[1]) == 1:
        return Marginal.from_points(*value)
    if isinstance(value, (list, np.ndarray)) or hasattr(value, "to_numpy"):
        return Marginal.from_data(value, accuracy=accuracy, name=name)
    return Marginal.of(value, accuracy=accuracy, name=name)


# -- what a distribution or a sample asks for ----------------------------------------------------------------------


def _quantiles(distribution: Any, name: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The quantile function, and that of the upper tail."""
    quantile = getattr(distribution, "ppf", None) or getattr(distribution, "icdf", None)
    if not callable(quantile) or isinstance(distribution, type):
        raise InputError(
            f"{name} has no quantile function (ppf): got {describe(distribution)}; give a frozen distribution such as "
            "scipy.stats.lognorm(0.5), a sample of the column, a pair (values, probabilities), or a Marginal"
        )
    upper = getattr(distribution, "isf", None) or getattr(distribution, "iccdf", None)
    return quantile, upper if callable(upper) else lambda q: quantile(1.0 - q)


def _asked(function: Callable[[Any], Any], at: FloatArray, name: str) -> FloatArray:
    with np.errstate(all="ignore"):
        try:
            out = np.asarray(function(at), dtype=np.float64)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise InputError(
                f"{name}: its quantile function fails ({str(error)[:80] or type(error).__name__}); give a frozen "
                "distribution with numbers as parameters, or a sample of the column"
            ) from error
    if out.shape != at.shape or np.isnan(out).any():
        raise InputError(f"{name}: its quantile function gives nan; are its parameters valid?")
    return out


def _levels(distribution: Any, quantile: Callable[[Any], Any], name: str) -> tuple[FloatArray, FloatArray]:
    """Values of a discrete distribution within the tails, and their cumulative probabilities."""
    ends = _asked(quantile, np.array([TAIL, 1.0 - TAIL]), name)
    if not np.isfinite(ends).all() or ends[1] - ends[0] > _MOST_LEVELS:
        return np.arange(_MOST_LEVELS + 1.0), np.zeros(0)
    levels = np.arange(np.floor(ends[0]), np.ceil(ends[1]) + 1.0)
    below = np.asarray(distribution.cdf(levels), dtype=np.float64)
    keep = np.diff(below, prepend=0.0) > 0
    return levels[keep], below[keep]


def _steps(levels: FloatArray, below: FloatArray) -> _Target:
    """Every value constant over its probability, but for the ramps."""
    ndtri = late("scipy.special", "ndtri")

    if len(levels) == 1:
        return _Target(np.zeros(1), levels, True, True)
    share = np.diff(below, prepend=0.0)
    ramp = np.minimum(_RAMP, 0.1 * np.minimum(share[:-1], share[1:]))
    z = np.stack([ndtri(below[:-1] - 0.5 * ramp), ndtri(below[:-1] + 0.5 * ramp)])
    return _Target(z.T.ravel(), np.stack([levels[:-1], levels[1:]]).T.ravel(), True, True)


def _curve(distribution: Any, quantile: Callable[[Any], Any], upper: Callable[[Any], Any], name: str) -> _Target:
    """The quantile function on a grid of scores, finer where it bends."""
    ndtr, ndtri = late("scipy.special", "ndtr", "ndtri")

    end = -float(ndtri(TAIL))

    def values(z: FloatArray) -> FloatArray:
        out = np.empty(z.shape)
        low = z <= 0
        out[low], out[~low] = _asked(quantile, ndtr(z[low]), name), _asked(upper, ndtr(-z[~low]), name)
        return out

    z = np.linspace(-end, end, _GRID)
    x = values(z)
    for _ in range(12):  # steps of a distribution that jumps are narrowed down
        with np.errstate(invalid="ignore", divide="ignore"):
            wide = np.diff(ndtr(z)) > 2 * _RAMP
            jump = wide & (np.diff(x) > 0.02 * (x[-2] - x[1]))
        if not jump.any() or len(z) > 8 * _GRID:
            break
        more = 0.5 * (z[:-1] + z[1:])[jump]
        z, x = np.concatenate([z, more]), np.concatenate([x, values(more)])
        order = np.argsort(z, kind="stable")
        z, x = z[order], x[order]
    bounds = (-np.inf, np.inf)
    if callable(getattr(distribution, "support", None)):
        low, high = distribution.support()
        bounds = (float(low), float(high))
    if not np.isfinite(x).all():
        raise InputError(
            f"{name} is infinite at probability {TAIL:g} or {1 - TAIL:g}: its tails are too heavy; truncate it"
        )
    fall = np.diff(x)
    if (fall < -1e-6 * np.ptp(x)).any():
        at = int(np.argmin(fall))
        raise InputError(
            f"{name}: its quantile function falls, from {x[at]:.6g} at probability {ndtr(z[at]):.4g} to "
            f"{x[at + 1]:.6g} at {ndtr(z[at + 1]):.4g}; a quantile function rises: is it that of the upper tail (isf)?"
        )
    smooth = bool((fall > 0).all())
    z, x = _bounded(z, np.maximum.accumulate(x), *bounds)
    return _Target(z, x, bool(np.isfinite(bounds[0])), bool(np.isfinite(bounds[1])), smooth)


def _sample_curve(
    levels: FloatArray, share: FloatArray, below: FloatArray, accuracy: float, low: float, high: float
) -> _Target:
    """A sample's quantiles: frequent values constant over their probability, others at its middle."""
    ndtri = late("scipy.special", "ndtri")

    frequent = share > 2.0 * accuracy
    start = below - share
    z, x = [], []
    for k in range(len(levels)):
        if frequent[k]:
            ramp = min(_RAMP, 0.05 * share[k])
            z += [start[k] + 0.5 * ramp, below[k] - 0.5 * ramp]
            x += [levels[k], levels[k]]
        else:
            z.append(start[k] + 0.5 * share[k])
            x.append(levels[k])
    # The first and the last value stand at the ends: beyond them nothing was seen.
    points, values = _bounded(ndtri(np.array(z)), np.array(x), low, high)
    return _Target(points, values, bool(np.isfinite(low)), bool(np.isfinite(high)))


def _bounded(z: FloatArray, x: FloatArray, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """The points of a curve with those at its bounds, where these are finite."""
    if np.isfinite(low):
        z, x = _down_to(z, x, low)
    if np.isfinite(high):
        z, x = _down_to(-z[::-1], -x[::-1], -high)
        z, x = -z[::-1], -x[::-1]
    return z, x


def _down_to(z: FloatArray, x: FloatArray, bound: float) -> tuple[FloatArray, FloatArray]:
    """Points before the first: to the bound, but not more steeply than the curve is, if the bound is far away.

    A line from the first value straight to a bound that is a thousand standard deviations away would have a small
    probability, and most of the variance.
    """
    ndtri = late("scipy.special", "ndtri")

    if bound >= x[0]:
        return z, x
    slope = float(np.interp(z[0] + 1.0, z, x) - x[0])  # over one score: the gap between two values may be any
    reached = z[0] - (x[0] - bound) / slope if slope > 0 else -np.inf
    tail = float(ndtri(TAIL))
    if reached >= z[0] - 1.0 and z[0] <= tail:
        return z, np.append(bound, x[1:])
    if reached >= _LAST:
        return np.append(min(reached, z[0] - 1.0, tail), z), np.append(bound, x)
    return np.append([_BOUND, _LAST], z), np.append([bound, x[0] - slope * (z[0] - _LAST)], x)


# -- fewest pieces -------------------------------------------------------------------------------------------------


def _fitted(target: _Target, accuracy: float, name: str, error: Callable[[Marginal], float]) -> Marginal:
    """The fewest knots, taken from the target greedily, and what the distance to it comes to."""
    z, x = target.z, target.x
    for factor in (1.7, 1.4, 1.15) if target.smooth else ():
        # Lines that miss the points on both sides need fewer knots than those through points.
        knots = _knots(z, x, factor * accuracy)
        if len(knots) < MAX_PIECES:
            moved = _between(z, x, knots, target)
            found = Marginal._of(*moved, 0.0)
            distance = error(found)
            if distance <= accuracy:
                return Marginal._of(*moved, distance)
    knots = _knots(z, x, 0.9 * accuracy)
    if len(knots) >= MAX_PIECES:
        raise InputError(
            f"{name} needs {len(knots) + 1} pieces for accuracy={accuracy:g}, more than {MAX_PIECES}; "
            f"ask for less, such as accuracy={4 * accuracy:.0e}"
        )
    slopes = np.diff(x[knots]) / np.diff(z[knots]) if len(knots) > 1 else np.zeros(1)
    below, above = (0.0 if target.flat_below else slopes[0]), (0.0 if target.flat_above else slopes[-1])
    out = Marginal._of(z[knots], x[knots], below, above, 0.0)
    return Marginal._of(out.scores, out.values, below, above, error(out))


def _between(
    z: FloatArray, x: FloatArray, knots: npt.NDArray[np.intp], target: _Target
) -> tuple[FloatArray, FloatArray, float, float]:
    """The knots with their scores moved by half of what the lines next to them miss, and the slopes beyond them."""
    piece = np.searchsorted(knots, np.arange(len(x)), side="right").clip(1, len(knots) - 1) - 1
    a, b = knots[piece], knots[piece + 1]
    missed = z[a] + (x - x[a]) / (x[b] - x[a]) * (z[b] - z[a]) - z
    order = np.lexsort((np.abs(missed), piece))
    worst = missed[order[np.searchsorted(piece[order], np.arange(len(knots) - 1), side="right") - 1]]
    move = np.concatenate([[worst[0]], 0.5 * (worst[:-1] + worst[1:]), [worst[-1]]])
    score = z[knots] - 0.5 * move
    if (np.diff(score) <= 0).any():
        score = z[knots]
    slopes = np.diff(x[knots]) / np.diff(score)
    return score, x[knots], 0.0 if target.flat_below else slopes[0], 0.0 if target.flat_above else slopes[-1]


def _knots(z: FloatArray, x: FloatArray, accuracy: float) -> npt.NDArray[np.intp]:
    """Which points to keep so that lines between them miss no other point by more than the accuracy, in probability."""
    ndtr = late("scipy.special", "ndtr")

    p = ndtr(z)
    hazard = np.maximum(np.abs(z), 0.8)
    last = len(z) - 1

    def fits(a: int, b: int) -> bool:
        if b - a < 2:
            return True
        if x[a] == x[b]:
            return True
        inner = slice(a + 1, b)
        share = (x[inner] - x[a]) / (x[b] - x[a])
        guess = z[a] + share * (z[b] - z[a])
        # A value on the level of an end point has all scores of a flat piece: its ends are points of their own.
        apart = np.abs(guess - z[inner])
        return bool(
            (np.abs(ndtr(guess) - p[inner]) <= accuracy).all() and (apart * hazard[inner] <= _TAIL_RELATIVE).all()
        )

    kept, a = [0], 0
    while a < last:
        step = 1
        while a + 2 * step <= last and fits(a, a + 2 * step):
            step *= 2
        low, high = a + step, min(a + 2 * step, last)
        if high > low and fits(a, high):
            low = high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(a, middle) else (low, middle)
        a = low
        kept.append(a)
    return np.array(kept, dtype=np.intp)


def _step_error(found: Marginal, levels: FloatArray, below: FloatArray) -> float:
    """Largest distance to a step function with the value `below` at and after each level."""
    before = np.concatenate([[0.0], below[:-1]])
    return float(max(np.abs(found.cdf(levels) - below).max(), np.abs(found.cdf(levels, strict=True) - before).max()))


def _curve_error(found: Marginal, cdf: Callable[[Any], Any] | None, target: _Target) -> float:
    """Largest distance to a continuous cdf, from many points of every piece and beyond: the maximum and 1 % of it."""
    ndtr = late("scipy.special", "ndtr")

    z = found.scores
    share = np.linspace(0.0, 1.0, _CHECKS)
    inner = (z[:-1, None] + share * np.diff(z)[:, None]).ravel()
    beyond = np.linspace(0.0, 3.0, _CHECKS)
    at = np.concatenate([z[0] - beyond, inner, z[-1] + beyond, target.z])
    if not callable(cdf):
        return 1.01 * float(np.abs(found.cdf(target.x) - ndtr(target.z)).max())
    x = found(at)
    with np.errstate(all="ignore"):
        wanted = np.asarray(cdf(x), dtype=np.float64)
        nearly = np.asarray(cdf(np.nextafter(x, -np.inf)), dtype=np.float64)
    worst = np.maximum(np.abs(found.cdf(x) - wanted), np.abs(found.cdf(x, strict=True) - nearly))
    return 1.01 * float(np.nanmax(worst))
