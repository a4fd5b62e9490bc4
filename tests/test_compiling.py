"""How much a first call compiles: counted, since seconds depend on the machine."""

import gc
import io
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from numba import njit
from numba.core.compiler import Compiler

from reluscope import _kernels, budget
from reluscope._kernels import apart, inner
from reluscope._lean import LeanCompiler

FIRST = """
import sys
import numpy as np
from numba.core import event
import reluscope as rs

ours, numpys = [], []

class Count(event.Listener):
    def on_start(self, happened):
        name = happened.data["dispatcher"].py_func.__module__
        (ours if name.startswith("reluscope.") else numpys).append(name)
    def on_end(self, happened):
        pass

event.register("numba:compile", Count())
rng = np.random.default_rng(3)
d = int(sys.argv[2])
widths = (d, 8, 8, 1)
net = rs.Network([(rng.normal(size=(b, a)), 0.3 * rng.normal(size=b)) for a, b in zip(widths, widths[1:])])
if sys.argv[1] == "regions":
    rs.regions(net, (-1, 1), budget="20 regions")
else:
    rs.probability(net, rs.Gaussian(np.zeros(d), 1.0), "y[0] > 0", guarantee=sys.argv[1], rng=0)
print(len(ours), len(numpys))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "inputs", "ours", "numpys"),
    [
        ("regions", 1, 9, 12),
        ("regions", 2, 6, 0),
        ("regions", 3, 14, 0),
        ("regions", 6, 38, 1),
        ("exact", 2, 38, 3),
        ("confidence", 5, 30, 5),
    ],
)
def test_a_first_call_compiles_few_functions(tmp_path, call, inputs, ours, numpys):
    """Ceilings. More of numpy's functions: arrays are made in a kernel, in one more type. More of ours: a literal
    number, or an array of another layout, compiles a function once more."""
    command = [sys.executable, "-c", FIRST, call, str(inputs)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    )
    compiled = [int(n) for n in done.stdout.split()]
    assert 0 < compiled[0] <= ours
    assert compiled[1] <= numpys


AFTER_WARM = """
import sys
from itertools import pairwise
import numpy as np
from numba.core import event
import reluscope as rs
from reluscope.cli import main

late, warmed = [], False

class Late(event.Listener):
    def on_start(self, happened):
        name = happened.data["dispatcher"].py_func.__module__
        if warmed and name.startswith("reluscope."):
            late.append(f"{asked}: {name}.{happened.data['dispatcher'].__name__}")
    def on_end(self, happened):
        pass

def net(*widths):
    rng = np.random.default_rng(3)
    return rs.Network([(rng.normal(size=(b, a)), 0.3 * rng.normal(size=b)) for a, b in pairwise(widths)])

def law(d):
    return rs.Gaussian(np.zeros(d), 1.0)

event.register("numba:compile", Late())
main(["warm", "--json"])
warmed = True
calls = {
    "regions, 2": lambda: rs.regions(net(2, 8, 8, 1), (-1, 1)),
    "regions, 3": lambda: rs.regions(net(3, 8, 8, 1), (-1, 1), budget="50 regions"),
    "regions, 6": lambda: rs.regions(net(6, 8, 8, 1), (-1, 1), budget="50 regions"),
    "exact, 2": lambda: rs.probability(net(2, 8, 8, 1), law(2), "y > 0", guarantee="exact"),
    "exact, 3": lambda: rs.probability(net(3, 4, 4, 1), law(3), "y > 0", guarantee="exact"),
    "sound, 4": lambda: rs.probability(net(4, 6, 1), law(4), "y > 0", guarantee="sound", budget="200 regions"),
    "confidence, 5": lambda: rs.probability(net(5, 8, 8, 1), law(5), "y > 0", guarantee="confidence", rng=0),
    "rare, 10": lambda: rs.probability(net(10, 8, 8, 1), law(10), "y > 40", rng=0, budget="2s"),
    "unwrap": lambda: rs.unwrap(net(2, 8, 1), np.random.default_rng(1).normal(size=(200, 2))),
    "recover": lambda: rs.recover(net(3, 3, 1), (-3, 3), rng=0, budget="5s"),
}
for asked, call in calls.items():
    call()
