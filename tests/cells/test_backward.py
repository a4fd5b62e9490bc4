"""Regions from the last layer to the first: the same as from the first to the last."""

import numpy as np
import pytest

import reluscope as rs
from nets import integer_net, random_net
from reluscope import activations as ac
from reluscope.cells import backward_patterns
from reluscope.errors import InputError


def forward(net, box):
    pattern = rs.regions(net, box, progress=None).pattern
    return pattern[np.lexsort(pattern.T[::-1])]


@pytest.mark.parametrize("widths", [(2, 3, 2, 1), (1, 4, 2, 1), (3, 3, 2, 1), (2, 2, 2, 2, 1)])
def test_both_constructions_give_the_same_regions(widths):
    for seed in range(2):
        net = random_net(widths, seed, bias=0.5)
        for box in ((-1, 2), None):
            np.testing.assert_array_equal(backward_patterns(net, box), forward(net, box))


@pytest.mark.parametrize("seed", range(4))
def test_ties_dead_units_and_parallel_hyperplanes(seed):
    net = integer_net((2, 3, 2, 1), seed, top=2)
    np.testing.assert_array_equal(backward_patterns(net, (-3, 3)), forward(net, (-3, 3)))


def test_units_with_three_pieces_and_a_unit_that_is_zero_on_a_region():
    net = random_net((1, 2, 1, 1), 3, ac.hardtanh(), bias=0.5)
    np.testing.assert_array_equal(backward_patterns(net, (-3, 3)), forward(net, (-3, 3)))
    # Where both first units are off, the second layer is exactly on its break point: it counts as off there.
    net = rs.Network([(np.eye(2), None), ([[1.0, 1.0], [-1.0, -1.0]], None), ([[1.0, 1.0]], None)])
    np.testing.assert_array_equal(backward_patterns(net, (-1, 1)), forward(net, (-1, 1)))
    affine = rs.Network([([[1.0, 2.0]], [0.5])])
    assert backward_patterns(affine).shape == (1, 0)


def test_what_is_too_large_is_refused():
    with pytest.raises(InputError, match="pairs"):
        backward_patterns(random_net((2, 10, 10, 1), 0), (-1, 1))
    with pytest.raises(InputError, match="box"):
        backward_patterns(random_net((2, 3, 1)), (-1, [1, 2, 3]))
