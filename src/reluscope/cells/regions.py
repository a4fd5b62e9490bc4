"""Regions: the sets on which a network is affine, with their patterns, linear models and cells.

A region is an activation pattern whose cell has a full-dimensional interior. There are three counts:
`len(regions)` counts patterns; `regions.merge_equal()` joins regions that touch and share one affine map; and
`regions.distinct_maps()` counts affine maps wherever they occur.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from os import PathLike
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, describe, integer, real, real_array
from reluscope._doors import door
from reluscope._files import as_path
from reluscope._lazy import late
from reluscope._text import count, html_table
from reluscope.answer import Answers, Status, Stop
from reluscope.budget import Budget, parse_budget
from reluscope.cells.csr import stacked
from reluscope.cells.domain import box_bounds, half_spaces, law_box, starting_cell
from reluscope.cells.doubt import Doubts
from reluscope.cells.split import Geometry
from reluscope.cells.subdivide import PROBABLE_ERRORS, Batch, Trail, first_labels, subdivide
from reluscope.errors import InputError
from reluscope.inputs import Law, check_law
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.limits import DEFAULT_LIMITS, Limits
from reluscope.network import Network, Pattern, check_network
from reluscope.progress import meter
from reluscope.threads import clean_interrupt
from reluscope.workers import resolve_jobs, sharing

Index = npt.NDArray[np.int64]


_MANY = 1_000_000
"""Regions above which neighbours are looked up one region at a time."""
_MOST_SIDES_SHOWN = 6
_SHOWN, _SHOWN_INPUTS = 10, 6
"""Regions and inputs in the table that notebooks show."""


@dataclass(frozen=True)
class Domain:
    """Where the regions were looked for: a box (or None for the whole space), cut by half-spaces `A x <= b`.

    Attributes
    ----------
    box : (lower, upper) or None
    half_spaces : (A, b) or None
    """

    box: tuple[FloatArray, FloatArray] | None
    half_spaces: tuple[FloatArray, FloatArray] | None

    def contains(self, X: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether each row lies in the (closed) domain.

        Parameters
        ----------
        X : (n, inputs) array

        Returns
        -------
        (n,) array of bool
        """
        X = real_array(X, "X", ndim=2)
        n = X.shape[1]
        for bounded in (self.box, self.half_spaces):
            n = n if bounded is None else bounded[0].shape[-1]
        if X.shape[1] != n:
            raise InputError(f"X must have shape (n, {n}), got {X.shape}")
        inside = np.ones(len(X), dtype=bool)
        if self.box is not None:
            inside &= ((self.box[0] <= X) & (self.box[1] >= X)).all(axis=1)
        if self.half_spaces is not None:
            inside &= (self.half_spaces[1] >= X @ self.half_spaces[0].T).all(axis=1)
        return inside

    def __str__(self) -> str:
        if self.box is None:
            base = "the whole space"
        elif (self.box[0] == self.box[0][0]).all() and (self.box[1] == self.box[1][0]).all():
            base = f"[{self.box[0][0]:g}, {self.box[1][0]:g}]^{len(self.box[0])}"
        elif len(self.box[0]) <= _MOST_SIDES_SHOWN:
            base = " x ".join(f"[{lo:g}, {hi:g}]" for lo, hi in zip(*self.box, strict=True))
        else:
            base = f"a box of {len(self.box[0])} inputs within [{self.box[0].min():g}, {self.box[1].max():g}]"
        return base if self.half_spaces is None else f"{base} cut by {count(len(self.half_spaces[1]), 'half-space')}"


@dataclass(frozen=True, eq=False)
class Region:
    """One region: `y = C x + d` on the cell around `interior`."""

    index: int
    pattern: Pattern
    C: FloatArray
    d: FloatArray
    interior: FloatArray


@dataclass(frozen=True, eq=False)
class Merged:
    """Groups of regions with the same affine map that touch: `group[i]` is the group of region i.

    Attributes
    ----------
    group : (regions,) array
    count : int
        How many groups.
    """

    group: Index
    count: int