print(file=sys.stderr)
print("late:", *late, sep="\\n", file=sys.stderr)
sys.exit(len(late) > 0)
"""


@pytest.mark.slow
def test_after_warm_no_call_compiles(tmp_path):
    """`reluscope warm` in an empty cache has compiled all that the common calls need."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", AFTER_WARM], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_parts_of_kernels_have_no_code_of_their_own():
    @inner
    def third(x):
        return x / 3

    @njit
    def use(x):
        return third(x) + third(2 * x)

    assert use(9.0) == 9.0
    (part,) = third.overloads.values()
    assert len(part.library._get_compiled_object()) < len(
        next(iter(use.overloads.values())).library._get_compiled_object()
    )
    emitted = {f.name: f.linkage.name for f in part.library.get_defined_functions()}
    assert set(emitted.values()) == {"available_externally"}


def lean(function):
    return njit(pipeline_class=LeanCompiler, error_model="numpy")(function)


def many_things(table, cube, marks, flags, n, nan):
    """Entries of arrays of all kinds, loops in all directions, new arrays, choices: what `_lean` writes itself."""
    out, counts = np.zeros((n + 3, 4)), np.empty(n + 1, np.int64)
    empty = np.empty((0, n))
    seen = np.zeros(n, np.bool_)
    for i in range(n + 1):
        counts[i] = 0
    for i in range(n - 1, -1, -1):
        counts[-1] += i
        for j in range(2, i):
            counts[j] += i * j
    for u in range(np.uint64(n)):
        counts[u] += 1
    for _ in range(5, 2):
        counts[0] = 1000
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            out[i, j] += table[i, j] / table[-1 - i, -1] + cube[-1, i, j] * cube[i - 1, 0, -2]
    marks[-1] = marks[0] + 7
    for i in range(len(flags)):
        flags[i] = not flags[i]
        seen[i] = flags[i] and i != 1
    out[n, 0], out[n, 1] = max(nan, 1.5, 2.5), max(1.5, nan)
    out[n, 2], out[n, 3] = min(-0.0, 0.0), min(0.0, -0.0)
    out[n + 1, 0] = max(n, 2) + min(counts[0], -3)
    out[n + 1, 1], out[n + 1, 2] = len(empty), empty.shape[1]
    i = -1
    for i in range(n):
        if seen[i]:
            out[n + 2, 0] += 1
    out[n + 2, 1] = i
    return out, counts, seen, marks.sum() + flags.sum()


def arguments():
    rng = np.random.default_rng(1)
    n = 4
    flags = np.array([True, False, False, True])
    marks = np.array([100, 3, -5], np.int8)
    return rng.normal(size=(n, 4)), rng.normal(size=(n, n, 4)), marks, flags, n, np.nan


def test_short_code_computes_the_same():
    """Also where numbers overflow, are not numbers, or have a sign though they are zero."""
    given, plain = arguments(), arguments()
    for mine, numbas in zip(lean(many_things)(*given), njit(error_model="numpy")(many_things)(*plain), strict=True):
        assert np.asarray(mine).dtype == np.asarray(numbas).dtype
        assert np.asarray(mine).tobytes() == np.asarray(numbas).tobytes()
    for mine, numbas in zip(given[2:4], plain[2:4], strict=True):
        np.testing.assert_array_equal(mine, numbas)


def test_arrays_of_sizes_that_cannot_be_are_refused():
    @lean
    def make(n, m):
        return np.zeros((n, m))

    assert make(0, 3).shape == (0, 3)
    assert make(2, 3).strides == (24, 8)
    assert make(2, 3).sum() == 0.0
    for n, m in [(-1, 2), (-1, -1), (0, -1), (1 << 40, 1 << 40)]:
        with pytest.raises(ValueError, match="cannot be made"):
            make(n, m)


def test_who_borrows_arrays_does_not_count_references():
    @lean
    def total(pair, i):
        row = pair[0][i]
        both = pair[1], row
        return both[0][0] + both[1][0]

    @lean
    def row_of(a, i):
        return a[i], a[i, 0]

    a, b = np.arange(6.0).reshape(2, 3), np.ones(3)
    before = sys.getrefcount(a), sys.getrefcount(b)
    assert [total((a, b), i) for i in (0, 1, -1)] == [1.0, 4.0, 4.0]
    assert (sys.getrefcount(a), sys.getrefcount(b)) == before
    (code,) = total.inspect_llvm().values()
    assert "NRT_incref" not in code
    row, first = row_of(a, 1)  # an array that leaves the function is counted
    assert sys.getrefcount(a) == before[0] + 1
    a = None
    gc.collect()
    np.testing.assert_array_equal(row, [3.0, 4.0, 5.0])
    assert first == 3.0


