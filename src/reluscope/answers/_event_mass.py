"""The exact engine of events: how much of a law lies in an event, by the cells inside it.

Masses for `probability`, and moments for derivatives (`sensitivity`). `_event_cells` finds the cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope.answers._event_cells import Inside, Walk
from reluscope.answers._parts import _gaussian_moments, _volume_moments
from reluscope.cells.domain import cell_with_vertices
from reluscope.errors import InputError
from reluscope.inputs import FAR
from reluscope.measure.exactness import is_exact, not_exact
from reluscope.measure.regions import gaussian_mass, gaussian_masses, standard_domain, uniform_masses

if TYPE_CHECKING:
    from reluscope.budget import Budget
    from reluscope.events import PlacedEvent
    from reluscope.inputs import Component

NEAR = 9.0
"""Half-width of the first box searched: outside of it N(0, I_r) has 2.3e-19 r."""

_NEGLIGIBLE = 1e-13
"""Share of the answer that may lie outside of the first box."""

_BEYOND = 1e-300
"""More than a Gaussian has where no cell is looked for: an event without cells has at most this."""

_ROUNDING = 16.0 * EPS

_FINE = 1e-11
"""Share of a cell's mass from which the slabs of its cuts are bounded with care."""

_STEPS = 64


@dataclass(frozen=True, eq=False)
class Share:
    """The part of one component in the event, given the component.

    `value` within `error`; `left` is mass that a budget left undecided; `visited` counts cells. `first` (r,) and
    `second` (r, r) are `E[u 1]` and `E[u u' 1]` where asked for.
    """

    value: float
    error: float
    left: float
    visited: int
    stopped: str | None
    first: FloatArray | None = None
    second: FloatArray | None = None


def component_share(
    component: Component,
    event: PlacedEvent,
    budget: Budget,
    *,
    moments: bool = False,
    tolerance: float | None = None,
    report: Callable[[int, float], None] | None = None,
) -> Share:
    """The event's share of a component of a kind that enumerates exactly (see `is_exact`).

    A Gaussian is first searched within `NEAR` standard deviations; when what lies outside may matter, everywhere.
    """
    if component.kind == "point" or component.r == 0:
        return _share_of_points(component, event)
    if not is_exact(component):
        raise InputError(not_exact(component))
    if component.kind == "gaussian":
        r = component.r
        near = NEAR if tolerance is None else min(max(_radius(r, 0.1 * tolerance), 1.0), FAR)
        outside = 2.0 * r * 0.5 * math.erfc(near / math.sqrt(2.0))
        box = np.full(r, -near), np.full(r, near)
        found = _walked(component, event, budget, cell_with_vertices(box), moments, report)
        enough = outside <= _NEGLIGIBLE * found.value if tolerance is None else outside <= 0.1 * tolerance
        if enough or found.stopped is not None:
            return Share(
                found.value, found.error, found.left + outside, found.visited, found.stopped, found.first, found.second
            )
    where = standard_domain(component)
    try:
        start = cell_with_vertices(where["box"], where.get("polytope"))
    except InputError:  # the law's own rows leave no interior: nothing to find
        return Share(0.0, 0.0, 0.0, 0, None, np.zeros(component.r), np.zeros((component.r, component.r)))
    found = _walked(component, event, budget, start, moments, report)
    return replace(found, left=found.left + _BEYOND) if component.kind == "gaussian" else found


def _radius(r: int, outside: float) -> float:
    """Half-width of a box outside of which N(0, I_r) has at most `outside`."""
    from scipy.special import ndtri

    return float(-ndtri(max(outside / (2.0 * r), 1e-300)))


def _share_of_points(component: Component, event: PlacedEvent) -> Share:
    if component.kind == "point":
        assert component.points is not None and component.point_weights is not None
        inside = event.event.holds(event.net, component.points)
        weights = component.point_weights[inside]
        value = float(math.fsum(weights))
        # The weights are the law; only their sum is rounded.
        return Share(min(value, 1.0), 4 * EPS * value, 0.0, len(inside), None)
    x = component.to_x(np.zeros((1, component.network.n_inputs)))
    value = float(event.event.holds(event.net, x)[0])
    none = np.zeros(0), np.zeros((0, 0))
    return Share(value, 0.0, 0.0, 1, None, *none)


