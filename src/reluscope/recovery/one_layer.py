"""One hidden layer from the gradients along chords: each unit by itself, however many inputs there are.

On a chord the gradient is constant between bends and changes by `c_i u_i` at the bend of unit i, where the function is

    f(x) = sum_i c_i relu(u_i . x + b_i) + affine,      c_i = 1 or -1 (the size of c_i is put into u_i).

So one gradient on either side of a bend gives the unit: its row `u_i` and, with the point, its bias. Bends of units
that are known already change the gradient by what is known: a chord costs one gradient, and one more for each new unit.
A unit is believed when the other chords bend where it says.

Then the patterns of all units are known nearly everywhere, and given them everything is linear: gradients, taken far
from all surfaces with differences as long as the patterns allow, give the rows (one small system, inputs as right-hand
sides), and values give the biases. Fitting all parameters together (10^10 numbers for 784-128-1) is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.recovery.critical import Chords, gradients
from reluscope.recovery.peel import Evidence
from reluscope.recovery.view import View
from reluscope.threads import look

_STEPS = (0.2, 0.05, 0.01)
"""Length of the differences over half the straight stretch they are measured in: tried in turn."""

_BELIEVED = 0.7
"""Share of the predicted bends that must be found for a unit to be believed."""

_FEWEST, _HALF = 12, 0.6
"""After so many units, this share must have been believed: else there are deeper layers."""

_FAINT, _MOST_NEAR = 1e7, 1e-3
"""Distance from the surface at which a bend may be found, over the noise by the size of the bend; and at most."""

_ENDS = 2e-3
"""Bends closer than this to the end of a chord (as a share of it) are not searched for."""

_PLACES, _NUMBERS = 4096, 1 << 22
"""Places among which those furthest from all surfaces are taken, and the numbers they may hold."""

_RIDGE = 1e-5
"""Squared, the accuracy of long differences over that of the first ones."""


@dataclass(frozen=True, eq=False)
class Units:
    """Units found: rows `u` (units, inputs + 1, the bias last) and the sign `c` of each."""

    u: FloatArray
    c: FloatArray

    def __len__(self) -> int:
        return len(self.c)

    def within(self, near: float, noise: float) -> FloatArray:
        """How far from each unit's surface its bends may be found: further where it hardly bends the function."""
        size = np.linalg.norm(self.u[:, :-1], axis=1)
        return np.clip(_FAINT * noise / np.maximum(size, 1e-300), near, _MOST_NEAR)

    def near(self, x: FloatArray, within: FloatArray) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """For each point the unit whose surface is nearest (for its `within`), and whether it is that near."""
        if not len(self):
            return np.zeros(len(x), dtype=np.intp), np.zeros(len(x), dtype=bool)
        away = np.abs(x @ self.u[:, :-1].T + self.u[:, -1]) / (np.linalg.norm(self.u[:, :-1], axis=1) * within)
        which = away.argmin(axis=1)
        return which, away[np.arange(len(x)), which] < 1


@dataclass(frozen=True, eq=False)
class FirstLook:
    """What the chords say: the units, the evidence with the normals measured on the way, and whether one layer of units
    may be all there is (then most candidates are believed)."""

    units: Units
    evidence: Evidence
    single: bool


