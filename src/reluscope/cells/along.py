"""A network along segments and lines: an exact piecewise-linear function of one variable.

On the line `x(t) = a + t (b - a)` the network is a piecewise-linear function of `t`. The traversal visits every region
the line meets, so the break points are complete, and many lines are traced together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, flag, integer, real_array
from reluscope._text import count
from reluscope.cells.balance import check_range
from reluscope.cells.interval import Intervals
from reluscope.cells.subdivide import subdivide
from reluscope.errors import InputError
from reluscope.network import Network, Pattern, check_network
from reluscope.schema import Schema
from reluscope.threads import clean_interrupt


@dataclass(frozen=True, eq=False, repr=False)
class Paths:
    """The network along n segments or lines, as pieces stored back to back.

    Line `i` has the pieces `offsets[i]:offsets[i+1]`, in order of `t`. Piece `k` covers `start[k] <= t <= stop[k]`,
    where the outputs are `slope[k] * t + intercept[k]` (shape (outputs,)) and the hidden units are on `pattern[k]`.

    Attributes
    ----------
    offsets : (n + 1,) array
    start, stop : (pieces,) arrays
    slope, intercept : (pieces, outputs) arrays
    pattern : (pieces, units) array
    schema : Schema or None
        What the outputs mean.
    """

    offsets: npt.NDArray[np.int64]
    start: FloatArray
    stop: FloatArray
    slope: FloatArray
    intercept: FloatArray
    pattern: Pattern
    schema: Schema | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Paths({count(len(self), 'line')}, {count(len(self.start), 'piece')})"

    def breaks(self, line: int = 0) -> FloatArray:
        """Where the pieces of one line begin and end, one more than there are pieces.

        Parameters
        ----------
        line : int

        Returns
        -------
        (pieces + 1,) array
        """
        pieces = self._pieces(line)
        return np.append(self.start[pieces], self.stop[pieces][-1:])

    def values(self, line: int = 0) -> FloatArray:
        """Outputs at the break points of one line, shape (breaks, outputs).

        Parameters
        ----------
        line : int

        Returns
        -------
        (pieces + 1, outputs) array
        """
        return self.at(self.breaks(line), line)

    def at(self, t: npt.ArrayLike, line: int = 0) -> FloatArray:
        """Outputs at the positions `t` on one line, shape (len(t), outputs).

        Parameters
        ----------
        t : (m,)
        line : int

        Returns
        -------
        (m, outputs) array
        """
        pieces = self._pieces(line)
        t = np.atleast_1d(real_array(t, "t", ndim=(0, 1), finite=False))
        start, stop = self.start[pieces], self.stop[pieces]
        outside = ~((t >= start[0]) & (t <= stop[-1]))
        if outside.any():
            raise InputError(f"t must lie in [{start[0]}, {stop[-1]}], got {t[outside][0]}")
        k = np.clip(np.searchsorted(start, t, side="left") - 1, 0, len(start) - 1)
        with np.errstate(invalid="ignore"):
            moved = np.where(self.slope[pieces][k] == 0, 0.0, self.slope[pieces][k] * t[:, None])
        return moved + self.intercept[pieces][k]

    def _pieces(self, line: int) -> slice:
        line = integer(line, "line", low=-len(self), high=len(self) - 1) % len(self)
        return slice(int(self.offsets[line]), int(self.offsets[line + 1]))


@clean_interrupt()
def along(net: Network, a: npt.ArrayLike, b: npt.ArrayLike, *, extend: bool = False) -> Paths:
    """A network along segments or lines, as exact piecewise-linear functions of one variable.

    Parameters
    ----------
    net : Network
        The network.
    a, b : array_like
        Points (inputs,) or batches (n, inputs), at `t = 0` and `t = 1`; one may be a single point shared by all.
    extend : bool
        The whole lines through `a` and `b` instead of the segments between them.

    Returns
    -------
    Paths
        The pieces of every line, back to back.

    Raises
    ------
    InputError
        If the points do not fit the network or each other.

    Notes
    -----
    Cost per line: one pair of matrix-vector products per layer for each piece found. Guarantee: complete, up to
    rounding.

    Examples
    --------
    >>> net = Network([([[1.0, 0.0], [0.0, 1.0]], [0.0, -1.0]), ([[1.0, 1.0]], None)])
    >>> path = along(net, [-2.0, 0.0], [2.0, 2.0])
    >>> path.breaks().tolist(), path.values()[:, 0].tolist()
    ([0.0, 0.5, 1.0], [0.0, 0.0, 3.0])
    """
    check_network(net)
    check_range(net)
    extend = flag(extend, "extend")
    start, end = real_array(a, "a", ndim=(1, 2)), real_array(b, "b", ndim=(1, 2))
    for name, array in (("a", start), ("b", end)):
        if not array.size:
            raise InputError(f"{name} must have at least one row, got shape {array.shape}")
        if array.shape[-1] != net.n_inputs:
            raise InputError(f"{name} must have {net.n_inputs} coordinates, one per input, got shape {array.shape}")
    try:
        origin, target = np.broadcast_arrays(np.atleast_2d(start), np.atleast_2d(end))
    except ValueError as error:
        raise InputError(f"a and b must hold equally many points, got {len(start)} and {len(end)}") from error
    first = net.layers[0]
    slope = (first.weight @ (target - origin).T).T
    maps = np.stack([slope, first.affine(np.ascontiguousarray(origin))], axis=1)
    n = len(origin)
    low, high = (-np.inf, np.inf) if extend else (0.0, 1.0)
    leaves = list(subdivide(net, Intervals.box(np.full(n, low), np.full(n, high)), maps))
    root = np.concatenate([leaf.root for leaf in leaves])
    cells = Intervals.join([cast(Intervals, leaf.cells) for leaf in leaves])
    order = np.lexsort((cells.low, root))
    found = np.concatenate([leaf.maps for leaf in leaves])[order]
    return Paths(
        np.concatenate([[0], np.cumsum(np.bincount(root, minlength=n))]).astype(np.int64),
        cells.low[order],
        cells.high[order],
        found[:, 0],
        found[:, 1],
        np.concatenate([leaf.pattern for leaf in leaves])[order],
        net.schema,
    )
