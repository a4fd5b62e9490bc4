"""What stands before the network in a scikit-learn pipeline: from the columns of a table to its features.

Scalers, projections and selections are affine. Encoders of categories are not: their codes become inputs of the
network, and a `Column` of the schema says which level has which code. Imputers become the `fill` of their columns.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from reluscope._check import FloatArray, real_array
from reluscope._columns import few, plain
from reluscope.activations import Activation, Units, clip
from reluscope.errors import InputError, UnsupportedError
from reluscope.network import Network
from reluscope.schema import Column

DEPTH = 20
"""Estimators inside estimators."""

_Key = tuple[int, int]
"""An input of the network: the number of a column, and -1 for its value or the number of an entry of its codes."""


class Step(NamedTuple):
    """An affine step `z = M x + c`, clipped afterwards when `bounds` is given.

    A diagonal `M` is a vector; an index vector (feature selection) has an integer dtype.
    """

    M: Any
    c: FloatArray
    bounds: Activation | Units | None = None


class _Raw(NamedTuple):
    """A column of the table that nothing has been done to, but for a missing entry."""

    column: int
    fill: Any = None
    missing: str = "any"


@dataclass
class _Features:
    """Features on their way to the network: untouched columns, or steps over inputs of the network."""

    raw: list[_Raw] | None
    keys: list[_Key] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def width(self) -> int:
        if self.raw is not None:
            return len(self.raw)
        return len(self.steps[-1].c) if self.steps else len(self.keys)


@dataclass
class _Use:
    """What a column is to the network."""

    fills: list[Any] = field(default_factory=list)
    value: bool = False
    levels: list[Any] | None = None
    codes: list[FloatArray] = field(default_factory=list)
    unknown: list[FloatArray | None] = field(default_factory=list)
    seen: tuple[float, float] | None = None
    within: tuple[float, float] | None = None
    moments: tuple[float, float] | None = None
    missing: set[str] = field(default_factory=set)


class Front:
    """The steps before a network, read one after the other; then `before` puts them there."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.uses = [_Use() for _ in names]
        self.features = _Features([_Raw(i) for i in range(len(names))])

    def add(self, step: Any, path: str) -> None:
        """One more step of the pipeline."""
        self.features = self._applied(self.features, step, path, 0)

    def before(self, network: Network) -> tuple[Network, tuple[Column, ...], tuple[str, ...]]:
        """`x -> network(steps(x))`, the columns that its inputs come from, and the names that nothing reads."""
        found = self._numeric(self.features)
        for step in reversed(found.steps):
            network = _before(network, step)
        if network.n_inputs != len(found.keys):
            raise InputError(f"the steps give {len(found.keys)} features but the network takes {network.n_inputs}")
        columns, order = [], []
        for i, use in enumerate(self.uses):
            if use.levels is None and not use.value:
                continue
            columns.append(self._column(i))
            order += [(i, j) for j in range(sum(c.shape[1] for c in use.codes))] + [(i, -1)] * use.value
        if order != found.keys:
            place = {key: j for j, key in enumerate(order)}
            at = np.array([place[key] for key in found.keys])
            chosen = sparse.csr_array((np.ones(len(at)), (np.arange(len(at)), at)), shape=(len(at), len(order)))
            network = network.after(chosen, np.zeros(len(at)))
        used = {c.name for c in columns}
        return network, tuple(columns), tuple(n for n in self.names if n not in used)

    def _column(self, i: int) -> Column:
        use, name = self.uses[i], self.names[i]
        fill = use.fills[0] if use.fills and all(f == use.fills[0] for f in use.fills) else None
        if use.levels is None:
            given = None if fill is None else float(fill)
            return Column(name, seen=use.seen, within=use.within, moments=use.moments, fill=given)
        codes, unknown = use.codes, use.unknown
        if use.value:  # read as a number too
            try:
                codes = [*codes, np.array(use.levels, dtype=np.float64)[:, None]]
            except (TypeError, ValueError):
                raise UnsupportedError(f"column {name!r} is both encoded and read as a number") from None
            unknown = [*unknown, None]
        known = [u for u in unknown if u is not None]
        other = np.concatenate(known) if len(known) == len(unknown) else None
        return Column(
            name,
            "category",
            levels=tuple(use.levels),
            codes=np.concatenate(codes, axis=1).tolist(),
            unknown=None if other is None else tuple(other.tolist()),
            fill=fill if fill in use.levels else None,
            missing=next(iter(use.missing), "any"),
        )

    # -- steps ---------------------------------------------------------------------------------------------------

    def _applied(self, features: _Features, step: Any, path: str, depth: int) -> _Features:
        if depth > DEPTH:
            raise InputError(f"{path}: steps are nested more than {DEPTH} deep")
        if step is None or (isinstance(step, str) and step == "passthrough"):
            return features
        kind = type(step).__name__ if type(step).__module__.startswith("sklearn.") else ""
        if kind == "FunctionTransformer" and step.func is None:
            return features
        if kind == "Pipeline":
            for name, inner in step.steps:
                features = self._applied(features, inner, f"{path}.{name}", depth + 1)
            return features
        if kind == "ColumnTransformer":
            return self._by_columns(features, step, path, depth)
        if kind == "FeatureUnion":
            weights = step.transformer_weights or {}
            parts = [(t, name, weights.get(name)) for name, t in step.transformer_list if t != "drop"]
            return self._joined(
                [self._weighted(self._applied(features, t, f"{path}.{n}", depth + 1), w) for t, n, w in parts]
            )
        if kind in ("OneHotEncoder", "OrdinalEncoder"):
            return self._encoded(features, step, path)
        if kind == "SimpleImputer":
            return self._imputed(features, step, path)
        found = affine_step(step, path)
        if features.raw is not None:
            self._note_seen(features.raw, step, kind)
        features = self._numeric(features)
        width = len(found.c) if np.asarray(found.M).ndim == 1 else found.M.shape[1]
        if np.asarray(found.M).ndim == 1 and np.asarray(found.M).dtype.kind == "i":
            width = int(found.M[-1])
        if width != features.width:
            raise InputError(f"{path} takes {width} features but the step before it gives {features.width}")
        return _Features(None, features.keys, [*features.steps, found])

    def _by_columns(self, features: _Features, step: Any, path: str, depth: int) -> _Features:
        parts = []
        weights = step.transformer_weights or {}
        for name, inner, wanted in fitted(step, "transformers_", path):
            if isinstance(inner, str) and inner == "drop":
                continue
            chosen = _chosen(step, name, wanted, features.width, path)
            if not chosen:
                continue
            some = self._applied(self._selected(features, chosen), inner, f"{path}.{name}", depth + 1)
            parts.append(self._weighted(some, weights.get(name)))
        if not parts:
            raise UnsupportedError(f"{path} keeps no column")
        return self._joined(parts)

    def _selected(self, features: _Features, chosen: list[int]) -> _Features:
        if features.raw is not None:
            return _Features([features.raw[i] for i in chosen])
        step = Step(np.array([*chosen, features.width], dtype=np.int64), np.zeros(len(chosen)))
        return _Features(None, features.keys, [*features.steps, step])

    def _weighted(self, features: _Features, weight: Any) -> _Features:
        if weight is None:
            return features
        features = self._numeric(features)
        n = features.width
        return _Features(None, features.keys, [*features.steps, Step(np.full(n, float(weight)), np.zeros(n))])

    def _joined(self, parts: list[_Features]) -> _Features:
        """Blocks of features side by side; a block with fewer steps waits in identities."""
        if len(parts) == 1:
            return parts[0]
        blocks = [self._numeric(p) for p in parts]
        keys = list(dict.fromkeys(key for b in blocks for key in b.keys))
        place = {key: i for i, key in enumerate(keys)}
        total = sum(len(b.keys) for b in blocks)
        at = np.array([place[key] for b in blocks for key in b.keys], dtype=np.int64)
        steps = [] if at.tolist() == list(range(len(keys))) else [Step(np.append(at, len(keys)), np.zeros(total))]
        for k in range(max(len(b.steps) for b in blocks)):
            here = [b.steps[k] if k < len(b.steps) else _identity(b.width) for b in blocks]
            M = sparse.block_diag([_matrix(s) for s in here], format="csr")
            steps.append(Step(M, np.concatenate([s.c for s in here]), _units(here)))
        return _Features(None, keys, steps)

    def _numeric(self, features: _Features) -> _Features:
        """Untouched columns as numbers that the network takes."""
        if features.raw is None:
            return features
        for r in features.raw:
            use = self.uses[r.column]
            use.value = True
            use.fills.append(r.fill)
        keys = list(dict.fromkeys((r.column, -1) for r in features.raw))
        if len(keys) == len(features.raw):
            return _Features(None, keys)
        at = np.array([keys.index((r.column, -1)) for r in features.raw], dtype=np.int64)
        return _Features(None, keys, [Step(np.append(at, len(keys)), np.zeros(len(at)))])

    def _encoded(self, features: _Features, step: Any, path: str) -> _Features:
        if features.raw is None:
            raise UnsupportedError(
                f"{path} encodes features that were transformed before; put the {type(step).__name__} first"
            )
        keys: list[_Key] = []
        levels, codes, unknown = _codes(step, path)
        gaps = [_gap(c) for c in step.categories_]
        if len(levels) != len(features.raw):
            raise InputError(f"{path} takes {len(levels)} features but the step before it gives {len(features.raw)}")
        for r, own, code, other, gap in zip(features.raw, levels, codes, unknown, gaps, strict=True):
            use = self.uses[r.column]
            if use.levels is not None and use.levels != own:
                raise UnsupportedError(f"{path} encodes column {self.names[r.column]!r} with other levels than before")
            use.levels = own
            done = sum(c.shape[1] for c in use.codes)
            keys += [(r.column, done + j) for j in range(code.shape[1])]
            use.codes.append(code)
            use.unknown.append(other)
            use.fills.append(None if r.fill is None else plain(r.fill))
            use.missing |= {r.missing, gap} - {"any"}
            if len(use.missing) > 1:
                raise UnsupportedError(f"{path} takes nan and None of column {self.names[r.column]!r} for two things")
        return _Features(None, keys)

    def _imputed(self, features: _Features, step: Any, path: str) -> _Features:
        if getattr(step, "add_indicator", False):
            raise UnsupportedError(
                f"{path} adds indicators of missing entries, which is not known; add_indicator=False"
            )
        marker = plain(step.missing_values)
        if marker is not None:
            raise UnsupportedError(f"{path} takes {marker!r} for a missing entry; only nan and None are known")
        if features.raw is None:
            raise UnsupportedError(f"{path} fills features that were transformed before; put the SimpleImputer first")
        values = [plain(v) for v in np.asarray(fitted(step, "statistics_", path), dtype=object).tolist()]
        if len(values) != len(features.raw) or any(v is None for v in values):
            raise UnsupportedError(f"{path} drops columns without any entry; drop them before")
        kind = "None" if step.missing_values is None else "nan"
        return _Features([_Raw(r.column, v, kind) for r, v in zip(features.raw, values, strict=True)])

    def _note_seen(self, raw: list[_Raw], step: Any, kind: str) -> None:
        """What a scaler knows of the training data: their range, a range around them, their mean and spread."""
        for i, r in enumerate(raw):
            use = self.uses[r.column]
            if kind == "MinMaxScaler" and step.data_min_[i] <= step.data_max_[i]:
                use.seen = float(step.data_min_[i]), float(step.data_max_[i])
            elif kind == "MaxAbsScaler" and step.max_abs_[i] >= 0:
                use.within = -float(step.max_abs_[i]), float(step.max_abs_[i])
            elif kind == "StandardScaler" and step.with_std and step.mean_ is not None and step.var_[i] >= 0:
                mean, variance = float(step.mean_[i]), float(step.var_[i])
                # No entry of a sample of n lies further than sqrt(n - 1) standard deviations from its mean.
                n = float(np.max(step.n_samples_seen_))
                reach = math.sqrt(max(n - 1.0, 0.0) * variance) * (1 + 1e-9)
                use.within, use.moments = (mean - reach, mean + reach), (mean, math.sqrt(variance))


