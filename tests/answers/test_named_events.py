"""Events in the names and units of a schema: rows of data decide who is right."""

from __future__ import annotations

import numpy as np
import pytest

import reluscope as rs
from reluscope.errors import InputError

RNG = np.random.default_rng(3)
COLUMNS = [
    rs.Column("range", unit="ft", scale=1 / 60261.0, shift=-19791.091 / 60261.0),
    rs.Column("speed", unit="ft/s", scale=-0.001, shift=0.6),
    rs.Column("SEX", "category", levels=["male", "female"]),
    rs.Column("school", "category", levels=[0, 1, 2, 3], codes=[[0.0], [1.0], [1.0], [5.0]]),
    rs.Column("home town", "category", levels=["New York", "York", "Rome"], codes=[[0, 0], [1, 0], [0, 1]]),
    rs.Column("AGE", "integer"),
]
N = 400
TABLE = {
    "range": RNG.uniform(0, 60000, N),
    "speed": RNG.uniform(100, 1100, N),
    "SEX": RNG.choice(["male", "female"], N),
    "school": RNG.choice([0, 1, 2, 3], N),
    "home town": RNG.choice(["New York", "York", "Rome"], N),
    "AGE": RNG.integers(20, 80, N),
}
ADVISORIES = ["clear of conflict", "weak left", "strong left"]


def network(outputs, *, seed=0, n=1, **about):
    rng = np.random.default_rng(seed)
    schema = rs.Schema(COLUMNS, outputs, **about)
    W = rng.normal(size=(6, 8))
    W[:, 7] *= 0.02  # AGE is large
    first, last = (W, rng.normal(size=6)), rng.normal(size=(n, 6))
    middle = np.median(rs.Network([first, (last, None)], schema=schema)(TABLE), axis=0)
    return rs.Network([first, (last, -middle)], schema=schema)


PD = network([rs.Output("PD", link="sigmoid")], classes=["pays", "defaults"], cutoff=0.3, decision="loan")
ACAS = network(
    [rs.Output(name, unit="points", scale=1 / 373.9, shift=-7.5 / 373.9) for name in ADVISORIES],
    n=3, classes=ADVISORIES, rule="smallest", decision="advisory",
)  # fmt: skip
TWO = network([rs.Output("a", link="softmax"), rs.Output("b", link="softmax")], n=2, classes=["a", "b"])


def truth(net):
    """The values of a table's rows by name, from the schema's own arithmetic."""
    y = net(TABLE)
    out = {name.replace(" ", "_"): np.asarray(v) for name, v in TABLE.items()}
    values = net.schema.values(y)
    out |= {name.replace(" ", "_"): values[:, i] for i, name in enumerate(net.schema.output_names)}
    out["decided"] = np.array(net.schema.classes, dtype=object)[net.schema.decide(y)]
    return out


CASES = [
    (PD, "range < 30000 ft", lambda t: t["range"] < 30000),
    (PD, "10000 ft <= range < 30000 ft and AGE >= 40", lambda t: (abs(t["range"] - 2e4) < 1e4) & (t["AGE"] >= 40)),
    (PD, "speed > 600 ft/s", lambda t: t["speed"] > 600),
    (PD, "range > 50 * speed", lambda t: t["range"] > 50 * t["speed"]),
    (PD, "SEX == female", lambda t: t["SEX"] == "female"),
    (PD, "SEX != 'female' or AGE < 30", lambda t: (t["SEX"] != "female") | (t["AGE"] < 30)),
    (PD, "school == 3 and not SEX == male", lambda t: (t["school"] == 3) & (t["SEX"] != "male")),
    (PD, "school == 0.0", lambda t: t["school"] == 0),
    (PD, '"home town" == York', lambda t: t["home_town"] == "York"),
    (PD, '"home town" == New York', lambda t: t["home_town"] == "New York"),
    (PD, '"home town" in {rome, New York}', lambda t: t["home_town"] != "York"),
    (PD, '"home town" not in {Rome, "New York"}', lambda t: t["home_town"] == "York"),
    (PD, "PD > 0.2", lambda t: t["PD"] > 0.2),
    (PD, "0.2 < PD <= 0.7", lambda t: (t["PD"] > 0.2) & (t["PD"] <= 0.7)),
    (PD, "PD >= 0 and PD < 1", lambda t: np.ones(N, bool)),
    (PD, "P(pays) > 0.6", lambda t: 1 - t["PD"] > 0.6),
    (PD, "P(defaults) > 0.6 and SEX == male", lambda t: (t["PD"] > 0.6) & (t["SEX"] == "male")),
    (PD, "loan == defaults", lambda t: t["PD"] > 0.3),
    (PD, "loan != defaults", lambda t: t["PD"] <= 0.3),
    (PD, 'x["SEX=female"] > 0.5', lambda t: t["SEX"] == "female"),
    (ACAS, "range < 3e4 ft and advisory == weak left", lambda t: (t["range"] < 3e4) & (t["decided"] == "weak left")),
    (ACAS, "advisory in {weak left, strong left}", lambda t: t["decided"] != "clear of conflict"),
    (ACAS, "'weak left' < 100 points", lambda t: t["weak_left"] < 100),
    (ACAS, "'weak left' < 'strong left'", lambda t: t["weak_left"] < t["strong_left"]),
    (TWO, "a > 0.2", lambda t: t["a"] > 0.2),
    (TWO, "P(b) <= 0.4 or decision == a", lambda t: (t["b"] <= 0.4) | (t["decided"] == "a")),
]  # fmt: skip


