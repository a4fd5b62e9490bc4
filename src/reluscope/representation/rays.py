"""`rays`: where the image of a layer goes to infinity, and whether it goes there at all.

The ray space of hidden layer k is the set of directions v such that the image of layer k contains a ray
`y + t v, t >= 0`. It is the image of the bias-free network, `Ray_(k) = G*_(k)(R^n)` with `G*(v) = lim G(t v) / t`, so
the image is bounded iff the bias-free network vanishes identically up to that layer. (A ray is mapped to a curve that
is *eventually* a ray: near its start it may bend.)

The bias-free network is linear on finitely many cones. Listing them decides boundedness; so does one direction with
a non-zero image, or a bound that shows a whole layer to be off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, choice, integer, real_array, seeded
from reluscope.budget import Budget, parse_budget
from reluscope.cells.bounds import box_preactivations
from reluscope.errors import InputError
from reluscope.network import Network
from reluscope.representation._prefix import checked, chunk_size, layer_maps, recession
from reluscope.threads import clean_interrupt

METHODS = ("auto", "enumeration", "bounds")

MOST_INPUTS = 6
"""Cones are listed by themselves up to this many inputs."""

_DIRECTIONS = (512, 4_096, 16_384)
_ZERO = 1e-12
"""A row of a linear map counts as zero when it is at most this share of the terms it was summed from."""


@dataclass(frozen=True, eq=False, repr=False)
class Rays:
    """The ray space of one hidden layer.

    Attributes
    ----------
    network, layer : Network, int
        The network, and the hidden layer counted from 0.
    bounded : bool or None
        Whether the image of the layer is bounded; None when it could not be decided.
    method : str
        How: "enumeration" (all cones of the bias-free network were listed), "witness" (a direction with a non-zero
        image), "bounds" (a whole layer is shown to be off).
    dead_layer : int or None
        The first layer at which every ray has died.
    maps, inside : ndarray or None
        With all cones listed, the linear maps `v -> C v` on them (cones, units, inputs) and a direction inside each
        (cones, inputs).
    dimension : int or None
        Dimension of the span of the ray space, with all cones listed.
    witness, witness_image : ndarray or None
        An input direction and its image, the largest among those tried.
    seed : int or None
        Repeats the answer as `rng=`.
    """

    network: Network
    layer: int
    bounded: bool | None
    method: str
    dead_layer: int | None
    maps: FloatArray | None
    inside: FloatArray | None
    dimension: int | None
    witness: FloatArray | None
    witness_image: FloatArray | None
    seed: int | None

    @property
    def n_cones(self) -> int | None:
        """Number of cones on which the bias-free network is linear, None when they were not listed."""
        return None if self.maps is None else len(self.maps)

    @property
    def random_bounds(self) -> BoundednessBounds:
        """Bounds on the probability of (un)bounded images for random networks of these widths, by layer."""
        return boundedness_bounds(self.network.widths[: self.layer + 2])

    def at(self, directions: npt.ArrayLike) -> FloatArray:
        """`G*_(k)(v)` for each row v: the direction that the image of `x + t v` takes for large t.

        Parameters
        ----------
        directions : (n, inputs)

        Returns
        -------
        (n, units) array
        """
        rows = real_array(directions, "directions", ndim=(1, 2))
        if rows.shape[-1] != self.network.n_inputs:
            raise InputError(f"directions must have {self.network.n_inputs} columns, got shape {rows.shape}")
        return recession(self.network, self.layer + 1)(rows)

    def to_dict(self) -> dict[str, Any]:
        """The facts by name, fit for JSON."""
        return {
            "layer": self.layer,
            "bounded": self.bounded,
            "method": self.method,
            "dead_layer": self.dead_layer,
            "cones": self.n_cones,
            "dimension": self.dimension,
            "witness": None if self.witness is None else self.witness.tolist(),
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        state = {True: "bounded image", False: "unbounded image", None: "undecided"}[self.bounded]
        cones = "" if self.maps is None else f", {len(self.maps):,} cones, dimension {self.dimension}"
        return f"Rays(layer {self.layer}: {state} by {self.method}{cones})"


@clean_interrupt()
def rays(net: Network, layer: int | None = None, *, method: str = "auto", budget: Any = None, rng: Any = None) -> Rays:
    """Whether the image of a hidden layer is bounded, and the directions in which it goes to infinity.

    Parameters
    ----------
    net : Network
    layer : int, optional
        Hidden layer, counted from 0; the last by default.
    method : {"auto", "enumeration", "bounds"}
        "enumeration" lists the cones of the bias-free network; "bounds" looks for a witness among random directions,
        then for a layer that linear programs show to be off; "auto" enumerates up to six inputs while `budget` lasts,
        then tries bounds.
    budget : str or Budget, optional
        20,000 regions if not given
    rng : None, int, SeedSequence or Generator
        For the random directions of "bounds".

    Returns
    -------
    Rays

    Raises
    ------
    InputError
        If `method="enumeration"` does not finish within the budget.

    Notes
    -----
    The ray space is the image of `G*(v) = lim G(t v) / t`, the network without biases. Guarantee: "enumeration" is
    exact up to the rounding of the enumeration; "bounds" is conclusive when it succeeds (the programs up to 1e-9).

    Examples
    --------
    >>> from reluscope import Network
    >>> net = Network([([[1.0], [-1.0]], [3.0, 4.0]), ([[1.0, 1.0]], [0.0])])
    >>> rays(net)
    Rays(layer 0: unbounded image by enumeration, 2 cones, dimension 2)
    """
    net, k = checked(net, layer)
    choice(method, "method", METHODS)
    limit = parse_budget(budget, "20000 regions")
    generator, seed = seeded(rng)
    free = recession(net, k + 1)
    if method != "bounds" and (net.n_inputs <= MOST_INPUTS or method == "enumeration"):
        listed = _by_cones(net, free, k, limit, seed)
        if listed is not None:
            return listed
        if method == "enumeration":
            raise InputError(f"the cones of layer {k} were not all listed within the budget; use method='bounds'")
    v, image = _witness(free, generator)
    if v is not None:
        return Rays(net, k, False, "witness", None, None, None, None, v, image, seed)
    dead = _dead_by_bounds(free)
    return Rays(net, k, True if dead is not None else None, "bounds", dead, None, None, None, None, None, seed)


def boundedness(net: Network, *, budget: Any = None) -> list[bool]:
    """Whether the image of each hidden layer is bounded, from one list of the bias-free cones."""
    net, last = checked(net, None)
    alive = np.zeros(last + 1, dtype=bool)
    free = recession(net, last + 1)
    for _, maps in _cones(free, parse_budget(budget, "20000 regions")):
        alive |= _alive(free, maps)
    return (~alive).tolist()


@dataclass(frozen=True)
class BoundednessBounds:
    """For a random network with symmetric weights: `P(layer k unbounded) >= unbounded[k]`, likewise `bounded`.

    Attributes
    ----------
    widths : tuple of int
    unbounded, bounded : tuple of float
        One number per layer.
    """

    widths: tuple[int, ...]
    unbounded: tuple[float, ...]
    bounded: tuple[float, ...]


def boundedness_bounds(widths: Sequence[int]) -> BoundednessBounds:
    """Bounds on the probability that the image of each hidden layer is (un)bounded, for widths n_0, n_1, ..., n_d.

    `P(unbounded after layer k) >= prod_{i=1..k} (1 - 2^-n_i)`: follow one ray; layer i kills it with probability
    2^-n_i. `P(bounded after layer k) >= 1 - prod_{i=2..k} (1 - 2^-(n_{i-1} n_i))`: layer i is off on the whole
    positive orthant when all its weights are negative. For weights that are independent, symmetric about 0 and
    without atoms. The second tends to 1 with depth iff the sum of `2^-(n_{i-1} n_i)` diverges: not when widths grow.
    """
    n = [integer(w, f"widths[{i}]", low=1) for i, w in enumerate(widths)]
    if len(n) < 2:
        raise InputError(f"widths must hold the inputs and at least one layer, got {list(widths)}")
    survive, spared = 0.0, 0.0  # logarithms of the two products
    unbounded, bounded = [], []
    for i in range(1, len(n)):
        survive += math.log1p(-(2.0 ** -n[i]))
        if i > 1:
            spared += math.log1p(-(2.0 ** -(n[i - 1] * n[i])))
        unbounded.append(math.exp(survive))
        bounded.append(abs(math.expm1(spared)))
    return BoundednessBounds(tuple(n), tuple(unbounded), tuple(bounded))


def _cones(free: Network, limit: Budget) -> Any:
    """Regions of the bias-free network (every cone meets the box around 0) with the maps of all layers, in chunks."""
    from reluscope.cells.regions import uninterrupted

    found = uninterrupted(free, (-1.0, 1.0), budget=limit, progress=None)
    if found.stopped:
        raise _UnfinishedError
    size = chunk_size(free)
    for start in range(0, len(found), size):
        part = slice(start, start + size)
        yield found.interior[part], layer_maps(free, found.pattern[part])


class _UnfinishedError(InputError):
    """The budget ended before all cones were listed."""

    def __init__(self) -> None:
        super().__init__("the budget ended before all cones of the bias-free network were listed; give a larger one")


def _by_cones(net: Network, free: Network, k: int, limit: Budget, seed: int | None) -> Rays | None:
    from reluscope.representation.dimensions import span_dimension

    inside, last = [], []
    alive = np.zeros(k + 1, dtype=bool)
    try:
        for points, maps in _cones(free, limit):
            inside.append(points)
            last.append(maps[-1])
            alive |= _alive(free, maps)
    except _UnfinishedError:
        return None
    points, C = np.concatenate(inside), np.concatenate(last)
    bounded = not alive[-1]
    dead = int(np.argmin(alive)) if bounded else None
    v = image = None
    if not bounded:
        images = np.einsum("kij,kj->ki", C, points)
        size = np.linalg.norm(points, axis=1)
        best = int(np.argmax(np.linalg.norm(images, axis=1) / np.where(size > 0, size, 1.0)))
        v, image = points[best], images[best]
    return Rays(net, k, bounded, "enumeration", dead, C, points, span_dimension(C), v, image, seed)


def _alive(free: Network, maps: list[FloatArray]) -> npt.NDArray[np.bool_]:
    """For each layer, whether the map of some cone is not zero.

    A ReLU that is off has the row 0 exactly. Other units may cancel: a row counts as zero when it is within rounding
    of it, compared with the terms it was summed from.
    """
    out = []
    for k, (layer, C) in enumerate(zip(free.hidden, maps, strict=True)):
        floor: Any = 0.0
        if k and not layer.units.is_relu:
            floor = _ZERO * (abs(layer.dense()) @ np.abs(maps[k - 1])).max(axis=2, keepdims=True, initial=0.0)
        out.append(bool((np.abs(C) > floor).any()))
    return np.array(out)


def _witness(free: Network, rng: np.random.Generator) -> tuple[FloatArray | None, FloatArray | None]:
    """A direction whose image is not zero, even in the worst case of rounding: the axes, then more and more directions.

    The cone that survives may be narrow (one direction in 200 with three inputs is not rare), and directions are cheap.
    """
    axes = np.vstack([np.eye(free.n_inputs), -np.eye(free.n_inputs)])
    for draws in _DIRECTIONS:
        v, image = _surest(free, np.vstack([axes, rng.normal(size=(draws, free.n_inputs))]))
        if v is not None:
            return v, image
    return None, None


def _surest(free: Network, directions: FloatArray) -> tuple[FloatArray | None, FloatArray | None]:
    """The direction whose image is surest not to be zero, or None if rounding explains all images."""
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    z, error = directions, np.zeros_like(directions)
    for layer in free.hidden:
        size, gamma = abs(layer.weight), (layer.n_inputs + 4) * EPS
        h = layer.affine(z)
        error = (size @ (gamma * np.abs(z) + error).T).T
        z = layer.units(h)
        error = error * np.abs(layer.units.slopes).max(axis=1) + EPS * np.abs(z)
    sure = (np.abs(z) - error).max(axis=1)
    best = int(np.argmax(sure))
    return (directions[best], z[best]) if sure[best] > 0 else (None, None)


def _dead_by_bounds(free: Network) -> int | None:
    """The first layer that is off on the whole box around 0, by linear bounds and then by linear programs."""
    n = free.n_inputs
    for k, (layer, bound) in enumerate(zip(free.hidden, _tightest(free, n), strict=True)):
        flat = layer.units.slopes[:, 0] == 0
        if (flat & (bound <= 0)).all():
            return k
    return None


def _tightest(free: Network, n: int) -> list[FloatArray]:
    """Upper bounds on the pre-activations over the cube, with LPs over the triangle relaxation where they may decide.

    The relaxed set is a superset of the reachable one: each unit's value lies above 0 and its pre-activation and below
    the chord. Bounds found for a layer are used for the later ones.
    """
    from reluscope.cells.lp import Outcome, Program

    bounds = box_preactivations(free, np.full(n, -1.0), np.full(n, 1.0))
    upper = [b.upper.copy() for b in bounds]
    lower = [b.lower.copy() for b in bounds]
    for k in range(1, len(upper)):  # values are not negative: a unit without a positive weight on a live one is off
        if free.hidden[k - 1].units.is_relu:
            positive = (free.hidden[k].weight > 0) @ (upper[k - 1] > 0).astype(np.float64)
            upper[k][np.asarray(positive).ravel() == 0] = 0.0
    if not all(layer.units.is_relu for layer in free.hidden) or free.n_units > _MOST_LP_UNITS:
        return upper
    widths = [n, *(layer.width for layer in free.hidden)]
    start = np.concatenate([[0], np.cumsum(widths)])
    rows: list[FloatArray] = []
    right: list[float] = []
    low, high = [np.full(n, -1.0)], [np.full(n, 1.0)]
    for k, layer in enumerate(free.hidden):
        before = slice(start[k], start[k + 1])
        weight = layer.dense()
        if k:
            total = int(start[k + 1])
            A = np.array([np.pad(r, (0, total - len(r))) for r in rows])
            program = Program(A, np.array(right), np.concatenate(low), np.concatenate(high))
            for i in np.flatnonzero(upper[k] > 0):
                c = np.zeros(total)
                c[before] = weight[i]
                found = program.maximise(c)
                if found.outcome is Outcome.OPTIMAL:
                    slack = 1e-9 * (1.0 + float(np.abs(weight[i]).sum()))
                    upper[k][i] = min(upper[k][i], found.value + slack if found.value > slack else 0.0)
        here = np.maximum(upper[k], 0.0)
        low.append(np.zeros(layer.width))
        high.append(here)
        for i in np.flatnonzero(here > 0):
            unit = np.zeros(int(start[k + 2]))
            unit[before] = weight[i]
            above = unit.copy()
            above[start[k + 1] + i] = -1.0  # h - z <= 0
            rows.append(above)
            right.append(0.0)
            if lower[k][i] < 0:
                slope = here[i] / (here[i] - lower[k][i])
                below = -slope * unit
                below[start[k + 1] + i] = 1.0  # z <= slope (h - lower)
                rows.append(below)
                right.append(-slope * lower[k][i])
    return upper


_MOST_LP_UNITS = 400
"""Above this, boundedness is decided by linear bounds alone."""
