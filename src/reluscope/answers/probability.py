"""How likely an event is, with a guarantee: `probability(net, law, event)`.

    P(event) = sum over regions of the mass of each region's part in the event        ("exact")
             in [mass decided inside, 1 - mass decided outside]                       ("sound")
             = E[ share of a random line in the event ]                               ("confidence")

See `docs/events.md` for the language of events and for what each guarantee means and costs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reluscope import intervals
from reluscope._check import FloatArray, choice, describe, real, seeded
from reluscope._text import count, in_dimensions
from reluscope.answer import Answer, Status, status_of

# The engines are imported here and not where they are called: a budget pays for the work, not for first imports.
from reluscope.answers._event_mass import component_share
from reluscope.answers._nearest import known_inputs
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.events import Case, Event, PlacedEvent, as_event, place_parts
from reluscope.inputs import Law, check_law
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import all_exact, is_exact, not_exact
from reluscope.measure.lines import Request, integrate, segment_patterns
from reluscope.measure.rare import rare_probability
from reluscope.measure.sound import bound_event
from reluscope.network import Network
from reluscope.progress import meter

GUARANTEES = ("auto", "exact", "sound", "confidence")
INTERVALS = ("finite-sample", "replicate")

_SECONDS = 2.0
"""Time for an estimate when neither budget nor tolerance is given."""

_LONGEST = 60.0
"""Time for an estimate when only a tolerance is given."""

_TRY = 10.0
"""Seconds that `auto` gives to enumeration before it turns to estimates (half the budget when there is one)."""

_RARE = 2e-3
"""Below this, estimates come from the rare-event engine."""

_RELATIVE = 0.1
"""Half-width wanted for rare events, as a share of the value."""

_SOUND_SECONDS = 60.0
"""Time for a sound bracket given a box, without a budget."""

_QUICK, _LAST = 0.5, 5.0
"""Seconds that `auto` gives to a proof before and after sampling an event that nothing meets."""

_NOTHING = 1e-290
"""Sound brackets that end here or below say that the event never happens where a Gaussian has any mass."""

_PILOT_LINES = 4096
_POINTS_AT_ONCE = 1 << 15


def probability(
    net: Network,
    law: Law,
    event: Any,
    *,
    names: Any = None,
    interval: str | None = None,
    guarantee: str = "auto",
    tolerance: float | None = None,
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Answer:
    """`P(event)` for `y = net(x)`, x from `law`, with a bracket and a guarantee.

    Parameters
    ----------
    net : Network
    law : Law
        The distribution of the inputs.
    event : str, Event or pair (G, g)
        Text (`"y[0] > y[1] and x[2] <= 0.3"`, `"argmax != argmax at mean"`, `"J[0,3] < 0"`: see `event`), an `Event`
        (also that of a VNN-LIB file), or a pair meaning `G y <= g`.
    names : sequence of str, optional
        Names of the inputs for the text.
    interval : {"finite-sample", "replicate"}, optional
        Kind of the "confidence" bracket. The first holds with probability `level` at any sample size; the second is
        narrower and asymptotic (Student's t over independent scrambles). The default is the first, and for rare events
        the second; `note` names the kind.
    guarantee : {"auto", "exact", "sound", "confidence"}
        See Notes.
    tolerance : float, optional
        Half-width of the bracket wanted.
    level : float
        Confidence level of estimates.
    budget : optional
        A time (`"60s"`) or a number of regions.
    rng : optional
        None, an int, a SeedSequence or a Generator. The same `rng` and the same amount of work give the same answer.
    progress : optional
        Where to report progress.

    Returns
    -------
    Answer

    Raises
    ------
    InputError
        If an argument does not fit the network, or the guarantee cannot be given for this law or event.

    Notes
    -----
    - "exact": the regions that can meet the event are enumerated and measured; the bracket bounds rounding. For laws
      that the network and the event see in at most three dimensions (six for uniform laws), and particles. A budget
      that ends early gives a sound bracket of what was decided.
    - "sound": linear bounds and branch and bound; a bracket that always holds, in any dimension, as narrow as
      `tolerance` asks and `budget` allows. Events on the Jacobian or on units are enumerated as for "exact" where
      that is possible, else an `InputError`.
    - "confidence": integration along random lines, or the rare-event engine when the probability is below 0.002.
    - "auto": exact where it is possible and finishes, else confidence; where sampling meets nothing, the sound bracket
      if that is narrower. `note` says which and why.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, probability
    >>> net = Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], None)])
    >>> answer = probability(net, Gaussian([0.0]), "y > 2")
    >>> round(answer.value, 6), answer.guarantee
    (0.0455, 'exact')
    """
    started = time.perf_counter()
    net, found = _checked(net, law, event, names)
    choice(guarantee, "guarantee", GUARANTEES)
    if interval is not None:
        choice(interval, "interval", INTERVALS)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    if tolerance is not None:
        tolerance = real(tolerance, "tolerance", low=0.0, high=1.0, open_=True)
    limit, (rng, seed) = parse_budget(budget), seeded(rng)
    if not found.cases:
        return Answer(0.0, 0.0, 0.0, "exact", method="the event can never happen", evaluations=0, seconds=0.0)
    if guarantee == "exact":
        answer = _exact(place_parts(net, law, found), tolerance, limit, progress)
    elif guarantee == "sound":
        answer = _sound(net, law, found, tolerance, limit, progress)
    elif guarantee == "confidence":
        answer = estimated(net, law, found, tolerance, limit, level, interval, rng)
    else:
        answer = _auto(net, law, found, tolerance, limit, level, interval, rng, progress)
    drawn = guarantee in ("auto", "confidence") and answer.guarantee != "exact"
    if tolerance is not None and answer.status is Status.DONE and answer.width > 2.0 * tolerance:
        answer = replace(answer, status=Status.TOLERANCE)
    return replace(answer, seconds=time.perf_counter() - started, seed=seed if drawn else None)


def _checked(net: Any, law: Law, event: Any, names: Any = None) -> tuple[Network, Event]:
    if not isinstance(net, Network):
        raise InputError(f"net must be a Network, got {describe(net)}; reluscope.load makes one from a model")
    check_law(law, net)
    return net, as_event(event, net, law, names=names)


# -- exact ---------------------------------------------------------------------------------------------------------


def _exact(parts: Sequence[PlacedEvent], tolerance: float | None, limit: Budget, progress: Any) -> Answer:
    for part in parts:
        for component in part.components:
            if not is_exact(component):
                raise InputError(not_exact(component))
    value, lower, upper, visited = 0.0, 0.0, 0.0, 0
    stopped: str | None = None
    dimensions: set[int] = set()
    with meter(progress, "regions in the event") as report:
        for part in parts:
            for c in part.components:
                weight = part.mass * c.weight
                done, before = value, visited

                def show(cells: int, share: float, w: float = weight, v: float = done, n: int = before) -> None:
                    report(n + cells, f"{n + cells:,} regions, {v + w * share:.4g} so far")

                allowed = None if tolerance is None else tolerance / len(part.components)
                share = component_share(c, part, limit, tolerance=allowed, report=show)
                value += weight * share.value
                lower += part.lower * c.weight * max(share.value - share.error, 0.0)
                upper += part.upper * c.weight * min(share.value + share.error + share.left, 1.0)
                visited += share.visited
                stopped = stopped or share.stopped
                dimensions.add(0 if c.kind == "point" else c.r)
    method = f"{count(visited, 'region')} measured or ruled out in {in_dimensions(dimensions)}"
    lower, upper = max(lower * (1 - 1e-15), 0.0), min(upper * (1 + 1e-15), 1.0)
    if stopped is not None:
        # The best guess: what is left holds the same share as what was decided.
        decided = 1.0 - (upper - lower)
        guess = min(max(lower / decided if decided > 0 else 0.5 * (lower + upper), lower), upper)
        return Answer(
            guess,
            lower,
            upper,
            "sound",
            None,
            method,
            f"{stopped}; the rest may be in or out",
            visited,
            status=status_of(stopped),
        )
    return Answer(min(value, 1.0), min(lower, value), max(upper, value), "exact", None, method, "", visited)


# -- sound ---------------------------------------------------------------------------------------------------------


def _sound(net: Network, law: Law, event: Event, tolerance: float | None, limit: Budget, progress: Any) -> Answer:
    if not event.linear:
        parts = place_parts(net, law, event)
        if all(all_exact(part.components) for part in parts):
            found = _exact(parts, tolerance, limit, progress)
            why = "the event is on the function itself: enumerated, rounding bounded by estimates"
            return replace(found, note=f"{why}; {found.note}" if found.note else why)
        raise InputError(
            "guarantee='sound' is for events on inputs and outputs; one on the Jacobian or on units is answered by "
            "'exact' (few dimensions) or 'confidence'"
        )
    if law.unrestricted is not law and not law.independent_inputs:
        return _sound_given_box(net, law, event, tolerance, limit, progress)
    # Without any limit the engine's own default applies.
    budget = limit if np.isfinite(min(limit.seconds, limit.regions)) else None
    return bound_event(net, law, event, tolerance=tolerance, budget=budget, progress=progress)


def _sound_given_box(
    net: Network, law: Law, event: Event, tolerance: float | None, limit: Budget, progress: Any
) -> Answer:
    """`P(event | box) = P(event and box) / P(box)`, both bracketed under the Gaussian before its restriction."""
    n = net.n_inputs
    cases = []
    before, sides = law.unrestricted, law.support()
    for c in event.cases:
        low, high = np.maximum(c.lower, sides[0]), np.minimum(c.upper, sides[1])
        if (low <= high).all():
            cases.append(replace(c, lower=low, upper=high))
    if not cases:
        return Answer(0.0, 0.0, 0.0, "sound", method="the law never meets the event", evaluations=0)
    seconds = limit.seconds if np.isfinite(limit.seconds) else _SOUND_SECONDS
    still = max(seconds - limit.elapsed(), 0.0)
    share = None if tolerance is None else 0.1 * tolerance
    # The box alone needs no network and is the quicker one; a tenth of the tolerance is its share.
    flat = Network([(np.eye(n), np.zeros(n))])
    no_rows = np.zeros((0, n))
    box = Event("box", n, n, (Case(*sides, no_rows, no_rows, np.zeros(0), np.zeros(0, bool)),))
    whole = bound_event(flat, before, box, tolerance=share, budget=Budget(0.4 * still, limit.regions))
    if not whole.lower > 0.0:
        note = "the mass of the law's box has no positive lower bound yet; more budget may help"
        return Answer(
            0.5, 0.0, 1.0, "sound", method=whole.method, note=note, evaluations=whole.evaluations, status=Status.BUDGET
        )
    wanted = None if tolerance is None else 0.8 * tolerance * whole.lower
    rest = Budget(max(seconds - limit.elapsed(), 0.1 * seconds), limit.regions)
    inside = replace(event, cases=tuple(cases))
    part = bound_event(net, before, inside, tolerance=wanted, budget=rest, progress=progress)
    lower, upper = part.lower / whole.upper * (1 - 1e-15), min(part.upper / whole.lower * (1 + 1e-15), 1.0)
    work = (part.evaluations or 0) + (whole.evaluations or 0)
    method = f"{part.method}: event and box over box, whose mass is in [{whole.lower:.6g}, {whole.upper:.6g}]"
    note = "; ".join(filter(None, [part.note, whole.note]))
    late = whole.status if part.status is Status.DONE else part.status
    return Answer(0.5 * (lower + upper), lower, upper, "sound", method=method, note=note, evaluations=work, status=late)


# -- confidence ----------------------------------------------------------------------------------------------------


def estimated(
    net: Network,
    law: Law,
    event: Event,
    tolerance: float | None,
    limit: Budget,
    level: float,
    interval: str | None,
    rng: np.random.Generator,
    *,
    proof: bool = False,
) -> Answer:
    """`P(event)` with a confidence interval: lines, the rare-event engine, or points.

    With `proof`, an event that nothing meets is also given to the sound engine, whose bracket is taken if it is better.
    """
    whole = limit.seconds
    if not np.isfinite(whole):
        whole = _SECONDS if tolerance is None else _LONGEST
    ends = Budget(max(whole - limit.elapsed(), 0.05 * whole), whole=whole)
    pilot, main = rng.spawn(2)
    parts = place_parts(net, law, event)
    rough = _rough_if_rare(parts, pilot, 0.15 * whole) if event.linear else None
    if rough is not None:
        quick = _proved(net, law, event, tolerance, Budget(min(0.1 * whole, _QUICK))) if proof and not rough else None
        if quick is not None and quick.upper <= _NOTHING:
            return replace(quick, note=f"sound: nothing was met by sampling; {quick.note}")
        if quick is not None:  # the proof needs its time as well
            ends = ends.part(0.6)
        found = _rare(net, law, event, rough, tolerance, ends, level, interval, main)
        if proof and found.lower == 0.0 and found.guarantee != "exact":
            left = limit.seconds - limit.elapsed() if np.isfinite(limit.seconds) else _LAST
            known = limit.seconds if np.isfinite(limit.seconds) else None
            better = _proved(net, law, event, tolerance, Budget(max(left, 0.1 * whole), whole=known))
            if better is not None and better.upper < found.upper:
                met = "nothing was met by sampling" if found.value == 0.0 else f"sampling saw about {found.value:.3g}"
                why = f"sound: {met}, the bracket is proved"
                return replace(better, note="; ".join(filter(None, [why, better.note])))
        return found
    seconds = max(ends.seconds - ends.elapsed(), 0.2 * whole, min(whole, 0.5))
    kind = interval or "finite-sample"
    each = 1.0 - (1.0 - level) / max(len(parts), 1)
    answers = []
    for part in parts:
        share = seconds / len(parts)
        wanted = None if tolerance is None else tolerance / (part.mass * len(parts))
        answers.append((part, _part_estimate(part, wanted, share, each, kind, main.spawn(1)[0])))
    return _added(answers, level)


def _proved(net: Network, law: Law, event: Event, tolerance: float | None, limit: Budget) -> Answer | None:
    """The sound bracket found within a budget; None where the engine does not serve the network or the law."""
    try:
        found = _sound(net, law, event, tolerance, limit, None)
    except InputError:
        return None
    if found.upper > _NOTHING:
        return found
    return replace(found, note="every box where the law has mass is proved to miss the event")


def _added(answers: Sequence[tuple[PlacedEvent, Answer]], level: float) -> Answer:
    """The parts' answers as one."""
    if not answers:
        return Answer(0.0, 0.0, 0.0, "exact", method="the law never meets the event", evaluations=0)
    value = sum(p.mass * a.value for p, a in answers)
    lower = max(sum(p.lower * a.lower for p, a in answers), 0.0)
    upper = min(sum(p.upper * a.upper for p, a in answers), 1.0)
    first = answers[0][1]
    exact = all(a.guarantee == "exact" for _, a in answers)
    method = first.method if len(answers) == 1 else f"{len(answers)} boxes, each: {first.method}"
    work = sum(a.evaluations or 0 for _, a in answers)
    kind = "exact" if exact else "confidence"
    known = None if exact else level
    late = next((a.status for _, a in answers if a.status is not Status.DONE), Status.DONE)
    return Answer(value, min(lower, value), max(upper, value), kind, known, method, first.note, work, status=late)


