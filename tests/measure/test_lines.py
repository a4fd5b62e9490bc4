"""Integration along lines: the tracer against another traversal, integrals against closed forms and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.special import ndtr

import reluscope as rs
from nets import integer_net, random_net
from reluscope import activations
from reluscope.errors import InputError
from reluscope.events import Event, as_event
from reluscope.measure.lines.integration import Request, integrate, segment_patterns
from reluscope.measure.regions.enumeration import enumerate_law
from reluscope.measure.shared import line_sums
from reluscope.measure.shared.trace import Tracer
from reluscope.measure.simd import steps as _simd

SAFE = 1 - 1e-7
"""Level of intervals that must hold the truth one by one: a few hundred of them, false alarms below 1e-4."""

MANY_PIECES = activations.piecewise([-1.0, 0.0, 0.5, 2.0], [0.3, -0.5, 1.0, 0.0, 2.0])
KINDS = {
    "relu": "relu",
    "leaky": activations.leaky_relu(0.1),
    "relu6": "relu6",
    "hardtanh": "hardtanh",
    "abs": "abs",
    "hard_sigmoid": "hard_sigmoid",
    "pieces": MANY_PIECES,
}


def mixed_net(seed: int) -> rs.Network:
    """ReLU, identity and hardtanh units side by side: what residual networks become."""
    rng = np.random.default_rng(seed)
    kinds = [activations.relu(), activations.identity(), activations.hardtanh()]
    layers = [
        (rng.normal(size=(m, n)), 0.3 * rng.normal(size=m), [kinds[i % 3] for i in range(m)])
        for n, m in itertools.pairwise((4, 9, 7))
    ]
    return rs.Network([*layers, (rng.normal(size=(2, 7)), rng.normal(size=2))])


NETS = {
    **{
        f"{name} {depth}": random_net((3, *[6] * depth, 2), depth, kind)
        for name, kind in KINDS.items()
        for depth in (1, 3)
    },
    "wide": random_net((5, 150, 90, 1), 0),
    "very wide": random_net((4, 700, 5, 1), 1),
    "deep": random_net((3, *[5] * 9, 1), 2),
    "many outputs": random_net((4, 12, 12, 11), 3),
    "no bias": random_net((4, 10, 10, 2), 4, bias=0.0),
    "mixed": mixed_net(5),
}


def bundle(net: rs.Network, lines: int, seed: int, reach: float = 6.0):
    rng = np.random.default_rng(seed)
    base, direction = rng.normal(size=(lines, net.n_inputs)), rng.normal(size=net.n_inputs)
    low = -reach * rng.random(lines) - 0.1
    high = reach * rng.random(lines) + 0.1
    return base, direction, low, high


def check_segments(net, base, direction, low, high, found) -> None:
    """Segments tile their lines; values, slopes and patterns are those of the network at the segments' middles."""
    stop = found.stop()
    line = np.repeat(np.arange(len(base)), np.diff(found.offsets))
    assert (np.diff(found.offsets) > 0).all()
    assert (found.t[found.offsets[:-1]] == low).all()
    assert (stop[found.offsets[1:] - 1] == high).all()
    assert (stop > found.t).all()
    middle = 0.5 * (found.t + stop)
    x = base[line] + middle[:, None] * direction
    scale = 1.0 + np.abs(found.value).max()
    y = found.value + found.slope * (middle - found.t)[:, None]
    assert np.abs(net(x) - y).max() < 1e-11 * scale
    ends = base[line] + stop[:, None] * direction
    assert np.abs(net(ends) - found.value - found.slope * (stop - found.t)[:, None]).max() < 1e-11 * scale
    if len(found.pattern):
        h = np.concatenate(net.preactivations(x)[:-1], axis=1)
        breaks = [np.pad(layer.units.breaks, ((0, 0), (0, 9)), constant_values=np.inf)[:, :9] for layer in net.hidden]
        # Units on a break point are on either side by rounding.
        clear = np.abs(h[:, :, None] - np.concatenate(breaks)).min(axis=2) > 1e-9 * (1.0 + np.abs(h).max())
        assert clear.mean() > 0.5
        assert (net.pattern(x) == found.patterns())[clear].all()


# -- the tracer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_segments_agree_with_the_cell_traversal(name):
    net = NETS[name]
    base, direction, low, high = bundle(net, 12, 7)
    found = Tracer(net)(base, direction, low, high, switches=True)
    check_segments(net, base, direction, low, high, found)
    paths = rs.along(net, base + low[:, None] * direction, base + high[:, None] * direction)
    assert (np.diff(found.offsets) == np.diff(paths.offsets)).all()
    length = np.repeat(high - low, np.diff(found.offsets))
    t = np.repeat(low, np.diff(found.offsets)) + length * paths.start
    assert np.abs(t - found.t).max() < 1e-10
    scale = np.abs(paths.slope).max()
    assert np.abs(paths.slope / length[:, None] - found.slope).max() < 1e-10 * scale
    assert (paths.pattern == found.patterns()).all()


