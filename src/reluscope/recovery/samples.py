"""`method="samples"`: the convex fit of linear models at samples, localised to balls, and the baselines beside it.

At samples v_i with gradients the function has the linear models `g_i`. Localised to balls, `g~_i = g_i on B(v_i, r_i),
else 0`, they are combined as `h = sum_i w_i g~_i`, or with the products of overlapping pieces as
`h' = sum_i w_i g~_i + sum_{i<j} w'_ij g~_i g~_j`, with the weights that minimise one objective on the box D,

    L = int_D (h - f)^2 dx = w'G w - 2 b'w + const,      G = int_D t t' dx,   b = int_D t f dx,   t the terms of h.

The integral is taken by quadrature: the mean over points of D at which the oracle is asked for f. Both problems share
the points, and the larger one starts from the solution of the smaller one and goes down from there, so the
interaction terms never fit worse. A quarter of the points says when to stop: there may be more terms than points.

Convexity. h and h' are linear in their weights, so L is quadratic in them and its Hessian 2G is a Gram matrix: positive
semidefinite always, with interactions too, and an L1 penalty keeps it convex. Neither disjoint balls nor diagonal
dominance is needed for that. What they bring is a *unique* minimum: G is regular if and only if the terms are
linearly independent on D.
Outside all balls h is 0: with nearly disjoint balls, as first proposed, the fit is worse than a constant. Balls here
overlap (radius: distance to a near neighbour times `overlap`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from reluscope._check import FloatArray, real_array
from reluscope._lazy import late
from reluscope.budget import Budget
from reluscope.recovery.balls import gram
from reluscope.recovery.critical import gradients
from reluscope.recovery.view import View

KINDS = ("balls", "interactions", "nearest", "inverse distance")
_FEWEST_POINTS, _MOST_POINTS = 4096, 16384
"""Points of the box at which the objective is taken, unless the caller says how many."""
_EIGEN = 2500
"""Terms up to which all eigenvalues of a Hessian are computed."""
_ROWS = 200
"""Rows of a larger Hessian that are looked at."""
_ENTRIES = 4_000_000
"""Entries of the matrix of all terms at all points, about, unless the caller says how many points."""
_STEPS = 400
"""Steps of the conjugate gradients for the interaction terms."""


@dataclass(frozen=True)
class HessianReport:
    """The Hessian `2 G` of a fit: extreme eigenvalues, condition number, Gershgorin margin, uniqueness.

    It is a Gram matrix, so the fit is convex whatever stands here. `margin` is the smallest `H_ii - sum_j |H_ij|`:
    positive means diagonally dominant. `unique` says whether the smallest eigenvalue exceeds rounding, so that the
    weights are determined.

    Attributes
    ----------
    terms, points : int
        Size of the Hessian, and points of the quadrature. With more terms than points it is singular.
    smallest, largest, condition, margin : float
        With more than 2,500 terms `smallest` and `margin` are upper bounds, `largest` and `condition` lower bounds.
    dominant_rows : float
        Share of the rows that are diagonally dominant (of 200 rows, with more than 2,500 terms).
    unique : bool or None
        None where the eigenvalues are bounds that do not settle it.
    bounds : bool
        Whether the eigenvalues are bounds.
    """

    terms: int
    points: int
    smallest: float
    largest: float
    condition: float
    margin: float
    dominant_rows: float
    unique: bool | None
    bounds: bool = False

    def __str__(self) -> str:
        least, most = ("at least ", "at most ") if self.bounds else ("", "")
        what = {True: "unique", False: "not unique", None: "perhaps not unique"}[self.unique]
        return (
            f"convex; {self.terms:,} terms, smallest eigenvalue {most}{self.smallest:.3g}, condition "
            f" {least}{self.condition:.3g}, Gershgorin margin {most}{self.margin:.3g} ({self.dominant_rows:.0%} of "
            f"rows dominant); the weights are {what}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(self.__dict__)


@dataclass(frozen=True, eq=False, repr=False)
class LocalFit:
    """Linear models at samples and the weights of their localised combination, in the box's own coordinates.

    `centres` (N, inputs), `values` (N,), `slopes` (N, inputs), `radii` (N,) in the metric of the box scaled to [-1,
    1]^n, `weights` (N,); `pairs` (M, 2) and `pair_weights` (M,) belong to the interaction terms `g~_i g~_j`: all pairs
    of balls that meet in a point of the quadrature.

    Attributes
    ----------
    centre, half : (inputs,) arrays
        The box.
    centres, slopes : (N, inputs) arrays
    values, radii, weights : (N,) arrays
    base, pair_weights : (N,) and (M,) arrays
        Weights of the fit with interaction terms.
    pairs : (M, 2) array
    hessian, pair_hessian : HessianReport
        Without and with interaction terms.
    gram, linear : (N, N) and (N,) arrays
        The fit minimises `w' gram w - 2 linear' w`.
    objective, pair_objective : float
        Mean squared error on the box, by the quadrature that was minimised: without and with interaction terms.
    spread : float
        Standard deviation of f on the box: the error of the best constant.
    points, point_values : (Q, inputs) and (Q,) arrays
        The quadrature in the scaled box, and f there.
    """

    centre: FloatArray
    half: FloatArray
    centres: FloatArray
    values: FloatArray
    slopes: FloatArray
    radii: FloatArray
    weights: FloatArray
    base: FloatArray
    pairs: npt.NDArray[np.intp]
    pair_weights: FloatArray
    hessian: HessianReport
    pair_hessian: HessianReport
    gram: FloatArray
    linear: FloatArray
    objective: float
    pair_objective: float
    spread: float
    points: FloatArray
    point_values: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        n = self.centres.shape[1]
        return f"LocalFit({len(self)} linear models in R^{n}, condition {self.hessian.condition:.1e})"

    def __call__(self, X: npt.ArrayLike, kind: str = "nearest", power: float = 4.0) -> FloatArray:
        """Values at the rows of `X`, shape (n,).

        `kind`: "balls" is the convex fit, "interactions" adds the products of overlapping pieces, "nearest" takes the
        piece of the nearest sample, "inverse distance" averages all pieces with weights `distance^-power`.
        """
        from reluscope._check import choice

        choice(kind, "kind", KINDS)
        U = (real_array(X, "X", ndim=2) - self.centre) / self.half
        step = max(1, (1 << 22) // len(self))
        return np.concatenate([self._part(U[i : i + step], kind, power) for i in range(0, len(U), step)])

    def nearest(self, X: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Index of the nearest sample of each row.

        Parameters
        ----------
        X : (n, inputs)

        Returns
        -------
        (n,) array of int
        """
        KDTree = late("scipy.spatial", "KDTree")

        U = (real_array(X, "X", ndim=2) - self.centre) / self.half
        return np.asarray(KDTree(self.centres).query(U)[1])

    def whole_balls(self) -> FloatArray:
        """The Gram matrix over whole balls in closed form, shape (N, N): `gram` but for what sticks out of the box.

        Returns
        -------
        (N, N) array
        """
        return gram(self.centres, self.slopes, self.values, self.radii)

    def terms(self, X: npt.ArrayLike) -> FloatArray:
        """The localised pieces and the products of overlapping pairs at the rows of `X`, shape (n, N + M).

        Parameters
        ----------
        X : (n, inputs)

        Returns
        -------
        (n, N + M) array
        """
        U = (real_array(X, "X", ndim=2) - self.centre) / self.half
        planes = U @ self.slopes.T + (self.values - (self.slopes * self.centres).sum(axis=1))
        local = np.where(_distances(U, self.centres) <= self.radii, planes, 0.0)
        return np.concatenate([local, local[:, self.pairs[:, 0]] * local[:, self.pairs[:, 1]]], axis=1)

    def _part(self, U: FloatArray, kind: str, power: float) -> FloatArray:
        apart = _distances(U, self.centres)
        planes = U @ self.slopes.T + (self.values - (self.slopes * self.centres).sum(axis=1))
        if kind == "nearest":
            return np.asarray(planes[np.arange(len(U)), apart.argmin(axis=1)])
        if kind == "inverse distance":
            share = np.maximum(apart, 1e-12) ** -power
            return np.asarray((share * planes).sum(axis=1) / share.sum(axis=1))
        local = np.where(apart <= self.radii, planes, 0.0)
        if kind == "balls":
            return np.asarray(local @ self.weights)
        products = local[:, self.pairs[:, 0]] * local[:, self.pairs[:, 1]]
        return np.asarray(local @ self.base + products @ self.pair_weights)


