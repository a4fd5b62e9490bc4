"""Answers: a number that says what it is.

`guarantee` is one of

- `"exact"`: complete enumeration, closed-form or quadrature masses; only rounding remains, within [lower, upper];
- `"sound"`: a deterministic bracket that holds for the real-valued network, not necessarily tight;
- `"confidence"`: an estimate whose interval holds with probability `level`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A probability (or another number) with its bracket, its guarantee, and how it was found."""

    value: float
    lower: float
    upper: float
    guarantee: str
    level: float | None = None
    method: str = ""
    note: str = ""

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        kind = self.guarantee if self.level is None else f"{self.guarantee} {100 * self.level:g} %"
        return f"{self.value:.6g} in [{self.lower:.6g}, {self.upper:.6g}] ({kind})"

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {
            "value": self.value,
            "lower": self.lower,
            "upper": self.upper,
            "guarantee": self.guarantee,
            "level": self.level,
            "method": self.method,
            "note": self.note,
        }
