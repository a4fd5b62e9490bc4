"""Workers: the same results for any number of them, a clean stop, and nothing lost when one dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from threadpoolctl import threadpool_info

import reluscope as rs
from reluscope import workers
from reluscope.budget import Budget, parse_budget
from reluscope.threads import OutOfTimeError, look, stopped
from reluscope.workers import at_once, resolve_jobs, run, run_as_finished, unfold


@pytest.fixture(autouse=True)
def no_setting(monkeypatch):
    monkeypatch.delenv("RELUSCOPE_JOBS", raising=False)


# -- how many ------------------------------------------------------------------------------------------------------


def test_jobs_come_from_the_call_the_setting_or_joblib(monkeypatch):
    assert resolve_jobs(None) == 1
    assert resolve_jobs(3) == 3
    assert resolve_jobs(-1) == joblib.cpu_count()
    with joblib.parallel_config(n_jobs=5):
        assert resolve_jobs(None) == 5
        assert resolve_jobs(2) == 2
        monkeypatch.setenv("RELUSCOPE_JOBS", "4")
        assert resolve_jobs(None) == 4
    monkeypatch.setenv("RELUSCOPE_JOBS", "-1")
    assert resolve_jobs(None) == joblib.cpu_count()


@pytest.mark.parametrize("bad", [0, -2, 1.5, "two", True, [2], 10**6])
def test_jobs_that_mean_nothing_are_refused(bad):
    with pytest.raises(rs.InputError, match="jobs must be a number of workers, at least 1, or -1"):
        resolve_jobs(bad)


@pytest.mark.parametrize("bad", ["two", "0", "1.5"])
def test_a_setting_that_means_nothing_is_refused(bad, monkeypatch):
    monkeypatch.setenv("RELUSCOPE_JOBS", bad)
    with pytest.raises(rs.InputError, match="RELUSCOPE_JOBS must be"):
        resolve_jobs(None)


# -- short calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_short_calls_come_back_in_their_order_and_are_shared(jobs):
    by = set()
    met = threading.Barrier(min(jobs, 3))  # so many threads must be at work together, or nobody passes

    def call(k):
        by.add(threading.get_ident())
        if k < min(jobs, 3):
            met.wait(timeout=30)
        return k * k

    assert at_once([lambda k=k: call(k) for k in range(9)], jobs=jobs) == [k * k for k in range(9)]
    assert min(jobs, 3) <= len(by) <= jobs
    assert at_once([], jobs=jobs) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_error_of_a_short_call_is_taken_for_the_end(jobs):
    with pytest.raises(IndexError):
        at_once([lambda: 1, lambda: [][0], lambda: 3], jobs=jobs)


@pytest.mark.parametrize("where", ["caller", "helper"])
def test_an_error_in_a_short_call_ends_the_others(where):
    here, later = threading.get_ident(), []
    met = threading.Barrier(2)

    def fail():
        met.wait(timeout=30)
        if (threading.get_ident() == here) == (where == "caller"):
            raise ValueError("no")
        time.sleep(0.2)  # the other one has failed by then

    with pytest.raises(ValueError, match="no"):
        at_once([fail, fail, *[lambda: later.append(1)] * 5], jobs=2)
    if where == "caller":
        assert not later


# -- a map ---------------------------------------------------------------------------------------------------------


def slow_square(x, offset=0):
    time.sleep(0.002 * (x % 5))
    return x * x + offset


@pytest.mark.parametrize(("jobs", "kind"), [(1, "threads"), (2, "threads"), (7, "threads"), (2, "processes")])
def test_results_come_in_the_order_of_the_tasks(jobs, kind):
    assert list(run(slow_square, iter(range(40)), jobs=jobs, kind=kind, shared=(3,))) == [x * x + 3 for x in range(40)]
    found = list(run_as_finished(slow_square, range(40), jobs=jobs, kind=kind))
    assert sorted(found) == [(x, x * x) for x in range(40)]


def test_tasks_are_taken_only_so_far_ahead():
    taken = []

    def tasks():
        for i in range(10**9):
            taken.append(i)
            yield i

    results = run(slow_square, tasks(), jobs=2, ahead=6)
    assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
    results.close()
    assert len(taken) <= 5 + 6


def fails(x):
    if x == 3:
        raise ValueError("three")
    return x


@pytest.mark.parametrize(("jobs", "kind"), [(1, "threads"), (2, "threads"), (2, "processes")])
def test_an_error_comes_where_its_task_stands(jobs, kind):
    seen = []
    with pytest.raises(ValueError, match="three"):
        seen.extend(run(fails, range(10), jobs=jobs, kind=kind))
    assert seen == [0, 1, 2]


def about_here(x):
    found = [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]
    return max(found, default=1), resolve_jobs(None), resolve_jobs(5), list(run(fails, [1, 2], jobs=5))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_workers_take_one_core_each(kind):
    np.ones((2, 2)) @ np.ones((2, 2))
    for blas, default, asked, nested in run(about_here, range(4), jobs=2, kind=kind):
        assert (blas, default, asked, nested) == (1, 1, 1, [1, 2])
    assert resolve_jobs(5) == 5


def spin(x):
    while True:
        look()
        time.sleep(0.001)


def spin_on_budget(x):
    limit = Budget()
    while limit.spent() is None:
        time.sleep(0.001)
    assert stopped()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_budget_ends_the_work_and_keeps_what_was_there(jobs):
    limit = parse_budget("0.3s")
    seen = []
    with pytest.raises(OutOfTimeError):
        seen.extend(run(lambda x: x if x < 3 else spin(x), range(10), jobs=jobs, budget=limit))
    assert seen == [0, 1, 2] and limit.elapsed() < 2


@pytest.mark.parametrize("work", [spin, spin_on_budget])
def test_threads_stop_when_the_caller_leaves(work, threads_at_work):
    before = threads_at_work()
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(run(work, range(10), jobs=3))
    assert time.monotonic() - began < 2.3
    until = time.monotonic() + 2
    while threads_at_work() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threads_at_work() <= before


def test_worker_threads_serve_one_crew_after_another_and_end_without_work(monkeypatch):
    """Handed out while they are about to end, too: the pause is as long as their patience."""
    list(run(slow_square, range(8), jobs=2))
    until = time.monotonic() + 2
    while len(workers._Hand.resting) < 2 and time.monotonic() < until:  # they come to rest after the last result
        time.sleep(0.001)
    names = {thread.ident for thread in threading.enumerate() if thread.name == "reluscope worker"}
    found = set(run(lambda _: (time.sleep(0.01), threading.get_ident())[1], range(8), jobs=2))
    assert found <= names
    monkeypatch.setattr(workers, "_REST", 0.002)
    for _ in range(300):
        assert list(run(lambda x: x, range(2), jobs=2)) == [0, 1]
        time.sleep(0.002)
    until = time.monotonic() + 10
    while workers._Hand.resting and time.monotonic() < until:
        time.sleep(0.01)
    assert not workers._Hand.resting


def write_and_sleep(x, folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(60)


def test_processes_stop_when_the_caller_leaves(tmp_path):
    timer = threading.Timer(3.0, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(run(write_and_sleep, range(10), jobs=2, kind="processes", shared=(str(tmp_path),)))
    pids = [int(p.name) for p in tmp_path.iterdir()]
    assert pids
    until = time.monotonic() + 2
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(alive, pids))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- workers that die ------------------------------------------------------------------------------------------------


def die_once(x, folder):
    if x == 5:
        try:
            Path(folder, "died").touch(exist_ok=False)
        except FileExistsError:
            return x
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def die_always(x):
    if x == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_the_part_of_a_worker_that_died_is_done_again(tmp_path):
    found = list(run(die_once, range(12), jobs=2, kind="processes", shared=(str(tmp_path),)))
    assert found == list(range(12)) and (tmp_path / "died").exists()


def test_a_part_that_kills_its_worker_twice_is_named():
    seen = []
    with pytest.raises(rs.WorkerError, match="part 5: its worker process died twice"):
        seen.extend(run(die_always, range(12), jobs=2, kind="processes"))
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_caller_may_go_on_without_a_part_that_kills_its_worker():
    kept = list(run(die_always, range(12), jobs=2, kind="processes", lost=lambda task, why: f"lost {task}"))
    assert kept == [0, 1, 2, 3, 4, "lost 5", *range(6, 12)]


# -- a tree --------------------------------------------------------------------------------------------------------


def branch(node, depth=6):
    """Nodes are tuples; leaves give themselves, others three children, some with a value of their own."""
    time.sleep(0.0005 * (sum(node) % 3))
    if len(node) == depth:
        return [node], []
    return ([(*node, "here")] if len(node) % 2 else []), [(*node, i) for i in range(3)]


def expected(node, depth):
    out, rest = branch(node, depth)
    yield from out
    for child in rest:
        yield from expected(child, depth)


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_a_tree_is_walked_depth_first_by_any_number(jobs):
    want = list(expected((), 5))
    assert len(want) > 3**5
    assert list(unfold(branch, [()], jobs=jobs, shared=(5,))) == want


def test_a_walk_that_is_left_early_says_what_is_left():
    want = list(expected((), 4))
    walk = unfold(branch, [()], jobs=3, shared=(4,))
    got = []
    for value in walk:
        got.append(value)
        if len(got) == 20:
            break
    rest = []
    for thing in walk.left:
        rest += [thing] if len(thing) == 4 or "here" in thing else list(expected(thing, 4))
    assert got + rest == want


# -- a budget in another process -----------------------------------------------------------------------------------


def seconds_left(x, limit):
    return limit.seconds - limit.elapsed(), limit.regions


def test_a_budget_travels_with_the_seconds_that_are_left():
    limit = Budget(seconds=100.0, regions=7, started=Budget().started - 60.0)
    ((left, regions),) = run(seconds_left, [0], jobs=2, kind="processes", shared=(limit,))
    assert 25 < left <= 40.5 and regions == 7


def in_a_child(answers):
    answers.put(list(run(slow_square, range(4), jobs=2, kind="processes", shared=(0,))))


def test_a_child_of_multiprocessing_ends_with_its_work():
    """Its idle workers would live for two minutes, and it waits for them."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=in_a_child, args=(answers,))
    child.start()
    assert answers.get(timeout=60) == [0, 1, 4, 9]
    child.join(30)
    assert child.exitcode == 0


