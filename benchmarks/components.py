"""Mixtures of many components: budgets hold, and how narrow the bracket is when they end.

    python benchmarks/components.py [seconds]

Kernel densities of 50 points and mixtures of 2,000 Gaussians, in 2, 5 and 20 dimensions: each guarantee with a budget
of so many seconds (2), then with a tolerance of 0.02 and no budget. The reference is 400,000 draws.
"""

from __future__ import annotations

import itertools
import sys
import time

import numpy as np

import reluscope as rs


def network(rng: np.random.Generator, *widths: int) -> rs.Network:
    """Random weights."""
    layers = itertools.pairwise(widths)
    return rs.Network([(rng.normal(size=(b, a)) / np.sqrt(a), 0.3 * rng.normal(size=b)) for a, b in layers])


def main() -> None:
    """Ask, print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    rng = np.random.default_rng(0)
    late = wrong = 0
    for widths in ((2, 30, 20, 1), (5, 50, 50, 1), (20, 64, 32, 1)):
        net = network(rng, *widths)
        n = widths[0]
        points = rng.normal(size=(2000, n)) * rng.uniform(0.2, 2.0, n)
        laws = {
            "50 kernels": rs.kde(points[:50]),
            "2,000 components": rs.GaussianMixture(
                np.full(2000, 1 / 2000), [rs.Gaussian(p, 0.05 * rng.uniform(0.5, 2.0, n)) for p in points]
            ),
        }
        for name, law in laws.items():
            drawn = net(law.sample(400_000, 1))[:, 0]
            level = float(np.quantile(drawn, 0.7))
            text = f"y[0] > {level!r}"
            share = float((drawn > level).mean())
            kinds = ["exact"] * (n == 2) + ["sound", "confidence", "auto"]
            asked = [(kind, {"budget": seconds}) for kind in kinds]
            asked += [(kind, {"tolerance": 0.02}) for kind in ("confidence", "auto")]
            for kind, options in asked:
                rs.probability(net, law, text, guarantee=kind, budget="0.3s", rng=0)  # compiles
                wall, cpu = time.perf_counter(), time.process_time()
                found = rs.probability(net, law, text, guarantee=kind, rng=0, **options)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                bad = not found.lower - 0.004 <= share <= found.upper + 0.004
                over = "budget" in options and cpu > 1.25 * seconds + 0.3
                late, wrong = late + over, wrong + bad
                print(
                    f"{'-'.join(map(str, widths))}, {name}, {kind} {options}: [{found.lower:.4f}, {found.upper:.4f}] "
                    f"({found.guarantee}), draws {share:.4f}; {cpu:.1f} CPU s, {wall:.1f} s"
                    f"{' LATE' * over}{' WRONG' * bad}",
                    flush=True,
                )
    print(f"{late} late, {wrong} wrong")


if __name__ == "__main__":
    main()
