"""References: probabilities of events by rational arithmetic, to 50 digits where a normal distribution comes in.

Every float is the rational that it is, so the reference speaks of the real-valued network of the stored weights and of
the law of the stored numbers. A law is a list of shares (`Share`): a point, or `x = base + D t` with one or two
independent coordinates t, each uniform on an interval or normal on an interval (normalised there). Along them the
network is cut at every break point and every row of the event, and the formula is asked at one inner point of each
piece. Nothing is rounded before the last step, the mass of the piece: exact for intervals and for areas,
Gauss-Legendre quadrature (about 1e-13) for a normal coordinate in two dimensions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath
import numpy as np
from scipy.special import ndtr

from reluscope.network import Network

mpmath.mp.dps = 60
Vector = tuple[Fraction, ...]
_WIDE = 60
"""Normal coordinates are cut here in one dimension: 1e-783 lies beyond; in two at 13, 1e-38."""
_WIDE_PLANE = 13
QUADRATURE = 2e-12
"""What the quadrature in two dimensions may be off by."""


class Axis(NamedTuple):
    """One coordinate: "uniform" or "normal" (standard) on [low, high]; None for an infinite side."""

    kind: str
    low: Fraction | None = None
    high: Fraction | None = None


class Share(NamedTuple):
    """`weight` of the law sits at `base + sum of t_i directions[i]`."""

    weight: Fraction
    base: Vector
    directions: tuple[Vector, ...] = ()
    axes: tuple[Axis, ...] = ()


class Point(NamedTuple):
    """What a formula may read at one input."""

    x: Vector
    y: Vector
    pieces: tuple[tuple[int, ...], ...]
    J: Callable[[], tuple[Vector, ...]]


class Affine(NamedTuple):
    """`slope . t + offset`."""

    slope: Vector
    offset: Fraction

    def __call__(self, t: Vector) -> Fraction:
        return sum((a * b for a, b in zip(self.slope, t, strict=True)), self.offset)


class Exact:
    """A network in rational arithmetic."""

    def __init__(self, net: Network) -> None:
        self.layers = []
        for layer in net.layers:
            W = [[Fraction(float(w)) for w in row] for row in layer.dense()]
            b = [Fraction(float(v)) for v in layer.bias]
            acts = []
            for kind in layer.units.kind:
                act = layer.units.kinds[kind]
                acts.append(
                    tuple(tuple(Fraction(v) for v in part) for part in (act.breaks, act.slopes, act.intercepts))
                )
            self.layers.append((W, b, acts))

    def at(self, x: Vector) -> Point:
        """Outputs and pieces at one input; a value on a break point belongs to the piece below."""
        z = list(x)
        pieces = []
        for W, b, acts in self.layers:
            h = [sum((w * v for w, v in zip(row, z, strict=True) if w), c) for row, c in zip(W, b, strict=True)]
            own = tuple(sum(v > t for t in act[0]) for v, act in zip(h, acts, strict=True))
            z = [act[1][p] * v + act[2][p] for v, act, p in zip(h, acts, own, strict=True)]
            pieces.append(own)

        def jacobian() -> tuple[Vector, ...]:
            rows = [[Fraction(int(i == j)) for j in range(len(x))] for i in range(len(x))]
            for (W, _, acts), own in zip(self.layers, pieces, strict=True):
                rows = [
                    [
                        act[1][p] * sum((w * r[j] for w, r in zip(row, rows, strict=True) if w), Fraction(0))
                        for j in range(len(x))
                    ]
                    for row, act, p in zip(W, acts, own, strict=True)
                ]
            return tuple(tuple(r) for r in rows)

        return Point(tuple(x), tuple(z), tuple(pieces), jacobian)


Formula = Any
"""("row", {("x", i) or ("y", j): float}, op, float), ("J", j, i, op, float), ("unit", layer, unit, op, piece),
("abs" or "max" or "min", [forms], op, float), ("arg", "argmax" or "argmin", k), ("and" or "or", parts),
("not", part)"""


def compare(left: Fraction, op: str, right: Fraction) -> bool:
    """`left op right`."""
    return {
        "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right,
        "==": left == right, "!=": left != right,
    }[op]  # fmt: skip


def _form(form: dict[tuple[str, int], float], p: Point) -> Fraction:
    return sum((Fraction(a) * (p.x if v == "x" else p.y)[i] for (v, i), a in form.items()), Fraction(0))


def holds(formula: Formula, p: Point) -> bool:
    """Whether the formula holds at a point."""
    kind = formula[0]
    if kind == "and":
        return all(holds(part, p) for part in formula[1])
    if kind == "or":
        return any(holds(part, p) for part in formula[1])
    if kind == "not":
        return not holds(formula[1], p)
    if kind == "row":
        return compare(_form(formula[1], p), formula[2], Fraction(formula[3]))
    if kind == "J":
        return compare(p.J()[formula[1]][formula[2]], formula[3], Fraction(formula[4]))
    if kind == "unit":
        return compare(Fraction(p.pieces[formula[1]][formula[2]]), formula[3], Fraction(formula[4]))
    if kind == "arg":
        best = max(p.y) if formula[1] == "argmax" else min(p.y)
        return p.y.index(best) == formula[2]
    values = [_form(form, p) for form in formula[1]]
    value = abs(values[0]) if kind == "abs" else max(values) if kind == "max" else min(values)
    return compare(value, formula[2], Fraction(formula[3]))


def _levels(formula: Formula, n_outputs: int) -> list[tuple[dict[tuple[str, int], float], Fraction]]:
    """Linear forms and the levels at which the formula's truth can change."""
    kind = formula[0]
    if kind in ("and", "or"):
        return [level for part in formula[1] for level in _levels(part, n_outputs)]
    if kind == "not":
        return _levels(formula[1], n_outputs)
    if kind == "row":
        return [(formula[1], Fraction(formula[3]))]
    if kind == "arg":
        return [({("y", i): 1.0, ("y", j): -1.0}, Fraction(0)) for i in range(n_outputs) for j in range(i)]
    if kind == "abs":
        return [(formula[1][0], Fraction(s * formula[3])) for s in (1, -1)]
    if kind in ("max", "min"):
        return [(form, Fraction(formula[3])) for form in formula[1]]
    return []


