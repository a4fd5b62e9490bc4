"""`recover`: the one door, and the records it returns."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, generator, integer, real, real_array
from reluscope._text import table
from reluscope.activations import Units, activation
from reluscope.budget import parse_budget
from reluscope.cells.domain import box_bounds
from reluscope.errors import InputError
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.recovery.align import Alignment, align
from reluscope.recovery.exact import Exact, recover_exact
from reluscope.recovery.oracle import Oracle, QueryLimitError
from reluscope.recovery.pieces import fit_pieces
from reluscope.recovery.refine import Model
from reluscope.recovery.view import View, look
from reluscope.recovery.walk import MOST_INPUTS, walk_regions

METHODS = ("exact", "regions", "pieces")
_CHECK_POINTS = 10_000
_FEWEST = 2500
"""Queries for the first look and a first sample."""


@dataclass(frozen=True)
class Sampled:
    """Agreement at fresh uniform points of the box: how many, the largest error, and the share within `tolerance`.

    A sample proves nothing about the points it missed; `compare` gives certified statements when the network is known.
    """

    points: int
    largest: float
    share: float
    tolerance: float

    def __str__(self) -> str:
        within = f"{self.share:.2%} within {self.tolerance:.1g}"
        return f"largest error {self.largest:.2g} at {self.points:,} fresh points ({within})"


@dataclass(frozen=True, eq=False, repr=False)
class Recovered:
    """What a method recovered from an oracle.

    `method`; `result`: a `Network` ("exact"), a `Surrogate` ("regions") or `Pieces` ("pieces"), callable on rows,
    None when nothing could be built; `complete`: whether the method reached its own goal; `statement`: in words, what
    was recovered and what was not; `sampled`: agreement at fresh points; `queries` by purpose, `total_queries`
    without the final check; `seconds`; `restarts`; `noise`: typical error of one answer; `layers` ("exact"): units
    found per hidden layer.
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
        return np.asarray(self.result(X))

    def compare(self, known: Network, *, certify: bool = True, budget: Any = "30s") -> Comparison:
        """Hold the recovered network against the known one; see `Comparison`. Only for "exact"."""
        return _compare(self, known, certify, budget)

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
        }

    def __repr__(self) -> str:
        state = "complete" if self.complete else "incomplete"
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


def recover(
    oracle: Any,
    box: Any,
    method: str = "exact",
    *,
    samples: int = 200,
    overlap: float = 1.0,
    most_chords: int = 800,
    budget: Any = None,
    rng: Any = None,
    check: int = _CHECK_POINTS,
    progress: Any = None,
) -> Recovered:
    """Recover a function from queries in the box `(lo, hi)`.

    - `method="exact"`: the weights of a ReLU network, up to permutation and positive scaling of its units, and with
      them depth and widths. Units that never switch in the box cannot be told from affine ones and are folded into the
      rest. About 45,000 to 130,000 queries, 38,000 of them a check, and a few seconds for some dozens of units.
      `most_chords` bounds the search.
    - `method="regions"`: the affine pieces themselves, by walking from cell to cell (up to 6 inputs): a `Surrogate`.
    - `method="pieces"`: `samples` local affine pieces and the convex fit of their ball-localised sum: `Pieces`, with
      baselines.

    `oracle` is an `Oracle`, a `Network` (used through an oracle) or, with the number of inputs known from `box`, a
    callable. All queries stay in the box. The oracle's own limit on queries and `budget` (such as "60s") end the search
    with what is known by then. Guarantee: none by itself; `sampled` reports the error at `check` fresh points (counted
    apart), and `compare` certifies when the network is known. A smooth oracle (tanh) is detected and said so; a noisy
    one degrades to what can still be told, in `statement`.
    """
    choice(method, "method", METHODS)
    oracle = _oracle(oracle, box)
    lower, upper = box_bounds(box, oracle.n_inputs)
    samples, check = integer(samples, "samples", low=2), integer(check, "check", low=0)
    most_chords = integer(most_chords, "most_chords", low=1)
    overlap = real(overlap, "overlap", low=0.0, open_=True)
    if method == "regions" and oracle.n_inputs > MOST_INPUTS:
        raise InputError(
            f"method 'regions' walks in up to {MOST_INPUTS} inputs, the oracle has {oracle.n_inputs}; use 'exact'"
        )
    if method == "pieces" and oracle.n_outputs != 1:
        raise InputError(f"method 'pieces' takes one output, the oracle has {oracle.n_outputs}; wrap one column of it")
    if oracle.left < _FEWEST:
        raise InputError(f"the oracle allows {oracle.left:,.0f} more queries; give it a limit of at least {_FEWEST:,}")
    limit, rng = parse_budget(budget), generator(rng)
    started, before = time.perf_counter(), oracle.queries
    result: Any
    with meter(progress, "recover") as report:
        view = look(oracle, lower, upper, rng)
        looked = oracle.queries - before
        if view.smooth and method != "pieces":
            text = (
                "the oracle is not piecewise affine: its second differences shrink with the square of the step, at "
                "every place looked at"
            )
            return Recovered(
                method, (lower, upper), None, False, (text,), None, {"first look": looked}, looked,
                time.perf_counter() - started, 0, view.noise, (),
            )  # fmt: skip
        if method == "exact":
            found: Exact = recover_exact(view, rng, most_chords, limit, report)
            result, complete, lines = _network(found.model, view), found.complete, _exact_words(found, view)
            queries, restarts, layers = found.queries, found.restarts, tuple(k for k, _ in found.layers)
        elif method == "regions":
            walk = walk_regions(view, rng, limit, report)
            result, restarts, layers = walk.surrogate, 0, ()
            complete = walk.stopped is None and walk.covered == 1.0
            lines = [f"{len(result):,} affine pieces cover {walk.covered:.2%} of uniform points of the box"]
            if walk.unresolved:
                lines.append(f"{walk.unresolved} places could not be resolved (pieces too thin for the noise)")
            if walk.stopped:
                lines.append(f"stopped early: {walk.stopped}")
            queries = {"walk": oracle.queries - before - looked}
        else:
            result = fit_pieces(view, samples, overlap, rng)
            complete, restarts, layers = True, 0, ()
            h = result.hessian
            lines = [
                f"{len(result)} affine pieces at {samples} samples",
                f"Hessian: smallest eigenvalue {h.smallest:.3g}, condition {h.condition:.3g}, Gershgorin margin "
                f"{h.margin:.3g} ({h.dominant_rows:.0%} of rows dominant); the weights are "
                f"{'unique' if h.unique else 'not unique'}",
            ]
            if view.smooth:
                lines.append("the oracle is smooth, not piecewise affine: the pieces are tangents")
            queries = {"pieces": oracle.queries - before - looked}
        asked = oracle.queries - before
        seconds = time.perf_counter() - started
        sampled = _check(oracle, result, lower, upper, view, min(check, oracle.left), rng)
    if sampled is not None:
        lines.append(str(sampled))
    if method == "exact" and complete and sampled is not None and sampled.share < 1.0:
        complete = False
        lines[0] = "in" + lines[0]
        lines.append("some fresh points disagree: a unit that matters in a corner of the box is missing")
    return Recovered(
        method, (lower, upper), result, complete, tuple(lines), sampled, {"first look": looked, **queries}, asked,
        seconds, restarts, view.noise, layers,
    )  # fmt: skip


