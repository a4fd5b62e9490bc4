"""Sound brackets of event probabilities: width reached in a given time.

Run: python benchmarks/bounds.py gauss [seconds] [seeds]        random 5-50-50-1 networks, N(0, I), three levels of p
     python benchmarks/bounds.py acas [seconds] [net ...]       ACAS Xu property 2, uniform law, e.g. 4_3 4_9 5_8
     python benchmarks/bounds.py verdicts [seconds] [props]     ACAS Xu: upper end 0 for unsat, lower end > 0 for sat

`acas` and `verdicts` read the folder named by RELUSCOPE_DATA. Seconds are wall-clock seconds of an idle machine with 2
cores: the budget counts CPU time of all threads, divided by two, so that a busy machine gives the same brackets.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

import reluscope as rs
from reluscope.budget import Budget
from reluscope.events import Case, Event
from reluscope.measure.sound import bound_event

CORES = 2


@dataclass(frozen=True)
class CpuBudget(Budget):
    """A budget that counts CPU seconds of the whole process over the number of cores."""

    started: float = field(default_factory=time.process_time)

    def elapsed(self) -> float:
        return (time.process_time() - self.started) / CORES


def random_network(widths, seed):
    """Weights N(0, 2/inputs) and biases N(0, 0.01)."""
    rng = np.random.default_rng(seed)
    return rs.Network(
        [(rng.normal(size=(m, n)) * np.sqrt(2 / n), 0.1 * rng.normal(size=m)) for n, m in pairwise(widths)]
    )


def above(n, c):
    """The event y > c for a network with one output."""
    free = np.full(n, np.inf)
    case = Case(-free, free, np.zeros((1, n)), np.array([[-1.0]]), np.array([-c]), np.zeros(1, bool))
    return Event("property", n, 1, (case,))


def show(name, answer, start):
    width = answer.upper - answer.lower
    share = f"{100 * width / answer.value:.2f} %" if answer.value > 0 else "0"
    print(
        f"{name:24s} [{answer.lower:.5g}, {answer.upper:.5g}] width {width:.3g} ({share})  "
        f"{answer.evaluations:.3g} boxes, {(time.process_time() - start) / CORES:.1f} s",
        flush=True,
    )


def gauss(seconds=120.0, seeds=1):
    bound_event(random_network((5, 4, 4, 1), 0), rs.Gaussian(np.zeros(5)), above(5, 0.0), budget="200 regions")
    for seed in range(int(seeds)):
        net = random_network((5, 50, 50, 1), seed)
        y = net(np.random.default_rng(1).normal(size=(4_000_000, 5)))[:, 0]
        for p in (0.6, 1e-2, 1e-4):
            start = time.process_time()
            event = above(5, float(np.quantile(y, 1 - p)))
            answer = bound_event(
                net, rs.Gaussian(np.zeros(5)), event, tolerance=0.0, budget=CpuBudget(seconds=float(seconds))
            )
            show(f"seed {seed}, p = {p:g}", answer, start)


def folder():
    return Path(os.environ["RELUSCOPE_DATA"]) / "nets"


def acas_case(net, prop):
    base = folder() / "acasxu"
    event = rs.vnnlib(base / "vnnlib" / f"prop_{prop}.vnnlib")
    return rs.load(base / "onnx" / f"ACASXU_run2a_{net}_batch_2000.onnx"), rs.Uniform(*event.boxes[0]), event


def acas(seconds=60.0, *nets):
    bound_event(*acas_case("1_1", 3), budget="200 regions")
    for net in nets or ("4_3", "4_9", "5_8"):
        start = time.process_time()
        answer = bound_event(*acas_case(net, 2), tolerance=0.0, budget=CpuBudget(seconds=float(seconds)))
        show(f"N_{net} property 2", answer, start)


def verdicts(seconds=120.0, props="1,2,3,4"):
    bound_event(*acas_case("1_1", 3), budget="200 regions")
    tally = Counter()
    with (folder() / "expected_verdicts.csv").open(newline="") as file:
        wanted = [row for row in csv.DictReader(file) if row["benchmark"] == "acasxu"]
    for row in wanted:
        prop = row["vnnlib"].split("prop_")[1].split(".")[0]
        net = row["onnx"].split("run2a_")[1].split("_batch")[0]
        if prop not in props.split(","):
            continue
        start = time.process_time()
        # A sat case is answered by a positive lower end: a rough bracket will do.
        tolerance = 0.0 if row["verdict"] == "unsat" else 0.01
        answer = bound_event(*acas_case(net, prop), tolerance=tolerance, budget=CpuBudget(seconds=float(seconds)))
        if answer.lower == 0.0 and answer.upper > 0.0 and row["verdict"] == "sat":
            answer = bound_event(*acas_case(net, prop), tolerance=0.0, budget=CpuBudget(seconds=float(seconds) / 4))
        good = answer.upper == 0.0 if row["verdict"] == "unsat" else answer.lower > 0.0
        tally[row["verdict"], good] += 1
        show(f"N_{net} p{prop} {row['verdict']} {'ok' if good else 'OPEN'}", answer, start)
    print(dict(tally))


if __name__ == "__main__":
    name, *rest = sys.argv[1:] or ["gauss"]
    {"gauss": gauss, "acas": acas, "verdicts": verdicts}[name](*rest)
