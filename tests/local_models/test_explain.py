"""Explanations: sums, scales, boundaries, neighbours."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import reluscope as rs
from nets import random_net


@settings(max_examples=25)
@given(st.integers(0, 300))
def test_contributions_boundary_and_neighbours_agree_with_the_enumeration(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    net = random_net((d, 5, 4, int(rng.integers(1, 3))), seed, ("relu", "hardtanh")[seed % 2])
    X = rng.normal(size=(30, d))
    u = rs.unwrap(net, X)
    every = rs.regions(net)
    e = u.explain(0)
    assert np.allclose(e.contribution.sum(axis=1) + e.d, net(X[0]))
    assert np.allclose(e.centred.sum(axis=1) + e.baseline, net(X[0]))
    assert e.region == u.region[0] and e.count == u.count[u.region[0]] and e.error < 1e-12
    home = int(every.find(X[:1])[0])
    A, b = every.half_spaces(home)
    facets = every.facets(home)
    slack = b - A @ X[0]
    assert e.distance == pytest.approx(slack.min(), abs=1e-9)
    found = e.neighbours()
    assert {(n.layer, n.unit, n.step) for n in found} == {(f["layer"], f["unit"], f["break"]) for f in facets}
    theirs = {i for i in every.neighbours(home).tolist() if i >= 0}
    assert set(every._lookup(np.array([n.pattern for n in found])).tolist()) == theirs
    for n in found:
        # Continuity: the coefficients change along the facet's normal only.
        assert np.allclose(n.jump, np.outer(n.jump @ n.normal, n.normal), atol=1e-9)
        there = every.find(every.interior)[[int(every._lookup(n.pattern[None])[0])]]
        assert np.allclose(every.C[there[0]] - e.C, n.jump)


def test_margins_are_those_of_the_explanations():
    net = random_net((4, 10, 8, 2), 3)
    X = np.random.default_rng(0).normal(size=(40, 4))
    u = rs.unwrap(net, X)
    m = u.margins()
    for i in range(40):
        e = u.explain(i)
        assert m.distance[i] == pytest.approx(e.distance, rel=1e-9)
        assert (m.layer[i], m.unit[i], m.step[i]) == (e.nearest.layer, e.nearest.unit, e.nearest.step)
    # A step of 99.9 % of the distance never leaves the region, whatever the direction.
    step = np.random.default_rng(1).normal(size=X.shape)
    step *= 0.999 * m.distance[:, None] / np.linalg.norm(step, axis=1, keepdims=True)
    assert np.array_equal(net.pattern(X + step), net.pattern(X))


def test_closed_form():
    """max(x - 1, 0) + 2 max(-x - 3, 0) at x = 4: slope 1, boundary at 3, across it slope 0."""
    net = rs.Network([([[1.0], [-1.0]], [-1.0, -3.0]), ([[1.0, 2.0]], [0.0])])
    u = rs.unwrap(net, [[4.0], [0.0], [-5.0]])
    e = u.explain(0)
    assert e.C.tolist() == [[1.0]] and e.d.tolist() == [-1.0] and e.distance == pytest.approx(3.0)
    near = e.nearest
    assert (near.layer, near.unit, near.region, near.count) == (0, 0, int(u.region[1]), 1)
    assert near.jump.tolist() == [[-1.0]] and near.jump_size == 1.0
    outside = u.explain([0.5])
    assert outside.has_data and outside.C.tolist() == [[0.0]]
    assert [n.distance for n in outside.neighbours()] == pytest.approx([0.5, 3.5])


def test_facets_of_units_that_coincide():
    """Two units with one hyperplane, and one that feeds on the first: crossing flips all three."""
    net = rs.Network([([[1.0, 0.0], [2.0, 0.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]), ([[1.0]], [0.0])])
    u = rs.unwrap(net, [[-1.0, 0.0], [1.0, 0.0]])
    found = u.explain(0).neighbours()
    assert len(found) == 1
    assert found[0].pattern.tolist() == [1, 1, 1] and found[0].region == u.region[1]
    assert found[0].jump.tolist() == [[3.0, 0.0]]


@pytest.mark.parametrize("kind", [StandardScaler, MinMaxScaler, "pair"])
def test_original_units(kind):
    rng = np.random.default_rng(0)
    original = rng.normal(size=(50, 3)) * [1, 10, 100] + [5, 0, -7]
    if kind == "pair":
        scaler = (original.mean(axis=0), original.std(axis=0))
        X = (original - scaler[0]) / scaler[1]
    else:
        scaler = kind().fit(original)
        X = scaler.transform(original)
    net = random_net((3, 6, 1), 0)
    e = rs.unwrap(net, X, scaler=scaler).explain(7)
    value, coefficient, intercept = e.original
    assert np.allclose(value, original[7])
    assert np.allclose(coefficient @ value + intercept, net(X[7]))
    assert sum(row["contribution"] for row in e.rows()) + intercept[0] == pytest.approx(net(X[7])[0])
    assert len(e.to_pandas()) == 3 and "the nearest boundary is" in repr(e)


def test_a_region_without_data():
    net = rs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])
    e = rs.unwrap(net, [[1.0]]).explain([-2.0])
    assert not e.has_data and e.region == -1 and e.count == 0 and "without data" in repr(e)
