"""Rays under a law: polar coordinates about a centre, in which the radius is integrated exactly.

A component of a law is brought to coordinates v with the centre at 0 and spread about 1. A ray is a direction w on the
unit sphere; under the law

- "chi": N(0, I_r), possibly given `lower <= v <= upper`: the radius has the density `t^(r-1) exp(-t^2/2)` on the part
  [low, high] of the ray in the box;
- "power": uniform on the box `lower <= v <= upper`, which holds 0: density `t^(r-1)` on [0, high].

`fraction(w)`, the law's conditional probability of an event given the direction, is then a sum over the stretches of
the ray inside the event, and P(event) the mean of `fraction` over the law's own directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope._lazy import late
from reluscope.measure.shared.line_sums import radial_tail

CHI, POWER = 0, 1

FAR = 37.0
"""Standard normal rays are cut here at the latest: nothing that a float can hold is beyond in few dimensions."""


@dataclass(frozen=True, eq=False)
class Rays:
    """The law in polar coordinates (see the module). `log_mass` is that of the box under N(0, I_r), or its volume's."""

    kind: int
    r: int
    lower: FloatArray | None = None
    upper: FloatArray | None = None
    log_mass: float = 0.0

    def points(self, uniforms: FloatArray) -> FloatArray:
        """Draws of the law from uniform numbers (n, r)."""
        from reluscope.inputs import restricted_normals
        from reluscope.measure.shared.draws import normals

        if self.lower is None or self.upper is None:
            return normals(uniforms)
        if self.kind == POWER:
            return self.lower + (self.upper - self.lower) * uniforms
        return restricted_normals(self.lower, self.upper, uniforms)

    def from_normal(self, Z: FloatArray) -> FloatArray:
        """Standard normal numbers (n, r) to draws of the law, coordinate by coordinate."""
        ndtr = late("scipy.special", "ndtr")

        return Z if self.lower is None else self.points(ndtr(Z))

    def span(self, W: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The part [low, high] of each ray on which the law lives; low > high where there is none."""
        n = len(W)
        low, high = np.zeros(n), np.full(n, self.reach)
        if self.lower is not None and self.upper is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                a, b = self.lower / W, self.upper / W
            near, far = np.minimum(a, b), np.maximum(a, b)
            flat = W == 0.0
            if flat.any():
                inside = (self.lower <= 0.0) & (self.upper >= 0.0)
                near = np.where(flat, np.where(inside, -np.inf, np.inf), near)
                far = np.where(flat, np.inf, far)
            low, high = np.maximum(low, near.max(axis=1)), np.minimum(high, far.min(axis=1))
        return low, high

    @property
    def reach(self) -> float:
        """Where rays end at the latest."""
        return math.sqrt(FAR * FAR + self.r) if self.kind == CHI else math.inf

    def log_whole(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Logarithm of the law's density of directions, relative to the uniform one."""
        out = np.empty(len(low))
        if self.lower is None:
            out[:] = 0.0
            return out
        with np.errstate(divide="ignore"):
            _log_masses(self.kind, self.r, low, high, out)
        if self.kind == POWER:
            out += math.log(2.0) + 0.5 * self.r * math.log(math.pi) - math.lgamma(0.5 * self.r) - math.log(self.r)
        return out - self.log_mass

    def fractions(
        self,
        low: FloatArray,
        high: FloatArray,
        offsets: npt.NDArray[np.int64],
        a: FloatArray,
        b: FloatArray,
        *,
        order: int = 0,
    ) -> FloatArray:
        """P(event | direction) of each ray, from its stretches inside the event; with `order` k, `E[1 t^k | w]`.

        For the chi law `t^k` times the density of r dimensions is, up to a factor, the density of r + k.
        """
        assert order == 0 or self.kind == CHI
        out = np.empty(len(low))
        r = self.r
        _fractions(self.kind, r, order, self.lower is not None, low, high, offsets, a, b, out)
        return (
            out
            if order == 0
            else out * 2.0 ** (0.5 * order) * math.exp(math.lgamma(0.5 * (r + order)) - math.lgamma(0.5 * r))
        )

    def inside(
        self,
        high: FloatArray,
        offsets: npt.NDArray[np.int64],
        a: FloatArray,
        b: FloatArray,
        uniforms: FloatArray,
    ) -> FloatArray:
        """A radius for each ray, drawn from the law given the direction and the event (0 where they do not meet)."""
        out = np.empty(len(high))
        _draw(self.kind, self.r, high, offsets, a, b, uniforms, out)
        return out


@kernel
def _mass(kind: int, r: int, a: float, b: float, top: float) -> float:
    """Radial mass of [a, b]: of the chi law, or relative to [0, top]."""
    if b <= a:
        return 0.0
    if kind == CHI:
        return max(radial_tail(a, r) - radial_tail(b, r), 0.0)
    return (b / top) ** r * -math.expm1(r * math.log(a / b)) if a > 0.0 else (b / top) ** r


@kernel
def _log_masses(kind: int, r: int, low: Any, high: Any, out: Any) -> None:
    for i in range(low.size):
        if not high[i] > low[i]:
            out[i] = -np.inf
        elif kind == CHI:
            out[i] = math.log(_mass(kind, r, low[i], high[i], 1.0))
        else:
            out[i] = r * math.log(high[i])


@kernel
def _fractions(
    kind: int, r: int, order: int, boxed: bool, low: Any, high: Any, offsets: Any, a: Any, b: Any, out: Any
) -> None:
    for i in range(low.size):
        total = 0.0
        for k in range(offsets[i], offsets[i + 1]):
            total += _mass(kind, r + order, a[k], b[k], high[i])
        if total > 0.0 and boxed and kind == CHI:
            total /= _mass(kind, r, low[i], high[i], high[i])
        out[i] = min(total, 1.0) if order == 0 else total


@kernel
def _draw(kind: int, r: int, high: Any, offsets: Any, a: Any, b: Any, uniforms: Any, out: Any) -> None:
    for i in range(high.size):
        total = 0.0
        for k in range(offsets[i], offsets[i + 1]):
            total += _mass(kind, r, a[k], b[k], high[i])
        out[i] = 0.0
        if not total > 0.0:
            continue
        left = uniforms[i] * total
        k = offsets[i]
        share = _mass(kind, r, a[k], b[k], high[i])
        while left > share and k + 1 < offsets[i + 1]:
            left -= share
            k += 1
            share = _mass(kind, r, a[k], b[k], high[i])
        near, far = a[k], b[k]
        for _ in range(40):
            middle = 0.5 * (near + far)
            if _mass(kind, r, a[k], middle, high[i]) < left:
                near = middle
            else:
                far = middle
        out[i] = 0.5 * (near + far)
