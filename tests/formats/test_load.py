"""The two doors, `load` and `save`: what they dispatch on, and how they say no."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reluscope.errors import InputError, MissingExtraError, ReluscopeError, UnsupportedError
from reluscope.formats import load, save
from reluscope.limits import Limits
from reluscope.network import Network

NET = Network([([[1.0, -1.0], [0.5, 2.0]], [0.0, -1.0]), ([[1.0, 1.0]], [0.0])])
X = np.random.default_rng(0).normal(size=(20, 2))


def test_a_network_is_returned_as_it_is() -> None:
    assert load(NET) is NET
    with pytest.raises(InputError, match="takes no options"):
        load(NET, activation="relu")


def test_lists_of_layers() -> None:
    layers = [(layer.weight, layer.bias) for layer in NET.layers]
    np.testing.assert_array_equal(load(layers)(X), NET(X))
    np.testing.assert_array_equal(load(tuple(layers))(X), NET(X))
    assert load(layers, activation="abs", input_shape=(1, 2), name="mine").name == "mine"
    for bad in ([], [1, 2], [(np.ones((2, 2)),)], [("a", "b")], [(np.ones((2, 2)), np.ones(3))]):
        with pytest.raises(InputError):
            load(bad)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".onnx", ".NPZ"])
def test_save_and_load(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("onnx" if suffix == ".onnx" else "safetensors")
    path = tmp_path / f"net{suffix}"
    save(NET, path)
    np.testing.assert_allclose(load(path)(X), NET(X), rtol=0, atol=1e-12)
    np.testing.assert_allclose(load(str(path))(X), NET(X), rtol=0, atol=1e-12)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # no temporary file is left


def test_saved_files_have_the_usual_permissions(tmp_path: Path) -> None:
    save(NET, tmp_path / "a.npz")
    (tmp_path / "b").write_bytes(b"")
    assert stat.S_IMODE((tmp_path / "a.npz").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)


@pytest.mark.parametrize("name", ["net", "net.txt", "net.pt", "net.keras", "net.npy", ""])
def test_save_needs_a_known_ending(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        save(NET, tmp_path / name if name else "")
    assert not list(tmp_path.iterdir())


def test_save_refuses_other_things(tmp_path: Path) -> None:
    for thing in ([1, 2], None, "net"):
        with pytest.raises(InputError, match="net must be a Network"):
            save(thing, tmp_path / "a.npz")
    for path in (None, 5, b"a.npz", "a\0.npz"):
        with pytest.raises(InputError, match="path"):
            save(NET, path)
    with pytest.raises(InputError, match="cannot be written"):
        save(NET, tmp_path / "missing" / "a.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        save(NET, tmp_path / "folder.npz")
    assert [p.name for p in tmp_path.iterdir()] == ["folder.npz"]


ENDINGS = {
    "a.keras": "pass the object",
    "a.h5": "pass the object",
    "a.hdf5": "pass the object",
    "a.pkl": "pickles run code",
    "a.pickle": "pickles run code",
    "a.joblib": "pickles",
    "a.pb": "ONNX",
    "a.tflite": "ONNX",
    "a.npy": "numpy.savez",
    "a.vnnlib": "reluscope.vnnlib",
}


@pytest.mark.parametrize(("name", "message"), ENDINGS.items())
def test_known_endings_that_are_not_read(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(UnsupportedError, match=message):
        load(tmp_path / name)


def test_unknown_endings_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x80\x04pickle")
    with pytest.raises(InputError, match=r"expected \.onnx, .*pickle, which is never loaded"):
        load(tmp_path / "a.bin")
    (tmp_path / "b").write_bytes(b"<html>")
    with pytest.raises(InputError, match="web page"):
        load(str(tmp_path / "b"))
    for name in ("c.npz", "c.onnx", "c.bin", "c"):
        with pytest.raises(InputError, match=r"(?i)no file|does not exist|not found|cannot"):
            load(tmp_path / name)
    with pytest.raises(InputError, match="folder"):
        load(tmp_path)


@pytest.mark.parametrize(
    "thing", [None, 5, 2.5, b"a.onnx", {"W0": 1}, {1, 2}, np.ones((2, 2)), object(), len, Network, ""]
)
def test_things_that_are_no_network(thing) -> None:
    with pytest.raises(InputError) as caught:
        load(thing)
    assert "\n" not in str(caught.value)


def test_limits_must_be_limits() -> None:
    with pytest.raises(InputError, match="limits must be"):
        load([(np.ones((1, 1)), None)], limits=5)
    with pytest.raises(InputError, match="layers"):
        load([(np.ones((1, 1)), None)] * 5, limits=Limits(layers=4))


OPTIONS = {"a.npz": "activation, order, transpose", "a.safetensors": "activation", "a.onnx": "output"}


@pytest.mark.parametrize(("name", "known"), OPTIONS.items())
def test_unknown_options_raise(tmp_path: Path, name: str, known: str) -> None:
    with pytest.raises(InputError, match=rf"no option 'actvation'; known options are .*{known}"):
        load(tmp_path / name, actvation="relu")
    with pytest.raises(InputError, match="no option 'actvation'"):
        load([(np.ones((1, 1)), None)], actvation="relu")


def test_objects_of_other_libraries_are_explained() -> None:
    onnx = pytest.importorskip("onnx")
    with pytest.raises(InputError, match="path of the ONNX file"):
        load(onnx.ModelProto())


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_doors_import_no_framework() -> None:
    """Looking at a thing imports nothing; npz needs numpy and scipy alone."""
    code = """
import sys, numpy as np
from reluscope.formats import load, save
from reluscope.network import Network
import tempfile, pathlib
net = load([(np.ones((2, 2)), None), (np.ones((1, 2)), None)])
path = pathlib.Path(tempfile.mkdtemp()) / "a.npz"
save(net, path); load(path)
try: load(object())
except ValueError: pass
heavy = {"torch", "keras", "sklearn", "onnx", "onnxruntime", "safetensors", "tensorflow", "numba", "matplotlib"}
print(sorted(heavy & {m.split(".")[0] for m in sys.modules}))
"""
    assert run(code).strip() == "[]"


def test_missing_extras_say_what_to_install(tmp_path: Path) -> None:
    code = """
import sys
for name in ("torch", "onnx", "safetensors", "keras"):
    sys.modules[name] = None
from reluscope.formats import load, save
from reluscope.errors import MissingExtraError
import numpy as np, pathlib
folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
net = load([(np.ones((1, 1)), None)])
import struct
pathlib.Path("a.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}" + b"        ")
pathlib.Path("a.onnx").write_bytes(b"x" * 20)
pathlib.Path("a.pt").write_bytes(b"PK" + b"x" * 20)
for call in (lambda: load("a.safetensors"), lambda: save(net, "b.safetensors"), lambda: load("a.pt"),
             lambda: load("a.onnx"), lambda: save(net, "b.onnx")):
    try: call()
    except MissingExtraError as error: print("pip install" in str(error), isinstance(error, ImportError))
    else: print("no error")
"""
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert run(code).split() == ["True"] * 10
    finally:
        os.chdir(here)


def test_errors_are_of_our_own_types() -> None:
    assert issubclass(InputError, ReluscopeError) and issubclass(InputError, ValueError)
    assert issubclass(MissingExtraError, ImportError)
