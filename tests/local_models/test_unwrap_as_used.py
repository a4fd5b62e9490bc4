"""What a person with a trained pipeline, data frames and raw inputs meets: names, scales, labels, texts."""

import re

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import reluscope as rs
from nets import random_net
from reluscope._columns import columns_of
from reluscope.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:.*Stochastic Optimizer.*")

NAMES = ["age", "income", "debt"]


@pytest.fixture(scope="module")
def bank():
    """A pipeline fitted to a data frame of raw inputs of unlike units, and the frame with its labels."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [10, 20_000, 5_000] + [45, 50_000, 0]
    y = np.where((X[:, 0] - 45) / 10 + (X[:, 1] - 50_000) / 20_000 + rng.normal(size=300) > 0, "good", "bad")
    frame = pandas.DataFrame(X, columns=NAMES)
    model = make_pipeline(StandardScaler(), MLPClassifier((6, 4), max_iter=60, random_state=0)).fit(frame, y)
    return model, frame, y


# -- scalers and pipelines -----------------------------------------------------------------------------------------


def test_a_scaler_beside_a_pipeline_that_scales_is_refused(bank):
    model, frame, y = bank
    search = GridSearchCV(model, {"mlpclassifier__alpha": [1e-3]}, cv=2).fit(frame, y)
    for whole in (model, search, make_pipeline(model)):
        with pytest.raises(InputError, match=r"scaler must be left out.*StandardScaler.*pipeline\[-1\]"):
            rs.unwrap(whole, frame, y, scaler=model[0])
    rs.unwrap(make_pipeline(model[-1]), model[:-1].transform(frame), y, scaler=model[0])  # nothing comes before
    rs.unwrap(rs.load(model), frame, y, scaler=(np.zeros(3), np.ones(3)))  # a network: the caller knows


def test_both_recipes_give_the_same_coefficients(bank):
    model, frame, y = bank
    raw = rs.unwrap(model, frame, y)
    scaled = rs.unwrap(model[-1], model[:-1].transform(frame), y, feature_names=NAMES, scaler=model[0])
    for i in (0, 7, 123):
        one, two = raw.explain(i), scaled.explain(i)
        value, coefficient, intercept = two.original
        assert np.allclose(value, frame.iloc[i]) and np.allclose(coefficient, one.C) and np.allclose(intercept, one.d)
        assert one.distance_scaled == pytest.approx(two.distance, rel=1e-6)
        assert np.allclose(one.probability, model.predict_proba(frame.iloc[[i]])[0])
        assert one.predicted == model.predict(frame.iloc[[i]])[0]


def test_with_a_scaler_tables_are_in_original_units_and_arrays_are_scaled(bank, tmp_path):
    model, frame, y = bank
    Z = model[:-1].transform(frame)
    raw = rs.unwrap(model, frame, y)
    want, auc = model.predict_proba(frame), raw.evaluate(frame, y).score
    assert 0.6 < auc < 0.99
    for options in ({"feature_names": NAMES}, {}):  # without names, those the scaler was fitted with
        u = rs.unwrap(model[-1], Z, y, scaler=model[0], **options)
        assert u.feature_names == tuple(NAMES)
        for x in (frame.iloc[7], frame.iloc[[7]], frame[NAMES[::-1]].iloc[7], dict(frame.iloc[7]), Z[7], 7):
            e = u.explain(x)
            assert np.allclose(e.probability, want[7]) and np.allclose(e.original[0], frame.iloc[7])
        assert u.evaluate(frame, y).score == pytest.approx(auc) == u.evaluate(Z, y).score
        assert (u.find(frame) == u.region).all() and np.allclose(u.margins(frame).distance, u.margins().distance)
        assert u.coverage(frame, draws=20, rng=0).unseen_rows == 0.0
        m = u.merge(2)
        m.save(tmp_path / "m.npz")
        for models in (m, rs.local_models.MergedModels.load(tmp_path / "m.npz")):
            assert np.allclose(models.outputs(frame), models.outputs(Z))
        with pytest.raises(InputError, match=r"must have the 3 columns.*not known: 'years'"):
            u.explain(frame.rename(columns={"age": "years"}).iloc[7])


def test_a_table_that_may_or_may_not_be_scaled_is_refused(bank):
    pandas = pytest.importorskip("pandas")
    model, frame, y = bank
    Z = pandas.DataFrame(model[:-1].transform(frame), columns=NAMES)
    for table in (Z, frame):
        with pytest.raises(InputError, match="X must be an array of scaled rows when a scaler is given"):
            rs.unwrap(model[-1], table, y, scaler=model[0])
    # a pair (centre, scale) has no names: tables are refused, for their numbers are not known to be scaled
    u = rs.unwrap(model[-1], Z.to_numpy(), y, scaler=(model[0].mean_, model[0].scale_))
    with pytest.raises(InputError, match="not known: 'age'"):
        u.evaluate(frame, y)
    net = rs.load(model[-1]).with_schema(columns=[rs.Column("a", unit="kg", scale=2.0), "b", "c"])
    with pytest.raises(InputError, match="scaler must be left out: the schema"):
        rs.unwrap(net, Z.to_numpy(), y, scaler=model[0])


# -- names ---------------------------------------------------------------------------------------------------------


def test_columns_in_another_order_are_reordered_and_other_names_are_refused(bank):
    model, frame, y = bank
    turned, renamed = frame[NAMES[::-1]], frame.rename(columns={"debt": "loans"})
    named = r"not known: 'loans'; missing: 'debt'"
    u = rs.unwrap(model, frame, y)
    m = u.merge(3)
    assert u.columns == tuple(NAMES) and u.feature_names == tuple(NAMES)
    calls = [
        lambda X: rs.unwrap(model, X, y).prediction,
        lambda X: rs.unwrap(rs.load(model), X, y).prediction,
        lambda X: u.evaluate(X, y).score,
        u.find,
        lambda X: u.margins(X).distance,
        lambda X: u.coverage(X, budget="1 regions", draws=10, rng=0).unseen,
        lambda X: u.explain(X.iloc[0]).output,
        lambda X: u.explain(X.iloc[:1]).output,
        m.assign,
        m.decision_function,
        m.predict,
        m.predict_proba,
        lambda X: m.score(X, y),
    ]
    for call in calls:
        assert np.array_equal(call(turned), call(frame))
        with pytest.raises(InputError, match=named):
            call(renamed)
    assert np.array_equal(u.explain(frame.iloc[5]).output, u.explain(frame.to_numpy()[5]).output)
    with pytest.raises(InputError, match="x must be one row"):
        u.explain(frame[:2])
    with pytest.raises(InputError, match="missing: 'income', 'debt'"):
        u.evaluate(frame[["age"]])


def test_where_names_come_from(bank, tmp_path):
    model, frame, y = bank
    assert rs.unwrap(model, frame.to_numpy(), y).feature_names == tuple(NAMES)  # the pipeline remembers them
    assert rs.unwrap(rs.load(model), frame.to_numpy(), y).feature_names == tuple(NAMES)  # and so does its network
    bare = rs.Network(rs.load(model).layers)
    plain = rs.unwrap(bare, frame.to_numpy(), y)
    assert plain.columns is None and plain.feature_names == ("x0", "x1", "x2")
    plain.evaluate(frame[NAMES[::-1]])  # nothing is known, so nothing is refused
    given = rs.unwrap(bare, frame.to_numpy(), y, feature_names=NAMES)
    assert np.array_equal(given.evaluate(frame[NAMES[::-1]], y).score, given.evaluate(frame, y).score)
    long = rs.unwrap(model, frame, y, feature_names=["age in years", "income a year", "debt"])
    long.evaluate(frame)
    with pytest.raises(InputError, match="feature_names has the names of the columns in another order"):
        rs.unwrap(model, frame, y, feature_names=NAMES[::-1])
    long.merge(2).save(tmp_path / "m.npz")
    back = rs.local_models.MergedModels.load(tmp_path / "m.npz")
    assert np.array_equal(back.predict(frame[NAMES[::-1]]), back.predict(frame))
    named_so = frame.set_axis(["age in years", "income a year", "debt"], axis=1)
    assert np.array_equal(back.predict(named_so[["debt", "age in years", "income a year"]]), back.predict(frame))
    assert columns_of([1, 2]) is None and columns_of(frame.set_axis([0, 1, 2], axis=1)) is None


def test_estimators_of_our_own_and_paths_check_names(bank):
    _, frame, y = bank
    mine = rs.ReluClassifier((4,), epochs=3).fit(frame, y)
    u = mine.unwrap(frame, y)
    assert u.feature_names == tuple(NAMES) and u.response.classes == ("bad", "good")
    assert np.array_equal(mine.unwrap(frame[NAMES[::-1]], y).prediction, u.prediction)
    same = {"y_test": y, "epochs": 1, "rng": 0, "progress": None}
    one, two = (rs.l1_path(frame, y, [0.0], X_test=X, **same) for X in (frame, frame[NAMES[::-1]]))
    assert one.points[0].test_score == two.points[0].test_score
    with pytest.raises(InputError, match=r"X_test must have .*missing: 'age'"):
        rs.l1_path(frame, y, [0.0], X_test=frame[NAMES[1:]], **same)


# -- responses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y[:10], r"y must have one entry for each of the 300 rows of X, got 10 entries"),
        (lambda y: 1.0, r"one entry for each of the 300 rows"),
        (
            lambda y: np.where(y == "good", "yes", "no"),
            r"classes bad, good, but it has the label '(yes|no)' \(300 of 300",
        ),
        (lambda y: np.arange(300) / 7, "classes bad, good, but it has the label"),
        (lambda y: np.where(y == "good", None, y), "nan"),
    ],
)
def test_messages_about_y(bank, change, message):
    model, frame, y = bank
    u = rs.unwrap(model, frame, y)
    for call in (
        lambda v: rs.unwrap(model, frame, v),
        lambda v: u.evaluate(frame, v),
        lambda v: u.merge(2).score(frame, v),
    ):
        with pytest.raises(InputError, match=message) as caught:
            call(change(y))
        assert "task=" not in str(caught.value)


def test_labels_without_a_classifier():
    net, X = random_net((3, 5, 1), 0), np.random.default_rng(0).normal(size=(50, 3))
    with pytest.raises(InputError, match=r"1 different label \('a'\), but the network has 2 classes; pass classes="):
        rs.unwrap(net, X, ["a"] * 50)
    with pytest.raises(InputError, match=r"3 different labels \('a', 'b', 'c'\)"):
        rs.unwrap(net, X, (["a", "b", "c"] * 17)[:50])
    with pytest.raises(InputError, match=r"shape \(50, 3\), one number per row and output, or one column of class"):
        rs.unwrap(random_net((3, 5, 3), 0), X, X[:, 0])
    assert rs.unwrap(net, X, ["b", "a"] * 25).response.classes == ("a", "b")


def test_the_order_of_a_models_classes_is_its_own():
    X = np.random.default_rng(0).normal(size=(80, 2))
    y = (X[:, 0] > 0).astype(int)
    u = rs.unwrap(MLPClassifier((4,), max_iter=30, random_state=0).fit(X, y), X[y == 1], y[y == 1])
    assert u.task == "binary" and u.response.classes == (0, 1) and (u.response.code == 1).all()
    numbers = MLPRegressor(hidden_layer_sizes=(4,), max_iter=30, random_state=0).fit(X, X[:, 0])
    assert rs.unwrap(numbers, X, X[:, 0]).task == "regression"
    with pytest.raises(InputError, match="nan"):
        rs.unwrap(numbers, X, np.array([None, *y[1:].tolist()], dtype=object))


# -- explanations --------------------------------------------------------------------------------------------------


def columns_of_text(text):
    """The table in the text of an explanation: (name, path, local) of each line."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("---"))
    out = []
    for line in lines[start + 1 : -1]:
        name, *figures = re.split(r"\s{2,}", line.strip())
        out.append((name, float(figures[-2]), float(figures[-1])))
    return out


