"""Which hidden units are always on, always off, or switch: seen on data, and certified on a box.

A unit is *on* where its pre-activation lies above its first break point (`h > 0` for a ReLU). On a set of inputs a unit
is stably on, stably off, or it switches. Data can only show that a unit switches; that it never does is shown by
bounds on its pre-activation over a box, or by the list of all regions in the box.

Bounds. For every layer, linear bounds `a . x + c` on each pre-activation are carried back to the input through the
chords of the units below (of the convex hull of each unit's graph over its own interval) and maximised over the box.
Rounding is inside: next to each row travels a bound on the rounding error of all its products, from
`|fl(a . b) - a . b| <= γ_n |a| . |b|`. So a certificate holds for the real-valued network with the stored weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray, generator
from reluscope.activations import Units
from reluscope.budget import Budget, parse_budget
from reluscope.cells.domain import box_bounds
from reluscope.network import Layer, Network, check_network
from reluscope.parallel import blas_threads
from reluscope.representation._prefix import prefix

States = npt.NDArray[np.int8]

ON, OFF, SWITCHES, UNDECIDED, AFFINE = 1, -1, 0, 2, 3
"""States of a unit on a box; `AFFINE` units have no break point."""

MOST_INPUTS_FOR_CELLS = 6
"""Regions are listed to settle undecided units when the network has at most this many inputs."""

_WIDEST_FOR_LINEAR_BOUNDS = 1500
_WITNESSES = 2000


@dataclass(frozen=True, eq=False)
class LayerBounds:
    """`lower <= h <= upper` for the pre-activations of one layer all over a box, rounding included; shape (units,)."""

    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False)
class Stability:
    """The state of every hidden unit on a box.

    `state[l]` (units,) is 1 always on, -1 always off, 0 switches (both were found), 2 undecided, 3 affine, for hidden
    layer l from 0. `bounds[l]` brackets its pre-activations. `method` is "bounds", "regions up to
    layer k" or "regions": the latter settled every unit by listing all regions of the box, so nothing is undecided.
    """

    network: Network
    box: tuple[FloatArray, FloatArray]
    state: tuple[States, ...]
    bounds: tuple[LayerBounds, ...]
    method: str
    n_regions: int | None

    def count(self, state: int) -> npt.NDArray[np.int64]:
        """Number of units in a state, by hidden layer."""
        return np.array([int((s == state).sum()) for s in self.state], dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Columns by name, one row per hidden layer."""
        return {
            "layer": np.arange(1, len(self.state) + 1),
            "units": np.array([len(s) for s in self.state]),
            "always_on": self.count(ON),
            "always_off": self.count(OFF),
            "switching": self.count(SWITCHES),
            "undecided": self.count(UNDECIDED),
        }

    def to_pandas(self) -> Any:
        """The columns of `to_dict` as a pandas DataFrame."""
        from reluscope._extras import require

        return require("pandas", "pandas").DataFrame(self.to_dict())

    def __repr__(self) -> str:
        total = {name: int(self.count(k).sum()) for name, k in (("on", ON), ("off", OFF), ("undecided", UNDECIDED))}
        return (
            f"Stability({total['on']} units always on, {total['off']} always off, {total['undecided']} undecided of "
            f"{self.network.n_units}, by {self.method})"
        )


def stable_units(net: Network, box: Any, *, X: Any = None, budget: Any = "20000 regions", rng: Any = 0) -> Stability:
    """The state of every hidden unit of `net` on the box `(lo, hi)`: always on, always off, switching or undecided.

    First sound bounds with rounding inside, then witnesses (points of the box, rows of `X` in it among them) for
    units that switch; if units remain and the network has at most six inputs, the regions of the first 1, 2, 4, ...
    layers in the box are listed while `budget` lasts. Guarantee: "always" is certified on the whole box (by region
    lists: up to the rounding of the enumeration), "switching" has two points that show it. Cost: one backward pass
    of linear bounds per layer, then the regions.
    """
    check_network(net)
    lower, upper = box_bounds(box, net.n_inputs)
    limit = parse_budget(budget)
    bounds = box_preactivations(net, lower, upper)
    state = []
    for layer, bound in zip(net.hidden, bounds, strict=True):
        first = layer.units.breaks[:, 0] if layer.units.breaks.shape[1] else np.full(layer.width, np.inf)
        found = np.where(bound.lower > first, ON, np.where(bound.upper <= first, OFF, UNDECIDED))
        state.append(np.where(layer.units.pieces == 1, AFFINE, found).astype(np.int8))
    points = generator(rng).uniform(lower, upper, (_WITNESSES, net.n_inputs))
    if X is not None:
        rows, _ = net._rows(X)
        points = np.vstack([points, rows[((rows >= lower) & (rows <= upper)).all(axis=1)]])
    on = _seen_on(net, points)
    for s, (some, every) in zip(state, on, strict=True):
        s[(s == UNDECIDED) & some & ~every] = SWITCHES
    settled, n_regions = _settle_by_regions(net, (lower, upper), state, limit)
    method = "bounds" if not settled else "regions" if settled == len(state) else f"regions up to layer {settled}"
    return Stability(net, (lower, upper), tuple(state), tuple(bounds), method, n_regions)


