"""The report: what is on the page, that it needs nothing else, and how it looks in a browser."""

from __future__ import annotations

import base64
import csv
import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import reluscope as rs
from browser import Browser
from colour_vision import differences
from nets import random_net
from reluscope.activations import leaky_relu
from reluscope.answer import Answer, Answers
from reluscope.budget import Budget
from reluscope.cli import main
from reluscope.events import output_intervals
from reluscope.reporting import output_laws, sections
from reluscope.reporting.blocks import Section, Table
from reluscope.reporting.charts import CATEGORIES, Chart, diverging, png, sequential
from reluscope.reporting.first_screen import Chance
from reluscope.reporting.images import inputs_as_images
from reluscope.reporting.levers import by_input, density, sensitivity, sweep
from reluscope.reporting.output_laws import decisions, numbers, supported
from reluscope.reporting.page import fingerprint
from reluscope.reporting.region_pictures import plane_of
from reluscope.reporting.subject import Subject
from reluscope.reporting.ways_on import playground_link, python_code
from reluscope.schema import Label

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def moons():
    return rs.example("moons")


@pytest.fixture(scope="module")
def report(moons):
    return rs.report(moons.network, moons.classes, events="y[0] > 0", title=HOSTILE, budget="20s", rng=0)


@pytest.fixture(scope="module")
def page(report) -> str:
    return report.html()


class Outline(HTMLParser):
    """Tags with their attributes, and whether every one is closed."""

    VOID = ("meta", "br", "rect", "path", "circle", "image", "link", "input")

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open and self.open[-1] == tag, f"</{tag}> closes <{self.open[-1:]}>"
            self.open.pop()


def outline(page: str) -> Outline:
    parsed = Outline()
    parsed.feed(page)
    assert parsed.open == []
    return parsed


def test_every_section_is_answered(report):
    assert [s.reason for s in report.sections] == [""] * len(report.sections)
    assert all(s.answer or s.ask for s in report.sections)
    assert {s.key for s in report.sections} >= {
        "events",
        "errors",
        "linear_models",
        "outputs",
        "regions",
        "units",
        "spectrum",
        "network",
    }
    assert "59 linear models" in report.summary[2]


def test_the_summary_says_what_the_answers_say(report, moons):
    facts = report.to_dict()["sections"]
    assert facts["linear_models"]["linear_models"] == rs.linear_models(moons.network, moons.law).support_size
    event = facts["events"]["events"][0]
    truth = rs.outputs(moons.network, moons.law).sf(0.0)
    assert event["lower"] <= float(truth) <= event["upper"]
    assert event["guarantee"] == "exact"


def test_error_rates_are_those_of_the_classes(report, moons):
    facts = report.to_dict()["sections"]["errors"]
    rng = np.random.default_rng(5)
    for truth, law, wrong in ((facts["value"][0], moons.classes[0], 1), (facts["value"][1], moons.classes[1], 0)):
        n = 200_000
        share = float(((moons.network(law.sample(n, rng))[:, 0] > 0) == wrong).mean())
        assert abs(share - truth) < 6 * np.sqrt(truth / n)  # false alarm below 1e-8
    assert facts["guarantee"] == "exact"


def test_error_rates_follow_the_output_that_decides():
    net = rs.Network([(np.eye(2), None), (-np.eye(2), None)])  # y = -relu(x): the smallest output is the largest input
    centres = np.array([[2.0, 0.0], [0.0, 2.0]])
    labels = np.repeat([0, 1], 200)
    X = centres[labels] + 0.3 * np.random.default_rng(0).normal(size=(400, 2))
    for decision, low, high in (("smallest", 0.0, 0.01), ("largest", 0.99, 1.0)):
        found = rs.report(net, X=X, y=labels, decision=decision, budget="3s", rng=0)
        section = next(s for s in found.sections if s.key == "errors")
        assert low <= section.facts["total"] <= high
        assert f"The {decision} output is not" in section.headline


def test_error_rates_from_labelled_rows():
    rng = np.random.default_rng(0)
    net = random_net((3, 6, 3), 4)
    X = rng.normal(size=(600, 3))
    y = np.array(["ash", "elm", "fir"])[net(X + 0.1 * rng.normal(size=X.shape)).argmax(axis=1)]
    report = rs.report(net, X=X, y=y, budget="20s")
    section = next(s for s in report.sections if s.key == "errors")
    table = next(b for b in section.blocks if getattr(b, "name", "") == "error_rates").columns
    wrong = np.array(["ash", "elm", "fir"])[net(X).argmax(axis=1)] != y
    assert table["class"] == ["ash", "elm", "fir"]
    assert table["on the data"] == pytest.approx([wrong[y == c].mean() for c in ("ash", "elm", "fir")])
    assert all(low <= v <= high for low, v, high in zip(table["lower"], table["value"], table["upper"], strict=True))
    two = rs.report(random_net((3, 6, 2), 4), X=X, y=y, budget="20s")  # three labels, two outputs: said, not guessed
    assert "2 outputs and the labels have 3 classes" in next(s for s in two.sections if s.key == "errors").answer


def test_the_page_needs_nothing_else(page):
    parsed = outline(page)
    names = {tag for tag, _ in parsed.tags}
    assert not names & {"link", "iframe", "object", "embed"}
    for tag, attributes in parsed.tags:
        for key in ("src", "href", "xlink:href"):
            value = attributes.get(key, "#")
            own = tag == "a" and value.startswith("http://127.0.0.1:8474/#")  # followed only if clicked
            assert own or value.startswith(("#", "data:image/png;base64,")), (tag, value)
        assert tag != "script" or set(attributes) <= {"type", "id"}
        assert not any(key.startswith("on") for key in attributes)
    assert "url(http" not in page
    assert "@import" not in page
    for word in ("fetch(", "XMLHttpRequest", "import(", "innerHTML", "eval("):
        assert word not in page


def test_a_hostile_title_stays_text(page):
    assert HOSTILE not in page
    assert html.escape(HOSTILE) in page


def test_hostile_feature_names_stay_text():
    net = random_net((2, 4, 1), 0)
    text = rs.report(net, feature_names=[HOSTILE, "b"], budget="20s").html()
    assert HOSTILE not in text
    assert text.count("<script") == 2  # the map and what draws it
    assert "&lt;script&gt;" in text
    assert "\\u003cscript>alert" in text  # in the map


def test_figures_have_labels_and_captions(page):
    figures = re.findall(r"<figure>(.*?)</figure>", page, flags=re.S)
    assert len(figures) >= 7
    for figure in figures:
        bars = "Sensitivity to each input" in figure  # the inputs' names say what is upright
        assert len(re.findall(r'class="label"[^>]*>[^<]+<', figure)) == (1 if bars else 2)
        assert re.search(r"<figcaption>[^<]{10,}</figcaption>", figure)