@pytest.mark.parametrize("inputs", [3, 20])
def test_the_columns_of_an_explanation_add_up(inputs):
    net = random_net((inputs, 8, 6, 1), 1)
    X = np.random.default_rng(0).normal(size=(60, inputs)).round(1)
    X[0, :2] = 0.0
    y = (net(X)[:, 0] > np.median(net(X))).astype(int)
    e = rs.unwrap(net, X, y).explain(0)
    text = repr(e)
    *parts, (name, total, same) = columns_of_text(text)
    assert name == "total" and total == same == pytest.approx(net(X[0])[0], rel=1e-5)
    assert parts[0][0] == "start"
    assert sum(p[1] for p in parts) == pytest.approx(total, abs=1e-4)
    assert sum(p[2] for p in parts) == pytest.approx(total, abs=1e-4)
    assert ("8 other features" in text) == (inputs == 20) and ("to_pandas()" in text) == (inputs == 20)
    assert not re.search(r"(?<![\w.])-0(?![\w.])", text)
    p = 1 / (1 + np.exp(-net(X[0])[0]))
    k = int(p > 0.5)
    assert np.allclose(e.probability, [1 - p, p]) and e.predicted == k
    assert f"class {k} with probability {e.probability[k]:.4g}" in text and "the logit of class 1" in text
    assert re.search(r"boundary is [\d.e-]+ standard deviations away \(unit \d of hidden layer [01]\)", text)
    assert re.search(r"in the units of the inputs, [\d.e-]+ \(unit \d of hidden layer [01]\)", text)