def _part_estimate(
    part: PlacedEvent, tolerance: float | None, seconds: float, level: float, interval: str, rng: np.random.Generator
) -> Answer:
    if not part.n_cases:
        return Answer(0.0, 0.0, 0.0, "exact", method="the law never meets the event", evaluations=0)
    if part.everything:
        return Answer(1.0, 1.0, 1.0, "exact", method="the event always happens", evaluations=0)
    if part.event.linear:
        return _by_lines(part, tolerance, seconds, level, interval, rng)
    if interval == "replicate" and not part.G.any():
        return _by_segments(part, seconds, level, rng)
    return _by_points(part, tolerance, seconds, level, rng)


def _by_lines(
    part: PlacedEvent, tolerance: float | None, seconds: float, level: float, interval: str, rng: np.random.Generator
) -> Answer:
    """By lines, or the points that the line engine takes instead."""
    request = Request(events=(part,))
    found = integrate(
        part.net, part.law, request, budget=seconds, tolerance=tolerance, interval=interval, level=level, rng=rng
    )
    assert found.events is not None
    value, lower, upper = (float(a[0]) for a in (found.events.value, found.events.lower, found.events.upper))
    exact = found.interval == "exact"
    kind, known = "exact" if exact else "confidence", None if exact else level
    note = "" if exact else f"{found.interval} interval"
    low, high = max(lower, 0.0), min(upper, 1.0)
    return Answer(value, min(low, value), max(high, value), kind, known, found.how, note, found.lines)


