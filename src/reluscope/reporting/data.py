"""Rows of data from CSV files, for a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reluscope._tables import Rows, read_csv, read_table
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