# -- encoders ------------------------------------------------------------------------------------------------------


def _gap(categories: Any) -> str:
    """Which missing entry is among the levels of an encoder."""
    held = [v for v in np.asarray(categories, dtype=object).tolist() if plain(v) is None]
    return "any" if not held else "None" if held[0] is None else "nan"


def _codes(step: Any, path: str) -> tuple[list[list[Any]], list[FloatArray], list[FloatArray | None]]:
    """Levels, codes and the code of unknown levels for each feature of an encoder, as the encoder itself gives them."""
    categories = fitted(step, "categories_", path)
    levels = [[plain(v) for v in np.asarray(c).tolist()] for c in categories]
    widths = getattr(step, "_n_features_outs", None)
    if type(step).__name__ == "OrdinalEncoder":
        widths = [1] * len(levels)
    if widths is None:
        raise UnsupportedError(f"{path}: this version of scikit-learn does not say how wide its codes are")
    ends = np.cumsum([0, *widths])
    codes = []
    first = [c[0] for c in categories]
    for i, own in enumerate(categories):
        table = np.empty((len(own), len(categories)), dtype=object)
        table[:] = first
        table[:, i] = own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it was fitted with names, and is asked without
            out = step.transform(table)
        dense = np.asarray(out.toarray() if sparse.issparse(out) else out, dtype=np.float64)
        codes.append(real_array(dense[:, ends[i] : ends[i + 1]], f"codes of {path}"))
        if len({*levels[i]}) != len(levels[i]):
            raise UnsupportedError(f"{path} has levels that are hard to tell apart: {few(levels[i])}")
    return levels, codes, [_unknown(step, i, codes[i]) for i in range(len(codes))]


