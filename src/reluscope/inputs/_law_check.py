"""How well a law fits a table: column by column, pair by pair, and as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, integer, seeded
from reluscope._doors import door
from reluscope._lazy import late
from reluscope._tables import Tabular
from reluscope.errors import InputError
from reluscope.inputs._fit import encoded
from reluscope.inputs._law import Law
from reluscope.schema import Schema

_FAR = {"ks": 0.05, "impossible": 0.01, "pair": 0.1, "order": 0.01, "auc": 0.6}
"""Beyond these a law is called a bad fit; `LawCheck.text` names what is."""

_MOST_PRODUCTS = 40
_MOST_LEVELS = 500
"""Values of a column at which cdfs are compared, evenly spread over the sorted ones, both ends among them."""

_MOST_ORDERED = 200
"""Columns up to which orders are looked for."""

_SAME = 1e-9
"""Values closer than this, as a share of the range of their columns, count as equal: draws round."""

_RIDGE = 1e-3

_MOST_ROWS = 10_000
"""Rows, and as many draws, that the classifiers are shown."""

_LEAST_FOR_TREES = 200


@dataclass(frozen=True, eq=False, repr=False)
class LawCheck(Tabular):
    """What `law.check(table)` returns.

    Attributes
    ----------
    names : tuple of str
    ks : (n,) array
        Kolmogorov-Smirnov distance of each column: the largest gap between its cdf under the law and in the table.
    ks_noise : float
        What a right law would show in 99 of 100 tables of this size, for one column.
    impossible : (n,) array
        Probability of values beyond the smallest and largest of the table.
    pairs : (n, n) array
        Rank correlation (Spearman) under the law minus that in the table; 0 where a column is constant.
    orders : (n, n) array
        `orders[i, j]` is the probability under the law that column i is above column j, where no row of the table has
        it so (debt above income, say); 0 for all other pairs, and beyond 200 columns. In the columns' own units.
    order_noise : float
        Where a law breaks an order with a probability above this, 99 of 100 tables of this size would show it.
    auc : float
        How well a classifier tells rows of the table from draws of the law on rows it has not seen: 0.5 not at all.
    classifier : str
        The one that tells them apart best: a linear one with squares and products, or boosted trees, which are tried
        where scikit-learn is installed.
    rows : int
    seed : int or None
        The `rng=` that repeats the check; None if a Generator was given.
    """

    names: tuple[str, ...]
    ks: FloatArray
    ks_noise: float
    impossible: FloatArray
    pairs: FloatArray
    orders: FloatArray
    order_noise: float
    auc: float
    classifier: str
    rows: int
    seed: int | None = None

    @property
    def good(self) -> bool:
        """Whether nothing stands out."""
        return not self._faults()

    def _faults(self) -> list[str]:
        out = []
        i = int(np.argmax(self.ks))
        if self.ks[i] > max(_FAR["ks"], self.ks_noise):
            out.append(f"column {self.names[i]} is off by {self.ks[i]:.3f} (Kolmogorov-Smirnov)")
        i = int(np.argmax(self.impossible))
        if self.impossible[i] > _FAR["impossible"]:
            out.append(f"{100 * self.impossible[i]:.1f} % of {self.names[i]} lies outside of anything in the table")
        a, b = (int(k) for k in np.unravel_index(int(np.argmax(np.abs(self.pairs))), self.pairs.shape))
        if abs(self.pairs[a, b]) > _FAR["pair"]:
            out.append(f"the rank correlation of {self.names[a]} and {self.names[b]} is off by {self.pairs[a, b]:+.2f}")
        a, b = (int(k) for k in np.unravel_index(int(np.argmax(self.orders)), self.orders.shape))
        if self.orders[a, b] > max(_FAR["order"], self.order_noise):
            out.append(
                f"{self.names[a]} is above {self.names[b]} in {100 * self.orders[a, b]:.1f} % of draws, in no row of "
                "the table"
            )
        if self.auc > _FAR["auc"]:
            out.append(f"a classifier ({self.classifier}) tells rows from draws (AUC {self.auc:.2f})")
        return out

    @property
    def text(self) -> str:
        """One loud line."""
        faults = self._faults()
        if not faults:
            return (
                f"The law fits: largest gap of a column {self.ks.max():.3f}, of a rank correlation "
                f"{np.abs(self.pairs).max():.2f}, AUC {self.auc:.2f} ({self.classifier})."
            )
        return f"THE LAW DOES NOT FIT: {'; '.join(faults)}."

    def to_dict(self) -> dict[str, Any]:
        """Columns `name`, `ks`, `impossible`, `worst_pair` and `worst_order`, one row per input."""
        worst = np.abs(self.pairs).max(axis=1)
        return {
            "name": list(self.names),
            "ks": self.ks.tolist(),
            "impossible": self.impossible.tolist(),
            "worst_pair": worst.tolist(),
            "worst_order": np.maximum(self.orders.max(axis=0), self.orders.max(axis=1)).tolist(),
        }

    def plot(self, ax: Any = None) -> Any:
        """A bar per column: its gap, and what chance would show.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        return door("LawCheck.plot")(self, ax)

    def __repr__(self) -> str:
        return f"LawCheck({self.rows:,} rows; {self.text})"


