"""The probability of a rare event: which engine measures it, and whether two engines agree.

- Up to `RAYS_UP_TO` dimensions: rays (`by_rays.py`), which see all of a ray at once.
- Above: populations (`by_populations.py`). A ray in many dimensions sees next to nothing of a cap.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

from reluscope._check import choice, describe, generator, real, real_array
from reluscope.answer import Answer
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.events import Event, as_event, place
from reluscope.inputs import Law, check_law
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.rare.by_populations import PopulationRun
from reluscope.measure.rare.by_rays import RayRun
from reluscope.measure.rare.pieces import RAYS_UP_TO, Piece
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.threads import blas_threads

_RAYS_AT_ALL = 64
"""Dimensions up to which rays look for an event that populations have not found."""


def rare_probability(
    net: Network,
    law: Law,
    event: Event,
    *,
    starts: Any = None,
    interval: str = "replicate",
    relative: float = 0.1,
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Answer:
    """P of an event on inputs and outputs under `law`, however small it is.

    `relative` is the half-width wanted, relative to the value; `budget` ends the run earlier. The interval:

    - `"replicate"`: Student's t from independent replicates: scrambled Sobol points for rays, whole climbs for
      populations. Asymptotic, and about the parts of the event that a search has met: a part that none has met is not
      in it. If nothing is met at all, the upper bound is that of the next kind.
    - `"finite-sample"`: independent rays or points, half of them drawn from the law itself; their contributions are at
      most 2. Holds at any size and whatever the search has missed, so its upper bound is never below about
      `9 / draws`. The number of draws is fixed before they are drawn; only the clock may end them earlier.

    `starts` (m, inputs) are inputs known to lie in the event, if any: the search looks around them when it finds none.

    Any law: Gaussians, mixtures (component by component), Gaussians restricted to a box, uniform. Particles, constant
    networks and laws that the network sees in one dimension are exact. Costs: the search takes some 10^4 evaluations,
    and `spread / (relative / 2)^2` rays follow, with `spread` 0.5 to 5 in up to ten dimensions.
    """
    started = time.perf_counter()
    if not isinstance(net, Network):
        raise InputError(f"net must be a Network, got {describe(net)}")
    check_law(law, net)
    event = as_event(event, net, law).on_inputs_and_outputs()
    choice(interval, "interval", ("replicate", "finite-sample"))
    relative = real(relative, "relative", low=0.0, open_=True)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    limit, rng = parse_budget(None if budget == math.inf else budget), generator(rng)
    if starts is not None:
        starts = real_array(starts, "starts", ndim=2)
        if starts.shape[1] != net.n_inputs:
            raise InputError(f"starts must have shape (m, {net.n_inputs}), got {starts.shape}")
    placed = place(net, law, event)
    fixed, pieces = 0.0, []
    for component in placed.components:
        if component.kind == "point":
            assert component.points is not None and component.point_weights is not None
            fixed += component.weight * float(component.point_weights[event.holds(net, component.points)].sum())
        elif placed.n_cases:
            pieces.append(Piece(component, placed, starts))
    exact = [piece for piece in pieces if piece.rays.r <= 1 and piece.given is None]
    fixed += sum(piece.exact() for piece in exact)
    pieces = [piece for piece in pieces if piece not in exact]
    if not pieces:
        ends = fixed - 1e-12 * fixed, min(fixed + 1e-12 * fixed, 1.0)
        return Answer(fixed, *ends, "exact", None, "rays", seconds=time.perf_counter() - started)
    few = max(piece.rays.r for piece in pieces) <= RAYS_UP_TO
    if few:
        before = limit.elapsed()
        pieces[0].warm_up()
        limit = dataclasses.replace(limit, started=limit.started + limit.elapsed() - before)
    with blas_threads(max(net.widths)), meter(progress, "rare event") as report:
        if few:
            rays = RayRun(pieces, fixed, relative, level, limit, rng, report)
            answer = rays.replicate() if interval == "replicate" else rays.finite_sample()
        else:
            answer = _in_many_dimensions(PopulationRun(pieces, fixed, relative, level, limit, rng, report), interval)
    return dataclasses.replace(answer, seconds=time.perf_counter() - started)


def _in_many_dimensions(run: PopulationRun, interval: str) -> Answer:
    """By populations; where they do not find the event, by what holds without having found it."""
    bounded = all(piece.given is None for piece in run.pieces)
    if interval == "finite-sample" and not bounded:
        raise InputError(
            'interval="finite-sample" needs the mass of the restriction, which has no closed form for correlated '
            'inputs; use interval="replicate"'
        )
    if run.search():
        return run.replicate() if interval == "replicate" else run.finite_sample()
    late = run.limit.elapsed() >= 0.5 * run.limit.seconds
    if not late and bounded and max(piece.rays.r for piece in run.pieces) <= _RAYS_AT_ALL:
        rays = RayRun(run.pieces, run.fixed, run.relative, run.level, run.limit, run.rng, run.report)
        return rays.finite_sample()
    return run.finite_sample() if bounded else run.replicate()
