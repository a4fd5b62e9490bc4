"""`rs.layers` on a deep network, a convolutional one if RELUSCOPE_DATA names the folder, and boundedness decisions."""

import os
import time
from pathlib import Path

import numpy as np
from side_by_side import random_net
from threadpoolctl import threadpool_limits

import reluscope as rs
from reluscope.representation.activity import stable_units
from reluscope.representation.laboratory import bounded_shares


def best(call, repeats: int = 3):
    """CPU seconds of the fastest of several runs, and the last result."""
    seconds, out = [], None
    for _ in range(repeats):
        started = time.process_time()
        out = call()
        seconds.append(time.process_time() - started)
    return min(seconds), out


def main() -> None:
    rng = np.random.default_rng(0)
    with threadpool_limits(1):
        net = random_net((100, *[100] * 64, 10))
        X = rng.normal(size=(10_000, 100))
        plain, _ = best(lambda: net(X))
        ours, _ = best(lambda: rs.layers(net, X))
        print(
            f"64 layers x 100 units, 10,000 points: {ours:.2f} s = {ours / plain:.1f} forward passes (target: seconds)"
        )
        certified, found = best(lambda: stable_units(net, (-0.01, 0.01)), 1)
        print(f"sound bounds on a box for its 6,400 units: {certified:.2f} s; {found!r}")
        shallow = random_net((2, *[20] * 10, 1))
        exact, found = best(lambda: stable_units(shallow, (-1, 1)), 1)
        print(f"2-20x10-1 settled by its regions: {exact:.2f} s; {found!r}")
        each, shares = best(lambda: bounded_shares((2, 3, 3, 3, 3, 3, 3), 100), 1)
        print(f"boundedness of 6 layers, exact: {10 * each:.2f} ms per network; {shares[-1]:.0%} bounded")
        folder = os.environ.get("RELUSCOPE_DATA")
        if folder:
            cnn = rs.load(Path(folder) / "nets/verivital/onnx/Convnet_avgpool.onnx")
            images = rng.uniform(size=(1000, 784))
            seconds, table = best(lambda: rs.layers(cnn, images), 1)
            print(f"{cnn!r}, 1,000 images: {seconds:.2f} s, {table.rows[1].channels} channels")


if __name__ == "__main__":
    main()
