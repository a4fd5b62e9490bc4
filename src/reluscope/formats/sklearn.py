"""Networks from fitted scikit-learn estimators.

`MLPClassifier` and `MLPRegressor` with `relu` or `identity` units, linear and logistic models, and our own estimators;
pipelines and `ColumnTransformer`s before them (`_sklearn_tables`); `TransformedTargetRegressor` with an affine
transformer; `CalibratedClassifierCV` where its map is monotone; a fitted `GridSearchCV` and its relatives (their
best estimator).

For a classifier the network gives the *logits* (or decision values), and its schema says what makes probabilities of
them. Names of columns, categories, classes and the decision rule are in the schema. scikit-learn itself is not
imported: everything is read off the object.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from reluscope._check import real_array
from reluscope._columns import plain
from reluscope.errors import InputError, ReluscopeWarning, UnsupportedError
from reluscope.formats._sklearn_tables import DEPTH, Front, affine_step, fitted
from reluscope.limits import DEFAULT_LIMITS, Limits
from reluscope.network import Network
from reluscope.schema import Column, Output, Schema

__all__ = ["affine_step", "load_sklearn"]

_REGRESSORS = (
    "LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV", "BayesianRidge",
    "HuberRegressor", "QuantileRegressor", "LinearSVR", "SGDRegressor",
)  # fmt: skip
_CLASSIFIERS = (
    "LogisticRegression", "LogisticRegressionCV", "RidgeClassifier", "RidgeClassifierCV", "LinearSVC",
    "SGDClassifier", "Perceptron",
)  # fmt: skip
_SEARCHES = ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV")


def load_sklearn(estimator: Any, *, limits: Limits = DEFAULT_LIMITS) -> Network:
    """The network inside a fitted scikit-learn estimator or pipeline; `X -> outputs` in the estimator's own units."""
    network = _load(estimator, type(estimator).__name__, 0)
    limits.check("layers", len(network.layers), network.name)
    limits.check("weights", network.n_parameters, network.name)
    return _named(network, estimator)


def _named(network: Network, estimator: Any) -> Network:
    """The names of the columns, where the estimator has them and no pipeline has said more."""
    if network.schema is not None and network.schema.columns:
        return network
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or len(names) != network.n_inputs:
        return network
    return network.with_schema(columns=tuple(Column(str(n)) for n in names))


def _load(estimator: Any, path: str, depth: int) -> Network:
    if depth > DEPTH:
        raise InputError(f"{path}: estimators are nested more than {DEPTH} deep")
    kind, home = type(estimator).__name__, type(estimator).__module__
    if home.startswith("reluscope.") and kind in ("ReluClassifier", "ReluRegressor"):
        return _own(estimator, path)
    if home.startswith("reluscope."):
        raise UnsupportedError(f"{path} is a {kind}, whose predictions are no network; its field network_ is one")
    if not home.startswith("sklearn."):
        raise UnsupportedError(f"{path} is a {home}.{kind}, not one of scikit-learn's own estimators")
    if kind in ("MLPClassifier", "MLPRegressor"):
        return _perceptron(estimator, path)
    if kind in _REGRESSORS or kind in _CLASSIFIERS:
        return _linear(estimator, path)
    if kind == "Pipeline":
        return _pipeline(estimator, path, depth)
    if kind == "TransformedTargetRegressor":
        return _transformed_target(estimator, path, depth)
    if kind == "CalibratedClassifierCV":
        return _calibrated(estimator, path, depth)
    if kind in _SEARCHES:
        return _load(fitted(estimator, "best_estimator_", path), f"{path}.best_estimator_", depth + 1)
    if kind == "FrozenEstimator":
        return _load(estimator.estimator, f"{path}.estimator", depth + 1)
    raise UnsupportedError(
        f"{path} is a {kind}, which is not a piecewise-affine network; known are MLPClassifier, MLPRegressor, linear "
        "and logistic models, Pipeline, TransformedTargetRegressor, CalibratedClassifierCV and GridSearchCV"
    )


# -- models ----------------------------------------------------------------------------------------------------


