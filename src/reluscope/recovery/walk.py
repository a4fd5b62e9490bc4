"""`method="regions"`: walk from region to region of a black box, by queries alone.

In a region with the linear model `g` known around a point x0, start from the whole box. At every vertex of the current
polytope ask whether the function equals g. Where it does not, the region ends somewhere on the way from x0: bisect to
its end, measure the map g' beyond it, and cut the polytope by the plane where g and g' agree. When all vertices agree
the region is done; the walk goes on through its facets, until every facet leads to a known region and uniform points
find no gap.

A region may be cut too little: another one reaches in between its vertices. So every place where the walk would go on,
and in the end uniform points and points around all vertices, are compared with what is known there. A place that
disagrees is a witness: the region that holds it is cut further on the way there, and the walk goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.answer import Status, Stop
from reluscope.budget import Budget
from reluscope.recovery.oracle import QueryLimitError
from reluscope.recovery.surrogate import Surrogate
from reluscope.recovery.view import View

MOST_INPUTS = 6
_BISECTIONS = 34
_INSIDE, _ON_FACET = 12, 6
"""Random places inside a region and on each facet where it is checked, beside its vertices."""
_AROUND, _MOST_CORNERS = 8, 1000
"""Places around each vertex at either of two distances that must agree, and the most vertices that are looked at."""
_GAPS = 2000
"""Uniform points that must all lie in known regions before the walk ends."""


@dataclass(frozen=True, eq=False)
class Walk:
    """What the walk found: the surrogate in the box's own coordinates, how it ended, and what it could not resolve."""

    surrogate: Surrogate
    covered: float
    unresolved: int
    stopped: str | None
    walker: Any

    def again(
        self, X: FloatArray, rng: np.random.Generator, budget: Budget, report: Callable[[int, str], None]
    ) -> Walk:
        """The walk taken up where points `X` of the box disagree with what was found."""
        view = self.walker.view
        return _go(self.walker, list((X - view.centre) / view.half), rng, budget, report)


@dataclass(frozen=True, eq=False)
class _Region:
    A: FloatArray
    b: FloatArray
    C: FloatArray
    d: FloatArray
    x: FloatArray
    vertices: FloatArray

    def holds(self, U: FloatArray, slack: float) -> bool:
        return bool((self.b + slack >= self.A @ U).all())


def walk_regions(view: View, rng: np.random.Generator, budget: Budget, report: Callable[[int, str], None]) -> Walk:
    """Discover the regions until none is left or a limit is reached."""
    return _go(_Walker(view, rng), [rng.uniform(-0.5, 0.5, view.n)], rng, budget, report)


def _go(
    walker: _Walker,
    start: list[FloatArray],
    rng: np.random.Generator,
    budget: Budget,
    report: Callable[[int, str], None],
) -> Walk:
    view = walker.view
    stopped = None
    try:
        seeds = deque(start)
        while stopped is None:
            while seeds and stopped is None:
                x = seeds.popleft()
                if walker.known(x):
                    region = walker.cut_back(x)
                    if region is None:
                        continue
                else:
                    region = walker.explore(x)
                if region is not None:
                    walker.add(region)
                    seeds.extend(walker.beyond(region))
                report(len(walker.regions), f"{len(walker.regions):,} regions, {view.oracle.queries:,} queries")
                stopped = budget.spent(len(walker.regions))
            if stopped is None:
                points = view.draw(_GAPS, rng)
                open_ = [u for u in points if not walker.known(u)][:20]
                open_ += list(walker.disagreeing(np.concatenate([points, walker.around_vertices()]))[:50])
                if not open_ or walker.unresolved > 50 + len(walker.regions):
                    break
                seeds.extend(open_)
    except QueryLimitError as error:
        stopped = Stop(str(error), Status.BUDGET)
    regions = walker.regions
    probes = view.draw(_GAPS, rng)
    covered = float(np.mean([walker.known(u) for u in probes])) if regions else 0.0
    return Walk(_surrogate(view, regions), covered, walker.unresolved, stopped, walker)


