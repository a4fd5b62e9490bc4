"""The paper's formulas (11) and (20), for patterns and for the density of outputs, with their two approximations.

For a pattern z with stacked hidden map `h = C x + d` and `x ~ N(mu_k, S_k)` with weight a_k,

    P(z) = sum_k a_k P(h_k in box(z)),      h_k ~ N(C mu_k + d, C S_k C'),

where box(z) is the orthant of z for ReLU units, a product of intervals for others. The covariance has rank at most the
number of inputs, so it is singular whenever there are more hidden units than inputs; the formula needs it to be
invertible. These functions are here to be compared with: `reluscope.linear_models` and
`reluscope.outputs` measure the same polytopes in the input's own coordinates and need none of this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, generator, integer, real_array
from reluscope._lazy import late
from reluscope.errors import InputError
from reluscope.inputs import Law
from reluscope.network import Network, pattern_rows

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
    rows = np.atleast_2d(pattern_rows(net, patterns))
    factors = [(w, g.mean, g.factor.push(np.eye(g.factor.k)).T) for w, g in law.gaussians]
    normal = _sobol(rank, rng) if method == "lowrank" and rank else np.zeros((1, 0))
    out = np.zeros(len(rows))
    for i, pattern in enumerate(rows):
        C, d, low, high = _stacked(net, pattern)
        for weight, mean, L in factors:
            centre, spread = C @ mean + d, C @ L
            terms = np.abs(C) @ (np.abs(mean) + np.abs(L).sum(axis=1)) + np.abs(d)
            out[i] += weight * _orthant_given(centre, spread, terms, low, high, method, rank, normal, rng, max_points)
    return out


def orthant_density(
    net: Network,
    law: Law,
    patterns: npt.ArrayLike,
    y: npt.ArrayLike,
    method: str = "orthant",
    *,
    rank: int = 2,
    rng: Any = None,
    max_points: int | None = None,
) -> FloatArray:
    """Joint density of the outputs by formula (20) of the paper, summed over patterns; estimates without a guarantee.

    Parameters
    ----------
    net : Network
    law : Law
        Gaussian, or a mixture of Gaussians.
    patterns : (n, units)
        The sum runs over these; patterns that are not listed are left out.
    y : (k, outputs)
        Where the density is asked for.
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
    (k,) array

    Raises
    ------
    InputError
        If the law has no Gaussian components, or patterns or points do not fit the network.

    Notes
    -----
    The integrand of (20) is the density of hidden values and outputs together; we write it as the density of the
    outputs times the probability of the orthant given them, `N(y; e, T T') P(h in box(z) | y)` with `y = e + T u`. Maps
    without a density (T of lower rank than outputs) add nothing. "orthant" takes that conditional probability by
    scipy, "lowrank" by a diagonal and `rank` factors of the *conditional* correlation. "diagonal" drops all
    off-diagonal entries of the joint covariance, as the paper says: outputs are then independent of hidden
    values and of one another. `reluscope.outputs(...).joint_pdf` is the exact one.

    Examples
    --------
    >>> from reluscope import Gaussian, Network
    >>> net = Network([([[1.0]], [0.0]), ([[2.0]], None)])
    >>> orthant_density(net, Gaussian([0.0]), [[0], [1]], [[1.0], [-1.0]]).round(6).tolist()
    [0.176033, 0.0]
    """
    from reluscope.inputs import check_law

    choice(method, "method", ORTHANT_METHODS)
    if not check_law(law, net).gaussians:
        raise InputError(f"formula (20) is for Gaussian laws and mixtures, got {describe(law)}")
    rank = integer(rank, "rank", low=0)
    rng = generator(rng)
    rows, points = np.atleast_2d(pattern_rows(net, patterns)), real_array(y, "y", ndim=2)
    if points.shape[1] != net.n_outputs:
        raise InputError(f"y must have one column for each of {net.n_outputs} outputs, got shape {points.shape}")
    normal = _sobol(rank, rng) if method == "lowrank" and rank else np.zeros((1, 0))
    out = np.zeros(len(points))
    for weight, part in law.gaussians:
        mean, L = part.mean, part.factor.push(np.eye(part.factor.k)).T
        for pattern in rows:
            maps = net.affine(pattern)
            C, d, low, high = _stacked(net, pattern)
            e, T, centre, spread = maps.C @ mean + maps.d, maps.C @ L, C @ mean + d, C @ L
            if np.linalg.matrix_rank(T, rtol=1e-10) < len(e):
                continue
            terms = np.abs(C) @ (np.abs(mean) + np.abs(L).sum(axis=1)) + np.abs(d)
            if method == "diagonal":
                size = np.sqrt((T**2).sum(axis=1))
                z = (points - e) / size
                dense = np.exp(-0.5 * (z**2).sum(axis=1)) / np.prod(size * np.sqrt(2 * np.pi))
                out += weight * dense * _orthant_given(centre, spread, terms, low, high, method, 0, normal, rng, None)
                continue
            left, size, right = np.linalg.svd(T, full_matrices=True)
            u = ((points - e) @ left / size) @ right[: len(e)]  # the input nearest to the mean with outputs y
            dense = np.exp(-0.5 * (u**2).sum(axis=1)) / np.prod(size * np.sqrt(2 * np.pi))
            for k in np.flatnonzero(dense > 0).tolist():
                at, rest = centre + spread @ u[k], spread @ right[len(e) :].T
                inside = _orthant_given(at, rest, terms, low, high, method, rank, normal, rng, max_points)
                out[k] += weight * dense[k] * inside
    return out


def _orthant_given(
    centre: FloatArray,
    spread: FloatArray,
    terms: FloatArray,
    low: FloatArray,
    high: FloatArray,
    method: str,
    rank: int,
    normal: FloatArray,
    rng: np.random.Generator,
    max_points: int | None,
) -> float:
    """`P(low < centre + spread u <= high)` for u ~ N(0, I); units that are constant are decided and left out."""
    size = np.sqrt((spread**2).sum(axis=1))
    live = size > _FLAT * terms
    fixed = centre[~live]
    # By the tie rule a constant on a break point belongs to the piece below it.
    if ((fixed <= low[~live]) | (fixed > high[~live])).any():
        return 0.0
    lower, upper = (low - centre)[live] / size[live], (high - centre)[live] / size[live]
    return _box(method, spread[live] / size[live, None], lower, upper, rank, normal, rng, max_points)


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
