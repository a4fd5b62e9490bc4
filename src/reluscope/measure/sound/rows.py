"""A property as rows on the outputs of a network that also shows the inputs the property reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag

from reluscope._check import FloatArray
from reluscope.activations import Units
from reluscope.formats.vnnlib import Case, Property
from reluscope.inputs._law import Law
from reluscope.network import Layer, Network

Box = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Rows:
    """The event as a union over cases of intersections of rows `G y - g <= 0`."""

    network: Network
    """The network, its outputs followed by the inputs that some row reads."""
    G: FloatArray
    g: FloatArray
    strict: npt.NDArray[np.bool_]
    case_of: npt.NDArray[np.int64]
    n_cases: int
    within: Box | None
    """A box in x outside which the event is impossible; its sides are not among the rows."""
    everything: bool
    """Whether some case has no rows: the event holds all over the box."""


def event_rows(net: Network, law: Law, event: Property) -> Rows:
    """Rows for the property under this law; sides that the law's support implies are left out."""
    low, high = law.support()
    boxes = {(c.lower.tobytes(), c.upper.tobytes()) for c in event.cases}
    within: Box | None = None
    if len(boxes) == 1 and law.keeps_axes:
        # A point law fixes inputs: those cannot be cut, only compared.
        case = event.cases[0]
        free = high > low
        within = (np.where(free, case.lower, -np.inf), np.where(free, case.upper, np.inf))
    read = np.zeros(net.n_inputs, bool)
    for case in event.cases:
        above, under = _faces(case, low, high)
        read |= above | under
        if case.reads_inputs.any():
            read |= (np.asarray(case.A) != 0).any(axis=0)
    shown = np.flatnonzero(read)
    place = np.cumsum(read) - 1
    G, g, strict, case_of = [], [], [], []
    everything = False
    for index, case in enumerate(event.cases):
        rows = np.concatenate([case.G, np.asarray(case.A)[:, shown]], axis=1)
        bounds, tight = [case.g], [case.strict]
        above, under = _faces(case, low, high)
        if within is not None:
            above, under = above & (high <= low), under & (high <= low)
        for sign, which, side in ((1.0, above, case.upper), (-1.0, under, case.lower)):
            picked = np.flatnonzero(which)
            extra = np.zeros((len(picked), rows.shape[1]))
            extra[np.arange(len(picked)), net.n_outputs + place[picked]] = sign
            rows = np.concatenate([rows, extra])
            bounds.append(sign * side[picked])
            tight.append(np.zeros(len(picked), bool))
        G.append(rows)
        g.append(np.concatenate(bounds))
        strict.append(np.concatenate(tight))
        case_of.append(np.full(len(rows), index, dtype=np.int64))
        everything |= len(rows) == 0
    return Rows(
        _showing(net, shown), np.concatenate(G), np.concatenate(g), np.concatenate(strict), np.concatenate(case_of),
        len(event.cases), within, everything,
    )  # fmt: skip


def _faces(case: Case, low: FloatArray, high: FloatArray) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Inputs whose upper and lower bound in the case is not implied by the support."""
    return case.upper < high, case.lower > low


def _showing(net: Network, shown: npt.NDArray[np.intp]) -> Network:
    """`x -> (net(x), x[shown])`: the inputs ride past the layers on identity units."""
    n = len(shown)
    if n == 0:
        return net
    pick = np.zeros((n, net.n_inputs))
    pick[np.arange(n), shown] = 1.0
    layers = []
    for index, layer in enumerate(net.layers):
        W = layer.dense()
        weight = np.concatenate([W, pick]) if index == 0 else block_diag(W, np.eye(n))
        units = Units.concatenate([layer.units, Units.uniform("identity", n)])
        layers.append(Layer(np.ascontiguousarray(weight), np.concatenate([layer.bias, np.zeros(n)]), units))
    return Network(layers, name=net.name)
