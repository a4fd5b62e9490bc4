"""Moves away from one input, and the nearest of them that reach a goal: branch and bound over units and whole numbers.

An input is written `x = start + effect^T t` with moves `t >= 0`: each number has a move up and a move down, each
category one move to every other level. The distance is linear in `t` (L1) or the largest of linear terms (Linf).

A node of the search has some ReLUs on or off and some moves between bounds. A linear program over the chords of its
other ReLUs gives a lower bound of the distance. The bound that counts is not the solver's optimum but what its
multipliers prove, with rounding taken off: any multipliers give one. Points are tried with the network itself.
"""

from __future__ import annotations

import heapq
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope._lazy import late
from reluscope.answers._move_kernels import needed
from reluscope.answers._move_kernels import reach as reach_of
from reluscope.threads import OutOfTimeError, deadline, look

if TYPE_CHECKING:
    from collections.abc import Callable

    from reluscope.budget import Budget
    from reluscope.network import Network

BoolArray = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]
States = npt.NDArray[np.int8]
Ends = tuple[FloatArray, FloatArray]
"""Lower and upper ends of the arguments of ReLUs, each (..., ReLUs)."""

_STRETCHES = np.array([1.0, 1 + 1e-9, 1 + 1e-6, 1 + 1e-4, 1.001, 1.004, 1.01, 1.03, 1.1, 1.3, 1.7, 2.5, 4.0])
"""How far beyond a relaxed optimum points are tried."""
_STEPS = 12
"""Steps of linearisation towards a first point."""
_POLISHED = 8
"""Steps of linearisation from a point that reaches the goal."""
_HINTS = 8
"""Points known to reach the goal that are started from."""
_BATCH = 16
"""Nodes whose linear bounds are computed together."""
_ROUNDS, _WIDTH = 30, 128
"""Rounds of chance, and points in each."""
_GRID = 24
"""Points that are tried along each single move."""
_ENTRIES = 4_000_000
"""Numbers in one table of moves; where single steps need more, they are not climbed one by one."""
_FRACTION = 1e-6
"""A whole number that is nearer than this to one is one, for branching."""
_LOOSE = 1e-8
"""A relaxed ReLU that misses its own graph by less is not branched on while others are."""
_WORTH = 0.07
"""A move is cut in two only if it can take this share of what is left of the distance."""
_HOPELESS = 0.6
"""Nodes with a bound below this share of the distance are split by moves, which shrinks the set, and not by units."""
_SLACK = 1e-9
"""Share of the sizes in a goal row by which it is relaxed in proofs: more than rounding of the network can be."""


_THREAD = threading.local()
"""Holds the linear-programming solver of each thread: to make one takes as long as a small program."""


