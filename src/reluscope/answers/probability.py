"""How likely an event is, with a guarantee: `probability(net, law, event)`.

    P(event) = sum over cells of the mass of the cell's part in the event          ("exact")
             in [mass decided inside, 1 - mass decided outside]                     ("sound")
             = E[ share of a random line in the event ]                             ("confidence")

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
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.events.placed import Piece, Question, pieces, question
from reluscope.events.record import Event, as_event
from reluscope.inputs import Law
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import all_exact, is_exact, not_exact
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
    guarantee: str = "auto",
    *,
    tolerance: float | None = None,
    budget: Any = None,
    level: float = DEFAULT_LEVEL,
    interval: str | None = None,
    names: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Answer:
    """`P(event)` for `y = net(x)`, x from `law`, with a bracket and a guarantee.

    `event` is text (`"y[0] > y[1] and x[2] <= 0.3"`, `"argmax != argmax at mean"`, `"J[0,3] < 0"`: see `event`), an
    `Event`, a VNN-LIB property, or a pair `(G, g)` meaning `G y <= g`. `names` are names of the inputs for the text.

    `guarantee`:

    - "exact": the cells that can meet the event are enumerated and measured; the bracket bounds rounding. For laws that
      the network and the event see in at most three dimensions (six for uniform laws), and particles; otherwise an
      `InputError`. A budget that ends early gives a sound bracket of what was decided.
    - "sound": linear bounds and branch and bound; a bracket that always holds, in any dimension, as narrow as
      `tolerance` asks and `budget` allows (not for events on the Jacobian or on units).
    - "confidence": integration along random lines, or the rare-event engine when the probability is below 0.002. With
      `interval="finite-sample"` the bracket holds with probability `level` at any sample size; "replicate" is narrower
      and asymptotic (Student's t over independent scrambles). The default is the former, and for rare events the
      latter; `note` names the kind.
    - "auto": exact where it is possible and finishes, else confidence; where sampling meets nothing, the sound bracket
      if that is narrower. `note` says which and why.

    `tolerance` is the half-width of the bracket wanted, `budget` a time (`"60s"`) or a number of cells. The same `rng`
    and the same amount of work give the same answer.
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
        answer = _exact(net, law, found, tolerance, limit, progress)
    elif guarantee == "sound":
        answer = _sound(net, law, found, tolerance, limit, progress)
    elif guarantee == "confidence":
        answer = estimated(net, law, found, tolerance, limit, level, interval, rng)
    else:
        answer = _auto(net, law, found, tolerance, limit, level, interval, rng, progress)
    drawn = guarantee in ("auto", "confidence") and answer.guarantee != "exact"
    return replace(answer, seconds=time.perf_counter() - started, seed=seed if drawn else None)


def _checked(net: Any, law: Law, event: Any, names: Any = None) -> tuple[Network, Event]:
    from reluscope.inputs import check_law

    if not isinstance(net, Network):
        raise InputError(f"net must be a Network, got {describe(net)}; reluscope.load makes one from a model")
    check_law(law, net)
    return net, as_event(event, net, law, names=names)


# -- exact ---------------------------------------------------------------------------------------------------------


def _questions(net: Network, law: Law, event: Event) -> list[tuple[Piece, Question, tuple[Any, ...]]]:
    """Pieces of the law, the event on each, and the components in the coordinates that network and event see."""
    from reluscope.inputs import standard

    out = []
    for piece in pieces(law, event):
        asked = question(net, piece.law, piece.event)
        out.append((piece, asked, standard(piece.law, asked.network)))
    return out


def _exact(net: Network, law: Law, event: Event, tolerance: float | None, limit: Budget, progress: Any) -> Answer:
    from reluscope.answers._event_mass import component_share

    asked = _questions(net, law, event)
    for _, _, components in asked:
        for component in components:
            if not is_exact(component):
                raise InputError(not_exact(component))
    value, lower, upper, visited = 0.0, 0.0, 0.0, 0
    stopped: str | None = None
    dimensions: set[int] = set()
    with meter(progress, "cells in the event") as report:
        for piece, q, components in asked:
            for c in components:
                weight = piece.mass * c.weight
                done, before = value, visited

                def show(cells: int, share: float, w: float = weight, v: float = done, n: int = before) -> None:
                    report(n + cells, f"{n + cells:,} cells, {v + w * share:.4g} so far")

                allowed = None if tolerance is None else tolerance / len(components)
                share = component_share(c, q, limit, tolerance=allowed, report=show)
                value += weight * share.value
                lower += piece.lower * c.weight * max(share.value - share.error, 0.0)
                upper += piece.upper * c.weight * min(share.value + share.error + share.left, 1.0)
                visited += share.visited
                stopped = stopped or share.stopped
                dimensions.add(0 if c.kind == "point" else c.r)
    method = f"{count(visited, 'cell')} looked at in {in_dimensions(dimensions)}"
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
        asked = _questions(net, law, event)
        if all(all_exact(components) for _, _, components in asked):
            found = _exact(net, law, event, tolerance, limit, progress)
            why = "the event is on the function itself: enumerated, rounding bounded by estimates"
            return replace(found, note=f"{why}; {found.note}" if found.note else why)
        raise InputError(
            "guarantee='sound' is for events on inputs and outputs; one on the Jacobian or on units is answered by "
            "'exact' (few dimensions) or 'confidence'"
        )
    from reluscope.measure.sound import bound_event

    if law.unrestricted is not law and not law.independent_inputs:
        return _sound_given_box(net, law, event, tolerance, limit, progress)
    # Without any limit the engine's own default applies.
    budget = limit if np.isfinite(min(limit.seconds, limit.regions)) else None
    return bound_event(net, law, event.as_property, tolerance=tolerance, budget=budget, progress=progress)


def _sound_given_box(
    net: Network, law: Law, event: Event, tolerance: float | None, limit: Budget, progress: Any
) -> Answer:
    """`P(event | box) = P(event and box) / P(box)`, both bracketed under the Gaussian before its restriction."""
    from reluscope.formats.vnnlib import Case, Property
    from reluscope.measure.sound import bound_event

    n, m = net.n_inputs, net.n_outputs
    none: tuple[FloatArray, FloatArray, FloatArray, Any] = (
        np.zeros((0, n)), np.zeros((0, m)), np.zeros(0), np.zeros(0, bool)
    )  # fmt: skip
    cases = []
    before, sides = law.unrestricted, law.support()
    for c in event.cases:
        case = c.case
        low, high = np.maximum(case.lower, sides[0]), np.minimum(case.upper, sides[1])
        if (low <= high).all():
            cases.append(Case(low, high, case.A, case.G, case.g, case.strict))
    if not cases:
        return Answer(0.0, 0.0, 0.0, "sound", method="the law never meets the event", evaluations=0)
    seconds = limit.seconds if np.isfinite(limit.seconds) else _SOUND_SECONDS
    still = max(seconds - limit.elapsed(), 0.0)
    share = None if tolerance is None else 0.1 * tolerance
    # The box alone needs no network and is the quicker one; a tenth of the tolerance is its share.
    flat = Network([(np.eye(n), np.zeros(n))])
    box = Property(n, n, (Case(*sides, none[0], np.zeros((0, n)), none[2], none[3]),), "box")
    whole = bound_event(flat, before, box, tolerance=share, budget=Budget(0.4 * still, limit.regions))
    if not whole.lower > 0.0:
        note = "the mass of the law's box has no positive lower bound yet; more budget may help"
        return Answer(0.5, 0.0, 1.0, "sound", method=whole.method, note=note, evaluations=whole.evaluations)
    wanted = None if tolerance is None else 0.8 * tolerance * whole.lower
    rest = Budget(max(seconds - limit.elapsed(), 0.1 * seconds), limit.regions)
    part = bound_event(
        net,
        before,
        Property(n, m, tuple(cases), event.short),
        tolerance=wanted,
        budget=rest,
        progress=progress,
    )
    lower, upper = part.lower / whole.upper * (1 - 1e-15), min(part.upper / whole.lower * (1 + 1e-15), 1.0)
    work = (part.evaluations or 0) + (whole.evaluations or 0)
    method = f"{part.method}: event and box over box, whose mass is in [{whole.lower:.6g}, {whole.upper:.6g}]"
    note = "; ".join(filter(None, [part.note, whole.note]))
    return Answer(
        0.5 * (lower + upper), lower, upper, "sound", method=method, note=note, evaluations=work, status=part.status
    )


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
    parts = pieces(law, event)
    rough = _rough_if_rare(net, parts, pilot, 0.15 * whole) if event.linear else None
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
    for piece in parts:
        share = seconds / len(parts)
        wanted = None if tolerance is None else tolerance / (piece.mass * len(parts))
        answers.append((piece, _piece_estimate(net, piece, wanted, share, each, kind, main.spawn(1)[0])))
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


def _added(answers: Sequence[tuple[Piece, Answer]], level: float) -> Answer:
    """The pieces' answers as one."""
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


def _piece_estimate(
    net: Network,
    piece: Piece,
    tolerance: float | None,
    seconds: float,
    level: float,
    interval: str,
    rng: np.random.Generator,
) -> Answer:
    q = question(net, piece.law, piece.event)
    if not q.cases:
        return Answer(0.0, 0.0, 0.0, "exact", method="the law never meets the event", evaluations=0)
    if any(len(c.g) == 0 for c in q.cases):
        return Answer(1.0, 1.0, 1.0, "exact", method="the event always happens", evaluations=0)
    if piece.event.linear:
        found = _by_lines(q, piece.law, tolerance, seconds, level, interval, rng)
        if found is not None:
            return found
    elif interval == "replicate" and _only_features(q):
        return _by_segments(q, piece.law, seconds, level, rng)
    return _by_points(net, piece.law, piece.event, tolerance, seconds, level, rng)


def _line_events(q: Question) -> tuple[Any, ...]:
    """The event for the line engine: once, or twice (all rows strict, none strict) when its rows differ."""
    from reluscope.measure.lines import Event as LineEvent

    parts = tuple((c.G, c.g) for c in q.cases)
    strict = np.concatenate([c.strict for c in q.cases])
    return tuple(LineEvent(parts, s) for s in (True, False) if s in strict)


def _by_lines(
    q: Question,
    law: Law,
    tolerance: float | None,
    seconds: float,
    level: float,
    interval: str,
    rng: np.random.Generator,
) -> Answer | None:
    """By lines; None when rows are both strict and not and it makes a difference (atoms on the limit)."""
    from reluscope.measure.lines import Request, integrate

    events = _line_events(q)
    if len(events) == 2:
        pilot = integrate(q.network, law, Request(events=events), lines=_PILOT_LINES // 4, rng=rng.spawn(1)[0])
        if pilot.events is not None and pilot.events.value[1] - pilot.events.value[0] > 1e-9 * pilot.events.value[1]:
            return None
    found = integrate(
        q.network,
        law,
        Request(events=events),
        budget=seconds,
        tolerance=tolerance,
        interval=interval,
        level=level,
        rng=rng,
    )
    assert found.events is not None
    value, lower, upper = found.events.value, found.events.lower, found.events.upper
    if len(events) == 2 and value[1] - value[0] > 1e-9 * value[1]:
        return None
    exact = found.interval == "exact"
    kind, known = "exact" if exact else "confidence", None if exact else level
    method = found.how
    note = "" if exact else f"{found.interval} interval"
    low, high = max(float(lower[0]), 0.0), min(float(upper[-1]), 1.0)
    v = float(value[0])
    return Answer(v, min(low, v), max(high, v), kind, known, method, note, found.lines)


def _only_features(q: Question) -> bool:
    return not any(c.G.any() for c in q.cases)


def _feature_hits(q: Question, pattern: Any) -> FloatArray:
    """1 where some case holds on the cell of a pattern of `q.network`, for events on features alone."""
    f = q.features(pattern)
    hit = np.zeros(len(pattern), bool)
    for c in q.cases:
        left = f @ c.F.T
        hit |= np.where(c.strict, left < c.g, left <= c.g).all(axis=1)
    return hit.astype(np.float64)


def _by_segments(q: Question, law: Law, seconds: float, level: float, rng: np.random.Generator) -> Answer:
    """An event on the affine function alone: the share of random lines on which it holds, in 16 independent groups."""
    from reluscope.measure.lines import segment_patterns

    groups, per = 16, 64
    seeds = rng.spawn(groups + 1)

    def group(lines: int, seed: np.random.Generator) -> float:
        total = 0.0
        for weight, _, mass, pattern in segment_patterns(q.network, law, lines, direction="gradient", rng=seed):
            total += weight * float(mass @ _feature_hits(q, pattern))
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
    net: Network,
    law: Law,
    event: Event,
    tolerance: float | None,
    seconds: float,
    level: float,
    rng: np.random.Generator,
) -> Answer:
    """Independent draws, their number fixed after a timed pilot; the exact binomial interval."""
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


def _rough_if_rare(net: Network, parts: Sequence[Piece], rng: np.random.Generator, seconds: float) -> float | None:
    """A rough probability (possibly 0) when a short pilot finds the event, its box included, to be rare; else None."""
    from reluscope.measure.lines import Request, integrate

    total = 0.0
    for piece in parts:
        if piece.law.atoms is not None:
            return None
        q = question(net, piece.law, piece.event)
        if not q.cases:
            continue
        if any(len(c.g) == 0 for c in q.cases):
            total += piece.mass
        else:
            request = Request(events=_line_events(q)[-1:])
            first = Budget(seconds / len(parts))
            found = integrate(q.network, piece.law, request, lines=_PILOT_LINES // 16, rng=rng)
            if found.interval != "exact" and first.elapsed() < first.seconds / 16:
                found = integrate(q.network, piece.law, request, lines=_PILOT_LINES, rng=rng)
            assert found.events is not None
            if found.interval == "exact":
                return None
            total += piece.mass * float(found.events.value[0])
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
    from reluscope.answers._nearest import known_inputs
    from reluscope.measure.rare import rare_probability

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
                event.as_property,
                tolerance=relative,
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
    asked = _questions(net, law, event)
    components = [c for _, _, some in asked for c in some]
    high = [c for c in components if not is_exact(c)]
    partial = None
    if not high:
        seconds = min(_TRY, 0.5 * limit.seconds)
        partial = _exact(net, law, event, tolerance, Budget(seconds, limit.regions), progress)
        if partial.guarantee == "exact":
            points = any(c.kind == "point" for c in components)
            kind = "particles" if points else in_dimensions({c.r for c in components})
            return replace(partial, note=f"exact: {kind}, enumeration finished")
        why = f"enumeration did not finish in {seconds:.3g} s ({count(partial.evaluations or 0, 'cell')})"
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
