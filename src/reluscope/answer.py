"""Answers: numbers that say what they are.

`guarantee` is one of

- `"exact"`: complete enumeration, closed-form or quadrature masses; only rounding remains, within [lower, upper];
- `"sound"`: a deterministic bracket that holds for the real-valued network, not necessarily tight;
- `"confidence"`: an estimate whose interval holds with probability `level`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from enum import StrEnum
from html import escape
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from reluscope._check import SEEDS, FloatArray, choice, describe, instance, integer, real, real_array, text
from reluscope._text import html_table, in_bracket
from reluscope.errors import InputError, InputTypeError

GUARANTEES = ("exact", "sound", "confidence")


class Status(StrEnum):
    """How the work behind an answer ended; `advice` says what to do about it ("" when there is nothing to do)."""

    DONE = "done"
    BUDGET = "budget ended"
    INTERRUPTED = "interrupted"
    TOLERANCE = "tolerance not reached"
    NOTHING_MET = "nothing found"
    TOO_FEW = "too few samples"
    UNDECIDED = "undecided in double precision"

    @property
    def advice(self) -> str:
        """What would give a better answer."""
        return _ADVICE[self]


_ADVICE = {
    Status.DONE: "",
    Status.BUDGET: "The bracket holds, unfinished parts included; a larger budget= narrows it.",
    Status.INTERRUPTED: "The bracket holds, unfinished parts included; run it again to the end to narrow it.",
    Status.TOLERANCE: "The interval is wider than asked for; a larger budget= narrows it.",
    Status.NOTHING_MET: "No sample hit the event: only the upper bound counts; guarantee='sound' may prove more.",
    Status.TOO_FEW: "Too few samples for an interval; give a larger budget=.",
    Status.UNDECIDED: "What is left is too thin to decide in double precision; more work will not narrow the bracket.",
}

_SHOWN = 20
"""Numbers in a printed table, at the most."""


class Stop(str):
    """Why work ended early, in words for people, with the `Status` for programs."""

    status: Status

    def __new__(cls, text: str, status: Status) -> Stop:
        """The words `text` with a status."""
        out = super().__new__(cls, text)
        out.status = status
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return Stop, (str(self), self.status)


def status_of(stopped: str | None) -> Status:
    """The status of work that ended for this reason (None: it was finished)."""
    return Status.DONE if stopped is None else getattr(stopped, "status", Status.BUDGET)


def unless_interrupted(stopped: str | Answer | Answers | None) -> None:
    """Go on only if it was not Ctrl-C that ended the work: what comes next must not swallow it."""
    status = stopped.status if isinstance(stopped, (Answer, Answers)) else status_of(stopped)
    if status is Status.INTERRUPTED:
        raise KeyboardInterrupt


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """A probability (or another number) with its bracket, its guarantee, and how it was computed.

    Attributes
    ----------
    value : float
        The estimate, or for "exact" the number itself. The middle of a "sound" bracket, which is no estimate: its text
        leads with the bracket when it starts at 0 ("at most 0.0043").
    lower, upper
        The bracket.
    guarantee : {"exact", "sound", "confidence"}
        What holds; see the module.
    level : float or None
        Confidence level, for "confidence" only.
    method, note : str
        How it was computed; why, and what to keep in mind. Both are for people.
    evaluations : int or None
        Regions, boxes or points of the network that were visited.
    seconds : float or None
        How long it took.
    status : Status
        Whether the work ended as asked for; `status.advice` says what to do if not.
    seed : int or None
        The `rng=` that repeats the answer (None where nothing was drawn or a Generator was given).

    Notes
    -----
    `answer < x` is True when the whole bracket is below x, False when none of it is, and an `InputError` when the
    bracket holds x: then the answer does not decide. `certainly_below(x)` and `certainly_above(x)` always give a bool.
    Equality is that of all fields.

    Examples
    --------
    >>> answer = Answer(0.02, 0.01, 0.03, "sound")
    >>> answer < 0.05, answer.certainly_above(0.015)
    (True, False)
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
    status: Status = Status.DONE
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("value", "lower", "upper"):
            if not isinstance(number := getattr(self, name), float):
                object.__setattr__(self, name, _number(number, name))
        _check_facts(self)

    @property
    def width(self) -> float:
        """`upper - lower`."""
        return self.upper - self.lower

    def certainly_below(self, x: float) -> bool:
        """Whether the whole bracket is below `x` (for a confidence answer: at its level).

        Parameters
        ----------
        x : float

        Returns
        -------
        bool
        """
        return self.upper < real(x, "x")

    def certainly_above(self, x: float) -> bool:
        """Whether the whole bracket is above `x` (for a confidence answer: at its level).

        Parameters
        ----------
        x : float

        Returns
        -------
        bool
        """
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
        kind = _kind(self)
        if self.guarantee == "sound" and self.lower == 0.0 < self.upper:
            most = _rounded_up(self.upper)
            return f"at most {most}, in [0, {most}] ({kind})"
        return f"{in_bracket(self.value, self.lower, self.upper)} ({kind})"

    def __repr__(self) -> str:
        return f"Answer({'; '.join(filter(None, [str(self), self.method, self.note]))})"

    def _repr_html_(self) -> str:
        number, _, kind = str(self).rpartition(" (")
        how = "; ".join(filter(None, [self.method, self.note]))
        return f"<div><b>{escape(number)}</b> <i>{escape(kind.rstrip(')'))}</i><br><small>{escape(how)}</small></div>"

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {"value": self.value, "lower": self.lower, "upper": self.upper, **_facts(self)}

    def _decided(self, x: Any, yes: bool, no: bool, sign: str) -> bool:
        if not (yes or no):
            raise InputError(
                f"answer {sign} {x!r} is undecided: the bracket [{self.lower:.6g}, {self.upper:.6g}] holds it; compare "
                "answer.value, or ask answer.certainly_below(x) or certainly_above(x)"
            )
        return bool(yes)


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Many numbers with brackets: arrays `value`, `lower`, `upper` of one shape; the other fields as in `Answer`.

    With `guarantee="confidence"` each bracket holds on its own with probability `level`. `answers[i]` and iteration
    give an `Answer`, slices and index arrays `Answers`; `numpy.asarray(answers)` gives the values. `status` says
    whether every number has the accuracy asked for.

    Attributes
    ----------
    value, lower, upper : arrays of one shape
        The estimates (or the numbers themselves) and their brackets.
    guarantee, level, method, note, evaluations, seconds, status, seed
        As in `Answer`, for all numbers together.
    """

    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    guarantee: str
    level: float | None = None
    method: str = ""
    note: str = ""
    evaluations: int | None = None
    seconds: float | None = None
    status: Status = Status.DONE
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("value", "lower", "upper"):
            if not isinstance(array := getattr(self, name), np.ndarray) or array.dtype != np.float64:
                object.__setattr__(self, name, real_array(array, name, finite=False))
        if not self.value.shape == self.lower.shape == self.upper.shape:
            shapes = self.value.shape, self.lower.shape, self.upper.shape
            raise InputError(f"value, lower and upper must have one shape, got {shapes}")
        _check_facts(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of the three arrays."""
        return self.value.shape

    @property
    def width(self) -> FloatArray:
        """`upper - lower`."""
        return self.upper - self.lower

    @property
    def complete(self) -> bool:
        """Whether every number has the accuracy asked for."""
        return self.status is Status.DONE

    @property
    def total(self) -> Answer:
        """The sum, for probabilities of sets that do not meet: within [0, 1].

        Exact and sound brackets add up. Errors of estimates are taken as independent, so their half-widths add up as
        the root of the sum of squares; brackets of numbers that were not measured (value 0) add up in full.
        """
        value = math.fsum(self.value)
        down, up = self.value - self.lower, self.upper - self.value
        if self.guarantee == "confidence":
            known = self.value > 0
            below = math.sqrt(math.fsum(down[known] ** 2))
            above = math.sqrt(math.fsum(up[known] ** 2)) + math.fsum(up[~known])
        else:
            below, above = math.fsum(down), math.fsum(up)
        lower, upper = max(value - below, 0.0), min(value + above, 1.0)
        ends = value, min(lower, value), max(upper, value)
        return Answer(*ends, self.guarantee, self.level, self.method or f"sum of {len(self):,}", *self._rest())

    def certainly_below(self, x: Any) -> npt.NDArray[np.bool_]:
        """Where the whole bracket is below `x`.

        Parameters
        ----------
        x : float or array

        Returns
        -------
        array of bool
        """
        return np.asarray(self.upper < self._limits(x))

    def certainly_above(self, x: Any) -> npt.NDArray[np.bool_]:
        """Where the whole bracket is above `x`.

        Parameters
        ----------
        x : float or array

        Returns
        -------
        array of bool
        """
        return np.asarray(self.lower > self._limits(x))

    def _limits(self, x: Any) -> FloatArray:
        limits = real_array(x, "x", finite=False)
        try:
            np.broadcast_shapes(limits.shape, self.shape)
        except ValueError:
            raise InputError(f"x must be a number or of shape {self.shape}, got shape {limits.shape}") from None
        return limits

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Any: ...
    @overload
    def __getitem__(self, index: slice | list[Any] | npt.NDArray[Any]) -> Answers: ...
    @overload
    def __getitem__(self, index: Any) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        """A part of the numbers; a single one comes as an `Answer`."""
        try:
            value, lower, upper = (np.asarray(a[index]) for a in (self.value, self.lower, self.upper))
        except (IndexError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, IndexError) and isinstance(index, (int, np.integer)) and abs(int(index)) < 1 << 63:
                raise IndexError(f"number {int(index)} does not exist: there are {len(self)}") from None
            raise InputError(
                f"index: answers of shape {self.shape} are indexed like arrays, got {describe(index)}"
            ) from error
        if value.ndim:
            return replace(self, value=value, lower=lower, upper=upper)
        return Answer(
            float(value), float(lower), float(upper), self.guarantee, self.level, self.method, *self._rest()
        )  # fmt: skip

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.value, dtype=dtype) if copy else np.asarray(self.value, dtype=dtype)

    def __float__(self) -> float:
        return float(self.value)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, arrays as lists, fit for JSON."""
        arrays = {name: getattr(self, name).tolist() for name in ("value", "lower", "upper")}
        return {**arrays, **_facts(self)}

    def to_pandas(self) -> Any:
        """A DataFrame with the columns `value`, `lower`, `upper`, one row per number."""
        from reluscope._extras import require

        arrays = {name: getattr(self, name).ravel() for name in ("value", "lower", "upper")}
        return require("pandas", "pandas").DataFrame(arrays)

    def __str__(self) -> str:
        flat = [a.ravel()[:_SHOWN].tolist() for a in (self.value, self.lower, self.upper)]
        rows = [" ".join(f"{x:>12}" for x in ("value", "lower", "upper"))]
        rows += [" ".join(f"{x:12.6g}" for x in row) for row in zip(*flat, strict=True)]
        rows += [f"... {self.value.size - _SHOWN:,} more"] if self.value.size > _SHOWN else []
        return "\n".join([*rows, f"({_kind(self)})"])

    def _repr_html_(self) -> str:
        columns = {name: getattr(self, name).ravel() for name in ("value", "lower", "upper")}
        return f"{html_table(columns)}<small>{escape(_kind(self))}</small>"

    def __repr__(self) -> str:
        with np.printoptions(precision=6, threshold=8, edgeitems=3):
            shown = np.array2string(self.value, separator=", ", prefix="Answers(")
        parts = [shown, f"brackets up to {float(np.max(self.width, initial=0.0)):.2g} wide", _kind(self)]
        return f"Answers({', '.join(parts)}{'' if self.complete else f', {self.status}: {self.note}'})"

    def _rest(self) -> tuple[Any, ...]:
        return self.note, self.evaluations, self.seconds, self.status, self.seed


def _number(value: Any, name: str) -> float:
    """A float, infinite or nan where nothing is known."""
    array = real_array(value, name, ndim=0, finite=False)
    if isinstance(value, (bool, np.bool_)):
        raise InputTypeError(f"{name} must be a real number, got {describe(value)}")
    return float(array)


def _check_facts(answer: Answer | Answers) -> None:
    """The fields that an answer and many have in common."""
    # "approximation" is no guarantee: a formula's number without a bracket, and it says so.
    choice(answer.guarantee, "guarantee", (*GUARANTEES, "approximation"))
    if answer.level is not None:
        object.__setattr__(answer, "level", real(answer.level, "level", low=0.0, high=1.0))
    text(answer.method, "method")
    text(answer.note, "note")
    if answer.evaluations is not None:
        integer(answer.evaluations, "evaluations", low=0)
    if answer.seconds is not None:
        object.__setattr__(answer, "seconds", real(answer.seconds, "seconds", low=0.0))
    instance(answer.status, "status", Status, "a Status")
    if answer.seed is not None:
        integer(answer.seed, "seed", low=0, high=SEEDS - 1)


def _kind(answer: Answer | Answers) -> str:
    if answer.level is None:
        return answer.guarantee
    return f"{answer.guarantee} {100 * answer.level:g} %{'' if isinstance(answer, Answer) else ' each'}"


def _facts(answer: Answer | Answers) -> dict[str, Any]:
    """The fields that an answer and many have in common, fit for JSON."""
    names = ("guarantee", "level", "method", "note", "evaluations", "seconds", "seed")
    status = {"status": answer.status.value, "advice": answer.status.advice}
    return {**{name: getattr(answer, name) for name in names}, **status}


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
