"""The largest output on a box or a ball: the sup-norm of a network (Definition 2.3.5 of the thesis).

On a region the output is affine, so its Euclidean norm is convex there. On a box the maximum is at a vertex of a
region. On a ball it may lie on the sphere. There a linear function `c . x` over `{A x <= b, |x| <= T}` is maximised by
the projection of `c / mu` onto the polytope, with mu such that it has length T; the multipliers prove an upper bound,
`T |c - A' l| + b . l` for any `l >= 0`. One output is a pair of linear functions. For several outputs, `|y|` is the
largest `n . y` over unit vectors n: directions no further than an angle e from any n give `|y| <= max n . y / cos e`.
"""

from __future__ import annotations

from itertools import product
from math import cos, pi, sqrt
from typing import Any

import numpy as np

from reluscope._check import FloatArray, real
from reluscope._lazy import late
from reluscope.answer import Answer, Status, status_of
from reluscope.budget import Budget, parse_budget
from reluscope.cells.bounds import box_outputs
from reluscope.cells.domain import MOST_DIMENSIONS, box_bounds, vertex_geometry
from reluscope.cells.regions import Regions, uninterrupted
from reluscope.cells.vertex import with_vertices
from reluscope.errors import InputError
from reluscope.network import Network, check_network

_ROUNDING = 1e-9
"""Relative error of vertices, norms and projections, with room to spare."""
_CIRCLE = 64
_FACE = 6
"""Directions around the circle, and along half a side of the cube, over which the norm of outputs is taken."""
_HALVINGS = 45


def sup_norm(net: Network, box: Any = None, *, radius: Any = None, budget: Any = None, progress: Any = None) -> Answer:
    """The largest Euclidean norm of the output, `max |f(x)|`, over a box or over the ball `|x| <= radius`.

    Parameters
    ----------
    net : Network
        A network with up to 6 inputs.
    box : tuple, optional
        `(lower, upper)`, numbers or one entry per input.
    radius : float, optional
        Of a ball about the origin, in the place of a box.
    budget, progress
        When to end the search early (10 s if not given), and whether to show how far it is.

    Returns
    -------
    Answer
        "exact" on a box when all regions were found, and on a ball for one output; else a "sound" bracket. On a ball
        with two or three outputs it is within about 0.3 and 3 % in random tests, with more it can be wide.

    Raises
    ------
    InputError
        If there are more than 6 inputs, or not exactly one of box and radius is given.

    Notes
    -----
    `f` is in the thesis' set `F_T` with bound M if and only if this is at most M for the ball of radius T. Cost: the
    traversal, one evaluation per vertex, and on a ball some small projections for the regions that matter.

    Examples
    --------
    >>> net = Network([([[1.0, 0.0], [0.0, 1.0]], None), ([[3.0, 4.0]], None)])
    >>> sup_norm(net, (-1, 1), progress=None).value
    7.0
    >>> round(sup_norm(net, radius=1.0, progress=None).value, 9)
    5.0
    """
    check_network(net)
    if (box is None) == (radius is None):
        raise InputError("give either box=(lower, upper) or radius, the radius of a ball about the origin")
    if net.n_inputs > MOST_DIMENSIONS:
        raise InputError(
            f"sup_norm is for networks with up to {MOST_DIMENSIONS} inputs, this one has {net.n_inputs}: its regions "
            "have too many vertices to list"
        )
    limit = parse_budget(budget, "10s")
    reach = None if radius is None else real(radius, "radius", low=0.0, open_=True)
    sides = box_bounds(box if reach is None else (-reach, reach), net.n_inputs)
    search = limit if reach is None or limit.seconds == np.inf else limit.part(0.5)
    geometry = vertex_geometry(net.n_inputs)
    found = uninterrupted(net, sides, geometry=geometry, budget=search, progress=progress)
    whole = box_outputs(net, *sides)
    anywhere = float(np.linalg.norm(np.maximum(np.abs(whole[0]), np.abs(whole[1])))) * (1 + _ROUNDING)
    if reach is None:
        points = with_vertices(found.cells).points if len(found) else np.stack(sides)
        top = float(np.linalg.norm(net(points), axis=1).max())
        return _answer(found, top, top, anywhere, "largest of all vertices", True)
    low, high = _on_ball(found, reach, limit)
    # Where the answer is on the sphere, it is exact up to the projections, and for one output only.
    return _answer(found, low, high, anywhere, "largest over the ball, region by region", net.n_outputs == 1)