@pytest.mark.parametrize(("net", "text", "holds"), CASES, ids=[text for _, text, _ in CASES])
def test_events_in_names_and_units_hold_where_the_table_says(net, text, holds):
    found = rs.event(text, net.n_inputs, net.n_outputs, net=net).holds(net, net.schema.encode(TABLE))
    want = holds(truth(net))
    assert (found == want).all()
    if text != "PD >= 0 and PD < 1":
        assert 0 < want.sum() < N  # it could fail


REFUSED = [
    (PD, "range < 500 s", "is not known|join conditions"),
    (PD, "range < 500 ft/s", r"ft/s does not fit: this is in ft"),
    (PD, "AGE < 500 ft", "ft does not fit: this is in no unit"),
    (PD, "SEX == other", "expected a level: 'male', 'female'"),
    (PD, "SEX > male", "SEX is compared with ==, != and in"),
    (PD, "school == 1", "cannot tell level 1 of school from 2: they have the same code"),
    (PD, "SEX + 1 > 2", "SEX is a level"),
    (PD, "PD + 1 > 2", "PD is a probability"),
    (PD, "PD > AGE", "PD is compared with a number"),
    (PD, "PD == 0.2", "compared with <, <=, > and >="),
    (PD, "loan == maybe", "expected a class: 'pays', 'defaults'"),
    (PD, "income > 3", "'income' is not known; an event speaks of .*PD, loan, range, speed"),
    (ACAS, "P(weak left) > 0.2", "knows of no probabilities"),
]


@pytest.mark.parametrize(("net", "text", "message"), REFUSED, ids=[text for _, text, _ in REFUSED])
def test_events_that_make_no_sense_are_refused(net, text, message):
    with pytest.raises(InputError, match=message):
        rs.event(text, net.n_inputs, net.n_outputs, net=net)


def test_three_probabilities_are_no_linear_condition():
    net = network([rs.Output(c, link="softmax") for c in "abc"], n=3, classes=list("abc"))
    with pytest.raises(InputError, match=r"one of 3 softmax probabilities.*decision == "):
        rs.event("a > 0.2", net.n_inputs, 3, net=net)


def test_probabilities_are_the_same_in_units_and_in_normalised_numbers():
    net = rs.Network(
        [(RNG.normal(size=(5, 2)), RNG.normal(size=5)), (RNG.normal(size=(1, 5)), [0.2])],
        schema=rs.Schema(COLUMNS[:2], [rs.Output("score", scale=0.5, shift=1.0)]),
    )
    law = rs.Gaussian([0.1, -0.2], [[0.04, 0.01], [0.01, 0.09]])
    S = np.diag([60261.0, -1000.0])
    shift = np.array([19791.091, 600.0])
    physical = rs.Gaussian(S @ law.mean + shift, S @ law.cov @ S)
    m = float(net.schema.values(net(law.sample(500, rng=0))).mean())
    for text in ("range < 25000 ft", f"score > {m:.3f} and speed < 700 ft/s", f"score < {m:.3f}"):
        one, two = rs.probability(net, law, text), rs.probability(net.in_units(), physical, text)
        assert 0 < one.value < 1 and one.guarantee == two.guarantee == "exact"
        assert one.value == pytest.approx(two.value, rel=1e-9)
    plain = rs.probability(net, law, f"x[0] < {(25000 - 19791.091) / 60261.0!r}")
    assert plain.value == pytest.approx(rs.probability(net, law, "range < 25000 ft").value, rel=1e-12)
