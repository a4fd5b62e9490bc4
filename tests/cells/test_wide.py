"""Wide first layers: the same regions as the plain traversal gives, and as many as closed forms say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

from reluscope.activations import Units, absolute, identity, leaky_relu, piecewise, relu
from reluscope.cells import subdivide
from reluscope.cells.domain import starting_cell
from reluscope.cells.regions import regions, stream_regions
from reluscope.cells.subdivide import CutPlan, Stack, traverse
from reluscope.cells.wide import is_wide
from reluscope.network import Network


def he(*widths, seed=0, units=None):
    rng = np.random.default_rng(seed)
    layers = [
        (rng.normal(size=(b, a)) * np.sqrt(2 / a), rng.uniform(-1, 1, b) / np.sqrt(a))
        for a, b in itertools.pairwise(widths)
    ]
    if units is not None:
        layers = [(*layer, units) for layer in layers[:-1]] + layers[-1:]
    return Network(layers)


def plain(net):
    """Patterns and maps by the traversal that takes all units of a layer in turn."""
    cell = starting_cell(net.n_inputs, box=(np.full(net.n_inputs, -1.0), np.ones(net.n_inputs)))
    assert is_wide(net, cell)
    plan = CutPlan.plain(net, net.n_inputs)
    batches = list(traverse(Stack(plan.start(cell))))
    return {p.tobytes(): m for b in batches for p, m in zip(b.pattern, b.maps, strict=True)}


@pytest.mark.parametrize("units", [100, 300])
def test_as_many_regions_as_lines_and_crossings_say(units):
    net = he(2, units, 1)
    W, b = net.layers[0].dense(), net.layers[0].bias
    i, j = np.triu_indices(units, 1)
    points = np.linalg.solve(np.stack([W[i], W[j]], axis=1), -np.stack([b[i], b[j]], axis=1)[:, :, None])[:, :, 0]
    corners = np.array([[-1.0, -1], [-1, 1], [1, -1], [1, 1]]) @ W.T + b
    lines = ((corners > 0).any(axis=0) & (corners < 0).any(axis=0)).sum()
    assert len(regions(net, (-1, 1), progress=None)) == 1 + lines + (np.abs(points) < 1).all(axis=1).sum()


@pytest.mark.parametrize(
    "net",
    [
        he(2, 90, 12, 8, 2),
        he(2, 80, 10, 1, seed=1, units=leaky_relu(0.1)),
        he(2, 70, 6, 1, seed=2, units=absolute()),
        he(3, 24, 6, 2, seed=3),
    ],
    ids=repr,
)
def test_the_same_regions_and_maps_as_the_plain_traversal(net):
    expected = plain(net)
    found = regions(net, (-1, 1), progress=None)
    assert found.complete and len(found) == len(expected) > 1000
    for pattern, maps in zip(found.pattern, found.maps, strict=True):
        np.testing.assert_allclose(maps, expected[pattern.tobytes()], rtol=1e-10, atol=1e-12)
    assert (net.pattern(found.interior) == found.pattern).all()
    assert found.volume.sum() == pytest.approx(2.0**net.n_inputs, rel=1e-12)
    assert (found._across[found._facets[0] >= 0] >= 0).all()  # every inner facet has a region on its other side


def test_a_sparse_second_layer():
    dense = he(2, 80, 10, 1)
    thin = dense.layers[1].dense() * (np.random.default_rng(0).random((10, 80)) < 0.2)
    given = [(layer.weight, layer.bias) for layer in dense.layers]
    given[1] = (thin, given[1][1])
    expected = regions(Network(given), (-1, 1), progress=None)
    given[1] = (sparse.csr_array(thin), given[1][1])
    found = regions(Network(given), (-1, 1), progress=None)
    assert {p.tobytes() for p in found.pattern} == {p.tobytes() for p in expected.pattern} and len(found) > 1000


@pytest.mark.parametrize("units", [relu(), leaky_relu(0.1), absolute()], ids=lambda u: u.name)
@pytest.mark.parametrize("bias", [0.0, -0.3])
def test_sparse_layers_with_most_units_off(units, bias):
    """As behind convolutions: a unit touches few units of the next layer, and many are off all over a batch."""
    rng = np.random.default_rng(5)
    dense = he(2, 72, 40, 30, 2, seed=4, units=units)
    given = []
    for k, layer in enumerate(dense.layers):
        weight = layer.dense() * (rng.random(layer.weight.shape) < 0.3) if k in (1, 2) else layer.dense()
        given.append((weight, layer.bias if k == 0 else layer.bias * 0.0 + bias))
    given = [(*layer, units) for layer in given[:-1]] + given[-1:]
    thin = Network(
        [(sparse.csr_array(layer[0]) if k in (1, 2) else layer[0], *layer[1:]) for k, layer in enumerate(given)]
    )
    expected = plain(Network(given))
    found = regions(thin, (-1, 1), progress=None)
    assert found.complete and len(found) == len(expected) > 1000
    for pattern, maps in zip(found.pattern, found.maps, strict=True):
        np.testing.assert_allclose(maps, expected[pattern.tobytes()], rtol=1e-10, atol=1e-12)
    for i in range(0, len(found), 97):
        one = thin.affine(found.pattern[i])
        np.testing.assert_allclose(found.maps[i, :-1].T, one.C, rtol=1e-10, atol=1e-12)
    assert found.volume.sum() == pytest.approx(4.0, rel=1e-12)


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array])
def test_a_layer_that_is_off_everywhere(stored):
    net = he(2, 70, 6, 5, 1)
    given = [(layer.dense(), layer.bias) for layer in net.layers]
    given[1] = (stored(given[1][0]), np.full(6, -100.0))
    given[2] = (stored(given[2][0]), given[2][1])
    found = regions(Network(given), (-1, 1), progress=None)
    assert len(found) == len(regions(Network([given[0], (np.ones((1, 70)), None)]), (-1, 1), progress=None))
    np.testing.assert_array_equal(found.C, 0.0)


def test_units_that_never_switch_and_copies():
    """Identity units among the others cut nothing; exact copies leave nothing in doubt."""
    net = he(2, 80, 1)
    W, b = net.layers[0].dense().copy(), net.layers[0].bias.copy()
    W[40:], b[40:] = -2.0 * W[:40], -2.0 * b[:40]
    twice = Network([(W, b), (np.ones((1, 80)), None)])
    once = Network([(W[:40], b[:40]), (np.ones((1, 40)), None)])
    found = regions(twice, (-1, 1), progress=None)
    assert found.complete and len(found) == len(regions(once, (-1, 1), progress=None)) > 300
    kinds = Units.of([identity() if k % 2 else relu() for k in range(80)])
    half = Network([(net.layers[0].weight, net.layers[0].bias, kinds), (np.ones((1, 80)), None)])
    rows = np.arange(0, 80, 2)
    alone = Network([(net.layers[0].dense()[rows], net.layers[0].bias[rows]), (np.ones((1, 40)), None)])
    assert len(regions(half, (-1, 1), progress=None)) == len(regions(alone, (-1, 1), progress=None)) > 300


@pytest.mark.parametrize(("distance", "complete"), [(1e-8, True), (1e-15, False)])
def test_near_copies_in_a_wide_layer(distance, complete):
    net = he(2, 70, 1)
    W, b = net.layers[0].dense().copy(), net.layers[0].bias.copy()
    W[6], b[6] = W[5] + distance * np.array([1.0, -2.0]), b[5] + distance
    found = regions(Network([(W, b), (np.ones((1, 70)), None)]), (-1, 1), progress=None)
    assert found.complete is complete
    if not complete:
        assert "thinner than that" in found.doubt


def test_a_budget_ends_a_wide_layer():
    net = he(2, 400, 8, 1)
    found = regions(net, (-1, 1), budget="5000 regions", progress=None)
    assert len(found) == 5000 and found.stopped == "budget of 5,000 regions reached"
    assert sum(len(batch) for batch in stream_regions(net, (-1, 1), budget="0.01s")) < 40_000


@pytest.mark.parametrize(
    "net",
    [
        he(2, 150, 1),
        he(2, 80, 10, 1, units=leaky_relu(0.1)),
        he(2, 70, 1, units=piecewise([0.3], [0.0, 1.0])),
        he(3, 30, 6, 2),
        he(2, 90, 1, units=[piecewise([0.1 * (k % 2)], [0.0, 1.0]) for k in range(90)]),
    ],
    ids=repr,
)
def test_short_lists_cut_together_as_they_do_one_by_one(net, monkeypatch):
    together = regions(net, (-3, 3))
    monkeypatch.setattr(subdivide, "_TOGETHER", 0)
    alone = regions(net, (-3, 3))
    assert len(together) > 300 and np.array_equal(together.pattern, alone.pattern)
    assert np.allclose(together.maps, alone.maps, rtol=0, atol=1e-12)
    assert all(np.array_equal(a, b) for a, b in zip(together._facets, alone._facets, strict=True))
    assert np.array_equal(net.pattern(together.interior), together.pattern)
