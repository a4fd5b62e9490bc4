"""How lines are drawn, chosen and run: candidates for the direction, a pilot that compares them, and the run itself."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope import intervals
from reluscope._check import FloatArray, choice, generator, real_array
from reluscope.errors import InputError
from reluscope.measure.points.aimed import MOST_AIMS, MOST_DIMENSIONS, RARE, AimedPoints, aimed_points, aims_pay
from reluscope.measure.points.aimed import warm_up as warm_up_aimed
from reluscope.measure.points.single import SIDE, SingleForms
from reluscope.measure.points.small import SmallForms
from reluscope.measure.shared.draws import (
    BoxLines,
    ChordLines,
    GaussianLines,
    IndependentDraws,
    RadialLines,
    SobolDraws,
    Source,
    normals,
)
from reluscope.measure.shared.job import Job
from reluscope.measure.shared.tally import Tally, batches
from reluscope.measure.shared.trace import Tracer
from reluscope.network import Network

if TYPE_CHECKING:
    from reluscope.inputs._standard import Component

CHUNK = 256
"""Lines traced together: their segments stay in the cache."""

_SMALL_CHUNK = 2048
_SINGLE_BITS = 1 << 17
"""Random numbers in a chunk of points in single precision."""
_PILOT_POINTS = 2048
_PILOT_WORK = 4e9
"""Multiplications for the gradients at the pilot's points; large networks get fewer points."""
_WIDE = 400
"""Above this many dimensions only the gradient's direction is tried."""
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
MOST_PILOTS = 16
_SEARCH_SHARE = 0.1
_SHORTEST_SEARCH = 0.02
"""Seconds below which a search for what is rare is not begun."""
_SMALLEST_SAMPLE = 4


@dataclass(frozen=True, eq=False)
class Settings:
    """What the user asked for, as far as plans depend on it."""

    law: Any
    job: Job
    interval: str
    replicates: int
    method: str
    direction: Any
    seconds: float
    fixed: bool = False
    """Whether the number of lines is given: then nothing may depend on the clock, so that a seed says it all."""
    shared: bool = False
    """Whether several components share the lines: then a pilot must say how."""
    many: bool = False
    """Whether there are too many components to search each for what is rare."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A way to treat one component, and what a pilot of n lines (or points) in each of many scrambles has shown."""

    component: Component
    source: Source
    method: str
    job: Job
    tracer: Tracer
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
            return float(intervals.bernstein(0.0, max(lines, 2.0), 0.5 * (1.0 - level)))
        return float(self.span * intervals.unseen(max(lines, 1.0), level))

    def predicted(self, seconds: float, settings: Settings) -> FloatArray:
        """The variance of each quantity after a run of the given CPU time."""
        lines = max(seconds / self.cost, 1.0)
        if settings.interval == "finite-sample":
            return self.single / lines
        if settings.interval == "block":
            return self.variance * max(lines / self.n, 1e-3) ** -self.slope
        each = lines / settings.replicates
        return self.variance * max(each / self.n, 1e-3) ** -self.slope / settings.replicates


def make_plans(components: list[Component], settings: Settings, rng: np.random.Generator) -> list[Plan]:
    """One plan per component. With many components only the heaviest are piloted; the others follow their lead."""
    order = np.argsort([-c.weight for c in components], kind="stable").tolist()
    plans: dict[int, Plan] = {}
    for rank, k in enumerate(order):
        if rank < MOST_PILOTS:
            plans[k] = _plan(components[k], settings, rng, settings.seconds / min(len(components), MOST_PILOTS))
        else:
            source = sources_of(components[k], settings, rng, single=True)[0]
            tracer = Tracer(components[k].network, settings.job.forms)
            plans[k] = replace(plans[order[0]], component=components[k], source=source, tracer=tracer, quick=None)
    return [plans[k] for k in range(len(components))]


def _plan(component: Component, settings: Settings, rng: np.random.Generator, seconds: float) -> Plan:
    """Race all directions on few lines, then the best two and points on more, and take the best for `seconds`."""
    sources = sources_of(component, settings, rng, single=False)
    tracer = Tracer(component.network, settings.job.forms)
    share = min(_PILOT_SHARE * seconds, _LONGEST_PILOT)
    points = Plan(component, sources[0], "points", settings.job, tracer)
    points = replace(points, quick=_single_forms(points))
    if settings.method == "points":
        return points if settings.fixed and not settings.shared else _measured(points, settings, rng, share)
    if settings.method == "aimed":
        known = _measured(points, settings, rng, share)
        aimed = _aimed(known, settings, rng, np.inf if settings.fixed else seconds)
        return known if aimed is None else _measured(aimed, settings, rng, share)
    runners = [Plan(component, source, "lines", settings.job, tracer) for source in sources]
    if settings.fixed:
        chosen = runners[-1] if settings.direction == "auto" else runners[0]
        return _measured(chosen, settings, rng, 0.0) if settings.shared else chosen
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
    return _ranked(plans, seconds, settings)[0]