# -- a cluster -----------------------------------------------------------------------------------------------------


def test_dask_gives_the_same_results(dask_client):
    with joblib.parallel_config(backend="dask", client=dask_client):
        assert resolve_jobs(None) == 2
        found = list(run(slow_square, range(20), jobs=2, shared=(np.arange(3),)))
        assert np.array_equal(found, [x * x + np.arange(3) for x in range(20)])
        pids = set(run(lambda x: os.getpid(), range(20), jobs=2))
        assert os.getpid() not in pids
        assert list(unfold(branch, [()], jobs=2, shared=(3,))) == list(expected((), 3))
        with pytest.raises(ValueError, match="three"):
            list(run(fails, range(10), jobs=2))


def test_a_dask_worker_that_dies_loses_nothing(dask_client, tmp_path):
    with joblib.parallel_config(backend="dask", client=dask_client):
        found = list(run(die_once, range(12), jobs=2, shared=(str(tmp_path),)))
    assert found == list(range(12)) and (tmp_path / "died").exists()


def die_once_with(task, folder):
    """Kills the first worker that comes here, then gives what it was given."""
    number, block = task
    return die_once(number, folder), float(block.sum())


def test_large_tasks_go_past_the_scheduler_of_dask(dask_client, tmp_path):
    """Tasks of megabytes: no warning of a large graph (an error in tests), lists arrive whole, death loses none."""
    blocks = [(i, np.full(2_500_000, float(i))) for i in range(8)]
    record = rs.Gaussian(np.zeros(200_000), np.ones(200_000))
    assert workers._size(record) >= 3_200_000 and workers._size((1, "a", [record])) >= 3_200_000 > workers._size(
        (1, "a")
    )
    with joblib.parallel_config(backend="dask", client=dask_client):
        found = list(
            run(lambda task: (task[0][0], float(task[0][1].sum()), len(task)), [[b, []] for b in blocks], jobs=2)
        )
        assert found == [(i, 2_500_000.0 * i, 2) for i in range(8)]
        again = list(run(die_once_with, blocks, jobs=2, shared=(str(tmp_path),)))
    assert again == [(i, 2_500_000.0 * i) for i in range(8)] and (tmp_path / "died").exists()


