"""Critical points: where the function bends along a segment, found from values alone.

Between two points of a segment with known values and slopes, either both affine pieces agree (no bend), or they meet
at `t* = (f_b - f_a + s_a a - s_b b) / (s_a - s_b)`. If the function's value at `t*` is the one both pieces predict,
there is one bend and it is there, to the accuracy of the slopes; if not, the interval is cut in two. Slopes come from
three collinear points (the third is the check) or from the oracle's gradient. All segments are searched at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.recovery.view import View
from reluscope.threads import look

_GERM = 0.01
_LONG_GERM = 0.16
"""Half-length of the triple that measures a slope, as a share of the interval to be cut: for exact and noisy values."""

_END = 0.1
"""The same at either end of a segment, relative to the half-length inside."""

_STEPS = ((0.3, 0.05, 0.05), (0.045, 0.0075, 0.05), (0.006, 0.001, 0.05))
_NOISY_STEPS = ((0.6, 0.4, 0.6), (0.3, 0.2, 0.5), (0.15, 0.1, 0.4))
"""How far from a critical point gradients are measured, as a share of the straight stretch and at most, and the length
of the differences as a share of that: tried in turn. Noise asks for longer ones, of which the check refuses more."""

_NUMBERS = 1 << 22
"""Numbers in the rows of one set of differences: 32 MB."""

_ROUNDS = 60
_MOST_OPEN = 300
"""Open intervals per segment at which the search gives up: the function bends (or trembles) everywhere."""


@dataclass(frozen=True, eq=False)
class Chords:
    """Segments of the unit box that have been searched: from `start` to `start + way`, t from 0 to 1."""

    start: FloatArray
    way: FloatArray

    def at(self, line: npt.NDArray[np.intp], t: FloatArray) -> FloatArray:
        """The point at parameter t of each line."""
        return self.start[line] + t[:, None] * self.way[line]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class Bends:
    """Critical points: the segment and parameter of each, the point, the change of slope per unit length, and how far
    (in length) the function was checked to be affine on either side. `lost` counts intervals too short to resolve.
    """

    line: npt.NDArray[np.intp]
    t: FloatArray
    x: FloatArray
    jump: FloatArray
    reach: FloatArray
    lost: int

    def __len__(self) -> int:
        return len(self.t)


def random_chords(view: View, count: int, rng: np.random.Generator) -> Chords:
    """Segments of the box: half between uniform points, half between random corners (they reach rare units)."""
    start, end = view.draw(count, rng), view.draw(count, rng)
    corners = count // 2
    start[:corners], end[:corners] = np.sign(start[:corners]), np.sign(end[:corners])
    same = (start == end).all(axis=1)
    end[same] = -start[same]
    return Chords(start, end - start)


def find_bends(view: View, chords: Chords, rng: np.random.Generator) -> Bends:
    """All bends of the function along the segments, up to coincidences below the noise.

    Costs about eight value queries per bend (four when the oracle gives gradients).
    """
    n = len(chords)
    lines = np.arange(n)
    longest = _longest_germ(view)
    first, last = (_end_germ(view, chords, at, longest) for at in (0.0, 1.0))
    # One column per open interval: line, then position, value, slope and slope error at either end, then the germ's
    # share of the interval.
    good = first.straight & last.straight
    todo = np.stack([lines, *first.columns, *last.columns, np.full(n, longest)])[:, good]
    shortest = max(1e-7, 30 * view.relative)
    found: list[FloatArray] = []
    lost = int((~good).sum())
    for _ in range(_ROUNDS):
        look()
        if not todo.shape[1] or todo.shape[1] > _MOST_OPEN * n:
            break
        line, a, fa, sa, ea, b, fb, sb, eb, _ = todo
        slack = 6 * view.noise + 3 * (ea + eb) * (b - a)
        flat = (np.abs(fa + sa * (b - a) - fb) <= slack) & (np.abs(sa - sb) <= 4 * (ea + eb))
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = (fb - fa + sa * a - sb * b) / (sa - sb)
        inside = ~flat & (meet > a) & (meet < b) & (np.abs(sa - sb) > 4 * (ea + eb))
        hit = np.zeros(len(a), dtype=bool)
        hit[inside] = _bends_once(view, chords, todo[:, inside], meet[inside], slack[inside])
        if hit.any():
            found.append(np.stack([line, meet, a, b, sb - sa])[:, hit])
        rest = ~flat & ~hit
        short = rest & (b - a < shortest)
        lost += int(short.sum())
        rest &= ~short
        todo = todo[:, rest]
        if not todo.shape[1]:
            break
        line, a, b, share = todo[0], todo[1], todo[5], todo[9]
        middle = a + (b - a) * rng.uniform(0.35, 0.65, len(a))
        germ = _germ(view, chords, line.astype(np.intp), middle, share * (b - a))
        cut = germ.straight
        here = np.stack(germ.columns)[:, cut]
        halves, again = todo[:, cut], todo[:, ~cut]
        # A long germ measures slopes well but straddles bends: shorter where it failed, longer where it did not.
        again[9] = np.maximum(0.5 * again[9], _GERM)
        halves[9] = np.minimum(2.0 * halves[9], longest)
        left, right = np.concatenate([halves[:5], here, halves[9:]]), np.concatenate([halves[:1], here, halves[5:]])
        todo = np.concatenate([again, left, right], axis=1)
    lost += todo.shape[1]
    line, t, a, b, jump = np.concatenate(found, axis=1) if found else np.zeros((5, 0))
    line = line.astype(np.intp)
    length = np.linalg.norm(chords.way[line], axis=1)
    return Bends(line, t, chords.at(line, t), jump / length, np.minimum(t - a, b - t) * length, lost)


def _bends_once(
    view: View, chords: Chords, todo: FloatArray, t: FloatArray, slack: FloatArray
) -> npt.NDArray[np.bool_]:
    """Whether an interval's two pieces meet at t and nowhere else.

    The value at t is not enough: two opposite bends, both on one side of t, leave it on a piece. A little to the left
    and right of t the function must be on the left and on the right piece.
    """
    line, a, fa, sa, _, b, fb, sb, *_ = todo
    line = line.astype(np.intp)
    near = np.maximum(1e-3 * (b - a), 8 * slack / np.maximum(np.abs(sa - sb), 1e-300))
    good = near < 0.3 * np.minimum(t - a, b - t)
    for shift in (0.0, -1.0, 1.0):
        which = np.flatnonzero(good)
        if not len(which):
            break
        place = t[which] + shift * near[which]
        left, right = fa[which] + sa[which] * (place - a[which]), fb[which] - sb[which] * (b[which] - place)
        value = view.values(chords.at(line[which], place))
        good[which] = np.abs(value - (left if shift < 0.5 else right)) <= slack[which]
    return good


@dataclass(frozen=True, eq=False)
class _Germ:
    t: FloatArray
    value: FloatArray
    slope: FloatArray
    error: FloatArray
    straight: npt.NDArray[np.bool_]

    @property
    def columns(self) -> tuple[FloatArray, ...]:
        """What an interval keeps of it."""
        return self.t, self.value, self.slope, self.error


def _longest_germ(view: View) -> float:
    """Noise asks for longer germs."""
    return float(np.clip(_GERM * (view.relative / 1e-12) ** 0.25, _GERM, _LONG_GERM))


def _end_germ(view: View, chords: Chords, end: float, longest: float) -> _Germ:
    """The germ at one end of every chord, shortened where it straddles a bend."""
    n = len(chords)
    t, value, slope, error = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    straight, step = np.zeros(n, dtype=bool), np.full(n, _END * longest)
    while (todo := np.flatnonzero(~straight)).size and step[todo[0]] >= 0.99 * _END * _GERM:
        germ = _germ(view, chords, todo, np.abs(end - step[todo]), step[todo])
        t[todo], value[todo], slope[todo], error[todo] = germ.columns
        straight[todo] = germ.straight
        step[todo] *= 0.25
    return _Germ(t, value, slope, error, straight)


def _germ(view: View, chords: Chords, line: npt.NDArray[np.intp], t: FloatArray, step: FloatArray) -> _Germ:
    """Value and slope along the line at t, with the error of the slope."""
    if view.oracle.has_gradient:
        value, gradient = view.slopes(chords.at(line, t))
        way = chords.way[line]
        size = np.abs(gradient * way).sum(axis=1)
        return _Germ(t, value, (gradient * way).sum(axis=1), 1e-15 * size + view.noise, np.ones(len(t), dtype=bool))
    rows = np.concatenate([chords.at(line, t - step), chords.at(line, t), chords.at(line, t + step)])
    left, value, right = view.values(rows).reshape(3, -1)
    straight = np.abs(left + right - 2 * value) <= 8 * view.noise
    return _Germ(t, value, (right - left) / (2 * step), view.noise / step, straight)


def gradients(view: View, x: FloatArray, step: FloatArray) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """Gradient at each row by one-sided differences of length `step`, its error, and whether a further point
    confirmed it.

    Costs `inputs + 2` queries per row, or one when the oracle gives gradients.
    """
    k, n = x.shape
    if view.oracle.has_gradient:
        _, found = view.slopes(x)
        return found, np.full(k, view.noise), np.ones(k, dtype=bool)
    most = max(1, _NUMBERS // (n * (n + 2)))
    look()
    if k > most:
        parts = [gradients(view, x[i : i + most], step[i : i + most]) for i in range(0, k, most)]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))  # type: ignore[return-value]
    # Towards the middle of the box, so that every query stays inside.
    signed = np.where(x > 0, -1.0, 1.0) * step[:, None]
    rows = np.repeat(x[:, None, :], n + 2, axis=1)
    rows[:, np.arange(n), np.arange(n)] += signed
    tilt = np.linspace(-1.0, 1.0, n) if n > 1 else np.array([-0.5])
    rows[:, n + 1] += np.abs(signed) * tilt * np.where(np.abs(x) > 0.999, -np.sign(x * tilt), 1.0)
    values = view.values(rows.reshape(-1, n)).reshape(k, n + 2)
    found = (values[:, :n] - values[:, n : n + 1]) / signed
    expected = values[:, n] + (found * (rows[:, n + 1] - x)).sum(axis=1)
    straight = np.abs(values[:, n + 1] - expected) <= 6 * view.noise * np.sqrt(n + 4)
    return found, 2 * view.noise / step, straight


@dataclass(frozen=True, eq=False)
class Normals:
    """Unit normals of the surfaces at some critical points, their relative errors, and which points have one."""

    normal: FloatArray
    error: FloatArray
    good: npt.NDArray[np.bool_]


def normals(view: View, x: FloatArray, way: FloatArray, jump: FloatArray, reach: FloatArray) -> Normals:
    """The change of gradient across each critical point `x`, measured a little before and after it along `way`.

    Both gradients are checked with a further point; where that fails the step is shortened twice, then given up.
    """
    unit = way / np.linalg.norm(way, axis=1, keepdims=True)
    k, n = x.shape
    change, error = np.zeros((k, n)), np.full(k, np.inf)
    todo = np.arange(k)
    for off_share, most, step_share in _NOISY_STEPS if view.relative > 1e-11 else _STEPS:
        if not len(todo):
            break
        off = np.minimum(off_share * reach[todo], most)
        step = step_share * off
        inside = unit[todo] * off[:, None]
        both, size, fine = gradients(
            view, np.clip(np.concatenate([x[todo] - inside, x[todo] + inside]), -1, 1), np.concatenate([step, step])
        )
        jumped = both[len(todo) :] - both[: len(todo)]
        found = np.maximum(np.linalg.norm(jumped, axis=1), 1e-300)
        along = (jumped * unit[todo]).sum(axis=1)
        relative = np.sqrt(n) * (size[: len(todo)] + size[len(todo) :]) / found
        good = fine[: len(todo)] & fine[len(todo) :] & (relative < 0.02)
        good &= np.abs(along - jump[todo]) <= (0.02 + 10 * relative) * found
        change[todo[good]] = jumped[good] / found[good, None]
        error[todo[good]] = relative[good]
        todo = todo[~good]
    return Normals(change, error, np.isfinite(error))


_SHARES = (0.05, 0.01, 0.002)
"""Length of the differences over half the straight stretch they are measured in: tried in turn."""


def chord_normals(
    view: View, chords: Chords, line: npt.NDArray[np.intp], t: FloatArray, jump: FloatArray, which: npt.NDArray[np.intp]
) -> Normals:
    """The same as `normals` for some (`which`) of all critical points, from one gradient for each stretch of a chord
    between bends: neighbours share it, so that all points of a chord cost half as much.
    """
    order = np.lexsort((t, line))
    first = np.concatenate([[True], np.diff(line[order]) != 0]) if len(order) else np.zeros(0, dtype=bool)
    place = np.empty(len(order), dtype=np.intp)
    place[order] = (
        np.arange(len(order)) + np.cumsum(first) - 1
    )  # of the stretch before each point; the one behind is next
    low, high = np.zeros(len(order) + first.sum()), np.ones(len(order) + first.sum())
    high[place], low[place + 1] = t, t
    of = np.zeros(len(low), dtype=np.intp)
    of[place], of[place + 1] = line, line
    stretch, back = np.unique(np.concatenate([place[which], place[which] + 1]), return_inverse=True)
    middle = chords.at(of[stretch], 0.5 * (low[stretch] + high[stretch]))
    half = 0.5 * (high[stretch] - low[stretch]) * np.linalg.norm(chords.way[of[stretch]], axis=1)
    g, slip, good = np.zeros_like(middle), np.full(len(middle), np.inf), np.zeros(len(middle), dtype=bool)
    for share in _SHARES:
        todo = np.flatnonzero(~good)
        if not len(todo):
            break
        g[todo], slip[todo], good[todo] = gradients(view, middle[todo], share * half[todo])
    before, behind = back[: len(which)], back[len(which) :]
    jumped = g[behind] - g[before]
    found = np.maximum(np.linalg.norm(jumped, axis=1), 1e-300)
    unit = chords.way[line[which]] / np.linalg.norm(chords.way[line[which]], axis=1, keepdims=True)
    relative = np.sqrt(view.n) * (slip[before] + slip[behind]) / found
    fine = good[before] & good[behind] & (relative < 0.02)
    fine &= np.abs((jumped * unit).sum(axis=1) - jump[which]) <= (0.02 + 10 * relative) * found
    return Normals(np.where(fine[:, None], jumped / found[:, None], 0.0), np.where(fine, relative, np.inf), fine)
