"""The point of an event nearest to the origin of standard coordinates: search by exact steps, proof by enumeration.

Inside one cell and one case the event is a polytope and the nearest point is a small quadratic program,

    min |u|^2   over   A u <= b,

solved as a non-negative least-squares problem (Lawson and Hanson's least-distance programming). The search starts from
draws inside the event (wider and wider ones), or from points pulled towards it, and steps from cell to cell
through the facets that hold the point back. The proof walks all cells nearer than the best point so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.answers._event_cells import BoolArray, Walk
from reluscope.budget import Budget
from reluscope.cells.domain import cell_with_vertices
from reluscope.cells.split import Geometry
from reluscope.errors import InputError
from reluscope.inputs import FAR
from reluscope.pace import charge

if TYPE_CHECKING:
    from reluscope.events import Event, PlacedEvent
    from reluscope.inputs import Component, Law
    from reluscope.network import Network

MOST_PROOF_DIMENSIONS = 6
"""Up to here cells carry their vertices and the nearest point is proved by enumeration, if the budget allows."""

_SCALES = (1.0, 2.0, 4.0)
_DRAWS = 4096
_STARTS = 12
_PULLS = 15
_NEAREST, _NEAREST_NUMBER = 1e-4, 6e-8
"""Seconds of a nearest point, and of each number of its problem, by formula (`reluscope.pace`)."""
_INWARDS = (1e-9, 1e-6, 1.0)
"""How far from the nearest point of a cell towards its middle witnesses are tried."""
_INSIDE = 1e-9
"""Share of the numbers in a row by which points are kept inside of it, so that rounding leaves them inside."""


_FARTHEST = 1e150
"""Distances beyond this are too large to be squared."""


@dataclass(frozen=True, eq=False)
class Found:
    """A point of the event: component, coordinates `u`, and its distance from the origin."""

    component: int
    u: FloatArray
    distance: float


def nearest_in_polytope(A: FloatArray, b: FloatArray, centre: FloatArray | None = None) -> FloatArray | None:
    """The point of `A u <= b` nearest to `centre` (the origin), None when there is none. Rows need not be scaled."""
    nnls = late("scipy.optimize", "nnls")

    with np.errstate(over="ignore", invalid="ignore"):
        # In units of each row's largest entry first: squares of extreme numbers over- or underflow.
        size = np.abs(A).max(axis=1, initial=0.0)
        shift = b if centre is None else b - A @ centre
        if (shift[size == 0] < 0).any():
            return None
        rows, bound = A[size > 0] / size[size > 0, None], shift[size > 0] / size[size > 0]
        norm = np.linalg.norm(rows, axis=1)
        rows, bound = rows / norm[:, None], bound / norm
    if not (np.isfinite(rows).all() and np.isfinite(bound).all()):  # overflow: nothing to be found this way
        return None
    scale = max(1.0, float(np.abs(bound[bound < 0]).max(initial=0.0)))
    if (bound >= 0).all():
        u = np.zeros(A.shape[1])
    else:
        # min |u|  s.t.  -rows u >= -bound: the dual is a non-negative least-squares problem.
        E = np.concatenate([-rows.T, -bound[None] / scale])
        target = np.zeros(len(E))
        target[-1] = 1.0
        charge(_NEAREST + _NEAREST_NUMBER * E.size)
        try:
            y, _ = nnls(E, target)
        except RuntimeError:  # too many iterations: treated as nothing found
            return None
        rest = E @ y - target
        if not rest[-1] < -1e-14:
            return None
        u = -scale * rest[:-1] / rest[-1]
        if (rows @ u > bound + 1e-9 * scale).any():
            return None
    return u if centre is None else u + centre


def nearest_in_hull(points: FloatArray) -> FloatArray:
    """The point of the convex hull of `points` (k, d) nearest to the origin."""
    nnls = late("scipy.optimize", "nnls")

    size = max(float(np.abs(points).max()), 1e-300)
    # With weights s * w, sum w = 1, the least squares below are s^2 |p|^2 + (1 - s)^2: least where |p| is.
    E = np.concatenate([points.T / size, np.ones((1, len(points)))])
    target = np.zeros(len(E))
    target[-1] = 1.0
    weights, _ = nnls(E, target)
    return np.asarray(weights @ points / weights.sum())


class Search:
    """Points of the event in one component's coordinates."""

    def __init__(self, component: Component, event: PlacedEvent, rng: np.random.Generator) -> None:
        self.component, self.event, self.rng = component, event, rng
        self.net = component.network
        size: FloatArray = np.linalg.norm(event.G, axis=1) + np.abs(event.F).sum(axis=1)
        self.scales = np.where(size > 0, size, 1.0)
        A, b = component.inequalities()
        self.limits = (A[:, : component.r], b) if component.r else (np.zeros((0, 1)), np.zeros(0))

    @np.errstate(over="ignore", invalid="ignore")  # rows that are not finite lead nowhere, and are passed over
    def run(self, budget: Budget, wanted: int) -> list[FloatArray]:
        """Points inside the event, each the nearest of its cell after descent, nearest first."""
        found: list[FloatArray] = []
        for u in self._starts(max(wanted, _STARTS), budget):
            here = self._descended(u, budget)
            if here is not None:
                found.append(here)
            if budget.spent() is not None or (wanted == 1 and here is not None and not here.any()):
                break  # nothing is nearer than the mean
        return sorted(found, key=lambda u: float(u @ u))

    # -- where to start --

    def _draw(self, scale: float, n: int) -> FloatArray:
        U = scale * self.rng.standard_normal((n, self.net.n_inputs))
        if len(self.limits[1]):
            law_draws = self._inside_draws(n)
            return law_draws if law_draws is not None else U
        return U

    def _inside_draws(self, n: int) -> FloatArray | None:
        c = self.component
        if c.lower is None or c.upper is None:
            return None
        low, high = np.maximum(c.lower, -8.0), np.minimum(c.upper, 8.0)
        low, high = np.where(c.lower > 8.0, c.lower, low), np.where(c.upper < -8.0, c.upper, high)
        return low + self.rng.random((n, len(low))) * np.maximum(high - low, 0.0)

    def _starts(self, wanted: int, budget: Budget) -> list[FloatArray]:
        close: list[tuple[float, FloatArray]] = []
        inside: list[FloatArray] = []
        for scale in _SCALES:
            U = self._draw(scale, _DRAWS)
            excess = self._excess(U)
            inside.append(U[excess <= 0])
            best = np.argsort(excess)[:wanted]
            close += [(float(excess[i]), U[i]) for i in best]
            if sum(map(len, inside)) >= 4 * wanted or budget.spent() is not None:
                break
        hits = np.concatenate(inside)
        middle = self._middle()
        first = [middle] if self._excess(middle[None])[0] <= 0 else []
        if len(hits):
            order = np.argsort(np.einsum("ij,ij->i", hits, hits), kind="stable")
            # The nearest ones, and some further out: events have several parts.
            spread = order[:: max(1, len(order) // wanted)]
            return first + [hits[i] for i in dict.fromkeys([*order[:wanted].tolist(), *spread.tolist()])]
        close.sort(key=lambda pair: pair[0])
        pulled = first
        for k, (_, u) in enumerate(close[: 2 * wanted]):
            if k and budget.spent() is not None:
                break
            there = self._pulled(u, budget)
            pulled += [] if there is None else [there]
        return pulled

    def _middle(self) -> FloatArray:
        """The mean, or the place in the component's box that is nearest to it."""
        c, mean = self.component, np.zeros(self.net.n_inputs)
        return mean if c.lower is None or c.upper is None else np.clip(mean, c.lower, c.upper)

    def _excess(self, U: FloatArray) -> FloatArray:
        """How far outside of the event (and of the law's own limits) each point is: worst row of the best case."""
        event = self.event
        if event.everything:
            return np.zeros(len(U))
        f = event.features(self.net.pattern(U)) if event.event.features else np.zeros((len(U), 0))
        left = (self.net(U) @ event.G.T + f @ event.F.T - event.g) / self.scales
        best: FloatArray = np.maximum.reduceat(left, event.start[:-1], axis=1).min(axis=1)
        best = np.where(np.isnan(best), np.inf, best)
        if len(self.limits[1]):
            best = np.maximum(best, (U[:, : self.limits[0].shape[1]] @ self.limits[0].T - self.limits[1]).max(axis=1))
        return best

    def _pulled(self, u: FloatArray, budget: Budget) -> FloatArray | None:
        """Step after step to the nearest point of the event as the current cell's affine map sees it."""
        for k in range(_PULLS):
            if k and budget.spent() is not None:
                return None
            pattern = self.net.pattern(u)
            C, d = (a[0] for a in self.net.output_maps(pattern[None]))
            best: FloatArray | None = None
            for case in self.event.cases:
                A, b = self._case_rows(case, C, d, pattern)
                v = nearest_in_polytope(np.concatenate([A, self.limits[0]]), np.concatenate([b, self.limits[1]]), u)
                if v is not None and (best is None or np.sum((v - u) ** 2) < np.sum((best - u) ** 2)):
                    best = v
            if best is None:
                return None
            u = best
            if self._excess(u[None])[0] <= 0:
                return u
        return None

    # -- descent --

    def _case_rows(self, case: slice, C: FloatArray, d: FloatArray, pattern: Any) -> tuple[FloatArray, FloatArray]:
        """Rows of a case on the cell of a pattern, kept inside by more than rounding."""
        f = self.event.features(pattern[None])[0]
        G, g = self.event.G[case], self.event.g[case]
        A, b = G @ C, g - G @ d - self.event.F[case] @ f
        size = np.abs(G) @ np.abs(d) + np.abs(g) + np.linalg.norm(A, axis=1)
        flat = ~A.any(axis=1)
        return A, b - np.where(flat, 0.0, _INSIDE * size)

    def _solved(self, pattern: Any) -> FloatArray | None:
        """The nearest point of the event in the closed cell of a pattern."""
        cell = self.net.polytope(pattern)
        maps = self.net.output_maps(pattern[None])
        C, d = maps[0][0], maps[1][0]
        room = cell.b - (_INSIDE * (np.abs(cell.b) + 1.0) if self.event.event.features else 0.0)
        best: FloatArray | None = None
        for case in self.event.cases:
            A, b = self._case_rows(case, C, d, pattern)
            u = nearest_in_polytope(
                np.concatenate([A, cell.A, self.limits[0]]), np.concatenate([b, room, self.limits[1]])
            )
            if u is not None and (best is None or u @ u < best @ best):
                best = u
        return best

    def _descended(self, start: FloatArray, budget: Budget) -> FloatArray | None:
        pattern = self.net.pattern(start)
        u = self._solved(pattern)
        if u is None:
            return start if self._excess(start[None])[0] <= 0 else None
        if not u.any():  # the mean
            return u
        seen = {pattern.tobytes()}
        for _ in range(100):
            better = None
            for other in self._across(u, pattern):
                if other.tobytes() in seen:
                    continue
                if budget.spent() is not None:
                    return u
                seen.add(other.tobytes())
                v = self._solved(other)
                if v is not None and v @ v < (u @ u) * (1 - 1e-9):
                    u, better = v, other
            if better is None or budget.spent() is not None:
                break
            pattern = better
        return u

    def _across(self, u: FloatArray, pattern: Any) -> list[Any]:
        """Patterns of the cells that touch `u`: towards the origin, and through single facets."""
        cell = self.net.polytope(pattern)
        norm = np.maximum(np.linalg.norm(cell.A, axis=1), 1e-300)
        slack = (cell.b - cell.A @ u) / norm
        scale = 1.0 + float(np.abs(u).max())
        out = [self.net.pattern(u * (1 - s)) for s in (1e-7, 1e-4, 1e-2)]
        # A step through each facet that holds the point back (and a few steps around it).
        tight = np.flatnonzero(slack <= 1e-7 * scale)[:24]
        out += list(self.net.pattern(u + 1e-6 * scale * cell.A[tight] / norm[tight, None]))
        around = u + 1e-6 * scale * self.rng.standard_normal((8, len(u)))
        out += list(self.net.pattern(around))
        return out


def known_inputs(
    net: Network, law: Law, event: Event, budget: Budget, rng: np.random.Generator, *, only: int | None = None
) -> FloatArray:
    """Inputs inside an event, nearest to the means of the law's components (or of one), shape (m, inputs)."""
    from reluscope.events import place

    placed = place(net, law, event)
    if not placed.n_cases:
        return np.zeros((0, net.n_inputs))
    components = [c for k, c in enumerate(placed.components) if only in (None, k) and c.kind != "point"]
    found = []
    for c in components:
        if c.r and budget.spent() is None:
            share = Budget(max(budget.seconds - budget.elapsed(), 0.0) / len(components))
            found += [c.to_x(u) for u in Search(c, placed, rng).run(share, 4)]
    X = np.array(found).reshape(-1, net.n_inputs)
    return X[event.holds(net, X)] if len(X) else X


# -- proof ---------------------------------------------------------------------------------------------------------


def prove(
    component: Component, event: PlacedEvent, best: list[float], wanted: int, budget: Budget
) -> tuple[list[FloatArray], bool]:
    """Points of the event nearer than the best `wanted` known distances, and whether all of them were looked for.

    `best` holds the known distances; without any, boxes of growing size are searched. Distances whose square is no
    number do not count as known, and nothing is proved of them.
    """
    r = component.r
    counted = [distance for distance in best if distance < _FARTHEST]
    whole, best = len(counted) == len(best), counted
    radii = [best[wanted - 1]] if len(best) >= wanted else [4.0, 10.0, FAR]
    found: list[FloatArray] = []
    for radius in radii:
        side = radius * (1 + 1e-9) + 1e-12
        low, high = np.full(r, -side), np.full(r, side)
        if component.lower is not None and component.upper is not None:
            low, high = np.maximum(low, component.lower), np.minimum(high, component.upper)
        if (low >= high).any():
            return found, len(best) >= wanted or (whole and radius == radii[-1])
        try:
            start = cell_with_vertices((low, high), component.rows)
        except InputError:  # nothing of the law's own polytope is that near
            continue
        known = sorted(best)
        limit = known[wanted - 1] if len(known) >= wanted else radius * np.sqrt(r)

        def skip(cells: Geometry) -> BoolArray:
            return lower_bounds(cells) > limit  # noqa: B023

        walk = Walk(component, event, start, budget, skip=skip)
        for inside in walk:
            bounds = lower_bounds(inside.cells)
            for i in np.argsort(bounds).tolist():
                if bounds[i] > limit:
                    break
                u = nearest_in_hull(inside.cells.vertices(i))
                distance = float(np.linalg.norm(u))
                if distance <= limit:
                    middle = inside.cells.vertices(i).mean(axis=0)
                    if not inside.sure:  # perhaps in the event: worth a try, but no reason to look no further
                        found += [middle, u]
                        continue
                    # A point well inside shares the cell: the nearest one may miss the event by rounding.
                    found += [u + share * (middle - u) for share in _INWARDS]
                    known = sorted([*known, distance])
                    limit = known[wanted - 1] if len(known) >= wanted else limit
        if walk.stopped is not None:
            return found, False
        if found or len(best) >= wanted:
            return found, True
    return found, whole


def lower_bounds(cells: Geometry) -> FloatArray:
    """A lower bound on the distance of each cell from the origin: its bounding box, and one supporting direction."""
    if not len(cells):
        return np.zeros(0)
    points, offsets = cells.corners()
    starts = offsets[:-1]
    low, high = np.minimum.reduceat(points, starts), np.maximum.reduceat(points, starts)
    box = np.sqrt((np.maximum(np.maximum(low, -high), 0.0) ** 2).sum(axis=1))
    if cells.dimension == 1:
        return box
    owner = np.repeat(np.arange(len(cells)), np.diff(offsets))
    size = np.einsum("ij,ij->i", points, points)
    # The nearest vertex gives a good direction.
    order = np.lexsort((size, owner))
    direction = points[order[starts]]
    norm = np.maximum(np.linalg.norm(direction, axis=1), 1e-300)
    along = np.einsum("ij,ij->i", points, direction[owner]) / norm[owner]
    return np.maximum(box, np.minimum.reduceat(along, starts))
