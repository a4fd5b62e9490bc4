"""`method="exact"`: the weights up to permutation and positive scaling, layer by layer.

1. Search chords of the box for critical points (`critical.py`). One hidden layer follows from the gradients along them
   (`one_layer.py`), and without biases in the plane a fan of rays from bends around 0 (`fan.py`); where neither
   explains the outputs, there are deeper layers:
2. Peel: find the units of the next layer from the points no known unit explains (`peel.py`); settle the signs of the
   layer before (`signs.py`); repeat until the outputs are affine in the features (`last_layer.py`).
3. Refine all parameters on values (`refine.py`).

If a layer stays incomplete, more chords are searched and the peeling starts again on all the evidence: a restart.
Neither depth nor widths are given; both are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.budget import Budget
from reluscope.recovery.corner import corner_units, inner_units, with_inner_unit
from reluscope.recovery.critical import Bends, Chords, chord_normals, find_bends, normals, random_chords
from reluscope.recovery.fan import Fan, find_fan
from reluscope.recovery.far import far_points, rare_points
from reluscope.recovery.follow import Followed, follow, units_at
from reluscope.recovery.last_layer import OutputFit, fit_outputs
from reluscope.recovery.one_layer import FirstLook, Units, sharpened, units_on_chords
from reluscope.recovery.oracle import QueryLimitError
from reluscope.recovery.parts import settled_by_parts
from reluscope.recovery.peel import (
    NOISY,
    Candidate,
    Evidence,
    Grid,
    across,
    beside,
    beyond,
    candidates,
    choose,
    crossings,
    distances,
    explained,
    of_linear,
    polished,
    with_one,
)
from reluscope.recovery.refine import Model, refine
from reluscope.recovery.signs import Settled, fewer_carried, settle, settle_open
from reluscope.recovery.slopes import settled_by_slopes
from reluscope.recovery.trunk import Local, Trunk
from reluscope.recovery.view import View
from reluscope.recovery.weak import weak_unit
from reluscope.threads import OutOfTimeError, deadline

_FIRST_CHORDS = 40
_FEW_CHORDS, _FEW_ROUNDS = 12, 8
"""Chords, and how often as many more, for networks with one hidden layer."""

_BATCH, _CHEAP = 120, 2500
"""Normals measured at a time: more where few inputs make them cheap (so many queries for all of them), because each
says less."""

_CHECKS, _MORE_CHECKS = 18_000, 29_000
"""Values that a complete network must fit; more with few inputs, where points of the box, unlike points far out, meet
slivers of it."""

_CANDIDATES, _RARE = 120_000, 1000
"""Points, and those of them where a recovered unit is in its rarest state: asked before refining."""

_FAR, _FAR_AGAIN, _HELD, _SIDES = 7000, 4000, 500, 1000
"""Points furthest out in some direction of some layer's features: the first time, after a repair, and of the finished
model; and points on the rare sides of units, at most, each time."""

_MOST_MOVED = 3
"""How often a fit that changes with such points, and then fits them, is looked at again at others."""

_ENDS, _MOST_ENDS = 40, 6000
"""With few inputs also vertices of regions: for each region, and for all."""

_NEARLY = 0.6
_EDGES, _HALVINGS = 24, 5
"""Share of samples that fit from which the others say where a unit is missing; short chords across the edge of
what does not fit, and how often each is halved before it is searched."""

_WORST = 1000
_MOST_REFINED = 3
"""Samples with the largest misfit that join another refinement, and how many of those there may be."""

_NOISY = 1e-12
"""Relative noise above which rows are refined on values before it is judged whether the outputs fit."""

_NUMBERS = 1 << 23
"""Numbers in the rows of a check: fewer points where there are many inputs, so that memory does not grow with them."""

_MOST_PARAMETERS = 2000
"""Parameters that are refined together (time grows with their cube)."""

_VERY_NEAR = 1e3
"""A largest misfit of so many times what is allowed may be due to rows that are seen too faintly."""

_DEEPEST = 6
_MOST_WEAK = 12
_MOST_MISFIT = 3
"""Units that are added from the misfit alone."""

_LAST_ONLY = 0.9
"""Share of samples that fit from which a restart looks for units of the last layer only, as long as the share grows."""

_ALL_BUT_A_CORNER, _MOST_REPAIRS = 0.98, 4
_MOST_CORNERS, _AROUND, _MOST_LEFT_OUT = 4, 600, 3
_OUTVOTED = 1e-3
"""Share of samples that fit from which units are looked for in what is missed, and how often before more chords are
searched; such units at most; samples taken around the others before each; units of the layer that are looked for again;
and the share of samples by which a fit with those around may be worse than the one before."""

_MOST_RIVALS, _SHORT = 8, 1e-5
"""Units beside whose surface a candidate is looked at, and the length of the differences there."""

_FEW_INPUTS = 6
"""Up to so many inputs surfaces are cut into many pieces, more rivals are looked at, and derivatives are cheap enough
to look for units of inner layers in corners."""

_NEARLY_ALWAYS = 0.97
"""Share of samples at which a unit must have one state to be put beside the linear functions that stood for it."""

_SPEAKING = 12_000
"""Points among which those are chosen whose gradients tell signs."""

_SAME_NORMAL = 1e-3
"""How far a normal may be turned from that of the row it sharpens, beyond its error."""

_FOLLOWED, _MOST_FOLLOWED = 12, 60
"""Surfaces that are followed at a time, and those after which no more are in a layer."""

_LOOKS = 8
"""Places of its surface at which a unit found in a restart is confirmed."""

_MOST_BEYOND = 60
"""Chords in a round that look beyond what candidates have seen; those that know most come first."""

_MOST_AIMED = 2
_MOST_ROUNDS = 12
"""Rounds in a row, without a new unit or a new weight of one, of chords aimed at what a layer's candidates have not
seen; and rounds after which new weights no longer count."""


@dataclass
class Pool:
    """Everything learnt from queries so far; grows, never forgets."""

    view: View
    rng: np.random.Generator
    chords: Chords
    evidence: Evidence
    jump: FloatArray
    reach: FloatArray
    fair: npt.NDArray[np.bool_]
    lost: int
    samples: FloatArray
    values: FloatArray
    budget: Budget
    queries: dict[str, int] = field(default_factory=dict)
    far: int = 0
    """Samples far out that were asked for."""
    previous: Trunk | None = None
    latest: tuple[list[Peeled], Trunk, OutputFit] | None = None
    """The layers of the attempt under way, for a budget that ends it."""
    affine: OutputFit | None = None
    """The best fit without any unit, for a budget that ends before one is found."""
    stopped: str | None = None
    """Why nothing more may be asked; from then on the pool stays as it is."""

    @classmethod
    def empty(cls, view: View, rng: np.random.Generator, budget: Budget) -> Pool:
        """Nothing known yet."""
        none, rows = np.zeros(0), np.zeros((0, view.n))
        evidence = Evidence(none.astype(np.intp), none, rows, rows, none)
        outputs = np.zeros((0, view.oracle.n_outputs))
        return cls(view, rng, Chords(rows, rows), evidence, none, none, none.astype(bool), 0, rows, outputs, budget)

    @property
    def by_chords(self) -> bool:
        """Whether normals are measured chord by chord: half the queries, but fewer surfaces that are met. With few
        inputs a normal is cheap, and noise asks for differences of another length."""
        return self.view.relative <= _NOISY and self.view.n > _FEW_INPUTS

    def late(self) -> bool:
        """Whether steps of the search that are under way have to end."""
        return self.budget.elapsed() > self.budget.seconds

    def over(self) -> bool:
        """Whether the end of the work, signs and refinement of what was found, has to end as well."""
        return self.budget.elapsed() > 1.02 * self.budget.seconds + 0.05

    def open(self) -> bool:
        """Whether more may be asked: neither the budget nor the oracle's limit is reached."""
        self.stopped = self.stopped or self.budget.spent()
        return self.stopped is None

    def search(self, chords: Chords, fair: bool) -> None:
        """Search more chords; `fair` ones were drawn without looking at any candidate, so they may judge it."""
        with self.asking("critical points"):
            found: Bends = find_bends(self.view, chords, self.rng)
            self.lost += found.lost
            old = self.evidence
            self.evidence = Evidence(
                np.concatenate([old.line, found.line + len(self.chords)]),
                np.concatenate([old.t, found.t]),
                np.concatenate([old.x, found.x]),
                np.concatenate([old.normal, np.zeros_like(found.x)]),
                np.concatenate([old.error, np.full(len(found), np.inf)]),
            )
            self.jump = np.concatenate([self.jump, found.jump])
            self.reach = np.concatenate([self.reach, found.reach])
            self.chords = _joined([self.chords, chords])
            self.fair = np.concatenate([self.fair, np.full(len(chords), fair)])

    def measure(self, which: npt.NDArray[np.intp]) -> None:
        """Measure normals at some of the critical points; those that fail are marked with error nan."""
        e = self.evidence
        with self.asking("normals"):
            normal, error = e.normal.copy(), e.error.copy()
            if self.by_chords:
                found = chord_normals(self.view, self.chords, e.line, e.t, self.jump, which)
                normal[which], error[which] = found.normal, found.error
                which = which[~found.good]
            found = normals(self.view, e.x[which], self.chords.way[e.line[which]], self.jump[which], self.reach[which])
            normal[which] = found.normal
            error[which] = np.where(found.good, found.error, np.nan)
            self.evidence = replace(e, normal=normal, error=error)

    def sample(self, count: int) -> None:
        """Have at least `count` values, half at uniform points and half towards the corners of the box."""
        missing = count - len(self.samples)
        if missing > 0:
            self.add(_spread(self.view, missing, self.rng))

    def add(self, U: FloatArray) -> None:
        """Values at given points."""
        with self.asking("values"):
            Y = self.view.outputs(U)
            self.samples, self.values = np.concatenate([self.samples, U]), np.concatenate([self.values, Y])

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Count the queries of a step; one that runs into the oracle's limit adds nothing."""
        before = self.view.oracle.queries
        try:
            yield
        except QueryLimitError as error:
            self.stopped = str(error)
        finally:
            self.queries[what] = self.queries.get(what, 0) + self.view.oracle.queries - before


