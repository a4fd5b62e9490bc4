"""A law fitted to a table: any marginals, categories with a law of the other columns for each combination of levels."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, instance, integer, real
from reluscope._columns import columns_of
from reluscope._lazy import late
from reluscope.errors import InputError
from reluscope.inputs._copula import Copula
from reluscope.inputs._factor import Factor, loading_factor
from reluscope.inputs._gaussian import Gaussian
from reluscope.inputs._law import FAR, Law, data_rows, frozen
from reluscope.inputs._marginal import DEFAULT_ACCURACY, Marginal
from reluscope.inputs._mixture import GaussianMixture, mixture_cdf
from reluscope.schema import Column, Schema

MOST_COMBINATIONS = 20_000
"""Combinations of levels that a fitted law may have: one component each at least."""

_FEW_VALUES, _UNSEEN = 16, 0.2
"""Columns with at most so many values are kept as they occur together, while combinations that no row has are at most
so likely: the share of combinations with one row estimates that (Good and Turing)."""

_SHRINK = 0.5
"""Rows of its group that the mean of a combination of levels is mixed with."""

_PRIOR = 10.0
"""Rows of all groups that the covariance of one group is mixed with."""

_INFLATED = 0.05
"""Values of a column that are this frequent, such as an amount of 0, tell groups of rows apart."""

_ROWS_EACH, _MOST_CLUSTERS = 250, 60
"""Rows for each group, and how many groups at most, unless said otherwise."""

_GRID, _STEPS = 300, 6
"""Points at which the cdf of the scores is tabulated, and steps from there to a quantile."""

_MOST_LEVELS = 300
"""Values of a column at which its distance to the law is taken, evenly spread over the sorted ones."""


def fit(
    table: Any,
    schema: Schema | None = None,
    *,
    accuracy: float = DEFAULT_ACCURACY,
    clusters: int | None = None,
    rare: int | None = None,
) -> Copula:
    """A law of the inputs fitted to a table: marginals from quantiles, Gaussian dependence, categories as they occur.

    Parameters
    ----------
    table : DataFrame, mapping of columns, or array, shape (N, n)
        The data. A table with named columns is encoded by the schema; an array holds the network's inputs as they are.
    schema : Schema, optional
        What the columns are, such as `net.schema`. Without one, named columns tell it (`Schema.of`), and the columns of
        an array are all numbers.
    accuracy : float
        Of the marginals, at best 2 / N; see `Marginal.from_data`. Less where a column would need more than 255 pieces:
        `cdf_error` of the law says what it came to.
    clusters : int, optional
        Groups of rows (k-means on the normal scores), each with a Gaussian of its own: 1 is a Gaussian copula, more say
        more about the dependence. One for each 250 rows by default, at most 60.
    rare : int, optional
        Groups with fewer rows share one covariance; two for each input with spread by default.

    Returns
    -------
    Copula
        Over the network's inputs, in its units, with their names.

    Raises
    ------
    InputError
        If entries are missing, a value lies outside of its column's support, or there are too many combinations of
        levels.

    Notes
    -----
    Every combination of levels that occurs with a group of rows is a component: inputs that encode categories have no
    spread in it, and the normal scores of the others have the Gaussian of the group. Columns with few values (16 at
    most), such as counts or a status in each of six months, are kept like categories as long as the table shows most
    of their combinations. Frequent values, such as an amount of 0, are atoms. Each marginal is set so that the mixture
    as a whole has the table's quantiles. It ends at the smallest and largest value of an array; columns of a schema
    that are neither atoms nor whole numbers go on beyond them, as far as `Column.support` allows: a share of
    about 1 / N, with scores linear in the value. `law.check(table)` says how well the law fits.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> law = fit({"SEX": rng.choice(["m", "f"], 500), "AMOUNT": rng.exponential(size=500)})
    >>> law.names
    ('SEX=f', 'SEX=m', 'AMOUNT')
    """
    accuracy = real(accuracy, "accuracy", low=0.0, high=0.5, open_=True)
    X, known = encoded(table, schema)
    names = None if known is None else known.inputs
    rows, n = X.shape
    if rows < 2:
        raise InputError(f"table must have at least two rows to fit a law, got {rows}")
    accuracy = max(accuracy, min(2.0 / rows, 0.01))  # a step of the sample's own cdf is 1 / rows
    fixed = _held(X, known)
    held, free = np.flatnonzero(fixed), np.flatnonzero(~fixed)
    supports = _supports(X, known)
    parts = [
        _marginal(X[:, i], accuracy, supports[i], names[i] if names is not None else f"column {i}")
        for i in free.tolist()
    ]
    Z = np.stack([X[:, 0] * 0.0, *(_mean_scores(m, X[:, i]) for m, i in zip(parts, free, strict=True))], axis=1)[:, 1:]
    levels, member = np.unique(X[:, held], axis=0, return_inverse=True)
    if len(levels) > MOST_COMBINATIONS:
        raise InputError(
            f"table has {len(levels):,} combinations of levels, more than {MOST_COMBINATIONS:,}; give columns with "
            "many levels as numbers (kind 'integer' in the schema)"
        )
    wanted = rows // _ROWS_EACH if clusters is None else integer(clusters, "clusters", low=1)
    cluster = _clusters(np.concatenate([Z, _frequent(X[:, free])], axis=1), wanted)
    pairs, index, counts = np.unique(
        np.stack([np.ravel(member), cluster], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    index = np.ravel(index)
    centres = _sums(Z, cluster) / np.bincount(cluster)[:, None]
    # The mean of each combination in a group, drawn towards the group's.
    moved = _sums(Z - centres[cluster], index) / (counts[:, None] + _SHRINK)
    rest = Z - centres[cluster] - moved[index]
    least = 2 * max(len(free), 1) if rare is None else integer(rare, "rare", low=2)
    factors = _factors(rest, cluster, least, free, n)
    means = np.zeros((len(counts), n))
    means[:, held], means[:, free] = levels[pairs[:, 0]], centres[pairs[:, 1]] + moved
    weights = counts / rows
    scores: Law
    if len(counts) == 1:
        scores = Gaussian.of_factor(frozen(means[0]), factors[0])
    else:
        own = tuple(factors[k] for k in pairs[:, 1].tolist())
        scores = GaussianMixture._of(weights, means, own[:1] if len(factors) == 1 else own)
    marginals = [Marginal([0.0], [0.0], below=1.0, above=1.0)] * n
    spread = np.stack([f.spread for f in factors])
    for m, i in zip(parts, free.tolist(), strict=True):
        marginals[i] = _matched(m, weights, means[:, i], spread[pairs[:, 1], i], X[:, i])
    return Copula.of_scores(scores, marginals, names=names)


def encoded(table: Any, schema: Schema | None) -> tuple[FloatArray, Schema | None]:
    """Rows of the network's inputs, and the schema they follow."""
    if columns_of(table) is not None:
        known = Schema.of(table) if schema is None else instance(schema, "schema", Schema, "a Schema")
        return known.encode(table, name="table", quiet=True), known
    X = data_rows(table, "table")
    if schema is not None and len(schema.inputs) != X.shape[1]:
        raise InputError(f"table must have {len(schema.inputs)} columns, as the schema has inputs, got {X.shape[1]}")
    return X, schema


