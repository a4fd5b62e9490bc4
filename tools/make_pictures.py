"""Make the pictures of the README and the documentation. Run with `.venv/bin/python tools/make_pictures.py`."""

from __future__ import annotations

from pathlib import Path

import reluscope as rs
from reluscope.plot import plot_regions

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def main() -> None:
    """Write the picture of the README to docs/images."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    moons = rs.example("moons")
    found = rs.regions(moons.network, law=moons.law)
    axes = plot_regions(found, colour="mass", masses=found.masses(moons.law).value)
    axes.set(xlim=(-2, 3), ylim=(-2, 2.5))
    axes.figure.savefig(IMAGES / "moons-regions.png", dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
