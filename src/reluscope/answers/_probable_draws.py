"""The most probable patterns by draws: candidates from one set of draws, judged by an independent one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reluscope._lazy import late
from reluscope.answer import Answer, Answers, Status, Stop
from reluscope.answers._patterns import affordable, draw_patterns, share
from reluscope.answers._probable_record import Probable
from reluscope.budget import Budget
from reluscope.intervals import dkw
from reluscope.measure.regions import added, scaled
from reluscope.network import Network, Pattern
from reluscope.threads import OutOfTimeError
from reluscope.workers import jobs_at_hand, run

if TYPE_CHECKING:
    from reluscope.inputs import Component, Law

_MOST_POLYTOPES = 300
_MOST_POLYTOPE_DIMENSIONS = 40


def from_draws(
    net: Network,
    law: Law,
    components: tuple[Component, ...],
    target: float | None,
    count: int | None,
    draws: int,
    relative: float,
    level: float,
    budget: Budget,
    rng: np.random.Generator,
) -> Probable:
    asked, draws = draws, affordable(net, law, components, draws, budget, 0.45)
    candidates, seen = _tally(net, draw_patterns(net, law, components, draws, rng))
    order = np.argsort(-seen, kind="stable")
    candidates = candidates[order]
    judged, hits = _tally(net, draw_patterns(net, law, components, draws, rng))
    listed = {key: i for i, key in enumerate(net.key(candidates).tolist())}
    rank = np.array([listed.get(key, len(candidates)) for key in net.key(judged).tolist()])
    again = np.bincount(rank, hits, minlength=len(candidates) + 1)
    stopped = None
    if count is not None:
        size = min(count, len(candidates))
        inside = int(again[:size].sum())
        found = share(inside, draws, level)
        if size < count:
            stopped = f"only {size:,} patterns in {draws:,} draws"
    else:
        assert target is not None
        covered = np.cumsum(again[:-1]) / draws
        half = dkw(draws, level)
        enough = np.flatnonzero(covered - half >= target)
        size = int(enough[0]) + 1 if len(enough) else len(candidates)
        value = float(covered[size - 1])
        found = Answer(value, max(0.0, value - half), min(1.0, value + half), "confidence", level)
        if not len(enough):
            stopped = f"{draws:,} draws do not show a mass of {target:g}; more draws may"
    if draws < asked and stopped is not None:
        stopped = Stop(f"budget of {budget.seconds:g} s reached: {stopped}", Status.BUDGET)
    chosen = candidates[:size]
    each = [share(int(h), draws, level) for h in again[:size]]
    columns = [np.array([getattr(a, name) for a in each]) for name in ("value", "lower", "upper")]
    masses = Answers(columns[0], columns[1], columns[2], "confidence", level)
    masses = refined(masses, components, chosen, relative, level, budget, rng)
    most = int(max(hits[rank >= size].max(initial=0), 0))
    # Half of the risk each for this bound and for the upper end of what is left, of which the smaller counts.
    bound = most_mass_with(most, draws, 0.5 * (1.0 - level))
    order = np.argsort(-masses.value, kind="stable")
    masses = Answers(masses.value[order], masses.lower[order], masses.upper[order], masses.guarantee, masses.level)
    left = Answer(1.0 - found.value, 1.0 - found.upper, 1.0 - found.lower, "confidence", level)
    nothing = Answer(most / draws, 0.0, min(bound, left.upper), "confidence", level)
    return Probable(
        net, chosen[order], masses, found, left, nothing, stopped, f"{draws:,} draws, judged by as many others"
    )


def _tally(net: Network, batches: Iterator[Pattern]) -> tuple[Pattern, npt.NDArray[np.int64]]:
    """Distinct patterns and how often they occur."""
    rows: list[Pattern] = []
    counts: list[npt.NDArray[np.int64]] = []
    for batch in batches:
        _, first, number = np.unique(net.key(batch), return_index=True, return_counts=True)
        rows.append(batch[first])
        counts.append(number.astype(np.int64))
    pattern = np.concatenate(rows)
    _, first, inverse = np.unique(net.key(pattern), return_index=True, return_inverse=True)
    return pattern[first], np.bincount(inverse, np.concatenate(counts)).astype(np.int64)


def most_mass_with(hits: int, draws: int, risk: float) -> float:
    """A mass that no pattern with at most `hits` draws exceeds, for all patterns and all `hits` at once.

    At most `1/p` patterns have mass p or more, and each shows up at most c times in n draws with probability at most
    `P(Bin(n, p) <= c)`. So the mass is the p where `P(Bin(n, p) <= c) / p` falls to `risk / ((c+1)(c+2))`; these shares
    sum to `risk` over c = 0, 1, 2, ...
    """
    brentq = late("scipy.optimize", "brentq")
    bdtr = late("scipy.special", "bdtr")

    allowed = np.log(risk / ((hits + 1.0) * (hits + 2.0)))

    def excess(p: float) -> float:
        return float(np.log(max(bdtr(hits, draws, p), 1e-300)) - np.log(p) - allowed)

    if hits >= draws or excess(1.0 - 1e-12) > 0:
        return 1.0
    low = max(hits / draws, 1e-15)
    if excess(low) <= 0:
        return low
    return float(brentq(excess, low, 1.0 - 1e-12, xtol=1e-12, rtol=1e-9)) * (1 + 1e-9)


def refined(
    counted: Answers,
    components: tuple[Component, ...],
    chosen: Pattern,
    relative: float,
    level: float,
    budget: Budget,
    rng: np.random.Generator,
) -> Answers:
    """Masses of the leading patterns computed as those of polytopes where that is cheap; the others as they were."""
    if any(c.lead or c.kind != "gaussian" or c.r > _MOST_POLYTOPE_DIMENSIONS for c in components):
        return counted
    value, low, high = counted.value.copy(), counted.lower.copy(), counted.upper.copy()
    n = min(len(chosen), _MOST_POLYTOPES // len(components))
    seeds = rng.integers(0, 2**63, n)
    shared = components, relative, 1.0 - (1.0 - level) / len(components)
    with suppress(OutOfTimeError):
        tasks = zip(chosen[:n], seeds.tolist(), strict=True)
        for i, both in enumerate(run(_mass_of, tasks, jobs=jobs_at_hand(), shared=shared, budget=budget)):
            value[i], low[i], high[i] = float(both.value[0]), float(both.lower[0]), float(both.upper[0])
    return Answers(value, low, high, counted.guarantee, counted.level)


def _mass_of(task: tuple[Pattern, int], components: tuple[Component, ...], relative: float, level: float) -> Answers:
    """The mass of one pattern, with draws of its own."""
    from reluscope.measure.regions import gaussian_mass

    pattern, seed = task
    rng, parts = np.random.default_rng(seed), []
    for c in components:
        rows = c.network.polytope(pattern)
        parts.append(scaled(gaussian_mass(rows.A, rows.b, relative, level, rng), c.weight))
    return added(parts)