def _unknown(step: Any, i: int, codes: FloatArray) -> FloatArray | None:
    how = step.handle_unknown
    if how == "error":
        return None
    if type(step).__name__ == "OrdinalEncoder":
        value = float(step.unknown_value)
        return np.array([value]) if np.isfinite(value) else None
    rare = getattr(step, "infrequent_categories_", None)
    if how in ("infrequent_if_exist", "warn") and rare is not None and rare[i] is not None:
        at = [plain(v) for v in step.categories_[i].tolist()].index(plain(rare[i][0]))
        return np.asarray(codes[at])
    return np.zeros(codes.shape[1])


def _chosen(step: Any, name: str, wanted: Any, width: int, path: str) -> list[int]:
    """The columns of one transformer, as indices."""
    known = getattr(step, "_transformer_to_input_indices", {})
    if name in known:
        return [int(i) for i in known[name]]
    names = [str(n) for n in getattr(step, "feature_names_in_", [])]
    if isinstance(wanted, slice) and all(v is None or isinstance(v, int) for v in (wanted.start, wanted.stop)):
        return list(range(width))[wanted]
    listed: list[Any] = [wanted] if isinstance(wanted, (str, int)) else list(wanted)
    if listed and all(isinstance(v, (bool, np.bool_)) for v in listed):
        return np.flatnonzero(listed).tolist()
    if all(isinstance(v, (int, np.integer)) for v in listed):
        return [int(v) % width for v in listed]
    if all(v in names for v in listed):
        return [names.index(v) for v in listed]
    raise UnsupportedError(f"{path}.{name} chooses columns in a way that is not known")


