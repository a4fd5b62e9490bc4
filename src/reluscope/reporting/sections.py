"""The questions of a report, one function each: ask the library, say the answer in words, show a table or figure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._text import count
from reluscope.errors import InputError
from reluscope.network import Network
from reluscope.reporting.blocks import Figure, Section, Table, percent
from reluscope.reporting.charts import Chart, diverging, hex_colours, sequential

_MOST_SHAPES = 6000
"""Polygons drawn in one picture."""

_PIXELS = 220
_DRAWS = 100_000
_MOST_OUTPUTS = 6
_MOST_LINE_UNITS, _MOST_LINE_INPUTS = 3000, 1000


@dataclass(frozen=True)
class Subject:
    """What a report is about: the network, the law of its inputs and where it came from, and what else was given."""

    net: Network
    law: Any
    law_from: str
    classes: Any = None
    """One law per class (`ClassMixtures`), when known."""
    X: FloatArray | None = None
    y: Any = None
    names: tuple[str, ...] | None = None
    events: tuple[str, ...] = ()
    seconds: float = 5.0
    seed: int = 0
    cache: dict[str, Any] = field(default_factory=dict)
    """Answers that several sections share."""

    def feature(self, i: int) -> str:
        """The name of input i."""
        return self.names[i] if self.names is not None else f"x[{i}]"

    def functions(self) -> Any:
        """`functions(net, law)`, asked once."""
        if "functions" not in self.cache:
            self.refuse_if_large("rs.functions")
            from reluscope.answers.functions import functions

            exact = _seen(self) <= 3
            budget = f"{10 * self.seconds:g}s, 300000 regions" if exact else f"{self.seconds:g}s"
            self.cache["functions"] = functions(
                self.net, self.law, method="auto" if exact else "lines", budget=budget, rng=self.seed
            )
        return self.cache["functions"]

    def outputs(self) -> Any:
        """`outputs(net, law)`, asked once."""
        if "outputs" not in self.cache:
            self.refuse_if_large("rs.outputs")
            from reluscope.answers.outputs import outputs

            # each of some twenty questions takes this long where lines are drawn
            exact = _seen(self) <= 3
            budget = f"{10 * self.seconds:g}s, 300000 regions" if exact else f"{self.seconds / 8:g}s"
            self.cache["outputs"] = outputs(self.net, self.law, budget=budget, rng=self.seed)
        return self.cache["outputs"]

    def refuse_if_large(self, call: str) -> None:
        """Raise an error with the reason when lines through this network take longer than a report may."""
        if self.net.n_units > _MOST_LINE_UNITS or self.net.n_inputs > _MOST_LINE_INPUTS:
            raise InputError(
                f"the network has {self.net.n_units:,} units and {self.net.n_inputs:,} inputs, too many for the time "
                f"of a report; ask {call}(net, law, budget=...) by itself"
            )

    def draws(self) -> tuple[FloatArray, FloatArray]:
        """Inputs from the law and their outputs: the Monte Carlo that is laid over exact curves."""
        if "draws" not in self.cache:
            n = int(np.clip(2e9 / max(1, self.net.n_parameters), 2000, _DRAWS))
            x = self.law.sample(n, rng=self.seed)
            self.cache["draws"] = (x, self.net(x))
        return self.cache["draws"]


def network(subject: Subject) -> Section:
    """What the network is."""
    net = subject.net
    rows = net.describe()
    columns = {key: [row.get(key) for row in rows] for key in rows[0]}
    switching = int((net.pieces > 1).sum())
    answer = (
        f"{net!r} has {count(net.n_inputs, 'input')}, {count(net.n_outputs, 'output')}, "
        f"{count(switching, 'unit')} "
        f"that switch and {net.n_parameters:,} parameters. On every cell of its input space it is one affine function."
    )
    notes = [f"Note: {note}" for note in net.notes]
    return Section(
        "network",
        "What the network is",
        answer,
        blocks=[Table("layers", "Its layers.", columns, shown=40), *notes],
        facts={"network": repr(net), "inputs": net.n_inputs, "outputs": net.n_outputs, "units": switching},
    )


def functions(subject: Subject) -> Section:
    """How many affine functions matter, and which."""
    found = subject.functions()
    top = found.top(min(10, len(found.value)))
    total = np.cumsum(found.value)
    most = int(np.searchsorted(total, 0.99 * min(1.0, total[-1]))) + 1 if len(total) else 0
    complete = found.remainder == 0
    entropy = found.entropy
    if complete:
        lead = (
            f"It applies {count(found.support_size, 'affine function')} where the inputs live; {most:,} of them "
            f"hold 99 % "
            f"of the probability, the most likely one {percent(float(found.value[0]))}."
        )
    else:
        lead = (
            f"{count(len(found.value), 'pattern')} were met; the most likely holds "
            f"{percent(float(found.value[0]))}, and at "
            f"most {percent(found.remainder)} lies in patterns that were not met."
        )
    answer = f"{lead} Their entropy is {entropy.value:.3g} bits (in [{entropy.lower:.3g}, {entropy.upper:.3g}])."
    columns: dict[str, Any] = {"probability": top.mass, "lower": top.lower, "upper": top.upper}
    columns["rule for y[0]"] = [_rule(subject, top.C[i, 0], top.d[i, 0]) for i in range(len(top))]
    blocks: list[Any] = [Table("functions", "The most probable affine functions.", columns)]
    if len(total) > 1:
        shown = min(len(total), 2000)
        chart = Chart(
            (0, np.log10(shown) or 1), (0, 1), x_label="number of functions, log10 (most probable first)",
            y_label="probability held", title="Probability held by the most probable functions",
        )  # fmt: skip
        at = np.unique(np.geomspace(1, shown, 200).astype(int))
        chart.line(np.log10(at), total[at - 1], step=True)
        blocks.append(Figure(chart.svg(), "How much probability the most probable functions hold together."))
    return Section(
        "functions", "Which affine functions it applies", answer, found.guarantee, blocks,
        facts={"functions": found.support_size, "remainder": found.remainder, "entropy_bits": entropy.to_dict(),
               "top_mass": float(found.value[0]) if len(found.value) else None, "method": found.method},
        headline=lead,
    )  # fmt: skip


def regions(subject: Subject) -> Section:
    """A picture of the regions: exact in the plane, a slice through the mean otherwise."""
    from reluscope.cells.regions import regions as enumerate_regions

    net, law = subject.net, subject.law
    flat = net.n_inputs == 2
    if flat:
        plane, labels = net, (subject.feature(0), subject.feature(1))
        centre, spread = np.asarray(law.mean), np.sqrt(np.asarray(law.variance))
        lower, upper = centre - 3.2 * spread, centre + 3.2 * spread
    elif net.n_inputs == 1:
        return _curve(subject)
    else:
        directions = _directions(subject)
        plane = net.after(directions.T, np.asarray(law.mean))
        labels = ("first direction, in standard deviations", "second direction, in standard deviations")
        lower, upper = np.full(2, -3.0), np.full(2, 3.0)
    wide = np.where(upper > lower, upper, lower + 1.0)
    found = enumerate_regions(
        plane, box=(lower, wide), budget=f"20000 regions, {5 * subject.seconds:g}s", progress=None
    )
    partial = "" if found.complete else f" (the first {len(found):,}: {found.stopped})"
    grid = np.stack(np.meshgrid(*(_pixel_centres(a, b) for a, b in zip(lower, wide, strict=True))), -1)
    values = plane(grid.reshape(-1, 2))[:, 0].reshape(_PIXELS, _PIXELS)
    chart = Chart((lower[0], wide[0]), (lower[1], wide[1]), x_label=labels[0], y_label=labels[1], height=460,
                  title="The output and the edges of the affine pieces")  # fmt: skip
    chart.image(diverging(values)[::-1])
    shapes = [found.vertices(i) for i in range(min(len(found), _MOST_SHAPES))]
    chart.polygons(shapes)
    top = float(np.abs(values).max())
    what = "y[0] (blue below zero, red above, strongest at ±" + f"{top:.3g})"
    where = "In the plane of the inputs" if flat else "In the plane through the mean along its two main directions"
    blocks: list[Any] = [
        Figure(chart.svg(), f"{where}: {what}, and the edges of {count(len(found), 'affine piece')}{partial}.")
    ]
    if flat and found.complete:
        blocks.append(_mass_picture(subject, found, lower, wide, labels))
    answer = (
        f"The picture shows {count(len(found), 'affine piece')} within three standard deviations of the mean"
        f"{partial}; " + ("edges are exact." if flat else "it is an exact slice, not a projection.")
    )
    return Section("regions", "Where it switches", answer, "exact" if found.complete else "", blocks,
                   facts={"pieces_in_view": len(found), "complete": bool(found.complete)})  # fmt: skip


def units(subject: Subject) -> Section:
    """Which units are dead, always on, or undecided."""
    net = subject.net
    if net.n_units > _MOST_LINE_UNITS or net.n_inputs > _MOST_LINE_INPUTS:
        x, _ = subject.draws()
        on = (net.pattern(x[:200]) > 0).mean(axis=0)
        low, high, kind = on, on, "estimate"
    else:
        marginals = subject.functions().marginals
        kind = marginals.guarantee
        on = 1.0 - np.asarray(marginals.value[:, 0])
        low, high = 1.0 - np.asarray(marginals.upper[:, 0]), 1.0 - np.asarray(marginals.lower[:, 0])
    switching = net.pieces > 1
    layer = np.repeat(np.arange(1, len(net.hidden) + 1), [h.width for h in net.hidden])
    dead, always = switching & (high <= 1e-6), switching & (low >= 1 - 1e-6)
    rows: dict[str, list[Any]] = {
        "layer": [], "units": [], "never on": [], "always on": [], "undecided": [], "mean share on": []
    }  # fmt: skip
    for k in range(1, len(net.hidden) + 1):
        here = (layer == k) & switching
        if here.any():
            row = (k, int(here.sum()), int((dead & here).sum()), int((always & here).sum()),
                   int((here & ~dead & ~always).sum()), float(on[here].mean()))  # fmt: skip
            for column, value in zip(rows.values(), row, strict=True):
                column.append(value)
    n = int(switching.sum())
    answer = (
        f"Of {count(n, 'unit')} that can switch, {int(dead.sum()):,} are on less than one time in a million, "
        f"{int(always.sum()):,} are off less than one time in a million, and "
        f"{n - int(dead.sum()) - int(always.sum()):,} do both."
    )
    chart = Chart((0, 1), (0.5, len(rows["layer"]) + 0.5), x_label="probability of being on", y_label="layer",
                  height=max(160, 80 + 34 * min(len(rows["layer"]), 12)), title="Activity of each unit")  # fmt: skip
    for place, k in enumerate(rows["layer"], start=1):
        here = (layer == k) & switching
        p = np.sort(on[here])[:: max(1, int(here.sum()) // 400)]
        chart.dots(p, np.full(len(p), place) + 0.5 * (np.arange(len(p)) % 7 - 3) / 8, "c1", radius=2.0)
    table = Table("units_by_layer", "Activity by layer.", rows, shown=80)
    whole: dict[str, Any] = {"layer": layer, "probability on": on, "lower": low, "upper": high}
    every = Table("units", "Every unit.", whole, shown=0)
    blocks: list[Any] = [table, Figure(chart.svg(), "Each dot is a unit: how often it is on."), every]
    return Section("units", "Which units work", answer, kind, blocks if rows["layer"] else [],
                   facts={"never_on": int(dead.sum()), "always_on": int(always.sum()), "switching": n})  # fmt: skip


def outputs(subject: Subject) -> Section:
    """The law of each output."""
    out = subject.outputs()
    net = subject.net
    _, y = subject.draws()
    blocks: list[Any] = []
    rows: dict[str, list[Any]] = {k: [] for k in ("output", "mean", "sd", "1 %", "median", "99 %", "atoms hold")}
    shown = min(net.n_outputs, _MOST_OUTPUTS)
    mean, cov = out.mean, out.cov
    for o in range(shown):
        q = out.quantile([0.01, 0.5, 0.99], output=o)
        atoms = out.atoms(o)
        sd = float(np.sqrt(max(0.0, np.asarray(cov.value)[o, o])))
        row = (f"y[{o}]", float(mean.value[o]), sd, *map(float, q.value), float(np.sum(atoms.mass.value)))
        for column, value in zip(rows.values(), row, strict=True):
            column.append(value)
        blocks += [_output_figure(out, o, y[:, o], q, atoms), _density_figure(out, o, y[:, o], q)]
    q = [f"{v:.4g}" for v in (rows["1 %"][0], rows["median"][0], rows["99 %"][0])]
    lead = (
        f"y[0] has mean {rows['mean'][0]:.4g} and median {q[1]}; 98 % of the time it lies between {q[0]} and {q[2]}."
        + (
            f" It takes single values with probability {percent(rows['atoms hold'][0])}."
            if rows["atoms hold"][0] > 0
            else ""
        )
    )
    more = f" The first {shown} of {net.n_outputs} outputs are shown." if shown < net.n_outputs else ""
    table = Table("outputs", "Moments and quantiles.", rows, shown=_MOST_OUTPUTS)
    if net.n_outputs > 1:
        blocks.insert(0, _decisions(subject, y))
    return Section("outputs", "What comes out", lead + more, out.guarantee, [table, *blocks],
                   facts={"mean": mean.to_dict(), "method": out.method}, headline=lead)  # fmt: skip


def events(subject: Subject) -> Section:
    """The probabilities of the events asked for."""
    if not subject.events:
        return Section(
            "events", "How likely are the events you fear",
            'None was given. Add for example --event "y[0] > 1" (events= in Python) to have its probability here.',
        )  # fmt: skip
    from reluscope.answers.probability import probability

    rows: dict[str, list[Any]] = {k: [] for k in ("event", "probability", "lower", "upper", "guarantee", "how")}
    facts, kinds = [], []
    for text in subject.events:
        answer = probability(subject.net, subject.law, text, budget=f"{4 * subject.seconds:g}s", rng=subject.seed)
        kind = answer.guarantee + (f" {100 * answer.level:g} %" if answer.level else "")
        row = (str(text), answer.value, answer.lower, answer.upper, kind, answer.method)
        for column, value in zip(rows.values(), row, strict=True):
            column.append(value)
        facts.append({"event": str(text)} | answer.to_dict())
        kinds.append(answer.guarantee)
    first = facts[0]
    at, low, high = (percent(float(first[k])) for k in ("value", "lower", "upper"))
    lead = f"{first['event']} has probability {at}" + ("." if low == high else f", between {low} and {high}.")
    weakest = next((k for k in ("confidence", "sound", "exact") if k in kinds), "")
    return Section("events", "How likely are the events you fear", lead, weakest,
                   [Table("events", "Probabilities of the events.", rows, shown=40)],
                   facts={"events": facts}, headline=lead)  # fmt: skip


def errors(subject: Subject) -> Section:
    """How often the decision is wrong, class by class, when the classes are known."""
    title = "How often it errs"
    classes, fitted = subject.classes, ""
    if classes is None and subject.X is not None and subject.y is not None:
        classes = _fitted_classes(subject)
        fitted = " (a Gaussian fitted to each class)"
    if classes is None:
        return Section(
            "errors", title, "Needs one law per class, or data with labels (--data rows.csv --target column)."
        )
    if subject.net.n_outputs == 1 and len(classes) == 2:
        return _two_class_errors(subject, classes, title, fitted)
    if subject.net.n_outputs != len(classes):
        return Section(
            "errors", title,
            f"Not shown: the network has {count(subject.net.n_outputs, 'output')} and the labels have "
            f"{len(classes)} classes.",
        )  # fmt: skip
    return _many_class_errors(subject, classes, title, fitted)


def spectrum(subject: Subject) -> Section:
    """Singular values of the Jacobian, and the Lipschitz constant."""
    from reluscope.answers.spectrum import spectrum as ask

    net = subject.net
    draws = int(np.clip(4e9 / max(1, net.n_parameters * net.n_outputs), 200, 10_000))
    found = ask(net, subject.law, draws=draws, budget=f"{5 * subject.seconds:g}s, 50000 regions", rng=subject.seed)
    median, high = found.quantile(0.5), found.quantile(0.99)
    ranks = min(found.ranks, 10)
    rows: dict[str, list[Any]] = {
        "singular value": list(range(1, ranks + 1)),
        "median": [found.quantile(0.5, k).value for k in range(1, ranks + 1)],
        "99 %": [found.quantile(0.99, k).value for k in range(1, ranks + 1)],
        "of the mean Jacobian": [float(v) for v in found.expected.singular[:ranks]],
        "at the most probable pattern": [float(v) for v in found.modal.singular[:ranks]],
    }
    histogram = found.histogram(1, bins=30)
    chart = Chart((float(histogram.edges[0]), float(histogram.edges[-1])), (0, 1.05 * float(histogram.upper.max())),
                  x_label="largest singular value of the Jacobian", y_label="probability",
                  title="Law of the local Lipschitz constant")  # fmt: skip
    chart.bars(histogram.edges[:-1], histogram.edges[1:], np.zeros(30), histogram.value)
    middle = 0.5 * (histogram.edges[1:] + histogram.edges[:-1])
    chart.whiskers(middle, histogram.lower, histogram.upper)
    lead = (
        f"A small change of the input is amplified by {median.value:.3g} at the median and, 99 % of the time, by less "
        f"than {high.upper:.3g}; no input anywhere can do worse than {float(found.bound[0]):.3g}."
    )
    return Section("spectrum", "How sensitive it is", lead, median.guarantee,
                   [Table("spectrum", "Singular values of the Jacobian.", rows, shown=10),
                    Figure(chart.svg(), "Law of the largest singular value (the local Lipschitz constant).")],
                   facts=found.to_dict() if found.ranks <= 50 else {"median": median.to_dict(), "q99": high.to_dict()},
                   headline=lead)  # fmt: skip


def local_models(subject: Subject) -> Section:
    """The local linear models of the data, when data were given."""
    title = "Which rules the data meet"
    if subject.X is None:
        return Section(
            "local", title, "No data were given. Add --data rows.csv to see the local linear models they meet."
        )
    from reluscope.local_models.unwrap import unwrap

    found = unwrap(subject.net, subject.X, subject.y, feature_names=subject.names)
    n, single = len(subject.X), int((found.count == 1).sum())
    half = int(np.searchsorted(np.cumsum(found.count), n / 2)) + 1
    lead = (
        f"The {n:,} rows meet {count(len(found), 'linear model')}; the {half:,} largest hold half of them, and "
        f"{single:,} "
        f"hold a single row each."
    )
    importance = found.importance()
    rows = importance.rows()
    columns = {key: [row[key] for row in rows] for key in rows[0]} if rows else {}
    table = found.summary(global_regions=20).to_dict()
    blocks: list[Any] = [
        Table("local_models", "The local models, by the number of rows they hold.", table, shown=8),
        Table("importance", "Importance of the inputs.", columns, shown=12),
        f"Certificate: {found.certificate}.",
    ]
    return Section("local", title, lead, "exact", blocks, facts=found.describe(), headline=lead)


def layers(subject: Subject) -> Section:
    """What each layer does to the geometry of the inputs."""
    from reluscope.representation.layers import layers as measure

    most = int(np.clip(4e9 / max(1, subject.net.n_parameters), 100, 2000))
    x = subject.draws()[0][:most] if subject.X is None else subject.X[:most]
    work = subject.net.n_inputs * sum(subject.net.widths) * len(x)
    found = measure(subject.net, x, jacobians=0 if work > 1e9 else 16, rng=subject.seed)
    shown = ("layer", "kind", "units", "activity", "always_on", "always_off", "mean_norm", "stable_rank",
             "participation_ratio", "angle_mean", "distance_factor")  # fmt: skip
    columns = {name: [getattr(row, name) for row in found.rows] for name in shown}
    first, last = found.rows[0], found.rows[-2 if len(found.rows) > 2 else -1]
    lead = (
        f"From the input to the last hidden layer the stable rank goes from {first.stable_rank:.3g} to "
        f"{last.stable_rank:.3g}"
        + (
            f" and the mean angle between inputs from {np.degrees(first.angle_mean):.0f}° to "
            f"{np.degrees(last.angle_mean):.0f}°."
            if first.angle_mean is not None and last.angle_mean is not None
            else "."
        )
    )
    blocks: list[Any] = [Table("layer_geometry", "Geometry by layer, measured on the same inputs.", columns, shown=70)]
    angles = found["angle_mean"]
    if len(found.rows) > 2 and np.isfinite(angles).all():
        chart = Chart((0, len(angles) - 1), (0, 90), x_label="layer (0 is the input)", y_label="mean angle, degrees",
                      title="Mean angle between inputs by layer", height=280)  # fmt: skip
        chart.line(np.arange(len(angles)), np.degrees(angles))
        chart.dots(np.arange(len(angles)), np.degrees(angles), "c1")
        blocks.append(Figure(chart.svg(), "Mean angle between two inputs, seen after each layer."))
        ranks = found["stable_rank"]
        chart = Chart((0, len(ranks) - 1), (0, 1.1 * float(ranks.max())), x_label="layer (0 is the input)",
                      y_label="stable rank (centred)", title="Stable rank by layer", height=280)  # fmt: skip
        chart.line(np.arange(len(ranks)), ranks)
        chart.dots(np.arange(len(ranks)), ranks, "c1")
        blocks.append(Figure(chart.svg(), "Stable rank of the cloud after each layer."))
    return Section("geometry", "What the layers do", lead, "estimate", blocks, facts={"points": len(x)})


# -- parts -----------------------------------------------------------------------------------------------------------


def _fitted_classes(subject: Subject) -> Any:
    """One Gaussian per label, or None where the target is no label."""
    from reluscope.inputs import GaussianMixture

    y = np.asarray(subject.y)
    labels, sizes = np.unique(y, return_counts=True)
    whole = y.dtype.kind in "USb" or bool((y == np.round(y)).all())
    if not whole or not 2 <= len(labels) <= 100 or sizes.min() < 2:
        return None
    return GaussianMixture.fit_classes(subject.X, y, rng=subject.seed)  # type: ignore[arg-type]


def _two_class_errors(subject: Subject, classes: Any, title: str, fitted: str) -> Section:
    """Rates of "positive when y[0] > 0", and how they move with the threshold."""
    from reluscope.answers.outputs import error_rates

    negative, positive = classes.labels
    exact = _seen(subject) <= 3
    budget = f"{5 * subject.seconds:g}s, 300000 regions" if exact else f"{subject.seconds:g}s"
    _, y = subject.draws()
    low, high = (float(v) for v in np.quantile(y[:, 0], [0.01, 0.99]))
    t = np.append(np.linspace(min(low, 0.0), max(high, 0.0), 81), 0.0)
    rates = error_rates(subject.net, classes, t, budget=budget, rng=subject.seed)
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


def _many_class_errors(subject: Subject, classes: Any, title: str, fitted: str) -> Section:
    """The probability that the largest output is not the one of the class, for each class."""
    from reluscope.answers.probability import probability

    subject.refuse_if_large("rs.probability")
    answers = [
        probability(
            subject.net, law, f"argmax != {k}", budget=f"{4 * subject.seconds / len(classes):g}s", rng=subject.seed
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


def _seen(subject: Subject) -> int:
    from reluscope.inputs import standard

    return max(c.r for c in standard(subject.law, subject.net))


def _rule(subject: Subject, slopes: FloatArray, offset: float, most: int = 4) -> str:
    order = np.argsort(-np.abs(slopes), kind="stable")[:most]
    terms = [f"{offset:.3g}", *(f"{slopes[i]:+.3g} {subject.feature(int(i))}" for i in order if slopes[i] != 0)]
    more = f" … ({int((slopes != 0).sum()) - most} more)" if int((slopes != 0).sum()) > most else ""
    return " ".join(terms) + more


def _pixel_centres(low: float, high: float) -> FloatArray:
    return low + (high - low) * (np.arange(_PIXELS) + 0.5) / _PIXELS


def _directions(subject: Subject) -> FloatArray:
    """Two directions (2, inputs), one standard deviation long: the law's widest, or what outputs feel most."""
    net, law = subject.net, subject.law
    if net.n_inputs <= 400:
        values, vectors = np.linalg.eigh(np.asarray(law.cov))
        return (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :2].T
    x = law.sample(64, rng=subject.seed)
    sd = np.sqrt(np.asarray(law.variance))
    jacobian = net.jacobian(x[:8])
    _, _, rows = np.linalg.svd(jacobian.reshape(-1, net.n_inputs) * sd, full_matrices=False)
    return rows[:2] * sd


