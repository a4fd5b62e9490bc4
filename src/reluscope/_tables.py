"""Tables in files: columns of equal length to CSV, whole or not at all; rows of data back from it."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._extras import require
from reluscope._files import atomic_write, read_text
from reluscope._text import did_you_mean, html_table, listed
from reluscope._text import table as text_table
from reluscope.errors import InputError, InputLimitError
from reluscope.limits import DEFAULT_LIMITS, Limits, started


class Tabular:
    """A record with columns (`to_dict()`) or with one dictionary per row (`rows()`), as a data frame."""

    __slots__ = ()

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        record: Any = self
        return require("pandas", "pandas").DataFrame(record.to_dict() if hasattr(self, "to_dict") else record.rows())

    def _repr_html_(self) -> str:
        record: Any = self
        columns = record.to_dict() if hasattr(self, "to_dict") else None
        if columns is None:
            rows = record.rows()
            columns = {name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())}
        lengths = {len(c) if isinstance(c, (list, tuple, np.ndarray)) else None for c in columns.values()}
        return html_table(columns) if len(lengths) == 1 and None not in lengths else f"<pre>{escape(str(self))}</pre>"


class Lines(list[dict[str, Any]], Tabular):
    """A list of dictionaries, one per row, that prints as a table and becomes a data frame."""

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per row."""
        return list(self)

    def __repr__(self) -> str:
        return text_table(self)


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
    limits = started(limits)
    text = read_text(path, limits=limits)
    first = _first_line(text)
    mark = max(",;\t", key=first.count)
    _check_width(first, mark, path)
    reader = csv.reader([first], delimiter=mark)
    try:
        head = [cell.strip() for cell in next(reader, [])]
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error} (first line)") from None
    if not head:
        raise InputError(f"{path} is empty; give a CSV file with one row per line")
    named = not all(_is_number(cell) for cell in head)
    names = head if named else [f"x{i}" for i in range(len(head))]
    if len(set(names)) != len(names):
        raise InputError(f"{path} has two columns of the same name")
    index = {name: i for i, name in enumerate(names)}
    place = None if target is None else _column(index, target, path)
    left_out = {_column(index, name, path) for name in drop} | {place}
    if features is None:
        numeric = [i for i in range(len(names)) if i not in left_out]
    else:
        numeric = [_column(index, name, path) for name in features]
    X, y = _columns(text, path, mark, names, int(named), numeric, place, limits)
    return Rows(X, tuple(names[i] for i in numeric), y)


def read_table(
    path: Path, wanted: Sequence[str], *, target: str | None = None, limits: Limits = DEFAULT_LIMITS
) -> tuple[dict[str, Any], Any]:
    """The columns of a CSV file by name, numbers or text, and the target column if one is named; columns that are not
    `wanted` are left out.
    """
    limits = limits.started()
    text = read_text(path, limits=limits)
    first = _first_line(text)
    mark = max(",;\t", key=first.count)
    _check_width(first, mark, path)
    _check_entries(text, mark, path, limits)
    lines = csv.reader(_lines(text), delimiter=mark)
    try:
        head = [cell.strip() for cell in next(lines, [])]
        index = {name: i for i, name in enumerate(head)}
        missing = [n for n in wanted if n not in index]
        if missing:
            raise _no_column(path, missing[0], head)
        place = None if target is None else _column(index, target, path)
        found = {name: _Labels() for name in wanted}
        labels = _Labels()
        for cells in lines:
            if not cells:
                continue
            if len(cells) != len(head):
                raise InputError(f"{path} has {len(cells)} fields in line {lines.line_num}, but {len(head)} columns")
            for name, column in found.items():
                column.add(cells[index[name]].strip())
            if place is not None:
                labels.add(cells[place].strip())
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error}") from None
    return {n: c.values() for n, c in found.items()}, None if place is None else labels.column(path, limits)


def read_numbers(path: Path, limits: Limits = DEFAULT_LIMITS) -> FloatArray:
    """Rows of numbers from a text file, separated by commas or blanks; a first line with words is a header."""
    limits = started(limits)
    text = read_text(path, limits=limits)
    _check_entries(text, ",", path, limits, blanks=True)
    values, width, count = array("d"), 0, 0
    for number, line in enumerate(_lines(text), start=1):
        if not number % _LINES_A_LOOK:
            limits.check_time(f"line {number:,} of {path.name}")
        cells = [c for c in (line.split(",") if "," in line else line.split()) if c.strip()]
        if not cells:
            continue
        try:
            row = [float(c) for c in cells]
        except ValueError:
            if count or number > 1:
                raise InputError(f"{path.name} has a cell that is not a number on line {number}") from None
            continue
        if count and len(row) != width:
            raise InputError(f"{path.name} has {len(row)} columns on line {number}, {width} before it")
        values.extend(row)
        width, count = len(row), count + 1
    if not count:
        raise InputError(f"{path.name} holds no rows of numbers")
    return np.frombuffer(values, dtype=np.float64).reshape(count, width)


