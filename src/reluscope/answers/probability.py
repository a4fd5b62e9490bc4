"""How likely an event is, with a guarantee: `probability(net, law, event)`.

    P(event) = sum over regions of the mass of each region's part in the event        ("exact")
             in [mass decided inside, 1 - mass decided outside]                       ("sound")
             = E[ share of a random line in the event ]                               ("confidence")

See `docs/events.md` for the language of events and for what each guarantee means and costs.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from typing import Any

import numpy as np

from reluscope import intervals
from reluscope._check import FloatArray, choice, describe, real, seeded
from reluscope._text import count, in_dimensions
from reluscope.answer import Answer, Status, status_of, unless_interrupted

# The engines are imported here and not where they are called: a budget pays for the work, not for first imports.
from reluscope.answers._event_mass import Share, component_share
from reluscope.answers._nearest import known_inputs
from reluscope.answers._record_plain import fingerprint, finite, plain_event, plain_law
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.events import Case, Event, PlacedEvent, as_event, decided, joined, lifted_question, place, place_parts
from reluscope.inputs import Component, Law, Mixture, check_law, only_draws
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.checkpoint import SEARCH, keeping
from reluscope.measure.exactness import all_exact, is_exact, is_steep, not_exact
from reluscope.measure.lines import Request, integrate, segment_patterns
from reluscope.measure.rare import RAYS_UP_TO, rare_probability
from reluscope.measure.shared import decided_seconds, drawn_seconds, lines_seconds, point_seconds, slope_seconds
from reluscope.measure.sound import bound_event
from reluscope.network import Network
from reluscope.pace import LATE, by_the_clock, charge, counted, counting, now
from reluscope.progress import meter
from reluscope.threads import clean_interrupt
from reluscope.workers import with_jobs

GUARANTEES = ("auto", "exact", "sound", "confidence")
INTERVALS = ("finite-sample", "replicate")

_SECONDS = 2.0
"""Time for an estimate when neither budget nor tolerance is given."""

_LONGEST = 60.0
"""Time for an estimate when only a tolerance is given."""

_TRY = 10.0
"""Seconds that `auto` gives to enumeration before it turns to estimates (half the budget when there is one)."""

_MANY_DIMENSIONS = 20.0
"""Seconds for a rare event in many dimensions when no budget is given: populations have to climb first."""

_RARE = 2e-3
"""Below this, estimates come from the rare-event engine."""

_RELATIVE = 0.1
"""Half-width wanted for rare events, as a share of the value."""

_SOUND_SECONDS = 60.0
"""Time for a sound bracket given a box, without a budget."""

_QUICK, _LAST = 0.5, 5.0
"""Seconds that `auto` gives to a proof before and after sampling an event that nothing meets."""

_PROOF, _SMALL_PROOF = 0.4, 0.25
"""Share of the time that `auto` keeps for a proof: of a rare event, and of one that is met often, in few dimensions."""

_TIMED_PROOF = "an end is that of a proof, as far as it came in its time"
"""What the note says where a proof that the clock ended has narrowed an estimate."""

_PROVABLE = 5
"""Dimensions up to which a proof may be narrower than an estimate of an event that is met often."""

_NO_LIMITS = (0.0, math.inf)
"""Limits that decide nothing."""

_STRONGER = 10.0
"""A proof is taken in place of an interval that holds 0 unless it is wider than so many times that interval."""

_NOTHING = 1e-290
"""Sound brackets that end here or below say that the event never happens where a Gaussian has any mass."""

_TIE_WORK = 20_000_000
"""Products that the look for values on a limit may take: a few hundredths of a second."""

_ON_LIMIT = 1e-9
"""Rows this close to their limit, as a share of their terms, count as on it where units are steep."""

_EXTREME = 1e60
"""Weights above this, or below one over it, are left to points: squares of what they give would overflow."""

_MOST_GROUPS = 256
"""Groups of components of a mixture that are bounded one by one."""

_SIDE = 1e-14
"""More than the probability by which rounding moves a bound on an input when it becomes one on its score."""

_WORTH_A_WORD = 1e-10
"""An exact bracket that rounding makes wider than this says why."""

_COMPONENT_SECONDS, _FRAME_SECONDS = 0.01, 4e-9
"""What lines cost for each component of a law: at least so much, and this times its dimensions cubed for a pilot."""

_RAY_SECONDS, _CLIMB = 0.12, 70_000
"""What the search for a rare event costs for each component: by rays, or evaluations of the network by populations."""

_FEW_COMPONENTS, _LEAST_TURN = 8, 0.002
"""Up to so many components each may take all the time; of more, each this share of the rest at least at first."""

_FRACTION_POINT, _FRACTION = 1e-4, 1e-6
"""Seconds of a point that fractions decide, and of each parameter, by formula."""

_GUARD, _LEAST_GUARD = 10.0, 240.0
"""Real seconds, over those that the work is meant to take, and at least, after which a count ends all the same."""

_PILOT_LINES = 4096
_PILOT_DRAWS = 1 << 15
_POINTS_AT_ONCE = 1 << 15


@clean_interrupt()
@with_jobs
def probability(
    net: Network | Mapping[str, Network],
    law: Law,
    event: Any,
    *,
    names: Any = None,
    interval: str | None = None,
    checkpoint: Any = None,
    below: float | None = None,
    guarantee: str = "auto",
    tolerance: float | None = None,
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    jobs: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Answer:
    """`P(event)` for `y = net(x)`, x from `law`, with a bracket and a guarantee.

    Parameters
    ----------
    net : Network, or mapping of str to Network
        Several networks by name make the event relational: `"abs(f.y[0] - g.y[0]) > 0.05"`, `"argmax f != argmax g"`.
    law : Law
        The distribution of the inputs. For several networks it is a law of the input that they share, or of all their
        inputs, one network after the other. A law of twice the inputs of one network is one of a pair: the event then
        speaks of x and x', y and y'.
    event : str, Event or pair (G, g)
        Text (`"y[0] > y[1] and x[2] <= 0.3"`, `"argmax != argmax at mean"`, `"J[0,3] < 0"`: see `event`), an `Event`
        (also that of a VNN-LIB file), or a pair meaning `G y <= g`.
    names : sequence of str, optional
        Names of the inputs for the text.
    interval : {"finite-sample", "replicate"}, optional
        Kind of the "confidence" bracket. The first holds with probability `level` at any sample size; the second is
        narrower and asymptotic (Student's t over independent scrambles). The default is the first, and for rare events
        the second; `note` names the kind.
    checkpoint : path, optional
        For "sound": a file in which the search is kept, every half minute and at its end, and from which the same
        call goes on. A file about another network, law or event is refused.
    below : float, optional
        Ask whether the probability is below this: "auto" tries first what may decide it for certain, and "auto" and
        "sound" end as soon as the bracket does. Without a budget "auto" then takes up to 60 s.
    guarantee : {"auto", "exact", "sound", "confidence"}
        See Notes.
    tolerance : float, optional
        Half-width of the bracket wanted.
    level : float
        Confidence level of estimates.
    budget : optional
        A time (`"60s"`) or a number of regions. Without one a sound bracket takes up to 60 s (or until `tolerance` is
        reached), an estimate about 2 s of one core (up to 60 s with a `tolerance`, 20 s for a rare event in many
        dimensions): a fixed amount of work, whatever else the machine does. A number of regions limits enumerations
        and sound brackets alone.
    jobs : int, optional
        Workers that share the work, -1 for all cores. A budget in counts gives the same answer for any number of them.
    rng : optional
        None, an int, a SeedSequence or a Generator. The same `rng` gives the same answer with "confidence", bit for
        bit, unless `budget` has seconds: these are filled, and two runs differ within their intervals. Under "auto" a
        proof beside the estimate is given seconds. `note` says so where a safety limit of 4 minutes (10 with a
        `tolerance`) ends the work.
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
    - "confidence": points in boxes, lines or points, as a pilot finds; the rare-event engine when the probability is
      below 0.002.
    - "auto": exact where it is possible and finishes, else confidence. A share of the time is kept for a proof: where
      the interval holds 0 or is wide, and in up to five dimensions. The sound bracket is given where it is narrower,
      and where the interval holds 0 also if it is up to ten times wider. `note` says which and why.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, probability
    >>> net = Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], None)])
    >>> answer = probability(net, Gaussian([0.0]), "y > 2")
    >>> round(answer.value, 6), answer.guarantee
    (0.0455, 'exact')
    >>> line = Network([([[1.0]], None)])
    >>> probability({"f": net, "g": line}, Gaussian([0.0]), "f.y[0] > g.y[0]").value
    0.5
    """
    started = time.perf_counter()
    net, event = check_question(net, law, event, names)
    choice(guarantee, "guarantee", GUARANTEES)
    if checkpoint is not None and guarantee != "sound":
        raise InputError(f"checkpoint= keeps sound searches; ask with guarantee='sound', got {guarantee!r}")
    if interval is not None:
        choice(interval, "interval", INTERVALS)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    if tolerance is not None:
        tolerance = real(tolerance, "tolerance", low=0.0, high=1.0, open_=True)
    if below is not None:
        below = real(below, "below", low=0.0, high=1.0)
    limit, (rng, seed) = parse_budget(budget), seeded(rng)
    moved, asked = 0.0, law.marginal_error
    if event.linear and law.pushed is not None:  # a function of another law: the same question about that one
        net, law, event = lifted_question(net, law, event)
        moved = _SIDE * sum(int(np.isfinite([c.lower, c.upper]).sum()) for c in event.cases)
    limits = _NO_LIMITS if below is None else (below - moved, below + moved)
    if not event.cases:
        method = "the event can never happen"
        return Answer(0.0, 0.0, 0.0, "exact", method=method, note=event.note, evaluations=0, seconds=0.0)
    if only_draws(law):
        answer = _of_draws(net, law, event, guarantee, tolerance, limit, level, rng)
    elif guarantee == "exact":
        answer = _exact(place_parts(net, law, event), tolerance, limit, progress)
    elif guarantee == "sound":
        with keeping(checkpoint, SEARCH, {} if checkpoint is None else _question(net, law, event)):
            answer = _sound(net, law, event, tolerance, limit, progress, limits)
    elif guarantee == "confidence":
        answer = estimated(net, law, event, tolerance, limit, level, interval, rng)
    else:
        answer = _auto(net, law, event, tolerance, limit, level, interval, rng, progress, limits)
    if moved and answer.guarantee == "sound" and answer.upper > 0.0:
        answer = replace(answer, lower=max(answer.lower - moved, 0.0), upper=min(answer.upper + moved, 1.0))
    drawn = guarantee in ("auto", "confidence") and answer.guarantee != "exact"
    if tolerance is not None and answer.status is Status.DONE and answer.width > 2.0 * tolerance:
        answer = replace(answer, status=Status.TOLERANCE)
    if asked > 0.0:
        answer = replace(answer, note="; ".join(filter(None, [answer.note, _as_asked(asked)])))
    return replace(answer, seconds=time.perf_counter() - started, seed=seed if drawn else None)


def _as_asked(error: float) -> str:
    """What an answer about piecewise-linear marginals is about; the error is rounded up."""
    shown = Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(error)
    return (
        f"about piecewise-linear marginals, whose cdfs are within {shown:g} of those asked for (accuracy= of the law)"
    )


def _question(net: Network, law: Law, event: Event) -> dict[str, str]:
    """Digests of what is asked: a checkpoint about anything else is refused."""
    plain = {"law": finite(plain_law(law)), "event": finite(plain_event(event))}
    digests = {k: hashlib.sha256(json.dumps(v, sort_keys=True).encode()).hexdigest() for k, v in plain.items()}
    return {"network": fingerprint(net), **digests}


def check_question(net: Any, law: Law, event: Any, names: Any = None) -> tuple[Network, Event]:
    """The network and the event, or an `InputError` about the argument that does not fit."""
    net = joined(net, law, event)
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
    value, lower, upper, visited, doubt, blurred = 0.0, 0.0, 0.0, 0, 0.0, 0.0
    stopped: str | None = None
    dimensions: set[int] = set()
    with meter(progress, "regions in the event") as report:
        shares = _shares([(part, c) for part in parts for c in part.components], tolerance, limit, report)
    for part, c, share in shares:
        weight = part.mass * c.weight
        value += weight * share.value
        lower += part.lower * c.weight * max(share.value - share.error - share.excess, 0.0)
        upper += part.upper * c.weight * min(share.value + share.error + share.left + share.missing, 1.0)
        doubt += weight * (share.excess + share.missing)
        blurred += weight * share.error
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
    note = ""
    if doubt > _WORTH_A_WORD:
        note = f"{doubt:.3g} of the probability lies on a limit as far as rounding can tell, and may be in or out"
    elif blurred > _WORTH_A_WORD:
        note = "rounding of the network's numbers moves the edges of the event: large terms cancel"
    value = min(value, 1.0)  # weights add up to 1 but for rounding
    return Answer(value, min(lower, value), max(upper, value), "exact", None, method, note, visited)


def _shares(
    asked: list[tuple[PlacedEvent, Component]], tolerance: float | None, limit: Budget, report: Any
) -> list[tuple[PlacedEvent, Component, Share]]:
    """The event's share of each component, in their order.

    The heaviest are measured first. Of several, each may first take its share of the time that is left, so that none
    keeps the others from being looked at; what stays open is taken up again by weight times what is not known.
    """
    weights = np.array([part.mass * c.weight for part, c in asked])
    sliced = len(asked) > _FEW_COMPONENTS and np.isfinite(limit.seconds)
    done, visited = 0.0, 0

    def measured(k: int, budget: Budget) -> Share:
        nonlocal done, visited
        part, c = asked[k]
        late = limit.spent()
        if sliced and late is not None and c.kind != "point" and c.r:  # thousands of components: not even begun
            return Share(0.0, 0.0, 1.0, 0, late)

        def show(cells: int, share: float) -> None:
            report(visited + cells, f"{visited + cells:,} regions, {done + weights[k] * share:.4g} so far")

        # Shares are of a component, and weights add up to 1: the tolerance is that of the sum.
        found = component_share(c, part, budget, tolerance=tolerance, report=show)
        done, visited = done + weights[k] * found.value, visited + found.visited
        return found

    order = np.argsort(-weights, kind="stable").tolist()
    rest = np.cumsum(weights[order][::-1])[::-1]
    found: dict[int, Share] = {}
    for j, k in enumerate(order):
        turn = limit.part(max(float(weights[k] / rest[j]), _LEAST_TURN)) if sliced and rest[j] > 0 else limit
        found[k] = measured(k, turn)
    if sliced:
        opened = [k for k in order if found[k].stopped is not None]
        for k in sorted(opened, key=lambda k: -weights[k] * found[k].left):
            if limit.spent() is not None:
                break
            again = measured(k, limit)
            if again.left <= found[k].left:
                found[k] = again
    return [(part, c, found[k]) for k, (part, c) in enumerate(asked)]


# -- sound ---------------------------------------------------------------------------------------------------------


def _sound(
    net: Network,
    law: Law,
    event: Event,
    tolerance: float | None,
    limit: Budget,
    progress: Any,
    limits: tuple[float, float] = _NO_LIMITS,
) -> Answer:
    """The sound bracket; the work is over when it ends below the first of the `limits` or starts at the second."""
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
    if law.pushed is not None:  # a component of a mixture
        net, law, event = lifted_question(net, law, event)
        if not event.cases:
            return Answer(0.0, 0.0, 0.0, "sound", method="the law never meets the event", evaluations=0)
        moved = _SIDE * sum(int(np.isfinite([c.lower, c.upper]).sum()) for c in event.cases)
        limits = limits[0] - moved, limits[1] + moved
        found = _sound(net, law, event, tolerance, limit, progress, limits)
        return replace(found, lower=max(found.lower - moved, 0.0), upper=min(found.upper + moved, 1.0))
    shares = _sound_parts(law, event)
    if len(shares) > 1:
        return _sound_mixture(net, shares, event, tolerance, limit, progress)
    if _needs_ratio(law):
        return _sound_given_box(net, law, event, tolerance, limit, progress, limits)
    # Without any limit the engine's own default applies.
    budget = limit if np.isfinite(min(limit.seconds, limit.regions)) else None
    return bound_event(net, law, event, limits=limits, tolerance=tolerance, budget=budget, progress=progress)


def _needs_ratio(law: Law) -> bool:
    """Whether the law is a Gaussian given a box in correlated inputs, which the sound engine cannot take as it is."""
    return law.unrestricted is not law and not law.gaussians and not law.independent_inputs


def _sound_parts(law: Law, event: Event) -> list[tuple[float, Law]]:
    """What the sound engine is to be asked about one by one: mostly the law as a whole.

    Points, functions and ratios are apart. Components that have no spread in an input that the event bounds are grouped
    by its value: the bound then holds or fails before rounding has a say.
    """
    parts = [(w, part) for w, part in law.components if w > 0]
    if not law.is_mixture or law.atoms is not None:
        return [(1.0, law)]
    if any(_needs_ratio(part) or part.atoms is not None or part.pushed is not None for _, part in parts):
        return parts
    read = np.zeros(law.n, bool)
    for case in event.cases:
        read |= np.isfinite(case.lower) | np.isfinite(case.upper)
        read |= (case.A[case.inputs_alone] != 0).any(axis=0)
    groups: dict[bytes, list[tuple[float, Law]]] = {}
    for w, part in parts:
        low, high = part.support()
        groups.setdefault(np.where(low == high, low, np.nan)[read].tobytes(), []).append((w, part))
    if len(groups) == 1 and np.isnan(np.frombuffer(next(iter(groups)))).all():
        return [(1.0, law)]
    out = []
    for some in groups.values():
        total = math.fsum(w for w, _ in some)
        out.append(
            (total, Mixture([w / total for w, _ in some], [p for _, p in some]) if len(some) > 1 else some[0][1])
        )
    return out if len(out) <= _MOST_GROUPS else [(1.0, law)]


def _sound_mixture(
    net: Network, parts: list[tuple[float, Law]], event: Event, tolerance: float | None, limit: Budget, progress: Any
) -> Answer:
    """The brackets of the components, weighted; each gets its share of the time that is left."""
    found: list[tuple[float, Answer]] = []
    whole = _sound_seconds(limit)
    for k, (w, part) in enumerate(parts):
        seconds = max(whole - limit.elapsed(), 0.1 * whole) / (len(parts) - k)
        done = sum(a.evaluations or 0 for _, a in found)
        share = Budget(seconds, max((limit.regions - done) / (len(parts) - k), 2.0))
        found.append((w, _sound(net, part, event, tolerance, share, progress)))
        if found[-1][1].status is Status.INTERRUPTED:
            break
    unseen = math.fsum(w for w, _ in parts[len(found) :])
    lower, upper = (math.fsum(w * getattr(a, side) for w, a in found) for side in ("lower", "upper"))
    lower, upper = lower * (1 - 1e-15), min((upper + unseen) * (1 + 1e-15), 1.0)
    late = next((a.status for _, a in reversed(found) if a.status is not Status.DONE), Status.DONE)
    method = f"{len(parts)} components: {'; '.join(dict.fromkeys(a.method for _, a in found))}"
    note = "; ".join(filter(None, dict.fromkeys(a.note for _, a in found)))
    work = sum(a.evaluations or 0 for _, a in found)
    return Answer(0.5 * (lower + upper), lower, upper, "sound", method=method, note=note, evaluations=work, status=late)


def _sound_seconds(limit: Budget) -> float:
    """How long to work without a limit on seconds; without end where regions are counted, so that no clock decides."""
    if np.isfinite(limit.seconds) or np.isfinite(limit.regions):
        return limit.seconds
    return _SOUND_SECONDS


def _sound_given_box(
    net: Network,
    law: Law,
    event: Event,
    tolerance: float | None,
    limit: Budget,
    progress: Any,
    limits: tuple[float, float],
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
    seconds = _sound_seconds(limit)
    still = max(seconds - limit.elapsed(), 0.0)
    share = None if tolerance is None else 0.1 * tolerance
    # The box alone needs no network and is the quicker one; a tenth of the tolerance is its share.
    flat = Network([(np.eye(n), np.zeros(n))])
    no_rows = np.zeros((0, n))
    box = Event("box", n, n, (Case(*sides, no_rows, no_rows, np.zeros(0), np.zeros(0, bool)),))
    whole = bound_event(flat, before, box, tolerance=share, budget=Budget(0.4 * still, 0.5 * limit.regions))
    unless_interrupted(whole)
    if not whole.lower > 0.0:
        note = "the mass of the law's box has no positive lower bound yet; more budget may help"
        return Answer(
            0.5, 0.0, 1.0, "sound", method=whole.method, note=note, evaluations=whole.evaluations, status=Status.BUDGET
        )
    wanted = None if tolerance is None else 0.8 * tolerance * whole.lower
    left = max(limit.regions - (whole.evaluations or 0), 0.5 * limit.regions)
    rest = Budget(max(seconds - limit.elapsed(), 0.1 * seconds), left)
    inside = replace(event, cases=tuple(cases))
    limits = limits[0] * whole.lower * (1 - 1e-14), limits[1] * whole.upper * (1 + 1e-14)
    part = bound_event(net, before, inside, limits=limits, tolerance=wanted, budget=rest, progress=progress)
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
    parts: Sequence[PlacedEvent] | None = None,
    proof: bool = False,
) -> Answer:
    """`P(event)` with a confidence interval: lines, the rare-event engine, or points.

    `parts` is the placed event, where it is known. With `proof`, a share of the time is kept for the sound engine,
    whose bracket is taken if it is better. Without a limit on seconds the work is a count: one seed, one answer.
    """
    return _by_count(
        limit,
        tolerance,
        lambda ends: _estimated(net, law, event, tolerance, ends, level, interval, rng, parts, proof),
    )


def _by_count(limit: Budget, tolerance: float | None, work: Callable[[Budget], Answer]) -> Answer:
    """`work(limit)`; without a limit on seconds its plans go by a count (`reluscope.pace`), and a note says if not."""
    if np.isfinite(limit.seconds):
        return work(limit)
    with counted(max(_GUARD * (_SECONDS if tolerance is None else _LONGEST), _LEAST_GUARD)) as done:
        found = work(Budget())
    if not done.overrun:
        return found
    note = found.note if LATE in found.note else "; ".join(filter(None, [LATE, found.note]))
    return replace(found, note=note, status=Status.BUDGET)


def _estimated(
    net: Network,
    law: Law,
    event: Event,
    tolerance: float | None,
    limit: Budget,
    level: float,
    interval: str | None,
    rng: np.random.Generator,
    parts: Sequence[PlacedEvent] | None,
    proof: bool,
) -> Answer:
    whole = limit.seconds
    if not np.isfinite(whole):
        whole = _SECONDS if tolerance is None else _LONGEST
    ends = Budget(max(whole - limit.elapsed(), 0.05 * whole), whole=whole)
    pilot, main = rng.spawn(2)
    parts = place_parts(net, law, event) if parts is None else parts
    if parts and all(c.kind == "point" or c.r <= 1 for part in parts for c in part.components):
        # One dimension is enumerated faster than it is sampled, and rounding is bounded there.
        return _exact(parts, tolerance, ends, None)
    ties = event.linear and any(_rounding_matters(part) for part in parts)
    seen = _seen_if_rare(parts, pilot, 0.15 * whole) if event.linear and not ties else None
    crowd = seen is not None and _search_seconds(parts) > 0.5 * whole
    if seen is not None and not crowd:
        rough = seen[0]
        many = any(c.r > RAYS_UP_TO for part in parts for c in part.components)
        if many and not np.isfinite(limit.seconds):
            ends = Budget(max(whole, _MANY_DIMENSIONS))
        quick = _proved(net, law, event, tolerance, min(0.1 * whole, _QUICK)) if proof and not rough else None
        if quick is not None and quick.upper <= _NOTHING:
            return replace(quick, note=f"sound: no sample lies in the event; {quick.note}")
        if proof and np.isfinite(limit.seconds) and not (rough and many):  # the proof needs its time as well
            ends = ends.part(1.0 - _PROOF)
        found = _agreed(_rare(net, law, event, rough, tolerance, ends, level, interval, main, many), *seen)
        if proof and (found.lower == 0.0 or (found.status is not Status.DONE and not many)):
            left = limit.seconds - limit.elapsed() if np.isfinite(limit.seconds) else _LAST
            known = limit.seconds if np.isfinite(limit.seconds) else None
            better = _proved(net, law, event, tolerance, max(left, 0.5 * _PROOF * whole), known)
            found = _stronger(found, quick, better)
        return found
    few = event.linear and max((c.r for part in parts for c in part.components), default=0) <= _PROVABLE
    share = 1.0 - _SMALL_PROOF if proof and few else 1.0
    seconds = max(share * (ends.seconds - ends.elapsed()), 0.2 * whole, min(whole, 0.5))
    kind = interval or "finite-sample"
    each = 1.0 - (1.0 - level) / max(len(parts), 1)
    answers = []
    for part in parts:
        share = seconds / len(parts)
        wanted = None if tolerance is None else tolerance / (part.mass * len(parts))
        several = len(part.components)
        alone = ties or crowd or (several > 1 and _COMPONENT_SECONDS * several > 0.25 * share)
        answers.append((part, _part_estimate(part, wanted, share, each, kind, alone, main.spawn(1)[0])))
    found = _added(answers, level)
    if crowd:
        why = "rare, and the law has too many components to search each of them in the time: points of the law"
        found = replace(found, note=f"{why}; {found.note}", status=Status.BUDGET)
    good = tolerance is not None and found.width <= 2.0 * tolerance
    if proof and event.linear and (found.lower == 0.0 or (few and not good)):
        rest = max(whole - limit.elapsed(), 0.5 * _SMALL_PROOF * whole)
        found = _stronger(found, _proved(net, law, event, tolerance, rest, whole))
    return found


def _stronger(found: Answer, *proofs: Answer | None, worth: float = _STRONGER) -> Answer:
    """The estimate within what is proved; or the proof, where it is narrower.

    An interval that holds 0 says little more than its upper end: a proof that is up to `worth` times wider is stronger.
    """
    known = [p for p in proofs if p is not None]
    if not known or found.guarantee == "exact":
        return found
    best = min(known, key=lambda p: p.width)
    lower, upper = max(p.lower for p in known), min(p.upper for p in known)
    worth = worth if found.lower == 0.0 else min(worth, 1.0)
    apart = found.upper < lower or found.lower > upper
    if not apart and upper - lower > worth * found.width:
        narrower = lower > found.lower or upper < found.upper
        timed = narrower and any(p.status is not Status.DONE for p in known)
        lower, upper = max(found.lower, lower), min(found.upper, upper)
        note = "; ".join(filter(None, [found.note, _TIMED_PROOF if timed else ""]))
        return replace(found, value=min(max(found.value, lower), upper), lower=lower, upper=upper, note=note)
    met = "no sample lies in the event" if found.value == 0.0 else f"sampling saw about {found.value:.3g}"
    note = "; ".join(filter(None, [f"sound: {met}, the bracket is proved", best.note]))
    return replace(best, value=0.5 * (lower + upper), lower=lower, upper=upper, note=note)


def _proved(
    net: Network,
    law: Law,
    event: Event,
    tolerance: float | None,
    seconds: float,
    whole: float | None = None,
    limits: tuple[float, float] = _NO_LIMITS,
) -> Answer | None:
    """The sound bracket found in a time, a part of `whole`; None where the engine does not serve network or law."""
    try:
        with by_the_clock():
            found = _sound(net, law, event, tolerance, Budget(seconds, whole=whole), None, limits)
        unless_interrupted(found)
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
    part: PlacedEvent,
    tolerance: float | None,
    seconds: float,
    level: float,
    interval: str,
    alone: bool,
    rng: np.random.Generator,
) -> Answer:
    """One part; `alone`: points one by one, where rounding matters or the law has too many components for lines."""
    if not part.n_cases:
        return Answer(0.0, 0.0, 0.0, "exact", method="the law never meets the event", evaluations=0)
    if part.everything:
        why = "the event always happens" if part.mass == 1.0 else "the mass of a box of inputs"
        return Answer(1.0, 1.0, 1.0, "exact", method=why, evaluations=0)
    if part.event.linear and not alone:
        return _by_lines(part, tolerance, seconds, level, interval, rng)
    if interval == "replicate" and not alone and not part.G.any():
        return _by_segments(part, seconds, level, rng)
    return _by_points(part, tolerance, seconds, level, rng)


def _rounding_matters(part: PlacedEvent) -> bool:
    """Whether the event holds or fails by rounding at some of a few draws, or the network's numbers are extreme.

    Lines and single precision would then measure rounding; points are decided one by one.
    """
    if not part.n_cases or part.everything or part.law.atoms is not None:
        return False
    work = sum(layer.width * layer.n_inputs for layer in part.net.layers)
    for layer in part.net.layers:
        size = np.abs(layer.weight.data if hasattr(layer.weight, "indptr") else layer.weight)
        if size.size and (size.max() > _EXTREME or size[size > 0].min(initial=1.0) < 1.0 / _EXTREME):
            return True
    n = int(np.clip(_TIE_WORK // work, 64, 1024))
    # A stream of its own: looking changes no answer.
    X = part.law.sample(n, np.random.default_rng(0))
    surely, maybe = decided(part.net, part.event, X, fractions=False)
    if not (maybe & ~surely).any() and is_steep(part.components[0].network):
        Z = part.network(X)
        left, size = Z @ part.G.T - part.g, np.abs(Z) @ np.abs(part.G).T + np.abs(part.g)
        return bool((np.abs(left) <= _ON_LIMIT * size).any())
    return bool((maybe & ~surely).any())


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
    work = found.lines + found.value_lines
    return Answer(value, min(low, value), max(high, value), kind, known, found.how, note, work)


def _by_segments(part: PlacedEvent, seconds: float, level: float, rng: np.random.Generator) -> Answer:
    """An event on the affine function alone: the share of random lines on which it holds, in 16 independent groups."""
    groups, per = 16, 64
    seeds = rng.spawn(groups + 1)

    def group(lines: int, seed: np.random.Generator) -> float:
        total = 0.0
        pieces = 0
        for weight, _, mass, pattern in segment_patterns(part.network, part.law, lines, direction="gradient", rng=seed):
            total += weight * float(
                mass @ part.contains(np.zeros((len(pattern), part.G.shape[1])), part.features(pattern))
            )
            pieces += len(mass)
        charge(lines_seconds(part.network, lines, pieces) + pieces * slope_seconds(part.network, 1))
        return total

    group(16, np.random.default_rng(0))  # compile
    begin = now()
    group(per, seeds[-1])
    cost = (now() - begin) / per
    per = int(max(per, min(seconds / groups / max(cost, 1e-9), 1 << 16)))
    values = np.array([group(per, s) for s in seeds[:groups]])
    mean, half = intervals.student(values, level)
    if half == 0.0:  # all groups agree: nothing seen, or nothing else
        half = 3.0 / (groups * per)
    method = f"{groups * per:,} lines, direction gradient"
    low, high = float(max(mean - half, 0.0)), float(min(mean + half, 1.0))
    return Answer(float(mean), low, high, "confidence", level, method, "replicate interval", groups * per)


def _of_draws(
    net: Network,
    law: Law,
    event: Event,
    guarantee: str,
    tolerance: float | None,
    limit: Budget,
    level: float,
    rng: np.random.Generator,
) -> Answer:
    """A law of which only draws are known: they are counted."""
    if guarantee in ("exact", "sound"):
        raise InputError(
            f"guarantee={guarantee!r} needs a law that the engines know, and of {law!r} only draws are known; "
            "guarantee='confidence' counts them, and rs.Copula makes a law of distributions of single inputs"
        )

    def work(ends: Budget) -> Answer:
        seconds = ends.seconds if np.isfinite(ends.seconds) else _SECONDS if tolerance is None else _LONGEST
        return _by_points(place(net, law, event), tolerance, max(seconds - ends.elapsed(), 0.05 * seconds), level, rng)

    return _by_count(limit, tolerance, work)


def _by_points(
    part: PlacedEvent, tolerance: float | None, seconds: float, level: float, rng: np.random.Generator
) -> Answer:
    """Independent draws, their number fixed after a timed pilot; the exact binomial interval."""
    net, law, event = part.net, part.law, part.event
    scout, main = rng.spawn(2)
    decided(net, event, law.sample(8, scout))
    share, cost, size = 0.0, 0.0, 64
    for size in (64, 4096):
        first = now()
        X = law.sample(size, scout)
        share = float(np.mean(decided(net, event, X)[1]))
        if counting():
            charge(_decided_seconds(net, event, X))
        cost = (now() - first) / size
        # Points that fractions decide are slow; a law of many components has a cost for each call.
        if cost * size > 0.02 * seconds:
            break
    n = int(np.clip(0.9 * seconds / max(cost, 1e-9), 256, 1 << 30))
    charge(n * cost)
    if tolerance is not None:
        spread = max(share * (1 - share), 1e-3)
        n = int(np.clip(1.2 * 4.0 * spread / tolerance**2 * (1 + abs(np.log(1 - level))), 256, n))
    surely, maybe, left = 0, 0, n
    while left:
        size = min(left, _POINTS_AT_ONCE)
        some, most = decided(net, event, law.sample(size, main))
        surely, maybe = surely + int(some.sum()), maybe + int(most.sum())
        left -= size
    low, high = intervals.binomial(surely, n, level)[0], intervals.binomial(maybe, n, level)[1]
    note = "finite-sample interval"
    if maybe > surely:
        note += f"; rounding cannot decide {maybe - surely:,} of the points, which may be in or out"
    return Answer(0.5 * (surely + maybe) / n, low, high, "confidence", level, f"{n:,} points", note, n)


def _decided_seconds(net: Network, event: Event, X: FloatArray) -> float:
    """What the work of `decided` costs by formula: those that floats leave open are decided in fractions."""
    surely, maybe = decided(net, event, X, fractions=False)
    slow = int((maybe & ~surely).sum())
    each = decided_seconds(net) + (0.0 if event.linear else 3.0 * slope_seconds(net, net.n_outputs))
    return len(X) * each + slow * (_FRACTION_POINT + _FRACTION * net.n_parameters)


# -- rare events ---------------------------------------------------------------------------------------------------


def _seen_if_rare(
    parts: Sequence[PlacedEvent], rng: np.random.Generator, seconds: float
) -> tuple[float, float, float] | None:
    """A rough probability (possibly 0) with its bounds when a short pilot finds the event to be rare; else None.

    The box of the event is included.
    """
    total, lower, upper = 0.0, 0.0, 0.0
    for part in parts:
        if part.law.atoms is not None:
            return None
        if not part.n_cases:
            continue
        if part.everything:
            total, lower, upper = total + part.mass, lower + part.lower, upper + part.upper
        else:
            seen = _glimpse(part, rng, seconds / len(parts))
            if seen is None:
                return None
            total, lower, upper = (
                total + part.mass * seen[0],
                lower + part.lower * seen[1],
                upper + part.upper * seen[2],
            )
        if total >= _RARE:
            return None
    return (total, lower, upper) if parts else None


def _search_seconds(parts: Sequence[PlacedEvent]) -> float:
    """The least that the rare-event engine takes for a law of several components, which it searches one by one."""
    components = [c for part in parts for c in part.components]
    if len(components) < 2:
        return 0.0
    climb = (_CLIMB * (1e-10 * c.network.n_parameters + 3e-8 * c.r) for c in components)
    return sum(_RAY_SECONDS if c.r <= RAYS_UP_TO else cost for c, cost in zip(components, climb, strict=True))


def _glimpse(part: PlacedEvent, rng: np.random.Generator, seconds: float) -> tuple[float, float, float] | None:
    """A rough probability with its bounds, from a few lines (None where these are exact) or, if too slow, draws."""
    cost = sum(_COMPONENT_SECONDS + _FRAME_SECONDS * c.r**3 for c in part.components)
    if len(part.components) > 1 and cost > seconds:
        hits = n = 0
        pilot = Budget(seconds)
        while n < _PILOT_DRAWS and not (n and pilot.spent()):
            hits += int(part.event.holds(part.net, part.law.sample(_PILOT_DRAWS // 16, rng)).sum())
            charge(_PILOT_DRAWS // 16 * (drawn_seconds(part.net.n_inputs) + point_seconds(part.net)))
            n += _PILOT_DRAWS // 16
        return (hits / n, *intervals.binomial(hits, n, DEFAULT_LEVEL))
    request = Request(events=(part,))
    first = Budget(seconds)
    found = integrate(part.net, part.law, request, lines=_PILOT_LINES // 16, rng=rng)
    if found.interval != "exact" and first.elapsed() < first.seconds / 16:
        found = integrate(part.net, part.law, request, lines=_PILOT_LINES, rng=rng)
    assert found.events is not None
    if found.interval == "exact":
        return None
    return float(found.events.value[0]), float(found.events.lower[0]), float(found.events.upper[0])


def _agreed(found: Answer, rough: float, lower: float, upper: float) -> Answer:
    """The rare-event engine's answer, unless the pilot, which shares no draws with it, has seen more than it allows."""
    if found.guarantee == "exact" or found.upper >= lower:
        return found
    why = f"the pilot's lines saw {rough:.2g} (at least {lower:.2g}): the interval holds both"
    note = "; ".join(filter(None, [found.note, why]))
    return replace(found, value=rough, upper=max(upper, rough), note=note, status=Status.TOLERANCE)


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
    many: bool,
) -> Answer:
    """By the rare-event engine, whose tolerance is relative to the value.

    When it meets nothing, inputs of the event are searched for by exact steps, and rays drawn around them.
    """
    relative = _RELATIVE if tolerance is None or rough <= 0 else min(max(tolerance / rough, 1e-3), _RELATIVE)

    def asked(share: float, starts: FloatArray | None) -> Answer:
        whole = ends.whole or ends.seconds
        # The first run is never starved by what came before, such as first imports.
        least = 0.05 * whole if starts is not None else max(0.2 * whole, min(whole, 0.5))

        def by(kind: str) -> Answer:
            left = max(ends.seconds - ends.elapsed(), least)
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

    # In many dimensions the climb is the search, and known inputs help little.
    found = asked(1.0 if rough > 0 else 0.85 if many else 0.6, None)
    if found.value > 0.0 or found.guarantee == "exact":
        return found
    starts = known_inputs(net, law, event, Budget(0.4 * max(ends.seconds - ends.elapsed(), 0.05 * ends.seconds)), rng)
    if not len(starts):
        return found
    again = asked(0.9, starts)
    if again.value > 0.0:
        return again
    # The first run had more rays: its interval, and what the second one says.
    return replace(found, note=f"{found.note}; inputs of it are known, too thin or too far out to measure")


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
    limits: tuple[float, float],
) -> Answer:
    parts = place_parts(net, law, event)
    components = [c for part in parts for c in part.components]
    high = [c for c in components if not is_exact(c)]
    asked = limits != _NO_LIMITS
    if asked and not np.isfinite(min(limit.seconds, limit.regions)):
        limit = replace(limit, seconds=_LONGEST)
    proofs: list[Answer] = []
    if not high:
        seconds = 0.5 * limit.seconds if asked else min(_TRY, 0.5 * limit.seconds)
        partial = _exact(parts, tolerance, Budget(seconds, limit.regions), progress)
        if partial.guarantee == "exact":
            points = any(c.kind == "point" for c in components)
            kind = "particles" if points else in_dimensions({c.r for c in components})
            note = f"exact: {kind}, all regions that matter were measured"
            return replace(partial, note=f"{note}; {partial.note}" if partial.note else note)
        why = f"enumeration did not finish in {seconds:.3g} s ({count(partial.evaluations or 0, 'region')})"
        proofs.append(partial)
    else:
        worst = max(high, key=lambda c: c.r)
        why = f"{worst.r} dimensions are too many for exact masses"
    if asked and event.linear and not _decides(limits, *proofs):
        share = limit.part(1.0 - _PROOF)
        proof = _proved(net, law, event, tolerance, share.seconds - share.elapsed(), share.whole, limits)
        proofs += [] if proof is None else [proof]
    if asked and _decides(limits, *proofs):
        best = next(p for p in proofs if _decides(limits, p))
        return replace(best, note="; ".join(filter(None, [f"sound: {why}, and the bracket decides", best.note])))
    found = estimated(net, law, event, tolerance, limit, level, interval, rng, parts=parts, proof=not asked)
    within = _stronger(found, *proofs, worth=0.0 if asked and _decides(limits, found) else _STRONGER)
    if within.guarantee != "confidence":
        return within
    return replace(within, note="; ".join(filter(None, [within.note, f"confidence: {why}"])))


def _decides(limits: tuple[float, float], *proofs: Answer) -> bool:
    """Whether a proof lies on one side of the limits."""
    return any(p.upper < limits[0] or p.lower >= limits[1] for p in proofs)
