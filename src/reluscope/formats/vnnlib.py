"""VNN-LIB 1.0 properties: the unsafe set of a network as a union of polyhedra.

A property file declares inputs `X_0..` and outputs `Y_0..` and asserts linear constraints joined by `and`,
`or` and `not`. Brought to disjunctive normal form it reads

    unsafe = union over cases i of { (x, y) : lower_i <= x <= upper_i,  A_i x + G_i y <= g_i },

with single rows strict where the file says `<` or `>`. A verifier asks whether some `(x, net(x))` lies in it,
a probability engine how much mass those x hold; both work case by case, and cases share their boxes.

The grammar is the part of SMT-LIB that property files use: `declare-const` / `declare-fun` of `Real`
variables, `assert`, `and`, `or`, `not`, `<= >= < > =` (chained too), `+ - * /` with constants, decimal
numbers with exponents, comments, any line ending, a byte order mark, gzip. Constants are computed exactly and
rounded once to the nearest float64. Nothing here recurses; bytes, tokens, nesting and disjuncts are counted against
`Limits`.
"""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from itertools import pairwise
from os import PathLike
from typing import Any, NamedTuple, NoReturn

import numpy as np

from reluscope._check import describe
from reluscope._files import as_path, read_bytes
from reluscope.errors import InputError, UnsupportedError
from reluscope.events import Bounds, Event, Formula, Join, Row, Variable, assembled, disjuncts, rounded_row
from reluscope.limits import DEFAULT_LIMITS, Limits

__all__ = ["vnnlib"]

_NUMBER_CHARACTERS = 4000
"""Longest decimal number that is read; no float64 needs more than 770 digits."""

_CONSTANT_BITS = 20_000
"""Longest exact constant that arithmetic on numbers may build up."""