def units_on_chords(view: View, chords: Chords, evidence: Evidence, units: Units, near: float) -> FirstLook:
    """All units that bend the function on the chords, beside the `units` known before; stops once it is clear that
    there are deeper ones (their bends do not go on in a plane)."""
    normal, error = evidence.normal.copy(), evidence.error.copy()
    tried = believed = len(units)  # those of earlier chords speak for one layer too
    order = np.lexsort((evidence.t, evidence.line))
    for line in np.unique(evidence.line):
        look()
        here = order[evidence.line[order] == line]
        which, known = units.near(evidence.x[here], units.within(near, view.noise))
        if known.all():
            continue
        found = _along(view, chords, int(line), evidence.t[here], which, known, units)
        got = np.flatnonzero(found.good)
        if not len(got):
            continue
        bends = here[got]
        size = np.linalg.norm(found.jump[got], axis=1)
        normal[bends] = found.jump[got] / size[:, None]
        error[bends] = found.error[got] / size
        c = np.sign(found.jump[got] @ chords.way[line])
        u = c[:, None] * found.jump[got]
        new = Units(np.column_stack([u, -(u * evidence.x[bends]).sum(axis=1)]), c)
        share = matched_share(new, chords, evidence, new.within(near, view.noise))
        good = share >= _BELIEVED
        tried, believed = tried + len(got), believed + int(good.sum())
        units = Units(np.concatenate([units.u, new.u[good]]), np.concatenate([units.c, c[good]]))
        if tried >= _FEWEST and believed < _HALF * tried:
            break
    single = tried < _FEWEST or believed >= _HALF * tried
    done = Evidence(evidence.line, evidence.t, evidence.x, normal, error)
    return FirstLook(_through_points(units, done, units.within(near, view.noise)), done, single)


@dataclass(frozen=True, eq=False)
class _Jumps:
    """The change of the gradient at each bend of a chord, its error, and where it was measured."""

    jump: FloatArray
    error: FloatArray
    good: npt.NDArray[np.bool_]


def _along(
    view: View,
    chords: Chords,
    line: int,
    t: FloatArray,
    which: npt.NDArray[np.intp],
    known: npt.NDArray[np.bool_],
    units: Units,
) -> _Jumps:
    """The changes of the gradient at the unknown bends of one chord.

    Stretches between bends are joined across known bends; in each part the gradient is measured once, in the middle of
    its longest stretch, and carried to its two ends by the known changes.
    """
    start, way = chords.start[line], chords.way[line]
    length = np.linalg.norm(way)
    edges = np.concatenate([[0.0], t, [1.0]])
    part = np.concatenate([[0], np.cumsum(~known)])  # of each stretch
    lengths = np.diff(edges)
    longest = np.array([np.flatnonzero(part == p)[lengths[part == p].argmax()] for p in range(part[-1] + 1)])
    middle = start + (0.5 * (edges[longest] + edges[longest + 1]))[:, None] * way
    half = 0.5 * lengths[longest] * length
    g, slip, good = np.zeros((len(longest), view.n)), np.full(len(longest), np.inf), np.zeros(len(longest), bool)
    for share in _STEPS:
        todo = np.flatnonzero(~good)
        if not len(todo):
            break
        g[todo], slip[todo], good[todo] = gradients(view, middle[todo], share * half[todo])
    # What the known bends add on the way from the first stretch to each other one.
    change = np.zeros((len(lengths), view.n))
    if known.any():
        turn = units.c[which] * np.sign(units.u[which, :-1] @ way) * known
        change[1:] = np.cumsum(turn[:, None] * units.u[which, :-1], axis=0)
    before, after = g + 0.0, g + 0.0
    bends = np.flatnonzero(~known)
    # Part p ends at bend bends[p]: from its measured stretch on to stretch bends[p], and back to bends[p - 1] + 1.
    before[:-1] += change[bends] - change[longest[:-1]]
    after[1:] += change[bends + 1] - change[longest[1:]]
    jump, error, fine = np.zeros((len(t), view.n)), np.full(len(t), np.inf), np.zeros(len(t), bool)
    jump[bends] = after[1:] - before[:-1]
    error[bends] = np.sqrt(view.n) * (slip[1:] + slip[:-1])
    size = np.linalg.norm(jump, axis=1)
    fine[bends] = good[1:] & good[:-1]
    fine &= error < 0.02 * size
    return _Jumps(jump, error, fine)


