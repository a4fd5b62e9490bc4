"""Networks from queries: success over seeds, queries, time, errors; other oracles; the walk from cell to cell.

Run: python benchmarks/recover.py [seeds] [widths ...]      (20 seeds by default, or 20:40; widths such as 10-15-15-1)
     python benchmarks/recover.py oracles [seeds]           (float32, noise, smooth functions; default 5 seeds)
     python benchmarks/recover.py walk                      (method "regions")
     python benchmarks/recover.py wrong [seeds] [widths]    (method "regions": how often "complete" is wrong)
     python benchmarks/recover.py conjectures               (method "samples": section 3.3.5 of Hamidi's thesis)

Networks: He weights N(0, 2 / inputs), biases N(0, 0.5^2), box [-2, 2]^n, float64 values only. A run counts as a success
when the largest output error at 40,000 points (a quarter of them corners of the box) is at most 1e-10. "all units"
counts the runs in which every weight could be compared: no unit was dead or always on in the box. The published
figure for 10-15-15-1 is 131k queries, minutes of work, largest error 7e-12 (Carlini, Jagielski and Mironov 2020, for
comparable networks).
"""

from __future__ import annotations

import itertools
import sys
import time

import numpy as np

import reluscope as rs

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
            held = found.compare(net, certify=False)
            runs.append((held.sampled, found.total_queries, took, found.restarts, held.parameter_error, held.certified))
            print(
                f"  {shape} seed {seed}: {found!r} error {held.sampled:.1e} {took:.1f} s", file=sys.stderr, flush=True
            )
        error, queries, seconds, restarts = (np.array([r[i] for r in runs], dtype=float) for i in range(4))
        good = error <= 1e-10
        matched = [r for r in runs if r[4] is not None]
        print(
            f"{shape:15s} success {good.sum()}/{len(seeds)}, "
            f"within 131k queries {(good & (queries <= 131_000)).sum()}; "
            f"queries median {np.median(queries):,.0f}, largest {queries.max():,.0f}; "
            f"CPU s median {np.median(seconds):.1f}, largest {seconds.max():.1f}; "
            f"error median {np.median(error):.1e}, largest of successes {error[good].max(initial=0):.1e}; "
            f"restarts {int(restarts.sum())}; all units {len(matched)}, "
            f"their parameter error <= {max((r[4] for r in matched), default=0):.1e}, "
            f"certified <= {max((r[5] for r in matched), default=0):.1e}",
            flush=True,
        )


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
    elif given[:1] == ["walk"]:
        walk()
    elif given[:1] == ["conjectures"]:
        conjectures()
    elif given[:1] == ["wrong"]:
        wrong(range(*[int(part) for part in (given[1] if len(given) > 1 else "100").split(":")]), given[2:])
    else:
        bounds = [int(part) for part in (given[0] if given else "20").split(":")]
        main(range(*bounds), given[1:] or list(WIDTHS))
