"""Plain-text tables for terminals and `repr`s."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, localcontext
from html import escape
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


def html_table(columns: Mapping[str, Sequence[Any]], most: int = 20) -> str:
    """Columns as a small HTML table for notebooks: everything escaped, at most so many rows."""
    total = max(map(len, columns.values()), default=0)
    rows = [[_cell(column[i]) for column in columns.values()] for i in range(min(total, most))]
    head = "".join(f"<th>{escape(str(name))}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    rest = f"<p>... {total - most:,} more rows</p>" if total > most else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


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


def listed(names: Sequence[str], most: int) -> str:
    """`a, b, c`, with "..." in the place of those beyond so many."""
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """`; did you mean label?`, or nothing where no name is like the word.

    >>> did_you_mean("labl", ["label", "range"]), did_you_mean("labl", ["range"])
    ('; did you mean label?', '')
    """
    near = difflib.get_close_matches(word, list(names), 1, 0.7)
    return f"; did you mean {near[0]}?" if near else ""


def in_dimensions(dimensions: Iterable[int]) -> str:
    """`{1, 3}` in words: `1, 3 dimensions`."""
    words = ", ".join(map(str, sorted(set(dimensions)))) or "no"
    return f"{words} dimension{'s' * (words != '1')}"


def percent(value: float, digits: int = 3, rounding: str = ROUND_HALF_EVEN) -> str:
    """A probability as a percentage of few digits that does not round to 0 or to 100; below a millionth, as a number.

    >>> percent(0.25), percent(2e-6), percent(1e-7), percent(0.99999), percent(1.0)
    ('25 %', '0.0002 %', '1e-07', '99.999 %', '100 %')
    >>> percent(0.12349, rounding=ROUND_FLOOR), percent(0.12341, rounding=ROUND_CEILING)
    ('12.3 %', '12.4 %')
    """
    if value <= 0 or value >= 1 or value != value:
        return f"{100 * value:g} %"
    if value < 1e-6:
        return f"{_rounded(Decimal(repr(float(value))), 2, rounding):.2g}"
    p = 100 * Decimal(repr(float(value)))
    if p > 99:  # the same digits of what is missing
        other = {ROUND_FLOOR: ROUND_CEILING, ROUND_CEILING: ROUND_FLOOR}.get(rounding, rounding)
        return f"{100 - _rounded(100 - p, max(digits - 2, 1), other):.12g} %"
    digits = digits if p >= Decimal("0.01") else 2
    return f"{_rounded(p, digits, rounding):.{digits}g} %"


def _rounded(x: Decimal, digits: int, rounding: str) -> float:
    return float(Context(prec=digits, rounding=rounding).create_decimal(x))


def percent_ends(lower: float, upper: float, digits: int = 3) -> tuple[str, str]:
    """The ends of an interval of probabilities, rounded outward; the same twice where the digits cannot tell them.

    >>> percent_ends(0.0784, 0.079199), percent_ends(0.97085, 0.97087)
    (('7.84 %', '7.92 %'), ('97.1 %', '97.1 %'))
    """
    if percent(lower, digits) == percent(upper, digits):
        return percent(lower, digits), percent(upper, digits)
    return percent(lower, digits, ROUND_FLOOR), percent(upper, digits, ROUND_CEILING)


def in_bracket(value: float, lower: float, upper: float) -> str:
    """A number and its bracket, with the digits that the width of the bracket supports, its ends rounded outward.

    >>> in_bracket(0.0788022, 0.0778477, 0.0797644), in_bracket(2.5e-10, 9.31e-11, 4.52e-10)
    ('0.0788 in [0.0778, 0.0798]', '2.5e-10 in [9e-11, 4.6e-10]')
    >>> in_bracket(0.0, 0.0, 0.0), in_bracket(1 / 3, 1 / 3 - 1e-13, 1 / 3 + 1e-13)
    ('0', '0.333333')
    """
    at, low, high = bracket_parts(value, lower, upper)
    return at if low == high else f"{at} in [{low}, {high}]"


def bracket_parts(value: float, lower: float, upper: float) -> tuple[str, str, str]:
    """A number and the ends of its bracket as `in_bracket` says them; three times the number where it is that narrow.

    >>> bracket_parts(0.0788022, 0.0778477, 0.0797644)
    ('0.0788', '0.0778', '0.0798')
    """
    width = upper - lower
    if not math.isfinite(width) or not math.isfinite(value):
        return f"{value:.6g}", f"{lower:.6g}", f"{upper:.6g}"
    if width <= _ONE_NUMBER * max(abs(lower), abs(upper)):
        return (f"{value:.6g}",) * 3
    step = Decimal((0, (1,), math.floor(math.log10(width / 1.5)) - 1))  # between 1/150 and 1/15 of the width
    with localcontext() as context:
        context.prec = 700  # any two doubles, at any step between them
        rounded = [
            Decimal(repr(float(x))).quantize(step, how)
            for x, how in ((value, ROUND_HALF_EVEN), (lower, ROUND_FLOOR), (upper, ROUND_CEILING))
        ]
        while any(rounded) and not any(x % step.scaleb(1) for x in rounded):  # a digit that says nothing
            step = step.scaleb(1)
            rounded = [x.quantize(step) for x in rounded]
        at, low, high = (_plain(x) for x in rounded)
    return at, low, high


_ONE_NUMBER = 1e-9
"""Relative width below which a bracket is shown as one number."""


def _plain(x: Decimal) -> str:
    if x == 0:
        return "0"
    return f"{x:f}" if -5 < x.adjusted() < 7 and int(x.as_tuple().exponent) <= 0 else f"{x:e}"


def percent_in(value: float, lower: float, upper: float) -> str:
    """A probability as a percentage, with no more digits than its interval supports.

    >>> percent_in(0.123456, 0.1, 0.15), percent_in(0.123456, 0.1233, 0.1236), percent_in(0.0002, 0.0, 0.004)
    ('12 %', '12.3 %', 'at most 0.4 %')
    >>> percent_in(4e-15, 1e-16, 0.0004)  # what an interval over many powers of ten says
    'at most 0.04 %'
    >>> percent_in(1.0, 0.99656, 1.0)
    'at least 99.6 %'
    """
    half = 50 * (upper - lower)
    if half <= 0:
        return percent(value)
    if value <= 0.5 * (upper - lower) and lower <= 0.01 * upper:
        return f"at most {percent(upper, rounding=ROUND_CEILING)}"
    if 1.0 - value <= 0.5 * (upper - lower) and 1.0 - upper <= 0.01 * (1.0 - lower):
        return f"at least {percent(lower, rounding=ROUND_FLOOR)}"
    digits = max(-math.floor(math.log10(half)), 0)  # the digit that is in doubt is the last one shown
    short = percent(value)
    shown = f"{100 * value:.{digits}f} %"
    return shown if len(shown) < len(short) and float(shown[:-2]) not in (0.0, 100.0) else short


_MOST_DIGITS = 5
"""Digits of a probability in a sentence, where its interval is narrow."""


def percent_bracket(value: float, lower: float, upper: float) -> tuple[str, str, str]:
    """A probability and the ends of its interval as percentages: so many digits that the ends can be told apart.

    Where five digits cannot tell them apart, the ends are empty and the number has three.

    >>> percent_bracket(0.12970, 0.12964, 0.12976), percent_bracket(0.0785, 0.0779, 0.0791)
    (('12.97 %', '12.96 %', '12.98 %'), ('7.85 %', '7.79 %', '7.91 %'))
    >>> percent_bracket(0.25, 0.25 - 1e-13, 0.25 + 1e-13)
    ('25 %', '', '')
    """
    for digits in range(3, _MOST_DIGITS + 1):
        low, high = percent_ends(lower, upper, digits)
        if low != high:
            return (percent_in(value, lower, upper) if digits == 3 else percent(value, digits)), low, high
    return percent(value), "", ""
