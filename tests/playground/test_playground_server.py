"""The playground's server: its answers equal the library's, bad questions get one sentence, other sites get nothing."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import reluscope as rs

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx2")
from starlette.testclient import TestClient

from reluscope.limits import Limits
from reluscope.playground import scene, server
from reluscope.playground.session import from_file
from reluscope.playground.worker import BusyError, StaleError, Worker

HOST = "http://127.0.0.1:8474"


@pytest.fixture(scope="module")
def client():
    return TestClient(server.create_app(), base_url=HOST)


def ask(client, kind, status=200, **question):
    found = client.post(f"/api/{kind}", json=question)
    assert found.status_code == status, found.text
    return found.json()


def opened(client, name):
    found = ask(client, "open", example=name)
    return found, found["view"]


def upload(client, net, name="net.npz", status=200):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.npz"
        net.save(path)
        body = path.read_bytes()
    return send(client, body, name, status)


def send(client, body, name, status=200, kind="application/octet-stream"):
    found = client.post("/api/load", params={"name": name}, content=body, headers={"content-type": kind})
    assert found.status_code == status, found.text
    return found.json()


def gaussian(view):
    cov = [s * s if view["vary"] == "all" or i in view["axes"] else 0.0 for i, s in enumerate(view["sd"])]
    return rs.Gaussian(view["at"], cov)


def random_net(*widths, seed=0, name="network"):
    rng = np.random.default_rng(seed)
    layers = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in itertools.pairwise(widths)]
    return rs.Network(layers, name=name)


# -- numbers equal the library's ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["moons", "cocircles"])
@pytest.mark.parametrize("vary", ["own", "shown"])
def test_numbers_equal_those_of_the_library(client, name, vary):
    about, view = opened(client, name)
    built_in = rs.example(name)
    view |= {"vary": vary, "event": "y[0] > 0.5 and x[0] < 0.3"}
    law = built_in.law if vary == "own" else gaussian(view)
    asked = {"network": about["key"], "view": view}

    # The library first: what it compiles does not count against the seconds that the page gives itself.
    direct = rs.probability(built_in.network, law, view["event"])
    out, linear_models = rs.outputs(built_in.network, law), rs.linear_models(built_in.network, law)

    found = ask(client, "event", **asked)["answer"]
    assert direct.guarantee == "exact"
    for key in ("value", "lower", "upper", "guarantee"):
        assert found[key] == getattr(direct, key)
    assert found["text"] == str(direct)

    found = ask(client, "outputs", **asked)
    assert found["guarantee"] == out.guarantee == "exact"
    row = found["rows"][0]
    assert row["mean"]["value"] == out.mean.value[0]
    assert [row["mean"]["lower"], row["mean"]["upper"]] == [out.mean.lower[0], out.mean.upper[0]]
    assert row["sd"]["value"] == np.sqrt(out.cov.value[0, 0])
    assert row["sd"]["lower"] <= row["sd"]["value"] <= row["sd"]["upper"]

    found = ask(client, "linear_models", **asked)
    assert found["regions"] == linear_models.support_size
    assert found["complete"]
    top = linear_models.top(10)
    assert [r["mass"] for r in found["rows"]] == top.mass.value.tolist()
    assert [r["lower"] for r in found["rows"]] == top.mass.lower.tolist()
    assert [r["upper"] for r in found["rows"]] == top.mass.upper.tolist()
    assert found["others"] == top.remainder


def test_the_picture_is_the_regions_of_the_library(client):
    about, view = opened(client, "cocircles")
    found = ask(client, "picture", network=about["key"], view=view)
    regions = rs.regions(rs.example("cocircles").network, (view["lower"], view["upper"]), progress=None)
    assert found["count"] == len(regions)
    assert found["stopped"] == ""
    points = np.array(found["points"]).reshape(-1, 2)
    for i in range(0, len(regions), 97):
        np.testing.assert_array_equal(points[found["offsets"][i] : found["offsets"][i + 1]], regions.vertices(i))
    np.testing.assert_array_equal(np.reshape(found["C"], (-1, 2)), regions.C[:, 0])
    np.testing.assert_array_equal(found["d"], regions.d[:, 0])


def test_a_plane_through_more_inputs_is_a_slice(client):
    about, view = opened(client, "controller")
    net = rs.example("controller").network
    view |= {"axes": [3, 1], "at": [-0.3, 0.0, 0.8, 0.1, 0.2], "lower": [-0.2, -0.3], "upper": [0.4, 0.2]}
    view |= {"colour": "smallest", "vary": "shown"}
    found = ask(client, "picture", network=about["key"], view=view)
    assert found["outputs"] == [0, 1, 2, 3, 4]
    C, d = np.reshape(found["C"], (-1, 5, 2)), np.reshape(found["d"], (-1, 5))
    points, offsets = np.reshape(found["points"], (-1, 2)), found["offsets"]
    area = 0.0
    for i in range(found["count"]):
        shape = points[offsets[i] : offsets[i + 1]]
        middle = shape.mean(axis=0)
        x = np.array(view["at"])
        x[[3, 1]] = middle
        np.testing.assert_allclose(C[i] @ middle + d[i], net(x), rtol=0, atol=1e-9)
        a, b = shape, np.roll(shape, -1, axis=0)
        area += 0.5 * float((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum())
    assert area == pytest.approx(0.6 * 0.5)
    # Inputs that are held have no variance, so the law is seen in two dimensions and everything is exact.
    answer = ask(client, "event", network=about["key"], view=view)["answer"]
    direct = rs.probability(net, gaussian(view), view["event"])
    assert (answer["value"], answer["guarantee"]) == (direct.value, "exact")


def test_all_inputs_vary_with_a_budget(client):
    about, view = opened(client, "controller")
    view |= {"vary": "all", "event": "argmin == 0"}
    built_in = rs.example("controller")
    begin = time.perf_counter()
    found = ask(client, "event", network=about["key"], view=view | {"live": True})["answer"]
    assert time.perf_counter() - begin < 20
    direct = rs.probability(built_in.network, gaussian(view), "argmin == 0", level=0.999, budget="1s", rng=1)
    assert found["guarantee"] == "confidence"
    assert found["level"] == 0.99
    # two intervals at 99 % and 99.9 % miss each other far less than once in 100
    assert found["lower"] <= direct.upper
    assert direct.lower <= found["upper"]
    rows = ask(client, "outputs", network=about["key"], view=view)["rows"]
    assert len(rows) == 5
    linear_models = ask(client, "linear_models", network=about["key"], view=view)
    assert linear_models["asked"] == "lines"
    assert 0 < linear_models["remainder"] < 0.2


def test_proofs_wait_until_the_hand_rests(client, monkeypatch):
    from reluscope.answers import probability

    about, view = opened(client, "controller")
    view |= {"vary": "all", "event": "argmin == 0"}
    asked, real = [], probability._proved
    monkeypatch.setattr(probability, "_proved", lambda *a, **k: asked.append(1) or real(*a, **k))
    found = ask(client, "event", network=about["key"], view=view | {"live": True})["answer"]
    assert found["guarantee"] == "confidence" and not asked
    ask(client, "event", network=about["key"], view=view)
    assert asked


def test_a_point(client):
    about, view = opened(client, "moons")
    net = rs.example("moons").network
    spot = [0.4, -0.2]
    found = ask(client, "point", network=about["key"], view=view, point=spot)
    assert found["outputs"] == [{"output": 0, "value": float(net(spot)[0])}]
    local = net.local([spot])
    assert found["C"] == local.C[0, 0].tolist()
    assert found["d"] == local.d[0, 0]
    linear_models = rs.linear_models(net, rs.example("moons").law)
    assert found["mass"]["value"] == linear_models.mass(net.pattern(spot)).value
    regions = rs.regions(net, (view["lower"], view["upper"]), progress=None)
    assert found["region"] == regions.find(spot)
    on = [int(net.pattern(spot)[a:b].sum()) for a, b in itertools.pairwise(net.offsets)]
    for line, units in zip(found["pattern"], on, strict=True):
        assert f"{units} of 4 units on" in line


def test_colour_by_mass_gives_the_mass_of_each_region(client):
    about, view = opened(client, "moons")
    view |= {"vary": "shown", "colour": "mass", "sd": [0.01, 0.01]}
    found = ask(client, "linear_models", network=about["key"], view=view)
    net = rs.example("moons").network
    regions = rs.regions(net, (view["lower"], view["upper"]), progress=None)
    linear_models = rs.linear_models(net, gaussian(view))
    assert found["drawn"] == [linear_models.mass(p).value for p in regions.pattern]
    assert 0.0 in found["drawn"]  # so narrow a law does not reach all of them


def test_heaviest_regions_point_into_the_picture(client):
    about, view = opened(client, "moons")
    found = ask(client, "linear_models", network=about["key"], view=view)
    net = rs.example("moons").network
    regions = rs.regions(net, (view["lower"], view["upper"]), progress=None)
    top = rs.linear_models(net, rs.example("moons").law).top(10)
    for row, pattern in zip(found["rows"], top.pattern, strict=True):
        np.testing.assert_array_equal(regions.pattern[row["region"]], pattern)


# -- the event's limit ----------------------------------------------------------------------------------------------


def on_both_sides(net, at, axes, segments, event):
    """The event on the two sides of the middle of each segment."""
    found = rs.event(event, net.n_inputs, net.n_outputs)
    middle = 0.5 * (segments[:, :2] + segments[:, 2:])
    way = segments[:, 2:] - segments[:, :2]
    normal = 1e-5 * np.column_stack([-way[:, 1], way[:, 0]]) / np.linalg.norm(way, axis=1)[:, None]
    sides = []
    for sign in (-1, 1):
        x = np.tile(at, (len(middle), 1))
        x[:, axes] = middle + sign * normal
        sides.append(found.holds(net, x))
    return sides


@pytest.mark.parametrize(
    "event", ["y[0] > 0", "y[0] > 1 and x[0] < 0.3 or x[1] >= 1", "J[0,0] < 0", "unit[0,0] on", "abs(y[0]) < 2"]
)
def test_the_limit_of_an_event_separates_it(client, event):
    about, view = opened(client, "moons")
    net = rs.example("moons").network
    limit = ask(client, "event", network=about["key"], view=view | {"event": event})["place"]["limit"]
    segments = np.reshape(limit, (-1, 4))
    assert len(segments)
    inside, outside = on_both_sides(net, np.array(view["at"]), [0, 1], segments, event)
    assert (inside != outside).all()
    # Nothing is missing: wherever neighbouring points of a grid differ, a piece of the limit is near.
    sides = [np.linspace(lo, hi, 80) for lo, hi in zip(view["lower"], view["upper"], strict=True)]
    grid = np.stack(np.meshgrid(*sides, indexing="ij"), -1)
    holds = rs.event(event, 2, 1).holds(net, grid.reshape(-1, 2)).reshape(80, 80)
    i, j = np.nonzero(holds[1:] != holds[:-1])
    changes = 0.5 * (grid[i, j] + grid[i + 1, j])
    a, b = segments[:, :2], segments[:, 2:]
    t = np.clip(((changes[:, None] - a) * (b - a)).sum(-1) / ((b - a) ** 2).sum(-1), 0, 1)
    gap = np.linalg.norm(changes[:, None] - (a + t[..., None] * (b - a)), axis=-1).min(axis=1)
    assert gap.max() <= sides[0][1] - sides[0][0]


def test_an_event_without_a_limit_in_view(client):
    about, view = opened(client, "moons")
    for event in ("y[0] > 1e6", "y[0] < 1 and y[0] > 2"):
        assert ask(client, "event", network=about["key"], view=view | {"event": event})["place"]["limit"] == []


# -- one input, many inputs, large networks -------------------------------------------------------------------------


def test_one_input_is_a_curve(client):
    net = random_net(1, 6, 5, 2, seed=3)
    about = upload(client, net, "one.npz")
    view = about["view"] | {"event": "y[0] > y[1]"}
    assert view["axes"] == [0]
    found = ask(client, "picture", network=about["key"], view=view | {"colour": "largest"})
    ends = np.reshape(found["points"], (-1, 2))
    assert ends[0, 0] == view["lower"][0]
    assert ends[-1, 1] == view["upper"][0]
    np.testing.assert_array_equal(ends[1:, 0], ends[:-1, 1])
    C, d = np.reshape(found["C"], (-1, 2)), np.reshape(found["d"], (-1, 2))
    middle = ends.mean(axis=1)
    np.testing.assert_allclose(C * middle[:, None] + d, net(middle[:, None]), atol=1e-12)
    event = ask(client, "event", network=about["key"], view=view)
    direct = rs.probability(net, rs.Gaussian([0.0], [1.0]), "y[0] > y[1]")
    assert event["answer"]["value"] == direct.value
    x = np.linspace(view["lower"][0], view["upper"][0], 20_001)[:, None]
    y = net(x)
    changes = x[1:, 0][np.diff(y[:, 0] > y[:, 1])]
    np.testing.assert_allclose(event["place"]["limit"], changes, atol=5e-4)
    point = ask(client, "point", network=about["key"], view=view, point=[0.25])
    assert point["outputs"][1]["value"] == net([0.25])[1]


def test_many_inputs_begin_with_those_that_matter(client):
    rng = np.random.default_rng(5)
    W = 0.01 * rng.normal(size=(20, 30))
    W[:, [7, 22]] *= 200
    net = rs.Network([(W, rng.normal(size=20)), (rng.normal(size=(1, 20)), [0.0])])
    assert upload(client, net)["view"]["axes"] == [7, 22]


def test_a_network_too_large_for_the_page_is_told_so_at_once(client):
    rng = np.random.default_rng(0)
    net = rs.Network([(rng.normal(size=(3000, 20)), rng.normal(size=3000)), (rng.normal(size=(2, 3000)), np.zeros(2))])
    about = upload(client, net)
    asked = {"network": about["key"], "view": about["view"]}
    begin = time.process_time()
    for kind in ("picture", "outputs", "linear_models"):
        assert "too large" in ask(client, kind, 400, **asked)["error"]
    assert "too large" in ask(client, "event", **asked)["answer"]["error"]
    assert ask(client, "point", **asked, point=[0.0, 0.0])["outputs"][0]["value"] == net(np.zeros(20))[0]
    assert time.process_time() - begin < 20


def test_three_inputs_that_all_vary_are_exact_while_cells_are_few(client):
    net = random_net(3, 6, 5, 1, seed=4)
    about = upload(client, net)
    view = about["view"] | {"vary": "all", "event": "y[0] > 0 and x[2] < 1"}
    asked = {"network": about["key"], "view": view}
    law = gaussian(view)
    answer = ask(client, "event", **asked)["answer"]
    assert (answer["guarantee"], answer["value"]) == ("exact", rs.probability(net, law, view["event"]).value)
    out = ask(client, "outputs", **asked)
    assert (out["guarantee"], out["rows"][0]["mean"]["value"]) == ("exact", rs.outputs(net, law).mean.value[0])
    many = upload(client, random_net(3, 40, 1))  # 10,701 cells: found quickly, but long to measure
    asked = {"network": many["key"], "view": many["view"] | {"vary": "all", "live": True}}
    assert ask(client, "outputs", **asked)["asked"] == "lines"


def test_a_wide_first_layer_in_three_dimensions_goes_to_lines_at_once(client):
    about = upload(client, random_net(3, 80, 1))  # up to 85,401 cells from the first layer alone
    asked = {"network": about["key"], "view": about["view"] | {"vary": "all", "live": True}}
    assert ask(client, "outputs", **asked)["asked"] == "lines"
    assert ask(client, "linear_models", **asked)["asked"] == "lines"
    exact = {"network": about["key"], "view": about["view"] | {"vary": "shown"}}
    assert ask(client, "outputs", **exact)["asked"] == "auto"


def test_a_network_of_very_many_inputs_is_refused_when_it_is_opened(client):
    net = rs.Network([(np.ones((2, 20_000)), [0.0, 0.0]), (np.ones((1, 2)), [0.0])])
    assert "10,000 inputs" in upload(client, net, status=400)["error"]


def test_a_crowded_view_is_cut_short_or_refused(client):
    net = random_net(2, 450, 1)
    about = upload(client, net)
    wide = about["view"] | {"lower": [-50.0, -50.0], "upper": [50.0, 50.0]}
    assert "zoom in" in ask(client, "picture", 400, network=about["key"], view=wide)["error"]
    # the first view is narrower
    found = ask(client, "picture", network=about["key"], view=about["view"])
    assert 0 < found["count"] <= 4000
    assert found["stopped"] == ""


# -- Python ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "vary"), [("moons", "own"), ("moons", "shown"), ("controller", "shown"), ("digits", "all")]
)
def test_the_python_runs_and_gives_the_same_numbers(client, capsys, name, vary):
    about, view = opened(client, name)
    asked = {"network": about["key"], "view": view | {"vary": vary}}
    numbers = {kind: ask(client, kind, **asked) for kind in ("event", "outputs", "linear_models", "picture")}
    methods = [numbers["outputs"]["asked"], numbers["linear_models"]["asked"]]
    code = ask(client, "code", **asked, methods=methods)["python"]
    scope: dict = {}
    exec(compile(code, "page.py", "exec"), scope)
    assert capsys.readouterr().out
    assert len(scope["regions"]) == numbers["picture"]["count"]
    answer = numbers["event"]["answer"]
    assert scope["answer"].guarantee == answer["guarantee"]
    if answer["guarantee"] == "exact":
        assert scope["answer"].value == answer["value"]
        assert scope["out"].mean.value[0] == numbers["outputs"]["rows"][0]["mean"]["value"]
        assert scope["models"].top(10).mass.value.tolist() == [r["mass"] for r in numbers["linear_models"]["rows"]]
    else:  # the same seed, but as many lines as the time allows
        assert scope["answer"].lower <= answer["upper"]
        assert answer["lower"] <= scope["answer"].upper


def test_the_python_of_a_file_quotes_what_it_is_given(client, tmp_path, monkeypatch):
    name = 'it\'s "odd"; print(1).npz'
    net = random_net(3, 5, 2)
    about = upload(client, net, name)
    view = about["view"] | {"event": "y[0] > 0 and x[1] < 1"}
    code = ask(client, "code", network=about["key"], view=view, methods=["auto", "auto"])["python"]
    monkeypatch.chdir(tmp_path)
    net.save(tmp_path / "copy.npz")
    (tmp_path / "copy.npz").rename(tmp_path / name)
    scope: dict = {}
    exec(compile(code, "page.py", "exec"), scope)
    assert scope["answer"].value == ask(client, "event", network=about["key"], view=view)["answer"]["value"]
    evil = view | {"event": "'); raise SystemExit('"}
    code = ask(client, "code", network=about["key"], view=evil, methods=["auto", "auto"])["python"]
    assert repr(evil["event"]) in code


# -- bad questions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"axes": [0]}, "axes"),
        ({"axes": [0, 0]}, "two different"),
        ({"axes": [0, 2]}, "axes"),
        ({"axes": "01"}, "axes"),
        ({"at": [0.0]}, "at must be a list of 2"),
        ({"at": [0.0, float("nan")]}, "finite"),
        ({"at": [0.0, float("inf")]}, "finite"),
        ({"at": ["a", "b"]}, "real numbers"),
        ({"at": [1e200, 0.0]}, "1e100"),
        ({"at": [10**400, 0]}, "at"),
        ({"sd": [1.0, -1.0]}, "sd must be positive"),
        ({"sd": [1.0, -1.0], "vary": "shown"}, "negative"),
        ({"layers": 4}, "layers"),
        ({"layers": 1, "unit": 4}, "unit"),
        ({"sd": None}, "sd must be a list"),
        ({"lower": [5.0, 5.0], "upper": [1.0, 1.0]}, "below"),
        ({"vary": "some"}, "vary"),
        ({"colour": "pink"}, "colour"),
        ({"output": 1}, "output"),
        ({"output": 0.5}, "output"),
        ({"event": 3}, "event"),
        ({"event": "y" * 5000}, "event"),
    ],
)
def test_a_wrong_view_is_one_sentence(client, wrong, told):
    about, view = opened(client, "moons")
    body = json.dumps({"network": about["key"], "view": view | wrong})
    found = client.post("/api/event", content=body, headers={"content-type": "application/json"})
    assert found.status_code == 400
    assert told in found.json()["error"]


def test_a_wrong_event_is_told_beside_the_numbers(client):
    about, view = opened(client, "moons")
    for event in ("y[0] >> 0", "y[7] > 0", "z < 1", "", "__import__('os')", "argmax == 5"):
        found = ask(client, "event", network=about["key"], view=view | {"event": event})
        assert found["answer"]["error"]
        assert found["ellipses"]


def test_other_wrong_questions(client):
    about, view = opened(client, "moons")
    key = about["key"]
    assert "one of" in ask(client, "open", 400, example="sun")["error"]
    assert "one of" in ask(client, "open", 400, example=["moons"])["error"]
    assert "no longer open" in ask(client, "open", 400, network="nothing")["error"]
    assert "no longer open" in ask(client, "event", 400, network={"a": 1}, view=view)["error"]
    assert "one of" in ask(client, "event", 400, network="example-../x", view=view)["error"]
    assert "object" in ask(client, "event", 400, network=key, view=[1])["error"]
    assert "point" in ask(client, "point", 400, network=key, view=view, point=[1.0])["error"]
    assert "point" in ask(client, "point", 400, network=key, view=view)["error"]
    assert "methods" in ask(client, "code", 400, network=key, view=view, methods=["auto", "import os"])["error"]
    assert "turn" in ask(client, "event", 400, network=key, view=view, turn=-1)["error"]
    assert "page" in ask(client, "event", 400, network=key, view=view, page="x" * 100)["error"]
    json_type = {"content-type": "application/json"}
    for body in (b"", b"{", b"[1]", b"\xff", b"[" * 100_000):
        assert client.post("/api/event", content=body, headers=json_type).status_code == 400
    assert client.post("/api/event", content=b" " * (2 << 20), headers=json_type).status_code == 413
    assert client.post("/api/event", content=b"{}").status_code == 400  # not JSON by its own word
    assert client.get("/api/event").status_code == 405
    assert client.get("/nowhere").status_code == 404
    assert client.get("/../session.py").status_code == 404


@pytest.mark.parametrize(
    ("body", "name", "told"),
    [
        (b"not a model", "a.npz", "a.npz"),
        (b"not a model", "a.onnx", "a.onnx"),
        (b"", "a.npz", "a.npz"),
        (b"\x80\x04K\x01.", "model.pkl", "pickle"),
        (b"x", "model.xyz", "model.xyz"),
        (b"x", "model", "must end in"),
        (b"x", "", "must end in"),
        (b"x", "../../etc/a.npz", "a.npz"),
    ],
)
def test_broken_files_are_refused_and_removed(client, tmp_path, monkeypatch, body, name, told):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = send(client, body, name, 400)
    assert told in found["error"]
    assert "reluscope-" not in found["error"]
    assert not list(tmp_path.iterdir())


def test_a_file_is_removed_once_it_is_read(client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    net = random_net(2, 4, 1)
    buffer = io.BytesIO()
    np.savez(buffer, **{"0.weight": net.layers[0].weight, "0.bias": net.layers[0].bias,
                        "1.weight": net.layers[1].weight, "1.bias": net.layers[1].bias})  # fmt: skip
    found = send(client, buffer.getvalue(), "plain.npz")
    assert found["title"] == "plain.npz"
    assert not list(tmp_path.iterdir())
    assert send(client, buffer.getvalue(), "plain.npz", 400, kind="text/plain")["error"]


def test_a_huge_body_is_refused_by_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    small = TestClient(server.create_app(limits=Limits(file_bytes=1000)), base_url=HOST)
    assert "1,000 bytes" in send(small, b"x" * 1001, "a.npz", 413)["error"]

    def parts():  # no length is told
        for _ in range(10):
            yield b"x" * 500

    assert "1,000 bytes" in send(small, parts(), "a.npz", 413)["error"]
    assert not list(tmp_path.iterdir())


def test_only_the_last_few_networks_stay_open(client):
    first = upload(client, random_net(2, 3, 1))["key"]
    assert ask(client, "open", network=first)["key"] == first
    for seed in range(7):
        upload(client, random_net(2, 3, 1, seed=seed))
    assert "no longer open" in ask(client, "open", 400, network=first)["error"]


def test_a_given_file_is_offered_and_stays(tmp_path):
    random_net(2, 3, 1).save(tmp_path / "mine.npz")
    given = from_file(tmp_path / "mine.npz", "mine.npz")
    own = TestClient(server.create_app(given), base_url=HOST)
    start = ask(own, "start")
    assert start["given"] == {"key": given.key, "title": "mine.npz"}
    assert start["examples"] == ["moons", "cocircles", "controller", "digits"]
    for seed in range(8):
        upload(own, random_net(2, 3, 1, seed=seed))
    assert ask(own, "open", network=given.key)["title"] == "mine.npz"


# -- who may ask ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8474", "127.0.0.1.evil.example", "", "10.0.0.1:8474"])
def test_other_hosts_get_nothing(client, host):
    for path in ("/", "/page.js"):
        found = client.get(path, headers={"host": host})
        assert found.status_code == 403
        assert "<html" not in found.text


@pytest.mark.parametrize("host", ["127.0.0.1:8474", "localhost:9000", "LOCALHOST", "[::1]:8474"])
def test_its_own_names_are_answered(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


def test_an_address_is_answered_where_all_are_bound():
    every = TestClient(server.create_app(host="0.0.0.0"), base_url=HOST)
    assert every.get("/", headers={"host": "10.0.0.1:8474"}).status_code == 200
    assert every.get("/", headers={"host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8474"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_origins_may_not_ask(client, headers):
    assert client.post("/api/open", json={"example": "moons"}, headers=headers).status_code == 403
    body = {"content-type": "application/octet-stream"} | headers
    assert client.post("/api/load?name=a.npz", content=b"x", headers=body).status_code == 403


def test_the_page_itself_may_ask(client):
    headers = {"origin": HOST, "sec-fetch-site": "same-origin"}
    assert client.post("/api/open", json={"example": "moons"}, headers=headers).status_code == 200


def test_every_answer_carries_the_strict_headers(client):
    for found in (client.get("/"), client.get("/page.js"), client.get("/x"), client.post("/api/start", json={}),
                  client.get("/", headers={"host": "evil.example"})):  # fmt: skip
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in found.headers
    assert client.options("/api/open").status_code == 405


def test_the_page_needs_nothing_from_elsewhere(client):
    for path in server._STATIC:
        text = client.get(path).text.replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "innerHTML" not in text
        assert "eval(" not in text
    page = client.get("/").text
    assert "style=" not in page
    assert "onclick" not in page


# -- one thing at a time --------------------------------------------------------------------------------------------


def test_questions_that_were_replaced_are_dropped():
    async def run():
        worker, gate, done = Worker(), threading.Event(), []

        def slow():
            gate.wait(10)
            return b"slow"

        def job(n):
            def do():
                done.append(n)
                return str(n).encode()

            return do

        waiting = [asyncio.create_task(worker.do(slow, page="p", kind="a", turn=1, seconds=10))]
        await asyncio.sleep(0.05)
        waiting += [
            asyncio.create_task(worker.do(job(n), page=page, kind="b", turn=n, seconds=10))
            for page, n in (("p", 2), ("p", 3), ("q", 1), ("p", 4))
        ]
        await asyncio.sleep(0.05)
        gate.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert found[0] == b"slow"
        assert isinstance(found[1], StaleError)
        assert isinstance(found[2], StaleError)
        assert found[3:] == [b"1", b"4"]
        assert done == [1, 4]

    asyncio.run(run())


def test_a_long_question_is_answered_with_patience():
    async def run():
        worker, gate = Worker(), threading.Event()
        with pytest.raises(BusyError):
            await worker.do(lambda: str(gate.wait(10)).encode(), seconds=0.05)
        gate.set()
        assert await worker.do(lambda: b"fine", seconds=5) == b"fine"

    asyncio.run(run())


def test_an_error_inside_is_one_sentence_and_the_next_question_is_answered(client, monkeypatch, caplog):
    about, view = opened(client, "moons")

    def broken(*_):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(scene.Scenes, "event", broken)
    found = ask(client, "event", 500, network=about["key"], view=view)
    assert found == {"error": "something went wrong inside: ZeroDivisionError"}
    monkeypatch.undo()
    assert ask(client, "event", network=about["key"], view=view)["answer"]["value"]


# -- the command ----------------------------------------------------------------------------------------------------


def test_without_the_extra_one_error_names_it(monkeypatch, capsys):
    from reluscope.cli import main

    monkeypatch.setitem(sys.modules, "starlette", None)
    assert main(["playground", "--no-browser"]) == 2
    assert "pip install 'reluscope[web]'" in capsys.readouterr().err


def test_answers_do_not_wait_for_acknowledgements():
    """Of two packets the second would wait 40 ms for the answer to the first; connections inherit the option."""
    import socket

    from reluscope.commands.playground import _listener

    with _listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_bad_options(capsys, tmp_path):
    from reluscope.cli import main

    assert main(["playground", "--port", "70000", "--no-browser"]) == 2
    assert "--port" in capsys.readouterr().err
    assert main(["playground", "--host", "203.0.113.7", "--no-browser"]) == 2
    assert "cannot listen" in capsys.readouterr().err
    assert main(["playground", str(tmp_path / "none.npz"), "--no-browser"]) == 2
    assert "none.npz" in capsys.readouterr().err


def test_nothing_of_it_is_imported_before_it_is_asked_for():
    code = (
        "import sys, reluscope.cli; reluscope.cli._parser(); "
        "print([m for m in sys.modules if m.split('.')[0] in ('starlette', 'uvicorn', 'numba') or 'playground.' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.strip().replace("'", '"')) in ([], ["reluscope.commands.playground."])


def test_linear_models_go_by_the_names_of_plain_numbers():
    """A name with a unit or a scale of its own would say a value that the formula does not have."""
    from reluscope.playground.words import function_in_words

    net = rs.Network([([[1.0, -2.0]], [0.0])]).with_schema(
        rs.Schema([rs.Column("speed"), rs.Column("range", unit="ft", scale=0.001)], [rs.Output("turn")])
    )
    said = function_in_words(net, np.array([1.0, -2.0]), 0.5, 0, np.array([1.0, 1.0]))
    assert said == "turn = 0.5 + 1 speed − 2 x[1]"
    many = random_net(6, 3, 1)  # of many inputs, those that move the output most
    said = function_in_words(many, np.arange(6.0), 0.0, 0, np.ones(6))
    assert said == "y[0] = 0 + 5 x[5] + 4 x[4] + 3 x[3] + 2 x[2] … (1 more)"
    assert (
        function_in_words(rs.example("moons").network, np.ones(2), -1.0, 0, np.ones(2)) == "y[0] = −1 + 1 x[0] + 1 x[1]"
    )
