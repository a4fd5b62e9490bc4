"""`recover`: a function from queries, and the records it returns."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, flag, integer, real, real_array, seeded
from reluscope._text import table
from reluscope.activations import Units, activation, leaky_relu
from reluscope.budget import parse_budget
from reluscope.cells.domain import box_bounds
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL, binomial
from reluscope.network import Network, check_network
from reluscope.progress import meter
from reluscope.recovery.align import Alignment, align
from reluscope.recovery.exact import Exact, recover_exact
from reluscope.recovery.labels import NEAR, Boundary, Found, find_boundary
from reluscope.recovery.oracle import BlackBox, Oracle, QueryLimitError
from reluscope.recovery.refine import Model
from reluscope.recovery.samples import fit_samples
from reluscope.recovery.trunk import Stage
from reluscope.recovery.view import View, look, not_continuous
from reluscope.recovery.walk import MOST_INPUTS, walk_regions
from reluscope.threads import clean_interrupt

METHODS = ("exact", "regions", "samples", "labels")
_CHECK_POINTS = 10_000
_FEW_INPUTS = 3
"""Inputs up to which walking the regions is the thing to try where weights cannot be told."""

_ROUNDS = 20
"""How often points that fail a check are fed back into the walk."""
_NEARLY_ALL = 0.9
"""Share of samples that fit from which it is told where the others are."""
_FEWEST = 2500
"""Queries for the first look and a first sample."""


@dataclass(frozen=True)
class Sampled:
    """Agreement at fresh uniform points of the box: how many, the largest error, the share within `max_difference`.

    A sample proves nothing about the points it missed; `compare` gives certified statements when the network is known.

    Attributes
    ----------
    points : int
    largest, share, max_difference : float
    """

    points: int
    largest: float
    share: float
    max_difference: float

    def __str__(self) -> str:
        within = f"{self.share:.2%} within {self.max_difference:.1g}"
        return f"largest error {self.largest:.2g} at {self.points:,} fresh points ({within})"


@dataclass(frozen=True, eq=False, repr=False)
class Recovered:
    """What `recover` returns. As a bool: whether the method reached its goal.

    Attributes
    ----------
    method : str
    box : tuple of ndarray
    result : Network, Surrogate, LocalFit, Boundary or None
        By method "exact", "regions", "samples" and "labels"; callable on rows but for the last. None when nothing could
        be built.
    complete : bool
        Whether the method reached its own goal, and no fresh point disagrees. Not a proof: `statement` says how much of
        the box can still differ, or that no fresh points were asked for.
    statement : tuple of str
        In words, what was recovered and what was not.
    sampled : Sampled or None
        Agreement at fresh points.
    queries : dict
        By purpose.
    total_queries : int
        Without the final check.
    seconds : float
    restarts : int
    noise : float
        Typical error of one answer of the oracle.
    layers : tuple of int
        "exact": units recovered per hidden layer.
    seed : int or None
        Repeats the recovery as `rng=`.
    rays : int or None
        "exact", two inputs, no biases: the rays from 0 along which the function bends. Then `result` is a network with
        the same rays, in a form of its own. None where the layers are those of the network.
    """

    method: str
    box: tuple[FloatArray, FloatArray]
    result: Any
    complete: bool
    statement: tuple[str, ...]
    sampled: Sampled | None
    queries: dict[str, int]
    total_queries: int
    seconds: float
    restarts: int
    noise: float
    layers: tuple[int, ...]
    seed: int | None
    rays: int | None = None

    def __bool__(self) -> bool:
        """Whether the method reached its goal."""
        return self.complete

    @property
    def network(self) -> Network:
        """The recovered network ("exact" only)."""
        if not isinstance(self.result, Network):
            raise InputError(f"method {self.method!r} gives {describe(self.result)}, not a network; see .result")
        return self.result

    def __call__(self, X: npt.ArrayLike) -> FloatArray:
        """The recovered function at the rows of `X`."""
        if self.result is None:
            raise InputError("nothing was recovered: " + " ".join(self.statement))
        if isinstance(self.result, Boundary):
            raise InputError("labels give a boundary, not values; see .result")
        return np.asarray(self.result(X))

    def compare(self, known: Network, *, certify: bool = True, budget: Any = None) -> Comparison:
        """Compare the recovered network with the known one (method "exact" only).

        Parameters
        ----------
        known : Network
        certify : bool
            Whether to compare region by region when the parameters give no bound (up to 6 inputs).
        budget : str or Budget, optional
            30 s if not given

        Returns
        -------
        Comparison
        """
        parse_budget(budget)
        return _compare(self, check_network(known, "known"), flag(certify, "certify"), budget)

    def to_dict(self) -> dict[str, Any]:
        """The facts by name, fit for JSON."""
        checked = None if self.sampled is None else dict(self.sampled.__dict__)
        return {
            "method": self.method,
            "complete": self.complete,
            "layers": list(self.layers),
            "statement": list(self.statement),
            "sampled": checked,
            "queries": dict(self.queries),
            "total_queries": self.total_queries,
            "seconds": self.seconds,
            "restarts": self.restarts,
            "noise": self.noise,
            "seed": self.seed,
            "rays": self.rays,
        }

    def __repr__(self) -> str:
        state = "complete" if self.complete else "incomplete"
        if self.rays is not None:
            state += f"{' as a function' if self.complete else ''}, a fan of {self.rays} rays"
        elif self.complete and isinstance(self.result, Network):
            linear = [i for i, layer in enumerate(self.result.hidden) if (layer.units.pieces == 1).any()]
            state += f" as a function, {_open_words(linear)}" if linear else ""
        return f"Recovered({self.method}: {self.result!r}, {state}, {self.total_queries:,} queries)"

    def __str__(self) -> str:
        rows = [{"queries for": k, "count": v} for k, v in self.queries.items()]
        lines = [*self.statement, "", table(rows), "", f"{self.seconds:.1f} s, {self.restarts} restarts"]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Comparison:
    """A recovered network beside the known one: parameters, samples and certificates, kept apart.

    `parameter_error`: largest difference after permutation and positive scaling (None if units are missing). `sampled`:
    largest output difference at uniform points and corners. `certified`: a sound bound on the largest output
    difference on the box, with `how` it was obtained: from the parameters, or from every region of the common
    refinement.

    Attributes
    ----------
    parameter_error : float or None
    sampled : float
    certified : float or None
    how : str
    alignment : Alignment
    """

    parameter_error: float | None
    sampled: float
    certified: float | None
    how: str
    alignment: Alignment

    def __str__(self) -> str:
        known = "not compared" if self.parameter_error is None else f"{self.parameter_error:.1e} after alignment"
        bound = self.how if self.certified is None else f"at most {self.certified:.1e} on the whole box ({self.how})"
        return (
            f"parameters: {known}\nsampled output error: {self.sampled:.1e} at {4 * _CHECK_POINTS:,} points\n"
            f"certified output error: {bound}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The facts by name, fit for JSON."""
        return {
            "parameter_error": self.parameter_error,
            "sampled": self.sampled,
            "certified": self.certified,
            "how": self.how,
            "missing": list(self.alignment.missing),
        }


