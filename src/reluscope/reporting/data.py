"""Rows of data from CSV files for a network, and laws from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reluscope._tables import Rows, read_csv, read_table
from reluscope._text import count
from reluscope.errors import InputError
from reluscope.inputs import Gaussian, GaussianMixture, Law, law_from_json
from reluscope.network import Network


def data_rows(
    net: Network,
    path: Path,
    target: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
) -> Rows:
    """Rows of data from a CSV file for a network: by the names of its schema, else by the order of the columns."""
    schema = net.schema
    if schema is None or not schema.columns or features is not None:
        return read_csv(path, target=target, features=features, drop=drop or ())
    table, y = read_table(path, schema.names, target=target)
    return Rows(schema.encode(table, name=path.name), schema.inputs, y)


def law_of_file(net: Network, path: Path, *, components: int = 1, rng: Any = None) -> tuple[Law, list[str] | None]:
    """The law in a JSON file, or one fitted to the rows of a CSV file: with the names of its columns."""
    if path.suffix.lower() != ".csv":
        return law_from_json(path), None
    rows = data_rows(net, path)
    if rows.X.shape[1] != net.n_inputs:
        raise InputError(
            f"{path.name} has {count(rows.X.shape[1], 'column')} but the network takes {count(net.n_inputs, 'input')}"
        )
    if len(rows.X) < 2:
        raise InputError(f"{path.name} has one row: a law cannot be fitted to it; give more rows, or a law.json")
    names = list(rows.names) if len(set(rows.names)) == len(rows.names) else None
    if components == 1:
        return Gaussian.fit(rows.X), names
    return GaussianMixture.fit(rows.X, components=components, rng=rng), names
