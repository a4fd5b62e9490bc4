"""Who gets what: selection rates, logits and errors of a network's decision by the levels of a category.

All numbers are of independent rows (data, or draws from a law). Rates have the exact binomial interval; ratios of two
rates combine two such intervals at half the risk each. The standardised mean difference and the AUC have large-sample
normal intervals, and their `method` says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray, describe, integer, real, seeded
from reluscope._columns import check_rows, factorized, few
from reluscope._extras import require
from reluscope._lazy import late
from reluscope._text import percent, percent_ends
from reluscope.answer import Answer
from reluscope.answers._named import Index, chosen, law_of, level_codes, level_of
from reluscope.answers._patterns import share
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL, binomial, normal_quantile
from reluscope.network import Network

if TYPE_CHECKING:
    from reluscope.inputs import Law


@dataclass(frozen=True, eq=False)
class GroupRates:
    """The decisions for the rows of one level.

    Attributes
    ----------
    level : object
        The level; a tuple for several categories.
    rows : int
    selection_rate : Answer
        Share of its rows that are selected.
    impact_ratio : Answer
        Its selection rate over that of the reference (the adverse impact ratio where selection is good).
    mean_difference : Answer
        Standardised mean difference of the logit (the output for the selected class): its mean minus that of the
        reference, over the pooled standard deviation of the two.
    auc : Answer or None
        How well the logit ranks its rows; None without labels, or with rows of one class.
    false_positive_rate, false_negative_rate : Answer or None
        Selected although of the other class; not selected although of the class. None without labels, or without such
        rows.
    """

    level: Any
    rows: int
    selection_rate: Answer
    impact_ratio: Answer
    mean_difference: Answer
    auc: Answer | None
    false_positive_rate: Answer | None
    false_negative_rate: Answer | None

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        out: dict[str, Any] = {"level": str(self.level), "rows": self.rows}
        for name in _NUMBERS:
            found = getattr(self, name)
            out[name] = None if found is None else found.to_dict()
        return out


_NUMBERS = (
    "selection_rate", "impact_ratio", "mean_difference", "auc", "false_positive_rate", "false_negative_rate",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Fairness:
    """What `fairness` returns.

    Attributes
    ----------
    name : str
        The category.
    selected : object
        The class whose rates these are.
    reference : object
        The level that others are compared with.
    groups : tuple of GroupRates
        One per level that occurs.
    rows : int
        Rows of data, or draws.
    of_data : bool
        Whether they are rows of data.
    level : float
        Level of the intervals.
    seed : int or None
        The `rng=` that repeats the answer; None where nothing was drawn.
    """

    name: str
    selected: Any
    reference: Any
    groups: tuple[GroupRates, ...]
    rows: int
    of_data: bool
    level: float
    seed: int | None = None

    def __getitem__(self, level: Any) -> GroupRates:
        for group in self.groups:
            if group.level == level or str(group.level) == str(level):
                return group
        raise InputError(f"{self.name} has no level {level!r} here; it has {few([g.level for g in self.groups])}")

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {
            "name": self.name,
            "selected": str(self.selected),
            "reference": str(self.reference),
            "groups": [g.to_dict() for g in self.groups],
            "rows": self.rows,
            "of_data": self.of_data,
            "level": self.level,
            "seed": self.seed,
        }

    def table(self) -> list[dict[str, Any]]:
        """One dictionary per level: each number, and its interval as `..._lower` and `..._upper`."""
        out = []
        for group in self.groups:
            line: dict[str, Any] = {"level": group.level, "rows": group.rows}
            for name in _NUMBERS:
                found = getattr(group, name)
                for part, end in (("value", ""), ("lower", "_lower"), ("upper", "_upper")):
                    line[name + end] = None if found is None else float(getattr(found, part))
            out.append(line)
        return out

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return require("pandas", "pandas").DataFrame(self.table())

    def __repr__(self) -> str:
        what = "rows" if self.of_data else "draws"
        lines = [
            f"Fairness({self.rows:,} {what} by {self.name}, selected: {self.selected}, reference: {self.reference})"
        ]
        for g in self.groups:
            parts = [f"selected {_rate(g.selection_rate)}", f"ratio {_number(g.impact_ratio)}"]
            parts.append(f"mean difference {_number(g.mean_difference)}")
            parts += [] if g.auc is None else [f"AUC {_number(g.auc)}"]
            parts += [] if g.false_positive_rate is None else [f"false positives {_rate(g.false_positive_rate)}"]
            parts += [] if g.false_negative_rate is None else [f"false negatives {_rate(g.false_negative_rate)}"]
            lines.append(f"  {g.level!s} ({g.rows:,}): {', '.join(parts)}")
        return "\n".join(lines)


def fairness(
    net: Network,
    law: Law,
    feature: str,
    *,
    y: Any = None,
    selected: Any = None,
    reference: Any = None,
    draws: int = 50_000,
    level: float = DEFAULT_LEVEL,
    rng: Any = None,
) -> Fairness:
    """How the decisions of a network differ between the levels of a category.

    Parameters
    ----------
    net : Network
        With a schema that has the category and the decision rule.
    law : Law, or rows of data
        The distribution of the inputs; for a table (or particles) the rows themselves are the sample.
    feature : str
        The category, or a group of categories.
    y : (n,), optional
        The true class of each row of data, for AUC and error rates.
    selected : optional
        The class whose rate is compared; the one above the cut-off, or the last one, unless given.
    reference : optional
        The level that others are compared with; the one with most rows unless given.
    draws : int
        Draws from a law.
    level : float
        Confidence level of every single interval.
    rng : optional
        None, an int, a SeedSequence or a Generator.

    Returns
    -------
    Fairness

    Raises
    ------
    InputError
        If the schema has no such category, or an argument does not fit.

    Notes
    -----
    The logit is the network's output for the selected class (its negative, where the smallest output decides).
    Intervals are for the population that independent rows come from; weighted particles are refused.

    Examples
    --------
    >>> from reluscope import Column, Network, Output, Schema, fairness
    >>> columns = [Column("SEX", "category", levels=["f", "m"]), "income"]
    >>> schema = Schema(columns, [Output("score")], classes=["no", "yes"])
    >>> net = Network([([[0.5, 0.0, 1.0]], [-1.0])], schema=schema)
    >>> table = {"SEX": ["f", "m", "f", "m"], "income": [0.8, 0.8, 2.0, 2.0]}
    >>> found = fairness(net, table, "SEX")
    >>> found["f"].selection_rate.value, found["m"].selection_rate.value
    (1.0, 0.5)
    """
    given = law_of(net, law)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    count = integer(draws, "draws", low=2)
    generator, seed = seeded(rng)
    for label, what in ((selected, "selected"), (reference, "reference")):
        if label is not None and not isinstance(label, (str, bool, int, float, tuple, np.generic)):
            raise InputError(f"{what} must be a label, text or a number, got {describe(label)}")
        if isinstance(label, int) and abs(label) >= 1 << 63:
            raise InputError(f"{what} must be a label, got {describe(label)}")
        if isinstance(label, tuple) and what == "selected":
            raise InputError(f"{what} must be a label, text or a number, got {describe(label)}")
    schema = net.schema
    if schema is None or not schema.columns:
        raise InputError("net has no schema that names its columns; give one with net.with_schema(columns=[...])")
    if not isinstance(feature, str):
        raise InputError(f"feature must be the name of a category, got {describe(feature)}")
    named = chosen(net, feature, "feature")
    levels, codes = level_codes(schema, named, "groups are the levels of a category")
    if given.atoms is not None:
        seed = None
        X, weights = given.atoms
        if not np.allclose(weights, weights[0]):
            raise InputError("law: rows with different weights are no plain sample; repeat or draw rows instead")
    else:
        if y is not None:
            raise InputError("y belongs to rows of data; under a law the classes are not known")
        X = given.sample(count, generator)
    own = level_of(codes, X[:, named.inputs], named.name)
    out = net(X)
    decided = schema.decide(out) if schema.rule else net_decides(out)
    labels = schema.classes or tuple(range(max(2, net.n_outputs)))
    target = _class(schema, labels, selected)
    score = _score(out, schema.rule, target)
    check_rows(law, y, "y", "law")
    truth = None if y is None else _truth(y, labels, target, len(X))
    present = [k for k in range(len(codes)) if (own == k).any()]
    keys = [key[0] if len(key) == 1 else key for key in levels]
    base = _reference(keys, own, present, reference, named.name)
    groups = tuple(_group(keys[k], own == k, own == base, decided == target, score, truth, level) for k in present)
    return Fairness(named.name, labels[target], keys[base], groups, len(X), given.atoms is not None, level, seed)


def net_decides(y: FloatArray) -> Index:
    """The decision where no rule is known: the largest output, or the sign of the only one."""
    return np.asarray(y[:, 0] > 0 if y.shape[1] == 1 else y.argmax(axis=1), dtype=np.intp)


# -- arguments -----------------------------------------------------------------------------------------------------


def _class(schema: Any, labels: tuple[Any, ...], selected: Any) -> int:
    if selected is None:
        return len(labels) - 1
    found = schema.class_index(selected) if schema.classes else (selected if selected in labels else -1)
    if found < 0:
        raise InputError(f"selected must be one of the classes {few(labels)}, got {selected!r}")
    return int(found)


def _reference(keys: list[Any], own: Index, present: list[int], wanted: Any, name: str) -> int:
    if wanted is None:
        return max(present, key=lambda k: int((own == k).sum()))
    found = next((k for k in present if keys[k] == wanted or str(keys[k]) == str(wanted)), None)
    if found is None:
        raise InputError(f"reference must be a level of {name} that occurs: {few([keys[k] for k in present])}")
    return found


def _score(out: FloatArray, rule: str, target: int) -> FloatArray:
    if out.shape[1] == 1:
        return out[:, 0] if target == 1 else -out[:, 0]
    own = out[:, target]
    return -own if rule == "smallest" else own


def _truth(y: Any, labels: tuple[Any, ...], target: int, n: int) -> Any:
    try:
        code, found = factorized(y)
    except (TypeError, ValueError, AttributeError):
        raise InputError(f"y must be a list of classes, got {describe(y)}") from None
    if code.ndim != 1 or len(code) != n:
        raise InputError(f"y must have one class for each of the {n:,} rows, got {len(code):,}")
    if (code < 0).any():
        raise InputError(f"y must not have missing entries, got one in row {int(np.flatnonzero(code < 0)[0])}")
    spelled = [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in labels]
    place = []
    for v in found:
        text = str(int(v)) if isinstance(v, float) and v.is_integer() else str(v)
        if v not in labels and text not in spelled:
            raise InputError(f"y must hold the classes {few(labels)}, got {v!r}")
        place.append(labels.index(v) if v in labels else spelled.index(text))
    return np.array(place)[code] == target


# -- numbers -------------------------------------------------------------------------------------------------------


def _group(key: Any, mine: Any, theirs: Any, chosen_: Any, score: FloatArray, truth: Any, level: float) -> GroupRates:
    n, hits = int(mine.sum()), int((mine & chosen_).sum())
    m, other = int(theirs.sum()), int((theirs & chosen_).sum())
    same = bool((mine == theirs).all())
    auc = positive = negative = None
    if truth is not None:
        bad, good = mine & ~truth, mine & truth
        auc = _auc(score[good], score[bad], level) if good.any() and bad.any() else None
        positive = share(int((bad & chosen_).sum()), int(bad.sum()), level, "rows") if bad.any() else None
        negative = share(int((good & ~chosen_).sum()), int(good.sum()), level, "rows") if good.any() else None
    return GroupRates(
        key,
        n,
        share(hits, n, level, f"{n:,} rows"),
        Answer(1.0, 1.0, 1.0, "exact", method="the reference") if same else _ratio(hits, n, other, m, level),
        Answer(0.0, 0.0, 0.0, "exact", method="the reference") if same else _smd(score[mine], score[theirs], level),
        auc,
        positive,
        negative,
    )


def _ratio(hits: int, n: int, other: int, m: int, level: float) -> Answer:
    """The ratio of two rates; each interval has half of the risk, so the ratio's holds for any number of rows."""
    half = 0.5 + 0.5 * level
    (a, b), (c, d) = binomial(hits, n, half), binomial(other, m, half)
    value = (hits / n) / (other / m) if other else (math.inf if hits else 1.0)
    low, high = a / d if d > 0 else 0.0, b / c if c > 0 else math.inf
    return Answer(value, low, high, "confidence", level, "two binomial intervals")


