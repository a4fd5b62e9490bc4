"""Points aimed at what is rare: importance sampling from Gaussians fitted to the tails that were asked for.

Under N(0, I_r), with density phi, points are drawn from

    q = share_0 phi + sum_k share_k N(m_k, C_k),

and a point u contributes `1{u in the event} phi(u) / q(u)`, at most `1 / share_0`, to the probability of an event,
whatever was fitted. Each level and event is summed on its rarer side, so points elsewhere contribute nothing.

The Gaussians come from a search as for rare events: a population walks into each tail
(`reluscope.measure.shared.search`) and a mixture is fitted to it. Then the populations and a round of points set the
shares so that the mean logarithm of the second moments of the contributions is least, in parts of 1/32: so every
Gaussian has a Sobol sequence of its own, of a length that suits it. Search and round are never part of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.measure.normal import exp_minus
from reluscope.measure.points.single import SIDE, Bits, Evaluate, evaluator, normal_row, normals_of
from reluscope.measure.points.small import packed
from reluscope.measure.shared import (
    CHI,
    HALFWAY,
    Directions,
    Flags,
    FormRows,
    IndependentDraws,
    Job,
    Parts,
    RayRows,
    Rays,
    Sides,
    SobolDraws,
    Tally,
    batches,
    fit,
    join,
    moved_seconds,
    single_seconds,
    walk,
)
from reluscope.measure.simd import POINTS, mix_rows
from reluscope.network import Network
from reluscope.pace import charge

Columns = npt.NDArray[np.intp]

RARE = 0.1
"""Levels and events (or their complements) below this probability are aimed at."""
MOST_AIMS = 4
MOST_DIMENSIONS = 32
"""Beyond, fitted covariances are poor, and so are the weights."""
_PARTS = 32
LEAST_OWN, MORE_OWN = 4, 8
"""Of 32 parts so many at least are of the law itself: no contribution exceeds 8, or 4 where that widens intervals."""
_LEAST_PARTS = 1.5
_EXPECTED = 1.5
"""A second moment that the search knows counts as hidden beyond so many times the one seen: it rests on few points."""
_FIRST_OWN = 0.25
_COMPONENTS = 4
"""Gaussians for one tail, at most."""
_POPULATION = 1000
_TRIAL = 1 << 15
_RATIO = 2e-11
"""Seconds of a product for the densities of a point, by formula (`reluscope.pace`)."""
_STEPS = 30
_CHUNK_BITS = 1 << 17
_ROWS = 4
_SHIFT = 4.0
"""More than minus the logarithm of the law's own share."""
_LIFT = math.exp(_SHIFT)