@pytest.mark.parametrize("seed", range(8))
def test_coincident_and_dead_units_leave_no_slivers(seed):
    net = integer_net((2, 7, 6, 2), seed)
    # Whole-number lines through many coincidences.
    rng = np.random.default_rng(seed)
    base, direction = rng.integers(-2, 3, (10, 2)).astype(float), np.array([1.0, 2.0])
    low, high = np.full(10, -5.0), np.full(10, 7.0)
    found = Tracer(net)(base, direction, low, high, switches=True)
    check_segments(net, base, direction, low, high, found)
    assert (found.stop() - found.t).min() > 1e-9
    paths = rs.along(net, base + low[:, None] * direction, base + high[:, None] * direction)
    assert (np.diff(found.offsets) <= np.diff(paths.offsets)).all()


def test_duplicate_units_switch_together():
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(5, 3)), rng.normal(size=5)
    W, b = np.concatenate([W, W, -W, 3 * W]), np.concatenate([b, b, -b, 3 * b])
    net = rs.Network([(W, b), (rng.normal(size=(4, 20)), rng.normal(size=4)), (rng.normal(size=(1, 4)), None)])
    base, direction, low, high = bundle(net, 20, 1, 20.0)
    found = Tracer(net)(base, direction, low, high, switches=True)
    check_segments(net, base, direction, low, high, found)
    assert (found.stop() - found.t).min() > 1e-9


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_a_unit_that_sits_on_its_break_point_is_off(direction):
    """Without biases the second layer is exactly 0 wherever the first is off: off, from either side of the line."""
    net = rs.Network([([[1.0], [3.0]], None), ([[1.0, 0.1], [-1.0, 1 / 3]], None), ([[1.0, 1.0]], None)])
    found = Tracer(net)(np.array([[0.0]]), np.array([direction]), np.array([-2.0]), np.array([1.0]), switches=True)
    negative = found.stop() * direction <= 1e-12 if direction > 0 else found.t >= -1e-12
    patterns = found.patterns()
    assert not patterns[negative].any()
    assert patterns[~negative][:, :3].all()


def test_directions_may_differ_by_line_and_lines_may_be_empty():
    net = NETS["relu 3"]
    rng = np.random.default_rng(3)
    base, direction = rng.normal(size=(2, 30, 3))
    low, high = np.full(30, -4.0), np.full(30, 5.0)
    high[[4, 29]] = -4.0
    found = Tracer(net)(base, direction, low, high)
    assert (np.diff(found.offsets)[[4, 29]] == 0).all()
    keep = np.diff(found.offsets) > 0
    line = np.repeat(np.arange(30), np.diff(found.offsets))
    stop = found.stop()
    assert (stop[found.offsets[1:][keep] - 1] == high[keep]).all()
    x = base[line] + (0.5 * (found.t + stop))[:, None] * direction[line]
    assert np.allclose(net(x), found.value + 0.5 * found.slope * (stop - found.t)[:, None], atol=1e-12)


def test_full_buffers_are_emptied_and_tracing_goes_on():
    net = NETS["relu 3"]
    base, direction, low, high = bundle(net, 50, 2, 30.0)
    tracer = Tracer(net)
    whole = tracer(base, direction, low, high, switches=True)
    expected = [whole.offsets.copy(), whole.t.copy(), whole.value.copy(), whole.patterns()]
    for name in ("_segments", "_switches"):
        small = Tracer(net)
        setattr(small, name, 7)
        found = small(base, direction, low, high, switches=True)
        for a, b in zip(expected, [found.offsets, found.t, found.value, found.patterns()], strict=True):
            assert (a == b).all()


def test_forms_are_linear_in_the_outputs():
    net = NETS["many outputs"]
    rng = np.random.default_rng(0)
    base, direction, low, high = bundle(net, 5, 2)
    for count in (1, 2, 5, 9):
        F, c = rng.normal(size=(count, 11)), rng.normal(size=count)
        found = Tracer(net, F, c)(base, direction, low, high)
        check_segments(net.then(F, c), base, direction, low, high, found)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 11), min_size=1, max_size=4), st.sampled_from(sorted(KINDS)))
