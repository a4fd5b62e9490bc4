"""Do the intervals of rare events hold? Problems in 5 to 784 dimensions, from 1e-3 to 1e-10, real networks among them.

Run: python benchmarks/coverage.py [repeats] [finite-sample repeats] [first seed] [name ...]   (one thread)

For each problem `rare_probability(..., level=0.95)` with fresh seeds, and fewer runs of the finite-sample interval at
99 %. The table gives how many intervals hold the truth, the mean over the truth, the error (root mean square), the
median half-width above (all relative), evaluations and CPU seconds of one run. `ref` says where the truth comes from:

- closed: a closed form; half-spaces and unions of them stand behind units that see all inputs;
- lines: line sampling by a program that shares no code with the engines (docs/rare.md), for the images; an interval
  counts as holding if it meets the reference give or take two of its standard errors;
- long: a long run of rays, for ACAS Xu: a test of the spread, not of a bias.

Problems with real networks need RELUSCOPE_DATA. Results are in docs/rare.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gzip
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rare import above, behind_a_layer, four_modes
from scipy.special import ndtr, ndtri

import reluscope as rs
from reluscope.events import as_event
from reluscope.measure.rare import rare_probability


@dataclass(frozen=True)
class Problem:
    """A network, a law, an event, its probability, and how far that may be off (standard error)."""

    name: str
    net: Any
    law: Any
    event: Any
    truth: float
    error: float
    ref: str


def union(inputs, distances):
    """Half-spaces at both ends of orthogonal axes: the ends exclude one another, the axes are independent."""
    net = four_modes(inputs, distances)
    net = behind_a_layer(net) if inputs > 12 else net
    pairs = ndtr(-np.asarray(distances, float)).reshape(-1, 2).sum(axis=1)
    truth = float(-np.expm1(np.log1p(-pairs).sum()))
    name = f"{len(distances)} half-spaces, {inputs} inputs"
    return Problem(name, net, rs.Gaussian(np.zeros(inputs)), above(net, 0.0), truth, 0.0, "closed")


def half_space(inputs, p):
    z = float(ndtri(p))
    eye = np.eye(inputs)[:1]
    net = behind_a_layer(rs.Network([(np.concatenate([eye, -eye]), np.array([z, -z])), ([[1.0, -1.0]], None)]))
    law = rs.Gaussian(np.zeros(inputs))
    return Problem(f"half-space, {inputs} inputs", net, law, above(net, 0.0), p, 0.0, "closed")


def acasxu(folder):
    net = rs.load(folder / "nets" / "acasxu" / "onnx" / "ACASXU_run2a_5_3_batch_2000.onnx")
    event = rs.vnnlib(folder / "nets" / "acasxu" / "vnnlib" / "prop_2.vnnlib")
    return Problem("ACAS Xu N_5_3, property 2", net, rs.Uniform(*event.boxes[0]), event, 3.484e-7, 0.008e-7, "long")


def image(folder, index, sigma, truth, error):
    with gzip.open(folder / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)[index] / 255.0
    net = rs.load(folder / "nets" / "mnist_fc" / "onnx" / "mnist-net_256x2.onnx")
    law = rs.Gaussian(pixels, sigma**2)
    event = as_event("argmax != argmax at mean", net, law)
    return Problem(f"mnist image {index}, noise {sigma:g}", net, law, event, truth, error, "lines")


def problems():
    yield union(5, [3.4, 3.5, 3.5, 3.6])
    yield union(10, [6.1, 6.2, 6.15, 6.2])
    yield half_space(16, 1e-10)
    yield union(16, [5, 5, 5.1, 5.3, 5.1, 5.2, 5.1, 5.3])
    yield union(30, [3.2, 3.3, 3.3, 3.4])
    yield union(60, [5, 5, 5.1, 5.3])
    yield union(200, [4.75, 4.8])
    if "RELUSCOPE_DATA" in os.environ:
        folder = Path(os.environ["RELUSCOPE_DATA"])
        yield acasxu(folder)
        yield image(folder, 2, 0.1, 1.065e-4, 0.010e-4)
        yield image(folder, 1, 0.1, 1.697e-8, 0.060e-8)
        yield image(folder, 0, 0.05, 5.486e-8, 0.059e-8)


def run(problem, seeds, level, interval, budget=None):
    rows = []
    for seed in seeds:
        begin = time.process_time()
        found = rare_probability(
            problem.net, problem.law, problem.event, rng=seed, level=level, interval=interval, budget=budget
        )
        used = time.process_time() - begin
        rows.append((found.value, found.lower, found.upper, found.evaluations or 0, used))
    rows = np.array(rows)
    slack = 2.0 * problem.error
    held = (rows[:, 1] <= problem.truth + slack) & (rows[:, 2] >= problem.truth - slack)
    return rows, held


def main(repeats=200, sure=20, first=0, names=()):
    print(
        f"{'problem':28s} {'truth':>9s} {'ref':6s} {'95 %':>8s} {'below':>5s} {'mean':>6s} {'error':>6s} {'half':>6s} "
        f"{'evals':>9s} {'CPU s':>6s} {'99 % finite':>12s}"
    )
    for p in problems():
        if names and not any(word in p.name for word in names):
            continue
        rows, held = run(p, range(first, first + repeats), 0.95, "replicate")
        value = rows[:, 0] / p.truth
        line = (
            f"{p.name:28s} {p.truth:9.3g} {p.ref:6s} {held.sum():4d}/{repeats:<3d} "
            f"{(rows[:, 2] < p.truth).sum():5d} {value.mean():6.3f} {100 * np.sqrt(((value - 1) ** 2).mean()):5.1f}% "
            f"{100 * np.median(rows[:, 2] / rows[:, 0] - 1):5.1f}% {rows[:, 3].mean():9,.0f} {rows[:, 4].mean():6.2f}"
        )
        if sure:
            _, held = run(p, range(first, first + sure), 0.99, "finite-sample", budget="2s")
            line += f" {held.sum():8d}/{sure:<3d}"
        print(line, flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    numbers = [int(w) for w in words if w.isdigit()]
    main(*numbers, names=[w for w in words if not w.isdigit()])
