"""Upper and lower bounds by cutting along the few directions that matter and keeping the rest Gaussian.

The gradient of a case's row often lies near a few directions, however many inputs there are. Along these the law is
cut into slabs of known mass. On a slab the units vary little: the rest of the input moves each of them by its own
small Gaussian, whose tails are paid as in `units`, and the linear bounds are tight. The slab with the widest bracket is
cut again, along the direction that makes its bounds loose. Slabs are disjoint, so bounds add up on both sides.

Every case has its own directions and its own search; upper bounds of cases add up, lower bounds do not.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import ndtri

from reluscope._check import FloatArray
from reluscope.measure.sound.distance import tail
from reluscope.measure.sound.frame import REACH
from reluscope.measure.sound.linear import Bounds, Intervals
from reluscope.measure.sound.means import Means, has_means
from reluscope.measure.sound.relu_form import ReluForm, product
from reluscope.measure.sound.roots import root
from reluscope.measure.sound.slab import Slab

_DIRECTIONS = 8
"""Directions that may be cut."""

_POINTS = 512
"""Points whose gradients choose the directions."""

_STEPS = 2
_ROW_STEPS = 5
_AT_ONCE = 32
_NUMBERS = 1 << 21
"""Numbers in the largest temporary of a batch."""

_PIECES = 4
"""Slabs between the far ends when a direction is first cut."""

_COST = 0.2
"""Tails are made to cost about this share of what a slab's bound is thought to become."""

_FLOOR = 1e-4
"""Slabs whose bound is below this share of the whole need not be cheaper."""

_MOST_NUMBERS = 1 << 21
"""Entries of the first layer above which directions are not looked for."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A slab: its ends, bounds of the event's mass in it, the mass of it all, and the direction to cut next."""

    held: npt.NDArray[np.bool_]
    low: FloatArray
    up: FloatArray
    value: float
    lower: float
    mass: float
    split: int
    wide: int
    """ReLUs whose sign was open in the slab that this one was cut from."""