@dataclass(frozen=True, eq=False)
class Exact:
    """What came out: a model (in unit-box coordinates), whether the outputs fit, and the story.

    `layers` has one entry per layer found: units and whether its signs are settled. `residual` is the largest misfit at
    the samples, `share` the share of samples that fit, `worst` the sample it misses most. `left_over` counts critical
    points that no unit explains. `rays` is given where the model is the fan of a function in the plane (`fan.py`), not
    the layers of the network.
    """

    model: Model
    complete: bool
    layers: tuple[tuple[int, bool], ...]
    residual: float
    share: float
    worst: FloatArray
    restarts: int
    critical: int
    left_over: int
    stopped: str | None
    queries: dict[str, int]
    rays: int | None = None


def recover_exact(
    view: View, rng: np.random.Generator, most_chords: int, budget: Budget, report: Callable[[int, str], None]
) -> Exact:
    """Run the method until the outputs fit, the chords or the budget are used up, or the oracle's limit is reached."""
    pool = Pool.empty(view, rng, budget)
    # What the pair tests may show, and how far a bend may lie from where it is predicted.
    pair_error = float(np.clip(1e4 * view.relative, 1e-7, 3e-3))
    near = float(np.clip(1e4 * view.relative, 1e-6, 1e-2))
    fits = float(max(1e-6 * view.scale, 30 * view.noise))
    layers: list[Peeled] = []
    trunk = Trunk(view.n)
    fit: OutputFit | None = None
    restarts, searches, more, complete, fitted, kept = -1, 0, _FIRST_CHORDS, False, 0.0, 0.0
    pool.sample(max(400, 2 * (view.n + 2)))  # more than an affine function could fit whatever they are
    try:
        with deadline(pool.late):
            single = _one_layer(pool, near, fits, report) if view.relative <= _NOISY else None
            if single is not None:
                layers, trunk, fit = single
                trunk, fit, complete = _checked(pool, trunk, fit, fits)
            fan = None if complete or not pool.open() else find_fan(pool, view.allowed)
            if fan is not None and fan.rows is not None:
                layers, trunk, fit = [Peeled(Trunk(view.n), fan.rows, True, len(fan.rows))], fan.trunk, fan.fit
                trunk, fit, complete = _checked(pool, trunk, fit, fits)
            elif fan is not None and (fan.fits or not pool.open()):
                return _as_fan(pool, fan)
            more = max(more - len(pool.chords), _FEW_CHORDS)
            while not complete and pool.open():
                restarts += 1
                if fit is not None and max(fitted, _NEARLY) < fit.share < 1.0:  # for as long as that helps
                    fitted = fit.share
                    pool.search(_at_edges(pool, Model(trunk, fit.rows), fit, fits), fair=True)
                else:
                    pool.search(_aimed(view, pool, fit, more, rng), fair=True)
                    searches += 1
                pool.previous = trunk if trunk.stages else None
                again = fit is not None and max(kept, _LAST_ONLY) < fit.share  # for as long as that helps
                kept = fit.share if fit is not None and again else kept
                layers, trunk, fit = _peel_all(pool, layers, pair_error, near, fits, report, last_only=again)
                if restarts and layers:
                    layers, trunk, fit = _with_weak(pool, layers, trunk, fit, fits, near)
                complete = bool(fit.residual.max() <= fits)
                if complete:
                    trunk, fit, complete = _checked(pool, trunk, fit, fits)
                    fitted, kept = 0.0, 0.0  # the search so far did help: all fitted but what is asked only now
                for _ in range(_MOST_REPAIRS):
                    nearly = bool(layers) and fit.share > _ALL_BUT_A_CORNER and view.relative <= _NOISY
                    if complete or not nearly or not pool.open():
                        break
                    layers, trunk, fit = _with_corner(pool, layers, trunk, fit, fits)
                    if fit.residual.max() > fits and pool.open() and view.n <= _FEW_INPUTS:
                        layers, trunk, fit = _with_inner(pool, layers, trunk, fit, fits)
                    if fit.residual.max() > fits:
                        break
                    trunk, fit, complete = _checked(pool, trunk, fit, fits)
                    fitted, kept = 0.0, 0.0
                if not complete and pool.stopped is None and len(pool.chords) >= most_chords:
                    pool.stopped = f"{len(pool.chords)} chords searched"
                more = min(_FIRST_CHORDS * max(searches, 1), most_chords)
    except OutOfTimeError:  # what was found before stands
        complete = False
        if pool.latest is not None and len(pool.latest[0]) >= len(layers):
            layers, trunk, fit = pool.latest
        pool.open()
    if fit is None and not trunk.stages:
        fit = pool.affine
    if fit is None or (len(pool.samples) != len(fit.residual) and not pool.late()):
        fit = fit_outputs(trunk, pool.samples, pool.values, fits, rounds=1 if pool.late() else 12)
    report(view.oracle.queries, "refining")
    model, resolved, held = Model(trunk, fit.rows), False, False
    with suppress(OutOfTimeError), deadline(pool.over):
        model, resolved = _finished(pool, model, complete, pair_error)
        if complete:
            model, held = _held(pool, model)
    signs = [layer.resolved for layer in layers[1:]] + [resolved]
    residual = np.abs(model(pool.samples) - pool.values)
    if complete and residual.max() > view.allowed:
        complete, pool.stopped = False, f"after refinement it still misses by {residual.max():.1e} at some samples"
    elif complete and not held:
        pool.open()
        complete, pool.stopped = False, pool.stopped or "points far out kept changing the fit"
    known = explained(trunk, pool.evidence.x, near)
    return Exact(
        model,
        complete,
        tuple((stage.n_units, sign) for stage, sign in zip(model.trunk.stages, signs, strict=False)),
        float(residual.max(initial=0.0)),
        float((residual.max(axis=1, initial=0.0) <= fits).mean()) if len(residual) else 0.0,
        pool.samples[residual.max(axis=1).argmax()] if len(residual) else np.zeros(view.n),
        max(restarts, 0),
        len(pool.evidence),
        int((~known).sum()),
        None if complete else pool.stopped,
        dict(pool.queries),
    )


