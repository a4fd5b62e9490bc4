"""Questions and answers of `reluscope.measure.lines.integration`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reluscope._check import FloatArray, integer, real_array
from reluscope.answer import Answers
from reluscope.errors import InputError
from reluscope.events import Event, PlacedEvent
from reluscope.network import Network, Pattern


@dataclass(frozen=True, eq=False)
class Request:
    """What to integrate.

    `levels`: thresholds by output, `{output: thresholds}`, or plain thresholds for a single output; gives P(y <= c)
    and P(y > c), and with `density=True` the density of y at c. `events`: probabilities of
    events on inputs and outputs; ones that are placed already must be placed together. `moments`: E y
    and E y y'. `marginals`: P(unit on piece p) for every hidden unit. `patterns`: masses of activation patterns, at
    most so many different ones kept. `atoms`: values that outputs take with positive probability.
    """

    levels: Any = None
    density: bool = False
    events: Sequence[Event | PlacedEvent] = ()
    moments: bool = False
    marginals: bool = False
    patterns: int = 0
    atoms: bool = False


@dataclass(frozen=True, eq=False)
class Levels:
    """P(y <= c) `cdf`, P(y > c) `sf` and the density `pdf` (None if not asked for) at the sorted `thresholds`."""

    thresholds: FloatArray
    cdf: Answers
    sf: Answers
    pdf: Answers | None


@dataclass(frozen=True, eq=False)
class PatternMasses:
    """Patterns met, the heaviest first, with their masses; `rest` is the mass of patterns met but not kept."""

    pattern: Pattern
    mass: Answers
    rest: float


@dataclass(frozen=True, eq=False)
class Atoms:
    """Values that an output takes with positive probability, and those probabilities."""

    value: FloatArray
    mass: Answers


@dataclass(frozen=True, eq=False)
class Integrals:
    """The answer of `integrate`.

    `interval` is "replicate", "block", "finite-sample" (see the module) or "exact" (one line or finitely many points
    say it all); `method` names lines, points or aimed points, `direction` how the lines run (of the first component),
    `lines` how many lines or points were used for the intervals; `value_by` is how the values were found, in words,
    where that was by a run of their own.
    """

    levels: Mapping[int, Levels]
    events: Answers | None
    mean: Answers | None
    second: Answers | None
    marginals: Answers | None
    patterns: PatternMasses | None
    atoms: Mapping[int, Atoms]
    interval: str
    level: float
    method: str
    direction: str
    lines: int
    replicates: int
    seconds: float
    note: str = ""
    value_by: str = ""
    value_lines: int = 0

    def __repr__(self) -> str:
        return (
            f"Integrals({self.how}, {self.replicates} groups, {self.interval} {100 * self.level:g} %, "
            f"{self.seconds:.3g} s)"
        )

    @property
    def how(self) -> str:
        """How many lines in which direction, or points, in words."""
        words = f"{self.lines:,} {self.method}" + (f", direction {self.direction}" if self.direction != "none" else "")
        return f"{words}; value by {self.value_lines:,} {self.value_by}" if self.value_by else words


def level_map(net: Network, levels: Any) -> dict[int, FloatArray]:
    """The thresholds of each output asked for, sorted."""
    if levels is None:
        return {}
    if not isinstance(levels, Mapping):
        if net.n_outputs != 1:
            raise InputError(f"levels must be {{output: thresholds}} for a network with {net.n_outputs} outputs")
        levels = {0: levels}
    out = {}
    for output, thresholds in levels.items():
        o = integer(output, "output in levels", low=0, high=net.n_outputs - 1)
        out[o] = np.sort(np.atleast_1d(real_array(thresholds, f"levels[{o}]", ndim=(0, 1))))
    return {o: c for o, c in out.items() if len(c)}