@dataclass(eq=False)
class CaseSlices:
    """The search for one case: rows `G z + g0 <= 0` that hold together."""

    form: ReluForm
    sizes: list[FloatArray]
    paid: float
    cells: int = 0
    open: float = 1.0
    lower: float = 0.0
    heap: list[tuple[float, int, Cell]] = field(default_factory=list)
    settled: float = 0.0
    settled_lower: float = 0.0
    best: tuple[float, float] = (0.0, 1.0)
    """The best bounds so far: those of the parts may together be worse than that of the whole."""

    def __post_init__(self) -> None:
        self.bounds = Bounds(self.form)
        self.bounds.sizes = self.sizes
        self.Q = _directions(self.form)
        self.means = Means(self.form, self.bounds, self.Q) if has_means(self.form) else None
        self.units = sum(len(g.unit) for layer in self.form.layers for g in layer.groups)
        self.serial = 0
        k = self.Q.shape[1]
        self.open = self.lower = 0.0
        whole = Cell(np.zeros(k, bool), np.zeros(k), np.zeros(k), 1.0, 0.0, 1.0, 0, self.units)
        self._measure([whole], 1e-2)
        for _ in range(3):  # the right radius follows from the bound itself
            cell = self.heap[0][2] if self.heap else None
            self._note()
            if cell is None or cell.value > 0.5:
                break
            self.heap, self.open, self.lower = [], 0.0, 0.0
            self._measure([replace(cell, lower=0.0)], cell.value)
            if self.open > 0.3 * cell.value:
                break

        self._note()

    @property
    def upper(self) -> float:
        """The bound so far."""
        return (self.best[1] + self.paid) * (1 + 1e-12) + 1e-300

    def _note(self) -> None:
        self.open = float(sum(c.value for _, _, c in self.heap)) + self.settled
        self.lower = float(sum(c.lower for _, _, c in self.heap)) + self.settled_lower
        self.best = max(self.best[0], self.lower), min(self.best[1], self.open)

    def grow(self, spent: Callable[[], bool], goal: int, total: float) -> None:
        """Cut slabs until there are `goal` of them; `total` is the bound of the whole event so far."""
        size = self.units + self.form.n_inputs
        width = max(layer.width for layer in self.form.layers)
        most = max(1, min(_AT_ONCE, _NUMBERS // (2 * size * width)))
        while self.heap and self.cells < goal and not spent():
            batch: list[Cell] = []
            parts = 0
            while self.heap and parts < most:
                cell = heapq.heappop(self.heap)[2]
                self.open -= cell.value
                self.lower -= cell.lower
                batch += (children := self._cut(cell, total))
                parts += len(children)
                if self.heap and -self.heap[0][0] < 1e-3 * (cell.value - cell.lower):
                    break
            self._measure(batch, _FLOOR * total)
        self._note()

    # -- cutting -------------------------------------------------------------------------------------------------

    def _cut(self, cell: Cell, total: float) -> list[Cell]:
        j = cell.split
        if not cell.held[j]:
            far = float(np.clip(-ndtri(max(1e-5 * total, 1e-300)), 3.0, 36.0))
            ends = np.concatenate([[-np.inf], np.linspace(-far, far, _PIECES + 1), [np.inf]])
        elif np.isinf(cell.low[j]):
            ends = np.array([-np.inf, cell.up[j] - 1.0, cell.up[j]])
        elif np.isinf(cell.up[j]):
            ends = np.array([cell.low[j], cell.low[j] + 1.0, np.inf])
        else:
            ends = np.array([cell.low[j], 0.5 * (cell.low[j] + cell.up[j]), cell.up[j]])
        held = cell.held.copy()
        held[j] = True
        out = []
        for a, b in pairwise(ends):
            low, up = cell.low.copy(), cell.up.copy()
            low[j], up[j] = a, b
            out.append(Cell(held, low, up, cell.value, 0.0, cell.mass, j, cell.wide))
        return out

    def _measure(self, cells: list[Cell], goal: float) -> None:
        """Bounds of new cells; `goal` is what the tails of all cells together may cost."""
        self.cells += len(cells)
        held, low, up = (np.array([getattr(c, name) for c in cells]) for name in ("held", "low", "up"))
        before = np.array([c.value / c.mass for c in cells])
        slab = Slab(self.Q, held, low, up, np.ones(len(cells)))
        mass = slab.mass()
        value, lower = np.minimum(mass, [c.value for c in cells]), np.zeros(len(cells))
        split = np.array([c.split for c in cells])
        count = np.array([c.wide for c in cells])
        finite = np.flatnonzero(np.isfinite(low).all(axis=1) & np.isfinite(up).all(axis=1))
        if len(finite):
            wide = np.array([cells[i].wide for i in finite])
            share = np.minimum(_COST * np.maximum(0.5 * before[finite] ** 1.5, goal) / (2 * wide + 1), 0.02)
            reach = np.clip(-ndtri(np.maximum(share, 1e-300)), 2.0, 36.0)
            part = replace(slab.pick(finite), reach=reach)
            above, below, cut, open_ = self._bounds(part)
            value[finite] = np.minimum(value[finite], mass[finite] * above[1] + above[0])
            lower[finite] = mass[finite] * (1 - 1e-9) * below
            split[finite] = cut
            count[finite] = open_
        for i, cell in enumerate(cells):
            if value[i] <= 0:
                continue
            made = replace(
                cell, value=float(value[i]), lower=float(lower[i]), mass=float(mass[i]), split=int(split[i]),
                wide=int(count[i]),
            )  # fmt: skip
            if split[i] < 0:
                self.settled += made.value
                self.settled_lower += made.lower
            else:
                self.serial += 1
                heapq.heappush(self.heap, (-(made.value - made.lower), self.serial, made))
            self.open += made.value
            self.lower += made.lower

    def _bounds(
        self, slab: Slab
    ) -> tuple[tuple[FloatArray, FloatArray], FloatArray, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Per node: a bound off the tails, and their share; a share from below; the direction to cut; open signs."""
        form, n = self.form, slab.nodes
        box, paid, spans = self._intervals(slab)
        last = len(form.layers) - 1
        error = self.bounds.row_error(form.G)
        G = np.broadcast_to(form.G, (n, *form.G.shape))
        X, x0, coefficients = self.bounds.lower(
            last, G, np.broadcast_to(form.g0 - error, (n, len(form.g0))), box, slab, _ROW_STEPS, nearest=True
        )
        shares = slab.below(X, x0)
        worst = shares.argmin(axis=1)
        upper = shares[np.arange(n), worst]
        cut = self._choose(slab, box, spans, coefficients, X, worst)
        if self.means is not None:
            known, score = self.means.shares(slab, box)
            least_known = known.min(axis=1)
            cut = np.where(least_known < upper, score.argmax(axis=1), cut)
            upper = np.minimum(upper, least_known)
        lower = np.zeros(n)
        some = np.flatnonzero(upper > 0.02 * slab.mass())
        if len(some):
            picked = [[(a[some], b[some]) for a, b in own] for own in box]
            part = slab.pick(some)
            Y, y0, _ = self.bounds.lower(
                last, -G[some], np.broadcast_to(-form.g0 - error, (len(some), len(form.g0))), picked, part, _ROW_STEPS,
                nearest=False,
            )  # fmt: skip
            least, rest = part.worst(Y, y0)
            away = np.minimum(least / np.maximum(rest, 1e-300), REACH)
            fails = np.where(least > 0, tail(away, True), 1.0).sum(axis=1)
            if self.means is not None:
                known = self.means.shares(part, picked, -1.0)[0] / part.mass()[:, None]
                fails = np.minimum(fails, known.sum(axis=1) * (1 + 1e-9))
            lower[some] = np.maximum(0.0, 1.0 - fails * (1 + 1e-12) - paid[some] - 1e-14)
        wide = sum(((low < 0) & (up > 0)).sum(axis=1) for own in box for low, up in own)
        return (upper, paid), lower, cut, np.asarray(wide)

    def _intervals(self, slab: Slab) -> tuple[Intervals, FloatArray, list[tuple[FloatArray, FloatArray]]]:
        """Intervals of every ReLU per node, what their tails cost, and how far each direction moves each unit."""
        n = slab.nodes
        box: Intervals = []
        paid = np.zeros(n)
        spans = []
        reach = slab.reach[:, None] * (1 + 1e-10)
        for k, layer in enumerate(self.form.layers):
            below, above = self.bounds.functions(k, np.arange(layer.width), box, slab, _STEPS)
            low, low_rest = slab.worst(*below)
            high, up_rest = slab.worst(*above)
            high = -high
            along = np.abs(below[0] @ self.Q)
            spans.append((along, low_rest))
            own = []
            for group in layer.groups:
                u = group.unit
                a, b = low[:, u] - group.at, high[:, u] - group.at
                ends = a - reach * low_rest[:, u], b + reach * up_rest[:, u]
                on, off = ends[0] >= 0, ends[1] <= 0
                wide = ~on & ~off
                # A function without a rest is what it is: it has no tail.
                some, more = np.maximum(low_rest[:, u], 1e-300), np.maximum(up_rest[:, u], 1e-300)
                cost = np.where(on & (low_rest[:, u] > 0), tail(np.minimum(a / some, REACH), True), 0.0)
                cost += np.where(off & ~on & (up_rest[:, u] > 0), tail(np.minimum(-b / more, REACH), True), 0.0)
                cost += np.where(wide, 2 * tail(slab.reach, True)[:, None], 0.0)
                paid += cost.sum(axis=1)
                own.append((np.where(on, np.maximum(ends[0], 0.0), ends[0]), np.where(off, 0.0, ends[1])))
            box.append(own)
        return box, paid * (1 + 1e-12), spans

    def _choose(
        self,
        slab: Slab,
        box: Intervals,
        spans: list[tuple[FloatArray, FloatArray]],
        coefficients: list[list[FloatArray]],
        X: FloatArray,
        worst: npt.NDArray[np.intp],
    ) -> npt.NDArray[np.intp]:
        """The direction that makes the bounds of each node loosest."""
        n = slab.nodes
        at = np.arange(n)
        half = np.where(slab.held, 0.5 * (slab.up - slab.low), 0.0)
        score = 0.05 * np.abs(X[at, worst] @ self.Q) * half
        for k, own in enumerate(coefficients):
            along, rest = spans[k]
            for m, c in enumerate(own):
                if not c.shape[-1]:
                    continue
                low, up = box[k][m]
                wide = (low < 0) & (up > 0)
                gap = np.where(wide, -low * up / np.where(wide, up - low, 1.0), 0.0)
                mine = c[at, worst]
                cost = np.where(mine < 0, -mine, 0.5 * mine) * gap
                u = self.form.layers[k].groups[m].unit
                own_along, own_rest = along[:, u], rest[:, u][..., None]
                held = own_along * half[:, None, :]
                left = np.sqrt(np.maximum(own_rest**2 - own_along**2, 0.0))
                free = slab.reach[:, None, None] * (own_rest - left)
                moves = np.where(slab.held[:, None, :], held, free)
                total = held.sum(axis=2) + slab.reach[:, None] * own_rest[..., 0]
                score += np.einsum("nu,nuk->nk", cost / np.maximum(total, 1e-300), moves)
        return score.argmax(axis=1)


@dataclass(eq=False)
class SliceSearch:
    """All cases of the event under one Gaussian component."""

    weight: float
    form: ReluForm
    cases: list[CaseSlices] = field(default_factory=list)
    scanned: bool = False
    exhausted: bool = False

    @property
    def nodes(self) -> int:
        """Slabs looked at."""
        return sum(c.cells for c in self.cases)

    @property
    def upper(self) -> float:
        """The bound from above so far."""
        return min(1.0, sum(c.upper for c in self.cases) * (1 + 1e-12)) if self.scanned else 1.0

    @property
    def lower(self) -> float:
        """The bound from below so far: that of one case."""
        return max(0.0, max(c.best[0] for c in self.cases) * (1 - 1e-9)) if self.scanned else 0.0

    def scan(self, spent: Callable[[], bool]) -> None:
        """A first bound of every case; goes on where it was stopped."""
        small, bounds, paid = self._root
        while (k := len(self.cases)) < len(small.start) - 1:
            if spent():
                return
            rows = slice(int(small.start[k]), int(small.start[k + 1]))
            own = replace(
                small, G=small.G[rows], g0=small.g0[rows], g_error=small.g_error[rows],
                start=np.array([0, rows.stop - rows.start]),
            )  # fmt: skip
            self.cases.append(CaseSlices(own, bounds.sizes, paid))
        self.scanned = True

    @cached_property
    def _root(self) -> tuple[ReluForm, Bounds, float]:
        small, bounds, _, paid = root(self.form, 0.99 * REACH, True)
        return small, bounds, paid

    def work(self, spent: Callable[[], bool]) -> None:
        """Cut the slabs of the case for which a slab is thought to bring most."""
        case = max(self.cases, key=lambda c: (c.open - c.lower) / c.cells if c.heap else 0.0)
        if not case.heap:
            self.exhausted = True
            return
        case.grow(spent, max(case.cells + 64, int(1.25 * case.cells)), self.upper)


def can_slice(form: ReluForm) -> bool:
    """Whether directions can be found and used at a bearable cost."""
    W = form.layers[0].W
    return W.shape[0] * min(W.shape) <= _MOST_NUMBERS and not any(sparse.issparse(la.W) for la in form.layers)


def _directions(form: ReluForm) -> FloatArray:
    """Orthonormal directions (r, k) along which the rows vary most, near the mean and near where they reach 0."""
    r = form.n_inputs
    x = np.random.default_rng(0).standard_normal((_POINTS, r))
    value, gradient = _gradients(form, x)
    M = np.zeros((r, r))
    for t in range(gradient.shape[1]):
        g = gradient[:, t]
        size = np.maximum((g * g).sum(axis=1), 1e-300)
        step = np.clip(value[:, t] / size, 0.0, 8.0 / np.sqrt(size))
        near = _gradients(form, x - step[:, None] * g)[1][:, t]
        both = np.concatenate([g, near])
        M += both.T @ both / max(float((both * both).sum()), 1e-300)
    w, V = np.linalg.eigh(M)
    keep = np.flatnonzero(w > 1e-6 * max(w[-1], 1e-300))[::-1][:_DIRECTIONS]
    Q = V[:, keep if len(keep) else [-1]]
    return np.linalg.qr(Q)[0]


def _gradients(form: ReluForm, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Values (points, rows) of the rows and their gradients (points, rows, r)."""
    z, slopes = x, []
    for layer in form.layers:
        h = product(z, layer.W.T) + layer.b
        z, slope = h * layer.slope + layer.intercept, np.broadcast_to(layer.slope, h.shape).copy()
        for group in layer.groups:
            on = h[:, group.unit] > group.at
            z[:, group.unit] += group.step * np.where(on, h[:, group.unit] - group.at, 0.0)
            slope[:, group.unit] += group.step * on
        slopes.append(slope)
    value = z @ form.G.T + form.g0
    g = np.broadcast_to(form.G, (len(x), *form.G.shape))
    for layer, slope in zip(form.layers[::-1], slopes[::-1], strict=True):
        g = product(g * slope[:, None, :], layer.W)
    return value, g
