"""A CSV file that was dropped on the page: rows of data for a network, or a law fitted to them."""

from __future__ import annotations

import secrets
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray, choice
from reluscope._tables import read_csv, read_table
from reluscope._text import count
from reluscope.errors import InputError
from reluscope.limits import Limits
from reluscope.network import Network
from reluscope.playground.session import Opened

MOST_BYTES = 32 << 20
MOST_ROWS = 200_000
USES = ("data", "law")

_MOST_COMPONENTS, _ROWS_EACH, _MOST_MIXED = 6, 100, 30
"""Gaussians of a fitted law, rows for each of them, and inputs up to which there is more than one."""


def with_table(opened: Opened, path: Path, name: str, use: Any, limits: Limits) -> Opened:
    """The network with the rows of a file as data, or with a law fitted to them; under a new key."""
    use = choice(use, "as", USES)
    X, code = rows_for(opened.net, path, name, limits)
    if len(X) > MOST_ROWS:
        raise InputError(f"{name} has {len(X):,} rows, at most {MOST_ROWS:,} are taken here")
    key = secrets.token_hex(8)
    if use == "data":
        return replace(opened, key=key, data=X, data_name=name)
    if len(X) < 2:
        raise InputError(f"{name} must have at least two rows to fit a law, got {len(X)}")
    from reluscope.inputs import GaussianMixture

    most = _MOST_COMPONENTS if find_spec("sklearn") is not None and X.shape[1] <= _MOST_MIXED else 1
    k = int(np.clip(len(X) // _ROWS_EACH, 1, most))
    law = GaussianMixture.fit(X, components=k, rng=0)
    about = f"law: {count(k, 'Gaussian')} fitted to the {len(X):,} rows of {name}"
    lines = [
        opened.code.partition("\n# law\n")[0],
        "# law",
        code,
        f"law = rs.GaussianMixture.fit(X, components={k}, rng=0)",
    ]
    return replace(opened, key=key, law=law, about=about, code="\n".join(lines), data=X, data_name=name)


def rows_for(net: Network, path: Path, name: str, limits: Limits) -> tuple[FloatArray, str]:
    """The inputs (n, inputs) in a CSV file, and the Python that reads them: columns by name, or in their order.

    A file with one column more than the network has inputs is taken to end in a target, which is left out.
    """
    try:
        if net.schema is not None and net.schema.columns and _has_names(path, net.schema.names):
            table, _ = read_table(path, net.schema.names, limits=limits)
            wanted = f"{{n: T[n] for n in {list(net.schema.names)!r}}}"
            lines = (
                f"T = np.genfromtxt({name!r}, delimiter=',', names=True, dtype=None)\nX = net.schema.encode({wanted})"
            )
            return net.schema.encode(table, quiet=True), lines
        found = read_csv(path, limits=limits) if net.n_inputs else None
    except InputError as error:
        raise InputError(str(error).replace(str(path), name)) from None
    assert found is not None
    n = found.X.shape[1]
    if n not in (net.n_inputs, net.n_inputs + 1):
        raise InputError(
            f"{name} has {count(n, 'column')}, but the network has {count(net.n_inputs, 'input')}: give a column for "
            "each input, in their order (and at most a target after them)"
        )
    code = f"X = np.genfromtxt({name!r}, delimiter=',', skip_header={int(_headed(found.names))})"
    return found.X[:, : net.n_inputs], f"{code}[:, :{net.n_inputs}]"


def _headed(names: tuple[str, ...]) -> bool:
    return names != tuple(f"x{i}" for i in range(len(names)))


def _has_names(path: Path, names: tuple[str, ...]) -> bool:
    """Whether the first line of a file has all these names."""
    with path.open("rb") as file:
        first = file.readline(1 << 16).decode("utf-8", "replace")
    cells = {cell.strip().strip('"') for mark in ",;\t" for cell in first.split(mark)}
    return set(names) <= cells


def points(opened: Opened, axes: list[int], most: int = 2000) -> dict[str, Any] | None:
    """The rows of data in the shown inputs, thinned to `most`, with their classes where those are known."""
    if opened.data is None:
        return None
    step = max(1, -(-len(opened.data) // most))
    X: FloatArray = opened.data[::step][:, axes]
    classes = None if opened.classes is None else opened.classes[::step].tolist()
    return {"name": opened.data_name, "rows": len(opened.data), "points": X.ravel().tolist(), "classes": classes}