# -- affine steps --------------------------------------------------------------------------------------------------


def _identity(n: int) -> Step:
    return Step(np.ones(n), np.zeros(n))


def _matrix(step: Step) -> Any:
    """The matrix of a step in sparse form."""
    M, n = step.M, len(step.c)
    if sparse.issparse(M):
        return M
    if np.asarray(M).ndim == 2:
        return sparse.csr_array(M)
    if np.asarray(M).dtype.kind == "i":
        return sparse.csr_array((np.ones(n), (np.arange(n), M[:-1])), shape=(n, int(M[-1])))
    return sparse.dia_array((M[None, :], [0]), shape=(n, n)).tocsr()


def _units(steps: list[Step]) -> Units | None:
    """The activations of steps side by side; None if there are none."""
    if all(s.bounds is None for s in steps):
        return None
    return Units.concatenate(
        [s.bounds if isinstance(s.bounds, Units) else Units.uniform(s.bounds or "identity", len(s.c)) for s in steps]
    )


def _before(network: Network, step: Step) -> Network:
    """`x -> network(step(x))`."""
    if len(step.c) != network.n_inputs:
        raise InputError(f"a step gives {len(step.c)} features but the next one takes {network.n_inputs}")
    M = step.M if np.ndim(step.M) == 2 and not sparse.issparse(step.M) else _matrix(step)
    if step.bounds is None:
        return network.after(M, step.c)
    return Network(
        [(M, step.c, step.bounds), *network.layers],
        output_shape=network.output_shape,
        name=network.name,
        notes=network.notes,
        schema=None if network.schema is None else network.schema.of_outputs(),
    )