def _walked(
    component: Component,
    event: PlacedEvent,
    budget: Budget,
    start: Any,
    moments: bool,
    report: Callable[[int, float], None] | None,
) -> Share:
    r = component.r
    whole = _whole(component)
    walk = Walk(component, event, start, budget)
    values: list[float] = []
    error = 0.0
    first, second = np.zeros(r), np.zeros((r, r))
    for inside in walk:
        mass, rounding = _measured(component, inside.cells)
        values.append(float(mass.sum()))
        error += float(rounding.sum()) + float(_slabs(component, inside, mass).sum())
        if moments:
            one, two = (_gaussian_moments if component.kind != "uniform" else _volume_moments)(inside.cells)
            first += one.sum(axis=0)
            second += two.sum(axis=0)
        if report is not None:
            report(walk.visited, sum(values) / whole)
    total = math.fsum(values)
    left = sum(float(_measured(component, cells)[0].sum()) for cells in walk.pending)
    error = (error + _ROUNDING * total) / whole + 2e-12 * (total / whole if whole != 1.0 else 0.0)
    value = min(total / whole, 1.0)
    left = min(left / whole, 1.0)
    return Share(value, error, left, walk.visited, walk.stopped, first / whole, second / whole)


def _whole(component: Component) -> float:
    """Measure of what the component is conditioned on."""
    if component.kind == "gaussian":
        return 1.0
    if component.log_mass is not None:
        whole = float(np.exp(component.log_mass))
    else:
        whole = float(gaussian_mass(*component.inequalities(), 1e-3, 0.999, np.random.default_rng(0)).value[0])
    if not whole > 0.0:
        raise InputError("the box of the truncated law holds less mass than float64 can tell from zero; widen it")
    return whole


def _measured(component: Component, cells: Any) -> tuple[FloatArray, FloatArray]:
    """Plain measure of each cell (Gaussian mass or volume) and a bound on its rounding."""
    if not len(cells):
        return np.zeros(0), np.zeros(0)
    if component.kind == "uniform":
        found = uniform_masses(cells, 1.0)
        # Volumes are not probabilities: the bracket is not cut at 1.
        return found.value, 64 * EPS * cells.dimension * found.value
    found = gaussian_masses(cells)
    return found.value, np.maximum(found.upper - found.value, found.value - found.lower)


def _slabs(component: Component, inside: Inside, mass: FloatArray) -> FloatArray:
    """Measure of the slabs, `blur` thick, by which rounding may have moved the cuts of each cell."""
    if not inside.blur.any():
        return inside.blur
    points, offsets = inside.cells.corners()
    low, high = np.minimum.reduceat(points, offsets[:-1]), np.maximum.reduceat(points, offsets[:-1])
    across = np.sqrt(((high - low) ** 2).sum(axis=1))
    power = component.r - 1
    if component.kind == "uniform":
        return inside.blur * across**power
    section = inside.blur / math.sqrt(2 * math.pi) * np.minimum(1.0, across / math.sqrt(2 * math.pi)) ** power
    nearest = np.sqrt((np.maximum(np.maximum(low, -high), 0.0) ** 2).sum(axis=1))
    slabs = section * np.exp(-0.5 * nearest**2)
    # Bounding boxes come much nearer to the origin than far cells do: there the distance itself is wanted.
    loose = np.flatnonzero(slabs > _FINE * mass)
    if len(loose):
        slabs[loose] = section[loose] * np.exp(
            -0.5 * np.maximum(nearest[loose], _distance(points, offsets, loose)) ** 2
        )
    return slabs


def _distance(points: FloatArray, offsets: npt.NDArray[np.int64], chosen: npt.NDArray[np.intp]) -> FloatArray:
    """A lower bound on the distance of the hulls of `points[offsets[i]:offsets[i + 1]]` from the origin, i in `chosen`.

    Gilbert's iteration: any point p bounds it by `min p.v / |p|` over the vertices v, tight when p is nearest.
    """
    sizes = np.diff(offsets)[chosen]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    owner = np.repeat(np.arange(len(chosen)), sizes)
    V = points[np.arange(len(owner)) + (offsets[chosen] - starts)[owner]]

    def least(along: FloatArray) -> npt.NDArray[np.intp]:
        return np.lexsort((along, owner))[starts]

    p = V[least(np.einsum("ij,ij->i", V, V))]
    best = np.zeros(len(chosen))
    for _ in range(_STEPS):
        along = np.einsum("ij,ij->i", V, p[owner])
        at = least(along)
        square = np.einsum("ij,ij->i", p, p)
        best = np.maximum(best, along[at] / np.sqrt(np.maximum(square, 1e-300)))
        step = p - V[at]
        length = np.maximum(np.einsum("ij,ij->i", step, step), 1e-300)
        p = p - np.clip((square - along[at]) / length, 0.0, 1.0)[:, None] * step
    return best