def _settle_by_regions(
    net: Network, box: tuple[FloatArray, FloatArray], state: list[States], limit: Budget
) -> tuple[int, int | None]:
    """List the regions of the first 1, 2, 4, ... layers while the budget lasts; settle their undecided units.

    Returns how many layers were settled and how many regions the last complete list has.
    """
    from reluscope.cells.regions import regions

    settled, n_regions = 0, None
    open_layers = [i for i, s in enumerate(state) if (s == UNDECIDED).any()]
    if not open_layers or net.n_inputs > MOST_INPUTS_FOR_CELLS:
        return settled, n_regions
    last = open_layers[-1] + 1
    for depth in sorted({*(1 << k for k in range(last.bit_length())), last}):
        if depth <= open_layers[0] or depth > last:
            continue
        found = regions(prefix(net, depth), box, budget=limit, progress=None)
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


def box_preactivations(net: Network, lower: FloatArray, upper: FloatArray) -> list[LayerBounds]:
    """Sound bounds on the pre-activations of every hidden layer over a box."""
    found: list[LayerBounds] = []
    lines: list[_Lines] = []
    low, high = lower, upper
    with blas_threads(max(net.widths)):
        for k, layer in enumerate(net.hidden):
            bound = _interval(layer, low, high)
            wide = max(net.widths[: k + 2]) > _WIDEST_FOR_LINEAR_BOUNDS
            if k and not wide:
                bound = _backward(net, k, lines, found, bound, lower, upper)
            found.append(bound)
            lines.append(_hull_lines(layer.units, bound))
            low, high = _unit_range(layer.units, bound)
    return found


@dataclass(frozen=True, eq=False)
class _Lines:
    """`low_slope h + low_shift <= act(h) <= high_slope h + high_shift` on the unit's interval."""

    low_slope: FloatArray
    low_shift: FloatArray
    high_slope: FloatArray
    high_shift: FloatArray


def _interval(layer: Layer, low: FloatArray, high: FloatArray) -> LayerBounds:
    """Interval arithmetic through one affine map."""
    middle, radius = 0.5 * (low + high), 0.5 * (high - low)
    size = abs(layer.weight)
    centre = layer.weight @ middle + layer.bias
    spread = size @ radius
    error = _gamma(layer.n_inputs + 3) * (size @ (np.abs(middle) + radius) + np.abs(layer.bias))
    return LayerBounds(centre - spread - error, centre + spread + error)


def _backward(
    net: Network,
    k: int,
    lines: list[_Lines],
    known: list[LayerBounds],
    first: LayerBounds,
    lower: FloatArray,
    upper: FloatArray,
) -> LayerBounds:
    """Tighten the bounds of hidden layer k by carrying linear bounds back to the box."""
    layer = net.layers[k]
    open_ = np.flatnonzero(_breaks_inside(layer.units, first))
    if not len(open_):
        return first
    rows = layer.weight[open_]
    rows = rows.toarray() if sparse.issparse(rows) else rows
    A = np.vstack([rows, -rows])  # the upper bounds of h and of -h
    c = np.concatenate([layer.bias[open_], -layer.bias[open_]])
    error = np.zeros(len(c))
    for j in range(k - 1, -1, -1):
        below, line, bound = net.layers[j], lines[j], known[j]
        up = A > 0
        reach = np.maximum(np.abs(bound.lower), np.abs(bound.upper))
        shift = np.where(up, line.high_shift, line.low_shift)
        B = A * np.where(up, line.high_slope, line.low_slope)
        size = np.abs(B)
        g = _gamma(below.width + 4)
        error += g * (np.abs(A * shift).sum(axis=1) + size @ (np.abs(below.bias) + reach) + np.abs(c))
        c = c + (A * shift).sum(axis=1) + B @ below.bias
        if j:
            z_low, z_high = _unit_range(net.layers[j - 1].units, known[j - 1])
        else:
            z_low, z_high = lower, upper
        z_reach = np.maximum(np.abs(z_low), np.abs(z_high))
        error += _gamma(below.width + 2) * (size @ (abs(below.weight) @ z_reach))
        A = (below.weight.T @ B.T).T if sparse.issparse(below.weight) else B @ below.weight
    reach = np.maximum(np.abs(lower), np.abs(upper))
    error += _gamma(len(lower) + 3) * (np.abs(A) @ reach + np.abs(c))
    top = c + np.where(A > 0, A * upper, A * lower).sum(axis=1) + 2 * error  # twice: the error itself was rounded
    n = len(open_)
    low, high = first.lower.copy(), first.upper.copy()
    high[open_] = np.minimum(high[open_], top[:n])
    low[open_] = np.maximum(low[open_], -top[n:])
    return LayerBounds(low, high)


