"""Events written as text: `"y[0] > y[1] and not (0 <= x[2] < 0.3)"` to a tree of linear rows.

    or   <   and   <   not   <   == != < <= > >= in   <   + -   <   * /   <   unary -   <   numbers, names, (...)

Variables are entries of the input `x[i]`, of the output `y[j]`, of the Jacobian `J[j,i]`, norms of it and the states of
units `unit[layer,unit]`; everything counts from 0. In a joined network they belong to a part: `f.y[0]`, `argmax f`, or
`y'[0]` for the second of a pair. All arithmetic is linear with exact rational constants, rounded
once at the end. With a schema, columns, outputs, classes and units go by their names (`named.py`). Nothing is ever
evaluated as Python. Length, nesting and the size of numbers are limited; every error points at its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from reluscope._check import describe, integer, several
from reluscope._text import count, did_you_mean, listed
from reluscope.errors import InputError, InputLimitError
from reluscope.events.dnf import Formula, Join, Row, Variable, disjuncts, rounded_row
from reluscope.events.named import Chosen, Named, Scaled, Vocabulary, spelled
from reluscope.events.record import Event, assembled
from reluscope.inputs import check_law
from reluscope.limits import DEFAULT_LIMITS, Limits, started
from reluscope.network import Part, check_network

if TYPE_CHECKING:
    from reluscope.inputs import Law
    from reluscope.network import Network

NORMS = {"norm": "spectral", "norm2": "spectral", "norm1": "one", "norminf": "infinity", "fro": "frobenius"}

_MOST_CHARACTERS = 100_000
_DEPTH = 100
_NUMBER_CHARACTERS = 400
_CONSTANT_BITS = 20_000
_SHOWN = 100
_NUMBERS_PER_ROW = 32
"""Numbers that would fit in the memory of a condition."""

_TOKEN = re.compile(
    r"\s*+(?:"
    r"((?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+)"  # 1 number
    r"|((?:[xy][0-9]++|[xyXYJ]|unit|argmax|argmin)'|[A-Za-z_][A-Za-z0-9_]*+)"  # 2 name, of the second of a pair or not
    r"|\"([^\"]*+)\"|'([^']*+)'"  # 3, 4 quoted name
    r"|(<=|>=|==|!=|&&|\|\||[-+*/()\[\]{},.<>=!&|~≤≥≠−])"  # 5 sign
    r"|(\Z)|(.))",  # 6 end, 7 anything else
    re.ASCII | re.DOTALL,
)
_SIGNS = {"=": "==", "≤": "<=", "≥": ">=", "≠": "!=", "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not"}
_SIGNS |= {"~": "not", "−": "-"}
_WORDS = ("and", "or", "not", "in")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_POWER = {"or": 1, "and": 2, "in": 4, "+": 5, "-": 5, "*": 6, "/": 6} | dict.fromkeys(_COMPARISONS, 4)
_NOT, _MINUS = 3, 7

_NOUNS = {"x": "input", "y": "output"}
_NUMBERED = re.compile(r"([xy])([0-9]{1,9})")
"""`y0` for `y[0]`, where nothing has that name."""

_OF_PART = ("x", "y", "X", "Y", "J", "unit")


class Linear(NamedTuple):
    """An affine expression with exact coefficients."""

    terms: Mapping[Variable, Fraction]
    constant: Fraction


class _Largest(NamedTuple):
    """`sign * max(parts)`: what max, min and abs are. `apart`: absolute values of several numbers, not yet one."""

    parts: tuple[Linear, ...]
    sign: int
    apart: bool = False


class _Arg(NamedTuple):
    """`argmax` or `argmin` of the outputs, or of those of a part."""

    smallest: bool
    outputs: range


class _Vector(NamedTuple):
    """All inputs or outputs, by bare name, or sums and differences of such."""

    letter: str
    parts: tuple[Linear, ...]


class _Token(NamedTuple):
    kind: str  # "number", "unit", "name", "quoted", "sign", "end"
    text: str
    start: int


class Names(NamedTuple):
    """What the text may speak of: sizes, names of inputs and outputs, and the class at the law's mean."""

    n_inputs: int
    n_outputs: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    at_mean: Callable[[bool, range], int] | None
    """argmin (True) or argmax (False) of these outputs at the law's mean; None when net or law is not known."""
    words: Vocabulary | None = None
    """The names of the network's schema, if it has one."""
    parts: Mapping[str, Part] = {}
    """The networks that a joined network is made of."""


