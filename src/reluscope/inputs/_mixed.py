"""Mixtures of laws, such as a Gaussian mixture given a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe
from reluscope.errors import InputError
from reluscope.inputs._copula import Copula
from reluscope.inputs._gaussian import Gaussian, shared_factors
from reluscope.inputs._law import NEVER, VERSION, Box, Conditional, Index, Law, Restriction, frozen, weight_vector
from reluscope.inputs._mixture import GaussianMixture
from reluscope.inputs._simple import Particles
from reluscope.inputs._truncated import SMALLEST_LOG_MASS, Truncated

_MOST_LOST = 1e-9
"""Share of a box's mass that may lie in components which float64 cannot condition on it."""


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Mixture(Law):
    """Inputs from a mixture of laws: from `components[k]` with probability `weights[k]`.

    A `GaussianMixture` is the short way to mix Gaussians. A mixture given a box, `law.truncated(lower, upper)`, is a
    `Mixture` of `Truncated` laws.

    Parameters
    ----------
    weights : array_like, shape (k,)
        Probabilities of the components; they must sum to 1 (within 1e-9, then they are normalised) and may be 0.
    components : sequence of Law
        Laws over the same inputs, points among them if you like. Mixtures among them are taken apart.

    Raises
    ------
    InputError
        If a component is no law or has other inputs, or the weights are negative or do not sum to 1.

    Examples
    --------
    >>> from reluscope.inputs import Gaussian, Uniform
    >>> law = Mixture([0.25, 0.75], [Gaussian([0.0]), Uniform(2.0, 4.0)])
    >>> law, law.mean
    (Mixture(2 components, 1 input), array([2.25]))
    """

    kind: ClassVar[str] = "mixture of laws"
    is_mixture: ClassVar[bool] = True

    weights: FloatArray
    laws: tuple[Law, ...]

    def __init__(self, weights: npt.ArrayLike, components: Sequence[Law]) -> None:
        if not isinstance(components, Sequence) or not len(components):
            raise InputError(f"components must be a non-empty list of laws, got {describe(components)}")
        for i, part in enumerate(components):
            if not isinstance(part, Law):
                raise InputError(
                    f"components must be laws, got {describe(part)} at index {i}; weights come first: "
                    "Mixture(weights, components)"
                )
            if part.n != components[0].n:
                raise InputError(
                    f"components must have the same inputs, got {components[0].n} at index 0 and {part.n} at index {i}"
                )
        w = weight_vector(weights, "weights", len(components))
        apart = [(v * u, law) for v, part in zip(w.tolist(), components, strict=True) for u, law in part.components]
        object.__setattr__(self, "weights", frozen(np.array([v for v, _ in apart])))
        object.__setattr__(self, "laws", tuple(law for _, law in apart))

    @property
    def n(self) -> int:
        """Number of inputs."""
        return self.laws[0].n

    def __len__(self) -> int:
        return len(self.laws)

    @property
    def components(self) -> tuple[tuple[float, Law], ...]:
        """Pairs (weight, law)."""
        return tuple(zip(self.weights.tolist(), self.laws, strict=True))

    @property
    def gaussians(self) -> tuple[tuple[float, Gaussian], ...]:
        """The components of positive weight if all of them are Gaussian; none otherwise."""
        live = self._live
        if not all(law.gaussians for _, law in live):
            return ()
        return tuple((w * v, g) for w, law in live for v, g in law.gaussians)

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray] | None:
        """Points and probabilities if all components of positive weight are points; None otherwise."""
        found = [(w, law.atoms) for w, law in self._live]
        if any(atoms is None for _, atoms in found):
            return None
        some = [(w, atoms) for w, atoms in found if atoms is not None]
        return np.concatenate([a[0] for _, a in some]), np.concatenate([w * a[1] for w, a in some])

    @property
    def independent_inputs(self) -> bool:
        """Whether one component has all the weight, and independent inputs."""
        live = self._live
        return len(live) == 1 and live[0][1].independent_inputs

    def support(self) -> Box:
        """The smallest box around the supports of the components of positive weight."""
        return _around([law.support() for _, law in self._live])

    def far_box(self) -> Box:
        """The smallest box around the far boxes of those components."""
        return _around([law.far_box() for _, law in self._live])

    @property
    def mean(self) -> FloatArray:
        """`sum_k w_k m_k`, shape (n,)."""
        return np.asarray(sum(w * law.mean for w, law in self.components))

    @property
    def variance(self) -> FloatArray:
        """`sum_k w_k (var_k + (m_k - mean)^2)`, shape (n,)."""
        mean = self.mean
        return np.asarray(sum(w * (law.variance + (law.mean - mean) ** 2) for w, law in self.components))

    @property
    def cov(self) -> FloatArray:
        """`sum_k w_k (cov_k + (m_k - mean)(m_k - mean)^T)`, shape (n, n)."""
        mean = self.mean
        apart = [law.mean - mean for law in self.laws]
        parts = zip(self.components, apart, strict=True)
        return np.asarray(sum(w * (law.cov + np.outer(a, a)) for (w, law), a in parts))

    @property
    def _live(self) -> tuple[tuple[float, Law], ...]:
        return tuple(part for part in self.components if part[0] > 0)

    def _given(self, lower: FloatArray, upper: FloatArray) -> Law:
        return mixture_given_box(self, lower, upper)

    def _restricted(self, lower: FloatArray, upper: FloatArray) -> Restriction | None:
        if any(part.point_masses for _, part in self._live):  # a face of the box may hold some: see `truncated`
            return None
        return restricted_mixture(self, lower, upper)

    def _at(self, index: Index, values: FloatArray) -> Conditional:
        points = self._points
        return mixture_at(self, index, values) if points is None else points._at(index, values)

    def _keep(self, index: Index) -> Law:
        points = self._points
        return (
            mixture_of(self.weights, [law._keep(index) for law in self.laws]) if points is None else points._keep(index)
        )

    def _affine(self, s: FloatArray, t: FloatArray) -> Law:
        return Mixture(self.weights, [law._affine(s, t) for law in self.laws])

    @property
    def _points(self) -> Particles | None:
        """The law as one set of points, if it is one."""
        return None if self.atoms is None else Particles(*self.atoms)

    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray:
        return np.asarray(sum(w * law._cdf(t, i, strict) for w, law in self._live))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        which = rng.choice(len(self.weights), size=n, p=self.weights)
        out = np.empty((n, self.n))
        for k in np.unique(which).tolist():
            rows = np.flatnonzero(which == k)
            out[rows] = self.laws[k].sample(len(rows), rng)  # which checks the draws of a law of the user
        return out

    def _log_density(self, x: FloatArray) -> FloatArray:
        terms = np.stack([np.log(w) + law._log_density(x) for w, law in self._live])
        peak = terms.max(axis=0)
        with np.errstate(invalid="ignore"):
            sums = peak + np.log(np.exp(terms - peak).sum(axis=0))
        return np.where(np.isneginf(peak), -np.inf, sums)

    def to_dict(self) -> dict[str, Any]:
        """`{"law": "mixture of laws", "version": 1, "weights": ..., "components": [...]}`."""
        return {
            "law": self.kind,
            "version": VERSION,
            "weights": self.weights.tolist(),
            "components": [law.to_dict() for law in self.laws],
        }

    def __repr__(self) -> str:
        parts = f"{len(self)} component{'s' if len(self) > 1 else ''}"
        return f"Mixture({parts}, {self.n} {'input' if self.n == 1 else 'inputs'})"


