"""First and second moments of a law restricted to a polytope: `E[x 1]`, `E[x x' 1]` with `1` for `A x <= b`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, generator, real, real_array
from reluscope.cells.domain import clip, half_spaces, starting_cell
from reluscope.errors import InputError
from reluscope.inputs import FAR, known_law
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS, MOST_SIMPLEX_DIMENSIONS
from reluscope.measure.regions.cell_moments import gaussian_moments, volume_moments
from reluscope.measure.regions.laws import box_rows

if TYPE_CHECKING:
    from reluscope.inputs import Gaussian, Law

_RANK = 1e-13
"""Directions with a singular value below this share of the largest are not seen by the rows."""


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """What `moments` returns: moments of `x` on a polytope, with `1` for being inside.

    Attributes
    ----------
    mass : float
        P(inside).
    first : (n,) array
        E[x 1].
    second : (n, n) array
        E[x x' 1].
    guarantee : str
        "exact" (rounding or quadrature only) or "confidence".
    first_error, second_error : arrays
        Standard errors of `first` and `second`; zeros where they are exact.
    """

    mass: float
    first: FloatArray
    second: FloatArray
    guarantee: str
    first_error: FloatArray
    second_error: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Mean of x given that it lies in the polytope."""
        return self.first / self.mass

    @property
    def cov(self) -> FloatArray:
        """Covariance of x given that it lies in the polytope."""
        return self.second / self.mass - np.outer(self.mean, self.mean)

    def __repr__(self) -> str:
        return f"Moments(mass {self.mass:.6g}, {len(self.first)} inputs, {self.guarantee})"


def moments(
    A: npt.ArrayLike,
    b: npt.ArrayLike,
    law: Law,
    *,
    relative: float = 1e-3,
    level: float = DEFAULT_LEVEL,
    rng: Any = None,
) -> Moments:
    """Mass, first and second moments of `x` from `law` on `A x <= b`.

    Parameters
    ----------
    A, b : (rows, inputs) and (rows,)
    law : Law
        The distribution of the inputs.
    relative : float
        Half-width of an estimated mass, relative to its value.
    level : float
        Confidence level of an estimated mass.
    rng : optional
        None, an int, a SeedSequence or a Generator.

    Returns
    -------
    Moments

    Raises
    ------
    InputError
        If rows and law do not fit, or the law has no closed form here.

    Notes
    -----
    Gaussian laws and mixtures: exact when the rows see at most three directions, else quasi-Monte Carlo with standard
    errors. Uniform laws: exact, by simplices, in up to five dimensions. Truncated laws: those of the Gaussian on
    both sets of rows, divided by the mass of the box. Particles: sums.

    Examples
    --------
    >>> import reluscope as rs
    >>> half = rs.measure.moments([[-1.0]], [0.0], rs.Gaussian([0.0]))  # x >= 0
    >>> round(half.mass, 6), half.mean.round(6).tolist()
    (0.5, [0.797885])
    """
    known_law(law)
    real(relative, "relative", low=0.0, high=1.0, open_=True)
    real(level, "level", low=0.0, high=1.0, open_=True)
    options: dict[str, Any] = {"relative": relative, "level": level, "rng": generator(rng)}
    rows: tuple[FloatArray, FloatArray] = (np.zeros((0, law.n)), np.zeros(0))
    A, b = real_array(A, "A"), real_array(b, "b", ndim=(0, 1), finite=False)
    if A.size:
        rows = half_spaces((A, b), law.n, "A, b")
    if law.atoms is not None:
        points, weights = law.atoms
        inside = (points @ rows[0].T <= rows[1]).all(axis=1)
        x, w = points[inside], weights[inside]
        return _exact(float(w.sum()), w @ x, (w[:, None] * x).T @ x)
    if law.pushed is not None:
        raise InputError("moments on a region have no closed form for a Copula; take them from law.sample(n, rng)")
    if law.gaussians:
        return _mixed([(w, _gaussian(g, *rows, options)) for w, g in law.gaussians])
    if law.is_mixture:
        return _mixed([(w, moments(A, b, part, **options)) for w, part in law.components if w > 0])
    if law.unrestricted is not law:  # a Gaussian given its box
        ((_, g),) = law.unrestricted.gaussians
        box = box_rows(law)
        both = np.concatenate([rows[0], box[0]]), np.concatenate([rows[1], box[1]])
        whole = _gaussian(g, *box, options).mass
        return _mixed([(1.0 / whole, _gaussian(g, *both, options))])
    return _uniform(law, *rows)


def _exact(mass: float, first: FloatArray, second: FloatArray) -> Moments:
    return Moments(mass, first, second, "exact", np.zeros_like(first), np.zeros_like(second))


def _mixed(parts: list[tuple[float, Moments]]) -> Moments:
    """Weighted sum; independent standard errors add in squares."""
    weakest = "confidence" if any(m.guarantee == "confidence" for _, m in parts) else "exact"
    return Moments(
        float(sum(w * m.mass for w, m in parts)),
        np.sum([w * m.first for w, m in parts], axis=0),
        np.sum([w * m.second for w, m in parts], axis=0),
        weakest,
        np.sqrt(np.sum([(w * m.first_error) ** 2 for w, m in parts], axis=0)),
        np.sqrt(np.sum([(w * m.second_error) ** 2 for w, m in parts], axis=0)),
    )


def _gaussian(law: Gaussian, A: FloatArray, b: FloatArray, options: dict[str, Any]) -> Moments:
    """`x = m + L u`: moments of u on `A L u <= b - A m`, then mapped to x.

    With an orthonormal basis V of the directions the rows see, `v = V' u` is restricted and the rest of u is not.
    """
    L = law.factor.push(np.eye(law.factor.k)).T
    rows, bounds = A @ L, b - A @ law.mean
    _, size, Vt = np.linalg.svd(rows, full_matrices=False)
    V = Vt[size > _RANK * size.max(initial=0.0)].T
    mass, m1, m2, e1, e2, exact = _standard(rows @ V, bounds, options)
    rest = np.eye(L.shape[1]) - V @ V.T
    u1, u2 = V @ m1, V @ m2 @ V.T + mass * rest
    shift, moved = law.mean, L @ u1
    first = shift * mass + moved
    second = np.outer(shift, shift) * mass + np.outer(shift, moved) + np.outer(moved, shift) + L @ u2 @ L.T
    if exact:
        return _exact(mass, first, second)
    LV = np.abs(L @ V)
    error1 = LV @ e1
    error2 = LV @ e2 @ LV.T + np.abs(np.outer(shift, error1)) + np.abs(np.outer(error1, shift))
    return Moments(mass, first, second, "confidence", error1, error2)


def _standard(
    A: FloatArray, b: FloatArray, options: dict[str, Any]
) -> tuple[float, FloatArray, FloatArray, FloatArray, FloatArray, bool]:
    """Moments of v ~ N(0, I_r) on `A v <= b`, their standard errors, and whether they are exact."""
    r = A.shape[1]
    none = np.zeros(r), np.zeros((r, r))
    if r == 0:
        return float((b >= 0).all()), *none, *none, True
    norm = np.linalg.norm(A, axis=1)
    if (b[norm == 0] < 0).any():
        return 0.0, *none, *none, True
    A, b = A[norm > 0] / norm[norm > 0, None], b[norm > 0] / norm[norm > 0]
    if r == 1:
        from reluscope.measure.exact import interval_moments

        sides = b / A[:, 0]
        low, high = max([-np.inf, *sides[A[:, 0] < 0]]), min([np.inf, *sides[A[:, 0] > 0]])
        if low >= high:
            return 0.0, *none, *none, True
        mass, one, two = (float(np.ravel(x)[0]) for x in interval_moments(low, high))
        return mass, np.array([one]), np.array([[two]]), *none, True
    if r <= MOST_EXACT_DIMENSIONS and (b > -FAR).all():
        try:
            cell = clip(starting_cell(r, box=(np.full(r, -FAR), np.full(r, FAR))), A, b)
        except InputError:  # no interior
            return 0.0, *none, *none, True
        m0, m1, m2 = gaussian_moments(cell)
        return float(m0[0]), m1[0], m2[0], *none, True
    from reluscope.measure.polytope import polytope_moments

    found = polytope_moments(A, b, **options)
    return found.mass.value, found.first, found.second, found.first_error, found.second_error, False


def _uniform(law: Law, A: FloatArray, b: FloatArray) -> Moments:
    """By volumes and moments of the polytope in the inputs that vary; the others are constants."""
    low, high = law.support()
    free = high > low
    d = int(free.sum())
    if d > MOST_SIMPLEX_DIMENSIONS:
        raise InputError(f"moments of a uniform law are exact for up to {MOST_SIMPLEX_DIMENSIONS} inputs, got {d}")
    fixed = np.where(free, 0.0, low)
    bounds = b - A @ fixed
    inner = A[:, free]
    empty = _exact(0.0, np.zeros(law.n), np.zeros((law.n, law.n)))
    norm = np.linalg.norm(inner, axis=1)
    if (bounds[norm == 0] < 0).any():
        return empty
    keep = norm > 0
    if d == 0:
        return _exact(1.0, fixed.copy(), np.outer(fixed, fixed))
    lower, upper = low[free], high[free]
    try:
        cell = clip(starting_cell(d, box=(lower, upper)), inner[keep] / norm[keep, None], bounds[keep] / norm[keep])
    except InputError:  # no interior
        return empty
    whole = np.prod(upper - lower)
    volume, one, two = (m[0] / whole for m in volume_moments(cell))
    mass = float(volume)
    first, second = np.zeros(law.n), np.zeros((law.n, law.n))
    first[free], second[np.ix_(free, free)] = one, two
    # The fixed inputs are constants: x = fixed + free part.
    second += np.outer(fixed, first) + np.outer(first, fixed) + mass * np.outer(fixed, fixed)
    return _exact(mass, first + mass * fixed, second)
