"""The section of a report about responses: how well the model does, on training rows and on test rows beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._text import percent
from reluscope.reporting.blocks import Figure, Section, Table
from reluscope.reporting.charts import Chart
from reluscope.reporting.subject import Subject

_TITLE = "How well it does"
_SHOWN = ("group", "rows", "rate", "pd", "auc", "ks", "brier", "slope")
_TESTED = ("test_rows", "test_rate", "test_pd", "test_auc", "test_ks", "test_brier", "test_slope", "gap")


def outcome(subject: Subject) -> Section:
    """Scores on the rows given and on test rows; for two classes also calibration, and what has drifted."""
    if subject.X is None or subject.y is None:
        ask = (
            "How well does it do on training and test rows? Give X and y, X_test and y_test (--data, --target, --test)."
        )
        return Section("outcome", _TITLE, ask=ask)
    u = subject.unwrapped()
    if u.task == "none":
        return Section("outcome", _TITLE, ask="How well does it do? Give responses, y.")
    tested = subject.X_test is not None and subject.y_test is not None
    if u.task == "binary":
        return _two_classes(subject, u, tested)
    word = {"r2": "R²", "accuracy": "accuracy"}[u.metric]
    columns: dict[str, list[Any]] = {"rows": ["given"], "count": [len(subject.X)], word: [u.score]}
    say = percent if u.metric == "accuracy" else "{:.3f}".format
    lead = f"The {word} on the {len(subject.X):,} rows is {say(u.score)}"
    if subject.X_test is not None:
        found = u.evaluate(subject.X_test, subject.y_test if tested else None)
        columns["in regions without data"] = [0.0, found.unseen_share]
        columns["rows"] = ["training", "test"]
        columns["count"].append(len(subject.X_test))
        columns[word].append(found.score if tested else None)
        if tested:
            lead += f", on the {len(subject.X_test):,} test rows {say(found.score)}"
    caption = "The rows given." if subject.X_test is None else "Training rows and test rows."
    table = Table("scores", caption, columns)
    facts = {"metric": u.metric, "score": columns[word][0], "test_score": columns[word][-1] if tested else None}
    return Section("outcome", _TITLE, f"{lead}.", "", [table], facts=facts, headline=f"{lead}.")


def _two_classes(subject: Subject, u: Any, tested: bool) -> Section:
    """AUC, KS, Brier score and calibration of the score; by region for the largest; drift of the test rows."""
    found = u.outcome(subject.X_test, subject.y_test, regions=8) if tested else u.outcome(regions=8)
    lines = found.rows()
    shown = [k for k in (*_SHOWN, *(_TESTED if tested else ())) if k in lines[0]]
    words = {"rate": "observed rate", "pd": "mean probability", "auc": "AUC", "ks": "KS", "brier": "Brier"}
    columns = {_head(k, words): [line[k] for line in lines] for k in shown}
    whole = lines[0]
    lead = f"AUC {whole['auc']:.3f} on the {whole['rows']:,} rows given"
    lead += f", {whole['test_auc']:.3f} on {whole['test_rows']:,} test rows" if tested else ""
    name = str(u.response.classes[1])
    lead += (
        f"; it gives class {name} a probability of {percent(whole['test_pd' if tested else 'pd'])} on average, and "
        f"{percent(whole['test_rate' if tested else 'rate'])} of the {'test ' if tested else ''}rows are of that class."
    )
    caption = "All rows and the largest regions; slope is that of the calibration line, 1 when probabilities are right."
    blocks: list[Any] = [Table("outcome", caption, columns, shown=12), _calibration(found, tested, name)]
    facts: dict[str, Any] = {"groups": lines, "cutoff": found.cutoff}
    if subject.X_test is not None:
        moved = u.drift(subject.X_test)
        sparse = np.isnan(moved.regions)  # no region has rows enough
        regions = None if sparse else moved.regions
        facts["drift"] = {"output": moved.output, "regions": regions, "features": moved.features}
        rows = [row for row in moved.rows() if not np.isnan(row["psi"])]
        about = (
            "Population stability index of the test rows against the rows given: above 0.25 is a large change. Without "
            f"drift it stays below the limit with probability {moved.level:g}, each by itself."
        )
        blocks.append(Table("drift", about, {k: [r[k] for r in rows] for k in ("what", "psi", "limit")}, shown=8))
    return Section("outcome", _TITLE, lead, "", blocks, facts=facts, headline=lead)


def _head(key: str, words: dict[str, str]) -> str:
    short = key.removeprefix("test_")
    return f"{words.get(short, short)}{', test' if short != key else ''}"


def _calibration(found: Any, tested: bool, name: str) -> Figure:
    """Observed rate against mean probability in tenths of the rows."""
    rows = found.calibration("all", test=tested)
    score, rate, low, high = (np.array([line[k] for line in rows]) for k in ("pd", "rate", "lower", "upper"))
    top = 1.08 * float(max(score.max(), high.max()))
    chart = Chart((0.0, top), (0.0, top), x_label=f"mean probability of class {name}", y_label="observed rate",
                  width=460, height=420, title="Calibration")  # fmt: skip
    chart.line([0.0, top], [0.0, top], "soft", "perfect")
    chart.whiskers(score, low, high)
    chart.dots(score, rate, "c1", "test rows" if tested else "rows", 3.5)
    about = f"Tenths of the {'test ' if tested else ''}rows by their probability: observed rate with its 99 % interval."
    return Figure(chart.svg(), about)
