"""Two networks side by side: are they the same function on a box, and how far apart are they?

Both networks run in one network with block-diagonal layers. Its regions are the common refinement of theirs, and on
each region the difference `g = f1 - f2` is affine, so

    sup |g|     is attained at a vertex of a region, int |g|     is a sum of |volume times mean of the vertex values|
    over simplices on which g has one sign, int g^2     is a sum of  vol(S) / ((d + 1)(d + 2)) * (sum g_i^2 + (sum
    g_i)^2)  over simplices S with vertex values g_i.

The values at vertices come from the two networks themselves, so no error of the affine maps enters.

Two networks of one architecture whose weights nearly agree (one rounded to float32, say) have hyperplanes that nearly
coincide, and a common refinement full of slivers: the wrong thing to enumerate. There the difference is bounded first
(`reluscope.cells.near`): from the differences of the weights, on the box and on parts of it, until the bound or a
witness decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from reluscope._check import EPS, FloatArray, choice, describe, flag, real
from reluscope.algebra import stack
from reluscope.answer import Answer, status_of
from reluscope.budget import parse_budget
from reluscope.cells.bounds import box_outputs
from reluscope.cells.domain import MOST_DIMENSIONS, box_bounds, vertex_geometry
from reluscope.cells.near import bound_difference, nearly_agree
from reluscope.cells.polytope import HPolytopes
from reluscope.cells.regions import Regions, region_batches, too_large
from reluscope.cells.subdivide import PROBABLE_ERRORS
from reluscope.cells.vertex import with_vertices
from reluscope.cells.vertex_shape import affine_integrals
from reluscope.errors import InputError
from reluscope.network import Network, check_network
from reluscope.progress import meter
from reluscope.threads import clean_interrupt, deadline

_VOLUME_ROUNDING = 1e-12
"""Relative error allowed for volumes and sums in the brackets of integrals."""


@dataclass(frozen=True, eq=False)
class Equivalence:
    """Whether two networks agree on a box, and where they differ most.

    `equal` is True when `|f1 - f2| <= max_difference` everywhere (every output counts), False when `witness` shows
    more, None when the budget ended before that was known or when rounding leaves it open. `difference` is the largest
    one found, at the input `witness`, with the outputs `first` and `second` there; `bound` is an upper bound of all
    differences on the box (`inf` if none is known). `rounding` bounds the probable rounding of `difference`, `cells`
    counts the regions of the common refinement that were visited (0 where bounds or a witness decided before).

    Attributes
    ----------
    equal : bool or None
    difference, bound : float
    witness : (inputs,) array
    first, second : (outputs,) arrays
    max_difference, rounding : float
    cells : int
    stopped : str or None
    guarantee : str
    """

    equal: bool | None
    difference: float
    bound: float
    witness: FloatArray
    first: FloatArray
    second: FloatArray
    max_difference: float
    rounding: float
    cells: int
    stopped: str | None
    guarantee: str

    @property
    def complete(self) -> bool:
        """Whether every region was visited."""
        return self.stopped is None

    def __bool__(self) -> bool:
        """Whether the networks are equal; an undecided answer is an error, not a verdict."""
        if self.equal is None:
            raise InputError(
                f"equality is undecided: {self!r}; look at .equal, or give more budget or a larger max_difference"
            )
        return self.equal

    def __repr__(self) -> str:
        verdict = {True: "equal", False: "different", None: "undecided"}[self.equal]
        return (
            f"Equivalence({verdict}: largest difference {self.difference:.3g} (allowed {self.max_difference:g}) "
            f"over {self.cells:,} cells; {self.guarantee})"
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {
            "equal": self.equal,
            "difference": self.difference,
            "bound": None if np.isinf(self.bound) else self.bound,
            "witness": self.witness.tolist(),
            "first": self.first.tolist(),
            "second": self.second.tolist(),
            "max_difference": self.max_difference,
            "rounding": self.rounding,
            "cells": self.cells,
            "stopped": self.stopped,
            "guarantee": self.guarantee,
        }


@clean_interrupt()
def equivalent(
    net: Network, other: Network, box: Any, *, max_difference: float = 1e-9, budget: Any = None, progress: Any = None
) -> Equivalence:
    """Whether two networks are the same function on a box.

    Parameters
    ----------
    net, other : Network
        Networks with equally many inputs and outputs.
    box : tuple
        `(lower, upper)`, numbers or one entry per input.
    max_difference : float
        The networks count as equal when no output differs by more than this anywhere in the box.
    budget, progress
        When to end early (`"60s"`, `"10000 regions"`), and whether to show how far the work is.

    Returns
    -------
    Equivalence
        `equal` is True, False or None (undecided), `difference` the largest difference and `witness` where it is.

    Raises
    ------
    InputError
        If the networks do not fit each other, or the box is not one or is too large for double precision.

    Notes
    -----
    Decided on the common refinement of the regions of both networks: at the vertices of every region (up to 6 inputs),
    or by two small linear programs per output and region (above). Cost: the regions of both networks together.
    Networks of one architecture whose weights agree to 1e-6 are compared by bounds of the difference first, which end
    at the first witness; the refinement comes last.
    Guarantee: exact up to rounding, which is estimated and kept apart. If `max_difference` is within the rounding of
    the largest difference, the answer is None. When a budget ends the search, a witness found by then still decides;
    without one the answer is None.

    Examples
    --------
    >>> from reluscope import Network
    >>> net = Network([([[1.0], [-1.0]], None), ([[1.0, 1.0]], None)])  # |x|
    >>> line = Network([([[1.0]], None)])
    >>> equivalent(net, line, (0, 1)).equal
    True
    >>> found = equivalent(net, line, (-1, 1))
    >>> found.equal, found.difference, found.witness.tolist()
    (False, 2.0, [-1.0])
    """
    allowed = real(max_difference, "max_difference", low=0.0)
    lower, upper = _same_shape(net, other, box)
    limit = parse_budget(budget)
    with meter(progress, "bounds"), deadline(lambda: limit.seconds <= limit.elapsed()):
        known = _by_bounds(net, other, (lower, upper), allowed)
    if known is not None and known.equal is not None:
        return known
    worst, rounding, cells, stopped = -1.0, 0.0, 0, None
    witness = 0.5 * (lower + upper) if known is None else known.witness
    for part in _refinement(net, other, (lower, upper), limit, progress):
        stopped = part.regions.stopped
        cells += len(part.regions)
        if not len(part.regions):  # the budget ended before the first region
            continue
        size, x = _largest(net, other, part)
        rounding = max(rounding, part.rounding)
        if size > worst:
            worst, witness = size, x
    first, second = net(witness), other(witness)
    worst = float(np.abs(first - second).max())
    verdict: bool | None = None
    if worst - rounding > allowed:
        verdict = False
    elif stopped is None and worst + rounding <= allowed:
        verdict = True
    if verdict is False:
        text = "the witness shows the difference"
        text += ", the largest there is up to rounding" if stopped is None else "; larger ones may exist"
    elif stopped is not None:
        text = f"{stopped}: no difference above max_difference so far"
    elif verdict is None:
        text = f"the largest difference is within rounding ({rounding:.1g}) of max_difference; a larger one decides"
    else:
        text = "exact: every region of the common refinement was visited; only rounding remains"
    bound = worst + rounding if stopped is None else inf if known is None else known.bound
    return Equivalence(verdict, worst, bound, witness, first, second, allowed, rounding, cells, stopped, text)


def _by_bounds(net: Network, other: Network, box: tuple[FloatArray, FloatArray], allowed: float) -> Equivalence | None:
    """What bounds say about two networks that nearly agree; None for all others."""
    if not nearly_agree(net, other):
        return None
    rounding = _rounding(stack([net, other]), np.stack([*box, 0.5 * (box[0] + box[1])]), box)
    found = bound_difference(net, other, box, allowed, rounding)
    first, second = net(found.witness), other(found.witness)
    worst = float(np.abs(first - second).max())
    verdict, text = None, "bounds leave it open"
    if found.bound <= allowed:
        verdict, text = True, f"sound: no difference on the box exceeds {found.bound:.2g}"
    elif worst - rounding > allowed:
        verdict, text = False, "the witness shows the difference; larger ones may exist (rs.distance finds the largest)"
    return Equivalence(verdict, worst, found.bound, found.witness, first, second, allowed, rounding, 0, None, text)


@clean_interrupt()
def distance(
    net: Network,
    other: Network,
    box: Any,
    p: float = inf,
    *,
    norm: str = "euclidean",
    normalised: bool = False,
    budget: Any = None,
    progress: Any = None,
) -> Answer:
    """The L^p distance of two networks on a box, for any p >= 1 and p = inf.

    Parameters
    ----------
    net, other : Network
        Networks with equally many inputs and outputs.
    box : tuple
        `(lower, upper)`, numbers or one entry per input.
    p : float
        Which distance, at least 1; see Notes.
    norm : {"euclidean", "p"}
        How the outputs are joined at each input: by the Euclidean length of their difference, or by the same p. For one
        output the two are the same.
    normalised : bool
        Divide integrals by the volume of the box, so that they are means.
    budget, progress
        When to end early (`"60s"`, `"10000 regions"`), and whether to show how far the work is.

    Returns
    -------
    Answer
        The distance with a bracket: `exact` up to rounding; `sound` where the integral is bounded by convexity, or when
        a budget ended the search (what was found, plus interval bounds on what was not).

    Raises
    ------
    InputError
        If the networks do not fit each other, p is less than 1, or an integral has more than 6 inputs.

    Notes
    -----
    With `g = net - other` it is `(int |g(x)|^p dx)^(1/p)`, `|g|` the Euclidean length, and `sup_x |g(x)|` for p = inf;
    with `norm="p"` the length is `max_k |g_k|` for p = inf and `(sum_k |g_k|^p)^(1/p)` else. On every region of the
    common refinement g is affine, so suprema are at vertices, and integrals have closed forms for p = 2, and for p = 1
    of one output or with `norm="p"`. Other integrals are of convex functions of g: the mean of the corners is above,
    the value at the mean below, and regions are halved along g until both agree to about 1e-6. Cost: the regions of
    both networks together. p = inf works in any dimension; above 6 inputs, the length of several outputs is bracketed
    on each region, by its values where single outputs are largest and by the length of their largest values.

    Examples
    --------
    >>> from reluscope import Network
    >>> net = Network([([[1.0], [-1.0]], None), ([[1.0, 1.0]], None)])  # |x|
    >>> line = Network([([[1.0]], None)])
    >>> distance(net, line, (-1, 1)).value, round(distance(net, line, (-1, 1), 1).value, 9)
    (2.0, 1.0)
    """
    normalised = flag(normalised, "normalised")
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not p >= 1:
        raise InputError(f"p must be a number that is at least 1, or inf, got {describe(p)}")
    length = choice(norm, "norm", ("euclidean", "p")) == "euclidean"
    lower, upper = _same_shape(net, other, box)
    length = length and net.n_outputs > 1
    if p != inf and net.n_inputs > MOST_DIMENSIONS:
        raise InputError(
            f"integrals are computed for up to {MOST_DIMENSIONS} inputs, these networks have {net.n_inputs}; "
            "p=inf works in any dimension"
        )
    closed = p == 2 or (p == 1 and not length)
    gap = ceiling = 0.0
    total = worst = rounding = done = 0.0
    cells, stopped = 0, None
    for part in _refinement(net, other, (lower, upper), budget, progress):
        stopped = part.regions.stopped
        cells += len(part.regions)
        rounding = max(rounding, part.rounding)
        if not len(part.regions):  # the budget ended before the first region
            continue
        if p == inf and length:
            found, most = _longest(net, other, part)
            worst, ceiling = max(worst, found), max(ceiling, most)
        elif p == inf:
            worst = max(worst, _largest(net, other, part)[0])
        elif not closed:
            volume, low_part, high_part = _convex_integral(net, other, part, lambda g: _power(g, p, length))
            done, total, gap = done + volume, total + low_part, gap + high_part - low_part
        else:
            volume, integral = _integral(net, other, part, int(p))
            done, total = done + volume, total + integral
    outputs, volume = net.n_outputs, float(np.prod(upper - lower))
    limit = _interval_difference(net, other, lower, upper) if stopped is not None else np.zeros(outputs)
    rest = max(volume - done, 0.0) if stopped is not None else 0.0
    if p == inf:
        blur = rounding * (np.sqrt(outputs) if length else 1.0)
        top = max(ceiling, float(np.linalg.norm(limit) if length else limit.max(initial=0.0)))
        value, low, high = worst, max(worst - blur, 0.0), max(worst, top) + blur
        method = "largest difference at the vertices of the common refinement"
        if length and net.n_inputs > MOST_DIMENSIONS:
            method = "longest difference found on the common refinement, and the length of the largest of each output"
    else:
        share = 1.0 / volume if normalised else 1.0
        if not closed:
            root, share = 1.0 / p, share ** (1.0 / p)
            blur = rounding * np.sqrt(outputs) * volume**root  # by the triangle inequality
            most = total + gap + rest * float(_power(limit[None], p, length)[0])
            low, high = total**root * (1 - _VOLUME_ROUNDING) - blur, most**root * (1 + _VOLUME_ROUNDING) + blur
            value = (total + 0.5 * gap) ** root * share
            low, high = low * share, high * share
        elif p == 1:
            blur = outputs * rounding * volume
            value, low = total * share, (total * (1 - _VOLUME_ROUNDING) - blur) * share
            high = (total * (1 + _VOLUME_ROUNDING) + blur + rest * float(limit.sum())) * share
        else:
            blur = rounding * np.sqrt(outputs * volume)  # by the triangle inequality in L^2
            size = np.sqrt(total + rest * float((limit**2).sum()))
            value, low = np.sqrt(total * share), (np.sqrt(total) * (1 - _VOLUME_ROUNDING) - blur) * np.sqrt(share)
            high = (size * (1 + _VOLUME_ROUNDING) + blur) * np.sqrt(share)
        method = f"integral over the common refinement{', divided by the volume of the box' if normalised else ''}"
        low = max(low, 0.0)
    return Answer(
        float(value),
        float(low),
        float(high),
        "exact" if stopped is None and (closed or (p == inf and ceiling <= worst)) else "sound",
        method=f"{method} ({cells:,} cells)",
        note="" if stopped is None else f"{stopped}; interval bounds for the rest",
        status=status_of(stopped),
    )


# -- the common refinement -----------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Some regions of the refinement; where cells carry vertices, these and the difference there (n, outputs)."""

    regions: Regions
    vertices: FloatArray
    difference: FloatArray
    rounding: float


