"""The questions of a report, one function each: ask the library, say the answer in words, show a table or figure."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._text import bracket_parts, count, percent, percent_bracket, percent_in
from reluscope.intervals import binomial
from reluscope.reporting.blocks import ASK_FOR_EVENTS, Figure, Section, Table
from reluscope.reporting.charts import Chart
from reluscope.reporting.local_pictures import pictures
from reluscope.reporting.output_laws import supported
from reluscope.reporting.subject import MOST_LINE_INPUTS, Subject

_MOST_NUMBERS = 200_000
"""Coefficients that are written down."""

_FEW_COVERED = 0.5
"""With more left over, the linear models that were found say little."""

_ROUNDING = 1e-13
"""Singular values below this share of the largest are rounding errors of 0."""

_MOST_TERMS = 4
"""Terms of a linear model that are written in a table."""

_MOST_RANKS = 50
"""Singular values that are written down one by one."""


def network(subject: Subject) -> Section:
    """What the network is."""
    net = subject.net
    rows = net.describe()
    columns = {"node" if key == "from" else key: [row.get(key) for row in rows] for key in rows[0]}
    switching = int((net.pieces > 1).sum())
    answer = (
        f"It has {count(net.n_inputs, 'input')}, {count(switching, 'unit')} that can switch in "
        f"{count(len(net.hidden), 'hidden layer')}, {count(net.n_outputs, 'output')} and {net.n_parameters:,} "
        "parameters. On each region of its input space it is one linear model."
    )
    notes = [f"Note: {note}" for note in net.notes]
    return Section(
        "network",
        "What the network is",
        answer,
        blocks=[
            Table(
                "layers",
                "Its layers, and nodes of the file." if "node" in columns else "Its layers.",
                columns,
                shown=40,
            ),
            *notes,
        ],
        facts={"network": repr(net), "inputs": net.n_inputs, "outputs": net.n_outputs, "units": switching},
    )


def linear_models(subject: Subject) -> Section:
    """How many linear models matter, and which."""
    found = subject.linear_models()
    top = found.top(min(10, len(found)))
    total = np.cumsum(found.masses.value)
    most = int(np.searchsorted(total, 0.99 * min(1.0, total[-1]))) + 1 if len(total) else 0
    complete = found.remainder == 0
    entropy = found.entropy
    masses = found.masses  # by their values; one further down may have a higher upper bound
    likeliest = percent_in(float(masses.value[0]), float(np.max(masses.lower)), float(np.max(masses.upper)))
    if complete:
        lead = (
            f"It applies {count(found.support_size, 'linear model')} here; {most:,} of them cover 99 % of the "
            f"inputs, the most likely one {likeliest}."
        )
    else:
        covered = percent(max(0.0, 1.0 - found.remainder), rounding=ROUND_FLOOR)
        if found.remainder > _FEW_COVERED:
            # A bound for all of them together says nothing beside one of them that may cover more.
            told = 1.0 - found.remainder > float(np.max(masses.upper))
            part = f"cover at least {covered} of the inputs" if told else "are a small part of them"
            lead = (
                f"It applies very many linear models: the {len(found):,} that were drawn {part}; the most likely one "
                f"covers {likeliest}."
            )
        else:
            lead = (
                f"We found {count(len(found), 'linear model')} that cover at least {covered} of the inputs; the most "
                f"likely one covers {likeliest}."
            )
    answer = f"{lead} {_entropy(entropy)}".strip()
    columns: dict[str, Any] = {"probability": top.mass.value, "lower": top.mass.lower, "upper": top.mass.upper}
    shown = subject.most_decided()
    rules = [_rule(subject, top.C[i], top.d[i], shown) for i in range(len(top))]
    columns["linear model"] = rules
    caption = "The most probable linear models" + (
        "; the terms that move the output most come first." if subject.net.n_inputs > _MOST_TERMS else "."
    )
    if subject.net.n_outputs > 1:
        caption += f" Shown: the output {subject.result(shown).name}."
    if len(set(rules)) < len(rules):
        caption += " Equal rows are different regions, each counted for itself."
    caption += " All coefficients are in coefficients.csv."
    blocks: list[Any] = [Table("linear_models", caption, columns), _coefficients(subject, found)]
    if len(total) > 1 and found.remainder <= _FEW_COVERED:
        most = len(total)
        chart = Chart(
            (0, np.log10(most) or 1), (0, 1), x_label="number of linear models (most probable first)", x_powers=True,
            y_label="share of inputs covered", title="Share of inputs that the most probable linear models cover",
        )  # fmt: skip
        at = np.unique(np.geomspace(1, most, 200).astype(int))
        chart.line(np.log10(at), total[at - 1], step=True)
        blocks.append(Figure(chart.svg(), "The share of inputs that the most probable linear models cover together."))
    return Section(
        "linear_models", "Which linear models it applies", answer, found.guarantee, blocks,
        facts={"linear_models": found.support_size, "remainder": found.remainder, "entropy_bits": entropy.to_dict(),
               "top_mass": float(found.masses.value[0]) if len(found) else None, "method": found.method},
        headline=lead,
    )  # fmt: skip


_FEW_DRAWS = 200
"""Draws at which the units of a network that is too large for more are looked at."""

_NEVER = 1e-6
"""Below this probability a unit counts as always off (or, of being off, as always on)."""

_MOST_NAMED = 20_000
"""Units up to which each is listed with its place in the loaded model."""


def units(subject: Subject) -> Section:
    """Which units are dead, always on, or undecided."""
    net = subject.net
    if subject.too_large:
        seen = net.pattern(subject.draws()[0][:_FEW_DRAWS]) > 0
        on, kind = seen.mean(axis=0), "estimate"
        low, high = binomial(seen.sum(axis=0), len(seen))
    else:
        marginals = subject.linear_models().marginals
        kind = marginals.guarantee
        on = 1.0 - np.asarray(marginals.value[:, 0])
        low, high = 1.0 - np.asarray(marginals.upper[:, 0]), 1.0 - np.asarray(marginals.lower[:, 0])
    switching = net.pieces > 1
    layer = np.repeat(np.arange(len(net.hidden)), [h.width for h in net.hidden])
    dead, always = switching & (high <= _NEVER), switching & (low >= 1 - _NEVER)
    both = switching & (low > _NEVER) & (high < 1 - _NEVER)
    open_ = switching & ~(dead | always | both)
    kinds = {"always off": dead, "always on": always, "switching": both, "not known": open_}
    if not open_.any():
        del kinds["not known"]
    rows: dict[str, list[Any]] = {"layer": [], "units": [], **{name: [] for name in kinds}, "mean share on": []}
    for k in range(len(net.hidden)):
        here = (layer == k) & switching
        if here.any():
            row = (k, int(here.sum()), *(int((here & of).sum()) for of in kinds.values()), float(on[here].mean()))
            for column, value in zip(rows.values(), row, strict=True):
                column.append(value)
    n, off, on_always, left = (int(of.sum()) for of in (switching, dead, always, both))
    answer = _units_said(n, off, on_always, left)
    chart = Chart((-0.02, 1.02), (-0.5, len(net.hidden) - 0.5), x_label="probability of being on",
                  y_label="hidden layer", y_names=[str(k) for k in range(len(net.hidden))],
                  height=max(210, 80 + 34 * min(len(rows["layer"]), 12)), title="Activity of each unit")  # fmt: skip
    for k in rows["layer"]:
        here = (layer == k) & switching
        p = np.sort(on[here])[:: max(1, int(here.sum()) // 400)]
        chart.dots(p, np.full(len(p), float(k)) + 0.5 * (np.arange(len(p)) % 7 - 3) / 8, "c1", radius=3.0)
    table = Table("units_by_layer", "Activity by layer.", rows, shown=80, digits=3)
    named = any(h.origin is not None for h in net.hidden) and net.n_units <= _MOST_NAMED
    whole: dict[str, Any] = {"unit": [net.unit_name(i) for i in range(net.n_units)]} if named else {}
    whole |= {"layer": layer, "probability on": on, "lower": low, "upper": high}
    every = Table("units", "Every unit.", whole, shown=0)
    blocks: list[Any] = [
        table,
        Figure(chart.svg(), "Each dot is a unit: how often it is on. Up and down within a layer says nothing."),
        every,
    ]
    return Section("units", "Which units work", answer, kind, blocks if rows["layer"] else [],
                   facts={"never_on": off, "always_on": on_always, "switching": n, "seen_both_ways": left})  # fmt: skip


def _units_said(n: int, off: int, always: int, both: int) -> str:
    """How many of n units are known to switch, and what is known of the others."""
    known, rest = off + always, n - off - always - both
    if both == n:
        return f"All of the {count(n, 'unit')} switch on and off."
    said = f"{both:,} of {count(n, 'unit')} {'switches' if both == 1 else 'switch'} on and off"
    if known or not rest:
        be = "is" if always == 1 else "are"
        said += f"; {always:,} {be} always on, {off:,} always off (but for at most one input in a million)"
    if rest:
        which = f"the other {rest:,}" if not known else f"{rest:,}"
        said += f"; of {which} it is not known: {'it was' if rest == 1 else 'they were'} rarely or never seen to switch"
    return said + "."


def events(subject: Subject) -> Section:
    """The probabilities of the events asked for."""
    if not subject.events:
        return Section("events", "How likely are your events", ask=ASK_FOR_EVENTS)
    names = ["event", "probability", "lower", "upper", "guarantee", "how"]
    if subject.X is not None:
        names.insert(1, "on the data")
    rows: dict[str, list[Any]] = {k: [] for k in names}
    facts, kinds, said = [], [], []
    for text in subject.events:
        answer = subject.probability(text, subject.allow(0.15))
        kind = answer.guarantee + (f" {100 * answer.level:g} %" if answer.level else "")
        row = [str(text), answer.value, answer.lower, answer.upper, kind, answer.method]
        sentence = _likely(str(text), answer)
        share = subject.share_of_rows(text)
        if share is not None:
            row.insert(1, share)
            sentence = f"{text} holds for {percent(share)} of the rows given; under the law, {sentence}"
        for column, value in zip(rows.values(), row, strict=True):
            column.append(value)
        facts.append({"event": str(text)} | answer.to_dict())
        kinds.append(answer.guarantee)
        said.append(sentence + ".")
    weakest = next((k for k in ("confidence", "sound", "exact") if k in kinds), "")
    lead = " ".join(said)
    return Section("events", "How likely are your events", lead, weakest,
                   [Table("events", "Probabilities of the events.", rows, shown=40)],
                   facts={"events": facts}, headline=lead)  # fmt: skip


def _likely(text: str, answer: Any) -> str:
    at, low, high = percent_bracket(float(answer.value), float(answer.lower), float(answer.upper))
    more = "" if not low or at.startswith("at ") else f", between {low} and {high}"
    return f"{text} has probability {at}{more}"


def spectrum(subject: Subject) -> Section:
    """Singular values of the Jacobian, and the Lipschitz constant."""
    from reluscope.answers.spectrum import spectrum as ask

    net = subject.net
    draws = int(np.clip(4e9 / max(1, net.n_parameters * net.n_outputs), 200, 10_000))
    budget = f"{subject.allow(0.1):g}s, 50000 regions"
    found = ask(net, subject.law, draws=draws, budget=budget, rng=subject.seed)
    median, high = found.quantile(0.5), found.quantile(0.99)
    facts: dict[str, Any] = {"median": median.to_dict(), "q99": high.to_dict()}
    if found.ranks <= _MOST_RANKS:
        facts = found.to_dict()
        subject.keep(None, found, draws=draws, budget=budget)
    ranks = min(found.ranks, 10)
    noise = _ROUNDING * float(high.value)

    def clean(values: Any) -> list[float]:
        return [0.0 if float(v) <= noise else float(v) for v in values]

    rows: dict[str, list[Any]] = {
        "singular value": list(range(ranks)),
        "median": clean(_said(found.quantile(0.5, k)) for k in range(ranks)),
        "99 %": clean(_said(found.quantile(0.99, k)) for k in range(ranks)),
        "of the mean Jacobian": clean(found.expected.singular[:ranks]),
        "in the most probable region": clean(found.modal.singular[:ranks]),
    }
    edges, mass = found.histogram(bins=30)
    chart = Chart((float(edges[0]), float(edges[-1])), (0, 1.05 * float(mass.upper.max())),
                  x_label="largest singular value of the Jacobian", y_label="probability",
                  title="Distribution of the local Lipschitz constant")  # fmt: skip
    chart.bars(edges[:-1], edges[1:], np.zeros(30), mass.value)
    middle = 0.5 * (edges[1:] + edges[:-1])
    chart.whiskers(middle, mass.lower, mass.upper)
    bars = " Strokes: confidence intervals." if median.guarantee == "confidence" else ""
    lead = (
        f"A small change of the input is amplified by {_said(median):.3g} at the median and, 99 % of the time, by at "
        f"most {_said(high):.3g}."
    )
    note = _mixed_units(subject)
    return Section("spectrum", "How sensitive it is", lead + note, median.guarantee,
                   [Table("spectrum", "Singular values of the Jacobian, the largest first.", rows, shown=10, digits=3),
                    Figure(chart.svg(), "Distribution of the largest singular value: by how much at most the network "
                           f"amplifies a small change of the input.{bars}")],
                   facts=facts, headline=lead)  # fmt: skip


def _said(answer: Any) -> float:
    return supported(float(answer.value), float(answer.lower), float(answer.upper))


def local_models(subject: Subject) -> Section:
    """The local linear models of the data, when data were given."""
    title = "Which linear models apply to the data"
    if subject.X is None:
        return Section("local", title, ask="Which linear models apply to which rows of data? Give rows, X (--data).")
    found = subject.unwrapped()
    n, single = len(subject.X), int((found.count == 1).sum())
    half = int(np.searchsorted(np.cumsum(found.count), n / 2)) + 1
    lead = (
        f"The {n:,} rows lie in {count(len(found), 'region')}, each with its linear model; half of the rows lie in the "
        f"{half:,} largest regions, and {count(single, 'region')} hold a single row each."
    )
    shown = _explained(subject)
    rows = found.importance(output=shown).rows()
    columns = {key: [row[key] for row in rows] for key in rows[0]} if rows else {}
    table = found.summary(global_regions=20).to_dict()
    portraits = list(found.portraits(8))
    who = {"region": [p.region for p in portraits], "rows": [p.count for p in portraits],
           "share": [p.count / n for p in portraits], "rows differ by": [str(p) for p in portraits]}  # fmt: skip
    blocks: list[Any] = [
        *pictures(subject, found, shown),
        Table("portraits", "The largest regions: how their rows differ from the average row.", who),
        Table(
            "local_models",
            "The linear models, by number of rows. Local scores: on the rows of the region; global ones: on all rows.",
            table,
            shown=8,
            wide=list(table).index("intercept") + 1 if "intercept" in table else 8,
        ),
        Table(
            "importance", f"Share of the variance of {subject.result(shown).name} that is due to each input.", columns
        ),
        f"Regions without data: {found.coverage(budget=f'{subject.allow(0.05):g}s', rng=subject.seed)}.",
        f"Check: {found.certificate}.",
    ]
    return Section("local", title, lead, "exact", blocks, facts=found.describe(), headline=lead)


def _explained(subject: Subject) -> int:
    """The output that pictures of the data are about: the one that the first event names, else the first."""
    from reluscope.events import event

    if not subject.events:
        return 0
    net, names = subject.net, subject.names
    placed = event(subject.events[0], net.n_inputs, net.n_outputs, net=net, law=subject.law, names=names)
    weight = sum((np.abs(case.G).sum(axis=0) for case in placed.cases), np.zeros(net.n_outputs))
    return int(np.argmax(weight))


def layers(subject: Subject) -> Section:
    """What each layer does to the geometry of the inputs."""
    from reluscope.representation.layers import layers as measure

    most = int(np.clip(4e9 / max(1, subject.net.n_parameters), 100, 2000))
    x = subject.draws()[0][:most] if subject.X is None else subject.X[:most]
    work = subject.net.n_inputs * sum(subject.net.widths) * len(x)
    found = measure(subject.net, x, jacobians=0 if work > 1e9 else 16, rng=subject.seed)
    shown = {"layer": "layer", "kind": "kind", "units": "units", "mean norm": "mean_norm",
             "stable rank": "stable_rank",
             "participation ratio": "participation_ratio", "mean angle, degrees": "angle_mean",
             "distance factor": "distance_factor"}  # fmt: skip
    columns = {name: [getattr(row, key) for row in found.rows] for name, key in shown.items()}
    columns["mean angle, degrees"] = [
        None if v is None else float(np.degrees(v)) for v in columns["mean angle, degrees"]
    ]
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
    what = (
        f"Measured on {count(len(x), 'input')}. The stable rank and the participation ratio say in how many directions "
        "the values of a layer vary; the distance factor, by how much distances between inputs grow."
    )
    blocks: list[Any] = [Table("layer_geometry", what, columns, shown=70, digits=3)]
    angles = found["angle_mean"]
    if len(found.rows) > 2 and np.isfinite(angles).all():
        top = 1.1 * float(np.degrees(angles.max())) or 1.0
        chart = Chart((-1.1, len(angles) - 1.9), (0, top), x_label="layer (−1: the input)",
                      y_label="mean angle, degrees", title="Mean angle between inputs by layer",
                      height=280)  # fmt: skip
        chart.line(np.arange(len(angles)) - 1, np.degrees(angles))
        chart.dots(np.arange(len(angles)) - 1, np.degrees(angles), "c1")
        blocks.append(Figure(chart.svg(), "Mean angle between two inputs, seen after each layer."))
        ranks = found["stable_rank"]
        chart = Chart((-1.1, len(ranks) - 1.9), (0, 1.1 * float(ranks.max())), x_label="layer (−1: the input)",
                      y_label="stable rank (centred)", title="Stable rank by layer", height=280)  # fmt: skip
        chart.line(np.arange(len(ranks)) - 1, ranks)
        chart.dots(np.arange(len(ranks)) - 1, ranks, "c1")
        blocks.append(Figure(chart.svg(), "Stable rank of the inputs after each layer."))
    return Section(
        "geometry", "What the layers do", lead + _mixed_units(subject), "estimate", blocks, facts={"points": len(x)}
    )


def _entropy(bits: Any) -> str:
    """The entropy in words; what was listed only in part gives no value, but a bound."""
    _, low, high = bracket_parts(float(bits.value), float(bits.lower), float(bits.upper))
    what = "The entropy of their probabilities is"
    if low == high:
        return f"{what} {bits.value:.3g} bits."
    if bits.upper - bits.lower > 0.5 * bits.upper:
        least = math.floor(10.0 * float(bits.lower)) / 10.0
        return f"{what} at least {least:.3g} bits." if least > 0 else ""
    return f"{what} between {low} and {high} bits."


def _coefficients(subject: Subject, found: Any) -> Table:
    """All coefficients of the most probable linear models, for the file beside the page."""
    net = subject.net
    each = net.n_outputs * (net.n_inputs + 1)
    top = found.top(min(len(found), int(np.clip(_MOST_NUMBERS // each, 10, 1000))))
    C, d = subject.in_units(top.C, top.d)
    columns: dict[str, Any] = {"probability": top.mass.value, "lower": top.mass.lower, "upper": top.mass.upper}
    for o in range(net.n_outputs):
        name = subject.result(o).name
        columns[f"{name}: constant"] = d[:, o]
        columns |= {f"{name}: {subject.feature(i)}": C[:, o, i] for i in range(net.n_inputs)}
    return Table("coefficients", "All coefficients.", columns, shown=0)


# -- parts -----------------------------------------------------------------------------------------------------------


def _rule(subject: Subject, C: FloatArray, d: FloatArray, output: int, most: int = _MOST_TERMS) -> str:
    """`y[0] = d + C_i x_i + ...`, the terms that move the output most first; minus signs as people print them."""
    spread = np.abs(C[output]) * _spread(subject)
    slopes, offset = (v[output] for v in subject.in_units(C, d))
    order = [int(i) for i in np.argsort(-spread, kind="stable") if slopes[i] != 0]
    order = order if subject.net.n_inputs > most else sorted(order)
    terms = [f"{'−' if slopes[i] < 0 else '+'} {abs(slopes[i]):.3g} {subject.feature(i)}" for i in order[:most]]
    more = f" … ({len(order) - most} more)" if len(order) > most else ""
    return " ".join([f"{subject.result(output).name} = {offset:.3g}".replace("-", "−", 1), *terms]) + more


def _spread(subject: Subject) -> FloatArray:
    """Standard deviations of the inputs; of many inputs without their covariance."""
    law = subject.law
    if len(getattr(law, "scores", law).components) > 1 and subject.net.n_inputs <= MOST_LINE_INPUTS:
        return np.sqrt(np.maximum(np.diag(subject.moments()[1]), 0.0))
    return np.sqrt(np.asarray(law.variance))


def _mixed_units(subject: Subject) -> str:
    """A caution where lengths add up inputs of very different scales."""
    sd = _spread(subject)
    sd = sd[sd > 0]
    if not len(sd) or sd.max() <= 100 * sd.min():
        return ""
    return (
        f" The inputs' standard deviations range from {sd.min():.3g} to {sd.max():.3g}: lengths and angles mix their "
        "units, and say more for a network with scaled inputs."
    )
