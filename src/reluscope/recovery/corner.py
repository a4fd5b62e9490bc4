"""A unit that acts in a corner of the box only, from what the model misses there.

Where all but one unit of the last hidden layer are known, the misfit is `c relu(theta . (z, 1))`: 0 but for the corner,
and there affine in the known features z. So its values and derivatives at a few points of the corner are linear
equations for `c theta`. No surface has to be met by a chord, and no scale is unknown. Weights of features that never
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

_POINTS, _INNER_POINTS = 16, 128
_STEPS = (1e-3, 1e-4, 1e-5)
"""Points at which derivatives of the misfit are taken (those of an earlier layer tell less each), and the lengths of
the differences that are tried in turn."""

_AGREE = 1e-5
"""How well the equations must be solved, relative to the largest misfit."""

_ALIKE, _MOST_GROUPS = 3, 12
"""Points that must say the same of a unit of an earlier layer, and how many such groups it is looked for in."""

_ROUNDS, _AT_ONCE = 12, 400
"""Linear programs, each with so many more of the points at which the unit is not yet off."""

_FAR = 1e3
"""Size of the open weights over that of the known ones, at most."""


def corner_unit(
    view: View, below: Trunk, model: Model, U: FloatArray, misfit: FloatArray, fits: float, rng: np.random.Generator
) -> FloatArray | None:
    """The row theta (features + 1,) over the features of `below` of a unit that explains the misfit (n,) of `model` at
    the points U next to the largest, and is off where the misfit is at most `fits`; None if there is none.

    Costs up to `3 (2 inputs + 1)` queries for each of 16 points.
    """
    peak = int(np.abs(misfit).argmax())
    side = np.sign(misfit[peak])
    each, known, _ = _equations(view, below, model, _some(U, side * misfit > fits, peak, rng))
    if not len(each):
        return None
    rows, wanted = np.concatenate(each), np.concatenate(known)
    size = float(np.abs(wanted).max())
    theta = np.linalg.lstsq(rows, wanted, rcond=1e-9)[0]
    if np.abs(rows @ theta - wanted).max() > _AGREE * size:
        return None
    s, Vt = np.linalg.svd(_square(rows))[1:]
    open_ = Vt[int((s > 1e-9 * s[0]).sum()) :].T
    row = _off_elsewhere(side * theta, open_, with_one(below.features(U[side * misfit <= fits])), 2 * fits)
    return None if row is None else row / np.linalg.norm(row)


def inner_units(
    view: View, below: Trunk, model: Model, U: FloatArray, misfit: FloatArray, fits: float, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """As `corner_unit`, for a unit of a layer before the last one: `below` are the layers before it; likely ones first.

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


def _some(U: FloatArray, missed: npt.NDArray[np.bool_], peak: int, rng: np.random.Generator) -> FloatArray:
    """Points that are missed: half of them next to the peak."""
    off = np.flatnonzero(missed)
    near = off[np.argsort(np.linalg.norm(U[off] - U[peak], axis=1))]
    if len(near) > _POINTS:
        near = np.unique(np.concatenate([near[: _POINTS // 2], rng.choice(near, _POINTS // 2, replace=False)]))
    return U[near]


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
