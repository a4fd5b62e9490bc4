"""Bounds by splitting units hold: against exact values, closed forms and long draws; faults put in on purpose show."""

import numpy as np
import pytest
from scipy.special import ndtr

import reluscope as rs
from nets import random_net
from reluscope.events import as_event, place
from reluscope.measure.sound import bound_event, linear, roots, units
from reluscope.measure.sound.components import unit_search
from reluscope.measure.sound.distance import nearest, one_factor_kernel, tail
from reluscope.measure.sound.frame import frames
from reluscope.measure.sound.seen import seen
from sound_problems import check_bracket, problem


def _upper(net, law, event, radius, nodes):
    """Bounds of splitting units alone, at one radius and a number of nodes: (lower, upper)."""
    placed = seen(place(net, law, as_event(event, net, law)))
    if not placed.n_cases:
        return 0.0, 0.0
    if placed.everything:
        return 0.0, 1.0
    search = unit_search(frames(law, placed.network, None), placed)
    low = high = 0.0
    for part, frame in zip(search.parts, search.frames, strict=True):
        tree = units.Tree(part.form, radius, part.gaussian)
        tree.grow(lambda tree=tree: tree.nodes >= nodes, 1e-30)
        high += frame.weight * min(1.0, tree.upper / frame.total[0] + frame.beyond)
        low += frame.weight * tree.lower if frame.total == (1.0, 1.0) else 0.0
    return low, min(high, 1.0)


def _campaign(seeds):
    """How many bounds were useful; every one of them holds the exact value or meets the draws."""
    useful = 0
    for seed in seeds:
        net, law, event, rng = problem(16, seed)
        low, high = _upper(net, law, event, float(rng.choice([2.0, 3.0, 4.0, 5.0])), int(rng.choice([0, 8, 60])))
        useful += high < 0.9 or low > 0.1
        check_bracket(net, law, event, low, high, rng, seed)
    return useful


def test_bounds_hold_on_random_problems():
    assert _campaign(range(60)) > 20


@pytest.mark.slow
def test_bounds_hold_on_five_thousand_random_problems():
    assert _campaign(range(1000, 6000)) > 2000


SEEN_BY = {"chord": (180, 190), "tail": (0, 5), "slope": (50, 60), "side": (30, 36), "sign": (44, 50)}
"""Problems of the campaign that show each fault, so that the test is quick."""


@pytest.mark.parametrize("fault", SEEN_BY)
def test_faults_are_seen(monkeypatch, fault):
    """The campaign would not pass with a wrong chord, a forgotten tail, a slope above 1, a wrong half-space."""
    if fault == "chord":
        old = linear.Bounds.chords
        monkeypatch.setattr(
            linear.Bounds, "chords", lambda self, ends: (lambda us, uc, ls: (us, 0.8 * uc, ls))(*old(self, ends))
        )
    elif fault == "tail":
        monkeypatch.setattr(units, "tail", lambda d, gaussian: 0.0 * np.asarray(tail(d, gaussian)))
    elif fault == "slope":
        old = linear.Bounds.chords
        monkeypatch.setattr(
            linear.Bounds,
            "chords",
            lambda self, ends: (lambda us, uc, ls: (us, uc, np.where((us > 0) & (us < 1), 1.3, ls)))(*old(self, ends)),
        )
    elif fault == "side":
        old_sides = units.Tree._sides
        monkeypatch.setattr(
            units.Tree, "_sides", lambda self, *a: (lambda rows, bounds: (rows, bounds + 0.5))(*old_sides(self, *a))
        )
    else:
        old_both = units.nearest
        monkeypatch.setattr(
            units, "nearest", lambda C, e, count: (lambda w, far: (w, far + 0.3))(*old_both(C, e, count))
        )
    with pytest.raises(AssertionError):
        _campaign(range(*SEEN_BY[fault]))


