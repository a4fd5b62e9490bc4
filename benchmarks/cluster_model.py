"""What a cluster would give: three jobs of this library, measured task by task, on 10 to 10,000 simulated workers.

Measured here: the seconds of each task, the bytes that go to a worker and come back, the seconds that joblib and a Dask
scheduler spend on a task that does nothing, and what a worker spends before its first task. Simulated: one scheduler
that hands out parcels one after the other, workers that ask for the next parcel when one is done, a network of so many
bytes a second, everything shared sent once to every worker. Run with RELUSCOPE_DATA for the ACAS Xu rows; without it
that job is asked of random networks. Prints tables, and writes them as JSON with --json FILE.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import pickle
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

import reluscope as rs
from reluscope.batches.instances import read_instances
from reluscope.batches.task import Task, answer_task, shared_networks, shipped
from reluscope.workers import grain, run_as_finished

BANDWIDTH = 1.25e8
"""Bytes a second: a network of 1 Gbit/s."""
LATENCY = 5e-4
"""Seconds from the scheduler to a worker."""
WORKERS = (1, 10, 30, 100, 300, 1_000, 3_000, 10_000)


@dataclass(frozen=True)
class Job:
    """Tasks as measured: seconds of each, bytes there and back, and what all of them share."""

    name: str
    seconds: np.ndarray
    sent: float
    back: float
    shared: float
    tasks: int

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """As many tasks as the whole job has, from the measured ones."""
        return rng.choice(self.seconds, size=self.tasks)


# -- three jobs ----------------------------------------------------------------------------------------------------


def timed(function, tasks) -> tuple[np.ndarray, list]:
    """CPU seconds of each task: the machine may be busy with other things."""
    seconds, results = [], []
    for task in tasks:
        start = time.process_time()
        results.append(function(task))
        seconds.append(time.process_time() - start)
    return np.array(seconds), results


def size(thing) -> int:
    return len(pickle.dumps(thing, protocol=5))


def batch_rows(budget: str, most: int) -> Job:
    """Rows of a batch: ACAS Xu, properties 1 to 4, sound."""
    folder = os.environ.get("RELUSCOPE_DATA")
    if folder:
        found = read_instances(Path(folder) / "nets/acasxu/instances.csv", budget=budget)
        found = [one for one in found if one.row < 180]
        found = [found[i] for i in np.random.default_rng(0).permutation(len(found))[:most]]
    else:
        law = rs.Uniform(-np.ones(5), np.ones(5))
        nets = [he([5, 50, 50, 50, 5], seed) for seed in range(most)]
        found = read_instances([{"network": n, "law": law, "event": "argmax == 0", "guarantee": "sound"} for n in nets])
    tasks = [Task(one, one.seed(0)) for one in found]
    answer_task(tasks[0])  # compiled code is loaded
    seconds, results = timed(answer_task, tasks)
    networks = shared_networks(tasks)
    sent = np.mean([size(shipped(task, networks)) for task in tasks])
    shared = 45 / len(networks) * size(networks) if networks else 0.0
    return Job("batch: ACAS Xu rows", seconds, sent, np.mean([size(r) for r in results]), shared, 100_000)


def certified_rows(most: int) -> Job:
    """Rows of data: which keep their decision under noise, proved; one row is one task."""
    net = he([64, 32, 32, 10], 1)
    X = np.random.default_rng(2).uniform(size=(most, 64))
    rs.certify(net, X[:1], 0.02)
    seconds, results = timed(lambda x: rs.certify(net, x[None], 0.02), X)
    return Job("certify: rows of a 64-32-32-10 net", seconds, X[0].nbytes + 200, size(results[0]), size(net), 1_000_000)


def region_masses(most: int) -> Job:
    """Regions of an 8-10-10 network: the probability of each polytope."""
    net, law = he([8, 10, 10, 1], 3), rs.Gaussian(np.zeros(8))
    found = rs.regions(net, law=law, budget=f"{8 * most} regions")
    pick = np.random.default_rng(4).permutation(len(found))[:most]
    shapes = [net.polytope(found.pattern[i]) for i in pick]
    rs.mass(shapes[0].A, shapes[0].b, law, rng=0)
    seconds, results = timed(lambda shape: rs.mass(shape.A, shape.b, law, rng=0), shapes)
    pattern = found.pattern[0].nbytes + 100
    return Job("masses: regions of an 8-10-10 net", seconds, pattern, size(results[0].to_dict()), size(net), 1_000_000)


def he(widths: list[int], seed: int) -> rs.Network:
    draw = np.random.default_rng(seed).normal
    layers = [(draw(size=(b, a)) * math.sqrt(2 / a), 0.1 * draw(size=b)) for a, b in pairwise(widths)]
    return rs.Network(layers)


# -- overheads -----------------------------------------------------------------------------------------------------


def nothing(task):
    return task


def per_task(tasks: int = 2_000) -> dict[str, float]:
    """Seconds of CPU of the process that hands out tasks which do nothing: client and scheduler."""
    out = {}
    list(run_as_finished(nothing, range(64), jobs=2, kind="processes"))  # workers are started
    start = time.process_time()
    list(run_as_finished(nothing, range(tasks), jobs=2, kind="processes", ahead=200))
    out["joblib"] = (time.process_time() - start) / tasks
    try:
        import distributed
    except ImportError:
        return out
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        client.gather(client.map(nothing, range(64), pure=False))
        start = time.process_time()
        client.gather(client.map(nothing, range(tasks), pure=False))
        out["dask"] = (time.process_time() - start) / tasks
    return out


def first_task() -> float:
    """Seconds of a fresh worker before its first answer: imports, compiled code from the disk."""
    code = (
        "import time; t = time.process_time(); import reluscope as rs\n"
        "net, law = rs.Network([([[1.0]], [0.0]), ([[1.0]], None)]), rs.Uniform([0.0], [1.0])\n"
        "rs.probability(net, law, 'y > 0.5', guarantee='sound')\n"
        "print(time.process_time() - t)"
    )
    return min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(2)
    )


# -- the model -----------------------------------------------------------------------------------------------------


def speedup(job: Job, workers: int, parcel: int, overhead: float, start: float, rng: np.random.Generator) -> float:
    """The work over the time to the last answer: one scheduler, parcels in order, the next one to who asks first."""
    seconds = job.drawn(rng)
    parcels = np.add.reduceat(seconds, np.arange(0, job.tasks, parcel))
    sizes = np.minimum(parcel, job.tasks - np.arange(0, job.tasks, parcel))
    # Everything shared goes to every worker once, from worker to worker: as many rounds as the tree is deep.
    ready = start + math.ceil(math.log2(workers + 1)) * (job.shared / BANDWIDTH + LATENCY)
    free = [ready] * workers
    clock = end = 0.0
    wire = (job.sent + job.back) / BANDWIDTH
    for total, n in zip(parcels.tolist(), sizes.tolist(), strict=True):
        asked = heapq.heappop(free)
        clock = max(clock, asked) + overhead + n * wire  # the scheduler and its wire serve one at a time
        done = clock + LATENCY + total
        end = max(end, done)
        heapq.heappush(free, done + LATENCY)
    return float(seconds.sum()) / end


def speedups(job: Job, overhead: float, start: float) -> list[dict]:
    each = float(job.seconds.mean())
    rows = []
    for workers in WORKERS:
        chosen = grain(job.tasks, workers, each, overhead)
        tried = {}
        for parcel in sorted({1, chosen, *(max(1, int(chosen * f)) for f in (0.1, 0.3, 3.0, 10.0))}):
            if job.tasks / parcel <= 2e6:
                tried[parcel] = speedup(job, workers, parcel, overhead, start, np.random.default_rng(0))
        best = max(tried, key=tried.get)
        rows.append(
            {
                "workers": workers, "grain": chosen, "speed-up": round(tried[chosen], 1),
                "efficiency": round(tried[chosen] / workers, 3), "one by one": round(tried[1], 1),
                "best grain tried": best, "with it": round(tried[best], 1),
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=60, help="tasks of each job that are measured")
    parser.add_argument("--budget", default="20s", help="of the rows of the batch")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from reluscope._text import table

    overheads, start = per_task(), first_task()
    overhead = max(overheads.values())
    print("seconds of the machinery per task:", {k: round(v, 5) for k, v in overheads.items()})
    print(f"seconds of CPU before a worker's first answer: {start:.2f}\n")
    jobs = [batch_rows(options.budget, options.tasks), certified_rows(options.tasks), region_masses(4 * options.tasks)]
    facts = {"overheads": overheads, "start": start, "jobs": {}}
    for job in jobs:
        marks = dict(
            zip(
                ("least", "10 %", "median", "90 %", "most"),
                np.quantile(job.seconds, [0, 0.1, 0.5, 0.9, 1]),
                strict=True,
            )
        )
        shown = {k: round(float(v), 6) for k, v in marks.items()} | {"mean": round(float(job.seconds.mean()), 6)}
        print(f"{job.name}: {len(job.seconds)} tasks measured, {job.tasks:,} simulated")
        print("  seconds of CPU", shown)
        print(f"  bytes: {job.sent:,.0f} there, {job.back:,.0f} back, {job.shared:,.0f} shared")
        rows = speedups(job, overhead, start)
        print(table(rows), "\n", flush=True)
        facts["jobs"][job.name] = {
            "seconds": shown,
            "bytes": [job.sent, job.back, job.shared],
            "tasks": job.tasks,
            "rows": rows,
        }
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