def test_what_was_looked_up_is_that_of_this_compilation():
    """Somebody's fast sums, compiled in between, do not get into ours."""

    @lean
    def first(x):
        return np.sum(x)

    @njit(fastmath=True)
    def theirs(x):
        return np.sum(x)

    @lean
    def second(x):
        return 2.0 * np.sum(x)

    x = np.ones((3, 2, 1))
    assert first(x) == theirs(x) == 6.0
    assert second(x) == 12.0
    code = {name: next(iter(f.inspect_llvm().values())) for name, f in [("theirs", theirs), ("second", second)]}
    assert "fadd fast" in code["theirs"]
    assert "fadd fast" not in code["second"]


def test_long_parts_stay_in_one_place():
    @apart
    def cube(x):
        return x * x * x

    @lean
    def use(x):
        return cube(x) + cube(x + 1.0)

    assert use(2.0) == 35.0
    (code,) = use.inspect_llvm().values()
    assert "noinline" in code


def test_another_numba_takes_its_own_steps():
    for major, minor in _kernels.TESTED:
        assert _kernels._compiler(f"{major}.{minor}.2") is LeanCompiler
    last = max(_kernels.TESTED)
    assert _kernels._compiler(f"{last[0]}.{last[1] + 1}.0rc1") is Compiler


def test_splitting_compiles_once_for_all_kinds_of_break_points():
    """Break points of a network are read-only, those of an event are not: the kernel is one."""
    from reluscope.cells import polygon

    cell = polygon.Polygons.box(np.array([-1.0, -1.0]), np.array([1.0, 1.0]))
    maps, tolerance, breaks = np.array([[[1.0], [0.5], [0.1]]]), np.full((1, 1), 1e-12), np.zeros((1, 1))
    assert len(cell.split(maps, tolerance, breaks, 0).parent) == 2
    kinds = len(polygon._split_from.overloads)
    breaks.flags.writeable = False
    assert len(cell.split(maps, tolerance, breaks, 0).parent) == 2
    assert len(polygon._split_from.overloads) == kinds


def test_garbage_waits_until_a_kernel_is_compiled():
    tidying = budget._Tidying()
    assert gc.isenabled()
    tidying.on_start(happened("reluscope.cells.polygon"))
    assert not gc.isenabled()
    tidying.on_start(happened("numba.np.arrayobj"))
    tidying.on_start(happened("reluscope.cells.grow"))
    tidying.on_end(None)
    tidying.on_end(None)
    assert not gc.isenabled()
    tidying.on_end(None)
    assert gc.isenabled()
    tidying.on_start(happened("somebody.else"))  # their kernels are theirs
    assert gc.isenabled()
    tidying.on_end(None)


def test_parts_of_kernels_say_no_to_python():
    """They have no entry for Python: without the refusal the process would end."""

    @inner
    def half(x):
        return x / 2

    with pytest.raises(TypeError, match=r"half\.py_func"):
        half(1.0)
    assert half.py_func(3.0) == 1.5


class Terminal(io.StringIO):
    def isatty(self):
        return True


def happened(module):
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))})


def test_a_terminal_is_told_once_that_kernels_compile(monkeypatch):
    said = budget._Announcement()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    said.on_start(happened("reluscope.cells.polygon"))
    assert sys.stderr.getvalue() == ""  # a file: nobody waits
    monkeypatch.setattr(sys, "stderr", Terminal())
    said.on_start(happened("numba.np.arrayobj"))
    said.on_start(happened(None))  # what `exec` made belongs to no module
    assert sys.stderr.getvalue() == ""
    said.on_start(happened("reluscope.cells.polygon"))
    said.on_start(happened("reluscope.cells.polygon"))
    assert sys.stderr.getvalue().count("compiling") == 1
    assert "reluscope warm" in sys.stderr.getvalue()