def _pointwise(seed):
    """Lower functions are below the rows, and arguments in their intervals, at points of the ball and on its edge."""
    rng = np.random.default_rng([17, seed])
    net = random_net([3, *rng.integers(3, 9, int(rng.integers(1, 3))).tolist(), 2], seed=seed)
    law = rs.Gaussian(np.zeros(3), 1.0)
    placed = place(net, law, as_event("y[0] > y[1] + 0.1", net, law))
    (frame,) = frames(law, placed.network, None)
    form = unit_search((frame,), placed).parts[0].form
    radius = 2.5
    small, bounds, box, _ = roots.root(form, radius, True)
    part = linear.whole(1, small.n_inputs, radius)
    last = len(small.layers) - 1
    edge = np.concatenate([layer.W for layer in small.layers[:1]])
    edge = np.concatenate([edge, -edge])
    points = np.concatenate([edge / np.linalg.norm(edge, axis=1, keepdims=True), rng.standard_normal((200, 3))])
    points *= np.minimum(radius / np.linalg.norm(points, axis=1), 1.0)[:, None] if len(points) else 1.0
    points[: len(edge)] = radius * edge / np.linalg.norm(edge, axis=1, keepdims=True)
    for steps in (0, 3):
        X, x0, _ = bounds.lower(last, small.G[None], small.g0[None], box, part, steps)
        z, inside = points, np.ones(len(points), bool)
        for layer, own in zip(small.layers, box, strict=True):
            h = z @ layer.W.T + layer.b
            z = h * layer.slope + layer.intercept
            for group, (low, up) in zip(layer.groups, own, strict=True):
                t = h[:, group.unit] - group.at
                inside &= ((t >= low - 1e-9) & (t <= up + 1e-9)).all(axis=1)
                z[:, group.unit] += group.step * np.maximum(t, 0.0)
        value = z @ small.G.T + small.g0
        assert inside.all()
        assert (points @ X[0].T + x0[0] <= value + 1e-9).all()


def test_lower_functions_are_below():
    for seed in range(60):
        _pointwise(seed)


def test_a_chord_one_percent_too_low_is_seen(monkeypatch):
    old = linear.Bounds.chords
    monkeypatch.setattr(
        linear.Bounds, "chords", lambda self, ends: (lambda us, uc, ls: (us, 0.99 * uc, ls))(*old(self, ends))
    )
    with pytest.raises(AssertionError):
        test_lower_functions_are_below()


# -- masses of polyhedra -------------------------------------------------------------------------------------------


def test_distances_are_certified_and_nearly_right():
    rng, compared = np.random.default_rng(0), 0
    for _ in range(60):
        r, m = int(rng.integers(1, 8)), int(rng.integers(1, 8))
        C = rng.normal(size=(1, m, r))
        C /= np.linalg.norm(C, axis=2, keepdims=True)
        e = rng.normal(size=(1, m)) + 1.0
        w, far = nearest(C, e, np.array([m]))
        if np.isinf(far[0]) or far[0] > 30:
            continue
        # w x >= far on the whole polyhedron: the least of w x there, by linear programming.
        from scipy.optimize import linprog

        found = linprog(w[0], A_ub=-C[0], b_ub=-e[0], bounds=(None, None))
        if found.status == 0:
            compared += 1
            assert found.fun >= far[0] - 1e-7
    assert compared > 30


@pytest.mark.parametrize("m", [1, 2, 4, 8])
def test_one_common_factor_bounds_orthants(m):
    """Against draws; and exactly for independent rows, where the bound is the product."""
    rng = np.random.default_rng(m)
    C = np.eye(10)[None, :m]
    e = rng.normal(size=(1, m))
    bound = one_factor_kernel(C, e, np.array([m]), 0.05)[0]
    product = float(np.prod(ndtr(-e)))
    assert product <= bound <= 1.15 * product
    x = rng.standard_normal((200_000, 5))
    for _ in range(20):
        rows = rng.normal(size=(1, m, 5))
        rows /= np.linalg.norm(rows, axis=2, keepdims=True)
        share = (x @ rows[0].T >= e[0]).all(axis=1).mean()
        bound = one_factor_kernel(rows, e, np.array([m]), 0.125)[0]
        assert share - 6 * np.sqrt((share + 1e-5) / len(x)) <= bound


