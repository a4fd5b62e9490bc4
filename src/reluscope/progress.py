"""Progress: a meter that long work reports to, injected by the caller.

`progress="auto"` shows a bar on a terminal (with the `rich` package; a plain counter line without) and nothing
elsewhere, None shows nothing, and a callable `f(done, text)` is called with what has been done so far.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from reluscope._check import describe
from reluscope.errors import InputError

Report = Callable[[int, str], None]

_EVERY = 0.1
"""Seconds between two updates of a terminal line."""


@contextmanager
def meter(progress: Any, title: str) -> Iterator[Report]:
    """A function to report to while the block runs."""
    if progress is None or (progress == "auto" and not sys.stderr.isatty()):
        yield lambda done, text: None
    elif callable(progress):
        yield progress
    elif progress == "auto":
        yield from _terminal(title)
    else:
        raise InputError(f'progress must be None, "auto" or a function of (done, text), got {describe(progress)}')


def _terminal(title: str) -> Iterator[Report]:
    try:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        yield from _line(title)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
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
