"""Events: sets of inputs and outputs (and of linear models) whose probability one may ask for.

An event is a union of cases, each a conjunction of linear rows,

    event = union over cases i of { lower_i <= x <= upper_i,   A_i x + G_i y + F_i f <= g_i },

single rows strict. `f` are features of the linear model in force at x: entries of the Jacobian, its norms, the states
of units. They are constant on each region of the network, so on a region every case is a polytope.

`reluscope.event` reads events from text, `reluscope.vnnlib` from property files; `as_event` takes whatever a user may
hand over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, flag, integer, real_array, text
from reluscope._doors import door
from reluscope.errors import InputError, InputTypeError
from reluscope.events.dnf import Bounds, Conjunction, Join, Row, Variable, disjuncts, split
from reluscope.events.relation import Relation, join_declared
from reluscope.limits import DEFAULT_LIMITS, Limits
from reluscope.network import Network, check_network, pattern_rows

BoolArray = npt.NDArray[np.bool_]

_CHUNK_NUMBERS = 1 << 21
"""Numbers in the largest temporary of `Event.contains`."""

_NO_FEATURES = np.zeros((0, 0))


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """One polyhedron of an event: `lower <= x <= upper` and `A x + G y + F f <= g`.

    `lower`, `upper` have shape (inputs,), infinite where there is no bound; `A` (rows, inputs), `G` (rows, outputs),
    `g` and `strict` (rows,), `F` (rows, features; without it there are none). Rows with `strict` hold with `<`. A
    strict bound on one input is both in the box (closed) and a strict row. When no row reads the inputs, `A` is a zero
    array that takes no memory.

    Attributes
    ----------
    lower, upper : (inputs,) arrays
    A : (rows, inputs) array
    G : (rows, outputs) array
    g, strict : (rows,) arrays
    F : (rows, features) array
    """

    lower: FloatArray
    upper: FloatArray
    A: FloatArray
    G: FloatArray
    g: FloatArray
    strict: BoolArray
    F: FloatArray = field(default_factory=lambda: _NO_FEATURES)

    def __post_init__(self) -> None:
        if self.F is _NO_FEATURES:
            object.__setattr__(self, "F", np.zeros((len(self.g), 0)))

    @cached_property
    def reads_inputs(self) -> BoolArray:
        """Which rows have a non-zero coefficient on an input, shape (rows,)."""
        if not any(self.A.strides):  # one number seen from everywhere
            return np.full(len(self.g), bool(self.A.size) and self.A.flat[0] != 0)
        return (self.A != 0).any(axis=1)

    @cached_property
    def inputs_alone(self) -> BoolArray:
        """Which rows read inputs and nothing else, shape (rows,)."""
        return self.reads_inputs & ~(self.G != 0).any(axis=1) & ~self.F.any(axis=1)

    def chosen(self, keep: BoolArray) -> Case:
        """The case with some of its rows only.

        Parameters
        ----------
        keep : (rows,) array of bool

        Returns
        -------
        Case
        """
        if keep.all():
            return self
        A = self.A[keep]
        return Case(self.lower, self.upper, A, self.G[keep], self.g[keep], self.strict[keep], self.F[keep])

    def __repr__(self) -> str:
        bounded = int((np.isfinite(self.lower) & np.isfinite(self.upper)).sum())
        return f"Case({bounded} of {len(self.lower)} inputs bounded, {_count(len(self.g), 'row')})"


@dataclass(frozen=True, eq=False, repr=False)
class Event:
    """A union of cases over inputs, outputs and features of the linear model; made by `event`, `vnnlib` or `as_event`.

    Events join with `&`, `|` and `~`.

    Attributes
    ----------
    text : str
        What it was read from, or the name of its file.
    n_inputs, n_outputs
        Of the networks it fits.
    cases : tuple of Case
        They may overlap; none means that the event can never happen.
    features : tuple
        What the columns of each `F` stand for: `("J", output, input)`, `("norm", kind)` or `("unit", layer, unit)`, all
        counted from 0.
    relation : Relation, optional
        The networks it speaks of, if it was read from a property in VNN-LIB 2.0.
    note : str
        Why it can never happen, or what was left out when it was read.

    Examples
    --------
    >>> from reluscope import event
    >>> event("y[0] > 1", 2, 1) | event("x[0] < 0", 2, 1)
    Event('(y[0] > 1) or (x[0] < 0)', 2 cases)
    """

    text: str
    n_inputs: int
    n_outputs: int
    cases: tuple[Case, ...]
    features: tuple[Variable, ...] = ()
    relation: Relation | None = None
    note: str = ""

    def __post_init__(self) -> None:
        text(self.text, "text")
        text(self.note, "note")
        integer(self.n_inputs, "n_inputs", low=1)
        integer(self.n_outputs, "n_outputs", low=1)
        if self.relation is not None and not isinstance(self.relation, Relation):
            raise InputTypeError(f"relation must be a Relation, got {describe(self.relation)}")
        for name, kind, what in (("cases", Case, "Case records"), ("features", tuple, "features")):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(isinstance(part, kind) for part in value):
                raise InputTypeError(f"{name} must be a tuple of {what}, got {describe(value)}")

    @classmethod
    def below(cls, G: npt.ArrayLike, g: npt.ArrayLike, n_inputs: int, *, strict: bool = False) -> Event:
        """The half-spaces `G y <= g` (or `<`) of the outputs; one row may be given as a vector and a number.

        Parameters
        ----------
        G : (rows, outputs) or (outputs,)
        g : (rows,) or float
        n_inputs : int
        strict : bool

        Returns
        -------
        Event
        """
        n_inputs, strict = integer(n_inputs, "n_inputs", low=1), flag(strict, "strict")
        rows = np.atleast_2d(real_array(G, "G of event", ndim=(1, 2)))
        bounds = np.atleast_1d(real_array(g, "g of event", ndim=(0, 1)))
        if len(rows) != len(bounds):
            raise InputError(f"event (G, g): G and g must have equally many rows, got {len(rows)} and {len(bounds)}")
        A = np.broadcast_to(np.zeros(1), (len(bounds), n_inputs))
        sides = np.full(n_inputs, -np.inf), np.full(n_inputs, np.inf)
        case = Case(*sides, A, rows, bounds, np.full(len(bounds), strict))
        return cls(f"G y {'<' if strict else '<='} g", n_inputs, rows.shape[1], (case,))

    @property
    def linear(self) -> bool:
        """Whether the event speaks of inputs and outputs only."""
        return not self.features

    @property
    def short(self) -> str:
        """The text, cut to a line."""
        line = " ".join(self.text.split())
        return line if len(line) <= 60 else f"{line[:57]}..."

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

    def network(self, nets: Any) -> Network:
        """The one network that the event is about, made of the networks that its property declares.

        Parameters
        ----------
        nets : mapping of str to Network, or Network
            The networks by their names in the property. Those that are equal to another one may be left out.

        Returns
        -------
        Network
            For an event that was not read from a property with several networks: `nets` itself.

        Raises
        ------
        InputError
            If a network is missing or does not fit its declaration.
        """
        return check_network(nets) if self.relation is None else join_declared(self.relation, nets)

    def to_vnnlib(self, path: str | PathLike[str], version: int = 2) -> None:
        """Write the event as a VNN-LIB property, which `reluscope.vnnlib` reads back equal.

        Parameters
        ----------
        path : path
        version : {1, 2}

        Raises
        ------
        InputError
            If the event speaks of the Jacobian or of units, or, in version 1, of several networks.
        """
        door("Event.to_vnnlib")(self, path, version)

    def check(self, net: Network) -> None:
        """Raise `InputError` when the event does not fit the network.

        Parameters
        ----------
        net : Network

        Raises
        ------
        InputError
            If it does not.
        """
        check_network(net)
        if net.n_inputs != self.n_inputs or net.n_outputs != self.n_outputs:
            raise InputError(
                f"the event {self.short!r} speaks of {self.n_inputs} inputs and {self.n_outputs} outputs, "
                f"but the network has {net.n_inputs} and {net.n_outputs}"
            )
        for feature in self.features:
            if feature[0] == "unit":
                _, layer, unit = feature
                if layer >= len(net.hidden):
                    raise InputError(
                        f"unit[{layer},{unit}]: the network has {_count(len(net.hidden), 'hidden layer')}, counted "
                        "from 0"
                    )
                if unit >= net.hidden[layer].width:
                    width = net.hidden[layer].width
                    raise InputError(f"unit[{layer},{unit}]: units of layer {layer} go from 0 to {width - 1}")

    def on_inputs_and_outputs(self) -> Event:
        """The event itself; an `InputError` when it speaks of the linear model."""
        if not self.linear:
            raise InputError(
                f"the event {self.short!r} speaks of the Jacobian or of units; it is not a set of inputs and outputs"
            )
        return self

    def feature_values(self, net: Network, pattern: npt.ArrayLike) -> FloatArray:
        """The features on the regions of patterns (n, units), shape (n, features).

        Parameters
        ----------
        net : Network
        pattern : (n, units)

        Returns
        -------
        (n, features) array
        """
        self.check(net)
        rows = np.atleast_2d(pattern_rows(net, pattern))
        out = np.zeros((len(rows), len(self.features)))
        if not self.features:
            return out
        wants = any(f[0] != "unit" for f in self.features)
        J = net.output_maps(rows)[0] if wants else np.zeros((len(rows), 0, 0))
        for k, feature in enumerate(self.features):
            if feature[0] == "J":
                out[:, k] = J[:, feature[1], feature[2]]
            elif feature[0] == "norm":
                out[:, k] = _norm(J, feature[1])
            else:
                out[:, k] = rows[:, net.offsets[feature[1]] + feature[2]]
        return out

    def holds(self, net: Network, X: npt.ArrayLike) -> Any:
        """Whether the event happens at each row of `X` (n, inputs), in plain float64; a bool for a single input.

        On a boundary between regions the linear model is the one that the network's tie rule selects.

        Parameters
        ----------
        net : Network
        X : (n, inputs) or (inputs,)

        Returns
        -------
        (n,) array of bool, or bool
        """
        self.check(net)
        rows, single = _rows(X, "X", self.n_inputs)
        f = self.feature_values(net, net.pattern(rows)) if self.features else np.zeros((len(rows), 0))
        found = self._inside(rows, net(rows), f)
        return bool(found[0]) if single else found

    def contains(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Any:
        """Whether each pair `(x, y)` lies in an event on inputs and outputs, in plain float64 arithmetic.

        `x` (n, inputs) and `y` (n, outputs) give a bool array (n,); one pair gives a bool. Inputs and outputs of any
        other shape with the right number of entries per row are flattened in row-major order.

        Parameters
        ----------
        x : (n, inputs) or one input
        y : (n, outputs) or one output

        Returns
        -------
        (n,) array of bool, or bool
        """
        self.on_inputs_and_outputs()
        X, single = _rows(x, "x", self.n_inputs)
        Y, single_y = _rows(y, "y", self.n_outputs)
        if len(X) != len(Y) or single != single_y:
            raise InputError(f"x and y must have the same number of rows, got {len(X)} and {len(Y)}")
        found = self._inside(X, Y, np.zeros((len(X), 0)))
        return bool(found[0]) if single else found

    def _inside(self, X: FloatArray, Y: FloatArray, f: FloatArray) -> BoolArray:
        found = np.zeros(len(X), dtype=bool)
        for group in self._stacked:
            inside = np.flatnonzero(((group.lower <= X) & (group.upper >= X)).all(axis=1) & ~found)
            step = max(1, _CHUNK_NUMBERS // max(1, len(group.g)))
            for start in range(0, len(inside), step):
                part = inside[start : start + step]
                found[part] = group.holds(X[part], Y[part], f[part])
        return found

    @cached_property
    def _stacked(self) -> tuple[_Group, ...]:
        return tuple(_Group.of(cases) for cases in self.by_box)

    # -- new events from these ------------------------------------------------------------------------------------

    def __and__(self, other: Event) -> Event:
        return self._with(other, "and", DEFAULT_LIMITS)

    def __or__(self, other: Event) -> Event:
        return self._with(other, "or", DEFAULT_LIMITS)

    def __invert__(self) -> Event:
        formula = Join("or", tuple(Join("and", c) for c in self._conjunctions))
        parts = [()] if not self.cases else disjuncts(Join("not", (formula,)), DEFAULT_LIMITS, self.short)
        return assembled(f"not ({self.text})", self.n_inputs, self.n_outputs, parts, DEFAULT_LIMITS)

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
            parts: Iterable[Conjunction] = chain(mine, others)
        else:
            limits.check("disjuncts", len(mine) * len(others), "the joined event, in disjunctive normal form,")
            parts = (a + b for a, b in product(mine, others))
        distinct = list(dict.fromkeys(tuple(dict.fromkeys(part)) for part in parts))
        return assembled(f"({self.text}) {op} ({other.text})", self.n_inputs, self.n_outputs, distinct, limits)

    @cached_property
    def _conjunctions(self) -> tuple[Conjunction, ...]:
        """The cases as lists of sparse rows."""
        out = []
        for case in self.cases:
            own, rows = _case_rows(case, self.features), []
            strict = {(*row.terms, row.rhs) for row in own if row.strict}
            for side, sign in ((case.lower, -1.0), (case.upper, 1.0)):
                for i in np.flatnonzero(np.isfinite(side)).tolist():
                    terms = ((("x", i), sign),)
                    if (*terms, sign * float(side[i])) not in strict:
                        rows.append(Row(terms, sign * float(side[i]), False))
            out.append((*rows, *own))
        return tuple(out)

    def __repr__(self) -> str:
        kind = _count(len(self.cases), "case") if self.cases else "never"
        function = f", {len(self.features)} of the function" if self.features else ""
        return f"Event({self.short!r}, {kind}{function})"


class _Group(NamedTuple):
    """All cases of one box with their rows stacked; `starts` says where each case begins."""

    lower: FloatArray
    upper: FloatArray
    A: FloatArray | None
    G: FloatArray
    F: FloatArray
    g: FloatArray
    strict: BoolArray
    starts: npt.NDArray[np.intp]

    @classmethod
    def of(cls, cases: Sequence[Case]) -> _Group:
        lengths = np.array([len(c.g) for c in cases])
        first = cases[0]
        if (lengths == 0).any():  # a case without rows: the whole box is in the event, whatever the others say
            cases, lengths = [c for c in cases if len(c.g) == 0][:1], np.zeros(1, dtype=int)
        reads = any(c.reads_inputs.any() for c in cases)
        return cls(
            first.lower,
            first.upper,
            np.concatenate([c.A for c in cases]) if reads else None,
            np.concatenate([c.G for c in cases]),
            np.concatenate([c.F for c in cases]),
            np.concatenate([c.g for c in cases]),
            np.concatenate([c.strict for c in cases]),
            np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp),
        )

    def holds(self, X: FloatArray, Y: FloatArray, f: FloatArray) -> BoolArray:
        if len(self.g) == 0:
            return np.ones(len(X), dtype=bool)
        left = Y @ self.G.T
        if self.A is not None:
            left += X @ self.A.T
        if self.F.shape[1]:
            left += f @ self.F.T
        met = np.where(self.strict, left < self.g, left <= self.g)
        return np.asarray(np.logical_and.reduceat(met, self.starts, axis=1).any(axis=1))


def _norm(J: FloatArray, kind: str) -> FloatArray:
    """Norms of a batch of matrices (n, outputs, inputs)."""
    if kind == "spectral":
        return np.asarray(np.linalg.norm(J, 2, axis=(1, 2)))
    if kind == "frobenius":
        return np.asarray(np.sqrt(np.einsum("noi,noi->n", J, J)))
    axis = 1 if kind == "one" else 2
    return np.asarray(np.abs(J).sum(axis=axis).max(axis=1))


# -- conjunctions to cases -----------------------------------------------------------------------------------------


def assembled(
    text: str,
    n_inputs: int,
    n_outputs: int,
    conjunctions: Sequence[Conjunction],
    limits: Limits,
    *,
    shared: Bounds | None = None,
    name: str = "the event",
) -> Event:
    """The event of a union of conjunctions, `shared` being part of each of them.

    Bounds on single inputs become the box; conjunctions whose bounds contradict each other are left out. Cases with
    the same box stand together and share its arrays.
    """
    shared = shared or Bounds({}, {}, [])
    found: dict[tuple[tuple[int, float, float], ...], list[list[Row]]] = {}
    for number, conjunction in enumerate(conjunctions):
        if not number % 64:
            limits.check_time(name)
        parts = split(conjunction, shared)
        if parts is not None:
            found.setdefault(parts[0], []).append(parts[1])
    limits.check("elements", 2 * n_inputs * len(found), f"{name}, as boxes,")
    lower, upper = np.full((len(found), n_inputs), -np.inf), np.full((len(found), n_inputs), np.inf)
    for bounds, array in ((shared.lower, lower), (shared.upper, upper)):
        array[:, list(bounds)] = list(bounds.values())
    for i, changes in enumerate(found):
        for at, low, high in changes:
            lower[i, at], upper[i, at] = low, high
    rows = list(chain.from_iterable(found.values()))
    (A, G, g, strict, F), features = _matrices(rows, n_inputs, n_outputs, limits, name)
    cases: list[Case] = []
    begin = 0
    for low_row, high_row, group in zip(_sealed(lower), _sealed(upper), found.values(), strict=True):
        for conjunct in group:
            part = slice(begin, begin + len(conjunct))
            cases.append(Case(low_row, high_row, A[part], G[part], g[part], strict[part], F[part]))
            begin = part.stop
    return Event(text, n_inputs, n_outputs, tuple(cases), features)


def _matrices(
    conjunctions: list[list[Row]], n_inputs: int, n_outputs: int, limits: Limits, name: str
) -> tuple[tuple[Any, ...], tuple[Variable, ...]]:
    """`(A, G, g, strict, F)` of all rows, one below the other, and the features of the columns of F."""
    total = sum(map(len, conjunctions))
    limits.check("elements", total * n_outputs, f"{name}, as rows,")
    G, g, strict = np.zeros((total, n_outputs)), np.empty(total), np.empty(total, dtype=bool)
    on_inputs: list[tuple[int, int, float]] = []
    on_features: list[tuple[int, Variable, float]] = []
    for at, row in enumerate(chain.from_iterable(conjunctions)):
        g[at], strict[at] = row.rhs, row.strict
        for variable, coefficient in row.terms:
            if variable[0] == "y":
                G[at, variable[1]] = coefficient
            elif variable[0] == "x":
                on_inputs.append((at, variable[1], coefficient))
            else:
                on_features.append((at, variable, coefficient))
    A = np.broadcast_to(np.zeros(1), (total, n_inputs))
    if on_inputs:
        limits.check("elements", total * n_inputs, f"{name}, as rows,")
        A = np.zeros((total, n_inputs))
        places, columns, values = zip(*on_inputs, strict=True)
        A[list(places), list(columns)] = values
    features = tuple(dict.fromkeys(variable for _, variable, _ in on_features))
    limits.check("elements", total * len(features), f"{name}, as rows,")
    F = np.zeros((total, len(features)))
    column = {variable: k for k, variable in enumerate(features)}
    for at, variable, coefficient in on_features:
        F[at, column[variable]] = coefficient
    return tuple(map(_sealed, (A, G, g, strict, F))), features


def _case_rows(case: Case, features: tuple[Variable, ...]) -> list[Row]:
    out = []
    for k in range(len(case.g)):
        terms: list[tuple[Variable, float]] = []
        if case.reads_inputs[k]:
            terms += [(("x", i), float(case.A[k, i])) for i in np.flatnonzero(case.A[k]).tolist()]
        terms += [(("y", j), float(case.G[k, j])) for j in np.flatnonzero(case.G[k]).tolist()]
        terms += [(features[j], float(case.F[k, j])) for j in np.flatnonzero(case.F[k]).tolist()]
        out.append(Row(tuple(terms), float(case.g[k]), bool(case.strict[k])))
    return out


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


def _count(n: int, one: str) -> str:
    return f"{n:,} {one if n == 1 else one + 's'}"
