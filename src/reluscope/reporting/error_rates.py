"""How often a classifier errs, class by class: on the rows given, or with the laws of the classes pushed through."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._text import count, percent, percent_in
from reluscope.errors import InputError, ReluscopeWarning
from reluscope.inputs import ClassMixtures
from reluscope.intervals import DEFAULT_LEVEL, binomial
from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS
from reluscope.reporting.blocks import Figure, Section, Table
from reluscope.reporting.charts import Chart
from reluscope.reporting.subject import Subject

Codes = npt.NDArray[np.intp]

_POINTS = 81
"""Thresholds of the curve of error rates."""


def errors(subject: Subject) -> Section:
    """How often the decision is wrong, class by class, when the classes are known."""
    title = "How often it errs"
    classes, fitted = subject.classes, ""
    if classes is None and subject.X is not None and subject.y is not None:
        if subject.table:
            return _row_errors(subject, title)
        classes = _fitted_classes(subject)
        fitted = " (a Gaussian fitted to each class)"
    if classes is None:
        ask = (
            "How often is the decision wrong, by class? Give one law per class, or labelled rows: X and y (--data, "
            "--target)."
        )
        return Section("errors", title, ask=ask)
    if subject.net.n_outputs == 1 and len(classes) == 2:
        return _two_class_errors(subject, classes, title, fitted)
    if subject.net.n_outputs != len(classes):
        return Section(
            "errors", title,
            f"Not shown: the network has {count(subject.net.n_outputs, 'output')} and the labels have "
            f"{len(classes)} classes.",
        )  # fmt: skip
    return _many_class_errors(subject, classes, title, fitted)


def labels_of(y: Any) -> npt.NDArray[Any]:
    """Labels as they are written: class 1, not class 1.0."""
    labels = np.asarray(y)
    whole = labels.dtype.kind == "f" and bool((labels == np.round(labels)).all())
    return labels.astype(np.int64) if whole else labels


def _fitted_classes(subject: Subject) -> ClassMixtures | None:
    """One Gaussian per label, or None where the target is no label."""
    from reluscope.inputs import GaussianMixture

    y = labels_of(subject.y)
    labels, sizes = np.unique(y, return_counts=True)
    whole = y.dtype.kind in "USbiu" or bool((y == np.round(y)).all())
    if not whole or not 2 <= len(labels) <= 100 or sizes.min() < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReluscopeWarning)  # one per class; the section says how the laws were fitted
        return GaussianMixture.fit_classes(subject.X, y, rng=subject.seed)  # type: ignore[arg-type]


# -- what is decided, and what is true ---------------------------------------------------------------------------


def _places(subject: Subject, labels: tuple[Any, ...]) -> Codes:
    """The number of the decision that each label stands for: by the classes of the schema, else in order."""
    schema = subject.net.schema
    if schema is None or not schema.classes:
        return np.arange(len(labels), dtype=np.intp)
    found = np.array([schema.class_index(label) for label in labels], dtype=np.intp)
    if (found < 0).any():
        stranger = labels[int(np.argmin(found))]
        raise InputError(f"the label {stranger!r} is none of the classes {', '.join(map(str, schema.classes))}")
    return found


def _threshold(subject: Subject) -> float:
    """The network's own output above which the second class is decided for."""
    schema = subject.net.schema
    found = None if schema is None else schema.threshold()
    return 0.0 if found is None else found


def _rule(subject: Subject) -> str:
    """The decision in words, such as PD > 0.2."""
    schema = subject.net.schema
    if schema is not None and schema.rule == "above" and schema.outputs:
        return f"{schema.outputs[0].name} > {schema.cutoff:g}"
    return "y[0] > 0"


def _decided(subject: Subject, y: FloatArray) -> Codes:
    if subject.net.n_outputs == 1:
        return (y[:, 0] > _threshold(subject)).astype(np.intp)
    return np.asarray(y.argmin(axis=1) if subject.deciding == "smallest" else y.argmax(axis=1), dtype=np.intp)


# -- on rows -----------------------------------------------------------------------------------------------------


