"""What a report is made of: sections with an answer in words, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ASK_FOR_EVENTS = 'events=["y[0] > 1"]: the probability of an event, where it happens, and what would change it'
"""What one would give for the sections about events."""


@dataclass(frozen=True)
class Table:
    """Columns by name, shown up to `shown` rows and `wide` columns and written whole to a CSV file called `name`."""

    name: str
    caption: str
    columns: Mapping[str, Any]
    shown: int = 12
    wide: int | None = None

    @property
    def heads(self) -> list[str]:
        """Names of the columns shown."""
        return list(self.columns)[: self.wide]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> list[list[str]]:
        """The first `shown` rows as text."""
        count = min(len(self), self.shown)
        return [[cell(self.columns[name][i]) for name in self.heads] for i in range(count)]

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


def cell(value: Any) -> str:
    """A value as text: six digits, thousands separated, empty for None."""
    if value is None:
        return ""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "" if value != value else f"{value:.5g}"
    return str(value)


def _is_number(value: Any) -> bool:
    value = value.item() if hasattr(value, "item") else value
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
