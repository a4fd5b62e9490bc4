"""npz and safetensors: exact round trips, plain files, and everything that must be refused."""

from __future__ import annotations

import io
import json
import struct
import time
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from reluscope.activations import clip, leaky_relu, piecewise, relu
from reluscope.errors import InputError, InputLimitError, UnsupportedError
from reluscope.formats import load, save
from reluscope.limits import Limits
from reluscope.network import Network

pytest.importorskip("safetensors")
import safetensors.numpy

SUFFIXES = [".npz", ".safetensors"]


def same(a: Network, b: Network) -> None:
    """Equal in every bit, kind and name."""
    assert (a.widths, a.input_shape, a.output_shape, a.name, a.notes) == (
        b.widths, b.input_shape, b.output_shape, b.name, b.notes
    )  # fmt: skip
    for p, q in zip(a.layers, b.layers, strict=True):
        assert sparse.issparse(p.weight) == sparse.issparse(q.weight)
        assert p.dense().tobytes() == q.dense().tobytes()
        assert p.bias.tobytes() == q.bias.tobytes()
        assert p.units == q.units
        if sparse.issparse(p.weight):
            assert p.weight.data.tobytes() == q.weight.data.tobytes()
            np.testing.assert_array_equal(p.weight.indices, q.weight.indices)