@dataclass(frozen=True, eq=False, repr=False)
class Regions:
    """The regions of a network in a domain. Arrays have one row per region.

    Attributes
    ----------
    network, domain
        What was cut, and where.
    pattern : (n, units) array
        The code of each region.
    C, d : (n, outputs, inputs) and (n, outputs) arrays
        The linear models.
    interior : (n, inputs) array
        One point inside each region.
    complete : bool
        Whether every region is here; if not, `reason` says why.
    stopped : str or None
        Which budget or interrupt ended the search early. What was found is here.
    doubt : str or None
        Which parts of cells are missing, or may be, because hyperplanes are closer together than rounding can tell.

    Examples
    --------
    >>> from reluscope import regions
    >>> listed = regions(Network([([[1.0]], [0.0]), ([[2.0]], None)]), (-1, 1))
    >>> len(listed), listed.C.ravel().tolist()
    (2, [0.0, 2.0])
    """

    network: Network
    domain: Domain
    cells: Geometry
    pattern: Pattern
    maps: FloatArray
    stopped: str | None = None
    doubt: str | None = None

    # -- size and rows -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.pattern)

    def __iter__(self) -> Iterator[Region]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Region:
        asked: Any = i
        if isinstance(asked, (slice, list, np.ndarray)):
            raise InputError(
                "regions are taken one at a time, regions[i]; for several use the arrays, as in regions.pattern[2:4], "
                "regions.C[2:4], regions.interior[2:4]"
            )
        i = integer(i, "i", low=-len(self), high=len(self) - 1) % len(self)
        return Region(i, self.pattern[i], self.C[i], self.d[i], self.interior[i])

    @property
    def complete(self) -> bool:
        """Whether every region of the domain is here."""
        return self.reason is None

    @property
    def reason(self) -> str | None:
        """Why regions are or may be missing: `stopped` or `doubt`; None when all are here."""
        return self.stopped or self.doubt

    @property
    def C(self) -> FloatArray:
        """Linear part of the affine map of each region, shape (n, outputs, inputs)."""
        return self.maps[:, :-1, :].transpose(0, 2, 1)

    @property
    def d(self) -> FloatArray:
        """Constant part of the affine map of each region, shape (n, outputs)."""
        return self.maps[:, -1, :]

    @cached_property
    def interior(self) -> FloatArray:
        """A point strictly inside each region, shape (n, inputs)."""
        return self.cells.interior()

    @cached_property
    def volume(self) -> FloatArray:
        """Length, area or volume of each region; `inf` when unbounded."""
        return self.cells.volumes()

    @cached_property
    def inradius(self) -> FloatArray:
        """Radius of the largest ball inside each region (`inf` if there is none); one linear program each."""
        if hasattr(self.cells, "inradius"):
            return self.cells.inradius()
        from reluscope.cells.lp import interior_point

        return np.array([interior_point(*self.half_spaces(i))[1] for i in range(len(self))])

    def vertices(self, i: int) -> FloatArray:
        """Vertices of region i, shape (k, inputs); counter-clockwise in the plane. Unbounded cells: see `rays`.

        Parameters
        ----------
        i : int

        Returns
        -------
        (k, inputs) array
        """
        return self.cells.vertices(self._row(i))

    def rays(self, i: int) -> FloatArray:
        """Extreme directions in which region i is unbounded, shape (k, inputs); no rows when it is bounded.

        Parameters
        ----------
        i : int

        Returns
        -------
        (k, inputs) array
        """
        return self.cells.rays_of(self._row(i))

    def half_spaces(self, i: int) -> tuple[FloatArray, FloatArray]:
        """`(A, b)` with `A x <= b`: the facets of region i, one unit-length row each, none of them redundant.

        Parameters
        ----------
        i : int

        Returns
        -------
        A, b : (facets, inputs) and (facets,) arrays
        """
        from reluscope.cells.facets import facet_rows

        A, b, _ = facet_rows(self, np.array([self._row(i)]))
        return A, b

    def facets(self, i: int) -> list[dict[str, int]]:
        """The facets of region i: which unit's break point (layer, unit, break) or which side of the domain.

        Parameters
        ----------
        i : int

        Returns
        -------
        list of dict
            With the keys `layer`, `unit`, `break` (a unit), `input`, `side` (the box) or `row` (a half-space).
        """
        labels, offsets = self._facets
        i = self._row(i)
        return [describe_label(self.network, int(label)) for label in labels[offsets[i] : offsets[i + 1]]]

    # -- queries -------------------------------------------------------------------------------------------------

    @overload
    def find(self, X: FloatArray) -> Index: ...
    @overload
    def find(self, X: npt.ArrayLike) -> Any: ...
    def find(self, X: npt.ArrayLike) -> Any:
        """Index of the region that holds each row of `X`; -1 outside the domain (or not found before a budget ended).

        A single point, shape (inputs,), gives a single index.

        A row exactly on a boundary follows the tie rule of the network; if the tie names a pattern without interior,
        the answer is -1.

        Parameters
        ----------
        X : (n, inputs) or (inputs,)

        Returns
        -------
        (n,) array of int, or int
        """
        rows = real_array(X, "X", ndim=(1, 2))
        if rows.ndim == 1:
            if len(rows) != self.network.n_inputs:
                raise InputError(
                    f"X must be a point of {count(self.network.n_inputs, 'input')} or rows of points, got {describe(X)}"
                )
            return int(self.find(rows[None])[0])
        found = self._lookup(self.network.pattern(rows))
        found[~self.domain.contains(rows)] = -1
        return found

    def neighbours(self, i: int) -> Index:
        """Indices of the regions across the facets of region i, in the order of `facets`; -1 where there is none.

        Parameters
        ----------
        i : int

        Returns
        -------
        (facets,) array of int
        """
        i = self._row(i)
        if len(self) > _MANY:  # to match all facets takes memory for each
            from reluscope.cells.facets import across_some

            return across_some(self, i, i + 1)
        _, offsets = self._facets
        return self._across[offsets[i] : offsets[i + 1]]

    def adjacency(self) -> npt.NDArray[np.int64]:
        """All pairs (i, j), i < j, of regions that share a facet, in order, shape (pairs, 2)."""
        from reluscope.cells.facets import adjacent_pairs

        return np.concatenate([np.zeros((0, 2), np.int64), *adjacent_pairs(self)])

    def merge_equal(self, agreement: float = 1e-9) -> Merged:
        """Join regions that touch and have the same linear model, up to the share `agreement` of its size.

        Parameters
        ----------
        agreement : float

        Returns
        -------
        Merged
        """
        agreement = real(agreement, "agreement", low=0.0)
        from reluscope.cells.facets import adjacent_pairs

        coo_array = late("scipy.sparse", "coo_array")
        connected_components = late("scipy.sparse.csgraph", "connected_components")

        joined = [np.zeros((0, 2), np.int64)]
        for pairs in adjacent_pairs(self):  # a portion at a time: the maps on both sides of all facets are many
            a, b = self.maps[pairs[:, 0]], self.maps[pairs[:, 1]]
            size = np.maximum(np.abs(a), np.abs(b)).max(axis=(1, 2), initial=0)
            joined.append(pairs[np.abs(a - b).max(axis=(1, 2), initial=0) <= agreement * size])
        same, n = np.concatenate(joined), len(self)
        graph = coo_array((np.ones(len(same)), (same[:, 0], same[:, 1])), shape=(n, n))
        count, group = connected_components(graph, directed=False)
        return Merged(group.astype(np.int64), int(count))

    def distinct_maps(self, digits: int = 9) -> int:
        """How many different affine maps occur, compared after rounding to `digits` significant digits.

        Parameters
        ----------
        digits : int

        Returns
        -------
        int
        """
        digits = integer(digits, "digits", low=0, high=17)
        flat = self.maps.reshape(len(self), -1)
        scale = 10.0 ** np.floor(np.log10(np.abs(flat).max(initial=1e-300)))
        return len(np.unique(np.round(flat / scale, digits), axis=0))

    def masses(
        self,
        law: Law,
        *,
        checkpoint: str | PathLike[str] | None = None,
        tolerance: float = 1e-2,
        relative: float | None = None,
        level: float = DEFAULT_LEVEL,
        budget: Any = None,
        jobs: Any = None,
        rng: Any = None,
        progress: Any = None,
    ) -> Answers:
        """Probability of each region under `law`: exact in up to three dimensions (six for uniform laws).

        Above, quasi-Monte Carlo: each interval holds with probability `level`, and the half-widths of all regions
        together are at most `tolerance`, so regions that hold next to nothing cost next to nothing (where all bounds
        together are below a thousandth of the tolerance, the value is 0 and the bracket the bound). With `relative`,
        each half-width is at most that share of its region's mass instead. A budget (`"60s"`, `"10000 regions"`) or
        Ctrl-C ends the work early: `status` says so, and unmeasured regions keep the bracket of a half-space bound. Of
        exact masses Ctrl-C keeps those that were measured; the others share what is left of 1.

        Regions of the whole space are measured under Gaussians and their mixtures: in up to three dimensions those
        that the law reaches are found once more and matched by their patterns. For other laws the regions must have
        been looked for where the law lives; `regions(net, law=law)` does that.

        Parameters
        ----------
        law : Law
        checkpoint : path, optional
            A file in which the masses are kept, every half minute and at the end, and from which the same call goes on
            (with the same `rng`, or none). A file about other regions or another law is refused.
        tolerance : float
            For the sum of the half-widths.
        relative : float, optional
            For each half-width instead, as a share of its mass.
        level : float
        budget : optional
            A time (`"60s"`) or a number of regions.
        jobs : int, optional
            Workers that share the regions, -1 for all cores; the same masses for any number of them.
        rng : optional
            None, an int, a SeedSequence or a Generator.
        progress : optional
            Where to report progress.

        Returns
        -------
        Answers

        Raises
        ------
        InputError
            If a region is unbounded, or the law does not fit the network.
        """
        with sharing(jobs):
            return door("Regions.masses")(
                self,
                law,
                tolerance=tolerance,
                relative=relative,
                level=level,
                rng=rng,
                budget=budget,
                checkpoint=checkpoint,
                progress=progress,
            )

    # -- out -----------------------------------------------------------------------------------------------------

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """A picture of the regions of a network with two inputs.

        Parameters
        ----------
        ax : Axes, optional
        **options
            Those of `plot_regions`, such as `colour="mass"`.

        Returns
        -------
        Axes
        """
        return door("Regions.plot")(self, ax, **options)

    def to_dict(self, masses: Answers | npt.ArrayLike | None = None) -> dict[str, Any]:
        """Columns by name: the interior point, the affine map, the volume (one and two dimensions) and the pattern.

        With `masses` (of `Regions.masses`, or one number per region) also those, and their brackets if they have any.

        Parameters
        ----------
        masses : Answers or (n,), optional

        Returns
        -------
        dict of columns
        """
        columns: dict[str, Any] = {"region": np.arange(len(self))}
        columns |= {f"x{k}": self.interior[:, k] for k in range(self.network.n_inputs)}
        for o in range(self.network.n_outputs):
            columns |= {f"C{o}_{k}": self.C[:, o, k] for k in range(self.network.n_inputs)}
            columns[f"d{o}"] = self.d[:, o]
        if self.network.n_inputs <= 2:
            columns["volume"] = self.volume
        if masses is not None:
            columns |= self._mass_columns(masses)
        columns["pattern"] = ["".join(map(str, row)) for row in self.pattern.tolist()]
        return columns

    def to_pandas(self, masses: Answers | npt.ArrayLike | None = None) -> Any:
        """The columns of `to_dict` as a pandas DataFrame.

        Parameters
        ----------
        masses : Answers or (n,), optional

        Returns
        -------
        DataFrame
        """
        from reluscope._extras import require

        return require("pandas", "pandas").DataFrame(self.to_dict(masses))

    def to_networkx(self, masses: Answers | npt.ArrayLike | None = None) -> Any:
        """The regions as a graph of networkx: a node for each, an edge for each facet that two share.

        Nodes carry `pattern`, `C`, `d`, `interior`, and `mass` with `masses`; edges the `layer`, `unit` and `break` of
        the hyperplane between.

        Parameters
        ----------
        masses : Answers or (n,), optional

        Returns
        -------
        networkx.Graph
        """
        from reluscope._extras import require

        graph = require("networkx", "networkx").Graph()
        held = None if masses is None else self._mass_columns(masses)["mass"]
        for i in range(len(self)):
            more = {} if held is None else {"mass": float(held[i])}
            graph.add_node(i, pattern=self.pattern[i], C=self.C[i], d=self.d[i], interior=self.interior[i], **more)
        labels, offsets = self._facets
        one = np.repeat(np.arange(len(self)), np.diff(offsets))
        for at in np.flatnonzero(self._across > one):
            graph.add_edge(int(one[at]), int(self._across[at]), **describe_label(self.network, int(labels[at])))
        return graph

    def save(self, path: str | PathLike[str]) -> None:
        """Write the regions, with their network, to an `.npz` file; `Regions.load` reads it back.

        Parameters
        ----------
        path : path
        """
        from reluscope.cells.storage import save_regions

        save_regions(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Regions:
        """Read regions written by `save`, or the folder of `regions(out=...)`.

        The arrays of a folder are mapped into memory, not read. A search that has not ended leaves a folder that can be
        read too: `reason` says that regions are missing.

        Parameters
        ----------
        path : path

        Returns
        -------
        Regions

        Raises
        ------
        InputError
            If the file is not one of regions.
        """
        from reluscope.cells.storage import load_regions

        if as_path(path).is_dir():
            from reluscope.cells.folder import load_folder

            return load_folder(path)
        return load_regions(path)

    def __repr__(self) -> str:
        state = "" if self.complete else f", incomplete: {self.reason}"
        return f"Regions({count(len(self), 'region')} of {self.network!r} in {self.domain}{state})"

    def _repr_html_(self) -> str:
        first = self.maps[:_SHOWN, :, 0]
        inputs = min(self.network.n_inputs, _SHOWN_INPUTS)
        columns: dict[str, Any] = {"region": list(range(len(first))), "constant": first[:, -1].tolist()}
        columns |= {f"x[{i}]": first[:, i].tolist() for i in range(inputs)}
        more = f"; the first {inputs} of {self.network.n_inputs} inputs" if inputs < self.network.n_inputs else ""
        what = f"linear model of y[0] on the first {count(len(first), 'region')}{more}"
        return f"<p>{escape(repr(self))}</p>{html_table(columns, _SHOWN)}<small>{what}</small>"

    def _mass_columns(self, masses: Answers | npt.ArrayLike) -> dict[str, FloatArray]:
        value = real_array(masses.value if isinstance(masses, Answers) else masses, "masses", ndim=1)
        if len(value) != len(self):
            raise InputError(f"masses must have one entry per region ({len(self)}), got {len(value)}")
        if not isinstance(masses, Answers):
            return {"mass": value}
        return {"mass": value, "mass_lower": masses.lower, "mass_upper": masses.upper}

    # -- inside --------------------------------------------------------------------------------------------------

    def _row(self, i: int) -> int:
        return integer(i, "i", low=-len(self), high=len(self) - 1) % len(self)

    @cached_property
    def _facets(self) -> tuple[npt.NDArray[np.int32], Index]:
        return self.cells.facet_labels()

    @cached_property
    def _hash_weights(self) -> npt.NDArray[np.uint64]:
        # Fixed odd multipliers: a pattern's hash is a sum, so flipping one unit changes it by one term.
        drawn = np.random.default_rng(20260101).integers(0, 2**63, self.network.n_units, dtype=np.uint64)
        return 2 * drawn + 1

    def _hash(self, pattern: Pattern) -> npt.NDArray[np.uint64]:
        total = np.zeros(len(pattern), dtype=np.uint64)
        rows = max(1, (1 << 20) // max(pattern.shape[1], 1))  # products of 8 MB at a time
        for start in range(0, len(pattern), rows):
            part = pattern[start : start + rows].astype(np.uint64)
            total[start : start + rows] = (part * self._hash_weights).sum(axis=1, dtype=np.uint64)
        return total

    @cached_property
    def _sorted_hashes(self) -> tuple[npt.NDArray[np.uint64], Index]:
        hashes = self._hash(self.pattern)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    def _lookup(self, pattern: Pattern, wanted: npt.NDArray[np.uint64] | None = None) -> Index:
        """The regions with these patterns, whose hashes are `wanted`; -1 where there is none."""
        hashes, order = self._sorted_hashes
        wanted = self._hash(pattern) if wanted is None else wanted
        found = np.full(len(pattern), -1, dtype=np.int64)
        place = np.empty(len(wanted), dtype=np.int64)
        by_size = np.argsort(wanted)  # in order they meet what is in the cache: three times as fast among millions
        place[by_size] = np.searchsorted(hashes, wanted[by_size])
        open_ = np.flatnonzero((place < len(hashes)) & (hashes[np.minimum(place, len(hashes) - 1)] == wanted))
        while len(open_):  # more than one round only when two patterns share a 64-bit hash
            candidate = order[place[open_]]
            hit = (self.pattern[candidate] == pattern[open_]).all(axis=1)
            found[open_[hit]] = candidate[hit]
            open_ = open_[~hit]
            place[open_] += 1
            inside = place[open_] < len(hashes)
            open_ = open_[inside]
            open_ = open_[hashes[place[open_]] == wanted[open_]]
        return found

    @cached_property
    def _across(self) -> Index:
        """For every facet of every region, the region on its other side (-1: none)."""
        from reluscope.cells.facets import across_facets

        return across_facets(self)


def describe_label(net: Network, label: int) -> dict[str, int]:
    """What a facet label stands for: a hidden unit's break point, or a side of the domain.

    `{"layer", "unit", "break"}` with layer and unit counted from 0 within the layer, or `{"input", "side"}` for a box
    side (side 0 lower, 1 upper), or `{"row"}` for a half-space of the domain.
    """
    if label < 0:
        k = -1 - label
        return {"input": k // 2, "side": k % 2} if k < 2 * net.n_inputs else {"row": k - 2 * net.n_inputs}
    starts = first_labels(net)
    layer = int(np.searchsorted(starts, label, side="right")) - 1
    steps = net.layers[layer].units.breaks.shape[1]
    unit, step = divmod(label - starts[layer], steps)
    return {"layer": layer, "unit": unit, "break": step}


def stream_regions(
    net: Network,
    box: Any = None,
    *,
    polytope: Any = None,
    law: Law | None = None,
    geometry: str = "auto",
    budget: Any = None,
    jobs: Any = None,
    progress: Any = None,
) -> Iterator[Regions]:
    """The regions in batches, without holding all of them in memory.

    Parameters
    ----------
    net, box, polytope, law, geometry, budget, jobs, progress
        Those of `regions`.

    Yields
    ------
    Regions
        A batch of regions. When the budget ends, the batch at hand is the last one and its `stopped` says why; the
        `doubt` of the last batch speaks for all.

    Raises
    ------
    InputError
        As `regions` does.

    Examples
    --------
    >>> net = Network([([[1.0], [1.0]], [0.0, -1.0]), ([[1.0, 1.0]], None)])
    >>> sum(len(batch) for batch in stream_regions(net, (-2, 2)))
    3
    """
    return region_batches(
        net,
        box,
        polytope=polytope,
        law=law,
        geometry=geometry,
        budget=budget,
        jobs=resolve_jobs(jobs),
        progress=progress,
        settle=True,
    )


def region_batches(
    net: Network,
    box: Any = None,
    *,
    polytope: Any = None,
    law: Law | None = None,
    geometry: str = "auto",
    budget: Any = None,
    jobs: int | None = None,
    progress: Any = None,
    settle: bool = False,
    kept: list[Regions] | None = None,
) -> Iterator[Regions]:
    """What `stream_regions` gives; without `settle` nobody asks whether parts thinner than rounding are missing.

    What was found and not yet given out when Ctrl-C came goes to `kept`.
    """
    net, domain = _domain(net, box, polytope, law)
    workers = resolve_jobs(jobs)
    if parse_budget(budget).seconds < float("inf"):
        _warm(net.n_inputs, domain, geometry)
    limit: Budget = parse_budget(budget)  # the clock starts here
    found = 0

    def over(visited: int) -> bool:
        # Without a region there is no answer: the first ones may take a little longer.
        return visited > 0 and limit.elapsed() >= (limit.seconds if found else 1.2 * limit.seconds + 0.7)

    doubts = Doubts(net, domain.box, domain.half_spaces) if settle else None
    last: Regions | None = None  # one batch is held back: the last one says why there are no more
    try:
        with clean_interrupt(), meter(progress, "regions") as report:
            for leaves in leaves_of(net, domain, geometry, over, doubts, workers):
                if last is not None:
                    given, last = last, None
                    yield given
                last = _regions(net, domain, leaves)
                found += len(last)
                report(found, f"{found:,} found")
                spent = limit.spent(found)
                if spent is not None:
                    extra = int(max(found - limit.regions, 0))
                    doubt = doubts.text() if doubts else None
                    yield replace(first_regions(last, len(last) - extra), stopped=spent, doubt=doubt)
                    return
    except KeyboardInterrupt:
        if kept is not None and last is not None:
            kept.append(last)
        raise
    spent = limit.spent(found)
    if last is not None:
        yield replace(last, stopped=spent, doubt=doubts.text() if doubts else None)
    elif spent is not None:  # in the middle of a layer
        yield no_regions(net, domain, geometry, spent)


@clean_interrupt()
def regions(
    net: Network,
    box: Any = None,
    *,
    polytope: Any = None,
    law: Law | None = None,
    geometry: str = "auto",
    limits: Limits = DEFAULT_LIMITS,
    out: str | PathLike[str] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    budget: Any = None,
    jobs: Any = None,
    progress: Any = None,
) -> Regions:
    """All regions of a network: the maximal sets on which it is affine, each with its linear model.

    Parameters
    ----------
    net : Network
        The network.
    box : tuple, optional
        `(lower, upper)`, numbers or one entry per input.
    polytope : tuple or Polytope, optional
        `(A, b)`: only where `A x <= b`, inside the box if there is one.
    law : Law, optional
        Where this input distribution lives, instead of a box. With none of the three, the whole space.
    geometry : {"auto", "interval", "polygon", "vertex", "polytope"}
        How cells are stored. "auto" follows the dimension: intervals, polygons, cells with vertices, half-spaces with
        linear programs.
    budget : str or float, optional
        `"60s"`, `"10000 regions"`: ends the search early. So does Ctrl-C. What was found by then is kept.
    jobs : int, optional
        Workers that share the search, -1 for all cores; the regions and their order are the same for any number.
    out : path, optional
        A folder that the regions go to as they are found, for lists larger than memory: the arrays of the result are
        files mapped into memory. A search that was stopped, by whatever, is gone on with by the same call: seconds
        of the budget begin anew, a count is of all regions in the folder. `Regions.load` reads the folder.
    checkpoint : path, optional
        The same, with the result in memory.
    progress : optional
        Whether to show how far the work is.
    limits : Limits
        `limits.region_bytes` of memory end the search early too; `out` and `stream_regions` need little memory.

    Returns
    -------
    Regions
        `complete` says whether these are all, otherwise `reason` says why not.

    Raises
    ------
    InputError
        If `net` is no network, or the box, polytope or law does not fit it.

    Notes
    -----
    Cost: linear in the number of regions. Guarantee: where hyperplanes meet exactly, or come closer together than
    double precision can tell (about 1e-13 of the size of the box), whole numbers decide; regions too thin for floats
    are left out, counted in `doubt`, and `complete` is False. See `reluscope.cells.subdivide` and
    `reluscope.cells.doubt`.

    Examples
    --------
    >>> net = Network([([[1.0], [1.0]], [0.0, -1.0]), ([[1.0, 1.0]], None)])
    >>> found = regions(net, (-2, 2), progress=None)
    >>> len(found), found.pattern.tolist(), found.C[:, 0, 0].tolist()
    (3, [[0, 0], [1, 0], [1, 1]], [0.0, 1.0, 2.0])
    """
    if not isinstance(limits, Limits):
        raise InputError(f"limits must be a reluscope.Limits record, got {describe(limits)}")
    if out is not None or checkpoint is not None:
        return _kept(net, box, polytope, law, geometry, limits, budget, jobs, out, checkpoint, progress)
    return _listed(net, box, polytope, law, geometry, limits, budget, jobs, progress, partly=True)


@clean_interrupt()
def uninterrupted(
    net: Network,
    box: Any = None,
    *,
    polytope: Any = None,
    geometry: str = "auto",
    budget: Any = None,
    progress: Any = None,
) -> Regions:
    """What `regions` gives, for callers that go on with it: Ctrl-C raises `KeyboardInterrupt` and keeps nothing.

    To put together what was found takes up to half as long as the search: whoever pressed Ctrl-C does not wait for it.
    """
    return _listed(net, box, polytope, None, geometry, DEFAULT_LIMITS, budget, None, progress, partly=False)


def _listed(
    net: Network,
    box: Any,
    polytope: Any,
    law: Law | None,
    geometry: str,
    limits: Limits,
    budget: Any,
    jobs: Any,
    progress: Any,
    *,
    partly: bool,
) -> Regions:
    """`regions` in memory; `partly`: after Ctrl-C, those found so far."""
    batches: list[Regions] = []
    late: list[Regions] = []
    stopped = None
    held = 0
    try:
        for batch in region_batches(
            net,
            box,
            polytope=polytope,
            law=law,
            geometry=geometry,
            budget=budget,
            jobs=resolve_jobs(jobs),
            progress=progress,
            settle=True,
            kept=late,
        ):
            if held > limits.region_bytes:
                stopped = (
                    f"memory limit of {limits.region_bytes / 2**20:,.4g} MB reached; "
                    "out= or stream_regions go on in little memory, limits=Limits(region_bytes=...) allows more"
                )
                break
            batches.append(batch)
            stopped = batch.stopped
            held += _bytes(batch)
    except KeyboardInterrupt:
        stopped = Stop("interrupted", Status.INTERRUPTED)
        batches += late
        if not (partly and batches):
            raise
    first = batches[0]
    stopped = stopped or too_large(net, first.domain.box)
    if len(batches) == 1:
        return replace(first, stopped=stopped)
    with sharing(jobs):
        return Regions(
            first.network,
            first.domain,
            type(first.cells).join([b.cells for b in batches]),
            stacked([b.pattern for b in batches]),
            stacked([b.maps for b in batches]),
            stopped,
            batches[-1].doubt,
        )


def _kept(
    net: Network,
    box: Any,
    polytope: Any,
    law: Law | None,
    geometry: str,
    limits: Limits,
    budget: Any,
    jobs: Any,
    out: Any,
    checkpoint: Any,
    progress: Any,
) -> Regions:
    """`regions` with a folder."""
    from reluscope.cells.folder import stored_regions

    if out is not None and checkpoint is not None:
        raise InputError("give either out or checkpoint: both name the folder that the search is kept in")
    net, domain = _domain(net, box, polytope, law)
    workers = resolve_jobs(jobs)
    if parse_budget(budget).seconds < float("inf"):
        _warm(net.n_inputs, domain, geometry)
    name, path = ("checkpoint", checkpoint) if out is None else ("out", out)
    found = stored_regions(
        net,
        domain,
        as_path(path, name),
        geometry=geometry,
        budget=parse_budget(budget),
        jobs=workers,
        progress=progress,
    )
    if out is None and _bytes(found) <= limits.region_bytes:
        cells = found.cells.take(np.arange(len(found)))
        found = replace(found, cells=cells, pattern=found.pattern.copy(), maps=found.maps.copy())
    return found


_RESOLVED = 1e-3
"""How far, as a share of its offset, rounding may move a first-layer unit before a box counts as too large."""


def too_large(net: Network, box: tuple[FloatArray, FloatArray] | None) -> str | None:
    """Words for a box so large that rounding at its corners hides the pieces in the middle, else None."""
    if box is None or not net.hidden:
        return None
    first = net.layers[0]
    reach = np.maximum(np.abs(box[0]), np.abs(box[1]))
    away = first.bias != 0
    if not away.any():
        return None
    with np.errstate(over="ignore"):
        shift = PROBABLE_ERRORS * EPS * (abs(first.weight) @ reach)[away]
    if float(np.median(shift / np.abs(first.bias[away]))) <= _RESOLVED:
        return None
    return (
        f"the box reaches to {reach.max():.3g}, where rounding is as large as the pieces near the origin: some are "
        "missed; take a smaller box"
    )


def _bytes(batch: Regions) -> int:
    """Memory held by the arrays of a batch."""
    arrays = [batch.pattern, batch.maps, *vars(batch.cells).values()]
    return sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))


def _warm(inputs: int, domain: Domain, geometry: str) -> None:
    """Compile the kernels of the geometry on a tiny network, so that a budget in seconds pays for the search alone."""
    layers = [(np.ones((2, inputs)), np.zeros(2)), (np.ones((2, 2)), np.zeros(2)), (np.ones((1, 2)), np.zeros(1))]
    box = None if domain.box is None else (np.full(inputs, -1.0), np.full(inputs, 1.0))
    for _ in subdivide(Network(layers), starting_cell(inputs, box=box, geometry=geometry)):
        pass


def leaves_of(
    net: Network,
    domain: Domain,
    geometry: str,
    stop: Callable[[int], bool],
    doubts: Doubts | None,
    jobs: int,
    trail: Trail | None = None,
) -> Iterator[Batch]:
    """The traversal with the geometry that fits the dimension and, between the two, what the first cells look like."""

    def walk(chosen: str) -> Generator[Batch, None, None]:
        start = starting_cell(net.n_inputs, box=domain.box, polytope=domain.half_spaces, geometry=chosen)
        return subdivide(net, start, stop=stop, doubts=doubts, jobs=jobs, trail=trail)

    batches = walk(geometry)
    if geometry != "auto" or net.n_inputs not in _CONTESTED or domain.box is None:
        yield from batches
        return
    first = next(batches, None)
    if first is None:
        return
    if len(first.cells.corners()[0]) > _MANY_VERTICES * len(first.cells):
        batches.close()  # its workers stop
        if doubts is not None:
            doubts.clear()
        if trail is not None:
            trail.path = ()
        yield from walk("polytope")
    else:
        yield first
        yield from batches


_CONTESTED = (4, 5)
"""Numbers of inputs for which cells with vertices are tried first and left if there are too many vertices."""

_MANY_VERTICES = 60
"""Vertices per cell above which half-spaces are faster (measured in 5 to 7 dimensions)."""


def _regions(net: Network, domain: Domain, leaves: Batch) -> Regions:
    return Regions(net, domain, leaves.cells, leaves.pattern, leaves.maps)


def no_regions(net: Network, domain: Domain, geometry: str, stopped: str) -> Regions:
    """No regions yet."""
    start = starting_cell(net.n_inputs, box=domain.box, polytope=domain.half_spaces, geometry=geometry)
    pattern, maps = np.zeros((0, net.n_units), np.uint8), np.zeros((0, net.n_inputs + 1, net.n_outputs))
    return Regions(net, domain, start.part(0, 0), pattern, maps, stopped)


def first_regions(batch: Regions, n: int) -> Regions:
    """The first n regions."""
    if n >= len(batch):
        return batch
    return replace(batch, cells=batch.cells.part(0, n), pattern=batch.pattern[:n], maps=batch.maps[:n])


def _domain(net: Any, box: Any, polytope: Any, law: Law | None) -> tuple[Network, Domain]:
    check_network(net)
    if box is not None and hasattr(box, "sample"):
        raise InputError("box must be a pair (lower, upper), got an input law: write regions(net, law=law)")
    if law is not None:
        if box is not None or polytope is not None:
            raise InputError("give either law or box / polytope, not both")
        box = law_box(check_law(law, net))
    bounds = None if box is None else box_bounds(box, net.n_inputs)
    rows = None if polytope is None else half_spaces(polytope, net.n_inputs)
    return net, Domain(bounds, rows)
