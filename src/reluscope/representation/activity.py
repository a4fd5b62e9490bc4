"""Which hidden units are always on, always off, or switch: seen on data, and certified on a box.

A unit is *on* where its pre-activation lies above its first break point (`h > 0` for a ReLU). On a set of inputs a unit
is stably on, stably off, or it switches. Data can only show that a unit switches; that it never does is shown by
bounds on its pre-activation over a box, or by the list of all regions in the box.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, seeded
from reluscope._tables import Tabular
from reluscope.budget import Budget, parse_budget
from reluscope.cells.bounds import LayerBounds, box_preactivations
from reluscope.cells.domain import box_bounds
from reluscope.network import Network, check_network, input_rows
from reluscope.representation._prefix import prefix

States = npt.NDArray[np.int8]

ON, OFF, SWITCHES, UNDECIDED, AFFINE = 1, -1, 0, 2, 3
"""States of a unit on a box; `AFFINE` units have no break point."""

MOST_INPUTS_FOR_REGIONS = 6
"""Regions are listed to settle undecided units when the network has at most this many inputs."""

_WITNESSES = 2000


@dataclass(frozen=True, eq=False)
class Stability(Tabular):
    """The state of every hidden unit on a box.

    `state[l]` (units,) is 1 always on, -1 always off, 0 switches (both were seen), 2 undecided, 3 affine, for hidden
    layer l, counted from 0. On means above the first break, so a unit with several breaks, such as hardtanh, may bend
    while it is always on. `bounds[l]` brackets its pre-activations. `method` is "bounds", "regions of the first k
    layers" or "regions": the last settled every unit by listing all regions of the box, so nothing is undecided.
    `settled_layers` is that k. `seed` repeats the search for switching units.

    Attributes
    ----------
    network : Network
    box : (lower, upper)
    state : tuple of (units,) arrays
    bounds : tuple of LayerBounds
    method : str
    settled_layers : int
    n_regions : int or None
    seed : int or None
    """

    network: Network
    box: tuple[FloatArray, FloatArray]
    state: tuple[States, ...]
    bounds: tuple[LayerBounds, ...]
    method: str
    settled_layers: int
    n_regions: int | None
    seed: int | None

    def count(self, state: int) -> npt.NDArray[np.int64]:
        """Number of units in a state, by hidden layer.

        Parameters
        ----------
        state : int
            1 always on, -1 always off, 0 switches, 2 undecided, 3 affine.

        Returns
        -------
        (hidden layers,) array
        """
        return np.array([int((s == state).sum()) for s in self.state], dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Columns by name, one row per hidden layer."""
        return {
            "layer": np.arange(len(self.state)),
            "units": np.array([len(s) for s in self.state]),
            "always_on": self.count(ON),
            "always_off": self.count(OFF),
            "switching": self.count(SWITCHES),
            "undecided": self.count(UNDECIDED),
        }

    def __repr__(self) -> str:
        total = {name: int(self.count(k).sum()) for name, k in (("on", ON), ("off", OFF), ("undecided", UNDECIDED))}
        return (
            f"Stability({total['on']} units always on, {total['off']} always off, {total['undecided']} undecided of "
            f"{self.network.n_units}, by {self.method})"
        )


def stable_units(net: Network, box: Any, *, X: Any = None, budget: Any = None, rng: Any = None) -> Stability:
    """The state of every hidden unit of `net` on the box `(lo, hi)`: always on, always off, switching or undecided.

    First sound bounds with rounding inside, then witnesses (points of the box, rows of `X` in it among them) for
    units that switch; if units remain and the network has at most six inputs, the regions of the first 1, 2, 4, ...
    layers in the box are listed while `budget` lasts. Guarantee: "always" is certified on the whole box (by region
    lists: up to the rounding of the enumeration), "switching" has two points that show it. Cost: one backward pass
    of linear bounds per layer, then the regions.
    """
    check_network(net)
    lower, upper = box_bounds(box, net.n_inputs)
    limit = parse_budget(budget, "20000 regions")
    generator, seed = seeded(rng)
    bounds = box_preactivations(net, lower, upper)
    state = []
    for layer, bound in zip(net.hidden, bounds, strict=True):
        first = layer.units.breaks[:, 0] if layer.units.breaks.shape[1] else np.full(layer.width, np.inf)
        found = np.where(bound.lower > first, ON, np.where(bound.upper <= first, OFF, UNDECIDED))
        state.append(np.where(layer.units.pieces == 1, AFFINE, found).astype(np.int8))
    points = generator.uniform(lower, upper, (_WITNESSES, net.n_inputs))
    if X is not None:
        rows, _ = input_rows(net, X)
        points = np.vstack([points, rows[((rows >= lower) & (rows <= upper)).all(axis=1)]])
    on = _seen_on(net, points)
    for s, (some, every) in zip(state, on, strict=True):
        s[(s == UNDECIDED) & some & ~every] = SWITCHES
    settled, n_regions = _settle_by_regions(net, (lower, upper), state, limit)
    method = "bounds" if not settled else "regions"
    if 0 < settled < len(state):
        method = f"regions of the first {settled} layers"
    return Stability(net, (lower, upper), tuple(state), tuple(bounds), method, settled, n_regions, seed)


def _settle_by_regions(
    net: Network, box: tuple[FloatArray, FloatArray], state: list[States], limit: Budget
) -> tuple[int, int | None]:
    """List the regions of the first 1, 2, 4, ... layers while the budget lasts; settle their undecided units.

    Returns how many layers were settled and how many regions the last complete list has.
    """
    from reluscope.cells.regions import uninterrupted

    settled, n_regions = 0, None
    open_layers = [i for i, s in enumerate(state) if (s == UNDECIDED).any()]
    if not open_layers or net.n_inputs > MOST_INPUTS_FOR_REGIONS:
        return settled, n_regions
    last = open_layers[-1] + 1
    for depth in sorted({*(1 << k for k in range(last.bit_length())), last}):
        if depth <= open_layers[0] or depth > last:
            continue
        found = uninterrupted(prefix(net, depth), box, budget=limit, progress=None)
        if not found.complete:
            break
        settled, n_regions = depth, len(found)
        high = found.pattern > 0
        some, every = np.asarray(high.any(axis=0)), np.asarray(high.all(axis=0))
        for i, s in enumerate(state[:depth]):
            part = slice(net.offsets[i], net.offsets[i + 1])
            exact = np.where(every[part], ON, np.where(some[part], SWITCHES, OFF))
            s[:] = np.where(s == UNDECIDED, exact, s)
    return (len(state) if settled == last else settled), n_regions


def _seen_on(net: Network, points: FloatArray) -> list[tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    """For each hidden layer, which units are on for some of the points and which for all."""
    high = net.pattern(points) > 0
    some, every = np.asarray(high.any(axis=0)), np.asarray(high.all(axis=0))
    parts = [slice(net.offsets[i], net.offsets[i + 1]) for i in range(len(net.hidden))]
    return [(some[p], every[p]) for p in parts]
