"""`reluscope batch`: many questions, with all answers in one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, show
from reluscope.errors import InputError

_LAST = 12
"""Rows of the live table."""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "batch", run, "ask many questions, and go on after any interruption")
    parser.add_argument(
        "instances", nargs="+", type=Path,
        help="a table (VNN-COMP's instances.csv, or CSV or JSONL with network, property or event, law, guarantee, "
        "tolerance, level, budget), or a folder of networks and a folder of VNN-LIB properties",
    )  # fmt: skip
    parser.add_argument(
        "--results", type=Path, default=Path("reluscope-batch.sqlite"),
        help="file that keeps the answers (default: reluscope-batch.sqlite); the same command goes on where it was",
    )  # fmt: skip
    parser.add_argument("--law", type=Path, help="law for all rows: law.json, or data.csv (default: as the table says)")
    parser.add_argument("--guarantee", choices=("auto", "exact", "sound", "confidence"), help="for all rows")
    parser.add_argument("--tolerance", type=float, help="half-width of the brackets wanted, for all rows")
    parser.add_argument("--budget", help='time for each row, such as "20s", in place of what the table says')
    parser.add_argument("--only", action="append", metavar="PATTERN", help='rows that match, such as "*1_1*prop_2*"')
    parser.add_argument("--retry", choices=("failed",), help="ask rows that failed again")
    parser.add_argument("--dry-run", action="store_true", help="say what would be asked, and write nothing")
    parser.add_argument("--jobs", type=int, help="worker processes; -1 for all cores")
    parser.add_argument("--cluster", metavar="ADDRESS", help="a Dask scheduler whose workers do the work")
    parser.add_argument("--reports", action="store_true", help="also write a report for each row, beside the results")
    parser.add_argument("--page", type=Path, help="the overview page (default: beside the results, as .html)")
    parser.add_argument("--csv", type=Path, help="also write the table as CSV")
    parser.add_argument("--parquet", type=Path, help="also write the table as Parquet (needs pyarrow)")
    parser.add_argument("--seed", type=int, help="changes the seeds of the random draws, which follow from the rows")


def run(options: Options) -> int:
    """Ask what has no answer yet; exit code 1 if a row failed."""
    from reluscope._extras import require
    from reluscope.batches.run import run_batch

    if len(options.instances) > 2:
        raise InputError("give one table, or a folder of networks and a folder of properties")
    if options.parquet is not None:
        require("pyarrow", "parquet")
    require("jinja2", "report")
    source: Any = options.instances[0] if len(options.instances) == 1 else tuple(options.instances)
    watch = _Live()
    try:
        with watch:
            found = run_batch(
                source, options.results, watch, law=options.law, only=options.only, retry=options.retry,
                dry_run=options.dry_run, reports=options.reports, jobs=options.jobs, cluster=options.cluster,
                guarantee=options.guarantee, tolerance=options.tolerance, budget=options.budget, rng=options.seed,
            )  # fmt: skip
    except KeyboardInterrupt:
        if watch.total:
            print(
                f"reluscope: stopped after {watch.done} of {watch.total} rows; all are in {options.results}, the same "
                "command goes on",
                file=sys.stderr,
            )
        raise
    page = options.page or options.results.with_suffix(".html")
    written = []
    if not options.dry_run:
        found.save_page(page)
        written = [str(options.results), str(page)]
        for path, save in ((options.csv, found.save_csv), (options.parquet, found.save_parquet)):
            if path is not None:
                save(path)
                written.append(str(path))
    facts = {
        "instances": [str(path) for path in options.instances], "results": str(options.results), "rows": len(found),
        "counts": found.counts, "verdicts": found.verdicts, "seconds": found.seconds, "notes": list(found.notes),
        "dry_run": options.dry_run, "files": written, "failed": {r.row: r.reason for r in found.failed},
        "table": found.to_dict(),
    }  # fmt: skip
    lines = [repr(found), *(f"note      {note}" for note in found.notes)]
    lines += [f"failed    row {r.row} ({r.network}, {r.question}): {r.reason}" for r in found.failed[:_LAST]]
    if len(found.failed) > _LAST:
        lines.append(f"          and {len(found.failed) - _LAST} more; --retry failed asks them again")
    if not options.dry_run:
        lines.append(f"time      {found.seconds:.3g} s of work in all answers")
        lines.append(f"written   {', '.join(written)}")
    show(options, facts, "\n".join(lines))
    return 1 if found.failed else 0


class _Live:
    """Looks on: on a terminal a table of the last rows and the time to go (a line without rich), else nothing."""

    def __init__(self) -> None:
        self.total = self.done = self.jobs = 0
        self._rows: list[Any] = []
        self._live: Any = None
        self._line = False

    def __enter__(self) -> _Live:
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._line:
            sys.stderr.write("\r\x1b[K")

    def begin(self, total: int, answered: int, jobs: int) -> None:
        """Start the table."""
        self.total, self.done, self.jobs = total, answered, jobs
        if not sys.stderr.isatty() or answered == total:
            return
        try:
            from rich.console import Console
            from rich.live import Live
        except ImportError:
            self._line = True
            self._say("")
            return
        self._live = Live(self._table(""), console=Console(stderr=True), transient=True, refresh_per_second=4)
        self._live.start()

    def finished(self, one: Any, result: Any, left: float) -> None:
        """Another row is done."""
        from reluscope.batches.run import in_words

        self.done += 1
        self._rows = [*self._rows[-_LAST + 1 :], (one, result)]
        if self._live is not None or self._line:
            self._say(f", about {in_words(left)} to go" if self.done < self.total else "")

    def _say(self, left: str) -> None:
        if self._live is not None:
            self._live.update(self._table(left))
        else:
            sys.stderr.write(f"\r{self._title(left)}\x1b[K")
            sys.stderr.flush()

    def _title(self, left: str) -> str:
        return f"{self.done:,} of {self.total:,} answered{left} ({self.jobs} at a time)"

    def _table(self, left: str) -> Any:
        from reluscope.reporting.batch import live_table

        return live_table(self._rows, self._title(left))