def _curve(subject: Subject) -> Section:
    from reluscope.cells.along import along

    law = subject.law
    centre, spread = float(law.mean[0]), float(np.sqrt(law.variance[0])) or 1.0
    a, b = np.array([centre - 4 * spread]), np.array([centre + 4 * spread])
    path = along(subject.net, a, b)
    t = path.breaks(0)
    y = path.at(t, 0)[:, 0]
    x = a[0] + t * (b[0] - a[0])
    pad = 0.05 * float(np.ptp(y)) or 0.5
    chart = Chart((float(x[0]), float(x[-1])), (float(y.min()) - pad, float(y.max()) + pad),
                  x_label=subject.feature(0), y_label="y[0]", title="The network's function")  # fmt: skip
    chart.line(x, y)
    if len(x) <= 200:
        chart.dots(x[1:-1], y[1:-1], "c2")
    pieces = len(t) - 1
    answer = f"Within four standard deviations it has {count(pieces, 'affine piece')}."
    return Section("regions", "Where it switches", answer, "exact",
                   [Figure(chart.svg(), "y[0] as a function of the input, with its break points.")],
                   facts={"pieces_in_view": pieces})  # fmt: skip


def _mass_picture(
    subject: Subject, found: Any, lower: FloatArray, upper: FloatArray, labels: tuple[str, str]
) -> Figure:
    masses = np.asarray(found.masses(subject.law).value)
    heavy = np.argsort(-masses)[:_MOST_SHAPES]
    scale = 1.0 + np.log10(np.maximum(masses[heavy], 1e-6) / max(float(masses.max()), 1e-6)) / 6.0
    chart = Chart((lower[0], upper[0]), (lower[1], upper[1]), x_label=labels[0], y_label=labels[1], height=460,
                  title="The probability of each affine piece")  # fmt: skip
    chart.polygons([found.vertices(int(i)) for i in heavy], hex_colours(sequential(np.clip(scale, 0, 1))))
    x, _ = subject.draws()
    chart.dots(x[:300, 0], x[:300, 1], "ink", radius=1.1)
    caption = (
        "The same pieces coloured by their probability inside this view (yellow: most, violet: a millionth of it or "
        "less, on a logarithmic scale); dots are draws from the law."
    )
    return Figure(chart.svg(), caption)


