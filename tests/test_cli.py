"""The command line: text, JSON, exit codes, one-line errors."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.cli import main


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "small.npz"
    random_net((2, 5, 4, 1), 0).save(path)
    return path


def test_info(model, capsys):
    assert main(["info", str(model)]) == 0
    text = capsys.readouterr().out
    assert "2-5-4-1" in text
    assert "relu" in text
    assert main(["info", str(model), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["inputs"] == 2
    assert [layer["units"] for layer in facts["layers"]] == [5, 4, 1]


def test_regions_writes_table_and_picture(model, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["regions", str(model), "--box", "-1,-2", "1,2", "--faces", "--out", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    net = rs.load(model)
    found = rs.regions(net, ([-1, -2], [1, 2]))
    assert facts["regions"] == len(found)
    assert facts["f_vector"][2] == len(found)
    assert facts["f_vector"][0] - facts["f_vector"][1] + facts["f_vector"][2] == 1
    with (out / "small-regions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found)
    assert sum(float(row["volume"]) for row in rows) == pytest.approx(8)
    assert (out / "small-regions.png").read_bytes().startswith(b"\x89PNG")


def test_regions_under_a_law(model, tmp_path, capsys):
    law = tmp_path / "law.json"
    law.write_text(json.dumps(rs.Gaussian([0.0, 0.0], [1.0, 2.0]).to_dict()))
    assert main(["regions", str(model), "--law", str(law), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["mass"] == pytest.approx(1, abs=1e-12)
    assert facts["guarantee"] == "exact"


def test_a_budget_that_ends_early_gives_exit_code_1(model, capsys):
    assert main(["regions", str(model), "--budget", "3 regions"]) == 1
    assert "incomplete" in capsys.readouterr().out


def test_demo(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    text = capsys.readouterr().out
    assert "59 linear models" in text
    assert "report.html" in text
    names = {p.name for p in (tmp_path / "demo").iterdir()}
    assert {"report.html", "report.json", "linear_models.csv", "moons-law.json", "moons.npz"} <= names


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "missing.onnx"],
        ["info", "."],
        ["regions", "missing.npz"],
        ["regions", "MODEL", "--box", "1", "0"],
        ["regions", "MODEL", "--box", "a", "b"],
        ["regions", "MODEL", "--budget", "soon"],
        ["regions", "MODEL", "--law", "missing.json"],
        ["demo", "nonsense"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(model) if a == "MODEL" else a for a in arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("reluscope: ")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--nonsense"], ["info"], ["regions", "x.npz", "--box", "1"], ["nonsense"]])
def test_wrong_usage_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_help_and_version_fit_a_screen():
    for arguments in (["--help"], ["--version"], ["regions", "--help"], ["info", "--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "reluscope", *arguments], capture_output=True, text=True, check=True
        )
        assert 0 < done.stdout.count("\n") <= 32
    assert main([]) == 2


def test_plots_return_their_axes():
    from reluscope.plot import plot_function, plot_regions

    net = random_net((2, 6, 6, 2), 0)
    found = rs.regions(net, (-2, 2))
    for colour in ("output", "gradient", "pattern"):
        ax = plot_regions(found, colour=colour, output=1)
        assert ax.get_xlabel() == "x[0]"
        assert plot_regions(found, ax) is ax
    assert plot_regions(found, colour="mass", masses=np.full(len(found), 0.1)).get_ylabel() == "x[1]"
    assert plot_regions(rs.regions(net)).get_xlim()[0] < plot_regions(rs.regions(net)).get_xlim()[1]
    assert plot_function(rs.along(net, [-1, -1], [1, 1])).get_ylabel() == "y[0]"
    assert plot_function(rs.along(net, [-1, -1], [1, 1], extend=True)).lines
    for bad in ({"colour": "taste"}, {"output": 7}, {"colour": "mass"}):
        with pytest.raises(rs.InputError):
            plot_regions(found, **bad)
    with pytest.raises(rs.InputError, match="2 inputs"):
        plot_regions(rs.regions(random_net((1, 3, 1)), (-1, 1)))


def test_warm_asks_every_engine(capsys):
    assert main(["warm", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["seconds"]) > 10 and said["total"] == pytest.approx(sum(said["seconds"].values()))
