"""Unwrapping 100,000 rows x 20 features through 3 x 100 hidden units: every row is its own region.

Run: python benchmarks/unwrap.py [rows]

Prints the CPU seconds of `unwrap` and of the region table (regression: squared errors of all local models on all rows;
classes: AUC of the 100 largest), beside one plain numpy forward pass, and the peak memory of the process.
"""

from __future__ import annotations

import itertools
import resource
import sys
import time

import numpy as np

import reluscope as rs
from reluscope.threads import blas_threads


def plain_forward(net: rs.Network, X: np.ndarray) -> None:
    """One pass in chunks, nothing else."""
    for start in range(0, len(X), 2048):
        z = X[start : start + 2048]
        for layer in net.layers[:-1]:
            z = np.maximum(z @ layer.weight.T + layer.bias, 0)


def main(rows: int) -> None:
    rng = np.random.default_rng(0)
    widths = (20, 100, 100, 100, 1)
    net = rs.Network(
        [(rng.normal(size=(o, i)) * np.sqrt(2 / i), 0.1 * rng.normal(size=o)) for i, o in itertools.pairwise(widths)]
    )
    X = rng.normal(size=(rows, 20))
    eta = net(X)[:, 0]
    noisy = eta + rng.normal(size=rows)
    rs.unwrap(net, X[:200], (noisy[:200] > 0).astype(int)).summary()  # compiles
    with blas_threads(100):
        start = time.process_time()
        plain_forward(net, X)
        forward = time.process_time() - start
    print(f"{rows:,} rows x 20 through 3 x 100; plain forward pass {forward:.2f} CPU s")
    for name, y in (("regression", noisy), ("two classes", (noisy > np.median(noisy)).astype(int))):
        start = time.process_time()
        u = rs.unwrap(net, X, y)
        middle = time.process_time()
        u.summary()
        end = time.process_time()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{name}: {len(u):,} regions, unwrap {middle - start:.2f}, table {end - middle:.2f} CPU s "
            f"({(end - start) / forward:.1f} forward passes), peak {memory:.2f} GB, "
            f"certificate {u.certificate.relative:.1e}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
