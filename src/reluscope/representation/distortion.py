"""How far one layer stretches lengths and distances on average, in closed form.

For a weight matrix M (m, n) and points x, y that are independent and uniform on the unit sphere of R^n,

    E |M x|^2 = |M|_F^2 / n                       E |relu(M x)|^2 = |M|_F^2 / (2n)
    E |M x - M y|^2 / E |x - y|^2 = |M|_F^2 / n   E |relu(M x) - relu(M y)|^2 / E |x - y|^2 = |M|_F^2 (1/(2n) - μ_n^2)

with `μ_n = E max(x_1, 0) = Γ(n/2) / (2 √π Γ((n+1)/2))`. The last line is `E|z|^2 - |E z|^2` unit by unit: each unit has
mean `|M_i| μ_n`. The factor 1/4 that is printed for M = I in the source (Lemma 4.3.11) holds for n = 1 only:
`1/2 - n μ_n^2` is 0.2974 for n = 2 and tends to `1/2 - 1/(2π) = 0.3408`.

For x and y standard normal the unit h_i = M_i x + b_i is N(b_i, |M_i|^2), which gives both numbers with biases too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse, special

from reluscope._check import FloatArray, choice, describe, integer, real, real_array, seeded
from reluscope.activations import Activation, Units, activation
from reluscope.errors import InputError
from reluscope.network import Layer, Network

LAWS = ("sphere", "normal")


@dataclass(frozen=True)
class Distortion:
    """Average squared magnitude and distance before (`linear_*`) and after the activation of one layer.

    Magnitudes are `E |z|^2`; distances `E |z - z'|^2 / E |x - x'|^2`. `law` is that of the inputs: "sphere" (uniform on
    the unit sphere) or "normal" (N(0, I)). `note` says when a bias was left out.

    Attributes
    ----------
    inputs, units : int
    law : {"sphere", "normal"}
    linear_magnitude, magnitude, linear_distance, distance : float
    note : str
    """

    inputs: int
    units: int
    law: str
    linear_magnitude: float
    magnitude: float
    linear_distance: float
    distance: float
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return dict(vars(self))

    def __str__(self) -> str:
        return (
            f"{self.inputs} -> {self.units} units, {self.law} inputs: mean |z|^2 {self.linear_magnitude:.6g} linear, "
            f"{self.magnitude:.6g} after; mean squared distance times {self.linear_distance:.6g} linear, "
            f"{self.distance:.6g} after"
        )


@dataclass(frozen=True)
class Simulated:
    """The same four numbers by drawing, each with one standard error; `seed` repeats them."""

    magnitude: float
    magnitude_error: float
    linear_magnitude: float
    linear_magnitude_error: float
    distance: float
    distance_error: float
    linear_distance: float
    linear_distance_error: float
    seed: int | None = field(kw_only=True)


def half_mean(n: int) -> float:
    """`μ_n = E max(x_1, 0)` for x uniform on the unit sphere of R^n: `Γ(n/2) / (2 √π Γ((n+1)/2))`."""
    n = integer(n, "n", low=1)
    return math.exp(math.lgamma(n / 2) - math.lgamma((n + 1) / 2)) / (2 * math.sqrt(math.pi))


def relu_distance_factor(n: int) -> float:
    """`1/2 - n μ_n^2`: mean squared distance of relu(x), relu(y) over that of x, y on the unit sphere of R^n."""
    return 0.5 - integer(n, "n", low=1) * half_mean(n) ** 2


def distortion(layer: Any, *, index: int = 0, law: str = "sphere", activation: Any = "relu") -> Distortion:
    """How far one layer stretches lengths and distances on average.

    Parameters
    ----------
    layer : array_like (m, n), Layer or Network
        A matrix gets the units named by `activation`; a layer has its own; of a network, layer `index` is taken.
    index : int, default 0
        Layer of the network, counted from 0.
    law : {"sphere", "normal"}
        The distribution of the inputs: uniform on the unit sphere, or N(0, I).
    activation : str or Activation, default "relu"

    Returns
    -------
    Distortion

    Raises
    ------
    InputError
        On the sphere, if a unit bends elsewhere than at 0.

    Notes
    -----
    The formulas are those at the top of this module, exact up to rounding; cost: one pass over the weights. On the
    sphere the bias is left out and units must bend at 0 only (ReLU, leaky ReLU, abs, identity); with `law="normal"`
    the bias enters, and any activation is allowed.

    Examples
    --------
    >>> print(distortion([[1.0, 0.0], [0.0, 1.0]]))
    2 -> 2 units, sphere inputs: mean |z|^2 1 linear, 0.5 after; mean squared distance times 1 linear, 0.297358 after
    """
    choice(law, "law", LAWS)
    weight, bias, units = _parts(layer, index, activation)
    squares = np.asarray((weight * weight).sum(axis=1)).ravel()
    m, n = weight.shape
    if law == "sphere":
        low, high = _two_slopes(units)
        note = "the bias is left out" if bias.any() else ""
        second = squares * (low**2 + high**2) / (2 * n)
        mean = np.sqrt(squares) * (high - low) * half_mean(n)
        total = float(squares.sum())
        return Distortion(n, m, law, total / n, float(second.sum()), total / n, float((second - mean**2).sum()), note)
    first, second = _normal_moments(units, bias, np.sqrt(squares))
    total = float(squares.sum())
    return Distortion(
        n,
        m,
        law,
        total + float(bias @ bias),
        float(second.sum()),
        total / n,
        float(np.maximum(second - first**2, 0.0).sum()) / n,
    )


def expected_distortion(n: int, m: int | None = None, *, variance: float | None = None) -> Distortion:
    """The mean of `distortion` over matrices (m, n) with independent N(0, variance) entries, sphere inputs, ReLU.

    `E |M|_F^2 = m n variance`, so magnitudes are `m σ²` and `m σ² / 2`, distances `m σ²` and `m n σ² (1/(2n) - μ_n²)`.
    `m` is n when left out, `variance` the He choice `2 / n`: magnitudes are then preserved by a square layer and
    squared distances multiplied by `1 - 2 n μ_n²` (0.595 for n = 2, towards 1 - 1/π = 0.6817), not halved.
    """
    n = integer(n, "n", low=1)
    m = n if m is None else integer(m, "m", low=1)
    sigma2 = 2.0 / n if variance is None else real(variance, "variance", low=0.0)
    total = m * n * sigma2
    factor = 1 / (2 * n) - half_mean(n) ** 2
    return Distortion(
        n, m, "sphere", total / n, total / (2 * n), total / n, total * factor, "mean over Gaussian weights"
    )


def simulate(
    layer: Any,
    points: int = 100_000,
    *,
    index: int = 0,
    law: str = "sphere",
    activation: Any = "relu",
    rng: Any = None,
) -> Simulated:
    """The numbers of `distortion` by drawing `points` independent pairs, with standard errors."""
    choice(law, "law", LAWS)
    weight, bias, units = _parts(layer, index, activation)
    count = integer(points, "points", low=2)
    rng, seed = seeded(rng)
    n = weight.shape[1]
    x, y = rng.normal(size=(2, count, n))
    if law == "sphere":
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        bias = np.zeros_like(bias)
    hx, hy = (np.asarray((weight @ p.T).T) + bias for p in (x, y))
    base = 2.0 if law == "sphere" else 2.0 * n
    means: list[float] = []
    for values in (
        (units(hx) ** 2).sum(axis=1),
        (hx**2).sum(axis=1),
        ((units(hx) - units(hy)) ** 2).sum(axis=1) / base,
        ((hx - hy) ** 2).sum(axis=1) / base,
    ):
        means += [float(values.mean()), float(values.std(ddof=1) / math.sqrt(count))]
    return Simulated(*means, seed=seed)


def _parts(layer: Any, index: int, act: Any) -> tuple[Any, FloatArray, Units]:
    act = activation(act)
    if isinstance(layer, Network):
        layer = layer.layers[integer(index, "index", low=0, high=len(layer.layers) - 1)]
    if isinstance(layer, Layer):
        return layer.weight, layer.bias, layer.units
    if sparse.issparse(layer):
        weight = sparse.csr_array(layer)
    else:
        try:
            weight = real_array(layer, "layer", ndim=2)
        except InputError as error:
            raise InputError(f"layer must be a matrix, a Layer or a Network, got {describe(layer)}") from error
    if not all(weight.shape):
        raise InputError(f"layer must have at least one row and one column, got shape {weight.shape}")
    return weight, np.zeros(weight.shape[0]), Units.uniform(act, weight.shape[0])


def _two_slopes(units: Units) -> tuple[FloatArray, FloatArray]:
    """Slopes below and above 0 of units that bend at 0 only."""
    for kind in units.kinds:
        if not _bends_at_zero(kind):
            raise InputError(f'activation {kind.name!r} bends elsewhere than at 0: use law="normal"')
    return units.slopes[:, 0], units.slopes[np.arange(len(units)), units.pieces - 1]


def _bends_at_zero(kind: Activation) -> bool:
    return all(t == 0 for t in kind.breaks) and all(c == 0 for c in kind.intercepts)


def _normal_moments(units: Units, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`E act(h)` and `E act(h)^2` of each unit for h ~ N(mean, sd^2), piece by piece."""
    first, second = np.zeros(len(units)), np.zeros(len(units))
    edges = np.column_stack([np.full(len(units), -np.inf), units.breaks, np.full(len(units), np.inf)])
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(
            sd[:, None] > 0, (edges - mean[:, None]) / sd[:, None], np.where(edges >= mean[:, None], np.inf, -np.inf)
        )
    for k in range(units.slopes.shape[1]):
        a, b = at[:, k], at[:, k + 1]
        # P(a < u <= b), E[u; ...] and E[u^2; ...] for a standard normal u
        p = np.where(a > 0, special.ndtr(-a) - special.ndtr(-b), special.ndtr(b) - special.ndtr(a))
        one = _density(a) - _density(b)
        two = p + _scaled(a) - _scaled(b)
        s, c = units.slopes[:, k], units.intercepts[:, k]
        shift, scale = s * mean + c, s * sd
        first += shift * p + scale * one
        second += shift**2 * p + 2 * shift * scale * one + scale**2 * two
    return first, second


def _density(u: FloatArray) -> FloatArray:
    return np.exp(-0.5 * u**2) / math.sqrt(2 * math.pi)


def _scaled(u: FloatArray) -> FloatArray:
    """`u φ(u)`, 0 at infinity."""
    return np.where(np.isfinite(u), u, 0.0) * _density(u)
