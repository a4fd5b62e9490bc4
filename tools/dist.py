"""Build the wheel and the sdist, and try both: `make dist`.

The wheel is installed with its extras in one clean environment, the sdist with the core dependencies in another, and
`smoke.py` runs in each. Both must hold every file of the package that git knows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = (
    "tests/conftest.py",
    "tests/README.md",
    "docs/tutorial.md",
    "tools/smoke.py",
    "Makefile",
    "constraints.txt",
    "CHANGELOG.md",
)
"""What the sdist must hold besides the package, so that its tests run."""


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, freshly built in `folder`."""
    for old in [*folder.glob("reluscope-*.whl"), *folder.glob("reluscope-*.tar.gz")]:
        old.unlink()
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True)
    (wheel,), (sdist,) = folder.glob("reluscope-*.whl"), folder.glob("reluscope-*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Stop unless both hold every file of the package, and the sdist also what tests need."""
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    package = {line.removeprefix("src/") for line in listed.splitlines() if (ROOT / line).exists()}
    with zipfile.ZipFile(wheel) as archive:
        absent = package - set(archive.namelist())
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    absent |= {name for name in package if f"src/{name}" not in held} | set(NEEDED) - held
    if absent:
        raise SystemExit(f"not in the wheel or the sdist: {sorted(absent)}")


def try_out(archive: Path, extras: str, *words: str) -> None:
    """Install `archive` in a clean environment and run the smoke test there, away from the checkout."""
    with tempfile.TemporaryDirectory() as place:
        venv.create(Path(place) / "env", with_pip=True)
        python = Path(place) / "env" / "bin" / "python"
        install = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-c",
            ROOT / "constraints.txt",
        ]
        subprocess.run([*install, f"{archive}{extras}"], check=True)
        subprocess.run([python, "-I", "-W", "error", ROOT / "tools" / "smoke.py", *words], cwd=place, check=True)


def main() -> None:
    """Build, look, install, try."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outdir", type=Path, default=ROOT / "dist")
    folder = parser.parse_args().outdir
    folder.mkdir(parents=True, exist_ok=True)
    wheel, sdist = build(folder)
    check_contents(wheel, sdist)
    try_out(wheel, "[all]")
    try_out(sdist, "", "--core")


if __name__ == "__main__":
    main()
