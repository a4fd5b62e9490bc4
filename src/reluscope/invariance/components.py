"""How fast the exact law grows, and how wrong a Gaussian is that keeps only two moments.

For a Gaussian input the pre-activations of layer k have a law that is a sum of truncated Gaussians, one per region of
the layers before (and per component of a mixture): exact, and more of them with every layer. *Assumed-density*
propagation keeps one Gaussian: mean and covariance of `relu(h)` for `h ~ N(m, S)` are closed forms, and they become
the Gaussian of the next layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from reluscope._check import FloatArray, real_array
from reluscope._doors import door
from reluscope._tables import Tabular
from reluscope._text import table
from reluscope.answer import unless_interrupted
from reluscope.answers.outputs import outputs, truncated_network
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.inputs import Law, check_law
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.threads import clean_interrupt

_CONSTANT = 1e-9
"""A unit whose standard deviation is below this share of its mean, or of the layer's largest, is a constant."""

_GRID = 401
_ALMOST_ONE = 1 - 1e-14


@dataclass(frozen=True)
class GrowthRow:
    """The pre-activations of one layer, from 0: `components` of the exact law, errors of the moment-matched Gaussian.

    `mean_error` is `|m - exact| / sqrt(trace exact cov)`, `cov_error` the Frobenius error over the norm of the exact
    covariance, `kolmogorov` the largest difference of the two cdfs over all units that vary and a grid of 401 levels
    (over the units that there was time for, where a budget ended).

    Attributes
    ----------
    layer, units, components : int
    mean_error, cov_error, kolmogorov : float
    """

    layer: int
    units: int
    components: int
    mean_error: float
    cov_error: float
    kolmogorov: float


@dataclass(frozen=True)
class Growth(Tabular):
    """One row per layer, the output last.

    Attributes
    ----------
    rows : tuple of GrowthRow
    guarantee : str
        Of the exact law that the Gaussians are compared with; "sound" where a budget ended the comparison.
    """

    rows: tuple[GrowthRow, ...]
    guarantee: str

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name."""
        return {name: [getattr(row, name) for row in self.rows] for name in GrowthRow.__dataclass_fields__}

    def plot(self, ax: Any = None) -> Any:
        """Components and errors by layer; see `reluscope.plot.invariance.plot_growth`.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        return door("Growth.plot")(self, ax)

    def __str__(self) -> str:
        return table([vars(row) for row in self.rows])

    def __repr__(self) -> str:
        last = self.rows[-1]
        return f"Growth({len(self.rows)} layers, {last.components:,} components at the end, {self.guarantee})"


@clean_interrupt()
def growth(net: Network, law: Law, *, budget: Any = None, progress: Any = None) -> Growth:
    """How fast the exact law of the pre-activations grows by layer, and how wrong moment matching is.

    Parameters
    ----------
    net : Network
        With ReLU units.
    law : Law
        The distribution of the inputs: a Gaussian or a mixture that the network sees in at most three directions.
    budget : str or Budget, optional
        For all layers; in seconds, each gets an equal share of what is left.
    progress : optional

    Returns
    -------
    Growth
        One row per layer, the output last.

    Raises
    ------
    InputError
        If a unit is not a ReLU, or the exact law is not available.

    Notes
    -----
    Cost: one exact enumeration per layer, and a cdf of every unit.

    Examples
    --------
    >>> import reluscope as rs
    >>> net = rs.Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])
    >>> [(row.layer, row.components) for row in growth(net, rs.Gaussian([0.0], 1.0)).rows]
    [(0, 1), (1, 2)]
    """
    check_law(law, net)
    if not all(layer.units.is_relu for layer in net.hidden):
        raise InputError("moment matching is in closed form for ReLU units only")
    mean, cov = np.asarray(law.mean), np.asarray(law.cov)
    rows, guarantee, limit = [], "exact", parse_budget(budget)
    with meter(progress, "growth") as report:
        for k, layer in enumerate(net.layers):
            weight = layer.dense()
            mean, cov = weight @ mean + layer.bias, weight @ cov @ weight.T
            # The questions that the row asks take time as well.
            share = limit if limit.seconds == math.inf else limit.part(1.0 / (len(net.layers) - k))
            first = share if limit.seconds == math.inf else share.part(0.5)
            exact = outputs(truncated_network(net, k), law, budget=first, method="enumeration")
            unless_interrupted(exact.stopped)
            row, whole = _row(k, exact, mean, cov, share)
            rows.append(row)
            guarantee = guarantee if exact.guarantee == "exact" and whole else "sound"
            report(k + 1, f"{k + 1} of {len(net.layers)} layers")
            mean, cov = relu_moments(mean, cov)
    return Growth(tuple(rows), guarantee)


