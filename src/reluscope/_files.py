"""Reading untrusted files within limits, and writing files whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import IO

from reluscope._check import describe
from reluscope.errors import InputError
from reluscope.limits import DEFAULT_LIMITS, Limits

_GZIP = b"\x1f\x8b"
_ZIP_ENTRY = b"PK\x01\x02"


def as_path(path: str | PathLike[str], name: str = "path") -> Path:
    """`path` as a Path; refuses anything else, empty text and NUL bytes."""
    if not isinstance(path, (str, PathLike)):
        raise InputError(f"{name} must be a path, got {describe(path)}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"{name} must be a non-empty path without NUL characters, got {describe(text)}")
    return Path(text)


def read_bytes(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS, inflate: bool = False) -> bytes:
    """The content of a regular file of at most `limits.file_bytes` bytes; the size is checked before reading.

    With `inflate`, a gzip file is unpacked, within the same limit. Devices, pipes and folders are refused
    without being opened.
    """
    file = as_path(path)
    try:
        status = file.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{file} is a folder; name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{file} is not a regular file")
        limits.check("file_bytes", status.st_size, str(file))
        with file.open("rb") as handle:
            # One byte more than it had: a file that grows while it is read is caught as well.
            data = handle.read(min(status.st_size, limits.file_bytes) + 1)
    except FileNotFoundError as error:
        raise InputError(f"there is no file {file} (in {Path.cwd()}); check the path") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(data) > status.st_size:
        raise InputError(f"{file} grew while it was read; wait until it is written")
    if inflate and data.startswith(_GZIP):
        return _gunzip(data, limits, str(file))
    return data


def check_zip(data: bytes, limits: Limits, what: str) -> None:
    """Refuse a zip archive with too many members or too much content, by its directory alone."""
    # Each entry of the directory starts with this mark; counting it first keeps zipfile from building millions.
    limits.check("tensors", data.count(_ZIP_ENTRY), what)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            total = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise InputError(f"{what} is damaged or cut short: {str(error)[:120]}") from error
    limits.check("file_bytes", total, f"{what}, unpacked,")


def _gunzip(data: bytes, limits: Limits, what: str) -> bytes:
    """Unpack gzip data (any number of members) without ever holding more than the limit plus one byte."""
    parts: list[bytes] = []
    total = 0
    while data:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            part = unpacker.decompress(data, limits.file_bytes + 1 - total)
        except zlib.error as error:
            raise InputError(f"{what} is damaged: {error}") from error
        total += len(part)
        limits.check("file_bytes", total, f"{what}, unpacked,")
        if not unpacker.eof:
            raise InputError(f"{what} is cut short: the gzip data does not end")
        parts.append(part)
        data = unpacker.unused_data
    return b"".join(parts)


@contextlib.contextmanager
def atomic_write(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary handle whose content becomes `path` only when the block ends well.

    The bytes go to a temporary file in the same folder, which then replaces `path` in one step. On any error
    the temporary file is removed and an earlier `path` stays as it was.
    """
    file = as_path(path)
    try:
        number, temporary = tempfile.mkstemp(prefix=f".{file.name[:100]}.", suffix=".part", dir=file.parent)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror or error}") from error
    try:
        with os.fdopen(number, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        # mkstemp makes files that only their owner may read; a saved network gets the usual permissions.
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(file)
    except OSError as error:
        _remove(temporary)
        raise InputError(f"{file} cannot be written: {error.strerror or error}") from error
    except BaseException:
        _remove(temporary)
        raise


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).unlink()


def looks_like(data: bytes) -> str:
    """What the first bytes look like, for an error message."""
    start = data[:64].lstrip().lower()
    if not data:
        return ": it is empty"
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return ": it looks like a web page; was the download complete?"
    if data.startswith(b"PK"):
        return ": it looks like a zip archive (npz, pt or keras)"
    if data.startswith(b"\x89HDF"):
        return ": it looks like an HDF5 file (keras); pass the live model object"
    if data.startswith((b"\x80", b"(dp")):
        return ": it looks like a Python pickle, which is never loaded"
    if data.startswith(b"\x93NUMPY"):
        return ": it looks like a single .npy array; save weights and biases with numpy.savez"
    if data.startswith(b"version https://git-lfs"):
        return ": it is a Git LFS pointer; fetch the real file with git lfs pull"
    return ""
