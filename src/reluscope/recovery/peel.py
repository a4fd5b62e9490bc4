"""Peeling one layer: from critical points to the units whose surfaces they lie on.

Let `z(x)` be the known features. A unit of the next layer is `h = theta . (z, 1)`, unknown up to scale. A critical
point x with normal v that lies on its surface says, with the local derivative J of z,

    J^T theta = lambda v      (for some lambda != 0),      theta . (z(x), 1) = 0.

With an orthonormal basis V of the rows of `[J^T 0; z 1]` this is `V^T theta = lambda c`, c a known unit vector. Two
points p, q can be on one unit only if `lambda_p a.c_p = lambda_q b.c_q` for every direction `V_p a = V_q b` that both
see: a test without any search. Points that pass in pairs form groups; a group's equations together give theta. Units
of deeper layers look like units of this one only within a region of this layer, so a candidate is believed only if the
chords searched so far bend where it says they should, on both sides of its rivals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._lazy import late
from reluscope.recovery.critical import Chords
from reluscope.recovery.trunk import Local, Trunk
from reluscope.threads import look

_RANK = 1e-4
"""Singular values of the local feature map below this share of the largest count as zero."""

_GRID = 384
"""Places on a chord where a candidate's sign is looked at."""

_MOST_PAIRS = 60_000
_MOST_GROUPS = 80
NOISY = 2e-7
"""Tolerance of the pair tests above which normals are noisy and points are known much better than they are."""

_MOST_MERGED, _ALIKE = 40, 1e-6
"""Groups that are compared as parts of one unit, and how well their rows must agree."""

_BESIDE = 1e-3
"""How far beside a rival's surface a candidate is looked at, over the typical size of the rival."""

_CHANCE = 0.1
"""Pairs that may agree by chance."""

