"""Probability of the regions of a network, and of any polytope, under any input law."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, real, real_array, seeded
from reluscope._files import as_path
from reluscope._text import count, in_dimensions
from reluscope.answer import Answer, Answers, Status, status_of
from reluscope.budget import Budget, parse_budget
from reluscope.cells.domain import clip, half_spaces, starting_cell
from reluscope.cells.facets import facet_rows
from reluscope.cells.interval import Intervals
from reluscope.cells.polygon import Polygons
from reluscope.cells.vertex import VertexCells
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL, binomial
from reluscope.measure.checkpoint import MASSES, Checkpoint, keeping
from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS, MOST_VOLUME_DIMENSIONS, all_exact
from reluscope.measure.regions.enumeration import enumerate_law
from reluscope.measure.regions.masses import (
    added,
    exact,
    gaussian_masses,
    scaled,
    uniform_masses,
    unmeasured,
)
from reluscope.measure.regions.polytopes import gaussian_mass, given
from reluscope.progress import Report, meter
from reluscope.threads import clean_interrupt

if TYPE_CHECKING:
    from reluscope.cells.regions import Regions
    from reluscope.inputs import Component, Gaussian, Law


@clean_interrupt()
def mass(
    A: Any,
    b: Any,
    law: Law | None = None,
    *,
    relative: float = 1e-3,
    level: float = DEFAULT_LEVEL,
    rng: Any = None,
) -> Answer:
    """`P(A x <= b)` for `x` from any law.

    Parameters
    ----------
    A, b : array_like
        Shapes (rows, inputs) and (rows,), or one number for all rows. `mass(net.polytope(pattern), law)` takes the
        inequalities of a pattern as they come.
    law : Law
        Distribution of the inputs.
    relative : float
        Half-width of an estimate, relative to its value.
    level : float
        Confidence level of an estimate.
    rng : optional
        None, an int, a SeedSequence or a Generator.

    Returns
    -------
    Answer

    Raises
    ------
    InputError
        If rows and law do not fit, naming the argument.

    Notes
    -----
    The law is reduced to the directions the rows can see. Exact (closed form or quadrature, with a bound on rounding)
    when at most three remain, for uniform laws in up to six dimensions by volume, and for particles by counting;
    otherwise quasi-Monte Carlo: `level` interval of relative half-width `relative`, or sampling for uniform laws.

    Examples
    --------
    >>> from reluscope import Gaussian, mass
    >>> round(mass([[1.0, 1.0]], [0.0], Gaussian([0.0, 0.0])).value, 6)
    0.5
    """
    from reluscope.inputs import check_law, standard
    from reluscope.network import Network, Polytope

    if isinstance(A, Polytope):
        A, b, law = A.A, A.b, b if law is None else law
    law = check_law(law)
    real(relative, "relative", low=0.0, high=1.0, open_=True)
    real(level, "level", low=0.0, high=1.0, open_=True)
    rng, seed = seeded(rng)
    b = real_array(b, "b", ndim=(0, 1), finite=False)
    A = real_array(A, "A")
    if np.size(A) and np.any(np.equal(b, -np.inf)):
        return Answer(0.0, 0.0, 0.0, "exact", method="a row that nothing satisfies")
    rows, bounds = half_spaces((A, b), law.n, "A, b") if np.size(A) else (np.zeros((0, law.n)), np.zeros(0))
    if not len(rows):
        return Answer(1.0, 1.0, 1.0, "exact", method="no rows: the whole space")
    if law.pushed is not None:
        return _mass_of_function(rows, bounds, law, level, rng, seed)
    components = standard(law, Network([(rows, -bounds)]))
    each = _share_doubt(level, len(components))
    parts = [scaled(_component_mass(c, relative, each, rng), c.weight) for c in components]
    total = added(parts)
    return Answer(
        float(total.value[0]),
        float(total.lower[0]),
        float(min(total.upper[0], 1.0)),
        total.guarantee,
        total.level,
        f"{count(len(parts), 'component')} in {in_dimensions(c.r for c in components)}",
        seed=seed if total.guarantee == "confidence" else None,
    )


def _mass_of_function(
    rows: FloatArray, bounds: FloatArray, law: Law, level: float, rng: np.random.Generator, seed: int | None
) -> Answer:
    """`P(A x <= b)` for a law that is a function of another one: the region where as many ReLUs are all off."""
    from reluscope.inputs import own_pattern, standard
    from reluscope.network import Network

    net = Network([(rows, -bounds), (np.ones((1, len(rows))), None)])
    components = standard(law, net)
    method = f"{count(len(components), 'component')} in {in_dimensions(c.r for c in components)}"
    if not all_exact(components):
        found = _counted(lambda n: law.sample(n, rng), rows, bounds, level)
        ends = float(found.lower[0]), float(found.upper[0])
        return Answer(float(found.value[0]), *ends, "confidence", level, f"{_DRAWS:,} draws", seed=seed)
    value, lower, upper = 0.0, 0.0, 0.0
    for part in enumerate_law(net, law):
        inside = ~own_pattern(net, part.regions.pattern).any(axis=1)
        own = scaled(part.masses, part.component.weight)
        value, lower, upper = (
            total + float(side[inside].sum())
            for total, side in ((value, own.value), (lower, own.lower), (upper, own.upper))
        )
    return Answer(value, min(lower, value), min(max(upper, value), 1.0), "exact", method=method)


def _share_doubt(level: float, parts: int) -> float:
    """The confidence each of several parts needs so that all hold together with the one asked for (union bound)."""
    return 1.0 - (1.0 - level) / max(parts, 1)


def _component_mass(component: Component, relative: float, level: float, rng: np.random.Generator) -> Answers:
    """Mass of `network(u) <= 0` (an affine network) under one component."""
    first = component.network.layers[0]
    A, b = first.dense(), -first.bias
    if component.kind == "point":
        assert component.points is not None and component.point_weights is not None
        inside = np.asarray((component.points @ A.T <= b).all(axis=1))
        value = np.array([component.point_weights[inside].sum()])
        return exact(value, len(inside) * EPS * value)
    if component.r == 0:
        # The rows are constant on the component: it is inside or outside as a whole.
        return exact(np.array([float((b >= 0).all())]), np.zeros(1))
    A, b = A[:, : component.r], b
    if component.kind == "uniform":
        return _uniform_mass(component, A, b, level, rng)
    restriction = component.inequalities()
    both = np.concatenate([A, restriction[0]]), np.concatenate([b, restriction[1]])
    joint = gaussian_mass(*both, relative, level, rng)
    if component.kind == "gaussian":
        return joint
    if component.log_mass is not None:
        return given(joint, exact(np.exp([component.log_mass]), 1e-12 * np.exp([component.log_mass])))
    return given(joint, gaussian_mass(*restriction, relative, level, rng))


def _uniform_mass(
    component: Component, A: FloatArray, b: FloatArray, level: float, rng: np.random.Generator
) -> Answers:
    lower, upper = component.lower, component.upper
    assert lower is not None and upper is not None
    norm = np.linalg.norm(A, axis=1)
    if (b[norm == 0] < 0).any():
        return exact(np.zeros(1), np.zeros(1))
    A, b = A[norm > 0] / norm[norm > 0, None], b[norm > 0] / norm[norm > 0]
    if component.r <= MOST_VOLUME_DIMENSIONS:
        try:
            cell = clip(starting_cell(component.r, box=(lower, upper)), A, b)
        except InputError:  # no interior
            return exact(np.zeros(1), np.zeros(1))
        return uniform_masses(cell, float(np.prod(upper - lower)))
    return _counted(lambda n: lower + (upper - lower) * rng.random((n, component.r)), A, b, level)


_DRAWS = 1 << 20

_BEYOND = 1e-300
"""More than a Gaussian has where its cells are not looked for."""


def _counted(draw: Any, A: FloatArray, b: FloatArray, level: float) -> Answers:
    """Share of draws inside, with the exact binomial (Clopper-Pearson) interval."""
    hits, chunk = 0, 1 << 15
    for _ in range(0, _DRAWS, chunk):
        hits += int((draw(chunk) @ A.T <= b).all(axis=1).sum())
    low, high = binomial(hits, _DRAWS, level)
    return Answers(np.array([hits / _DRAWS]), np.array([low]), np.array([high]), "confidence", level)


class _Options(NamedTuple):
    """How the masses of regions are to be estimated where they are not exact."""

    tolerance: float
    relative: float | None
    level: float
    rng: np.random.Generator
    budget: Budget
    report: Report


def region_masses(
    regions: Regions,
    law: Law,
    *,
    tolerance: float,
    relative: float | None,
    level: float,
    rng: Any,
    budget: Any = None,
    checkpoint: Any = None,
    progress: Any = None,
) -> Answers:
    """See `Regions.masses`."""
    from reluscope.inputs import known_law

    known_law(law, regions.network)
    real(tolerance, "tolerance", low=0.0, high=1.0, open_=True)
    if relative is not None:
        real(relative, "relative", low=0.0, high=1.0, open_=True)
    real(level, "level", low=0.0, high=1.0, open_=True)
    if checkpoint is not None:
        as_path(checkpoint, "checkpoint")
        question = _question(regions, law, (tolerance, relative, level))
        with keeping(checkpoint, MASSES, question) as kept:
            assert kept is not None
            rng = _same_seed(kept, rng)
            return region_masses(
                regions,
                law,
                tolerance=tolerance,
                relative=relative,
                level=level,
                rng=rng,
                budget=budget,
                progress=progress,
            )
    rng, seed = seeded(rng)
    parse_budget(budget)
    if law.atoms is not None:
        points, weights = law.atoms
        place = regions.find(points)
        counted: FloatArray = np.zeros(len(regions))
        np.add.at(counted, place[place >= 0], weights[place >= 0])
        return exact(counted, len(points) * EPS * counted)
    if law.pushed is not None:
        found = _masses_by_pattern(regions, law, level, rng, parse_budget(budget), progress)
        return replace(found, seed=seed if found.guarantee == "confidence" else None)
    gaussians = law.gaussians
    if gaussians:
        _warm(regions)
        with meter(progress, "masses") as report:
            level = _share_doubt(level, len(gaussians))
            options = _Options(tolerance, relative, level, rng, parse_budget(budget), report)
            found = _of_mixture(len(regions), gaussians, lambda k, g: _gaussian_regions(regions, g, options))
            return replace(found, seed=seed if found.guarantee == "confidence" else None)
    if law.is_mixture:
        shares = [(w, part) for w, part in law.components if w > 0]
        each = {"tolerance": tolerance, "relative": relative, "level": _share_doubt(level, len(shares)), "rng": rng}
        limit = parse_budget(budget)
        found = _of_mixture(
            len(regions),
            shares,
            lambda k, part: region_masses(regions, part, **each, budget=limit.part(1.0 / (len(shares) - k))),
        )
        return replace(found, seed=seed if found.guarantee == "confidence" else None)
    _inside(regions, law)
    if law.unrestricted is not law:  # a Gaussian given its box
        ((_, gaussian),) = law.unrestricted.gaussians
        accuracy = relative if relative is not None else tolerance
        condition = mass(*box_rows(law), gaussian, relative=accuracy, level=level, rng=rng)
        bracket = [np.full(1, x) for x in (condition.value, condition.lower, condition.upper)]
        whole = Answers(bracket[0], bracket[1], bracket[2], condition.guarantee, condition.level)
        _warm(regions)
        with meter(progress, "masses") as report:
            share = max(tolerance * condition.value, 1e-300)  # of the box's mass
            options = _Options(share, relative, level, rng, parse_budget(budget), report)
            found = given(_gaussian_regions(regions, gaussian, options), whole)
            return replace(found, seed=seed if found.guarantee == "confidence" else None)
    lower, upper = law.support()
    if (upper <= lower).any():
        raise InputError("a uniform law with fixed inputs has no volume: drop those inputs from the network first")
    if regions.network.n_inputs > MOST_VOLUME_DIMENSIONS:
        return replace(_counted_regions(regions, law, level, rng), seed=seed)
    with meter(progress, "masses") as report:
        return uniform_masses(regions.cells, float(np.prod(upper - lower)), report)


def _of_mixture(n: int, shares: Sequence[tuple[float, Any]], measure: Callable[[int, Any], Answers]) -> Answers:
    """Masses of n regions by the components of a law; after Ctrl-C nothing is known of those that come later."""
    parts: list[Answers] = []
    for k, (weight, component) in enumerate(shares):
        if parts and parts[-1].status is Status.INTERRUPTED:
            parts.append(unmeasured(n, weight, 0, n))
            continue
        try:
            parts.append(scaled(measure(k, component), weight))
        except KeyboardInterrupt:
            if not parts:
                raise
            parts.append(unmeasured(n, weight, 0, n))
    return added(parts)


def _question(regions: Regions, law: Law, asked: tuple[Any, ...]) -> dict[str, str]:
    """Digests of what is measured: a checkpoint about anything else is refused."""
    found = hashlib.sha256()
    for layer in regions.network.layers:
        for array in (layer.dense(), layer.bias, layer.units.breaks, layer.units.slopes, layer.units.intercepts):
            found.update(np.ascontiguousarray(array).tobytes())
    network = found.hexdigest()
    found = hashlib.sha256()
    step = max(1, (1 << 24) // max(regions.network.n_units, 1))
    for i in range(0, len(regions), step):
        found.update(np.ascontiguousarray(regions.pattern[i : i + step]).tobytes())
    for pair in (regions.domain.box, regions.domain.half_spaces):
        for array in pair or ():
            found.update(np.ascontiguousarray(array).tobytes())
    try:
        text = json.dumps(law.to_dict(), sort_keys=True)
    except (AttributeError, TypeError, NotImplementedError) as error:
        raise InputError("checkpoint= needs a law that plain data can hold, such as those of reluscope") from error
    return {
        "network": network,
        "set of regions": found.hexdigest(),
        "law": hashlib.sha256(text.encode()).hexdigest(),
        "tolerance, relative or level": repr(asked),
    }


def _same_seed(kept: Checkpoint, rng: Any) -> int:
    """The seed of the call that the file is from, which a call without `rng` goes on with."""
    seed = seeded(rng)[1]
    if seed is None:
        raise InputError("rng must be None or a whole number with checkpoint=, so that the same call can go on")
    if kept.seed is None or not kept.states:
        kept.seed = seed
        kept.save()
    elif rng is not None and kept.seed != seed:
        raise InputError(
            f"checkpoint {kept.path.name} is about another rng than this call; ask with the same one again, or give "
            "the name of a new file"
        )
    return kept.seed


def _counted_regions(regions: Regions, law: Law, level: float, rng: np.random.Generator) -> Answers:
    """Shares of draws in each region, each with its exact binomial (Clopper-Pearson) interval."""
    hits, chunk = np.zeros(len(regions), np.int64), 1 << 15
    for _ in range(0, _DRAWS, chunk):
        place = regions.find(law.sample(chunk, rng))
        hits += np.bincount(place[place >= 0], minlength=len(regions))
    low, high = binomial(hits, _DRAWS, level)
    return Answers(hits / _DRAWS, low, high, "confidence", level, f"{_DRAWS:,} draws")


def _masses_by_pattern(
    regions: Regions, law: Law, level: float, rng: np.random.Generator, limit: Budget, progress: Any
) -> Answers:
    """Masses by pattern: the law is enumerated where that is exact, else its draws are counted.

    For laws that are functions of another one, and for regions that reach to infinity.
    """
    from reluscope.inputs import own_pattern, standard

    net, box, own = regions.network, regions.domain.box, law.far_box()
    if regions.domain.half_spaces is not None or (
        box is not None and ((box[0] > own[0]).any() or (box[1] < own[1]).any())
    ):
        raise InputError("regions do not hold all of this law; look for them with reluscope.regions(net, law=law)")
    place = {key: i for i, key in enumerate(net.key(regions.pattern).tolist())}

    def places(pattern: Any) -> npt.NDArray[np.int64]:
        keys, inverse = np.unique(net.key(own_pattern(net, pattern)), return_inverse=True)
        return np.array([place.get(k, -1) for k in keys.tolist()], np.int64)[inverse]

    n = len(regions)
    if all_exact(standard(law, net)):
        total = np.zeros((3, n))
        late = None
        for part in enumerate_law(net, law, budget=limit, progress=progress):
            mass = scaled(part.masses, part.component.weight)
            at = places(part.regions.pattern)
            for row, side in zip(total, (mass.value, mass.lower, mass.upper), strict=True):
                np.add.at(row, at[at >= 0], side[at >= 0])
            if part.stopped is not None:
                late = part.stopped
                total[2] += part.component.weight * max(0.0, 1.0 - float(part.masses.lower.sum()))
        kind = "exact" if late is None else "sound"
        value, lower, upper = total
        upper = np.maximum(upper, _BEYOND)  # a region that begins where no cell is looked for
        return Answers(value, lower, np.minimum(upper, 1.0), kind, note=late or "", status=status_of(late))
    hits, chunk = np.zeros(n, np.int64), 1 << 15
    for _ in range(0, _DRAWS, chunk):
        at = places(net.pattern(law.sample(chunk, rng)))
        np.add.at(hits, at[at >= 0], 1)
    low, high = binomial(hits, _DRAWS, level)
    return Answers(hits / _DRAWS, low, high, "confidence", level, f"{_DRAWS:,} draws")


def box_rows(law: Law) -> tuple[FloatArray, FloatArray]:
    """The finite sides of the law's support as rows `A x <= b`; inputs that are fixed have none."""
    low, high = law.support()
    eye = np.eye(law.n)
    A, b = np.concatenate([eye, -eye]), np.concatenate([high, -low])
    keep = np.isfinite(b) & np.tile(low < high, 2)
    return A[keep], b[keep]