def _row_errors(subject: Subject, title: str) -> Section:
    """Error rates of a table, counted: its own rows, and test rows beside them."""
    assert subject.X is not None
    net = subject.net
    labels = labels_of(subject.y)
    known = np.unique(labels).tolist()
    decisions = max(net.n_outputs, 2)
    if labels.dtype.kind == "f" or not 2 <= len(known) <= 100:
        return Section("errors", title, ask="How often is the decision wrong, by class? Give labels of classes, y.")
    schema = net.schema
    names = tuple(schema.classes) if schema is not None and schema.classes else tuple(known)
    if len(names) != decisions:
        return Section("errors", title, f"Not shown: {len(names)} classes for {count(net.n_outputs, 'output')}.")
    samples = {"on the data": (subject.X, labels)}
    if subject.X_test is not None and subject.y_test is not None:
        samples["on the test rows"] = (subject.X_test, labels_of(subject.y_test))
    columns: dict[str, list[Any]] = {"rate": [f"class {name} missed" for name in names] + ["any class missed"]}
    facts: dict[str, Any] = {"labels": list(names), "rule": _rule(subject) if net.n_outputs == 1 else subject.deciding}
    curves = []
    for where, (X, y) in samples.items():
        out = net(X)
        kinds, back = np.unique(y, return_inverse=True)
        truth = _places(subject, tuple(kinds.tolist()))[np.ravel(back)]
        wrong = _decided(subject, out) != truth
        groups = [*(truth == k for k in range(decisions)), np.ones(len(y), dtype=bool)]
        misses, sizes = (np.array([int(part.sum()) for part in some]) for some in ([wrong & g for g in groups], groups))
        low, high = binomial(misses, np.maximum(sizes, 1))
        rates = np.where(sizes > 0, misses / np.maximum(sizes, 1), np.nan)
        columns |= {where: rates.tolist(), "lower" if len(columns) < 4 else "lower, test": low.tolist(),
                    "upper" if len(columns) < 4 else "upper, test": high.tolist()}  # fmt: skip
        facts[where.removeprefix("on the ").replace(" ", "_")] = {"rate": rates, "lower": low, "upper": high}
        curves.append((where, out[:, 0], truth))
    caption = f"Error rates of the rows, with {100 * DEFAULT_LEVEL:g} % intervals for rows like them."
    blocks: list[Any] = [Table("error_rates", caption, columns, shown=20)]
    first = columns["on the data"]
    parts = [f"{percent(rate)} of class {name}" for name, rate in zip(names, first, strict=False) if np.isfinite(rate)]
    by = f"Deciding by {_rule(subject)}" if net.n_outputs == 1 else f"With the {subject.deciding} output"
    lead = f"{by}, it misses {' and '.join(parts[:3])} of the data; {percent(first[-1])} of all rows."
    if len(samples) > 1:
        lead += f" Of the test rows, {percent(columns['on the test rows'][-1])}."
    if net.n_outputs == 1:
        blocks.append(_counted_curve(subject, curves, names))
    return Section("errors", title, lead, "confidence", blocks, facts=facts, headline=lead)


def _counted_curve(subject: Subject, curves: list[Any], names: tuple[Any, ...]) -> Figure:
    """Both error rates of the rows as the threshold moves; of the test rows where there are any."""
    where, score, truth = curves[-1]
    low, high = (float(v) for v in np.quantile(score, [0.01, 0.99]))
    at = _threshold(subject)
    t = np.linspace(min(low, at), max(high, at), _POINTS) if np.isfinite(at) else np.linspace(low, high, _POINTS)
    chart = _chart(subject, t)
    for k, kind in ((0, "c1"), (1, "c2")):
        own = np.sort(score[truth == k])
        below = np.searchsorted(own, t, side="right") / max(len(own), 1)
        chart.line(t, 1.0 - below if k == 0 else below, kind, f"class {names[k]} missed")
    if np.isfinite(at):
        chart.line([at, at], [0.0, 1.02], "ink", "cut-off")
    return Figure(chart.svg(), f"Both error rates {where} as the threshold on {subject.result(0).name} moves.")


def _chart(subject: Subject, t: FloatArray) -> Chart:
    label = subject.result(0)
    return Chart((float(t.min()), float(t.max())), (0, 1.02), x_label=label, y_label="error rate",
                 title=f"Error rates and the threshold on {label.name}")  # fmt: skip


# -- with a law per class ----------------------------------------------------------------------------------------


