"""The output's law and the patterns by integration along lines, where there are too many directions to enumerate.

Every number is an estimate with a replicate interval (see `reluscope.measure.lines`); each question runs anew for the
time it is given, from the same seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.answer import Answer, Answers
from reluscope.answers._output_mixture import Mixture
from reluscope.answers.outputs import Atoms, Outputs, check_levels, truncated_network
from reluscope.errors import InputError
from reluscope.inputs import Component, Law
from reluscope.intervals import DEFAULT_LEVEL, binomial
from reluscope.network import Network, Pattern
from reluscope.workers import sharing

_PILOT = 1 << 14
_GRID = 32
_FRESH = 1 << 17
_FRESH_WORK = 1 << 33
"""Fresh draws, and multiplications that they may take; at least 4,096 draws, or fewer as the time asks for."""
_MOST_PATTERNS = 1 << 16
"""Patterns that are told apart, shared by the components of the law."""


@dataclass(frozen=True, eq=False, repr=False)
class LineOutputs(Outputs):
    """`Outputs` whose numbers come from lines: guarantee "confidence" at `level`, each interval on its own.

    `seconds` is the time each question may take, `stream` what its random numbers start from, `jobs` how many workers
    share its lines.
    """

    level: float = DEFAULT_LEVEL
    seconds: float = 1.0
    stream: int = 0
    jobs: int = 1

    def cdf(self, t: npt.ArrayLike, output: int = 0) -> Answers:
        """`P(y <= t)`, estimated; never decreasing in one call."""
        return self._at(t, output, "cdf", 0.0, 1.0)

    def sf(self, t: npt.ArrayLike, output: int = 0) -> Answers:
        """`P(y > t)`, estimated on its own."""
        return self._at(t, output, "sf", 1.0, 0.0)

    def pdf(self, t: npt.ArrayLike, output: int = 0) -> Answers:
        """Density of the continuous part of y, estimated."""
        return self._at(t, output, "pdf", 0.0, 0.0)

    def atoms(self, output: int = 0) -> Atoms:
        """Values the output takes with positive probability, as met on the lines: rare ones may be missed."""
        found = self._run(atoms=True).atoms[self._output(output)]
        mass = found.mass
        return Atoms(found.value, self._estimated(mass.value, np.maximum(mass.lower, 0.0), mass.upper))

    def quantile(self, q: npt.ArrayLike, output: int = 0) -> Answers:
        """`inf {t : P(y <= t) >= q}`, estimated: the bracket holds the thresholds whose cdf interval holds q."""
        o, levels = self._output(output), self._checked_q(q)
        flat = levels.ravel()
        atoms = self.atoms(o).value
        y = np.sort(self.network(self.law.sample(_PILOT, np.random.default_rng(self.stream)))[:, o])
        spread = 6.0 * np.sqrt(flat * (1 - flat) / _PILOT) + 12.0 / _PILOT
        ends = [np.clip(((flat + s * spread) * _PILOT).astype(int), 0, _PILOT - 1) for s in (-1, 1)]
        low, high = y[ends[0]], y[ends[1]]
        reach = y[-1] - y[0] + 1e-12
        low, high = np.where(ends[0] == 0, low - reach, low), np.where(ends[1] == _PILOT - 1, high + reach, high)
        # Just below an atom, by more than the engine's own tolerance for being on it.
        under = atoms - 1e-7 * (np.abs(atoms) + reach)
        for _ in range(2):  # a second, finer grid about the bracket that the first one leaves
            grid = low + np.linspace(0.0, 1.0, _GRID)[:, None] * (high - low)
            t = np.unique(np.concatenate([grid.ravel(), atoms, under, [y[0] - reach, y[-1] + reach]]))
            value, lower, upper = _inverted(t, self.cdf(t, o), flat, under)
            inside = np.isfinite(lower) & np.isfinite(upper)
            # Wider by half on both sides: another run's intervals need not end inside those of the first.
            margin = 0.5 * (upper - lower)
            low, high = np.where(inside, lower - margin, low), np.where(inside, upper + margin, high)
        arrays = [a.reshape(levels.shape) for a in (value, lower, upper)]
        return self._estimated(*arrays)

    @property
    def mean(self) -> Answers:
        """`E y`, estimated, shape (outputs,)."""
        first, half, _, _ = self._both_moments
        return self._estimated(first, first - half, first + half)

    @property
    def cov(self) -> Answers:
        """Covariance of the outputs, estimated, shape (outputs, outputs)."""
        _, _, cov, half = self._both_moments
        return self._estimated(cov, cov - half, cov + half)

    @cached_property
    def mixture(self) -> Mixture:
        """Not available: lines do not list cells."""
        raise InputError(
            'the regions of the mixture are listed by enumeration only; see linear_models(net, law, method="lines")'
        )

    def joint_pdf(self, y: npt.ArrayLike, outputs: Any = None) -> Answers:
        """Not available: a line meets a given point of several outputs with probability 0."""
        raise InputError(
            "joint_pdf is for laws whose regions are enumerated; by lines take probability of a small box of outputs"
        )

    def probability(self, rows: tuple[npt.ArrayLike, npt.ArrayLike]) -> Answer:
        """`P(G y <= g)` for `rows = (G, g)`, estimated."""
        from reluscope.events import Event

        G, g = self._rows(rows)
        if not len(g):
            return Answer(1.0, 1.0, 1.0, "exact", method="no rows")
        found = self._run(events=(Event.below(G, g, self.network.n_inputs),))
        value, lower, upper = (float(a[0]) for a in (found.events.value, found.events.lower, found.events.upper))
        return Answer(
            value, max(min(lower, value), 0.0), upper, "confidence", self.level, _method(found), seed=self.seed
        )

    def hidden(self, layer: int) -> Outputs:
        """The distribution of a layer's pre-activations (from 0): exact if it sees few directions, else by lines."""
        from reluscope.answers.outputs import outputs

        net = truncated_network(self.network, self._layer(layer))
        return outputs(net, self.law, budget=self.seconds, level=self.level, jobs=self.jobs, rng=self.stream)

    # -- inside --------------------------------------------------------------------------------------------------

    @cached_property
    def _both_moments(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        # Around a rough mean first: then the second moment and the covariance are nearly the same number.
        rough = self.network(self.law.sample(1024, np.random.default_rng(self.stream))).mean(axis=0)
        net = self.network.then(np.eye(self.network.n_outputs), -rough)
        found = self._run(net=net, moments=True)
        first, second = found.mean, found.second
        half1, half2 = 0.5 * (first.upper - first.lower), 0.5 * (second.upper - second.lower)
        cross = np.abs(first.value)[:, None] * half1
        cov = second.value - np.outer(first.value, first.value)
        return first.value + rough, half1, cov, half2 + cross + cross.T

    def _run(self, net: Network | None = None, **request: Any) -> Any:
        from reluscope.measure.lines import Request, integrate

        with sharing(self.jobs):
            return integrate(
                net or self.network,
                self.law,
                Request(**request),
                budget=self.seconds,
                level=self.level,
                method="lines" if request.get("density") or request.get("atoms") else self._way,
                rng=self.stream,
            )

    @cached_property
    def _way(self) -> str:
        """Points where atoms of the law make units steep: lines would lose the atoms of the output to rounding."""
        from reluscope.inputs import standard
        from reluscope.measure.exactness import is_steep

        return "points" if is_steep(standard(self.law, self.network)[0].network) else "auto"

    def _at(self, t: npt.ArrayLike, output: int, kind: str, below: float, above: float) -> Answers:
        """One of the level quantities; `below` and `above` are its values at minus and plus infinity."""
        o = self._output(output)
        levels = check_levels(t)
        flat = levels.ravel()
        value = np.where(flat < 0, below, above).astype(float)
        lower, upper = value.copy(), value.copy()
        finite = np.isfinite(flat)
        if finite.any():
            found = self._run(levels={o: flat[finite]}, density=kind == "pdf").levels[o]
            place = np.searchsorted(found.thresholds, flat[finite])
            estimate = getattr(found, kind)
            arrays = [np.maximum(a, 0.0) for a in (estimate.value, estimate.lower, estimate.upper)]
            if kind != "pdf":
                forward = slice(None) if kind == "cdf" else slice(None, None, -1)
                arrays = [np.minimum(np.maximum.accumulate(a[forward])[forward], 1.0) for a in arrays]
            value[finite], lower[finite], upper[finite] = (a[place] for a in arrays)
        return self._estimated(*(a.reshape(levels.shape) for a in (value, lower, upper)))

    def _estimated(self, value: FloatArray, lower: FloatArray, upper: FloatArray) -> Answers:
        ends = np.minimum(lower, value), np.maximum(upper, value)
        return Answers(value, *ends, "confidence", self.level, self.method, seed=self.seed)


def _method(found: Any) -> str:
    return f"{found.how}, {found.replicates} replicates"


def _inverted(
    t: FloatArray, cdf: Answers, q: FloatArray, under: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Quantiles from a cdf on a grid: interpolated, and the grid points at which its interval is clear of q.

    Between a point of `under` and the next one the cdf jumps: there is an atom at the latter.
    """
    top = np.maximum.accumulate(cdf.value)
    k = np.searchsorted(top, q, side="left")
    left, right = np.clip(k - 1, 0, len(t) - 1), np.clip(k, 0, len(t) - 1)
    gap = top[right] - top[left]
    share = np.where(gap > 0, (q - top[left]) / np.where(gap > 0, gap, 1.0), 1.0)
    value = t[left] + np.clip(share, 0.0, 1.0) * (t[right] - t[left])
    value = np.where(np.isin(t[left], under), t[right], value)
    before = np.searchsorted(np.maximum.accumulate(cdf.upper), q, side="left") - 1
    after = np.searchsorted(np.maximum.accumulate(cdf.lower), q, side="left")
    lower = np.where(before >= 0, t[np.clip(before, 0, len(t) - 1)], -np.inf)
    upper = np.where(after < len(t), t[np.clip(after, 0, len(t) - 1)], np.inf)
    return value, np.minimum(lower, value), np.maximum(upper, value)


@dataclass(frozen=True, eq=False)
class LinePatterns:
    """Patterns met on lines, their masses with intervals, and an upper bound on the mass of all others."""

    pattern: Pattern
    mass: Answers
    remainder: float
    marginals: Answers


def line_patterns(
    net: Network, law: Law, seconds: float, level: float, rng: np.random.Generator, components: tuple[Component, ...]
) -> LinePatterns:
    """Pattern masses by lines; then fresh independent draws bound the mass of the patterns that are not listed.

    The bound is exact (Clopper-Pearson, one-sided at `level`) because the list is fixed before the draws. Marginals
    have a run of their own, which may use points: on wide networks these say more about single units in the same time.
    `components` are those of the law, made once for all.
    """
    from reluscope.answers._patterns import affordable, draw_patterns
    from reluscope.budget import Budget
    from reluscope.measure.lines import Request, integrate

    limit = Budget(seconds)
    found = integrate(
        net, law, Request(patterns=max(_MOST_PATTERNS // len(components), 32)), budget=0.45 * seconds, level=level,
        method="lines", components=components, rng=rng,
    )  # fmt: skip
    left = max(0.9 * seconds - limit.elapsed(), 0.2 * seconds)
    single = integrate(net, law, Request(marginals=True), budget=left, level=level, components=components, rng=rng)
    patterns = found.patterns
    assert patterns is not None
    known = set(net.key(patterns.pattern).tolist())
    weights = sum(int(np.prod(layer.weight.shape)) for layer in components[0].network.layers)
    fresh = int(np.clip(_FRESH_WORK // max(weights, 1), 1 << 12, _FRESH))
    fresh = max(affordable(net, law, components, fresh, Budget(0.1 * seconds), 1.0), 256)
    missed = 0
    for batch in draw_patterns(net, law, components, fresh, rng):
        keys, count = np.unique(net.key(batch), return_counts=True)
        missed += int(sum(c for k, c in zip(keys.tolist(), count.tolist(), strict=True) if k not in known))
    remainder = binomial(missed, fresh, level, side="upper")[1]
    value, low, high = patterns.mass.value, patterns.mass.lower, patterns.mass.upper
    ends = np.clip(low, 0.0, value), np.maximum(np.minimum(high, 1.0), value)
    mass = Answers(value, *ends, "confidence", level, _method(found))
    units = single.marginals
    assert units is not None
    kind = "exact" if single.interval == "exact" else "confidence"
    marginals = Answers(units.value, units.lower, units.upper, kind, level, _method(single))
    return LinePatterns(patterns.pattern, mass, remainder, marginals)


def seconds_of(budget: Any) -> float:
    """How long a run may take: what the budget says (or has left, where it runs), one second without one."""
    from reluscope.budget import Budget, parse_budget

    limit = parse_budget(budget)
    if not np.isfinite(limit.seconds):
        return 1.0
    gone = limit.elapsed() if isinstance(budget, Budget) else 0.0
    return max(limit.seconds - gone, 0.1 * limit.seconds)
