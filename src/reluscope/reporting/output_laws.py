"""The section of a report about what comes out: distribution of each output, and which output decides."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._text import bracket_parts, percent_bracket, percent_in
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL, binomial
from reluscope.reporting.blocks import Figure, Section, Table
from reluscope.reporting.charts import Chart
from reluscope.reporting.subject import MOST_LINE_INPUTS, MOST_LINE_UNITS, Subject
from reluscope.schema import Label
from reluscope.threads import OutOfTimeError, deadline

_MOST_OUTPUTS = 6
_SINGLE = "at single values"
_TALLEST = 4.0
"""A density is drawn up to its peak, unless that is so many times higher than nearly all of it."""


def outputs(subject: Subject) -> Section:
    """The law of each output, and which output wins."""
    out = subject.outputs()
    net = subject.net
    _, y = subject.draws()
    blocks: list[Any] = []
    names = ["output", "mean", "sd", "1 %", "median", "99 %", _SINGLE]
    on_data = None if subject.X is None else net(subject.X)
    if on_data is not None:
        names += ["mean on the data", "median on the data"]
    rows: dict[str, list[Any]] = {k: [] for k in names}
    shown = min(net.n_outputs, _MOST_OUTPUTS)
    mean, cov = out.mean, out.cov
    points = _curve_points(subject, out, shown)
    began, time_for = time.perf_counter(), subject.allow(0.3)
    order, constants = _order(subject)[:shown], ""  # the sentence about the first of them
    for k, o in enumerate(order):
        if k and (time.perf_counter() - began) * (k + 1) > k * time_for:
            shown = k  # another one would take too long
            break
        q = out.quantile([0.01, 0.5, 0.99], output=o)
        atoms = out.atoms(o)
        label = subject.result(o)
        constants = constants or _constants(atoms, label)
        sd = (np.sqrt(max(0.0, float(part[o, o]))) / abs(label.scale) for part in (cov.value, cov.lower, cov.upper))
        middle, *places = (_in_unit(answer, label) for answer in (mean[o], *q))
        row = [str(label), middle, supported(*sd), *places, supported(*_single(atoms))]
        if on_data is not None:
            row += [float(label.value(v(on_data[:, o]))) for v in (np.mean, np.median)]
        for column, value in zip(rows.values(), row, strict=True):
            column.append(value)
        drawn = out, o, y[:, o], q
        blocks += [_output_figure(*drawn, atoms, points, label), _density_figure(*drawn, atoms, points, label)]
    q = [f"{v:.3g}" for v in (rows["1 %"][0], rows["median"][0], rows["99 %"][0])]
    named = net.n_outputs > 1 and net.schema is not None and bool(net.schema.outputs)
    said = f"The output “{rows['output'][0]}”" if named else rows["output"][0]
    lead = (
        f"{said} has mean {rows['mean'][0]:.3g} and median {q[1]}; 98 % of the time it lies between {q[0]} and {q[2]}."
    )
    if rows[_SINGLE][0] > 0:
        lead += f" {constants}"
    if not any(rows[_SINGLE]):
        del rows[_SINGLE]
    more = _shown(shown, net.n_outputs)
    if on_data is not None:
        more += " Where mean or median differ from those of the data, the law does not match the data."
    digits = 5 if out.guarantee == "exact" else 3
    table = Table("outputs", "Moments and quantiles of the outputs.", rows, shown=_MOST_OUTPUTS, digits=digits)
    headline = lead
    if net.n_outputs > 1:
        sentence, who = _decision_table(subject)
        lead, headline = f"{sentence} {lead}", sentence
        blocks.insert(0, who)
    return Section("outputs", "What comes out", lead + more, out.guarantee, [table, *blocks],
                   facts={"mean": mean.to_dict(), "method": out.method}, headline=headline)  # fmt: skip


def _order(subject: Subject) -> list[int]:
    """Outputs in the order in which they are shown: where not all can be, those that decide most often come first."""
    n = subject.net.n_outputs
    first = decisions(subject).outputs.tolist() if n > _MOST_OUTPUTS else []
    return first + [o for o in range(n) if o not in first]


def _shown(shown: int, n: int) -> str:
    """Which outputs are shown, where not all are."""
    if shown == n:
        return ""
    be = "is" if shown == 1 else "are"
    if n > _MOST_OUTPUTS:
        which = "the one that decides" if shown == 1 else f"the {shown} that decide"
        return f" Of the {n} outputs, {which} most often {be} shown."
    return f" {'Only the first' if shown == 1 else f'The first {shown}'} of {n} outputs {be} shown."


def supported(value: float, lower: float, upper: float) -> float:
    """A number rounded to the digits that its bracket supports."""
    said = bracket_parts(value, lower, upper)
    return value if said[1] == said[2] else float(said[0])


def _in_unit(answer: Any, label: Label) -> float:
    """A value of an output in its unit, with the digits that its bracket supports."""
    value, *ends = (float(label.value(v)) for v in (answer.value, answer.lower, answer.upper))
    return supported(value, min(ends), max(ends))


def _single(atoms: Any) -> tuple[float, float, float]:
    """The probability of all single values together, and its bracket."""
    value, lower, upper = (float(np.sum(part)) for part in (atoms.mass.value, atoms.mass.lower, atoms.mass.upper))
    return value, lower, min(upper, 1.0)


def _constants(atoms: Any, label: Label) -> str:
    """The values that an output takes with positive probability, most likely first, as a sentence."""
    order = np.argsort(-np.asarray(atoms.mass.value), kind="stable")
    values = ", ".join(f"{float(label.value(v)):.3g}" for v in np.asarray(atoms.value)[order[:3]])
    p = percent_in(*_single(atoms))
    if len(order) == 1:
        return f"With probability {p} it has one single value, {values}."
    more = "" if len(order) <= 3 else ", ..."
    return f"With probability {p} it has one of {len(order):,} single values ({values}{more})."


def _curve_points(subject: Subject, out: Any, curves: int) -> int:
    """Points per curve (11 to 121) that the time of a report allows, from a first question to the exact answer."""
    if out.guarantee == "confidence":
        return 121  # lines answer all points at once
    out.cdf([0.0])  # compiles
    begin = time.perf_counter()
    out.cdf(np.quantile(subject.draws()[1][:, 0], [0.3, 0.5, 0.7]))
    each = (time.perf_counter() - begin) / 3
    return int(np.clip(subject.allow(0.25) / (2 * curves * max(each, 1e-6)), 11, 121))


def _output_figure(out: Any, o: int, drawn: FloatArray, q: Any, atoms: Any, points: int, label: Label) -> Figure:
    low, high = float(q.value[0]), float(q.value[2])
    pad = 0.35 * (high - low) or 0.5 * abs(low) or 0.5
    t = np.linspace(low - pad, high + pad, points)
    jumps = np.asarray(atoms.value)[:20]
    t = np.unique(np.concatenate([t, jumps, np.nextafter(jumps, -np.inf)]))
    cdf = out.cdf(t, output=o)
    chart = Chart((float(t[0]), float(t[-1])), (0, 1.02), x_label=label, y_label="probability of at most this",
                  title=f"Distribution of {label.name}")  # fmt: skip
    if cdf.guarantee == "confidence":
        chart.band(t, cdf.lower, cdf.upper, "c1")
    chart.line(t, cdf.value, "c1", f"cdf ({cdf.guarantee})")
    at = np.linspace(t[0], t[-1], 41)
    share = np.searchsorted(np.sort(drawn), at, side="right") / len(drawn)
    chart.dots(at, share, "c2", f"{len(drawn):,} draws")
    if len(jumps):
        chart.stems(jumps, np.asarray(atoms.mass.value)[:20], "c3", "single values")
    what = f"; stems: single values with a probability of their own ({percent_in(*_single(atoms))} in all)"
    return Figure(chart.svg(), f"The distribution of {label.name}; dots: counted draws{what if len(jumps) else ''}.")


def _density_figure(out: Any, o: int, drawn: FloatArray, q: Any, atoms: Any, points: int, label: Label) -> Figure:
    low, high = float(q.value[0]), float(q.value[2])
    pad = 0.35 * (high - low) or 0.5 * abs(low) or 0.5
    t = np.linspace(low - pad, high + pad, points)
    density = np.zeros(0)
    with suppress(InputError):  # where no density is known, draws say what there is to say
        density = np.asarray(out.pdf(t, output=o).value)
    jumps = np.asarray(atoms.value)[np.argsort(-np.asarray(atoms.mass.value))[:20]]
    between = drawn[~np.isclose(drawn[:, None], jumps, rtol=1e-9, atol=1e-9 * (t[-1] - t[0])).any(axis=1)]
    counts, edges = np.histogram(between, bins=40, range=(float(t[0]), float(t[-1])))
    bars = counts / len(drawn) / (edges[1] - edges[0])
    top = float(np.quantile(density, 0.98)) if len(density) else 0.0
    top = 1.25 * max(top, float(np.quantile(bars, 0.95)), 1e-12)
    peak = 1.05 * max(float(density.max(initial=0.0)), float(bars.max()))
    chart = Chart((float(t[0]), float(t[-1])), (0, peak if top < peak < _TALLEST * top else top),
                  x_label=label, y_label="density", title=f"Density of {label.name}")  # fmt: skip
    chart.bars(edges[:-1], edges[1:], np.zeros(40), bars, "soft")
    what = f"A histogram of {len(drawn):,} draws of {label.name}"
    if len(density):
        chart.line(t, density, "c1", f"density ({out.guarantee})")
        chart.legend("soft", f"{len(drawn):,} draws")
        what = f"The density of {label.name} and a histogram of draws"
    single = ", without single values" if len(atoms.value) else ""
    return Figure(chart.svg(), f"{what}{single}.")


@dataclass(frozen=True, eq=False)
class Decisions:
    """How often each output wins, the most frequent first: shares with their ends, and how they were found."""

    word: str
    outputs: npt.NDArray[np.intp]
    share: FloatArray
    lower: FloatArray
    upper: FloatArray
    how: str


def decisions(subject: Subject) -> Decisions:
    """Who wins, computed once: asked as events are, so that both say the same; of a large network, from draws."""
    if "decisions" not in subject.cache:
        subject.cache["decisions"] = _decided(subject, subject.draws()[1])
    return subject.cache["decisions"]


def _decided(subject: Subject, y: FloatArray) -> Decisions:
    word = subject.deciding
    smallest, name = word == "smallest", "argmin" if word == "smallest" else "argmax"
    n, k = len(y), y.shape[1]
    hits = np.bincount(y.argmin(axis=1) if smallest else y.argmax(axis=1), minlength=k)
    order = np.argsort(-hits, kind="stable")[:_MOST_OUTPUTS]
    share, (low, high) = hits / n, binomial(hits, n)
    how = f"from {n:,} draws ({100 * DEFAULT_LEVEL:g} % intervals)"
    if subject.net.n_units <= MOST_LINE_UNITS and subject.net.n_inputs <= MOST_LINE_INPUTS:
        whole = subject.allow(0.1)
        ends = subject.budget.elapsed() + whole
        kinds: dict[int, str] = {}
        for i in order:  # the most frequent first; those that there is no time for keep their share of the draws
            kind = "draws"
            if subject.budget.elapsed() <= ends or _asked(subject, name, int(i)):
                with suppress(OutOfTimeError), deadline(lambda: subject.budget.elapsed() > ends + whole):
                    share[i], low[i], high[i], kind = _wins(subject, name, int(i), whole / len(order))
            kinds[int(i)] = kind
        for i in kinds:  # one of the outputs always wins: what is proved of all others holds for the last one, too
            others = [j for j in range(k) if j != i]
            if {kinds.get(j) for j in others} <= {"exact", "sound"}:
                least, most = _rest(high[others]), _rest(low[others])
                if most - least < high[i] - low[i] or least == 1.0:
                    share[i], low[i], high[i] = np.clip(_rest(share[others]), least, most), least, most
                    kinds[i] = "sound" if "sound" in {kinds[j] for j in others} else "exact"
        for i in kinds:  # nor can it be more than what is proved of others leaves
            high[i] = min(high[i], _rest(low[[j for j in kinds if j != i and kinds[j] in ("exact", "sound")]]))
            low[i], share[i] = min(low[i], high[i]), min(share[i], high[i])
        order = order[np.argsort(-share[order], kind="stable")]
        words = {"exact": "exactly", "sound": "with guaranteed bounds"}
        same = set(kinds.values())
        how = words.get(next(iter(same)), "") if len(same) == 1 else ""
        how = how or f"with {100 * DEFAULT_LEVEL:g} % confidence"
    return Decisions(word, order, share[order], low[order], high[order], how)


def _rest(shares: FloatArray) -> float:
    """What shares of others leave."""
    return max(0.0, 1.0 - float(shares.sum()))


def _decision_table(subject: Subject) -> tuple[str, Table]:
    found = decisions(subject)
    names = [subject.output(int(i)) for i in found.outputs]
    columns = {f"{found.word} output": names, "share": found.share, "lower": found.lower, "upper": found.upper}
    said = numbers(found.share, found.lower, found.upper)
    parts = [f"{subject.output(i)} ({said[k]})" for k, i in enumerate(found.outputs.tolist()) if found.share[k] > 0]
    sentence = f"The {found.word} output is most often {', '.join(parts[:4])}."
    if found.lower[0] == 1.0:
        sentence = f"The {found.word} output is always {names[0]}."
    caption = f"Which output is {found.word}, {found.how}. {subject.assumption}".strip()
    return sentence, Table("decisions", caption, columns, shown=_MOST_OUTPUTS)


def numbers(share: FloatArray, lower: FloatArray, upper: FloatArray) -> list[str]:
    """Shares as percentages with the digits that their intervals support; two that make a whole have equally many."""
    said = [percent_bracket(*map(float, ends))[0] for ends in zip(share, lower, upper, strict=True)]
    two = np.flatnonzero(share > 0)
    if len(two) == 2 and abs(float(share.sum()) - 1.0) < 1e-3 and all(said[k][0].isdigit() for k in two):
        most = max(len(said[k].split()[0].partition(".")[2]) for k in two)
        for k in two.tolist():
            said[k] = f"{100 * float(share[k]):.{most}f} %"
    return said


def _asked(subject: Subject, name: str, output: int) -> bool:
    """Whether the probability that this output wins is known already."""
    return any(f"{name} {op} {output}" in subject.cache.get("events", {}) for op in ("==", "!="))


def _wins(subject: Subject, name: str, output: int, seconds: float) -> tuple[float, float, float, str]:
    """Probability that this output wins, with its ends and its guarantee; from the opposite event if that was asked."""
    opposite = f"{name} != {output}"
    if opposite in subject.events:
        found = subject.probability(opposite, seconds)
        return 1.0 - found.value, 1.0 - found.upper, 1.0 - found.lower, found.guarantee
    found = subject.probability(f"{name} == {output}", seconds)
    return found.value, found.lower, found.upper, found.guarantee
