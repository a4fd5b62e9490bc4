"""What a model object says of itself beside its numbers, and whether rows carry the names it expects.

scikit-learn's estimators remember the names of their columns (`feature_names_in_`) and their classes in the order of
the outputs (`classes_`); a pipeline has its earlier steps folded into the network. All of it is read off the object,
without importing any framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reluscope.errors import InputError
from reluscope.network import Network

Names = tuple[str, ...]

_DEPTH = 20
"""Estimators inside estimators."""

_SHOWN = 6
"""Names listed in a message."""


@dataclass(frozen=True, eq=False)
class Source:
    """A network with what the model it came from knows.

    `columns` are the names of its inputs and `classes` its labels in the order of the outputs (None: not known);
    `folded` names the transformers that became part of the network.
    """

    network: Network
    columns: Names | None = None
    classes: tuple[Any, ...] | None = None
    folded: Names = ()


def source_of(model: Any) -> Source:
    """A Network, an estimator that holds one, or anything `reluscope.load` reads."""
    if isinstance(model, Network):
        return Source(model)
    inside = getattr(model, "network_", None)
    if isinstance(inside, Network):
        network = inside
    else:
        from reluscope.formats import load

        network = load(model)
    columns = _strings(_attribute(model, "feature_names_in_"))
    classes = _attribute(model, "classes_")
    return Source(
        network,
        columns if columns is not None and len(columns) == network.n_inputs else None,
        tuple(classes.tolist()) if isinstance(classes, np.ndarray) and classes.ndim == 1 else None,
        _folded(model),
    )


def columns_of(X: Any) -> Names | None:
    """The names of a data frame's columns or a series' entries; None when it has none, or not all are text."""
    columns = getattr(X, "columns", None)
    if columns is None and getattr(X, "ndim", None) == 1:
        columns = getattr(X, "index", None)
    return None if columns is None or callable(columns) else _strings(columns)


def check_columns(X: Any, accepted: tuple[Names, ...], name: str = "X") -> None:
    """Refuse a frame whose columns are named otherwise than expected, or stand in another order."""
    found = columns_of(X)
    if found is None or not accepted or found in accepted:
        return
    expected = next((names for names in accepted if set(names) == set(found)), accepted[0])
    if sorted(found) == sorted(expected):
        i = next(i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b)
        raise InputError(
            f"{name} has the model's features in another order: column {i} is {found[i]!r}, expected {expected[i]!r}; "
            f"reorder the columns of {name} as in feature_names"
        )
    extra = [n for n in found if n not in expected]
    missing = [n for n in expected if n not in found]
    parts = [f"not known: {_few(extra)}"] if extra else []
    parts += [f"missing: {_few(missing)}"] if missing else []
    parts += [] if parts else [f"repeated: {_few([n for n in dict.fromkeys(found) if found.count(n) > 1])}"]
    raise InputError(
        f"{name} must have the {len(expected)} features of the model by name and in order; {'; '.join(parts)}"
    )


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


def _attribute(model: Any, name: str) -> Any:
    """An attribute of an estimator, or of the one inside it."""
    for _ in range(_DEPTH):
        value = getattr(model, name, None)
        if value is not None:
            return value
        model = getattr(model, "best_estimator_", getattr(model, "regressor_", None))
        if model is None:
            return None
    return None


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


def _strings(names: Any) -> Names | None:
    try:
        listed = list(names)
    except TypeError:
        return None
    return tuple(str(n) for n in listed) if listed and all(isinstance(n, str) for n in listed) else None


def _few(names: list[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
