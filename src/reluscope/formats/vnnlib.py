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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, pairwise, product
from os import PathLike
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, real_array
from reluscope._files import as_path, read_bytes
from reluscope.errors import InputError, UnsupportedError
from reluscope.limits import DEFAULT_LIMITS, Limits

__all__ = ["Case", "Property", "vnnlib"]

BoolArray = npt.NDArray[np.bool_]

_CHUNK_NUMBERS = 1 << 21
"""Numbers in the largest temporary of `Property.holds`."""

_NUMBER_CHARACTERS = 4000
"""Longest decimal number that is read; no float64 needs more than 770 digits."""

_CONSTANT_BITS = 20_000
"""Longest exact constant that arithmetic on numbers may build up."""


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """One polyhedron of the unsafe set: `lower <= x <= upper` and `A x + G y <= g`.

    `lower`, `upper` have shape (inputs,), infinite where the file gives no bound; `A` (rows, inputs), `G`
    (rows, outputs), `g` and `strict` (rows,). Rows with `strict` hold with `<`. A strict bound on one input
    is both in the box (closed) and a strict row. When no row of the property reads the inputs, `A` is a zero
    array that takes no memory.
    """

    lower: FloatArray
    upper: FloatArray
    A: FloatArray
    G: FloatArray
    g: FloatArray
    strict: BoolArray

    @cached_property
    def reads_inputs(self) -> BoolArray:
        """Which rows have a non-zero coefficient on an input, shape (rows,)."""
        if not any(self.A.strides):  # one number seen from everywhere
            return np.full(len(self.g), bool(self.A.size) and self.A.flat[0] != 0)
        return (self.A != 0).any(axis=1)

    @cached_property
    def reads_outputs(self) -> BoolArray:
        """Which rows have a non-zero coefficient on an output, shape (rows,)."""
        return (self.G != 0).any(axis=1)

    def __repr__(self) -> str:
        bounded = int((np.isfinite(self.lower) & np.isfinite(self.upper)).sum())
        return f"Case({bounded} of {len(self.lower)} inputs bounded, {_count(len(self.g), 'row')})"


