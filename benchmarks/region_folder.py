"""A list of regions larger than memory should be: time, disk and peak memory of `regions(..., out=folder)`.

    python benchmarks/region_folder.py FOLDER [--layers 6] [--jobs 1] [--queries]

The network folds the square again and again, at random places: each of its layers cuts every cell into 16 (the last
one into 12), so six layers of 8 units have 12.6 million regions. One process looks for them, a second one reads the
folder, finds the regions of 100,000 points and adds up all areas and masses. Printed are the peak of the resident
memory of each, and of that part of it that belongs to the process alone: pages of mapped files, which the
system takes back when it needs them, are in the first number and not in the second. With `--queries`, each query of
a list of regions is asked in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import reluscope as rs


def folding(pieces: list[tuple[int, int]], seed: int = 0) -> rs.Network:
    """A network of two inputs in [0, 1] whose layer k folds them into so many pieces each."""
    rng = np.random.default_rng(seed)
    layers, W, b = [], np.eye(2), np.zeros(2)
    for each in pieces:
        rows, shifts, mixes, offsets = [], [], [], []
        for axis, n in enumerate(each):
            # Values run from 0 to 1 and back between these places; the first unit is on everywhere.
            at = (np.arange(1, n) + rng.uniform(-0.2, 0.2, n - 1)) / n
            ends = np.concatenate([[0.0], at, [1.0]])
            slopes = 0.96 / np.diff(ends) * (-1.0) ** np.arange(n)
            start = -1.0
            change = np.concatenate([[slopes[0]], np.diff(slopes)])
            rows += [np.eye(2)[axis]] * n
            shifts += [-start, *(-at)]
            mixes.append((axis, change))
            offsets.append(0.02 + slopes[0] * start)
        layers.append((np.array(rows) @ W, np.array(rows) @ b + np.array(shifts)))
        W, b, place = np.zeros((2, len(rows))), np.array(offsets), 0
        for axis, change in mixes:
            W[axis, place : place + len(change)] = change
            place += len(change)
    layers.append((np.ones((1, 2)) @ W, np.ones((1, 2)) @ b))
    return rs.Network(layers)


class Peak:
    """The most memory of its own that the process had, looked at every 20 ms."""

    def __enter__(self) -> Peak:
        self.most, self._end = 0, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def _watch(self) -> None:
        while not self._end.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            self.most = max(self.most, *(int(x.split()[1]) for x in lines if x.startswith("RssAnon")))

    def __exit__(self, *error: object) -> None:
        self._end.set()


def measured(what: Any) -> dict[str, Any]:
    begun, cpu = time.perf_counter(), time.process_time()
    with Peak() as peak:
        found = what()
    return {
        **found,
        "seconds": time.perf_counter() - begun,
        "CPU seconds": time.process_time() - cpu,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "peak MB of its own": peak.most / 1024,
    }


def search(folder: Path, layers: int, jobs: int) -> dict[str, Any]:
    net = folding([(4, 4)] * (layers - 1) + [(4, 3)])
    found = rs.regions(net, (0, 1), out=folder, jobs=jobs)
    disk = sum(file.stat().st_size for file in folder.iterdir())
    return {"regions": len(found), "complete": found.complete, "disk MB": disk / 2**20}


def read(folder: Path) -> dict[str, Any]:
    found = rs.Regions.load(folder)
    X = np.random.default_rng(0).uniform(size=(100_000, 2))
    place = found.find(X)
    inside = found.pattern[place[:1000]]
    assert (place >= 0).all() and np.array_equal(inside, found.network.pattern(X[:1000]))
    area = float(found.volume.sum())
    masses = found.masses(rs.Uniform([0.0, 0.0], [1.0, 1.0]))
    return {"found": len(place), "area": area, "mass": float(masses.value.sum())}


UNIFORM, NORMAL = rs.Uniform([0.0, 0.0], [1.0, 1.0]), rs.Gaussian([0.5, 0.5], 0.04)
QUERIES: dict[str, Callable[[rs.Regions], Any]] = {
    "load": len,
    "find": lambda found: found.find(np.random.default_rng(0).uniform(size=(100_000, 2))),
    "one region": lambda found: (found[2_000], found.vertices(-1), found.half_spaces(7), found.facets(9)),
    "volume": lambda found: found.volume,
    "interior": lambda found: found.interior,
    "masses, uniform": lambda found: found.masses(UNIFORM),
    "masses, Gaussian": lambda found: found.masses(NORMAL),
    "distinct_maps": lambda found: found.distinct_maps(),
    "neighbours": lambda found: found.neighbours(2_000),
    "adjacency": lambda found: found.adjacency(),
    "merge_equal": lambda found: found.merge_equal(),
}


def asked(folder: Path, name: str) -> dict[str, Any]:
    QUERIES[name](rs.Regions.load(folder))
    return {"query": name}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--queries", action="store_true")
    parser.add_argument("--child", choices=("search", "read", *QUERIES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child == "search":
        print(json.dumps(measured(lambda: search(options.folder, options.layers, options.jobs))))
        return
    if options.child == "read":
        print(json.dumps(measured(lambda: read(options.folder))))
        return
    if options.child:
        print(json.dumps(measured(lambda: asked(options.folder, options.child))))
        return
    for child in ("search", *(QUERIES if options.queries else ["read"])):
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--child", child], check=True, capture_output=True, text=True
        )
        facts = json.loads(done.stdout.splitlines()[-1])
        print(child, {k: round(v, 6) if isinstance(v, float) else v for k, v in facts.items()}, flush=True)


if __name__ == "__main__":
    main()
