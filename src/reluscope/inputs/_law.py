"""What all input laws have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, describe, flag, generator, integer, real_array, text
from reluscope._columns import few
from reluscope.errors import InputError, InputTypeError
from reluscope.network import check_network

if TYPE_CHECKING:
    from reluscope.inputs._gaussian import Gaussian
    from reluscope.inputs._law_check import LawCheck
    from reluscope.network import Layer
    from reluscope.schema import Schema

Index = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
Box = tuple[FloatArray, FloatArray]
"""`(lower, upper)`: the two sides of a box, each of shape (n,)."""

FAR = 38.5
"""Standard deviations beyond which a Gaussian has mass below 1e-320, less than the smallest normal double."""

WEIGHT_ROUNDING = 1e-9
"""How far weights may be from summing to 1 and still be normalised without a word."""

_MOST_DRAWS = 10**12
ANY_NETWORK = object()
"""In place of a network: a law over any number of inputs will do."""


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


@dataclass(frozen=True, eq=False)
class Conditional:
    """A law given values of some inputs, and how likely these are.

    Attributes
    ----------
    law : Law or None
        None if the law never takes the values.
    order : int
        In how many directions `log_weight` is a density: 0 if it is a probability.
    log_weight : float
        Logarithm of the density or probability of the values; nan where it has no closed form.
    """

    law: Law | None
    order: int
    log_weight: float


NEVER = Conditional(None, 0, -np.inf)
"""The law never takes the values."""


VERSION = 1
"""Of what `to_dict` writes; laws of a later version are refused."""


class Law(ABC):
    """The probability law of a network's input `x` in R^n: the distribution of the inputs.

    `Gaussian`, `GaussianMixture`, `Uniform`, `Truncated`, `Particles`, `Copula`, `Categorical` and `Mixture` are the
    laws there are; a law of your own, of which draws are enough, is an `OpenLaw`. A law is immutable and answers for
    itself: moments, draws, density, support, restriction to a box, components.

    Attributes
    ----------
    kind : str
        Its name in `to_dict`.
    is_mixture : bool

    Notes
    -----
    `mean` and `variance` have shape (n,); `cov` has shape (n, n) and is built only when asked for.

    A new law is a frozen dataclass with `kind` and the abstract methods. It overrides `cov` if inputs are correlated,
    `independent_inputs` and `_restricted` if they are not, and what else it can say about itself: `gaussians`, `atoms`,
    `noise` and `from_noise`, `unrestricted`, `keeps_axes`, `pushed`, `point_masses`. `_at`, `_keep`, `_affine` and
    `_blocks` serve `given`, `marginal`, `move` and `product`. Its class alone is not enough:
    `standard` must know what its components are (CONTRIBUTING.md, "A new law"); until then its draws are counted.

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
    def marginal_error(self) -> float:
        """Largest distance between the cdf of an input and the one that was asked for; 0 for laws that are as asked."""
        return max((part.marginal_error for w, part in self.components if part is not self and w > 0), default=0.0)

    @property
    def gaussians(self) -> tuple[tuple[float, Gaussian], ...]:
        """Pairs (weight, `Gaussian`) of positive weight that make up the law; none if it is no mixture of Gaussians."""
        return ()

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray] | None:
        """Points (m, n) and their probabilities (m,) if the law is held as points, else None."""
        return None

    @property
    def pushed(self) -> tuple[Law, Layer] | None:
        """`(base, layer)` where x is a function of a simpler law: `x = layer(z)`, z from `base`; None for most laws.

        Everything asked about such a law is asked about `base`, with the layer before the network (`lifted`).
        """
        return None

    def base_box(
        self, lower: FloatArray, upper: FloatArray, open_below: npt.NDArray[np.bool_], open_above: npt.NDArray[np.bool_]
    ) -> Box:
        """For a law with `pushed`: the box of the base outside of which `lower <= x <= upper` fails, inside it holds.

        `<` takes the place of `<=` where a side is open; it only matters where x has an atom.

        Parameters
        ----------
        lower, upper : (n,) arrays
        open_below, open_above : (n,) arrays of bool

        Returns
        -------
        (lower, upper) : tuple of arrays
        """
        raise InputError(f"a {type(self).__name__} law is not a function of another one")

    @property
    def point_masses(self) -> bool:
        """Whether an input that is not fixed may sit on one value with positive probability."""
        return self.is_mixture or self.atoms is not None

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
            None where the box has no probability, or no closed form: Gaussians with correlated inputs, mixtures whose
            components are correlated in several restricted inputs, and particles.

        Raises
        ------
        InputError
            If a side has the wrong shape or holds nan, or if `lower` exceeds `upper`.
        """
        lo, hi = box_sides(lower, upper, self.n, finite=False)
        low, high = self.support()
        lo, hi = np.maximum(lo, low), np.minimum(hi, high)
        if (lo > hi).any() or (((lo == hi) & (low < high)).any() and not self.is_mixture):
            return None
        return self._restricted(lo, hi)

    def _restricted(self, lower: FloatArray, upper: FloatArray) -> Restriction | None:
        """See `restrict`; the box is inside the support and has an interior in the inputs that are not fixed.

        A mixture sees to that interior itself: one of its components may be fixed where another is not.
        """
        return None

    def truncated(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> Law:
        """The law given `lower <= x <= upper`.

        Parameters
        ----------
        lower, upper : array_like, shape (n,), or float
            Sides of the box; they may be infinite. A number stands for every input.

        Returns
        -------
        Law
            A `Truncated` for a Gaussian; for a mixture a `Mixture` of its components given the box, each weighted by
            how much of it lies inside; a smaller box, or fewer points, for the others.

        Raises
        ------
        InputError
            If the box has no probability, or a component of a mixture no closed form for its mass in it (several
            restricted inputs that are correlated): the message says how to make that law from `reluscope.mass`.

        Examples
        --------
        >>> from reluscope.inputs import Gaussian, GaussianMixture
        >>> law = GaussianMixture([0.5, 0.5], [Gaussian([0.0]), Gaussian([4.0])]).truncated(0.0, np.inf)
        >>> law, law.weights.round(4).tolist()
        (Mixture(2 components, 1 input), [0.3333, 0.6667])
        """
        lo, hi = box_sides(lower, upper, self.n, finite=False)
        return self._given(lo, hi)

    def _given(self, lower: FloatArray, upper: FloatArray) -> Law:
        """See `truncated`."""
        found = self.restrict(lower, upper)
        if found is None:
            raise InputError(
                f"the box has no probability under the law, or its law given a box has no closed form: {self!r}"
            )
        return found.law

    def given(self, values: Mapping[int | str, Any], schema: Schema | None = None) -> Law:
        """The law given the values of some inputs, which then have no spread.

        Parameters
        ----------
        values : dict
            From an input (its index, or its name where the law has `names`) to its value; or from a column to its value
            or level, see `schema`. Where inputs are called `SEX=m` and `SEX=f`, `{"SEX": "m"}` needs no schema.
        schema : Schema, optional
            Says what columns mean, such as `net.schema`: `{"SEX": "male", "LIMIT_BAL": 1e5}`, in the column's own unit.

        Returns
        -------
        Law
            Over the same inputs. In a mixture, components count by how likely the values are under them; if the values
            have positive probability under some, only those count.

        Raises
        ------
        InputError
            If the law never takes these values.

        Examples
        --------
        >>> from reluscope.inputs import Gaussian
        >>> Gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]]).given({0: 2.0}).mean
        array([2., 1.])
        """
        from reluscope.inputs._condition import given

        return given(self, values, schema)

    def where(self, text: str, schema: Schema | None = None) -> Law:
        """The law given bounds on single inputs.

        Parameters
        ----------
        text : str
            Bounds joined by "and": `"x[1] > 1e5 and x[0] <= 3"`, or names where the law has them.
        schema : Schema, optional
            Says what columns mean: `"LIMIT_BAL > 1e5 and SEX == male"`, in the column's own unit. Without one, numbers
            are those of the law.

        Returns
        -------
        Law
            As `truncated`; open and closed sides differ where an input has an atom.

        Examples
        --------
        >>> from reluscope.inputs import Gaussian
        >>> Gaussian([0.0, 0.0]).where("x[1] > 0").mean.round(4).tolist()
        [0.0, 0.7979]
        """
        from reluscope.inputs._condition import where

        return where(self, text, schema)

    def marginal(self, inputs: Any) -> Law:
        """The law of some of the inputs, in the order given.

        Parameters
        ----------
        inputs : int, str, or sequence of them
            Indices, or names where the law has them; "SEX" stands for all inputs called "SEX=...".

        Returns
        -------
        Law

        Examples
        --------
        >>> from reluscope.inputs import Uniform
        >>> Uniform([0.0, 1.0], [1.0, 5.0]).marginal([1])
        Uniform(1 input, from [1] to [5])
        """
        from reluscope.inputs._condition import marginal_law

        return marginal_law(self, inputs)

    def move(self, *, mean: npt.ArrayLike | None = None, scale: npt.ArrayLike | None = None) -> Law:
        """The law moved to another mean, its distances from the mean scaled: a law of the same kind.

        Parameters
        ----------
        mean : array_like, shape (n,), optional
            The new mean; the old one by default.
        scale : array_like, shape (n,), or float, optional
            Positive factors of the deviations from the mean; 1 by default.

        Returns
        -------
        Law
            A mixture stays a mixture, data stay data.

        Examples
        --------
        >>> from reluscope.inputs import Gaussian, GaussianMixture
        >>> law = GaussianMixture([0.5, 0.5], [Gaussian([0.0]), Gaussian([4.0])]).move(mean=[10.0], scale=2.0)
        >>> law.means.tolist()
        [[6.0], [14.0]]
        """
        from reluscope.inputs._condition import moved

        return moved(self, mean, scale)

    def check(self, table: Any, schema: Any = None, *, draws: int = 100_000, rng: Any = None) -> LawCheck:
        """How well the law fits a table: every column, every pair, and the whole.

        Parameters
        ----------
        table : DataFrame, mapping of columns, or array, shape (N, n)
        schema : Schema, optional
            As in `fit`.
        draws : int
            Draws of the law for rank correlations, orders of columns and the classifier.
        rng : optional
            None, an int, a SeedSequence or a Generator.

        Returns
        -------
        LawCheck
            `text` is one loud line; `plot()` draws the columns.
        """
        from reluscope.inputs._law_check import check

        return check(self, table, schema, draws, rng)

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
        values, strict = real_array(t, "t", finite=False), flag(strict, "strict")
        if np.isnan(values).any():
            raise InputError("t must not hold nan")
        return np.asarray(self._cdf(values, i, strict), dtype=np.float64)

    @property
    def noise(self) -> tuple[Literal["normal", "uniform"], int] | None:
        """What drives a draw: so many independent normals or uniforms on [0, 1]; None if it is not that simple."""
        return None

    def from_noise(self, Z: FloatArray) -> FloatArray:
        """Draws (m, n) from rows `Z` of the `noise`: the same rows give laws of one kind coupled draws.

        Parameters
        ----------
        Z : (m, k) array

        Returns
        -------
        (m, n) array
        """
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
        """The density at each row of `X`; see `log_density`.

        Parameters
        ----------
        X : (m, n) or (n,)

        Returns
        -------
        (m,) array or float
        """
        value = np.exp(self.log_density(X))
        return value if isinstance(value, np.ndarray) else float(value)

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The law in plain lists and numbers, fit for JSON; `from_dict` reads it back."""

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The law that `to_dict` wrote; an `InputError` when it is a law of another class.

        Parameters
        ----------
        data : dict

        Returns
        -------
        Law

        Raises
        ------
        InputError
            If it is the description of another class of laws, or of none.
        """
        from reluscope.inputs._plain import law_from_dict

        law = law_from_dict(data)
        if not isinstance(law, cls):
            raise InputError(f"data must describe a {cls.__name__}, got a {type(law).__name__}")
        return law

    # -- laws made of this one; see `inputs._condition` and `inputs._categories` ---------------------------------------

    def _conditional(self, index: Index, values: FloatArray) -> Conditional:
        """The law given `x[index] == values`."""
        low, high = self.support()
        if ((values < low[index]) | (values > high[index])).any():
            return NEVER
        return self._at(index, values)

    def _at(self, index: Index, values: FloatArray) -> Conditional:
        """See `_conditional`; the values are inside the support, input by input."""
        raise InputError(f"{describe(self)} cannot be conditioned on values of its inputs")

    def _between(self, lower: FloatArray, upper: FloatArray, open_below: Flags, open_above: Flags) -> Law:
        """The law given `lower <= x <= upper`, with `<` where a side is open."""
        # Points may sit on an open side: it is moved to the next number.
        lower = np.where(open_below, np.nextafter(lower, np.inf), lower)
        upper = np.where(open_above, np.nextafter(upper, -np.inf), upper)
        return self.truncated(lower, upper)

    def _keep(self, index: Index) -> Law:
        """The law of `x[index]`."""
        raise InputError(f"{describe(self)} has no marginals here")

    def _affine(self, s: FloatArray, t: FloatArray) -> Law:
        """The law of `s x + t`, input by input; s is positive."""
        raise InputError(f"{describe(self)} cannot be moved")

    def _blocks(self) -> list[tuple[float, Law]]:
        """The law as a weighted sum of laws that can stand side by side with others."""
        raise InputError(f"{describe(self)} has no product with other laws")

    @abstractmethod
    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray: ...

    @abstractmethod
    def _log_density(self, x: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray: ...


def check_law(law: Any, net: Any = ANY_NETWORK, name: str = "law") -> Law:
    """`law` if it is a law over the inputs of the network `net`, which is checked first; over any inputs without it.

    Raises
    ------
    InputError
        Names the argument, says what was expected, what came and what to try.
    """
    text(name, "name")
    inputs = None if net is ANY_NETWORK else check_network(net).n_inputs
    if not isinstance(law, Law):
        hint = "a box is Uniform(lower, upper), data are Particles(X), Gaussian.fit(X) or kde(X)"
        if isinstance(law, type) and issubclass(law, Law):
            hint = f"make one: {law.__name__}(...)"
        raise InputTypeError(f"{name} must be an input law such as Gaussian or Uniform, got {describe(law)}; {hint}")
    if inputs is not None and law.n != inputs:
        said = "the law" if name == "law" else name
        raise InputError(f"{said} has {law.n} inputs but the network takes {inputs}; give a law over all of them")
    schema = None if net is ANY_NETWORK else net.schema
    if schema is not None and schema.columns:
        _check_order(law, schema.inputs, name)
    return law


def _check_order(law: Law, columns: tuple[str, ...], name: str) -> None:
    """Refuse a law whose inputs have names that are not the network's, or not in its order."""
    names = getattr(law, "names", None)
    if names is None or tuple(names) == columns:
        return
    said = "the law's inputs" if name == "law" else f"the inputs of {name}"
    strangers = [n for n in names if n not in columns]
    if strangers:
        raise InputError(
            f"{said} are called {few(names)}, but the network's are {few(columns)} ({few(strangers)} not known); give "
            "a law of those inputs, or names=None if only the names differ"
        )
    raise InputError(
        f"{said} are {few(names)}, in another order than the network's {few(columns)}; "
        "law.marginal(list(net.schema.inputs)) puts them in order"
    )


