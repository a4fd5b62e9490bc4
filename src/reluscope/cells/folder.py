"""Regions in a folder: what is found streams to disk, and comes back as arrays that are mapped into memory.

Each array of `Regions` is a file of plain numbers that grows; `regions.json` says how many rows of each count, and how
far the search is. Every half minute the files reach the disk, and then the header is replaced in one step: what it says
is there, however the process ended. What lies beyond is cut off when the search goes on.

Folders are untrusted, as files are: the type and size of every array, and all that indexes another one, are checked
before compiled code sees them, and a sample of the patterns is compared with the network.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from reluscope._files import as_path, atomic_write, make_folder, only_writer, read_text
from reluscope._json import parse_json
from reluscope._npy import Arrays, read_npz
from reluscope._text import count
from reluscope._version import __version__
from reluscope.answer import Status, Stop
from reluscope.budget import Budget
from reluscope.cells.doubt import Doubts
from reluscope.cells.regions import Domain, Regions, first_regions, leaves_of, no_regions, too_large
from reluscope.cells.storage import (
    GEOMETRIES,
    check_indices,
    constants,
    flattened,
    head,
    read_head,
    rebuilt,
    row_axes,
)
from reluscope.cells.subdivide import Batch, Trail, first_labels
from reluscope.errors import InputError
from reluscope.formats.arrays import write_npz
from reluscope.limits import DEFAULT_LIMITS, Limits, started
from reluscope.network import Network
from reluscope.progress import meter

EVERY = 30.0
"""Seconds between two times that what was found reaches the disk."""

_HEADER, _CONSTANTS = "regions.json", "network.npz"
_KIND, _FORMAT = "reluscope regions", 1
_AT_ONCE = 1 << 16
"""Cells that are checked at a time."""
_SAMPLE = 1 << 16
"""Cells whose patterns are compared with the network when a folder is read."""
_NOT_FINISHED = "the search in this folder has not ended; the same call of regions(out=...) goes on"


class _Column:
    """One array in its file. Rows are appended, and count from the next `counted` on."""

    def __init__(self, folder: Path, name: str, dtype: Any, tail: tuple[int, ...], rows: int = 0) -> None:
        self.name, self.dtype, self.tail, self.rows = name, np.dtype(dtype), tail, rows
        self.file = folder / f"{name}-{'x'.join(map(str, tail)) or 1}.bin"  # other rows, another file
        self._handle = self.file.open("r+b" if rows else "w+b", buffering=0)
        self._written = rows
        self.cut()

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.tail)

    def write(self, array: Any) -> None:
        data: Any = np.ascontiguousarray(array, self.dtype).reshape(-1).view(np.uint8)
        while len(data):
            data = data[self._handle.write(data) :]
        self._written += len(array)

    def counted(self) -> None:
        self.rows = self._written

    def cut(self) -> None:
        """Forget the rows that do not count."""
        self._handle.truncate(self.rows * self.row_bytes)
        self._handle.seek(0, os.SEEK_END)
        self._written = self.rows

    def widened(self, tail: tuple[int, ...]) -> _Column:
        """The same array with longer rows, zeros at their ends."""
        out = _Column(self.file.parent, self.name, self.dtype, tail)
        for begin in range(0, self.rows, _AT_ONCE):
            old = _mapped(self.file, self.dtype, self.tail, self.rows)[begin : begin + _AT_ONCE]
            new = np.zeros((len(old), *tail), self.dtype)
            new[:, : self.tail[0]] = old
            out.write(new)
        out.counted()
        return out

    def sync(self) -> None:
        os.fsync(self._handle.fileno())

    def close(self) -> None:
        self._handle.close()


def _mapped(file: Path, dtype: Any, tail: tuple[int, ...], rows: int) -> Any:
    """The array of a file. Kernels take arrays that may be written to: a write would stay in memory."""
    if not rows or 0 in tail:
        return np.zeros((rows, *tail), dtype)
    return np.asarray(np.memmap(file, dtype, mode="c", shape=(rows, *tail)))


class RegionFolder:
    """A folder that a search appends to: `open_folder` opens one."""

    def __init__(self, path: Path, net: Network, domain: Domain, geometry: str) -> None:
        self.path, self.net, self.domain = path, net, domain
        self.question = _question(net, domain, geometry)
        self.count, self.finished, self.stopped, self.doubt = 0, False, _NOT_FINISHED, ""
        self.geometry: str | None = None
        """How cells are stored: known from the first batch on."""
        self.trail: list[int] = []
        self.doubts = [0, 0, 0, 0]
        self._columns: dict[str, _Column] = {}
        self._old: list[_Column] = []
        self._saved = time.monotonic()

    def append(self, leaves: Batch, trail: Trail, doubts: Doubts) -> None:
        """Cells that the search has come to by this trail; they reach the disk within half a minute."""
        arrays: Arrays = {"pattern": leaves.pattern, "maps": leaves.maps, **flattened(leaves.cells, "cells")}
        with self._writing():
            if self.geometry is None:
                fixed = {name: arrays[name] for name in constants(leaves.cells)}
                write_npz(head(self.net, self.domain) | fixed, self.path / _CONSTANTS)
                self.geometry = GEOMETRIES[type(leaves.cells).__name__]
            for name, axis in row_axes(leaves.cells).items():
                array = arrays[name]
                column = self._column(name, array)
                if axis == "m" and column.rows:  # where lists end, counted over all batches
                    array = array[1:] + self._end(name)
                column.write(_padded(array, column.tail))
            for column in self._columns.values():
                column.counted()
            self.count += len(leaves.pattern)
            self.trail, self.doubts = list(trail.path), doubts.state()
        if time.monotonic() - self._saved >= EVERY:
            self.commit()

    def patterns(self) -> Any:
        """The patterns of all regions so far."""
        column = self._columns["pattern"]
        return _mapped(column.file, column.dtype, column.tail, column.rows)

    def _column(self, name: str, array: Any) -> _Column:
        tail = array.shape[1:]
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = _Column(self.path, name, array.dtype, tail)
        elif tail and tail[0] > column.tail[0]:
            self._old.append(column)
            column = self._columns[name] = column.widened(tail)
        return column

    def _end(self, name: str) -> Any:
        column = self._columns[name]
        with column.file.open("rb") as file:
            file.seek((column.rows - 1) * column.row_bytes)
            return np.frombuffer(file.read(column.row_bytes), column.dtype)[0]

    def commit(self) -> None:
        """All that was appended is on the disk, and counts."""
        with self._writing():
            for column in self._columns.values():
                column.sync()
            self._write_header()
            for column in self._old:
                column.close()
                column.file.unlink(missing_ok=True)
            self._old = []

    def _write_header(self) -> None:
        arrays = {n: [c.dtype.str, list(c.tail), c.rows] for n, c in self._columns.items()}
        facts = {
            "kind": _KIND,
            "format": _FORMAT,
            "version": __version__,
            "question": self.question,
            "geometry": self.geometry,
            "regions": self.count,
            "finished": self.finished,
            "stopped": self.stopped,
            "doubt": self.doubt,
            "doubts": self.doubts,
            "trail": self.trail,
            "arrays": arrays,
        }
        with atomic_write(self.path / _HEADER) as file:
            file.write(json.dumps(facts, indent=1).encode())
        self._saved = time.monotonic()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What was begun and not ended does not count; a full disk is said in words."""
        try:
            yield
        except (OSError, InputError) as error:
            self._cut()
            with suppress(OSError, InputError):  # the rows that were cut off left some room
                self._write_header()
            raise InputError(
                f"{self.path} cannot be written: {getattr(error, 'strerror', None) or error}; the "
                f"{count(self.count, 'region')} before are kept: make room, and the same call goes on"
            ) from error
        except BaseException:
            self._cut()
            raise

    def _cut(self) -> None:
        with suppress(OSError):
            for column in self._columns.values():
                column.cut()

    def resume(self, facts: dict[str, Any]) -> None:
        """Go on with what is there."""
        self.count, self.finished, self.geometry = facts["regions"], facts["finished"], facts["geometry"]
        self.trail, self.doubts, self.doubt = facts["trail"], facts["doubts"], facts["doubt"]
        for name, (dtype, tail, rows) in facts["arrays"].items():
            self._columns[name] = _Column(self.path, name, dtype, tuple(tail), rows)

    def close(self) -> None:
        """No more is appended."""
        for column in (*self._columns.values(), *self._old):
            column.close()


