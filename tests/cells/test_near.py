"""Networks that nearly agree are compared by bounds: no common refinement full of slivers."""

from __future__ import annotations

import numpy as np
import pytest

from nets import random_net
from reluscope.cells.compare import distance, equivalent
from reluscope.cells.near import _bounds, bound_difference, nearly_agree
from reluscope.network import Network


def moved(net, by, seed=0):
    """All weights moved by that share of themselves."""
    rng = np.random.default_rng(seed)
    layers = []
    for layer in net.layers:
        W, b = layer.dense(), layer.bias
        layers.append((W * (1 + by * rng.normal(size=W.shape)), b * (1 + by * rng.normal(size=b.shape)), layer.units))
    return Network(layers)


def single(net):
    return Network([(layer.dense().astype(np.float32), layer.bias.astype(np.float32)) for layer in net.layers])


@pytest.mark.parametrize("seed", range(4))
def test_single_precision_against_double_in_seven_inputs(seed):
    """A solver error before: the hyperplanes of both nearly coincide."""
    net = random_net((7, 12, 12, 1), seed)
    other = single(net)
    found = equivalent(net, other, (-1, 1))
    assert found.equal is False and found.cells == 0
    assert found.difference > 1e-9
    np.testing.assert_array_equal(found.first, net(found.witness))
    wide = equivalent(net, other, (-1, 1), max_difference=1e-3)
    assert wide.equal is True
    assert wide.difference <= wide.bound <= 1e-3


@pytest.mark.parametrize("widths", [(6, 16, 16, 1), (10, 32, 32, 3)])
def test_weights_moved_by_1e_13(widths):
    """More than 14 GB before."""
    net = random_net(widths, 1)
    found = equivalent(net, moved(net, 1e-13), (-1, 1))
    assert found.equal is True and found.complete
    assert found.difference <= found.bound < 1e-9
    assert "sound" in found.guarantee
    assert equivalent(net, net, (-1, 1)).bound < 1e-30


@pytest.mark.parametrize("kind", ["relu", "leaky_relu", "relu6", "abs"])
def test_the_bound_holds_and_parts_of_the_box_make_it_smaller(kind):
    net = random_net((2, 6, 6, 1), 3, activation=kind, bias=0.5)
    other = moved(net, 1e-7, seed=5)
    assert nearly_agree(net, other)
    truth = distance(net, other, (-1, 1))
    box = -np.ones(2), np.ones(2)
    whole = float(_bounds(net, other, box[0][None], box[1][None])[0])
    assert truth.upper <= whole * (1 + 1e-9)
    between = bound_difference(net, other, box, 0.5 * whole, 0.0)
    assert truth.value <= between.bound * (1 + 1e-9)
    assert between.bound < whole


def test_what_bounds_leave_open_the_refinement_decides():
    net = random_net((2, 5, 4, 1), 2, bias=0.5)
    other = moved(net, 1e-7, seed=5)
    truth = distance(net, other, (-1, 1)).value
    found = equivalent(net, other, (-1, 1), max_difference=truth * (1 + 1e-4))
    assert found.equal is True
    assert equivalent(net, other, (-1, 1), max_difference=truth * (1 - 1e-4)).equal is False


def test_other_networks_are_not_near():
    net = random_net((2, 5, 1), 0)
    assert not nearly_agree(net, moved(net, 1e-3))
    assert not nearly_agree(net, random_net((2, 6, 1), 0))
    assert not nearly_agree(net, Network([(part.dense(), part.bias) for part in net.layers], "leaky_relu"))
