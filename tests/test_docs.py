"""The documentation: it builds without a warning, and the blocks of the tutorial run."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from runpy import run_path

import matplotlib.pyplot as plt
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


WITH_OUTPUTS = sorted(page.stem for page in (ROOT / "docs").glob("*.md") if "```pycon" in page.read_text("utf-8"))


def test_the_first_pages_show_outputs():
    doors = {"howto-safety", "howto-validator", "howto-researcher", "howto-contributor"}
    assert {"index", "tutorial", "regions", "topology", "fairness"} | doors <= set(WITH_OUTPUTS)


@pytest.mark.parametrize("page", WITH_OUTPUTS)
def test_outputs_shown_on_pages_are_those_that_come(page, tmp_path, monkeypatch):
    """Blocks marked `pycon`, as one session; `...` stands for digits that depend on the machine."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    blocks = re.findall(r"```pycon\n(.*?)```", text, flags=re.S)
    session = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, f"{page}.md", 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    runner.run(session, out=said.append)
    assert runner.tries >= 5
    assert not runner.failures, "".join(said)
    assert page != "tutorial" or (tmp_path / "moons-report" / "report.html").exists()


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("robustness", "certify"),
        ("fairness", "fairness"),
        ("uncertainty", "linear_models"),
        ("verification", "events"),
        ("equivalence", "relational"),
        ("topology", "topology"),
        ("explanations", "unwrap"),
        ("recovery", "recover"),
    ],
)
def test_a_search_finds_the_guide(word, page):
    """The search of the built pages puts main entries of the index first, then titles; the home page names it too."""
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    entries = re.findall(r"```\{index\} (.*)", text)
    assert f"! {word}" in ", ".join(entries).lower()
    start = text.partition("\n## ")[0].lower()
    assert word.removesuffix("s").removesuffix("y") in re.sub(r"```\{index\}.*", "", start)
    others = [p.name for p in (ROOT / "docs").glob("*.md") if p.stem != page and f"! {word}" in p.read_text("utf-8")]
    assert not others, "one page is the main entry"


# Each capability with the guide that a user would open.
CAPABILITIES = {
    "regions": "regions",
    "complex": "regions",
    "topology": "topology",
    "slices": "topology",
    "layers": "layers",
    "lens": "lens",
    "recovery": "recover",
    "equivalence": "relational",
    "invariance": "invariance",
    "unwrap and merge": "unwrap",
    "linear models, outputs": "linear_models",
    "laws": "laws",
    "probability": "events",
    "sound": "sound",
    "rare": "rare",
    "certificates": "certify",
    "batch": "scale",
    "many cores": "scale",
    "report": "reading-a-report",
    "playground": "playground",
}


@pytest.mark.parametrize("page", sorted(set(CAPABILITIES.values())))
def test_every_capability_has_a_page_with_a_picture(page):
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    pictures = re.findall(r"!\[(.+?)\]\((images/[\w./-]+)\)", text)
    assert pictures
    for words, file in pictures:
        assert len(words.split()) >= 3, "a picture says what it shows to those who do not see it"
        assert (ROOT / "docs" / file).stat().st_size < 450_000
    assert re.search(rf"^(.+ <)?{page}>?$", (ROOT / "docs" / "index.md").read_text("utf-8"), flags=re.M)


def test_every_picture_of_the_guides_is_used():
    files = {
        f"images/{p.relative_to(ROOT / 'docs' / 'images').as_posix()}" for p in (ROOT / "docs" / "images").rglob("*.*")
    }
    used = set(re.findall(r"images/[\w./-]+", "".join(p.read_text("utf-8") for p in (ROOT / "docs").glob("*.md"))))
    assert files == used


def reference_names():
    """Names in the tables of the reference, each with a page of its own."""
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    return re.findall(r"^   (reluscope\.[\w.]+)$", text, flags=re.M)


def test_the_reference_lists_every_public_name_and_nothing_else():
    listed = reference_names()
    assert len(set(listed)) == len(listed)
    homes = [name.rpartition(".") for name in listed]
    gone = [".".join((home, name)) for home, _, name in homes if not hasattr(import_module(home), name)]
    assert not gone
    assert {f"reluscope.{name}" for name in rs.__all__} - set(listed) <= {"reluscope.__version__"}
    assert {f"reluscope.plot.{name}" for name in rs.plot.__all__} <= set(listed)
    assert {f"reluscope.lens.{name}" for name in rs.lens.__all__} <= set(listed)


