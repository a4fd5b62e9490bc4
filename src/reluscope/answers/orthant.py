"""The paper's formula (11) for the probability of a pattern, and its two approximations, as printed but corrected.

For a pattern z with stacked hidden map `h = C x + d` and `x ~ N(mu_k, S_k)` with weight a_k,

    P(z) = sum_k a_k P(h_k in box(z)),      h_k ~ N(C mu_k + d, C S_k C'),

where box(z) is the orthant of z for ReLU units, a product of intervals for others. The covariance has rank at most the
number of inputs, so it is singular whenever there are more hidden units than inputs; the formula needs it to be
invertible. These functions are here to be compared with: `reluscope.linear_models` measures the same polytope
in the input's own coordinates and needs none of this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, generator, integer
from reluscope._lazy import late
from reluscope.errors import InputError
from reluscope.inputs import Law
from reluscope.network import Network

ORTHANT_METHODS = ("orthant", "diagonal", "lowrank")

_FLAT = 1e-14
"""A unit whose standard deviation is below this share of the size of its terms is constant."""

_POINTS = 1 << 13


def orthant_masses(
    net: Network,
    law: Law,
    patterns: npt.ArrayLike,
    method: str = "orthant",
    *,
    rank: int = 2,
    rng: Any = None,
    max_points: int | None = None,
) -> FloatArray:
    """Probabilities of patterns by formula (11) of the paper; estimates without a guarantee.

    Parameters
    ----------
    net : Network
    law : Law
        Gaussian, or a mixture of Gaussians.
    patterns : (n, units)
    method : {"orthant", "diagonal", "lowrank"}
        See Notes.
    rank : int
        Factors of "lowrank".
    rng : optional
        None, an int, a SeedSequence or a Generator.
    max_points : int, optional
        Bounds the work of scipy.

    Returns
    -------
    (n,) array

    Raises
    ------
    InputError
        If the law has no Gaussian components, or a pattern does not fit the network.

    Notes
    -----
    - "orthant": the Gaussian box probability by `scipy.stats.multivariate_normal.cdf` (randomised, absolute error
      1e-5 at best). Singular covariances are passed on as they are; units that are constant on a component are decided
      and left out, since the formula has no meaning for them.
    - "diagonal": the covariance's off-diagonal entries are dropped, a product of Phi's. Off by factors of 1.2 to 250
      in practice: hidden units that see the same few inputs are anything but independent.
    - "lowrank": correlation matrix = diagonal + `rank` principal factors, `E_z prod_i P(h_i in side_i | z)` over z in
      R^rank by 8192 scrambled Sobol points. Rank 0 is the diagonal one; from the law's own rank on nothing is dropped.

    Cost: one dense map of all units per pattern and component.

    Examples
    --------
    >>> from reluscope import Gaussian, Network
    >>> net = Network([([[1.0], [1.0]], [0.0, -1.0]), ([[1.0, 1.0]], None)])
    >>> orthant_masses(net, Gaussian([0.0]), [[0, 0], [1, 1]], "diagonal").round(4).tolist()
    [0.4207, 0.0793]
    """
    from reluscope.inputs import check_law

    choice(method, "method", ORTHANT_METHODS)
    if not check_law(law, net).gaussians:
        raise InputError(f"formula (11) is for Gaussian laws and mixtures, got {describe(law)}")
    rank = integer(rank, "rank", low=0)
    rng = generator(rng)
    rows = np.atleast_2d(net._patterns(patterns))
    factors = [(w, g.mean, g.factor.push(np.eye(g.factor.k)).T) for w, g in law.gaussians]
    normal = _sobol(rank, rng) if method == "lowrank" and rank else np.zeros((1, 0))
    out = np.zeros(len(rows))
    for i, pattern in enumerate(rows):
        C, d, low, high = _stacked(net, pattern)
        for weight, mean, L in factors:
            centre, spread = C @ mean + d, C @ L
            size = np.sqrt((spread**2).sum(axis=1))
            terms = np.abs(C) @ (np.abs(mean) + np.abs(L).sum(axis=1)) + np.abs(d)
            live = size > _FLAT * terms
            fixed = centre[~live]
            # By the tie rule a constant on a break point belongs to the piece below it.
            if ((fixed <= low[~live]) | (fixed > high[~live])).any():
                continue
            lower, upper = (low - centre)[live] / size[live], (high - centre)[live] / size[live]
            unit = spread[live] / size[live, None]
            out[i] += weight * _box(method, unit, lower, upper, rank, normal, rng, max_points)
    return out


def _stacked(net: Network, pattern: npt.NDArray[np.uint8]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Equation (6): the maps of all hidden units on a pattern, and the ends of each unit's piece."""
    maps = net.affine(pattern).hidden
    if not maps:
        return np.zeros((0, net.n_inputs)), np.zeros(0), np.zeros(0), np.zeros(0)
    breaks = [
        np.column_stack([np.full(layer.width, -np.inf), layer.units.breaks, np.full(layer.width, np.inf)])
        for layer in net.hidden
    ]
    pieces = [pattern[net.offsets[i] : net.offsets[i + 1]].astype(np.intp) for i in range(len(maps))]
    low = [b[np.arange(len(p)), p] for b, p in zip(breaks, pieces, strict=True)]
    high = [b[np.arange(len(p)), p + 1] for b, p in zip(breaks, pieces, strict=True)]
    C, d = np.concatenate([m[0] for m in maps]), np.concatenate([m[1] for m in maps])
    return C, d, np.concatenate(low), np.concatenate(high)


