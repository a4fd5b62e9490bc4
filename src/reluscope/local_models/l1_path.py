"""The L1 path: ReLU networks trained with rising penalties, and what becomes of their regions.

A network without a penalty cuts the data into thousands of regions, many with a single row. L1 sets weights to zero:
units die or stay on, and few regions remain at little loss. `l1_path` shows the trade in one table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, Rng, any_array, choice, describe, real, real_array, seeded
from reluscope._columns import check_rows
from reluscope._doors import door
from reluscope._tables import Tabular
from reluscope._text import table as text_table
from reluscope.errors import InputError, InputTypeError
from reluscope.local_models import table
from reluscope.local_models._data import Response, check_beside, names_of, prepare, weights_of
from reluscope.local_models._source import arranged
from reluscope.local_models.training import Recipe, Trained, train
from reluscope.local_models.unwrap import Unwrapped, unwrap
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.threads import clean_interrupt
from reluscope.workers import alone, jobs_at_hand, run, with_jobs


@dataclass(frozen=True)
class PathPoint:
    """One penalty: regions with training rows, shares of single-row and single-class regions, scores, zeros.

    Attributes
    ----------
    penalty : float
    regions : int
    single_row_share, single_class_share : float
        The latter is None for regression.
    train_score, validation_score, test_score : float
        On all training rows; on those of them that only decided when to stop (nan if there are none); on the test rows.
    unseen_share : float
        Share of the test rows in regions without training rows.
    zero_share : float
        Share of the weights that are 0.
    live_units, epochs : int
    """

    penalty: float
    regions: int
    single_row_share: float
    single_class_share: float | None
    train_score: float
    validation_score: float
    test_score: float
    unseen_share: float
    zero_share: float
    live_units: int
    epochs: int


@dataclass(frozen=True, eq=False, repr=False)
class L1Path(Tabular):
    """Networks along a path of L1 penalties, smallest first; `points[k]` describes `networks[k]`.

    Scores are of `metric` (`"auc"`, `"accuracy"` or `"r2"`, higher is better); the test rows took no part in training.
    `rng=seed` repeats the path; `seed` is None if a Generator was given.

    Attributes
    ----------
    metric : str
    points : tuple of PathPoint
    networks : tuple of Network
    unwrapped : tuple of Unwrapped
    seed : int or None
    """

    metric: str
    points: tuple[PathPoint, ...]
    networks: tuple[Network, ...]
    unwrapped: tuple[Unwrapped, ...]
    seed: int | None = None

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
                f"validation_{self.metric}": p.validation_score,
                f"test_{self.metric}": p.test_score,
                "unseen_share": p.unseen_share,
                "zero_share": p.zero_share,
                "live_units": p.live_units,
                "epochs": p.epochs,
            }
            for p in self.points
        ]

    def sparsest(self, max_drop: float = 0.01) -> int:
        """Index of the largest penalty whose validation score is at most `max_drop` below the best.

        The test rows take no part in the choice, so the test score of the network that is chosen is an honest one.

        Parameters
        ----------
        max_drop : float
            In units of the score.

        Returns
        -------
        int

        Raises
        ------
        InputError
            If no rows were held out for validation.
        """
        score = np.array([p.validation_score for p in self.points])
        if np.isnan(score).any():
            raise InputError(
                "no validation rows were held out to choose by (or one class only); pass validation_fraction to "
                "l1_path, or more rows"
            )
        return int(np.flatnonzero(score >= score.max() - real(max_drop, "max_drop", low=0.0))[-1])

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Regions and test score against the penalty; returns the Axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **options
            Go to the function that draws.

        Returns
        -------
        matplotlib Axes
        """
        return door("L1Path.plot")(self, ax, **options)

    def __repr__(self) -> str:
        return text_table(self.rows())


