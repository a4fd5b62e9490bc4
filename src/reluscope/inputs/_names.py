"""Names of inputs: checked where a law takes them, and found where a question uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reluscope._check import describe, integer
from reluscope.errors import InputError


def column_names(names: Any, n: int) -> tuple[str, ...] | None:
    """`names` as n different texts, or None."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(v, str) for v in names):
        raise InputError(f"names must be a list of texts, one per input, got {describe(names)}")
    if len(names) != n:
        raise InputError(f"names must have {n} entries, one per input, got {len(names)}")
    if len(set(names)) != n:
        twice = next(v for i, v in enumerate(names) if v in names[:i])
        raise InputError(f"names must differ from one another, got {twice!r} twice")
    return tuple(names)


def column_index(key: Any, n: int, names: tuple[str, ...] | None, what: str = "input") -> int:
    """The input that a name or a number means."""
    if isinstance(key, str):
        if names is None:
            raise InputError(f"{what} {key!r}: the inputs of this law have no names; give the column's index")
        if key not in names:
            shown = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
            raise InputError(f"{what} must be one of {shown}, got {key!r}")
        return names.index(key)
    return integer(key, what, low=0, high=n - 1)
