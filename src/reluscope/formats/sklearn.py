"""Networks from fitted scikit-learn estimators.

`MLPClassifier` and `MLPRegressor` with `relu` or `identity` units; pipelines whose earlier steps are affine
(scalers, PCA, feature selection), which are folded into the first layer; `TransformedTargetRegressor` with an
affine transformer; a fitted `GridSearchCV` and its relatives (their best estimator).

For a classifier the network gives the *logits*: softmax (or the logistic function, for two classes or several
labels) of the outputs is `predict_proba`. scikit-learn itself is not imported: everything is read off the object.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from reluscope._check import FloatArray, real_array
from reluscope.activations import Activation, clip
from reluscope.errors import InputError, ReluscopeWarning, UnsupportedError
from reluscope.limits import DEFAULT_LIMITS, Limits
from reluscope.network import Network

__all__ = ["load_sklearn"]

_DEPTH = 20
"""Estimators inside estimators."""


class _Step(NamedTuple):
    """An affine step `z = M x + c`, clipped afterwards when `bounds` is given.

    A diagonal `M` is a vector; an index vector (feature selection) has an integer dtype.
    """

    M: Any
    c: FloatArray
    bounds: Activation | None = None


def load_sklearn(estimator: Any, *, limits: Limits = DEFAULT_LIMITS) -> Network:
    """The network inside a fitted scikit-learn estimator or pipeline; `X -> outputs` in the estimator's own units."""
    network = _load(estimator, type(estimator).__name__, 0)
    limits.check("layers", len(network.layers), network.name)
    limits.check("weights", network.n_parameters, network.name)
    return network


def _load(estimator: Any, path: str, depth: int) -> Network:
    if depth > _DEPTH:
        raise InputError(f"{path}: estimators are nested more than {_DEPTH} deep")
    kind = type(estimator).__name__
    if not type(estimator).__module__.startswith("sklearn."):
        raise UnsupportedError(
            f"{path} is a {type(estimator).__module__}.{kind}, not one of scikit-learn's own estimators"
        )
    if kind in ("MLPClassifier", "MLPRegressor"):
        return _perceptron(estimator, path)
    if kind == "Pipeline":
        return _pipeline(estimator, path, depth)
    if kind == "TransformedTargetRegressor":
        return _transformed_target(estimator, path, depth)
    if kind in ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV"):
        return _load(_fitted(estimator, "best_estimator_", path), f"{path}.best_estimator_", depth + 1)
    raise UnsupportedError(
        f"{path} is a {kind}, which is not a piecewise-affine network; known are MLPClassifier, MLPRegressor, "
        "Pipeline, TransformedTargetRegressor and GridSearchCV"
    )


def _perceptron(model: Any, path: str) -> Network:
    weights, biases = _fitted(model, "coefs_", path), _fitted(model, "intercepts_", path)
    if model.activation not in ("relu", "identity"):
        raise UnsupportedError(
            f"{path} has activation={model.activation!r}, which is not piecewise linear; train it with "
            "activation='relu'"
        )
    notes = []
    out = model.out_activation_
    if out == "softmax":
        notes.append(f"outputs are logits of classes {_classes(model)}, before softmax")
    elif out == "logistic":
        what = f"class {model.classes_[1]!s}" if len(model.classes_) == 2 else f"labels {_classes(model)}"
        notes.append(f"outputs are logits of {what}, before the logistic function")
    elif out == "exp":
        notes.append("outputs are logarithms of the prediction: the final exp was cut off")
        warnings.warn(f"{path}: {notes[-1]}", ReluscopeWarning, stacklevel=4)
    elif out != "identity":
        raise UnsupportedError(f"{path} has output activation {out!r}, which is not known")
    layers = [(np.asarray(W).T, b) for W, b in zip(weights, biases, strict=True)]
    return Network(layers, model.activation, name=path, notes=notes)


def _classes(model: Any) -> str:
    names = [str(c) for c in model.classes_[:6]]
    return "[" + ", ".join(names) + (", ...]" if len(model.classes_) > 6 else "]")


def _pipeline(pipeline: Any, path: str, depth: int) -> Network:
    steps = list(pipeline.steps)
    if not steps or steps[-1][1] in ("passthrough", None):
        raise UnsupportedError(f"{path} does not end in a network: its last step is passthrough")
    network = _load(steps[-1][1], f"{path}.{steps[-1][0]}", depth + 1)
    for name, step in reversed(_flat_steps(steps[:-1], path, depth)):
        network = _before(network, _affine(step, name))
    return network


def _flat_steps(steps: list[tuple[str, Any]], path: str, depth: int) -> list[tuple[str, Any]]:
    """The transformers in order, with pipelines inside the pipeline opened up."""
    if depth > _DEPTH:
        raise InputError(f"{path}: pipelines are nested more than {_DEPTH} deep")
    found: list[tuple[str, Any]] = []
    for name, step in steps:
        where = f"{path}.{name}"
        if step is None or (isinstance(step, str) and step == "passthrough"):
            continue
        if type(step).__name__ == "Pipeline" and type(step).__module__.startswith("sklearn."):
            found += _flat_steps(list(step.steps), where, depth + 1)
        else:
            found.append((where, step))
    return found