class AimedPoints:
    """The proposal q for one Gaussian component, and sums over points from it.

    The Gaussians `m_k + R_k z` have means `mean` (1 + k, r) and roots `root` (1 + k, r, r) of their covariances, the
    law itself (0, I) first; `parts` (1 + k,) are their shares in 32nds, and `evaluate[k]` gives the forms at points of
    Gaussian k. `heavy` (levels + events,) are the mean weights that the search expects on each side, 0 where it cannot
    say.
    """

    def __init__(
        self,
        job: Job,
        sides: Sides,
        mean: FloatArray,
        root: FloatArray,
        parts: npt.NDArray[np.int64],
        evaluate: Sequence[Evaluate],
        point: float,
    ) -> None:
        self.job, self.sides, self.parts = job, sides, parts
        self._point = point
        self.heavy = np.zeros(job.n_levels + job.rows.count)  # until `share_out` knows
        self._mean, self._root, self._evaluate = mean, root, evaluate
        r = mean.shape[1]
        self._inverse = inverse = np.linalg.inv(root)
        self._log_scale = -np.linalg.slogdet(root)[1]
        height = -(-mean.size // _ROWS) * _ROWS
        self._whitening = []
        for m, f in zip(mean, root, strict=True):
            # Row blocks: what the points of this Gaussian are in the coordinates of every Gaussian.
            weight = (inverse @ f).reshape(mean.size, r)
            bias = np.einsum("kij,kj->ki", inverse, m - mean).ravel()
            self._whitening.append((packed(weight, height), np.pad(bias, (0, height - mean.size))))

    @classmethod
    def around(cls, net: Network, job: Job, frame: FloatArray, sides: Sides, fitted: Directions) -> AimedPoints:
        """A first proposal; `frame` (r, r) is orthonormal, the directions in which the outputs change most first."""
        r = net.n_inputs
        mean = np.concatenate([np.zeros((1, r)), fitted.mean])
        # Any root of a covariance serves; one whose first columns move the outputs most suits Sobol points.
        root = np.array([f @ np.linalg.qr(f.T @ frame)[0] for f in [np.eye(r), *fitted.factor]])
        parts = _in_parts(np.append(_FIRST_OWN, (1.0 - _FIRST_OWN) * fitted.share))
        evaluate = [evaluator(net.after(f, m), job.forms, job.limits) for m, f in zip(mean, root, strict=True)]
        return cls(job, sides, mean, root, parts, evaluate, single_seconds(net))

    @property
    def seconds(self) -> float:
        """What a point costs by formula: its forms, and its densities under all Gaussians."""
        return self._point + _RATIO * self._mean.size * self._mean.shape[1]

    def run(self, each: int, groups: int, rng: np.random.Generator, per_scramble: int, tally: Tally) -> None:
        """Add `each` points (32 at the least) to every group; `per_scramble` groups share a scramble (0: no Sobol)."""
        counts = _shared_out(max(each, _PARTS), self.parts)
        log_share = np.log(np.maximum(counts, 1e-300) / counts.sum())
        tally.largest = max(tally.largest, float(counts.sum() / counts[0]))
        for k, bits, outputs, parts in self._batches(counts, groups, rng, per_scramble):
            hits = self.sides.hits(self.job, outputs)
            weights = np.empty(len(hits))
            _weigh(self._log_ratios(k, bits, hits), log_share, weights)
            inside = self.sides.indicators(self.job, outputs[hits])
            tally.add_weighted(inside, self.sides, weights, hits, parts)
        self._doubt(tally)

    def _doubt(self, tally: Tally) -> None:
        """Tell the tally how much of the variance the points may not have shown.

        The second moment of the contributions, `E_q[(phi / q)^2 1] = P E[phi / q | event]`, comes largely from where q
        is small, and few points are. The search has points of the event wherever its mass is, and sees that.
        """
        n = tally.count.sum()
        for name, part, flip in self.sides.summed():
            total, square = tally.total[name].sum(axis=0), tally.square[name]
            first = np.where(flip, n - total, total) / n
            second = np.where(flip, n - 2.0 * total + square, square) / n
            tally.hidden[name] = np.maximum(first * self.heavy[part] - _EXPECTED * second, 0.0)

    def share_out(
        self, rng: np.random.Generator, known: Sequence[Population] = (), own: int = LEAST_OWN
    ) -> AimedPoints:
        """The same with the best shares, without the Gaussians that get next to none.

        Judged by a round of points, and by the populations that the search has left in the tails.
        """
        counts = _shared_out(_TRIAL, self.parts)
        logs, marks = [], []
        for k, bits, outputs, _ in self._batches(counts, 1, rng, 1):
            hits = self.sides.hits(self.job, outputs)
            logs.append(self._log_ratios(k, bits, hits))
            marks.append(self.sides.indicators(self.job, outputs[hits]))
        shares, drawn = counts / counts.sum(), (np.concatenate(logs, axis=1), np.concatenate(marks))
        seen = [self._log_ratios_at(p.points) for p in known]
        best = _best_shares(*drawn, shares, seen)
        kept = np.flatnonzero(best * _PARTS >= _LEAST_PARTS)
        kept = np.union1d(kept, [0, 1 + np.argmax(best[1:])])
        evaluate = [self._evaluate[k] for k in kept.tolist()]
        parts = _in_parts(best[kept], own)
        charge(_TRIAL * self.seconds)
        out = AimedPoints(self.job, self.sides, self._mean[kept], self._root[kept], parts, evaluate, self._point)
        weights = np.empty(drawn[0].shape[1])
        _weigh(drawn[0], np.log(np.maximum(shares, 1e-300)), weights)
        out.heavy = out._mean_weights(known, weights @ drawn[1] / counts.sum())
        return out

    def _mean_weights(self, known: Sequence[Population], chance: FloatArray) -> FloatArray:
        """`E[phi / q | side]` for every level and event of rough probability `chance`, by the best of the populations.

        A population serves that holds, in its tail, half of the side or more; the best one has most points on it.
        """
        found, most = np.zeros(len(chance)), np.zeros(len(chance))
        log_share = np.log(np.maximum(self.parts, 1e-300) / _PARTS)
        for population in known:
            weights = np.empty(len(population.points))
            _weigh(self._log_ratios_at(population.points), log_share, weights)
            inside = self.sides.indicators(self.job, population.outputs)
            number = inside.sum(axis=0)
            better = (number > most) & (population.probability * inside.mean(axis=0) > 0.5 * chance)
            found = np.where(better, weights @ inside / np.maximum(number, 1), found)
            most = np.where(better, number, most)
        return found

    def _log_ratios_at(self, points: FloatArray) -> FloatArray:
        """`_log_ratios` at given points (n, r)."""
        white = np.einsum("kij,nkj->kni", self._inverse, points[:, None] - self._mean)
        half = 0.5 * np.einsum("kni,kni->kn", white, white)
        return np.ascontiguousarray(self._log_scale[:, None] + half[0] - half)

    def _batches(
        self, counts: npt.NDArray[np.int64], groups: int, rng: np.random.Generator, per_scramble: int
    ) -> Iterator[tuple[int, Bits, FloatArray, Parts]]:
        """Points of one Gaussian after the other: which one, their random bits, their forms and whom they belong to."""
        r = self._mean.shape[1]
        chunk = int(np.clip(_CHUNK_BITS // r, 1024, 16384)) // SIDE * SIDE
        bits = np.zeros((r, chunk), np.uint32)
        for k, (n, evaluate) in enumerate(zip(counts.tolist(), self._evaluate, strict=True)):
            if not n:
                continue
            draws: Any = IndependentDraws(r, rng)
            if per_scramble:
                draws = SobolDraws(r, groups, n, rng, per_scramble=per_scramble)
            for parts, fills in batches(n, groups, chunk):
                for group, begin, end in fills:
                    draws.fill_bits(group, bits, begin, end)
                yield k, bits, evaluate(bits, fills[-1][2]), parts

    def _log_ratios(self, k: int, bits: Bits, columns: Columns) -> FloatArray:
        """`log N(u; m_j, C_j) / phi(u)` of all Gaussians j at some points u of Gaussian k: (Gaussians, points)."""
        out = np.empty((len(self._mean), len(columns)))
        _log_ratios(bits, columns, *self._whitening[k], self._log_scale, out)
        return out


@dataclass(frozen=True, eq=False)
class Population:
    """Points that a search has left in a tail, nearly draws of the law given it, their forms, and its probability."""

    points: FloatArray
    outputs: FloatArray
    probability: float


def aimed_points(
    net: Network,
    job: Job,
    frame: FloatArray,
    below: FloatArray,
    events: FloatArray,
    rng: np.random.Generator,
    spent: Callable[[float], bool],
    own: int = LEAST_OWN,
) -> AimedPoints | None:
    """Search for the tails of a job under N(0, I_r) and aim at them; None if there are none or none is found.

    `below` and `events` are rough values of P(y <= c) and of the events. `spent(share)` says whether that share of the
    time for the search is over: one tail after the other has its part, and those that are not found by then are left
    out. Of 32 points `own` or more are the law's. Cost: some 1e4 to 3e4 evaluations for each of at most four tails, and
    as much time again for fitting.
    """
    sides = Sides(below > 0.5, events > 0.5)
    population = int(np.clip(100 * net.n_inputs, _POPULATION, 4 * _POPULATION))
    fitted: list[tuple[float, Directions]] = []
    known: list[Population] = []
    tails = _tails(net, job, below, events)
    for i, event in enumerate(tails):
        share = (i + 1) / len(tails)
        found = walk(event, Rays(CHI, net.n_inputs), population, rng, partial(spent, share))
        charge(found.evaluations * moved_seconds(net))  # for the fits
        if len(found.points):
            fitted.append((1.0 - HALFWAY, fit(found.points, np.ones(len(found.points)), _COMPONENTS, rng)))
            fitted.append((HALFWAY, fit(found.halfway, np.ones(len(found.halfway)), 1, rng)))
            known.append(Population(found.points, net(found.points) @ job.forms.T, found.probability))
    if not fitted:
        return None
    return AimedPoints.around(net, job, frame, sides, join(fitted)).share_out(rng, known, own)


@lru_cache(maxsize=1)
def warm_up() -> None:
    """Compile what aimed points need."""
    net = Network([(np.eye(2), np.zeros(2)), (np.ones((1, 2)), np.zeros(1))])
    none, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    rows = FormRows(none, np.zeros(1), np.zeros(1, bool), none, np.arange(2), none, one, 1)  # y <= 0
    job = Job(np.ones((1, 1)), (0,), (np.ones(1),), False, rows, none[:0], False, 0, ())
    fitted = Directions(np.ones(1), np.ones((1, 2)), np.eye(2)[None])
    aimed = AimedPoints.around(net, job, np.eye(2), Sides(np.ones(1, bool), np.ones(1, bool)), fitted)
    aimed.share_out(np.random.default_rng(0)).run(64, 2, np.random.default_rng(0), 2, Tally(job, net, 2))
    normals_of(np.zeros((2, SIDE), np.uint32), np.empty((SIDE, 2)))


def aims_pay(job: Job, below: FloatArray, events: FloatArray) -> bool:
    """Whether at least half of what is asked for is rare (or nearly sure), and nothing but levels and events is."""
    if job.switches or len(job.moment_forms) or job.atom_forms or job.density:
        return False
    chance = np.concatenate([below, events])
    return bool(len(chance)) and float((np.minimum(chance, 1.0 - chance) < RARE).mean()) >= 0.5


def _tails(net: Network, job: Job, below: FloatArray, events: FloatArray) -> list[RayRows]:
    """The rare sets to aim at: of a form's levels on each side the farthest, then rare events, then nearest levels."""
    far: list[RayRows] = []
    near: list[RayRows] = []
    other = len(job.forms)
    forms = np.concatenate([job.forms, -job.forms])
    column = 0
    for form, c in zip(job.level_forms, job.thresholds, strict=True):
        chance = below[column : column + len(c)]
        column += len(c)
        for which, bounds, strict in ((form, c[chance < RARE], False), (form + other, -c[chance > 1.0 - RARE], True)):
            ends = np.unique([bounds.min(initial=np.inf), bounds.max(initial=-np.inf)])
            for bound, kept in zip(ends[np.isfinite(ends)], (far, near), strict=False):
                kept.append(_union(net, forms, [(np.array([which]), np.array([bound]), np.array([strict]))]))
    rows = job.rows
    members = rows.members
    for e in range(rows.count):
        cases = [members[p] for p in np.flatnonzero(rows.part_event == e)]
        if events[e] < RARE:
            far.append(_union(net, forms, [(rows.form[m], rows.bound[m], rows.strict[m]) for m in cases]))
        elif events[e] > 1.0 - RARE and len(cases) == 1:
            # Outside of a conjunction one of its rows fails.
            failing = np.flatnonzero(cases[0])[:, None]
            far.append(_union(net, forms, [(rows.form[i] + other, -rows.bound[i], ~rows.strict[i]) for i in failing]))
    return [*far, *near][:MOST_AIMS]


Case = tuple[npt.NDArray[np.int64], FloatArray, Flags]
"""A conjunction of rows: their forms, bounds and whether they are strict."""


def _union(net: Network, forms: FloatArray, cases: list[Case]) -> RayRows:
    form, bound, strict = (np.concatenate(part) for part in zip(*cases, strict=True))
    start = np.cumsum([0, *(len(case[0]) for case in cases)])
    return RayRows(net, forms, form, np.zeros((len(form), net.n_inputs)), np.zeros(len(form)), bound, strict, start)


def _in_parts(share: FloatArray, least: int = LEAST_OWN) -> npt.NDArray[np.int64]:
    """Shares in 32nds, the first one (the law's own) no less than `least`."""
    share = share / share.sum()
    own = max(least, round(_PARTS * float(share[0])))
    own = min(own, _PARTS)
    rest = share[1:] / max(float(share[1:].sum()), 1e-300)
    return np.concatenate([[own], _shared_out(_PARTS - own, rest)])


def _shared_out(n: int, share: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """n things shared out in proportion, by largest remainders."""
    ideal = n * share / share.sum()
    counts = np.floor(ideal).astype(np.int64)
    counts[np.argsort(counts - ideal, kind="stable")[: n - counts.sum()]] += 1
    return counts


def _best_shares(logs: FloatArray, marks: Flags, share: FloatArray, seen: Sequence[FloatArray] = ()) -> FloatArray:
    """Shares s that make the mean of `log M_t` small, `M_t = E[1_t phi / q_s]` under the law.

    `logs` (1 + k, n) are log ratios of the densities to phi at points drawn with the shares `share`, `marks` (n, t) say
    who is in which event; `seen` are log ratios at points of the law given further events. The step
    `s_j <- s_j mean_t E[1_t phi f_j / q_s^2] / M_t` keeps their sum, and does not raise the mean.
    """
    number = [logs.shape[1], *(part.shape[1] for part in seen)]
    whole = np.concatenate([logs, *seen], axis=1)
    top = whole.max(axis=0, initial=0.0)
    ratio = np.exp(whole - top)
    marks = marks[:, marks.any(axis=0)]
    # Every event on its own scale: contributions may be too small for floats.
    level = np.full((whole.shape[1], marks.shape[1] + len(seen)), -np.inf)
    weight = -2.0 * top[: number[0]] - np.log(share @ ratio[:, : number[0]])
    level[: number[0], : marks.shape[1]] = np.where(marks, weight[:, None], -np.inf)
    begin = number[0]
    for i, n in enumerate(number[1:]):
        level[begin : begin + n, marks.shape[1] + i] = -top[begin : begin + n]
        begin += n
    if not level.shape[1]:
        return share
    event = np.exp(level - level.max(axis=0))
    s = share
    for _ in range(_STEPS):
        mixed = s @ ratio
        moment = (event / mixed[:, None]).sum(axis=0)
        s = s * (ratio @ (event / (mixed * mixed)[:, None]) / moment).mean(axis=1)
    return s


@kernel
def _log_ratios(bits: Any, columns: Any, weights: Any, bias: Any, log_scale: Any, out: Any) -> None:
    """`log_scale_j + (|v_0|^2 - |v_j|^2) / 2` for blocks `v_j` of the rows `weights @ z + bias`, (Gaussians, columns).

    z are some columns of random bits; `weights` lie four rows at a time (see `_simd.mix_rows`).
    """
    n, r, count = columns.size, bits.shape[0], log_scale.size
    four, none, first = np.uint64(4), np.uint64(0), np.uint64(r)
    room = np.zeros((r, SIDE), np.uint32)
    singles = np.empty((r, SIDE), np.float32)
    lanes = np.zeros((r + bias.size, POINTS))
    half = np.empty((count, POINTS))
    for begin in range(0, n, SIDE):
        stop = min(SIDE, n - begin)
        for k in range(r):
            for p in range(stop):
                room[k, p] = bits[k, columns[begin + p]]
            normal_row(singles, np.uint64(k), room, np.uint64(k), none)
        for start in range(0, stop, POINTS):
            for k in range(r):
                for p in range(POINTS):
                    lanes[k, p] = singles[k, start + p]
            row, place = none, none
            while row < bias.size:
                mix_rows(lanes, first + row, none, weights, place, bias, row, first, 0)
                row += four
                place += four * first
            for j in range(count):
                for p in range(POINTS):
                    half[j, p] = 0.0
                for i in range(r + j * r, r + (j + 1) * r):
                    for p in range(POINTS):
                        half[j, p] += lanes[i, p] * lanes[i, p]
            for j in range(count):
                for p in range(min(POINTS, stop - start)):
                    out[j, begin + start + p] = log_scale[j] + 0.5 * (half[0, p] - half[j, p])


@kernel
def _weigh(logs: Any, log_share: Any, out: Any) -> None:
    """`1 / sum of exp(log_share_j + logs_j)`, without overflow; the first sum is no less than -4 by itself."""
    k, n = logs.shape
    top, total = np.empty(SIDE), np.empty(SIDE)
    for begin in range(0, n, SIDE):
        count = min(SIDE, n - begin)
        for p in range(SIDE):
            top[p] = -_SHIFT
            total[p] = 0.0
        for j in range(k):
            for p in range(count):
                top[p] = max(top[p], logs[j, begin + p] + log_share[j])
        for j in range(k):
            for p in range(count):
                total[p] += exp_minus(top[p] - (logs[j, begin + p] + log_share[j]))
        for p in range(count):
            out[begin + p] = exp_minus(top[p] + _SHIFT) * _LIFT / total[p]
