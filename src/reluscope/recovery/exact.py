"""`method="exact"`: the weights up to permutation and positive scaling, layer by layer.

1. Search chords of the box for critical points (`critical.py`).
2. Peel: find the units of the next layer from the points no known unit explains (`peel.py`); settle the signs of the
   layer before (`signs.py`); repeat until the outputs are affine in the features (`last_layer.py`).
3. Refine all parameters on values (`refine.py`).

If a layer stays incomplete, more chords are searched and the peeling starts again on all the evidence: a restart.
Neither depth nor widths are given; both are found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.budget import Budget
from reluscope.recovery.critical import Bends, Chords, find_bends, normals, random_chords
from reluscope.recovery.last_layer import OutputFit, fit_outputs
from reluscope.recovery.oracle import QueryLimitError
from reluscope.recovery.peel import Candidate, Evidence, Grid, across, beyond, candidates, choose, distances, with_one
from reluscope.recovery.refine import Model, refine
from reluscope.recovery.signs import settle
from reluscope.recovery.trunk import Stage, Trunk
from reluscope.recovery.view import View

_FIRST_CHORDS = 40
_BATCH = 120
"""Normals measured at a time."""

_CHECKS = 18_000
"""Values that a complete network must fit."""

_CANDIDATES = 60_000
_RARE = 2000
"""Points, out of the candidates, where a recovered unit is in its rarest state: asked before refining."""

_WORST = 1000
"""Samples with the largest misfit that join a second refinement."""

_NOISY = 1e-12
"""Relative noise above which rows are refined on values before it is judged whether the outputs fit."""

_DEEPEST = 6
_MOST_WEAK = 12
_MOST_AIMED = 2
"""Rounds in a row, without a new unit, of chords aimed at what a layer's candidates have not seen."""


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
    queries: dict[str, int] = field(default_factory=dict)
    previous: Trunk | None = None

    @classmethod
    def empty(cls, view: View, rng: np.random.Generator) -> Pool:
        """Nothing known yet."""
        none, rows = np.zeros(0), np.zeros((0, view.n))
        evidence = Evidence(none.astype(np.intp), none, rows, rows, none)
        outputs = np.zeros((0, view.oracle.n_outputs))
        return cls(view, rng, Chords(rows, rows), evidence, none, none, none.astype(bool), 0, rows, outputs)

    def search(self, chords: Chords, fair: bool) -> None:
        """Search more chords; `fair` ones were drawn without looking at any candidate, so they may judge it."""
        before = self.view.oracle.queries
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
        self.chords = Chords(
            np.concatenate([self.chords.start, chords.start]), np.concatenate([self.chords.way, chords.way])
        )
        self.fair = np.concatenate([self.fair, np.full(len(chords), fair)])
        self._count("critical points", before)

    def measure(self, which: npt.NDArray[np.intp]) -> None:
        """Measure normals at some of the critical points; those that fail are marked with error nan."""
        before = self.view.oracle.queries
        e = self.evidence
        found = normals(self.view, e.x[which], self.chords.way[e.line[which]], self.jump[which], self.reach[which])
        normal, error = e.normal.copy(), e.error.copy()
        normal[which] = found.normal
        error[which] = np.where(found.good, found.error, np.nan)
        self.evidence = replace(e, normal=normal, error=error)
        self._count("normals", before)

    def sample(self, count: int) -> None:
        """Have at least `count` values, half at uniform points and half towards the corners of the box."""
        missing = count - len(self.samples)
        if missing > 0:
            self.add(_spread(self.view, missing, self.rng))

    def add(self, U: FloatArray) -> None:
        """Values at given points."""
        before = self.view.oracle.queries
        Y = self.view.outputs(U)
        self.samples, self.values = np.concatenate([self.samples, U]), np.concatenate([self.values, Y])
        self._count("values", before)

    def _count(self, what: str, before: int) -> None:
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
    pool = Pool.empty(view, rng)
    # What the pair tests may show, and how far a bend may lie from where it is predicted.
    tolerance = float(np.clip(1e4 * view.relative, 1e-7, 3e-3))
    near = float(np.clip(1e4 * view.relative, 1e-6, 1e-2))
    fits = float(max(1e-6 * view.scale, 30 * view.noise))
    layers: list[Peeled] = []
    trunk = Trunk(view.n)
    fit: OutputFit | None = None
    restarts, more, stopped, complete = -1, _FIRST_CHORDS, None, False
    try:
        pool.sample(400)
        while not complete:
            restarts += 1
            pool.search(_aimed(view, pool, fit, more, rng), fair=True)
            pool.previous = trunk if trunk.stages else None
            layers, trunk, fit = _peel_all(pool, layers, tolerance, near, fits, report)
            complete = bool(fit.residual.max() <= fits)
            if complete:  # a unit that matters in a corner only shows when one looks at more points
                pool.sample(_CHECKS)
                U = _spread(view, _CANDIDATES, rng)
                pool.add(U[np.argsort(-_rarity(Model(trunk, fit.rows), U), kind="stable")[:_RARE]])
                fit = fit_outputs(trunk, pool.samples, pool.values, fits)
                complete = bool(fit.residual.max() <= fits)
            if not complete and len(pool.chords) >= most_chords:
                stopped = f"{len(pool.chords)} chords searched"
                break
            stopped = None if complete else budget.spent()
            if stopped is not None:
                break
            more = min(_FIRST_CHORDS * (restarts + 1), most_chords)
    except QueryLimitError as error:
        stopped = str(error)
    if fit is None or len(pool.samples) != len(fit.residual):
        fit = fit_outputs(trunk, pool.samples, pool.values, fits)
    done = settle(trunk, fit.rows, max(1e-5, 10 * tolerance))
    signs = [layer.resolved for layer in layers[1:]] + [done.resolved]
    model = _pruned(Model(done.trunk, done.rows), pool.samples, pool.values, max(1e-7, tolerance))
    residual = np.abs(model(pool.samples) - pool.values)
    if complete:
        report(view.oracle.queries, "refining")
        some = _telling(model, pool.samples, rng)
        model, _ = refine(model, pool.samples[some], pool.values[some])
        residual = np.abs(model(pool.samples) - pool.values)
        worst = np.argsort(-residual.max(axis=1))[:_WORST]
        if residual.max() > 100 * view.noise:  # places the first choice of samples did not tell apart
            some = np.union1d(some, worst)
            model, _ = refine(model, pool.samples[some], pool.values[some])
            residual = np.abs(model(pool.samples) - pool.values)
    explained = _explained(trunk, pool.evidence.x, near)
    return Exact(
        model,
        complete,
        tuple((len(layer.rows), sign) for layer, sign in zip(layers, signs, strict=False)),
        float(residual.max(initial=0.0)),
        float((residual.max(axis=1, initial=0.0) <= fits).mean()) if len(residual) else 0.0,
        max(restarts, 0),
        len(pool.evidence),
        int((~explained).sum()),
        stopped,
        dict(pool.queries),
    )


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
    pool: Pool, before: list[Peeled], tolerance: float, near: float, fits: float, report: Callable[[int, str], None]
) -> tuple[list[Peeled], Trunk, OutputFit]:
    """Peel layers until the outputs fit or no further unit is found; `before` is what an earlier attempt found."""
    trunk = Trunk(pool.view.n)
    layers: list[Peeled] = []
    fit = fit_outputs(trunk, pool.samples, pool.values, fits)
    while fit.residual.max() > fits and len(layers) < _DEEPEST:
        k = len(layers)
        start = before[k] if k < len(before) else Peeled(trunk, np.zeros((0, trunk.width + 1)), not trunk.stages, 0)
        found = _peel(pool, start, tolerance, near, report, k + 1)
        if not len(found.rows):
            break
        if len(found.rows) != len(start.rows) or found.firm != start.firm:
            before = before[:k]  # another layer below: what stood on it is void
        layers.append(found)
        trunk = found.trunk.grown(found.rows, found.silent)
        pool.sample(4 * (trunk.width + 1))
        fit = fit_outputs(trunk, pool.samples, pool.values, fits)
        if (
            fits < fit.residual.max()
            and np.median(fit.residual) < 0.3 * pool.view.scale
            and pool.view.relative > _NOISY
        ):
            # Rows are only as good as the noise allows: see whether refining them makes the outputs fit.
            model, _ = refine(Model(trunk, fit.rows), pool.samples, pool.values)
            if np.median(np.abs(model(pool.samples) - pool.values)) < 3 * pool.view.noise:
                trunk, fit = model.trunk, fit_outputs(model.trunk, pool.samples, pool.values, fits)
    return layers, trunk, fit


