"""The uniform law on a box, and weighted points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.errors import InputError
from reluscope.inputs._law import (
    NEVER,
    VERSION,
    Box,
    Conditional,
    Index,
    Law,
    Restriction,
    box_sides,
    data_rows,
    frozen,
    noise_rows,
    short,
    weight_vector,
)


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Uniform(Law):
    """Inputs uniform on the box `lower <= x <= upper`.

    Parameters
    ----------
    lower, upper : array_like, shape (n,), or float
        Finite sides; a number stands for every input. Where they are equal the input is fixed at that value, and the
        law has no density.

    Raises
    ------
    InputError
        If a side is not finite, the lengths differ, or `lower` exceeds `upper`.

    Examples
    --------
    >>> Uniform([0.0, 0.0], 1.0)
    Uniform(2 inputs, from [0, 0] to [1, 1])
    """

    kind: ClassVar[str] = "uniform"
    independent_inputs = keeps_axes = True

    lower: FloatArray
    upper: FloatArray

    def __init__(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> None:
        lo, hi = box_sides(lower, upper, None, finite=True)
        with np.errstate(over="ignore"):
            if not np.isfinite(hi - lo).all():
                raise InputError("the box is so wide that upper - lower overflows; rescale the inputs")
        object.__setattr__(self, "lower", lo)
        object.__setattr__(self, "upper", hi)

    @property
    def n(self) -> int:
        """Number of inputs."""
        return len(self.lower)

    @property
    def mean(self) -> FloatArray:
        """The middle of the box, shape (n,)."""
        return self.lower + 0.5 * (self.upper - self.lower)

    @property
    def variance(self) -> FloatArray:
        """`(upper - lower)^2 / 12`, shape (n,)."""
        return (self.upper - self.lower) ** 2 / 12.0

    @property
    def log_volume(self) -> float:
        """Logarithm of the volume over the inputs that are not fixed; 0 when all are."""
        width = self.upper - self.lower
        return float(np.log(width[width > 0]).sum())

    def support(self) -> Box:
        """The box itself."""
        return self.lower, self.upper

    def far_box(self) -> Box:
        """The box itself."""
        return self.lower, self.upper

    def _restricted(self, lower: FloatArray, upper: FloatArray) -> Restriction:
        free = self.upper > self.lower
        share = (upper - lower)[free] / (self.upper - self.lower)[free]
        return Restriction(Uniform(lower, upper), float(np.log(share).sum()), 1e-13 * (1 + self.n))

    def _at(self, index: Index, values: FloatArray) -> Conditional:
        lower, upper = self.lower.copy(), self.upper.copy()
        width = (upper - lower)[index]
        lower[index] = upper[index] = values
        return Conditional(Uniform(lower, upper), int((width > 0).sum()), -float(np.log(width[width > 0]).sum()))

    def _keep(self, index: Index) -> Uniform:
        return Uniform(self.lower[index], self.upper[index])

    def _affine(self, s: FloatArray, t: FloatArray) -> Uniform:
        return Uniform(s * self.lower + t, s * self.upper + t)

    def _blocks(self) -> list[tuple[float, Law]]:
        return [(1.0, self)]

    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray:
        low, high = self.lower[i], self.upper[i]
        if low == high:
            return np.asarray(low < t if strict else low <= t)
        return np.clip((t - low) / (high - low), 0.0, 1.0)

    @property
    def noise(self) -> tuple[Literal["uniform"], int]:
        """One uniform number per input."""
        return "uniform", self.n

    def from_noise(self, Z: FloatArray) -> FloatArray:
        """`lower + Z (upper - lower)`, shape (m, n).

        Parameters
        ----------
        Z : (m, n) array
            Uniform numbers in [0, 1).

        Returns
        -------
        (m, n) array
        """
        return self._pushed(noise_rows(Z, self.n))

    def _pushed(self, Z: FloatArray) -> FloatArray:
        return np.minimum(self.lower + Z * (self.upper - self.lower), self.upper)

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self._pushed(rng.random((n, self.n)))

    def _log_density(self, x: FloatArray) -> FloatArray:
        if (self.lower == self.upper).any():
            i = int(np.argmax(self.lower == self.upper))
            raise InputError(f"this law has no density: input {i} is fixed at {self.lower[i]}")
        inside = ((x >= self.lower) & (x <= self.upper)).all(axis=1)
        return np.where(inside, -self.log_volume, -np.inf)

    def to_dict(self) -> dict[str, Any]:
        """`{"law": self.kind, "version": 1, "lower": ..., "upper": ...}`."""
        return {"law": self.kind, "version": VERSION, "lower": self.lower.tolist(), "upper": self.upper.tolist()}

    def __repr__(self) -> str:
        inputs = "1 input" if self.n == 1 else f"{self.n} inputs"
        return f"Uniform({inputs}, from {short(self.lower)} to {short(self.upper)})"


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Particles(Law):
    """Inputs on finitely many points: `x = points[k]` with probability `weights[k]`.

    Parameters
    ----------
    X : array_like, shape (m, n)
        The points, one per row, such as a data set.
    weights : array_like, shape (m,), optional
        Probabilities; they must sum to 1 (within 1e-9, then they are normalised). Equal when None.

    Raises
    ------
    InputError
        If the points are not a table of finite numbers, or the weights are negative or do not sum to 1.

    Notes
    -----
    The law has no density. It counts as one component, however many points it has.

    Examples
    --------
    >>> Particles([[0.0, 1.0], [2.0, 3.0]]).mean
    array([1., 2.])
    """

    kind: ClassVar[str] = "particles"
    keeps_axes = True

    points: FloatArray
    weights: FloatArray

    def __init__(self, X: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> None:
        x = data_rows(X)
        w = np.full(len(x), 1.0 / len(x)) if weights is None else weight_vector(weights, "weights", len(x))
        object.__setattr__(self, "points", frozen(x))
        object.__setattr__(self, "weights", frozen(w))

    @property
    def n(self) -> int:
        """Number of inputs."""
        return int(self.points.shape[1])

    def __len__(self) -> int:
        return len(self.points)

    @property
    def mean(self) -> FloatArray:
        """`sum_k w_k x_k`, shape (n,)."""
        return self.weights @ self.points

    @property
    def variance(self) -> FloatArray:
        """`sum_k w_k (x_k - mean)^2`, shape (n,)."""
        return self.weights @ (self.points - self.mean) ** 2

    @property
    def cov(self) -> FloatArray:
        """`sum_k w_k (x_k - mean)(x_k - mean)^T`, shape (n, n)."""
        apart = self.points - self.mean
        return (self.weights[:, None] * apart).T @ apart

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray]:
        """`points` and `weights`."""
        return self.points, self.weights

    def support(self) -> Box:
        """The smallest and largest value of each input over the points of positive weight."""
        points = self.points[self.weights > 0]
        return points.min(axis=0), points.max(axis=0)

    def far_box(self) -> Box:
        """The box around the points."""
        return self.support()

    def _given(self, lower: FloatArray, upper: FloatArray) -> Particles:
        inside = ((self.points >= lower) & (self.points <= upper)).all(axis=1)
        total = float(self.weights[inside].sum())
        if not total > 0:
            raise InputError("the box has zero mass: none of the points of positive weight is inside")
        return Particles(self.points[inside], self.weights[inside] / total)

    def _at(self, index: Index, values: FloatArray) -> Conditional:
        keep = (self.points[:, index] == values).all(axis=1) & (self.weights > 0)
        if not keep.any():
            return NEVER
        total = float(self.weights[keep].sum())
        return Conditional(Particles(self.points[keep], self.weights[keep] / total), 0, float(np.log(total)))

    def _keep(self, index: Index) -> Particles:
        points, inverse = np.unique(self.points[:, index], axis=0, return_inverse=True)
        shares = np.bincount(np.ravel(inverse), self.weights)
        return Particles(points, shares / shares.sum())

    def _affine(self, s: FloatArray, t: FloatArray) -> Particles:
        return Particles(s * self.points + t, self.weights)

    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray:
        order = np.argsort(self.points[:, i], kind="stable")
        below = np.concatenate([[0.0], np.cumsum(self.weights[order])])
        return np.minimum(below[np.searchsorted(self.points[order, i], t, side="left" if strict else "right")], 1.0)

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.points[rng.choice(len(self.points), size=n, p=self.weights)]

    def _log_density(self, x: FloatArray) -> FloatArray:
        raise InputError("this law has no density: all its probability sits on points")

    def to_dict(self) -> dict[str, Any]:
        """`{"law": self.kind, "version": 1, "points": ..., "weights": ...}`."""
        return {
            "law": self.kind,
            "version": VERSION,
            "points": self.points.tolist(),
            "weights": self.weights.tolist(),
        }

    def __repr__(self) -> str:
        return f"Particles({len(self)} points, {self.n} {'input' if self.n == 1 else 'inputs'})"