def _answer(found: Regions, low: float, high: float, anywhere: float, method: str, exact: bool) -> Answer:
    if found.complete:
        ends = low * (1 - _ROUNDING), max(high, low) * (1 + _ROUNDING)
        exact = exact and ends[1] - ends[0] <= 4 * _ROUNDING * max(ends[1], 1e-300)
        value = low if exact else 0.5 * (ends[0] + ends[1])
        return Answer(value, *ends, "exact" if exact else "sound", method=method, evaluations=len(found))
    ends = low * (1 - _ROUNDING), max(anywhere, low)
    status = Status.UNDECIDED if found.stopped is None else status_of(found.stopped)
    return Answer(
        0.5 * (ends[0] + ends[1]), *ends, "sound", method=f"{method} found; bounds on the box", note=str(found.reason),
        evaluations=len(found), status=status,
    )  # fmt: skip


def _on_ball(found: Regions, T: float, limit: Budget) -> tuple[float, float]:
    """Lower and upper bound of the largest norm over the regions and the ball."""
    net = found.network
    if not len(found):
        return float(np.linalg.norm(net(np.zeros(net.n_inputs)))), np.inf
    cells = with_vertices(found.cells)
    points, offsets = cells.corners()
    norm = np.linalg.norm(net(points), axis=1)
    # No region exceeds its vertices in the box around the ball, nor |d| + T |C|.
    most = np.minimum(
        np.maximum.reduceat(norm, offsets[:-1]),
        np.linalg.norm(found.d, axis=1) + T * np.linalg.norm(found.C, ord=2, axis=(1, 2)),
    )
    length = np.linalg.norm(points, axis=1, keepdims=True)
    drawn_in = points * np.minimum(1.0, T / np.maximum(length, 1e-300))  # any point of the ball will do for a start
    best = float(np.linalg.norm(net(drawn_in), axis=1).max())
    directions, angle = _directions(net.n_outputs)
    upper = best
    for i in np.argsort(-most, kind="stable").tolist():
        if most[i] <= upper:
            break
        if limit.spent() is not None:
            upper = float(most[i])
            break
        A, b = found.half_spaces(i)
        own = points[offsets[i] : offsets[i + 1]]
        low, high = _region_on_ball(net, A, b, found.C[i], found.d[i], own, T, directions, angle, upper)
        best, upper = max(best, low), max(upper, min(high, float(most[i])))
    return best, max(upper, best)


def _region_on_ball(
    net: Network, A: FloatArray, b: FloatArray, C: FloatArray, d: FloatArray, corners: FloatArray, T: float,
    directions: FloatArray, angle: float, floor: float,
) -> tuple[float, float]:  # fmt: skip
    """Bounds of `|C x + d|` over one region and the ball: a value of the network, and the largest over directions.

    Below `floor`, which other regions reach, the bounds need not be sharp.
    """
    # Neither the vertices of the region nor the whole ball allow more; most directions need no projection then.
    seen = np.minimum(
        (directions @ (corners @ C.T + d).T).max(axis=1),
        directions @ d + T * np.linalg.norm(directions @ C, axis=1),
    )
    low, high, sides = 0.0, 0.0, np.zeros(len(d))
    for k in np.argsort(-seen, kind="stable").tolist():
        n = directions[k]
        if angle < 0.5 * pi and seen[k] <= max(high, floor * cos(angle)):
            high = max(high, float(seen[k]))
            break
        x, most = linear_on_ball(A, b, C.T @ n, T)
        if x is None:
            return 0.0, 0.0  # the ball does not reach this region
        top = float(n @ d) + most
        high = max(high, top)
        axis = int(np.abs(n).argmax())
        sides[axis] = max(sides[axis], top)
        low = max(low, _uphill(net, A, b, C, d, x, T))
    return low, float(np.linalg.norm(sides)) if angle >= 0.5 * pi else high / cos(angle)