def far_sides(lower: FloatArray, upper: FloatArray) -> Box:
    """A finite box that carries the mass of N(0, I) given `lower <= u <= upper`, sides possibly infinite."""
    return np.maximum(lower, np.minimum(-FAR, upper - FAR)), np.minimum(upper, np.maximum(FAR, lower + FAR))


def box_sides(lower: Any, upper: Any, n: int | None, *, finite: bool) -> Box:
    """Two vectors with `lower <= upper`; a number stands for every input."""
    if n is None:
        given = (("lower", lower), ("upper", upper))
        sizes = [len(a) for a in (real_array(v, name, ndim=(0, 1), finite=False) for name, v in given) if a.ndim]
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
    x = real_array(X, name, finite=False)
    bad = ~np.isfinite(x)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f"row {where[0]}, column {where[1]}" if x.ndim == 2 else f"index {where}"
        many = f" ({int(bad.sum()):,} such entries)" if bad.sum() > 1 else ""
        raise InputError(f"{name} must be finite, got {x[where]} in {place}{many}; drop or fill those rows first")
    if x.ndim != 2:
        hint = "; a column of numbers needs reshape(-1, 1)" if x.ndim == 1 else "; flatten each sample first"
        raise InputError(f"{name} must have shape (samples, inputs), got {x.shape}{hint}")
    if 0 in x.shape:
        raise InputError(f"{name} must have at least one sample and one input, got shape {x.shape}")
    return x


def noise_rows(Z: Any, k: int) -> FloatArray:
    """Rows of k numbers that drive draws."""
    rows = real_array(Z, "Z", ndim=2)
    if rows.shape[1] != k:
        raise InputError(f"Z must have shape (m, {k}), got {rows.shape}")
    return rows


def weight_vector(weights: Any, name: str, n: int) -> FloatArray:
    """Non-negative weights, n of them, that sum to 1 (up to 1e-9, then normalised where rounding shows)."""
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
    # Weights that were normalised already stay as they are, so that a stored law is the same law.
    return frozen(w if abs(total - 1.0) <= len(w) * EPS else w / total)


def short(values: FloatArray) -> str:
    """A vector in a few characters, for a repr."""
    shown = ", ".join(f"{v:.4g}" for v in values[:4])
    return f"[{shown}{', ...' if len(values) > 4 else ''}]"
