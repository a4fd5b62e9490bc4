"""A plan, how lines or points of one component are drawn, and its run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope import intervals
from reluscope._check import FloatArray
from reluscope.measure.points import SIDE, AimedPoints, SingleForms, SmallForms
from reluscope.measure.shared import (
    IndependentDraws,
    Job,
    SobolDraws,
    Source,
    Tally,
    Tracer,
    batches,
    lines_seconds,
    normals,
    point_seconds,
    single_seconds,
    small_seconds,
)
from reluscope.pace import charge, counting
from reluscope.threads import look
from reluscope.workers import PerThread, alone, jobs_at_hand, on_cluster, run

if TYPE_CHECKING:
    from reluscope.inputs import Component, Law

CHUNK = 256
"""Lines traced together: their segments stay in the cache."""

_AT_ONCE, _MOST_AT_ONCE = 4, 64
"""Batches that a worker takes at a time: of this machine, and of a cluster, where handing out takes milliseconds."""

_TURNS = 8
"""Times that a worker of a cluster should come back for more."""

_SMALL_CHUNK = 2048

_BY_COUNTING, _BY_BETTING, _UNMET = 6.6, 12.0, 3.0
"""Squared half-widths over variances of the mean, and half-widths over the span of one number, at the usual level."""

INTERVAL_SHARE = 0.7
"""Share of the time for a finite-sample interval; the rest is for the value, by Sobol points."""

MOST_PILOTS = 16
"""Components that have pilots of their own; further ones follow the heaviest."""

_SINGLE_BITS = 1 << 17
"""Random numbers in a chunk of points in single precision."""


@dataclass(frozen=True, eq=False)
class Settings:
    """What the user asked for, as far as plans depend on it."""

    law: Law
    job: Job
    interval: str
    replicates: int
    method: str
    direction: Any
    seconds: float
    lines: int | None = None
    """The number of lines, where it is given: then nothing may depend on the clock, so that a seed says it all."""
    components: int = 1
    """How many components share the lines (or points)."""

    @property
    def fixed(self) -> bool:
        """Whether the number of lines is given."""
        return self.lines is not None

    @property
    def shared(self) -> bool:
        """Whether several components share the lines."""
        return self.components > 1

    @property
    def many(self) -> bool:
        """Whether there are too many components to search each for what is rare."""
        return self.components > MOST_PILOTS


@dataclass(frozen=True, eq=False)
class LinePlan:
    """A way to treat one component, and what a pilot of n lines (or points) in each of many scrambles has shown."""

    component: Component
    source: Source
    method: str
    job: Job
    tracer: Tracer | None
    """None: made for the run, for its tables are large."""
    quick: SingleForms | None = None
    """The forms in single precision, for points, where that is enough."""
    aimed: AimedPoints | None = None
    """Where the points of the method "aimed" are drawn."""
    n: int = 0
    cost: float = 0.0
    """Seconds of CPU per line."""
    variance: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Variance of the mean of one scramble, for each quantity."""
    single: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Variance of one line."""
    rare: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Estimates of the rarer side of each level and event (nan for other quantities)."""
    common: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    """Whether that is the complement."""
    slope: float = 1.0
    """How fast the variance falls with the number of lines: as `n ** -slope`."""
    met: FloatArray = field(default_factory=lambda: np.zeros(0))
    """How many lines the pilot's estimate of each quantity rests on: 1 if a single one contributed all of it."""
    span: float = 1.0
    """The largest distance that a line's contribution to a probability can have from the mean."""
    sharp: LinePlan | None = None
    """The plan for the value, where that is not the plan for the interval: see `finite-sample` in `integration`."""

    @property
    def kind(self) -> str:
        """Lines, points or aimed points, in words."""
        return "aimed points" if self.method == "aimed" else self.method

    @property
    def alike(self) -> npt.NDArray[np.bool_]:
        """Which levels and events all lines contribute the same to."""
        return np.asarray(self.single <= 1e-12 * self.rare**2)

    def spread_of(self, lines: float, settings: Settings) -> float:
        """The largest variance that the interval of a run of so many lines is expected to show."""
        if settings.interval == "finite-sample":
            return float(self.single.max(initial=0.0)) / max(lines, 1.0)
        each = max(lines / settings.replicates, 1.0)
        # On the safe side of what Sobol points do: no faster than 1/n upwards, no slower than 1/n^2 downwards.
        guess = self.variance * (self.n / each) ** (1.0 if each > self.n else 2.0)
        return float(np.minimum(guess, self.single / each).max(initial=0.0)) / settings.replicates

    def unmet(self, lines: float, level: float, settings: Settings) -> float:
        """The part of the half width that falls as 1/lines; see `reluscope.measure.lines.estimates`."""
        if settings.interval == "finite-sample":
            return float(self.span * np.log(4.0 / (1.0 - level)) / max(lines, 1.0))
        return float(self.span * intervals.unseen(max(lines, 1.0), level))

    def predicted(self, seconds: float, settings: Settings) -> FloatArray:
        """The variance of each quantity after a run of the given CPU time."""
        lines = max(seconds / self.cost, 1.0)
        if settings.interval == "finite-sample":
            # The square of the half width, in its share of the time. Counts of points have an interval of their own.
            wide = _BY_COUNTING if self.method == "points" else _BY_BETTING
            n = INTERVAL_SHARE * lines
            half = np.sqrt(wide * self.single / n) + self.span * _UNMET / n
            return np.where((self.single > 0.0) | (np.nan_to_num(self.rare, nan=1.0) > 0.0), half * half, 0.0)
        if settings.interval == "block":
            return self.variance * max(lines / self.n, 1e-3) ** -self.slope
        each = lines / settings.replicates
        return self.variance * max(each / self.n, 1e-3) ** -self.slope / settings.replicates