def _as_fan(pool: Pool, fan: Fan) -> Exact:
    """The network that has the same fan: neither signs nor rows are left to be found or refined."""
    return Exact(
        Model(fan.trunk, fan.fit.rows),
        fan.fits,
        tuple((stage.n_units, True) for stage in fan.trunk.stages),
        float(fan.fit.residual.max(initial=0.0)),
        float((fan.fit.residual <= pool.view.allowed).mean()),
        pool.samples[fan.fit.residual.argmax()],
        0,
        len(fan.rays),
        0,
        None if fan.fits else pool.stopped,
        dict(pool.queries),
        len(fan.rays),
    )


def _one_layer(
    pool: Pool, near: float, fits: float, report: Callable[[int, str], None]
) -> tuple[list[Peeled], Trunk, OutputFit] | None:
    """One hidden layer, if that is all there is and the chords meet all its units; the evidence stays in the pool."""
    view, trunk = pool.view, Trunk(pool.view.n)
    units = Units(np.zeros((0, view.n + 1)), np.zeros(0))
    fit = pool.affine = fit_outputs(trunk, pool.samples, pool.values, fits)
    if fit.residual.max() <= fits:
        return [], trunk, fit
    idle = 0
    for _ in range(_FEW_ROUNDS):
        pool.search(_aimed(view, pool, fit, _FEW_CHORDS, pool.rng), fair=True)
        if not pool.open():
            return None
        before, first = len(units), FirstLook(units, pool.evidence, single=False)
        with pool.asking("normals"):
            first = units_on_chords(view, pool.chords, pool.evidence, units, near)
        pool.evidence, units = first.evidence, first.units
        report(view.oracle.queries, f"layer 0: {len(units)} units")
        if not first.single or not len(units):
            return None
        rows = units.u / np.linalg.norm(units.u, axis=1, keepdims=True)
        grown = trunk.grown(rows)
        pool.sample(4 * (grown.width + 1))
        fit = fit_outputs(grown, pool.samples, pool.values, fits)
        if fit.residual.max() <= fits:
            if Model(grown, fit.rows).n_parameters > _MOST_PARAMETERS:  # too many to be refined together
                with pool.asking("normals"):
                    units = sharpened(view, units, pool.samples, pool.values @ view.mix, pool.rng)
                rows = units.u / np.linalg.norm(units.u, axis=1, keepdims=True)
                grown = trunk.grown(rows)
                fit = fit_outputs(grown, pool.samples, pool.values, fits)
            return [Peeled(trunk, rows, True, len(rows))], grown, fit
        pool.latest = [Peeled(trunk, rows, True, len(rows))], grown, fit
        idle = idle + 1 if len(units) == before else 0
        if idle == 2 or not pool.open():
            return None
    return None


