"""Signs, and weights that no surface shows, from parts of the box in which the layers behind are affine.

Let a layer of units `relu(h_j)`, `h_j = w_j . z + b_j`, be known but for its signs. Whoever moves in the box without
meeting a bend that no known unit explains stays in a part in which the layers behind are one affine function. There the
outputs are `alpha . relu(h) + beta . z + constant`, and the gradients in all regions of the part are linear equations
for alpha and beta. If `t_j` is 1 for units that are to be turned round and else 0,

    beta + sum_j t_j alpha_j w_j = 0,

one equation for each feature z. Gradients at single points (`slopes.py`) tell signs only where fewer units are on than
there are inputs; a part tells them wherever it has fewer units on than the layer before has features.

Two things may be open besides. A unit that is on wherever one has looked is not known, and adds a multiple of its row
to every sum: then the sums have as many dimensions as there are such units. And a weight of unit j on feature f that no
surface shows acts where the unit is on: it adds `alpha_j` times itself to component f. Parts with different alpha tell
these apart.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.recovery.critical import Chords, find_bends, gradients
from reluscope.recovery.peel import Evidence, distances, explained, with_one
from reluscope.recovery.trunk import Stage, Trunk
from reluscope.recovery.view import View
from reluscope.threads import look

_MOST_UNITS = 12
"""Units whose signs are tried in all ways."""

_ROUNDS, _CHORDS, _EACH = 6, 3, 10
"""Rounds of parts; rounds of chords in a part, and chords in each."""

_LONG, _STEP = 0.01, 0.02
"""Stretches between bends that are long enough for a gradient, and the length of the differences over half of it."""

_RANK, _AGREE = 1e-6, 1e-7
"""Singular values that count, over the largest; and how well equations must be solved, over their right sides."""

_STRAY = 0.15
"""Share of the places of a part that may be left out: a bend too close to another was missed on the way there."""

_SHARED = 4
"""Equations that two parts must have in common to be taken for one."""

_MOST_LINEAR, _FEW_UNITS = 3, 9
"""Units that are on everywhere; and the other units of their layer, all of whose signs are then tried with each."""

_SPARE = 4
"""Equations, beyond the unknowns, that signs must satisfy to be believed; and no other signs may."""

_STEPS = 25

_Bools = npt.NDArray[np.bool_]


class Pool(Protocol):
    """What is asked of everything learnt so far (`exact.Pool`)."""

    view: View
    rng: np.random.Generator
    evidence: Evidence

    def open(self) -> bool:
        """Whether more may be asked."""

    def asking(self, what: str) -> AbstractContextManager[None]:
        """Count the queries of a step."""


class Part(NamedTuple):
    """Equations `A (alpha, beta, constant) = y` of one part, at most as many as unknowns, y of length 1; their rank."""

    A: FloatArray
    y: FloatArray
    rank: int

    def sees(self, units: int) -> FloatArray:
        """1 for each of the units whose alpha the equations tell, 0 for the others."""
        blind = np.linalg.svd(self.A)[2][self.rank :, :units]
        return np.asarray(np.linalg.norm(blind, axis=0) < _RANK, dtype=np.float64)


def settled_by_parts(
    pool: Pool, trunk: Trunk, unseen: tuple[tuple[int, int], ...], U: FloatArray, near: float
) -> Trunk | None:
    """The trunk with the units of its last stage turned as they are in the network, and nothing carried but for linear
    functions that stand for units that are on everywhere; None if the parts do not leave one choice.

    `unseen` lists weights (unit, feature) that the surfaces do not show, `U` are points of the box, `near` is how far
    from the surface of a unit its bends may be found. Costs some thousand queries for each part.
    """
    stage = trunk.stages[-1] if trunk.stages else None
    if stage is None or not stage.carries or stage.linear or stage.slope or not 2 <= stage.n_units <= _MOST_UNITS:
        return None
    below = Trunk(trunk.n_inputs, trunk.stages[:-1])
    if not below.stages or any(s.carries and not s.linear for s in below.stages):
        return None
    k = stage.n_units
    rows = np.column_stack([stage.weight[:k], stage.bias[:k]])
    outside = np.abs(pool.evidence.x).max(axis=1, initial=0.0) >= 1
    on_surface = distances(below, rows, pool.evidence.x) < near
    on_surface[outside] = False
    on = with_one(below.features(U)) @ rows.T > 0
    rare = on == (on.mean(axis=0) < 0.5)
    rare[np.abs(U).max(axis=1) >= 1] = False
    parts: list[Part] = []
    best: Stage | None = None
    for round_ in range(_ROUNDS):
        look()
        # First from the surface of every unit; then from places where those units that fewest parts have met are in
        # their rarer state, or from their surfaces, in turn.
        order = np.lexsort((on_surface.sum(axis=0), sum((p.sees(k) for p in parts), np.zeros(k))))
        for j in order[: k // 2 + 1] if round_ else order:
            starts = U[rare[:, j]] if round_ % 2 else pool.evidence.x[on_surface[:, j]]
            if not pool.open():
                return None
            if len(starts):
                new = _part(pool, trunk, starts[pool.rng.integers(len(starts))], near)
                parts = parts if new is None else _joined(parts, new)
        found = _Signs.of(below, stage, unseen, U, parts).settled() if parts else None
        if found is not None:
            best = found[0]
            if found[1]:
                break
    return None if best is None else trunk.with_last(best)


def _part(pool: Pool, trunk: Trunk, x: FloatArray, near: float) -> Part | None:
    """What gradients and values say about the part of the box that holds the point x."""
    view, rng = pool.view, pool.rng
    known, places, slopes, values = x[None], [x[:0].reshape(0, view.n)], [x[:0].reshape(0, view.n)], [np.zeros(0)]
    with pool.asking("signs"):
        for _ in range(_CHORDS):
            look()
            start = known[rng.integers(0, len(known), _EACH)]
            chords, at = _through(start, rng.normal(size=start.shape))
            bends = find_bends(view, chords, rng)
            middle, half = _stretches(chords, at, bends.line, bends.t, ~explained(trunk, bends.x, near))
            g, _, good = gradients(view, middle, _STEP * half)
            known = np.concatenate([known, middle[good]])
            places.append(middle[good])
            slopes.append(g[good])
            values.append(view.values(middle[good]))
    X, G, Y = np.concatenate(places), np.concatenate(slopes), np.concatenate(values)
    local = trunk.local(X)
    n, width = X.shape[1], trunk.width
    A = np.zeros((len(X), n + 1, width + 1))
    A[:, :n, :width], A[:, n] = local.J.transpose(0, 2, 1), with_one(local.z)
    y = np.column_stack([G, Y])
    size = float(np.abs(G).max(initial=0.0))
    if size == 0.0:
        return None
    weight, miss = np.ones(len(X)), np.zeros(len(X))
    for _ in range(_STEPS):
        theta = np.linalg.lstsq(
            (A * weight[:, None, None]).reshape(-1, width + 1), (y * weight[:, None]).reshape(-1), rcond=1e-10
        )[0]
        miss = np.abs(A @ theta - y).max(axis=1)
        if miss.max() <= _AGREE * size:
            break
        weight = np.sqrt(1.0 / np.maximum(miss, 0.1 * _AGREE * size))
    kept = miss <= _AGREE * size
    if kept.mean() < 1 - _STRAY or kept.sum() * (n + 1) <= width + 1 + _SHARED:
        return None
    return _short(A[kept].reshape(-1, width + 1), y[kept].reshape(-1))


def _through(x: FloatArray, way: FloatArray) -> tuple[Chords, FloatArray]:
    """Chords of the whole box through points, and the parameter of each point on its chord."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ahead = np.nanmin((np.sign(way) - x) / way, axis=1)
        back = np.nanmax((-np.sign(way) - x) / way, axis=1)
    start, end = np.clip(x + back[:, None] * way, -1, 1), np.clip(x + ahead[:, None] * way, -1, 1)
    return Chords(start, end - start), -back / (ahead - back)


