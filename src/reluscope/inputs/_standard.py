"""Standard coordinates: each component of a law in the fewest coordinates the network can see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray, describe, generator, real_array
from reluscope.errors import InputError
from reluscope.inputs._factor import Factor
from reluscope.inputs._law import Law, check_law, frozen
from reluscope.inputs._normal1 import log_mass
from reluscope.inputs._simple import Uniform
from reluscope.inputs._truncated import Truncated
from reluscope.network import Layer, Network

RANK_TOLERANCE = 1e-13
"""Directions whose singular value is below this share of the largest are not seen (rows scaled, see `standard`)."""

LARGEST_SVD = 2000
"""First layers with more units and more inputs than this are not rotated."""

Kind = Literal["gaussian", "uniform", "truncated", "point"]
Index = npt.NDArray[np.intp]


class _Chart(Protocol):
    """The map between coordinates u (m, r) and inputs x (m, n)."""

    def to_x(self, U: FloatArray, rng: np.random.Generator | None) -> FloatArray: ...

    def to_u(self, X: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class Component:
    """One component of a law, in coordinates `u` in R^r that the network can see: `net(x) = network(u)`.

    | kind | law of u | fields |
    |---|---|---|
    | "gaussian" | N(0, I_r) | |
    | "truncated" | N(0, I_r) given `lower <= u <= upper`, or given `A u <= b` | `lower`, `upper` or `rows = (A, b)` |
    | "uniform" | uniform on `lower <= u <= upper` | `lower`, `upper` |
    | "point" | `u = points[k]` with probability `point_weights[k]` | `points`, `point_weights` |

    `weight` is the component's share of the whole law. Sides of a truncated box may be infinite; its mass is
    `exp(log_mass)`, None where it has no closed form (`rows`). For a uniform law `log_mass` is the logarithm
    of the box's volume, otherwise it is 0.

    **r = 0** means that the network is constant on this component. A `Network` has at least one input, so
    `network` then has a single input with zero weights; points `u` have that one column, a box is [0, 0].
    """

    weight: float
    kind: Kind
    network: Network
    r: int
    chart: _Chart
    lower: FloatArray | None = None
    upper: FloatArray | None = None
    rows: tuple[FloatArray, FloatArray] | None = None
    points: FloatArray | None = None
    point_weights: FloatArray | None = None
    log_mass: float | None = 0.0

    def to_x(self, U: npt.ArrayLike, rng: Any = None) -> FloatArray:
        """Inputs x (m, n) for coordinates `U` (m, r), or (n,) for (r,), with `network(u) = net(x)`.

        Without `rng`, what the network cannot see is set to its mean (the least-norm solution, for a Gaussian).
        With `rng` it is drawn from its law, so that x has the right law when u has: those draws are independent of u.
        """
        rows, single = self._check(U, "U", self.network.n_inputs)
        x = self.chart.to_x(rows[:, : self.r], None if rng is None else generator(rng))
        return x[0] if single else x

    def to_u(self, X: npt.ArrayLike) -> FloatArray:
        """The seen coordinates u (m, r) of inputs `X` (m, n), or (r,) for (n,): `network(to_u(x)) = net(x)`.

        `X` should lie in the support of the law; for a singular covariance others give a least-squares answer.
        """
        rows, single = self._check(X, "X", self.n)
        u = self.chart.to_u(rows)
        if self.r == 0:
            u = np.zeros((len(rows), 1))
        return u[0] if single else u

    @cached_property
    def n(self) -> int:
        """Number of inputs of the original network."""
        return int(self.chart.to_x(np.zeros((1, self.r)), None).shape[1])

    def inequalities(self) -> tuple[FloatArray, FloatArray]:
        """The restriction of u as rows `A u <= b`, whichever way it is held; no rows when there is none."""
        if self.rows is not None:
            return self.rows
        if self.lower is None or self.upper is None:
            return np.zeros((0, self.network.n_inputs)), np.zeros(0)
        unit = np.eye(len(self.lower))
        high, low = np.isfinite(self.upper), np.isfinite(self.lower)
        return np.concatenate([unit[high], -unit[low]]), np.concatenate([self.upper[high], -self.lower[low]])

    def __repr__(self) -> str:
        return f"Component(weight {self.weight:.4g}, {self.kind}, r = {self.r}, {self.network!r})"

    def _check(self, value: Any, name: str, columns: int) -> tuple[FloatArray, bool]:
        x = real_array(value, name)
        if x.shape == (columns,):
            return x[None], True
        if x.ndim == 2 and x.shape[1] == columns:
            return x, False
        raise InputError(f"{name} must have shape (m, {columns}) or ({columns},), got {x.shape}")


def standard(law: Law, net: Network) -> tuple[Component, ...]:
    """Each component of `law` in the coordinates that `net` can see; components of weight 0 are left out.

    Parameters
    ----------
    law : Law
        The distribution of the inputs.
    net : Network

    Returns
    -------
    tuple of Component

    Notes
    -----
    **Gaussian** `x = m + L u`: the first layer sees u only through `W L`. With an orthonormal basis V of its
    row space, `v = V^T u ~ N(0, I_r)` is all the network depends on, r = rank(W L): exact, and 784 inputs before
    16 units become r = 16. Columns of `W L` that are zero are dropped; when the others are independent, u is kept as
    it is (no rotation, sparsity preserved). The rank is decided by singular values above 1e-13 of the largest,
    after dividing row i by `sum_j |W_ij| sd_j`, so that neither the scale of a unit nor of an input matters.
    When both the units and the inputs are more than 2000 there is no SVD: only zero columns are dropped. Components
    that share a factor share this work and the weights.

    **Uniform** and **Truncated** laws do not survive a rotation. Uniform: u is the inputs that are neither fixed nor
    ignored (a zero column of W), as they are. Truncated with independent inputs: the same inputs as
    `u = (x - m) / sd`, with the box moved along. Truncated with a correlated Gaussian: as for the Gaussian, but
    the restricted inputs count as seen, and the box becomes rows `A u <= b`; then `P(cell)` is
    `mass(cell and box) / mass(box)`. **Particles**: one component of kind "point" in the original inputs.

    Cost: one product `W L` and one SVD of it, per factor. Guaranteed: `component.network(component.to_u(x))`
    equals `net(x)` up to rounding for every x in the support.

    Examples
    --------
    >>> from reluscope.inputs import Gaussian
    >>> law = Gaussian(np.zeros(3), 1.0)
    >>> net = Network([([[1.0, 2.0, 2.0], [-1.0, -2.0, -2.0]], None), ([[1.0, 1.0]], None)])
    >>> [component.r for component in standard(law, net)]
    [1]
    """
    check_law(law, net)
    if law.atoms is not None:
        points, weights = law.atoms
        return (Component(1.0, "point", net, net.n_inputs, _Points(), points=points, point_weights=weights),)
    gaussians = law.gaussians
    if not gaussians:
        if isinstance(law, Truncated):
            return (_truncated_diagonal(law, net) if law.independent_inputs else _truncated_rows(law, net),)
        if not isinstance(law, Uniform):
            raise InputError(f"law must be one with standard coordinates; {describe(law)} needs a kind of its own here")
        return (_uniform(law, net),)
    shared: dict[int, tuple[_Seen, Any]] = {}
    out = []
    for (weight, g), bias in zip(gaussians, _bias(net, np.stack([g.mean for _, g in gaussians])), strict=True):
        if id(g.factor) not in shared:
            seen = _see(net.layers[0].weight, g.factor)
            shared[id(g.factor)] = seen, _first_weight(net, seen.weight)
        out.append(_gaussian_component(weight, g.mean, *shared[id(g.factor)], net, bias))
    return tuple(out)


# -- Gaussian ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Seen:
    """What the rows `B` (the first layer's weights, and restricted inputs) see of `x - m = L u`."""

    factor: Factor
    keep: Index
    """Columns of L that matter at all."""
    basis: FloatArray | None
    """Orthonormal columns (len(keep), r), or None when the kept columns are the coordinates."""
    weight: Any
    """`W L` in the coordinates, dense or sparse, shape (units, r)."""
    probe: Any
    """Scaled rows of B, shape (rows, n)."""
    reduced: bool
    """Whether the coordinates are known to be independent as seen by the probe."""

    @property
    def r(self) -> int:
        return len(self.keep) if self.basis is None else int(self.basis.shape[1])

    def rows(self, index: Index) -> FloatArray:
        """Rows of L in the coordinates, shape (len(index), r)."""
        rows = self.factor.rows(index)[:, self.keep]
        return rows if self.basis is None else rows @ self.basis

    def up(self, U: FloatArray, rng: np.random.Generator | None) -> FloatArray:
        """Coordinates (m, r) to `L u` (m, n)."""
        full = np.zeros((len(U), self.factor.k)) if rng is None else rng.standard_normal((len(U), self.factor.k))
        if self.basis is None:
            full[:, self.keep] = U
        else:
            part = full[:, self.keep]
            full[:, self.keep] = part + (U - part @ self.basis) @ self.basis.T
        return self.factor.push(full)

    def down(self, Z: FloatArray) -> FloatArray:
        """`x - m` (m, n) to coordinates (m, r)."""
        from scipy.linalg import solve_triangular

        if self.factor.diagonal:
            assert self.factor.sd is not None
            own = Z[:, self.keep] / self.factor.sd[self.keep]
            return own if self.basis is None else own @ self.basis
        if self.factor.triangular:
            u = solve_triangular(self.factor.V, Z.T, lower=True).T[:, self.keep]
            return np.asarray(u if self.basis is None else u @ self.basis)
        if self.reduced:
            Q, R = self._probe_qr
            return np.asarray(solve_triangular(R, Q.T @ (self.probe @ Z.T)).T)
        full = np.linalg.lstsq(self.factor.rows(np.arange(self.factor.n)), Z.T, rcond=None)[0]
        return np.asarray(full.T[:, self.keep], dtype=np.float64)

    @cached_property
    def _probe_qr(self) -> tuple[FloatArray, FloatArray]:
        seen = _dense(self.factor.pull(self.probe)[:, self.keep])
        Q, R = np.linalg.qr(seen if self.basis is None else seen @ self.basis)
        return np.asarray(Q, dtype=np.float64), np.asarray(R, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Linear:
    """x = mean + L u."""

    mean: FloatArray
    seen: _Seen

    def to_x(self, U: FloatArray, rng: np.random.Generator | None) -> FloatArray:
        return self.seen.up(U, rng) + self.mean

    def to_u(self, X: FloatArray) -> FloatArray:
        return self.seen.down(X - self.mean)


def _see(W: Any, factor: Factor, restricted: Index | None = None) -> _Seen:
    """The coordinates of u that the rows of W, and the restricted inputs, can see."""
    B = W
    if restricted is not None:
        pick = sparse.csr_array(
            (np.ones(len(restricted)), (np.arange(len(restricted)), restricted)), shape=(len(restricted), factor.n)
        )
        B = sparse.vstack([W, pick], format="csr") if sparse.issparse(W) else np.concatenate([W, pick.toarray()])
    with np.errstate(over="ignore"):
        size = np.asarray(abs(B) @ factor.spread)
        weight = factor.pull(W)
        if not np.isfinite(size).all() or not np.isfinite(weight.data if sparse.issparse(weight) else weight).all():
            raise InputError("the first layer's weights times the law's spread overflow; rescale the inputs")
    used = size > 0
    inverse = np.zeros(len(size))
    inverse[used] = 1.0 / np.maximum(size[used], np.finfo(float).tiny)
    probe = (sparse.diags_array(inverse) @ B)[used] if sparse.issparse(B) else (B * inverse[:, None])[used]
    seen = factor.pull(probe)
    # Rows have size 1 now. A product with a dense factor leaves rounding where the exact answer is zero.
    keep = _nonzero_columns(seen, 0.0 if factor.diagonal else 1e-15)
    seen = seen[:, keep]
    if not len(keep) or min(seen.shape) > LARGEST_SVD:
        return _Seen(factor, keep, None, weight[:, keep], probe, reduced=False)
    if seen.shape[0] >= len(keep) and _well_conditioned(seen):
        return _Seen(factor, keep, None, weight[:, keep], probe, reduced=True)
    seen = _dense(seen)
    if seen.shape[0] >= len(keep):  # perhaps no rotation: then the values alone are three times cheaper
        s = np.linalg.svd(seen, compute_uv=False)
        if s[-1] > RANK_TOLERANCE * s[0]:
            return _Seen(factor, keep, None, weight[:, keep], probe, reduced=True)
    _, s, Vt = np.linalg.svd(seen, full_matrices=False)
    r = int((s > RANK_TOLERANCE * s[0]).sum())
    basis = frozen(Vt[:r].T)
    return _Seen(factor, keep, basis, np.asarray(weight[:, keep] @ basis), probe, reduced=True)


def _nonzero_columns(matrix: Any, floor: float = 0.0) -> Index:
    """Columns with an entry larger than `floor` in absolute value."""
    if sparse.issparse(matrix):
        live = np.zeros(matrix.shape[1], bool)
        live[matrix.indices[np.abs(matrix.data) > floor]] = True
        return np.flatnonzero(live)
    return np.flatnonzero((np.abs(matrix) > floor).any(axis=0))


def _well_conditioned(matrix: Any) -> bool:
    """Whether the columns are independent beyond doubt: a cheap test on the Gram matrix, True only when sure."""
    values = np.linalg.eigvalsh(_dense(matrix.T @ matrix))
    return bool(values[0] > 1e-10 * values[-1])


def _gaussian_component(
    weight: float, mean: FloatArray, seen: _Seen, first: Any, net: Network, bias: FloatArray
) -> Component:
    return Component(weight, "gaussian", _network(net, first, bias), seen.r, _Linear(mean, seen))


def _truncated_rows(law: Truncated, net: Network) -> Component:
    mean, i = law.gaussian.mean, law.restricted
    seen = _see(net.layers[0].weight, law.gaussian.factor, i)
    network = _network(net, _first_weight(net, seen.weight), _bias(net, mean[None])[0])
    L = seen.rows(i)
    high, low = np.isfinite(law.upper[i]), np.isfinite(law.lower[i])
    A = np.concatenate([L[high], -L[low]])
    b = np.concatenate([(law.upper[i] - mean[i])[high], (mean[i] - law.lower[i])[low]])
    mass = law.log_mass if law.independent else None
    return Component(1.0, "truncated", network, seen.r, _Linear(mean, seen), rows=(frozen(A), frozen(b)), log_mass=mass)


# -- laws that stay in their inputs ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Box:
    """x[keep] = start + step * u; the other inputs are independent of them."""

    law: Law
    keep: Index
    start: FloatArray
    step: FloatArray

    def to_x(self, U: FloatArray, rng: np.random.Generator | None) -> FloatArray:
        x = np.tile(self.law.mean, (len(U), 1)) if rng is None else self.law.sample(len(U), rng)
        x[:, self.keep] = self.start + self.step * U
        return x

    def to_u(self, X: FloatArray) -> FloatArray:
        return (X[:, self.keep] - self.start) / self.step


@dataclass(frozen=True, eq=False)
class _Points:
    """x = u."""

    def to_x(self, U: FloatArray, rng: np.random.Generator | None) -> FloatArray:
        return U.copy()

    def to_u(self, X: FloatArray) -> FloatArray:
        return X.copy()


def _uniform(law: Law, net: Network) -> Component:
    W = net.layers[0].weight
    low, high = law.support()
    keep = np.intersect1d(_nonzero_columns(W), np.flatnonzero(high > low))
    fixed = np.where(high > low, 0.0, low)
    network = _network(net, _first_weight(net, W[:, keep]), _bias(net, fixed[None])[0])
    lower, upper = low[keep], high[keep]
    volume = float(np.log(upper - lower).sum())
    box = _Box(law, keep, np.zeros(len(keep)), np.ones(len(keep)))
    return Component(1.0, "uniform", network, len(keep), box, lower=_sides(lower), upper=_sides(upper), log_mass=volume)


def _truncated_diagonal(law: Truncated, net: Network) -> Component:
    W, mean, sd = net.layers[0].weight, law.gaussian.mean, law.gaussian.sd
    keep = np.intersect1d(_nonzero_columns(W), np.flatnonzero(sd > 0))
    weight = law.gaussian.factor.pull(W)[:, keep]
    network = _network(net, _first_weight(net, weight), _bias(net, mean[None])[0])
    with np.errstate(over="ignore"):
        lower, upper = (law.lower[keep] - mean[keep]) / sd[keep], (law.upper[keep] - mean[keep]) / sd[keep]
        mass = float(log_mass(lower, upper, (law.upper[keep] - law.lower[keep]) / sd[keep]).sum())
    box = _Box(law, keep, mean[keep], sd[keep])
    return Component(1.0, "truncated", network, len(keep), box, lower=_sides(lower), upper=_sides(upper), log_mass=mass)


def _sides(side: FloatArray) -> FloatArray:
    return frozen(side if len(side) else np.zeros(1))


# -- the network in the coordinates ------------------------------------------------------------------------------


def _dense(matrix: Any) -> FloatArray:
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix)


def _bias(net: Network, points: FloatArray) -> FloatArray:
    """`W x + b` of the first layer at each row."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = net.layers[0].affine(points)
    if not np.isfinite(out).all():
        raise InputError("the first layer overflows at the law's mean; rescale the inputs")
    return out


def _first_weight(net: Network, weight: Any) -> Any:
    """The weight as a `Network` stores it (dense or sparse, read-only); one zero column when there is none."""
    if weight.shape[1] == 0:
        weight = np.zeros((weight.shape[0], 1))
    return Network([(weight, None)]).layers[0].weight


def _network(net: Network, weight: Any, bias: FloatArray) -> Network:
    first = Layer(weight, frozen(bias), net.layers[0].units)
    return Network([first, *net.layers[1:]], output_shape=net.output_shape, name=net.name, notes=net.notes)
