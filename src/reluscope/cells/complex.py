"""The polyhedral complex of a network: faces of every dimension, their labels, and how they hang together.

On each region the network is affine; the closed regions, their facets, the facets of those and so on down to the
vertices form a polyhedral complex: two faces meet in a common face or not at all. A face is told by its *ternary
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
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray, integer, real
from reluscope.cells._advance import after_layer
from reluscope.cells.interval import Intervals
from reluscope.cells.polygon import Polygons
from reluscope.cells.regions import Regions, regions
from reluscope.cells.subdivide import first_labels
from reluscope.cells.vertex import VertexCells
from reluscope.errors import InputError
from reluscope.network import Network

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

MOST_DIMENSIONS = 6
"""Above this, cells have too many vertices and faces to list them all."""

_PROBABLE_ERRORS = 32.0
_FAR_TOLERANCE = 64 * EPS
"""A function is constant along a ray when its slope is at most this share of its terms."""
_CHUNK_NUMBERS = 1 << 21
"""Numbers in the affine maps of one chunk of cells."""
_GEOMETRIC_MATCH = 1e-6
"""Facets that are paired by position alone must agree to this share of their size."""


class _Level(NamedTuple):
    """The faces of one dimension, those at infinity included.

    Face i is the part of cell `owner[i]` on all facets in the set `carriers[i]`; its vertices are
    `nodes[offsets[i]:offsets[i+1]]`, its facets the faces `below[below_offsets[i]:below_offsets[i+1]]` one dimension
    down. `zero` and `positive` are the sets of label columns with 0 and 1, `sides` that of the sides of the domain it
    lies on.
    """

    owner: Index
    carriers: Words
    offsets: Index
    nodes: Index
    zero: Words
    positive: Words
    sides: Words
    below_offsets: Index
    below: Index


class _Nodes(NamedTuple):
    """The vertices of the complex, finite ones first: `points + R * rays`, one cell around each, label sets, sides."""

    points: FloatArray
    rays: FloatArray
    cell: Index
    zero: Words
    sides: Words
    finite: int


@dataclass(frozen=True, eq=False)
class Face:
    """One face: the convex hull of `vertices` (k, inputs) plus the cone of `rays`; `label` has one sign per column."""

    dimension: int
    index: int
    vertices: FloatArray
    rays: FloatArray
    label: npt.NDArray[np.int8]
    on_boundary: bool


@dataclass(frozen=True, eq=False, repr=False)
class Complex:
    """The polyhedral complex of a network in a box, or in the whole space (`box` is None).

    Faces of dimension k are numbered from 0; those of the full dimension are numbered as `regions`. Labels have one
    column per hidden unit and break point: `columns` (columns, 3) holds layer, unit within the layer, and break point
    of each. `unmatched` counts inner facets for which no cell was found on the other side (0 unless a budget ended
    the search, or rounding spoiled it), `gap` is the largest distance between two computed copies of one vertex,
    relative to its size.
    """

    regions: Regions
    columns: Index
    unmatched: int
    gap: float
    _nodes: _Nodes
    _levels: tuple[_Level, ...]
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
        """The box, or None for the whole space."""
        return self.regions.domain.box

    @property
    def complete(self) -> bool:
        """Whether all regions were found before a budget ended."""
        return self.regions.complete

    @cached_property
    def f_vector(self) -> tuple[int, ...]:
        """Number of faces of dimension 0, 1, ..., d, those on the boundary of the box included."""
        return tuple(len(self._real(k)) for k in range(self.dimension + 1))

    @cached_property
    def inner_f_vector(self) -> tuple[int, ...]:
        """The same without the faces that lie on the boundary of the box; equal to `f_vector` in the whole space."""
        return tuple(int((~self.on_boundary(k)).sum()) for k in range(self.dimension + 1))

    @property
    def euler(self) -> int:
        """`sum (-1)^k f_k`: 1 for a box.

        In the whole space unbounded faces count like bounded ones, and the sum is (-1)^d, that of an open ball; so is
        the sum over the inner faces of a box.
        """
        return sum((-1) ** k * count for k, count in enumerate(self.f_vector))

    @property
    def face_to_face(self) -> bool:
        """Whether every inner facet has a cell on each side and the Euler characteristic is right.

        True for every complete search in exact arithmetic: False says that a budget ended the search, or that double
        precision could not tell coincident hyperplanes from nearly coincident ones.
        """
        return self.unmatched == 0 and self.euler == (1 if self.box is not None else (-1) ** self.dimension)

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
        """
        level, rows = self._levels[self._k(k)], self._real(k)
        n = len(self.columns)
        zero, positive = _unpacked(level.zero[rows], n), _unpacked(level.positive[rows], n)
        return np.where(zero, 0, np.where(positive, 1, -1)).astype(np.int8)

    def sides(self, k: int) -> npt.NDArray[np.int8]:
        """For each face of dimension k and each input: -1 / 1 on the lower / upper side of the box, else 0."""
        level, rows = self._levels[self._k(k)], self._real(k)
        if self.box is None:
            return np.zeros((len(rows), self.dimension), np.int8)
        on = _unpacked(level.sides[rows, None], 2 * self.dimension).astype(np.int8)
        return on[:, 1::2] - on[:, 0::2]

    def on_boundary(self, k: int) -> Flags:
        """Whether each face of dimension k lies on the boundary of the box, shape (f_k,)."""
        return np.asarray(self.sides(k).any(axis=1))

    def bounded(self, k: int) -> Flags:
        """Whether each face of dimension k is bounded, shape (f_k,)."""
        level, rows = self._levels[self._k(k)], self._real(k)
        last: Index = np.maximum.reduceat(level.nodes, level.offsets[:-1])
        return np.asarray(last[rows] < self._nodes.finite)

    def incidence(self, k: int) -> Any:
        """Which (k - 1)-faces are facets of which k-faces: a scipy `csr_array` (f_k, f_{k-1}) of ones."""
        k = integer(k, "k", low=1, high=self.dimension)
        return self._incidence(k)[self._real(k)][:, self._real(k - 1)]

    def face_vertices(self, k: int) -> tuple[Index, Index]:
        """`(offsets, ids)`: face i of dimension k has the vertices `ids[offsets[i]:offsets[i+1]]`.

        In a rectangle the vertices of a region come counter-clockwise. Vertices at infinity are left out.
        """
        level, rows = self._levels[self._k(k)], self._real(k)
        nodes, offsets = _rows_of(level.nodes, level.offsets, rows)
        finite = nodes < self._nodes.finite
        return np.concatenate([[0], np.cumsum(finite)])[offsets], nodes[finite]

    def face(self, k: int, i: int) -> Face:
        """Face i of dimension k."""
        rows = self._real(self._k(k))
        i = integer(i, "i", low=0, high=len(rows) - 1)
        level, at = self._levels[k], int(rows[i])
        nodes = level.nodes[level.offsets[at] : level.offsets[at + 1]]
        n = len(self.columns)
        zero, positive = _unpacked(level.zero[at : at + 1], n)[0], _unpacked(level.positive[at : at + 1], n)[0]
        far = self._nodes.rays[nodes[nodes >= self._nodes.finite]]
        return Face(
            k,
            i,
            self._nodes.points[nodes[nodes < self._nodes.finite]],
            np.unique(far / np.linalg.norm(far, axis=1, keepdims=True), axis=0),
            np.where(zero, 0, np.where(positive, 1, -1)).astype(np.int8),
            self.box is not None and bool(level.sides[at] != 0),
        )

    # -- parts ---------------------------------------------------------------------------------------------------

    def bent_hyperplane(self, layer: int, unit: int, step: int = 0) -> Subcomplex:
        """The faces on which unit `unit` of hidden layer `layer` is on its break point number `step`, all from 0.

        A hyperplane for the first layer; for later ones it bends where it meets those of earlier layers. It is a
        subcomplex: with a face it has all faces of that face. A unit that is on the break point all over some regions
        adds them whole.
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

        Every region is cut by the hyperplane of its own affine map, so pieces meet exactly along shared vertices.
        Cost: one pass over the faces. Guarantee: complete, up to rounding; a vertex within 32 probable errors counts
        as being on it.
        """
        outputs = self.network.n_outputs
        output = integer(output, "output", low=0, high=outputs - 1)
        level = real(value, "value")
        if other is not None:
            other = integer(other, "other", low=0, high=outputs - 1)
            if other == output:
                raise InputError(f"other must be another output than output, got {other} twice")
        return _level_set(self, output, other, level)

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
            state = f"; incomplete: {self.regions.stopped}"
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
        if self.box is not None:
            return tuple(np.arange(len(level.owner)) for level in self._levels)
        return tuple(np.flatnonzero(level.sides == 0) for level in self._levels)

    def _incidence(self, k: int) -> Any:
        level, wide = self._levels[k], len(self._levels[k - 1].owner)
        ones = np.ones(len(level.below), np.int8)
        return sparse.csr_array((ones, level.below, level.below_offsets), shape=(len(level.owner), wide))


