"""Half-space cells in whole numbers: what the compiled kernels leave in doubt is decided here, without rounding.

Two hyperplanes that nearly coincide meet the edges of a cell at angles of 1e-10, say: a dictionary in floats says
nothing about the sliver between them. The cells that the kernels of `reluscope.cells.polytope_split` and
`polytope_shape` call doubtful are few; their linear programs are solved here by `reluscope.cells.exact_simplex`, with
every float taken for the fraction that it is. What counts as a cut is the same: a unit cuts where it passes a break
point by more than its tolerance and what the tolerances of the facets at the optimal vertex amount to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.cells.exact_simplex import FREE, NEGATIVE, POSITIVE, End, Tableau, fractions, whole
from reluscope.cells.simplex import MOST_MOVED, SURE
from reluscope.cells.split import Index, Labels
from reluscope.threads import look


class Cell(NamedTuple):
    """One cell `A y <= b`, `lower <= y <= upper`, in floats or fractions; `error` and `basis` as in `HPolytopes` (codes
    below `-d` are unknown)."""

    A: FloatArray
    b: FloatArray
    error: FloatArray
    basis: Sequence[int]
    lower: FloatArray
    upper: FloatArray


class Units(NamedTuple):
    """Units `C[k] . y + c[k]` in fractions, and a power of two near the norm of each."""

    C: list[list[Fraction]]
    c: list[Fraction]
    norm: FloatArray


class Part(NamedTuple):
    """A part of one cell: the cuts that bound it, as further rows `A y <= b`, the piece of every unit on it, the
    codes of one of its vertices, and whether a unit comes within its tolerance of it without cutting."""

    A: FloatArray
    b: FloatArray
    error: FloatArray
    labels: Labels
    piece: npt.NDArray[np.uint8]
    basis: Labels
    near: bool


@dataclass(frozen=True, eq=False)
class _Program:
    """A tableau of the slacks of a cell (sides of the box, then rows), and of some more functions after them.

    `code[i]` is the code of slack i, `scale[i]` what function i was multiplied by, `norm[i]` about the norm of its
    coefficients, `error[i]` its tolerance.
    """

    tableau: Tableau
    code: list[int]
    scale: list[int]
    norm: list[float]
    error: list[float]

    @classmethod
    def of(
        cls,
        cell: Cell,
        more: Sequence[Sequence[Fraction]] = (),
        norms: Sequence[float] = (),
        errors: Sequence[float] = (),
    ) -> _Program | None:
        """The cell at a vertex; None if it is empty. `more` are functions: a constant, then the coefficients."""
        d = len(cell.lower)
        rows, code = _slacks(cell)
        error = [0.0] * (len(rows) - len(cell.b)) + cell.error.tolist()
        norm = [1.0] * len(rows)
        numbers = [whole(row) for row in (*rows, *more)]
        tableau = Tableau(d, [row for row, _ in numbers])
        made = cls(tableau, code, [scale for _, scale in numbers], [*norm, *norms], [*error, *errors])
        place = {c: d + i for i, c in enumerate(code)}
        for c in cell.basis:
            if c in place:
                tableau.enter(place[c])
        slacks = range(d, d + len(code))
        for v in slacks:
            if tableau.value(v) >= 0:
                tableau.kind[v] = POSITIVE
        return made if all(tableau.kind[v] or tableau.demand(v, POSITIVE) for v in slacks) else None

    def after(self, tableau: Tableau) -> _Program:
        """The same functions with another dictionary."""
        return replace(self, tableau=tableau)

    def moved(self, f: int) -> float:
        """How far the tolerances of the facets at the present vertex may move basic function `f`."""
        d, out = self.tableau.d, 0.0
        for w, slope in self.tableau.slopes(d + f):
            if w >= d and self.error[w - d]:
                rate = abs(float(slope * self.scale[w - d] / self.scale[f]))
                out += min(rate, MOST_MOVED * self.norm[f] / self.norm[w - d]) * self.error[w - d]
        return out

    def codes(self, known: dict[int, int]) -> Labels:
        """The present vertex as codes; `known` has those of functions that are no slacks of the cell."""
        d = self.tableau.d
        return np.array(
            [
                -1 - w if w < d else (self.code[w - d] if w - d < len(self.code) else known[w - d])
                for w in self.tableau.nonbasic
            ],
            np.int32,
        )


def _slacks(cell: Cell) -> tuple[list[list[Fraction]], list[int]]:
    """The room that a point has to each side of the box and to each row, a constant and then coefficients; the
    codes."""
    d = len(cell.lower)
    rows, code = [], []
    for q in range(d):
        for side, bound in enumerate((float(cell.lower[q]), float(cell.upper[q]))):
            if np.isfinite(bound):
                sign = 1 - 2 * side
                rows.append([-sign * Fraction(bound), *(Fraction(sign * int(p == q)) for p in range(d))])
                code.append(2 * q + side)
    for i, room in enumerate(fractions(cell.b)):
        rows.append([room, *(-x for x in fractions(cell.A[i]))])
        code.append(2 * d + i)
    return rows, code


def exact_units(maps: FloatArray, origin: FloatArray, scale: FloatArray) -> Units:
    """The units `maps[:-1].T x + maps[-1]` in the coordinates `x = origin + scale * y`."""
    d, m = maps.shape[0] - 1, maps.shape[1]
    C, c = [], []
    for k in range(m):
        column = fractions(maps[:, k])
        C.append([column[q] * Fraction(float(scale[q])) for q in range(d)])
        c.append(column[d] + sum((column[q] * Fraction(float(origin[q])) for q in range(d)), Fraction(0)))
    size = np.linalg.norm(maps[:d] * scale[:, None], axis=0)
    with np.errstate(divide="ignore"):
        norm = np.where(size > 0, 2.0 ** np.round(np.log2(size)), 0.0)
    return Units(C, c, norm)


def split_exactly(
    cell: Cell, units: Units, tolerance: FloatArray, breaks: FloatArray, first_label: int
) -> Iterator[Part]:
    """The parts of a cell between the hyperplanes where a unit passes a break point. None if the cell is empty."""
    m, steps = breaks.shape
    fixed, near = np.zeros(m, np.uint8), False
    items: list[tuple[int, int, Fraction]] = []
    for k in range(m):
        for s in range(steps):
            if not np.isfinite(breaks[k, s]):
                continue
            if units.norm[k] == 0 or units.norm[k] <= tolerance[k]:  # constant but for rounding
                fixed[k] += int(float(units.c[k]) > breaks[k, s] + tolerance[k])
                near |= bool(abs(float(units.c[k]) - breaks[k, s]) <= tolerance[k])
            else:
                items.append((k, s, Fraction(float(breaks[k, s]))))
    tol, norms = ([float(x[k]) for k, _, _ in items] for x in (tolerance, units.norm))
    start = _Program.of(cell, [[units.c[k] - t, *units.C[k]] for k, _, t in items], norms, tol)
    if start is None:
        return
    d, first = len(cell.lower), len(start.code)
    work: list[tuple[Tableau, list[int], list[int], bool]] = [(start.tableau, [0] * len(items), [], near)]
    while work:
        look()
        tableau, state, cuts, near = work.pop()
        here = start.after(tableau)
        chosen = -1
        for a in range(len(items)):
            if state[a] == 0:
                for sign in (1, -1):
                    beyond, touches = _gets_beyond(here, first + a, sign)
                    if not beyond:
                        state[a] = -sign
                        near |= touches
                        break
                else:
                    chosen = a
        if chosen >= 0:
            v = d + first + chosen
            if not tableau.walk(v):
                raise AssertionError("a function that takes both signs on a cell is 0 somewhere")
            other = tableau.copy()
            tableau.kind[v], other.kind[v] = NEGATIVE, POSITIVE
            below, above = state.copy(), state.copy()
            below[chosen], above[chosen] = -1, 1
            work += [(other, above, [*cuts, chosen], near), (tableau, below, [*cuts, chosen], near)]
            continue
        yield _part(here, units, items, state, cuts, fixed, tolerance, first_label, steps, len(cell.b), near)


def _gets_beyond(program: _Program, f: int, sign: int) -> tuple[bool, bool]:
    """Whether `sign` times function `f` exceeds its tolerance somewhere on the cell; if not, whether it gets near."""
    tableau, tol = program.tableau, program.error[f]
    v, scale = tableau.d + f, program.scale[f]
    if tableau.search(v, sign, Fraction(tol + SURE * program.norm[f]) * scale) is not End.OPTIMAL:
        return True, False
    value = sign * tableau.exact(v) / scale
    slack = tol + program.moved(f)
    return value > 0 and float(value) > slack, float(value) >= -slack


def _part(
    program: _Program,
    units: Units,
    items: Sequence[tuple[int, int, Fraction]],
    state: Sequence[int],
    cuts: Sequence[int],
    fixed: npt.NDArray[np.uint8],
    tolerance: FloatArray,
    first_label: int,
    steps: int,
    rows: int,
    near: bool,
) -> Part:
    d, first = program.tableau.d, len(program.code)
    A: list[list[float]] = []
    b: list[float] = []
    error: list[float] = []
    labels: list[int] = []
    known: dict[int, int] = {}
    for a in cuts:
        k, s, t = items[a]
        norm, sign = Fraction(float(units.norm[k])), -state[a]
        known[first + a] = 2 * d + rows + len(b)
        A.append([float(sign * x / norm) for x in units.C[k]])
        b.append(float(sign * (t - units.c[k]) / norm))
        error.append(float(tolerance[k] / units.norm[k]))
        labels.append(first_label + k * steps + s)
    piece = fixed.copy()
    for (k, _, _), side in zip(items, state, strict=True):
        piece[k] += side > 0
    return Part(
        np.reshape(np.array(A, float), (-1, d)),
        np.array(b, float),
        np.array(error, float),
        np.array(labels, np.int32),
        piece,
        program.codes(known),
        near,
    )


# -- what a cell looks like ------------------------------------------------------------------------------------------


def exact_vertex(cell: Cell) -> Labels | None:
    """The codes of a vertex; None if the cell is empty."""
    found = _Program.of(cell)
    return None if found is None else found.codes({})


def exact_bounds(cell: Cell) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bound of each coordinate; infinite where there is none."""
    program = _Program.of(cell)
    d = len(cell.lower)
    if program is None:
        return np.full(d, np.nan), np.full(d, np.nan)
    ends = np.empty((2, d))
    for q in range(d):
        for row, sign in enumerate((-1, 1)):
            end = program.tableau.search(q, sign, None)
            ends[row, q] = sign * np.inf if end is End.UNBOUNDED else float(program.tableau.exact(q))
    return ends[0], ends[1]


