"""`method="samples"`: the convex fit of linear models at samples, localised to balls, and the baselines beside it.

At samples v_i with gradients the function has the linear models `g_i`. Localised to balls, `g~_i = g_i on B(v_i, r_i),
else 0`, they are combined as `h = sum_i w_i g~_i` with the weights that minimise

    L(w) = int (h - f)^2 dx = w'G w - 2 b'w + const,      G_ij = int g~_i g~_j  (closed form, `balls.py`).

The Hessian 2G is a Gram matrix: always positive semidefinite; diagonal dominance gives uniqueness, not convexity. The
linear term `b_i = int g~_i f` takes f from the nearest sample's model, by quasi-random points in each ball, so it
costs no queries.
Outside all balls h is 0: with nearly disjoint balls, as first proposed, the fit is worse than a constant. Balls here
overlap (radius: distance to a near neighbour times `overlap`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, real_array
from reluscope._lazy import late
from reluscope.recovery.balls import gram
from reluscope.recovery.critical import gradients
from reluscope.recovery.view import View

KINDS = ("balls", "interactions", "nearest", "inverse distance")
_INNER = 64
"""Quasi-random points per ball for the linear term."""


@dataclass(frozen=True)
class HessianReport:
    """The Hessian `2 G` of the fit: extreme eigenvalues, condition number, Gershgorin margin, uniqueness.

    `margin` is the smallest `H_ii - sum_j |H_ij|`: positive means diagonally dominant. `unique` says whether the
    smallest eigenvalue exceeds rounding, so that the weights are determined.

    Attributes
    ----------
    smallest, largest, condition, margin : float
    dominant_rows : float
        Share of the rows that are diagonally dominant.
    unique : bool
    """

    smallest: float
    largest: float
    condition: float
    margin: float
    dominant_rows: float
    unique: bool

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(self.__dict__)


@dataclass(frozen=True, eq=False, repr=False)
class LocalFit:
    """Linear models at samples and the weights of their localised combination, in the box's own coordinates.

    `centres` (N, inputs), `values` (N,), `slopes` (N, inputs), `radii` (N,) in the metric of the box scaled to [-1,
    1]^n, `weights` (N,); `pairs` (M, 2) and `pair_weights` (M,) belong to the interaction terms `g~_i g~_j`.

    Attributes
    ----------
    centre, half : (inputs,) arrays
        The box.
    centres, slopes : (N, inputs) arrays
    values, radii, weights : (N,) arrays
    base, pair_weights : (N,) and (M,) arrays
        Weights of the fit with interaction terms.
    pairs : (M, 2) array
    hessian : HessianReport
    gram, linear : (N, N) and (N,) arrays
        The fit minimises `w' gram w - 2 linear' w`.
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
    gram: FloatArray
    linear: FloatArray

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
    diagonal = np.maximum(np.diag(G), 1e-300)
    for penalty in penalties:
        for _ in range(rounds):
            before = w.copy()
            for i in range(len(w)):
                rest = b[i] - G[i] @ w + diagonal[i] * w[i]
                w[i] = np.sign(rest) * max(abs(rest) - penalty, 0.0) / diagonal[i]
            if np.abs(w - before).max() <= 1e-6 * max(np.abs(w).max(), 1e-12):
                break
        found.append(w.copy())
    return np.array(found)


def fit_samples(view: View, samples: int, overlap: float, rng: np.random.Generator) -> LocalFit:
    """Linear models at samples, radii, and the convex problem solved. Costs `samples * (inputs + 2)` queries."""
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
    G = gram(centres, slopes, values, radii)
    b = _linear_term(centres, slopes, values, radii, rng)
    hessian = _hessian(2 * G)
    weights: FloatArray = np.asarray(np.linalg.lstsq(G, b, rcond=1e-10)[0], dtype=np.float64)
    pairs, base, pair_weights = _interactions(centres, slopes, values, radii, rng)
    return LocalFit(
        view.centre, view.half, centres, values, slopes, radii, weights, base, pairs, pair_weights, hessian, G, b
    )


def _distances(U: FloatArray, V: FloatArray) -> FloatArray:
    squared = (U**2).sum(axis=1)[:, None] - 2 * U @ V.T + (V**2).sum(axis=1)
    return np.sqrt(np.maximum(squared, 0.0))


def _linear_term(
    centres: FloatArray, slopes: FloatArray, values: FloatArray, radii: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """`int g~_i f` with f the nearest linear model."""
    KDTree = late("scipy.spatial", "KDTree")
    gammaln = late("scipy.special", "gammaln")

    n = centres.shape[1]
    ball = rng.normal(size=(_INNER, n))
    ball *= ((np.arange(_INNER) + 0.5) / _INNER)[:, None] ** (1 / n) / np.linalg.norm(ball, axis=1, keepdims=True)
    ball = np.concatenate([ball, -ball])
    places = (centres[:, None, :] + radii[:, None, None] * ball).reshape(-1, n)
    near = KDTree(centres).query(places)[1]
    f = ((places - centres[near]) * slopes[near]).sum(axis=1) + values[near]
    g = np.einsum("kbi,ki->kb", radii[:, None, None] * ball[None], slopes) + values[:, None]
    volume = np.exp(0.5 * n * np.log(np.pi) - gammaln(0.5 * n + 1)) * radii**n
    return np.asarray(volume * (g * f.reshape(len(centres), -1)).mean(axis=1))


def _interactions(
    centres: FloatArray, slopes: FloatArray, values: FloatArray, radii: FloatArray, rng: np.random.Generator
) -> tuple[npt.NDArray[np.intp], FloatArray, FloatArray]:
    """Weights of the models and of products of overlapping ones, by ridge on points whose f is the nearest model."""
    KDTree = late("scipy.spatial", "KDTree")

    N, n = centres.shape
    tree = KDTree(centres)
    close = tree.query(centres, k=min(3, N))[1].reshape(N, -1)
    pairs = np.unique(
        np.sort(np.column_stack([np.repeat(np.arange(N), close.shape[1]), close.ravel()]), axis=1), axis=0
    )
    pairs = pairs[pairs[:, 0] != pairs[:, 1]].astype(np.intp)
    U = rng.uniform(-1, 1, (max(2 * (N + len(pairs)), 500), n))
    near = tree.query(U)[1]
    f = ((U - centres[near]) * slopes[near]).sum(axis=1) + values[near]
    planes = U @ slopes.T + (values - (slopes * centres).sum(axis=1))
    local = np.where(_distances(U, centres) <= radii, planes, 0.0)
    A = np.concatenate([local, local[:, pairs[:, 0]] * local[:, pairs[:, 1]]], axis=1)
    size = np.maximum(np.linalg.norm(A, axis=0), 1e-12)
    A = A / size
    G = A.T @ A
    G[np.diag_indices_from(G)] += 1e-3
    w = np.linalg.solve(G, A.T @ f) / size
    return pairs, w[:N], w[N:]


def _hessian(H: FloatArray) -> HessianReport:
    eigenvalues = np.linalg.eigvalsh(H)
    off = np.abs(H).sum(axis=1) - np.abs(np.diag(H))
    margins = np.diag(H) - off
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    rounding = len(H) * 1e-15 * largest
    condition = largest / smallest if smallest > rounding else float("inf")
    return HessianReport(
        smallest, largest, condition, float(margins.min()), float((margins > 0).mean()), smallest > rounding
    )
