"""Laws from plain data: dictionaries of lists and numbers, and JSON files."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

import numpy as np

from reluscope._check import FloatArray, describe, integer, real, real_array
from reluscope._files import as_path, read_text
from reluscope._json import parse_json
from reluscope.errors import InputError, InputTypeError
from reluscope.inputs._categories import Categorical
from reluscope.inputs._copula import Copula
from reluscope.inputs._factor import covariance_factor
from reluscope.inputs._gaussian import Gaussian
from reluscope.inputs._law import VERSION, Law, data_rows, weight_vector
from reluscope.inputs._marginal import Marginal
from reluscope.inputs._mixed import Mixture
from reluscope.inputs._mixture import ClassMixtures, GaussianMixture
from reluscope.inputs._simple import Particles, Uniform
from reluscope.inputs._truncated import Truncated
from reluscope.limits import DEFAULT_LIMITS, Limits, started

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
    Each may have `"version": 1`, which `to_dict` writes.

    - `{"law": "gaussian", "mean": [...], "cov": variance | variances | matrix, "factor": ..., "low_rank": ...}`
    - `{"law": "mixture", "weights": [...], "components": [gaussian, ...]}`, or `"means": [[...], ...]` with one
      covariance for all, given as for a gaussian, or with `"covariances": [...]` and `"covariance_of": [...]`, which of
      them each component has
    - `{"law": "mixture of laws", "weights": [...], "components": [law, ...]}`
    - `{"law": "uniform", "lower": ..., "upper": ...}`
    - `{"law": "truncated", "gaussian": {...}, "lower": ..., "upper": ...}`, null for an infinite side; a mixture in
      place of the gaussian gives that mixture given the box
    - `{"law": "particles", "points": [[...], ...], "weights": [...]}`
    - `{"law": "copula", "scores": law of the normal scores, "marginals": [{"scores": [...],
      "values": [...], "below": slope, "above": slope}, ...], "names": [...]}`
    - `{"law": "categorical", "levels": [...], "probabilities": [...], "encoding": "onehot" | "codes"}`
    - `{"law": "classes", "labels": [...], "weights": [...], "laws": [mixture, ...]}`, one mixture per class, gives the
      law of the input whatever its class; `classes_from_json` keeps the classes

    Examples
    --------
    >>> law_from_dict({"law": "uniform", "lower": [0, 0], "upper": 1})
    Uniform(2 inputs, from [0, 0] to [1, 1])
    """
    if not isinstance(data, dict):
        raise InputTypeError(f"data must be a dictionary (a JSON object) with the key 'law', got {describe(data)}")
    kind = data.get("law")
    if not isinstance(kind, str) or kind not in _READERS:
        raise InputError(f"data: the key 'law' must be one of {', '.join(map(repr, _READERS))}, got {describe(kind)}")
    return _READERS[kind](_checked(data))


