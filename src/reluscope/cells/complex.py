"""The polyhedral complex of a network: faces of every dimension, their labels, and how they hang together.

On each region the network is affine; the closed regions, their facets, the facets of those and so on down to the
vertices form a polyhedral complex: two faces meet in a common face or not at all. A face is identified by its *ternary
label*: for every break point `t` of every hidden unit, the sign of `h - t` (-1, 0 or 1), which is constant on its
relative interior. No two faces share a label (inside one side of the box, when there is a box): the sign vectors of a
layer cut out convex sets, and on each of them the next layer is affine.

How it is built. Cells bring their vertices and facets. The two copies of each facet are found by the facet's label,
and gluing them joins the copies of every vertex, because the cells around a vertex hang together through facets;
coordinates only say which corner of one facet is which corner of the other. Faces of lower dimension are the maximal
proper intersections of a face with facets, identified by their vertices. So the counts rest on combinatorics;
rounding enters in the labels, where a unit counts as being on its break point at a vertex when its value is within 32
probable errors of it (see `reluscope.cells.subdivide`) or when two cells around the vertex disagree about its sign.

The whole space is the cube of symbolic half-width, whose own surface is then dropped: an unbounded face counts as one
face.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray, integer, real
from reluscope._doors import door
from reluscope.budget import parse_budget
from reluscope.cells.complex_faces import Level, Nodes, count_components, gather, lattice, segments
from reluscope.cells.complex_glue import glue
from reluscope.cells.complex_labels import label_columns, mark_facets, mark_zeros, unpacked
from reluscope.cells.complex_signs import boundary_matrices
from reluscope.cells.csr import rows_of
from reluscope.cells.domain import MOST_DIMENSIONS, vertex_geometry
from reluscope.cells.regions import Regions, uninterrupted
from reluscope.cells.vertex import with_vertices
from reluscope.errors import InputError
from reluscope.network import Network
from reluscope.threads import clean_interrupt

if TYPE_CHECKING:
    from reluscope.cells.level_set import LevelSet

Index = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SEARCH_SHARE = 0.4
"""Share of a budget in seconds for the search for regions; their faces take longer."""

_ROOM_AROUND = 64.0
"""Half-width of the square that stands for the plane, in units of the farthest vertex."""


@dataclass(frozen=True, eq=False)
class Face:
    """One face: the convex hull of `vertices` (k, inputs) plus the cone of `rays`; `label` has one sign per column.

    Attributes
    ----------
    dimension, index : int
    vertices : (k, inputs) array
    rays : (m, inputs) array
    label : (columns,) array of int8
    on_boundary : bool
    """

    dimension: int
    index: int
    vertices: FloatArray
    rays: FloatArray
    label: npt.NDArray[np.int8]
    on_boundary: bool


@dataclass(frozen=True, eq=False, repr=False)
class Complex:
    """The polyhedral complex of a network in a box, a bounded polytope, or the whole space.

    Faces of dimension k are numbered from 0; those of the full dimension are numbered as `regions`. Labels have one
    column per hidden unit and break point: `columns` (columns, 3) holds layer, unit within the layer, and break point
    of each. `unmatched` counts inner facets for which no cell was found on the other side (0 unless a budget ended
    the search, or rounding spoiled it), `gap` is the largest distance between two computed copies of one vertex,
    relative to its size.

    Attributes
    ----------
    regions : Regions
    columns : (columns, 3) array
    unmatched : int
    gap : float
    """

    regions: Regions
    columns: Index
    unmatched: int
    gap: float
    _nodes: Nodes
    _levels: tuple[Level, ...]
    _output_error: FloatArray

    # -- counts --------------------------------------------------------------------------------------------------

    @property
    def network(self) -> Network:
        """The network."""
        return self.regions.network

    @property
    def dimension(self) -> int:
        """Number of inputs."""
        return self.network.n_inputs

    @property
    def box(self) -> tuple[FloatArray, FloatArray] | None:
        """The box, or None for a polytope and for the whole space."""
        return self.regions.domain.box

    @property
    def _closed(self) -> bool:
        """Whether the domain is a box or a bounded polytope, whose sides are faces too, and not the whole space."""
        return self.box is not None or self.regions.domain.half_spaces is not None

    @property
    def complete(self) -> bool:
        """Whether all regions were found."""
        return self.regions.complete

    @cached_property
    def f_vector(self) -> tuple[int, ...]:
        """Number of faces of dimension 0, 1, ..., d, those on the boundary of the domain included."""
        return tuple(len(self._real(k)) for k in range(self.dimension + 1))

    @cached_property
    def inner_f_vector(self) -> tuple[int, ...]:
        """The same without the faces on the boundary of the domain; equal to `f_vector` in the whole space."""
        return tuple(int((~self.on_boundary(k)).sum()) for k in range(self.dimension + 1))

    @property
    def euler(self) -> int:
        """`sum (-1)^k f_k`: 1 for a box or a bounded polytope.

        In the whole space unbounded faces count like bounded ones, and the sum is (-1)^d, that of an open ball; so is
        the sum over the inner faces of a box or polytope.
        """
        return sum((-1) ** k * count for k, count in enumerate(self.f_vector))

    @property
    def face_to_face(self) -> bool:
        """Whether every inner facet has a cell on each side and the Euler characteristic is right.

        True for every complete search in exact arithmetic: False says that a budget ended the search, or that double
        precision could not tell coincident hyperplanes from nearly coincident ones.
        """
        return self.unmatched == 0 and self.euler == (1 if self._closed else (-1) ** self.dimension)

    # -- faces ---------------------------------------------------------------------------------------------------

    @property
    def vertices(self) -> FloatArray:
        """Coordinates of the vertices, shape (f_0, inputs)."""
        return self._nodes.points[: self._nodes.finite]

    @property
    def edges(self) -> Index:
        """The two vertices of each edge, shape (f_1, 2); -1 where the edge goes to infinity."""
        level = self._levels[1]
        ends = level.nodes[level.offsets[self._real(1)][:, None] + np.arange(2)]
        return np.where(ends < self._nodes.finite, ends, -1)

    def labels(self, k: int) -> npt.NDArray[np.int8]:
        """Ternary labels of the faces of dimension k, shape (f_k, columns): the sign of `h - t` for each of `columns`.

        A full-dimensional face has a 0 only where a unit sits on its break point all over a region.

        Parameters
        ----------
        k : int

        Returns
        -------
        (f_k, columns) array of int8
        """
        level, rows = self._levels[self._k(k)], self._real(k)
        n = len(self.columns)
        zero, positive = unpacked(level.zero[rows], n), unpacked(level.positive[rows], n)
        return np.where(zero, 0, np.where(positive, 1, -1)).astype(np.int8)

    def sides(self, k: int) -> npt.NDArray[np.int8]:
        """For each face of dimension k and each input: -1 / 1 on the lower / upper side of the box, else 0.

        Parameters
        ----------
        k : int

        Returns
        -------
        (f_k, inputs) array of int8
        """
        level, rows = self._levels[self._k(k)], self._real(k)
        if self.box is None:
            return np.zeros((len(rows), self.dimension), np.int8)
        on = unpacked(level.sides[rows, None], 2 * self.dimension).astype(np.int8)
        return on[:, 1::2] - on[:, 0::2]

    def half_spaces(self, k: int) -> Flags:
        """For each face of dimension k and each row of `A x <= b` of the polytope: whether the face lies on it.

        Parameters
        ----------
        k : int

        Returns
        -------
        (f_k, rows) array of bool
            No columns where the domain is not a polytope.
        """
        level, rows = self._levels[self._k(k)], self._real(k)
        cut = self.regions.domain.half_spaces
        given = 0 if cut is None else len(cut[0])
        return unpacked(level.sides[rows, None], 2 * self.dimension + given)[:, 2 * self.dimension :]

    def on_boundary(self, k: int) -> Flags:
        """Whether each face of dimension k lies on the boundary of the domain, shape (f_k,).

        Parameters
        ----------
        k : int

        Returns
        -------
        (f_k,) array of bool
        """
        level, rows = self._levels[self._k(k)], self._real(k)
        return np.asarray((level.sides[rows] != 0) & self._closed)

    def bounded(self, k: int) -> Flags:
        """Whether each face of dimension k is bounded, shape (f_k,).

        Parameters
        ----------
        k : int

        Returns
        -------
        (f_k,) array of bool
        """
        level, rows = self._levels[self._k(k)], self._real(k)
        last: Index = np.maximum.reduceat(level.nodes, level.offsets[:-1])
        return np.asarray(last[rows] < self._nodes.finite)

    def incidence(self, k: int) -> Any:
        """Which (k - 1)-faces are facets of which k-faces: a scipy `csr_array` (f_k, f_{k-1}) of ones.

        Parameters
        ----------
        k : int

        Returns
        -------
        csr_array
        """
        k = integer(k, "k", low=1, high=self.dimension)
        return self._incidence(k)[self._real(k)][:, self._real(k - 1)]

    @cached_property
    def boundaries(self) -> tuple[Any, ...]:
        """Boundary matrices in a box or polytope: entry k - 1 is a `csr_array` (f_{k-1}, f_k) of -1 and 1.

        Every face has an orientation; an edge runs from its first vertex to its second. The product of two matrices
        that follow is 0.
        """
        if not self._closed:
            raise InputError(
                "boundaries are for a complex in a box or polytope: faces of the whole space are unbounded"
            )
        return boundary_matrices([self.incidence(k) for k in range(1, self.dimension + 1)])

    def face_vertices(self, k: int) -> tuple[Index, Index]:
        """`(offsets, ids)`: face i of dimension k has the vertices `ids[offsets[i]:offsets[i+1]]`.

        In a rectangle the vertices of a region come counter-clockwise. Vertices at infinity are left out.

        Parameters
        ----------
        k : int

        Returns
        -------
        offsets, ids : arrays of int
        """
        level, rows = self._levels[self._k(k)], self._real(k)
        nodes, offsets = rows_of(level.nodes, level.offsets, rows)
        finite = nodes < self._nodes.finite
        return np.concatenate([[0], np.cumsum(finite)])[offsets], nodes[finite]

    def face(self, k: int, i: int) -> Face:
        """Face i of dimension k.

        Parameters
        ----------
        k, i : int

        Returns
        -------
        Face
        """
        rows = self._real(self._k(k))
        i = integer(i, "i", low=0, high=len(rows) - 1)
        level, at = self._levels[k], int(rows[i])
        nodes = level.nodes[level.offsets[at] : level.offsets[at + 1]]
        n = len(self.columns)
        zero, positive = unpacked(level.zero[at : at + 1], n)[0], unpacked(level.positive[at : at + 1], n)[0]
        far = self._nodes.rays[nodes[nodes >= self._nodes.finite]]
        return Face(
            k,
            i,
            self._nodes.points[nodes[nodes < self._nodes.finite]],
            np.unique(far / np.linalg.norm(far, axis=1, keepdims=True), axis=0),
            np.where(zero, 0, np.where(positive, 1, -1)).astype(np.int8),
            self._closed and bool(level.sides[at] != 0),
        )

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """A picture of the edges in the plane, coloured by the hidden layer that bends there.

        Parameters
        ----------
        ax : Axes, optional
        **options
            Those of `plot_complex`.

        Returns
        -------
        Axes
        """
        return door("Complex.plot")(self, ax, **options)

    # -- parts ---------------------------------------------------------------------------------------------------

    def bent_hyperplane(self, layer: int, unit: int, step: int = 0) -> Subcomplex:
        """The faces on which unit `unit` of hidden layer `layer` is on its break point number `step`, all from 0.

        A hyperplane for the first layer; for later ones it bends where it meets those of earlier layers. It is a
        subcomplex: with a face it has all faces of that face. A unit that is on the break point all over some regions
        adds them whole.

        Parameters
        ----------
        layer, unit, step : int

        Returns
        -------
        Subcomplex
        """
        hidden = self.network.hidden
        if not hidden:
            raise InputError("the network has no hidden units, so it has no bent hyperplanes")
        layer = integer(layer, "layer", low=0, high=len(hidden) - 1)
        units = hidden[layer].units
        unit = integer(unit, "unit", low=0, high=len(units) - 1)
        if units.pieces[unit] == 1:
            raise InputError(f"unit {unit} of layer {layer} is affine: it has no break point")
        step = integer(step, "step", low=0, high=int(units.pieces[unit]) - 2)
        column = int(np.flatnonzero((self.columns == (layer, unit, step)).all(axis=1))[0])
        word, bit = column // 64, np.uint64(column % 64)
        faces = tuple(
            np.flatnonzero((level.zero[self._real(k), word] >> bit) & np.uint64(1))
            for k, level in enumerate(self._levels)
        )
        return Subcomplex(self, faces)

    def level_set(self, output: int = 0, other: int | None = None, value: float = 0.0) -> LevelSet:
        """Where `y[output] - y[other] = value`, or `y[output] = value` without `other`: decision boundaries, contours.

        Every region is cut by the hyperplane of its linear model, so parts meet exactly along shared vertices.
        Cost: one pass over the faces. Guarantee: complete, up to rounding; a vertex within 32 probable errors counts
        as being on it.

        Parameters
        ----------
        output, other : int
            Indices of outputs.
        value : float

        Returns
        -------
        LevelSet
        """
        outputs = self.network.n_outputs
        output = integer(output, "output", low=0, high=outputs - 1)
        level = real(value, "value")
        if other is not None:
            other = integer(other, "other", low=0, high=outputs - 1)
            if other == output:
                raise InputError(f"other must be another output than output, got {other} twice")
        from reluscope.cells.level_set import level_set

        return level_set(self, output, other, level)

    # -- out -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Counts, vertices, and the vertices and labels of the faces of each dimension, in plain lists fit for JSON."""
        faces = []
        for k in range(self.dimension + 1):
            offsets, ids = self.face_vertices(k)
            text = np.array(["-", "0", "+"])[self.labels(k) + 1]
            faces.append(
                {
                    "dimension": k,
                    "vertices": [ids[a:b].tolist() for a, b in pairwise(offsets)],
                    "labels": ["".join(row) for row in text.tolist()],
                    "on_boundary": self.on_boundary(k).tolist(),
                }
            )
        return {
            "dimension": self.dimension,
            "box": None if self.box is None else [side.tolist() for side in self.box],
            "f_vector": list(self.f_vector),
            "inner_f_vector": list(self.inner_f_vector),
            "euler": self.euler,
            "complete": self.complete,
            "columns": self.columns.tolist(),
            "vertices": self.vertices.tolist(),
            "faces": faces,
        }

    def __repr__(self) -> str:
        names = ["vertices", "edges", "2-faces", "3-faces"]
        counts = ", ".join(
            f"{count:,} {'regions' if k == self.dimension else names[k] if k < 4 else f'{k}-faces'}"
            for k, count in enumerate(self.f_vector)
        )
        if not self.complete:
            state = f"; incomplete: {self.regions.reason}"
        else:
            state = "" if self.face_to_face else f"; {self.unmatched} facets unmatched"
        return f"Complex({counts} of {self.network!r} in {self.regions.domain}{state})"

    # -- inside --------------------------------------------------------------------------------------------------

    def _k(self, k: int) -> int:
        return integer(k, "k", low=0, high=self.dimension)

    def _real(self, k: int) -> Index:
        """The faces of a level that are not at infinity."""
        return self._real_faces[self._k(k)]

    @cached_property
    def _real_faces(self) -> tuple[Index, ...]:
        if self._closed:
            return tuple(np.arange(len(level.owner)) for level in self._levels)
        return tuple(np.flatnonzero(level.sides == 0) for level in self._levels)

    def _incidence(self, k: int) -> Any:
        level, wide = self._levels[k], len(self._levels[k - 1].owner)
        ones = np.ones(len(level.below), np.int8)
        return sparse.csr_array((ones, level.below, level.below_offsets), shape=(len(level.owner), wide))