def test_tracing_random_networks(seed, widths, kind):
    net = random_net((3, *widths, 1), seed, KINDS[kind], bias=0.5)
    base, direction, low, high = bundle(net, 4, seed, 10.0)
    found = Tracer(net)(base, direction, low, high, switches=True)
    check_segments(net, base, direction, low, high, found)


def test_long_lines_keep_their_accuracy():
    """Hundreds of rank-one updates: the values at the far end are still those of the network."""
    net = random_net((6, 300, 40, 1), 0)
    base, direction, _, _ = bundle(net, 10, 0)
    found = Tracer(net)(base, direction, np.full(10, -38.5), np.full(10, 38.5))
    check_segments(net, base, direction, np.full(10, -38.5), np.full(10, 38.5), found)
    end = net(base + 38.5 * direction)
    last = found.offsets[1:] - 1
    got = found.value[last] + found.slope[last] * (38.5 - found.t[last])[:, None]
    assert np.abs(got - end).max() < 1e-12 * np.abs(end).max()


def test_too_large_networks_are_refused():
    from reluscope.measure.shared import trace

    net = rs.Network([(np.ones((9000, 1)), None), (np.ones((1, 9000)), None)])
    assert trace.LARGEST_TABLES < 9000 * 9000
    with pytest.raises(InputError, match="points"):
        Tracer(net)


# -- vector steps --------------------------------------------------------------------------------------------------

FULL, NONE = 24, np.uint64(0)


@njit
def _compiled_steps(S, V, HI, LO, columns, live, factors, weights, total, out, bias):
    a = _simd.advance(S, V, HI, LO, np.uint64(8), 0.5, 2)
    b = _simd.advance_switched(S, V, HI, LO, np.uint64(8), -0.7, 2, columns, np.uint64(1), 1, 1.5)
    c = _simd.advance_summed(S, V, HI, LO, np.uint64(0), 0.3, 3, columns, np.uint64(2), 0, -0.2, weights, total)
    _simd.add_column(S, np.uint64(8), columns, np.uint64(0), 0.25, 1)
    _simd.add_columns(out, np.uint64(0), bias, 1, columns, live, factors, np.uint64(3), 3)
    d = _simd.weighted_sum(columns, 2, V, S, np.uint64(0), 3)
    e = _simd.count_below(V, np.uint64(3), np.uint64(11), 0.1)
    return a, b, c, d, e, _simd.lowest_bit(np.uint64(40))


def test_vector_steps_agree_with_their_plain_versions():
    rng = np.random.default_rng(0)
    for _ in range(20):
        S, V, weights = rng.normal(size=(3, FULL))
        HI, LO = 0.5 + rng.random(FULL), -0.5 - rng.random(FULL)
        columns, bias = rng.normal(size=(4, FULL)), rng.normal(size=(2, FULL))
        live, factors = np.array([3, 0, 2, 9], np.uint64), rng.normal(size=4)
        total, out = np.array([0.5]), np.zeros(FULL)
        mine = [x.copy() for x in (S, V, HI, LO, columns, live, factors, weights, total, out, bias)]
        got = _compiled_steps(*mine)
        a = _simd._plain_advance(S, V, HI, LO, 8, 0.5, 2)
        b = _simd._plain_advance_switched(S, V, HI, LO, 8, -0.7, 2, columns, 1, 1, 1.5)
        c = _simd._plain_advance_summed(S, V, HI, LO, 0, 0.3, 3, columns, 2, 0, -0.2, weights, total)
        _simd._plain_add_column(S, 8, columns, 0, 0.25, 1)
        _simd._plain_add_columns(out, 0, bias, 1, columns, live, factors, 3, 3)
        d = _simd._plain_weighted_sum(columns, 2, V, S, 0, 3)
        assert got[:3] == (a, b, c)
        assert math.isclose(got[3], d, rel_tol=1e-12, abs_tol=1e-13)
        assert got[4] == _simd._plain_count_below(V, 3, 11, 0.1)
        assert got[5] == _simd._plain_lowest_bit(40) == 3
        for plain, compiled in zip((S, V, total, out), (mine[0], mine[1], mine[8], mine[9]), strict=True):
            assert np.allclose(plain, compiled, rtol=1e-13, atol=1e-14)


# -- laws along a line ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("r", [1, 2, 3, 4, 7, 16, 33])
def test_radial_law_is_the_chi_law(r):
    t = np.array([0.0, 1e-3, 0.3, 1.0, 2.5, 6.0, 12.0, 30.0])
    tail_of = njit(lambda x: line_sums.radial_tail(x, r))  # parts of kernels have no entry for Python
    tail = np.array([tail_of(x) for x in t])
    exact = scipy.stats.chi.sf(t, r)
    assert np.allclose(tail, exact, rtol=1e-11, atol=0)
    density_of = njit(lambda x: line_sums.radial_density(x, r))
    density = np.array([density_of(x) for x in t[1:]])
    assert np.allclose(2 * density, scipy.stats.chi.pdf(t[1:], r), rtol=1e-11)


