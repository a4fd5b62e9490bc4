"""Slices: slabs along a few directions, the rest Gaussian. Masses, bounds on random problems, faults."""

import numpy as np
import pytest
from scipy.special import ndtr

import reluscope as rs
from nets import random_net
from reluscope.events import as_event, place
from reluscope.measure.sound import means, slices
from reluscope.measure.sound import slab as slabs
from reluscope.measure.sound.components import slice_search
from reluscope.measure.sound.frame import frames
from reluscope.measure.sound.seen import seen
from sound_problems import check_bracket, problem


def _bracket(net, law, event, cells):
    """The bracket of slices alone after a number of slabs; None where they do not apply."""
    placed = seen(place(net, law, as_event(event, net, law)))
    if not placed.n_cases or placed.everything:
        return None
    made = frames(law, placed.network, None)
    if not all(frame.gaussian for frame in made):
        return None
    search = slice_search(made, placed)
    search.advance(lambda: search.nodes >= cells)
    return search.bracket()


def _campaign(seeds):
    useful = 0
    for seed in seeds:
        net, law, event, rng = problem(18, seed)
        found = _bracket(net, law, event, int(rng.choice([1, 30, 200, 1000])))
        if found is not None:
            useful += found[1] < 0.9 or found[0] > 0.1
            check_bracket(net, law, event, *found, rng, seed)
    return useful


def test_bounds_hold_on_random_problems():
    assert _campaign(range(60)) > 20


@pytest.mark.slow
def test_bounds_hold_on_two_thousand_random_problems():
    assert _campaign(range(1000, 3000)) > 600


def _random_slabs(rng, n, k, r):
    Q = np.linalg.qr(rng.normal(size=(r, k)))[0]
    held = rng.random((n, k)) < 0.7
    low = np.where(held, rng.normal(size=(n, k)) * 2 - 0.5, 0.0)
    up = np.where(held, low + 10 ** rng.uniform(-2, 0.7, (n, k)), 0.0)
    return slabs.Slab(Q, held, low, up, np.full(n, 4.0))


def test_the_mass_of_a_half_space_in_a_slab_is_above_the_true_one_and_near_it():
    # Given the held directions the probability is Phi of an affine function: means over their grid are a reference.
    rng = np.random.default_rng(3)
    slab = _random_slabs(rng, 40, 2, 6)
    X, x0 = rng.normal(size=(40, 3, 6)), rng.normal(size=(40, 3)) * 4
    along, rest, _ = slab.parts(X)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    near = []
    for i, j in np.ndindex(40, 3):
        axes = []
        for t in range(2):
            if slab.held[i, t]:
                a, b = slab.low[i, t], slab.up[i, t]
                u = 0.5 * (a + b) + 0.5 * (b - a) * nodes
                axes.append((u, 0.5 * (b - a) * weights * np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi)))
            else:
                axes.append((np.zeros(1), np.ones(1)))
        (u, wu), (v, wv) = axes
        s = (x0[i, j] + along[i, j, 0] * u[:, None] + along[i, j, 1] * v) / rest[i, j]
        true = float(wu @ ndtr(-s) @ wv)
        found = slab.below(X, x0)[i, j]
        assert found >= true * (1 - 1e-9)
        near.append(true / found)
    assert np.median(near) > 0.8


def test_scores_are_distances_of_the_half_space_from_the_mean():
    from scipy.optimize import minimize

    rng = np.random.default_rng(4)
    slab = _random_slabs(rng, 12, 2, 4)
    X, x0 = rng.normal(size=(12, 1, 4)), np.abs(rng.normal(size=(12, 1))) * 5 + 6
    score, _ = slab.reached(X, x0)
    for i in range(12):
        rows = [-X[i, 0], *(s * slab.Q[:, t] for t in range(2) if slab.held[i, t] for s in (1, -1))]
        ends = [x0[i, 0], *(e for t in range(2) if slab.held[i, t] for e in (slab.low[i, t], -slab.up[i, t]))]
        limits = {"type": "ineq", "fun": lambda x, A=np.array(rows), e=np.array(ends): A @ x - e}
        far = minimize(lambda x: x @ x, np.zeros(4), constraints=limits, method="SLSQP", options={"maxiter": 500})
        nearest = np.where(slab.held[i], np.clip(0.0, slab.low[i], slab.up[i]), 0.0)
        assert far.success
        # the score leaves out how far the slab itself is
        assert score[i, 0] ** 2 == pytest.approx(far.fun - nearest @ nearest, rel=1e-3, abs=1e-3)


def _shallow(seeds):
    """One hidden layer: bounds from means and gradients."""
    for seed in seeds:
        rng = np.random.default_rng([19, seed])
        n, width = int(rng.integers(2, 20)), int(rng.integers(3, 40))
        net = random_net([n, width, 1], seed=seed)
        law = rs.Gaussian(rng.normal(size=n), rng.uniform(0.05, 1.0, n))
        level = float(np.quantile(net(law.sample(2000, rng)), rng.choice([0.5, 0.9, 0.97, 0.999])))
        event = f"y[0] {rng.choice(['>', '<='])} {level!r}"
        found = _bracket(net, law, event, int(rng.choice([1, 30, 300])))
        check_bracket(net, law, event, *found, rng, seed)


