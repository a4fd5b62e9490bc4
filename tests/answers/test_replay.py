"""Records of answers: everything they were computed from, through JSON and back, computed again and compared."""

from __future__ import annotations

import copy
import hashlib
import json

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.answers import _record_plain as plain
from reluscope.answers import replay as module
from reluscope.cli import main

NET = random_net((2, 5, 2), seed=3)
LAWS = {
    "gaussian": rs.Gaussian([0.1, -0.2], [[1.0, 0.3], [0.3, 2.0]]),
    "mixture": rs.GaussianMixture([0.3, 0.7], [rs.Gaussian([0.0, 0.0]), rs.Gaussian([1.0, 2.0], 0.5)]),
    "truncated": rs.Truncated(rs.Gaussian([0.0, 0.0]), [-1.0, -np.inf], [2.0, 1.0]),
    "mixture given a box": rs.GaussianMixture(
        [0.3, 0.7], [rs.Gaussian([0.0, 0.0]), rs.Gaussian([1.0, 2.0], 0.5)]
    ).truncated([0.0, -np.inf], np.inf),
    "uniform": rs.Uniform([-1.0, 0.0], [1.0, 2.0]),
    "weights that do not sum to 1 in floats": rs.Mixture(
        [0.39550000000000013, 0.593, 0.0115],
        [rs.Uniform([-1.0, 0.0], [1.0, 2.0]), rs.Gaussian([0.0, 0.0]), rs.Gaussian([1.0, 1.0], 0.3)],
    ),
    "particles": rs.Particles([[0.0, 1.0], [1.0, 0.5], [0.3, -0.2]]),
}
EVENTS = (
    "y[0] > y[1] + 0.1",
    "argmax != argmax at mean and x[0] <= 0.5",
    "unit[0,1] on or J[0,1] > 0.2",
    "0 < y[0] <= 1",
)


def kept(law, event, **asked):
    """A record through JSON."""
    answer = rs.probability(NET, law, event, rng=5, **asked)
    return json.loads(json.dumps(rs.record(NET, law, event, answer, **asked), allow_nan=False))


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("law", LAWS)
def test_exact_answers_are_the_same_to_the_last_bit(law, event):
    record = kept(LAWS[law], event)
    assert record["answer"]["guarantee"] == "exact"
    found = rs.replay(record, NET)
    assert found and found.compared == "bit for bit" and found.notes == ()
    assert found.answer.value == record["answer"]["value"]


@pytest.mark.parametrize("budget", [None, "20000 regions", "0.3s"])
def test_confidence_repeats_bit_for_bit_unless_it_fills_a_time(budget):
    net, law = random_net((8, 30, 30, 1), 0), rs.Gaussian(np.zeros(8))
    asked = {"guarantee": "confidence", "budget": budget}
    record = rs.record(net, law, "y[0] > 0.5", rs.probability(net, law, "y[0] > 0.5", rng=0, **asked), **asked)
    found = rs.replay(record, net)
    assert found and found.compared == ("brackets" if budget == "0.3s" else "bit for bit")
    assert rs.replay(record | {"reluscope": "0.0.1"}, net).compared == "brackets"  # plans of another version


def test_a_budget_in_regions_repeats_bit_for_bit():
    record = kept(LAWS["gaussian"], EVENTS[0], guarantee="sound", budget="40 regions")
    assert record["asked"]["budget"] == "40 regions"
    found = rs.replay(record, NET)
    assert found and found.compared == "bit for bit"


def test_others_are_compared_by_their_brackets():
    record = kept(LAWS["gaussian"], EVENTS[0], guarantee="confidence", budget="0.3s")
    found = rs.replay(record, NET)
    assert found.agrees and found.compared == "brackets" and "depended on time" in found.notes[-1]
    wrong = copy.deepcopy(record)
    wrong["answer"] |= {"value": 1e-9, "lower": 0.0, "upper": 1e-8}
    assert not rs.replay(wrong, NET)
    wrong = copy.deepcopy(kept(LAWS["gaussian"], EVENTS[0]))
    wrong["answer"]["value"] = np.nextafter(wrong["answer"]["value"], 1.0)
    assert not rs.replay(wrong, NET)  # one bit


def test_a_changed_network_is_refused():
    record = kept(LAWS["gaussian"], EVENTS[0])
    other = rs.Network(
        [(a.weight * (1 + 2**-52), a.bias, a.units) for a in NET.layers[:-1]]
        + [(NET.layers[-1].weight, NET.layers[-1].bias)]
    )
    with pytest.raises(rs.InputError, match="net is not the network of the record"):
        rs.replay(record, other)


