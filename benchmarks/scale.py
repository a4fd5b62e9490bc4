"""How much faster two cores are than one, for each kind of work that `jobs=` divides: wall time, best of three.

    python benchmarks/scale.py [--jobs 2] [--dask] [name ...]

Run it on a machine that does nothing else. Each case is run once before, for compiling. With `--dask` the same work is
done by a LocalCluster of that many worker processes, against a cluster of one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
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


def lines(jobs: int) -> Any:
    net = network(20, 64, 64, 1)
    with sharing(jobs):
        return integrate(net, normal(20), Request(levels={0: [0.0, 0.5]}), lines=1 << 17, method="lines", rng=0)


def masses() -> Callable[[int], Any]:
    cells = rs.regions(network(6, 10, 8, 1), law=normal(6))
    return lambda jobs: cells.masses(normal(6), tolerance=3e-3, rng=0, jobs=jobs)


def unwrapped() -> Callable[[int], Any]:
    X = np.random.default_rng(0).normal(size=(1_000_000, 10))
    net = network(10, 32, 32, 1)
    return lambda jobs: rs.unwrap(net, X, jobs=jobs)


def merged() -> Callable[[int], Any]:
    X = np.random.default_rng(0).normal(size=(50_000, 8))
    net, y = network(8, 12, 12, 1), np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    return lambda jobs: rs.unwrap(net, X, y).merge(rng=0, jobs=jobs)


def certified() -> Callable[[int], Any]:
    net = network(20, 64, 64, 5)
    X = np.random.default_rng(0).normal(size=(60, 20))
    return lambda jobs: rs.certify(net, X, 0.05, budget="1000000 regions", jobs=jobs)


def regions_of(*widths: int) -> Callable[[], Callable[[int], Any]]:
    def make() -> Callable[[int], Any]:
        net = network(*widths)
        return lambda jobs: rs.regions(net, (-3, 3), jobs=jobs)

    return make


def asked(widths: tuple[int, ...], event: str, **more: Any) -> Callable[[], Callable[[int], Any]]:
    def make() -> Callable[[int], Any]:
        net, law = network(*widths), normal(widths[0])
        return lambda jobs: rs.probability(net, law, event, jobs=jobs, **more)

    return make


CASES: dict[str, Callable[[], Callable[[int], Any]]] = {
    "regions, 2-128-128-128-1": regions_of(2, 128, 128, 128, 1),
    "regions, 5-16-16-1": regions_of(5, 16, 16, 1),
    "regions, 8-10-10-1": regions_of(8, 10, 10, 1),
    "masses of regions, 6 dimensions": masses,
    "lines, 20-64-64-1, 131,072 of them": lambda: lines,
    "rare event, rays, 5-32-32-1": asked(
        (5, 32, 32, 1), "y[0] > 4", guarantee="confidence", tolerance=1e-12, budget="120s", rng=0
    ),
    "sound bracket, 3-12-12-1, 2,000,000 boxes": asked(
        (3, 12, 12, 1), "y[0] > 0.5", guarantee="sound", tolerance=1e-9, budget="2000000 regions"
    ),
    "certify, 60 rows, 20-64-64-5": certified,
    "unwrap, a million rows, 10-32-32-1": unwrapped,
    "merge, 50,000 rows, 8-12-12-1": merged,
}


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
    options = parser.parse_args()
    rows = []
    for name, make in CASES.items():
        if options.names and not any(name.startswith(n) for n in options.names):
            continue
        work = make()
        work(1)
        load = os.getloadavg()[0]
        with ExitStack() as stack:
            if options.dask:
                one, many = (over_dask(work, n, stack) for n in (1, options.jobs))
            else:
                one, many = best(work, 1), best(work, options.jobs)
        rows.append({"case": name, "one": one, "many": many, "speed-up": one[0] / many[0], "load": load})
        print(
            f"| {name} | {one[0]:.2f} | {many[0]:.2f} | {one[0] / many[0]:.2f} | {many[1] / one[1]:.2f} | {load:.1f} |",
            flush=True,
        )
    print(json.dumps({"jobs": options.jobs, "dask": options.dask, "rows": rows}))


def over_dask(work: Callable[[int], Any], n: int, stack: ExitStack) -> tuple[float, float]:
    import distributed
    import joblib

    local = stack.enter_context(distributed.LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None))
    client = stack.enter_context(distributed.Client(local, set_as_default=False))
    with joblib.parallel_config(backend="dask", client=client):
        work(n)
        return best(work, n)


if __name__ == "__main__":
    main()