# -- probabilities ---------------------------------------------------------------------------------------------------


def probability(net: Network, law: Sequence[Share], formula: Formula) -> tuple[Any, float]:
    """`P(formula)`, and what it may be off by."""
    exact = Exact(net)
    total, doubt = mpmath.mpf(0), 0.0
    for share in law:
        if not share.axes:
            total += _mp(share.weight) * int(holds(formula, exact.at(share.base)))
        elif len(share.axes) == 1:
            total += _mp(share.weight) * _on_line(exact, share, formula)
        else:
            total += _mp(share.weight) * _on_plane(exact, share, formula)
            if any(axis.kind == "normal" for axis in share.axes):
                doubt += float(share.weight) * QUADRATURE
    return min(max(total, mpmath.mpf(0)), mpmath.mpf(1)), doubt + 1e-50


def _mp(value: Fraction) -> Any:
    return mpmath.mpf(value.numerator) / mpmath.mpf(value.denominator)


def _inputs(share: Share) -> list[Affine]:
    return [Affine(tuple(d[i] for d in share.directions), share.base[i]) for i in range(len(share.base))]


def _combined(weights: Sequence[Fraction], maps: Sequence[Affine], offset: Fraction) -> Affine:
    k = len(maps[0].slope)
    slope = tuple(sum((w * m.slope[i] for w, m in zip(weights, maps, strict=True) if w), Fraction(0)) for i in range(k))
    return Affine(slope, sum((w * m.offset for w, m in zip(weights, maps, strict=True) if w), offset))


def _row(form: dict[tuple[str, int], float], x: Sequence[Affine], y: Sequence[Affine], level: Fraction) -> Affine:
    maps = [(x if v == "x" else y)[i] for v, i in form]
    return _combined([Fraction(a) for a in form.values()], maps, -level)


