"""The questions of a batch: read from a table, from rows or from two folders, checked before anything is asked."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from reluscope._check import choice, describe, real, text
from reluscope._columns import column_of, columns_of
from reluscope._files import as_path, file_digest, read_text
from reluscope._json import parse_json
from reluscope._text import count
from reluscope.answer import GUARANTEES
from reluscope.answers._record_plain import plain_event, plain_law
from reluscope.answers.replay import fingerprint
from reluscope.budget import parse_budget
from reluscope.errors import InputError, InputTypeError
from reluscope.events import Event
from reluscope.inputs import Law, law_from_dict
from reluscope.network import Network

COLUMNS = ("network", "property", "event", "law", "guarantee", "tolerance", "level", "budget")
"""What a table may say of an instance; `network`, and `property` or `event`, it must say."""

NETWORKS = (".onnx", ".npz", ".safetensors", ".pt", ".pth")
PROPERTIES = (".vnnlib",)

_MOST_NAMED = 8
"""Bad rows that a message names."""


@dataclass(frozen=True)
class Instance:
    """One question: a network, an event or a VNN-LIB property, a law, and how it is to be answered.

    Attributes
    ----------
    row : int
        Place in the batch, from 0 on.
    where : str
        Where it was read, for messages: "line 3".
    network : Path or Network
    question : str, Path or Event
        The text of an event, an event, or the file of a property.
    law : Path, Law or None
        None: uniform on the box of the property.
    guarantee, tolerance, level, budget : optional
        As for `probability`.
    names : tuple of str
        Network and question as the table names them.
    digest : str
        SHA-256 of all that the answer depends on, the bytes of files included.
    network_sha256 : str
        SHA-256 of the model file, or of the weights of a network in memory.
    files : tuple of (Path, str)
        The files it is read from, with the SHA-256 of each.
    """

    row: int
    where: str
    network: Path | Network
    question: str | Path | Event
    law: Path | Law | None = None
    guarantee: str | None = None
    tolerance: float | None = None
    level: float | None = None
    budget: str | None = None
    names: tuple[str, str] = ("", "")
    digest: str = field(default="", repr=False)
    network_sha256: str = field(default="", repr=False)
    files: tuple[tuple[Path, str], ...] = field(default=(), repr=False)

    def seed(self, base: int) -> int:
        """The seed of its draws: it follows from the question alone, so that it is the same in every run."""
        return int(hashlib.sha256(f"{self.digest} {base}".encode()).hexdigest()[:8], 16)


def read_instances(source: Any, **given: Any) -> tuple[Instance, ...]:
    """The instances of a table (CSV, JSONL), of rows, or of a folder of networks and one of properties.

    `given` replaces the column of the same name. Rows that cannot be asked are named, all of them, in one error.
    """
    given = {name: value for name, value in given.items() if value is not None}
    raw, folder, what = _raw(source)
    made: list[Instance] = []
    bad: list[str] = []
    sums: dict[Path, str] = {}
    total = 0
    for where, row in raw:
        total += 1
        try:
            made.append(_instance(len(made), where, {**row, **given}, folder, sums))
        except InputError as error:
            bad.append(f"{where}: {error}")
    if bad:
        more = f"; and {count(len(bad) - _MOST_NAMED, 'other row')}" if len(bad) > _MOST_NAMED else ""
        raise InputError(
            f"{what}: {len(bad)} of {count(total, 'row')} cannot be asked. {'; '.join(bad[:_MOST_NAMED])}{more}"
        )
    if not made:
        raise InputError(f"{what} holds no instances; give one row for each question")
    return tuple(made)


# -- where rows come from ------------------------------------------------------------------------------------------

_Raw = Iterator[tuple[str, dict[str, Any]]]


def _raw(source: Any) -> tuple[_Raw, Path | None, str]:
    """Rows with where they stand, the folder that their paths start from, and a name for messages."""
    if isinstance(source, (str, PathLike)):
        path = as_path(source, "instances")
        if path.is_dir():
            raise InputError(
                f"instances: {path} is a folder; give a table (CSV, JSONL), or two folders: networks and properties"
            )
        kind = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
        if kind not in (".csv", ".jsonl"):
            raise InputError(f"instances: {path.name} must end in .csv or .jsonl (or .gz after it)")
        body = read_text(path)
        rows = _csv_rows(body, path.name) if kind == ".csv" else _json_rows(body)
        return rows, path.parent, path.name
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(s, (str, PathLike)) for s in source):
        return _folder_rows(*(as_path(s, "instances") for s in source)), None, "the folders"
    names = columns_of(source)
    if names is not None:
        made = [dict(zip(names, row, strict=True)) for row in zip(*(column_of(source, n) for n in names), strict=True)]
        return _given_rows(made), None, "instances"
    if isinstance(source, (list, tuple)):
        return _given_rows(list(source)), None, "instances"
    raise InputTypeError(
        "instances must be a table (a path to CSV or JSONL, a DataFrame, a list of dictionaries) or a pair of folders, "
        f"networks and properties, got {describe(source)}"
    )


def _csv_rows(body: str, name: str) -> _Raw:
    """With a header, or as VNN-COMP writes it: network, property, seconds."""
    lines = csv.reader(body.splitlines(), delimiter=max(",;\t", key=body[:4096].count), strict=True)
    heads: list[str] | None = None
    try:
        for cells in lines:
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                continue
            where = f"line {lines.line_num}"
            if heads is None:
                heads = _heads(cells, name)
                if heads == cells:
                    continue
            if len(cells) != len(heads):
                yield where, {"": f"it has {count(len(cells), 'field')} where {len(heads)} are expected"}
                continue
            yield where, {head: cell for head, cell in zip(heads, cells, strict=True) if cell}
    except csv.Error as error:
        raise InputError(f"{name} cannot be read as a CSV file: {error} (line {lines.line_num})") from None


def _heads(cells: list[str], name: str) -> list[str]:
    if "network" in cells:
        if len(set(cells)) != len(cells):
            raise InputError(f"{name} has two columns of the same name")
        return cells
    if len(cells) in (2, 3) and _ends(cells[1], PROPERTIES):
        return ["network", "property", "budget"][: len(cells)]
    raise InputError(
        f"{name} must start with a header that names the columns ({', '.join(COLUMNS)}), or hold lines of network, "
        "property, seconds as VNN-COMP writes them"
    )


def _json_rows(body: str) -> _Raw:
    for number, line in enumerate(body.splitlines(), start=1):
        if line.strip():
            try:
                row = parse_json(line, "it")
            except InputError as error:
                row = {"": str(error)}
            yield f"line {number}", row if isinstance(row, dict) else {"": "it must be a JSON object in one line"}


def _given_rows(rows: list[Any]) -> _Raw:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputTypeError(f"instances: row {number} must be a dictionary, got {describe(row)}")
        yield f"row {number}", {str(k): v for k, v in row.items() if not _is_empty(v)}


def _is_empty(value: Any) -> bool:
    """Nothing, as tables say it: None, nan, no text."""
    return (
        value is None or (isinstance(value, float) and value != value) or (isinstance(value, str) and not value.strip())
    )


def _folder_rows(networks: Path, properties: Path) -> _Raw:
    found = [_files(networks, NETWORKS, "networks"), _files(properties, PROPERTIES, "properties")]
    for net in found[0]:
        for prop in found[1]:
            yield f"{net.name} and {prop.name}", {"network": str(net), "property": str(prop)}


def _files(folder: Path, endings: tuple[str, ...], what: str) -> list[Path]:
    if not folder.is_dir():
        raise InputError(f"instances: there is no folder {folder} (of {what})")
    found = sorted(p for p in folder.rglob("*") if _ends(p.name, endings) and p.is_file())
    if not found:
        raise InputError(f"instances: the folder {folder} holds no {what} ({', '.join(endings)}, or .gz after it)")
    return found


def _ends(name: str, endings: tuple[str, ...]) -> bool:
    return name.lower().removesuffix(".gz").endswith(endings)


# -- one row -------------------------------------------------------------------------------------------------------


def _instance(row: int, where: str, said: dict[str, Any], folder: Path | None, sums: dict[Path, str]) -> Instance:
    if "" in said:
        raise InputError(said[""])
    unknown = [name for name in said if name not in COLUMNS]
    if unknown:
        raise InputError(f"the column {unknown[0]!r} is not known; known are {', '.join(COLUMNS)}")
    if "network" not in said:
        raise InputError("it names no network")
    if ("property" in said) == ("event" in said):
        raise InputError("it must have a property (a VNN-LIB file) or an event, one of them")
    network = said["network"] if isinstance(said["network"], Network) else _file(said["network"], folder, "network")
    question: str | Path | Event
    if "property" in said:
        question = (
            said["property"] if isinstance(said["property"], Event) else _file(said["property"], folder, "property")
        )
    else:
        question = said["event"] if isinstance(said["event"], Event) else text(said["event"], "event")
    law = _law(said.get("law"), folder)
    if law is None and "property" not in said:
        raise InputError("an event needs a law: a law.json, or a data.csv to fit one to")
    made = Instance(
        row, where, network, question, law,
        None if "guarantee" not in said else choice(said["guarantee"], "guarantee", ("auto", *GUARANTEES)),
        _number(said, "tolerance", float("inf")),
        _number(said, "level", 1.0),
        None if "budget" not in said else _budget(said["budget"]),
        (_name(said["network"]), _name(said.get("property", said.get("event")))),
    )  # fmt: skip
    return _with_digest(made, sums)


def _name(value: Any) -> str:
    if isinstance(value, Network):
        return value.name or "network"
    return value.text if isinstance(value, Event) else str(value)


def _file(value: Any, folder: Path | None, name: str) -> Path:
    """A file that is there, as it is called or with .gz after it (VNN-COMP keeps its files so)."""
    path = as_path(value, name)
    path = path if folder is None or path.is_absolute() else folder / path
    for found in (path, path.with_name(f"{path.name}.gz")):
        if found.is_file():
            return found
    raise InputError(f"there is no {name} {path}")


def _law(value: Any, folder: Path | None) -> Path | Law | None:
    if value is None or isinstance(value, Law):
        return value
    if isinstance(value, Mapping):
        return law_from_dict(value)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return law_from_dict(parse_json(value, "law"))
    return _file(value, folder, "law")


def _number(said: dict[str, Any], name: str, high: float) -> float | None:
    value = said.get(name)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise InputError(f"{name} must be a number, got {value!r}") from None
    return None if value is None else real(value, name, low=0.0, high=high, open_=True)


def _budget(value: Any) -> str:
    """A budget as text, in one spelling for a number of seconds."""
    parse_budget(value)
    try:
        return f"{float(value):g}s"
    except ValueError:
        return str(value).strip()


def _with_digest(made: Instance, sums: dict[Path, str]) -> Instance:
    def of_file(path: Path) -> str:
        if path not in sums:
            sums[path] = file_digest(path)
        return sums[path]

    net = of_file(made.network) if isinstance(made.network, Path) else fingerprint(made.network)
    question: Any = made.question
    if isinstance(question, Path):
        question = {"property": of_file(question)}
    elif isinstance(question, Event):
        question = plain_event(question)
    law: Any = made.law
    if isinstance(law, Path):
        law = {"file": of_file(law), "fitted": law.suffix.lower() == ".csv"}
    elif law is not None:
        law = plain_law(law)
        if law is None:
            raise InputError(f"law must be one that plain data can hold, got {describe(made.law)}")
    asked = [made.guarantee, made.tolerance, made.level, made.budget]
    whole = json.dumps([net, question, law, asked], sort_keys=True)
    files = tuple((p, of_file(p)) for p in (made.network, made.question, made.law) if isinstance(p, Path))
    return replace(made, digest=hashlib.sha256(whole.encode()).hexdigest(), network_sha256=net, files=files)
