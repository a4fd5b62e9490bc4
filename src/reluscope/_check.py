"""Validation of arguments: each function returns a clean value or raises one `InputError` that names the argument."""

from __future__ import annotations

import numbers
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from reluscope.errors import InputError, InputTypeError

FloatArray = npt.NDArray[np.float64]

_Kind = TypeVar("_Kind")

Rng = int | np.random.SeedSequence | np.random.Generator | None
"""What every `rng=` takes."""

_LARGEST = (1 << 63) - 1
"""The largest whole number that arrays can hold."""

SEEDS = 1 << 128
"""Seeds below this: as much as a Generator can tell apart. Beyond, spreading a seed of many digits takes for ever."""

EPS = float(np.finfo(np.float64).eps)
"""Distance from 1 to the next double, 2**-52."""


def describe(value: Any) -> str:
    """Say briefly what `value` is, for an error message."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)} and dtype {getattr(value, 'dtype', '?')}"
    if isinstance(value, (list, tuple, dict, set)):
        return f"{type(value).__name__} of length {len(value)}"
    if isinstance(value, numbers.Integral) and abs(int(value)) >= 1 << 200:
        # Python refuses to write thousands of digits.
        return f"{type(value).__name__} of {int(value).bit_length():,} bits"
    try:
        text = repr(value)
    except Exception:  # somebody else's object: its repr may do anything
        return f"an object of type {type(value).__name__}"
    short = text if len(text) <= 60 else text[:57] + "..."
    kind = type(value).__name__
    return short if text.startswith(f"{kind}(") else f"{kind} {short}"  # `Gaussian(2 inputs)` says it itself


def any_array(value: Any, name: str, what: str) -> npt.NDArray[Any]:
    """`value` as an array of any type; `what` it must be."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InputError(f"{name} must be {what}, got one with masked entries; fill them, or leave their rows out")
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise InputTypeError(f"{name} must be {what}, got {describe(value)}") from error


def real_array(value: Any, name: str, *, ndim: int | tuple[int, ...] | None = None, finite: bool = True) -> FloatArray:
    """`value` as a float64 array, C-contiguous, finite unless `finite=False`.

    Accepts whatever `numpy.asarray` takes (lists, pandas, torch CPU tensors, any byte order); refuses complex,
    text, objects, masked entries and integers that float64 would change.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise InputError(f"{name} has masked entries; fill or drop them first")
    if hasattr(value, "detach"):  # a torch tensor, possibly with grad
        value = value.detach().cpu()
    raw = any_array(value, name, "a rectangular array of real numbers")
    if raw.dtype.kind not in "fiub":
        raise InputTypeError(f"{name} must hold real numbers, got {describe(value)} (dtype {raw.dtype})")
    with np.errstate(over="ignore"):  # longdouble beyond float64 becomes inf and is refused below
        out = np.ascontiguousarray(raw, dtype=np.float64).reshape(raw.shape)
    if raw.dtype.kind in "iu" and raw.dtype.itemsize == 8 and raw.size and (np.abs(out) > 2.0**53).any():
        raise InputError(f"{name} has integers beyond 2**53 that float64 cannot hold; scale the data first")
    if ndim is not None:
        wanted = (ndim,) if isinstance(ndim, int) else ndim
        if out.ndim not in wanted:
            kinds = " or ".join(f"{n}-D" for n in wanted)
            raise InputError(f"{name} must be a {kinds} array, got shape {out.shape}")
    if finite:
        bad = ~np.isfinite(out)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            place = f" at index {where if len(where) > 1 else where[0]}" if where else ""
            more = f" ({int(bad.sum())} such entries)" if bad.sum() > 1 else ""
            raise InputError(f"{name} must be finite, got {out[where]}{place}{more}")
    return out


def real(value: Any, name: str, *, low: float = -np.inf, high: float = np.inf, open_: bool = False) -> float:
    """`value` as a finite float within [low, high] (or the open interval)."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (numbers.Real, np.ndarray, np.generic)):
        raise InputTypeError(f"{name} must be a real number, got {describe(value)}")
    try:
        out = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(f"{name} must be a real number, got {describe(value)}") from error
    inside = (low < out < high) if open_ else (low <= out <= high)
    if not np.isfinite(out) or not inside:
        bounds = f"({low}, {high})" if open_ else f"[{low}, {high}]"
        raise InputError(f"{name} must be a finite number in {bounds}, got {out}")
    return out