@dataclass(frozen=True, eq=False, repr=False)
class Subcomplex:
    """Some faces of a complex, closed under taking faces: `faces[k]` numbers those of dimension k."""

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
        return _components(int(starts[-1]), np.concatenate(joined, axis=1))

    def segments(self, reach: float = 1.0) -> FloatArray:
        """In the plane: the ends of its edges, shape (edges, 2, 2); an end at infinity is put `reach` away."""
        c = self.complex
        if c.dimension != 2:
            raise InputError(f"segments are for networks with 2 inputs, this one has {c.dimension}; use faces")
        level = c._levels[1]
        ends = level.nodes[level.offsets[c._real(1)[self.faces[1]]][:, None] + np.arange(2)]
        return _drawn(c._nodes.points, c._nodes.rays, ends, c._nodes.finite, real(reach, "reach", low=0.0))

    def __repr__(self) -> str:
        return f"Subcomplex(f-vector {self.f_vector} of {self.complex!r})"


@dataclass(frozen=True, eq=False, repr=False)
class LevelSet:
    """The inputs where an output, or the difference of two, has a given value.

    Piece i is a convex polytope of dimension d - 1 with the vertices `points[nodes[offsets[i]:offsets[i+1]]]`, in no
    particular order; it lies in region `region[i]`. The first `finite` points are finite, the others are `points + R
    * rays` with R towards infinity. `regions` are those all over which the value is attained. `f_vector` counts faces
    of dimension 0 to d of the whole set.
    """

    complex: Complex
    points: FloatArray
    rays: FloatArray
    finite: int
    offsets: Index
    nodes: Index
    region: Index
    regions: Index
    f_vector: tuple[int, ...]
    _links: Index

    def __len__(self) -> int:
        return len(self.region)

    @property
    def vertices(self) -> FloatArray:
        """Coordinates of its vertices."""
        return self.points[: self.finite]

    @property
    def euler(self) -> int:
        """`sum (-1)^k f_k`, unbounded faces counted like bounded ones."""
        return sum((-1) ** k * count for k, count in enumerate(self.f_vector))

    def piece(self, i: int) -> FloatArray:
        """Finite vertices of piece i, shape (k, inputs)."""
        i = integer(i, "i", low=0, high=len(self) - 1)
        mine = self.nodes[self.offsets[i] : self.offsets[i + 1]]
        return self.points[mine[mine < self.finite]]

    def components(self) -> int:
        """Into how many connected parts the set falls, whole regions and lower-dimensional parts included."""
        here = np.arange(len(self.points)) < self.finite
        here[self._links] = True
        return _components(len(self.points), self._links) - int((~here).sum())

    def segments(self, reach: float = 1.0) -> FloatArray:
        """In the plane: the ends of the pieces, shape (pieces, 2, 2); an end at infinity is put `reach` away."""
        if self.complex.dimension != 2:
            raise InputError(
                f"segments are for networks with 2 inputs, this one has {self.complex.dimension}; use piece"
            )
        ends = self.nodes[np.stack([self.offsets[:-1], self.offsets[1:] - 1], axis=1)]
        return _drawn(self.points, self.rays, ends, self.finite, real(reach, "reach", low=0.0))

    def __repr__(self) -> str:
        whole = f" and {len(self.regions):,} whole regions" if len(self.regions) else ""
        return f"LevelSet({len(self):,} pieces{whole} of {self.complex.network!r})"


