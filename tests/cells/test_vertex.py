"""Cells that carry their vertices: counts, volumes, degenerate arrangements, the whole space."""

from __future__ import annotations

from itertools import pairwise, product
from math import comb, factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rational import rational_cells, rational_regions

from reluscope.cells.polygon import Polygons
from reluscope.cells.subdivide import subdivide
from reluscope.cells.vertex import VertexCells
from reluscope.cells.vertex_shape import pack
from reluscope.errors import InputError
from reluscope.network import Network


def patterns(net: Network, start: VertexCells, **options) -> list[tuple[int, ...]]:
    return [tuple(p) for leaf in subdivide(net, start, **options) for p in leaf.pattern.tolist()]


def joined(net: Network, start: VertexCells) -> tuple[VertexCells, np.ndarray]:
    leaves = list(subdivide(net, start))
    return VertexCells.join([leaf.cells for leaf in leaves]), np.concatenate([leaf.pattern for leaf in leaves])


def cube(d: int, half: float = 1.0) -> VertexCells:
    return VertexCells.box(np.full(d, -half), np.full(d, half))


def gaussian_network(widths: list[int], seed: int, activation: str = "relu") -> Network:
    rng = np.random.default_rng(seed)
    pairs = pairwise(widths)
    return Network([(rng.normal(0, np.sqrt(2 / a), (b, a)), rng.normal(0, 0.1, b)) for a, b in pairs], activation)


def integer_network(widths: list[int], rng: np.random.Generator, activation: str, span: int, bias: int) -> Network:
    pairs = pairwise(widths)
    return Network(
        [
            (rng.integers(-span, span + 1, (b, a)).astype(float), rng.integers(-bias, bias + 1, b).astype(float))
            for a, b in pairs
        ],
        activation,
    )


def one_layer(W: np.ndarray, b: np.ndarray, activation: str = "relu") -> Network:
    W = np.asarray(W, dtype=float)
    return Network([(W, np.asarray(b, dtype=float)), (np.ones((1, len(W))), [0.0])], activation)