_CHUNK = 1 << 17
"""Numbers in the matrices of the pairs that are tested at a time."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Critical points on chords: line, parameter, point; and the unit normal with its relative error where measured."""

    line: npt.NDArray[np.intp]
    t: FloatArray
    x: FloatArray
    normal: FloatArray
    error: FloatArray

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """Which points have a normal."""
        return np.isfinite(self.error)

    def __len__(self) -> int:
        return len(self.t)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A possible unit: `theta` over (features, 1), unit length; what it cannot know yet; how the chords speak for it.

    `unseen` spans the directions of theta that no point of the group could see. `matched` of `predicted` crossings of
    the chords were found to bend there; `roots` and `hit` list them.
    """

    theta: FloatArray
    unseen: FloatArray
    members: npt.NDArray[np.intp]
    roots: FloatArray
    hit: npt.NDArray[np.bool_]
    goes_on: bool = False
    """Whether its surface was seen to go on where another unit of the layer switches."""

    @property
    def complete(self) -> bool:
        """Whether every coefficient is determined."""
        return self.unseen.shape[1] == 0

    @property
    def trusted(self) -> bool:
        """Whether so many chords bend where it says that it may speak against others."""
        return self.matched >= 6 and self.share >= 0.6

    @property
    def matched(self) -> int:
        """Predicted crossings that bend."""
        return int(self.hit.sum())

    @property
    def share(self) -> float:
        """Matched over predicted."""
        return self.matched / max(len(self.hit), 1)


@dataclass(frozen=True, eq=False)
class Grid:
    """Features of the trunk along all chords, computed once per layer: shape (chords, places, features + 1)."""

    line: npt.NDArray[np.intp]
    chords: Chords
    t: FloatArray
    z: FloatArray

    @classmethod
    def of(cls, trunk: Trunk, chords: Chords, fair: npt.NDArray[np.bool_]) -> Grid:
        """Evaluate the features on equally spaced places of the fair chords."""
        t = np.linspace(0, 1, _GRID)
        line = np.flatnonzero(fair)
        chords = Chords(chords.start[line], chords.way[line])
        rows = chords.start[:, None, :] + t[:, None] * chords.way[:, None, :]
        z = trunk.features(rows.reshape(-1, trunk.n_inputs)).reshape(len(chords), _GRID, trunk.width)
        return cls(line, chords, t, np.concatenate([z, np.ones((*z.shape[:2], 1))], axis=2))


def with_one(z: FloatArray) -> FloatArray:
    """Append a column of ones."""
    return np.concatenate([z, np.ones((len(z), 1))], axis=1)


def distances(trunk: Trunk, theta: FloatArray, x: FloatArray) -> FloatArray:
    """Distance of each point to the surface of each candidate row, to first order: |h| / |grad h|, shape (n, rows)."""
    if not trunk.stages:
        h, slope = np.abs(with_one(x) @ theta.T), np.linalg.norm(theta[:, :-1], axis=1)
    else:
        local = trunk.local(x)
        h = np.abs(with_one(local.z) @ theta.T)
        slope = np.linalg.norm(theta[:, :-1] @ local.J, axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(slope > 0, h / slope, np.inf)


def explained(trunk: Trunk, x: FloatArray, near: float) -> npt.NDArray[np.bool_]:
    """Whether each point lies on the surface of a known unit."""
    known = np.zeros(len(x), dtype=bool)
    for k, stage in enumerate(trunk.stages):
        below = Trunk(trunk.n_inputs, trunk.stages[:k])
        rows = np.column_stack([stage.weight[stage.bends], stage.bias[stage.bends]])
        known |= distances(below, rows, x).min(axis=1, initial=np.inf) < near
    return known


def candidates(trunk: Trunk, evidence: Evidence, grid: Grid, pair_error: float, near: float) -> list[Candidate]:
    """Possible units of the next layer, best supported first.

    `pair_error` is the largest relative error a pair test may show, `near` how far (in the unit box) a bend may lie
    from where it is predicted.
    """
    chosen = np.flatnonzero(evidence.measured)
    if len(chosen) < 2:
        return []
    views = Views.of(trunk, evidence, chosen)
    groups = views.groups(pair_error, flat=not trunk.stages)
    found = []
    solved = list(views.solved(groups[:_MOST_GROUPS], pair_error))
    if trunk.stages and pair_error < NOISY:
        solved = views.merged(solved, pair_error)
    for members, (theta, unseen) in solved:
        if pair_error > NOISY:
            theta = polished(trunk, theta, unseen, evidence, pair_error, near)
        roots, hit = crossings(trunk, grid, theta, unseen, evidence, near)
        found.append(Candidate(theta, unseen, views.point[members], roots, hit))
    return sorted(found, key=lambda c: -c.matched)


def of_linear(trunk: Trunk, evidence: Evidence, grid: Grid, pair_error: float, near: float) -> list[Candidate]:
    """Units that read nothing but the linear features of the last stage: those that stand for units that were on
    wherever one had looked. Where such a unit switches off after all, one point gives its row, because the normal has
    to be a combination of the gradients of few features."""
    stage = trunk.stages[-1] if trunk.stages else None
    if stage is None or not 0 < stage.linear <= trunk.n_inputs - 2:
        return []
    units, chosen = stage.n_units, np.flatnonzero(evidence.measured)
    found: list[Candidate] = []
    rows = np.zeros((0, trunk.width + 1))
    local = trunk.local(evidence.x[chosen])
    for i, z, J in zip(chosen, local.z, local.J, strict=True):
        v, gradients = evidence.normal[i], J[units:]
        by = np.linalg.lstsq(gradients.T, v, rcond=1e-9)[0]
        if np.linalg.norm(gradients.T @ by - v) > pair_error + 30 * evidence.error[i]:
            continue
        theta = np.concatenate([np.zeros(units), by, [-by @ z[units:]]])
        theta /= np.linalg.norm(theta)
        if len(rows) and distances(trunk, rows, evidence.x[i : i + 1]).min() < near:
            continue
        rows = np.concatenate([rows, theta[None]])
        none = np.zeros((len(theta), 0))
        found.append(Candidate(theta, none, np.array([i]), *crossings(trunk, grid, theta, none, evidence, near)))
    return found


_Theta = tuple[FloatArray, FloatArray]
"""A row and the directions of it that are unknown."""


_Solved = tuple[npt.NDArray[np.intp], _Theta]
"""The points of a group, and their row."""


class _Group(NamedTuple):
    """Points that may lie on one unit, and which of them passed the pair test."""

    members: npt.NDArray[np.intp]
    agree: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Views:
    """What each measured point sees of theta: `basis[i]` (rank, features + 1) and `target[i]` (rank,), padded with
    0."""

    point: npt.NDArray[np.intp]
    basis: FloatArray
    target: FloatArray
    rank: npt.NDArray[np.intp]
    error: FloatArray
    single: FloatArray
    """Rows theta that are one unit of the layer before, of either sign: (rows, features + 1)."""

    @classmethod
    def of(cls, trunk: Trunk, evidence: Evidence, chosen: npt.NDArray[np.intp]) -> Views:
        """What the chosen points see, those left out whose normal the features cannot have."""
        x, normal = evidence.x[chosen], evidence.normal[chosen]
        local = trunk.local(x)
        k, width, n = local.J.shape
        rows = np.zeros((k, n + 1, width + 1))
        rows[:, :n, :width] = local.J.transpose(0, 2, 1)
        rows[:, n, :width], rows[:, n, width] = local.z, 1.0
        U, s, Vt = np.linalg.svd(rows, full_matrices=False)
        seen = s > _RANK * s[:, :1]
        spoken = np.einsum("knr,kn->kr", U[:, :n], normal) * seen
        fits = np.linalg.norm(spoken, axis=1) > 1 - np.maximum(1e-3, 10 * evidence.error[chosen])
        c = np.where(seen, spoken / np.where(seen, s, 1.0), 0.0)
        size = np.linalg.norm(c, axis=1)
        smallest = np.where(seen, s, np.inf).min(axis=1)
        error = evidence.error[chosen] / (smallest * np.maximum(size, 1e-300))
        keep = fits & (size > 0)
        return cls(
            chosen[keep],
            (Vt * seen[:, :, None])[keep],
            (c / np.maximum(size, 1e-300)[:, None])[keep],
            seen.sum(axis=1)[keep],
            error[keep],
            _single(trunk),
        )

    def groups(self, pair_error: float, flat: bool) -> list[_Group]:
        """Groups of points that pass the pair test, largest first."""
        csr_array = late("scipy.sparse", "csr_array")
        connected_components = late("scipy.sparse.csgraph", "connected_components")

        k = len(self.point)
        if k < 2:
            return []
        one, two = self._pairs_flat(pair_error) if flat else self._pairs(pair_error)
        graph = csr_array((np.ones(2 * len(one)), (np.append(one, two), np.append(two, one))), shape=(k, k))
        _, label = connected_components(graph, directed=False)
        order = np.argsort(label, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
        parts = sorted((p for p in parts if len(p) >= 2), key=len, reverse=True)
        return [_Group(p, graph[p][:, p].toarray() > 0) for p in parts]

    def solved(self, groups: list[_Group], pair_error: float) -> Iterator[_Solved]:
        """Each group that agrees on a theta, with it. With noise, a pair that agrees by chance may have joined two
        units: a group that does not agree is taken apart."""
        for group in groups:
            look()
            fit = self.solve(group.members, pair_error)
            if fit is not None:
                yield group.members, fit
            elif pair_error > NOISY:
                yield from self._apart(group, pair_error)

    def agreed(self, pair_error: float) -> _Theta | None:
        """The theta that all points agree on, and the directions none of them sees; None if they disagree."""
        found = self._null(np.arange(len(self.point)), pair_error) if len(self.point) else None
        return found[:2] if found is not None and found[2] else None

    def shares(self, unseen: FloatArray) -> bool:
        """Whether the last point says something about theta that can be checked: two directions at least that are not
        among the unseen ones."""
        basis = self.basis[-1]
        shown = int((np.linalg.svd(basis @ unseen, compute_uv=False) > 1e-6).sum())
        return bool(self.rank[-1] - shown >= 3 or (self.rank[-1] - shown == 2 and self.rank[-1] == 3))

    def merged(self, solved: list[_Solved], pair_error: float) -> list[_Solved]:
        """Groups joined that are parts of one unit's surface: none of their points passed the test in pairs, but what
        both groups together see of theta agrees, and so do all their points."""
        before = -1
        while len(solved) > 1 and len(solved) != before:
            before = len(solved)
            solved = sorted(solved, key=lambda s: s[1][1].shape[1])
            for i, j in self._alike(solved[:_MOST_MERGED]):
                members = np.union1d(solved[i][0], solved[j][0])
                fit = self.solve(members, pair_error)
                if fit is not None and fit[1].shape[1] <= min(solved[i][1][1].shape[1], solved[j][1][1].shape[1]):
                    solved = [s for k, s in enumerate(solved) if k not in (i, j)] + [(members, fit)]
                    break
        return solved

    def _alike(self, solved: list[_Solved]) -> list[tuple[int, int]]:
        """Pairs of groups whose thetas agree, up to scale, in three or more directions that both see."""
        look()
        theta = np.stack([fit[0] for _, fit in solved])
        blind = np.stack([fit[1] @ fit[1].T for _, fit in solved])
        open_ = np.array([fit[1].shape[1] > 0 for _, fit in solved])
        one, two = np.triu_indices(len(solved), 1)
        some = open_[one] | open_[two]
        one, two = one[some], two[some]
        if not len(one):
            return []
        s, A = np.linalg.eigh(blind[one] + blind[two])
        shared = s < 1e-9  # directions that neither is blind to
        alpha = np.einsum("kfi,kf->ki", A, theta[one]) * shared
        beta = np.einsum("kfi,kf->ki", A, theta[two]) * shared
        bias = A[:, -1] * shared
        na, nb = np.linalg.norm(alpha, axis=1), np.linalg.norm(beta, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b = alpha / na[:, None], beta / nb[:, None]
            bias /= np.linalg.norm(bias, axis=1, keepdims=True)
            gap = np.linalg.norm(a - np.sign((a * b).sum(axis=1))[:, None] * b, axis=1)
            with_bias = np.abs((a * bias).sum(axis=1))
        enough = (np.abs(a) > 1e-3).sum(axis=1) >= 2
        good = (na > 0.02) & (nb > 0.02) & (gap < _ALIKE) & enough & (with_bias < 1 - 1e-3)
        good &= shared.sum(axis=1) - (with_bias < _ALIKE) >= 3
        return [(int(i), int(j)) for i, j in zip(one[good], two[good], strict=True)]

    def _apart(self, group: _Group, pair_error: float) -> Iterator[_Solved]:
        """Parts of a group: from a point and those it agrees with, grown one by one while all agree on a theta."""
        rest = np.ones(len(group.members), dtype=bool)
        while rest.sum() >= 3:
            look()
            links = group.agree[:, rest].sum(axis=1) * rest
            seed = int(links.argmax())
            part = rest & (group.agree[seed] | (np.arange(len(rest)) == seed))
            fit = self.solve(group.members[part], pair_error, everyone=True) if links[seed] >= 2 else None
            if fit is None:
                rest[seed] = False
                continue
            refused = np.zeros_like(rest)
            while (open_ := rest & ~part & ~refused & group.agree[part].any(axis=0)).any():
                next_ = int((group.agree[part].sum(axis=0) * open_).argmax())
                part[next_] = True
                more = self.solve(group.members[part], pair_error, everyone=True)
                if more is None:
                    part[next_], refused[next_] = False, True
                else:
                    fit = more
            yield group.members[part], fit
            rest &= ~part

    def _pairs_flat(self, pair_error: float) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        theta = np.einsum("krf,kr->kf", self.basis, self.target)
        gap = np.sqrt(np.maximum(1 - np.minimum((theta @ theta.T) ** 2, 1), 0))
        # sqrt(1 - cos^2) cannot tell angles below 1e-8; the difference of the vectors can.
        one, two = np.nonzero(np.triu(gap < max(pair_error, 1e-6), 1))
        sign = np.sign((theta[one] * theta[two]).sum(axis=1))
        exact = np.linalg.norm(theta[one] - sign[:, None] * theta[two], axis=1)
        allowed = np.minimum(pair_error + 30 * (self.error[one] + self.error[two]), 0.03)
        return one[exact < allowed], two[exact < allowed]

    def _pairs(self, pair_error: float) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        k = len(self.point)
        one, two = np.triu_indices(k, 1)
        most = int(_MOST_PAIRS * min(2.0, (14.0 / self.basis.shape[1]) ** 2))  # a test costs a small SVD
        if len(one) > most:
            pick = np.random.default_rng(len(one)).choice(len(one), most, replace=False)
            one, two = one[pick], two[pick]
        # Errors of exact values are guesses, and small; those of noisy values are bounds, and cost pairs.
        floor, slack, apart = (pair_error, 30.0, 100.0) if pair_error < NOISY else (0.3 * pair_error, 1.0, 10.0)
        kept_one, kept_two = [], []
        chunk = max(32, _CHUNK // self.basis.shape[1] ** 2)
        for start in range(0, len(one), chunk):
            look()
            p, q = one[start : start + chunk], two[start : start + chunk]
            common = self.basis[p] @ self.basis[q].transpose(0, 2, 1)
            squared, A = np.linalg.eigh(common @ common.transpose(0, 2, 1))
            shared = squared > 1 - 2e-9  # squared cosines of the angles between what the two see
            B = common.transpose(0, 2, 1) @ A
            alpha = np.einsum("kri,kr->ki", A, self.target[p]) * shared
            beta = np.einsum("kri,kr->ki", B, self.target[q]) * shared
            one_ = np.einsum("kri,kr->ki", A, self.basis[p][:, :, -1]) * shared
            na, nb = np.linalg.norm(alpha, axis=1), np.linalg.norm(beta, axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                a, b = alpha / na[:, None], beta / nb[:, None]
                sign = np.sign((a * b).sum(axis=1))
                gap = np.linalg.norm(a - sign[:, None] * b, axis=1)
                # Two units that share no active input differ by a constant only: that says nothing.
                one_ /= np.linalg.norm(one_, axis=1, keepdims=True)
                plain = np.linalg.norm(a - np.sign((a * one_).sum(axis=1))[:, None] * one_, axis=1)
            error = self.error[p] / np.maximum(na, 1e-300) + self.error[q] / np.maximum(nb, 1e-300)
            allowed = np.minimum(floor + slack * error, 0.03)
            # With s shared directions a chance agreement has probability gap^(s - 1): the more noise, the more it
            # takes.
            # A bias of 0 (where no unit of the layers so far has one) agrees with every other, and so do any two units
            # that share one active input only.
            no_bias = (np.abs((a * one_).sum(axis=1)) < np.maximum(allowed, 1e-5)) & (pair_error < NOISY)
            where = np.flatnonzero(no_bias & (gap < allowed))
            if len(where):
                alone = np.einsum("kri,krf,sf->ksi", A[where], self.basis[p[where]], self.single, optimize=True)
                alone *= shared[where, None]
                with np.errstate(divide="ignore", invalid="ignore"):
                    alone /= np.linalg.norm(alone, axis=2, keepdims=True)
                    turned = np.sign((alone * a[where, None]).sum(axis=2))[:, :, None] * alone
                off = np.linalg.norm(turned - a[where, None], axis=2)
                plain[where] = np.minimum(plain[where], np.where(np.isnan(off), np.inf, off).min(axis=1))
            chance = len(one) * allowed ** np.maximum(shared.sum(axis=1) - 1 - no_bias, 0)
            passed = (chance < _CHANCE) & (na > 0.02) & (nb > 0.02) & (gap < allowed) & ~(plain < apart * allowed)
            kept_one.append(p[passed])
            kept_two.append(q[passed])
        return np.concatenate(kept_one), np.concatenate(kept_two)

    def solve(self, members: npt.NDArray[np.intp], pair_error: float, everyone: bool = False) -> _Theta | None:
        """The theta the members agree on, and the directions none of them sees; None if they disagree.

        A few members may be wrong (two surfaces crossing at the point): the worst are left out, a third at most, or
        none if `everyone` must agree.
        """
        kept = members
        while len(kept) >= max(2, (1.0 if everyone else 0.67) * len(members)):
            found = self._null(kept, pair_error)
            if found is None:
                return None
            theta, unseen, agreed = found
            seen = np.einsum("krf,f->kr", self.basis[kept], theta)
            size = np.linalg.norm(seen, axis=1)
            along = (seen * self.target[kept]).sum(axis=1)
            gap = np.linalg.norm(seen - along[:, None] * self.target[kept], axis=1) / np.maximum(size, 1e-300)
            if agreed and (pair_error < NOISY or (gap <= 0.3 * pair_error + 10 * self.error[kept]).all()):
                return theta, unseen
            kept = kept[np.argsort(gap)[: len(kept) - max(1, len(kept) // 20)]]
        return None

    def _null(self, members: npt.NDArray[np.intp], pair_error: float) -> tuple[FloatArray, FloatArray, bool] | None:
        """The best theta for the members, the directions none of them sees, and whether they agree on it."""
        V, c, weight = self.basis[members], self.target[members], 1.0 / (self.error[members] + 1e-9) ** 2
        weight = weight / weight.max()
        seen = np.einsum("k,krf,krg->fg", weight, V, V)
        along = np.einsum("krf,kr->kf", V, c)
        miss = seen - np.einsum("k,kf,kg->fg", weight, along, along)
        s, Q = np.linalg.eigh(seen)
        blind = s < 1e-9 * s[-1]
        unseen, visible = Q[:, blind], Q[:, ~blind]
        if visible.shape[1] < 2:
            return None
        # Scaled so that a direction seen faintly weighs as much as one seen well.
        scale = 1.0 / np.sqrt(s[~blind])
        m, R = np.linalg.eigh((visible.T @ miss @ visible) * scale[:, None] * scale)
        theta = visible @ (scale * R[:, 0])
        agreed = m[0] <= max(1e-8, (30 * pair_error) ** 2) and m[1] >= max(1e-7, 20 * m[0])
        return theta / np.linalg.norm(theta), unseen, bool(agreed)


def _single(trunk: Trunk) -> FloatArray:
    """Rows over (features, 1) that read one unit of the last stage, or its mirror image by the carried features."""
    if not trunk.stages:
        return np.zeros((0, trunk.width + 1))
    stage = trunk.stages[-1]
    units, width = stage.n_units, trunk.width
    rows = np.eye(units, width + 1)
    if stage.carries and not stage.linear:
        mirrored = np.concatenate([np.zeros((units, units)), stage.weight[:units]], axis=1)
        rows = np.concatenate([rows, np.column_stack([mirrored, stage.bias[:units]])])
    return rows


def polished(
    trunk: Trunk, theta: FloatArray, unseen: FloatArray, evidence: Evidence, pair_error: float, near: float
) -> FloatArray:
    """Theta moved a little so that the surface passes through the critical points near it.

    With noise, points are known a thousand times better than normals. Robust least squares on the distances, with
    theta as the prior; the scale of what counts as near shrinks from step to step.
    """
    local = trunk.local(evidence.x)
    z = with_one(local.z)
    visible = np.eye(len(theta)) - unseen @ unseen.T
    sees = np.linalg.norm(np.einsum("fu,nfi->nui", unseen[:-1], local.J), axis=(1, 2)) < 1e-9
    start, best, most = theta, theta, -1
    for scale in (2 * near, near, 0.3 * near, 0.1 * near, 0.1 * near):
        slope = np.linalg.norm(np.einsum("nfi,f->ni", local.J, theta[:-1]), axis=1)
        size = np.where(slope > 0, slope, np.inf)
        away = np.where(sees, np.abs(z @ theta) / size, np.inf)
        on = int((away < 0.1 * near).sum())
        if on > most:
            best, most = theta, on
        some = np.flatnonzero(away < 4 * scale)
        weight = 1.0 / (1.0 + (away[some] / scale) ** 2) ** 2
        A = (z[some] / size[some, None]) @ visible
        G = (A * weight[:, None]).T @ A / scale**2
        G[np.diag_indices_from(G)] += 0.1 / pair_error**2
        moved = start - visible @ np.linalg.solve(G, (A * weight[:, None]).T @ (A @ start) / scale**2)
        theta = moved / np.linalg.norm(moved)
    return best


def crossings(
    trunk: Trunk, grid: Grid, theta: FloatArray, unseen: FloatArray, evidence: Evidence, near: float
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Where the chords cross the candidate's surface, and whether a bend was found there."""
    h = grid.z @ theta
    line, place = np.nonzero((h[:, 1:] > 0) != (h[:, :-1] > 0))
    if not len(line):
        return np.zeros((0, trunk.n_inputs)), np.zeros(0, dtype=bool)
    low, high = grid.t[place], grid.t[place + 1]
    h_low, h_high = h[line, place], h[line, place + 1]
    t = low
    for i in range(40):
        share = h_low / (h_low - h_high) if i < 12 else 0.5
        t = low + np.clip(share, 0.0, 1.0) * (high - low)
        at = with_one(trunk.features(grid.chords.at(line, t))) @ theta
        below = (at > 0) == (h_low > 0)
        low, h_low = np.where(below, t, low), np.where(below, at, h_low)
        high, h_high = np.where(below, high, t), np.where(below, h_high, at)
        if (np.abs(at) < 1e-15).all():
            break
    x = grid.chords.at(line, t)
    if unseen.shape[1]:
        local = trunk.local(x)
        clear = np.linalg.norm(np.einsum("fu,nfi->nui", unseen[:-1], local.J), axis=(1, 2)) < 1e-9
        line, t, x = line[clear], t[clear], x[clear]
    length = np.linalg.norm(grid.chords.way, axis=1)
    # Bends sorted by (line, t): the nearest on either side of each root.
    key = evidence.line + 0.5 * evidence.t
    order = np.argsort(key)
    sorted_key = key[order]
    wanted = grid.line[line] + 0.5 * t
    right = np.clip(np.searchsorted(sorted_key, wanted), 0, len(order) - 1)
    gap = np.minimum(np.abs(sorted_key[right] - wanted), np.abs(sorted_key[np.maximum(right - 1, 0)] - wanted))
    return x, 2 * gap * length[line] < near