def event(
    text: str,
    n_inputs: int,
    n_outputs: int,
    *,
    net: Network | None = None,
    law: Law | None = None,
    names: Any = None,
    output_names: Any = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Event:
    """Read an event from text, such as `"y[0] > y[1] and y[2] <= 0.3"` or `"argmax != argmax at mean"`.

    Parameters
    ----------
    text : str
        The event; see Notes.
    n_inputs, n_outputs : int
        Of the network.
    net : Network, optional
    law : Law, optional
        Needed for `argmax at mean`; the event is checked against `net`.
    names, output_names : optional
        Lists, or mappings to indices: names to use for the network's own numbers. The names of the schema of `net` are
        known without.
    limits : Limits
        How large the event may become.

    Returns
    -------
    Event

    Raises
    ------
    InputError
        If the text is not an event of such a network; the message points at the place.

    Notes
    -----
    Conditions compare linear expressions of `x[i]`, `y[j]`, `J[j,i]` (the derivative of output j by input i),
    `norm(J)` (spectral; also `norm1`, `norminf`, `fro`) and `unit[layer,unit]` (its piece; `on` and `off` follow it),
    all counted from 0 (`unit[0,3]` is in the first hidden layer), with `== != < <= > >=`, chained as in `0 <= x[0] <
    1`. `argmax` and `argmin` compare with a number, a set (`in {1, 2}`) or `argmax at mean` (which needs `net` and
    `law`); of equal outputs the first counts, as in numpy. `max(...)`, `min(...)` and `abs(...)` of linear expressions
    may stand on one side of a comparison; `|y[0]|` is `abs(y[0])`, and `y0` is `y[0]`. Conditions join with `and`,
    `or`, `not` and parentheses.

    In a network joined by `stack` or `parallel` with names, everything belongs to a part: `abs(f.y[0] - g.y[0]) >
    0.05`, `max(abs(f.y - g.y)) > 0.05`, `argmax f != argmax g`, `f.J[0,1] < 0`. Inputs that all parts share are `x[i]`.
    With two inputs of one network (see `probability`), the second is x' and its output y': `y'[3] > y[3]`.

    With a schema, names stand for values in their units: `range < 500 ft`, `SEX == female`, `SEX in {1, 2}`, `PD >
    0.2` (a probability, where the output has a sigmoid; the limit moves to the network's own output), `P(default) >
    0.2`, `advisory == strong left` (the decision by the schema's rule). Names with blanks or signs stand in quotes.

    The text is parsed, never evaluated; constants are exact and rounded once. Events are put in disjunctive normal
    form; its size is checked first.

    Examples
    --------
    >>> event("0.5 < y[0] <= 1 or y[1] > y[0]", 3, 2)
    Event('0.5 < y[0] <= 1 or y[1] > y[0]', 2 cases)
    """
    if net is not None:
        check_network(net)
    if law is not None:
        check_law(law)
    limits = started(limits)
    n_in, n_out = integer(n_inputs, "n_inputs", low=1), integer(n_outputs, "n_outputs", low=1)

    at_mean = None
    if net is not None and law is not None:

        def at_mean(smallest: bool, outputs: range) -> int:
            y = net(law.mean)[outputs.start : outputs.stop]
            return int(np.argmin(y) if smallest else np.argmax(y))

    table = Names(
        n_in,
        n_out,
        input_names(names, n_in, "names"),
        input_names(output_names, n_out, "output_names"),
        at_mean,
        None if net is None or net.schema is None else Vocabulary(net.schema),
        {} if net is None else {part.name: part for part in net.parts},
    )
    formula = parse(text, table, limits)
    found = assembled(text, n_in, n_out, disjuncts(formula, limits, "the event"), limits)
    if net is not None:
        found.check(net)
    return found


def as_event(
    value: Any, net: Network, law: Law | None = None, *, names: Any = None, limits: Limits = DEFAULT_LIMITS
) -> Event:
    """An `Event` from text, an `Event`, or a pair `(G, g)` meaning `G y <= g`; checked against `net`."""
    if isinstance(value, str):
        return event(value, net.n_inputs, net.n_outputs, net=net, law=law, names=names, limits=limits)
    if isinstance(value, Event):
        found = value
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        found = Event.below(value[0], value[1], net.n_inputs)
    else:
        raise InputError(
            "event must be text such as 'y[0] > y[1]', an Event (reluscope.vnnlib reads one from a file), or a pair "
            f"(G, g) meaning G y <= g, got {describe(value)}"
        )
    found.check(net)
    return found


def parse(text: str, names: Names, limits: Limits) -> Formula:
    """The formula of an event: a tree of `Row` and `Join`."""
    if not isinstance(text, str):
        raise InputError(f"event must be text such as 'y[0] > y[1]', got {describe(text)}")
    if len(text) > _MOST_CHARACTERS:
        raise InputLimitError(f"the event has {len(text):,} characters, more than the limit of {_MOST_CHARACTERS:,}")
    parsed: Formula = _Parser(text, names, limits).formula()
    return parsed


def input_names(names: Any, size: int, what: str) -> dict[str, int]:
    """`{name: index}` from a list of names or such a mapping; None for none."""
    if names is None:
        return {}
    mapping = isinstance(names, Mapping)
    pairs = list(names.items()) if mapping else [(n, i) for i, n in enumerate(several(names, what, "names"))]
    if not mapping and len(pairs) != size:
        raise InputError(f"{what} must have {count(size, 'name')}, one each, got {len(pairs)}; a mapping names some")
    out: dict[str, int] = {}
    for name, index in pairs:
        if not isinstance(name, str) or not name or isinstance(index, bool) or not isinstance(index, int):
            raise InputError(f"{what} must be a list of names or a mapping of names to indices, got {describe(names)}")
        if name in out or not 0 <= index < size:
            problem = "comes twice" if name in out else f"stands for number {index}, but there are {size}"
            raise InputError(f"{what}: {name!r} {problem}")
        out[name] = index
    return out


class _Parser:
    """Precedence climbing over a list of tokens: one call per level of nesting."""

    def __init__(self, text: str, names: Names, limits: Limits) -> None:
        self.text, self.names, self.limits = text, names, limits
        self.rows = 0
        self.tokens = self._tokens()
        self.said: list[_Token] = []  # units of the numbers in the comparison that is being read
        self.at = 0
        self.depth = 0

    def formula(self) -> Any:
        if self.tokens[0].kind == "end":
            raise InputError("the event is empty; write something like 'y[0] > 0.5'")
        found = self.expression(0)
        token = self.tokens[self.at]
        if token.kind != "end":
            self.fail(f"{token.text!r} is not expected here; join conditions with 'and' or 'or'", token.start)
        return self.as_formula(found, self.tokens[0])

    # -- tokens --

    def _tokens(self) -> list[_Token]:
        found = []
        units = None if self.names.words is None else self.names.words.unit
        position = 0
        while True:
            match = _TOKEN.match(self.text, position)
            assert match is not None and match.lastindex is not None
            kind = match.lastindex
            value, start = match.group(kind), match.start(kind)
            position = match.end()
            if kind == 1:
                found.append(_Token("number", value, start))
                unit = None if units is None else units.match(self.text, position)
                if unit is not None:
                    found.append(_Token("unit", unit.group(1), unit.start(1)))
                    position = unit.end()
            elif kind == 2:
                word = value.lower()
                found.append(_Token("sign", word, start) if word in _WORDS else _Token("name", value, start))
            elif kind in (3, 4):
                found.append(_Token("quoted", value, start - 1))
            elif kind == 5:
                found.append(_Token("sign", _SIGNS.get(value, value), start))
            elif kind == 6:
                found.append(_Token("end", "the end", start))
                break
            else:
                self.fail(f"character {value!r} is not expected here", start)
        return found

    def fail(self, message: str, position: int, error: type[InputError] = InputError) -> NoReturn:
        """Raise with a caret under the place."""
        message = message if len(message) <= 300 else f"{message[:297]}..."
        start = self.text.rfind("\n", 0, position) + 1
        stop = self.text.find("\n", position)
        line = self.text[start : stop if stop >= 0 else len(self.text)].replace("\t", " ").replace("\r", " ")
        column = position - start
        if len(line) > _SHOWN:
            cut = max(0, column - _SHOWN // 2)
            line, column = ("..." if cut else "") + line[cut : cut + _SHOWN], column - cut + (3 if cut else 0)
        raise error(f"event: {message}\n    {line}\n    {' ' * column}^")

    def next(self) -> _Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def take(self, sign: str) -> bool:
        token = self.tokens[self.at]
        if token.kind == "sign" and token.text == sign:
            self.at += 1
            return True
        return False

    def expect(self, sign: str, after: str) -> None:
        token = self.tokens[self.at]
        if not self.take(sign):
            got = token.text if token.kind == "end" else repr(token.text)
            self.fail(f"expected {sign!r} {after}, got {got}", token.start)

    # -- grammar --

    def expression(self, power: int) -> Any:
        self.depth += 1
        self.limits.check_time("the event")
        token = self.tokens[self.at]
        if self.depth > _DEPTH:
            self.fail(f"nested more than {_DEPTH} levels deep", token.start, InputLimitError)
        left = self.prefix()
        while True:
            sign = self.tokens[self.at]
            if sign.kind != "sign":
                break
            op = sign.text
            if op == "not" and self._follows_in():  # "argmax not in {...}"
                if power >= _POWER["in"]:
                    break
                self.at += 2
                left = self.member(left, sign, positive=False)
                continue
            strength = _POWER.get(op)
            if strength is None or strength <= power:
                break
            if op in _COMPARISONS:
                left = self.comparisons(left, token)
                continue
            self.at += 1
            if op == "in":
                left = self.member(left, sign, positive=True)
                continue
            start = self.tokens[self.at]
            right = self.expression(strength)
            if op in ("and", "or"):
                left = _joined(op, self.as_formula(left, token), self.as_formula(right, start))
            else:
                left = self.combined(op, left, right, sign)
        self.depth -= 1
        return left

    def prefix(self) -> Any:
        """`not ...`, `- ...`, or an atom; a run of signs is a loop, not a recursion."""
        token = self.tokens[self.at]
        if self.take("not"):
            odd = True
            while self.take("not"):
                odd = not odd
            start = self.tokens[self.at]
            inside = self.as_formula(self.expression(_NOT), start)
            return Join("not", (inside,)) if odd else inside
        if token.kind == "sign" and token.text in "+-":
            negative = False
            while self.tokens[self.at].kind == "sign" and self.tokens[self.at].text in ("+", "-"):
                negative ^= self.next().text == "-"
            start = self.tokens[self.at]
            value = self.expression(_MINUS)
            if isinstance(value, _Largest):
                return value._replace(sign=-value.sign) if negative else value
            linear = self.as_linear(value, start)
            return _scaled(linear, Fraction(-1)) if negative else linear
        return self.atom()

    def atom(self) -> Any:
        token = self.next()
        if token.kind == "number":
            if self.tokens[self.at].kind == "unit":
                self.said.append(self.next())
            return Linear({}, self.number(token))
        if token.kind == "sign" and token.text == "(":
            inside = self.expression(0)
            self.expect(")", "to close the parenthesis")
            return inside
        if self.bar(token):
            return self.absolute(token)
        if token.kind == "name":
            return self.named(token)
        if token.kind == "quoted":
            return self.lookup(token)
        if token.kind == "end":
            self.fail("the event ends here, something is missing", token.start)
        # As it is written: & and && both mean "and".
        written = (s for s in sorted(_SIGNS, key=len, reverse=True) if self.text.startswith(s, token.start))
        return self.fail(f"{next(written, token.text)!r} is not expected here", token.start)

    def named(self, token: _Token) -> Any:
        name = token.text
        part = self.part(token)
        if part is not None and not name.endswith("'") and name in self.names.parts:  # what follows the dot
            token = self.next()
            name = token.text
            if token.kind != "name" or not (name in (*_OF_PART, "argmax", "argmin") or _NUMBERED.fullmatch(name)):
                self.fail(f"after {part.name}. stands one of x[i], y[j], J[j,i], unit[l,i]", token.start)
        name = name.removesuffix("'")
        opening = self.tokens[self.at]
        bracket = opening.kind == "sign" and opening.text == "["
        call = opening.kind == "sign" and opening.text == "("
        if bracket and name in ("x", "y", "X", "Y"):
            return _variable(name.lower(), self.one_index(token, name.lower(), self.span(token, name.lower(), part)))
        if bracket and name == "J":
            outputs, inputs = self.span(token, "y", part), self.span(token, "x", part)
            j, i = self.two(token, len(outputs), len(inputs), "output", "input")
            return _variable("J", outputs.start + j, inputs.start + i)
        if bracket and name == "unit":
            return self.unit(token, part)
        if call and name in NORMS:
            if self.names.parts:
                self.fail(f"{name}(J) is known for one network, not for the parts of several", token.start)
            self.next()
            inside = self.next()
            if inside.text != "J":
                self.fail(f"{name}(J) is the norm of the Jacobian; nothing else goes in here", inside.start)
            self.expect(")", f"after {name}(J")
            return _variable("norm", NORMS[name])
        if call and name in ("max", "min", "abs"):
            return self.largest(token)
        if call and name == "P" and self.names.words is not None and self.names.words.schema.classes:
            return self.probability()
        if part is None and (name in self.names.inputs or name in self.names.outputs or self.spoken(name) is not None):
            return self.lookup(token)
        if name in ("argmax", "argmin"):
            return self.arg(token, name == "argmin", part)
        if name in ("x", "y"):
            span = self.span(token, name, part)
            self.hold(len(span))
            return _Vector(name, tuple(_variable(name, i) for i in span))
        found = _NUMBERED.fullmatch(name)
        if found:
            span = self.span(token, found[1], part)
            return _variable(found[1], span[self.in_range(int(found[2]), len(span), _NOUNS[found[1]], token.start)])
        found = re.fullmatch(r"([XY])_([0-9]{1,9})", name)
        if found:
            letter = found[1].lower()
            return _variable(letter, self.in_range(int(found[2]), self.size(letter), _NOUNS[letter], token.start))
        if name in ("true", "false"):
            return Row((), 0.0 if name == "true" else -1.0, False)
        if name in ("J", "unit"):
            form = "J[output,input]" if name == "J" else "unit[layer,unit]"
            self.fail(f"write {form}", token.start)
        spoken = [] if self.names.words is None else self.names.words.spoken
        whose = [f"{p}.y[i]" for p in self.names.parts if p not in ("", "'")]
        words = ["x[i]", "y[i]", "argmax", "argmin", "J[j,i]", "norm(J)", "unit[l,i]", *self.names.inputs, *spoken]
        hint = did_you_mean(name, [*words, "max", "min", "abs"])
        known = listed([*whose, *words], 16)
        return self.fail(f"{name!r} is not known{hint or ';'} an event speaks of {known}", token.start)

    def part(self, token: _Token) -> Part | None:
        """The part that `f.` or a prime speaks of; in a pair what has no prime is of the first."""
        parts, dot = self.names.parts, self.tokens[self.at]
        if token.text.endswith("'"):
            if "'" not in parts:
                self.fail(
                    f"{token.text} speaks of the second of two inputs: the law must be one of the pair, with twice as "
                    "many inputs as the network",
                    token.start,
                )
            return parts["'"]
        if dot.kind == "sign" and dot.text == ".":
            if token.text not in parts:
                known = ", ".join(p for p in parts if p not in ("", "'")) or "none: give several networks by name"
                self.fail(f"no network is called {token.text!r}; known are {known}", token.start)
            self.next()
            return parts[token.text]
        own = token.text in (*_OF_PART, "argmax", "argmin") or _NUMBERED.fullmatch(token.text)
        return parts.get("") if own else None

    def span(self, token: _Token, letter: str, part: Part | None) -> range:
        """Where the inputs or outputs are that a name speaks of."""
        if part is not None:
            return part.inputs if letter == "x" else part.outputs
        parts = list(self.names.parts.values())
        if parts and (letter == "y" or len({p.inputs for p in parts}) > 1):
            name, word = token.text.lower(), token.text in ("argmax", "argmin")
            whose = ", ".join(f"{name} {p.name}" if word else f"{p.name}.{name}" for p in parts[:4])
            self.fail(f"say whose: {whose}", token.start)
        return range(self.size(letter))

    def lookup(self, token: _Token) -> Any:
        if token.text in self.names.inputs:
            return _variable("x", self.names.inputs[token.text])
        if token.text in self.names.outputs:
            return _variable("y", self.names.outputs[token.text])
        found = self.spoken(token.text)
        if found is None:
            self.fail(f"no input or output is called {token.text!r}", token.start)
        if isinstance(found, Named):
            return Linear({found.variable: found.slope}, found.offset)
        return found

    def spoken(self, name: str) -> Named | Scaled | Chosen | None:
        """What a name of the schema stands for."""
        return None if self.names.words is None else self.names.words.meaning(name)

    def probability(self) -> Scaled:
        """`P(label)`: the probability of a class."""
        words = self.names.words
        assert words is not None
        self.next()
        start = self.tokens[self.at]
        index = self.label(list(words.schema.classes), "class")
        self.expect(")", "after the class")
        try:
            return words.probability(index)
        except InputError as error:
            return self.fail(str(error), start.start)

    def label(self, labels: list[Any], what: str) -> int:
        """The number of the label that is written here; one of several words needs no quotes."""
        token = self.tokens[self.at]
        if token.kind == "quoted":
            self.at += 1
            found = next((i for i, v in enumerate(labels) if str(v) == token.text), -1)
        else:
            found, end = spelled(self.text, token.start, labels)
            while found >= 0 and self.tokens[self.at].kind != "end" and self.tokens[self.at].start < end:
                self.at += 1
        if found < 0:
            shown = ", ".join(repr(str(v)) for v in labels[:12]) + (", ..." if len(labels) > 12 else "")
            self.fail(f"expected a {what}: {shown}", token.start)
        return found

    def size(self, letter: str) -> int:
        return self.names.n_inputs if letter == "x" else self.names.n_outputs

    def one_index(self, token: _Token, letter: str, span: range) -> int:
        self.next()
        inside = self.tokens[self.at]
        if inside.kind == "quoted":
            self.next()
            table = self.names.inputs if letter == "x" else self.names.outputs
            if inside.text not in table and self.names.words is not None:
                table = self.names.words.places(letter)
            if inside.text not in table:
                self.fail(f"no {_NOUNS[letter]} is called {inside.text!r}", inside.start)
            index = table[inside.text]
        else:
            index = self.in_range(self.whole("an index"), len(span), _NOUNS[letter], inside.start)
        self.expect("]", f"after {token.text.lower()}[{index}")
        return span.start + index

    def two(self, token: _Token, first: int, second: int, *what: str) -> tuple[int, int]:
        self.next()
        start = self.tokens[self.at].start
        a = self.in_range(self.whole(f"the {what[0]}'s index"), first, what[0], start)
        self.expect(",", f"between {what[0]} and {what[1]}")
        start = self.tokens[self.at].start
        b = self.in_range(self.whole(f"the {what[1]}'s index"), second, what[1], start)
        self.expect("]", f"after {token.text}[{a},{b}")
        return a, b

    def unit(self, token: _Token, part: Part | None) -> Any:
        if part is None and self.names.parts:
            self.fail(f"say whose: {', '.join(f'{p}.unit' for p in list(self.names.parts)[:4])}", token.start)
        layer, unit = self.two(token, 1 << 31, 1 << 31, "layer", "unit")
        if part is not None:
            layer = self.in_range(layer, len(part.units), "hidden layer", token.start)
            unit = part.units[layer].start + self.in_range(unit, len(part.units[layer]), "unit", token.start)
        state = _variable("unit", layer, unit)
        word = self.tokens[self.at]
        if word.kind == "name" and word.text.lower() == "is":
            self.next()
            word = self.tokens[self.at]
        if word.kind == "name" and word.text.lower() in ("on", "off"):
            self.next()
            half = Linear({}, Fraction(1, 2))
            return _compared(">" if word.text.lower() == "on" else "<", state, half)
        return state

    def arg(self, token: _Token, smallest: bool, part: Part | None) -> Any:
        word = self.tokens[self.at]
        if word.kind == "name" and word.text in self.names.parts:  # "argmax f"
            part = self.names.parts[self.next().text]
        outputs = self.span(token, "y", part)
        word = self.tokens[self.at]
        if word.kind == "name" and word.text == "at":
            self.next()
            where = self.next()
            if where.text != "mean":
                self.fail(f"only '{token.text} at mean' is known, the law's mean", where.start)
            if self.names.at_mean is None:
                self.fail(f"'{token.text} at mean' needs the network and the law", token.start)
            return Linear({}, Fraction(self.names.at_mean(smallest, outputs)))
        return _Arg(smallest, outputs)

    def bar(self, token: _Token) -> bool:
        """Whether a token is a single upright bar: "or" between conditions, else one end of an absolute value."""
        at = token.start
        return token.kind == "sign" and self.text[at : at + 1] == "|" and self.text[at : at + 2] != "||"

    def absolute(self, token: _Token) -> _Largest:
        """`|...|`, after its first bar."""
        start = self.tokens[self.at]
        value = self.expression(_POWER["<"])
        if not self.bar(self.next()):
            self.fail("expected a second '|' to close the absolute value", token.start)
        return self.either_sign(value.parts if isinstance(value, _Vector) else [self.as_linear(value, start)])

    def either_sign(self, parts: Sequence[Linear]) -> _Largest:
        """The absolute values of some expressions."""
        self.hold(len(parts))
        both = [p for part in parts for p in (part, _scaled(part, Fraction(-1)))]
        return _Largest(tuple(both), 1, apart=len(parts) > 1)

    def largest(self, token: _Token) -> Any:
        self.next()
        parts: list[Linear] = []
        several = token.text != "abs"
        while True:
            start = self.tokens[self.at]
            value = self.expression(0)
            if isinstance(value, _Vector):
                self.hold(len(value.parts))
                parts += value.parts
            elif isinstance(value, _Largest) and value.sign == (-1 if token.text == "min" else 1) and several:
                # max(abs(a), b) is max(a, -a, b); the parts of a minimum are stored with the other sign
                parts += value.parts if value.sign > 0 else [_scaled(p, Fraction(-1)) for p in value.parts]
            else:
                parts.append(self.as_linear(value, start))
            if not self.take(","):
                break
        self.expect(")", f"to close {token.text}(")
        if token.text == "abs":
            if not isinstance(value, _Vector) and len(parts) != 1:
                self.fail("abs takes one expression", token.start)
            return self.either_sign(parts)
        if token.text == "min":
            return _Largest(tuple(_scaled(p, Fraction(-1)) for p in parts), -1)
        return _Largest(tuple(parts), 1)

    # -- comparisons --

    def comparisons(self, left: Any, token: _Token) -> Any:
        """`a < b <= c`: every pair must hold."""
        rows: Any = None
        while self.tokens[self.at].kind == "sign" and self.tokens[self.at].text in _COMPARISONS:
            sign = self.next()
            start = self.tokens[self.at]
            if isinstance(left, Chosen):
                right, here = left, self.chosen(sign, left)
            else:
                right = self.expression(_POWER["<"])
                here = self.compared(sign, left, right, token, start)
            self.said.clear()
            rows = here if rows is None else _joined("and", rows, here)
            left, token = right, start
        return rows

    def chosen(self, sign: _Token, left: Chosen) -> Any:
        """`SEX == female`, `advisory != strong left`."""
        if sign.text not in ("==", "!="):
            self.fail(f"{left.name} is compared with ==, != and in", sign.start)
        start = self.tokens[self.at]
        index = self.label(list(left.labels), left.what)
        return self.is_chosen(left, index, sign.text == "==", start)

    def is_chosen(self, left: Chosen, index: int, positive: bool, start: _Token) -> Any:
        words = self.names.words
        assert words is not None
        if left.what == "level":
            try:
                limits = words.level(left.name, index)
            except InputError as error:
                self.fail(str(error), start.start)
            self.hold(len(limits))
            rows = [_compared(op, _variable("x", i), Linear({}, Fraction(t))) for i, op, t in limits]
            formula: Any = rows[0] if len(rows) == 1 else Join("and", tuple(rows))
            return formula if positive else Join("not", (formula,))
        rule, limit = words.schema.rule, words.schema.threshold()
        if limit is None:
            return self.is_class(_Arg(rule == "smallest", range(self.names.n_outputs)), index, positive=positive)
        if not np.isfinite(limit):
            return Row((), 0.0 if (index == int(limit < 0)) == positive else -1.0, False)
        above = _compared(">", _variable("y", 0), Linear({}, Fraction(limit)))
        return above if (index == 1) == positive else Join("not", (above,))

    def scaled(self, op: str, left: Scaled, right: Any, sign: _Token, start: _Token) -> Any:
        """A probability compared with a number: the limit moves to the network's own output."""
        words = self.names.words
        assert words is not None
        if op in ("==", "!="):
            self.fail(f"{left.name} is compared with <, <=, > and >=", sign.start)
        if isinstance(right, Scaled):
            self.fail("compare the outputs themselves, as in y[0] > y[1], or argmax", start.start)
        value = self.as_linear(right, start)
        if value.terms:
            self.fail(f"{left.name} is compared with a number", start.start)
        try:
            found = words.limit(left, op, value.constant)
        except InputError as error:
            self.fail(str(error), sign.start)
        if isinstance(found, bool):
            return Row((), 0.0 if found else -1.0, False)
        terms, raw, t = found
        return _compared(raw, Linear({("y", i): a for i, a in terms.items()}, Fraction(0)), Linear({}, t))

    def check_units(self, a: Linear, b: Linear) -> None:
        """A number with a unit stands beside a variable in that unit."""
        words = self.names.words
        if not self.said or words is None:
            return
        units = {words.unit_of(v) for v in (*a.terms, *b.terms)}
        for token in self.said:
            if token.text not in units:
                there = " and ".join(sorted(u or "no unit" for u in units)) or "no unit"
                self.fail(f"{token.text} does not fit: this is in {there}", token.start)

    def compared(self, sign: _Token, left: Any, right: Any, token: _Token, start: _Token) -> Any:
        op = sign.text
        if isinstance(right, Scaled) and not isinstance(left, Scaled):
            left, right, token, start, op = right, left, start, token, _FLIPPED[op]
        if isinstance(left, Scaled):
            return self.scaled(op, left, right, sign, start)
        if isinstance(right, (_Arg, _Largest)) and not isinstance(left, (_Arg, _Largest)):
            left, right, token, start, op = right, left, start, token, _FLIPPED[op]
        if isinstance(left, _Arg):
            if op not in ("==", "!="):
                self.fail("argmax and argmin are compared with ==, != and in", sign.start)
            if isinstance(right, _Arg):
                return self.same_class(left, right, start, positive=op == "==")
            index = self.class_number(left, self.as_linear(right, start), start)
            return self.is_class(left, index, positive=op == "==")
        if isinstance(left, _Largest):
            if left.apart:
                self.fail("abs of several numbers: write max(abs(...)) or min(abs(...)), or say which", token.start)
            return self.largest_compared(op, left, right, sign, start)
        a, b = self.as_linear(left, token), self.as_linear(right, start)
        self.check_units(a, b)
        try:
            return _compared(op, a, b)
        except InputError as error:
            return self.fail(str(error), sign.start)

    def largest_compared(self, op: str, left: _Largest, right: Any, sign: _Token, start: _Token) -> Any:
        """`s max(a, b) <= r` is `a <= s r` for all parts (s = 1), or for some after flipping (s = -1)."""
        other = _scaled(self.as_linear(right, start), Fraction(left.sign))
        if left.sign < 0:
            op = _FLIPPED[op]
        if op in ("==", "!="):
            both = _joined("and", self._parts("<=", left, other, sign), self._parts(">=", left, other, sign))
            return both if op == "==" else Join("not", (both,))
        return self._parts(op, left, other, sign)

    def _parts(self, op: str, left: _Largest, other: Linear, sign: _Token) -> Any:
        self.hold(len(left.parts) * (1 + len(other.terms)))
        try:
            rows = tuple(_compared(op, part, other) for part in left.parts)
        except InputError as error:
            self.fail(str(error), sign.start)
        return rows[0] if len(rows) == 1 else Join("and" if op[0] == "<" else "or", rows)

    def member(self, left: Any, sign: _Token, *, positive: bool) -> Any:
        """`argmax in {...}`: one of the classes; `not in`: one of the others."""
        if not isinstance(left, (_Arg, Chosen)):
            self.fail("'in' asks whether argmax or a category is in a set, as in 'argmax in {1, 2}'", sign.start)
        opening = self.next()
        closing = {"{": "}", "[": "]", "(": ")"}.get(opening.text)
        if closing is None:
            self.fail("expected a set such as {1, 2}", opening.start)
        if isinstance(left, Chosen):
            found = []
            while True:
                start = self.tokens[self.at]
                found.append(self.is_chosen(left, self.label(list(left.labels), left.what), True, start))
                if not self.take(","):
                    break
            self.expect(closing, "to close the set")
            any_ = found[0] if len(found) == 1 else Join("or", tuple(found))
            return any_ if positive else Join("not", (any_,))
        members = set()
        while True:
            start = self.tokens[self.at]
            value = self.as_linear(self.expression(_POWER["in"]), start)
            members.add(self.class_number(left, value, start))
            if not self.take(","):
                break
        self.expect(closing, "to close the set")
        classes = [k for k in range(len(left.outputs)) if (k in members) == positive]
        if len(classes) + 1 == len(left.outputs):  # all but one: a row for each of the others is enough
            return self.is_class(left, next(k for k in range(len(classes) + 1) if k not in classes), positive=False)
        parts = tuple(self.is_class(left, k, positive=True) for k in classes)
        if len(classes) == len(left.outputs):
            return Row((), 0.0, False)
        return parts[0] if len(parts) == 1 else Join("or", parts) if parts else Row((), -1.0, False)

    def _follows_in(self) -> bool:
        following = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None
        return following is not None and following.kind == "sign" and following.text == "in"

    def class_number(self, arg: _Arg, value: Linear, start: _Token) -> int:
        if value.terms or value.constant.denominator != 1:
            self.fail("expected the number of an output", start.start)
        return self.in_range(int(value.constant), len(arg.outputs), "output", start.start)

    def is_class(self, arg: _Arg, index: int, *, positive: bool) -> Any:
        """The first largest (smallest) output is number `index`: earlier ones are beaten, later ones at least tied."""
        self.hold(len(arg.outputs))
        rows = []
        own = _variable("y", arg.outputs.start + index)
        for j in range(len(arg.outputs)):
            if j != index:
                op = ">" if j < index else ">="
                other = _variable("y", arg.outputs.start + j)
                rows.append(_compared(_FLIPPED[op] if arg.smallest else op, own, other))
        formula = rows[0] if len(rows) == 1 else Join("and", tuple(rows)) if rows else Row((), 0.0, False)
        return formula if positive else Join("not", (formula,))

    def same_class(self, left: _Arg, right: _Arg, start: _Token, *, positive: bool) -> Any:
        """Whether two networks decide alike: for some class both choose it, or (not) only the first does."""
        if len(left.outputs) != len(right.outputs):
            self.fail(
                f"both sides must have equally many outputs, got {len(left.outputs)} and {len(right.outputs)}",
                start.start,
            )
        parts = tuple(
            Join("and", (self.is_class(left, k, positive=True), self.is_class(right, k, positive=positive)))
            for k in range(len(left.outputs))
        )
        return parts[0] if len(parts) == 1 else Join("or", parts)

    # -- arithmetic --

    def combined(self, op: str, left: Any, right: Any, sign: _Token) -> Any:
        if op in "+-" and isinstance(left, _Vector) and isinstance(right, _Vector):
            if len(left.parts) != len(right.parts):
                sizes = f"{len(left.parts)} and {len(right.parts)}"
                self.fail(f"both sides must have equally many entries, got {sizes}", sign.start)
            both = zip(left.parts, right.parts, strict=True)
            return _Vector(f"{left.letter} {op} {right.letter}", tuple(self.combined(op, a, b, sign) for a, b in both))
        a, b = self.as_linear(left, sign), self.as_linear(right, sign)
        if op in "+-":
            factor = Fraction(1 if op == "+" else -1)
            terms = dict(a.terms)
            for v, c in b.terms.items():
                terms[v] = self.bounded(terms.get(v, Fraction(0)) + factor * c, sign)
            return Linear(terms, self.bounded(a.constant + factor * b.constant, sign))
        if op == "*":
            if a.terms and b.terms:
                self.fail("a product of two variables is not linear; events are made of linear conditions", sign.start)
            a, b = (a, b) if not b.terms else (b, a)
            number = b.constant
        else:
            if b.terms or not b.constant:
                self.fail("division is by a non-zero number only", sign.start)
            number = 1 / b.constant
        return Linear(
            {v: self.bounded(number * c, sign) for v, c in a.terms.items()}, self.bounded(number * a.constant, sign)
        )

    def hold(self, rows: int) -> None:
        """Count rows before they are made."""
        self.rows += rows
        self.limits.check("elements", _NUMBERS_PER_ROW * self.rows, f"the event, with {self.rows:,} conditions,")

    def bounded(self, value: Fraction, sign: _Token) -> Fraction:
        self.limits.check_time("the event")
        if value.numerator.bit_length() + value.denominator.bit_length() > _CONSTANT_BITS:
            self.fail("the numbers here combine to one too long to compute exactly", sign.start, InputLimitError)
        return value

    def number(self, token: _Token) -> Fraction:
        text = token.text
        if len(text) > _NUMBER_CHARACTERS:
            self.fail(f"a number of {len(text):,} characters", token.start, InputLimitError)
        value = float(text)
        if value == float("inf"):
            self.fail(f"{text} is too large for a 64-bit float", token.start)
        # A number that rounds to zero may have an exponent that would not fit in memory when written out.
        return Fraction(text) if value else Fraction(0)

    def whole(self, what: str) -> int:
        token = self.next()
        if token.kind != "number" or not token.text.isdigit() or len(token.text) > 9:
            self.fail(f"expected {what}, a whole number", token.start)
        return int(token.text)

    def in_range(self, index: int, size: int, what: str, position: int) -> int:
        if not 0 <= index < size:
            there = f"one {what}, number 0" if size == 1 else f"{size} {what}s, numbered from 0 to {size - 1}"
            self.fail(f"{what} {index} does not exist: there {'is' if size == 1 else 'are'} {there}", position)
        return index

    def as_linear(self, value: Any, token: _Token) -> Linear:
        if isinstance(value, Linear):
            return value
        if isinstance(value, _Vector):
            if len(value.parts) == 1:
                return value.parts[0]
            which = f"say which, as in {value.letter[:1]}[0]"
            self.fail(f"{value.letter} has {len(value.parts)} entries; {which}", token.start)
        if isinstance(value, _Largest):
            self.fail("max, min and abs are compared directly, as in max(y[0], y[1]) <= 2", token.start)
        if isinstance(value, _Arg):
            self.fail("argmax and argmin are only compared, with ==, != and in", token.start)
        if isinstance(value, Chosen):
            self.fail(f"{value.name} is a {value.what}: write it on the left of ==, != or in", token.start)
        if isinstance(value, Scaled):
            self.fail(f"{value.name} is a probability: it is only compared with a number", token.start)
        return self.fail("a condition stands where a number is expected; mind the parentheses", token.start)

    def as_formula(self, value: Any, token: _Token) -> Any:
        if isinstance(value, (Row, Join)):
            return value
        return self.fail("a condition is expected here, such as y[0] > 0", token.start)


def _variable(*variable: Any) -> Linear:
    return Linear({variable: Fraction(1)}, Fraction(0))


def _scaled(value: Linear, factor: Fraction) -> Linear:
    return Linear({v: factor * a for v, a in value.terms.items()}, factor * value.constant)


def _joined(op: str, left: Any, right: Any) -> Join:
    """One flat node for a chain of the same connective, so that long texts make shallow trees."""
    parts: Sequence[Any] = left.parts if isinstance(left, Join) and left.op == op else (left,)
    return Join(op, (*parts, right))


def _compared(op: str, left: Linear, right: Linear) -> Row | Join:
    if op == "!=":
        return Join("not", (_compared("==", left, right),))
    if op == "==":
        return Join("and", (_compared("<=", left, right), _compared(">=", left, right)))
    sign = Fraction(1 if op[0] == "<" else -1)
    terms = {v: sign * a for v, a in left.terms.items()}
    for v, a in right.terms.items():
        terms[v] = terms.get(v, Fraction(0)) - sign * a
    return rounded_row(terms, sign * (right.constant - left.constant), len(op) == 1)
