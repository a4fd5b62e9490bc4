"""First calls from several threads and processes at once: none hangs, all answers are the same."""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import reluscope
from reluscope._lazy import Clock
from reluscope.budget import _Watch
from reluscope.threads import blas_threads

SOURCE = Path(reluscope.__file__).parent
SCRIPT = Path(__file__).with_name("cold_start.py")
FREE = {"numpy", "numba", "llvmlite", "scipy.sparse"}
"""Imported by name anywhere: the door that led there has imported them."""

PROGRAMS = {"reproduce", "commands", "playground", "lens", "reporting", "plot"}
"""Packages that one thread enters through a door which holds the lock, or that are programs of their own."""


def start(how, workers, seed):
    done = subprocess.run([sys.executable, str(SCRIPT), how, str(workers), str(seed)], capture_output=True, text=True)
    assert done.returncode == 0, f"{how} {workers} {seed}: exit {done.returncode}\n{done.stderr}"
    assert done.stdout == f"{workers} workers, 29 calls, 0 differ\n"


@pytest.mark.parametrize(("how", "workers"), [("threads", 4), ("fork", 2)])
def test_cold_start(how, workers):
    start(how, workers, 0)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_cold_starts():
    kinds = itertools.cycle([("threads", 2), ("threads", 4), ("threads", 8), ("fork", 3), ("spawn", 2), ("loop", 4)])
    for seed, (how, workers) in zip(range(1, 101), kinds, strict=False):
        start(how, workers, seed)


