"""Finite-sample intervals by points in boxes: for one event, on laws whose coordinates are independent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from reluscope import intervals
from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.answer import Answers
from reluscope.measure.lines.directions import sources_of
from reluscope.measure.lines.plan import MOST_PILOTS, Settings
from reluscope.measure.lines.records import Integrals
from reluscope.measure.points import SingleForms, SmallForms, Space, Strata, Tree, Worked, evaluator, informed
from reluscope.measure.shared import BoxLines, Job, point_seconds, single_seconds, slope_seconds, small_seconds
from reluscope.network import Network

if TYPE_CHECKING:
    from reluscope.inputs import Component

MOST_DIMENSIONS = 64
_FIRST_SHARE, _TREE_SHARE, _PILOT_SHARE, _RUN_SHARE = 0.04, 0.2, 0.1, 0.65
"""Shares of the time: for the first boxes, for all, for the pilot that says how many points each gets, for the run."""
_PROMISING, _CLEARLY = 1.5, 2.3
"""How many times narrower than a count the interval must look by the first boxes, and to try nothing else."""
_FIRST_STAGE = 0.02
"""Seconds after which it is asked for the first time, at the soonest, whether the boxes are good enough."""
_POINTS_A_LINE = 60.0
_LOOK, _LOOK_INPUT = 1e-6, 1e-7
"""Seconds for a box, and for each of its sides, by formula (`reluscope.pace`)."""
_GRID = 1e-7
"""More than the distribution function of a coordinate in single precision is off."""


def suits(components: list[Component], settings: Settings) -> bool:
    """Whether points in boxes can answer: one event, few components, coordinates that are independent."""
    job = settings.job
    asked = job.rows.count == 1 and not (job.n_levels or job.switches or len(job.moment_forms) or job.atom_forms)
    free = settings.method == "auto" and isinstance(settings.direction, str) and settings.direction == "auto"
    return (
        asked
        and free
        and settings.interval == "finite-sample"
        and not settings.fixed
        and len(components) <= MOST_PILOTS
        and all(c.rows is None and c.r <= MOST_DIMENSIONS for c in components)
    )


def make_strata(
    components: list[Component],
    settings: Settings,
    tolerance: float | None,
    level: float,
    rng: np.random.Generator,
) -> Strata | None:
    """Boxes for a run of `settings.seconds`; None where a point costs too much, or the first boxes promise nothing."""
    seconds, started = settings.seconds, Worked()
    spaces = []
    for component in components:
        spaces.append(_space(component, settings, rng))
        if started.seconds > _TREE_SHARE * seconds:
            return None
    tree = Tree(tuple(spaces), settings.job.rows, rng)

    def points(cost: float) -> float:
        return _RUN_SHARE * seconds / cost

    last = _TREE_SHARE * seconds
    stage = min(max(_FIRST_SHARE * seconds, _FIRST_STAGE), last)
    if tolerance is not None:
        stage = min(_FIRST_STAGE, last)
    strata: Strata | None = None
    while stage <= last:
        strata = tree.grow(stage, points) or strata
        if strata is None and tolerance is None:
            return None
        if strata is not None and _gain(strata, _RUN_SHARE * seconds, level) < _PROMISING:
            return None
        if strata is not None and tolerance is not None:
            needed, note = points_for(strata, _RUN_SHARE * seconds, tolerance, level)
            if not note and needed * strata.cost < 4.0 * stage:
                break
        stage = last if tolerance is None and stage < last else 2.0 * stage
    if strata is None:
        return None
    pilot = _PILOT_SHARE * seconds if tolerance is None else 0.3 * stage
    return informed(strata, max(int(pilot * max(started.pace, 1.0 / 3.0) / strata.cost), 1), level, rng)


def is_clear(strata: Strata, seconds: float, level: float) -> bool:
    """Whether boxes are so much better than the count of as many plain points that no other way need be tried.

    Aimed points are at most a few times better than a count. Lines, however alike, leave `log(2 / risk)` over their
    number open, and one takes as long as a hundred points.
    """
    unmet = _POINTS_A_LINE * intervals.unseen(seconds / strata.cost, level)
    return _gain(strata, seconds, level) > _CLEARLY and strata.expected(seconds, level) < unmet


def _gain(strata: Strata, seconds: float, level: float) -> float:
    """How many times narrower than a count of plain points the interval is expected to be."""
    n = seconds / strata.cost
    chance = min(max(strata.chance, 0.0), 1.0)
    log = np.log(2.0 / (1.0 - level))
    counted = np.sqrt(2.0 * log * chance * (1.0 - chance) / n) + 0.5 * log / n
    return float(counted / strata.expected(seconds, level))


def points_for(strata: Strata, seconds: float, tolerance: float | None, level: float) -> tuple[int, str]:
    """How many points, and a note where they are too few for the tolerance."""
    most = strata.points(seconds)
    if tolerance is None:
        return most, ""

    def half(points: int) -> float:
        return 1.15 * strata.allotted(points, level)[1] + _GRID

    if half(most) > tolerance:
        return most, f"the budget ends before the tolerance of {tolerance:g} is expected to be reached"
    least = 2 * len(strata.mass)
    while most > 1.1 * least:
        middle = int(np.sqrt(float(least) * most))
        least, most = (least, middle) if half(middle) <= tolerance else (middle, most)
    return most, ""


def run_strata(
    strata: Strata, seconds: float, tolerance: float | None, fixed: FloatArray, level: float, rng: np.random.Generator
) -> Integrals:
    """The answer after about so many seconds of CPU; `fixed` (1,) is what components without sampling add."""
    points, note = points_for(strata, seconds, tolerance, level)
    draws = strata.allotted(points, level)[0]
    hits = strata.hits(draws.astype(np.int64), rng)
    value, lower, upper = intervals.strata(hits.astype(np.float64), draws, strata.mass, strata.boxes.inside, level)
    whole = float(strata.mass.sum())
    found = Answers(
        fixed + value,
        fixed + max(lower - _GRID, 0.0),
        fixed + min(upper + _GRID, whole),
        "confidence",
        level,
    )
    words = f"points in {len(draws):,} boxes"
    return Integrals(
        {}, found, None, None, None, None, {}, "finite-sample", level, words, "none", int(draws.sum()), 1, 0.0, note
    )  # fmt: skip


def _space(component: Component, settings: Settings, rng: np.random.Generator) -> Space:
    source = sources_of(component, settings, rng, single=False)[-1]
    net, job = component.network, settings.job
    look = _LOOK + _LOOK_INPUT * component.r + slope_seconds(net, min(len(job.forms), net.n_outputs))
    if source.turn is not None:
        placed = net.after(source.turn, np.zeros(net.n_inputs))
        ndtri = late("scipy.special", "ndtri")
        forms = evaluator(placed, job.forms, job.limits)
        small = small_seconds(placed) if SmallForms.suits(placed) else point_seconds(placed)
        point = single_seconds(placed) if isinstance(forms, SingleForms) else small
        return Space(component.weight, component.r, forms, ndtri, _slopes(placed, job), point, look)
    assert isinstance(source, BoxLines)

    def place(uniforms: FloatArray) -> FloatArray:
        return source.points(uniforms, rng)

    def evaluate(bits: np.ndarray, n: int) -> FloatArray:
        return np.asarray(net(place((bits[:, :n].T + 0.5) / 2.0**32)) @ job.forms.T)

    return Space(component.weight, component.r, evaluate, place, _slopes(net, job), point_seconds(net), look)


def _slopes(net: Network, job: Job) -> Callable[[FloatArray], FloatArray]:
    few = net.then(job.forms) if len(job.forms) < net.n_outputs else None

    def slopes(points: FloatArray) -> FloatArray:
        return few.jacobian(points) if few is not None else np.matmul(job.forms, net.jacobian(points))

    return slopes
