"""Reports and commands on tables: names, units and cut-off of the schema, test rows beside training rows."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest

import reluscope as rs
from reluscope.cli import main


@pytest.fixture(scope="module")
def desk():
    """A network over a category and an amount whose classes are not in alphabetical order, and two tables."""
    rng = np.random.default_rng(0)
    schema = rs.Schema(
        [rs.Column("SEX", "category", levels=["f", "m"]), rs.Column("amount", unit="EUR", scale=0.01, shift=0.5)],
        [rs.Output("PD", link="sigmoid")],
        ["pays", "defaults"],
        cutoff=0.2,
    )

    def rows(n):
        return {"amount": rng.exponential(100.0, n), "SEX": rng.choice(["f", "m"], n)}

    table, new = rows(400), rows(150)
    hidden, last = (rng.normal(size=(6, 3)), rng.normal(size=6)), 3 * rng.normal(size=(1, 6))
    middle = np.median(rs.Network([hidden, (last, None)], schema=schema)(table))
    net = rs.Network([hidden, (last, [schema.threshold() - middle])], schema=schema)

    def labels(part):
        noise = rng.normal(size=(len(part["SEX"]), 1))
        return np.array([schema.classes[k] for k in schema.decide(net(part) + noise)])

    return net, table, labels(table), new, labels(new)


@pytest.fixture(scope="module")
def page(desk):
    net, X, y, X_test, y_test = desk
    return rs.report(net, X=X, y=y, X_test=X_test, y_test=y_test, events="PD > 0.2", budget="4s", rng=0)


def _section(page, key):
    return next(s for s in page.sections if s.key == key)


def test_errors_are_those_of_the_cut_off_and_of_the_classes_in_their_order(desk, page):
    net, X, y, X_test, y_test = desk
    found = _section(page, "errors")
    for part, labels, key in ((X, y, "data"), (X_test, y_test, "test_rows")):
        above = net.schema.values(net(part))[:, 0] > 0.2
        rates = [above[labels == "pays"].mean(), (~above)[labels == "defaults"].mean()]
        assert found.facts[key]["rate"][:2] == pytest.approx(rates)
        wrong = (above != (labels == "defaults")).mean()
        assert found.facts[key]["rate"][2] == pytest.approx(wrong)
        assert found.facts[key]["lower"][2] < wrong < found.facts[key]["upper"][2]
    assert "PD > 0.2" in found.answer and found.guarantee == "confidence"


def test_laws_by_class_are_decided_by_the_cut_off_too(desk):
    net, X, y, *_ = desk
    rows = net.schema.encode(X)
    classes = rs.GaussianMixture.fit_classes(rows, y, rng=0)
    assert classes.labels == ("defaults", "pays")  # sorted, while the network's second class is "defaults"
    found = _section(rs.report(net, classes, events="PD > 0.2", budget="4s", rng=0), "errors")
    limit = net.schema.threshold()
    pays, defaults = (net(classes[k].sample(200_000, 0))[:, 0] for k in ("pays", "defaults"))
    assert found.facts["labels"] == ["pays", "defaults"]
    assert found.facts["value"][:2] == pytest.approx([(pays > limit).mean(), (defaults <= limit).mean()], abs=0.01)


def test_the_smallest_output_decides_and_classes_are_by_name():
    rng = np.random.default_rng(3)
    words = ["z", "a", "m"]
    schema = rs.Schema(["u", "v"], words, words, rule="smallest")
    net = rs.Network([(np.eye(2), [9.0, 9.0]), ([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [-9, -9, 18])], schema=schema)
    X = rng.normal(size=(300, 2))
    y = np.array(words)[net(X).argmin(axis=1)]
    table = {"u": X[:, 0], "v": X[:, 1]}
    found = _section(rs.report(net, X=table, y=y, budget="3s", rng=0), "errors")
    assert found.facts["data"]["rate"][3] == 0.0 and found.facts["rule"] == "smallest"
    classes = rs.GaussianMixture.fit_classes(X, y, rng=0)
    found = _section(rs.report(net, classes, budget="3s", rng=0), "errors")
    drawn = [(net(law.sample(50_000, 0)).argmin(axis=1) != words.index(k)).mean() for k, law in
             zip(classes.labels, classes.laws, strict=True)]  # fmt: skip
    assert found.facts["total"] == pytest.approx(float(np.dot(classes.weights, drawn)), abs=0.02)


def test_the_law_is_that_of_the_table_and_the_page_speaks_in_names(desk, page):
    _, X, *_ = desk
    assert "categories and quantiles" in page.law_from
    event = _section(page, "events").facts["events"][0]
    share = _section(page, "events").blocks[0].columns["on the data"][0]
    assert abs(event["value"] - share) < 0.02
    html = re.sub(r"<script.*?</script>|<pre.*?</pre>", "", page.html(), flags=re.S)
    assert "y[0]" not in html and "x[0]" not in html and "logit of PD" in html
    # A linear model is in euros: slopes times the scale of the column.
    models = _section(page, "linear_models").blocks
    assert models[0].columns["linear model"][0].startswith("logit of PD = ")
    columns = models[1].columns
    spent = np.percentile(X["amount"], 50)
    one = {"SEX": ["m"], "amount": [spent]}
    net = desk[0]
    values = [columns["logit of PD: constant"][i] + columns["logit of PD: SEX=m"][i] + columns["logit of PD: amount"][i]
              * spent for i in range(len(columns["probability"]))]  # fmt: skip
    assert np.abs(np.array(values) - net(one)[0, 0]).min() < 1e-9


def test_a_short_report_fits_its_law_to_fewer_rows(desk):
    net, *_ = desk
    rng = np.random.default_rng(3)
    X = {"amount": rng.exponential(100.0, 2500), "SEX": rng.choice(["f", "m"], 2500)}
    page = rs.report(net, X=X, budget="0.3s", rng=0)
    assert "2,000 of the 2,500 rows" in page.law_from


def test_noise_does_not_move_the_codes_of_categories(page):
    text = _section(page, "sweep").blocks[0].caption
    assert "Categories stay" in text


def test_test_rows_beside_training_rows(desk, page):
    net, X, y, X_test, y_test = desk
    u = rs.unwrap(net, X, y)
    line = u.outcome(X_test, y_test)["all"]
    found = _section(page, "outcome").facts
    assert found["groups"][0]["auc"] == line["auc"] and found["groups"][0]["test_auc"] == line["test_auc"]
    assert found["drift"]["output"] == u.drift(X_test).output
    with pytest.raises(rs.InputError, match="X_test is shown beside X"):
        rs.report(net, X_test=X_test, budget="1s")
    with pytest.raises(rs.InputError, match="y_test goes with X_test"):
        rs.report(net, X=X, y=y, y_test=y_test, budget="1s")


def test_scores_of_numbers_on_test_rows():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    net = rs.Network([(np.eye(2), None), (np.ones((1, 2)), None)])
    y = net(X)[:, 0] + 0.1 * rng.normal(size=200)
    found = _section(
        rs.report(net, X=X[:150], y=y[:150], X_test=X[150:], y_test=y[150:], budget="3s", rng=0), "outcome"
    )
    u = rs.unwrap(net, X[:150], y[:150])
    assert found.facts["score"] == u.score and found.facts["test_score"] == u.evaluate(X[150:], y[150:]).score


def _csv(path, table, labels):
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["paid", "amount", "SEX"])
        out.writerows(zip(labels, map(repr, table["amount"].tolist()), table["SEX"], strict=True))


def test_commands_fit_the_law_of_the_table_and_take_test_rows(desk, tmp_path, capsys):
    net, X, y, X_test, y_test = desk
    net.save(tmp_path / "net.npz")
    _csv(tmp_path / "rows.csv", X, y)
    _csv(tmp_path / "new.csv", X_test, y_test)
    share = float((net.schema.values(net(X))[:, 0] > 0.2).mean())
    command = ["prob", str(tmp_path / "net.npz"), "--law", str(tmp_path / "rows.csv"), "--event", "PD > 0.2", "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == {"count": 400, "share": share} and abs(told["value"] - share) < 0.02
    assert main([*command, "--components", "1"]) == 0  # a Gaussian, as asked
    assert "Gaussian" in json.loads(capsys.readouterr().out)["law"]
    command = ["report", str(tmp_path / "net.npz"), "--data", str(tmp_path / "rows.csv"), "--target", "paid"]
    command += ["--test", str(tmp_path / "new.csv"), "--budget", "3s", "--out", str(tmp_path / "out"), "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sections"]["outcome"]["groups"][0]["test_rows"] == 150


def test_the_unwrap_command_takes_a_cut_off_and_test_rows(desk, tmp_path, capsys):
    net, X, y, X_test, y_test = desk
    net.save(tmp_path / "net.npz")
    _csv(tmp_path / "rows.csv", X, y)
    _csv(tmp_path / "new.csv", X_test, y_test)
    command = ["unwrap", str(tmp_path / "net.npz"), str(tmp_path / "rows.csv"), "--target", "paid", "--json"]
    assert main([*command, "--test", str(tmp_path / "new.csv"), "--cutoff", "0.35", "--merge", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    p = net.schema.values(net(X_test))[:, 0]
    line = told["outcome"]["groups"][0]
    assert told["outcome"]["cutoff"] == pytest.approx(0.35) and line["test_above"] == pytest.approx((p > 0.35).mean())
    assert set(told["importance"]) == {"SEX", "amount"} and "test_auc" in told["merged"]


def test_what_names_the_classes_of_a_score_with_a_cutoff():
    """Shares of the two classes, from the same answer as the event that asks for one of them."""
    net = rs.Network([([[1.0, -1.0]], [0.0]), ([[2.0]], [-1.0])]).with_schema(
        rs.Schema(outputs=[rs.Output("PD", link="sigmoid")], classes=("good", "bad"), rule="above", cutoff=0.5)
    )
    page = rs.report(net, rs.Gaussian([0.0, 0.0]), events="y[0] > 0", budget="5s", rng=0)
    what = page.screen.what
    assert ">good</th>" in what.svg and ">bad</th>" in what.svg and "bad where PD > 0.5" in what.caption
    asked = [r for r in page.records if r.get("event") is not None]
    assert len(asked) == 1  # one number for one fact
