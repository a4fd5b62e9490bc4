"""Exact local explanations: weights, contributions, the region's boundary, and what changes across it.

On the region of `x` the network is `C x + d`, so feature j adds exactly `C_j x_j` to the intercept `d`: the
local-linear view, whose starting point differs from region to region. Path contributions start from the network's own
output at one reference input (`contributions`), so they can be compared between rows. The distance from
`x` to the boundary is `min_i slack_i / |a_i|` over the rows `a_i x <= b_i` of all units, redundant ones included: the
nearest hyperplane is always a facet, in any norm. Distances are in the units of the inputs, and also with each input
divided by its standard deviation over the data, because raw inputs mix units.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, flag, integer
from reluscope._doors import door
from reluscope._text import count as counted
from reluscope._text import table as text_table
from reluscope.cells.facets import hidden_maps
from reluscope.local_models._data import Units, headed, read
from reluscope.local_models._decision import chances, cutoff_of, decided
from reluscope.local_models._grouping import pack, spans, unpack
from reluscope.local_models.contributions import Reference, groups_of, path_parts, reference_of, values_of
from reluscope.network import Network, Pattern
from reluscope.threads import blas_threads

if TYPE_CHECKING:
    from reluscope.local_models.unwrap import Unwrapped

Index = npt.NDArray[np.int64]

_NUMBERS = 1 << 21
"""Numbers in a chunk of affine maps of hidden units (16 MB)."""

_STEPS = 10.0 ** np.arange(-3, -11, -1)
"""Lengths of the step across a facet, relative to the room there; shorter ones overrule longer ones."""

_SHOWN = 12
"""Features listed in the text of an explanation."""

_MOST_INPUTS = 60
"""Above this, facets that only a linear program could tell from redundant rows are left undecided."""


@dataclass(frozen=True, eq=False)
class Margins:
    """For each row the distance to the boundary of its region (`inf`: the whole space) and what makes that boundary.

    `layer` is the index of the hidden layer and `unit` that of the unit in it, both from 0; `step` is the break point
    of the unit; -1 where there is none. Distances are in the units of the inputs, or with `scaled` in standard
    deviations of each input over the data.

    Attributes
    ----------
    distance : (n,) array
    layer, unit, step : (n,) arrays of int
    scaled : bool
    """

    distance: FloatArray
    layer: Index
    unit: Index
    step: Index
    scaled: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Neighbour:
    """The region across one facet, which is made by unit `unit` of hidden layer `layer` (indices, both from 0).

    `distance` is that of the point to the facet's hyperplane in the units of the inputs, `distance_scaled` the same in
    standard deviations of each input (`inf` when only inputs that do not vary lead there). `normal` points across,
    `region` and `count` are those of the unwrapped data (-1 and 0 where no data are). `jump` (outputs, inputs) is the
    change of the coefficients; it is a multiple of the normal, because the function is continuous.

    Attributes
    ----------
    layer, unit, step : int
    distance, distance_scaled : float
    normal : (inputs,) array
    pattern : (units,) array
    region, count : int
    jump : (outputs, inputs) array
    name : str
        Of the unit: its place in the model that was loaded, if that is known.
    """

    layer: int
    unit: int
    step: int
    distance: float
    distance_scaled: float
    normal: FloatArray
    pattern: Pattern
    region: int
    count: int
    jump: FloatArray
    name: str

    @property
    def jump_size(self) -> float:
        """Largest norm of an output's change of coefficients."""
        return float(np.linalg.norm(self.jump, axis=1).max())

    def __repr__(self) -> str:
        where = f"region {self.region} ({counted(self.count, 'row')})" if self.region >= 0 else "a region without data"
        return (
            f"Neighbour({self.name} at distance {self.distance:.4g} ({self.distance_scaled:.4g} sd): {where}, "
            f"jump {self.jump_size:.4g})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """One prediction taken apart, exactly, in two ways.

    `output = base + sum_j path_j` from the network's output at a reference input, the same for all rows; and,
    local-linear, `output = d + sum_j C_j x_j` on the region of `x`.

    Attributes
    ----------
    x : (inputs,) array
        The input.
    pattern : (units,) array
        Its activation pattern.
    region, count : int
        Its region and the rows there; -1 and 0 when no data lie in it.
    output : (outputs,) array
        The network's output, in the unit of the schema.
    C, d : (outputs, inputs) and (outputs,) array
        The linear model of the region.
    error : float
        Difference between the local-linear sum and the network's own output: rounding.
    reference : Reference
        Where path contributions start: its input `x`, its `name` and the network's `output` there.
    """

    unwrapped: Unwrapped
    x: FloatArray
    pattern: Pattern
    region: int
    count: int
    output: FloatArray
    C: FloatArray
    d: FloatArray
    error: float
    reference: Reference

    @property
    def has_data(self) -> bool:
        """Whether any row of the data lies in the same region."""
        return self.region >= 0

    @property
    def contribution(self) -> FloatArray:
        """`C_j x_j`, local-linear: together with the intercept `d` they add up to the output."""
        return self.C * self.x

    @property
    def base(self) -> FloatArray:
        """The network's own output at the reference."""
        return self.reference.output

    @cached_property
    def path(self) -> FloatArray:
        """Path contributions from the reference, (outputs, inputs): with `base` they add up to the output."""
        return path_parts(self.unwrapped.network, self.reference.x, self.x[None])[0]

    @cached_property
    def original(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values, coefficients and intercepts in the units of the columns (those of `x` itself without any)."""
        scaling = self.unwrapped.scaling
        if scaling is None:
            return self.x, self.C, self.d
        return scaling.original(self.x), *scaling.model(self.C, self.d)

    @cached_property
    def nearest(self) -> Neighbour | None:
        """The region across the nearest facet; None when the network is affine everywhere."""
        return next(iter(self.neighbours(1)), None)

    @cached_property
    def nearest_scaled(self) -> Neighbour | None:
        """The region across the facet that is nearest in standard deviations of the data."""
        return next(iter(self.neighbours(1, scaled=True)), None)

    @property
    def distance(self) -> float:
        """Distance from `x` to the boundary of its region, in the units of the inputs."""
        return float(_slacks(self.unwrapped, self.pattern, self.x)[0].min(initial=np.inf))

    @property
    def distance_scaled(self) -> float:
        """The same with each input divided by its standard deviation over the data, for inputs of unlike units.

        Inputs that do not vary in the data are kept fixed.
        """
        return float(_slacks(self.unwrapped, self.pattern, self.x)[1].min(initial=np.inf))

    @property
    def probability(self) -> FloatArray | None:
        """Probability of each class, in the order of `classes`; None when the outputs are no classes."""
        classes, net = self.classes, self.unwrapped.network
        if not classes or (net.schema is not None and net.schema.rule == "smallest"):
            return None  # scores of which the smallest wins are no logits
        return chances(net, self.output[None])[0]

    @property
    def classes(self) -> tuple[Any, ...]:
        """The labels, in the order of the outputs; empty when the outputs are no classes."""
        classes = self.unwrapped.response.classes
        return classes if len(classes) == max(2, len(self.output)) else ()

    @property
    def predicted(self) -> Any:
        """The class that is decided for, by the rule and cut-off of the schema if it has one; None without classes."""
        return self.classes[self._decided] if self.classes else None

    @property
    def main_output(self) -> int:
        """The output to show first: the one that is decided for, else the largest."""
        return self._decided if self.classes and len(self.output) > 1 else int(np.argmax(self.output))

    @property
    def _decided(self) -> int:
        return int(decided(self.unwrapped.network, self.output[None])[0])

    def neighbours(self, limit: int | None = None, *, scaled: bool = False) -> list[Neighbour]:
        """Regions across the facets of this region, nearest facet first.

        Parameters
        ----------
        limit : int, optional
            How many; by default all of them.
        scaled : bool
            Order by distance in standard deviations of the data instead of the units of the inputs.

        Returns
        -------
        list of Neighbour

        Notes
        -----
        A hyperplane is a facet when its nearest point lies in the region; the others take a linear program each (with
        more than 60 inputs they are left out). Each neighbour's pattern is read off a point just across.
        """
        if limit is not None:
            integer(limit, "limit", low=1)
        return _neighbours(self, limit, flag(scaled, "scaled"))

    def rows(self, output: int = 0, *, groups: Any = "columns") -> list[dict[str, Any]]:
        """One dictionary per feature: value, coefficient, path and local-linear contribution (largest path first).

        Values, coefficients and contributions are in the units of the columns and outputs. The entries `local` and the
        intercept of `original` add up to the output; so do the entries `path` and `base`.

        Parameters
        ----------
        output : int
        groups : "columns", None or mapping of str to features
            The inputs of a category are one feature, whose value is its level and which has no coefficient of its own;
            None has the inputs one by one.

        Returns
        -------
        list of dict
        """
        k = integer(output, "output", low=0, high=len(self.d) - 1)
        value, coefficient, _ = self.original
        together = groups_of(self.unwrapped, groups)
        path, local = together.total(self.path[k]), together.total(coefficient[k] * value)
        known = values_of(self.unwrapped, self.x[None], together)
        order = np.argsort(-np.abs(path), kind="stable")
        rows = []
        for i in order.tolist():
            inside = np.flatnonzero(together.of == i)
            alone = int(inside[0]) if len(inside) == 1 else None
            level = known[together.names[i]][0] if together.names[i] in known else None
            rows.append(
                {
                    "feature": together.names[i],
                    # + 0.0: a product with 0 may be -0, which nobody wants to read.
                    "value": level if alone is None else float(value[alone]) + 0.0,
                    "coefficient": None if alone is None else float(coefficient[k, alone]) + 0.0,
                    "path": float(path[i]) + 0.0,
                    "local": float(local[i]) + 0.0,
                }
            )
        return rows

    def to_pandas(self, output: int = 0, *, groups: Any = "columns") -> Any:
        """The rows of one output as a pandas DataFrame.

        Parameters
        ----------
        output : int
        groups : "columns", None or mapping of str to features
            As for `rows`.

        Returns
        -------
        DataFrame
        """
        from reluscope._extras import require

        return require("pandas", "pandas").DataFrame(self.rows(output, groups=groups))

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Waterfall of the contributions; returns the Axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **options
            Go to `reluscope.plot.explanations.plot_explanation`.

        Returns
        -------
        matplotlib Axes
        """
        return door("Explanation.plot")(self, ax, **options)

    def __repr__(self) -> str:
        names = self.unwrapped.output_names
        top = self.main_output
        where = f"region {self.region} with {counted(self.count, 'row')}" if self.has_data else "a region without data"
        lines = [f"{self._headline()}; in {where}; error {self.error:.1e}", self._edge()]
        if len(self.output) > 1:
            lines.append(f"output {names[top]}:")
        rows = self.rows(top)
        first = {
            "feature": "start",
            "path": float(self.base[top]) + 0.0,
            "local": float(self.original[2][top]) + 0.0,
        }
        shown = [first, *rows[:_SHOWN]]
        rest = rows[_SHOWN:]
        if rest:
            both = {name: sum(row[name] for row in rest) + 0.0 for name in ("path", "local")}
            shown.append({"feature": counted(len(rest), "other feature")} | both)
        total = float(self.output[top]) + 0.0
        shown.append({"feature": "total", "path": total, "local": total})
        schema = self.unwrapped.network.schema
        units = {} if schema is None else {c.name: c.unit for c in schema.columns if c.unit}
        shown = [row | {"feature": headed(row["feature"], units.get(row["feature"], ""))} for row in shown]
        columns = ("feature", "value", "coefficient", "path", "local")
        lines.append(
            text_table(
                [
                    {_head(name): row["feature"] if name == "feature" else _figure(row.get(name)) for name in columns}
                    for row in shown
                ]
            )
        )
        lines.append(
            f"path: from the network's output at {self.reference.name}, along a straight line; local: coefficient "
            "times value, from the intercept of this region's linear model"
            + ("; all features: to_pandas()" if rest else "")
        )
        return "\n".join(lines)

    def _headline(self) -> str:
        shown = " ".join(f"{v + 0.0:.6g}" for v in self.output[:6]) + (" ..." if len(self.output) > 6 else "")
        p = self.probability
        if p is None:
            net, unit = self.unwrapped.network, Units.of(self.unwrapped.network).outputs[0]
            one = len(self.output) == 1 and net.schema is not None and net.schema.outputs
            said = f"{self.unwrapped.output_names[0] if one else 'output'} {shown}{f' {unit}' if one and unit else ''}"
            return f"class {self.predicted}, the smallest output; {said}" if self.classes else said
        k = self._decided
        said = f"class {self.classes[k]} with probability {p[k]:.4g}"
        if len(self.output) == 1:
            said += f" (class {self.classes[1]}: {p[1]:.4g})" if k == 0 else ""
            limit = cutoff_of(self.unwrapped.network)
            said += f", decided by the cut-off {limit:.4g}" if limit != 0.5 else ""
            return f"{said}; output {shown}, the logit of class {self.classes[1]}"
        return f"{said}; outputs {shown}, the logits of the classes"

    def _edge(self) -> str:
        near, scaled = self.nearest, self.nearest_scaled
        if near is None or scaled is None:
            return "the network is affine everywhere"
        units = "the units of the inputs" if self.unwrapped.scaling is None else "the units of the scaled inputs"
        return (
            f"the nearest boundary is {scaled.distance_scaled:.4g} standard deviations away ({scaled.name}); "
            f"in {units}, {near.distance:.4g} ({near.name})"
        )


def _figure(value: Any) -> Any:
    """A number or level as text flush right, also in columns with gaps."""
    return f"{value:>12.6g}" if isinstance(value, float) else value if value is None else f"{value!s:>12}"


def _head(name: str) -> str:
    """The name of a column, flush right above figures."""
    return name if name == "feature" else f"{name:>12}"


def explain(u: Unwrapped, x: Any, reference: Any = None) -> Explanation:
    """The explanation of a row of the data (by index) or of a vector."""
    net = u.network
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        i = integer(x, "x", low=-len(u.region), high=len(u.region) - 1) % len(u.region)
        region = int(u.region[i])
        vector = read(u.X, slice(i, i + 1))
        # The pattern found in the batch: another batch size may round a tie the other way.
        pattern, output = unpack(net, u._words[[region]]), u.prediction[i]
    else:
        vector = u._row(x, "x")[None]
        pattern, output = net.pattern(vector), net(vector)[0]
        region = int(u._lookup.find(pack(net, pattern))[0])
    C, d = net.output_maps(pattern)
    error = float(np.abs(C[0] @ vector[0] + d[0] - output).max())
    count = int(u.count[region]) if region >= 0 else 0
    return Explanation(u, vector[0], pattern[0], region, count, output, C[0], d[0], error, reference_of(u, reference))


def margins(net: Network, X: Any, spread: FloatArray | None = None) -> Margins:
    """Distances to the boundary of many rows, in units of `spread` if given.

    Cost `n * units * inputs * width`, memory bounded by chunks.
    """
    n = len(X)
    best = np.full(n, np.inf)
    layers, units, steps = (np.full(n, -1, dtype=np.int64) for _ in range(3))
    size = max(1, _NUMBERS // (max(net.widths) * (net.n_inputs + 1)))
    with blas_threads(max(net.widths)):
        for part in spans(n, size):
            x = read(X, part)
            for layer, (maps, piece) in enumerate(hidden_maps(net, net.pattern(x))):
                for low in (True, False):
                    distance, step = _distances(net, layer, maps, piece, x, low, spread)
                    unit = distance.argmin(axis=1)
                    near = distance[np.arange(len(x)), unit]
                    closer = np.flatnonzero(near < best[part])
                    best[part][closer] = near[closer]
                    layers[part][closer] = layer
                    units[part][closer] = unit[closer]
                    steps[part][closer] = step[closer, unit[closer]]
    return Margins(best, layers, units, steps, spread is not None)


def _distances(
    net: Network,
    layer: int,
    maps: FloatArray,
    piece: Pattern,
    x: FloatArray,
    low: bool,
    spread: FloatArray | None,
) -> tuple[FloatArray, Index]:
    """Distance of each row to the lower (or upper) break point of each unit of a layer, and which break that is."""
    units = net.layers[layer].units
    edges = np.column_stack([np.full(len(units), -np.inf), units.breaks, np.full(len(units), np.inf)])
    step = piece.astype(np.int64) - (1 if low else 0)
    level = edges[np.arange(len(units)), step + 1]
    h = np.einsum("ucd,cd->cu", maps[:, :, :-1], x) + maps[:, :, -1].T
    slope = maps[:, :, :-1] if spread is None else maps[:, :, :-1] * spread
    norm = np.sqrt((slope**2).sum(axis=2)).T
    slack = h - level if low else level - h
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(norm > 0, np.maximum(slack, 0.0) / norm, np.inf)
    return distance, step


def _slacks(
    u: Unwrapped, pattern: Pattern, x: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, Index]:
    """Distances of `x` to the hyperplanes of its region, own and scaled; unit rows `A x <= b`; hidden units."""
    cell = u.network.polytope(pattern)
    norm = np.linalg.norm(cell.A, axis=1)
    keep = norm > 0
    A, b = cell.A[keep] / norm[keep, None], cell.b[keep] / norm[keep]
    slack = np.maximum(b - A @ x, 0.0)
    scaled = np.full(len(slack), np.inf)
    np.divide(slack, size := np.linalg.norm(A * u.spread, axis=1), out=scaled, where=size > 0)
    return slack, scaled, A, b, cell.unit[keep].astype(np.int64)


def _neighbours(e: Explanation, limit: int | None, by_scaled: bool) -> list[Neighbour]:
    u, net = e.unwrapped, e.unwrapped.network
    distance, scaled, A, b, unit = _slacks(u, e.pattern, e.x)
    found: list[Neighbour] = []
    seen: list[int] = []
    size = max(1.0, float(np.abs(e.x).max()))
    facets: set[int] | None = None
    # Where scaled distances are infinite, the own ones decide.
    order = np.lexsort((distance, scaled)) if by_scaled else np.argsort(distance, kind="stable")
    for i in order.tolist():
        if limit is not None and len(found) >= limit:
            break
        if any(abs(A[i] @ A[k] - 1) < 1e-12 and abs(b[i] - b[k]) < 1e-12 * size for k in seen):
            continue  # another unit with the same hyperplane
        towards = A[i]
        if by_scaled and np.isfinite(scaled[i]):  # the nearest point in the scaled norm
            towards = A[i] * u.spread**2
            towards = towards / (A[i] @ towards)
        foot = e.x + distance[i] * towards
        room = b - A @ foot
        room[i] = np.inf
        point: FloatArray | None = foot
        if room.min(initial=np.inf) <= 1e-9 * size and len(found):  # the nearest hyperplane is a facet in any case
            if net.n_inputs > _MOST_INPUTS:
                continue
            if facets is None:
                facets = _facets(A, b)
            point = _facet_point(A, b, i) if i in facets else None
        if point is None:
            continue
        seen.append(i)
        found.append(_across(u, e, int(unit[i]), float(distance[i]), float(scaled[i]), A, b, i, point))
    return found


def _facets(A: FloatArray, b: FloatArray) -> set[int]:
    from reluscope.cells.lp import irredundant

    return set(irredundant(A, b).tolist())


def _facet_point(A: FloatArray, b: FloatArray, i: int) -> FloatArray | None:
    """The centre of a largest ball in facet i, measured within its hyperplane; None when it has no interior."""
    from reluscope.cells.lp import interior_point

    others = np.delete(np.arange(len(A)), i)
    start = b[i] * A[i]
    if A.shape[1] == 1:
        return start
    plane = np.linalg.svd(A[[i]])[2][1:].T  # a basis of the hyperplane's directions
    rows, bound = A[others] @ plane, b[others] - A[others] @ start
    flat = np.linalg.norm(rows, axis=1) < 1e-12
    if (bound[flat] < -1e-9).any():
        return None
    centre, radius = interior_point(rows[~flat], bound[~flat])
    return start + plane @ centre if radius > 0 else None


def _across(
    u: Unwrapped,
    e: Explanation,
    unit: int,
    distance: float,
    scaled: float,
    A: FloatArray,
    b: FloatArray,
    i: int,
    point: FloatArray,
) -> Neighbour:
    net = u.network
    room = np.delete(b - A @ point, i)
    reach = min(float(room[room > 0].min(initial=np.inf)), max(1.0, float(np.abs(point).max())))
    here = int(e.pattern[unit])
    layer = int(np.searchsorted(net.offsets, unit, side="right")) - 1
    local = unit - int(net.offsets[layer])
    maps = net.affine(e.pattern).hidden[layer][0][local]
    rising = float(maps @ A[i]) > 0
    pattern = e.pattern.copy()
    pattern[unit] = here + 1 if rising else here - 1
    stepped = net.pattern(point + (_STEPS * reach)[:, None] * A[i])
    crossed = np.flatnonzero(stepped[:, unit] == pattern[unit])
    if len(crossed):
        pattern = stepped[crossed[-1]]
    region = int(u._lookup.find(pack(net, pattern[None]))[0])
    C, _ = net.output_maps(pattern)
    count = int(u.count[region]) if region >= 0 else 0
    step = here if rising else here - 1
    jump = C[0] - e.C
    return Neighbour(layer, local, step, distance, scaled, A[i], pattern, region, count, jump, net.unit_name(unit))
