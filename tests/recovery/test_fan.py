"""Networks without biases in the plane: the fan of rays, and the network that stands for it."""

from __future__ import annotations

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.activations import leaky_relu
from reluscope.recovery import fan
from reluscope.recovery.fan import Rays, fan_trunk
from reluscope.recovery.last_layer import fit_outputs

BOX = (-2.0, 2.0)


def bends(net):
    """Angles of the rays, found from the Jacobian on a fine circle: independent of values and of queries."""
    angle = np.linspace(-np.pi, np.pi, 40_001)
    J = net.jacobian(np.column_stack([np.cos(angle), np.sin(angle)])).reshape(len(angle), -1)
    at = np.flatnonzero(np.abs(np.diff(J, axis=0)).max(axis=1) > 1e-9)
    low, high, left = angle[at], angle[at + 1], J[at]
    for _ in range(40):
        middle = 0.5 * (low + high)
        J = net.jacobian(np.column_stack([np.cos(middle), np.sin(middle)])).reshape(len(middle), -1)
        same = np.abs(J - left).max(axis=1) < 1e-9
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return low


def hard_points(net, box=BOX, count=50_000, seed=0):
    """Uniform points, sides, corners and points close to them, and points beside every ray."""
    rng = np.random.default_rng([seed, 7])
    lower, upper = (np.broadcast_to(np.asarray(side, dtype=float), (2,)) for side in box)
    X = rng.uniform(lower, upper, (count, 2))
    sides = rng.uniform(lower, upper, (count, 2))
    which = rng.integers(2, size=count)
    sides[np.arange(count), which] = np.where(rng.random(count) < 0.5, lower[which], upper[which])
    corners = np.where(rng.random((count, 2)) < 0.5, lower, upper) * (1 - 10.0 ** -rng.uniform(1, 17, (count, 1)))
    angle = rng.choice(bends(net), count) + rng.choice([-1, 1], count) * 10.0 ** -rng.uniform(1, 15, count)
    d = np.column_stack([np.cos(angle), np.sin(angle)])
    reach = np.where(d > 0, upper / d, lower / d).min(axis=1) * rng.uniform(0, 1, count) ** 0.3
    return np.clip(np.concatenate([X, sides, corners, reach[:, None] * d]), lower, upper)


# -- the network that has a given fan --------------------------------------------------------------------------------


@pytest.mark.parametrize("apex", [(0.0, 0.0), (0.3, -0.8)])
def test_every_fan_is_a_network(apex):
    """Against interpolation between neighbouring rays; two of them a millionth apart, two opposite ones on one line."""
    rng, apex = np.random.default_rng(0), np.array(apex)
    angle = np.sort(np.concatenate([rng.uniform(-np.pi, np.pi, 9), [0.7, 0.7 + 1e-6, 0.7 - np.pi]]))
    r = np.column_stack([np.cos(angle), np.sin(angle)])
    lines = np.arange(len(r))
    twin = int(np.argmin(np.abs(angle - 0.7)))
    lines[int(np.argmin(np.abs(angle - 0.7 + np.pi)))] = twin
    used, lines = np.unique(lines, return_inverse=True)
    normal = np.column_stack([-r[used, 1], r[used, 0]]) * rng.choice([-1.0, 1.0], (len(used), 1))
    trunk = fan_trunk(r, lines, normal, apex)
    assert [stage.n_units for stage in trunk.stages] == [4 + len(r) - 1, 4 + len(r)]
    assert max(np.abs(stage.weight).max() for stage in trunk.stages) <= 1.0

    ends = np.concatenate([r, [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]])
    ends = ends[np.argsort(np.arctan2(ends[:, 1], ends[:, 0]))]
    value = rng.normal(size=len(ends))
    where = np.arctan2(ends[:, 1], ends[:, 0])

    def interpolated(U):
        V = U - apex
        first = (np.searchsorted(where, np.arctan2(V[:, 1], V[:, 0]), side="right") - 1) % len(ends)
        second = (first + 1) % len(ends)
        share = np.linalg.solve(np.stack([ends[first], ends[second]], axis=2), V[:, :, None])[:, :, 0]
        return 0.5 + (share * np.column_stack([value[first], value[second]])).sum(axis=1)

    turn = rng.uniform(-np.pi, np.pi, 4000)
    turn[::4] = rng.choice(angle, 1000) + rng.choice([-1, 1], 1000) * 10.0 ** -rng.uniform(1, 7, 1000)
    U = apex + rng.uniform(0, 1, (4000, 1)) * np.column_stack([np.cos(turn), np.sin(turn)])
    fit = fit_outputs(trunk, U, interpolated(U)[:, None], 1e-7)
    assert fit.residual.max() < 1e-8  # rounding over the angle of the narrow cone