def _stretches(
    chords: Chords, at: FloatArray, line: npt.NDArray[np.intp], t: FloatArray, strange: _Bools
) -> tuple[FloatArray, FloatArray]:
    """Between the bends of each chord, from its point `at` to the first strange bend either way: the middle of each
    stretch, and half its length."""
    middle, half = [], []
    for i in range(len(chords)):
        here, ends = t[line == i], t[(line == i) & strange]
        low, high = ends[ends < at[i]].max(initial=0.0), ends[ends > at[i]].min(initial=1.0)
        edges = np.sort(np.concatenate([[low], here[(here > low) & (here < high)], [high]]))
        lengths = np.diff(edges) * np.linalg.norm(chords.way[i])
        long = lengths > _LONG
        middle.append(chords.start[i] + (0.5 * (edges[:-1] + edges[1:]))[long, None] * chords.way[i])
        half.append(0.5 * lengths[long])
    return np.concatenate(middle), np.concatenate(half)


def _short(A: FloatArray, y: FloatArray) -> Part:
    """The same equations, as many as there are unknowns."""
    Q, R = np.linalg.qr(A)
    y = Q.T @ y
    size = max(float(np.linalg.norm(y)), 1e-300)
    s = np.linalg.svd(R, compute_uv=False)
    return Part(R / size, y / size, int((s > _RANK * s[0]).sum()))


