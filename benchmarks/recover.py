"""Networks from queries: success over seeds, queries, time, errors; other oracles; the walk from cell to cell.

Run: python benchmarks/recover.py [seeds] [widths ...]      (20 seeds by default, or 20:40; widths such as 10-15-15-1)
     python benchmarks/recover.py scale [name ...]          (many inputs, no biases, trained, leaky, links, labels)
     python benchmarks/recover.py mixed [seeds]             (small networks of many kinds: is "complete" ever wrong?)
     python benchmarks/recover.py oracles [seeds]           (float32, noise, smooth functions; default 5 seeds)
     python benchmarks/recover.py budgets [seconds ...]     (are limits on time and queries held?)
     python benchmarks/recover.py walk                      (method "regions")
     python benchmarks/recover.py wrong [seeds] [widths]    (method "regions": how often "complete" is wrong)
     python benchmarks/recover.py conjectures               (method "samples": section 3.3.5 of Hamidi's thesis)

Networks: He weights N(0, 2 / inputs), biases N(0, 0.5^2), box [-2, 2]^n, float64 values only. A run counts as a success
when the largest output error is at most 1e-10 (over the spread of the outputs, if that is more than 1) at 200,000
uniform points, at 200,000 corners of the box and at extreme points of the true network: some thousands at which its
units are furthest on or off. A run that says complete and is no success is wrong. "all units"
counts the runs in which every weight could be compared: no unit was dead or always on in the box. The published
figure for 10-15-15-1 is 131k queries, minutes of work, largest error 7e-12 (Carlini, Jagielski and Mironov 2020, for
comparable networks).
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import reluscope as rs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from nets import random_net, trained_net
from recovery_problems import BOX, KINDS, error_everywhere, extreme_points, largest_error, problem

WIDTHS = ("20-10-1", "5-20-1", "10-15-15-1", "10-20-20-1", "40-20-10-10-1")


def random_network(widths: list[int], seed: int) -> rs.Network:
    rng = np.random.default_rng(seed)
    pairs = itertools.pairwise(widths)
    return rs.Network(
        [(rng.normal(size=(out, inn)) * np.sqrt(2 / inn), 0.5 * rng.normal(size=out)) for inn, out in pairs]
    )


def main(seeds: range, shapes: list[str]) -> None:
    for shape in shapes:
        runs = []
        for seed in seeds:
            net = random_network([int(w) for w in shape.split("-")], seed)
            oracle = rs.Oracle(net, limit=500_000)
            start = time.process_time()
            found = rs.recover(oracle, (-2.0, 2.0), rng=seed, check=0)
            took = time.process_time() - start
            held, errors = found.compare(net, certify=False), error_everywhere(net, found, seed)
            error = max(held.sampled, *errors)
            runs.append(
                (error, found.total_queries, took, found.restarts, held.parameter_error, held.certified, bool(found))
            )
            print(
                f"  {shape} seed {seed}: {found!r} errors {' '.join(f'{e:.1e}' for e in errors)} {took:.1f} s",
                file=sys.stderr,
                flush=True,
            )
        error, queries, seconds, restarts = (np.array([r[i] for r in runs], dtype=float) for i in range(4))
        good = error <= 1e-10
        matched = [r for r in runs if r[4] is not None]
        print(
            f"{shape:15s} success {good.sum()}/{len(seeds)}, wrong {sum(r[6] for r in runs if r[0] > 1e-10)}, "
            f"within 131k queries {(good & (queries <= 131_000)).sum()}; "
            f"queries median {np.median(queries):,.0f}, largest {queries.max():,.0f}; "
            f"CPU s median {np.median(seconds):.1f}, largest {seconds.max():.1f}; "
            f"error median {np.median(error):.1e}, largest of successes {error[good].max(initial=0):.1e}; "
            f"restarts {int(restarts.sum())}; all units {len(matched)}, "
            f"their parameter error <= {max((r[4] for r in matched), default=0):.1e}, "
            f"certified <= {max((r[5] for r in matched), default=0):.1e}",
            flush=True,
        )


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _plain(*widths: int) -> Callable[[int], tuple[rs.Network, rs.Oracle]]:
    def make(seed: int) -> tuple[rs.Network, rs.Oracle]:
        net = random_network(list(widths), seed)
        return net, rs.Oracle(net, limit=1_000_000)

    return make


def _made(net: Callable[[int], rs.Network]) -> Callable[[int], tuple[rs.Network, rs.Oracle]]:
    def make(seed: int) -> tuple[rs.Network, rs.Oracle]:
        known = net(seed)
        return known, rs.Oracle(known, limit=500_000)

    return make


def _linked(widths: tuple[int, ...], link: str) -> Callable[[int], tuple[rs.Network, rs.Oracle]]:
    last = _sigmoid if link == "sigmoid" else _softmax

    def make(seed: int) -> tuple[rs.Network, rs.Oracle]:
        net = random_network(list(widths), seed)
        return net, rs.Oracle(lambda X: last(net(X)), widths[0], link=link, limit=500_000)

    return make


SCALE: dict[str, tuple[int, Callable[[int], tuple[rs.Network, rs.Oracle]]]] = {
    "100-64-1": (5, _plain(100, 64, 1)),
    "784-32-1": (3, _plain(784, 32, 1)),
    "784-128-1": (3, _plain(784, 128, 1)),
    "784-64-10": (2, _plain(784, 64, 10)),
    "no biases 5-8-6-1": (10, _made(lambda s: random_net((5, 8, 6, 1), s, bias=0.0))),
    "no biases 10-15-15-1": (10, _made(lambda s: random_net((10, 15, 15, 1), s, bias=0.0))),
    "trained 3-8-6-1": (10, _made(lambda s: trained_net((3, 8, 6, 1), s))),
    "trained 5-12-10-8-1": (5, _made(lambda s: trained_net((5, 12, 10, 8, 1), s))),
    "leaky 0.1 10-15-15-1": (
        10,
        _made(lambda s: random_net((10, 15, 15, 1), s, rs.activations.leaky_relu(0.1), bias=0.5)),
    ),
    "sigmoid 10-15-15-1": (10, _linked((10, 15, 15, 1), "sigmoid")),
    "softmax 10-12-8-4": (10, _linked((10, 12, 8, 4), "softmax")),
}
"""Name, seeds, and what makes a known network and the oracle that hides it."""


def scale(names: list[str]) -> None:
    """Complete or not, queries, CPU seconds, the largest error at 100,000 fresh points (10,000 with 100 inputs and
    more; a quarter of them corners) and at extreme points of the true network.

    A name may end in seeds, as "trained 5-12-10-8-1 seeds 5:33" does.
    """
    print(
        "| case | complete | queries, median (largest) | CPU s, median (largest) | largest error | wrong |", flush=True
    )
    for name in names or [*SCALE, "labels 5-8-3"]:
        if name.startswith("labels"):
            _labels(5)
            continue
        name, _, some = name.partition(" seeds ")
        seeds, make = SCALE[name]
        rows = []
        for seed in range(*map(int, some.split(":"))) if some else range(seeds):
            net, oracle = make(seed)
            start = time.process_time()
            found = rs.recover(oracle, (-2.0, 2.0), rng=seed, check=2000, budget="300s")
            took = time.process_time() - start
            small = net.n_inputs < 100
            X = np.random.default_rng([seed, 5]).uniform(-2, 2, (100_000 if small else 10_000, net.n_inputs))
            X[::4] = 2 * np.sign(X[::4])
            X = np.concatenate([X, extreme_points(net, seed, *((16, 3) if small else (1, 1)))])
            true = net(X)
            if oracle.link == "softmax":
                true = true - true.mean(axis=1, keepdims=True)
            error = float(np.abs(found(X) - true).max()) / max(1.0, float(true.std()))
            print(f"  {name} seed {seed}: {found!r} error {error:.1e} {took:.1f} s", file=sys.stderr, flush=True)
            rows.append((found.complete, found.total_queries, took, error))
        good = [r for r in rows if r[0]]
        wrong_ = sum(r[3] > 1e-6 for r in good)
        queries, seconds = [r[1] for r in rows], [r[2] for r in rows]
        print(
            f"| {name} | {len(good)} of {len(rows)} | {np.median(queries):,.0f} ({max(queries):,}) | "
            f"{np.median(seconds):.1f} ({max(seconds):.1f}) | {max((r[3] for r in good), default=np.nan):.0e} | "
            f"{wrong_} |",
            flush=True,
        )


def _labels(seeds: int) -> None:
    """Facets from labels: are their planes those of the network?"""
    rows = []
    for seed in range(seeds):
        net = random_network([5, 8, 3], seed)
        start = time.process_time()
        oracle = rs.Oracle(lambda X, net=net: net(X).argmax(axis=1), 5)
        found = rs.recover(oracle, (-2.0, 2.0), rng=seed, method="labels", budget="60s")
        took = time.process_time() - start
        faces = found.result
        on = np.flatnonzero(faces.facet >= 0)
        sides, J = faces.labels[faces.facet[on]].astype(int), net.jacobian(faces.points[on])
        slope = J[np.arange(len(on)), sides[:, 1]] - J[np.arange(len(on)), sides[:, 0]]
        slope /= np.linalg.norm(slope, axis=1, keepdims=True)
        error = float(np.abs(slope - faces.normal[faces.facet[on]]).max(initial=0.0))
        rows.append((found.complete, found.total_queries, took, error, len(faces)))
    complete, queries, seconds, errors, sizes = zip(*rows, strict=True)
    print(
        f"| labels 5-8-3 ({min(sizes)} to {max(sizes)} facets) | {sum(complete)} of {seeds} | "
        f"{np.median(queries):,.0f} ({max(queries):,}) | {np.median(seconds):.1f} ({max(seconds):.1f}) | "
        f"{max(errors):.0e} (normals) | {sum(c and e > 1e-6 for c, e in zip(complete, errors, strict=True))} |",
        flush=True,
    )


def mixed(seeds: range) -> None:
    """Small networks of many kinds: complete or not, and the largest error at 40,000 points, half on segments, and at
    extreme points."""
    rows: dict[str, list[tuple[bool, float]]] = {kind: [] for kind in KINDS}
    start = time.process_time()
    for seed in seeds:
        task = problem(seed)
        oracle = rs.Oracle(task.function, task.n_inputs, limit=300_000)
        began = time.process_time()
        found = rs.recover(oracle, BOX, rng=seed, budget="120s")
        error = largest_error(task, found, seed)
        took = time.process_time() - began
        state = "complete" if found else found.statement[0]
        print(f"  {task.name}: {oracle.queries:,} {error:.1e} {took:.1f} s {state}", file=sys.stderr, flush=True)
        rows[next(kind for kind in KINDS if f" {kind} " in task.name)].append((found.complete, error))
    print("| kind | complete | largest error of those | wrong |")
    for kind, runs in rows.items():
        good = [error for complete, error in runs if complete]
        bad = sum(error > 1e-6 for error in good)
        print(f"| {kind} | {len(good)} of {len(runs)} | {max(good, default=np.nan):.0e} | {bad} |")
    print(f"{time.process_time() - start:.0f} CPU s", flush=True)


def oracles(seeds: int) -> None:
    """What is left of exact recovery when answers are rounded, noisy or smooth."""
    curves = {
        "tanh": np.tanh,
        "sigmoid": lambda h: 1 / (1 + np.exp(-h)),
        "softplus": lambda h: np.logaddexp(0, h),
        "squares": np.square,
    }
    for name, curve in curves.items():
        told = 0
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            W, v = rng.normal(size=(15, 10)), rng.normal(size=15)
            found = rs.recover(rs.Oracle(lambda X, W=W, v=v, f=curve: f(X @ W.T) @ v, 10), (-2.0, 2.0), rng=seed)
            told += "not piecewise affine" in found.statement[0]
        print(f"{name} 10-15-1: told {told} of {seeds}", flush=True)
    for size in (1e-10, 1e-8, 1e-6, 1e-5, 1e-4):
        rows = []
        for seed in range(seeds):
            net, noise = random_network([5, 8, 6, 1], seed), np.random.default_rng(5)

            def noisy(X: np.ndarray, net=net, noise=noise, size=size) -> np.ndarray:  # type: ignore[no-untyped-def]
                return net(X) + size * noise.normal(size=(len(X), 1))

            rows.append(_recovered(net, rs.Oracle(noisy, 5, limit=500_000), seed))
        _show(f"noise {size:g} 5-8-6-1", rows)
    for shape in ("20-10-1", "5-20-1", "10-15-15-1"):
        rows = []
        for seed in range(seeds):
            net = random_network([int(w) for w in shape.split("-")], seed)
            rows.append(_recovered(net, rs.Oracle(net, dtype="float32", limit=500_000), seed))
        _show(f"float32 {shape}", rows)


def _recovered(net: rs.Network, oracle: rs.Oracle, seed: int) -> tuple[bool, float, int, float, str]:
    start = time.process_time()
    found = rs.recover(oracle, (-2.0, 2.0), rng=seed, check=2000)
    took = time.process_time() - start
    error = found.compare(net, certify=False).sampled
    print(f"  seed {seed}: {found!r} error {error:.1e} {took:.1f} s", file=sys.stderr, flush=True)
    return found.complete, error, found.total_queries, took, "-".join(map(str, found.layers)) or "none"


def _show(name: str, rows: list[tuple[bool, float, int, float, str]]) -> None:
    good = [r for r in rows if r[0]]
    print(
        f"{name}: complete {len(good)} of {len(rows)}, their error <= {max((r[1] for r in good), default=0):.1e}; "
        f"queries median {np.median([r[2] for r in rows]):,.0f}, CPU s median {np.median([r[3] for r in rows]):.1f}, "
        f"largest {max(r[3] for r in rows):.1f}; incomplete: "
        + (", ".join(f"{r[4]} (error {r[1]:.1e})" for r in rows if not r[0]) or "none"),
        flush=True,
    )


def budgets(seconds: list[float]) -> None:
    """Wall seconds and queries over the limits that were set, where the search had not ended before."""
    cases = [(name, "exact", SCALE[name][1]) for name in ("784-128-1", "trained 5-12-10-8-1")]
    cases += [(name, "exact", _plain(*map(int, name.split("-")))) for name in ("40-20-10-10-1", "10-40-40-1")]
    cases.append(("2-20-20-1", "regions", _plain(2, 20, 20, 1)))
    print("| case | limit | used | over the limit | ended by |", flush=True)
    for name, method, make in cases:
        net, _ = make(0)
        rs.recover(rs.Oracle(net), (-2.0, 2.0), method=method, rng=0, budget=0.1, check=0)  # compiles, loads
        for limit in seconds or [0.5, 2.0, 5.0]:
            start = time.perf_counter()
            found = rs.recover(rs.Oracle(net), (-2.0, 2.0), method=method, rng=0, budget=limit, check=0)
            used = time.perf_counter() - start
            _show_limit(name, f"{limit:g} s", f"{used:.2f} s", used / limit - 1.0, found)
        for most in (10_000, 40_000):
            oracle = rs.Oracle(net, limit=most)
            found = rs.recover(oracle, (-2.0, 2.0), method=method, rng=0, budget=10 * max(seconds or [1.0]), check=0)
            used = oracle.queries
            _show_limit(name, f"{most:,} queries", f"{used:,}", used / most - 1.0, found)


def _show_limit(name: str, limit: str, used: str, over: float, found: Any) -> None:
    ended = "complete" if found else found.statement[0]
    print(f"| {name} | {limit} | {used} | {max(over, 0.0):.1%} | {ended} |", flush=True)


def walk() -> None:
    """Pieces found by the walk beside the regions there are."""
    for shape in ("2-5-1", "2-6-5-1", "3-6-4-2", "2-10-10-1"):
        net = random_network([int(w) for w in shape.split("-")], 1)
        found = rs.recover(rs.Oracle(net), (-2.0, 2.0), method="regions", rng=0, check=5000)
        parts = rs.regions(net, (-2.0, 2.0), progress=None)
        print(
            f"{shape}: {len(found.result)} pieces, {len(parts)} regions ({parts.merge_equal().count} after merging "
            f"neighbours with equal maps), {found.total_queries:,} queries, complete {found.complete}, "
            f"largest error {found.sampled.largest:.1e}",
            flush=True,
        )


def wrong(seeds: range, shapes: list[str], points: int = 200_000) -> None:
    """Networks that the walk calls complete, and the share of the box where it is wrong all the same."""
    for shape in shapes or ["2-6-4-1", "2-6-5-1"]:
        complete, bad, worst, start = 0, [], 0.0, time.process_time()
        for seed in seeds:
            net = random_network([int(w) for w in shape.split("-")], seed)
            found = rs.recover(rs.Oracle(net), (-2.0, 2.0), method="regions", rng=seed)
            if not found:
                continue
            complete += 1
            X = np.random.default_rng([seed, 77]).uniform(-2, 2, (points, 2))
            off = ~(np.abs(found(X) - net(X)).max(axis=1) <= 1e-6)
            if off.any():
                bad.append((seed, float(off.mean())))
                worst = max(worst, float(off.mean()))
        print(
            f"{shape} seeds {seeds.start} to {seeds.stop - 1}: {complete} complete, {len(seeds) - complete} say "
            f"incomplete, {len(bad)} complete and wrong {bad} (largest share of the box {worst:.1e}), "
            f"{time.process_time() - start:.0f} CPU s",
            flush=True,
        )


def conjectures() -> None:
    """Non-zero weights of L1 fits over samples, widths, depths and dimensions."""
    from reluscope.reproduce.recover import GRID
    from reluscope.reproduce.recover import conjectures as count

    grid = [((2, 10, 10, 1), n) for n in (50, 100, 200)] + [(widths, n) for widths in GRID for n in (50, 100)]
    for widths, samples in grid:
        print(", ".join(f"{k} {v}" for k, v in count(widths, samples).items()), flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[:1] == ["oracles"]:
        oracles(int(given[1]) if len(given) > 1 else 5)
    elif given[:1] == ["scale"]:
        scale(given[1:])
    elif given[:1] == ["mixed"]:
        mixed(range(*[int(part) for part in (given[1] if len(given) > 1 else "60").split(":")]))
    elif given[:1] == ["budgets"]:
        budgets([float(part) for part in given[1:]])
    elif given[:1] == ["walk"]:
        walk()
    elif given[:1] == ["conjectures"]:
        conjectures()
    elif given[:1] == ["wrong"]:
        wrong(range(*[int(part) for part in (given[1] if len(given) > 1 else "100").split(":")]), given[2:])
    else:
        bounds = [int(part) for part in (given[0] if given else "20").split(":")]
        main(range(*bounds), given[1:] or list(WIDTHS))