@dataclass(frozen=True, eq=False)
class Moves:
    """What may change, in steps.

    Attributes
    ----------
    start : (inputs,) array
    effect : (moves, inputs) array
        What one step of each move adds to the input.
    cost : (moves,) array
        Distance of one step, positive.
    most : (moves,) array
        Steps at most (may be inf).
    feature : (moves,) array of int
        The feature that a move changes. Of the moves of one feature one is used at a time.
    whole : (moves,) array of bool
        Whole numbers of steps only.
    choice : (moves,) array of bool
        Moves to levels of a category: together at most one step.
    largest : bool
        Distance is the largest of the features' (Linf) instead of their sum (L1).
    """

    start: FloatArray
    effect: FloatArray
    cost: FloatArray
    most: FloatArray
    feature: Index
    whole: BoolArray
    choice: BoolArray
    largest: bool

    def __len__(self) -> int:
        return len(self.cost)

    def inputs(self, T: FloatArray) -> FloatArray:
        """Inputs (n, inputs) after moves (n, moves)."""
        return self.start + T @ self.effect

    def distance(self, T: FloatArray) -> FloatArray:
        """Distance of each of some moves (n, moves)."""
        terms = T * self.cost
        if not self.largest:
            return np.asarray(terms.sum(axis=1))
        by_feature = np.zeros((len(T), int(self.feature.max(initial=-1)) + 1))
        np.add.at(by_feature.T, self.feature, terms.T)
        return np.asarray(by_feature.max(axis=1, initial=0.0))

    def within(self, distance: float) -> FloatArray:
        """Steps at most within a distance."""
        most = np.minimum(self.most, distance / self.cost)
        return np.where(self.whole, np.floor(most + 1e-9), most)

    def frozen(self, features: tuple[int, ...]) -> Moves:
        """The same without the moves of some features."""
        keep = ~np.isin(self.feature, features)
        return Moves(
            self.start, self.effect[keep], self.cost[keep], self.most[keep], self.feature[keep], self.whole[keep],
            self.choice[keep], self.largest,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Goal:
    """Rows `G y <= g` on the outputs, all of which are to hold; `reached` says of outputs whether they count as such.

    Attributes
    ----------
    G : (rows, outputs) array
    g : (rows,) array
    reached : function of (n, outputs)
    label : object
        What the goal is called.
    """

    G: FloatArray
    g: FloatArray
    reached: Callable[[FloatArray], BoolArray]
    label: Any


@dataclass(frozen=True, eq=False)
class Nearest:
    """Moves that reach the goal (None if none were met), their distance, and a proved lower bound of any such distance.

    `exhausted` says that everything within reach was looked at, `stop` why not. `tie` says that `lower` is where the
    goal's limit is met but not passed: rounding, or the rule for ties, decides there.
    """

    t: FloatArray | None
    distance: float
    lower: float
    nodes: int
    exhausted: bool
    stop: Any = None
    tie: bool = False


@dataclass(frozen=True, eq=False)
class _Layer:
    """`h = W z + b`, and `z = slope h + intercept + sum over ReLUs of step relu(h[unit] - at)`."""

    W: FloatArray
    b: FloatArray
    slope: FloatArray
    intercept: FloatArray
    unit: Index
    at: FloatArray
    step: FloatArray
    first: int
    """The number of its first ReLU."""

    @property
    def part(self) -> slice:
        """Where its ReLUs stand among all."""
        return slice(self.first, self.first + len(self.unit))

    @cached_property
    def spread(self) -> FloatArray:
        """(ReLUs, units): 1 where a ReLU belongs to a unit."""
        out = np.zeros((len(self.unit), len(self.b)))
        out[np.arange(len(self.unit)), self.unit] = 1.0
        return out

    @cached_property
    def plain(self) -> bool:
        """Whether every unit is one ReLU and nothing else."""
        alone = np.array_equal(self.unit, np.arange(len(self.b)))
        return alone and not self.slope.any() and not self.intercept.any()


def _layers(net: Network, moves: Moves) -> list[_Layer]:
    """The layers as functions of moves; the last one is the output layer, with identity units."""
    out, first = [], 0
    for k, layer in enumerate(net.layers):
        units = layer.units
        W, b = layer.dense(), layer.bias
        if k == 0:
            W, b = W @ moves.effect.T, W @ moves.start + b
        live = np.isfinite(units.breaks)
        unit, m = np.nonzero(live)
        step = units.slopes[unit, m + 1] - units.slopes[unit, m]
        real = step != 0
        unit, m, step = unit[real], m[real], step[real]
        out.append(
            _Layer(
                W,
                b,
                units.slopes[:, 0],
                units.intercepts[:, 0],
                unit.astype(np.int64),
                units.breaks[unit, m],
                step,
                first,
            )
        )
        first += len(unit)
    return out


@dataclass(eq=False)
class _Node:
    bound: float
    state: npt.NDArray[np.int8]
    """Per ReLU: 1 on, -1 off, 0 either; `forced` marks those that a branch decided."""
    forced: BoolArray
    low: FloatArray
    high: FloatArray
    depth: int
    ends: Ends


class Search:
    """The nearest moves to one goal."""

    def __init__(self, net: Network, moves: Moves, goal: Goal) -> None:
        self.net, self.moves, self.goal = net, moves, goal
        self.layers = _layers(net, moves)
        self.relus = sum(len(layer.unit) for layer in self.layers)
        self.features = int(moves.feature.max(initial=-1)) + 1
        last = self.layers[-1]
        size = np.abs(goal.G) @ np.abs(net(moves.start[None])[0]) + np.abs(goal.g) + np.abs(goal.G) @ np.abs(last.b)
        self.g = goal.g + _SLACK * (size + np.abs(goal.G).sum(axis=1))
        self.best: FloatArray | None = None
        self.distance = np.inf
        self.nodes = 0

    # -- points ----------------------------------------------------------------------------------------------------

    def offer(self, T: FloatArray) -> bool:
        """Try moves (n, moves): rounded and clipped, the nearest that reaches the goal is kept."""
        look()
        m = self.moves
        T = np.clip(T, 0.0, m.most)
        if m.whole.any():
            T = np.concatenate([np.where(m.whole, f(T), T) for f in (np.round, np.ceil, np.floor)])
            T = np.minimum(T, m.most)
        if m.choice.any():
            for f in np.unique(m.feature[m.choice]):
                inside = np.flatnonzero(m.feature == f)
                top = inside[T[:, inside].argmax(axis=1)]
                keep = np.zeros((len(T), len(m)), dtype=bool)
                keep[np.arange(len(T)), top] = True
                T[:, inside] = np.where(keep[:, inside], T[:, inside], 0.0)
        distance = m.distance(T)
        order = np.flatnonzero(distance < self.distance)
        if not len(order):
            return False
        order = order[np.argsort(distance[order], kind="stable")]
        hit = self.goal.reached(self.net(m.inputs(T[order])))
        if not hit.any():
            return False
        self.best = T[order[int(np.argmax(hit))]].copy()
        self.distance = float(distance[order[int(np.argmax(hit))]])
        return True

    def wander(self, rounds: int) -> None:
        """Chance: points near the best one with a move taken back, changed or added, again and again."""
        m = self.moves
        if self.best is None:
            return
        rng = np.random.default_rng(0)
        reach = np.where(np.isfinite(m.most), m.most, 8.0 / m.cost)
        for _ in range(rounds):
            assert self.best is not None
            room = np.minimum(reach, self.distance / m.cost)
            T = np.repeat(self.best[None], _WIDTH, axis=0)
            at = np.arange(_WIDTH)
            used = np.flatnonzero(self.best > 0)
            first = rng.choice(used, _WIDTH)
            T[at, first] *= rng.choice([0.0, 0.5, 0.8, 0.9, 0.97], _WIDTH)
            for _ in range(2):
                k = rng.integers(len(m), size=_WIDTH)
                other = (m.feature[None] == m.feature[k][:, None]) & (np.arange(len(m))[None] != k[:, None])
                T[other] = 0.0
                step = room[k] * rng.random(_WIDTH) ** 3
                T[at, k] += np.where(m.whole[k], np.ceil(step), step) * (rng.random(_WIDTH) < 0.7)
            if self.offer(np.minimum(T, m.most)):
                self.polish(self.best[None])

    def polish(self, starts: FloatArray) -> None:
        """From points that reach the goal: towards the nearest point of their own linear model, as far as it holds."""
        m = self.moves
        shares = np.concatenate([1 - np.linspace(0.0, 1.0, 9)[:-1] ** 2, [0.02, 0.005]])
        reach = np.where(np.isfinite(m.most), m.most, 8.0 / m.cost)
        for start in starts:
            t = start
            for _ in range(_POLISHED):
                x = m.inputs(t[None])
                C, d = (a[0] for a in self.net.output_maps(self.net.pattern(x)))
                row = self._worst(C @ x[0] + d)
                a = -(self.goal.G[row] @ C) @ m.effect.T
                value = float(self.goal.G[row] @ (C @ m.start + d) - self.goal.g[row])
                there, _ = needed(a, value * (1 + 1e-6), m.cost, reach, m.feature, self.features, m.largest)
                between = t + shares[:, None] * (there - t)
                self.offer(between)
                hit = self.goal.reached(self.net(m.inputs(between)))
                if not hit.any():
                    break
                nearest = between[int(np.argmax(hit))]
                if m.distance(nearest[None])[0] > 0.999 * m.distance(t[None])[0]:
                    break
                t = nearest

    def trim(self) -> None:
        """Take back each move of the best point as far as the goal stays reached."""
        m = self.moves
        for _ in range(3):
            before = self.distance
            if self.best is None:
                return
            for k in np.argsort(-self.best * m.cost)[: int((self.best > 0).sum())]:
                T = np.repeat(self.best[None], _GRID, axis=0)
                top = float(self.best[k])
                for _ in range(4):
                    T[:, k] = np.linspace(0.0, top, _GRID) if not m.choice[k] else 0.0
                    if m.whole[k]:
                        T[:, k] = np.ceil(T[:, k])
                    old = float(self.best[k])
                    if not self.offer(T) or self.best[k] >= old:
                        break
                    width = top / (_GRID - 1)
                    top = float(self.best[k])
                    T = np.repeat(self.best[None], _GRID, axis=0)
                    T[:, k] = np.linspace(max(0.0, top - width), top, _GRID)
                    if m.whole[k]:
                        T[:, k] = np.ceil(T[:, k])
                    if not self.offer(T):
                        break
                    top = float(self.best[k])
            if not self.distance < before * (1 - 1e-6):
                return

    def explore(self, hints: FloatArray | None) -> None:
        """First points: hints, single moves, steps of linearisation."""
        m = self.moves
        if not len(m):
            return
        if hints is not None and len(hints):
            self.offer(hints)
        reach = np.where(np.isfinite(m.most), m.most, 8.0 / m.cost)
        shares = np.linspace(0.0, 1.0, _GRID + 1)[1:] ** 2
        for part in np.array_split(np.arange(len(m)), -(-_GRID * len(m) ** 2 // _ENTRIES)):
            T = np.zeros((len(part), _GRID, len(m)))
            T[np.arange(len(part)), :, part] = reach[part, None] * shares
            self.offer(T.reshape(-1, len(m)))
        if len(shares) * len(m) ** 2 <= _ENTRIES:
            self._climb(reach)
        t = np.zeros(len(m))
        for _ in range(_STEPS):
            x = m.inputs(t[None])
            C, d = (a[0] for a in self.net.output_maps(self.net.pattern(x)))
            row = self._worst(C @ x[0] + d)
            a = -(self.goal.G[row] @ C) @ m.effect.T
            value = float(self.goal.G[row] @ (C @ m.start + d) - self.goal.g[row])
            t, found = needed(a, value * (1 + 1e-9) + 1e-12, m.cost, reach, m.feature, self.features, m.largest)
            self.offer(t * _STRETCHES[:, None])
            if not np.isfinite(found) and not t.any():
                break
        self.trim()
        if self.best is not None:
            self.polish(self.best[None])
            if hints is not None and len(hints):
                self.polish(hints[:_HINTS])
            self.wander(_ROUNDS)
            self.trim()

    def _climb(self, reach: FloatArray) -> None:
        """One move after the other, each time the one that comes nearer to the goal for the least distance."""
        m = self.moves
        t = np.zeros(len(m))
        shares = np.linspace(0.0, 1.0, 9)[1:] ** 2
        for _ in range(_STEPS):
            T = np.repeat(t[None], len(m) * len(shares), axis=0).reshape(len(m), len(shares), len(m))
            for k in range(len(m)):
                T[k, :, k] = np.maximum(t[k], np.ceil(reach[k] * shares) if m.whole[k] else reach[k] * shares)
                T[k][:, (m.feature == m.feature[k]) & (np.arange(len(m)) != k)] = 0.0
            flat = np.minimum(T.reshape(-1, len(m)), m.most)
            self.offer(flat)
            y = np.vstack([self.net(m.inputs(t[None])), self.net(m.inputs(flat))])
            short = (y @ self.goal.G.T - self.goal.g).max(axis=1)
            far = m.distance(np.vstack([t[None], flat]))
            gain, spent = short[0] - short[1:], far[1:] - far[0]
            rate = np.where((gain > 0) & (spent > 1e-12), gain / np.maximum(spent, 1e-12), 0.0)
            best = int(np.argmax(rate))
            if not rate[best] > 0 or short[1 + best] <= 0:
                return
            t = flat[best].copy()
            if self.distance <= far[1 + best]:
                return

    def _worst(self, y: FloatArray) -> int:
        return int(np.argmax(self.goal.G @ y - self.goal.g))

    # -- bounds ----------------------------------------------------------------------------------------------------

    def _ends(self, state: States, low: FloatArray, high: FloatArray, known: Ends, reach: float) -> Ends:
        """Lower and upper ends of the arguments of all ReLUs on some nodes, over moves within `reach`."""
        m = self.moves
        ends = np.full((2, len(low), self.relus), np.inf)
        ends[0] = -np.inf
        spent = np.zeros(len(low)) if m.largest else low @ m.cost
        far = np.minimum(high, reach / m.cost)
        for k, layer in enumerate(self.layers):
            n = len(layer.unit)
            if not n:
                continue
            rows, at = layer.W[layer.unit], layer.b[layer.unit] - layer.at
            # The upper ends of h and of -h, both as functions of the moves.
            A, c = np.concatenate([rows, -rows])[None], np.concatenate([at, -at])[None]
            A, c, size = self._down(A, c, k, (ends[0], ends[1]))
            top = c + np.einsum("brk,bk->br", np.broadcast_to(A, (len(low), *A.shape[1:])), low)
            top = top + reach_of(A, m.cost, high - low, m.feature, self.features, reach - spent, m.largest)
            top += 1e-13 * (
                size + np.abs(c) + np.einsum("brk,bk->br", np.broadcast_to(np.abs(A), (len(low), *A.shape[1:])), far)
            )
            part = layer.part
            on, off = state[:, part] > 0, state[:, part] < 0
            up, down = np.minimum(top[:, :n], known[1][:, part]), np.maximum(-top[:, n:], known[0][:, part])
            ends[1][:, part] = np.where(off, np.minimum(up, 0.0), up)
            ends[0][:, part] = np.where(on, np.maximum(down, 0.0), down)
        return ends[0], ends[1]

    def _down(self, A: FloatArray, c: FloatArray, k: int, ends: Ends) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows (nodes, rows, moves) above `A z + c` on the layers below layer k; and the size of their terms."""
        size = np.abs(c)
        for j in range(k - 1, -1, -1):
            layer = self.layers[j]
            part = layer.part
            B = A * layer.slope
            if not layer.plain:
                c = c + A @ layer.intercept
            if len(layer.unit):
                us, uc, ls = _chords(ends[0][:, part], ends[1][:, part])
                R = (A if layer.plain else A[..., layer.unit]) * layer.step
                S = R * np.where(R > 0, us[:, None], ls[:, None])
                c = c + np.einsum("brk,bk->br", np.maximum(R, 0.0), uc) - S @ layer.at
                size = size + np.einsum("brk,bk->br", np.abs(R), uc) + np.abs(R) @ np.abs(layer.at)
                B = S if layer.plain else B + S @ layer.spread
            c = c + B @ layer.b
            size = size + np.abs(B) @ np.abs(layer.b)
            A = B @ layer.W
        return A, c, size

    def _substituted(self, low: FloatArray, high: FloatArray, ends: Ends, reach: float) -> FloatArray:
        """A lower bound of the distance on some nodes, by linear bounds alone: what the goal's worst row needs."""
        m = self.moves
        last = self.layers[-1]
        A, c = -self.goal.G @ last.W, self.g - self.goal.G @ last.b
        A, c, size = self._down(A[None], c[None], len(self.layers) - 1, ends)
        A, c, size = (np.broadcast_to(a, (len(low), *a.shape[1:])) for a in (A, c, size))
        spent = np.zeros(len(low)) if m.largest else low @ m.cost
        best = spent.copy()
        far = np.minimum(high, reach / m.cost)
        value = c + np.einsum("brk,bk->br", A, low)
        slack = 1e-12 * (size + np.abs(c) + np.einsum("brk,bk->br", np.abs(A), far))
        for b in range(len(low)):
            for i in range(c.shape[1]):
                need = -float(value[b, i] + slack[b, i])
                if need > 0:
                    room = high[b] - low[b]
                    _, more = needed(A[b, i], need, m.cost, room, m.feature, self.features, m.largest)
                    best[b] = max(best[b], (spent[b] + more) * (1 - 1e-12))
        return best

    def _prepared(self, nodes: list[_Node], reach: float) -> None:
        """Intervals, states and cheap bounds of some nodes; a bound of inf where nothing is left."""
        m = self.moves
        within = m.within(reach)
        low = np.array([n.low for n in nodes])
        high = np.minimum(np.array([n.high for n in nodes]), within)
        empty = (low > high).any(axis=1)
        high = np.maximum(high, low)
        forced = np.array([n.forced for n in nodes])
        state = np.array([n.state for n in nodes]) * forced
        known = np.array([n.ends[0] for n in nodes]), np.array([n.ends[1] for n in nodes])
        ends = self._ends(state, low, high, known, reach)
        empty |= (ends[0] > ends[1]).any(axis=1)
        empty |= ((state < 0) & (ends[0] > 0)).any(axis=1) | ((state > 0) & (ends[1] < 0)).any(axis=1)
        state = np.where(forced, state, np.where(ends[0] >= 0, 1, np.where(ends[1] <= 0, -1, 0))).astype(np.int8)
        cheap = self._substituted(low, high, ends, reach)
        for i, node in enumerate(nodes):
            node.ends, node.state = (ends[0][i], ends[1][i]), state[i]
            node.bound = np.inf if empty[i] else max(node.bound, float(cheap[i]))

    def _can_split(self, node: _Node, limit: float) -> bool:
        return self._range(node, limit)[0] >= 0

    def _expressions(
        self, state: npt.NDArray[np.int8], open_: Index
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Arguments of all ReLUs, and outputs, as affine functions of the moves and of the open ReLUs' values."""
        K, n = len(self.moves), len(self.moves) + len(open_)
        place = np.full(self.relus, -1)
        place[open_] = np.arange(K, n)
        args, args0 = np.zeros((self.relus, n)), np.zeros(self.relus)
        Z, z = np.eye(K, n), np.zeros(K)
        for layer in self.layers:
            H, h = layer.W @ Z, layer.W @ z + layer.b
            Z, z = layer.slope[:, None] * H, layer.slope * h + layer.intercept
            m = len(layer.unit)
            if not m:
                continue
            part = slice(layer.first, layer.first + m)
            args[part], args0[part] = H[layer.unit], h[layer.unit] - layer.at
            on = state[part] > 0
            np.add.at(Z, layer.unit[on], layer.step[on, None] * args[part][on])
            np.add.at(z, layer.unit[on], layer.step[on] * args0[part][on])
            free = np.flatnonzero(place[part] >= 0)
            np.add.at(Z, (layer.unit[free], place[part][free]), layer.step[free])
        return args, args0, Z, z

    def _relaxed(self, node: _Node, reach: float) -> tuple[float, FloatArray | None, FloatArray, FloatArray]:
        """A proved lower bound on the node, a relaxed optimum, and per ReLU and move how badly it misses."""
        m, K = self.moves, len(self.moves)
        none = np.zeros(self.relus), np.zeros(K)
        high = np.minimum(node.high, m.within(reach))
        low_ends, high_ends = node.ends
        if node.bound < _HOPELESS * reach and self._can_split(node, reach):
            return node.bound, np.zeros(K), *none
        open_ = np.flatnonzero(node.state == 0)
        args, args0, Y, y = self._expressions(node.state, open_)
        n = K + len(open_)
        us, uc, _ = _chords(low_ends[open_], high_ends[open_])
        eye = np.zeros((len(open_), n))
        eye[np.arange(len(open_)), K + np.arange(len(open_))] = 1.0
        above = args[open_] - eye  # arg - v <= 0
        below = eye - us[:, None] * args[open_]  # v - us arg <= uc
        ruled = np.flatnonzero(node.forced)
        sign = -node.state[ruled].astype(np.float64)
        goal, goal0 = self.goal.G @ Y, self.g - self.goal.G @ y
        rows = [above, below, sign[:, None] * args[ruled], goal]
        up = [-args0[open_], uc + us * args0[open_], -sign * args0[ruled], goal0]
        choices = np.unique(m.feature[m.choice])
        picks = np.zeros((len(choices), n))
        for i, f in enumerate(choices.tolist()):
            picks[i, np.flatnonzero((m.feature == f) & m.choice)] = 1.0
        rows.append(picks)
        up.append(np.ones(len(choices)))
        cost = np.zeros(n)
        low, top = np.concatenate([node.low, np.zeros(len(open_))]), np.concatenate([high, high_ends[open_]])
        if m.largest:  # one more variable: the distance
            by_feature = np.zeros((self.features, n))
            by_feature[m.feature, np.arange(K)] = m.cost
            rows = [np.column_stack([np.concatenate(rows), np.zeros(sum(map(len, rows)))])]
            rows.append(np.column_stack([by_feature, -np.ones(self.features)]))
            up.append(np.zeros(self.features))
            cost, low, top = np.append(cost, 1.0), np.append(low, 0.0), np.append(top, reach)
        else:
            cost[:K] = m.cost
        bound, point = _program(np.concatenate(rows), np.concatenate(up), cost, low, top, reach)
        if point is None:
            return bound, None, *none
        t, v = point[:K], point[K : K + len(open_)]
        miss = np.zeros(self.relus)
        gap = v - np.maximum(args[open_] @ point[:n] + args0[open_], 0.0)
        weight = np.zeros(len(open_))
        weight[:] = self._weights[open_]
        miss[open_] = np.abs(gap) * weight
        part = np.where(m.whole, np.abs(t - np.round(t)), 0.0)
        part = np.where(part > _FRACTION, part, 0.0) * m.cost
        return bound, t, miss, part

    @property
    def _weights(self) -> FloatArray:
        """How much each ReLU's value counts for the goal, by sizes of weights."""
        if not hasattr(self, "_weight_of"):
            w = np.empty(self.relus)
            back = np.abs(self.goal.G).max(axis=0)
            for layer in reversed(self.layers):
                part = slice(layer.first, layer.first + len(layer.unit))
                w[part] = back[layer.unit] * np.abs(layer.step)
                slope = np.abs(layer.slope)
                np.maximum.at(slope, layer.unit, np.abs(layer.step))
                back = (back * slope) @ np.abs(layer.W)
            self._weight_of = np.maximum(w, 1e-12)
        return self._weight_of

    # -- search ----------------------------------------------------------------------------------------------------

    def run(self, budget: Budget, *, relative: float, hints: FloatArray | None = None, most: float = np.inf) -> Nearest:
        """The nearest moves; beyond a distance of `most` nothing is looked for."""
        m = self.moves
        if self.goal.reached(self.net(m.start[None]))[0]:
            return Nearest(np.zeros(len(m)), 0.0, 0.0, 0, True)
        with suppress(OutOfTimeError), deadline(lambda: budget.spent() is not None):
            self.explore(hints)
        reach = min(self.distance, most)
        if not np.isfinite(reach):
            reach = self._whole_reach() / (1 - relative) * (1 + 1e-9)
        if not np.isfinite(reach):
            reach = 1e4  # no bounds: further out nothing is looked for
        if not len(m):
            return Nearest(None, np.inf, np.inf, 0, True)
        ticket = count()
        zero = np.zeros(self.relus, dtype=np.int8)
        unknown = np.full(self.relus, -np.inf), np.full(self.relus, np.inf)
        root = _Node(0.0, zero, np.zeros(self.relus, dtype=bool), np.zeros(len(m)), m.most.copy(), 0, unknown)
        queue: list[tuple[float, int, _Node]] = [(0.0, next(ticket), root)]
        done = np.inf
        stop = None
        while queue:
            limit = min(self.distance, reach)
            if queue[0][0] >= limit * (1 - relative):
                break
            stop = budget.spent(self.nodes)
            if stop is not None:
                break
            batch: list[_Node] = []
            while queue and len(batch) < _BATCH and queue[0][0] < limit * (1 - relative):
                batch.append(heapq.heappop(queue)[2])
            self.nodes += len(batch)
            self._prepared(batch, limit)
            for at, node in enumerate(batch):
                limit = min(self.distance, reach)
                stop = budget.spent()
                if stop is not None:
                    for rest in batch[at:]:
                        heapq.heappush(queue, (rest.bound, next(ticket), rest))
                    break
                if node.bound >= limit * (1 - relative):
                    done = min(done, max(node.bound, limit) if node.bound == np.inf else node.bound)
                    continue
                bound, t, miss, part = self._relaxed(node, limit)
                # With weights of 1e100 beside 1e-160 a bound may be no number, which proves nothing.
                bound = node.bound if np.isnan(bound) else max(bound, node.bound)
                if t is None:  # nothing within the limit, or the bound is beyond it
                    done = min(done, max(bound, limit))
                    continue
                if t.any() and self.offer(t * _STRETCHES[:, None]):
                    self.trim()
                    limit = min(self.distance, reach)
                if bound >= limit * (1 - relative):
                    done = min(done, bound)
                    continue
                node.bound = bound
                children = self._children(node, t, miss, part, limit)
                if not children:  # the relaxed point is exact but misses the goal by rounding, or meets its limit only
                    done = min(done, bound)
                for child in children:
                    heapq.heappush(queue, (bound, next(ticket), child))
            if stop is not None:
                break
        else:
            stop = None
        limit = min(self.distance, reach)
        lower = min([done, *(item[0] for item in queue[:1])], default=np.inf)
        lower = min(lower, self.distance) if np.isfinite(self.distance) else lower
        exhausted = not queue or queue[0][0] >= limit * (1 - relative)
        tie = exhausted and self.best is None and done < limit * (1 - relative)
        if exhausted and self.best is None and not tie:
            lower = np.inf if np.isfinite(m.most).all() and reach >= self._whole_reach() else reach
        return Nearest(self.best, self.distance, float(max(lower, 0.0)), self.nodes, exhausted, stop, tie)

    def _whole_reach(self) -> float:
        """The distance within which all moves are."""
        m = self.moves
        each = np.zeros(self.features)
        np.maximum.at(each, m.feature, m.cost * m.most)
        return float(each.max(initial=0.0) if m.largest else each.sum())

    def _children(self, node: _Node, t: FloatArray, miss: FloatArray, part: FloatArray, limit: float) -> list[_Node]:
        coarse = self.moves.cost > 0.01 * limit
        if node.bound < _HOPELESS * limit:
            k, at = self._range(node, limit)
            if k >= 0:
                cut = np.zeros(len(self.moves))
                cut[k] = at
                return self._split_move(node, k, cut)
        wide = np.where(coarse, part, 0.0)
        if wide.max(initial=0.0) > 0.0:
            return self._split_move(node, int(np.argmax(wide)), t)
        if miss.max(initial=0.0) > _LOOSE * float(self._weights.max(initial=0.0)):
            return self._split_relu(node, int(np.argmax(miss)))
        if part.max(initial=0.0) > 0.0:
            return self._split_move(node, int(np.argmax(part)), t)
        if miss.max(initial=0.0) > 0.0:
            return self._split_relu(node, int(np.argmax(miss)))
        return []

    def _range(self, node: _Node, limit: float) -> tuple[int, float]:
        """The move that makes most ReLUs open, and where to cut it: on one side half of the distance is left."""
        m = self.moves
        rest = limit if m.largest else limit - float(m.cost @ node.low)
        room = np.minimum(np.minimum(node.high, m.within(limit)) - node.low, rest / m.cost)
        first = self.layers[0]
        open_ = node.state[first.first : first.first + len(first.unit)] == 0
        weight = self._weights[first.first : first.first + len(first.unit)][open_]
        score = (weight @ np.abs(first.W[first.unit[open_]])) * room
        score = np.where(m.whole & (room < 1), 0.0, score)
        score[room * m.cost < _WORTH * rest] = 0.0
        if not score.max(initial=0.0) > 0:
            return -1, 0.0
        k = int(np.argmax(score))
        at = node.low[k] + 0.5 * room[k]
        return k, float(np.floor(at) + 0.5 if m.whole[k] else at)

    def _split_move(self, node: _Node, k: int, t: FloatArray) -> list[_Node]:
        out = []
        for up in (False, True):
            low, high = node.low.copy(), node.high.copy()
            if up:
                low[k] = np.ceil(t[k]) if self.moves.whole[k] else t[k]
                same = self.moves.feature == self.moves.feature[k]  # one move per feature
                same[k] = False
                high[same] = 0.0
            else:
                high[k] = np.floor(t[k]) if self.moves.whole[k] else t[k]
            out.append(_Node(node.bound, node.state, node.forced, low, high, node.depth + 1, node.ends))
        return out

    def _split_relu(self, node: _Node, r: int) -> list[_Node]:
        out = []
        for value in (-1, 1):
            state, forced = node.state.copy(), node.forced.copy()
            state[r], forced[r] = value, True
            low_ends, high_ends = node.ends[0].copy(), node.ends[1].copy()
            if value > 0:
                low_ends[r] = max(low_ends[r], 0.0)
            else:
                high_ends[r] = min(high_ends[r], 0.0)
            out.append(_Node(node.bound, state, forced, node.low, node.high, node.depth + 1, (low_ends, high_ends)))
        return out


def _chords(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Slope and offset of the chord of ReLU on each interval, and a slope from 0 that stays below it."""
    wide = (low < 0) & (high > 0)
    span = np.where(wide, high - low, 1.0)
    us = np.where(low >= 0, 1.0, np.where(wide, high / span, 0.0))
    uc = np.where(wide, -low * us * (1 + 4 * EPS), 0.0)
    ls = np.where(low >= 0, 1.0, np.where(wide & (high > -low), 1.0, 0.0))
    return us, uc, ls


def _program(
    A: FloatArray, up: FloatArray, cost: FloatArray, low: FloatArray, high: FloatArray, enough: float
) -> tuple[float, FloatArray | None]:
    """A proved lower bound of `cost . z` over `A z <= up`, `low <= z <= high`, and where the solver has its least.

    The solver may stop once the bound is `enough`. From the multipliers y <= 0 of the rows,
    `cost z >= y up + sum over z of the least (cost - A^T y) z`. No point, and inf where the multipliers prove that
    there is none.
    """
    highspy = late("highspy")

    size = np.abs(A).max(axis=1, initial=0.0)
    if ((size == 0) & (up < 0)).any():
        return np.inf, None
    keep = size > 0
    A, up = A[keep] / size[keep, None], up[keep] / size[keep]
    kinds = highspy.HighsModelStatus
    solver = _solver(A, up, cost, low, high)
    solver.setOptionValue("objective_bound", float(enough))  # the solver may stop there: nothing beyond counts
    solver.run()
    status = solver.getModelStatus()
    solver.setOptionValue("objective_bound", np.inf)
    if status == kinds.kObjectiveBound:
        bound = _proved(A, up, cost, low, high, np.minimum(np.array(solver.getSolution().row_dual), 0.0))
        if bound >= enough:
            return bound, None
        solver.run()
        status = solver.getModelStatus()
    if status == kinds.kOptimal:
        found = solver.getSolution()
        y = np.minimum(np.array(found.row_dual), 0.0)
        point = np.clip(np.array(found.col_value), low, high)
        return _proved(A, up, cost, low, high, y), point
    if status == kinds.kInfeasible:
        ray = _ray(solver, len(up))
        if ray is not None:
            for y in (np.minimum(ray, 0.0), np.minimum(-ray, 0.0)):
                if _proved(A, up, np.zeros(len(cost)), low, high, y) > 0:
                    return np.inf, None
        # Not proved: what the rows are short of, as a program of its own.
        n = len(cost)
        wider = np.column_stack([A, -np.ones(len(up))])
        phase = np.append(np.zeros(n), 1.0)
        solver = _solver(wider, up, phase, np.append(low, 0.0), np.append(high, 1e6))
        solver.run()
        if solver.getModelStatus() == kinds.kOptimal:
            y = np.minimum(np.array(solver.getSolution().row_dual), 0.0)
            y = y / max(1.0, -float(y.sum()))
            if _proved(A, up, np.zeros(n), low, high, y) > 0:
                return np.inf, None
            return 0.0, np.clip(np.array(solver.getSolution().col_value)[:n], low, high)
    return 0.0, 0.5 * (low + np.where(np.isfinite(high), high, low))


def _ray(solver: Any, rows: int) -> FloatArray | None:
    found = solver.getDualRay()
    if len(found) < 3 or not found[1]:
        return None
    ray = np.asarray(found[2], dtype=np.float64)
    return ray if len(ray) == rows and np.isfinite(ray).all() else None


def _proved(A: FloatArray, up: FloatArray, cost: FloatArray, low: FloatArray, high: FloatArray, y: FloatArray) -> float:
    """What multipliers y <= 0 prove, less a bound on rounding."""
    rest = cost - y @ A
    least = np.where(rest > 0, rest * low, rest * high)
    least = np.where(rest == 0, 0.0, least)
    value = float(y @ up + least.sum())
    span = np.maximum(np.abs(low), np.abs(high))
    terms = float(np.abs(y * up).sum() + np.abs(least).sum() + (np.abs(y) @ np.abs(A) + np.abs(cost)) @ span)
    return value - 4 * EPS * (len(up) + len(cost) + 8) * terms


def _solver(A: FloatArray, up: FloatArray, cost: FloatArray, low: FloatArray, high: FloatArray) -> Any:
    highspy = late("highspy")

    m, n = A.shape
    solver = getattr(_THREAD, "solver", None)
    if solver is None:
        solver = _THREAD.solver = highspy.Highs()
        for name, value in (
            ("output_flag", False), ("threads", 1), ("presolve", "off"), ("solver", "simplex"),
            ("small_matrix_value", 1e-12),
        ):  # fmt: skip
            solver.setOptionValue(name, value)
    solver.clearModel()
    A = np.where(np.abs(A) < 1e-12, 0.0, A)
    starts = np.arange(0, m * n, n, dtype=np.int32)
    index = np.tile(np.arange(n, dtype=np.int32), m)
    solver.passModel(
        n, m, m * n, int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMinimize), 0.0, cost, low, high,
        np.full(m, -np.inf), up, starts, index, np.ascontiguousarray(A).ravel(), np.zeros(n, dtype=np.int32),
    )  # fmt: skip
    return solver