def _peel(
    pool: Pool, start: Peeled, tolerance: float, near: float, report: Callable[[int, str], None], layer: int
) -> Peeled:
    """Find units until nothing new turns up."""
    trunk, rows, resolved = start.trunk, start.rows[: start.firm], start.resolved
    fruitless, aimed = 0, 0
    chosen: list[Candidate] = []
    grid = Grid.of(trunk, pool.chords, pool.fair)
    while fruitless < (1 if len(start.rows) else 2):
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
        found = candidates(trunk, shown, grid, tolerance, near)
        chosen = choose(trunk, found, near, rows)
        taken = [c for c in chosen if c.complete]
        report(pool.view.oracle.queries, f"layer {layer}: {len(rows) + len(taken)} units")
        progress = bool(taken)
        if taken:
            rows = np.concatenate([rows, np.stack([_sharpened(trunk, c, pool.evidence, near) for c in taken])])
        if not resolved and len(rows):
            done = settle(trunk, rows, max(1e-5, 10 * tolerance))
            if done.resolved:
                trunk, rows, resolved, progress = done.trunk, done.rows, True, True
                rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
                grid = Grid.of(trunk, pool.chords, pool.fair)
        if taken:
            aimed = 0
        if not progress and aimed < _MOST_AIMED:
            aimed += 1
            weak = [c for c in found if c.matched < 4 and c.share > 0.5 and 3 * c.unseen.shape[1] < len(c.theta)]
            weak = weak[:_MOST_WEAK]
            if weak:  # spread over the whole predicted surfaces, so these chords may judge as well
                more = [across(trunk, c, pool.rng) for c in weak]
                pool.search(_joined(more), fair=True)
                grid, progress = Grid.of(trunk, pool.chords, pool.fair), True
            more = [
                beyond(trunk, c, pool.rng) for c in chosen if not c.complete and 2 * c.unseen.shape[1] < len(c.theta)
            ]
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


def _pruned(model: Model, U: FloatArray, Y: FloatArray, tolerance: float) -> Model:
    """Drop carried features and units that nothing downstream uses."""
    stages, rows = list(model.trunk.stages), model.rows
    for k in range(len(stages) - 1, -1, -1):
        after = np.abs(rows[:, :-1] if k == len(stages) - 1 else stages[k + 1].weight)
        reach = np.abs(Trunk(model.trunk.n_inputs, tuple(stages[: k + 1])).features(U)).max(axis=0, initial=0.0)
        used = after * reach
        keep = (used > tolerance * used.max(axis=1, keepdims=True, initial=1e-300)).any(axis=0)
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
