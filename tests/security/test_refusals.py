"""Untrusted files: what must be refused, before anything in them is run, fetched, followed or unpacked."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from reluscope._files import atomic_write, read_bytes, read_text
from reluscope.errors import InputError, InputLimitError, UnsupportedError
from reluscope.formats import load, save
from reluscope.formats.vnnlib import vnnlib
from reluscope.limits import Limits
from reluscope.network import Network


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


NAMES = [
    "m.npz",
    "m.safetensors",
    "m.pt",
    "m.pth",
    "m.onnx",
    "m.pkl",
    "m.pickle",
    "m.joblib",
    "m.keras",
    "m.h5",
    "m.npy",
    "m",
]


@pytest.mark.parametrize("name", NAMES)
def test_pickles_are_never_loaded_whatever_they_are_called(tmp_path: Path, name: str) -> None:
    if name.endswith((".pt", ".pth")):
        pytest.importorskip("torch")
    if name.endswith(".onnx"):
        pytest.importorskip("onnx")
    mark = tmp_path / "mark"
    (tmp_path / name).write_bytes(pickle.dumps(Evil(mark)))
    with pytest.raises(InputError) as caught:
        load(tmp_path / name)
    assert not mark.exists() and "\n" not in str(caught.value)


def test_pickles_inside_npz_are_never_loaded(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    array = np.empty(1, dtype=object)
    array[0] = Evil(mark)
    np.savez(tmp_path / "a.npz", W0=array)
    with pytest.raises(InputError, match="never read"):
        load(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("W0.npy", pickle.dumps(Evil(mark)))
    with pytest.raises(InputError):
        load(tmp_path / "b.npz")
    assert not mark.exists()


def test_headers_of_npy_members_are_not_evaluated(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': (__import__('pathlib').Path('{mark}').touch(),)}}\n"
    member = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("W0.npy", member)
    with pytest.raises(InputError, match="header"):
        load(tmp_path / "a.npz")
    assert not mark.exists()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_headers_of_any_length_are_refused(tmp_path: Path, version: tuple[int, int]) -> None:
    size = 60_000 if version == (1, 0) else 5_000_000
    header = b"{'descr': '<f8', 'shape': (" + b"1," * (size // 2) + b")}\n"
    member = b"\x93NUMPY" + bytes(version) + len(header).to_bytes(2 if version == (1, 0) else 4, "little") + header
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("W0.npy", member)
    with pytest.raises(InputError):
        load(tmp_path / "a.npz")


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_bombs_are_refused_within_little_memory(tmp_path: Path) -> None:
    """An archive of 1 MB that unpacks to 240 MB and headers that ask for terabytes: memory stays small."""
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("W0.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (30, 1 << 20)})
        zeros = bytes(1 << 23)
        for _ in range(30):
            member.write(zeros)
    lie = io.BytesIO()
    np.lib.format.write_array_header_1_0(lie, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("W0.npy", lie.getvalue() + bytes(80))
    small = io.BytesIO()
    np.lib.format.write_array_header_1_0(small, {"descr": "<f8", "fortran_order": False, "shape": (10**4, 10**4)})
    with zipfile.ZipFile(tmp_path / "small_lie.npz", "w") as archive:
        archive.writestr("W0.npy", small.getvalue() + bytes(80))
    code = """
import resource, sys, time, pathlib
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from reluscope.formats import load
from reluscope.errors import InputLimitError
from reluscope.limits import Limits
import reluscope.formats.arrays
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in ("bomb.npz", "lie.npz", "small_lie.npz"):
    start = time.perf_counter()
    try: load(pathlib.Path(sys.argv[1]) / name, limits=Limits(file_bytes=200_000_000))
    except InputLimitError: print("refused", time.perf_counter() - start < 10)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000)  # kilobytes
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=100, env=environment
    )
    assert done.stdout.split() == ["refused", "True"] * 3 + ["True"], done.stdout + done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.npz"
    if kind == "pipe":
        os.mkfifo(path)  # opening it would wait for a writer for ever
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path)
    start = time.perf_counter()
    with pytest.raises(InputError):
        load(path)
    with pytest.raises(InputError):
        vnnlib(path)
    assert time.perf_counter() - start < 10


