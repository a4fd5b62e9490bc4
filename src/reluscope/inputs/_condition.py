"""Laws made of laws: given values or bounds of some inputs, without some inputs, moved and scaled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, instance, real, several
from reluscope._columns import few
from reluscope.errors import InputError
from reluscope.inputs._copula import Copula
from reluscope.inputs._factor import Factor, diagonal_factor, loading_factor
from reluscope.inputs._gaussian import LOG_ROOT_2PI, Gaussian, shared_factors
from reluscope.inputs._law import Law, frozen, vector
from reluscope.inputs._mixed import Mixture
from reluscope.inputs._mixture import GaussianMixture
from reluscope.inputs._names import column_index
from reluscope.inputs._simple import Particles, Uniform
from reluscope.inputs._truncated import Truncated
from reluscope.schema import Schema

Index = npt.NDArray[np.intp]

_RANK = 1e-10
"""Directions of the fixed inputs whose singular value is below this share of the largest have no spread."""


@dataclass(frozen=True, eq=False)
class _Given:
    """A law given values, and how likely they were: a density in `order` directions, or a probability (order 0)."""

    law: Law | None
    order: int
    log_weight: float


def given(law: Law, values: Any, schema: Any = None) -> Law:
    """See `Law.given`."""
    if not isinstance(values, Mapping) or not values:
        raise InputError(f"values must be a dictionary such as {{0: 1.5}}, got {describe(values)}")
    names, known = getattr(law, "names", None), _fitting(schema, law)
    fixed: dict[int, float] = {}
    for k, v in values.items():
        fixed.update(_meant(k, v, law.n, names, known, "key of values"))
    index = np.array(sorted(fixed), dtype=np.intp)
    found = _given(law, index, np.array([fixed[i] for i in index.tolist()]))
    if found.law is None:
        shown = ", ".join(f"{k!r}: {v!r}" for k, v in values.items())
        raise InputError(f"the law never takes the values {{{shown}}}; its support is in law.support()")
    return found.law


def _fitting(schema: Any, law: Law) -> Schema | None:
    """The schema, if it fits the law."""
    if schema is None:
        return None
    known = instance(schema, "schema", Schema, "a Schema")
    if known.n_inputs != law.n:
        raise InputError(f"schema has {known.n_inputs} inputs but the law has {law.n}; use the one it was fitted with")
    return known


def _meant(
    key: Any, value: Any, n: int, names: tuple[str, ...] | None, known: Schema | None, what: str
) -> dict[int, float]:
    """The inputs that a name or number means, with their values: several for the level of a category."""
    if isinstance(key, str) and known is not None and key in known.names:
        column, at = known.column(key), known.place(key)
        if column.kind != "category":
            return {at.start: column.scale * real(value, f"value of {key!r}") + column.shift}
        level = column.level_index(value)
        if level < 0:
            raise InputError(f"value of {key!r} must be one of its levels {few(column.levels)}, got {describe(value)}")
        return dict(zip(range(at.start, at.stop), column.codes[level], strict=True))
    group = _levels(key, names)
    if group and names is not None:
        levels = [names[i][len(key) + 1 :] for i in group]
        word = f"{value:.15g}" if isinstance(value, float) else str(value)
        if word not in levels:
            raise InputError(f"value of {key!r} must be one of its levels {few(levels)}, got {describe(value)}")
        return {i: float(level == word) for i, level in zip(group, levels, strict=True)}
    return {column_index(key, n, names, what): real(value, f"value of {key!r}")}


def _levels(key: Any, names: tuple[str, ...] | None) -> list[int]:
    """The inputs called `key=level`, where no input is called `key`."""
    if not isinstance(key, str) or names is None or key in names:
        return []
    return [i for i, name in enumerate(names) if name.startswith(f"{key}=")]


def _given(law: Law, index: Index, values: FloatArray) -> _Given:
    never = _Given(None, 0, -np.inf)
    low, high = law.support()
    if ((values < low[index]) | (values > high[index])).any():
        return never
    if law.atoms is not None:
        points, weights = law.atoms
        keep = (points[:, index] == values).all(axis=1) & (weights > 0)
        if not keep.any():
            return never
        total = float(weights[keep].sum())
        return _Given(Particles(points[keep], weights[keep] / total), 0, float(np.log(total)))
    if isinstance(law, Copula):
        return _copula_given(law, index, values)
    if law.is_mixture:
        return _mixture_given([(w, _given(part, index, values)) for w, part in law.components if w > 0])
    if isinstance(law, Uniform):
        lower, upper = law.lower.copy(), law.upper.copy()
        width = (upper - lower)[index]
        lower[index] = upper[index] = values
        return _Given(Uniform(lower, upper), int((width > 0).sum()), -float(np.log(width[width > 0]).sum()))
    if isinstance(law, Gaussian):
        return _gaussian_given(law, index, values)
    if isinstance(law, Truncated):
        found = _gaussian_given(law.gaussian, index, values)
        if found.law is None:
            return never
        lower, upper = law.lower.copy(), law.upper.copy()
        lower[index], upper[index] = -np.inf, np.inf
        try:
            rest = Truncated(found.law, lower, upper)  # type: ignore[arg-type]
        except InputError:
            return never
        inner = _log_box(rest) - _log_box(law)
        return _Given(rest if len(rest.restricted) else found.law, found.order, found.log_weight + inner)
    raise InputError(f"{describe(law)} cannot be conditioned on values of its inputs")


def _log_box(law: Truncated) -> float:
    """The logarithm of the mass of the box; nan where it has no closed form."""
    return law.log_mass if law.independent else np.nan


def _gaussian_given(law: Gaussian, index: Index, values: FloatArray) -> _Given:
    """`x = m + L u` given `L_i u = v - m_i`: u is fixed along the rows of L_i, and free across."""
    rows = law.factor.rows(index)
    scale = np.where(law.sd[index] > 0, law.sd[index], 1.0)
    U, s, Vt = np.linalg.svd(rows / scale[:, None], full_matrices=False)
    r = int((s > _RANK * max(float(s.max(initial=0.0)), 1e-300)).sum()) if rows.any() else 0
    wanted = (values - law.mean[index]) / scale
    along = U[:, :r].T @ wanted
    if np.abs(U[:, :r] @ along - wanted).max() > 1e-9 * (1.0 + np.abs(wanted).max()):
        return _Given(None, 0, -np.inf)
    u = Vt[:r].T @ (along / s[:r])
    mean = law.mean + law.factor.push(u[None])[0]
    mean[index] = values
    log = (
        -0.5 * float(u @ u)
        - float(np.log(s[:r]).sum())
        - r * LOG_ROOT_2PI
        - float(np.log(scale[law.sd[index] > 0]).sum())
    )
    if law.factor.diagonal:
        sd = law.sd.copy()
        sd[index] = 0.0
        return _Given(Gaussian.of_factor(frozen(mean), diagonal_factor(sd)), r, log)
    L = law.factor.rows(np.arange(law.n))
    L = L - (L @ Vt[:r].T) @ Vt[:r]
    L[index] = 0.0
    # What is left of inputs that the fixed ones determine is rounding.
    L[np.sqrt((L**2).sum(axis=1)) <= 1e-12 * law.sd] = 0.0
    return _Given(Gaussian.of_factor(frozen(mean), loading_factor(frozen(L))), r, log)


def _mixture_given(parts: list[tuple[float, _Given]]) -> _Given:
    """The components that fit, weighted; where some have the values with positive probability, those alone count."""
    live = [(w, g) for w, g in parts if g.law is not None]
    if not live:
        return _Given(None, 0, -np.inf)
    least = min(g.order for _, g in live)
    live = [(w, g) for w, g in live if g.order == least]
    logs = np.log([w for w, _ in live]) + np.array([g.log_weight for _, g in live])
    if len(live) > 1 and np.isnan(logs).any():
        raise InputError(
            "a component is restricted in several correlated inputs, so how likely the values are under it has no "
            "closed form; condition the components one by one"
        )
    total = float(np.logaddexp.reduce(logs))
    weights = np.ones(1) if len(live) == 1 else np.exp(logs - total)
    laws = [g.law for _, g in live if g.law is not None]
    if all(isinstance(part, Gaussian) for part in laws):
        return _Given(GaussianMixture(weights / weights.sum(), shared_factors(laws)), least, total)
    if len(laws) == 1:
        return _Given(laws[0], least, total)
    return _Given(Mixture(weights / weights.sum(), laws), least, total)


def _copula_given(law: Copula, index: Index, values: FloatArray) -> _Given:
    """Values become scores; an atom is an interval of scores."""
    exact, scores, slopes = [], [], []
    lower, upper = np.full(law.n, -np.inf), np.full(law.n, np.inf)
    for i, x in zip(index.tolist(), values.tolist(), strict=True):
        m = law.marginals[i]
        a, b = (float(m.score(x, side)) for side in ("left", "right"))
        if a < b:
            lower[i], upper[i] = a, b
        else:
            exact.append(i)
            scores.append(a)
            slopes.append(float(np.asarray(m.activation.slopes)[m.activation.piece(a)]))
    found = _Given(law.scores, 0, 0.0)
    if exact:
        found = _given(law.scores, np.array(exact, dtype=np.intp), np.array(scores))
        if found.law is None:
            return found
    base, log = found.law, found.log_weight - float(np.log(slopes).sum() if found.order else 0.0)
    assert base is not None
    if np.isfinite(lower).any() or np.isfinite(upper).any():
        try:
            box = base.restrict(lower, upper)
            base = base.truncated(lower, upper)
        except InputError:
            return _Given(None, 0, -np.inf)
        log += box.log_mass if box is not None else (_log_box(base) if isinstance(base, Truncated) else np.nan)
    return _Given(Copula.of_scores(base, law.marginals, names=law.names), found.order, log)


# -- bounds ------------------------------------------------------------------------------------------------------------

_BOUND = re.compile(r"\s*(?:x\[\s*(\d+)\s*\]|([^<>=\s\[\]][^<>=]*?))\s*(<=|>=|==|<|>|=)\s*(\S.*?)\s*$")
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _number(said: str) -> float | str:
    try:
        return float(said)
    except ValueError:
        return said


def where(law: Law, text: Any, schema: Any = None) -> Law:
    """See `Law.where`."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f'text must be bounds on inputs such as "x[1] > 1e5 and x[0] <= 3", got {describe(text)}')
    n, names, known = law.n, getattr(law, "names", None), _fitting(schema, law)
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    open_below, open_above = np.zeros(n, bool), np.zeros(n, bool)
    values: dict[int, float] = {}
    for part in re.split(r"\s+and\s+", text.strip()):
        found = _BOUND.match(part)
        if found is None:
            raise InputError(f'text must be bounds joined by "and", such as "x[1] > 1e5"; cannot read {part!r}')
        number, name, sign, said = found.group(1), found.group(2), found.group(3), found.group(4).strip("'\" ")
        key = int(number) if number is not None else name.strip("'\" ")
        if sign in ("==", "="):
            values.update(_meant(key, _number(said), n, names, known, "input"))
            continue
        bound = _number(said)
        if isinstance(bound, str) or np.isnan(bound):
            raise InputError(f'text must be bounds joined by "and", such as "x[1] > 1e5"; cannot read {part!r}')
        if known is not None and key in known.names and known.column(str(key)).kind == "category":
            raise InputError(
                f"{key} is a category: ask for a level, such as {key} == {known.column(str(key)).levels[0]}"
            )
        if known is not None and key in known.names and known.column(str(key)).scale < 0:
            sign = _TURNED[sign]
        ((i, bound),) = _meant(key, bound, n, names, known, "input").items()
        if sign in ("<", "<="):
            if bound < upper[i] or (bound == upper[i] and sign == "<"):
                upper[i], open_above[i] = bound, sign == "<"
        elif bound > lower[i] or (bound == lower[i] and sign == ">"):
            lower[i], open_below[i] = bound, sign == ">"
    if values:
        law = given(law, values)
    if np.isfinite(lower).any() or np.isfinite(upper).any():
        law = _where(law, lower, upper, open_below, open_above)
    return law


