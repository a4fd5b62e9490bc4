"""`batch`: ask what has no answer yet, and keep each answer as soon as it is there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from reluscope._check import choice, flag, integer, several, text
from reluscope._files import as_path, atomic_write, make_folder
from reluscope._text import count
from reluscope.batches.instances import Instance, read_instances
from reluscope.batches.record import Batch, of_store, reports_folder
from reluscope.batches.store import Store, copied_store, open_store
from reluscope.batches.task import (
    FAILED,
    Result,
    Task,
    answer_task,
    each_of,
    failed,
    report_task,
    shared_networks,
    shipped,
)
from reluscope.errors import InputError
from reluscope.progress import meter
from reluscope.threads import clean_interrupt
from reluscope.workers import cluster as on_cluster
from reluscope.workers import grain, resolve_jobs, run_as_finished

_LONGEST = 0.5
"""Seconds of a parcel of short questions: what is lost when the process ends is less."""


class Watch(Protocol):
    """Who looks on while a batch runs."""

    def begin(self, total: int, answered: int, jobs: int) -> None:
        """So many instances are asked for, so many of them were answered before."""

    def finished(self, one: Instance, result: Result, left: float) -> None:
        """An instance is done; about so many seconds are left."""


@clean_interrupt()
def batch(
    instances: Any,
    results: str | PathLike[str],
    *,
    law: Any = None,
    only: str | Sequence[str] | None = None,
    retry: str | None = None,
    dry_run: bool = False,
    reports: bool = False,
    cluster: str | None = None,
    guarantee: str | None = None,
    tolerance: float | None = None,
    budget: Any = None,
    jobs: int | None = None,
    rng: int | None = None,
    progress: Any = None,
) -> Batch:
    """Ask many questions and keep the answers in one file; the same call goes on where an earlier one was stopped.

    Parameters
    ----------
    instances : path, DataFrame, list of dict, or pair of folders
        One row for each question, with `network` (a file, or a Network), `property` (a VNN-LIB file) or `event` (text),
        `law` (a law.json, a data.csv to fit one to, a Law, or the data of one; a property without a law gets the
        uniform one on its box), and perhaps `guarantee`, `tolerance`, `level`, `budget`. A path leads to a CSV or JSONL
        file whose paths start from its folder; VNN-COMP's `instances.csv` (network, property, seconds) is read as it
        is. A pair of folders means every network with every property.
    results : path
        The SQLite file that keeps the answers; made if it does not exist.
    law, guarantee, tolerance, budget : optional
        In place of the columns of that name, for all rows. Properties are answered soundly by default; the budget of a
        property is for probability and counterexample together.
    only : str or sequence of str, optional
        Ask rows alone whose network and question, with a blank between them, match such a pattern: `"*2_1*prop_1.*"`.
        Text without `*`, `?` and `[` may stand anywhere in them.
    retry : {"failed"}, optional
        Ask rows that failed again.
    dry_run : bool
        Ask nothing and write nothing: the table shows what would be asked as "waiting".
    reports : bool
        Also write a report about each network and law, in a folder beside the results.
    jobs : int, optional
        Worker processes, each with one question at a time; -1 for all cores.
    cluster : str, optional
        Address of a Dask scheduler whose workers do the work.
    rng : int, optional
        Changes the seeds, which follow from the questions alone.
    progress : optional
        None (silent), "auto", or a function of (done, text).

    Returns
    -------
    Batch
        All rows, asked now or earlier.

    Raises
    ------
    InputError
        If a row cannot be asked (all such rows are named, and nothing is asked), if the file of results belongs to
        another batch or cannot be written, if the cluster does not answer. A question that fails is no error: its row
        has the reason.

    Notes
    -----
    Each answer is on disk before the next one is kept, so the process may end at any moment: at most what was running
    is asked again. Rows are found again by a digest of the question and of the bytes of its files, so a file that has
    changed is asked about anew.

    Examples
    --------
    >>> import reluscope as rs, tempfile, pathlib
    >>> net = rs.Network([([[1.0]], [0.0]), ([[1.0]], None)], name="positive part")
    >>> rows = [{"network": net, "law": rs.Gaussian([0.0]), "event": f"y[0] > {k}"} for k in range(3)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = rs.batch(rows, pathlib.Path(folder) / "results.sqlite")
    >>> found.summary()
    '3 instances: 3 done'
    """
    with meter(progress, "batch") as show:
        return run_batch(
            instances, results, _Meter(show), law=law, only=only, retry=retry, dry_run=dry_run, reports=reports,
            jobs=jobs, cluster=cluster, guarantee=guarantee, tolerance=tolerance, budget=budget, rng=rng,
        )  # fmt: skip


def run_batch(
    instances: Any, results: Any, watch: Watch, *, law: Any = None, only: Any = None, retry: Any = None,
    dry_run: Any = False, reports: Any = False, jobs: Any = None, cluster: Any = None, guarantee: Any = None,
    tolerance: Any = None, budget: Any = None, rng: Any = None,
) -> Batch:  # fmt: skip
    """What `batch` does, with somebody who looks on."""
    file = as_path(results, "results")
    patterns = _patterns(only)
    if retry is not None:
        choice(retry, "retry", (FAILED,))
    dry_run, reports = flag(dry_run, "dry_run"), flag(reports, "reports")
    workers = resolve_jobs(jobs)
    if cluster is not None:
        text(cluster, "cluster")
    base = 0 if rng is None else integer(rng, "rng", low=0)
    asked = read_instances(instances, law=law, guarantee=guarantee, tolerance=tolerance, budget=budget)
    chosen = [one for one in asked if _matches(one, patterns)]
    if not chosen:
        raise InputError(f"only matches none of the {count(len(asked), 'row')}, such as {' '.join(asked[0].names)!r}")
    source = str(instances) if isinstance(instances, (str, PathLike)) else "rows in memory"
    if isinstance(instances, tuple) and all(isinstance(part, (str, PathLike)) for part in instances):
        source = " and ".join(map(str, instances))
    with ExitStack() as stack:
        store = stack.enter_context(copied_store(file) if dry_run else open_store(file, write=True))
        notes = store.agree(asked, source)
        if retry == FAILED:
            store.forget_failures([one.digest for one in chosen])
        states = store.states()
        waiting = {one.digest: one for one in chosen if one.digest not in states}
        if dry_run:
            notes.append(f"{len(waiting):,} of {count(len(asked), 'row')} would be asked")
            return of_store(store, tuple(notes))
        if waiting or reports:
            stack.enter_context(on_cluster(cluster))
            workers = resolve_jobs(jobs)  # inside a cluster: as many as it has
        watch.begin(len(chosen), len(chosen) - sum(one.digest in waiting for one in chosen), workers)
        tasks = [Task(one, one.seed(base)) for one in waiting.values()]
        _answer(store, tasks, workers, cluster is not None, watch)
        if reports:
            _report(file, [Task(one, one.seed(base)) for one in chosen], workers, cluster is not None)
        return of_store(store, tuple(notes))


class _Parcels:
    """Tasks in parcels for workers: one at a time until the pace is known, then as many short ones as `grain` says."""

    def __init__(self, tasks: list[Task], jobs: int, far: bool) -> None:
        self.networks = shared_networks(tasks) if far else {}
        self._waiting, self._suspects = deque(tasks), deque[Task]()
        self._jobs, self._far = jobs, far
        self._last: deque[float] = deque(maxlen=max(8, 2 * jobs))  # the first ones wait for compiled code

    def __bool__(self) -> bool:
        return bool(self._waiting or self._suspects)

    def __iter__(self) -> Iterator[list[Task]]:
        while self:
            source, size = (self._suspects, 1) if self._suspects else (self._waiting, self._size())
            parcel = [source.popleft() for _ in range(min(size, len(source)))]
            yield [shipped(task, self.networks) for task in parcel] if self._far else parcel

    def _size(self) -> int:
        if len(self._last) < 2 * self._jobs or self._jobs == 1:
            return 1
        each = sum(self._last) / len(self._last)
        return max(1, min(grain(len(self._waiting), self._jobs, each), int(_LONGEST / max(each, 1e-9))))

    def took(self, result: Result) -> None:
        """Learn the pace."""
        self._last.append(result.seconds)

    def lost(self, parcel: list[Task], why: str) -> list[Result]:
        """A worker died twice: which task did it shows when each is asked alone."""
        if len(parcel) == 1:
            return [failed(parcel[0], why)]
        self._suspects.extend(parcel)
        return []


def _answer(store: Store, tasks: list[Task], jobs: int, far: bool, watch: Watch) -> None:
    """Ask the tasks, and keep each parcel of answers in one transaction."""
    started, done = time.monotonic(), 0
    parcels = _Parcels(tasks, jobs, far)
    instances = {task.instance.digest: task.instance for task in tasks}
    work = partial(each_of, answer_task)
    options: dict[str, Any] = {"jobs": jobs, "kind": "processes", "ahead": jobs + 1, "lost": parcels.lost}
    while parcels:
        for _, results in run_as_finished(work, parcels, shared=(parcels.networks,), **options):
            store.keep(results)
            for result in results:
                done += 1
                parcels.took(result)
                left = (time.monotonic() - started) / done * (len(tasks) - done)
                watch.finished(instances[result.digest], result, left)


def _report(results: Path, tasks: list[Task], jobs: int, far: bool) -> None:
    """Reports that are not there yet, one for each question."""
    folder = make_folder(reports_folder(results))
    missing = {f"{task.instance.digest[:16]}.html": task for task in tasks}
    missing = {name: task for name, task in missing.items() if not (folder / name).exists()}
    names = list(missing)
    found = run_as_finished(
        report_task,
        (shipped(task, {}) if far else task for task in missing.values()),
        jobs=jobs,
        kind="processes",
        ahead=jobs + 1,
        lost=lambda task, why: "",
    )
    for number, page in found:
        if page:
            with atomic_write(folder / names[number]) as file:
                file.write(page.encode())


def _patterns(only: Any) -> tuple[str, ...]:
    if only is None:
        return ()
    given = (only,) if isinstance(only, str) else several(only, "only", "patterns")
    return tuple(p if set("*?[") & set(text(p, "only")) else f"*{p}*" for p in given)


def _matches(one: Instance, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(" ".join(one.names), pattern) for pattern in patterns)


class _Meter:
    """A `Watch` that reports to a meter."""

    def __init__(self, show: Any) -> None:
        self._show = show
        self._total = self._done = 0

    def begin(self, total: int, answered: int, jobs: int) -> None:
        self._total, self._done = total, answered
        self._show(answered, f"{answered:,} of {total:,}")

    def finished(self, one: Instance, result: Result, left: float) -> None:
        self._done += 1
        self._show(self._done, f"{self._done:,} of {self._total:,}, about {in_words(left)} to go")


def in_words(seconds: float) -> str:
    """A time, such as `40 s`, `12 min` or `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
