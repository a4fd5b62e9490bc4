"""What acts only far out in the box is found, or said to be missing: points far out, units in corners."""

from __future__ import annotations

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from recovery_problems import BOX, error_everywhere, extreme_points, reached
from reluscope.recovery import exact
from reluscope.recovery.corner import corner_units
from reluscope.recovery.far import far_points, rare_points
from reluscope.recovery.refine import Model
from reluscope.recovery.trunk import Stage, Trunk


def cornered(seed, share):
    """A 24-8-6-1 network whose last hidden layer has a unit that is on only where its row is above `share` of the most
    it reaches in the box."""
    layers = [(layer.weight.copy(), layer.bias.copy()) for layer in random_net((24, 8, 6, 1), seed, bias=0.5).layers]
    layers[1][1][0] = 0.0
    net = rs.Network(layers)
    layers[1][1][0] = -share * reached(net, 1, extreme_points(net, seed))[:, 0].max()
    layers[2][0][:, 0] = 1.0
    return rs.Network(layers)


def as_model(net):
    """A ReLU network on the box [-1, 1]^n as a model of its own."""
    stages = [Stage(layer.dense(), layer.bias, np.ones(len(layer.bias), dtype=bool)) for layer in net.hidden]
    last = net.layers[-1]
    return Model(Trunk(net.n_inputs, tuple(stages)), np.column_stack([last.dense(), last.bias]))


@pytest.mark.parametrize(("seed", "share"), [(0, 0.94), (2, 0.88), (5, 0.94)])
def test_a_unit_that_acts_in_a_corner_no_sample_meets(seed, share):
    net = cornered(seed, share)
    X = np.random.default_rng(0).uniform(*BOX, (100_000, 24))
    assert not (reached(net, 1, X)[:, 0] > 0).any()  # uniform points know nothing of it
    found = rs.recover(rs.Oracle(net), BOX, rng=seed, check=0)
    assert found and found.layers == (8, 6)
    assert max(error_everywhere(net, found, seed, 20_000)) < 1e-12
    assert found.total_queries < 60_000


def test_what_cannot_be_repaired_is_incomplete_and_says_where(monkeypatch):
    monkeypatch.setattr(exact, "corner_units", lambda *_: iter(()))
    monkeypatch.setattr(exact, "_at_edges", lambda pool, *_: exact.random_chords(pool.view, 2, pool.rng))
    net = cornered(0, 0.94)
    found = rs.recover(rs.Oracle(net), BOX, rng=0, most_chords=60)
    assert not found and found.layers == (8, 5)
    assert found.sampled.largest < 1e-6  # the fresh points would not have told
    assert "most is missed" in found.statement[1] and "at x = [" in found.statement[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [8, 19, 20])
def test_rare_units_of_a_deep_network(seed):
    net = random_net((40, 20, 10, 10, 1), seed, bias=0.5)
    found = rs.recover(rs.Oracle(net, limit=500_000), BOX, rng=seed, check=0)
    assert found and found.total_queries < 131_000
    assert max(error_everywhere(net, found, seed)) < 1e-10


def test_points_far_out_are_further_out_than_any_sample():
    net = random_net((20, 8, 6, 4, 1), 0, bias=0.5)
    model, rng = as_model(net), np.random.default_rng(1)
    U = rng.uniform(-1, 1, (20_000, 20))
    U[::2] = np.sign(U[::2])
    x = far_points(model, U, 1500, rng)
    assert np.abs(x).max() <= 1.0 and 500 < len(x) < 2500
    for k in range(3):
        far, near = (np.maximum(reached(net, k, points), 0) for points in (x, U))
        way = np.random.default_rng(2).normal(size=(near.shape[1], 200))
        # Most directions, which it did not know, and each unit up and down.
        assert ((far @ way).max(axis=0) > (near @ way).max(axis=0)).mean() > 0.9
        far, near = reached(net, k, x), reached(net, k, U)
        assert (far.max(axis=0) > near.max(axis=0)).all() and (far.min(axis=0) < near.min(axis=0)).all()
    assert net(x).max() > net(U).max() and net(x).min() < net(U).min()


