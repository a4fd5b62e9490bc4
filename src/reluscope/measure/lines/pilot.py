"""Which plan to take: a race of directions, a pilot that measures cost and variance, and how many lines each gets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reluscope import intervals
from reluscope._check import FloatArray, generator
from reluscope.measure.lines.directions import sources_of
from reluscope.measure.lines.plan import MOST_PILOTS, LinePlan, Settings, run_plan, single_forms
from reluscope.measure.points import LEAST_OWN, MORE_OWN, MOST_DIMENSIONS, aimed_points, aims_pay, warm_up_strata
from reluscope.measure.points import warm_up as warm_up_aimed
from reluscope.measure.shared import (
    MOST_POINTS,
    GaussianLines,
    Job,
    Tally,
    Tracer,
)
from reluscope.pace import cpu_now, now

if TYPE_CHECKING:
    from reluscope.inputs import Component, Law


_RACE_LINES = 32
_PILOT_BLOCKS = 8
_SCRAMBLES = 16
_PILOT_SHARE = 0.03
_LONGEST_PILOT = 2.0
_SHORTER = ((1e-4, 6.0), (1e-6, 7.0))
"""How long lines must be for probabilities from so much on: less than 3e-5 of them is beyond."""
_TOO_FEW = 160
_SURELY_MET = 8.0
_DISAGREE = 4.0
_FEW = {"lines": 24.0, "aimed": 4.0, "points": 1.0}
_COMMON, _FAR_BEHIND = 0.02, 1.8
_LINE_SLOPE, _POINT_SLOPE = 0.8, 0.45
"""Over so many dimensions d the variance of Sobol sums usually falls as n^-(1 + this / sqrt(d))."""
_PILOTS_SHARE = 0.25
"""Share of the time after which further components follow the heaviest without a pilot of their own."""
_SEARCH_SHARE = 0.1
_SHORTEST_SEARCH = 0.02
"""Seconds below which a search for what is rare is not begun."""
_SMALLEST_SAMPLE = 4


def make_plans(components: list[Component], settings: Settings, rng: np.random.Generator) -> list[LinePlan]:
    """One plan per component. With many components only the heaviest are piloted; the others follow their lead."""
    order = np.argsort([-c.weight for c in components], kind="stable").tolist()
    plans: dict[int, LinePlan] = {}
    begin = now()
    for rank, k in enumerate(order):
        late = not settings.fixed and now() - begin > _PILOTS_SHARE * settings.seconds
        if rank == 0 or (rank < MOST_PILOTS and not late):
            plans[k] = _plan(components[k], settings, rng, settings.seconds / min(len(components), MOST_PILOTS))
        else:
            plans[k] = _follower(plans[order[0]], components[k], settings, rng, late)
    return [plans[k] for k in range(len(components))]


def _follower(
    lead: LinePlan, component: Component, settings: Settings, rng: np.random.Generator, late: bool
) -> LinePlan:
    """The plan of the lead for another component: with a direction of its own, if there is time to look for one."""
    same = component.kind == lead.component.kind == "gaussian" and component.r == lead.component.r
    source = lead.source if late and same else sources_of(component, settings, rng, single=True)[0]

    def led(plan: LinePlan) -> LinePlan:
        # Points that are aimed are aimed at the lead's part of the event: others take plain ones.
        method = "points" if plan.method == "aimed" else plan.method
        own = replace(plan, component=component, source=source, method=method)
        return replace(own, tracer=None, quick=None, aimed=None, sharp=None)

    return replace(led(lead), sharp=None if lead.sharp is None else led(lead.sharp))


def _plan(component: Component, settings: Settings, rng: np.random.Generator, seconds: float) -> LinePlan:
    """Race all directions on few lines, then the best two and points on more, and take the best for `seconds`."""
    sources = sources_of(component, settings, rng, single=False)
    tracer = Tracer(component.network, settings.job.forms, reach=component.reach())
    share = min(_PILOT_SHARE * seconds, _LONGEST_PILOT)
    points = LinePlan(component, sources[0], "points", settings.job, tracer)
    points = replace(points, quick=single_forms(points))
    if settings.method == "points":
        return _shared(points, settings, rng) if settings.fixed else _measured(points, settings, rng, share)
    if settings.method == "aimed":
        known = _measured(points, settings, rng, share)
        aimed = _aimed(known, settings, rng, np.inf if settings.fixed else seconds)
        return known if aimed is None else _measured(aimed, settings, rng, share)
    runners = [LinePlan(component, source, "lines", settings.job, tracer) for source in sources]
    if settings.fixed:
        free = isinstance(settings.direction, str) and settings.direction == "auto"
        return _shared(runners[-1] if free else runners[0], settings, rng)
    fallback = settings.method == "auto" and not (settings.job.density or settings.job.atom_forms)
    # Time of the shortest pilot. Where even that is long, fewer directions are tried, or none. The better of two: one
    # interruption must not decide.
    shortest = _SCRAMBLES * min(run_plan(runners[0], _PILOT_BLOCKS, 1, rng, 0).seconds for _ in range(2))
    if fallback and shortest > 2 * share:
        return _measured(points, settings, rng, 0.0)
    runners = runners[: max(1, int(2 * share / max(shortest, 1e-9)))]
    if len(runners) > 2:
        raced = [_measured(runners[0], settings, rng, 0.0)]
        if fallback:
            quick = _measured(points, settings, rng, 0.0)
            if _hopeless(raced[0], quick, seconds, settings):
                return _measured(points, settings, rng, share)
        raced += [_measured(plan, settings, rng, 0.0) for plan in runners[1:]]
        runners = [_shortened(plan) for plan in _ranked(raced, seconds, settings)[:2]]
        # Few lines meet what is rare: it takes more of them to tell.
        share *= 2.0 if _rarest(runners[0]) < _COMMON else 1.0
    plans = [_measured(plan, settings, rng, share) for plan in runners]
    if fallback:
        plans.append(_measured(points, settings, rng, share))
        aimed = _aimed(plans[-1], settings, rng, seconds)
        if aimed is not None:
            plans.append(_measured(aimed, settings, rng, share))
    best = _ranked(plans, seconds, settings)[0]
    if settings.interval != "finite-sample":
        return best
    # What suits independent draws need not suit Sobol points, which give the value.
    return replace(best, sharp=_ranked(plans, seconds, replace(settings, interval="block"))[0])


def _shared(plan: LinePlan, settings: Settings, rng: np.random.Generator) -> LinePlan:
    """The plan for a given number of lines, with a pilot where components share them and the pilot is the smaller."""
    pilots = _SCRAMBLES * _PILOT_BLOCKS * min(settings.components, MOST_PILOTS)
    if not settings.shared or (settings.lines or 0) < pilots:
        return plan
    return _measured(plan, settings, rng, 0.0)


def _aimed(points: LinePlan, settings: Settings, rng: np.random.Generator, seconds: float) -> LinePlan | None:
    """A plan of points aimed at what is rare, by what a pilot of plain points has shown; None where it cannot pay."""
    component, job = points.component, settings.job
    frame, k = points.source.turn, job.n_levels
    independent = settings.interval == "finite-sample"
    # Numbers of several components, each of its own rarer side, have no common bounds.
    if frame is None or component.r > MOST_DIMENSIONS or settings.many or (independent and settings.shared):
        return None
    chance = np.where(points.common, 1.0 - points.rare, points.rare)
    below, events = chance[:k], chance[k : k + job.rows.count]
    limit = _SEARCH_SHARE * seconds
    if limit < _SHORTEST_SEARCH or not aims_pay(job, below, events):
        return None
    started = cpu_now()
    aimed = aimed_points(
        component.network, job, frame, below, events, rng, lambda part: cpu_now() - started > part * limit,
        MORE_OWN if independent else LEAST_OWN,
    )  # fmt: skip
    return None if aimed is None else replace(points, method="aimed", aimed=aimed)


def _hopeless(lines: LinePlan, points: LinePlan, seconds: float, settings: Settings) -> bool:
    """Whether lines are so far behind points, on nothing rare, that other directions need not be tried."""
    ours, theirs = lines.predicted(seconds, settings), points.predicted(seconds, settings)
    live = (ours > 0) & (theirs > 0)
    return (
        _rarest(points) > _COMMON and bool(live.any()) and float(np.log(ours[live] / theirs[live]).mean()) > _FAR_BEHIND
    )


def _rarest(plan: LinePlan) -> float:
    """The least probability among all levels, events and their complements."""
    return float(np.nanmin(plan.rare, initial=0.5))


def _shortened(plan: LinePlan) -> LinePlan:
    """The plan with lines that end where nothing is left that would matter beside the rarest level or event."""
    if not isinstance(plan.source, GaussianLines):
        return plan
    reach = next((reach for least, reach in _SHORTER if _rarest(plan) >= least), None)
    return plan if reach is None else replace(plan, source=plan.source.within(reach))


def _measured(plan: LinePlan, settings: Settings, rng: np.random.Generator, seconds: float) -> LinePlan:
    """The plan with its cost, variances and slope from a pilot of about `seconds` (at least a few lines a scramble).

    Each scramble is cut into blocks: how much less its mean varies than that of a block gives the slope, of which half
    is believed; the other half is what such integrands usually do.
    """
    scrambles = _SCRAMBLES
    n = _PILOT_BLOCKS if plan.method == "lines" and not settings.fixed else 8 * _RACE_LINES
    if settings.fixed and settings.shared:  # no more than the run itself
        each = int(settings.lines or 1) // (scrambles * min(settings.components, MOST_PILOTS))
        n = int(np.clip(1 << max(each.bit_length() - 1, 0), _PILOT_BLOCKS, n))
    before, seconds_before = 0, 0.0
    while True:
        tally = run_plan(plan, n * scrambles, scrambles * _PILOT_BLOCKS, rng, _PILOT_BLOCKS)
        cost = max(tally.seconds, 1e-7) / (n * scrambles)
        wanted = max(seconds, min(_RACE_LINES * scrambles * cost, 0.01 * settings.seconds))
        if cost * n * scrambles >= 0.4 * wanted or settings.fixed:
            break
        before, seconds_before = n, tally.seconds
        n = int(2 ** np.floor(np.log2(min(wanted / (cost * scrambles), 16 * n))))
    if before and n > before:
        # What every block costs, however short, is no part of a long run.
        cost = float(np.clip((tally.seconds - seconds_before) / ((n - before) * scrambles), 0.4 * cost, cost))
    count = n * scrambles
    names = [k for k in ("below", "events", "first", "marginals") if k in tally.total]
    found = [_rarer(tally, k, count) for k in names]
    rows, square, met, common = (
        (np.concatenate(part, axis=-1) for part in zip(*found, strict=True))
        if found
        else (np.zeros((scrambles * _PILOT_BLOCKS, 0)), *np.zeros((2, 0)), np.zeros(0, bool))
    )
    whole = rows.reshape(scrambles, _PILOT_BLOCKS, -1).mean(axis=1).var(axis=0, ddof=1)
    small = rows.var(axis=0, ddof=1)
    live = (whole > 0) & (small > 0)
    by_lines = plan.method == "lines"
    dimensions = plan.source.dimensions if by_lines else plan.source.point_dimensions
    usual = min(1.0 + (_LINE_SLOPE if by_lines else _POINT_SLOPE) / np.sqrt(max(dimensions, 1)), 2.0)
    slope = usual
    if live.any():
        seen = float(np.log(small[live] / whole[live]).mean() / np.log(_PILOT_BLOCKS))
        slope = float(np.clip(0.5 * (seen + usual), 1.0, 2.0))
    mean = rows.mean(axis=0)
    single = np.maximum(square / count - mean**2, 0.0)
    if tally.hidden:
        hidden = np.concatenate([tally.hidden[name] for name in names])
        whole, single = whole + hidden / n, single + hidden
    k = settings.job.n_levels + settings.job.rows.count
    rare = np.append(mean[:k], np.full(len(mean) - k, np.nan))
    span = 1.0 if plan.aimed is None else tally.largest
    return replace(
        plan, n=n, cost=cost, variance=whole, slope=slope, single=single, rare=rare, common=common, met=met, span=span
    )


def _rarer(tally: Tally, name: str, count: int) -> tuple[FloatArray, FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """One kind of quantity on its rarer side: means by block, sums of squares, how many lines they rest on, and whether
    the rarer side is the complement.

    The number of lines is the sum of squares over the largest one; unlimited for moments.
    """
    rows = tally.means()[name]
    rows = rows.reshape(len(rows), -1)
    square, most, least = (kept[name].ravel() for kept in (tally.square, tally.most, tally.least))
    if name == "first":
        return rows, square, np.full(len(square), np.inf), np.zeros(len(square), bool)
    total = tally.total[name].sum(axis=0).ravel()
    common = total > 0.5 * count
    if name == "below":  # the other side is summed too, and knows what is too small beside 1
        others = tally.means()["above"], tally.square["above"], tally.most["above"]
    else:
        others = 1.0 - rows, count - 2.0 * total + square, 1.0 - least
    rows, square, most = (np.where(common, b, a) for a, b in zip((rows, square, most), others, strict=True))
    met = np.where(most > 0.0, square / np.maximum(most, 1e-150) ** 2, 0.0)
    return rows, square, met, common


def _ranked(plans: list[LinePlan], seconds: float, settings: Settings) -> list[LinePlan]:
    """Best first: by the mean logarithm of the predicted variances.

    Few lines show less than their true variance, because seldom ones contribute most. So a variance that rests on few
    of them is raised, and counts as no less than such a share of that of plain points (of the largest, where there are
    none) as few lines can tell: a millionth if all contribute alike, all of it if it rests on a single line or none. A
    short pilot counts against lines. Points contribute all alike, so a few of them tell enough.
    """
    predicted = np.array([p.predicted(seconds, settings) for p in _doubted(plans)])
    if not predicted.shape[1]:
        return plans
    met = np.maximum([p.met for p in plans], 1e-3)
    few = np.array([[_FEW[p.method]] for p in plans])
    predicted *= 1.0 + (few / met) ** 3
    plain = [i for i, p in enumerate(plans) if p.method == "points"]
    measure = predicted[plain[0]] if plain else predicted.max(axis=0)
    live = measure > 0
    if not live.any():
        # Nothing was met, or nothing varies: what the interval allows for the unmet falls with their number.
        return sorted(plans, key=lambda p: p.span * p.cost) if plain else plans
    least = np.clip(np.where(met > 1.5, (few / (6.0 * met)) ** 2, 1.0), 1e-5, 1.0)
    least = np.where([p.alike for p in plans], 1e-6, least)
    share = np.maximum(predicted[:, live] / measure[live], least[:, live])
    scores = np.log(share).mean(axis=1)
    scores += [np.log1p(_TOO_FEW / p.n) if p.method == "lines" else 0.0 for p in plans]
    return [plans[i] for i in np.argsort(scores, kind="stable")]


def _doubted(plans: list[LinePlan]) -> list[LinePlan]:
    """The plans, with more variance where one may have missed mass that another has found.

    A rare set that few lines meet looks small and certain to them. A plan that sees clearly less of it than another (by
    more than four standard errors of the difference) has its variances raised by the square of the difference. Plain
    points contribute 0 or 1, so what another plan finds, and few of them have met, tells their variance.
    """
    out = []
    for plan in plans:
        worst = np.zeros_like(plan.rare)
        for other in plans:
            seen, error = other.rare, np.sqrt((plan.variance + other.variance) / _SCRAMBLES)
            missed = np.where(seen - plan.rare > _DISAGREE * error, seen - plan.rare, 0.0)
            worst = np.maximum(worst, missed * missed)
            if plan.method == "points":
                worst = np.maximum(worst, np.where(plan.met < _SURELY_MET, seen * (1.0 - seen) / plan.n, 0.0))
        out.append(replace(plan, variance=plan.variance + worst, single=plan.single + worst * plan.n))
    return out


def sizes_of(
    plans: list[LinePlan],
    lines: int | None,
    tolerance: float | None,
    level: float,
    seconds: float,
    settings: Settings,
) -> tuple[list[int], str]:
    """Lines (or points) for each component, over all groups, decided before the run; `seconds` of CPU are left."""
    weight = np.array([p.component.weight for p in plans])
    spread = np.array([float(np.sqrt(p.variance.max(initial=0.0) * max(p.n, 1))) for p in plans])
    spread = np.where(spread > 0, spread, spread.max(initial=0.0) or 1.0)
    cost = np.array([p.cost for p in plans])
    groups = settings.replicates
    if lines is not None:
        share = weight * spread / (weight * spread).sum()
        return [max(1, round(lines * s / groups)) * groups for s in share], ""
    effort = weight * spread / np.sqrt(cost)
    scale = max(seconds, 1e-3) / (effort * cost).sum()
    note = ""
    if tolerance is not None:
        independent = settings.interval == "finite-sample"
        counted = not independent or all(p.method == "points" for p in plans)
        wide = intervals.normal_quantile(level) if counted else np.sqrt(2.0 * np.log(4.4 / (1.0 - level)))

        def half(factor: float) -> float:
            """Expected half width, with a margin for the pilot's own noise."""
            parts = [(w, factor * e, p) for w, e, p in zip(weight, effort, plans, strict=True)]
            variance = sum(w * w * p.spread_of(n, settings) for w, n, p in parts)
            return float(wide * np.sqrt(1.5 * variance)) + max(w * p.unmet(n, level, settings) for w, n, p in parts)

        if half(scale) > tolerance:
            note = f"the budget ends before the tolerance of {tolerance:g} is expected to be reached"
        else:
            low, high = 0.0, scale
            for _ in range(60):
                middle = 0.5 * (low + high)
                low, high = (low, middle) if half(middle) <= tolerance else (middle, high)
            scale = high
    return [_even(scale * e / groups) * groups for e in effort], note


