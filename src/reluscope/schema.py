"""What the numbers of a network mean: names, units, categories, classes and the decision rule, in one record.

A network takes numbers. A `Schema` says which columns of a table they come from: each `Column` is one input, or, for
a category, the inputs that encode its levels. It says what the outputs are (`Output`) and how they become a decision. A
`Network` carries its schema (`net.schema`), files keep it, and wherever a table meets a network, `encode` takes the
columns by name.

For inputs and outputs alike, `number of the network = scale * value + shift`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, any_array, choice, describe, flag, integer, real, real_array, several, text
from reluscope._columns import (
    Index,
    Names,
    check_names,
    column_of,
    columns_of,
    factorized,
    few,
    numbers,
    plain,
    row_name,
    strange_gaps,
)
from reluscope.errors import InputError, InputLimitError, InputTypeError, ReluscopeWarning

__all__ = ["Column", "Output", "Schema"]

KINDS = ("continuous", "integer", "category", "constant")
LINKS = ("raw", "sigmoid", "softmax")
RULES = ("largest", "smallest", "above")


def assumed(schema: Schema | None, outputs: int, decision: str | None, otherwise: str) -> str:
    """A sentence where nobody has said which of several outputs decides, else nothing; `otherwise` is how to say it."""
    if decision or outputs < 2 or (schema is not None and schema.rule):
        return ""
    return f"Assumed: the largest output decides. If the smallest does, say {otherwise}."


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ANY = (-math.inf, math.inf)
_MOST_LEVELS = 4096
"""One-hot codes of more levels than this take more memory than they are worth."""
_VERSION = 1
_SCALED_MEAN = 0.5
_SCALED_SPREAD = 2.0
"""Numbers with a mean below the first and a spread within this factor of 1 look as if they were standardised."""
_FEWEST_TO_TELL = 10
"""Rows from which on that is looked at."""


def _checked_quantity(record: Column | Output, what: str) -> str:
    """How messages call the record; its name, unit and scaling are checked, and the numbers stored as floats."""
    if not isinstance(record.name, str) or not record.name:
        raise InputError(f"the name of {what} must be text, got {describe(record.name)}")
    where = f"{what.split()[1]} {record.name!r}"
    if not isinstance(record.unit, str):
        raise InputError(f"unit of {where} must be text, got {describe(record.unit)}")
    for part in ("scale", "shift"):
        object.__setattr__(record, part, real(getattr(record, part), f"{part} of {where}"))
    if record.scale == 0:
        raise InputError(f"scale of {where} must not be 0")
    return where


@dataclass(frozen=True)
class Column:
    """One column of the table that a network was made for.

    Parameters
    ----------
    name : str
    kind : {"continuous", "integer", "category", "constant"}
    unit : str
        Such as "ft"; empty for none.
    scale, shift : float
        The network's input is `scale * value + shift`, value in `unit`.
    support : (float, float)
        What the value can be at all: `(0, inf)` for an amount that is never negative.
    seen : (float, float), optional
        Smallest and largest value of the data the network was trained on; rows outside give a warning.
    within : (float, float), optional
        A range that holds all values of those data without being theirs, where only that is known: from the mean, the
        standard deviation and the number of rows that a scaler keeps. Rows outside give a warning too.
    moments : (float, float), optional
        Mean and standard deviation of those data; tables whose columns look scaled already give a warning.
    levels : sequence
        The levels of a category, in order; None stands for a missing entry.
    codes : sequence of rows, optional
        The inputs of each level, a row per level. One-hot unless given: as many inputs as levels.
    unknown : sequence of float, optional
        The inputs of any other level; without it other levels are refused.
    fill : optional
        What stands for a missing entry; without it missing entries are refused.
    missing : {"any", "nan", "None"}
        Which objects of a DataFrame's column of Python objects are the missing entry of a category. scikit-learn tells
        `nan` from `None`: the other one is a level that it never saw.

    Examples
    --------
    >>> Column("range", unit="ft", scale=1 / 60261.0, shift=-19791.091 / 60261.0).unit
    'ft'
    >>> Column("SEX", "category", levels=["male", "female"]).inputs
    ('SEX=male', 'SEX=female')
    """

    name: str
    kind: str = "continuous"
    unit: str = ""
    scale: float = 1.0
    shift: float = 0.0
    support: tuple[float, float] = _ANY
    seen: tuple[float, float] | None = None
    within: tuple[float, float] | None = None
    moments: tuple[float, float] | None = None
    levels: tuple[Any, ...] = ()
    codes: tuple[tuple[float, ...], ...] = ()
    unknown: tuple[float, ...] | None = None
    fill: Any = None
    missing: str = "any"

    def __post_init__(self) -> None:
        where = _checked_quantity(self, "a column")
        choice(self.kind, f"kind of {where}", KINDS)
        choice(self.missing, f"missing of {where}", ("any", "nan", "None"))
        object.__setattr__(self, "support", _pair(self.support, f"support of {where}"))
        if self.seen is not None:
            object.__setattr__(self, "seen", _pair(self.seen, f"seen of {where}"))
        if self.within is not None:
            object.__setattr__(self, "within", _pair(self.within, f"within of {where}"))
        if self.moments is not None:
            object.__setattr__(self, "moments", _moments(self.moments, f"moments of {where}"))
        if self.kind == "constant" and (self.seen is None or self.seen[0] != self.seen[1]):
            raise InputError(f"{where} is a constant: give its value v as seen=(v, v)")
        object.__setattr__(self, "levels", tuple(_label(v, "levels") for v in several(self.levels, "levels", "labels")))
        object.__setattr__(self, "codes", several(self.codes, "codes", "rows of numbers"))
        if self.kind == "category":
            self._check_category(where)
        elif self.levels or self.codes or self.unknown is not None:
            raise InputError(f'{where} has levels, so its kind must be "category", got {self.kind!r}')
        elif self.fill is not None:
            object.__setattr__(self, "fill", real(self.fill, f"fill of {where}"))

    def _check_category(self, where: str) -> None:
        if not self.levels or len(set(self.levels)) != len(self.levels):
            raise InputError(f"{where} is a category: give its levels, each once, got {list(self.levels)[:8]}")
        if (self.scale, self.shift) != (1.0, 0.0):
            raise InputError(
                f"{where} is a category: its codes are the network's inputs, so it takes no scale or shift"
            )
        if len(self.levels) > _MOST_LEVELS and not len(self.codes):
            raise InputLimitError(
                f"{where} has {len(self.levels):,} levels, more than the limit of {_MOST_LEVELS:,} for one-hot inputs; "
                "is it a category?"
            )
        codes = np.eye(len(self.levels)) if not len(self.codes) else real_array(self.codes, f"codes of {where}", ndim=2)
        if len(codes) != len(self.levels) or not codes.shape[1]:
            raise InputError(f"codes of {where} must have a row for each of its {len(self.levels)} levels")
        object.__setattr__(self, "codes", tuple(tuple(row) for row in codes.tolist()))
        if self.unknown is not None:
            other = real_array(self.unknown, f"unknown of {where}", ndim=1)
            if len(other) != codes.shape[1]:
                raise InputError(f"unknown of {where} must have {codes.shape[1]} numbers, as its codes")
            object.__setattr__(self, "unknown", tuple(other.tolist()))
        if self.fill is not None and plain(self.fill) not in self.levels:
            raise InputError(f"fill of {where} must be one of its levels, got {self.fill!r}")

    @property
    def width(self) -> int:
        """How many inputs of the network it is."""
        return len(self.codes[0]) if self.kind == "category" else 1

    @property
    def inputs(self) -> Names:
        """A name for each of its inputs."""
        if self.width == 1:
            return (self.name,)
        codes = np.array(self.codes)
        out = []
        for j in range(self.width):
            on = np.flatnonzero(codes[:, j])
            single = len(on) == 1 and codes[on[0], j] == 1.0
            out.append(f"{self.name}={self.levels[on[0]]}" if single else f"{self.name}[{j}]")
        return tuple(out)

    def encode(self, values: Any) -> FloatArray:
        """Values as the network's inputs.

        Parameters
        ----------
        values : (n,)
            In the column's own unit, or levels.

        Returns
        -------
        (n, width) array

        Raises
        ------
        InputError
            If an entry is missing without a `fill`, or a level is not known.
        """
        if self.kind == "category":
            return self._encode_levels(values)
        x = numbers(values, self.name)
        bad = ~np.isfinite(x)
        if bad.any():
            if self.fill is None or not np.isnan(x[bad]).all():
                first = row_name(values, int(np.flatnonzero(bad)[0]))
                raise self._missing(first, int(bad.sum()), str(x[bad][0]))
            x = np.where(bad, float(self.fill), x)
        return np.asarray(x if (self.scale, self.shift) == (1.0, 0.0) else self.scale * x + self.shift)[:, None]

    def _stray_levels(self, values: Any) -> list[Any]:
        """The levels of a category among some values that are none of its own, each once.

        Parameters
        ----------
        values : (n,)

        Returns
        -------
        list
        """
        if self.kind != "category":
            raise InputError(f"column {self.name!r} is no category: it has no levels")
        code, found = factorized(values)
        other = ["None" if self.missing == "nan" else "nan"] * bool(strange_gaps(values, code, self.missing).any())
        return [v for v in found if self.level_index(v) < 0] + other

    def _encode_levels(self, values: Any) -> FloatArray:
        code, found = factorized(values)
        place = np.array([self.level_index(v) for v in found] + [self.level_index(self.fill)], dtype=np.intp)
        at = place[np.where(code < 0, len(found), code)]
        stranger = strange_gaps(values, code, self.missing)
        at = np.where(stranger, -1, at)
        table = np.array([*self.codes, self.unknown or (0.0,) * self.width])
        bad = at < 0
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            if code[row] < 0 and self.fill is None and not stranger[row]:
                raise self._missing(row_name(values, row), int((code[bad] < 0).sum()), "nothing")
            if self.unknown is None:
                raise InputError(
                    f"column {self.name!r} has the level {few(self._stray_levels(values))} (first in "
                    f"{row_name(values, row)}), which the model never saw; its levels are {few(self.levels)}: drop or "
                    "recode those rows"
                )
            at = np.where(bad, len(self.levels), at)
        return table[at]

    def _missing(self, row: str, count: int, what: str) -> InputError:
        more = f" ({count:,} such entries)" if count > 1 else ""
        return InputError(
            f"column {self.name!r} must be there and finite in every row, got {what} in {row}{more}; drop those "
            "rows, or fill them as the model was trained (Column(fill=...))"
        )

    def level_index(self, level: Any) -> int:
        """The number of a level, -1 for none: equal, or written alike (`1.0`, `1` and `"1"` are one level).

        Parameters
        ----------
        level : object

        Returns
        -------
        int
        """
        level = _label(level, "level")
        found = self._places.get(level, -1)
        return self._spelled.get(_spelling(level), -1) if found < 0 and level is not None else found

    @cached_property
    def _places(self) -> dict[Any, int]:
        return {level: i for i, level in enumerate(self.levels)}

    @cached_property
    def _spelled(self) -> dict[str, int]:
        return {_spelling(level): i for i, level in reversed(list(enumerate(self.levels))) if level is not None}

    def decode(self, x: FloatArray) -> npt.NDArray[Any]:
        """The network's inputs as values in the column's own unit, or as levels (the nearest code).

        Parameters
        ----------
        x : (n, width) array

        Returns
        -------
        (n,) array
        """
        x = self._inputs(x)
        if self.kind != "category":
            return np.asarray((x[:, 0] - self.shift) / self.scale)
        levels = np.empty(len(self.levels), dtype=object)
        levels[:] = self.levels
        return np.asarray(levels[self.nearest(x)])

    def nearest(self, x: FloatArray) -> Index:
        """The number of the level whose code is nearest to each row.

        Parameters
        ----------
        x : (n, width) array

        Returns
        -------
        (n,) array of int
        """
        x = self._inputs(x)
        if self.kind != "category":
            raise InputError(f"column {self.name!r} is no category: it has no levels to be near to")
        codes = np.array(self.codes)
        return np.asarray(((x[:, None, :] - codes) ** 2).sum(axis=2).argmin(axis=1), dtype=np.intp)

    def strange(self, x: FloatArray) -> tuple[npt.NDArray[np.bool_], str]:
        """Rows that nothing in training was like, and what is strange about the first.

        Parameters
        ----------
        x : (n, width) array
            Inputs of the network.

        Returns
        -------
        (n,) array of bool, str
        """
        x = self._inputs(x)
        if self.kind == "category":
            codes = np.array(self.codes)
            off = (x[:, None, :] != codes).any(axis=2).all(axis=1)
            if not off.any():
                return off, ""
            unknown = self.unknown is not None and x[off][0].tolist() == list(self.unknown)
            return off, "an unknown level" if unknown else f"{x[off][0].tolist()} is the code of no level"
        value = self.decode(x)
        low, high = self.seen or self.within or self.support
        # A hair's breadth: rounding by the scale and back is not news.
        slack = 1e-9 * max((abs(v) for v in (low, high) if math.isfinite(v)), default=0.0)
        off = (value < low - slack) | (value > high + slack)
        if self.kind == "integer":
            off |= np.abs(value - np.round(value)) > 1e-6 * np.maximum(1.0, np.abs(value))
        unit = f" {self.unit}" if self.unit else ""
        why = "" if not off.any() else f"{value[off][0]:.6g}{unit}, {self._known(low, high)}"
        return off, why

    def _inputs(self, x: Any) -> FloatArray:
        rows = real_array(x, "x", ndim=2)
        if rows.shape[1] != self.width:
            raise InputError(f"x must have shape (n, {self.width}), as column {self.name!r} has, got {rows.shape}")
        return rows

    def _known(self, low: float, high: float) -> str:
        whole = "whole numbers " if self.kind == "integer" else ""
        if self.seen is not None:
            return f"seen were {whole}{low:.6g} to {high:.6g}"
        if self.within is not None:
            return f"and all training rows were {whole}within {low:.6g} to {high:.6g}"
        return f"possible are {whole}{low:.6g} to {high:.6g}"

    @property
    def _tells_scaled(self) -> bool:
        """Whether scaled values could be told from those of the training data: `moments` are known, and are others."""
        return self.moments is not None and not _standard(*self.moments)

    def _looks_scaled(self, x: FloatArray) -> bool:
        """Whether inputs have a mean near 0 and a standard deviation near 1, where the training data had others.

        Parameters
        ----------
        x : (n, width) array
            Inputs of the network.

        Returns
        -------
        bool
            False where `moments` are not known, or rows are too few to tell.
        """
        value = self.decode(x) if self._tells_scaled else np.zeros(0)
        return len(value) >= _FEWEST_TO_TELL and _standard(float(value.mean()), float(value.std()))


@dataclass(frozen=True)
class Output:
    """One output of a network, and the scale on which people speak of it.

    Parameters
    ----------
    name : str
    unit : str
    scale, shift : float
        The network's output is `scale * value + shift`.
    link : {"raw", "sigmoid", "softmax"}
        What makes a probability of that value; with "softmax" all outputs together.
    calibration : sequence of (kind, numbers)
        Monotone maps that follow: `("sigmoid", (a, b))` is `1 / (1 + exp(-(a v + b)))`; `("isotonic", (v..., p...))` is
        the piecewise-linear curve through the points.

    Examples
    --------
    >>> Output("PD", link="sigmoid").raw(">", 0.2)  # the event "PD > 0.2" for the network's own output
    ('>', -1.3862943611198906)
    """

    name: str
    unit: str = ""
    scale: float = 1.0
    shift: float = 0.0
    link: str = "raw"
    calibration: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def __post_init__(self) -> None:
        where = _checked_quantity(self, "an output")
        choice(self.link, f"link of {where}", LINKS)
        steps = []
        for step in several(self.calibration, "calibration", "pairs (kind, numbers)"):
            if not isinstance(step, (list, tuple)) or len(step) != 2:
                raise InputError(f"calibration of {where} must be pairs (kind, numbers), got {describe(step)}")
            kind, given = step
            choice(kind, f"calibration of {where}", ("sigmoid", "isotonic"))
            values = real_array(given, f"calibration of {where}", ndim=1)
            if kind == "sigmoid" and (len(values) != 2 or values[0] == 0):
                raise InputError(f"calibration of {where}: a sigmoid needs (a, b) with a not 0, got {values.tolist()}")
            if kind == "isotonic":
                v, p = np.split(values, 2) if len(values) % 2 == 0 and len(values) else (values, values[:0])
                if len(v) != len(p) or (np.diff(v) <= 0).any() or (np.diff(p) < 0).any():
                    raise InputError(f"calibration of {where}: isotonic points must rise from left to right")
            steps.append((str(kind), tuple(values.tolist())))
        object.__setattr__(self, "calibration", tuple(steps))

    def values(self, y: npt.ArrayLike) -> FloatArray:
        """The network's output on the scale of people ("softmax": of the logit of two outputs).

        Parameters
        ----------
        y : array_like

        Returns
        -------
        ndarray
        """
        v = (real_array(y, "y") - self.shift) / self.scale
        if self.link != "raw":
            v = _sigmoid(v)
        for kind, given in self.calibration:
            if kind == "sigmoid":
                v = _sigmoid(given[0] * v + given[1])
            else:
                at, p = np.split(np.array(given), 2)
                v = np.interp(v, at, p)
        return np.asarray(v, dtype=np.float64)

    def raw(self, op: str, value: float) -> bool | tuple[str, float]:
        """The condition `output op value` as one on the network's own output.

        Parameters
        ----------
        op : {"<", "<=", ">", ">="}
        value : float

        Returns
        -------
        bool or (op, float)
            True or False where it always or never holds.
        """
        choice(op, "op", tuple(_FLIPPED))
        found: bool | tuple[str, float] = (op, real(value, "value"))
        for kind, given in reversed(self.calibration):
            if isinstance(found, bool):
                return found
            if kind == "isotonic":
                found = _below_isotonic(*found, *np.split(np.array(given), 2))
            else:
                found = _affine_back(_logit_back(*found), given[0], given[1])
        if not isinstance(found, bool) and self.link != "raw":
            found = _logit_back(*found)
        return _affine_back(found, 1.0 / self.scale, -self.shift / self.scale, self.scale, self.shift)


@dataclass(frozen=True)
class Schema:
    """What the inputs and outputs of a network mean.

    Parameters
    ----------
    columns : sequence of Column or str
        The columns of the table, in the order of the network's inputs; empty when not known.
    outputs : sequence of Output or str
        The outputs in order; empty when not known.
    classes : sequence
        The labels that the decision chooses from: one per output, or two (below and above the cut-off).
    rule : {"largest", "smallest", "above"}, optional
        How outputs become a decision; "above" (a cut-off) for one output unless given, else "largest".
    cutoff : float, optional
        Of "above", on the scale of the output: 0.5 for probabilities and 0 otherwise, unless given.
    decision : str
        What the decision is called in events, such as "advisory".
    groups : mapping or pairs
        Names for several columns together.
    unused : sequence of str
        Columns that tables may have and the model does not use.

    Raises
    ------
    InputError
        If names repeat, or the parts do not fit together.

    Examples
    --------
    >>> s = Schema([Column("SEX", "category", levels=[1, 2]), "AGE"], [Output("PD", link="sigmoid")])
    >>> s.inputs
    ('SEX=1', 'SEX=2', 'AGE')
    >>> s.encode({"AGE": [30.0, 41.0], "SEX": [2, 1]}).tolist()  # by name, whatever the order
    [[0.0, 1.0, 30.0], [1.0, 0.0, 41.0]]
    """

    columns: tuple[Column, ...] = ()
    outputs: tuple[Output, ...] = ()
    classes: tuple[Any, ...] = ()
    rule: str = ""
    cutoff: float | None = None
    decision: str = "decision"
    groups: tuple[tuple[str, Names], ...] = ()
    unused: Names = field(default=(), repr=False)

    def __post_init__(self) -> None:
        _listed(self.columns, "columns")
        _listed(self.outputs, "outputs")
        object.__setattr__(self, "columns", tuple(_one(c, Column, "columns") for c in self.columns))
        object.__setattr__(self, "outputs", tuple(_one(o, Output, "outputs") for o in self.outputs))
        labels = several(self.classes, "classes", "labels")
        object.__setattr__(self, "classes", tuple(_label(c, "classes") for c in labels))
        object.__setattr__(self, "unused", _texts(self.unused, "unused"))
        pairs = self.groups.items() if isinstance(self.groups, Mapping) else several(self.groups, "groups", "groups")
        object.__setattr__(self, "groups", tuple(_group(pair) for pair in pairs))
        text(self.rule, "rule")
        for what, names in (("column", self.names), ("output", self.output_names)):
            twice = [n for n in dict.fromkeys(names) if names.count(n) > 1]
            if twice:
                raise InputError(f"schema has more than one {what} called {few(twice)}")
        if None in self.classes:
            raise InputError("classes must be text or numbers, got a missing one")
        for name, members in self.groups:
            strangers = [m for m in members if m not in self.names]
            if strangers or not members or name in self.names:
                raise InputError(f"group {name!r} of the schema must name columns and not be one, got {few(members)}")
        if not isinstance(self.decision, str) or not self.decision:
            raise InputError(f"decision must be a name, got {describe(self.decision)}")
        self._check_decision()

    def _check_decision(self) -> None:
        n = len(self.outputs)
        if not self.rule and n:
            object.__setattr__(self, "rule", "above" if n == 1 else "largest")
        if self.rule:
            choice(self.rule, "rule", RULES)
        if self.rule == "above":
            if n > 1:
                raise InputError(f'rule "above" needs one output, but the schema has {n}; use "largest"')
            if self.cutoff is None:
                scaled = bool(n) and (self.outputs[0].link != "raw" or bool(self.outputs[0].calibration))
                object.__setattr__(self, "cutoff", 0.5 if scaled else 0.0)
            object.__setattr__(self, "cutoff", real(self.cutoff, "cutoff"))
        elif self.cutoff is not None:
            raise InputError(f'cutoff goes with rule="above", got rule={self.rule!r}')
        wanted = 2 if self.rule == "above" else n
        if self.classes and n and len(self.classes) != wanted:
            raise InputError(
                f"classes must be {wanted} labels, one per {'side of the cut-off' if n == 1 else 'output'}, "
                f"got {len(self.classes)}"
            )
        if len(set(self.classes)) != len(self.classes):
            raise InputError(f"classes must be different labels, got {few(self.classes)}")

    # -- names ---------------------------------------------------------------------------------------------------

    @property
    def names(self) -> Names:
        """The names of the columns."""
        return tuple(c.name for c in self.columns)

    @property
    def inputs(self) -> Names:
        """A name for each input of the network: a category has one per input of its code."""
        return tuple(name for c in self.columns for name in c.inputs)

    @property
    def output_names(self) -> Names:
        """The names of the outputs."""
        return tuple(o.name for o in self.outputs)

    @property
    def n_inputs(self) -> int:
        """How many inputs the columns are, 0 if nothing is known of them."""
        return sum(c.width for c in self.columns)

    @cached_property
    def _places(self) -> dict[str, slice]:
        ends = np.cumsum([0, *(c.width for c in self.columns)]).tolist()
        return {c.name: slice(a, b) for c, a, b in zip(self.columns, ends[:-1], ends[1:], strict=True)}

    def place(self, name: str) -> slice:
        """Where the inputs of a column stand.

        Parameters
        ----------
        name : str

        Returns
        -------
        slice
        """
        if text(name, "name") not in self._places:
            raise InputError(f"name: there is no column {name!r}; the columns are {few(self.names)}")
        return self._places[name]

    def column(self, name: str) -> Column:
        """A column by its name.

        Parameters
        ----------
        name : str

        Returns
        -------
        Column
        """
        self.place(name)
        return next(c for c in self.columns if c.name == name)

    def members(self, name: str) -> Names:
        """The columns that a name stands for: a column itself, or those of a group.

        Parameters
        ----------
        name : str

        Returns
        -------
        tuple of str
        """
        text(name, "name")
        for group, names in self.groups:
            if group == name:
                return names
        if name not in self._places:
            groups = f"; groups are {few([g for g, _ in self.groups])}" if self.groups else ""
            raise InputError(f"there is no column {name!r}; the columns are {few(self.names)}{groups}")
        return (name,)

    # -- tables --------------------------------------------------------------------------------------------------

    def encode(self, table: Any, *, name: str = "X", quiet: bool = False) -> FloatArray:
        """A table as rows of the network's inputs: columns are taken by name, in whatever order they stand.

        Parameters
        ----------
        table : DataFrame or mapping of columns
            Values in the units of the columns; levels for categories.
        name : str
            What errors call the table.
        quiet : bool
            No warning about rows that are unlike anything seen.

        Returns
        -------
        (n, inputs) array

        Raises
        ------
        InputError
            If a column is missing or not known, an entry is missing or not finite, or a level never occurred.

        Notes
        -----
        Rows outside what was seen in training, or what can be at all, give a warning that names the columns. A
        constant may be left out of the table.
        """
        text(name, "name")
        quiet = flag(quiet, "quiet")
        found = columns_of(table)
        if found is None:
            raise InputError(f"{name} must be a table with named columns, got {describe(table)}")
        fixed = tuple(c.name for c in self.columns if c.kind == "constant" and c.name not in found)
        check_names(found, tuple(n for n in self.names if n not in fixed), self.unused, name)
        parts = {c.name: c.encode(column_of(table, c.name)) for c in self.columns if c.name not in fixed}
        strays = {
            c.name: few(never)
            for c in self.columns
            if c.unknown is not None and not quiet and (never := c._stray_levels(column_of(table, c.name)))
        }
        lengths = {len(p) for p in parts.values()}
        if len(lengths) > 1:
            raise InputError(f"the columns of {name} must have one length, got {sorted(lengths)[:4]}")
        n = lengths.pop() if lengths else 1
        if not n:
            raise InputError(f"{name} has no rows")
        for c in self.columns:
            if c.name in fixed:
                assert c.seen is not None
                parts[c.name] = c.encode(np.full(n, c.seen[0]))
        rows = np.concatenate([parts[c.name] for c in self.columns], axis=1)
        if not quiet:
            self._warn(self._strange(rows, strays), name)
        return rows

    def positional(self, X: Any) -> dict[str, Any] | None:
        """An array as a table, if the columns are called x0, x1, ... (the model was fitted on arrays) and it has them.

        Parameters
        ----------
        X : (n, columns)

        Returns
        -------
        dict or None
        """
        names = {*self.names, *self.unused}
        raw = any_array(X, "X", "a table of numbers or labels")
        shape = raw.shape
        if len(shape) != 2 or shape[1] != len(names) or names != {f"x{i}" for i in range(len(names))}:
            return None
        return {f"x{i}": raw[:, i] for i in range(len(names))}

    def decode(self, X: npt.ArrayLike) -> dict[str, npt.NDArray[Any]]:
        """Rows of the network's inputs as columns by name: values in their units, levels of categories.

        Parameters
        ----------
        X : (n, inputs)

        Returns
        -------
        dict of (n,) arrays
        """
        x = self._rows(X)
        return {c.name: c.decode(x[:, self._places[c.name]]) for c in self.columns}

    def warn(self, X: npt.ArrayLike, name: str = "X") -> None:
        """Warn about rows that nothing in training was like, with their columns.

        Parameters
        ----------
        X : (n, inputs)
            Inputs of the network.
        name : str
            What the warning calls them.
        """
        text(name, "name")
        self._warn(self.strange(X), name)

    def _warn(self, unlike: str, name: str) -> None:
        if unlike:
            warnings.warn(f"{name}: {unlike}", ReluscopeWarning, stacklevel=4)

    def strange(self, X: npt.ArrayLike) -> str:
        """What is unlike anything seen in training: how many rows, in which columns; empty if nothing is.

        Parameters
        ----------
        X : (n, inputs)
            Inputs of the network.

        Returns
        -------
        str
        """
        return self._strange(self._rows(X), {})

    def _strange(self, x: FloatArray, strays: Mapping[str, str]) -> str:
        """The same; `strays` has the levels of a table that are not known, by column."""
        scaled = [c for c in self.columns if c._looks_scaled(x[:, self._places[c.name]])]
        told = sum(c._tells_scaled for c in self.columns)
        if len(scaled) >= max(min(told, 2), told / 2, 1):
            mean, spread = scaled[0].moments or (math.nan, math.nan)
            return (
                f"{few([c.name for c in scaled])} {'have' if len(scaled) > 1 else 'has'} a mean near 0 and a standard "
                f"deviation near 1, where the training data had {mean:.6g} and {spread:.6g} ({scaled[0].name}): scaled "
                "already? The model scales its columns itself; pass them in their own units"
            )
        off = np.zeros(len(x), dtype=bool)
        parts, numbers_off = [], False
        for c in self.columns:
            here, why = c.strange(x[:, self._places[c.name]])
            if here.any():
                off |= here
                numbers_off |= c.kind != "category"
                parts.append(f"{c.name} ({f'unknown level {strays[c.name]}' if c.name in strays else why})")
        if not parts:
            return ""
        shown = ", ".join(parts[:6]) + (f" and {len(parts) - 6} more columns" if len(parts) > 6 else "")
        asked = "; are the columns in the model's units (not scaled already, or not yet)?" if numbers_off else ""
        return f"{int(off.sum()):,} of {len(x):,} rows are unlike anything seen in training: {shown}{asked}"

    def _rows(self, X: npt.ArrayLike) -> FloatArray:
        x = real_array(X, "X", ndim=2)
        if x.shape[1] != self.n_inputs:
            raise InputError(f"X must have {self.n_inputs} columns, the inputs of the network, got {x.shape[1]}")
        return x

    @classmethod
    def of(cls, table: Any, *, units: Mapping[str, str] | None = None, **about: Any) -> Schema:
        """The schema of a network that takes the columns of a table as they stand.

        Parameters
        ----------
        table : DataFrame or mapping of columns
            Text, truth values and pandas categories become categories (one-hot), whole numbers integers; a column
            with one value is a constant. What was seen is noted.
        units : mapping of str to str, optional
            Units by column.
        **about
            Other fields of `Schema`.

        Returns
        -------
        Schema
        """
        names = columns_of(table)
        if names is None:
            raise InputError(f"table must have named columns, got {describe(table)}")
        if units is not None and not isinstance(units, Mapping):
            raise InputTypeError(f"units must be a mapping of columns to units, got {describe(units)}")
        units = dict(units or {})
        strangers = [n for n in units if n not in names]
        if strangers:
            raise InputError(f"units names {few(strangers)}, which the table does not have")
        return cls(tuple(_column_of(table, n, units.get(n, "")) for n in names), **about)

    # -- decisions -----------------------------------------------------------------------------------------------

    def threshold(self) -> float | None:
        """The network's own output at which the decision turns, for the rule "above"; None for the other rules."""
        if self.rule != "above" or not self.outputs:
            return None
        assert self.cutoff is not None
        found = self.outputs[0].raw(">", self.cutoff)
        if isinstance(found, bool):
            return -math.inf if found else math.inf
        if found[0] != ">":
            raise InputError(
                f"output {self.outputs[0].name!r} falls as the network's output rises; turn its sign first"
            )
        return found[1]

    def decide(self, y: npt.ArrayLike) -> Index:
        """The number of the class that is decided for: the first of equals.

        Parameters
        ----------
        y : (n, outputs)
            Outputs of the network.

        Returns
        -------
        (n,) array of int
        """
        out = self._outputs(y)
        if self.rule == "smallest":
            return np.asarray(out.argmin(axis=1), dtype=np.intp)
        limit = self.threshold()
        if limit is not None:
            return np.asarray(out[:, 0] > limit, dtype=np.intp)
        return np.asarray(out.argmax(axis=1), dtype=np.intp)

    def values(self, y: npt.ArrayLike) -> FloatArray:
        """Outputs of the network on the scale of people: in their units, as probabilities.

        Parameters
        ----------
        y : (n, outputs)

        Returns
        -------
        (n, outputs) array
        """
        out = self._outputs(y)
        if not self.outputs:
            return out
        if self.outputs[0].link == "softmax" and len(self.outputs) > 1:
            v = np.stack([(out[:, i] - o.shift) / o.scale for i, o in enumerate(self.outputs)], axis=1)
            v = np.exp(v - v.max(axis=1, keepdims=True))
            return np.asarray(v / v.sum(axis=1, keepdims=True))
        return np.stack([o.values(out[:, i]) for i, o in enumerate(self.outputs)], axis=1)

    def _outputs(self, y: Any) -> FloatArray:
        out = real_array(y, "y", ndim=2)
        if not out.shape[1] or (self.outputs and out.shape[1] != len(self.outputs)):
            raise InputError(f"y must have a column for each of the {len(self.outputs)} outputs, got {out.shape}")
        return out

    def class_index(self, label: Any) -> int:
        """The number of a class by its label, -1 for none; `1`, `1.0` and `"1"` are one label.

        Parameters
        ----------
        label : object

        Returns
        -------
        int
        """
        label = _label(label, "label")
        if label in self.classes:
            return self.classes.index(label)
        spelled = [_spelling(c) for c in self.classes]
        return spelled.index(_spelling(label)) if _spelling(label) in spelled else -1

    # -- other records -------------------------------------------------------------------------------------------

    def of_inputs(self) -> Schema | None:
        """What is known of the inputs alone; None if that is nothing."""
        return Schema(self.columns, groups=self.groups, unused=self.unused) if self.columns else None

    def of_outputs(self) -> Schema | None:
        """What is known of the outputs alone; None if that is nothing."""
        return replace(self, columns=(), groups=(), unused=()) if self.outputs or self.rule else None

    def in_units(self, *, inputs: bool = True, outputs: bool = True) -> Schema:
        """The schema of a network that takes and gives values in their units.

        Parameters
        ----------
        inputs, outputs : bool
            Whose scalings are gone: False leaves those as they are.

        Returns
        -------
        Schema
        """
        columns, results = self.columns, self.outputs
        if flag(inputs, "inputs"):
            columns = tuple(replace(c, scale=1.0, shift=0.0) for c in columns)
        if flag(outputs, "outputs"):
            results = tuple(replace(o, scale=1.0, shift=0.0) for o in results)
        return replace(self, columns=columns, outputs=results)

    def with_names(self, *, outputs: Any = None, **changes: Any) -> Schema:
        """The same with some fields changed; outputs that are given by name keep their scale.

        Parameters
        ----------
        outputs : str or sequence of str or Output, optional
        **changes
            Fields of `Schema`.

        Returns
        -------
        Schema
        """
        known = {f.name for f in fields(self)}
        for name in changes:
            if name not in known:
                raise InputError(f"a schema has no field {name!r}; it has {', '.join(sorted(known))}")
        if outputs is not None:
            given = (outputs,) if isinstance(outputs, (str, Output)) else several(outputs, "outputs", "names")
            if self.outputs and len(given) != len(self.outputs):
                raise InputError(f"outputs must name the {len(self.outputs)} outputs, got {len(given)}")
            changes["outputs"] = tuple(
                replace(self.outputs[i], name=o) if isinstance(o, str) and self.outputs else o
                for i, o in enumerate(given)
            )
            if not self.outputs:
                changes.setdefault("rule", "" if not self.rule else self.rule)
        if "rule" in changes and changes["rule"] != "above":
            changes.setdefault("cutoff", None)
        return replace(self, **changes)

    def seen_in(self, table: Any) -> Schema:
        """The same with the ranges of a table's columns noted as seen, and whole numbers as such.

        Parameters
        ----------
        table : DataFrame or mapping of columns
            The rows that the network was trained on.

        Returns
        -------
        Schema
        """
        rows = self.encode(table, quiet=True)
        columns = []
        for c in self.columns:
            if c.kind == "category":
                columns.append(c)
                continue
            x = c.decode(rows[:, self._places[c.name]])
            low, high = float(x.min()), float(x.max())
            kind = "constant" if low == high else "integer" if (x == np.round(x)).all() else "continuous"
            support = (0.0, math.inf) if low >= 0 and c.support == _ANY else c.support
            columns.append(replace(c, kind=kind, seen=(low, high), support=support, within=None))
        return replace(self, columns=tuple(columns))

    def check(self, n_inputs: int, n_outputs: int) -> None:
        """Refuse a schema that does not fit a network.

        Parameters
        ----------
        n_inputs, n_outputs : int
            Of the network.

        Raises
        ------
        InputError
        """
        integer(n_inputs, "n_inputs", low=1)
        integer(n_outputs, "n_outputs", low=1)
        if self.columns and self.n_inputs != n_inputs:
            wide = [f"{c.name} {c.width}" for c in self.columns if c.width > 1]
            more = f" (categories: {', '.join(wide[:6])})" if wide else ""
            raise InputError(
                f"schema has {len(self.columns)} columns that make {self.n_inputs} inputs{more}, but the network takes "
                f"{n_inputs}; give a column for every input, in order"
            )
        if self.outputs and len(self.outputs) != n_outputs:
            raise InputError(
                f"schema has {len(self.outputs)} outputs ({few(self.output_names)}), but the network has {n_outputs}"
            )
        if self.rule == "above" and n_outputs != 1:
            raise InputError(f'rule "above" needs one output, but the network has {n_outputs}')

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON; what is as by default is left out."""
        out: dict[str, Any] = {"version": _VERSION}
        out["columns"] = [_plain_fields(c) for c in self.columns]
        out["outputs"] = [_plain_fields(o) for o in self.outputs]
        for name in ("classes", "unused"):
            if getattr(self, name):
                out[name] = list(getattr(self, name))
        for name in ("rule", "cutoff", "decision"):
            if getattr(self, name) not in ("", None):
                out[name] = getattr(self, name)
        if self.groups:
            out["groups"] = {name: list(members) for name, members in self.groups}
        return out

    @classmethod
    def from_dict(cls, fields_: Any) -> Schema:
        """A schema from what `to_dict` gave.

        Parameters
        ----------
        fields_ : dict

        Returns
        -------
        Schema

        Raises
        ------
        InputError
            If it is damaged or of a newer version.
        """
        if not isinstance(fields_, Mapping) or fields_.get("version", _VERSION) != _VERSION:
            raise InputError(f"a schema must be a table of version {_VERSION}, got {describe(fields_)}")
        given = {k: v for k, v in fields_.items() if k != "version"}
        known = {f.name for f in fields(cls)}
        strangers = [k for k in given if k not in known]
        if strangers:
            raise InputError(f"a schema has no field {few(strangers)}; it has {', '.join(sorted(known))}")
        for name in ("columns", "outputs", "classes", "unused"):
            if not isinstance(given.get(name, []), (list, tuple)):
                raise InputError(f"{name} of a schema must be a list, got {describe(given[name])}")
        try:
            for name, kind in (("columns", Column), ("outputs", Output)):
                given[name] = tuple(kind(**_sided(p)) if isinstance(p, Mapping) else p for p in given.get(name, []))
            return cls(**given)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"a schema is damaged: {str(error)[:120]}") from None

    def __repr__(self) -> str:
        kinds = [f"{c.name} ({len(c.levels)} levels)" if c.kind == "category" else c.name for c in self.columns]
        what = f"{len(self.columns)} columns: {', '.join(kinds[:4])}{', ...' if len(kinds) > 4 else ''}"
        rule = f"{self.rule} {self.cutoff:g}" if self.rule == "above" else self.rule
        out = f"outputs {', '.join(self.output_names[:4])}{', ...' if len(self.outputs) > 4 else ''}; {rule}"
        return f"Schema({'; '.join([what] * bool(self.columns or not self.outputs) + [out] * bool(self.outputs))})"


# -- what numbers are called -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    """What a number of a network is called in tables and pictures: `number = scale * value + shift`, in `unit`."""

    name: str
    unit: str = ""
    scale: float = 1.0
    shift: float = 0.0

    @property
    def plain(self) -> bool:
        """Whether the value is the network's own number."""
        return (self.scale, self.shift) == (1.0, 0.0)

    def value(self, number: Any) -> Any:
        """Numbers of the network as values in the unit."""
        return number if self.plain else (number - self.shift) / self.scale

    def number(self, value: Any) -> Any:
        """Values in the unit as numbers of the network."""
        return value if self.plain else self.scale * value + self.shift

    def __str__(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name


def input_labels(schema: Schema | None, n: int) -> tuple[Label, ...]:
    """A label for each of n inputs: those of the schema, else x[0], x[1], ..."""
    if schema is None or not schema.columns:
        return tuple(Label(f"x[{i}]") for i in range(n))
    return tuple(Label(name, c.unit, c.scale, c.shift) for c in schema.columns for name in c.inputs)


def output_labels(schema: Schema | None, n: int) -> tuple[Label, ...]:
    """A label for each of n outputs: those of the schema, else y[0], y[1], ...

    A probability is no linear function of the network's own number, so that is called by what it is: the logit.
    """
    if schema is None or not schema.outputs:
        return tuple(Label(f"y[{o}]") for o in range(n))
    return tuple(
        Label(f"logit of {o.name}" if o.link != "raw" else f"{o.name} before calibration", "", o.scale, o.shift)
        if o.link != "raw" or o.calibration
        else Label(o.name, o.unit, o.scale, o.shift)
        for o in schema.outputs
    )


def models_in_units(schema: Schema | None, C: FloatArray, d: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Linear models `C x + d`, shapes (..., outputs, inputs) and (..., outputs), for values in their units."""
    results, inputs = output_labels(schema, C.shape[-2]), input_labels(schema, C.shape[-1])
    if all(label.plain for label in (*inputs, *results)):
        return C, d
    size, move = (np.array([getattr(label, k) for label in results]) for k in ("scale", "shift"))
    scale, shift = (np.array([getattr(label, k) for label in inputs]) for k in ("scale", "shift"))
    return C * scale / size[:, None], (d + C @ shift - move) / size


# -- inside ------------------------------------------------------------------------------------------------------


def _label(value: Any, name: str) -> Any:
    """A level or class as Python holds it: text or a number, None for a missing one."""
    out = plain(value)
    if out is not None and not isinstance(out, (str, bool, int, float)):
        raise InputTypeError(f"{name} must be text or numbers, got {describe(value)}")
    if isinstance(out, int) and abs(out) >= 1 << 128:
        raise InputError(f"{name} must be text or numbers, got {describe(value)}")
    return out


def _texts(value: Any, name: str) -> Names:
    return tuple(text(word, f"an entry of {name}") for word in several(value, name, "texts"))


def _group(pair: Any) -> tuple[str, Names]:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        raise InputTypeError(f"groups must be pairs (name, columns), got {describe(pair)}")
    return text(pair[0], "the name of an entry of groups"), _texts(pair[1], "groups")


def _pair(value: Any, name: str) -> tuple[float, float]:
    sides = real_array(value, name, finite=False)
    if sides.shape != (2,):
        raise InputError(f"{name} must be a pair (low, high), got {describe(value)}")
    low, high = sides.tolist()
    if not low <= high:
        raise InputError(f"{name} must be a pair (low, high), got ({low}, {high})")
    return low, high


def _standard(mean: float, spread: float) -> bool:
    return abs(mean) < _SCALED_MEAN and 1 / _SCALED_SPREAD < spread < _SCALED_SPREAD


def _moments(value: Any, name: str) -> tuple[float, float]:
    pair = real_array(value, name, ndim=1)
    if len(pair) != 2 or not pair[1] >= 0:
        raise InputError(f"{name} must be (mean, standard deviation), got {describe(value)}")
    return float(pair[0]), float(pair[1])


def _listed(value: Any, name: str) -> None:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InputError(f"{name} of a schema must be a list, got {describe(value)}")


def _one(value: Any, kind: Any, name: str) -> Any:
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        return kind(value)
    raise InputError(f"{name} of a schema must be names or {kind.__name__} records, got {describe(value)}")


def _spelling(level: Any) -> str:
    """How a level is written: whole numbers without a point, whatever their type."""
    if isinstance(level, bool):
        return str(level)
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


def _sided(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a column or output from JSON, where None stands for an open side."""
    out = dict(given)
    for name in ("support", "seen", "within"):
        sides = out.get(name)
        if isinstance(sides, (list, tuple)) and len(sides) == 2:
            low, high = sides
            out[name] = (-math.inf if low is None else low, math.inf if high is None else high)
    return out


def _plain_fields(record: Column | Output) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in fields(record):
        value = getattr(record, f.name)
        if f.name != "name" and value == f.default:
            continue
        if f.name in ("support", "seen", "within"):
            value = [v if math.isfinite(v) else None for v in value]
        out[f.name] = value
    if isinstance(record, Column) and record.codes == tuple(tuple(r) for r in np.eye(len(record.levels)).tolist()):
        out.pop("codes", None)
    return out


def _column_of(table: Any, name: str, unit: str) -> Column:
    values = column_of(table, name)
    dtype = getattr(values, "dtype", None)
    raw = np.asarray(values) if dtype is None else values
    kind = getattr(raw.dtype, "kind", "O")
    if kind in "bOSUT" or str(raw.dtype) in ("category", "boolean", "string", "str"):
        _, found = factorized(values)
        levels = tuple(sorted(found, key=lambda v: (isinstance(v, str), v)))
        if not levels:
            raise InputError(f"column {name!r} has no entries")
        return Column(name, "category", unit, levels=levels)
    x = numbers(values, name)
    x = x[np.isfinite(x)]
    if not len(x):
        raise InputError(f"column {name!r} has no finite number")
    low, high = float(x.min()), float(x.max())
    what = (
        "constant"
        if low == high
        else "integer"
        if kind in "iu" or str(raw.dtype).startswith(("Int", "UInt"))
        else "continuous"
    )
    return Column(name, what, unit, support=(0.0, math.inf) if low >= 0 else _ANY, seen=(low, high))


def _sigmoid(v: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(np.where(v >= 0, 1.0 / (1.0 + np.exp(-np.abs(v))), 1.0 - 1.0 / (1.0 + np.exp(-np.abs(v)))))


def _logit_back(op: str, p: float) -> bool | tuple[str, float]:
    """`sigmoid(v) op p` as a condition on v: the sigmoid lies strictly between 0 and 1."""
    if p <= 0:
        return op[0] == ">"
    if p >= 1:
        return op[0] == "<"
    return op, math.log(p) - math.log1p(-p)


def _affine_back(
    found: bool | tuple[str, float], a: float, b: float, scale: float | None = None, shift: float | None = None
) -> bool | tuple[str, float]:
    """`a v + b op t` as a condition on v; scale and shift are the inverse, where it is known without rounding."""
    if isinstance(found, bool):
        return found
    op, t = found
    v = (t - b) / a if scale is None or shift is None else scale * t + shift
    return (op if a > 0 else _FLIPPED[op]), v


def _below_isotonic(op: str, t: float, v: FloatArray, p: FloatArray) -> bool | tuple[str, float]:
    """`curve(v) op t` for a rising piecewise-linear curve that is constant beyond its ends."""
    if op[0] == "<":
        found = _below_isotonic(">=" if op == "<" else ">", t, v, p)
        return (not found) if isinstance(found, bool) else ("<" if found[0] == ">=" else "<=", found[1])
    above = p > t if op == ">" else p >= t
    if above[0]:
        return True
    if not above[-1]:
        return False
    i = int(np.argmax(above))  # the curve passes t between points i - 1 and i
    if op == ">=":
        return ">=", float(v[i - 1] + (v[i] - v[i - 1]) * (t - p[i - 1]) / (p[i] - p[i - 1]))
    return ">", float(v[i - 1] + (v[i] - v[i - 1]) * max(0.0, t - p[i - 1]) / (p[i] - p[i - 1]))
