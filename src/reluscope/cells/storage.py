"""Regions in a file: the network, the domain, the patterns and maps, and the cells, in one npz archive.

Cells are records of arrays (and of records of arrays); each array is stored as `cells.<field>`. Files are untrusted:
they are read within limits, the type and shape of every array and all that indexes another one are checked before
compiled code sees them, and the patterns are checked against the network at the cells' interior points.
"""

from __future__ import annotations

import dataclasses
import typing
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._files import as_path
from reluscope._npy import Arrays, read_npz
from reluscope.cells.domain import geometry_class
from reluscope.cells.regions import Domain, Regions
from reluscope.cells.subdivide import first_labels
from reluscope.errors import InputError
from reluscope.formats.arrays import network_from_arrays, network_to_arrays, write_npz
from reluscope.limits import DEFAULT_LIMITS, Limits, started
from reluscope.network import Network

GEOMETRIES = {"Intervals": "interval", "Polygons": "polygon", "VertexCells": "vertex", "HPolytopes": "polytope"}
_SHAPES: dict[str, dict[str, tuple[str, str]]] = {
    "Intervals": {"low": ("f8", "n"), "high": ("f8", "n"), "labels": ("i4", "n 2")},
    "Polygons": {"points": ("f8", "v 2"), "labels": ("i4", "v"), "offsets": ("i8", "m")},
    "VertexCells": {
        "points": ("f8", "v d"),
        "bits": ("u8", "v w"),
        "labels": ("i4", "f"),
        "offsets": ("i8", "m"),
        "facet_offsets": ("i8", "m"),
        "rays": ("f8", "v? d"),
        "scales": ("f8", "v? d"),
        "radius": ("f8", "n?"),
    },
    "HPolytopes": {
        "A": ("f8", "v d"),
        "b": ("f8", "v"),
        "error": ("f8", "v"),
        "labels": ("i4", "v"),
        "offsets": ("i8", "m"),
        "basis": ("i4", "n d"),
        "clean": ("i4", "n"),
    },
    "Frame": dict.fromkeys(("origin", "scale", "lower", "upper", "outer_low", "outer_up"), ("f8", "d"))
    | {"sides": ("i4", "2d")},
}
"""By kind of record: type and axes of each array. n cells, m = n + 1, v vertices or rows, f facets, d inputs, w words;
with a question mark the axis may also be empty."""


def save_regions(regions: Regions, path: str | PathLike[str]) -> None:
    """Write regions to `path`, which should end in `.npz`."""
    path = as_path(path)
    if path.suffix != ".npz":
        raise InputError(f"path: regions are saved as .npz files, got {path.name!r}")
    out = head(regions.network, regions.domain)
    out |= {"geometry": _text(GEOMETRIES[type(regions.cells).__name__])}
    out |= {"stopped": _text(regions.stopped or ""), "doubt": _text(regions.doubt or "")}
    out |= {"pattern": regions.pattern, "maps": regions.maps}
    write_npz(out | flattened(regions.cells, "cells"), path)


def head(net: Network, domain: Domain) -> Arrays:
    """Network and domain as arrays."""
    header, arrays = network_to_arrays(net)
    out: Arrays = {"network": _text(header)} | {f"network.{name}": array for name, array in arrays.items()}
    if domain.box is not None:
        out |= {"box.lower": domain.box[0], "box.upper": domain.box[1]}
    if domain.half_spaces is not None:
        out |= {"rows.A": domain.half_spaces[0], "rows.b": domain.half_spaces[1]}
    return out


def read_head(arrays: Arrays, geometry: str, what: str, limits: Limits) -> tuple[Network, Domain, Any]:
    """What `head` wrote, and the class of a geometry; all kinds of errors if something does not fit."""
    inner = {k.removeprefix("network."): v for k, v in arrays.items() if k.startswith("network.")}
    net = network_from_arrays(inner, arrays["network"].tobytes(), what, limits)
    box = _pair(arrays, "box.lower", "box.upper", (net.n_inputs,))
    rows = _pair(arrays, "rows.A", "rows.b", (-1, net.n_inputs))
    return net, Domain(box, rows), geometry_class(net.n_inputs, geometry)


def load_regions(path: str | PathLike[str], limits: Limits = DEFAULT_LIMITS) -> Regions:
    """Read regions written by `save_regions`."""
    limits = started(limits)
    arrays, what = read_npz(path, limits), Path(path).name
    if "network" not in arrays:
        some = ", ".join(sorted(arrays)[:4])
        kind = "a network: reluscope.load reads it" if "reluscope" in arrays else f"other arrays ({some})"
        raise InputError(f"{what} is not a file of regions, it holds {kind}")
    try:
        net, domain, kind = read_head(arrays, _read_text(arrays["geometry"]), what, limits)
        pattern, maps = arrays["pattern"], arrays["maps"]
        n = len(pattern) if pattern.ndim else 0
        if pattern.shape != (n, net.n_units) or pattern.dtype != np.uint8:
            raise ValueError("pattern")
        if maps.shape != (n, net.n_inputs + 1, net.n_outputs) or maps.dtype != np.float64:
            raise ValueError("maps")
        cells = rebuilt(kind, arrays, "cells", {"n": n, "m": n + 1, "d": net.n_inputs, "2d": 2 * net.n_inputs, "2": 2})
        check_indices(cells, first_labels(net)[-1])
        stopped, doubt = (_read_text(arrays[name]) or None if name in arrays else None for name in ("stopped", "doubt"))
        found = Regions(net, domain, cells, pattern, maps, stopped, doubt)
        fits = np.array_equal(net.pattern(found.interior), pattern)
    except InputError as error:
        if what in str(error):
            raise
        raise type(error)(f"{what} is damaged: {error}") from error
    except Exception as error:  # what does not fit together shows in numpy or in a kernel, by errors of many kinds
        raise InputError(f"{what} is not a file of regions, or it is damaged: {str(error)[:100]}") from error
    if not fits:
        raise InputError(f"{what} is damaged: its cells do not fit its network")
    return found