def test_several_classes_and_numbers_in_text():
    net = random_net((3, 6, 3), 2)
    X = np.random.default_rng(0).normal(size=(90, 3))
    labels = np.array(["a", "b", "c"])
    e = rs.unwrap(net, X, labels[net(X).argmax(axis=1)]).explain(4)
    shown = np.exp(net(X[4])) / np.exp(net(X[4])).sum()
    assert np.allclose(e.probability, shown) and e.predicted == labels[shown.argmax()]
    assert f"class {e.predicted} with probability {shown.max():.4g}" in repr(e) and f"output {e.predicted}:" in repr(e)
    number = rs.unwrap(net, X, net(X)).explain(4)
    assert number.probability is None and number.predicted is None and "class" not in repr(number)


def test_distances_in_standard_deviations_are_those_of_the_standardised_network():
    rng = np.random.default_rng(3)
    net = random_net((3, 9, 7, 1), 5)
    X = rng.normal(size=(80, 3))
    size = np.array([1e-3, 1.0, 1e4])
    w = rng.uniform(0.5, 2, 80)
    u = rs.unwrap(net.after(np.diag(1 / size), np.zeros(3)), X * size, sample_weight=w)
    mean = np.average(X, axis=0, weights=w)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w))
    assert np.allclose(u.spread, spread * size)
    standard = rs.unwrap(net.after(np.diag(spread), np.zeros(3)), X / spread)
    expected = standard.margins()
    found = u.margins(scaled=True)
    assert found.scaled and not expected.scaled
    assert np.allclose(found.distance, expected.distance, rtol=1e-7)
    assert np.array_equal(found.layer, expected.layer) and np.array_equal(found.unit, expected.unit)
    for i in range(80):
        one, two = u.explain(i), standard.explain(i)
        assert one.distance_scaled == pytest.approx(two.distance, rel=1e-7)
        near = one.nearest_scaled
        assert (near.layer, near.unit) == (two.nearest.layer, two.nearest.unit)
        assert near.distance_scaled == pytest.approx(one.distance_scaled)
        assert np.array_equal(near.pattern, two.nearest.pattern)
        if i % 7:
            continue
        mine, theirs = one.neighbours(scaled=True), two.neighbours()
        assert [(n.layer, n.unit) for n in mine] == [(n.layer, n.unit) for n in theirs]
        assert np.allclose([n.distance_scaled for n in mine], [n.distance for n in theirs])