def test_a_task_that_the_cluster_gives_up_is_handed_out_again(dask_client, monkeypatch):
    """Its data went to a worker that was dying, and the same may happen to them once more."""
    outcome, asked = workers._outcome, []

    def given_up(future):
        asked.append(future)
        found = outcome(future)
        return workers._Outcome(died=workers._GIVEN_UP) if len(asked) <= 3 else found

    monkeypatch.setattr(workers, "_outcome", given_up)
    with joblib.parallel_config(backend="dask", client=dask_client):
        assert list(run(slow_square, range(4), jobs=2)) == [0, 1, 4, 9]
        monkeypatch.setattr(workers, "_outcome", lambda future: workers._Outcome(died=workers._GIVEN_UP))
        monkeypatch.setattr(workers, "_PLACES", 1)
        with pytest.raises(rs.WorkerError, match="part 0: the cluster gave the task up"):
            list(run(slow_square, range(4), jobs=2))


def plus_sum(x, block):
    """A number plus what all tasks share."""
    return x + float(block.sum())


def test_what_all_tasks_share_is_shipped_again_when_no_worker_has_it_any_more(dask_client):
    """All workers die in the middle of the work: function and shared arguments are gone with them."""
    with joblib.parallel_config(backend="dask", client=dask_client):
        results = run(plus_sum, range(12), jobs=2, shared=(np.ones(1_000),))
        found = [next(results)]
        for process in dask_client.run(os.getpid).values():
            os.kill(process, signal.SIGKILL)
        assert found + list(results) == [x + 1000.0 for x in range(12)]