def mixed_network(rng: np.random.Generator, widths=(3, 6, 5, 2)) -> Network:
    kinds = [relu(), leaky_relu(0.1), clip(-1.5, 2.0), piecewise([-1, 0.5, 2], [0.1, -1, 0.3, 2], 0.25)]
    layers = []
    for n, m in pairwise(widths):
        each = [kinds[i] for i in rng.integers(len(kinds), size=m)]
        layers.append((rng.normal(size=(m, n)), rng.normal(size=m), each))
    layers[-1] = layers[-1][:2]
    return Network(layers, name='a "net" ü', notes=["first", "second\nline"])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip_is_bit_identical(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    nets = [
        mixed_network(rng),
        Network([([[1.0, -0.0, 5e-324, 1e308]], [-0.0])]),  # one affine layer, hard numbers
        Network([(np.ones((4, 6)), None), (np.eye(6, 4), None)], input_shape=(1, 2, 3), output_shape=(3, 2)),
        Network([(sparse.random_array((200, 100), density=0.02, rng=rng), rng.normal(size=200)),
                 (sparse.random_array((300, 200), density=0.01, rng=rng), None, "abs"),
                 (rng.normal(size=(1, 300)), None)]),
    ]  # fmt: skip
    assert sparse.issparse(nets[3].layers[0].weight)
    for i, net in enumerate(nets):
        path = tmp_path / f"net{i}{suffix}"
        save(net, path)
        same(load(path), net)
        net.save(path)
        same(load(str(path)), net)


@given(st.integers(0, 2**32), st.lists(st.integers(1, 6), min_size=2, max_size=5), st.sampled_from(SUFFIXES))
@settings(max_examples=25, deadline=None)
def test_round_trip_of_random_networks(tmp_path_factory, seed: int, widths: list[int], suffix: str) -> None:
    net = mixed_network(np.random.default_rng(seed), tuple(widths))
    path = tmp_path_factory.mktemp("nets") / f"n{suffix}"
    save(net, path)
    same(load(path), net)


def test_files_are_reproducible_and_readable_by_numpy(tmp_path: Path) -> None:
    net = mixed_network(np.random.default_rng(1))
    save(net, tmp_path / "a.npz")
    time.sleep(0.01)
    save(net, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["W0"], net.layers[0].weight)
        assert json.loads(bytes(arrays["reluscope"]))["format"] == "reluscope-network"


# -- plain files --

W0, B0 = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.array([0.5, -0.5])
W1, B1 = np.array([[1.0, -1.0]]), np.array([0.25])
WANTED = Network([(W0, B0), (W1, B1)])
PLAIN = {
    "numbered": {"W0": W0, "b0": B0, "W1": W1, "b1": B1},
    "numbered from 1": {"b2": B1, "W2": W1, "W1": W0, "b1": B0},
    "weight_0": {"weight_0": W0, "bias_0": B0, "weight_1": W1, "bias_1": B1},
    "coefs": {"coef_0": W0, "intercept_0": B0, "coef_1": W1, "intercept_1": B1},
    "kernel": {"kernel_0": W0, "biases0": B0, "kernel_1": W1, "biases1": B1},
    "state dict": {"2.weight": W1, "2.bias": B1, "0.weight": W0, "0.bias": B0},
    "nested state dict": {"net.fc10.weight": W1, "net.fc10.bias": B1, "net.fc2.weight": W0, "net.fc2.bias": B0},
    "float32": {"W0": W0.astype("f4"), "b0": B0.astype("f4"), "W1": W1.astype("f4"), "b1": B1.astype("f2")},
    "integers": {"W0": W0.astype(int), "b0": B0, "W1": W1.astype("i1"), "b1": B1},
}  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("arrays", PLAIN.values(), ids=PLAIN.keys())
def test_plain_files(tmp_path: Path, arrays, suffix: str) -> None:
    path = tmp_path / f"plain{suffix}"
    np.savez(path, **arrays) if suffix == ".npz" else safetensors.numpy.save_file(arrays, path)
    net = load(path)
    X = np.random.default_rng(0).normal(size=(10, 3))
    np.testing.assert_array_equal(net(X), WANTED(X))
    leaky = Network([(W0, B0), (W1, B1)], leaky_relu(0.3))
    np.testing.assert_array_equal(load(path, activation=leaky_relu(0.3))(X), leaky(X))


def test_savez_of_a_list_missing_biases_compression_and_byte_order(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(10, 3))
    np.savez(tmp_path / "a.npz", W0, B0, W1, B1)
    np.testing.assert_array_equal(load(tmp_path / "a.npz")(X), WANTED(X))
    np.savez_compressed(tmp_path / "b.npz", W0=np.asfortranarray(W0.astype(">f8")), W1=W1)
    np.testing.assert_array_equal(load(tmp_path / "b.npz")(X), Network([(W0, None), (W1, None)])(X))
    np.savez(tmp_path / "c.npz", *[np.ones((1, 1))] * 12)  # arr_10 comes after arr_9
    assert len(load(tmp_path / "c.npz").layers) == 12


def test_order_and_orientation(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(10, 3))
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file({"body.weight": W0, "body.bias": B0, "head.weight": W1, "head.bias": B1}, path)
    with pytest.raises(InputError, match="order"):
        load(path)
    np.testing.assert_array_equal(load(path, order=["body", "head"])(X), WANTED(X))
    for bad in (["head", "body"], ["body"], ["body", "head", "x"], "body", ["body", "body"]):
        with pytest.raises(InputError):
            load(path, order=bad)
    np.savez(tmp_path / "t.npz", W0=W0.T, b0=B0, W1=W1.T, b1=B1)
    with pytest.raises(InputError, match="transpose=True"):
        load(tmp_path / "t.npz")
    np.testing.assert_array_equal(load(tmp_path / "t.npz", transpose=True)(X), WANTED(X))


def test_bfloat16(tmp_path: Path) -> None:
    values = np.array([[1.5, -2.0, 0.15625]], dtype=np.float32)
    raw = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = json.dumps({"0.weight": {"dtype": "BF16", "shape": [1, 3], "data_offsets": [0, 6]}}).encode()
    (tmp_path / "b.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + raw)
    np.testing.assert_array_equal(load(tmp_path / "b.safetensors").layers[0].weight, values)


# -- refusals --


def refused(path: Path, kind=InputError, match: str | None = None, **options) -> None:
    start = time.process_time()
    with pytest.raises(kind, match=match) as caught:
        load(path, **options)
    assert "\n" not in str(caught.value), str(caught.value)
    assert time.process_time() - start < 10


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


def zipped(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


BAD_PLAIN = {
    "empty archive": ({}, "no arrays"),
    "3-D weight": ({"W0": np.ones((1, 2, 3))}, "fully connected"),
    "conv": ({"conv.weight": np.ones((4, 3, 3, 3)), "conv.bias": np.ones(4)}, "fully connected"),
    "batch norm": ({"0.weight": np.ones((2, 2)), "1.running_mean": np.ones(2)}, "neither a weight nor a bias"),
    "bias alone": ({"b0": np.ones(2)}, "no weight"),
    "bias length": ({"W0": np.ones((2, 3)), "b0": np.ones(5)}, "fit together"),
    "widths": ({"W0": np.ones((2, 3)), "W1": np.ones((4, 5))}, "fit together"),
    "missing number": ({"W0": np.ones((2, 3)), "W2": np.ones((1, 2))}, "missing"),
    "nan": ({"W0": np.array([[np.nan, 1.0]])}, "finite"),
    "infinite bias": ({"W0": np.ones((1, 2)), "b0": np.array([np.inf])}, "finite"),
    "no units": ({"W0": np.ones((0, 2))}, "at least one"),
    "text": ({"W0": np.array([["a", "b"]])}, "not numbers"),
    "complex": ({"W0": np.ones((1, 2), dtype=complex)}, "not numbers"),
    "dates": ({"W0": np.ones((1, 2), dtype="M8[s]")}, "not numbers"),
    "records": ({"W0": np.ones((1, 2), dtype=[("a", "f8")])}, "not numbers"),
    "strange name": ({"hello": np.ones((1, 2))}, "hello"),
    "same twice": ({"W0": np.ones((1, 2)), "w0": np.ones((1, 2))}, "twice"),
}  # fmt: skip


@pytest.mark.parametrize(("arrays", "message"), BAD_PLAIN.values(), ids=BAD_PLAIN.keys())
def test_bad_plain_arrays(tmp_path: Path, arrays, message: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    refused(tmp_path / "x.npz", match=message)


def test_bad_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    save(mixed_network(np.random.default_rng(0)), path)
    good = path.read_bytes()
    middle = len(good) // 3
    broken = {
        "empty": b"",
        "html": b"<!DOCTYPE html><html></html>",
        "truncated": good[: len(good) // 2],
        "only a signature": b"PK\x03\x04",
        "end record only": b"PK\x05\x06" + b"\0" * 18,
        "flipped": good[:middle] + bytes(b ^ 255 for b in good[middle : middle + 40]) + good[middle + 40 :],
        "pickle": b"\x80\x04\x95garbage",
        "single npy": npy(np.ones(3)),
        "git lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
    }
    for data in broken.values():
        path.write_bytes(data)
        refused(path)
        other = tmp_path / "x.safetensors"
        other.write_bytes(data)
        refused(other)
    refused(tmp_path / "missing.npz", match="there is no file")
    refused(tmp_path / "missing.safetensors", match="there is no file")
    (tmp_path / "folder.npz").mkdir()
    refused(tmp_path / "folder.npz", match="folder")


def test_pickled_objects_are_never_read(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, W0=np.array([None, 1], dtype=object))
    refused(path, match="never read")


def test_bombs_are_refused_before_they_unpack(tmp_path: Path) -> None:
    zeros = np.zeros((4096, 4096))
    bomb = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("W0.npy", "w") as member,
    ):
        np.lib.format.write_array(member, zeros)
    assert bomb.stat().st_size < 2_000_000  # 134 MB once unpacked
    refused(bomb, InputLimitError, "file_bytes", limits=Limits(file_bytes=100_000_000))
    refused(bomb, InputLimitError, "elements", limits=Limits(elements=1_000_000))
    many = zipped(tmp_path / "many.npz", {f"W{i}.npy": b"" for i in range(3000)})
    refused(many, InputLimitError, "tensors", limits=Limits(tensors=1000))
    refused(bomb, InputLimitError, "file_bytes", limits=Limits(file_bytes=1000))
    fake = tmp_path / "fake.npz"
    fake.write_bytes(b"PK\x03\x04" + b"PK\x01\x02" * 1_000_000)
    refused(fake, InputLimitError, "tensors")


LIES = {
    "huge shape": {"(3, 4)": "(9999999, 99999)"},
    "short shape": {"(3, 4)": "(3, 3)"},
    "negative": {"(3, 4)": "(-3, -4)"},
    "object": {"<f8": "|O"},
    "not a tuple": {"(3, 4)": "'ab'"},
    "code": {"(3, 4)": "__import__('os')"},
    "nonsense": {"descr": "dexcr"},
    "longer items": {"<f8": "<c16"},
    "huge items": {"'<f8'": "'V9999999'"},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_lying_headers_are_refused(tmp_path: Path, lie) -> None:
    array = np.arange(12.0).reshape(3, 4)
    ((old, new),) = lie.items()
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    data = out.getvalue()
    text = data[10:128].decode().replace(old, new)
    text = (text.rstrip().rstrip("\n") + " " * 200)[:117] + "\n"
    forged = data[:10] + text.encode() + data[128:]
    refused(zipped(tmp_path / "lie.npz", {"W0.npy": forged}))


def test_huge_claims_name_the_lie(tmp_path: Path) -> None:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.zeros((3, 4)))
    data = out.getvalue().replace(b"(3, 4), }    ", b"(1000, 999), }")[: len(out.getvalue())]
    refused(zipped(tmp_path / "lie.npz", {"W0.npy": data}), InputLimitError, "damaged or forged")


def test_archives_that_are_not_arrays(tmp_path: Path) -> None:
    refused(zipped(tmp_path / "a.npz", {"readme.txt": b"hello"}), match="not an array")
    refused(zipped(tmp_path / "b.npz", {"../evil.npy": npy(np.ones((1, 1)))}), match="neither")
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("W0.npy", npy(np.ones((1, 1))))
        archive.writestr("W0.npy", npy(np.ones((1, 1))))
    refused(tmp_path / "c.npz", match="twice")


def damage(tmp_path: Path, **changes) -> Path:
    """A saved network with some arrays or header entries changed; None removes."""
    net = Network(
        [(sparse.random_array((80, 60), density=0.02, rng=np.random.default_rng(0)), None), (np.ones((1, 80)), None)]
    )
    save(net, tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as file:
        arrays = dict(file)
    header = json.loads(bytes(arrays.pop("reluscope")))
    text = None
    for name, value in changes.items():
        name = name.replace("__", ".")
        if name == "text":
            text = value
        elif name in header or name == "extra":
            header[name] = value
            if value is None:
                del header[name]
        elif value is None:
            del arrays[name]
        else:
            arrays[name] = value(arrays[name]) if callable(value) else value
    raw = json.dumps(header).encode() if text is None else text
    np.savez(tmp_path / "bad.npz", reluscope=np.frombuffer(raw, dtype=np.uint8), **arrays)
    return tmp_path / "bad.npz"


DAMAGED = {
    "fine": ({}, None),
    "format": ({"format": "other"}, "does not say"),
    "version": ({"version": 2}, "version"),
    "version text": ({"version": "1"}, "version"),
    "no storage": ({"storage": None}, "storage"),
    "no layers": ({"storage": []}, "no layers"),
    "too many layers": ({"storage": [[80, 60], "dense", "dense"]}, "no array"),
    "shape too small": ({"storage": [[80, 5], "dense"]}, "do not fit"),
    "negative shape": ({"storage": [[-80, 60], "dense"]}, "shape"),
    "float shape": ({"storage": [[80.0, 60], "dense"]}, "shape"),
    "giant shape": ({"storage": [[80, 10**18], "dense"]}, "elements"),
    "no weight": ({"W1": None}, "no array W1"),
    "no bias": ({"b0": None}, "no array b0"),
    "integer weight": ({"W1": np.ones((1, 80), dtype=int)}, "W1"),
    "weight nan": ({"W1": np.full((1, 80), np.nan)}, "finite"),
    "sparse nan": ({"W0__data": lambda a: a * np.nan}, "finite"),
    "index negative": ({"W0__indices": lambda a: a - 1000}, "do not fit"),
    "index large": ({"W0__indices": lambda a: a + 1000}, "do not fit"),
    "pointers fall": ({"W0__indptr": lambda a: a[::-1].copy()}, "do not fit"),
    "pointers short": ({"W0__indptr": lambda a: a[:-1]}, "do not fit"),
    "kind out of range": ({"k0": lambda a: a + 7}, "not in its table"),
    "kind short": ({"k0": lambda a: a[:-1]}, "units"),
    "pieces": ({"activation__pieces": lambda a: a + 1}, "table"),
    "no pieces": ({"activation__pieces": lambda a: a * 0}, "pieces"),
    "jump": ({"activation__intercepts": lambda a: a + np.array([1.0, 0.0])}, "not continuous"),
    "unsorted breaks": ({"activation__breaks": lambda a: a * np.nan}, "finite"),
    "input shape": ({"input_shape": [7, 7]}, "multiply"),
    "input shape text": ({"input_shape": ["a"]}, "input_shape"),
    "name": ({"name": 5}, "text"),
    "notes": ({"notes": [1]}, "text"),
    "not json": ({"text": b"{oops"}, "JSON"),
    "json nan": ({"text": b'{"format": NaN}'}, "JSON"),
    "json repeated": ({"text": b'{"format": 1, "format": 2}'}, "JSON"),
    "json nested": ({"text": b"[" * 100_000}, "JSON"),
    "json long number": ({"text": b'{"version": ' + b"9" * 5000 + b"}"}, "JSON"),
    "json list": ({"text": b"[]"}, "does not say"),
    "latin": ({"text": b'{"format": "\xff"}'}, "JSON"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_saved_networks(tmp_path: Path, changes, message: str | None) -> None:
    path = damage(tmp_path, **changes)
    if message is None:
        same(load(path), load(tmp_path / "good.npz"))
    else:
        refused(path, match=message)


def test_saved_networks_take_no_options(tmp_path: Path) -> None:
    net = mixed_network(np.random.default_rng(0))
    for suffix in SUFFIXES:
        save(net, tmp_path / f"a{suffix}")
        for options in ({"activation": "relu"}, {"order": ["0"]}, {"transpose": True}):
            refused(tmp_path / f"a{suffix}", match="names its own", **options)
        refused(tmp_path / f"a{suffix}", InputLimitError, "layers", limits=Limits(layers=2))


def test_bad_safetensors(tmp_path: Path) -> None:
    def write(header: bytes | dict, data: bytes = b"", length: int | None = None) -> Path:
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = tmp_path / "x.safetensors"
        path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
        return path

    f64 = {"dtype": "F64", "shape": [1, 1], "data_offsets": [0, 8]}
    one = np.ones(1).tobytes()
    assert load(write({"W0": f64}, one)).widths == (1, 1)
    refused(write({"W0": f64}, one, length=2**62))
    refused(write({"W0": f64}))
    refused(write({"W0": f64 | {"shape": [10**9, 10**9]}}, one))
    refused(write({"W0": f64 | {"data_offsets": [0, 800]}}, one))
    refused(write({"W0": f64 | {"dtype": "F99"}}, one))
    refused(write({"W0": f64 | {"dtype": "F8_E4M3", "shape": [1, 8]}}, one), UnsupportedError)
    refused(write(b"{" * 50_000, one))
    refused(write(b"[1, 2]" + b" " * 10, one))
    refused(write({"W0": f64, "__metadata__": {"reluscope": "{}"}}, one), match="does not say")
    refused(write({"W0": f64, "__metadata__": {"a": 5}}, one), match="metadata")
    refused(write({"W0": f64}, np.full(1, np.nan).tobytes()), match="finite")
    refused(write({"W0": f64}, one), InputLimitError, "tensors", limits=Limits(tensors=0))


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = mixed_network(np.random.default_rng(0))
    path = tmp_path / "a.npz"
    save(net, path)
    before = path.read_bytes()

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(InputError, match="No space left"):
        save(net, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(np.lib.format, "write_array", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(net, path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"] and path.read_bytes() == before