def check_partition(net: Network, cells: VertexCells, pattern: np.ndarray, volume: float | None) -> None:
    """What must hold for every complete subdivision of a domain."""
    assert len(np.unique(pattern, axis=0)) == len(pattern)
    np.testing.assert_array_equal(net.pattern(cells.interior()), pattern)
    if volume is not None:
        volumes = cells.volumes()
        assert (volumes > 0).all()
        np.testing.assert_allclose(volumes.sum(), volume, rtol=1e-12)
    for i in range(0, len(cells), max(1, len(cells) // 20)):
        check_lattice(cells, i)


def check_lattice(cells: VertexCells, i: int) -> None:
    """Vertices and facets of one cell determine one another: no facet inside another, no vertex twice."""
    d = cells.dimension
    on = cells.incidence(i)
    labels = cells.facets(i)
    assert on.shape == (cells.offsets[i + 1] - cells.offsets[i], len(labels))
    assert len(set(labels.tolist())) == len(labels)
    assert (on.sum(axis=1) >= d).all() and (on.sum(axis=0) >= d).all()
    inside = on.astype(int).T @ on.astype(int)  # [f, g]: vertices on both facets
    assert (inside < np.diag(inside)[:, None])[~np.eye(len(labels), dtype=bool)].all()
    inside = on.astype(int) @ on.astype(int).T
    assert (inside < np.diag(inside)[:, None])[~np.eye(len(on), dtype=bool)].all()


# -- against other methods -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "hardtanh", "abs"])
def test_agrees_with_polygons(activation: str) -> None:
    net = gaussian_network([2, 12, 12, 8, 1], 3, activation)
    box = np.array([-2.0, -1.0]), np.array([1.0, 3.0])
    found = list(subdivide(net, Polygons.box(*box)))
    areas = dict(
        zip(
            (tuple(p) for leaf in found for p in leaf.pattern.tolist()),
            np.concatenate([leaf.cells.volumes() for leaf in found]),
            strict=True,
        )
    )
    cells, pattern = joined(net, VertexCells.box(*box))
    check_partition(net, cells, pattern, 12.0)
    assert {tuple(p) for p in pattern.tolist()} == set(areas)
    np.testing.assert_allclose(cells.volumes(), [areas[tuple(p)] for p in pattern.tolist()], rtol=1e-9, atol=1e-14)


def test_facet_labels_agree_with_polygons() -> None:
    net = gaussian_network([2, 8, 8, 1], 5)
    box = np.array([-1.0, -1.0]), np.array([1.0, 1.0])
    edges = {}
    for leaf in subdivide(net, Polygons.box(*box)):
        for i, p in enumerate(leaf.pattern.tolist()):
            edges[tuple(p)] = set(leaf.cells.labels[leaf.cells.offsets[i] : leaf.cells.offsets[i + 1]].tolist())
    cells, pattern = joined(net, VertexCells.box(*box))
    assert {tuple(p): set(cells.facets(i).tolist()) for i, p in enumerate(pattern.tolist())} == edges


@pytest.mark.parametrize(
    ("widths", "activation", "span", "bias"),
    [
        ([1, 3, 3, 1], "relu", 3, 3),
        ([2, 5, 4, 1], "relu", 2, 2),
        ([2, 4, 3, 1], "relu6", 4, 3),
        ([3, 5, 3, 1], "relu", 2, 1),
        ([3, 5, 4, 1], "relu", 1, 0),
        ([3, 4, 3, 1], "hardtanh", 1, 1),
        ([3, 4, 2, 2, 1], "abs", 2, 1),
        ([4, 5, 3, 1], "relu", 1, 1),
        ([4, 4, 3, 1], "relu", 1, 0),
        ([5, 5, 1], "relu", 1, 0),
    ],
)
@pytest.mark.parametrize("half", [1, 2])
def test_integer_networks_are_counted_exactly(widths, activation, span, bias, half) -> None:
    """Small integers make duplicate, parallel, opposite and concurrent hyperplanes, dead units, box faces cut."""
    for seed in range(4):
        rng = np.random.default_rng([seed, half])
        net = integer_network(widths, rng, activation, span, bias)
        d = widths[0]
        cells, pattern = joined(net, cube(d, half))
        assert {tuple(p) for p in pattern.tolist()} == rational_regions(net, -half, half)
        check_partition(net, cells, pattern, float((2 * half) ** d))


@settings(max_examples=60, deadline=None)
@given(
    d=st.integers(1, 4),
    seed=st.integers(0, 2**32),
    activation=st.sampled_from(["relu", "leaky_relu", "relu6", "hardtanh", "abs"]),
    bias=st.integers(0, 2),
)
def test_any_small_integer_network(d: int, seed: int, activation: str, bias: int) -> None:
    net = integer_network([d, 4, 3, 1], np.random.default_rng(seed), activation, 1, bias)
    found = patterns(net, cube(d))
    assert len(set(found)) == len(found)
    assert set(found) == rational_regions(net, -1, 1)


@settings(max_examples=40, deadline=None)
@given(d=st.integers(1, 3), seed=st.integers(0, 2**32), bias=st.integers(0, 2), span=st.integers(1, 3))
def test_any_small_integer_network_in_whole_space(d: int, seed: int, bias: int, span: int) -> None:
    net = integer_network([d, 4, 3, 1], np.random.default_rng(seed), "relu", span, bias)
    cells, pattern = joined(net, VertexCells.space(d))
    assert {tuple(p) for p in pattern.tolist()} == rational_regions(net)
    check_partition(net, cells, pattern, None)


# -- known counts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "n"), [(1, 9), (2, 12), (3, 10), (4, 9), (5, 8)])
def test_general_position(d: int, n: int) -> None:
    """n hyperplanes in general position: sum C(n, k) regions; through one point: 2 sum C(n - 1, k)."""
    rng = np.random.default_rng(d)
    W, b = rng.normal(size=(n, d)), rng.normal(size=n)
    net, central = one_layer(W, b), one_layer(W, np.zeros(n))
    all_regions = sum(comb(n, k) for k in range(d + 1))
    bounded = comb(n - 1, d)
    through_origin = 2 * sum(comb(n - 1, k) for k in range(d))

    half = 1e5
    cells, pattern = joined(net, cube(d, half))
    assert len(cells) == all_regions
    check_partition(net, cells, pattern, (2 * half) ** d)
    cells, pattern = joined(net, VertexCells.space(d))
    assert len(cells) == all_regions
    assert cells.bounded().sum() == bounded
    assert np.isfinite(cells.volumes()).sum() == bounded
    check_partition(net, cells, pattern, None)

    for start in (cube(d), VertexCells.space(d)):
        cells, pattern = joined(central, start)
        assert len(cells) == through_origin
        check_partition(central, cells, pattern, None)


def test_every_order_through_a_vertex_of_many_facets() -> None:
    """Reflection arrangements are as degenerate as can be: B_d has 2^d d! chambers, braid A_{d-1} has d!."""
    for d in (2, 3, 4):
        unit = np.eye(d)
        pairs = [unit[i] - s * unit[j] for i in range(d) for j in range(i) for s in (1, -1)]
        net = one_layer(np.array([*unit, *pairs]), np.zeros(d + len(pairs)))
        for start in (cube(d), VertexCells.space(d)):
            assert len(patterns(net, start)) == 2**d * factorial(d)
        braid = np.array([unit[i] - unit[j] for i in range(d) for j in range(i)])
        cells, pattern = joined(one_layer(braid, np.zeros(len(braid))), cube(d))
        assert len(cells) == factorial(d)
        check_partition(one_layer(braid, np.zeros(len(braid))), cells, pattern, 2.0**d)
        np.testing.assert_allclose(cells.volumes(), 2.0**d / factorial(d), rtol=1e-13)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_coincident_hyperplanes_cut_once(d: int) -> None:
    rng = np.random.default_rng(d)
    w = rng.normal(size=d)
    W = np.array([w, w, -w, 3 * w, 1e-9 * w, np.zeros(d), np.zeros(d), np.eye(d)[0], -np.eye(d)[0]])
    b = np.array([0.1, 0.1, -0.1, 0.3, 1e-10, 1.0, 0.0, 1.0, 1.0])  # the last two lie on the box's faces
    net = one_layer(W, b)
    cells, pattern = joined(net, cube(d))
    assert len(cells) == 2
    check_partition(net, cells, pattern, 2.0**d)


def test_parallel_hyperplanes() -> None:
    n, d = 7, 4
    w = np.array([1.0, -2.0, 0.5, 3.0])
    net = one_layer(np.tile(w, (n, 1)), np.linspace(-1, 1, n))
    cells, pattern = joined(net, VertexCells.space(d))
    assert len(cells) == n + 1
    assert not cells.bounded().any()
    check_partition(net, cells, pattern, None)


def test_hyperplane_through_vertices_edges_and_facets() -> None:
    """x + y + z = t meets the cube [0, 1]^3 in a point (0, 3), a triangle through vertices (1, 2), or between."""
    net = one_layer(np.ones((6, 3)), -np.array([0.0, 1.0, 2.0, 3.0, -1.0, 4.0]))
    cells, pattern = joined(net, VertexCells.box(np.zeros(3), np.ones(3)))
    np.testing.assert_allclose(np.sort(cells.volumes()), [1 / 6, 1 / 6, 2 / 3], rtol=1e-14)
    assert sorted(len(cells.facets(i)) for i in range(3)) == [4, 4, 8]
    assert sorted(len(cells.vertices(i)) for i in range(3)) == [4, 4, 6]
    check_partition(net, cells, pattern, 1.0)
    # A plane through two opposite edges makes two prisms.
    cells, _ = joined(one_layer([[1.0, -1.0, 0.0]], [0.0]), VertexCells.box(np.zeros(3), np.ones(3)))
    assert [len(cells.facets(i)) for i in range(2)] == [5, 5]
    assert [len(cells.vertices(i)) for i in range(2)] == [6, 6]


def test_thin_slivers_stay() -> None:
    """The slab 0 < x + 2y + 3z + gap < gap meets the cube over its whole (x, y) square, with height gap / 3."""
    gap = 1e-12
    cells, _ = joined(one_layer([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], [0.0, gap]), cube(3))
    assert len(cells) == 3
    np.testing.assert_allclose(cells.volumes().min(), 4.0 * gap / 3.0, rtol=1e-3)


# -- deep networks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("widths", "activation"),
    [
        ([3, 10, 10, 10, 1], "relu"),
        ([3, 8, 6, 1], "hardtanh"),
        ([4, 9, 8, 1], "relu"),
        ([5, 8, 7, 1], "relu"),
        ([6, 7, 5, 1], "relu"),
        ([7, 6, 3, 1], "relu"),
    ],
)
def test_random_networks_are_partitioned(widths: list[int], activation: str) -> None:
    net = gaussian_network(widths, 11, activation)
    d = widths[0]
    cells, pattern = joined(net, cube(d))
    check_partition(net, cells, pattern, 2.0**d)
    points = np.random.default_rng(1).uniform(-1, 1, (20_000, d))
    assert {tuple(p) for p in net.pattern(points).tolist()} <= {tuple(p) for p in pattern.tolist()}


def test_small_float_networks_agree_with_rational_arithmetic() -> None:
    for seed, widths in enumerate(([3, 5, 4, 1], [4, 5, 3, 1], [2, 6, 5, 1])):
        net = gaussian_network(widths, seed)
        assert set(patterns(net, cube(widths[0]))) == rational_regions(net, -1, 1)
        assert set(patterns(net, VertexCells.space(widths[0]))) == rational_regions(net)


def test_batches_do_not_matter() -> None:
    net = gaussian_network([3, 8, 8, 1], 2)
    whole = patterns(net, cube(3))
    assert sorted(whole) == sorted(patterns(net, cube(3), batch=7))
    assert sorted(patterns(net, VertexCells.space(3))) == sorted(patterns(net, VertexCells.space(3), batch=5))


def test_many_starting_cells() -> None:
    net = gaussian_network([3, 6, 6, 1], 4)
    corners = [np.array(c, dtype=float) for c in product((-1.0, 0.0), repeat=3)]
    start = VertexCells.join([VertexCells.box(c, c + 1.0) for c in corners])
    leaves = list(subdivide(net, start))
    cells = VertexCells.join([leaf.cells for leaf in leaves])
    root = np.concatenate([leaf.root for leaf in leaves])
    np.testing.assert_allclose(np.bincount(root, cells.volumes()), 1.0, rtol=1e-12)
    found = {tuple(p) for leaf in leaves for p in leaf.pattern.tolist()}
    assert found == set(patterns(net, cube(3)))


# -- more facets than a word has bits ------------------------------------------------------------------------------


def regular_polygon(n: int) -> VertexCells:
    angle = 2 * np.pi * np.arange(n) / n
    on = np.eye(n, dtype=bool) | np.roll(np.eye(n, dtype=bool), 1, axis=1)
    labels = (-1 - np.arange(n)).astype(np.int32)
    return VertexCells._one(np.column_stack([np.cos(angle), np.sin(angle)]), pack(on), labels)


@pytest.mark.parametrize("n", [5, 64, 100, 150])
def test_many_facets(n: int) -> None:
    start = regular_polygon(n)
    disc = 0.5 * n * np.sin(2 * np.pi / n)
    np.testing.assert_allclose(start.volumes(), disc, rtol=1e-13)
    net = gaussian_network([2, 6, 5, 1], n)
    cells, pattern = joined(net, start)
    check_partition(net, cells, pattern, disc)
    inside = rational_cells(net, -1, 1)
    assert {tuple(p) for p in pattern.tolist()} <= set(inside)


def test_words_grow_while_cutting() -> None:
    """Tangents to a circle: the inner cell gets one facet from each of 80 lines."""
    n = 80
    angle = 2 * np.pi * np.arange(n) / n
    net = one_layer(np.column_stack([np.cos(angle), np.sin(angle)]), -np.ones(n))
    cells, pattern = joined(net, VertexCells.box([-1.5, -1.5], [1.5, 1.5]))
    check_partition(net, cells, pattern, 9.0)
    inner = np.flatnonzero((pattern == 0).all(axis=1))
    assert len(inner) == 1
    assert sorted(cells.facets(int(inner[0])).tolist()) == list(range(n))
    np.testing.assert_allclose(cells.volumes()[inner], n * np.tan(np.pi / n), rtol=1e-12)


# -- facets and ways to infinity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("d", [2, 3, 4])
def test_facet_points_lie_inside_their_facets(d: int, open_: bool) -> None:
    rng = np.random.default_rng(d)
    net = one_layer(rng.normal(size=(7, d)), rng.normal(size=7))
    cells, pattern = joined(net, VertexCells.space(d) if open_ else cube(d))
    labels, offsets = cells.facet_labels()
    middle = cells.facet_points()
    assert middle.shape == (len(labels), d)
    assert not open_ or (labels >= 0).all()
    owner = np.repeat(np.arange(len(cells)), np.diff(offsets))
    at = middle @ net.layers[0].weight.T + net.layers[0].bias
    size = 1.0 + np.abs(middle).max(axis=1)
    inner = labels >= 0
    rows = np.flatnonzero(inner)
    assert (np.abs(at[rows, labels[rows]]) < 1e-9 * size[rows]).all()
    others = np.arange(7) != labels[:, None]
    assert ((at > 0) == pattern[owner])[others].all()
    if not open_:
        side = -1 - labels[~inner]
        np.testing.assert_allclose(middle[~inner, side // 2], np.where(side % 2, 1.0, -1.0), rtol=1e-14)
        assert (np.abs(middle).max(axis=1)[inner] < 1.0).all()


def test_orthants_have_one_vertex_and_d_rays() -> None:
    for d in (1, 2, 3, 5):
        net = one_layer(np.eye(d), -np.arange(1.0, d + 1))
        cells, pattern = joined(net, VertexCells.space(d))
        assert len(cells) == 2**d
        for i, p in enumerate(pattern):
            np.testing.assert_allclose(cells.vertices(i), [np.arange(1.0, d + 1)], rtol=1e-15)
            rays = cells.rays_of(i)
            order = np.argmax(np.abs(rays), axis=1)
            np.testing.assert_array_equal(rays[np.argsort(order)], np.diag(np.where(p, 1.0, -1.0)))


@pytest.mark.parametrize("d", [2, 3, 4])
def test_rays_span_the_ways_to_infinity(d: int) -> None:
    """A far vertex of the arrangement through the origin with the same slopes is a way to infinity, and only those."""
    rng = np.random.default_rng(d)
    W, b = rng.normal(size=(6, d)), rng.normal(size=6)
    cells, pattern = joined(one_layer(W, b), VertexCells.space(d))
    bounded = cells.bounded()
    assert bounded.any() and not bounded.all()
    for i, p in enumerate(pattern):
        rays = cells.rays_of(i)
        assert (len(rays) == 0) == bounded[i]
        sign = np.where(p, 1.0, -1.0)
        slopes = sign * (rays @ W.T)
        assert (slopes > -1e-12).all()
        # In general position an extreme direction lies in d - 1 of the hyperplanes.
        assert ((slopes < 1e-12).sum(axis=1) == d - 1).all()
        assert len(np.unique(np.round(rays, 9), axis=0)) == len(rays)
    # The direction (1, 1) ends in a corner of the symbolic square: still one ray.
    cells, pattern = joined(one_layer([[1.0, -1.0], [0.0, 1.0]], [0.0, 0.0]), VertexCells.space(2))
    for i in range(len(cells)):
        assert len(cells.rays_of(i)) == 2


def test_cells_that_contain_lines() -> None:
    net = one_layer([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [-5.0, -6.0])
    cells, pattern = joined(net, VertexCells.space(3))
    check_partition(net, cells, pattern, None)
    for i, p in enumerate(pattern.tolist()):
        rays = cells.rays_of(i)
        assert cells.vertices(i).shape == (0, 3)
        assert (rays[:, 1] > 0).any() and (rays[:, 1] < 0).any()
        assert {tuple(r) for r in np.sign(rays[:, :1])} <= {(0.0,), {0: (-1.0,), 1: (0.0,), 2: (1.0,)}[sum(p)]}
    labels, offsets = cells.facet_labels()
    assert sorted(labels.tolist()) == [0, 0, 1, 1]
    assert np.diff(offsets).tolist().count(2) == 1
    np.testing.assert_allclose(cells.facet_points()[:, 0], np.where(labels == 0, 5.0, 6.0), rtol=1e-14)


def test_relabelled() -> None:
    start = cube(3).relabelled(lambda labels: labels - 10)
    assert start.facets(0).tolist() == list(range(-11, -17, -1))
    assert start.labels.dtype == np.int32


# -- starting cells ------------------------------------------------------------------------------------------------


def test_volumes_of_known_bodies() -> None:
    for d in range(1, 7):
        low, high = -np.arange(1.0, d + 1), np.arange(1.0, d + 1) / 3
        np.testing.assert_allclose(VertexCells.box(low, high).volumes(), np.prod(high - low), rtol=1e-14)
        simplex = VertexCells.from_polytope(np.vstack([-np.eye(d), np.ones(d)]), [*np.zeros(d), 1.0])
        np.testing.assert_allclose(simplex.volumes(), 1 / factorial(d), rtol=1e-13)
        assert len(simplex.vertices(0)) == d + 1
    for d in range(2, 6):
        cross = VertexCells.from_polytope(np.array(list(product((-1.0, 1.0), repeat=d))), np.ones(2**d))
        np.testing.assert_allclose(cross.volumes(), 2**d / factorial(d), rtol=1e-13)
        assert len(cross.vertices(0)) == 2 * d
        assert not cross.is_open
        assert sorted(-1 - 2 * d - cross.facets(0)) == list(range(2**d))


def test_cross_polytopes_are_cut_right() -> None:
    """Every vertex lies on 2^(d-1) facets; the coordinate hyperplanes make 2^d simplices."""
    for d in (3, 4, 5):
        start = VertexCells.from_polytope(np.array(list(product((-1.0, 1.0), repeat=d))), np.ones(2**d))
        net = one_layer(np.eye(d), np.zeros(d))
        cells, pattern = joined(net, start)
        np.testing.assert_allclose(cells.volumes(), np.full(2**d, 1 / factorial(d)), rtol=1e-13)
        check_partition(net, cells, pattern, 2**d / factorial(d))


def test_from_polytope() -> None:
    A = np.vstack([np.eye(3), -np.eye(3), np.ones((1, 3)), np.eye(3)])
    b = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 10.0, 2.0, 1.0, 3.0])
    cell = VertexCells.from_polytope(A, b)
    assert len(cell) == 1 and not cell.is_open
    assert sorted(-7 - cell.facets(0)) == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(cell.volumes(), 1.0)
    quadrant = VertexCells.from_polytope([[-1.0, 0.0], [0.0, -1.0]], [0.0, 0.0])
    assert quadrant.is_open and not quadrant.bounded().any() and np.isinf(quadrant.volumes()).all()
    assert (quadrant.interior() > 0).all()
    assert len(VertexCells.from_polytope([[1.0, 0.0], [-1.0, 0.0]], [0.0, -1.0])) == 0  # empty
    assert len(VertexCells.from_polytope([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0])) == 0  # a line


def test_parts_and_join() -> None:
    net = gaussian_network([3, 6, 5, 1], 8)
    cells, _ = joined(net, cube(3))
    n = len(cells)
    again = VertexCells.join([cells.part(0, 5), cells.part(5, 5), cells.part(5, n)])
    assert len(again) == n and len(again.part(3, 3)) == 0
    np.testing.assert_array_equal(again.interior(), cells.interior())
    np.testing.assert_array_equal(again.part(5, n).volumes(), cells.volumes()[5:])
    np.testing.assert_array_equal(again.facets(n - 1), cells.facets(n - 1))
    np.testing.assert_array_equal(cells.part(2, 4).reach(), cells.reach()[2:4])
    assert len(VertexCells.join([])) == 0
    assert cells.part(0, 0).interior().shape == cells.part(0, 0).reach().shape == (0, 3)
    assert cells.part(0, 0).volumes().shape == (0,)


def test_reach_bounds_the_cell() -> None:
    cells, _ = joined(gaussian_network([4, 6, 1], 8), cube(4))
    for i in range(len(cells)):
        np.testing.assert_array_equal(cells.reach()[i], np.abs(cells.vertices(i)).max(axis=0))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: VertexCells.box([0.0, 1.0], [1.0, 1.0]), "axis 1"),
        (lambda: VertexCells.box([0.0], [1.0, 1.0]), "one entry per axis"),
        (lambda: VertexCells.box([0.0, -np.inf], [1.0, 1.0]), "finite"),
        (lambda: VertexCells.box(np.zeros(17), np.ones(17)), "dimension"),
        (lambda: VertexCells.space(0), "dimension"),
        (lambda: VertexCells.from_polytope(np.eye(2), [1.0]), "one row per inequality"),
    ],
)
def test_bad_starts_are_refused(make, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()