def _aimed(points: Plan, settings: Settings, rng: np.random.Generator, seconds: float) -> Plan | None:
    """A plan of points aimed at what is rare, by what a pilot of plain points has shown; None where it cannot pay."""
    component, job = points.component, settings.job
    frame, k = points.source.turn, job.n_levels
    if frame is None or component.r > MOST_DIMENSIONS or settings.interval == "finite-sample" or settings.many:
        return None
    chance = np.where(points.common, 1.0 - points.rare, points.rare)
    below, events = chance[:k], chance[k : k + job.rows.count]
    limit = _SEARCH_SHARE * seconds
    if limit < _SHORTEST_SEARCH or not aims_pay(job, below, events):
        return None
    started = time.thread_time()
    aimed = aimed_points(
        component.network, job, frame, below, events, rng, lambda part: time.thread_time() - started > part * limit
    )  # fmt: skip
    return None if aimed is None else replace(points, method="aimed", aimed=aimed)


def _hopeless(lines: Plan, points: Plan, seconds: float, settings: Settings) -> bool:
    """Whether lines are so far behind points, on nothing rare, that other directions need not be tried."""
    ours, theirs = lines.predicted(seconds, settings), points.predicted(seconds, settings)
    live = (ours > 0) & (theirs > 0)
    return (
        _rarest(points) > _COMMON and bool(live.any()) and float(np.log(ours[live] / theirs[live]).mean()) > _FAR_BEHIND
    )


def _rarest(plan: Plan) -> float:
    """The least probability among all levels, events and their complements."""
    return float(np.nanmin(plan.rare, initial=0.5))


def _shortened(plan: Plan) -> Plan:
    """The plan with lines that end where nothing is left that would matter beside the rarest level or event."""
    if not isinstance(plan.source, GaussianLines):
        return plan
    reach = next((reach for least, reach in _SHORTER if _rarest(plan) >= least), None)
    return plan if reach is None else replace(plan, source=plan.source.within(reach))


def _measured(plan: Plan, settings: Settings, rng: np.random.Generator, seconds: float) -> Plan:
    """The plan with its cost, variances and slope from a pilot of about `seconds` (at least a few lines a scramble).

    Each scramble is cut into blocks: how much less its mean varies than that of a block gives the slope, of which half
    is believed; the other half is what such integrands usually do.
    """
    scrambles = _SCRAMBLES
    n = _PILOT_BLOCKS if plan.method == "lines" and not settings.fixed else 8 * _RACE_LINES
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

    The number of lines is the sum of squares over the largest one; without end for moments.
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


def _ranked(plans: list[Plan], seconds: float, settings: Settings) -> list[Plan]:
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


def _doubted(plans: list[Plan]) -> list[Plan]:
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


def sources_of(
    component: Component, settings: Settings, rng: np.random.Generator, *, single: bool, points: int = _PILOT_POINTS
) -> list[Source]:
    """Candidates for the lines' directions, the default first."""
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
    net = component.network
    points = int(np.clip(_PILOT_WORK / (net.n_parameters * net.n_outputs), 16, points))
    U = probe.points(rng.random((points, probe.point_dimensions)), rng)
    G, Y = _gradients(component.network, U, settings.job)
    if component.kind == "gaussian" and r > _WIDE and named and wanted in ("auto", "gradient"):
        # The eigenvectors of an r x r matrix would take longer than the lines.
        leading = np.linalg.svd(G.reshape(-1, r), full_matrices=False)[2][0]
        return [GaussianLines(_reflection(leading), "gradient")]
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
        sources.insert(len(sources) - 1, RadialLines(np.linalg.eigh(matrix)[1][:, ::-1]))
    if named and wanted == "radial":
        sources = sources[:1]
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
            if (beyond > 0).mean() < RARE:
                chosen = np.argsort(-beyond)[: max(near, int((beyond > 0).sum()))]
                tails.append(("tail", U[chosen].mean(axis=0)))
    rows = job.rows
    if rows.count:
        scale = np.maximum(Y[:, rows.form].std(axis=0), 1e-300)
        excess = (Y[:, rows.form] - rows.bound) / scale
        members = rows.members
        for event in range(min(rows.count, MOST_AIMS)):
            parts = [members[p] for p in np.flatnonzero(rows.part_event == event) if members[p].any()]
            if not parts:
                continue
            # How far outside: the worst row of a conjunction, the best conjunction of the union.
            outside = np.min([excess[:, m].max(axis=1) for m in parts], axis=0)
            worst = excess[:, parts[0]].argmax(axis=1)
            for row in np.unique(worst):
                form = int(rows.form[np.flatnonzero(parts[0])[row]])
                aims.append((form, np.where(worst == row, np.abs(outside), np.inf)))
            if (outside <= 0).mean() < RARE:
                chosen = np.argsort(outside)[: max(near, int((outside <= 0).sum()))]
                tails.append(("tail", U[chosen].mean(axis=0)))
    for form, distance in aims:
        chosen = np.argsort(distance)[:near]
        chosen = chosen[np.isfinite(distance[chosen])]
        edge += np.einsum("ni,nj->ij", G[chosen, form], G[chosen, form])
    return [*tails[:MOST_AIMS], *([("edge", np.linalg.eigh(edge)[1][:, -1])] if aims else [])]


