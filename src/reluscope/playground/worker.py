"""One thread that does the work, so that the server stays awake. Questions that a newer one replaced are dropped."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

_MOST_WAITING = 32
_MOST_PAGES = 256


class StaleError(Exception):
    """A newer question of the same page and kind came before this one was begun."""


class BusyError(Exception):
    """The work did not end in time, or too much of it is waiting."""


class Worker:
    """Runs jobs one at a time, in order, on a thread that never keeps the process alive."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[bytes], Callable[[], bytes], tuple[str, str], int]]
        self._jobs = queue.SimpleQueue()
        self._newest: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="reluscope playground", daemon=True).start()

    async def do(
        self, job: Callable[[], bytes], *, page: str = "", kind: str = "", turn: int = 0, seconds: float
    ) -> bytes:
        """What `job` returns. `turn` counts the questions of a kind from one page: only the newest is answered."""
        if self._jobs.qsize() >= _MOST_WAITING:
            raise BusyError("too many questions are waiting; try again in a moment")
        key = (page, kind)
        with self._lock:
            self._newest[key] = max(turn, self._newest.get(key, turn))
            self._newest.move_to_end(key)
            while len(self._newest) > _MOST_PAGES:
                self._newest.popitem(last=False)
        done: Future[bytes] = Future()
        self._jobs.put((done, job, key, turn))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(done), seconds)
        except TimeoutError:
            raise BusyError(
                "still working; the first questions after an installation wait while code is compiled"
            ) from None

    def _run(self) -> None:
        while True:
            done, job, key, turn = self._jobs.get()
            if not done.set_running_or_notify_cancel():
                continue
            with self._lock:
                stale = turn < self._newest.get(key, turn)
            try:
                if stale:
                    raise StaleError
                done.set_result(job())
            except BaseException as error:
                done.set_exception(error)