def test_rare_sides_are_entered_and_walked_in():
    net = cornered(0, 0.88)
    layers = [(2 * net.layers[0].weight, net.layers[0].bias), *((la.weight, la.bias) for la in net.layers[1:])]
    net = rs.Network(layers)  # on [-1, 1]
    rng = np.random.default_rng(0)
    U = rng.uniform(-1, 1, (20_000, 24))
    x = rare_points(as_model(net), U, 400, rng)
    h = reached(net, 1, x)[:, 0]
    on = h > 0
    assert on.sum() > 100 and np.abs(x).max() <= 1.0
    assert len(np.unique(x[on], axis=0)) > 0.9 * on.sum()
    assert np.median(h[on]) < 0.25 * h.max()  # not only ends of climbs: most of the sliver is near its surface
    assert (np.abs(x[on]) < 1).mean() > 0.35
    every = as_model(random_net((24, 8, 1), 0, bias=0.0))
    assert len(rare_points(every, U, 400, rng)) == 0  # no side is rare


def test_a_unit_from_values_in_its_corner():
    rng = np.random.default_rng(0)
    U = rng.uniform(-1, 1, (4000, 4))
    row = np.array([0.5, -0.3, 0.7, 0.4, -1.1])
    h = U @ row[:-1] + row[-1]
    found = next(corner_units(Trunk(4), U, -3.0 * np.maximum(h, 0), 1e-9, rng))
    assert np.abs(found - row / np.linalg.norm(row)).max() < 1e-9
    # Nothing affine: no row.
    assert not list(corner_units(Trunk(4), U, np.maximum(h, 0) ** 2, 1e-9, rng))


def test_two_corners_show_different_weights_of_one_unit():
    rng = np.random.default_rng(0)
    U = rng.uniform(0, 1, (6000, 5))
    U[::3, :2], U[1::3, 1:3], U[2::3, [0, 2]] = 0.0, 0.0, 0.0  # a feature acts in one part only, or in two
    row = np.array([0.9, -2.0, 0.9, 0.3, -0.2, -0.9])
    other = np.array([-2.0, 0.9, -2.0, 0.35, -0.2, -0.9])  # another unit, in the third part
    h, g = (np.maximum(U @ r[:-1] + r[-1], 0) for r in (row, other))
    assert (h[::3] > 0).sum() > 50 and (h[1::3] > 0).sum() > 50 and not (h[2::3] > 0).any()
    assert (g[2::3] > 0).sum() > 50 and not (g[::3] > 0).any() and not (g[1::3] > 0).any()
    found = np.array(list(corner_units(Trunk(5), U, 2.0 * h + g, 1e-9, rng)))
    # Its weight on feature 1 never shows; the others all do, in one corner or the other.
    shown = np.delete(np.arange(6), 1)
    parts = found[:, shown] / np.linalg.norm(found[:, shown], axis=1, keepdims=True)
    assert np.abs(parts - row[shown] / np.linalg.norm(row[shown])).max(axis=1).min() < 1e-9


def test_two_units_in_two_corners_are_kept_apart():
    rng = np.random.default_rng(1)
    U = rng.uniform(-1, 1, (6000, 3))
    rows = np.array([[0.6, 0.7, 0.5, -1.2], [-0.7, -0.6, 0.4, -1.1]])
    h = np.maximum(U @ rows[:, :-1].T + rows[:, -1], 0)
    assert ((h > 0).sum(axis=0) > 30).all() and not (h > 0).all(axis=1).any()
    found = list(corner_units(Trunk(3), U, h @ [1.0, 2.0], 1e-9, rng))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    gaps = np.abs(np.array(found)[:, None] - rows).max(axis=2)
    assert len(found) >= 2 and gaps.min(axis=0).max() < 1e-9
