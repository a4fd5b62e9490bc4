"""Exact recovery of random networks from value queries: success over seeds, queries, time, errors.

Run: python benchmarks/recover.py [seeds] [widths ...]      (default 20 seeds; widths such as 10-15-15-1)

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


def main(seeds: int, shapes: list[str]) -> None:
    for shape in shapes:
        runs = []
        for seed in range(seeds):
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
            f"{shape:15s} success {good.sum()}/{seeds}, within 131k queries {(good & (queries <= 131_000)).sum()}; "
            f"queries median {np.median(queries):,.0f}, largest {queries.max():,.0f}; "
            f"CPU s median {np.median(seconds):.1f}, largest {seconds.max():.1f}; "
            f"error median {np.median(error):.1e}, largest of successes {error[good].max(initial=0):.1e}; "
            f"restarts {int(restarts.sum())}; all units {len(matched)}, "
            f"their parameter error <= {max((r[4] for r in matched), default=0):.1e}, "
            f"certified <= {max((r[5] for r in matched), default=0):.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:] or list(WIDTHS))