def test_an_input_that_does_not_vary_is_held():
    """|x| units at 1 in each of two inputs; the second is 0.1 in all rows, so only the first can reach a boundary."""
    net = rs.Network([(np.eye(2), [-1.0, -1.0]), ([[1.0, 1.0]], [0.0])])
    e = rs.unwrap(net, [[-2.0, 0.1], [2.0, 0.1]]).explain(0)
    assert e.distance == pytest.approx(0.9) and e.distance_scaled == pytest.approx(1.5)
    assert (e.nearest.unit, e.nearest_scaled.unit) == (1, 0)
    assert [n.unit for n in e.neighbours(scaled=True)] == [0, 1]
    assert e.neighbours(scaled=True)[1].distance_scaled == np.inf


def test_one_row_is_one_row_and_layers_count_from_zero():
    net = rs.Network([([[1.0], [-1.0]], [-1.0, -3.0]), ([[1.0, 2.0]], [0.0])])
    e = rs.unwrap(net, [[4.0], [0.0], [-5.0]]).explain(0)
    assert "region 1 (1 row)" in repr(e.nearest) and "unit 0 of hidden layer 0" in repr(e.nearest)
    assert e.nearest.layer == 0 and "with 1 row;" in repr(e)


# -- importance, portraits, pictures -------------------------------------------------------------------------------


