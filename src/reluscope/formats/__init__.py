"""The ways in and out: `load` makes a `Network` from a file or a live model, `save` writes one.

Each format has its own module, imported when it is needed: onnx, arrays (npz and safetensors), torch, keras,
sklearn. Properties come in through `reluscope.formats.vnnlib`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reluscope._check import describe
from reluscope._files import as_path, file_digest, looks_like, open_regular, unpacked
from reluscope._lazy import lazy_door
from reluscope.errors import InputError, UnsupportedError
from reluscope.limits import DEFAULT_LIMITS, Limits, started
from reluscope.network import Network, check_network

if TYPE_CHECKING:
    from reluscope.formats.registry import register_format as register_format
    from reluscope.formats.registry import register_operation as register_operation

__all__ = ["load", "register_format", "register_operation", "save"]

__getattr__ = lazy_door(__name__, dict.fromkeys(("register_format", "register_operation"), "registry"))

_READABLE = ".onnx, .npz, .safetensors, .pt or .pth"


def load(model: Any, *, limits: Limits = DEFAULT_LIMITS, **options: Any) -> Network:
    """A `Network` from a file, a live model or arrays.

    Parameters
    ----------
    model : path, torch module, keras model, scikit-learn estimator, list or Network
        A path ends in `.onnx`, `.npz`, `.safetensors`, `.pt` or `.pth` (state dicts only), perhaps with `.gz` after
        it, or in what `register_format` has added; an estimator or pipeline is fitted; a list holds `(W, b)` or `(W,
        b, activation)`; a `Network` is returned as it is.
    limits : Limits
        What a file may make us read or build.
    **options
        By format: `output`, `allow_external` (ONNX), `activation`, `order`, `transpose` (arrays and state dicts),
        `input_shape` (torch), `activation` and the shapes and name that `Network` takes (lists).

    Returns
    -------
    Network

    Raises
    ------
    InputError
        If the file cannot be read, or an option does not belong to the format.
    UnsupportedError
        If the model is not piecewise affine, or has an operator that is not known.
    InputLimitError
        If the model is larger than `limits`.
    MissingExtraError
        If the package that reads the format is not installed.

    Notes
    -----
    Files are never unpickled, no code from them is run and nothing is fetched.

    Examples
    --------
    >>> load([([[1.0, -1.0]], [0.5]), ([[2.0]], [0.0])])
    Network(2-1-1, relu, 5 parameters)
    """
    if not isinstance(limits, Limits):
        raise InputError(f"limits must be a reluscope.Limits, got {describe(limits)}")
    limits = started(limits)
    if isinstance(model, Network):
        if options:
            raise InputError(f"a Network takes no options, got {', '.join(options)}")
        return model
    if isinstance(model, (str, PathLike)):
        file = as_path(model, "model")
        with unpacked(file, limits) if file.suffix.lower() == ".gz" else nullcontext(file) as plain:
            loader, what = _file_loader(plain, limits)
            net = loader(plain, **_known(options, loader, what), limits=limits)
        object.__setattr__(net, "file_sha256", file_digest(model, limits=limits))
        return net
    loader, what = _object_loader(model)
    return loader(model, **_known(options, loader, what), limits=limits)


def save(net: Network, path: str | PathLike[str]) -> None:
    """Write a network to a file, whole or not at all.

    Parameters
    ----------
    net : Network
    path : path
        Ends in `.npz`, `.safetensors` or `.onnx`.

    Raises
    ------
    InputError
        If the ending is another one.

    Notes
    -----
    npz and safetensors keep every number bit for bit, the names and notes too; ONNX keeps the function.
    """
    check_network(net)
    file = as_path(path)
    suffix = file.suffix.lower()
    if suffix == ".npz":
        from reluscope.formats.arrays import save_npz

        save_npz(net, file)
    elif suffix == ".safetensors":
        from reluscope.formats.arrays import save_safetensors

        save_safetensors(net, file)
    elif suffix == ".onnx":
        from reluscope.formats.onnx import save_onnx

        save_onnx(net, file)
    else:
        raise InputError(f"path must end in .npz, .safetensors or .onnx to say the format, got {file.name!r}")


def _file_loader(file: Path, limits: Limits) -> tuple[Callable[..., Network], str]:
    suffix = file.suffix.lower()
    if suffix == ".onnx":
        from reluscope.formats.onnx import load_onnx

        return load_onnx, "an ONNX file"
    if suffix == ".npz":
        from reluscope.formats.arrays import load_npz

        return load_npz, "an npz file"
    if suffix == ".safetensors":
        from reluscope.formats.arrays import load_safetensors

        return load_safetensors, "a safetensors file"
    if suffix in (".pt", ".pth"):
        from reluscope.formats.torch import load_torch_file

        return load_torch_file, "a torch file"
    from reluscope.formats._rules import FORMATS

    if suffix in FORMATS:
        loader, what = FORMATS[suffix]
        return _by_users(loader, file.name), what
    raise _unknown_file(file, suffix, limits)


def _by_users(loader: Callable[..., Any], name: str) -> Callable[..., Network]:
    """A loader of the user's, whose result may be anything that `load` takes but a path."""

    @functools.wraps(loader)
    def load_file(path: Path, *, limits: Limits, **options: Any) -> Network:
        made = loader(path, limits=limits, **options)
        if isinstance(made, (str, PathLike)):
            raise InputError(f"{name}: its loader returned {describe(made)}, not a network or a model")
        return load(made, limits=limits)

    return load_file


