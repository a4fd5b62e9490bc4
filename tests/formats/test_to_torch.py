"""Networks as torch modules."""

from __future__ import annotations

import numpy as np
import pytest

from nets import random_net
from reluscope.activations import Units, absolute, hardtanh, identity, leaky_relu, relu
from reluscope.formats import load
from reluscope.network import Network

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    "units",
    [relu(), leaky_relu(0.2), hardtanh(), [relu(), absolute(), identity(), leaky_relu(0.1), hardtanh(), relu()]],
)
def test_a_module_computes_the_same(units):
    rng = np.random.default_rng(0)
    given = Units.of(units) if isinstance(units, list) else units
    net = Network([(rng.normal(size=(6, 3)), rng.normal(size=6), given), (rng.normal(size=(2, 6)), rng.normal(size=2))])
    module = net.to_torch()
    X = rng.normal(size=(40, 3))
    np.testing.assert_allclose(module(torch.from_numpy(X)).detach().numpy(), net(X), rtol=1e-12, atol=1e-12)


def test_there_and_back():
    net = random_net((3, 7, 5, 2), seed=1)
    again = load(net.to_torch())
    assert again.widths == net.widths
    for a, b in zip(again.layers, net.layers, strict=True):
        np.testing.assert_array_equal(a.dense(), b.dense())
        np.testing.assert_array_equal(a.bias, b.bias)


def test_regions_as_a_graph():
    networkx = pytest.importorskip("networkx")
    from reluscope.cells.regions import regions

    found = regions(random_net((2, 8, 5, 1), seed=2), (-1, 1), progress=None)
    graph = found.to_networkx(masses=found.volume / found.volume.sum())
    assert len(graph) == len(found) and sorted(map(sorted, graph.edges)) == found.adjacency().tolist()
    assert networkx.is_connected(graph) and sum(m for _, m in graph.nodes(data="mass")) == pytest.approx(1.0)
    for i, j, side in graph.edges(data=True):
        unit = found.network.offsets[side["layer"]] + side["unit"]
        assert found.pattern[i, unit] != found.pattern[j, unit]
