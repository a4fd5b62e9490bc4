"""`reluscope unwrap` and the two reproductions."""

import csv
import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from nets import random_net
from reluscope.cli import main
from reluscope.local_models import MergedModels
from reluscope.reproduce import cocircles, reproduce


@pytest.fixture
def files(tmp_path):
    net = random_net((2, 6, 1), 0)
    net.save(tmp_path / "m.npz")
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        X = rng.normal(size=(120, 2))
        y = np.where(net(X)[:, 0] + 0.3 * rng.normal(size=120) > 0, "good", "bad")
        rows = [f"{i},{a},{b},{c}" for i, (a, b), c in zip(range(120), X, y, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,a,b,y", *rows]) + "\n")
    return tmp_path


def test_table_and_pictures(files, capsys):
    out = files / "out"
    call = ["unwrap", str(files / "m.npz"), str(files / "train.csv"), "--target", "y", "--drop", "id"]
    assert main([*call, "--test", str(files / "test.csv"), "--merge", "--out", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["task"] == "binary" and facts["rows"] == 120 and facts["certificate"] < 1e-12
    assert facts["coverage"]["regions_in_box"] >= facts["regions"]
    assert 0.5 < facts["test"]["auc"] <= 1 and facts["merged"]["models"] >= 1
    test = np.genfromtxt(files / "test.csv", delimiter=",", skip_header=1, usecols=(1, 2))
    good = np.genfromtxt(files / "test.csv", delimiter=",", skip_header=1, usecols=3, dtype=str) == "good"
    score = MergedModels.load(out / "m-merged.npz").outputs(test)[:, 0]
    assert facts["merged"]["test_auc"] == pytest.approx(roc_auc_score(good, score))
    line = facts["outcome"]["groups"][0]
    assert (line["group"], line["rows"], line["test_rows"]) == ("all", 120, 120)
    assert line["test_auc"] == pytest.approx(facts["test"]["auc"])
    assert line["gap"] == pytest.approx(facts["auc"] - facts["test"]["auc"])
    assert facts["merged"]["clusters"][-1]["test_auc"] == pytest.approx(facts["merged"]["test_auc"])
    assert facts["drift"]["output"] >= 0 and facts["drift"]["limits"]["output"] > 0
    assert set(facts["drift"]["features"]) == {"a", "b"}
    assert "CASE cluster" in (out / "m-merged.sql").read_text()
    with (out / "m-regions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == facts["regions"] and sum(int(r["count"]) for r in rows) == 120
    assert json.loads((out / "m-unwrap.json").read_text())["table"][0]["count"] == facts["largest_region"]
    for name in ("regions", "importance", "violin", "parallel", "profile", "partial", "pair", "bubble", "dendrogram"):
        assert (out / f"m-{name}.png").read_bytes().startswith(b"\x89PNG")
    assert [p["region"] for p in facts["portraits"]] == list(range(min(5, facts["regions"])))
    assert {f["feature"] for f in facts["portraits"][0]["features"]} == {"a", "b"}
    assert main(call) == 0
    text = capsys.readouterr().out
    assert main([*call, "--test", str(files / "test.csv"), "--merge", "2"]) == 0
    assert f"of the merged models, {facts['test']['auc']:.4f} of the network" in capsys.readouterr().out
    assert "importance:" in text and "rows of the largest regions against all rows:" in text and " sd, " in text


def test_two_runs_agree_and_a_seed_changes_the_folds(files, capsys):
    call = ["unwrap", str(files / "m.npz"), str(files / "train.csv"), "--target", "y", "--drop", "id", "--merge"]
    texts = []
    for more in ([], [], ["--seed", "3"]):
        assert main([*call, *more]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and "(seed 0)" in texts[0] and "(seed 3)" in texts[2]
    assert main([*call, "--seed", "3", "--json"]) == 0
    merged = json.loads(capsys.readouterr().out)["merged"]
    assert merged["seed"] == 3 and merged["within_one_error"][0] == merged["models"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--target", "z"], "no column 'z'"),
        (["--target", "y"], "takes 2 inputs"),
        (["--features", "a,y"], "must hold numbers"),
    ],
)
def test_one_line_errors(files, capsys, change, message):
    assert main(["unwrap", str(files / "m.npz"), str(files / "train.csv"), *change]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("text", ["", "a,b\n", "a,a\n1,2\n", "a,b\n1,2,3\n", "a,b\n1,x\n", "\x00\n", "a,b\n1,nan\n"])
def test_bad_csv_files(files, capsys, text):
    (files / "bad.csv").write_text(text)
    assert main(["unwrap", str(files / "m.npz"), str(files / "bad.csv")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_cocircles_quickly(tmp_path):
    done = reproduce("cocircles", tmp_path, quick=True)
    rows = {row["quantity"]: row for row in done.rows}
    for name in ("network AUC, training", "network AUC, test"):
        assert abs(rows[name]["mean"] - cocircles.PUBLISHED[name]) < 0.01
    # two seeds are no range: nothing published stands beside them
    assert done.quick and not any("published" in key or "slides" in key for row in done.rows for key in row)
    assert "published" not in str(done).replace("the published numbers are of the full one", "")
    assert 400 < rows["regions with data"]["mean"] < 900
    assert any("22 regions (printed: 22)" in remark for remark in done.remarks)


@pytest.mark.slow
def test_cocircles_published_values_lie_in_the_range_of_20_seeds(tmp_path):
    done = reproduce("cocircles", tmp_path)
    assert "cannot be checked" in str(done)
    for row in done.rows:
        if row["published"] is not None:
            assert row["published inside"], row
        if row["published"] is not None and "AUC" in row["quantity"]:
            assert abs(row["mean"] - row["published"]) < 0.01, row


@pytest.mark.needs_data
def test_taiwancredit_quickly(tmp_path, data_folder):
    done = reproduce("taiwancredit", tmp_path, quick=True)
    first, last = done.rows
    assert last["regions"] < first["regions"] / 3
    assert last["test AUC"] > first["test AUC"] - 0.015
    assert not any("published" in key for key in first)


@pytest.mark.slow
@pytest.mark.needs_data
def test_taiwancredit_less_than_a_point_of_auc(tmp_path, data_folder):
    rows = reproduce("taiwancredit", tmp_path).rows
    assert rows[0]["regions"] > 3000 and rows[-1]["regions"] < 100
    assert rows[0]["test AUC"] - rows[-1]["test AUC"] < 0.01


def test_taiwancredit_without_data(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("RELUSCOPE_DATA", raising=False)
    assert main(["reproduce", "taiwancredit", "--out", str(tmp_path)]) == 2
    assert "RELUSCOPE_DATA" in capsys.readouterr().err
