"""A family with one real parameter that is closed under all layers, and useless: the layers sit in its digits.

Fix a base law. For a finite list of ReLU layers with rational weights, write the list as a string of bits that says by
itself where each number and the list end (a prefix code); read it as the binary digits of a real number θ in [0, 1).
The law of parameter θ is the base law pushed through the layers that θ spells. Another layer only makes the string
longer, so the family is invariant for layers of any width, and its members need not have finite support.

The price: two parameters that agree in their first thousand digits may spell networks that differ in the last layer.
The law is not locally Lipschitz in θ (nor continuous), see `lipschitz_quotients`. Everything here is exact: floats are
rationals, and θ is a Fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from reluscope._check import FloatArray, describe, generator, integer, several
from reluscope.errors import InputError
from reluscope.inputs import Law, Uniform, check_law
from reluscope.network import Network

Vector = tuple[Fraction, ...]
ExactLayer = tuple[tuple[Vector, ...], Vector]
"""Rows of the weight, and the bias."""

_MOST_BITS = 1 << 22
_MOST_EXPONENT = 1 << 14
"""Largest power of two in a denominator: a float has at most 1074; a made-up code could ask for all memory."""


def encode(layers: Sequence[Any]) -> Fraction:
    """The parameter θ of a list of layers.

    Parameters
    ----------
    layers : sequence of pairs (W, b)
        Entries may be ints, floats (taken exactly) or Fractions.

    Returns
    -------
    Fraction

    Examples
    --------
    >>> decode(encode([([[2]], [1])])) == [(((2,),), (1,))]
    True
    """
    bits = (
        "".join(
            "1" + _layer_bits(_exact_layer(layer, k))
            for k, layer in enumerate(several(layers, "layers", "pairs (W, b)"))
        )
        + "0"
    )
    return Fraction(int(bits, 2), 1 << len(bits))


def decode(theta: Fraction) -> list[ExactLayer]:
    """The layers that θ spells, exactly.

    Parameters
    ----------
    theta : Fraction
        In [0, 1), with finitely many binary digits.

    Returns
    -------
    list of pairs (W, b)
        Rows and biases as tuples of Fractions.

    Raises
    ------
    InputError
        If the number spells nothing.
    """
    if not isinstance(theta, Fraction) or not 0 <= theta < 1 or theta.denominator & (theta.denominator - 1):
        raise InputError(f"theta must be a Fraction in [0, 1) with finitely many binary digits, got {describe(theta)}")
    length = theta.denominator.bit_length() - 1
    if length > _MOST_BITS:
        raise InputError(f"theta may have at most {_MOST_BITS:,} binary digits, got {length:,}")
    reader = _Reader(bin(theta.numerator)[2:].zfill(length) if length else "")
    layers: list[ExactLayer] = []
    while reader.bit():
        rows, columns = reader.natural(), reader.natural()
        W = tuple(tuple(reader.rational() for _ in range(columns)) for _ in range(rows))
        layers.append((W, tuple(reader.rational() for _ in range(rows))))
    if not reader.only_zeros_left():
        raise InputError("theta has digits after the end of the code: it spells no list of layers")
    return layers


@dataclass(frozen=True, eq=False, repr=False)
class Coded:
    """The law of ReLU layers, spelled by `theta`, applied to x from `base`.

    It is that of `relu(W_k ... relu(W_1 x + b_1) ...)`.

    Attributes
    ----------
    theta : Fraction
    base : Law
    """

    theta: Fraction
    base: Law

    @classmethod
    def start(cls, base: Law) -> Coded:
        """The base law itself: θ = 0 spells the empty list.

        Parameters
        ----------
        base : Law

        Returns
        -------
        Coded
        """
        return cls(encode([]), check_law(base, name="base"))

    @cached_property
    def layers(self) -> list[ExactLayer]:
        """The layers, exactly."""
        return decode(self.theta)

    def push(self, W: Any, b: Any) -> Coded:
        """The member of the family that is the law of `relu(W y + b)`.

        Parameters
        ----------
        W : (variables, variables)
        b : (variables,)
            Entries must be rational numbers.

        Returns
        -------
        Coded
        """
        layer = _exact_layer((W, b), len(self.layers))
        inputs = len(self.layers[-1][1]) if self.layers else self.base.n
        if len(layer[0][0]) != inputs:
            raise InputError(f"W must have {inputs} columns, one per variable of this law, got {len(layer[0][0])}")
        return Coded(encode([*self.layers, layer]), self.base)

    @property
    def digits(self) -> int:
        """Number of binary digits of θ."""
        return self.theta.denominator.bit_length() - 1

    def exact(self, x: Sequence[Any]) -> Vector:
        """The image of one input, in rational arithmetic.

        Parameters
        ----------
        x : sequence of rational numbers

        Returns
        -------
        tuple of Fraction
        """
        try:
            z: Vector = tuple(_fraction(v) for v in _lists(several(x, "x", "rational numbers")))
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"x must hold finite rational numbers, got {describe(x)}") from error
        inputs = len(self.layers[0][0][0]) if self.layers else self.base.n
        if len(z) != inputs:
            raise InputError(f"x must have {inputs} entries, one per input, got {len(z)}")
        for W, b in self.layers:
            z = tuple(
                max(sum((w * v for w, v in zip(row, z, strict=True)), c), Fraction(0))
                for row, c in zip(W, b, strict=True)
            )
        return z

    def sample(self, n: int, rng: Any = None) -> FloatArray:
        """`n` independent draws, shape (n, variables), computed in floating point.

        Parameters
        ----------
        n : int
        rng : optional
            None, an int, a SeedSequence or a Generator.

        Returns
        -------
        (n, variables) array
        """
        x = self.base.sample(integer(n, "n", low=0), generator(rng))
        return x if not self.layers else self.network(x)

    @cached_property
    def network(self) -> Network:
        """The layers as a network (weights rounded to float64 where they are not floats)."""
        if not self.layers:
            raise InputError("this member spells no layer")
        return Network(
            [([[float(v) for v in row] for row in W], [float(v) for v in b], "relu") for W, b in self.layers]
        )

    def __repr__(self) -> str:
        return f"Coded({len(self.layers)} layers in {self.digits:,} binary digits, base {self.base!r})"


@dataclass(frozen=True)
class Quotient:
    """Two parameters and their laws after `layers` identity layers.

    `log2_gap` is log2 |θ - θ'|, `distance` the distance of the means of the laws, a lower bound on their 1-Wasserstein
    distance, and `log2_quotient` the log2 of distance over gap.

    Attributes
    ----------
    layers : int
    log2_gap, distance, log2_quotient : float
    """

    layers: int
    log2_gap: float
    distance: float
    log2_quotient: float


def lipschitz_quotients(depths: Sequence[int] = (1, 2, 4, 8, 16, 32), n: int = 2) -> list[Quotient]:
    """Pairs of parameters that come together while their laws stay apart: no Lipschitz constant near the limit.

    The base is uniform on [0, 1]^n. θ_k spells k identity layers, θ'_k the same and then a layer that doubles: the
    laws have means 1/2 and 1 in every coordinate for all k, and `|θ_k - θ'_k| <= 2^-(digits of k layers)`. Both
    sequences tend to the number that would spell identities for ever.

    Parameters
    ----------
    depths : sequence of int
        The numbers k of identity layers.
    n : int
        Inputs.

    Returns
    -------
    list of Quotient
        One for each depth.
    """
    n = integer(n, "n", low=1)
    eye, none = np.eye(n), np.zeros(n)
    rows = []
    for k in several(depths, "depths", "whole numbers"):
        plain = [(eye, none)] * integer(k, "depths", low=1)
        one, two = encode(plain), encode([*plain, (2 * eye, none)])
        gap = abs(one - two)
        log2_gap = _log2(gap)
        distance = 0.5 * n**0.5
        rows.append(Quotient(k, log2_gap, distance, float(np.log2(distance)) - log2_gap))
    return rows


def unit_base(n: int) -> Uniform:
    """The uniform law on [0, 1]^n."""
    return Uniform(np.zeros(n), np.ones(n))


def _log2(value: Fraction) -> float:
    shift = value.numerator.bit_length() - value.denominator.bit_length()
    scaled = value / (Fraction(2) ** shift)
    return shift + float(np.log2(float(scaled)))


def _exact_layer(layer: Any, k: int) -> ExactLayer:
    """A layer `(W, b)` as rationals, checked."""
    try:
        W, b = layer
        rows = tuple(tuple(_fraction(v) for v in row) for row in _lists(W))
        bias = tuple(_fraction(v) for v in _lists(b))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"layer {k} must be a pair (W, b) of finite numbers, got {describe(layer)}") from error
    if not rows or not rows[0] or len({len(row) for row in rows}) != 1 or len(bias) != len(rows):
        raise InputError(
            f"layer {k} must have W of shape (m, n) and b of shape (m,), got {len(rows)} rows, {len(bias)} biases"
        )
    return rows, bias


def _lists(values: Any) -> Any:
    if isinstance(values, bytes):  # Python would read numbers from it
        raise TypeError("a list is needed")
    return values.tolist() if isinstance(values, np.ndarray) else values


def _fraction(value: Any) -> Fraction:
    if isinstance(value, (str, bytes, bool, np.bool_)):
        raise TypeError("a number is needed")
    return value if isinstance(value, Fraction) else Fraction(value)


def _layer_bits(layer: ExactLayer) -> str:
    W, b = layer
    numbers = [v for row in W for v in row] + list(b)
    return _gamma(len(W)) + _gamma(len(W[0])) + "".join(_rational_bits(v) for v in numbers)


def _gamma(natural: int) -> str:
    """Elias' gamma code of a natural number >= 1: as many zeros as binary digits follow the first, then the digits."""
    digits = bin(natural)[2:]
    return "0" * (len(digits) - 1) + digits