def _joined(parts: list[Part], new: Part) -> list[Part]:
    """The parts with one more, which is joined to those in which the layers behind are the same affine function."""
    kept = []
    for old in parts:
        A, y = np.concatenate([old.A, new.A]), np.concatenate([old.y, new.y])
        both = _short(A, y)
        theta = np.linalg.lstsq(both.A, both.y, rcond=1e-10)[0]
        same = np.linalg.norm(A @ theta - y) <= _AGREE and old.rank + new.rank - both.rank >= _SHARED
        new = both if same else new
        kept += [] if same else [old]
    return [*kept, new]


@dataclass(frozen=True, eq=False)
class _Signs:
    """The units (`w`, `b`), the parts stacked, which features have open weights, and those weights that may act: pairs
    (unit, feature), and whether the unit, as it is turned now, is on where the feature acts."""

    w: FloatArray
    b: FloatArray
    A: FloatArray
    y: FloatArray
    ranks: npt.NDArray[np.intp]
    open_: npt.NDArray[np.intp]
    pairs: tuple[tuple[int, int, bool], ...]

    @classmethod
    def of(
        cls, below: Trunk, stage: Stage, unseen: tuple[tuple[int, int], ...], U: FloatArray, parts: list[Part]
    ) -> _Signs:
        """The question, put together."""
        k = stage.n_units
        w, b, z = stage.weight[:k], stage.bias[:k], below.features(U)
        on = z @ w.T + b > 0
        pairs = []
        for j, f in unseen:
            acts = z[:, f] > 0
            if acts.any():
                pairs.append((j, f, bool(on[acts, j].mean() > 0.5)))
        A, y = np.stack([p.A for p in parts]), np.stack([p.y for p in parts])
        ranks = np.array([p.rank for p in parts])
        return cls(w, b, A, y, ranks, np.array(sorted({f for _, f, _ in pairs}), dtype=np.intp), tuple(pairs))

    @property
    def _closed(self) -> npt.NDArray[np.intp]:
        return np.setdiff1d(np.arange(self.w.shape[1]), self.open_)

    def settled(self) -> tuple[Stage, bool] | None:
        """The stage under the one choice of signs that needs the fewest linear functions, and whether the parts
        determine all of it."""
        k = len(self.w)
        choices = (np.arange(2**k)[:, None] >> np.arange(k)) & 1 == 1
        most = min(_MOST_LINEAR, len(self._closed) - 3) if k <= _FEW_UNITS else 0
        for linear in range(most + 1):
            good = []
            for turned in choices:
                look()
                L = self.linear(turned, linear)
                if L is not None:
                    good.append((turned, L))
                if len(good) > 1:
                    return None
            if good:
                return self.finished(*good[0])
        return None

    def basis(self, turned: _Bools, more: FloatArray) -> FloatArray:
        """Columns of (alpha, beta, constant) that the signs allow: one for each unit, whose row has the open weights
        `more` besides (units, features), and the constant."""
        k, features = self.w.shape
        columns = np.zeros((k + features + 1, k + 1))
        columns[:k, :k], columns[-1, k] = np.eye(k), 1.0
        columns[k:-1, :k] = (np.where(turned, -1.0, 1.0)[:, None] * more - turned[:, None] * self.w).T
        return columns

    def linear(self, turned: _Bools, count: int) -> FloatArray | None:
        """Linear functions of the features (features, count), 0 where weights are open, that with these signs solve
        the equations of all parts; None if there are none."""
        k, features = self.w.shape
        free = np.zeros((k + features + 1, len(self.open_)))
        free[k + self.open_, np.arange(len(self.open_))] = 1.0
        away, used = _across(self.A @ np.concatenate([self.basis(turned, np.zeros_like(self.w)), free], axis=1))
        r = np.einsum("rij,rj->ri", away, self.y)
        left = np.linalg.norm(r, axis=1)
        spare = int((self.ranks - used).sum())
        if count == 0:
            return np.zeros((features, 0)) if left.max() <= 10 * _AGREE and spare >= _SPARE else None
        K = away @ self.A[:, :, k + self._closed]
        n = len(self._closed)
        if spare - count * (len(r) + n - count) < _SPARE:
            return None
        L = _low_rank(K, r, count)
        if L is None:
            return None
        whole = np.zeros((features, count))
        whole[self._closed] = L
        return whole

    def finished(self, turned: _Bools, L: FloatArray) -> tuple[Stage, bool] | None:
        """The stage, with the open weights and all of the linear functions solved for, and whether the parts leave none
        of them open."""
        k, features = self.w.shape
        count, sign, more = L.shape[1], np.where(turned, -1.0, 1.0), np.zeros_like(self.w)
        pairs = [(j, f) for j, f, on in self.pairs if on != turned[j]]
        free = np.zeros((k + features + 1, count + len(self.open_)))
        free[k:-1, :count] = L
        free[k + self.open_, count + np.arange(len(self.open_))] = 1.0
        x = _solved(self.A @ np.concatenate([self.basis(turned, more), free], axis=1), self.y)
        for at, f in enumerate(self.open_):  # what the parts need of an open feature, by the units that have it open
            mine = [j for j, of in pairs if of == f]
            M = np.concatenate([x[:, mine] * sign[mine], x[:, k + 1 : k + 1 + count]], axis=1)
            found = np.linalg.lstsq(M, x[:, k + 1 + count + at], rcond=1e-9)[0]
            more[mine, f], L[f] = found[: len(mine)], found[len(mine) :]
        least, rank = np.inf, 0
        for _ in range(_STEPS):
            look()
            free = np.concatenate([np.zeros((k, count)), L, np.zeros((1, count))])
            B = self.A @ np.concatenate([self.basis(turned, more), free], axis=1)
            x = _solved(B, self.y)
            e = self.y - np.einsum("rij,rj->ri", B, x)
            left = float(np.linalg.norm(e, axis=1).max())
            if not (pairs or count):
                if left > 10 * _AGREE:
                    return None
                break
            moves = [sign[j] * self.A[:, :, k + f] * x[:, j : j + 1] for j, f in pairs]
            moves += [self.A[:, :, k + f] * x[:, k + 1 + u : k + 2 + u] for f in range(features) for u in range(count)]
            step, rank = _step(B, moves, e)
            if left <= 10 * _AGREE and left > 0.5 * least:
                break
            least = left
            for (j, f), by in zip(pairs, step, strict=False):
                more[j, f] += by
            L = L + step[len(pairs) :].reshape(features, count)
        else:
            return None
        V = np.linalg.qr(L)[0].T
        stage = Stage(
            np.concatenate([sign[:, None] * (self.w + more), V]),
            np.concatenate([sign * self.b, np.zeros(count)]),
            np.arange(k + count) < k,
            linear=count,
        )
        # Linear functions are known up to combinations of themselves.
        return stage, rank >= len(pairs) + count * (features - count)


