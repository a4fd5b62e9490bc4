"""The largest output of a network on a box, in absolute value: one that was found, and a bound on all.

The search scans lines through the best points, then goes from region to region: the largest value on a region is a
linear program, and the regions that meet at its solution are next. The bound is what the sound engine proves: no input
passes a limit. Limits between what was found and what is proved are tried while there is time.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from reluscope._check import FloatArray
from reluscope.budget import Budget
from reluscope.cells.bounds import box_preactivations
from reluscope.cells.simplex import maximise_small
from reluscope.events import event
from reluscope.inputs import Uniform
from reluscope.measure.sound import bound_event
from reluscope.network import Network

_STARTS, _SWEEPS, _AXES = 64, 24, 12
_SHARES = np.array([0.97, 0.9, 0.75, 0.5, 0.25, 0.1, 0.03, 0.01, 0.003, 0.001, 1e-4, 1e-5])
"""Places between a point and the end of its line that are looked at."""

_CORNERS = 12
"""Inputs up to which all corners of the box are looked at."""

_ROUNDS, _HOPPERS, _HOPS, _AROUND = 3, 24, 40, 24
_STEPS_ASIDE = (1e-2, 1e-3, 1e-5, 1e-8)
"""How far from the solution of a linear program neighbouring regions are looked for, as shares of the box."""

_HOP_INPUTS, _HOP_UNITS = 40, 4000
"""Inputs and units up to which linear programs are solved."""

_SPLIT_INPUTS, _SPLIT_UNITS, _SPLIT_BOXES = 6, 1000, 20_000
"""Inputs and units up to which a bound is looked for by splitting boxes, and how many of them without a time."""

_TIGHT, _TRIALS = 1.02, 12


class Largest(NamedTuple):
    """The largest output found in absolute value, where, and a bound on all in the box."""

    size: float
    x: FloatArray
    bound: float


def largest(
    net: Network, low: FloatArray, high: FloatArray, X: FloatArray, limit: Budget, rng: np.random.Generator
) -> Largest:
    """Search from the points X of a box, never worse than the best of them; a third of the time is for the search."""
    unit = net.after(np.diag(high - low), low)  # on the unit cube
    scale = np.where(high > low, high - low, 1.0)
    size = np.abs(net(X)).max(axis=1)
    first = int(size.argmax())
    best, at = float(size[first]), X[first]
    search = limit.part(0.35) if np.isfinite(limit.seconds) else limit
    T = _scanned(unit, (X[np.argsort(-size, kind="stable")[:_STARTS]] - low) / scale, search, rng)
    if net.n_inputs <= _HOP_INPUTS and net.n_units <= _HOP_UNITS:
        for _ in range(_ROUNDS):
            T = np.concatenate([_hopped(unit, T, search, rng), T])
            T = T[np.argsort(-_size(unit, T), kind="stable")[:_STARTS]]
            if search.spent() is not None:
                break
            around = np.repeat(T[:8], 4, axis=0)
            T = np.concatenate(
                [T, _scanned(unit, np.clip(around + 0.1 * rng.normal(size=around.shape), 0, 1), search, rng)]
            )
            T = T[np.argsort(-_size(unit, T), kind="stable")]
    found = np.clip(low + T * (high - low), low, high)
    size = np.abs(net(found)).max(axis=1)
    k = int(size.argmax())
    if size[k] > best:
        best, at = float(size[k]), found[k]
    return Largest(best, at, _bound(net, low, high, best, limit))


def _size(unit: Network, T: FloatArray) -> FloatArray:
    out: FloatArray = np.abs(unit(T)).max(axis=1)
    return out


def _uphill(unit: Network, T: FloatArray) -> FloatArray:
    """The slope of the largest output in absolute value."""
    y, J = unit(T), unit.jacobian(T)
    rows, k = np.arange(len(T)), np.abs(y).argmax(axis=1)
    return np.asarray(np.sign(y[rows, k])[:, None] * J[rows, k])


def _scanned(unit: Network, T: FloatArray, limit: Budget, rng: np.random.Generator) -> FloatArray:
    """Each row moved to the best point of some lines through it, as often as that helps."""
    d = unit.n_inputs
    if d <= _CORNERS:
        corners = np.array(list(product((0.0, 1.0), repeat=d)))
        top = corners[np.argsort(-_size(unit, corners), kind="stable")[: max(4, len(T) // 4)]]
        T = np.concatenate([T, top])
    held = _size(unit, T)
    for _ in range(_SWEEPS):
        if limit.spent() is not None:
            break
        slope = _uphill(unit, T)
        free = np.where(slope > 0, T < 1.0, T > 0.0)  # along the sides of the box it has come to
        ways = [np.sign(slope), slope * free, rng.normal(size=T.shape)]
        axes = np.arange(d) if d <= _AXES else rng.choice(d, _AXES, replace=False)
        ways += [np.broadcast_to(sign * np.eye(d)[i], T.shape) for i in axes for sign in (1.0, -1.0)]
        gained = np.zeros(len(T), bool)
        for way in ways:
            new = _along(T, way)
            tall = _size(unit, new.reshape(-1, d)).reshape(new.shape[:2])
            pick = tall.argmax(axis=0)
            rows = np.arange(len(T))
            better = tall[pick, rows] > held * (1 + 1e-12)
            T[better], held[better] = new[pick, rows][better], tall[pick, rows][better]
            gained |= better
            if limit.spent() is not None:
                break
        if not gained.any():
            break
    return np.asarray(T[np.argsort(-held, kind="stable")])


def _along(T: FloatArray, way: FloatArray) -> FloatArray:
    """Points (shares, n, d) between each row and the end of the box in a direction, which slides along its sides."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(way > 0, (1.0 - T) / way, np.where(way < 0, -T / way, 0.0))
    longest = np.nanmax(np.where(np.isfinite(room), room, 0.0), axis=1)
    steps = np.concatenate([[1.0], _SHARES])[:, None, None] * longest[:, None]
    return np.asarray(np.clip(T + steps * way, 0.0, 1.0))


