"""The coordinates of the sound engine: each component of a law as independent coordinates in a finite box.

Everything that standard coordinates round off is bounded here: the first layer in the coordinates `u` is known up to
`first_error`, the law of u up to `unsure`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from reluscope._check import EPS, FloatArray
from reluscope.errors import InputError
from reluscope.inputs import Component, Factor, Law, standard
from reluscope.measure.sound.mass import side_mass
from reluscope.network import Network

REACH = 38.0
"""Normal coordinates are cut here: what lies beyond has less mass than the smallest normal double."""

BEYOND = 1e-300
"""More than the mass beyond `REACH`, for any number of coordinates that fits into memory."""

Box = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Frame:
    """One component: `x` is a function of `u`, whose coordinates are independent, normal or uniform, in a box.

    `P(event) = (mass of {u in the box, event}) / total`, up to the error that follows from `unsure`.
    """

    weight: float
    network: Network
    lower: FloatArray
    upper: FloatArray
    width: FloatArray
    """Of the whole law's sides: a uniform coordinate's mass is its length over this."""
    gaussian: bool
    first_error: FloatArray
    total: tuple[float, float]
    """Bounds of the law's mass in u: 1, or that of a truncated law's box."""
    unsure: float
    """Mass of u, as a share of the total, that may lie outside the true box although it is inside this one."""
    beyond: float
    """Mass that lies outside the box; 0 when there is none."""
    free: int = 0
    """How many of the last coordinates are moves of the input, over which the worst counts, and not part of the law."""
    norm: int = 0
    """By which those are measured (`search.py`)."""

    @property
    def d(self) -> int:
        """The number of coordinates."""
        return len(self.lower)


def frames(law: Law, net: Network, within: Box | None) -> tuple[Frame, ...]:
    """The frames of a law; `within` is a box in x outside which the event is impossible, used where axes allow it."""
    found = []
    for part in standard(law, net):
        # A function of another law: that law, with the function as the first layer.
        component, own = part.before, part.source or net
        box = within if part.source is None else None
        if component.rows is not None:
            raise InputError(
                'guarantee "sound" needs a truncated law with independent inputs; '
                "for a correlated Gaussian truncated to a box ask for confidence"
            )
        if component.r == 0:
            found.append(_constant(component, own))
        elif component.kind == "gaussian":
            found.append(_gaussian(component, own))
        elif component.kind == "uniform":
            found.append(_uniform(component, own, component.law, box))
        else:
            found.append(_truncated(component, own, component.law, box))
    return tuple(found)


def _dense(matrix: Any) -> FloatArray:
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix, dtype=np.float64)


def _bias_error(net: Network, point: FloatArray) -> FloatArray:
    """Rounding error of `W point + b`."""
    layer = net.layers[0]
    return np.asarray((net.n_inputs + 4) * EPS * (abs(layer.weight) @ np.abs(point) + np.abs(layer.bias)))


def _constant(component: Component, net: Network) -> Frame:
    """The network sees nothing of this component: one coordinate that does not matter."""
    point = _mean_point(component)
    W = _dense(abs(net.layers[0].weight))
    spread = np.zeros(net.n_inputs)
    if component.kind == "gaussian":
        factor = component.chart.seen.factor  # type: ignore[attr-defined]
        spread = REACH * math.sqrt(factor.k) * factor.spread  # columns dropped as rounding
        pulled = np.abs(_dense(factor.pull(net.layers[0].weight))).sum(axis=1)
        error = REACH * pulled + (net.n_inputs + factor.k + 8) * EPS * (W @ spread)
    else:
        error = np.zeros(len(W))
    error = error + _bias_error(net, point)
    unit = np.ones(1)
    beyond = BEYOND if component.kind == "gaussian" else 0.0
    return Frame(component.weight, component.network, np.zeros(1), unit, unit, False, error, (1.0, 1.0), 0.0, beyond)


def _mean_point(component: Component) -> FloatArray:
    return np.asarray(component.to_x(np.zeros(component.network.n_inputs)))


def _gaussian(component: Component, net: Network) -> Frame:
    """`x = m + L z` with z cut at `REACH`; u is z itself or a rotation of it.

    With B the stored basis and B' the orthonormal one next to it (`|B - B'| <= |B^T B - I|`), `W L z` is `W L B' u`
    plus what W L sees outside the span of B': a few rounding errors of `|W| |L|` times the length of z.
    """
    seen = component.chart.seen  # type: ignore[attr-defined]
    mean = component.chart.mean  # type: ignore[attr-defined]
    factor, W = seen.factor, net.layers[0].weight
    k, n = factor.k, net.n_inputs
    full = _dense(factor.pull(W))
    sizes = Factor(factor.sd, None if factor.V is None else np.abs(factor.V))
    absolute = _dense(sizes.pull(abs(W)))
    rounding = (n + 2 * k + 16) * EPS
    dropped = np.ones(k, bool)
    dropped[seen.keep] = False
    error = REACH * (np.abs(full[:, dropped]).sum(axis=1) + rounding * absolute.sum(axis=1))
    if seen.basis is not None:
        B = seen.basis
        part = full[:, seen.keep]
        skew = float(np.linalg.norm(B.T @ B - np.eye(B.shape[1]))) + rounding * B.shape[1]
        rest = np.linalg.norm(part - (part @ B) @ B.T, axis=1)
        length = REACH * math.sqrt(k)
        error = error + length * (rest + np.linalg.norm(absolute, axis=1) * (4 * skew + 4 * rounding * math.sqrt(k)))
    error = error + _bias_error(net, mean)
    d = component.r
    lower, upper = np.full(d, -REACH), np.full(d, REACH)
    return Frame(
        component.weight, component.network, lower, upper, upper - lower, True, error, (1.0, 1.0), 0.0, BEYOND
    )  # fmt: skip


def _uniform(component: Component, net: Network, law: Law, within: Box | None) -> Frame:
    keep = component.chart.keep  # type: ignore[attr-defined]
    low, high = law.support()
    fixed = np.where(high > low, 0.0, low)
    lower, upper = low[keep], high[keep]
    width = upper - lower
    if within is not None:
        lower, upper = np.maximum(lower, within[0][keep]), np.minimum(upper, within[1][keep])
    error = _bias_error(net, fixed)
    return Frame(component.weight, component.network, lower, upper, width, False, error, (1.0, 1.0), 0.0, 0.0)


def _truncated(component: Component, net: Network, law: Law, within: Box | None) -> Frame:
    keep = component.chart.keep  # type: ignore[attr-defined]
    ((_, gaussian),) = law.unrestricted.gaussians
    mean, sd = gaussian.mean[keep], gaussian.sd[keep]
    first, last = (side[keep] for side in law.support())
    sides = [_standard_sides(first, last, mean, sd)]
    if within is not None:
        low, high = np.maximum(first, within[0][keep]), np.minimum(last, within[1][keep])
        sides.append(_standard_sides(low, high, mean, sd))
    lower, upper = sides[-1][:2]
    masses = np.array([side_mass(a, b) for a, b in zip(sides[0][0], sides[0][1], strict=True)])
    unsure = 0.0
    for low, high, by_low, by_high in sides:
        density = 0.4 * (by_low * np.exp(-0.5 * low**2) + by_high * np.exp(-0.5 * high**2))
        with np.errstate(divide="ignore"):
            unsure += float((2.0 * density / masses).sum())
    total = float(masses.prod())
    slack = (len(keep) + 2) * 1e-13 + unsure
    if not total > 1e-290 or not slack < 0.1:
        raise InputError(
            "the box of the truncated law holds too little mass, or is too narrow for its distance from the mean, "
            "to bound probabilities in double precision; ask for confidence"
        )
    reach = np.maximum(np.abs(lower), np.abs(upper))
    W = _dense(abs(net.layers[0].weight))[:, keep]
    error = _bias_error(net, gaussian.mean) + 4 * EPS * (W @ (sd * reach))
    cut = bool(np.isinf(first).any() or np.isinf(last).any())
    return Frame(
        component.weight, component.network, lower, upper, upper - lower, True, error,
        (total * (1 - slack), total * (1 + slack)), unsure, BEYOND / total if cut else 0.0,
    )  # fmt: skip


def _standard_sides(
    low: FloatArray, high: FloatArray, mean: FloatArray, sd: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """`(x - mean) / sd` of both sides, moved outward by what they may be off, cut at `REACH`, and those moves."""
    ends, moves = [], []
    for side, out in ((low, -1.0), (high, 1.0)):
        finite = np.isfinite(side)
        x = np.where(finite, side, 0.0)
        move = np.where(finite, 4 * EPS * (np.abs(x) + np.abs(mean)) / sd, 0.0)
        end = np.where(finite, (x - mean) / sd + out * move, side)
        ends.append(np.clip(end, -REACH, REACH))
        moves.append(np.where(np.abs(end) < REACH, move, 0.0))
    return ends[0], ends[1], moves[0], moves[1]