def polyhedral_complex(net: Network, box: Any = None, *, budget: Any = None, progress: Any = "auto") -> Complex:
    """The polyhedral complex of `net` in a box `(lo, hi)`, or in the whole space: all faces with their ternary labels.

    For up to 6 inputs. The sides of the box are faces too (`on_boundary` tells them, `inner_f_vector` leaves them
    out). A budget (`"60s"`, `"10000 regions"`) ends the search for regions early; then the complex is that of the
    regions found, where two that touch in a face of lower dimension share it only if the regions between were found
    too. Cost: the traversal, plus a few operations per vertex and facet of each face. Guarantee: complete, up to
    rounding, and `Complex.face_to_face` tells when rounding spoiled it. In the whole space of three or more inputs that
    happens for networks with saturating units, whose cells can have ill-determined vertices at infinity; a box that
    holds all vertices has the same faces then (`inner_f_vector`).
    """
    if isinstance(net, Network) and net.n_inputs > MOST_DIMENSIONS:
        raise InputError(
            f"a complex is for networks with up to {MOST_DIMENSIONS} inputs, this one has {net.n_inputs}: "
            "its cells have too many faces to list; regions works in any dimension"
        )
    geometry = vertex_geometry(net.n_inputs) if isinstance(net, Network) else "auto"
    if box is None and geometry == "auto" and isinstance(net, Network) and net.n_inputs == 2:
        geometry = "vertex"  # the plane: its unbounded faces are told by their vertices at infinity
    made = build_complex(regions(net, box, geometry=geometry, budget=budget, progress=progress))
    if box is None and net.n_inputs == 2 and made.complete and not made.face_to_face:
        # Where units saturate, nearly parallel lines meet far out and symbolic vertices there are ill-determined.
        made = _plane_complex(net, made, progress)
    return made


