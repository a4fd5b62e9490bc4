"""Ctrl-C at random moments: every long call ends within a second, with KeyboardInterrupt or with the answer so far."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numba
import numpy as np
import pytest

import reluscope as rs
import reluscope.cells.regions as regions_module
from long_calls import CALLS, UNBUDGETED, law, net, points
from reluscope.threads import OutOfTimeError, deadline, interruptible, stop_flag

SCRIPT = Path(__file__).with_name("long_calls.py")
LONG = sorted(CALLS | UNBUDGETED)
SECONDS = 1.0
"""What is promised. The normal run allows more, for slow machines: a lost signal costs ten seconds or more."""
PARTIAL = ("regions", "stream_regions", "Regions.masses", "linear_models", "outputs", "report")
"""Calls that may give the answer so far, with a status that says so (docs/guarantees.md)."""


def interrupt(name, after):
    """Start the call in a process of its own and send SIGINT: what it said, whether it had ended, how long it took."""
    command = [sys.executable, str(SCRIPT), name, "warm"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(after)
            ended = process.poll() is not None
            spent, begin = _cpu(process.pid), time.monotonic()
            process.send_signal(signal.SIGINT)
            said = process.stdout.readline().strip()
            return said, ended, min(time.monotonic() - begin, _cpu(process.pid) - spent)
        finally:
            process.kill()


def _cpu(pid):
    """Seconds of work: on a busy machine, what the process could have done in the time, not what it waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check(name, after, limit):
    """What the call said, where it ended within `limit` seconds of the signal."""
    said, ended, took = interrupt(name, after)
    if ended or (said.startswith("returned") and "interrupt" not in said.lower()):
        assert name in UNBUDGETED or took < limit, f"{name}, {after:.2f} s: went on for {took:.2f} s: {said}"
        return "done before"
    assert took < limit, f"{name}, {after:.2f} s: took {took:.2f} s"
    partial = said.startswith("returned") and (
        name.split(",")[0].split(" ")[0] in PARTIAL or name.startswith("probability, sound")
    )
    assert said == "KeyboardInterrupt" or partial, f"{name}, {after:.2f} s: {said!r}"
    return said


@pytest.mark.parametrize(
    "name", ["regions", "regions by half-spaces", "probability, rare", "outputs by lines", "error_rates", "compare"]
)
def test_a_long_call_stops(name):
    check(name, random.Random(name).uniform(0.3, 1.5), limit=5.0)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_interrupts():
    rng = random.Random(0)
    said = [check(LONG[k % len(LONG)], rng.uniform(0.05, 3.0), SECONDS) for k in range(100)]
    assert said.count("done before") < 40


PUT_TOGETHER = {
    "Unwrapped.coverage": lambda f: rs.unwrap(f, points(50, 3)).coverage(rng=0),
    "representation.dimensions": lambda f: rs.representation.dimensions(f, box=(-1, 1)),
    "representation.rays": lambda f: rs.representation.rays(f, rng=0),
    "polyhedral_complex": lambda f: rs.polyhedral_complex(f, (-1, 1)),
    "reachable": lambda f: rs.reachable(f, (-1, 1)),
    "sup_norm": lambda f: rs.sup_norm(f, (-1, 1)),
    "linear_models": lambda f: rs.linear_models(f, law(3), budget="60s", rng=0),
}
"""Calls that need all regions."""


@pytest.mark.parametrize("name", PUT_TOGETHER)
def test_nobody_waits_for_regions_that_nobody_gets(name, monkeypatch):
    """What was found before Ctrl-C is put together for `regions` alone: it can take longer than a second."""
    found, stacked, together = regions_module.region_batches, regions_module.stacked, []

    def pressed(*given, **more):
        batch = next(found(*given, **more))
        yield batch
        yield batch
        raise KeyboardInterrupt

    def counted(parts):
        together.append(len(parts))
        return stacked(parts)

    monkeypatch.setattr(regions_module, "region_batches", pressed)
    monkeypatch.setattr(regions_module, "stacked", counted)
    f = net(3, 8, 8, 1)
    with pytest.raises(KeyboardInterrupt):
        PUT_TOGETHER[name](f)
    assert not together
    assert "interrupted" in str(rs.regions(f, (-1, 1)).stopped)
    assert together


# -- the mechanism -------------------------------------------------------------------------------------------------


@numba.njit(nogil=True)
def _count(stop, limit, seen):
    """Counts in an array: that may be the flag's own memory, so the flag is read anew in each round."""
    while stop[0] == 0 and seen[0] < limit:
        seen[0] += 1
    return seen[0]


def spin(limit):
    return interruptible(_count, stop_flag(), limit, np.zeros(1, np.int64))


@pytest.fixture
def compiled():
    spin(1)


def test_ctrl_c_comes_through_a_kernel(compiled):
    """A kernel that would run for ever is told to give up, and the exception comes at once."""
    flag = stop_flag()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        spin(1 << 62)
    assert time.monotonic() - begin < 5.0
    assert flag[0] == 1
    assert stop_flag() is not flag  # the next kernel has a helper of its own
    assert spin(10) == 10


def test_a_deadline_ends_a_kernel(compiled):
    begin = time.monotonic()
    with pytest.raises(OutOfTimeError), deadline(lambda: time.monotonic() - begin > 0.1):
        spin(1 << 62)
    assert stop_flag()[0] == 0
    assert spin(10) == 10


def test_errors_of_a_kernel_are_raised_where_it_was_asked_for():
    def broken():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        interruptible(broken)


def test_helpers_end_with_their_thread(compiled):
    """Each thread has one helper, which ends when the thread does."""
    before = threading.active_count()

    def work():
        for _ in range(3):
            assert spin(10) == 10

    for _ in range(5):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    for _ in range(200):
        if threading.active_count() <= before + 1:
            break
        time.sleep(0.02)
    assert threading.active_count() <= before + 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_copy_of_the_process_has_helpers_of_its_own():
    code = (
        "import os, sys, numpy as np\nfrom reluscope import threads\n"
        "assert threads.interruptible(sum, [1, 2]) == 3\n"
        "child = os.fork()\n"
        "if child == 0:\n    os._exit(0 if threads.interruptible(sum, [1, 2]) == 3 else 1)\n"
        "print(os.waitpid(child, 0)[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "0", done.stderr


def test_a_worker_thread_runs_kernels_itself_until_it_is_told_to_stop():
    import threading

    from reluscope.threads import Halt, OutOfTimeError, deadline, interruptible, stop_flag, stoppable

    def kernel(flag):
        return threading.get_ident(), flag

    halt = Halt()
    with stoppable(halt):
        thread, flag = interruptible(kernel, stop_flag())
        assert thread == threading.get_ident()
        assert flag is halt.flag
        with deadline(lambda: False):  # nobody else looks at this one: a helper thread runs the kernel
            assert interruptible(kernel, stop_flag())[0] != thread
        halt.set()
        assert flag[0]
        with pytest.raises(OutOfTimeError):
            interruptible(kernel, stop_flag())