def _padded(array: Any, tail: tuple[int, ...]) -> Any:
    if array.shape[1:] == tail:
        return array
    out = np.zeros((len(array), *tail), array.dtype)
    out[:, : array.shape[1]] = array
    return out


@contextmanager
def open_folder(path: Path, net: Network, domain: Domain, geometry: str) -> Iterator[RegionFolder]:
    """The folder of this search, made if it does not exist; one about something else is refused."""
    make_folder(path, "out")
    found = RegionFolder(path, net, domain, geometry)
    with only_writer(path / _HEADER, "another search is writing to"):
        try:
            if (path / _HEADER).exists():
                facts = _read_header(path, DEFAULT_LIMITS)
                _same_question(path, facts, found.question)
                found.resume(facts)
            else:
                if any(not p.name.startswith(f"{_HEADER}.lock") for p in path.iterdir()):
                    raise InputError(f"the folder {path} holds other files; name a new one, or one of regions(out=...)")
                found.commit()  # a folder that cannot be written shows now, not after half a minute
            yield found
        finally:
            found.close()


def stored_regions(
    net: Network,
    domain: Domain,
    path: str | PathLike[str],
    *,
    geometry: str,
    budget: Budget,
    jobs: int,
    progress: Any,
) -> Regions:
    """See `regions`, whose `out` is `path`: search, or go on, and give what the folder holds then."""
    folder = as_path(path, "out")
    late = False

    def over(visited: int) -> bool:
        nonlocal late
        late = late or (visited > 0 and budget.elapsed() >= budget.seconds)
        return late

    with open_folder(folder, net, domain, geometry) as kept, meter(progress, "regions") as report:
        doubts, trail = Doubts(net, domain.box, domain.half_spaces), Trail(tuple(kept.trail))
        if kept.count:
            doubts.resume(kept.doubts)
        stopped = budget.spent(kept.count)
        try:
            if not kept.finished and stopped is None:
                chosen = kept.geometry or geometry
                for leaves in leaves_of(net, domain, chosen, over, doubts, jobs, trail):
                    _check(kept, trail)
                    kept.append(leaves, trail, doubts)
                    report(kept.count, f"{kept.count:,} found")
                    stopped = budget.spent(kept.count)
                    if stopped is not None:
                        break
                else:
                    _check(kept, trail)
                    stopped = budget.spent(kept.count) if late else None
                    kept.finished = not late
        except KeyboardInterrupt:
            if not kept.count:
                raise
            stopped = Stop("interrupted", Status.INTERRUPTED)
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            _refuse(folder, "its trail leads nowhere")
        unseen = too_large(net, domain.box)
        kept.stopped = (unseen or "") if kept.finished else str(stopped or _NOT_FINISHED)
        kept.doubt = doubts.text() or ""
        kept.commit()
        if kept.geometry is None:
            return no_regions(net, domain, geometry, stopped or _NOT_FINISHED)
    found = load_folder(folder, checked=False)
    found = Regions(net, domain, found.cells, found.pattern, found.maps, stopped or unseen, found.doubt)
    return first_regions(found, int(min(len(found), budget.regions)))


