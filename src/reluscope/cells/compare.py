"""Two networks side by side: are they the same function on a box, and how far apart are they?

Both networks run in one network with block-diagonal layers. Its regions are the common refinement of theirs, and on
each region the difference `g = f1 - f2` is affine, so

    sup |g|     is attained at a vertex of a region, int |g|     is a sum of |volume times mean of the vertex values|
    over simplices on which g has one sign, int g^2     is a sum of  vol(S) / ((d + 1)(d + 2)) * (sum g_i^2 + (sum
    g_i)^2)  over simplices S with vertex values g_i.

The values at vertices come from the two networks themselves, so no error of the affine maps enters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from reluscope._check import EPS, FloatArray, describe, real
from reluscope.activations import Units
from reluscope.answer import Answer
from reluscope.cells.bounds import box_outputs
from reluscope.cells.domain import MOST_DIMENSIONS, box_bounds, vertex_geometry
from reluscope.cells.polytope import HPolytopes
from reluscope.cells.regions import Regions, stream_regions, too_large
from reluscope.cells.subdivide import PROBABLE_ERRORS
from reluscope.cells.vertex import with_vertices
from reluscope.cells.vertex_shape import affine_integrals
from reluscope.errors import InputError
from reluscope.network import Layer, Network, check_network

_VOLUME_ROUNDING = 1e-12
"""Relative error allowed for volumes and sums in the brackets of integrals."""


@dataclass(frozen=True, eq=False)
class Equivalence:
    """Whether two networks agree on a box, and where they differ most.

    `equal` is True when `|f1 - f2| <= max_difference` everywhere (every output counts), False when `witness` shows
    more, None when the budget ended before that was known or when rounding leaves it open. `difference` is the largest
    one found, at the input `witness`, with the outputs `first` and `second` there. `rounding` bounds the probable
    rounding of `difference`, `cells` counts the regions of the common refinement that were visited.
    """

    equal: bool | None
    difference: float
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
            "witness": self.witness.tolist(),
            "first": self.first.tolist(),
            "second": self.second.tolist(),
            "max_difference": self.max_difference,
            "rounding": self.rounding,
            "cells": self.cells,
            "stopped": self.stopped,
            "guarantee": self.guarantee,
        }


def side_by_side(net: Network, other: Network) -> Network:
    """The network `x -> (net(x), other(x))`: stacked first layers, block-diagonal later ones.

    The outputs of the shallower network are carried past the remaining layers by identity units, exactly.
    """
    check_network(net)
    check_network(other, "other")
    if net.n_inputs != other.n_inputs:
        raise InputError(f"net and other must have equally many inputs, got {net.n_inputs} and {other.n_inputs}")
    depth = max(len(net.layers), len(other.layers))
    layers = []
    for i, (a, b) in enumerate(zip(_padded(net, depth), _padded(other, depth), strict=True)):
        units = Units.concatenate([a.units, b.units])
        if sparse.issparse(a.weight) or sparse.issparse(b.weight):
            join = sparse.vstack if i == 0 else sparse.block_diag
            weight = sparse.csr_array(join([sparse.csr_array(a.weight), sparse.csr_array(b.weight)]))
        elif i == 0:
            weight = np.concatenate([a.weight, b.weight])
        else:
            weight = np.zeros((a.width + b.width, a.n_inputs + b.n_inputs))
            weight[: a.width, : a.n_inputs], weight[a.width :, a.n_inputs :] = a.weight, b.weight
        layers.append((weight, np.concatenate([a.bias, b.bias]), units))
    return Network(layers, name=f"{net.name} | {other.name}")


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
    worst, rounding, cells, stopped = -1.0, 0.0, 0, None
    witness = 0.5 * (lower + upper)
    for part in _refinement(net, other, (lower, upper), budget, progress):
        stopped = part.found.stopped
        cells += len(part.found)
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
    return Equivalence(verdict, worst, witness, first, second, allowed, rounding, cells, stopped, text)


def distance(
    net: Network,
    other: Network,
    box: Any,
    p: float = inf,
    *,
    normalised: bool = False,
    budget: Any = None,
    progress: Any = None,
) -> Answer:
    """The L^p distance of two networks on a box, for p = 1, 2 or inf.

    Parameters
    ----------
    net, other : Network
        Networks with equally many inputs and outputs.
    box : tuple
        `(lower, upper)`, numbers or one entry per input.
    p : {1, 2, inf}
        Which distance; see Notes.
    normalised : bool
        Divide integrals by the volume of the box, so that they are means.
    budget, progress
        When to end early (`"60s"`, `"10000 regions"`), and whether to show how far the work is.

    Returns
    -------
    Answer
        The distance with a bracket: `exact` up to rounding, or `sound` when a budget ended the search (what was found,
        plus interval bounds on what was not).

    Raises
    ------
    InputError
        If the networks do not fit each other, p is another number, or an integral has more than 6 inputs.

    Notes
    -----
    With `g = net - other`: p = inf is `sup_x max_k |g_k(x)|`, p = 2 is `sqrt(int sum_k g_k(x)^2 dx)`, and p = 1 is
    `int sum_k |g_k(x)| dx`. On every region of the common refinement g is affine, so all three have closed forms. Cost:
    the regions of both networks together. p = inf works in any dimension.

    Examples
    --------
    >>> from reluscope import Network
    >>> net = Network([([[1.0], [-1.0]], None), ([[1.0, 1.0]], None)])  # |x|
    >>> line = Network([([[1.0]], None)])
    >>> distance(net, line, (-1, 1)).value, round(distance(net, line, (-1, 1), 1).value, 9)
    (2.0, 1.0)
    """
    if isinstance(p, bool) or not isinstance(p, (int, float)) or p not in (1, 2, inf):
        raise InputError(f"p must be 1, 2 or inf, got {describe(p)}")
    lower, upper = _same_shape(net, other, box)
    if p != inf and net.n_inputs > MOST_DIMENSIONS:
        raise InputError(
            f"integrals are computed for up to {MOST_DIMENSIONS} inputs, these networks have {net.n_inputs}; "
            "p=inf works in any dimension"
        )
    total = worst = rounding = done = 0.0
    cells, stopped = 0, None
    for part in _refinement(net, other, (lower, upper), budget, progress):
        stopped = part.found.stopped
        cells += len(part.found)
        rounding = max(rounding, part.rounding)
        if p == inf:
            worst = max(worst, _largest(net, other, part)[0])
        else:
            volume, integral = _integral(net, other, part, int(p))
            done, total = done + volume, total + integral
    outputs, volume = net.n_outputs, float(np.prod(upper - lower))
    limit = _interval_difference(net, other, lower, upper) if stopped is not None else np.zeros(outputs)
    rest = max(volume - done, 0.0) if stopped is not None else 0.0
    if p == inf:
        value, low, high = worst, max(worst - rounding, 0.0), max(worst, float(limit.max(initial=0.0))) + rounding
        method = "largest difference at the vertices of the common refinement"
    else:
        share = 1.0 / volume if normalised else 1.0
        if p == 1:
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
        "exact" if stopped is None else "sound",
        method=f"{method} ({cells:,} cells)",
        note="" if stopped is None else f"{stopped}; interval bounds for the rest",
    )


# -- the common refinement -----------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Some regions of the refinement; where cells carry vertices, these and the difference there (n, outputs)."""

    found: Regions
    vertices: FloatArray
    difference: FloatArray
    rounding: float