def _before(network: Network, step: _Step) -> Network:
    """`x -> network(step(x))`."""
    n = network.n_inputs
    if len(step.c) != n:
        raise InputError(f"a step gives {len(step.c)} features but the next one takes {n}")
    if np.asarray(step.M).ndim == 1:
        if np.asarray(step.M).dtype.kind == "i":
            chosen, width = step.M[:-1], int(step.M[-1])
            M = sparse.csr_array((np.ones(n), (np.arange(n), chosen)), shape=(n, width))
        else:
            M = sparse.dia_array((step.M[None, :], [0]), shape=(n, n)).tocsr()
    else:
        M = step.M
    if step.bounds is None:
        return network.after(M, step.c)
    return Network(
        [(M, step.c, step.bounds), *network.layers],
        output_shape=network.output_shape,
        name=network.name,
        notes=network.notes,
    )


# -- affine transformers ---------------------------------------------------------------------------------------


def _affine(step: Any, path: str) -> _Step:
    kind = type(step).__name__
    own = type(step).__module__.startswith("sklearn.")
    maker = _TRANSFORMERS.get(kind) if own else None
    if maker is not None:
        return maker(step, path)
    if own and any(c.__name__ == "SelectorMixin" for c in type(step).__mro__):
        return _selection(step, path)
    hint = {
        "FunctionTransformer": "; it may hold any function",
        "ColumnTransformer": "; apply it first and load the network alone",
    }.get(kind, "")
    raise UnsupportedError(
        f"{path} is a {kind}, which is not known to be affine{hint}; known are {', '.join(_TRANSFORMERS)} and "
        "feature selection"
    )


def _standard(step: Any, path: str) -> _Step:
    n = int(_fitted(step, "n_features_in_", path))
    scale = _vector(step.scale_, 1.0, n, f"{path}.scale_") if step.with_std else np.ones(n)
    mean = _vector(step.mean_, 0.0, n, f"{path}.mean_") if step.with_mean else np.zeros(n)
    return _Step(1.0 / scale, -mean / scale)


def _min_max(step: Any, path: str) -> _Step:
    n = int(_fitted(step, "n_features_in_", path))
    scale, shift = _vector(step.scale_, 1.0, n, path), _vector(step.min_, 0.0, n, path)
    low, high = step.feature_range
    return _Step(scale, shift, clip(float(low), float(high)) if step.clip else None)


def _max_abs(step: Any, path: str) -> _Step:
    n = int(_fitted(step, "n_features_in_", path))
    bounds = clip(-1.0, 1.0) if getattr(step, "clip", False) else None
    return _Step(1.0 / _vector(step.scale_, 1.0, n, path), np.zeros(n), bounds)


def _robust(step: Any, path: str) -> _Step:
    n = int(_fitted(step, "n_features_in_", path))
    scale, centre = _vector(step.scale_, 1.0, n, path), _vector(step.center_, 0.0, n, path)
    return _Step(1.0 / scale, -centre / scale)


def _principal(step: Any, path: str) -> _Step:
    V = real_array(_fitted(step, "components_", path), f"{path}.components_", ndim=2)
    mean = _vector(getattr(step, "mean_", None), 0.0, V.shape[1], path)
    if getattr(step, "whiten", False):
        # scikit-learn guards components without variance in the same way.
        scale = np.sqrt(real_array(step.explained_variance_, f"{path}.explained_variance_", ndim=1))
        V = V / np.maximum(scale, np.finfo(np.float64).eps)[:, None]
    return _Step(V, -V @ mean)


def _selection(step: Any, path: str) -> _Step:
    n = int(_fitted(step, "n_features_in_", path))
    try:
        chosen = np.flatnonzero(step.get_support())
    except Exception as error:
        raise _unfitted(step, path) from error
    return _Step(np.append(chosen, n).astype(np.int64), np.zeros(len(chosen)))


_TRANSFORMERS: dict[str, Callable[[Any, str], _Step]] = {
    "StandardScaler": _standard,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "RobustScaler": _robust,
    "PCA": _principal,
    "IncrementalPCA": _principal,
    "TruncatedSVD": _principal,
}


# -- transformed targets ---------------------------------------------------------------------------------------


def _transformed_target(model: Any, path: str, depth: int) -> Network:
    network = _load(_fitted(model, "regressor_", path), f"{path}.regressor_", depth + 1)
    transformer = _fitted(model, "transformer_", path)
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
    step = _affine(transformer, where)
    # The inverse of z = M y + c; clipping, if any, is not undone by scikit-learn either.
    return network.then(np.diag(1.0 / step.M), -step.c / step.M)


# -- small things ----------------------------------------------------------------------------------------------


def _fitted(estimator: Any, attribute: str, path: str) -> Any:
    value = getattr(estimator, attribute, None)
    if value is None:
        raise _unfitted(estimator, path)
    return value


def _unfitted(estimator: Any, path: str) -> InputError:
    return InputError(f"{path} ({type(estimator).__name__}) is not fitted; call fit(X, y) first")


def _vector(value: Any, default: float, n: int, name: str) -> FloatArray:
    return np.full(n, default) if value is None else real_array(value, name, ndim=1)
