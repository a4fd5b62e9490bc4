"""Make the pictures of the README and the documentation. Run with `.venv/bin/python tools/make_pictures.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import reluscope as rs
from reluscope.plot import plot_regions
from reluscope.plot.invariance import plot_growth
from reluscope.representation.laboratory import random_cloud, random_network
from reluscope.reproduce import boundedness

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def main() -> None:
    """Write the pictures of the README, `docs/layers.md` and `docs/invariance.md` to docs/images."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    moons = rs.example("moons")
    regions = rs.regions(moons.network, law=moons.law)
    axes = plot_regions(regions, colour="mass", masses=regions.masses(moons.law).value)
    axes.set(xlim=(-2, 3), ylim=(-2, 2.5))
    _save(axes, "moons-regions.png", dpi=150, bbox_inches="tight")

    net = random_network([2, 6, 6, 6, 6, 1], bias=0.3, rng=0)
    _save(plot_growth(rs.invariance.growth(net, rs.Gaussian([0.0, 0.0], 1.0))), "law-growth.png", dpi=130)

    rng = np.random.default_rng([0, 100, 100, 52])
    net = random_network([100] * 51 + [1], bias=10.0, rng=rng)
    cloud = random_cloud("normal", 1000, 100, scale=100.0, rng=rng)
    _save(np.ravel(rs.layers(net, cloud, jacobians=8, rng=rng).plot())[0], "layers-panels.png", dpi=100)

    boundedness.run(IMAGES, quick=False, rng=0, progress=None)


def _save(ax: object, name: str, **options: object) -> None:
    ax.figure.savefig(IMAGES / name, **options)


if __name__ == "__main__":
    main()
