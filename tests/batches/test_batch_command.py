"""`reluscope batch`: what it prints and writes, its exit codes, its page in a browser."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser

import pandas as pd
import pytest
from batch_tables import competition

import reluscope as rs
from browser import CHROMIUM, Browser
from nets import random_net
from reluscope.cli import main
from reluscope.reporting.batch import outward


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def shown(capsys) -> dict:
    return json.loads(capsys.readouterr().out)


def test_it_asks_prints_and_writes(here, capsys):
    competition(here)
    assert main(["batch", "instances.csv", "--csv", "out.csv"]) == 0
    out = capsys.readouterr()
    assert out.out.startswith("Batch: 4 instances: 4 done; verdicts: 2 sat, 2 unsat\n") and out.err == ""
    assert "written   reluscope-batch.sqlite, reluscope-batch.html, out.csv" in out.out
    assert list(pd.read_csv("out.csv")["verdict"]) == ["sat", "unsat", "sat", "unsat"]
    assert sorted(p.name for p in here.glob("reluscope-batch*")) == ["reluscope-batch.html", "reluscope-batch.sqlite"]


def test_json_holds_the_table(here, capsys):
    competition(here)
    assert main(["batch", "instances.csv", "--json", "--only", "net0"]) == 0
    facts = shown(capsys)
    assert facts["counts"] == {"done": 2, "waiting": 2} and facts["verdicts"] == {"sat": 1, "unsat": 1}
    assert facts["table"]["verdict"] == ["sat", "unsat", None, None] and facts["failed"] == {}
    assert facts["files"] == ["reluscope-batch.sqlite", "reluscope-batch.html"]


def test_a_dry_run_says_what_would_be_asked(here, capsys):
    competition(here)
    assert main(["batch", "instances.csv", "--dry-run", "--only", "*never*"]) == 0
    assert "note      2 of 4 rows would be asked" in capsys.readouterr().out
    assert not list(here.glob("reluscope-batch*"))


def test_a_failed_row_is_exit_code_1_and_can_be_retried(here, capsys):
    (here / "onnx" / "broken.npz").write_bytes(b"PK\x03\x04 no network")
    assert main(["batch", "onnx", "vnnlib"]) == 1
    assert "failed    row 0 (onnx/broken.npz, vnnlib/never.vnnlib): " in capsys.readouterr().out
    assert main(["batch", "onnx", "vnnlib", "--retry", "failed", "--json"]) == 1
    assert shown(capsys)["counts"] == {"done": 4, "failed": 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv"], "there is no file none.csv"),
        (["onnx"], "is a folder"),
        (["onnx", "vnnlib", "law.json"], "give one table, or a folder of networks and a folder of properties"),
        (["instances.csv", "--only", "nothing"], "only matches none of the 4 rows"),
        (["instances.csv", "--budget", "soon"], "4 of 4 rows cannot be asked. line 1: budget must be like"),
        (["instances.csv", "--jobs", "0"], "jobs"),
        (["instances.csv", "--results", "law.json"], "must be a file that `batch` wrote"),
    ],
)
def test_bad_input_is_exit_code_2(here, capsys, arguments, words):
    competition(here)
    assert main(["batch", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_options_stand_in_place_of_columns(here, capsys):
    competition(here)
    assert (
        main(["batch", "instances.csv", "--law", "law.json", "--guarantee", "exact", "--budget", "5s", "--json"]) == 0
    )
    found = rs.Batch.read("reluscope-batch.sqlite")
    assert {row.guarantee for row in found} == {"exact"} and {row.law for row in found} == {"law.json"}
    record = found.record(0)
    assert record["asked"]["budget"] == "4s" and record["law"]["law"] == "gaussian"


def test_rows_are_replayed_by_the_command(here, capsys):
    competition(here)
    main(["batch", "instances.csv"])
    capsys.readouterr()
    assert main(["replay", "reluscope-batch.sqlite", "--row", "3", "--json"]) == 0
    assert shown(capsys)["agrees"] is True
    assert main(["replay", "reluscope-batch.sqlite"]) == 2
    assert "pass --row, such as --row 0" in capsys.readouterr().err
    assert main(["replay", "law.json", "--row", "0"]) == 2
    random_net([2, 5, 1], seed=5).save(here / "onnx" / "net1.npz")
    assert main(["replay", "reluscope-batch.sqlite", "--row", "3"]) == 2
    assert "is not the network of the record" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(here, capsys, monkeypatch):
    import reluscope.batches.run as run

    def stopped(task):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "answer_task", stopped)
    competition(here)
    assert main(["batch", "instances.csv"]) == 130
    assert "stopped after 0 of 4 rows; all are in reluscope-batch.sqlite" in capsys.readouterr().err


# -- the page ------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.rows = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.links += [found[name] for name in ("href", "src") if name in found]
        self.rows += tag == "tr"


def test_the_page_needs_nothing_else_and_escapes_names(here):
    rows = [{"network": random_net([2, 3, 1]), "law": rs.Gaussian([0.0, 0.0]), "event": "y[0] > 1 or y[0] < -1"}]
    rows += [{**rows[0], "event": "y[0] > <b>1</b>"}]
    found = rs.batch(rows, "r.sqlite")
    assert found.counts == {"done": 1, "failed": 1}
    text = found.html()
    page = Page(text)
    assert page.links == [] and "<b>1</b>" not in text and "y[0] &gt; &lt;b&gt;1&lt;/b&gt;" in text
    assert page.rows == 1 + 2 + 3  # heads, rows, how it was made


def test_reports_are_linked(here, capsys):
    competition(here)
    assert main(["batch", "instances.csv", "--only", "*net0*often*", "--budget", "1s", "--reports"]) == 0
    text = (here / "reluscope-batch.html").read_text()
    links = Page(text).links
    assert len(links) == 1 and links[0].startswith("reluscope-batch-reports/")
    assert "Reluscope report" in (here / links[0]).read_text()
    before = (here / links[0]).stat().st_mtime_ns
    assert main(["batch", "instances.csv", "--only", "*net0*often*", "--budget", "1s", "--reports"]) == 0
    assert (here / links[0]).stat().st_mtime_ns == before


def test_brackets_are_rounded_outward():
    assert outward(0.12345678, 0.99999999) == "[0.1234, 1]"
    assert outward(0.0, 0.0) == "[0, 0]" and outward(1e-7 / 3, 2e-7 / 3) == "[3.333e-08, 6.667e-08]"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_table_sorts_and_filters_in_a_browser(here, tmp_path):
    competition(here)
    found = rs.batch("instances.csv", "r.sqlite", only=["net0", "often"])
    found.save_page("r.html")
    browser = Browser(tmp_path / "profile", (here / "r.html").as_uri())
    try:
        browser.ask("Page.navigate", url=(here / "r.html").as_uri())
        browser.until("document.readyState === 'complete' && document.querySelector('#rows')")
        column = (
            "[...document.querySelectorAll('#rows tbody tr:not([hidden]) td:nth-child({})')].map(c => c.textContent)"
        )
        assert browser.see(column.format(1)) == ["0", "1", "2", "3"]
        browser.see("document.querySelectorAll('#rows th button')[3].click()")
        assert browser.see(column.format(4)) == ["sat", "sat", "unsat", ""]
        browser.see("document.querySelectorAll('#rows th button')[4].click()")
        assert browser.see(column.format(1))[:1] == ["1"]  # probability 0 first, rows without one last
        assert browser.see(column.format(1))[-1:] == ["3"]
        browser.see("document.querySelectorAll('#rows th button')[4].click()")
        assert browser.see(column.format(1))[-2:] == ["1", "3"]
        browser.see("f = document.querySelector('#filter'); f.value = 'sat'; f.dispatchEvent(new Event('input'))")
        assert sorted(browser.see(column.format(1))) == ["0", "2"]  # not unsat
        assert browser.see("document.querySelector('#shown').textContent") == "2 of 4" and browser.problems == []
    finally:
        browser.close()


def test_spreadsheets_do_not_run_what_a_table_says(here):
    rows = [{"network": rs.Network([([[1.0]], [0.0])], name="=1+1"), "law": rs.Gaussian([0.0]), "event": "y[0] > 1"}]
    rs.batch(rows, "r.sqlite").save_csv("out.csv")
    with (here / "out.csv").open() as file:
        assert next(csv.DictReader(file))["network"] == "'=1+1"