def test_another_version_is_said():
    record = kept(LAWS["gaussian"], EVENTS[0]) | {"reluscope": "0.0.7"}
    found = rs.replay(record, NET)
    assert found and "recorded with version 0.0.7" in found.notes[0]


def test_a_law_that_cannot_be_stored_is_asked_for(monkeypatch):
    monkeypatch.setattr(rs.Uniform, "to_dict", lambda self: {"law": "of my own", "function": len})
    record = kept(LAWS["uniform"], EVENTS[0])
    assert record["law"] is None
    with pytest.raises(rs.InputError, match=r"record holds no law.*pass law="):
        rs.replay(record, NET)
    assert rs.replay(record, NET, law=LAWS["uniform"])


def test_unknown_draws_are_said():
    law = LAWS["gaussian"]
    asked = {"guarantee": "confidence", "budget": "0.2s"}
    answer = rs.probability(NET, law, EVENTS[0], rng=np.random.default_rng(0), **asked)
    found = rs.replay(rs.record(NET, law, EVENTS[0], answer, **asked), NET)
    assert "not known" in found.notes[0] and found.compared == "brackets"


@pytest.mark.parametrize("part", ["network", "event", "asked", "answer", "law", "reluscope", "record"])
def test_damaged_records_are_refused(part):
    record = kept(LAWS["gaussian"], EVENTS[0])
    for damage in (None, 3, "x", [], {}, {"n_inputs": 2}):
        if part == "reluscope" and damage == "x":
            continue  # any text may be a version
        with pytest.raises(rs.InputError):
            rs.replay({**record, part: damage}, NET)
    with pytest.raises(rs.InputError):
        rs.replay({k: v for k, v in record.items() if k != part}, NET)


