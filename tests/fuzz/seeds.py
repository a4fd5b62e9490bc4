"""Good files of every kind, small, made by the library itself; and the failures that were found, each made small.

`FAILURES` is the corpus: a name, the reader, the ending of the file and its bytes. They are written as code rather than
kept as files, so that one can read what each of them is about.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np

import reluscope as rs

NPY = b"\x93NUMPY\x01\x00"


def npy(header: bytes, body: bytes = b"") -> bytes:
    return NPY + len(header).to_bytes(2, "little") + header + body


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def array(value: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, value)
    return out.getvalue()


@cache
def seeds() -> dict[str, tuple[str, list[bytes]]]:
    """By reader: the ending of its files, and some good ones."""
    rng = np.random.default_rng(0)
    net = rs.Network([(rng.normal(size=(3, 2)), rng.normal(size=3)), (rng.normal(size=(2, 3)), None)])
    X = rng.normal(size=(30, 2))
    folder = Path(tempfile.mkdtemp())
    for name in ("net.npz", "net.safetensors", "net.onnx"):
        net.save(folder / name)
    rs.regions(net, (-1, 1), progress=None).save(folder / "regions.npz")
    rs.unwrap(net, X, net(X)).merge(2, penalty=0.0).save(folder / "merged.npz")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    laws = [
        rs.Gaussian([0.0, 1.0], [[1.0, 0.5], [0.5, 2.0]]).to_dict(),
        rs.Uniform([0.0, 0.0], [1.0, 2.0]).to_dict(),
        rs.Particles([[0.0], [1.0]]).to_dict(),
        rs.GaussianMixture([0.5, 0.5], [rs.Gaussian([0.0], 1.0), rs.Gaussian([1.0], 2.0)]).to_dict(),
        {"law": "truncated", "gaussian": {"law": "gaussian", "mean": [0, 1]}, "lower": 0, "upper": None},
        rs.GaussianMixture.fit_classes(X, np.arange(30) % 2, rng=0).to_dict(),
    ]
    picture = io.BytesIO()
    from PIL import Image

    Image.fromarray(rng.integers(0, 255, (4, 5, 3)).astype(np.uint8)).save(picture, "PNG")
    gif = io.BytesIO()
    Image.fromarray(np.zeros((3, 3), np.uint8)).save(gif, "GIF")
    surrogate = {"lower": [0.0], "upper": [1.0], "A": [[1.0], [-1.0]], "b": [1.0, 0.0], "start": [0, 2]}
    surrogate |= {"C": [[[1.0]]], "d": [[0.0]], "interior": [[0.5]]}
    recording = {"format": 1, "key": "", "kind": "memory", "heads": ["0.0"], "labels": ["a"], "weights": [2, 1, 2]}
    recording |= {"dtype": "float16", "outputs": None, "output_dtype": "float32", "error": 0.5}
    property_ = b"(declare-const X_0 Real)\n(declare-fun Y_0 () Real) ; c\n(assert (or (and (<= X_0 1e-1) (>= Y_0 2.5))"
    relation = b"(vnnlib-version <2.0>)(declare-network f (declare-input X real [1,2]) (declare-output Y float32 []))"
    relation += b'(declare-network g (equal-to f) (declare-input Z real [1, 2]) (declare-hidden H real [3] "n")'
    relation += (
        b"(declare-output W real []))(assert (== X[0,0] Z[0,1]))(assert (or (!= Y 2.5) (<= (- X[0,1] (* 2 W)) 1)))"
    )
    property_ += b" (not (< (+ X_0 (* 2 Y_0) (/ 1 3)) -1))))\n(assert (= X_0 X_0))"
    events = [
        "y[0] > y[1] and not (0 <= x[2] < 0.3)",
        "argmax not in {0, 2} or argmin == 1",
        "max(y[0], 2*y[1] - 1/3) <= abs(x[0]) - 1e-3",
        "norm(J) > 2 && unit[0,1] on || J[0,1] != 'age'",
        "X_1 + Y_0 >= age",
    ]
    return {
        "load npz": (
            ".npz",
            [files["net.npz"], zipped({"W0.npy": array(np.ones((2, 2))), "b0.npy": array(np.ones(2))})],
        ),
        "load safetensors": (".safetensors", [files["net.safetensors"]]),
        "load onnx": (".onnx", [files["net.onnx"]]),
        "taps": (".onnx", [files["net.onnx"]]),
        "regions": (".npz", [files["regions.npz"]]),
        "merged": (".npz", [files["merged.npz"]]),
        "surrogate": (".npz", [zipped({f"{k}.npy": array(np.array(v)) for k, v in surrogate.items()})]),
        "vnnlib": (".vnnlib", [property_, gzip.compress(property_), relation]),
        "law": (".json", [json.dumps(law).encode() for law in laws]),
        "csv": (".csv", [b"a,b\n1,2\n3,4\n", b'1;"2"\n3;4e-1\n', gzip.compress(b"a\tb\n1\t2\n")]),
        "labelled": (".csv", [b"kind,b\nyes,2\nno,4\n", b"y,b\n0,1\n1,2\n"]),
        "points": (".csv", [b"1 2\n3 4\n", b"a,b\n1,2\n"]),
        "points npy": (".npy", [array(np.ones((3, 2))), array(np.ones((2, 2), np.int16))]),
        "frames": (".npz", [zipped({"frames.npy": array(np.zeros((2, 3, 3, 1), np.uint8))})]),
        "frames npy": (".npy", [array(np.zeros((2, 3, 3), np.float32))]),
        "image": (".png", [picture.getvalue(), gif.getvalue()]),
        "recording": (".json", [json.dumps(recording).encode()]),
        "vpt": (".model", [b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00b]q\x01(K\x02M\x00\x01eu."]),
        "event": (".txt", [text.encode() for text in events]),
    }


def _moved_directory() -> bytes:
    data = bytearray(zipped({"W0.npy": array(np.ones((2, 2)))}))
    at = data.rindex(b"PK\x05\x06") + 16
    struct.pack_into("<I", data, at, struct.unpack_from("<I", data, at)[0] + 5)
    return bytes(data)


FAILURES: list[tuple[str, str, bytes]] = [
    ("negative seek value", "load npz", _moved_directory()),
    ("TokenError of a header", "points npy", npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,4")),
    ("TokenError in an archive", "load npz", zipped({"W0.npy": npy(b"{'descr': '<f8', 'shape': (3,4")})),
    ("no entries, a long axis", "load npz", zipped({"W0.npy": npy(
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 0), }\n")})),
    ("a long field", "csv", b"a,b\n1," + b"9" * 140_000 + b"\n"),
    ("an open quote", "csv", b'a,b\n1,"' + b"9\n" * 70_000),
    ("a superscript", "csv", "a,b\n1,²\n".encode()),
    ("a superscript in a header", "labelled", "²,²\n1,2\n".encode()),
    ("labels with one hash", "law", json.dumps({"law": "classes", "labels": [2**61 - 1, 2 * (2**61 - 1)],
                                                "weights": [1, 1], "laws": [1, 2]}).encode()),
    ("an infinite label", "law", b'{"law": "classes", "labels": [1e999], "weights": [1], "laws": [1]}'),
    ("nested lists", "law", b"[" * 100_000),
    ("nested conditions", "event", b"(" * 50_000 + b"y[0] > 0"),
    ("many signs", "event", b"-" * 50_000 + b"1 > y[0]"),
    ("powers", "event", b"*".join([b"1e300"] * 100) + b" > y[0]"),
    ("a number of 400 digits", "event", b"1" * 500 + b" > y[0]"),
    ("nested assertions", "vnnlib", b"(declare-const X_0 Real)(assert " + b"(not " * 10_000),
    ("nested sums", "vnnlib", b"(vnnlib-version <2.0>)(assert " + b"(+ " * 10_000),
    ("a wide tensor", "vnnlib", b"(vnnlib-version <2.0>)(declare-network f (declare-input X real [9999999,99999999]))"),
    ("a tiny exponent", "vnnlib", b"(declare-const X_0 Real)(assert (<= (* 1e-999999999 X_0) 1))"),
    ("facts that are a list", "merged", zipped({"facts.npy": array(np.frombuffer(b"[]", np.uint8))})),
    ("regions of nothing", "regions", zipped({"network.npy": array(np.zeros(0, np.uint8))})),
    ("an object as a type", "recording", b'{"format": 1, "dtype": "O", "weights": [1, 1, 1]}'),
    ("an empty file", "image", b""),
]  # fmt: skip
"""What once hung, crashed or ended in an error that was not ours: name, reader, bytes."""
