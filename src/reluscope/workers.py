"""Work on several cores or machines: the one place that knows joblib and Dask.

Every long call has `jobs=`: how many workers share its work. Workers are threads where compiled kernels let go of the
interpreter, processes (joblib's) where Python is in the way, and the workers of a Dask cluster when the caller stands
inside `joblib.parallel_config(backend="dask")` or of `cluster(address)`.

What divides is cut into the same parts for any number of workers, and results come back in the order of the parts: so
the answer is the same, bit for bit, however many work on it. `run` maps a function over parts; `unfold` walks a tree
whose parts come into being on the way. Both stop all workers when the caller leaves (Ctrl-C, the end of a budget),
do the part of a worker that died again, and pin BLAS to one thread for each worker. Inside a worker `jobs` is 1.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import tempfile
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    InvalidStateError,
    wait,
)
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, wraps
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Generic, Literal, NamedTuple, ParamSpec, TypeVar

from reluscope._check import describe, integer
from reluscope._extras import require
from reluscope._lazy import in_child, late
from reluscope.budget import Budget
from reluscope.errors import InputError, WorkerError
from reluscope.threads import Halt, OutOfTimeError, blas_threads, deadline, deadline_at_hand, look, stoppable

Kind = Literal["threads", "processes"]
P = ParamSpec("P")
Given = TypeVar("Given")
Task = TypeVar("Task")

SETTING = "RELUSCOPE_JOBS"
"""The environment variable that says how many workers a call has that does not say so itself."""

_LOOK = 0.05
"""Seconds between two looks at the budget while workers work."""

_PATIENCE = 10.0
"""Seconds within which a cluster must answer."""

_LARGE = 1 << 20
"""Bytes of a task from which on it does not pass through the scheduler of a cluster."""

_REST = 5.0
"""Seconds after which worker threads without work end."""

_DESERTED = 60.0
"""Seconds without any worker in a cluster after which nobody waits any longer."""

_IDLE = 120
"""Seconds after which worker processes without work end."""


class _Here(threading.local):
    worker: bool = False
    waiting: SimpleQueue[Any] | None = None
    jobs: int | None = None


_HERE = _Here()


# -- how many ------------------------------------------------------------------------------------------------------


def cores() -> int:
    """The cores this process may use, as joblib counts them (affinity and containers included)."""
    return int(late("joblib").cpu_count())


def resolve_jobs(jobs: Any) -> int:
    """How many workers `jobs=` means: a number of them, -1 for all cores, or None for the setting.

    Inside of another call that is what the other was given. Else the setting is `RELUSCOPE_JOBS`, else the `n_jobs` of
    the `joblib.parallel_config` around the call, else 1. Inside a worker it is 1.
    """
    if jobs is not None:
        jobs = _count(jobs, "jobs")
    if _HERE.worker:
        return 1
    if jobs is not None:
        return jobs
    if _HERE.jobs is not None:
        return _HERE.jobs
    said = os.environ.get(SETTING, "").strip()
    if said:
        try:
            number = int(said)
        except ValueError:
            raise InputError(
                f"{SETTING} must be a whole number, at least 1, or -1 for all cores, got {said!r}"
            ) from None
        return _count(number, SETTING)
    client = _dask_client()
    configured = _configured()
    if client is not None and configured in (None, -1):
        return max(1, sum(client.nthreads().values()))
    if configured is None:
        return 1
    return max(1, int(late("joblib").effective_n_jobs(configured)))


@contextmanager
def sharing(jobs: Any) -> Iterator[int]:
    """In this block (without a `yield` inside) work is shared by so many, as `jobs_at_hand` says to the engines."""
    before = _HERE.jobs
    _HERE.jobs = resolve_jobs(jobs)
    try:
        yield _HERE.jobs
    finally:
        _HERE.jobs = before


def jobs_at_hand() -> int:
    """How many workers share the call at hand: 1 where nobody said more, and inside a worker."""
    return 1 if _HERE.worker or _HERE.jobs is None else _HERE.jobs


def together() -> float:
    """How much more the workers of the call at hand get done in a second than one of them, carefully put."""
    jobs = jobs_at_hand()
    return 1.0 if jobs == 1 else 1.0 + 0.6 * (min(jobs, cores() if _dask_client() is None else jobs) - 1)


def with_jobs(function: Callable[P, Given]) -> Callable[P, Given]:
    """A public function whose `jobs=` holds for all that it calls."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Given:
        with sharing(kwargs.get("jobs")):
            return function(*args, **kwargs)

    return call