def _perceptron(model: Any, path: str) -> Network:
    weights, biases = fitted(model, "coefs_", path), fitted(model, "intercepts_", path)
    if model.activation not in ("relu", "identity"):
        raise UnsupportedError(
            f"{path} has activation={model.activation!r}, which is not piecewise linear; train it with "
            "activation='relu'"
        )
    notes, schema = [], None
    out = model.out_activation_
    if out == "softmax":
        notes.append(f"outputs are logits of classes {_classes(model)}, before softmax")
        schema = _decisions(model.classes_, "softmax")
    elif out == "logistic":
        what = f"class {model.classes_[1]!s}" if len(model.classes_) == 2 else f"labels {_classes(model)}"
        notes.append(f"outputs are logits of {what}, before the logistic function")
        several = len(biases[-1]) > 1
        schema = _labels(model.classes_) if several else _decisions(model.classes_, "sigmoid")
    elif out == "exp":
        notes.append("outputs are logarithms of the prediction: the final exp was cut off")
        warnings.warn(f"{path}: {notes[-1]}", ReluscopeWarning, stacklevel=4)
    elif out != "identity":
        raise UnsupportedError(f"{path} has output activation {out!r}, which is not known")
    layers = [(np.asarray(W).T, b) for W, b in zip(weights, biases, strict=True)]
    return Network(layers, model.activation, name=path, notes=notes, schema=schema)


def _linear(model: Any, path: str) -> Network:
    W = np.atleast_2d(real_array(fitted(model, "coef_", path), f"{path}.coef_"))
    b = np.atleast_1d(real_array(fitted(model, "intercept_", path), f"{path}.intercept_"))
    schema = None
    if type(model).__name__ in _CLASSIFIERS:
        logistic = type(model).__name__.startswith("Logistic") or getattr(model, "loss", "") == "log_loss"
        together = logistic and len(W) > 1 and type(model).__name__.startswith("Logistic")
        one_by_one = getattr(model, "multi_class", "") == "ovr" or getattr(model, "solver", "") == "liblinear"
        link = "softmax" if together and not one_by_one else "sigmoid" if logistic and len(W) == 1 else "raw"
        schema = _decisions(model.classes_, link)
    return Network([(W, np.broadcast_to(b, (len(W),)))], name=path, schema=schema)


def _own(model: Any, path: str) -> Network:
    network: Network = fitted(model, "network_", path)
    if type(model).__name__ == "ReluClassifier":
        link = "sigmoid" if network.n_outputs == 1 else "softmax"
        network = network.with_schema(_decisions(model.classes_, link))
    return _named(network, model)


def _classes(model: Any) -> str:
    names = [str(c) for c in model.classes_[:6]]
    return "[" + ", ".join(names) + (", ...]" if len(model.classes_) > 6 else "]")


def _decisions(classes: Any, link: str) -> Schema:
    """One output that decides between two classes, or one output per class."""
    labels = tuple(plain(c) for c in np.asarray(classes).tolist())
    if len(labels) == 2:
        name = f"P({labels[1]})" if link != "raw" else str(labels[1])
        return Schema(outputs=(Output(name, link=link),), classes=labels)
    return Schema(outputs=tuple(Output(str(c), link=link) for c in labels), classes=labels)


def _labels(labels: Any) -> Schema:
    return Schema(outputs=tuple(Output(f"P({plain(c)})", link="sigmoid") for c in labels))


# -- pipelines -------------------------------------------------------------------------------------------------


def _pipeline(pipeline: Any, path: str, depth: int) -> Network:
    steps = list(pipeline.steps)
    if not steps or steps[-1][1] in ("passthrough", None):
        raise UnsupportedError(f"{path} does not end in a network: its last step is passthrough")
    network = _load(steps[-1][1], f"{path}.{steps[-1][0]}", depth + 1)
    own = None if network.schema is None else network.schema.columns
    front = None
    for name, step in steps[:-1]:
        if step is None or (isinstance(step, str) and step == "passthrough"):
            continue
        front = Front(_table_names(pipeline, step, f"{path}.{name}")) if front is None else front
        front.add(step, f"{path}.{name}")
    if front is None:
        return network
    if own and any(c.kind == "category" for c in own):
        raise UnsupportedError(f"{path} has a pipeline with categories inside a pipeline; put all steps in one")
    before, columns, unused = front.before(network)
    about = Schema() if before.schema is None else before.schema
    named = bool(_names(pipeline)) or any(c.kind == "category" for c in columns)
    schema = replace(about, columns=columns, unused=unused) if named or unused else before.schema
    return Network(before.layers, output_shape=before.output_shape, name=before.name, notes=before.notes, schema=schema)


