"""A network as one list of ReLU units in order, with a bound on every rounding error that later steps can make.

Any continuous piecewise-linear activation is affine plus ReLUs, `act(h) = s_0 h + c_0 + sum_m (s_m - s_{m-1})
max(h - t_m, 0)`, so every network is

    z_i = max(h_i, 0),      h_i = C_i u + V_i z + c_i,      g = C u + V z + c,

with V strictly lower triangular. Affine parts (identity units, skip connections) fold into the rows.

**Rounding.** Rows of ReLU layers are the stored weights themselves, exactly. Where activations have an affine part,
rows are sums over paths, off by at most `gamma M`: M the same sum over absolute values at the largest inputs, gamma
the unit roundoff times the operations that a term can pass through. With what is unsure about the first layer this
is the `slack` of a row to begin with; the search adds what its own steps round off.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.network import Network

_ROUNDOFF = 1.2e-16
"""Unit roundoff 1.11e-16, with room for the second-order terms."""

_FLOOR = 1e-290
"""Added to every error, so that underflow is covered and strict rows are."""


@dataclass(frozen=True, eq=False)
class Chain:
    """The units in order and then the event's rows: what the compiled search reads (see `search.py`)."""

    d: int
    head: int
    n_units: int
    net: FloatArray
    """Rows of `stride` numbers, flat."""
    first: npt.NDArray[np.int64]
    slack: FloatArray
    """Rounding errors; negative for rows that are exactly their constant where every unit they read is off."""
    rows: npt.NDArray[np.int64]
    """Which row of the event each of the last rows is."""

    @property
    def n_rows(self) -> int:
        """Rows of the event that are still open."""
        return len(self.rows)

    @property
    def stride(self) -> int:
        """Numbers in a padded row."""
        return self.head + 8 * ((self.n_units + 7) // 8)


def padded(n: int) -> int:
    """n rounded up to whole blocks of eight."""
    return 8 * ((n + 7) // 8)


def chain(
    net: Network,
    first_error: FloatArray,
    reach: FloatArray,
    G: FloatArray,
    g: FloatArray,
    strict: npt.NDArray[np.bool_],
) -> Chain:
    """The chain of `net` and of the rows `G y - g <= 0` (`< 0` where strict).

    `first_error` (units of the first layer) bounds what is unsure about the first layer's values, `reach` (inputs) the
    largest |u_i|. Memory and time are (units)^2 and more: made for up to a few thousand units.
    """
    d = net.n_inputs
    total = sum(int((layer.units.pieces - 1).sum()) for layer in net.hidden)
    gamma = _ROUNDOFF * (len(net.layers) + 2) * (total + max(net.widths) + d + 40)
    expression = np.zeros((d, d + 1 + total))  # of the last layer's values, in (u, 1, z)
    expression[:, :d] = np.eye(d)
    exact = np.ones(d, bool)  # values whose row of the expression is one entry, 1: their products round nothing
    size = reach.copy()  # largest values
    unsure = np.zeros(d)  # of the expression
    rows, firsts, slacks = [], [], []
    made = 0
    for index, layer in enumerate(net.hidden):
        W = layer.dense()
        h = W @ expression
        h[:, d] += layer.bias
        size = np.abs(W) @ size + np.abs(layer.bias)
        unsure = np.abs(W) @ unsure + (first_error if index == 0 else 0.0)
        unsure += np.where((W[:, ~exact] != 0).any(axis=1), gamma * size, 0.0)
        units = layer.units
        expression = units.slopes[:, :1] * h
        expression[:, d] += units.intercepts[:, 0]
        exact = (units.slopes[:, 0] == 0) & (units.intercepts[:, 0] == 0)
        amplify, offset = np.abs(units.slopes[:, 0]), np.abs(units.intercepts[:, 0])
        jump = np.zeros(layer.width)
        before = made
        for m in range(units.breaks.shape[1]):
            live = np.flatnonzero(np.isfinite(units.breaks[:, m]))
            t = units.breaks[live, m]
            step = units.slopes[live, m + 1] - units.slopes[live, m]
            part = h[live]
            part[:, d] -= t
            rows.append(part)
            firsts.append(np.full(len(live), before, dtype=np.int64))
            slacks.append(unsure[live] + 2 * _ROUNDOFF * np.where(t == 0, 0.0, size[live] + np.abs(t)) + _FLOOR)
            expression[live, d + 1 + made + np.arange(len(live))] = step
            exact[live] &= (m == 0) & (step == 1)
            made += len(live)
            amplify[live] += np.abs(step)
            offset[live] += np.abs(step * t)
            # Stored intercepts may miss the one that makes the pieces meet by a rounding error.
            gap = np.abs(units.intercepts[live, m + 1] - (units.intercepts[live, m] - step * t))
            scale = np.abs(units.intercepts[live, m + 1]) + np.abs(units.intercepts[live, m]) + np.abs(step * t)
            jump[live] += gap + 4 * _ROUNDOFF * scale + 4 * _ROUNDOFF * np.abs(step) * (size[live] + np.abs(t))
        jump[exact] = 0.0
        unsure = np.abs(units.slopes[:, 0]) * unsure + jump
        size = amplify * size + offset
    W, bias = net.layers[-1].dense(), net.layers[-1].bias
    y = W @ expression
    y[:, d] += bias
    size = np.abs(W) @ size + np.abs(bias)
    rounded = (W[:, ~exact] != 0).any(axis=1)
    unsure = np.abs(W) @ unsure + (first_error if not net.hidden else 0.0) + np.where(rounded, gamma * size, 0.0)
    last = G @ y
    last[:, d] -= g
    error = _ROUNDOFF * (net.n_outputs + 8) * (np.abs(G) @ size + np.abs(g)) + np.abs(G) @ unsure + _FLOOR
    for r in np.flatnonzero(~((G != 0) & (y[:, :d] != 0).any(axis=1)).any(axis=1)):
        # A row of units alone is exactly its constant where they are all off, if that was not rounded.
        terms = zip(G[r], y[:, d], bias, strict=True)
        constant = sum((Fraction(float(c)) * Fraction(float(v)) for c, v, b in terms if v == b), -Fraction(float(g[r])))
        if (~rounded & (y[:, d] == bias))[G[r] != 0].all() and constant == Fraction(float(last[r, d])):
            error[r] = -error[r]
            if strict[r] and constant == 0:
                last[r, d] = 1e-300  # 0 < 0 is false
    rows.append(last)
    firsts.append(np.full(len(g), total, dtype=np.int64))
    slacks.append(error)
    head, stride = padded(d + 1), padded(d + 1) + padded(total)
    table = np.concatenate(rows)
    flat = np.zeros((len(table), stride))
    flat[:, : d + 1] = table[:, : d + 1]
    flat[:, head : head + total] = table[:, d + 1 :]
    chosen = np.arange(len(g), dtype=np.int64)
    return Chain(d, head, total, flat.ravel(), np.concatenate(firsts), np.concatenate(slacks), chosen)