def l1_path(G: FloatArray, b: FloatArray, penalties: FloatArray, rounds: int = 2000) -> FloatArray:
    """Minimisers of `w'Gw - 2 b'w + 2 penalty |w|_1`, one row per penalty, by coordinate descent."""
    w, found = np.zeros(len(b)), []
    for penalty in penalties:
        _coordinates(np.ascontiguousarray(G), b, float(penalty), rounds, w)
        found.append(w.copy())
    return np.array(found)


@njit(cache=True, error_model="numpy")
def _coordinates(G: FloatArray, b: FloatArray, penalty: float, rounds: int, w: FloatArray) -> None:
    """Coordinate descent in place, until no weight moves by more than 1e-6 of the largest."""
    rest = b - G @ w
    for _ in range(rounds):
        moved = 0.0
        for i in range(len(w)):
            size = max(G[i, i], 1e-300)
            pull = rest[i] + G[i, i] * w[i]
            new = np.sign(pull) * max(abs(pull) - penalty, 0.0) / size
            if new != w[i]:
                step = new - w[i]
                for k in range(len(w)):
                    rest[k] -= step * G[i, k]
                moved = max(moved, abs(step))
                w[i] = new
        if moved <= 1e-6 * max(np.abs(w).max(), 1e-12):
            break


