"""Laws from plain data: dictionaries of lists and numbers, and JSON files."""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from reluscope._check import FloatArray, describe
from reluscope.errors import InputError
from reluscope.inputs._factor import covariance_factor
from reluscope.inputs._gaussian import Gaussian
from reluscope.inputs._law import Law, data_rows, weight_vector
from reluscope.inputs._mixture import ClassMixtures, GaussianMixture
from reluscope.inputs._simple import Particles, Uniform
from reluscope.inputs._truncated import Truncated
from reluscope.limits import DEFAULT_LIMITS, Limits

_Read = TypeVar("_Read")


def law_from_dict(data: Any) -> Law:
    """The law described by a dictionary with the key "law" and the arguments of that law.

    Parameters
    ----------
    data : dict
        As `Law.to_dict` writes it; see the notes.

    Returns
    -------
    Law

    Raises
    ------
    InputError
        If the kind of law is not known, keys are missing or unknown, or the law refuses its arguments.

    Notes
    -----
    - `{"law": "gaussian", "mean": [...], "cov": variance | variances | matrix, "factor": ..., "low_rank": ...}`
    - `{"law": "mixture", "weights": [...], "components": [gaussian, ...]}`, or `"means": [[...], ...]` with one
      covariance for all, given as for a gaussian
    - `{"law": "uniform", "lower": ..., "upper": ...}`
    - `{"law": "truncated", "gaussian": {...}, "lower": ..., "upper": ...}`, null for an infinite side
    - `{"law": "particles", "points": [[...], ...], "weights": [...]}`
    - `{"law": "classes", "labels": [...], "weights": [...], "laws": [mixture, ...]}`, one mixture per class, gives the
      law of the input whatever its class; `classes_from_json` keeps the classes

    Examples
    --------
    >>> law_from_dict({"law": "uniform", "lower": [0, 0], "upper": 1})
    Uniform(2 inputs, from [0, 0] to [1, 1])
    """
    if not isinstance(data, dict):
        raise InputError(f"a law must be a dictionary (a JSON object) with the key 'law', got {describe(data)}")
    kind = data.get("law")
    if not isinstance(kind, str) or kind not in _READERS:
        raise InputError(f"the key 'law' must be one of {', '.join(map(repr, _READERS))}, got {describe(kind)}")
    return _READERS[kind]({k: v for k, v in data.items() if k != "law"})


