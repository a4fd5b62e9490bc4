"""Reading untrusted files within limits, and writing files whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
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
from reluscope._lazy import late
from reluscope.errors import InputError, InputTypeError
from reluscope.limits import DEFAULT_LIMITS, Limits

_GZIP = b"\x1f\x8b"
_ZIP_ENTRY = b"PK\x01\x02"
_AT_ONCE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CHUNK = 1 << 20
"""Bytes that are unpacked at a time."""


def as_path(path: str | PathLike[str], name: str = "path") -> Path:
    """`path` as a Path; refuses anything else, empty text and NUL bytes."""
    if not isinstance(path, (str, PathLike)):
        raise InputTypeError(f"{name} must be a path, got {describe(path)}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"{name} must be a non-empty path without NUL characters, got {describe(text)}")
    return Path(text)


def make_folder(path: str | PathLike[str], name: str = "folder") -> Path:
    """The folder `path`, made if it does not exist."""
    folder = as_path(path, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{name} {str(folder)!r} cannot be made: {error.strerror or error}") from error
    return folder


@contextlib.contextmanager
def open_regular(path: str | PathLike[str], limits: Limits) -> Iterator[tuple[IO[bytes], int]]:
    """An open regular file and its size, which is checked first. Devices, pipes and folders are refused unopened."""
    file = as_path(path)
    try:
        _check_regular(file, file.stat().st_mode)
        # The name may lead elsewhere by now: opened without waiting for a writer of a pipe, then looked at again.
        with os.fdopen(os.open(file, _AT_ONCE), "rb") as handle:
            status = os.fstat(handle.fileno())
            _check_regular(file, status.st_mode)
            limits.check("file_bytes", status.st_size, str(file))
            yield handle, status.st_size
    except FileNotFoundError as error:
        raise InputError(f"there is no file {file} (in {Path.cwd()}); check the path") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from error


def _check_regular(file: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise InputError(f"{file} is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        raise InputError(f"{file} is not a regular file")


def read_bytes(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The content of a regular file of at most `limits.file_bytes` bytes; the size is checked before reading."""
    with open_regular(path, limits) as (handle, size):
        # One byte more than it had: a file that grows while it is read is caught as well.
        data = handle.read(size + 1)
    if len(data) > size:
        raise InputError(f"{as_path(path)} grew while it was read; wait until it is written")
    return data


def file_digest(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> str:
    """SHA-256 of the bytes of a regular file."""
    digest = hashlib.sha256()
    with open_regular(path, limits) as (handle, _):
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read_text(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> str:
    """The text of a regular file (UTF-8, gzip too) of at most `limits.text_bytes` bytes once unpacked."""
    file = as_path(path)
    with open_regular(file, limits) as (handle, size):
        packed = handle.read(len(_GZIP)) == _GZIP
        if not packed:
            limits.check("text_bytes", size, str(file))
        handle.seek(0)
        data = _gunzip(handle, limits, str(file)) if packed else handle.read(size + 1)
    if not data.isascii():
        limits.check("text_bytes", 4 * len(data), f"{file.name} (letters beyond ASCII count four times)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name} is not a text file: byte {error.start} is not UTF-8") from error


@contextlib.contextmanager
def unpacked(path: str | PathLike[str], limits: Limits) -> Iterator[Path]:
    """The content of a gzip file under its name without .gz, in a folder that ends with the block."""
    file = as_path(path)
    with open_regular(file, limits) as (handle, _):
        data = _gunzip(handle, limits, str(file))
    with tempfile.TemporaryDirectory(prefix="reluscope-") as folder:
        out = Path(folder) / file.stem
        out.write_bytes(data)
        yield out


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


def _gunzip(packed: IO[bytes], limits: Limits, what: str) -> bytes:
    """Unpack gzip data (any number of members), in chunks, never holding more than the limit and one chunk."""
    out = io.BytesIO()
    unpacker = zlib.decompressobj(wbits=31)
    data = b""
    while data := data or packed.read(_CHUNK >> 4):
        if unpacker.eof:
            unpacker = zlib.decompressobj(wbits=31)
        try:
            out.write(unpacker.decompress(data, _CHUNK))
        except zlib.error as error:
            raise InputError(f"{what} is damaged: {error}") from error
        limits.check("file_bytes", out.tell(), f"{what}, unpacked,")
        limits.check("text_bytes", out.tell(), f"{what}, unpacked,")
        data = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    if not unpacker.eof:
        raise InputError(f"{what} is cut short: the gzip data does not end")
    return out.getvalue()


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


@contextlib.contextmanager
def only_writer(file: Path, taken: str) -> Iterator[None]:
    """Nobody else writes to `file`: held by a lock of the system, which ends with the process however that ends.

    `taken` begins the message if somebody does.
    """
    sqlite3 = late("sqlite3")
    lock = file.with_name(f"{file.name}.lock")
    try:
        held = sqlite3.connect(lock, timeout=0, isolation_level=None)
        held.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise InputError(f"{taken} {file}; wait for it, or name another") from error
        raise InputError(f"{file} cannot be written: {error}") from error
    try:
        yield
    finally:
        held.close()
        with contextlib.suppress(OSError):
            lock.unlink()


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