def _reflection(direction: FloatArray) -> FloatArray:
    """An orthonormal basis that starts with the direction, the others in no order: a Householder reflection."""
    v = direction / np.linalg.norm(direction)
    v = np.where(v[0] < 0, v, -v)  # the reflection below takes the first axis to -v, and stays clear of cancellation
    w = v.copy()
    w[0] -= 1.0
    return np.eye(len(v)) - np.outer(w, w) * (2.0 / float(w @ w))


def _frame(direction: FloatArray, matrix: FloatArray) -> FloatArray:
    """An orthonormal basis: the direction, then the directions across it in which the forms change most."""
    d = direction / np.linalg.norm(direction)
    across = np.eye(len(d)) - np.outer(d, d)
    vectors = np.linalg.eigh(across @ matrix @ across + across * (1e-9 * np.trace(matrix) + 1e-300))[1][:, ::-1]
    return np.linalg.qr(np.column_stack([d, vectors[:, : len(d) - 1]]))[0]


def sizes_of(
    plans: list[Plan],
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
        wide = np.sqrt(2.0 * np.log(8.0 / (1.0 - level))) if independent else intervals.normal_quantile(level)

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


def _even(n: float) -> int:
    """A Sobol-friendly number of at most n: sixteen to 31 times a power of two."""
    n = max(int(n), _SMALLEST_SAMPLE)
    unit = 1 << max(n.bit_length() - 5, 0)
    return n // unit * unit


# -- running -----------------------------------------------------------------------------------------------------


def run_plan(plan: Plan, n: int, groups: int, rng: np.random.Generator, per_scramble: int) -> Tally:
    """About `n` lines or points in equal groups; `per_scramble` groups share a scramble (0: independent draws)."""
    net, by_lines = plan.component.network, plan.method == "lines"
    tally = Tally(plan.job, net, groups)
    dimensions = plan.source.dimensions if by_lines else plan.source.point_dimensions
    each = -(-n // groups)
    draws: Any = IndependentDraws(dimensions, rng)
    if per_scramble:
        draws = SobolDraws(dimensions, groups, each, rng, per_scramble=per_scramble)
    started = time.thread_time()
    if plan.aimed is not None:
        plan.aimed.run(each, groups, rng, per_scramble, tally)
        tally.seconds = time.thread_time() - started
        return tally
    if not by_lines and (quick := plan.quick or _single_forms(plan)) is not None:
        started = time.thread_time()
        _run_single(quick, draws, each, groups, tally)
        tally.seconds = time.thread_time() - started
        return tally
    chunk = CHUNK if by_lines else max(64, (1 << 18) // max(net.widths))
    small = None
    if not by_lines and not plan.job.switches and SmallForms.suits(net):
        turn = plan.source.turn
        small = SmallForms(net, plan.job.forms, np.eye(net.n_inputs) if turn is None else turn)
        chunk = min(chunk, _SMALL_CHUNK)
    room = np.empty((chunk, dimensions))
    for parts, fills in batches(each, groups, chunk):
        for group, begin, end in fills:
            draws.fill(group, room[begin:end])
        rows = room[: fills[-1][2]]
        if by_lines:
            tally.add_lines(plan.tracer, plan.source.lines(rows, rng), parts)
        elif small is not None:
            turned = plan.source.turn is not None
            tally.add_outputs(small(normals(rows) if turned else plan.source.points(rows, rng)), parts)
        else:
            tally.add_points(plan.source.points(rows, rng), parts)
    tally.seconds = time.thread_time() - started
    return tally


def _single_forms(plan: Plan) -> SingleForms | None:
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
        for group, begin, end in fills:
            draws.fill_bits(group, bits, begin, end)
        tally.add_outputs(single(bits, fills[-1][2]), parts)


def per_scramble_of(interval: str, groups: int) -> int:
    """How many groups share a scramble for each kind of interval; 0 for independent draws."""
    return {"replicate": 1, "block": groups, "finite-sample": 0}[interval]


def warm_up(component: Component, law: Any, job: Job, method: str) -> None:
    """Compile what will be needed before the budget's clock starts: compilation happens once and is kept on disk."""
    rng = generator(0)
    settings = Settings(law, job, "block", 2, method, "gradient", 1.0)
    source = sources_of(component, settings, rng, single=True, points=64)[0]
    tracer = Tracer(component.network, job.forms)
    if method in ("auto", "aimed"):
        warm_up_aimed()
    for kind in ("lines", "points"):
        if method in (kind, "auto") and not (kind == "points" and (job.density or job.atom_forms)):
            run_plan(Plan(component, source, kind, job, tracer), 2, 2, rng, 2)