def test_files_lie_beside_the_page(report, tmp_path):
    names = report.save(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert sorted(names) == sorted(p.name for p in folder.iterdir())
    facts = json.loads((folder / "report.json").read_text())
    assert facts["sections"]["linear_models"]["guarantee"] == "exact"
    table = (folder / "linear_models.csv").read_text().splitlines()
    assert len(table) == 11
    assert table[0].startswith("probability,lower,upper")


def test_the_same_seed_gives_the_same_page(moons):
    def made() -> str:
        text = rs.report(moons.network, moons.law, budget="20s", rng=0).html()
        return re.sub(r"<tr><th>seconds</th>.*?</tr>", "", text)

    assert made() == made()


def test_without_a_law_the_default_is_named():
    net = random_net((2, 5, 2), 1)
    page = rs.report(net, budget="3s")
    assert 'class="reason" role="note">Assumed inputs: no law or data was given' in page.html()
    assert "Assumed inputs" in repr(page).splitlines()[1] and page.to_dict()["law_assumed"] is True


def test_a_box_means_uniform_inputs():
    net = random_net((2, 5, 2), 1)
    page = rs.report(net, box=([0, 0], [1, 2]), events="y[0] > y[1]", budget="5s", rng=0)
    assert "uniform on the box" in page.html() and not page.assumed
    found = page.to_dict()["sections"]["events"]["events"][0]
    asked = rs.probability(net, rs.Uniform([0.0, 0.0], [1.0, 2.0]), "y[0] > y[1]")
    assert found["value"] == pytest.approx(asked.value, abs=1e-9)


def test_events_and_decisions_say_the_same():
    """One number for one fact, and the share of the winner is what its event says, in many dimensions too."""
    example = rs.example("digits")
    page = rs.report(example.network, example.law, events="argmax != 3", budget="30s", rng=0)
    event = page.to_dict()["sections"]["events"]["events"][0]
    table = next(b for s in page.sections for b in s.blocks if getattr(b, "name", "") == "decisions")
    at = table.columns["largest output"].index("digit 3")
    assert table.columns["share"][at] == 1.0 - event["value"]
    assert table.columns["upper"][at] == 1.0 - event["lower"]
    assert "Assumed" not in table.caption  # the example says that the largest wins


def test_which_output_decides_is_said_or_asked_for_never_guessed():
    net = random_net((2, 6, 3), 5)
    law = rs.Gaussian([0.0, 0.0])

    def word(net, **asked):
        page = rs.report(net, law, budget="20s", rng=0, **asked)
        section = next(s for s in page.sections if s.key == "outputs")
        caption = next(b.caption for b in section.blocks if getattr(b, "name", "") == "decisions")
        return section.answer.split()[1], "Assumed" in caption

    assert word(net, events="argmin == 0") == ("largest", True)
    assert word(net, decision="smallest") == ("smallest", False)
    assert word(net.with_schema(rule="smallest")) == ("smallest", False)
    assert rs.example("controller").network.schema.rule == "smallest"
    with pytest.raises(rs.InputError, match="decision"):
        rs.report(net, law, decision="both")


def test_all_coefficients_lie_beside_the_page(tmp_path):
    net = random_net((3, 5, 2), 2)
    page = rs.report(net, rs.Gaussian(np.zeros(3)), budget="5s", rng=0)
    page.save(tmp_path)
    with (tmp_path / "coefficients.csv").open() as file:
        rows = list(csv.DictReader(file))
    top = rs.linear_models(net, rs.Gaussian(np.zeros(3)), rng=0).top(1)
    assert float(rows[0]["y[1]: x[2]"]) == pytest.approx(top.C[0, 1, 2], rel=1e-12)
    assert float(rows[0]["y[0]: constant"]) == pytest.approx(top.d[0, 0], rel=1e-12)
    assert len(rows[0]) == 3 + 2 * 4


def test_data_gives_the_law(tmp_path, capsys):
    net = random_net((2, 4, 1), 3)
    net.save(tmp_path / "net.npz")
    X = np.random.default_rng(0).normal(size=(200, 2))
    np.savetxt(tmp_path / "rows.csv", X, delimiter=",", header="width,height", comments="")
    out = tmp_path / "out"
    code = main(
        [
            "report",
            str(tmp_path / "net.npz"),
            "--data",
            str(tmp_path / "rows.csv"),
            "--budget",
            "20s",
            "--out",
            str(out),
        ]
    )
    assert code == 0
    assert "report.html" in capsys.readouterr().out
    text = (out / "report.html").read_text()
    assert "fitted to the 200 rows" in text
    assert "width" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"law": rs.Gaussian([0.0, 0.0, 0.0])}, "the law has 3 inputs but the network takes 2"),
        ({"X": [[1.0, 2.0, 3.0]]}, "X must have 2 columns"),
        ({"feature_names": ["a"]}, "feature_names must name the 2 inputs"),
        ({"budget": "soon"}, "budget must be like"),
        ({"rng": -1}, "rng"),
    ],
)
def test_bad_arguments(arguments, words):
    with pytest.raises(rs.InputError, match=words):
        rs.report(random_net((2, 3, 1), 0), **arguments)


def test_networks_of_one_input_and_of_constants():
    one = rs.report(random_net((1, 6, 1), 0), budget="20s")
    assert not any(s.reason for s in one.sections)
    flat = rs.Network([(np.zeros((3, 2)), np.zeros(3)), (np.ones((1, 3)), np.zeros(1))], activation="relu")
    assert not any(s.reason for s in rs.report(flat, budget="20s").sections)


def test_fingerprint_depends_on_every_weight():
    net = random_net((2, 4, 1), 0)
    known = fingerprint(net)
    assert known == fingerprint(random_net((2, 4, 1), 0))
    seen = {known}
    for k, layer in enumerate(net.layers):
        for part in (layer.dense(), layer.bias):
            for spot in np.ndindex(part.shape):  # one number changed, by as little as there is
                layers = [(np.array(one.dense()), np.array(one.bias)) for one in net.layers]
                changed = layers[k][0 if part.ndim == 2 else 1]
                changed[spot] = np.nextafter(changed[spot], np.inf)
                seen.add(fingerprint(rs.Network(layers)))
    assert len(seen) == 1 + (2 * 4 + 4) + (4 + 1)
    leaky = rs.Network([(one.dense(), one.bias) for one in net.layers], activation=leaky_relu(0.1))
    assert fingerprint(leaky) not in seen


# -- charts ---------------------------------------------------------------------------------------------------------