def _refinement(
    net: Network, other: Network, box: tuple[FloatArray, FloatArray], budget: Any, progress: Any
) -> Iterator[_Part]:
    both = stack([net, other])
    m = net.n_outputs
    apart = both.then(np.concatenate([np.eye(m), -np.eye(m)], axis=1))
    for found in region_batches(apart, box, geometry=vertex_geometry(net.n_inputs), budget=budget, progress=progress):
        if net.n_inputs > MOST_DIMENSIONS:
            points = found.interior
        else:
            points = with_vertices(found.cells).points
        values = both(points)
        yield _Part(found, points, values[:, :m] - values[:, m:], _rounding(both, points, box))


def _largest(net: Network, other: Network, part: _Part) -> tuple[float, FloatArray]:
    """The largest difference of any output on these regions, and a point where it is attained."""
    if net.n_inputs <= MOST_DIMENSIONS:
        size = np.abs(part.difference).max(axis=1)
        i = int(size.argmax())
        return float(size[i]), part.vertices[i]
    points = [_extremes(part.regions, i) for i in range(len(part.regions))]
    found = np.concatenate(points)
    size = np.abs(net(found) - other(found)).max(axis=1)
    i = int(size.argmax())
    return float(size[i]), found[i]


def _longest(net: Network, other: Network, part: _Part) -> tuple[float, float]:
    """The longest difference found on these regions, and a bound of it; the same where cells carry vertices, for a
    convex function has its maximum there.
    """
    if net.n_inputs <= MOST_DIMENSIONS:
        worst = float(np.linalg.norm(part.difference, axis=1).max())
        return worst, worst
    worst = most = 0.0
    for i in range(len(part.regions)):
        points = _extremes(part.regions, i)
        g = np.abs(net(points) - other(points))
        worst = max(worst, float(np.linalg.norm(g, axis=1).max()))
        most = max(most, float(np.linalg.norm(g.max(axis=0))))
    return worst, most


