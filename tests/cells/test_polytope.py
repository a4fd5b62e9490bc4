"""Cells as half-spaces: counts, degenerate arrangements, the whole space, and what is told about single cells."""

from __future__ import annotations

from itertools import pairwise, product
from math import comb, factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rational import rational_regions
from scipy.optimize import linprog

from nets import random_net
from reluscope.cells import polytope
from reluscope.cells.domain import clip
from reluscope.cells.polygon import Polygons
from reluscope.cells.polytope import HPolytopes
from reluscope.cells.regions import regions
from reluscope.cells.subdivide import subdivide
from reluscope.cells.vertex import VertexCells
from reluscope.errors import InputError
from reluscope.network import Network


def cube(d: int, half: float = 1.0) -> HPolytopes:
    return HPolytopes.box(np.full(d, -half), np.full(d, half))


def patterns(net: Network, start, **options) -> list[tuple[int, ...]]:
    return [tuple(p) for leaf in subdivide(net, start, **options) for p in leaf.pattern.tolist()]


def joined(net: Network, start: HPolytopes, **options) -> tuple[HPolytopes, np.ndarray]:
    leaves = list(subdivide(net, start, **options))
    return HPolytopes.join([leaf.cells for leaf in leaves]), np.concatenate([leaf.pattern for leaf in leaves])


def one_layer(W, b, activation: str = "relu") -> Network:
    W = np.asarray(W, dtype=float)
    return Network([(W, np.asarray(b, dtype=float)), (np.ones((1, len(W))), [0.0])], activation)


def integer_network(widths: list[int], rng: np.random.Generator, activation: str, span: int, bias: int) -> Network:
    return Network(
        [
            (rng.integers(-span, span + 1, (b, a)).astype(float), rng.integers(-bias, bias + 1, b).astype(float))
            for a, b in pairwise(widths)
        ],
        activation,
    )


def check_cells(net: Network, cells: HPolytopes, pattern: np.ndarray) -> None:
    """What must hold for every subdivision: patterns are unique, and those of the inner points."""
    assert len(np.unique(pattern, axis=0)) == len(pattern) == len(cells)
    inside = cells.interior()
    assert (cells.inradius() > 0).all()
    found = net.pattern(inside)
    # A unit that sits on a break point all over a cell may be evaluated to either side of it.
    levels = np.concatenate([layer.units.breaks.reshape(layer.width, -1) for layer in net.hidden])
    h = np.concatenate(net.preactivations(inside)[:-1], axis=1)
    on = (np.abs(h[:, :, None] - levels) < 1e-12 * (1 + np.abs(inside).max())).any(axis=2)
    assert ((found == pattern) | on).all()
    assert on.mean() < 0.5


# -- against other methods ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "hardtanh", "abs"])
def test_agrees_with_polygons(activation: str) -> None:
    net = random_net([2, 12, 12, 8, 1], 3, activation)
    box = np.array([-2.0, -1.0]), np.array([1.0, 3.0])
    cells, pattern = joined(net, HPolytopes.box(*box))
    check_cells(net, cells, pattern)
    assert {tuple(p) for p in pattern.tolist()} == set(patterns(net, Polygons.box(*box)))


@pytest.mark.parametrize(
    ("widths", "activation", "span", "bias"),
    [
        ([1, 3, 3, 1], "relu", 3, 3),
        ([2, 5, 4, 1], "relu", 2, 2),
        ([2, 4, 3, 1], "relu6", 4, 3),
        ([3, 5, 4, 1], "relu", 1, 0),
        ([3, 4, 3, 1], "hardtanh", 1, 1),
        ([3, 4, 2, 2, 1], "abs", 2, 1),
        ([4, 5, 3, 1], "relu", 1, 1),
        ([5, 5, 1], "relu", 1, 0),
    ],
)
@pytest.mark.parametrize("half", [1, 2, None])
def test_integer_networks_are_counted_exactly(widths, activation, span, bias, half) -> None:
    """Small integers make duplicate, parallel, opposite and concurrent hyperplanes, dead units, box faces cut."""
    d = widths[0]
    for seed in range(3):
        net = integer_network(widths, np.random.default_rng([seed, half or 7]), activation, span, bias)
        start = HPolytopes.space(d) if half is None else cube(d, half)
        cells, pattern = joined(net, start)
        expected = rational_regions(net, *((None, None) if half is None else (-half, half)))
        assert {tuple(p) for p in pattern.tolist()} == expected
        check_cells(net, cells, pattern)