def test_the_importance_that_does_not_depend_on_units_comes_first(bank):
    model, frame, y = bank
    assert list(rs.unwrap(model, frame, y).importance().rows()[0]) == ["feature", "variance"]  # raw units: no squares
    scaled = rs.unwrap(model[-1], model[:-1].transform(frame), y, scaler=model[0])
    assert list(scaled.importance().rows()[0]) == ["feature", "variance", "squares"]


@pytest.mark.parametrize("weighted", [False, True])
def test_portraits_by_definition(weighted):
    net = random_net((4, 8, 1), 3)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) * [1, 10, 100, 0] + [0, 5, 0, 7]
    w = rng.uniform(0.1, 2, 200) if weighted else None
    u = rs.unwrap(net, X, sample_weight=w, feature_names=list("abcd"))
    ones = np.ones(200) if w is None else w
    mean = np.average(X, axis=0, weights=ones)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=ones))
    for p in [*u.portraits(3, features=2), u.portrait(5, features=9), *u.portraits([4, 1, 4])]:
        own = u.region == p.region
        deviation = (np.average(X[own], axis=0, weights=ones[own]) - mean)[:3] / spread[:3]  # d does not vary
        order = np.argsort(-np.abs(deviation))[: len(p.features)]
        assert p.count == own.sum() and p.features == tuple("abc"[j] for j in order)
        assert np.allclose(p.deviation, deviation[order])
        assert np.allclose(p.mean, np.average(X[own], axis=0, weights=ones[own])[order])
        assert np.allclose(p.overall, mean[order]) and len(p.rows()) == len(p.to_pandas()) == len(order)
        assert str(p).startswith(f"{p.features[0]} {p.deviation[0]:+.1f} sd") and f"region {p.region}" in repr(p)
    assert [p.region for p in u.portraits([4, 1, 4])] == [4, 1, 4] and u.portraits(0) == []
    with pytest.raises(InputError, match="region must be between"):
        u.portrait(len(u))


def test_portraits_in_original_units(bank):
    model, frame, y = bank
    scaled = rs.unwrap(model[-1], model[:-1].transform(frame), y, feature_names=NAMES, scaler=model[0])
    for a, b in zip(rs.unwrap(model, frame, y).portraits(4), scaled.portraits(4), strict=True):
        assert a.features == b.features and np.allclose(a.mean, b.mean) and np.allclose(a.deviation, b.deviation)
        assert np.allclose(a.overall, b.overall)


@pytest.mark.parametrize("kind", ["violin", "parallel"])
def test_pictures_of_coefficients_do_not_depend_on_units(kind):
    net = random_net((3, 8, 1), 3)
    X = np.random.default_rng(0).normal(size=(200, 3))
    size = np.array([1.0, 1e3, 1e6])
    plain = rs.unwrap(net, X)
    raw = rs.unwrap(net.after(np.diag(1 / size), np.zeros(3)), X * size)

    def drawn(u, **options):
        from matplotlib.figure import Figure

        ax = u.plot(kind, Figure().add_subplot(), **options)
        return np.concatenate([np.concatenate(line.get_data()) for line in ax.lines]), ax

    (one, ax), (two, _) = drawn(plain), drawn(raw)
    assert np.allclose(one, two)
    assert "× sd of the feature" in (ax.get_xlabel() + ax.get_ylabel())
    own, ax = drawn(raw, scaled=False)
    assert not np.allclose(own, two) and "× sd" not in (ax.get_xlabel() + ax.get_ylabel())


def test_what_is_internal_is_private(bank):
    model, frame, y = bank
    u = rs.unwrap(model, frame, y)
    assert not hasattr(u, "words") and not hasattr(u, "stored")
