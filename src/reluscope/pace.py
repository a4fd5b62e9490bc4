"""Time by which work is planned: that of the clock, or a count that stands for it.

How many lines fit into two seconds, and whether lines or points are the better use of them, can be measured; then no
two runs make the same plan. Inside `counted(...)` nothing is measured: whoever does a piece of work says what it costs
by a fixed formula of its size (`charge`), and all plans, shares and ends go by the sum. So one seed gives one answer,
on a busy machine too, and for any number of workers. What is not charged is free: that moves the real time, never the
answer.

The clock has one last word: after `guard` real seconds the count jumps to the end, and `overrun` says so.

Only the thread that called `counted` has the count at hand. Workers do not charge: who takes their results does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reluscope._lazy import CLOCK

_JUMP = 1e6
"""Seconds that the count jumps by when the guard ends it: more than any plan has."""

LATE = "the safety limit on time ended the work: another run may give another answer"
"""What the note of an answer says that the clock has ended although a count was asked for."""


class Count:
    """Seconds of work as they were charged."""

    def __init__(self, guard: float) -> None:
        self.guard, self.overrun = guard, False
        self._charged, self._began = 0.0, CLOCK()

    def add(self, seconds: float) -> None:
        """Charge so much."""
        self._charged += seconds

    def __call__(self) -> float:
        """What was charged so far; far more once the guard has ended the work."""
        if not self.overrun and CLOCK() - self._began > self.guard:
            self.overrun = True
        return self._charged + (_JUMP if self.overrun else 0.0)


class _Own(threading.local):
    count: Count | None = None


_OWN = _Own()


@contextmanager
def counted(guard: float) -> Iterator[Count]:
    """In this block plans go by what is charged; the clock ends them after `guard` seconds."""
    before, count = _OWN.count, Count(guard)
    _OWN.count = count
    try:
        yield count
    finally:
        _OWN.count = before


@contextmanager
def by_the_clock() -> Iterator[None]:
    """In this block the clock counts again."""
    before, _OWN.count = _OWN.count, None
    try:
        yield
    finally:
        _OWN.count = before


def counting() -> bool:
    """Whether plans go by what is charged."""
    return _OWN.count is not None


def charge(seconds: float) -> None:
    """Say what a piece of work that was just done costs; of no effect where the clock counts."""
    if _OWN.count is not None:
        _OWN.count.add(seconds)


def clock_at_hand() -> Callable[[], float]:
    """The clock of budgets that are made here: the one of all budgets, or the count."""
    return CLOCK if _OWN.count is None else _OWN.count


def now() -> float:
    """Seconds on the clock, or those charged."""
    return time.perf_counter() if _OWN.count is None else _OWN.count()


def cpu_now() -> float:
    """Seconds of CPU of this thread, or those charged."""
    return time.thread_time() if _OWN.count is None else _OWN.count()