@pytest.mark.parametrize("field", ["lower", "upper", "A", "G", "g", "strict", "F"])
def test_damaged_events_are_refused(field):
    record = kept(LAWS["gaussian"], "x[0] > 0.5 and y[0] > 0 and J[0,1] > 0")
    for damage in ("abc", [1.0], [[1, 2]], None, [[0, 99, 1.0]], {"a": 1}):
        broken = copy.deepcopy(record)
        broken["event"]["cases"][0][field] = damage
        with pytest.raises(rs.InputError):
            rs.replay(broken, NET)


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    NET.save("net.npz")
    (tmp_path / "law.json").write_text(json.dumps(LAWS["mixture given a box"].to_dict()))
    assert main(["prob", "net.npz", "--law", "law.json", "--event", EVENTS[0], "--json"]) == 0
    (tmp_path / "answer.json").write_text(capsys.readouterr().out)
    assert main(["replay", "answer.json"]) == 0
    assert "agrees    compared: bit for bit" in capsys.readouterr().out
    facts = json.loads((tmp_path / "answer.json").read_text())
    facts["record"]["answer"]["value"] += 1e-12
    (tmp_path / "other.json").write_text(json.dumps(facts))
    assert main(["replay", "other.json", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["agrees"] is False
    random_net((2, 4, 2), seed=9).save("net.npz")
    assert main(["replay", "answer.json"]) == 2
    assert "not the network of the record" in capsys.readouterr().err
    (tmp_path / "empty.json").write_text("{}")
    assert main(["replay", "empty.json"]) == 2
    assert "holds no record" in capsys.readouterr().err


def test_the_digest_sees_every_number():
    digests = {module.fingerprint(NET)}
    for k, layer in enumerate(NET.layers):
        for what in ("weight", "bias"):
            parts = [[a.weight.copy(), a.bias.copy(), a.units] for a in NET.layers]
            parts[k][0 if what == "weight" else 1].flat[-1] += 1e-9
            digests.add(module.fingerprint(rs.Network([*map(tuple, parts[:-1]), tuple(parts[-1][:2])])))
        assert layer is not None
    assert len(digests) == 1 + 2 * len(NET.layers)


# -- every question ------------------------------------------------------------------------------------------------


LAW = LAWS["gaussian"]
ONE = random_net((2, 5, 1), seed=4)
CREDIT = rs.Network(
    [([[0.5, 0.0, 1.0]], [-1.0])],
    schema=rs.Schema(
        [rs.Column("SEX", "category", levels=["f", "m"]), "income"], [rs.Output("score")], classes=["no", "yes"]
    ),
)
ROWS = {"SEX": ["f", "m", "f", "m"], "income": [0.8, 0.8, 2.0, 2.0]}
CLASSES = rs.GaussianMixture.fit_classes(
    [[0.0, 0.1], [0.4, 1.0], [0.3, -0.5], [2.0, 2.1], [1.4, 1.0], [1.0, 2.0]], list("aaabbb")
)
NEAR = np.array([[0.3, 0.4], [-1.0, 0.2], [2.0, -1.0]])
OTHER = rs.Uniform([-1.0, -1.0], [1.0, 1.0])

# name: (network, law, event, what was asked, how the two are compared)
QUESTIONS = {
    "sensitivity": (NET, LAW, EVENTS[0], {}, "bit for bit"),
    "compare": (NET, LAW, EVENTS[0], {"other_law": OTHER}, "bit for bit"),
    "witness": (NET, LAW, EVENTS[0], {"n": 2}, "inputs"),
    "outputs": (ONE, LAW, None, {}, "bit for bit"),
    "error_rates": (ONE, CLASSES, None, {"threshold": np.array([0.0, 0.5])}, "bit for bit"),
    "error_rates of a pair": (ONE, (LAW, OTHER), None, {"threshold": 0.2}, "bit for bit"),
    "linear_models": (NET, LAW, None, {}, "bit for bit"),
    "linear_models by lines": (NET, LAW, None, {"method": "lines", "budget": "0.3s"}, "brackets"),
    "probable": (NET, LAW, None, {"k": 3}, "bit for bit"),
    "probable by draws": (NET, LAW, None, {"k": 3, "method": "draws"}, "brackets"),
    "spectrum": (NET, LAW, None, {"method": "enumeration"}, "bit for bit"),
    "spectrum by draws": (NET, LAW, None, {"method": "draws", "draws": 500}, "brackets"),
    "change": (NET, LAW, None, {"features": [0]}, "bit for bit"),
    "change with noise": (NET, LAW, None, {"features": [0], "noise": rs.Gaussian([0.1])}, "bit for bit"),
    "change of rows": (CREDIT, ROWS, None, {"features": "SEX"}, "bit for bit"),
    "fairness": (CREDIT, ROWS, None, {"feature": "SEX"}, "bit for bit"),
    "certify": (NET, None, None, {"X": NEAR, "sigma": [0.01, 0.2]}, "bit for bit"),
    "regions": (NET, None, None, {"box": (-1, 1)}, "bit for bit"),
    "regions of a law": (NET, LAW, None, {}, "bit for bit"),
}
BY_NAME = {"regions", "certify"}  # nothing is drawn


def asked_for(case):
    """The answer of a case, and its record through JSON."""
    net, law, event, asked, _ = QUESTIONS[case]
    name = case.split(" ")[0]
    drawn = {} if name in BY_NAME else {"rng": 5}
    first = [a for a in (law, event) if a is not None]
    if case == "regions of a law":
        first, drawn = [], {"law": law}
    if name == "compare":
        first = [law, asked["other_law"], event]
    given = {k: v for k, v in asked.items() if k != "other_law"}
    answer = getattr(rs, name)(net, *first, **given, **drawn)
    return answer, json.loads(json.dumps(rs.record(net, law, event, answer, **asked), allow_nan=False))


def test_every_question_with_an_answer_of_its_own_is_tried():
    assert {q.name for q in module._CALLS.values()} - {"probability"} == {c.split(" ")[0] for c in QUESTIONS}


@pytest.mark.parametrize("case", QUESTIONS)
def test_answers_of_every_question(case):
    net, law, _, _, compared = QUESTIONS[case]
    _, record = asked_for(case)
    assert record["reluscope"] == rs.__version__ and len(record["network"]["sha256"]) == 64
    assert record["status"] == "done" and (case.startswith("witness") or record["guarantee"] is not None)
    assert (record.get("law") is None) == (law is None)
    found = rs.replay(record, net)
    assert found.agrees, found.notes
    assert (found.compared, found.question) == (compared, case.split(" ")[0])
    json.dumps(found.to_dict(), allow_nan=False)


def changed(data):
    """Every number of an answer moved by a little, and by a lot; texts stay."""
    if isinstance(data, dict):
        return {k: changed(v) if k not in ("seed", "level") else v for k, v in data.items()}
    if isinstance(data, list):
        return [changed(v) for v in data]
    return data + 3.0 if isinstance(data, float) else data


@pytest.mark.parametrize("case", [c for c in QUESTIONS if not c.startswith("regions")])
def test_a_changed_answer_is_noticed(case):
    net = QUESTIONS[case][0]
    _, record = asked_for(case)
    wrong = {**record, "answer": changed(record["answer"])}
    found = rs.replay(wrong, net)
    assert not found and found.notes


def test_a_changed_list_of_regions_is_noticed():
    _, record = asked_for("regions")
    record["answer"]["patterns_sha256"] = "0" * 64
    found = rs.replay(record, NET)
    assert not found and "patterns_sha256" in found.notes[-1]


def test_the_digest_of_the_file(tmp_path):
    NET.save(tmp_path / "net.npz")
    loaded = rs.load(tmp_path / "net.npz")
    assert NET.file_sha256 is None
    assert loaded.file_sha256 == hashlib.sha256((tmp_path / "net.npz").read_bytes()).hexdigest()
    assert loaded.then(np.eye(2)).file_sha256 is None  # another network
    answer = rs.probability(loaded, LAW, EVENTS[0], rng=0)
    record = rs.record(loaded, LAW, EVENTS[0], answer)
    assert record["network"]["file_sha256"] == loaded.file_sha256
    assert rs.replay(record, loaded).notes == ()
    NET.save(tmp_path / "net.safetensors")
    assert "another one; its weights are the same" in rs.replay(record, rs.load(tmp_path / "net.safetensors")).notes[0]


def test_what_was_asked_is_checked():
    answer = rs.certify(NET, NEAR, 0.1)
    with pytest.raises(rs.InputError, match="asked must say X"):
        rs.record(NET, None, None, answer, sigma=0.1)
    with pytest.raises(rs.InputError, match=r"asked must be some of X, sigma.*got guarantee"):
        rs.record(NET, None, None, answer, X=NEAR, sigma=0.1, guarantee="sound")
    with pytest.raises(rs.InputError, match="law must be None: certify has none"):
        rs.record(NET, LAW, None, answer, X=NEAR, sigma=0.1)
    with pytest.raises(rs.InputError, match="event must be None: certify has none"):
        rs.record(NET, None, "y[0] > 0", answer, X=NEAR, sigma=0.1)


def test_rows_that_are_too_many_are_asked_for(monkeypatch):
    monkeypatch.setattr(plain, "MOST_NUMBERS", 4)
    _, record = asked_for("certify")
    assert set(record["asked"]["X"]) == {"sha256", "shape"}
    with pytest.raises(rs.InputError, match="pass it as rows="):
        rs.replay(record, NET)
    with pytest.raises(rs.InputError, match="rows are not those of the record"):
        rs.replay(record, NET, rows=NEAR + 1)
    assert rs.replay(record, NET, rows=NEAR)


def test_another_schema_is_said():
    _, record = asked_for("fairness")
    assert any("another schema" in note for note in rs.replay(record, CREDIT.with_schema(classes=["n", "y"])).notes)


def test_commands_write_records(tmp_path, capsys, monkeypatch):
    """Every command that answers a question about a law or about rows: its JSON can be replayed."""
    monkeypatch.chdir(tmp_path)
    NET.save("net.npz")
    (tmp_path / "law.json").write_text(json.dumps(LAW.to_dict()))
    np.savetxt("rows.csv", NEAR, delimiter=",", header="a,b", comments="")
    calls = {
        "certify": ["--data", "rows.csv", "--sigma", ".01,.2"],
        "regions": ["--law", "law.json"],
        "report": ["--law", "law.json", "--event", EVENTS[0], "--budget", "20s", "--out", "page"],
    }
    for name, rest in calls.items():
        main([name, "net.npz", *rest, "--json"])
        said = capsys.readouterr().out
        facts = json.loads(said)
        assert facts["record"]["network"]["file_sha256"] == rs.load("net.npz").file_sha256
        (tmp_path / f"{name}.json").write_text(said)
        assert main(["replay", f"{name}.json", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["agrees"] is True
        if name == "report":
            assert {r["question"] for r in shown["replays"]} == {"probability", "linear_models", "spectrum"}
            assert main(["replay", "page/report.json", "--model", "net.npz"]) == 0


def test_every_json_names_the_version_and_the_files(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ONE.save("net.npz")
    np.savetxt("rows.csv", np.column_stack([NEAR, ONE(NEAR)]), delimiter=",", header="a,b,y", comments="")
    for call in (["info", "net.npz"], ["unwrap", "net.npz", "rows.csv", "--target", "y"]):
        assert main([*call, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["reluscope"] == rs.__version__
        files = [name for name in call if name.endswith((".npz", ".csv"))]
        assert facts["sha256"] == {f: hashlib.sha256((tmp_path / f).read_bytes()).hexdigest() for f in files}