# -- what comes back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("widths", "seed", "slope", "box"),
    [
        *[((2, 6, 4, 1), seed, 0.0, BOX) for seed in (0, 5, 8)],
        *[((2, 5, 5, 5, 1), seed, 0.0, BOX) for seed in (0, 6)],
        ((2, 6, 4, 1), 1, 0.1, BOX),
        ((2, 6, 4, 2), 2, 0.0, BOX),
        ((2, 6, 4, 1), 1, 0.0, ([-1.0, -3.0], [2.0, 0.5])),  # 0 in most of the box: rounding is seen nowhere at first
        ((2, 20, 20, 1), 3, 0.0, BOX),
    ],
)
def test_deep_networks_without_biases_come_back_as_functions(widths, seed, slope, box):
    net = random_net(widths, seed, leaky_relu(slope) if slope else "relu", bias=0.0)
    oracle = rs.Oracle(net, limit=150_000)
    found = rs.recover(oracle, box, rng=seed, check=2000)
    assert found, found.statement
    assert found.rays == len(bends(net)) == found.to_dict()["rays"]
    assert f"a fan of {found.rays} rays" in found.statement[0] and f"a fan of {found.rays} rays" in repr(found)
    assert "not those of the network" in found.statement[1]
    assert found.queries["homogeneity"] == 25 + 192
    X = hard_points(net, box, seed=seed)
    assert np.abs(found(X) - net(X)).max() < 1e-12 * max(1.0, np.abs(net(X)).max())
    assert ", relu, " in repr(found.network)  # leaky or not, the form has ReLUs only


@pytest.mark.parametrize("seed", [0, 8])
def test_one_layer_without_biases_comes_back_with_its_units(seed):
    """Of seed 8 two lines lie 0.00016 apart: chords took them for one, the fan does not."""
    net = random_net((2, 8, 1), seed, bias=0.0)
    found = rs.recover(rs.Oracle(net, limit=100_000), BOX, rng=seed, check=2000)
    assert found and found.rays is None and found.layers == (8,)
    assert found.compare(net, certify=False).parameter_error < 1e-8


def test_an_output_bias_is_kept():
    net = random_net((2, 6, 4, 1), 3, bias=0.0)
    layers = [(layer.dense(), layer.bias) for layer in net.layers]
    shifted = rs.Network([*layers[:-1], (layers[-1][0], np.array([3.7]))])
    found = rs.recover(rs.Oracle(shifted), BOX, rng=0, check=2000)
    assert found and found.rays == len(bends(net))
    X = hard_points(net)
    assert np.abs(found(X) - shifted(X)).max() < 1e-12


def test_rays_through_corners_and_along_axes():
    net = rs.Network(
        [([[1, -1], [1, 1], [0, 1], [1, 0]], [0] * 4), ([[1, -1, 2, 0], [0, 1, 1, -2]], [0, 0]), ([[1, -1]], [0])]
    )
    found = rs.recover(rs.Oracle(net), ([-1.0, -1.0], [1.0, 1.0]), rng=0, check=2000)
    assert found, found.statement
    X = hard_points(net, ([-1.0, -1.0], [1.0, 1.0]))
    assert np.abs(found(X) - net(X)).max() < 1e-12


