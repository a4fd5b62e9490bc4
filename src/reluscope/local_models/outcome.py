"""Outcome analysis of a scoring model: how well it ranks and how well it is calibrated, where, and whether that lasts.

Two classes; the score is the probability of the second (PD). Gini is `2 AUC - 1`; KS the largest difference between the
distribution functions of the scores of the two classes; the Brier score the mean squared error of the probability. The
calibration slope and intercept are those of a logistic regression of the outcome on the model's logit: 1 and 0 for a
model whose probabilities are right, a slope below 1 for one that is too sure. PSI is `sum (q - p) log(q / p)` by bin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, Rng, choice, describe, flag, integer, real, seeded, several, text
from reluscope._columns import column_of, columns_of, factorized, few, unknown_name
from reluscope._extras import require
from reluscope._lazy import late
from reluscope._tables import Lines, Tabular
from reluscope._text import table as text_table
from reluscope.answer import Answer
from reluscope.errors import InputError
from reluscope.inputs import check_law
from reluscope.intervals import DEFAULT_LEVEL, binomial, normal_quantile
from reluscope.local_models import scores
from reluscope.local_models._data import check_beside, read, weights_of
from reluscope.local_models._decision import chances, cutoff_of, decided
from reluscope.local_models._grouping import spans
from reluscope.local_models.contributions import groups_of
from reluscope.network import Network
from reluscope.schema import Column

if TYPE_CHECKING:
    from reluscope.local_models.merged import MergedModels
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]

_SMALL = 1e-4
"""An empty bin counts as this share in a PSI, as is usual: its logarithm must exist."""
_NUMBERS = 1 << 21
"""Derivatives in a chunk of draws (16 MB)."""
_BINS = 10


@dataclass(frozen=True, eq=False)
class _Sample:
    """Rows with their scores: network's logit and probability, outcome, weight, region, inputs."""

    logit: FloatArray
    pd: FloatArray
    bad: FloatArray
    weight: FloatArray | None
    region: Index
    X: Any

    def __len__(self) -> int:
        return len(self.pd)


