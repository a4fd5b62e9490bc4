"""`layers`: what each layer of a network does to a cloud of inputs, in one tidy table.

The first row is the input, then one row per hidden layer (after its activation), then the output. Everything is
measured on the same inputs, the same pairs of them and the same points, so that rows can be compared.

For a convolution the units of one channel are seen as one variable looked at from many positions: activity is by
channel, and the spectrum and the mean width are those of the cloud with one row per input and position and one column
per channel. Norms, angles, distances and counts of active units always use the whole vector.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, integer, real, real_array, seeded
from reluscope._doors import door
from reluscope._tables import Tabular
from reluscope._text import table
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.inputs import Law
from reluscope.network import Network, input_rows
from reluscope.progress import meter
from reluscope.representation.activity import OFF, ON, SWITCHES, UNDECIDED, Stability, stable_units
from reluscope.representation.channels import channels_of
from reluscope.representation.hooks import caught, is_module
from reluscope.representation.jacobians import LocalDimensions, local_dimensions
from reluscope.representation.metrics import ZERO_BELOW, Spectrum, angles, mean_width, row_norms, spectrum_of
from reluscope.threads import blas_threads, clean_interrupt
from reluscope.workers import jobs_at_hand, run, with_jobs

POLARISED = 0.05
"""A unit that is on for at most this share of the inputs, or off for at most this share, counts as polarised."""

_MOST_NUMBERS = 40_000_000
"""Numbers of the widest layer over all inputs that are held at once; more inputs than that are thinned out."""
_MOST_SPECTRUM_ROWS = 20_000
_MOST_SPECTRUM_WORK = 4e9
_MOST_JACOBIAN = 2_000_000
"""Entries of a layer's Jacobian (units times inputs) up to which its rank is found."""
_LAW_DRAWS = 2_000


@dataclass(frozen=True)
class LayerRow:
    """One row of the table; None where a number does not exist (activity of the input, ranks of huge layers).

    Attributes
    ----------
    layer : int or None
        Index into `net.layers`, from 0; None for the input.
    name, kind : str
    units, channels : int
    activity : float
        Mean share of inputs for which a unit is on: its pre-activation is above its first break (above 0 for ReLU). An
        activation with several breaks, such as hardtanh, also bends while it is on.
    always_on, always_off : int
        Units that are so on every input.
    polarised : float
        Share of units with activity within 0.05 of 0 or 1.
    certified_on, certified_off, certified_switching, undecided : int
        Units proved so on the box, and the others.
    mean_norm, stable_rank, stable_rank_uncentred, participation_ratio : float
    nonzero_eigenvalues : int
        Of the covariance.
    mean_width, mean_width_error : float
        Spherical mean width and its standard error; `mean_width_exact` says whether it is exact.
    angle_mean, angle_sd, angle_low, angle_median, angle_high : float
        Angles of pairs in radians: moments, and the 5, 50 and 95 % quantiles.
    distance_factor : float
        Mean squared distance of pairs over that of the input.
    distance_low, distance_median, distance_high : float
        The 5, 50 and 95 % quantiles of `|z_i - z_j| / |x_i - x_j|`.
    active, active_min : float
        Mean and least number of units with non-zero slope.
    rank, rank_max : float
        Mean and largest rank of the local Jacobian at `jacobians` points.
    rank_bound : float
        Mean of the smallest `active` so far; `rank_bound_holds` says whether every rank obeys it.
    """

    layer: int | None
    name: str
    kind: str
    units: int
    channels: int | None = None
    activity: float | None = None
    always_on: int | None = None
    always_off: int | None = None
    polarised: float | None = None
    certified_on: int | None = None
    certified_off: int | None = None
    certified_switching: int | None = None
    undecided: int | None = None
    mean_norm: float = 0.0
    stable_rank: float = 0.0
    stable_rank_uncentred: float = 0.0
    participation_ratio: float = 0.0
    nonzero_eigenvalues: int = 0
    mean_width: float = 0.0
    mean_width_error: float = 0.0
    mean_width_exact: bool = False
    angle_mean: float | None = None
    angle_sd: float | None = None
    angle_low: float | None = None
    angle_median: float | None = None
    angle_high: float | None = None
    distance_factor: float | None = None
    distance_low: float | None = None
    distance_median: float | None = None
    distance_high: float | None = None
    active: float | None = None
    active_min: int | None = None
    rank: float | None = None
    rank_max: int | None = None
    rank_bound: float | None = None
    rank_bound_holds: bool | None = None


