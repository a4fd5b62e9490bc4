"""A law pushed through a network by enumeration: for each component its regions and their masses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from reluscope._check import EPS, generator
from reluscope.answer import Answers, Status, Stop
from reluscope.budget import Budget, parse_budget
from reluscope.cells.facets import facet_rows
from reluscope.cells.polytope import HPolytopes
from reluscope.cells.regions import Regions, regions, uninterrupted
from reluscope.cells.vertex import VertexCells
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS, MOST_VOLUME_DIMENSIONS
from reluscope.measure.polytope import measure_together
from reluscope.measure.regions.masses import exact, gaussian_masses, uniform_masses
from reluscope.measure.regions.polytopes import gaussian_mass, given, standard_domain
from reluscope.progress import Report, meter
from reluscope.threads import OutOfTimeError
from reluscope.workers import jobs_at_hand, run

if TYPE_CHECKING:
    from reluscope.cells.split import Geometry
    from reluscope.inputs import Component, Law
    from reluscope.network import Network


_SLOW_DIMENSIONS = 3
"""From here on masses take 100 microseconds a cell and more: a budget is for them too."""

_BLOCK = 16


@dataclass(frozen=True, eq=False)
class Enumerated:
    """One component of a law: the regions of `component.network` in standard coordinates, and their masses.

    `masses` are conditional on the component (they sum to 1 when complete); `component.weight` times them is the law's.
    """

    component: Component
    regions: Regions
    masses: Answers

    @property
    def complete(self) -> bool:
        """Whether every region that can hold mass is here."""
        return self.regions.stopped is None  # parts thinner than rounding hold none

    @property
    def stopped(self) -> str | None:
        """Why regions are missing, or some masses have wide brackets; None when all was done."""
        return self.regions.stopped or (None if self.masses.complete else Stop(self.masses.note, self.masses.status))


def enumerate_law(
    net: Network,
    law: Law,
    *,
    relative: float = 1e-2,
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    progress: Any = None,
    rng: Any = None,
) -> tuple[Enumerated, ...]:
    """All regions and masses of `net` under `law`, component by component, in the coordinates the network can see.

    Exact for Gaussian laws that the network sees in up to three dimensions, for uniform laws in up to six, and for
    particles (one region per pattern that occurs); quasi-Monte Carlo masses otherwise. All components share the budget;
    in three and more dimensions the search for regions may take half of it. Where it, or Ctrl-C, ends before all
    regions of three dimensions are measured, the others are left out.
    """
    from reluscope.inputs import standard

    limit, rng = parse_budget(budget), generator(rng)
    options: dict[str, Any] = {"relative": relative, "level": level, "rng": rng}
    out = []
    components = standard(law, net)
    for component in components:
        if component.kind == "point":
            out.append(_particles(component))
            continue
        # Volumes need vertices; so do exact masses in three dimensions, where they are the choice anyway.
        geometry = "vertex" if component.kind == "uniform" and 2 < component.r <= MOST_VOLUME_DIMENSIONS else "auto"
        where = standard_domain(component)
        slow = component.kind != "uniform" and component.r >= _SLOW_DIMENSIONS
        search = limit.part(0.5) if slow else limit
        # Where it is slow, masses would take longer than whoever pressed Ctrl-C will wait.
        listing = uninterrupted if slow else regions
        found = listing(component.network, **where, geometry=geometry, budget=search, progress=progress)
        with meter(progress, "masses") as report:
            exact_in_blocks = slow and component.r <= MOST_EXACT_DIMENSIONS and isinstance(found.cells, VertexCells)
            if exact_in_blocks:
                # After Ctrl-C no other component may begin.
                found, joint = _measured_in_time(found, limit, report, component is components[-1])
                masses = _conditional(component, joint, options)
            else:
                masses = component_masses(component, found, limit, report, options)
            out.append(Enumerated(component, found, masses))
    return tuple(out)


def _measured_in_time(found: Regions, limit: Budget, report: Report, keep: bool) -> tuple[Regions, Answers]:
    """Exact masses, block by block from the centre outwards; what a budget leaves unmeasured is left out.

    So is what Ctrl-C leaves, if `keep`.
    """
    if not len(found):
        return found, gaussian_masses(found.cells)
    starts = np.arange(0, len(found), _BLOCK)
    points, offsets = found.cells.corners()
    corner = np.minimum.reduceat(np.linalg.norm(points, axis=1), offsets[:-1])
    centre = found.find(np.zeros((1, found.cells.dimension)))
    corner[centre[centre >= 0]] = 0.0  # its corners may be far
    distance = np.minimum.reduceat(corner, starts)
    first, *others = starts[np.argsort(distance, kind="stable")].tolist()
    masses = {first: _block(first, found.cells)}
    stopped = found.stopped
    try:
        work = run(_block, others, shared=(found.cells,), jobs=jobs_at_hand(), budget=limit)
        for start, mine in zip(others, work, strict=True):
            masses[start] = mine
            report(_BLOCK * len(masses), "cells")
    except OutOfTimeError:
        stopped = limit.spent()
    except KeyboardInterrupt:
        if not keep:
            raise
        stopped = Stop("interrupted", Status.INTERRUPTED)
    kept = sorted(masses)
    if len(kept) < len(starts):
        rows = np.concatenate([np.arange(k, min(k + _BLOCK, len(found))) for k in kept])
        cells = found.cells.join([found.cells.part(k, min(k + _BLOCK, len(found))) for k in kept])
        found = replace(found, cells=cells, pattern=found.pattern[rows], maps=found.maps[rows], stopped=stopped)
    value, lower, upper = (
        np.concatenate([getattr(masses[k], name) for k in kept]) for name in ("value", "lower", "upper")
    )
    return found, replace(masses[kept[0]], value=value, lower=lower, upper=upper)


def _block(start: int, cells: Any) -> Answers:
    """Exact masses of some cells."""
    return gaussian_masses(cells.part(start, min(start + _BLOCK, len(cells))))


def component_masses(
    component: Component, found: Regions, limit: Budget, report: Report, options: dict[str, Any]
) -> Answers:
    """Masses of regions in standard coordinates, given that the input comes from this component."""
    if component.kind == "uniform" and component.r > 0:
        assert component.lower is not None and component.upper is not None
        return uniform_masses(found.cells, float(np.prod(component.upper - component.lower)))
    if found.cells.dimension <= MOST_EXACT_DIMENSIONS and not isinstance(found.cells, HPolytopes):
        return _conditional(component, gaussian_masses(found.cells), options)
    joint = measure_together(
        lambda cells: facet_rows(found, cells), len(found), tolerance=None, budget=limit, report=report, **options
    )
    return _conditional(component, joint, options)


def _conditional(component: Component, joint: Answers, options: dict[str, Any]) -> Answers:
    """Plain Gaussian masses of regions, divided by that of what the component is restricted to."""
    if component.kind == "gaussian" or component.r == 0:
        return joint
    if component.log_mass is not None:
        box = np.exp(np.array([component.log_mass]))
        return given(joint, exact(box, 1e-12 * box))
    # The regions fill the box, so its mass is the sum of theirs (complete or not, it is the box's that counts).
    return given(joint, gaussian_mass(*component.inequalities(), **options))


def _particles(component: Component) -> Enumerated:
    """One region per pattern that occurs among the particles, without cells."""
    assert component.points is not None and component.point_weights is not None
    from reluscope.cells.regions import Domain

    net = component.network
    pattern = net.pattern(component.points)
    _, first, inverse = np.unique(net.key(pattern), return_index=True, return_inverse=True)
    value = np.bincount(inverse, component.point_weights).astype(np.float64)
    C, d = net.output_maps(pattern[first])
    maps = np.concatenate([C.transpose(0, 2, 1), d[:, None, :]], axis=1)
    found = Regions(net, Domain(None, None), cast("Geometry", None), pattern[first], maps)
    return Enumerated(component, found, exact(value, np.asarray(len(pattern) * EPS * value)))
