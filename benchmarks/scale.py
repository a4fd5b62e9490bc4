"""How much faster two cores are than one, for each kind of work that `jobs=` divides: wall time, best of three.

    python benchmarks/scale.py [--jobs 2] [--dask] [--no-ceiling] [name ...]

Run it on a machine that does nothing else. Each case is run once before in both ways, for compiling and for the memory
that threads keep. The ceiling is what the machine gives: as many processes do the same work on one core each, side by
side, and how much more they get done in a second together than one of them alone. Two cores that share caches, memory
and a power budget are not two machines.

With `--dask` the same work is done by a LocalCluster of that many worker processes, against a cluster of one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

import reluscope as rs
from reluscope.measure.lines import Request, integrate
from reluscope.workers import sharing


def network(*widths: int, seed: int = 0) -> rs.Network:
    rng = np.random.default_rng(seed)
    pairs = itertools.pairwise(widths)
    return rs.Network([(rng.normal(size=(m, n)) / np.sqrt(n), 0.3 * rng.normal(size=m)) for n, m in pairs])


def normal(d: int) -> rs.Gaussian:
    return rs.Gaussian(np.zeros(d), np.eye(d))


def lines(count: int) -> Callable[[], Callable[[int], Any]]:
    def make() -> Callable[[int], Any]:
        net, law, asked = network(20, 64, 64, 1), normal(20), Request(levels={0: [0.0, 0.5]})

        def work(jobs: int) -> Any:
            with sharing(jobs):
                return integrate(net, law, asked, lines=count, method="lines", rng=0)

        return work

    return make


def masses(*widths: int, tolerance: float) -> Callable[[], Callable[[int], Any]]:
    def make() -> Callable[[int], Any]:
        law = normal(widths[0])
        cells = rs.regions(network(*widths), law=law)
        return lambda jobs: cells.masses(law, tolerance=tolerance, rng=0, jobs=jobs)

    return make


def unwrapped() -> Callable[[int], Any]:
    X = np.random.default_rng(0).normal(size=(1_000_000, 10))
    net = network(10, 32, 32, 1)
    return lambda jobs: rs.unwrap(net, X, jobs=jobs)


def merged(task: str, rows: int, *widths: int) -> Callable[[], Callable[[int], Any]]:
    """Merging alone: each time another `Unwrapped`, because one remembers what it merged."""

    def make() -> Callable[[int], Any]:
        X = np.random.default_rng(0).normal(size=(rows, widths[0]))
        net, noise = network(*widths), 0.5 * np.random.default_rng(1).normal(size=rows)
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] if task == "regression" else (net(X)[:, 0] + noise > 0).astype(int)
        waiting = [rs.unwrap(net, X, y) for _ in range(16)]
        return lambda jobs: waiting.pop().merge(rng=0, jobs=jobs)

    return make


def certified() -> Callable[[int], Any]:
    net = network(20, 64, 64, 5)
    X = np.random.default_rng(0).normal(size=(60, 20))
    return lambda jobs: rs.certify(net, X, 0.05, budget="1000000 regions", jobs=jobs)


def regions_of(*widths: int, networks: int) -> Callable[[], Callable[[int], Any]]:
    """Some networks one after the other, each a call of its own: one takes a fraction of a second."""

    def make() -> Callable[[int], Any]:
        nets = [network(*widths, seed=seed) for seed in range(networks)]
        return lambda jobs: [len(rs.regions(net, (-5, 5), jobs=jobs)) for net in nets]

    return make


def asked(widths: tuple[int, ...], event: str, **more: Any) -> Callable[[], Callable[[int], Any]]:
    def make() -> Callable[[int], Any]:
        net, law = network(*widths), normal(widths[0])
        return lambda jobs: rs.probability(net, law, event, jobs=jobs, **more)

    return make


CASES: dict[str, Callable[[], Callable[[int], Any]]] = {
    "regions, 2-128-128-128-1, 4 networks": regions_of(2, 128, 128, 128, 1, networks=4),
    "regions, 5-16-16-1, 3 networks": regions_of(5, 16, 16, 1, networks=3),
    "regions, 8-10-10-1, 4 networks": regions_of(8, 10, 10, 1, networks=4),
    "regions, 2-600-1, a wide layer": regions_of(2, 600, 1, networks=1),
    "masses of regions, 6 dimensions": masses(6, 6, 4, 1, tolerance=1e-3),
    "lines, 20-64-64-1, 131,072 of them": lines(1 << 17),
    "rare event, rays, 5-64-64-1": asked(
        (5, 64, 64, 1), "y[0] > 4", guarantee="confidence", tolerance=6e-18, budget="60s", rng=0
    ),
    "rare event, four times as many rays": asked(
        (5, 64, 64, 1), "y[0] > 4", guarantee="confidence", tolerance=3e-18, budget="60s", rng=0
    ),
    "sound bracket, 3-12-12-1, 150,000 boxes": asked(
        (3, 12, 12, 1), "y[0] > 0.5", guarantee="sound", tolerance=1e-9, budget="150000 regions"
    ),
    "sound bracket, 3-12-12-1, 2,000,000 boxes": asked(
        (3, 12, 12, 1), "y[0] > 0.5", guarantee="sound", tolerance=1e-9, budget="2000000 regions"
    ),
    "unwrap, a million rows, 10-32-32-1": unwrapped,
    "merge, 20,000 rows, regression, 8-12-12-1": merged("regression", 20_000, 8, 12, 12, 1),
    "merge, 30,000 rows, two classes, 12-16-16-1": merged("classes", 30_000, 12, 16, 16, 1),
    "certify, 60 rows, 20-64-64-5": certified,
}

LONG: dict[str, Callable[[], Callable[[int], Any]]] = {
    "masses of regions, 6-7-5-1": masses(6, 7, 5, 1, tolerance=3e-4),
    "lines, 20-64-64-1, 2,097,152 of them": lines(1 << 21),
}
"""For `--dask`: some 20 s on one core."""


def ceiling(name: str, jobs: int, alone: float, repeats: int = 3) -> float:
    """The speed-up that the machine allows: this many processes with the same work, side by side."""
    start = [sys.executable, __file__, "--child", name, "--repeats", str(repeats)]
    crew = [subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(jobs)]
    found = []
    for each in crew:
        each.stdout.readline()  # ready
    for _ in range(repeats):
        for each in crew:
            each.stdin.write("go\n")
            each.stdin.flush()
        found.append(max(float(each.stdout.readline()) for each in crew))
    for each in crew:
        each.stdin.close()
        each.wait()
    return jobs * alone / min(found)


def child(name: str, repeats: int) -> None:
    """What each of those processes does."""
    work = CASES[name]()
    work(1)
    print("ready", flush=True)
    for _ in range(repeats):
        sys.stdin.readline()
        begun = time.perf_counter()
        work(1)
        print(time.perf_counter() - begun, flush=True)


def best(work: Callable[[int], Any], jobs: int, repeats: int = 3) -> tuple[float, float]:
    """Wall and CPU seconds of the quickest of some runs."""
    found = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        work(jobs)
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases whose names start so; all by default")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dask", action="store_true")
    parser.add_argument("--no-ceiling", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so many")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.repeats)
        return
    rows, begun = [], time.perf_counter()
    print("| case | one | many | speed-up | ceiling | CPU of many / of one | load |\n|---|---|---|---|---|---|---|")
    for name, make in (LONG if options.dask else CASES).items():
        if options.names and not any(name.startswith(n) for n in options.names):
            continue
        if time.perf_counter() - begun > options.seconds:
            print(f"| {name} | not begun |", flush=True)
            continue
        work = make()
        if not options.dask:
            work(1)
            work(options.jobs)
        load = os.getloadavg()[0]
        with ExitStack() as stack:
            if options.dask:
                one, many = (over_dask(work, n, stack, options.repeats) for n in (1, options.jobs))
            else:
                one, many = best(work, 1, options.repeats), best(work, options.jobs, options.repeats)
        top = None if options.dask or options.no_ceiling else ceiling(name, options.jobs, one[0], options.repeats)
        rows.append({"case": name, "one": one, "many": many, "speed-up": one[0] / many[0], "ceiling": top})
        print(
            f"| {name} | {one[0]:.2f} s | {many[0]:.2f} s | {one[0] / many[0]:.2f} | {f'{top:.2f}' if top else ''} | "
            f"{many[1] / one[1]:.2f} | {load:.1f} |",
            flush=True,
        )
    print(json.dumps({"jobs": options.jobs, "dask": options.dask, "rows": rows}))


def over_dask(work: Callable[[int], Any], n: int, stack: ExitStack, repeats: int) -> tuple[float, float]:
    import distributed
    import joblib

    local = stack.enter_context(distributed.LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None))
    client = stack.enter_context(distributed.Client(local, set_as_default=False))
    with joblib.parallel_config(backend="dask", client=client):
        for make in (lines(1 << 13), masses(6, 6, 4, 1, tolerance=1e-2)):
            make()(n)  # workers import and load what they need: three seconds each
        return best(work, n, repeats)


if __name__ == "__main__":
    main()
