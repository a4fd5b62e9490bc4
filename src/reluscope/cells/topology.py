"""The shape of what a network marks off: holes of sublevel sets, level sets and decision boundaries.

A network is affine on each face of its complex. A unit that compares outputs (`y[0] - y[1]`, or `y[0]` with a value),
added behind the network, refines the complex so that the set in question is a union of its faces. Betti numbers are
then ranks of the boundary matrices of those faces: `b_0` counts connected parts, `b_1` holes that a loop can go around,
`b_2` hollows. They are computed modulo 2 and modulo a large prime, with signs from a chosen orientation of every face.
The two differ only where the set has torsion (as a Klein bottle has); the second are the Betti numbers over the
rationals, unless the torsion is by that prime.

Persistence follows all sublevel sets at once. Since the network is affine on faces, `{f <= t}` can be shrunk onto the
faces whose vertices all lie in it, so faces enter with the largest value at their vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from reluscope._check import FloatArray, choice, integer, real
from reluscope._doors import door
from reluscope._text import count
from reluscope.activations import Units
from reluscope.budget import Budget, parse_budget
from reluscope.cells.complex import Complex, Subcomplex, polyhedral_complex
from reluscope.errors import InputError
from reluscope.network import Network, check_network
from reluscope.threads import OutOfTimeError, clean_interrupt, deadline, deadline_at_hand, look

SETS = ("sublevel", "superlevel", "level", "decision boundary")
_PRIME = 2147483647
_MOST_CLASSES = 64
"""Outputs of a decision: all pairs of them are compared."""


@dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """The shape of a set that a network marks off in a box.

    Attributes
    ----------
    of : str
        Which set, in words.
    betti : tuple of int
        Betti numbers over the rationals: connected parts, holes, hollows, ... up to the dimension of the set.
    betti_mod2 : tuple of int
        Over the field of two elements; different only where there is torsion.
    part : Subcomplex
        The faces of the set, in the complex that was refined by it.

    Examples
    --------
    >>> net = Network([([[1.0], [1.0]], [-1.0, 1.0], "abs"), ([[1.0, 1.0]], [0.0])])
    >>> topology(net, (-3, 3), of="superlevel", value=3.0).betti
    (2, 0)
    """

    of: str
    betti: tuple[int, ...]
    betti_mod2: tuple[int, ...]
    part: Subcomplex

    @property
    def euler(self) -> int:
        """The alternating sum of the Betti numbers, and of the numbers of faces."""
        return self.part.euler

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """A picture of the set in the plane: its cells filled, its edges as lines, single points as dots.

        Parameters
        ----------
        ax : Axes, optional
        **style
            Of the lines.

        Returns
        -------
        Axes
        """
        return door("Topology.plot")(self, ax, **style)

    def __repr__(self) -> str:
        torsion = "" if self.betti == self.betti_mod2 else f", modulo 2 {self.betti_mod2}"
        faces = count(sum(self.part.f_vector), "face")
        return f"Topology({self.of}: Betti numbers {self.betti}{torsion}, Euler number {self.euler}, {faces})"


@dataclass(frozen=True, eq=False, repr=False)
class Persistence:
    """Which features of the sublevel sets `{f <= t}` are born and die at which value t, as t rises.

    Attributes
    ----------
    pairs : (features, 3) array
        Dimension, birth and death of each feature (death `inf` for the one that stays); none that die at birth.

    Examples
    --------
    >>> bowl = Network([([[1.0]], [0.0], "abs"), ([[1.0]], [2.0])])
    >>> persistence(bowl, (-1, 1)).betti(2.5)
    (1,)
    """

    pairs: FloatArray

    def betti(self, value: float) -> tuple[int, ...]:
        """Betti numbers of `{f <= value}`, from dimension 0 on.

        Parameters
        ----------
        value : float

        Returns
        -------
        tuple of int
        """
        value = real(value, "value")
        alive = self.pairs[(self.pairs[:, 1] <= value) & (value < self.pairs[:, 2]), 0].astype(int)
        return tuple(int(n) for n in np.bincount(alive, minlength=1))

    def of_dimension(self, k: int) -> FloatArray:
        """Birth and death of the features of dimension k, the longest first, shape (features, 2).

        Parameters
        ----------
        k : int

        Returns
        -------
        (features, 2) array
        """
        mine = self.pairs[self.pairs[:, 0] == integer(k, "k", low=0), 1:]
        return mine[np.argsort(mine[:, 0] - mine[:, 1], kind="stable")]

    def plot(self, ax: Any = None, **style: Any) -> Any:
        """A bar for each feature, from its birth to its death.

        Parameters
        ----------
        ax : Axes, optional
        **style
            Of the bars.

        Returns
        -------
        Axes
        """
        return door("Persistence.plot")(self, ax, **style)

    def __repr__(self) -> str:
        each = [
            f"{count(int((self.pairs[:, 0] == k).sum()), 'feature')} of dimension {k}"
            for k in range(int(self.pairs[:, 0].max(initial=0.0)) + 1)
        ]
        return f"Persistence({', '.join(each)})"


_AT_A_TIME = 64
"""Columns of a boundary matrix that are reduced between two looks at the clock."""


@contextmanager
def _within(limit: Budget) -> Iterator[None]:
    """What is not done when the budget ends is refused: a part of a reduction says nothing about holes."""
    outer = deadline_at_hand()
    try:
        with deadline(lambda: limit.spent() is not None or (outer is not None and outer())):
            yield
    except OutOfTimeError:
        raise InputError(
            f"{limit.spent() or 'the time is over'} before the boundary matrices were reduced; "
            "give a larger budget or a smaller box"
        ) from None


def _whole(net: Network, box: Any, budget: Budget, progress: Any) -> Complex:
    """The complex of the network, refused unless all of its regions were found."""
    made = polyhedral_complex(net, box, budget=budget, progress=progress)
    if not made.complete:
        raise InputError(
            f"not all regions were found ({made.regions.reason}), and holes of a part say nothing about the whole; "
            "give a larger budget or a smaller box"
        )
    return made


@clean_interrupt()
def topology(
    net: Network,
    box: Any,
    *,
    of: str = "sublevel",
    output: int = 0,
    other: int | None = None,
    value: float = 0.0,
    budget: Any = None,
    progress: Any = None,
) -> Topology:
    """Betti numbers of a set that the network marks off in a box: its parts, holes and hollows.

    Parameters
    ----------
    net : Network
        With up to 6 inputs.
    box : tuple
        `(lower, upper)`, numbers or one entry per input.
    of : {"sublevel", "superlevel", "level", "decision boundary"}
        Where `f <= value`, `f >= value`, `f = value`, with `f = y[output]` or `y[output] - y[other]`; or where two
        outputs tie for the largest.
    output, other : int
        Indices of outputs.
    value : float
    budget, progress
        Those of `polyhedral_complex`.

    Returns
    -------
    Topology

    Raises
    ------
    InputError
        If there is no box, an output does not exist, not all regions were found, or the budget ended after that.

    Notes
    -----
    Cost: the complex of the network with one unit more (one for each pair of outputs, for a decision boundary), then
    the reduction of its boundary matrices. Guarantee: exact for the complex, whose faces are
    right up to rounding (`Complex.face_to_face`).

    Examples
    --------
    The square `|x| + |y| = 1` is a circle: one part, one hole.

    >>> net = Network([([[1.0, 0.0], [0.0, 1.0]], None, "abs"), ([[1.0, 1.0]], None)])
    >>> topology(net, (-2, 2), of="level", value=1.0)
    Topology(where y[0] = 1: Betti numbers (1, 1), Euler number 0, 8 faces)
    """
    check_network(net)
    choice(of, "of", SETS)
    if box is None:
        raise InputError("topology needs a box (lower, upper): parts of the whole space may reach to infinity")
    m = net.n_outputs
    if of == "decision boundary":
        integer(m, "the number of outputs of a decision", low=2, high=_MOST_CLASSES)
        i, j = np.triu_indices(m, 1)
        rows = np.zeros((len(i), m))
        rows[np.arange(len(i)), i], rows[np.arange(len(i)), j] = 1.0, -1.0
        levels, said = np.zeros(len(i)), "the decision boundary"
    else:
        output = integer(output, "output", low=0, high=m - 1)
        rows = np.zeros((1, m))
        rows[0, output] = 1.0
        name = f"y[{output}]"
        if other is not None:
            other = integer(other, "other", low=0, high=m - 1)
            if other == output:
                raise InputError(f"other must be another output than output, got {other} twice")
            rows[0, other] = -1.0
            name += f" - y[{other}]"
        levels = np.array([real(value, "value")])
        said = f"where {name} {dict(zip(SETS, ('<=', '>=', '='), strict=False))[of]} {levels[0]:g}"
    limit = parse_budget(budget)
    made = _whole(_compared(net, rows, levels), box, limit, progress)
    last = len(net.hidden) + 1
    column = [int(np.flatnonzero((made.columns[:, :2] == (last, k)).all(axis=1))[0]) for k in range(len(rows))]
    faces = []
    for k in range(made.dimension + 1):
        sign = made.labels(k)[:, column]
        if of == "decision boundary":
            largest = np.ones((len(sign), m), np.bool_)
            for at, (a, b) in enumerate(zip(i, j, strict=True)):
                largest[:, a] &= sign[:, at] >= 0
                largest[:, b] &= sign[:, at] <= 0
            inside = largest.sum(axis=1) > 1
        else:
            inside = {"sublevel": sign <= 0, "superlevel": sign >= 0, "level": sign == 0}[of][:, 0]
        faces.append(np.flatnonzero(inside))
    part = Subcomplex(made, tuple(faces))
    with _within(limit):
        return Topology(said, betti_numbers(part), betti_numbers(part, 2), part)


@clean_interrupt()
def persistence(
    net: Network,
    box: Any,
    *,
    output: int = 0,
    other: int | None = None,
    budget: Any = None,
    progress: Any = None,
) -> Persistence:
    """At which values parts and holes of the sublevel sets of an output appear and disappear.

    Parameters
    ----------
    net : Network
        With up to 6 inputs.
    box : tuple
        `(lower, upper)`, numbers or one entry per input.
    output, other : int
        The function is `y[output]`, or `y[output] - y[other]`.
    budget, progress
        Those of `polyhedral_complex`.

    Returns
    -------
    Persistence

    Raises
    ------
    InputError
        If there is no box, an output does not exist, not all regions were found, or the budget ended after that.

    Notes
    -----
    Cost: the complex, and one reduction of its boundary matrix modulo 2. Exact for the complex. Features born and dead
    at one value are left out.

    Examples
    --------
    Two valleys of depth 0 join at the ridge of height 1:

    >>> bent = Network([([[1.0]], [0.0], "abs"), ([[1.0]], [-1.0], "abs"), ([[1.0]], [0.0])])
    >>> persistence(bent, (-3, 3)).pairs.tolist()
    [[0.0, 0.0, inf], [0.0, 0.0, 1.0]]
    """
    check_network(net)
    if box is None:
        raise InputError("persistence needs a box (lower, upper): parts of the whole space may reach to infinity")
    output = integer(output, "output", low=0, high=net.n_outputs - 1)
    if other is not None:
        other = integer(other, "other", low=0, high=net.n_outputs - 1)
    limit = parse_budget(budget)
    made = _whole(net, box, limit, progress)
    y = net(made.vertices)
    height = y[:, output] - (0.0 if other is None else y[:, other])
    value, dimension, columns = [], [], []
    start = before = 0
    for k in range(made.dimension + 1):
        offsets, ids = made.face_vertices(k)
        value.append(np.maximum.reduceat(height[ids], offsets[:-1]))
        dimension.append(np.full(len(value[-1]), k))
        if k == 0:
            columns += [np.zeros(0, np.int64)] * len(value[-1])
        else:
            below = made.incidence(k)
            columns += [below.indices[a:b] + before for a, b in pairwise(below.indptr)]
        before = start
        start += len(value[-1])
    values, dims = np.concatenate(value), np.concatenate(dimension)
    order = np.lexsort((dims, values))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    with _within(limit):
        dead, creators = _reduced([order[dims[order] == k] for k in range(made.dimension + 1)], place, columns)
    pairs = []
    for birth in sorted(creators):
        face = order[birth]
        death = values[order[dead[birth]]] if birth in dead else np.inf
        if death > values[face]:
            pairs.append((float(dims[face]), float(values[face]), float(death)))
    table = np.array(pairs, float).reshape(-1, 3)
    return Persistence(table[np.lexsort((table[:, 1], -(table[:, 2] - table[:, 1]), table[:, 0]))])


def _reduced(faces: list[Any], place: Any, columns: list[Any]) -> tuple[dict[int, int], set[int]]:
    """The place at which each hole that closes does so, by the place of the face that opens it; and all such faces.

    `faces` are those of each dimension in the order in which they enter, `place` says where each stands among all. From
    the highest dimension down: a face that is known to open a hole has a column that reduces to nothing, and nearly all
    of the work would go into these.
    """
    pivot_of: dict[int, set[int]] = {}
    dead: dict[int, int] = {}
    creators = set(place[faces[0]].tolist())
    for k in range(len(faces) - 1, 0, -1):
        for number, face in enumerate(faces[k].tolist()):
            if number % _AT_A_TIME == 0:
                look()
            own = int(place[face])
            if own in dead:
                creators.add(own)
                continue
            column = set(place[columns[face]].tolist())
            while column and (low := max(column)) in pivot_of:
                column ^= pivot_of[low]
            if column:
                pivot_of[max(column)] = column
                dead[max(column)] = own
            else:
                creators.add(own)
    return dead, creators


# -- Betti numbers -----------------------------------------------------------------------------------------------------


def betti_numbers(part: Subcomplex, prime: int = _PRIME) -> tuple[int, ...]:
    """Betti numbers of a closed set of faces, modulo a prime, from dimension 0 to that of the set."""
    sizes = part.f_vector
    top = max((k for k, n in enumerate(sizes) if n), default=-1)
    if top < 0:
        return (0,)
    matrices = part.complex.boundaries
    rank = [0] * (top + 2)
    cleared: set[int] = set()
    for k in range(top, 0, -1):
        matrix = matrices[k - 1][part.faces[k - 1]][:, part.faces[k]].tocsc()
        rank[k], cleared = _rank(matrix, prime, cleared)
    return tuple(sizes[k] - rank[k] - rank[k + 1] for k in range(top + 1))


def _rank(matrix: Any, p: int, known: set[int]) -> tuple[int, set[int]]:
    """Rank of a sparse matrix of -1 and 1 modulo p, and its pivot rows; columns in `known` depend on others."""
    starts, rows, signs = matrix.indptr.tolist(), matrix.indices.tolist(), matrix.data.tolist()
    reduced: dict[int, dict[int, int]] = {}
    for j in range(len(starts) - 1):
        if j % _AT_A_TIME == 0:
            look()
        if j in known:
            continue
        column = {rows[i]: signs[i] % p for i in range(starts[j], starts[j + 1])}
        while column:
            low = max(column)
            other = reduced.get(low)
            if other is None:
                inverse = pow(column[low], -1, p)
                reduced[low] = {r: v * inverse % p for r, v in column.items()}
                break
            factor = column[low]
            for r, v in other.items():
                new = (column.get(r, 0) - factor * v) % p
                if new:
                    column[r] = new
                else:
                    column.pop(r, None)
    return len(reduced), set(reduced)


def _compared(net: Network, rows: FloatArray, levels: FloatArray) -> Network:
    """The network with one ReLU for each row behind its outputs, `relu(row . y - level)`, and the outputs themselves.

    The outputs pass through a layer of their own: no weight is rounded, so boundaries of three classes meet exactly.
    """
    last, m = net.layers[-1], net.n_outputs
    weight, bias = np.concatenate([rows, np.eye(m)]), np.concatenate([-levels, np.zeros(m)])
    units = Units.concatenate([Units.uniform("relu", len(rows)), Units.uniform("identity", m)])
    out = np.concatenate([np.zeros((m, len(rows))), np.eye(m)], axis=1)
    carried = (last.weight, last.bias, Units.uniform("identity", m))
    before = [(a.weight, a.bias, a.units) for a in net.hidden]
    layers: list[Any] = [*before, carried, (weight, bias, units), (out, None)]
    made = Network(layers, name=net.name)
    return made if net.schema is None else made.with_schema(net.schema)
