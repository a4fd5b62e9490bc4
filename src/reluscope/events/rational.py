"""Events at points, decided: float arithmetic with an error bound, exact fractions where that cannot tell.

The question is about the real-valued network of the stored numbers. A point that neither can decide (the fractions
would take too long, or a norm of the Jacobian is not rational) may be in or out: callers keep it inside their brackets.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope.events.record import BoolArray, Case, Event
from reluscope.network import Layer, Network

_MOST_WORK = 4_000_000
"""Products of fractions that one question may cost, a few seconds; points beyond it stay undecided."""

_ROUNDOFF = 1.2e-16
"""Unit roundoff, with room for second-order terms."""

_TINY = 1e-290
"""Added where a product may have underflowed."""

_CHUNK_NUMBERS = 1 << 20

Rational = list[Fraction]


def decided(net: Network, event: Event, points: FloatArray, *, fractions: bool = True) -> tuple[BoolArray, BoolArray]:
    """Whether each point (n, inputs) is surely in the event, and whether it may be in it, shape (n,) each.

    The two are equal for all points that could be decided; without `fractions`, by floats and their error bounds alone.
    """
    event.check(net)
    surely, maybe = np.zeros(len(points), bool), np.zeros(len(points), bool)
    step = max(1, _CHUNK_NUMBERS // max(net.widths))
    with np.errstate(all="ignore"):
        for start in range(0, len(points), step):
            some = np.arange(start, min(start + step, len(points)))
            if event.linear:  # one bound per point decides nearly all of them
                surely[some], maybe[some] = _at_once(net, event, points[some])
                some = some[maybe[some] & ~surely[some]]
            if len(some):
                surely[some], maybe[some] = _by_floats(net, event, points[some], fractions)
    open_ = np.flatnonzero(maybe & ~surely)
    work = sum(layer.width * layer.n_inputs for layer in net.layers)
    if open_.size and fractions:
        exact = ExactNetwork(net)
        for i in open_[: max(1, _MOST_WORK // work)]:
            inside = exact.inside(event, points[i])
            if inside is not None:
                surely[i] = maybe[i] = inside
    return surely, maybe


# -- floats with error bounds ----------------------------------------------------------------------------------------


def _by_floats(net: Network, event: Event, X: FloatArray, fractions: bool) -> tuple[BoolArray, BoolArray]:
    z, error = X, np.zeros(X.shape)
    patterns: list[Any] = []
    known = np.ones(len(X), bool)
    for layer in net.layers:
        h, error = _affine(layer, z, error)
        units = layer.units
        if units.is_identity:
            z = h
            patterns.append(np.zeros(h.shape, np.uint8))
            continue
        piece = units.pattern(h)
        slopes, intercepts = units.on(piece)
        gap = np.full(h.shape, np.inf)
        for k in range(units.breaks.shape[1]):
            gap = np.fmin(gap, np.abs(h - units.breaks[:, k]))
        sure = (gap > error) & np.isfinite(h)
        known &= sure.all(axis=1)
        z = slopes * h + intercepts
        plain = ((slopes == 0) | (np.abs(slopes) == 1)) & (intercepts == 0)
        steepest = np.abs(units.slopes).max(axis=1)
        error = np.where(sure, np.abs(slopes) * error, steepest * error)
        error = np.where(slopes == 0, np.where(sure, 0.0, error), error)
        error = error + np.where(plain, 0.0, 4 * _ROUNDOFF * (np.abs(slopes * h) + np.abs(intercepts)))
        patterns.append(piece)
    f, doubt_f = np.zeros((len(X), 0)), np.zeros((len(X), 0))
    if event.features:
        pattern = np.concatenate([*patterns[:-1], np.zeros((len(X), 0), np.uint8)], axis=1)
        f = event.feature_values(net, pattern)
        doubt_f = np.where(known[:, None], feature_errors(net, event), np.inf)
    exactly = _ExactFeatures(net, event) if event.features and fractions else None
    return _of_rows(event, X, z, error, f, doubt_f, exactly, pattern if event.features else None)


def _at_once(net: Network, event: Event, X: FloatArray) -> tuple[BoolArray, BoolArray]:
    """As `_by_floats` for an event on inputs and outputs, by one error bound for all outputs at a point."""
    size = np.abs(X).max(axis=1)
    for layer in net.layers:
        size = float(abs(layer.weight).sum(axis=1).max()) * size + float(np.abs(layer.bias).max())
        size = float(np.abs(layer.units.slopes).max()) * size + float(np.abs(layer.units.intercepts).max()) + _TINY
    error = _ROUNDOFF * (sum(net.widths) + 8 * len(net.layers)) * size + _TINY
    none = np.zeros((len(X), 0))
    return _of_rows(event, X, net(X), np.tile(error[:, None], (1, net.n_outputs)), none, none, None, None)


def _of_rows(
    event: Event,
    X: FloatArray,
    Y: FloatArray,
    error: FloatArray,
    f: FloatArray,
    doubt_f: FloatArray,
    exactly: _ExactFeatures | None,
    pattern: Any,
) -> tuple[BoolArray, BoolArray]:
    """Which points surely are, and which may be, in the event, given outputs and features and their errors."""
    surely, maybe = np.zeros(len(X), bool), np.zeros(len(X), bool)
    for case in event.cases:
        box = ((case.lower <= X) & (case.upper >= X)).all(axis=1)
        value, doubt = _rows(case, X, Y, error, f, doubt_f)
        if exactly is not None:
            exactly.settle(case, value, doubt, pattern)
        clear = np.isfinite(value) & np.isfinite(doubt)
        # Without any doubt the value is exact, and the sign of a float is.
        holds = np.where(doubt == 0, np.where(case.strict, value < 0, value <= 0), value < -doubt)
        fails = np.where(doubt == 0, ~np.where(case.strict, value < 0, value <= 0), value > doubt)
        surely |= box & (holds & clear).all(axis=1)
        maybe |= box & ~(fails & clear).any(axis=1)
    return surely, maybe


def _affine(layer: Layer, z: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`W z + b` and a bound of what it is off by, z being off by `error`."""
    h = layer.affine(z)
    size = np.asarray((abs(layer.weight) @ np.abs(z).T).T)
    carried = np.asarray((abs(layer.weight) @ error.T).T)
    rounded = (layer.n_inputs + 4) * _ROUNDOFF * (size + carried + np.abs(layer.bias)) + _TINY
    # Nothing but the bias: exact.
    live = np.asarray(((layer.weight != 0) @ ((z != 0) | (error != 0)).T.astype(float)).T) > 0
    return h, np.where(live, rounded + 1.0001 * carried, 0.0)