def integer(value: Any, name: str, *, low: int, high: int | None = None) -> int:
    """`value` as an int within [low, high]."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise InputTypeError(f"{name} must be a whole number, got {describe(value)}")
    out = int(value)
    high = _LARGEST if high is None and out > _LARGEST else high
    if out < low or (high is not None and out > high):
        bound = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InputError(f"{name} must be {bound}, got {out if abs(out) < 1 << 64 else describe(value)}")
    return out


def several(value: Any, name: str, what: str) -> tuple[Any, ...]:
    """`value`, a list, tuple or one-dimensional array of `what`, as a tuple."""
    if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__") or isinstance(value, type):
        raise InputTypeError(f"{name} must be a list of {what}, got {describe(value)}")
    return tuple(value)


def text(value: Any, name: str) -> str:
    """`value` if it is text."""
    if not isinstance(value, str):
        raise InputTypeError(f"{name} must be text, got {describe(value)}")
    return value


def flag(value: Any, name: str) -> bool:
    """`value` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputTypeError(f"{name} must be True or False, got {describe(value)}")
    return bool(value)


def instance(value: Any, name: str, kind: type[_Kind], what: str) -> _Kind:
    """`value` if it is one of `kind`; `what` says it in words."""
    if not isinstance(value, kind):
        raise InputTypeError(f"{name} must be {what}, got {describe(value)}")
    return value


def indices(value: Any, name: str, n: int) -> npt.NDArray[np.intp]:
    """`value`, a list of whole numbers from 0 to n - 1, as an array."""
    raw = real_array(list(value) if isinstance(value, range) else value, name, ndim=1)
    if (raw != np.floor(raw)).any() or (raw < 0).any() or (raw >= n).any():
        raise InputError(f"{name} must hold whole numbers from 0 to {n - 1}, got {describe(value)}")
    return raw.astype(np.intp)


def choice(value: Any, name: str, options: tuple[str, ...]) -> str:
    """`value` if it is one of `options`."""
    if not isinstance(value, str) or value not in options:
        kind = InputError if isinstance(value, str) else InputTypeError
        raise kind(f"{name} must be one of {', '.join(map(repr, options))}, got {describe(value)}")
    return value


def generator(rng: Any, name: str = "rng") -> np.random.Generator:
    """`rng` as a numpy Generator: None, a non-negative int, a SeedSequence or a Generator."""
    return seeded(rng, name)[0]


def fresh_seed() -> int:
    """A seed from the machine's own entropy: the only place that asks for it, so that tests can fix it."""
    return int(np.random.default_rng().integers(2**62))


def seeded(rng: Any, name: str = "rng") -> tuple[np.random.Generator, int | None]:
    """A numpy Generator, and the `rng=` that gives it again: drawn anew for None, None where no int can."""
    if isinstance(rng, np.random.Generator):
        return rng, None
    if isinstance(rng, np.random.SeedSequence):
        plain = isinstance(rng.entropy, int) and not rng.spawn_key and rng.pool_size == 4
        return np.random.default_rng(rng), int(rng.entropy) if plain else None  # type: ignore[arg-type]
    if rng is None:
        rng = fresh_seed()
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) and 0 <= int(rng) < SEEDS:
        return np.random.default_rng(int(rng)), int(rng)
    kind = InputError if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) else InputTypeError
    raise kind(
        f"{name} must be None, a whole number from 0 to 2**128 - 1, a SeedSequence or a numpy Generator, "
        f"got {describe(rng)}"
    )
