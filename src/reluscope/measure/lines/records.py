"""Questions and answers of `reluscope.measure.lines.integration`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, integer, real_array
from reluscope.answer import Answers
from reluscope.errors import InputError
from reluscope.network import Network, Pattern


@dataclass(frozen=True, eq=False)
class Event:
    """A union of conjunctions of half-spaces of the output: `G y <= h` for some (G, h) in `parts`.

    With `strict` rows hold with `<`; it matters only where the output's law has atoms.
    """

    parts: tuple[tuple[FloatArray, FloatArray], ...]
    strict: bool = False

    @classmethod
    def below(cls, G: npt.ArrayLike, h: npt.ArrayLike, *, strict: bool = False) -> Event:
        """The conjunction `G y <= h`; one row may be given as a vector and a number."""
        rows = np.atleast_2d(real_array(G, "G", ndim=(1, 2)))
        bounds = np.atleast_1d(real_array(h, "h", ndim=(0, 1)))
        if len(rows) != len(bounds):
            raise InputError(f"G and h must have equally many rows, got {len(rows)} and {len(bounds)}")
        return cls(((rows, bounds),), strict)

    @classmethod
    def largest(cls, output: int, n_outputs: int) -> Event:
        """`y[output]` is the largest output."""
        output = integer(output, "output", low=0, high=integer(n_outputs, "n_outputs", low=1) - 1)
        rows = np.delete(np.eye(n_outputs), output, axis=0)
        rows[:, output] = -1.0
        return cls(((rows, np.zeros(n_outputs - 1)),))

    def __or__(self, other: Event) -> Event:
        if not isinstance(other, Event) or other.strict != self.strict:
            return NotImplemented
        return Event(self.parts + other.parts, self.strict)


@dataclass(frozen=True, eq=False)
class Request:
    """What to integrate.

    `levels`: thresholds by output, `{output: thresholds}`, or plain thresholds for a single output; gives P(y <= c)
    and P(y > c), and with `density=True` the density of y at c. `events`: probabilities of `Event`s. `moments`: E y
    and E y y'. `marginals`: P(unit on piece p) for every hidden unit. `patterns`: masses of activation patterns, at
    most so many different ones kept. `atoms`: values that outputs take with positive probability.
    """

    levels: Any = None
    density: bool = False
    events: Sequence[Event] = ()
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
    `lines` how many lines or points were used.
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

    def __repr__(self) -> str:
        return (
            f"Integrals({self.how}, {self.replicates} groups, {self.interval} {100 * self.level:g} %, "
            f"{self.seconds:.3g} s)"
        )

    @property
    def how(self) -> str:
        """How many lines in which direction, or points, in words."""
        return f"{self.lines:,} {self.method}" + (f", direction {self.direction}" if self.direction != "none" else "")


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