@settings(max_examples=50)
@given(
    d=st.integers(1, 4),
    seed=st.integers(0, 2**32),
    activation=st.sampled_from(["relu", "leaky_relu", "relu6", "hardtanh", "abs"]),
    bias=st.integers(0, 2),
    open_=st.booleans(),
)
def test_any_small_integer_network(d: int, seed: int, activation: str, bias: int, open_: bool) -> None:
    net = integer_network([d, 3, 2, 1], np.random.default_rng(seed), activation, 2, bias)
    found = patterns(net, HPolytopes.space(d) if open_ else cube(d))
    assert len(set(found)) == len(found)
    assert set(found) == (rational_regions(net) if open_ else rational_regions(net, -1, 1))


def test_float_networks_agree_with_rational_arithmetic() -> None:
    for seed, widths in enumerate(([3, 5, 4, 1], [4, 5, 3, 1], [2, 6, 5, 1])):
        net = random_net(widths, seed)
        assert set(patterns(net, cube(widths[0]))) == rational_regions(net, -1, 1)
        assert set(patterns(net, HPolytopes.space(widths[0]))) == rational_regions(net)


@pytest.mark.parametrize(
    ("widths", "activation"),
    [([4, 9, 8, 1], "relu"), ([5, 8, 7, 1], "relu"), ([6, 6, 4, 4, 1], "relu"), ([3, 6, 5, 1], "hardtanh")],
)
def test_agrees_with_cells_that_carry_vertices(widths: list[int], activation: str) -> None:
    net = random_net(widths, 11, activation)
    d = widths[0]
    cells, pattern = joined(net, cube(d))
    check_cells(net, cells, pattern)
    box = np.full(d, -1.0), np.full(d, 1.0)
    assert {tuple(p) for p in pattern.tolist()} == set(patterns(net, VertexCells.box(*box)))


def test_high_dimensions_hold_every_sampled_pattern() -> None:
    for widths in ([8, 8, 6, 1], [10, 7, 6, 1], [20, 6, 5, 1], [40, 5, 4, 1]):
        net = random_net(widths, 1)
        cells, pattern = joined(net, cube(widths[0]))
        check_cells(net, cells, pattern)
        points = np.random.default_rng(1).uniform(-1, 1, (20_000, widths[0]))
        assert {tuple(p) for p in net.pattern(points).tolist()} <= {tuple(p) for p in pattern.tolist()}


# -- known counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "n"), [(1, 9), (2, 12), (3, 10), (5, 9), (8, 10), (12, 9)])
def test_general_position(d: int, n: int) -> None:
    """n hyperplanes in general position: sum C(n, k) regions, C(n - 1, d) bounded; central: 2 sum C(n - 1, k)."""
    rng = np.random.default_rng(d)
    W, b = rng.normal(size=(n, d)), rng.normal(size=n)
    net, central = one_layer(W, b), one_layer(W, np.zeros(n))
    cells, pattern = joined(net, HPolytopes.space(d))
    assert len(cells) == sum(comb(n, k) for k in range(d + 1))
    check_cells(net, cells, pattern)
    low, high = cells.bounds()
    bounded = np.isfinite(low).all(axis=1) & np.isfinite(high).all(axis=1)
    assert bounded.sum() == comb(n - 1, d)
    assert len(patterns(net, cube(d, 1e5))) == len(cells)
    for start in (cube(d), HPolytopes.space(d)):
        cells, pattern = joined(central, start)
        assert len(cells) == 2 * sum(comb(n - 1, k) for k in range(d))
        check_cells(central, cells, pattern)


def test_reflection_arrangements() -> None:
    """As degenerate as can be: B_d has 2^d d! chambers, the braid arrangement d!."""
    for d in (2, 3, 4, 5):
        unit = np.eye(d)
        braid = np.array([unit[i] - unit[j] for i in range(d) for j in range(i)])
        for start in (cube(d), HPolytopes.space(d)):
            assert len(patterns(one_layer(braid, np.zeros(len(braid))), start)) == factorial(d)
        if d < 5:
            pairs = [unit[i] - s * unit[j] for i in range(d) for j in range(i) for s in (1, -1)]
            net = one_layer(np.array([*unit, *pairs]), np.zeros(d + len(pairs)))
            for start in (cube(d), HPolytopes.space(d)):
                assert len(patterns(net, start)) == 2**d * factorial(d)