@dataclass(frozen=True, eq=False, repr=False)
class Outcome(Tabular):
    """Performance by group: one line for all rows, then for each segment and each region (or merged cluster).

    Attributes
    ----------
    lines : list of dict
        `kind` ("all", "segment", "region", "cluster"), `group`, `rows`, `share`, `bads`, `rate`, `pd` (mean), `above`
        (share above the cut-off), `auc`, `gini`, `ks`, `brier`, `log_loss`, `slope` and `intercept` of the calibration;
        the same with `test_`, and `gap`, the AUC on training rows less that on test rows.
    cutoff : float
        The probability from which on rows count as `above`.
    min_rows : int
        Groups with fewer training rows are left out.
    """

    lines: list[dict[str, Any]]
    cutoff: float
    min_rows: int
    _train: _Sample
    _test: _Sample | None
    _members: dict[tuple[str, str], tuple[Index, Index | None]]

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per group."""
        return self.lines

    def __getitem__(self, group: str) -> dict[str, Any]:
        for line in self.lines:
            if line["group"] == group:
                return line
        raise InputError(f"there is no group {group!r}; there are {few([line['group'] for line in self.lines])}")

    def calibration(
        self, group: str = "all", *, bins: int = _BINS, test: bool = False, level: float = DEFAULT_LEVEL
    ) -> Lines:
        """The calibration curve: mean probability and observed rate in bins of equally many rows, with exact intervals.

        Parameters
        ----------
        group : str
        bins : int
        test : bool
            Of the test rows.
        level : float
            Confidence level of the intervals.

        Returns
        -------
        Lines
            `pd` (mean probability), `rate`, `lower`, `upper` (binomial interval of the rate, by rows), `rows`.
        """
        level = real(level, "level", low=0.0, high=1.0, open_=True)
        line = self[text(group, "group")]
        sample = self._test if flag(test, "test") else self._train
        if sample is None:
            raise InputError("test=True needs test rows; pass X and y to outcome")
        inside = self._members[line["kind"], group][int(bool(test))]
        assert inside is not None
        order = inside[np.argsort(sample.pd[inside], kind="stable")]
        out = []
        for part in np.array_split(order, integer(bins, "bins", low=1)):
            if not len(part):
                continue
            w = None if sample.weight is None else sample.weight[part]
            low, high = binomial(int(sample.bad[part].sum()), len(part), level)
            rate, pd = scores.mean(sample.bad[part], w), scores.mean(sample.pd[part], w)
            out.append({"pd": pd, "rate": rate, "lower": low, "upper": high, "rows": len(part)})
        return Lines(out)

    def weak(self, n: int = 5, *, level: float = DEFAULT_LEVEL) -> Lines:
        """The groups where the model does worst on training rows, tested on rows that were held out.

        Parameters
        ----------
        n : int
            How many groups.
        level : float
            Confidence level of the intervals.

        Returns
        -------
        Lines
            Chosen by the log loss in excess of that of the group's own rate (a model that only knew the rate), on
            training rows. With test rows: `excess`, the mean log loss in the group less that of the other rows, with a
            large-sample interval, and `p_value`, one-sided, with Holm's correction for the number of groups tested.
        """
        n = integer(n, "n", low=1)
        level = real(level, "level", low=0.0, high=1.0, open_=True)
        groups = [line for line in self.lines if line["kind"] != "all" and math.isfinite(line["skill"])]
        worst = sorted(groups, key=lambda line: line["skill"])[:n]
        out = []
        for line in worst:
            keep = ("kind", "group", "rows", "rate", "pd", "auc", "log_loss", "skill", "test_rows", "test_auc", "gap")
            found = {k: line[k] for k in keep if k in line}
            if self._test is not None:
                found |= self._tested(line, level)
            out.append(found)
        order = sorted((i for i in range(len(out)) if "p_value" in out[i]), key=lambda i: out[i]["p_value"])
        running = 0.0
        for place, i in enumerate(order):  # Holm: the smallest counts times the number of tests, and so on
            running = max(running, min(1.0, out[i]["p_value"] * (len(order) - place)))
            out[i]["p_value"] = running
        return Lines(out)

    def _tested(self, line: dict[str, Any], level: float) -> dict[str, Any]:
        ndtr = late("scipy.special", "ndtr")
        sample, inside = self._test, self._members[line["kind"], line["group"]][1]
        assert sample is not None
        assert inside is not None
        loss = _losses(sample)
        mine = np.zeros(len(sample), dtype=bool)
        mine[inside] = True
        a, b = loss[mine], loss[~mine]
        if len(a) < 2 or len(b) < 2:
            return {}
        excess = float(a.mean() - b.mean())
        error = float(np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)))
        z = normal_quantile(level)
        p = float(ndtr(-excess / error)) if error > 0 else 1.0
        return {"excess": excess, "lower": excess - z * error, "upper": excess + z * error, "p_value": p}

    def __repr__(self) -> str:
        names = ("kind", "group", "rows", "rate", "pd", "auc", "ks", "brier", "slope", "test_rows", "test_auc", "gap")
        shown = [{k: _short(v) for k, v in line.items() if k in names} for line in self.lines[:30]]
        more = f"\n{len(self.lines) - 30:,} more groups (to_pandas())" if len(self.lines) > 30 else ""
        return f"{text_table(shown)}{more}"


@dataclass(frozen=True, eq=False, repr=False)
class Drift(Tabular):
    """How new rows differ from the data, by population stability index, beside what it would be without drift.

    Attributes
    ----------
    output, regions : float
        PSI of the network's output (in tenths of the data) and of the shares of regions. Regions of fewer rows than
        `min_rows`, and those without data, are one bin: which of many small regions a row falls into is chance. nan
        if that is the only bin.
    unseen, unseen_expected : float
        Share of the new rows in regions without data, and what it would be without drift: the share of the data that
        are alone in their region (Good and Turing).
    features : dict of str to float
        PSI by column: tenths of numbers, levels of categories (all unknown levels are one bin).
    unknown : dict of str to dict
        By column the levels that the model never saw, with their rows. Rows that the model cannot score for it are
        left out of everything but that column.
    shares : list of dict
        By region: its share of the data and of the new rows, and its part of the PSI, largest first.
    bins : tuple of int
        Bins behind each PSI: of the output, of the regions, of each feature.
    level : float
        Of the limits in `rows`.
    rows_then, rows_now : int
    worth_then, worth_now : float
        As many rows of equal weight vary as much: limits are for so many.
    """

    output: float
    regions: float
    unseen: float
    unseen_expected: float
    features: dict[str, float]
    unknown: dict[str, dict[Any, int]]
    shares: list[dict[str, Any]]
    bins: tuple[int, ...]
    level: float
    rows_then: int
    rows_now: int
    worth_then: float
    worth_now: float

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for the output, the regions, and each feature: the PSI, its mean without drift, and the
        `limit` that it stays below without drift with probability `level`. With k bins and n and m rows it is about
        (1 / n + 1 / m) times a chi-square of k - 1 degrees of freedom.
        """
        chdtri = late("scipy.special", "chdtri")
        unit = 1 / self.worth_then + 1 / self.worth_now
        out = []
        found = [("output", self.output), ("regions", self.regions), *self.features.items()]
        for (name, value), bins in zip(found, self.bins, strict=True):
            free = bins - 1
            limit = unit * float(chdtri(free, 1 - self.level)) if free else 0.0
            out.append({"what": name, "psi": value, "no_drift": unit * free, "limit": limit, "drift": value > limit})
        return out

    def __repr__(self) -> str:
        none = math.isnan(self.regions)
        head = (
            f"{self.rows_now:,} new rows against {self.rows_then:,}: PSI {self.output:.3g} of the output, "
            f"{'none of the regions (all are too small)' if none else f'{self.regions:.3g} of the regions'}; "
            f"{100 * self.unseen:.1f} % in regions without data "
            f"(about {100 * self.unseen_expected:.1f} % without drift)"
        )
        lines = [head, text_table([{k: _short(v) for k, v in r.items()} for r in self.rows()])]
        lines.append(f"no_drift, limit: mean and {100 * self.level:g} % point of the PSI of so many rows without drift")
        for name, levels in self.unknown.items():
            shown = ", ".join(f"{level!r} ({count:,})" for level, count in list(levels.items())[:6])
            lines.append(f"unknown levels of {name} (rows): {shown}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, repr=False)
class Benchmarks(Tabular):
    """The network beside models fitted to the same rows.

    Attributes
    ----------
    lines : list of dict
        `model`, then AUC, Gini, KS, Brier score and log loss on training rows, with `test_` on test rows, and `gap`.
    """

    lines: list[dict[str, Any]]

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per model."""
        return self.lines

    def __repr__(self) -> str:
        return text_table([{k: _short(v) for k, v in line.items()} for line in self.lines])


@dataclass(frozen=True, eq=False, repr=False)
class NoiseChange(Tabular):
    """How often noise changes decisions.

    Attributes
    ----------
    percent : float
    by_row : (n,) array
        Share of the draws in which a row's decision changed.
    lower, upper : (n,) arrays
        Exact binomial interval of each, at `level`.
    average : Answer
        The probability for a random row of these with fresh noise: interval over rows.
    draws : int
    level : float
    seed : int or None
    """

    percent: float
    by_row: FloatArray
    lower: FloatArray
    upper: FloatArray
    average: Answer
    draws: int
    level: float
    seed: int | None

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per row: the share of draws in which its decision changed, with the interval."""
        columns = (self.by_row.tolist(), self.lower.tolist(), self.upper.tolist())
        return [
            {"row": i, "changed": share, "lower": low, "upper": high}
            for i, (share, low, high) in enumerate(zip(*columns, strict=True))
        ]

    def __repr__(self) -> str:
        return (
            f"noise of {self.percent:g} % of each feature's standard deviation changes {self.average} of decisions; "
            f"{int((self.by_row > 0).sum()):,} of {len(self.by_row):,} rows changed in some of {self.draws:,} draws"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Monotonicity(Tabular):
    """By feature: in what share of the rows, and of the regions, the output rises or falls with it; exact on regions.

    Attributes
    ----------
    lines : list of dict
        `feature`, `rises`, `falls` (shares of rows, by weight), `rises_regions`, `falls_regions`, `steepest_fall` and
        `steepest_rise` (coefficients); where a sign is expected: `expected` and `wrong`, the share with the other sign.
        With a law: `rises_mass`, `falls_mass` and `wrong_mass`, each with `_lower` and `_upper`.
    categories : tuple of str
        Columns that were left out: a category has levels and no direction.
    """

    lines: list[dict[str, Any]]
    categories: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per feature."""
        return self.lines

    def __repr__(self) -> str:
        shown = text_table([{k: _short(v) for k, v in line.items()} for line in self.lines])
        names = ", ".join(self.categories)
        return f"{shown}\ncategories have no direction: {names} (groups=None: by input)" if names else shown


# -- the questions -------------------------------------------------------------------------------------------------


def outcome(
    u: Unwrapped, X: Any, y: Any, *, sample_weight: Any, segments: Any, clusters: MergedModels | None, regions: int,
    min_rows: int, cutoff: float | None,
) -> Outcome:  # fmt: skip
    """See `Unwrapped.outcome`."""
    min_rows, regions = integer(min_rows, "min_rows", low=2), integer(regions, "regions", low=0)
    train = _own(u)
    test = None if X is None else _other(u, X, y, sample_weight)
    if X is None and y is not None:
        raise InputError("y goes with X, the test rows")
    limit = cutoff_of(u.network) if cutoff is None else real(cutoff, "cutoff", low=0.0, high=1.0)
    groups: list[tuple[str, str, Any, Any]] = [("all", "all", np.ones(len(train), bool), _all(test))]
    for name in _listed(segments):
        groups += _segments(u, name, train, test)
    if clusters is not None:
        if getattr(clusters, "unwrapped", None) is not u:
            raise InputError("clusters must be merged models of this network and these data, u.merge(...)")
        mine = clusters.cluster_of_region[train.region]
        theirs = None if test is None else clusters.assign(test.X)
        groups += [
            ("cluster", f"cluster {i}", mine == i, None if theirs is None else theirs == i)
            for i in range(len(clusters))
        ]
    for r in range(min(regions, len(u))):
        if u.count[r] >= min_rows:
            groups.append(("region", f"region {r}", train.region == r, None if test is None else test.region == r))
    lines, members = [], {}
    for kind, name, here, there in groups:
        inside = np.flatnonzero(here)
        new = None if there is None else np.flatnonzero(there)
        if len(inside) < min_rows and kind != "all":
            continue
        line: dict[str, Any] = {"kind": kind, "group": name} | _measures(train, inside, limit)
        if test is not None and new is not None:
            line |= {f"test_{k}": v for k, v in _measures(test, new, limit).items()}
            line["gap"] = line["auc"] - line["test_auc"]
        lines.append(line)
        members[kind, name] = inside, new
    return Outcome(lines, limit, min_rows, train, test, members)


def drift(u: Unwrapped, X: Any, *, sample_weight: Any, bins: int, min_rows: int, level: float) -> Drift:
    """See `Unwrapped.drift`."""
    bins, min_rows = integer(bins, "bins", low=2), integer(min_rows, "min_rows", low=1)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    given = None if sample_weight is None else weights_of(sample_weight, len(X))
    X, unknown, unscored, kept = _without_unknown(u, X, given)
    rows = u._rows(X)
    region, outputs = u._assign(rows)
    old, new = read(u.X, slice(None)), read(rows, slice(None))
    was = u.weight
    now_weight = given if given is None or kept is None else given[kept]
    output, bins_output = psi_of(u.prediction[:, -1], outputs[:, -1], bins, was, now_weight)
    large = np.flatnonzero(u.count >= min_rows)
    n = len(large)
    place = np.full(len(u) + 1, n, dtype=np.int64)  # small regions and, last, those without data
    place[large] = np.arange(n)
    then = _shares(place[u.region], n + 1, was)
    now = _shares(place[region], n + 1, now_weight)
    parts = _psi_parts(then, now)
    bins_regions = max(int(((then > 0) | (now > 0)).sum()), 1)
    names = [*(f"region {r}" for r in large.tolist()), f"regions of fewer than {min_rows} rows, or without data"]
    order = [i for i in np.argsort(-parts, kind="stable").tolist() if then[i] or now[i]]
    shares = [{"group": names[i], "then": float(then[i]), "now": float(now[i]), "psi": float(parts[i])} for i in order]
    schema = u.network.schema
    features: dict[str, tuple[float, int]] = {}
    if schema is not None and schema.columns:
        before, after = schema.decode(old), schema.decode(new)
        for c in schema.columns:
            if c.kind == "category":
                at = schema.place(c.name)
                p, q = (_level_counts(c, z[:, at], w) for z, w in ((old, was), (new, now_weight)))
                q[-1] += unscored.get(c.name, 0)
                psi = float(_psi_parts(p / p.sum(), q / q.sum()).sum())
                features[c.name] = psi, int(((p > 0) | (q > 0)).sum())
            else:
                features[c.name] = psi_of(before[c.name], after[c.name], bins, was, now_weight)
    else:
        features = {name: psi_of(old[:, j], new[:, j], bins, was, now_weight) for j, name in enumerate(u.feature_names)}
    ranked = sorted(features.items(), key=lambda pair: -pair[1][0])
    used = (bins_output, bins_regions, *(count for _, (_, count) in ranked))
    alone = float((u.count == 1).sum() / len(old))
    by_feature = {name: psi for name, (psi, _) in ranked}
    return Drift(
        output, float(parts.sum()) if n else math.nan, float(np.average(region < 0, weights=now_weight)), alone,
        by_feature, unknown, shares, used, level, len(old), len(new), _worth(was, old), _worth(now_weight, new),
    )  # fmt: skip


def _worth(weight: FloatArray | None, rows: FloatArray) -> float:
    """How many rows of equal weight vary as much."""
    return float(len(rows)) if weight is None else float(weight.sum() ** 2 / np.square(weight).sum())


def _shares(group: Index, n: int, weight: FloatArray | None) -> FloatArray:
    """The shares of n groups."""
    counts = np.bincount(group, weight, minlength=n).astype(np.float64)
    return counts / counts.sum()


def _level_counts(c: Column, x: FloatArray, weight: FloatArray | None) -> FloatArray:
    """Rows (or their weights) by level of a category, and of codes of no level last."""
    off, _ = c.strange(x)
    w = np.ones(len(x)) if weight is None else weight
    known: FloatArray = np.zeros(len(c.levels))
    if not off.all():
        known = np.asarray(np.bincount(c.nearest(x[~off]), w[~off], minlength=len(c.levels)), dtype=np.float64)
    return np.append(known, w[off].sum())


def _without_unknown(
    u: Unwrapped, X: Any, weight: FloatArray | None
) -> tuple[Any, dict[str, dict[Any, int]], dict[str, float], Any]:
    """A table without the rows whose levels the model cannot encode; unknown levels with their rows, by column; how
    many rows (or which weight) were left out for each column; and which rows are kept (None: all).
    """
    schema, found = u.network.schema, columns_of(X)
    if schema is None or found is None or getattr(X, "ndim", 2) != 2:
        return X, {}, {}, None
    unknown: dict[str, dict[Any, int]] = {}
    left: dict[str, float] = {}
    bad: Any = False
    for c in schema.columns:
        if c.kind != "category" or c.name not in found:
            continue
        code, levels = factorized(column_of(X, c.name))
        strays = [k for k, v in enumerate(levels) if c.level_index(v) < 0]
        if strays:
            unknown[c.name] = {levels[k]: int((code == k).sum()) for k in strays}
            if c.unknown is None:
                off = np.isin(code, strays)
                bad, left[c.name] = bad | off, float(off.sum() if weight is None else weight[off].sum())
    if not left:
        return X, unknown, {}, None
    if bad.all():
        raise InputError(f"no row of X has known levels only; unknown are {few(list(unknown))}")
    keep = np.flatnonzero(~bad)
    return {name: np.asarray(X[name])[keep] for name in found}, unknown, left, keep


def benchmarks(u: Unwrapped, X: Any, y: Any, *, sample_weight: Any, rng: Rng) -> Benchmarks:
    """See `Unwrapped.benchmarks`."""
    require("sklearn", "sklearn")
    LogisticRegression = late("sklearn.linear_model", "LogisticRegression")
    Boosted = late("sklearn.ensemble", "HistGradientBoostingClassifier")
    train = _own(u)
    test = None if X is None else _other(u, X, y, sample_weight)
    draw, _ = seeded(0 if rng is None else rng)
    inputs = read(train.X, slice(None))
    centre, size = inputs.mean(axis=0), inputs.std(axis=0)
    size = np.where(size > 0, size, 1.0)
    lines = [_compared("network", train, test)]
    for name, model in (
        ("logistic regression", LogisticRegression(C=1e6, max_iter=2000)),
        ("boosted trees", Boosted(random_state=int(draw.integers(2**31 - 1)))),
    ):
        with late("threadpoolctl", "threadpool_limits")(1):
            model.fit((inputs - centre) / size, train.bad, sample_weight=train.weight)
            again = [
                None if s is None else _rescored(s, model.predict_proba((read(s.X, slice(None)) - centre) / size)[:, 1])
                for s in (train, test)
            ]
        assert again[0] is not None
        lines.append(_compared(name, again[0], again[1]))
    return Benchmarks(lines)


def noise(u: Unwrapped, X: Any, *, percent: float, draws: int, level: float, rng: Rng) -> NoiseChange:
    """See `Unwrapped.noise`."""
    percent = real(percent, "percent", low=0.0, open_=True)
    draws = integer(draws, "draws", low=1, high=100_000)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    rows = read(u.X if X is None else u._rows(X), slice(None))
    draw, seed = seeded(rng)
    size = percent / 100 * u.spread
    schema = u.network.schema
    if schema is not None and schema.columns:  # categories stay: a fraction of a level is none
        for c in schema.columns:
            if c.kind == "category":
                size[schema.place(c.name)] = 0.0
    own = decided(u.network, u.network(rows))
    changed = np.zeros(len(rows))
    for _ in range(draws):
        moved = rows + size * draw.standard_normal(rows.shape)
        changed += decided(u.network, u.network(moved)) != own
    ends = np.array([binomial(int(k), draws, level) for k in range(draws + 1)])
    at = changed.astype(np.int64)
    share = changed / draws
    mean, error = float(share.mean()), float(share.std(ddof=1) / np.sqrt(len(share))) if len(share) > 1 else math.inf
    z = normal_quantile(level)
    average = Answer(
        mean, max(0.0, mean - z * error), min(1.0, mean + z * error), "confidence", level,
        "rows with fresh noise; normal interval over rows", evaluations=draws * len(rows), seed=seed,
    )  # fmt: skip
    return NoiseChange(percent, share, ends[at, 0], ends[at, 1], average, draws, level, seed)


def monotonicity(
    u: Unwrapped, expected: Any, output: int, groups: Any, law: Any, draws: int, level: float, rng: Rng
) -> Monotonicity:
    """See `Unwrapped.monotonicity`."""
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    draws = integer(draws, "draws", low=1)
    rng, _ = seeded(rng)
    k = integer(output, "output", low=0, high=u.network.n_outputs - 1)
    if expected is not None and not isinstance(expected, Mapping):
        raise InputError(f'expected must be a mapping of features to "up" or "down", got {describe(expected)}')
    wanted = {u._feature(f, "expected"): choice(way, f"expected of {f}", ("up", "down"))
              for f, way in dict(expected or {}).items()}  # fmt: skip
    mass = np.bincount(u.region, u.weight, minlength=len(u))
    mass = mass / mass.sum()
    n = u.network.n_inputs
    rises, falls = np.zeros(n), np.zeros(n)
    up, down = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    for part, C, _ in u._map_chunks():
        slope = C[:, k]
        rises += mass[part] @ (slope > 0)
        falls += mass[part] @ (slope < 0)
        up += (slope > 0).sum(axis=0)
        down += (slope < 0).sum(axis=0)
        low, high = np.minimum(low, slope.min(axis=0)), np.maximum(high, slope.max(axis=0))
    together = groups_of(u, None if groups is None else choice(groups, "groups", ("columns",)))
    size = np.bincount(together.of)
    signs = None if law is None else _signs(u.network, k, law, draws, level, rng)
    lines = []
    for j, name in enumerate(u.feature_names):
        if size[together.of[j]] > 1 and j not in wanted:
            continue
        line: dict[str, Any] = {
            "feature": name, "rises": float(rises[j]), "falls": float(falls[j]), "rises_regions": int(up[j]),
            "falls_regions": int(down[j]), "steepest_fall": float(low[j]), "steepest_rise": float(high[j]),
        }  # fmt: skip
        if signs is not None:
            line |= {name: float(values[j]) for name, values in signs.items()}
        if wanted:
            line["expected"] = wanted.get(j)
            line["wrong"] = None if j not in wanted else float(falls[j] if wanted[j] == "up" else rises[j])
            if signs is not None:
                side = "falls" if wanted.get(j) == "up" else "rises"
                for what in ("mass", "mass_lower", "mass_upper"):
                    line[f"wrong_{what}"] = line[f"{side}_{what}"] if j in wanted else None
        lines.append(line)
    return Monotonicity(lines, tuple(together.names[i] for i in np.flatnonzero(size > 1).tolist()))


def _signs(net: Network, output: int, law: Any, draws: int, level: float, rng: Rng) -> dict[str, FloatArray]:
    """The share of a law's mass on which the output rises and falls with each input, and its interval."""
    x = check_law(law, net).sample(draws, rng)
    up, down = (np.zeros(net.n_inputs, dtype=np.int64) for _ in range(2))
    for part in spans(draws, max(1, _NUMBERS // (net.n_inputs * net.n_outputs))):
        slope = net.jacobian(x[part])[:, output]
        up += (slope > 0).sum(axis=0)
        down += (slope < 0).sum(axis=0)
    out: dict[str, FloatArray] = {}
    for name, count in (("rises", up), ("falls", down)):
        low, high = binomial(count, draws, level)
        out |= {f"{name}_mass": count / draws, f"{name}_mass_lower": low, f"{name}_mass_upper": high}
    return out


# -- measures ------------------------------------------------------------------------------------------------------


def ks_of(score: FloatArray, bad: npt.NDArray[np.bool_], weight: FloatArray | None = None) -> float:
    """Largest difference between the distribution functions of the scores of the two classes; nan if one is missing."""
    if not bad.any() or bad.all():
        return math.nan
    order = np.argsort(score, kind="stable")
    w = np.ones(len(score)) if weight is None else weight[order]
    hit = bad[order]
    good, ill = np.cumsum(w * ~hit), np.cumsum(w * hit)
    last = np.append(score[order][1:] != score[order][:-1], True)  # after all rows of equal score
    return float(np.abs(good[last] / good[-1] - ill[last] / ill[-1]).max())


def calibration_line(logit: FloatArray, bad: FloatArray, weight: FloatArray | None = None) -> tuple[float, float]:
    """Slope and intercept of the logistic regression of outcomes on logits; nan where there is no finite estimate."""
    expit = late("scipy.special", "expit")
    if not 0 < bad.sum() < len(bad) or np.ptp(logit) == 0 or _apart(logit, bad):
        return math.nan, math.nan
    w = np.ones(len(bad)) if weight is None else weight
    centre, size = float(logit.mean()), float(logit.std())
    z = np.column_stack([(logit - centre) / size, np.ones(len(bad))])
    beta = np.zeros(2)
    for _ in range(100):
        p = expit(z @ beta)
        gradient = z.T @ (w * (bad - p))
        hessian = (z * (w * p * (1 - p))[:, None]).T @ z
        try:
            step = np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            return math.nan, math.nan
        beta = beta + step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-12:
            break
    slope = float(beta[0] / size)
    return slope, float(beta[1] - beta[0] * centre / size)


def _apart(logit: FloatArray, bad: FloatArray) -> bool:
    """Whether one number separates the classes: then the slope is infinite."""
    low, high = logit[bad == 0], logit[bad == 1]
    return bool(low.max() <= high.min() or high.max() <= low.min())


def psi_of(
    old: FloatArray, new: FloatArray, bins: int, was: FloatArray | None = None, now: FloatArray | None = None
) -> tuple[float, int]:
    """Population stability index over quantile bins of the old numbers, and how many bins these are.

    Rows count by the weights `was` and `now`; bins hold equal numbers of old rows.
    """
    old, new = np.asarray(old, dtype=np.float64), np.asarray(new, dtype=np.float64)
    edges = np.unique(np.quantile(old, np.linspace(0, 1, bins + 1)[1:-1]))
    p = _shares(np.searchsorted(edges, old, side="left"), len(edges) + 1, was)
    q = _shares(np.searchsorted(edges, new, side="left"), len(edges) + 1, now)
    return float(_psi_parts(p, q).sum()), int(((p > 0) | (q > 0)).sum())


def _psi_parts(p: FloatArray, q: FloatArray) -> FloatArray:
    used = (p > 0) | (q > 0)
    a, b = np.maximum(p, _SMALL), np.maximum(q, _SMALL)
    return np.where(used, (b - a) * np.log(b / a), 0.0)


def _measures(s: _Sample, inside: Index, cutoff: float) -> dict[str, Any]:
    part = _Sample(
        s.logit[inside], s.pd[inside], s.bad[inside], None if s.weight is None else s.weight[inside],
        s.region[inside], None,
    )  # fmt: skip
    w, hit = part.weight, part.bad == 1
    total = len(s) if s.weight is None else float(s.weight.sum())
    size = len(inside) if w is None else float(w.sum())
    auc = scores.auc(part.pd, hit, w) if hit.any() and not hit.all() else math.nan
    slope, intercept = calibration_line(part.logit, part.bad, w)
    rate = scores.mean(part.bad, w)
    loss = scores.mean(_losses(part), w)
    know = -(rate * math.log(rate) + (1 - rate) * math.log1p(-rate)) if 0 < rate < 1 else math.nan
    return {
        "rows": len(inside),
        "share": size / total,
        "bads": int(hit.sum()),
        "rate": rate,
        "pd": scores.mean(part.pd, w),
        "above": scores.mean((part.pd > cutoff).astype(np.float64), w),
        "auc": auc,
        "gini": 2 * auc - 1,
        "ks": ks_of(part.pd, hit, w),
        "brier": scores.mean((part.pd - part.bad) ** 2, w),
        "log_loss": loss,
        "skill": 1 - loss / know if know == know and know > 0 else math.nan,
        "slope": slope,
        "intercept": intercept,
    }


def _losses(s: _Sample) -> FloatArray:
    p = np.clip(s.pd, 1e-15, 1 - 1e-15)
    return np.asarray(-np.where(s.bad == 1, np.log(p), np.log1p(-p)))


def _compared(name: str, train: _Sample, test: _Sample | None) -> dict[str, Any]:
    keep = ("auc", "gini", "ks", "brier", "log_loss", "slope")
    line: dict[str, Any] = {"model": name}
    line |= {k: v for k, v in _measures(train, np.arange(len(train)), 0.5).items() if k in keep}
    if test is not None:
        line |= {f"test_{k}": v for k, v in _measures(test, np.arange(len(test)), 0.5).items() if k in keep}
        line["gap"] = line["auc"] - line["test_auc"]
    return line


def _rescored(s: _Sample, pd: FloatArray) -> _Sample:
    p = np.clip(pd, 1e-12, 1 - 1e-12)
    return _Sample(np.log(p) - np.log1p(-p), pd, s.bad, s.weight, s.region, s.X)


# -- inside --------------------------------------------------------------------------------------------------------


def _own(u: Unwrapped) -> _Sample:
    if u.task != "binary":
        raise InputError(
            f"outcome analysis needs two classes, but the task is {u.task!r}; pass y with two labels to unwrap"
        )
    assert u.response.code is not None
    pd = chances(u.network, u.prediction)[:, 1]
    return _Sample(_logit(u, u.prediction, pd), pd, u.response.code.astype(np.float64), u.weight, u.region, u.X)


def _other(u: Unwrapped, X: Any, y: Any, sample_weight: Any) -> _Sample:
    if y is None:
        raise InputError("y must be given with X: the outcomes of the test rows")
    rows = u._rows(X)
    check_beside(X, y, sample_weight)
    response = u.response.encode(y, len(rows))
    region, outputs = u._assign(rows)
    assert response.code is not None
    pd = chances(u.network, outputs)[:, 1]
    bad = response.code.astype(np.float64)
    return _Sample(_logit(u, outputs, pd), pd, bad, weights_of(sample_weight, len(rows)), region, rows)


def _logit(u: Unwrapped, outputs: FloatArray, pd: FloatArray) -> FloatArray:
    schema = u.network.schema
    if schema is not None and len(schema.outputs) == 1 and schema.outputs[0].calibration:
        p = np.clip(pd, 1e-12, 1 - 1e-12)
        return np.asarray(np.log(p) - np.log1p(-p))
    return outputs[:, 0]


def _all(s: _Sample | None) -> Any:
    return None if s is None else np.ones(len(s), dtype=bool)


def _listed(segments: Any) -> tuple[str, ...]:
    if segments is None:
        return ()
    return (segments,) if isinstance(segments, str) else several(segments, "segments", "columns")


def _segments(u: Unwrapped, name: Any, train: _Sample, test: _Sample | None) -> list[Any]:
    """The levels of a category, few values of a number, or fifths of many."""
    schema = u.network.schema
    if schema is not None and schema.columns and isinstance(name, str) and name in schema.names:
        place = schema.place(name)
        column = schema.column(name)
        own, new = (None if s is None else column.decode(read(s.X, slice(None))[:, place]) for s in (train, test))
    else:
        known = () if schema is None else schema.names
        if isinstance(name, str) and known and name not in u.feature_names:
            raise unknown_name(name, known, "segments")
        j = u._feature(name, "segments")
        own, new = (None if s is None else read(s.X, slice(None))[:, j] for s in (train, test))
        name = u.feature_names[j]
    assert own is not None
    values = list(dict.fromkeys(own.tolist()))
    if own.dtype.kind == "O" or len(values) <= 12:
        values.sort(key=lambda v: (isinstance(v, str), v is None, v))
        return [("segment", f"{name} = {_figure(v)}", own == v, None if new is None else new == v) for v in values]
    edges = np.unique(np.quantile(own, [0.2, 0.4, 0.6, 0.8]))
    a = np.searchsorted(edges, own, side="left")
    b = None if new is None else np.searchsorted(edges, new, side="left")
    out = []
    for i in range(len(edges) + 1):
        low = "" if i == 0 else f"{_figure(edges[i - 1])} < "
        high = "" if i == len(edges) else f" <= {_figure(edges[i])}"
        out.append(("segment", f"{low}{name}{high}", a == i, None if b is None else b == i))
    return out


def _figure(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
