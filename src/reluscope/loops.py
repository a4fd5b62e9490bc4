"""A controller and a plant over several steps, as one network.

    x_{t+1} = A x_t + B u(x_t) + E w_t        (t = 0..T-1)

Each step is a network that carries the states so far and the disturbances to come past the controller's layers; the
steps are composed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import describe, integer, real_array, several, text
from reluscope.algebra import compose, stack
from reluscope.errors import InputError
from reluscope.network import Network, check_network
from reluscope.schema import Schema

_MOST_STEPS = 1000


def closed_loop(
    controller: Network,
    A: npt.ArrayLike | Network,
    B: npt.ArrayLike | None,
    steps: int,
    *,
    disturbance: npt.ArrayLike | None = None,
    names: Any = None,
) -> Network:
    """The network from the first state and all disturbances to the states after each step.

    Parameters
    ----------
    controller : Network
        From the state (n numbers) to the control (m numbers).
    A : array_like, shape (n, n), or Network
        The plant `x+ = A x + B u`; or a plant that is piecewise affine itself, as a network from (x, u), or (x, u, w)
        with disturbances w, to x+.
    B : array_like, shape (n, m), or None
        None if the plant is a network.
    steps : int
        T, at least 1.
    disturbance : array_like, shape (n, k), optional
        E, by which k disturbances of each step enter the state: `x+ = A x + B u + E w`. `np.eye(n)` for one on each
        state. None: there are none.
    names : sequence of str, optional
        Names of the states; the outputs are then called `name_1`, ..., `name_T` in events, and disturbances `w0_1`, ...

    Returns
    -------
    Network
        Inputs: x_0, then w_0, ..., w_{T-1}. Outputs: x_1, ..., x_T; state i after step t is `y[(t - 1) * n + i]`.

    Raises
    ------
    InputError
        If the sizes do not fit.

    Notes
    -----
    The states are piecewise affine in the inputs, so "some step leaves the safe set" is an event like any other:
    `"max(abs(y)) > 2"`. A network is continuous: a plant or controller that jumps (a switch, an argmax) is not one.

    Examples
    --------
    >>> from reluscope import Network, closed_loop
    >>> brake = Network([([[1.0], [-1.0]], None), ([[-0.5, 0.5]], None)])  # u = -x / 2
    >>> closed_loop(brake, [[1.0]], [[1.0]], 3)([8.0])
    array([4., 2., 1.])
    """
    check_network(controller, "controller")
    T = integer(steps, "steps", low=1, high=_MOST_STEPS)
    n, m = controller.n_inputs, controller.n_outputs
    plant, k = _plant(A, B, disturbance, n, m)
    loop: Network | None = None
    for t in range(T):
        held = max(t, 1) * n  # x_0, or x_1..x_t
        size = held + (T - t) * k
        state = _chosen(range(held - n, held), size)
        keep = Network([(sparse.eye_array(size, format="csr"), np.zeros(size))])
        decided = stack([controller.after(state, np.zeros(n)), keep])  # (u, states, disturbances)
        # The plant reads (x, u, w_t); the states x_1..x_t and the later disturbances go past it.
        read = _chosen([*range(m + held - n, m + held), *range(m), *range(m + held, m + held + k)], m + size)
        moved = plant.after(read, np.zeros(n + m + k))
        past, later = range(m, m + (held if t else 0)), range(m + held + k, m + size)
        rest = [*past, *later]
        if rest:
            moved = stack([moved, Network([(_chosen(rest, m + size), np.zeros(len(rest)))])])
            order = [*range(n, n + len(past)), *range(n), *range(n + len(past), n + len(rest))]
            moved = moved.then(_chosen(order, n + len(rest)))
        step = compose(moved, decided)
        loop = step if loop is None else compose(step, loop)
    assert loop is not None
    return Network(
        loop.layers,
        output_shape=(T, n),
        name=f"closed loop of {controller.name}, {T} step{'s' * (T > 1)}",
        schema=None if names is None else _named(names, n, k, T),
    )


def _plant(A: Any, B: Any, E: Any, n: int, m: int) -> tuple[Network, int]:
    """The plant as a network from (x, u, w) to the next state, and the number of disturbances in each step."""
    if isinstance(A, Network):
        if B is not None or E is not None:
            raise InputError("B and disturbance belong to a linear plant; a plant that is a network reads (x, u, w)")
        k = A.n_inputs - n - m
        if A.n_outputs != n or k < 0:
            raise InputError(
                f"the plant must take the state ({n} numbers), the control ({m}) and any disturbances, and give the "
                f"state; it has {A.n_inputs} inputs and {A.n_outputs} outputs"
            )
        return A, k
    parts = [_matrix(A, "A", n, n), _matrix(B, "B", n, m)]
    if E is not None:
        parts.append(_matrix(E, "disturbance", n, None))
    return Network([(np.concatenate(parts, axis=1), np.zeros(n))]), 0 if E is None else parts[2].shape[1]


def _matrix(value: Any, name: str, rows: int, columns: int | None) -> Any:
    if value is None:
        raise InputError(f"{name} must be a matrix with {rows} rows, got None")
    found = real_array(value, name, ndim=2)
    if found.shape[0] != rows or columns not in (None, found.shape[1]) or not found.size:
        wanted = f"({rows}, {'k' if columns is None else columns})"
        raise InputError(f"{name} must have the shape {wanted}, got {found.shape}")
    return found


def _chosen(rows: Any, size: int) -> Any:
    """The matrix that picks these entries out of `size`."""
    at = list(rows)
    return sparse.csr_array((np.ones(len(at)), (range(len(at)), at)), shape=(len(at), size))


def _named(names: Any, n: int, k: int, T: int) -> Schema:
    given = [text(name, "a name") for name in several(names, "names", "names of the states")]
    if len(given) != n:
        raise InputError(f"names must name the {n} states, got {describe(names)}")
    columns = [*given, *(f"w{i}_{t}" for t in range(1, T + 1) for i in range(k))]
    return Schema(columns, [f"{name}_{t}" for t in range(1, T + 1) for name in given])  # type: ignore[arg-type]