def row_axes(cells: Any) -> dict[str, str]:
    """The arrays of regions with such cells that grow with their number, and the first axis of each."""
    kind = type(cells).__name__
    grown = {f"cells.{field}": axes.split()[0].rstrip("?") for field, (_, axes) in _SHAPES[kind].items()}
    return {"pattern": "n", "maps": "n", **grown}


def constants(cells: Any) -> tuple[str, ...]:
    """The other arrays of such cells."""
    return tuple(name for name in flattened(cells, "cells") if name not in row_axes(cells))


def _pair(arrays: Arrays, first: str, second: str, shape: tuple[int, ...]) -> tuple[Any, Any] | None:
    """Two arrays of the domain, or None where there are none."""
    if first not in arrays and second not in arrays:
        return None
    a, b = arrays[first], arrays[second]
    wanted = (len(b), *shape[1:]) if shape[0] < 0 else shape
    if a.shape != wanted or b.shape != (wanted[0],) or a.dtype != np.float64 or b.dtype != np.float64:
        raise ValueError(f"{first} and {second}")
    return a, b


def _text(value: str) -> Any:
    return np.frombuffer(value.encode(), dtype=np.uint8)


def _read_text(array: Any) -> str:
    return bytes(array.astype(np.uint8)).decode()


def _fields(record: Any) -> tuple[str, ...]:
    """Names of the fields of a dataclass or a named tuple; none for anything else.

    A field that is empty by default is for further cuts (`VertexCells.thin`), and has no place in a file.
    """
    if dataclasses.is_dataclass(record):
        return tuple(f.name for f in dataclasses.fields(record) if f.default_factory is dataclasses.MISSING)
    return tuple(getattr(record, "_fields", ()))


def flattened(record: Any, prefix: str) -> Arrays:
    """The arrays of a record by name, those of records inside of it too."""
    out: Arrays = {}
    for field in _fields(record):
        value = getattr(record, field)
        name = f"{prefix}.{field}"
        out |= flattened(value, name) if _fields(value) else {name: np.asarray(value)}
    return out


def rebuilt(kind: Any, arrays: Arrays, prefix: str, sizes: dict[str, int]) -> Any:
    """A record of arrays, each of the type and shape that its kind has; `sizes` are the axes known so far."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in _fields(kind):
        name = f"{prefix}.{field}"
        if _fields(hints[field]):
            values[field] = rebuilt(hints[field], arrays, name, sizes)
            continue
        value = arrays[name]
        dtype, axes = _SHAPES[kind.__name__][field]
        names = axes.split()
        if value.dtype != np.dtype(dtype) or value.ndim != len(names):
            raise ValueError(name)
        for axis, length in zip(names, value.shape, strict=True):
            if not (axis.endswith("?") and length == 0) and sizes.setdefault(axis.rstrip("?"), length) != length:
                raise ValueError(name)
        values[field] = np.ascontiguousarray(value)
    return kind(**values)


def check_indices(cells: Any, hyperplanes: int, at_once: int | None = None) -> None:
    """Offsets rise to the end of what they cut up; numbers of facets, rows and hyperplanes exist.

    With `at_once`, so many cells are looked at together.
    """
    name, labels = type(cells).__name__, cells.labels
    if labels.size and int(labels.max()) >= hyperplanes:
        raise ValueError("cells.labels")
    if name == "Intervals":
        return
    owned = cells.points if name in ("Polygons", "VertexCells") else cells.A
    if not _rises(cells.offsets, len(owned)):
        raise ValueError("cells.offsets")
    if name == "VertexCells":
        if not _rises(cells.facet_offsets, len(labels)):
            raise ValueError("cells.facet_offsets")
        if len(cells.rays) != len(cells.scales) or (len(cells.rays) > 0) != (len(cells.radius) > 0):
            raise ValueError("cells.rays")
    size = at_once or max(len(cells), 1)
    for begin in range(0, len(cells), size):
        _check_part(name, cells.part(begin, min(begin + size, len(cells))))


def _check_part(name: str, cells: Any) -> None:
    rows = np.diff(cells.offsets)
    if name == "VertexCells":
        facets = np.repeat(np.diff(cells.facet_offsets), rows)  # of the cell that each vertex belongs to
        spare = np.clip(facets[:, None] - 64 * np.arange(cells.bits.shape[1])[None, :], 0, 64)
        # Bits from number `spare` of each word on stand for facets that the cell does not have.
        beyond = np.where(spare < 64, cells.bits >> np.minimum(spare, 63).astype(np.uint64), np.uint64(0))
        if beyond.any() or (len(facets) and facets.max() > 64 * cells.bits.shape[1]):
            raise ValueError("cells.bits")
    if name == "HPolytopes":
        d = cells.basis.shape[1]
        if (cells.basis < -d).any() or (cells.basis >= 2 * d + rows[:, None]).any():
            raise ValueError("cells.basis")
        if (cells.clean < 0).any() or (cells.clean > rows).any():
            raise ValueError("cells.clean")


def _rises(offsets: Any, end: int) -> bool:
    return bool(offsets[0] == 0 and offsets[-1] == end and (np.diff(offsets) >= 0).all())