# -- integrals: closed forms ---------------------------------------------------------------------------------------

LINEAR = rs.Network([([[1.0, -2.0, 0.5], [0.3, 0.1, 2.0], [0.0, 1.0, 0.0]], [0.2, -1.0, 0.0])])
"""y = (x0 - 2 x1 + x2/2 + 0.2, 0.3 x0 + 0.1 x1 + 2 x2 - 1, x1)."""


def test_linear_network_has_the_normal_law():
    law = rs.Gaussian(np.zeros(3), 1.0)
    sd = math.sqrt(5.25)
    c = np.array([-9.0, -1.0, 0.2, 3.0, 25.0])
    z = (c - 0.2) / sd
    request = Request(levels={0: c}, density=True, moments=True)
    found = integrate(LINEAR, law, request, lines=64, direction=[1.0, -2.0, 0.5], rng=0)
    level = found.levels[0]
    # Along the gradient every line is the same: no sampling error at all, also far out in the tails.
    assert np.allclose(level.cdf.value, ndtr(z), rtol=1e-11, atol=0)
    assert np.allclose(level.sf.value, ndtr(-z), rtol=1e-11, atol=0)
    assert level.sf.value[-1] < 1e-25
    assert np.allclose(level.pdf.value, scipy.stats.norm.pdf(z) / sd, rtol=1e-11, atol=0)
    A, b = LINEAR.layers[0].weight, LINEAR.layers[0].bias
    rough = integrate(LINEAR, law, request, lines=4096, direction="random", level=SAFE, rng=0)
    covers(rough.levels[0].cdf, ndtr(z))
    covers(rough.mean, b)
    covers(rough.second, A @ A.T + np.outer(b, b))


def covers(found, exact) -> None:
    slack = 1e-9 * np.abs(exact) + 1e-13
    assert (found.lower <= exact + slack).all(), (found.lower, exact)
    assert (found.upper >= exact - slack).all(), (found.upper, exact)


DIRECTIONS = ["gradient", "mean", "edge", "tail", "radial", "random"]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_events_of_independent_outputs(direction):
    # Turned, so that the edges of the events do not run along the coordinates.
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    net = rs.Network([(Q, np.zeros(4), "identity"), ([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 1.0]], None)])
    law = rs.Gaussian(np.zeros(4), 1.0)
    both = Event.below([[1.0, 0, 0], [0, 1.0, 0]], [-0.5, 0.7], net.n_inputs)
    either = Event.below([1.0, 0, 0], -0.5, net.n_inputs) | Event.below(
        [[0, 1.0, 0], [0, 0, 1.0]], [0.7, 0.0], net.n_inputs
    )
    p, q, s = ndtr(-0.5), ndtr(0.7), 0.5
    whole = Event.below([0.0, 0, 0], 1.0, net.n_inputs)
    none = Event.below([0.0, 0, 0], -1.0, net.n_inputs)
    found = integrate(
        net, law, Request(events=[both, either, whole, none]), lines=4096, direction=direction, level=SAFE, rng=1
    )
    covers(found.events, np.array([p * q, p + q * s - p * q * s, 1.0, 0.0]))
    assert (found.events.upper - found.events.lower)[:2].max() < 0.08


def test_largest_output_probabilities_sum_to_one():
    net = random_net((4, 10, 3), 2)
    law = rs.Gaussian(np.zeros(4), 1.0)
    found = integrate(net, law, Request(events=[as_event(f"argmax == {i}", net) for i in range(3)]), lines=512, rng=0)
    assert abs(found.events.value.sum() - 1.0) < 1e-12


@pytest.mark.parametrize("r", [1, 2, 4])
def test_a_rectified_output_has_an_atom(r):
    """y = max(a x + 1/2, 0): P(y = 0) = Phi(-0.5/|a|), and the cdf jumps exactly there."""
    a = np.full(r, 0.8)
    net = rs.Network([(a[None], [0.5], "relu")])
    law = rs.Gaussian(np.zeros(r), 1.0)
    p = ndtr(-0.5 / np.linalg.norm(a))
    found = integrate(
        net, law, Request(levels=[-1e-6, 0.0, 1.0], atoms=True), lines=64, direction=a if r > 1 else "auto", rng=0
    )
    assert np.allclose(found.levels[0].cdf.value, [0.0, p, ndtr(0.5 / np.linalg.norm(a))], atol=1e-13)
    assert np.allclose(found.atoms[0].value, [0.0], atol=1e-12)
    assert np.allclose(found.atoms[0].mass.value, [p], rtol=1e-12)
    strict = integrate(
        net,
        law,
        Request(events=[Event.below([1.0], 0.0, net.n_inputs), Event.below([1.0], 0.0, net.n_inputs, strict=True)]),
        lines=64,
        direction=a if r > 1 else "auto",
        rng=0,
    )
    assert np.allclose(strict.events.value, [p, 0.0], atol=1e-13)


