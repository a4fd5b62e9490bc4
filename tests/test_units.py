"""Pictures and unwrapped networks speak in the names and units of the schema, and decide by its cut-off."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
import pytest

import reluscope as rs
from reluscope.plot import plot_cdf, plot_complex, plot_function, plot_images, plot_pdf, plot_regions
from reluscope.schema import input_labels, output_labels

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def net():
    rng = np.random.default_rng(0)
    schema = rs.Schema(
        [rs.Column("range", unit="ft", scale=1 / 60261.0, shift=-19791.091 / 60261.0), rs.Column("speed", unit="m/s")],
        [rs.Output("score", unit="pts", scale=0.5, shift=1.0)],
    )
    return rs.Network([(rng.normal(size=(6, 2)), rng.normal(size=6)), (rng.normal(size=(1, 6)), [0.3])], schema=schema)


def _ticks(axis):
    axis.axes.figure.canvas.draw()
    return [(at, text.get_text()) for at, text in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)]


def _value(text):
    return float(text.replace(",", "").replace("−", "-"))


def test_labels_of_a_schema_and_without_one(net):
    assert [str(v) for v in input_labels(net.schema, 2)] == ["range (ft)", "speed (m/s)"]
    assert [str(v) for v in output_labels(net.schema, 1)] == ["score (pts)"]
    assert [str(v) for v in input_labels(None, 2)] == ["x[0]", "x[1]"] and str(output_labels(None, 1)[0]) == "y[0]"
    assert str(output_labels(rs.Schema([], [rs.Output("PD", link="sigmoid")]), 1)[0]) == "logit of PD"
    label = input_labels(net.schema, 2)[0]
    assert label.value(label.number(5000.0)) == pytest.approx(5000.0)


@pytest.mark.parametrize("colour", ["output", "gradient"])
def test_regions_in_feet(net, colour):
    ax = plot_regions(rs.regions(net, ([-0.3, -1.0], [0.3, 1.0])), colour=colour)
    assert ax.get_xlabel() == "range (ft)" and ax.get_ylabel() == "speed (m/s)"
    ticks = _ticks(ax.xaxis)
    low, high = ax.get_xlim()
    assert sum(low <= at <= high for at, _ in ticks) >= 3
    for at, text in ticks:  # round feet, at the network's number for them
        assert _value(text) % 1000 == 0
        assert net.schema.columns[0].encode([_value(text)])[0, 0] == pytest.approx(at, abs=1e-9)
    bar = ax.figure.axes[1]
    assert "score" in bar.get_ylabel()
    if colour == "output":
        for at, text in _ticks(bar.yaxis):
            assert 0.5 * _value(text) + 1.0 == pytest.approx(at, abs=1e-9)


def test_other_pictures_name_inputs_and_outputs(net):
    law = rs.Gaussian([0.0, 0.0], 0.04)
    out = rs.outputs(net, law)
    for draw in (plot_cdf, plot_pdf):
        ax = draw(out)
        assert ax.get_xlabel() == "score (pts)"
        for at, text in _ticks(ax.xaxis):
            assert 0.5 * _value(text) + 1.0 == pytest.approx(at, abs=1e-9)
    assert plot_function(rs.along(net, [-1, -1], [1, 1])).get_ylabel() == "score (pts)"
    box = ([-0.3, -1.0], [0.3, 1.0])
    assert plot_complex(rs.polyhedral_complex(net, box)).get_xlabel() == "range (ft)"
    images = rs.reachable(net, box)
    assert plot_images(images[len(images) - 1]).get_xlabel() == "score (pts)"
    plain = rs.Network([([[1.0, 0.0], [0.0, 1.0]], None), ([[1.0, 1.0]], None)])
    ax = plot_regions(rs.regions(plain, ([-1, -1], [1, 1])))
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.figure.axes[1].get_ylabel()) == ("x[0]", "x[1]", "y[0]")


def test_a_logit_has_its_probabilities_above():
    schema = rs.Schema(["a"], [rs.Output("PD", link="sigmoid")])
    net = rs.Network([([[1.0], [-1.0]], None), ([[1.0, -2.0]], None)], schema=schema)
    ax = plot_cdf(rs.outputs(net, rs.Gaussian([0.0])))
    assert ax.get_xlabel() == "logit of PD"
    (above,) = ax.child_axes
    assert above.get_xlabel() == "PD"
    ax.figure.canvas.draw()
    for at, text in zip(above.get_xticks(), above.get_xticklabels(), strict=True):
        assert 1 / (1 + np.exp(-at)) == pytest.approx(float(text.get_text().rstrip(" %")) / 100, abs=1e-9)


def test_a_category_is_one_feature_of_the_importance():
    rng = np.random.default_rng(5)
    schema = rs.Schema([rs.Column("SEX", "category", levels=["f", "m"]), "AGE"])
    net = rs.Network([(rng.normal(size=(6, 3)), None), (rng.normal(size=(1, 6)), None)], schema=schema)
    u = rs.unwrap(net, {"SEX": rng.choice(["f", "m"], 200), "AGE": rng.normal(size=200)})
    found = u.importance()
    assert found.feature_names == ("SEX", "AGE") and found.variance.sum() == pytest.approx(1.0)
    C = u.coefficients[u.region, 0]
    parts = C * (u.X - u.X.mean(axis=0))
    spread = np.array([(parts[:, 0] + parts[:, 1]).var(), parts[:, 2].var()])
    assert found.variance == pytest.approx(spread / spread.sum())
    assert u.importance(groups=None).feature_names == ("SEX=f", "SEX=m", "AGE")
    ticks = [t.get_text() for t in u.plot("importance").get_yticklabels()]
    assert sorted(ticks) == ["AGE", "SEX"]


def test_the_median_applicant_has_a_level():
    rng = np.random.default_rng(6)
    schema = rs.Schema([rs.Column("EDU", "category", levels=[1, 2, 3]), "AGE"])
    net = rs.Network([(rng.normal(size=(6, 4)), None), (rng.normal(size=(1, 6)), None)], schema=schema)
    table = {"EDU": [1, 1, 2, 2, 2, 3, 3], "AGE": np.arange(7.0)}
    u = rs.unwrap(net, table, [0, 1, 0, 1, 0, 1, 1])
    assert u.contributions(reference="median").reference.tolist() == [
        0.0,
        1.0,
        0.0,
        3.0,
    ]  # no level has half of the rows
    assert u.reasons(reference="median").reference["EDU"] == 2


# -- unwrapped networks ----------------------------------------------------------------------------------------------


def test_unwrapped_rows_are_in_units(net):
    rng = np.random.default_rng(1)
    table = {"range": rng.uniform(1000, 40000, 80), "speed": rng.normal(size=80)}
    u = rs.unwrap(net, table)
    e = u.explain(0)
    value, C, d = e.original
    assert value[0] == pytest.approx(table["range"][0])
    assert C[0] @ value + d[0] == pytest.approx(e.output[0])
    assert e.output[0] == pytest.approx(net.schema.values(net(table))[0, 0])  # in pts, as the schema says
    assert repr(e).startswith("score ") and " pts" in repr(e).splitlines()[0]
    assert e.plot().get_xlabel() == "score (pts)"
    assert "range (ft)" in repr(e)
    assert np.allclose(u.profile("range").value, table["range"])
    ax = u.plot("profile", feature="range")
    assert ax.get_xlabel() == "range (ft)" and "pts per ft" in ax.get_ylabel()
    assert u.plot("partial", feature="range").get_xlabel() == "range (ft)"
    ax = u.plot("pair", first="range", second="speed")
    assert ax.get_xlabel() == "range (ft)" and ax.get_ylabel() == "speed (m/s)"
    ax = u.plot("regions")
    assert ax.get_xlabel() == "range (ft)" and all(_value(t) % 1000 == 0 for _, t in _ticks(ax.xaxis))


@pytest.fixture(scope="module")
def unwrapped(net):
    """An unwrapped network with scalings of inputs and outputs, the table in feet, and responses in points."""
    rng = np.random.default_rng(7)
    table = {"range": rng.uniform(1000, 40000, 150), "speed": rng.normal(size=150)}
    points = net.schema.values(net(table))[:, 0]
    return rs.unwrap(net, table, points + 0.1 * rng.normal(size=150)), table, points


def test_a_line_of_the_table_predicts_from_feet(net, unwrapped, tmp_path):
    u, table, points = unwrapped
    heads = ["intercept (pts)", "range (pts per ft)", "speed (pts per m/s)"]
    u.table.to_csv(tmp_path / "t.csv")
    u.table.to_json(tmp_path / "t.json")
    found = [u.table.to_pandas(), pd.read_csv(tmp_path / "t.csv"), pd.read_json(tmp_path / "t.json")]
    for frame in found:
        b, slope, speed = (frame[h].to_numpy()[u.region] for h in heads)
        assert b + slope * table["range"] + speed * table["speed"] == pytest.approx(points, abs=1e-9)
    assert (u.table["range"] == u.table["range (pts per ft)"]).all()
    for shown in (repr(u.table), repr(u.table.head(2)), u.table._repr_html_()):
        assert "range (pts per ft)" in shown
    assert "units of the columns" in repr(u.table.head(2))
    # The network's own numbers stay to be had, and fit the rows as the network takes them.
    own = u.summary(units=False)
    assert (own.coefficients == u.coefficients[:, 0]).all() and "own numbers" in repr(own)
    assert u.intercepts[u.region, 0] + (own.coefficients[u.region] * u.X).sum(axis=1) == pytest.approx(points)
    assert "per ft" not in repr(own) and "speed (pts per m/s)" in repr(own)
    # Scores are those of the unit too: mean squared errors in points squared.
    assert u.score > 0.9 and u.table["local_mse"].max() < 0.1
    first = np.flatnonzero(u.region == 0)
    assert u.table["response_mean (pts)"][0] == pytest.approx(u.response.target[first, 0].mean())


def test_merged_models_intervals_and_new_rows_are_in_units(unwrapped, tmp_path):
    u, table, points = unwrapped
    m = u.merge(3)
    m.save(tmp_path / "m.npz")
    for models in (m, rs.local_models.merged.MergedModels.load(tmp_path / "m.npz")):
        rows = models.table_rows()
        cluster = m.cluster_of_region[u.region]
        line = [np.array([r[h] for r in rows])[cluster] for h in ("intercept (pts)", "range (pts per ft)",
                                                                  "speed (pts per m/s)")]  # fmt: skip
        assert line[0] + line[1] * table["range"] + line[2] * table["speed"] == pytest.approx(models.predict(table))
        assert "range (pts per ft)" in repr(models)
    e = m.explain(5)
    assert dict(zip(e.names, e.value, strict=True))["range (ft)"] == pytest.approx(table["range"][5])
    parts = {r["feature"]: r for r in e.rows()}
    mean = table["range"].mean()
    assert parts["range (ft)"]["coefficient"] * (table["range"][5] - mean) == pytest.approx(parts["range (ft)"]["part"])
    assert m.score(table, points) > 0.8 and u.evaluate(table, points).score == pytest.approx(1.0)
    # Refitted in feet: an ordinary least-squares fit by hand.
    found = u.intervals(0)
    here = np.flatnonzero(u.region == 0)
    X = np.column_stack([np.ones(len(here)), table["range"][here], table["speed"][here]])
    assert found.estimate == pytest.approx(np.linalg.lstsq(X, u.response.target[here, 0], rcond=None)[0], rel=1e-6)
    assert found.names == ("intercept (pts)", "range (pts per ft)", "speed (pts per m/s)")
    assert found.network[1] == pytest.approx(u.table["range"][0])
    assert "pts per ft" in found.plot().get_yticklabels()[0].get_text()


def test_pictures_of_coefficients_are_in_units(unwrapped):
    u, *_ = unwrapped
    for kind in ("violin", "parallel"):
        ax = u.plot(kind, scaled=False)
        ticks = [t.get_text() for t in (ax.get_yticklabels() if kind == "violin" else ax.get_xticklabels())]
        assert sorted(ticks) == ["range (pts per ft)", "speed (pts per m/s)"]
    ax = u.plot("violin")
    assert "× sd of the feature (pts)" in ax.get_xlabel()
    assert u.plot("partial", feature="range").get_ylabel().endswith("(pts)")


def test_outputs_with_scalings_of_their_own_still_decide_as_the_network(two):
    """Scalings that differ between outputs would change which is the largest: then outputs stay as they are."""
    _, X, _ = two
    rng = np.random.default_rng(8)
    outs = [rs.Output("a", unit="m", scale=10.0), rs.Output("b", unit="m", scale=0.1)]
    net = rs.Network([(rng.normal(size=(6, 3)), None), (rng.normal(size=(2, 6)), None)])
    known = net.with_schema(rs.Schema(["p", "q", "r"], outs, ["a", "b"], rule="largest"))
    labels = np.array(["a", "b"])[net(X).argmax(axis=1)]
    u = rs.unwrap(known, X, labels)
    assert u.score == 1.0 and [u.explain(i).predicted for i in range(20)] == labels[:20].tolist()
    # Without classes nothing is decided, and each output is in its own unit.
    v = rs.unwrap(net.with_schema(rs.Schema(["p", "q", "r"], outs)), X)
    assert v.output_names == ("a", "b") and v.prediction == pytest.approx(net(X) / [10.0, 0.1])
    assert {"intercept a (m)", "a:p (m)", "b:r (m)"} <= set(v.table.to_dict())


@pytest.fixture(scope="module")
def two():
    """One logit of two classes, and rows with labels."""
    rng = np.random.default_rng(2)
    net = rs.Network([(rng.normal(size=(6, 3)), rng.normal(size=6)), (rng.normal(size=(1, 6)), None)])
    X = rng.normal(size=(300, 3))
    y = np.where(net(X)[:, 0] + rng.normal(size=300) > 0, "bad", "good")
    return net, X, y


def test_a_cut_off_for_unwrap_moves_every_decision(two):
    net, X, y = two
    u = rs.unwrap(net, X, y, classes=["good", "bad"], cutoff=0.3)
    p = 1 / (1 + np.exp(-net(X)[:, 0]))
    assert u.outcome().cutoff == pytest.approx(0.3)
    assert u.outcome()["all"]["above"] == pytest.approx((p > 0.3).mean())
    i = int(np.argmin(np.abs(p - 0.4)))
    e = u.explain(i)
    assert e.predicted == "bad" and "cut-off 0.3" in repr(e) and e.probability[1] == pytest.approx(p[i])
    assert rs.unwrap(net, X, y, classes=["good", "bad"]).explain(i).predicted == "good"
    found = u.counterfactuals(i)[0][0]
    after = 1 / (1 + np.exp(-net(found.x[None])[0, 0]))
    assert found.wanted == "good" and after == pytest.approx(0.3, abs=1e-3)
    drawn = [u.explain(j).plot() for j in range(8)]
    seen = [ax.get_xlim()[0] < np.log(0.3 / 0.7) < ax.get_xlim()[1] for ax in drawn]
    assert [" (dotted: the cut-off 0.3)" in ax.get_xlabel() for ax in drawn] == seen and any(seen)
    with pytest.raises(rs.InputError, match="cutoff"):
        rs.unwrap(net, X, np.arange(300.0), task="regression", cutoff=0.3)
    with pytest.raises(rs.InputError, match="cutoff"):
        rs.unwrap(net, X, y, classes=["good", "bad"], cutoff=1.5)


def test_probabilities_of_explanations_are_calibrated(two):
    net, X, y = two
    out = rs.Output("PD", link="sigmoid", calibration=[("sigmoid", (4.0, -3.0))])
    known = net.with_schema(rs.Schema(["a", "b", "c"], [out], ["good", "bad"]))
    u = rs.unwrap(known, X, y)
    assert u.explain(0).probability[1] == pytest.approx(known.schema.values(known(X[:1]))[0, 0])
    (above,) = u.explain(0).plot().child_axes
    for at, text in zip(above.get_xticks(), above.get_xticklabels(), strict=True):
        assert out.values([at])[0] == pytest.approx(float(text.get_text().rstrip(" %")) / 100, abs=1e-9)


def test_the_smaller_of_two_outputs_decides(two):
    _, X, _ = two
    rng = np.random.default_rng(4)
    words = ["left", "right"]
    net = rs.Network([(rng.normal(size=(6, 3)), None), (rng.normal(size=(2, 6)), None)],
                     schema=rs.Schema(["a", "b", "c"], words, words, rule="smallest"))  # fmt: skip
    y = np.array(words)[net.schema.decide(net(X))]
    u = rs.unwrap(net, X, y)
    assert u.score == 1.0 and all(u.explain(i).predicted == y[i] for i in range(10))
    # Without labels both outputs are kept: the one that decides is shown, not the largest.
    free = rs.unwrap(net, X)
    for i in range(10):
        e = free.explain(i)
        assert e.predicted == y[i] and f"class {y[i]}, the smallest output" in repr(e) and f"output {y[i]}:" in repr(e)
    assert free.explain(0).plot().get_xlabel() == y[0]  # a score of which the smallest wins is no logit


def test_linear_models_and_witnesses_in_names_and_units(net):
    law = rs.Gaussian([0.0, 0.0], 0.04)
    top = rs.linear_models(net, law).top(3)
    shown = repr(top)
    assert "score = " in shown and " range" in shown and "x0" not in shown
    # One row by hand, in feet: slope times the scale of range over that of the score.
    k = int(np.flatnonzero(top.C[:, 0, 0])[0])
    slope = top.C[k, 0, 0] * net.schema.columns[0].scale / net.schema.outputs[0].scale
    assert f"{slope:+.3g} range" in shown
    found = rs.witness(net, law, "score > 0.5", rng=0)[0]
    assert found.values == pytest.approx(
        {"range": net.schema.columns[0].decode(found.x[None, :1])[0], "speed": found.x[1]}
    )
    assert "ft" in repr(found) and found.to_dict()["values"]["range"] == found.values["range"]
    plain = rs.Network(net.layers)
    assert rs.witness(plain, law, "y[0] > 1.2", rng=0)[0].values is None