def _names(estimator: Any) -> list[str]:
    found = getattr(estimator, "feature_names_in_", None)
    return [] if found is None else [str(n) for n in found]


def _table_names(pipeline: Any, step: Any, path: str) -> list[str]:
    """The names of the table's columns; x0, x1, ... where the pipeline was fitted on arrays."""
    names = _names(pipeline)
    if names:
        return names
    while type(step).__name__ == "Pipeline" and step.steps:
        step = step.steps[0][1]
    n = getattr(step, "n_features_in_", None)
    if n is None and hasattr(step, "transformer_list"):
        n = getattr(step.transformer_list[0][1], "n_features_in_", None)
    if n is None:
        components = getattr(step, "components_", None)
        n = None if components is None else np.shape(components)[1]
    if n is None:
        n = fitted(step, "n_features_in_", path)
    return [f"x{i}" for i in range(int(n))]


# -- calibration -----------------------------------------------------------------------------------------------


def _calibrated(model: Any, path: str, depth: int) -> Network:
    """A classifier whose probabilities are a monotone function of one score: events move to the score."""
    members = fitted(model, "calibrated_classifiers_", path)
    if len(members) != 1:
        raise UnsupportedError(
            f"{path} averages {len(members)} calibrated classifiers, which is no monotone function of one score; fit "
            "it with ensemble=False, or load one of its calibrated_classifiers_"
        )
    member = members[0]
    if len(member.classes) != 2 or len(member.calibrators) != 1:
        raise UnsupportedError(f"{path} calibrates {len(member.classes)} classes; only two are a matter of one score")
    network = _load(member.estimator, f"{path}.estimator", depth + 1)
    network = _named(network, member.estimator)
    schema = network.schema
    if schema is None or len(schema.outputs) != 1:
        raise UnsupportedError(f"{path}.estimator does not give one score for two classes")
    # scikit-learn calibrates decision values where there are any, else probabilities.
    scored = schema.outputs[0] if not hasattr(member.estimator, "decision_function") else Output("score")
    calibrator = member.calibrators[0]
    kind = type(calibrator).__name__
    if kind == "_SigmoidCalibration":
        a, b = -float(calibrator.a_), -float(calibrator.b_)
        if a == 0:
            raise UnsupportedError(f"{path} gives every input the same probability")
        step: Any = ("sigmoid", (a, b))
    elif kind == "IsotonicRegression":
        a = 1.0 if calibrator.increasing_ else -1.0
        x, p = np.asarray(calibrator.X_thresholds_), np.asarray(calibrator.y_thresholds_)
        if a < 0 or len(x) < 2:
            raise UnsupportedError(f"{path} has a calibration that does not rise with the score")
        step = ("isotonic", (*x.tolist(), *p.tolist()))
    else:
        raise UnsupportedError(f"{path} calibrates by {kind.strip('_')}, which is not known; use sigmoid or isotonic")
    sign = 1.0 if a > 0 else -1.0
    out = replace(
        scored,
        name=f"P({plain(member.classes[1])})",
        scale=sign * scored.scale,
        shift=sign * scored.shift,
        calibration=(*scored.calibration, step),
    )
    columns = schema.of_inputs() or Schema()
    classes = tuple(plain(c) for c in np.asarray(member.classes).tolist())
    turned = network if sign > 0 else network.then([[-1.0]])
    return turned.with_schema(replace(columns, outputs=(out,), classes=classes, rule="above", cutoff=0.5))


# -- transformed targets ---------------------------------------------------------------------------------------


def _transformed_target(model: Any, path: str, depth: int) -> Network:
    network = _load(fitted(model, "regressor_", path), f"{path}.regressor_", depth + 1)
    network = _named(network, model.regressor_)
    transformer = fitted(model, "transformer_", path)
    where = f"{path}.transformer_"
    if type(transformer).__name__ == "FunctionTransformer":
        if transformer.func is None and transformer.inverse_func is None:
            return network
        raise UnsupportedError(
            f"{path} transforms its target by func and inverse_func, which may be anything; use transformer= "
            "with a scaler"
        )
    kind = type(transformer).__name__
    if kind not in ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"):
        raise UnsupportedError(f"{where} is a {kind}; only scalers are known for targets")
    step = affine_step(transformer, where)
    # The inverse of z = M y + c; clipping, if any, is not undone by scikit-learn either.
    return network.then(np.diag(1.0 / step.M), -step.c / step.M)