def test_flat_stretches_that_are_no_atoms_are_not_reported():
    """y = x1 is constant along x0, at another value on every line."""
    net = rs.Network([([[1.0, 0.0], [0.0, 1.0]], None), ([[0.0, 1.0]], None)])
    found = integrate(net, rs.Gaussian([0.0, 3.0], 1.0), Request(atoms=True), lines=256, direction=[1.0, 0.0], rng=0)
    assert (found.atoms[0].value == 0.0).all()  # the unit is off at x1 < 0, and that is an atom
    assert len(found.atoms[0].value) <= 1


# -- integrals: enumeration ----------------------------------------------------------------------------------------


def enumerated(net: rs.Network, law) -> dict[bytes, float]:
    """Exact masses of all patterns."""
    out: dict[bytes, float] = {}
    for part in enumerate_law(net, law):
        for pattern, mass in zip(part.regions.pattern, part.masses.value, strict=True):
            key = pattern.tobytes()
            out[key] = out.get(key, 0.0) + part.component.weight * float(mass)
    return out


def exact_cdf(net: rs.Network, law, thresholds) -> np.ndarray:
    """P(y <= c) by enumeration, independent of lines: one more unit relu(y - c), off with that probability."""
    out = []
    for c in thresholds:
        longer = rs.Network(
            [*net.layers[:-1], (net.layers[-1].weight, net.layers[-1].bias - c, "relu"), ([[1.0]], None)]
        )
        out.append(sum(p for key, p in enumerated(longer, law).items() if key[-1] == 0))
    return np.array(out)


LAWS = {
    "gaussian 2": rs.Gaussian([0.3, -0.2], [[1.0, 0.4], [0.4, 0.7]]),
    "gaussian 3": rs.Gaussian([0.1, 0.0, -0.4], np.diag([1.0, 0.5, 2.0])),
    "mixture": rs.GaussianMixture([0.3, 0.7], [rs.Gaussian([1.0, 0.0], 1.0), rs.Gaussian([-1.0, 0.5], 0.3)]),
    "uniform": rs.Uniform([-1.0, -2.0], [1.5, 1.0]),
    "truncated": rs.Truncated(rs.Gaussian([0.0, 0.5], 1.0), [-1.0, -np.inf], [2.0, 1.0]),
    "chords": rs.Truncated(rs.Gaussian([0.0, 0.5], [[1.0, 0.6], [0.6, 1.0]]), [-1.0, -np.inf], [2.0, 1.0]),
}


@pytest.mark.parametrize("method", ["lines", "points"])
@pytest.mark.parametrize("name", LAWS)
def test_estimates_hold_the_enumerated_truth(name, method):
    law = LAWS[name]
    net = random_net((law.n, 5, 4, 1), 11)
    c = np.array([-0.5, 0.0, 0.4, 1.0])
    exact = enumerated(net, law)
    assert abs(sum(exact.values()) - 1.0) < 1e-6
    request = Request(levels=c, marginals=True, patterns=500)
    found = integrate(net, law, request, lines=4096, method=method, level=SAFE, rng=3)
    assert found.method == method
    covers(found.levels[0].cdf, exact_cdf(net, law, c))
    covers(found.levels[0].sf, 1 - exact_cdf(net, law, c))
    assert abs(found.patterns.mass.value.sum() + found.patterns.rest - 1.0) < 1e-9
    truth = np.array([exact.get(p.tobytes(), 0.0) for p in found.patterns.pattern])
    heavy = truth > 1e-3
    assert heavy.sum() > 5
    assert (found.patterns.mass.lower[heavy] <= truth[heavy]).all()
    assert (found.patterns.mass.upper[heavy] >= truth[heavy]).all()
    on = np.zeros(net.n_units)
    for key, p in exact.items():
        on += p * np.frombuffer(key, np.uint8)
    covers(found.marginals, np.column_stack([1 - on, on]))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_direction_estimates_the_same(direction):
    law, net = LAWS["gaussian 3"], random_net((3, 6, 5, 1), 4)
    c = np.quantile(net(law.sample(4000, 0)), [0.02, 0.5, 0.98])
    found = integrate(
        net, law, Request(levels=c, moments=True), lines=4096, direction=direction, interval="block", level=SAFE, rng=2
    )
    covers(found.levels[0].cdf, exact_cdf(net, law, c))
    first, second = exact_moments(net, law)
    covers(found.mean, first)
    covers(found.second, second)


