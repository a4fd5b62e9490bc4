"""How often a classifier errs, class by class: the laws of the classes pushed through the network."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._text import count, percent
from reluscope.inputs import ClassMixtures
from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS
from reluscope.reporting.blocks import Figure, Section, Table
from reluscope.reporting.charts import Chart
from reluscope.reporting.subject import Subject


def errors(subject: Subject) -> Section:
    """How often the decision is wrong, class by class, when the classes are known."""
    title = "How often it errs"
    classes, fitted = subject.classes, ""
    if classes is None and subject.X is not None and subject.y is not None:
        classes = _fitted_classes(subject)
        fitted = " (a Gaussian fitted to each class)"
    if classes is None:
        ask = "one law per class, or X=rows with labels y=: how often the decision is wrong, by class"
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


def _fitted_classes(subject: Subject) -> ClassMixtures | None:
    """One Gaussian per label, or None where the target is no label."""
    from reluscope.inputs import GaussianMixture

    y = np.asarray(subject.y)
    labels, sizes = np.unique(y, return_counts=True)
    whole = y.dtype.kind in "USb" or bool((y == np.round(y)).all())
    if not whole or not 2 <= len(labels) <= 100 or sizes.min() < 2:
        return None
    if y.dtype.kind == "f":
        y = y.astype(np.int64)  # class 1, not class 1.0
    return GaussianMixture.fit_classes(subject.X, y, rng=subject.seed)  # type: ignore[arg-type]


def _two_class_errors(subject: Subject, classes: ClassMixtures, title: str, fitted: str) -> Section:
    """Rates of "positive when y[0] > 0", and how they move with the threshold."""
    from reluscope.answers.outputs import error_rates

    negative, positive = classes.labels
    exact = subject.seen() <= MOST_EXACT_DIMENSIONS
    budget = f"{subject.allow(0.1):g}s, 300000 regions" if exact else f"{subject.allow(0.05):g}s"
    _, y = subject.draws()
    low, high = (float(v) for v in np.quantile(y[:, 0], [0.01, 0.99]))
    t = np.append(np.linspace(min(low, 0.0), max(high, 0.0), 81), 0.0)
    rates = error_rates(subject.net, classes, t, budget=budget, rng=subject.seed)
    subject.keep(None, rates, classes, threshold=t, budget=budget)
    at_zero = {k: [float(getattr(r, k)[-1]) for r in (rates.false_positive, rates.false_negative, rates.error)]
               for k in ("value", "lower", "upper")}  # fmt: skip
    columns: dict[str, list[Any]] = {
        "rate": [
            f"class {negative} taken for {positive}",
            f"class {positive} taken for {negative}",
            "either, by their shares",
        ],
        **at_zero,
    }
    seen = ""
    if subject.X is not None and subject.y is not None:
        called, is_positive = subject.net(subject.X)[:, 0] > 0.0, np.asarray(subject.y) == positive
        wrong = called != is_positive
        columns["on the data"] = [
            float(wrong[~is_positive].mean()),
            float(wrong[is_positive].mean()),
            float(wrong.mean()),
        ]
        seen = f" On the data it is wrong for {percent(columns['on the data'][2])} of the rows."
    chart = Chart((float(t[:-1].min()), float(t[:-1].max())), (0, 1.02), x_label="threshold on y[0]",
                  y_label="error rate", title="Error rates and the threshold")  # fmt: skip
    for values, kind, name in (
        (rates.false_positive, "c1", columns["rate"][0]),
        (rates.false_negative, "c2", columns["rate"][1]),
    ):
        if values.guarantee == "confidence":
            chart.band(t[:-1], values.lower[:-1], values.upper[:-1], kind)
        chart.line(t[:-1], values.value[:-1], kind, name)
    lead = (
        f"Deciding by y[0] > 0, {percent(at_zero['value'][0])} of class {negative} are taken for {positive}, and "
        f"{percent(at_zero['value'][1])} of class {positive} for {negative}{fitted}."
    )
    return Section("errors", title, lead + seen, rates.error.guarantee,
                   [Table("error_rates", "Error rates at the threshold 0.", columns, shown=3),
                    Figure(chart.svg(), "Both error rates as the threshold moves.")],
                   facts={"labels": list(classes.labels), **at_zero}, headline=lead)  # fmt: skip


def _many_class_errors(subject: Subject, classes: ClassMixtures, title: str, fitted: str) -> Section:
    """The probability that the largest output is not the one of the class, for each class."""
    from reluscope.answers.probability import probability

    subject.refuse_if_large("rs.probability")
    answers = [
        probability(
            subject.net, law, f"argmax != {k}", budget=f"{subject.allow(0.1) / len(classes):g}s", rng=subject.seed
        )
        for k, law in enumerate(classes.laws)
    ]
    columns: dict[str, list[Any]] = {
        "class": [str(label) for label in classes.labels],
        "output": [f"y[{k}]" for k in range(len(classes))],
        **{k: [float(getattr(a, k)) for a in answers] for k in ("value", "lower", "upper")},
    }
    seen = ""
    if subject.X is not None and subject.y is not None:
        y = np.asarray(subject.y)
        wrong = np.asarray(classes.labels)[subject.net(subject.X).argmax(axis=1)] != y
        columns["on the data"] = [float(wrong[y == label].mean()) for label in classes.labels]
        seen = f" On the data it is wrong for {percent(float(wrong.mean()))} of the rows."
    total = float(np.dot(classes.weights, columns["value"]))
    worst = int(np.argmax(columns["value"]))
    lead = (
        f"The largest output is not the one of the input's class {percent(total)} of the time{fitted}; class "
        f"{columns['class'][worst]} fares worst, with {percent(columns['value'][worst])}."
    )
    weakest = max((a.guarantee for a in answers), key=("exact", "sound", "confidence").index)
    return Section("errors", title, lead + seen, weakest,
                   [Table("error_rates", "How often each class is missed (largest output wins).", columns, shown=20)],
                   facts={"labels": list(classes.labels), "total": total}, headline=lead)  # fmt: skip
