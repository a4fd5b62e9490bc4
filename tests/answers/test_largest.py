"""The largest output in absolute value on a box: what is found, and the bound on all."""

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.answers._largest import largest
from reluscope.budget import Budget


@pytest.mark.parametrize("seed", range(12))
def test_the_search_finds_the_largest_and_the_bound_is_above_it(seed):
    """Against every vertex of the common refinement."""
    d = 1 + seed % 3
    f, g = random_net((d, 8, 6, 2), seed), random_net((d, 8, 6, 2), 100 + seed)
    low, high = np.full(d, -1.5), np.full(d, 2.0)
    exact = rs.distance(f, g, (low, high), norm="p").value
    rng = np.random.default_rng(seed)
    X = rng.uniform(low, high, (200, d))
    found = largest(f - g, low, high, X, Budget(regions=3000), rng)
    assert found.size == pytest.approx(np.abs((f - g)(found.x)).max(), rel=1e-12)
    assert (low <= found.x).all() and (found.x <= high).all()
    assert np.abs((f - g)(X)).max() <= found.size <= exact * (1 + 1e-9) <= found.bound * (1 + 2e-9)
    assert found.size >= exact * (1 - 1e-6)
    assert found.bound <= 1.3 * exact


def test_the_search_is_never_below_the_best_of_its_own_draws():
    """Also when there is no time left for it, and above many draws that it did not make where there is."""
    f, g = random_net((5, 20, 20, 3), 0), random_net((5, 20, 20, 3), 1)
    apart, low, high = f - g, np.full(5, -1.0), np.ones(5)
    rng = np.random.default_rng(0)
    X = rng.uniform(low, high, (1000, 5))
    late = largest(apart, low, high, X, Budget(0.0), rng)
    assert late.size >= np.abs(apart(X)).max() and late.bound >= late.size
    many = np.abs(apart(rng.uniform(low, high, (200_000, 5)))).max()
    assert largest(apart, low, high, X, Budget(regions=200), rng).size > many


def test_inputs_that_are_fixed_stay_so():
    net = random_net((3, 6, 1), 3)
    low, high = np.array([-1.0, 0.5, -1.0]), np.array([1.0, 0.5, 1.0])
    X = np.random.default_rng(0).uniform(low, high, (50, 3))
    found = largest(net, low, high, X, Budget(regions=1000), np.random.default_rng(0))
    assert found.x[1] == 0.5 and found.size <= found.bound
