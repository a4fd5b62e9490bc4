"""Images of regions, layer by layer: closed forms, draws, and unions against fractions of a grid."""

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.cells.union import union_of_intervals, union_of_polygons
from reluscope.errors import InputError

BOX = (-1.0, 1.0)


def test_a_square_folded_by_relu():
    # z = relu(x): the square becomes the unit square, its two sides at 0 and a corner; |x| covers [0, 1]^2 four times.
    net = rs.Network([(np.eye(2), None), (np.eye(2), None)])
    image = rs.reachable(net, BOX)[0]
    assert sorted(image.dimension.tolist()) == [0, 1, 1, 2]
    assert sorted(image.measure.tolist()) == pytest.approx([1, 1, 1, 1])
    assert image.volume().value == pytest.approx(1) and image.volume().guarantee == "exact"
    folded = rs.Network([(np.eye(2), None, "abs"), (np.eye(2), None)])
    image = rs.reachable(folded, BOX)[-1]
    assert len(image) == 4 and image.measure.sum() == pytest.approx(4)
    assert image.volume().value == pytest.approx(1)
    assert image.hull_volume() == pytest.approx(1)


def test_a_triangle_that_is_not_convex_and_its_hull():
    # y = (x, |x|) on [-1, 1]: a V of length 2 sqrt 2; flat in the plane, so it has no area, and its hull has area 1.
    net = rs.Network([([[1.0], [-1.0]], None), ([[1.0, -1.0], [1.0, 1.0]], None)])
    image = rs.reachable(net, BOX)[-1]
    assert image.measure.sum() == pytest.approx(2 * np.sqrt(2))
    assert image.volume().upper == 0 and image.hull_volume() == pytest.approx(1)
    assert image.contains([[0.5, 0.5], [-0.25, 0.25], [0.5, 0.4], [0.0, 0.5]]).tolist() == [True, True, False, False]
    vertices, A, b = image.hull()
    assert {tuple(v) for v in vertices.round(9)} == {(-1, 1), (0, 0), (1, 1)}
    assert (vertices @ A.T <= b + 1e-12).all()
    assert image.largest([1.0, 1.0]) == pytest.approx(2)


