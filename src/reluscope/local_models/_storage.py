"""Merged models in a file: the network, the patterns and the models, in one npz archive. Files are untrusted."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._files import as_path
from reluscope._json import parse_json
from reluscope._npy import Arrays, read_npz
from reluscope.errors import InputError
from reluscope.formats.arrays import network_from_arrays, network_to_arrays, write_npz
from reluscope.limits import DEFAULT_LIMITS, Limits, started
from reluscope.local_models._grouping import n_words
from reluscope.local_models.merged import Dendrogram, MergedModels, Validation

_FORMAT = "reluscope-merged-2"
_FIELDS = {  # name: (type, dimensions)
    "words": ("u8", 2),
    "owner": ("i8", 1),
    "centroid": ("f8", 2),
    "spread": ("f8", 1),
    "cluster_of_centroid": ("i8", 1),
    "cluster_of_region": ("i8", 1),
    "C": ("f8", 3),
    "d": ("f8", 2),
    "count": ("i8", 1),
}
_PRUNED = ("kept_region", "own_count")
"""Further whole numbers, one per cluster, of models that were pruned."""


def save_merged(models: MergedModels, path: str | PathLike[str]) -> None:
    """Write merged models to `path`, which should end in `.npz`; classes must be numbers or text."""
    path = as_path(path)
    if path.suffix != ".npz":
        raise InputError(f"path: merged models are saved as .npz files, got {path.name!r}")
    header, arrays = network_to_arrays(models.network)
    out: Arrays = {f"network.{name}": array for name, array in arrays.items()}
    facts = {
        "format": _FORMAT,
        "features": list(models.feature_names),
        "task": models.task,
        "classes": [c if isinstance(c, (bool, int, float, str)) else str(c) for c in models.classes],
        "adjacency": models.adjacency,
        "seed": models.seed,
        "penalty": models.penalty,
        "columns": None if models.columns is None else list(models.columns),
        "validation": [[v.n, v.loss, v.error, v.chosen] for v in models.validation],
    }
    out |= {"network": _text(header), "facts": _text(json.dumps(facts))}
    out |= {name: getattr(models, name) for name in _FIELDS}
    if models.dendrogram is not None:
        tree = models.dendrogram
        out |= {"tree.merges": tree.merges, "tree.cost": tree.cost, "tree.weight": tree.weight}
    out |= {name: getattr(models, name) for name in _PRUNED if getattr(models, name) is not None}
    write_npz(out, path)


def load_merged(path: str | PathLike[str], limits: Limits = DEFAULT_LIMITS) -> MergedModels:
    """Read merged models written by `save_merged`."""
    limits = started(limits)
    arrays, what = read_npz(path, limits), Path(path).name
    try:
        facts = parse_json(arrays["facts"].tobytes(), "its table of facts", limits)
        if not isinstance(facts, dict) or facts["format"] != _FORMAT:
            raise KeyError("facts")
        inner = {k.removeprefix("network."): v for k, v in arrays.items() if k.startswith("network.")}
        net = network_from_arrays(inner, arrays["network"].tobytes(), what, limits)
        fields: dict[str, Any] = {name: arrays[name] for name in _FIELDS}
        tree = None
        if "tree.merges" in arrays:
            tree = Dendrogram(arrays["tree.merges"], arrays["tree.cost"], arrays["tree.weight"])
        models = MergedModels(
            network=net,
            feature_names=tuple(str(name) for name in facts["features"]),
            task=str(facts["task"]),
            classes=tuple(facts["classes"]),
            adjacency=str(facts["adjacency"]),
            validation=tuple(Validation(int(n), float(a), float(b), bool(c)) for n, a, b, c in facts["validation"]),
            dendrogram=tree,
            unwrapped=None,
            columns=None if facts.get("columns") is None else tuple(str(name) for name in facts["columns"]),
            kept_region=arrays.get("kept_region"),
            own_count=arrays.get("own_count"),
            penalty=None if facts.get("penalty") is None else float(facts["penalty"]),
            seed=None if facts.get("seed") is None else int(facts["seed"]),
            **fields,
        )
        good = _fit(models)
    except InputError as error:
        if what in str(error):
            raise
        raise type(error)(f"{what} is damaged: {error}") from error
    except Exception as error:  # values of any kind in the place of others
        raise InputError(f"{what} is not a file of merged models, or it is damaged: {str(error)[:100]}") from error
    if not good:
        raise InputError(f"{what} is damaged: its arrays do not fit one another")
    return models


def _fit(m: MergedModels) -> bool:
    """Shapes that fit one another and indices within range, before anything is looked up with them."""
    good = all(
        getattr(m, name).dtype == np.dtype(kind) and getattr(m, name).ndim == n for name, (kind, n) in _FIELDS.items()
    )
    if good:
        k, net = len(m.C), m.network
        good = (
            k > 0
            and m.C.shape == (k, net.n_outputs, net.n_inputs)
            and m.d.shape == (k, net.n_outputs)
            and len(m.feature_names) == net.n_inputs
            and m.task in ("regression", "binary", "multiclass", "none")
            and (m.task in ("regression", "none") or len(m.classes) == max(2, net.n_outputs))
            and all(isinstance(c, (bool, int, float, str)) for c in m.classes)
            and m.words.shape[1] == n_words(net)
            and len(m.words) == len(m.owner) > 0
            and len(m.centroid) == len(m.cluster_of_centroid) > 0
            and m.centroid.shape[1] == len(m.spread) == net.n_inputs
            and len(m.count) == k
            and (m.columns is None or len(m.columns) in (net.n_inputs, len(net.schema.columns) if net.schema else 0))
            and (m.kept_region is None) == (m.own_count is None)
            and all(a is None or (a.dtype == np.int64 and a.shape == (k,)) for a in (m.kept_region, m.own_count))
            and _within(m.owner, k)
            and _within(m.cluster_of_centroid, k)
            and len(m.cluster_of_region) > 0
            and _within(m.cluster_of_region, k)
            and all(np.isfinite(a).all() for a in (m.C, m.d, m.centroid, m.spread))
            and bool((m.spread > 0).all())
            and _tree_fits(m.dendrogram)
        )
    return good


def _within(index: Any, k: int) -> bool:
    return bool(((index >= 0) & (index < k)).all())


def _tree_fits(tree: Dendrogram | None) -> bool:
    if tree is None:
        return True
    if tree.weight.ndim != 1 or any(a.dtype != np.float64 for a in (tree.cost, tree.weight)):
        return False
    n = len(tree.weight)
    if tree.merges.shape != (max(n - 1, 0), 2) or tree.cost.shape != (max(n - 1, 0),) or tree.merges.dtype != np.int64:
        return False
    return bool(((tree.merges >= 0) & (tree.merges < n + np.arange(len(tree.merges))[:, None])).all())


def _text(value: str) -> Any:
    return np.frombuffer(value.encode(), dtype=np.uint8)
