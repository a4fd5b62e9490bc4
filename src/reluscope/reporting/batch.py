"""The overview page of a batch: one line for each question, in a table that a little script sorts and filters."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from reluscope._extras import require
from reluscope._text import count, percent_in
from reluscope._version import __version__


class Line(NamedTuple):
    """What the page shows of a row; numbers beside texts are what the table is sorted by."""

    row: int
    network: str
    network_title: str
    question: str
    question_title: str
    verdict: str
    probability: str
    value: float | None
    bracket: str
    width: float | None
    guarantee: str
    status: str
    detail: str
    seconds: float | None
    link: str


def overview(batch: Any) -> str:
    """The page of a `Batch`, self-contained; links to reports are relative to the folder of the results."""
    jinja = require("jinja2", "report")
    folder = files("reluscope.reporting")
    style = folder.joinpath("page.html").read_text(encoding="utf-8").split("<style>")[1].split("</style>")[0]
    template = folder.joinpath("batch.html").read_text(encoding="utf-8")
    page = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined).from_string(template)
    lines = [_line(batch, row) for row in batch]
    return str(
        page.render(
            style=style,
            title=_title(batch),
            batch=batch,
            counts=sorted(batch.counts.items(), key=lambda item: -item[1]),
            verdicts=sorted(batch.verdicts.items(), key=lambda item: -item[1]),
            lines=lines,
            laws=sorted({row.law for row in batch}),
            versions=", ".join(sorted({row.version for row in batch if row.version})) or __version__,
            has=lambda name: any(getattr(line, name) for line in lines),
            version=__version__,
        )
    )


def _line(batch: Any, row: Any) -> Line:
    report = batch.report_of(row)
    known = row.value is not None and row.lower is not None and row.upper is not None
    return Line(
        row.row,
        _file_name(row.network),
        row.network,
        _file_name(row.question) if row.verdict else row.question,
        row.question,
        row.verdict or "",
        percent_in(row.value, row.lower, row.upper) if known else "",
        row.value,
        "" if not known else f"{row.value:.6g}" if row.guarantee == "exact" else outward(row.lower, row.upper),
        row.upper - row.lower if known else None,
        "" if row.guarantee is None else row.guarantee if row.level is None else f"confidence {100 * row.level:g} %",
        row.status,
        row.reason or ("" if row.note.startswith("budget of") else row.note),
        row.seconds,
        f"{report.parent.name}/{report.name}" if report.exists() else "",
    )


def outward(lower: float, upper: float, digits: int = 4) -> str:
    """A bracket in few digits that are rounded outward, so that it still holds what it held.

    >>> outward(0.12345678, 0.12349), outward(0.0, 1e-7)
    ('[0.1234, 0.1235]', '[0, 1e-07]')
    """
    down, up = Context(prec=digits, rounding=ROUND_FLOOR), Context(prec=digits, rounding=ROUND_CEILING)
    ends = [float(c.create_decimal(Decimal(v))) for c, v in ((down, lower), (up, upper))]
    return f"[{ends[0]:.{digits}g}, {ends[1]:.{digits}g}]"


def _title(batch: Any) -> str:
    known = Path(batch.source).suffix.lower() in (".csv", ".jsonl", ".gz")
    return Path(batch.source).name if known else f"A batch of {count(len(batch), 'question')}"


def _file_name(name: str) -> str:
    return Path(name).name if len(name) > 24 else name


def live_table(rows: Any, title: str) -> Any:
    """The rows that ended last, as a table for the terminal (of the package rich)."""
    rich, escape = require("rich.table", "progress"), require("rich.markup", "progress").escape
    table = rich.Table(title=title, title_justify="left", expand=False, pad_edge=False)
    for name in ("row", "network", "question", "answer", "status", "seconds"):
        table.add_column(
            name, justify="right" if name in ("row", "seconds") else "left", overflow="ellipsis", no_wrap=True
        )
    for one, result in rows:
        known = result.value is not None
        answer = result.verdict or ("" if not known else percent_in(result.value, result.lower, result.upper))
        network, question = (escape(_file_name(name)) for name in one.names)
        table.add_row(str(one.row), network, question, answer, result.status, f"{result.seconds:.1f}")
    return table
