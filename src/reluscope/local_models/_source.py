"""The network of a model object with the schema it brings, and tables whose columns stand in another order.

A pipeline has its earlier steps folded into the network. All of it is read off the object, without importing any
framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reluscope._columns import Names, check_names, columns_of, strings
from reluscope.errors import InputError
from reluscope.network import Network
from reluscope.schema import Column, Schema

_DEPTH = 20
"""Estimators inside estimators."""


@dataclass(frozen=True, eq=False)
class Source:
    """A network with what the model it came from knows: its schema, and `folded`, the transformers that became part
    of it.
    """

    network: Network
    folded: Names = ()

    @property
    def columns(self) -> Names | None:
        """The names of its columns, if known."""
        schema = self.network.schema
        return schema.names if schema is not None and schema.columns else None

    @property
    def inputs(self) -> Names | None:
        """The names of its inputs, if known."""
        schema = self.network.schema
        return schema.inputs if schema is not None and schema.columns else None

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """Its labels in the order of the outputs, if known."""
        schema = self.network.schema
        return schema.classes if schema is not None and schema.classes else None


def source_of(model: Any) -> Source:
    """A Network, an estimator that holds one, or anything `reluscope.load` reads."""
    if isinstance(model, Network):
        return Source(model)
    from reluscope.formats import load

    inside = getattr(model, "network_", None)
    own = type(model).__name__ in ("ReluClassifier", "ReluRegressor")
    if not isinstance(inside, Network) or own:
        return Source(load(model), _folded(model))
    # An estimator whose predictions are not the network's: the network takes its names and classes along.
    schema = inside.schema or Schema()
    columns = strings(getattr(model, "feature_names_in_", None))
    if columns is not None and not schema.columns:
        schema = replace(schema, columns=tuple(Column(n) for n in columns))
    classes = getattr(model, "classes_", None)
    if isinstance(classes, np.ndarray) and classes.ndim == 1 and not schema.classes:
        schema = replace(schema, classes=tuple(classes.tolist()))
    return Source(inside.with_schema(schema), _folded(model))


def arranged(X: Any, accepted: tuple[Names, ...], name: str = "X") -> Any:
    """A table with its columns in the order of one of the `accepted` lists of names; arrays as they are."""
    found = columns_of(X)
    if found is None or not accepted or found in accepted:
        return X
    expected = next((names for names in accepted if set(names) == set(found)), accepted[0])
    check_names(found, expected, (), name)
    return {n: X[n] for n in expected} if isinstance(X, Mapping) else X[list(expected)]


def check_scaler(source: Source, scaler: Any) -> None:
    """Refuse a scaler beside a pipeline that scales by itself: its inputs are the original ones already."""
    if scaler is None or not source.folded:
        return
    steps = " and ".join(source.folded[:3])
    raise InputError(
        f"scaler must be left out: this pipeline applies its own {steps}, so X and the coefficients are in original "
        "units already; to see both scales pass the last step with scaled rows: unwrap(pipeline[-1], "
        "pipeline[:-1].transform(X), y, scaler=pipeline[0]). If X itself was scaled before the pipeline, pass "
        "reluscope.load(pipeline)"
    )


def _folded(model: Any) -> Names:
    """The transformers that stand before the network in a pipeline, in pipelines in it too."""
    for _ in range(_DEPTH):
        kind = type(model)
        if kind.__name__ == "Pipeline" and kind.__module__.startswith("sklearn."):
            *before, (_, last) = model.steps
            found = [step for _, step in before if step is not None and not isinstance(step, str)]
            inner = _folded(last)
            if found or inner:
                return (*(type(step).__name__ for step in found), *inner)
            model = last
            continue
        model = getattr(model, "best_estimator_", getattr(model, "regressor_", None))
        if model is None:
            return ()
    return ()
