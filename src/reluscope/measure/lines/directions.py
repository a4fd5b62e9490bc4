"""Candidates for the directions of lines: gradients, tails and edges of what is asked for, axes, radial lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray, choice, real_array
from reluscope._lazy import late
from reluscope.errors import InputError
from reluscope.measure.lines.plan import Settings
from reluscope.measure.points import MOST_AIMS, RARE
from reluscope.measure.shared import (
    BoxLines,
    ChordLines,
    GaussianLines,
    Job,
    RadialLines,
    Source,
    frame_seconds,
    slope_seconds,
)
from reluscope.network import Network
from reluscope.pace import charge

if TYPE_CHECKING:
    from reluscope.inputs import Component

_PILOT_POINTS = 2048

_PILOT_WORK = 4e9
"""Multiplications for the gradients at the pilot's points of all components, in a run of a second or more; large
networks and events of many forms get fewer points."""

_WIDE = 400
"""Above this many dimensions only the gradient's direction is tried."""


def sources_of(
    component: Component, settings: Settings, rng: np.random.Generator, *, single: bool, points: int = _PILOT_POINTS
) -> list[Source]:
    """Candidates for the lines' directions, the default first."""
    r = component.r
    wanted = settings.direction
    named = isinstance(wanted, str)
    if named:
        choice(wanted, "direction", ("auto", "gradient", "mean", "edge", "tail", "radial", "random"))
    if component.kind == "gaussian":
        probe: Source = GaussianLines(np.eye(r), "probe")
    elif component.rows is None:
        probe = BoxLines(component, 0)
    else:
        probe = ChordLines(component, np.eye(r)[0])
    net = component.network
    n_forms = len(settings.job.forms)
    each = net.n_parameters * min(net.n_outputs, n_forms) + n_forms * r * (net.n_outputs + r)
    seconds = 1.0 if settings.fixed else min(settings.seconds, 1.0)
    points = int(np.clip(seconds * _PILOT_WORK / (settings.components * each), min(16, points), points))
    U = probe.points(rng.random((points, probe.point_dimensions)), rng)
    G, Y = _gradients(component.network, U, settings.job)
    charge(points * 2.0 * slope_seconds(net, min(net.n_outputs, n_forms)) + frame_seconds(min(r, _WIDE)))
    if component.kind == "gaussian" and r > _WIDE and named and wanted in ("auto", "gradient"):
        # The eigenvectors of an r x r matrix would take longer than the lines.
        leading = _leading(G.reshape(-1, r))
        return [GaussianLines(_reflection(leading), "gradient")]
    rows = G.reshape(-1, r)
    matrix = rows.T @ rows / len(U)
    if component.kind != "gaussian" and component.rows is None:
        if not named:
            vector = _vector(wanted, r)
            axes = [int(np.argmax(np.abs(vector)))]
            if np.count_nonzero(vector) != 1:
                raise InputError("direction must be an axis for a law on a box: a vector with one entry that is not 0")
        else:
            importance = np.diag(matrix) * U.var(axis=0)
            axes = np.argsort(-importance)[: 1 if single or wanted != "auto" else 3].tolist()
            if wanted == "random":
                axes = [int(rng.integers(r))]
        return [BoxLines(component, i) for i in axes]
    directions: list[tuple[str, FloatArray]] = []
    if not named:
        directions.append(("given", _vector(wanted, r)))
    elif wanted == "random":
        directions.append(("random", rng.standard_normal(r)))
    else:
        leading = np.linalg.eigh(matrix)[1][:, -1]
        if wanted in ("auto", "gradient", "radial"):
            directions.append(("gradient", leading))
        if wanted in ("auto", "mean"):
            directions.append(("mean", G.mean(axis=(0, 1))))
        if wanted in ("auto", "tail", "edge"):
            directions += [aim for aim in _aims(U, Y, G, settings.job) if wanted in ("auto", aim[0])]
    directions = [(name, d) for name, d in directions if np.linalg.norm(d) > 0]
    radial = named and wanted == "radial"
    if settings.fixed and settings.method in ("auto", "lines") and named and wanted == "auto" and not single:
        directions, single = directions[-1:], True  # the one that a given number of lines takes
    if single and not radial:
        directions = directions[:1]
    frames = [(name, _frame(d, matrix)) for name, d in directions]
    if not frames:
        frames = [("gradient", _frame(np.eye(r)[0], matrix))]
    if component.kind != "gaussian":
        return [ChordLines(component, frame[:, 0].copy()) for _, frame in frames]
    sources: list[Source] = [GaussianLines(frame, name) for name, frame in frames]
    if radial or (named and wanted == "auto" and not single):
        sources.insert(len(sources) - 1, RadialLines(np.linalg.eigh(matrix)[1][:, ::-1]))
    if radial:
        sources = sources[:1]
    return sources[:1] if single else sources


