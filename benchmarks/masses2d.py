"""Polygon masses per second: `reluscope.measure.exact.polygon` against a vectorised boundary sum with scipy's Owen's T.

Run: python benchmarks/masses2d.py [cells]   (one core; prints cells per second, best of five, and the ratio)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.special import owens_t

from reluscope.measure.exact import polygon_mass, polygon_moments


def ring_cells(count: int, size: tuple[float, float], spread: float, rng: np.random.Generator):
    """Cells of 4 to 6 edges, diameter log-uniform in `size`, centres N(0, spread^2)."""
    edges = rng.integers(4, 7, count)
    offsets = np.concatenate([[0], np.cumsum(edges)])
    owner = np.repeat(np.arange(count), edges)
    place = np.arange(offsets[-1]) - offsets[owner]
    angle = 2 * np.pi * (place + 0.7 * rng.random(owner.size)) / edges[owner]
    radius = 0.5 * np.exp(rng.uniform(*np.log(size), count))
    centre = spread * rng.standard_normal((count, 2))
    unit = np.column_stack([np.cos(angle), np.sin(angle)])
    return centre[owner] + radius[owner, None] * unit, offsets


def owens_t_masses(vertices: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The textbook way: angle/(2 pi) minus two Owen's T per edge, summed over the boundary."""
    following = np.arange(1, len(vertices) + 1)
    following[offsets[1:] - 1] = offsets[:-1]
    p, q = vertices, vertices[following]
    d = q - p
    length = np.hypot(d[:, 0], d[:, 1])
    cross = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    h = cross / length
    begin, end = (p * d).sum(1) / length, (q * d).sum(1) / length
    angle = np.arctan2(cross, (p * q).sum(1)) / (2 * np.pi)
    return np.add.reduceat(angle - (owens_t(h, end / h) - owens_t(h, begin / h)), offsets[:-1])


def best(run: Callable[[], object], repeats: int = 5) -> float:
    """Shortest CPU time of several runs (the process is single-threaded)."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def main(count: int) -> None:
    rng = np.random.default_rng(0)
    polygon_mass(np.zeros((3, 2)), [0, 3])
    print(
        f"{'cells':34s} {'ours/s':>12s} {'owens_t/s':>12s} {'ratio':>7s} {'moments/s':>12s} {'largest difference':>20s}"
    )
    for name, size, spread in (
        ("ordinary, 0.01 to 3 sigma", (0.01, 3.0), 1.0),
        ("small, 0.01 to 0.1", (0.01, 0.1), 1.0),
        ("medium, 0.3 to 0.6", (0.3, 0.6), 1.0),
        ("large, 1 to 3", (1.0, 3.0), 1.0),
        ("huge, 10 to 80", (10.0, 80.0), 1.0),
        ("far, centres at 15 sigma", (0.1, 10.0), 15.0),
    ):
        vertices, offsets = ring_cells(count, size, spread, rng)
        ours = best(lambda v=vertices, o=offsets: polygon_mass(v, o))
        theirs = best(lambda v=vertices, o=offsets: owens_t_masses(v, o), 2)
        moments = best(lambda v=vertices, o=offsets: polygon_moments(v, o), 2)
        gap = np.abs(polygon_mass(vertices, offsets)[0] - owens_t_masses(vertices, offsets)).max()
        print(
            f"{name:34s} {count / ours:12,.0f} {count / theirs:12,.0f} {theirs / ours:7.1f} "
            f"{count / moments:12,.0f} {gap:20.1e}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