@pytest.mark.parametrize(
    "folder", ["", "pictures_regions", "pictures_answers", "pictures_data", "pictures_layers", "pictures_lens"]
)
def test_the_examples_of_the_gallery_run(folder):
    scripts = sorted((ROOT / "docs" / "gallery" / folder).glob("*.py"))
    assert len(scripts) >= 6
    plt.switch_backend("agg")
    for script in scripts:
        try:
            run_path(str(script), run_name="__main__")
            assert plt.get_fignums(), f"{script.name} draws nothing"
        finally:
            plt.close("all")


def test_every_picture_has_an_example_in_the_gallery():
    examples = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs" / "gallery").glob("pictures_*/*.py")}
    assert {f"plot_{name}" for name in examples} == set(rs.plot.__all__)
    for name, text in examples.items():
        assert f"from reluscope.plot import plot_{name}\n" in text
        assert re.search(rf"^plot_{name}\(.*(ax|figure)=", text, flags=re.M | re.S), name


def test_the_plot_package_exports_every_picture():
    from inspect import isfunction

    for file in (ROOT / "src" / "reluscope" / "plot").glob("[a-z]*.py"):
        module = import_module(f"reluscope.plot.{file.stem}")
        own = {n for n, f in vars(module).items() if n.startswith("plot_") and isfunction(f)}
        for name in own:
            assert getattr(rs.plot, name) is getattr(module, name)


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


def test_the_page_of_benchmarks_takes_its_tables_from_the_guides():
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    taken = re.findall(r'\{include\} (\S+)\n((?::[\w-]+: ".*"\n)+)', text)
    assert len(taken) == text.count("{include}") > 10
    for file, options in taken:
        page = (ROOT / "docs" / file).read_text("utf-8")
        for words in re.findall(r': "(.*)"', options):
            assert words in page, f"{file} has no {words!r}"
            page = page.partition(words)[2] if "start" in options.partition(words)[0] else page
    for script in re.findall(r"`(benchmarks/\w+\.py|tools/\w+\.py)`", text):
        assert (ROOT / script).exists()


def test_measured_tables_have_a_date():
    """A section with a table and the command that measures it has a date; the page of benchmarks has the machine."""
    measures = re.compile(r"benchmarks/\w+\.py|tools/lens_\w+\.py|`reluscope reproduce \w+`")
    undated, sections = [], 0
    for page in (ROOT / "docs").glob("*.md"):
        if page.stem == "sources":  # it points to the pages that have the tables
            continue
        for section in re.split(r"^##+ ", page.read_text("utf-8"), flags=re.M)[1:]:
            if measures.search(section) and re.search(r"^\|", section, flags=re.M):
                sections += 1
                if not re.search(r"\d+ \w+ 20\d\d", section):
                    undated.append(f"{page.name}: {section.splitlines()[0]}")
    assert sections > 15
    assert not undated
    rows = re.findall(
        r"^\| \[.*\]\(#[\w-]+\) \|(.*)\|$", (ROOT / "docs" / "benchmarks.md").read_text("utf-8"), flags=re.M
    )
    assert len(rows) > 12
    for row in rows:
        command, date, machine = (cell.strip() for cell in row.split("|"))
        assert re.search(r"(benchmarks|tools)/\w+\.py", command), row
        assert re.search(r"\d+ \w+ 20\d\d$", date), row
        assert set(machine.split(", ")) <= {"Xeon", "EPYC", "Cloud", "not noted"}, row


def test_pages_link_to_files_that_exist():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "tests" / "README.md"]
    assert len(pages) > 20
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_map_of_the_tests_names_them_all():
    page = (ROOT / "tests" / "README.md").read_text()
    here = {p.name for p in (ROOT / "tests").iterdir() if p.suffix == ".py" or (p.is_dir() and p.name[0] not in "._")}
    assert {name for name in here if f"`{name}" not in page} == set()


def test_pages_for_contributors_name_files_that_exist():
    pages = [(ROOT / page).read_text() for page in ("CONTRIBUTING.md", "SECURITY.md", "tests/README.md")]
    named = re.compile(r"`((?:tests|docs|tools|src|benchmarks)/[\w./]+)`")
    paths = {path for page in pages for path in named.findall(page) if "NAME" not in path}
    assert len(paths) > 10
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def test_python_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    (matrix,) = re.findall(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "test.yml").read_text())
    assert re.findall(r"3\.\d+", matrix) == said and len(said) > 1
    assert project["requires-python"] == f">={said[0]}"