def _refinement(
    net: Network, other: Network, box: tuple[FloatArray, FloatArray], budget: Any, progress: Any
) -> Iterator[_Part]:
    both = side_by_side(net, other)
    m = net.n_outputs
    apart = both.then(np.concatenate([np.eye(m), -np.eye(m)], axis=1))
    for found in stream_regions(apart, box, geometry=vertex_geometry(net.n_inputs), budget=budget, progress=progress):
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
    points = [_extremes(part.found, i) for i in range(len(part.found))]
    found = np.concatenate(points)
    size = np.abs(net(found) - other(found)).max(axis=1)
    i = int(size.argmax())
    return float(size[i]), found[i]


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


def _padded(net: Network, depth: int) -> list[Layer]:
    """The layers, with identity layers at the end."""
    carry = Layer(np.eye(net.n_outputs), np.zeros(net.n_outputs), Units.uniform("identity", net.n_outputs))
    return [*net.layers, *[carry] * (depth - len(net.layers))]


def _interval_difference(net: Network, other: Network, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """A bound on `|f1 - f2|` on the box for each output, by interval arithmetic through the layers."""
    (a, b), (c, d) = (box_outputs(each, lower, upper) for each in (net, other))
    return np.maximum(np.abs(b - c), np.abs(d - a))


# -- integrals -----------------------------------------------------------------------------------------------------


def _integral(net: Network, other: Network, part: _Part, p: int) -> tuple[float, float]:
    """Volume of these regions, and the integral of `sum_k |g_k|^p` over them."""
    cells = with_vertices(part.found.cells)
    if p == 2:
        volumes, sums = affine_integrals(cells.points, cells.bits, cells.offsets, part.difference, 2)
        return float(volumes.sum()), float(sums.sum())
    total = 0.0
    volume = float(part.found.cells.volumes().sum())
    for k in range(net.n_outputs):
        # Cut by the zero set of one output's difference: on the parts it has one sign.
        maps = np.ascontiguousarray(part.found.maps[:, :, k : k + 1])
        blur = np.full((len(maps), 1), part.rounding)
        halves = with_vertices(part.found.cells.split(maps, blur, _AT_ZERO, 0).cells)
        values = np.abs(net(halves.points)[:, k] - other(halves.points)[:, k])[:, None]
        _, sums = affine_integrals(halves.points, halves.bits, halves.offsets, values, 1)
        total += float(sums.sum())
    return volume, total


_AT_ZERO = np.zeros((1, 1))
_AT_ZERO.setflags(write=False)  # as the break points of a layer, so that the same compiled code serves