_PICKLE = (
    "pickles run code when loaded (joblib files are pickles); if you trust it, load it in Python and pass the object, "
    "or write reluscope.load(model).save('net.npz') there and pass that file"
)


def _unknown_file(file: Path, suffix: str, limits: Limits) -> InputError:
    advice = {
        ".keras": "keras files can run code when loaded; load the model with keras yourself and pass the object",
        ".h5": "HDF5 files of keras can run code when loaded; load the model with keras and pass the object",
        ".hdf5": "HDF5 files of keras can run code when loaded; load the model with keras and pass the object",
        ".pkl": _PICKLE,
        ".pickle": _PICKLE,
        ".joblib": _PICKLE,
        ".pb": "TensorFlow graphs are not read; convert the model to ONNX with tf2onnx",
        ".tflite": "TensorFlow Lite files are not read; convert the model to ONNX with tf2onnx",
        ".npy": "one array is not a network; save weights and biases together with numpy.savez",
        ".vnnlib": "this is a property, not a network; read it with reluscope.vnnlib",
    }.get(suffix)
    if advice:
        return UnsupportedError(f"{file.name}: {advice}")
    from reluscope.formats._rules import FORMATS

    with open_regular(file, limits) as (handle, _):  # a missing file is said first
        guess = looks_like(handle.read(64))
    return InputError(
        f"{file.name} has an unknown ending; expected {', '.join([_READABLE, *FORMATS])}{guess}; "
        "rs.formats.register_format adds a format of your own"
    )


def _object_loader(model: Any) -> tuple[Callable[..., Network], str]:
    """The loader for a live object, found by the names of its classes: no framework is imported to look."""
    families = {c.__module__.partition(".")[0]: c for c in reversed(type(model).__mro__)}
    names = {f"{c.__module__.partition('.')[0]}.{c.__name__}" for c in type(model).__mro__}
    # Keras first: on its torch backend a keras model is a torch module as well.
    if names & {"keras.Model", "tf_keras.Model", "tensorflow.Model"}:
        from reluscope.formats.keras import load_keras

        return load_keras, "a keras model"
    if "torch.Module" in names:
        from reluscope.formats.torch import load_torch

        return load_torch, "a torch module"
    if "sklearn" in families:
        from reluscope.formats.sklearn import load_sklearn

        return load_sklearn, "a scikit-learn estimator"
    if isinstance(model, Sequence) and not isinstance(model, (bytes, bytearray)):
        return _load_list, "a list of layers"
    if isinstance(model, dict):
        raise InputError(
            "a dict is not a network; pass the live module, a list of (W, b), or save the arrays with numpy.savez"
        )
    if families.keys() & {"onnx", "onnxruntime"}:
        raise InputError("pass the path of the ONNX file (onnx.save(model, 'model.onnx')), not the object")
    raise InputError(
        f"model must be a path ({_READABLE}), a torch module, a keras model, a scikit-learn estimator, a list of "
        f"(W, b) or a Network, got {describe(model)}"
    )


def _load_list(
    layers: Sequence[Any],
    *,
    limits: Limits = DEFAULT_LIMITS,
    activation: Any = "relu",
    input_shape: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    name: str = "network",
) -> Network:
    limits.check("layers", len(layers), "the list")
    return Network(layers, activation, input_shape=input_shape, output_shape=output_shape, name=name)


def _known(options: dict[str, Any], loader: Callable[..., Network], what: str) -> dict[str, Any]:
    known = [p for p in list(inspect.signature(loader).parameters)[1:] if p != "limits"]
    for name in options:
        if name not in known:
            choice = f"known options are {', '.join(known)}" if known else "it takes none"
            raise InputError(f"{what} has no option {name!r}; {choice}")
    return options