def _normal(low: Fraction | None, high: Fraction | None) -> Any:
    """Mass of a standard normal between two numbers, accurate in both tails."""
    if low is not None and high is not None and low > 0:
        low, high = -high, -low
    elif low is not None and high is None and low > 0:
        low, high = None, -low
    below = mpmath.mpf(0) if low is None else mpmath.erfc(-_mp(low) / mpmath.sqrt(2)) / 2
    above = mpmath.mpf(1) if high is None else mpmath.erfc(-_mp(high) / mpmath.sqrt(2)) / 2
    return above - below


def _on_line(exact: Exact, share: Share, formula: Formula) -> Any:
    axis = share.axes[0]
    far = Fraction(_WIDE)
    centre = Fraction(0) if axis.low is None or axis.low < far else axis.low
    centre = axis.high if axis.high is not None and axis.high < -far else centre
    low = centre - far if axis.low is None else axis.low
    high = centre + far if axis.high is None else axis.high
    x = _inputs(share)
    done: list[tuple[Fraction, Fraction]] = []
    work = [(low, high, 0, x)]
    while work:
        a, b, depth, z = work.pop()
        if depth == len(exact.layers):
            cuts = {a, b}
            for form, level in _levels(formula, len(z)):
                row = _row(form, x, z, level)
                if row.slope[0]:
                    cuts.add(-row.offset / row.slope[0])
            ends = sorted(t for t in cuts if a <= t <= b)
            for left, right in itertools.pairwise(ends):
                middle = (left + right) / 2
                if holds(formula, exact.at(tuple(v((middle,)) for v in x))):
                    done.append((left, right))
            continue
        W, bias, acts = exact.layers[depth]
        h = [_combined(row, z, c) for row, c in zip(W, bias, strict=True)]
        cuts = {a, b}
        for v, act in zip(h, acts, strict=True):
            if v.slope[0]:
                cuts |= {(t - v.offset) / v.slope[0] for t in act[0]}
        ends = sorted(t for t in cuts if a <= t <= b)
        for left, right in itertools.pairwise(ends):
            middle = ((left + right) / 2,)
            work.append((left, right, depth + 1, _through(h, acts, middle)))
    if axis.kind == "uniform":
        return _mp(sum((b - a for a, b in done), Fraction(0)) / (high - low))
    ends_of = [
        (None if a == low and axis.low is None else a, None if b == high and axis.high is None else b) for a, b in done
    ]
    return sum((_normal(a, b) for a, b in ends_of), mpmath.mpf(0)) / _normal(axis.low, axis.high)


def _through(h: Sequence[Affine], acts: Any, inside: Vector) -> list[Affine]:
    out = []
    for v, act in zip(h, acts, strict=True):
        p = sum(v(inside) > t for t in act[0])
        out.append(Affine(tuple(act[1][p] * s for s in v.slope), act[1][p] * v.offset + act[2][p]))
    return out


Polygon = list[Vector]


def _cut(polygon: Polygon, row: Affine) -> list[Polygon]:
    """The two sides of a convex polygon, those with an inside."""
    values = [row(p) for p in polygon]
    if all(v >= 0 for v in values) or all(v <= 0 for v in values):
        return [polygon]
    sides: list[Polygon] = []
    for sign in (1, -1):
        part: Polygon = []
        for i, (p, v) in enumerate(zip(polygon, values, strict=True)):
            q, w = polygon[i - 1], values[i - 1]
            if v * w < 0:
                s = w / (w - v)
                part.append(tuple(a + s * (b - a) for a, b in zip(q, p, strict=True)))
            if sign * v >= 0:
                part.append(p)
        sides.append(part)
    return sides


def _centre(polygon: Polygon) -> Vector:
    return tuple(sum((p[i] for p in polygon), Fraction(0)) / len(polygon) for i in range(2))