def _step(B: FloatArray, moves: list[FloatArray], e: FloatArray) -> tuple[FloatArray, int]:
    """The change of shared unknowns that removes the misfit e (parts, equations) to first order, where each part solves
    for its own unknowns (columns B) anew, and how many directions of them are seen; `moves` are what a unit of each
    shared unknown does."""
    away, _ = _across(B)
    J = np.stack([np.einsum("rij,rj->ri", away, m).reshape(-1) for m in moves], axis=1)
    step, _, rank, _ = np.linalg.lstsq(J, e.reshape(-1), rcond=1e-7)
    return np.asarray(step), int(rank)


def _low_rank(K: FloatArray, r: FloatArray, count: int) -> FloatArray | None:
    """L (features, count) such that every part has an a with `K_r L a_r = r_r`; None if there is none.

    Each part knows `L a_r` up to directions that its K does not see. Parts are taken together for as long as
    `count + 1` directions are seen by all of them: in these the vectors `L a_r` must have rank `count`. They give the
    a of those parts, hence L, and all parts refine it.
    """
    n = K.shape[2]
    U, s, Vt = np.linalg.svd(K, full_matrices=False)
    seen = s > _RANK * s.max(initial=1e-300)
    ell = np.einsum("rif,ri->rf", Vt, np.where(seen, np.einsum("rji,rj->ri", U, r) / np.where(seen, s, 1.0), 0.0))
    if np.linalg.norm(r - np.einsum("rjf,rf->rj", K, ell), axis=1).max() > 10 * _AGREE:
        return None
    blind = np.eye(n) - np.einsum("rif,rig->rfg", Vt * seen[:, :, None], Vt)
    taken, together, todo = [], np.zeros((n, n)), list(range(len(K)))
    while todo:
        lost = [(np.linalg.eigvalsh(together + blind[i]) > 1e-9).sum() for i in todo]
        best = int(np.argmin(lost))
        if n - lost[best] < count + 1:
            break
        together = together + blind[todo[best]]
        taken.append(todo.pop(best))
    if len(taken) < count + 1:
        return None
    s, V = np.linalg.eigh(together)
    U, size, _ = np.linalg.svd(ell[taken] @ V[:, s < 1e-9], full_matrices=False)
    if size[count] > 100 * _AGREE * size[0] or size[count - 1] <= 100 * _AGREE * size[0]:
        return None
    rows = np.einsum("rjf,rm->rjfm", K[taken], U[:, :count]).reshape(-1, n * count)
    L = np.linalg.lstsq(rows, r[taken].reshape(-1), rcond=1e-9)[0].reshape(n, count)
    for _ in range(_STEPS):
        look()
        L = np.linalg.qr(L)[0]
        B = K @ L
        a = _solved(B, r)
        e = r - np.einsum("rij,rj->ri", B, a)
        if np.linalg.norm(e, axis=1).max() <= 10 * _AGREE:
            return L
        step, _ = _step(B, [K[:, :, f] * a[:, u : u + 1] for f in range(n) for u in range(count)], e)
        L = L + step.reshape(n, count)
    return None


def _solved(B: FloatArray, y: FloatArray) -> FloatArray:
    """Least squares for each part: (parts, unknowns)."""
    return np.asarray(np.einsum("rij,rj->ri", np.linalg.pinv(B, rcond=_RANK), y))


def _across(B: FloatArray) -> tuple[FloatArray, npt.NDArray[np.intp]]:
    """The projections away from the columns of matrices (parts, equations, columns), and the ranks of these."""
    U, s, _ = np.linalg.svd(B, full_matrices=False)
    there = s > _RANK * s[:, :1]
    U = U * there[:, None, :]
    return np.eye(B.shape[1]) - U @ U.transpose(0, 2, 1), there.sum(axis=1)