# -- which columns are kept as they occur, and how far the others may go ------------------------------------------


def _held(X: FloatArray, known: Schema | None) -> npt.NDArray[np.bool_]:
    """Inputs without spread in every component: categories, constants, and columns with few values."""
    held = np.ptp(X, axis=0) == 0
    for column, at in _numbered(known):
        held[at] |= column.kind == "category"
    size = np.array([len(np.unique(x)) for x in X.T])
    _, group = np.unique(X[:, held], axis=0, return_inverse=True)
    group = np.ravel(group)
    for i in np.argsort(size, kind="stable").tolist():  # the fewest values first
        if held[i] or size[i] > _FEW_VALUES:
            continue
        value = np.unique(X[:, i], return_inverse=True)[1]
        _, both, counts = np.unique(group * size[i] + np.ravel(value), return_inverse=True, return_counts=True)
        if (counts == 1).sum() <= _UNSEEN * len(X):
            held[i], group = True, np.ravel(both)
    return np.asarray(held)


def _numbered(known: Schema | None) -> list[tuple[Column, slice]]:
    """The columns of a schema and where their inputs stand."""
    return [] if known is None else [(c, known.place(c.name)) for c in known.columns]


def _supports(X: FloatArray, known: Schema | None) -> list[tuple[float, float]]:
    """Between which bounds each input may lie: what was seen, or what a schema says is possible."""
    out = list(zip(X.min(axis=0).tolist(), X.max(axis=0).tolist(), strict=True))
    for column, at in _numbered(known):
        if column.kind == "category":
            continue
        seen = column.decode(np.array([[v] for v in out[at.start]]))
        low, high = column.support
        slack = 1e-9 * max((abs(v) for v in column.support if math.isfinite(v)), default=0.0)
        if seen.min() < low - slack or seen.max() > high + slack:
            worst = seen.min() if seen.min() < low - slack else seen.max()
            raise InputError(
                f"column {column.name!r} has the value {worst:g}, which its support ({low:g}, {high:g}) says cannot "
                "be; correct the table, or Column(support=...)"
            )
        if column.kind != "continuous":
            continue
        if column.support == (-math.inf, math.inf) and seen.min() >= 0:
            low = 0.0  # as Schema.of takes it
        sides = sorted(column.scale * side + column.shift for side in (low, high))
        out[at.start] = (min(sides[0], out[at.start][0]), max(sides[1], out[at.start][1]))
    return out


