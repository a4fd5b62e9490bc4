"""The exact law of a network's output, held as regions: on region i of a component, `y = C[i] u + d[i]`.

The coordinates u are those in which the network sees the component. Every quantity of the output is a sum over the
regions of all components: below and above a threshold, the density, atoms, moments and events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray
from reluscope.answers._edges import ExactMaps
from reluscope.errors import InputError
from reluscope.events import ExactNetwork
from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS

if TYPE_CHECKING:
    from reluscope.cells.regions import Regions
    from reluscope.measure.regions import Enumerated
    from reluscope.network import Network, Pattern


_THRESHOLDS_AT_ONCE = 250
"""A piece index is one byte: no more break points than this in one split."""

_ROUNDING = 16.0 * EPS
"""Probable rounding of a sum of products, as a share of the sum of their absolute values."""


_MOST_WORK, _MOST_REGIONS = 300_000, 20_000
"""Products of fractions that the values of atoms may take (about a quarter of a second), and regions looked at."""

FLAT = 1e-10
"""Singular values of a map below this share of the largest count as zero."""


@dataclass(frozen=True, eq=False)
class ComponentRegions:
    """Regions of one component of the law. Masses are those of the whole law; `scale` turns plain measure into them.

    `C` (n, outputs, r) and `d` (n, outputs) are cleaned: where an output is constant on a region up to rounding, its
    row of C is zero and `d_error` bounds what that leaves in `d`. `blur` (outputs,) is what rounding may do to a value.
    """

    component: int
    pattern: Pattern
    C: FloatArray
    d: FloatArray
    d_error: FloatArray
    mass: FloatArray
    error: FloatArray
    cells: Any
    gaussian: bool
    scale: float
    regions: Regions
    blur: FloatArray
    maps: ExactMaps

    @property
    def dimension(self) -> int:
        """Dimension of the regions."""
        return int(self.C.shape[2])

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """`E[u 1]` (n, r) and `E[u u' 1]` (n, r, r) of every region."""
        from reluscope.measure.regions import gaussian_moments, volume_moments

        _, first, second = (gaussian_moments if self.gaussian else volume_moments)(self.cells)
        return self.scale * first, self.scale * second

    def density(
        self, rows: npt.NDArray[np.intp], C: FloatArray, d: FloatArray, Y: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Density of `C u + d` at the rows of Y, summed over some regions, with bounds; C (rows, m, r) of full rank."""
        from reluscope.cells.facets import facet_rows
        from reluscope.measure.exact import density, fibre_density

        m = C.shape[1]
        if m == 1 and self.dimension <= MOST_EXACT_DIMENSIONS:
            order = np.argsort(Y[:, 0], kind="stable")
            value, error = np.zeros(len(Y)), np.zeros(len(Y))
            coef, offset = np.ascontiguousarray(C[:, 0]), np.ascontiguousarray(d[:, 0])
            cells = self.cells if len(rows) == len(self.mass) else self.cells.take(rows)
            value[order], error[order] = density(cells, coef, offset, self.scale, Y[order, 0], self.gaussian)
            return value, np.maximum(value - error, 0.0), value + error
        if self.dimension - m > 1:
            raise InputError(
                f"the density of {m} outputs is exact where the network sees the law in at most {m + 1} dimensions, "
                f"this one it sees in {self.dimension}"
            )
        return fibre_density(facet_rows(self.regions, rows), C, d, self.scale, Y, self.gaussian)


@dataclass(frozen=True, eq=False)
class Points:
    """Outputs `y` (n, outputs) of probability `mass` (n,): particles, or a component the network does not see.

    `up_to` has the least floats that are not below the values of the network in real numbers, `y_error` what is not
    known about them.
    """

    component: int
    pattern: Pattern
    y: FloatArray
    up_to: FloatArray
    y_error: FloatArray
    mass: FloatArray
    error: FloatArray