def _by_segments(part: PlacedEvent, seconds: float, level: float, rng: np.random.Generator) -> Answer:
    """An event on the affine function alone: the share of random lines on which it holds, in 16 independent groups."""
    groups, per = 16, 64
    seeds = rng.spawn(groups + 1)

    def group(lines: int, seed: np.random.Generator) -> float:
        total = 0.0
        for weight, _, mass, pattern in segment_patterns(part.network, part.law, lines, direction="gradient", rng=seed):
            total += weight * float(
                mass @ part.contains(np.zeros((len(pattern), part.G.shape[1])), part.features(pattern))
            )
        return total

    group(16, np.random.default_rng(0))  # compile
    begin = time.perf_counter()
    group(per, seeds[-1])
    cost = (time.perf_counter() - begin) / per
    per = int(max(per, min(seconds / groups / max(cost, 1e-9), 1 << 16)))
    values = np.array([group(per, s) for s in seeds[:groups]])
    mean, half = intervals.student(values, level)
    if half == 0.0:  # all groups agree: nothing seen, or nothing else
        half = 3.0 / (groups * per)
    method = f"{groups * per:,} lines, direction gradient"
    low, high = float(max(mean - half, 0.0)), float(min(mean + half, 1.0))
    return Answer(float(mean), low, high, "confidence", level, method, "replicate interval", groups * per)