def build_complex(found: Regions) -> Complex:
    """The complex of regions that were found in a box or in the whole space, with cells that carry vertices."""
    if found.domain.half_spaces is not None:
        raise InputError("a complex is for regions in a box or in the whole space, these were cut by half-spaces")
    cells = with_vertices(found.cells)
    net = found.network
    columns, column_of_label = _columns(net)
    words = max(1, -(-len(columns) // 64))
    zero = np.zeros((len(cells.points), words), np.uint64)
    positive = np.zeros((len(cells), words), np.uint64)
    output_error = _mark_zeros(found, cells, column_of_label, zero, positive)
    sides = np.zeros(len(cells.points), np.uint64)
    _mark_facets(cells.bits, cells.labels, cells.offsets, cells.facet_offsets, column_of_label, zero, sides)
    glued, unmatched = _glue(cells, zero, positive)
    nodes, node_of, gap = _gather(cells, glued, zero, positive, sides)
    levels = _levels(cells, nodes, node_of, positive)
    return Complex(found, columns, unmatched, gap, nodes, levels, output_error)


_ROOM_AROUND = 64.0
"""Half-width of the square that stands for the plane, in units of the farthest vertex."""


def _plane_complex(net: Network, doubtful: Complex, progress: Any) -> Complex:
    """The complex of the plane, from that of a square which holds all vertices.

    Every face meets such a square in one convex piece, so the faces inside it are those of the plane, and what lies on
    its sides is at infinity: an edge that ends there is a ray, in the direction of the edge. The vertices, and the
    number of regions, come from cells as half-spaces. `doubtful` is returned where the counts disagree.
    """
    whole = regions(net, progress=progress)
    corners = [whole.vertices(i) for i in range(len(whole))]
    extent = max((float(np.abs(c).max()) for c in corners if len(c)), default=0.0)
    half = _ROOM_AROUND * max(extent, float(np.abs(whole.interior).max()), 1.0)
    square = regions(net, (-half, half), progress=progress)
    place = whole.find(square.interior)
    if len(square) != len(whole) or (np.sort(place) != np.arange(len(whole))).any():
        return doubtful
    made = build_complex(square)
    cells = type(whole.cells).join([whole.cells.part(int(i), int(i) + 1) for i in place])
    ordered = Regions(net, whole.domain, cells, whole.pattern[place], whole.maps[place])
    nodes, levels = _to_infinity(made, half)
    out = Complex(ordered, made.columns, made.unmatched, made.gap, nodes, levels, made._output_error)
    return out if out.face_to_face else doubtful


def _to_infinity(made: Complex, half: float) -> tuple[_Nodes, tuple[_Level, ...]]:
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
    nodes = _Nodes(points[order], rays[order], old.cell[order], old.zero[order], old.sides[order], int((~far).sum()))
    # Faces of dimension 0 are the nodes themselves, in their order; faces of higher dimension list them.
    corners, edges, top = made._levels
    moved = number[corners.nodes][order]
    assert np.array_equal(moved, np.arange(len(order)))
    corners = _Level(
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


def vertex_geometry(dimension: int) -> str:
    """The geometry whose cells carry vertices, by name; the one of half-spaces beyond `MOST_DIMENSIONS`."""
    return "auto" if dimension <= 2 else "vertex" if dimension <= MOST_DIMENSIONS else "polytope"


def with_vertices(cells: Any) -> VertexCells:
    """Cells of one or two dimensions in the form that carries vertices and facets; those of more pass unchanged."""
    if isinstance(cells, VertexCells):
        return cells
    if isinstance(cells, Intervals):
        n = len(cells)
        ends = np.stack([cells.low, cells.high], axis=1).reshape(-1, 1)
        far = np.isinf(ends)
        points, rays = np.where(far, 0.0, ends), np.where(far, np.sign(ends), 0.0)
        bits = np.tile(np.array([1, 2], np.uint64), n)[:, None]
        offsets, facets, labels = 2 * np.arange(n + 1), 2 * np.arange(n + 1), cells.labels.reshape(-1)
        open_ = bool(far.any())
    elif isinstance(cells, Polygons):
        counts = np.diff(cells.offsets)
        here = np.arange(len(cells.points)) - np.repeat(cells.offsets[:-1], counts)
        before = np.where(here == 0, np.repeat(counts, counts) - 1, here - 1)
        bits = np.zeros((len(here), max(1, -(-int(counts.max(initial=1)) // 64))), np.uint64)
        each = np.arange(len(here))
        for edge in (here, before):
            bits[each, edge // 64] |= np.uint64(1) << (edge % 64).astype(np.uint64)
        points, rays, labels = cells.points, np.zeros((0, 2)), cells.labels
        offsets = facets = cells.offsets
        open_ = False
    else:
        raise InputError(f"cells must carry vertices, got {type(cells).__name__}; use another geometry")
    none = np.zeros((0, points.shape[1]))
    return VertexCells(
        points,
        bits,
        labels,
        offsets,
        facets,
        rays if open_ else none,
        np.abs(points) if open_ else none,
        np.zeros(len(offsets) - 1 if open_ else 0),
    )


# -- labels --------------------------------------------------------------------------------------------------------


def _columns(net: Network) -> tuple[Index, Index]:
    """Layer, unit and break point of each label column, and the column of each facet label (-1 for padding)."""
    starts = first_labels(net)
    column_of_label = np.full(max(starts[-1], 1), -1)
    rows: list[Index] = []
    count = 0
    for layer, hidden in enumerate(net.hidden):
        unit, step = np.nonzero(np.isfinite(hidden.units.breaks))
        label = starts[layer] + unit * hidden.units.breaks.shape[1] + step
        column_of_label[label] = count + np.arange(len(unit))
        count += len(unit)
        rows.append(np.column_stack([np.full(len(unit), layer), unit, step]))
    return np.concatenate([np.zeros((0, 3), np.int64), *rows]).astype(np.int64), column_of_label


def _mark_zeros(found: Regions, cells: VertexCells, column_of_label: Index, zero: Words, positive: Words) -> FloatArray:
    """Fill the sets of label columns: zero at each vertex of each cell, positive on each cell.

    Returns the probable errors of the outputs on each cell, shape (n, outputs). The errors travel through the layers as
    they do in the traversal.
    """
    net, n, d = found.network, len(cells), cells.dimension
    starts = first_labels(net)
    width = max(net.widths[1:])
    size = max(64, _CHUNK_NUMBERS // ((d + 1) * width))
    reach = cells.reach() if found.domain.box is None else np.abs(np.stack(found.domain.box)).max(axis=0)[None]
    output_error = np.empty((n, net.n_outputs))
    first = net.layers[0]
    start = np.concatenate([first.dense().T, first.bias[None]])
    for begin in range(0, n, size):
        end = min(begin + size, n)
        count = end - begin
        part = cells.part(begin, end)
        vertices = slice(int(cells.offsets[begin]), int(cells.offsets[end]))
        maps = np.array(np.broadcast_to(start, (count, *start.shape)), order="C")
        here = reach[begin:end] if len(reach) > 1 else reach
        error2 = (EPS * EPS) * (here**2 @ start[:-1] ** 2 + start[-1] ** 2)
        error2 = np.array(np.broadcast_to(error2, (count, first.width)), order="C")
        same = np.arange(count)
        for i, layer in enumerate(net.hidden):
            breaks = np.array(layer.units.breaks)
            columns = column_of_label[starts[i] : starts[i + 1]].reshape(breaks.shape)
            piece = np.ascontiguousarray(found.pattern[begin:end, net.offsets[i] : net.offsets[i + 1]])
            top = np.empty((count, layer.width))
            _mark_layer(
                part.points,
                part.rays,
                part.scales,
                part.offsets,
                maps,
                _PROBABLE_ERRORS * np.sqrt(error2),
                breaks,
                columns,
                piece,
                zero[vertices],
                positive[begin:end],
                top,
            )
            units = layer.units
            maps, error2 = after_layer(
                maps, error2, top, same, piece, units.slopes, units.intercepts, units.is_relu, True
            )
            following = net.layers[i + 1]
            weight = following.weight
            flat = maps.reshape(count * (d + 1), layer.width)
            maps = np.ascontiguousarray((weight @ flat.T).T).reshape(count, d + 1, following.width)
            maps[:, -1] += following.bias
            error2 = np.ascontiguousarray(((weight**2) @ error2.T).T) + (EPS * EPS) * following.bias**2
        output_error[begin:end] = np.sqrt(error2)
    return output_error


@nb.njit(cache=True)
def _mark_layer(  # type: ignore[no-untyped-def]
    points, rays, scales, offsets, maps, tolerance, breaks, columns, piece, zero, positive, top
):
    n, d, m, steps = len(offsets) - 1, points.shape[1], maps.shape[2], breaks.shape[1]
    open_ = len(rays) > 0
    for c in range(n):
        for j in range(m):
            top[c, j] = 0.0
            for k in range(min(steps, piece[c, j])):
                if columns[j, k] >= 0:
                    positive[c, columns[j, k] >> 6] |= _ONE << np.uint64(columns[j, k] & 63)
        for v in range(offsets[c], offsets[c + 1]):
            for j in range(m):
                value, blur = maps[c, d, j], tolerance[c, j]
                for q in range(d):
                    value += maps[c, q, j] * points[v, q]
                top[c, j] = max(top[c, j], abs(value))
                if open_:
                    rise, terms = 0.0, 0.0
                    for q in range(d):
                        rise += maps[c, q, j] * rays[v, q]
                        terms += abs(maps[c, q, j])
                        blur += _FAR_TOLERANCE * abs(maps[c, q, j]) * max(scales[v, q], abs(points[v, q]))
                    if abs(rise) > _FAR_TOLERANCE * terms:
                        continue
                for k in range(steps):
                    if columns[j, k] >= 0 and abs(value - breaks[j, k]) <= blur:
                        zero[v, columns[j, k] >> 6] |= _ONE << np.uint64(columns[j, k] & 63)


@nb.njit(cache=True)
def _mark_facets(bits, labels, offsets, facet_offsets, column_of_label, zero, sides):  # type: ignore[no-untyped-def]
    """A vertex on a facet is on that facet's break point, or on that side of the domain, whatever rounding says."""
    for c in range(len(offsets) - 1):
        first = facet_offsets[c]
        for f in range(facet_offsets[c + 1] - first):
            label = labels[first + f]
            bit = _ONE << np.uint64(f & 63)
            for v in range(offsets[c], offsets[c + 1]):
                if bits[v, f >> 6] & bit != _NONE:
                    if label < 0:
                        sides[v] |= _ONE << np.uint64(-1 - label)
                    else:
                        column = column_of_label[label]
                        zero[v, column >> 6] |= _ONE << np.uint64(column & 63)


# -- gluing --------------------------------------------------------------------------------------------------------


def _glue(cells: VertexCells, zero: Words, positive: Words) -> tuple[Index, int]:
    """For each vertex of each cell the first of all its copies, and how many inner facets stayed alone."""
    owner = np.repeat(np.arange(len(cells)), np.diff(cells.facet_offsets))
    keys = _facet_keys(cells.bits, cells.offsets, cells.facet_offsets, zero, positive)
    root = np.arange(len(cells.points))
    alone = np.flatnonzero(cells.labels >= 0)
    # Nearly coincident hyperplanes may have the same ternary label: the facet's own label tells them apart where it
    # can.
    mixed = keys + cells.labels.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for key in (mixed, keys):
        pairs = _twins(alone, key, owner)
        alone = _joined(cells, root, pairs, owner, alone, np.inf)
    if len(alone):
        alone = _joined(cells, root, _nearest(cells, alone, owner), owner, alone, _GEOMETRIC_MATCH)
    return root, len(alone)


def _twins(facets: Index, key: Words, owner: Index) -> Index:
    """Pairs of facets of two cells with the same key that no third facet has, shape (2, pairs)."""
    order = facets[np.argsort(key[facets], kind="stable")]
    sorted_key = key[order]
    same = sorted_key[1:] == sorted_key[:-1]
    before, after = np.concatenate([[False], same]), np.concatenate([same, [False]])
    first = np.flatnonzero(after & ~before)
    lone = first[~after[np.minimum(first + 1, len(order) - 1)]]
    pairs = np.stack([order[lone], order[lone + 1]])
    return pairs[:, owner[pairs[0]] != owner[pairs[1]]]


def _joined(cells: VertexCells, root: Index, pairs: Index, owner: Index, alone: Index, closeness: float) -> Index:
    """Glue these pairs; returns the facets that are still alone."""
    done = _join_pairs(
        cells.points,
        cells.rays,
        cells.bits,
        cells.offsets,
        cells.facet_offsets,
        np.ascontiguousarray(pairs),
        owner,
        root,
        closeness,
    )
    return np.setdiff1d(alone, pairs[:, done], assume_unique=True)


def _nearest(cells: VertexCells, facets: Index, owner: Index) -> Index:
    """Pairs of facets of two cells that are each other's nearest, by the mean of their vertices, shape (2, pairs)."""
    from scipy.spatial import cKDTree

    first = cells.facet_offsets[owner[facets]]
    place = _facet_places(
        cells.points, cells.rays, cells.bits, cells.offsets, np.ascontiguousarray(facets - first), owner[facets]
    )
    _, near = cKDTree(place).query(place, k=min(4, len(place)))
    near = near.reshape(len(place), -1)
    other = owner[facets][near] != owner[facets][:, None]
    partner = near[np.arange(len(near)), np.argmax(other, axis=1)]
    mutual = other.any(axis=1) & (partner[partner] == np.arange(len(partner))) & (np.arange(len(partner)) < partner)
    return np.stack([facets[mutual], facets[partner[mutual]]])


@nb.njit(cache=True)
def _mix(x):  # type: ignore[no-untyped-def]
    """A 64-bit number that looks random (the finaliser of the splitmix generator)."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@nb.njit(cache=True)
def _facet_keys(bits, offsets, facet_offsets, zero, positive):  # type: ignore[no-untyped-def]
    """A hash of the ternary label of each facet of each cell."""
    words = zero.shape[1]
    out = np.empty(facet_offsets[-1], np.uint64)
    for c in range(len(offsets) - 1):
        first = facet_offsets[c]
        for f in range(facet_offsets[c + 1] - first):
            bit = _ONE << np.uint64(f & 63)
            key = _NONE
            for w in range(words):
                common = ~_NONE
                for v in range(offsets[c], offsets[c + 1]):
                    if bits[v, f >> 6] & bit != _NONE:
                        common &= zero[v, w]
                key = _mix(key ^ common)
                key = _mix(key ^ (positive[c, w] & ~common))
            out[first + f] = key
    return out


@nb.njit(cache=True)
def _facet_places(points, rays, bits, offsets, facet, owner):  # type: ignore[no-untyped-def]
    """Mean point and mean ray of the vertices of each facet."""
    d = points.shape[1]
    out = np.zeros((len(facet), 2 * d))
    for i in range(len(facet)):
        f, c = facet[i], owner[i]
        bit = _ONE << np.uint64(f & 63)
        count = 0
        for v in range(offsets[c], offsets[c + 1]):
            if bits[v, f >> 6] & bit != _NONE:
                count += 1
                for q in range(d):
                    out[i, q] += points[v, q]
                    if len(rays) > 0:
                        out[i, d + q] += rays[v, q]
        for q in range(2 * d):
            out[i, q] /= count
    return out


@nb.njit(cache=True)
def _find(root, v):  # type: ignore[no-untyped-def]
    while root[v] != v:
        root[v] = root[root[v]]
        v = root[v]
    return v


@nb.njit(cache=True)
def _join_pairs(  # type: ignore[no-untyped-def]
    points, rays, bits, offsets, facet_offsets, pairs, owner, root, closeness
):
    """Glue pairs of facets vertex by vertex, the nearest ones together; says which pairs fit."""
    d, open_ = points.shape[1], len(rays) > 0
    most = 1
    for c in range(len(offsets) - 1):
        most = max(most, offsets[c + 1] - offsets[c])
    mine, theirs, match = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    taken = np.empty(most, np.bool_)
    done = np.zeros(pairs.shape[1], np.bool_)
    for p in range(pairs.shape[1]):
        n_mine, n_theirs = 0, 0
        for side in range(2):
            c = owner[pairs[side, p]]
            f = pairs[side, p] - facet_offsets[c]
            bit = _ONE << np.uint64(f & 63)
            for v in range(offsets[c], offsets[c + 1]):
                if bits[v, f >> 6] & bit != _NONE:
                    if side == 0:
                        mine[n_mine] = v
                        n_mine += 1
                    else:
                        theirs[n_theirs] = v
                        n_theirs += 1
        if n_mine != n_theirs:
            continue
        size = 0.0
        for i in range(n_mine):
            taken[i] = False
            for q in range(d):
                size = max(size, abs(points[mine[i], q] - points[mine[0], q]))
        fits, worst = True, 0.0
        for i in range(n_mine):
            best, at = np.inf, 0
            for j in range(n_theirs):
                gap, turn = 0.0, 0.0
                for q in range(d):
                    gap = max(gap, abs(points[mine[i], q] - points[theirs[j], q]))
                    if open_:
                        turn = max(turn, abs(rays[mine[i], q] - rays[theirs[j], q]))
                gap += turn * 1e6 * (1.0 + size)
                if gap < best:
                    best, at = gap, j
            fits = fits and not taken[at]
            taken[at] = True
            match[i] = theirs[at]
            worst = max(worst, best)
        if not fits or worst > closeness * size:
            continue
        for i in range(n_mine):
            a, b = _find(root, mine[i]), _find(root, match[i])
            if a < b:
                root[b] = a
            else:
                root[a] = b
        done[p] = True
    return done


def _gather(cells: VertexCells, root: Index, zero: Words, positive: Words, sides: Words) -> tuple[_Nodes, Index, float]:
    """The vertices without their copies, and the node of each copy."""
    _flatten(root)
    first = np.flatnonzero(root == np.arange(len(root)))
    open_ = cells.is_open
    # A ray is zero or reaches the surface of the unit cube.
    far = np.abs(cells.rays[first]).max(axis=1) > 0.5 if open_ else np.zeros(len(first), np.bool_)
    first = np.concatenate([first[~far], first[far]])
    number = np.empty(len(root), np.int64)
    number[first] = np.arange(len(first))
    node_of = number[root]
    cell = np.repeat(np.arange(len(cells)), np.diff(cells.offsets))
    node_zero = np.zeros((len(first), zero.shape[1]), np.uint64)
    node_sides = np.zeros(len(first), np.uint64)
    _star(node_of, cell, zero, positive, sides, node_zero, node_sides)
    rays = cells.rays[first] if open_ else np.zeros((len(first), cells.dimension))
    finite = len(first) - int(far.sum())
    rays[:finite] = 0.0
    points = cells.points[first]
    copies = node_of < finite
    moved = np.abs(cells.points[copies] - points[node_of[copies]]).max(axis=1, initial=0.0)
    gap = float((moved / (1.0 + np.abs(cells.points[copies]).max(axis=1, initial=0.0))).max(initial=0.0))
    return _Nodes(points, rays, cell[first], node_zero, node_sides, finite), node_of, gap


@nb.njit(cache=True)
def _flatten(root):  # type: ignore[no-untyped-def]
    for v in range(len(root)):
        root[v] = _find(root, v)


@nb.njit(cache=True)
def _star(node_of, cell, zero, positive, sides, node_zero, node_sides):  # type: ignore[no-untyped-def]
    """Labels of vertices from all cells around: zero if it is so for one cell, or if two disagree about the sign."""
    words = zero.shape[1]
    some, every = np.zeros(node_zero.shape, np.uint64), np.full(node_zero.shape, ~_NONE)
    for v in range(len(node_of)):
        i, c = node_of[v], cell[v]
        node_sides[i] |= sides[v]
        for w in range(words):
            node_zero[i, w] |= zero[v, w]
            some[i, w] |= positive[c, w]
            every[i, w] &= positive[c, w]
    for i in range(len(node_zero)):
        for w in range(words):
            node_zero[i, w] |= some[i, w] & ~every[i, w]


# -- the lattice of faces ------------------------------------------------------------------------------------------


def _levels(cells: VertexCells, nodes: _Nodes, node_of: Index, positive: Words) -> tuple[_Level, ...]:
    """The faces of all dimensions, 0 to d, from the cells downwards."""
    n, d = len(cells), cells.dimension
    owner, carriers = np.arange(n), np.zeros((n, cells.bits.shape[1]), np.uint64)
    levels: list[_Level] = []
    for k in range(d, -1, -1):
        offsets, listed, zero, sides = _face_nodes(
            owner, carriers, cells.bits, cells.offsets, node_of, nodes.zero, nodes.sides
        )
        plus = positive[owner] & ~zero
        if k == 0:
            none = np.zeros(len(owner) + 1, np.int64)
            levels.append(_Level(owner, carriers, offsets, listed, zero, plus, sides, none, none[:0]))
            break
        parent, inner, key = _subfaces(owner, carriers, cells.bits, cells.offsets, cells.facet_offsets, node_of, k == 1)
        _, first, same = np.unique(key, return_index=True, return_inverse=True)
        if k > 1:  # in the order in which they were met; vertices keep their own numbers
            order = np.argsort(first)
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            first, same = first[order], rank[same]
        counts = np.bincount(parent, minlength=len(owner))
        below_offsets = np.concatenate([[0], np.cumsum(counts)])
        levels.append(_Level(owner, carriers, offsets, listed, zero, plus, sides, below_offsets, same))
        owner, carriers = owner[parent[first]], inner[first]
    return tuple(levels[::-1])


@nb.njit(cache=True)
def _face_nodes(owner, carriers, bits, offsets, node_of, node_zero, node_sides):  # type: ignore[no-untyped-def]
    """The vertices of each face, back to back, and the sets of columns and of sides that all of them are on."""
    n, words, columns = len(owner), bits.shape[1], node_zero.shape[1]
    starts = np.zeros(n + 1, np.int64)
    zero, sides = np.full((n, columns), ~_NONE), np.full(n, ~_NONE)
    listed = np.empty(0, np.int64)
    for filling in range(2):
        at = 0
        for i in range(n):
            c = owner[i]
            for v in range(offsets[c], offsets[c + 1]):
                inside = True
                for w in range(words):
                    inside &= carriers[i, w] & ~bits[v, w] == _NONE
                if inside:
                    if filling == 1:
                        node = node_of[v]
                        listed[at] = node
                        sides[i] &= node_sides[node]
                        for w in range(columns):
                            zero[i, w] &= node_zero[node, w]
                    at += 1
            starts[i + 1] = at
        if filling == 0:
            listed = np.empty(at, np.int64)
    return starts, listed, zero, sides


@nb.njit(cache=True)
def _subfaces(owner, carriers, bits, offsets, facet_offsets, node_of, points):  # type: ignore[no-untyped-def]
    """The facets of each face: whose they are, their carriers, and a key that depends on their vertices alone.

    The part of a face on a further facet of its cell is a facet of the face iff it is maximal among those parts; of
    facets with the same part the first one counts. With `points`, the key is the vertex itself.
    """
    words = bits.shape[1]
    most_facets, most_vertices = 1, 1
    for c in range(len(offsets) - 1):
        most_facets = max(most_facets, facet_offsets[c + 1] - facet_offsets[c])
        most_vertices = max(most_vertices, offsets[c + 1] - offsets[c])
    held, mine = np.empty(most_facets, np.int64), np.empty(most_vertices, np.int64)
    within = np.empty(words, np.uint64)
    room = 4 * len(owner) + 16
    out_parent, out_key = np.empty(room, np.int64), np.empty(room, np.uint64)
    out_carriers = np.empty((room, words), np.uint64)
    n_out = 0
    for i in range(len(owner)):
        c = owner[i]
        facets = facet_offsets[c + 1] - facet_offsets[c]
        size = 0
        for f in range(facets):
            held[f] = 0
        for v in range(offsets[c], offsets[c + 1]):
            inside = True
            for w in range(words):
                inside &= carriers[i, w] & ~bits[v, w] == _NONE
            if not inside:
                continue
            mine[size] = v
            size += 1
            for f in range(facets):
                held[f] += (bits[v, f >> 6] >> np.uint64(f & 63)) & _ONE != _NONE
        if n_out + facets > room:
            room *= 2
            more_parent, more_key = np.empty(room, np.int64), np.empty(room, np.uint64)
            more_carriers = np.empty((room, words), np.uint64)
            more_parent[:n_out], more_key[:n_out] = out_parent[:n_out], out_key[:n_out]
            more_carriers[:n_out] = out_carriers[:n_out]
            out_parent, out_key, out_carriers = more_parent, more_key, more_carriers
        for f in range(facets):
            if held[f] == 0 or held[f] == size:
                continue
            bit = _ONE << np.uint64(f & 63)
            key = _NONE
            for w in range(words):
                within[w] = ~_NONE
            for s in range(size):
                v = mine[s]
                if bits[v, f >> 6] & bit == _NONE:
                    continue
                key = np.uint64(node_of[v]) if points else key + _mix(node_of[v])
                for w in range(words):
                    within[w] &= bits[v, w]
            largest = True
            for g in range(facets):
                if g != f and (within[g >> 6] >> np.uint64(g & 63)) & _ONE != _NONE and held[g] < size:
                    largest &= held[g] == held[f] and g > f
            if largest:
                out_parent[n_out], out_key[n_out] = i, key
                for w in range(words):
                    out_carriers[n_out, w] = within[w]
                n_out += 1
    return out_parent[:n_out].copy(), out_carriers[:n_out].copy(), out_key[:n_out].copy()


_ONE = np.uint64(1)
_NONE = np.uint64(0)


# -- level sets ----------------------------------------------------------------------------------------------------


def _level_set(c: Complex, output: int, other: int | None, value: float) -> LevelSet:
    nodes, d = c._nodes, c.dimension
    maps = c.regions.maps[:, :, output] - (0.0 if other is None else c.regions.maps[:, :, other])
    error = c._output_error[:, output] ** 2 + (0.0 if other is None else c._output_error[:, other] ** 2)
    mine = maps[nodes.cell]
    height = np.einsum("nq,nq->n", mine[:, :-1], nodes.points) + mine[:, -1] - value
    blur = _PROBABLE_ERRORS * np.sqrt(error)[nodes.cell] + EPS * abs(value)
    rise = np.zeros(len(height))
    if c.box is None:
        rise = np.einsum("nq,nq->n", mine[:, :-1], nodes.rays)
        terms = np.abs(mine[:, :-1])
        rise[np.abs(rise) <= _FAR_TOLERANCE * terms.sum(axis=1)] = 0.0
        blur += _FAR_TOLERANCE * np.einsum("nq,nq->n", terms, np.abs(nodes.points))
    sign = np.where(rise != 0, np.sign(rise), np.where(np.abs(height) > blur, np.sign(height), 0.0))

    crossed, on = [], []
    for level in c._levels:
        low, high = (f.reduceat(sign[level.nodes], level.offsets[:-1]) for f in (np.minimum, np.maximum))
        crossed.append((low < 0) & (high > 0))
        on.append((low == 0) & (high == 0))
    count = [int(part[c._real(k)].sum()) for k, part in enumerate(on)]
    for k in range(d):
        count[k] += int(crossed[k + 1][c._real(k + 1)].sum())

    # Vertices of the set: those of the complex that are on it, and one on each edge that crosses it.
    edge = np.flatnonzero(crossed[1])
    level = c._levels[1]
    a, b = (level.nodes[level.offsets[edge] + i] for i in (0, 1))
    at_infinity = level.sides[edge] != 0 if c.box is None else np.zeros(len(edge), np.bool_)
    points, rays = _crossings(nodes, a, b, height, rise, at_infinity)
    kept = np.flatnonzero(on[0])
    points, rays = np.concatenate([nodes.points[kept], points]), np.concatenate([nodes.rays[kept], rays])
    far = np.concatenate([kept >= nodes.finite, at_infinity])
    order = np.argsort(far, kind="stable")
    place = np.empty(len(far), np.int64)
    place[order] = np.arange(len(far))
    of_node, of_edge = np.full(len(nodes.points), -1), np.full(len(level.owner), -1)
    of_node[kept], of_edge[edge] = place[: len(kept)], place[len(kept) :]

    # Pieces: the cut of each region that crosses it, and facets that lie in it but in no region that does.
    top, cut = c._levels[-1], np.flatnonzero(crossed[-1])
    whole = np.flatnonzero(on[-1])
    to_edges = sparse.eye_array(len(top.owner), format="csr", dtype=np.int8)[cut]
    for k in range(d, 1, -1):
        to_edges = (to_edges @ c._incidence(k)).astype(np.bool_).astype(np.int8)
    to_edges = to_edges.tocoo()
    hit = of_edge[to_edges.col] >= 0
    around, around_offsets = _rows_of(top.nodes, top.offsets, cut)
    touch = of_node[around] >= 0
    owner = [to_edges.row[hit], np.repeat(np.arange(len(cut)), np.diff(around_offsets))[touch]]
    listed = [of_edge[to_edges.col[hit]], of_node[around[touch]]]
    side = c._levels[-2]
    covered = np.zeros(len(side.owner), np.bool_)
    covered[_rows_of(top.below, top.below_offsets, whole)[0]] = True
    flat = c._real(d - 1)[(on[-2] & ~covered)[c._real(d - 1)]]
    ends, ends_offsets = _rows_of(side.nodes, side.offsets, flat)
    owner.append(len(cut) + np.repeat(np.arange(len(flat)), np.diff(ends_offsets)))
    listed.append(of_node[ends])
    piece, node = np.concatenate(owner), np.concatenate(listed)
    by_piece = np.lexsort((node, piece))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(piece, minlength=len(cut) + len(flat)))]).astype(np.int64)
    node = node[by_piece]
    # What hangs together: the nodes of a piece, of a whole region, of an edge in the set.
    links = [_chains(node, offsets)]
    for k, level in enumerate(c._levels):
        if k in (1, d):
            inner, inner_offsets = _rows_of(level.nodes, level.offsets, np.flatnonzero(on[k]))
            links.append(_chains(of_node[inner], inner_offsets))
    return LevelSet(
        c,
        points[order],
        rays[order],
        int((~far).sum()),
        offsets,
        node,
        np.concatenate([cut, side.owner[flat]]),
        whole,
        tuple(count),
        np.concatenate(links, axis=1),
    )


def _crossings(
    nodes: _Nodes, a: Index, b: Index, height: FloatArray, rise: FloatArray, at_infinity: Flags
) -> tuple[FloatArray, FloatArray]:
    """Where a function with the values `height + R * rise` at the nodes vanishes on the edges from a to b.

    With the share `w = w0 + w1 / R` of the way from a to b, the crossing is again of the form `point + R * ray`.
    """
    steep = rise[a] - rise[b]
    flat = steep == 0
    drop = height[a] - height[b]
    safe = np.where(flat, 1.0, steep)
    w0 = np.where(flat, height[a] / np.where(drop == 0, 1.0, drop), rise[a] / safe)[:, None]
    w1 = np.where(flat, 0.0, (height[a] - w0[:, 0] * drop) / safe)[:, None]
    turn = nodes.rays[b] - nodes.rays[a]
    points = nodes.points[a] + w0 * (nodes.points[b] - nodes.points[a]) + w1 * turn
    rays = np.where(at_infinity[:, None], nodes.rays[a] + w0 * turn, 0.0)
    return points, rays


# -- small things --------------------------------------------------------------------------------------------------


def _unpacked(sets: Words, n: int) -> Flags:
    """Sets in 64-bit words as rows of n truth values."""
    each = np.arange(n)
    return (sets[:, each // 64] >> (each % 64).astype(np.uint64)) & np.uint64(1) != 0


def _rows_of(values: Index, offsets: Index, rows: Index) -> tuple[Index, Index]:
    """Some rows of a CSR list, back to back again."""
    counts = offsets[rows + 1] - offsets[rows]
    starts = np.concatenate([[0], np.cumsum(counts)])
    place = np.arange(starts[-1]) - np.repeat(starts[:-1] - offsets[rows], counts)
    return values[place], starts


def _chains(values: Index, offsets: Index) -> Index:
    """Pairs of neighbours in each row of a CSR list, shape (2, pairs)."""
    inside = np.ones(max(len(values) - 1, 0), np.bool_)
    ends = offsets[1:-1] - 1
    inside[ends[(ends >= 0) & (ends < len(inside))]] = False
    return np.stack([values[:-1][inside], values[1:][inside]])


def _components(n: int, pairs: Index) -> int:
    from scipy.sparse.csgraph import connected_components

    graph = sparse.coo_array((np.ones(pairs.shape[1]), (pairs[0], pairs[1])), shape=(n, n))
    return int(connected_components(graph, directed=False)[0])


def _drawn(points: FloatArray, rays: FloatArray, ends: Index, finite: int, reach: float) -> FloatArray:
    """Segments between nodes; a far end becomes a point at the distance `reach` from the other end."""
    out = points[ends]
    for here, there in ((0, 1), (1, 0)):
        far = ends[:, here] >= finite
        ray = rays[ends[far, here]]
        # A line without vertices: the finite parts of its far ends lie on it.
        other = points[ends[far, there]]
        base = np.where((ends[far, there] < finite)[:, None], other, 0.5 * (other + points[ends[far, here]]))
        out[far, here] = base + reach * ray / np.linalg.norm(ray, axis=1, keepdims=True)
    return out