def _count(value: Any, name: str) -> int:
    if isinstance(value, int) and value == -1:
        return cores()
    try:
        return integer(value, name, low=1, high=10_000)
    except InputError as error:
        raise type(error)(
            f"{name} must be a number of workers, at least 1, or -1 for all cores, got {describe(value)}"
        ) from None


def _configured() -> int | None:
    """The `n_jobs` of joblib's `parallel_config` around this call; nobody is inside one before joblib was imported."""
    if "joblib" not in sys.modules:
        return None
    found = late("joblib.parallel").get_active_backend()[1]
    return None if found is None else int(found)


def _dask_client() -> Any:
    """The client of the Dask cluster that joblib is told to use here, or None."""
    if "joblib" not in sys.modules or "distributed" not in sys.modules:
        return None
    backend = late("joblib.parallel").get_active_backend()[0]
    return backend.client if type(backend).__name__ == "DaskDistributedBackend" else None


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Inside the block, workers are those of the Dask scheduler at this address; None: nothing changes."""
    if address is None:
        yield
        return
    distributed = require("distributed", "dask")
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError, TimeoutError) as error:
        raise InputError(
            f"cluster: nothing answers at {address!r} ({error}); start a scheduler with `dask scheduler`, "
            "and give the address it prints, such as tcp://10.0.0.1:8786"
        ) from error
    with client:
        _same_versions(client, address)
        with late("joblib").parallel_config(backend="dask", client=client):
            yield


def _same_versions(client: Any, address: str) -> None:
    """Workers must run this version of the library, on a Python and a numpy that give the same numbers.

    A client is asked once.
    """
    if client in _COMPARED:
        return
    from reluscope._version import __version__

    here = (__version__, *sys.version_info[:2], late("numpy").__version__)
    try:
        there = client.run(_versions)
    except Exception as error:  # whatever the worker says about a package it lacks
        raise InputError(
            f"cluster: the workers at {address!r} cannot import reluscope ({error}); install it there"
        ) from error
    if not there:
        raise InputError(
            f"cluster: the scheduler at {address!r} has no workers; start some with `dask worker {address}`"
        )
    other = {worker: found for worker, found in there.items() if tuple(found) != here}
    if other:
        worker, found = next(iter(other.items()))
        raise InputError(
            f"cluster: worker {worker} has reluscope {found[0]}, Python {found[1]}.{found[2]}, numpy {found[3]}; "
            f"here are {here[0]}, {here[1]}.{here[2]}, {here[3]}: install the same versions everywhere"
        )
    _COMPARED.add(client)


_COMPARED: weakref.WeakSet[Any] = weakref.WeakSet()
"""Clients whose workers have the versions of this process."""


def _versions() -> tuple[Any, ...]:
    from reluscope._version import __version__

    return (__version__, *sys.version_info[:2], late("numpy").__version__)


# -- a map ---------------------------------------------------------------------------------------------------------


def run(
    function: Callable[..., Given],
    tasks: Iterable[Task],
    *,
    jobs: int,
    kind: Kind = "threads",
    shared: tuple[Any, ...] = (),
    budget: Budget | None = None,
    ahead: int | None = None,
    lost: Callable[[Task, str], Given] | None = None,
) -> Generator[Given, None, None]:
    """`function(task, *shared)` for every task, in the order of the tasks; `jobs` of them at a time.

    Parameters
    ----------
    function : callable
        For processes and clusters it must be importable or picklable by cloudpickle, and so must tasks and results.
    tasks : iterable
        Taken one by one, `ahead` of the results that were asked for; may be endless.
    jobs : int
        As `resolve_jobs` gives it. With 1 (outside of a cluster) the function is called in this thread.
    kind : {"threads", "processes"}
        What workers are, outside of a cluster.
    shared : tuple
        Further arguments that are the same for all tasks: sent to each worker once.
    budget : Budget, optional
        When its seconds are over, `OutOfTimeError` is raised after the results that were there.
    ahead : int, optional
        Tasks in the hands of workers or finished and not yet asked for; several for each worker by default.
    lost : callable, optional
        `lost(task, why)` gives the result of a task whose worker died twice. Without it that is a `WorkerError`.

    Yields
    ------
    The results.

    Raises
    ------
    WorkerError
        If a worker process dies while it works on a task, and once more when it is tried again alone.
    """
    for _, value in _outcomes(function, tasks, jobs, kind, shared, budget, ahead, lost, True):
        yield value


def run_as_finished(
    function: Callable[..., Given],
    tasks: Iterable[Task],
    *,
    jobs: int,
    kind: Kind = "threads",
    shared: tuple[Any, ...] = (),
    budget: Budget | None = None,
    ahead: int | None = None,
    lost: Callable[[Task, str], Given] | None = None,
) -> Generator[tuple[int, Given], None, None]:
    """Like `run`, each result with the number of its task as soon as it is there, in any order."""
    yield from _outcomes(function, tasks, jobs, kind, shared, budget, ahead, lost, False)


def _outcomes(
    function: Callable[..., Given],
    tasks: Iterable[Task],
    jobs: int,
    kind: Kind,
    shared: tuple[Any, ...],
    budget: Budget | None,
    ahead: int | None,
    lost: Callable[[Task, str], Given] | None,
    ordered: bool,
) -> Iterator[tuple[int, Given]]:
    if alone(jobs):
        for number, task in enumerate(tasks):
            if budget is not None and budget.spent() is not None:
                raise OutOfTimeError
            with deadline(_over(budget)):
                value = function(task, *shared)
            yield number, value
        return
    window = ahead or max(4 * jobs, 8)
    source = enumerate(tasks)
    held: dict[int, Task] = {}
    ready: dict[int, _Outcome] = {}
    following = 0
    with _Crew(function, jobs, kind, shared, budget) as crew:
        while True:
            while len(crew) < window and (not ordered or len(crew) + len(ready) < window):
                new = next(source, None)
                if new is None:
                    break
                held[new[0]] = new[1]
                crew.put(*new)
            if not len(crew) and not ready:
                return
            if len(crew) and (not ordered or following not in ready):
                ready |= crew.finished()
            while ready and (not ordered or following in ready):
                number = following if ordered else next(iter(ready))
                following += 1
                outcome, task = ready.pop(number), held.pop(number)
                yield number, _value(outcome, number, task, lost)


def _value(outcome: _Outcome, number: int, task: Any, lost: Callable[[Any, str], Any] | None) -> Any:
    if outcome.died is not None:
        if lost is not None:
            return lost(task, outcome.died)
        raise WorkerError(f"part {number}: {outcome.died}")
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


OVERHEAD = 0.001
"""Seconds that a scheduler spends on a task: measured by `benchmarks/cluster_model.py` (Dask; joblib takes a third)."""

_SMALL_SHARE = 0.02
"""Of the time of a worker, that may go to overhead."""

_TURNS = 4
"""Times that each worker should come back for more, so that none is left with the long end."""


def grain(tasks: int, workers: int, seconds: float, overhead: float = OVERHEAD) -> int:
    """How many tasks of so many `seconds` each to hand out at a time.

    Enough that overhead is a small share of a worker's time, and that one scheduler can serve all workers in half
    the time a parcel takes. But each worker should come back four times, so that none is left with the long end; where
    the scheduler is the slowest part, only as far as its time and that of the last parcel are balanced.
    `docs/scale.md` has the model behind it.

    >>> grain(10_000, 8, 10.0), grain(1_000_000, 8, 1e-4), grain(1_000_000, 1_000, 1e-3)
    (1, 500, 1000)
    """
    ratio = overhead / max(seconds, 1e-9)
    wanted = ratio * max(1.0 / _SMALL_SHARE, 2.0 * workers)
    most = max(tasks / (_TURNS * max(workers, 1)), math.sqrt(tasks * ratio))
    return max(1, min(round(wanted), int(most), tasks))


# -- a tree --------------------------------------------------------------------------------------------------------


class _Part:
    """A part of a tree: waiting, at work, or done."""

    __slots__ = ("node", "out", "started")

    def __init__(self, node: Any) -> None:
        self.node, self.started = node, False
        self.out: deque[Any] | None = None


class Unfolding(Generic[Given, Task]):
    """The walk of `unfold`: iterate over it; when you leave early, `left` has what was not given out, in order."""

    def __init__(
        self,
        step: Callable[..., Any],
        start: list[Task],
        jobs: int,
        kind: Kind,
        shared: tuple[Any, ...],
        over: Callable[[], bool] | None,
    ) -> None:
        self._parts: deque[_Part] = deque(_Part(node) for node in start)
        self._arguments = step, jobs, kind, shared, over
        self._most = max(64, 16 * jobs)

    def __iter__(self) -> Iterator[Given]:
        step, jobs, kind, shared, over = self._arguments
        parts, running = self._parts, dict[int, _Part]()
        numbers = itertools.count()
        with _Crew(step, jobs, kind, shared, None, over) as crew:
            while parts:
                while parts and (out := parts[0].out) is not None:
                    while out:
                        yield out.popleft()
                    parts.popleft()
                for part in itertools.islice(parts, self._most):
                    if len(crew) > jobs:
                        break
                    if not part.started:
                        part.started = True
                        number = next(numbers)
                        running[number] = part
                        crew.put(number, part.node)
                if not len(crew):
                    continue
                for number, outcome in crew.finished().items():
                    part = running.pop(number)
                    out, rest = _value(outcome, number, part.node, None)
                    part.out, part.node = deque(out), None
                    if rest:
                        place = parts.index(part) + 1
                        parts.rotate(-place)
                        parts.extendleft(_Part(node) for node in reversed(rest))
                        parts.rotate(place)

    @property
    def left(self) -> list[Given | Task]:
        """What was not given out, in order: values that were there already, and nodes."""
        found: list[Given | Task] = []
        for part in self._parts:
            if part.out is None:
                found.append(part.node)
            else:
                found += part.out
        return found


def unfold(
    step: Callable[..., tuple[list[Given], list[Task]]],
    start: list[Task],
    *,
    jobs: int,
    kind: Kind = "threads",
    shared: tuple[Any, ...] = (),
    over: Callable[[], bool] | None = None,
) -> Unfolding[Given, Task]:
    """Walk a tree depth first: `step(node, *shared)` gives what the node holds and the nodes to go on with.

    What it gives out comes first, then what comes of those nodes, in their order: the same sequence for any number of
    workers. The nodes that come first are worked on first, so little has to be kept that is not yet due; a step should
    take some hundredths of a second. As soon as `over()`, workers are told to stop, and `OutOfTimeError` is raised.
    """
    return Unfolding(step, start, jobs, kind, shared, over)


# -- workers -------------------------------------------------------------------------------------------------------


_GIVEN_UP = "the cluster gave the task up"
_PLACES = 5
"""Times that a task given up so is handed out again."""


class _Outcome(NamedTuple):
    value: Any = None
    error: BaseException | None = None
    died: str | None = None


def on_cluster() -> bool:
    """Whether the workers are those of a Dask cluster."""
    return not _HERE.worker and _dask_client() is not None


def more_wanted() -> bool:
    """In a worker thread: whether no task waits for the next worker that is free, so that work should be passed on."""
    return _HERE.waiting is not None and _HERE.waiting.empty()


def alone(jobs: int) -> bool:
    """Whether the work is done in the thread of the caller."""
    return _HERE.worker or (jobs == 1 and _dask_client() is None)


def _over(budget: Budget | None) -> Callable[[], bool] | None:
    """What `deadline` takes, for a budget inside the deadline at hand."""
    before = deadline_at_hand()
    if budget is None or budget.seconds == float("inf"):
        return before
    if before is None:
        return lambda: budget.spent() is not None
    return lambda: before() or budget.spent() is not None


class _Hand:
    """A thread that works for one crew after another, and ends after some seconds without any.

    To start a thread takes as long as many a task; and what a thread has freed it gets again without the system.
    """

    resting: ClassVar[deque[_Hand]] = deque()

    def __init__(self) -> None:
        self._orders: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = SimpleQueue()
        # A daemon: a kernel that nobody waits for any more must not keep the process alive.
        threading.Thread(target=self._serve, name="reluscope worker", daemon=True).start()

    @classmethod
    def hire(cls, loop: Callable[..., None], *arguments: Any) -> None:
        """Run this loop in a thread that rests, or in a new one."""
        try:
            hand = cls.resting.pop()
        except IndexError:
            hand = cls()
        hand._orders.put((loop, arguments))

    def _serve(self) -> None:
        while True:
            try:
                loop, arguments = self._orders.get(timeout=_REST)
            except Empty:
                try:
                    self.resting.remove(self)
                except (ValueError, IndexError):  # not at rest: just hired; or others came and went meanwhile
                    continue
                return
            loop(*arguments)
            del loop, arguments
            self.resting.append(self)


in_child(_Hand.resting.clear)


def at_once(calls: Iterable[Callable[[], Given]], *, jobs: int) -> list[Given]:
    """What some short calls give, made by this thread and by `jobs - 1` others that rest.

    For a few milliseconds of work in which the interpreter is free: to put a crew together takes as long.
    """
    left, found = deque(enumerate(calls)), dict[int, Given]()

    def take() -> None:
        while True:
            try:
                number, call = left.popleft()
            except IndexError:  # no more of them
                return
            found[number] = call()

    def help_out(ended: SimpleQueue[BaseException | None]) -> None:
        error = None
        try:
            take()
        except BaseException as caught:
            error = caught
        ended.put(error)

    helpers = min(jobs, len(left)) - 1
    ended: SimpleQueue[BaseException | None] = SimpleQueue()
    for _ in range(helpers):
        _Hand.hire(help_out, ended)
    try:
        take()
    except BaseException:
        left.clear()  # of what follows, nothing is wanted any more
        raise
    for _ in range(helpers):
        error = ended.get()
        if error is not None:
            left.clear()
            raise error
    return [found[number] for number in range(len(found))]


class _Threads:
    """Worker threads that take tasks from one queue and put outcomes into another.

    Short tasks feel it: futures, and waiting for the first of several, take the interpreter's lock from the workers.
    """

    def __init__(self, jobs: int, work: Callable[[Any], Any]) -> None:
        self._jobs, self._work, self._started = jobs, work, 0
        self._tasks: SimpleQueue[tuple[int, Any] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, _Outcome]] = SimpleQueue()

    def submit(self, number: int, task: Any, busy: int) -> None:
        """Hand out a task; with it so many are out."""
        if self._started < min(busy, self._jobs):
            self._started += 1
            _Hand.hire(self._loop, self._work, self._tasks, self._done)
        self._tasks.put((number, task))

    @staticmethod
    def _loop(work: Callable[[Any], Any], tasks: SimpleQueue[Any], done: SimpleQueue[Any]) -> None:
        _HERE.waiting = tasks
        while (given := tasks.get()) is not None:
            number, task = given
            try:
                outcome = _Outcome(work(task))
            except BaseException as error:
                outcome = _Outcome(error=error)
            done.put((number, outcome))
            del given, task, outcome  # not to be kept until the next task
        _HERE.waiting = None

    def finished(self) -> dict[int, _Outcome]:
        """What has been done since; nothing if that takes long."""
        out: dict[int, _Outcome] = {}
        with suppress(Empty):
            number, outcome = self._done.get(timeout=_LOOK)
            out[number] = outcome
            while True:
                number, outcome = self._done.get_nowait()
                out[number] = outcome
        return out

    def leave(self) -> None:
        """All threads are free after the tasks at hand."""
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()
        for _ in range(self._started):
            self._tasks.put(None)


class _Crew:
    """Workers for one function: `put` tasks in, take what is `finished` out, leave the block and all of them stop."""

    def __init__(
        self,
        function: Callable[..., Any],
        jobs: int,
        kind: Kind,
        shared: tuple[Any, ...],
        budget: Budget | None,
        over: Callable[[], bool] | None = None,
    ) -> None:
        self._function, self._jobs, self._shared, self._budget = function, jobs, shared, budget
        self._client = _dask_client()
        self._kind: str = "dask" if self._client is not None else kind
        self._running: dict[Future[Any], int] = {}
        self._tasks: dict[int, Any] = {}
        self._queue: deque[int] = deque()
        self._over = over or _over(budget)
        # A caller's own `over` is asked in the caller's thread alone; workers hear of it when the crew is left.
        self._workers_over = None if over is not None else self._over
        self._halt = Halt()
        self._on_exit = ExitStack()
        self._name = f"reluscope-{uuid.uuid4().hex}"
        self._asked = time.monotonic()
        self._deserted: float | None = None  # since when the cluster has been seen without a worker

    def __len__(self) -> int:
        return len(self._tasks)

    def __enter__(self) -> _Crew:
        if self._kind == "threads":
            self._on_exit.enter_context(blas_threads(0))
        elif self._kind == "processes":
            self._blob = _shipped((self._function, self._shared), self._on_exit)
        else:
            _same_versions(self._client, self._client.scheduler.address)
            self._ship()
        if self._kind == "threads":
            given = self._function, self._shared, self._halt, self._workers_over
            self._threads = _Threads(self._jobs, lambda task: _in_thread(task, *given))
        elif self._kind == "processes":
            self._executor = self._new_executor()
        return self

    def _new_executor(self) -> Executor:
        return late("joblib.externals.loky").get_reusable_executor(self._jobs, timeout=_IDLE)

    def __exit__(self, *error: object) -> None:
        """Whatever still runs is told to stop, and not waited for."""
        self._halt.set()
        busy = any(not future.done() for future in self._running)
        if self._kind == "threads":
            self._threads.leave()
        elif self._kind == "processes":
            # A process that multiprocessing started waits for its children when it ends: idle workers keep it for long.
            if busy or late("multiprocessing").parent_process() is not None:
                # A task that the pool is just taking in when it is told to end makes its thread stumble.
                until = time.monotonic() + 1.0
                while not all(f.running() or f.done() for f in self._running) and time.monotonic() < until:
                    time.sleep(0.001)
                self._executor.shutdown(wait=True, kill_workers=True)  # type: ignore[call-arg]
        else:
            for future in self._running:
                future.cancel()
            if busy:
                late("distributed").Event(self._name, client=self._client).set()
        self._on_exit.close()

    def put(self, number: int, task: Any) -> None:
        """Hand out a task."""
        self._tasks[number] = task
        self._queue.append(number)
        self._feed()

    def _feed(self) -> None:
        """Two tasks for each worker: one at hand, one to go on with. What dies with a pool is no more than that."""
        while self._queue and self._out < 2 * self._jobs:
            number = self._queue.popleft()
            if self._kind == "threads":
                self._threads.submit(number, self._tasks[number], self._out)
            else:
                self._running[self._submit(self._tasks[number])] = number

    @property
    def _out(self) -> int:
        """Tasks in the hands of workers."""
        return len(self._tasks) - len(self._queue)

    def _submit(self, task: Any) -> Future[Any]:
        if self._kind == "dask":
            # Large tasks go to a worker straight away, past the scheduler; with the task they would pass through it.
            if _size(task) > _LARGE:
                task = self._placed(task)
            given = self._blob, task, self._budget, self._name
            return _carried(self._client.submit(_in_process, *given, pure=False))
        return self._executor.submit(_in_process, self._blob, task, self._budget, None)

    def _ship(self) -> None:
        """Function and shared arguments into the memory of every worker of the cluster."""
        given = self._function, self._shared
        self._blob = self._placed(given, broadcast=True)

    def _placed(self, data: Any, broadcast: bool = False) -> Any:
        """Data in the memory of one or all workers of the cluster; itself, if none takes it (they may just die)."""
        for _ in range(3):
            try:
                return self._client.scatter([data], broadcast=broadcast, hash=False, timeout=_DESERTED / 6)[0]
            except (OSError, TimeoutError):  # a connection that was closed is an OSError
                time.sleep(0.2)
        return data

    def finished(self) -> dict[int, _Outcome]:
        """What has been done since, at least one task; `OutOfTimeError` when the time is over."""
        while not (out := self._threads.finished() if self._kind == "threads" else self._done()):
            self._go_on_waiting()
        if any(o.died is not None for o in out.values()):
            out = self._again(out)
        for number in out:
            del self._tasks[number]
        self._feed()
        return out

    def _go_on_waiting(self) -> None:
        """Go on waiting, unless the time is over or the cluster has had no worker for long."""
        if self._over is not None and self._over():
            raise OutOfTimeError
        look()
        now = time.monotonic()
        if self._kind != "dask" or now - self._asked < _DESERTED / 12:
            return
        self._asked = now
        try:
            any_worker = bool(self._client.sync(self._client.scheduler.ncores, callback_timeout=_DESERTED / 12))
        except (OSError, TimeoutError, AttributeError):  # the scheduler itself is gone
            any_worker = False
        if any_worker:
            self._deserted = None
        elif self._deserted is None:
            self._deserted = now
        elif now - self._deserted > _DESERTED:
            since = now - self._deserted
            raise WorkerError(f"the cluster has had no worker for {since:.0f} s: start workers and ask again")

    def _done(self) -> dict[int, _Outcome]:
        """What other processes have done since; nothing if that takes long."""
        done, _ = wait(self._running, timeout=_LOOK, return_when=FIRST_COMPLETED)
        return {self._running.pop(future): _outcome(future) for future in done}

    def _again(self, out: dict[int, _Outcome]) -> dict[int, _Outcome]:
        """After the death of a worker: what was in the hands of any worker is done again, one task at a time.

        Several may have been at work in the pool that broke; alone, the one that kills its worker shows itself.
        """
        suspects = {n for n, outcome in out.items() if outcome.died is not None}
        if self._kind == "processes":
            wait(self._running)  # all of them fail with the pool
            for future, number in self._running.items():
                outcome = _outcome(future)
                if outcome.died is None:
                    out[number] = outcome
                else:
                    suspects.add(number)
            self._running = {}
        for number in sorted(suspects):
            if self._kind == "processes":
                self._executor = self._new_executor()
            for _ in range(_PLACES):
                future = self._submit(self._tasks[number])
                self._running[future] = number
                while not wait([future], timeout=_LOOK).done:
                    self._go_on_waiting()
                del self._running[future]
                out[number] = _outcome(future)
                # What it was made of, or what all tasks share, went with a worker that died: no fault of the task.
                if out[number].died != _GIVEN_UP:
                    break
                time.sleep(0.5)
                if self._kind == "dask":
                    self._ship()
        if self._kind == "processes":
            self._executor = self._new_executor()
        return out


def _carried(future: Any) -> Future[Any]:
    """A future of this process for one of Dask's, with its value brought here.

    Dask's own executor never ends such a future if the task is cancelled while its value is on the way.
    """
    own: Future[Any] = Future()

    def carry(done: Any) -> None:
        try:
            value = done.result()
        except BaseException as error:
            if isinstance(error, OSError) and done.status != "error":  # not the task's own
                error = WorkerError(f"the scheduler of the cluster does not answer any more ({error})")
            with suppress(InvalidStateError):
                own.set_exception(error)
        else:
            with suppress(InvalidStateError):
                own.set_result(value)

    own.add_done_callback(lambda ended: future.cancel() if ended.cancelled() else None)
    future.add_done_callback(carry)
    return own


def _outcome(future: Future[Any]) -> _Outcome:
    try:
        return _Outcome(future.result())
    except BrokenExecutor as error:
        return _Outcome(died=_cause(error))
    except CancelledError:
        return _Outcome(died=_GIVEN_UP)
    except Exception as error:
        if type(error).__name__ in ("KilledWorker", "CancelledError", "FutureCancelledError", "TerminatedWorkerError"):
            return _Outcome(died=_cause(error))
        return _Outcome(error=error)


def _cause(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return (
        "its worker process died twice, the second time with nothing else at work; it may have run out of memory "
        f"(fewer jobs= leave more for each) or was killed ({words[:200]})"
    )


class PerThread(Generic[Given]):
    """One object of a kind for every thread: `make()` on first use. It may travel to other processes."""

    def __init__(self, make: Callable[[], Given]) -> None:
        self._make, self._own = make, threading.local()

    def __call__(self) -> Given:
        """This thread's own."""
        if not hasattr(self._own, "made"):
            self._own.made = self._make()
        found: Given = self._own.made
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return PerThread, (self._make,)