def _by_points(
    part: PlacedEvent, tolerance: float | None, seconds: float, level: float, rng: np.random.Generator
) -> Answer:
    """Independent draws, their number fixed after a timed pilot; the exact binomial interval."""
    net, law, event = part.net, part.law, part.event
    if law.atoms is not None:
        points, weights = law.atoms
        value = float(weights[event.holds(net, points)].sum())
        method = f"{len(points):,} particles"
        return Answer(value, value * (1 - 1e-14), min(value * (1 + 1e-14), 1.0), "exact", None, method, "", len(points))
    scout, main = rng.spawn(2)
    event.holds(net, law.sample(64, scout))
    begin = time.perf_counter()
    share = float(np.mean(event.holds(net, law.sample(4096, scout))))
    cost = (time.perf_counter() - begin) / 4096
    n = int(np.clip(0.9 * seconds / max(cost, 1e-9), 1024, 1 << 30))
    if tolerance is not None:
        spread = max(share * (1 - share), 1e-3)
        n = int(np.clip(1.2 * 4.0 * spread / tolerance**2 * (1 + abs(np.log(1 - level))), 1024, n))
    hits, left = 0, n
    while left:
        size = min(left, _POINTS_AT_ONCE)
        hits += int(event.holds(net, law.sample(size, main)).sum())
        left -= size
    low, high = intervals.binomial(hits, n, level)
    return Answer(hits / n, low, high, "confidence", level, f"{n:,} points", "finite-sample interval", n)