COLUMNS = tuple(field.name for field in fields(LayerRow))

_SHOWN = (
    *("layer", "kind", "units", "activity", "always_on", "always_off", "mean_norm", "stable_rank"),
    *("stable_rank_uncentred", "nonzero_eigenvalues", "mean_width", "angle_mean", "distance_factor", "active", "rank"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Layers(Tabular):
    """The table of `layers` and what its pictures need: one row for the input, each hidden layer, and the output.

    Attributes
    ----------
    rows : tuple of LayerRow
        Row 0 is the input, row k + 1 is layer k.
    activity : tuple, one entry per row
        Share of inputs with the unit on (units or channels,); nan for affine units, None for rows without units.
    angles, ratios : ndarray, shape (rows, pairs)
        Angle between the two points of each pair (nan where one is 0), and their distance over that of the inputs.
    pca, coordinates : ndarray, shape (rows, points, 2)
        The clouds on their two leading principal directions and on two random coordinates.
    dimensions, stability : LocalDimensions, Stability or None
        The records behind the columns `rank` and `certified_*`.
    n_inputs, n_points : int
    zero_below : float
        Singular values below this share of the largest count as zero.
    seed : int or None
        Repeats the table as `rng=`.
    note : str
        What was thinned out.
    """

    network: Network | None
    n_inputs: int
    n_points: int
    rows: tuple[LayerRow, ...]
    activity: tuple[FloatArray | None, ...]
    angles: FloatArray
    ratios: FloatArray
    pca: FloatArray
    coordinates: FloatArray
    dimensions: LocalDimensions | None
    stability: Stability | None
    zero_below: float
    seed: int | None
    note: str

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> FloatArray:
        """A column of the table as numbers, nan where there is none."""
        if name not in COLUMNS or name in ("name", "kind"):
            raise InputError(f"no column {name!r} of numbers; there are {', '.join(COLUMNS)}")
        values = [getattr(row, name) for row in self.rows]
        return np.array([np.nan if v is None else float(v) for v in values])

    @property
    def hidden(self) -> tuple[int, ...]:
        """The layers that have units, counted from 0 (layer k is row k + 1)."""
        return tuple(row - 1 for row, a in enumerate(self.activity) if a is not None)

    def histogram(self, layer: int | None = None, bins: int = 20) -> tuple[FloatArray, FloatArray]:
        """Share of units in each of `bins` equal bins of activity in [0, 1], and the edges; all layers when None.

        Parameters
        ----------
        layer : int, optional
        bins : int

        Returns
        -------
        share, edges : (bins,) and (bins + 1,) arrays
        """
        wanted = self.hidden if layer is None else (integer(layer, "layer", low=0, high=len(self) - 2),)
        parts = [a for a in (self.activity[k + 1] for k in wanted) if a is not None]
        if not parts:
            which = "no layer has units" if layer is None else f"layer {layer} has no units"
            raise InputError(f"{which} whose activity could be counted")
        values = np.concatenate(parts)
        values = values[np.isfinite(values)]
        counts, edges = np.histogram(values, bins=integer(bins, "bins", low=1), range=(0.0, 1.0))
        return counts / max(len(values), 1), edges

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name, fit for JSON: None where there is no number."""
        return {name: [getattr(row, name) for row in self.rows] for name in COLUMNS}

    def plot(self, figure: Any = None) -> Any:
        """The eight panels on one page; see `reluscope.plot.layers.plot_layers`.

        Parameters
        ----------
        figure : matplotlib Figure, optional

        Returns
        -------
        ndarray of matplotlib Axes
        """
        return door("Layers.plot")(self, figure)

    def plot_clouds(self, kind: str = "pca", figure: Any = None) -> Any:
        """The cloud after every layer on one page; see `reluscope.plot.layers.plot_clouds`.

        Parameters
        ----------
        kind : {"pca", "coordinates"}
        figure : matplotlib Figure, optional

        Returns
        -------
        ndarray of matplotlib Axes
        """
        return door("Layers.plot_clouds")(self, kind, figure)

    def __str__(self) -> str:
        rows = [{name: getattr(row, name) for name in _SHOWN} for row in self.rows]
        return table(rows) + (f"\n{self.note}" if self.note else "")

    def __repr__(self) -> str:
        what = "a torch module" if self.network is None else repr(self.network)
        return f"Layers({len(self)} rows, {self.n_points:,} inputs through {what})"


@dataclass(frozen=True, eq=False)
class _Stage:
    """What one layer made of the inputs: values (n, units), which units are on, how many have a non-zero slope."""

    name: str
    kind: str
    values: FloatArray
    on: npt.NDArray[np.bool_] | None
    affine: npt.NDArray[np.bool_] | None
    active: npt.NDArray[np.int64] | None
    channels: int | None


@clean_interrupt()
@with_jobs
def layers(
    net: Any,
    X: Any,
    *,
    box: Any = None,
    modules: Sequence[str] | None = None,
    channels: Any = "auto",
    directions: int = 128,
    pairs: int = 2000,
    jacobians: int = 16,
    cloud: int = 500,
    zero_below: float = ZERO_BELOW,
    budget: Any = None,
    jobs: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Layers:
    """What each layer does to a cloud of inputs: activity, norms, ranks, widths, angles, distances.

    Parameters
    ----------
    net : Network or torch module
        Of a live torch module, forward hooks catch the outputs of its activation modules and its own (or of those
        named in `modules`); "on" then means a positive value, and nothing is certified.
    X : array_like (n, inputs) or Law
        The inputs; of a law (a distribution of the inputs), 2,000 points are drawn.
    box : tuple, optional
        `(lo, hi)`: units that never switch on it are certified (see `stable_units`, which takes `budget`).
    modules : sequence of str, optional
        Names of submodules of a torch module.
    channels : "auto", None or list
        Channels per hidden layer (None where there are none); None looks at units one by one.
    directions, pairs, jacobians, cloud : int
        Numbers of directions for the mean width, of pairs, of points at which the rank of the Jacobian is computed,
        and of points kept for pictures.
    zero_below : float
        Singular values below this share of the largest count as zero.
    budget : str or Budget, optional
        For `stable_units`: 20,000 regions if not given. A time is for the whole call: where it does not allow all
        rows of `X`, some are chosen at random, and `note` says so.
    jobs : int, optional
        Workers that share the layers, -1 for all cores; each holds the values of a layer. Without a time, the table is
        the same for any number of them.
    rng : None, int, SeedSequence or Generator
    progress : optional

    Returns
    -------
    Layers

    Raises
    ------
    InputError
        If `X` does not fit `net`, or an option does not apply to it.

    Notes
    -----
    Cost: one forward pass and `n d^2` operations per layer of d units: 10,000 points through 64 layers of 100 units
    take a few seconds. Ranks, angles and distances are exact up to rounding for the points at hand; the mean width
    carries a standard error unless the cloud is flat.

    Examples
    --------
    >>> import reluscope as rs
    >>> net = rs.Network([([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])
    >>> table = layers(net, [[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]], rng=0)
    >>> [(row.layer, row.kind, row.units, row.activity) for row in table.rows]
    [(None, 'input', 2, None), (0, 'relu', 2, 0.5), (1, 'output', 1, None)]
    """
    rng, seed = seeded(rng)
    draws = {
        "directions": integer(directions, "directions", low=2),
        "pairs": integer(pairs, "pairs", low=1),
        "jacobians": integer(jacobians, "jacobians", low=0),
        "cloud": integer(cloud, "cloud", low=1),
    }
    zero_below = real(zero_below, "zero_below", low=0.0, high=1.0)
    parse_budget(budget)
    if is_module(net):
        if box is not None:
            raise InputError("box certifies units of a Network; load the module with reluscope.load first")
        return _of_module(net, X, modules, zero_below, draws, rng, seed, progress)
    if not isinstance(net, Network):
        raise InputError(f"net must be a Network or a live torch module, got {describe(net)}; see reluscope.load")
    if modules is not None:
        raise InputError("modules names submodules of a torch module; a Network's layers are all measured")
    rows = X.sample(_LAW_DRAWS, rng) if isinstance(X, Law) else input_rows(net, X)[0]
    if len(rows) < 2:
        raise InputError(f"X must have at least two rows, got {len(rows)}")
    split = _channels(net, channels)
    note = ""
    most = max(2, _MOST_NUMBERS // max(net.widths))
    limit = parse_budget(budget)
    timed = max(2, limit.afford(lambda n: _squares(net, rows[:n]), len(rows), 0.3))
    kept = rows
    if len(rows) > min(most, timed):
        kept = rows[np.sort(rng.choice(len(rows), min(most, timed), replace=False))]
        note = f"layers are wide: {most:,} of {len(rows):,} inputs were used, all of them for activity"
    if timed < min(most, len(rows)):
        note = f"{timed:,} of {len(rows):,} inputs were used: the budget of {limit.seconds:g} s allows no more"
    dimensions = None
    if draws["jacobians"] and net.hidden and max(w * net.n_inputs for w in net.widths[1:-1]) <= _MOST_JACOBIAN:
        chosen = rng.choice(len(kept), min(draws["jacobians"], len(kept)), replace=False)
        dimensions = local_dimensions(net, kept[np.sort(chosen)])
        if len(chosen) < len(rows):
            said = (
                f"rank, rank_max and rank_bound are those at {len(chosen):,} of the {len(rows):,} inputs (jacobians=)"
            )
            note = f"{note}\n{said}" if note else said
    within = None if budget is None else limit.part(0.5)
    stability = None if box is None else stable_units(net, box, X=kept, budget=within, rng=rng)
    shares = _shares(net, rows, most) if len(rows) > most and timed >= most else None
    with blas_threads(max(net.widths)), meter(progress, "layers") as report:
        found = _measure(_stages(net, kept, split), len(net.layers) + 1, zero_below, draws, rng, report, shares)
    return _finished(net, kept, len(rows), found, dimensions, stability, zero_below, seed, note)


def _squares(net: Network, rows: FloatArray) -> None:
    """What `_measure` does to each row, as a measure of its time: a pass, and the products of all units."""
    with blas_threads(max(net.widths)):
        z = rows
        for layer in net.layers:
            z.T @ z
            z = layer.units(layer.affine(z))


def _stages(net: Network, rows: FloatArray, split: list[int | None]) -> Iterator[_Stage]:
    yield _Stage("input", "input", rows, None, None, None, None)
    z = rows
    for k, layer in enumerate(net.hidden):
        h = layer.affine(z)
        units = layer.units
        piece = units.pattern(h)
        z = units(h)
        if units.is_relu:
            active = piece.sum(axis=1, dtype=np.int64)
        else:
            active = np.count_nonzero(units.on(piece)[0], axis=1).astype(np.int64)
        yield _Stage(f"layer {k}", units.describe(), z, piece > 0, units.pieces == 1, active, split[k])
    yield _Stage("output", "output", net.layers[-1].affine(z), None, None, None, None)


@dataclass(frozen=True, eq=False)
class _Found:
    rows: list[dict[str, Any]]
    activity: list[FloatArray | None]
    angles: FloatArray
    ratios: FloatArray
    pca: FloatArray
    coordinates: FloatArray


def _measure(
    stages: Iterator[_Stage],
    count: int,
    zero_below: float,
    draws: dict[str, int],
    rng: np.random.Generator,
    report: Any,
    shares: list[FloatArray] | None,
) -> _Found:
    """One pass over the stages, each measured on its own; the first is the input that distances are compared with."""
    start = next(stages)
    n = len(start.values)
    first = rng.integers(0, n, draws["pairs"])
    second = (first + rng.integers(1, n, draws["pairs"])) % n
    shown = np.sort(rng.choice(n, min(draws["cloud"], n), replace=False))
    base = _pairs(start.values, first, second)[0]
    common = _Common(zero_below, draws, first, second, shown, base, shares)
    # Each stage has a seed of its own, so that it does not matter who measures it.
    seeds = rng.integers(0, 2**63, count + 1).tolist()
    jobs = jobs_at_hand()
    tasks = ((k, stage, seeds[k % len(seeds)]) for k, stage in enumerate(itertools.chain([start], stages)))
    found = []
    for each in run(_measure_stage, tasks, jobs=jobs, shared=(common,), ahead=jobs + 1):
        found.append(each)
        report(len(found), f"{len(found)} of {count} layers")
    rows, activity, pair_angles, pair_ratios, pca, coordinates = zip(*found, strict=True)
    return _Found(
        list(rows), list(activity), np.array(pair_angles), np.array(pair_ratios), np.array(pca), np.array(coordinates)
    )


@dataclass(frozen=True, eq=False)
class _Common:
    """What all stages are measured on."""

    zero_below: float
    draws: dict[str, int]
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    shown: npt.NDArray[np.int64]
    base: FloatArray
    shares: list[FloatArray] | None


def _measure_stage(task: tuple[int, _Stage, int], common: _Common) -> tuple[Any, ...]:
    """The row of a stage, its activity, angles and ratios of the pairs, and the two clouds."""
    k, stage, seed = task
    rng, draws, base, Z = np.random.default_rng(seed), common.draws, common.base, stage.values
    cloud = _channel_cloud(Z, stage.channels, rng)
    spectrum = spectrum_of(cloud, common.zero_below)
    width = mean_width(cloud, directions=draws["directions"], rng=rng, spectrum=spectrum)
    gaps, between = _pairs(Z, common.first, common.second)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(base > 0, gaps / base, np.nan)
    row: dict[str, Any] = {
        "layer": k - 1 if k else None,
        "name": stage.name,
        "kind": stage.kind,
        "units": Z.shape[1],
        "channels": stage.channels,
        "mean_norm": float(row_norms(Z).mean()),
        "stable_rank": spectrum.stable_rank(),
        "stable_rank_uncentred": spectrum.stable_rank(centred=False),
        "participation_ratio": spectrum.participation_ratio,
        "nonzero_eigenvalues": spectrum.rank,
        "mean_width": width.value,
        "mean_width_error": width.error,
        "mean_width_exact": width.exact,
        "distance_factor": _factor(gaps, base),
    }
    row |= _quantiles("angle", between, spread=True) | _quantiles("distance", ratio)
    share = None
    if stage.on is not None:
        given = common.shares[k - 1] if common.shares is not None else stage.on.mean(axis=0)
        share = _by_channel(given, stage.affine, stage.channels)
        row |= _activity_row(share, given, stage.affine)
    if stage.active is not None:
        row |= {"active": float(stage.active.mean()), "active_min": int(stage.active.min())}
    leading = _leading(Z, common.shown, spectrum if cloud is Z else None)
    pick = rng.choice(Z.shape[1], 2, replace=Z.shape[1] < 2)
    return row, share, between, ratio, leading, Z[common.shown][:, pick]


def _pairs(Z: FloatArray, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Distance and angle of each pair of rows, a few pairs at a time so that they stay in cache."""
    size = max(1, (1 << 17) // Z.shape[1])
    gaps, between = np.empty(len(first)), np.empty(len(first))
    for start in range(0, len(first), size):
        part = slice(start, start + size)
        a, b = Z[first[part]], Z[second[part]]
        gaps[part], between[part] = row_norms(a - b), angles(a, b)
    return gaps, between


def _finished(
    net: Network | None,
    X: FloatArray,
    n_points: int,
    found: _Found,
    dimensions: LocalDimensions | None,
    stability: Stability | None,
    zero_below: float,
    seed: int | None,
    note: str,
) -> Layers:
    for k in range(len(found.rows) - 2 if net is not None else 0):
        row = found.rows[k + 1]
        if dimensions is not None:
            row |= {
                "rank": float(dimensions.rank[k].mean()),
                "rank_max": int(dimensions.rank[k].max()),
                "rank_bound": float(dimensions.bound[k].mean()),
                "rank_bound_holds": bool(dimensions.bound_holds[k]),
            }
        if stability is not None:
            state = stability.state[k]
            names = {"certified_on": ON, "certified_off": OFF, "certified_switching": SWITCHES, "undecided": UNDECIDED}
            row |= {name: int((state == value).sum()) for name, value in names.items()}
    return Layers(
        net,
        X.shape[1] if X.ndim == 2 else int(np.prod(X.shape[1:])),
        n_points,
        tuple(LayerRow(**row) for row in found.rows),
        tuple(found.activity),
        found.angles,
        found.ratios,
        found.pca,
        found.coordinates,
        dimensions,
        stability,
        zero_below,
        seed,
        note,
    )


def _of_module(
    module: Any,
    X: Any,
    names: Sequence[str] | None,
    zero_below: float,
    draws: dict[str, int],
    rng: np.random.Generator,
    seed: int | None,
    progress: Any,
) -> Layers:
    inputs = real_array(X, "X")
    if inputs.ndim < 2 or len(inputs) < 2:
        raise InputError(f"X must have at least two rows, one per input, got shape {inputs.shape}")
    stages = caught(module, inputs, names)
    last: FloatArray | None = None  # what the module itself returns, unless that is the last of them already
    if names is None:
        try:
            (_, _, last), *_ = caught(module, inputs, [""])
        except InputError:  # it returns no single tensor
            last = None
        if last is not None and last.shape == stages[-1][2].shape and np.array_equal(last, stages[-1][2]):
            last = None

    def walk() -> Iterator[_Stage]:
        yield _Stage("input", "input", inputs.reshape(len(inputs), -1), None, None, None, None)
        for name, kind, values in stages:
            flat = np.ascontiguousarray(values.reshape(len(values), -1))
            on = flat > 0
            active = on.sum(axis=1, dtype=np.int64)
            yield _Stage(name, kind, flat, on, None, active, _maps(values))
        if last is not None:
            yield _Stage("output", "output", last.reshape(len(last), -1), None, None, None, None)

    if any(len(values) != len(inputs) for _, _, values in stages):
        raise InputError("a chosen module returns another number of rows than X has; name others with modules=[...]")
    with meter(progress, "layers") as report:
        found = _measure(walk(), len(stages) + 1 + (last is not None), zero_below, draws, rng, report, None)
    return _finished(None, inputs, len(inputs), found, None, None, zero_below, seed, "")


def _maps(values: FloatArray) -> int | None:
    """Channels of a batch of images (n, channels, height, width)."""
    return values.shape[1] if values.ndim >= 4 else None


def _channels(net: Network, channels: Any) -> list[int | None]:
    if channels is None:
        return [None] * len(net.hidden)
    if isinstance(channels, str) and channels == "auto":
        return [channels_of(layer) for layer in net.hidden]
    if not isinstance(channels, (list, tuple)) or len(channels) != len(net.hidden):
        raise InputError(
            f'channels must be "auto", None or a list with one entry per hidden layer ({len(net.hidden)}), '
            f"got {describe(channels)}"
        )
    out: list[int | None] = []
    for k, (given, layer) in enumerate(zip(channels, net.hidden, strict=True)):
        count = None if given is None else integer(given, f"channels[{k}]", low=1, high=layer.width)
        if count is not None and layer.width % count:
            raise InputError(f"channels[{k}] must divide the {layer.width} units of layer {k}, got {count}")
        out.append(count)
    return out


def _channel_cloud(Z: FloatArray, channels: int | None, rng: np.random.Generator) -> FloatArray:
    """The cloud whose spectrum is measured: inputs by units, or inputs and positions by channels; thinned if large."""
    if channels is not None:
        n, units = Z.shape
        if n * (units // channels) > _MOST_SPECTRUM_ROWS:
            places = max(1, _MOST_SPECTRUM_ROWS // n)
            some = rng.choice(units // channels, min(places, units // channels), replace=False)
            Z = Z.reshape(n, channels, -1)[:, :, np.sort(some)]
        Z = np.ascontiguousarray(Z.reshape(n, channels, -1).transpose(0, 2, 1).reshape(-1, channels))
    n, d = Z.shape
    most = max(64, int(_MOST_SPECTRUM_WORK / d**2), int((_MOST_SPECTRUM_WORK / d) ** 0.5))
    if n > most:
        return Z[np.sort(rng.choice(n, most, replace=False))]
    return Z


def _by_channel(
    share: FloatArray, affine: npt.NDArray[np.bool_] | None, channels: int | None
) -> npt.NDArray[np.float64]:
    if channels is not None:
        return share.reshape(channels, -1).mean(axis=1)
    return share if affine is None else np.where(affine, np.nan, share)


def _activity_row(share: FloatArray, units: FloatArray, affine: npt.NDArray[np.bool_] | None) -> dict[str, Any]:
    seen = share[np.isfinite(share)]
    plain = units if affine is None else units[~affine]
    if not len(seen):
        return {}
    polarised = ((seen <= POLARISED) | (seen >= 1 - POLARISED)).mean()
    return {
        "activity": float(seen.mean()),
        "always_on": int((plain == 1).sum()),
        "always_off": int((plain == 0).sum()),
        "polarised": float(polarised),
    }


def _shares(net: Network, rows: FloatArray, size: int) -> list[FloatArray]:
    """Share of all inputs with each unit on, in chunks."""
    counts = np.zeros(net.n_units)
    for start in range(0, len(rows), size):
        counts += (net.pattern(rows[start : start + size]) > 0).sum(axis=0)
    counts /= len(rows)
    return [counts[net.offsets[i] : net.offsets[i + 1]] for i in range(len(net.hidden))]


def _factor(gaps: FloatArray, base: FloatArray) -> float | None:
    size = max(float(base.max(initial=0.0)), 1e-300)
    below = float(((base / size) ** 2).mean())
    return float(((gaps / size) ** 2).mean() / below) if below > 0 else None


def _quantiles(name: str, values: FloatArray, spread: bool = False) -> dict[str, Any]:
    good = values[np.isfinite(values)]
    if not len(good):
        return {}
    low, middle, high = np.quantile(good, [0.05, 0.5, 0.95]).tolist()
    out: dict[str, Any] = {f"{name}_low": low, f"{name}_median": middle, f"{name}_high": high}
    if spread:
        out |= {f"{name}_mean": float(good.mean()), f"{name}_sd": float(good.std())}
    return out


def _leading(Z: FloatArray, shown: npt.NDArray[np.intp] | None, spectrum: Spectrum | None) -> FloatArray:
    """The shown points on the two leading principal directions; signs fixed so that the larger tail is positive."""
    cloud = Z[shown]
    if spectrum is not None:
        flat = (cloud - spectrum.mean) @ spectrum.axes[:2].T * (spectrum.centred[:2] > 0)
    else:  # wide: the points' own Gram matrix is small
        apart = cloud - cloud.mean(axis=0)
        size = float(np.abs(apart).max()) or 1.0
        squares, columns = np.linalg.eigh((apart / size) @ (apart / size).T)
        flat = size * columns[:, :-3:-1] * np.sqrt(np.maximum(squares[:-3:-1], 0.0))
    if flat.shape[1] < 2:
        flat = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
    signs = np.where(np.abs(flat.min(axis=0)) > flat.max(axis=0), -1.0, 1.0)
    out: FloatArray = flat * signs
    return out
