"""Numbers of a cloud against closed forms, plain numpy and their symmetries."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reluscope.errors import InputError
from reluscope.representation.metrics import (
    angles,
    expected_angle,
    mean_width,
    row_norms,
    spectrum_of,
    stable_rank,
)

shapes = st.tuples(st.integers(2, 40), st.integers(1, 8), st.integers(0, 10_000))


def cloud(shape):
    n, d, seed = shape
    return np.random.default_rng(seed).normal(size=(n, d)) @ np.diag(0.5 ** np.arange(d)) + 1.0


@given(shapes)
def test_spectrum_is_that_of_plain_svd(shape):
    Z = cloud(shape)
    found = spectrum_of(Z, 0.0)
    for ours, plain in (
        (found.centred, np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False)),
        (found.uncentred, np.linalg.svd(Z, compute_uv=False)),
    ):
        assert np.allclose(ours[: len(plain)], plain, rtol=0, atol=1e-7 * plain[0] if len(plain) else 0)
    s = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False)
    if s[0] > 0:
        assert stable_rank(Z) == pytest.approx((s**2).sum() / s[0] ** 2)
        assert spectrum_of(Z).participation_ratio == pytest.approx((s**2).sum() ** 2 / (s**4).sum())
    u = np.linalg.svd(Z, compute_uv=False)
    assert stable_rank(Z, centred=False) == pytest.approx((u**2).sum() / u[0] ** 2)


def test_small_singular_values_keep_their_digits():
    # A cloud with singular values 1, 10^-0.5, ..., 10^-11.5: the covariance alone would lose those below 1e-8.
    rng = np.random.default_rng(0)
    s = 10.0 ** -np.arange(0, 12, 0.5)
    U = np.linalg.qr(rng.normal(size=(400, len(s))))[0]
    Z = U * s @ np.linalg.qr(rng.normal(size=(len(s), len(s))))[0].T
    plain = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False)
    assert np.abs(spectrum_of(Z, 0.0).centred - plain).max() < 1e-12
    assert spectrum_of(Z).rank == (plain > 1e-10 * np.linalg.svd(Z, compute_uv=False)[0]).sum() == 20
    assert spectrum_of(Z, 1e-5).rank == (plain > 1e-5 * np.linalg.svd(Z, compute_uv=False)[0]).sum()


def test_a_collapsed_cloud_has_rank_zero_and_no_width():
    Z = np.full((50, 6), 3.0) + 1e-14 * np.random.default_rng(0).normal(size=(50, 6))
    assert spectrum_of(Z).rank == 0
    assert stable_rank(Z) == spectrum_of(Z).participation_ratio == 0.0
    assert stable_rank(Z, centred=False) == pytest.approx(1.0)
    assert mean_width(Z).value == 0.0
    assert stable_rank(np.zeros((4, 3)), centred=False) == 0.0


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_sizes_neither_overflow_nor_vanish(scale):
    Z = np.random.default_rng(1).normal(size=(60, 5))
    assert stable_rank(scale * Z) == pytest.approx(stable_rank(Z))
    assert np.allclose(row_norms(scale * Z) / scale, np.linalg.norm(Z, axis=1))
    assert mean_width(scale * Z).value / scale == pytest.approx(mean_width(Z).value)


def test_mean_width_of_flat_sets_is_exact():
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1.0], [0.5, 0.5]])
    assert mean_width(square).value == pytest.approx(4 / math.pi, rel=1e-14)
    assert mean_width(square).exact
    assert mean_width([[0.0], [2.5]]).value == 2.5
    # In R^d a segment of length 1 has the mean width E|u_1| = 2 μ_d; in R^3 that is 1/2.
    assert mean_width([[0.0, 0, 0], [0, 1, 0]]).value == pytest.approx(0.5)
    circle = np.exp(2j * np.pi * np.arange(4000) / 4000)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(7, 2)))[0]
    flat = np.column_stack([circle.real, circle.imag]) @ turn.T + 5.0
    # Unit disc: width 2 in the plane; in R^7 times the mean length of the projection, g(2)/g(7), here from mpmath.
    g = [mpmath.gamma((k + 1) / mpmath.mpf(2)) / mpmath.gamma(k / mpmath.mpf(2)) for k in (2, 7)]
    assert mean_width(flat).value == pytest.approx(float(2 * g[0] / g[1]), rel=1e-6)


def test_mean_width_by_directions_agrees_with_the_ball_and_its_error_bar():
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(4000, 3))
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    found = mean_width(Z, directions=400, rng=rng)
    assert not found.exact
    assert 1.97 < found.value < 2.0
    cube = np.array(np.meshgrid([0, 1], [0, 1], [0, 1.0])).reshape(3, 8).T
    got = mean_width(cube, directions=20_000, rng=rng)
    # The mean width of the unit cube in R^3 is 3/2. Six standard errors: a false alarm in 5e8.
    assert abs(got.value - 1.5) < 6 * got.error
    assert 0 < got.error < 0.01


def test_angles_are_accurate_when_small_and_nan_for_zero():
    a = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    b = np.array([[1.0, 1e-12], [0.0, 3.0], [1.0, 0.0], [-2.0, 0.0]])
    found = angles(a, b)
    assert found[0] == pytest.approx(1e-12, rel=1e-6)
    assert found[1] == pytest.approx(math.pi / 2)
    assert np.isnan(found[2])
    assert found[3] == pytest.approx(math.pi)


def test_expected_angle_is_that_of_wide_random_layers():
    assert expected_angle(math.pi / 2) == pytest.approx(math.acos(1 / math.pi))
    assert expected_angle(0.0, 5) == 0.0
    assert float(expected_angle(1.0, 10_000)) * 10_000 / (3 * math.pi) == pytest.approx(1.0, abs=0.01)
    rng = np.random.default_rng(0)
    x, y = np.array([1.0, 0, 0]), np.array([math.cos(2.2), math.sin(2.2), 0])
    W = rng.normal(size=(400_000, 3))
    zx, zy = np.maximum(W @ x, 0), np.maximum(W @ y, 0)
    # Standard deviation of the drawn cosine is about 1.5e-3; 6 of them.
    assert math.cos(float(expected_angle(2.2))) == pytest.approx(zx @ zy / math.sqrt((zx @ zx) * (zy @ zy)), abs=9e-3)


@given(shapes)
def test_rotations_and_shifts_change_nothing_centred(shape):
    Z = cloud(shape)
    Q = np.linalg.qr(np.random.default_rng(shape[2] + 1).normal(size=(Z.shape[1], Z.shape[1])))[0]
    moved = Z @ Q + 2.0
    assert stable_rank(moved) == pytest.approx(stable_rank(Z), rel=1e-6)
    assert spectrum_of(moved).participation_ratio == pytest.approx(spectrum_of(Z).participation_ratio, rel=1e-6)
    rank = min(len(Z) - 1, Z.shape[1])
    assert 1 - 1e-9 <= stable_rank(Z) <= spectrum_of(Z).participation_ratio * (1 + 1e-9) ** 2
    assert spectrum_of(Z).participation_ratio <= rank + 1e-9


@pytest.mark.parametrize(
    "call",
    [
        lambda: stable_rank([1.0, 2.0]),
        lambda: stable_rank(np.zeros((0, 3))),
        lambda: stable_rank([[math.nan]]),
        lambda: angles([[1.0]], [[1.0, 2.0]]),
        lambda: mean_width(np.random.default_rng(0).normal(size=(9, 4)), directions=1),
        lambda: expected_angle(1.0, -1),
    ],
)
def test_bad_input_is_one_clear_error(call):
    with pytest.raises(InputError):
        call()