def _checked(pool: Pool, trunk: Trunk, fit: OutputFit, fits: float) -> tuple[Trunk, OutputFit, bool]:
    """A fit looked at again at many more points: a unit that matters in a corner only shows there."""
    view = pool.view
    checks = _MORE_CHECKS if view.n <= _FEW_INPUTS else _CHECKS
    wanted = min(checks, max(4 * (trunk.width + 1), _NUMBERS // view.n))
    pool.sample(wanted)
    U = _spread(view, min(_CANDIDATES, _NUMBERS // view.n), pool.rng)
    if view.n <= _FEW_INPUTS:
        pool.add(_ends(trunk, U, pool.rng))
    pool.add(U[np.argsort(-_rarity(Model(trunk, fit.rows), U), kind="stable")[:_RARE]])
    trunk, fit = _fitted(pool, trunk, fits)
    for _ in range(_MOST_MOVED):
        if fit.residual.max() > fits or not pool.open():
            return trunk, fit, False
        missed = _missed_far(pool, Model(trunk, fit.rows), U, max(_FAR_AGAIN, _FAR - pool.far), fits)
        trunk, fit = _fitted(pool, trunk, fits)
        if missed is not None and not missed:
            return trunk, fit, bool(fit.residual.max() <= fits) and len(pool.samples) >= wanted
    return trunk, fit, False


def _missed_far(pool: Pool, model: Model, U: FloatArray, count: int, fits: float) -> int | None:
    """How many fresh points far out the model misses, `count` and some on rare sides; all of them become samples. None
    if they cannot be asked."""
    x = np.concatenate([far_points(model, U, count, pool.rng), rare_points(model, U, min(count, _SIDES), pool.rng)])
    known = len(pool.samples)
    pool.add(x)
    if len(pool.samples) != known + len(x):
        return None
    pool.far += len(x)
    return int((np.abs(model(x) - pool.values[known:]).max(axis=1, initial=0.0) > fits).sum())


def _held(pool: Pool, model: Model) -> tuple[Model, bool]:
    """The finished model looked at once more at fresh points far out, refined again where it misses some; and whether
    it misses none in the end."""
    view = pool.view
    U = _spread(view, min(_SPEAKING, _NUMBERS // view.n), pool.rng)
    for _ in range(_MOST_MOVED):
        missed = _missed_far(pool, model, U, _HELD, view.allowed)
        if not missed:
            return model, missed is not None
        model = _refined(pool, model)
    return model, False


def _finished(pool: Pool, model: Model, complete: bool, pair_error: float) -> tuple[Model, bool]:
    """Signs of the last layer, parts that nothing uses left out, all parameters refined; and whether the signs fit.

    Noisy rows are refined before their signs are asked for: 20 signs hang on 5 equations at times, each of which must
    then be known to several digits. Signs that make the fit worse are not believed.
    """
    view = pool.view
    if not complete:
        done = settle(model.trunk, model.rows, max(1e-5, 10 * pair_error))
        settled = Model(done.trunk, done.rows)
        good = done.resolved and _misfit(pool, settled) <= 2 * _misfit(pool, model)
        return _pruned(settled if good else model, pool.samples, pool.values, max(1e-7, pair_error)), good
    if view.relative > _NOISY:
        model = _refined(pool, model)
    known = max(1e-5, 1e3 * view.relative)
    done = settle(model.trunk, model.rows, known)
    unused = max(1e-7, 30 * view.relative)
    whole = Model(*fewer_carried(done.trunk, done.rows))
    result = _refined(pool, _pruned(whole, pool.samples, pool.values, unused))
    if done.resolved and _misfit(pool, result) > 100 * view.noise:
        whole = Model(*fewer_carried(model.trunk, model.rows))
        carried = _refined(pool, _pruned(whole, pool.samples, pool.values, unused))
        if _misfit(pool, carried) < 0.1 * _misfit(pool, result):
            return carried, False
    return result, done.resolved


def _refined(pool: Pool, model: Model) -> Model:
    """The model refined on the samples that tell most about it, then on its misfits.

    Of a large network with one hidden layer the rows are known from long differences, and only the outputs are fitted.
    """
    if model.n_parameters > _MOST_PARAMETERS and len(model.trunk.stages) == 1:
        fit = fit_outputs(model.trunk, pool.samples, pool.values, 0.0, rounds=1)
        better = Model(model.trunk, fit.rows)
        return better if _misfit(pool, better) < _misfit(pool, model) else model
    some = _telling(model, pool.samples, pool.rng)
    best, least, before = model, _misfit(pool, model), np.inf
    for _ in range(1 + _MOST_REFINED):
        better, _ = refine(best, pool.samples[some], pool.values[some])
        residual = np.abs(better(pool.samples) - pool.values).max(axis=1)
        largest = float(residual.max())
        if largest < least:
            best, least = better, largest
        if least <= 100 * pool.view.noise or largest > 0.5 * before:
            break
        before = largest
        # Places that the samples so far did not tell apart: there it may be worse than before.
        some = np.union1d(some, np.argsort(-residual)[:_WORST])
    return best


def _misfit(pool: Pool, model: Model) -> float:
    return float(np.abs(model(pool.samples) - pool.values).max(initial=0.0))


def _spread(view: View, count: int, rng: np.random.Generator) -> FloatArray:
    """Points of the unit box: half uniform, a quarter corners, a quarter on the way to corners.

    With few inputs there are few corners. Then that quarter lies on sides of all dimensions: a unit that acts in a
    small part of the box does so at an edge more often than not.
    """
    U = view.draw(count, rng)
    there = np.ones(U[::4].shape, dtype=bool)
    if view.n <= _FEW_INPUTS:
        there = rng.random(there.shape) < 0.5 + 0.5 * (rng.random((len(there), 1)) < 2.0**view.n / 400)
    U[::4] = np.where(there, np.sign(U[::4]), U[::4])
    U[2::4] = np.sign(U[2::4]) * rng.uniform(0.5, 1.0, (len(U[2::4]), 1))
    return U


def _rarity(model: Model, U: FloatArray) -> FloatArray:
    """For each point, one over the share of points that have the same state in its rarest unit."""
    rarest, z = np.zeros(len(U)), U
    for stage in model.trunk.stages:
        h = z @ stage.weight.T + stage.bias
        on = (h > 0)[:, stage.bends]
        share = on.mean(axis=0)
        rarest = np.maximum(rarest, (1.0 / np.maximum(np.where(on, share, 1 - share), 1e-9)).max(axis=1, initial=0.0))
        z = np.where(stage.bends & (h < 0), stage.slope * h, h)
    return rarest


def _ends(trunk: Trunk, U: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Vertices of the regions of all layers but the last: from points of each region in random directions, along every
    side that is met, until there is no way left.

    In such a region a missing unit of the last layer is affine: if it switches there, it does so at some vertex.
    """
    below = Trunk(trunk.n_inputs, trunk.stages[:-1])
    pattern = np.packbits(units_at(below, U)[0] > 0, axis=1)
    label = np.unique(pattern, axis=0, return_inverse=True)[1].reshape(-1)
    order = rng.permutation(len(U))
    order = order[np.argsort(label[order], kind="stable")]
    first = np.flatnonzero(np.diff(label[order], prepend=-1))
    rank = np.arange(len(U)) - np.repeat(first, np.diff(np.append(first, len(U))))
    x = U[order[np.argsort(rank, kind="stable")[: min(_MOST_ENDS, _ENDS * len(first))]]]
    way, n = rng.normal(size=x.shape), trunk.n_inputs
    h, g = units_at(below, x)  # affine in each region: these values and slopes hold all the way
    offset = h - np.einsum("kui,ki->ku", g, x)
    sides = np.broadcast_to(np.concatenate([np.eye(n), -np.eye(n)]), (len(x), 2 * n, n))
    g = np.concatenate([np.where(h > 0, 1.0, -1.0)[:, :, None] * g, sides], axis=1)
    offset = np.concatenate([np.where(h > 0, offset, -offset), np.ones((len(x), 2 * n))], axis=1)
    met = np.zeros(offset.shape, dtype=bool)
    each = np.arange(len(x))
    for _ in range(n):
        rate = np.einsum("kui,ki->ku", g, way)
        room = np.maximum(np.einsum("kui,ki->ku", g, x) + offset, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where((rate < -1e-9) & ~met, room / -rate, np.inf)
        side = step.argmin(axis=1)
        go = np.where(np.isfinite(step[each, side]), step[each, side], 0.0)
        x = np.clip(x + go[:, None] * way, -1, 1)
        met[each, side] = True
        normal = g[each, side] / np.maximum(np.linalg.norm(g[each, side], axis=1, keepdims=True), 1e-300)
        # Later steps stay on this side: what is left of every normal across it.
        way = way - (way * normal).sum(axis=1, keepdims=True) * normal
        g, before = g - np.einsum("kui,ki->ku", g, normal)[:, :, None] * normal[:, None, :], g
        offset = offset + np.einsum("kui,ki->ku", before - g, x)
        size = np.linalg.norm(way, axis=1, keepdims=True)
        way = np.where(size > 1e-9, way / np.maximum(size, 1e-300), 0.0)
    return x


def _telling(model: Model, U: FloatArray, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Samples to refine on: three per parameter, half of them where units are in their rarer state."""
    wanted = min(len(U), max(1500, int(3.0 * model.n_parameters / len(model.rows)) + 200))
    order = np.argsort(-_rarity(model, U), kind="stable")
    rare, rest = order[: wanted // 2], order[wanted // 2 :]
    return np.concatenate([rare, rng.choice(rest, min(wanted - len(rare), len(rest)), replace=False)])


def _aimed(view: View, pool: Pool, fit: OutputFit | None, count: int, rng: np.random.Generator) -> Chords:
    """Random chords; once most samples fit, half of them from samples that do not."""
    chords = random_chords(view, count, rng)
    if fit is None or fit.share < 0.6 or fit.share == 1.0:
        return chords
    worst = np.argsort(-fit.residual)[: max(1, int((1 - fit.share) * len(fit.residual)))]
    from_ = pool.samples[rng.choice(worst, count // 2)]
    start = chords.start.copy()
    start[: len(from_)] = from_
    return Chords(start, chords.start + chords.way - start)


def _at_edges(pool: Pool, model: Model, fit: OutputFit, fits: float) -> Chords:
    """Short chords across the edges of the part of the box where the model is wrong: there a missing unit switches.

    From samples that do not fit to samples that do, halved towards where the misfit ends. A tenth of the queries of a
    random chord, nearly all of whose bends are those of known units.
    """
    off = fit.residual > fits
    start = pool.samples[pool.rng.choice(np.flatnonzero(off), _EDGES)]
    way = pool.samples[pool.rng.choice(np.flatnonzero(~off), _EDGES)] - start
    wrong, right = np.zeros((_EDGES, 1)), np.ones((_EDGES, 1))
    with pool.asking("critical points"):
        for _ in range(_HALVINGS):
            t = 0.5 * (wrong + right)
            U = start + t * way
            misses = np.abs(model(U) - pool.view.outputs(U)).max(axis=1, keepdims=True) > fits
            wrong, right = np.where(misses, t, wrong), np.where(misses, right, t)
    margin = 0.5 * (right - wrong)
    low, high = np.maximum(wrong - margin, 0.0), np.minimum(right + margin, 1.0)
    return Chords(start + low * way, (high - low) * way)


@dataclass(frozen=True, eq=False)
class Peeled:
    """The rows (units, features + 1) of a layer, the trunk they stand on, and whether that trunk's signs are settled.

    The first `firm` rows are complete; the others have weights that their surface did not show: `unseen` lists them, as
    (unit, feature), and `silent` those of them that had to be left open.
    """

    trunk: Trunk
    rows: FloatArray
    resolved: bool
    firm: int
    silent: tuple[tuple[int, int], ...] = ()
    unseen: tuple[tuple[int, int], ...] = ()


def _peel_all(
    pool: Pool,
    before: list[Peeled],
    pair_error: float,
    near: float,
    fits: float,
    report: Callable[[int, str], None],
    last_only: bool = False,
) -> tuple[list[Peeled], Trunk, OutputFit]:
    """Peel layers until the outputs fit or no further unit is found; `before` is what an earlier attempt found, all but
    the last layer of which may be taken as it is."""
    layers = before[:-1] if last_only and len(before) > 1 and before[-1].resolved else []
    trunk = before[len(layers)].trunk if layers else Trunk(pool.view.n)
    fit = fit_outputs(trunk, pool.samples, pool.values, fits)
    while fit.residual.max() > fits and len(layers) < _DEEPEST:
        k = len(layers)
        start = before[k] if k < len(before) else Peeled(trunk, np.zeros((0, trunk.width + 1)), not trunk.stages, 0)
        known = list(layers)
        if (
            not start.resolved
            and fit.share < _LAST_ONLY
            and pool.view.n <= _FEW_INPUTS
            and pool.view.relative <= _NOISY
        ):
            U = _spread(pool.view, _SPEAKING, pool.rng)
            turned, settled = settled_by_slopes(pool, trunk, layers[-1].unseen, U), None
            if turned is not None:
                settled, layers[-1] = turned[0], _of_units(layers[-1], turned[1])
            else:  # dearer
                settled = settled_by_parts(pool, trunk, layers[-1].unseen, U, near)
            if settled is not None:
                start, before = Peeled(settled, np.zeros((0, settled.width + 1)), True, 0), before[:k]
        found = _peel(pool, start, pair_error, near, report, k)
        if not len(found.rows):
            layers = known
            break
        lower = _of_layer_before(found.trunk, found.rows[: found.firm], pair_error)
        joined = _with_units(found.trunk, lower, pool.samples) if len(lower) else None
        if joined is not None:
            layers[-1], trunk = _with_rows(layers[-1], lower), joined
            before, pool.previous = [*layers, Peeled(trunk, np.zeros((0, trunk.width + 1)), True, 0)], trunk
            trunk, fit = _fitted(pool, trunk, fits)
            continue
        if len(lower):
            layers[-1], before, pool.previous = _with_rows(layers[-1], lower), before[:k], found.trunk.grown(found.rows)
            trunk, fit = _fitted(pool, layers[-1].trunk.grown(layers[-1].rows, layers[-1].silent), fits)
            continue
        if len(found.rows) != len(start.rows) or found.firm != start.firm:
            before = before[:k]  # another layer below: what stood on it is void
        layers.append(found)
        trunk = found.trunk.grown(found.rows, found.silent)
        pool.sample(4 * (trunk.width + 1))
        trunk, fit = _fitted(pool, trunk, fits)
        pool.latest = list(layers), trunk, fit
    return layers, trunk, fit


def _of_layer_before(trunk: Trunk, rows: FloatArray, pair_error: float) -> FloatArray:
    """Those rows that read no unit of the last stage, only what it carries: units of that stage that were missed. As
    rows over the features before it."""
    if not trunk.stages or pair_error > NOISY:
        return np.zeros((0, 0))
    stage = trunk.stages[-1]
    alone = np.abs(rows[:, : stage.n_units]).max(axis=1, initial=0.0) < 10 * pair_error
    carried = rows[alone, stage.n_units :]
    return np.column_stack([carried[:, :-1] @ stage.weight[stage.n_units :], carried[:, -1]])


def _of_units(layer: Peeled, kept: npt.NDArray[np.intp]) -> Peeled:
    """The layer with some of its units."""
    place = {int(i): at for at, i in enumerate(kept)}
    silent, unseen = (tuple((place[i], j) for i, j in of if i in place) for of in (layer.silent, layer.unseen))
    return replace(layer, rows=layer.rows[kept], firm=int((kept < layer.firm).sum()), silent=silent, unseen=unseen)


def _with_rows(layer: Peeled, rows: FloatArray) -> Peeled:
    """The layer with more units whose rows are complete."""
    firm, more = layer.firm, len(rows)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    silent, unseen = (tuple((i + more * (i >= firm), j) for i, j in of) for of in (layer.silent, layer.unseen))
    return replace(
        layer,
        rows=np.concatenate([layer.rows[:firm], rows, layer.rows[firm:]]),
        firm=firm + more,
        silent=silent,
        unseen=unseen,
    )


def _with_units(trunk: Trunk, rows: FloatArray, U: FloatArray) -> Trunk | None:
    """The trunk with more units in its last stage, rows that its linear functions span, turned so that they are off at
    most of the points U: there the linear functions speak for them, and what else reads them shows in few places only.
    None if there are no such functions, or if some unit switches too often for that. (With many inputs signs are cheap:
    then they are settled once more.)"""
    stage = trunk.stages[-1]
    k, rows = stage.n_units, rows / np.linalg.norm(rows, axis=1, keepdims=True)
    on = (with_one(Trunk(trunk.n_inputs, trunk.stages[:-1]).features(U)) @ rows.T > 0).mean(axis=0)
    if not stage.linear or trunk.n_inputs > _FEW_INPUTS or (np.abs(on - 0.5) < _NEARLY_ALWAYS - 0.5).any():
        return None
    rows = np.where(on > 0.5, -1.0, 1.0)[:, None] * rows
    return trunk.with_last(
        replace(
            stage,
            weight=np.concatenate([stage.weight[:k], rows[:, :-1], stage.weight[k:]]),
            bias=np.concatenate([stage.bias[:k], rows[:, -1], stage.bias[k:]]),
            bends=np.arange(len(stage.bias) + len(rows)) < k + len(rows),
        )
    )


def _fitted(pool: Pool, trunk: Trunk, fits: float) -> tuple[Trunk, OutputFit]:
    """The outputs fitted to the features.

    With noise, rows are only as good as normals allow: where the fit is near, all parameters are refined on values to
    see whether it becomes exact. So they are without noise where it is very near everywhere.
    """
    fit = fit_outputs(trunk, pool.samples, pool.values, fits)
    noisy = pool.view.relative > _NOISY
    near = np.median(fit.residual) < 0.3 * pool.view.scale if noisy else fit.residual.max() < _VERY_NEAR * fits
    if fit.residual.max() <= fits or not near or not trunk.stages:
        return trunk, fit
    model = Model(trunk, fit.rows)
    if not noisy and model.n_parameters > _MOST_PARAMETERS:
        return trunk, fit
    pool.sample(int(3.0 * model.n_parameters / len(model.rows)) + 200)
    model = _refined(pool, model)
    if np.median(np.abs(model(pool.samples) - pool.values)) < 3 * pool.view.noise:
        trunk = model.trunk
    return trunk, fit_outputs(trunk, pool.samples, pool.values, fits)


def _with_weak(
    pool: Pool, layers: list[Peeled], trunk: Trunk, fit: OutputFit, fits: float, near: float
) -> tuple[list[Peeled], Trunk, OutputFit]:
    """The last layer with units added that only the misfit shows, if that makes the outputs fit."""
    found, grown, best = layers, trunk, fit
    least = max(1e-9 * pool.view.scale, 30 * pool.view.noise)
    for _ in range(_MOST_MISFIT):
        typical = np.median(best.residual)  # a weak unit shows everywhere, one that acts in a corner does not
        if best.residual.max() <= fits or not least < typical < 0.05 * pool.view.scale:
            break
        # Rows as their own critical points give them: refined on values they would bend to absorb the missing unit.
        pool.sample(int(3.0 * Model(grown, best.rows).n_parameters / len(best.rows)) + 200)
        below, known = found[-1].trunk, with_one(grown.features(pool.samples))
        bends = pool.evidence.x[~explained(grown, pool.evidence.x, near)]
        row = weak_unit(
            with_one(below.features(pool.samples)), known, pool.values, with_one(below.features(bends)), pool.rng
        )
        if row is None:
            break
        found = [*found[:-1], _with_rows(found[-1], row[None])]
        grown, best = _fitted(pool, found[-1].trunk.grown(found[-1].rows, found[-1].silent), fits)
    if best.residual.max() > fits or _misfit(pool, _refined(pool, Model(grown, best.rows))) > 100 * pool.view.noise:
        return layers, trunk, fit
    return found, grown, best


def _with_corner(
    pool: Pool, layers: list[Peeled], trunk: Trunk, fit: OutputFit, fits: float
) -> tuple[list[Peeled], Trunk, OutputFit]:
    """The last layer with units added that act where the outputs do not fit yet, if they do then.

    A unit that is known from part of its corner only has a wrong row, which no further unit makes up for: so each unit
    that is rarely on there is also left out and looked for again.
    """
    pool.sample(_CHECKS // 4)  # asked for later in any case
    trunk, fit = _fitted(pool, trunk, fits)
    state = layers, trunk, fit
    before = pool.samples, pool.values  # those added below crowd in one corner: few others would be outvoted
    for _ in range(_MOST_CORNERS):
        if state[2].residual.max() <= fits or state[2].share < _ALL_BUT_A_CORNER or not pool.open():
            break
        pool.add(_around(pool, state[2], fits))
        state = state[0], state[1], _seen(pool, state[1], state[2].rows, fits)
        better, most = None, state[2].share
        misfit = (pool.values - Model(state[1], state[2].rows)(pool.samples)) @ pool.view.mix
        for known, missing in [*_without_rare(pool, *state, misfit, fits), (state[0], misfit)]:
            for row in corner_units(known[-1].trunk, pool.samples, missing, fits, pool.rng):
                more = [*known[:-1], _with_rows(known[-1], row[None])]
                trial = more, *_fitted(pool, more[-1].trunk.grown(more[-1].rows, more[-1].silent), fits)
                if trial[2].share > most:
                    better, most = trial, trial[2].share
                if most == 1.0:
                    break
            if most == 1.0:
                break
        if better is None:
            break
        state = better
    if state[2].residual.max() > fits:
        same, again = _fitted(pool, trunk, fits)
        if again.share > max(_LAST_ONLY, _seen(pool, trunk, fit.rows, fits).share - _OUTVOTED):
            return layers, same, again
        pool.samples, pool.values = before
        return layers, trunk, fit
    return state


def _seen(pool: Pool, trunk: Trunk, rows: FloatArray, fits: float) -> OutputFit:
    """The outputs as they were fitted to other samples, at all of them. Samples that crowd in one corner would bend the
    outgoing weight of a unit that is rarely on elsewhere."""
    residual = np.abs(Model(trunk, rows)(pool.samples) - pool.values).max(axis=1)
    return OutputFit(rows, residual, float((residual <= fits).mean()))


def _without_rare(
    pool: Pool, layers: list[Peeled], trunk: Trunk, fit: OutputFit, misfit: FloatArray, fits: float
) -> list[tuple[list[Peeled], FloatArray]]:
    """The layers without one unit of the last one, and what is missed then: for units that are nearly always on or off;
    first those that are in their rare state at most of the samples that do not fit."""
    last, stage = layers[-1], trunk.stages[-1]
    rows = np.column_stack([stage.weight, stage.bias])[: stage.n_units]
    if not stage.n_units == len(last.rows) > 1 or not stage.carries:
        return []
    below = Trunk(trunk.n_inputs, trunk.stages[:-1])
    share = (with_one(below.features(pool.view.draw(_SPEAKING, pool.rng))) @ rows.T > 0).mean(axis=0)
    # What is left of a unit in its common state is affine in what the layer carries.
    part = np.maximum(with_one(below.features(pool.samples)) @ (np.where(share > 0.5, -1.0, 1.0)[:, None] * rows).T, 0)
    often = (part[fit.residual > fits] > 0).sum(axis=0)
    found = np.flatnonzero(np.minimum(share, 1 - share) < 1 - _ALL_BUT_A_CORNER)
    return [
        (
            [*layers[:-1], _of_units(last, np.delete(np.arange(len(rows)), j))],
            misfit + part[:, j] * (1 - stage.slope) * float(pool.view.mix @ fit.rows[:, j]),
        )
        for j in found[np.argsort(-often[found], kind="stable")][:_MOST_LEFT_OUT]
    ]


def _with_inner(
    pool: Pool, layers: list[Peeled], trunk: Trunk, fit: OutputFit, fits: float
) -> tuple[list[Peeled], Trunk, OutputFit]:
    """Layers before the last one with units added that act where the outputs do not fit yet, if they do then."""
    before = pool.samples, pool.values  # those added below crowd in one corner: few others would be outvoted
    state, first = (layers, trunk, fit), True
    for _ in range(2 * _MOST_CORNERS if len(trunk.stages) > 1 else 0):
        if not pool.open():
            break
        pool.sample(_CHECKS // 4)
        state = state[0], *_fitted(pool, state[1], fits)
        if state[2].residual.max() > fits:
            around = _around(pool, state[2], fits)
            pool.add(around[::2])
            state = state[0], *_fitted(pool, state[1], fits)
            better = _one_inner(pool, *state, fits)
            if better is None:
                break
            pool.add(around[1::2])  # it must hold where it was not looked for
            better = better[0], *_fitted(pool, better[1], fits)
        else:
            better = state
        if better[2].residual.max() <= fits:
            return better
        # Once more with these samples, which may tell the rest of its row; then as it is, for there may be another.
        state, first = (state, False) if first else (better, True)
    pool.samples, pool.values = before
    return layers, trunk, fit


def _one_inner(
    pool: Pool, layers: list[Peeled], trunk: Trunk, fit: OutputFit, fits: float
) -> tuple[list[Peeled], Trunk, OutputFit] | None:
    """One such unit: the first with which the outputs fit, else that with which most of those samples do that did not.
    None if none of them explains half of them."""
    model, best = Model(trunk, fit.rows), None
    misfit = (pool.values - model(pool.samples)) @ pool.view.mix
    most = 0.5 + 0.5 * fit.share
    for k in range(len(trunk.stages) - 2, -1, -1):
        below, rows = Trunk(pool.view.n, trunk.stages[:k]), list[FloatArray]()
        with pool.asking("values"):
            rows = list(inner_units(pool.view, below, model, pool.samples, misfit, fits, pool.rng))
        for row in rows:
            grown, its_fit = _fitted(pool, with_inner_unit(model, k, row, pool.samples, pool.values).trunk, fits)
            if its_fit.share > most:
                most, best = its_fit.share, (_standing_on(layers, grown, k), grown, its_fit)
            if its_fit.residual.max() <= fits:
                return best
    return best


def _standing_on(layers: list[Peeled], trunk: Trunk, k: int) -> list[Peeled]:
    """The layers as this trunk has them, with one unit more in layer k."""
    stages = trunk.stages
    return [
        replace(
            layer,
            trunk=Trunk(trunk.n_inputs, stages[:i]),
            rows=np.column_stack([stages[i].weight, stages[i].bias])[: stages[i].n_units],
            firm=layer.firm + (i == k),
        )
        if i >= k
        else layer
        for i, layer in enumerate(layers)
    ]


def _around(pool: Pool, fit: OutputFit, fits: float) -> FloatArray:
    """Points around samples that do not fit."""
    edge = pool.samples[pool.rng.choice(np.flatnonzero(fit.residual > fits), _AROUND)]
    spread = np.array([0.02, 0.1, 0.4])[pool.rng.integers(0, 3, _AROUND)][:, None]
    return np.clip(edge + spread * pool.rng.uniform(-1, 1, edge.shape), -1, 1)


def _peel(
    pool: Pool, start: Peeled, pair_error: float, near: float, report: Callable[[int, str], None], layer: int
) -> Peeled:
    """Find units until nothing new turns up."""
    trunk, rows, resolved = start.trunk, start.rows[: start.firm], start.resolved
    fruitless, aimed, rounds, blind_before, aimed_ever = 0, 0, 0, 0, False
    chosen: list[Candidate] = []
    grid = Grid.of(trunk, pool.chords, pool.fair)
    blind = np.zeros((trunk.width + 1, 0))
    broken: list[FloatArray] = []
    followed: list[Followed] = []
    while fruitless < (1 if len(start.rows) else 2) and pool.open():
        x = pool.evidence.x
        fresh = ~explained(trunk, x, near)
        if len(rows):
            fresh &= distances(trunk, rows, x).min(axis=1) > near
        # What the attempt before explained, in whatever layer, needs no normal of its own.
        spare = explained(pool.previous, x, near) if pool.previous is not None else np.zeros(len(x), dtype=bool)
        open_ = np.flatnonzero(fresh & ~spare & np.isinf(pool.evidence.error))
        if len(open_):
            batch = max(_BATCH, _CHEAP // (pool.view.n + 2))
            count = batch if pool.previous is None else batch // 2
            pool.measure(_by_chords(pool, open_, count))
        shown = replace(pool.evidence, error=np.where(fresh, pool.evidence.error, np.inf))
        found = candidates(trunk, shown, grid, pair_error, near)
        again = of_linear(trunk, shown, grid, pair_error, near) if pool.view.n <= _FEW_INPUTS else []
        if again:  # their rows are complete, those that the same points give in this layer may not be
            rows_again = np.stack([c.theta for c in again])
            on = [distances(trunk, rows_again, pool.evidence.x[c.members]).min(axis=1) < near for c in found]
            found = again + [c for c, same in zip(found, on, strict=True) if not same.all()]
        found += [_as_candidate(trunk, f, pool, grid, near) for f in followed if not f.broken]
        chosen = _unbroken(pool, trunk, choose(trunk, found, near, rows), rows, broken)
        taken = [c for c in chosen if c.complete]
        if (
            pool.view.n <= _FEW_INPUTS and pool.view.relative <= _NOISY
        ):  # regions are large, and chance agrees more often
            doubtful = [c for c in taken if not c.trusted and c.goes_on]
            taken = [c for c in taken if c.trusted]
            if doubtful:
                taken += _confirmed(pool, trunk, doubtful, near)
                grid = Grid.of(trunk, pool.chords, pool.fair)
        if taken and (len(start.rows) or aimed_ever):  # aimed chords know a surface on one side only
            taken = _confirmed(pool, trunk, taken, near)
            grid = Grid.of(trunk, pool.chords, pool.fair)
        report(pool.view.oracle.queries, f"layer {layer}: {len(rows) + len(taken)} units")
        progress = bool(taken)
        if taken:
            rows = np.concatenate([rows, np.stack([_sharpened(trunk, c, pool.evidence, near) for c in taken])])
            if len(_of_layer_before(trunk, rows, pair_error)):
                break  # with these the layer before is another one
        if pair_error > NOISY and len(rows):  # more points are known than when the rows were found
            rows = np.stack([polished(trunk, row, blind, pool.evidence, pair_error, near) for row in rows])
        unseen = sum(c.unseen.shape[1] for c in chosen)
        if not resolved:
            done = settle(trunk, rows, max(1e-5, 10 * pair_error)) if len(rows) else Settled(trunk, rows, False)
            part = [(c.theta, c.unseen) for c in chosen if not c.complete and c.matched >= 6 and c.share > 0.6]
            if not done.resolved and part and not progress and pair_error < NOISY:
                done = settle_open(trunk, rows, part, max(1e-5, 10 * pair_error))
            if done.resolved:
                trunk, rows, resolved, progress = done.trunk, done.rows, True, True
                rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
                # Candidates are rows over the features of the trunk before: should time end here, none is left.
                chosen, blind, broken, followed = [], np.zeros((trunk.width + 1, 0)), [], []
                grid = Grid.of(trunk, pool.chords, pool.fair)
        if taken or (unseen < blind_before and rounds < _MOST_ROUNDS):
            aimed = 0
        rounds, blind_before = rounds + 1, unseen
        if (
            not progress
            and trunk.stages
            and pool.view.n <= _FEW_INPUTS
            and pair_error < NOISY
            and len(followed) < _MOST_FOLLOWED
        ):
            new = _follow(pool, trunk, found, fresh, followed, pair_error, near)
            followed, progress = followed + new, bool(new)
            grid = Grid.of(trunk, pool.chords, pool.fair)
        if not progress and aimed < _MOST_AIMED:
            aimed += 1
            weak = [c for c in found if c.matched < 4 and c.share > 0.5 and 3 * c.unseen.shape[1] < len(c.theta)]
            weak = weak[:_MOST_WEAK]
            if weak:  # spread over the whole predicted surfaces, so these chords may judge as well
                more = [across(trunk, c, pool.rng) for c in weak]
                pool.search(_joined(more), fair=True)
                grid, progress = Grid.of(trunk, pool.chords, pool.fair), True
            aimed_ever = True
            more = []
            for c in _promising(chosen, bool(len(start.rows))):
                if sum(len(m) for m in more) < _MOST_BEYOND:
                    more.append(beyond(trunk, c, pool.rng))
            if sum(len(m) for m in more):
                pool.search(_joined(more), fair=False)
                grid, progress = Grid.of(trunk, pool.chords, pool.fair), True
        fruitless = 0 if progress else fruitless + 1
        if not len(open_) and not progress:
            break
    firm = len(rows)
    silent: tuple[tuple[int, int], ...] = ()
    hidden: tuple[tuple[int, int], ...] = ()
    if resolved and trunk.stages:
        sure = pool.view.relative > _NOISY or firm < 2
        partial = [c for c in chosen if not c.complete and c.matched >= 6 and c.share > 0.6 and (sure or c.goes_on)]
        rows, silent, hidden = _with_silent(pool, trunk, rows, partial, near)
    return Peeled(trunk, rows, resolved, firm, silent, hidden)


def _follow(
    pool: Pool,
    trunk: Trunk,
    found: list[Candidate],
    fresh: npt.NDArray[np.bool_],
    before: list[Followed],
    pair_error: float,
    near: float,
) -> list[Followed]:
    """Surfaces followed from the groups of points that are known best, then from single points, none of them twice."""
    seeds = [c.members for c in sorted(found, key=lambda c: (c.unseen.shape[1], -c.matched)) if not c.complete]
    seeds += [np.array([i]) for i in pool.rng.permutation(np.flatnonzero(fresh & pool.evidence.measured[: len(fresh)]))]
    new: list[Followed] = []
    used = set(np.concatenate([f.members for f in before]).tolist()) if before else set()
    for members in seeds:
        if len(new) >= _FOLLOWED or not pool.open():
            break
        if used & set(members.tolist()):
            continue
        if _on_followed(trunk, before + new, pool.evidence.x[members], near):
            continue
        f = follow(pool, trunk, members, pair_error, near)
        used |= set(members.tolist())
        if f is not None:
            new.append(f)
            used |= set(f.members.tolist())
    return new


def _on_followed(trunk: Trunk, followed: list[Followed], x: FloatArray, near: float) -> bool:
    """Whether the points lie on a surface that was followed, in a part of it that is known."""
    for f in followed:
        on = distances(trunk, f.theta[None], x)[:, 0] < near
        if f.unseen.shape[1] and on.any():
            local = trunk.local(x)
            on &= np.linalg.norm(np.einsum("fu,nfi->nui", f.unseen[:-1], local.J), axis=(1, 2)) < 1e-9
        if on.all():
            return True
    return False


def _as_candidate(trunk: Trunk, f: Followed, pool: Pool, grid: Grid, near: float) -> Candidate:
    """A followed surface beside the chords."""
    return Candidate(f.theta, f.unseen, f.members, *crossings(trunk, grid, f.theta, f.unseen, pool.evidence, near))


def _by_chords(pool: Pool, open_: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.intp]:
    """About `count` of the points: all those of some chords, where they are measured so; else any."""
    if not pool.by_chords:
        return pool.rng.choice(open_, min(count, len(open_)), replace=False)
    line = pool.evidence.line[open_]
    rank = np.empty(int(line.max()) + 1)
    rank[pool.rng.permutation(len(rank))] = np.arange(len(rank))
    return open_[np.argsort(rank[line], kind="stable")[:count]]


def _unbroken(
    pool: Pool, trunk: Trunk, chosen: list[Candidate], rows: FloatArray, broken: list[FloatArray]
) -> list[Candidate]:
    """Those candidates whose surface goes on where another unit of the layer switches (see `beside`).

    Three queries a place: a bend shows in the second difference across the surface. The others are `broken`, and not
    looked at again.
    """
    view = pool.view
    # Not beside pieces of deeper units: where one of those switches off, a unit of this layer may have no effect. With
    # many inputs such pieces are rare, and a unit that few chords have met is a rival all the same.
    sure = [c for c in chosen if c.complete and (c.trusted or view.n > _FEW_INPUTS)]
    if view.relative > _NOISY or len(sure) + len(rows) < 2:
        return chosen
    kept, few = [], view.n <= _FEW_INPUTS
    for c in chosen:
        if any(len(b) == len(c.theta) and np.abs(b @ c.theta) > 1 - 1e-10 for b in broken):
            continue
        rivals = np.concatenate([rows, *(d.theta[None] for d in sure if d is not c)])
        rivals = rivals[pool.rng.permutation(len(rivals))[: _MOST_RIVALS * (2 if few else 1)]]
        x, normal = beside(trunk, c, rivals, each=3 if few else 2)
        bends = np.zeros((0, 2), dtype=bool)
        with pool.asking("normals"):
            ends = np.stack([x - _SHORT * normal, x, x + _SHORT * normal], axis=2)
            values = view.values(ends.reshape(-1, view.n)).reshape(len(x), 2, 3)
            bends = np.abs(values[..., 0] + values[..., 2] - 2 * values[..., 1]) > 30 * view.noise
        both, one = int(bends.all(axis=1).sum()), int((bends[:, 0] != bends[:, 1]).sum())
        # Without biases all surfaces meet in one point, and near it other units switch between the two places.
        if one <= max(
            1, both // (2 if few and c.trusted else 5)
        ):  # other pieces of deeper units are no rivals, and vote for it
            kept.append(replace(c, goes_on=both > 0))
        else:
            broken.append(c.theta)
    return kept


def _confirmed(pool: Pool, trunk: Trunk, taken: list[Candidate], near: float) -> list[Candidate]:
    """Those candidates whose surface bends the function wherever in the box one looks for it.

    Within one region of this layer a deeper unit's surface looks like a unit of this layer to chords that meet it.
    """
    chords = [across(trunk, c, pool.rng, each=_LOOKS) for c in taken]
    first = len(pool.chords) + np.cumsum([0, *map(len, chords)])
    pool.search(_joined(chords), fair=True)
    kept = []
    for c, low, high in zip(taken, first[:-1], first[1:], strict=True):
        here = np.flatnonzero((pool.evidence.line >= low) & (pool.evidence.line < high))
        on = distances(trunk, c.theta[None], pool.evidence.x[here])[:, 0] < near
        if 2 * len(np.unique(pool.evidence.line[here[on]])) >= max(high - low, 3):
            kept.append(c)
    return kept


def _promising(chosen: list[Candidate], restart: bool) -> list[Candidate]:
    """Incomplete candidates to look beyond: those that know half of their row; in a restart, where few are left, else
    the two that know most of it."""
    open_ = sorted((c for c in chosen if not c.complete), key=lambda c: c.unseen.shape[1])
    good = [c for c in open_ if 2 * c.unseen.shape[1] < len(c.theta)]
    return good or [c for c in open_[:2] if restart and c.matched >= 4]


def _with_silent(
    pool: Pool, trunk: Trunk, rows: FloatArray, partial: list[Candidate], near: float
) -> tuple[FloatArray, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Rows with the units added whose surface never meets some feature; see `Stage.silent`, `Peeled.unseen`.

    Such a unit keeps one sign wherever the feature is active. If it is off there, any sufficiently negative weight
    does; if it is on, the weight is a placeholder.
    """
    U = _spread(pool.view, 6000, pool.rng)
    z = trunk.features(U)
    silent, unseen = [], []
    for c in partial:
        features = np.flatnonzero(np.linalg.norm(c.unseen[:-1], axis=1) > 0.9)
        if len(features) != c.unseen.shape[1]:
            continue
        theta = _sharpened(trunk, c, pool.evidence, near)
        theta[features] = 0.0
        h = with_one(z) @ theta
        for j in features:
            unseen.append((len(rows), int(j)))
            active = np.flatnonzero(z[:, j] > 0)
            if not len(active):
                continue
            edge = active[np.argsort(z[active, j])[: max(1, len(active) // 5)]]
            on = (h[edge] > 0).mean() > 0.5
            ratio = h[active] / z[active, j]
            theta[j] = 2 * max(0.0, -ratio.min()) if on else -2 * max(0.0, ratio.max()) - 1e-3
            if on:
                silent.append((len(rows), int(j)))
        rows = np.concatenate([rows, theta[None]])
    return rows, tuple(silent), tuple(unseen)


def _joined(parts: list[Chords]) -> Chords:
    return Chords(np.concatenate([c.start for c in parts]), np.concatenate([c.way for c in parts]))


def _sharpened(trunk: Trunk, c: Candidate, evidence: Evidence, near: float) -> FloatArray:
    """The row from all critical points that lie on it: `theta . (z, 1) = 0` at points is sharper than any normal."""
    theta = c.theta
    on = np.flatnonzero(distances(trunk, theta[None], evidence.x)[:, 0] < near)
    if len(on) < 2:
        return theta
    local = trunk.local(evidence.x[on])
    slope = np.maximum(np.linalg.norm(np.einsum("f,nfi->ni", theta[:-1], local.J), axis=1), 1e-300)
    points = with_one(local.z) / slope[:, None]
    measured = on[np.isfinite(evidence.error[on])]
    blocks = [points]
    if len(measured):
        local = trunk.local(evidence.x[measured])
        ahead = np.einsum("f,nfi->ni", theta[:-1], local.J)
        slope = np.maximum(np.linalg.norm(ahead, axis=1), 1e-300)
        v = evidence.normal[measured]
        # A normal that says something else is that of another surface through the point.
        turned = ahead / slope[:, None] - np.sign((ahead * v).sum(axis=1))[:, None] * v
        same = np.linalg.norm(turned, axis=1) < _SAME_NORMAL + 10 * evidence.error[measured]
        local, slope, v = Local(local.z[same], local.J[same]), slope[same], v[same]
        # Rows of J^T theta that must vanish: the part across the normal.
        across = local.J - np.einsum("nfi,ni->nf", local.J, v)[:, :, None] * v[:, None, :]
        tangent = np.concatenate([across, np.zeros((len(v), 1, v.shape[1]))], axis=1) / slope[:, None, None]
        blocks.append(0.01 * tangent.transpose(0, 2, 1).reshape(-1, len(theta)))
    A = np.concatenate(blocks)
    Vt = np.linalg.svd(A, full_matrices=True)[2]
    sharp = Vt[-1] * np.sign(Vt[-1] @ theta)
    before, after = distances(trunk, np.stack([theta, sharp]), evidence.x[on]).T
    good = np.abs(sharp @ theta) > 1 - 1e-3 and (after < near).mean() > 0.8 and after.mean() <= before.mean()
    return sharp if good else theta


def _pruned(model: Model, U: FloatArray, Y: FloatArray, unused_below: float) -> Model:
    """Drop carried features and units that nothing downstream uses."""
    stages, rows = list(model.trunk.stages), model.rows
    for k in range(len(stages) - 1, -1, -1):
        after = np.abs(rows[:, :-1] if k == len(stages) - 1 else stages[k + 1].weight)
        reach = np.abs(Trunk(model.trunk.n_inputs, tuple(stages[: k + 1])).features(U)).max(axis=0, initial=0.0)
        used = after * reach
        keep = (used > unused_below * used.max(axis=1, keepdims=True, initial=1e-300)).any(axis=0)
        if not keep.any():
            keep[0] = True
        stage = stages[k]
        stages[k] = replace(
            stage,
            weight=stage.weight[keep],
            bias=stage.bias[keep],
            bends=stage.bends[keep],
            silent=(),
            linear=int((keep & ~stage.bends).sum()) if stage.linear else 0,
        )
        if k == len(stages) - 1:
            rows = np.column_stack([rows[:, :-1][:, keep], rows[:, -1]])
        else:
            above = stages[k + 1]
            stages[k + 1] = replace(above, weight=above.weight[:, keep], silent=())
    trial = Model(Trunk(model.trunk.n_inputs, tuple(stages)), rows)
    was, now = np.abs(model(U) - Y).max(initial=0.0), np.abs(trial(U) - Y).max(initial=0.0)
    return trial if now <= 10 * was + 1e-5 * np.abs(Y).max(initial=0.0) else model
