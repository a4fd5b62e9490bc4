"""Bounds of a row given a slab from its mean and its largest gradient, for networks with one hidden layer.

Given the held directions t, the row f is a function of Gaussian noise with mean m(t) and gradient of at most L. By the
Gaussian isoperimetric inequality `P(f <= 0 | t) <= Phi(-q)` where `q Phi(q) + phi(q) = m(t) / L`: among all sets of the
same mass a half-space is the one whose distance function has the largest mean, and `f <= L dist(., {f <= 0})`.

- The mean is exact: a ReLU of a Gaussian has the mean `s rho(h / s)`, convex in h. Tangents where its coefficient is
  positive and chords where it is negative make it an affine function of t below m on the slab.
- The gradient is `sum over units of d_u c_u w_u` with d_u in [0, 1] where the unit is open. Around the middle it moves
  by at most `sqrt(sum r_u^2 T_u)` for any diagonal T above the Gram matrix of the w_u.
- `q' = 1 / Phi(q) >= 1`: from its value at the least m(t) / L of the slab, q grows at least as fast as its argument, so
  that the bound is again `Phi` of an affine function of t.

Relaxations lose a little with every open unit, this bound does not; it loses where the largest gradient is far above
the usual one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numba
import numpy as np
from scipy.special import ndtr

from reluscope._check import FloatArray
from reluscope.measure.sound.linear import Bounds, Intervals
from reluscope.measure.sound.relu_form import ReluForm
from reluscope.measure.sound.slab import Slab, below_kernel

_ROUNDS = 30
_MOST_UNITS = 600
"""Units up to which a diagonal above the Gram matrix is looked for."""


def has_means(form: ReluForm) -> bool:
    """Whether the means of this form are known."""
    return len(form.layers) == 1 and form.layers[0].width <= _MOST_UNITS


@dataclass(eq=False)
class Means:
    """Bounds of the rows of one case from means and gradients."""

    form: ReluForm
    bounds: Bounds
    Q: FloatArray
    diagonals: dict[bytes, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        layer = self.form.layers[0]
        self.W = np.asarray(layer.W)
        self.first = self.W @ self.Q
        self.gram = self.W @ self.W.T
        self.unit = np.concatenate([g.unit for g in layer.groups]) if layer.groups else np.zeros(0, np.intp)
        self.at = np.concatenate([g.at for g in layer.groups]) if layer.groups else np.zeros(0)
        step = np.concatenate([g.step for g in layer.groups]) if layer.groups else np.zeros(0)
        self.c = self.form.G[:, self.unit] * step
        self.owner = np.zeros((len(self.unit), len(self.W)))  # which unit each ReLU belongs to
        self.owner[np.arange(len(self.unit)), self.unit] = 1.0
        on_z, on_h = self.bounds.rounding(0)
        size = np.abs(self.form.G) @ (on_z + np.abs(layer.slope) * on_h) + np.abs(self.c) @ on_h[self.unit]
        self.error = self.bounds.row_error(self.form.G) + size

    def shares(self, slab: Slab, box: Intervals, sign: float = 1.0) -> tuple[FloatArray, FloatArray]:
        """Upper bounds of the mass of `{sign f <= 0}` in each slab (nodes, rows), off the tails; the loosest direction.

        `box` says which ReLUs are on and off there. Directions are scored by how much cutting them would bring.
        """
        layer = self.form.layers[0]
        low = np.concatenate([a for a, _ in box[0]], axis=1)
        up = np.concatenate([b for _, b in box[0]], axis=1)
        on, wide = low >= 0, (low < 0) & (up > 0)
        n, k = slab.held.shape
        out = np.empty((n, len(self.form.g0)))
        scores = np.zeros((n, k))
        first = self.first[None] * slab.held[:, None, :]  # (nodes, units, k)
        middle, half = 0.5 * (slab.low + slab.up), 0.5 * (slab.up - slab.low)
        square = np.diag(self.gram)
        slack = 1e-12 * square
        sd = np.sqrt(np.maximum(square - np.einsum("nuk,nuk->nu", first, first), 0.0) + slack)
        centre = layer.b + np.einsum("nuk,nk->nu", first, np.where(slab.held, middle, 0.0))
        spread = np.einsum("nuk,nk->nu", np.abs(first), np.where(slab.held, half, 0.0))
        mu, s, move = centre[:, self.unit] - self.at, sd[:, self.unit], spread[:, self.unit]
        tangent, slope = _mean(mu, s)
        left, right = _mean(mu - move, s)[0], _mean(mu + move, s)[0]
        chord = np.where(move > 1e-9 * s, (right - left) / np.maximum(2 * move, 1e-300), slope)
        over = np.maximum(0.5 * (left + right), tangent)  # the chord's value in the middle
        bend = over - tangent
        T = self._diagonal(slab)
        best = np.full(n, np.inf)
        for t in range(out.shape[1]):
            c, G = sign * self.c[t], sign * self.form.G[t]
            own_slope = np.where(on, 1.0, np.where(wide, np.where(c > 0, slope, chord), 0.0)) * c
            own_value = np.where(on, mu, np.where(wide, np.where(c > 0, tangent, over), 0.0)) * c
            # f >= value + along (t - middle)
            per_unit = own_slope @ self.owner + G * layer.slope
            along = np.einsum("nu,nuk->nk", per_unit, first)
            value = own_value.sum(axis=1) + (G * layer.slope) @ centre.T + G @ layer.intercept + sign * self.form.g0[t]
            # Rounding: of the means, of their standard deviations (d rho / d s <= .4), and of everything before.
            loose = np.abs(c) @ (1e-12 * (np.abs(mu) + move + s) + 0.4 * np.sqrt(slack[self.unit])).T
            loose += 1e-12 * (np.abs(value) + (np.abs(per_unit) * (np.abs(centre) + spread)).sum(axis=1))
            value = value - self.error[t] - loose
            # the gradient across the rest
            radius = np.where(wide, 0.5 * np.abs(c), 0.0) @ self.owner
            g = (np.where(on, c, np.where(wide, 0.5 * c, 0.0)) @ self.owner + G * layer.slope) @ self.W
            g_held = (g @ self.Q) * slab.held
            total = np.einsum("nr,nr->n", g, g)
            rest = np.sqrt(np.maximum(total - np.einsum("nk,nk->n", g_held, g_held), 0.0) + 1e-12 * total)
            moved = np.einsum("nu,nu->n", radius**2, T)
            # |g + v|^2 with |v|^2 <= moved: by the triangle inequality, or term by term of the product g v
            meets = np.abs(g @ self.W.T - np.einsum("nk,nuk->nu", g_held, first)) + 1e-12 * np.sqrt(total)[:, None]
            apart = rest**2 + 2 * np.einsum("nu,nu->n", radius, meets) + moved
            L = np.sqrt(np.minimum((rest + np.sqrt(moved)) ** 2, apart)) * (1 + 1e-9)
            L = np.maximum(L, 1e-300)
            start = value - np.einsum("nk,nk->n", along, np.where(slab.held, middle, 0.0))
            lowest = value - np.einsum("nk,nk->n", np.abs(along), np.where(slab.held, half, 0.0))
            y = lowest / L
            q = _quantile_kernel(y)
            # P <= Phi(-(q + (m / L - y))): an affine function with the rest's standard deviation L
            x0 = start - L * (y - q) * (1 + 1e-12)
            share = below_kernel(along[:, None, :], L[:, None], x0[:, None], slab.held, slab.low, slab.up)[:, 0]
            out[:, t] = np.where(y > 0, share, np.inf)
            better = out[:, t] < best
            if better.any():
                best = np.where(better, out[:, t], best)
                bent = np.where(wide, np.abs(c) * bend, 0.0) / np.maximum(move, 1e-300)
                held = np.einsum("nj,njk->nk", bent, np.abs(first[:, self.unit])) * np.where(slab.held, half, 0.0)
                gain = (g @ self.Q) ** 2 + 2.0 * radius**2 @ self.first**2
                free = np.clip(y, 0.5, 8.0)[:, None] * gain / (2 * L[:, None])
                scores = np.where(better[:, None], np.where(slab.held, held, free), scores)
        return np.minimum(out, slab.mass()[:, None]), scores

    def _diagonal(self, slab: Slab) -> FloatArray:
        """A diagonal T (nodes, units) with `diag(T)` above the Gram matrix of the units' rests."""
        out = np.empty((slab.nodes, len(self.W)))
        for i, held in enumerate(slab.held):
            key = held.tobytes()
            if key not in self.diagonals:
                cut = self.first[:, held]
                weight = 0.5 * np.abs(self.c).max(axis=0) @ self.owner
                # Rounding of the difference: |E_uv| <= d |w_u| |w_v| is below the diagonal n d |w_u|^2.
                rounding = np.diag(1e-10 * np.diag(self.gram))
                self.diagonals[key] = _above(self.gram - cut @ cut.T + rounding, weight)
            out[i] = self.diagonals[key]
        return out