def _output_figure(out: Any, o: int, drawn: FloatArray, q: Any, atoms: Any) -> Figure:
    low, high = float(q.value[0]), float(q.value[2])
    pad = 0.35 * (high - low) or 0.5 * abs(low) or 0.5
    t = np.linspace(low - pad, high + pad, 121)
    jumps = np.asarray(atoms.value)[:20]
    t = np.unique(np.concatenate([t, jumps, np.nextafter(jumps, -np.inf)]))
    cdf = out.cdf(t, output=o)
    chart = Chart((float(t[0]), float(t[-1])), (0, 1.02), x_label=f"y[{o}]", y_label="probability of at most this",
                  title=f"Law of y[{o}]")  # fmt: skip
    if cdf.guarantee == "confidence":
        chart.band(t, cdf.lower, cdf.upper, "c1")
    chart.line(t, cdf.value, "c1", f"cdf ({cdf.guarantee})")
    at = np.linspace(t[0], t[-1], 41)
    share = np.searchsorted(np.sort(drawn), at, side="right") / len(drawn)
    chart.dots(at, share, "c2", f"{len(drawn):,} draws")
    if len(jumps):
        chart.stems(jumps, np.asarray(atoms.mass.value)[:20], "c3", "atoms")
    what = (
        f", and its atoms (values taken with positive probability: {percent(float(np.sum(atoms.mass.value)))} in all)"
    )
    return Figure(chart.svg(), f"The law of y[{o}] and, as dots, Monte Carlo{what if len(jumps) else ''}.")