@pytest.mark.parametrize("d", [2, 3, 8])
def test_coincident_hyperplanes_cut_once(d: int) -> None:
    w = np.random.default_rng(d).normal(size=d)
    W = np.array([w, w, -w, 3 * w, 1e-9 * w, np.zeros(d), np.zeros(d), np.eye(d)[0], -np.eye(d)[0]])
    b = np.array([0.1, 0.1, -0.1, 0.3, 1e-10, 1.0, 0.0, 1.0, 1.0])  # the last two lie on the box's faces
    net = one_layer(W, b)
    cells, pattern = joined(net, cube(d))
    assert len(cells) == 2
    check_cells(net, cells, pattern)


def test_hyperplanes_that_only_touch() -> None:
    """On [0, 1]^d: sum x = 0, d at a vertex; x_1 + x_2 = 0, 2 in a face of codimension 2; x_1 = 1 in a facet."""
    d = 9
    pair = np.eye(d)[0] + np.eye(d)[1]
    W = np.array([np.ones(d), np.ones(d), pair, pair, np.eye(d)[0], np.ones(d)])
    net = one_layer(W, -np.array([0.0, d, 0.0, 2.0, 1.0, 4.0]))
    cells, pattern = joined(net, HPolytopes.box(np.zeros(d), np.ones(d)))
    assert pattern.tolist() in ([[1, 0, 1, 0, 0, 0], [1, 0, 1, 0, 0, 1]], [[1, 0, 1, 0, 0, 1], [1, 0, 1, 0, 0, 0]])
    check_cells(net, cells, pattern)


@pytest.mark.parametrize("gap", [1e-6, 1e-9, 1e-11, 3e-13])
def test_thin_slivers_stay(gap: float) -> None:
    W = np.tile(np.arange(1.0, 9.0), (2, 1))
    cells, _ = joined(one_layer(W, [0.0, gap]), cube(8))
    assert len(cells) == 3
    assert cells.inradius().min() == pytest.approx(gap / 2 / np.linalg.norm(W[0]), rel=1e-2)


def test_several_break_points_per_unit() -> None:
    """hardtanh on parallel units: k distinct levels make k + 1 slabs, however they are spread over units."""
    w = np.random.default_rng(0).normal(size=7)
    cases = (("hardtanh", [0.0], 3), ("hardtanh", [0.0, 2.0], 4), ("relu6", [0.0, 0.5, 6.0], 6))
    for activation, biases, slabs in cases:
        net = one_layer(np.tile(w, (len(biases), 1)), biases, activation)
        for start in (cube(7, 50.0), HPolytopes.space(7)):
            cells, pattern = joined(net, start)
            assert len(cells) == slabs
            check_cells(net, cells, pattern)
    grid = Network([(np.eye(7)[:4], np.zeros(4)), (np.ones((1, 4)), [0.0])], "hardtanh")
    assert len(patterns(grid, cube(7, 3.0))) == 3**4


@pytest.mark.parametrize("factor", [1e-9, 1e-3, 1e6, 1e12])
def test_size_and_place_do_not_matter(factor: float) -> None:
    """Scaling the box and the biases together changes nothing, nor does moving box and hyperplanes together."""
    rng = np.random.default_rng(4)
    W, b = rng.normal(size=(9, 7)), 0.3 * rng.normal(size=9)
    expected = set(patterns(one_layer(W, b), cube(7)))
    assert set(patterns(one_layer(W, factor * b), cube(7, factor))) == expected
    far = np.full(7, 1e6)
    moved = one_layer(W, factor * b - W @ far)
    if factor >= 1e-3:
        assert set(patterns(moved, HPolytopes.box(far - factor, far + factor))) == expected
    assert set(patterns(one_layer(factor**10 * W, factor**10 * b), cube(7))) == expected
    spread = factor ** np.linspace(-1, 1, 7)
    assert set(patterns(one_layer(W / spread, b), HPolytopes.box(-spread, spread))) == expected


def test_batches_do_not_matter() -> None:
    net = random_net([7, 6, 6, 1], 2)
    assert sorted(patterns(net, cube(7))) == sorted(patterns(net, cube(7), batch=5))