def exact_centre(cell: Cell, scale: FloatArray, cap: float) -> tuple[FloatArray, float]:
    """Centre and radius, in units of `x`, of a largest ball in the cell; of one of radius `cap` where there is one."""
    d = len(cell.lower)
    flat = np.concatenate([cell.A, np.zeros((0, d))])
    norms = np.linalg.norm(flat / scale, axis=1)
    low, high = np.isfinite(cell.lower), np.isfinite(cell.upper)
    eye = np.eye(d)
    A = np.concatenate([-eye[low], eye[high], flat])
    radius = np.concatenate([1 / scale[low], 1 / scale[high], norms])
    b = np.concatenate([-cell.lower[low], cell.upper[high], cell.b])
    ball = Cell(
        np.column_stack([A, radius]),
        b,
        np.zeros(len(b)),
        (),
        np.append(np.full(d, -np.inf), 0.0),
        np.append(np.full(d, np.inf), cap),
    )
    program = _Program.of(ball)
    if program is None:
        return np.full(d, np.nan), -np.inf
    if program.tableau.search(d, POSITIVE, None) is End.UNBOUNDED:
        return np.array([float(y) for y in program.tableau.coordinates()[:d]]), np.inf
    *y, r = program.tableau.coordinates()
    return np.array([float(x) for x in y]), float(r)