def test_png_is_read_back_by_another_reader(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    (tmp_path / "a.png").write_bytes(png(pixels))
    assert np.array_equal(np.rint(255 * image.imread(tmp_path / "a.png")[..., :3]).astype(np.uint8), pixels)


def test_colour_scales():
    assert diverging(np.array([-2.0, 0.0, 2.0])).tolist() == [[33, 102, 172], [247, 247, 247], [178, 24, 43]]
    assert sequential(np.array([0.0, 1.0, np.nan])).tolist() == [[68, 1, 84], [253, 231, 37], [68, 1, 84]]


def test_colours_differ_for_all_eyes():
    apart = differences(CATEGORIES)[np.triu_indices(10, 1)]
    assert apart.min() >= 20  # any two outputs may be neighbours on a map
    for scale in (diverging(np.linspace(-1, 1, 5)), sequential(np.linspace(0, 1, 5))):
        assert np.diag(differences(scale), 1).min() >= 10
    style = files("reluscope.reporting").joinpath("page.html").read_text()
    for theme in re.findall(r"--c1: (#\w+); --c2: (#\w+); --c3: (#\w+);", style):
        colours = [[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in theme]
        assert differences(colours)[np.triu_indices(3, 1)].min() >= 10
    # What the simulation is worth: red and green of equal lightness are one to eyes without medium cones.
    assert differences([[197, 90, 17], [110, 125, 20]])[0, 1] < 10


@pytest.mark.parametrize("file", ["reporting/page.html", "playground/static/page.css"])
def test_words_stand_out_from_the_paper(file):
    style = files("reluscope").joinpath(*file.split("/")).read_text()
    themes = [
        dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", style, flags=re.S)
    ]
    assert len(themes) == 2

    def light(colour):
        full = colour if len(colour) == 7 else "#" + "".join(2 * c for c in colour[1:])
        c = np.array([int(full[k : k + 2], 16) for k in (1, 3, 5)]) / 255
        return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722] + 0.05

    for theme in themes:
        for ground in ("paper", "panel"):
            for ink in {"ink", "soft", "exact", "sound", "confidence", "estimate"} & theme.keys():
                ends = sorted([light(theme[ground]), light(theme[ink])])
                assert ends[1] / ends[0] >= 4.5, (ground, ink)  # what WCAG asks of small text


def test_logarithmic_axes_have_powers():
    chart = Chart((-9.0, 0.0), (0.0, 4.0), x_label="x", y_label="y", x_powers=True, y_powers=True)
    ticks = re.findall(r'class="tick"[^>]*>([^<]+)<', chart.svg())
    assert ticks == ["10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²", "10⁰", "10⁰", "10¹", "10²", "10³", "10⁴"]
    short = Chart((-0.6, 0.6), (0.0, 1.0), x_label="x", y_label="y", x_powers=True)
    assert re.findall(r'class="tick"[^>]*>([^<]+)<', short.svg())[:3] == ["0.5", "1", "2"]


def test_tables_that_scroll_can_be_reached(page):
    tables = [a for tag, a in outline(page).tags if tag == "div" and a.get("class") == "scroll"]
    assert len(tables) >= 5
    for attributes in tables:
        assert attributes["tabindex"] == "0"
        assert attributes["role"] == "region"
        assert len(attributes["aria-label"]) > 5


def test_chart_places_data_where_the_ticks_say():
    chart = Chart((0, 10), (0, 1), x_label="a & b", y_label="c")
    chart.dots([5.0], [0.5])
    svg = chart.svg()
    at = {
        float(t): float(x)
        for x, t in re.findall(r'class="tick" x="([\d.]+)" y="\d+" text-anchor="middle">([^<]+)<', svg)
    }
    x = float(re.search(r'cx="([\d.]+)"', svg)[1])
    assert x == pytest.approx(at[4.0] / 2 + at[6.0] / 2, abs=0.2)
    assert "a &amp; b" in svg


def test_the_last_tick_stays_inside_the_picture():
    chart = Chart((0.0161, 0.026), (0, 1), x_label="a", y_label="b")
    ticks = re.findall(r'class="tick" x="([\d.]+)"[^>]*text-anchor="middle">([^<]+)<', chart.svg())
    assert ticks[-1][1] == "0.026"
    for at, word in ticks:  # 12.8 pixels to a digit, on a phone and in print
        assert float(at) + 0.5 * 12.8 * len(word) <= 620.0


@pytest.mark.parametrize("span", [(0.0, 0.0), (np.nan, 1.0), (-np.inf, np.inf), (1e300, 1e300), (1.0, 1.0 + 1e-15)])
def test_empty_ranges_still_draw(span):
    chart = Chart(span, span, x_label="x", y_label="y")
    chart.line([0, 1], [0, 1])
    outline(chart.svg())


# -- in a browser ---------------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

MEASURE = """
<script>
window.onerror = e => document.title = 'error ' + e;
addEventListener('load', () => {
  const frame = document.querySelector('iframe'), page = frame.contentDocument, found = [];
  page.querySelectorAll('details').forEach(d => { d.open = true; });
  const wide = page.documentElement.scrollWidth - frame.clientWidth;
  if (wide > 0) found.push('the page is ' + wide + ' px too wide');
  const hit = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const overlaps = (list, what) => list.forEach((a, i) => list.slice(i + 1).forEach(b => {
    const p = a.getBoundingClientRect(), q = b.getBoundingClientRect();
    if (hit(p, q)) found.push(what + ': ' + a.textContent.slice(0, 30) + ' | ' + b.textContent.slice(0, 30));
  }));
  page.querySelectorAll('svg').forEach(s => overlaps([...s.querySelectorAll('text')], 'words overlap'));
  page.querySelectorAll('section').forEach(s => overlaps([...s.children], 'blocks overlap'));
  page.querySelectorAll('svg').forEach(s => {
    const box = s.getBoundingClientRect();
    s.querySelectorAll('text').forEach(t => {
      const r = t.getBoundingClientRect();
      const size = parseFloat(page.defaultView.getComputedStyle(t).fontSize) * box.width / s.viewBox.baseVal.width;
      if (size < 11) found.push('too small: ' + t.textContent + ' at ' + size.toFixed(1) + ' px');
      if (r.left < box.left - 1 || r.right > box.right + 1) found.push('cut off: ' + t.textContent);
    });
  });
  document.title = 'checked ' + JSON.stringify(found);
});
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overlaps_in_a_browser(page, tmp_path, width):
    frame = f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(page, quote=True)}"></iframe>'
    (tmp_path / "frame.html").write_text(frame + MEASURE)
    done = browse(tmp_path, tmp_path / "frame.html")
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None, done.stderr[-2000:]
    assert html.unescape(title[1]) == "checked []"
    assert "CONSOLE" not in done.stderr


def browse(folder: Path, file: Path) -> subprocess.CompletedProcess:
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=8000 --dump-dom"
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={folder / 'profile'}", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_lines_answer_where_enumeration_does_not_finish():
    # 200 planes cut space into more than a million cells: not in a fifth of a second.
    law, net = rs.Gaussian(np.zeros(3), 1.0), random_net((3, 200, 200, 1), 0)
    subject = Subject(net, law, "given", budget=Budget(seconds=1.0))
    assert subject.outputs().guarantee == "confidence"
    assert np.isfinite(subject.outputs().mean.upper).all()
    assert subject.linear_models().guarantee == "confidence"


# -- under the first screen -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian", "mixture", "uniform"])
def test_sensitivity_is_that_of_the_moved_law(kind, moons):
    net = moons.network
    law = {
        "gaussian": rs.Gaussian([0.2, -0.1], [[0.5, 0.2], [0.2, 0.3]]),
        "mixture": rs.GaussianMixture([0.3, 0.7], [rs.Gaussian([1.0, 0.0], 0.2), rs.Gaussian([-0.5, 0.4], 0.4)]),
        "uniform": rs.Uniform([-1.0, -0.5], [1.0, 1.5]),
    }[kind]
    by_mean, by_spread = by_input(law, rs.sensitivity(net, law, "y[0] > 0.1"))
    sd, h = np.sqrt(law.variance), 1e-4
    for i in range(2):
        unit = np.eye(2)[i]
        moved = [rs.probability(net, law.move(mean=law.mean + s * h * sd * unit), "y[0] > 0.1").value for s in (1, -1)]
        wider = [rs.probability(net, law.move(scale=np.exp(s * h * unit)), "y[0] > 0.1").value for s in (1, -1)]
        assert by_mean[i] == pytest.approx((moved[0] - moved[1]) / (2 * h), abs=1e-5)
        assert by_spread[i] == pytest.approx((wider[0] - wider[1]) / (2 * h), abs=1e-5)
    assert np.abs(by_mean).max() > 0.01 and np.abs(by_spread).max() > 0.01


def test_the_sweep_is_the_law_stretched(report, moons):
    found = next(s for s in report.sections if s.key == "sweep")
    table = next(b for b in found.blocks if getattr(b, "name", "") == "sweep").columns
    for k in (0, 4, 8):
        law = moons.law.move(scale=np.full(2, table["factor"][k]))
        p = rs.probability(moons.network, law, "y[0] > 0").value
        wide = 1e-9 if table["guarantee"][k] == "exact" else 0.03  # where the machine had no time for all regions
        assert table["probability"][k] == pytest.approx(p, abs=wide)
        assert table["upper"][k] - table["lower"][k] < 2 * wide


def test_the_filled_part_of_the_density_has_the_probability(report, moons):
    found = next(s for s in report.sections if s.key == "density").blocks[0].svg
    areas = []
    for shape in ("band c2 full", "line ink"):
        path = re.search(rf'class="{shape}" d="M([^"Z]+)', found)[1]
        x, y = np.array([[float(v) for v in p.split()] for p in path.split("L")]).T
        areas.append(abs(np.trapezoid(np.append(y, y[0]), np.append(x, x[0]))) if "band" in shape else (x, y))
    x, y = areas[1]
    whole = np.trapezoid(y.max() - y, x)
    p = rs.probability(moons.network, moons.law, "y[0] > 0").value
    assert areas[0] / whole == pytest.approx(p, abs=0.01)  # 0.2 % are single values


def test_the_margin_is_positive_where_the_event_holds():
    net = random_net((3, 6, 3), 4)
    for text in ("argmax == 1", "argmax != 1", "y[0] > y[1] and x[0] < 0.3"):
        subject = Subject(net, rs.Gaussian(np.zeros(3)), "", events=(text,), budget=Budget(seconds=10.0))
        section = density(subject)
        assert section.title == "How far inputs are from the event"
        bars = re.findall(
            r'class="bar (soft|c2 full)" x="([\d.]+)" y="[\d.-]+" width="([\d.]+)" height="([\d.]+)"',
            section.blocks[0].svg,
        )
        zero = float(re.search(r'class="line ink" d="M([\d.]+) ', section.blocks[0].svg)[1])
        area = {"outside": 0.0, "inside": 0.0}
        for kind, x, wide, high in bars:
            if kind == "c2 full":
                area["inside" if float(x) + float(wide) > zero - 0.1 else "outside"] += float(high)
        assert area["outside"] == 0.0 < area["inside"]


def test_events_on_one_output_as_intervals():
    def of(text, output=0):
        return output_intervals(rs.event(text, 2, 2), output)

    assert of("y[0] > 1") == [(1.0, np.inf)]
    assert of("abs(y[0]) < 2 or y[0] >= 1.5") == [(-2.0, np.inf)]
    assert of("|y0| > 1 and y0 < 3") == [(-np.inf, -1.0), (1.0, 3.0)]
    assert of("2*y[1] <= 1", 1) == [(-np.inf, 0.5)]
    assert of("y[0] > 1 and y[0] < 0") == []
    for other in ("y[0] > y[1]", "y[0] > 0 and x[0] < 1", "J[0,0] > 0"):
        assert of(other) is None


def test_the_python_of_a_report_gives_its_number(report, moons, tmp_path, monkeypatch):
    report.save(tmp_path)
    moons.network.save(tmp_path / "moons.npz")
    monkeypatch.chdir(tmp_path)
    assert "net = rs.example('moons').network\n" in report.python
    read = "json.loads(__import__('pathlib').Path('report.json').read_text())"
    truth = rs.probability(moons.network, moons.law, "y[0] > 0").value
    models = next(s for s in report.sections if s.key == "linear_models").facts
    for opened in ("rs.example('moons').network", "rs.load('moons.npz')"):
        scope: dict = {}
        code = report.python.replace("rs.example('moons').network", opened)
        exec(code.replace("json.load(open('report.json'))", read), scope)
        assert scope["answer"].value == pytest.approx(truth, rel=1e-12)
        assert scope["models"].support_size == models["linear_models"]
        assert scope["models"].masses.value[0] == pytest.approx(models["top_mass"], rel=1e-12)


def test_the_python_names_inputs_only_where_the_event_does():
    net = random_net((3, 4, 1), 0)
    for event, named in (("y[0] > 0", False), ("y[0] > 0 and ash > 1", True)):
        subject = Subject(
            net, rs.Gaussian(np.zeros(3)), "", names=("ash", "elm", "fir"), events=(event,), budget=Budget(seconds=5.0)
        )
        subject.probability(event, 1.0)
        code = python_code(subject)
        assert ("names=['ash', 'elm', 'fir']" in code) == named
        assert "linear_models" not in code  # which this page does not show


def opened_by(link: str) -> dict:
    """What a link to the playground says."""
    text = link.partition("#")[2]
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def test_the_playground_opens_with_the_network_the_law_and_the_event(moons):
    given = {"events": ("y[0] > 0",), "budget": Budget(seconds=5.0)}
    own = playground_link(Subject(moons.network, moons.law, "", **given))
    assert opened_by(own.address) == {"network": "example-moons", "title": "moons", "event": "y[0] > 0"}
    assert own.command == "reluscope playground" and "the same" in own.law
    moved = playground_link(Subject(moons.network, moons.law.move(mean=[1.0, 2.0]), "", **given), "moons.npz")
    state = opened_by(moved.address)
    assert state["network"] == f"net-{fingerprint(moons.network)[:24]}" and moved.command.endswith(" moons.npz")
    assert [state["at"]["0"], state["at"]["1"]] == pytest.approx([1.0, 2.0])
    assert "independent Gaussians" in moved.law
    many = playground_link(Subject(random_net((80, 4, 1), 0), rs.Gaussian(np.ones(80)), "", **given))
    several = Subject(random_net((3, 4, 3), 0), rs.Gaussian(np.ones(3)), "", decision="smallest", **given)
    assert opened_by(playground_link(several).address)["colour"] == "smallest"
    assert "at" not in opened_by(many.address) and "standard normal" in many.law and "held at 0" in many.law


def test_with_data_there_are_three_pictures():
    X = np.random.default_rng(0).normal(size=(300, 3))
    net = random_net((3, 6, 1), 2)
    made = rs.report(net, X=X, y=net(X)[:, 0], events="y[0] > 0", budget="10s", rng=0)
    blocks = [b.caption for b in next(s for s in made.sections if s.key == "local").blocks if hasattr(b, "svg")]
    assert all(
        words in text for words, text in zip(("variance", "coefficients", "input by input"), blocks, strict=True)
    )
    row = int(np.flatnonzero(net(X)[:, 0] > 0)[0])
    assert f"row {row}," in blocks[2] and f"to {net(X[row])[0]:.3g}," in blocks[2]


@pytest.mark.skipif(CHROMIUM is None or os.name != "posix", reason="needs Chromium")
def test_the_map_can_be_pointed_at_zoomed_and_cut(report, moons, tmp_path):
    report.save(tmp_path / "page")
    found = Browser(tmp_path / "profile", (tmp_path / "page").as_uri())
    try:
        found.size(1280, 900)
        found.ask("Page.navigate", url=(tmp_path / "page" / "report.html").as_uri())
        found.until("document.readyState === 'complete' && !document.querySelector('#scene-box').hidden")
        spots = {}
        for across, down in ((0.3, 0.3), (0.7, 0.6)):
            x, y = found.place("#scene", across, down)
            found.mouse("mouseMoved", x - 1, y)
            found.mouse("mouseMoved", x, y)
            lines = found.see(
                "[...document.querySelector('#scene-tip').children].map(e => e.textContent.replaceAll('−', '-'))"
            )
            at = [float(v) for v in re.findall(r"= (-?[0-9.]+)", lines[0])]
            assert float(lines[1].split(" = ")[1]) == pytest.approx(moons.network(at)[0], abs=0.02)
            spots[across] = at
        found.click("#scene-in")
        x, y = found.place("#scene", 0.3, 0.3)
        found.mouse("mouseMoved", x - 1, y)
        found.mouse("mouseMoved", x, y)
        at = re.findall(r"= (-?[0-9.]+)", found.text("#scene-tip").replace("−", "-"))
        assert abs(float(at[0]) - spots[0.7][0]) < abs(spots[0.3][0] - spots[0.7][0])
        counts = []
        for k in (0, 1, 2):
            found.see(f"document.querySelector('#scene-layers').value = {k}")
            found.see("document.querySelector('#scene-layers').dispatchEvent(new Event('input'))")
            found.until(f"document.querySelector('#scene-text').textContent.includes('after {k + 1} hidden layer')")
            counts.append(int(found.text("#scene-text").split()[0]))
        assert counts == sorted(counts) and counts[0] < counts[2]
        assert re.fullmatch(r"y\[0\] −[\d.]+ +[\d.]+", found.text("#scene-legend").strip())
        assert found.text("#scene-depth") == "3 of 3"
        assert not found.problems
    finally:
        found.close()


# -- the first screen ------------------------------------------------------------------------------------------------


def test_the_first_screen_says_what_where_and_how_likely(report):
    page = report.html()
    first = page[page.index('<div class="first">') : page.index('<div class="summary">')]
    at = [first.index(f"<h2>{word}</h2>") for word in ("What", "Where", "How likely")]
    assert at == sorted(at)
    chance = report.screen.chances[0]
    assert chance.guarantee == "exact" and chance.event == "y[0] > 0" and chance.words == "The decision is “class 1”."
    assert chance.parts == ("", "48.4\N{NO-BREAK SPACE}%") and chance.parts[1] in first
    assert re.fullmatch(r"known to within 1e−\d\d", chance.interval) and chance.interval in first
    shares = re.findall(r'<th scope="row">([^<]+)</th>.*?<td class="n">([^<]+)</td>', first)
    assert shares == [("class 1", "48.4 %"), ("class 0", "51.6 %")]
    assert "Law (distribution) of the inputs: a mixture of 6 Gaussians (2 inputs)." in first
    assert "stripes: y[0]\N{NO-BREAK SPACE}&gt;\N{NO-BREAK SPACE}0" in first and "ellipses" in first
    assert len(page) < 600_000


def test_the_map_goes_through_the_event_in_many_dimensions():
    net = random_net((7, 12, 3), 3)
    law = rs.Gaussian(np.zeros(7), np.diag(np.linspace(0.005, 0.02, 7)))
    subject = Subject(net, law, "", events=("argmax != argmax at mean",), budget=Budget(seconds=10.0))
    view, nearest = plane_of(subject), subject.nearest()
    np.testing.assert_allclose(view.points(np.array([[nearest.distance, 0.0]]))[0], nearest.x, atol=1e-9)
    lengths = view.directions @ np.linalg.inv(np.asarray(law.cov)) @ view.directions.T
    np.testing.assert_allclose(lengths, np.eye(2), atol=1e-9)  # circles are standard deviations
    assert (
        view.through_event
        and "towards the event" in rs.report(net, law, events="argmax != argmax at mean", budget="10s", rng=0).html()
    )


def test_events_about_the_decision_are_said_in_words():
    from reluscope.reporting.first_screen import event_words

    named = rs.example("controller")
    plain = rs.Network(named.network.layers)

    def said(net, text):
        return event_words(Subject(net, named.law, ""), text)

    assert said(named.network, "argmin == 0") == "The decision is “clear”."
    assert said(named.network, "argmin != 3") == "The decision is not “strong left”."
    assert said(named.network, "argmax == 0") == "The largest output is “clear”."  # the smallest one decides
    assert said(named.network, "argmin != argmin at mean") == "The decision is not the one at the mean."
    assert said(plain, "argmax == 2") == "The largest output is “y[2]”."  # that it decides is assumed
    for other in ("y[0] > 1", "argmax == 9", "argmin == 0 and x[0] > 0", "argmax == argmin at mean"):
        assert said(plain, other) == ""
    circles = rs.example("cocircles")
    subject = Subject(circles.network, circles.law, "", events=("y[0] > 0",))
    assert event_words(subject, "y[0] > 0") == "The decision is “inner circle”."
    assert event_words(subject, "y[0] > 1") == ""


def test_the_number_on_the_first_screen_lies_in_its_interval():
    """Of an interval that three digits cannot show, more digits are shown, of the number and of both ends."""
    from reluscope.answer import Answer
    from reluscope.reporting.first_screen import chances

    for value, lower, upper, number, interval in (
        (0.1297, 0.12964, 0.12976, "12.97 %", "between 12.96 % and 12.98 %"),
        (0.0785, 0.0779, 0.0791, "7.85 %", "between 7.79 % and 7.91 %"),
        (0.0, 0.0, 0.00502, "at most 0.502 %", "between 0 % and 0.502 %"),
        (0.5, 0.5, 0.5, "50 %", "no rounding error"),
        (0.0, 0.0, 0.0, "0 %", "it cannot happen"),
    ):
        subject = Subject(random_net((2, 4, 1), 0), rs.Gaussian([0.0, 0.0]), "", events=("y[0] > 1",))
        subject.cache["events"] = {"y[0] > 1": Answer(value, lower, upper, "sound")}
        (chance,) = chances(subject)
        assert (chance.number, chance.interval) == (number, interval)
    assert Chance("", "at most 0.502 %", "", "sound").parts == ("at most", "0.502\N{NO-BREAK SPACE}%")


def test_the_map_shows_only_inputs_that_can_happen():
    """A uniform law ends at its box: what the network does beyond it must not look as if it could happen."""
    net = random_net((5, 8, 3), 3)
    lower, upper = np.array([0.6, -0.5, -0.5, 0.45, -0.5]), np.array([0.68, 0.5, 0.5, 0.5, -0.45])
    subject = Subject(net, rs.Uniform(lower, upper), "", events=("argmax == 0",), budget=Budget(seconds=10.0))
    view = plane_of(subject)
    corners = view.points(np.array([view.lower, view.upper]))
    assert (corners >= lower - 1e-12).all() and (corners <= upper + 1e-12).all()
    i, j = view.inputs
    assert corners[:, i].tolist() == [lower[i], upper[i]] and corners[:, j].tolist() == [lower[j], upper[j]]
    assert [str(label) for label in view.labels] == [f"x[{i}]", f"x[{j}]"]
    x = rs.Uniform(lower, upper).sample(40_000, rng=1)
    inside = net(x).argmax(axis=1) == 0
    assert 1000 < inside.sum() < 39_000
    apart = np.abs(x[inside].mean(axis=0) - x[~inside].mean(axis=0)) / x.std(axis=0)
    assert {i, j} == set(np.argsort(-apart)[:2].tolist())
    np.testing.assert_allclose(view.net([view.lower])[0], net(corners[:1])[0], atol=1e-12)


def test_columns_of_brackets_have_the_digits_they_support():
    from reluscope.reporting.blocks import Table

    wide = Table(
        "t", "", {"event": ["a", "b"], "p": [0.0785071, 0.5], "lower": [0.077981, 0.5], "upper": [0.079036, 0.5]}
    )
    assert wide.heads == ["event", "p", "lower", "upper"]
    assert wide.rows() == [["a", "0.07851", "0.07798", "0.07904"], ["b", "0.5", "0.5", "0.5"]]
    narrow = Table("t", "", {"p": [0.1 + 1e-14], "lower": [0.1], "upper": [0.1 + 2e-14], "n": [3]})
    assert narrow.heads == ["p", "n"] and narrow.rows() == [["0.1", "3"]]
    assert list(narrow.columns) == ["p", "lower", "upper", "n"]  # the file beside the page has them all


def test_inputs_of_image_networks_are_shown_as_images():
    from reluscope.reporting.images import image_shape

    digits = rs.example("digits")
    found = rs.report(digits.network, digits.law, events=list(digits.events), budget="30s", rng=0)
    assert found.screen.images is not None
    page = found.html()
    assert page.count('<img width="84" height="84"') == 3
    assert "images of 8 × 8 pixels" in found.screen.images.caption
    shapes = {(1, 28, 28): (28, 28, 1, False), (3, 32, 32): (32, 32, 3, True), (32, 30, 3): (32, 30, 3, False)}
    shapes |= {(784, 1): (28, 28, 1, False), (9,): None, (5, 30): None, (50,): None}
    for shape, wanted in shapes.items():
        net = rs.Network([(np.zeros((1, int(np.prod(shape)))), None)], input_shape=shape)
        assert image_shape(net) == wanted


def test_rows_of_pixels_are_shown_as_images_though_their_columns_have_numbers():
    from reluscope.reporting.images import pixels_of

    rng = np.random.default_rng(0)
    net, X = rs.example("digits").network, rng.uniform(0, 1, (100, 64))
    subject = Subject(net, rs.Gaussian(np.zeros(64)), "", X=X, names=tuple(f"p{i}" for i in range(64)))
    assert pixels_of(subject) == (8, 8, 1, False)
    assert pixels_of(Subject(net, rs.Gaussian(np.zeros(64)), "", names=("age", *map(str, range(63))))) is None
    page = rs.report(net, X=X, events="argmax == 3", feature_names=subject.names, budget="10s", rng=0)
    figures = [b for b in next(s for s in page.sections if s.key == "local").blocks if hasattr(b, "svg")]
    assert len(figures) == 1 and figures[0].svg.count("<img") == 3 and "digit 3" in figures[0].caption
    told = page.to_dict()["sections"]["local"]["answer"]
    assert told.startswith("The 100 rows lie in")


def test_what_was_not_asked_is_offered_not_shown_empty():
    page = rs.report(random_net((2, 4, 2), 1), rs.Gaussian([0.0, 0.0]), budget="5s", rng=0)
    text = html.unescape(page.html())
    assert "You could also ask" in text and 'id="events"' not in text and 'id="local"' not in text
    assert 'events=["y[0] > 1"]' in text


def test_classes_have_their_names():
    net = random_net((2, 6, 3), 2).with_schema(outputs=["left", "ahead", "right"], decision="turn")
    page = rs.report(net, rs.Gaussian([0.0, 0.0]), events="turn == left", budget="5s", rng=0)
    table = next(b for s in page.sections for b in s.blocks if getattr(b, "name", "") == "decisions")
    assert set(table.columns["largest output"]) == {"left", "ahead", "right"}


def test_with_data_the_rows_come_first():
    net = random_net((3, 5, 1), 1)
    X = np.random.default_rng(0).normal(size=(200, 3))
    page = rs.report(net, X=X, events="y[0] > 0", budget="5s", rng=0)
    share = f"{float((net(X)[:, 0] > 0).mean()):.3g}"
    chance, section = page.screen.chances[0], next(s for s in page.sections if s.key == "events")
    assert float(chance.on_data[:-2]) / 100 == pytest.approx(float(share), abs=1e-3)
    assert section.answer.startswith(f"y[0] > 0 holds for {chance.on_data} of the rows given; under the law")
    assert not chance.differs
    off = rs.report(net, rs.Gaussian(np.full(3, 3.0)), X=X, events="y[0] > 0", budget="5s", rng=0)
    assert off.screen.chances[0].differs and "the law does not match the data" in off.html()
    assert list(section.blocks[0].columns)[:3] == ["event", "on the data", "probability"]


def test_what_there_was_no_time_for_is_one_sentence(monkeypatch):
    """Sections without time are named in one place by their titles, not shown one by one as empty ones."""
    moons = rs.example("moons")
    monkeypatch.setattr(Budget, "spent", lambda self, done=0: True)
    page = rs.report(moons.network, moons.law, events="y[0] > 0", budget="5s", rng=0)
    late = [s for s in page.sections if s.late]
    not_asked = {"errors", "outcome", "local"}  # no rows, no classes: nothing that more time would show
    assert {s.key for s in page.sections} - {s.key for s in late} == {"network"} | not_asked
    text = page.html()
    assert text.count('class="reason"') == 1 and "“Which linear models it applies”, “What comes out”" in text
    assert 'id="linear_models"' not in text and 'href="#linear_models"' not in text


def test_keys_and_titles_of_sections_are_those_of_the_page(report):
    from reluscope.reporting.page import _SECTIONS

    assert [(s.key, s.title) for s in report.sections] == [(key, title) for key, title, _ in _SECTIONS]


def test_a_law_of_thousands_of_components_leaves_time_for_the_rest():
    """Lines visit every component of a law, however short their budget is."""
    rng = np.random.default_rng(0)
    net = random_net((5, 8, 2), 3)
    law = rs.GaussianMixture(np.full(1200, 1 / 1200), [rs.Gaussian(m, 0.1) for m in rng.normal(size=(1200, 5))])
    subject = Subject(net, law, "given", events=("y[0] > 0",), budget=Budget(seconds=5.0))
    assert subject.too_large == "the law has 1,200 components"
    with pytest.raises(rs.InputError, match="1,200 components, too many"):
        subject.linear_models()
    with pytest.raises(rs.InputError, match="1,200 components, too many"):
        sensitivity(subject)


def test_the_map_of_an_event_that_holds_at_the_mean_goes_to_its_edge():
    net = random_net((4, 8, 3), 2)
    law = rs.Gaussian(np.zeros(4), 0.01)
    page = rs.report(net, law, events="argmax == argmax at mean", budget="10s", rng=0)
    where = page.screen.where
    assert "the nearest known input outside of the event" in where.caption and "out of the event" in where.svg
    assert "dot: " in where.caption and "holds nowhere" not in where.caption


def test_an_event_near_the_mean_need_not_hold_there():
    """The nearest input of the event is a tenth of a standard deviation away; the mean is not in the event."""
    first = np.zeros((1, 49))
    first[0, 24] = 1.0
    net = rs.Network([(first, [0.0]), ([[1.0]], [0.0])])
    given = {"budget": Budget(seconds=20.0)}
    near = Subject(net, rs.Gaussian(np.zeros(49), 1.0), "", events=("y[0] > 0.1",), **given)
    assert 0.0 < near.nearest().distance < 0.2 and near.beyond() is None
    assert "the mean, an input in the event, and" in inputs_as_images(near).caption
    there = Subject(net, rs.Gaussian(np.ones(49), 1.0), "", events=("y[0] > 0.1",), **given)
    assert there.beyond() is not None and there.beyond().x[24] <= 0.1
    assert "the mean, which is in the event, an input outside of it, and" in inputs_as_images(there).caption


def test_marks_on_maps_are_dark_in_dark_mode_too(report):
    """Maps have light colours in both modes, so ellipses and dots on them must not follow the colour of the text."""
    where = report.screen.where.svg
    assert 'class="line mark"' in where and 'class="dot mark"' in where and ' ink"' not in where
    assert "svg .mark { --k: #10151d; }" in report.html()


def test_one_section_leaves_time_for_the_others(monkeypatch):
    from reluscope.reporting import page
    from reluscope.threads import look

    def endless(subject):
        while True:
            look()

    table = [(key, title, endless if key == "errors" else section) for key, title, section in page._SECTIONS]
    monkeypatch.setattr(page, "_SECTIONS", tuple(table))
    monkeypatch.setattr(page, "_OWN", 0.1)
    monkeypatch.setattr(page, "_LEAST_OWN", 2.0)
    found = rs.report(random_net((2, 4, 1), 1), rs.Gaussian([0.0, 0.0]), budget="20s", rng=0)
    assert [s.key for s in found.sections if s.late] == ["errors"]


def test_notebooks_show_regions_linear_models_and_reports():
    moons = rs.example("moons")
    regions = rs.regions(moons.network, box=(-1, 1))
    shown = regions._repr_html_()
    assert "25 regions" in shown and shown.count("<tr>") == 11 and f"{regions.d[0, 0]:.6g}" in shown
    models = rs.linear_models(moons.network, moons.law)
    assert models._repr_html_().count("<tr>") == 11 and "all others together: at most" in models.top(3)._repr_html_()
    assert models.top(3)._repr_html_().count("<tr>") == 4 and "0.291989" in models.top(1)._repr_html_()
    page = rs.report(moons.network, moons.law, events="y[0] > 5", title=HOSTILE, budget="10s", rng=0)
    assert "<script>" not in page._repr_html_() and html.escape(page.summary[0]) in page._repr_html_()
    assert "save(folder)" in page._repr_html_()


def test_the_events_have_the_guarantee_asked_for(tmp_path, capsys):
    net, law = random_net((4, 6, 2), 2), rs.Gaussian(np.zeros(4))
    event = "y[0] > y[1] + 30"
    page = rs.report(net, law, events=[event], guarantee="sound", budget="3s", rng=0)
    found = next(s for s in page.sections if s.key == "events")
    assert found.facts["events"][0]["guarantee"] == "sound" and found.guarantee == "sound"
    drawn = rs.report(net, law, events=[event], guarantee="confidence", budget="3s", rng=0)
    assert next(s for s in drawn.sections if s.key == "events").guarantee == "confidence"
    with pytest.raises(rs.errors.InputError, match="guarantee must be"):
        rs.report(net, law, events=[event], guarantee="certain")


# -- what the page says ----------------------------------------------------------------------------------------------


def test_units_are_counted_as_switching_only_where_both_sides_are_known():
    """In a small box most units of a network stay on one side; lines cannot prove it, and must not say the opposite."""
    net = random_net((6, 12, 12, 3), 4)
    law = rs.Uniform(np.full(6, 0.2), np.full(6, 0.21))
    subject = Subject(net, law, "", budget=Budget(seconds=5.0))
    found = sections.units(subject)
    seen = net.pattern(law.sample(20_000, rng=1)) > 0
    both = int((seen.any(axis=0) & ~seen.all(axis=0)).sum())
    assert both < 24 and found.facts["seen_both_ways"] <= both
    assert "All of the" not in found.answer


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((3, 0, 0, 3), "All of the 3 units switch on and off."),
        ((9, 1, 1, 7), "7 of 9 units switch on and off; 1 is always on, 1 always off (but for at most one"),
        ((9, 0, 2, 1), "1 of 9 units switches on and off; 2 are always on, 0 always off (but for at most one"),
        ((9, 0, 0, 8), "8 of 9 units switch on and off; of the other 1 it is not known: it was rarely"),
        ((9, 2, 1, 4), "1 is always on, 2 always off (but for at most one input in a million); of 2 it is not known"),
    ],
)
def test_units_in_words(counts, words):
    assert words in sections._units_said(*counts)


def test_two_shares_that_make_a_whole_have_equally_many_digits():
    share, half = np.array([0.592, 0.408, 0.0]), np.array([0.0099, 0.0101, 0.0])
    assert numbers(share, share - half, share + half)[:2] == ["59.2 %", "40.8 %"]
    three = np.array([0.4186, 0.4154, 0.166])
    assert numbers(three, three - 0.04, three + 0.04) == ["42 %", "42 %", "17 %"]


def test_many_linear_models_do_not_cover_less_than_one_of_them():
    one = Answers(np.array([0.04, 0.003]), np.array([0.007, 0.0]), np.array([0.107, 0.03]), "confidence", 0.99)

    class Found:
        mass = masses = one
        C, d, support_size = np.zeros((2, 1, 3)), np.zeros((2, 1)), 2
        entropy, method, guarantee = rs.Answer(3.0, 1.0, 9.0, "sound"), "", "confidence"

        def __init__(self, remainder):
            self.remainder = remainder

        def __len__(self):
            return 2

        def top(self, k):
            return self

    for remainder, said in ((0.9619, "are a small part of them"), (0.7, "cover at least 30 % of the inputs")):
        subject = Subject(random_net((3, 4, 1), 0), rs.Gaussian(np.zeros(3)), "")
        subject.cache["linear_models"] = Found(remainder)
        assert said in sections.linear_models(subject).headline
    # The second one may be the most likely.
    Found.masses = Answers(np.array([0.04, 0.039]), np.zeros(2), np.array([0.107, 0.2]), "confidence", 0.99)
    assert "the most likely one covers at most 20 %" in sections.linear_models(subject).headline


def test_nothing_is_drawn_of_a_line_without_points():
    chart = Chart((0, 1), (0, 1), x_label="a", y_label="b")
    chart.line([], [], name="none")
    assert 'd=""' not in chart.svg() and "none" not in chart.svg()


def test_minus_signs_in_exponents(report):
    shown = replace(report, sections=(Section("units", "t", "at most 2.9e-07, x-1, [-3]", ""),)).html()
    assert "at most 2.9e−07, x-1, [−3]" in shown
    chart = Chart((0, 1), (0, 1), x_label="a", y_label="b")
    chart.colour_bar(sequential(np.linspace(0.0, 1.0, 3)), "≤ 6.1e-08", "0.06", "probability")
    assert "≤ 6.1e−08" in chart.svg()


def test_an_event_that_cannot_happen_is_moved_by_no_input():
    net = rs.Network([(np.eye(2), None), (-np.eye(2), None)])
    page = rs.report(net, box=([1.0, 2.0], [1.5, 3.0]), events="y[0] > 0.5", budget="5s", rng=0)
    section = next(s for s in page.sections if s.key == "sensitivity")
    assert not section.reason and section.first
    still = "does not move with the mean or the spread of any input"
    assert section.answer == f"Nothing: the probability of y[0] > 0.5 {still}."


def test_inputs_have_one_name_all_over_the_page():
    X = np.random.default_rng(0).normal(size=(200, 3))
    net = random_net((3, 6, 1), 2)
    page = rs.report(net, X=X, y=net(X)[:, 0], events="y[0] > 0", budget="10s", rng=0).html()
    assert "x[2]" in page and not re.search(r"\bx[0-2]\b", re.sub(r'"[^"]*"', "", page.split("<script")[0]))


def test_rounding_errors_of_singular_values_are_zero():
    net = rs.Network([(np.ones((4, 3)) / 7, np.full(4, 9.0)), (np.ones((3, 4)) / 3, None)])  # of rank 1 where it is on
    page = rs.report(net, rs.Gaussian(np.zeros(3)), budget="5s", rng=0)
    table = next(
        b for s in page.sections if s.key == "spectrum" for b in s.blocks if getattr(b, "name", "") == "spectrum"
    )
    assert table.columns["median"][0] > 0 and table.columns["median"][1:] == [0.0, 0.0]


def test_the_python_is_there_though_only_the_event_was_answered(moons):
    subject = Subject(moons.network, moons.law, "", events=("y[0] > 0",), budget=Budget(seconds=5.0))
    subject.probability("y[0] > 0", 1.0)
    code = python_code(subject, "my moons.onnx")
    assert "rs.load('my moons.onnx')" in code and "rs.probability(net, law, event" in code
    assert "net = rs.example('moons').network\n" in python_code(subject, "Version 1.2")
    other = Subject(random_net((2, 4, 1), 0), moons.law, "", events=("y[0] > 0",), budget=Budget(seconds=5.0))
    other.probability("y[0] > 0", 1.0)
    assert "rs.load('model.onnx')" in python_code(other, "Version 1.2")


@pytest.mark.skipif(CHROMIUM is None or os.name != "posix", reason="needs Chromium")
def test_the_map_explains_only_what_it_draws(tmp_path):
    net = random_net((2, 5, 1), 3)
    shown = {}
    for name, given in (("box", {"box": ([-1, -1], [1, 1])}), ("law", {"law": rs.Gaussian([0.0, 0.0])})):
        rs.report(net, budget="5s", rng=0, **given).save(tmp_path / name)
        found = Browser(tmp_path / f"profile-{name}", (tmp_path / name).as_uri())
        try:
            found.ask("Page.navigate", url=(tmp_path / name / "report.html").as_uri())
            found.until("document.readyState === 'complete' && !document.querySelector('#scene-box').hidden")
            parts = "['#scene-law', '#scene-slider', '#scene-layers']"
            shown[name] = found.see(f"{parts}.map(e => document.querySelector(e).checkVisibility())")
            assert not found.problems
        finally:
            found.close()
    assert shown == {"box": [False, False, False], "law": [True, False, False]}


def test_percentages_and_short_events_are_not_broken(report):
    page, blank = report.html(), "\N{NO-BREAK SPACE}"
    said = re.findall(r"<(?:p|li|figcaption)[ >].*?</(?:p|li|figcaption)>", page, flags=re.S)
    assert len(said) > 40 and sum(f"{blank}%" in words for words in said) >= 8
    assert not any(re.search(r"\d %", words) for words in said)
    assert f"With half the noise y[0]{blank}&gt;{blank}0 has probability" in page
    assert "y[0] > 0 has probability 48.4 %" in report.summary[0]  # blanks are plain in text


def test_where_all_others_cannot_win_one_always_does():
    net = random_net((6, 8, 3), 0)
    subject = Subject(net, rs.Gaussian(np.zeros(6)), "", budget=Budget(seconds=60.0))
    drawn = Answer(1.0, 0.9999, 1.0, "confidence", level=0.99)
    never = Answer(0.0, 0.0, 0.0, "sound")
    subject.cache["events"] = {"argmax == 0": never, "argmax == 1": drawn, "argmax == 2": never}
    found = decisions(subject)
    assert found.outputs[0] == 1 and found.how == "with guaranteed bounds"
    assert output_laws._decision_table(subject)[0] == "The largest output is always y[1]."
    assert (found.share.tolist(), found.lower.tolist(), found.upper.tolist()) == ([1, 0, 0], [1, 0, 0], [1, 0, 0])
    # An upper bound that is only likely to hold proves nothing.
    again = replace(
        subject,
        cache={"events": subject.cache["events"] | {"argmax == 2": Answer(0.0, 0.0, 0.0, "confidence", level=0.99)}},
    )
    assert decisions(again).lower[0] == 0.9999 and decisions(again).how == "with 99 % confidence"


@pytest.mark.parametrize(("numbers", "said"), [
    ((0.00217, -0.003, 0.0075), 0.0022), ((6.601, 6.601, 6.601), 6.601), ((0.8218, 0.7, 0.9), 0.82),
])  # fmt: skip
def test_numbers_are_rounded_as_their_brackets_ask(numbers, said):
    assert supported(*numbers) == said


def test_values_in_their_units_have_the_digits_they_support():
    said = output_laws._in_unit
    assert said(Answer(1.23456, 1.2, 1.3, "confidence", level=0.99), Label("a")) == 1.235
    assert said(Answer(1.23456, 1.2, 1.3, "confidence", level=0.99), Label("a", scale=-2.0)) == -0.617


def test_less_noise_has_at_least_the_time_of_more(monkeypatch):
    net, asked = random_net((3, 6, 1), 1), []
    law = rs.Gaussian(np.zeros(3))

    def slow(net, moved, text, *, budget, **_):
        asked.append((float(np.sqrt(moved.variance[0])), float(budget[:-1])))
        return Answer(1e-9, 0.0, 1e-4, "confidence", level=0.99)

    monkeypatch.setattr("reluscope.answers.probability.probability", slow)
    subject = Subject(net, law, "", events=("y[0] > 9",), budget=Budget(seconds=60.0))
    section = sweep(subject)
    assert [round(sd, 2) for sd, _ in asked] == [4.0, 2.83, 2.0, 1.41, 1.0, 0.71, 0.5, 0.35, 0.25]
    more = max(seconds for sd, seconds in asked if sd > 0.9)
    assert all(seconds >= 1.9 * more for sd, seconds in asked if sd < 0.9)
    assert "A higher bound there does not mean a higher probability" in section.blocks[0].caption
    assert section.blocks[1].columns["factor"] == sorted(section.blocks[1].columns["factor"])
    assert "are not drawn" not in section.blocks[0].caption


def test_probabilities_too_small_for_the_sweep_are_said_to_be(monkeypatch):
    def known(net, moved, text, **_):
        p = 1e-3 * float(moved.variance[0]) ** 8  # 2e-13 at 0.25 of the noise, 5e-11 at 0.35
        return Answer(p, 0.9 * p, 1.1 * p, "confidence", level=0.99)

    monkeypatch.setattr("reluscope.answers.probability.probability", known)
    subject = Subject(random_net((2, 4, 1), 1), rs.Gaussian([0.0, 0.0]), "", events=("y[0] > 3",))
    caption = sweep(subject).blocks[0].caption
    assert "Probabilities below 1e-11 are not drawn." in caption and "only an upper bound" not in caption


def test_a_part_too_small_to_be_seen_is_said():
    net = rs.Network([(np.eye(2), None), (np.eye(2), None)])
    captions = []
    for mean in ([0.0, 0.5], [0.0, 4.4], [0.0, 90.0]):
        law = rs.Gaussian(mean, 1.0)
        subject = Subject(net, law, "", events=("y[0] > y[1]",), budget=Budget(seconds=10.0))
        captions.append(density(subject).blocks[0].caption)
    assert "seen" not in captions[0] and "None" not in captions[0]
    assert "too small to be seen" in captions[1] and "None of them is in the event" in captions[2]


def test_of_many_outputs_those_that_decide_most_are_shown():
    weights = np.zeros((8, 2))
    weights[5] = 1.0, 0.0
    net = rs.Network([(np.eye(2), [9.0, 9.0]), (weights, -np.arange(8.0) * (np.arange(8) != 5))])
    section = output_laws.outputs(Subject(net, rs.Gaussian([0.0, 0.0]), "", budget=Budget(seconds=20.0)))
    table = next(b for b in section.blocks if getattr(b, "name", "") == "outputs").columns
    assert (
        table["output"][0] == "y[5]" and "Of the 8 outputs, the 6 that decide most often are shown." in section.answer
    )


def test_ends_of_the_entropy_are_rounded_outward():
    assert "between 5.044 and 5.166 bits" in sections._entropy(Answer(5.1, 5.0449, 5.1651, "confidence", level=0.99))
    assert "at least 2.9 bits" in sections._entropy(Answer(5.0, 2.949, 9.0, "confidence", level=0.99))


def test_the_last_output_wins_where_the_others_are_proved_not_to():
    """Shares of outputs add up to one: what is proved of all others is better than draws of the last one."""
    net = random_net((6, 8, 3), 0)
    subject = Subject(net, rs.Gaussian(np.zeros(6)), "", budget=Budget(seconds=60.0))
    drawn = Answer(0.999979, 0.999909, 0.999979, "confidence", level=0.99)
    rare, never = Answer(3.336e-5, 3.335e-5, 3.337e-5, "exact"), Answer(0.0, 0.0, 0.0, "exact")
    subject.cache["events"] = {"argmax == 0": rare, "argmax == 1": drawn, "argmax == 2": never}
    found = decisions(subject)
    assert found.outputs.tolist() == [1, 0, 2] and found.how == "exactly"
    assert found.share.sum() == pytest.approx(1.0, abs=1e-15)
    assert (found.lower[0], found.upper[0]) == pytest.approx((1 - 3.337e-5, 1 - 3.335e-5), abs=1e-15)


def test_no_share_is_more_than_proved_shares_of_others_leave():
    net = random_net((6, 8, 3), 0)
    subject = Subject(net, rs.Gaussian(np.zeros(6)), "", budget=Budget(seconds=60.0))
    most = Answer(1.0, 0.9998, 1.0, "confidence", level=0.99)
    rare, never = Answer(5e-5, 2.96e-5, 8e-5, "sound"), Answer(0.0, 0.0, 1e-4, "confidence", level=0.99)
    subject.cache["events"] = {"argmax == 0": rare, "argmax == 1": most, "argmax == 2": never}
    found = decisions(subject)
    assert found.outputs[0] == 1 and found.share[0] == found.upper[0] == pytest.approx(1 - 2.96e-5, abs=1e-15)
    assert found.lower[0] == 0.9998 and found.upper[2] == 1e-4


def test_a_change_that_may_be_none_is_not_told(monkeypatch):
    """Derivatives by the sides of a box that are between a negative and a positive number say nothing."""
    from reluscope.answers import sensitivity as module

    net = random_net((2, 4, 1), 1)
    low, high = np.array([-0.4, 0.1]), np.array([0.0, 0.3])
    none = Answers((low + high) / 2, np.array([-0.4, -0.1]), np.array([0.2, 0.3]), "sound", None, "")
    up = Answers((low + high) / 2, np.array([-0.2, 0.2]), np.array([0.4, 0.3]), "sound", None, "")
    answer = Answer(0.0, 0.0, 0.01, "sound")
    subject = Subject(net, rs.Uniform([0, 0], [1, 1]), "", events=("y[0] > 9",), budget=Budget(seconds=5.0))

    def found(lower, upper):
        made = module.Sensitivity(answer, "sound", lower=lower, upper=upper)
        monkeypatch.setattr(module, "sensitivity", lambda *_, **__: made)
        return sensitivity(subject)

    assert found(none, none).answer.startswith("Nothing: the probability of y[0] > 9 was not seen to move")
    assert found(none, none).guarantee == ""
    still = Answers(np.zeros(2), np.zeros(2), np.zeros(2), "sound", None, "")
    assert "does not move" in found(still, still).answer and found(still, still).guarantee == "sound"
    moved = found(none, up).facts["sensitivity"]
    assert moved["input"] == ["x[1]"] and moved["change by the mean"][0] > 0 and moved["change by the spread"][0] == 0


def test_a_probability_of_zero_is_no_bound(monkeypatch):
    from reluscope.answers import probability as module

    subject = Subject(random_net((2, 4, 1), 1), rs.Gaussian([0.0, 0.0]), "", events=("y[0] > 9",))
    answers = iter([Answer(p, 0.9 * p, 1.1 * p, "confidence", level=0.99) for p in (0.1, 0.02, 1e-4)])
    never = Answer(0.0, 0.0, 0.0, "exact")
    monkeypatch.setattr(module, "probability", lambda *_, **__: next(answers, never))
    figure = sweep(subject).blocks[0]
    assert figure.caption.endswith("Upright strokes: intervals. Probabilities of 0 are not drawn.")
    assert "as given" not in figure.svg and figure.svg.count('class="line c1"') == 4  # a curve and three strokes


def test_brackets_too_narrow_to_be_read_are_one_number():
    ends = [3.336089875e-5, 0.25], [3.336089970e-5, 0.35]
    table = Table("t", "c", {"share": [3.336089922e-5, 0.3], "lower": ends[0], "upper": ends[1]})
    assert table.rows() == [["3.3361e-05"] * 3, ["0.30", "0.25", "0.35"]]


def test_the_histogram_beside_a_density_leaves_out_single_values():
    """Half of the draws are 0: they would make one bar that hides all others."""
    net = rs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])
    subject = Subject(net, rs.Gaussian([0.0]), "", budget=Budget(seconds=20.0))
    figures = [b for b in output_laws.outputs(subject).blocks if "density" in getattr(b, "caption", "")]
    assert [f.caption for f in figures] == ["The density of y[0] and a histogram of draws, without single values."]
    heights = [float(h) for h in re.findall(r'<rect class="bar soft"[^>]*height="([\d.]+)"', figures[0].svg)]
    assert len(heights) == 40 and sorted(heights)[-1] < 1.5 * sorted(heights)[-2]


def test_single_values_are_asked_for_once():
    """A second question to lines would give a slightly different number for the same thing."""
    net = random_net((9, 8, 2), 0)
    subject = Subject(net, rs.Gaussian(np.zeros(9)), "", budget=Budget(seconds=10.0))
    found, asked = subject.outputs(), []

    class Watched:
        def __getattr__(self, name):
            return getattr(found, name)

        def atoms(self, output):
            asked.append(output)
            return found.atoms(output)

    subject.cache["outputs"] = Watched()
    output_laws.outputs(subject)
    assert len(asked) == len(set(asked)) > 0


@pytest.mark.parametrize(("lower", "said"), [(0.44, "at least 0.4 bits"), (3.19, "at least 3.1 bits"), (0.09, "")])
def test_an_entropy_known_from_below_is_not_said_to_be_at_least_nothing(lower, said):
    found = sections._entropy(Answer(5.0, lower, 12.0, "confidence", level=0.99))
    assert found == (f"The entropy of their probabilities is {said}." if said else "")
