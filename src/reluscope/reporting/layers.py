"""What `reluscope layers` prints and writes."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray, generator, integer, real_array
from reluscope._files import read_bytes
from reluscope._tables import write_csv
from reluscope.cells.domain import box_bounds
from reluscope.errors import InputError
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


def read_points(path: Path, columns: int) -> FloatArray:
    """Rows of numbers from a CSV (or blank-separated) text file or an `.npy` file; extra columns are refused."""
    content = read_bytes(path)
    if path.suffix == ".npy":
        try:
            raw = np.load(io.BytesIO(content), allow_pickle=False)
        except (ValueError, EOFError, MemoryError) as error:
            raise InputError(f"{path.name} is not an .npy file of numbers: {error}") from error
    else:
        raw = _table(content, path.name)
    X = real_array(raw, path.name)
    X = X.reshape(len(X), -1) if X.ndim > 2 else np.atleast_2d(X)
    if columns == 1 and X.shape[0] == 1:
        X = X.T
    if X.shape[1] != columns:
        raise InputError(f"{path.name} must have {columns} columns, one per input of the model, got {X.shape[1]}")
    return X


def _table(content: bytes, name: str) -> FloatArray:
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{name} is not a text file of numbers; .npy files must end in .npy") from None
    rows: list[list[float]] = []
    for number, line in enumerate(lines, start=1):
        cells = [c for c in (line.split(",") if "," in line else line.split()) if c.strip()]
        if not cells:
            continue
        try:
            rows.append([float(c) for c in cells])
        except ValueError:
            if rows or number > 1:
                raise InputError(f"{name} has a cell that is not a number on line {number}") from None
        if rows and len(rows[-1]) != len(rows[0]):
            raise InputError(f"{name} has {len(rows[-1])} columns on line {number}, {len(rows[0])} before it")
    if not rows:
        raise InputError(f"{name} holds no rows of numbers")
    return np.array(rows)


def _write(found: Layers, folder: Path, stem: str) -> list[str]:
    from reluscope.plot._axes import save
    from reluscope.plot.layers import plot_clouds, plot_geometry, plot_layers

    folder.mkdir(parents=True, exist_ok=True)
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
