"""Networks as named arrays: `.npz` and `.safetensors` files.

**Our own layout** (format version 1) keeps everything a `Network` holds, bit for bit. Layers count from 0:

* `W0, b0, W1, b1, ...`: weights (outputs, inputs) and biases, float64. A sparse weight is stored as `W0.data`,
  `W0.indices`, `W0.indptr` (compressed rows); its shape stands in the header.
* `k0, k1, ...` (int64): for each unit of a hidden layer, its row in the table of activations.
* `activation.pieces` (int64) with, one after the other, `activation.breaks` (pieces - 1 per row),
  `activation.slopes` and `activation.intercepts` (pieces per row).
* the header, JSON text with `format`, `version`, `name`, `notes`, `input_shape`, `output_shape`, `storage` (one
  entry per layer: `"dense"` or the shape of a sparse weight), `activations` (names of the table's rows) and, where
  the network has them, `schema` (see `reluscope.schema`), `parts` (its joined networks: name, then begin and end of
  their inputs, outputs and units in each layer) and `origins` (by hidden layer, the nodes of the loaded model that its
  units are from: name, operation, shape; the arrays `o0.source` and `o0.place` say which node and entry a unit is).
  A network that approximates the loaded model has the bound for each output in the array `approximation`.
  In an npz file it is the member `reluscope` (UTF-8 bytes
  as uint8), in a safetensors file the metadata entry of that name.

**Plain files** of a multilayer perceptron are read too, with the hidden activation given by the caller:

* numbered arrays `W0, b0, W1, b1, ...`, also `weight_0` / `bias_0`, `weights0`, `kernel_0`, `coef_0` /
  `intercept_0`; counting from 0 or 1, biases optional;
* `arr_0, arr_1, ...` as `numpy.savez(W0, b0, W1, b1)` writes them;
* a state dict `<layer>.weight`, `<layer>.bias` with 2-D weights.

Files are untrusted. Sizes are compared with `Limits` before anything is unpacked or allocated, pickled objects are
never read, and numbers must be finite.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import describe
from reluscope._files import as_path, atomic_write, looks_like, read_bytes
from reluscope._json import parse_json
from reluscope._lazy import late
from reluscope._npy import Arrays, quoted, read_npz
from reluscope.activations import Activation, Units
from reluscope.errors import InputError, InputLimitError, MissingExtraError, UnsupportedError
from reluscope.limits import DEFAULT_LIMITS, Limits, started
from reluscope.network import Network, Origin, Part, check_network
from reluscope.schema import Schema

__all__ = [
    "load_npz",
    "load_safetensors",
    "network_from_arrays",
    "network_from_tensors",
    "network_to_arrays",
    "read_npz",
    "save_npz",
    "save_safetensors",
    "write_npz",
]

_HEADER = "reluscope"
_FORMAT = "reluscope-network"
_VERSION = 1


# -- doors -----------------------------------------------------------------------------------------------------


def load_npz(
    path: str | PathLike[str],
    *,
    limits: Limits = DEFAULT_LIMITS,
    activation: Any = None,
    order: Sequence[str] | None = None,
    transpose: bool = False,
) -> Network:
    """A network from an npz file in our layout, or from a plain one (see the module's text).

    `activation` (plain files only, default "relu") is what follows every layer but the last. `order` lists the
    layers of a state dict from input to output, `transpose` says that weights are stored as (inputs, outputs).
    """
    name, limits = as_path(path).name, started(limits)
    arrays = read_npz(path, limits)
    header = arrays.pop(_HEADER, None)
    if header is None and {"network", "geometry", "pattern"} <= arrays.keys():
        raise InputError(
            f"{name} holds regions, not a network: Regions.load reads it (its field `network` is the network)"
        )
    if header is None:
        return _plain(arrays, name, limits, activation, order, transpose)
    if header.dtype != np.uint8 or header.ndim != 1:
        raise InputError(f"{name} is damaged: its header is not text")
    _no_options(name, activation, order, transpose)
    return network_from_arrays(arrays, header.tobytes(), name, limits)


def save_npz(net: Network, path: str | PathLike[str]) -> None:
    """Write `net` to an npz file in our layout: whole or not at all, and the same bytes every time."""
    header, arrays = network_to_arrays(net)
    write_npz({_HEADER: np.frombuffer(header.encode(), dtype=np.uint8), **arrays}, path)


def write_npz(arrays: Arrays, path: str | PathLike[str]) -> None:
    """Write named arrays to an npz file: whole or not at all, and the same bytes every time."""
    with atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            # A bare ZipInfo carries a fixed date, so that equal networks give equal files.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def load_safetensors(
    path: str | PathLike[str],
    *,
    limits: Limits = DEFAULT_LIMITS,
    activation: Any = None,
    order: Sequence[str] | None = None,
    transpose: bool = False,
) -> Network:
    """A network from a safetensors file in our layout, or from a plain one; options as for `load_npz`.

    The file does not keep the order of its tensors, so a state dict whose layer names are not numbered needs
    `order`.
    """
    name, limits = as_path(path).name, started(limits)
    arrays, metadata = _read_safetensors(read_bytes(path, limits=limits), limits, name)
    header = metadata.get(_HEADER)
    if header is None:
        return _plain(arrays, name, limits, activation, order, transpose)
    _no_options(name, activation, order, transpose)
    return network_from_arrays(arrays, header.encode(), name, limits)


def save_safetensors(net: Network, path: str | PathLike[str]) -> None:
    """Write `net` to a safetensors file in our layout: whole or not at all."""
    numpy_format = _safetensors().numpy
    header, arrays = network_to_arrays(net)
    data = numpy_format.save({k: np.ascontiguousarray(v) for k, v in arrays.items()}, {_HEADER: header})
    with atomic_write(path) as file:
        file.write(data)


def network_from_tensors(
    tensors: Mapping[str, npt.NDArray[Any]],
    *,
    what: str,
    limits: Limits = DEFAULT_LIMITS,
    activation: Any = None,
    order: Sequence[str] | None = None,
    transpose: bool = False,
    ordered: bool = False,
) -> Network:
    """A multilayer perceptron from named 2-D weights and 1-D biases.

    With `ordered` the mapping's own order is that of the layers (a torch state dict); otherwise they are ordered
    by the numbers in their names.
    """
    limits.check("tensors", len(tensors), what)
    limits.check("elements", sum(int(t.size) for t in tensors.values()), what)
    limits.check("elements", max((n for t in tensors.values() for n in t.shape), default=0), f"{what}, along one axis,")
    if not tensors:
        raise InputError(f"{what} holds no arrays")
    layers = _named_layers(tensors, what, order, ordered)
    limits.check("layers", len(layers), what)
    parts = []
    for label, W, b in layers:
        if W is None:
            raise InputError(f"{what} has a bias for layer {label} but no weight")
        if W.ndim != 2 or (b is not None and b.ndim != 1):
            shapes = f"{W.shape}" + ("" if b is None else f" and {b.shape}")
            raise UnsupportedError(
                f"{what}: layer {label} has arrays of shape {shapes}; only plain fully connected layers (2-D weight, "
                "1-D bias) can be read from bare arrays: pass the live model object, or an ONNX file"
            )
        parts.append((W.T if transpose else W, b))
    _check_chain(parts, [label for label, _, _ in layers], what, transpose)
    kind = "relu" if activation is None else activation
    named: list[tuple[Any, ...]] = [
        (W, b, kind, _rows_of(label, len(W))) for (W, b), (label, _, _) in zip(parts[:-1], layers[:-1], strict=True)
    ]
    return Network([*named, parts[-1]], kind, name=what)


def _rows_of(label: str, width: int) -> Origin | None:
    """Units as the rows of a layer with a name; numbers alone say nothing."""
    if label.isdigit() or label.startswith(("arr_", "(")):
        return None
    return Origin(((label, "row", (width,)),), np.zeros(width, np.intp), np.arange(width))


# -- our layout ------------------------------------------------------------------------------------------------


def network_to_arrays(net: Network) -> tuple[str, Arrays]:
    """The header text and the arrays of our layout."""
    check_network(net)
    arrays: Arrays = {}
    storage: list[Any] = []
    kinds: dict[Activation, int] = {}
    for i, layer in enumerate(net.layers):
        if sparse.issparse(layer.weight):
            storage.append([int(n) for n in layer.weight.shape])
            arrays[f"W{i}.data"] = layer.weight.data
            arrays[f"W{i}.indices"] = layer.weight.indices.astype(np.int64)
            arrays[f"W{i}.indptr"] = layer.weight.indptr.astype(np.int64)
        else:
            storage.append("dense")
            arrays[f"W{i}"] = layer.weight
        arrays[f"b{i}"] = layer.bias
        if i + 1 < len(net.layers):
            rows = [kinds.setdefault(kind, len(kinds)) for kind in layer.units.kinds]
            arrays[f"k{i}"] = np.array(rows, dtype=np.int64)[layer.units.kind]
    arrays["activation.pieces"] = np.array([a.pieces for a in kinds], dtype=np.int64)
    for field in ("breaks", "slopes", "intercepts"):
        arrays[f"activation.{field}"] = np.array([v for a in kinds for v in getattr(a, field)], dtype=np.float64)
    origins = [None if (o := layer.origin) is None else [list(s) for s in o.sources] for layer in net.hidden]
    for i, layer in enumerate(net.hidden):
        if layer.origin is not None:
            arrays[f"o{i}.source"] = layer.origin.source.astype(np.int64)
            arrays[f"o{i}.place"] = layer.origin.place.astype(np.int64)
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "name": net.name,
        "notes": list(net.notes),
        "input_shape": list(net.input_shape),
        "output_shape": list(net.output_shape),
        "storage": storage,
        "activations": [a.name for a in kinds],
    }
    if any(o is not None for o in origins):
        header["origins"] = origins
    if net.approximation is not None:
        arrays["approximation"] = net.approximation
    if net.schema is not None:
        header["schema"] = net.schema.to_dict()
    if net.parts:
        header["parts"] = [
            [part.name, *([at.start, at.stop] for at in (part.inputs, part.outputs, *part.units))] for part in net.parts
        ]
    return json.dumps(header, ensure_ascii=True, allow_nan=False), arrays


def network_from_arrays(arrays: Arrays, header_text: bytes, what: str, limits: Limits) -> Network:
    """The network of a header and arrays in our layout; `what` names the file in errors."""
    header = _header_json(header_text, what, limits)
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise InputError(f"{what} is damaged: its header does not say {_FORMAT}")
    if header.get("version") != _VERSION:
        raise InputError(
            f"{what} has format version {describe(header.get('version'))}, this version of Reluscope reads "
            f"{_VERSION}; a newer one may read it"
        )
    storage = _listed(header, "storage", what)
    limits.check("layers", len(storage), what)
    kinds = _activations(arrays, _listed(header, "activations", what), what, limits)
    origins = _origins(arrays, header, len(storage), what, limits)
    layers: list[tuple[Any, ...]] = []
    for i, kept in enumerate(storage):
        weight = _array(arrays, f"W{i}", "f", 2, what) if kept == "dense" else _sparse(arrays, i, kept, limits, what)
        bias = _array(arrays, f"b{i}", "f", 1, what)
        if i + 1 < len(storage):
            kind = _array(arrays, f"k{i}", "i", 1, what)
            if kind.size and not 0 <= kind.min() <= kind.max() < len(kinds):
                raise InputError(f"{what} is damaged: k{i} names activations that are not in its table")
            most = max((a.pieces for a in kinds), default=0)
            limits.check("elements", 3 * most * kind.size, f"the table of activations of layer {i} of {what}")
            layers.append((weight, bias, Units(kinds, kind.astype(np.intp)), origins[i]))
        else:
            layers.append((weight, bias, Units.uniform("identity", len(bias))))
    if not layers:
        raise InputError(f"{what} is damaged: it has no layers")
    name, notes = header.get("name", "network"), _listed(header, "notes", what)
    if not isinstance(name, str) or not all(isinstance(n, str) for n in notes):
        raise InputError(f"{what} is damaged: name and notes must be text")
    try:
        return Network(
            layers,
            input_shape=_whole_numbers(header, "input_shape", what),
            output_shape=_whole_numbers(header, "output_shape", what),
            name=name,
            notes=notes,
            schema=None if "schema" not in header else Schema.from_dict(header["schema"]),
            parts=_parts(header, what) if "parts" in header else (),
        ).approximating(_array(arrays, "approximation", "f", 1, what) if "approximation" in arrays else None)
    except InputLimitError:
        raise
    except InputError as error:
        raise InputError(f"{what}: {error}") from error


def _origins(arrays: Arrays, header: dict[str, Any], count: int, what: str, limits: Limits) -> list[Origin | None]:
    """Where the units of each hidden layer are from; `Network` checks that they fit."""
    if "origins" not in header:
        return [None] * count
    listed = _listed(header, "origins", what)
    if len(listed) != count - 1:
        raise InputError(f"{what} is damaged: it has {count} layers and origins of {len(listed)}")
    out: list[Origin | None] = []
    for i, entries in enumerate(listed):
        if entries is None:
            out.append(None)
            continue
        limits.check_time(what)
        good = isinstance(entries, list) and all(
            isinstance(e, list)
            and len(e) == 3
            and all(isinstance(word, str) for word in e[:2])
            and isinstance(e[2], list)
            and 0 < len(e[2]) <= 8
            and all(type(n) is int and 0 < n < 2**31 for n in e[2])
            and math.prod(e[2]) < 2**62
            for e in entries
        )
        if not good:
            raise InputError(f"{what} is damaged: the origins of layer {i} are {describe(entries)}")
        source, place = (_array(arrays, f"o{i}.{part}", "i", 1, what).astype(np.intp) for part in ("source", "place"))
        out.append(Origin(tuple((e[0], e[1], tuple(e[2])) for e in entries), source, place))
    return [*out, None]


def _parts(header: dict[str, Any], what: str) -> list[Part]:
    """The networks that this one is made of; `Network` checks that they fit."""
    out = []
    for entry in _listed(header, "parts", what):
        spans = entry[1:] if isinstance(entry, list) else []
        whole = all(isinstance(s, list) and len(s) == 2 and all(type(n) is int for n in s) for s in spans)
        if len(spans) < 2 or not whole or not isinstance(entry[0], str):
            raise InputError(f"{what} is damaged: parts in its header is {describe(entry)}")
        inputs, outputs, *units = (range(*span) for span in spans)
        out.append(Part(entry[0], inputs, outputs, tuple(units)))
    return out


def _activations(arrays: Arrays, names: list[Any], what: str, limits: Limits) -> tuple[Activation, ...]:
    pieces = _array(arrays, "activation.pieces", "i", 1, what)
    fields = {f: _array(arrays, f"activation.{f}", "f", 1, what) for f in ("breaks", "slopes", "intercepts")}
    if len(pieces) and (pieces.min() < 1 or pieces.max() > 255):
        raise InputError(f"{what} is damaged: an activation has {pieces.min()} to {pieces.max()} pieces")
    total = int(pieces.sum())
    limits.check("elements", 32 * total, f"the table of activations of {what}")
    lengths = (len(fields["breaks"]) + len(pieces), len(fields["slopes"]), len(fields["intercepts"]))
    if lengths != (total,) * 3 or len(names) != len(pieces) or not all(isinstance(n, str) for n in names):
        raise InputError(f"{what} is damaged: the table of activations does not fit together")
    kinds = []
    at = 0
    for row, count in enumerate(pieces.tolist()):
        limits.check_time(what)
        kinds.append(
            Activation(
                tuple(fields["breaks"][at - row : at - row + count - 1].tolist()),
                tuple(fields["slopes"][at : at + count].tolist()),
                tuple(fields["intercepts"][at : at + count].tolist()),
                names[row],
            )
        )
        at += count
    return tuple(kinds)


def _sparse(arrays: Arrays, i: int, shape: Any, limits: Limits, what: str) -> sparse.csr_array:
    good = isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and n > 0 for n in shape)
    if not good:
        raise InputError(f"{what} is damaged: the shape of sparse weight W{i} is {describe(shape)}")
    limits.check("elements", max(shape), f"W{i} of {what}")
    data = _array(arrays, f"W{i}.data", "f", 1, what)
    indices = _array(arrays, f"W{i}.indices", "i", 1, what)
    indptr = _array(arrays, f"W{i}.indptr", "i", 1, what)
    fits = (
        len(indptr) == shape[0] + 1
        and len(indices) == len(data) == indptr[-1]
        and indptr[0] == 0
        and bool((np.diff(indptr) >= 0).all())
        and (len(indices) == 0 or (indices.min() >= 0 and indices.max() < shape[1]))
    )
    if not fits:
        raise InputError(f"{what} is damaged: the arrays of sparse weight W{i} do not fit together")
    return sparse.csr_array((data, indices, indptr), shape=tuple(shape))


def _array(arrays: Arrays, name: str, kind: str, ndim: int, what: str) -> npt.NDArray[Any]:
    array = arrays.get(name)
    if array is None:
        raise InputError(f"{what} is damaged: it has no array {name}")
    if array.dtype.kind != kind or array.ndim != ndim:
        raise InputError(f"{what} is damaged: {name} is {describe(array)}")
    return array


def _listed(header: dict[str, Any], key: str, what: str) -> list[Any]:
    value = header.get(key)
    if not isinstance(value, list):
        raise InputError(f"{what} is damaged: {key} in its header is {describe(value)}, not a list")
    return value


def _whole_numbers(header: dict[str, Any], key: str, what: str) -> list[int]:
    value = _listed(header, key, what)
    if len(value) > 32 or not all(type(n) is int and 0 < n < 2**31 for n in value):
        raise InputError(f"{what} is damaged: {key} in its header is {describe(value)}")
    return value


def _header_json(text: bytes, what: str, limits: Limits) -> Any:
    try:
        return parse_json(text, "its JSON header", limits)
    except InputLimitError as error:
        raise InputLimitError(f"{what}: {error}") from error
    except InputError as error:
        raise InputError(f"{what} is damaged: {error}") from error


# -- plain files -----------------------------------------------------------------------------------------------

_NUMBERED = re.compile(
    r"(?:(?P<W>W|w|weight|weights|kernel|coef|coefs)|(?P<b>b|bias|biases|intercept|intercepts))_?(?P<n>[0-9]{1,6})",
    re.ASCII,
)
_STATE = re.compile(r"(?:(?P<layer>.+)[./])?(?P<part>weight|kernel|bias)(?::0)?", re.DOTALL)
_SAVEZ = re.compile(r"arr_(?P<n>[0-9]{1,6})", re.ASCII)

Named = list[tuple[str, npt.NDArray[Any] | None, npt.NDArray[Any] | None]]


def _plain(
    arrays: Arrays, what: str, limits: Limits, activation: Any, order: Sequence[str] | None, transpose: bool
) -> Network:
    return network_from_tensors(
        arrays, what=what, limits=limits, activation=activation, order=order, transpose=transpose
    )


def _no_options(what: str, activation: Any, order: Any, transpose: bool) -> None:
    if activation is not None or order is not None or transpose:
        raise InputError(
            f"{what} was saved by Reluscope and names its own layers: leave activation, order, transpose out"
        )


def _named_layers(
    tensors: Mapping[str, npt.NDArray[Any]], what: str, order: Sequence[str] | None, ordered: bool
) -> Named:
    if all(_SAVEZ.fullmatch(name) for name in tensors):
        return _from_savez([tensors[f"arr_{i}"] for i in sorted(int(name[4:]) for name in tensors)])
    found: dict[str, list[npt.NDArray[Any] | None]] = {}
    numbered = [_NUMBERED.fullmatch(name) for name in tensors]
    if all(numbered):
        for match, array in zip(numbered, tensors.values(), strict=True):
            assert match is not None
            slot = found.setdefault(str(int(match["n"])), [None, None])
            _put(slot, 0 if match["W"] else 1, array, match.string, what)
        numbers = sorted(map(int, found))
        if order is None and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise InputError(f"{what} has layers {numbers}: a number is missing")
        names = [str(n) for n in numbers]
    else:
        for name, array in tensors.items():
            match = _STATE.fullmatch(name)
            if match is None:
                raise UnsupportedError(
                    f"{what} holds {quoted(name)}, which is neither a weight nor a bias of a plain network; names are "
                    "W0, b0, ... or <layer>.weight, <layer>.bias. For other models pass the live object or ONNX"
                )
            slot = found.setdefault(match["layer"] or "", [None, None])
            _put(slot, 1 if match["part"] == "bias" else 0, array, name, what)
        names = list(found)
        if not ordered and order is None:
            names = _by_number(names, what)
    if order is not None:
        if isinstance(order, str) or sorted(map(str, order)) != sorted(found):
            raise InputError(f"order must list the layers {sorted(found)} from input to output, got {order!r}")
        names = [str(n) for n in order]
    return [(name or "(unnamed)", found[name][0], found[name][1]) for name in names]


def _put(slot: list[npt.NDArray[Any] | None], at: int, array: npt.NDArray[Any], name: str, what: str) -> None:
    if slot[at] is not None:
        raise InputError(f"{what} names the same weight twice ({quoted(name)})")
    slot[at] = array


def _from_savez(arrays: list[npt.NDArray[Any]]) -> Named:
    """Matrices in order, each with the vector that follows it, if one does."""
    layers: Named = []
    for i, array in enumerate(arrays):
        if array.ndim == 1 and layers and layers[-1][2] is None:
            layers[-1] = (layers[-1][0], layers[-1][1], array)
        else:
            layers.append((f"arr_{i}", array, None))
    return layers


def _by_number(names: list[str], what: str) -> list[str]:
    """Layer names in the order of the numbers in them; names that differ in more than numbers have no order."""
    if len({re.sub(r"[0-9]+", "#", name) for name in names}) > 1:
        raise InputError(
            f"{what} has layers {[quoted(n) for n in names[:8]]}, whose names do not say their order; "
            "pass order=[...] from input to output"
        )
    return sorted(names, key=lambda name: [int(n) for n in re.findall(r"[0-9]{1,4000}", name)])


def _check_chain(parts: list[tuple[Any, Any]], labels: list[str], what: str, transpose: bool) -> None:
    """Widths must fit from layer to layer; if the other orientation would fit, say so."""
    if _fits(parts):
        return
    shapes = ", ".join(
        f"{label} {W.shape[::-1] if transpose else W.shape}" for (W, _), label in zip(parts, labels, strict=True)
    )
    if _fits([(W.T, b) for W, b in parts]):
        raise InputError(
            f"{what}: weights are stored as ({'outputs, inputs' if transpose else 'inputs, outputs'}): {shapes}; "
            f"pass transpose={not transpose}"
        )
    raise InputError(f"{what}: the layers do not fit together: {shapes}; is the order right?")


def _fits(parts: list[tuple[Any, Any]]) -> bool:
    widths = all(a[0].shape[0] == b[0].shape[1] for a, b in pairwise(parts))
    return widths and all(b is None or len(b) == W.shape[0] for W, b in parts)


# -- safetensors -----------------------------------------------------------------------------------------------

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1",
}  # fmt: skip


def _safetensors() -> Any:
    try:
        safetensors = late("safetensors")
        late("safetensors.numpy")
    except ImportError as error:
        raise MissingExtraError(
            "safetensors files need the safetensors package: pip install 'reluscope[safetensors]'"
        ) from error
    return safetensors


def _read_safetensors(data: bytes, limits: Limits, what: str) -> tuple[Arrays, dict[str, str]]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 10 or length > len(data) - 8 or data[8:9] != b"{":
        raise InputError(f"{what} is not a safetensors file, or it is cut short{looks_like(data)}")
    header = _header_json(data[8 : 8 + length], what, limits)
    if not isinstance(header, dict):
        raise InputError(f"{what} is damaged: its header is not a table")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise InputError(f"{what} is damaged: its metadata is not a table of texts")
    limits.check("tensors", len(header), what)
    limits.check("elements", _claimed(header, what), what)
    library = _safetensors()
    try:
        tensors = library.deserialize(data)
    except Exception as error:  # its own SafetensorError, and errors of Python's own kinds
        raise InputError(f"{what} is damaged: {str(error)[:120]}") from error
    found: Arrays = {}
    for name, tensor in tensors:
        limits.check_time(what)
        code = _DTYPES.get(str(tensor["dtype"]))
        if code is None:
            raise UnsupportedError(f"{quoted(name)} in {what} has type {tensor['dtype']}, which is not read")
        try:
            array = np.frombuffer(tensor["data"], dtype=code).reshape(tensor["shape"])
        except ValueError as error:
            raise InputError(f"{what} is damaged: {quoted(name)} claims shape {tensor['shape']}") from error
        if tensor["dtype"] == "BF16":  # the upper half of a float32
            array = (array.astype(np.uint32) << 16).view(np.float32)
        found[name] = array
    return found, metadata


def _claimed(header: dict[str, Any], what: str) -> int:
    """How many numbers the header of a safetensors file claims."""
    total = 0
    for name, facts in header.items():
        shape = facts.get("shape") if isinstance(facts, dict) else None
        if not isinstance(shape, list) or len(shape) > 32 or not all(type(n) is int and n >= 0 for n in shape):
            raise InputError(f"{what} is damaged: {quoted(name)} has no shape in its header")
        total += max(math.prod(shape), *shape, 0)
    return total
