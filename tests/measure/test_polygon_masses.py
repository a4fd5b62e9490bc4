"""Polygons under the standard normal law: high-precision references, closed forms, partitions, degenerate input."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from reluscope.errors import InputError
from reluscope.measure.exact.interval import interval_mass, interval_moments
from reluscope.measure.exact.polygon import (
    WORKSPACE,
    polygon_kernel,
    polygon_mass,
    polygon_mass_with,
    polygon_moments,
    segment_density_kernel,
)

# Made by references/make_polygons.py (mpmath, boundary sums with up to 300 digits).
TABLE = json.loads((Path(__file__).parent / "references" / "polygons.json").read_text())


def mass_of(vertices) -> float:
    return polygon_mass(np.array(vertices, dtype=float), [0, len(vertices)])[0][0]


def segment_density(p, q):
    return np.array([segment_density_kernel(*a, *b) for a, b in zip(p, q, strict=True)])


def clip(polygon: np.ndarray, normal: np.ndarray, offset: float) -> np.ndarray:
    """The part of a convex polygon where normal.x <= offset."""
    side = polygon @ normal - offset
    out = []
    for i in range(len(polygon)):
        j = (i + 1) % len(polygon)
        if side[i] <= 0:
            out.append(polygon[i])
        if (side[i] < 0) != (side[j] < 0):
            t = side[i] / (side[i] - side[j])
            if 0 < t < 1:
                out.append(polygon[i] + t * (polygon[j] - polygon[i]))
    return np.array(out).reshape(-1, 2)


def random_partition(lines: int, spread: float, rng: np.random.Generator, box: float = 38.0):
    """The cells of random lines in a box, in CSR layout."""
    cells = [np.array([[-box, -box], [box, -box], [box, box], [-box, box]])]
    for _ in range(lines):
        angle, offset = rng.uniform(0, 2 * np.pi), spread * rng.standard_normal()
        normal = np.array([np.cos(angle), np.sin(angle)])
        pieces = []
        for cell in cells:
            side = cell @ normal - offset
            if side.max() <= 0 or side.min() >= 0:
                pieces.append(cell)
            else:
                pieces += [clip(cell, normal, offset), clip(cell, -normal, -offset)]
        cells = [piece for piece in pieces if len(piece) >= 3]
    return np.concatenate(cells), np.cumsum([0] + [len(cell) for cell in cells])


@pytest.mark.parametrize("row", TABLE, ids=[row["name"] for row in TABLE])
def test_masses_and_moments_agree_with_the_references(row):
    vertices = np.array(row["vertices"])
    exact = float(row["mass"])
    mass, error = polygon_mass(vertices, [0, len(vertices)])
    assert abs(mass[0] - exact) <= 1e-15
    assert abs(mass[0] - exact) <= 1e-12 * exact
    assert abs(mass[0] - exact) <= error[0] + 1e-16 * exact
    assert error[0] <= 1e-11 * exact + 1e-15 or "huge" in row["name"]
    mass, first, second = polygon_moments(vertices, [0, len(vertices)])
    exact_second = np.array([[float(v) for v in line] for line in row["second"]])
    radius = max(1.0, math.sqrt(np.trace(exact_second) / exact))
    assert abs(mass[0] - exact) <= 1e-12 * exact
    assert np.abs(first[0] - [float(v) for v in row["first"]]).max() <= 1e-12 * exact * radius
    assert np.abs(second[0] - exact_second).max() <= 1e-12 * exact * radius**2


@pytest.mark.parametrize("angle", [0.1, 1.0, math.pi / 2, 2.5, 3.0])
def test_wedges_at_the_origin(angle):
    far = 60.0
    vertices = [(0, 0), (far, 0), (far * math.cos(angle / 2), far * math.sin(angle / 2))]
    vertices.append((far * math.cos(angle), far * math.sin(angle)))
    assert mass_of(vertices) == pytest.approx(angle / (2 * math.pi), abs=1e-15)


@pytest.mark.parametrize("count", [3, 5, 8])
def test_sectors_and_regular_polygons(count):
    angles = 0.3 + 2 * np.pi * np.arange(count) / count
    ring = 2.0 * np.column_stack([np.cos(angles), np.sin(angles)])
    sectors = np.array([[[0.0, 0.0], ring[k], ring[(k + 1) % count]] for k in range(count)]).reshape(-1, 2)
    mass, _ = polygon_mass(sectors, 3 * np.arange(count + 1))
    assert mass == pytest.approx(np.full(count, mass_of(ring) / count), rel=1e-14)
    huge = mass_of(ring * 100)
    assert huge == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("distance", [0.0, 1e-9, 0.5, 3.0, 6.0, 12.0, 20.0, 30.0])
@pytest.mark.parametrize("turn", [0.0, 0.7, 2.0])
def test_half_planes(distance, turn):
    c, s = math.cos(turn), math.sin(turn)
    corners = np.array([(distance, -60.0), (60.0, -60.0), (60.0, 60.0), (distance, 60.0)])
    exact = float(interval_mass(distance, np.inf)[()])
    # The rotated vertices carry their own rounding: 60 eps, times the decay rate `distance`.
    assert mass_of(corners @ np.array([[c, s], [-s, c]])) == pytest.approx(exact, rel=1e-13 * max(1.0, distance))


def test_rectangles_are_products():
    rng = np.random.default_rng(5)
    low = rng.uniform(-6, 6, (400, 2)) * rng.choice([0.1, 1.0, 3.0], (400, 1))
    high = low + 10.0 ** rng.uniform(-10, 1.5, (400, 2))
    vertices = np.stack(
        [low, np.column_stack([high[:, 0], low[:, 1]]), high, np.column_stack([low[:, 0], high[:, 1]])], 1
    )
    mass, error = polygon_mass(vertices.reshape(-1, 2), 4 * np.arange(401))
    sides = interval_mass(low, high)
    exact = sides.prod(1)
    keep = exact > 1e-250
    assert keep.sum() > 350
    assert np.abs(mass / exact - 1)[keep].max() < 1e-12
    assert (np.abs(mass - exact) <= error + 4e-16 * exact).all()
    zeroth, first, second = interval_moments(low, high)
    _, got_first, got_second = polygon_moments(vertices.reshape(-1, 2), 4 * np.arange(401))
    exact_first = first * zeroth[:, ::-1]
    scale = exact * (1 + np.abs(low).max(1) + np.abs(high).max(1))
    assert (np.abs(got_first - exact_first).max(1) <= 1e-12 * scale)[keep].all()
    assert (np.abs(got_second[:, 0, 1] - first.prod(1)) <= 1e-12 * scale**2 / exact)[keep].all()
    assert (np.abs(got_second[:, 1, 1] - second[:, 1] * zeroth[:, 0]) <= 1e-12 * scale**2 / exact)[keep].all()


@pytest.mark.parametrize(("lines", "spread"), [(12, 0.01), (40, 1.0), (30, 8.0)])
def test_random_partitions_sum_to_one(lines, spread):
    vertices, offsets = random_partition(lines, spread, np.random.default_rng(lines))
    mass, error = polygon_mass(vertices, offsets)
    assert mass.sum() == pytest.approx(1.0, abs=1e-14)
    assert error.sum() < 1e-12
    moments, first, second = polygon_moments(vertices, offsets)
    assert np.abs(moments - mass).max() < 1e-15
    assert np.abs(first.sum(0)).max() < 1e-13
    assert np.abs(second.sum(0) - np.eye(2)).max() < 1e-13


@settings(deadline=None, max_examples=150)
@given(
    st.floats(0, 2 * math.pi),
    st.floats(0, 25),
    st.floats(-6, 1.3),
    st.floats(-8, 0),
    st.floats(0, 2 * math.pi),
    st.integers(4, 7),
    st.integers(0, 3),
)
def test_cutting_turning_and_renumbering_a_polygon(direction, distance, size, thinness, axis, count, shift):
    angles = 0.1 + 2 * np.pi * np.arange(count) / count
    local = 10.0**size * np.column_stack([np.cos(angles), 10.0**thinness * np.sin(angles)])
    c, s = math.cos(axis), math.sin(axis)
    polygon = local @ np.array([[c, s], [-s, c]]) + distance * np.array([math.cos(direction), math.sin(direction)])
    whole = mass_of(polygon)
    if whole < 1e-280:
        return
    # Cutting from vertex to vertex is exact: no new vertex has to be rounded.
    parts = mass_of(polygon[: count - 1]) + mass_of(polygon[[count - 2, count - 1, 0]])
    assert parts == pytest.approx(whole, rel=1e-11)
    assert mass_of(np.roll(polygon, shift, axis=0)) == pytest.approx(whole, rel=1e-11)
    # Quarter turns and repeated vertices are exact too.
    assert mass_of(polygon @ np.array([[0.0, 1.0], [-1.0, 0.0]])) == pytest.approx(whole, rel=1e-11)
    assert mass_of(np.repeat(polygon, 2, axis=0)) == pytest.approx(whole, rel=1e-11)


def test_degenerate_polygons_have_no_mass():
    cells = [
        [(0, 0), (1, 1), (2, 2)],
        [(1, 2), (1, 2), (1, 2)],
        [(0, 0), (1, 0)],
        [(3, 4)],
        [],
        [(0, 0), (1, 0), (1, 0)],
        [(0, 0), (0, 1), (1, 0)],  # clockwise
        [(0.1, 0.1), (0.1, 0.11), (0.11, 0.1)],
    ]
    offsets = np.cumsum([0] + [len(cell) for cell in cells])
    vertices = np.array([point for cell in cells for point in cell], dtype=float)
    mass, error = polygon_mass(vertices, offsets)
    assert (mass == 0).all()
    assert (error == 0).all()
    assert all((part == 0).all() for part in polygon_moments(vertices, offsets))


def test_vertices_that_differ_by_rounding_alone_do_no_harm():
    rng = np.random.default_rng(1)
    for size in (0.01, 1.0, 20.0):
        for centre in ((0.0, 0.0), (1.0, 0.5), (3.0, 4.0)):
            angles = 0.2 + 2 * np.pi * np.arange(5) / 5
            clean = size * np.column_stack([np.cos(angles), np.sin(angles)]) + centre
            noisy = np.repeat(clean, 3, axis=0) * (1 + 2e-16 * rng.integers(-1, 2, (15, 2)))
            assert mass_of(noisy) == pytest.approx(mass_of(clean), rel=1e-11)
    # A square whose left side zigzags by less than rounding, found with the slices in mind.
    zigzag = [(-1e-15, 0.5), (5e-18, 0.4), (-1e-16, 0), (1, 0), (1, 1), (1e-17, 1), (0, 0.6)]
    for size in (1e-3, 0.3):
        square = size * np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
        assert mass_of(size * np.array(zigzag)) == pytest.approx(mass_of(square), rel=1e-13)


def test_coordinates_of_a_million_sigma():
    c = 1e6
    assert mass_of([(-c, -c), (c, -c), (c, c), (-c, c)]) == pytest.approx(1.0, abs=1e-15)
    assert mass_of([(7.0, -c), (c, -c), (c, c), (7.0, c)]) == pytest.approx(
        float(interval_mass(7.0, np.inf)[()]), rel=1e-11
    )
    assert mass_of([(50.0, -c), (c, -c), (c, c), (50.0, c)]) == 0.0


def test_segments_carry_two_normal_tails():
    x, y = 0.7, -1.3
    across = segment_density(
        [[x, -50.0], [-50.0, y], [x, y], [30.0, 1.0]], [[x, 50.0], [50.0, y], [x, y + 1e-9], [30.0, 2.0]]
    )
    phi = lambda t: math.exp(-t * t / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    exact = [
        phi(x),
        phi(y),
        phi(x) * float(interval_mass(y, y + 1e-9)[()]),
        phi(30.0) * float(interval_mass(1.0, 2.0)[()]),
    ]
    assert across == pytest.approx(exact, rel=1e-13)
    # The mass is the integral of the densities of its chords: a triangle cut along x.
    nodes, weights = np.polynomial.legendre.leggauss(30)
    levels = 0.5 + 0.5 * nodes
    chords = segment_density(np.column_stack([levels, 0 * levels]), np.column_stack([levels, levels]))
    assert 0.5 * weights @ chords == pytest.approx(mass_of([(0, 0), (1, 0), (1, 1)]), rel=1e-14)


def test_kernels_are_callable_from_compiled_code():
    @njit
    def total(vertices, offsets):
        out, buffer = 0.0, np.empty(WORKSPACE)
        for i in range(offsets.size - 1):
            out += polygon_mass_with(vertices, offsets[i], offsets[i + 1], buffer)[0]
            out += polygon_kernel(vertices, offsets[i], offsets[i + 1], 0.0, 0.0, True, buffer)[0]
        return out

    vertices = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [2.1, 2.0], [2.0, 2.1]])
    mass, _ = polygon_mass(vertices, [0, 3, 6])
    assert total(vertices, np.array([0, 3, 6])) == pytest.approx(2 * mass.sum(), rel=1e-14)


@pytest.mark.parametrize(
    ("vertices", "offsets", "word"),
    [
        (np.zeros((3, 3)), [0, 3], "two columns"),
        ([[0.0, np.nan]], [0, 1], "finite"),
        (np.zeros((3, 2)), [0, 2], "offsets"),
        (np.zeros((3, 2)), [0.0, 3.0], "offsets"),
        (np.zeros((3, 2)), [0, 3, 2, 3], "offsets"),
        ([[1e13, 0.0], [0.0, 1.0], [0.0, 0.0]], [0, 3], "clip"),
    ],
)
def test_bad_input_is_refused_by_name(vertices, offsets, word):
    with pytest.raises(InputError, match=word):
        polygon_mass(vertices, offsets)
    with pytest.raises(InputError, match=word):
        polygon_moments(vertices, offsets)
