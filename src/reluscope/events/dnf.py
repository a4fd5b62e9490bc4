"""The disjunctive normal form: a formula of linear rows as a union of conjunctions.

The text language and VNN-LIB both read into trees of `Row` and `Join`; nothing here recurses, so that trees may be
deep, and every product is counted against `Limits` before it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import chain, groupby, product
from typing import Any, NamedTuple

import numpy as np

from reluscope.errors import InputError
from reluscope.limits import Limits

Variable = tuple[Any, ...]
"""`("x", i)`, `("y", j)`, `("J", j, i)`, `("norm", kind)`, or `("unit", layer, unit)`; everything counts from 0."""

_MOST_ABSORBED = 1000
"""Up to here a union of conjunctions is searched for ones that another one contains (quadratic)."""


class Row(NamedTuple):
    """`sum of coefficient * variable <= rhs`, or `<` when strict."""

    terms: tuple[tuple[Variable, float], ...]
    rhs: float
    strict: bool

    def negated(self) -> Row:
        """What holds exactly where this row does not."""
        return Row(tuple((v, -a) for v, a in self.terms), -self.rhs, not self.strict)

    @property
    def always(self) -> bool | None:
        """True or False when no variable is left, None otherwise."""
        if self.terms:
            return None
        return self.rhs > 0.0 if self.strict else self.rhs >= 0.0


class Join(NamedTuple):
    """`and`, `or` of formulas, or `not` of one."""

    op: str
    parts: tuple[Any, ...]


Formula = Row | Join
Conjunction = tuple[Row, ...]


def rounded_row(terms: Mapping[Variable, Fraction], rhs: Fraction, strict: bool) -> Row:
    """`sum of terms <= rhs` in float64; with one variable its coefficient becomes 1 or -1."""
    terms = {v: a for v, a in terms.items() if a}
    if len(terms) == 1:
        scale = abs(next(iter(terms.values())))
        terms, rhs = {v: a / scale for v, a in terms.items()}, rhs / scale
    try:
        # Sorted, so that the same condition written in two ways is the same row.
        row = Row(tuple(sorted((v, float(a)) for v, a in terms.items())), float(rhs), strict)
    except OverflowError:
        raise InputError("a number of this condition is too large for a 64-bit float") from None
    if any(a == 0 for _, a in row.terms):
        raise InputError("a coefficient of this condition is too small for a 64-bit float")
    if not terms and rhs:  # keep the sign of a constant that would round to zero
        return Row((), 1.0 if rhs > 0 else -1.0, strict)
    return row


def disjuncts(formula: Formula, limits: Limits, name: str, *, reduce: bool = True) -> list[Conjunction]:
    """The formula as a union of conjunctions, in the order of its rows; none when it can never hold.

    With `reduce`, repeated, contradictory and absorbed conjunctions are left out on the way, which keeps formulas that
    people write small. Machine-made ones have none of these, and are read faster without.
    """
    what = f"{name}, in disjunctive normal form,"
    made: list[list[Conjunction]] = []
    size = 0  # rows in all of them; never more than in the normal form itself
    for node, positive in _postorder(formula):
        limits.check_time(what)
        if isinstance(node, Row):
            row = node if positive else node.negated()
            made.append([(row,)] if row.terms else [()] if row.always else [])
            size += 1
            continue
        if node.op == "not":
            continue
        first = len(made) - len(node.parts)
        parts = made[first:]
        del made[first:]
        if (node.op == "and") == positive:
            if all(len(part) == 1 for part in parts):  # nothing to choose
                one = [tuple(chain.from_iterable([part[0] for part in parts]))]
                made.append(_reduced(one, limits, what) if reduce else one)
                continue
            size -= sum(map(_size, parts))
            found = _product(parts, limits, what, reduce)
            size += _size(found)
        else:
            found = list(chain.from_iterable(parts))
            found = _reduced(found, limits, what) if reduce else found
        limits.check("disjuncts", len(found), what)
        limits.check("tokens", size, what)
        made.append(found)
    return made[0]


def _size(part: list[Conjunction]) -> int:
    return sum(map(len, part))


def _postorder(formula: Formula) -> list[tuple[Formula, bool]]:
    """Every node with its polarity (False under an odd number of `not`), children first, left to right."""
    order: list[tuple[Formula, bool]] = []
    todo: list[tuple[Formula, bool]] = [(formula, True)]
    while todo:
        node, positive = todo.pop()
        order.append((node, positive))
        if isinstance(node, Join):
            inside = positive != (node.op == "not")
            todo += [(part, inside) for part in node.parts]
    order.reverse()
    return order


def _product(parts: list[list[Conjunction]], limits: Limits, what: str, reduce: bool) -> list[Conjunction]:
    """All ways to choose a conjunction from each part, joined."""
    found: list[Conjunction] = [()]
    for single, run in groupby(parts, key=lambda part: len(part) == 1):
        if single:  # nothing to choose: joined at once
            more = tuple(chain.from_iterable(part[0] for part in run))
            found = [a + more for a in found]
            continue
        for choices in run:
            limits.check("disjuncts", len(found) * len(choices), what)
            limits.check("tokens", len(choices) * _size(found) + len(found) * _size(choices), what)
            found = [a + b for a, b in product(found, choices)]
            if reduce:
                found = _reduced(found, limits, what)
    return _reduced(found, limits, what) if reduce else found


def _reduced(conjunctions: Iterable[Conjunction], limits: Limits, what: str) -> list[Conjunction]:
    """Conjunctions without repeated rows, without those that hold a row and its opposite, or more than another one."""
    distinct: dict[frozenset[Row], Conjunction] = {}
    opposite: dict[Row, Row] = {}
    for number, conjunction in enumerate(conjunctions):
        if not number % 64:  # numbers can be chosen so that all hashes are equal
            limits.check_time(what)
        rows = frozenset(conjunction)
        for row in rows:
            if row not in opposite:
                opposite[row] = row.negated()
        if rows not in distinct and not any(opposite[row] in rows for row in rows):
            distinct[rows] = conjunction if len(rows) == len(conjunction) else tuple(dict.fromkeys(conjunction))
    if not 1 < len(distinct) <= _MOST_ABSORBED:
        return list(distinct.values())
    by_size = sorted(distinct, key=len)
    kept: list[frozenset[Row]] = []
    for rows_of in by_size:
        if not any(smaller <= rows_of for smaller in kept):
            kept.append(rows_of)
    left = set(kept)
    return [conjunction for rows_of, conjunction in distinct.items() if rows_of in left]


class Bounds(NamedTuple):
    """What every conjunction of a formula shares: bounds of single inputs, and all other rows."""

    lower: dict[int, float]
    upper: dict[int, float]
    rows: list[Row]


def split(conjunction: Conjunction, shared: Bounds) -> tuple[tuple[tuple[int, float, float], ...], list[Row]] | None:
    """Input bounds `(input, lower, upper)` that differ from the shared ones, and all other rows.

    A strict bound of an input is in both. None when the bounds of a variable contradict each other.
    """
    bounds: dict[Variable, tuple[float, float]] = {}
    rows = list(shared.rows)
    lower, upper = shared.lower, shared.upper

    def sides(variable: Variable) -> tuple[float, float]:
        if variable[0] != "x":
            return -np.inf, np.inf
        return lower.get(variable[1], -np.inf), upper.get(variable[1], np.inf)

    for row in conjunction:
        if len(row.terms) != 1:
            rows.append(row)
            continue
        variable, a = row.terms[0]
        low, high = bounds.get(variable) or sides(variable)
        at = row.rhs / a
        if a > 0:
            high = min(at, high)
        else:
            low = max(at, low)
        if low > high:
            return None
        bounds[variable] = (low, high)
        if row.strict or variable[0] != "x":
            rows.append(row)
    for row in rows:
        if row.strict and len(row.terms) == 1:
            variable, a = row.terms[0]
            # Only the single point low == high can miss a strict bound altogether.
            low, high = bounds.get(variable) or sides(variable)
            if low == high == row.rhs / a:
                return None
    changed = [(v[1], *ends) for v, ends in bounds.items() if v[0] == "x" and ends != sides(v)]
    return tuple(sorted(changed)), rows
