"""`reluscope prob`: text, JSON, exit codes, laws from files, verdicts."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.answer import Status
from reluscope.answers.properties import verdict
from reluscope.cli import main
from reluscope.inputs import _plain, law_from_json

BOX = "".join(f"(declare-const X_{i} Real)(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(2))
BOX += "".join(f"(declare-const Y_{i} Real)" for i in range(2))


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "small.npz"
    random_net((2, 6, 2), 0).save(path)
    return path


@pytest.fixture
def law(tmp_path):
    path = tmp_path / "law.json"
    path.write_text(json.dumps(rs.Gaussian([0.0, 0.0], [1.0, 2.0]).to_dict()))
    return path


def test_text_and_json(model, law, capsys):
    arguments = ["prob", str(model), "--law", str(law), "--event", "y[0] > y[1] and x[0] <= 0.3"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("P(y[0] > y[1] and x[0] <= 0.3) = ") and "exact" in text
    assert main([*arguments, "--json", "--witness"]) == 0
    facts = json.loads(capsys.readouterr().out)
    truth = rs.probability(rs.load(model), rs.Gaussian([0.0, 0.0], [1.0, 2.0]), "y[0] > y[1] and x[0] <= 0.3")
    assert facts["value"] == truth.value and facts["guarantee"] == "exact"
    assert facts["witness"][0]["proved_nearest"]
    assert main([*arguments, "--below", "0.9999"]) == 0
    assert main([*arguments, "--below", "1e-9"]) == 1
    assert main([*arguments, "--guarantee", "confidence", "--budget", "0.2s", "--interval", "replicate", "--json"]) == 0


def test_law_from_data_with_names(model, tmp_path, capsys):
    X = np.random.default_rng(0).normal(size=(50, 2))
    data = tmp_path / "data.csv"
    data.write_text("speed,angle\n" + "\n".join(f"{a!r},{b!r}" for a, b in X.tolist()) + "\n")
    assert main(["prob", str(model), "--law", str(data), "--event", "y[0] > 0 and speed > 0.1", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    truth = rs.probability(rs.load(model), rs.Gaussian.fit(X), "y[0] > 0 and x[0] > 0.1")
    assert facts["value"] == pytest.approx(truth.value, abs=1e-12)


def test_vnnlib_verdicts(model, tmp_path, capsys):
    result = tmp_path / "result.txt"
    for claim, word in (("(assert (>= Y_0 Y_1))", "sat"), ("(assert (>= Y_0 1000))", "unsat")):
        prop = tmp_path / "prop.vnnlib"
        prop.write_text(BOX + claim)
        arguments = ["prob", str(model), "--vnnlib", str(prop), "--guarantee", "exact", "--results-file", str(result)]
        assert main(arguments) == 0
        assert capsys.readouterr().out.split("\n")[0] == word
        lines = result.read_text().split("\n")
        assert lines[0] == word
        if word == "sat":
            body = result.read_text()[4:].replace("(", " ").replace(")", " ").split()
            values = dict(zip(body[::2], map(float, body[1::2]), strict=True))
            x = [values["X_0"], values["X_1"]]
            assert rs.load(model)(x).tolist() == pytest.approx([values["Y_0"], values["Y_1"]])
            assert values["Y_0"] >= values["Y_1"]


def test_verdict_words():
    net = random_net((2, 4, 2), 0)
    event = rs.event("x[0] >= 0 and x[0] <= 1 and x[1] >= 0 and x[1] <= 1 and y[0] > 3", 2, 2, net=net)
    wide, narrow = rs.Uniform([0.0, 0.0], [1.0, 1.0]), rs.Uniform([0.2, 0.0], [1.0, 1.0])
    zero = rs.Answer(0.0, 0.0, 0.0, "sound")
    assert verdict(zero, wide, event, False) == "unsat"
    assert verdict(zero, narrow, event, False) == "unknown"  # the law does not reach all of the box
    assert verdict(rs.Answer(0.0, 0.0, 0.0, "confidence", 0.95), wide, event, False) == "unknown"
    assert verdict(rs.Answer(0.1, 0.0, 0.2, "sound"), wide, event, True) == "sat"
    assert verdict(rs.Answer(0.1, 0.05, 0.2, "sound"), wide, event, False) == "sat"
    assert verdict(rs.Answer(0.1, 0.0, 0.2, "sound", status=Status.BUDGET), wide, event, False) == "timeout"


def test_errors_are_short(model, law, capsys):
    assert main(["prob", str(model), "--law", str(law), "--event", "y[0] >"]) == 2
    assert "^" in capsys.readouterr().err
    assert main(["prob", str(model), "--event", "y[0] > 0"]) == 2
    assert "--law is needed" in capsys.readouterr().err
    assert main(["prob", str(model), "--law", str(law), "--event", "y[0] > 0", "--results-file", "x"]) == 2
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["prob", str(model), "--law", str(law)])


def test_below_is_not_said_on_the_strength_of_doubtful_sampling():
    from reluscope.answer import Answer, Status
    from reluscope.commands.prob import _below

    sure = Answer(1e-8, 0.9e-8, 1.1e-8, "confidence", 0.99, "populations (replicate)")
    assert _below(sure, 1e-7)[0] is True and "that sampling met" in _below(sure, 1e-7)[1]
    assert _below(sure, 1e-9)[0] is False
    doubtful = Answer(1e-8, 0.0, 5e-8, "confidence", 0.99, "populations (replicate)", status=Status.TOLERANCE)
    assert _below(doubtful, 1e-7)[0] is None and _below(doubtful, 1e-7)[1].startswith("not decided")
    bounded = Answer(0.0, 0.0, 5e-8, "confidence", 0.99, "rays (finite-sample)", status=Status.NOTHING_MET)
    assert _below(bounded, 1e-7)[0] is True


def test_below_is_said_in_words(model, law, capsys):
    arguments = ["prob", str(model), "--law", str(law), "--event", "y[0] > y[1]", "--below"]
    for limit, code, holds, word in (("0.9999", 0, True, "yes"), ("1e-9", 1, False, "no")):
        assert main([*arguments, limit]) == code
        assert f"below     {word}: the probability is" in capsys.readouterr().out
        assert main([*arguments, limit, "--json"]) == code
        assert json.loads(capsys.readouterr().out)["below"] == {"limit": float(limit), "holds": holds}
    value = rs.probability(rs.load(model), rs.Gaussian([0.0, 0.0], [1.0, 2.0]), "y[0] > y[1]").value
    open_ = [*arguments, repr(value), "--guarantee", "confidence", "--budget", "0.1s"]
    assert main(open_) == 1
    assert "below     not decided" in capsys.readouterr().out
    for limit in ("-5", "1.5", "nan"):
        assert main([*arguments, limit]) == 2
        assert "--below must be a probability" in capsys.readouterr().err


def test_few_rows_of_data(model, tmp_path, capsys):
    data = tmp_path / "data.csv"
    event = ["--event", "y[0] > 0"]
    data.write_text("a,b\n1,2\n")
    assert main(["prob", str(model), "--law", str(data), *event]) == 2
    assert "data.csv has one row" in capsys.readouterr().err
    data.write_text("a,b\n1,2\n2,1\n")
    assert main(["prob", str(model), "--law", str(data), *event]) == 0
    assert "warning   the fitted covariance is singular: 2 samples of 2 inputs" in capsys.readouterr().out
    assert main(["prob", str(model), "--law", str(data), *event, "--json"]) == 0
    assert "singular" in json.loads(capsys.readouterr().out)["warnings"][0]
    data.write_text("a,b,c\n1,2,3\n2,1,0\n")
    assert main(["prob", str(model), "--law", str(data), *event]) == 2
    assert "data.csv has 3 columns but the network takes 2 inputs" in capsys.readouterr().err


def test_a_property_without_a_box_asks_for_a_law(model, law, tmp_path, capsys):
    prop = tmp_path / "open.vnnlib"
    names = "".join(f"(declare-const {v} Real)" for v in ("X_0", "X_1", "Y_0", "Y_1"))
    prop.write_text(names + "(assert (<= X_1 1))(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= Y_0 Y_1))")
    assert main(["prob", str(model), "--vnnlib", str(prop)]) == 2
    assert "--law is needed: the property does not bound X_1 on both sides" in capsys.readouterr().err
    assert main(["prob", str(model), "--vnnlib", str(prop), "--law", str(law), "--guarantee", "exact"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("sat\n") and "witness   x = [" in text and "          y = [" in text


def test_messages_about_numbers(model, law, capsys):
    assert main(["prob", str(model), "--law", str(law), "--event", "y[0] > 0", "--budget", "0s"]) == 2
    assert "budget must be more than zero, got '0s'" in capsys.readouterr().err
    assert main(["regions", str(model), "--box", "nan", "1"]) == 2
    assert "must be finite, got nan\n" in capsys.readouterr().err


def test_witnesses_are_replayed_by_the_model_file(law, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    path = tmp_path / "small.onnx"
    random_net((2, 6, 2), 0).save(path)
    arguments = ["prob", str(path), "--law", str(law), "--event", "y[0] > y[1] + 0.1", "--witness"]
    assert main(arguments) == 0
    assert "onnxruntime agrees" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["witness"][0]
    assert first["replayed"] is True and first["model_margin"] > 0


def test_the_laws_of_the_documentation_are_read(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", page, flags=re.S)
    kinds = set()
    for line in block.strip().split("\n"):
        path = tmp_path / "law.json"
        path.write_text(line)
        law = law_from_json(path)
        assert law.n == 2 and np.isfinite(law.sample(5, 0)).all()
        kinds.add(json.loads(line)["law"])
    assert kinds == set(_plain._READERS)


# -- several networks --

TWO = """(vnnlib-version <2.0>)
(declare-network f (declare-input X real [1,2]) (declare-output Y real [2]))
(declare-network g (isomorphic-to f) (declare-input Z real [1,2]) (declare-output W real [2]))
(assert (== X[0,0] Z[0,0]))(assert (== X[0,1] Z[0,1]))
(assert (and (>= X[0,0] -1) (<= X[0,0] 1)))(assert (and (>= X[0,1] -1) (<= X[0,1] 1)))
"""


@pytest.fixture
def networks(tmp_path):
    out = []
    for seed, name in enumerate("fg"):
        random_net((2, 6, 2), seed).save(tmp_path / f"{name}.npz")
        out += ["--network", f"{name}={tmp_path / name}.npz"]
    return out


def test_several_networks_by_event_and_law(networks, law, capsys):
    assert main(["prob", *networks, "--law", str(law), "--event", "argmax f != argmax g", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    nets = {name: random_net((2, 6, 2), seed) for seed, name in enumerate("fg")}
    truth = rs.probability(nets, rs.Gaussian([0.0, 0.0], [1.0, 2.0]), "argmax f != argmax g")
    assert facts["value"] == truth.value and set(facts["model"]) == {"f", "g"}


@pytest.mark.parametrize("limit, word", [(0.5, "sat"), (1000.0, "unsat")])
def test_properties_of_several_networks_have_verdicts(networks, tmp_path, capsys, limit, word):
    prop, result = tmp_path / "p.vnnlib", tmp_path / "result.txt"
    prop.write_text(TWO + f"(assert (or (> Y[0] (+ W[0] {limit})) (< Y[0] (- W[0] {limit}))))")
    assert main(["prob", *networks, "--vnnlib", str(prop), "--results-file", str(result), "--budget", "20s"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == word
    lines = result.read_text().split("\n")
    assert lines[0] == word and (word == "sat") == ("g: W = [" in text)
    if word == "sat":
        assert lines[1] == "X real [1,2]" and lines[4] == "Y real [2]" and lines[7] == "Z real [1,2]"
        x, y, w = (np.array([float(v) for v in lines[i : i + 2]]) for i in (2, 5, 11))
        assert np.allclose(random_net((2, 6, 2), 0)(x), y) and np.allclose(random_net((2, 6, 2), 1)(x), w)
        assert abs(y[0] - w[0]) > limit


def test_a_pair_of_inputs_and_a_contradiction(model, networks, tmp_path, capsys):
    text = TWO.replace("isomorphic-to", "equal-to").replace("(assert (== X[0,0] Z[0,0]))", "")
    prop = tmp_path / "p.vnnlib"
    prop.write_text(text + "(assert (and (<= Z[0,0] X[0,0]) (>= Z[0,0] -1) (> W[1] Y[1])))")
    assert main(["prob", str(model), "--vnnlib", str(prop), "--guarantee", "exact", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["verdict"] == "sat" and facts["given_inputs"][0] == pytest.approx(2 * facts["value"], rel=1e-9)
    prop.write_text(TWO + "(assert (and (> Y[0] W[0]) (< Y[0] W[0])))")
    assert main(["prob", *networks, "--vnnlib", str(prop)]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == "unsat" and "rows 1 and 2 contradict each other" in text


@pytest.mark.parametrize("extra", [["--network", "f"], ["--network", "=a"], ["--network", "f=none.npz"]])
def test_networks_are_given_as_name_and_file(law, extra, capsys):
    assert main(["prob", *extra, "--law", str(law), "--event", "y > 0"]) == 2
    assert main(["prob", "--law", str(law), "--event", "y > 0"]) == 2
    assert "--network" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("event", "says", "column"),
    [
        ("argmn == 0", "'argmn' is not known; did you mean argmin? an event speaks of x[i], y[i], argmax, argmin", 0),
        ("y[0] > 0 &&& y[1] > 0", "'&' is not expected here", 11),
        ("y[0] > 0 and and y[1] > 0", "'and' is not expected here", 13),
        ("abs(y[0]", "expected ')' to close abs(, got the end", 8),
    ],
)
def test_events_are_told_what_was_meant(model, law, capsys, event, says, column):
    assert main(["prob", str(model), "--law", str(law), "--event", event]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert says in lines[0] and lines[2] == " " * (4 + column) + "^"


def test_names_are_as_many_as_inputs():
    net, law = rs.Network([(np.eye(8), None)]), rs.Gaussian(np.zeros(8))
    with pytest.raises(rs.errors.InputError, match="names must have 8 names, one each, got 2"):
        rs.probability(net, law, "altitude > 0", names=["a", "altitude"])
    assert rs.probability(net, law, "altitude > 0", names={"altitude": 1}).value == 0.5
    words = [f"name{i}" for i in range(8)] + [f"more{i}" for i in range(12)]
    wide = rs.Network([(np.eye(20), None)])
    with pytest.raises(rs.errors.InputError, match=r"name8?.*, \.\.\.\n"):
        rs.probability(wide, rs.Gaussian(np.zeros(20)), "zzz > 0", names=words)


def test_advice_speaks_of_options(model, law, tmp_path, capsys):
    asked = ["prob", str(model), "--law", str(law), "--event", "y[0] > y[1]", "--guarantee", "sound"]
    assert main([*asked, "--budget", "4 regions"]) == 0
    out = capsys.readouterr().out
    assert "a larger --budget narrows it" in out and "budget=" not in out
    data = tmp_path / "rows.csv"
    data.write_text("a,b,label\n1,2,0\n2,1,1\n")
    certify = ["certify", str(model), "--data", str(data), "--sigma"]
    for rest, says in (
        (["0.1"], "rows.csv has 3 columns but the network takes 2 inputs; name the label column with --target"),
        (["0.1", "--target", "labl"], "has no column 'labl'; did you mean label? its columns are a, b, label"),
        (["abc"], "--sigma must be a number, or several such as 0,0,-1, got 'abc'"),
    ):
        assert main([*certify, *rest]) == 2
        assert says in capsys.readouterr().err


def test_a_plot_names_its_own_options():
    pytest.importorskip("matplotlib").use("Agg")
    regions = rs.regions(rs.Network([(np.eye(2), None), ([[1.0, 1.0]], None)]), (-1, 1))
    with pytest.raises(rs.errors.InputError, match=r"plot_regions takes colour=, output=, masses=.*'values'"):
        rs.plot.plot_regions(regions, values=[1.0])
