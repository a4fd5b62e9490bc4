"""A unit that acts in a corner of the box only, from what the model misses there.

Where all but one unit of the last hidden layer are known, the misfit is `c relu(theta . (z, 1))`: 0 but for the corner,
and there affine in the known features z. So its values at points of the corner are linear equations for `c theta`. No
surface has to be met by a chord, and no scale is unknown. Weights of features that never
act in the corner stay open. They must keep the unit off wherever nothing is missed, which is a linear program.

A unit of an earlier layer is met through the layers above: in each of their regions the factor c is another one. Value
and derivatives at a point then say what theta is up to a factor of their own, which gives one equation less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.recovery.peel import with_one
from reluscope.recovery.refine import Model
from reluscope.recovery.trunk import Trunk
from reluscope.recovery.view import View
from reluscope.threads import look

_ANCHORS, _NEAREST, _RANK = 24, (8, 12, 16, 24, 40, 80, 160, 320), 1e-9
"""Missed points next to which others are asked whether they agree, how many of them in turn, and what counts as 0 in
their equations."""

_NEAR_FIT, _MOST_ROWS = 0.1, 3
"""Share of what counts as a fit by which misfits may differ (the rest of the model is no better), and rows that are
tried."""

_INNER_POINTS = 128
_STEPS = (1e-3, 1e-4, 1e-5)
"""For a unit of an earlier layer, points at which derivatives of the misfit are taken, and the lengths of the
differences that are tried in turn."""

_AGREE = 1e-5
"""How well the equations must be solved, relative to the largest misfit."""

_ALIKE, _MOST_GROUPS = 3, 12
"""Points that must say the same of a unit of an earlier layer, and how many such groups it is looked for in."""

_ROUNDS, _AT_ONCE = 12, 400
"""Linear programs, each with so many more of the points at which the unit is not yet off."""

_FAR = 1e3
"""Size of the open weights over that of the known ones, at most."""


def corner_units(
    below: Trunk, U: FloatArray, misfit: FloatArray, fits: float, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """Rows theta (features + 1,) over the features of `below` of units each of which explains the misfit (n,) at some
    of the points U, and is off where the misfit is at most `fits`; those that explain most first.

    Points next to each other, in the features, are likely to be missed because of one unit. If more of them than the
    equations need agree on a row, that is a group. A unit may act in several corners, each of which shows some of its
    weights: groups that agree in what both say are put together. Nothing is asked of the oracle.
    """
    Z = with_one(below.features(U))
    size = np.abs(Z).max(axis=0)
    size[size == 0] = 1.0
    clear = Z[np.abs(misfit) <= fits]
    found: list[tuple[npt.NDArray[np.intp], FloatArray, float]] = []
    for side in (1.0, -1.0):
        missed = np.flatnonzero(side * misfit > fits)
        A, m = Z[missed] / size, side * misfit[missed]
        groups, left = list[npt.NDArray[np.intp]](), np.ones(len(m), dtype=bool)
        for first in [*np.argsort(-m)[:1], *rng.permutation(len(m))[:_ANCHORS]]:
            look()
            near = np.argsort(((A - A[first]) ** 2).sum(axis=1), kind="stable")
            together = _agreeing(A[near], m[near], fits) if left[first] else None
            if together is not None:
                groups.append(near[together])
                left[groups[-1]] = False
        for on in _merged(A, m, groups, fits):
            theta = np.linalg.lstsq(A[on], m[on], rcond=_RANK)[0] / size
            found.append((missed[on], theta, side))
    for on, theta, _ in sorted(found, key=lambda one: -len(one[0]))[:_MOST_ROWS]:
        s, Vt = np.linalg.svd(_square(Z[on] / size))[1:]
        open_ = Vt[int((s > _RANK * s[0]).sum()) :].T / size[:, None]
        row = _off_elsewhere(theta, open_, clear, 2 * fits)
        if row is not None:
            yield row / np.linalg.norm(row)


def _merged(
    A: FloatArray, m: FloatArray, groups: list[npt.NDArray[np.intp]], fits: float
) -> list[npt.NDArray[np.intp]]:
    """The groups, each with all others put to it in turn that agree with it, and say at least one thing twice."""
    allowed, wider = np.maximum(_AGREE * m, _NEAR_FIT * fits), []
    ranks = [np.linalg.matrix_rank(A[on], tol=_RANK * len(on)) for on in groups]
    for k, on in enumerate(groups):
        rank = ranks[k]
        for other, its_rank in zip(groups, ranks, strict=True):
            both = np.union1d(on, other)
            if len(both) == len(on):
                continue
            g, _, joint, _ = np.linalg.lstsq(A[both], m[both], rcond=_RANK)
            if joint < rank + its_rank and (np.abs(A[both] @ g - m[both]) <= allowed[both]).all():
                on, rank = both, int(joint)
        wider.append(on)
    return wider


def _agreeing(A: FloatArray, m: FloatArray, fits: float) -> npt.NDArray[np.intp] | None:
    """Those points, given in order of their distance from the first, that lie on one affine function with it; None if
    not even the nearest do, and two more of them than that needs."""
    allowed, found = np.maximum(_AGREE * m, _NEAR_FIT * fits), None
    for count in (*_NEAREST, len(m)):
        on = np.arange(min(count, len(m)))
        g, _, rank, _ = np.linalg.lstsq(A[on], m[on], rcond=_RANK)
        if len(on) < rank + 2:
            continue
        if (np.abs(A[on] @ g - m[on]) > allowed[on]).any():
            break
        found = g, on
    if found is None:
        return None
    g, on = found
    for _ in range(3):  # with these, others that say nothing new: what one of them adds could not be checked
        s, Vt = np.linalg.svd(_square(A[on]))[1:]
        new = np.abs(A @ Vt[int((s > _RANK * s[0]).sum()) :].T).max(axis=1, initial=0.0) > _AGREE
        wider = np.union1d(on, np.flatnonzero((np.abs(A @ g - m) <= allowed) & ~new))
        again = np.linalg.lstsq(A[wider], m[wider], rcond=_RANK)[0]
        if len(wider) == len(on) or (np.abs(A[wider] @ again - m[wider]) > allowed[wider]).any():
            break
        g, on = again, wider
    return on[_checked_by_others(A[on])]


def _checked_by_others(A: FloatArray) -> npt.NDArray[np.bool_]:
    """Which equations say nothing that no other does: a point that alone shows some weight agrees with any row."""
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    return np.asarray((U[:, s > _RANK * s[0]] ** 2).sum(axis=1) < 1 - _AGREE)


def inner_units(
    view: View, below: Trunk, model: Model, U: FloatArray, misfit: FloatArray, fits: float, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """As `corner_units`, for a layer before the last one: `below` are the layers before it; likely rows first.

    Where the unit switches others of the next layer, the misfit is no multiple of it. So points are sorted by the
    plane on which their misfit would vanish, and those with a plane in common are put together.
    """
    missed = np.flatnonzero(np.abs(misfit) > 10 * fits)
    order = missed[np.argsort(np.abs(misfit[missed]))]
    half = _INNER_POINTS // 2
    chosen = np.unique(np.concatenate([order[:half], rng.permutation(order[half:])[:half]]))
    each, known, x = _equations(view, below, model, U[chosen])
    if len(each) < _ALIKE:
        return
    M, m = np.stack(each), np.stack(known)
    clear = U[np.abs(misfit) <= fits]
    clear = with_one(below.features(clear[_shows(model.trunk, len(below.stages), clear)]))
    tried: list[FloatArray] = []
    for first in _planes(M, m, x)[:_MOST_GROUPS]:
        found = _direction(M[first], m[first])
        found = None if found is None else _widened(M, m, first, found)
        if found is None:
            continue
        theta, open_ = found
        row = _off_elsewhere(theta, open_, clear, 2 * fits)
        if row is None:
            continue
        row /= np.linalg.norm(row)
        if not any(np.abs(row - other).max() < _AGREE for other in tried):
            tried.append(row)
            yield row


def _shows(trunk: Trunk, layer: int, U: FloatArray) -> npt.NDArray[np.bool_]:
    """Where a unit of this layer would be seen: some unit of the next one is on."""
    stage = trunk.stages[layer + 1]
    z = Trunk(trunk.n_inputs, trunk.stages[: layer + 1]).features(U)
    return np.asarray((z @ stage.weight[: stage.n_units].T + stage.bias[: stage.n_units] > 0).any(axis=1))


def _planes(M: FloatArray, m: FloatArray, x: FloatArray) -> list[npt.NDArray[np.intp]]:
    """Points in one region of the layers below whose misfits vanish on the same plane; the largest groups first."""
    plane = np.column_stack([m[:, :-1], m[:, -1] - (m[:, :-1] * x).sum(axis=1)])
    plane /= np.linalg.norm(plane, axis=1, keepdims=True)
    plane *= np.sign(np.take_along_axis(plane, np.abs(plane).argmax(axis=1)[:, None], axis=1))
    key = np.column_stack([M[:, :-1].reshape(len(M), -1), plane])
    left, groups = np.arange(len(M)), list[npt.NDArray[np.intp]]()
    while len(left):
        alike = np.abs(key[left] - key[left[0]]).max(axis=1) < _AGREE
        if alike.sum() >= _ALIKE:
            groups.append(left[alike])
        left = left[~alike]
    return sorted(groups, key=len, reverse=True)


def _widened(
    M: FloatArray, m: FloatArray, together: npt.NDArray[np.intp], found: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """The direction of more points that agree, those next in line to say something new and still be checked."""
    left = np.setdiff1d(np.arange(len(M)), together)
    grew = True
    while grew and len(left):
        look()
        # What each point would say of open directions: it must leave an equation over to be judged by.
        new = np.linalg.matrix_rank(M[left] @ found[1], tol=1e-9) if found[1].shape[1] else np.zeros(len(left), int)
        grew = False
        for i in left[new < M.shape[1] - 1][np.argsort(new[new < M.shape[1] - 1], kind="stable")]:
            joint = np.append(together, i)
            wider = _direction(M[joint], m[joint])
            if wider is not None:
                grew = wider[1].shape[1] < found[1].shape[1] or grew
                together, found = joint, wider
        left = np.setdiff1d(left, together)
    return found


def _square(A: FloatArray) -> FloatArray:
    """A square matrix with the singular values and right vectors of one with more rows, and zeros below others."""
    R = np.linalg.qr(A, mode="r")
    return np.concatenate([R, np.zeros((max(0, A.shape[1] - len(R)), A.shape[1]))])


def _direction(M: FloatArray, m: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """The theta of which all misfits are multiples, of about their size, and the directions that it says nothing about;
    None if there is none."""
    along = m / np.linalg.norm(m, axis=1, keepdims=True)
    aside = M - along[:, :, None] * np.einsum("ij,ijk->ik", along, M)[:, None]
    aside /= np.linalg.norm(M, axis=(1, 2))[:, None, None]
    s, Vt = np.linalg.svd(_square(np.concatenate(M)))[1:]
    rank = int((s > 1e-9 * s[0]).sum())
    shown = Vt[:rank].T
    left, turn = np.linalg.svd(_square(np.concatenate(aside) @ shown))[1:]
    if rank > 1 and left[-1] > _AGREE * left[-2]:  # no direction, or more than one
        return None
    theta = shown @ turn[-1]
    values = M[:, -1] @ theta
    if np.abs(np.sign(values).sum()) < len(values):  # on at all of them
        return None
    return theta * np.median(np.abs(m[:, -1]) / values), Vt[rank:].T


def with_inner_unit(model: Model, layer: int, row: FloatArray, U: FloatArray, Y: FloatArray) -> Model:
    """The model with a unit more in one of its layers but the last, and what the next one makes of it.

    Its weights there are fitted to the outputs Y at the points U where the unit is on, by Gauss-Newton steps.
    """
    stages, column = list(model.trunk.stages), model.trunk.stages[layer].n_units
    stage = stages[layer]
    stages[layer] = replace(
        stage,
        weight=np.insert(stage.weight, column, row[:-1], axis=0),
        bias=np.insert(stage.bias, column, row[-1]),
        bends=np.insert(stage.bends, column, True),
    )
    rows, copy = model.rows, None
    for k in range(layer + 1, len(stages)):
        stage, units = stages[k], stages[k].n_units
        copies = len(stage.bias) > stage.n_free
        weight = np.insert(stage.weight, column, 0.0, axis=1)
        silent = tuple((i, j + (j >= column)) for i, j in stage.silent)
        if not copies:
            stages[k] = replace(stage, weight=weight, silent=silent)
            break
        place = units + column
        stages[k] = replace(
            stage,
            weight=np.insert(weight, place, np.eye(weight.shape[1])[column], axis=0),
            bias=np.insert(stage.bias, place, 0.0),
            bends=np.insert(stage.bends, place, False),
            silent=silent,
        )
        column = place
    else:
        rows, copy = np.insert(rows, column, 0.0, axis=1), column
    trunk = Trunk(model.trunk.n_inputs, tuple(stages))
    return _outgoing(Model(trunk, rows), layer, model.trunk.stages[layer].n_units, copy, U, Y)


class _Outgoing:
    """Those weights v that read one unit of `layer`: of the next layer, and of the outputs if they read a copy of it.

    They are fitted to the outputs Y where the unit is on.
    """

    def __init__(self, model: Model, layer: int, unit: int, copy: int | None, U: FloatArray, Y: FloatArray) -> None:
        self.model, self.layer, self.unit, self.copy = model, layer, unit, copy
        self.stage, self.upper = model.trunk.stages[layer + 1], model.trunk.stages[layer + 2 :]
        z = Trunk(model.trunk.n_inputs, model.trunk.stages[: layer + 1]).features(U)
        on = z[:, unit] > 0
        self.u, self.Y = z[on, unit], Y[on]
        self.h = z[on] @ self.stage.weight.T + self.stage.bias
        self.n = self.stage.n_units + (0 if copy is None else len(model.rows))

    def made(self, v: FloatArray) -> Model:
        """The model with these weights."""
        units = self.stage.n_units
        weight, rows = self.stage.weight.copy(), self.model.rows.copy()
        weight[:units, self.unit] = v[:units]
        if self.copy is not None:
            rows[:, self.copy] = v[units:]
        stages = list(self.model.trunk.stages)
        stages[self.layer + 1] = replace(self.stage, weight=weight)
        return Model(Trunk(self.model.trunk.n_inputs, tuple(stages)), rows)

    def at(self, v: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The residuals (points, outputs), the units of the next layer before they bend, and what the outputs make of
        each of its features, (points, outputs, features)."""
        units = self.stage.n_units
        h = self.h.copy()
        h[:, :units] += self.u[:, None] * v[:units]
        after, back = np.where(self.stage.bends & (h < 0), self.stage.slope * h, h), list[FloatArray]()
        for each in self.upper:
            above = after @ each.weight.T + each.bias
            back.append(np.where(each.bends & (above < 0), each.slope, 1.0))
            after = back[-1] * above
        rows = self.made(v).rows
        g = np.broadcast_to(rows[:, :-1], (len(h), *rows[:, :-1].shape))
        for each, factor in zip(reversed(self.upper), reversed(back), strict=True):
            g = (g * factor[:, None]) @ each.weight
        return self.Y - after @ rows[:, :-1].T - rows[:, -1], h, g

    def fitted(self, v: FloatArray) -> tuple[FloatArray, float]:
        """The weights after Gauss-Newton steps, and the mean square residual."""
        best, least = v, np.inf
        for _ in range(_ROUNDS):
            look()
            residual, h, g = self.at(v)
            error = float((residual**2).mean())
            if not error < least:
                break
            best, least = v, error
            units, outputs = self.stage.n_units, g.shape[1]
            J = g[:, :, :units] * np.where(h[:, :units] < 0, self.stage.slope, 1.0)[:, None]
            if self.copy is not None:
                J = np.concatenate([J, np.broadcast_to(np.eye(outputs), (len(h), outputs, outputs))], axis=2)
            J = (J * self.u[:, None, None]).reshape(-1, self.n)
            v = v + np.linalg.lstsq(J, residual.reshape(-1), rcond=1e-10)[0]
        return best, least

    def switched(self, v: FloatArray) -> Iterator[FloatArray]:
        """Weights with which a unit that is off is on at some points, and explains there what is missed."""
        residual, h, g = self.at(v)
        for j in range(self.stage.n_units):
            o = int(np.abs(g[:, :, j]).max(axis=0).argmax())
            with np.errstate(divide="ignore", invalid="ignore"):
                wanted = residual[:, o] / g[:, o, j]
                found = (wanted - h[:, j]) / self.u + v[j]
            found = np.sort(found[(h[:, j] < 0) & (wanted > 0) & np.isfinite(found)])
            if len(found) < _ALIKE:
                continue
            gap = found[_ALIKE - 1 :] - found[: 1 - _ALIKE]
            k = int(gap.argmin())
            if gap[k] <= _AGREE * max(1.0, abs(found[k])):
                yield np.where(np.arange(self.n) == j, found[k + _ALIKE // 2], v)


def _outgoing(model: Model, layer: int, unit: int, copy: int | None, U: FloatArray, Y: FloatArray) -> Model:
    """The model with the weights that read one unit fitted; units that it switches on are found one by one."""
    fit = _Outgoing(model, layer, unit, copy, U, Y)
    if not len(fit.u):
        return model
    v, error = fit.fitted(np.zeros(fit.n))
    for _ in range(fit.stage.n_units):
        others = [fit.fitted(w) for w in fit.switched(v)]
        better, its_error = min(others, key=lambda other: other[1], default=(v, error))
        if not its_error < 0.5 * error:
            break
        v, error = better, its_error
    return fit.made(v)


def _equations(
    view: View, below: Trunk, model: Model, x: FloatArray
) -> tuple[list[FloatArray], list[FloatArray], FloatArray]:
    """Derivatives and value of the misfit at those points x where it is affine, as equations for theta: for each point
    rows (inputs + 1, features + 1) and right sides; and these points."""
    k, n = x.shape
    local = below.local(x)
    rows, wanted, used = list[FloatArray](), list[FloatArray](), list[int]()
    todo = np.arange(k)
    for step in _STEPS:
        look()
        if not len(todo):
            break
        inward = np.where(x[todo] > 0, -step, step)
        ends = np.repeat(x[todo][:, None], 2 * n + 1, axis=1)
        axis = np.arange(n)
        ends[:, axis, axis] += inward
        ends[:, n + axis, axis] += 2 * inward
        flat = ends.reshape(-1, n)
        e = (view.values(flat) - model(flat) @ view.mix).reshape(len(todo), 2 * n + 1)
        once, twice, here = e[:, :n], e[:, n:-1], e[:, -1:]
        straight = np.abs(here + twice - 2 * once).max(axis=1) <= 30 * view.noise
        straight &= (np.sign(e) == np.sign(here)).all(axis=1)
        for i, slope in zip(todo[straight], (0.5 * (twice - here) / inward)[straight], strict=True):
            rows.append(np.vstack([np.column_stack([local.J[i].T, np.zeros(n)]), np.append(local.z[i], 1.0)]))
            wanted.append(np.append(slope, e[todo == i, -1]))
            used.append(i)
        todo = todo[~straight]
    return rows, wanted, x[used]


def _off_elsewhere(theta: FloatArray, open_: FloatArray, Z: FloatArray, slack: float) -> FloatArray | None:
    """Theta moved along its open directions (the columns) until `Z theta <= slack`; None if that cannot be."""
    row, size = theta, float(np.linalg.norm(theta))
    active = np.zeros(0, dtype=np.intp)
    for _ in range(_ROUNDS):
        h = Z @ row
        worst = np.argsort(-h)[:_AT_ONCE]
        worst = worst[h[worst] > slack]
        if not len(worst):
            return row
        if not open_.shape[1]:
            return None
        active = np.union1d(active, worst)
        A, b = Z[active] @ open_, slack - Z[active] @ theta
        size_a = np.maximum(np.linalg.norm(A, axis=1), 1e-300)
        keep = size_a > 1e-9
        if (b[~keep] < 0).any():
            return None
        A, b = A[keep] / size_a[keep, None], b[keep] / size_a[keep]
        # The largest margin: what is known of the edge of the corner is known from samples only.
        margin = np.ones((len(A), 1))
        bounds = [(-_FAR * size, _FAR * size)] * open_.shape[1] + [(0.0, size)]
        cost = np.append(np.zeros(open_.shape[1]), -1.0)
        found = late("scipy.optimize", "linprog")(cost, A_ub=np.hstack([A, margin]), b_ub=b, bounds=bounds)
        if found.status != 0:
            return None
        row = theta + open_ @ found.x[:-1]
    return None