def relu_moments(mean: FloatArray, cov: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of `relu(h)` for `h ~ N(mean, cov)`, singular covariances included.

    Parameters
    ----------
    mean : (d,) array
    cov : (d, d) array

    Returns
    -------
    (mean, cov) : (d,) and (d, d) arrays

    Notes
    -----
    With `a = m / s`: `E relu(h_i) = s_i (a_i Φ(a_i) + φ(a_i))`, and for correlation ρ
    `E relu(h_i) relu(h_j) = s_i s_j [(a b + ρ) Φ2(a, b; ρ) + a φ(b) Φ((a - ρ b)/r) + b φ(a) Φ((b - ρ a)/r)
    + r^2 φ2(a, b; ρ)]` with `r^2 = 1 - ρ^2`. Absolute accuracy about 1e-8 of `s_i s_j` near ρ = ±1, 1e-14 elsewhere.
    """
    mean, cov = real_array(mean, "mean", ndim=1), real_array(cov, "cov", ndim=2)
    if cov.shape != (len(mean), len(mean)):
        raise InputError(f"cov must have shape {(len(mean), len(mean))}, as many as mean has entries, got {cov.shape}")
    sd = np.sqrt(np.maximum(np.diagonal(cov), 0.0))
    live = np.flatnonzero(sd > 0)
    first, second = np.maximum(mean, 0.0), np.zeros_like(cov)
    a = mean[live] / sd[live]
    first[live] = sd[live] * (a * special.ndtr(a) + _phi(a))
    rho = np.clip(cov[np.ix_(live, live)] / np.outer(sd[live], sd[live]), -_ALMOST_ONE, _ALMOST_ONE)
    A, B = np.broadcast_to(a[:, None], rho.shape), np.broadcast_to(a[None, :], rho.shape)
    r = np.sqrt(1 - rho**2)
    joint = (
        (A * B + rho) * _two_normal(A, B, rho, r)
        + A * _phi(B) * special.ndtr((A - rho * B) / r)
        + B * _phi(A) * special.ndtr((B - rho * A) / r)
        + r * np.exp(-(A**2 - 2 * rho * A * B + B**2) / (2 * r**2)) / (2 * math.pi)
    )
    np.fill_diagonal(joint, (a**2 + 1) * special.ndtr(a) + a * _phi(a))
    second[np.ix_(live, live)] = joint * np.outer(sd[live], sd[live]) - np.outer(first[live], first[live])
    return first, 0.5 * (second + second.T)


def _row(k: int, exact: Any, mean: FloatArray, cov: FloatArray, limit: Budget) -> tuple[GrowthRow, bool]:
    """The row, and whether the time was enough to compare all units."""
    true_mean, true_cov = exact.mean.value, np.atleast_2d(exact.cov.value)
    spread = math.sqrt(max(float(np.trace(true_cov)), 1e-300))
    worst, whole = 0.0, True
    sds = np.sqrt(np.maximum(np.diagonal(cov), 0.0))
    for o, sd in enumerate(sds.tolist()):
        if sd <= _CONSTANT * max(float(sds.max()), abs(float(mean[o]))):
            continue  # constant up to rounding: comparing cdfs there compares rounding
        if limit.seconds < math.inf and limit.spent() is not None:
            whole = False
            break
        t = mean[o] + sd * np.linspace(-5, 5, _GRID)
        gap = np.abs(exact.cdf(t, output=o).value - special.ndtr((t - mean[o]) / sd))
        worst = max(worst, float(gap.max()))
    size = max(float(np.linalg.norm(true_cov)), 1e-300)
    row = GrowthRow(
        k,
        len(mean),
        len(exact.mixture),
        float(np.linalg.norm(true_mean - mean)) / spread,
        float(np.linalg.norm(true_cov - cov)) / size,
        worst,
    )
    return row, whole


def _phi(x: FloatArray) -> FloatArray:
    return np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)


def _two_normal(h: FloatArray, k: FloatArray, rho: FloatArray, r: FloatArray) -> FloatArray:
    """`P(U <= h, V <= k)` for standard normals with correlation ρ, by Owen's T; `r = sqrt(1 - ρ^2)`."""
    tiny = 1e-150
    h, k = np.where(h == 0, tiny, h), np.where(k == 0, tiny, k)
    sides = special.owens_t(h, (k - rho * h) / (h * r)) + special.owens_t(k, (h - rho * k) / (k * r))
    return 0.5 * (special.ndtr(h) + special.ndtr(k)) - sides - np.where(h * k < 0, 0.5, 0.0)
