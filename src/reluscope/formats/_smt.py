"""What the readers of both versions of VNN-LIB share: exact linear arithmetic, numbers, the frames of parentheses."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from reluscope.errors import InputError, UnsupportedError
from reluscope.events import Formula, Join, Variable, rounded_row

NUMBER_CHARACTERS = 4000
"""Longest decimal number that is read; no float64 needs more than 770 digits."""

TOKENS_A_LOOK = 1024
"""Tokens that are read between two looks at the clock and at what is held."""

NUMBERS_PER_ROW = 32
"""Numbers that would fit in the memory of a constraint or a variable that is held."""

_CONSTANT_BITS = 20_000
"""Longest exact constant that arithmetic on numbers may build up."""

NUM = r"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
NUMBER = re.compile(NUM, re.ASCII)
LARGEST = sys.float_info.max


class Linear(NamedTuple):
    """An affine expression with exact coefficients."""

    terms: dict[Variable, Fraction]
    constant: Fraction


class Frame:
    """An open parenthesis: its operator, its operands so far, where it starts."""

    __slots__ = ("op", "parts", "start")

    def __init__(self, start: int) -> None:
        self.op: str | None = None
        self.parts: list[Any] = []
        self.start = start


def combined(op: str, parts: list[Linear]) -> Linear:
    """The value of `(op parts...)` for `+ - * /`."""
    terms, constant = dict(parts[0].terms), parts[0].constant
    if op == "-" and len(parts) == 1:
        return Linear({v: -a for v, a in terms.items()}, -constant)
    for part in parts[1:]:
        if op in "+-":
            sign = 1 if op == "+" else -1
            for v, a in part.terms.items():
                terms[v] = bounded(terms.get(v, Fraction(0)) + sign * a)
            constant = bounded(constant + sign * part.constant)
            continue
        if op == "*":
            if terms and part.terms:
                raise UnsupportedError("a product of two variables is not linear")
            if part.terms:
                factor, terms, constant = constant, dict(part.terms), part.constant
            else:
                factor = part.constant
        else:
            if part.terms or part.constant == 0:
                raise UnsupportedError("division is by a non-zero number only")
            factor = 1 / part.constant
        terms = {v: bounded(a * factor) for v, a in terms.items()}
        constant = bounded(constant * factor)
    return Linear(terms, constant)


def bounded(value: Fraction) -> Fraction:
    """The value itself, unless it is too long."""
    if value.numerator.bit_length() + value.denominator.bit_length() > _CONSTANT_BITS:
        raise InputError("the numbers of this expression combine to one too long to compute exactly")
    return value


def compared(op: str, parts: list[Linear]) -> Formula:
    """The constraint `(op a b ...)`, which means a op b, b op c, ..."""
    if len(parts) < 2:
        raise InputError(f"{op} takes at least two operands")
    rows: list[Any] = []
    for left, right in pairwise(parts):
        difference = combined("-", [left, right] if op[0] != ">" else [right, left])
        rows.append(rounded_row(difference.terms, -difference.constant, len(op) == 1 and op != "="))
        if op == "=":
            opposite = combined("-", [difference])
            rows.append(rounded_row(opposite.terms, -opposite.constant, False))
    return rows[0] if len(rows) == 1 else Join("and", tuple(rows))


def short(text: str, most: int = 40) -> str:
    """The text, cut to a few words."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