def matched_share(units: Units, chords: Chords, evidence: Evidence, within: FloatArray) -> FloatArray:
    """The share of the chords' crossings of each unit's surface at which a bend was found.

    A chord without any bend was most likely given up at its ends (see `find_bends`): it does not count.
    """
    at, along = chords.start @ units.u[:, :-1].T + units.u[:, -1], chords.way @ units.u[:, :-1].T
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -at / along  # (chords, units)
    searched = np.isin(np.arange(len(chords)), evidence.line)
    line, unit = np.nonzero((t > _ENDS) & (t < 1 - _ENDS) & searched[:, None])
    place = t[line, unit]
    key = np.sort(evidence.line + 0.5 * evidence.t)
    wanted = line + 0.5 * place
    right = np.clip(np.searchsorted(key, wanted), 0, len(key) - 1)
    gap = np.minimum(np.abs(key[right] - wanted), np.abs(key[np.maximum(right - 1, 0)] - wanted))
    # Distance to the surface, not along a chord that may graze it.
    slope = np.abs(along[line, unit]) / np.linalg.norm(units.u[unit, :-1], axis=1)
    hit = 2 * gap * slope < within[unit]
    predicted = np.bincount(unit, minlength=len(units))
    return np.asarray(np.bincount(unit, hit, minlength=len(units)) / np.maximum(predicted, 1))


def _through_points(units: Units, evidence: Evidence, within: FloatArray) -> Units:
    """The same with each bias from the median over all bends of the unit."""
    which, known = units.near(evidence.x, within)
    u = units.u.copy()
    for i in range(len(units)):
        mine = evidence.x[known & (which == i)]
        if len(mine):
            u[i, -1] = -np.median(mine @ u[i, :-1])
    return Units(u, units.c)


def sharpened(view: View, units: Units, U: FloatArray, Y: FloatArray, rng: np.random.Generator) -> Units:
    """The units with rows and biases to the rounding of the oracle; `U`, `Y` are points and mixed values.

    Costs up to `1.5 units (inputs + 2)` queries: of some thousand places those furthest from all surfaces are taken,
    and for each unit at least one in each of its states. What they do not determine stays as it was.
    """
    rows = max(64, min(_PLACES, _NUMBERS // view.n))
    X = view.draw(rows, rng)
    X[::2] = np.sign(X[::2]) * rng.uniform(0.5, 1.0, (len(X[::2]), 1))
    h = X @ units.u[:, :-1].T + units.u[:, -1]
    step = np.minimum(0.5 * (np.abs(h) / np.abs(units.u[:, :-1]).max(axis=1)).min(axis=1), 1.0)
    order = np.argsort(-step)
    on = (h > 0)[order]
    states = np.concatenate([on, ~on], axis=1)
    first = states.argmax(axis=0)[states.any(axis=0)]
    chosen = order[np.unique(np.append(first, np.arange(min(len(order), 3 * len(units) // 2 + 8))))]
    g, slip, _ = gradients(view, X[chosen], step[chosen])
    P = np.column_stack([np.where(h[chosen] > 0, units.c, 0.0), np.ones(len(chosen))])
    plain = np.median(g - P[:, :-1] @ units.u[:, :-1], axis=0)
    left = g - P[:, :-1] @ units.u[:, :-1] - plain
    weight = slip.min() / slip
    moved = _ridge(P * weight[:, None], left * weight[:, None])
    u = units.u.copy()
    u[:, :-1] += moved[:-1]
    h = U @ units.u[:, :-1].T + units.u[:, -1]
    clear = (np.abs(h) > 1e-6 * np.linalg.norm(units.u[:, :-1], axis=1)).all(axis=1)
    on = np.where(h[clear] > 0, units.c, 0.0)
    known = ((U[clear] @ u[:, :-1].T + u[:, -1]) * on).sum(axis=1) + U[clear] @ (plain + moved[-1])
    rest = Y[clear] - known
    constant = float(np.median(rest))
    u[:, -1] += _ridge(np.column_stack([on, np.ones(len(on))]), (rest - constant)[:, None])[:-1, 0]
    return Units(u, units.c)


def _ridge(A: FloatArray, b: FloatArray) -> FloatArray:
    """Least squares; a direction in which A says next to nothing stays 0."""
    G = A.T @ A
    G[np.diag_indices_from(G)] += _RIDGE
    return np.asarray(np.linalg.solve(G, A.T @ b))
