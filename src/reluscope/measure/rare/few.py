"""Gaussian mixtures in a few directions of a standard normal law, the other directions left as they are.

In many dimensions a rare event changes the law in a few directions only: the mean moves, the spread towards the event
shrinks, modes lie apart. Those directions are found from points of the event: their mean, and the directions in which
their covariance differs from the identity by more than chance makes it differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reluscope._check import FloatArray
from reluscope.measure.shared import Directions, fit

MOST_DIRECTIONS = 24
MOST_MODES = 16
MOST_POINTS = 1500
MOST_GRADIENTS = 256

_GAIN = 0.1
"""`mean^2 + spread - 1 - log(spread)` from which a direction counts: twice what it adds to the fit's information."""

_NEW = 0.2
"""Share of a direction that must be new."""

_AXES = 10
_MANY = 64
"""Above so many dimensions axes of the covariance are left out: they cost more than they tell."""


@dataclass(frozen=True, eq=False)
class FewDirections:
    """z = V a + (the rest), a from a mixture of Gaussians, the rest standard normal. `basis` V is (r, k)."""

    basis: FloatArray
    mixture: Directions

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Points (n, r)."""
        Z = rng.standard_normal((n, len(self.basis)))
        share = self.mixture.share / self.mixture.share.sum()
        which = rng.choice(len(share), size=n, p=share)
        a = Z @ self.basis
        moved = self.mixture.mean[which] + np.einsum("nij,nj->ni", self.mixture.factor[which], a)
        Z += (moved - a) @ self.basis.T
        return Z

    def log_weight(self, Z: FloatArray) -> FloatArray:
        """Logarithm of the law's density over that of the mixture."""
        a = Z @ self.basis
        logs = np.empty((len(self.mixture), len(Z)))
        for i, factor in enumerate(self.mixture.factor):
            inverse = np.linalg.inv(factor)
            white = (a - self.mixture.mean[i]) @ inverse.T
            logs[i] = -0.5 * np.einsum("ij,ij->i", white, white) - np.log(np.diag(factor)).sum()
            logs[i] += math.log(self.mixture.share[i])
        top = logs.max(axis=0)
        return np.asarray(-0.5 * np.einsum("ij,ij->i", a, a) - top - np.log(np.exp(logs - top).sum(axis=0)))


def few_directions(groups: FloatArray, gradients: FloatArray, rng: np.random.Generator) -> FewDirections:
    """The mixture for points of an event in independent groups (groups, n, r), and gradients there (groups, m, r)."""
    basis = _basis(groups, gradients)
    points = groups.reshape(-1, groups.shape[2]) @ basis
    points = points[:: max(1, len(points) // MOST_POINTS)]
    independent = 0.5 * len(np.unique(points[:, 0]))
    return FewDirections(basis, fit(points, np.full(len(points), 1.0), MOST_MODES, rng, size=independent))


def _basis(groups: FloatArray, gradients: FloatArray) -> FloatArray:
    """Orthonormal columns: directions that one half of the groups proposes and the other half confirms."""
    r = groups.shape[2]
    halves = [groups[i::2].reshape(-1, r) for i in (0, 1)]
    slopes = [gradients[i::2].reshape(-1, r) for i in (0, 1)]
    proposed = [(v, 1 - i) for i in (0, 1) for v in _candidates(halves[i], slopes[i])]
    basis = np.zeros((r, 0))
    for v, judge in sorted(proposed, key=lambda pair: pair[0][0]):
        d = v[1] - basis @ (basis.T @ v[1])
        d -= basis @ (basis.T @ d)
        length = float(np.linalg.norm(d))
        if length < _NEW * float(np.linalg.norm(v[1])) or not length > 0.0:
            continue
        a = halves[judge] @ (d / length)
        spread = max(float(a.var()), 1e-12)
        if float(a.mean()) ** 2 + spread - 1.0 - math.log(spread) > _GAIN:
            basis = np.column_stack([basis, d / length])
        if basis.shape[1] == MOST_DIRECTIONS:
            break
    if basis.shape[1]:
        return basis
    mean = groups.reshape(-1, r).mean(axis=0)
    return (mean / max(float(np.linalg.norm(mean)), 1e-300))[:, None]


def _candidates(points: FloatArray, slopes: FloatArray) -> list[tuple[int, FloatArray]]:
    """Directions with their ranks: gradients, the mean, and axes of the covariance in not too many dimensions."""
    size = np.linalg.norm(slopes, axis=1, keepdims=True)
    unit = slopes[size[:, 0] > 0] / size[size[:, 0] > 0]
    out: list[tuple[int, FloatArray]] = []
    if len(unit):
        out.append((0, unit.mean(axis=0)))
        _, _, axes = np.linalg.svd(unit[:MOST_GRADIENTS], full_matrices=False)
        out += [(1 + k, v) for k, v in enumerate(axes[:_AXES])]
    mean = points.mean(axis=0)
    out.append((1 + _AXES, mean))
    if points.shape[1] <= _MANY:
        centred = points - mean
        _, axes = np.linalg.eigh(centred.T @ centred)
        wide = axes.T[::-1]
        out += [(2 + _AXES + k, v) for k, v in enumerate([*wide[:_AXES], *wide[::-1][:_AXES]])]
    return out