def _inside(regions: Regions, law: Law) -> None:
    """A conditioned law is only measured on regions inside its own box."""
    box, own = regions.domain.box, law.support()
    slack = [1e-12 * np.where(np.isfinite(side), np.abs(side), 0.0) for side in own]
    if box is None or (box[0] < own[0] - sum(slack)).any() or (box[1] > own[1] + sum(slack)).any():
        raise InputError("regions reach beyond the box of the law; look for them with reluscope.regions(net, law=law)")


def _warm(regions: Regions) -> None:
    """Compile what will be needed before a budget's clock starts."""
    if regions.network.n_inputs > MOST_EXACT_DIMENSIONS:
        from reluscope.measure.polytope import polytope_masses

        polytope_masses(np.eye(2), np.ones(2), relative=0.5, rng=0)


def _gaussian_regions(regions: Regions, law: Gaussian, options: _Options) -> Answers:
    n = regions.network.n_inputs
    L = law.factor.push(np.eye(law.factor.k)).T
    square = L.shape == (n, n) and np.linalg.cond(L) < 1e8
    if n <= MOST_EXACT_DIMENSIONS and square:
        cells = regions.cells
        if isinstance(cells, Intervals):
            ends = np.stack([cells.low, cells.high])
            with np.errstate(invalid="ignore"):
                ends = np.sort((ends - law.mean[0]) / L[0, 0], axis=0)
            return gaussian_masses(replace(cells, low=ends[0], high=ends[1]))
        if not isinstance(cells, (Polygons, VertexCells)):  # half-spaces: cells that reach to infinity
            return _masses_by_pattern(regions, law, options.level, options.rng, options.budget, None)
        turned = n == 2 and np.linalg.det(L) < 0

        def place(part: Any) -> Any:  # some at a time: there may be more than memory should hold twice
            points = np.linalg.solve(L, (part.points - law.mean).T).T
            if turned:
                points = points * np.array([1.0, -1.0])  # keep polygons counter-clockwise: the law is symmetric
            return replace(part, points=np.ascontiguousarray(points))

        return gaussian_masses(cells, options.report, place)
    from reluscope.measure.polytope import measure_together

    def rows_of(cells: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int64]]:
        A, b, offsets = facet_rows(regions, cells)
        return np.ascontiguousarray(A @ L), b - A @ law.mean, offsets

    return measure_together(rows_of, len(regions), **options._asdict())
