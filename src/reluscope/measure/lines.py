"""All cells at once: exact integration along random lines.

In standard coordinates u ~ N(0, I_r) write `u = t d + v` with a unit vector d and v across it. For any g,

    E g(u) = E_v [ integral g(v + t d) phi(t) dt ],

and along the line the network is piecewise linear, so the inner integral is a closed form for output probabilities,
densities, moments and masses of activation patterns, all from one trace (`reluscope.measure.trace`). The outer mean is over r - 1
coordinates, by scrambled Sobol points: integrating along d has made the integrand smooth, so they converge fast when d is
a direction in which the output changes much. Lines through the origin (`direction="radial"`) suit rare events.

Three kinds of interval, named in the answer, each for one quantity fixed beforehand:

- `"replicate"`: Student's t from independent scrambles. Asymptotic; its coverage is tested.
- `"block"`: one scrambled sequence, cut into blocks; Student's t from the blocks. The value has the accuracy of the whole sequence,
  two to four times better than that of as many points in 16 scrambles; the interval is about the same, and so too wide rather
  than too narrow, because blocks of one sequence make up for one another's errors. Asymptotic; its coverage is tested.
- `"finite-sample"`: independent lines, contributions in [0, 1], number of lines fixed beforehand. Holds at any size: the
  intersection of an empirical Bernstein bound and a Chernoff bound, each side and each bound at a quarter of 1 - level.

The pilot that chooses direction, method and size is never part of the answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, generator, integer, real, real_array
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.network import Network, Pattern
from reluscope.parallel import blas_threads

if TYPE_CHECKING:
    from reluscope.inputs._standard import Component
    from reluscope.measure._line_draws import Source
    from reluscope.measure._line_tally import Job, Tally

REPLICATES = 16
CHUNK = 256
"""Lines traced together: their segments stay in the cache."""

_PILOT_POINTS = 4096
_RARE = 0.1
_MOST_AIMS = 4
_RACE_LINES = 32
_PILOT_BLOCKS = 8
_PILOT_SHARE = 0.04
_LONGEST_PILOT = 2.0
_LINE_SLOPE, _POINT_SLOPE = 1.5, 1.2
_MANY_COMPONENTS = 16
_SMALLEST_SAMPLE = 4
_EXACT_ERROR = 1e-12


@dataclass(frozen=True, eq=False)
class Event:
    """A union of conjunctions of half-spaces of the output: `G y <= h` for some (G, h) in `parts`.

    With `strict` rows hold with `<`; it matters only where the output's law has atoms.
    """

    parts: tuple[tuple[FloatArray, FloatArray], ...]
    strict: bool = False

    @classmethod
    def below(cls, G: npt.ArrayLike, h: npt.ArrayLike, *, strict: bool = False) -> Event:
        """The conjunction `G y <= h`; one row may be given as a vector and a number."""
        rows = np.atleast_2d(real_array(G, "G", ndim=(1, 2)))
        bounds = np.atleast_1d(real_array(h, "h", ndim=(0, 1)))
        if len(rows) != len(bounds):
            raise InputError(f"G and h must have equally many rows, got {len(rows)} and {len(bounds)}")
        return cls(((rows, bounds),), strict)

    @classmethod
    def largest(cls, output: int, n_outputs: int) -> Event:
        """`y[output]` is the largest output."""
        output = integer(output, "output", low=0, high=integer(n_outputs, "n_outputs", low=1) - 1)
        rows = np.delete(np.eye(n_outputs), output, axis=0)
        rows[:, output] = -1.0
        return cls(((rows, np.zeros(n_outputs - 1)),))

    def __or__(self, other: Event) -> Event:
        if not isinstance(other, Event) or other.strict != self.strict:
            return NotImplemented
        return Event(self.parts + other.parts, self.strict)


@dataclass(frozen=True, eq=False)
class Request:
    """What to integrate.

    `levels`: thresholds by output, `{output: thresholds}`, or plain thresholds for a single output; gives P(y <= c) and
    P(y > c), and with `density=True` the density of y at c. `events`: probabilities of `Event`s. `moments`: E y and E y y'.
    `marginals`: P(unit on piece p) for every hidden unit. `patterns`: masses of activation patterns, at most so many
    different ones kept. `atoms`: values that outputs take with positive probability.
    """

    levels: Any = None
    density: bool = False
    events: Sequence[Event] = ()
    moments: bool = False
    marginals: bool = False
    patterns: int = 0
    atoms: bool = False


@dataclass(frozen=True, eq=False)
class Estimate:
    """Arrays `value`, `lower`, `upper` of one shape."""

    value: FloatArray
    lower: FloatArray
    upper: FloatArray

    def __repr__(self) -> str:
        with np.printoptions(precision=6, threshold=6):
            return f"Estimate({self.value}, half widths {0.5 * (self.upper - self.lower)})"


@dataclass(frozen=True, eq=False)
class Levels:
    """P(y <= c) `cdf`, P(y > c) `sf` and the density `pdf` (None if not asked for) at `thresholds`, which are sorted."""

    thresholds: FloatArray
    cdf: Estimate
    sf: Estimate
    pdf: Estimate | None


@dataclass(frozen=True, eq=False)
class PatternMasses:
    """Patterns met, the heaviest first, with their masses; `rest` is the mass of patterns met but not kept."""

    pattern: Pattern
    mass: Estimate
    rest: float


@dataclass(frozen=True, eq=False)
class Atoms:
    """Values that an output takes with positive probability, and those probabilities."""

    value: FloatArray
    mass: Estimate


@dataclass(frozen=True, eq=False)
class Integrals:
    """The answer of `integrate`.

    `interval` is "replicate", "block", "finite-sample" (see the module) or "exact" (one line or finitely many points say it all);
    `method` names lines or points, `direction` how the lines run (of the first component), `lines` how many lines or points were used.
    """

    levels: Mapping[int, Levels]
    events: Estimate | None
    mean: Estimate | None
    second: Estimate | None
    marginals: Estimate | None
    patterns: PatternMasses | None
    atoms: Mapping[int, Atoms]
    interval: str
    level: float
    method: str
    direction: str
    lines: int
    replicates: int
    seconds: float
    note: str = ""

    def __repr__(self) -> str:
        return (
            f"Integrals({self.method}, {self.lines:,} in {self.replicates} groups, direction {self.direction}, "
            f"{self.interval} {100 * self.level:g} %, {self.seconds:.3g} s)"
        )


def integrate(
    net: Network,
    law: Any,
    request: Request,
    *,
    lines: int | None = None,
    tolerance: float | None = None,
    budget: Any = "1s",
    interval: str = "replicate",
    level: float = 0.95,
    method: str = "auto",
    direction: Any = "auto",
    replicates: int = REPLICATES,
    rng: Any = None,
) -> Integrals:
    """Everything in `request` about `y = net(x)`, `x` from `law`, by lines or points, with intervals.

    `lines` fixes the number of lines (or points) in all; else a pilot sets it so that the run fills `budget`, or less where
    half widths of probabilities below `tolerance` are reached sooner. `method`: "lines", "points", or "auto", which lets
    the pilot choose by variance times cost. `direction`: "gradient" (leading eigenvector of the mean outer
    product of gradients), "mean" (mean gradient), "edge" (gradients near
    the levels and events), "tail" (towards the rarest level or event), "radial", "random", a vector in the
    component's coordinates, or "auto": the pilot chooses among all but "random". Laws on boxes have lines along an axis.

    Mixtures are sums over components, with effort in proportion to weight times spread. Cost per line: see
    `reluscope.measure.trace`. Particles, constant networks and laws that the network sees in one dimension are exact.
    """
    from reluscope.inputs import standard

    started = time.perf_counter()
    choice(interval, "interval", ("replicate", "block", "finite-sample"))
    choice(method, "method", ("auto", "lines", "points"))
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    replicates = integer(replicates, "replicates", low=2, high=4096)
    if lines is not None:
        lines = integer(lines, "lines", low=1, high=1 << 36)
    if tolerance is not None:
        tolerance = real(tolerance, "tolerance", low=0.0, open_=True)
    limit, rng = parse_budget(budget), generator(rng)
    components = standard(law, net)
    job = _job(net, request)
    _check_request(request, interval, method)
    if lines is None and limit.seconds == np.inf and tolerance is None:
        raise InputError('give lines, tolerance or a budget such as "1s": without any of them there is no end')
    groups = 1 if interval == "finite-sample" else replicates
    exact = [(c, _exact_tally(c, law, job, groups)) for c in components if _is_exact(c)]
    sampled = [c for c in components if not _is_exact(c)]
    found: list[tuple[float, Tally]] = [(c.weight, tally) for c, tally in exact]
    note, chosen, name = "", "exact", "none"
    with blas_threads(max(net.widths)):
        if sampled:
            settings = _Settings(law, job, interval, replicates, method, direction, _horizon(limit.seconds, lines))
            cpu = time.thread_time()
            plans = _plans(sampled, settings, rng)
            chosen, name = plans[0].method, plans[0].source.name if plans[0].method == "lines" else "none"
            spent = time.perf_counter() - started
            # The budget is time on the clock, costs are CPU time: the pilot shows how they compare just now.
            pace = np.clip((time.thread_time() - cpu) / max(spent, 1e-9), 0.1, 1.0)
            sizes, note = _sizes(plans, lines, tolerance, level, 0.95 * pace * (limit.seconds - spent), settings)
            if interval == "finite-sample":
                # Independent draws of the whole mixture: how many fall to each component is random too.
                shares = np.array([p.component.weight for p in plans])
                sizes = rng.multinomial(int(max(sum(sizes), 2)), shares / shares.sum()).tolist()
            for plan, size in zip(plans, sizes, strict=True):
                if size:
                    tally = _run(plan, int(size), groups, rng, interval)
                    found.append((plan.component.weight, tally))
    kind = interval if sampled else "exact"
    answer = _Answer(found, job, net, kind, level, groups)
    seconds = time.perf_counter() - started
    return answer.record(chosen, name, seconds, note, request)


def _horizon(seconds: float, lines: int | None) -> float:
    """The time that the pilot plans for: the budget, or about that of a given number of lines."""
    return min(seconds, 60.0) if lines is None else 1e-5 * lines


def segment_patterns(
    net: Network, law: Any, lines: int, *, direction: Any = "gradient", rng: Any = None
) -> Iterator[tuple[float, Network, FloatArray, Pattern]]:
    """Random lines as weighted patterns, in batches `(weight, network, mass, pattern)`.

    `network` is the component's network in standard coordinates, `mass` (k,) the masses of the segments of a batch of lines and
    `pattern` (k, units) the pieces on them. With `weight` times `mass` the whole sums to 1 (in expectation: every line to its
    share), so that `sum(weight * mass * g(network.output_maps(pattern)[0]))` estimates E g(Jacobian).
    """
    from reluscope.inputs import standard
    from reluscope.measure import line_sums
    from reluscope.measure._line_draws import SobolDraws
    from reluscope.measure.trace import Tracer

    rng = generator(rng)
    count = integer(lines, "lines", low=1)
    components = standard(law, net)
    job = _job(net, Request(levels={o: [0.0] for o in range(net.n_outputs)}))
    settings = _Settings(law, job, "block", 1, "lines", direction, 1.0)
    for component in components:
        n = max(1, round(count * component.weight))
        if component.kind == "point" or component.r == 0:
            points, weights = _atoms_of(component)
            yield component.weight, component.network, weights, component.network.pattern(points)
            continue
        source = _sources(component, settings, rng, single=True)[0] if component.r > 1 else _only_line(component, law)
        tracer, draws = Tracer(component.network, job.forms), SobolDraws(source.dimensions, 1, n, rng)
        for begin in range(0, n, CHUNK):
            batch = source.lines(draws(0, min(CHUNK, n - begin)), rng)
            found = tracer(batch.base, batch.direction, batch.low, batch.high, switches=True)
            mass = np.zeros(len(found.t))
            r = component.network.n_inputs
            line_sums.segment_masses(batch.law, r, found.offsets, found.t, batch.high, batch.scale, mass)
            yield component.weight / n, component.network, mass, found.patterns()


# -- requests ----------------------------------------------------------------------------------------------------


def _check_request(request: Request, interval: str, method: str) -> None:
    if interval == "finite-sample" and (request.moments or request.density):
        raise InputError(
            'interval="finite-sample" needs quantities between 0 and 1; moments and densities have no bound: '
            'ask for them with interval="replicate"'
        )
    if method == "points" and (request.density or request.atoms):
        raise InputError('method="points" gives no densities and no atoms; use method="lines"')


def _job(net: Network, request: Request) -> Job:
    from reluscope.measure._line_tally import Job

    if not isinstance(request, Request):
        raise InputError(f"request must be a Request, got {describe(request)}")
    forms: list[FloatArray] = []

    def form(row: FloatArray) -> int:
        for i, known in enumerate(forms):
            if np.array_equal(known, row):
                return i
        forms.append(row)
        return len(forms) - 1

    unit = np.eye(net.n_outputs)
    levels = _level_map(net, request.levels)
    level_forms = tuple(form(unit[o]) for o in levels)
    rows = _rows(net, request.events, form)
    moment_forms = np.array([form(row) for row in unit] if request.moments else [], np.int64)
    atom_forms = tuple(form(row) for row in unit) if request.atoms else ()
    patterns = integer(request.patterns, "patterns", low=0, high=1 << 24)
    if not (levels or rows.count or request.moments or request.marginals or patterns or request.atoms):
        raise InputError("request asks for nothing; give levels, events, moments, marginals, patterns or atoms")
    if not forms:
        form(unit[0])
    return Job(
        np.array(forms), level_forms, tuple(levels.values()), bool(request.density) and bool(levels), rows, moment_forms,
        bool(request.marginals), patterns, atom_forms,
    )  # fmt: skip


def _level_map(net: Network, levels: Any) -> dict[int, FloatArray]:
    if levels is None:
        return {}
    if not isinstance(levels, Mapping):
        if net.n_outputs != 1:
            raise InputError(f"levels must be {{output: thresholds}} for a network with {net.n_outputs} outputs")
        levels = {0: levels}
    out = {}
    for output, thresholds in levels.items():
        o = integer(output, "output in levels", low=0, high=net.n_outputs - 1)
        out[o] = np.sort(np.atleast_1d(real_array(thresholds, f"levels[{o}]", ndim=(0, 1))))
    return {o: c for o, c in out.items() if len(c)}


def _rows(net: Network, events: Sequence[Event], form: Any) -> Any:
    from reluscope.measure._line_tally import Rows

    index: dict[tuple[int, float, bool], int] = {}
    members: list[list[int]] = []
    part_event, part_size = [], []
    for e, event in enumerate(events):
        if not isinstance(event, Event):
            raise InputError(f"events must hold Event records, got {describe(event)}")
        for G, h in event.parts:
            if G.shape[1] != net.n_outputs:
                raise InputError(f"an event has {G.shape[1]} columns but the network has {net.n_outputs} outputs")
            part = len(part_event)
            mine = set()
            for row, bound in zip(G, h, strict=True):
                key = (form(row), float(bound), event.strict)
                i = index.setdefault(key, len(index))
                if i == len(members):
                    members.append([])
                if i not in mine:
                    members[i].append(part)
                    mine.add(i)
            part_event.append(e)
            part_size.append(len(mine))
    keys = list(index)
    return Rows(
        np.array([k[0] for k in keys], np.int64),
        np.array([k[1] for k in keys], np.float64),
        np.array([k[2] for k in keys], np.bool_),
        np.array([p for m in members for p in m], np.int64),
        np.concatenate([[0], np.cumsum([len(m) for m in members])]).astype(np.int64),
        np.array(part_event, np.int64),
        np.array(part_size, np.int64),
        len(events),
    )


# -- components without sampling ---------------------------------------------------------------------------------


def _is_exact(component: Component) -> bool:
    return component.kind == "point" or component.r <= 1


def _atoms_of(component: Component) -> tuple[FloatArray, FloatArray]:
    """Points and weights of a component that is finitely many points."""
    if component.kind == "point":
        assert component.points is not None and component.point_weights is not None
        return component.points, component.point_weights
    return np.zeros((1, component.network.n_inputs)), np.ones(1)


def _only_line(component: Component, law: Any) -> Source:
    from reluscope.measure._line_draws import BoxLines, ChordLines, GaussianLines

    if component.kind == "gaussian":
        return GaussianLines(np.eye(1), "all")
    return BoxLines(component, 0) if component.rows is None else ChordLines(component, law, np.ones(1))


def _exact_tally(component: Component, law: Any, job: Job, groups: int) -> Tally:
    from reluscope.measure._line_tally import Tally
    from reluscope.measure.trace import Tracer

    tally = Tally(job, component.network, 1)
    if component.kind == "point" or component.r == 0:
        points, weights = _atoms_of(component)
        tally.add_weighted_points(points, weights)
    else:
        source = _only_line(component, law)
        tally.add_lines(Tracer(component.network, job.forms), source.lines(np.zeros((1, 0)), generator(0)), 0)
        tally.replicates_are_draws = False
    return tally


# -- choosing how ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Settings:
    law: Any
    job: Job
    interval: str
    replicates: int
    method: str
    direction: Any
    seconds: float


@dataclass(frozen=True, eq=False)
class _Plan:
    """A way to treat one component, with what a pilot run of n lines (or points) in each of many scrambles has shown."""

    component: Component
    source: Source
    method: str
    job: Job
    n: int = 0
    cost: float = 0.0
    """Seconds of CPU per line."""
    variance: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Variance of the mean of one scramble, for each quantity."""
    single: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Variance of one line."""
    slope: float = 1.0
    """How fast the variance falls with the number of lines: as `n ** -slope`."""

    def predicted(self, seconds: float, settings: _Settings) -> FloatArray:
        """The variance of each quantity after a run of the given CPU time."""
        lines = max(seconds / self.cost, 1.0)
        if settings.interval == "finite-sample":
            return self.single / lines
        if settings.interval == "block":
            return self.variance * max(lines / self.n, 1e-3) ** -self.slope
        each = lines / settings.replicates
        return self.variance * max(each / self.n, 1e-3) ** -self.slope / settings.replicates


def _plans(components: list[Component], settings: _Settings, rng: np.random.Generator) -> list[_Plan]:
    """One plan per component. With many components only the heaviest are piloted; the others follow their lead."""
    order = np.argsort([-c.weight for c in components], kind="stable").tolist()
    plans: dict[int, _Plan] = {}
    for rank, k in enumerate(order):
        if rank < _MANY_COMPONENTS:
            plans[k] = _plan(components[k], settings, rng, settings.seconds / min(len(components), _MANY_COMPONENTS))
        else:
            source = _sources(components[k], settings, rng, single=True)[0]
            plans[k] = replace(plans[order[0]], component=components[k], source=source)
    return [plans[k] for k in range(len(components))]


def _plan(component: Component, settings: _Settings, rng: np.random.Generator, seconds: float) -> _Plan:
    """Race all directions on few lines, then the best two and points on more, and take the best for `seconds`."""
    sources = _sources(component, settings, rng, single=False)
    share = min(_PILOT_SHARE * seconds, _LONGEST_PILOT)
    if settings.method == "points":
        return _measured(_Plan(component, sources[0], "points", settings.job), settings, rng, share)
    starters = [_Plan(component, source, "lines", settings.job) for source in sources]
    _run(starters[0], 1, 1, rng, "finite-sample")  # compile before anything is timed
    runners = [_measured(plan, settings, rng, 0.0) for plan in starters]
    if len(runners) > 2:
        runners = _ranked(runners, seconds, settings)[:2]
    if settings.method == "auto" and not (settings.job.density or settings.job.atom_forms):
        runners.append(_Plan(component, sources[0], "points", settings.job))
    return _ranked([_measured(plan, settings, rng, share) for plan in runners], seconds, settings)[0]


def _measured(plan: _Plan, settings: _Settings, rng: np.random.Generator, seconds: float) -> _Plan:
    """The plan with its cost, variances and slope from a pilot of about `seconds` (at least a few lines a scramble).

    Each scramble is cut into blocks: how much less its mean varies than that of a block gives the slope, of which half is
    believed; the other half is what such integrands usually do.
    """
    scrambles = 16
    n = _RACE_LINES if plan.method == "lines" else 8 * _RACE_LINES
    while True:
        begin = time.thread_time()
        tallies = [_run(plan, n, _PILOT_BLOCKS, rng, "block") for _ in range(scrambles)]
        cost = max(time.thread_time() - begin, 1e-7) / (n * scrambles)
        if cost * n * scrambles >= 0.4 * seconds:
            break
        n = int(2 ** np.floor(np.log2(min(seconds / (cost * scrambles), 64 * n))))
    names = [k for k in ("below", "events", "first", "marginals") if k in tallies[0].total]
    blocks = np.array([np.concatenate([t.means()[k].reshape(_PILOT_BLOCKS, -1) for k in names], 1) for t in tallies]
                      if names else np.zeros((scrambles, _PILOT_BLOCKS, 0)))  # fmt: skip
    whole = blocks.mean(axis=1).var(axis=0, ddof=1)
    small = blocks.reshape(-1, blocks.shape[2]).var(axis=0, ddof=1)
    live = (whole > 0) & (small > 0)
    usual = _LINE_SLOPE if plan.method == "lines" else _POINT_SLOPE
    slope = usual
    if live.any():
        seen = float(np.log(small[live] / whole[live]).mean() / np.log(_PILOT_BLOCKS))
        slope = float(np.clip(0.5 * (seen + usual), 1.0, 2.0))
    count = n * scrambles
    mean = [np.sum([t.total[k].sum(axis=0) for t in tallies], axis=0).ravel() / count for k in names]
    square = [np.sum([t.square[k] for t in tallies], axis=0).ravel() / count for k in names]
    single = [np.maximum(q - m * m, 0.0) for q, m in zip(square, mean, strict=True)]
    return replace(
        plan, n=n, cost=cost, variance=whole, slope=slope, single=np.concatenate(single) if single else np.zeros(0)
    )


def _ranked(plans: list[_Plan], seconds: float, settings: _Settings) -> list[_Plan]:
    """Best first: by the mean logarithm of the predicted variances.

    A quantity that a plan never saw vary is taken at a hundredth of the largest prediction among the plans.
    """
    predicted = np.array([p.predicted(seconds, settings) for p in plans])
    if not predicted.shape[1]:
        return plans
    top = predicted.max(axis=0)
    live = top > 0
    if not live.any():
        return plans
    scores = np.log(np.maximum(predicted[:, live] / top[live], 1e-2)).mean(axis=1)
    return [plans[i] for i in np.argsort(scores, kind="stable")]


def _sources(component: Component, settings: _Settings, rng: np.random.Generator, *, single: bool) -> list[Source]:
    """Candidates for the lines' directions, the default first."""
    from reluscope.measure._line_draws import BoxLines, ChordLines, GaussianLines, RadialLines

    r = component.r
    wanted = settings.direction
    named = isinstance(wanted, str)
    if named:
        choice(wanted, "direction", ("auto", "gradient", "mean", "edge", "tail", "radial", "random"))
    if component.kind == "gaussian":
        probe: Source = GaussianLines(np.eye(r), "probe")
    elif component.rows is None:
        probe = BoxLines(component, 0)
    else:
        probe = ChordLines(component, settings.law, np.eye(r)[0])
    U = probe.points(rng.random((_PILOT_POINTS, probe.point_dimensions)), rng)
    G, Y = _gradients(component.network, U, settings.job)
    matrix = np.einsum("nfi,nfj->ij", G, G) / len(U)
    if component.kind != "gaussian" and component.rows is None:
        if not named:
            vector = _vector(wanted, r)
            axes = [int(np.argmax(np.abs(vector)))]
            if np.count_nonzero(vector) != 1:
                raise InputError("direction must be an axis for a law on a box: a vector with one entry that is not 0")
        else:
            importance = np.diag(matrix) * U.var(axis=0)
            axes = np.argsort(-importance)[: 1 if single or wanted != "auto" else 3].tolist()
            if wanted == "random":
                axes = [int(rng.integers(r))]
        return [BoxLines(component, i) for i in axes]
    directions: list[tuple[str, FloatArray]] = []
    if not named:
        directions.append(("given", _vector(wanted, r)))
    elif wanted == "random":
        directions.append(("random", rng.standard_normal(r)))
    else:
        leading = np.linalg.eigh(matrix)[1][:, -1]
        if wanted in ("auto", "gradient", "radial"):
            directions.append(("gradient", leading))
        if wanted in ("auto", "mean"):
            directions.append(("mean", G.mean(axis=(0, 1))))
        if wanted in ("auto", "tail", "edge"):
            directions += [aim for aim in _aims(U, Y, G, settings.job) if wanted in ("auto", aim[0])]
    frames = [(name, _frame(d, matrix)) for name, d in directions if np.linalg.norm(d) > 0]
    if not frames:
        frames = [("gradient", _frame(np.eye(r)[0], matrix))]
    if component.kind != "gaussian":
        return [ChordLines(component, settings.law, frame[:, 0].copy()) for _, frame in frames]
    sources: list[Source] = [GaussianLines(frame, name) for name, frame in frames]
    if named and wanted in ("auto", "radial"):
        sources.append(RadialLines(np.linalg.eigh(matrix)[1][:, ::-1]))
    if named and wanted == "radial":
        sources = sources[-1:]
    return sources[:1] if single else sources