def run_plan(plan: LinePlan, n: int, groups: int, rng: np.random.Generator, per_scramble: int) -> Tally:
    """About `n` lines or points in equal groups; `per_scramble` groups share a scramble (0: independent draws)."""
    tally = _run(plan, n, groups, rng, per_scramble)
    if counting():
        tally.seconds = _nominal(plan, tally)
        charge(tally.seconds)
    return tally


def _nominal(plan: LinePlan, tally: Tally) -> float:
    """What a run costs by formula."""
    net, n = plan.component.network, float(tally.count.sum())
    if plan.method == "lines":
        return lines_seconds(net, n, tally.segments)
    if plan.aimed is not None:
        return n * plan.aimed.seconds
    if plan.quick is not None or single_forms(plan) is not None:
        return n * single_seconds(net)
    small = not plan.job.switches and SmallForms.suits(net)
    return n * (small_seconds(net) if small else point_seconds(net))


def _run(plan: LinePlan, n: int, groups: int, rng: np.random.Generator, per_scramble: int) -> Tally:
    net, by_lines = plan.component.network, plan.method == "lines"
    tally = Tally(plan.job, net, groups, plan.component.lead)
    tally.cut = plan.source.cut if by_lines else 0.0
    tally.counts = not by_lines and plan.aimed is None
    dimensions = plan.source.dimensions if by_lines else plan.source.point_dimensions
    each = -(-n // groups)
    draws: Any = IndependentDraws(dimensions, rng)
    if per_scramble:
        draws = SobolDraws(dimensions, groups, each, rng, per_scramble=per_scramble)
    jobs = jobs_at_hand() if tally.adds_up else 1
    started = time.thread_time()
    if plan.aimed is not None:
        plan.aimed.run(each, groups, rng, per_scramble, tally)
        tally.seconds = time.thread_time() - started
        return tally
    if not by_lines and (quick := plan.quick or single_forms(plan)) is not None:
        started = time.thread_time()
        if alone(jobs):
            _run_single(quick, draws, each, groups, tally)
        else:
            _run_single_together(quick, draws, each, groups, tally, jobs)
        tally.seconds += time.thread_time() - started
        return tally
    chunk = CHUNK if by_lines else max(64, (1 << 18) // max(net.widths))
    small = None
    if not by_lines and not plan.job.switches and SmallForms.suits(net):
        turn = plan.source.turn
        small = SmallForms(net, plan.job.forms, np.eye(net.n_inputs) if turn is None else turn)
        chunk = min(chunk, _SMALL_CHUNK)
    tracer = plan.tracer or Tracer(net, plan.job.forms, reach=plan.component.reach()) if by_lines else None
    if not alone(jobs) and n > chunk:
        _run_together(plan, tracer, small, draws, (each, groups, chunk), rng, tally, jobs)
        tally.seconds += time.thread_time() - started
        return tally
    room = np.empty((chunk, dimensions))
    for parts, fills in batches(each, groups, chunk):
        look()
        for group, begin, end in fills:
            draws.fill(group, room[begin:end])
        rows = room[: fills[-1][2]]
        if tracer is not None:
            tally.add_lines(tracer, plan.source.lines(rows, rng), parts)
        elif small is not None:
            turned = plan.source.turn is not None
            tally.add_outputs(small(normals(rows) if turned else plan.source.points(rows, rng)), parts)
        else:
            tally.add_points(plan.source.points(rows, rng), parts)
    tally.seconds = time.thread_time() - started
    return tally


def _run_together(
    plan: LinePlan,
    tracer: Tracer | None,
    small: SmallForms | None,
    draws: Any,
    counts: tuple[int, int, int],
    rng: np.random.Generator,
    tally: Tally,
    jobs: int,
) -> None:
    """The same draws in the same batches; workers trace or evaluate them, and their sums are added in order.

    Scrambled points are drawn by the workers, each from its place in the sequence; other draws follow one another, and
    are made here.
    """
    by_lines, source = tracer is not None, plan.source
    own = PerThread((tracer or Tracer(plan.component.network, plan.job.forms, reach=plan.component.reach())).twin)
    placed = isinstance(draws, SobolDraws) and not source.draws_more

    def drawn(fills: Any, write: Callable[[Any, FloatArray], None]) -> Any:
        rows = np.empty((fills[-1][2], draws.dimensions))
        for where, begin, end in fills:
            write(where, rows[begin:end])
        if by_lines:
            return source.lines(rows, rng)
        if small is not None and source.turn is not None:
            return normals(rows)
        return source.points(rows, rng)

    def tasks() -> Iterator[tuple[Any, Any]]:
        for parts, fills in batches(*counts):
            yield _places(draws, fills) if placed else drawn(fills, draws.fill), parts

    def work(some: list[tuple[Any, Any]]) -> list[Tally]:
        out = []
        for given, parts in some:
            look()
            started = time.thread_time()
            part = tally.part()
            rows = drawn(given, draws.write) if placed else given
            if by_lines:
                part.add_lines(own(), rows, parts)
            elif small is not None:
                part.add_outputs(small(rows), parts)
            else:
                part.add_points(rows, parts)
            part.seconds = time.thread_time() - started
            out.append(part)
        return out

    each, groups, chunk = counts
    at_once = _AT_ONCE
    if on_cluster():
        at_once = max(_AT_ONCE, min(each * groups // (_TURNS * jobs * chunk), _MOST_AT_ONCE))
    for parts in run(work, _several(tasks(), at_once), jobs=jobs):
        for part in parts:
            tally.add(part)
            tally.seconds += part.seconds


def _places(draws: SobolDraws, fills: Any) -> list[tuple[Any, int, int]]:
    """The places of the points of a batch, and where in the batch they go."""
    return [(draws.place(group, end - begin), begin, end) for group, begin, end in fills]


def _several(tasks: Iterator[Any], n: int) -> Iterator[list[Any]]:
    """The tasks in lists of n."""
    while some := list(itertools.islice(tasks, n)):
        yield some


def single_forms(plan: LinePlan) -> SingleForms | None:
    """The forms in single precision, where only sides of thresholds are asked for and it pays."""
    job, net, turn = plan.job, plan.component.network, plan.source.turn
    if turn is None or job.switches or len(job.moment_forms) or job.atom_forms or job.density:
        return None
    return SingleForms.suited(net, job.forms, turn, job.limits)


def _run_single(single: SingleForms, draws: Any, each: int, groups: int, tally: Tally) -> None:
    """All points in single precision."""
    chunk = int(np.clip(_SINGLE_BITS // draws.dimensions, 1024, 16384)) // SIDE * SIDE
    bits = np.zeros((draws.dimensions, chunk), np.uint32)
    for parts, fills in batches(each, groups, chunk):
        look()
        for group, begin, end in fills:
            draws.fill_bits(group, bits, begin, end)
        tally.add_outputs(single(bits, fills[-1][2]), parts)


def _run_single_together(single: SingleForms, draws: Any, each: int, groups: int, tally: Tally, jobs: int) -> None:
    """The same by several workers."""
    chunk = int(np.clip(_SINGLE_BITS // draws.dimensions, 1024, 16384)) // SIDE * SIDE
    own = PerThread(single.twin)
    placed = isinstance(draws, SobolDraws)

    def drawn(fills: Any, write: Callable[..., None]) -> Any:
        bits = np.zeros((draws.dimensions, chunk), np.uint32)
        for where, begin, end in fills:
            write(where, bits, begin, end)
        return bits

    def tasks() -> Iterator[tuple[Any, Any, int]]:
        for parts, fills in batches(each, groups, chunk):
            yield parts, _places(draws, fills) if placed else drawn(fills, draws.fill_bits), fills[-1][2]

    def work(task: tuple[Any, Any, int]) -> Tally:
        look()
        started = time.thread_time()
        parts, given, n = task
        part = tally.part()
        part.add_outputs(own()(drawn(given, draws.write_bits) if placed else given, n), parts)
        part.seconds = time.thread_time() - started
        return part

    for part in run(work, tasks(), jobs=jobs):
        tally.add(part)
        tally.seconds += part.seconds


def per_scramble_of(interval: str, groups: int) -> int:
    """How many groups share a scramble for each kind of interval; 0 for independent draws."""
    return {"replicate": 1, "block": groups, "finite-sample": 0}[interval]
