"""Ray spaces and boundedness: against a sweep of angles, brute force over patterns and rational arithmetic."""

import itertools
import math

import numpy as np
import pytest
from rational import rational_regions
from scipy.optimize import linprog
from scipy.special import betaincinv

import reluscope as rs
from nets import integer_net, random_net
from reluscope.cells.bounds import box_preactivations
from reluscope.errors import InputError
from reluscope.representation._prefix import recession
from reluscope.representation.laboratory import bounded_shares, random_network
from reluscope.representation.rays import _dead_by_bounds, _tightest, boundedness, boundedness_bounds


def alive_by_angles(net):
    """Which hidden layers of a bias-free net with two inputs are not identically 0: arcs of the circle, cut up."""
    arcs = [(-math.pi, math.pi, np.eye(2))]
    alive = []
    for layer in net.hidden:
        following, found = [], False
        for start, stop, C in arcs:
            M = layer.dense() @ C
            zeros = [math.atan2(a, -b) + k * math.pi for a, b in M for k in (-2, -1, 0, 1, 2)]
            cuts = [start, *sorted(t for t in zeros if start < t < stop), stop]
            for low, high in itertools.pairwise(cuts):
                if high - low < 1e-13:
                    continue
                middle = 0.5 * (low + high)
                on = M @ [math.cos(middle), math.sin(middle)] > 0
                found |= bool(on.any())
                following.append((low, high, on[:, None] * M))
        arcs = following
        alive.append(found)
    return alive


def alive_by_patterns(net):
    """The same for any number of inputs: every sign pattern whose open cone is not empty, by linear programs."""
    alive = [False] * len(net.hidden)

    def visit(k, rows, C):
        if k == len(net.hidden):
            return
        M = net.hidden[k].dense() @ C
        open_ = [(rows, np.zeros(len(M), bool))]
        for i, row in enumerate(M):
            following = []
            for held, on in open_:
                if not np.abs(row).max() > 1e-13:
                    following.append((held, on))
                    continue
                for sign in (1, -1):
                    more = [*held, -sign * row / np.abs(row).max()]
                    A = np.column_stack([more, np.ones(len(more))])
                    n = len(row)
                    best = linprog([0] * n + [-1], A, np.zeros(len(more)), bounds=[(-1, 1)] * n + [(None, 1)])
                    if best.status == 0 and -best.fun > 1e-9:
                        state = on.copy()
                        state[i] = sign > 0
                        following.append((more, state))
            open_ = following
        for held, on in open_:
            if on.any():
                alive[k] = True
                visit(k + 1, held, on[:, None] * M)

    visit(0, [], np.eye(net.n_inputs))
    return alive


def check_planar(count, seed):
    rng = np.random.default_rng(seed)
    bounded = 0
    for _ in range(count):
        depth, width = int(rng.integers(2, 7)), int(rng.integers(1, 4))
        net = random_network([2, *[width] * depth, 1], bias=1.0, rng=rng)
        decided = boundedness(net)
        assert [not b for b in decided] == alive_by_angles(recession(net, depth))
        bounded += decided[-1]
    return bounded


def check_solid(count, seed):
    rng = np.random.default_rng(seed)
    bounded = 0
    for _ in range(count):
        net = random_network([3, *rng.integers(1, 3, 4).tolist(), 1], bias=1.0, rng=rng)
        decided = boundedness(net)
        assert [not b for b in decided] == alive_by_patterns(recession(net, 4))
        bounded += decided[-1]
    return bounded


def check_whole_numbers(count, seed):
    bounded = 0
    for k in range(count):
        net = integer_net((2, 2, 2, 2, 1), seed + k)
        free = recession(net, 3)
        patterns = np.array(sorted(rational_regions(free))) > 0
        parts = [patterns[:, free.offsets[i] : free.offsets[i + 1]].any(axis=1) for i in range(3)]
        alive = [bool(parts[i].any()) for i in range(3)]
        assert [not b for b in boundedness(net)] == alive
        bounded += not alive[-1]
    return bounded


def test_exact_decision_agrees_with_brute_force():
    # 100 networks in the normal run; both answers must occur or the test shows nothing.
    assert 15 < check_planar(70, 1) < 60
    assert check_solid(6, 2) >= 1
    assert 3 < check_whole_numbers(24, 100) < 22


@pytest.mark.slow
def test_exact_decision_agrees_with_brute_force_on_a_thousand_networks():
    assert 150 < check_planar(600, 11) < 500
    assert check_solid(200, 12) > 30
    assert 30 < check_whole_numbers(200, 1000) < 180


@pytest.mark.parametrize(
    ("seed", "exactly", "quickly"),
    [(0, True, True), (5, True, True), (11, True, None), *((s, False, False) for s in (1, 2, 3, 4, 6, 7, 8, 9, 10))],
)
def test_bounds_never_contradict_the_enumeration(seed, exactly, quickly):
    net = random_net((3, 3, 2, 2, 1), seed, bias=1.0)
    exact = rs.representation.rays(net, method="enumeration")
    quick = rs.representation.rays(net, method="bounds")
    assert exact.method == "enumeration"
    assert (exact.bounded, quick.bounded) == (exactly, quickly)
    if not exactly:
        assert np.abs(quick.at(quick.witness)).max() > 0
        assert np.allclose(quick.at(quick.witness), quick.witness_image)
    else:
        X = np.random.default_rng(seed).normal(size=(2000, 3))
        assert not exact.at(X).any()
    # far out the network moves along G*(v)
    v = np.random.default_rng(seed).normal(size=3)
    at = [rs.Network([*net.layers[:3]])(s * v) for s in (1e7, 2e7)]
    last = net.layers[2].units
    assert np.allclose(last(at[1]) - last(at[0]), 1e7 * exact.at(v), rtol=1e-6, atol=1e-3)


