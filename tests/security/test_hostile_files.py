"""Files made to crash, hang or exhaust: each gets one of our own errors, soon, and within little memory.

Each file is read with the default limits (but for the clock, so that the tests are short) in a sandbox that has 2 GB.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reluscope as rs
from readers import READERS, Sandbox, outcome
from reluscope._tables import read_csv
from reluscope.errors import InputError, InputLimitError
from reluscope.formats.arrays import write_npz

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs forks and /proc")

CLOCK = 3.0
"""Seconds that a reader gets here."""
LATE = 20.0
"""Seconds after which an answer is too late: a busy machine may take its time."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    box = Sandbox()
    yield box
    box.close()


def refused(
    sandbox: Sandbox, reader: str, path: Path, words: str = "", megabytes: float = 700, **limits: float
) -> None:
    """The file is refused with one of our own errors, in time, within `megabytes`."""
    found = sandbox.read(reader, path, **{"seconds": CLOCK, **limits})
    assert found["kind"] in ("InputError", "InputLimitError", "UnsupportedError"), found
    assert words in found["said"] or "reading stopped" in found["said"], found  # a busy machine is slow
    assert found["seconds"] < LATE, found
    assert found["megabytes"] < megabytes, found


def packed(path: Path, text: bytes, times: int) -> Path:
    """A gzip file of `times` members: gigabytes of text in a moment."""
    path.write_bytes(gzip.compress(text * ((1 << 24) // len(text)), 1) * times)
    return path


def npy(header: str | bytes, body: bytes = b"", version: int = 1) -> bytes:
    text = header if isinstance(header, bytes) else header.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + body


def array_header(shape: tuple[int, ...], kind: str = "<f8") -> str:
    return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n"


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
        for name, data in members.items():
            zipped.writestr(name, data)
    return path


# -- arrays --------------------------------------------------------------------------------------------------------


def test_an_archive_whose_directory_points_before_its_start(sandbox: Sandbox, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", W0=np.ones((2, 2)))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    at = data.rindex(b"PK\x05\x06") + 16
    for off in (1, 5, 20):
        moved = bytearray(data)
        struct.pack_into("<I", moved, at, struct.unpack_from("<I", data, at)[0] + off)
        (tmp_path / "a.npz").write_bytes(bytes(moved))
        for reader in ("load", "regions", "merged", "surrogate", "frames"):
            refused(sandbox, reader, tmp_path / "a.npz", "damaged")


BAD_HEADERS = [
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3,4",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), \n\"\"\"",
    "(" * 500,
    "-" * 5000 + "1",
    "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}",
    "{'descr': '<f8', 'fortran_order': 0, 'shape': (1,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': '<f8', 'fortran_order': False}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999999999999999,)}",
    "0x",
    "",
    b"\xff\xfe\x00".decode("latin-1"),
]


@pytest.mark.parametrize("number", range(len(BAD_HEADERS)))
def test_headers_of_arrays_that_cannot_be_read(sandbox: Sandbox, tmp_path: Path, number: int) -> None:
    data = npy(BAD_HEADERS[number].encode("latin-1"), bytes(96))
    (tmp_path / "a.npy").write_bytes(data)
    archive(tmp_path / "a.npz", {"W0.npy": data})
    for reader, name in (("points", "a.npy"), ("frames", "a.npy"), ("load", "a.npz"), ("regions", "a.npz")):
        refused(sandbox, reader, tmp_path / name)


def test_the_command_line_names_a_bad_array(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from reluscope.cli import main

    rs.Network([([[1.0, 1.0]], [0.0]), ([[1.0]], [0.0])]).save(tmp_path / "net.npz")
    (tmp_path / "a.npy").write_bytes(npy(BAD_HEADERS[0]))
    assert main(["layers", str(tmp_path / "net.npz"), "--data", str(tmp_path / "a.npy")]) == 2
    said = capsys.readouterr().err
    assert "header of a.npy" in said and "Traceback" not in said


@pytest.mark.parametrize("shape", [(2**40, 0), (0, 2**40), (2**30, 2**30, 0), (2**62, 2**62)])
def test_arrays_without_entries_but_with_long_axes(sandbox: Sandbox, tmp_path: Path, shape: tuple[int, ...]) -> None:
    data = npy(array_header(shape))
    (tmp_path / "a.npy").write_bytes(data)
    archive(tmp_path / "a.npz", {"W0.npy": data})
    refused(sandbox, "points", tmp_path / "a.npy")
    refused(sandbox, "load", tmp_path / "a.npz")
    header = {"W0": {"dtype": "F64", "shape": list(shape), "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    refused(sandbox, "load", tmp_path / "a.safetensors")


def test_a_network_without_inputs_is_refused_before_its_biases_are_made() -> None:
    with pytest.raises(InputError, match="at least one input"):
        rs.Network([(np.zeros((2**40, 0)), None)])


@pytest.mark.parametrize("members", [1, 8])
def test_archives_that_unpack_to_gigabytes(sandbox: Sandbox, tmp_path: Path, members: int) -> None:
    """4.8 GB of zeros in 5 MB: the sizes in the directory are added up first."""
    count = 600_000_000 // members // 8
    zeros = npy(array_header((1, count))) + bytes(8 * count)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
        for i in range(members):
            zipped.writestr(f"W{i}.npy", zeros)
    for reader in ("load", "regions", "merged", "frames"):
        refused(sandbox, reader, tmp_path / "a.npz", "file_bytes", megabytes=100)


def test_archives_whose_members_lie_about_their_size(sandbox: Sandbox, tmp_path: Path) -> None:
    zeros = npy(array_header((1, 1 << 24)), bytes(8 << 24))
    data = bytearray(archive(tmp_path / "a.npz", {"W0.npy": zeros}).read_bytes())
    for mark, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        struct.pack_into("<I", data, data.index(mark) + at, 1000)
    (tmp_path / "a.npz").write_bytes(bytes(data))
    refused(sandbox, "load", tmp_path / "a.npz", megabytes=100)


def test_half_precision_counts_as_what_it_becomes(sandbox: Sandbox, tmp_path: Path) -> None:
    archive(tmp_path / "a.npz", {"W0.npy": npy(array_header((1, 1 << 27), "<f2"), bytes(2 << 27))})
    refused(sandbox, "load", tmp_path / "a.npz", "elements", megabytes=700)


def test_tables_of_activations_are_counted_by_unit(sandbox: Sandbox, tmp_path: Path) -> None:
    """A million units that all have 255 pieces: small in the file, gigabytes as tables."""
    from reluscope.formats.arrays import network_to_arrays

    steps = np.arange(254.0)
    many = rs.Activation(tuple(steps), (0.0,) * 255, (0.0,) * 255, "steps")
    header, arrays = network_to_arrays(rs.Network([(np.ones((1, 1)), None, [many]), (np.ones((1, 1)), None)]))
    width = 1_000_000
    arrays |= {"W0": np.ones((width, 1)), "b0": np.zeros(width), "k0": np.zeros(width, np.int64)}
    arrays |= {"W1": np.ones((1, width))}
    write_npz({"reluscope": np.frombuffer(header.encode(), np.uint8), **arrays}, tmp_path / "a.npz")
    refused(sandbox, "load", tmp_path / "a.npz", "activations", megabytes=200)


# -- saved regions and merged models -------------------------------------------------------------------------------


def changes(array: Any) -> list[Any]:
    """Arrays in the place of another one: other types, shapes, lengths and contents."""
    n = array.size
    out = [np.float64(1.5), np.zeros(0), np.zeros((2, 2)), array.astype(np.float32), array.astype(bool), array[:-1]]
    out += [np.stack([array, array]), array.ravel()[::-1].reshape(array.shape), np.full(array.shape, 200, np.uint8)]
    if array.dtype.kind in "iu" and array.dtype.itemsize > 1:
        out += [array + array.dtype.type(1000), array * 0 - array.dtype.type(1) if array.dtype.kind == "i" else ~array]
    if array.dtype.kind == "f" and n:
        out += [array * np.nan, array * 1e300]
    return out


def check_every_change(reader: str, good: dict[str, Any], path: Path) -> None:
    """Files with one array replaced or left out are read or refused (in this process: nothing here is large)."""
    tried = refusals = 0
    for name, array in good.items():
        if array.ndim == 0:
            continue
        for change in changes(array):
            write_npz(good | {name: np.asarray(change)}, path)
            refusals += outcome(reader, path, rs.Limits(seconds=CLOCK)) != "read"
            tried += 1
        write_npz({k: v for k, v in good.items() if k != name}, path)
        outcome(reader, path, rs.Limits(seconds=CLOCK))
    assert tried > 100 and refusals > 0.7 * tried


@pytest.mark.parametrize("inputs", [1, 2, 3, 7])
def test_changed_files_of_regions(tmp_path: Path, inputs: int) -> None:
    from reluscope._npy import read_npz

    rng = np.random.default_rng(inputs)
    net = rs.Network([(rng.normal(size=(4, inputs)), rng.normal(size=4)), (rng.normal(size=(1, 4)), None)])
    rs.regions(net, (-1, 1), progress=None).save(tmp_path / "good.npz")
    assert outcome("regions", tmp_path / "good.npz", rs.Limits()) == "read"
    check_every_change("regions", read_npz(tmp_path / "good.npz"), tmp_path / "bad.npz")


def test_changed_files_of_merged_models(tmp_path: Path) -> None:
    from reluscope._npy import read_npz

    rng = np.random.default_rng(0)
    net = rs.Network([(rng.normal(size=(4, 2)), rng.normal(size=4)), (rng.normal(size=(1, 4)), None)])
    X = rng.normal(size=(60, 2))
    rs.unwrap(net, X, net(X)).merge(2, penalty=0.0).save(tmp_path / "good.npz")
    assert outcome("merged", tmp_path / "good.npz", rs.Limits()) == "read"
    good = read_npz(tmp_path / "good.npz")
    check_every_change("merged", good, tmp_path / "bad.npz")
    facts = json.loads(good["facts"].tobytes())
    for key in facts:
        for value in (None, 7, "text", [], {}, [[]], [None], [1, 2, 3], -1e300):
            text = json.dumps(facts | {key: value}).encode()
            write_npz(good | {"facts": np.frombuffer(text, np.uint8)}, tmp_path / "bad.npz")
            outcome("merged", tmp_path / "bad.npz", rs.Limits(seconds=CLOCK))


# -- text ----------------------------------------------------------------------------------------------------------


def test_long_fields_and_odd_digits_in_tables(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1," + "9" * 200_000 + "\n")
    refused(sandbox, "csv", tmp_path / "a.csv", "field larger than field limit")
    (tmp_path / "a.csv").write_text('a,b\n1,"' + "9\n" * 200_000)
    refused(sandbox, "csv", tmp_path / "a.csv", "field larger than field limit")
    (tmp_path / "a.csv").write_text("x" * 200_000 + ",b\n1,2\n")
    refused(sandbox, "csv", tmp_path / "a.csv", "field larger than field limit")
    (tmp_path / "a.csv").write_text("a,b\n1,²\n")
    refused(sandbox, "csv", tmp_path / "a.csv", "must hold numbers")
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    for target in ("²", "٣", "1" * 5000):
        with pytest.raises(InputError, match="has no column"):
            read_csv(tmp_path / "b.csv", target=target)


def test_superscripts_in_the_names_of_frames(sandbox: Sandbox, tmp_path: Path) -> None:
    from PIL import Image

    for name in ("frame².png", "frame10.png", "frame9.png"):
        Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / name)
    assert sandbox.read("frames", tmp_path)["kind"] == ""


def test_tables_of_many_columns(sandbox: Sandbox, tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(100_000)]
    row = ",".join(["1"] * len(names))
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + f"{row}\n" * 5)
    found = sandbox.read("csv", tmp_path / "a.csv", seconds=CLOCK * 3)
    assert found["kind"] == "" and found["seconds"] < LATE, found
    rows = read_csv(tmp_path / "a.csv", features=names[::-1], drop=names[:1000])
    assert rows.X.shape == (5, 100_000)
    (tmp_path / "a.csv").write_text("1," * 3_000_000 + "1\n")
    refused(sandbox, "csv", tmp_path / "a.csv", "fields in a line")


def test_labels_are_counted_as_what_they_become(sandbox: Sandbox, tmp_path: Path) -> None:
    """One label of 100,000 letters makes an array of texts that long."""
    (tmp_path / "a.csv").write_text("y,a\n" + "z" * 100_000 + ",1\n" + "s,1\n" * 100_000)
    refused(sandbox, "labelled", tmp_path / "a.csv", "target column")


BLANKS = [
    ("vnnlib", "a.vnnlib.gz", b"   \n"),
    ("csv", "a.csv.gz", b"  \n\n"),
    ("points", "a.csv", b" \n"),
    ("law", "a.json", b" "),
]


@pytest.mark.parametrize(("reader", "name", "text"), BLANKS)
def test_a_gigabyte_of_packed_blanks(sandbox: Sandbox, tmp_path: Path, reader: str, name: str, text: bytes) -> None:
    refused(sandbox, reader, packed(tmp_path / name, text, 64), "text_bytes")


@pytest.mark.parametrize(("reader", "name", "text"), BLANKS)
def test_blanks_up_to_the_limit(sandbox: Sandbox, tmp_path: Path, reader: str, name: str, text: bytes) -> None:
    refused(sandbox, reader, packed(tmp_path / name, text, 15), megabytes=1000)


def test_packed_assertions(sandbox: Sandbox, tmp_path: Path) -> None:
    start = gzip.compress(b"(declare-const X_0 Real)(declare-const Y_0 Real)\n")
    for line in (b"(assert (<= Y_0 1.0))\n", b"(assert (<= X_0 1.0))\n", b"(assert (or (<= Y_0 1) (<= X_0 2)))\n"):
        path = packed(tmp_path / "a.vnnlib.gz", line, 64)
        path.write_bytes(start + path.read_bytes())
        refused(sandbox, "vnnlib", path, "text_bytes")
        path = packed(tmp_path / "a.vnnlib.gz", line, 15)
        path.write_bytes(start + path.read_bytes())
        refused(sandbox, "vnnlib", path, megabytes=1500)


def test_packed_numbers(sandbox: Sandbox, tmp_path: Path) -> None:
    refused(sandbox, "csv", packed(tmp_path / "a.csv.gz", b"1,2\n", 15), megabytes=1000)
    refused(sandbox, "points", packed(tmp_path / "a.csv", b"1 2\n", 15), megabytes=1000)
    for text in (b"[1],", b"[[]],", b'{"a":1},', b'"abc",'):
        path = packed(tmp_path / "a.json", text, 15)
        path.write_bytes(gzip.compress(b'{"law":"particles","points":[') + path.read_bytes() + gzip.compress(b"1]}"))
        refused(sandbox, "law", path, "values", megabytes=1000)


def test_a_gzip_file_of_many_small_parts(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"1,2\n") + gzip.compress(b"", 1) * 1_000_000)
    found = sandbox.read("csv", tmp_path / "a.csv.gz", seconds=CLOCK)
    assert found["kind"] in ("", "InputLimitError") and found["seconds"] < LATE, found


def test_letters_beyond_ascii_count_as_what_they_become(sandbox: Sandbox, tmp_path: Path) -> None:
    """One wide letter makes every letter of a text four bytes wide."""
    path = packed(tmp_path / "a.vnnlib.gz", b"(assert (<= Y_0 1.0))\n", 10)
    path.write_bytes(gzip.compress("; 😀\n".encode()) + path.read_bytes())
    refused(sandbox, "vnnlib", path, "ASCII", megabytes=500)


def test_numbers_with_equal_hashes(sandbox: Sandbox, tmp_path: Path) -> None:
    """Labels, bounds and conditions can be chosen so that a hash table becomes a list."""
    labels = [k * (2**61 - 1) for k in range(1, 100_001)]
    (tmp_path / "a.json").write_text(json.dumps({"law": "classes", "labels": labels, "weights": [1], "laws": []}))
    refused(sandbox, "law", tmp_path / "a.json", "laws must be a list")
    clause = "(-x[0] - {a}*y[0] <= {b} or -x[0] - {c}*y[0] <= {b})"
    (tmp_path / "event.txt").write_text(" and ".join(clause.format(a=1, c=2, b=b) for b in range(16)))
    refused(sandbox, "event", tmp_path / "event.txt", "reading stopped after")
    declared = "".join(f"(declare-const X_{i} Real)" for i in range(17)) + "(declare-const Y_0 Real)"
    either = "".join(f"(assert (or (<= X_{i} -1) (<= X_{i} -2)))\n" for i in range(16))
    (tmp_path / "a.vnnlib").write_text(f"{declared}\n{either}(assert (<= Y_0 0))")
    refused(sandbox, "vnnlib", tmp_path / "a.vnnlib", "reading stopped after", megabytes=1000)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_regular_files_are_read(sandbox: Sandbox, tmp_path: Path, kind: str) -> None:
    names = {"law": "a.json", "vnnlib": "a.vnnlib", "csv": "a.csv", "points": "a.npy", "load": "a.onnx"}
    names |= {"frames": "a.npz", "regions": "r.npz", "merged": "m.npz", "surrogate": "s.npz", "taps": "t.onnx"}
    names |= {"vpt": "a.model", "recording": "recording.json", "image": "pictures/a.png"}
    (tmp_path / "pictures").mkdir()
    for reader, name in names.items():
        path = tmp_path / name
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()
        words = "" if (reader, kind) == ("frames", "folder") else "folder" if kind == "folder" else "regular file"
        refused(sandbox, reader, path, words)


def test_recordings_are_what_they_say(sandbox: Sandbox, tmp_path: Path) -> None:
    facts = {"format": 1, "key": "", "kind": "memory", "heads": ["0.0"], "labels": None, "weights": [2, 1, 2]}
    facts |= {"dtype": "float16", "outputs": None, "output_dtype": "float32", "error": None}
    (tmp_path / "weights.bin").write_bytes(bytes(8))
    (tmp_path / "recording.json").write_text(json.dumps(facts))
    assert sandbox.read("recording", tmp_path / "recording.json")["kind"] == ""
    for change in ({"dtype": "O"}, {"dtype": "object"}, {"weights": [2**40, 1, 2]}, {"weights": [2]}, {"heads": 7},
                   {"heads": [1]}, {"kind": []}, {"error": [1]}, {"outputs": [1, 1, 1]}, {"format": None}):  # fmt: skip
        (tmp_path / "recording.json").write_text(json.dumps(facts | change))
        refused(sandbox, "recording", tmp_path / "recording.json")
    os.mkfifo(tmp_path / "outputs.bin")
    (tmp_path / "recording.json").write_text(json.dumps(facts | {"outputs": [1, 1, 1]}))
    refused(sandbox, "recording", tmp_path / "recording.json", "regular file")


# -- pictures ------------------------------------------------------------------------------------------------------


def png(width: int, height: int) -> bytes:
    """A black picture of any size, in a few kilobytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    squeeze, body = zlib.compressobj(1), io.BytesIO()
    row = bytes(1 + 3 * width)
    for _ in range(height):
        body.write(squeeze.compress(row))
    body.write(squeeze.flush())
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body.getvalue()) + chunk(b"IEND", b"")


def test_pictures_that_unpack_to_gigabytes(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(9000, 9000))
    refused(sandbox, "image", tmp_path / "a.png", "pixels", megabytes=100)
    (tmp_path / "a.png").write_bytes(png(1 << 16, 2)[:33] + b"\xff" * 100)
    refused(sandbox, "image", tmp_path / "a.png", megabytes=100)
    content = png(4000, 4000)
    for i in range(20):
        (tmp_path / f"a{i}.png").write_bytes(content)
    (tmp_path / "a.png").unlink()
    refused(sandbox, "image", tmp_path / "a0.png", "decoded", megabytes=400)


def test_a_picture_up_to_the_limit(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(5700, 5700))
    found = sandbox.read("image", tmp_path / "a.png")
    assert found["kind"] == "" and found["megabytes"] < 1000, found


# -- graphs --------------------------------------------------------------------------------------------------------


def graph(nodes: list[Any], stored: dict[str, Any], inputs: int | list[int]) -> bytes:
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    shape = [1, inputs] if isinstance(inputs, int) else inputs
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items()]
    made = h.make_graph(
        [h.make_node(op, i.split(), [o], **facts) for op, i, o, facts in nodes],
        "g",
        [h.make_tensor_value_info("x", 1, shape)],
        [h.make_tensor_value_info("y", 1, None)],
        tensors,
    )
    return h.make_model(made, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()


def ones(kind: Any = np.float32) -> dict[str, Any]:
    onnx = pytest.importorskip("onnx")
    return {"value": onnx.numpy_helper.from_array(np.array([1], kind))}


def chain(n: int, kind: Any, symbolic: bool) -> bytes:
    """Forty products with a matrix of ones that takes eight bytes in the file."""
    nodes = [("ConstantOfShape", "s", "a", ones(kind))]
    nodes += [("MatMul", f"{'x' if symbolic else 'a'} a", "m0", {})]
    nodes += [("MatMul", f"m{i} a", f"m{i + 1}", {}) for i in range(40)]
    nodes += (
        [("Identity", "m40", "y", {})] if symbolic else [("Cast", "m40", "f", {"to": 1}), ("MatMul", "x f", "y", {})]
    )
    return graph(nodes, {"s": np.array([n, n])}, n)


@cache
def graphs() -> dict[str, tuple[bytes, str]]:
    wide = np.random.default_rng(0).normal(size=1 << 20).astype(np.float32)
    conv = [("ConstantOfShape", "s", "w", ones()), ("Conv", "x w", "y", {"pads": [3, 3, 3, 3]})]
    narrow = [("ConstantOfShape", "s", "w", ones()), ("Conv", "x w", "y", {})]
    adds = [("Add", "x x" if i == 0 else f"a{i - 1} x", f"a{i}", {}) for i in range(60_000)]
    nothing = [("ConstantOfShape", "s", "c", {}), ("ReduceSum", "c a", "r", {"keepdims": 0}), ("Add", "x r", "y", {})]
    turned = [("Transpose", "x" if i == 0 else f"t{i - 1}", f"t{i}", {"perm": [0, 2, 1]}) for i in range(300)]
    return {
        "products of constants": (chain(2048, np.float32, False), "reading stopped"),
        "products of whole numbers": (chain(2048, np.int64, False), "reading stopped"),
        "products of maps": (chain(2048, np.float32, True), "reading stopped"),
        "larger products": (chain(8192, np.float32, False), "elements"),
        "2^24 inputs": (graph([("Relu", "x", "y", {})], {}, 1 << 24), "elements"),
        "unrolled convolution": (graph(conv, {"s": np.array([64, 64, 7, 7])}, [1, 64, 224, 224]), "unrolled weights"),
        "many windows": (graph(narrow, {"s": np.array([1, 1, 8, 8])}, [1, 1, 1000, 1000]), "windows"),
        "large pooling": (graph([("MaxPool", "x", "y", {"kernel_shape": [30, 30]})], {}, [1, 1, 300, 300]), "windows"),
        "kinds of units": (graph([("PRelu", "x p", "y", {})], {"p": wide}, 1 << 20), "kinds of units"),
        "kinds of bounds": (graph([("Max", "x p", "y", {})], {"p": wide}, 1 << 20), "kinds of units"),
        "long chain": (graph([*adds, ("Identity", "a59999", "y", {})], {}, 500), "reading stopped"),
        "turning": (graph([*turned, ("Relu", "t299", "y", {})], {}, [1, 1024, 1024]), "reading stopped"),
        "sum over nothing": (graph(nothing, {"s": np.array([1 << 40, 0]), "a": np.array([1])}, 1), "elements"),
        "padding": (graph([("Pad", "x p", "y", {})], {"p": np.array([0, 1 << 40, 0, 0])}, 4), "elements"),
    }


@pytest.mark.parametrize("name", [
    "products of constants", "products of whole numbers", "products of maps", "larger products", "2^24 inputs",
    "unrolled convolution", "many windows", "large pooling", "kinds of units", "kinds of bounds", "long chain",
    "turning", "sum over nothing", "padding",
])  # fmt: skip
def test_graphs_that_grow(sandbox: Sandbox, tmp_path: Path, name: str) -> None:
    data, words = graphs()[name]
    (tmp_path / "a.onnx").write_bytes(data)
    refused(sandbox, "load", tmp_path / "a.onnx", words, megabytes=1000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inputs", "convolution", "dense"])
def test_what_is_just_allowed_stays_below_two_gigabytes(sandbox: Sandbox, tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.onnx"
    if name == "inputs":
        path.write_bytes(graph([("Relu", "x", "y", {})], {}, 1 << 22))
    elif name == "convolution":
        nodes = [("ConstantOfShape", "s", "w", ones()), ("Conv", "x w", "y", {"pads": [2, 2, 2, 2]})]
        path.write_bytes(graph(nodes, {"s": np.array([8, 3, 5, 5])}, [1, 3, 320, 320]))
    else:
        path = archive(tmp_path / "a.npz", {"W0.npy": npy(array_header((8192, 8192)), bytes(8 << 26))})
    found = sandbox.read("load", path, alarm=300, seconds=300)
    assert found["kind"] == "" and found["megabytes"] < 2000, found


def test_the_clock_is_one_for_a_whole_call(tmp_path: Path) -> None:
    limits = rs.Limits(seconds=0.0).started()
    assert limits.started() is limits
    with pytest.raises(InputLimitError, match=r"reading stopped after 0 s, at that; if you trust it, pass limits="):
        limits.check_time("that")
    rs.Limits(seconds=0.0).check_time("that")  # a clock that was not started does not run
    with pytest.raises(InputLimitError, match="reading stopped"):
        rs.vnnlib("(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 0))", limits=rs.Limits(seconds=0.0))


def test_every_reader_keeps_to_the_limits_it_is_given(tmp_path: Path) -> None:
    """Surrogates, recordings and graphs for taps: the limit that is named is the caller's."""
    onnx = pytest.importorskip("onnx")
    net = rs.Network([([[1.0], [2.0]], [0.0, 1.0]), ([[1.0, 1.0]], [0.0])])
    rs.recover(net, (-1, 1), method="regions", rng=0).result.save(tmp_path / "s.npz")
    net.save(tmp_path / "t.onnx")
    facts = {"format": 1, "key": "", "kind": "memory", "heads": ["0.0"], "labels": None, "weights": [2, 1, 2]}
    facts |= {"dtype": "float16", "outputs": None, "output_dtype": "float32", "error": None}
    (tmp_path / "weights.bin").write_bytes(bytes(8))
    (tmp_path / "recording.json").write_text(json.dumps(facts))
    for reader, name in (("surrogate", "s.npz"), ("recording", "recording.json"), ("taps", "t.onnx")):
        path = tmp_path / name
        READERS[reader](path, rs.Limits())
        with pytest.raises(rs.InputError, match="bytes, more than the limit of 10"):
            READERS[reader](path, rs.Limits(file_bytes=10, text_bytes=10))
    for limit, words in (("tensors", "tensors"), ("elements", "elements")):
        with pytest.raises(rs.InputError, match=f"{words}, more than the limit of 1"):
            READERS["taps"](tmp_path / "t.onnx", rs.Limits(**{limit: 1}))
    model = onnx.load(tmp_path / "t.onnx")
    model.graph.initializer[0].dims[0] = -5
    onnx.save(model, tmp_path / "n.onnx")
    with pytest.raises(rs.InputError, match="negative dimension"):
        READERS["taps"](tmp_path / "n.onnx", rs.Limits())