def _rational_bits(value: Fraction) -> str:
    """Sign, numerator and denominator; for a dyadic number the denominator's exponent, after a flag."""
    exponent = value.denominator.bit_length() - 1
    dyadic = value.denominator == 1 << exponent
    if dyadic and exponent > _MOST_EXPONENT:
        raise InputError(f"weights may have at most 2^{_MOST_EXPONENT} below the line, got 2^{exponent}")
    below = "1" + _gamma(exponent + 1) if dyadic else "0" + _gamma(value.denominator)
    return ("1" if value < 0 else "0") + _gamma(abs(value.numerator) + 1) + below


class _Reader:
    """Reads a bit string from the left; after its end come zeros for ever."""

    def __init__(self, bits: str) -> None:
        self._bits = bits
        self._at = 0

    def bit(self) -> bool:
        value = self._at < len(self._bits) and self._bits[self._at] == "1"
        self._at += 1
        return value

    def natural(self) -> int:
        first = self._bits.find("1", self._at)
        if first < 0:
            raise InputError("theta ends in the middle of a number: it spells no list of layers")
        size = first - self._at + 1
        digits = self._bits[first : first + size].ljust(size, "0")
        self._at = first + size
        return int(digits, 2)

    def rational(self) -> Fraction:
        sign = -1 if self.bit() else 1
        top = self.natural() - 1
        if not self.bit():
            return Fraction(sign * top, self.natural())
        exponent = self.natural() - 1
        if exponent > _MOST_EXPONENT:
            raise InputError(
                f"theta spells a number with 2^{exponent} below the line; at most 2^{_MOST_EXPONENT} is read"
            )
        return Fraction(sign * top, 1 << exponent)

    def only_zeros_left(self) -> bool:
        return "1" not in self._bits[self._at :]