def _density_figure(out: Any, o: int, drawn: FloatArray, q: Any) -> Figure:
    low, high = float(q.value[0]), float(q.value[2])
    pad = 0.35 * (high - low) or 0.5 * abs(low) or 0.5
    t = np.linspace(low - pad, high + pad, 161)
    density = np.asarray(out.pdf(t, output=o).value)
    counts, edges = np.histogram(drawn, bins=40, range=(float(t[0]), float(t[-1])))
    bars = counts / len(drawn) / (edges[1] - edges[0])
    top = float(np.quantile(density, 0.98)) if len(density) else 1.0
    chart = Chart((float(t[0]), float(t[-1])), (0, 1.25 * max(top, float(np.quantile(bars, 0.95)), 1e-12)),
                  x_label=f"y[{o}]", y_label="density", title=f"Density of y[{o}]")  # fmt: skip
    chart.bars(edges[:-1], edges[1:], np.zeros(40), bars, "soft")
    chart.line(t, density, "c1")
    return Figure(
        chart.svg(), f"The density of y[{o}] (line; atoms are not part of it) and a histogram of draws (bars)."
    )


def _decisions(subject: Subject, y: FloatArray) -> Table:
    """How often each output is the largest, from draws, with exact binomial intervals."""
    from scipy.stats import beta

    n, k = len(y), y.shape[1]
    hits = np.bincount(y.argmax(axis=1), minlength=k)
    order = np.argsort(-hits)[:_MOST_OUTPUTS]
    low = np.nan_to_num(beta.ppf(0.005, hits, n - hits + 1), nan=0.0)
    high = np.nan_to_num(beta.ppf(0.995, hits + 1, n - hits), nan=1.0)
    columns = {"largest output": [f"y[{i}]" for i in order], "share": (hits / n)[order], "lower": low[order],
               "upper": high[order]}  # fmt: skip
    return Table(
        "decisions", f"Which output is largest, from {n:,} draws (99 % intervals).", columns, shown=_MOST_OUTPUTS
    )