def law_from_json(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Law:
    """Read a law from a JSON file.

    Parameters
    ----------
    path : str or PathLike
        The file; `law_from_dict` says what it holds.
    limits : Limits
        How large the file may be, how many values it may hold, how long reading may take.

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
    return _from_json(path, limits, classes_from_dict)


def classes_from_dict(data: Any) -> Law | ClassMixtures:
    """The law described by a dictionary like `law_from_dict`, with its classes where it has one law per class.

    Parameters
    ----------
    data : dict
        As `Law.to_dict` or `ClassMixtures.to_dict` writes it.

    Returns
    -------
    Law or ClassMixtures
        A `ClassMixtures` if it says `"law": "classes"`.
    """
    return _classes(data) if _has_classes(data) else law_from_dict(data)


def _from_json(path: str | PathLike[str], limits: Limits, read: Callable[[Any], _Read]) -> _Read:
    limits = started(limits)
    name = as_path(path).name
    text = read_text(path, limits=limits)
    try:
        return read(parse_json(text, "it", limits))
    except InputError as error:
        raise type(error)(f"law file {name}: {error}") from error


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
    if "covariances" in data:
        return _sharing(_arguments(data, "mixture", ("weights", "means", "covariances", "covariance_of")))
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


def _sharing(args: dict[str, Any]) -> GaussianMixture:
    """Many components, few covariances."""
    means = data_rows(args["means"], "means")
    weights = weight_vector(args["weights"], "weights", len(means))
    given, which = args["covariances"], real_array(args["covariance_of"], "covariance_of", ndim=1)
    if not isinstance(given, list) or not given or not all(isinstance(part, dict) for part in given):
        raise InputError(f"covariances must be a list of objects, got {describe(given)}")
    if len(which) != len(means) or (which != np.round(which)).any() or not 0 <= which.min() <= which.max() < len(given):
        raise InputError(f"covariance_of must say which of the {len(given)} covariances each component has")
    factors = []
    for part in given:
        known = _arguments(part, "covariance of a mixture", (), ("cov", "factor", "low_rank"))
        factors.append(covariance_factor(means.shape[1], *(known.get(k) for k in ("cov", "factor", "low_rank"))))
    return GaussianMixture._of(weights, means, tuple(factors[int(k)] for k in which.tolist()))


def _mixed(data: dict[str, Any]) -> Mixture:
    args = _arguments(data, Mixture.kind, ("weights", "components"))
    if not isinstance(args["components"], list):
        raise InputError(f"components must be a list of laws, got {describe(args['components'])}")
    return Mixture(args["weights"], [law_from_dict(part) for part in args["components"]])


def _uniform(data: dict[str, Any]) -> Uniform:
    return Uniform(**_arguments(data, "uniform", ("lower", "upper")))


def _truncated(data: dict[str, Any]) -> Law:
    args = _arguments(data, "truncated", ("gaussian", "lower", "upper"))
    inner = law_from_dict(args["gaussian"])
    if not isinstance(inner, Gaussian) and not inner.is_mixture:
        raise InputError(f"data must describe a Gaussian, got a {type(inner).__name__}")
    return inner.truncated(_sides(args["lower"], -np.inf), _sides(args["upper"], np.inf))


def _sides(value: Any, infinite: float) -> FloatArray | float | Any:
    if value is None:
        return infinite
    if isinstance(value, list):
        return [infinite if v is None else v for v in value]
    return value


def _particles(data: dict[str, Any]) -> Particles:
    args = _arguments(data, "particles", ("points",), ("weights",))
    return Particles(args["points"], args.get("weights"))


def _copula(data: dict[str, Any]) -> Copula:
    args = _arguments(data, "copula", ("scores", "marginals"), ("names",))
    if not isinstance(args["marginals"], list):
        raise InputError(f"marginals must be a list, one per input, got {describe(args['marginals'])}")
    parts = [_marginal(part, f"marginals[{i}]") for i, part in enumerate(args["marginals"])]
    return Copula.of_scores(law_from_dict(args["scores"]), parts, names=args.get("names"))


def _categorical(data: dict[str, Any]) -> Categorical:
    return Categorical(**_arguments(data, "categorical", ("levels", "probabilities"), ("encoding", "name")))


def _marginal(data: Any, name: str) -> Marginal:
    if not isinstance(data, dict):
        raise InputError(f"{name} must be an object with scores and values, got {describe(data)}")
    args = dict(_arguments(data, "marginal of a copula", ("scores", "values"), ("below", "above", "cdf_error")))
    error = real(args.pop("cdf_error", 0.0), f"cdf_error of {name}", low=0.0)
    found = Marginal(**args)
    return Marginal._of(found.scores, found.values, found.below, found.above, error)


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    """What is left beside the kind and the version; files of a later version are refused, whatever their keys."""
    integer(data.get("version", VERSION), "version", low=1, high=VERSION)
    return {k: v for k, v in data.items() if k not in ("law", "version")}


def _as_text(label: str | float) -> str:
    if isinstance(label, str):
        return f"text {label}"
    return str(int(label)) if isinstance(label, int) or label.is_integer() else repr(label)


def _has_classes(data: Any) -> bool:
    return isinstance(data, dict) and data.get("law") == "classes"


def _classes(data: dict[str, Any]) -> ClassMixtures:
    args = _arguments(_checked(data), "classes", ("labels", "weights", "laws"))
    labels, laws = args["labels"], args["laws"]
    if not isinstance(labels, list) or not labels or not all(isinstance(v, (str, int, float)) for v in labels):
        raise InputError(f"labels must be a list of numbers or texts, one per class, got {describe(labels)}")
    # As text: different numbers can be made to share one hash, different texts cannot.
    if len({_as_text(v) for v in labels}) < len(labels):
        raise InputError(f"labels must differ from one another, got {describe(labels)}")
    if not isinstance(laws, list) or len(laws) != len(labels):
        raise InputError(f"laws must be a list of {len(labels)} mixtures, one per label, got {describe(laws)}")
    parts = [GaussianMixture.from_dict(law) for law in laws]
    if len({part.n for part in parts}) > 1:
        raise InputError(f"laws must have the same number of inputs, got {[part.n for part in parts]}")
    return ClassMixtures(tuple(labels), weight_vector(args["weights"], "weights", len(labels)), tuple(parts))


_READERS: dict[str, Callable[[dict[str, Any]], Law]] = {
    Gaussian.kind: _gaussian,
    GaussianMixture.kind: _mixture,
    Mixture.kind: _mixed,
    Uniform.kind: _uniform,
    Truncated.kind: _truncated,
    Particles.kind: _particles,
    Copula.kind: _copula,
    Categorical.kind: _categorical,
    "classes": lambda data: _classes(data).joint,
}
