"""All cells at once: exact integration along random lines.

In standard coordinates u ~ N(0, I_r) write `u = t d + v` with a unit vector d and v across it. For any g,

    E g(u) = E_v [ integral g(v + t d) phi(t) dt ],

and along the line the network is piecewise linear, so the inner integral is a closed form for output probabilities,
densities, moments and masses of activation patterns, all from one trace (`measure/shared/trace.py`). The outer mean is
over r - 1 coordinates, by scrambled Sobol points: integrating along d has made the integrand smooth, so they converge
fast when d is a direction in which the output changes much. Lines through the origin (`direction="radial"`) suit rare
events.

Three kinds of interval, named in the answer, each for one quantity fixed beforehand:

- `"replicate"`: Student's t from independent scrambles, plus an allowance for kinds of lines not yet seen: such
  lines have probability at most `log(2 / (1 - level)) / lines` (the bound for independent lines, at any number of
  them), and are taken to contribute no more than the most, and no less than the least, that was met on any line. A
  probability that is 0 (or 1) on every line may be anything on an unmet one, so its interval has width
  `log(2 / (1 - level)) / lines`, never 0. A density at a value that no line has reached has no upper
  bound. Asymptotic; its coverage is tested.
- `"block"`: one scrambled sequence, cut into blocks; the same interval from the blocks. The value is as accurate as the
  whole sequence, up to four times better than that of as many points in 16 scrambles; the interval is about the same,
  and so too wide rather than too narrow, because blocks of one sequence make up for one another's errors. Asymptotic;
  its coverage is tested.
- `"finite-sample"`: independent lines or points, contributions in [0, 1] (aimed points: [0, 4]), their number fixed
  beforehand. Holds at any size. Points are counted, and have the exact binomial interval; all others are bet on
  (`intervals.bounded_mean`). With a budget, the value comes from a second run, of 30 % of the time: one scrambled
  sequence, as for "block", which is several times closer to the truth than independent draws; it is moved to the end
  of the interval in the rare case that it is outside. A single event has points in boxes instead, where these promise
  a narrower interval (`reluscope.measure.points.strata`); then they give the value too.

Where lines are cut at six or seven standard deviations, every interval is widened by what is beyond, and all of them
by rounding.

The pilot that chooses direction, method and size is never part of the answer.

Where lines do not pay (no direction in which the output changes much, or many layers), Sobol points are taken instead,
in coordinates turned so that the first ones move the outputs most. If levels and events are all that is asked for under
a Gaussian, most points are done in single precision, those near a threshold again in double
(`reluscope.measure.points.single`), several times faster than a matrix product per layer. If at least half of these
levels and events are rare, points are also aimed at them, and weighted (`reluscope.measure.points.aimed`). A part of a
rare event that neither the search nor a point of the law itself has met (an eighth of the points or more) is then not
in the estimate; the interval allows for it as for lines that were not met. Variance that few heavy points would show
is taken from the search's own points, and widens the interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray, choice, describe, generator, integer, real
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.events import Event, PlacedEvent, place_together
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.lines.records import Atoms as Atoms
from reluscope.measure.lines.records import Integrals as Integrals
from reluscope.measure.lines.records import Levels as Levels
from reluscope.measure.lines.records import PatternMasses as PatternMasses
from reluscope.measure.lines.records import Request as Request
from reluscope.measure.lines.records import level_map
from reluscope.network import Network, Pattern
from reluscope.pace import by_the_clock, counting, cpu_now, now
from reluscope.threads import blas_threads, look
from reluscope.workers import sharing, together

if TYPE_CHECKING:
    from reluscope.inputs import Component, Law
    from reluscope.measure.shared import Job, Source, Tally

REPLICATES = 16


def integrate(
    net: Network,
    law: Law,
    request: Request,
    *,
    lines: int | None = None,
    tolerance: float | None = None,
    budget: Any = "1s",
    interval: str = "replicate",
    level: float = DEFAULT_LEVEL,
    method: str = "auto",
    direction: Any = "auto",
    replicates: int = REPLICATES,
    components: Sequence[Component] | None = None,
    rng: Any = None,
) -> Integrals:
    """Everything in `request` about `y = net(x)`, `x` from `law`, by lines or points, with intervals.

    `lines` fixes the number of lines (or points) in all; then the answer depends on `rng` alone. Else a pilot sets it
    so that the run fills `budget`, or less where half widths of probabilities below `tolerance` are reached sooner.
    `method`: "lines", "points", "aimed" (points aimed at what is rare, plain ones where nothing is or it cannot be
    done: finite-sample intervals, laws that are no Gaussians, other quantities than levels and events), or "auto",
    which lets the pilot choose by predicted variance (with `lines` given: lines). `direction`: "gradient" (leading
    eigenvector of the mean outer product of gradients), "mean" (mean gradient), "edge" (gradients near the levels
    and events), "tail" (towards the rarest level or event), "radial", "random", a vector in the component's
    coordinates, or "auto": the pilot chooses among all but "random" (with `lines` given: "edge" if it applies).
    Laws on boxes have lines along an axis.

    `interval`: "replicate" (independent scrambles; asymptotic, coverage tested), "block" (one sequence: a better value
    with about the same interval) or "finite-sample" (independent lines; levels, events, marginals and patterns only;
    holds at any number of lines, and is wider); the module says how each is made. `level` is each interval's own,
    not that of all of them together. Compilation is done before the budget's clock starts. `components`: those of
    `standard(law, net)`, where the caller has them (not with events, which have components of their own).

    Mixtures are sums over components, with effort in proportion to weight times spread. Cost per line: see
    `measure/shared/trace.py`. Particles, constant networks and laws that the network sees in one dimension are exact.
    """
    from reluscope.inputs import standard
    from reluscope.measure.lines.boxes import is_clear, make_strata, run_strata, suits
    from reluscope.measure.lines.estimates import AnswerMaker
    from reluscope.measure.lines.pilot import expected_of, half_width_of, make_plans, sharp_sizes, sizes_of, warm_up
    from reluscope.measure.lines.plan import INTERVAL_SHARE, Settings, per_scramble_of, run_plan

    look()
    started = time.perf_counter()
    choice(interval, "interval", ("replicate", "block", "finite-sample"))
    choice(method, "method", ("auto", "lines", "points", "aimed"))
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    replicates = integer(replicates, "replicates", low=2, high=4096)
    if lines is not None:
        lines = integer(lines, "lines", low=1, high=1 << 36)
    if tolerance is not None:
        tolerance = real(tolerance, "tolerance", low=0.0, open_=True)
    limit, rng = parse_budget(budget), generator(rng)
    _check_request(request, interval, method)
    placed = _placed(net, law, request.events)
    if placed:
        components = placed[0].components
    elif components is None:
        components = standard(law, net)
    job = job_of(net, request, placed)
    if lines is None and limit.seconds == np.inf and tolerance is None:
        raise InputError('give lines, tolerance or a budget such as "1s": without any of them there is no end')
    groups = 1 if interval == "finite-sample" else replicates
    whole = placed[0].network if placed else net
    sampled = [c for c in components if not _is_exact(c)]
    found: list[tuple[float, Tally]] = [
        (c.weight, _exact_tally(c, job).ending_in(whole)) for c in components if _is_exact(c)
    ]
    sharp: list[tuple[float, Tally]] = []
    expected: dict[str, tuple[FloatArray, FloatArray]] = {}
    note, chosen, name, value_by = "", "exact", "none", ""
    with blas_threads(max(net.widths)):
        if sampled:
            with by_the_clock():  # done once: a second run must not be another one
                warm_up(sampled[0], law, job, method)
            begin = now()
            settings = Settings(
                law, job, interval, replicates, method, direction, min(limit.seconds, 60.0), lines, len(sampled)
            )
            cpu = cpu_now()
            scout, rng = rng.spawn(2)
            with sharing(1):  # what a line costs
                boxed = make_strata(sampled, settings, tolerance, level, scout) if suits(sampled, settings) else None
                clear = boxed is not None and is_clear(boxed, settings.seconds, level)
                plans = [] if clear else make_plans(sampled, settings, scout)
            spent = now() - begin
            left = max(0.95 * (limit.seconds - spent), 0.25 * limit.seconds)
            if not counting():
                # The budget is time on the clock, costs are CPU time: the pilot shows how they compare just now.
                left *= np.clip((cpu_now() - cpu) / max(spent, 1e-9), 0.1, 1.0) * together()
            soon = min(left, settings.seconds)
            if boxed is not None and (clear or boxed.expected(soon, level) < half_width_of(plans, soon, settings)):
                fixed = sum((w * t.means()["events"][0] for w, t in found), np.zeros(1))
                in_boxes = run_strata(boxed, left, tolerance, fixed, level, rng)
                return replace(in_boxes, seconds=time.perf_counter() - started)
            chosen, name = plans[0].kind, plans[0].source.name if plans[0].method == "lines" else "none"
            two = interval == "finite-sample" and lines is None
            share = INTERVAL_SHARE if two else 1.0
            sizes, note = sizes_of(plans, lines, tolerance, level, share * left, settings)
            if two:
                expected = expected_of(plans, job)
                other, rng = rng.spawn(2)
                as_long = float(sum(n * p.cost for n, p in zip(sizes, plans, strict=True)))
                as_long = min(as_long, left) * (1.0 - share) / share
                best = [plan.sharp or plan for plan in plans]
                value_by = best[0].kind
                for plan, size in zip(best, sharp_sizes(best, level, as_long, settings), strict=True):
                    look()
                    tally = run_plan(plan, size, replicates, other, per_scramble_of("block", replicates))
                    sharp.append((plan.component.weight, tally.ending_in(whole)))
            if interval == "finite-sample":
                # Independent draws of the whole mixture: how many fall to each component is random too.
                shares = np.array([p.component.weight for p in plans])
                sizes = rng.multinomial(int(max(sum(sizes), 2)), shares / shares.sum()).tolist()
            for plan, size in zip(plans, sizes, strict=True):
                look()
                if size:
                    tally = run_plan(plan, int(size), groups, rng, per_scramble_of(interval, groups))
                    found.append((plan.component.weight, tally.ending_in(whole)))
    kind = interval if sampled else "exact"
    units = placed[0].units if placed else np.arange(net.n_units)
    weight = sum(c.weight for c in sampled)
    answer = AnswerMaker(found, job, net, units, kind, level, groups, weight, sharp, expected)
    seconds = time.perf_counter() - started
    return answer.record(chosen, name, seconds, note, request, value_by)


def segment_patterns(
    net: Network, law: Law, lines: int, *, direction: Any = "gradient", rng: Any = None
) -> Iterator[tuple[float, Network, FloatArray, Pattern]]:
    """Random lines as weighted patterns, in batches `(weight, network, mass, pattern)`.

    `network` is the component's network in standard coordinates, `mass` (k,) the masses of the segments of a batch of
    lines and `pattern` (k, units) the pieces on them. With `weight` times `mass` the whole sums to 1 (in expectation:
    every line to its share), so that `sum(weight * mass * g(network.output_maps(pattern)[0]))` estimates E
    g(Jacobian).
    """
    from reluscope.inputs import standard
    from reluscope.measure.lines.directions import sources_of
    from reluscope.measure.lines.plan import CHUNK, Settings
    from reluscope.measure.shared import SobolDraws, Tracer, segment_masses

    rng = generator(rng)
    count = integer(lines, "lines", low=1)
    components = standard(law, net)
    job = job_of(net, Request(levels={o: [0.0] for o in range(net.n_outputs)}))
    settings = Settings(law, job, "block", 1, "lines", direction, 1.0)
    for component in components:
        n = max(1, round(count * component.weight))
        if component.kind == "point" or component.r == 0:
            points, weights = _atoms_of(component)
            yield component.weight, component.network, weights, component.network.pattern(points)
            continue
        source = sources_of(component, settings, rng, single=True)[0] if component.r > 1 else _only_line(component)
        tracer, draws = (
            Tracer(component.network, job.forms, reach=component.reach()),
            SobolDraws(source.dimensions, 1, n, rng),
        )
        for begin in range(0, n, CHUNK):
            uniforms = np.empty((min(CHUNK, n - begin), source.dimensions))
            draws.fill(0, uniforms)
            batch = source.lines(uniforms, rng)
            found = tracer(batch.base, batch.direction, batch.low, batch.high, switches=True)
            mass = np.zeros(len(found.t))
            r = component.network.n_inputs
            segment_masses(batch.law, r, found.offsets, found.t, batch.high, batch.scale, mass)
            yield component.weight / n, component.network, mass, found.patterns()


# -- requests ----------------------------------------------------------------------------------------------------


def _check_request(request: Request, interval: str, method: str) -> None:
    if not isinstance(request, Request):
        raise InputError(f"request must be a Request, got {describe(request)}")
    if interval == "finite-sample" and (request.moments or request.density):
        raise InputError(
            'interval="finite-sample" needs quantities between 0 and 1; moments and densities have no bound: '
            'ask for them with interval="replicate"'
        )
    if method in ("points", "aimed") and (request.density or request.atoms):
        raise InputError(f'method="{method}" gives no densities and no atoms; use method="lines"')


def _placed(net: Network, law: Law, events: Sequence[Event | PlacedEvent]) -> tuple[PlacedEvent, ...]:
    """The events of a request on one network."""
    ready = [e for e in events if isinstance(e, PlacedEvent)]
    if ready and (
        len(ready) < len(events) or any(e.network is not ready[0].network or e.law is not law for e in ready)
    ):
        raise InputError("events of one request are all placed together on its law, or all not yet placed")
    for event in ready or events:
        if not isinstance(event, (Event, PlacedEvent)):
            raise InputError(f"events must hold Event records, got {describe(event)}")
        (event.event if isinstance(event, PlacedEvent) else event).on_inputs_and_outputs()
    return tuple(ready) or place_together(net, law, [e for e in events if isinstance(e, Event)])


def job_of(net: Network, request: Request, placed: Sequence[PlacedEvent] = ()) -> Job:
    """A request as the kernels read it, its events placed."""
    from reluscope.measure.shared import Job, form_rows

    forms: list[FloatArray] = []

    def form(row: FloatArray) -> int:
        for i, known in enumerate(forms):
            if np.array_equal(known, row):
                return i
        forms.append(row)
        return len(forms) - 1

    unit = np.eye(net.n_outputs, (placed[0].network if placed else net).n_outputs)
    levels = level_map(net, request.levels)
    level_forms = tuple(form(unit[o]) for o in levels)
    rows = form_rows(placed, form)
    moment_forms = np.array([form(row) for row in unit] if request.moments else [], np.int64)
    atom_forms = tuple(form(row) for row in unit) if request.atoms else ()
    patterns = integer(request.patterns, "patterns", low=0, high=1 << 24)
    if not (levels or rows.count or request.moments or request.marginals or patterns or request.atoms):
        raise InputError("request asks for nothing; give levels, events, moments, marginals, patterns or atoms")
    if not forms:
        form(unit[0])
    return Job(
        np.array(forms), level_forms, tuple(levels.values()), bool(request.density and levels), rows, moment_forms,
        bool(request.marginals), patterns, atom_forms,
    )  # fmt: skip


# -- components without sampling ---------------------------------------------------------------------------------


def _is_exact(component: Component) -> bool:
    return component.kind == "point" or component.r <= 1


def _atoms_of(component: Component) -> tuple[FloatArray, FloatArray]:
    """Points and weights of a component that is finitely many points."""
    if component.kind == "point":
        assert component.points is not None and component.point_weights is not None
        return component.points, component.point_weights
    return np.zeros((1, component.network.n_inputs)), np.ones(1)


def _only_line(component: Component) -> Source:
    from reluscope.measure.shared import BoxLines, ChordLines, GaussianLines

    if component.kind == "gaussian":
        return GaussianLines(np.eye(1), "all")
    return BoxLines(component, 0) if component.rows is None else ChordLines(component, np.ones(1))


def _exact_tally(component: Component, job: Job) -> Tally:
    from reluscope.measure.shared import Tally, Tracer

    tally = Tally(job, component.network, 1, component.lead)
    if component.kind == "point" or component.r == 0:
        points, weights = _atoms_of(component)
        tally.add_weighted_points(points, weights)
    else:
        source = _only_line(component)
        tally.add_lines(
            Tracer(component.network, job.forms, reach=component.reach()),
            source.lines(np.zeros((1, 0)), generator(0)),
            [(0, 1)],
        )
        tally.replicates_are_draws = False
    return tally