def _leading(rows: FloatArray) -> FloatArray:
    """The leading right singular vector; of many rows by the Gram matrix, which costs a fraction."""
    n, r = rows.shape
    if n <= 2 * r:
        return np.asarray(np.linalg.svd(rows, full_matrices=False)[2][0])
    return np.asarray(late("scipy.linalg").eigh(rows.T @ rows, subset_by_index=[r - 1, r - 1])[1][:, 0])


def _vector(direction: Any, r: int) -> FloatArray:
    vector = real_array(direction, "direction", ndim=1)
    if len(vector) != r or not vector.any():
        raise InputError(f"direction must be a vector of {r} numbers, not all 0, got shape {vector.shape}")
    return vector


def _gradients(net: Network, U: FloatArray, job: Job) -> tuple[FloatArray, FloatArray]:
    """Gradients of the forms at the points, each form scaled to unit mean square, and the forms' values."""
    if len(job.forms) < net.n_outputs:
        G = net.then(job.forms).jacobian(U)
    else:
        G = np.matmul(job.forms, net.jacobian(U))
    size = np.sqrt(np.einsum("nfi,nfi->f", G, G) / len(U))
    G = G / np.where(size > 0, size, 1.0)[:, None]
    return G, net(U) @ job.forms.T


def _aims(U: FloatArray, Y: FloatArray, G: FloatArray, job: Job) -> list[tuple[str, FloatArray]]:
    """Directions for the levels and events themselves, from the points nearest to them (at least one in 64).

    "tail": from the centre to the mean of those points, for levels and events that one point in ten or fewer reaches.
    "edge": the leading eigenvector of their mean outer product of gradients, over all levels and events.
    """
    near = max(16, len(U) // 64)
    tails: list[tuple[str, FloatArray]] = []
    edge = np.zeros((U.shape[1], U.shape[1]))
    aims: list[tuple[int, FloatArray]] = []
    for form, thresholds in zip(job.level_forms, job.thresholds, strict=True):
        aims += [(form, np.abs(Y[:, form] - c)) for c in thresholds]
        for side, c in ((1.0, thresholds[-1]), (-1.0, thresholds[0])):
            beyond = side * (Y[:, form] - c)
            if (beyond > 0).mean() < RARE:
                chosen = np.argsort(-beyond)[: max(near, int((beyond > 0).sum()))]
                tails.append(("tail", U[chosen].mean(axis=0)))
    rows = job.rows
    if rows.count:
        scale = np.maximum(Y[:, rows.form].std(axis=0), 1e-300)
        excess = (Y[:, rows.form] - rows.bound) / scale
        members = rows.members
        for event in range(min(rows.count, MOST_AIMS)):
            parts = [members[p] for p in np.flatnonzero(rows.part_event == event) if members[p].any()]
            if not parts:
                continue
            # How far outside: the worst row of a conjunction, the best conjunction of the union.
            outside = np.min([excess[:, m].max(axis=1) for m in parts], axis=0)
            worst = excess[:, parts[0]].argmax(axis=1)
            for row in np.unique(worst):
                form = int(rows.form[np.flatnonzero(parts[0])[row]])
                aims.append((form, np.where(worst == row, np.abs(outside), np.inf)))
            if (outside <= 0).mean() < RARE:
                chosen = np.argsort(outside)[: max(near, int((outside <= 0).sum()))]
                tails.append(("tail", U[chosen].mean(axis=0)))
    for form, distance in aims:
        chosen = np.argsort(distance)[:near]
        chosen = chosen[np.isfinite(distance[chosen])]
        edge += np.einsum("ni,nj->ij", G[chosen, form], G[chosen, form])
    return [*tails[:MOST_AIMS], *([("edge", np.linalg.eigh(edge)[1][:, -1])] if aims else [])]


def _reflection(direction: FloatArray) -> FloatArray:
    """An orthonormal basis that starts with the direction, the others in no order: a Householder reflection."""
    v = direction / np.linalg.norm(direction)
    v = np.where(v[0] < 0, v, -v)  # the reflection below takes the first axis to -v, and stays clear of cancellation
    w = v.copy()
    w[0] -= 1.0
    return np.eye(len(v)) - np.outer(w, w) * (2.0 / float(w @ w))


def _frame(direction: FloatArray, matrix: FloatArray) -> FloatArray:
    """An orthonormal basis: the direction, then the directions across it in which the forms change most."""
    d = direction / np.linalg.norm(direction)
    across = np.eye(len(d)) - np.outer(d, d)
    vectors = np.linalg.eigh(across @ matrix @ across + across * (1e-9 * np.trace(matrix) + 1e-300))[1][:, ::-1]
    return np.linalg.qr(np.column_stack([d, vectors[:, : len(d) - 1]]))[0]