def _on_plane(exact: Exact, share: Share, formula: Formula) -> Any:
    sides = []
    for axis in share.axes:
        far = Fraction(_WIDE_PLANE)
        low, high = axis.low, axis.high
        if axis.kind == "normal":
            low = max(-far, -far if low is None else low) if high is None or high > -far else low
            high = min(far, far if high is None else high) if low < far else high
        sides.append((low, high))
    (a, b), (c, d) = sides
    x = _inputs(share)
    work = [([(a, c), (b, c), (b, d), (a, d)], 0, x)]
    found: list[Polygon] = []
    while work:
        polygon, depth, z = work.pop()
        rows: list[Affine] = []
        if depth == len(exact.layers):
            rows = [_row(form, x, z, level) for form, level in _levels(formula, len(z))]
        else:
            W, bias, acts = exact.layers[depth]
            h = [_combined(row, z, v) for row, v in zip(W, bias, strict=True)]
            rows = [Affine(v.slope, v.offset - t) for v, act in zip(h, acts, strict=True) for t in act[0]]
        parts = [polygon]
        for row in rows:
            parts = [side for part in parts for side in _cut(part, row)]
        for part in parts:
            inside = _centre(part)
            if depth < len(exact.layers):
                work.append((part, depth + 1, _through(h, acts, inside)))
            elif holds(formula, exact.at(tuple(v(inside) for v in x))):
                found.append(part)
    kinds = [axis.kind for axis in share.axes]
    if kinds == ["uniform", "uniform"]:
        return _mp(sum((_area(p) for p in found), Fraction(0)) / ((b - a) * (d - c)))
    whole = [
        _normal(axis.low, axis.high) if axis.kind == "normal" else _mp(hi - lo)
        for axis, (lo, hi) in zip(share.axes, sides, strict=True)
    ]
    return mpmath.mpf(sum(_quadrature(p, kinds) for p in found)) / whole[0] / whole[1]


def _area(polygon: Polygon) -> Fraction:
    total = Fraction(0)
    for (a, b), (c, d) in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        total += a * d - b * c
    return abs(total) / 2


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


def _quadrature(polygon: Polygon, kinds: Sequence[str]) -> float:
    """Mass of a polygon: the inner coordinate in closed form, the outer one by Gauss-Legendre in short steps."""
    corners = sorted({p[0] for p in polygon})
    total = 0.0
    for left, right in itertools.pairwise(corners):
        middle = (left + right) / 2
        lines = []
        for p, q in zip(polygon, polygon[1:] + polygon[:1], strict=True):
            if min(p[0], q[0]) < middle < max(p[0], q[0]):
                slope = (q[1] - p[1]) / (q[0] - p[0])
                lines.append((p[1] + slope * (middle - p[0]), slope))
        (low, low_slope), (high, high_slope) = sorted(lines)
        steep = max(abs(_float(low_slope)), abs(_float(high_slope)), 1.0)
        width = float(right - left)
        # The inner mass changes over a distance 1 / slope of the outer coordinate.
        steps = max(1, min(int(np.ceil(2.0 * width)), 400)) if steep < 3 else 0
        edges = np.linspace(-0.5, 0.5, steps + 1) if steps else _graded(low, low_slope, high, high_slope, width)
        for a, b in itertools.pairwise(edges):
            t = width * (0.5 * (a + b) + 0.5 * (b - a) * _NODES)
            u, v = float(low) + _float(low_slope) * t, float(high) + _float(high_slope) * t
            inner = (v - u) if kinds[1] == "uniform" else np.where(u > 0, ndtr(-u) - ndtr(-v), ndtr(v) - ndtr(u))
            outer = 1.0 if kinds[0] == "uniform" else np.exp(-0.5 * (float(middle) + t) ** 2) / np.sqrt(2 * np.pi)
            total += float(width * 0.5 * (b - a) * (_WEIGHTS * outer * inner).sum())
    return total


def _float(value: Fraction) -> float:
    """The nearest float, cut at 1e300."""
    return float(min(max(value, Fraction(-(10**300))), Fraction(10**300)))


def _graded(low: Fraction, low_slope: Fraction, high: Fraction, high_slope: Fraction, width: float) -> Any:
    """Steps for steep sides: fine where a side passes |inner coordinate| < 10."""
    edges = {-0.5, 0.5, *np.linspace(-0.5, 0.5, int(np.ceil(2 * width)) + 1).tolist()}
    for value, slope in ((low, low_slope), (high, high_slope)):
        if slope:
            for level in np.linspace(-10, 10, 41):
                t = float((Fraction(float(level)) - value) / slope) / width
                if -0.5 < t < 0.5:
                    edges.add(t)
    return np.array(sorted(edges))