def _extremes(found: Regions, i: int) -> FloatArray:
    """Points of region i where an output of its affine map is largest or least, two rows per output."""
    from reluscope.cells.lp import Program
    from reluscope.cells.simplex import maximise_small

    assert isinstance(found.cells, HPolytopes)
    A, b, _ = found.cells.rows(i)
    assert found.domain.box is not None
    lower, upper = found.domain.box
    out = []
    program = None
    for goal in found.C[i]:
        for c in (goal, -goal):
            status, _, x, _ = maximise_small(np.ascontiguousarray(c), A, b, lower, upper)
            if status != 0:  # the compiled method is in doubt: the authority is HiGHS
                program = program or Program(A, b, lower, upper)
                x = program.maximise(c).point
            out.append(np.clip(x, lower, upper))
    return np.array(out)


def _rounding(both: Network, points: FloatArray, box: tuple[FloatArray, FloatArray]) -> float:
    """The probable rounding, times 16, of the difference of the outputs at these points: see `cells.subdivide`."""
    reach = np.abs(np.stack(box)).max(axis=0)
    error2 = (EPS * EPS) * ((both.layers[0].weight ** 2) @ reach**2 + both.layers[0].bias ** 2)
    if not len(points):
        return 0.0
    for layer, following, h in zip(both.layers, both.layers[1:], both.preactivations(points), strict=False):
        steepest = np.abs(layer.units.slopes).max(axis=1) ** 2
        top = np.abs(layer.units(h)).max(axis=0)
        error2 = (following.weight**2) @ (steepest * error2 + (EPS * top) ** 2) + (EPS * following.bias) ** 2
    m = both.n_outputs // 2
    return PROBABLE_ERRORS * float(np.sqrt((error2[:m] + error2[m:]).max()))