@clean_interrupt()
@with_jobs
def l1_path(
    X: Any,
    y: Any,
    penalties: npt.ArrayLike = (0.0, 1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3),
    *,
    X_test: Any = None,
    y_test: Any = None,
    hidden: tuple[int, ...] = (40, 40),
    task: str = "auto",
    test_share: float = 0.2,
    feature_names: Any = None,
    sample_weight: Any = None,
    jobs: Any = None,
    rng: Rng = None,
    progress: Any = None,
    **recipe: Any,
) -> L1Path:
    """Train one ReLU network per penalty and unwrap each on the training rows.

    Parameters
    ----------
    X : (n, inputs)
        Rows.
    y : (n,) or (n, outputs)
        Numbers, or class labels.
    penalties : sequence of float
        L1 penalties.
    X_test, y_test : optional
        Test rows; by default a share of the rows is set aside.
    hidden : tuple of int
        Widths of the hidden layers.
    task : {"auto", "regression", "binary", "multiclass"}
        What `y` is.
    test_share : float
        Share of the rows that is set aside.
    feature_names : sequence of str, optional
    sample_weight : (n,), optional
    jobs : int, optional
        Worker processes that share the penalties, -1 for all cores; the same result for any number of them.
    rng : None, int, SeedSequence or Generator
        First weights, batches, and the rows that are set aside.
    progress : optional
        None (silent), "auto", or a function of (done, text).
    **recipe
        `rate`, `batch`, `epochs`, `patience`, `validation_fraction`, `l2`, as for `training.Recipe`.

    Returns
    -------
    L1Path

    Raises
    ------
    InputError
        If an argument is wrong, or training diverges.

    Notes
    -----
    Every network starts from the same weights and sees the same batches. The objective is the mean loss over rows plus
    the penalty times the sum of absolute weights of standardised features.

    Examples
    --------
    >>> import numpy as np, reluscope as rs
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> path = rs.l1_path(X, np.abs(X), [0.0, 10.0], hidden=(4,), epochs=20, rng=0)
    >>> path.metric, path.points[0].zero_share < path.points[1].zero_share
    ('r2', True)
    """
    rows = real_array(X, "X", ndim=2)
    if not rows.size:
        raise InputError(f"X must have at least one row and one column, got shape {rows.shape}")
    strengths = np.unique(real_array(penalties, "penalties", ndim=1))
    if not len(strengths) or strengths[0] < 0:
        raise InputError("penalties must be one or more numbers >= 0")
    names, columns = names_of(X, feature_names, None, rows.shape[1])
    generator, seed = seeded(rng)
    common = int(generator.integers(2**63))  # every network starts from the same weights
    check_beside(X, y, sample_weight)
    check_rows(X_test, y_test, "y_test", "X_test")
    weight = weights_of(sample_weight, len(rows))
    labels = any_array(y, "y", "a list of numbers or labels")
    if (X_test is None) != (y_test is None):
        raise InputError("X_test and y_test must be given together")
    response = response_of(labels, len(rows), task)
    if X_test is None:
        train_rows, test_rows = _set_aside(response, test_share, common)
        test: tuple[Any, Any] = (rows[test_rows], labels[test_rows])
        rows, labels, response = rows[train_rows], labels[train_rows], response.part(train_rows)
        weight = None if weight is None else weight[train_rows]
    else:
        X_test = arranged(X_test, () if columns is None else (columns, names), "X_test")
        test = (real_array(X_test, "X_test", ndim=2), y_test)
    try:
        base = Recipe(hidden=hidden, **recipe)
    except TypeError as error:
        raise InputError(f"unknown option for training: {error}") from error
    points: list[PathPoint] = []
    networks, views = [], []
    kind = response.task
    classes = list(response.classes) or None
    with meter(progress, "L1 path") as report:
        jobs_here = jobs_at_hand()

        def note(done: int, text: str) -> None:
            k = len(points)
            report(done, f"penalty {strengths[k]:g} ({k + 1} of {len(strengths)}), {text}")

        # Training is many small steps in Python: each penalty has a process of its own.
        told = note if alone(jobs_here) else None
        shared = (rows, response, base, weight, common, told)
        trained = run(_trained, strengths.tolist(), shared=shared, jobs=jobs_here, kind="processes")
        for penalty, done in zip(strengths.tolist(), trained, strict=True):
            note(len(done.objective), "unwrapping")
            u = unwrap(
                done.network, rows, labels, task=kind, classes=classes, feature_names=names, sample_weight=weight
            )
            tested = u.evaluate(*test)
            facts = u.describe()
            points.append(
                PathPoint(
                    penalty,
                    len(u),
                    facts["single_row_share"],
                    facts.get("single_class_share"),
                    u.score,
                    table.overall(u.rows.part(done.held), None),
                    tested.score,
                    tested.unseen_share,
                    done.zeros,
                    _live(u),
                    len(done.objective),
                )
            )
            networks.append(done.network)
            views.append(u)
    return L1Path(views[0].metric, tuple(points), tuple(networks), tuple(views), seed)


def _trained(
    penalty: float, rows: FloatArray, response: Response, base: Recipe, weight: FloatArray | None, seed: int, note: Any
) -> Trained:
    """One network of the path."""
    return train(rows, response, replace(base, l1=penalty), sample_weight=weight, rng=seed, progress=note)


def response_of(y: Any, n: int, task: str) -> Response:
    """A response without a network: the number of outputs follows from `y`."""
    choice(task, "task", ("auto", "regression", "binary", "multiclass"))
    raw = any_array(y, "y", "a list of numbers or labels")
    if raw.dtype.kind == "O":
        raise InputTypeError(f"y must hold numbers, truth values or texts, got {describe(y)}")
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
    from reluscope.local_models.training import split_rows

    share = real(share, "test_share", low=0.0, high=1.0, open_=True)
    kept, held = split_rows(response, share, np.random.default_rng([seed, 1]))
    if not len(held):
        raise InputError("there are too few rows to set some aside; pass X_test and y_test")
    return kept, held


def _live(u: Unwrapped) -> int:
    """Hidden units that are on in some region with data and off in another."""
    pattern = u.patterns()
    return int((pattern.min(axis=0) != pattern.max(axis=0)).sum())