def choose(trunk: Trunk, found: list[Candidate], near: float, taken: FloatArray) -> list[Candidate]:
    """The candidates that are units of this layer rather than pieces of deeper ones.

    A deeper unit stops or bends at the units of this layer, so its predicted crossings are matched on one side of them
    only. Candidates are taken in order of their matched share; one that stops at a better one, or at one of the rows
    `taken` before, is refused.
    """
    kept: list[Candidate] = []
    rows = trusted = taken
    for c in sorted(found, key=lambda c: (-round(c.share, 1), -c.matched)):
        if c.matched < 3 or c.share < 0.1:
            continue
        if len(rows) and (distances(trunk, rows, c.roots[c.hit]) < 10 * near).mean(axis=0).max() > 0.7:
            continue  # the same surface again
        if len(trusted) and _stops(trunk, c, trusted):
            continue
        if c.share >= 0.5 or (len(trusted) and c.matched >= 8 and c.share > 0.25):
            kept.append(c)
            rows = np.concatenate([rows, c.theta[None]])
            if c.trusted:
                trusted = np.concatenate([trusted, c.theta[None]])
    return kept


def _stops(trunk: Trunk, c: Candidate, rivals: FloatArray) -> bool:
    """Whether a candidate's crossings beyond its rivals go unmatched: too many to be chance, or beyond every rival."""
    side = with_one(trunk.features(c.roots)) @ rivals.T > 0
    there = np.stack([(side & c.hit[:, None]).sum(axis=0), (~side & c.hit[:, None]).sum(axis=0)])
    all_ = np.stack([side.sum(axis=0), (~side).sum(axis=0)])
    better, worse = there.max(axis=0), there.min(axis=0)
    missed = np.where(there[0] <= there[1], all_[0], all_[1])
    far = all_.min(axis=0) >= 2
    everywhere = far.any() and not worse[far].any() and all_.min(axis=0)[far].sum() >= 4
    unlikely = (worse == 0) & (better >= 3) & ((1 - c.share + 1e-9) ** missed < 1e-4) & (missed >= 5)
    return bool(everywhere or unlikely.any())


