"""What a report is made of: sections with an answer in words, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from reluscope._text import bracket_parts

ASK_FOR_EVENTS = (
    "How likely is an event, where does it happen, and what would change that? "
    'Give events=["y[0] > 1"] (--event in the shell).'
)
"""What one would give for the sections about events."""


_ONE_NUMBER = 1e-7
"""Relative width below which a bracket is one number in a table: nobody reads more digits."""


@dataclass(frozen=True)
class Table:
    """Columns by name, shown up to `shown` rows and `wide` columns and written whole to a CSV file called `name`.

    Numbers are shown with so many `digits`; fewer where a bracket stands beside them.
    """

    name: str
    caption: str
    columns: Mapping[str, Any]
    shown: int = 12
    wide: int | None = None
    digits: int = 5

    @property
    def heads(self) -> list[str]:
        """Names of the columns shown: without the ends of brackets that are too narrow to be seen in any row."""
        return [name for name in self._listed if name not in self._unseen]

    @property
    def _listed(self) -> list[str]:
        return list(self.columns)[: self.wide]

    @cached_property
    def _brackets(self) -> dict[str, tuple[str, str, str]]:
        """The columns of each bracket (a number, its lower and its upper end, side by side), by any of the three."""
        names = self._listed
        triples = [tuple(names[k : k + 3]) for k in range(len(names) - 2)]
        found = [t for t in triples if t[1].startswith("lower") and t[2].startswith("upper")]
        return {name: (a, b, c) for a, b, c in found for name in (a, b, c)}

    @cached_property
    def _unseen(self) -> set[str]:
        out: set[str] = set()
        for a, b, c in set(self._brackets.values()):
            if all(len({self._cell(name, i) for name in (a, b, c)}) == 1 for i in range(self._count)):
                out |= {b, c}
        return out

    @property
    def _count(self) -> int:
        return min(len(self), self.shown)

    def _cell(self, name: str, i: int) -> str:
        """One entry as text; a number in a bracket has the digits that the bracket supports."""
        triple = self._brackets.get(name)
        numbers = () if triple is None else tuple(self.columns[part][i] for part in triple)
        if triple is None or any(v is None or v != v for v in numbers):
            return cell(self.columns[name][i], self.digits)
        value, lower, upper = (float(v) for v in numbers)
        if upper - lower <= _ONE_NUMBER * max(abs(lower), abs(upper)):
            return cell(numbers[0], self.digits)
        return bracket_parts(value, lower, upper)[triple.index(name)]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> list[list[str]]:
        """The first `shown` rows as text."""
        return [[self._cell(name, i) for name in self.heads] for i in range(self._count)]

    def numeric(self) -> list[bool]:
        """Which columns hold numbers (set flush right)."""
        return [all(_is_number(v) for v in list(self.columns[name])[: self.shown]) for name in self.heads]


@dataclass(frozen=True)
class Figure:
    """An SVG element and the sentence below it."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One question: the `answer` in words first, then what backs it.

    `guarantee` is "exact", "sound", "confidence", "estimate" or "" (nothing to guarantee). A section that
    could not be worked out has `reason`.
    """

    key: str
    title: str
    answer: str = ""
    guarantee: str = ""
    blocks: Sequence[Table | Figure | str] = ()
    reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What a program would want: goes to the JSON file."""
    headline: str = ""
    """A line for the summary at the top, or nothing."""
    ask: str = ""
    """What one would give to have this section; such a section is not shown."""
    late: bool = False
    """Whether there was no time for it: the page names all such sections in one sentence."""

    @property
    def first(self) -> bool:
        """Whether it stands right under the first screen, not folded; what could not be worked out is among details."""
        return self.key in ("density", "sensitivity", "sweep", "local") and not self.ask and not self.reason


def cell(value: Any, digits: int = 5) -> str:
    """A value as text: so many digits, thousands separated, empty for None."""
    if value is None:
        return ""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "" if value != value else f"{value:.{digits}g}"
    return str(value)


def _is_number(value: Any) -> bool:
    value = value.item() if hasattr(value, "item") else value
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
