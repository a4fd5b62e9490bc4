"""One record of limits, for everything that reads untrusted files and for what an enumeration may hold in memory.

Each loader takes `limits=`; a breach raises `InputLimitError` through `Limits.check`, which names the limit, what
came, and how to raise it. `reluscope.regions` does not raise: it ends with what was found and says so.

A loader starts the clock with `started(limits)` and passes that record on: every `check` then looks at the clock as
well, and loops without a size to check call `check_time`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any

from reluscope._check import instance, integer, real
from reluscope.errors import InputLimitError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a loader may read or build before it refuses.

    The defaults admit every network that can sensibly be analysed on one machine and stop files that are built
    to exhaust it: with them, a file of any content is read or refused within 2 GB of memory and about a minute.

    Parameters
    ----------
    **limits : int or float
        The limits to change, by name; a breach is an `InputLimitError` that names the limit.

    Examples
    --------
    >>> Limits(layers=100).layers
    100
    """

    file_bytes: int = 1 << 29
    """Size of a file on disk, and of an archive's members once inflated, added up."""
    text_bytes: int = 1 << 28
    """Size of a text (CSV, JSON, VNN-LIB) once inflated; with letters beyond ASCII it counts four times."""
    tensors: int = 100_000
    """Tensors (ONNX initialisers and constants, archive members, state-dict entries)."""
    elements: int = 1 << 26
    """Numbers (of 8 bytes) held by the tensors of a file together; also the largest single intermediate tensor.

    What is not a number counts as the numbers that fit in its place: a value of a JSON file as 8, an entry of a
    tensor that depends on the input as 16, a constraint or a variable of a property as 32.
    """
    weights: int = 1 << 26
    """Non-zero weights of the layered network a graph is turned into (convolutions are counted unrolled)."""
    nodes: int = 100_000
    """Nodes of a graph."""
    layers: int = 10_000
    """Layers of a network."""
    depth: int = 200
    """Nesting of expressions in a property file."""
    tokens: int = 20_000_000
    """Tokens of a property file."""
    disjuncts: int = 100_000
    """Conjunctions a property may expand to in disjunctive normal form."""

    seconds: float = 60.0
    """Time that one call may take to read a file and build what is in it (looked at between steps of the work)."""

    region_bytes: int = 4 << 30
    """Memory held by the regions of one enumeration (joining them at the end takes as much again for a moment)."""

    def __post_init__(self) -> None:
        for each in fields(Limits):
            value = getattr(self, each.name)
            if each.name == "seconds":
                real(value, each.name, low=0.0)
            else:
                integer(value, each.name, low=0)

    def started(self) -> Limits:
        """These limits with the clock of `seconds` running; a clock that runs already is kept."""
        values = {f.name: getattr(self, f.name) for f in fields(Limits)}
        return _Running(ends=time.monotonic() + self.seconds, **values)

    def check(self, limit: str, amount: int, what: str) -> None:
        """Raise `InputLimitError` when `amount` exceeds the limit of that name, or time is over.

        Parameters
        ----------
        limit : str
            Name of the limit.
        amount : int
        what : str
            What there is so much of, for the message.
        """
        allowed: int = getattr(self, limit)
        if amount > allowed:
            raise InputLimitError(
                f"{what} has {amount:,} {_UNITS[limit]}, more than the limit of {allowed:,}; "
                f"if you trust it, pass limits=reluscope.Limits({limit}={amount})"
            )
        self.check_time(what)

    def check_time(self, what: str) -> None:
        """Raise `InputLimitError` when the clock runs and time is over.

        Parameters
        ----------
        what : str
            What was being read, for the message.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running(Limits):
    """Limits whose clock runs."""

    ends: float

    def started(self) -> Limits:
        return self

    def check_time(self, what: str) -> None:
        if time.monotonic() > self.ends:
            raise InputLimitError(
                f"reading stopped after {self.seconds:g} s, at {what.rstrip(',')}; "
                f"if you trust it, pass limits=reluscope.Limits(seconds={10 * self.seconds:g})"
            )


def started(limits: Any) -> Limits:
    """`limits` with the clock running; refuses what is no `Limits`."""
    return instance(limits, "limits", Limits, "a reluscope.Limits record").started()


_UNITS = {
    "file_bytes": "bytes",
    "text_bytes": "bytes",
    "tensors": "tensors",
    "elements": "elements",
    "weights": "unrolled weights",
    "nodes": "nodes",
    "layers": "layers",
    "depth": "levels of nesting",
    "tokens": "tokens",
    "disjuncts": "disjuncts",
    "region_bytes": "bytes",
}

DEFAULT_LIMITS = Limits()