@clean_interrupt()
def recover(
    oracle: Oracle | Network | BlackBox,
    box: Any,
    *,
    samples: int = 200,
    overlap: float = 1.0,
    points: int | None = None,
    most_chords: int = 800,
    check: int = _CHECK_POINTS,
    method: str = "exact",
    budget: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Recovered:
    """Recover a network, or its linear models, from queries in a box.

    Parameters
    ----------
    oracle : Oracle, Network or callable
        A `Network` is used only to answer queries; a callable needs a box with one entry per input.
    box : tuple
        `(lo, hi)`; all queries stay in it.
    samples : int
        "samples": number of samples.
    overlap : float
        "samples": radius of a ball over the distance to a near neighbour.
    points : int, optional
        "samples": points of the box at which the objective is taken, one query each. If not given, 8 for each term of
        the fit, at least 4,096 and at most 16,384.
    most_chords : int
        "exact": bounds the search.
    check : int
        Fresh points at which the result is checked; their queries are counted apart.
    method : {"exact", "regions", "samples", "labels"}
        "exact": the weights of a ReLU network, up to permutation and positive scaling of its units, and with them
        depth and widths. "regions": the linear models, by walking from region to region (up to 6 inputs). "samples":
        linear models at `samples` points and the convex fit of their localised sum on the box, with and without
        interaction terms, beside baselines. "labels": of an oracle that gives labels only, the facets of the decision
        boundary (`recovery.Boundary`); nothing else shows in labels.
    budget : str or Budget, optional
        Such as "60s". The search ends with what is known by then; so it does at the oracle's limit on queries.
    rng : None, int, SeedSequence or Generator
    progress : optional

    Returns
    -------
    Recovered

    Raises
    ------
    InputError
        If the method does not apply to the oracle, or the oracle allows fewer than 2,500 queries.

    Notes
    -----
    Guarantee: none by itself; `sampled` reports the error at fresh points, and `compare` certifies when the network
    is known. `complete` means that the goal was reached and all fresh points agree within the stated error; with 99 %
    confidence at most `1 - 0.01^(1 / check)` of the box then differs by more (10,000 points: 0.05 %). "exact"
    takes about 35,000 to 120,000 queries, 28,000 to 45,000 of them checks, and some seconds for some dozens of
    units; one hidden layer on many inputs takes about four gradients a unit (784-32-1: 131,000 queries, 5 CPU seconds).
    Units that never switch in the box look affine and are folded into the rest. Several layers without biases on two
    inputs give the function, not the weights: a network with the same `rays`. A smooth oracle (tanh) is
    recognised and reported; with a noisy one, `statement` says what could still be recovered.

    Examples
    --------
    >>> import reluscope as rs
    >>> net = rs.Network([([[1.0], [-1.0]], [-0.5, -0.25]), ([[1.0, 2.0]], [0.0])])
    >>> found = recover(rs.Oracle(net), ([-1.0], [1.0]), method="regions", rng=0)
    >>> found.complete, len(found.result)
    (True, 3)
    """
    choice(method, "method", METHODS)
    oracle = _oracle(oracle, box)
    lower, upper = box_bounds(box, oracle.n_inputs)
    samples, check = integer(samples, "samples", low=2), integer(check, "check", low=0)
    most_chords = integer(most_chords, "most_chords", low=1)
    overlap = real(overlap, "overlap", low=0.0, open_=True)
    points = None if points is None else integer(points, "points", low=2, high=1 << 20)
    if method == "regions" and oracle.n_inputs > MOST_INPUTS:
        raise InputError(
            f"method 'regions' walks in up to {MOST_INPUTS} inputs, the oracle has {oracle.n_inputs}; use 'exact'"
        )
    if method == "samples" and oracle.n_outputs != 1:
        raise InputError(f"method 'samples' takes one output, the oracle has {oracle.n_outputs}; wrap one column of it")
    if oracle.left < _FEWEST:
        raise InputError(f"the oracle allows {oracle.left:,.0f} more queries; give it a limit of at least {_FEWEST:,}")
    limit, (rng, seed) = parse_budget(budget), seeded(rng)
    started, before = time.perf_counter(), oracle.queries
    result: Any
    rays: int | None = None
    with meter(progress, "recover") as report:
        if method == "labels":
            facets = find_boundary(oracle, lower, upper, rng, limit, report)
            total = oracle.queries - before
            return Recovered(
                method, (lower, upper), facets.boundary, facets.complete, _label_words(facets),
                Sampled(facets.fresh, facets.largest, facets.share, NEAR) if facets.fresh else None,
                {"labels": total}, total, time.perf_counter() - started, 0, 0.0, (), seed,
            )  # fmt: skip
        view = look(oracle, lower, upper, rng)
        text = not_continuous(view)
        looked = oracle.queries - before
        if text is None and view.smooth and method != "samples":
            text = (
                "the oracle is not piecewise affine: its second differences shrink with the square of the step, at "
                "every point tried"
            )
        if text is not None:
            return Recovered(
                method, (lower, upper), None, False, (text, *_hint(view)), None, {"first look": looked}, looked,
                time.perf_counter() - started, 0, view.noise, (), seed,
            )  # fmt: skip
        if method == "exact":
            exact: Exact = recover_exact(view, rng, most_chords, limit, report)
            result, complete, lines = _network(exact.model, view), exact.complete, _exact_words(exact, view)
            queries, restarts, layers = exact.queries, exact.restarts, tuple(k for k, _ in exact.layers)
            rays = exact.rays
        elif method == "regions":
            walk = walk_regions(view, rng, limit, report)
            for _ in range(_ROUNDS):  # points that fail a check go back into the walk
                failed = _failed(oracle, walk.surrogate, lower, upper, view, min(check, oracle.left), rng)
                if not len(failed) or walk.stopped is not None or walk.unresolved > 50 + len(walk.surrogate):
                    break
                walk = walk.again(failed[:200], rng, limit, report)
            result, restarts, layers = walk.surrogate, 0, ()
            complete = walk.stopped is None and walk.covered == 1.0
            lines = [f"{len(result):,} linear models cover {walk.covered:.2%} of uniform points of the box"]
            if walk.unresolved:
                lines.append(f"{walk.unresolved} places could not be resolved (regions too thin for the noise)")
            if walk.stopped:
                lines.append(f"stopped early: {walk.stopped}")
            queries = {"walk": oracle.queries - before - looked}
        else:
            result = fit_samples(view, samples, overlap, points, limit, rng)
            complete, restarts, layers = True, 0, ()
            lines = [
                f"{len(result)} linear models at {samples} samples",
                f"fit on the box at {len(result.points):,} points: relative error "
                f"{_relative(result.objective, result.spread)}, {_relative(result.pair_objective, result.spread)} with "
                f"{len(result.pairs):,} interaction terms (1 is the error of a constant)",
                f"Hessian: {result.hessian}",
                f"Hessian with interactions: {result.pair_hessian}",
            ]
            if result.pair_hessian.terms > len(result.points) / 4:
                lines.append("few points for so many interaction terms: a quarter of them ended the fit early")
            if view.smooth:
                lines.append("the oracle is smooth, not piecewise affine: the linear models are tangents")
            queries = {"samples": oracle.queries - before - looked}
        total = oracle.queries - before
        seconds = time.perf_counter() - started
        sampled = _check(oracle, result, lower, upper, view, min(check, oracle.left), rng)
    if not complete and method != "samples":
        lines += _hint(view)
    if not complete and method == "exact" and oracle.n_inputs <= _FEW_INPUTS:
        lines.append("with so few inputs method 'regions' often gives the function, as linear models without units")
    if oracle.link != "none":
        lines.append(f"what is recovered are the scores before the {oracle.link}")
    if sampled is not None:
        lines.append(str(sampled))
    if method != "samples" and complete:
        lines.append(_what_was_checked(sampled))
    if method != "samples" and complete and sampled is not None and sampled.share < 1.0:
        complete = False
        if method == "exact":
            lines[0] = "in" + lines[0]
            lines.append("some fresh points disagree: a unit that matters in a corner of the box is missing")
        else:
            lines.append("incomplete: some fresh points disagree, so some regions are cut too little")
    return Recovered(
        method, (lower, upper), result, complete, tuple(lines), sampled, {"first look": looked, **queries}, total,
        seconds, restarts, view.noise, layers, seed, rays,
    )  # fmt: skip


def _what_was_checked(sampled: Sampled | None) -> str:
    """What the fresh points say about the rest of the box."""
    if sampled is None:
        return "not checked at fresh points"
    wrong = round((1.0 - sampled.share) * sampled.points)
    _, most = binomial(wrong, sampled.points, side="upper")
    return (
        f"with {DEFAULT_LEVEL:.0%} confidence at most {most:.2g} of the box differs by more: a unit that matters only "
        "there may be missing"
    )


def _hint(view: View) -> tuple[str, ...]:
    """What to try where answers look like probabilities."""
    if not view.probable or view.oracle.link != "none":
        return ()
    return (
        "all answers lie between 0 and 1: if they are probabilities, declare that with rs.Oracle(..., link='sigmoid') "
        "or link='softmax'",
    )


def _relative(squared: float, spread: float) -> str:
    return f"{np.sqrt(squared) / spread:.3g}" if spread > 0 else "none (f is constant)"


def _oracle(oracle: Oracle | Network | BlackBox, box: Any) -> Oracle:
    if isinstance(oracle, Oracle):
        return oracle
    if isinstance(oracle, Network):
        return Oracle(oracle)
    if callable(oracle) and isinstance(box, (tuple, list)) and len(box) == 2:
        sides = [real_array(side, "box", ndim=(0, 1)) for side in box]
        size = max(side.size if side.ndim else 0 for side in sides)
        if size:
            return Oracle(oracle, size)
    raise InputError(
        f"oracle must be an Oracle, a Network, or a callable with a box of one entry per input, got {describe(oracle)}"
    )


def _check(
    oracle: Oracle,
    result: Any,
    lower: FloatArray,
    upper: FloatArray,
    view: View,
    points: float,
    rng: np.random.Generator,
) -> Sampled | None:
    if not points:
        return None
    try:
        _, gap = _gaps(oracle, result, lower, upper, points, rng)
    except QueryLimitError:
        return None
    most = view.allowed
    finite = gap[np.isfinite(gap)]
    return Sampled(len(gap), float(finite.max(initial=0.0)), float((gap <= most).mean()), most)


def _gaps(
    oracle: Oracle, result: Any, lower: FloatArray, upper: FloatArray, points: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Fresh points, and the error of the result at each (infinite where it says nothing)."""
    X = rng.uniform(lower, upper, (int(points), oracle.n_inputs))
    Y = oracle(X)
    gap = np.abs(result(X).reshape(Y.shape) - Y).max(axis=1)
    return X, np.where(np.isnan(gap), np.inf, gap)


def _failed(
    oracle: Oracle,
    result: Any,
    lower: FloatArray,
    upper: FloatArray,
    view: View,
    points: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Fresh points at which the result is wrong; none if no queries are left to look."""
    if not points:
        return np.zeros((0, len(lower)))
    try:
        X, gap = _gaps(oracle, result, lower, upper, points, rng)
    except QueryLimitError:
        return np.zeros((0, len(lower)))
    return X[gap > view.allowed]


def _network(model: Model, view: View) -> Network:
    """The model in the box's own coordinates: u = (x - centre) / half."""
    plain = activation("identity")
    layers: list[Any] = []
    for stage in model.trunk.stages:
        bent = leaky_relu(stage.slope) if stage.slope else activation("relu")
        units = Units.of([bent if bend else plain for bend in stage.bends])
        layers.append((stage.weight, stage.bias, bent if stage.bends.all() else units))
    layers.append((model.rows[:, :-1], model.rows[:, -1]))
    weight, bias, *rest = layers[0]
    weight = weight / view.half
    layers[0] = (weight, bias - weight @ view.centre, *rest)
    return Network(layers, name="recovered")


def _label_words(found: Found) -> tuple[str, ...]:
    """What labels told, and what they cannot tell."""
    if len(found.labels) < 2:
        return ("incomplete: one label only at all points tried, so there is no boundary to find",)
    state = "complete" if found.complete else f"incomplete ({found.stopped})"
    lines = [
        f"{state}: {len(found.boundary):,} facets of the boundary between {len(found.labels)} labels",
        f"{found.share:.2%} of the last {found.fresh:,} fresh boundary points lie on them (largest distance "
        f"{found.largest:.1e}, in the box scaled to [-1, 1]); a facet that no point met is missed",
        "labels alone do not tell scores, nor anything of the network away from this boundary: no weights",
    ]
    if found.unresolved:
        lines.append(f"at {found.unresolved:,} boundary points (edges, slivers) no plane could be measured")
    return tuple(lines)


def _exact_words(found: Exact, view: View) -> list[str]:
    widths = "-".join(str(k) for k, _ in found.layers) or "none"
    lines = []
    if found.rays is not None:
        state = "complete as a function on the box" if found.complete else f"incomplete ({found.stopped})"
        lines.append(f"{state}: a fan of {found.rays} rays from 0, linear in between; hidden layers {widths}")
        lines.append(
            "without biases all surfaces in the plane are rays from 0, and a ray says too little about the rows behind "
            "it: the layers are not those of the network, but others with the same rays"
        )
    elif found.complete:
        stages = found.model.trunk.stages
        open_layers = [i for i, stage in enumerate(stages) if stage.carries]
        state = "complete" if not open_layers else f"complete as a function on the box, {_open_words(open_layers)}"
        lines.append(
            f"{state}: hidden layers {widths}; {found.critical:,} critical points, {found.left_over} left unexplained"
        )
        leaky = [(i, stage.slope) for i, stage in enumerate(stages) if stage.slope]
        if leaky:
            lines.append("leaky units: " + ", ".join(f"layer {i} has slope {slope:.6g} below 0" for i, slope in leaky))
        lines += [_not_told(i, stages[i], found.layers[i][1]) for i in open_layers]
    else:
        lines.append(f"incomplete ({found.stopped}): hidden layers so far: {widths}")
        if _NEARLY_ALL < found.share < 1.0:
            x = np.array2string(view.centre + view.half * found.worst, precision=3, threshold=8, edgeitems=3)
            lines.append(f"they fit {found.share:.2%} of the samples; most is missed, {found.residual:.1e}, at x = {x}")
        if found.critical:
            explained = f"{1 - found.left_over / found.critical:.1%} of {found.critical:,} critical points"
            lines.append(f"they explain {explained}")
        else:
            lines.append("no critical point stands out of the noise; what is returned is the best affine fit")
            if found.residual > 100 * view.noise:
                lines.append(
                    f"it misses by up to {found.residual:.1e}, far more than the noise: the oracle may be smooth, with "
                    "bends too slight to distinguish from noise"
                )
    if view.relative > 1e-12:
        lines.append(
            f"answers carry noise of about {view.noise:.1e} (spread {view.scale:.1e}); nothing finer can be recovered"
        )
    return lines


def _open_words(layers: list[int]) -> str:
    return f"weights open in layer{'s' if len(layers) > 1 else ''} " + ", ".join(map(str, layers))


def _not_told(i: int, stage: Stage, settled: bool) -> str:
    """Which units of layer i are not those of the network, and why values on the box cannot tell more."""
    n, k = stage.n_units, len(stage.bias) - stage.n_units
    which = f"unit {n}" if k == 1 else f"units {n} to {n + k - 1}"
    s = "s" if k == 1 else ""
    if settled:
        return (
            f"layer {i}: {which}, linear (identity), stand{s} for units that are on in the whole box. There such a "
            "unit is affine: nothing bends, so its own row cannot be told apart from the affine part of the layers "
            "around it. The other units of the layer are those of the network, but one that hardly ever switches may "
            "be turned round"
        )
    return (
        f"layer {i}: the surfaces of its {n} ReLUs are those of the network, the sides on which they are on may not "
        f"be: relu(-h) = relu(h) - h, and h is affine. {which.capitalize()}, linear (identity), take{s} up the affine "
        "part that is left. Values on the box do not tell the two apart where a unit is on everywhere (it adds an "
        "affine part of its own) or where many units feed few"
    )


def _compare(found: Recovered, known: Network, certify: bool, budget: Any) -> Comparison:
    check_network(known, "known")
    net = found.network
    if (known.n_inputs, known.n_outputs) != (net.n_inputs, net.n_outputs):
        raise InputError(f"known maps R^{known.n_inputs} to R^{known.n_outputs}, the recovered network {net!r}")
    lower, upper = found.box
    draws = np.random.default_rng(20260201).uniform(0, 1, (4 * _CHECK_POINTS, net.n_inputs))
    draws[::4] = np.round(draws[::4])
    X = lower + draws * (upper - lower)
    sampled = float(np.abs(net(X) - known(X)).max())
    matched = align(known, net, found.box)
    certified, how = matched.bound, "bound from the aligned parameters"
    if certified is None:
        how = f"none: {matched.note}"
        if certify and net.n_inputs <= MOST_INPUTS:
            from reluscope.cells.compare import equivalent

            verdict = equivalent(
                known, net, found.box, max_difference=max(1e-9, 10 * sampled), budget=parse_budget(budget, "30s")
            )
            if np.isfinite(verdict.bound):
                certified = verdict.bound
                how = "every region of the common refinement" if verdict.cells else "bound from the parameters"
            else:
                how += f"; comparing region by region did not end ({verdict.stopped})"
    return Comparison(matched.parameter_error, sampled, certified, how, matched)