def _vector(direction: Any, r: int) -> FloatArray:
    vector = real_array(direction, "direction", ndim=1)
    if len(vector) != r or not vector.any():
        raise InputError(f"direction must be a vector of {r} numbers, not all 0, got shape {vector.shape}")
    return vector


def _gradients(net: Network, U: FloatArray, job: Job) -> tuple[FloatArray, FloatArray]:
    """Gradients of the forms at the points, each form scaled to unit mean square, and the forms' values."""
    G = np.einsum("fo,noi->nfi", job.forms, net.jacobian(U))
    size = np.sqrt(np.einsum("nfi,nfi->f", G, G) / len(U))
    G = G / np.where(size > 0, size, 1.0)[:, None]
    return G, net(U) @ job.forms.T


def _aims(U: FloatArray, Y: FloatArray, G: FloatArray, job: Job) -> list[tuple[str, FloatArray]]:
    """Directions for the levels and events themselves, from the points nearest to them (at least one in 64).

    "tail": from the centre to the mean of those points, for levels and events that one point in ten or fewer reaches.
    "edge": the leading eigenvector of their mean outer product of gradients, over all levels and events.
    """
    near = max(16, len(U) // 64)
    tails: list[tuple[str, FloatArray]] = []
    edge = np.zeros((U.shape[1], U.shape[1]))
    aims: list[tuple[int, FloatArray]] = []
    for form, thresholds in zip(job.level_forms, job.thresholds, strict=True):
        aims += [(form, np.abs(Y[:, form] - c)) for c in thresholds]
        for side, c in ((1.0, thresholds[-1]), (-1.0, thresholds[0])):
            beyond = side * (Y[:, form] - c)
            if (beyond > 0).mean() < _RARE:
                chosen = np.argsort(-beyond)[: max(near, int((beyond > 0).sum()))]
                tails.append(("tail", U[chosen].mean(axis=0)))
    rows = job.rows
    if rows.count:
        scale = np.maximum(Y[:, rows.form].std(axis=0), 1e-300)
        excess = (Y[:, rows.form] - rows.bound) / scale
        members = np.zeros((len(rows.part_event), len(rows.form)), bool)
        for i in range(len(rows.form)):
            members[rows.parts[rows.part_start[i] : rows.part_start[i + 1]], i] = True
        for event in range(min(rows.count, _MOST_AIMS)):
            parts = [members[p] for p in np.flatnonzero(rows.part_event == event) if members[p].any()]
            if not parts:
                continue
            # How far outside: the worst row of a conjunction, the best conjunction of the union.
            outside = np.min([excess[:, m].max(axis=1) for m in parts], axis=0)
            worst = excess[:, parts[0]].argmax(axis=1)
            for row in np.unique(worst):
                form = int(rows.form[np.flatnonzero(parts[0])[row]])
                aims.append((form, np.where(worst == row, np.abs(outside), np.inf)))
            if (outside <= 0).mean() < _RARE:
                chosen = np.argsort(outside)[: max(near, int((outside <= 0).sum()))]
                tails.append(("tail", U[chosen].mean(axis=0)))
    for form, distance in aims:
        chosen = np.argsort(distance)[:near]
        chosen = chosen[np.isfinite(distance[chosen])]
        edge += np.einsum("ni,nj->ij", G[chosen, form], G[chosen, form])
    return [*tails[:_MOST_AIMS], *([("edge", np.linalg.eigh(edge)[1][:, -1])] if aims else [])]


def _frame(direction: FloatArray, matrix: FloatArray) -> FloatArray:
    """An orthonormal basis: the direction, then the directions across it in which the forms change most."""
    d = direction / np.linalg.norm(direction)
    across = np.eye(len(d)) - np.outer(d, d)
    vectors = np.linalg.eigh(across @ matrix @ across + across * (1e-9 * np.trace(matrix) + 1e-300))[1][:, ::-1]
    return np.linalg.qr(np.column_stack([d, vectors[:, : len(d) - 1]]))[0]


def _sizes(
    plans: list[_Plan],
    lines: int | None,
    tolerance: float | None,
    level: float,
    seconds: float,
    settings: _Settings,
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
        from scipy.special import ndtri

        z = float(ndtri(0.5 + 0.5 * level))
        # Variance sum w^2 s^2 / n with n = scale * effort; a quarter more than the pilot says, for its own noise.
        needed = 1.25 * (z / tolerance) ** 2 * ((weight * spread) ** 2 / effort).sum()
        if needed > scale:
            note = f"the budget ends before the tolerance of {tolerance:g} is expected to be reached"
        scale = min(scale, needed)
    return [_even(scale * e / groups) * groups for e in effort], note


def _even(n: float) -> int:
    """A Sobol-friendly number of at most n: four to seven times a power of two."""
    n = max(int(n), _SMALLEST_SAMPLE)
    unit = 1 << max(n.bit_length() - 3, 0)
    return n // unit * unit


# -- running -----------------------------------------------------------------------------------------------------


def _run(plan: _Plan, n: int, groups: int, rng: np.random.Generator, interval: str) -> Tally:
    """`n` lines or points in `groups` groups, drawn as the kind of interval demands."""
    from reluscope.measure._line_draws import IndependentDraws, SobolDraws
    from reluscope.measure._line_tally import Tally
    from reluscope.measure.trace import Tracer

    net, by_lines = plan.component.network, plan.method == "lines"
    tally = Tally(plan.job, net, groups)
    tracer = Tracer(net, plan.job.forms) if by_lines else None
    dimensions = plan.source.dimensions if by_lines else plan.source.point_dimensions
    each = -(-n // groups)
    draws: Any = IndependentDraws(dimensions, rng)
    if interval != "finite-sample":
        draws = SobolDraws(dimensions, groups, each, rng, one_sequence=interval == "block")
    chunk = CHUNK if by_lines else max(64, (1 << 18) // max(net.widths))
    for group in range(groups):
        for begin in range(0, each, chunk):
            uniforms = draws(group, min(chunk, each - begin))
            if tracer is not None:
                tally.add_lines(tracer, plan.source.lines(uniforms, rng), group)
            else:
                tally.add_points(plan.source.points(uniforms, rng), group)
    return tally


# -- answers -----------------------------------------------------------------------------------------------------


def bounded_mean(
    total: FloatArray, square: FloatArray, n: int, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean and a confidence interval from sums of n independent numbers in [0, 1] and of their squares; any n >= 2.

    The better of two bounds on each side, each at a quarter of 1 - level: empirical Bernstein,
    `sqrt(2 V log(2/d) / n) + 7 log(2/d) / (3 (n - 1))` (Maurer and Pontil 2009), and Chernoff, all q with
    `n KL(mean, q) <= log(1/d)`.
    """
    mean = np.clip(total / n, 0.0, 1.0)
    variance = np.maximum(square - n * mean * mean, 0.0) / (n - 1)
    d = 0.25 * (1.0 - level)
    width = np.sqrt(2.0 * variance * np.log(2.0 / d) / n) + 7.0 * np.log(2.0 / d) / (3.0 * (n - 1))
    reach = np.log(1.0 / d) / n
    lower, upper = _chernoff(mean, reach)
    return mean, np.maximum(mean - width, lower), np.minimum(mean + width, upper)


def _chernoff(mean: FloatArray, reach: float) -> tuple[FloatArray, FloatArray]:
    """The q below and above the mean with KL(mean, q) = reach, rounded outwards."""
    from scipy.special import rel_entr

    ends = []
    for side in (0.0, 1.0):
        near, far = mean.copy(), np.full_like(mean, side)
        for _ in range(60):
            middle = 0.5 * (near + far)
            inside = rel_entr(mean, middle) + rel_entr(1.0 - mean, 1.0 - middle) <= reach
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        ends.append(far)
    return ends[0], ends[1]


class _Answer:
    """Tallies of all components put together."""

    def __init__(
        self, found: list[tuple[float, Tally]], job: Job, net: Network, kind: str, level: float, groups: int
    ) -> None:
        self.found, self.job, self.net, self.kind, self.level = found, job, net, kind, level
        self.groups = groups

    def estimate(self, name: str) -> Estimate:
        """The estimate of one quantity of every tally."""
        if self.kind != "finite-sample":
            return self.from_replicates(sum(w * self._spread(t.means()[name]) for w, t in self.found))
        sampled = [t for _, t in self.found if t.replicates_are_draws]
        fixed = sum((w * t.means()[name][0] for w, t in self.found if not t.replicates_are_draws), 0.0)
        weight = sum(w for w, t in self.found if t.replicates_are_draws)
        n = int(sum(t.count.sum() for t in sampled))
        total = np.sum([t.total[name][0] for t in sampled], axis=0)
        square = np.sum([t.square[name] for t in sampled], axis=0)
        value, lower, upper = bounded_mean(total, square, n, self.level)
        return Estimate(fixed + weight * value, fixed + weight * lower, fixed + weight * upper)

    def from_replicates(self, rows: Any) -> Estimate:
        """Mean over replicates and Student's t; with one exact row, rounding only."""
        from scipy.special import stdtrit

        value = rows.mean(axis=0)
        if self.kind == "exact" or len(rows) < 2:
            slack = _EXACT_ERROR * np.abs(value)
            return Estimate(value, value - slack, value + slack)
        n = len(rows)
        half = float(stdtrit(n - 1, 0.5 + 0.5 * self.level)) * rows.std(axis=0, ddof=1) / np.sqrt(n)
        return Estimate(value, value - half, value + half)

    def record(self, method: str, direction: str, seconds: float, note: str, request: Request) -> Integrals:
        """The public record."""
        job = self.job
        levels: dict[int, Levels] = {}
        if job.n_levels:
            cdf, sf = self._clipped("below"), self._clipped("above")
            pdf = self.estimate("density") if job.density else None
            begin = 0
            for output, c in _level_map(self.net, request.levels).items():
                part = slice(begin, begin + len(c))
                levels[output] = Levels(c, _cut(cdf, part), _cut(sf, part), _cut(pdf, part) if pdf else None)
                begin += len(c)
        has = {name: name in self.found[0][1].total for name in ("events", "first", "second", "marginals")}
        return Integrals(
            levels,
            self._clipped("events") if has["events"] else None,
            self.estimate("first") if has["first"] else None,
            self.estimate("second") if has["second"] else None,
            self._clipped("marginals") if has["marginals"] else None,
            self._patterns() if job.patterns else None,
            {o: self._atoms(o) for o in range(len(job.atom_forms))},
            self.kind,
            self.level,
            method,
            direction,
            sum(t.lines for _, t in self.found),
            self.groups,
            seconds,
            note,
        )

    def _spread(self, rows: FloatArray) -> FloatArray:
        """Exact components have one row for all replicates."""
        return np.broadcast_to(rows, (self.groups, *rows.shape[1:]))

    def _clipped(self, name: str) -> Estimate:
        """Probabilities: the interval cut to [0, 1]; the value stays as it is, it is unbiased."""
        found = self.estimate(name)
        return Estimate(found.value, np.maximum(found.lower, 0.0), np.minimum(found.upper, 1.0))

    def _patterns(self) -> PatternMasses:
        keys: dict[bytes, int] = {}
        kept: list[Pattern] = []
        rows: list[FloatArray] = []
        squares: list[float] = []
        rest = 0.0
        sampled = sum(w for w, t in self.found if t.replicates_are_draws)
        n = sum(t.count.sum() for _, t in self.found if t.replicates_are_draws)
        for w, tally in self.found:
            table = tally.patterns
            assert table is not None
            count = np.maximum(tally.count, 1.0)
            # Draws of a mixture count by number, not by weight: their weights are in how many there are.
            factor = w if self.kind != "finite-sample" or not tally.replicates_are_draws else sampled * count[0] / n
            rest += factor * float((table.rest / count).mean())
            for i in range(table.used):
                key = table.known[i].tobytes()
                k = keys.setdefault(key, len(kept))
                if k == len(kept):
                    kept.append(table.known[i])
                    rows.append(np.zeros(self.groups))
                    squares.append(0.0)
                rows[k] = rows[k] + factor * np.broadcast_to(table.total[i] / count, (self.groups,))
                squares[k] += table.square[i] + table.line_mass[i] ** 2
        masses = np.array(rows).reshape(len(kept), self.groups).T
        if self.kind == "finite-sample":
            mean, lower, upper = bounded_mean(masses[0] / sampled * n, np.array(squares), int(n), self.level)
            found = Estimate(sampled * mean, sampled * lower, sampled * upper)
        else:
            found = self.from_replicates(masses)
        order = np.argsort(-found.value, kind="stable")
        clipped = Estimate(found.value, np.maximum(found.lower, 0.0), np.minimum(found.upper, 1.0))
        known = np.array(kept, np.uint8).reshape(len(kept), self.net.n_units)
        return PatternMasses(known[order], _cut(clipped, order), rest)

    def _atoms(self, which: int) -> Atoms:
        values: list[float] = []
        rows: list[FloatArray] = []
        for w, tally in self.found:
            for value, mass in zip(*_transposed(tally.atoms(which)), strict=True):
                near = [i for i, v in enumerate(values) if abs(v - value) <= 1e-9 * max(abs(v), abs(value), 1e-290)]
                share = w * np.broadcast_to(mass, (self.groups,))
                if near:
                    rows[near[0]] = rows[near[0]] + share
                else:
                    values.append(float(value))
                    rows.append(share)
        order = np.argsort(values)
        found = self.from_replicates(np.array(rows).reshape(len(rows), self.groups).T[:, order])
        return Atoms(np.array(values)[order], found)


def _transposed(atoms: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
    return atoms[0], atoms[1].T


def _cut(estimate: Estimate, part: Any) -> Estimate:
    return Estimate(estimate.value[part], estimate.lower[part], estimate.upper[part])
