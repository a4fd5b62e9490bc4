"""The L1 path: ReLU networks trained with rising penalties, and what becomes of their regions.

A network without a penalty cuts the data into thousands of regions, many with a single row. L1 sets weights to zero:
units die or stay on, and few regions remain at little loss. `l1_path` shows the trade in one table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, generator, real_array
from reluscope._text import table as text_table
from reluscope.errors import InputError
from reluscope.local_models._data import Response, names_of, prepare, weights_of
from reluscope.local_models._source import check_columns
from reluscope.local_models.training import Recipe, train
from reluscope.local_models.unwrap import Unwrapped, unwrap
from reluscope.network import Network
from reluscope.progress import meter


@dataclass(frozen=True)
class PathPoint:
    """One penalty: regions hit by the training rows, shares of single-row and single-class regions, scores, zeros."""

    penalty: float
    regions: int
    single_row_share: float
    single_class_share: float | None
    train_score: float
    test_score: float
    unseen_share: float
    zero_share: float
    live_units: int
    epochs: int


@dataclass(frozen=True, eq=False, repr=False)
class L1Path:
    """Networks along a path of L1 penalties, smallest first; `points[k]` describes `networks[k]`.

    Scores are of `metric` (`auc`, `accuracy` or `mse`); the test rows took no part in training.
    """

    metric: str
    points: tuple[PathPoint, ...]
    networks: tuple[Network, ...]
    unwrapped: tuple[Unwrapped, ...]

    def __len__(self) -> int:
        return len(self.points)

    @property
    def penalties(self) -> FloatArray:
        """The penalties, rising."""
        return np.array([p.penalty for p in self.points])

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per penalty."""
        return [
            {
                "penalty": p.penalty,
                "regions": p.regions,
                "single_row_share": p.single_row_share,
                **({} if p.single_class_share is None else {"single_class_share": p.single_class_share}),
                f"train_{self.metric}": p.train_score,
                f"test_{self.metric}": p.test_score,
                "unseen_share": p.unseen_share,
                "zero_share": p.zero_share,
                "live_units": p.live_units,
                "epochs": p.epochs,
            }
            for p in self.points
        ]

    def sparsest(self, loss: float = 0.01) -> int:
        """Index of the largest penalty whose test score is within `loss` of the best (for MSE: a relative loss)."""
        score = np.array([p.test_score for p in self.points])
        if self.metric == "mse":
            return int(np.flatnonzero(score <= score.min() * (1 + loss))[-1])
        return int(np.flatnonzero(score >= score.max() - loss)[-1])

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        from reluscope._extras import require

        return require("pandas", "pandas").DataFrame(self.rows())

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Regions and test score against the penalty; returns the Axes."""
        from reluscope.plot.merged import plot_l1_path

        return plot_l1_path(self, ax, **options)

    def __repr__(self) -> str:
        return text_table(self.rows())


def l1_path(
    X: Any,
    y: Any,
    lambdas: npt.ArrayLike = (0.0, 1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3),
    *,
    X_test: Any = None,
    y_test: Any = None,
    hidden: tuple[int, ...] = (40, 40),
    task: str = "auto",
    test_share: float = 0.2,
    feature_names: Any = None,
    sample_weight: Any = None,
    rng: Any = 0,
    progress: Any = "auto",
    **recipe: Any,
) -> L1Path:
    """Train one ReLU network per penalty and unwrap each on the training rows.

    Every network starts from the same weights and sees the same batches. Without `X_test` a share of the rows is set
    aside. Other keywords (`rate`, `batch`, `epochs`, `patience`, `held_out`, `l2`) are those of `training.Recipe`.
    The penalty multiplies the sum of absolute weights of standardised features; the loss is a mean over rows.
    """
    rows = real_array(X, "X", ndim=2)
    penalties = np.unique(real_array(lambdas, "lambdas", ndim=1))
    if not len(penalties) or penalties[0] < 0:
        raise InputError("lambdas must be one or more numbers >= 0")
    names, columns = names_of(X, feature_names, None, rows.shape[1])
    seed = int(generator(rng).integers(2**63))
    weight = weights_of(sample_weight, len(rows))
    labels = np.asarray(y)
    if (X_test is None) != (y_test is None):
        raise InputError("X_test and y_test must be given together")
    response = response_of(labels, len(rows), task)
    if X_test is None:
        train_rows, test_rows = _set_aside(response, test_share, seed)
        test: tuple[Any, Any] = (rows[test_rows], labels[test_rows])
        rows, labels, response = rows[train_rows], labels[train_rows], response.part(train_rows)
        weight = None if weight is None else weight[train_rows]
    else:
        check_columns(X_test, () if columns is None else (columns, names), "X_test")
        test = (real_array(X_test, "X_test", ndim=2), y_test)
    try:
        base = Recipe(hidden=hidden, **recipe)
    except TypeError as error:
        raise InputError(f"unknown option for training: {error}") from error
    points, networks, views = [], [], []
    kind = response.task
    classes = list(response.classes) or None
    with meter(progress, "L1 path") as report:
        for k, penalty in enumerate(penalties.tolist()):

            def note(done: int, text: str, k: int = k, penalty: float = penalty) -> None:
                report(done, f"penalty {penalty:g} ({k + 1} of {len(penalties)}), {text}")

            done = train(rows, response, replace(base, l1=penalty), sample_weight=weight, rng=seed, progress=note)
            u = unwrap(
                done.network, rows, labels, task=kind, classes=classes, feature_names=names, sample_weight=weight
            )
            found = u.evaluate(*test)
            facts = u.describe()
            points.append(
                PathPoint(
                    penalty,
                    len(u),
                    facts["single_row_share"],
                    facts.get("single_class_share"),
                    u.score,
                    found.score,
                    found.unseen_share,
                    done.zeros,
                    _live(u),
                    len(done.objective),
                )
            )
            networks.append(done.network)
            views.append(u)
    return L1Path(views[0].metric, tuple(points), tuple(networks), tuple(views))


def response_of(y: Any, n: int, task: str) -> Response:
    """A response without a network: the number of outputs follows from `y`."""
    raw = np.asarray(y)
    column = raw.reshape(-1) if raw.ndim == 2 and raw.shape[1] == 1 else raw
    if column.ndim == 1 and task in ("auto", "binary", "multiclass"):
        whole = column.dtype.kind not in "f" or bool((column == np.round(column)).all())
        distinct = len(np.unique(column)) if whole and (task != "auto" or column.dtype.kind != "f") else 0
        if task == "auto" and whole and column.dtype.kind == "f" and len(np.unique(column)) == 2:
            distinct = 2
        if task == "auto":
            task = "binary" if distinct == 2 else "multiclass" if 2 < distinct <= 20 else "regression"
        outputs = 1 if task in ("binary", "regression") else distinct
    else:
        outputs = raw.shape[1] if raw.ndim == 2 else 1
    stand_in = Network([(np.zeros((max(outputs, 1), 1)), None)])
    return prepare(stand_in, y, n, task if task != "auto" else "regression", None)[1]


def _set_aside(response: Response, share: float, seed: int) -> tuple[Any, Any]:
    from reluscope.local_models.training import _split

    if not 0 < float(share) < 1:
        raise InputError(f"test_share must be between 0 and 1, got {share}")
    kept, held = _split(response, float(share), np.random.default_rng([seed, 1]))
    if not len(held):
        raise InputError("there are too few rows to set some aside; pass X_test and y_test")
    return kept, held


def _live(u: Unwrapped) -> int:
    """Hidden units that are on in some region with data and off in another."""
    pattern = u.patterns()
    return int((pattern.min(axis=0) != pattern.max(axis=0)).sum())