def output_regions(law: Sequence[Enumerated], net: Network) -> OutputRegions:
    """The output's law from the enumerated components of the input's."""
    from reluscope.measure.regions import component_measure, scaled

    components: list[ComponentRegions] = []
    points: list[Points] = []
    missing = 0.0
    for index, found in enumerate(law):
        component = found.component
        weight = component.weight
        masses = scaled(found.masses, weight)
        error = 0.5 * (masses.upper - masses.lower)
        if not found.complete:
            missing += weight * max(0.0, 1.0 - float(found.masses.lower.sum()))
        if component.kind == "point":
            assert component.points is not None and component.point_weights is not None
            y = component.network(component.points)
            tiny = _ROUNDING * weight * component.point_weights
            pattern = component.network.pattern(component.points)[:, component.lead :]
            placed = _exactly_at(component.network, component.points, y, _MOST_WORK // len(law))
            points.append(Points(index, pattern, y, *placed, weight * component.point_weights, tiny))
            continue
        regions = found.regions
        C, d, d_error = _cleaned(component.network, regions.pattern, regions.C, regions.d)
        maps = ExactMaps(component, net, _MOST_WORK // len(law))
        blur = _value_errors(maps.net, np.maximum(*np.abs(component.law.far_box()))[None])[0]
        if component.r == 0:
            mass, error = np.full(len(d), weight / len(d)), np.full(len(d), EPS * weight)
            each = [_exactly_on(maps, regions.pattern, o, d[:, o], blur[o]) for o in range(net.n_outputs)]
            up_to, y_error = (np.stack(part, axis=1) for part in zip(*each, strict=True))
            points.append(Points(index, regions.pattern[:, component.lead :], d, up_to, y_error, mass, error))
            continue
        gaussian = component.kind != "uniform"
        scale = weight / component_measure(component)
        components.append(
            ComponentRegions(
                index, regions.pattern[:, component.lead :], C, d, d_error, masses.value,
                error + _ROUNDING * masses.value, regions.cells, gaussian, scale, regions, blur, maps,
            )
        )  # fmt: skip
    return OutputRegions(tuple(components), tuple(points), missing, net.n_outputs)


# -- values in real numbers ----------------------------------------------------------------------------------------


def _rounded_up(value: Fraction) -> float:
    """The least float that is not below a number: a float is below the number exactly if it is below this one."""
    try:
        near = float(value)
    except OverflowError:
        return np.inf if value > 0 else -float(np.finfo(np.float64).max)
    return near if Fraction(near) >= value else float(np.nextafter(near, np.inf))


def _exactly_on(
    maps: ExactMaps, pattern: Pattern, o: int, value: FloatArray, blur: float
) -> tuple[FloatArray, FloatArray]:
    """The value of output o on regions where it is constant, rounded up from fractions, and what is not known of it."""
    value, error = value.copy(), np.full(len(value), blur)
    unit = (np.arange(maps.net.n_outputs) == o).astype(np.float64)
    known: dict[bytes, float | None] = {}
    for i in range(min(len(value), _MOST_REGIONS)):
        key = maps.relevant(pattern[i], unit != 0)
        if key not in known:
            found = maps.row(pattern[i], unit)
            known[key] = None if found is None or any(found[:-1]) else _rounded_up(found[-1])
        exact = known[key]
        if exact is not None:
            value[i], error[i] = exact, 0.0
    return value, error


def _exactly_at(net: Network, X: FloatArray, y: FloatArray, most_work: int) -> tuple[FloatArray, FloatArray]:
    """The outputs at points, rounded up from fractions, and what is not known of them."""
    value, error = y.copy(), _value_errors(net, np.abs(X))
    count = min(len(X), most_work // sum(layer.width * layer.n_inputs for layer in net.layers))
    if not count:
        return value, error
    exact = ExactNetwork(net)
    for i in range(count):
        value[i] = [_rounded_up(v) for v in exact.at([Fraction(float(x)) for x in X[i]])[0]]
        error[i] = 0.0
    return value, error


def _value_errors(net: Network, size: FloatArray) -> FloatArray:
    """What rounding may do to the outputs (n, outputs) at inputs of absolute values up to `size` (n, inputs)."""
    slopes, offsets = _path_sizes(net, None)
    return np.asarray(_ROUNDING * (len(net.layers) + 1) * (size @ slopes[0].T + offsets))


# -- rounding of the affine maps ---------------------------------------------------------------------------------


def _cleaned(net: Network, pattern: Pattern, C: FloatArray, d: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Maps whose rows that are zero up to rounding are exactly zero, and the rounding of `d` there.

    An entry of C is a sum over paths through the network; rounding is a share of the sum of their absolute values.
    That sum is only worked out where an entry is small against the largest it could be.
    """
    C, d = C.copy(), d.copy()
    d_error = np.zeros(d.shape)
    largest: FloatArray = _path_sizes(net, None)[0].max(axis=2)  # (1, outputs)
    depth = len(net.layers)
    doubtful = np.abs(C).max(axis=2, initial=0.0) <= _ROUNDING * depth * largest
    rows = np.flatnonzero(doubtful.any(axis=1))
    if len(rows):
        sizes, offsets = _path_sizes(net, pattern[rows])
        zero = np.asarray((np.abs(C[rows]) <= _ROUNDING * depth * sizes).all(axis=2))
        # A row of zeros keeps the value at the origin of u; where it was not quite zero, u moves it by rounding.
        own = _ROUNDING * depth * offsets
        C[rows] = np.where(zero[:, :, None], 0.0, C[rows])
        d_error[rows] = np.where(zero, own, 0.0)
    return C, d, d_error


def _path_sizes(net: Network, pattern: Pattern | None) -> tuple[FloatArray, FloatArray]:
    """Sums of absolute values over all paths: (n, outputs, inputs), (n, outputs); without patterns over any pieces."""

    def size(weight: Any) -> Any:
        return abs(weight) if sparse.issparse(weight) else np.abs(weight)

    last = net.layers[-1]
    n = 1 if pattern is None else len(pattern)
    g = np.broadcast_to(np.abs(last.dense()), (n, net.n_outputs, last.n_inputs))
    d = np.broadcast_to(np.abs(last.bias), (n, net.n_outputs)).copy()
    for i in range(len(net.hidden) - 1, -1, -1):
        layer = net.hidden[i]
        if pattern is None:
            s, t = np.abs(layer.units.slopes).max(axis=1)[None], np.abs(layer.units.intercepts).max(axis=1)[None]
        else:
            s, t = layer.units.on(pattern[:, net.offsets[i] : net.offsets[i + 1]])
            s, t = np.abs(s), np.abs(t)
        d += np.einsum("nmk,nk->nm", g, t + s * np.abs(layer.bias))
        scaled = (g * s[:, None, :]).reshape(n * net.n_outputs, layer.width)
        weight = size(layer.weight)
        g = np.asarray((weight.T @ scaled.T).T).reshape(n, net.n_outputs, layer.n_inputs)
    return np.asarray(g), d


# -- sums over regions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AtomList:
    """Values an output takes with positive probability, increasing, with masses and bounds on their rounding.

    The values are rounded up: they are at most t for the same floats t as the network's own. `blur` is what is not
    known about a value where fractions would have taken too long.
    """

    value: FloatArray
    mass: FloatArray
    error: FloatArray
    blur: FloatArray


@dataclass(frozen=True, eq=False)
class OutputRegions:
    """The exact output law: regions by component, points, and the most mass that a budget left out."""

    components: tuple[ComponentRegions, ...]
    points: tuple[Points, ...]
    missing: float
    n_outputs: int

    @cached_property
    def atoms(self) -> tuple[AtomList, ...]:
        """The atoms of each output."""
        return tuple(self._atoms_of(o) for o in range(self.n_outputs))

    def _atoms_of(self, o: int) -> AtomList:
        value, blur, mass, error = [np.zeros(0)], [np.zeros(0)], [np.zeros(0)], [np.zeros(0)]
        for regions in self.components:
            flat = (regions.C[:, o] == 0).all(axis=1)
            pattern = regions.regions.pattern[flat]
            placed = _exactly_on(regions.maps, pattern, o, regions.d[flat, o], float(regions.blur[o]))
            value.append(placed[0])
            blur.append(placed[1])
            mass.append(regions.mass[flat])
            error.append(regions.error[flat])
        for p in self.points:
            value.append(p.up_to[:, o])
            blur.append(p.y_error[:, o])
            mass.append(p.mass)
            error.append(p.error)
        v, b, m, e = (np.concatenate(x) for x in (value, blur, mass, error))
        if not len(v):
            return AtomList(v, m, e, b)
        order = np.argsort(v, kind="stable")
        v, b, m, e = v[order], b[order], m[order], e[order]
        group = np.concatenate([[0], np.cumsum(np.diff(v) > b[1:] + b[:-1])])
        # The heaviest member names the group; in a tie the first.
        heaviest = np.lexsort((np.arange(len(v)), -m, group))
        first = heaviest[np.searchsorted(group[heaviest], np.arange(group[-1] + 1))]
        size = int(group[-1]) + 1
        widest = np.zeros(size)
        np.maximum.at(widest, group, np.where(b > 0, np.abs(v - v[first][group]) + b, 0.0))
        return AtomList(v[first], summed_by_group(group, m, size), summed_by_group(group, e, size), widest)

    def undecided(self, o: int, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The mass of atoms at or below each threshold, and above it, that may be on its other side by rounding."""
        atoms = self.atoms[o]
        some = atoms.blur > 0
        value, blur, mass = atoms.value[some], atoms.blur[some], atoms.mass[some]

        def up_to(ends: FloatArray, side: Literal["left", "right"]) -> tuple[npt.NDArray[np.intp], FloatArray]:
            count = np.searchsorted(np.sort(ends), t, side=side)
            return count, np.concatenate([[0.0], np.cumsum(mass[np.argsort(ends)])])[count]

        begun, here, ended = up_to(value - blur, "right"), up_to(value, "right"), up_to(value + blur, "left")
        below, above = (
            np.where(more[0] > less[0], more[1] - less[1] + EPS * len(mass), 0.0)
            for more, less in ((here, ended), (begun, here))
        )
        return below, above

    def below(self, o: int, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`P(y_o <= t)` at sorted thresholds, and its rounding."""
        return self._beyond(o, t, False)

    def above(self, o: int, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`P(y_o > t)` at sorted thresholds, and its rounding: accurate where it is small."""
        value, error = self._beyond(o, -t[::-1], True)
        return value[::-1], error[::-1]

    def _beyond(self, o: int, t: FloatArray, mirrored: bool) -> tuple[FloatArray, FloatArray]:
        """`P(y <= t)`, or `P(-y < t)` when mirrored."""
        from reluscope.measure.exact import below

        sign = -1.0 if mirrored else 1.0
        atoms = self.atoms[o]
        v = sign * atoms.value if not mirrored else -atoms.value[::-1]
        m, e = (atoms.mass, atoms.error) if not mirrored else (atoms.mass[::-1], atoms.error[::-1])
        count = np.searchsorted(v, t, side="left" if mirrored else "right")
        value = np.concatenate([[0.0], np.cumsum(m)])[count]
        error = np.concatenate([[0.0], np.cumsum(e)])[count]
        for regions in self.components:
            coef, offset = np.ascontiguousarray(sign * regions.C[:, o]), np.ascontiguousarray(sign * regions.d[:, o])
            if regions.dimension > (MOST_EXACT_DIMENSIONS if regions.gaussian else 2):
                more, rounding = _slabs_below(regions, coef, offset, t)
            else:
                more, rounding = below(
                    regions.cells, coef, offset, regions.mass, regions.error, regions.scale, t, regions.gaussian
                )
            value, error = value + more, error + rounding
        return value, error + _ROUNDING * value

    def density(self, o: int, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Density of the continuous part of `y_o` at sorted levels, and its rounding."""
        from reluscope.measure.exact import density

        value, error = np.zeros(len(t)), np.zeros(len(t))
        for regions in self.components:
            if regions.dimension > MOST_EXACT_DIMENSIONS:
                raise InputError(
                    f"the density of an output is exact in up to {MOST_EXACT_DIMENSIONS} dimensions, this law has "
                    f"{regions.dimension}; take differences of cdf"
                )
            coef, offset = np.ascontiguousarray(regions.C[:, o]), np.ascontiguousarray(regions.d[:, o])
            more, rounding = density(regions.cells, coef, offset, regions.scale, t, regions.gaussian)
            value, error = value + more, error + rounding
        return value, error

    def joint_density(self, which: list[int], Y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Density of some outputs at the rows of Y, and bounds on it; maps of lower rank have none."""
        value, lower, upper = np.zeros((3, len(Y)))
        for regions in self.components:
            if regions.dimension < len(which):
                continue
            C, d = regions.C[:, which], regions.d[:, which]
            full = np.flatnonzero(np.linalg.matrix_rank(C, rtol=FLAT) == len(which))
            more = regions.density(full, C[full], d[full], Y)
            value, lower, upper = value + more[0], lower + more[1], upper + more[2]
        return value, lower, upper

    def limits(self, o: int) -> tuple[float, float]:
        """Least and largest value of `y_o` on the cells (within 38.5 standard deviations for a Gaussian law)."""
        from reluscope.measure.exact import ranges

        low, high = [], []
        for regions in self.components:
            a, b = ranges(regions.cells, regions.C[:, o], regions.d[:, o])
            low.append(float(a.min()))
            high.append(float(b.max()))
        for p in self.points:
            low.append(float(p.y[:, o].min()))
            high.append(float(p.y[:, o].max()))
        return min(low), max(high)

    def moments(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean, covariance, and bounds on the rounding of each."""
        m = self.n_outputs
        mean, mean_error = np.zeros(m), np.zeros(m)
        for regions in self.components:
            first, second = regions.moments
            mean += np.einsum("noi,ni->o", regions.C, first) + regions.mass @ regions.d
            size = _typical(regions, np.zeros(m))
            mean_error += np.einsum("n,no->o", _relative(regions), size)
        for p in self.points:
            mean += p.mass @ p.y
            mean_error += p.error @ np.abs(p.y) + _ROUNDING * p.mass @ np.abs(p.y)
        cov, cov_error = np.zeros((m, m)), np.zeros((m, m))
        for regions in self.components:
            first, second = regions.moments
            d = regions.d - mean
            moved = np.einsum("noi,ni->no", regions.C, first)
            cross = np.einsum("no,np->op", moved, d)
            cov += np.einsum("noi,nij,npj->op", regions.C, second, regions.C, optimize=True) + cross + cross.T
            cov += np.einsum("n,no,np->op", regions.mass, d, d)
            # Cauchy-Schwarz: E|(y - mean)_o (y - mean)_p 1| <= the product of the cell's root mean squares.
            square = _square(regions, mean)
            cov_error += np.einsum("n,no,np->op", _relative(regions), np.sqrt(square), np.sqrt(square))
        for p in self.points:
            y = p.y - mean
            cov += np.einsum("n,no,np->op", p.mass, y, y)
            cov_error += np.einsum("n,no,np->op", p.error + _ROUNDING * p.mass, np.abs(y), np.abs(y))
        return mean, cov, mean_error, cov_error

    def event(self, G: FloatArray, g: FloatArray) -> tuple[float, float]:
        """`P(G y <= g)` and its rounding."""
        value, error = 0.0, 0.0
        for regions in self.components:
            mass, rounding = _event(regions, G, g)
            value, error = value + mass, error + rounding
        for p in self.points:
            inside = (p.y @ G.T <= g + p.y_error @ np.abs(G).T).all(axis=1)
            value += float(p.mass[inside].sum())
            error += float(p.error[inside].sum())
        return value, error + _ROUNDING * value


def _relative(regions: ComponentRegions) -> FloatArray:
    """Relative uncertainty of a cell's measure and moments."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(regions.mass > 0, regions.error / regions.mass, 0.0)
    return np.minimum(share, 1.0) + 1e-12


def _square(regions: ComponentRegions, centre: FloatArray) -> FloatArray:
    """An upper bound, up to a factor of two, of `E[(y - centre)^2 1]` by cell and output, from |C| and |d|."""
    second = regions.moments[1]
    spread = np.einsum("nii->ni", second)
    return (
        2.0 * regions.C.shape[2] * np.einsum("noi,ni->no", regions.C**2, spread)
        + 2.0 * regions.mass[:, None] * (regions.d - centre) ** 2
    )


def _typical(regions: ComponentRegions, centre: FloatArray) -> FloatArray:
    """An upper bound of `E[|y - centre| 1]` by cell and output."""
    return np.sqrt(regions.mass[:, None] * _square(regions, centre))


def _slabs_below(
    regions: ComponentRegions, coef: FloatArray, offset: FloatArray, t: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """`P(y <= t)` over the non-constant cells by splitting them at all thresholds: any geometry with a measure."""
    value, error = np.zeros(len(t)), np.zeros(len(t))
    live = (coef != 0).any(axis=1)
    maps = np.concatenate([coef, offset[:, None]], axis=1)[:, :, None]
    reach = (np.abs(coef) * regions.cells.reach()).sum(axis=1) + np.abs(offset)
    for begin in range(0, len(t), _THRESHOLDS_AT_ONCE):
        some = np.unique(t[begin : begin + _THRESHOLDS_AT_ONCE])
        tolerance = _ROUNDING * (reach + np.abs(some).max())[:, None]
        found = regions.cells.split(np.ascontiguousarray(maps), tolerance, some[None], 0)
        keep = np.flatnonzero(live[found.parent])
        mass, rounding = _measured(regions, found.cells, keep)
        steps = np.bincount(found.piece[keep, 0], mass, minlength=len(some) + 1)
        rounds = np.bincount(found.piece[keep, 0], rounding, minlength=len(some) + 1)
        place = np.searchsorted(some, t[begin : begin + _THRESHOLDS_AT_ONCE])
        value[begin : begin + _THRESHOLDS_AT_ONCE] = np.cumsum(steps)[place]
        error[begin : begin + _THRESHOLDS_AT_ONCE] = np.cumsum(rounds)[place]
    return value, error + _ROUNDING * value


def _some_masses(cells: Any, index: npt.NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
    """Gaussian masses of some cells of a batch of intervals, polygons or solids, and their rounding."""
    if cells.dimension == 1:
        from reluscope.measure.exact import interval_mass

        value = interval_mass(cells.low[index], cells.high[index])
        return value, 1e-12 * value
    if cells.dimension == 2:
        from reluscope.measure.exact import polygon_mass as measured
    else:
        from reluscope.measure.exact import polyhedra_mass as measured
    count = np.diff(cells.offsets)[index]
    offsets = np.concatenate([[0], np.cumsum(count)])
    vertex = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - cells.offsets[:-1][index], count)
    return measured(cells.points[vertex], offsets)


def _measured(regions: ComponentRegions, cells: Any, index: npt.NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
    """Masses of some pieces of the regions, and their rounding."""
    if not len(index):
        return np.zeros(0), np.zeros(0)
    if regions.gaussian:
        value, error = _some_masses(cells, index)
        return regions.scale * value, regions.scale * error
    volume = cells.volumes()[index]
    return regions.scale * volume, regions.scale * 64 * EPS * cells.dimension * volume


def _event(regions: ComponentRegions, G: FloatArray, g: FloatArray) -> tuple[float, float]:
    rows = np.einsum("ko,noi->nik", G, regions.C)
    shift = regions.d @ G.T - g
    maps = np.concatenate([rows, shift[:, None, :]], axis=1)
    reach = regions.cells.reach()
    size = np.einsum("ko,noi,ni->nk", np.abs(G), np.abs(regions.C), reach) + np.abs(regions.d) @ np.abs(G).T + np.abs(g)
    tolerance = _ROUNDING * size + regions.d_error @ np.abs(G).T
    found = regions.cells.split(np.ascontiguousarray(maps), tolerance, np.zeros((len(g), 1)), 0)
    inside = (found.piece == 0).all(axis=1)
    if not inside.any():
        return 0.0, 0.0
    # Cells that were not cut keep the masses they have.
    cut = np.bincount(found.parent, minlength=len(regions.mass)) > 1
    whole = inside & ~cut[found.parent]
    value, error = float(regions.mass[found.parent[whole]].sum()), float(regions.error[found.parent[whole]].sum())
    mass, rounding = _measured(regions, found.cells, np.flatnonzero(inside & cut[found.parent]))
    return value + float(mass.sum()), error + float(rounding.sum())


def summed_by_group(group: npt.NDArray[np.intp], amount: FloatArray, size: int) -> FloatArray:
    """The sum of the amounts of each group 0, ..., size - 1."""
    return np.asarray(np.bincount(group, amount, minlength=size), dtype=np.float64)


def merged(patterns: Sequence[Pattern], net: Network) -> tuple[Pattern, list[npt.NDArray[np.intp]]]:
    """Distinct patterns over several lists, and where each list's rows are among them."""
    together = np.concatenate(patterns)
    _, first, inverse = np.unique(net.key(together), return_index=True, return_inverse=True)
    ends = np.cumsum([len(p) for p in patterns])[:-1]
    return together[first], np.split(inverse.reshape(-1), ends)