def _marginal(column: FloatArray, accuracy: float, support: tuple[float, float], name: str) -> Marginal:
    """The marginal with the column's quantiles, with fewer pieces where a network cannot take so many."""
    while True:
        try:
            return Marginal.from_data(column, accuracy=accuracy, support=support, name=name)
        except InputError:
            if accuracy >= 0.05:
                raise
            accuracy *= 2.0


# -- groups of rows ------------------------------------------------------------------------------------------------


def _frequent(X: FloatArray) -> FloatArray:
    """A column of 0 and 1 for each frequent value: zeros and amounts are told apart even where they are near."""
    out = [np.zeros((len(X), 0))]
    for x in X.T:
        values, counts = np.unique(x, return_counts=True)
        out += [(x == v).astype(np.float64)[:, None] for v in values[counts >= _INFLATED * len(x)].tolist()]
    return np.concatenate(out, axis=1)


def _clusters(F: FloatArray, count: int) -> npt.NDArray[np.intp]:
    """Rows sorted into groups that lie together, by k-means; what a single Gaussian cannot say, several can."""
    if count < 2 or not F.shape[1]:
        return np.zeros(len(F), np.intp)
    kmeans2 = late("scipy.cluster.vq", "kmeans2")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # empty clusters are left out
        _, label = kmeans2(F, min(count, _MOST_CLUSTERS), minit="++", rng=np.random.default_rng(0))
    return np.ravel(np.unique(label, return_inverse=True)[1]).astype(np.intp)


def _sums(Z: FloatArray, group: npt.NDArray[np.intp]) -> FloatArray:
    """The rows of each group added up, shape (groups, columns)."""
    out = np.zeros((int(group.max()) + 1, Z.shape[1]))
    for j, z in enumerate(Z.T):
        out[:, j] = np.bincount(group, z)
    return out


def _factors(
    rest: FloatArray, cluster: npt.NDArray[np.intp], least: int, free: npt.NDArray[np.intp], n: int
) -> list[Factor]:
    """A factor of the covariance of each group in the free inputs; groups with few rows share one."""
    shared = rest.T @ rest / len(rest)
    common = _factor(shared, free, n)
    out = []
    for k in range(int(cluster.max()) + 1):
        own = rest[cluster == k]
        mixed = (own.T @ own + _PRIOR * shared) / (len(own) + _PRIOR)
        out.append(common if len(own) < least else _factor(mixed, free, n))
    return out


