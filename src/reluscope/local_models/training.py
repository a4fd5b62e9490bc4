"""Training of ReLU networks with an L1 penalty: Adam with a proximal step, in numpy.

Minimises `mean loss + l1 Σ|W| + ½ l2 Σ W²` over all weights (biases are free). Adam scales the step of each weight by
`1 / (sqrt(v) + ε)`; the soft threshold that follows uses the same scale,

    W <- sign(W') max(|W'| - rate · l1 / (sqrt(v) + ε), 0),      W' the plain Adam step,

so that weights become exactly 0 and the fixed points are those of the penalised objective. Inputs (and numbers to be
predicted) are standardised inside and the scaling is folded into the network. Everything is float64 and follows from
the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from reluscope._check import FloatArray, Rng, integer, real, seeded
from reluscope._lazy import late
from reluscope.errors import InputError
from reluscope.local_models._data import Index, Response, weights_of
from reluscope.local_models.glm import Scale
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.threads import blas_threads

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network, the objective on training and held-out rows after each epoch, the epoch that was kept, and the
    rows that were held out (they decided when to stop).
    """

    network: Network
    objective: FloatArray
    validation: FloatArray
    epoch: int
    zeros: float
    """Share of weights that are exactly 0."""
    held: Index
    """Rows that only decided when to stop."""
    seed: int | None = None
    """`rng=seed` repeats the training; None if a Generator was given."""


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes
    ----------
    hidden : tuple of int
        Widths of the hidden layers.
    l1, l2 : float
        Penalties on the weights of standardised features.
    rate : float
        Step of Adam.
    batch : int
        Rows per step.
    epochs : int
        Most passes over the rows.
    patience : int
        So many epochs without a better objective on the validation rows (if none: on all) end the training.
    validation_fraction : float
        Share of the rows that only decide when to stop.
    standardise : bool
        Scale features and numbers to be predicted inside; the network takes and gives the original ones.
    """

    hidden: tuple[int, ...] = (40, 40)
    l1: float = 0.0
    l2: float = 0.0
    rate: float = 1e-3
    batch: int = 256
    epochs: int = 300
    patience: int = 20
    validation_fraction: float = 0.2
    standardise: bool = True

    def __post_init__(self) -> None:
        hidden = self.hidden if isinstance(self.hidden, (tuple, list, np.ndarray)) else (self.hidden,)
        object.__setattr__(self, "hidden", tuple(integer(h, "hidden", low=1, high=10**6) for h in hidden))
        for name in ("l1", "l2"):
            object.__setattr__(self, name, real(getattr(self, name), name, low=0.0))
        object.__setattr__(self, "rate", real(self.rate, "rate", low=0.0, open_=True))
        for name in ("batch", "epochs", "patience"):
            integer(getattr(self, name), name, low=1, high=10**9)
        if not 0 <= real(self.validation_fraction, "validation_fraction") < 1:
            raise InputError(f"validation_fraction must be at least 0 and below 1, got {self.validation_fraction}")


def train(
    X: FloatArray,
    response: Response,
    recipe: Recipe,
    *,
    sample_weight: Any = None,
    start: Network | None = None,
    rng: Rng = None,
    progress: Any = None,
) -> Trained:
    """Train a ReLU network.

    Parameters
    ----------
    X : (n, inputs) array
    response : Response
    recipe : Recipe
    sample_weight : (n,), optional
    start : Network, optional
        The first weights (in the units of `X`) in place of a random draw.
    rng : None, int, SeedSequence or Generator
        First weights, batches, and the rows that decide when to stop.
    progress : optional
        None (silent), "auto", or a function of (done, text).

    Returns
    -------
    Trained

    Raises
    ------
    InputError
        If training diverges.

    Notes
    -----
    Cost per epoch about six products of the rows with the weights.
    """
    rng, seed = seeded(rng)
    weight = weights_of(sample_weight, len(X))
    scale = Scale.of(X, weight) if recipe.standardise else Scale(np.zeros(X.shape[1]), np.ones(X.shape[1]))
    Z = (X - scale.centre) / scale.spread
    y_scale = None
    if response.target is not None:
        y_scale = Scale.of(response.target, weight)
        Y = (response.target - y_scale.centre) / y_scale.spread
    else:
        assert response.code is not None
        Y = _hot(response.code, 1 if response.task == "binary" else len(response.classes))
    loss = {"regression": _squared, "binary": _logistic, "multiclass": _softmax}[response.task]
    widths = (X.shape[1], *recipe.hidden, Y.shape[1]) if start is None else start.widths
    net = _Parameters(widths)
    if start is None:
        net.draw(rng)
    else:
        net.read(_standardised(start, scale, y_scale))
    kept, held = split_rows(response, recipe.validation_fraction, rng)
    with meter(progress, "training") as report, blas_threads(max(widths)):
        done = _run(net, Z, Y, weight, loss, recipe, kept, held, rng, report)
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            network = _folded(net, scale, y_scale)
        except InputError:  # weights that only just fit into the standardised units
            raise InputError(f"training diverged; pass a smaller rate (now {recipe.rate:g})") from None
    zeros = float(np.mean(np.concatenate([W.ravel() for W in net.weights]) == 0))
    return Trained(network, *done, zeros, held, seed)


class _Parameters:
    """Weights and biases of a network as views into one flat vector."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.widths = widths
        sizes = [(o, i) for i, o in pairwise(widths)]
        self.flat = np.zeros(sum(o * i + o for o, i in sizes))
        self.penalised = np.zeros(len(self.flat), dtype=bool)
        self.weights, self.biases = self.views(self.flat)
        for W in self.views(self.penalised)[0]:
            W[:] = True

    def views(self, flat: Any) -> tuple[list[Any], list[Any]]:
        """The matrices and vectors inside a flat vector."""
        weights, biases, at = [], [], 0
        for i, o in pairwise(self.widths):
            weights.append(flat[at : at + o * i].reshape(o, i))
            biases.append(flat[at + o * i : at + o * i + o])
            at += o * i + o
        return weights, biases

    def draw(self, rng: np.random.Generator) -> None:
        """Glorot's uniform weights and biases, as scikit-learn draws them for ReLU units."""
        for W, b in zip(self.weights, self.biases, strict=True):
            reach = np.sqrt(6.0 / sum(W.shape))
            W[:] = rng.uniform(-reach, reach, W.shape)
            b[:] = rng.uniform(-reach, reach, b.shape)

    def read(self, net: Network) -> None:
        """The weights of a network."""
        for W, b, layer in zip(self.weights, self.biases, net.layers, strict=True):
            W[:], b[:] = layer.dense(), layer.bias

    def forward(self, Z: FloatArray) -> list[FloatArray]:
        """Inputs, hidden values and outputs."""
        values = [Z]
        last = len(self.weights) - 1
        for k, (W, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = values[-1] @ W.T
            h += b
            if k < last:
                np.maximum(h, 0.0, out=h)
            values.append(h)
        return values


def _run(
    net: _Parameters,
    Z: FloatArray,
    Y: FloatArray,
    weight: FloatArray | None,
    loss: Any,
    recipe: Recipe,
    kept: Index,
    held: Index,
    rng: np.random.Generator,
    report: Any,
) -> tuple[FloatArray, FloatArray, int]:
    flat, mask = net.flat, net.penalised
    gradient, m, v = np.zeros_like(flat), np.zeros_like(flat), np.zeros_like(flat)
    grad_W, grad_b = net.views(gradient)
    w_kept = None if weight is None else weight[kept] / weight[kept].mean()
    w_held = None if weight is None or not len(held) else weight[held]
    batch = min(recipe.batch, len(kept))
    best, best_flat, best_epoch, step = np.inf, flat.copy(), 0, 0
    objectives: list[float] = []
    validations: list[float] = []
    for epoch in range(recipe.epochs):
        order = rng.permutation(len(kept))
        total = 0.0
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            rows = kept[some]
            total += _backward(net, Z[rows], Y[rows], None if w_kept is None else w_kept[some], loss, grad_W, grad_b)
            if recipe.l2:
                gradient += recipe.l2 * (flat * mask)
            step += 1
            _step(flat, gradient, m, v, step, recipe, mask)
        penalty = recipe.l1 * float(np.abs(flat[mask]).sum()) + 0.5 * recipe.l2 * float((flat[mask] ** 2).sum())
        objectives.append(total / len(kept) + penalty)
        if len(held):
            each = loss(net.forward(Z[held])[-1], Y[held])[0]
            validations.append(float(np.average(each, weights=w_held)) + penalty)
        current = validations[-1] if len(held) else objectives[-1]
        if not np.isfinite(current):
            raise InputError(f"training diverged at epoch {epoch + 1}; pass a smaller rate (now {recipe.rate:g})")
        if current < best - 1e-7:
            best, best_epoch = current, epoch
            best_flat[:] = flat
        report(epoch + 1, f"epoch {epoch + 1} of {recipe.epochs}, objective {current:.5f}")
        if epoch - best_epoch >= recipe.patience:
            break
    flat[:] = best_flat
    return np.array(objectives), np.array(validations), best_epoch + 1


def _backward(
    net: _Parameters, Z: FloatArray, Y: FloatArray, weight: FloatArray | None, loss: Any, grad_W: Any, grad_b: Any
) -> float:
    """Sum of the losses of a batch; writes the gradient of their mean."""
    values = net.forward(Z)
    each, slope = loss(values[-1], Y)
    if weight is not None:
        each, slope = each * weight, slope * weight[:, None]
    slope = slope / len(Z)
    for k in range(len(grad_W) - 1, -1, -1):
        np.matmul(slope.T, values[k], out=grad_W[k])
        slope.sum(axis=0, out=grad_b[k])
        if k:
            slope = slope @ net.weights[k]
            slope *= values[k] > 0
    return float(each.sum())


def _step(
    flat: FloatArray, gradient: FloatArray, m: FloatArray, v: FloatArray, step: int, recipe: Recipe, mask: Any
) -> None:
    m *= _BETA1
    m += (1 - _BETA1) * gradient
    v *= _BETA2
    v += (1 - _BETA2) * gradient**2
    pace = recipe.rate / (np.sqrt(v / (1 - _BETA2**step)) + _EPSILON)
    flat -= pace * (m / (1 - _BETA1**step))
    if recipe.l1:
        shrunk = np.abs(flat) - recipe.l1 * pace
        np.copyto(flat, np.copysign(np.maximum(shrunk, 0.0), flat), where=mask)


def _squared(eta: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    gap = eta - y
    return 0.5 * (gap**2).sum(axis=1), gap


def _logistic(eta: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    expit = late("scipy.special", "expit")

    return (np.logaddexp(0.0, eta) - y * eta)[:, 0], expit(eta) - y


def _softmax(eta: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    shifted = eta - eta.max(axis=1, keepdims=True)
    e = np.exp(shifted)
    total = e.sum(axis=1, keepdims=True)
    return np.log(total[:, 0]) - (y * shifted).sum(axis=1), e / total - y


def _hot(code: Index, columns: int) -> FloatArray:
    if columns == 1:
        return (code == 1).astype(np.float64)[:, None]
    hot = np.zeros((len(code), columns))
    hot[np.arange(len(code)), code] = 1.0
    return hot


def split_rows(response: Response, share: float, rng: np.random.Generator) -> tuple[Index, Index]:
    """Rows to train on and rows held out, classes in proportion; none are held out when there are too few."""
    n = len(response.target) if response.target is not None else len(response.code)  # type: ignore[arg-type]
    order = rng.permutation(n)
    if response.code is not None:
        order = order[np.argsort(response.code[order], kind="stable")]
    every = round(1 / share) if share > 0 else 0
    if not every or n < 2 * every or n < 20:
        return np.sort(order), order[:0]
    held = np.zeros(n, dtype=bool)
    if share <= 0.5:
        held[order[np.floor(np.arange(0, n, 1 / share)).astype(np.int64).clip(max=n - 1)]] = True
    else:
        held[rng.choice(n, round(share * n), replace=False)] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _folded(net: _Parameters, scale: Scale, y_scale: Scale | None) -> Network:
    out = Network(list(zip(net.weights, net.biases, strict=True)))
    out = out.after(np.diag(1.0 / scale.spread), -scale.centre / scale.spread)
    return out if y_scale is None else out.then(np.diag(y_scale.spread), y_scale.centre)


def _standardised(net: Network, scale: Scale, y_scale: Scale | None) -> Network:
    inner = net.after(np.diag(scale.spread), scale.centre)
    return inner if y_scale is None else inner.then(np.diag(1.0 / y_scale.spread), -y_scale.centre / y_scale.spread)
