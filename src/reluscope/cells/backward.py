"""The backward construction of the regions (Lemma 2.3.11 of the thesis): from the last hidden layer to the first.

`C(m)` is the arrangement of the last hidden layer, in the space of its inputs. Going back one layer, each cell of that
layer's own arrangement is intersected with the preimages of all cells that come after: on a cell the layer is affine,
so a preimage of `{A z <= b}` is again a list of inequalities. At the first layer the cells are the regions of the
network. The regions of `reluscope.regions` come from the first layer to the last; that both agree is the lemma.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.cells.domain import box_bounds
from reluscope.cells.lp import interior_point
from reluscope.errors import InputError
from reluscope.network import Layer, Network, Pattern, check_network

_MOST_PAIRS = 20_000
"""Cells of one layer times cells after it: what one call may look at."""
_THIN = 1e-9
"""Cells of the input space that hold no ball of this radius, relative to their size, are not regions."""


class _Cell(NamedTuple):
    """Pieces of the units from some layer on, and the points of that layer's inputs that have them: `A z <= b`."""

    pattern: tuple[int, ...]
    A: FloatArray
    b: FloatArray
    strict: npt.NDArray[np.bool_]


def backward_patterns(net: Network, box: Any = None) -> Pattern:
    """The patterns of all regions, built from the last layer to the first, in the order of their digits.

    Parameters
    ----------
    net : Network
        Small: the space of a hidden layer has up to 2^units cells, whether inputs reach them or not.
    box : tuple, optional
        `(lower, upper)`, numbers or one entry per input; the whole space without it.

    Returns
    -------
    (n, units) array

    Raises
    ------
    InputError
        If there are more than 20,000 pairs of cells to intersect; `reluscope.regions` has no such limit.

    Notes
    -----
    The same patterns as `regions(net, box).pattern`, by another way. Cost: one linear program for each pair of a cell
    of a layer and a cell after it. Hidden cells are kept when they are not empty, regions when they hold a ball.

    Examples
    --------
    >>> net = Network([([[1.0], [-1.0]], [0.0, 0.5]), ([[1.0, 1.0]], [-1.0]), ([[1.0]], None)])
    >>> backward_patterns(net).tolist()
    [[0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 1], [1, 1, 0]]
    """
    check_network(net)
    sides = None if box is None else box_bounds(box, net.n_inputs)
    if not net.hidden:
        return np.zeros((1, 0), np.uint8)
    after: list[_Cell] | None = None
    for depth in range(len(net.hidden) - 1, -1, -1):
        layer, first = net.hidden[depth], depth == 0
        own = _arrangement(layer, sides if first else None)
        if after is None:
            after = own
            continue
        if len(own) * len(after) > _MOST_PAIRS:
            raise InputError(
                f"the backward construction would intersect {len(own):,} cells of layer {depth} with {len(after):,} "
                f"after it, more than {_MOST_PAIRS:,} pairs; take a smaller network, or regions(net)"
            )
        after = [cell for here in own for later in after if (cell := _pulled(layer, here, later)) is not None]
    found = [cell.pattern for cell in after or [] if _has_interior(cell, sides)]
    out = np.array(found, np.uint8).reshape(-1, net.n_units)
    return out[np.lexsort(out.T[::-1])]


def _arrangement(layer: Layer, sides: tuple[FloatArray, FloatArray] | None) -> list[_Cell]:
    """All cells that the break points of one layer cut its inputs into, or a box of them; unit by unit."""
    W, n = layer.dense(), layer.n_inputs
    A, b = np.zeros((0, n)), np.zeros(0)
    if sides is not None:
        A, b = np.concatenate([np.eye(n), -np.eye(n)]), np.concatenate([sides[1], -sides[0]])
    cells = [_Cell((), A, b, np.zeros(len(b), bool))]
    for unit in range(layer.width):
        breaks = layer.units.breaks[unit]
        ends = np.concatenate([[-np.inf], breaks[np.isfinite(breaks)], [np.inf]])
        more = []
        for cell in cells:
            for piece in range(len(ends) - 1):
                cut = _side(cell, W[unit], float(layer.bias[unit]), ends[piece], ends[piece + 1], piece)
                if not _is_empty(cut):
                    more.append(cut)
        cells = more
        if len(cells) > _MOST_PAIRS:
            raise InputError(f"a layer of {layer.width} units has more than {_MOST_PAIRS:,} cells; take fewer units")
    return cells


def _side(cell: _Cell, w: FloatArray, shift: float, low: float, high: float, piece: int) -> _Cell:
    """The part of a cell with `low < w . z + shift <= high`."""
    rows, bounds, strict = [cell.A], [cell.b], [cell.strict]
    if np.isfinite(low):
        rows, bounds, strict = [*rows, -w[None]], [*bounds, np.array([shift - low])], [*strict, np.array([True])]
    if np.isfinite(high):
        rows, bounds, strict = [*rows, w[None]], [*bounds, np.array([high - shift])], [*strict, np.array([False])]
    return _Cell((*cell.pattern, piece), np.concatenate(rows), np.concatenate(bounds), np.concatenate(strict))


def _pulled(layer: Layer, here: _Cell, later: _Cell) -> _Cell | None:
    """The points of a cell that the layer sends into a later cell; None if there are none."""
    slope, constant = layer.units.on(np.array([here.pattern], np.uint8))
    M, m = slope[0][:, None] * layer.dense(), slope[0] * layer.bias + constant[0]
    cell = _Cell(
        (*here.pattern, *later.pattern),
        np.concatenate([here.A, later.A @ M]),
        np.concatenate([here.b, later.b - later.A @ m]),
        np.concatenate([here.strict, later.strict]),
    )
    return None if _is_empty(cell) else cell


def _decided(cell: _Cell) -> tuple[bool, npt.NDArray[np.bool_]]:
    """Whether the rows that do not depend on z hold, and which rows do depend on it."""
    size = np.abs(cell.A).max(axis=1, initial=0.0)
    live = size > 1e-12 * max(1.0, float(size.max(initial=0.0)))
    slack = 1e-12 * (1.0 + np.abs(cell.b))
    # A constant on its break point belongs to the piece below: there `0 <= b` holds and `0 < b` does not.
    held = np.where(cell.strict, cell.b > slack, cell.b >= -slack)
    return bool(held[~live].all()), live


def _radius(cell: _Cell) -> float:
    """Radius of the largest ball in the cell, for rows of unit length; negative if it is empty."""
    holds, live = _decided(cell)
    if not holds:
        return -np.inf
    return interior_point(cell.A[live], cell.b[live]).radius if live.any() else np.inf


def _is_empty(cell: _Cell) -> bool:
    """Whether no point satisfies all rows, strict ones taken as `<=`."""
    return _radius(cell) < -1e-10


def _has_interior(cell: _Cell, sides: tuple[FloatArray, FloatArray] | None) -> bool:
    """Whether the cell holds a ball that rounding cannot make."""
    size = 1.0 if sides is None else max(float(np.max(sides[1] - sides[0])), 1e-300)
    return _radius(cell) > _THIN * size