def _oracle(oracle: Any, box: Any) -> Oracle:
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
    X = rng.uniform(lower, upper, (int(points), oracle.n_inputs))
    try:
        Y = oracle(X)
    except QueryLimitError:
        return None
    gap = np.abs(result(X).reshape(Y.shape) - Y).max(axis=1)
    gap = np.where(np.isnan(gap), np.inf, gap)
    tolerance = float(max(1e-9 * view.scale, 100 * view.noise))
    finite = gap[np.isfinite(gap)]
    return Sampled(len(X), float(finite.max(initial=0.0)), float((gap <= tolerance).mean()), tolerance)


def _network(model: Model, view: View) -> Network:
    """The model in the box's own coordinates: u = (x - centre) / half."""
    relu, plain = activation("relu"), activation("identity")
    layers: list[Any] = []
    for stage in model.trunk.stages:
        units = Units.of([relu if bend else plain for bend in stage.bends])
        layers.append((stage.weight, stage.bias, "relu" if stage.bends.all() else units))
    layers.append((model.rows[:, :-1], model.rows[:, -1]))
    weight, bias, *rest = layers[0]
    weight = weight / view.half
    layers[0] = (weight, bias - weight @ view.centre, *rest)
    return Network(layers, name="recovered")


def _exact_words(found: Exact, view: View) -> list[str]:
    widths = "-".join(str(k) for k, _ in found.layers) or "none"
    lines = []
    if found.complete:
        lines.append(
            f"complete: hidden layers {widths}; {found.critical:,} critical points, {found.left_over} left unexplained"
        )
        unsettled = [i + 1 for i, (_, settled) in enumerate(found.layers) if not settled]
        if unsettled:
            which = ", ".join(map(str, unsettled))
            lines.append(
                f"layer {which}: no choice of signs makes the next layer affine in its units alone (a unit is always "
                "on in the box, or too many signs are open); earlier features are carried along, with the same function"
            )
    else:
        lines.append(f"incomplete ({found.stopped}): hidden layers found so far: {widths}")
        if found.critical:
            explained = f"{1 - found.left_over / found.critical:.1%} of {found.critical:,} critical points"
            lines.append(f"they explain {explained}")
        else:
            lines.append("no critical point stands out of the noise; what is returned is the best affine fit")
            if found.residual > 100 * view.noise:
                lines.append(
                    f"it misses by up to {found.residual:.1e}, far more than the noise: the oracle may be smooth, with "
                    "bends too slight to be told from noise"
                )
    if view.relative > 1e-12:
        lines.append(
            f"answers carry noise of about {view.noise:.1e} (spread {view.scale:.1e}); nothing finer can be recovered"
        )
    return lines


def _compare(found: Recovered, known: Network, certify: bool, budget: Any) -> Comparison:
    if not isinstance(known, Network):
        raise InputError(f"known must be a Network, got {describe(known)}")
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

            verdict = equivalent(known, net, found.box, max_difference=max(1e-9, 10 * sampled), budget=budget)
            if verdict.complete:
                certified, how = verdict.difference + verdict.rounding, "every region of the common refinement"
            else:
                how += f"; comparing region by region did not end ({verdict.stopped})"
    return Comparison(matched.parameter_error, sampled, certified, how, matched)
