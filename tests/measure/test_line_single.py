"""Points in single precision: the same sides of thresholds as in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.special import ndtr, ndtri

import reluscope as rs
from nets import random_net
from reluscope.activations import Activation, leaky_relu
from reluscope.events import Event
from reluscope.measure.lines.integration import Request, integrate
from reluscope.measure.points import single as _line_single
from reluscope.measure.points.single import SIDE, SingleForms
from reluscope.measure.points.small import SmallForms
from reluscope.measure.polytope.sobol import direction_table
from reluscope.measure.shared.draws import SobolDraws, _table
from reluscope.network import Network

STAIRS = Activation((-0.5, 0.25, 1.0), (0.5, 0.0, 2.0, -0.1), (0.1, -0.15, -0.65, 1.45), "stairs")


@njit
def _normal_row(lanes, bits):
    _line_single.normal_row(lanes, np.uint64(0), bits, np.uint64(0), np.uint64(0))


@njit
def _mix(lanes, packed, bias, n, kind, slopes):
    _line_single.mix_singles(
        lanes, np.uint64(8), np.uint64(0), packed, np.uint64(0), bias, np.uint64(0), np.uint64(n), kind,
        np.uint64(12), np.float32(0.5), slopes,
    )  # fmt: skip


def _bits(rng, *shape):
    """Random bits, many of them near both ends of the range."""
    bits = rng.integers(0, 2**32, shape, dtype=np.uint32)
    bits >>= rng.integers(0, 32, shape, dtype=np.uint32) * (rng.random(shape) < 0.5)
    return np.where(rng.random(shape) < 0.5, bits, ~bits)


def test_normal_numbers():
    rng = np.random.default_rng(0)
    lanes, plain = np.zeros((2, 1, SIDE), np.float32)
    for i in range(300):
        bits = _bits(rng, 1, SIDE)
        if i == 0:
            bits[0, :4] = [0, 2**32 - 1, 2**31, 2**31 - 1]
        _normal_row(lanes, bits)
        _line_single._plain_normal_row(plain, 0, bits, 0, 0)
        assert np.array_equal(lanes, plain)
        z = ndtri((bits[0] + 0.5) / 2**32)
        # Near 0 the spacing of single numbers below 1/2 counts.
        assert (np.abs(lanes[0] - z) <= 1e-6 * np.abs(z) + 1e-7).all()
        assert (np.abs(ndtr(lanes[0].astype(float)) - (bits[0] + 0.5) / 2**32) <= 1e-7).all()
    assert np.abs(lanes).max() <= 6.34


def test_layers_agree_with_their_plain_versions():
    rng = np.random.default_rng(1)
    start = rng.normal(size=(13, SIDE)).astype(np.float32)
    start[12] = 1.0
    weights, bias = rng.normal(size=4 * 7).astype(np.float32), rng.normal(size=4).astype(np.float32)
    slopes = rng.normal(size=(2, 4)).astype(np.float32)
    for kind in (0, 1, 2):
        lanes, plain = start.copy(), start.copy()
        _mix(lanes, weights, bias, 7, kind, slopes)
        _line_single._plain_mix_singles(plain, 8, 0, weights, 0, bias, 0, 7, kind, 12, np.float32(0.5), slopes)
        assert np.allclose(lanes, plain, rtol=1e-5, atol=1e-5)
        assert (lanes[12] > 1.0).any() == (kind > 0)
        assert np.array_equal(lanes[:8], start[:8])


def test_bits_are_the_leading_digits_of_the_points():
    one, other = (SobolDraws(5, 4, 1000, np.random.default_rng(0), per_scramble=2) for _ in range(2))
    bits = np.zeros((5, 1024), np.uint32)
    for group in range(4):
        points = np.empty((1000, 5))
        one.fill(group, points)
        for begin, end in ((0, 50), (50, 630), (630, 1000)):
            other.fill_bits(group, bits, begin, end)
        assert np.array_equal(np.floor(points.T * 2.0**32).astype(np.uint32), bits[:, :1000])


@pytest.mark.parametrize("dimensions, bits", [(1, 14), (7, 22), (300, 18)])
def test_direction_numbers(dimensions, bits, monkeypatch):
    expected = direction_table(dimensions, bits)
    assert np.array_equal(_table.__wrapped__(dimensions, bits), expected)
    monkeypatch.setattr("scipy.stats.qmc.Sobol._sv", None, raising=False)
    assert np.array_equal(_table.__wrapped__(dimensions, bits), expected)


def _normal_points(bits):
    lanes = np.zeros(bits.shape, np.float32)
    for k in range(len(bits)):
        for begin in range(0, bits.shape[1], SIDE):
            _line_single._plain_normal_row(lanes[k : k + 1, begin : begin + SIDE], 0, bits, k, begin)
    return lanes.T.astype(float)


def _both(single, bits):
    """Values as they come, and in double precision at the same points."""
    return single(bits, bits.shape[1]), single.exact(_normal_points(bits))


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([(1, 4, 1), (5, 50, 50, 1), (16, 16, 16, 16, 3), (4, *[8] * 10, 1), (3, 2)]),
    st.integers(0, 1000),
    st.integers(1, 100),
    st.sampled_from(["relu", "abs", leaky_relu(0.1), "relu6", STAIRS]),
)
def test_sides_are_those_of_double_precision(widths, seed, many, kind):
    """Thresholds are values at the points themselves: nearer is not possible."""
    net, rng = random_net(widths, seed, kind), np.random.default_rng(seed)
    forms, bits = rng.normal(size=(2, widths[-1])), _bits(rng, widths[0], 64 * 128)
    points = SingleForms(net, forms, np.eye(widths[0]), [[], []]).exact
    exact = points(_normal_points(bits))
    limits = [exact[:many, 0], np.array([np.median(exact[:, 1]), -np.inf, np.inf])]
    values = SingleForms(net, forms, np.eye(widths[0]), limits)(bits, bits.shape[1])
    assert np.allclose(exact, net(_normal_points(bits)) @ forms.T, rtol=1e-10, atol=1e-10 * np.abs(exact).max())
    for f in range(2):
        # A matrix product may round otherwise in a batch of another size.
        sure = kind == "relu" or np.abs(exact[:, f, None] - limits[f]) > 1e-12 * np.abs(exact).max()
        assert np.array_equal((values[:, f, None] <= limits[f]) & sure, (exact[:, f, None] <= limits[f]) & sure)
        assert np.array_equal((values[:, f, None] < limits[f]) & sure, (exact[:, f, None] < limits[f]) & sure)


def test_points_are_on_the_wrong_side_without_a_second_look():
    net, rng = random_net((5, 50, 50, 1), 0), np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (5, 64 * 8), np.uint32)
    limits = SmallForms(net, np.eye(1), np.eye(5))(_normal_points(bits))[:, 0]
    single = SingleForms(net, np.eye(1), np.eye(5), [limits])
    values, exact = _both(single, bits)
    assert np.array_equal(values <= limits, exact <= limits)
    single._margin[:] = 0.0
    values, exact = _both(single, bits)
    assert ((values <= limits) != (exact <= limits)).sum() > 50


def test_cancellation_that_the_trial_did_not_meet():
    """Beyond u = 4.5, met by 3 draws in a million, two huge terms cancel: single precision is off by thousands."""
    net = Network([([[1.0], [1e7], [1e7]], [0.0, -4.5e7, -4.5e7]), ([[1.0, 1e3, -1e3]], [0.0])])
    rng = np.random.default_rng(0)
    single = SingleForms(net, np.eye(1), np.eye(1), [np.array([4.7])])
    assert single.share_again <= 0.05
    # q = (bits + 1/2) / 2^32 between Φ(-5.2) and Φ(-4.5): bits between 430 and 14600, above the median.
    bits = ~rng.integers(430, 14600, (1, 64 * 64), dtype=np.uint32)
    values, exact = _both(single, bits)
    assert np.array_equal(values <= 4.7, exact <= 4.7)
    assert 0.1 < (values <= 4.7).mean() < 0.9


def _rectified(scale, shift, out):
    """out * max(0, scale * u1 + shift) + 1e-3 * out * max(0, scale * u2) under N(0, I_2)."""
    return Network([([[scale, 0.0], [0.0, scale]], [shift, 0.0]), ([[out, 1e-3 * out]], [0.0])])


@pytest.mark.parametrize(
    "net, limit",
    [
        (_rectified(1.0, -1.0, 2.0), 0.0),  # an atom of 42 % at the threshold
        (_rectified(1e39, 0.0, 1.0), 0.5),
        (_rectified(1e-42, 0.0, 1.0), 1e-43),
        (random_net((2, 3, 1), 0, Activation(range(5), (0, 1, 0, 1, 0, 1), (0, 0, 1, -1, 2, -2))), 0.1),  # five breaks
    ],
)
def test_where_single_precision_does_not_pay(net, limit):
    assert SingleForms.suited(net, np.eye(1), np.eye(2), [np.array([limit])]) is None
    law = rs.Gaussian(np.zeros(2), 1.0)
    found = integrate(net, law, Request(levels=[limit]), lines=1 << 12, method="points", rng=0).levels[0].cdf
    share = (net(law.sample(100_000, 0))[:, 0] <= limit).mean()
    assert found.lower[0] - 0.01 <= share <= found.upper[0] + 0.01


def test_units_of_different_kinds_in_one_layer():
    rng = np.random.default_rng(3)
    kinds = ["relu", "relu6", STAIRS, "identity", leaky_relu(0.2), "abs"]
    net = Network([(rng.normal(size=(6, 3)), rng.normal(size=6), kinds), (rng.normal(size=(1, 6)), [0.1])])
    bits = _bits(rng, 3, 64 * 64)
    limit = np.median(net(_normal_points(bits)))
    single = SingleForms.suited(net, np.eye(1), np.eye(3), [np.array([limit])])
    assert single is not None
    values, exact = _both(single, bits)
    assert np.array_equal(values <= limit, exact <= limit)
    assert np.abs(values - exact).max() < 1e-4


def test_units_of_any_scale():
    limits = [np.array([0.5])]
    assert SingleForms.suited(_rectified(1e39, 0.0, 1e-39), np.eye(1), np.eye(2), limits) is not None


@pytest.mark.parametrize("interval", ["replicate", "block", "finite-sample"])
def test_levels_and_events_by_points(interval):
    """Against a linear network's closed form."""
    from scipy.stats import norm

    law = rs.Gaussian(np.zeros(2), 1.0)
    net = Network([([[0.6, 0.8], [-0.6, -0.8]], [0.25, -0.25]), ([[1.0, -1.0]], None)])
    c = np.array([-2.0, 0.0, 1.0, 5.0])
    request = Request(levels=c, events=(Event.below([1.0], 1.0, net.n_inputs),))
    found = integrate(net, law, request, lines=100_003, method="points", interval=interval, level=1 - 1e-6, rng=3)
    truth, cdf = norm.cdf(c - 0.25), found.levels[0].cdf
    assert (cdf.lower <= truth).all() and (truth <= cdf.upper).all()
    assert found.events.value[0] == pytest.approx(cdf.value[2], abs=1e-15)
