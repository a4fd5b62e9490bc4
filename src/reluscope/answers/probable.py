"""The most probable activation patterns, with a certificate of what was not found.

Two methods. *Search*: best-first over prefixes of patterns. The cell of a prefix (all pieces of the first layers) holds
the cells of everything that continues it, so its mass bounds theirs; the prefix with the largest mass is continued
first, and a full pattern that comes to the front is the most probable one left. *Draws*: patterns that occur among
draws, judged by a second, independent set of draws.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import EPS, choice, integer, real, seeded
from reluscope.answer import Answer
from reluscope.answers._patterns import checked, enumerated_patterns
from reluscope.answers._probable_draws import from_draws
from reluscope.answers._probable_record import Probable
from reluscope.answers._probable_search import Search
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import all_exact
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.threads import clean_interrupt
from reluscope.workers import with_jobs

if TYPE_CHECKING:
    from reluscope.inputs import Law

_MOST_SEARCH_DIMENSIONS = 6


@clean_interrupt()
@with_jobs
def probable(
    net: Network,
    law: Law,
    *,
    mass: float | None = None,
    k: int | None = None,
    draws: int = 200_000,
    method: str = "auto",
    relative: float = 1e-2,
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    jobs: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Probable:
    """The most probable patterns: the fewest found to hold probability `mass`, or the `k` most probable ones.

    Parameters
    ----------
    net : Network
    law : Law
        The distribution of the inputs.
    mass : float, optional
        Probability to be held, 0 to 1; 0.99 when neither `mass` nor `k` is given.
    k : int, optional
        Number of patterns; give one of `mass` and `k`.
    draws : int
        Random inputs of "draws"; fewer where the budget does not allow so many (`method` says how many).
    method : {"auto", "search", "draws"}
        See Notes.
    relative : float
        Half-width of estimated masses, relative to the mass.
    level : float
        Confidence level of estimates.
    budget : optional
        A time (30 s if not given). When it ends, or the draws cannot show the target, the best so far is returned;
        `stopped` says so.
    jobs : int, optional
        Workers that share masses and draws, -1 for all cores; if the budget does not end the work, the answer is the
        same for any number of them.
    rng : optional
        None, an int, a SeedSequence or a Generator.
    progress : optional
        Where to report progress.

    Returns
    -------
    Probable

    Raises
    ------
    InputError
        If both `mass` and `k` are given, or "search" is asked for above six dimensions.

    Notes
    -----
    "search" (the default for laws the network sees in up to three dimensions, six for uniform laws): best-first over
    prefixes with `P(pattern) <= P(prefix)`, the joint probability of all pieces chosen so far, not a marginal. Masses
    are exact there, so the certificate is too: patterns come out in order, `left` is what the open prefixes hold,
    `next` the mass of the heaviest. In a mixture each component is searched and a pattern's masses are added up. In
    four to six dimensions prefix masses are quasi-Monte Carlo and slow; the risk `1 - level` is shared by all.

    "draws" (the default otherwise, so above three dimensions): candidates from `draws` inputs, judged by as many
    independent ones. The certificate holds at `level` whatever the network, but is only as sharp as the draws:
    nothing below about 20 / draws can be told from 0. `total` has an exact binomial interval for a given `k`, and a
    uniform one (Dvoretzky-Kiefer-Wolfowitz) when their number is chosen to reach `mass`. `next` holds for all patterns
    at once, seen or not: at most `1/p` patterns have mass p or more, so one of them shows up at most c times in n draws
    with probability at most `P(Bin(n, p) <= c) / p`. Masses of the leading patterns are computed as those of polytopes,
    to `relative` accuracy, as far as the budget goes (up to 300, in up to 40 dimensions); the others are counted.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, probable
    >>> net = Network([([[1.0], [1.0]], [0.0, -1.0]), ([[1.0, 1.0]], None)])
    >>> found = probable(net, Gaussian([0.0]), k=2)
    >>> found.pattern.tolist(), found.mass.value.round(4).tolist()
    ([[0, 0], [1, 0]], [0.5, 0.3413])
    """
    components = checked(net, law)
    if mass is not None and k is not None:
        raise InputError("give either mass or k, not both")
    wanted = 0.99 if mass is None and k is None else mass
    target = None if wanted is None else real(wanted, "mass", low=0.0, high=1.0)
    count = None if k is None else integer(k, "k", low=1)
    how = choice(method, "method", ("auto", "search", "draws"))
    samples = integer(draws, "draws", low=10)
    accuracy = real(relative, "relative", low=0.0, high=1.0, open_=True)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    limit, (gen, seed) = parse_budget(budget, "30s"), seeded(rng)
    if how == "search" and max((c.r for c in components if c.kind != "point"), default=0) > _MOST_SEARCH_DIMENSIONS:
        raise InputError(
            f"method='search' is for laws seen in at most {_MOST_SEARCH_DIMENSIONS} dimensions, got "
            f"{max(c.r for c in components)}; use method='draws'"
        )
    if all(c.kind == "point" for c in components):
        return _of_particles(net, law, target, count)
    if any(c.lead or c.kind == "point" for c in components):  # several prefixes belong to one pattern, or none does
        if how == "search":
            raise InputError("method='search' is for laws made of Gaussians or boxes; use method='draws'")
        how = "draws"
    if how == "search" or (how == "auto" and all_exact(components)):
        with meter(progress, "patterns") as report:
            out = Search(net, components, target, count, accuracy, level, limit, gen, report).run()
    else:
        out = from_draws(net, law, components, target, count, samples, accuracy, level, limit, gen)
    return replace(out, seed=seed) if "confidence" in (out.mass.guarantee, out.left.guarantee) else out


def _of_particles(net: Network, law: Law, target: float | None, count: int | None) -> Probable:
    found = enumerated_patterns(net, law, None)
    order = np.argsort(-found.mass.value, kind="stable")
    value = found.mass.value[order]
    sums = np.cumsum(value)
    n = min(count, len(order)) if count else int(np.searchsorted(sums, (target or 0.0) - 1e-12)) + 1
    n = min(n, len(order))
    chosen = order[:n]
    rest = max(0.0, 1.0 - float(sums[n - 1])) if n < len(order) else 0.0
    nothing = float(value[n]) if n < len(order) else 0.0
    return Probable(
        net,
        found.pattern[chosen],
        replace(found.mass[chosen], method=""),
        _exact(float(sums[n - 1]), 8 * len(order) * EPS),
        _exact(rest, 8 * len(order) * EPS),
        Answer(nothing, 0.0, nothing, "exact"),
        "fewer patterns than asked for" if count and n < count else None,
        "count of particles",
    )


def _exact(value: float, error: float) -> Answer:
    value = min(max(value, 0.0), 1.0)
    return Answer(value, max(0.0, value - error), min(1.0, value + error), "exact")
