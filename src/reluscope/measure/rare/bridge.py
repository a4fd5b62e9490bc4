"""The probability of a rare event from two samples: draws of a proposal, and points that climbed into the event.

Let f be the law, q a proposal (a mixture in a few directions, `few.py`), and w = f / q. Draws z of q and points x of
the law given the event (`ladder.py`) give, for every function a,

    P(event) = E_q[1 w a] / E[a | event],        here a = 1 / (s + t w / P),

the optimal bridge (Meng and Wong 1996; s and t are the shares of the two samples; P under a is found by iteration).
Both means are over bounded numbers. Where q is small and the event is not, the points x know: they lower the second
mean.

Each of the independent runs gives both means. The runs stand in three groups, and the proposal of a group is fitted to
the points of the next one, so that no point judges a proposal that was fitted to it. (With two groups the errors of
both would have the same sign: each is the product of what is wrong with the points of one and of the other.) Draws
also serve as trial steps of the points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from reluscope._check import FloatArray
from reluscope.measure.rare.few import MOST_GRADIENTS, FewDirections, few_directions
from reluscope.measure.rare.ladder import Climbed, Stop, Target, walk_within
from reluscope.measure.shared import modes_of

GROUPS = 3

_FITS = 3
"""Fits of the proposal; between them the points move on."""

_ROUNDS_BETWEEN = 2


@dataclass(frozen=True, eq=False)
class Estimate:
    """Value and replicates (one a run) whose mean it is."""

    value: float
    rows: FloatArray
    overlap: float


@dataclass(eq=False)
class Bridge:
    """The two samples of all runs; `log_p` is a first guess."""

    target: Target
    climbed: Climbed
    rng: np.random.Generator
    log_p: float
    proposals: list[FewDirections] = field(default_factory=list)
    draws: int = 0
    hits: list[list[FloatArray]] = field(default_factory=list)
    chain: list[list[FloatArray]] = field(default_factory=list)
    moments: bool = False
    """Whether the points' first and second moments are wanted, run by run, in the coordinates of the law."""
    sums: list[tuple[FloatArray, FloatArray]] = field(default_factory=list)
    accepted: float = 0.0
    visited: list[FloatArray] = field(default_factory=list)
    """Points of the rounds since the last fit."""

    def __post_init__(self) -> None:
        runs = len(self.climbed.points)
        self.group = np.arange(runs) % GROUPS
        self._margin = np.zeros(self.climbed.points.shape[:2])
        self._levels = np.zeros(runs)

    def prepare(self, stop: Stop) -> None:
        """Fit the proposals, let the points move by their draws, fit again."""
        for _ in range(_FITS):
            self._fit()
            for _ in range(_ROUNDS_BETWEEN):
                self.round()
                self.visited.append(self.climbed.points.copy())
            if stop():
                break
        self._fit()

    def _forget(self) -> None:
        runs = len(self.climbed.points)
        self.visited, self.sums = [], []
        self.hits, self.chain, self.draws = [[] for _ in range(runs)], [[] for _ in range(runs)], 0

    def _fit(self) -> None:
        fits = []
        for g in range(GROUPS):
            theirs = self.group == (g + 1) % GROUPS
            groups = np.concatenate([points[theirs] for points in self.visited or [self.climbed.points]], axis=1)
            some = self.climbed.points[theirs][:, : max(1, 2 * MOST_GRADIENTS // int(theirs.sum()))]
            slopes = self.target.gradient(some.reshape(-1, self.target.r)).reshape(some.shape)
            fits.append(few_directions(groups, slopes, self.rng))
        self.proposals = fits
        self._forget()

    @property
    def rounds(self) -> int:
        """Rounds since the last fit."""
        return len(self.chain[0])

    @property
    def modes(self) -> int:
        """Groups of fitted Gaussians that lie apart."""
        return max(modes_of(q.mixture) for q in self.proposals)

    def round(self) -> None:
        """Draw from the proposals, as many as there are points, and move the points."""
        Z = self.climbed.points
        runs, size, r = Z.shape
        moved = 0.0
        for g, q in enumerate(self.proposals):
            mine = np.flatnonzero(self.group == g)
            trial = q.draw(len(mine) * size, self.rng)
            new = q.log_weight(trial)
            hit = self.target.margin(trial) <= 0.0
            old = q.log_weight(Z[mine].reshape(-1, r))
            with np.errstate(divide="ignore"):
                take = hit & (np.log(self.rng.random(len(hit))) < new - old)
            moved += float(take.mean())
            shape = (len(mine), size)
            Z[mine] = np.where(take.reshape(*shape, 1), trial.reshape(*shape, r), Z[mine])
            for k, run in enumerate(mine):
                part = slice(k * size, (k + 1) * size)
                self.hits[run].append(new[part][hit[part]])
        self.accepted = moved / GROUPS
        self.draws += size
        self.climbed.step = walk_within(
            self.target, Z, self._margin, self._levels, np.arange(runs), self.climbed.step, self.rng
        )
        for g, q in enumerate(self.proposals):
            for run in np.flatnonzero(self.group == g):
                self.chain[run].append(q.log_weight(Z[run]))
        if self.moments:
            V = self.target.rays.from_normal(Z.reshape(-1, r)).reshape(Z.shape)
            self.sums.append((V.sum(axis=1), np.einsum("nij,nik->njk", V, V)))
            self.sums = [tuple(a + b for a, b in zip(*self.sums, strict=True))] if len(self.sums) > 1 else self.sums

    def estimate(self) -> Estimate:
        """The bridge between the two samples."""
        hits = [np.concatenate(part) for part in self.hits]
        chain = [np.concatenate(part) for part in self.chain]
        s = 0.5
        log_p = self.log_p
        for _ in range(200):
            top = np.array([_over(x - log_p, s).sum() / self.draws for x in hits])
            bottom = np.array([_under(x - log_p, s).mean() for x in chain])
            if not top.any():
                return Estimate(0.0, np.zeros(len(hits)), 0.0)
            change = math.log(top.mean() / bottom.mean())
            log_p += change
            if abs(change) < 1e-9:
                break
        self.log_p = log_p
        p = math.exp(log_p)
        rows = p * (1.0 + top / top.mean() - bottom / bottom.mean())
        return Estimate(p, rows, float(bottom.mean()) * s)


def _over(x: FloatArray, s: float) -> FloatArray:
    """`w / (s + (1 - s) w)`, from log w."""
    return np.asarray(1.0 / (s * np.exp(-np.maximum(x, -700.0)) + (1.0 - s)))


def _under(x: FloatArray, s: float) -> FloatArray:
    """`1 / (s + (1 - s) w)`."""
    return np.asarray(1.0 / (s + (1.0 - s) * np.exp(np.minimum(x, 700.0))))
