"""Gaussian mass of n-dimensional polytopes: closed forms, one-dimensional integrals, invariances, and honest errors.

Every estimate is random with a stated interval at confidence 0.999. Single comparisons use `agrees`: the deviation
may be twice the stated half-width, which at a coverage of 99.9 % of a Student law with 15 degrees of freedom has a
false-alarm rate below 1e-6. Seeds are fixed all the same.
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from reluscope.errors import InputError
from reluscope.measure.polytope import estimate as _estimate
from reluscope.measure.polytope import lanes as _lanes
from reluscope.measure.polytope import masses as polytope_module
from reluscope.measure.polytope import rays as _rays
from reluscope.measure.polytope import sobol as _sobol
from reluscope.measure.polytope import tilt as gaussn_tilt
from reluscope.measure.polytope.masses import METHODS, polytope_masses, polytope_moments

NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)


def polytope_mass(A, b, **options):
    """One polytope: its answer and how it was found, as plain numbers."""
    answers, draws = polytope_masses(A, b, **options)
    mass, own = answers[0], {name: values[0].item() for name, values in draws._asdict().items()}
    return SimpleNamespace(
        value=mass.value, lower=mass.lower, upper=mass.upper, **own | {"method": METHODS[own["method"]]}
    )


def agrees(mass: SimpleNamespace, log_reference: float) -> bool:
    return abs(math.expm1(mass.log_value - log_reference)) <= 2 * mass.relative_error + 1e-11


def rotation(n, rng):
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def log_one_factor(low, high, loading):
    """log ∫ φ(t) Π [Φ((high_i - λ_i t)/s_i) - Φ((low_i - λ_i t)/s_i)] dt, s_i² = 1 - λ_i², by a fine composite rule."""
    edges = np.linspace(-14.0, 14.0, 141)
    half = 0.5 * np.diff(edges)[:, None]
    t = (half * NODES + 0.5 * (edges[:-1] + edges[1:])[:, None]).ravel()
    w = (half * WEIGHTS).ravel()
    s = np.sqrt(1 - loading**2)
    upper = (high[:, None] - loading[:, None] * t) / s[:, None]
    lower = (low[:, None] - loading[:, None] * t) / s[:, None]
    flip = lower > 0  # differences are taken in the lower tail
    upper, lower = np.where(flip, -lower, upper), np.where(flip, -upper, lower)
    with np.errstate(divide="ignore"):
        inside = special.log_ndtr(upper) + np.log1p(-np.exp(special.log_ndtr(lower) - special.log_ndtr(upper)))
    return float(special.logsumexp(inside.sum(axis=0) - t * t / 2, b=w)) - 0.5 * math.log(2 * math.pi)


def one_factor_rows(low, high, loading, rng):
    """Rows with correlations λ_i λ_j in n + 1 columns (turned at random), two-sided where `low` is finite."""
    n = loading.size
    X = np.column_stack([np.diag(np.sqrt(1 - loading**2)), loading]) @ rotation(n + 1, rng)
    return np.vstack([X, -X]), np.concatenate([high, np.where(np.isfinite(low), -low, np.inf)])


def planar_mass(A, b):
    """Mass of a polygon {A x <= b} in the plane: 1-D quadrature of its slices between all corners."""
    corners = [-9.0, 9.0]
    for i, j in itertools.combinations(range(len(b)), 2):
        pair = A[[i, j]]
        if abs(np.linalg.det(pair)) > 1e-12:
            corners.append(np.linalg.solve(pair, b[[i, j]])[0])
    edges = np.unique(np.concatenate([np.clip(corners, -9, 9), np.linspace(-9, 9, 19)]))
    half = 0.5 * np.diff(edges)[:, None]
    x = (half * NODES + 0.5 * (edges[:-1] + edges[1:])[:, None]).ravel()
    bound = (b[:, None] - A[:, :1] * x) / A[:, 1:]
    high = np.where(A[:, 1:] > 0, bound, np.inf).min(axis=0)
    low = np.where(A[:, 1:] < 0, bound, -np.inf).max(axis=0)
    slices = np.where(high > low, special.ndtr(high) - special.ndtr(low), 0.0)
    return float(((half * WEIGHTS).ravel() * slices * np.exp(-x * x / 2)).sum() / math.sqrt(2 * math.pi))


def polygons(count, rows, rng):
    """A product of `count` random polygons, turned in 2 count dimensions: (A, b, log mass)."""
    n = 2 * count
    A, b, log_mass = np.zeros((count * rows, n)), np.zeros(count * rows), 0.0
    for c in range(count):
        part, bound = rng.normal(size=(rows, 2)), rng.normal(size=rows)
        sign = np.where(bound - part @ rng.normal(size=2) > 0, 1.0, -1.0)
        part, bound = part * sign[:, None], bound * sign
        A[c * rows : (c + 1) * rows, 2 * c : 2 * c + 2], b[c * rows : (c + 1) * rows] = part, bound
        log_mass += math.log(planar_mass(part, bound))
    return A @ rotation(n, rng), b, log_mass


def singular_rows(n, rng):
    """n rows in n - 1 columns with correlations -λ_i λ_j, and λ."""
    share = rng.dirichlet(np.full(n, 3.0))
    loading = np.sqrt(share / (1 - share))
    covariance = np.diag(1 + loading**2) - np.outer(loading, loading)
    values, vectors = np.linalg.eigh(covariance)
    assert abs(values[0]) < 1e-12
    return vectors[:, 1:] * np.sqrt(values[1:]), loading


def negative_factor(high, loading):
    """∫ φ(t) Π Φ((h_i + i λ_i t)/s_i) dt, s_i² = 1 + λ_i²: the one-factor integral for an imaginary factor.

    In the singular case Σ λ_i²/s_i² = 1 the Gaussians cancel and the integrand falls off as t^-n only, so they are
    taken out: Φ(z) = e^(-z²/2) w(-iz/√2)/2 with Faddeeva's w.
    """
    t = np.arange(0.0, 300.0, 0.02)
    scale = np.sqrt(1 + loading**2)[:, None]
    z = (high[:, None] + 1j * loading[:, None] * t) / scale
    exponent = (-(high[:, None] ** 2) / 2 - 1j * high[:, None] * loading[:, None] * t) / scale**2
    values = np.prod(0.5 * special.wofz(-1j * z / math.sqrt(2)) * np.exp(exponent), axis=0).real
    return float((2 * values.sum() - values[0]) * 0.02 / math.sqrt(2 * math.pi))


# ---------------------------------------------------------------- building blocks


def test_truncated_normal_against_mpmath():
    rng = np.random.default_rng(1)
    with mpmath.workdps(40):
        for trial in range(200):
            low = rng.normal() * 10 ** rng.uniform(-2, 2.5)
            high = low + 10 ** rng.uniform(-7, 2) if trial % 5 else math.inf
            near, far = (low, high) if low + high >= 0 else (-high, -low)
            tail = [mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2 for x in (near, far)]
            exact = mpmath.log(tail[0] - tail[1])
            v = rng.uniform()
            x, log_mass = gaussn_tilt.draw(v, low, high)
            assert log_mass == pytest.approx(float(exact), rel=1e-11, abs=1e-11)
            assert gaussn_tilt.log_interval(low, high) == pytest.approx(float(exact), rel=1e-11, abs=1e-11)
            place = mpmath.erfc(mpmath.mpf(x if low + high >= 0 else -x) / mpmath.sqrt(2)) / 2
            share = float((tail[0] - place) / (tail[0] - tail[1]))
            rounding = abs(x) * 2e-16 * max(1.0, abs(x), 1 / (high - low))
            assert (share if low + high >= 0 else 1 - share) == pytest.approx(v, abs=1e-8 + rounding)


ABOVE = (_lanes.draw_above_lanes, _lanes.interval_above_lanes)


def test_lanes_equal_the_one_by_one_functions():
    rng = np.random.default_rng(4)
    lanes = gaussn_tilt.LANES
    for trial in range(200):
        low = rng.normal(size=lanes) * 10 ** rng.uniform(-1, 2, size=lanes)
        high = low + 10 ** rng.uniform(-7, 2, size=lanes)
        low[0], high[1], low[2], high[2] = -np.inf, np.inf, -np.inf, np.inf
        v = rng.uniform(size=lanes) if trial else np.full(lanes, 2.0**-53)
        for one_sided in (False, True):
            if one_sided:
                high[:] = np.inf
            room = np.zeros((_lanes.ROOM, lanes))
            room[[_lanes.LEFT, _lanes.RIGHT, _lanes.V]] = low, high, v
            expected = np.array([gaussn_tilt.draw(*lane) for lane in zip(v, low, high, strict=True)])
            for function in (_lanes.draw_lanes, _lanes.interval_lanes, *ABOVE * one_sided):
                room[_lanes.X] = room[_lanes.LOG_PART] = 0.0
                odd = function(room)
                log_mass = np.log(room[_lanes.PART]) + (room[_lanes.LOG_PART] if odd else 0.0)
                np.testing.assert_allclose(log_mass, expected[:, 1], rtol=1e-11, atol=1e-11)
                if "draw" in function.__name__:
                    np.testing.assert_allclose(room[_lanes.X], expected[:, 0], rtol=3e-7, atol=3e-7)


def test_scrambled_points_are_a_net():
    table = _sobol.direction_table(64, 16)
    directions, point = np.empty((5, 16), dtype=np.uint64), np.empty(5, dtype=np.uint64)
    _sobol.scramble(table, 5, 16, np.array([3], dtype=np.uint64), directions, point)
    points = []
    for i in range(1024):
        points.append(point.copy())
        point = point ^ directions[:, _sobol.trailing_ones(i)]
    u = np.array(points) / 2.0**_sobol.DIGITS
    for d in range(5):
        assert np.unique((u[:, d] * 1024).astype(int)).size == 1024
    cells = (u[:, 0] * 32).astype(int) * 32 + (u[:, 1] * 32).astype(int)
    assert np.unique(cells).size == 1024
    assert stats.qmc.discrepancy(u) < 1.2 * stats.qmc.discrepancy(stats.qmc.Sobol(5, rng=1).random(1024))


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10, 20, 35, 50])
def test_equicorrelated_orthant(n):
    A = np.linalg.cholesky(0.5 * (np.eye(n) + 1))
    mass = polytope_mass(A, np.zeros(n), rng=n)
    assert agrees(mass, -math.log(n + 1))
    assert mass.relative_error <= 1e-3
    assert mass.lower <= mass.value <= mass.upper


def test_planar_and_solid_angles():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(3, 3))
    A /= np.linalg.norm(A, axis=1)[:, None]
    solid = 1 / 8 + sum(math.asin(A[i] @ A[j]) for i, j in ((0, 1), (0, 2), (1, 2))) / (4 * math.pi)
    assert agrees(polytope_mass(A, np.zeros(3), relative=1e-4, rng=0), math.log(solid))
    for angle in (1e-6, 0.3, 3.0):
        wedge = np.array([[0.0, -1.0], [-math.sin(angle), math.cos(angle)]])
        assert agrees(polytope_mass(wedge, np.zeros(2), rng=0), math.log(angle / (2 * math.pi)))


@pytest.mark.parametrize("n", [1, 4, 10, 50])
def test_rotated_box_is_exact(n):
    rng = np.random.default_rng(n)
    Q = rotation(n, rng)
    low, high = -rng.exponential(size=n), rng.exponential(size=n)
    scale = 10 ** rng.uniform(-5, 5, size=2 * n)
    A = np.vstack([Q, -Q]) * scale[:, None]
    mass = polytope_mass(A, np.concatenate([high, -low]) * scale, rng=0)
    log_mass = np.log(special.ndtr(high) - special.ndtr(low)).sum()
    assert mass.log_value == pytest.approx(log_mass, abs=1e-9)


@pytest.mark.parametrize("shift, loading", [(-1.0, 0.3), (-4.0, 0.7), (-9.0, 0.9), (0.5, 0.99)])
def test_one_factor_integral_and_tails(shift, loading):
    rng = np.random.default_rng(3)
    n = 10
    loadings = loading * rng.uniform(0.6, 1.0, size=n)
    high = shift + 0.3 * rng.normal(size=n)
    exact = log_one_factor(np.full(n, -np.inf), high, loadings)
    A, b = one_factor_rows(np.full(n, -np.inf), high, loadings, rng)
    mass = polytope_mass(A, b, rng=1)
    assert agrees(mass, exact)
    if shift == -9.0:
        assert mass.value < 1e-30
    covariance = np.outer(loadings, loadings) + np.diag(1 - loadings**2)
    assert agrees(polytope_mass(np.linalg.cholesky(covariance), high, rng=2), exact)  # square this time


def test_far_below_the_smallest_float():
    n, shift = 5, 60.0
    A = np.linalg.cholesky(0.5 * (np.eye(n) + 1))
    with mpmath.workdps(30):
        # P(all X_i <= -60), X_i = (Z_i + T)/√2; the integrand peaks near t = -60 √2 n/(n+1)
        def integrand(t):
            return mpmath.npdf(t) * mpmath.ncdf(-shift * mpmath.sqrt(2) - t) ** n

        peak = -shift * math.sqrt(2) * n / (n + 1)
        pieces = [peak + 0.5 * k for k in range(-8, 9)]
        exact = float(mpmath.log(mpmath.quad(integrand, pieces)))
    assert exact < -2000
    mass = polytope_mass(A, np.full(n, -shift), rng=0)
    assert agrees(mass, exact)
    assert mass.value == 0.0 and mass.relative_error <= 1e-3


@pytest.mark.parametrize("n", [5, 6, 9])
def test_singular_negative_correlation(n):
    rng = np.random.default_rng(n)
    A, loading = singular_rows(n, rng)
    high = rng.uniform(0.2, 1.5, size=n)
    assert agrees(polytope_mass(A, high, rng=0), math.log(negative_factor(high, loading)))


# ---------------------------------------------------------------- invariances and structure


def test_cells_of_an_arrangement_sum_to_one():
    rng = np.random.default_rng(5)
    n, m = 4, 6
    A, b = rng.normal(size=(m, n)), rng.normal(size=m)
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=m)))
    masses, draws = polytope_masses(
        (signs[:, :, None] * A).reshape(-1, n), (signs * b).ravel(), np.arange(0, m * len(signs) + 1, m), rng=0
    )
    # m hyperplanes in general position cut R^n into sum C(m, k), k <= n, cells: the other sign vectors are empty
    empty = np.isneginf(draws.log_value)
    assert (~empty).sum() == sum(math.comb(m, k) for k in range(n + 1))
    assert (masses.upper[empty] == 0).all()
    half = np.sqrt(((masses.value * draws.relative_error) ** 2).sum())
    assert abs(masses.value.sum() - 1) <= 2 * half < 6e-3


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_a_cut_splits_the_mass(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    m = int(rng.integers(1, 2 * n + 3))
    A, b = rng.normal(size=(m, n)), rng.normal(size=m) + 1
    cut, level = rng.normal(size=n), rng.normal()
    options = {"relative": 5e-3, "rng": seed}
    whole = polytope_mass(A, b, **options)
    left = polytope_mass(np.vstack([A, cut]), np.append(b, level), **options)
    right = polytope_mass(np.vstack([A, -cut]), np.append(b, -level), **options)
    slack = sum(x.upper - x.lower for x in (whole, left, right))
    assert abs(left.value + right.value - whole.value) <= slack


def test_order_scale_rotation_duplicates_and_redundancy_do_not_matter():
    rng = np.random.default_rng(6)
    n, m = 5, 9
    A, b = rng.normal(size=(m, n)), rng.normal(size=m) + 1
    plain = polytope_mass(A, b, rng=0)
    order, scale = rng.permutation(m), 10 ** rng.uniform(-8, 8, size=m)
    far = rng.normal(size=(200, n))
    variants = [
        (A[order], b[order]),
        (A * scale[:, None], b * scale),
        (A @ rotation(n, rng), b),
        (np.vstack([A, 3 * A, A[:2]]), np.concatenate([b, 3 * b, b[:2] + 1])),
        (np.vstack([A, far]), np.concatenate([b, np.full(200, 60.0)])),
        (np.vstack([A, np.zeros((2, n))]), np.concatenate([b, [0.0, 2.0]])),
        (np.vstack([A, rng.normal(size=(1, n))]), np.append(b, np.inf)),
        (np.column_stack([A, np.zeros((m, 3))]), b),
    ]
    for rows, bounds in variants:
        other = polytope_mass(rows, bounds, rng=1)
        assert abs(math.log(other.value / plain.value)) <= 2 * (other.relative_error + plain.relative_error)


def test_near_duplicates_and_slivers():
    rng = np.random.default_rng(7)
    a = rng.normal(size=4)
    a /= np.linalg.norm(a)
    rest, bounds = rng.normal(size=(4, 4)), np.ones(4)
    base = polytope_mass(np.vstack([rest, a]), np.append(bounds, 0.3), rng=0)
    close = a + 1e-13 * rng.normal(size=4)
    same = polytope_mass(np.vstack([rest, a, close]), np.append(bounds, [0.3, 0.3]), rng=1)
    assert abs(math.log(same.value / base.value)) <= 2 * (same.relative_error + base.relative_error)
    for width in (1e-3, 1e-7, 1e-11):
        thin = polytope_mass(np.array([a, -a]), [0.5 + width, -0.5], rng=0)
        assert thin.log_value == pytest.approx(math.log(width * stats.norm.pdf(0.5)), abs=2e-3 + 1e-15 / width)
        box = np.vstack([a, -a, rest])
        mass = polytope_mass(box, np.concatenate([[0.5 + width, -0.5], bounds]), rng=0)
        assert mass.method == "guided"
        assert mass.relative_error <= 1e-3


@pytest.mark.parametrize(("seed", "method"), [(2, "tilted"), (3, "tilted"), (0, "guided")])
def test_the_better_of_tilting_and_lookahead_is_named(seed, method):
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(2, 2)), rng.normal(size=2) + 1
    mass = polytope_mass(A, b, rng=0)
    assert mass.method == method
    rows = A / np.linalg.norm(A, axis=1)[:, None]
    heights = b / np.linalg.norm(A, axis=1)
    truth = stats.multivariate_normal(cov=rows @ rows.T).cdf(heights)
    assert abs(mass.value - truth) <= 2 * mass.relative_error * mass.value + 1e-7


def test_empty_and_whole():
    assert polytope_mass(np.zeros((0, 3)), np.zeros(0)).value == 1.0
    assert polytope_mass(np.zeros((2, 3)), [0.0, 1.0]).value == 1.0
    for A, b in [
        (np.zeros((1, 3)), [-1.0]),
        ([[1.0, 0.0], [-1.0, 0.0]], [-1.0, -1.0]),
        ([[1.0, 0.0], [-1.0, 0.0]], [1.0, -1.0]),
        ([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [-1.0, -1.0, 1.0]),
        ([[1.0], [-2.0]], [0.0, -1.0]),
    ]:
        mass = polytope_mass(A, b, rng=0)
        assert (mass.value, mass.lower, mass.upper, mass.relative_error) == (0.0, 0.0, 0.0, 0.0)
        assert mass.log_value == -math.inf and mass.method == "empty"
    # empty in general position: a random cell with one row turned against a positive combination of the others
    rng = np.random.default_rng(8)
    A, b = rng.normal(size=(12, 6)), rng.normal(size=12) + 1
    push = rng.uniform(size=12)
    A, b = np.vstack([A, -push @ A]), np.append(b, -push @ b - 1e-6)
    assert polytope_mass(A, b, rng=0).method == "empty"


# ---------------------------------------------------------------- batch, seeds, moments


def test_batch_equals_singles_and_seeds_repeat():
    rng = np.random.default_rng(9)
    sizes = [3, 0, 7, 5]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    A, b = rng.normal(size=(sum(sizes), 4)), rng.normal(size=sum(sizes)) + 0.5
    together, draws = polytope_masses(A, b, offsets, rng=5)
    assert len(together) == 4
    assert together[1].value == 1.0
    again, _ = polytope_masses(A, b, offsets, rng=5)
    np.testing.assert_array_equal(together.value, again.value)
    alone = polytope_mass(A[:3], b[:3], rng=5)
    assert (alone.value, alone.lower, alone.upper) == (together.value[0], together.lower[0], together.upper[0])
    assert (alone.log_value, alone.points) == (draws.log_value[0], draws.points[0])
    assert polytope_mass(A[:3], b[:3], rng=6).value != alone.value


def test_moments_of_a_rotated_box():
    rng = np.random.default_rng(10)
    n = 4
    Q = rotation(n, rng)
    low, high = np.array([-0.5, 0.3, -np.inf]), np.array([1.0, np.inf, 0.2])
    A, b = np.vstack([Q[:3], -Q[:3]]), np.concatenate([high, -low])
    moments = polytope_moments(A, b, relative=1e-4, rng=0)
    law = [stats.truncnorm(*pair) for pair in zip(low, high, strict=True)]
    mean = Q[:3].T @ np.array([x.mean() for x in law])
    spread = Q.T @ np.diag([*(x.var() for x in law), 1.0]) @ Q
    mass = np.prod(special.ndtr(high) - special.ndtr(low))
    assert moments.mass.value == pytest.approx(mass, rel=1e-9)
    assert (np.abs(moments.first - mass * mean) <= 8 * moments.first_error + 1e-9).all()
    raw = spread + np.outer(mean, mean)
    assert (np.abs(moments.second - mass * raw) <= 8 * moments.second_error + 1e-9).all()
    np.testing.assert_allclose(moments.mean, mean, atol=0.02)
    np.testing.assert_allclose(moments.covariance, spread, atol=0.02)


def test_moments_add_up_over_a_partition_and_survive_tiny_masses():
    rng = np.random.default_rng(11)
    A, b = rng.normal(size=(3, 3)), rng.normal(size=3)
    total, square, error = np.zeros(3), np.zeros((3, 3)), 0.0
    for sign in itertools.product((1.0, -1.0), repeat=3):
        part = polytope_moments(A * np.array(sign)[:, None], b * np.array(sign), rng=0)
        total += part.first
        square += part.second
        error += float(np.max(part.second_error) + np.max(part.first_error))
    assert np.abs(total).max() <= 6 * error
    assert np.abs(square - np.eye(3)).max() <= 6 * error
    assert error < 0.05
    far = polytope_moments(-np.eye(2), [-50.0, -50.0], rng=0)
    assert far.mass.value == 0.0
    np.testing.assert_allclose(far.mean, 50 + 1 / 50, atol=1e-3)
    nothing = polytope_moments([[1.0], [-1.0]], [-1.0, -1.0])
    assert (nothing.first == 0).all() and np.isnan(nothing.mean).all()


# ---------------------------------------------------------------- honest errors


def random_problem(kind, rng):
    if kind == 0:
        n = int(rng.integers(2, 13))
        high = rng.normal(size=n) + rng.uniform(-2, 2)
        low = np.where(rng.uniform(size=n) < 0.5, -np.inf, high - rng.exponential(size=n) * 2)
        loading = rng.uniform(-0.95, 0.95, size=n)
        return *one_factor_rows(low, high, loading, rng), log_one_factor(low, high, loading)
    if kind == 1:
        n = int(rng.integers(5, 9))
        A, loading = singular_rows(n, rng)
        high = rng.uniform(0.3, 2.0, size=n)
        return A, high, math.log(negative_factor(high, loading))
    return polygons(int(rng.integers(1, 4)), int(rng.integers(3, 8)), rng)


def misses(count, seed):
    """How many of `count` random problems have the truth outside the stated interval."""
    rng = np.random.default_rng(seed)
    bad = 0
    for i in range(count):
        A, b, log_reference = random_problem(i % 3, rng)
        mass = polytope_mass(A, b, rng=rng)
        bad += abs(math.expm1(log_reference - mass.log_value)) > mass.relative_error + 1e-11
        assert mass.relative_error <= 1e-3
    return bad


def allowed(count):
    """Fewest misses that a coverage of 99.9 % would reach with probability below 1e-6."""
    return int(stats.binom.isf(1e-6, count, 1e-3))


def test_stated_errors_hold():
    assert misses(100, 12) <= allowed(100)


@pytest.mark.slow
def test_stated_errors_hold_1000():
    assert misses(1000, 13) <= allowed(1000)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "arguments, options, word",
    [
        ((np.eye(2), [1.0]), {}, "b must have one entry per row"),
        ((np.eye(2), [1.0, np.nan]), {}, "nan"),
        (([[np.inf, 1.0]], [1.0]), {}, "A must be finite"),
        ((np.zeros((2, 0)), [1.0, 1.0]), {}, "column"),
        (([1.0, 2.0], [1.0]), {}, "A must be a 2-D"),
        ((np.eye(2), [1.0, 1.0]), {"relative": 0.0}, "relative"),
        ((np.eye(2), [1.0, 1.0]), {"level": 1.0}, "level"),
        ((np.eye(2), [1.0, 1.0]), {"max_points": 0}, "max_points"),
        ((np.eye(2), [1.0, 1.0]), {"rng": -1}, "rng"),
    ],
)
def test_bad_input_is_named(arguments, options, word):
    with pytest.raises(InputError, match=word):
        polytope_mass(*arguments, **options)


@pytest.mark.parametrize("offsets", [[0, 1], [1, 2], [0, 2, 1, 2], [0.0, 2.0], [[0, 2]]])
def test_bad_offsets_are_named(offsets):
    with pytest.raises(InputError, match="offsets"):
        polytope_masses(np.eye(2), np.ones(2), offsets)


def test_budget_is_kept_and_said():
    rng = np.random.default_rng(14)
    A = rng.normal(size=(40, 10))
    mass = polytope_mass(A, np.full(40, 3.0), relative=1e-6, max_points=5000, rng=0)
    assert mass.points <= 5000
    assert mass.relative_error > 1e-6


@pytest.mark.parametrize("n", [3, 4, 7, 12, 25])
def test_radius_table_is_the_chi_law(n):
    table = _rays.radius_table(n)
    r = np.linspace(0.0, math.sqrt(n) + 7.9, 3001)
    piece = (64 * r).astype(int)
    x = 64 * r - piece
    value = sum(table[piece, e] * x**e for e in range(4))
    np.testing.assert_allclose(value, special.gammainc(n / 2, r * r / 2), atol=2e-9)


def test_ray_bases_are_orthonormal_and_extents_are_those_of_the_rows():
    n, rng = 7, np.random.default_rng(2)
    rows = rng.normal(size=(9, n))
    bases, products = np.empty((n * n, gaussn_tilt.LANES)), np.empty((9 * n, gaussn_tilt.LANES))
    ends, means, state = np.empty((8, gaussn_tilt.LANES)), np.empty(gaussn_tilt.LANES), np.array([4], dtype=np.uint64)
    _rays.ray_block(rows, _rays.radius_table(n), state, bases, products, ends, means)
    radius = special.chdtr
    for lane in range(gaussn_tilt.LANES):
        V = bases[:, lane].reshape(n, n)
        np.testing.assert_allclose(V @ V.T, np.eye(n), atol=1e-11)
        signs = itertools.product((1, -1), repeat=3)
        directions = [s @ V[list(c)] for s in map(np.array, signs) for c in itertools.combinations(range(n), 3)]
        reach = np.maximum((rows @ np.array(directions).T).max(axis=0), 1e-9) / math.sqrt(3)
        assert means[lane] == pytest.approx(radius(n, 1 / reach**2).mean(), abs=1e-8)


def test_rays_hold_their_stated_errors():
    """100 large masses with known values; at 99.9 % each, 3 or more misses have probability 1.5e-4."""
    rng, outside = np.random.default_rng(8), 0
    factor = polytope_module._settings(5e-3, 0.999, 1, None)[1]
    result, sums = np.zeros(6), np.zeros(_estimate.REPLICATES)
    for trial in range(100):
        n = int(rng.integers(4, 10))
        if trial % 2:
            high = rng.uniform(1.0, 3.0, size=n)
            low, rows = -rng.uniform(1.0, 3.0, size=n), rotation(n, rng)
            log_truth = float(np.log(special.ndtr(high) - special.ndtr(low)).sum())
        else:
            low, high = np.full(n, -np.inf), rng.uniform(0.5, 2.0, size=n)
            loading = rng.uniform(-0.8, 0.8, size=n)
            rows = one_factor_rows(low, high, loading, rng)[0][:n]
            log_truth = log_one_factor(low, high, loading)
        state = np.array([trial], dtype=np.uint64)
        arguments = (rows, low, high, rows.shape[1], state, 5e-3, factor, 1 << 22, np.inf)
        assert _estimate.along_rays(*arguments, result, sums, np.zeros(1, np.uint8))
        assert result[2] <= 5e-3 + 1e-11
        outside += abs(math.expm1(result[0] - log_truth)) > result[2]
    assert outside <= 2


def test_rays_are_chosen_where_they_pay():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(20, 10))
    A /= np.linalg.norm(A, axis=1)[:, None]
    found = polytope_mass(A, np.full(20, 1.5), relative=2e-3, rng=1)
    assert found.method == "rays"
    draws = np.random.default_rng(4).normal(size=(200_000, 10))
    share = (draws @ A.T <= 1.5).all(axis=1).mean()
    assert abs(found.value - share) < 5 * math.sqrt(share * (1 - share) / 200_000) + 2e-3 * share  # 5 sigma: 6e-7
    assert polytope_mass(A, np.full(20, -0.1), relative=0.1, rng=1).method != "rays"
