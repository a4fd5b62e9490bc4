"""The certificate of a data set: MNIST test images on a 784-256-256-10 network, in CPU seconds.

Run: python benchmarks/certify.py [images] [network] [folder]    e.g. 100 mnist-net_256x2 out

Reads the folder named by RELUSCOPE_DATA. Prints, for several sigmas, the share of images for which the probability that
the decision changes is proved to be at most 1e-6, plain CROWN on boxes of 4.5 sigma beside it, and the share of images
whose decision survives 1,000 draws of the noise (no proof; what one could hope for at the most). With a folder, writes
the table and the curve.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import reluscope as rs
from reluscope.reproduce._images import images

SIGMA = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1]
DRAWS = 1000


def survive(net, X, decision, sigma, rng):
    """Which rows keep their decision in all draws."""
    kept = [
        (net(x + sigma * rng.standard_normal((DRAWS, len(x)))).argmax(axis=1) == c).all()
        for x, c in zip(X, decision, strict=True)
    ]
    return np.array(kept)


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    name = sys.argv[2] if len(sys.argv) > 2 else "mnist-net_256x2"
    net = rs.load(Path(os.environ["RELUSCOPE_DATA"]) / "nets" / "mnist_fc" / "onnx" / f"{name}.onnx")
    data = images("mnist")
    X, label = data.test[:n], data.test_label[:n]
    rs.certify(net, X[:1], 0.03)  # compiles
    seconds = {}
    for what, options in (("table, largest sigma", {"box": None}), ("boxes too", {})):
        start = time.process_time()
        found = rs.certify(net, X, 0.03, labels=label, **options)
        seconds[what] = time.process_time() - start
    print(f"{name}, {len(X)} test images, {100 * found.correct.mean():g} % right, one sigma")
    print("CPU seconds: " + ", ".join(f"{what} {s:.1f}" for what, s in seconds.items()))
    print(f"largest sigma: median {np.median(found.largest):.4f}, least {found.largest.min():.4f}")
    print(f"boxes of 4.5 sigma: median {np.median(found.box_largest):.4f}, hold {found.box_mass:.4f} of the noise\n")
    rng = np.random.default_rng(0)
    print("| sigma | P(change) <= 1e-6 proved | plain CROWN, 4.5 sigma | no change in 1,000 draws |")
    print("|---|---|---|---|")
    for s in SIGMA:
        kept = (survive(net, X, found.decision, s, rng) & found.correct).mean()
        print(f"| {s:g} | {100 * found.share(s):.0f} % | {100 * found.box_share(s):.0f} % | {100 * kept:.0f} % |")
    if len(sys.argv) > 3:
        from reluscope._tables import write_csv
        from reluscope.plot._axes import save

        folder = Path(sys.argv[3])
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(found.to_dict(), folder / "certify.csv")
        save(found.plot(), folder / "certify.png")


if __name__ == "__main__":
    main()