def _hopped(unit: Network, T: FloatArray, limit: Budget, rng: np.random.Generator) -> FloatArray:
    """The best rows moved to the best point of their region, then of its neighbours, while that helps."""
    d = unit.n_inputs
    out = []
    seen: set[bytes] = set()
    for t in T[:_HOPPERS]:
        point, held = t.copy(), float(_size(unit, t[None])[0])
        for _ in range(_HOPS):
            if limit.spent() is not None:
                break
            aside = np.repeat(_STEPS_ASIDE, _AROUND // len(_STEPS_ASIDE))[:, None]
            near = np.clip(point + aside * rng.normal(size=(len(aside), d)), 0.0, 1.0)
            near = np.concatenate([point[None], near])
            patterns = unit.pattern(near)
            keys = [row.tobytes() for row in np.ascontiguousarray(patterns)]
            before = held
            for i in np.argsort(-_size(unit, near), kind="stable").tolist():
                if keys[i] in seen or limit.spent() is not None:
                    continue
                seen.add(keys[i])
                x = _best_of_region(unit, patterns[i], near[i])
                if x is None:
                    continue
                size = float(_size(unit, x[None])[0])
                if size > held * (1 + 1e-12):
                    point, held = x, size
                    break
            if held == before:
                break
        out.append(point)
    return np.array(out).reshape(-1, d)


def _best_of_region(unit: Network, pattern: FloatArray, x: FloatArray) -> FloatArray | None:
    """Where the output that is largest at x is largest in its region."""
    C, _ = unit.output_maps(pattern[None])
    y = unit(x)
    k = int(np.abs(y).argmax())
    region = unit.polytope(pattern)
    norm = np.linalg.norm(region.A, axis=1)
    keep = norm > 0
    A, b = region.A[keep] / norm[keep, None], region.b[keep] / norm[keep]
    # Rows that cannot be reached from inside the cube are left out.
    b_most = np.maximum(A, 0.0).sum(axis=1)
    tight = b < b_most
    goal = np.ascontiguousarray(np.sign(y[k]) * C[0, k])
    d = unit.n_inputs
    status, _, found, _ = maximise_small(
        goal, np.ascontiguousarray(A[tight]), np.ascontiguousarray(b[tight]), np.zeros(d), np.ones(d)
    )
    return None if status != 0 or not np.isfinite(found).all() else np.clip(found, 0.0, 1.0)


def _bound(net: Network, low: FloatArray, high: FloatArray, worst: float, limit: Budget) -> float:
    """No output is larger anywhere in the box, in absolute value: by linear bounds, then by splitting the box.

    `worst` was found. A limit between it and what is proved is tried; one that cannot be proved in a share of the time
    raises those that are tried after it.
    """
    ends = Network([*net.hidden, (net.layers[-1].weight, net.layers[-1].bias, "relu")])
    last = box_preactivations(ends, low, high)[-1]
    bound = max(worst, float(np.maximum(np.abs(last.lower), np.abs(last.upper)).max()))
    small = int((high > low).sum()) <= _SPLIT_INPUTS and sum(net.widths[1:-1]) <= _SPLIT_UNITS
    if not small or not worst > 0 or not (high > low).any():
        return bound
    floor = worst
    timed = bool(np.isfinite(limit.seconds))
    for _ in range(_TRIALS):
        if bound <= _TIGHT * floor or limit.spent() is not None:
            break
        goal = float(np.sqrt(bound * floor))
        asked = event(f"max(abs(y)) > {goal!r}", net.n_inputs, net.n_outputs)
        left = max(limit.seconds - limit.elapsed(), 0.0)
        share = Budget(0.4 * left, whole=limit.whole or limit.seconds) if timed else limit
        share = replace(share, regions=limit.regions if timed else min(limit.regions, _SPLIT_BOXES))
        found = bound_event(net, Uniform(low, high), asked, tolerance=0.0, budget=share)
        if found.upper > 0:
            floor = goal
        else:
            bound = goal
    return bound