def law_from_json(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Law:
    """Read a law from a JSON file.

    Parameters
    ----------
    path : str or PathLike
        The file; `law_from_dict` says what it holds.
    limits : Limits
        `limits.file_bytes` is the size of the largest file that is read.

    Returns
    -------
    Law

    Raises
    ------
    InputError
        Names the file: too large, not UTF-8 JSON, NaN or Infinity, a key given twice, nested too deeply, unknown or
        missing keys.
    """
    return _from_json(path, limits, law_from_dict)


def classes_from_json(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Law | ClassMixtures:
    """Read a law from a JSON file like `law_from_json`, and keep the classes where the file has one law per class.

    Returns
    -------
    Law or ClassMixtures
        A `ClassMixtures` if the file says `"law": "classes"`.
    """
    return _from_json(path, limits, lambda data: _classes(data) if _has_classes(data) else law_from_dict(data))


def _from_json(path: str | PathLike[str], limits: Limits, read: Callable[[Any], _Read]) -> _Read:
    file = Path(path)
    try:
        limits.check("file_bytes", file.stat().st_size, f"law file {file.name}")
        text = file.read_bytes().decode("utf-8-sig")
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except OSError as error:
        raise InputError(f"cannot read the law file {file}: {error.strerror or error}") from error
    except RecursionError as error:
        raise InputError(f"law file {file.name} is nested too deeply") from error
    except InputError:
        raise
    except ValueError as error:  # bad UTF-8, bad JSON, a number of thousands of digits
        raise InputError(f"law file {file.name} is not valid JSON: {error}") from error
    try:
        return read(data)
    except InputError as error:
        raise InputError(f"law file {file.name}: {error}") from error


def _refuse_constant(name: str) -> Any:
    raise InputError(f"the law file holds {name}, which is not JSON; write null for an infinite side of a box")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise InputError(f"the law file gives the key {twice!r} twice in one object")
    return out


def _arguments(
    data: dict[str, Any], law: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    missing = [k for k in needed if k not in data]
    unknown = [k for k in data if k not in needed + optional]
    if missing or unknown:
        said = "; ".join(
            f"{word} {', '.join(map(repr, keys))}"
            for word, keys in (("missing", missing), ("unknown", unknown))
            if keys
        )
        allowed = f"{', '.join(needed)}{' and optionally ' + ', '.join(optional) if optional else ''}"
        raise InputError(f"a {law} law takes the keys {allowed}; {said}")
    return data


def _gaussian(data: dict[str, Any]) -> Gaussian:
    return Gaussian(**_arguments(data, "gaussian", ("mean",), ("cov", "factor", "low_rank")))


def _mixture(data: dict[str, Any]) -> GaussianMixture:
    if "means" in data:
        args = _arguments(data, "mixture", ("weights", "means"), ("cov", "factor", "low_rank"))
        means = data_rows(args.pop("means"), "means")
        weights = weight_vector(args.pop("weights"), "weights", len(means))
        shared = covariance_factor(means.shape[1], args.get("cov"), args.get("factor"), args.get("low_rank"))
        return GaussianMixture._of(weights, means, (shared,))
    args = _arguments(data, "mixture", ("weights", "components"))
    if not isinstance(args["components"], list):
        raise InputError(f"components must be a list of gaussian laws, got {describe(args['components'])}")
    for i, part in enumerate(args["components"]):
        if not isinstance(part, dict) or part.get("law") != "gaussian":
            raise InputError(f"components must be gaussian laws, got {describe(part)} at index {i}")
    return GaussianMixture(args["weights"], [Gaussian.from_dict(part) for part in args["components"]])


def _uniform(data: dict[str, Any]) -> Uniform:
    return Uniform(**_arguments(data, "uniform", ("lower", "upper")))


def _truncated(data: dict[str, Any]) -> Truncated:
    args = _arguments(data, "truncated", ("gaussian", "lower", "upper"))
    return Truncated(
        Gaussian.from_dict(args["gaussian"]), _sides(args["lower"], -np.inf), _sides(args["upper"], np.inf)
    )


def _sides(value: Any, infinite: float) -> FloatArray | float | Any:
    if value is None:
        return infinite
    if isinstance(value, list):
        return [infinite if v is None else v for v in value]
    return value


def _particles(data: dict[str, Any]) -> Particles:
    args = _arguments(data, "particles", ("points",), ("weights",))
    return Particles(args["points"], args.get("weights"))


def _has_classes(data: Any) -> bool:
    return isinstance(data, dict) and data.get("law") == "classes"


def _classes(data: dict[str, Any]) -> ClassMixtures:
    args = _arguments({k: v for k, v in data.items() if k != "law"}, "classes", ("labels", "weights", "laws"))
    labels, laws = args["labels"], args["laws"]
    if not isinstance(labels, list) or not labels or not all(isinstance(v, (str, int, float)) for v in labels):
        raise InputError(f"labels must be a list of numbers or texts, one per class, got {describe(labels)}")
    if len(set(labels)) < len(labels):
        raise InputError(f"labels must differ from one another, got {labels}")
    if not isinstance(laws, list) or len(laws) != len(labels):
        raise InputError(f"laws must be a list of {len(labels)} mixtures, one per label, got {describe(laws)}")
    parts = [GaussianMixture.from_dict(law) for law in laws]
    if len({part.n for part in parts}) > 1:
        raise InputError(f"laws must have the same number of inputs, got {[part.n for part in parts]}")
    return ClassMixtures(tuple(labels), weight_vector(args["weights"], "weights", len(labels)), tuple(parts))


_READERS: dict[str, Callable[[dict[str, Any]], Law]] = {
    Gaussian.kind: _gaussian,
    GaussianMixture.kind: _mixture,
    Uniform.kind: _uniform,
    Truncated.kind: _truncated,
    Particles.kind: _particles,
    "classes": lambda data: _classes(data).joint,
}