@dataclass(frozen=True, eq=False, repr=False)
class Subcomplex:
    """Some faces of a complex, closed under taking faces: `faces[k]` numbers those of dimension k.

    Attributes
    ----------
    complex : Complex
    faces : tuple of arrays
    """

    complex: Complex
    faces: tuple[Index, ...]

    @property
    def f_vector(self) -> tuple[int, ...]:
        """Number of faces of each dimension, 0 to d."""
        return tuple(len(part) for part in self.faces)

    @property
    def euler(self) -> int:
        """`sum (-1)^k f_k`."""
        return sum((-1) ** k * count for k, count in enumerate(self.f_vector))

    @property
    def vertices(self) -> FloatArray:
        """Coordinates of its vertices."""
        return self.complex.vertices[self.faces[0]]

    @property
    def facets(self) -> Index:
        """Its faces of dimension d - 1."""
        return self.faces[-2]

    @property
    def regions(self) -> Index:
        """Its full-dimensional faces: regions all over which the unit is on its break point."""
        return self.faces[-1]

    def components(self) -> int:
        """In how many pieces it falls, pieces that share a face taken together."""
        joined, starts = [], np.concatenate([[0], np.cumsum(self.f_vector)])
        for k in range(1, len(self.faces)):
            part = self.complex.incidence(k)[self.faces[k]][:, self.faces[k - 1]].tocoo()
            joined.append(np.stack([part.row + starts[k], part.col + starts[k - 1]]))
        return count_components(int(starts[-1]), np.concatenate(joined, axis=1))

    def segments(self, reach: float = 1.0) -> FloatArray:
        """In the plane: the ends of its edges, shape (edges, 2, 2); an end at infinity is put `reach` away.

        Parameters
        ----------
        reach : float

        Returns
        -------
        (edges, 2, 2) array
        """
        c = self.complex
        if c.dimension != 2:
            raise InputError(f"segments are for networks with 2 inputs, this one has {c.dimension}; use faces")
        level = c._levels[1]
        ends = level.nodes[level.offsets[c._real(1)[self.faces[1]]][:, None] + np.arange(2)]
        return segments(c._nodes.points, c._nodes.rays, ends, c._nodes.finite, real(reach, "reach", low=0.0))

    def __repr__(self) -> str:
        return f"Subcomplex(f-vector {self.f_vector} of {self.complex!r})"


