"""VNN-LIB 2.0: properties of one or several networks, with typed tensors.

    (vnnlib-version <2.0>)
    (declare-network f (declare-input X real [1,5]) (declare-output Y real [5]))
    (declare-network g (isomorphic-to f) (declare-input Z real [1,5]) (declare-output W real [5]))
    (assert (== X[0,0] Z[0,0])) ...
    (assert (or (> W[0] (+ Y[0] 0.05)) (< W[0] (- Y[0] 0.05))))

All of the published grammar is read. Linear constraints over the inputs and outputs of all networks become an event of
the joined network (`events.Relation`): where there are several networks, equations between inputs are solved, and the
event is one on the inputs that are left. Hidden tensors may be declared; a constraint on one is refused by name, and
so are products of variables. Element types are read; what is computed is the network in real arithmetic.

Nothing here recurses; bytes, tokens, nesting, entries and disjuncts are counted against `Limits`. Every error names
line and column.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from fractions import Fraction
from math import inf, prod
from typing import Any, NamedTuple, NoReturn

import numpy as np
from scipy import sparse

from reluscope.errors import InputError, ReluscopeWarning, UnsupportedError
from reluscope.events import (
    Bounds,
    Declared,
    Event,
    Formula,
    Join,
    Relation,
    Row,
    Tensor,
    Variable,
    assembled,
    disjuncts,
    entry_name,
    entry_names,
    rounded_row,
)
from reluscope.formats._smt import (
    LARGEST,
    NUM,
    NUMBER,
    NUMBER_CHARACTERS,
    NUMBERS_PER_ROW,
    TOKENS_A_LOOK,
    Frame,
    Linear,
    bounded,
    combined,
    compared,
    short,
)
from reluscope.limits import Limits

_BEGIN = re.compile(r"(?:\s++|;[^\r\n]*+)*+\(\s*+vnnlib-version\b", re.ASCII)
_VERSION = re.compile(r"<([0-9]{1,9})\.([0-9]{1,9})>", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_SHAPE = re.compile(r"\[\s*(?:[0-9]{1,12}\s*(?:,\s*[0-9]{1,12}\s*)*)?\]", re.ASCII)

_ENTRY = r"[A-Za-z][A-Za-z0-9_]*+(?:\s*+\[[0-9,\s]*+\])?+"
# Comparisons of an entry with a number or an entry fill large files: they are single tokens.
_TOKEN = re.compile(
    r"(?:\s++|;[^\r\n]*+)*+(?:"
    rf"(\(\s*+(<=|>=|<|>)\s++({_ENTRY})\s++({NUM}|{_ENTRY})\s*+\))"  # groups 1-4
    r"|(\()|(\))"  # groups 5, 6
    rf"|(\"[^\"]*+\"|{_ENTRY}(?:-[A-Za-z][A-Za-z0-9_-]*+)?+|\[[^\]()]*+\]|[^\s();\[\]\"]++)"  # group 7
    r"|(\Z)"  # group 8
    r"|(.))",  # group 9
    re.ASCII | re.DOTALL,
)
_ATOM, _OPEN, _CLOSE, _SYMBOL, _END, _OTHER = 1, 5, 6, 7, 8, 9

_COMPARISONS = ("<=", ">=", "<", ">", "==", "!=")
_ARITHMETIC = ("+", "-", "*")
_LOGIC = ("and", "or")
_EXPRESSIONS = frozenset((*_COMPARISONS, *_ARITHMETIC, *_LOGIC))
_TENSORS = {"declare-input": "input", "declare-hidden": "hidden", "declare-output": "output"}
_ALIKE = ("equal-to", "isomorphic-to")
_TOP = ("vnnlib-version", "declare-network", "assert")
_INSIDE = {"declare-network": (*_TENSORS, *_ALIKE), "assert": tuple(_EXPRESSIONS)}

_FLOAT8 = ("float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz")
_REAL = ("real", "Real", "float16", "float32", "float64", "bfloat16", "float4e2m1", *_FLOAT8)
_WHOLE = ("int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64", "bool")
_STRANGE = ("complex64", "complex128", "string")


class _Product(NamedTuple):
    """An expression that is not linear: the text of its first product of variables, and where that stands."""

    text: str
    start: int


_Tightest = dict[tuple[tuple[Variable, float], ...], Row]


class _Equation(Join):
    """`a == b`, which keeps the exact difference beside its two rows."""

    difference: Linear


def is_version_2(text: str) -> bool:
    """Whether a property says that it is of version 2 or later."""
    return _BEGIN.match(text) is not None


def read_version_2(text: str, limits: Limits, name: str, *, linear_part: bool = False) -> Event:
    """The event of a property in version 2.0."""
    reader = _Reader(text, limits, name, linear_part)
    reader.read()
    return reader.event()


class _Reader:
    """Reads the text once; holds then the declared networks, the asserted formulas, and where rows stand."""

    def __init__(self, text: str, limits: Limits, name: str, linear_part: bool) -> None:
        self.text, self.limits, self.name, self.linear_part = text, limits, name, linear_part
        self.version = ""
        self.networks: list[Declared] = []
        self.tensors: dict[str, tuple[Tensor, int]] = {}  # with the number of its first entry among all of its kind
        self.sizes = {"input": 0, "output": 0, "hidden": 0}
        self.asserted: list[Formula] = []
        self.places: dict[Row, int] = {}
        self.dropped: list[_Product] = []
        self.held = 0
        self._stack: list[Frame] = []
        self._known: dict[str, Variable] = {}

    # -- places in the text --

    def at(self, position: int) -> str:
        """`line 3, column 7`."""
        before = self.text[:position]
        line = before.count("\n") + (before.count("\r") - before.count("\r\n")) + 1
        return f"line {line}, column {position - max(before.rfind(chr(10)), before.rfind(chr(13)))}"

    def fail(self, message: str, position: int, error: type[InputError] = InputError) -> NoReturn:
        raise error(f"{self.at(position)} of {self.name}: {message}")

    # -- tokens --

    def read(self) -> None:
        """Go through all tokens."""
        stack, most = self._stack, self.limits.tokens
        for tokens, match in enumerate(_TOKEN.finditer(self.text), 1):
            if tokens > most:
                self.limits.check("tokens", tokens, f"{self.name}, so far,")
            if not tokens % TOKENS_A_LOOK:
                held = self.held + len(self._known)
                self.limits.check("elements", NUMBERS_PER_ROW * held, f"{self.name}, with {held:,} constraints,")
            if match.group(_ATOM) is not None:
                op, left, right = match.group(2, 3, 4)
                self._atom(op, left, right, match.start(_ATOM))
            elif match.group(_OPEN) is not None:
                stack.append(Frame(match.start(_OPEN)))
                if len(stack) > self.limits.depth:
                    self.limits.check("depth", len(stack), f"{self.at(match.start(_OPEN))} of {self.name}")
            elif match.group(_CLOSE) is not None:
                if not stack:
                    self.fail("a closing parenthesis too many", match.start(_CLOSE))
                self._close(stack.pop(), match.end())
            elif match.group(_SYMBOL) is not None:
                self._symbol(match.group(_SYMBOL), match.start(_SYMBOL))
            elif match.group(_OTHER) is not None:
                self.fail(f"character {match.group(_OTHER)!r} is not expected here", match.start(_OTHER))
        if stack:
            self.fail("this parenthesis is never closed; the file may be cut short", stack[0].start)

    def _symbol(self, symbol: str, position: int) -> None:
        if not self._stack:
            self.fail(f"{short(symbol)} stands outside of any parentheses", position)
        frame = self._stack[-1]
        if frame.op is None:
            self._operator(frame, symbol, position)
        elif frame.op in _EXPRESSIONS or frame.op == "assert":
            frame.parts.append(self._value(symbol, position))
        elif frame.op in _TENSORS and _NAME.match(symbol) and symbol.endswith("]"):  # "real [5]" is one token
            at = symbol.index("[")
            frame.parts += [(symbol[:at].strip(), position), (symbol[at:], position + at)]
        else:
            frame.parts.append((symbol, position))

    def _operator(self, frame: Frame, symbol: str, position: int) -> None:
        depth = len(self._stack)
        known: tuple[str, ...]
        if depth == 1:
            known = _TOP
        else:
            top = str(self._stack[0].op)
            known = _INSIDE.get(top, ()) if top == "assert" or depth == 2 else ()
        if symbol in known:
            frame.op = symbol
            return
        if depth > 1 and self._stack[0].op == "assert":
            if NUMBER.fullmatch(symbol) or self._tensor(symbol) is not None:
                self.fail(
                    f"{short(symbol)} stands where an operator is expected; VNN-LIB writes the operator first, as in "
                    f"(< {short(symbol)} ...)",
                    position,
                )
            known = (*_LOGIC, *_COMPARISONS, *_ARITHMETIC)
        elif symbol in ("declare-const", "declare-fun"):
            self.fail(f"{symbol} belongs to VNN-LIB 1.0; version 2.0 declares networks with their tensors", position)
        kind = InputError if symbol in (*_TOP, *_TENSORS, *_ALIKE) or not known else UnsupportedError
        expected = f"expected one of {', '.join(known)}" if known else "nothing in parentheses is expected here"
        self.fail(f"{short(symbol)} is not known here; {expected}", position, kind)

    def _value(self, symbol: str, position: int) -> Linear:
        if NUMBER.fullmatch(symbol):
            rounded = self._number(symbol, position)
            # A number that rounds to zero may have an exponent that would not fit in memory when written out.
            return Linear({}, Fraction(symbol) if rounded else Fraction(0))
        return Linear({self._variable(symbol, position): Fraction(1)}, Fraction(0))

    def _number(self, text: str, position: int) -> float:
        if len(text) > NUMBER_CHARACTERS:
            self.fail(f"a number of {len(text):,} characters, more than {NUMBER_CHARACTERS:,}", position)
        value = float(text)
        if not -LARGEST <= value <= LARGEST:
            self.fail(f"{short(text)} is too large for a 64-bit float", position)
        return value

    def _tensor(self, symbol: str) -> tuple[Tensor, int] | None:
        found = _NAME.match(symbol)
        return None if found is None else self.tensors.get(found.group())

    def _variable(self, symbol: str, position: int) -> Variable:
        """An entry of a tensor, by its name in the text."""
        known = self._known.get(symbol)
        if known is not None:
            return known
        found = self._tensor(symbol)
        if found is None:
            self.fail(f"{short(symbol)} is neither a number nor an entry of a declared tensor, such as X[0]", position)
        tensor, first = found
        index = symbol[len(tensor.name) :].strip()
        if index and not _SHAPE.fullmatch(index):
            self.fail(
                f"{short(symbol)} is no entry of {tensor.name}; entries are called {entry_name(tensor, 0)}", position
            )
        shape = list(tensor.shape)
        if tensor.kind == "hidden":
            self.fail(
                f"{short(symbol)} is an entry of a hidden tensor; constraints on hidden tensors are not read",
                position,
                UnsupportedError,
            )
        if not index and shape:
            self.fail(f"{tensor.name} has the shape {shape}; say which entry, as in {entry_name(tensor, 0)}", position)
        at = [int(n) for n in re.findall(r"[0-9]+", index)]
        if len(at) != len(shape) or any(i >= n for i, n in zip(at, shape, strict=True)):
            self.fail(f"{short(symbol)} does not exist: {tensor.name} has the shape {shape}, counted from 0", position)
        flat = 0
        for i, n in zip(at, shape, strict=True):
            flat = flat * n + i
        variable = ("x" if tensor.kind == "input" else "y", first + flat)
        self._known[symbol] = variable
        return variable

    def _atom(self, op: str, left: str, right: str, position: int) -> None:
        """A comparison that is one token."""
        inside = bool(self._stack) and self._stack[0].op == "assert" and self._stack[-1].op is not None
        if not inside:
            self.fail("a constraint must stand inside (assert ...)", position)
        a = self._variable(left, position)
        sign, strict = 1.0 if op[0] == "<" else -1.0, len(op) == 1
        if right[0] in "0123456789+-.":
            row = Row(((a, sign),), sign * self._number(right, position) + 0.0, strict)
        else:
            b = self._variable(right, position)
            row = Row(tuple(sorted([(a, sign), (b, -sign)])), 0.0, strict) if a != b else Row((), 0.0, strict)
        self.places.setdefault(row, position)
        self._operand(row, position)

    def _operand(self, value: Any, position: int) -> None:
        if not self._stack:
            self.fail("a constraint must stand inside (assert ...)", position)
        frame = self._stack[-1]
        if frame.op is None:
            self.fail("expected a name such as assert or and before this parenthesis", position)
        self.held += 1
        frame.parts.append(value)

    # -- what parentheses mean --

    def _close(self, frame: Frame, end: int) -> None:
        op, parts, position = frame.op, frame.parts, frame.start
        if op is None:
            self.fail("empty parentheses", position)
        if op == "vnnlib-version":
            self._declare_version(parts, position)
        elif op == "declare-network":
            self._declare_network(parts, position)
        elif op in _TENSORS:
            self._operand(self._declared_tensor(op, parts, position), position)
        elif op in _ALIKE:
            if len(parts) != 1 or not isinstance(parts[0], tuple):
                self.fail(f"{op} takes the name of a network", position)
            self._operand((op, *parts[0]), position)
        elif op == "assert":
            if len(parts) != 1 or not isinstance(parts[0], (Row, Join)):
                self.fail("assert takes one constraint", position)
            self.asserted.append(parts[0])
        elif op in _LOGIC:
            if not parts or not all(isinstance(p, (Row, Join)) for p in parts):
                self.fail(f"{op} takes constraints, at least one", position)
            self._operand(Join(op, tuple(parts)), position)
        elif not parts or not all(isinstance(p, (Linear, _Product)) for p in parts):
            self.fail(f"{op} takes numbers, entries of tensors and sums of them", position)
        elif op in _ARITHMETIC:
            self._operand(self._arithmetic(op, parts, position, end), position)
        else:
            self._operand(self._comparison(op, parts, position), position)

    def _arithmetic(self, op: str, parts: list[Any], position: int, end: int) -> Linear | _Product:
        curved = [p for p in parts if isinstance(p, _Product)]
        if curved:
            return curved[0]
        if op == "*" and sum(bool(p.terms) for p in parts) > 1:
            return _Product(short(" ".join(self.text[position:end].split()), 80), position)
        try:
            return combined(op, parts)
        except InputError as error:
            self.fail(str(error), position, type(error))

    def _comparison(self, op: str, parts: list[Any], position: int) -> Formula:
        if len(parts) != 2:
            self.fail(f"{op} compares two expressions, got {len(parts)}", position)
        curved = [p for p in parts if isinstance(p, _Product)]
        if curved:
            if not self.linear_part:
                self.fail(
                    f"{curved[0].text} is a product of variables, which is not linear; vnnlib(..., linear_part=True) "
                    "reads the rest, for an upper bound",
                    curved[0].start,
                    UnsupportedError,
                )
            self.dropped.append(curved[0])
            return Row((), 0.0, False)
        try:
            if op not in ("==", "!="):
                found = compared(op, parts)
                if isinstance(found, Row):
                    self.places.setdefault(found, position)
                return found
            both = compared("=", parts)
            equation = _Equation("and", both.parts) if isinstance(both, Join) else _Equation("and", (both,))
            equation.difference = combined("-", parts)
        except InputError as error:
            self.fail(str(error), position, type(error))
        for row in equation.parts:
            self.places.setdefault(row, position)
        return equation if op == "==" else Join("not", (equation,))

    def _declare_version(self, parts: list[Any], position: int) -> None:
        found = _VERSION.fullmatch(parts[0][0]) if len(parts) == 1 else None
        if found is None:
            self.fail("the version has the form (vnnlib-version <2.0>)", position)
        if self.version or self.networks or self.asserted:
            self.fail("the version stands once, at the beginning", position)
        if found.group(1) != "2":
            self.fail(f"version {found.group()} is not read; 1.0 and 2.0 are", position, UnsupportedError)
        self.version = found.group()

    def _declared_tensor(self, op: str, parts: list[Any], position: int) -> tuple[Tensor, int]:
        kind = _TENSORS[op]
        words = [p[0] for p in parts]
        shape = words[2] if len(words) > 2 else ""
        named = len(words) == 4 and words[3].startswith('"')
        good = len(words) in (3, 4) and _NAME.fullmatch(words[0]) and _SHAPE.fullmatch(shape)
        if not good or named != (len(words) == 4) or (kind == "hidden" and not named):
            node = ' "node"' if kind == "hidden" else ""
            self.fail(f"a tensor is declared as ({op} X real [1,5]{node})", position)
        name, dtype = words[0], words[1]
        if dtype in _WHOLE or dtype in _STRANGE:
            what = "whole numbers" if dtype in _WHOLE else "no numbers that a network computes with"
            self.fail(f"{name} is declared as {dtype}: {what}; real and floating types are read", position,
                      UnsupportedError)  # fmt: skip
        if dtype not in _REAL:
            self.fail(f"{short(dtype)} is no element type; real and float32 are some", position)
        sizes = tuple(int(n) for n in re.findall(r"[0-9]+", shape))
        if 0 in sizes:
            self.fail(f"{name} has no entries: its shape is {list(sizes)}", position)
        self.limits.check("elements", prod(sizes), f"{name} of {self.name}")

        return Tensor(kind, name, dtype, sizes, words[3].strip('"') if named else ""), position

    def _declare_network(self, parts: list[Any], position: int) -> None:
        if not self.version:
            self.fail("the version must be declared first: (vnnlib-version <2.0>)", position)
        if self.asserted:
            self.fail("networks are declared before the first assert", position)
        if not parts or not isinstance(parts[0][0], str) or not _NAME.fullmatch(parts[0][0]):
            self.fail("a network is declared as (declare-network f (declare-input ...) (declare-output ...))", position)
        name = parts[0][0]
        if name in {d.name for d in self.networks}:
            self.fail(f"network {short(name)} is declared twice", position)
        self.limits.check("tensors", len(self.tensors) + len(parts), self.name)
        tensors: list[Tensor] = []
        alike = {"equal-to": "", "isomorphic-to": ""}
        for part in parts[1:]:
            if isinstance(part[0], Tensor):
                tensors.append(part[0])
                self._enter(part[0], part[1])
            elif part[0] in _ALIKE and len(part) == 3:
                op, other, start = part
                if any(alike.values()):
                    self.fail(f"network {short(name)} is declared to be like another one twice", start)
                if other not in {d.name for d in self.networks}:
                    self.fail(f"{op} names a network that is declared before, got {short(other)}", start)
                alike[op] = other
            else:
                self.fail(f"{short(str(part[0]))} is not expected in a declaration of a network", part[-1])
        kinds = [t.kind for t in tensors]
        if "input" not in kinds or "output" not in kinds:
            self.fail(f"network {short(name)} needs at least one input and one output", position)
        new = Declared(name, tuple(tensors), alike["equal-to"], alike["isomorphic-to"])
        for other in self.networks:
            if other.name in alike.values() and (other.n_inputs, other.n_outputs) != (new.n_inputs, new.n_outputs):
                self.fail(f"network {short(name)} has other sizes than {other.name}, which it is to be like", position)
        self.networks.append(new)

    def _enter(self, tensor: Tensor, position: int) -> None:
        if tensor.name in self.tensors:
            self.fail(f"{short(tensor.name)} is declared twice", position)
        self.tensors[tensor.name] = (tensor, self.sizes[tensor.kind])
        self.sizes[tensor.kind] += tensor.size
        self.limits.check("elements", sum(self.sizes.values()), self.name)

    # -- formulas to an event --

    def event(self) -> Event:
        """The event on the free inputs and on all outputs."""
        if not self.networks:
            raise InputError(f"{self.name} declares no network; is it a VNN-LIB property?")
        if not self.asserted:
            raise InputError(f"{self.name} asserts nothing")
        rows, formulas, equations = self._sorted()
        solved, why = self._solved(equations)
        n_all, n_outputs = self.sizes["input"], self.sizes["output"]
        number = {i: k for k, i in enumerate(i for i in range(n_all) if i not in solved)}
        if not number:
            raise UnsupportedError(f"{self.name}: equations fix all inputs, so that nothing is left to ask about")
        relation = self._relation(solved, number)
        rename = len(number) < n_all

        def moved(row: Row) -> Row:
            new = self._substituted(row, solved, number) if rename else row
            if new is not row and row in self.places:
                self.places.setdefault(new, self.places[row])
            return new

        shared = Bounds({}, {}, [])
        for row in rows:
            why = why or self._shared_row(moved(row), shared)
        base, reason = self._tightest(shared.rows, {})
        why = why or reason
        found = []
        if not why:
            parts = disjuncts(Join("and", tuple(formulas)), self.limits, self.name, reduce=False)
            self.limits.check("tokens", len(parts) * len(shared.rows), f"{self.name}, in disjunctive normal form,")
            first = ""
            for part in parts:
                self.limits.check_time(self.name)
                own = tuple(moved(row) for row in part)
                reason = self._tightest(own, base)[1]
                first = first or reason
                if not reason:
                    found.append(own)
            why = "" if found else first or "the constraints contradict each other"
        args = (self.name, len(number), n_outputs)
        event = assembled(*args, found, self.limits, shared=shared, name=self.name)
        if not event.cases and not why:
            why = "in every disjunct the bounds contradict each other"
        if why:
            why = f"can never happen: {why}"
            warnings.warn(f"{self.name} {why}", ReluscopeWarning, stacklevel=4)
        notes = [why] if why else []
        if self.dropped:
            terms = list(dict.fromkeys(p.text for p in self.dropped))
            more = f" and {len(terms) - 3} more" if len(terms) > 3 else ""
            notes.append(
                f"linear part: {len(self.dropped)} comparisons with products of variables were taken to hold "
                f"({'; '.join(terms[:3])}{more}), so that the probability is an upper bound"
            )
        return Event(*args, event.cases, (), relation, "; ".join(notes))

    def _sorted(self) -> tuple[list[Row], list[Formula], list[_Equation]]:
        """Rows that always hold, other formulas, and equations between inputs, where these are solved."""
        rows: list[Row] = []
        formulas: list[Formula] = []
        equations: list[_Equation] = []
        todo: list[Formula] = list(reversed(self.asserted))
        while todo:
            part = todo.pop()
            if isinstance(part, Row):
                rows.append(part)
            elif isinstance(part, _Equation) and len(self.networks) > 1 and _on_inputs(part.difference):
                equations.append(part)
            elif part.op == "and":
                todo.extend(reversed(part.parts))
            else:
                formulas.append(part)
        return rows, formulas, equations

    def _solved(self, equations: list[_Equation]) -> tuple[dict[int, Linear], str]:
        """Each input that equations leave no choice for, as an expression of the others; why they cannot hold."""
        solved: dict[int, Linear] = {}
        users: dict[int, set[int]] = {}  # free input -> solved inputs whose expressions read it
        for equation in equations:
            self.limits.check_time(self.name)
            value = _substitute(equation.difference, solved)
            terms = {v[1]: a for v, a in value.terms.items() if a}
            if not terms:
                if value.constant:
                    return solved, f"equations between inputs contradict each other ({self._where(equation)})"
                continue
            pivot = max(terms)
            scale = -1 / terms.pop(pivot)
            new = Linear({("x", i): bounded(a * scale) for i, a in terms.items()}, bounded(value.constant * scale))
            for reader in users.pop(pivot, ()):  # keep all expressions in free inputs
                solved[reader] = _substitute(solved[reader], {pivot: new})
                for v in solved[reader].terms:
                    users.setdefault(v[1], set()).add(reader)
            solved[pivot] = new
            for v in new.terms:
                users.setdefault(v[1], set()).add(pivot)
        return solved, ""

    def _where(self, equation: _Equation) -> str:
        return self.at(self.places[equation.parts[0]])

    def _relation(self, solved: dict[int, Linear], number: dict[int, int]) -> Relation:
        n_all = self.sizes["input"]
        c = np.zeros(n_all)
        entries = [(i, k, 1.0) for i, k in number.items()]
        for i, value in solved.items():
            c[i] = float(value.constant)
            entries += [(i, number[v[1]], float(a)) for v, a in value.terms.items()]
        rows, columns, values = zip(*entries, strict=True)
        A = sparse.csr_array((values, (rows, columns)), shape=(n_all, len(number)))
        names = entry_names(tuple(self.networks), "input")
        return Relation(tuple(self.networks), tuple(names[i] for i in number), A, c)

    def _substituted(self, row: Row, solved: dict[int, Linear], number: dict[int, int]) -> Row:
        value = Linear({v: Fraction(a) for v, a in row.terms}, Fraction(0))
        if any(v[0] == "x" and v[1] in solved for v in value.terms):
            value = _substitute(value, solved)
        terms = {(v[0], number[v[1]]) if v[0] == "x" else v: a for v, a in value.terms.items()}
        return rounded_row(terms, Fraction(row.rhs) - value.constant, row.strict)

    def _shared_row(self, row: Row, shared: Bounds) -> str:
        """Enter a row that always holds; a reason if it can not."""
        if not row.terms:
            return "" if row.always else f"{self._text(row)} never holds"
        variable, sign = row.terms[0]
        if len(row.terms) > 1 or variable[0] != "x":
            shared.rows.append(row)
            return ""
        i, bound = variable[1], row.rhs / sign
        if sign > 0:
            shared.upper[i] = min(bound, shared.upper.get(i, inf))
        else:
            shared.lower[i] = max(bound, shared.lower.get(i, -inf))
        if row.strict:
            shared.rows.append(row)
        low, high = shared.lower.get(i, -inf), shared.upper.get(i, inf)
        return f"{self._text(row)}: no input is at least {low!r} and at most {high!r}" if low > high else ""

    def _tightest(self, rows: Iterable[Row], base: _Tightest) -> tuple[_Tightest, str]:
        """The tightest row on each expression; why two of them (or one and one of `base`) contradict each other."""
        own: _Tightest = {}
        for row in rows:
            if row.terms:
                held = own.get(row.terms) or base.get(row.terms)
                if held is None or (row.rhs, not row.strict) < (held.rhs, not held.strict):
                    own[row.terms] = row
        for terms, row in own.items():
            opposite = tuple((v, -a) for v, a in terms)
            other = own.get(opposite) or base.get(opposite)
            if other is None:
                continue
            room = Fraction(row.rhs) + Fraction(other.rhs)
            if room < 0 or (room == 0 and (row.strict or other.strict)):
                one, two = sorted((row, other), key=lambda r: self.places.get(r, 0))
                numbers = self._numbers()
                which = f"rows {numbers.get(one, '?')} and {numbers.get(two, '?')} contradict each other"
                return own, f"{which}: {self._text(one)}, and {self._text(two)}"
        return own, ""

    def _numbers(self) -> dict[Row, int]:
        """Rows that read outputs, counted from 1 in the order of the file."""
        rows = [row for row in self.places if any(v[0] == "y" for v, _ in row.terms)]
        return {row: k for k, row in enumerate(sorted(rows, key=self.places.__getitem__), 1)}

    def _text(self, row: Row) -> str:
        start = self.places.get(row)
        if start is None:
            return "a row"
        depth, end = 0, start
        for end in range(start, min(len(self.text), start + 500)):
            depth += {"(": 1, ")": -1}.get(self.text[end], 0)
            if depth == 0:
                break
        return f"{short(' '.join(self.text[start : end + 1].split()), 80)} ({self.at(start)})"


def _on_inputs(value: Linear) -> bool:
    """Whether an equation is between inputs: two at least, and nothing else."""
    return len(value.terms) > 1 and all(v[0] == "x" for v in value.terms)


def _substitute(value: Linear, solved: dict[int, Linear]) -> Linear:
    terms: dict[Variable, Fraction] = {}
    constant = value.constant
    for v, a in value.terms.items():
        known = solved.get(v[1]) if v[0] == "x" else None
        if known is None:
            terms[v] = bounded(terms.get(v, Fraction(0)) + a)
            continue
        constant = bounded(constant + a * known.constant)
        for w, b in known.terms.items():
            terms[w] = bounded(terms.get(w, Fraction(0)) + a * b)
    return Linear({v: a for v, a in terms.items() if a}, constant)
