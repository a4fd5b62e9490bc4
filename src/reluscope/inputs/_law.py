"""What all input laws have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, generator, integer, real_array
from reluscope.errors import InputError
from reluscope.network import check_network

if TYPE_CHECKING:
    from reluscope.inputs._gaussian import Gaussian

Box = tuple[FloatArray, FloatArray]
"""`(lower, upper)`: the two sides of a box, each of shape (n,)."""

FAR = 38.5
"""Standard deviations beyond which a Gaussian has mass below 1e-320, less than the smallest normal double."""

WEIGHT_ROUNDING = 1e-9
"""How far weights may be from summing to 1 and still be normalised without a word."""

_MOST_DRAWS = 10**12
_ANY_NETWORK = object()


@dataclass(frozen=True, eq=False)
class Restriction:
    """A law given a box.

    Attributes
    ----------
    law : Law
        The law of `x` given that it lies in the box.
    log_mass : float
        Logarithm of the probability of the box under the law before the restriction.
    relative_error : float
        Bound on the relative rounding error of that probability.
    """

    law: Law
    log_mass: float
    relative_error: float


class Law(ABC):
    """The probability law of a network's input `x` in R^n: the distribution of the inputs.

    `Gaussian`, `GaussianMixture`, `Uniform`, `Truncated` and `Particles` are the laws there are. A law is immutable
    and answers for itself: moments, draws, density, support, restriction to a box, components.

    Notes
    -----
    `mean` and `variance` have shape (n,); `cov` has shape (n, n) and is built only when asked for.

    A new law is a frozen dataclass with `kind` and the abstract methods. It overrides `cov` if inputs are correlated,
    `independent_inputs` and `_restricted` if they are not, and what else it can say about itself: `gaussians`, `atoms`,
    `noise` and `from_noise`, `unrestricted`, `keeps_axes`. Its class alone is not enough: `standard` must know what its
    components are (CONTRIBUTING.md, "A new law").

    Examples
    --------
    >>> from reluscope.inputs import Uniform
    >>> law = Uniform([0.0, -1.0], [2.0, 1.0])
    >>> law.n, law.mean.tolist(), law.support()[1].tolist()
    (2, [1.0, 0.0], [2.0, 1.0])
    >>> half = law.restrict([0.0, 0.0], [2.0, 1.0])
    >>> half.law, f"{np.exp(half.log_mass):.3f}"
    (Uniform(2 inputs, from [0, 0] to [2, 1]), '0.500')
    """

    kind: ClassVar[str]
    """The word for this law in plain data: the value of the key "law" of `to_dict`."""

    is_mixture: ClassVar[bool] = False
    """Whether the law is held as weighted components, with `weights` as parameters."""

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

    @property
    def gaussians(self) -> tuple[tuple[float, Gaussian], ...]:
        """Pairs (weight, `Gaussian`) of positive weight that make up the law; none if it is no mixture of Gaussians."""
        return ()

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray] | None:
        """Points (m, n) and their probabilities (m,) if the law is held as points, else None."""
        return None

    @property
    def unrestricted(self) -> Law:
        """The law before it was conditioned on a box (its `support`); the law itself if it never was."""
        return self

    @property
    def independent_inputs(self) -> bool:
        """Whether the inputs are independent of one another, as far as the form in which the law is held shows."""
        return False

    @property
    def keeps_axes(self) -> bool:
        """Whether the coordinates of `standard` are the inputs themselves, each shifted and scaled."""
        return False

    @abstractmethod
    def support(self) -> Box:
        """The smallest box that holds `x` with probability 1.

        Returns
        -------
        (lower, upper) : tuple of arrays, shape (n,)
            Exact sides; infinite for an input with a Gaussian's spread, equal for one that is fixed.
        """

    @abstractmethod
    def far_box(self) -> Box:
        """A finite box inside the support that holds all of the law's mass as far as float64 can tell.

        Returns
        -------
        (lower, upper) : tuple of arrays, shape (n,)
            The support, cut off `FAR` = 38.5 standard deviations from the mean of a Gaussian (mass below 1e-320).
        """

    def restrict(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> Restriction | None:
        """The law given `lower <= x <= upper`, with the probability of that box.

        Parameters
        ----------
        lower, upper : array_like, shape (n,), or float
            Sides of the box; they may be infinite. Only the part of the box inside the support matters.

        Returns
        -------
        Restriction or None
            None where the box has no probability, or no closed form: Gaussians with correlated inputs, mixtures,
            and particles.

        Raises
        ------
        InputError
            If a side has the wrong shape or holds nan, or if `lower` exceeds `upper`.
        """
        lo, hi = box_sides(lower, upper, self.n, finite=False)
        low, high = self.support()
        lo, hi = np.maximum(lo, low), np.minimum(hi, high)
        if (lo > hi).any() or ((lo == hi) & (low < high)).any():
            return None
        return self._restricted(lo, hi)

    def _restricted(self, lower: FloatArray, upper: FloatArray) -> Restriction | None:
        """See `restrict`; the box is inside the support and has an interior in the inputs that are not fixed."""
        return None

    def cdf(self, t: npt.ArrayLike, input: int = 0, *, strict: bool = False) -> FloatArray:
        """`P(x_i <= t)` for one input i.

        Parameters
        ----------
        t : array_like
            Values of any shape; they may be infinite.
        input : int
            The input i, counted from 0.
        strict : bool
            Ask for `P(x_i < t)` instead; the two differ where an input sits on a value with positive probability.

        Returns
        -------
        array of the shape of `t`

        Raises
        ------
        InputError
            If there is no such input, or no closed form (a Gaussian truncated in correlated inputs).

        Examples
        --------
        >>> from reluscope.inputs import Uniform
        >>> Uniform(0.0, 4.0).cdf([-1.0, 1.0, 5.0]).tolist()
        [0.0, 0.25, 1.0]
        """
        i = integer(input, "input", low=0, high=self.n - 1)
        values = real_array(t, "t", finite=False)
        return np.asarray(self._cdf(values, i, strict), dtype=np.float64)

    @property
    def noise(self) -> tuple[Literal["normal", "uniform"], int] | None:
        """What drives a draw: so many independent normals or uniforms on [0, 1]; None if it is not that simple."""
        return None

    def from_noise(self, Z: FloatArray) -> FloatArray:
        """Draws (m, n) from rows `Z` of the `noise`: the same rows give laws of one kind coupled draws."""
        raise InputError(f"a {type(self).__name__} law is not driven by independent normals or uniforms")

    def sample(self, n: int, rng: Any = None) -> FloatArray:
        """Independent draws.

        Parameters
        ----------
        n : int
            How many.
        rng : None, int, SeedSequence or Generator
            Source of randomness.

        Returns
        -------
        array, shape (n, inputs)
        """
        count = integer(n, "n", low=0, high=_MOST_DRAWS)
        return self._sample(count, generator(rng))

    def log_density(self, X: npt.ArrayLike) -> Any:
        """Logarithm of the density at each row of `X`.

        Parameters
        ----------
        X : array_like, shape (m, n) or (n,)

        Returns
        -------
        array, shape (m,), or float for one point

        Raises
        ------
        InputError
            If the law has no density (a point, or an input of zero variance).
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

    @abstractmethod
    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray: ...