def exact_moments(net: rs.Network, law) -> tuple[np.ndarray, np.ndarray]:
    """E y and E y y' as sums over regions, each by the moments of the law on its polytope."""
    first, second = np.zeros(net.n_outputs), np.zeros((net.n_outputs, net.n_outputs))
    for part in enumerate_law(net, law):
        u_law = rs.Gaussian(np.zeros(part.component.r), 1.0)
        for pattern in part.regions.pattern:
            cell = part.component.network.polytope(pattern)
            C, d = (x[0] for x in part.component.network.output_maps(pattern[None]))
            m = rs.measure.moments(cell.A, cell.b, u_law)
            first += C @ m.first + d * m.mass
            cross = np.outer(C @ m.first, d)
            second += C @ m.second @ C.T + cross + cross.T + m.mass * np.outer(d, d)
    return first, second


def test_density_is_the_derivative_of_the_cdf():
    law, net = LAWS["gaussian 2"], random_net((2, 5, 4, 1), 11)
    c, h = np.array([-0.2, 0.1, 0.6]), 1e-4
    slope = (exact_cdf(net, law, c + h) - exact_cdf(net, law, c - h)) / (2 * h)
    found = integrate(net, law, Request(levels=c, density=True), lines=1 << 15, interval="block", level=SAFE, rng=5)
    covers(found.levels[0].pdf, slope)
    assert np.abs(found.levels[0].pdf.value - slope).max() < 0.02 * slope.max()


def test_atoms_of_a_network_with_a_dead_region():
    law, net = LAWS["gaussian 3"], random_net((3, 3, 3, 1), 1)
    exact = enumerated(net, law)
    # Where the last layer is off, the output is its bias.
    off = sum(p for key, p in exact.items() if not any(key[-3:]))
    assert 0.02 < off < 0.98
    found = integrate(net, law, Request(atoms=True), lines=4096, level=SAFE, rng=0).atoms[0]
    k = int(np.argmin(np.abs(found.value - net.layers[-1].bias[0])))
    assert abs(found.value[k] - net.layers[-1].bias[0]) < 1e-9
    # Constant also where the layer before is off, which may be the same value or another.
    assert found.mass.upper[k] >= off
    assert found.mass.lower[k] <= off + sum(p for key, p in exact.items() if not any(key[:3]))


def test_weighted_segments_give_the_law_of_the_jacobian():
    law, net = LAWS["gaussian 3"], random_net((3, 5, 4, 2), 6)
    total, size = 0.0, np.zeros(2)
    for weight, seen, mass, pattern in segment_patterns(net, law, 2048, rng=0):
        C, _ = seen.output_maps(pattern)
        total += weight * mass.sum()
        size += weight * np.einsum("n,noi->o", mass, C**2)
    exact = np.zeros(2)
    for part in enumerate_law(net, law):
        C, _ = part.component.network.output_maps(part.regions.pattern)
        exact += np.einsum("n,noi->o", part.masses.value, C**2)
    assert abs(total - 1.0) < 1e-12
    assert np.abs(size / exact - 1.0).max() < 0.02


# -- laws without sampling -----------------------------------------------------------------------------------------


def test_one_dimension_points_and_constants_are_exact():
    net = random_net((1, 6, 5, 1), 3)
    c = np.array([-0.3, 0.2, 0.9])
    request = Request(levels=c, marginals=True, patterns=100, moments=True)
    for law in (
        rs.Gaussian([0.4], 2.0),
        rs.Uniform([-1.0], [2.0]),
        rs.Truncated(rs.Gaussian([0.0], 1.0), [-0.5], [3.0]),
    ):
        found = integrate(net, law, request)
        assert found.interval == "exact"
        assert np.allclose(found.levels[0].cdf.value, exact_cdf(net, law, c), atol=1e-12)
        for pattern, mass in zip(found.patterns.pattern, found.patterns.mass.value, strict=True):
            assert abs(enumerated(net, law)[pattern.tobytes()] - mass) < 1e-12
    points = rs.Particles(np.array([[0.0], [1.0], [2.0]]), [0.2, 0.3, 0.5])
    y = net(points.points)[:, 0]
    found = integrate(net, points, request)
    assert found.interval == "exact"
    assert np.allclose(found.levels[0].cdf.value, (y[:, None] <= c).T @ [0.2, 0.3, 0.5], atol=1e-15)
    assert np.allclose(found.mean.value, [y @ [0.2, 0.3, 0.5]], atol=1e-15)
    flat = rs.Network([([[0.0, 0.0]], [1.0]), ([[2.0]], [0.5])])
    found = integrate(flat, rs.Gaussian([0.0, 0.0], 1.0), Request(levels=[2.0, 2.5, 3.0], atoms=True))
    assert found.interval == "exact"
    assert found.levels[0].cdf.value.tolist() == [0.0, 1.0, 1.0]
    assert found.atoms[0].value.tolist() == [2.5]


