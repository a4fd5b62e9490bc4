"""Threads in one place: compiled code that can be stopped, and how many threads BLAS takes.

**Stopping.** Python looks at signals and clocks between its own instructions only, so nothing can stop a compiled
kernel from outside, and Ctrl-C in one is late or gets lost. `interruptible` runs a kernel that lets go of the
interpreter (`nogil=True`) in a helper thread, and waits for it in Python: Ctrl-C arrives at once, and so does the end
of a budget that `deadline` names. A kernel that takes `stop_flag()` as an argument looks at it, and gives up early.

BLAS starts a thread pool by default, which costs more than it gives on thin layers (2 to 11 times slower on two
cores). `blas_threads` pins it to one thread for the length of a block.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._lazy import in_child, late


@contextmanager
def clean_interrupt() -> Iterator[None]:
    """Ctrl-C while numba loads or dispatches a kernel can come out as a `SystemError`; here it is what it was."""
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            cause = cause.__cause__ or cause.__context__
        raise


THIN = 1024
"""Layers narrower than this run faster on one BLAS thread."""


class _Pinned:
    """BLAS on one thread while anybody asks for it: the first one in pins, the last one out restores.

    The number of BLAS threads belongs to the process. If each thread put back what it had found, the last one
    could put back the 1 that another had set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limits: list[Any] = []
        self._controller: Any = None
        self._imported = 0

    def enter(self) -> None:
        make = late("threadpoolctl").ThreadpoolController  # outside of the lock: imports have a lock of their own
        with self._lock:
            new = self._imported != len(sys.modules)  # one of these may have brought a BLAS of its own, as SciPy does
            if new:
                self._imported, self._controller = len(sys.modules), make()
            if new or self._inside == 0:
                self._limits.append(self._controller.limit(limits=1, user_api="blas"))
            self._inside += 1

    def renew(self) -> None:
        """Another thread may have held the lock when the process was copied."""
        self._lock = threading.Lock()

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            while self._inside == 0 and self._limits:
                self._limits.pop().restore_original_limits()


_PINNED = _Pinned()


@contextmanager
def blas_threads(widest: int) -> Iterator[None]:
    """Pin BLAS to one thread while the widest matrix in play is narrower than `THIN`."""
    if widest >= THIN:
        yield
        return
    _PINNED.enter()
    try:
        yield
    finally:
        _PINNED.leave()


# -- kernels that can be stopped -----------------------------------------------------------------------------------

_LOOK = 0.02
"""Seconds between two looks at the deadline."""


class OutOfTimeError(Exception):
    """The deadline passed while a kernel ran: what it made is not whole. Never leaves the library."""


class _Helper:
    """A thread that runs one kernel at a time for the thread that owns it."""

    def __init__(self) -> None:
        self.stop = np.zeros(1, np.uint8)
        self._work: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        # A daemon: a kernel that nobody waits for any more must not keep the process alive.
        threading.Thread(
            target=self._loop, args=(self._work, self._done), name="reluscope kernels", daemon=True
        ).start()

    @staticmethod
    def _loop(work: SimpleQueue[Any], done: SimpleQueue[Any]) -> None:
        while (task := work.get()) is not None:
            kernel, arguments = task
            found: tuple[Any, BaseException | None]
            try:
                found = kernel(*arguments), None
            except BaseException as error:
                found = None, error
            done.put(found)
            del task, kernel, arguments, found  # not to be kept until the next task

    def run(self, kernel: Callable[..., Any], arguments: tuple[Any, ...], over: Callable[[], bool] | None) -> Any:
        told = False
        self._work.put((kernel, arguments))
        while True:
            try:
                found, error = self._done.get(timeout=_LOOK)
                break
            except Empty:
                if over is not None and not told and over():
                    told = True
                    self.stop[0] = 1
        if told:
            self.stop[0] = 0
            raise OutOfTimeError
        if error is not None:
            raise error
        return found

    def leave(self) -> None:
        """End after the kernel at hand, which is told to give up."""
        self.stop[0] = 1
        self._work.put(None)

    def __del__(self) -> None:  # with the thread that owns it: its loop holds the queues only
        self._work.put(None)


class Halt:
    """Tells worker threads to stop: Python asks `is_set`, kernels look at `flag`."""

    def __init__(self) -> None:
        self.flag = np.zeros(1, np.uint8)

    def set(self) -> None:
        """Stop."""
        self.flag[0] = 1

    def is_set(self) -> bool:
        """Whether to stop."""
        return bool(self.flag[0])


class _Own(threading.local):
    helper: _Helper | None = None
    over: Callable[[], bool] | None = None
    stopped: Callable[[], bool] | None = None
    flag: npt.NDArray[np.uint8] | None = None

    def ends(self) -> Callable[[], bool] | None:
        """Whether to give up, for the block at hand or for the worker as a whole."""
        over, stopped = self.over, self.stopped
        if over is None or stopped is None:
            return over or stopped
        return lambda: stopped() or over()


_OWN = _Own()


@in_child
def _forget_threads() -> None:
    global _OWN
    _OWN = _Own()
    _PINNED.renew()


def _helper() -> _Helper:
    if _OWN.helper is None:
        _OWN.helper = _Helper()
    return _OWN.helper


def stop_flag() -> npt.NDArray[np.uint8]:
    """One byte for a kernel to look at: not 0 when it should give up, whatever it returns then."""
    flag = _raised_by_others()
    return _helper().stop if flag is None else flag


def _raised_by_others() -> npt.NDArray[np.uint8] | None:
    """In a worker thread without a deadline of its own: the flag that the thread it works for raises."""
    return _OWN.flag if _OWN.over is None else None


def interruptible(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """`kernel(*arguments)`, so that Ctrl-C and the deadline come through; `OutOfTimeError` if the latter has passed."""
    if _raised_by_others() is not None:  # no helper: to change threads twice for a short kernel costs as much as it
        found = kernel(*arguments)
        look()
        return found
    helper = _helper()
    try:
        return helper.run(kernel, arguments, _OWN.ends())
    except OutOfTimeError:
        raise
    except BaseException:
        _OWN.helper = None  # the kernel may still run: its helper is left to it
        helper.leave()
        raise


def look() -> None:
    """Raise `OutOfTimeError` if the deadline of the block at hand has passed: for loops in Python."""
    if (_OWN.over is not None and _OWN.over()) or stopped():
        raise OutOfTimeError


def stopped() -> bool:
    """Whether this thread works for a caller who has left (see `reluscope.workers`)."""
    return _OWN.stopped is not None and _OWN.stopped()


def deadline_at_hand() -> Callable[[], bool] | None:
    """What `deadline` was given for the block at hand: for workers in other threads."""
    return _OWN.over


@contextmanager
def stoppable(stopped: Callable[[], bool] | Halt | None) -> Iterator[None]:
    """In this block kernels, `look` and budgets end as soon as `stopped()`, whatever deadlines say.

    A `Halt` is what another thread sets.
    """
    before = _OWN.stopped, _OWN.flag
    _OWN.stopped, _OWN.flag = (stopped.is_set, stopped.flag) if isinstance(stopped, Halt) else (stopped, None)
    try:
        yield
    finally:
        _OWN.stopped, _OWN.flag = before


@contextmanager
def deadline(over: Callable[[], bool] | None) -> Iterator[None]:
    """In this block (without a `yield` inside), kernels and `look` give up as soon as `over()`."""
    before, _OWN.over = _OWN.over, over
    try:
        yield
    finally:
        _OWN.over = before