def check_law(law: Any, net: Any = _ANY_NETWORK, name: str = "law") -> Law:
    """`law` if it is a law over the inputs of the network `net`, which is checked first; over any inputs without it.

    Raises
    ------
    InputError
        Names the argument, says what was expected, what came and what to try.
    """
    inputs = None if net is _ANY_NETWORK else check_network(net).n_inputs
    if not isinstance(law, Law):
        hint = "a box is Uniform(lower, upper), data are Particles(X), Gaussian.fit(X) or kde(X)"
        if isinstance(law, type) and issubclass(law, Law):
            hint = f"make one: {law.__name__}(...)"
        raise InputError(f"{name} must be an input law such as Gaussian or Uniform, got {describe(law)}; {hint}")
    if inputs is not None and law.n != inputs:
        said = "the law" if name == "law" else name
        raise InputError(f"{said} has {law.n} inputs but the network takes {inputs}; give a law over all of them")
    return law


def far_sides(lower: FloatArray, upper: FloatArray) -> Box:
    """A finite box that carries the mass of N(0, I) given `lower <= u <= upper`, sides possibly infinite."""
    return np.maximum(lower, np.minimum(-FAR, upper - FAR)), np.minimum(upper, np.maximum(FAR, lower + FAR))


def box_sides(lower: Any, upper: Any, n: int | None, *, finite: bool) -> Box:
    """Two vectors with `lower <= upper`; a number stands for every input."""
    if n is None:
        sizes = [len(a) for a in (real_array(v, "box", ndim=(0, 1), finite=False) for v in (lower, upper)) if a.ndim]
        n = max(sizes, default=1)
    lo = vector(lower, "lower", n, finite=finite)
    hi = vector(upper, "upper", n, finite=finite)
    if (lo > hi).any():
        i = int(np.argmax(lo > hi))
        raise InputError(f"lower must not exceed upper, got {lo[i]} > {hi[i]} for input {i}")
    return frozen(lo), frozen(hi)


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
