"""Dimensions of images: by hand, by sampling, and the relations between them."""

import numpy as np
import pytest

import reluscope as rs
from nets import integer_net, random_net
from reluscope.errors import InputError
from reluscope.representation.jacobians import local_dimensions


def test_by_hand():
    # relu(x, -x): the image is two half-axes: cells of dimension 1, hull of dimension 2, and so for the rays.
    net = rs.Network([([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])
    found = rs.representation.dimensions(net)
    assert (found.convex_hull, found.unbounded_convex_hull, found.max_region) == (2, 2, 1)
    # hardtanh is bounded: a box has no rays; relu(-1 - |.|) is a point.
    assert rs.representation.dimensions(random_net((2, 3, 1), 0, "hardtanh")).unbounded_convex_hull == 0
    dead = rs.Network([(np.eye(2), None), (-np.ones((3, 2)), -np.ones(3)), (np.ones((1, 3)), None)])
    found = rs.representation.dimensions(dead)
    assert (found.convex_hull, found.unbounded_convex_hull, found.max_region) == (0, 0, 0)
    assert found.bound_holds
    assert found.to_dict()["regions_by_dimension"] == [len(found.region), 0, 0]


@pytest.mark.parametrize("seed", range(8))
def test_relations_and_samples(seed):
    make = integer_net if seed % 2 else random_net
    net = make((2 + seed % 2, 4, 3, 4, 1), seed)
    for layer in (0, 1, 2):
        found = rs.representation.dimensions(net, layer)
        assert found.bound_holds
        assert found.max_region == found.region.max() <= min(net.n_inputs, found.convex_hull)
        assert found.unbounded_convex_hull <= found.convex_hull <= net.widths[layer + 1]
        # a large sample of the image spans the same affine space
        X = np.random.default_rng(seed).normal(size=(20_000, net.n_inputs)) * np.random.default_rng(1).choice(
            [0.1, 1, 10, 100], (20_000, 1)
        )
        part = rs.Network([(p.weight, p.bias, p.units) for p in net.layers[: layer + 1]])
        Y = part(X)
        s = np.linalg.svd(Y - Y.mean(axis=0), compute_uv=False)
        assert (s > 1e-10 * max(s[0], 1e-300)).sum() == found.convex_hull
        free = rs.representation.rays(net, layer)
        assert free.dimension == found.unbounded_convex_hull


def test_a_box_may_hold_fewer_dimensions():
    net = rs.Network([(np.eye(2), [-10.0, 0.0]), ([[1.0, 1.0]], [0.0])])
    assert rs.representation.dimensions(net).convex_hull == 2
    near = rs.representation.dimensions(net, box=(-1, 1))
    assert (near.convex_hull, near.max_region, near.unbounded_convex_hull) == (1, 1, 2)
    assert "[-1, 1]^2" in repr(near)


@pytest.mark.parametrize("seed", range(5))
def test_rank_at_a_point_is_the_dimension_of_its_cell(seed):
    net = random_net((3, 4, 3, 2, 1), seed, bias=0.5)
    X = np.random.default_rng(seed).normal(size=(40, 3))
    local = local_dimensions(net, X)
    assert local.bound_holds.all()
    for k in (1, 2, 3):
        part = rs.Network([(p.weight, p.bias, p.units) for p in net.layers[:k]])
        plain = [np.linalg.matrix_rank(J) if J.any() else 0 for J in part.jacobian(X)]
        assert local.rank[k - 1].tolist() == plain
        found = rs.representation.dimensions(net, k - 1)
        assert local.rank[k - 1].max() <= found.max_region


def test_bad_input():
    net = random_net((2, 3, 1))
    for call in (
        lambda: rs.representation.dimensions(net, 1),
        lambda: rs.representation.dimensions(net, budget="1 regions"),
        lambda: rs.representation.dimensions(None),
        lambda: rs.representation.dimensions(net, box=(1, 0)),
    ):
        with pytest.raises(InputError):
            call()
