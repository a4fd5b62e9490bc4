"""Plain-text tables for terminals and `repr`s."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Rows of equal keys as an aligned table; numbers flush right, text flush left."""
    if not rows:
        return "(empty)"
    names = list(columns or rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(names)]
    right = [all(isinstance(row.get(name), (int, float)) for row in rows) for name in names]

    def line(values: Sequence[str]) -> str:
        padded = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(names), "  ".join("-" * w for w in widths), *(line(c) for c in cells)])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def count(number: int, noun: str) -> str:
    """`1 region`, `1,234 regions`: a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_dimensions(dimensions: Iterable[int]) -> str:
    """`{1, 3}` in words: `1, 3 dimensions`."""
    words = ", ".join(map(str, sorted(set(dimensions)))) or "no"
    return f"{words} dimension{'s' * (words != '1')}"


def percent(value: float, digits: int = 3) -> str:
    """A probability as a percentage of few digits that does not round to 0 or to 100.

    >>> percent(0.25), percent(1e-7), percent(0.99999), percent(1.0)
    ('25 %', '1e-05 %', '99.999 %', '100 %')
    """
    p = 100 * value
    if value <= 0 or value >= 1:
        return f"{p:g} %"
    if p > 99:  # the same digits of what is missing
        return f"{100 - float(f'{100 - p:.{max(digits - 2, 1)}g}'):.12g} %"
    return f"{p:.{digits}g} %" if p >= 0.01 else f"{p:.2g} %"


def percent_in(value: float, lower: float, upper: float) -> str:
    """A probability as a percentage, with no more digits than its interval supports.

    >>> percent_in(0.123456, 0.1, 0.15), percent_in(0.123456, 0.1233, 0.1236), percent_in(0.0002, 0.0, 0.004)
    ('12 %', '12.3 %', 'at most 0.4 %')
    """
    half = 50 * (upper - lower)
    if half <= 0:
        return percent(value)
    if value <= 0.5 * (upper - lower) and lower <= 0:
        return f"at most {percent(upper)}"
    digits = max(-math.floor(math.log10(half)), 0)  # the digit that is in doubt is the last one shown
    short = percent(value)
    shown = f"{100 * value:.{digits}f} %"
    return shown if len(shown) < len(short) and float(shown[:-2]) not in (0.0, 100.0) else short
