"""scikit-learn estimators, against their own predictions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax

from reluscope.errors import InputError, ReluscopeWarning, UnsupportedError
from reluscope.formats import load

pytest.importorskip("sklearn")
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import SelectKBest, VarianceThreshold, f_regression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:X has feature names"),
]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 5)) * [1.0, 10.0, 0.1, 3.0, 1.0] + [0.0, 5.0, -1.0, 100.0, 0.0]
Y = np.column_stack([np.abs(X[:, 0]) + X[:, 1], X[:, 2] - np.maximum(X[:, 0], 0)])
TEST = X[:40] + RNG.normal(size=(40, 5)) * X.std(axis=0) * 2


def regressor(**options) -> MLPRegressor:
    return MLPRegressor(**({"hidden_layer_sizes": (7, 5), "max_iter": 15, "random_state": 0} | options))


def agree(model, outputs: int = 1) -> None:
    net = load(model)
    want = model.predict(TEST).reshape(len(TEST), outputs)
    np.testing.assert_allclose(net(TEST), want, rtol=1e-9, atol=1e-9 * np.abs(want).max())


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("sizes", [(4,), (7, 5), ()])
@pytest.mark.parametrize("target", [Y[:, 0], Y], ids=["one output", "two outputs"])
def test_regressors(activation: str, sizes, target) -> None:
    model = regressor(activation=activation, hidden_layer_sizes=sizes).fit(X, target)
    agree(model, 1 if target.ndim == 1 else 2)


def test_weights_are_taken_exactly() -> None:
    model = regressor().fit(X.astype(np.float32), Y.astype(np.float32))
    net = load(model)
    np.testing.assert_array_equal(net.layers[1].weight, np.asarray(model.coefs_[1], dtype=np.float64).T)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classifiers_give_logits(classes: int) -> None:
    labels = np.digitize(Y[:, 0], np.quantile(Y[:, 0], np.arange(1, classes) / classes))
    names = np.array([f"c{i}" for i in range(classes)])[labels]
    model = MLPClassifier((6,), max_iter=15, random_state=0).fit(X, names)
    net = load(model)
    want = model.predict_proba(TEST)
    logits = net(TEST)
    if classes == 2:
        assert logits.shape == (40, 1) and net.notes[0].startswith("outputs are logits of class c1")
        np.testing.assert_allclose(expit(logits[:, 0]), want[:, 1], atol=1e-12)
    else:
        assert "[c0, c1, c2" in net.notes[0] and "softmax" in net.notes[0]
        np.testing.assert_allclose(softmax(logits, axis=1), want, atol=1e-12)
        np.testing.assert_array_equal(model.classes_[logits.argmax(axis=1)], model.predict(TEST))


def test_multilabel_classifier() -> None:
    model = MLPClassifier((6,), max_iter=15, random_state=0).fit(X, (np.median(Y, axis=0) < Y).astype(int))
    np.testing.assert_allclose(expit(load(model)(TEST)), model.predict_proba(TEST), atol=1e-12)


STEPS = {
    "standard": [StandardScaler()],
    "no mean": [StandardScaler(with_mean=False)],
    "no std": [StandardScaler(with_std=False)],
    "neither": [StandardScaler(with_mean=False, with_std=False)],
    "min-max": [MinMaxScaler((-2, 3))],
    "min-max clipped": [MinMaxScaler(clip=True)],
    "standard, clipped, standard": [StandardScaler(), MinMaxScaler((-1, 1), clip=True), StandardScaler()],
    "max-abs": [MaxAbsScaler()],
    "robust": [RobustScaler()],
    "robust, not centred": [RobustScaler(with_centering=False, quantile_range=(10, 90))],
    "robust, not scaled": [RobustScaler(with_scaling=False)],
    "pca": [PCA(3)],
    "pca whitened": [StandardScaler(), PCA(3, whiten=True)],
    "incremental pca": [IncrementalPCA(3, whiten=True)],
    "svd": [TruncatedSVD(3, random_state=0)],
    "selection": [VarianceThreshold(0.5), SelectKBest(f_regression, k=2)],
    "several": [StandardScaler(), PCA(4), MinMaxScaler(), "passthrough", RobustScaler()],
    "pipeline inside": [make_pipeline(StandardScaler(), PCA(4)), "passthrough", MaxAbsScaler()],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS.keys())
def test_pipelines(steps) -> None:
    model = make_pipeline(*steps, regressor()).fit(X, Y[:, 0])
    agree(model)


def test_scalers_add_no_layer() -> None:
    model = make_pipeline(StandardScaler(), PCA(4), regressor()).fit(X, Y[:, 0])
    assert load(model).widths == (5, 7, 5, 1)
    clipped = make_pipeline(StandardScaler(), MinMaxScaler(clip=True), regressor()).fit(X, Y[:, 0])
    assert load(clipped).widths == (5, 5, 7, 5, 1)


TARGETS = [StandardScaler(), MinMaxScaler((-1, 2)), MaxAbsScaler(), RobustScaler(), None]


@pytest.mark.parametrize("transformer", TARGETS, ids=repr)
@pytest.mark.parametrize("target", [Y[:, 0], Y], ids=["one output", "two outputs"])
def test_transformed_targets(transformer, target) -> None:
    inner = make_pipeline(StandardScaler(), regressor())
    model = TransformedTargetRegressor(inner, transformer=transformer).fit(X, target)
    agree(model, 1 if target.ndim == 1 else 2)


def test_search_gives_its_best_estimator() -> None:
    search = GridSearchCV(make_pipeline(StandardScaler(), regressor()), {"mlpregressor__alpha": [1e-4, 1.0]}, cv=2)
    agree(search.fit(X, Y[:, 0]))


def test_poisson_output_is_cut_off_with_a_warning() -> None:
    try:
        model = regressor(loss="poisson")
    except TypeError:
        pytest.skip("this scikit-learn has no poisson loss")
    model.fit((X - X.mean(0)) / X.std(0), np.abs(Y[:, 0]))
    with pytest.warns(ReluscopeWarning, match="exp was cut off"):
        net = load(model)
    Z = (TEST - X.mean(0)) / X.std(0)
    np.testing.assert_allclose(np.exp(net(Z)[:, 0]), model.predict(Z), rtol=1e-9)


class OwnScaler(StandardScaler):
    def transform(self, X, copy=None):
        return np.tanh(X)


def fitted(*steps):
    return make_pipeline(*steps, regressor()).fit(X, Y[:, 0])


REFUSED = {
    "tanh": (lambda: regressor(activation="tanh").fit(X, Y), UnsupportedError, "activation='tanh'"),
    "logistic": (lambda: regressor(activation="logistic").fit(X, Y), UnsupportedError, "activation='logistic'"),
    "not fitted": (lambda: regressor(), InputError, r"MLPRegressor.* is not fitted.*fit\(X, y\)"),
    "pipeline not fitted": (lambda: make_pipeline(StandardScaler(), regressor()), InputError, "is not fitted"),
    "scaler not fitted": (
        lambda: Pipeline([("s", StandardScaler()), ("m", regressor().fit(X, Y))]),
        InputError, r"Pipeline\.s .*not fitted",
    ),
    "selector not fitted": (
        lambda: Pipeline([("s", VarianceThreshold()), ("m", regressor().fit(X, Y))]), InputError, "not fitted",
    ),
    "target not fitted": (lambda: TransformedTargetRegressor(regressor()), InputError, "not fitted"),
    "function": (lambda: fitted(FunctionTransformer(np.tanh)), UnsupportedError, "FunctionTransformer.*any function"),
    "polynomial": (lambda: fitted(PolynomialFeatures()), UnsupportedError, r"\.polynomialfeatures is a Poly"),
    "normaliser": (lambda: fitted(Normalizer()), UnsupportedError, "Normalizer"),
    "quantiles": (lambda: fitted(QuantileTransformer(n_quantiles=20)), UnsupportedError, "QuantileTransformer"),
    "columns": (
        lambda: fitted(ColumnTransformer([("a", Normalizer(), [0, 1])])), UnsupportedError,
        r"columntransformer\.a is a Norm",
    ),
    "own subclass": (lambda: fitted(OwnScaler()), UnsupportedError, "OwnScaler"),
    "tree": (lambda: DecisionTreeRegressor().fit(X, Y), UnsupportedError, "DecisionTreeRegressor"),
    "target function": (
        lambda: TransformedTargetRegressor(regressor(), func=np.arcsinh, inverse_func=np.sinh).fit(X, Y[:, 0]),
        UnsupportedError, "func and inverse_func",
    ),
    "target quantiles": (
        lambda: TransformedTargetRegressor(regressor(), transformer=QuantileTransformer(n_quantiles=9)).fit(X, Y[:, 0]),
        UnsupportedError, "QuantileTransformer",
    ),
    "no network": (
        lambda: Pipeline([("a", StandardScaler()), ("b", "passthrough")]).fit(X), UnsupportedError, "end in a",
    ),
    "option": (lambda: regressor(), InputError, "has no option"),
}  # fmt: skip


@pytest.mark.parametrize(("build", "kind", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals(build, kind, message: str) -> None:
    model = build()
    options = {"activation": "relu"} if "option" in message else {}
    with pytest.raises(kind, match=message) as caught:
        load(model, **options)
    assert "\n" not in str(caught.value)
