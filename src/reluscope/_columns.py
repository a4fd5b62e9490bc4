"""Named columns of a table (a data frame, a mapping of columns) as numbers or as levels; pandas is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, any_array, describe
from reluscope.errors import InputError

Names = tuple[str, ...]
Index = npt.NDArray[np.intp]

_SHOWN = 6
"""Names or levels listed in a message."""

_LISTED = 30
"""Names to choose from that are listed."""


def columns_of(X: Any) -> Names | None:
    """The names of a table's columns or a series' entries; None when it has none, or not all are text."""
    if isinstance(X, Mapping):
        return strings(X.keys())
    columns = getattr(X, "columns", None)
    if columns is None and getattr(X, "ndim", None) == 1:
        columns = getattr(X, "index", None)
    return None if columns is None or callable(columns) else strings(columns)


def column_of(X: Any, name: str) -> Any:
    """One column of a table; a series of one row's entries gives a column of one."""
    found = X[name]
    one_row = getattr(X, "ndim", None) == 1 or (np.ndim(found) == 0 and not hasattr(found, "__len__"))
    return [found] if one_row or isinstance(found, str) else found


def numbers(column: Any, name: str) -> FloatArray:
    """A column as float64, nan where an entry is missing."""
    kind = getattr(getattr(column, "dtype", None), "kind", "O")
    if kind in "mMc":
        raise InputError(f"column {name!r} holds {column.dtype}, not real numbers; turn it into numbers first")
    raw: Any = None
    if hasattr(column, "to_numpy"):
        try:  # the extension types of pandas: Int64, boolean, category
            raw = column.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            raw = None
    try:
        raw = any_array(column, f"column {name!r}", "real numbers") if raw is None else raw
        if raw.dtype.kind == "c":
            raise InputError(f"column {name!r} holds {raw.dtype}, not real numbers; turn it into numbers first")
        if raw.dtype.kind in "iu" and raw.dtype.itemsize == 8 and raw.size and (np.abs(raw) > 2**53).any():
            raise InputError(f"column {name!r} has integers beyond 2**53 that float64 cannot hold; scale it first")
        out = np.ascontiguousarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"column {name!r} must hold real numbers, got {_odd(column)}; encode text as the model was trained to "
            "take it, or declare the column as a category in the schema"
        ) from None
    if out.ndim != 1:
        raise InputError(f"column {name!r} must hold one number per row, got {describe(column)}")
    return out


def factorized(column: Any) -> tuple[Index, list[Any]]:
    """The number of each entry among the distinct entries (-1: missing), and those."""
    if hasattr(column, "factorize"):
        codes, found = column.factorize()
        return np.asarray(codes, dtype=np.intp), [plain(v) for v in found]
    raw = np.asarray(column, dtype=object if isinstance(column, (list, tuple)) else None)
    if raw.dtype.kind in "biufU":
        distinct, inverse = np.unique(raw, return_inverse=True)
        codes = inverse.reshape(-1).astype(np.intp)
        known = ~np.isnan(distinct) if raw.dtype.kind == "f" else np.ones(len(distinct), dtype=bool)
        place = np.where(known, np.cumsum(known) - 1, -1)
        return place[codes], [plain(v) for v in distinct[known].tolist()]
    seen: dict[Any, int] = {}
    listed = [plain(v) for v in raw.reshape(-1).tolist()]
    return np.array([-1 if v is None else seen.setdefault(v, len(seen)) for v in listed], dtype=np.intp), list(seen)


def strange_gaps(column: Any, codes: Index, missing: str) -> npt.NDArray[np.bool_]:
    """Which missing entries (`codes` of -1) of a pandas column of objects are not of the kind `missing`."""
    strange = np.zeros(len(codes), np.bool_)
    if missing != "any" and getattr(getattr(column, "dtype", None), "kind", "") == "O" and hasattr(column, "factorize"):
        gaps = np.flatnonzero(codes < 0)
        held = np.asarray(column, dtype=object)
        strange[gaps] = [(held[i] is None) != (missing == "None") for i in gaps]
    return strange


def plain(value: Any) -> Any:
    """A level as Python holds it: numpy scalars as their values, whatever stands for a missing entry as None."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float) and value != value:
        return None
    return value


def row_name(column: Any, row: int) -> str:
    """A row of a column for a message: its position, and its name in the index of a pandas table if that is another."""
    index = getattr(column, "index", None)
    if index is None or callable(index) or not hasattr(index, "__getitem__") or plain(index[row]) == row:
        return f"row {row}"
    return f"row {row} (index {plain(index[row])!r})"


def check_rows(X: Any, other: Any, name: str, of: str = "X") -> None:
    """Refuse labels or weights whose pandas index is not that of the table: they would be taken by position."""
    own: Any = getattr(X, "index", None)
    index: Any = getattr(other, "index", None)
    if callable(own) or not hasattr(own, "equals") or callable(index) or not hasattr(index, "equals"):
        return
    if getattr(X, "ndim", 0) != 2 or len(own) != len(index) or own.equals(index):
        return
    first = next(i for i in range(len(own)) if own[i] != index[i])
    raise InputError(
        f"{name} has another index than {of}: row {first} is {plain(own[first])!r} in {of} and {plain(index[first])!r} "
        f"in {name}; pass {name}.loc[{of}.index], or {name}.to_numpy() if the rows are in the same order"
    )


def few(names: Sequence[Any]) -> str:
    """The first of some names, for a message."""
    shown = ", ".join(repr(n) for n in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def unknown_name(given: str, known: Sequence[str], name: str) -> InputError:
    """The error for a name that is none of the known ones, with the nearest of them."""
    alike = [k for k in known if k.lower() == given.lower()] or get_close_matches(given, known, 1)
    hint = f"; did you mean {alike[0]!r}?" if alike else ""
    shown = ", ".join(known[:_LISTED]) + (f" and {len(known) - _LISTED} more" if len(known) > _LISTED else "")
    return InputError(f"{name} must be one of {shown}, got {given!r}{hint}")


def check_names(found: Names, expected: Names, optional: Names, name: str) -> None:
    """Refuse tables that lack a column, repeat one, or have one that nobody knows."""
    known = {*expected, *optional}
    extra = [n for n in found if n not in known]
    missing = [n for n in expected if n not in set(found)]
    twice = [n for n in dict.fromkeys(found) if found.count(n) > 1]
    parts = [f"not known: {few(extra)}"] if extra else []
    parts += [f"missing: {few(missing)}"] if missing else []
    parts += [f"repeated: {few(twice)}"] if twice else []
    if parts:
        advice = f"; drop {few(extra)}, or choose the columns" if extra and not missing else ""
        raise InputError(
            f"{name} must have the {len(expected)} columns of the model by name; {'; '.join(parts)}{advice}"
        )


def strings(names: Any) -> Names | None:
    """Names as a tuple; None unless all are text."""
    try:
        listed = list(names)
    except TypeError:
        return None
    return tuple(str(n) for n in listed) if listed and all(isinstance(n, str) for n in listed) else None


def _odd(column: Any) -> str:
    """The first entry that is no number."""
    for value in np.asarray(column, dtype=object).reshape(-1)[:10_000].tolist():
        try:
            float(value)
        except (TypeError, ValueError, OverflowError):
            return repr(value[:40]) if isinstance(value, str) else describe(value)
    return describe(column)