def fit_samples(
    view: View, samples: int, overlap: float, points: int | None, limit: Budget, rng: np.random.Generator
) -> LocalFit:
    """Linear models at samples, radii, and both convex problems solved on the box.

    Costs `samples * (inputs + 2)` queries for the models, and one for each point of the quadrature.
    """
    KDTree = late("scipy.spatial", "KDTree")

    n = view.n
    step = np.full(samples, 1e-4 if view.relative < 1e-10 else 1e-2)
    centres = view.draw(samples, rng)
    slopes, _, good = gradients(view, centres, step)
    for shrink in (0.1, 0.01):  # a kink inside the stencil: nearer, or another sample
        again = np.flatnonzero(~good)
        if not len(again):
            break
        slopes[again], _, good[again] = gradients(view, centres[again], shrink * step[again])
    centres, slopes = centres[good], slopes[good]
    values = view.values(centres)
    k = min(2 * n + 1, len(centres))
    near = KDTree(centres).query(centres, k=k)[0][:, -1] if len(centres) > 1 else np.ones(1)
    radii = overlap * near
    U = _quadrature(n, _how_many(points, centres, radii, view.oracle.left), rng)
    f = view.values(U)
    return _solve(view, centres, values, slopes, radii, U, f, limit)


def _how_many(points: int | None, centres: FloatArray, radii: FloatArray, left: float) -> int:
    """Points of the quadrature: 8 for each term, within limits, unless the caller says."""
    if points is None:
        apart = _distances(centres, centres)
        pairs = int((np.triu(apart < radii[:, None] + radii, 1)).sum())
        around = float(((apart <= radii).sum(axis=1) ** 2).mean()) / 2  # terms that are not 0 at a point, about
        most = np.clip(_ENTRIES / around, _FEWEST_POINTS, _MOST_POINTS)
        points = int(np.clip(8 * (len(centres) + pairs), _FEWEST_POINTS, most))
    return int(max(min(points, left), 1))


def _quadrature(n: int, count: int, rng: np.random.Generator) -> FloatArray:
    """Points of [-1, 1]^n, each with the same weight: scrambled Sobol points, independent ones in many dimensions."""
    if n > 64:
        return rng.uniform(-1, 1, (count, n))
    qmc = late("scipy.stats", "qmc")
    return np.asarray(2 * qmc.Sobol(n, rng=rng).random_base2(int(np.ceil(np.log2(count))))[:count] - 1)


def _solve(
    view: View,
    centres: FloatArray,
    values: FloatArray,
    slopes: FloatArray,
    radii: FloatArray,
    U: FloatArray,
    f: FloatArray,
    limit: Budget,
) -> LocalFit:
    sparse = late("scipy", "sparse")

    N, Q = len(centres), len(U)
    volume = 2.0 ** U.shape[1] / Q
    local = _local(U, centres, values, slopes, radii)
    G = volume * (local.T @ local).toarray()
    b = volume * (local.T @ f)
    weights: FloatArray = np.asarray(np.linalg.lstsq(G, b, rcond=1e-10)[0], dtype=np.float64)
    products, pairs = _products(local, N)
    A = sparse.hstack([local, products], format="csr")
    both = _descend(A, f, np.concatenate([weights, np.zeros(len(pairs))]), N, limit)
    objective, pair_objective = (float(((A @ w - f) ** 2).mean()) for w in (np.pad(weights, (0, len(pairs))), both))
    return LocalFit(
        view.centre, view.half, centres, values, slopes, radii, weights, both[:N], pairs, both[N:],
        _hessian(2 * G, Q), _pair_hessian(A, 2 * volume, Q), G, b, objective, pair_objective, float(f.std()), U, f,
    )  # fmt: skip


