"""Pipelines that start from the columns of a table, and the schemas read from them, against scikit-learn itself."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.special import expit, softmax

import reluscope as rs
from reluscope.errors import InputError, ReluscopeWarning, UnsupportedError

pytest.importorskip("sklearn")
pytest.importorskip("pandas")
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:X does not have valid feature names"),
    pytest.mark.filterwarnings("ignore:.*unlike anything seen"),
]

RNG = np.random.default_rng(1)
N = 300
FRAME = pd.DataFrame(
    {
        "limit": RNG.lognormal(10, 1, N).round(),
        "sex": RNG.choice(["male", "female"], N),
        "school": RNG.choice([0, 1, 2, 3], N, p=[0.02, 0.4, 0.4, 0.18]),
        "age": RNG.integers(21, 70, N),
        "id": np.arange(N),
    }
)
Y = ((FRAME.limit < 20000) ^ (FRAME.sex == "male") & (FRAME.age > 40)).astype(int)
NUMBERS = ["limit", "age"]


def mlp(**options):
    return MLPClassifier(**({"hidden_layer_sizes": (6, 4), "max_iter": 30, "random_state": 0} | options))


def front(*extra, encoder=None, remainder="drop"):
    encoder = OneHotEncoder() if encoder is None else encoder
    return ColumnTransformer(
        [("numbers", StandardScaler(), NUMBERS), ("levels", encoder, ["sex", "school"]), *extra], remainder=remainder
    )


def probability(net, frame):
    return net.schema.values(net(frame))[:, 0]


ENCODERS = {
    "one-hot": OneHotEncoder(),
    "drop first": OneHotEncoder(drop="first"),
    "drop if binary": OneHotEncoder(drop="if_binary", sparse_output=False),
    "infrequent": OneHotEncoder(min_frequency=20, handle_unknown="infrequent_if_exist"),
    "ordinal": OrdinalEncoder(),
    "imputed": make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")),
    "scaled": make_pipeline(OneHotEncoder(sparse_output=False), StandardScaler()),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name):
    model = make_pipeline(front(encoder=ENCODERS[name]), mlp()).fit(FRAME, Y)
    net = rs.load(model)
    want = model.predict_proba(FRAME)[:, 1]
    assert probability(net, FRAME) == pytest.approx(want, abs=1e-9)
    shuffled = FRAME[["age", "id", "school", "limit", "sex"]]
    assert (net(shuffled) == net(FRAME)).all() and (net(FRAME.drop(columns="id")) == net(FRAME)).all()
    assert (net.schema.decide(net(FRAME)) == model.predict(FRAME)).all()
    s = net.schema
    assert s.names == ("limit", "sex", "school", "age") and s.unused == ("id",) and s.classes == (0, 1)
    assert s.column("sex").levels == ("female", "male") and s.column("school").levels == (0, 1, 2, 3)
    assert s.rule == "above" and s.cutoff == 0.5 and s.output_names == ("P(1)",)


STEPS = {
    "passthrough": front(("rest", "passthrough", ["id"])),
    "remainder": front(remainder=MinMaxScaler()),
    "clipped": front(("clip", MinMaxScaler(feature_range=(0, 0.5), clip=True), ["id", "age"])),
    "nested": make_pipeline(front(remainder="passthrough"), StandardScaler()),
    "union": FeatureUnion(
        [("a", front()), ("b", make_pipeline(ColumnTransformer([("x", "passthrough", ["age"])]), MinMaxScaler()))],
        transformer_weights={"b": 3.0},
    ),
    "both ways": front(("as number", StandardScaler(), ["school"])),
    "function": front(("same", FunctionTransformer(), ["id"])),
    "weights": ColumnTransformer(
        [("n", StandardScaler(), NUMBERS), ("o", OneHotEncoder(), ["sex"])], transformer_weights={"o": 2.0}
    ),
    "positions": ColumnTransformer([("n", StandardScaler(), [0, 3]), ("o", OneHotEncoder(), [1])]),
    "masks and slices": ColumnTransformer(
        [("n", StandardScaler(), [True, False, False, True, False]), ("o", OneHotEncoder(), slice(1, 3))]
    ),
    "callable": ColumnTransformer([("n", StandardScaler(), lambda f: ["limit"])], remainder="drop"),
    "constant fill": ColumnTransformer(
        [("n", make_pipeline(SimpleImputer(strategy="constant", fill_value=5.0), StandardScaler()), NUMBERS)]
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps(name, tmp_path):
    model = Pipeline([("table", STEPS[name]), ("net", mlp())]).fit(FRAME, Y)
    net = rs.load(model)
    want = model.predict_proba(FRAME)[:, 1]
    assert probability(net, FRAME) == pytest.approx(want, abs=1e-9)
    net.save(tmp_path / "net.npz")
    back = rs.load(tmp_path / "net.npz")
    assert back.schema == net.schema and (back(FRAME) == net(FRAME)).all()


@pytest.mark.parametrize("imputed", [True, False])
@pytest.mark.parametrize("known", [np.nan, None])
def test_nan_and_none_in_a_column_of_objects_are_two_things_as_in_the_pipeline(imputed, known):
    other = None if known is not None else np.nan
    seen, new = FRAME.copy(), FRAME.copy()
    seen["sex"], new["sex"] = seen["sex"].astype(object), new["sex"].astype(object)
    if not imputed:
        seen.loc[[1, 4, 6], "sex"] = known
    new.loc[[5, 8], "sex"] = known
    encoder = OneHotEncoder(handle_unknown="ignore")
    if imputed:  # scikit-learn's imputer refuses nan where it fills None, and passes None on where it fills nan
        encoder = make_pipeline(SimpleImputer(strategy="most_frequent", missing_values=known), encoder)
    model = make_pipeline(ColumnTransformer([("l", encoder, ["sex"])], remainder="passthrough"), mlp())
    model.fit(seen[["sex", *NUMBERS]], Y)
    net = rs.load(model)
    assert net.schema.columns[0].missing == ("nan" if known is not None else "None")
    assert probability(net, new[["sex", *NUMBERS]]) == pytest.approx(model.predict_proba(new)[:, 1], abs=1e-9)
    if imputed and known is None:
        return
    new.loc[[5, 8], "sex"] = other
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = probability(net, new[["sex", *NUMBERS]])
        assert found == pytest.approx(model.predict_proba(new)[:, 1], abs=1e-9)


def test_missing_and_unknown_entries_are_what_the_pipeline_makes_of_them():
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    levels = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    model = make_pipeline(ColumnTransformer([("n", numbers, NUMBERS), ("l", levels, ["sex"])]), mlp()).fit(FRAME, Y)
    net = rs.load(model)
    holes = FRAME.copy()
    holes.loc[[3, 5], "limit"] = np.nan
    holes.loc[[5, 8], "sex"] = np.nan
    assert probability(net, holes) == pytest.approx(model.predict_proba(holes)[:, 1], abs=1e-9)
    holes.loc[9, "sex"] = "unknown"
    with pytest.warns(ReluscopeWarning, match=r"1 of 300 rows .*sex \(unknown level 'unknown'\)"):
        found = probability(net, holes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found == pytest.approx(model.predict_proba(holes)[:, 1], abs=1e-9)
    strict = rs.load(make_pipeline(front(), mlp()).fit(FRAME, Y))
    with pytest.raises(InputError, match=r"column 'sex' has the level 'unknown' \(first in row 9\)"):
        strict(holes.fillna({"limit": 1.0, "sex": "male"}))
    with pytest.raises(InputError, match=r"column 'limit' .*nan in row 3 \(2 such entries\)"):
        strict(holes)


@pytest.mark.parametrize(
    "model",
    [
        LinearRegression(),
        Ridge(),
        MLPRegressor(hidden_layer_sizes=(5,), max_iter=20, random_state=0),
        rs.ReluRegressor((5,), epochs=5),
    ],
    ids=lambda m: type(m).__name__,
)
def test_regressors_behind_a_table(model):
    fitted = make_pipeline(front(), model).fit(FRAME, FRAME.age * 0.1)
    assert rs.load(fitted)(FRAME)[:, 0] == pytest.approx(fitted.predict(FRAME), abs=1e-8)


@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), rs.ReluClassifier((6,), epochs=10, random_state=0), SGDClassifier(loss="log_loss")],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("classes", [2, 3])
def test_classifiers_behind_a_table(model, classes):
    y = np.array(["a", "b", "c"])[np.asarray(Y) + (FRAME.age > 55) * (classes - 2)]
    fitted = make_pipeline(front(), model).fit(FRAME, y)
    net = rs.load(fitted)
    assert (np.array(net.schema.classes)[net.schema.decide(net(FRAME))] == fitted.predict(FRAME)).all()
    if classes == 2:
        assert probability(net, FRAME) == pytest.approx(fitted.predict_proba(FRAME)[:, 1], abs=1e-9)
    elif not isinstance(model, SGDClassifier):  # one against the rest: no softmax
        assert net.schema.values(net(FRAME)) == pytest.approx(fitted.predict_proba(FRAME), abs=1e-9)
        assert net.schema.values(net(FRAME)) == pytest.approx(softmax(net(FRAME), axis=1), abs=1e-12)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("base", [mlp(), LogisticRegression()], ids=["probabilities", "scores"])
@pytest.mark.parametrize("frozen", [False, True])
def test_monotone_calibrations(method, base, frozen):
    inner = make_pipeline(front(), base)
    inner = FrozenEstimator(inner.fit(FRAME, Y)) if frozen else inner
    model = CalibratedClassifierCV(inner, method=method, ensemble=False).fit(FRAME, Y)
    net = rs.load(model)
    want = model.predict_proba(FRAME)[:, 1]
    assert probability(net, FRAME) == pytest.approx(want, abs=1e-9)
    y = net(FRAME)[:, 0]
    for c in (0.1, 0.2, 0.5, 0.8):
        raw = net.schema.outputs[0].raw(">", c)
        found = np.full(N, raw) if isinstance(raw, bool) else y > raw[1]
        sure = np.abs(want - c) > 1e-9
        assert (found == (want > c))[sure].all()
    assert (net.schema.decide(net(FRAME)) == model.predict(FRAME))[np.abs(want - 0.5) > 1e-9].all()


def test_a_calibration_that_falls_turns_the_score():
    model = CalibratedClassifierCV(FrozenEstimator(make_pipeline(front(), LogisticRegression()).fit(FRAME, Y)))
    model = model.fit(FRAME, 1 - Y)
    net = rs.load(model)
    assert probability(net, FRAME) == pytest.approx(model.predict_proba(FRAME)[:, 1], abs=1e-9)
    assert (net.schema.decide(net(FRAME)) == model.predict(FRAME)).all()


def test_names_survive_searches_and_arrays_have_none():
    model = make_pipeline(front(), mlp(max_iter=5))
    search = GridSearchCV(model, {"mlpclassifier__alpha": [1e-4]}, cv=2).fit(FRAME, Y)
    assert rs.load(search).schema.names == ("limit", "sex", "school", "age")
    plain = rs.load(mlp().fit(FRAME[NUMBERS], Y))
    assert plain.schema.names == ("limit", "age") and plain.schema.output_names == ("P(1)",)
    array = FRAME[NUMBERS].to_numpy(dtype=float)
    assert rs.load(make_pipeline(StandardScaler(), mlp()).fit(array, Y)).schema.columns == ()
    table = FRAME.to_numpy()
    taken = make_pipeline(ColumnTransformer([("n", StandardScaler(), [0, 3]), ("o", OneHotEncoder(), [1])]), mlp()).fit(
        table, Y
    )
    net = rs.load(taken)
    assert net.schema.names == ("x0", "x1", "x3") and net.schema.unused == ("x2", "x4")
    assert probability(net, table) == pytest.approx(taken.predict_proba(table)[:, 1], abs=1e-9)


def test_what_scalers_know_of_the_training_data():
    model = make_pipeline(
        ColumnTransformer([("a", MinMaxScaler(), ["limit"]), ("b", StandardScaler(), ["age"])]), mlp()
    )
    s = rs.load(model.fit(FRAME, Y)).schema
    assert s.column("limit").seen == (FRAME.limit.min(), FRAME.limit.max()) and s.column("limit").moments is None
    assert s.column("age").seen is None  # a scaler keeps no ages, and nobody shall be told that it saw one of 450
    low, high = s.column("age").within
    assert low <= FRAME.age.min() and FRAME.age.max() <= high < 1000
    assert s.column("age").moments == (pytest.approx(FRAME.age.mean()), pytest.approx(FRAME.age.std(ddof=0)))
    largest = rs.load(make_pipeline(ColumnTransformer([("a", MaxAbsScaler(), ["age"])]), mlp()).fit(FRAME, Y)).schema
    assert largest.column("age").within == (-FRAME.age.max(), FRAME.age.max())
    assert rs.Schema.from_dict(s.to_dict()) == s


REFUSED = {
    "bins": (lambda: front(("b", KBinsDiscretizer(3), ["age"])), r"table\.b is a KBinsDiscretizer"),
    "encoder after scaler": (
        lambda: make_pipeline(
            ColumnTransformer([("n", StandardScaler(), NUMBERS)]), OneHotEncoder(handle_unknown="ignore")
        ),
        "put the OneHotEncoder first",
    ),
    "indicator": (
        lambda: ColumnTransformer([("n", SimpleImputer(add_indicator=True), NUMBERS)]),
        r"table\.n adds indicators",
    ),
    "marker": (lambda: ColumnTransformer([("n", SimpleImputer(missing_values=-1), NUMBERS)]), "takes -1 for a missing"),
    "late imputer": (
        lambda: ColumnTransformer([("n", make_pipeline(StandardScaler(), SimpleImputer()), NUMBERS)]),
        "put the SimpleImputer first",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    table, message = REFUSED[name]
    model = Pipeline([("table", table()), ("net", mlp(max_iter=3))]).fit(FRAME, Y)
    with pytest.raises(UnsupportedError, match=message):
        rs.load(model)


def test_calibrations_refused_by_name():
    several = CalibratedClassifierCV(make_pipeline(front(), LogisticRegression()), cv=3).fit(FRAME, Y)
    with pytest.raises(UnsupportedError, match=r"averages 3 calibrated classifiers.*ensemble=False"):
        rs.load(several)
    three = CalibratedClassifierCV(make_pipeline(front(), LogisticRegression()), ensemble=False)
    with pytest.raises(UnsupportedError, match="calibrates 3 classes"):
        rs.load(three.fit(FRAME, np.asarray(Y) + (FRAME.age > 50)))
    local = rs.LocalLinearRegressor(hidden=(3,), epochs=2).fit(FRAME[NUMBERS], Y)
    with pytest.raises(UnsupportedError, match="LocalLinearRegressor, whose predictions are no network"):
        rs.load(local)


def test_logits_of_a_table_are_those_of_the_pipeline():
    model = make_pipeline(front(), mlp()).fit(FRAME, Y)
    assert expit(rs.load(model)(FRAME)[:, 0]) == pytest.approx(model.predict_proba(FRAME)[:, 1], abs=1e-12)