_LINES_A_LOOK = 256
"""Lines that are read between two looks at the clock."""
_MOST_COLUMNS = 1 << 20
_LINE = re.compile(r"[^\r\n]*+(?:\r\n|\r|\n|\Z)")


def _first_line(text: str) -> str:
    """The first line that is not blank, found without a look at the blank ones."""
    found = re.search(r"\S", text)
    if found is None:
        return ""
    start = max(text.rfind(end, 0, found.start()) for end in "\r\n") + 1
    return next(_lines(text, start)).strip("\r\n")


def _lines(text: str, start: int = 0) -> Iterator[str]:
    """The lines of a text, one at a time: a list of them could take fifty times its memory."""
    return (line for found in _LINE.finditer(text, start) if (line := found.group()))


def _check_width(line: str, mark: str, path: Path) -> None:
    if line.count(mark) >= _MOST_COLUMNS:
        raise InputLimitError(f"{path} has {line.count(mark) + 1:,} fields in a line, more than {_MOST_COLUMNS:,}")


def _check_entries(text: str, mark: str, path: Path, limits: Limits, blanks: bool = False) -> None:
    entries = sum(map(text.count, (mark, "\n", "\r", *(" \t" if blanks else ""))))
    limits.check("elements", min(entries, len(text)), f"{path}, as numbers,")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == ""
    return True


def _column(index: Mapping[str, int], target: str, path: Path) -> int:
    if target in index:
        return index[target]
    if target.isascii() and target.isdigit() and len(target) < 10 and int(target) < len(index):
        return int(target)
    raise _no_column(path, target, list(index))


def _no_column(path: Path, name: str, columns: Sequence[str]) -> InputError:
    hint = did_you_mean(name, columns) or ";"
    return InputError(f"{path} has no column {name!r}{hint} its columns are {listed(columns, 30)}")


def _columns(
    text: str, path: Path, mark: str, names: list[str], skip: int, numeric: list[int], place: int | None, limits: Limits
) -> tuple[FloatArray, Any]:
    """The numbers of some columns, and the labels of another one, in one pass over the rows."""
    _check_entries(text, mark, path, limits)

    def lines() -> Iterator[str]:
        for number, line in enumerate(_lines(text), start=1):
            if not number % _LINES_A_LOOK:
                limits.check_time(f"line {number:,} of {path}")
            _check_width(line, mark, path)
            yield line

    values, labels, count, line = array("d"), _Labels(), 0, 0
    reader = csv.reader(lines(), delimiter=mark)
    try:
        for cells in reader:
            if not cells or (len(cells) == 1 and not cells[0].strip() and len(names) > 1):
                continue
            if skip:
                skip = 0
                continue
            line = reader.line_num
            if len(cells) != len(names):
                raise InputError(
                    f"{path} has {len(cells)} fields in line {line}, but {len(names)} columns; rows of equal length"
                )
            values.extend([float(cells[i]) for i in numeric])
            if place is not None:
                labels.add(cells[place].strip())
            count += 1
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error} (line {reader.line_num})") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        at = next(i for i in numeric if not _is_number(cells[i].strip()) or not cells[i].strip())
        if not cells[at].strip():
            raise _missing(path, count, names[at]) from None
        raise InputError(f"{path} must hold numbers and rows of equal length: {error}") from None
    if not count:
        raise InputError(f"{path} has no rows of data")
    X = np.frombuffer(values, dtype=np.float64).reshape(count, len(numeric))
    if not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0].tolist()
        raise _missing(path, row, names[numeric[column]])
    return X, None if place is None else labels.column(path, limits)


def _missing(path: Path, row: int, name: str) -> InputError:
    return InputError(
        f"{path} has no finite number in row {row + 1}, column {name!r}; fill or drop missing entries first"
    )


class _Labels:
    """A column of texts, each different one kept once."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.codes = array("q")

    def add(self, text: str) -> None:
        self.codes.append(self.number.setdefault(text, len(self.number)))

    def values(self) -> Any:
        """The column as numbers where all entries are (nothing: nan), else as objects, None where there is nothing."""
        codes = np.frombuffer(self.codes, dtype=np.int64)
        try:
            return np.array([float(text) if text else np.nan for text in self.number])[codes]
        except ValueError:
            return np.array([text or None for text in self.number], dtype=object)[codes]

    def column(self, path: Path, limits: Limits) -> Any:
        """The column as numbers where all are, else as texts."""
        each = list(self.number)
        codes = np.frombuffer(self.codes, dtype=np.int64)
        try:
            values = np.array([float(text) for text in each])
        except ValueError:
            # As texts of equal length, of which the longest decides.
            limits.check("elements", max(map(len, each)) * len(codes) // 2, f"{path}, the target column as text,")
            return np.array(each)[codes]
        if not np.isfinite(values).all():
            raise InputError(f"{path} has missing entries in the target column; fill or drop them first")
        return values[codes]
