"""What all input laws have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, generator, integer, real_array
from reluscope.errors import InputError

WEIGHT_ROUNDING = 1e-9
"""How far weights may be from summing to 1 and still be normalised without a word."""

_MOST_DRAWS = 10**12


class Law(ABC):
    """The probability law of a network's input `x` in R^n. Laws are immutable.

    Every law has `n`, `mean` (n,), `variance` (n,), `cov` (n, n) built only when asked for, `sample`, `components`,
    `log_density` and `density` where a density exists, and `to_dict` / `from_dict`.
    """

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of inputs."""

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """E x, shape (n,)."""

    @property
    @abstractmethod
    def variance(self) -> FloatArray:
        """The diagonal of the covariance, shape (n,)."""

    @property
    def cov(self) -> FloatArray:
        """The covariance matrix, shape (n, n)."""
        return np.diag(self.variance)

    @property
    def components(self) -> tuple[tuple[float, Law], ...]:
        """The law as a mixture: pairs (weight, law); one pair when it is not a mixture."""
        return ((1.0, self),)

    def sample(self, n: int, rng: Any = None) -> FloatArray:
        """`n` independent draws, shape (n, inputs); `rng` is None, a seed, a SeedSequence or a Generator."""
        count = integer(n, "n", low=0, high=_MOST_DRAWS)
        return self._sample(count, generator(rng))

    def log_density(self, X: npt.ArrayLike) -> Any:
        """Logarithm of the density at each row of `X`: shape (m,) for (m, n), a float for (n,).

        An `InputError` when the law has no density (a point, or an input of zero variance).
        """
        x = real_array(X, "X")
        if x.shape == (self.n,):
            return float(self._log_density(x[None])[0])
        if x.ndim == 2 and x.shape[1] == self.n:
            return self._log_density(x)
        hint = "; a column of numbers needs reshape(-1, 1)" if self.n == 1 and x.ndim == 1 else ""
        raise InputError(f"X must have shape (m, {self.n}) or ({self.n},), got {x.shape}{hint}")

    def density(self, X: npt.ArrayLike) -> Any:
        """The density at each row of `X`; see `log_density`."""
        value = np.exp(self.log_density(X))
        return value if isinstance(value, np.ndarray) else float(value)

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The law in plain lists and numbers, fit for JSON; `from_dict` reads it back."""

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The law that `to_dict` wrote; an `InputError` when it is a law of another class."""
        from reluscope.inputs._plain import law_from_dict

        law = law_from_dict(data)
        if not isinstance(law, cls):
            raise InputError(f"data must describe a {cls.__name__}, got a {type(law).__name__}")
        return law

    @abstractmethod
    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray: ...

    @abstractmethod
    def _log_density(self, x: FloatArray) -> FloatArray: ...


def frozen(array: FloatArray) -> FloatArray:
    """A read-only copy: the caller's array may change later."""
    out = np.array(array, dtype=np.float64, order="C")
    out.setflags(write=False)
    return out


def vector(value: Any, name: str, n: int | None = None, *, finite: bool = True) -> FloatArray:
    """`value` as a vector of n numbers; a scalar stands for n equal ones (for one, when n is unknown)."""
    out = real_array(value, name, ndim=(0, 1), finite=finite)
    if out.ndim == 0:
        out = np.full(1 if n is None else n, float(out))
    if np.isnan(out).any():
        raise InputError(f"{name} must not hold nan, got nan at index {int(np.argmax(np.isnan(out)))}")
    if n is not None and len(out) != n:
        raise InputError(f"{name} must be a number or have {n} entries, one per input, got {len(out)}")
    if not len(out):
        raise InputError(f"{name} is empty; a law needs at least one input")
    return out


def data_rows(X: Any, name: str = "X") -> FloatArray:
    """A data set: rows of numbers, at least one row and one column."""
    x = real_array(X, name)
    if x.ndim != 2:
        hint = "; a column of numbers needs reshape(-1, 1)" if x.ndim == 1 else "; flatten each sample first"
        raise InputError(f"{name} must have shape (samples, inputs), got {x.shape}{hint}")
    if 0 in x.shape:
        raise InputError(f"{name} must have at least one sample and one input, got shape {x.shape}")
    return x


def weight_vector(weights: Any, name: str, n: int) -> FloatArray:
    """Non-negative weights, n of them, that sum to 1 (up to 1e-9, then normalised)."""
    if isinstance(weights, str):
        raise InputError(f"{name} must be a list of numbers, got {describe(weights)}")
    w = real_array(weights, name, ndim=1)
    if len(w) != n:
        raise InputError(f"{name} must have {n} entries, one per component, got {len(w)}")
    if (w < 0).any():
        raise InputError(f"{name} must not be negative, got {w.min()} at index {int(np.argmin(w))}")
    total = float(w.sum())
    if not abs(total - 1.0) <= WEIGHT_ROUNDING:
        raise InputError(
            f"{name} must sum to 1 (within {WEIGHT_ROUNDING:g}), got {total!r}; divide them by their sum first"
        )
    return frozen(w / total)


def short(values: FloatArray) -> str:
    """A vector in a few characters, for a repr."""
    shown = ", ".join(f"{v:.4g}" for v in values[:4])
    return f"[{shown}{', ...' if len(values) > 4 else ''}]"
