"""Importance sampling of rays: where they are drawn, and what each contributes.

A ray is drawn with its direction from `share0` times the law's own directions plus fitted projected Gaussians; with f0
and f the densities of the law's directions and of the mixture, its contribution

    X = fraction(w) f0(w) / f(w),      0 <= X <= 1 / share0,

has mean P(event), whatever was fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.measure.shared.costs import lines_seconds
from reluscope.measure.shared.draws import normals
from reluscope.measure.shared.mixture import Directions
from reluscope.measure.shared.ray_event import RayRows, ray_intervals
from reluscope.measure.shared.rays import CHI, Rays
from reluscope.measure.shared.trace import Tracer
from reluscope.pace import charge
from reluscope.workers import PerThread

CHUNK = 256
"""Rays traced together: their segments stay in the cache."""

_THIN = 1e-12
"""Stretches shorter than this share of their distance: an event that only touches the inputs has such, by rounding."""
_RAY, _RAY_INPUT = 1e-6, 5e-8
"""Seconds of a ray, and of each coordinate, besides its line: drawing, weights, radial integrals."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Rays and what they contribute; `points` are draws of the law given event and direction (if asked for).

    `directions` are the unit vectors, and `first` and `second` (if asked for) the contributions to `E[1 |u|]` and
    `E[1 |u|^2]`, which times directions are those to the moments of u on the event. `thin` is the mean contribution of
    stretches that rounding alone may have made.
    """

    value: FloatArray
    points: FloatArray
    segments: int
    directions: FloatArray
    first: FloatArray
    second: FloatArray
    thin: float


@dataclass(frozen=True, eq=False)
class Proposal:
    """Where rays are drawn: the law's own directions with probability `nominal`, else the fitted ones."""

    nominal: float
    fitted: Directions | None

    def shares(self) -> FloatArray:
        """Probabilities of the law's own directions and of each fitted component."""
        if self.fitted is None:
            return np.ones(1)
        return np.concatenate([[self.nominal], (1.0 - self.nominal) * self.fitted.share])

    def with_shares(self, shares: FloatArray) -> Proposal:
        """The same components with other shares (the law's own directions first)."""
        if self.fitted is None:
            return self
        rest = shares[1:] / shares[1:].sum()
        return Proposal(float(shares[0]), Directions(rest, self.fitted.mean, self.fitted.factor))

    def with_nominal(self, nominal: float) -> Proposal:
        """The same with another share of the law's own directions."""
        return Proposal(nominal, self.fitted if nominal < 1.0 else None)

    @property
    def bound(self) -> float:
        """Largest possible contribution."""
        return 1.0 / float(self.shares()[0])


class Sampler:
    """Draws rays of one component of a law and integrates an event along them."""

    def __init__(self, event: RayRows, rays: Rays, cut: float) -> None:
        self.event, self.rays, self.cut = event, rays, cut
        self._tracer: PerThread[Tracer] = PerThread(event.tracer)

    def shortened(self, probability: float) -> tuple[Sampler, float]:
        """The same with rays that end where 1e-12 of `probability` is beyond, and what is beyond."""
        rays = self.rays
        if rays.kind != CHI or rays.lower is not None:
            return self, 0.0
        gammainccinv = late("scipy.special", "gammainccinv")

        lost = max(1e-12 * probability, 1e-290)
        cut = math.sqrt(2.0 * float(gammainccinv(0.5 * rays.r, lost)))
        return Sampler(self.event, rays, min(cut, self.cut)), lost

    def independent(self, proposal: Proposal, n: int, rng: np.random.Generator, *, points: bool = False) -> Drawn:
        """Independent rays."""
        shares = proposal.shares()
        which = rng.choice(len(shares), size=n, p=shares / shares.sum())
        drawn = self.draw(proposal, which, rng.random((n, self.rays.r)), rng if points else None)
        charge(self.seconds(n, drawn.segments))
        return drawn

    def seconds(self, rays: int, segments: int) -> float:
        """What rays cost by formula (`reluscope.pace`)."""
        return lines_seconds(self.event.net, rays, segments) + rays * (_RAY + _RAY_INPUT * self.rays.r)

    def draw(
        self,
        proposal: Proposal,
        which: npt.NDArray[np.int64],
        uniforms: FloatArray,
        rng: np.random.Generator | None = None,
        *,
        moments: bool = False,
    ) -> Drawn:
        """One ray per row of uniform numbers (n, r); `which` names the component of each (0: the law itself).

        With `rng` a point of the event is drawn on every ray that meets it.
        """
        rays = self.rays
        W = np.empty((len(uniforms), rays.r))
        for k in np.unique(which):
            mine = np.flatnonzero(which == k)
            if k == 0:
                W[mine] = rays.points(uniforms[mine])
            else:
                assert proposal.fitted is not None
                W[mine] = proposal.fitted.points(int(k) - 1, normals(uniforms[mine]))
        return self.measure(W, rng, proposal, moments=moments)

    def measure(
        self,
        towards: FloatArray,
        rng: np.random.Generator | None = None,
        proposal: Proposal | None = None,
        *,
        moments: bool = False,
    ) -> Drawn:
        """The rays through the points `towards` (n, r), weighted if they come from a proposal."""
        rays = self.rays
        n = len(towards)
        size = np.linalg.norm(towards, axis=1, keepdims=True)
        W = towards / np.where(size > 0, size, 1.0)
        low, high = rays.span(W)
        weight = np.ones(n)
        if proposal is not None and proposal.fitted is not None:
            shares = proposal.shares()
            whole = rays.log_whole(low, high)
            seen = np.isfinite(whole)  # the law does not live on the others, whose value is 0
            logs = proposal.fitted.log_density(W) - np.where(seen, whole, 0.0)
            weight = 1.0 / (shares[0] + shares[1:] @ np.exp(np.minimum(logs, 700.0)))
        value, radius, thin = np.zeros(n), np.zeros(n), np.zeros(n)
        first, second = (np.zeros(n), np.zeros(n)) if moments else (np.zeros(0), np.zeros(0))
        segments = 0
        end = np.minimum(high, self.cut)
        for begin in range(0, n, CHUNK):
            part = slice(begin, begin + CHUNK)
            found = self._tracer()(np.zeros_like(W[part]), W[part], low[part], end[part])
            segments += len(found.t)
            stretches = ray_intervals(self.event, found, W[part])
            value[part] = rays.fractions(low[part], high[part], *stretches)
            offsets, a, b = stretches
            short = b - a <= _THIN * b
            if short.any():
                places = np.concatenate([[0], np.cumsum(short)])[offsets]
                thin[part] = rays.fractions(low[part], high[part], places, a[short], b[short])
            if moments:
                first[part] = rays.fractions(low[part], high[part], *stretches, order=1)
                second[part] = rays.fractions(low[part], high[part], *stretches, order=2)
            if rng is not None:
                radius[part] = rays.inside(high[part], *stretches, rng.random(len(found)))
        if moments:
            first, second = first * weight, second * weight
        unsure = float((thin * weight).mean()) if n else 0.0
        return Drawn(value * weight, W * radius[:, None], segments, W, first, second, unsure)