def test_tails_are_above_the_normal_and_the_uniform_law():
    from mpmath import erfc, mp, mpf, sqrt

    mp.dps = 40
    for d in np.linspace(-5, 38, 87):
        exact = erfc(mpf(float(d)) / sqrt(2)) / 2
        assert exact <= mpf(float(tail(float(d), True))) <= exact * (1 + mpf("1e-9")) + mpf("2e-305")
    x = np.random.default_rng(0).uniform(-np.sqrt(3), np.sqrt(3), (400_000, 3)) / np.sqrt(3)
    for d in (0.5, 1.0, 2.0, 2.9):
        assert (x.sum(axis=1) >= d).mean() <= float(tail(d, False))


# -- many dimensions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [8, 30, 300])
def test_a_half_space_under_units_that_are_always_on(n):
    """The true value is .01; boxes alone say [0, 1] from 30 dimensions on."""
    rng = np.random.default_rng(n)
    W = rng.normal(size=(12, n)) / np.sqrt(n)
    net = rs.Network([(W, np.full(12, 30.0)), (rng.normal(size=(1, 12)), None)])
    law = rs.Gaussian(np.zeros(n), 1.0)
    gradient = net.jacobian(np.zeros(n))[0]
    level = float(net(np.zeros((1, n)))[0, 0] + 2.3263478740408408 * np.linalg.norm(gradient))
    found = bound_event(net, law, as_event(f"y[0] > {level!r}", net, law), budget="10s")
    assert found.lower <= 0.01 <= found.upper
    assert found.upper - found.lower < 1e-8


@pytest.mark.parametrize("n", [60, 400])
def test_rare_events_in_many_dimensions_are_proved_rare(n):
    """Two opposite half-spaces behind ReLU units: P = 2 Phi(-5), and the proof comes within a factor of 30."""
    rng = np.random.default_rng(n)
    a = rng.normal(size=n)
    a /= np.linalg.norm(a)
    b = rng.normal(size=n)
    b -= (a @ b) * a
    b *= 0.05 / np.linalg.norm(b)
    net = rs.Network([(np.stack([a, -a, b, -b]), np.zeros(4)), ([[1.0, 1.0, 0.1, 0.1]], None)])
    law = rs.Gaussian(np.zeros(n), 1.0)
    found = rs.probability(net, law, "y[0] > 5", guarantee="sound", budget="5s")
    exact = 2 * float(ndtr(-5.0))
    assert exact * 0.95 <= found.upper <= 30 * exact


def test_cases_that_see_few_inputs_are_bounded_in_them():
    """At least one of ten steps: ten cases of two inputs each, of twenty; they are independent."""
    rng = np.random.default_rng(1)
    steps = 10
    W, v = np.zeros((4 * steps, 2 * steps)), np.zeros((steps, 4 * steps))
    block, out = rng.normal(size=(4, 2)), np.abs(rng.normal(size=4))
    for k in range(steps):
        W[4 * k : 4 * k + 4, 2 * k : 2 * k + 2] = block
        v[k, 4 * k : 4 * k + 4] = out
    net, law = rs.Network([(W, None), (v, None)]), rs.Gaussian(np.zeros(2 * steps), 1.0)
    one, single = rs.Network([(block, None), (out[None], None)]), rs.Gaussian(np.zeros(2), 1.0)
    level = 2.5 * float(out.sum())
    p = rs.probability(one, single, f"y[0] > {level!r}")
    exact = -np.expm1(steps * np.log1p(-p.value))
    event = " or ".join(f"y[{k}] > {level!r}" for k in range(steps))
    found = rs.probability(net, law, event, guarantee="sound", budget="20s")
    assert found.lower <= exact <= found.upper
    assert found.upper - found.lower <= 0.02 * exact


def test_more_work_helps_and_the_same_work_gives_the_same_bracket():
    net, rng = random_net([40, 24, 24, 2], seed=4), np.random.default_rng(4)
    law = rs.Gaussian(rng.normal(size=40), 0.01)
    event = as_event("argmax != argmax at mean", net, law)
    found = [bound_event(net, law, event, tolerance=0.0, budget=f"{n} regions") for n in (100, 100, 1000, 4000)]
    assert found[0].upper == found[1].upper
    # Where a budget cuts a tree's growth changes what is tried next, so "never wider" holds up to a little.
    assert found[3].upper <= 1.2 * found[2].upper <= 1.2**2 * found[0].upper < 0.1
    assert all("units" in a.method for a in found)
