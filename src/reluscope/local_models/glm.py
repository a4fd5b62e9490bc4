"""Generalised linear models with a ridge: straight lines, logistic and multinomial regression.

Each fit minimises

    Σ_i weight_i loss(y_i, C x_i + d) + ½ penalty Σ_j ((C - C₀)_j sd_j)² + ½ penalty (d' - d₀')²,

with `sd` the standard deviations of the features, `d'` the value at their means, and (C₀, d₀) a model to
shrink to. Half the squared error is the loss of regression, minus the log-likelihood that of classes. The penalty
keeps small and one-class data sets from running away; 0 gives maximum likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from reluscope._check import EPS, FloatArray
from reluscope._lazy import late
from reluscope.local_models._data import Response

_MOST_STEPS = 60
_SMALL = 1e-10


@dataclass(frozen=True, eq=False)
class Linear:
    """`C x + d` with `C` (outputs, inputs) and `d` (outputs,)."""

    C: FloatArray
    d: FloatArray

    def __call__(self, X: FloatArray) -> FloatArray:
        """Outputs (n, outputs) of rows."""
        return X @ self.C.T + self.d


@dataclass(frozen=True, eq=False)
class Scale:
    """Centre and spread of features, shared by the fits that are compared."""

    centre: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, X: FloatArray, weight: FloatArray | None = None) -> Scale:
        """From rows; features that do not vary get spread 1."""
        centre = np.average(X, axis=0, weights=weight)
        apart = X - centre
        _, size = np.frexp(np.abs(apart).max(axis=0, initial=0.0))  # by powers of two: squares of 1e200 do not overflow
        spread = np.ldexp(np.sqrt(np.average(np.ldexp(apart, -size) ** 2, axis=0, weights=weight)), size)
        return cls(centre, np.where(spread > EPS * np.abs(centre), spread, 1.0))

    def into(self, model: Linear) -> FloatArray:
        """A model as coefficients of standardised features with the intercept last, shape (outputs, inputs + 1)."""
        return np.column_stack([model.C * self.spread, model.d + model.C @ self.centre])

    def back(self, beta: FloatArray) -> Linear:
        """The model of coefficients of standardised features."""
        C = beta[:, :-1] / self.spread
        return Linear(C, beta[:, -1] - C @ self.centre)

    def design(self, X: FloatArray) -> FloatArray:
        """Standardised features and a column of ones."""
        Z = np.ones((len(X), X.shape[1] + 1))
        np.divide(X - self.centre, self.spread, out=Z[:, :-1])
        return Z


def fit(
    X: FloatArray,
    response: Response,
    *,
    penalty: float,
    scale: Scale,
    weight: FloatArray | None = None,
    towards: Linear | None = None,
) -> Linear:
    """The penalised fit; `towards=None` shrinks to 0, with the intercept free of penalty."""
    w = np.ones(len(X)) if weight is None else weight
    width = X.shape[1] + 1
    prior = np.zeros((_outputs(response), width)) if towards is None else scale.into(towards)
    ridge = np.full(width, float(penalty))
    if towards is None:
        ridge[-1] = 0.0
    if response.task == "regression":
        assert response.target is not None
        tall, right = _stacked(X, scale.centre, scale.spread, w, response.target, ridge, prior)
        return scale.back(np.asarray(np.linalg.lstsq(tall, right, rcond=None)[0].T))
    Z = scale.design(X)
    if response.task == "binary":
        assert response.code is not None
        beta = _logistic(Z, (response.code == 1).astype(np.float64), w, ridge, prior[0])[None]
    else:
        assert response.code is not None
        beta = _multinomial(Z, response.code, w, ridge, prior)
    return scale.back(beta)


def information(Z: FloatArray, eta: FloatArray, weight: FloatArray) -> FloatArray:
    """Fisher information of logistic regression at linear predictor `eta`."""
    expit = late("scipy.special", "expit")

    p = expit(eta)
    return np.asarray((Z * (weight * p * (1 - p))[:, None]).T @ Z)


def _outputs(response: Response) -> int:
    if response.target is not None:
        return response.target.shape[1]
    return 1 if response.task == "binary" else len(response.classes)


@njit(cache=True, nogil=True, error_model="numpy")
def _stacked(X, centre, spread, w, y, ridge, prior):  # type: ignore[no-untyped-def]
    """Standardised features and targets, weighted, with rows sqrt(ridge) below them.

    No normal equations, so that collinear features cost no accuracy.
    """
    (n, p), m = X.shape, y.shape[1]
    tall, right = np.zeros((n + p + 1, p + 1)), np.empty((n + p + 1, m))
    for i in range(n):
        root = np.sqrt(w[i])
        for j in range(p):
            tall[i, j] = root * ((X[i, j] - centre[j]) / spread[j])
        tall[i, p] = root
        for o in range(m):
            right[i, o] = root * y[i, o]
    for j in range(p + 1):
        below = np.sqrt(ridge[j])
        tall[n + j, j] = below
        for o in range(m):
            right[n + j, o] = below * prior[o, j]
    return tall, right


def _logistic(Z: FloatArray, y: FloatArray, w: FloatArray, ridge: FloatArray, prior: FloatArray) -> FloatArray:
    """Newton's method with halved steps."""
    expit = late("scipy.special", "expit")

    beta = prior.copy()
    if ridge[-1] == 0 and len(y):
        share = np.clip(w @ y / w.sum(), 1e-6, 1 - 1e-6)
        beta[-1] = np.log(share / (1 - share))

    def objective(b: FloatArray) -> float:
        eta = Z @ b
        return float(w @ (np.logaddexp(0.0, eta) - y * eta) + 0.5 * ridge @ (b - prior) ** 2)

    value = objective(beta)
    for _ in range(_MOST_STEPS):
        p = expit(Z @ beta)
        gradient = Z.T @ (w * (p - y)) + ridge * (beta - prior)
        # A whisper of ridge: a separable set without penalty has a singular limit.
        hessian = (Z * (w * p * (1 - p))[:, None]).T @ Z + np.diag(ridge + 1e-12 * w.sum())
        step = np.linalg.solve(hessian, gradient)
        size, t = float(gradient @ step), 1.0
        while t > 1e-4:
            trial = beta - t * step
            new = objective(trial)
            if new <= value - 1e-4 * t * size:
                break
            t *= 0.5
        else:
            break
        beta, value = trial, new
        if size < _SMALL * (1 + abs(value)):
            break
    return beta


def _multinomial(Z: FloatArray, code: np.ndarray, w: FloatArray, ridge: FloatArray, prior: FloatArray) -> FloatArray:
    """Softmax regression by L-BFGS; logits sum to zero over the classes when the prior's do."""
    minimize = late("scipy.optimize", "minimize")

    k = len(prior)
    hot = np.zeros((len(code), k))
    hot[np.arange(len(code)), code] = 1.0
    floor = np.maximum(ridge, 1e-8 * w.sum())

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        beta = flat.reshape(prior.shape)
        eta = Z @ beta.T
        eta -= eta.max(axis=1, keepdims=True)
        e = np.exp(eta)
        total = e.sum(axis=1)
        loss = w @ (np.log(total) - (hot * eta).sum(axis=1)) + 0.5 * (floor * (beta - prior) ** 2).sum()
        slope = (w[:, None] * (e / total[:, None] - hot)).T @ Z + floor * (beta - prior)
        return float(loss), slope.ravel()

    done = minimize(
        objective, prior.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 1000, "gtol": 1e-8, "ftol": 1e-14}
    )
    return np.asarray(done.x).reshape(prior.shape)
