"""Upper bounds by splitting units: for laws seen in many dimensions, where boxes of the input hold nothing.

Every unit's argument has linear bounds, each a one-dimensional Gaussian; the law puts at most `tail(D)` beyond D of its
standard deviations. All that follows holds off those tails, whose masses are added to the bound. There, each case of
the event lies in a polyhedron: the rows' own linear bounds and, on a node of the search, the half-spaces of the units
whose sign the node fixes. A polyhedron at distance d from the mean has a mass of at most `tail(d)` (`distance.py`). The
nodes with the largest share are split at the unit whose relaxation costs them most; nodes are disjoint, so shares
add up.

A tail is paid once, by the node that first uses an inequality, for all nodes below it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.measure.sound.distance import nearest, one_factor_kernel, tail, unit_rows
from reluscope.measure.sound.frame import REACH
from reluscope.measure.sound.linear import Function, Intervals, Part, whole
from reluscope.measure.sound.relu_form import Index, ReluForm
from reluscope.measure.sound.roots import root
from reluscope.threads import OutOfTimeError

_ROOT_STEPS = 12
_STEPS = 2
_ROW_STEPS = 4
_AT_ONCE = 24
"""Nodes split at once: enough for long vectors, few enough that the worst come first."""

_NUMBERS = 1 << 21
"""Numbers in the largest temporary of a batch."""

_ADOPT = 0.9
"""A tighter interval is paid for when it is at most this share of the old one."""


@dataclass(frozen=True, eq=False)
class Node:
    """A conjunction of signs of units: `C x >= e`, the intervals of all ReLUs there, and the unit to split next."""

    value: float
    box: list[list[tuple[FloatArray, FloatArray]]]
    C: FloatArray
    e: FloatArray
    split: tuple[int, int, int] | None
    sides: tuple[FloatArray, FloatArray]
    """Rows (2, r) and bounds (2,): the half-space of the on side, and of the off side."""


@dataclass(eq=False)
class Tree:
    """One search at one radius D: leaves with their shares, and the tails paid so far."""

    form: ReluForm
    radius: float
    gaussian: bool = True
    paid: float = 0.0
    settled: float = 0.0
    nodes: int = 0
    heap: list[tuple[float, int, Node]] = field(default_factory=list)
    open: float = 0.0

    def __post_init__(self) -> None:
        self.serial = 0
        self.lower = 0.0
        self.form, self.bounds, box, self.paid = root(self.form, self.radius, self.gaussian)
        r = self.form.n_inputs
        start = Node(1.0, [], np.zeros((0, r)), np.zeros(0), None, (np.zeros((2, r)), np.zeros(2)))
        part = whole(1, r, self.radius)
        self._measure(box, [(start.C, start.e)], np.ones(1), part, _ROOT_STEPS)
        self.lower = self._inside(box, part)

    @property
    def inner(self) -> float:
        """The radius on nodes: larger, because every node pays anew; together they pay about as much as the root."""
        return float(np.sqrt(self.radius**2 + 2.0 * np.log(10.0 + 0.1 * self.nodes)))

    @property
    def upper(self) -> float:
        """The bound so far."""
        return (self.paid + self.settled + max(self.open, 0.0)) * (1 + 1e-12) + 1e-300

    def grow(self, spent: Callable[[], bool], floor: float) -> None:
        """Split leaves until their shares add up to at most `floor`, nothing is left to split, or time is up."""
        while self.heap and self.open + self.settled > floor and not spent():
            batch: list[Node] = []
            size = sum(g.unit.size for layer in self.form.layers for g in layer.groups) + self.form.n_inputs
            most = max(1, min(_AT_ONCE, _NUMBERS // (2 * size * max(layer.width for layer in self.form.layers))))
            while self.heap and len(batch) < most:
                node = heapq.heappop(self.heap)[2]
                self.open -= node.value
                batch.append(node)
                if self.heap and -self.heap[0][0] < 1e-3 * batch[0].value:
                    break
            before = self.paid, self.settled, self.nodes
            try:
                self._split(batch)
            except OutOfTimeError:  # nothing was pushed yet: as if the batch had not been taken
                self.paid, self.settled, self.nodes = before
                for node in batch:
                    self._push(node)
                self.open = float(sum(-v for v, *_ in self.heap))
                raise
            if self.serial % 64 == 0:  # so that rounding of the running sum does not add up
                self.open = float(sum(-v for v, *_ in self.heap))
        self.open = float(sum(-v for v, *_ in self.heap))

    # -- one batch -----------------------------------------------------------------------------------------------

    def _split(self, batch: list[Node]) -> None:
        boxes: Intervals = []
        parents, sides, inner = [], [], self.inner
        for node in batch:
            for side in range(2):
                parents.append(node)
                sides.append(side)
        for k, layer in enumerate(self.form.layers):
            own = []
            for m in range(len(layer.groups)):
                low = np.array([p.box[k][m][0] for p in parents])
                up = np.array([p.box[k][m][1] for p in parents])
                for at, (p, side) in enumerate(zip(parents, sides, strict=True)):
                    assert p.split is not None
                    if p.split[:2] == (k, m):
                        if side == 0:
                            low[at, p.split[2]] = max(low[at, p.split[2]], 0.0)
                        else:
                            up[at, p.split[2]] = min(up[at, p.split[2]], 0.0)
                own.append((low, up))
            boxes.append(own)
        cons = [
            (np.vstack([p.C, p.sides[0][s][None]]), np.append(p.e, p.sides[1][s]))
            for p, s in zip(parents, sides, strict=True)
        ]
        most = max(len(e) for _, e in cons)
        C, e, count = _padded(cons, most, self.form.n_inputs)
        w, far = nearest(C, e, count)
        value = np.minimum(np.array([p.value for p in parents]), tail(far, self.gaussian))
        if self.gaussian and most > 1:
            value = np.minimum(value, one_factor_kernel(C, e, count, 0.125))
        beyond = far >= inner
        self.settled += float(value[beyond].sum())
        self.nodes += len(parents)
        go = np.flatnonzero(~beyond & (value > 0))
        if not len(go):
            return
        part = Part(inner, w[go], far[go])
        boxes = [[(low[go], up[go]) for low, up in own] for own in boxes]
        alive, cost = self._tighten(boxes, part)
        self.paid += cost
        keep = np.flatnonzero(alive)
        if len(keep):
            boxes = [[(low[keep], up[keep]) for low, up in own] for own in boxes]
            self._measure(boxes, [cons[i] for i in go[keep]], value[go[keep]], part.pick(keep), _ROW_STEPS)

    def _tighten(self, boxes: Intervals, part: Part) -> tuple[FloatArray, float]:
        """Intervals of each node from its own half-space, in place; which nodes are not empty, and what this costs."""
        n = len(part.far)
        alive, cost = np.ones(n, bool), 0.0
        for k, layer in enumerate(self.form.layers):
            doubt = np.zeros(layer.width, bool)
            for m, group in enumerate(layer.groups):
                low, up = boxes[k][m]
                doubt[group.unit[((low < 0) & (up > 0)).any(axis=0)]] = True
            units = np.flatnonzero(doubt)
            if not len(units):
                continue
            below, above = self.bounds.functions(k, units, boxes, part, _STEPS)
            place = np.full(layer.width, -1)
            place[units] = np.arange(len(units))
            for m, group in enumerate(layer.groups):
                mine = np.flatnonzero(place[group.unit] >= 0)
                at = place[group.unit[mine]]
                low, up = boxes[k][m]
                cost += self._adopt(low, up, mine, at, group.at[mine], below, above, part)
                alive &= ~(low > up).any(axis=1)
        return alive, cost

    def _adopt(
        self,
        low: FloatArray,
        up: FloatArray,
        mine: Index,
        at: Index,
        shift: FloatArray,
        below: Function,
        above: Function,
        part: Part,
    ) -> float:
        """Take over what is clearly tighter; the mass of the tails that this uses."""
        widen = 1e-10 * part.reach
        x0, X = below[1][:, at] - shift, below[0][:, at]
        new_low = part.least(X, x0)[0] - widen * np.sqrt(np.einsum("ntr,ntr->nt", X, X))
        y0, Y = above[1][:, at] + shift, above[0][:, at]  # below -h
        new_up = -(part.least(Y, y0)[0] - widen * np.sqrt(np.einsum("ntr,ntr->nt", Y, Y)))
        old_low, old_up = low[:, mine], up[:, mine]
        wide = (old_low < 0) & (old_up > 0)
        off, on = wide & (new_up <= 0), wide & (new_low >= 0) & (new_up > 0)
        next_low, next_up = np.maximum(old_low, new_low), np.minimum(old_up, new_up)
        cheap = wide & ~off & ~on & (next_up - next_low <= _ADOPT * (old_up - old_low))
        cost = 0.0
        if off.any():
            cost += float(tail(_both(part, -Y, -y0)[off], self.gaussian).sum())  # -h <= 0 is outside
        if on.any():
            cost += float(tail(_both(part, X, x0, outside=True)[on], self.gaussian).sum())
        sides = (cheap & (new_low > old_low)).sum() + (cheap & (new_up < old_up)).sum()
        cost += float(sides) * float(tail(part.reach, self.gaussian))
        low[:, mine] = np.where(on, 0.0, np.where(cheap, next_low, old_low))
        up[:, mine] = np.where(off, 0.0, np.where(cheap, next_up, old_up))
        return cost

    def _measure(
        self, boxes: Intervals, cons: list[tuple[FloatArray, FloatArray]], most: FloatArray, part: Part, steps: int
    ) -> None:
        """Shares of the event on nodes; those that can be split go on the heap."""
        form, n = self.form, len(most)
        last = len(form.layers) - 1
        G = np.broadcast_to(form.G, (n, *form.G.shape))
        error = self.bounds.row_error(form.G)
        X, x0, coefficients = self.bounds.lower(
            last, G, np.broadcast_to(form.g0 - error, (n, len(form.g0))), boxes, part, steps, nearest=True
        )
        row, bound = unit_rows(-X, x0)
        share = np.zeros((n, len(form.start) - 1))
        for case in range(share.shape[1]):
            rows = slice(form.start[case], form.start[case + 1])
            joined = [(np.vstack([c, row[i, rows]]), np.append(e, bound[i, rows])) for i, (c, e) in enumerate(cons)]
            C, e, count = _padded(joined, max(len(v) for _, v in joined), form.n_inputs)
            share[:, case] = tail(nearest(C, e, count)[1], self.gaussian)
            if self.gaussian and C.shape[1] > 1:
                share[:, case] = np.minimum(share[:, case], one_factor_kernel(C, e, count, 0.125))
        value = share.sum(axis=1) * (1 + 1e-12)
        value = np.where(np.isnan(value), most, np.minimum(value, most))  # overflow bounds nothing
        splits = self._choose(boxes, coefficients, share)
        sides = self._sides(splits, boxes, part)
        for i in range(n):
            if value[i] <= 0:
                continue
            box = [[(low[i], up[i]) for low, up in own] for own in boxes]
            if splits[i] is None:
                self.settled += float(value[i])
                continue
            self._push(Node(float(value[i]), box, *cons[i], splits[i], (sides[0][i], sides[1][i])))

    def _push(self, node: Node) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (-node.value, self.serial, node))
        self.open += node.value

    def _inside(self, box: Intervals, part: Part) -> float:
        """A lower bound: one case's rows have affine functions above them, which are negative with this probability."""
        form = self.form
        n_rows = len(form.g0)
        error = self.bounds.row_error(form.G)
        X, x0, _ = self.bounds.lower(
            len(form.layers) - 1, -form.G[None], (-form.g0 - error)[None], box, part, _ROOT_STEPS, nearest=True
        )
        rows_, t = unit_rows(X[0], x0[0])  # the row is surely negative where X x + x0 > 0
        t = np.where((rows_ != 0).any(axis=1), t, t * np.inf)
        fails = tail(t, self.gaussian) if n_rows else np.zeros(0)
        best = 0.0
        for case in range(len(form.start) - 1):
            rows = slice(form.start[case], form.start[case + 1])
            if self.gaussian and rows.stop - rows.start == 1:
                # The mass of one half-space is known from both sides, however small.
                held = (
                    float(tail(-t[rows], True)[0]) * (1 - 1e-10) - 1e-304
                    if np.isfinite(t[rows][0])
                    else float(t[rows][0] > 0)
                )
            else:
                held = 1.0 - float(fails[rows].sum()) * (1 + 1e-12) - 1e-15
            best = max(best, held)
        return max(0.0, best - self.paid * (1 + 1e-12))

    def _choose(
        self, boxes: Intervals, coefficients: list[list[FloatArray]], share: FloatArray
    ) -> list[tuple[int, int, int] | None]:
        """The ReLU of each node whose line costs its worst case most."""
        n = len(share)
        rows = self.form.start[share.argmax(axis=1)]
        found: list[tuple[int, int, int] | None] = [None] * n
        top = np.zeros(n)
        for k, own in enumerate(coefficients):
            for m, c in enumerate(own):
                if not c.shape[-1]:
                    continue
                low, up = boxes[k][m]
                wide = (low < 0) & (up > 0)
                cost = np.where(wide, -low * up / np.where(wide, up - low, 1.0), 0.0)
                mine = c[np.arange(n), rows]
                score = np.where(mine < 0, -mine, 0.5 * mine) * cost
                best = score.argmax(axis=1)
                value = score[np.arange(n), best]
                for i in np.flatnonzero(value > top):
                    top[i], found[i] = value[i], (k, m, int(best[i]))
        return found

    def _sides(
        self, splits: list[tuple[int, int, int] | None], boxes: Intervals, part: Part
    ) -> tuple[FloatArray, FloatArray]:
        """Half-spaces that hold where the chosen ReLU is on (first) and off (second), rows of length 1."""
        n, r = len(splits), self.form.n_inputs
        rows, bounds = np.zeros((n, 2, r)), np.full((n, 2), -np.inf)
        for k in range(len(self.form.layers)):
            nodes = [i for i, s in enumerate(splits) if s is not None and s[0] == k]
            if not nodes:
                continue
            chosen = [splits[i] for i in nodes]
            groups = self.form.layers[k].groups
            units = np.array([groups[s[1]].unit[s[2]] for s in chosen if s is not None])
            shift = np.array([groups[s[1]].at[s[2]] for s in chosen if s is not None])
            picked = [[(low[nodes], up[nodes]) for low, up in own] for own in boxes]
            below, above = self.bounds.functions(k, units, picked, part.pick(nodes), _ROW_STEPS, each=True)
            for side, ((X, x0), sign) in enumerate(((above, 1.0), (below, -1.0))):
                # On: -(h - at) <= 0, and so is what is below it. Off: h - at <= 0, and so is what is below that.
                rows[nodes, side], bounds[nodes, side] = unit_rows(-X[:, 0], x0[:, 0] + sign * shift)
        return rows, bounds