@contextmanager
def _as_worker() -> Iterator[None]:
    before, _HERE.worker = _HERE.worker, True
    try:
        yield
    finally:
        _HERE.worker = before


def _in_thread(
    task: Any,
    function: Callable[..., Any],
    shared: tuple[Any, ...],
    halt: Halt,
    over: Callable[[], bool] | None,
) -> Any:
    with _as_worker(), stoppable(halt), deadline(over):
        look()
        return function(task, *shared)


def _size(task: Any, depth: int = 8) -> int:
    """About how many bytes the arrays and texts of a task take, those inside of records included."""
    nbytes = getattr(task, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    if depth == 0 or isinstance(task, (int, float, complex, type, type(None))):
        return 0
    if isinstance(task, (bytes, bytearray, str)):
        return len(task)
    if isinstance(task, dict):
        inside: Iterable[Any] = task.values()
    elif isinstance(task, (list, tuple, set, frozenset, deque)):
        inside = task
    else:
        slots = getattr(type(task), "__slots__", ())
        inside = [*getattr(task, "__dict__", {}).values(), *(getattr(task, name, None) for name in slots)]
    return sum(_size(each, depth - 1) for each in inside)


def _in_process(blob: Any, task: Any, budget: Budget | None, name: str | None) -> Any:
    """What a worker process does: function and shared arguments are unpacked once, BLAS has one thread."""
    function, shared = _received(*blob) if isinstance(blob, _Shipped) else blob
    halted = None if name is None else _halted(name)
    with _as_worker(), blas_threads(0), stoppable(halted), deadline(_over(budget)):
        return function(task, *shared)


def _halted(name: str) -> Callable[[], bool]:
    """Whether the client has left: asked once a second, so that short tasks never do."""
    asked = time.monotonic()
    event: Any = None
    answer = False

    def ask() -> bool:
        nonlocal asked, event, answer
        if not answer and time.monotonic() - asked > 1.0:
            distributed = late("distributed")
            event = event or distributed.Event(name, client=distributed.get_client())
            answer = bool(event.is_set())
            asked = time.monotonic()
        return answer

    return ask


class _Shipped(NamedTuple):
    """Function and shared arguments in a file of this user's own, for worker processes on this machine."""

    path: str
    name: str


def _shipped(shared: tuple[Any, ...], on_exit: ExitStack) -> _Shipped:
    folder = on_exit.enter_context(tempfile.TemporaryDirectory(prefix="reluscope-", ignore_cleanup_errors=True))
    path = str(Path(folder) / "shared")
    Path(path).write_bytes(late("joblib.externals.loky.backend.reduction").dumps(shared))
    return _Shipped(path, uuid.uuid4().hex)


@lru_cache(maxsize=4)
def _received(path: str, name: str) -> tuple[Any, ...]:
    """The file was written by the process that started this worker, in a folder only its user may enter."""
    return tuple(late("pickle").loads(Path(path).read_bytes()))