def check(law: Law, table: Any, schema: Schema | None, draws: int, rng: Any) -> LawCheck:
    """See `Law.check`."""
    X, known = encoded(table, schema)
    if X.shape[1] != law.n:
        raise InputError(f"table has {X.shape[1]} inputs but the law has {law.n}")
    names = getattr(law, "names", None) or (known.inputs if known is not None else [f"x[{i}]" for i in range(law.n)])
    gen, seed = seeded(rng)
    Y = law.sample(integer(draws, "draws", low=100), gen)
    ks, impossible = np.zeros(law.n), np.zeros(law.n)
    for i in range(law.n):
        ks[i], impossible[i] = _column(law, i, X[:, i], Y[:, i])
    noise = 1.63 / np.sqrt(len(X))
    pairs = _ranks(Y) - _ranks(X)
    moving = (np.ptp(X, axis=0) > 0) & (np.ptp(Y, axis=0) > 0)
    pairs[~moving] = 0.0
    pairs[:, ~moving] = 0.0
    orders, open_to_chance = _orders(X, Y, known)
    told = _told_apart(X, Y, gen)
    return LawCheck(tuple(names), ks, float(noise), impossible, pairs, orders, open_to_chance, *told, len(X), seed)


def _column(law: Law, i: int, x: FloatArray, y: FloatArray) -> tuple[float, float]:
    levels, counts = np.unique(x, return_counts=True)
    below = np.cumsum(counts) / len(x)
    before = below - counts / len(x)
    some = np.unique(np.linspace(0, len(levels) - 1, min(len(levels), _MOST_LEVELS)).astype(np.intp))
    levels, below, before = levels[some], below[some], before[some]
    try:
        at, under = law.cdf(levels, i), law.cdf(levels, i, strict=True)
    except InputError:  # no closed form: draws
        y = np.sort(y)
        at, under = (np.searchsorted(y, levels, side=side) / len(y) for side in ("right", "left"))
    gap = max(float(np.abs(at - below).max()), float(np.abs(under - before).max()))
    return gap, float(max(under[0], 0.0) + max(1.0 - at[-1], 0.0))