@clean_interrupt()
def polyhedral_complex(
    net: Network, box: Any = None, *, polytope: Any = None, budget: Any = None, progress: Any = None
) -> Complex:
    """The polyhedral complex of a network: its regions and all their faces, with ternary labels.

    Parameters
    ----------
    net : Network
        A network with up to 6 inputs.
    box : tuple, optional
        `(lower, upper)`, numbers or one entry per input; the whole space without it. The sides of the box are faces
        too (`on_boundary` tells them, `inner_f_vector` leaves them out).
    polytope : tuple or Polytope, optional
        `(A, b)`: only where `A x <= b`, inside the box if there is one. It must be bounded, with at most
        `64 - 2 * inputs` rows; `half_spaces` tells which faces lie on which row.
    budget, progress
        When to end the search for regions early (`"60s"`, of which 40 % are for the search and the rest for the faces;
        `"10000 regions"`), and whether to show how far it is. After
        a budget the complex is that of the regions found, where two that touch in a face of lower dimension share it
        only if the regions between were found too.

    Returns
    -------
    Complex
        Faces of every dimension; `face_to_face` tells when rounding spoiled them.

    Raises
    ------
    InputError
        If there are more than 6 inputs, the box or polytope does not fit the network, or the polytope is unbounded.

    Notes
    -----
    Cost: the traversal, plus a few operations per vertex and facet of each face. Guarantee: complete, up to rounding.
    In the whole space of three or more inputs rounding can spoil networks with saturating units, whose cells can have
    ill-determined vertices at infinity; a box that holds all vertices has the same faces then (`inner_f_vector`).

    Examples
    --------
    >>> net = Network([([[1.0, 0.0], [0.0, 1.0]], None), ([[1.0, 1.0]], None)])
    >>> found = polyhedral_complex(net, (-1, 1), progress=None)
    >>> found.f_vector, found.inner_f_vector, found.face_to_face
    ((9, 12, 4), (1, 4, 4), True)
    >>> polyhedral_complex(net, polytope=([[1, 1], [-1, 1], [0, -1]], [1, 1, 0.5]), progress=None).f_vector
    (7, 10, 4)
    """
    if isinstance(net, Network) and net.n_inputs > MOST_DIMENSIONS:
        raise InputError(
            f"a complex is for networks with up to {MOST_DIMENSIONS} inputs, this one has {net.n_inputs}: "
            "its cells have too many faces to list; regions works in any dimension"
        )
    geometry = vertex_geometry(net.n_inputs) if isinstance(net, Network) else "auto"
    if box is None and polytope is None and geometry == "auto" and isinstance(net, Network) and net.n_inputs == 2:
        geometry = "vertex"  # the plane: its unbounded faces are identified by their vertices at infinity
    limit = parse_budget(budget)
    search = limit.part(_SEARCH_SHARE) if limit.seconds < np.inf else limit
    found = uninterrupted(net, box, polytope=polytope, geometry=geometry, budget=search, progress=progress)
    made = build_complex(found)
    if not made._closed and net.n_inputs == 2 and made.regions.stopped is None and not made.face_to_face:
        # Where units saturate, nearly parallel lines meet far out and symbolic vertices there are ill-determined.
        made = _plane_complex(net, made, progress)
    return made


