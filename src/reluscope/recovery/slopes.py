"""Signs, and weights that no surface shows, from gradients of the outputs alone.

Behind a layer of units `relu(h_j)` the outputs depend on the units that are on and on nothing else. So at every point

    gradient of the outputs  in  span{ grad h_j : unit j is on },

whatever the layers behind it do. Where fewer units are on than there are inputs, that is a test. It speaks about the
sides of the units: signs under which some gradient leaves the span are wrong. For wrong signs there nearly always is a
point of the box at which few units would be on, so few gradients leave one choice out of 2^units. Nothing of the next
layer has to be known.

Two things may be open besides. A unit that is on in the whole box has no surface: it adds one linear function of the
features to all spans, and its row is a null vector of what the gradients say across the spans. And a unit's surface
does not show its weights on features that act on one side of it only: such a feature joins the span. Where the span is
small its coefficient there is known, and it is the sum of the open weights times the coefficients of their units.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.recovery.critical import gradients
from reluscope.recovery.trunk import Local, Stage, Trunk
from reluscope.recovery.view import View
from reluscope.threads import look

_MOST_UNITS = 14
"""Units whose signs are tried in all ways."""

_STEP = 1e-4
"""Length of differences."""

_ROUNDS, _EACH = 24, 40
"""Rounds of gradients, and how many of them in each."""

_OUT = 1e-5
"""Share of a gradient outside a span above which it is not inside."""

_ENOUGH, _IDLE, _FEWEST = 20, 5, 3
"""Gradients that must have spoken for the signs that are believed, at least; points at which each unit must have been
seen off; and points that speak for signs before they are looked at closely."""

_FAINT, _CLEAR = 1e-3, 1e-2
"""Singular values below these are no evidence, in equations whose numbers are about 1."""

_MOST_COMPARED, _MOST_CLOSELY, _NEARLY = 20, 4, 0.5
"""Choices of signs that are compared by what speaks for them; those, at most, that are looked at closely; and how near
the best they must come."""

_FEW_AGAINST, _STRAY, _REWEIGHTED = 2, 0.03, 12
"""Gradients, and share of them, that may disagree: a unit that is known in part may be on the other side there. And
rounds of reweighting that leave them out."""

_RANK = 1e-7

_Bools = npt.NDArray[np.bool_]
_Places = npt.NDArray[np.intp]


class Pool(Protocol):
    """What is asked of everything learnt so far (`exact.Pool`)."""

    view: View
    rng: np.random.Generator

    def open(self) -> bool:
        """Whether more may be asked."""

    def asking(self, what: str) -> AbstractContextManager[None]:
        """Count the queries of a step."""


def settled_by_slopes(
    pool: Pool, trunk: Trunk, unseen: tuple[tuple[int, int], ...], U: FloatArray
) -> tuple[Trunk, _Places] | None:
    """The trunk with the units of its last stage turned as they are in the network, nothing carried but for a unit that
    is on everywhere, and which of the units it has; None if gradients do not leave one choice.

    `unseen` lists weights (unit, feature) that the surfaces do not show; one of the units with such weights may be left
    out, as a piece of a deeper one. `U` are points of the box to choose from. Costs `inputs + 2` queries for each of
    some hundreds of points, fewer where the first of them refuse all signs.
    """
    stage = trunk.stages[-1] if trunk.stages else None
    if stage is None or not stage.carries or stage.linear or not 2 <= stage.n_units <= _MOST_UNITS:
        return None
    below = Trunk(trunk.n_inputs, trunk.stages[:-1])
    if any(s.carries and not s.linear for s in below.stages):
        return None
    k = stage.n_units
    all_ = _Slopes.of(pool, below, stage, unseen, U)
    open_ = all_.open_.sum(axis=1)
    for left_out in [-1, *np.argsort(-open_, kind="stable")[: (open_ > 0).sum()]]:
        kept = np.flatnonzero(np.arange(k) != left_out)
        slopes = all_.of_units(kept)
        turned = slopes.settled()
        all_.asked, all_.g = slopes.asked, slopes.g
        if turned is not None:
            linear = len(slopes.w) - len(kept)
            bias = np.append(stage.bias[kept], np.zeros(linear))
            sign = np.where(turned, -1.0, 1.0)
            last = Stage(sign[:, None] * slopes.w, sign * bias, np.arange(len(bias)) < len(kept), linear=linear)
            return trunk.with_last(last), kept
    return None


@dataclass(eq=False)
class _Slopes:
    """The points, what is known there, and the gradients asked so far (`asked` are places in the points).

    `w` (rows, features) are the units and, behind them, a unit that is on everywhere. `on` (points, rows) says where
    they are on as they are turned in the trunk, `open_` (rows, features) which weights no surface shows.
    """

    pool: Pool
    U: FloatArray
    local: Local
    w: FloatArray
    on: _Bools
    open_: _Bools
    units: int
    asked: _Places
    g: FloatArray
    tried: set[int]

    @classmethod
    def of(cls, pool: Pool, below: Trunk, stage: Stage, unseen: tuple[tuple[int, int], ...], U: FloatArray) -> _Slopes:
        """Nothing asked yet."""
        k, n = stage.n_units, below.n_inputs
        local, w = below.local(U), stage.weight[:k]
        open_ = np.zeros(w.shape, dtype=bool)
        for i, j in unseen:
            open_[i, j] = True
        on = local.z @ w.T + stage.bias[:k] > 0
        return cls(pool, U, local, w, on, open_, k, np.zeros(0, dtype=np.intp), np.zeros((0, n)), set())

    def of_units(self, kept: _Places) -> _Slopes:
        """The same for some of the units, with the gradients asked so far."""
        return replace(self, w=self.w[kept], on=self.on[:, kept], open_=self.open_[kept], units=len(kept))

    def ask(self, where: _Places) -> None:
        """Gradients at more points, those left out at which the function bends."""
        where = np.array([i for i in np.unique(where) if i not in self.tried], dtype=np.intp)
        self.tried.update(where.tolist())
        with self.pool.asking("signs"):
            g, _, good = gradients(self.pool.view, self.U[where], np.full(len(where), _STEP))
            self.asked = np.concatenate([self.asked, where[good]])
            self.g = np.concatenate([self.g, g[good]])

    def some(self, where: _Bools) -> _Places:
        """A few of the points."""
        here = np.flatnonzero(where)
        return self.pool.rng.choice(here, min(_EACH, len(here)), replace=False)

    def dimension(self, turned: _Bools) -> _Places:
        """Generators of the span at every point under some signs: (points,)."""
        on = self.on ^ turned
        count = on.sum(axis=1)
        for f in np.flatnonzero(self.open_.any(axis=0)):
            count += on[:, self.open_[:, f]].any(axis=1) & (self.local.z[:, f] > 0)
        return count

    def few(self, i: int, choices: _Bools) -> _Bools:
        """Whether the span at point i is a test, under several signs."""
        return np.asarray(self.count(i, self.on[i] ^ choices) < self.U.shape[1])

    def count(self, i: int, on: _Bools) -> _Places:
        """Generators of the span at point i for several sets of active units."""
        return np.asarray(on.sum(axis=1) + ((on @ self.open_) & (self.local.z[i] > 0)).sum(axis=1))

    def span(self, i: int, active: _Bools) -> FloatArray:
        """Generators of the span at point i for several sets of active units: (sets, inputs, generators)."""
        J = self.local.J[i]
        own = (self.w @ J).T[None] * active[:, None, :]
        acts = (self.open_ & (self.local.z[i] > 0)).any(axis=0)
        free = (active @ self.open_)[:, acts]
        return np.concatenate([own, J[acts].T[None] * free[:, None, :]], axis=2)

    def settled(self) -> _Bools | None:
        """The one choice of signs that gradients speak for, without or with a unit that is on everywhere; the weights
        that act under these signs become known. None if there is no such choice."""
        choices = (np.arange(2**self.units)[:, None] >> np.arange(self.units)) & 1 == 1
        self.ask_for(choices)
        left = choices[self.unrefused(choices)]
        if not len(left):
            left = self.with_linear(choices)
        if not len(left) or not len(self.asked):
            return None
        may = np.stack([self.few(int(i), left) for i in self.asked]).sum(axis=0)
        some = left[np.argsort(-may, kind="stable")[:_MOST_COMPARED]]
        spoken = np.array([self.idle(s)[1] for s in some])
        enough = min(int((spoken >= max(_FEWEST, _NEARLY * spoken.max())).sum()), _MOST_CLOSELY)
        w, open_ = self.w, self.open_
        for s in some[np.argsort(-spoken, kind="stable")][:enough]:
            self.w, self.open_ = w.copy(), open_.copy()
            if self.weights(s) and self.certain(s):
                return np.asarray(s)
        return None

    def ask_for(self, choices: _Bools) -> None:
        """Gradients where few units are on, under signs that few have refused yet."""
        n, rng = self.U.shape[1], self.pool.rng
        tests, against = np.zeros((2, len(choices)), dtype=int)
        untold, done = np.ones(len(choices), dtype=bool), 0
        for _ in range(_ROUNDS):
            look()
            left = np.flatnonzero(_stands(tests, against) & untold)
            if not len(left) or not self.pool.open() or (len(left) == 1 and tests[left[0]] >= 2 * _ENOUGH):
                return
            more = []
            for s in rng.choice(left, _EACH, replace=len(left) < _EACH):
                few = np.flatnonzero(self.dimension(choices[s]) < n)
                if len(few):
                    more.append(rng.choice(few))
                else:
                    untold[s] = False
            self.ask(np.array(more, dtype=np.intp))
            for at in range(done, len(self.asked)):
                left = np.flatnonzero(_stands(tests, against))
                tests[left] += self.few(int(self.asked[at]), choices[left])
                against[left] += self.refused(at, choices[left])
            done = len(self.asked)

    def refused(self, at: int, choices: _Bools) -> _Bools:
        """Which signs the gradient number `at` refuses."""
        i, refused = int(self.asked[at]), np.zeros(len(choices), dtype=bool)
        few = np.flatnonzero(self.few(i, choices))
        if len(few):
            sets, back = np.unique(self.on[i] ^ choices[few], axis=0, return_inverse=True)
            most = _OUT * max(float(np.linalg.norm(self.g[at])), 1e-6 * self.pool.view.scale)
            refused[few] = (_outside(self.span(i, sets), self.g[at][None]) > most)[back.reshape(-1)]
        return refused

    def unrefused(self, choices: _Bools) -> _Places:
        """Which signs gradients do not refuse, but for a few: at some of the points a unit that is known in part may be
        on the other side."""
        tests, against = np.zeros((2, len(choices)), dtype=int)
        for at in range(len(self.asked)):
            look()
            left = np.flatnonzero(_stands(tests, against))
            tests[left] += self.few(int(self.asked[at]), choices[left])
            against[left] += self.refused(at, choices[left])
        return np.flatnonzero(_stands(tests, against))

    def idle(self, turned: _Bools) -> tuple[_Places, int]:
        """At how many points each unit was off and its own gradient was outside the span that holds that of the
        outputs; and at how many this holds for some unit."""
        idle, spoken = np.zeros(len(turned), dtype=np.intp), 0
        for i in self.asked:
            if self.few(int(i), turned[None])[0]:
                own, active = self.w @ self.local.J[i], self.on[i] ^ turned
                size = np.linalg.norm(own, axis=1)
                shown = (_outside(self.span(int(i), active[None]), own) > 0.01 * size) & ~active
                idle, spoken = idle + shown, spoken + int(shown.any())
        return idle, spoken

    def certain(self, best: _Bools) -> bool:
        """Whether no gradient refuses the signs, and for every unit gradients speak: they refuse it turned round, or it
        was seen to have no effect where it is off."""
        few = self.dimension(best) < self.U.shape[1]
        for off in [np.ones(len(few), dtype=bool), *~(self.on ^ best).T[self.idle(best)[0] < _IDLE]]:
            self.ask(self.some(few & off))
        turned = best ^ np.eye(len(best), dtype=bool)[: self.units]
        refused = np.ones(self.units, dtype=bool)
        refused[self.unrefused(turned)] = False
        idle, spoken = self.idle(best)

        sure = spoken >= _ENOUGH and bool((refused | (idle[: self.units] >= _IDLE)).all())
        return sure and len(self.unrefused(best[None])) == 1

    def with_linear(self, choices: _Bools) -> _Bools:
        """The signs under which there is one row whose gradient explains what leaves the spans. It joins the others, as
        one that is never turned; what it weighs features with that other rows leave open is open for it as well."""
        n, rng = self.U.shape[1], self.pool.rng
        more = []
        for s in choices[rng.integers(0, len(choices), _ROUNDS * _EACH // 2)]:
            few = np.flatnonzero(self.dimension(s) < n - 1)
            more += [rng.choice(few)] if len(few) else []
        self.ask(np.array(more, dtype=np.intp))
        known = np.flatnonzero(~self.open_.any(axis=0))
        gram, said = np.zeros((len(choices), len(known), len(known))), np.zeros(len(choices), dtype=int)
        for at, i in enumerate(self.asked):
            look()
            on = self.on[i] ^ choices
            which = np.flatnonzero(self.count(int(i), on) < n - 1)
            if not len(which):
                continue
            sets, back = np.unique(on[which], axis=0, return_inverse=True)
            says = self.across(at, sets)[:, :, known]
            gram[which] += np.einsum("sef,seg->sfg", says, says)[back.reshape(-1)]
            said[which] += (np.abs(says).max(axis=(1, 2)) > 0)[back.reshape(-1)]
        size, rows = np.linalg.eigh(gram)
        clear = (said >= _ENOUGH) & (size[:, 0] < 1e-8 * size[:, 1]) & (size[:, 1] > 1e-9 * size[:, -1])
        found = []
        for s in np.flatnonzero(clear):
            row = np.zeros(self.w.shape[1])
            row[known] = rows[s][:, 0]
            with_it = replace(
                self,
                w=np.concatenate([self.w, row[None]]),
                on=np.column_stack([self.on, np.ones(len(self.U), dtype=bool)]),
                open_=np.concatenate([self.open_, np.any(self.open_, axis=0, keepdims=True)]),
            )
            turned = np.append(choices[s], False)[None]
            if len(with_it.unrefused(turned)):
                found.append((with_it, turned))
        if len(found) != 1:
            return choices[:0]
        self.w, self.on, self.open_ = found[0][0].w, found[0][0].on, found[0][0].open_
        return found[0][1]

    def across(self, at: int, sets: _Bools) -> FloatArray:
        """What the gradient number `at` says about the row of a unit that is on everywhere: its gradient has no part
        outside span and gradient. Rows (sets, inputs, features), 0 where the span holds the gradient."""
        i, g = int(self.asked[at]), self.g[at]
        J, away = self.local.J[i], _across(self.span(i, sets))
        left = away @ g
        length = np.linalg.norm(left, axis=1, keepdims=True)
        left = left / np.maximum(length, 1e-300)
        E = away - left[:, :, None] * (left[:, None, :] @ away)
        E[length[:, 0] <= 1e-3 * np.linalg.norm(g)] = 0.0
        return np.asarray(E @ J.T / max(float(np.linalg.norm(J, axis=1).max()), 1e-300))

    def weights(self, turned: _Bools) -> bool:
        """Solve for the open weights under some signs; whether all that act were found."""
        n, on, active = self.U.shape[1], self.on ^ turned, self.local.z > 0
        while True:
            before = self.open_.sum()
            acting = [(j, f) for j, f in np.argwhere(self.open_) if (on[:, j] & active[:, f]).any()]
            if not acting or not self.pool.open():
                return not acting
            for j, f in acting:
                of_others = on.sum(axis=1) + ((np.delete(on, j, 1) @ np.delete(self.open_, j, 0)) & active).sum(axis=1)
                few = (self.dimension(turned) <= n) | (of_others < n)
                self.ask(self.some(few & on[:, j] & active[:, f]))
            for j in {j for j, _ in acting}:
                self.solve_unit(int(j), turned)
            self.solve(turned)
            if self.open_.sum() == before:
                return False

    def solve_unit(self, j: int, turned: _Bools) -> None:
        """The open weights of one unit, from gradients across all else that is in the span: what is left of them is a
        multiple of what is left of the unit's own, which is linear in those weights."""
        features, pairs = np.flatnonzero(self.open_[j]), []
        for i, g in zip(self.asked, self.g, strict=True):
            on = self.on[i] ^ turned
            if not on[j] or not (self.local.z[i, features] > 0).any():
                continue
            on[j] = False
            if on.sum() + ((on @ self.open_) & (self.local.z[i] > 0)).sum() > len(g) - 2:
                continue
            J, away = self.local.J[i], _across(self.span(int(i), on[None]))[0]
            left = away @ g
            length = float(np.linalg.norm(left))
            if length <= 1e-3 * np.linalg.norm(g):
                continue
            E = away - np.outer(left, left @ away) / length**2
            size = float(np.linalg.norm(J, axis=1).max())
            pairs.append((E @ J[features].T / size, -(E @ (self.w[j] @ J)) / size))
        if pairs:
            self.take([(j, int(f)) for f in features], *(np.concatenate(part) for part in zip(*pairs, strict=True)))

    def solve(self, turned: _Bools) -> None:
        """The open weights that all gradients together determine.

        Where the generators of a span are independent, so are the coefficients of the gradient in them. That of an open
        feature is the sum of its open weights, each times the coefficient of its unit.
        """
        unknown = [(int(j), int(f)) for j, f in np.argwhere(self.open_)]
        place = {pair: at for at, pair in enumerate(unknown)}
        rows, wanted = [], []
        for i, g in zip(self.asked, self.g, strict=True):
            on = self.on[i] ^ turned
            free = np.flatnonzero((on @ self.open_) & (self.local.z[i] > 0))
            if not len(free) or on.sum() + len(free) > len(g):
                continue
            J, units = self.local.J[i], np.flatnonzero(on)
            G = np.concatenate([self.w[units] @ J, J[free]])
            size = np.linalg.norm(G, axis=1)
            if size.min() == 0 or np.linalg.svd(G / size[:, None], compute_uv=False)[-1] < _CLEAR:
                continue
            by = np.linalg.lstsq(G.T, g, rcond=None)[0]
            scale = float(np.abs(by).max())
            if np.linalg.norm(G.T @ by - g) > _OUT * np.linalg.norm(g) or scale == 0:
                continue
            for f, sum_ in zip(free, by[len(units) :], strict=True):
                row = np.zeros(len(unknown))
                for j, of in zip(units, by, strict=False):
                    if self.open_[j, f]:
                        row[place[int(j), int(f)]] = of / scale
                rows.append(row)
                wanted.append(sum_ / scale)
        if rows:
            self.take(unknown, np.stack(rows), np.array(wanted))

    def take(self, unknown: list[tuple[int, int]], A: FloatArray, y: FloatArray) -> None:
        """Those of the unknown weights that equations `A d = y` determine, if nearly all of these agree."""
        s, Vt = np.linalg.svd(A, full_matrices=False)[1:]
        seen = np.flatnonzero(np.linalg.norm(Vt[s > _FAINT * np.sqrt(len(A))], axis=0) > 1 - 1e-6)
        use = (np.abs(np.delete(A, seen, axis=1)) < 1e-9).all(axis=1)
        A, y = A[use][:, seen], y[use]
        if not len(seen) or len(A) < len(seen) + _FEWEST:
            return
        weight: FloatArray = np.ones(len(A))
        d: FloatArray = np.zeros(len(seen))
        miss: FloatArray = np.zeros(len(A))
        for _ in range(_REWEIGHTED):
            d = np.asarray(np.linalg.lstsq(A * weight[:, None], y * weight, rcond=None)[0], dtype=np.float64)
            miss = np.abs(A @ d - y)
            weight = np.sqrt(1.0 / np.maximum(miss, 0.01 * _OUT))
        if (miss > _OUT).mean() > _STRAY:
            return
        for at, value in zip(seen, d, strict=True):
            self.w[unknown[at]] += value
            self.open_[unknown[at]] = False


def _stands(tests: _Places, against: _Places) -> _Bools:
    """Whether signs are believed in spite of the gradients against them."""
    return np.asarray(against <= _FEW_AGAINST + _STRAY * tests)


def _across(spans: FloatArray) -> FloatArray:
    """The projections (sets, inputs, inputs) away from the columns of matrices (sets, inputs, generators)."""
    U, s, _ = np.linalg.svd(spans, full_matrices=False)
    basis = U * ((s > _RANK * s[:, :1]) & (s[:, :1] > 0))[:, None, :]
    return np.asarray(np.eye(spans.shape[1]) - basis @ basis.transpose(0, 2, 1))


def _outside(spans: FloatArray, g: FloatArray) -> FloatArray:
    """The length of what is left of vectors g (k, inputs) outside spans: one vector for all spans, or one span."""
    return np.linalg.norm(np.einsum("sij,kj->ski", _across(spans), g), axis=2).reshape(-1)
