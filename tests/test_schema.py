"""What the numbers of a network mean: names, units, categories, decisions, and tables that meet a network."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pandas as pd
import pytest

import reluscope as rs
from reluscope.errors import InputError, InputLimitError, ReluscopeWarning

SEX = rs.Column("SEX", "category", levels=[1, 2])
AGE = rs.Column("AGE", "integer", unit="years", support=(0, math.inf), seen=(21, 79))
RANGE = rs.Column("range", unit="ft", scale=1 / 60261.0, shift=-19791.091 / 60261.0)
SCHEMA = rs.Schema([SEX, AGE, RANGE], [rs.Output("PD", link="sigmoid")], classes=[0, 1], groups={"who": ["SEX", "AGE"]})
TABLE = {"SEX": [2, 1, 2], "AGE": [30, 41, 22], "range": [500.0, 19791.091, 0.0]}


def network(schema=SCHEMA, seed=0):
    rng = np.random.default_rng(seed)
    return rs.Network([(rng.normal(size=(5, 4)), rng.normal(size=5)), (rng.normal(size=(1, 5)), [0.1])], schema=schema)


# -- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_becomes_rows_by_name_and_back():
    rows = SCHEMA.encode(TABLE)
    assert rows[:, :3].tolist() == [[0, 1, 30], [1, 0, 41], [0, 1, 22]]
    assert rows[1, 3] == pytest.approx(0.0, abs=1e-12)
    back = SCHEMA.decode(rows)
    assert back["SEX"].tolist() == [2, 1, 2] and back["AGE"].tolist() == [30, 41, 22]
    assert back["range"] == pytest.approx([500.0, 19791.091, 0.0])
    assert SCHEMA.inputs == ("SEX=1", "SEX=2", "AGE", "range") and SCHEMA.n_inputs == 4


def test_the_order_of_the_columns_does_not_matter():
    net = network()
    shuffled = {name: TABLE[name] for name in ("range", "SEX", "AGE")}
    assert (net(shuffled) == net(TABLE)).all()
    assert (net(TABLE) == net(SCHEMA.encode(TABLE))).all()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"AGE": None}, "missing: 'AGE'"),
        ({"loans": [1, 2, 3]}, "not known: 'loans'.*drop 'loans'"),
        ({"AGE": [30.0, np.nan, 22.0]}, "column 'AGE'.*nan in row 1.*fill"),
        ({"AGE": [30.0, np.inf, np.nan]}, "column 'AGE'.*inf in row 1"),
        ({"AGE": ["30", "old", "22"]}, "column 'AGE' must hold real numbers, got 'old'"),
        ({"SEX": [2, 3, 1]}, r"column 'SEX' has the level 3 \(first in row 1\).*its levels are 1, 2.*recode"),
        ({"SEX": [2, None, 1]}, "column 'SEX'.*nothing in row 1"),
        ({"SEX": [2, 1]}, "one length"),
    ],
)
def test_bad_tables_are_refused_with_the_column(change, match):
    table = {k: v for k, v in (TABLE | change).items() if v is not None}
    with pytest.raises(InputError, match=match):
        network()(table)


def test_rows_unlike_anything_seen_are_a_warning_with_their_columns():
    with pytest.warns(ReluscopeWarning, match=r"1 of 3 rows .*AGE \(130 years, seen were whole numbers 21 to 79\)"):
        network()(TABLE | {"AGE": [30, 130, 22]})
    with pytest.warns(ReluscopeWarning, match=r"3 of 3 rows .*AGE \(-0.5 years"):  # scaled already
        network()(TABLE | {"AGE": [-0.5, 0.5, -1.5]})


def test_levels_are_the_same_however_they_are_written():
    for same in ([2, 1, 2], [2.0, 1.0, 2.0], ["2", "1", "2"], np.array([2, 1, 2]), np.array(["2", "1", "2"])):
        assert SEX.encode(same).tolist() == [[0, 1], [1, 0], [0, 1]]
    flags = rs.Column("owner", "category", levels=[False, True])
    assert flags.encode([True, False]).tolist() == [[0, 1], [1, 0]]


def test_columns_of_pandas_are_taken_as_scikit_learn_takes_them():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(TABLE)
    rows = SCHEMA.encode(TABLE)
    for column, kinds in {
        "SEX": ("Int64", "category", "string", "float"),
        "AGE": ("Int64", "category", "float32"),
    }.items():
        for kind in kinds:
            assert (SCHEMA.encode(frame.astype({column: kind})) == rows).all(), (column, kind)
    flags = rs.Schema([rs.Column("owner")])
    assert flags.encode(pd.DataFrame({"owner": pd.array([True, False], "boolean")})).tolist() == [[1.0], [0.0]]
    with pytest.raises(InputError, match=r"column 'owner'.*nan in row 1"):
        flags.encode(pd.DataFrame({"owner": pd.array([True, None], "boolean")}))
    with pytest.raises(InputError, match="column 'owner' holds datetime64"):
        flags.encode(pd.DataFrame({"owner": pd.to_datetime(["2020-01-01"])}))
    assert (network()(frame.iloc[1]) == network()(TABLE)[1]).all()  # a row is a series


def test_fills_constants_and_levels_that_were_never_seen():
    schema = rs.Schema(
        [
            rs.Column("a", fill=-1.0),
            rs.Column("c", "category", levels=["x", "y"], fill="y", unknown=(0.0, 0.0)),
            rs.Column("k", "constant", seen=(7.0, 7.0)),
        ]
    )
    rows = schema.encode({"a": [np.nan, 2.0], "c": [None, "x"]})
    assert rows.tolist() == [[-1.0, 0.0, 1.0, 7.0], [2.0, 1.0, 0.0, 7.0]]
    with pytest.warns(ReluscopeWarning, match=r"c \(unknown level 'z'\)"):
        assert schema.encode({"a": [1.0], "c": ["z"]}).tolist() == [[1.0, 0.0, 0.0, 7.0]]


def test_a_schema_from_a_table():
    made = rs.Schema.of(
        {"n": [1, 5, 2], "v": [0.5, -1.5, 2.0], "s": ["b", "a", "b"], "one": [3.0, 3.0, 3.0]}, units={"v": "m"}
    )
    assert [c.kind for c in made.columns] == ["integer", "continuous", "category", "constant"]
    assert made.column("n").support == (0.0, math.inf) and made.column("v").seen == (-1.5, 2.0)
    assert made.column("s").levels == ("a", "b") and made.column("v").unit == "m"
    noted = rs.Schema(["n", "v"]).seen_in({"v": [0.25, 1.0], "n": [4, 9]})
    assert noted.column("n").kind == "integer" and noted.column("n").seen == (4.0, 9.0)


# -- decisions and scales --------------------------------------------------------------------------------------------


def test_outputs_on_the_scale_of_people():
    pd_ = SCHEMA.outputs[0]
    op, limit = pd_.raw(">", 0.2)
    assert op == ">" and limit == pytest.approx(math.log(0.25)) and pd_.values([limit]) == pytest.approx([0.2])
    assert pd_.raw(">", 0.0) is True and pd_.raw(">=", 1.0) is False and pd_.raw("<", 1.0) is True
    score = rs.Output("COC", scale=1 / 373.94992, shift=-7.5188840201005975 / 373.94992)
    assert score.raw("<=", 7.5188840201005975)[1] == pytest.approx(0.0, abs=1e-15)
    assert rs.Output("loss", scale=-2.0).raw("<", 3.0) == (">", -6.0)


def test_calibrations_move_events_to_the_score():
    rng = np.random.default_rng(5)
    y = np.concatenate([rng.normal(size=400) * 3, [0.0]])
    curve = (0.1, 0.3, 0.6, 0.8, 0.05, 0.2, 0.2, 0.9)  # flat between 0.3 and 0.6
    outputs = [
        rs.Output("p", link="sigmoid", calibration=(("sigmoid", (4.0, -2.5)),)),
        rs.Output("q", link="sigmoid", calibration=(("isotonic", curve),)),
        rs.Output("r", calibration=(("isotonic", (-1.0, 0.0, 1.0, 0.0, 0.5, 1.0)),)),
        rs.Output("s", scale=-0.5, shift=0.3, link="sigmoid"),
    ]
    for out in outputs:
        values = out.values(y)
        for c in (0.03, 0.05, 0.15, 0.2, 0.5, 0.7, 0.9, 0.95):
            for op, holds in ((">", values > c), (">=", values >= c), ("<", values < c), ("<=", values <= c)):
                raw = out.raw(op, c)
                found = np.full(len(y), raw) if isinstance(raw, bool) else eval(f"y {raw[0]} {raw[1]!r}")
                close = np.abs(values - c) < 1e-12  # where rounding decides
                assert (found == holds)[~close].all(), (out.name, op, c)


def test_decisions_follow_the_rule():
    y = np.array([[-2.0], [-1.0], [0.5]])
    assert SCHEMA.decide(y).tolist() == [0, 0, 1]
    assert SCHEMA.with_names(cutoff=0.2).decide(y).tolist() == [0, 1, 1]
    small = rs.Schema(outputs=["a", "b"], rule="smallest")
    assert small.decide([[1.0, 0.0], [1.0, 1.0]]).tolist() == [1, 0]
    net = network().with_schema(cutoff=0.2, outputs="risk")
    assert net.schema.output_names == ("risk",) and net.schema.outputs[0].link == "sigmoid"
    X = SCHEMA.encode(TABLE)
    assert ((net.deciding()(X)[:, 0] > 0) == (net.schema.values(net(X))[:, 0] > 0.2)).all()
    three = rs.Schema(outputs=[rs.Output(n, link="softmax") for n in "abc"], classes=list("abc"))
    assert three.values([[1.0, 2.0, 3.0]]).sum() == pytest.approx(1.0) and three.rule == "largest"


def test_in_units_gives_the_same_function():
    net = network()
    whole = net.in_units()
    rows = np.column_stack([SEX.encode(TABLE["SEX"]), TABLE["AGE"], TABLE["range"]])
    assert whole(rows) == pytest.approx(net(TABLE), rel=1e-12)
    assert whole(TABLE) == pytest.approx(net(TABLE), rel=1e-12)
    assert whole.schema.column("range").scale == 1.0 and whole.schema.column("range").unit == "ft"


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_files_keep_the_schema(tmp_path, ending):
    if ending == "safetensors":
        pytest.importorskip("safetensors")
    out = rs.Output("q", link="sigmoid", calibration=(("isotonic", (0.1, 0.3, 0.0, 1.0)), ("sigmoid", (2.0, 1.0))))
    odd = rs.Column("c", "category", levels=["x", None, 3, 2.5, True], codes=[[0.0]] * 4 + [[1.0]], fill="x")
    schema = rs.Schema([SEX, AGE, odd], [out], ["no", "yes"], cutoff=0.3, decision="loan", unused=["id"])
    net = network(schema)
    net.save(tmp_path / f"net.{ending}")
    back = rs.load(tmp_path / f"net.{ending}")
    assert back.schema == schema
    assert rs.Schema.from_dict(json.loads(json.dumps(SCHEMA.to_dict(), allow_nan=False))) == SCHEMA


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        ({"columns": "SEX"}, "columns of a schema must be a list"),
        ({"columns": [{"name": "a", "colour": 1}]}, "damaged"),
        ({"columns": [{"name": "a", "scale": 0}]}, "scale of column 'a' must not be 0"),
        ({"columns": [{"name": "a", "seen": [10**400, 1]}]}, "seen of column 'a'"),
        ({"columns": [{"name": "a", "kind": "category"}]}, "column 'a' is a category: give its levels"),
        ({"columns": [{"name": "a", "kind": "category", "levels": [[1], [2]]}]}, "levels must be text or numbers"),
        ({"version": 2}, "version 1"),
        ({"rows": []}, "no field 'rows'"),
        ({"outputs": [{"name": "p", "link": "probit"}]}, "link of output 'p'"),
    ],
)
def test_damaged_schemas_are_refused(damage, match):
    with pytest.raises(InputError, match=match):
        rs.Schema.from_dict(damage)
    with pytest.raises(InputLimitError, match="is it a category"):
        rs.Schema.from_dict({"columns": [{"name": "a", "kind": "category", "levels": list(range(100_000))}]})


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: network(rs.Schema(["a", "b"])), "2 columns that make 2 inputs, but the network takes 4"),
        (lambda: network(rs.Schema([SEX, SEX])), "more than one column called 'SEX'"),
        (lambda: network(rs.Schema(outputs=["a", "b"])), "has 2 outputs .'a', 'b'., but the network has 1"),
        (lambda: network("SEX,AGE"), "schema must be a reluscope.Schema"),
        (lambda: rs.Schema(["a"], groups={"g": ["b"]}), "group 'g'"),
        (lambda: rs.Schema(["a"], ["y"], classes=["x"]), "classes must be 2 labels"),
        (lambda: rs.Column("a", "constant"), "column 'a' is a constant"),
        (lambda: rs.Column("a", levels=[1, 2]), 'kind must be "category"'),
        (lambda: rs.Column("a", "category", levels=[1, 2], fill=3), "fill of column 'a' must be one of its levels"),
        (lambda: SCHEMA.with_names(colour=1), "no field 'colour'"),
        (lambda: rs.Schema(outputs=["a", "b"], rule="above"), 'rule "above" needs one output'),
    ],
)
def test_schemas_that_do_not_fit_are_refused(make, match):
    with pytest.raises(InputError, match=match):
        make()


SCALED = rs.Schema(
    [
        rs.Column("AGE", within=(-300, 400), moments=(35.0, 9.0)),
        rs.Column("LIMIT", moments=(150_000.0, 1e5)),
        rs.Column("DELAY", moments=(0.1, 1.1)),  # looks scaled in any case
        rs.Column("SEX", "category", levels=["m", "f"], unknown=(0.0, 0.0)),
    ]
)


def _people(n=200):
    rng = np.random.default_rng(0)
    sex = rng.choice(["m", "f"], n)
    return {"AGE": rng.normal(35, 9, n), "LIMIT": rng.gamma(2, 7e4, n), "DELAY": rng.normal(0, 1, n), "SEX": sex}


def test_a_table_that_was_scaled_already_is_warned_about_by_name():
    table = _people()
    SCALED.encode(table)  # filterwarnings = error: nothing to say
    scaled = table | {c: (table[c] - table[c].mean()) / table[c].std() for c in ("AGE", "LIMIT", "DELAY")}
    says = r"X: 'AGE', 'LIMIT' have a mean near 0 .* where the training data had 35 and 9 \(AGE\): scaled already\?"
    with pytest.warns(ReluscopeWarning, match=says):
        SCALED.encode(scaled)
    half = table | {"LIMIT": scaled["LIMIT"]}
    SCALED.encode(half)  # one of two columns is no scaled table
    SCALED.encode({c: v[:9] for c, v in scaled.items()})  # too few to tell
    other = dataclasses.replace(SCALED, columns=SCALED.columns[2:])
    other.encode({c: scaled[c] for c in ("DELAY", "SEX")})  # nothing to tell by


def test_a_range_that_nobody_saw_is_not_called_seen():
    with pytest.warns(ReluscopeWarning) as caught:
        SCALED.encode(_people() | {"AGE": np.append(np.full(199, 40.0), 500)})
    said = str(caught[0].message)
    assert "AGE (500, and all training rows were within -300 to 400)" in said and "seen were" not in said
    noted = SCALED.seen_in(_people())
    assert noted.column("AGE").within is None
    with pytest.warns(ReluscopeWarning, match=r"AGE \(500, seen were \d"):
        noted.encode(_people() | {"AGE": np.append(np.full(199, 40.0), 500)})


def test_an_unknown_level_is_named_and_no_question_of_units():
    table = _people() | {"SEX": np.where(np.arange(200) == 3, "x", "m")}
    with pytest.warns(ReluscopeWarning) as caught:
        rows = SCALED.encode(table)
    said = str(caught[0].message)
    assert said.endswith("1 of 200 rows are unlike anything seen in training: SEX (unknown level 'x')")
    assert "SEX (an unknown level)" in SCALED.strange(rows)
    assert SCALED.column("SEX")._stray_levels(table["SEX"]) == ["x"]


def test_rows_of_a_frame_are_named_by_its_index():
    column = rs.Column("SEX", "category", levels=["m", "f"])
    for values, where in ((["m", "x"], r"row 1\)"), (pd.Series(["m", "x"]), r"row 1\)")):
        with pytest.raises(InputError, match=rf"'x' \(first in {where}"):
            column.encode(values)
    with pytest.raises(InputError, match=r"first in row 1 \(index 'b7'\)\)"):
        column.encode(pd.Series(["m", "x"], index=["a1", "b7"]))
    with pytest.raises(InputError, match=r"got nan in row 1 \(index 40\)"):
        rs.Column("a").encode(pd.Series([1.0, np.nan], index=[30, 40]))
