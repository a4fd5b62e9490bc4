"""Width one: clamped affine images of a base law.

    y = clamp(a x + b, lo, hi),   x from a fixed base law on the line.

An affine map of y is again of this form (the ends swap when it decreases), and so is clamp(y, l, h): relu is
clamp(., 0, inf), relu6, hardtanh and clip are clamps too. So the family, four numbers for one base law, is closed under
every network of width one with such units, and its cdf is the base's cdf between the ends, with an atom at each end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, generator, integer, real, real_array
from reluscope.activations import Activation, activation
from reluscope.errors import InputError, InputTypeError
from reluscope.inputs import Law
from reluscope.network import Network


class Distribution(Protocol):
    """The distribution of one number, such as a frozen one of `scipy.stats`."""

    def cdf(self, x: FloatArray, /) -> npt.ArrayLike:
        """`P(X <= x)`.

        Parameters
        ----------
        x : array

        Returns
        -------
        array
        """
        ...

    def rvs(self, *, size: int, random_state: np.random.Generator) -> npt.ArrayLike:
        """Draws.

        Parameters
        ----------
        size : int
        random_state : Generator

        Returns
        -------
        (size,) array
        """
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Clamped:
    """The law of `clamp(a x + b, lo, hi)` for x from `base`.

    Parameters
    ----------
    base : Law or Distribution
        A law of one input (Gaussian, GaussianMixture, Uniform, Particles), or any object with `cdf` (and `rvs` to
        sample), such as a frozen scipy distribution; one with atoms needs `pmf` too.
    a, b : float
    lo, hi : float
        `lo <= hi`; either may be infinite.

    Raises
    ------
    InputError
        If `base` is not a law of one input, or the bounds leave no room.

    Examples
    --------
    >>> from reluscope.inputs import Gaussian
    >>> y = Clamped(Gaussian([0.0], 1.0)).push(2.0, 1.0)  # relu(2 x + 1)
    >>> y
    Clamped(2 x + 1 in [0, inf], x from Gaussian)
    """

    base: Law | Distribution
    a: float = 1.0
    b: float = 0.0
    lo: float = -np.inf
    hi: float = np.inf

    def __post_init__(self) -> None:
        if isinstance(self.base, Law) and self.base.n != 1:
            raise InputError(f"base must be a law of one input, got {describe(self.base)}")
        if not callable(getattr(self.base, "cdf", None)) or isinstance(self.base, type):
            raise InputTypeError(f"base must be a law of one input or have a cdf, got {describe(self.base)}")
        for name in ("a", "b"):
            object.__setattr__(self, name, real(getattr(self, name), name))
        for name in ("lo", "hi"):
            side = getattr(self, name)
            if not isinstance(side, float) or np.isnan(side):
                object.__setattr__(self, name, real(side, name))
        if not self.lo <= self.hi:
            raise InputError(f"lo must not exceed hi, got {self.lo} and {self.hi}")
        if self.lo == np.inf or self.hi == -np.inf:
            raise InputError(f"lo and hi must leave room, got lo={self.lo}, hi={self.hi}")

    # -- closure -------------------------------------------------------------------------------------------------

    def push(self, w: float, c: float = 0.0, units: Any = "relu") -> Clamped:
        """The law of `act(w y + c)` for a unit that clamps: relu, relu6, hardtanh, clip or identity.

        Parameters
        ----------
        w, c : float
        units : Activation or str

        Returns
        -------
        Clamped

        Raises
        ------
        InputError
            If the unit does not clamp.
        """
        w, c = real(w, "w"), real(c, "c")
        low, high = _ends(activation(units, "units"))
        if w == 0:
            value = min(max(c, low), high)
            return Clamped(self.base, 0.0, value, value, value)
        ends = sorted((w * self.lo + c, w * self.hi + c))
        lo, hi = (min(max(end, low), high) for end in ends)
        return Clamped(self.base, w * self.a, w * self.b + c, lo, hi)

    def through(self, net: Network, *, layer: int | None = None) -> Clamped:
        """The law of layer `layer` (counted from 0), or of the output, of a network of width one.

        Parameters
        ----------
        net : Network
        layer : int, optional

        Returns
        -------
        Clamped

        Raises
        ------
        InputError
            If a layer is wider than one unit.
        """
        if not isinstance(net, Network) or any(width != 1 for width in net.widths):
            raise InputError(f"net must be a Network with one unit in every layer, got {describe(net)}")
        depth = len(net.layers) if layer is None else integer(layer, "layer", low=0, high=len(net.layers) - 1) + 1
        law = self
        for part in net.layers[:depth]:
            law = law.push(float(part.dense()[0, 0]), float(part.bias[0]), part.units.kinds[part.units.kind[0]])
        return law

    # -- the law -------------------------------------------------------------------------------------------------

    def cdf(self, t: npt.ArrayLike) -> FloatArray:
        """`P(y <= t)`: 0 below lo, 1 from hi on, the base's cdf (or its complement when a < 0) between.

        Parameters
        ----------
        t : float or array

        Returns
        -------
        array
            Of the shape of `t`.
        """
        t = real_array(t, "t", finite=False)
        return np.where(t < self.lo, 0.0, np.where(t >= self.hi, 1.0, self._affine_cdf(t)))

    @property
    def atoms(self) -> list[tuple[float, float]]:
        """`(value, probability)` of the bounds where the clamp puts mass (atoms of the base itself not listed)."""
        if self.lo == self.hi or self.a == 0:
            return [(min(max(self.b, self.lo), self.hi), 1.0)]
        ends = []
        if np.isfinite(self.lo):
            ends.append((self.lo, float(self._affine_cdf(np.array(self.lo)))))
        if np.isfinite(self.hi):
            ends.append((self.hi, float(1 - self._affine_cdf(np.array(self.hi), left=True))))
        return [(value, mass) for value, mass in ends if mass > 0]

    def sample(self, n: int, rng: Any = None) -> FloatArray:
        """`n` independent draws, shape (n,).

        Parameters
        ----------
        n : int
        rng : optional
            None, an int, a SeedSequence or a Generator.

        Returns
        -------
        (n,) array
        """
        draw = generator(rng)
        count = integer(n, "n", low=0)
        if isinstance(self.base, Law):
            x = self.base.sample(count, draw)[:, 0]
        else:
            x = np.asarray(self.base.rvs(size=count, random_state=draw), dtype=np.float64)
        return np.clip(self.a * x + self.b, self.lo, self.hi)

    @property
    def parameters(self) -> tuple[float, float, float, float]:
        """`(a, b, lo, hi)`."""
        return self.a, self.b, self.lo, self.hi

    def __repr__(self) -> str:
        return (
            f"Clamped({self.a:g} x {'+' if self.b >= 0 else '-'} {abs(self.b):g} in [{self.lo:g}, {self.hi:g}], "
            f"x from {type(self.base).__name__})"
        )

    # -- inside --------------------------------------------------------------------------------------------------

    def _affine_cdf(self, t: FloatArray, *, left: bool = False) -> FloatArray:
        """`P(a x + b <= t)`, or `< t` when `left`."""
        if self.a == 0:
            return (self.b < t if left else self.b <= t).astype(np.float64)
        at = (t - self.b) / self.a
        if self.a > 0:
            return _base_cdf(self.base, at, left)
        return 1.0 - _base_cdf(self.base, at, not left)


def _base_cdf(base: Law | Distribution, x: FloatArray, left: bool) -> FloatArray:
    """`P(X <= x)`, or `P(X < x)` when `left`."""
    if isinstance(base, Law):
        return base.cdf(x, strict=left)
    value = np.asarray(base.cdf(x), dtype=np.float64)
    atoms = getattr(base, "pmf", None) if left and hasattr(getattr(base, "dist", base), "pmf") else None
    if atoms is not None:
        finite = np.isfinite(x)
        value = value - np.where(finite, np.asarray(atoms(np.where(finite, x, 0.0)), dtype=np.float64), 0.0)
    return value


def _ends(kind: Activation) -> tuple[float, float]:
    """The interval that an activation clamps to."""
    inner = [s for s in kind.slopes if s != 0]
    plain = inner == [1.0] and all(c == 0 for s, c in zip(kind.slopes, kind.intercepts, strict=True) if s)
    if not plain:
        raise InputError(
            f"activation {kind.name!r} is not a clamp: the family holds for relu, relu6, hardtanh and clip"
        )
    at = kind.slopes.index(1.0)
    low = kind.intercepts[at - 1] if at else -np.inf
    high = kind.intercepts[at + 1] if at + 1 < len(kind.slopes) else np.inf
    return low, high