def _mean(h: FloatArray, s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mean of a ReLU of N(h, s^2), and its slope in h."""
    with np.errstate(over="ignore"):  # a unit without spread: its ReLU is what it is
        z = np.clip(h / np.maximum(s, 1e-150), -1e3, 1e3)
    slope = ndtr(z)
    return np.maximum(h * slope + s * np.exp(-0.5 * np.minimum(z * z, 1400.0)) * 0.3989422804014327, 0.0), slope


def _above(P: FloatArray, weight: FloatArray) -> FloatArray:
    """T with `diag(T) >= P` and `sum of weight^2 T` small: rescaled towards the largest eigenvectors."""
    size = np.maximum(weight, 1e-6 * max(float(weight.max(initial=0.0)), 1e-300))
    M = size[:, None] * P * size
    M = 0.5 * (M + M.T)
    top = float(np.trace(M))
    if top <= 0:
        return np.full(len(P), 1e-300)
    M = M + 1e-10 * top / len(P) * np.eye(len(P))
    T = np.maximum(np.sqrt(np.maximum(np.diag(M), 0.0)), 1e-6 * math.sqrt(top))
    best, value = T, np.inf
    for _ in range(_ROUNDS):
        root = np.sqrt(T)
        w, V = np.linalg.eigh(M / root[:, None] / root)
        if (now := float(w[-1] * T.sum())) < value:
            value, best = now, T * float(w[-1])
        soft = np.exp((w - w[-1]) / (0.02 * w[-1]))
        mass = (V * V) @ (soft / soft.sum())
        T = T * (np.maximum(mass, 1e-12) / (T / T.sum())) ** 0.3
        T = T / T.sum()
    # A little more, so that rounding of the eigenvalues cannot matter.
    return np.asarray((best * (1 + 1e-7) + 1e-9 * top / len(P)) / size**2)


@numba.njit(cache=True, nogil=True)
def _quantile_kernel(y):  # type: ignore[no-untyped-def]
    """q with `q Phi(q) + phi(q) <= y`, rounded downwards; -30 where y is not positive."""
    out = np.empty(len(y))
    for i in range(len(y)):
        low, high = -30.0, 40.0
        if y[i] > 0.0:
            high = min(max(y[i], 0.5), 40.0)
            for _ in range(60):
                q = 0.5 * (low + high)
                if q * 0.5 * math.erfc(-0.7071067811865476 * q) + 0.3989422804014327 * math.exp(-0.5 * q * q) > y[i]:
                    high = q
                else:
                    low = q
        out[i] = low - 1e-9
    return out