def sharp_sizes(plans: list[LinePlan], level: float, seconds: float, settings: Settings) -> list[int]:
    """Points of the scrambled sequences that give the value beside a finite-sample interval."""
    sizes, _ = sizes_of(plans, None, None, level, seconds, replace(settings, interval="block"))
    return [min(size, MOST_POINTS) for size in sizes]


def expected_of(plans: list[LinePlan], job: Job) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Mean and variance of a draw of the mixture, for levels and events, as far as pilots tell."""
    if any(plan.n == 0 for plan in plans):
        return {}
    weight = np.array([plan.component.weight for plan in plans])
    weight /= weight.sum()
    first, second = np.zeros((2, job.n_levels + job.rows.count))
    for w, plan in zip(weight, plans, strict=True):
        k = len(first)
        mean = np.where(plan.common[:k], 1.0 - plan.rare[:k], plan.rare[:k])
        first += w * mean
        second += w * (plan.single[:k] + mean * mean)
    variance = np.maximum(second - first * first, 0.0)
    below, events = slice(0, job.n_levels), slice(job.n_levels, None)
    return {
        "below": (first[below], variance[below]),
        "above": (1.0 - first[below], variance[below]),
        "events": (first[events], variance[events]),
    }


def half_width_of(plans: list[LinePlan], seconds: float, settings: Settings) -> float:
    """About the widest finite-sample half-width that the plans give after so many seconds of CPU."""
    known = expected_of(plans, settings.job)
    if not known:
        return np.inf
    weight = np.array([plan.component.weight for plan in plans])
    cost = float(weight @ [plan.cost for plan in plans] / weight.sum())
    variance = np.concatenate([known["below"][1], known["events"][1]])
    worst = max(plans, key=lambda plan: plan.span)
    pooled = replace(worst, single=variance, rare=np.full(len(variance), np.nan), cost=cost)
    return float(weight.sum() * np.sqrt(pooled.predicted(seconds, settings).max(initial=0.0)))


def _even(n: float) -> int:
    """A Sobol-friendly number of at most n: sixteen to 31 times a power of two."""
    n = max(int(n), _SMALLEST_SAMPLE)
    unit = 1 << max(n.bit_length() - 5, 0)
    return n // unit * unit


def warm_up(component: Component, law: Law, job: Job, method: str) -> None:
    """Compile what will be needed before the budget's clock starts: compilation happens once and is kept on disk."""
    rng = generator(0)
    settings = Settings(law, job, "block", 2, method, "gradient", 1.0)
    source = sources_of(component, settings, rng, single=True, points=4)[0]
    tracer = Tracer(component.network, job.forms, reach=component.reach())
    if method in ("auto", "aimed"):
        warm_up_aimed()
        warm_up_strata()
    for kind in ("lines", "points"):
        if method in (kind, "auto") and not (kind == "points" and (job.density or job.atom_forms)):
            run_plan(LinePlan(component, source, kind, job, tracer), 2, 2, rng, 2)