def mixture_of(weights: npt.ArrayLike, laws: Sequence[Law]) -> Law:
    """The mixture, of the simplest class that holds it: Gaussians share equal factors."""
    if all(isinstance(part, Gaussian) for part in laws):
        return GaussianMixture(weights, shared_factors(laws))
    return laws[0] if len(laws) == 1 else Mixture(weights, laws)


def mixture_at(law: Law, index: Index, values: FloatArray) -> Conditional:
    """The components that fit, weighted; where some have the values with positive probability, those alone count."""
    parts = [(w, part._conditional(index, values)) for w, part in law.components if w > 0]
    live = [(w, c) for w, c in parts if c.law is not None]
    if not live:
        return NEVER
    least = min(c.order for _, c in live)
    live = [(w, c) for w, c in live if c.order == least]
    logs = np.log([w for w, _ in live]) + np.array([c.log_weight for _, c in live])
    if len(live) > 1 and np.isnan(logs).any():
        raise InputError(
            "a component is restricted in several correlated inputs, so how likely the values are under it has no "
            "closed form; condition the components one by one"
        )
    total = float(np.logaddexp.reduce(logs))
    weights = np.ones(1) if len(live) == 1 else np.exp(logs - total)
    return Conditional(mixture_of(weights / weights.sum(), [c.law for _, c in live if c.law is not None]), least, total)