def _orders(X: FloatArray, Y: FloatArray, schema: Schema | None) -> tuple[FloatArray, float]:
    """How often draws break an order that all rows keep, and what a table of this size cannot tell from never.

    If the law breaks an order with probability p, n rows keep it with probability (1 - p)ⁿ: at p = log(100 m) / n that
    is one in 100 for any of m orders.
    """
    broken = np.zeros((X.shape[1], X.shape[1]))
    free = np.ptp(X, axis=0) > 0
    columns = [] if schema is None else [(column, schema.place(column.name)) for column in schema.columns]
    for column, at in columns:
        free[at] &= column.kind != "category"
    index = np.flatnonzero(free)
    if len(index) > _MOST_ORDERED:
        return broken, 1.0
    rows, drawn = X.copy(), Y.copy()
    for column, at in columns:
        if free[at].all():
            rows[:, at.start], drawn[:, at.start] = column.decode(X[:, at]), column.decode(Y[:, at])
    low, high = rows.min(axis=0), rows.max(axis=0)
    same = _SAME * np.maximum.outer(high - low, high - low)
    kept = []
    for i in index:
        below = index[(rows[:100, i, None] <= rows[:100, index] + same[i, index]).all(axis=0)]  # a few are left
        below = below[(below != i) & (high[i] > low[below])]  # ranges apart are no order: see `impossible`
        kept += [(i, j) for j in below if (rows[:, i] <= rows[:, j] + same[i, j]).all()]
    for i, j in kept:
        broken[i, j] = np.mean(drawn[:, i] > drawn[:, j] + same[i, j])
    return broken, float(np.log(100 * max(len(kept), 1)) / len(X))


def _ranks(x: FloatArray) -> FloatArray:
    """Spearman's rank correlations."""
    rankdata = late("scipy.stats", "rankdata")

    r = rankdata(x, axis=0)
    r = r - r.mean(axis=0)
    size = np.sqrt((r**2).sum(axis=0))
    r = r / np.where(size > 0, size, 1.0)
    return np.asarray(r.T @ r)


def _told_apart(X: FloatArray, Y: FloatArray, rng: np.random.Generator) -> tuple[float, str]:
    """The larger AUC of two classifiers, trained on one half and tried on the other, both ways; and whose it is."""
    n = min(len(X), len(Y), _MOST_ROWS)
    rows = np.concatenate([X[rng.permutation(len(X))[:n]], Y[rng.permutation(len(Y))[:n]]])
    label = np.repeat([1.0, 0.0], n)
    half = rng.permutation(2 * n) < n
    found = [(_cross(_features(rows), label, half, _linear_scores), "linear, with squares and products")]
    if find_spec("sklearn") is not None and n >= _LEAST_FOR_TREES:
        found.append((_cross(rows, label, half, _tree_scores), "boosted trees"))
    return max(found)


def _cross(
    F: FloatArray,
    label: FloatArray,
    half: npt.NDArray[np.bool_],
    scores: Callable[[FloatArray, FloatArray, FloatArray], FloatArray],
) -> float:
    """The mean AUC over both halves."""
    rankdata = late("scipy.stats", "rankdata")
    out = []
    for train in (half, ~half):
        rank, own = rankdata(scores(F[train], label[train], F[~train])), label[~train] == 1
        ones = int(own.sum())
        zeros = len(own) - ones
        out.append((rank[own].sum() - ones * (ones + 1) / 2) / max(ones * zeros, 1))
    return float(np.mean(out))


def _features(rows: FloatArray) -> FloatArray:
    """A constant, the standardised columns, their squares, magnitudes and products."""
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    rows = np.clip(rows, -8.0, 8.0)
    columns = [rows, rows**2, np.abs(rows)]
    if rows.shape[1] <= _MOST_PRODUCTS:
        a, b = np.triu_indices(rows.shape[1], 1)
        columns.append(rows[:, a] * rows[:, b])
    return np.concatenate([np.ones((len(rows), 1)), *columns], axis=1)


def _linear_scores(A: FloatArray, label: FloatArray, F: FloatArray) -> FloatArray:
    w = np.linalg.solve(A.T @ A / len(A) + _RIDGE * np.eye(A.shape[1]), A.T @ (label - 0.5) / len(A))
    return np.asarray(F @ w)


def _tree_scores(A: FloatArray, label: FloatArray, F: FloatArray) -> FloatArray:
    boosted = late("sklearn.ensemble", "HistGradientBoostingClassifier")
    # One thread: the trees are small, and threads of OpenMP that wait for a core take several times the work.
    with late("threadpoolctl").threadpool_limits(limits=1):
        return np.asarray(boosted(early_stopping=False, random_state=0).fit(A, label).decision_function(F))