def test_rays_that_no_chord_showed_are_found_from_the_samples(monkeypatch):
    net, searched = random_net((2, 6, 4, 1), 0, bias=0.0), fan._searched

    def half_of_them(*arguments):
        found = searched(*arguments)
        return found.take(np.arange(len(found)) % 3 == 0)

    monkeypatch.setattr(fan, "_searched", half_of_them)
    found = rs.recover(rs.Oracle(net, limit=100_000), BOX, rng=0, check=2000)
    assert found and found.rays == len(bends(net))
    X = hard_points(net)
    assert np.abs(found(X) - net(X)).max() < 1e-12


def test_a_cone_that_no_sample_met_is_found_beside_the_rays():
    """Two rays so close that no chord, sample or cone lies between them; with two outputs they are no one ray."""
    net, box = random_net((2, 8, 8, 8, 2), 137, bias=0.0), ([-0.1, -2.0], [3.0, 0.7])
    found = rs.recover(rs.Oracle(net, limit=60_000), box, rng=137, check=2000)
    assert found and found.rays == 54
    X = hard_points(net, box)
    assert np.abs(found(X) - net(X)).max() < 1e-11


def test_one_seed_one_answer():
    net = random_net((2, 6, 4, 1), 2, bias=0.0)
    first, second = (rs.recover(rs.Oracle(net), BOX, rng=4, check=0) for _ in range(2))
    for one, two in zip(first.network.layers, second.network.layers, strict=True):
        assert np.array_equal(one.dense(), two.dense()) and np.array_equal(one.bias, two.bias)


# -- other oracles ---------------------------------------------------------------------------------------------------


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", [3, 9])
def test_single_precision(seed):
    """Of seed 9 two pairs of rays lie 0.00026 apart."""
    net = random_net((2, 6, 4, 1), seed, bias=0.0)
    found = rs.recover(rs.Oracle(net, dtype="float32"), BOX, rng=seed, check=2000)
    X = hard_points(net)
    assert found and found.rays == len(bends(net))
    assert np.abs(found(X) - net(X)).max() < 1e-5


@pytest.mark.parametrize(("size", "times"), [(1e-8, 5), (1e-6, 5), (1e-4, 100)])
def test_noise(size, times):
    net, noise = random_net((2, 6, 4, 1), 1, bias=0.0), np.random.default_rng(3)
    oracle = rs.Oracle(lambda X: net(X) + size * noise.normal(size=(len(X), 1)), 2)
    found = rs.recover(oracle, BOX, rng=1, check=2000)
    X = hard_points(net)
    assert found and found.rays is not None
    assert np.abs(found(X) - net(X)).max() < times * size


@pytest.mark.parametrize(
    ("widths", "link", "last"), [((2, 6, 4, 1), "sigmoid", sigmoid), ((2, 6, 4, 3), "softmax", softmax)]
)
def test_declared_links(widths, link, last):
    net = random_net(widths, 0, bias=0.0)
    found = rs.recover(rs.Oracle(lambda X: last(net(X)), 2, link=link), BOX, rng=0, check=2000)
    X = hard_points(net)
    scores = net(X) if link == "sigmoid" else net(X) - net(X).mean(axis=1, keepdims=True)
    assert found and found.rays == len(bends(net))
    assert np.abs(found(X) - scores).max() < 1e-11


@pytest.mark.parametrize("limit", [2600, 4000, 20_000, 40_000])
def test_a_limit_on_queries_leaves_it_incomplete(limit):
    net = random_net((2, 6, 4, 1), 0, bias=0.0)
    oracle = rs.Oracle(net, limit=limit)
    found = rs.recover(oracle, BOX, rng=0, check=0)
    assert not found and oracle.queries <= limit
    assert f"the oracle allows {limit:,} queries" in found.statement[0]
    if limit >= 20_000:  # all is known but not checked
        assert found.rays == len(bends(net)) and "incomplete, a fan of" in repr(found)
        X = hard_points(net)
        assert np.abs(found(X) - net(X)).max() < 1e-10


# -- what is no fan --------------------------------------------------------------------------------------------------


def test_networks_with_biases_go_the_usual_way():
    net = random_net((2, 8, 4, 1), 1, bias=0.5)
    found = rs.recover(rs.Oracle(net, limit=6000), BOX, rng=0, check=0)
    assert found.rays is None and found.queries["homogeneity"] == 25


