"""A network on a plane, or any flat slice, through its input space: a network of few inputs, exactly.

On the slice `x = origin + u D` the network is again a ReLU network, in the coordinates `u`: the first layer's weights
are multiplied by the directions `D`, nothing else changes. Units and patterns are those of the whole network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, real_array
from reluscope._doors import door
from reluscope._text import count
from reluscope.algebra import compose
from reluscope.cells.regions import Regions, regions
from reluscope.errors import InputError
from reluscope.network import Network, check_network

_MARGIN = 0.25
"""Room around the given points, as a share of their extent."""
_DEPENDENT = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class Slice:
    """A network on the flat slice `x = origin + u @ directions`.

    Attributes
    ----------
    network : Network
        The network in the coordinates u; its units are those of the whole network, in the same order.
    origin : (inputs,) array
    directions : (k, inputs) array
    points : (n, k) array
        The points that the slice was put through, in its coordinates; none for a slice given by directions.

    Examples
    --------
    >>> net = Network([([[1.0, 1.0, 1.0]], [0.0]), ([[1.0]], [0.0])])
    >>> line = slice(net, [[0, 0, 0], [0, 3, 4]])
    >>> line.to_inputs([5.0]), line.points.tolist()
    (array([0., 3., 4.]), [[0.0], [5.0]])
    """

    network: Network
    origin: FloatArray
    directions: FloatArray
    points: FloatArray

    @property
    def box(self) -> tuple[FloatArray, FloatArray] | None:
        """A box around the points, a quarter wider on each side; None where the slice was given by directions."""
        if not len(self.points):
            return None
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        room = _MARGIN * max(float((high - low).max()), 1e-12)
        return low - room, high + room

    def to_inputs(self, u: npt.ArrayLike) -> FloatArray:
        """Points of the slice, (n, k) or (k,), as inputs of the whole network.

        Parameters
        ----------
        u : (n, k) or (k,)

        Returns
        -------
        (n, inputs) or (inputs,) array
        """
        u = real_array(u, "u", ndim=(1, 2))
        if u.shape[-1] != len(self.directions):
            raise InputError(f"u must have {count(len(self.directions), 'coordinate')} per point, got {u.shape[-1]}")
        return self.origin + u @ self.directions

    def to_slice(self, x: npt.ArrayLike) -> FloatArray:
        """The coordinates of the points of the slice that are nearest to some inputs, (n, inputs) or (inputs,).

        Parameters
        ----------
        x : (n, inputs) or (inputs,)

        Returns
        -------
        (n, k) or (k,) array
        """
        x = real_array(x, "x", ndim=(1, 2))
        if x.shape[-1] != len(self.origin):
            raise InputError(f"x must have {count(len(self.origin), 'input')} per point, got {x.shape[-1]}")
        found: FloatArray = (x - self.origin) @ np.linalg.pinv(self.directions)
        return found

    def regions(self, box: Any = None, **options: Any) -> Regions:
        """The regions on the slice, in its coordinates; in `self.box` if no other is given.

        Parameters
        ----------
        box : tuple, optional
        **options
            Those of `regions`.

        Returns
        -------
        Regions
        """
        return regions(self.network, self.box if box is None else box, **options)

    def plot(self, box: Any = None, ax: Any = None, **style: Any) -> Any:
        """A picture of the regions on a slice of two dimensions, with the points it was put through.

        Parameters
        ----------
        box : tuple, optional
        ax : Axes, optional
        **style
            Passed to `plot_regions`.

        Returns
        -------
        Axes
        """
        return door("Slice.plot")(self, box, ax, **style)

    def __repr__(self) -> str:
        through = f" through {count(len(self.points), 'point')}" if len(self.points) else ""
        return f"Slice({count(len(self.directions), 'dimension')} of {len(self.origin)}{through}, {self.network!r})"


def slice(
    net: Network, points: npt.ArrayLike | None = None, *, origin: npt.ArrayLike | None = None, directions: Any = None
) -> Slice:
    """The network on a flat slice through its inputs: a line, a plane, or a subspace of more dimensions.

    Parameters
    ----------
    net : Network
    points : (k + 1, inputs), optional
        Points that the slice passes through, three for a plane. Its coordinates are orthonormal, with the first point
        at 0 and the second on the first axis, so distances on the slice are those of the inputs.
    origin : (inputs,), optional
        Instead of points: one point of the slice, 0 by default, ...
    directions : (k, inputs), optional
        ... and the directions that span it; coordinates are in units of these.

    Returns
    -------
    Slice

    Raises
    ------
    InputError
        If the points or directions do not span a slice, or do not fit the network.

    Notes
    -----
    Exact, up to one rounding of the first layer's weights.

    Examples
    --------
    >>> import numpy as np
    >>> net = Network([(np.eye(3), None), ([[1.0, 1.0, 1.0]], None)])
    >>> plane = slice(net, [[0, 0, 0], [1, 0, 0], [0, 1, 1]])
    >>> plane.network([0.0, 2.0]), len(plane.regions((-1, 1)))
    (array([2.82842712]), 4)
    """
    check_network(net)
    if (points is None) == (directions is None):
        raise InputError("give either points that the slice passes through, or directions (and an origin)")
    n = net.n_inputs
    if points is not None:
        if origin is not None:
            raise InputError("origin goes with directions; points say where the slice is")
        P = real_array(points, "points", ndim=2)
        if P.shape[1] != n or len(P) < 2:
            raise InputError(f"points must have shape (2 or more, {n}), got {P.shape}")
        start, D = P[0], P[1:] - P[0]
        basis, triangle = np.linalg.qr(D.T)
        size = np.abs(np.diag(triangle))
        if len(D) > n or size.min() <= _DEPENDENT * size.max():
            raise InputError("points must span a slice: the differences to the first are linearly dependent")
        D = (basis * np.sign(np.diag(triangle))).T
        at = (P - start) @ D.T
    else:
        D = real_array(directions, "directions", ndim=2)
        if D.shape[1] != n or not len(D):
            raise InputError(f"directions must have shape (1 or more, {n}), got {D.shape}")
        values = np.linalg.svd(D, compute_uv=False)
        if len(D) > n or values[-1] <= _DEPENDENT * values[0]:
            raise InputError("directions must be linearly independent")
        start = np.zeros(n) if origin is None else real_array(origin, "origin", ndim=1)
        if len(start) != n:
            raise InputError(f"origin must have {n} entries, got {len(start)}")
        at = np.zeros((0, len(D)))
    place = Network([(D.T, start)], name="slice")
    made = compose(net, place)
    return Slice(Network(made.layers, name=f"{net.name} on a slice", notes=net.notes), start, D, at)
