"""Polyhedra under the standard normal law: high-precision references, closed forms, partitions, bad input."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from reluscope.cells.vertex import VertexCells
from reluscope.errors import InputError
from reluscope.measure.exact.interval import interval_mass, interval_moments
from reluscope.measure.exact.polyhedron import polyhedra_mass, polyhedra_moments

# Made by references/make_polyhedra.py (mpmath).
TABLE = json.loads((Path(__file__).parent / "references" / "polyhedra.json").read_text())


def vertices_of(rows, bounds) -> np.ndarray:
    return VertexCells.from_polytope(rows, bounds).points


def box_vertices(low, high) -> np.ndarray:
    return np.array(list(product(*zip(low, high, strict=True))), dtype=float)


def turns(count: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.eye(3)] + [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(count)]


@pytest.mark.parametrize("row", TABLE, ids=[row["name"] for row in TABLE])
def test_tetrahedra_agree_with_the_references(row):
    mass, error = polyhedra_mass(row["vertices"], [0, 4])
    exact = float(row["mass"])
    assert mass[0] == pytest.approx(exact, rel=2e-12)
    assert abs(mass[0] - exact) <= error[0] + 4e-15 * exact
    assert error[0] <= 1e-9 * exact


@pytest.mark.parametrize(
    ("low", "high", "tolerance"),
    [
        ((-1, -1, -1), (1, 1, 1), 1e-13),
        ((-38, -38, -38), (38, 38, 38), 1e-13),
        ((1, 2, 3), (1.5, 2.25, 9), 1e-12),
        ((5, 6, 7), (38, 38, 38), 1e-11),
        ((-38, -38, 20), (38, 38, 38), 1e-11),
        ((0.125, 0.25, 0.5), (0.1251, 0.2501, 0.5001), 1e-10),
        ((1, -2, -0.25), (3, 2, -0.25 + 1e-5), 1e-9),
        ((0, 0, -3), (1e-5, 1e-5, 3), 1e-9),
        ((-38, -38, 10), (38, 38, 10 + 1e-4), 1e-9),
    ],
)
def test_turned_boxes_are_products(low, high, tolerance):
    zeroth, first, second = interval_moments(np.array(low, dtype=float), np.array(high, dtype=float))
    exact = zeroth.prod()
    exact_first = np.array([first[i] * zeroth.prod() / zeroth[i] for i in range(3)])
    ratio = first / zeroth
    exact_second = exact * (np.outer(ratio, ratio) - np.diag(ratio**2) + np.diag(second / zeroth))
    radius = math.sqrt(np.trace(exact_second) / exact) + 1.0
    for turn in turns(2, 4):
        vertices = box_vertices(low, high) @ turn.T
        mass, error = polyhedra_mass(vertices, [0, 8])
        assert mass[0] == pytest.approx(exact, rel=tolerance)
        # The turned vertices are rounded, which the estimate cannot know: 40 eps against the smallest side.
        assert abs(mass[0] - exact) <= error[0] + tolerance * exact
        mass, first_moment, second_moment = polyhedra_moments(vertices, [0, 8])
        assert np.abs(first_moment[0] - turn @ exact_first).max() <= tolerance * exact * radius
        assert np.abs(second_moment[0] - turn @ exact_second @ turn.T).max() <= tolerance * exact * radius**2


@pytest.mark.parametrize("correlations", [(0.5, 0.5, 0.5), (0.0, 0.0, 0.0), (0.3, -0.6, 0.2)])
def test_orthants_with_correlation(correlations):
    a, b, c = correlations
    # x = L u is positive in all coordinates: three planes through the origin, closed by a far plane.
    rows = -np.linalg.cholesky(np.array([[1, a, b], [a, 1, c], [b, c, 1]]))
    rows = np.vstack([rows, np.eye(3), -np.eye(3)])
    bounds = np.concatenate([np.zeros(3), np.full(6, 38.0)])
    vertices = vertices_of(rows, bounds)
    mass, error = polyhedra_mass(vertices, [0, len(vertices)])
    exact = 0.125 + (math.asin(a) + math.asin(b) + math.asin(c)) / (4 * math.pi)
    assert mass == pytest.approx(exact, rel=1e-12)
    assert error < 1e-11


def test_random_planes_partition_a_cube():
    rng = np.random.default_rng(8)
    cells = [(np.vstack([np.eye(3), -np.eye(3)]), np.full(6, 38.0))]
    for _ in range(5):
        normal = rng.standard_normal(3)
        normal /= np.linalg.norm(normal)
        offset = rng.standard_normal()
        cells = [
            (np.vstack([rows, sign * normal]), np.append(bounds, sign * offset))
            for rows, bounds in cells
            for sign in (1.0, -1.0)
        ]
    corners = [vertices_of(rows, bounds) for rows, bounds in cells]
    corners = [points for points in corners if len(points) >= 4]
    offsets = np.cumsum([0] + [len(points) for points in corners])
    mass, error = polyhedra_mass(np.concatenate(corners), offsets)
    assert 20 <= (mass > 0).sum() <= 26  # five planes in general position make 26 cells
    assert mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert error.sum() < 1e-9
    _, first, second = polyhedra_moments(np.concatenate(corners), offsets)
    assert np.abs(first.sum(0)).max() < 1e-12
    assert np.abs(second.sum(0) - np.eye(3)).max() < 1e-11


def test_regular_solids_with_many_faces():
    # A prism over a regular 12-gon: polygon times interval.
    from reluscope.measure.exact.polygon import polygon_mass

    angles = 2 * np.pi * np.arange(12) / 12
    ring = 1.5 * np.column_stack([np.cos(angles), np.sin(angles)]) + [0.3, 0.1]
    vertices = np.vstack([np.column_stack([ring, np.full(12, z)]) for z in (-0.5, 1.25)])
    exact = polygon_mass(ring, [0, 12])[0][0] * float(interval_mass(-0.5, 1.25)[()])
    for turn in turns(2, 9):
        assert polyhedra_mass(vertices @ turn.T, [0, 24])[0][0] == pytest.approx(exact, rel=1e-12)


def test_a_cube_without_a_corner_is_symmetric():
    rows = np.vstack([np.eye(3), -np.eye(3), [[1.0, 1.0, 1.0]], [[2.0, 2.0, 2.0]]])
    vertices = vertices_of(rows, [1, 1, 1, 1, 1, 1, 2.0, 4.0])
    assert len(vertices) == 10
    mass, first, second = polyhedra_moments(vertices, [0, 10])
    assert polyhedra_mass(vertices, [0, 10])[0] == pytest.approx(mass, rel=1e-13)
    assert first[0] == pytest.approx(np.full(3, first[0, 0]), rel=1e-11)
    assert second[0] == pytest.approx(second[0].T)


def test_degenerate_polyhedra_have_no_mass():
    flat = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    line = np.array([[0.0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]])
    point = np.ones((5, 3))
    vertices = np.concatenate([flat, line, point, flat[:3]])
    mass, error = polyhedra_mass(vertices, [0, 4, 8, 13, 16, 16])
    assert mass == pytest.approx(np.zeros(5), abs=1e-15)
    assert (error < 1e-14).all()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: polyhedra_mass(np.zeros((4, 2)), [0, 4]), "three columns"),
        (lambda: polyhedra_mass(np.zeros((4, 3)), [0, 3]), "offsets"),
        (lambda: polyhedra_mass(np.full((4, 3), np.inf), [0, 4]), "finite"),
        (lambda: polyhedra_mass(np.full((4, 3), 1e9), [0, 4]), "clip"),
    ],
)
def test_bad_input_is_refused_by_name(call, word):
    with pytest.raises(InputError, match=word):
        call()


# A cell whose slices have a side that is vertical up to rounding: corners of that side were once dropped, and a third
# of the mass with them.
VERTICAL_SIDE = [
    [-38.5, 14.1218397, 38.5],
    [-38.5, 14.1218397, 0.0],
    [-38.5, 7.25145855, 38.5],
    [-21.9885603, 7.17689501, 38.5],
    [-1.57821225, -1.40798557, -1.42017873e-14],
    [-17.9123789, -1.40798557, 38.5],
    [-1.87290764, -1.28403253, 0.919404312],
    [-17.8170041, -1.28403253, 38.5],
]


def test_mass_does_not_depend_on_the_frame():
    rng = np.random.default_rng(0)
    cells = [np.array(VERTICAL_SIDE)]
    for _ in range(40):  # boxes cut by a plane: faces orthogonal to the axes, levels that nearly coincide
        low, high = -np.array([38.5, 38.5, 3.0]), rng.random(3) * [3.0, 38.5, 38.5]
        corners = np.array(np.meshgrid(*zip(low, high, strict=True))).reshape(3, -1).T
        cells.append(corners + 1e-14 * rng.normal(size=corners.shape) * np.abs(corners))
    for cell in cells:
        rotated = [cell @ np.linalg.qr(rng.normal(size=(3, 3)))[0].T for _ in range(3)]
        masses = [polyhedra_mass(c, [0, len(c)])[0][0] for c in (cell, *rotated)]
        np.testing.assert_allclose(masses, masses[0], rtol=1e-8)
