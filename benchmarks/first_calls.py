"""What a first call costs on a fresh machine: CPU seconds with an empty cache of compiled code, and where they go.

Each call is made in a process of its own, twice: the second time is what it takes once all is compiled. Imports are not
counted, but for late ones; the modules are compiled to bytecode first, as an installer does. `functions` are those of
this library that compile, `numpy's` those that numba brings along. The time is split into LLVM (optimising, machine
code) and numba itself (types, lowering; Python); the rest is late imports and the answer.
"""

import compileall
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec

CALLS = [("regions", 2), ("regions", 3), ("regions", 6), ("exact", 2), ("confidence", 5), ("sound", 4)]

ONE = """
import sys, time
import numpy as np
from numba.core import event
import reluscope as rs
import reluscope.budget

class Spent(event.Listener):
    def __init__(self):
        self.depth, self.total, self.begin, self.names = 0, 0.0, 0.0, []
    def on_start(self, happened):
        if isinstance(happened.data, dict):
            self.names.append(happened.data["dispatcher"].py_func.__module__)
        self.depth += 1
        if self.depth == 1:
            self.begin = time.process_time()
    def on_end(self, happened):
        self.depth -= 1
        if self.depth == 0:
            self.total += time.process_time() - self.begin

compiling, llvm = Spent(), Spent()
event.register("numba:compile", compiling)
event.register("numba:llvm_lock", llvm)
rng = np.random.default_rng(3)
kind, d = sys.argv[1], int(sys.argv[2])
widths = (d, 8, 8, 1)
net = rs.Network([(rng.normal(size=(b, a)), 0.3 * rng.normal(size=b)) for a, b in zip(widths, widths[1:])])

def ask():
    begin = time.process_time()
    if kind == "regions":
        rs.regions(net, (-1, 1), budget="20 regions")
    else:
        budget = {"budget": "200 regions"} if kind == "sound" else {}
        rs.probability(net, rs.Gaussian(np.zeros(d), 1.0), "y[0] > 0", guarantee=kind, rng=0, **budget)
    return time.process_time() - begin

first, again = ask(), ask()
ours = sum(name.startswith("reluscope.") for name in compiling.names)
print(first, again, compiling.total, llvm.total, ours, len(compiling.names) - ours)
"""


def main() -> None:
    for folder in find_spec("reluscope").submodule_search_locations:
        compileall.compile_dir(folder, quiet=1)
    print("| call | inputs | first, s | LLVM | numba | second, s | functions | numpy's |")
    print("|---" * 8 + "|")
    for kind, d in CALLS:
        with tempfile.TemporaryDirectory() as empty:
            environment = {**os.environ, "NUMBA_CACHE_DIR": empty}
            command = [sys.executable, "-c", ONE, kind, str(d)]
            said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()
        first, again, compiling, llvm = map(float, said[:4])
        llvm = min(llvm, compiling)
        numbers = f"{first:.1f} | {llvm:.1f} | {compiling - llvm:.1f} | {again:.2f}"
        print(f"| {kind} | {d} | {numbers} | {said[4]} | {said[5]} |", flush=True)


if __name__ == "__main__":
    main()
