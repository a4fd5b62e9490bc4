"""Progress: a meter that long work reports to, injected by the caller.

`progress="auto"` shows a bar on a terminal (with the `rich` package; a plain counter line without, and in notebooks),
with what is done, what is left and the time to go where the work is counted, and nothing elsewhere. None shows nothing,
and a callable `f(done, text)` is called with what has been done so far.
"""

from __future__ import annotations

import inspect
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from reluscope._check import describe
from reluscope._lazy import late
from reluscope.errors import InputTypeError

Report = Callable[[int, str], None]

_WARM = 1.0
"""Seconds of work after which the pace says something."""

_EVERY = 0.1
"""Seconds between two updates of a terminal line."""


@contextmanager
def meter(progress: Any, title: str) -> Iterator[Report]:
    """A function to report to while the block runs."""
    auto = isinstance(progress, str) and progress == "auto"
    if auto and not sys.stderr.isatty() and in_notebook():
        yield from _line(title)
    elif progress is None or (auto and not sys.stderr.isatty()):
        yield lambda done, text: None
    elif callable(progress) and not isinstance(progress, type) and _takes_two(progress):
        yield progress
    elif auto:
        yield from _terminal(title)
    else:
        raise InputTypeError(f'progress must be None, "auto" or a function of (done, text), got {describe(progress)}')


_SHARE = re.compile(r"([0-9][0-9,]*) of ([0-9][0-9,]*)")


class _Pace:
    """Adds what is left and the time to go to texts that say "3 of 10 ...", from the pace since the count began."""

    def __init__(self) -> None:
        self._total, self._first, self._began = -1, 0, 0.0

    def __call__(self, text: str) -> str:
        found = _SHARE.search(text)
        if found is None:
            return text
        done, total = (int(number.replace(",", "")) for number in found.groups())
        now = time.monotonic()
        if total != self._total or done < self._first:  # another count
            self._total, self._first, self._began = total, done, now
        left, taken = total - done, now - self._began
        if left <= 0 or done <= self._first or taken < _WARM:
            return text
        return f"{text}, {left:,} left, about {_duration(taken * left / (done - self._first))} to go"


def _duration(seconds: float) -> str:
    """A time in words, as exact as a guess is."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def in_notebook() -> bool:
    """Whether a notebook shows what is written (its standard error is no terminal)."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    return type(found).__name__ == "ZMQInteractiveShell"


def _takes_two(function: Any) -> bool:
    """Whether a function can be called with two arguments, as far as it tells."""
    try:
        inspect.signature(function).bind(0, "")
    except TypeError:
        return False
    except ValueError:  # written in C, and silent about its arguments
        return True
    return True


def _terminal(title: str) -> Iterator[Report]:
    try:
        Console = late("rich.console", "Console")
        rich = late("rich.progress")
    except ImportError:
        yield from _line(title)
        return
    columns = (
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}"),
        rich.TextColumn("{task.fields[note]}"),
        rich.TimeElapsedColumn(),
    )
    pace = _Pace()
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, note="")
        yield lambda done, text: bar.update(task, completed=done, note=pace(text))


def _line(title: str) -> Iterator[Report]:
    last = 0.0
    pace = _Pace()

    def report(done: int, text: str) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            sys.stderr.write(f"\r{title}: {pace(text)}\x1b[K")
            sys.stderr.flush()

    try:
        yield report
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
