"""One event, placed once: all engines read the same record and agree; there is one disjunctive normal form."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import reluscope as rs
from nets import random_net
from reluscope.answers._event_mass import component_share
from reluscope.budget import Budget
from reluscope.events import Event, as_event
from reluscope.events.placed import place, place_parts, place_together
from reluscope.measure.lines import Request, integrate
from reluscope.measure.rare import rare_probability
from reluscope.measure.shared import ray_rows
from reluscope.measure.sound import bound_event

TEXT = "(y[0] > y[1] and x[0] + x[1] <= 0.5) or (x[0] > 0.2 and y[1] >= 0.1 and x[1] < 1) or (y[0] < -2 and x[0] <= 3)"
LAWS = {
    "gaussian": rs.Gaussian([0.1, -0.2]),
    "uniform": rs.Uniform([-1.0, -1.0], [1.0, 1.0]),
    "truncated": rs.Truncated(rs.Gaussian([0.0, 0.0]), [-1.0, -2.0], [2.0, 1.0]),
}


@pytest.mark.parametrize("name", LAWS)
def test_all_engines_agree_on_one_placed_event(name):
    """Input rows, strict rows and several cases; the exact walk is the reference for the others."""
    net, law = random_net((2, 8, 6, 2), 3), LAWS[name]
    event = as_event(TEXT, net)
    placed = place(net, law, event)
    assert placed.n_cases > 1 and placed.network.n_outputs > net.n_outputs and placed.strict.any()
    exact = sum(c.weight * component_share(c, placed, Budget()).value for c in placed.components)
    assert 0.05 < exact < 0.95
    parts = place_parts(net, law, event)
    assert sum(p.mass * component_share(c, p, Budget()).value for p in parts for c in p.components) == pytest.approx(
        exact, abs=1e-10
    )
    X = law.sample(20_000, 0)
    inside = event.holds(net, X)
    assert (placed.contains(placed.network(X), np.zeros((len(X), 0))) == inside).all()
    assert abs(inside.mean() - exact) < 5 * np.sqrt(0.25 / len(X))
    sound = bound_event(net, law, event, budget="20000 regions")
    assert sound.lower <= exact <= sound.upper < exact + 0.05
    for request in (Request(events=(placed,)), Request(events=(event,))):
        for method in ("lines", "points"):
            found = integrate(net, law, request, lines=1 << 12, method=method, level=0.9999, rng=0).events
            assert found.lower[0] <= exact <= found.upper[0] < exact + 0.1
    rays = rare_probability(net, law, event, relative=0.05, level=0.9999, budget="3s", rng=0)
    assert rays.lower <= exact <= rays.upper
    # Rays see the same event without tracing what is carried.
    component = placed.components[0]
    rows = ray_rows(placed, component)
    assert rows.net.n_units == net.n_units and not rows.plain
    U = component.to_u(X[:2000])
    assert ((rows.margin(U, np.ones(len(rows.bound))) <= 0) == inside[:2000]).all()
    assert rs.witness(net, law, event, rng=0, budget="2s")


def test_features_are_placed_too():
    net, law = random_net((2, 7, 5, 2), 1), LAWS["gaussian"]
    event = as_event("(unit[0,3] on and y[0] > J[0,1]) or (x[0] >= 1 and norm(J) < 2)", net)
    placed = place(net, law, event)
    X = law.sample(5000, 0)
    Z, f = placed.network(X), placed.features(placed.network.pattern(X))
    assert (placed.contains(Z, f) == event.holds(net, X)).all()
    exact = component_share(placed.components[0], placed, Budget()).value
    assert abs(event.holds(net, law.sample(200_000, 1)).mean() - exact) < 0.006


def test_what_the_law_implies_is_left_out():
    net = random_net((2, 4, 2), 0)
    law = rs.Uniform([0.0, 0.0], [1.0, 1.0])
    placed = place(net, law, as_event("0 <= x[0] <= 1 and x[0] + x[1] <= 3 and y[0] > 0", net))
    assert placed.network is net and len(placed.g) == 1
    assert place(net, law, as_event("x[0] > 1 and y[0] > 0", net)).n_cases == 0
    assert place(net, law, as_event("x[0] + x[1] > 3 or x[1] < -1", net)).n_cases == 0
    sure = place(net, law, as_event("x[0] >= 0", net))
    assert sure.everything and not sure.filled.everything and len(sure.filled.g) == 1
    cut = place(net, law, as_event("0.2 <= x[0] <= 0.5 and y[0] > 0", net), cut=True)
    assert cut.within[0].tolist() == [0.2, -np.inf] and len(cut.g) == 1
    assert place(net, LAWS["gaussian"], as_event("x[0] <= 0.5 and y[0] > 0", net), cut=True).within is None


def test_events_placed_together_share_one_network():
    net, law = random_net((2, 4, 2), 0), LAWS["gaussian"]
    events = [as_event(text, net) for text in ("x[0] < 1", "x[0] > 0 and y[0] > 0", "y[0] > y[1]")]
    placed = place_together(net, law, events)
    assert len({id(p.network) for p in placed}) == 1
    found = integrate(net, law, Request(events=events, marginals=True, patterns=16, moments=True), lines=256, rng=0)
    plain = integrate(net, law, Request(marginals=True, patterns=16, moments=True), lines=256, rng=0)
    assert found.events.value.shape == (3,) and found.mean.value.shape == plain.mean.value.shape
    assert found.marginals.value.shape == plain.marginals.value.shape
    assert found.patterns.pattern.shape[1] == net.n_units
    with pytest.raises(rs.InputError, match="placed together"):
        integrate(net, law, Request(events=[placed[0], events[1]]), lines=16)


def test_sparse_layers_stay_sparse():
    rng = np.random.default_rng(0)
    weight = sparse.random_array((300, 400), density=0.005, rng=rng, format="csr")
    net = rs.Network(
        [(weight, np.zeros(300), "relu"), (weight[:, :300], np.zeros(300), "relu"), (np.ones((1, 300)), [0.0])]
    )
    assert sparse.issparse(net.layers[0].weight)
    placed = place(net, rs.Gaussian(np.zeros(400)), as_event("x[3] + x[4] < 1 and x[0] > 0 and y < 5", net))
    assert [sparse.issparse(a.weight) for a in placed.network.layers[:2]] == [True, True]
    X = rng.normal(size=(5, 400))
    z = placed.network(X)
    np.testing.assert_allclose(z[:, :1], net(X), rtol=1e-12)
    np.testing.assert_allclose(np.sort(z[:, 1:]), np.sort(np.stack([X[:, 3] + X[:, 4], X[:, 0]], axis=1)))


def test_there_is_one_disjunctive_normal_form_and_one_record():
    """Only `events` builds conjunctions, cases and networks that carry inputs."""
    source = Path(rs.__file__).parent
    home = {
        r"class (Event|Case)\b": ["events/record.py"],
        r"class (Row|Join|_Row|_Join)\b": ["events/dnf.py"],
        r"def (disjuncts|_dnf|_disjuncts|_postorder)\b": ["events/dnf.py"],
        r"class \w*(CaseRows|PropertyRows|FunctionCase|Question|Property)\b": [],
        r"def (_carrying|_showing|seen_network)\b": ["events/placed.py"],
    }
    for pattern, files in home.items():
        found = {str(p.relative_to(source)) for p in source.rglob("*.py") if re.search(pattern, p.read_text())}
        assert found == set(files), pattern


def test_text_and_vnnlib_give_the_same_event():
    head = "".join(f"(declare-const {v} Real)" for v in ("X_0", "X_1", "Y_0", "Y_1"))
    read = rs.vnnlib(head + "(assert (<= X_0 1))(assert (or (and (> Y_0 Y_1) (>= X_1 0)) (not (<= (+ X_0 Y_1) 2))))")
    text = rs.event("x[0] <= 1 and (y[0] > y[1] and x[1] >= 0 or not x[0] + y[1] <= 2)", 2, 2)
    assert isinstance(read, Event)
    rng = np.random.default_rng(0)
    X, Y = rng.integers(-2, 4, (500, 2)).astype(float), rng.integers(-2, 4, (500, 2)).astype(float)
    assert (read.contains(X, Y) == text.contains(X, Y)).all() and 0 < read.contains(X, Y).sum() < 500
