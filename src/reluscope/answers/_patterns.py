"""The patterns of a law: drawn, counted and enumerated, with their masses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope.answer import Answer, Answers, status_of, unless_interrupted
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.inputs import own_pattern
from reluscope.intervals import binomial
from reluscope.network import Network, Pattern
from reluscope.threads import look
from reluscope.workers import jobs_at_hand, run

if TYPE_CHECKING:
    from reluscope.inputs import Component, Law

ENUMERATION_BUDGET = "30s, 200000 regions"
"""What an enumeration of patterns may take when no budget is given."""
_DRAW_NUMBERS = 1 << 21
"""Numbers in one batch of draws."""


def share(hits: int, draws: int, level: float, method: str = "") -> Answer:
    """`hits / draws` with the exact binomial (Clopper-Pearson) interval: it holds for any true probability and any
    number of draws, as long as that number was fixed beforehand."""
    low, high = binomial(hits, draws, level)
    return Answer(hits / draws, low, high, "confidence", level, method or f"{draws:,} draws")


def draw_patterns(
    net: Network, law: Law, components: tuple[Component, ...], draws: int, rng: np.random.Generator
) -> Iterator[Pattern]:
    """Patterns of `draws` independent inputs from the law, in batches."""
    yield from run(_drawn_pattern, _inputs(net, law, components, draws, rng), jobs=jobs_at_hand(), shared=(net,))


def patterns_here(
    net: Network, law: Law, components: tuple[Component, ...], draws: int, rng: np.random.Generator
) -> Iterator[Pattern]:
    """The same without workers: for pilots, whose few draws would tell of the way to them."""
    return (_drawn_pattern(task, net) for task in _inputs(net, law, components, draws, rng))


def _inputs(
    net: Network, law: Law, components: tuple[Component, ...], draws: int, rng: np.random.Generator
) -> Iterator[tuple[Network, FloatArray]]:
    """Batches of inputs, each with the network they are for.

    Gaussian components are drawn in the few coordinates the network can see; how many draws each gets is multinomial.
    """
    plain = all(c.kind == "gaussian" for c in components)
    sources = [c.network for c in components] if plain else [net]
    weights = np.array([c.weight for c in components]) if plain else np.ones(1)
    counts = rng.multinomial(draws, weights / weights.sum())
    for network, count in zip(sources, counts, strict=True):
        size = max(64, _DRAW_NUMBERS // max(network.n_inputs, net.n_units, 1))
        for begin in range(0, int(count), size):
            look()
            n = min(size, int(count) - begin)
            yield network, rng.standard_normal((n, network.n_inputs)) if plain else law.sample(n, rng)


def _drawn_pattern(task: tuple[Network, FloatArray], net: Network) -> Pattern:
    network, rows = task
    return own_pattern(net, network.pattern(rows))


def affordable(
    net: Network, law: Law, components: tuple[Component, ...], draws: int, limit: Budget, share: float
) -> int:
    """How many of the draws fit into a share of the time that is left, counted by patterns."""
    rng = np.random.default_rng(0)

    def pilot(n: int) -> None:
        for batch in patterns_here(net, law, components, n, rng):
            np.unique(net.key(batch))

    return limit.afford(pilot, draws, share)


class EnumeratedPatterns(NamedTuple):
    """Different patterns (n, units), their masses under a law, and a bound on the mass not enumerated."""

    pattern: Pattern
    mass: Answers
    missing: float
    stopped: str | None


def enumerated_patterns(net: Network, law: Law, budget: Any, progress: Any = None) -> EnumeratedPatterns:
    """Every pattern that has mass under the law, by enumeration; for laws of which `all_exact` holds."""
    from reluscope.measure.regions import enumerate_law, scaled

    parts = enumerate_law(net, law, budget=parse_budget(budget, ENUMERATION_BUDGET), progress=progress)
    masses = [scaled(p.masses, p.component.weight) for p in parts]
    pattern = np.concatenate([own_pattern(net, p.regions.pattern) for p in parts])
    stopped = next((p.regions.stopped for p in parts if p.regions.stopped), None)
    unless_interrupted(stopped)
    # The masses of a complete subdivision sum to 1. If they do not, say so instead of calling the answer exact.
    gap = [1.0 - float(p.masses.value.sum()) for p in parts]
    slack = [1e-9 + float((p.masses.upper - p.masses.lower).sum()) for p in parts]
    if not stopped and any(abs(g) > e for g, e in zip(gap, slack, strict=True)):
        stopped = f"the masses of all regions sum to {1.0 - max(gap, key=abs):.9g} instead of 1"
    _, first, inverse = np.unique(net.key(pattern), return_index=True, return_inverse=True)
    columns = [np.concatenate([getattr(m, k) for m in masses]) for k in ("value", "lower", "upper")]
    value, lower, upper = (np.bincount(inverse, column).astype(np.float64) for column in columns)
    missing = max(0.0, 1.0 - float(lower.sum())) if stopped else 0.0
    if stopped:
        lower = np.maximum(lower - max(0.0, float(value.sum()) - 1.0), 0.0)
    kind, how = "sound" if stopped else "exact", f"enumeration, {len(value):,} patterns"
    mass = Answers(
        value, lower, np.minimum(upper, 1.0), kind, method=how, note=stopped or "", status=status_of(stopped)
    )
    return EnumeratedPatterns(pattern[first], mass, missing, stopped)


def at_least_one(found: EnumeratedPatterns) -> EnumeratedPatterns:
    """The patterns, unless the budget ended before the first was found: nothing can be said then."""
    if not len(found.pattern):
        raise InputError(f"{found.stopped} before the first region was found; give more, or use method='draws'")
    return found


def summed(found: EnumeratedPatterns, members: npt.NDArray[np.bool_]) -> Answer:
    """Mass of the named patterns, with what was not enumerated added to the upper end."""
    some = found.mass[members]
    inside = float(some.value.sum())
    slack = len(members) * EPS * inside
    low = max(0.0, float(some.lower.sum()) - slack)
    high = min(1.0, float(some.upper.sum()) + found.missing + slack)
    return Answer(inside, low, high, some.guarantee, method=some.method, note=some.note)


def checked(net: Any, law: Law) -> tuple[Component, ...]:
    """The law's components in the coordinates the network sees, or an `InputError` about `net` or `law`."""
    from reluscope.inputs import standard

    return standard(law, net)
