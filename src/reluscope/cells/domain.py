"""Where to look: a box, a polytope, or the whole space, as a starting cell of the fitting geometry."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, choice, describe, real_array
from reluscope.cells.split import Geometry
from reluscope.errors import InputError
from reluscope.inputs import Law
from reluscope.network import Polytope

GEOMETRIES = ("auto", "interval", "polygon", "vertex", "polytope")

MOST_DIMENSIONS = 6
"""Above this, cells have too many vertices and faces to list them all."""

MOST_VERTEX_DIMENSIONS = 5
"""Above this, cells have so many vertices that half-spaces and linear programs are cheaper."""


def box_bounds(box: Any, dimension: int, name: str = "box") -> tuple[FloatArray, FloatArray]:
    """`(lo, hi)` with numbers or arrays of `dimension` entries, checked: finite and lo < hi.

    A list or an array of two pairs for two inputs, such as `[[-1, 1], [0, 2]]`, reads as (lower, upper) and as one pair
    per input: where both make a box, and not the same one, it is refused. A tuple is always (lower, upper).
    """
    if not isinstance(box, tuple):
        _refuse_two_readings(box, dimension, name)
    if isinstance(box, np.ndarray) and box.ndim == 2 and len(box) == 2:
        box = (box[0], box[1])
    hint = _pairs_hint(box, dimension, name)
    if not isinstance(box, (tuple, list)) or len(box) != 2:
        raise InputError(f"{name} must be a pair (lower, upper), got {describe(box)}{hint}")
    sides = []
    for value, side in zip(box, ("lower", "upper"), strict=True):
        array = real_array(value, f"{name}[{side}]", ndim=(0, 1))
        if array.ndim == 1 and len(array) != dimension:
            raise InputError(f"{name}[{side}] has {len(array)} entries, the network has {dimension} inputs{hint}")
        sides.append(np.ascontiguousarray(np.broadcast_to(array, (dimension,))))
    lower, upper = sides
    if not (lower < upper).all():
        i = int(np.argmin(lower < upper))
        raise InputError(f"{name} must have lower < upper, got {lower[i]} and {upper[i]} for input {i}{hint}")
    return lower, upper


def _refuse_two_readings(box: Any, dimension: int, name: str) -> None:
    """An error for a list of two pairs that is a box by rows and another one by columns."""
    hint = _pairs_hint(box, dimension, name) if dimension == 2 else ""
    if not hint:
        return
    pairs = np.asarray(box, dtype=np.float64)
    if (pairs[0] < pairs[1]).all() and not np.array_equal(pairs, pairs.T):
        (a, b), (c, d) = pairs.tolist()
        raise InputError(
            f"{name}=[[{a:g}, {b:g}], [{c:g}, {d:g}]] can be read in two ways: for lower and upper sides write "
            f"{name}=([{a:g}, {b:g}], [{c:g}, {d:g}]){hint}"
        )


def _pairs_hint(box: Any, dimension: int, name: str) -> str:
    """What to write instead, when the box looks like one (lower, upper) pair for each input."""
    try:
        pairs = np.asarray(box, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return ""
    if pairs.shape != (dimension, 2) or not (pairs[:, 0] < pairs[:, 1]).all():
        return ""
    lower, upper = (", ".join(f"{x:g}" for x in side[:4]) + ", ..." * (dimension > 4) for side in pairs.T)
    return f"; for one pair per input write {name}=([{lower}], [{upper}])"


def half_spaces(polytope: Any, dimension: int, name: str = "polytope") -> tuple[FloatArray, FloatArray]:
    """`(A, b)` meaning `A x <= b`, checked; rows are scaled to unit length, those that demand nothing are dropped.

    A `Polytope` of a network's pattern will do as well; a single number `b` holds for all rows, and `inf` for none.
    """
    if isinstance(polytope, Polytope):
        polytope = (polytope.A, polytope.b)
    if not isinstance(polytope, (tuple, list)) or len(polytope) != 2:
        raise InputError(f"{name} must be a pair (A, b) meaning A x <= b, got {type(polytope).__name__}")
    A = real_array(polytope[0], f"A of {name}", ndim=2)
    b = real_array(polytope[1], f"b of {name}", ndim=(0, 1), finite=False)
    b = np.full(len(A), b) if b.ndim == 0 else b
    if np.isnan(b).any():
        raise InputError(f"b of {name} must not hold nan, got one at index {int(np.flatnonzero(np.isnan(b))[0])}")
    if A.shape != (len(b), dimension):
        raise InputError(
            f"{name} needs A of shape (rows, {dimension}) and b of shape (rows,), got {A.shape}, {b.shape}"
        )
    if (b == -np.inf).any():
        raise InputError(f"{name} is empty: row {int(np.argmin(b))} demands a value below -inf")
    A, b = A[b < np.inf], b[b < np.inf]
    norm = np.linalg.norm(A, axis=1)
    if (b[norm == 0] < 0).any():
        raise InputError(f"{name} is empty: a zero row demands 0 <= {b[norm == 0].min()}")
    keep = norm > 0
    return A[keep] / norm[keep, None], b[keep] / norm[keep]


def geometry_class(dimension: int, geometry: str = "auto") -> Any:
    """The geometry that fits the dimension, or the one asked for."""
    choice(geometry, "geometry", GEOMETRIES)
    if geometry == "auto":
        by_dimension = {1: "interval", 2: "polygon"}
        geometry = by_dimension.get(dimension, "vertex" if dimension <= MOST_VERTEX_DIMENSIONS else "polytope")
    if geometry == "interval":
        from reluscope.cells.interval import Intervals as Chosen
    elif geometry == "polygon":
        from reluscope.cells.polygon import Polygons as Chosen  # type: ignore[assignment]
    elif geometry == "vertex":
        from reluscope.cells.vertex import VertexCells as Chosen  # type: ignore[assignment]
    else:
        from reluscope.cells.polytope import HPolytopes as Chosen  # type: ignore[assignment]
    wanted = getattr(Chosen, "dimension", None)
    if isinstance(wanted, int) and wanted != dimension:
        raise InputError(f"geometry {geometry!r} is for {wanted} inputs, the network has {dimension}")
    return Chosen


def starting_cell(
    dimension: int,
    *,
    box: tuple[FloatArray, FloatArray] | None = None,
    polytope: tuple[FloatArray, FloatArray] | None = None,
    geometry: str = "auto",
) -> Geometry:
    """One cell that holds the domain: the box, cut by the half-spaces; the whole space when neither is given.

    Facets of the box are labelled -1 - 2 i (lower side of input i) and -2 - 2 i (upper); row k of the half-spaces is
    labelled -1 - 2 dimension - k.
    """
    if box is None and polytope is not None:
        box = _box_around(dimension, *polytope)
    if box is None and dimension > 1 and geometry == "auto":
        geometry = "polytope"  # polygons are bounded, and vertices far out are ill-determined where units saturate
    kind = geometry_class(dimension, geometry)
    if box is None and not hasattr(kind, "space"):
        raise InputError(f"geometry {geometry!r} has no unbounded cells: give a box")
    cell = kind.space(dimension) if box is None else kind.box(*box)
    return cell if polytope is None else clip(cell, *polytope)


def vertex_geometry(dimension: int) -> str:
    """The geometry whose cells carry vertices, by name; the one of half-spaces beyond `MOST_DIMENSIONS`."""
    return "auto" if dimension <= 2 else "vertex" if dimension <= MOST_DIMENSIONS else "polytope"


def cell_with_vertices(
    box: tuple[FloatArray, FloatArray], rows: tuple[FloatArray, FloatArray] | None = None
) -> Geometry:
    """A box, cut by half-spaces if there are any, as a starting cell that carries its vertices."""
    dimension = len(box[0])
    return starting_cell(dimension, box=box, polytope=rows, geometry=vertex_geometry(dimension))


def _box_around(dimension: int, A: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """A box with room to spare around a bounded polytope; None when unbounded or too high-dimensional to ask."""
    if dimension > MOST_VERTEX_DIMENSIONS:
        return None
    whole = clip(geometry_class(dimension, "vertex" if dimension > 1 else "interval").space(dimension), A, b)
    if len(whole.rays_of(0)):
        return None
    corners = whole.vertices(0)
    low, high = corners.min(axis=0), corners.max(axis=0)
    return low - (high - low), high + (high - low)


def clip(cell: Geometry, A: FloatArray, b: FloatArray) -> Geometry:
    """The part of one starting cell where `A x <= b` (rows of unit length); an empty result is an error."""
    if not len(A):
        return cell
    scale = np.abs(A) @ cell.reach()[0] + np.abs(b)
    tolerance = 16 * EPS * scale
    kept = cell
    for k in range(len(A)):  # row by row: cutting by all at once would build their whole arrangement
        maps = np.append(A[k], -b[k])[None, :, None]
        found = kept.split(maps, tolerance[k].reshape(1, 1), np.zeros((1, 1)), k)
        inside = np.flatnonzero(found.piece[:, 0] == 0)
        if not len(inside):
            raise InputError("polytope has no interior inside the box: no point satisfies all rows strictly")
        kept = found.cells.part(int(inside[0]), int(inside[0]) + 1)
    return kept.relabelled(lambda labels: _outer(labels, cell.dimension))


def _outer(labels: npt.NDArray[np.int32], dimension: int) -> npt.NDArray[np.int32]:
    return np.where(labels >= 0, -1 - 2 * dimension - labels, labels).astype(np.int32)


def law_box(law: Law) -> tuple[FloatArray, FloatArray]:
    """A finite box that holds the law as far as float64 can tell; inputs that are fixed get a thin side."""
    lower, upper = law.far_box()
    margin = np.where(lower >= upper, 1e-6 * (1 + np.abs(lower)), 0.0)
    return lower - margin, upper + margin
