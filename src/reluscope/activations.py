"""Piecewise-linear activations: break points, slopes, intercepts.

An activation with break points `t_1 < ... < t_k` has `k + 1` pieces; piece `j` is `slopes[j] * h + intercepts[j]`
and applies on `t_j < h <= t_{j+1}` (with `t_0 = -inf`, `t_{k+1} = +inf`). The tie rule of the whole library is in
that sentence: **a value exactly on a break point belongs to the piece below it**, so a ReLU unit with `h = 0` is off.

The index of the piece, not its slope, names the state of a unit: it stays unique when two pieces share a slope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, real, real_array, text
from reluscope.errors import InputError

MAX_PIECES = 255
"""A unit's piece index is stored in one byte."""

_FEW_BREAKS = 8
"""Break points up to which one comparison each finds the piece; for more a search does."""

_CONTINUITY = 1e-12
"""Largest jump at a break point, relative to the terms that meet there, that counts as rounding."""


@dataclass(frozen=True)
class Activation:
    """A continuous piecewise-linear function of one variable.

    Parameters
    ----------
    breaks : tuple of float
        The k break points, increasing.
    slopes, intercepts : tuple of float
        k + 1 of each: piece j is `slopes[j] * h + intercepts[j]`.
    name : str

    Raises
    ------
    InputError
        If the counts do not fit, or pieces do not meet at a break point: a network of units that jump would not be
        continuous.

    Notes
    -----
    `reluscope.activations` has `relu`, `leaky_relu`, `relu6`, `hardtanh`, `hard_sigmoid`, `clip`, `absolute` and
    `identity` ready, and `piecewise(breaks, slopes)`, which works out the intercepts.

    Examples
    --------
    >>> act = Activation((0.0,), (0.1, 1.0), (0.0, 0.0), "leaky")
    >>> act([-2.0, 3.0])
    array([-0.2,  3. ])
    >>> act.piece([-2.0, 0.0, 3.0])
    array([0, 0, 1], dtype=uint8)
    """

    breaks: tuple[float, ...]
    slopes: tuple[float, ...]
    intercepts: tuple[float, ...]
    name: str = "piecewise"

    def __post_init__(self) -> None:
        t = real_array(self.breaks, "breaks", ndim=1)
        s = real_array(self.slopes, "slopes", ndim=1)
        c = real_array(self.intercepts, "intercepts", ndim=1)
        text(self.name, "name")
        if not len(s) == len(c) == len(t) + 1:
            raise InputError(
                f"an activation with {len(t)} break points needs {len(t) + 1} slopes and intercepts, "
                f"got {len(s)} and {len(c)}"
            )
        if len(s) > MAX_PIECES:
            raise InputError(f"an activation may have at most {MAX_PIECES} pieces, got {len(s)}")
        if (np.diff(t) <= 0).any():
            raise InputError(f"breaks must increase strictly, got {t.tolist()}")
        with np.errstate(over="ignore", invalid="ignore"):
            left, right = s[:-1] * t + c[:-1], s[1:] * t + c[1:]
            scale = np.abs(s[:-1] * t) + np.abs(s[1:] * t) + np.abs(c[:-1]) + np.abs(c[1:])
            jumps = ~(np.abs(left - right) <= _CONTINUITY * scale)
        if jumps.any():
            k = int(np.argmax(jumps))
            raise InputError(
                f"activation {self.name!r} is not continuous: at the break point {t[k]} it jumps "
                f"from {left[k]} to {right[k]}"
            )
        for field, values in (("breaks", t), ("slopes", s), ("intercepts", c)):
            object.__setattr__(self, field, tuple(values.tolist()))

    @property
    def pieces(self) -> int:
        """Number of linear pieces."""
        return len(self.slopes)

    def __call__(self, h: npt.ArrayLike) -> FloatArray:
        """The function's values at `h`, elementwise."""
        h = real_array(h, "h", finite=False)
        piece = self.piece(h)
        return np.asarray(self.slopes)[piece] * h + np.asarray(self.intercepts)[piece]

    def piece(self, h: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """Index of the piece that holds each entry of `h`; a break point belongs to the piece below it.

        Parameters
        ----------
        h : array
            Pre-activations.

        Returns
        -------
        array of uint8
            Of the shape of `h`.
        """
        values = real_array(h, "h", finite=False)
        if np.isnan(values).any():
            raise InputError("h must not hold nan")
        return np.searchsorted(np.asarray(self.breaks), values, side="left").astype(np.uint8)


def relu() -> Activation:
    """`max(h, 0)`."""
    return Activation((0.0,), (0.0, 1.0), (0.0, 0.0), "relu")


def leaky_relu(slope: float = 0.01) -> Activation:
    """`h` above 0, `slope * h` below; the slope may be 0, positive or negative (`-1` gives `abs`)."""
    slope = real(slope, "slope")
    return Activation((0.0,), (slope, 1.0), (0.0, 0.0), f"leaky_relu({slope:g})")


def clip(low: float, high: float) -> Activation:
    """`min(max(h, low), high)`; either end may be infinite."""
    if not low < high:
        raise InputError(f"clip needs low < high, got low={low}, high={high}")
    if low == -np.inf and high == np.inf:
        return identity()
    if high == np.inf:
        return Activation((low,), (0.0, 1.0), (low, 0.0), "relu" if low == 0 else f"max(h, {low:g})")
    if low == -np.inf:
        return Activation((high,), (1.0, 0.0), (0.0, high), f"min(h, {high:g})")
    return Activation((low, high), (0.0, 1.0, 0.0), (low, 0.0, high), f"clip({low:g}, {high:g})")


def relu6() -> Activation:
    """`min(max(h, 0), 6)`."""
    return Activation((0.0, 6.0), (0.0, 1.0, 0.0), (0.0, 0.0, 6.0), "relu6")


def hardtanh(low: float = -1.0, high: float = 1.0) -> Activation:
    """`clip(h, low, high)`, by default to [-1, 1]."""
    base = clip(low, high)
    return Activation(base.breaks, base.slopes, base.intercepts, "hardtanh" if (low, high) == (-1, 1) else base.name)


def hard_sigmoid(slope: float = 1.0 / 6.0, offset: float = 0.5) -> Activation:
    """`clip(slope * h + offset, 0, 1)` with a positive slope: 1/6 as in torch and keras 3, 0.2 as ONNX's default."""
    slope, offset = real(slope, "slope", low=0.0, open_=True), real(offset, "offset")
    ends = (-offset / slope, (1.0 - offset) / slope)
    return Activation(ends, (0.0, slope, 0.0), (0.0, offset, 1.0), f"hard_sigmoid({slope:g}, {offset:g})")


def absolute() -> Activation:
    """`|h|`."""
    return Activation((0.0,), (-1.0, 1.0), (0.0, 0.0), "abs")


def identity() -> Activation:
    """`h`: one piece. Identity units carry skip connections past a layer."""
    return Activation((), (1.0,), (0.0,), "identity")


def piecewise(breaks: Sequence[float], slopes: Sequence[float], at_zero: float = 0.0) -> Activation:
    """The continuous function with these break points and slopes and the value `at_zero` at `h = 0`.

    Use it when intercepts would have to be worked out by hand.
    """
    t, s = real_array(breaks, "breaks", ndim=1), real_array(slopes, "slopes", ndim=1)
    if len(s) != len(t) + 1:
        raise InputError(f"{len(t)} break points need {len(t) + 1} slopes, got {len(s)}")
    c = np.concatenate([[0.0], np.cumsum((s[:-1] - s[1:]) * t)])
    c += real(at_zero, "at_zero") - c[int(np.searchsorted(t, 0.0, side="left"))]
    return Activation(tuple(t.tolist()), tuple(s.tolist()), tuple(c.tolist()))


_BY_NAME = {
    "relu": relu,
    "leaky_relu": leaky_relu,
    "relu6": relu6,
    "hardtanh": hardtanh,
    "hard_sigmoid": hard_sigmoid,
    "abs": absolute,
    "identity": identity,
    "linear": identity,
}


def activation(spec: Any, name: str = "activation") -> Activation:
    """An `Activation` from one, or from the name of a standard one."""
    if isinstance(spec, Activation):
        return spec
    if isinstance(spec, str) and spec in _BY_NAME:
        return _BY_NAME[spec]()
    raise InputError(
        f"{name} must be an Activation or one of {', '.join(map(repr, _BY_NAME))}, got {describe(spec)}; "
        "build others with reluscope.activations.piecewise(breaks, slopes)"
    )


@dataclass(frozen=True, eq=False)
class Units:
    """The activations of one layer's units: `kinds[kind[i]]` belongs to unit i.

    Most layers have one kind; residual layers mix relu with identity, PReLU layers have a kind per channel. The
    tables (`breaks`, `slopes`, `intercepts`) are what compiled kernels read: one row per unit, padded on the right
    with `+inf` break points and with the last piece repeated.

    Attributes
    ----------
    kinds : tuple of Activation
    kind : (units,) array of int
    """

    kinds: tuple[Activation, ...]
    kind: npt.NDArray[np.intp]

    @classmethod
    def uniform(cls, spec: Any, width: int) -> Units:
        """`width` units of one kind.

        Parameters
        ----------
        spec : Activation or str
        width : int

        Returns
        -------
        Units
        """
        return cls((activation(spec),), np.zeros(width, dtype=np.intp))

    @classmethod
    def of(cls, each: Sequence[Activation]) -> Units:
        """One activation per unit, given one by one.

        Parameters
        ----------
        each : sequence of Activation

        Returns
        -------
        Units
        """
        kinds = tuple(dict.fromkeys(each))
        index = {a: i for i, a in enumerate(kinds)}
        return cls(kinds, np.fromiter((index[a] for a in each), dtype=np.intp, count=len(each)))

    @classmethod
    def concatenate(cls, parts: Sequence[Units]) -> Units:
        """The units of several layers side by side.

        Parameters
        ----------
        parts : sequence of Units

        Returns
        -------
        Units
        """
        kinds = tuple(dict.fromkeys(a for p in parts for a in p.kinds))
        index = {a: i for i, a in enumerate(kinds)}
        mapped = [np.array([index[a] for a in p.kinds], dtype=np.intp)[p.kind] for p in parts]
        return cls(kinds, np.concatenate(mapped) if mapped else np.zeros(0, dtype=np.intp))

    def __post_init__(self) -> None:
        self.kind.setflags(write=False)

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, rows: Any) -> Units:
        return Units(self.kinds, np.atleast_1d(self.kind[rows]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Units) or len(self) != len(other):
            return NotImplemented if not isinstance(other, Units) else False
        return all(
            self.kinds[i] == other.kinds[j] for i, j in set(zip(self.kind.tolist(), other.kind.tolist(), strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def pieces(self) -> npt.NDArray[np.int64]:
        """Number of linear pieces of each unit, shape (units,)."""
        return self._by_unit(np.array([a.pieces for a in self.kinds], dtype=np.int64))

    @cached_property
    def breaks(self) -> FloatArray:
        """Break points, shape (units, max pieces - 1), padded with +inf."""
        return self._table([a.breaks for a in self.kinds], -1, pad=np.inf)

    @cached_property
    def slopes(self) -> FloatArray:
        """Slopes, shape (units, max pieces)."""
        return self._table([a.slopes for a in self.kinds], 0)

    @cached_property
    def intercepts(self) -> FloatArray:
        """Intercepts, shape (units, max pieces)."""
        return self._table([a.intercepts for a in self.kinds], 0)

    @cached_property
    def is_identity(self) -> bool:
        """Whether every unit is the identity (the output layer always is)."""
        return bool((self.pieces == 1).all()) and bool((self.slopes == 1).all() and (self.intercepts == 0).all())

    @cached_property
    def is_relu(self) -> bool:
        """Whether every unit is a plain ReLU."""
        return self._all_equal(relu())

    @cached_property
    def _rectified(self) -> npt.NDArray[np.bool_] | None:
        """Mask of the ReLU units when the others are identities, else None."""
        plain, carry = relu(), identity()
        kinds = [_same_function(a, plain) for a in self.kinds]
        if all(k or _same_function(a, carry) for k, a in zip(kinds, self.kinds, strict=True)):
            return np.asarray(kinds, dtype=bool)[self.kind]
        return None

    def __call__(self, h: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Values of the units at pre-activations `h` of shape (..., units); `out` may be `h`, to be written over."""
        if self.is_identity:
            return h
        if self.is_relu:
            return np.maximum(h, 0.0, out=out)
        if self._rectified is not None:
            return np.where(self._rectified, np.maximum(h, 0.0), h)
        piece = self.pattern(h)
        slopes, intercepts = self.on(piece)
        return slopes * h + intercepts

    def pattern(self, h: FloatArray) -> npt.NDArray[np.uint8]:
        """Index of the piece of each unit at `h` of shape (..., units); ties go to the piece below.

        Parameters
        ----------
        h : (..., units) array
            Pre-activations.

        Returns
        -------
        (..., units) array of uint8
        """
        if self.is_relu:
            return (h > 0.0).view(np.uint8)
        piece = np.zeros(h.shape, dtype=np.uint8)
        if self.breaks.shape[1] > _FEW_BREAKS:
            for kind, units in self._of_kind:
                own = h[..., units]
                # As many break points lie below; comparisons with nan are false.
                below = np.searchsorted(self.kinds[kind].breaks, own, side="left")
                piece[..., units] = np.where(np.isnan(own), 0, below)
            return piece
        for k in range(self.breaks.shape[1]):
            piece += h > self.breaks[:, k]
        return piece

    @cached_property
    def _of_kind(self) -> list[tuple[int, npt.NDArray[np.intp]]]:
        """Each kind with break points, and its units."""
        found = ((k, np.flatnonzero(self.kind == k)) for k, a in enumerate(self.kinds) if len(a.breaks))
        return [(k, units) for k, units in found if len(units)]

    def on(self, piece: npt.NDArray[np.uint8]) -> tuple[FloatArray, FloatArray]:
        """Slope and intercept of each unit on the given pieces, each of the shape of `piece` (fresh arrays).

        Parameters
        ----------
        piece : (..., units) array of uint8

        Returns
        -------
        slopes, intercepts : (..., units) arrays
        """
        if self.is_relu:
            return self.slope(piece), np.zeros(piece.shape)
        return self.slope(piece), self.intercepts[np.arange(len(self)), piece]

    def slope(self, piece: npt.NDArray[np.uint8]) -> FloatArray:
        """Slope of each unit on the given pieces, of the shape of `piece` (a fresh array).

        Parameters
        ----------
        piece : (..., units) array of uint8

        Returns
        -------
        (..., units) array
        """
        return piece.astype(np.float64) if self.is_relu else self.slopes[np.arange(len(self)), piece]

    @property
    def has_intercepts(self) -> bool:
        """Whether any piece has a non-zero intercept."""
        return any(c != 0 for a in self.kinds for c in a.intercepts)

    def describe(self) -> str:
        """Short text such as `relu` or `relu x 40 + identity x 8`."""
        if not len(self):
            return "none"
        counts = np.bincount(self.kind, minlength=len(self.kinds))
        named: dict[str, int] = {}
        for a, n in zip(self.kinds, counts.tolist(), strict=True):
            if n:
                named[a.name] = named.get(a.name, 0) + n
        if len(named) == 1:
            return next(iter(named))
        if len(named) > 4:
            return f"{len(named)} kinds ({next(iter(named))}, ...)"
        return " + ".join(f"{name} x {n}" for name, n in named.items())

    def _all_equal(self, wanted: Activation) -> bool:
        return len(self) > 0 and all(_same_function(self.kinds[i], wanted) for i in np.unique(self.kind).tolist())

    def _by_unit(self, table: Any) -> Any:
        out = np.ascontiguousarray(table[self.kind])
        out.setflags(write=False)
        return out

    def _table(self, rows: list[tuple[float, ...]], extra: int, pad: float | None = None) -> FloatArray:
        width = max((a.pieces for a in self.kinds), default=1) + extra
        table = np.empty((len(self.kinds), width))
        for i, row in enumerate(rows):
            table[i, : len(row)] = row
            table[i, len(row) :] = row[-1] if pad is None else pad
        return self._by_unit(table)


def _same_function(a: Activation, b: Activation) -> bool:
    return (a.breaks, a.slopes, a.intercepts) == (b.breaks, b.slopes, b.intercepts)