@pytest.mark.parametrize("widths", [(1, 5, 3, 2), (2, 6, 2, 2), (2, 5, 4, 3), (3, 4, 3, 1), (4, 4, 2)])
def test_images_hold_what_the_layers_do(widths):
    net = random_net(widths, 3, bias=0.5)
    found = rs.reachable(net, BOX)
    X = np.random.default_rng(0).uniform(-1, 1, (2000, widths[0]))
    where = found.regions.find(X)
    outputs = [layer.units(h) for layer, h in zip(net.hidden, net.preactivations(X), strict=False)] + [net(X)]
    assert len(found) == len(outputs)
    for k, Z in enumerate(outputs):
        image = found[k]
        assert len(image) == len(found.regions)
        assert (image.lower - 1e-12 <= Z).all() and (image.upper + 1e-12 >= Z).all()
        assert image.contains(Z[:200]).all()
        assert not image.contains(image.upper[None] + 1e-3).any()
        for i in range(0, len(image), max(1, len(image) // 7)):
            A, b = image.half_spaces(i)
            assert (Z[where == i] @ A.T <= b + 1e-9).all()
            # Its own affine map: the rank is the dimension, and the Gram determinant the stretch.
            J = _jacobian(net, found.regions, i, k)
            assert np.linalg.matrix_rank(J, 1e-8 * max(1e-9, np.abs(J).max())) == image.dimension[i]
            if image.dimension[i] == widths[0]:
                stretch = np.sqrt(np.linalg.det(J.T @ J))
                assert image.measure[i] == pytest.approx(stretch * found.regions.volume[i], rel=1e-6)
        assert image.largest(np.ones(image.units)) >= Z.sum(axis=1).max() - 1e-12


def _jacobian(net, regions, i, layer):
    x, h = regions.interior[i], 1e-6 * regions.inradius[i]
    values = []
    for step in np.concatenate([h * np.eye(len(x)), -h * np.eye(len(x))]):
        point = (x + step)[None]
        if layer == len(net.hidden):
            values.append(net(point)[0])
        else:
            values.append(net.layers[layer].units(net.preactivations(point)[layer])[0])
    half = len(values) // 2
    return (np.array(values[:half]) - np.array(values[half:])).T / (2 * h)


def test_area_of_the_image_against_a_grid():
    net = random_net((2, 7, 2), 5, bias=0.5)
    image = rs.reachable(net, BOX)[-1]
    value = image.volume()
    assert value.guarantee == "exact" and value.value < 0.95 * image.measure[image.dimension == 2].sum()
    low, high, k = image.lower, image.upper, 300
    grid = np.stack(np.meshgrid(*(low[i] + (np.arange(k) + 0.5) / k * (high - low)[i] for i in (0, 1))), -1)
    share = image.contains(grid.reshape(-1, 2)).mean()
    # Cells on the boundary, some 4 k of k^2, are counted wrong half of the time.
    assert value.value == pytest.approx(share * np.prod(high - low), rel=0.02)
    assert value.value <= image.hull_volume()


def test_volume_in_three_units_is_a_bracket():
    net = random_net((3, 5, 3), 1, bias=0.5)
    image = rs.reachable(net, BOX)[-1]
    value = image.volume()
    assert value.guarantee == "sound" and 0 < value.lower < value.upper <= image.measure.sum() * (1 + 1e-6)
    Z = np.random.default_rng(0).uniform(image.lower, image.upper, (60_000, 3))
    drawn = image.contains(Z).mean() * np.prod(image.upper - image.lower)
    # Drawn to 2 %: a union that is nearly the sum of its parts.
    assert 0.95 * value.lower < drawn < 1.05 * value.upper


@pytest.mark.parametrize("seed", range(6))
def test_union_of_polygons_in_whole_numbers(seed):
    # Squares with whole-number corners share edges, cover each other and coincide: count unit squares instead.
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 8, (12, 2))
    sizes = rng.integers(1, 5, (12, 2))
    corners, sizes = np.concatenate([corners, corners[:3]]), np.concatenate([sizes, sizes[:3]])
    covered = np.zeros((12, 12), bool)
    polygons = []
    for (x, y), (w, h) in zip(corners, sizes, strict=True):
        covered[x : x + w, y : y + h] = True
        polygons.append(np.array([(x, y), (x + w, y), (x + w, y + h), (x, y + h)], float))
    assert union_of_polygons(polygons) == pytest.approx(covered.sum(), abs=1e-9)
    turn = np.array([[np.cos(seed), -np.sin(seed)], [np.sin(seed), np.cos(seed)]])
    assert union_of_polygons([p @ turn.T for p in polygons]) == pytest.approx(covered.sum(), abs=1e-6)


def test_union_of_intervals():
    assert union_of_intervals(np.array([0.0, 0.5, 3.0, 3.2]), np.array([1.0, 2.0, 4.0, 3.4])) == 3.0
    assert union_of_polygons([]) == 0.0


def test_pictures_budgets_and_refusals():
    net = random_net((2, 6, 3, 1), 0, bias=0.5)
    found = rs.reachable(net, BOX)
    drawn = found[1].plot(units=(0, 2))
    assert len(drawn.collections[0].get_paths()) + len(drawn.collections[1].get_paths()) > 0
    assert drawn.get_title() == f"hidden layer 1: images of {len(found.regions)} regions"
    assert found[-1].plot().get_xlabel() == "y[0]"
    assert found.to_dict()["units"] == [6, 3, 1]
    assert "R^3" in repr(found[1]) and "the output" in repr(found[-1])
    part = rs.reachable(net, BOX, budget="3 regions")[-1]
    assert part.volume().upper == np.inf and part.volume().status == "budget ended"
    for call, words in [
        (lambda: rs.reachable(net, None), "box is needed"),
        (lambda: rs.reachable(random_net((7, 3, 1)), BOX), "up to 6 inputs"),
        (lambda: found[5], "layer must be"),
        (lambda: found[0].contains([[0.0]]), "6 columns"),
        (lambda: found[0].largest([1.0]), "6 entries"),
    ]:
        with pytest.raises(InputError, match=words):
            call()
