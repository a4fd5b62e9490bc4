"""Directions from a mixture of projected Gaussians, with their exact density on the sphere.

If z ~ N(m, C) then w = z / |z| has, relative to the uniform law on the unit sphere of R^r (area A), the density

    A (2 pi)^(-r/2) |C|^(-1/2) a^(-r/2) exp(-(c - h^2) / 2) I(h)

with `a = w'C^-1 w`, `c = m'C^-1 m`, `h = w'C^-1 m / sqrt(a)` and `I(h)` the integral of `s^(r-1) exp(-(s - h)^2 / 2)`
over s > 0. A law that is nearly a mixture of Gaussians has nearly the same mixture of projected Gaussians as its law of
directions: so Gaussians are fitted to points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.measure.normal import LOG_SQRT_2PI, log_upper_tail, upper_tail

_EXTRA = 60
_MILD = 64.0
_SWELL = 1.15
"""Fitted covariances are enlarged so much: a proposal that is too wide costs little, one too narrow costs much."""


@dataclass(frozen=True, eq=False)
class Directions:
    """Gaussians with shares (k,), means (k, r) and lower Cholesky factors (k, r, r) of the covariances."""

    share: FloatArray
    mean: FloatArray
    factor: FloatArray

    def __len__(self) -> int:
        return len(self.share)

    def points(self, which: int, normal: FloatArray) -> FloatArray:
        """Draws of component `which` from standard normal numbers (n, r)."""
        return self.mean[which] + normal @ self.factor[which].T

    def log_density(self, W: FloatArray) -> FloatArray:
        """Logarithm of the density of each component at unit vectors `W`, relative to the uniform, shape (k, n)."""
        k, r = self.mean.shape
        out = np.empty((k, len(W)))
        base = math.log(2.0) - 0.5 * r * math.log(2.0) - math.lgamma(0.5 * r)
        for i in range(k):
            inverse = np.linalg.inv(self.factor[i])
            white = W @ inverse.T
            m = inverse @ self.mean[i]
            a = np.einsum("ij,ij->i", white, white)
            h = white @ m / np.sqrt(a)
            _log_radial_integral(r, h, out[i])
            out[i] += base - np.log(np.diag(self.factor[i])).sum() - 0.5 * r * np.log(a) - 0.5 * (m @ m - h * h)
        return out


@kernel
def _log_radial_integral(r: int, h: Any, out: Any) -> None:
    """log of the integral of s^(r-1) exp(-(s - h)^2/2) over s > 0, by stable recursions on ratios of such integrals."""
    for i in range(h.size):
        x = h[i]
        total = LOG_SQRT_2PI + log_upper_tail(-x)
        if x > 0.0 or x * x * r < _MILD:
            # Upwards: all terms positive for x > 0; below, errors grow by exp(2 |x| sqrt(r)) at most.
            ratio = x + math.exp(-0.5 * x * x - LOG_SQRT_2PI) / upper_tail(-x)
            for k in range(1, r):
                total += math.log(ratio)
                ratio = x + k / ratio
        else:
            # Downwards; the error of the first guess falls by exp(-2 |x| (sqrt(top) - sqrt(r))).
            top = 8 * r + _EXTRA
            ratio = 0.5 * (x + math.sqrt(x * x + 4.0 * top))
            for k in range(top - 1, 0, -1):
                ratio = k / (ratio - x)
                if k < r:
                    total += math.log(ratio)
        out[i] = total


def fit(
    points: FloatArray, weights: FloatArray, most: int, rng: np.random.Generator, size: float | None = None
) -> Directions:
    """A Gaussian mixture for weighted points, up to `most` components, by the criterion BIC.

    `size` says for how many independent points they count (by default what their weights say).
    """
    weights = weights / weights.sum()
    size = 1.0 / float((weights**2).sum()) if size is None else size
    best: tuple[float, Directions] | None = None
    k = 1
    while k <= most and (k == 1 or size >= 4 * k * (points.shape[1] + 1)):
        found, score = _expectation_maximisation(points, weights, _seeds(points, weights, k, rng), size)
        parameters = k * (1 + points.shape[1] + 0.5 * points.shape[1] * (points.shape[1] + 1))
        value = size * score - 0.5 * parameters * math.log(max(size, 2.0))
        if best is None or value > best[0]:
            best = value, found
        elif k > 2:
            break
        k *= 2
    assert best is not None
    return best[1]


def refit(points: FloatArray, weights: FloatArray, start: Directions) -> Directions:
    """The mixture moved to weighted points."""
    weights = weights / weights.sum()
    size = 1.0 / float((weights**2).sum())
    logs = _log_normal(points, start) + np.log(start.share)[:, None]
    top = logs.max(axis=0)
    belongs = np.exp(logs - top)
    belongs /= belongs.sum(axis=0)
    return _expectation_maximisation(points, weights, belongs, size, 4)[0]


def join(parts: list[tuple[float, Directions]]) -> Directions:
    """Mixtures put together with the given amounts."""
    total = sum(amount for amount, _ in parts)
    return Directions(
        np.concatenate([amount / total * part.share for amount, part in parts]),
        np.concatenate([part.mean for _, part in parts]),
        np.concatenate([part.factor for _, part in parts]),
    )


def modes_of(mixture: Directions) -> int:
    """Groups of components that lie apart: means more than 3 standard deviations from one another."""
    k = len(mixture)
    group = np.arange(k)
    for i in range(k):
        for j in range(i):
            cov = sum(mixture.factor[q] @ mixture.factor[q].T for q in (i, j)) / 2.0
            away = mixture.mean[i] - mixture.mean[j]
            if away @ np.linalg.solve(cov, away) < 9.0:
                group[group == group[i]] = group[j]
    live = mixture.share >= 0.01 * mixture.share.max()
    return len(np.unique(group[live]))


def _seeds(points: FloatArray, weights: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """Memberships (k, n) of the nearest of k seeds, spread out over the points (the k-means++ rule)."""
    centres = [points[rng.choice(len(points), p=weights)]]
    distance = ((points - centres[0]) ** 2).sum(axis=1)
    for _ in range(k - 1):
        chance = weights * distance
        total = chance.sum()
        pick = rng.choice(len(points), p=chance / total) if total > 0 else 0
        centres.append(points[pick])
        distance = np.minimum(distance, ((points - centres[-1]) ** 2).sum(axis=1))
    near = np.argmin([((points - c) ** 2).sum(axis=1) for c in centres], axis=0)
    return np.asarray(near[None] == np.arange(k)[:, None], dtype=np.float64)


def _expectation_maximisation(
    points: FloatArray, weights: FloatArray, belongs: FloatArray, size: float, rounds: int = 12
) -> tuple[Directions, float]:
    """The mixture after some rounds, and the mean log-likelihood."""
    score = -np.inf
    for _ in range(rounds):
        found = _maximise(points, weights, belongs, size)
        logs = _log_normal(points, found) + np.log(found.share)[:, None]
        top = logs.max(axis=0)
        each = np.exp(logs - top)
        total = each.sum(axis=0)
        belongs = each / total
        before, score = score, float(weights @ (top + np.log(total)))
        if abs(score - before) < 1e-3:
            break
    wide = Directions(found.share, found.mean, found.factor * math.sqrt(_SWELL))
    return wide, score


def _maximise(points: FloatArray, weights: FloatArray, belongs: FloatArray, size: float) -> Directions:
    """Shares, means and covariances; each covariance leans on the pooled one with the weight of r + 2 points."""
    r = points.shape[1]
    joint = belongs * weights
    share = joint.sum(axis=1)
    keep = share * size >= 2.0
    if not keep.any():
        keep[np.argmax(share)] = True
    joint, share = joint[keep], share[keep]
    mean = (joint @ points) / share[:, None]
    own = np.empty((len(share), r, r))
    for i in range(len(share)):
        z = points - mean[i]
        own[i] = (z * (joint[i] / share[i])[:, None]).T @ z
    prior = r + 2.0
    pooled = np.tensordot(share / share.sum(), own, 1)
    # The pooled covariance in turn leans on its diagonal, and never gets singular.
    lean = prior / (size + prior)
    diagonal = np.diag(pooled)
    pooled = (1.0 - lean) * pooled + np.diag(lean * diagonal + 1e-6 * diagonal.max() + 1e-200)
    count = share**2 / (joint**2).sum(axis=1)
    lean = prior / (np.maximum(count - 1.0, 0.0) + prior)
    cov = (1.0 - lean)[:, None, None] * own + lean[:, None, None] * pooled
    return Directions(share / share.sum(), mean, np.linalg.cholesky(cov))


def _log_normal(points: FloatArray, mixture: Directions) -> FloatArray:
    """Log densities (k, n), up to a constant."""
    out = np.empty((len(mixture), len(points)))
    for i in range(len(mixture)):
        inverse = np.linalg.inv(mixture.factor[i])
        white = (points - mixture.mean[i]) @ inverse.T
        out[i] = -0.5 * np.einsum("ij,ij->i", white, white) - np.log(np.diag(mixture.factor[i])).sum()
    return out