def _local(U: FloatArray, centres: FloatArray, values: FloatArray, slopes: FloatArray, radii: FloatArray) -> Any:
    """The localised pieces at the rows of U, a sparse (Q, N) matrix."""
    sparse = late("scipy", "sparse")

    step, parts = max(1, (1 << 22) // len(centres)), []
    offsets = values - (slopes * centres).sum(axis=1)
    for i in range(0, len(U), step):
        rows = U[i : i + step]
        at, ball = np.nonzero(_distances(rows, centres) <= radii)
        entries = (rows[at] * slopes[ball]).sum(axis=1) + offsets[ball]
        parts.append(sparse.csr_matrix((entries, (at, ball)), shape=(len(rows), len(centres))))
    return sparse.vstack(parts, format="csr")


def _products(local: Any, N: int) -> tuple[Any, npt.NDArray[np.intp]]:
    """The products of all pairs of pieces that meet in a row, a sparse (Q, M) matrix, and the pairs."""
    sparse = late("scipy", "sparse")

    row = np.repeat(np.arange(local.shape[0]), np.diff(local.indptr))
    rows, codes, entries = [], [], []
    for gap in range(1, int(np.diff(local.indptr).max(initial=0))):
        first = np.flatnonzero(row[:-gap] == row[gap:])
        i, j = local.indices[first].astype(np.int64), local.indices[first + gap].astype(np.int64)
        rows.append(row[first])
        codes.append(np.minimum(i, j) * N + np.maximum(i, j))
        entries.append(local.data[first] * local.data[first + gap])
    if not rows:
        return sparse.csr_matrix((local.shape[0], 0)), np.zeros((0, 2), dtype=np.intp)
    distinct, column = np.unique(np.concatenate(codes), return_inverse=True)
    products = sparse.csr_matrix(
        (np.concatenate(entries), (np.concatenate(rows), column)), shape=(local.shape[0], len(distinct))
    )
    return products, np.column_stack([distinct // N, distinct % N]).astype(np.intp)


def _descend(A: Any, f: FloatArray, start: FloatArray, single: int, limit: Budget) -> FloatArray:
    """Least squares by conjugate gradients from `start`, ended by the last quarter of the rows.

    The misfit of the first three quarters falls in every step; of all steps, the one with the least misfit in the last
    quarter is returned. Both are at most those of `start`, so the objective is, and so (up to chance) is the error at
    other points, however many terms there are. Terms are not scaled one by one: a product that few points meet would
    get a large weight from them. `single` terms come before the products.
    """
    cut = len(f) - len(f) // 4
    size = np.full(len(start), max(float(np.sqrt((f**2).mean())), 1e-300))  # a product has the unit of f squared
    size[:single] = 1.0
    x, turned = start * size, A[:cut].T.tocsr()
    rest = f - A @ start
    slope = (turned @ rest[:cut]) / size
    way, power = slope.copy(), float(slope @ slope)
    goal = 1e-20 * max(power, 1e-300)
    best, least = start, float((rest[cut:] ** 2).sum())
    for _ in range(_STEPS):
        if power <= goal or limit.spent():
            break
        image = A @ (way / size)
        along = power / max(float(image[:cut] @ image[:cut]), 1e-300)
        x = x + along * way
        rest = rest - along * image
        slope = (turned @ rest[:cut]) / size
        before, power = power, float(slope @ slope)
        way = slope + (power / before) * way
        held = float((rest[cut:] ** 2).sum())
        if held < least:
            best, least = x / size, held
    return best


def _distances(U: FloatArray, V: FloatArray) -> FloatArray:
    squared = (U**2).sum(axis=1)[:, None] - 2 * U @ V.T + (V**2).sum(axis=1)
    return np.sqrt(np.maximum(squared, 0.0))


def _hessian(H: FloatArray, points: int) -> HessianReport:
    eigenvalues = np.linalg.eigvalsh(H)
    off = np.abs(H).sum(axis=1) - np.abs(np.diag(H))
    margins = np.diag(H) - off
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    rounding = len(H) * 1e-15 * largest
    unique = smallest > rounding and len(H) <= points
    condition = largest / smallest if unique else float("inf")
    dominant = float((margins > 0).mean())
    return HessianReport(len(H), points, smallest, largest, condition, float(margins.min()), dominant, unique)


def _pair_hessian(A: Any, scale: float, points: int) -> HessianReport:
    """The report for all terms; beyond some thousand with bounds, from the diagonal and from some of the rows."""
    terms = A.shape[1]
    if terms <= _EIGEN:
        return _hessian(scale * (A.T @ A).toarray(), points)
    diagonal = scale * np.asarray(A.multiply(A).sum(axis=0)).ravel()
    some = np.unique(np.linspace(0, terms - 1, _ROWS).astype(int))
    rows = scale * np.abs(np.asarray((A.T @ A[:, some].toarray()).T)).sum(axis=1)
    margins = 2 * diagonal[some] - rows
    way = np.ones(terms) / np.sqrt(terms)
    for _ in range(30):
        way = A.T @ (A @ way)
        way /= np.linalg.norm(way)
    largest = scale * float(((A @ way) ** 2).sum())
    smallest = 0.0 if terms > points else float(diagonal.min())
    condition = largest / smallest if smallest > 0 else float("inf")
    dominant = float((margins > 0).mean())
    unique = False if smallest == 0 else None
    return HessianReport(
        terms, points, smallest, largest, condition, float(margins.min()), dominant, unique, bounds=True
    )
