"""`Batch`: the table of answers that a batch gives, or that a file of results holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import instance, integer
from reluscope._extras import require
from reluscope._files import as_path, atomic_write
from reluscope._tables import Tabular, write_csv
from reluscope._text import count, table
from reluscope.batches.store import WAITING, Store, open_store
from reluscope.batches.task import FAILED
from reluscope.errors import InputError
from reluscope.reporting.batch import overview

_SHOWN = 8
"""Rows that a printed batch shows."""


@dataclass(frozen=True)
class BatchRow:
    """One question of a batch and its answer; fields of the answer are None where there is none.

    Attributes
    ----------
    row : int
        Place in the batch, from 0 on.
    network, question, law : str
        As they were named.
    status : str
        "done", "budget ended" or another word of `Status`; "failed", with its `reason`; "waiting": not asked yet.
    verdict : str or None
        Of a VNN-LIB property: "sat", "unsat", "unknown" or "timeout".
    value, lower, upper : float or None
        The answer and its bracket.
    guarantee : str or None
        What holds: "exact", "sound" or "confidence", the latter at the `level`.
    level : float or None
    seconds : float or None
        How long it took.
    reason, note, method : str
        Why it failed; what to keep in mind; how it was computed.
    seed : int or None
        Of its draws.
    version : str or None
        Of the library.
    witness : str
        A counterexample, the input as JSON, where one was looked for and met.
    network_sha256, digest : str
        SHA-256 of the model file (or of the weights), and of all that the answer depends on.
    """

    row: int
    network: str
    question: str
    law: str
    status: str
    verdict: str | None
    value: float | None
    lower: float | None
    upper: float | None
    guarantee: str | None
    level: float | None
    seconds: float | None
    reason: str
    note: str
    method: str
    seed: int | None
    version: str | None
    witness: str
    network_sha256: str
    digest: str

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return self.status not in (WAITING, FAILED)


COLUMNS = tuple(f.name for f in fields(BatchRow))


@dataclass(frozen=True, repr=False)
class Batch(Tabular):
    """Answers to many questions: a table with one row for each, read from a file of results.

    Attributes
    ----------
    rows : tuple of BatchRow
        Network, question and law as they were named; `status` ("done", "budget ended", ..., "failed" or "waiting");
        the answer's `value`, `lower`, `upper`, `guarantee` and `level`; for VNN-LIB properties the `verdict` and a
        counterexample (`witness`, the input as JSON); `seconds`, `seed`, `version`; `reason` of a failure, `note` of an
        answer; the digests of model file and question.
    results : Path
        The file of results.
    source : str
        Where the questions came from.
    notes : tuple of str
        What happened when the batch was started again: rows that changed, and the like.

    Examples
    --------
    >>> import reluscope as rs, tempfile, pathlib
    >>> net = rs.Network([([[1.0]], [0.0]), ([[1.0]], None)], name="positive part")
    >>> rows = [{"network": net, "law": rs.Gaussian([0.0]), "event": f"y[0] > {k}"} for k in range(3)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = rs.batch(rows, pathlib.Path(folder) / "results.sqlite")
    >>> [round(row.value, 4) for row in found]
    [0.5, 0.1587, 0.0228]
    """

    rows: tuple[BatchRow, ...]
    results: Path
    source: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, results: str | PathLike[str]) -> Batch:
        """The batch in a file of results.

        Parameters
        ----------
        results : path

        Returns
        -------
        Batch
        """
        with open_store(results) as store:
            return of_store(store)

    def record(self, row: int) -> dict[str, Any]:
        """The record of a row's answer, which `reluscope.replay` computes again.

        Parameters
        ----------
        row : int

        Returns
        -------
        dict
        """
        with open_store(self.results) as store:
            return store.kept(integer(row, "row", low=0))[0]

    def report_of(self, row: BatchRow) -> Path:
        """The file of a row's report, which is there if reports were asked for.

        Parameters
        ----------
        row : BatchRow

        Returns
        -------
        Path
        """
        one = instance(row, "row", BatchRow, "a row of the batch")
        return reports_folder(self.results) / f"{one.digest[:16]}.html"

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each status."""
        return dict(Counter(row.status for row in self.rows))

    @property
    def verdicts(self) -> dict[str, int]:
        """How many properties have each verdict."""
        return dict(Counter(row.verdict for row in self.rows if row.verdict is not None))

    @property
    def left(self) -> int:
        """Rows that have not been asked yet."""
        return self.counts.get(WAITING, 0)

    @property
    def failed(self) -> tuple[BatchRow, ...]:
        """Rows that failed, each with its reason."""
        return tuple(row for row in self.rows if row.status == FAILED)

    @property
    def seconds(self) -> float:
        """Seconds that the answers took, added up."""
        return sum(row.seconds or 0.0 for row in self.rows)

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns by name."""
        return {name: [getattr(row, name) for row in self.rows] for name in COLUMNS}

    def save_csv(self, path: str | PathLike[str]) -> None:
        """Write the table as CSV.

        Parameters
        ----------
        path : path
        """
        columns = {n: ["" if v is None else v for v in values] for n, values in self.to_dict().items()}
        write_csv({n: np.array(v, dtype=object) for n, v in columns.items()}, as_path(path))

    def save_parquet(self, path: str | PathLike[str]) -> None:
        """Write the table as Parquet, with the package pyarrow.

        Parameters
        ----------
        path : path
        """
        file = as_path(path)
        arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
        kinds = {"row": arrow.int64(), "seed": arrow.int64()}
        kinds |= dict.fromkeys(("value", "lower", "upper", "level", "seconds"), arrow.float64())
        made = {n: arrow.array(v, type=kinds.get(n, arrow.string())) for n, v in self.to_dict().items()}
        with atomic_write(file) as handle:
            parquet.write_table(arrow.table(made), handle)

    def html(self) -> str:
        """An overview page: one line for each row, in a table that can be sorted."""
        return overview(self)

    def save_page(self, path: str | PathLike[str]) -> None:
        """Write the overview page.

        Parameters
        ----------
        path : path
            Beside the results: links to reports start from there.
        """
        with atomic_write(path) as file:
            file.write(self.html().encode())

    def summary(self) -> str:
        """How far the batch is, in one line."""
        parts = [f"{n:,} {status}" for status, n in sorted(self.counts.items(), key=lambda item: -item[1])]
        words = ", ".join(f"{n:,} {word}" for word, n in sorted(self.verdicts.items(), key=lambda item: -item[1]))
        return f"{count(len(self), 'instance')}: {', '.join(parts)}" + (f"; verdicts: {words}" if words else "")

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[BatchRow]:
        return iter(self.rows)

    def __getitem__(self, row: int) -> BatchRow:
        place = integer(row, "row", low=0)
        if place >= len(self.rows):
            raise InputError(f"row must be at most {len(self.rows) - 1}, got {place}")
        return self.rows[place]

    def __repr__(self) -> str:
        names = ("row", "network", "question", "status", "verdict", "lower", "upper", "guarantee", "seconds")
        first = [row for row in self.rows if row.status != WAITING] or list(self.rows)
        shown = [{n: _short(getattr(row, n)) for n in names} for row in first[:_SHOWN]]
        if not any(row["verdict"] for row in shown):
            shown = [{n: v for n, v in row.items() if n != "verdict"} for row in shown]
        more = f"\n... and {count(len(self) - len(shown), 'more row')}" if len(self) > len(shown) else ""
        return f"Batch: {self.summary()}\n{table(shown)}{more}"


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return value if not isinstance(value, str) or len(value) < 40 else f"...{value[-37:]}"


def reports_folder(results: Path) -> Path:
    """The folder beside a file of results that its reports are in."""
    return results.with_name(f"{results.stem}-reports")


def of_store(store: Store, notes: tuple[str, ...] = ()) -> Batch:
    """The table of an open file of results."""
    rows = []
    for values in store.rows(COLUMNS):
        said = dict(zip(COLUMNS, values, strict=True))
        said["status"] = said["status"] or WAITING
        said |= {n: said[n] or "" for n in ("reason", "note", "method", "witness")}
        rows.append(BatchRow(**said))
    return Batch(tuple(rows), store.path, store.source(), notes)