def test_deep_networks_drop_redundant_rows() -> None:
    net = random_net([3, 10, 10, 10, 10, 1], 7)
    cells, pattern = joined(net, cube(3))
    check_cells(net, cells, pattern)
    assert {tuple(p) for p in pattern.tolist()} == set(patterns(net, VertexCells.box(-np.ones(3), np.ones(3))))
    assert (cells.clean > 0).any()
    assert np.diff(cells.offsets).max() < 30


def test_doubtful_cells_are_split_with_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    net = random_net([3, 6, 4, 1], 5, "hardtanh")
    expected = set(patterns(net, cube(3)))
    monkeypatch.setattr(polytope, "_STEP_LIMIT", -1000)  # every search that takes a step is doubtful
    cells, pattern = joined(net, cube(3))
    assert {tuple(p) for p in pattern.tolist()} == expected
    check_cells(net, cells, pattern)


# -- starting cells ----------------------------------------------------------------------------------------------------


def test_a_simplex_in_eight_dimensions() -> None:
    """The simplex x >= 0, sum x <= 1 in 8 dimensions, cut by x_1 = x_2: two halves."""
    d = 8
    A, b = np.concatenate([-np.eye(d), np.ones((1, d))]), np.append(np.zeros(d), 1.0)
    norm = np.linalg.norm(A, axis=1)
    start = clip(cube(d, 2.0), A / norm[:, None], b / norm)
    assert start.inradius()[0] == pytest.approx(1 / (d + np.sqrt(d)))
    np.testing.assert_allclose(start.reach(), np.ones((1, d)))
    cells, _ = joined(one_layer([np.eye(d)[0] - np.eye(d)[1]], [0.0]), start)
    assert len(cells) == 2
    labels, offsets = cells.facet_labels()
    assert np.diff(offsets).tolist() == [9, 9]
    assert {tuple(sorted(labels[:9].tolist())), tuple(sorted(labels[9:].tolist()))} == {
        (-25, -24, -23, -22, -21, -20, -19, -18, 0),
        (-25, -24, -23, -22, -21, -20, -19, -17, 0),
    }
    np.testing.assert_allclose(start.volumes(), 1 / factorial(d), rtol=1e-9)
    assert len(start.vertices(0)) == d + 1


@pytest.mark.parametrize("size", [1e-7, 1.0, 1e9])
def test_polyhedra_of_any_size(size: float) -> None:
    rng = np.random.default_rng(8)
    A = rng.normal(size=(40, 4))
    b = size * (np.linalg.norm(A, axis=1) + A @ np.full(4, 30.0))
    norm = np.linalg.norm(A, axis=1)
    box = HPolytopes.box(np.full(4, 25.0 * size), np.full(4, 35.0 * size))
    start = clip(box, A / norm[:, None], b / norm)
    net = one_layer(rng.normal(size=(6, 4)), np.zeros(6))
    net = one_layer(net.layers[0].weight, -net.layers[0].weight @ np.full(4, 30.0 * size))
    cells, _ = joined(net, start)
    assert len(cells) == 2 * sum(comb(5, k) for k in range(4))
    radius = cells.inradius()
    assert ((radius > 0) & (radius < size * 2)).all()


def test_polyhedra_without_inner_points_are_refused() -> None:
    rows = np.array([[1.0, 0.0], [-1.0, 0.0]])
    for bound in ([0.0, -1.0], [0.0, 0.0]):
        with pytest.raises(InputError, match="no interior"):
            clip(cube(2), rows, np.array(bound))
    assert len(clip(cube(3), np.zeros((0, 3)), np.zeros(0))) == 1
    labels, offsets = HPolytopes.space(3).facet_labels()
    assert len(labels) == 0 and offsets.tolist() == [0, 0]


def test_a_box_cut_by_half_spaces() -> None:
    d = 7
    start = clip(cube(d, 1000.0), np.concatenate([np.eye(d), -np.eye(d)]), np.full(2 * d, 1.0))
    assert sorted(start.facet_labels()[0].tolist()) == sorted(-1 - 2 * d - np.arange(2 * d))
    net = random_net([d, 6, 5, 1], 3)
    assert set(patterns(net, start)) == set(patterns(net, cube(d)))
    start = clip(HPolytopes.space(d), np.concatenate([np.eye(d), -np.eye(d)]), np.full(2 * d, 1.0))
    assert set(patterns(net, start)) == set(patterns(net, cube(d)))
    with pytest.raises(InputError, match="interior"):
        clip(cube(d), np.eye(d)[:1], np.array([-2.0]))


