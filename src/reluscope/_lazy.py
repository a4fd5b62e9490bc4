"""Imports on first use, one thread at a time: doors that open late, and packages that few calls need.

Python locks each module for itself. When two threads enter a package with circles inside (numba, scipy) by different
doors, each holds what the other waits for, and one of them gets a module that is only half there; numba then keeps a
lock of its own for ever. So every first import goes through the one lock `IMPORTING`, which is taken before any other:
before the locks of modules and before numba's compiler lock, never after them. A module that others import inside a
function has nothing but numpy, numba and scipy.sparse at its top; those were imported with the door.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any

IMPORTING = threading.RLock()
"""Held by the one thread that imports."""

_LONGEST_IMPORT = 10.0
"""Seconds for which a fork waits for imports in other threads."""

_READY: set[str] = set()
"""Modules that were imported whole under the lock: no need to wait for it again."""


class Clock:
    """A clock that stands still while any thread imports or compiles for the first time: no budget pays for that.

    One clock for both: an import in one thread while another compiles is time that passes once. A clock that took it
    off twice would run backwards.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: dict[int, int] = {}
        self._since = self._total = 0.0

    def stop(self) -> None:
        """This thread begins (calls may be nested)."""
        with self._lock:
            if not self._busy:
                self._since = time.monotonic()
            me = threading.get_ident()
            self._busy[me] = self._busy.get(me, 0) + 1

    def go_on(self) -> None:
        """This thread has ended."""
        with self._lock:
            me = threading.get_ident()
            nested = self._busy.pop(me, 1) - 1
            if nested:
                self._busy[me] = nested
            elif not self._busy:
                self._total += time.monotonic() - self._since

    def renew(self) -> None:
        """In a copy of the process the other threads are gone."""
        self._lock = threading.Lock()
        me = threading.get_ident()
        self._busy = {me: self._busy[me]} if me in self._busy else {}

    def __call__(self) -> float:
        """Seconds that passed, except while it stood still."""
        with self._lock:
            return (self._since if self._busy else time.monotonic()) - self._total


CLOCK = Clock()
"""The clock of all budgets."""


def late(module: str, *names: str) -> Any:
    """A module that is imported now, by one thread at a time; with names, those attributes of it (one, or a tuple)."""
    if module not in _READY or sys.modules.get(module) is None:  # None: marked as missing
        with IMPORTING:
            CLOCK.stop()
            try:
                import_module(module)
                _READY.add(module)
            finally:
                CLOCK.go_on()
    found = sys.modules[module]
    if not names:
        return found
    return getattr(found, names[0]) if len(names) == 1 else tuple(getattr(found, name) for name in names)


def lazy_door(package: str, names: dict[str, str], modules: tuple[str, ...] = ()) -> Callable[[str], Any]:
    """A module `__getattr__` for `package`: `names` from the modules (below the package) that hold them, `modules`."""

    def resolve(name: str) -> Any:
        if name in modules:
            return late(f"{package}.{name}")
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return late(f"{package}.{names[name]}", name)

    return resolve


_held: list[Any] = []
"""The compiler's lock, while a fork at hand has it; `IMPORTING` is held then."""


def _before_fork() -> None:
    """Nobody may be importing or compiling while the process is copied: the copy would wait for them for ever."""
    IMPORTING.acquire()
    _take_compiler()
    until = time.monotonic() + _LONGEST_IMPORT
    while _others_import() and time.monotonic() < until:
        time.sleep(0.001)
    _take_compiler()  # another thread's import may have brought it only now


def _take_compiler() -> None:
    module = sys.modules.get("numba.core.compiler_lock")
    lock = getattr(module, "global_compiler_lock", None)
    if lock is not None and not _held:
        lock.acquire()
        _held.append(lock)


def _others_import() -> bool:
    """Does another thread hold the lock of a module? (Python keeps these for itself; where it hides them, no.)"""
    kept = getattr(sys.modules.get("importlib._bootstrap"), "_module_locks", {})
    owners = {getattr(ref(), "owner", None) for ref in list(kept.values())}
    return bool(owners - {None, threading.get_ident()})


def _after_fork() -> None:
    if _held:  # only if it was taken: it may have come into being since
        _held.pop().release()
    IMPORTING.release()


_RENEWALS: list[Callable[[], None]] = []


def in_child(renew: Callable[[], None]) -> None:
    """Have `renew` called first in every copy of the process: other threads are not copied, the locks they hold are."""
    _RENEWALS.append(renew)


in_child(CLOCK.renew)


def _in_child() -> None:
    for renew in _RENEWALS:
        renew()
    _after_fork()


def _renew_properties() -> None:
    """Until Python 3.12 each `cached_property` has one lock, for all instances."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "reluscope":
            for owner in [thing for thing in vars(module).values() if isinstance(thing, type)]:
                for value in [v for v in vars(owner).values() if isinstance(v, cached_property)]:
                    value.__dict__["lock"] = threading.RLock()


if sys.version_info < (3, 12):
    in_child(_renew_properties)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
