"""VNN-LIB properties: the unsafe set of a network as a union of polyhedra. Version 2.0 is in `_vnnlib2`.

A property file of version 1.0 declares inputs `X_0..` and outputs `Y_0..` and asserts linear constraints joined by
`and`, `or` and `not`. Brought to disjunctive normal form it reads

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
from fractions import Fraction
from os import PathLike
from typing import Any, NoReturn

import numpy as np

from reluscope._check import describe, flag, instance, integer
from reluscope._files import as_path, atomic_write, read_text
from reluscope.errors import InputError, UnsupportedError
from reluscope.events import Bounds, Event, Formula, Join, Row, Variable, assembled, disjuncts
from reluscope.formats._smt import (
    LARGEST,
    NUM,
    NUMBER,
    NUMBER_CHARACTERS,
    NUMBERS_PER_ROW,
    TOKENS_A_LOOK,
    Frame,
    Linear,
    combined,
    compared,
    short,
)
from reluscope.formats._vnnlib2 import is_version_2, read_version_2
from reluscope.formats._vnnlib_text import written
from reluscope.limits import DEFAULT_LIMITS, Limits, started

__all__ = ["vnnlib", "write_vnnlib"]


def vnnlib(source: str | bytes | PathLike[str], *, linear_part: bool = False, limits: Limits = DEFAULT_LIMITS) -> Event:
    """Read a VNN-LIB property, 1.0 or 2.0, from a file (also gzipped) or its text, as an `Event` named after the file.

    Parameters
    ----------
    source : str, bytes or path
        A `str` is taken as text when it holds a line break or starts with `(` or `;`, otherwise as a path; bytes are
        text.
    linear_part : bool
        For a 2.0 property with products of variables, which are no linear constraints: read it as if comparisons with
        such products always held. The event is then larger than the property says, so that its probability is an
        upper bound; its `note` names what was left out.
    limits : Limits
        What a file may hold.

    Returns
    -------
    Event
        Of a 2.0 property with several networks: one on the inputs that its equations leave (`event.relation.free`) and
        on the outputs of all networks; `probability({"f": f, "g": g}, law, event)` answers it.

    Raises
    ------
    InputError
        If the file is no VNN-LIB property; the message names the line, in version 2.0 also the column.

    Notes
    -----
    An input without a bound gets an infinite one. A disjunct whose bounds contradict each other is
    empty and left out; a property of version 1.0 with nothing left is an error, one of version 2.0 an event that can
    never happen, with a warning that names the rows. Time is linear in the size of the file (0.1 s
    per MB in version 1.0) and in the size of the disjunctive normal form, whose size is checked before it is built.

    Examples
    --------
    >>> vnnlib("(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 0))(assert (<= Y_0 1))").n_inputs
    1
    """
    limits, linear_part = started(limits), flag(linear_part, "linear_part")
    text, name = _text_of(source, limits)
    if is_version_2(text):
        return read_version_2(text, limits, name, linear_part=linear_part)
    if linear_part:
        raise InputError(f"linear_part is for properties of version 2.0, and {name} is none")
    reader = _Reader(text, limits, name)
    reader.read()
    return _assemble(reader, limits)


def write_vnnlib(event: Event, path: str | PathLike[str], version: int = 2) -> None:
    """Write an event as a VNN-LIB property, whole or not at all; see `Event.to_vnnlib`."""
    instance(event, "event", Event, "an Event")
    data = written(event, integer(version, "version", low=1, high=2)).encode()
    with atomic_write(path) as file:
        file.write(data)


# -- text to formulas ----------------------------------------------------------------------------------------


_COMPARISONS = ("<=", ">=", "<", ">", "=")
_ARITHMETIC = ("+", "-", "*", "/")
_LOGIC = ("and", "or", "not")
_EXPRESSIONS = frozenset((*_COMPARISONS, *_ARITHMETIC, *_LOGIC, "assert"))
_DECLARATIONS = frozenset(("declare-const", "declare-fun"))
_IGNORED = frozenset(("set-logic", "set-info", "set-option", "check-sat", "get-model", "get-value", "exit"))
_VERSION_2 = frozenset(("vnnlib-version", "declare-network", "declare-input", "declare-output"))

_VAR = r"[XY]_[0-9]++"
_ATOM = rf"\(\s*+(<=|>=|<|>)\s++({_VAR})\s++({NUM}|{_VAR})\s*+\)"
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
_VARIABLE = re.compile(r"([XY])_(0|[1-9][0-9]*)", re.ASCII)


class _Reader:
    """Reads the text once; holds then the declared names, the top-level box, rows and remaining formulas."""

    def __init__(self, text: str, limits: Limits, name: str) -> None:
        self.text, self.limits, self.name = text, limits, name
        self.variables: dict[str, Variable] = {}
        self.shared = Bounds({}, {}, [])
        self.formulas: list[Join] = []
        self.asserted = False
        self.held = 0
        self._stack: list[Frame] = []

    def read(self) -> None:
        """Go through all tokens."""
        stack, most = self._stack, self.limits.tokens
        for tokens, match in enumerate(_TOKEN.finditer(self.text), 1):
            if tokens > most:
                self.limits.check("tokens", tokens, f"{self.name}, so far,")
            if not tokens % TOKENS_A_LOOK:
                held = self.held + len(self.variables)
                self.limits.check("elements", NUMBERS_PER_ROW * held, f"{self.name}, with {held:,} constraints,")
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
                stack.append(Frame(match.start(_OPEN)))
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
            self.fail(f"{short(symbol)} stands outside of any parentheses", position)
        frame = self._stack[-1]
        if self._stack[0].op in _IGNORED:
            frame.op = frame.op or ""
        elif frame.op is None:
            self._operator(frame, symbol, position)
        elif frame.op in _DECLARATIONS:
            frame.parts.append(symbol)
        else:
            frame.parts.append(self._value(symbol, position))

    def _operator(self, frame: Frame, symbol: str, position: int) -> None:
        top = len(self._stack) == 1
        if symbol in _VERSION_2:
            self.fail(f"{symbol} belongs to VNN-LIB 2.0; such a property begins with (vnnlib-version <2.0>)", position)
        command = symbol == "assert" or symbol in _DECLARATIONS or symbol in _IGNORED
        if not command and symbol not in _EXPRESSIONS:
            known = "assert, declare-const" if top else ", ".join((*_LOGIC, *_COMPARISONS, *_ARITHMETIC))
            message = f"{short(symbol)} is not known here; expected one of {known}"
            self.fail(message, position, UnsupportedError)
        if command != top:
            where = "at the top level" if command else "inside an assert"
            self.fail(f"{short(symbol)} belongs {where}", position)
        frame.op = symbol

    def _value(self, symbol: str, position: int) -> Linear | Row:
        variable = self.variables.get(symbol)
        if variable is not None:
            return Linear({variable: Fraction(1)}, Fraction(0))
        if NUMBER.fullmatch(symbol):
            rounded = self._number(symbol, position)
            # A number that rounds to zero may have an exponent that would not fit in memory when written out.
            return Linear({}, Fraction(symbol) if rounded else Fraction(0))
        if symbol in ("true", "false"):
            return Row((), 0.0 if symbol == "true" else -1.0, False)
        problem = "is not declared" if _VARIABLE.fullmatch(symbol) else "is neither a number nor a variable"
        return self.fail(f"{short(symbol)} {problem}", position)

    def _number(self, text: str, position: int) -> float:
        if len(text) > NUMBER_CHARACTERS:
            self.fail(f"a number of {len(text):,} characters, more than {NUMBER_CHARACTERS:,}", position)
        value = float(text)
        if not -LARGEST <= value <= LARGEST:
            self.fail(f"{short(text)} is too large for a 64-bit float", position)
        return value

    def _operand(self, value: Any, position: int) -> None:
        if not self._stack:
            self.fail("a constraint must stand inside (assert ...)", position)
        frame = self._stack[-1]
        if self._stack[0].op in _IGNORED:
            return
        if frame.op is None or frame.op in _DECLARATIONS:
            self.fail("expected a name such as assert or and before this parenthesis", position)
        self.held += 1
        frame.parts.append(value)

    def _close(self, frame: Frame) -> None:
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
                kind = short(str(parts[-1]))
                self.fail(f"{short(parts[0])} is declared as {kind}; only Real is known", position)
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
            if not parts or not all(isinstance(p, Linear) for p in parts):
                self.fail(f"{op} takes numbers, variables and sums of them", position)
            try:
                value = compared(op, parts) if op in _COMPARISONS else combined(op, parts)
            except InputError as error:
                self.fail(str(error), position, type(error))
            self._operand(value, position)

    # -- meaning --

    def _declare(self, name: str, position: int) -> None:
        found = _VARIABLE.fullmatch(name)
        if not found or len(name) > 12:
            self.fail(f"variables are called X_0, X_1, ... and Y_0, Y_1, ...; got {short(name)}", position)
        if name in self.variables:
            self.fail(f"{name} is declared twice", position)
        self.variables[name] = (found.group(1).lower(), int(found.group(2)))

    def _atom(self, op: str, left: str, right: str, position: int) -> Row:
        variable = self.variables.get(left)
        if variable is None:
            self.fail(f"{short(left)} is not declared", position)
        sign = 1.0 if op[0] == "<" else -1.0
        strict = len(op) == 1
        if right[0] not in "XY":
            return Row(((variable, sign),), sign * self._number(right, position), strict)
        other = self.variables.get(right)
        if other is None:
            self.fail(f"{short(right)} is not declared", position)
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
            self.held += 1
            self.shared.rows.append(row)
            return
        i, rhs, (lower, upper, rows) = variable[1], row.rhs, self.shared
        if sign > 0:
            if rhs < upper.get(i, np.inf):
                upper[i] = rhs
        elif -rhs > lower.get(i, -np.inf):
            lower[i] = -rhs
        if row.strict:
            self.held += 1
            rows.append(row)
        low, high = lower.get(i, -np.inf), upper.get(i, np.inf)
        if low > high:
            self.fail(f"X_{i} must be at least {low!r} and at most {high!r}; no input is both", position)


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
        limits.check("text_bytes", len(source), "the property text")
        return _clean(source, "the property text"), "the property text"
    if isinstance(source, (bytes, bytearray)):
        data, name = bytes(source), "the property text"
        limits.check("file_bytes", len(data), name)
        limits.check("text_bytes", len(data) if data.isascii() else 4 * len(data), name)
    elif isinstance(source, (str, PathLike)) and (not isinstance(source, str) or source.strip()):
        name = as_path(source, "source").name
        return _clean(read_text(source, limits=limits), name), name
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
