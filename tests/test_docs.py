"""The documentation: it builds without a warning, and the blocks of the tutorial run."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import reluscope as rs

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_documentation_builds_without_warnings(tmp_path):
    for package in ("sphinx", "myst_parser", "furo", "sphinx_gallery"):
        pytest.importorskip(package)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        str(ROOT / "docs"),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_the_tutorial_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tutorial.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert len(blocks) >= 7
    scope: dict = {}
    for block in blocks[:-1]:  # the last one reads files of the user's own
        exec(compile(block, "tutorial.md", "exec"), scope)
    assert (tmp_path / "moons-report" / "report.html").exists()


@pytest.mark.parametrize("page", ["index", "howto-safety", "howto-validator", "howto-researcher"])
def test_outputs_shown_on_pages_are_those_that_come(page):
    """Blocks marked `pycon`, as one session; `...` stands for digits that depend on the machine."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    blocks = re.findall(r"```pycon\n(.*?)```", text, flags=re.S)
    assert blocks
    session = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, f"{page}.md", 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    runner.run(session, out=said.append)
    assert runner.tries >= 5
    assert not runner.failures, "".join(said)


def test_the_reference_lists_every_public_name_and_nothing_else():
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. auto(?:function|class|exception):: ([\w.]+)\.(\w+)$", text, flags=re.M)
    assert len(listed) == text.count(".. auto")
    gone = [f"{home}.{name}" for home, name in listed if not hasattr(import_module(home), name)]
    assert not gone
    here = {name for home, name in listed if getattr(import_module(home), name) is getattr(rs, name, None)}
    assert set(rs.__all__) - here <= {"__version__"}


@pytest.mark.slow
def test_wheel_and_sdist_work_in_clean_environments(tmp_path):
    """Needs a package index, as pip does."""
    pytest.importorskip("build")
    command = [sys.executable, ROOT / "tools" / "dist.py", "--outdir", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count(" works") == 2


def test_every_direct_dependency_has_a_lowest_version_and_a_pin():
    command = [sys.executable, ROOT / "tools" / "lowest_versions.py", "dev", "docs", "bench", "torch"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    pins = dict(line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().split())
    floors = dict(line.lower().split("==") for line in lines)
    assert {"numpy", "pytest", "ruff", "sphinx", "torch"} <= set(floors) <= set(pins)
    low = [name for name in floors if _numbers(pins[name]) < _numbers(floors[name])]
    assert not low


def _numbers(version):
    return [int(part) for part in re.findall(r"\d+", version)]


def test_pages_link_to_files_that_exist():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "tests" / "README.md"]
    assert len(pages) > 20
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
