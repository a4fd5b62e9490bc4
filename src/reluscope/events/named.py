"""The names of a network's schema in events: values in their units, levels, classes, probabilities.

A name of a column or an output stands for its value, a linear function of the network's own number. A category and
the decision are compared with labels. An output with a sigmoid (or a monotone calibration) is compared with a number,
and the limit moves to the network's output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from reluscope.errors import InputError
from reluscope.events.dnf import Variable
from reluscope.schema import Output, Schema

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Named(NamedTuple):
    """A value: `slope * variable + offset`."""

    variable: Variable
    slope: Fraction
    offset: Fraction


class Chosen(NamedTuple):
    """A category or the decision: one of several labels."""

    name: str
    what: str  # "level" or "class"
    labels: tuple[Any, ...]


class Scaled(NamedTuple):
    """An output on a scale that is not linear; `complement`: 1 minus it."""

    name: str
    output: int
    complement: bool = False


class Vocabulary:
    """What the names of a schema stand for."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        units = sorted({c.unit for c in schema.columns} | {o.unit for o in schema.outputs}, key=len, reverse=True)
        named = [re.escape(u) for u in units if u]
        self.unit = re.compile(rf"[ \t]*({'|'.join(named)})(?![A-Za-z0-9_])") if named else None
        """A unit that follows a number."""

    @property
    def spoken(self) -> list[str]:
        """All names, for a message."""
        decision = [self.schema.decision] if self.schema.classes else []
        return [*self.schema.output_names, *decision, *self.schema.names]

    def meaning(self, name: str) -> Named | Scaled | Chosen | None:
        """What a name stands for; None if it is not known."""
        s = self.schema
        if name in s.names:
            column, at = s.column(name), s.place(name).start
            if column.kind == "category":
                return Chosen(name, "level", column.levels)
            return _value(("x", at), column.scale, column.shift)
        if name in s.output_names:
            i = s.output_names.index(name)
            out = s.outputs[i]
            if out.link == "raw" and not out.calibration:
                return _value(("y", i), out.scale, out.shift)
            return Scaled(name, i)
        if name == s.decision and (s.classes or s.outputs) and s.rule:
            return Chosen(name, "class", s.classes or tuple(range(2 if s.rule == "above" else len(s.outputs))))
        if name in s.inputs:
            return Named(("x", s.inputs.index(name)), Fraction(1), Fraction(0))
        return None

    def places(self, letter: str) -> dict[str, int]:
        """The network's own inputs or outputs by name."""
        names = self.schema.inputs if letter == "x" else self.schema.output_names
        return {name: i for i, name in enumerate(names)}

    def unit_of(self, variable: Variable) -> str:
        """The unit of an input or output of the network."""
        letter, index = variable[0], int(variable[1]) if len(variable) > 1 and variable[0] in ("x", "y") else -1
        if letter == "y" and self.schema.outputs:
            return self.schema.outputs[index].unit
        if letter == "x":
            for c in self.schema.columns:
                place = self.schema.place(c.name)
                if place.start <= index < place.stop:
                    return c.unit
        return ""

    def level(self, name: str, index: int) -> list[tuple[int, str, float]]:
        """The inputs that say that a category has a level: (input, op, limit), half way to the codes of the others."""
        column, start = self.schema.column(name), self.schema.place(name).start
        codes = np.array(column.codes)
        own, others = codes[index], np.delete(codes, index, axis=0)
        differs = others != own
        if not differs.any(axis=1).all():
            twin = int(np.flatnonzero(~differs.any(axis=1))[0])
            twin += twin >= index
            raise InputError(
                f"the network cannot tell level {column.levels[index]!r} of {name} from {column.levels[twin]!r}: they "
                "have the same code"
            )
        alone = np.flatnonzero(differs.all(axis=0))
        limits: list[tuple[int, str, float]] = []
        for j in alone[:1].tolist() if len(alone) else np.flatnonzero(differs.any(axis=0)).tolist():
            below, above = others[others[:, j] < own[j], j], others[others[:, j] > own[j], j]
            limits += [(start + j, ">", float(own[j] + below.max()) / 2)] if len(below) else []
            limits += [(start + j, "<", float(own[j] + above.min()) / 2)] if len(above) else []
        return limits

    def probability(self, index: int) -> Scaled:
        """The probability of a class."""
        s = self.schema
        i = 0 if len(s.outputs) == 1 else index
        if not s.outputs or (s.outputs[i].link == "raw" and not s.outputs[i].calibration):
            raise InputError("the schema knows of no probabilities: its outputs have no sigmoid or softmax")
        return Scaled(f"P({s.classes[index]})", i, complement=len(s.outputs) == 1 and index == 0)

    def limit(self, left: Scaled, op: str, value: Fraction) -> bool | tuple[dict[int, Fraction], str, Fraction]:
        """`left op value` as `terms op' limit` on the network's own outputs; True or False if that does not matter."""
        s = self.schema
        out = s.outputs[left.output]
        if left.complement:
            op, value = _FLIPPED[op], 1 - value
        if out.link != "softmax" or len(s.outputs) == 1:
            found = out.raw(op, float(value))
            return found if isinstance(found, bool) else ({left.output: Fraction(1)}, found[0], Fraction(found[1]))
        if len(s.outputs) != 2:
            raise InputError(
                f"{left.name} is one of {len(s.outputs)} softmax probabilities, which is no linear condition on the "
                f"outputs; ask for the decision ({s.decision} == ...), or compare outputs y[i]"
            )
        found = Output("logit", link="sigmoid").raw(op, float(value))
        if isinstance(found, bool):
            return found
        terms, limit = {}, Fraction(found[1])
        for i, o in enumerate(s.outputs):
            sign = 1 if i == left.output else -1
            terms[i] = sign / Fraction(o.scale)
            limit += sign * Fraction(o.shift) / Fraction(o.scale)
        return terms, found[0], limit


def _value(variable: Variable, scale: float, shift: float) -> Named:
    return Named(variable, 1 / Fraction(scale), -Fraction(shift) / Fraction(scale))


def spelled(text: str, start: int, labels: Sequence[Any]) -> tuple[int, int]:
    """The longest label that is written at a place, and where it ends; (-1, start) if none is."""
    best, end = -1, start
    for flags in (0, re.IGNORECASE):
        for i, label in enumerate(labels):
            words = [re.escape(w) for w in str(label).split()]
            found = re.compile(r"\s+".join(words) + r"(?![A-Za-z0-9_])", flags).match(text, start) if words else None
            if found is not None and found.end() > end:
                best, end = i, found.end()
        if best >= 0:
            return best, end
    number = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?(?![A-Za-z0-9_.])").match(text, start)
    if number is not None:  # 1.0 for the label 1
        for i, label in enumerate(labels):
            if isinstance(label, (int, float)) and not isinstance(label, bool) and label == float(number.group()):
                return i, number.end()
    return -1, start
