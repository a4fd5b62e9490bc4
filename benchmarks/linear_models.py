"""The full distribution over patterns of the built-in moons net: enumeration against the orthant formula with scipy.

Run: python benchmarks/linear_models.py [patterns]

The formula is timed on a few patterns (default 2, all components each) and extrapolated to all that occur: one
12-dimensional singular Gaussian orthant takes scipy seconds. Prints both times, their ratio and the largest difference.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import reluscope as rs
from reluscope.answers.linear_models import linear_models
from reluscope.answers.orthant import orthant_masses
from reluscope.answers.outputs import outputs


def best(run, repeats: int) -> float:
    """Shortest CPU time of several runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def main(patterns: int) -> None:
    example = rs.example("moons")
    net, law = example.network, example.law
    found = linear_models(net, law)  # compiles
    ours = best(lambda: linear_models(net, law), 10)
    some = found.pattern[:: max(1, len(found) // patterns)][:patterns]
    start = time.process_time()
    formula = orthant_masses(net, law, some, "orthant", rng=0)
    each = (time.process_time() - start) / len(some)
    theirs = each * len(found)
    gap = max(abs(found.mass(p).value - m) for p, m in zip(some, formula, strict=True))
    print(f"{len(found)} patterns, {len(law.components)} components, total mass {found.masses.value.sum():.16f}")
    print(f"enumeration, all patterns: {1e3 * ours:9.2f} ms")
    print(f"formula (11) with scipy:   {theirs:9.1f} s  ({each:.2f} s per pattern, {len(some)} timed)")
    print(f"ratio {theirs / ours:,.0f}, largest difference {gap:.1e}")
    for name in ("diagonal", "lowrank"):
        start = time.process_time()
        near = orthant_masses(net, law, found.pattern, name, rng=0)
        took = time.process_time() - start
        heavy = found.masses.value > 1e-4
        ratio = np.maximum(near[heavy] / found.masses.value[heavy], found.masses.value[heavy] / near[heavy])
        print(f"{name:9s} {1e3 * took:9.1f} ms, off by factors up to {ratio.max():.3g} (median {np.median(ratio):.3g})")
    out = outputs(net, law)
    t = np.linspace(*out.quantile([1e-6, 1 - 1e-6]).value, 200)
    out.pdf(t)
    cdf, pdf = best(lambda: out.cdf(t), 5), best(lambda: out.pdf(t), 5)
    print(f"output at 200 thresholds: cdf {1e3 * cdf:.1f} ms, pdf {1e3 * pdf:.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
