"""The regions of a small network in exact rational arithmetic: slow, simple, and right.

Every number of the network is taken as the rational that its float is. A cell is a system of strict
inequalities `a . x < r` together with a rational point that satisfies all of them. A unit with the
pre-activation `h = c . x + d` on the cell passes the break point `t` inside it iff the supremum of `h - t` over
the cell is positive and the infimum negative; the cell's point settles one of the two, an exact linear program
the other. Only cells with inner points ever arise, and a unit that sits on a break point all over a cell
belongs to the piece below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from reluscope.network import Network

Vector = tuple[Fraction, ...]


class Row(NamedTuple):
    """The open half-space `normal . x < bound`."""

    normal: Vector
    bound: Fraction


class Cell(NamedTuple):
    """An open polyhedron and a point strictly inside it."""

    rows: tuple[Row, ...]
    inside: Vector


class Affine(NamedTuple):
    """`slope . x + offset`."""

    slope: Vector
    offset: Fraction


def rational_regions(
    net: Network,
    lower: Sequence[float] | float | None = None,
    upper: Sequence[float] | float | None = None,
) -> set[tuple[int, ...]]:
    """The patterns of `net` whose cells have inner points in the box; `None` leaves out that bound."""
    return set(rational_cells(net, lower, upper))


def rational_cells(
    net: Network,
    lower: Sequence[float] | float | None = None,
    upper: Sequence[float] | float | None = None,
    only: Sequence[int] | None = None,
) -> dict[tuple[int, ...], Cell]:
    """The open cells themselves, by pattern: one for each, since the inputs of a pattern form a convex set.

    With `only`, the cell of that pattern alone, if it has inner points.
    """
    d = net.n_inputs
    basis = [tuple(Fraction(int(i == j)) for j in range(d)) for i in range(d)]
    low, high = _bounds(lower, d), _bounds(upper, d)
    rows: list[Row] = []
    inside = []
    for axis, a, b in zip(basis, low, high, strict=True):
        if a is not None:
            rows.append(Row(tuple(-x for x in axis), -a))
        if b is not None:
            rows.append(Row(axis, b))
        if a is not None and b is not None:
            assert a < b, "the box has no inner points"
            inside.append((a + b) / 2)
        else:
            inside.append(Fraction(0) if a is None and b is None else (a + 1 if b is None else b - 1))

    start = [Affine(axis, Fraction(0)) for axis in basis]
    found: dict[tuple[int, ...], Cell] = {}
    work = [(0, Cell(tuple(rows), tuple(inside)), start, ())]
    while work:
        depth, cell, z, pattern = work.pop()
        if depth == len(net.hidden):
            assert pattern not in found
            found[pattern] = cell
            continue
        layer = net.hidden[depth]
        weight = [[Fraction(float(w)) for w in row] for row in layer.dense()]
        kinds = [layer.units.kinds[k] for k in layer.units.kind]
        bias = [Fraction(float(b)) for b in layer.bias]
        h = [_combine(w, z, b) for w, b in zip(weight, bias, strict=True)]
        parts: list[tuple[Cell, tuple[int, ...]]] = [(cell, ())]
        for unit, kind in zip(h, kinds, strict=True):
            breaks = [Fraction(t) for t in kind.breaks]
            parts = [(c, (*p, k)) for part, p in parts for k, c in _pieces(part, unit, breaks)]
            if only is not None:
                parts = [(c, p) for c, p in parts if p[-1] == only[len(pattern) + len(p) - 1]]
        for part, pieces in parts:
            after = [
                Affine(
                    tuple(Fraction(a.slopes[k]) * c for c in u.slope),
                    Fraction(a.slopes[k]) * u.offset + Fraction(a.intercepts[k]),
                )
                for a, k, u in zip(kinds, pieces, h, strict=True)
            ]
            work.append((depth + 1, part, after, (*pattern, *pieces)))
    return found


def _bounds(given: Sequence[float] | float | None, d: int) -> list[Fraction | None]:
    if given is None:
        return [None] * d
    return [Fraction(float(v)) for v in np.broadcast_to(np.asarray(given, dtype=float), (d,))]


def _dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True) if x and y), Fraction(0))


def _combine(weights: Sequence[Fraction], z: Sequence[Affine], bias: Fraction) -> Affine:
    slope = tuple(_dot(weights, column) for column in zip(*(u.slope for u in z), strict=True))
    return Affine(slope, _dot(weights, [u.offset for u in z]) + bias)


def _pieces(cell: Cell, h: Affine, breaks: Sequence[Fraction]) -> list[tuple[int, Cell]]:
    """The pieces of one unit that occur in the cell, each with its part of it."""
    out = []
    rest: Cell | None = cell
    for k, t in enumerate(breaks):
        assert rest is not None
        below, rest = _cut(rest, Affine(h.slope, h.offset - t))
        if below is not None:
            out.append((k, below))
        if rest is None:
            return out
    assert rest is not None
    return [*out, (len(breaks), rest)]


def _cut(cell: Cell, h: Affine) -> tuple[Cell | None, Cell | None]:
    """The parts of a cell where `h < 0` (or `h = 0` all over) and where `h > 0`; None for an empty part."""
    if not any(h.slope):
        return (cell, None) if h.offset <= 0 else (None, cell)
    value = _dot(h.slope, cell.inside) + h.offset
    down = Row(h.slope, -h.offset)
    up = Row(tuple(-c for c in h.slope), h.offset)
    if value == 0:
        room = [(r.bound - _dot(r.normal, cell.inside), abs(_dot(r.normal, h.slope))) for r in cell.rows]
        step = min((free / speed for free, speed in room if speed), default=Fraction(1)) / 2
        return (
            _with(cell, down, tuple(x - step * c for x, c in zip(cell.inside, h.slope, strict=True))),
            _with(cell, up, tuple(x + step * c for x, c in zip(cell.inside, h.slope, strict=True))),
        )
    here, there, goal = (up, down, tuple(-c for c in h.slope)) if value > 0 else (down, up, h.slope)
    kept = _with(cell, here, cell.inside)
    target = _beyond(cell, goal, abs(value))
    if target is None:
        return (None, kept) if value > 0 else (kept, None)
    crossing = abs(value) / (_dot(goal, target) - _dot(goal, cell.inside))
    share = (crossing + 1) / 2
    point = tuple(x + share * (y - x) for x, y in zip(cell.inside, target, strict=True))
    other = _with(cell, there, point)
    return (other, kept) if value > 0 else (kept, other)


def _with(cell: Cell, row: Row, inside: Vector) -> Cell:
    rows = (*cell.rows, row)
    for bits in (4, 16, 64):  # short numbers keep the arithmetic fast
        short = tuple(x.limit_denominator(1 << bits) for x in inside)
        if all(_dot(r.normal, short) < r.bound for r in rows):
            return Cell(rows, short)
    assert all(_dot(r.normal, inside) < r.bound for r in rows)
    return Cell(rows, inside)


def _beyond(cell: Cell, goal: Vector, height: Fraction) -> Vector | None:
    """A point of the closed cell with `goal . (x - inside) > height`, or None if there is none.

    The simplex method in dictionary form from the cell's inner point, where all slacks are positive: with
    `x = inside + y`, the slack of each row is `bound - normal . inside - normal . y`. The free variables `y`
    enter first and never leave; Bland's rule rules out cycling.
    """
    d = len(goal)
    # A row holds a value, then the coefficients of the non-basic variables. Variables 0..d-1 are y, then slacks.
    table = [[r.bound - _dot(r.normal, cell.inside), *(-a for a in r.normal)] for r in cell.rows]
    basic = [d + i for i in range(len(table))]
    free = list(range(d))
    objective = [Fraction(0), *goal]
    while objective[0] <= height:
        choices = [q for q in range(d) if objective[q + 1] != 0 and (free[q] < d or objective[q + 1] > 0)]
        if not choices:
            return None
        q = min(choices, key=lambda i: free[i])
        sign = 1 if objective[q + 1] > 0 else -1
        leaving = [
            (-row[0] / (sign * row[q + 1]), basic[i], i)
            for i, row in enumerate(table)
            if basic[i] >= d and sign * row[q + 1] < 0
        ]
        if not leaving:  # unbounded: go along the ray far enough
            far = sign * ((height - objective[0]) / abs(objective[q + 1]) + 1)
            y = [Fraction(0)] * d
            for i, row in enumerate(table):
                if basic[i] < d:
                    y[basic[i]] = row[0] + far * row[q + 1]
            if free[q] < d:
                y[free[q]] = far
            return tuple(x + v for x, v in zip(cell.inside, y, strict=True))
        i = min(leaving)[2]
        pivot = table[i]
        scale = -1 / pivot[q + 1]
        solved = [scale * v for v in pivot]
        solved[q + 1] = -scale
        for row in [*table[:i], *table[i + 1 :], objective]:
            factor = row[q + 1]
            if factor:
                row[q + 1] = Fraction(0)
                for k in range(d + 1):
                    row[k] += factor * solved[k]
        table[i] = solved
        basic[i], free[q] = free[q], basic[i]
    y = [Fraction(0)] * d
    for i, row in enumerate(table):
        if basic[i] < d:
            y[basic[i]] = row[0]
    return tuple(x + v for x, v in zip(cell.inside, y, strict=True))