def vnnlib(source: str | bytes | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Event:
    """Read a VNN-LIB 1.0 property from a file (also gzipped) or from its text, as an `Event` named after the file.

    Parameters
    ----------
    source : str, bytes or path
        A `str` is taken as text when it holds a line break or starts with `(` or `;`, otherwise as a path; bytes are
        text.
    limits : Limits
        What a file may hold.

    Returns
    -------
    Event

    Raises
    ------
    InputError
        If the file is no VNN-LIB 1.0 property; the message names the line.

    Notes
    -----
    An input without a bound gets an infinite one. A disjunct whose bounds contradict each other is
    empty and left out; a property with nothing left is an error. Time is linear in the size of the file (0.1 s
    per MB) and in the size of the disjunctive normal form, whose size is checked before it is built.

    Examples
    --------
    >>> vnnlib("(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 0))(assert (<= Y_0 1))").n_inputs
    1
    """
    text, name = _text_of(source, limits)
    reader = _Reader(text, limits, name)
    reader.read()
    return _assemble(reader, limits)


# -- text to formulas ----------------------------------------------------------------------------------------


class _Linear(NamedTuple):
    """An affine expression with exact coefficients."""

    terms: dict[Variable, Fraction]
    constant: Fraction


class _Frame:
    """An open parenthesis: its operator, its operands so far, where it starts."""

    __slots__ = ("op", "parts", "start")

    def __init__(self, start: int) -> None:
        self.op: str | None = None
        self.parts: list[Any] = []
        self.start = start


_COMPARISONS = ("<=", ">=", "<", ">", "=")
_ARITHMETIC = ("+", "-", "*", "/")
_LOGIC = ("and", "or", "not")
_EXPRESSIONS = frozenset((*_COMPARISONS, *_ARITHMETIC, *_LOGIC, "assert"))
_DECLARATIONS = frozenset(("declare-const", "declare-fun"))
_IGNORED = frozenset(("set-logic", "set-info", "set-option", "check-sat", "get-model", "get-value", "exit"))
_VERSION_2 = frozenset(("vnnlib-version", "declare-network", "declare-input", "declare-output"))

_NUM = r"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
_VAR = r"[XY]_[0-9]++"
_ATOM = rf"\(\s*+(<=|>=|<|>)\s++({_VAR})\s++({_NUM}|{_VAR})\s*+\)"
# The forms that fill large files are single tokens; everything else goes through parentheses and symbols.
# Possessive quantifiers keep matching linear on hostile text.
_TOKEN = re.compile(
    r"(?:\s++|;[^\r\n]*+)*+(?:"
    rf"\(\s*+assert\s*+{_ATOM}\s*+\)"  # groups 1-3
    rf"|{_ATOM}"  # groups 4-6
    rf"|\(\s*+declare-const\s++({_VAR})\s++Real\s*+\)"  # group 7
    r"|(\()|(\))"  # groups 8, 9
    r"""|([^\s();|"]++|"[^"]*+"|\|[^|]*+\|)"""  # group 10
    r"|(\Z)"  # group 11
    r"|(.))",  # group 12
    re.ASCII | re.DOTALL,
)
_ASSERTED, _ATOMIC, _DECLARED, _OPEN, _CLOSE, _SYMBOL, _END = 3, 6, 7, 8, 9, 10, 11
_NUMBER = re.compile(_NUM, re.ASCII)
_VARIABLE = re.compile(r"([XY])_(0|[1-9][0-9]*)", re.ASCII)
_LARGEST = sys.float_info.max


class _Reader:
    """Reads the text once; holds then the declared names, the top-level box, rows and remaining formulas."""

    def __init__(self, text: str, limits: Limits, name: str) -> None:
        self.text, self.limits, self.name = text, limits, name
        self.variables: dict[str, Variable] = {}
        self.shared = Bounds({}, {}, [])
        self.formulas: list[Join] = []
        self.asserted = False
        self._stack: list[_Frame] = []

    def read(self) -> None:
        """Go through all tokens."""
        stack, most = self._stack, self.limits.tokens
        for tokens, match in enumerate(_TOKEN.finditer(self.text), 1):
            if tokens > most:
                self.limits.check("tokens", tokens, f"{self.name}, so far,")
            kind = match.lastindex
            if kind == _ASSERTED:
                if stack:
                    self.fail("assert inside parentheses; one before it is not closed", match.start(1))
                op, left, right = match.group(1, 2, 3)
                self._assert(self._atom(op, left, right, match.start(1)), match.start(1))
            elif kind == _ATOMIC:
                op, left, right = match.group(4, 5, 6)
                self._operand(self._atom(op, left, right, match.start(4)), match.start(4))
            elif kind == _DECLARED:
                if stack:
                    self.fail("a declaration belongs at the top level", match.start(7))
                self._declare(match.group(7), match.start(7))
            elif kind == _OPEN:
                stack.append(_Frame(match.start(_OPEN)))
                if len(stack) > self.limits.depth:
                    where = f"line {self._line(match.start(_OPEN))} of {self.name}"
                    self.limits.check("depth", len(stack), where)
            elif kind == _CLOSE:
                if not stack:
                    self.fail("a closing parenthesis too many", match.start(_CLOSE))
                self._close(stack.pop())
            elif kind == _SYMBOL:
                self._symbol(match.group(_SYMBOL), match.start(_SYMBOL))
            elif kind != _END:
                self.fail(f"character {match.group(12)!r} is not expected here", match.start(12))
        if stack:
            self.fail("this parenthesis is never closed; the file may be cut short", stack[0].start)

    def count(self, letter: str) -> int:
        """How many variables of that letter are declared; they must be numbered 0, 1, 2, ..."""
        numbers = [index for kind, index in self.variables.values() if kind == letter.lower()]
        if not numbers:
            raise InputError(f"{self.name} declares no {letter}_0; is it a VNN-LIB property?")
        if max(numbers) != len(numbers) - 1:
            missing = next(i for i, n in enumerate(sorted(numbers)) if i != n)
            raise InputError(f"{self.name} declares {letter}_{max(numbers)} but not {letter}_{missing}")
        return len(numbers)

    def fail(self, message: str, position: int, error: type[InputError] = InputError) -> NoReturn:
        """Raise with the line that `position` is on."""
        raise error(f"line {self._line(position)} of {self.name}: {message}")

    def _line(self, position: int) -> int:
        before = self.text[:position]
        return before.count("\n") + (before.count("\r") - before.count("\r\n")) + 1

    # -- tokens --

    def _symbol(self, symbol: str, position: int) -> None:
        if not self._stack:
            self.fail(f"{_short(symbol)} stands outside of any parentheses", position)
        frame = self._stack[-1]
        if self._stack[0].op in _IGNORED:
            frame.op = frame.op or ""
        elif frame.op is None:
            self._operator(frame, symbol, position)
        elif frame.op in _DECLARATIONS:
            frame.parts.append(symbol)
        else:
            frame.parts.append(self._value(symbol, position))

    def _operator(self, frame: _Frame, symbol: str, position: int) -> None:
        top = len(self._stack) == 1
        if symbol in _VERSION_2:
            self.fail(
                f"{symbol} belongs to VNN-LIB 2.0, which is not read; write the property in VNN-LIB 1.0 "
                "(declare-const X_0 Real, ...)",
                position,
                UnsupportedError,
            )
        command = symbol == "assert" or symbol in _DECLARATIONS or symbol in _IGNORED
        if not command and symbol not in _EXPRESSIONS:
            known = "assert, declare-const" if top else ", ".join((*_LOGIC, *_COMPARISONS, *_ARITHMETIC))
            message = f"{_short(symbol)} is not known here; expected one of {known}"
            self.fail(message, position, UnsupportedError)
        if command != top:
            where = "at the top level" if command else "inside an assert"
            self.fail(f"{_short(symbol)} belongs {where}", position)
        frame.op = symbol

    def _value(self, symbol: str, position: int) -> _Linear | Row:
        variable = self.variables.get(symbol)
        if variable is not None:
            return _Linear({variable: Fraction(1)}, Fraction(0))
        if _NUMBER.fullmatch(symbol):
            rounded = self._number(symbol, position)
            # A number that rounds to zero may have an exponent that would not fit in memory when written out.
            return _Linear({}, Fraction(symbol) if rounded else Fraction(0))
        if symbol in ("true", "false"):
            return Row((), 0.0 if symbol == "true" else -1.0, False)
        problem = "is not declared" if _VARIABLE.fullmatch(symbol) else "is neither a number nor a variable"
        return self.fail(f"{_short(symbol)} {problem}", position)

    def _number(self, text: str, position: int) -> float:
        if len(text) > _NUMBER_CHARACTERS:
            self.fail(f"a number of {len(text):,} characters, more than {_NUMBER_CHARACTERS:,}", position)
        value = float(text)
        if not -_LARGEST <= value <= _LARGEST:
            self.fail(f"{_short(text)} is too large for a 64-bit float", position)
        return value

    def _operand(self, value: Any, position: int) -> None:
        if not self._stack:
            self.fail("a constraint must stand inside (assert ...)", position)
        frame = self._stack[-1]
        if self._stack[0].op in _IGNORED:
            return
        if frame.op is None or frame.op in _DECLARATIONS:
            self.fail("expected a name such as assert or and before this parenthesis", position)
        frame.parts.append(value)

    def _close(self, frame: _Frame) -> None:
        op, parts, position = frame.op, frame.parts, frame.start
        if op in _IGNORED or (self._stack and self._stack[0].op in _IGNORED):
            return
        if op is None:
            if self._stack and self._stack[-1].op == "declare-fun":
                self._stack[-1].parts.append(())
                return
            self.fail("empty parentheses", position)
        if op in _DECLARATIONS:
            arguments = [()] if op == "declare-fun" else []
            if len(parts) < 2 or parts[1:-1] != arguments or not isinstance(parts[0], str):
                form = "(declare-fun X_0 () Real)" if op == "declare-fun" else "(declare-const X_0 Real)"
                self.fail(f"a declaration has the form {form}", position)
            if parts[-1] != "Real":
                kind = _short(str(parts[-1]))
                self.fail(f"{_short(parts[0])} is declared as {kind}; only Real is known", position)
            self._declare(parts[0], position)
        elif op == "assert":
            if len(parts) != 1 or not isinstance(parts[0], (Row, Join)):
                self.fail("assert takes one constraint", position)
            self._assert(parts[0], position)
        elif op in _LOGIC:
            formulas = all(isinstance(p, (Row, Join)) for p in parts)
            if not parts or not formulas or (op == "not" and len(parts) != 1):
                wanted = "one constraint" if op == "not" else "constraints, at least one"
                self.fail(f"{op} takes {wanted}", position)
            self._operand(Join(op, tuple(parts)), position)
        else:
            if not parts or not all(isinstance(p, _Linear) for p in parts):
                self.fail(f"{op} takes numbers, variables and sums of them", position)
            try:
                value = _compared(op, parts) if op in _COMPARISONS else _combined(op, parts)
            except InputError as error:
                self.fail(str(error), position, type(error))
            self._operand(value, position)

    # -- meaning --

    def _declare(self, name: str, position: int) -> None:
        found = _VARIABLE.fullmatch(name)
        if not found or len(name) > 12:
            self.fail(f"variables are called X_0, X_1, ... and Y_0, Y_1, ...; got {_short(name)}", position)
        if name in self.variables:
            self.fail(f"{name} is declared twice", position)
        self.variables[name] = (found.group(1).lower(), int(found.group(2)))

    def _atom(self, op: str, left: str, right: str, position: int) -> Row:
        variable = self.variables.get(left)
        if variable is None:
            self.fail(f"{_short(left)} is not declared", position)
        sign = 1.0 if op[0] == "<" else -1.0
        strict = len(op) == 1
        if right[0] not in "XY":
            return Row(((variable, sign),), sign * self._number(right, position), strict)
        other = self.variables.get(right)
        if other is None:
            self.fail(f"{_short(right)} is not declared", position)
        if variable == other:
            return Row((), 0.0, strict)
        return Row(((variable, sign), (other, -sign)), 0.0, strict)

    def _assert(self, formula: Formula, position: int) -> None:
        self.asserted = True
        todo: list[Formula] = [formula]
        while todo:
            part = todo.pop()
            if isinstance(part, Row):
                self._assert_row(part, position)
            elif part.op == "and":
                todo.extend(reversed(part.parts))
            else:
                self.formulas.append(part)

    def _assert_row(self, row: Row, position: int) -> None:
        terms = row.terms
        if not terms:
            if not row.always:
                self.fail("this constraint can never hold", position)
            return
        variable, sign = terms[0]
        if len(terms) > 1 or variable[0] != "x":
            self.shared.rows.append(row)
            return
        i, rhs, (lower, upper, rows) = variable[1], row.rhs, self.shared
        if sign > 0:
            if rhs < upper.get(i, np.inf):
                upper[i] = rhs
        elif -rhs > lower.get(i, -np.inf):
            lower[i] = -rhs
        if row.strict:
            rows.append(row)
        low, high = lower.get(i, -np.inf), upper.get(i, np.inf)
        if low > high:
            self.fail(f"X_{i} must be at least {low!r} and at most {high!r}; no input is both", position)


def _combined(op: str, parts: list[_Linear]) -> _Linear:
    """The value of `(op parts...)` for `+ - * /`."""
    terms, constant = dict(parts[0].terms), parts[0].constant
    if op == "-" and len(parts) == 1:
        return _Linear({v: -a for v, a in terms.items()}, -constant)
    for part in parts[1:]:
        if op in "+-":
            sign = 1 if op == "+" else -1
            for v, a in part.terms.items():
                terms[v] = _bounded(terms.get(v, Fraction(0)) + sign * a)
            constant = _bounded(constant + sign * part.constant)
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
        terms = {v: _bounded(a * factor) for v, a in terms.items()}
        constant = _bounded(constant * factor)
    return _Linear(terms, constant)


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > _CONSTANT_BITS:
        raise InputError("the numbers of this expression combine to one too long to compute exactly")
    return value


def _compared(op: str, parts: list[_Linear]) -> Formula:
    """The constraint `(op a b ...)`, which means a op b, b op c, ..."""
    if len(parts) < 2:
        raise InputError(f"{op} takes at least two operands")
    rows: list[Any] = []
    for left, right in pairwise(parts):
        difference = _combined("-", [left, right] if op[0] != ">" else [right, left])
        rows.append(rounded_row(difference.terms, -difference.constant, len(op) == 1 and op != "="))
        if op == "=":
            opposite = _combined("-", [difference])
            rows.append(rounded_row(opposite.terms, -opposite.constant, False))
    return rows[0] if len(rows) == 1 else Join("and", tuple(rows))


# -- formulas to cases ---------------------------------------------------------------------------------------


def _assemble(reader: _Reader, limits: Limits) -> Event:
    n_inputs, n_outputs = reader.count("X"), reader.count("Y")
    if not reader.asserted:
        raise InputError(f"{reader.name} asserts nothing")
    limits.check("elements", n_inputs + n_outputs, reader.name)
    found = disjuncts(Join("and", tuple(reader.formulas)), limits, reader.name, reduce=False)
    limits.check("tokens", len(found) * len(reader.shared.rows), f"{reader.name}, in disjunctive normal form,")
    event = assembled(reader.name, n_inputs, n_outputs, found, limits, shared=reader.shared, name=reader.name)
    if not event.cases:
        raise InputError(f"{reader.name} can never hold: in every disjunct the bounds contradict each other")
    return event


# -- small things --------------------------------------------------------------------------------------------


def _text_of(source: Any, limits: Limits) -> tuple[str, str]:
    if isinstance(source, str) and (re.match(r"\ufeff?\s*+[(;]", source) or "\n" in source or "\r" in source):
        limits.check("file_bytes", len(source), "the property text")
        return _clean(source, "the property text"), "the property text"
    if isinstance(source, (bytes, bytearray)):
        data, name = bytes(source), "the property text"
        limits.check("file_bytes", len(data), name)
    elif isinstance(source, (str, PathLike)) and (not isinstance(source, str) or source.strip()):
        name = as_path(source, "source").name
        data = read_bytes(source, limits=limits, inflate=True)
    else:
        raise InputError(f"source must be the path or the text of a VNN-LIB property, got {describe(source)}")
    try:
        return _clean(data.decode("utf-8"), name), name
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not a text file: byte {error.start} is not UTF-8") from error


def _clean(text: str, name: str) -> str:
    if "\0" in text:
        raise InputError(f"{name} is not a text file: character {text.index(chr(0))} is NUL")
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise InputError(f"{name} is empty")
    return text


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
