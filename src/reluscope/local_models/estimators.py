"""Estimators in scikit-learn's form, for pipelines and `GridSearchCV` (the `sklearn` extra).

`ReluClassifier` and `ReluRegressor` are ReLU networks trained with an L1 penalty; after `fit`, `network_` is a
`reluscope.Network` and `unwrap(X, y)` opens it. `LocalLinearClassifier` and `LocalLinearRegressor` go on to merge its
regions and predict with the few linear models that remain (`models_`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from reluscope._check import FloatArray, any_array, integer
from reluscope._extras import require
from reluscope.errors import InputError, InputTypeError
from reluscope.local_models import scores
from reluscope.local_models._data import Response, check_beside
from reluscope.local_models.merged import MergedModels
from reluscope.local_models.training import Recipe, train
from reluscope.local_models.unwrap import Unwrapped, unwrap

require("sklearn", "sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.class_weight import compute_sample_weight  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import (  # noqa: E402
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

_RECIPE = ("hidden", "l1", "l2", "rate", "batch", "epochs", "patience", "validation_fraction")
__all__ = ["LocalLinearClassifier", "LocalLinearRegressor", "ReluClassifier", "ReluRegressor"]


@contextmanager
def _in_words(names: str) -> Iterator[None]:
    """What scikit-learn says of bad arguments, as an `InputError`: its words stay, and so does its kind."""
    try:
        yield
    except Exception as error:  # its checks look into objects of any kind
        kind = InputError if type(error) is ValueError else InputTypeError
        words = str(error)
        raise kind(f"{names}: {words if len(words) <= 600 else words[:597] + '...'}") from error


def _unmasked(values: Any, name: str) -> None:
    """scikit-learn drops masks in silence."""
    if isinstance(values, np.ma.MaskedArray):
        any_array(values, name, "an array")


class _ReluBase(BaseEstimator):
    """What the estimators share: parameters, training, unwrapping."""

    def __init__(
        self,
        hidden: tuple[int, ...] = (40, 40),
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        rate: float = 1e-3,
        batch: int = 256,
        epochs: int = 300,
        patience: int = 20,
        validation_fraction: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.l1 = l1
        self.l2 = l2
        self.rate = rate
        self.batch = batch
        self.epochs = epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def _train(self, X: FloatArray, response: Response, weight: FloatArray | None) -> None:
        recipe = Recipe(**{name: getattr(self, name) for name in _RECIPE})
        with _in_words("random_state"):
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        done = train(X, response, recipe, sample_weight=weight, rng=seed)
        self.network_ = done.network
        self.seed_ = seed
        self.n_iter_ = len(done.objective)
        self.objective_ = done.objective
        self._finish(X, response, weight)

    def _finish(self, X: FloatArray, response: Response, weight: FloatArray | None) -> None:
        """What follows the training; nothing here."""

    def _weight(self, sample_weight: Any, X: FloatArray) -> FloatArray | None:
        """Weights of rows, none of them negative; None if there are none."""
        if sample_weight is None:
            return None
        _unmasked(sample_weight, "sample_weight")
        with _in_words("sample_weight"):
            weight: FloatArray = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return weight

    def _rows(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        _unmasked(X, "X")
        with _in_words("X"):
            rows: FloatArray = validate_data(self, X, dtype=np.float64, reset=False)
        return rows

    def _outputs(self, X: Any) -> FloatArray:
        rows = self._rows(X)  # first: it says so if nothing was fitted
        return self.network_(rows)

    def unwrap(self, X: Any, y: Any = None, **options: Any) -> Unwrapped:
        """The fitted network as local linear models of a data set; options as for `reluscope.unwrap`.

        Parameters
        ----------
        X : (n, features)
        y : (n,), optional
        **options
            As for `reluscope.unwrap`.

        Returns
        -------
        Unwrapped
        """
        check_is_fitted(self)
        return unwrap(self, X, y, **options)  # names and classes are read off the estimator


class ReluClassifier(ClassifierMixin, _ReluBase):
    """A ReLU network for classes, trained by Adam with a proximal L1 step.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the hidden layers.
    l1, l2 : float
        Penalties.
    rate, batch, epochs, patience, validation_fraction
        As for `reluscope.local_models.training.Recipe`.
    class_weight : None, "balanced" or dict
        How much rows of each class count, as everywhere in scikit-learn. Probabilities are then those of a population
        with that share of classes.
    random_state : None, int or numpy RandomState
        As everywhere in scikit-learn.

    Attributes
    ----------
    network_ : Network
    classes_ : array
    n_iter_ : int
        Epochs.
    objective_ : array
        Objective after each epoch.
    seed_ : int
        The seed of the training that `random_state` gave.

    Examples
    --------
    >>> import numpy as np, reluscope as rs
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = rs.ReluClassifier((8,), rate=0.02, random_state=0).fit(X, np.abs(X[:, 0]) > 0.5)
    >>> bool(model.score(X, np.abs(X[:, 0]) > 0.5) > 0.95), model.predict([[0.0], [0.9]]).tolist()
    (True, [False, True])
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (40, 40),
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        rate: float = 1e-3,
        batch: int = 256,
        epochs: int = 300,
        patience: int = 20,
        validation_fraction: float = 0.1,
        class_weight: Any = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            hidden, l1=l1, l2=l2, rate=rate, batch=batch, epochs=epochs, patience=patience,
            validation_fraction=validation_fraction, random_state=random_state,
        )  # fmt: skip
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ReluClassifier:
        """Train on rows `X` (n, features) and labels `y`.

        Parameters
        ----------
        X : (n, features)
        y : (n,)
        sample_weight : (n,), optional
            How much each row counts; rows of weight 0 do not count.

        Returns
        -------
        self
        """
        _unmasked(X, "X")
        _unmasked(y, "y")
        check_beside(X, y, sample_weight)
        with _in_words("X, y"):
            X, y = validate_data(self, X, y, dtype=np.float64)
            check_classification_targets(y)
            self.classes_, code = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"{type(self).__name__} needs two classes or more, got one class: {self.classes_[0]!r}")
        task = "binary" if len(self.classes_) == 2 else "multiclass"
        response = Response(task, None, code.astype(np.int64), tuple(self.classes_.tolist()))
        weight = self._weight(sample_weight, X)
        if self.class_weight is not None:
            with _in_words("class_weight"):
                by_class = compute_sample_weight(self.class_weight, y)
            weight = by_class if weight is None else weight * by_class
        self._train(X, response, weight)
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Logits: (n,) for two classes, else (n, classes).

        Parameters
        ----------
        X : (n, features)

        Returns
        -------
        (n,) or (n, classes) array
        """
        eta = self._outputs(X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities, shape (n, classes).

        Parameters
        ----------
        X : (n, features)

        Returns
        -------
        (n, classes) array
        """
        return scores.probabilities(self._outputs(X))

    def predict(self, X: Any) -> Any:
        """The most probable class of each row.

        Parameters
        ----------
        X : (n, features)

        Returns
        -------
        (n,) array
        """
        best = scores.winners(self._outputs(X))
        return self.classes_[best]


