"""The Lipschitz constant, and hyperplanes in general position."""

from itertools import combinations

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.cells import general_position, hyperplane_intersection
from reluscope.cells.lipschitz import layer_bound
from reluscope.errors import InputError


def test_the_moons_network_is_far_less_steep_than_its_layers():
    net = rs.example("moons").network
    found = rs.lipschitz(net)
    assert found.guarantee == "exact" and found.value == pytest.approx(25.9, abs=0.05)
    assert layer_bound(net) == pytest.approx(58.1, abs=0.05)
    early = rs.lipschitz(net, budget="2 regions")
    assert early.guarantee == "sound" and early.status == "budget ended"
    assert early.lower <= found.value <= early.upper == layer_bound(net)


@pytest.mark.parametrize(
    ("widths", "act"), [((2, 6, 5, 2), "relu"), ((3, 5, 2), "leaky_relu"), ((1, 4, 4, 1), "hardtanh")]
)
def test_no_pair_is_further_apart_and_some_is_as_far(widths, act):
    net = random_net(widths, 4, act, bias=0.5)
    box = (-1.0, 1.0)
    found = rs.lipschitz(net, box)
    rng = np.random.default_rng(0)
    X, step = rng.uniform(-1, 1, (20_000, widths[0])), rng.normal(size=(20_000, widths[0]))
    Y = np.clip(X + 0.3 * step, -1, 1)
    apart = np.linalg.norm(X - Y, axis=1)
    ratio = np.linalg.norm(net(X) - net(Y), axis=1) / np.maximum(apart, 1e-9)
    assert ratio.max() <= found.upper
    steep = np.linalg.norm(net.jacobian(X), ord=2, axis=(1, 2)).max()
    assert found.value == pytest.approx(steep, rel=1e-9)
    everywhere = rs.lipschitz(net).upper * (1 + 1e-14)  # the same region, its map rounded on another way
    assert found.upper <= everywhere <= layer_bound(net)


def test_general_position():
    assert general_position([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])
    assert general_position(np.random.default_rng(0).normal(size=(6, 3)), np.ones(6))
    through_a_point = general_position([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], np.zeros(3))
    assert not through_a_point and through_a_point.subset == (0, 1, 2)
    parallel = general_position([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]], [0.0, 0.0, 5.0])
    assert parallel.subset == (0, 2) and "dependent" in parallel.reason
    assert general_position([[1.0, 0.0], [0.0, 0.0]], [0.0, 1.0]).reason == "a row is zero"
    with pytest.raises(InputError, match="subsets"):
        general_position(np.ones((300, 4)), np.ones(300))


@pytest.mark.parametrize("seed", range(40))
def test_general_position_subset_by_subset(seed):
    """Small whole numbers, so that many are not generic: the first subset that is not, one by one."""
    rng = np.random.default_rng(seed)
    n, m = 1 + seed % 3, int(rng.integers(2, 8))
    A, b = rng.integers(-4, 5, (m, n)).astype(float), rng.integers(-4, 5, m).astype(float)
    if seed % 2:  # none of these is a whole number, and rounding decides nothing
        A, b = A / 7, b / 7

    def bad(some):
        found = hyperplane_intersection(A[list(some)], b[list(some)])
        return found.consistent if len(some) > n else found.rank < len(some)

    subsets = (some for k in range(1, n + 2) for some in combinations(range(m), k))
    assert general_position(A, b).subset == next(filter(bad, subsets), ())


def test_general_position_of_many_lines():
    """120 lines have 287,960 subsets; one more through the crossing of two others is found."""
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(120, 2)), rng.normal(size=120)
    assert general_position(A, b)
    b[119] = A[119] @ np.linalg.solve(A[[5, 70]], b[[5, 70]])
    assert general_position(A, b).subset == (5, 70, 119)