# -- intervals -----------------------------------------------------------------------------------------------------


def coverage(interval: str, repetitions: int, level: float, seed: int) -> int:
    """How often the interval of one event, on one network, misses the enumerated truth."""
    law, net = LAWS["mixture"], random_net((2, 5, 4, 1), 11)
    (truth,) = exact_cdf(net, law, [0.4])
    request = Request(levels=[0.4])
    misses = 0
    for k in range(repetitions):
        found = integrate(
            net, law, request, lines=256, interval=interval, level=level, direction="random", rng=seed + k
        )
        misses += not found.levels[0].cdf.lower[0] <= truth <= found.levels[0].cdf.upper[0]
    return misses


@pytest.mark.parametrize("interval", ["replicate", "block", "finite-sample"])
def test_intervals_cover(interval):
    # 60 intervals of level 0.9 miss more than 16 with probability 1e-4 when they miss one in ten.
    assert coverage(interval, 60, 0.9, 1000) <= 16


@pytest.mark.slow
@pytest.mark.parametrize("interval", ["replicate", "block", "finite-sample"])
def test_intervals_cover_at_length(interval):
    # 500 intervals of level 0.99 miss more than 15 with probability 7e-5 when they miss one in a hundred.
    assert coverage(interval, 500, 0.99, 50_000) <= 15


def test_finite_sample_intervals_of_patterns_and_mixtures():
    law, net = LAWS["mixture"], random_net((2, 5, 4, 1), 11)
    exact = enumerated(net, law)
    found = integrate(
        net, law, Request(levels=[0.4], patterns=500), lines=4000, interval="finite-sample", level=SAFE, rng=0
    )
    assert found.interval == "finite-sample"
    covers(found.levels[0].cdf, exact_cdf(net, law, [0.4]))
    for pattern, low, high in zip(
        found.patterns.pattern, found.patterns.mass.lower, found.patterns.mass.upper, strict=True
    ):
        assert low <= exact.get(pattern.tobytes(), 0.0) <= high


def test_one_sequence_is_more_accurate_than_many_scrambles():
    """The value of a block run has the accuracy of the whole sequence: a fixed comparison over 20 seeds."""
    law, net = rs.Gaussian(np.zeros(3), 1.0), random_net((3, 8, 8, 1), 5)
    truth = exact_cdf(net, law, [0.5])
    error = {}
    for interval in ("replicate", "block"):
        found = [
            integrate(net, law, Request(levels=[0.5]), lines=2048, interval=interval, direction="gradient", rng=k)
            for k in range(20)
        ]
        error[interval] = np.sqrt(np.mean([(f.levels[0].cdf.value - truth) ** 2 for f in found]))
    assert error["block"] < 0.8 * error["replicate"]


# -- the front door ------------------------------------------------------------------------------------------------


def test_a_seed_and_a_number_of_lines_say_it_all():
    law, net = LAWS["mixture"], random_net((2, 5, 4, 1), 11)
    request = Request(levels=[0.1, 0.4], patterns=50)
    for interval in ("replicate", "block", "finite-sample"):
        a, b = (integrate(net, law, request, lines=512, interval=interval, rng=5) for _ in range(2))
        assert (a.levels[0].cdf.value == b.levels[0].cdf.value).all()
        assert (a.patterns.mass.upper == b.patterns.mass.upper).all()
        other = integrate(net, law, request, lines=512, interval=interval, rng=6)
        assert (a.levels[0].cdf.value != other.levels[0].cdf.value).any()


def test_budget_and_tolerance_set_the_size():
    law, net = rs.Gaussian(np.zeros(4), 1.0), random_net((4, 12, 12, 1), 0)
    request = Request(levels=[0.0, 1.0])
    loose = integrate(net, law, request, tolerance=0.01, budget="5s", rng=0)
    half = 0.5 * (loose.levels[0].cdf.upper - loose.levels[0].cdf.lower)
    assert half.max() < 0.015
    short = integrate(net, law, request, budget="0.1s", rng=0)
    assert short.lines >= 64
    assert short.seconds < 300.0  # a hang
    hopeless = integrate(net, law, request, tolerance=1e-12, budget="0.1s", rng=0)
    assert "tolerance" in hopeless.note


