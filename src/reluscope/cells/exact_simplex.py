"""The simplex method in whole numbers: for linear programs that rounding leaves in doubt.

Every float is a whole number over a power of two, so a linear program in floats can be solved without any rounding.
The dictionary has one common denominator (Edmonds): a step multiplies, subtracts and divides without a remainder, and
fractions are never reduced. Numbers grow with the dimension, not with the number of steps: entries are minors of the
data. A step costs about 0.1 ms for 20 rows in 6 variables, a thousand times what it costs in `reluscope.cells.simplex`:
this is for the few cells that need it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray

FREE, POSITIVE, NEGATIVE = 0, 1, -1
"""What may become of a variable: any value, `>= 0`, `<= 0`."""

_PATIENCE = 12
"""Steps that lead nowhere before the lowest number decides (Bland's rule, which cannot cycle)."""


class End(Enum):
    """How a search ended: the goal was passed, the optimum was found first, or there is no end."""

    BEYOND = "beyond"
    OPTIMAL = "optimal"
    UNBOUNDED = "unbounded"


def whole(numbers: Sequence[Fraction]) -> tuple[list[int], int]:
    """Fractions over a common denominator: whole numbers and the denominator."""
    scale = math.lcm(*(x.denominator for x in numbers))
    return [x.numerator * (scale // x.denominator) for x in numbers], scale


class Tableau:
    """Affine functions of `d` free variables, and the variables themselves, as a dictionary in whole numbers.

        variable_i = (table[i, 0] + sum_j table[i, 1 + j] * variable_{nonbasic[j]}) / denominator   for basic ones

    Variables `0 .. d - 1` are the coordinates, `d + i` is function i times its scale. All nonbasic variables are 0.
    `kind[v]` says which sign a variable must have. Searches assume that the present point obeys; `demand` makes it so.
    """

    def __init__(self, d: int, rows: Sequence[Sequence[int]]) -> None:
        """`rows[i]` holds the constant of function i, then its `d` coefficients."""
        self.d = d
        self.table: npt.NDArray[np.object_] = np.empty((len(rows), d + 1), object)
        for i, row in enumerate(rows):
            self.table[i] = row
        self.denominator = 1
        self.basic = list(range(d, d + len(rows)))
        self.nonbasic = list(range(d))
        self.where = {v: -1 - j for j, v in enumerate(self.nonbasic)} | {v: i for i, v in enumerate(self.basic)}
        self.kind = [FREE] * (d + len(rows))

    def copy(self) -> Tableau:
        """The same dictionary, to be changed on its own."""
        other = object.__new__(Tableau)
        other.d, other.denominator = self.d, self.denominator
        other.table = self.table.copy()
        other.basic, other.nonbasic = self.basic.copy(), self.nonbasic.copy()
        other.where, other.kind = self.where.copy(), self.kind.copy()
        return other

    def value(self, v: int) -> int:
        """The present value of a variable, times the denominator."""
        i = self.where[v]
        return int(self.table[i, 0]) if i >= 0 else 0

    def exact(self, v: int) -> Fraction:
        """The present value of a variable."""
        return Fraction(self.value(v), self.denominator)

    def coordinates(self) -> list[Fraction]:
        """The present point."""
        return [self.exact(q) for q in range(self.d)]

    def slopes(self, v: int) -> list[tuple[int, Fraction]]:
        """A basic variable as a function of the nonbasic ones: their numbers and coefficients."""
        row = self.table[self.where[v]]
        return [(w, Fraction(int(row[1 + j]), self.denominator)) for j, w in enumerate(self.nonbasic) if row[1 + j]]

    def exchange(self, r: int, j: int) -> None:
        """Make the basic variable of row `r` nonbasic in column `j`, and the other way round."""
        table, c = self.table, 1 + j
        pivot, old = table[r, c], self.denominator
        row, column = table[r].copy(), table[:, c].copy()
        table *= pivot
        table -= np.multiply.outer(column, row)
        table //= old
        table[:, c] = column
        table[r] = -row
        table[r, c] = old
        self.denominator = pivot
        if pivot < 0:
            np.negative(table, out=table)
            self.denominator = -pivot
        leaving, entering = self.basic[r], self.nonbasic[j]
        self.basic[r], self.nonbasic[j] = entering, leaving
        self.where[entering], self.where[leaving] = r, -1 - j

    def enter(self, v: int) -> bool:
        """Make a variable nonbasic, at 0, wherever that leads; False when it depends on the nonbasic ones alone."""
        r = self.where[v]
        if r < 0:
            return True
        columns = [j for j in range(self.d) if self.nonbasic[j] < self.d and self.table[r, 1 + j]]
        if not columns:
            return False
        self.exchange(r, max(columns, key=lambda j: abs(self.table[r, 1 + j])))
        return True

    def search(self, v: int, sign: int, goal: Fraction | None) -> End:
        """Raise `sign * variable` until it exceeds `goal` (None: never) or is at its largest."""
        stalled = 0
        while True:
            r = self.where[v]
            if goal is not None and sign * self.value(v) * goal.denominator > goal.numerator * self.denominator:
                return End.BEYOND
            j, way = self._entering(v, r, sign, stalled > _PATIENCE)
            if j < 0:
                return End.OPTIMAL
            row = self._blocking(j, way, -1)
            if row < 0:
                return End.UNBOUNDED
            stalled = stalled + 1 if self.table[row, 0] == 0 else 0
            self.exchange(row, j)

    def walk(self, v: int) -> bool:
        """Go to a point where a variable is 0 and make it nonbasic there; False when there is none."""
        r = self.where[v]
        if r < 0:
            return True
        sign = -1 if self.table[r, 0] > 0 else 1
        kept, self.kind[v] = self.kind[v], -sign
        stalled = 0
        while True:
            r = self.where[v]
            if self.table[r, 0] == 0:
                j = next((j for j in range(self.d) if self.table[r, 1 + j]), -1)
                found = j >= 0
                if found:
                    self.exchange(r, j)
                break
            j, way = self._entering(v, r, sign, stalled > _PATIENCE)
            if j < 0:
                found = False
                break
            row = self._blocking(j, way, r)
            stalled = stalled + 1 if self.table[row, 0] == 0 else 0
            self.exchange(row, j)
            if row == r:
                found = True
                break
        self.kind[v] = kept
        return found

    def demand(self, v: int, sign: int) -> bool:
        """From now on `sign * variable >= 0`, at the present point too; False when the others do not allow it."""
        if sign * self.value(v) < 0:
            end = self.search(v, sign, Fraction(0))
            if end is End.OPTIMAL and sign * self.value(v) < 0:
                return False
            if sign * self.value(v) < 0 and not self.walk(v):
                return False
        self.kind[v] = sign
        return True

    def _entering(self, v: int, r: int, sign: int, bland: bool) -> tuple[int, int]:
        """A column that raises `sign * variable v` (of row `r`), and the way it must move; (-1, 0) if there is none."""
        if r < 0:
            kind = self.kind[v]
            return (-1 - r, sign) if kind in (FREE, sign) else (-1, 0)
        row = self.table[r]
        best: Any = 0
        column, way = -1, 0
        for j, w in enumerate(self.nonbasic):
            gain = sign * row[1 + j]
            if gain == 0 or (gain > 0 and self.kind[w] == NEGATIVE) or (gain < 0 and self.kind[w] == POSITIVE):
                continue
            if bland:
                if column < 0 or w < self.nonbasic[column]:
                    column, way = j, 1 if gain > 0 else -1
            elif abs(gain) > best:
                best, column, way = abs(gain), j, 1 if gain > 0 else -1
        return column, way

    def _blocking(self, j: int, way: int, first: int) -> int:
        """The row that stops column `j`; ties to row `first`, then to the lowest variable. -1 if nothing does."""
        best = -1
        top: Any = 0
        bottom: Any = 1
        for i, v in enumerate(self.basic):
            kind = self.kind[v]
            if kind == FREE:
                continue
            rate = way * kind * self.table[i, 1 + j]
            if rate >= 0:
                continue
            room = kind * self.table[i, 0]
            here, there = room * bottom, top * -rate
            if best < 0 or here < there or (here == there and best != first and (i == first or v < self.basic[best])):
                best, top, bottom = i, room, -rate
        return best


def fractions(values: FloatArray) -> list[Fraction]:
    """Floats as the fractions that they are; fractions as they are."""
    return [x if isinstance(x, Fraction) else Fraction(float(x)) for x in values]