@dataclass(frozen=True, eq=False, repr=False)
class Property:
    """The unsafe set of a VNN-LIB file: the union of its `cases`. Cases with the same box stand together."""

    n_inputs: int
    n_outputs: int
    cases: tuple[Case, ...]
    name: str = "property"

    @property
    def boxes(self) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """The distinct input boxes as `(lower, upper)`, in the order of the cases."""
        return tuple((group[0].lower, group[0].upper) for group in self.by_box)

    @cached_property
    def by_box(self) -> tuple[tuple[Case, ...], ...]:
        """The cases grouped by input box: one group for each entry of `boxes`."""
        seen: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        groups: dict[tuple[bytes, bytes], list[Case]] = {}
        for case in self.cases:
            # Cases from one file share their arrays, so most are recognised without looking at the numbers.
            same = (id(case.lower), id(case.upper))
            if same not in seen:
                seen[same] = (case.lower.tobytes(), case.upper.tobytes())
            groups.setdefault(seen[same], []).append(case)
        return tuple(tuple(group) for group in groups.values())

    def holds(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Any:
        """Whether each pair `(x, y)` lies in the unsafe set, in plain float64 arithmetic.

        `x` (n, inputs) and `y` (n, outputs) give a bool array (n,); one pair gives a bool. Inputs and outputs
        of any other shape with the right number of entries per row are flattened in row-major order.
        """
        X, single = _rows(x, "x", self.n_inputs)
        Y, single_y = _rows(y, "y", self.n_outputs)
        if len(X) != len(Y) or single != single_y:
            raise InputError(f"x and y must have the same number of rows, got {len(X)} and {len(Y)}")
        found = np.zeros(len(X), dtype=bool)
        for group in self._stacked:
            inside = np.flatnonzero(((group.lower <= X) & (group.upper >= X)).all(axis=1) & ~found)
            step = max(1, _CHUNK_NUMBERS // max(1, len(group.g)))
            for start in range(0, len(inside), step):
                part = inside[start : start + step]
                found[part] = group.holds(X[part], Y[part])
        return bool(found[0]) if single else found

    def evaluate(self, net: Any, X: npt.ArrayLike) -> Any:
        """Whether each row of `X`, with the network's output there, lies in the unsafe set."""
        if net.n_inputs != self.n_inputs or net.n_outputs != self.n_outputs:
            raise InputError(
                f"{self.name} speaks of {self.n_inputs} inputs and {self.n_outputs} outputs, "
                f"but the network has {net.n_inputs} and {net.n_outputs}"
            )
        rows, single = _rows(X, "X", self.n_inputs)
        found = self.holds(rows, net(rows))
        return bool(found[0]) if single else found

    def __repr__(self) -> str:
        return (
            f"Property({_count(self.n_inputs, 'input')}, {_count(self.n_outputs, 'output')}, "
            f"{_count(len(self.cases), 'case')} on {_count(len(self.by_box), 'box', 'boxes')})"
        )

    @cached_property
    def _stacked(self) -> tuple[_Group, ...]:
        return tuple(_Group.of(cases) for cases in self.by_box)


class _Group(NamedTuple):
    """All cases of one box with their rows stacked; `starts` says where each case begins."""

    lower: FloatArray
    upper: FloatArray
    A: FloatArray | None
    G: FloatArray
    g: FloatArray
    strict: BoolArray
    starts: npt.NDArray[np.intp]

    @classmethod
    def of(cls, cases: Sequence[Case]) -> _Group:
        lengths = np.array([len(c.g) for c in cases])
        first = cases[0]
        if (lengths == 0).any():  # a case without rows: the whole box is unsafe, whatever the others say
            cases, lengths = [c for c in cases if len(c.g) == 0][:1], np.zeros(1, dtype=int)
        reads = any(c.reads_inputs.any() for c in cases)
        A = np.concatenate([c.A for c in cases]) if reads else None
        return cls(
            first.lower,
            first.upper,
            A,
            np.concatenate([c.G for c in cases]),
            np.concatenate([c.g for c in cases]),
            np.concatenate([c.strict for c in cases]),
            np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp),
        )

    def holds(self, X: FloatArray, Y: FloatArray) -> BoolArray:
        if len(self.g) == 0:
            return np.ones(len(X), dtype=bool)
        left = Y @ self.G.T
        if self.A is not None:
            left += X @ self.A.T
        met = np.where(self.strict, left < self.g, left <= self.g)
        return np.asarray(np.logical_and.reduceat(met, self.starts, axis=1).any(axis=1))


def vnnlib(source: str | bytes | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Property:
    """Read a VNN-LIB 1.0 property from a file (also gzipped) or from its text.

    A `str` is taken as text when it holds a line break or starts with `(` or `;`, otherwise as a path; bytes
    are text. An input without a bound gets an infinite one. A disjunct whose bounds contradict each other is
    empty and left out; a property with nothing left is an error. Time is linear in the size of the file (0.1 s
    per MB) and in the size of the disjunctive normal form, which is counted before it is made.
    """
    text, name = _text_of(source, limits)
    reader = _Reader(text, limits, name)
    reader.read()
    return _assemble(reader, limits)


# -- text to formulas ----------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """`sum of coefficient * variable <= rhs` (or `<`). Input i is variable i, output j is -1 - j."""

    terms: tuple[tuple[int, float], ...]
    rhs: float
    strict: bool

    def negated(self) -> _Row:
        return _Row(tuple((v, -a) for v, a in self.terms), -self.rhs, not self.strict)


class _Join(NamedTuple):
    """`and`, `or` or `not` of formulas."""

    op: str
    parts: list[Any]


class _Linear(NamedTuple):
    """An affine expression with exact coefficients."""

    terms: dict[int, Fraction]
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
        self.codes: dict[str, int] = {}
        self.lower: dict[int, float] = {}
        self.upper: dict[int, float] = {}
        self.rows: list[_Row] = []
        self.formulas: list[_Join] = []
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
        numbers = [code if code >= 0 else -1 - code for name, code in self.codes.items() if name[0] == letter]
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

    def _value(self, symbol: str, position: int) -> _Linear | _Row:
        code = self.codes.get(symbol)
        if code is not None:
            return _Linear({code: Fraction(1)}, Fraction(0))
        if _NUMBER.fullmatch(symbol):
            rounded = self._number(symbol, position)
            # A number that rounds to zero may have an exponent that would not fit in memory when written out.
            return _Linear({}, Fraction(symbol) if rounded else Fraction(0))
        if symbol in ("true", "false"):
            return _Row((), 0.0 if symbol == "true" else -1.0, False)
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
            if len(parts) != 1 or not isinstance(parts[0], (_Row, _Join)):
                self.fail("assert takes one constraint", position)
            self._assert(parts[0], position)
        elif op in _LOGIC:
            formulas = all(isinstance(p, (_Row, _Join)) for p in parts)
            if not parts or not formulas or (op == "not" and len(parts) != 1):
                wanted = "one constraint" if op == "not" else "constraints, at least one"
                self.fail(f"{op} takes {wanted}", position)
            self._operand(_Join(op, parts), position)
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
        if name in self.codes:
            self.fail(f"{name} is declared twice", position)
        number = int(found.group(2))
        self.codes[name] = number if found.group(1) == "X" else -1 - number

    def _atom(self, op: str, left: str, right: str, position: int) -> _Row:
        codes = self.codes
        variable = codes.get(left)
        if variable is None:
            self.fail(f"{_short(left)} is not declared", position)
        sign = 1.0 if op[0] == "<" else -1.0
        strict = len(op) == 1
        if right[0] not in "XY":
            return _Row(((variable, sign),), sign * self._number(right, position), strict)
        other = codes.get(right)
        if other is None:
            self.fail(f"{_short(right)} is not declared", position)
        if variable == other:
            return _Row((), 0.0, strict)
        return _Row(((variable, sign), (other, -sign)), 0.0, strict)

    def _assert(self, formula: _Row | _Join, position: int) -> None:
        self.asserted = True
        todo: list[_Row | _Join] = [formula]
        while todo:
            part = todo.pop()
            if isinstance(part, _Row):
                self._assert_row(part, position)
            elif part.op == "and":
                todo.extend(reversed(part.parts))
            else:
                self.formulas.append(part)

    def _assert_row(self, row: _Row, position: int) -> None:
        terms = row.terms
        if not terms:
            if not _is_true(row):
                self.fail("this constraint can never hold", position)
            return
        if len(terms) > 1 or terms[0][0] < 0:
            self.rows.append(row)
            return
        (variable, sign), rhs = terms[0], row.rhs
        if sign > 0:
            if rhs < self.upper.get(variable, np.inf):
                self.upper[variable] = rhs
        elif -rhs > self.lower.get(variable, -np.inf):
            self.lower[variable] = -rhs
        if row.strict:
            self.rows.append(row)
        low, high = self.lower.get(variable, -np.inf), self.upper.get(variable, np.inf)
        if low > high:
            self.fail(f"X_{variable} must be at least {low!r} and at most {high!r}; no input is both", position)


def _is_true(row: _Row) -> bool:
    return row.rhs > 0.0 if row.strict else row.rhs >= 0.0


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


def _compared(op: str, parts: list[_Linear]) -> _Row | _Join:
    """The constraint `(op a b ...)`, which means a op b, b op c, ..."""
    if len(parts) < 2:
        raise InputError(f"{op} takes at least two operands")
    rows: list[Any] = []
    for left, right in pairwise(parts):
        difference = _combined("-", [left, right] if op[0] != ">" else [right, left])
        rows.append(_row(difference, len(op) == 1 and op != "="))
        if op == "=":
            rows.append(_row(_combined("-", [difference]), False))
    return rows[0] if len(rows) == 1 else _Join("and", rows)


def _row(expression: _Linear, strict: bool) -> _Row:
    """`expression <= 0` in float64; with one variable its coefficient becomes 1 or -1."""
    terms = {v: a for v, a in expression.terms.items() if a}
    rhs = -expression.constant
    if len(terms) == 1:
        scale = abs(next(iter(terms.values())))
        terms, rhs = {v: a / scale for v, a in terms.items()}, rhs / scale
    try:
        found = _Row(tuple((v, float(a)) for v, a in terms.items()), float(rhs), strict)
    except OverflowError as error:
        raise InputError("a number of this constraint is too large for a 64-bit float") from error
    if any(a == 0 for _, a in found.terms):
        raise InputError("a coefficient of this constraint is too small for a 64-bit float")
    return found


# -- formulas to cases ---------------------------------------------------------------------------------------


def _postorder(formula: _Join) -> list[tuple[_Row | _Join, bool]]:
    """Every node with its polarity (False under an odd number of `not`), children first, left to right."""
    order: list[tuple[_Row | _Join, bool]] = []
    todo: list[tuple[_Row | _Join, bool]] = [(formula, True)]
    while todo:
        node, positive = todo.pop()
        order.append((node, positive))
        if isinstance(node, _Join):
            todo.extend((part, positive != (node.op == "not")) for part in node.parts)
    order.reverse()
    return order


def _disjuncts(formulas: list[_Join], limits: Limits, name: str) -> list[tuple[_Row, ...]]:
    """The disjunctive normal form of the conjunction of `formulas`, counted before it is made."""
    if not formulas:
        return [()]
    order = _postorder(_Join("and", list(formulas)))
    counted: list[tuple[int, int]] = []  # (disjuncts, rows in them altogether) of the nodes done so far
    for node, positive in order:
        if isinstance(node, _Row):
            counted.append((1, 1))
            continue
        if node.op == "not":
            continue
        parts = counted[-len(node.parts) :]
        del counted[-len(node.parts) :]
        number, size = parts[0]
        for n, s in parts[1:]:
            if _is_and(node, positive):
                number, size = number * n, size * n + s * number
            else:
                number, size = number + n, size + s
            limits.check("disjuncts", number, f"{name}, in disjunctive normal form,")
            limits.check("tokens", size, f"{name}, in disjunctive normal form,")
        counted.append((number, size))
    made: list[list[tuple[_Row, ...]]] = []
    for node, positive in order:
        if isinstance(node, _Row):
            made.append([(node if positive else node.negated(),)])
        elif node.op != "not":
            choices = made[-len(node.parts) :]
            del made[-len(node.parts) :]
            if _is_and(node, positive):
                made.append([tuple(chain.from_iterable(combination)) for combination in product(*choices)])
            else:
                made.append(list(chain.from_iterable(choices)))
    return made[0]


def _is_and(node: _Join, positive: bool) -> bool:
    return (node.op == "and") == positive


def _assemble(reader: _Reader, limits: Limits) -> Property:
    n_inputs, n_outputs = reader.count("X"), reader.count("Y")
    if not reader.asserted:
        raise InputError(f"{reader.name} asserts nothing")
    limits.check("elements", n_inputs + n_outputs, reader.name)
    found: dict[tuple[tuple[int, float, float], ...], list[list[_Row]]] = {}
    disjuncts = _disjuncts(reader.formulas, limits, reader.name)
    limits.check("tokens", len(disjuncts) * len(reader.rows), f"{reader.name}, in disjunctive normal form,")
    for disjunct in disjuncts:
        split = _split(disjunct, reader)
        if split is not None:
            found.setdefault(split[0], []).append(split[1])
    if not found:
        raise InputError(f"{reader.name} can never hold: in every disjunct the bounds contradict each other")
    limits.check("elements", 2 * n_inputs * len(found), f"{reader.name}, as boxes,")
    lower, upper = np.full((len(found), n_inputs), -np.inf), np.full((len(found), n_inputs), np.inf)
    for bounds, array in ((reader.lower, lower), (reader.upper, upper)):
        array[:, list(bounds)] = list(bounds.values())
    for i, changes in enumerate(found):
        for variable, low, high in changes:
            lower[i, variable], upper[i, variable] = low, high
    boxes: list[tuple[FloatArray, FloatArray]] = []
    for low_row, high_row, group in zip(_sealed(lower), _sealed(upper), found.values(), strict=True):
        boxes += [(low_row, high_row)] * len(group)
    conjunctions = list(chain.from_iterable(found.values()))
    rows = _matrices(conjunctions, n_inputs, n_outputs, limits, reader.name)
    cases = tuple(Case(box[0], box[1], A, G, g, strict) for box, (A, G, g, strict) in zip(boxes, rows, strict=True))
    return Property(n_inputs, n_outputs, cases, reader.name)


def _split(
    disjunct: tuple[_Row, ...], reader: _Reader
) -> tuple[tuple[tuple[int, float, float], ...], list[_Row]] | None:
    """Input bounds that differ from the top-level ones, and all other rows; None when they are empty."""
    bounds: dict[int, tuple[float, float]] = {}
    rows = list(reader.rows)
    for row in disjunct:
        if not row.terms:
            if not _is_true(row):
                return None
            continue
        variable, sign = row.terms[0]
        if len(row.terms) > 1 or variable < 0:
            rows.append(row)
            continue
        if variable in bounds:
            low, high = bounds[variable]
        else:
            low, high = reader.lower.get(variable, -np.inf), reader.upper.get(variable, np.inf)
        bounds[variable] = (low, min(high, row.rhs)) if sign > 0 else (max(low, -row.rhs), high)
        if row.strict:
            rows.append(row)
    if any(low > high for low, high in bounds.values()):
        return None
    for row in rows:
        if row.strict and len(row.terms) == 1 and row.terms[0][0] >= 0:
            variable, sign = row.terms[0]
            low, high = bounds.get(variable, (reader.lower.get(variable, -np.inf), reader.upper.get(variable, np.inf)))
            # Only the single point low == high can miss a strict bound altogether.
            if low == high == sign * row.rhs:
                return None
    changed = tuple(
        sorted(
            (v, low, high)
            for v, (low, high) in bounds.items()
            if low > reader.lower.get(v, -np.inf) or high < reader.upper.get(v, np.inf)
        )
    )
    return changed, rows


def _matrices(
    conjunctions: list[list[_Row]], n_inputs: int, n_outputs: int, limits: Limits, name: str
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray, BoolArray]]:
    """`(A, G, g, strict)` of each conjunction, as views of one array each."""
    total = sum(map(len, conjunctions))
    limits.check("elements", total * n_outputs, f"{name}, as rows,")
    G, g, strict = np.zeros((total, n_outputs)), np.empty(total), np.empty(total, dtype=bool)
    on_inputs: list[tuple[int, int, float]] = []
    for at, row in enumerate(chain.from_iterable(conjunctions)):
        g[at], strict[at] = row.rhs, row.strict
        for variable, coefficient in row.terms:
            if variable < 0:
                G[at, -1 - variable] = coefficient
            else:
                on_inputs.append((at, variable, coefficient))
    if on_inputs:
        limits.check("elements", total * n_inputs, f"{name}, as rows,")
        A = np.zeros((total, n_inputs))
        rows, columns, values = zip(*on_inputs, strict=True)
        A[list(rows), list(columns)] = values
    else:
        A = np.broadcast_to(np.zeros(1), (total, n_inputs))
    whole = (_sealed(A), _sealed(G), _sealed(g), _sealed(strict))
    start = 0
    for conjunction in conjunctions:
        part = slice(start, start + len(conjunction))
        yield whole[0][part], whole[1][part], whole[2][part], whole[3][part]
        start = part.stop


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


def _rows(value: npt.ArrayLike, name: str, size: int) -> tuple[FloatArray, bool]:
    array = real_array(value, name)
    if array.ndim == 2 and array.shape[1] == size:
        return array, False
    if array.ndim == 1 and array.size == size:
        return array.reshape(1, size), True
    if array.ndim > 1 and array.size == len(array) * size:
        return array.reshape(len(array), size), False
    raise InputError(f"{name} must have shape (n, {size}) or ({size},), got {array.shape}")


def _sealed(array: Any) -> Any:
    array.setflags(write=False)
    return array


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"