def affine_step(step: Any, path: str) -> Step:
    """A fitted transformer as an affine step; an `UnsupportedError` that names it if it is none."""
    kind = type(step).__name__
    own = type(step).__module__.startswith("sklearn.")
    maker = _TRANSFORMERS.get(kind) if own else None
    if maker is not None:
        return maker(step, path)
    if own and any(c.__name__ == "SelectorMixin" for c in type(step).__mro__):
        return _selection(step, path)
    hint = "; it may hold any function" if kind == "FunctionTransformer" else ""
    raise UnsupportedError(
        f"{path} is a {kind}, which is not known to be affine{hint}; known are {', '.join(_TRANSFORMERS)}, feature "
        "selection, ColumnTransformer, OneHotEncoder, OrdinalEncoder and SimpleImputer"
    )


def _standard(step: Any, path: str) -> Step:
    n = int(fitted(step, "n_features_in_", path))
    scale = _vector(step.scale_, 1.0, n, f"{path}.scale_") if step.with_std else np.ones(n)
    mean = _vector(step.mean_, 0.0, n, f"{path}.mean_") if step.with_mean else np.zeros(n)
    return Step(1.0 / scale, -mean / scale)


def _min_max(step: Any, path: str) -> Step:
    n = int(fitted(step, "n_features_in_", path))
    scale, shift = _vector(step.scale_, 1.0, n, path), _vector(step.min_, 0.0, n, path)
    low, high = step.feature_range
    return Step(scale, shift, clip(float(low), float(high)) if step.clip else None)


def _max_abs(step: Any, path: str) -> Step:
    n = int(fitted(step, "n_features_in_", path))
    bounds = clip(-1.0, 1.0) if getattr(step, "clip", False) else None
    return Step(1.0 / _vector(step.scale_, 1.0, n, path), np.zeros(n), bounds)


def _robust(step: Any, path: str) -> Step:
    n = int(fitted(step, "n_features_in_", path))
    scale, centre = _vector(step.scale_, 1.0, n, path), _vector(step.center_, 0.0, n, path)
    return Step(1.0 / scale, -centre / scale)


def _principal(step: Any, path: str) -> Step:
    V = real_array(fitted(step, "components_", path), f"{path}.components_", ndim=2)
    mean = _vector(getattr(step, "mean_", None), 0.0, V.shape[1], path)
    if getattr(step, "whiten", False):
        # scikit-learn guards components without variance in the same way.
        scale = np.sqrt(real_array(step.explained_variance_, f"{path}.explained_variance_", ndim=1))
        V = V / np.maximum(scale, np.finfo(np.float64).eps)[:, None]
    return Step(V, -V @ mean)


def _selection(step: Any, path: str) -> Step:
    n = int(fitted(step, "n_features_in_", path))
    try:
        chosen = np.flatnonzero(step.get_support())
    except Exception as error:
        raise unfitted(step, path) from error
    return Step(np.append(chosen, n).astype(np.int64), np.zeros(len(chosen)))


_TRANSFORMERS: dict[str, Callable[[Any, str], Step]] = {
    "StandardScaler": _standard,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "RobustScaler": _robust,
    "PCA": _principal,
    "IncrementalPCA": _principal,
    "TruncatedSVD": _principal,
}


# -- small things --------------------------------------------------------------------------------------------------


def fitted(estimator: Any, attribute: str, path: str) -> Any:
    """An attribute that fitting makes."""
    value = getattr(estimator, attribute, None)
    if value is None:
        raise unfitted(estimator, path)
    return value


def unfitted(estimator: Any, path: str) -> InputError:
    """What to say of an estimator that was not fitted."""
    return InputError(f"{path} ({type(estimator).__name__}) is not fitted; call fit(X, y) first")


def _vector(value: Any, default: float, n: int, name: str) -> FloatArray:
    return np.full(n, default) if value is None else real_array(value, name, ndim=1)