def _check(kept: RegionFolder, trail: Trail) -> None:
    """The cells at the end of the trail, cut once more, must be the last ones in the folder."""
    if not trail.last:
        return
    stored = kept.patterns()
    last = np.concatenate([b.pattern for b in trail.last])
    trail.last = []
    if not np.array_equal(stored[len(stored) - len(last) :], last):
        _refuse(kept.path, "its last regions are others than this machine and version finds")


def _refuse(path: Path, why: str) -> NoReturn:
    raise InputError(f"the search in {path} cannot go on: {why}; name a new folder") from None


# -- reading -------------------------------------------------------------------------------------------------------


def load_folder(path: str | PathLike[str], limits: Limits = DEFAULT_LIMITS, *, checked: bool = True) -> Regions:
    """The regions in a folder, mapped into memory. Without `checked`, they are trusted: this process wrote them."""
    folder, limits = as_path(path), started(limits)
    facts = _read_header(folder, limits)
    if facts["geometry"] is None:
        raise InputError(f"{folder} holds no regions yet; the same call of regions(out=...) goes on")
    try:
        fixed = read_npz(folder / _CONSTANTS, limits)
        net, domain, kind = read_head(fixed, facts["geometry"], folder.name, limits)
        arrays: Arrays = {n: fixed[n] for n in fixed if n.startswith("cells.")}
        for name, (dtype, tail, rows) in facts["arrays"].items():
            file = folder / f"{name}-{'x'.join(map(str, tail)) or 1}.bin"
            if rows and file.stat().st_size < rows * np.dtype(dtype).itemsize * math.prod(tail):
                raise ValueError(f"{file.name} is cut short")
            arrays[name] = _mapped(file, dtype, tuple(tail), rows)
        n = facts["regions"]
        pattern, maps = arrays["pattern"], arrays["maps"]
        if pattern.shape != (n, net.n_units) or pattern.dtype != np.uint8:
            raise ValueError("pattern")
        if maps.shape != (n, net.n_inputs + 1, net.n_outputs) or maps.dtype != np.float64:
            raise ValueError("maps")
        sizes = {"n": n, "m": n + 1, "d": net.n_inputs, "2d": 2 * net.n_inputs, "2": 2}
        cells = rebuilt(kind, arrays, "cells", sizes)
        found = Regions(net, domain, cells, pattern, maps, facts["stopped"] or None, facts["doubt"] or None)
        if checked:
            check_indices(cells, first_labels(net)[-1], _AT_ONCE)
            sample = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))
            if not np.array_equal(net.pattern(cells.take(sample).interior()), pattern[sample]):
                raise ValueError("its cells do not fit its network")
    except InputError as error:
        raise type(error)(f"{folder} is damaged: {error}") from error
    except Exception as error:  # what does not fit together shows in numpy or in a kernel, by errors of many kinds
        raise InputError(f"{folder} is not a folder of regions, or it is damaged: {str(error)[:100]}") from error
    return found


