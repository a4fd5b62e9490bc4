"""Events: sets of inputs and outputs (and of affine functions) whose probability one may ask for.

An event is a union of cases, each a conjunction of linear rows,

    event = union over cases i of { lower_i <= x <= upper_i,   A_i x + G_i y + F_i f <= g_i },

single rows strict. `f` are features of the affine function in force at x: entries of the Jacobian, its norms, the
states of units. They are constant on each cell of the network, so on a cell every case is a polytope. Without features
an event is a `reluscope.formats.vnnlib.Property`.

`event` reads text (see `docs/events.md` for the language); `as_event` takes whatever a user may hand over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, integer, real_array
from reluscope.errors import InputError
from reluscope.events.text import Join, Names, Row, Variable, input_names, parse
from reluscope.formats.vnnlib import Case, Property
from reluscope.limits import DEFAULT_LIMITS, Limits

__all__ = ["Event", "FunctionCase", "as_event", "event"]

Conjunction = tuple[Row, ...]

_MOST_ABSORBED = 1000
"""Up to here a union of conjunctions is searched for ones that another one contains (quadratic)."""

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FunctionCase:
    """One polyhedron of an event: the rows of `case` with the coefficients `F` (rows, features) added.

    Row k reads `case.A[k] x + case.G[k] y + F[k] f <= case.g[k]`.
    """

    case: Case
    F: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Event:
    """A union of cases over inputs, outputs and features of the affine function; made by `event` or `as_event`.

    `cases` are in order and may overlap; none means that the event can never happen. `features` lists what the columns
    of each `F` stand for: `("J", output, input)`, `("norm", kind)` or `("unit", layer, unit)` (layers from 1).
    Events join with `&`, `|` and `~`.
    """

    text: str
    n_inputs: int
    n_outputs: int
    cases: tuple[FunctionCase, ...]
    features: tuple[Variable, ...] = ()

    @property
    def linear(self) -> bool:
        """Whether the event speaks of inputs and outputs only."""
        return not self.features

    @property
    def reads_inputs(self) -> bool:
        """Whether any row or bound is on an input."""
        return any(
            c.case.reads_inputs.any() or np.isfinite(c.case.lower).any() or np.isfinite(c.case.upper).any()
            for c in self.cases
        )

    @cached_property
    def as_property(self) -> Property:
        """The event as a VNN-LIB property; an `InputError` when it speaks of the function itself."""
        if not self.linear:
            raise InputError(
                f"the event {self.short!r} speaks of the Jacobian or of units; it is not a set of inputs and outputs"
            )
        return Property(self.n_inputs, self.n_outputs, tuple(c.case for c in self.cases), self.short)

    @property
    def short(self) -> str:
        """The text, cut to a line."""
        line = " ".join(self.text.split())
        return line if len(line) <= 60 else f"{line[:57]}..."

    def check(self, net: Any) -> None:
        """Raise `InputError` when the event does not fit the network."""
        if net.n_inputs != self.n_inputs or net.n_outputs != self.n_outputs:
            raise InputError(
                f"the event {self.short!r} speaks of {self.n_inputs} inputs and {self.n_outputs} outputs, "
                f"but the network has {net.n_inputs} and {net.n_outputs}"
            )
        for feature in self.features:
            if feature[0] == "unit":
                _, layer, unit = feature
                if layer > len(net.hidden):
                    raise InputError(f"unit[{layer},{unit}]: the network has {len(net.hidden)} hidden layers")
                if unit >= net.hidden[layer - 1].width:
                    width = net.hidden[layer - 1].width
                    raise InputError(f"unit[{layer},{unit}]: units of layer {layer} go from 0 to {width - 1}")

    def feature_values(self, net: Any, pattern: npt.ArrayLike) -> FloatArray:
        """The features on the cells of patterns (n, units), shape (n, features)."""
        rows = np.atleast_2d(np.asarray(pattern))
        out = np.zeros((len(rows), len(self.features)))
        if not self.features:
            return out
        self.check(net)
        wants = any(f[0] != "unit" for f in self.features)
        J = net.output_maps(rows)[0] if wants else np.zeros((len(rows), 0, 0))
        for k, feature in enumerate(self.features):
            if feature[0] == "J":
                out[:, k] = J[:, feature[1], feature[2]]
            elif feature[0] == "norm":
                out[:, k] = _norm(J, feature[1])
            else:
                out[:, k] = rows[:, net.offsets[feature[1] - 1] + feature[2]]
        return out

    def holds(self, net: Any, X: npt.ArrayLike) -> Any:
        """Whether the event happens at each row of `X` (n, inputs), in plain float64; a bool for a single input.

        On a boundary between cells the affine function is the one that the network's tie rule selects.
        """
        self.check(net)
        x = real_array(X, "X")
        single = x.ndim == 1
        rows = x.reshape(1, -1) if single else x.reshape(len(x), math.prod(x.shape[1:]))
        found = self._inside(rows, net(rows), self._features_at(net, rows))
        return bool(found[0]) if single else found

    def _features_at(self, net: Any, X: FloatArray) -> FloatArray:
        return self.feature_values(net, net.pattern(X)) if self.features else np.zeros((len(X), 0))

    def _inside(self, X: FloatArray, Y: FloatArray, f: FloatArray) -> BoolArray:
        if self.linear:
            return np.asarray(self.as_property.holds(X, Y)) if self.cases else np.zeros(len(X), dtype=bool)
        found = np.zeros(len(X), dtype=bool)
        for c in self.cases:
            case = c.case
            left = X @ case.A.T + Y @ case.G.T + f @ c.F.T
            met = np.where(case.strict, left < case.g, left <= case.g).all(axis=1)
            found |= met & ((case.lower <= X) & (case.upper >= X)).all(axis=1)
        return found

    # -- new events from these ------------------------------------------------------------------------------------

    def __and__(self, other: Event) -> Event:
        return self._with(other, "and", DEFAULT_LIMITS)

    def __or__(self, other: Event) -> Event:
        return self._with(other, "or", DEFAULT_LIMITS)

    def __invert__(self) -> Event:
        formula = Join("or", tuple(Join("and", c) for c in self._conjunctions))
        parts = _dnf(Join("not", (formula,)), DEFAULT_LIMITS, self.short) if self.cases else [()]
        return _assembled(f"not ({self.text})", self.n_inputs, self.n_outputs, parts, DEFAULT_LIMITS)

    def _with(self, other: Any, op: str, limits: Limits) -> Event:
        if not isinstance(other, Event):
            return NotImplemented
        if (other.n_inputs, other.n_outputs) != (self.n_inputs, self.n_outputs):
            raise InputError(
                f"events join only over the same inputs and outputs, got {self.n_inputs} -> {self.n_outputs} and "
                f"{other.n_inputs} -> {other.n_outputs}"
            )
        mine, others = self._conjunctions, other._conjunctions
        if op == "or":
            parts = [*mine, *others]
        else:
            limits.check("disjuncts", len(mine) * len(others), "the joined event, in disjunctive normal form,")
            parts = [a + b for a, b in product(mine, others)]
        return _assembled(f"({self.text}) {op} ({other.text})", self.n_inputs, self.n_outputs, parts, limits)

    @cached_property
    def _conjunctions(self) -> tuple[Conjunction, ...]:
        """The cases as lists of sparse rows."""
        out = []
        for c in self.cases:
            case, rows = c.case, []
            strict = {(*row.terms, row.rhs) for row in _case_rows(c, self.features) if row.strict}
            for side, sign in ((case.lower, -1.0), (case.upper, 1.0)):
                for i in np.flatnonzero(np.isfinite(side)).tolist():
                    terms = ((("x", i), sign),)
                    if (*terms, sign * float(side[i])) not in strict:
                        rows.append(Row(terms, sign * float(side[i]), False))
            out.append((*rows, *_case_rows(c, self.features)))
        return tuple(out)

    def __repr__(self) -> str:
        n = len(self.cases)
        kind = "never" if not n else f"{n} case{'s' * (n > 1)}"
        function = f", {len(self.features)} of the function" if self.features else ""
        return f"Event({self.short!r}, {kind}{function})"


def event(
    text: str,
    n_inputs: int,
    n_outputs: int,
    *,
    net: Any = None,
    law: Any = None,
    names: Any = None,
    output_names: Any = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Event:
    """Read an event from text, such as `"y[0] > y[1] and y[2] <= 0.3"` or `"argmax != argmax at mean"`.

    Conditions compare linear expressions of `x[i]`, `y[j]`, `J[j,i]` (the derivative of output j by input i),
    `norm(J)` (spectral; also `norm1`, `norminf`, `fro`) and `unit[layer,unit]` (its piece; `on` and `off` follow it),
    with `== != < <= > >=`, chained as in `0 <= x[0] < 1`. `argmax` and `argmin` compare with a number, a set (`in {1,
    2}`) or `argmax at mean` (which needs `net` and `law`); of equal outputs the first counts, as in numpy. `max(...)`,
    `min(...)` and `abs(...)` of linear expressions may stand on one side of a comparison. Conditions join with `and`,
    `or`, `not` and parentheses. `names` and `output_names` (lists, or mappings to indices) give names to use for inputs
    and outputs.

    The text is parsed, never evaluated; constants are exact and rounded once. The disjunctive normal form is counted
    before it is made. Errors point at their place.

    >>> event("0.5 < y[0] <= 1 or y[1] > y[0]", 3, 2)
    Event('0.5 < y[0] <= 1 or y[1] > y[0]', 2 cases)
    """
    n_in, n_out = integer(n_inputs, "n_inputs", low=1), integer(n_outputs, "n_outputs", low=1)

    def at_mean(smallest: bool) -> int:
        y = net(law.mean)
        return int(np.argmin(y) if smallest else np.argmax(y))

    known = net is not None and law is not None
    table = Names(
        n_in,
        n_out,
        input_names(names, n_in, "names"),
        input_names(output_names, n_out, "output_names"),
        at_mean if known else None,
    )
    formula = parse(text, table)
    found = _assembled(text, n_in, n_out, _dnf(formula, limits, "the event"), limits)
    if net is not None:
        found.check(net)
    return found


def as_event(value: Any, net: Any, law: Any = None, *, names: Any = None, limits: Limits = DEFAULT_LIMITS) -> Event:
    """An `Event` from text, an `Event`, a `Property`, or a pair `(G, g)` meaning `G y <= g`; checked against `net`."""
    if isinstance(value, str):
        return event(value, net.n_inputs, net.n_outputs, net=net, law=law, names=names, limits=limits)
    if isinstance(value, Event):
        found = value
    elif isinstance(value, Property):
        cases = tuple(FunctionCase(c, np.zeros((len(c.g), 0))) for c in value.cases)
        found = Event(value.name, value.n_inputs, value.n_outputs, cases)
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        found = _half_spaces(value, net)
    else:
        raise InputError(
            "event must be text such as 'y[0] > y[1]', an Event, a VNN-LIB property (reluscope.vnnlib), or a pair "
            f"(G, g) meaning G y <= g, got {describe(value)}"
        )
    found.check(net)
    return found


def _half_spaces(value: Any, net: Any) -> Event:
    G = np.atleast_2d(real_array(value[0], "G of event", ndim=(1, 2)))
    g = np.atleast_1d(real_array(value[1], "g of event", ndim=(0, 1)))
    if G.shape != (len(g), net.n_outputs):
        raise InputError(
            f"event (G, g) needs G of shape (rows, {net.n_outputs}) and g of shape (rows,), got {G.shape}, {g.shape}"
        )
    n = net.n_inputs
    A = np.broadcast_to(np.zeros(1), (len(g), n))
    case = Case(np.full(n, -np.inf), np.full(n, np.inf), A, G, g, np.zeros(len(g), dtype=bool))
    return Event("G y <= g", n, net.n_outputs, (FunctionCase(case, np.zeros((len(g), 0))),))


def _norm(J: FloatArray, kind: str) -> FloatArray:
    """Norms of a batch of matrices (n, outputs, inputs)."""
    if kind == "spectral":
        return np.asarray(np.linalg.norm(J, 2, axis=(1, 2)))
    if kind == "frobenius":
        return np.asarray(np.sqrt(np.einsum("noi,noi->n", J, J)))
    axis = 1 if kind == "one" else 2
    return np.asarray(np.abs(J).sum(axis=axis).max(axis=1))


# -- formulas to cases ---------------------------------------------------------------------------------------------


def _is_and(node: Join, positive: bool) -> bool:
    return (node.op == "and") == positive


def _dnf(formula: Any, limits: Limits, name: str) -> list[Conjunction]:
    """The formula as a union of conjunctions, without repeated, contradictory and absorbed ones, in order."""

    def made(node: Any, positive: bool) -> list[Conjunction]:
        if isinstance(node, Row):
            row = node if positive else node.negated()
            return [] if row.always is False else [()] if row.always else [(row,)]
        if node.op == "not":
            return made(node.parts[0], not positive)
        if not _is_and(node, positive):
            return _reduced(chain.from_iterable(made(part, positive) for part in node.parts))
        found: list[Conjunction] = [()]
        for part in node.parts:
            more = made(part, positive)
            # The product is counted before it is made.
            limits.check("disjuncts", len(found) * len(more), f"{name}, in disjunctive normal form,")
            size = len(more) * sum(map(len, found)) + len(found) * sum(map(len, more))
            limits.check("tokens", size, f"{name}, in disjunctive normal form,")
            found = _reduced(a + b for a, b in product(found, more)) if len(more) != 1 else [a + more[0] for a in found]
        return _reduced(found)

    found = made(formula, True)
    limits.check("disjuncts", len(found), f"{name}, in disjunctive normal form,")
    return found


def _reduced(conjunctions: Iterable[Conjunction]) -> list[Conjunction]:
    """Conjunctions without repeated rows, without those that hold a row and its opposite, or more than another one."""
    distinct: dict[frozenset[Row], Conjunction] = {}
    opposite: dict[Row, Row] = {}
    for conjunction in conjunctions:
        rows = frozenset(conjunction)
        for row in rows:
            if row not in opposite:
                opposite[row] = row.negated()
        if rows not in distinct and not any(opposite[row] in rows for row in rows):
            distinct[rows] = conjunction if len(rows) == len(conjunction) else tuple(dict.fromkeys(conjunction))
    if not 1 < len(distinct) <= _MOST_ABSORBED:
        return list(distinct.values())
    by_size = sorted(distinct, key=len)
    kept: list[frozenset[Row]] = []
    for rows_of in by_size:
        if not any(smaller <= rows_of for smaller in kept):
            kept.append(rows_of)
    left = set(kept)
    return [conjunction for rows_of, conjunction in distinct.items() if rows_of in left]


def _assembled(text: str, n_inputs: int, n_outputs: int, conjunctions: Sequence[Conjunction], limits: Limits) -> Event:
    """Cases of conjunctions: bounds on single inputs become the box, equal and empty conjunctions are left out."""
    kept: dict[tuple[Row, ...], tuple[dict[int, float], dict[int, float], list[Row]]] = {}
    for conjunction in conjunctions:
        distinct = tuple(dict.fromkeys(conjunction))
        if distinct in kept:
            continue
        split = _split(distinct)
        if split is not None:
            kept[distinct] = split
    total = sum(len(rows) for _, _, rows in kept.values())
    limits.check("elements", (n_inputs + n_outputs) * (total + 2 * len(kept)), "the event, as rows,")
    variables = (v for _, _, rows in kept.values() for row in rows for v, _ in row.terms)
    features = tuple(dict.fromkeys(v for v in variables if v[0] not in "xy"))
    column = {v: k for k, v in enumerate(features)}
    cases = []
    for low, high, rows in kept.values():
        lower, upper = np.full(n_inputs, -np.inf), np.full(n_inputs, np.inf)
        lower[list(low)], upper[list(high)] = list(low.values()), list(high.values())
        A, G, F = (np.zeros((len(rows), n)) for n in (n_inputs, n_outputs, len(features)))
        for k, row in enumerate(rows):
            for variable, a in row.terms:
                if variable in column:
                    F[k, column[variable]] = a
                else:
                    (A if variable[0] == "x" else G)[k, variable[1]] = a
        if not A.any():
            A = np.broadcast_to(np.zeros(1), A.shape)
        g, strict = np.array([row.rhs for row in rows]), np.array([row.strict for row in rows], dtype=bool)
        for array in (lower, upper, A, G, g, strict, F):
            array.setflags(write=False)
        cases.append(FunctionCase(Case(lower, upper, A, G, g, strict), F))
    return Event(text, n_inputs, n_outputs, tuple(cases), features)


def _split(rows: Conjunction) -> tuple[dict[int, float], dict[int, float], list[Row]] | None:
    """Bounds of single inputs (lower, upper) and all other rows; None when the bounds contradict each other."""
    low: dict[int, float] = {}
    high: dict[int, float] = {}
    other: list[Row] = []
    one: dict[Variable, list[Row]] = {}
    for row in rows:
        if len(row.terms) == 1:
            one.setdefault(row.terms[0][0], []).append(row)
        if len(row.terms) != 1 or row.terms[0][0][0] != "x":
            other.append(row)
            continue
        (_, i), a = row.terms[0]
        if a > 0:
            high[i] = min(high.get(i, np.inf), row.rhs)
        else:
            low[i] = max(low.get(i, -np.inf), -row.rhs)
        if row.strict:  # the box is closed
            other.append(row)
    for some in one.values():
        ends = [(row.rhs / row.terms[0][1], row.strict, row.terms[0][1] > 0) for row in some]
        least = max((t for t, _, above in ends if not above), default=-np.inf)
        most = min((t for t, _, above in ends if above), default=np.inf)
        if least > most or (least == most and any(strict and t == least for t, strict, _ in ends)):
            return None
    return low, high, other


def _case_rows(c: FunctionCase, features: tuple[Variable, ...]) -> list[Row]:
    case = c.case
    out = []
    for k in range(len(case.g)):
        terms: list[tuple[Variable, float]] = []
        if case.reads_inputs[k]:
            terms += [(("x", i), float(case.A[k, i])) for i in np.flatnonzero(case.A[k]).tolist()]
        terms += [(("y", j), float(case.G[k, j])) for j in np.flatnonzero(case.G[k]).tolist()]
        terms += [(features[j], float(c.F[k, j])) for j in np.flatnonzero(c.F[k]).tolist()]
        out.append(Row(tuple(terms), float(case.g[k]), bool(case.strict[k])))
    return out