def test_small_biases_are_seen():
    """A fan would be wrong by 1e-6 only, and near 0 most of all."""
    net = random_net((2, 6, 4, 1), 0, bias=1e-6)
    found = rs.recover(rs.Oracle(net, limit=6000), BOX, rng=0, check=0)
    assert found.rays is None and not found


def test_more_inputs_are_not_asked():
    found = rs.recover(rs.Oracle(random_net((3, 4, 1), 0, bias=0.0)), BOX, rng=0, check=0)
    assert found and "homogeneity" not in found.queries


def test_a_bump_between_the_rays_is_no_fan():
    """Small enough to be missed by the first pairs of points, and by the curve around 0; not by the samples inside."""
    net = random_net((2, 6, 4, 1), 0, bias=0.0)

    def bumped(X):
        return net(X)[:, 0] + np.maximum(0.0, 0.05 - np.abs(X - [0.6, 0.5]).sum(axis=1))

    found = rs.recover(rs.Oracle(bumped, 2, limit=46_000), ([-2.0, -2.0], [2.0, 2.0]), rng=0, check=0)
    assert not found
    assert found.queries["homogeneity"] == 25 + 192  # it was taken for a fan at first


@pytest.mark.parametrize("box", [([0.0, 0.0], [2.0, 2.0]), ([1.0, -1.0], [2.0, 1.0]), ([0.0, -1.0], [2.0, 1.0])])
def test_if_0_is_not_inside_the_box_one_layer_is_enough(box):
    net = random_net((2, 6, 4, 1), 0, bias=0.0)
    found = rs.recover(rs.Oracle(net, limit=100_000), box, rng=0, check=2000)
    assert found and found.rays is None and len(found.layers) == 1 and "homogeneity" not in found.queries
    X = np.random.default_rng(0).uniform(*box, (100_000, 2))
    assert np.abs(found(X) - net(X)).max() < 1e-10


def test_if_0_is_outside_no_query_is():
    """With rounding the fan is asked for first: its apex must not be looked at."""
    net, asked = random_net((2, 6, 4, 1), 0, bias=0.0), []

    def recorded(X):
        asked.append(np.array(X))
        return net(X)

    oracle = rs.Oracle(recorded, 2, dtype="float32", limit=6000)
    asked.clear()
    found = rs.recover(oracle, ([1.0, -1.0], [2.0, 1.0]), rng=0, check=0)
    X = np.concatenate(asked)
    assert len(X) == oracle.queries > 2500
    assert (X >= [1.0, -1.0]).all() and (X <= [2.0, 1.0]).all()
    assert found.rays is None and "homogeneity" not in found.queries


@pytest.mark.slow
@pytest.mark.parametrize("widths", [(2, 6, 4, 1), (2, 8, 1), (2, 5, 5, 5, 1)])
@pytest.mark.parametrize("seed", range(10))
def test_ten_seeds(widths, seed):
    net = random_net(widths, seed, bias=0.0)
    found = rs.recover(rs.Oracle(net, limit=150_000), BOX, rng=seed)
    X = hard_points(net, seed=seed)
    assert found and len(X) == 200_000
    assert np.abs(found(X) - net(X)).max() < 1e-12


def test_rays_know_their_cones():
    angle = np.array([-2.0, 0.5, 3.0])
    rays = Rays(np.column_stack([np.cos(angle), np.sin(angle)]), np.ones(3), np.zeros(3))
    assert np.allclose(rays.width, [2.5, 2.5, 2 * np.pi - 5.0])
    turn = np.array([-3.1, -1.75, 0.0, 0.6, 3.1])
    cone, place = rays.cone(np.column_stack([np.cos(turn), np.sin(turn)]))
    assert cone.tolist() == [2, 0, 0, 1, 2]
    assert np.allclose(place, [(2 * np.pi - 6.1) / (2 * np.pi - 5), 0.1, 0.8, 0.04, 0.1 / (2 * np.pi - 5)])
