"""Time `subdivide` with `VertexCells` on random networks over the box [-1, 1]^d.

    python benchmarks/regions_vertex.py [repeats]

Weights are N(0, 2 / inputs), biases N(0, 0.1^2). Prints the best of several warm
runs, in CPU time: other work on the machine matters less.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise

import numpy as np

from reluscope.cells.subdivide import subdivide
from reluscope.cells.vertex import VertexCells
from reluscope.network import Network

CASES = ([2, 32, 32, 32, 1], [3, 16, 16, 1], [4, 16, 16, 1], [5, 10, 10, 1], [6, 12, 12, 1], [7, 9, 9, 1])


def random_network(widths: list[int], seed: int) -> Network:
    rng = np.random.default_rng(seed)
    return Network(
        [
            (rng.normal(0.0, np.sqrt(2.0 / inputs), (units, inputs)), rng.normal(0.0, 0.1, units))
            for inputs, units in pairwise(widths)
        ]
    )


def run(net: Network) -> tuple[float, int, int]:
    box = VertexCells.box(-np.ones(net.n_inputs), np.ones(net.n_inputs))
    start = time.process_time()
    leaves = list(subdivide(net, box))
    seconds = time.process_time() - start
    return seconds, sum(len(leaf.cells) for leaf in leaves), sum(len(leaf.cells.points) for leaf in leaves)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    run(random_network([2, 4, 4, 1], 0))
    print(f"{'net':>12} {'regions':>8} {'vertices/cell':>13} {'ms':>9} {'us/region':>9}")
    for widths in CASES:
        for seed in (0, 1):
            runs = [run(random_network(widths, seed)) for _ in range(repeats)]
            seconds, regions, vertices = min(runs)
            name = "-".join(map(str, widths))
            each = 1e6 * seconds / regions
            print(f"{name:>12} {regions:8d} {vertices / regions:13.1f} {1e3 * seconds:9.2f} {each:9.2f}")


if __name__ == "__main__":
    main()
