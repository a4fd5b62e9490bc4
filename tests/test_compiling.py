"""How much a first call compiles: counted, since seconds depend on the machine."""

import io
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from reluscope import budget
from reluscope._kernels import inner

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
        ("regions", 1, 7, 31),
        ("regions", 2, 2, 4),
        ("regions", 3, 11, 9),
        ("regions", 6, 35, 41),
        ("exact", 2, 36, 15),
        ("confidence", 5, 31, 30),
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
    assert 0 < compiled[1] <= numpys


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
