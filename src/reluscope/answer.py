"""Answers: a number that says what it is.

`guarantee` is one of

- `"exact"`: complete enumeration, closed-form or quadrature masses; only rounding remains, within [lower, upper];
- `"sound"`: a deterministic bracket that holds for the real-valued network, not necessarily tight;
- `"confidence"`: an estimate whose interval holds with probability `level`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from reluscope._check import real
from reluscope.errors import InputError


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """A probability (or another number) with its bracket, its guarantee, and how it was found.

    `method` says how, `note` why so and what to know, `evaluations` how many cells, boxes or points of the network were
    looked at, `seconds` how long it took (None where not counted). `value` is the estimate, or for "exact" the number
    itself; the middle of a "sound" bracket, which is no estimate: its text leads with the bracket when it starts at 0
    ("at most 0.0043").

    `answer < x` is True when the whole bracket is below x, False when none of it is, and an `InputError` when the
    bracket holds x: then the answer does not say. `certainly_below(x)` and `certainly_above(x)` are plain questions
    with a bool for an answer. Equality is that of all fields.
    """

    value: float
    lower: float
    upper: float
    guarantee: str
    level: float | None = None
    method: str = ""
    note: str = ""
    evaluations: int | None = None
    seconds: float | None = None

    @property
    def width(self) -> float:
        """`upper - lower`."""
        return self.upper - self.lower

    def certainly_below(self, x: float) -> bool:
        """Whether the whole bracket is below `x` (for a confidence answer: at its level)."""
        return self.upper < real(x, "x")

    def certainly_above(self, x: float) -> bool:
        """Whether the whole bracket is above `x` (for a confidence answer: at its level)."""
        return self.lower > real(x, "x")

    def __lt__(self, x: Any) -> bool:
        return self._decided(x, self.upper < x, self.lower >= x, "<") if _is_number(x) else NotImplemented

    def __le__(self, x: Any) -> bool:
        return self._decided(x, self.upper <= x, self.lower > x, "<=") if _is_number(x) else NotImplemented

    def __gt__(self, x: Any) -> bool:
        return self._decided(x, self.lower > x, self.upper <= x, ">") if _is_number(x) else NotImplemented

    def __ge__(self, x: Any) -> bool:
        return self._decided(x, self.lower >= x, self.upper < x, ">=") if _is_number(x) else NotImplemented

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        kind = self.guarantee if self.level is None else f"{self.guarantee} {100 * self.level:g} %"
        if self.guarantee == "sound" and self.lower == 0.0 < self.upper:
            most = _rounded_up(self.upper)
            return f"at most {most}, in [0, {most}] ({kind})"
        return f"{self.value:.6g} in [{self.lower:.6g}, {self.upper:.6g}] ({kind})"

    def __repr__(self) -> str:
        return f"Answer({'; '.join(filter(None, [str(self), self.method, self.note]))})"

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
            "evaluations": self.evaluations,
            "seconds": self.seconds,
        }

    def _decided(self, x: Any, yes: bool, no: bool, sign: str) -> bool:
        if not (yes or no):
            raise InputError(
                f"answer {sign} {x!r} is undecided: the bracket [{self.lower:.6g}, {self.upper:.6g}] holds it; compare "
                "answer.value, or ask answer.certainly_below(x) or certainly_above(x)"
            )
        return bool(yes)


def _rounded_up(x: float) -> str:
    """Six digits, not below x by more than a part in 1e11."""
    text = f"{x:.6g}"
    if float(text) >= x * (1 - 1e-11):
        return text
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(Decimal(float(x)))):.6g}"


def _is_number(x: Any) -> bool:
    try:
        float(x)
    except (TypeError, ValueError):
        return False
    return not isinstance(x, (str, bytes, Answer))
