"""Regions per second of cells as half-spaces, on one core, and where cells with vertices stop winning.

Run: python benchmarks/regions_hpoly.py            the targets: 8-8-8-1 in 0.25 s, 10-8-8-1 in 0.22 s
     python benchmarks/regions_hpoly.py --compare  both geometries from 3 to 8 inputs
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import cpu_seconds, random_net

from reluscope.cells.polytope import HPolytopes
from reluscope.cells.subdivide import subdivide
from reluscope.cells.vertex import VertexCells

TARGETS = [((8, 8, 8, 1), 0.25), ((10, 8, 8, 1), 0.22)]
OTHERS = [(7, 10, 8, 1), (6, 12, 12, 1), (8, 6, 6, 6, 6, 1), (12, 10, 6, 1), (20, 10, 5, 1)]
COMPARED = [(3, 16, 16, 1), (4, 16, 16, 1), (5, 10, 10, 1), (6, 10, 10, 1), (7, 8, 7, 1), (8, 7, 6, 1)]


def enumerate_all(kind: Any, widths: tuple[int, ...]) -> Callable[[], list[Any]]:
    net, d = random_net(widths), widths[0]
    start = kind.box(np.full(d, -1.0), np.full(d, 1.0))
    return lambda: list(subdivide(net, start))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compare", action="store_true", help="both geometries, 3 to 8 inputs")
    if parser.parse_args().compare:
        compare()
        return
    for widths, target in [*TARGETS, *((w, None) for w in OTHERS)]:
        seconds, leaves = cpu_seconds(enumerate_all(HPolytopes, widths), 5)
        cells = HPolytopes.join([leaf.cells for leaf in leaves])
        n, rows = len(cells), len(cells.b)
        some = cells.part(0, min(n, 3000))
        inner, _ = cpu_seconds(lambda some=some: some.part(0, len(some)).interior(), 2)
        some.interior()
        wanted = "" if target is None else f"  target {target} s"
        print(
            f"{'-'.join(map(str, widths)):14} {n:7,} regions  {seconds:6.3f} s  {seconds / n * 1e6:5.1f} us each  "
            f"{rows / n:4.1f} cuts each  inner point {inner / len(some) * 1e6:5.1f} us{wanted}"
        )


def compare() -> None:
    for widths in COMPARED:
        with_vertices, a = cpu_seconds(enumerate_all(VertexCells, widths), 2)
        with_rows, b = cpu_seconds(enumerate_all(HPolytopes, widths), 2)
        n, m = (sum(len(leaf.cells) for leaf in found) for found in (a, b))
        print(
            f"{'-'.join(map(str, widths)):14} {n:7,} regions ({'same' if n == m else m})  "
            f"vertices {with_vertices / n * 1e6:6.1f} us  half-spaces {with_rows / n * 1e6:6.1f} us each"
        )


if __name__ == "__main__":
    main()