def test_deep_networks_fall_back_to_points_and_rare_events_do_not():
    law, deep = rs.Gaussian(np.zeros(6), 1.0), random_net((6, *[40] * 8, 1), 0)
    assert integrate(deep, law, Request(levels=[0.0]), budget="0.3s", rng=0).method == "points"
    rare = integrate(LINEAR, rs.Gaussian(np.zeros(3), 1.0), Request(levels={0: [15.0]}), budget="0.3s", rng=0)
    assert rare.method == "lines"
    exact = ndtr(-(15.0 - 0.2) / math.sqrt(5.25))
    assert abs(rare.levels[0].sf.value[0] / exact - 1) < 1e-3


def test_many_components():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(60, 3))
    law = rs.GaussianMixture(np.full(60, 1 / 60), [rs.Gaussian(m, 0.05) for m in means])
    net = random_net((3, 6, 1), 1)
    found = integrate(net, law, Request(levels=[0.2]), lines=8000, level=SAFE, rng=0)
    covers(found.levels[0].cdf, exact_cdf(net, law, [0.2]))


def test_unused_columns_and_projection():
    """A first layer of 6 units before 200 inputs: the lines live in 6 dimensions."""
    rng = np.random.default_rng(2)
    net = rs.Network([(rng.normal(size=(6, 200)) / 14, rng.normal(size=6)), (rng.normal(size=(1, 6)), None)])
    law = rs.Gaussian(np.zeros(200), 1.0)
    y = net(law.sample(200_000, 1))
    c = float(np.median(y))
    found = integrate(net, law, Request(levels=[c]), lines=4096, level=SAFE, rng=0)
    assert abs(found.levels[0].cdf.value[0] - 0.5) < 6 * 0.5 / math.sqrt(200_000) + 1e-3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"interval": "clt"}, "interval"),
        ({"method": "magic"}, "method"),
        ({"direction": "up"}, "direction"),
        ({"direction": [1.0, 2.0, 3.0]}, "direction"),
        ({"direction": [0.0, 0.0]}, "direction"),
        ({"level": 1.0}, "level"),
        ({"level": math.nan}, "level"),
        ({"lines": 0}, "lines"),
        ({"lines": 2.5}, "lines"),
        ({"lines": 1 << 35}, "fewer lines"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"replicates": 1}, "replicates"),
        ({"budget": None, "lines": None}, "budget"),
        ({"budget": "soon"}, "budget"),
        ({"rng": -1}, "rng"),
    ],
)
def test_bad_arguments_are_named(change, words):
    net, law = random_net((2, 3, 1), 0), rs.Gaussian([0.0, 0.0], 1.0)
    arguments = {"lines": 64, **change}
    with pytest.raises(InputError, match=words):
        integrate(net, law, Request(levels=[0.0]), **arguments)


@pytest.mark.parametrize(
    "request_",
    [
        Request(),
        Request(levels={3: [0.0]}),
        Request(levels=[math.nan]),
        Request(levels={0: [[1.0]]}),
        Request(events=["y > 0"]),
        Request(events=[rs.event("unit[0,0] on", 2, 1)]),
        Request(events=[Event.below([1.0, 2.0], 0.0, 2)]),
        Request(patterns=-1),
        "cdf",
    ],
)
def test_bad_requests_are_refused(request_):
    net, law = random_net((2, 3, 1), 0), rs.Gaussian([0.0, 0.0], 1.0)
    with pytest.raises(InputError):
        integrate(net, law, request_, lines=64)


def test_what_a_kind_of_interval_or_method_cannot_do_is_refused():
    net, law = random_net((2, 3, 1), 0), rs.Gaussian([0.0, 0.0], 1.0)
    with pytest.raises(InputError, match="replicate"):
        integrate(net, law, Request(moments=True), lines=64, interval="finite-sample")
    with pytest.raises(InputError, match="lines"):
        integrate(net, law, Request(levels=[0.0], density=True), lines=64, method="points")
    with pytest.raises(InputError, match="axis"):
        integrate(net, rs.Uniform([0.0, 0.0], [1.0, 1.0]), Request(levels=[0.0]), lines=64, direction=[1.0, 1.0])
    with pytest.raises(InputError, match="rows"):
        Event.below([[1.0], [2.0]], [0.0], 2)
