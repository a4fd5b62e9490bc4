"""The Lipschitz constant: the steepest region, where all regions can be listed; a sound bracket elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope.answer import Answer, Status, status_of, unless_interrupted
from reluscope.budget import parse_budget
from reluscope.cells.regions import stream_regions
from reluscope.network import Network, check_network

_ROUNDING = 1e-10
"""Relative error of a spectral norm of a product of layers, with room to spare."""


def lipschitz(net: Network, box: Any = None, *, budget: Any = None, progress: Any = None) -> Answer:
    """The smallest L with `|f(x) - f(y)| <= L |x - y|` in Euclidean norms, on a box or in the whole space.

    Parameters
    ----------
    net : Network
    box : tuple, optional
        `(lower, upper)`, numbers or one entry per input; the whole space without it.
    budget, progress
        When to end the search for regions early (10 s if not given), and whether to show how far it is.

    Returns
    -------
    Answer
        "exact" when all regions were listed: the largest spectral norm of their linear maps. Otherwise "sound": at
        least that of the regions found, at most the product of the norms of the layers.

    Raises
    ------
    InputError
        If the box does not fit the network.

    Notes
    -----
    A box and the whole space are convex, so the steepest region decides. Cost: the traversal, and one singular value
    decomposition per region.

    Examples
    --------
    >>> net = Network([([[1.0], [-1.0]], None), ([[2.0, 3.0]], None)])
    >>> lipschitz(net, progress=None).value
    3.0
    """
    check_network(net)
    limit = parse_budget(budget, "10s")
    steepest, count, stopped, doubt = 0.0, 0, None, False
    for batch in stream_regions(net, box, budget=limit, progress=progress):
        if len(batch):
            steepest = max(steepest, float(np.linalg.norm(batch.C, ord=2, axis=(1, 2)).max()))
        count, stopped, doubt = count + len(batch), batch.reason, batch.stopped is None
    unless_interrupted(stopped)
    if stopped is None:
        slack = _ROUNDING * steepest
        low, high, method = steepest - slack, steepest + slack, "steepest of all regions"
        return Answer(steepest, low, high, "exact", method=method, evaluations=count)
    high = max(layer_bound(net), steepest)
    status = Status.UNDECIDED if doubt else status_of(stopped)
    return Answer(
        0.5 * (steepest + high), steepest * (1 - _ROUNDING), high, "sound", evaluations=count,
        method="steepest region found; product of the layers' norms", note=str(stopped), status=status,
    )  # fmt: skip


def layer_bound(net: Network) -> float:
    """The product of the spectral norms of all layers and of their steepest slopes: no region is steeper."""
    product = 1.0
    for layer in net.layers:
        product *= float(np.linalg.norm(layer.dense(), ord=2)) * float(np.abs(layer.units.slopes).max(initial=0.0))
    return product * (1 + _ROUNDING)
