"""Standard coordinates: each component of a law in the fewest coordinates the network can see."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray, generator, real_array
from reluscope._lazy import late
from reluscope.activations import Units, identity
from reluscope.errors import InputError
from reluscope.inputs._factor import Factor
from reluscope.inputs._gaussian import Gaussian
from reluscope.inputs._law import ANY_NETWORK, Law, check_law, frozen
from reluscope.inputs._normal1 import log_mass
from reluscope.inputs._simple import Uniform
from reluscope.inputs._truncated import Truncated
from reluscope.network import Layer, Network

RANK_TOLERANCE = 1e-13
"""Directions whose singular value is below this share of the largest are not seen (rows scaled, see `standard`)."""

_MOST_CAREFUL = 1 << 19
"""Products in the first layer at the means of the law that are summed without rounding on the way."""

LARGEST_SVD = 2000
"""First layers with more units and more inputs than this are not rotated."""

Kind = Literal["gaussian", "uniform", "truncated", "point"]
Index = npt.NDArray[np.intp]


class _Chart(Protocol):
    """The map between coordinates u (m, r) and inputs x (m, n)."""

    def to_x(self, U: FloatArray, rng: np.random.Generator | None) -> FloatArray: ...

    def to_u(self, X: FloatArray) -> FloatArray: ...

    def span(self) -> tuple[FloatArray, FloatArray]: ...


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
    of the box's volume, otherwise it is 0. `law` is the component as a law of x (of the
    inputs of `source`, where there is one).

    **r = 0** means that the network is constant on this component. A `Network` has at least one input, so
    `network` then has a single input with zero weights; points `u` have that one column, a box is [0, 0].
    """

    weight: float
    kind: Kind
    network: Network
    r: int
    chart: _Chart
    law: Law
    lower: FloatArray | None = None
    upper: FloatArray | None = None
    rows: tuple[FloatArray, FloatArray] | None = None
    points: FloatArray | None = None
    point_weights: FloatArray | None = None
    log_mass: float | None = 0.0
    source: Network | None = None
    """For a law that is a function of another one: the network on the inputs of that one (see `lifted`)."""
    lead: int = 0
    """Units at the beginning of `network` that are the law's own, not those of the network asked about."""

    def draws(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Exact draws of u (n, r) for a component held as `rows`."""
        return self.before.to_u(self.law.sample(n, rng))

    @property
    def before(self) -> Component:
        """The component of the law that this one is a function of."""
        chart = self.chart
        return replace(self, chart=chart.inner, source=None, lead=0) if isinstance(chart, _Pushed) else self

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

    def span(self) -> tuple[FloatArray, FloatArray]:
        """`(x0, D)`: every input of the component is `x0 + D t` for some t, exactly; D has shape (n, directions).

        Where there is a `source`, these are its inputs.
        """
        return self.chart.span()

    def reach(self) -> FloatArray:
        """The sizes of the coordinates u of the network: 1 for Gaussian ones, the sides of a box for uniform ones."""
        if self.kind != "uniform" or self.lower is None or self.upper is None:
            return np.ones(self.network.n_inputs)
        return np.maximum(np.abs(self.lower), np.abs(self.upper))

    def one_value(self, weight: Any) -> bool:
        """Whether `weight @ x` is the same for every input of the component, beyond doubt."""
        if self.source is not None:  # the source reads every input that the network reads
            return self.before.one_value(self.source.layers[0].weight)
        _, D = self.span()
        if not np.asarray(abs(weight) @ np.abs(D)).any():
            return True
        if np.asarray(weight @ D).any() or weight.shape[0] * D.size > _MOST_CAREFUL:
            return False
        W = _dense(weight)
        return not any(
            sum(
                (Fraction(float(w)) * Fraction(float(d)) for w, d in zip(row, column, strict=True) if w and d),
                Fraction(0),
            )
            for row in W
            for column in D.T
        )

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
    **Mixtures** of such laws: the components of each.

    **Laws that are functions of another law** (`law.pushed`): the components of that law, for the network with the
    function as its first layer. Patterns of `component.network` then begin with the pieces of that layer
    (`own_pattern` leaves them out).

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
    known_law(law, net)
    if law.pushed is not None:
        base, source = lifted(law, net)
        own = {"source": source, "lead": source.n_units - net.n_units}
        return tuple(replace(c, chart=_Pushed(c.chart, law), **own) for c in standard(base, source))  # type: ignore[arg-type]
    if law.atoms is not None:
        points, weights = law.atoms
        return (Component(1.0, "point", net, net.n_inputs, _Points(), law, points=points, point_weights=weights),)
    gaussians = law.gaussians
    if gaussians:
        return _gaussians(gaussians, net)
    if law.is_mixture:
        return tuple(
            replace(component, weight=weight * component.weight)
            for weight, part in law.components
            if weight > 0
            for component in standard(part, net)
        )
    if isinstance(law, Truncated):
        return (_truncated_diagonal(law, net) if law.independent_inputs else _truncated_rows(law, net),)
    assert isinstance(law, Uniform)  # the only other law that `known_law` knows
    return (_uniform(law, net),)


def only_draws(law: Law) -> bool:
    """Whether engines know nothing of a law but its draws: `standard` cannot take it (or part of a mixture) apart."""
    if law.gaussians or law.atoms is not None or law.pushed is not None:
        return False
    if law.is_mixture:
        return any(only_draws(part) for weight, part in law.components if weight > 0)
    return not isinstance(law, Truncated | Uniform)


def known_law(law: Any, net: Any = ANY_NETWORK, name: str = "law") -> Law:
    """The law that `check_law` accepts, if more is known of it than its draws.

    Raises
    ------
    InputError
        Names the argument, and says what draws are enough for.
    """
    if only_draws(check_law(law, net, name)):
        raise InputError(
            f"{name} must be made of Gaussians, uniform or truncated laws, or points; of {law!r} only draws are "
            "known: rs.probability(..., guarantee='confidence') counts them"
        )
    return law


# -- Gaussian ----------------------------------------------------------------------------------------------------


def _gaussians(gaussians: tuple[tuple[float, Gaussian], ...], net: Network) -> tuple[Component, ...]:
    shared: dict[int, tuple[_Seen, Any]] = {}
    out = []
    for (weight, g), bias in zip(gaussians, _bias(net, np.stack([g.mean for _, g in gaussians])), strict=True):
        if id(g.factor) not in shared:
            seen = _see(net.layers[0].weight, g.factor)
            shared[id(g.factor)] = seen, _first_weight(seen.weight)
        seen, first = shared[id(g.factor)]
        out.append(Component(weight, "gaussian", _network(net, first, bias), seen.r, _Linear(g.mean, seen), g))
    return tuple(out)


# -- functions of a law ------------------------------------------------------------------------------------------


class _Function(Protocol):
    """A law `x = T(z)` that can say both ways."""

    def push(self, Z: FloatArray) -> FloatArray: ...

    def pull(self, X: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class _Pushed:
    """x = T(z), z as `inner` says."""

    inner: _Chart
    law: Any

    def to_x(self, U: FloatArray, rng: np.random.Generator | None) -> FloatArray:
        function: _Function = self.law
        return function.push(self.inner.to_x(U, rng))

    def to_u(self, X: FloatArray) -> FloatArray:
        function: _Function = self.law
        return self.inner.to_u(function.pull(X))

    def span(self) -> tuple[FloatArray, FloatArray]:
        return self.inner.span()


def lifted(law: Law, net: Network) -> tuple[Law, Network]:
    """The same question about the law that `law` is a function of: `(base, network)` with `network(z) = net(x)`.

    Functions of inputs that the network does not read are left out, and affine ones are folded into its first layer.
    The pair itself for a law that is a function of none.
    """
    while law.pushed is not None:
        base, layer = law.pushed
        law, net = base, _behind(layer, net)
    return law, net


def own_pattern(net: Network, pattern: Any) -> Any:
    """Patterns (n, units) of `net` from those of a network of which it is the end."""
    return pattern[:, pattern.shape[1] - net.n_units :]


def _behind(layer: Layer, net: Network) -> Network:
    """`net(layer(z))`, without what `net` does not read."""
    W, T = _dense(net.layers[0].weight), layer.dense()
    read = np.flatnonzero(np.any(W != 0, axis=0))
    bent = read[layer.units.pieces[read] > 1]
    plain = read[layer.units.pieces[read] == 1]
    slope, start = layer.units.slopes[plain, 0], layer.units.intercepts[plain, 0]
    moved = slope * layer.bias[plain] + start
    # What the first layer sees of the affine inputs: nothing is carried but sums.
    sums = (W[:, plain] * slope) @ T[plain]
    first = net.layers[0]
    bias = first.bias + W[:, plain] @ moved
    rest = net.layers[1:]
    options: dict[str, Any] = {"output_shape": net.output_shape, "name": net.name, "notes": net.notes}
    if not len(bent):
        return Network([Layer(frozen(sums), frozen(bias), first.units), *rest], **options)
    carried, join = sums, np.eye(len(sums))
    if len(plain) <= len(sums):
        carried, join = T[plain], W[:, plain] * slope
    live = np.flatnonzero(np.any(carried != 0, axis=1))
    carried, join = carried[live], join[:, live]
    weight = np.concatenate([T[bent], carried])
    shift = np.concatenate([layer.bias[bent], np.zeros(len(carried))])
    units = Units.concatenate([layer.units[bent], Units.uniform(identity(), len(carried))])
    second = Layer(frozen(np.concatenate([W[:, bent], join], axis=1)), frozen(bias), first.units)
    return Network([Layer(frozen(weight), frozen(shift), units), second, *rest], **options)


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
        solve_triangular = late("scipy.linalg", "solve_triangular")

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

    def span(self) -> tuple[FloatArray, FloatArray]:
        return self.mean, self.seen.factor.rows(np.arange(self.seen.factor.n))


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


def _truncated_rows(law: Truncated, net: Network) -> Component:
    mean, i = law.gaussian.mean, law.restricted
    seen = _see(net.layers[0].weight, law.gaussian.factor, i)
    network = _network(net, _first_weight(seen.weight), _bias(net, mean[None])[0])
    L = seen.rows(i)
    high, low = np.isfinite(law.upper[i]), np.isfinite(law.lower[i])
    A = np.concatenate([L[high], -L[low]])
    b = np.concatenate([(law.upper[i] - mean[i])[high], (mean[i] - law.lower[i])[low]])
    mass = law.log_mass if law.independent else None
    return Component(
        1.0, "truncated", network, seen.r, _Linear(mean, seen), law, rows=(frozen(A), frozen(b)), log_mass=mass
    )


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

    def span(self) -> tuple[FloatArray, FloatArray]:
        low, high = self.law.support()
        free = low < high
        return np.where(free, 0.0, low), np.eye(len(low))[:, free]


@dataclass(frozen=True, eq=False)
class _Points:
    """x = u."""

    def to_x(self, U: FloatArray, rng: np.random.Generator | None) -> FloatArray:
        return U.copy()

    def to_u(self, X: FloatArray) -> FloatArray:
        return X.copy()

    def span(self) -> tuple[FloatArray, FloatArray]:
        raise InputError("points have no common directions")


def _uniform(law: Law, net: Network) -> Component:
    W = net.layers[0].weight
    low, high = law.support()
    keep = np.intersect1d(_nonzero_columns(W), np.flatnonzero(high > low))
    fixed = np.where(high > low, 0.0, low)
    network = _network(net, _first_weight(W[:, keep]), _bias(net, fixed[None])[0])
    lower, upper = low[keep], high[keep]
    volume = float(np.log(upper - lower).sum())
    box = _Box(law, keep, np.zeros(len(keep)), np.ones(len(keep)))
    return Component(
        1.0, "uniform", network, len(keep), box, law, lower=_sides(lower), upper=_sides(upper), log_mass=volume
    )


def _truncated_diagonal(law: Truncated, net: Network) -> Component:
    W, mean, sd = net.layers[0].weight, law.gaussian.mean, law.gaussian.sd
    keep = np.intersect1d(_nonzero_columns(W), np.flatnonzero(sd > 0))
    weight = law.gaussian.factor.pull(W)[:, keep]
    network = _network(net, _first_weight(weight), _bias(net, mean[None])[0])
    with np.errstate(over="ignore"):
        lower, upper = (law.lower[keep] - mean[keep]) / sd[keep], (law.upper[keep] - mean[keep]) / sd[keep]
        mass = float(log_mass(lower, upper, (law.upper[keep] - law.lower[keep]) / sd[keep]).sum())
    box = _Box(law, keep, mean[keep], sd[keep])
    return Component(
        1.0, "truncated", network, len(keep), box, law, lower=_sides(lower), upper=_sides(upper), log_mass=mass
    )


def _sides(side: FloatArray) -> FloatArray:
    return frozen(side if len(side) else np.zeros(1))


# -- the network in the coordinates ------------------------------------------------------------------------------


def _dense(matrix: Any) -> FloatArray:
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix)


def _bias(net: Network, points: FloatArray) -> FloatArray:
    """`W x + b` of the first layer at each row, rounded once where that is cheap: far means cancel against biases."""
    layer = net.layers[0]
    with np.errstate(over="ignore", invalid="ignore"):
        out = layer.affine(points)
        if len(points) * layer.weight.size <= _MOST_CAREFUL and not sparse.issparse(layer.weight):
            careful = np.stack([_summed(layer.weight * x, _lost(layer.weight, x), layer.bias) for x in points])
            out = np.where(np.isfinite(careful), careful, out)
    if not np.isfinite(out).all():
        raise InputError("the first layer overflows at the law's mean; rescale the inputs")
    return out


def _lost(a: FloatArray, b: FloatArray) -> FloatArray:
    """`a b` minus its rounded value, exactly (Dekker); nan where the numbers are extreme."""
    p = a * b
    halves = []
    for v in (a, b):
        big = 134217729.0 * v
        high = big - (big - v)
        halves.append((high, v - high))
    (ah, al), (bh, bl) = halves
    return np.asarray(((ah * bh - p) + ah * bl + al * bh) + al * bl)


def _summed(products: FloatArray, lost: FloatArray, bias: FloatArray) -> FloatArray:
    """Sums of rows, rounded once; nan where a term is not finite."""
    terms = np.concatenate([products, lost, bias[:, None]], axis=1)
    fine = np.isfinite(terms).all(axis=1)
    return np.array([math.fsum(row) if ok else np.nan for row, ok in zip(terms, fine, strict=True)])


def _first_weight(weight: Any) -> Any:
    """The weight as a `Network` stores it (dense or sparse, read-only); one zero column when there is none."""
    if weight.shape[1] == 0:
        weight = np.zeros((weight.shape[0], 1))
    return Network([(weight, None)]).layers[0].weight


def _network(net: Network, weight: Any, bias: FloatArray) -> Network:
    first = Layer(weight, frozen(bias), net.layers[0].units)
    return Network([first, *net.layers[1:]], output_shape=net.output_shape, name=net.name, notes=net.notes)