def exact_facets(cell: Cell, inside: FloatArray) -> tuple[Index, FloatArray]:
    """Which slacks (sides of the box that are finite, lower ones first, then rows) are facets, and a point inside each.

    Each in turn is lifted and pushed outwards as far as the others let it; what is no facet stays lifted.
    """
    d = len(cell.lower)
    slack, _ = _slacks(cell)
    # No bound is passed by more than 4, the size of the domain: so every search ends at a point.
    program = _Program.of(cell, [[row[0] + 4, *row[1:]] for row in slack], [1.0] * len(slack), [0.0] * len(slack))
    if program is None:
        return np.zeros(0, np.int64), np.zeros((0, d))
    tableau = program.tableau
    for i in range(len(slack)):
        tableau.kind[d + len(slack) + i] = POSITIVE
    start = fractions(inside)
    kept, points = [], []
    for position, i in enumerate(sorted(range(len(slack)), key=lambda i: _order(program.code[i], d))):
        look()
        v = d + i
        tableau.kind[v] = FREE
        tableau.search(v, -1, None)
        beyond = -tableau.exact(v) / program.scale[i]
        if beyond <= 0 or float(beyond) <= program.error[i] + program.moved(i):
            continue
        room = slack[i][0] + sum((a * y for a, y in zip(slack[i][1:], start, strict=True)), Fraction(0))
        share = room / (room + beyond)
        there = tableau.coordinates()
        points.append([float(x + share * (y - x)) for x, y in zip(start, there, strict=True)])
        kept.append(position)
        if not tableau.demand(v, POSITIVE):
            raise AssertionError("a bound that held before holds again")
    return np.array(kept, np.int64), np.reshape(np.array(points, float), (-1, d))


def _order(code: int, d: int) -> int:
    """Lower sides of all axes, upper sides, rows: as `HPolytopes.rows` has them."""
    return code if code >= 2 * d else (code >> 1) + d * (code & 1)
