"""Progress: a meter that long work reports to, injected by the caller.

`progress="auto"` shows a bar on a terminal (with the `rich` package; a plain counter line without) and nothing
elsewhere, None shows nothing, and a callable `f(done, text)` is called with what has been done so far.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from reluscope._check import describe
from reluscope._lazy import late
from reluscope.errors import InputTypeError

Report = Callable[[int, str], None]

_EVERY = 0.1
"""Seconds between two updates of a terminal line."""


@contextmanager
def meter(progress: Any, title: str) -> Iterator[Report]:
    """A function to report to while the block runs."""
    auto = isinstance(progress, str) and progress == "auto"
    if progress is None or (auto and not sys.stderr.isatty()):
        yield lambda done, text: None
    elif callable(progress) and not isinstance(progress, type) and _takes_two(progress):
        yield progress
    elif auto:
        yield from _terminal(title)
    else:
        raise InputTypeError(f'progress must be None, "auto" or a function of (done, text), got {describe(progress)}')


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
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, note="")
        yield lambda done, text: bar.update(task, completed=done, note=text)


def _line(title: str) -> Iterator[Report]:
    last = 0.0

    def report(done: int, text: str) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            sys.stderr.write(f"\r{title}: {text}\x1b[K")
            sys.stderr.flush()

    try:
        yield report
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
