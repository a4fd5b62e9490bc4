"""A sound search in a file: saved on the way, and gone on with by the same call.

The file is an npz archive: arrays of numbers, and a header in JSON with the digests of the question and of the arrays.
For each search (a law of several components, or an event of several cases, has several) it holds the bracket, and the
boxes with their own brackets. What is read counts as proved, as it was when it was written: keep the file like a
result. A file that is damaged, or about something else, is refused.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._files import as_path
from reluscope._json import parse_json
from reluscope._npy import Arrays, read_npz
from reluscope.errors import InputError
from reluscope.formats.arrays import write_npz

_EVERY = 30.0
"""Seconds between two times that the state is saved."""

_KIND = "reluscope checkpoint of a sound search"
_FIELDS = {"frame": 1, "lower": 2, "upper": 2, "inside": 1, "possible": 1, "settled": 2, "floor": 1, "ends": 1}
"""The arrays of one search, and their dimensions: see `BoxSearch.state`."""


class Checkpoint:
    """The states of the searches of one question, by the digest of each search, and the file that keeps them."""

    def __init__(self, path: str | PathLike[str], question: Mapping[str, str]) -> None:
        self.path, self.question = as_path(path, "checkpoint"), dict(question)
        self.states: dict[str, Arrays] = {}
        self._saved = time.monotonic()
        if self.path.exists():
            self._read()
        else:  # a folder that is not there should show now, not after half a minute
            self.save()

    def save(self) -> None:
        """Write all states, whole or not at all."""
        arrays = {f"{key}.{name}": array for key, state in self.states.items() for name, array in state.items()}
        header = {"kind": _KIND, "version": 1, **self.question, "content": _digest(arrays)}
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        write_npz({"header": text, **arrays}, self.path)
        self._saved = time.monotonic()

    def is_due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._saved >= _EVERY

    def _read(self) -> None:
        what = f"checkpoint {self.path.name}"
        arrays = read_npz(self.path)
        header = arrays.pop("header", None)
        if header is None or header.dtype != np.uint8 or header.ndim != 1:
            raise InputError(f"{what} is not a checkpoint of a sound search; give the name of a new file")
        facts = parse_json(header.tobytes(), what)
        if not isinstance(facts, dict) or facts.get("kind") != _KIND or facts.get("version") != 1:
            raise InputError(f"{what} is not a checkpoint of a sound search; give the name of a new file")
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
        for name, array in arrays.items():
            key, _, field = name.partition(".")
            if array.ndim != _FIELDS.get(field) or array.dtype != np.float64 or not np.isfinite(array).all():
                raise InputError(
                    f"{what} is damaged: {name[:80]} is not an array of that kind; remove it to begin anew"
                )
            self.states.setdefault(key, {})[field] = array
        for state in self.states.values():
            if set(state) != set(_FIELDS):
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
def keeping(path: Any, question: Mapping[str, str]) -> Iterator[None]:
    """In this block sound searches go on from the file `path`, and are saved to it; None: nothing is kept."""
    before = _HERE.checkpoint
    _HERE.checkpoint = None if path is None else Checkpoint(Path(as_path(path, "checkpoint")), question)
    try:
        yield
    finally:
        _HERE.checkpoint = before


def checkpoint_at_hand() -> Checkpoint | None:
    """Where the searches of the call at hand are kept, or None."""
    return _HERE.checkpoint