def _factor(C: FloatArray, free: npt.NDArray[np.intp], n: int) -> Factor:
    """A factor of a covariance in the free inputs; zero rows elsewhere."""
    V = np.zeros((n, max(len(free), 1)))
    if len(free):
        values, vectors = np.linalg.eigh(C)
        V[free] = vectors * np.sqrt(np.maximum(values, 0.0))
    return loading_factor(V)


def _mean_scores(m: Marginal, x: FloatArray) -> FloatArray:
    """The score of each value; its mean over the interval where the value is an atom."""
    ndtr = late("scipy.special", "ndtr")

    low, high = m.score(x, "left"), m.score(x, "right")
    density = (np.exp(-0.5 * low**2) - np.exp(-0.5 * high**2)) / np.sqrt(2 * np.pi)
    mass = ndtr(high) - ndtr(low)
    wide = mass > 1e-12
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(wide, density / np.where(wide, mass, 1.0), np.where(np.isfinite(low), low, high))


# -- marginals of the mixture --------------------------------------------------------------------------------------


def _matched(m: Marginal, weights: FloatArray, mean: FloatArray, sd: FloatArray, column: FloatArray) -> Marginal:
    """The marginal with its knots moved to where the scores have the same probabilities; its distance to the data."""
    ndtr = late("scipy.special", "ndtr")

    def cdf(z: FloatArray) -> FloatArray:
        return mixture_cdf(z, weights, mean, sd)

    z = _quantiles_of(cdf, ndtr(m.scores), mean, sd)
    if (np.diff(z) <= 1e-9).any():  # groups without spread: as near as they allow
        z = np.maximum.accumulate(z) + 1e-9 * np.arange(len(z))
    slope = np.diff(m.values) / np.diff(z) if len(z) > 1 else np.zeros(1)
    ends = (0.0 if m.below == 0 else slope[0]), (0.0 if m.above == 0 else slope[-1])
    found = Marginal._of(z, m.values, *ends, 0.0)
    levels, counts = np.unique(column, return_counts=True)
    below = np.cumsum(counts) / len(column)
    before = below - counts / len(column)
    some = np.unique(np.linspace(0, len(levels) - 1, min(len(levels), _MOST_LEVELS)).astype(np.intp))
    some = np.union1d(some, np.argsort(-counts)[:20])  # and the most frequent ones
    levels, below, before = levels[some], below[some], before[some]
    both = np.concatenate([found.score(levels, "right"), found.score(levels, "left")])
    at, back = np.unique(np.clip(both, -1e6, 1e6), return_inverse=True)  # the two differ at atoms only
    apart = np.abs(cdf(at)[np.ravel(back)] - np.concatenate([below, before]))
    return Marginal._of(z, m.values, *ends, float(apart.max()))


def _quantiles_of(cdf: Any, p: FloatArray, mean: FloatArray, sd: FloatArray) -> FloatArray:
    """Where a mixture of normals has the cdf p: from a table, then by steps along the chord and to the middle."""
    knots = np.unique(mean[:, None] + sd[:, None] * np.array([-6.0, -3.0, -1.5, 0.0, 1.5, 3.0, 6.0]))
    reach = FAR * float(sd.max()) + 1.0
    some = knots[np.linspace(0, len(knots) - 1, min(_GRID, len(knots))).astype(np.intp)]
    grid = np.unique(np.concatenate([[knots[0] - reach], some, [knots[-1] + reach]]))
    table = cdf(grid)
    at = np.clip(np.searchsorted(table, p), 1, len(grid) - 1)
    a, b, low, high = grid[at - 1], grid[at], table[at - 1], table[at]
    for step in range(_STEPS):
        share = np.clip((p - low) / np.maximum(high - low, 1e-300), 0.02, 0.98) if step % 2 == 0 else 0.5
        middle = a + share * (b - a)
        value = cdf(middle)
        less = value < p
        a, low = np.where(less, middle, a), np.where(less, value, low)
        b, high = np.where(less, b, middle), np.where(less, high, value)
    share = np.where(high - low > 0, (p - low) / np.maximum(high - low, 1e-300), 0.5)
    return np.asarray(a + np.clip(share, 0.0, 1.0) * (b - a))