def build_complex(found: Regions) -> Complex:
    """The complex of regions that were found in a box, a bounded polytope or the whole space."""
    net = found.network
    if found.domain.half_spaces is not None:
        given, most = len(found.domain.half_spaces[0]), 64 - 2 * net.n_inputs
        if given > most:  # the sides a vertex is on are the bits of one word
            raise InputError(
                f"polytope must have at most {most} rows for a complex with {net.n_inputs} inputs, got {given}"
            )
        if any(len(found.cells.rays_of(i)) for i in range(len(found))):
            raise InputError("polytope must be bounded for a complex: give a box too")
    cells = with_vertices(found.cells)
    columns, column_of_label = label_columns(net)
    words = max(1, -(-len(columns) // 64))
    zero = np.zeros((len(cells.points), words), np.uint64)
    positive = np.zeros((len(cells), words), np.uint64)
    output_error = mark_zeros(found, cells, column_of_label, zero, positive)
    sides = np.zeros(len(cells.points), np.uint64)
    mark_facets(cells.bits, cells.labels, cells.offsets, cells.facet_offsets, column_of_label, zero, sides)
    glued, unmatched = glue(cells, zero, positive)
    nodes, node_of, gap = gather(cells, glued, zero, positive, sides)
    levels = lattice(cells, nodes, node_of, positive)
    return Complex(found, columns, unmatched, gap, nodes, levels, output_error)


def _plane_complex(net: Network, doubtful: Complex, progress: Any) -> Complex:
    """The complex of the plane, from that of a square which holds all vertices.

    Every face meets such a square in one convex piece, so the faces inside it are those of the plane, and what lies on
    its sides is at infinity: an edge that ends there is a ray, in the direction of the edge. The vertices, and the
    number of regions, come from cells as half-spaces. `doubtful` is returned where the counts disagree.
    """
    whole = uninterrupted(net, progress=progress)
    corners = [whole.vertices(i) for i in range(len(whole))]
    extent = max((float(np.abs(c).max()) for c in corners if len(c)), default=0.0)
    half = _ROOM_AROUND * max(extent, float(np.abs(whole.interior).max()), 1.0)
    square = uninterrupted(net, (-half, half), progress=progress)
    place = whole.find(square.interior)
    if len(square) != len(whole) or (np.sort(place) != np.arange(len(whole))).any():
        return doubtful
    made = build_complex(square)
    cells = type(whole.cells).join([whole.cells.part(int(i), int(i) + 1) for i in place])
    ordered = Regions(net, whole.domain, cells, whole.pattern[place], whole.maps[place])
    nodes, levels = _to_infinity(made, half)
    out = Complex(ordered, made.columns, made.unmatched, made.gap, nodes, levels, made._output_error)
    return out if out.face_to_face else doubtful


def _to_infinity(made: Complex, half: float) -> tuple[Nodes, tuple[Level, ...]]:
    """Nodes and faces of a square's complex with its sides moved to infinity: far nodes become `points + R * rays`."""
    old = made._nodes
    far = old.sides != 0
    points, rays = old.points.copy(), np.zeros_like(old.points)
    rays[far] = np.where(np.abs(np.abs(points[far]) - half) <= 1e-9 * half, np.sign(points[far]), 0.0)  # corners
    points[far] = 0.0
    level = made._levels[1]
    ends = level.nodes[level.offsets[np.flatnonzero(level.sides == 0)][:, None] + np.arange(2)]
    for here, there in ((0, 1), (1, 0)):
        out = ends[far[ends[:, here]]]
        direction = old.points[out[:, here]] - old.points[out[:, there]]
        steepest = np.abs(old.points[out[:, here]]).argmax(axis=1)  # the side it ends on
        each = np.arange(len(out))
        direction /= np.abs(direction[each, steepest])[:, None]
        start = old.points[out[:, there]]
        rays[out[:, here]] = direction
        points[out[:, here]] = start - direction * (start[each, steepest] / direction[each, steepest])[:, None]
    order = np.argsort(far, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    nodes = Nodes(points[order], rays[order], old.cell[order], old.zero[order], old.sides[order], int((~far).sum()))
    # Faces of dimension 0 are the nodes themselves, in their order; faces of higher dimension list them.
    corners, edges, top = made._levels
    moved = number[corners.nodes][order]
    assert np.array_equal(moved, np.arange(len(order)))
    corners = Level(
        corners.owner[order],
        corners.carriers[order],
        corners.offsets,
        moved,
        corners.zero[order],
        corners.positive[order],
        corners.sides[order],
        corners.below_offsets,
        corners.below,
    )
    edges = edges._replace(nodes=number[edges.nodes], below=number[edges.below])
    return nodes, (corners, edges, top._replace(nodes=number[top.nodes]))
