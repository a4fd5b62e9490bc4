"""Long work in a file: saved on the way, and gone on with by the same call.

The file is an npz archive: arrays of numbers, and a header in JSON with the digests of the question and of the arrays.
For each search (a law of several components, or an event of several cases, has several) it holds the state: of a sound
search the bracket, and the boxes with their own brackets; of masses those that were measured. What is read counts as
proved, as it was when it was written: keep the file like a result. A file that is damaged, or about something else, is
refused.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reluscope._check import SEEDS
from reluscope._files import as_path
from reluscope._json import parse_json
from reluscope._npy import Arrays, read_npz
from reluscope.errors import InputError
from reluscope.formats.arrays import write_npz

_EVERY = 30.0
"""Seconds between two times that the state is saved."""


class Kind(NamedTuple):
    """What is kept, in words, and the arrays of one search with their dimensions."""

    what: str
    fields: Mapping[str, int]


SEARCH = Kind(
    "a sound search",
    {"frame": 1, "lower": 2, "upper": 2, "inside": 1, "possible": 1, "settled": 2, "floor": 1, "ends": 1},
)
"""See `BoxSearch.state`."""

MASSES = Kind(
    "masses", dict.fromkeys(("value", "lower", "upper", "points", "value1", "upper1", "points1", "turn", "done"), 1)
)
"""Brackets and points of all cells, those of the first turn, which turn it is and how many cells of it are done."""


class Checkpoint:
    """The states of the searches of one question, by the digest of each search, and the file that keeps them."""

    def __init__(self, path: str | PathLike[str], kind: Kind, question: Mapping[str, str]) -> None:
        self.path, self.kind, self.question = as_path(path, "checkpoint"), kind, dict(question)
        self.states: dict[str, Arrays] = {}
        self.seed: int | None = None
        self._number = itertools.count()
        self._saved = time.monotonic()
        if self.path.exists():
            self._read()
        else:  # a folder that is not there should show now, not after half a minute
            self.save()

    def save(self) -> None:
        """Write all states, whole or not at all."""
        arrays = {f"{key}.{name}": array for key, state in self.states.items() for name, array in state.items()}
        header = {"kind": self._mark, "version": 1, "seed": self.seed, **self.question, "content": _digest(arrays)}
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        write_npz({"header": text, **arrays}, self.path)
        self._saved = time.monotonic()

    @property
    def _mark(self) -> str:
        return f"reluscope checkpoint of {self.kind.what}"

    def next_key(self) -> str:
        """The name of the next search, for work that takes its searches in the same order every time."""
        return str(next(self._number))

    def is_due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._saved >= _EVERY

    def _read(self) -> None:
        what = f"checkpoint {self.path.name}"
        arrays = read_npz(self.path)
        header = arrays.pop("header", None)
        if header is None or header.dtype != np.uint8 or header.ndim != 1:
            raise InputError(f"{what} is not a checkpoint of {self.kind.what}; give the name of a new file")
        facts = parse_json(header.tobytes(), what)
        if not isinstance(facts, dict) or facts.get("kind") != self._mark or facts.get("version") != 1:
            raise InputError(f"{what} is not a checkpoint of {self.kind.what}; give the name of a new file")
        for part, digest in self.question.items():
            if facts.get(part) != digest:
                raise InputError(
                    f"{what} is about another {part} than this call; ask about the same one again, or give the name of "
                    "a new file"
                )
        if facts.get("content") != _digest(arrays):
            raise InputError(
                f"{what} is damaged: its numbers do not have the digest that it says; remove it to begin anew"
            )
        seed = facts.get("seed")
        self.seed = seed if isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < SEEDS else None
        for name, array in arrays.items():
            key, _, field = name.partition(".")
            if array.ndim != self.kind.fields.get(field) or array.dtype != np.float64 or not np.isfinite(array).all():
                raise InputError(
                    f"{what} is damaged: {name[:80]} is not an array of that kind; remove it to begin anew"
                )
            self.states.setdefault(key, {})[field] = array
        for state in self.states.values():
            if set(state) != set(self.kind.fields):
                raise InputError(f"{what} is damaged: arrays are missing; remove it to begin anew")


def _digest(arrays: Arrays) -> str:
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype.str} {array.shape};".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


class _Here(threading.local):
    checkpoint: Checkpoint | None = None


_HERE = _Here()


@contextmanager
def keeping(path: Any, kind: Kind, question: Mapping[str, str]) -> Iterator[Checkpoint | None]:
    """In this block work of this kind goes on from the file `path`, and is saved to it; None: nothing is kept."""
    before = _HERE.checkpoint
    _HERE.checkpoint = None if path is None else Checkpoint(Path(as_path(path, "checkpoint")), kind, question)
    try:
        yield _HERE.checkpoint
    finally:
        _HERE.checkpoint = before


def checkpoint_at_hand(kind: Kind) -> Checkpoint | None:
    """Where work of this kind of the call at hand is kept, or None."""
    found = _HERE.checkpoint
    return found if found is not None and found.kind is kind else None
