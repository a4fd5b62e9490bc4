"""One hidden layer from merged models: shallow, few units, a `Network` again.

Each merged model `eta_k(x) = C_k x + d_k` gives two hidden units per output, `max(eta_k, 0)` and `max(-eta_k, 0)`,
scaled to unit spread over the data; the output layer is a ridge fit on them. So the start already holds the hyperplane
of every merged model. Then all weights are trained on with Adam, held-out rows deciding when to stop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._check import FloatArray, Rng
from reluscope.errors import InputError
from reluscope.local_models import glm
from reluscope.local_models._data import read
from reluscope.local_models.merged import MergedModels, unwrapped_of
from reluscope.local_models.training import Recipe, train
from reluscope.network import Network
from reluscope.threads import blas_threads


def flatten(
    models: MergedModels,
    *,
    tune: bool = True,
    l1: float = 0.0,
    rate: float = 1e-3,
    epochs: int = 300,
    patience: int = 20,
    rng: Rng = None,
    progress: Any = None,
) -> Network:
    """A network with one hidden layer from merged models.

    Parameters
    ----------
    models : MergedModels
        With the data they were made from.
    tune : bool
        Train all weights; otherwise only the output layer is fitted.
    l1, rate, epochs, patience
        As for `reluscope.local_models.training.Recipe`.
    rng : None, int, SeedSequence or Generator
        Batches and the rows that decide when to stop.
    progress : optional
        None (silent), "auto", or a function of (done, text).

    Returns
    -------
    Network

    Raises
    ------
    InputError
        Without a response, or if all merged models are constant.
    """
    u = unwrapped_of(models, "flatten")
    if u.task == "none":
        raise InputError("flatten fits a model and needs a response; pass y to unwrap")
    X = read(u.X, slice(None))
    W, b = _hidden(models, X)
    features = np.maximum(X @ W.T + b, 0.0)
    with blas_threads(len(W)):
        top = glm.fit(features, u.response, penalty=1.0, scale=glm.Scale.of(features, u.weight), weight=u.weight)
    net = Network([(W, b), (top.C, top.d)], name=f"flat {u.network.name}")
    if not tune:
        return net
    recipe = Recipe(hidden=(len(W),), l1=l1, rate=rate, epochs=epochs, patience=patience)
    trained = train(X, u.response, recipe, sample_weight=u.weight, start=net, rng=rng, progress=progress).network
    return Network(trained.layers, name=net.name)


def _hidden(models: MergedModels, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights and biases of the hidden layer; models that do not vary over the data give no units."""
    C, d = models.C.reshape(-1, X.shape[1]), models.d.reshape(-1)
    if models.d.shape[1] > 2:  # logits count up to a common shift
        C = (models.C - models.C.mean(axis=1, keepdims=True)).reshape(C.shape)
        d = (models.d - models.d.mean(axis=1, keepdims=True)).reshape(-1)
    spread = np.array([float(np.std(X @ w)) for w in C])
    keep = spread > 1e-12 * max(float(np.abs(C).max()), 1e-300)
    if not keep.any():
        raise InputError("the merged models are all constant; merge to more models")
    W, b = C[keep] / spread[keep, None], d[keep] / spread[keep]
    return np.concatenate([W, -W]), np.concatenate([b, -b])
