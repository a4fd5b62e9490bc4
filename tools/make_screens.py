"""Make the pictures of pages that a browser shows: `python tools/make_screens.py [report playground batch]`.

Needs Chromium. The pictures show the pages as they are: make them again when the pages change.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

import reluscope as rs

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from browser import Browser  # noqa: E402 (of the tests)
from playground_page import open_page, type_event  # noqa: E402

IMAGES = ROOT / "docs" / "images"


def report(folder: Path) -> None:
    """The first screen of the report of the moons network."""
    moons = rs.example("moons")
    rs.report(moons.network, moons.law, events=["y[0] > 5"]).save(folder / "report")
    _picture(folder, folder / "report" / "report.html", "report", 1180, 900)


def batch(folder: Path) -> None:
    """The overview page of six questions about two networks."""
    lines = ["network,event,law,guarantee,budget"]
    for name, event in (("moons", "y[0] > 5"), ("moons", "y[0] < -8"), ("controller", "argmin == 0")):
        shown = rs.example(name)
        shown.network.save(folder / f"{name}.npz")
        (folder / f"{name}.json").write_text(json.dumps(shown.law.to_dict()))
        lines += [f'{name}.npz,"{event}",{name}.json,{kind},4s' for kind in ("auto", "sound")]
    (folder / "questions.csv").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "reluscope", "batch", "questions.csv", "--results", "night.sqlite"]
    subprocess.run(command, cwd=folder, check=True)
    _picture(folder, folder / "night.html", "batch", 1180, 620)


def playground(folder: Path) -> None:
    """The page with the moons network and an event."""
    command = [sys.executable, "-m", "reluscope", "playground", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as server:
        try:
            site = None
            while site is None and server.stdout is not None:
                site = re.search(r"http://[\w.:]+/?", server.stdout.readline())
            assert site is not None
            browser = Browser(folder / "profile", site[0].rstrip("/") + "/")
            try:
                open_page(browser, width=1280, height=820)
                type_event(browser, "y[0] > 5")
                _shoot(browser, "playground")
            finally:
                browser.close()
        finally:
            server.terminate()


def _picture(folder: Path, page: Path, name: str, width: int, height: int) -> None:
    browser = Browser(folder / "profile", page.as_uri())
    try:
        browser.size(width, height)
        browser.ask("Page.navigate", url=page.as_uri())
        browser.until("document.readyState === 'complete'")
        time.sleep(1.0)  # maps are drawn after the page is there
        _shoot(browser, name)
    finally:
        browser.close()


def _shoot(browser: Browser, name: str) -> None:
    path = IMAGES / f"{name}.png"
    browser.screenshot(path)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256)  # a third of the size, and no difference to the eye
    small.save(path, optimize=True)


def main(names: list[str]) -> None:
    """Make the named pictures, or all."""
    known = {picture.__name__: picture for picture in (report, playground, batch)}
    for name in names or known:
        with tempfile.TemporaryDirectory() as folder:
            known[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