def test_means_and_gradients_hold_on_random_problems():
    _shallow(range(40))


@pytest.mark.slow
def test_means_and_gradients_hold_on_fifteen_hundred_random_problems():
    _shallow(range(1000, 2500))


def test_a_diagonal_is_above_the_matrix_and_nearly_as_small_as_can_be():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(30, 6))
    weight = rng.uniform(0.1, 1.0, 30)
    T = means._above(A @ A.T, weight)
    assert np.linalg.eigvalsh(np.diag(T) - A @ A.T).min() > 0
    # the largest |sum e_u w_u|^2 over signs is below, and within a factor of pi / 2 of the best diagonal
    signs = rng.choice([-1.0, 1.0], size=(200_000, 30)) * weight
    largest = ((signs @ A) ** 2).sum(axis=1).max()
    assert largest <= weight**2 @ T <= 2.5 * largest


def test_quantiles_of_the_isoperimetric_inequality_are_below_and_near():
    y = np.concatenate([[-1.0, 0.0], np.geomspace(1e-3, 30.0, 200)])
    q = means._quantile_kernel(y)
    above = q[2:] * ndtr(q[2:]) + np.exp(-0.5 * q[2:] ** 2) / np.sqrt(2 * np.pi)
    assert (above <= y[2:]).all() and np.allclose(above, y[2:], rtol=1e-4, atol=1e-8)
    assert (q[:2] <= -30).all()


def test_the_bound_by_means_is_reached_by_a_half_space():
    # One unit that is always on: f is a half-space's distance, for which the inequality is an equality.
    net = rs.Network([([[1.0] + [0.0] * 5], [40.0]), ([[1.0]], None)])
    found = _bracket(net, rs.Gaussian(np.zeros(6), 1.0), "y[0] < 37", 30)
    assert found[0] <= ndtr(-3.0) <= found[1] < 1.05 * ndtr(-3.0)


@pytest.mark.parametrize("fault", ["chord", "tail", "slab", "rest", "mean", "gradient", "quantile"])
def test_faults_are_seen(monkeypatch, fault):
    from reluscope.measure.sound import linear

    if fault == "chord":
        old = linear.Bounds.chords
        monkeypatch.setattr(
            linear.Bounds, "chords", lambda self, ends: (lambda us, uc, ls: (us, 0.5 * uc, ls))(*old(self, ends))
        )
    elif fault == "tail":
        old_tail = slices.tail
        monkeypatch.setattr(slices, "tail", lambda d, gaussian: 0.0 * old_tail(d, gaussian))
        monkeypatch.setattr(slices, "_COST", 1e6)  # so that tails matter
    elif fault == "slab":
        old_cut = slices.CaseSlices._cut
        monkeypatch.setattr(slices.CaseSlices, "_cut", lambda self, cell, total: old_cut(self, cell, total)[:-1])
    elif fault == "rest":
        old_parts = slabs.Slab.parts
        monkeypatch.setattr(
            slabs.Slab, "parts", lambda self, X: (lambda a, rest, moved: (a, 0.7 * rest, moved))(*old_parts(self, X))
        )
    if fault == "mean":
        old_mean = means._mean
        monkeypatch.setattr(means, "_mean", lambda h, s: (lambda v, k: (v + 0.3 * s, k))(*old_mean(h, s)))
    elif fault == "gradient":
        monkeypatch.setattr(means.Means, "_diagonal", lambda self, slab: np.zeros((slab.nodes, len(self.W))))
    elif fault == "quantile":
        monkeypatch.setattr(means, "_quantile_kernel", lambda y: 1.5 * np.maximum(y, 0.0))
    with pytest.raises(AssertionError):
        if fault in ("mean", "gradient", "quantile"):
            _shallow(range(400))
        _campaign(range(80, 90) if fault == "chord" else range(120))


def test_few_directions_that_matter_are_enough():
    # 40 inputs, of which the network follows two closely: a bracket from both sides, where boxes have none.
    rng = np.random.default_rng(5)
    W = rng.normal(size=(24, 2)) @ np.linalg.qr(rng.normal(size=(40, 2)))[0].T + 0.01 * rng.normal(size=(24, 40))
    net = rs.Network([(W, rng.normal(size=24)), (rng.normal(size=(1, 24)), None)])
    law = rs.Gaussian(np.zeros(40), 1.0)
    level = float(np.quantile(net(law.sample(200_000, np.random.default_rng(6))), 0.999))
    found = rs.probability(net, law, f"y[0] > {level!r}", guarantee="sound", budget="6000 regions")
    assert 5e-4 < found.lower < 1e-3 < found.upper < 1.5e-3
    assert "slices" in found.method


def test_the_same_work_gives_the_same_bracket():
    net, law = random_net([6, 10, 10, 2], seed=3), rs.Gaussian(np.zeros(6), 1.0)
    one, two = (_bracket(net, law, "y[0] > y[1] + 1", 500) for _ in range(2))
    assert one == two