def test_many_starting_cells() -> None:
    net = random_net([3, 6, 6, 1], 4)
    corners = [np.array(c, dtype=float) for c in product((-1.0, 0.0), repeat=3)]
    start = HPolytopes.join([HPolytopes.box(c, c + 1.0) for c in corners])
    leaves = list(subdivide(net, start))
    cells = HPolytopes.join([leaf.cells for leaf in leaves])
    root = np.concatenate([leaf.root for leaf in leaves])
    np.testing.assert_allclose(np.bincount(root, cells.volumes()), 1.0, rtol=1e-9)
    assert {tuple(p) for leaf in leaves for p in leaf.pattern.tolist()} == set(patterns(net, cube(3)))


def test_bad_starting_cells_are_named() -> None:
    for make, name in (
        (lambda: HPolytopes.box([0.0, 0.0], [1.0, 0.0]), "lower must be below upper"),
        (lambda: HPolytopes.box([0.0], [1.0, 2.0]), "lower and upper"),
        (lambda: HPolytopes.box([np.nan], [1.0]), "lower must be finite"),
        (lambda: HPolytopes.box([-np.inf], [1.0]), "lower must be finite"),
        (lambda: HPolytopes.space(0), "dimension"),
        (lambda: HPolytopes.join([]), "parts"),
    ):
        with pytest.raises(InputError, match=name):
            make()


def test_relabelled() -> None:
    start = cube(3).relabelled(lambda labels: labels - 10)
    assert start.facet_labels()[0].tolist() == [-11, -13, -15, -12, -14, -16]


# -- single cells ------------------------------------------------------------------------------------------------------


