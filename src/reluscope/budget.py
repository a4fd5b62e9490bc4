"""Budgets: how long a call may take, said by the user in words.

`budget="60s"`, `"5 min"`, `"10000 regions"`, `"60s, 10000 regions"`, a number of seconds, or None for no limit.
When a budget ends, the answer is the best so far and says so. Compiling (and loading compiled code, and other
packages) on a first call is not counted: a budget means the same on the first call as on the second.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from numba.core import event
from numba.core.registry import cpu_target

from reluscope._check import describe
from reluscope._lazy import CLOCK, Clock
from reluscope.answer import Status, Stop
from reluscope.errors import InputError
from reluscope.pace import LATE, Count, clock_at_hand, counted
from reluscope.progress import in_notebook
from reluscope.threads import stopped

_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minutes": 60.0}
_SECONDS |= {"minute": 60.0, "h": 3600.0, "hour": 3600.0, "hours": 3600.0}
_PILOT_SECONDS = 0.02
"""A pilot that takes so long has shown the pace."""

_REGIONS = ("region", "regions", "cells", "cell")


@dataclass(frozen=True)
class Budget:
    """Limits on seconds and on regions; the clock starts when the record is made and stands still while compiling."""

    seconds: float = float("inf")
    regions: float = float("inf")
    started: float = field(default_factory=lambda: clock_at_hand()())
    whole: float | None = None
    """The seconds of the whole budget, when this is a part of one."""
    clock: Callable[[], float] = field(default_factory=clock_at_hand, repr=False, compare=False)
    """What the seconds are of: the clock, or work as it is charged (`reluscope.pace`)."""

    def part(self, share: float) -> Budget:
        """A budget that ends when this share of the seconds that are left has passed."""
        now = self.elapsed()
        return replace(self, seconds=now + share * (self.seconds - now), whole=self.whole or self.seconds)

    def spent(self, regions: int = 0) -> Stop | None:
        """Which limit has been reached, in words, or None."""
        if regions >= self.regions:
            return Stop(f"budget of {int(self.regions):,} regions reached", Status.BUDGET)
        if self.elapsed() >= self.seconds:
            if isinstance(self.clock, Count):
                whole = f"work of about {self.whole or self.seconds:g} s done"
                return Stop(LATE if self.clock.overrun else whole, Status.BUDGET)
            return Stop(f"budget of {self.whole or self.seconds:g} s reached", Status.BUDGET)
        if stopped():
            return Stop("interrupted", Status.INTERRUPTED)
        return None

    def afford(self, work: Callable[[int], object], asked: int, share: float = 0.9, *, least: int = 64) -> int:
        """How many of `asked` pieces of work fit into a share of the seconds that are left: at least `least`.

        Told by a pilot, `work(n)` for a small n; without a limit on seconds there is none, and all fit. The work must
        take its random numbers from elsewhere than the answer does: then how many draws the answer has says nothing
        about them, and intervals for a number of draws that was fixed beforehand hold.
        """
        if self.seconds == float("inf"):
            return asked
        n, took = min(asked, 16), 0.0
        work(n)  # what happens once is not counted
        while took < _PILOT_SECONDS and took < 0.05 * self.seconds:
            begin = self.elapsed()
            work(n)
            took = self.elapsed() - begin
            if 2 * n > asked:
                break
            n *= 2
        else:
            n //= 2
        cost = max(took, 1e-9) / n
        return int(min(asked, max(share * (self.seconds - self.elapsed()) / cost, least)))

    def elapsed(self) -> float:
        """Seconds since the budget was made, without compilation."""
        return self.clock() - self.started

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process, whose clock shows another time, the same seconds are left."""
        return _arrived, (self.seconds, self.regions, self.elapsed(), self.whole, isinstance(self.clock, Count))


def _arrived(seconds: float, regions: float, elapsed: float, whole: float | None, charged: bool) -> Budget:
    if charged:  # workers do not charge: there it stands still
        with counted(float("inf")) as count:
            return Budget(seconds, regions, -elapsed, whole, count)
    return Budget(seconds, regions, CLOCK() - elapsed, whole)


class _Watch(event.Listener):
    """Stops the clock while any thread compiles, loads compiled code or waits for the compiler.

    numba's own `TimingListener` may be called by two threads at once, and then loses count for good.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_start(self, happened: Any) -> None:
        self._clock.stop()

    def on_end(self, happened: Any) -> None:
        self._clock.go_on()


def _ours(happened: Any) -> bool:
    """Is it a kernel of this library that compiles?"""
    module = happened.data["dispatcher"].py_func.__module__  # None for what `exec` made
    return (module or "").startswith("reluscope.")


class _Tidying(event.Listener):
    """Puts off Python's search for garbage while a kernel of this library compiles: a tenth of that time, for nothing.

    Only one thread compiles at a time, since events come under the compiler's lock.
    """

    def __init__(self) -> None:
        self._put_off: list[bool] = []  # by the compilations under way, one inside the other

    def on_start(self, happened: Any) -> None:
        self._put_off.append(_ours(happened) and gc.isenabled())
        if self._put_off[-1]:
            gc.disable()

    def on_end(self, happened: Any) -> None:
        if self._put_off.pop():
            gc.enable()


class _Announcement(event.Listener):
    """Says once, before a kernel of this library compiles, why the user waits: silence would look like a hang."""

    def __init__(self) -> None:
        self._made = False

    def on_start(self, happened: Any) -> None:
        if _ours(happened) and not self._made and (sys.stderr.isatty() or in_notebook()):
            self._made = True
            print(
                "reluscope: compiling on first use, for some seconds; kept on disk (`reluscope warm` compiles all) ...",
                file=sys.stderr,
            )

    def on_end(self, happened: Any) -> None:
        pass


event.register("numba:compiler_lock", _Watch(CLOCK))
event.register("numba:compile", _Announcement())  # not where compiled code is loaded
event.register("numba:compile", _Tidying())
_TARGET = cpu_target.target_context
"""Made by the first kernel, under the compiler's lock: here, so that importing a module with kernels takes no lock."""


def parse_budget(value: Any, default: str | None = None) -> Budget:
    """A `Budget` from what the user wrote; `default` (or no limit) where that is None."""
    value = default if value is None else value
    if value is None:
        return Budget()
    if isinstance(value, Budget):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e300:
        return Budget(seconds=float(value))
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]+(\.[0-9]*)?\s*", value):
        value = f"{value.strip()}s"  # a bare number is seconds
    if isinstance(value, str):
        limits: dict[str, float] = {}
        for part in value.split(","):
            found = _PART.fullmatch(part)
            if found is None:
                break
            number, unit = float(found[1]), found[2].lower()
            if unit in _SECONDS:
                limits["seconds"] = number * _SECONDS[unit]
            elif unit in _REGIONS:
                limits["regions"] = number
            else:
                break
        else:
            if limits and min(limits.values()) > 0:
                return Budget(limits.get("seconds", float("inf")), limits.get("regions", float("inf")))
            if limits:
                raise InputError(f"budget must be more than zero, got {value!r}; leave it out for no limit")
    raise InputError(
        f'budget must be like "60s", "5 min", "10000 regions", "60s, 10000 regions" or a positive number of seconds, '
        f"got {describe(value)}"
    )
