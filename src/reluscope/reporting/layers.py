"""What `reluscope layers` prints and writes."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray, generator, integer, real_array
from reluscope._files import make_folder
from reluscope._npy import read_npy
from reluscope._tables import read_numbers, write_csv
from reluscope.cells.domain import box_bounds
from reluscope.errors import InputError
from reluscope.limits import DEFAULT_LIMITS, Limits
from reluscope.network import Network
from reluscope.representation.layers import Layers, layers


def list_layers(
    net: Network, name: str, *, data: Path | None, box: Any, points: int, rng: Any, folder: Path | None
) -> tuple[dict[str, Any], str]:
    """Measure, write the table and pictures to `folder` if given, and return the facts and the text to print."""
    rng = generator(rng)
    if data is not None:
        X = read_points(data, net.n_inputs)
    elif box is not None:
        lower, upper = box_bounds(box, net.n_inputs)
        X = rng.uniform(lower, upper, (integer(points, "points", low=2), net.n_inputs))
    else:
        raise InputError("no inputs: give data, or a box to draw them from")
    started = time.perf_counter()
    found = layers(net, X, box=box, rng=rng, progress="auto")
    seconds = time.perf_counter() - started
    files = [] if folder is None else _write(found, folder, Path(name).stem)
    facts: dict[str, Any] = {
        "model": name,
        "network": repr(net),
        "points": found.n_points,
        "layers": found.to_dict(),
        "note": found.note,
        "files": files,
        "seconds": round(seconds, 3),
    }
    lines = [f"{name}: {net!r}", f"{found.n_points:,} inputs, {seconds:.2f} s", "", str(found)]
    if found.stability is not None:
        lines += ["", repr(found.stability)]
    if folder is not None:
        lines += ["", f"written to {folder}/: {', '.join(files)}"]
    return facts, "\n".join(lines)


def read_points(path: Path, columns: int, limits: Limits = DEFAULT_LIMITS) -> FloatArray:
    """Rows of numbers from a CSV (or blank-separated) text file or an `.npy` file; extra columns are refused."""
    X = real_array(read_npy(path, limits.started()) if path.suffix == ".npy" else read_numbers(path, limits), path.name)
    if X.ndim > 2:
        X = X.reshape(len(X), math.prod(X.shape[1:]))
    X = np.atleast_2d(X)
    if columns == 1 and X.shape[0] == 1:
        X = X.T
    if X.shape[1] != columns:
        raise InputError(f"{path.name} must have {columns} columns, one per input of the model, got {X.shape[1]}")
    return X


def _write(found: Layers, folder: Path, stem: str) -> list[str]:
    from reluscope.plot._axes import save
    from reluscope.plot.layers import plot_clouds, plot_geometry, plot_layers

    make_folder(folder)
    columns = {k: ["" if v is None else v for v in column] for k, column in found.to_dict().items()}
    write_csv({k: np.array(column, dtype=object) for k, column in columns.items()}, folder / f"{stem}-layers.csv")
    files = [f"{stem}-layers.csv"]
    for what, panels in (
        ("layers", plot_layers(found)),
        ("geometry", plot_geometry(found)),
        ("clouds", plot_clouds(found)),
        ("coordinates", plot_clouds(found, "coordinates")),
    ):
        save(panels.ravel()[0], folder / f"{stem}-{what}.png")
        files.append(f"{stem}-{what}.png")
    return files