def test_facets_agree_with_cells_that_carry_vertices() -> None:
    net = random_net([4, 8, 6, 1], 5)
    box = np.full(4, -1.0), np.full(4, 1.0)
    expected = {}
    for leaf in subdivide(net, VertexCells.box(*box)):
        labels, offsets = leaf.cells.facet_labels()
        for i, p in enumerate(leaf.pattern.tolist()):
            expected[tuple(p)] = set(labels[offsets[i] : offsets[i + 1]].tolist())
    cells, pattern = joined(net, HPolytopes.box(*box))
    labels, offsets = cells.facet_labels()
    found = {tuple(p): set(labels[offsets[i] : offsets[i + 1]].tolist()) for i, p in enumerate(pattern.tolist())}
    assert found == expected
    assert len(labels) == offsets[-1]
    for i in (0, len(cells) // 2, len(cells) - 1):
        assert cells.facets(i)[2].tolist() == labels[offsets[i] : offsets[i + 1]].tolist()


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("d", [2, 4, 7])
def test_facet_points_lie_inside_their_facets(d: int, open_: bool) -> None:
    rng = np.random.default_rng(d)
    net = one_layer(rng.normal(size=(7, d)), rng.normal(size=7))
    cells, pattern = joined(net, HPolytopes.space(d) if open_ else cube(d))
    labels, offsets = cells.facet_labels()
    middle = cells.facet_points()
    assert middle.shape == (len(labels), d)
    owner = np.repeat(np.arange(len(cells)), np.diff(offsets))
    at = middle @ net.layers[0].weight.T + net.layers[0].bias
    inner = labels >= 0
    assert inner.all() or not open_
    rows = np.flatnonzero(inner)
    assert (np.abs(at[rows, labels[rows]]) < 1e-9 * (1.0 + np.abs(middle[rows]).max(axis=1))).all()
    others = np.arange(7) != labels[:, None]
    assert ((at > 0) == pattern[owner])[others].all()
    if not open_:
        side = -1 - labels[~inner]
        np.testing.assert_allclose(middle[~inner, side // 2], np.where(side % 2, 1.0, -1.0), rtol=1e-12)
        assert (np.abs(middle).max(axis=1)[inner] < 1.0).all()


def test_facets_by_highs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    net = random_net([4, 5, 3, 1], 2)
    cells, _ = joined(net, cube(4))
    cells = cells.part(0, 12)
    labels, offsets = cells.facet_labels()
    kernel = polytope.find_facets

    def doubtful(*args):
        kept, points, doubt = kernel(*args)
        return np.zeros_like(kept), points, np.ones_like(doubt)

    monkeypatch.setattr(polytope, "find_facets", doubtful)
    again = cells.part(0, 12)
    assert again.facet_labels()[0].tolist() == labels.tolist()
    assert again.facet_labels()[1].tolist() == offsets.tolist()
    owner = np.repeat(np.arange(12), np.diff(offsets))
    for i, point in zip(owner, again.facet_points(), strict=True):
        A, b, _ = again.facets(i)
        assert np.sort(b - A @ point)[1] > 1e-9 > abs(np.sort(b - A @ point)[0])


def test_volumes_and_vertices() -> None:
    net = random_net([5, 6, 4, 1], 2)
    cells, pattern = joined(net, cube(5))
    expected = {}
    for leaf in subdivide(net, VertexCells.box(-np.ones(5), np.ones(5))):
        volumes = leaf.cells.volumes()
        for i, p in enumerate(leaf.pattern.tolist()):
            expected[tuple(p)] = (volumes[i], len(leaf.cells.vertices(i)))
    chosen = cells.part(0, 15)
    np.testing.assert_allclose(chosen.volumes(), [expected[tuple(p)][0] for p in pattern[:15].tolist()], rtol=1e-6)
    for i in range(15):
        assert len(cells.vertices(i)) == expected[tuple(pattern[i].tolist())][1]
        assert cells.rays_of(i).shape == (0, 5)


def test_bounds_are_those_of_linprog() -> None:
    net = random_net([6, 6, 4, 1], 3)
    cells, _ = joined(net, cube(6))
    cells = cells.part(0, 8)
    low, high = cells.bounds()
    np.testing.assert_allclose(cells.reach(), np.maximum(np.abs(low), np.abs(high)))
    for i in range(8):
        A, b, _ = cells.rows(i)
        for q in range(6):
            c = np.eye(6)[q]
            assert low[i, q] == pytest.approx(linprog(c, A, b, bounds=(None, None)).fun, abs=1e-8)
            assert high[i, q] == pytest.approx(-linprog(-c, A, b, bounds=(None, None)).fun, abs=1e-8)


def test_orthants_have_one_vertex_and_d_rays() -> None:
    for d in (1, 2, 3, 7):
        net = one_layer(np.eye(d), -np.arange(1.0, d + 1))
        cells, pattern = joined(net, HPolytopes.space(d))
        assert len(cells) == 2**d
        assert np.isinf(cells.inradius()).all() and np.isinf(cells.volumes()[:2]).all()
        for i in range(0, len(cells), max(1, len(cells) // 4)):
            np.testing.assert_allclose(cells.vertices(i), [np.arange(1.0, d + 1)], rtol=1e-12)
            rays = cells.rays_of(i)
            order = np.argsort(np.argmax(np.abs(rays), axis=1))
            np.testing.assert_allclose(rays[order], np.diag(np.where(pattern[i], 1.0, -1.0)), atol=1e-12)


def test_cells_that_contain_lines() -> None:
    net = one_layer([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [-5.0, -7.0])
    cells, pattern = joined(net, HPolytopes.space(3))
    assert len(cells) == 3
    check_cells(net, cells, pattern)
    slab = int(np.flatnonzero(pattern.sum(axis=1) == 1)[0])
    assert cells.inradius()[slab] == pytest.approx(1.0)
    assert cells.interior()[slab, 0] == pytest.approx(6.0)
    assert len(cells.vertices(slab)) == 0
    assert len(cells.facets(slab)[0]) == 2


@pytest.mark.parametrize(("widths", "box"), [((784, 16, 10), None), ((10, 14, 14, 1), (-1, 1))])
def test_children_of_one_cut_fit_into_memory(monkeypatch, widths, box):
    """All 65,536 cells of 784-16-10 came at once, 6.6 GB, whatever the budget was."""
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=(b, a)) / np.sqrt(a), rng.uniform(-1, 1, b) / np.sqrt(a)) for a, b in pairwise(widths)]
    most = []
    split = HPolytopes.split

    def noted(self, *given):
        found = split(self, *given)
        most.append(found.cells.A.size)
        return found

    monkeypatch.setattr(HPolytopes, "split", noted)
    found = regions(Network(layers), box, budget="3000 regions", progress=None)
    assert len(found) == 3000 and len(most) > 1
    assert max(most) < 1 << 24  # 128 MB