class _Walker:
    """The regions known so far and the queries that find more."""

    def __init__(self, view: View, rng: np.random.Generator) -> None:
        self.view, self.rng = view, rng
        self.regions: list[_Region] = []
        self.unresolved = 0
        self.agree = max(1e-9 * view.scale, 200 * view.noise)
        self.box = (np.concatenate([-np.eye(view.n), np.eye(view.n)]), np.ones(2 * view.n))
        self._A, self._b, self._start = np.zeros((0, view.n)), np.zeros(0), np.zeros(0, dtype=np.intp)

    def known(self, x: FloatArray) -> bool:
        if not self.regions:
            return False
        slack = self._b - self._A @ x
        return bool(np.minimum.reduceat(slack, self._start).max() > -1e-9)

    def add(self, region: _Region) -> None:
        self.regions.append(region)
        self._start = np.append(self._start, len(self._b))
        self._A, self._b = np.concatenate([self._A, region.A]), np.concatenate([self._b, region.b])

    def remove(self, k: int) -> None:
        left = self.regions[:k] + self.regions[k + 1 :]
        self.regions = []
        self._A, self._b, self._start = np.zeros((0, self.view.n)), np.zeros(0), np.zeros(0, dtype=np.intp)
        if left:
            self.regions = left
            self._A, self._b = np.concatenate([c.A for c in left]), np.concatenate([c.b for c in left])
            self._start = np.concatenate([[0], np.cumsum([len(c.b) for c in left])[:-1]]).astype(np.intp)

    def _deepest(self, X: FloatArray) -> tuple[npt.NDArray[np.intp], FloatArray]:
        """The region that each point lies deepest in, and how deep."""
        least = np.minimum.reduceat(self._b - X @ self._A.T, self._start, axis=1)
        best = least.argmax(axis=1)
        return best, least[np.arange(len(X)), best]

    def disagreeing(self, X: FloatArray) -> FloatArray:
        """Points of known regions where the function is not what the region says."""
        if not self.regions or not len(X):
            return X[:0]
        best, depth = self._deepest(X)
        inside = np.flatnonzero(depth > 1e-9)
        best, X = best[inside], X[inside]
        C, d = np.stack([c.C for c in self.regions])[best], np.stack([c.d for c in self.regions])[best]
        gap = np.abs(self.view.outputs(X) - np.einsum("koi,ki->ko", C, X) - d).max(axis=1)
        return X[gap > 2 * self._allowed()]

    def around_vertices(self) -> FloatArray:
        """Points close to vertices, in random directions.

        Where a region is cut too little, the bends that were missed end at its facets, in vertices of its neighbours;
        close to those they take up a share of all directions, however small they are.
        """
        corners = np.concatenate([c.vertices for c in self.regions]) if self.regions else np.zeros((0, self.view.n))
        corners = corners[np.unique(np.round(corners, 6), axis=0, return_index=True)[1]]
        if len(corners) > _MOST_CORNERS:
            corners = corners[self.rng.choice(len(corners), _MOST_CORNERS, replace=False)]
        step = self.rng.normal(size=(2 * _AROUND, len(corners), self.view.n))
        step /= np.linalg.norm(step, axis=2, keepdims=True)
        step[:_AROUND] *= 1e-2
        step[_AROUND:] *= 1e-3
        near = (corners + step).reshape(-1, self.view.n)
        return near[np.abs(near).max(axis=1) < 1]

    def cut_back(self, x: FloatArray) -> _Region | None:
        """A known place looked at: None if it is as its region says, else the region, cut between there and here."""
        if not len(self.disagreeing(x[None])):
            return None
        k = int(self._deepest(x[None])[0][0])
        region = self.regions[k]
        self.remove(k)
        if np.abs(region.x - x).max() < 1e-12:  # the region's own middle: what it says was never true
            return None
        return self.explore(region.x, region, x)

    def _allowed(self) -> float:
        slope = self.view.noise / 1e-3 if not self.view.oracle.has_gradient else self.view.noise
        return self.agree + 50 * slope

    def beyond(self, region: _Region) -> list[FloatArray]:
        """Points just across the facets: at the middle of each and near its corners."""
        seeds = []
        for a, b in zip(region.A, region.b, strict=True):
            on = region.vertices[np.abs(region.vertices @ a - b) < 1e-8]
            if len(on) < self.view.n:
                continue
            middle = on.mean(axis=0)
            places = [middle, *(0.9 * v + 0.1 * middle for v in on[: 2 * self.view.n])]
            seeds += [p + 1e-5 * a for p in places if np.abs(p + 1e-5 * a).max() < 1]
        return seeds

    def model(self, x: FloatArray, most: float = 1e-3) -> tuple[FloatArray, FloatArray] | None:
        """The affine map around x: `C` (outputs, inputs) and `d`; None if even a tiny stencil is not affine."""
        n = self.view.n
        if self.view.oracle.has_gradient:
            Y, G = self.view.oracle.both((self.view.centre + self.view.half * x)[None])
            C = G[0] * self.view.half
            return C, Y[0] - C @ x
        for step in (most, 0.05 * most, 2.5e-3 * most, 1.25e-4 * most):
            if step * self.view.scale < 30 * self.view.noise:
                break
            signed = np.where(x > 0, -step, step)
            corner = x + signed * self.rng.uniform(0.3, 1.0, n) / np.sqrt(n)
            Y = self.view.outputs(np.concatenate([x[None], x + np.diag(signed), corner[None]]))
            C = ((Y[1:-1] - Y[0]) / signed[:, None]).T
            if np.abs(Y[0] + C @ (corner - x) - Y[-1]).max() <= 10 * self.view.noise:
                return C, Y[0] - C @ x
        return None

    def explore(self, x: FloatArray, known: _Region | None = None, witness: FloatArray | None = None) -> _Region | None:
        """The region around x; or what is `known` of it, cut further because it does not hold at a `witness`."""
        here = self.model(x) if known is None else (known.C, known.d)
        if here is None:
            self.unresolved += 1
            return None
        C, d = here
        allowed = self._allowed()
        A, b = self.box if known is None else (known.A, known.b)
        asked: dict[bytes, bool] = {}
        if witness is not None:
            plane = self._end(x, witness, C, d, allowed)
            if plane is None:
                self.unresolved += 1
                return None
            A, b = np.concatenate([A, plane[0][None]]), np.append(b, plane[1])
        for _ in range(200):
            corners = _vertices(A, b)
            if corners is None:
                self.unresolved += 1
                return None
            fresh = [v for v in corners if np.round(v, 9).tobytes() not in asked]
            if fresh:
                new = np.array(fresh)
                wrong = np.abs(self.view.outputs(np.clip(new, -1, 1)) - (new @ C.T + d)).max(axis=1) > allowed
                asked |= {np.round(v, 9).tobytes(): not w for v, w in zip(new, wrong.tolist(), strict=True)}
            bad = [v for v in corners if not asked[np.round(v, 9).tobytes()]]
            if not bad:  # something may still poke in between the vertices: look at places on the facets and inside
                places = self._spread(corners, A, b)
                wrong = np.abs(self.view.outputs(places) - (places @ C.T + d)).max(axis=1) > allowed
                bad = list(places[wrong])
            if not bad:
                keep = [i for i in range(len(b)) if (np.abs(corners @ A[i] - b[i]) < 1e-8).sum() >= self.view.n]
                return _Region(A[keep], b[keep], C, d, x, corners)
            target = bad[int(self.rng.integers(len(bad)))]
            plane = self._end(x, target, C, d, allowed)
            if plane is None:
                self.unresolved += 1
                return None
            A, b = np.concatenate([A, plane[0][None]]), np.append(b, plane[1])
        self.unresolved += 1
        return None

    def _spread(self, corners: FloatArray, A: FloatArray, b: FloatArray) -> FloatArray:
        """Random points of every facet and of the inside of a polytope."""
        places = [self.rng.dirichlet(np.ones(len(corners)), _INSIDE) @ corners]
        for i in range(len(b)):
            on = corners[np.abs(corners @ A[i] - b[i]) < 1e-8]
            if len(on) >= self.view.n > 1:
                places.append(self.rng.dirichlet(np.ones(len(on)), _ON_FACET) @ on)
        return np.clip(np.concatenate(places), -1, 1)

    def _end(
        self, x: FloatArray, target: FloatArray, C: FloatArray, d: FloatArray, allowed: float
    ) -> tuple[FloatArray, float] | None:
        """The plane where the region around x ends on the way to `target`, as (a, b) with a.x <= b."""
        way = target - x
        low, high = 0.0, 1.0
        # Several places at once: three bisection steps per round.
        for _ in range(_BISECTIONS // 3):
            t = low + (high - low) * np.arange(1, 8) / 8
            rows = x + t[:, None] * way
            wrong = np.abs(self.view.outputs(rows) - (rows @ C.T + d)).max(axis=1) > allowed
            first = int(np.argmax(wrong)) if wrong.any() else 7
            low, high = (t[first - 1] if first else low), (t[first] if first < 7 else high)
            if (high - low) * np.linalg.norm(way) < 1e-7:
                break
        length = max(float(np.linalg.norm(way)), 1e-300)
        for further in (3e-4, 3e-5, 3e-6):
            y = np.clip(x + (high + further / length) * way, -1, 1)
            other = self.model(y, most=min(1e-3, 0.3 * further))
            if other is None:
                continue
            a = self.view.mix @ (other[0] - C)
            size = float(np.linalg.norm(a))
            if size <= 1e-9 * self.view.scale:
                continue
            a, b = a / size, float(self.view.mix @ (d - other[1])) / size
            if a @ x > b:
                a, b = -a, -b
            if abs(a @ (x + high * way) - b) < 2e-6 + 0.05 * further and b - a @ x > 1e-9:
                return a, b
        return None


def _vertices(A: FloatArray, b: FloatArray) -> FloatArray | None:
    """Vertices of `A x <= b`, a bounded polytope; None if it has no interior worth the name."""
    linprog = late("scipy.optimize", "linprog")
    HalfspaceIntersection, QhullError = late("scipy.spatial", "HalfspaceIntersection", "QhullError")

    n = A.shape[1]
    if n == 1:
        low = max(b[i] / A[i, 0] for i in range(len(b)) if A[i, 0] < 0)
        high = min(b[i] / A[i, 0] for i in range(len(b)) if A[i, 0] > 0)
        return np.array([[low], [high]]) if high - low > 1e-10 else None
    centre = linprog(
        np.append(np.zeros(n), -1.0), A_ub=np.column_stack([A, np.ones(len(b))]), b_ub=b, bounds=(None, None)
    )
    if not centre.success or centre.x[-1] < 1e-9:
        return None
    try:
        found = HalfspaceIntersection(np.column_stack([A, -b]), centre.x[:-1]).intersections
    except QhullError:
        return None
    return np.asarray(found[np.unique(np.round(found, 10), axis=0, return_index=True)[1]])


def _surrogate(view: View, regions: list[_Region]) -> Surrogate:
    """The regions in the box's own coordinates: u = (x - centre) / half."""
    n, m = view.n, view.oracle.n_outputs
    if not regions:
        none = np.zeros((0, n))
        lower, upper = view.centre - view.half, view.centre + view.half
        return Surrogate(
            lower, upper, none, np.zeros(0), np.zeros(1, np.intp), np.zeros((0, m, n)), np.zeros((0, m)), none
        )
    A = np.concatenate([c.A for c in regions]) / view.half
    b = np.concatenate([c.b for c in regions]) + A @ view.centre
    size = np.linalg.norm(A, axis=1)
    C = np.stack([c.C for c in regions]) / view.half
    d = np.stack([c.d for c in regions]) - C @ view.centre
    inside = np.stack([c.vertices.mean(axis=0) for c in regions])
    start = np.concatenate([[0], np.cumsum([len(c.b) for c in regions])]).astype(np.intp)
    return Surrogate(
        view.centre - view.half,
        view.centre + view.half,
        A / size[:, None],
        b / size,
        start,
        C,
        d,
        view.centre + view.half * inside,
    )