def beside(trunk: Trunk, c: Candidate, rivals: FloatArray, each: int = 2) -> tuple[FloatArray, FloatArray]:
    """Places on a candidate's surface in pairs, just before and just behind the surface of a rival (row over the same
    features): points (pairs, 2, inputs), and the unit normals of the candidate there.

    A unit of this layer bends the function at both of them (or, where nothing uses it, at neither). A deeper unit turns
    where a unit of this layer switches, so its plane goes on at one of them only.
    """
    starts = c.roots[c.hit]
    # From the places nearest to each rival: on the way there few other units switch.
    nearest = np.argsort(distances(trunk, rivals, starts), axis=0)[:each]
    x, rival = starts[nearest.T.reshape(-1)], np.repeat(rivals, len(nearest), axis=0)
    typical = np.abs(with_one(trunk.features(starts)) @ rivals.T).mean(axis=0)
    aim = _BESIDE * np.repeat(np.where(typical > 0, typical, 1.0), len(nearest))
    aim *= np.sign((with_one(trunk.features(x)) * rival).sum(axis=1) + 1e-300)
    sides = []
    for side in (aim, -aim):
        for _ in range(12):
            x = np.clip(x - _newton_rows(trunk, x, c.theta, rival, side), -1, 1)
        sides.append(x)
    places = np.stack(sides, axis=1)
    local = trunk.local(places.reshape(-1, trunk.n_inputs))
    z = with_one(local.z)
    h = np.abs(z @ c.theta).reshape(-1, 2)
    other = (z * np.repeat(rival, 2, axis=0)).sum(axis=1).reshape(-1, 2)
    slope = np.einsum("nfi,f->ni", local.J, c.theta[:-1])
    size = np.linalg.norm(slope, axis=1, keepdims=True)
    normal = (slope / np.maximum(size, 1e-300)).reshape(places.shape)
    good = (h < 1e-9).all(axis=1) & (np.sign(other[:, 0]) == np.sign(aim)) & (np.sign(other[:, 1]) == -np.sign(aim))
    good &= (size.reshape(-1, 2) > 0).all(axis=1) & (np.abs(places) < 0.999).all(axis=(1, 2))
    if c.unseen.size:
        blind = np.linalg.norm(np.einsum("fu,nfi->nui", c.unseen[:-1], local.J), axis=(1, 2)).reshape(-1, 2)
        good &= (blind < 1e-9).all(axis=1)
    return places[good], normal[good]


