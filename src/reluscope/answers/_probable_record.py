"""The record of the most probable patterns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reluscope._check import integer
from reluscope.answer import Answer, Answers
from reluscope.network import Network, Pattern


@dataclass(frozen=True, eq=False, repr=False)
class Probable:
    """What `probable` returns: patterns, most probable first, with their masses and what is left.

    Attributes
    ----------
    network : Network
    pattern : (n, units) array
    mass : Answers
        Shape (n,). With guarantee "confidence" each interval holds on its own at the stated level.
    total, left : Answer
        Probability of all listed patterns together, and of all others.
    next : Answer
        Bounds the mass of any single pattern that is not listed: [0, upper].
    stopped : str or None
        Why the target was not reached.
    method : str
    seed : int or None
        The `rng=` that repeats the answer; None where nothing was drawn or a Generator was given.
    """

    network: Network
    pattern: Pattern
    mass: Answers
    total: Answer
    left: Answer
    next: Answer
    stopped: str | None
    method: str
    seed: int | None = None

    def __len__(self) -> int:
        return len(self.pattern)

    def __iter__(self) -> Iterator[tuple[Pattern, Answer]]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> tuple[Pattern, Answer]:
        i = integer(i, "i", low=-len(self), high=len(self) - 1) % len(self)
        return self.pattern[i], replace(self.mass[i], method=self.method)

    @property
    def reached(self) -> bool:
        """Whether the mass or the number that was asked for has been found (at the stated guarantee)."""
        return self.stopped is None

    @property
    def ranked(self) -> int:
        """How many leading patterns are certainly at least as probable as everything after them.

        With guarantee "confidence": if all intervals hold, each of which does so at the stated level only by itself.
        """
        after = np.append(np.maximum.accumulate(self.mass.upper[::-1])[::-1][1:], 0.0)
        sure = np.minimum.accumulate(self.mass.lower) >= np.maximum(after, self.next.upper)
        return int(np.flatnonzero(sure)[-1]) + 1 if sure.any() else 0

    def to_dict(self) -> dict[str, Any]:
        """Patterns as text with their masses, and the certificate."""
        return {
            "pattern": ["".join(map(str, row)) for row in self.pattern.tolist()],
            "mass": self.mass.value.tolist(),
            "mass_lower": self.mass.lower.tolist(),
            "mass_upper": self.mass.upper.tolist(),
            "guarantee": self.mass.guarantee,
            "total": self.total.to_dict(),
            "left": self.left.to_dict(),
            "next": self.next.to_dict(),
            "stopped": self.stopped,
            "method": self.method,
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        state = "" if self.reached else f", {self.stopped}"
        return (
            f"Probable({len(self):,} patterns, mass {self.total}, any other at most {self.next.upper:.3g}, "
            f"{self.method}{state})"
        )