def _read_header(folder: Path, limits: Limits) -> dict[str, Any]:
    facts = parse_json(read_text(folder / _HEADER, limits=limits), f"{folder / _HEADER}")
    if not isinstance(facts, dict) or facts.get("kind") != _KIND or facts.get("format") != _FORMAT:
        raise InputError(f"{folder} is not a folder of regions of this version; name another one")
    wanted: dict[str, Any] = {
        "question": dict,
        "geometry": (str, type(None)),
        "regions": int,
        "finished": bool,
        "stopped": str,
        "doubt": str,
        "doubts": list,
        "trail": list,
        "arrays": dict,
    }
    arrays = facts.get("arrays") or {}
    if not all(isinstance(facts.get(name), kind) for name, kind in wanted.items()) or not all(
        map(_is_array, arrays.values())
    ):
        raise InputError(f"{folder / _HEADER} is damaged")
    if not _whole([facts["regions"], *facts["doubts"], *facts["trail"]]) or len(facts["trail"]) % 2:
        raise InputError(f"{folder / _HEADER} is damaged")
    if any("/" in name or "\\" in name or name.startswith(".") for name in arrays):
        raise InputError(f"{folder / _HEADER} is damaged: it names files elsewhere")
    return facts


def _is_array(facts: Any) -> bool:
    """Whether these are the type of an array, the lengths of its rows, and their number."""
    if not (isinstance(facts, list) and len(facts) == 3 and isinstance(facts[1], list)):
        return False
    return (
        facts[0] in ("|u1", "<f8", "<i4", "<i8", "<u8") and _whole([*facts[1], facts[2]]) and min(facts[1] + [0]) >= 0
    )


def _whole(numbers: list[Any]) -> bool:
    return all(isinstance(x, int) and not isinstance(x, bool) and -(2**40) < x < 2**60 for x in numbers)


def _question(net: Network, domain: Domain, geometry: str) -> dict[str, str]:
    """Digests of what is looked for: a folder about anything else is refused."""
    arrays = head(net, domain)
    inner = {name: array for name, array in arrays.items() if not name.startswith(("box.", "rows."))}
    outer = {name: array for name, array in arrays.items() if name.startswith(("box.", "rows."))}
    return {"network": _digest(inner), "box, polytope or law": _digest(outer), "geometry": geometry}


def _digest(arrays: Arrays) -> str:
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape};".encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


def _same_question(path: Path, facts: dict[str, Any], question: dict[str, str]) -> None:
    for part, digest in question.items():
        if facts["question"].get(part) != digest:
            raise InputError(
                f"{path} has the regions of another {part} than this call; look for the same ones again, or name "
                "a new folder"
            )
    if facts.get("version") != __version__ and not facts["finished"]:
        raise InputError(
            f"the search in {path} was begun by version {facts.get('version')} of reluscope, this is "
            f"{__version__}; name a new folder"
        )