def _smd(one: FloatArray, two: FloatArray, level: float) -> Answer:
    """Cohen's d with its large-sample interval (Hedges and Olkin 1985)."""
    n, m = len(one), len(two)
    how = "large-sample normal interval"
    if n + m < 3:
        return Answer(0.0, -math.inf, math.inf, "confidence", level, how, note="too few rows")
    pooled = math.sqrt((((one - one.mean()) ** 2).sum() + ((two - two.mean()) ** 2).sum()) / (n + m - 2))
    gap = float(one.mean() - two.mean())
    if pooled == 0:
        end = 0.0 if gap == 0 else math.copysign(math.inf, gap)
        return Answer(end, end, end, "confidence", level, how, note="no spread within the groups")
    d = gap / pooled
    half = normal_quantile(level) * math.sqrt((n + m) / (n * m) + d * d / (2 * (n + m)))
    return Answer(d, d - half, d + half, "confidence", level, how)


def _auc(good: FloatArray, bad: FloatArray, level: float) -> Answer:
    """The share of pairs that the score ranks right (ties half), with the interval of DeLong et al. 1988."""
    rankdata = late("scipy.stats", "rankdata")
    n, m = len(good), len(bad)
    everything = rankdata(np.concatenate([good, bad]))
    v = (everything[:n] - rankdata(good)) / m
    w = 1.0 - (everything[n:] - rankdata(bad)) / n
    value = float(v.mean())
    if n < 2 or m < 2:
        return Answer(value, 0.0, 1.0, "confidence", level, "DeLong, large-sample", note="too few rows")
    half = normal_quantile(level) * math.sqrt(float(v.var(ddof=1)) / n + float(w.var(ddof=1)) / m)
    return Answer(value, max(0.0, value - half), min(1.0, value + half), "confidence", level, "DeLong, large-sample")


def _rate(answer: Answer) -> str:
    return f"{percent(answer.value)} ({' to '.join(percent_ends(answer.lower, answer.upper))})"


def _number(answer: Answer) -> str:
    if answer.lower == answer.upper:
        return f"{answer.value:.3g}"
    return f"{answer.value:.3g} ({answer.lower:.3g} to {answer.upper:.3g})"
