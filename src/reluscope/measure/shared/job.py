"""What is summed over lines or points: forms of the outputs, thresholds, events, moments, units, patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.events import PlacedEvent

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FormRows:
    """Placed events as the kernels read them: rows `form <= bound`, conjunctions of rows, unions of conjunctions."""

    form: npt.NDArray[np.int64]
    bound: FloatArray
    strict: npt.NDArray[np.bool_]
    parts: npt.NDArray[np.int64]
    part_start: npt.NDArray[np.int64]
    part_event: npt.NDArray[np.int64]
    part_size: npt.NDArray[np.int64]
    count: int

    @property
    def members(self) -> npt.NDArray[np.bool_]:
        """Which rows (columns) belong to which conjunctions."""
        out = np.zeros((len(self.part_event), len(self.form)), bool)
        for i in range(len(self.form)):
            out[self.parts[self.part_start[i] : self.part_start[i + 1]], i] = True
        return out

    def inside(self, outputs: FloatArray) -> npt.NDArray[np.bool_]:
        """Which points, known by their forms (n, forms), are in which events, (n, count)."""
        y = outputs[:, self.form]
        met = np.where(self.strict, y < self.bound, y <= self.bound)
        true = np.zeros((len(outputs), len(self.part_event)), np.int64)
        for i in range(len(self.form)):
            true[:, self.parts[self.part_start[i] : self.part_start[i + 1]]] += met[:, i, None]
        out = np.zeros((len(outputs), self.count), bool)
        for part, event in enumerate(self.part_event):
            out[:, event] |= true[:, part] == self.part_size[part]
        return out


def form_rows(events: Sequence[PlacedEvent], form: Callable[[FloatArray], int]) -> FormRows:
    """The rows of events that are placed together; `form` numbers the linear forms of their network's outputs."""
    index: dict[tuple[int, float, bool], int] = {}
    members: list[list[int]] = []
    part_event: list[int] = []
    part_size: list[int] = []
    for e, event in enumerate(placed.filled for placed in events):
        for case in event.cases:
            part = len(part_event)
            mine = set()
            for row, bound, strict in zip(event.G[case], event.g[case], event.strict[case], strict=True):
                i = index.setdefault((form(row), float(bound), bool(strict)), len(index))
                if i == len(members):
                    members.append([])
                if i not in mine:
                    members[i].append(part)
                    mine.add(i)
            part_event.append(e)
            part_size.append(len(mine))
    keys = list(index)
    return FormRows(
        np.array([k[0] for k in keys], np.int64),
        np.array([k[1] for k in keys], np.float64),
        np.array([k[2] for k in keys], np.bool_),
        np.array([p for m in members for p in m], np.int64),
        np.concatenate([[0], np.cumsum([len(m) for m in members])]).astype(np.int64),
        np.array(part_event, np.int64),
        np.array(part_size, np.int64),
        len(events),
    )


@dataclass(frozen=True, eq=False)
class Job:
    """What is summed: linear forms of the outputs, thresholds for some of them, events, moments, units, patterns."""

    forms: FloatArray
    level_forms: tuple[int, ...]
    thresholds: tuple[FloatArray, ...]
    density: bool
    rows: FormRows
    moment_forms: npt.NDArray[np.int64]
    marginals: bool
    patterns: int
    atom_forms: tuple[int, ...]

    @property
    def n_levels(self) -> int:
        """Thresholds over all forms."""
        return sum(len(c) for c in self.thresholds)

    @property
    def switches(self) -> bool:
        """Whether the pieces of the units are asked for."""
        return self.marginals or self.patterns > 0

    @property
    def limits(self) -> list[FloatArray]:
        """The thresholds of every form, in levels and events."""
        found: list[list[FloatArray]] = [[np.zeros(0)] for _ in self.forms]
        for form, c in zip(self.level_forms, self.thresholds, strict=True):
            found[form].append(c)
        for form, bound in zip(self.rows.form, self.rows.bound, strict=True):
            found[form].append(np.atleast_1d(bound))
        return [np.concatenate(c) for c in found]

    def below(self, outputs: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether points, known by their forms (n, forms), have `y <= c`, (n, levels)."""
        none = np.zeros((len(outputs), 0), bool)
        pairs = zip(self.level_forms, self.thresholds, strict=True)
        return np.concatenate([none, *(outputs[:, form, None] <= c for form, c in pairs)], axis=1)


@dataclass(frozen=True, eq=False)
class Sides:
    """Which side of every level and event is the rarer one, and summed.

    `above[q]`: level q is summed as `y > c`. `outside[e]`: event e is summed as its complement.
    """

    above: Flags
    outside: Flags

    def summed(self) -> Iterator[tuple[str, slice, Flags]]:
        """Kinds of quantity, where theirs are among levels and events, and which are complements of what is summed."""
        k = len(self.above)
        kinds = (
            ("below", slice(0, k), self.above),
            ("above", slice(0, k), ~self.above),
            ("events", slice(k, None), self.outside),
        )
        return (kind for kind in kinds if len(kind[2]))

    def indicators(self, job: Job, outputs: FloatArray) -> Flags:
        """Whether each point, known by its forms (n, forms), is on the rarer side: (n, levels + events)."""
        return np.concatenate([job.below(outputs) ^ self.above, job.rows.inside(outputs) ^ self.outside], axis=1)

    def hits(self, job: Job, outputs: FloatArray) -> npt.NDArray[np.intp]:
        """The points that are on the rarer side of anything."""
        if job.rows.count:
            return np.flatnonzero(self.indicators(job, outputs).any(axis=1))
        hit = np.zeros(len(outputs), bool)
        column = 0
        for form, c in zip(job.level_forms, job.thresholds, strict=True):
            above = self.above[column : column + len(c)]
            hit |= outputs[:, form] > c[above].min(initial=np.inf)
            hit |= outputs[:, form] <= c[~above].max(initial=-np.inf)
            column += len(c)
        return np.flatnonzero(hit)
