"""Every geometry does what `reluscope.cells.split.Geometry` says."""

import numpy as np
import pytest

from conformance import check_geometry
from reluscope.cells.domain import clip
from reluscope.cells.interval import Intervals
from reluscope.cells.polygon import Polygons
from reluscope.cells.polytope import HPolytopes
from reluscope.cells.vertex import VertexCells, with_vertices

KINDS = [(Intervals, 1), (Polygons, 2), (VertexCells, 1), (VertexCells, 2), (VertexCells, 3), (VertexCells, 4)]
KINDS += [(HPolytopes, 1), (HPolytopes, 2), (HPolytopes, 3)]


@pytest.mark.parametrize("kind, d", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_geometry_from_a_box(kind, d, seed):
    rng = np.random.default_rng(seed)
    lower = rng.normal(size=d)
    check_geometry(kind.box(lower, lower + rng.uniform(0.5, 3, d)), seed)


@pytest.mark.parametrize("kind, d", [pair for pair in KINDS if pair[1] > 1])
def test_geometry_from_a_box_cut_by_half_spaces(kind, d):
    rows = np.random.default_rng(d).normal(size=(2, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    check_geometry(clip(kind.box(-np.ones(d), np.ones(d)), rows, np.full(2, 0.4)), 1)


@pytest.mark.parametrize("kind, d", [(Intervals, 1), (Polygons, 2)])
def test_cells_that_are_given_vertices_and_facets(kind, d):
    check_geometry(with_vertices(kind.box(-np.ones(d), np.ones(d))))
