"""`method="exact"`: the weights up to permutation and positive scaling, layer by layer.

1. Search chords of the box for critical points (`critical.py`).
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
from reluscope.recovery.critical import Bends, Chords, find_bends, normals, random_chords
from reluscope.recovery.last_layer import OutputFit, fit_outputs
from reluscope.recovery.oracle import QueryLimitError
from reluscope.recovery.peel import (
    NOISY,
    Candidate,
    Evidence,
    Grid,
    across,
    beyond,
    candidates,
    choose,
    distances,
    polished,
    with_one,
)
from reluscope.recovery.refine import Model, refine
from reluscope.recovery.signs import settle
from reluscope.recovery.trunk import Stage, Trunk
from reluscope.recovery.view import View
from reluscope.recovery.weak import weak_unit
from reluscope.threads import OutOfTimeError, deadline

_FIRST_CHORDS = 40
_BATCH = 120
"""Normals measured at a time."""

_CHECKS = 36_000
"""Values that a complete network must fit."""

_CANDIDATES = 60_000
_RARE = 2000
"""Points, out of the candidates, where a recovered unit is in its rarest state: asked before refining."""

_WORST = 1000
_MOST_REFINED = 3
"""Samples with the largest misfit that join another refinement, and how many of those there may be."""

_NOISY = 1e-12
"""Relative noise above which rows are refined on values before it is judged whether the outputs fit."""

_DEEPEST = 6
_MOST_WEAK = 12
_MOST_MISFIT = 3
"""Units that are added from the misfit alone."""

_LOOKS = 8
"""Places of its surface at which a unit found in a restart is confirmed."""

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
    previous: Trunk | None = None
    stopped: str | None = None
    """Why nothing more may be asked; from then on the pool stays as it is."""

    @classmethod
    def empty(cls, view: View, rng: np.random.Generator, budget: Budget) -> Pool:
        """Nothing known yet."""
        none, rows = np.zeros(0), np.zeros((0, view.n))
        evidence = Evidence(none.astype(np.intp), none, rows, rows, none)
        outputs = np.zeros((0, view.oracle.n_outputs))
        return cls(view, rng, Chords(rows, rows), evidence, none, none, none.astype(bool), 0, rows, outputs, budget)

    def late(self) -> bool:
        """Whether even steps that are under way have to end: a little after nothing new may be begun."""
        return self.budget.elapsed() > 1.1 * self.budget.seconds + 0.3

    def open(self) -> bool:
        """Whether more may be asked: neither the budget nor the oracle's limit is reached."""
        self.stopped = self.stopped or self.budget.spent()
        return self.stopped is None

    def search(self, chords: Chords, fair: bool) -> None:
        """Search more chords; `fair` ones were drawn without looking at any candidate, so they may judge it."""
        with self._asking("critical points"):
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
        with self._asking("normals"):
            found = normals(self.view, e.x[which], self.chords.way[e.line[which]], self.jump[which], self.reach[which])
            normal, error = e.normal.copy(), e.error.copy()
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
        with self._asking("values"):
            Y = self.view.outputs(U)
            self.samples, self.values = np.concatenate([self.samples, U]), np.concatenate([self.values, Y])

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
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
    the samples, `share` the share of samples that fit. `left_over` counts critical points that no unit explains.
    """

    model: Model
    complete: bool
    layers: tuple[tuple[int, bool], ...]
    residual: float
    share: float
    restarts: int
    critical: int
    left_over: int
    stopped: str | None
    queries: dict[str, int]


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
    restarts, more, complete = -1, _FIRST_CHORDS, False
    pool.sample(400)
    try:
        with deadline(pool.late):
            while not complete and pool.open():
                restarts += 1
                pool.search(_aimed(view, pool, fit, more, rng), fair=True)
                pool.previous = trunk if trunk.stages else None
                layers, trunk, fit = _peel_all(pool, layers, pair_error, near, fits, report)
                if restarts and layers:
                    layers, trunk, fit = _with_weak(pool, layers, trunk, fit, fits, near)
                complete = bool(fit.residual.max() <= fits)
                if complete:  # a unit that matters in a corner only shows when one looks at more points
                    pool.sample(_CHECKS)
                    U = _spread(view, _CANDIDATES, rng)
                    pool.add(U[np.argsort(-_rarity(Model(trunk, fit.rows), U), kind="stable")[:_RARE]])
                    trunk, fit = _fitted(pool, trunk, fits)
                    complete = bool(fit.residual.max() <= fits) and len(pool.samples) >= _CHECKS
                if not complete and pool.stopped is None and len(pool.chords) >= most_chords:
                    pool.stopped = f"{len(pool.chords)} chords searched"
                more = min(_FIRST_CHORDS * (restarts + 1), most_chords)
    except OutOfTimeError:  # what was found before stands
        complete = False
        pool.open()
    if fit is None or len(pool.samples) != len(fit.residual):
        fit = fit_outputs(trunk, pool.samples, pool.values, fits)
    report(view.oracle.queries, "refining")
    model, resolved = Model(trunk, fit.rows), False
    with suppress(OutOfTimeError), deadline(pool.late):
        model, resolved = _finished(pool, model, complete, pair_error)
    signs = [layer.resolved for layer in layers[1:]] + [resolved]
    residual = np.abs(model(pool.samples) - pool.values)
    if complete and residual.max() > max(1e-9 * view.scale, 100 * view.noise):
        complete, pool.stopped = False, f"after refinement it still misses by {residual.max():.1e} at some samples"
    explained = _explained(trunk, pool.evidence.x, near)
    return Exact(
        model,
        complete,
        tuple((stage.n_units, sign) for stage, sign in zip(model.trunk.stages, signs, strict=False)),
        float(residual.max(initial=0.0)),
        float((residual.max(axis=1, initial=0.0) <= fits).mean()) if len(residual) else 0.0,
        max(restarts, 0),
        len(pool.evidence),
        int((~explained).sum()),
        None if complete else pool.stopped,
        dict(pool.queries),
    )


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
    result = _refined(pool, _pruned(Model(done.trunk, done.rows), pool.samples, pool.values, unused))
    if done.resolved and _misfit(pool, result) > 100 * view.noise:
        carried = _refined(pool, _pruned(model, pool.samples, pool.values, unused))
        if _misfit(pool, carried) < 0.1 * _misfit(pool, result):
            return carried, False
    return result, done.resolved


def _refined(pool: Pool, model: Model) -> Model:
    """The model refined on the samples that tell most about it, then on its misfits."""
    some = _telling(model, pool.samples, pool.rng)
    model, _ = refine(model, pool.samples[some], pool.values[some])
    for _ in range(_MOST_REFINED):
        residual = np.abs(model(pool.samples) - pool.values).max(axis=1)
        if residual.max() <= 100 * pool.view.noise:
            break
        some = np.union1d(some, np.argsort(-residual)[:_WORST])  # places the samples so far did not tell apart
        better, _ = refine(model, pool.samples[some], pool.values[some])
        if _misfit(pool, better) > 0.5 * residual.max():
            return better if _misfit(pool, better) < residual.max() else model
        model = better
    return model


def _misfit(pool: Pool, model: Model) -> float:
    return float(np.abs(model(pool.samples) - pool.values).max(initial=0.0))


def _spread(view: View, count: int, rng: np.random.Generator) -> FloatArray:
    """Points of the unit box: half uniform, a quarter corners, a quarter on the way to corners."""
    U = view.draw(count, rng)
    U[::4] = np.sign(U[::4])
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
        z = np.where(stage.bends & (h < 0), 0.0, h)
    return rarest


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


@dataclass(frozen=True, eq=False)
class Peeled:
    """The rows (units, features + 1) of a layer, the trunk they stand on, and whether that trunk's signs are settled.

    The first `firm` rows are complete; the others have weights that their surface did not show. `silent` lists those
    that had to be left open, as (unit, feature).
    """

    trunk: Trunk
    rows: FloatArray
    resolved: bool
    firm: int
    silent: tuple[tuple[int, int], ...] = ()


def _peel_all(
    pool: Pool, before: list[Peeled], pair_error: float, near: float, fits: float, report: Callable[[int, str], None]
) -> tuple[list[Peeled], Trunk, OutputFit]:
    """Peel layers until the outputs fit or no further unit is found; `before` is what an earlier attempt found."""
    trunk = Trunk(pool.view.n)
    layers: list[Peeled] = []
    fit = fit_outputs(trunk, pool.samples, pool.values, fits)
    while fit.residual.max() > fits and len(layers) < _DEEPEST:
        k = len(layers)
        start = before[k] if k < len(before) else Peeled(trunk, np.zeros((0, trunk.width + 1)), not trunk.stages, 0)
        found = _peel(pool, start, pair_error, near, report, k)
        if not len(found.rows):
            break
        if len(found.rows) != len(start.rows) or found.firm != start.firm:
            before = before[:k]  # another layer below: what stood on it is void
        layers.append(found)
        trunk = found.trunk.grown(found.rows, found.silent)
        pool.sample(4 * (trunk.width + 1))
        trunk, fit = _fitted(pool, trunk, fits)
    return layers, trunk, fit


def _fitted(pool: Pool, trunk: Trunk, fits: float) -> tuple[Trunk, OutputFit]:
    """The outputs fitted to the features.

    With noise, rows are only as good as normals allow: where the fit is near, all parameters are refined on values to
    see whether it becomes exact.
    """
    fit = fit_outputs(trunk, pool.samples, pool.values, fits)
    near = np.median(fit.residual) < 0.3 * pool.view.scale
    if pool.view.relative <= _NOISY or fit.residual.max() <= fits or not near:
        return trunk, fit
    model = Model(trunk, fit.rows)
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
        bends = pool.evidence.x[~_explained(grown, pool.evidence.x, near)]
        row = weak_unit(
            with_one(below.features(pool.samples)), known, pool.values, with_one(below.features(bends)), pool.rng
        )
        if row is None:
            break
        last = found[-1]
        rows = np.concatenate([last.rows[: last.firm], row[None], last.rows[last.firm :]])
        silent = tuple((i + (i >= last.firm), j) for i, j in last.silent)
        found = [*found[:-1], replace(last, rows=rows, firm=last.firm + 1, silent=silent)]
        grown, best = _fitted(pool, found[-1].trunk.grown(rows, silent), fits)
    if best.residual.max() > fits or _misfit(pool, _refined(pool, Model(grown, best.rows))) > 100 * pool.view.noise:
        return layers, trunk, fit
    return found, grown, best


def _peel(
    pool: Pool, start: Peeled, pair_error: float, near: float, report: Callable[[int, str], None], layer: int
) -> Peeled:
    """Find units until nothing new turns up."""
    trunk, rows, resolved = start.trunk, start.rows[: start.firm], start.resolved
    fruitless, aimed, rounds, blind_before, aimed_ever = 0, 0, 0, 0, False
    chosen: list[Candidate] = []
    grid = Grid.of(trunk, pool.chords, pool.fair)
    blind = np.zeros((trunk.width + 1, 0))
    while fruitless < (1 if len(start.rows) else 2) and pool.open():
        x = pool.evidence.x
        fresh = ~_explained(trunk, x, near)
        if len(rows):
            fresh &= distances(trunk, rows, x).min(axis=1) > near
        # What the attempt before explained, in whatever layer, needs no normal of its own.
        spare = _explained(pool.previous, x, near) if pool.previous is not None else np.zeros(len(x), dtype=bool)
        open_ = np.flatnonzero(fresh & ~spare & np.isinf(pool.evidence.error))
        if len(open_):
            pool.measure(
                pool.rng.choice(open_, min(_BATCH if pool.previous is None else _BATCH // 2, len(open_)), replace=False)
            )
        shown = replace(pool.evidence, error=np.where(fresh, pool.evidence.error, np.inf))
        found = candidates(trunk, shown, grid, pair_error, near)
        chosen = choose(trunk, found, near, rows)
        taken = [c for c in chosen if c.complete]
        if taken and (len(start.rows) or aimed_ever):  # aimed chords know a surface on one side only
            taken = _confirmed(pool, trunk, taken, near)
            grid = Grid.of(trunk, pool.chords, pool.fair)
        report(pool.view.oracle.queries, f"layer {layer}: {len(rows) + len(taken)} units")
        progress = bool(taken)
        if taken:
            rows = np.concatenate([rows, np.stack([_sharpened(trunk, c, pool.evidence, near) for c in taken])])
        if pair_error > NOISY and len(rows):  # more points are known than when the rows were found
            rows = np.stack([polished(trunk, row, blind, pool.evidence, pair_error, near) for row in rows])
        if not resolved and len(rows):
            done = settle(trunk, rows, max(1e-5, 10 * pair_error))
            if done.resolved:
                trunk, rows, resolved, progress = done.trunk, done.rows, True, True
                rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
                blind = np.zeros((trunk.width + 1, 0))
                grid = Grid.of(trunk, pool.chords, pool.fair)
        unseen = sum(c.unseen.shape[1] for c in chosen)
        if taken or (unseen < blind_before and rounds < _MOST_ROUNDS):
            aimed = 0
        rounds, blind_before = rounds + 1, unseen
        if not progress and aimed < _MOST_AIMED:
            aimed += 1
            weak = [c for c in found if c.matched < 4 and c.share > 0.5 and 3 * c.unseen.shape[1] < len(c.theta)]
            weak = weak[:_MOST_WEAK]
            if weak:  # spread over the whole predicted surfaces, so these chords may judge as well
                more = [across(trunk, c, pool.rng) for c in weak]
                pool.search(_joined(more), fair=True)
                grid, progress = Grid.of(trunk, pool.chords, pool.fair), True
            aimed_ever = True
            more = [beyond(trunk, c, pool.rng) for c in _promising(chosen, bool(len(start.rows)))]
            if more and sum(len(m) for m in more):
                pool.search(_joined(more), fair=False)
                grid, progress = Grid.of(trunk, pool.chords, pool.fair), True
        fruitless = 0 if progress else fruitless + 1
        if not len(open_) and not progress:
            break
    firm = len(rows)
    silent: tuple[tuple[int, int], ...] = ()
    if resolved and trunk.stages:
        partial = [c for c in chosen if not c.complete and c.matched >= 6 and c.share > 0.6]
        rows, silent = _with_silent(pool, trunk, rows, partial, near)
    return Peeled(trunk, rows, resolved, firm, silent)


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
) -> tuple[FloatArray, tuple[tuple[int, int], ...]]:
    """Rows with the units added whose surface never meets some feature; see `Stage.silent`.

    Such a unit keeps one sign wherever the feature is active. If it is off there, any sufficiently negative weight
    does; if it is on, the weight is a placeholder.
    """
    U = _spread(pool.view, 6000, pool.rng)
    z = trunk.features(U)
    silent = []
    for c in partial:
        features = np.flatnonzero(np.linalg.norm(c.unseen[:-1], axis=1) > 0.9)
        if len(features) != c.unseen.shape[1]:
            continue
        theta = _sharpened(trunk, c, pool.evidence, near)
        theta[features] = 0.0
        h = with_one(z) @ theta
        for j in features:
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
    return rows, tuple(silent)


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
        slope = np.maximum(np.linalg.norm(np.einsum("f,nfi->ni", theta[:-1], local.J), axis=1), 1e-300)
        v = evidence.normal[measured]
        # Rows of J^T theta that must vanish: the part across the normal.
        across = local.J - np.einsum("nfi,ni->nf", local.J, v)[:, :, None] * v[:, None, :]
        tangent = np.concatenate([across, np.zeros((len(v), 1, v.shape[1]))], axis=1) / slope[:, None, None]
        blocks.append(0.01 * tangent.transpose(0, 2, 1).reshape(-1, len(theta)))
    A = np.concatenate(blocks)
    Vt = np.linalg.svd(A, full_matrices=True)[2]
    sharp = Vt[-1] * np.sign(Vt[-1] @ theta)
    good = (
        np.abs(sharp @ theta) > 1 - 1e-3 and (distances(trunk, sharp[None], evidence.x[on])[:, 0] < near).mean() > 0.8
    )
    return sharp if good else theta


def _explained(trunk: Trunk, x: FloatArray, near: float) -> npt.NDArray[np.bool_]:
    """Whether each point lies on the surface of a known unit."""
    known = np.zeros(len(x), dtype=bool)
    for k, stage in enumerate(trunk.stages):
        below = Trunk(trunk.n_inputs, trunk.stages[:k])
        rows = np.column_stack([stage.weight[stage.bends], stage.bias[stage.bends]])
        known |= distances(below, rows, x).min(axis=1, initial=np.inf) < near
    return known


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
        stages[k] = Stage(stage.weight[keep], stage.bias[keep], stage.bends[keep])
        if k == len(stages) - 1:
            rows = np.column_stack([rows[:, :-1][:, keep], rows[:, -1]])
        else:
            above = stages[k + 1]
            stages[k + 1] = Stage(above.weight[:, keep], above.bias, above.bends)
    trial = Model(Trunk(model.trunk.n_inputs, tuple(stages)), rows)
    was, now = np.abs(model(U) - Y).max(initial=0.0), np.abs(trial(U) - Y).max(initial=0.0)
    return trial if now <= 10 * was + 1e-5 * np.abs(Y).max(initial=0.0) else model