def _newton_rows(trunk: Trunk, x: FloatArray, theta: FloatArray, rival: FloatArray, aim: FloatArray) -> FloatArray:
    """The shortest step to `theta . z = 0` and, with a rival of its own for each point, `rival . z = aim`."""
    local = trunk.local(x)
    z = with_one(local.z)
    r = np.stack([z @ theta, (z * rival).sum(axis=1) - aim], axis=1)
    J = np.stack([np.einsum("nfi,f->ni", local.J, theta[:-1]), np.einsum("nfi,nf->ni", local.J, rival[:, :-1])], axis=1)
    return shortest(J, r)


def beyond(trunk: Trunk, c: Candidate, rng: np.random.Generator, each: int = 3) -> Chords:
    """Short chords across a candidate's surface, just beyond the break of units it has not seen active.

    Where such a unit's own value is small, the surface is still near its known part: a point there is found by Newton's
    method on (candidate, unit) = (0, small), and the chord follows the candidate's gradient.
    """
    none = np.zeros((0, trunk.n_inputs))
    if not trunk.stages:
        return Chords(none, none)
    stage = trunk.stages[-1]
    below = Trunk(trunk.n_inputs, trunk.stages[:-1])
    blind = np.flatnonzero(np.linalg.norm(c.unseen[: stage.n_units], axis=1) > 0.1)
    starts, ways = [none], [none]
    for j in blind:
        x = rng.uniform(-1, 1, (160, trunk.n_inputs))
        x[:80] = c.roots[rng.integers(0, len(c.roots), 80)] if len(c.roots) else x[:80]
        unit = np.append(stage.weight[j], stage.bias[j])
        typical = np.abs(with_one(below.features(x)) @ unit).mean()
        aim = typical * rng.uniform(0.02, 0.3, len(x))
        for _ in range(25):
            x = np.clip(x - _newton(trunk.local(x), below.local(x), c.theta, unit, aim), -1, 1)
        here, lower = trunk.local(x), below.local(x)
        h = with_one(here.z) @ c.theta
        good = (np.abs(h) < 1e-7) & (np.abs(with_one(lower.z) @ unit - aim) < 1e-6 * typical)
        slope = np.einsum("nfi,f->ni", here.J, c.theta[:-1])
        size = np.linalg.norm(slope, axis=1)
        pick = np.flatnonzero(good & (size > 0))[:each]
        way = 0.25 * slope[pick] / size[pick, None]
        start, end = np.clip(x[pick] - way, -1, 1), np.clip(x[pick] + way, -1, 1)
        starts.append(start)
        ways.append(end - start)
    start, way = np.concatenate(starts), np.concatenate(ways)
    long = np.linalg.norm(way, axis=1) > 0.05
    return Chords(start[long], way[long])


