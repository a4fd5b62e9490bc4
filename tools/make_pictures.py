"""Make the pictures of the README and the documentation. Run with `.venv/bin/python tools/make_pictures.py`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from reluscope.demo import run

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def main() -> None:
    """Write every picture to docs/images."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run("moons", Path(folder))
        shutil.copy(Path(folder) / "moons-regions.png", IMAGES / "moons-regions.png")


if __name__ == "__main__":
    main()
