"""Rows of data from CSV files for a network, and laws from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._tables import Rows, read_csv, read_table
from reluscope._text import count
from reluscope.errors import InputError
from reluscope.inputs import Gaussian, GaussianMixture, Law, fit, law_from_json
from reluscope.network import Network

_MOST_COLUMNS, _LEAST_ROWS = 120, 20
"""Inputs up to which, and rows from which on, a law with any marginals is fitted."""


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


def fitted_law(net: Network, X: FloatArray, *, most: int | None = None, rng: Any = None) -> tuple[Law, str]:
    """A law fitted to rows, and a sentence that says which: any marginals and categories where the columns are known.

    A Gaussian over one-hot columns and counts says little about a table. At most `most` rows, chosen at random.
    """
    rows = f"the {len(X):,} rows of data given"
    if net.schema is None or not net.schema.columns or net.n_inputs > _MOST_COLUMNS or len(X) < _LEAST_ROWS:
        return Gaussian.fit(X), f"Law (distribution) of the inputs: a Gaussian fitted to {rows}."
    if most is not None and len(X) > most:
        rows = f"{most:,} of {rows}, chosen at random"
        X = X[np.sort(np.random.default_rng(rng).choice(len(X), most, replace=False))]
    law = fit(X, net.schema)
    parts = count(len(law.scores.components), "component")
    return law, f"Law (distribution) of the inputs: the categories and quantiles of {rows} ({parts})."


def law_words(law: Law) -> str:
    """A law in words: what kind it is, of how many inputs."""
    parts = len(law.components)
    kinds = {
        "gaussian": "a Gaussian",
        "mixture": "a Gaussian" if parts == 1 else f"a mixture of {parts:,} Gaussians",
        "mixture of laws": f"a mixture of {parts:,} laws",
        "uniform": "uniform on a box",
        "truncated": "a Gaussian cut off at the sides of a box",
        "particles": f"{parts:,} points with their probabilities",
        "copula": "marginals of any shape, joined by a Gaussian copula",
    }
    if law.kind not in kinds:
        return repr(law)
    word = "independent" if law.independent_inputs else "correlated"
    joined = "" if law.kind != "gaussian" or law.n < 2 else f" with {word} inputs"
    return f"{kinds[law.kind]}{joined} ({count(law.n, 'input')})"


def law_of_file(
    net: Network, path: Path, *, components: int | None = None, rng: Any = None
) -> tuple[Law, list[str] | None, FloatArray | None]:
    """The law in a JSON file, or one fitted to the rows of a CSV file: with the names of its columns and the rows.

    `components` asks for so many Gaussians.
    """
    if path.suffix.lower() != ".csv":
        return law_from_json(path), None, None
    rows = data_rows(net, path)
    if rows.X.shape[1] != net.n_inputs:
        raise InputError(
            f"{path.name} has {count(rows.X.shape[1], 'column')} but the network takes {count(net.n_inputs, 'input')}"
        )
    if len(rows.X) < 2:
        raise InputError(f"{path.name} has one row: a law cannot be fitted to it; give more rows, or a law.json")
    names = list(rows.names) if len(set(rows.names)) == len(rows.names) else None
    if components is None or components == 1:
        return (Gaussian.fit(rows.X) if components else fitted_law(net, rows.X)[0]), names, rows.X
    return GaussianMixture.fit(rows.X, components=components, rng=rng), names, rows.X
