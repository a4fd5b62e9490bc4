"""Tables in files: columns of equal length to CSV, whole or not at all; rows of data back from it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._extras import require
from reluscope._files import atomic_write, read_bytes
from reluscope.errors import InputError
from reluscope.limits import DEFAULT_LIMITS, Limits


class Tabular:
    """A record with columns (`to_dict()`) or with one dictionary per row (`rows()`), as a data frame."""

    __slots__ = ()

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        record: Any = self
        return require("pandas", "pandas").DataFrame(record.to_dict() if hasattr(self, "to_dict") else record.rows())


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(columns: Mapping[str, Any], path: Path) -> None:
    """Columns by name as CSV. Text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_safe(name) for name in columns])
    lists = [np.asarray(column).tolist() for column in columns.values()]
    writer.writerows([_safe(value) for value in row] for row in zip(*lists, strict=True))
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


@dataclass(frozen=True)
class Rows:
    """Rows of numbers with their columns' names, and the target column (numbers or text) when one was named."""

    X: FloatArray
    names: tuple[str, ...]
    y: Any = None


def read_csv(
    path: Path,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> Rows:
    """Rows of data from a CSV file (gzip too): numbers throughout, except in the `target` column, which may be text.

    A first line with anything but numbers is a header; without one the columns are called x0, x1, ... Columns are named
    or numbered from 0: `target` is kept apart as `y`, `features` chooses and orders the others, `drop` leaves some out.
    Commas, semicolons or tabs. Every entry must be there and finite.
    """
    try:
        text = read_bytes(path, limits=limits, inflate=True).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file (UTF-8); give a CSV file") from None
    first = next((line for line in text.splitlines() if line.strip()), "")
    mark = max(",;\t", key=first.count)
    head = [cell.strip() for cell in next(csv.reader([first], delimiter=mark), [])]
    if not head:
        raise InputError(f"{path} is empty; give a CSV file with one row per line")
    named = not all(_is_number(cell) for cell in head)
    names = head if named else [f"x{i}" for i in range(len(head))]
    if len(set(names)) != len(names):
        raise InputError(f"{path} has two columns of the same name")
    place = None if target is None else _column(names, target, path)
    left_out = {_column(names, name, path) for name in drop} | {place}
    if features is None:
        numeric = [i for i in range(len(names)) if i not in left_out]
    else:
        numeric = [_column(names, name, path) for name in features]
    for i, line in enumerate(text.splitlines()):
        if line.count(mark) != len(names) - 1 and '"' not in line and line.strip():
            fields = line.count(mark) + 1
            raise InputError(
                f"{path} has {fields} fields in line {i + 1}, but {len(names)} columns; rows of equal length"
            )
    X = _numbers(text, path, mark, int(named), numeric)
    if not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0].tolist()
        where = f"row {row + 1}, column {names[numeric[column]]!r}"
        raise InputError(f"{path} has no finite number in {where}; fill or drop missing entries first")
    y = None if place is None else _labels(text, path, mark, int(named), place)
    return Rows(X, tuple(names[i] for i in numeric), y)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == ""
    return True


def _column(names: list[str], target: str, path: Path) -> int:
    if target in names:
        return names.index(target)
    if target.isdigit() and int(target) < len(names):
        return int(target)
    raise InputError(f"{path} has no column {target!r}; its columns are {', '.join(names[:30])}")


def _numbers(text: str, path: Path, mark: str, skip: int, columns: list[int]) -> FloatArray:
    import warnings

    def number(cell: str) -> float:
        return float(cell) if cell.strip() else float("nan")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # numpy warns of a file without rows; said below
            out = np.loadtxt(io.StringIO(text), delimiter=mark, skiprows=skip, usecols=columns, ndmin=2, quotechar='"')
    except ValueError:
        try:  # empty cells, slowly, so that the message can name the place
            lines = list(csv.reader(io.StringIO(text), delimiter=mark))[skip:]
            out = np.array([[number(line[i]) for i in columns] for line in lines if line])
        except (ValueError, IndexError) as error:
            raise InputError(f"{path} must hold numbers and rows of equal length: {error}") from None
    if not len(out):
        raise InputError(f"{path} has no rows of data")
    return out


def _labels(text: str, path: Path, mark: str, skip: int, column: int) -> Any:
    cells = [line[column].strip() for line in list(csv.reader(io.StringIO(text), delimiter=mark))[skip:] if line]
    try:
        values = np.array(cells, dtype=float)
    except ValueError:
        return np.array(cells)
    if not np.isfinite(values).all():
        raise InputError(f"{path} has missing entries in the target column; fill or drop them first")
    return values