def _around(boxes: list[Box]) -> Box:
    return np.min([low for low, _ in boxes], axis=0), np.max([high for _, high in boxes], axis=0)


# -- mixtures given a box ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Share:
    """A component given a box; no `law` where float64 cannot condition it on the box."""

    law: Law | None
    log_mass: float
    """Of the box under the component; an upper bound if there is no law."""
    relative_error: float = 0.0


def mixture_given_box(law: Law, lower: FloatArray, upper: FloatArray) -> Law:
    """The components of a mixture given a box, weighted by how much of each lies inside."""
    found = restricted_mixture(law, lower, upper)
    if found is not None:
        return found.law
    for k, (w, part) in enumerate(law.components):
        if w > 0 and _share(part, lower, upper) is None:
            raise InputError(
                f"component {k} is correlated in several of the inputs that the box restricts, so its mass m_k in the "
                "box has no closed form; reluscope.mass bounds it, and with weights proportional to w_k m_k the law is "
                "Mixture(weights, [Truncated(component, lower, upper), ...])"
            )
    raise InputError("the box has no mass under any component of the mixture, or less than float64 can condition on")


def restricted_mixture(law: Law, lower: FloatArray, upper: FloatArray) -> Restriction | None:
    """A mixture given a box; None if it has no mass there, or a component no closed form."""
    laws: list[Law] = []
    logs: list[float] = []
    error, lost = 0.0, -np.inf
    for w, part in law.components:
        if not w > 0:
            continue
        share = _share(part, lower, upper)
        if share is None:
            return None
        log = float(np.log(w)) + share.log_mass
        if share.law is None:
            lost = float(np.logaddexp(lost, log))
        else:
            laws.append(share.law)
            logs.append(log)
            error = max(error, share.relative_error)
    if not laws:
        return None
    total = float(np.logaddexp.reduce(logs))
    error += float(np.exp(min(lost - total, 0.0)))
    if error > _MOST_LOST:
        return None
    weights = np.exp(np.array(logs) - total)
    return Restriction(Mixture(weights / weights.sum(), laws), total, error + 1e-15 * len(laws))


def _share(part: Law, lower: FloatArray, upper: FloatArray) -> _Share | None:
    """One component given the box; None where that has no closed form."""
    if part.atoms is not None:
        points, weights = part.atoms
        inside = ((points >= lower) & (points <= upper)).all(axis=1) & (weights > 0)
        total = float(weights[inside].sum())
        if not total:
            return _Share(None, -np.inf)
        return _Share(Particles(points[inside], weights[inside] / total), float(np.log(total)))
    if isinstance(part, Copula):
        closed = np.zeros(part.n, bool)
        found = _share(part.scores, *part.base_box(lower, upper, closed, closed))
        if found is None or found.law is None:
            return found
        return replace(found, law=Copula.of_scores(found.law, part.marginals, names=part.names))
    low, high = part.support()
    if (lower <= low).all() and (upper >= high).all():
        return _Share(part, 0.0)
    lo, hi = np.maximum(lower, low), np.minimum(upper, high)
    if (lo > hi).any() or ((lo == hi) & (low < high)).any():
        return _Share(None, -np.inf)
    given = part.restrict(lo, hi)
    if given is not None:
        return _Share(given.law, given.log_mass, given.relative_error)
    gaussians = part.unrestricted.gaussians
    before = 0.0
    if isinstance(part, Truncated):
        if not part.independent:
            return None
        before = part.log_mass
    if not gaussians:
        return None
    try:
        law = Truncated(gaussians[0][1], lo, hi)
    except InputError:  # nothing there, or less than can be conditioned on
        return _Share(None, SMALLEST_LOG_MASS - before)
    return _Share(law, law.log_mass - before, 1e-12 * (1 + part.n)) if law.independent else None
