"""The file of results: one SQLite file that survives the end of the process at any moment.

Table `instances` has the questions of the batch in their order, `answers` what was answered, by the digest of the
question. An answer is committed when it is there, in one transaction that reaches the disk (`synchronous=FULL`), so
that a batch that was killed goes on where it was. Answers to questions that are no longer asked (a file or an option
has changed) stay in the file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple, fields
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

from reluscope._files import as_path, only_writer
from reluscope._text import count
from reluscope._version import __version__
from reluscope.batches.instances import Instance
from reluscope.batches.task import Result
from reluscope.errors import InputError

MARK = 0x52536261
"""The `application_id` of our files: "RSba"."""

FORMAT = 1
"""The `user_version` of our files."""

WAITING = "waiting"
"""The status of a row without an answer."""

_FIELDS = tuple(f.name for f in fields(Result))

_SCHEMA = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE instances (row INTEGER PRIMARY KEY, network TEXT, question TEXT, law TEXT, asked TEXT, location TEXT,
  model TEXT, network_sha256 TEXT, digest TEXT);
CREATE TABLE answers (digest TEXT PRIMARY KEY, status TEXT, seconds REAL, seed INTEGER, version TEXT, value REAL,
  lower REAL, upper REAL, guarantee TEXT, level REAL, verdict TEXT, method TEXT, note TEXT, reason TEXT, witness TEXT,
  record TEXT, finished TEXT);
PRAGMA application_id = {MARK};
PRAGMA user_version = {FORMAT};
"""

_KEEP = f"INSERT OR REPLACE INTO answers ({', '.join(_FIELDS)}, finished) VALUES ({'?, ' * len(_FIELDS)}?)"  # noqa: S608