def _rows(
    case: Case, X: FloatArray, Y: FloatArray, error: FloatArray, f: FloatArray, doubt_f: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Each row minus its limit at each point, and what that may be off by; 0 where its sign is exact."""
    G, F = case.G, case.F
    A = np.asarray(case.A)
    value = np.tile(-case.g, (len(X), 1))
    size = np.tile(np.abs(case.g), (len(X), 1))
    doubt = np.zeros(value.shape)
    terms = np.tile(np.where(case.g != 0, 1.0, 0.0), (len(X), 1))
    for rows, numbers, errors in ((A, X, None), (G, Y, error), (F, f, doubt_f)):
        if not rows.any():
            continue
        # A finite number plus an infinite one of which the row reads nothing must stay finite.
        for k in range(rows.shape[1]):
            at = np.flatnonzero(rows[:, k])
            if not len(at):
                continue
            part = numbers[:, k : k + 1] * rows[at, k]
            value[:, at] += part
            size[:, at] += np.abs(part)
            terms[:, at] += (numbers[:, k : k + 1] != 0) * np.where(np.abs(rows[at, k]) == 1, 1.0, 2.0)
            if errors is not None:
                doubt[:, at] += errors[:, k : k + 1] * np.abs(rows[at, k])
    # The sum of two floats has the right sign; more terms are rounded on the way.
    rounded = np.where(terms <= 2, 0.0, (terms + 4) * _ROUNDOFF * size + _TINY)
    return value, 1.0001 * doubt + rounded


def feature_errors(net: Network, event: Event) -> FloatArray:
    """What the event's features, computed in float64 from a pattern, may be off by, shape (features,)."""
    doubt = np.zeros(len(event.features))
    if any(feature[0] != "unit" for feature in event.features):
        size = np.eye(net.n_inputs)
        for layer in net.layers:
            size = np.abs(layer.units.slopes).max(axis=1)[:, None] * np.asarray(abs(layer.weight) @ size)
        steps = sum(net.widths) + 4 * len(net.layers) + 8
        error = steps * _ROUNDOFF * size + _TINY
        for k, feature in enumerate(event.features):
            if feature[0] == "J":
                doubt[k] = error[feature[1], feature[2]]
            elif feature[0] == "norm":
                doubt[k] = 4 * error.sum() + 64 * max(size.shape) * _ROUNDOFF * size.sum()
    return doubt


class _ExactFeatures:
    """Rows on features alone, in fractions: they are constant on a region, and regions are few."""

    def __init__(self, net: Network, event: Event) -> None:
        self.net, self.event = net, event
        work = (net.n_inputs + 1) * sum(layer.width * layer.n_inputs for layer in net.layers)
        self.left = max(1, _MOST_WORK // work)
        self.known: dict[bytes, Rational | None] = {}

    def settle(self, case: Case, value: FloatArray, doubt: FloatArray, pattern: Any) -> None:
        """Put exact signs, without doubt, where a row on features alone is in doubt though the pattern is known."""
        alone = case.F.any(axis=1) & ~case.G.any(axis=1) & ~case.reads_inputs
        for k in np.flatnonzero(alone):
            unclear = np.flatnonzero(
                np.isfinite(doubt[:, k]) & (doubt[:, k] > 0) & ~(np.abs(value[:, k]) > doubt[:, k])
            )
            if not len(unclear):
                continue
            rows, which = np.unique(pattern[unclear], axis=0, return_inverse=True)
            for i, row in enumerate(rows):
                f = self._features(row)
                if f is None:
                    continue
                terms = (Fraction(float(c)) * v for c, v in zip(case.F[k], f, strict=True))
                total = sum(terms, -Fraction(float(case.g[k])))
                here = unclear[which.ravel() == i]
                value[here, k], doubt[here, k] = (total > 0) - (total < 0), 0.0

    def _features(self, row: Any) -> Rational | None:
        key = row.tobytes()
        if key not in self.known:
            if self.left <= 0:
                return None
            self.left -= 1
            widths = [layer.width for layer in self.net.hidden]
            pieces = [part.tolist() for part in np.split(row, np.cumsum(widths)[:-1])] if widths else []
            exact = ExactNetwork(self.net)
            self.known[key] = exact.features(self.event, [*pieces, [0] * self.net.n_outputs])
        return self.known[key]


# -- fractions -------------------------------------------------------------------------------------------------------


class ExactNetwork:
    """A network in rational arithmetic: every stored float is the rational that it is."""

    def __init__(self, net: Network) -> None:
        self.n_inputs = net.n_inputs
        self.layers: list[tuple[list[list[tuple[int, Fraction]]], Rational, Any]] = []
        for layer in net.layers:
            rows = [
                [(int(j), Fraction(float(row[j]))) for j in np.flatnonzero(row)] for row in np.asarray(layer.dense())
            ]
            acts = [layer.units.kinds[kind] for kind in layer.units.kind]
            self.layers.append((rows, [Fraction(float(b)) for b in layer.bias], acts))

    def at(self, x: Rational) -> tuple[Rational, list[list[int]]]:
        """Outputs, and the pieces of all layers' units; a value on a break point belongs to the piece below."""
        z, pieces = x, []
        for rows, bias, acts in self.layers:
            h = [sum((w * z[j] for j, w in row if z[j]), b) for row, b in zip(rows, bias, strict=True)]
            own = [sum(v > Fraction(t) for t in act.breaks) for v, act in zip(h, acts, strict=True)]
            z = [
                Fraction(act.slopes[p]) * v + Fraction(act.intercepts[p])
                for v, act, p in zip(h, acts, own, strict=True)
            ]
            pieces.append(own)
        return z, pieces

    def maps(self, pieces: Sequence[Sequence[int]], start: Sequence[Rational]) -> list[Rational]:
        """Each output as an affine map on a region: its coefficients in the last coordinate list of `start`.

        `start` gives each input as such a list (slopes and then the constant).
        """
        size = len(start[0])
        z = [list(row) for row in start]
        for (rows, bias, acts), own in zip(self.layers, pieces, strict=True):
            out = []
            for row, b, act, p in zip(rows, bias, acts, own, strict=True):
                slope, intercept = Fraction(act.slopes[p]), Fraction(act.intercepts[p])
                if not slope:
                    out.append([Fraction(0)] * (size - 1) + [intercept])
                    continue
                h = [sum((w * z[j][k] for j, w in row if z[j][k]), Fraction(0)) for k in range(size)]
                h[-1] += b
                h = [slope * v for v in h]
                h[-1] += intercept
                out.append(h)
            z = out
        return z

    def features(self, event: Event, pieces: Sequence[Sequence[int]]) -> Rational | None:
        """The event's features on a region; None when one of them is no rational number."""
        J: list[Rational] = []
        if any(feature[0] != "unit" for feature in event.features):
            n = self.n_inputs
            unit = [[Fraction(int(i == j)) for j in range(n)] + [Fraction(0)] for i in range(n)]
            J = [row[:-1] for row in self.maps(pieces, unit)]
        out = []
        for feature in event.features:
            if feature[0] == "unit":
                out.append(Fraction(pieces[feature[1]][feature[2]]))
            elif feature[0] == "J":
                out.append(J[feature[1]][feature[2]])
            elif feature[1] == "one":
                out.append(max(sum((abs(row[i]) for row in J), Fraction(0)) for i in range(self.n_inputs)))
            elif feature[1] == "infinity":
                out.append(max(sum((abs(v) for v in row), Fraction(0)) for row in J))
            else:
                return None
        return out

    def inside(self, event: Event, point: FloatArray) -> bool | None:
        """Whether a point lies in the event; None when that would need more than rational arithmetic."""
        x = [Fraction(float(v)) for v in point]
        y, pieces = self.at(x)
        f = self.features(event, pieces)
        if f is None:
            return None
        for case in event.cases:
            if ((point >= case.lower) & (point <= case.upper)).all() and all(
                row_holds(case, k, x, y, f) for k in range(len(case.g))
            ):
                return True
        return False


def row_holds(case: Case, k: int, x: Rational, y: Rational, f: Rational) -> bool:
    """Whether row k of a case holds."""
    value = -Fraction(float(case.g[k]))
    for row, numbers in ((case.A[k], x), (case.G[k], y), (case.F[k], f)):
        value += sum((Fraction(float(row[j])) * numbers[j] for j in np.flatnonzero(row).tolist()), Fraction(0))
    return value < 0 or (value == 0 and not case.strict[k])
