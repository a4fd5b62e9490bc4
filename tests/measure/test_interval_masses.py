"""Intervals under the standard normal law: high-precision references, closed forms, symmetries, bad inputs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from reluscope.errors import InputError
from reluscope.inputs._normal1 import log_mass
from reluscope.measure import normal as special
from reluscope.measure.exact.interval import (
    interval_mass,
    interval_mass_kernel,
    interval_moments,
    slice_mass_kernel,
    slice_moments_kernel,
)

# Made by references/make_intervals.py (mpmath, 400 digits).
TABLE = json.loads((Path(__file__).parent / "references" / "intervals.json").read_text())
A = np.array([row["a"] for row in TABLE])
B = np.array([row["b"] for row in TABLE])

# Parts of kernels, which have no entry for Python.
mass_between = njit(lambda a, b: interval_mass_kernel(a, b))
mass_around = njit(lambda middle, half: slice_mass_kernel(middle, half))
moments_around = njit(lambda middle, half: slice_moments_kernel(middle, half))
tail = njit(lambda x: special.upper_tail(x))


def column(name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in TABLE])


def relative_error(got: np.ndarray, exact: np.ndarray) -> float:
    return float(np.max(np.abs(got - exact) / np.abs(exact)))


def test_masses_agree_with_the_references_to_full_relative_accuracy():
    assert column("mass").min() < 1e-280
    assert relative_error(interval_mass(A, B), column("mass")) < 2e-15


def test_logarithms_agree_with_the_references():
    got, exact = log_mass(A, B, B - A), column("log")
    assert np.max(np.abs(got - exact) / np.maximum(1.0, np.abs(exact))) < 1e-13


def test_moments_agree_with_the_references():
    mass, first, second = interval_moments(A, B)
    symmetric = column("first") == 0
    assert relative_error(mass, column("mass")) < 2e-15
    assert relative_error(first[~symmetric], column("first")[~symmetric]) < 5e-15
    assert (first[symmetric] == 0).all()
    visible = column("second") > 0  # u^2 on [0, 1e-300] underflows
    assert relative_error(second[visible], column("second")[visible]) < 3e-14
    assert (second[~visible] == 0).all()


def test_middle_and_half_width_form_agrees_where_both_are_exact():
    # Quarters and powers of two: middle and half width are exact, so both forms see the same interval.
    for middle in np.arange(-12.0, 12.0, 0.25):
        for half in 2.0 ** np.arange(-30, 3):
            expected = mass_between(middle - half, middle + half)
            assert mass_around(middle, half) == pytest.approx(expected, rel=1e-13)
            moments = [float(m[()]) for m in interval_moments(middle - half, middle + half)]
            assert moments_around(middle, half) == pytest.approx(moments, rel=1e-12, abs=0.0)


def test_infinite_and_empty_intervals():
    inf = np.inf
    got = interval_mass([-inf, 0.0, -inf, 1.0, 2.0, inf, -inf], [inf, inf, 0.0, 1.0, 1.0, inf, -inf])
    assert got.tolist() == [1.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0]
    assert [m.tolist() for m in interval_moments([-inf, 0.0], [inf, inf])] == [
        [1.0, 0.5],
        [0.0, 1 / math.sqrt(2 * math.pi)],
        [1.0, 0.5],
    ]


def test_logarithm_far_below_the_smallest_float():
    # Q(x) = phi(x)/x (1 - 1/x^2 + 3/x^4 - ...): at 1000 the first omitted term is 15e-18.
    x = 1000.0
    expected = -0.5 * x * x - 0.5 * math.log(2 * math.pi) - math.log(x) + math.log1p(-1 / x**2 + 3 / x**4)
    assert float(log_mass(x, np.inf, np.inf)) == pytest.approx(expected, rel=1e-15)
    assert math.isfinite(float(log_mass(1e100, 2e100, 1e100)))
    # A narrow interval there: width times the density at its middle.
    narrow = float(log_mass(100.0, 100.0 + 2.0**-30, 2.0**-30))
    middle = 100.0 + 2.0**-31
    assert narrow == pytest.approx(-0.5 * middle**2 - 0.5 * math.log(2 * math.pi) - 30 * math.log(2), rel=1e-15)


@settings(deadline=None, max_examples=200)
@given(st.floats(-30, 30), st.floats(1e-12, 5), st.floats(0.01, 0.99))
def test_splitting_and_mirroring_an_interval(a: float, width: float, fraction: float):
    b = a + width
    middle = a + fraction * width
    whole = mass_between(a, b)
    assert mass_between(a, middle) + mass_between(middle, b) == pytest.approx(whole, rel=5e-15, abs=1e-320)
    assert mass_between(-b, -a) == pytest.approx(whole, rel=5e-16, abs=1e-320)


def test_broadcasting_and_shapes():
    assert interval_mass(np.zeros((3, 1)), np.ones(4)).shape == (3, 4)
    assert interval_mass(0.0, 1.0).shape == ()
    assert interval_mass([], []).shape == (0,)


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [([0.0, np.nan], 1.0, "a"), (0.0, [np.nan], "b"), ([0.0, 1.0], [0.0, 1.0, 2.0], "broadcast"), ("x", 1.0, "a")],
)
def test_bad_ends_are_refused_by_name(a, b, word):
    with pytest.raises(InputError, match=word):
        interval_mass(a, b)


def test_tails_against_scipy():
    x = np.linspace(-37, 37, 2001)
    got = np.array([tail(v) for v in x])
    assert relative_error(got, scipy.special.ndtr(-x)) < 5e-13  # scipy rounds x/sqrt(2): x^2 eps
    logs = np.array([special.log_upper_tail(-v) for v in x])
    assert relative_error(logs, scipy.special.log_ndtr(x)) < 1e-12