def test_two_threads_import_numba():
    """The hang that was: two first calls import numba by two doors, and one finds it half there."""
    code = (
        "import threading, reluscope as rs; gate = threading.Barrier(4)\n"
        "net = rs.Network([([[1.0], [2.0]], [0.0, 1.0]), ([[1.0, 1.0]], [0.0])])\n"
        "found = []\ndef work():\n    gate.wait(); found.append(len(rs.regions(net, box=(-1, 1))))\n"
        "threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join(100) for t in threads]; print(found)"
    )
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "[3, 3, 3, 3]\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_in_the_middle_of_numbas_import():
    """The hang that was: the compiler's lock came into being while the fork waited, and was released untaken."""
    code = (
        "import os, sys, threading, types\nimport reluscope._lazy as lazy\n"
        "def free():\n"
        "    got = []\n"
        "    thread = threading.Thread(target=lambda: got.append(lazy.IMPORTING.acquire(timeout=20)))\n"
        "    thread.start(); thread.join()\n"
        "    return got == [True]\n"
        "def imported():\n"
        "    module = types.SimpleNamespace(global_compiler_lock=threading.RLock())\n"
        "    sys.modules['numba.core.compiler_lock'] = module\n"
        "    return False\n"
        "lazy._others_import = imported\n"
        "child = os.fork()\n"
        "if child == 0:\n    os._exit(0 if free() else 1)\n"
        "print(free(), os.waitpid(child, 0)[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("True 0\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_while_another_thread_holds_locks():
    """Locks are copied, the threads that hold them are not: the copy has locks of its own.

    Among them that of every `cached_property`, which Python has until 3.12: a second hang that was.
    """
    code = (
        "import os, sys, threading, time\nfrom functools import cached_property\n"
        "import reluscope as rs\nfrom reluscope._lazy import CLOCK\n"
        "from reluscope import budget, threads\nfrom reluscope.network import Network\n"
        "net = rs.Network([([[1.0], [2.0]], [0.0, 1.0]), ([[1.0, 1.0]], [0.0])])\n"
        "locks = [getattr(v, 'lock', None) for v in vars(Network).values() if isinstance(v, cached_property)]\n"
        "locks += [threads._PINNED._lock]\n"
        "ready, over = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    CLOCK.stop()  # it waits for the compiler\n"
        "    [lock.acquire() for lock in locks if lock is not None]\n"
        "    ready.set(); over.wait()\n"
        "    [lock.release() for lock in locks if lock is not None]\n"
        "threading.Thread(target=hold, daemon=True).start(); ready.wait()\n"
        "os.register_at_fork(after_in_parent=over.set)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    begin = budget.Budget()\n"
        "    with threads.blas_threads(4):\n        fine = len(rs.Network(net.layers).pieces) == 2\n"
        "    time.sleep(0.01)\n"
        "    os._exit(0 if fine and begin.elapsed() > 0 else 1)\n"
        "until = time.monotonic() + 60\n"
        "while (end := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:\n    time.sleep(0.02)\n"
        "if end[0] == 0:\n    os.kill(child, 9)\n"
        "print(end == (child, 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_packages_are_imported_on_first_use_under_the_lock():
    """Inside functions, other packages come from `late`, `require` or a door: these hold the one lock."""
    guilty = []
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] in PROGRAMS:
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    package = name.split(".")[0]
                    if package not in sys.stdlib_module_names | {"reluscope", "numpy"}:
                        guilty.append(f"{path.name}:{node.lineno} {name}")
    assert not guilty


def test_modules_that_are_imported_inside_functions_have_little_at_their_top():
    """They run outside of the lock, so they may import only what the door has imported."""
    inside = set()
    for path in SOURCE.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                inside |= {n.module for n in ast.walk(function) if isinstance(n, ast.ImportFrom) and n.module}
    inside = {name for name in inside if name.startswith("reluscope.") and name.split(".")[1] not in PROGRAMS}
    assert len(inside) > 30
    guilty = []
    for name in sorted(inside):
        path = SOURCE.joinpath(*name.split(".")[1:])
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in ast.parse(path.read_text()).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names += [f"scipy.{a.name}" for a in node.names] if node.module == "scipy" else [node.module or ""]
            for found in names:
                package = found.split(".")[0]
                allowed = package in sys.stdlib_module_names | {"reluscope"} or package in FREE or found in FREE
                if not allowed:
                    guilty.append(f"{name}: {found}")
    assert not guilty


def test_imports_do_not_compile():
    """The lock of imports comes before the compiler's; an import that compiled while others import would turn that."""
    code = (
        "from numba.core import event\nimport importlib, pkgutil, reluscope, reluscope.budget\n"
        "with event.install_recorder('numba:compiler_lock') as seen:\n"
        "    for m in pkgutil.walk_packages(reluscope.__path__, 'reluscope.'):\n"
        "        if m.name.split('.')[1] in ('cells', 'measure', 'answers', 'inputs', 'events', 'recovery', "
        "'local_models', 'representation', 'invariance', 'network', 'budget'): importlib.import_module(m.name)\n"
        "print(len(seen.buffer))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


def test_blas_gets_its_threads_back():
    """Two blocks that overlap, in the order in which the last one would have put back a 1."""
    from threadpoolctl import threadpool_info

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    first, second = blas_threads(4), blas_threads(4)
    first.__enter__()
    second.__enter__()
    assert set(threads()) <= {1}
    first.__exit__(None, None, None)
    assert set(threads()) <= {1}
    second.__exit__(None, None, None)
    assert threads() == before


def test_the_clock_stands_still_while_anybody_compiles():
    clock = Clock()
    watch = _Watch(clock)
    real, begin = time.monotonic(), clock()
    watch.on_start(None)
    held = clock()
    other = threading.Thread(target=lambda: (watch.on_start(None), time.sleep(0.1), watch.on_end(None)))
    other.start()
    other.join()
    assert clock() == held
    watch.on_end(None)
    assert clock() - begin <= time.monotonic() - real - 0.099


def test_the_clock_never_runs_backwards():
    """The crash that was: what one thread imported while another compiled was taken off twice, so time was negative."""
    clock = Clock()
    seen = [clock()]
    clock.stop()  # this thread compiles; another one imports

    def imports():
        clock.stop()
        time.sleep(0.05)
        clock.go_on()

    thread = threading.Thread(target=imports)
    thread.start()
    thread.join()
    seen.append(clock())
    clock.go_on()
    seen.append(clock())
    assert seen == sorted(seen)


def test_a_nested_stop_ends_with_the_outer_one():
    clock = Clock()
    clock.stop()
    clock.stop()
    clock.go_on()
    held = clock()
    time.sleep(0.01)
    assert clock() == held
    clock.go_on()
    time.sleep(0.01)
    assert clock() > held


LATER = """
import sys
import numpy as np
from threadpoolctl import threadpool_info
from reluscope.threads import blas_threads

def most():
    return sorted(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas")

own = most()
with blas_threads(0):
    assert most() == [1], most()
if sys.argv[1] == "before":
    import scipy.linalg
with blas_threads(0):
    import scipy.linalg  # a BLAS of its own, in wheels
    with blas_threads(0):
        assert set(most()) == {1}, most()
assert set(most()) == set(own), most()
"""


@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_blas_that_comes_later_is_pinned_too(when):
    given = [sys.executable, "-c", LATER, when]
    done = subprocess.run(
        given, capture_output=True, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "2"}, check=False
    )
    assert done.returncode == 0, done.stderr
