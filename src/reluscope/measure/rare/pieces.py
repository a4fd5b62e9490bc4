"""One component of a law as the engines for rare events see it: the event in its coordinates, and its radial law."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property

import numpy as np

from reluscope._check import FloatArray
from reluscope.events import PlacedEvent
from reluscope.inputs import Component
from reluscope.measure.shared import CHI, POWER, Directions, Proposal, RayRows, Rays, Sampler, ray_rows

RAYS_UP_TO = 12
"""Dimensions up to which rays are drawn; populations climb in more."""


class Piece:
    """One component of the law: its rays, the event on them, and what its probability is divided by."""

    def __init__(self, component: Component, placed: PlacedEvent, starts: FloatArray | None = None) -> None:
        self.weight = component.weight
        self.given: RayRows | None = None
        """The restriction, where its mass has no closed form: the probability is divided by it."""
        self.factor = 1.0
        event = ray_rows(placed, component)
        if component.rows is not None:
            A, b = component.rows
            self.rays, whole = Rays(CHI, component.r), everything(event)
            self.event = event.within(A, b)
            if component.log_mass is None:
                self.given = whole.within(A, b)
            else:
                self.factor = math.exp(-component.log_mass)
        else:
            self.event, self.rays = _placed(component, event)
        self.starts: FloatArray | None = None
        """Known points of the event in the coordinates of the rays."""
        if starts is not None and component.r:
            U = component.to_u(starts)
            if component.kind == "uniform":
                assert component.lower is not None and component.upper is not None
                middle, width = 0.5 * (component.lower + component.upper), component.upper - component.lower
                U = (U - middle) / (width / (2.0 * math.sqrt(3.0)))
            self.starts = U[self.event.margin(U, np.ones(len(self.event.bound))) <= 0.0]

    @cached_property
    def sampler(self) -> Sampler:
        """Rays for the event."""
        return ray_sampler(self.event, self.rays)

    @cached_property
    def divisor(self) -> Sampler | None:
        """Rays for `given`."""
        return None if self.given is None else ray_sampler(self.given, self.rays)

    def exact(self) -> float:
        """The weighted probability in one dimension: two rays. In none: one point."""
        if self.rays.r == 0:
            inside = self.event.margin(np.zeros((1, self.event.net.n_inputs)), np.ones(len(self.event.bound)))
            return self.weight * float(inside[0] <= 0.0)
        both = np.array([[1.0], [-1.0]])
        whole = np.exp(self.rays.log_whole(*self.rays.span(both)))
        return self.weight * self.factor * 0.5 * float(whole @ self.sampler.measure(both).value)

    def warm_up(self) -> None:
        """Compile what will be needed, before the budget's clock starts."""
        rng = np.random.default_rng(0)
        r = self.rays.r
        some = Directions(np.ones(1), np.ones((1, r)), np.eye(r)[None])
        self.sampler.independent(Proposal(0.5, some), 4, rng, points=True)


def ray_sampler(event: RayRows, rays: Rays) -> Sampler:
    """Rays that go as far as the law does."""
    return Sampler(event, rays, rays.reach)


def _placed(component: Component, event: RayRows) -> tuple[RayRows, Rays]:
    """The event and the rays in coordinates with their centre at 0 and spread about 1."""
    if component.kind == "gaussian" or component.r == 0:
        return event, Rays(CHI, component.r)
    assert component.lower is not None and component.upper is not None and component.log_mass is not None
    if component.kind == "truncated":
        return event, Rays(CHI, component.r, component.lower, component.upper, component.log_mass)
    side = math.sqrt(3.0)
    centre, scale = 0.5 * (component.lower + component.upper), (component.upper - component.lower) / (2.0 * side)
    ends = np.full(component.r, side)
    return event.moved(centre, scale), Rays(POWER, component.r, -ends, ends, component.r * math.log(2.0 * side))


def everything(event: RayRows) -> RayRows:
    """The event that always holds."""
    return dataclasses.replace(
        event, form=np.full(1, -1, np.int64), linear=np.zeros((1, event.linear.shape[1])), shift=np.zeros(1),
        bound=np.zeros(1), strict=np.zeros(1, bool), start=np.array([0, 1]),
    )  # fmt: skip