class _Late:
    """A future of Dask's that is cancelled, or loses its scheduler, while its value is on the way."""

    def __init__(self, error, status):
        self.error, self.status, self.cancelled = error, status, False

    def add_done_callback(self, call):
        call(self)

    def result(self):
        raise self.error

    def cancel(self):
        self.cancelled = True


def test_a_future_of_dask_ends_whatever_happens_to_its_value():
    ended = workers._carried(_Late(workers.CancelledError(), "finished"))
    assert ended.done() and workers._outcome(ended).died == workers._GIVEN_UP
    lost = workers._outcome(workers._carried(_Late(OSError("gone"), "finished"))).error
    assert isinstance(lost, rs.WorkerError) and "scheduler of the cluster does not answer any more (gone)" in str(lost)
    own = workers._outcome(workers._carried(_Late(FileNotFoundError("mine"), "error"))).error
    assert isinstance(own, FileNotFoundError)
    waiting = _Late(None, "pending")
    waiting.add_done_callback = lambda call: None
    assert workers._carried(waiting).cancel() and waiting.cancelled


def test_a_cluster_without_workers_is_not_waited_for_without_end(local_cluster, monkeypatch):
    monkeypatch.setattr(workers, "_DESERTED", 1.0)
    with local_cluster(1) as client, joblib.parallel_config(backend="dask", client=client):
        results = run(slow_square, range(2_000), jobs=1)
        assert next(results) == 0
        client.cluster.scale(0)
        with pytest.raises(rs.WorkerError, match=r"the cluster has had no worker for \d+ s: start workers"):
            list(results)


def test_time_without_workers_begins_when_none_is_seen(monkeypatch):
    """Not when the last answer came: the caller may have taken long over a result."""
    seen, clock = iter([{}, {"a": 1}, {}, {}, {}]), iter([1000.0, 1050.0, 1100.0, 1140.0, 1170.0])
    crew = workers._Crew(slow_square, 2, "threads", (), None)
    scheduler = SimpleNamespace(ncores=None)
    crew._kind = "dask"
    crew._client = SimpleNamespace(scheduler=scheduler, sync=lambda call, callback_timeout: next(seen))
    crew._asked = 0.0
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    for _ in range(4):
        crew._go_on_waiting()
    with pytest.raises(rs.WorkerError, match="no worker for 70 s"):
        crew._go_on_waiting()


def test_a_cluster_is_named_by_its_address(dask_client):
    with workers.cluster(dask_client.scheduler.address):
        assert os.getpid() not in set(run(lambda x: os.getpid(), range(4), jobs=2))
    assert resolve_jobs(None) == 1
    with workers.cluster(None):
        assert resolve_jobs(None) == 1


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense://x"])
def test_a_cluster_that_does_not_answer_is_refused(address, monkeypatch):
    monkeypatch.setattr(workers, "_PATIENCE", 0.5)
    with pytest.raises(rs.InputError, match="nothing answers at"), workers.cluster(address):
        pass


def test_workers_of_another_version_are_refused(dask_client, monkeypatch):
    monkeypatch.setattr("reluscope._version.__version__", "0.0.1")
    words = r"worker tcp://.* has reluscope .*; here are 0\.0\.1, .*: install the same versions everywhere"
    with pytest.raises(rs.InputError, match=words), workers.cluster(dask_client.scheduler.address):
        pass
    monkeypatch.setattr(workers, "_COMPARED", set())
    with joblib.parallel_config(backend="dask", client=dask_client), pytest.raises(rs.InputError, match=words):
        list(run(slow_square, range(4), jobs=2))
    monkeypatch.undo()
    with joblib.parallel_config(backend="dask", client=dask_client):
        assert list(run(slow_square, range(4), jobs=2)) == [0, 1, 4, 9]
