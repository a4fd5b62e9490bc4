"""Try an installed Reluscope: `python tools/smoke.py`, or `--core` where only the core dependencies are installed.

Runs away from the checkout, so that it sees what was installed: package data, one exact answer, one file written and
read again and the command; with the extras also a report, a picture and the playground.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import numpy as np

import reluscope as rs

DATA = (
    "py.typed",
    "reporting/page.html",
    "lens/study_page.html",
    "lens/study_page.js",
    "playground/static/page.html",
    "playground/static/page.js",
    "examples/moons.npz",
    "examples/moons.json",
)


def core(folder: Path) -> None:
    """What must work with the core dependencies alone."""
    assert rs.__version__ == version("reluscope")
    missing = [name for name in DATA if not files("reluscope").joinpath(name).is_file()]
    assert not missing, f"not installed: {missing}"
    for name in rs.__all__:
        try:
            getattr(rs, name)
        except rs.MissingExtraError as error:
            assert "--core" in sys.argv, error
    moons = rs.example("moons")
    answer = rs.probability(moons.network, moons.law, "y[0] > 0")
    assert answer.guarantee == "exact" and answer.lower <= answer.value <= answer.upper, repr(answer)
    X = moons.law.sample(100_000, 0)
    share = float((moons.network(X)[:, 0] > 0).mean())
    assert abs(answer.value - share) < 0.01, (answer, share)  # 6 standard errors
    moons.network.save(folder / "net.npz")
    np.testing.assert_array_equal(rs.load(folder / "net.npz")(X), moons.network(X))
    said = subprocess.run(
        [Path(sys.executable).with_name("reluscope"), "--version"], capture_output=True, text=True, check=True
    )
    assert rs.__version__ in said.stdout


def extras(folder: Path) -> None:
    """What needs the extras of `reluscope[all]`."""
    from reluscope.playground.server import create_app
    from reluscope.plot import plot_regions

    moons = rs.example("moons")
    rs.report(moons.network, moons.law, events=["y[0] > 0"], budget="20s").save(folder / "report")
    assert "<svg" in (folder / "report" / "report.html").read_text(encoding="utf-8")
    create_app()
    axes = plot_regions(rs.regions(moons.network, box=(-1, 1)))
    assert axes.collections or axes.patches


if __name__ == "__main__":
    home = Path(rs.__file__).resolve().parent
    assert "site-packages" in home.parts, f"this is not an installed package: {home}"
    with tempfile.TemporaryDirectory() as place:
        core(Path(place))
        if "--core" not in sys.argv:
            extras(Path(place))
    print(f"reluscope {rs.__version__} in {home} works")