def _where(law: Law, lower: FloatArray, upper: FloatArray, open_below: Any, open_above: Any) -> Law:
    if isinstance(law, Copula):
        base = law.scores.truncated(*law.base_box(lower, upper, open_below, open_above))
        return Copula.of_scores(base, law.marginals, names=law.names)
    # Points and atoms may sit on an open side: it is moved to the next number.
    lower = np.where(open_below, np.nextafter(lower, np.inf), lower)
    upper = np.where(open_above, np.nextafter(upper, -np.inf), upper)
    return law.truncated(lower, upper)


# -- fewer inputs, other units -----------------------------------------------------------------------------------------


def marginal_law(law: Law, inputs: Any) -> Law:
    """See `Law.marginal`."""
    names = getattr(law, "names", None)
    keys = [inputs] if isinstance(inputs, (str, int, np.integer)) else several(inputs, "inputs", "inputs")
    found = [_levels(k, names) or [column_index(k, law.n, names, "inputs")] for k in keys]
    index = np.array([i for group in found for i in group], dtype=np.intp)
    if not len(index) or len(set(index.tolist())) < len(index):
        raise InputError(f"inputs must name at least one input, each once, got {keys}")
    return _marginal(law, index)


def _marginal(law: Law, index: Index) -> Law:
    if law.atoms is not None:
        points, inverse = np.unique(law.atoms[0][:, index], axis=0, return_inverse=True)
        shares = np.bincount(np.ravel(inverse), law.atoms[1])
        return Particles(points, shares / shares.sum())
    if isinstance(law, Copula):
        names = None if law.names is None else [law.names[i] for i in index]
        return Copula.of_scores(_marginal(law.scores, index), [law.marginals[i] for i in index], names=names)
    if isinstance(law, Gaussian):
        factor = law.factor
        small = diagonal_factor(frozen(law.sd[index])) if factor.diagonal else loading_factor(factor.rows(index))
        return Gaussian.of_factor(frozen(law.mean[index]), small)
    if law.is_mixture:
        parts = [_marginal(part, index) for _, part in law.components]
        weights = [w for w, _ in law.components]
        if all(isinstance(part, Gaussian) for part in parts):
            return GaussianMixture(weights, shared_factors(parts))
        return Mixture(weights, parts)
    if isinstance(law, Uniform):
        return Uniform(law.lower[index], law.upper[index])
    if isinstance(law, Truncated):
        dropped = np.setdiff1d(law.restricted, index)
        if len(dropped) and not law.independent_inputs:
            raise InputError(
                f"the law without input {int(dropped[0])}, which is restricted and correlated with others, has no "
                "closed form"
            )
        inner = _marginal(law.gaussian, index)
        assert isinstance(inner, Gaussian)
        return Truncated(inner, law.lower[index], law.upper[index])
    raise InputError(f"{describe(law)} has no marginals here")


