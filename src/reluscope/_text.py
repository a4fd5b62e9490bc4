"""Plain-text tables for terminals and `repr`s."""

from __future__ import annotations

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