def test_a_narrow_cone_is_found_whatever_the_seed():
    # One direction in 200 survives all three layers: 512 draws missed it for 7 seeds of 100.
    net = random_net((3, 3, 2, 2, 1), 3, bias=1.0)
    assert all(rs.representation.rays(net, method="bounds", rng=seed).bounded is False for seed in range(100))


@pytest.mark.parametrize("seed", range(10))
def test_programs_are_sound_and_help(seed):
    # Without the search for a witness in front: the bounds hold for samples, and never call a live layer dead.
    net = random_net((3, 4, 3, 3, 1), seed, bias=1.0)
    free = recession(net, 3)
    upper = _tightest(free, 3)
    X = np.random.default_rng(seed).uniform(-1, 1, (20_000, 3))
    for h, top in zip(free.preactivations(X), upper, strict=False):
        assert (h.max(axis=0) <= top + 1e-9).all()
    linear = [bound.upper for bound in box_preactivations(free, -np.ones(3), np.ones(3))]
    assert all((top <= above).all() for top, above in zip(upper, linear, strict=True))
    assert sum((above - top).sum() for top, above in zip(upper, linear, strict=True)) > 1e-6
    if not boundedness(net)[-1]:
        assert _dead_by_bounds(free) is None


def test_a_dead_layer_is_found_by_signs_programs_and_cones():
    dead = [(-np.ones((3, 4)), np.ones(3))]
    first = (np.random.default_rng(0).normal(size=(4, 2)), None)
    net = rs.Network([first, *dead, (np.ones((2, 3)), None), (np.ones((1, 2)), None)])
    for method in ("enumeration", "bounds"):
        for layer, bounded in ((0, False), (1, True), (2, True)):
            found = rs.representation.rays(net, layer, method=method)
            assert found.bounded is bounded
            assert found.dead_layer == (1 if bounded else None)
    first = (np.random.default_rng(0).normal(size=(300, 40)), None)
    wide = rs.Network([first, (-np.ones((200, 300)), None), (np.ones((1, 200)), None)])
    assert rs.representation.rays(wide).bounded is True
    assert rs.representation.rays(wide, 0).method == "witness"


def test_a_program_decides_where_signs_do_not():
    # Two units z = relu(x) + relu(-x) each: relu(z1 - 2 z2) is off, though its first weight is positive.
    net = rs.Network([([[1.0], [-1.0]], [0.3, 0.1]), (np.ones((2, 2)), None), ([[1.0, -2.0]], [5.0]), ([[1.0]], None)])
    assert rs.representation.rays(net).bounded is True
    assert rs.representation.rays(net, method="bounds").bounded is True


def test_ray_space_of_one_layer_by_hand():
    # relu(x, -x): two rays, along both axes; they span the plane.
    net = rs.Network([([[1.0], [-1.0]], [3.0, 4.0]), ([[1.0, 1.0]], [0.0])])
    found = rs.representation.rays(net)
    assert found.bounded is False
    assert found.n_cones == 2
    assert found.dimension == 2
    assert found.at([2.0]).tolist() == [2.0, 0.0]
    assert found.to_dict()["cones"] == 2
    assert "unbounded" in repr(found)


def test_saturating_units_have_bounded_images():
    net = random_net((2, 4, 4, 1), 0, "hardtanh")
    assert rs.representation.rays(net).bounded is True
    leaky = random_net((2, 4, 4, 1), 0, "leaky_relu")
    assert rs.representation.rays(leaky).bounded is False
    assert rs.representation.rays(leaky).dimension == 4
    cancelling = rs.Network([(np.eye(2), None, "leaky_relu"), ([[1.0, -1.0], [3.0, -3.0]], None, "leaky_relu")])
    assert rs.representation.rays(cancelling, 1).dimension == 1


def test_theorems_4_and_5_hold_in_simulation():
    for widths in ((2, 2, 2, 2, 2), (3, 1, 2, 3, 1), (2, 3, 3, 3, 3, 3)):
        count = 100
        hits = np.rint(bounded_shares(widths, count, rng=5) * count)
        # Clopper-Pearson at 1e-8 for each of 13 shares.
        low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), count - hits + 1, 1e-8), 0)
        high = np.where(hits < count, betaincinv(hits + 1, np.maximum(count - hits, 1), 1 - 1e-8), 1)
        bounds = boundedness_bounds(widths)
        assert (high >= np.array(bounds.bounded)).all()
        assert (low <= 1 - np.array(bounds.unbounded)).all()


def test_bounds_by_hand():
    found = boundedness_bounds((5, 2, 3))
    assert found.unbounded == pytest.approx((3 / 4, 3 / 4 * 7 / 8))
    assert found.bounded == pytest.approx((0, 1 / 64))
    assert rs.representation.rays(random_net((5, 2, 3, 1)), 1).random_bounds == found


@pytest.mark.parametrize(
    "call",
    [
        lambda net: rs.representation.rays(net, -1),
        lambda net: rs.representation.rays(net, 9),
        lambda net: rs.representation.rays(net, method="guess"),
        lambda net: rs.representation.rays("net"),
        lambda net: rs.representation.rays(rs.Network([([[1.0]], [0.0])])),
        lambda net: rs.representation.rays(net, method="enumeration", budget="1 regions"),
        lambda net: boundedness(net, budget="1 regions"),
        lambda net: boundedness_bounds([3]),
        lambda net: boundedness_bounds([3, 0]),
    ],
)
def test_bad_input_is_one_clear_error(call):
    with pytest.raises(InputError):
        call(random_net((2, 3, 3, 1)))