def _uphill(net: Network, A: FloatArray, b: FloatArray, C: FloatArray, d: FloatArray, x: FloatArray, T: float) -> float:
    """A value of `|f|` in the region and the ball: from x in the direction of its own output, three times."""
    best = 0.0
    for _ in range(3 if len(d) > 1 else 1):
        if (A @ x <= b + 1e-9).all():
            best = max(best, float(np.linalg.norm(net(x[None])[0])))
        y = C @ x + d
        size = float(np.linalg.norm(y))
        moved, _ = linear_on_ball(A, b, C.T @ (y / size), T) if size > 0 and len(d) > 1 else (None, 0.0)
        if moved is None or np.allclose(moved, x, rtol=1e-7, atol=1e-9):
            break
        x = moved
    return best


def _directions(outputs: int) -> tuple[FloatArray, float]:
    """Unit vectors, and the angle within which every direction has one of them (a right angle: the axes only)."""
    if outputs == 1:
        return np.array([[1.0], [-1.0]]), 0.0
    if outputs == 2:
        turn = 2 * pi * np.arange(_CIRCLE) / _CIRCLE
        return np.column_stack([np.cos(turn), np.sin(turn)]), pi / _CIRCLE
    if outputs == 3:
        ticks = (np.arange(2 * _FACE) + 0.5) / _FACE - 1.0
        faces = [np.insert([s, t], axis, side) for axis, side, s, t in product(range(3), (-1.0, 1.0), ticks, ticks)]
        made = np.asarray(faces)
        # Half the diagonal of a square on a face at distance 1: seen from the origin under at most this angle.
        return made / np.linalg.norm(made, axis=1)[:, None], float(np.arctan(sqrt(2.0) / (2 * _FACE)))
    axes = np.eye(outputs)
    return np.concatenate([axes, -axes]), 0.5 * pi


def linear_on_ball(A: FloatArray, b: FloatArray, c: FloatArray, T: float) -> tuple[FloatArray | None, float]:
    """The x that maximises `c . x` over `{A x <= b, |x| <= T}`, None if that is empty, and an upper bound of it."""
    nearest, _ = _projected(A, b, np.zeros(len(c)))
    if nearest is None or np.linalg.norm(nearest) > T * (1 + 1e-12):
        return None, -np.inf
    size = float(np.linalg.norm(c))
    if size == 0.0:
        return nearest, 0.0
    # |projection of c / mu| falls as mu grows: halve until it has length T.
    low, high = -40.0, 40.0  # of log2(mu T / |c|)
    x, weights, mu = nearest, np.zeros(len(b)), size / T
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        mu = 2.0**middle * size / T
        there, weights_there = _projected(A, b, c / mu)
        if there is None or np.linalg.norm(there) > T:
            low = middle
        else:
            high, x, weights = middle, there, mu * weights_there
    best = min(
        T * float(np.linalg.norm(c - A.T @ rows)) + float(b @ rows) for rows in (np.zeros(len(b)), weights)
    )  # any multipliers prove a bound
    return x, max(best, float(c @ x))


def _projected(A: FloatArray, b: FloatArray, z: FloatArray) -> tuple[FloatArray | None, FloatArray]:
    """The point of `{A x <= b}` nearest to z and its multipliers l >= 0, `z - x = A' l`; None if there is none.

    Lawson and Hanson's least distance programming: with `G = -A`, `h = A z - b`, the multipliers are those of a
    non-negative least squares problem.
    """
    nnls = late("scipy.optimize", "nnls")

    h = A @ z - b
    if (h <= 0).all():
        return z, np.zeros(len(b))
    scale = float(np.abs(h).max())
    E = np.vstack([-A.T, h / scale])
    goal = np.zeros(len(E))
    goal[-1] = 1.0
    u, _ = nnls(E, goal)
    rest = E @ u - goal
    if abs(rest[-1]) < 1e-13:
        return None, np.zeros(len(b))
    # From the active rows, because `z - A' l` loses its digits where z is far away.
    active = np.flatnonzero(u > 1e-12 * u.max(initial=0.0))
    left, size, right = np.linalg.svd(A[active], full_matrices=True)
    rank = int((size > 1e-12 * size[0]).sum())
    span, free = right[:rank], right[rank:]
    x = span.T @ ((left[:, :rank].T @ b[active]) / size[:rank]) + free.T @ (free @ z)
    weights = np.zeros(len(b))
    weights[active] = np.maximum(left[:, :rank] @ ((span @ (z - x)) / size[:rank]), 0.0)
    return x, weights
