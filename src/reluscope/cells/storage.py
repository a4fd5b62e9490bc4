"""Regions in a file: the network, the domain, the patterns and maps, and the cells, in one npz archive.

Cells are records of arrays (and of records of arrays); each array is stored as `cells.<field>`. Files are untrusted:
they are read within limits, offsets are checked before compiled code sees them, and the patterns are checked against
the network at the cells' interior points.
"""

from __future__ import annotations

import dataclasses
import typing
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from reluscope.cells.domain import geometry_class
from reluscope.cells.regions import Domain, Regions
from reluscope.errors import InputError
from reluscope.formats.arrays import Arrays, network_from_arrays, network_to_arrays, read_npz, write_npz
from reluscope.limits import DEFAULT_LIMITS, Limits

_NAMES = {"Intervals": "interval", "Polygons": "polygon", "VertexCells": "vertex", "HPolytopes": "polytope"}


def save_regions(regions: Regions, path: str | PathLike[str]) -> None:
    """Write regions to `path`, which should end in `.npz`."""
    if Path(path).suffix != ".npz":
        raise InputError(f"regions are saved as .npz files, got {Path(path).name!r}")
    header, arrays = network_to_arrays(regions.network)
    out: Arrays = {f"network.{name}": array for name, array in arrays.items()}
    out |= {"network": _text(header), "geometry": _text(_NAMES[type(regions.cells).__name__])}
    out |= {"stopped": _text(regions.stopped or ""), "pattern": regions.pattern, "maps": regions.maps}
    if regions.domain.box is not None:
        out |= {"box.lower": regions.domain.box[0], "box.upper": regions.domain.box[1]}
    if regions.domain.half_spaces is not None:
        out |= {"rows.A": regions.domain.half_spaces[0], "rows.b": regions.domain.half_spaces[1]}
    write_npz(out | _flattened(regions.cells, "cells"), path)


def load_regions(path: str | PathLike[str], limits: Limits = DEFAULT_LIMITS) -> Regions:
    """Read regions written by `save_regions`."""
    arrays, what = read_npz(path, limits), Path(path).name
    if "network" not in arrays:
        some = ", ".join(sorted(arrays)[:4])
        kind = "a network: reluscope.load reads it" if "reluscope" in arrays else f"other arrays ({some})"
        raise InputError(f"{what} is not a file of regions, it holds {kind}")
    try:
        inner = {k.removeprefix("network."): v for k, v in arrays.items() if k.startswith("network.")}
        net = network_from_arrays(inner, arrays["network"].tobytes(), what, limits)
        kind = geometry_class(net.n_inputs, _read_text(arrays["geometry"]))
        box = (arrays["box.lower"], arrays["box.upper"]) if "box.lower" in arrays else None
        rows = (arrays["rows.A"], arrays["rows.b"]) if "rows.A" in arrays else None
        cells = _rebuilt(kind, arrays, "cells")
        found = Regions(
            net, Domain(box, rows), cells, arrays["pattern"], arrays["maps"], _read_text(arrays["stopped"]) or None
        )
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise InputError(f"{what} is not a file of regions, or it is damaged: {error}") from error
    _check(found, what)
    return found


def _check(found: Regions, what: str) -> None:
    n, net = len(found.pattern), found.network
    shapes = {
        "pattern": found.pattern.shape == (n, net.n_units) and found.pattern.dtype == np.uint8,
        "maps": found.maps.shape == (n, net.n_inputs + 1, net.n_outputs) and found.maps.dtype == np.float64,
        "cells": len(found.cells) == n,
    }
    bad = [name for name, ok in shapes.items() if not ok]
    try:
        fits = not bad and np.array_equal(net.pattern(found.interior), found.pattern)
    except (IndexError, ValueError):  # arrays of cells that do not fit one another
        fits = False
    if not fits:
        raise InputError(f"{what} is damaged: its {bad[0] if bad else 'cells'} do not fit its network")


def _text(value: str) -> Any:
    return np.frombuffer(value.encode(), dtype=np.uint8)


def _read_text(array: Any) -> str:
    return bytes(array.astype(np.uint8)).decode()


def _fields(record: Any) -> tuple[str, ...]:
    """Names of the fields of a dataclass or a named tuple; none for anything else."""
    if dataclasses.is_dataclass(record):
        return tuple(field.name for field in dataclasses.fields(record))
    return tuple(getattr(record, "_fields", ()))


def _flattened(record: Any, prefix: str) -> Arrays:
    out: Arrays = {}
    for field in _fields(record):
        value = getattr(record, field)
        name = f"{prefix}.{field}"
        out |= _flattened(value, name) if _fields(value) else {name: np.asarray(value)}
    return out


def _rebuilt(kind: Any, arrays: Arrays, prefix: str) -> Any:
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in _fields(kind):
        name = f"{prefix}.{field}"
        if name not in arrays:
            if not _fields(hints[field]):
                raise KeyError(name)
            values[field] = _rebuilt(hints[field], arrays, name)
            continue
        value = np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape)
        if field.endswith("offsets") and not _rises(value):
            raise KeyError(name)
        values[field] = value.item() if value.ndim == 0 else value
    lengths = {name: len(v) for name, v in values.items() if isinstance(v, np.ndarray)}
    for name, value in values.items():
        if name.endswith("offsets") and int(value[-1]) not in lengths.values():
            raise KeyError(f"{prefix}.{name}")
    return kind(**values)


def _rises(offsets: Any) -> bool:
    good = offsets.ndim == 1 and offsets.dtype.kind == "i" and len(offsets) > 0
    return bool(good and offsets[0] == 0 and (np.diff(offsets) >= 0).all())
