"""What must hold for every problem; each check gives words for what is wrong, and nothing when all is well."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

import reluscope as rs
from campaign.problems import Problem, linear, nudged, problem, reordered, text_of
from campaign.truth import Exact, holds, probability
from reluscope.budget import Budget

NEVER = 1e-290
"""Probabilities up to here count as none: brackets of Gaussians reach out to it."""

DRAWS, FEWER = 40_000, 500
DEVIATIONS = 6.0
"""A long draw may be off by so many standard errors: one false alarm in 5e8 checks."""

LEVEL = 1 - 1e-9
"""Of confidence intervals: none of 10,000 should miss."""

_HANGS = 300.0
"""Seconds of work after which so small a problem counts as a hang (they take a few)."""

BUDGET, MORE = "300 regions", "3000 regions"


_THIN = 1e-15
"""What an exact 0 may leave out under a bounded law."""


def check(seed: int, counts: Counter[str], *, thorough: bool = True) -> list[str]:
    """What is wrong with the answers to problem `seed`."""
    p = problem(seed)
    rng = np.random.default_rng([seed, 18])
    counts[f"style {p.style}"] += 1
    counts[f"law {p.kind}"] += 1
    try:
        return [f"{p!r}\n    {line}" for line in _wrong(p, rng, counts, thorough)]
    except Exception as error:  # any raw error is a failure of the campaign
        return [f"{p!r}\n    {type(error).__name__}: {error}"]


def check_all(seeds: range) -> tuple[Counter[str], list[str]]:
    """Counts, and what is wrong, over several problems."""
    counts: Counter[str] = Counter()
    wrong = [line for seed in seeds for line in check(seed, counts)]
    return counts, wrong


def _reference(p: Problem) -> tuple[Any, float]:
    """The probability and what it may be off by."""
    if p.shares is not None:
        return probability(p.net, p.shares, p.formula)
    # Long draws in plain floats say nothing where the event has ties: there fewer, in fractions.
    rng = np.random.default_rng([p.seed, 19])
    X = p.law.sample(DRAWS, rng)
    hits = []
    for nudge in (0.0, 1e-9, -1e-9):
        event = rs.event(text_of(nudged(p.formula, nudge)), p.net.n_inputs, p.net.n_outputs)
        with np.errstate(all="ignore"):
            hits.append(int(event.holds(p.net, X).sum()))
    n, met = DRAWS, hits[0]
    with np.errstate(all="ignore"):
        overflow = not np.isfinite(p.net(X)).all()
    if overflow or max(hits) - min(hits) > 5 or p.style == "extreme":  # a nudge may be larger than all that decides
        exact, n = Exact(p.net), FEWER
        met = sum(holds(p.formula, exact.at(tuple(Fraction(float(v)) for v in x))) for x in X[:n])
    share = met / n
    return mpmath.mpf(share), DEVIATIONS * np.sqrt(max(share * (1 - share), 9.0 / n) / n)


def _wrong(p: Problem, rng: np.random.Generator, counts: Counter[str], thorough: bool) -> Iterator[str]:
    truth, doubt = _reference(p)
    opposite = f"not ({p.text})"
    brackets = {}

    def asked(name: str, net: rs.Network, law: Any, text: str, target: Any, **options: Any) -> Iterator[str]:
        counts["answers"] += 1
        clock, work = Budget(), time.process_time()  # the first stands still while kernels compile
        try:
            answer = rs.probability(net, law, text, rng=p.seed, **options)
        except rs.InputError as error:
            counts[f"refused: {str(error)[:60]}"] += 1
            return
        took = min(clock.elapsed(), time.process_time() - work)  # a busy machine is no reason to fail
        brackets[name] = answer
        counts[f"{answer.guarantee} brackets"] += 1
        if answer.guarantee == "exact" and answer.width > 1e-9:
            counts["exact brackets wider than 1e-9"] += 1
            if not answer.note or "rounding" not in answer.note:
                yield f"{name}: {answer!r} is wide and does not say why"
        if not (0.0 <= answer.lower <= answer.value <= answer.upper <= 1.0):
            yield f"{name}: {answer!r} has no bracket"
        if answer.guarantee == "exact" and answer.upper == 0.0 and p.kind == "uniform" and target < _THIN:
            counts["an exact 0 for less than 1e-15"] += 1  # docs/guarantees.md: regions thinner than rounding
            return
        # In many digits: a small doubt is lost beside a bound in floats.
        if not mpmath.mpf(answer.lower) - doubt <= target <= mpmath.mpf(answer.upper) + doubt:
            off = float(max(answer.lower - target, target - answer.upper))
            yield (
                f"{name} [{answer.lower!r}, {answer.upper!r}] misses {mpmath.nstr(target, 20)} by {off:.3g} "
                f"({answer.guarantee}: {answer.note})"
            )
        if took > _HANGS:
            yield f"{name}: took {took:.0f} s"

    exact = p.kind != "many"
    if exact:
        yield from asked("exact", p.net, p.law, p.text, truth, guarantee="exact")
        yield from asked("exact, not", p.net, p.law, opposite, 1 - truth, guarantee="exact")
        if {"exact", "exact, not"} <= brackets.keys():
            a, b = brackets["exact"], brackets["exact, not"]
            if not a.lower + b.lower <= 1 + 1e-15 or not a.upper + b.upper >= 1 - 1e-15:
                yield f"complements: [{a.lower!r}, {a.upper!r}] and [{b.lower!r}, {b.upper!r}] do not sum to 1"
    yield from asked("sound", p.net, p.law, p.text, truth, guarantee="sound", budget=BUDGET)
    if thorough and rng.random() < 0.3:
        yield from asked("sound, more", p.net, p.law, p.text, truth, guarantee="sound", budget=MORE)
    if thorough and (not exact or rng.random() < 0.1):
        yield from asked("confidence", p.net, p.law, p.text, truth, guarantee="confidence", level=LEVEL, budget="0.1s")
    if thorough and rng.random() < 0.1:
        yield from asked("auto", p.net, p.law, p.text, truth, budget="0.3s", level=LEVEL)
    if exact and thorough and rng.random() < 0.4 and "unit[" not in p.text:
        other = reordered(p, rng)
        yield from asked("reordered", other, p.law, p.text, truth, guarantee="exact")
    for (one, a), (two, b) in _pairs(brackets):
        if max(a.lower, b.lower) > min(a.upper, b.upper) + 2e-15:
            yield f"{one} [{a.lower!r}, {a.upper!r}] and {two} [{b.lower!r}, {b.upper!r}] are disjoint"
    if thorough and rng.random() < 0.25:
        yield from _witnesses(p, truth, doubt, brackets, counts)


def _pairs(brackets: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    items = [item for item in brackets.items() if item[0] != "exact, not"]
    for i, one in enumerate(items):
        for two in items[:i]:
            yield two, one


def _witnesses(p: Problem, truth: Any, doubt: float, brackets: dict[str, Any], counts: Counter[str]) -> Iterator[str]:
    counts["witness searches"] += 1
    try:
        found = rs.witness(p.net, p.law, p.text, 2, budget="0.3s", rng=p.seed)
    except rs.InputError as error:
        counts[f"refused: {str(error)[:60]}"] += 1
        return
    low, high = p.law.support()
    for w in found:
        counts["witnesses"] += 1
        if not holds(p.formula, Exact(p.net).at(tuple(Fraction(float(v)) for v in w.x))):
            yield f"witness {w!r} is not in the event"
        if (w.x < low).any() or (w.x > high).any():
            yield f"witness {w!r} is not in the law's support"
        thin = p.kind == "uniform" and truth < _THIN
        none = "exact" in brackets and brackets["exact"].upper == 0.0 and not thin
        if none and w.margin > 1e-6 and linear(p.formula):
            yield f"witness {w!r}, but the probability is proved to be 0"
    if found.proved_empty:
        counts["proved empty"] += 1
        if truth - doubt > NEVER:
            yield f"proved_empty ({found.note}), but the probability is {mpmath.nstr(truth, 8)}"
        for name, answer in brackets.items():
            if name != "exact, not" and answer.lower > NEVER:
                yield f"proved_empty ({found.note}), but {name} says at least {answer.lower:.3g}"