def _breaks_inside(units: Units, bound: LayerBounds) -> npt.NDArray[np.bool_]:
    inside = (units.breaks >= bound.lower[:, None]) & (units.breaks < bound.upper[:, None])
    return np.asarray(inside.any(axis=1))


def _hull_lines(units: Units, bound: LayerBounds) -> _Lines:
    """Lines above and below each unit's graph on its interval; tight when the unit stays on one piece."""
    rows = np.arange(len(units))
    low_piece, high_piece = units.pattern(bound.lower), units.pattern(bound.upper)
    left_slope, left_shift = units.slopes[rows, low_piece], units.intercepts[rows, low_piece]
    one = low_piece == high_piece
    low_slope, low_shift = left_slope.copy(), left_shift.copy()
    high_slope, high_shift = left_slope.copy(), left_shift.copy()
    bent = np.flatnonzero(~one)
    if len(bent):
        least, most = _unit_range(units, bound)
        low_slope[bent], high_slope[bent] = 0.0, 0.0
        low_shift[bent], high_shift[bent] = least[bent], most[bent]
        kink = bent[(high_piece[bent] - low_piece[bent]) == 1]
        right_slope, right_shift = units.slopes[rows, high_piece], units.intercepts[rows, high_piece]
        width = bound.upper - bound.lower
        kink = kink[np.isfinite(width[kink])]
        if len(kink):
            a, b = bound.lower[kink], bound.upper[kink]
            fa = left_slope[kink] * a + left_shift[kink]
            fb = right_slope[kink] * b + right_shift[kink]
            chord = (fb - fa) / width[kink]
            slack = 16 * EPS * (np.abs(fa) + np.abs(fb) + np.abs(chord) * (np.abs(a) + np.abs(b)))
            at = fa - chord * a
            # The tangent of the side that takes more of the interval makes the thinner strip.
            t = units.breaks[kink, low_piece[kink]]
            right = (b - t) >= (t - a)
            tangent = np.where(right, right_slope[kink], left_slope[kink])
            tangent_at = np.where(right, right_shift[kink], left_shift[kink])
            convex = right_slope[kink] >= left_slope[kink]
            low_slope[kink], low_shift[kink] = (
                np.where(convex, tangent, chord),
                np.where(convex, tangent_at, at - slack),
            )
            high_slope[kink], high_shift[kink] = (
                np.where(convex, chord, tangent),
                np.where(convex, at + slack, tangent_at),
            )
    return _Lines(low_slope, low_shift, high_slope, high_shift)


def _unit_range(units: Units, bound: LayerBounds) -> tuple[FloatArray, FloatArray]:
    """Least and largest value of each unit on its interval: at an end, or at a break point inside."""
    if units.is_identity:
        return bound.lower, bound.upper
    values = [units(bound.lower), units(bound.upper)]
    for k in range(units.breaks.shape[1]):
        at = np.clip(units.breaks[:, k], bound.lower, bound.upper)
        values.append(units(at))
    stack = np.stack(values)
    least, most = stack.min(axis=0), stack.max(axis=0)
    if units.is_relu:
        return least, most
    slack = 4 * EPS * np.abs(stack).max(axis=0)
    return least - slack, most + slack


def _seen_on(net: Network, points: FloatArray) -> list[tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    """For each hidden layer, which units are on for some of the points and which for all."""
    high = net.pattern(points) > 0
    some, every = np.asarray(high.any(axis=0)), np.asarray(high.all(axis=0))
    parts = [slice(net.offsets[i], net.offsets[i + 1]) for i in range(len(net.hidden))]
    return [(some[p], every[p]) for p in parts]


def _gamma(n: int) -> float:
    """`n u / (1 - n u)`, u = 2^-53: the relative error of n roundings in any order."""
    return n * EPS / 2 / (1 - n * EPS / 2)