# -- rare events ---------------------------------------------------------------------------------------------------


def _rough_if_rare(parts: Sequence[PlacedEvent], rng: np.random.Generator, seconds: float) -> float | None:
    """A rough probability (possibly 0) when a short pilot finds the event, its box included, to be rare; else None."""
    total = 0.0
    for part in parts:
        if part.law.atoms is not None:
            return None
        if not part.n_cases:
            continue
        if part.everything:
            total += part.mass
        else:
            request = Request(events=(part,))
            first = Budget(seconds / len(parts))
            found = integrate(part.net, part.law, request, lines=_PILOT_LINES // 16, rng=rng)
            if found.interval != "exact" and first.elapsed() < first.seconds / 16:
                found = integrate(part.net, part.law, request, lines=_PILOT_LINES, rng=rng)
            assert found.events is not None
            if found.interval == "exact":
                return None
            total += part.mass * float(found.events.value[0])
        if total >= _RARE:
            return None
    return total if parts else None


def _rare(
    net: Network,
    law: Law,
    event: Event,
    rough: float,
    tolerance: float | None,
    ends: Budget,
    level: float,
    interval: str | None,
    rng: np.random.Generator,
) -> Answer:
    """By the rare-event engine, whose tolerance is relative to the value.

    When it meets nothing, inputs of the event are searched for by exact steps, and rays drawn around them.
    """
    relative = _RELATIVE if tolerance is None or rough <= 0 else min(max(tolerance / rough, 1e-3), _RELATIVE)

    def asked(share: float, starts: FloatArray | None) -> Answer:
        whole = ends.whole or ends.seconds
        # The first run is never starved by what came before, such as first imports.
        least = 0.05 * whole if starts is not None else max(0.2 * whole, min(whole, 0.5))
        left = max(ends.seconds - ends.elapsed(), least)

        def by(kind: str) -> Answer:
            return rare_probability(
                net,
                law,
                event,
                relative=relative,
                budget=Budget(share * left, whole=ends.whole),
                level=level,
                interval=kind,
                rng=rng,
                starts=starts,
            )

        found = by(interval or "replicate")
        if found.guarantee == "exact" or found.lower < found.upper:
            return found
        # Few replicates that all met nothing have no spread: that is no interval.
        try:
            return by("finite-sample")
        except InputError:  # no such interval for this law
            return replace(found, lower=0.0, upper=1.0, note="too few rays for an interval", status=Status.TOO_FEW)

    found = asked(1.0 if rough > 0 else 0.6, None)
    if found.value > 0.0 or found.guarantee == "exact":
        return found
    starts = known_inputs(net, law, event, Budget(0.4 * max(ends.seconds - ends.elapsed(), 0.05 * ends.seconds)), rng)
    if not len(starts):
        return found
    again = asked(0.9, starts)
    if again.value > 0.0:
        return again
    # The first run had more rays: its interval, and what the second one says.
    return replace(found, note=f"{found.note}; around known inputs: {again.note}")


# -- auto ----------------------------------------------------------------------------------------------------------


def _auto(
    net: Network,
    law: Law,
    event: Event,
    tolerance: float | None,
    limit: Budget,
    level: float,
    interval: str | None,
    rng: np.random.Generator,
    progress: Any,
) -> Answer:
    parts = place_parts(net, law, event)
    components = [c for part in parts for c in part.components]
    high = [c for c in components if not is_exact(c)]
    partial = None
    if not high:
        seconds = min(_TRY, 0.5 * limit.seconds)
        partial = _exact(parts, tolerance, Budget(seconds, limit.regions), progress)
        if partial.guarantee == "exact":
            points = any(c.kind == "point" for c in components)
            kind = "particles" if points else in_dimensions({c.r for c in components})
            return replace(partial, note=f"exact: {kind}, all regions that matter were measured")
        why = f"enumeration did not finish in {seconds:.3g} s ({count(partial.evaluations or 0, 'region')})"
    else:
        worst = max(high, key=lambda c: c.r)
        why = f"{worst.r} dimensions are too many for exact masses"
    found = estimated(net, law, event, tolerance, limit, level, interval, rng, proof=True)
    if found.guarantee == "sound":
        return found
    note = f"confidence: {why}" + (f"; {found.note}" if found.note else "")
    if partial is not None:  # what enumeration has decided holds for certain
        lower, upper = max(found.lower, partial.lower), min(found.upper, partial.upper)
        if lower <= upper:
            found = replace(found, value=min(max(found.value, lower), upper), lower=lower, upper=upper)
    return replace(found, note=note)
