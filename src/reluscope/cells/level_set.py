"""Level sets of outputs, decision boundaries among them, cut out of a polyhedral complex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray, integer, real
from reluscope.cells.complex_faces import Nodes, count_components, segments
from reluscope.cells.complex_labels import FAR_TOLERANCE, LABEL_ERRORS
from reluscope.cells.csr import chains, rows_of
from reluscope.errors import InputError

if TYPE_CHECKING:
    from reluscope.cells.complex import Complex

Index = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class LevelSet:
    """The inputs where an output, or the difference of two, has a given value.

    Piece i is a convex polytope of dimension d - 1 with the vertices `points[nodes[offsets[i]:offsets[i+1]]]`, in no
    particular order; it lies in region `region[i]`. The first `finite` points are finite, the others are `points + R
    * rays` with R towards infinity. `regions` are those all over which the value is attained. `f_vector` counts faces
    of dimension 0 to d of the whole set.

    Attributes
    ----------
    complex : Complex
    points, rays : (nodes, inputs) arrays
    finite : int
    offsets, nodes, region, regions : arrays of int
    f_vector : tuple of int
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
        """Finite vertices of piece i, shape (k, inputs).

        Parameters
        ----------
        i : int

        Returns
        -------
        (k, inputs) array
        """
        i = integer(i, "i", low=0, high=len(self) - 1)
        mine = self.nodes[self.offsets[i] : self.offsets[i + 1]]
        return self.points[mine[mine < self.finite]]

    def components(self) -> int:
        """Into how many connected parts the set falls, whole regions and lower-dimensional parts included."""
        here = np.arange(len(self.points)) < self.finite
        here[self._links] = True
        return count_components(len(self.points), self._links) - int((~here).sum())

    def segments(self, reach: float = 1.0) -> FloatArray:
        """In the plane: the ends of the pieces, shape (pieces, 2, 2); an end at infinity is put `reach` away.

        Parameters
        ----------
        reach : float

        Returns
        -------
        (pieces, 2, 2) array
        """
        if self.complex.dimension != 2:
            raise InputError(
                f"segments are for networks with 2 inputs, this one has {self.complex.dimension}; use piece"
            )
        ends = self.nodes[np.stack([self.offsets[:-1], self.offsets[1:] - 1], axis=1)]
        return segments(self.points, self.rays, ends, self.finite, real(reach, "reach", low=0.0))

    def __repr__(self) -> str:
        whole = f" and {len(self.regions):,} whole regions" if len(self.regions) else ""
        return f"LevelSet({len(self):,} pieces{whole} of {self.complex.network!r})"


def level_set(c: Complex, output: int, other: int | None, value: float) -> LevelSet:
    """Where `y[output] - y[other]` (or `y[output]`) has the value: see `Complex.level_set`."""
    nodes, d = c._nodes, c.dimension
    maps = c.regions.maps[:, :, output] - (0.0 if other is None else c.regions.maps[:, :, other])
    error = c._output_error[:, output] ** 2 + (0.0 if other is None else c._output_error[:, other] ** 2)
    mine = maps[nodes.cell]
    height = np.einsum("nq,nq->n", mine[:, :-1], nodes.points) + mine[:, -1] - value
    blur = LABEL_ERRORS * np.sqrt(error)[nodes.cell] + EPS * abs(value)
    rise = np.zeros(len(height))
    if not c._closed:
        rise = np.einsum("nq,nq->n", mine[:, :-1], nodes.rays)
        terms = np.abs(mine[:, :-1])
        rise[np.abs(rise) <= FAR_TOLERANCE * terms.sum(axis=1)] = 0.0
        blur += FAR_TOLERANCE * np.einsum("nq,nq->n", terms, np.abs(nodes.points))
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
    at_infinity = level.sides[edge] != 0 if not c._closed else np.zeros(len(edge), np.bool_)
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
    around, around_offsets = rows_of(top.nodes, top.offsets, cut)
    touch = of_node[around] >= 0
    owner = [to_edges.row[hit], np.repeat(np.arange(len(cut)), np.diff(around_offsets))[touch]]
    listed = [of_edge[to_edges.col[hit]], of_node[around[touch]]]
    side = c._levels[-2]
    covered = np.zeros(len(side.owner), np.bool_)
    covered[rows_of(top.below, top.below_offsets, whole)[0]] = True
    flat = c._real(d - 1)[(on[-2] & ~covered)[c._real(d - 1)]]
    ends, ends_offsets = rows_of(side.nodes, side.offsets, flat)
    owner.append(len(cut) + np.repeat(np.arange(len(flat)), np.diff(ends_offsets)))
    listed.append(of_node[ends])
    piece, node = np.concatenate(owner), np.concatenate(listed)
    by_piece = np.lexsort((node, piece))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(piece, minlength=len(cut) + len(flat)))]).astype(np.int64)
    node = node[by_piece]
    # What hangs together: the nodes of a piece, of a whole region, of an edge in the set.
    links = [chains(node, offsets)]
    for k, level in enumerate(c._levels):
        if k in (1, d):
            inner, inner_offsets = rows_of(level.nodes, level.offsets, np.flatnonzero(on[k]))
            links.append(chains(of_node[inner], inner_offsets))
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
    nodes: Nodes, a: Index, b: Index, height: FloatArray, rise: FloatArray, at_infinity: Flags
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