def _box(
    method: str,
    unit: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    rank: int,
    normal: FloatArray,
    rng: np.random.Generator,
    max_points: int | None,
) -> float:
    """`P(lower < unit u < upper)` for u ~ N(0, I), rows of `unit` of length one."""
    ndtr = late("scipy.special", "ndtr")

    if not len(lower):
        return 1.0
    if method == "diagonal" or (method == "lowrank" and rank == 0):
        return float(np.prod(_sides(lower, upper)))
    if method == "lowrank":
        values, vectors = np.linalg.eigh(unit @ unit.T)
        keep = np.argsort(values)[::-1][:rank]
        V = vectors[:, keep] * np.sqrt(np.maximum(values[keep], 0.0))
        rest = np.sqrt(np.maximum(1.0 - (V**2).sum(axis=1), 0.0))
        shift = normal[:, : V.shape[1]] @ V.T
        with np.errstate(divide="ignore", invalid="ignore"):
            # Where nothing is left over the factor decides: a step, here one of tiny width.
            width = np.maximum(rest, 1e-9)
            return float(np.prod(ndtr((upper - shift) / width) - ndtr((lower - shift) / width), axis=1).mean())
    multivariate_normal = late("scipy.stats", "multivariate_normal")

    correlation = unit @ unit.T
    # One-sided boxes (every ReLU pattern) are mirrored so that all lower ends are -inf, as scipy likes it best.
    flip = np.where(np.isinf(upper), -1.0, 1.0)
    a, b = np.where(flip < 0, -upper, lower), np.where(flip < 0, -lower, upper)
    found = multivariate_normal.cdf(
        b,
        mean=np.zeros(len(b)),
        cov=correlation * np.outer(flip, flip),
        allow_singular=True,
        lower_limit=a,
        maxpts=max_points,
        rng=rng,
    )
    return float(np.clip(found, 0.0, 1.0))


def _sides(lower: FloatArray, upper: FloatArray) -> FloatArray:
    from reluscope.measure.exact import interval_mass

    return interval_mass(lower, upper)


def _sobol(rank: int, rng: np.random.Generator) -> FloatArray:
    ndtri = late("scipy.special", "ndtri")
    qmc = late("scipy.stats", "qmc")

    points = qmc.Sobol(rank, scramble=True, rng=rng).random(_POINTS)
    return ndtri(np.clip(points, 1e-16, 1 - 1e-16))
