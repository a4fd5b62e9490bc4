"""Generalised linear models with a ridge: straight lines, logistic and multinomial regression.

Each fit minimises

    Σ_i weight_i loss(y_i, C x_i + d) + ½ penalty Σ_j ((C - C₀)_j sd_j)² + ½ penalty (d' - d₀')²,

with `sd` the standard deviations of the features, `d'` the value at their means, and (C₀, d₀) a model to
shrink to. Half the squared error is the loss of regression, minus the log-likelihood that of classes. The penalty
keeps small and one-class data sets from running away; 0 gives maximum likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope._kernels import kernel
from reluscope._lazy import late
from reluscope.local_models._data import Response
from reluscope.measure.simd import axpy, dot
from reluscope.threads import interruptible, stop_flag

Index = npt.NDArray[np.int64]

_MOST_STEPS = 60
_SMALL = 1e-10
_LONG = 1_000_000
"""Products of two numbers in a fit, from which on Ctrl-C should not have to wait for it."""


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
    rows: Index | None = None,
) -> Linear:
    """The penalised fit, to some rows if they are named; `towards=None` shrinks to 0, the intercept free of penalty."""
    rows = np.arange(len(X)) if rows is None else rows
    ends = np.array([0, len(rows)])
    return fits(X, response, rows, ends, penalty=penalty, scale=scale, weight=weight, towards=towards)[0]


def fits(
    X: FloatArray,
    response: Response,
    rows: Index,
    ends: Index,
    *,
    penalty: float,
    scale: Scale,
    weight: FloatArray | None = None,
    towards: Linear | None = None,
) -> list[Linear]:
    """A fit to each group of rows, `rows[ends[g]:ends[g + 1]]`; a group without rows has the model `towards`.

    All regressions, or logistic regressions, are one compiled call, which lets other threads work meanwhile.
    """
    width = X.shape[1] + 1
    prior = np.zeros((_outputs(response), width)) if towards is None else scale.into(towards)
    ridge = np.full(width, float(penalty))
    if towards is None:
        ridge[-1] = 0.0
    betas = np.repeat(prior[None], len(ends) - 1, axis=0)
    w = np.ones(0) if weight is None else weight
    given = np.ascontiguousarray(X), rows, ends, w, scale.centre, scale.spread
    call = interruptible if len(rows) * width**2 > _LONG else _at_once
    if response.target is not None:
        found = call(_all_least_squares, *given, response.target, ridge, prior, betas, stop_flag())
        for g in np.flatnonzero(~found):  # features that depend on one another, and no ridge
            mine = rows[ends[g] : ends[g + 1]]
            root = np.ones(len(mine)) if weight is None else np.sqrt(weight[mine])
            tall = np.concatenate([root[:, None] * scale.design(X[mine]), np.diag(np.sqrt(ridge))])
            right = np.concatenate([root[:, None] * response.target[mine], np.sqrt(ridge)[:, None] * prior.T])
            betas[g] = np.linalg.lstsq(tall, right, rcond=None)[0].T
    elif response.task == "binary":
        call(_all_logistic, *given, response.code, ridge, prior, betas, stop_flag())
    else:
        assert response.code is not None
        for g in np.flatnonzero(np.diff(ends)):
            mine = rows[ends[g] : ends[g + 1]]
            own = np.ones(len(mine)) if weight is None else weight[mine]
            betas[g] = _multinomial(scale.design(X[mine]), response.code[mine], own, ridge, prior)
    return [scale.back(beta) for beta in betas]


def _at_once(kernel: Callable[..., Any], *arguments: Any) -> Any:
    return kernel(*arguments)


def predict(X: FloatArray, rows: Index, group: Index, models: list[Linear]) -> FloatArray:
    """Outputs (n, outputs) of some rows, each by the model of its group."""
    out = np.empty((len(rows), len(models[0].d)))
    C, d = np.stack([model.C for model in models]), np.stack([model.d for model in models])
    _predict(np.ascontiguousarray(X), rows, group, C, d, out)
    return out


def information(Z: FloatArray, eta: FloatArray, weight: FloatArray) -> FloatArray:
    """Fisher information of logistic regression at linear predictor `eta`."""
    expit = late("scipy.special", "expit")

    p = expit(eta)
    return np.asarray((Z * (weight * p * (1 - p))[:, None]).T @ Z)


def _outputs(response: Response) -> int:
    if response.target is not None:
        return response.target.shape[1]
    return 1 if response.task == "binary" else len(response.classes)


# The kernels below keep features as rows, one entry for each row of data, padded with zeros to whole blocks of eight:
# what they do most is a product of two such rows. They solve by hand what LAPACK would: to call it from compiled code
# costs seconds of compilation.


@kernel
def _least_squares(X, rows, w, centre, spread, y, ridge, prior, beta, stop):  # type: ignore[no-untyped-def]
    """Whether there is one solution; `beta` (outputs, p + 1) becomes its coefficients of standardised features.

    Householder reflections of features and targets, weighted (`w` is empty where all rows weigh 1), with entries
    sqrt(ridge) after them. No normal equations, so that collinear features cost no accuracy.
    """
    n, p, m = len(rows), X.shape[1] + 1, y.shape[1]
    blocks = (n + p + 7) // 8
    size = 8 * blocks
    A, B = np.zeros(p * size), np.zeros(m * size)
    R, Q = np.zeros((p, p)), np.zeros((p, m))
    for k in range(n):
        i = rows[k]
        root = np.sqrt(w[i]) if len(w) else 1.0
        for j in range(p - 1):
            A[j * size + k] = root * ((X[i, j] - centre[j]) / spread[j])
        A[(p - 1) * size + k] = root
        for o in range(m):
            B[o * size + k] = root * y[i, o]
    for j in range(p):
        A[j * size + n + j] = np.sqrt(ridge[j])
        for o in range(m):
            B[o * size + n + j] = np.sqrt(ridge[j]) * prior[o, j]
    largest = 0.0
    for j in range(p):
        if stop[0]:
            return True
        at = j * size
        norm = np.sqrt(dot(A, at, A, at, blocks))
        largest = max(largest, norm)
        if not norm > EPS * (n + p) * largest:
            return False
        head = A[at + j]
        R[j, j] = -norm if head > 0.0 else norm
        A[at + j] = head - R[j, j]
        scale = 1.0 / (norm * (abs(head) + norm))  # 2 / |v|²
        for k in range(j + 1, p):
            axpy(A, k * size, A, at, -scale * dot(A, k * size, A, at, blocks), blocks)
            R[j, k] = A[k * size + j]
            A[k * size + j] = 0.0  # done with this entry: the products above take whole rows
        for o in range(m):
            axpy(B, o * size, A, at, -scale * dot(B, o * size, A, at, blocks), blocks)
            Q[j, o] = B[o * size + j]
            B[o * size + j] = 0.0
    for o in range(m):
        for j in range(p - 1, -1, -1):
            total = Q[j, o]
            for k in range(j + 1, p):
                total -= R[j, k] * beta[o, k]
            beta[o, j] = total / R[j, j]
    return True


@kernel
def _all_least_squares(X, rows, ends, w, centre, spread, y, ridge, prior, betas, stop):  # type: ignore[no-untyped-def]
    """`_least_squares` of each group; which of them have one solution."""
    found = np.ones(len(betas), np.bool_)
    for g in range(len(betas)):
        if ends[g] < ends[g + 1] and not stop[0]:
            found[g] = _least_squares(
                X, rows[ends[g] : ends[g + 1]], w, centre, spread, y, ridge, prior, betas[g], stop
            )
    return found


@kernel
def _predict(X, rows, group, C, d, out):  # type: ignore[no-untyped-def]
    for k in range(len(rows)):
        g = group[k]
        for o in range(d.shape[1]):
            total = d[g, o]
            for j in range(X.shape[1]):
                total += C[g, o, j] * X[rows[k], j]
            out[k, o] = total


@kernel
def _deviance(Z, one, w, ridge, beta, prior, eta):  # type: ignore[no-untyped-def]
    """The objective of logistic regression; `eta` becomes the linear predictor."""
    blocks = len(eta) // 8
    total = 0.0
    for k in range(len(eta)):
        eta[k] = 0.0
    for j in range(len(beta)):
        axpy(eta, 0, Z, j * len(eta), beta[j], blocks)
        total += 0.5 * ridge[j] * (beta[j] - prior[j]) ** 2
    for k in range(len(eta)):
        total += w[k] * (np.log1p(np.exp(-abs(eta[k]))) + max(eta[k], 0.0) - one[k] * eta[k])
    return total


@kernel
def _solve(S, right, least, out):  # type: ignore[no-untyped-def]
    """`out` = S⁻¹ right by Cholesky; the lower triangle of S is overwritten. `least` is below its eigenvalues."""
    p = len(right)
    for i in range(p):
        for j in range(i + 1):
            total = S[i, j]
            for k in range(j):
                total -= S[i, k] * S[j, k]
            S[i, j] = np.sqrt(max(total, least)) if i == j else total / S[j, j]
        total = right[i]
        for k in range(i):
            total -= S[i, k] * out[k]
        out[i] = total / S[i, i]
    for i in range(p - 1, -1, -1):
        total = out[i]
        for k in range(i + 1, p):
            total -= S[k, i] * out[k]
        out[i] = total / S[i, i]


@kernel
def _logistic(X, rows, weight, centre, spread, code, ridge, prior, beta, stop):  # type: ignore[no-untyped-def]
    """`beta` (p + 1,), the prior before, becomes the coefficients of standardised features: Newton, halved steps."""
    n, p = len(rows), X.shape[1] + 1
    blocks = (n + 7) // 8
    size = 8 * blocks
    Z, one, w, eta = np.zeros(p * size), np.zeros(size), np.zeros(size), np.zeros(size)
    every, ones = 0.0, 0.0
    for k in range(n):
        i = rows[k]
        for j in range(p - 1):
            Z[j * size + k] = (X[i, j] - centre[j]) / spread[j]
        Z[(p - 1) * size + k] = 1.0
        one[k] = 1.0 if code[i] == 1 else 0.0
        w[k] = weight[i] if len(weight) else 1.0
        every += w[k]
        ones += w[k] * one[k]
    if ridge[p - 1] == 0.0:
        share = min(max(ones / every, 1e-6), 1.0 - 1e-6)
        beta[p - 1] = np.log(share / (1.0 - share))
    # A whisper of ridge: a separable set without penalty has a singular limit.
    whisper = 1e-12 * every
    value = _deviance(Z, one, w, ridge, beta, prior, eta)
    apart, bend, bent = np.empty(size), np.empty(size), np.empty(size)
    gradient, hessian, step, trial = np.empty(p), np.empty((p, p)), np.empty(p), np.empty(p)
    for _ in range(_MOST_STEPS):
        if stop[0]:
            return
        for k in range(size):
            e = np.exp(-abs(eta[k]))
            apart[k] = w[k] * ((1.0 if eta[k] >= 0.0 else e) / (1.0 + e) - one[k])
            bend[k] = w[k] * e / (1.0 + e) ** 2
        for i in range(p):
            gradient[i] = dot(Z, i * size, apart, 0, blocks) + ridge[i] * (beta[i] - prior[i])
            for k in range(size):
                bent[k] = bend[k] * Z[i * size + k]
            for j in range(i + 1):
                hessian[i, j] = dot(bent, 0, Z, j * size, blocks)
            hessian[i, i] += ridge[i] + whisper
        _solve(hessian, gradient, whisper, step)
        slope, t, new = 0.0, 1.0, value
        for j in range(p):
            slope += gradient[j] * step[j]
        while t > 1e-4:
            for j in range(p):
                trial[j] = beta[j] - t * step[j]
            new = _deviance(Z, one, w, ridge, trial, prior, eta)
            if new <= value - 1e-4 * t * slope:
                break
            t *= 0.5
        if not t > 1e-4:
            break
        value = new
        for j in range(p):
            beta[j] = trial[j]
        if slope < _SMALL * (1.0 + abs(value)):
            break


@kernel
def _all_logistic(X, rows, ends, w, centre, spread, code, ridge, prior, betas, stop):  # type: ignore[no-untyped-def]
    """`_logistic` of each group."""
    for g in range(len(betas)):
        if ends[g] < ends[g + 1] and not stop[0]:
            _logistic(X, rows[ends[g] : ends[g + 1]], w, centre, spread, code, ridge, prior[0], betas[g, 0], stop)


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