def _padded(cons: list[Function], most: int, r: int) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int64]]:
    C, e = np.zeros((len(cons), max(most, 1), r)), np.zeros((len(cons), max(most, 1)))
    count = np.zeros(len(cons), np.int64)
    for i, (rows, bounds) in enumerate(cons):
        count[i] = len(bounds)
        C[i, : len(bounds)], e[i, : len(bounds)] = rows, bounds
    return C, e, count


def _both(part: Part, X: FloatArray, x0: FloatArray, outside: bool = False) -> FloatArray:
    """The distance of `{w x >= far} and {X x + x0 >= 0}` (`<= 0` with `outside`) from the origin, rounded down."""
    if outside:
        X, x0 = -X, -x0
    size = np.maximum(np.sqrt(np.einsum("ntr,ntr->nt", X, X)), 1e-300)
    t = np.clip(-x0 / size, -1e6, 1e6)
    s = np.where(np.isfinite(part.far), part.far, -REACH)[:, None]
    rho = np.einsum("ntr,nr->nt", X, part.w) / size
    square = np.maximum(1.0 - rho**2, 1e-9)
    corner = np.sqrt(np.maximum((s * s + t * t - 2 * rho * s * t) / square, 0.0))
    meets = (np.maximum(s, t) > 0) & (rho * t < s) & (rho * s < t) & (1.0 - rho**2 > 1e-6)
    away = np.where(meets, corner, np.maximum(t, s))
    return away - 1e-9 * np.abs(away)