def across(trunk: Trunk, c: Candidate, rng: np.random.Generator, each: int = 4) -> Chords:
    """Short chords across a candidate's surface where it is known: more evidence for or against it."""
    x = rng.uniform(-1, 1, (120, trunk.n_inputs))
    if len(c.roots):  # a surface that cuts off a corner is not met from everywhere
        x[::3] = np.clip(c.roots[rng.integers(0, len(c.roots), 40)] + 0.7 * x[::3], -1, 1)
    for _ in range(20):
        local = trunk.local(x)
        slope = np.einsum("nfi,f->ni", local.J, c.theta[:-1])
        size = np.maximum((slope**2).sum(axis=1), 1e-30)
        x = np.clip(x - slope * ((with_one(local.z) @ c.theta) / size)[:, None], -1, 1)
    local = trunk.local(x)
    slope = np.einsum("nfi,f->ni", local.J, c.theta[:-1])
    size = np.linalg.norm(slope, axis=1)
    blind = np.linalg.norm(np.einsum("fu,nfi->nui", c.unseen[:-1], local.J), axis=(1, 2)) if c.unseen.size else 0.0
    pick = np.flatnonzero((np.abs(with_one(local.z) @ c.theta) < 1e-9) & (size > 0) & (blind < 1e-9))[:each]
    way = 0.1 * slope[pick] / size[pick, None]
    start, end = np.clip(x[pick] - way, -1, 1), np.clip(x[pick] + way, -1, 1)
    long = np.linalg.norm(end - start, axis=1) > 0.05
    return Chords(start[long], (end - start)[long])


def _newton(here: Local, lower: Local, theta: FloatArray, unit: FloatArray, aim: FloatArray) -> FloatArray:
    """The shortest step that solves both equations to first order."""
    r = np.stack([with_one(here.z) @ theta, with_one(lower.z) @ unit - aim], axis=1)
    J = np.stack([np.einsum("nfi,f->ni", here.J, theta[:-1]), np.einsum("nfi,f->ni", lower.J, unit[:-1])], axis=1)
    return shortest(J, r)


def shortest(J: FloatArray, r: FloatArray) -> FloatArray:
    """The shortest x with `J x = r`, nearly: two equations (n, 2, inputs) for each point."""
    G = J @ J.transpose(0, 2, 1)
    G += (1e-12 + 1e-9 * np.trace(G, axis1=1, axis2=2))[:, None, None] * np.eye(2)
    return np.einsum("nri,nr->ni", J, np.linalg.solve(G, r[:, :, None])[:, :, 0])