class Store:
    """An open file of results; `open_store` opens one."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._db = connection

    def agree(self, instances: Sequence[Instance], source: str) -> list[str]:
        """Make the table of instances the one given; refuses the file of another batch. What changed, in words."""
        before: dict[tuple[str, str], set[str]] = {}
        for network, question, digest in self._db.execute("SELECT network, question, digest FROM instances"):
            before.setdefault((network, question), set()).add(digest)
        now: dict[tuple[str, str], set[str]] = {}
        for one in instances:
            now.setdefault(one.names, set()).add(one.digest)
        if before and not before.keys() & now.keys():
            name = self._fact("source")
            raise InputError(
                f"{self.path} holds the results of another batch ({count(len(before), 'instance')} of {name}), none of "
                "which is asked now; name another results file"
            )
        changed = [names for names, digests in now.items() if names in before and digests - before[names]]
        gone, new = before.keys() - now.keys(), now.keys() - before.keys()
        notes = []
        if changed:
            first = " and ".join(changed[0])
            notes.append(
                f"{count(len(changed), 'row')} changed since (a file or an option, such as of {first}), and asked again"
            )
        if before and new:
            notes.append(f"{count(len(new), 'row')} new")
        if gone:
            notes.append(f"{count(len(gone), 'row')} no longer asked; what was answered stays in the file")
        with self.writing():
            self._db.execute("DELETE FROM instances")
            self._db.executemany(
                "INSERT INTO instances VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [_row_of(one) for one in instances]
            )
            self._db.execute("INSERT OR REPLACE INTO facts VALUES ('source', ?)", (source,))
        others = self._db.execute(
            "SELECT COUNT(*) FROM instances JOIN answers USING (digest) WHERE version <> ?", (__version__,)
        ).fetchone()[0]
        if others:
            notes.append(f"{count(others, 'answer')} of another version of reluscope")
        return notes

    def states(self) -> dict[str, str]:
        """The status of every answer in the file, by the digest of its question."""
        return dict(self._db.execute("SELECT digest, status FROM answers"))

    def forget_failures(self, digests: Sequence[str]) -> None:
        """Remove failures, so that these questions wait again."""
        with self.writing():
            self._db.executemany("DELETE FROM answers WHERE digest = ? AND status = 'failed'", [(d,) for d in digests])

    def keep(self, results: Sequence[Result]) -> None:
        """Commit results, all or none."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self.writing():
            self._db.executemany(_KEEP, [(*astuple(result), now) for result in results])

    def rows(self, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Columns of instances and their answers, in the order of the instances; None where there is no answer."""
        names = ", ".join(f"i.{c}" if c in ("network", "network_sha256", "digest") else c for c in columns)
        return self._db.execute(
            f"SELECT {names} FROM instances AS i LEFT JOIN answers AS a USING (digest) ORDER BY row"  # noqa: S608
        ).fetchall()

    def kept(self, row: int) -> tuple[dict[str, Any], str]:
        """The record of a row's answer, and the model file."""
        found = self._db.execute(
            "SELECT record, model, status, reason FROM instances LEFT JOIN answers USING (digest) WHERE row = ?", (row,)
        ).fetchone()
        if found is None:
            raise InputError(f"row must be one of {self.path.name}, from 0 to {self._last()}, got {row}")
        record, model, status, reason = found
        if not record:
            why = "has not been asked yet" if status is None else f"failed: {reason}"
            raise InputError(f"row {row} has no answer: it {why}")
        return json.loads(record), model

    def source(self) -> str:
        """Where the instances came from."""
        return self._fact("source")

    def _last(self) -> int:
        return int(self._db.execute("SELECT MAX(row) FROM instances").fetchone()[0] or 0)

    def _fact(self, name: str) -> str:
        found = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return "" if found is None else str(found[0])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction; a full disk is said in words, and what was committed before stays."""
        try:
            with self._db:
                yield
        except sqlite3.OperationalError as error:
            raise InputError(
                f"{self.path} cannot be written: {error}; the answers before are kept: make room and start again"
            ) from error


def _row_of(one: Instance) -> tuple[Any, ...]:
    asked = {n: getattr(one, n) for n in ("guarantee", "tolerance", "level", "budget") if getattr(one, n) is not None}
    law = "uniform on the box of the property" if one.law is None else str(one.law)
    model = str(one.network.resolve()) if isinstance(one.network, Path) else ""
    return one.row, *one.names, law, json.dumps(asked), one.where, model, one.network_sha256, one.digest


def is_store(path: Path) -> bool:
    """Whether a file starts as an SQLite file does; `open_store` says whether it is one of ours."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"
    return False


@contextmanager
def open_store(path: str | PathLike[str], *, write: bool = False) -> Iterator[Store]:
    """The results in a file; with `write`, a file that does not exist is made, and no other batch may write to it."""
    file = as_path(path, "results")
    with ExitStack() as stack:
        if write:
            stack.enter_context(only_writer(file, "results: another batch is writing to"))
        elif not file.is_file():
            raise InputError(f"results: there is no file {file}")
        connection = stack.enter_context(_connected(file, write))
        try:
            _check(connection, file, write)
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"results: {file} cannot be used: {error}; it must be a file that `batch` wrote"
            ) from error
        yield Store(file, connection)


@contextmanager
def copied_store(path: str | PathLike[str]) -> Iterator[Store]:
    """A copy in memory of the results in a file, or of none: for a look ahead that changes nothing."""
    file = as_path(path, "results")
    copy = sqlite3.connect(":memory:")
    try:
        if file.is_file():
            with open_store(file) as store:
                store._db.backup(copy)
        else:
            copy.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
        yield Store(file, copy)
    finally:
        copy.close()


@contextmanager
def _connected(file: Path, write: bool) -> Iterator[sqlite3.Connection]:
    try:
        how = file.resolve().as_uri() + ("" if write else "?mode=ro")
        connection = sqlite3.connect(how, uri=True, timeout=30)
    except sqlite3.Error as error:
        raise InputError(f"results: {file} cannot be opened: {error}") from error
    try:
        yield connection
    finally:
        connection.close()


def _check(db: sqlite3.Connection, file: Path, write: bool) -> None:
    mark, version = (db.execute(f"PRAGMA {p}").fetchone()[0] for p in ("application_id", "user_version"))
    empty = not db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
    if empty and write:
        # A write-ahead log where the file system can have one; both kinds of journal survive a power cut.
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
        return
    if mark != MARK:
        raise InputError(f"results: {file} is not a file of results of a batch; name another one")
    if version != FORMAT:
        raise InputError(f"results: {file} has the format {version}, this version of reluscope knows {FORMAT}")
    db.execute("PRAGMA synchronous = FULL")