def test_size_is_checked_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "big.npz"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: a terabyte that takes no room
    start = time.perf_counter()
    for suffix in (".npz", ".safetensors", ".vnnlib"):
        named = tmp_path / f"big{suffix}"
        if not named.exists():
            named.symlink_to(path)
        with pytest.raises(InputLimitError, match=r"Limits\(file_bytes="):
            vnnlib(named) if suffix == ".vnnlib" else load(named)
    assert time.perf_counter() - start < 10


def test_gzip_bombs_stop_at_the_limit(tmp_path: Path) -> None:
    once = gzip.compress(bytes(4_000_000))
    (tmp_path / "a.gz").write_bytes(once)
    (tmp_path / "b.gz").write_bytes(once * 50)
    for name in ("a.gz", "b.gz"):
        with pytest.raises(InputLimitError, match="unpacked"):
            read_text(tmp_path / name, limits=Limits(file_bytes=1_000_000))
    assert len(read_text(tmp_path / "a.gz")) == 4_000_000
    assert read_bytes(tmp_path / "a.gz") == once


def test_archive_names_lead_nowhere(tmp_path: Path) -> None:
    member = io.BytesIO()
    np.lib.format.write_array(member, np.ones((1, 1)))
    for name in ("../../evil.npy", "/etc/evil.npy", "W0\0.npy", "C:\\evil.npy"):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr(zipfile.ZipInfo(name), member.getvalue())
        with pytest.raises(InputError):
            if "\0" in name:
                # zipfile cuts names at NUL, so this reads as W0 without its ending
                load(tmp_path / "a.npz", activation="nonsense")
            else:
                load(tmp_path / "a.npz")
    assert {p.name for p in tmp_path.iterdir()} == {"a.npz"}


def test_encrypted_and_exotic_archives(tmp_path: Path) -> None:
    member = io.BytesIO()
    np.lib.format.write_array(member, np.ones((1, 1)))
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
            archive.writestr("W0.npy", member.getvalue())
        assert load(tmp_path / "a.npz").widths == (1, 1)  # still an ordinary archive
    data = bytearray((tmp_path / "a.npz").read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1  # says it is encrypted
    data[6] |= 1
    (tmp_path / "a.npz").write_bytes(bytes(data))
    with pytest.raises(InputError):
        load(tmp_path / "a.npz")


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bytes_never_escape_as_other_errors(tmp_path: Path, seed: int) -> None:
    """A damaged file is read (when the damage is harmless) or refused by one of our own errors."""
    rng = np.random.default_rng(seed)
    net = Network([(rng.normal(size=(3, 2)), None), (rng.normal(size=(1, 3)), None)])
    names = ["a.npz"]
    try:
        import safetensors  # noqa: F401

        names.append("a.safetensors")
    except ImportError:
        pass
    for name in names:
        save(net, tmp_path / name)
        data = bytearray((tmp_path / name).read_bytes())
        for at in rng.integers(len(data), size=rng.integers(1, 6)):
            data[at] = rng.integers(256)
        if rng.random() < 0.3:
            data = data[: rng.integers(len(data))]
        (tmp_path / name).write_bytes(bytes(data))
        try:
            read = load(tmp_path / name)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert np.isfinite(read(np.zeros(2))).all()


def test_live_objects_only_for_keras_and_modules(tmp_path: Path) -> None:
    for name in ("m.keras", "m.h5", "m.joblib"):
        with pytest.raises(UnsupportedError, match="object"):
            load(tmp_path / name)  # refused by name: the file is not even opened


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_write(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    with atomic_write(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    (tmp_path / "a.npz").symlink_to(target)
    save(Network([(np.ones((1, 1)), None)]), tmp_path / "a.npz")
    assert target.read_bytes() == b"precious" and not (tmp_path / "a.npz").is_symlink()
