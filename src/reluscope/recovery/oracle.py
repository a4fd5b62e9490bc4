"""Oracle: a black box that answers queries and counts them.

A recovery method sees a function only through an `Oracle`: rows in, values out (and gradients where the oracle offers
them). The weights behind it, if there are any, are not reachable from here.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, integer, real_array
from reluscope.errors import InputError, ReluscopeError
from reluscope.network import Network
from reluscope.threads import blas_threads

_MOST_INPUTS = 1 << 24
LINKS = ("none", "sigmoid", "softmax")
_TYPES = {"float64": np.float64, "float32": np.float32}


class QueryLimitError(ReluscopeError):
    """The oracle's limit on queries is reached."""


class BlackBox(Protocol):
    """What an oracle asks of a function: rows (n, inputs) in, values (n,) or (n, outputs) out."""

    def __call__(self, rows: npt.NDArray[np.floating[Any]], /) -> npt.ArrayLike:
        """Values at the rows; for a gradient, derivatives (n, inputs) or (n, outputs, inputs)."""


class Oracle:
    """A black box that answers queries and counts them.

    Parameters
    ----------
    function : callable or Network
        From rows (n, inputs) to values (n,) or (n, outputs).
    n_inputs : int, optional
        Needed unless `function` is a `Network`.
    gradient : callable or True, optional
        Derivatives of shape (n, inputs) or (n, outputs, inputs); True takes the Jacobian of a `Network`.
    dtype : {"float64", "float32"}
        "float32" rounds queries and answers to single precision, and evaluates a `Network` in it.
    limit : int, optional
        Most queries; the next one raises `QueryLimitError`.
    link : {"none", "sigmoid", "softmax"}
        What the function applies to its scores at the end. Its answers are then probabilities, and the oracle gives the
        scores: `log p - log(1 - p)` of each output, or `log p` less its mean over the outputs (a softmax leaves scores
        open up to a common shift; these sum to 0).

    Attributes
    ----------
    queries : int
        Rows answered so far.
    gradients : int
        Rows answered so far with their gradients.
    n_inputs : int
    n_outputs : int

    Raises
    ------
    InputError
        If the function does not give one row of finite numbers per query, or a declared probability is not strictly
        between 0 and 1.

    Notes
    -----
    One row is one query; its gradient, where offered, comes with it at no extra count and is counted apart.

    A probability p near 1 tells its score only to about `1e-16 / (1 - p)`: where the network is sure of itself, less
    can be recovered. Choose a box in which it is not.

    Examples
    --------
    >>> oracle = Oracle(lambda X: abs(X[:, 0]), 1)
    >>> oracle([[-2.0], [3.0]])[:, 0].tolist(), oracle.queries
    ([2.0, 3.0], 2)

    >>> import numpy as np
    >>> likely = Oracle(lambda X: 1 / (1 + np.exp(-3 * X[:, 0])), 1, link="sigmoid")
    >>> likely([[-1.0], [0.5]]).round(12)[:, 0].tolist()
    [-3.0, 1.5]
    """

    __slots__ = ("__gradient", "__value", "dtype", "gradients", "limit", "link", "n_inputs", "n_outputs", "queries")

    def __init__(
        self,
        function: BlackBox | Network,
        n_inputs: int | None = None,
        *,
        gradient: BlackBox | Literal[True] | None = None,
        dtype: npt.DTypeLike = "float64",
        limit: int | None = None,
        link: str = "none",
    ) -> None:
        plain = isinstance(dtype, type) and issubclass(dtype, (np.float32, np.float64))
        name = np.dtype(dtype).name if plain or isinstance(dtype, np.dtype) else dtype
        if not isinstance(name, str) or name not in _TYPES:
            raise InputError(f"dtype must be 'float64' or 'float32', got {describe(dtype)}")
        if n_inputs is not None:
            n_inputs = integer(n_inputs, "n_inputs", low=1, high=_MOST_INPUTS)
        if isinstance(function, Network):
            if n_inputs not in (None, function.n_inputs):
                raise InputError(f"n_inputs is {n_inputs} but the network has {function.n_inputs} inputs")
            n_inputs = function.n_inputs
            gradient = function.jacobian if gradient is True else gradient
            function = _in_single(function) if name == "float32" else function.__call__
        if not callable(function) or isinstance(function, type):
            raise InputError(f"function must be callable on rows, or a Network, got {describe(function)}")
        if n_inputs is None:
            raise InputError("n_inputs is needed: how many columns the function's rows have")
        if gradient is not None and (not callable(gradient) or isinstance(gradient, type)):
            raise InputError(f"gradient must be callable (or True for a Network), got {describe(gradient)}")
        self.n_inputs = n_inputs
        self.limit = None if limit is None else integer(limit, "limit", low=1)
        self.link = choice(link, "link", LINKS)
        self.dtype = str(name)
        self.queries = 0
        self.gradients = 0
        self.__value: BlackBox = function
        self.__gradient: BlackBox | None = gradient
        self.n_outputs = self(np.zeros((1, self.n_inputs))).shape[1]
        self.queries = 0

    @property
    def has_gradient(self) -> bool:
        """Whether derivatives are offered."""
        return self.__gradient is not None

    @property
    def left(self) -> float:
        """Queries left."""
        return np.inf if self.limit is None else self.limit - self.queries

    def __call__(self, X: npt.ArrayLike) -> FloatArray:
        """Values at the rows of `X`, shape (n, outputs)."""
        rows = self._take(X)
        return self._scores(self._clean(self.__value(rows), len(rows), "the oracle's values"))

    def both(self, X: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Values (n, outputs) and derivatives (n, outputs, inputs) at the rows of `X`; counted once.

        Parameters
        ----------
        X : (n, inputs)

        Returns
        -------
        values, derivatives : (n, outputs) and (n, outputs, inputs) arrays
        """
        if self.__gradient is None:
            raise InputError("this oracle gives no gradients")
        rows = self._take(X)
        values = self._clean(self.__value(rows), len(rows), "the oracle's values")
        slopes = real_array(self.__gradient(rows), "the oracle's gradients")
        self.gradients += len(rows)
        slopes = slopes.reshape(len(rows), values.shape[1], self.n_inputs)
        scores = self._scores(values)
        if self.link == "sigmoid":
            slopes = slopes / (values * (1 - values))[:, :, None]
        elif self.link == "softmax":
            slopes = slopes / values[:, :, None]
            slopes = slopes - slopes.mean(axis=1, keepdims=True)
        return scores, slopes

    def _scores(self, values: FloatArray) -> FloatArray:
        """The scores behind declared probabilities."""
        if self.link == "none" or not values.size:
            return values
        if not ((values > 0) & (values < 1)).all():
            off = float(values[~((values > 0) & (values < 1))][0])
            raise InputError(
                f"link={self.link!r} says that all answers are strictly between 0 and 1, got {off:g}: choose a box in "
                "which the probabilities are not rounded to 0 or 1, or link='none' if these are scores"
            )
        if self.link == "sigmoid":
            return np.log(values) - np.log1p(-values)
        if values.shape[1] < 2 or np.abs(values.sum(axis=1) - 1).max() > 1e-4:
            raise InputError(
                f"link='softmax' says that there are two or more outputs that sum to 1, got {values.shape[1]} with "
                f"sums from {values.sum(axis=1).min():.6g} to {values.sum(axis=1).max():.6g}"
            )
        scores = np.log(values)
        return np.asarray(scores - scores.mean(axis=1, keepdims=True))

    def __repr__(self) -> str:
        kind = "values and gradients" if self.has_gradient else "values"
        bound = "" if self.limit is None else f" of at most {self.limit:,}"
        return f"Oracle(R^{self.n_inputs} -> R^{self.n_outputs}, {self.dtype} {kind}, {self.queries:,} queries{bound})"

    def _take(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        rows = real_array(X, "X", ndim=2)
        if rows.shape[1] != self.n_inputs:
            raise InputError(f"X must have {self.n_inputs} columns, got shape {rows.shape}")
        if len(rows) > self.left:
            raise QueryLimitError(f"the oracle allows {self.limit:,} queries; {self.queries:,} are used")
        self.queries += len(rows)
        return rows.astype(_TYPES[self.dtype])

    def _clean(self, values: Any, n: int, name: str) -> FloatArray:
        if n == 0:
            return np.zeros((0, self.n_outputs))
        out = real_array(values, name)
        if out.size % max(n, 1) or (out.ndim and len(out) != n):
            raise InputError(f"{name} must have one row per query, got shape {out.shape} for {n} rows")
        out = out.reshape(n, -1)
        return out.astype(np.float32).astype(np.float64) if self.dtype == "float32" else out


def _in_single(net: Network) -> BlackBox:
    """The network evaluated in single precision throughout."""
    steps = [(layer.dense().astype(np.float32), layer.bias.astype(np.float32), layer.units) for layer in net.layers]

    def run(rows: npt.NDArray[np.floating[Any]], /) -> npt.NDArray[np.floating[Any]]:
        z = rows
        with blas_threads(max(net.widths)):
            for W, b, units in steps:
                z = units((z @ W.T + b).astype(np.float64)).astype(np.float32)
        return z

    return run