class ReluRegressor(RegressorMixin, _ReluBase):
    """A ReLU network for numbers, trained by Adam with a proximal L1 step.

    Parameters and attributes are those of `ReluClassifier`, but for `classes_`; `score` is R².

    Examples
    --------
    >>> import numpy as np, reluscope as rs
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = rs.ReluRegressor((8,), rate=0.02, random_state=0).fit(X, np.abs(X[:, 0]))
    >>> bool(model.score(X, np.abs(X[:, 0])) > 0.95)
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ReluRegressor:
        """Train on rows `X` (n, features) and numbers `y`, (n,) or (n, outputs).

        Parameters
        ----------
        X : (n, features)
        y : (n,) or (n, outputs)
        sample_weight : (n,), optional
            How much each row counts; rows of weight 0 do not count.

        Returns
        -------
        self
        """
        _unmasked(X, "X")
        _unmasked(y, "y")
        check_beside(X, y, sample_weight)
        with _in_words("X, y"):
            X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        self._flat = y.ndim == 1
        response = Response("regression", np.asarray(y, dtype=np.float64).reshape(len(y), -1))
        self._train(X, response, self._weight(sample_weight, X))
        return self

    def predict(self, X: Any) -> FloatArray:
        """Predicted numbers, in the shape of the `y` that was fitted.

        Parameters
        ----------
        X : (n, features)

        Returns
        -------
        (n,) or (n, outputs) array
        """
        eta = self._outputs(X)
        return eta[:, 0] if self._flat else eta


class _Merging:
    """Merging after training, and prediction by the merged models; the first base of a class that trains a network."""

    models_: MergedModels

    def __init__(
        self,
        n_models: int | None = None,
        *,
        penalty: float = 1.0,
        hidden: tuple[int, ...] = (40, 40),
        l1: float = 0.0,
        l2: float = 0.0,
        rate: float = 1e-3,
        batch: int = 256,
        epochs: int = 300,
        patience: int = 20,
        validation_fraction: float = 0.1,
        random_state: Any = None,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            hidden,
            l1=l1,
            l2=l2,
            rate=rate,
            batch=batch,
            epochs=epochs,
            patience=patience,
            validation_fraction=validation_fraction,
            random_state=random_state,
        )
        self.n_models = n_models
        self.penalty = penalty

    def _finish(self, X: FloatArray, response: Response, weight: FloatArray | None) -> None:
        y = response.target if response.code is None else response.code
        classes = None if response.code is None else list(range(len(response.classes)))
        net = self.network_  # type: ignore[attr-defined]
        u = unwrap(net, X, y, task=response.task, classes=classes, sample_weight=weight)
        n = None if self.n_models is None else min(integer(self.n_models, "n_models", low=1), len(u))
        # Facets of the box would not be found in time for many inputs, and neighbours serve as well.
        self.models_ = u.merge(n, penalty=self.penalty, adjacency="nearest", rng=self.seed_)  # type: ignore[attr-defined]

    def _outputs(self, X: Any) -> FloatArray:
        rows = self._rows(X)  # type: ignore[attr-defined]
        return self.models_.outputs(rows)


class LocalLinearClassifier(_Merging, ReluClassifier):
    """A few logistic models, each for a cluster of a ReLU network's regions.

    Parameters
    ----------
    n_models : int, optional
        Number of models; by default cross-validation chooses it.
    penalty : float
        Ridge of the refits.
    hidden, l1, l2, rate, batch, epochs, patience, validation_fraction, class_weight, random_state
        Train the network, as for `ReluClassifier`.

    Attributes
    ----------
    models_ : MergedModels
    network_, classes_, n_iter_, objective_, seed_
        As for `ReluClassifier`.

    Examples
    --------
    >>> import numpy as np, reluscope as rs
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = rs.LocalLinearClassifier(2, hidden=(8,), rate=0.02, random_state=0).fit(X, np.abs(X[:, 0]) > 0.5)
    >>> len(model.models_), bool(model.score(X, np.abs(X[:, 0]) > 0.5) > 0.9)
    (2, True)
    """

    def __init__(
        self,
        n_models: int | None = None,
        *,
        penalty: float = 1.0,
        hidden: tuple[int, ...] = (40, 40),
        l1: float = 0.0,
        l2: float = 0.0,
        rate: float = 1e-3,
        batch: int = 256,
        epochs: int = 300,
        patience: int = 20,
        validation_fraction: float = 0.1,
        class_weight: Any = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_models, penalty=penalty, hidden=hidden, l1=l1, l2=l2, rate=rate, batch=batch, epochs=epochs,
            patience=patience, validation_fraction=validation_fraction, random_state=random_state,
        )  # fmt: skip
        self.class_weight = class_weight


class LocalLinearRegressor(_Merging, ReluRegressor):
    """A few linear models, each for a cluster of a ReLU network's regions.

    Parameters and attributes are those of `LocalLinearClassifier`, but for `classes_`; `score` is R².

    Examples
    --------
    >>> import numpy as np, reluscope as rs
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = rs.LocalLinearRegressor(2, hidden=(8,), rate=0.02, random_state=0).fit(X, np.abs(X[:, 0]))
    >>> len(model.models_), bool(model.score(X, np.abs(X[:, 0])) > 0.9)
    (2, True)
    """