def _same_shape(net: Any, other: Any, box: Any) -> tuple[FloatArray, FloatArray]:
    check_network(net)
    check_network(other, "other")
    if (net.n_inputs, net.n_outputs) != (other.n_inputs, other.n_outputs):
        raise InputError(
            "net and other must have equally many inputs and outputs, got "
            f"{net.n_inputs} -> {net.n_outputs} and {other.n_inputs} -> {other.n_outputs}"
        )
    bounds = box_bounds(box, net.n_inputs)
    for each in (net, other):
        words = too_large(each, bounds)
        if words is not None:
            raise InputError(words)
    return bounds


def _interval_difference(net: Network, other: Network, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """A bound on `|f1 - f2|` on the box for each output, by interval arithmetic through the layers."""
    (a, b), (c, d) = (box_outputs(each, lower, upper) for each in (net, other))
    return np.maximum(np.abs(b - c), np.abs(d - a))


# -- integrals -----------------------------------------------------------------------------------------------------


def _integral(net: Network, other: Network, part: _Part, p: int) -> tuple[float, float]:
    """Volume of these regions, and the integral of `sum_k |g_k|^p` over them."""
    cells = with_vertices(part.regions.cells)
    if p == 2:
        volumes, sums = affine_integrals(cells.points, cells.bits, cells.offsets, part.difference, 2)
        return float(volumes.sum()), float(sums.sum())
    total = 0.0
    volume = float(part.regions.cells.volumes().sum())
    for k in range(net.n_outputs):
        # Cut by the zero set of one output's difference: on the parts it has one sign.
        maps = np.ascontiguousarray(part.regions.maps[:, :, k : k + 1])
        blur = np.full((len(maps), 1), part.rounding)
        halves = with_vertices(part.regions.cells.split(maps, blur, _AT_ZERO, 0).cells)
        values = np.abs(net(halves.points)[:, k] - other(halves.points)[:, k])[:, None]
        _, sums = affine_integrals(halves.points, halves.bits, halves.offsets, values, 1)
        total += float(sums.sum())
    return volume, total


_HALVINGS, _MOST_HALVES, _CLOSE = 14, 200_000, 1e-6
"""Rounds of halving, cells at a time, and the gap at which bounds by convexity count as one number."""


def _power(g: FloatArray, p: float, length: bool) -> FloatArray:
    """The integrand at rows of differences: `|g|^p`, or `sum_k |g_k|^p`."""
    if length:
        return np.asarray(np.linalg.norm(g, axis=1) ** p)
    return np.asarray((np.abs(g) ** p).sum(axis=1))


def _convex_integral(
    net: Network, other: Network, part: _Part, size: Callable[[FloatArray], FloatArray]
) -> tuple[float, float, float]:
    """Volume of these regions, and bounds of the integral of a convex function of the difference over them.

    On a cell the function is above its value at the mean of the difference (Jensen), and below the affine function of
    its values at the corners of each simplex.
    """
    cells, maps = with_vertices(part.regions.cells), np.asarray(part.regions.maps)
    volume = low = high = 0.0
    for rounds in range(_HALVINGS + 1):
        values = net(cells.points) - other(cells.points)
        columns = [np.ascontiguousarray(values[:, k : k + 1]) for k in range(values.shape[1])]
        volumes, above = affine_integrals(cells.points, cells.bits, cells.offsets, size(values)[:, None], 1)
        sums = [affine_integrals(cells.points, cells.bits, cells.offsets, column, 1)[1] for column in columns]
        means = np.stack(sums, axis=1) / np.maximum(volumes, 1e-300)[:, None]
        below = np.minimum(volumes * size(means), above)
        if not rounds:
            volume = float(volumes.sum())
        gaps = above - below
        whole = high + float(above.sum())
        # Cells whose share of the gap is small are settled; the others are halved along the widest output.
        open_ = gaps > _CLOSE * whole * volumes / max(volume, 1e-300)
        if rounds == _HALVINGS or len(gaps) > _MOST_HALVES:
            open_[:] = False
        low, high = low + float(below[~open_].sum()), high + float(above[~open_].sum())
        if not open_.any():
            return volume, low, high
        spans = np.maximum.reduceat(values, cells.offsets[:-1]) - np.minimum.reduceat(values, cells.offsets[:-1])
        at = np.flatnonzero(open_)
        k = spans[at].argmax(axis=1)
        cells, maps = cells.take(at), maps[at]
        cut = np.take_along_axis(maps, k[:, None, None], axis=2).copy()
        cut[:, -1, 0] -= means[at, k]
        halves = cells.split(np.ascontiguousarray(cut), np.full((len(at), 1), part.rounding), _AT_ZERO, 0)
        cells, maps = with_vertices(halves.cells), maps[halves.parent]
    raise AssertionError("the last round returns")


_AT_ZERO = np.zeros((1, 1))
_AT_ZERO.setflags(write=False)  # as the break points of a layer, so that the same compiled code serves