def _two_class_errors(subject: Subject, classes: ClassMixtures, title: str, fitted: str) -> Section:
    """Rates of the decision by the threshold, and how they move with it."""
    from reluscope.answers.outputs import error_rates

    order = np.argsort(_places(subject, classes.labels))
    negative, positive = (classes.labels[int(k)] for k in order)
    at = _threshold(subject)
    exact = subject.seen() <= MOST_EXACT_DIMENSIONS
    budget = f"{subject.allow(0.1):g}s, 300000 regions" if exact else f"{subject.allow(0.05):g}s"
    _, y = subject.draws()
    low, high = (float(v) for v in np.quantile(y[:, 0], [0.01, 0.99]))
    t = np.append(np.linspace(min(low, at), max(high, at), _POINTS), at)
    # The last label is the positive one by default: named only where it is another, as records name what was asked.
    asked = {} if positive == classes.labels[-1] else {"positive": positive}
    rates = error_rates(subject.net, classes, t, budget=budget, rng=subject.seed, **asked)
    subject.keep(None, rates, classes, threshold=t, budget=budget, **asked)
    here = {k: [float(getattr(r, k)[-1]) for r in (rates.false_positive, rates.false_negative, rates.error)]
            for k in ("value", "lower", "upper")}  # fmt: skip
    columns: dict[str, list[Any]] = {
        "rate": [
            f"class {negative} taken for {positive}",
            f"class {positive} taken for {negative}",
            "either, by their shares",
        ],
        **here,
    }
    seen = ""
    if subject.X is not None and subject.y is not None:
        is_positive = labels_of(subject.y) == positive
        wrong = _decided(subject, subject.net(subject.X)).astype(bool) != is_positive
        columns["on the data"] = [
            float(wrong[~is_positive].mean()),
            float(wrong[is_positive].mean()),
            float(wrong.mean()),
        ]
        seen = f"On the data it is wrong for {percent(columns['on the data'][2])} of the rows. "
    said = [percent_in(*(here[k][i] for k in ("value", "lower", "upper"))) for i in range(2)]
    chart = _chart(subject, t[:-1])
    for values, kind, name in (
        (rates.false_positive, "c1", columns["rate"][0]),
        (rates.false_negative, "c2", columns["rate"][1]),
    ):
        if values.guarantee == "confidence":
            chart.band(t[:-1], values.lower[:-1], values.upper[:-1], kind)
        chart.line(t[:-1], values.value[:-1], kind, name)
    lead = seen + (
        f"Deciding by {_rule(subject)}, {said[0]} of class {negative} are taken for {positive}, and {said[1]} of class "
        f"{positive} for {negative}{fitted}."
    )
    return Section("errors", title, lead, rates.error.guarantee,
                   [Table("error_rates", f"Error rates, deciding by {_rule(subject)}.", columns, shown=3),
                    Figure(chart.svg(), f"Both error rates as the threshold on {subject.result(0).name} moves.")],
                   facts={"labels": [negative, positive], **here}, headline=lead)  # fmt: skip


def _many_class_errors(subject: Subject, classes: ClassMixtures, title: str, fitted: str) -> Section:
    """The probability that the deciding output is not the one of the class, for each class."""
    from reluscope.answers.probability import probability

    subject.refuse_if_large("rs.probability")
    at, word = _places(subject, classes.labels), subject.deciding
    name = "argmin" if word == "smallest" else "argmax"
    answers = [
        probability(
            subject.net, law, f"{name} != {k}", budget=f"{subject.allow(0.1) / len(classes):g}s", rng=subject.seed
        )
        for k, law in zip(at.tolist(), classes.laws, strict=True)
    ]
    columns: dict[str, list[Any]] = {
        "class": [str(label) for label in classes.labels],
        "output": [subject.result(k).name for k in at.tolist()],
        **{k: [float(getattr(a, k)) for a in answers] for k in ("value", "lower", "upper")},
    }
    seen = ""
    if subject.X is not None and subject.y is not None:
        y = labels_of(subject.y)
        decided = _decided(subject, subject.net(subject.X))
        missed = [decided[y == label] != k for k, label in zip(at.tolist(), classes.labels, strict=True)]
        columns["on the data"] = [float(part.mean()) for part in missed]
        seen = f"On the data it is wrong for {percent(float(np.concatenate(missed).mean()))} of the rows. "
    total, *ends = (float(np.dot(classes.weights, columns[k])) for k in ("value", "lower", "upper"))
    worst = int(np.argmax(columns["value"]))
    most = percent_in(*(columns[k][worst] for k in ("value", "lower", "upper")))
    lead = seen + (
        f"The {word} output is not the one of the input's class {percent_in(total, *ends)} of the time{fitted}; class "
        f"{columns['class'][worst]} fares worst, with {most}."
    )
    weakest = max((a.guarantee for a in answers), key=("exact", "sound", "confidence").index)
    return Section("errors", title, lead, weakest,
                   [Table("error_rates", f"How often each class is missed ({word} output wins).", columns, shown=20)],
                   facts={"labels": list(classes.labels), "total": total}, headline=lead)  # fmt: skip