def moved(law: Law, mean: Any, scale: Any) -> Law:
    """See `Law.move`."""
    factor = np.ones(law.n) if scale is None else vector(scale, "scale", law.n)
    if (factor <= 0).any():
        raise InputError(f"scale must be positive, got {factor.min()} for input {int(np.argmin(factor))}")
    if mean is None and scale is None:
        raise InputError("give mean, scale or both")
    old = np.asarray(law.mean)
    target = old if mean is None else vector(mean, "mean", law.n)
    return _affine(law, factor, target - factor * old)


def _affine(law: Law, s: FloatArray, t: FloatArray) -> Law:
    """The law of `s x + t`."""
    if law.atoms is not None:
        return Particles(s * law.atoms[0] + t, law.atoms[1])
    if isinstance(law, Copula):
        parts = [m.moved(float(a), float(b)) for m, a, b in zip(law.marginals, s, t, strict=True)]
        return Copula.of_scores(law.scores, parts, names=law.names)
    if isinstance(law, Gaussian):
        return _moved_gaussian(law, s, t, {})
    if isinstance(law, GaussianMixture):
        known: dict[int, Factor] = {}
        return GaussianMixture(
            law.weights,
            [_moved_gaussian(g, s, t, known) for g in (part for _, part in law.components) if isinstance(g, Gaussian)],
        )
    if law.is_mixture:
        return Mixture([w for w, _ in law.components], [_affine(part, s, t) for _, part in law.components])
    if isinstance(law, Uniform):
        return Uniform(s * law.lower + t, s * law.upper + t)
    if isinstance(law, Truncated):
        inner = _moved_gaussian(law.gaussian, s, t, {})
        return Truncated(inner, s * law.lower + t, s * law.upper + t)
    raise InputError(f"{describe(law)} cannot be moved")


def _moved_gaussian(law: Gaussian, s: FloatArray, t: FloatArray, known: dict[int, Factor]) -> Gaussian:
    if id(law.factor) not in known:
        own = law.factor
        known[id(own)] = (
            diagonal_factor(frozen(s * law.sd))
            if own.diagonal
            else loading_factor(frozen(s[:, None] * own.rows(np.arange(law.n))), triangular=own.triangular)
        )
    return Gaussian.of_factor(frozen(s * law.mean + t), known[id(law.factor)])
