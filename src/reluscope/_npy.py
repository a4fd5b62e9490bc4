"""Arrays of numbers in `.npy` and `.npz` files, which are untrusted.

Nothing is unpickled or evaluated: a header must say, in the words that numpy writes, what numbers follow. What they
become in memory is counted against `Limits` before they are unpacked, and all of a file must be the array.
"""

from __future__ import annotations

import ast
import io
import math
import re
import zipfile
from os import PathLike
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from reluscope._files import as_path, check_zip, looks_like, open_regular, read_bytes
from reluscope.errors import InputError, InputLimitError
from reluscope.limits import DEFAULT_LIMITS, Limits

Arrays = dict[str, npt.NDArray[Any]]

_MAGIC = b"\x93NUMPY"
_HEADER_BYTES = 10_000
"""Longest header that is read (numpy's own limit); what is longer describes no plain array."""
_HEADER = re.compile(r"[\w\s'\"<>|=?,:(){}\[\]]*", re.ASCII)
_NUMBERS = re.compile(r"[<>|=]?(?:[iu][1248]|f(?:[248]|16)|b1|\?)", re.ASCII)


def read_npy(path: str | PathLike[str], limits: Limits = DEFAULT_LIMITS) -> npt.NDArray[Any]:
    """The array of an npy file."""
    with open_regular(path, limits) as (handle, size):
        return _read_array(handle, size, as_path(path).name, "", limits, 0)


def read_npz(path: str | PathLike[str], limits: Limits = DEFAULT_LIMITS) -> Arrays:
    """All arrays of an npz archive. Every size is checked against what the archive really holds."""
    data, what = read_bytes(path, limits=limits), as_path(path).name
    if not data.startswith(b"PK"):
        raise InputError(f"{what} is not an npz archive{looks_like(data)}")
    check_zip(data, limits, what)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _read_members(archive, limits, what)
    except InputError:
        raise
    except MemoryError as error:
        raise InputLimitError(f"{what} needs more memory than there is") from error
    except Exception as error:  # zipfile lets errors of many kinds through: seeks, unpacking, text, numbers
        raise InputError(f"{what} is damaged or not an npz archive: {str(error)[:120]}") from error


def quoted(name: str) -> str:
    """A name from a file, for a message."""
    return repr(name if len(name) <= 60 else name[:57] + "...")


def _read_members(archive: zipfile.ZipFile, limits: Limits, what: str) -> Arrays:
    found: Arrays = {}
    elements = 0
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in found:
            problem = "twice" if name in found else "which is not an array (.npy)"
            raise InputError(f"{what} holds {quoted(member.filename)} {problem}; is it an npz file of arrays?")
        with archive.open(member) as stream:
            found[name] = _read_array(stream, member.file_size, what, name, limits, elements)
        elements += -(-found[name].nbytes // 8)
    return found


def _read_array(stream: IO[bytes], size: int, what: str, name: str, limits: Limits, elements: int) -> npt.NDArray[Any]:
    """The array in a stream of `size` bytes; `elements` (of 8 bytes) are held already."""
    label = f"{quoted(name)} in {what}" if name else what
    start, shape, fortran, dtype = _header(stream, what, label)
    count = math.prod(shape)
    limits.check("elements", elements + -(-count * dtype.itemsize // 8), what)
    limits.check("elements", max(shape, default=0), f"{label}, along one axis,")
    # All of the stream must be the array, so a header cannot ask for more than is there.
    if start + count * dtype.itemsize != size:
        raise InputLimitError(
            f"{label} claims shape {shape} of {dtype}, which is not the "
            f"{size - start:,} bytes it holds; the file is damaged or forged"
        )
    raw = stream.read(count * dtype.itemsize)
    if len(raw) != count * dtype.itemsize:
        raise InputError(f"{what} is cut short: {label} ends early")
    stream.read(1)  # reaching the end makes zipfile compare the checksum
    try:
        return np.frombuffer(raw, dtype=dtype).reshape(shape, order="F" if fortran else "C")
    except ValueError as error:  # no entries, and other axes too long for numpy to multiply
        raise InputError(f"{what} is damaged: {label} claims shape {shape}") from error


def _header(stream: IO[bytes], what: str, label: str) -> tuple[int, tuple[int, ...], bool, np.dtype[Any]]:
    """Length of the header, and the shape, the order (column by column) and the type that it claims."""
    damaged = InputError(f"{what} is damaged: the header of {label} cannot be read")
    begin = stream.read(8)
    if begin[:6] != _MAGIC:
        guess = looks_like(begin + stream.read(56))
        raise InputError(f"{what} is damaged: the header of {label} is not that of an .npy array{guess}")
    width = {1: 2, 2: 4, 3: 4}.get(begin[6]) if len(begin) == 8 and begin[7] == 0 else None
    if width is None:
        raise damaged
    length = int.from_bytes(stream.read(width), "little")
    text = stream.read(length).decode("latin-1") if length <= _HEADER_BYTES else "-"
    # Only names, numbers, quotes and brackets, and few brackets: then parsing is cheap and cannot go deep.
    if len(text) != length or not _HEADER.fullmatch(text) or sum(map(text.count, "([{")) > 100:
        raise damaged
    try:
        facts = ast.literal_eval(re.sub(r"(?<=[0-9])L\b", "", text.strip()))  # Python 2 wrote 3L
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise damaged from error
    if not isinstance(facts, dict) or facts.keys() != {"descr", "fortran_order", "shape"}:
        raise damaged
    shape, kind = facts["shape"], facts["descr"]
    if not isinstance(facts["fortran_order"], bool) or not isinstance(shape, tuple) or len(shape) > 32:
        raise damaged
    if not all(type(n) is int and 0 <= n < 2**62 for n in shape):
        raise damaged
    if not isinstance(kind, str) or not _NUMBERS.fullmatch(kind):
        raise InputError(f"{label} holds {quoted(str(kind))}, not numbers; pickled objects are never read from files")
    try:
        return 8 + width + length, shape, facts["fortran_order"], np.dtype(kind)
    except TypeError as error:  # a precision that this machine does not have
        raise damaged from error
