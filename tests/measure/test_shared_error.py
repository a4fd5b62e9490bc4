"""Masses of many cells under one tolerance: budgets, brackets, and the record they come in."""

from __future__ import annotations

import math

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.answer import Answer, Answers, Status
from reluscope.budget import Budget
from reluscope.errors import InputError
from reluscope.measure.polytope import shared_error

NET = random_net((4, 4, 3, 1), 3)
LAW = rs.Gaussian(np.full(4, 0.2), np.diag([1.0, 0.5, 2.0, 1.0]))


@pytest.fixture(scope="module")
def found():
    return rs.regions(NET, law=LAW, progress=None)


def test_half_widths_keep_the_tolerance_and_the_total_is_one(found):
    rough = found.masses(LAW, tolerance=0.02, rng=1, progress=None)
    fine = found.masses(LAW, tolerance=2e-3, rng=2, progress=None)
    assert rough.complete and fine.complete
    assert np.sum(rough.upper - rough.value) <= 0.02
    assert np.sum(fine.upper - fine.value) <= 2e-3
    assert fine.total.lower <= 1.0 <= fine.total.upper + 1e-12
    assert abs(fine.total.value - 1.0) <= 2e-3
    # two independent estimates: at 99.9 % each, more than 2 + 1 % disjoint brackets are out of the question
    disjoint = (rough.lower > fine.upper) | (fine.lower > rough.upper)
    assert disjoint.sum() <= 2 + len(found) // 100


def test_masses_agree_with_counting_draws(found):
    masses = found.masses(LAW, tolerance=5e-3, rng=3, progress=None)
    draws = LAW.sample(40_000, rng=4)
    share = np.bincount(found.find(draws), minlength=len(found)) / 40_000
    slack = 5 * np.sqrt(masses.upper / 40_000) + 5 / 40_000  # five standard errors and a few stray draws
    assert (share <= masses.upper + slack).all()
    assert (share >= masses.lower - slack).all()


def test_relative_asks_for_each_cell(found):
    masses = found.masses(LAW, relative=0.05, rng=1, progress=None)
    seen = masses.value > 0
    assert ((masses.upper - masses.value)[seen] <= 0.05 * masses.value[seen] * (1 + 1e-9)).all()


def test_results_do_not_depend_on_how_the_work_is_divided(found, monkeypatch):
    one = found.masses(LAW, tolerance=0.01, rng=5, progress=None)
    monkeypatch.setattr(shared_error, "_PORTION", 1e-6)  # one cell at a time
    other = found.masses(LAW, tolerance=0.01, rng=5, progress=None)
    np.testing.assert_array_equal(one.value, other.value)


def test_a_budget_ends_the_work_and_says_so(found):
    calls = []
    masses = found.masses(LAW, rng=1, budget="5 regions", progress=lambda done, text: calls.append((done, text)))
    assert not masses.complete
    assert "budget of 5 regions reached: 5 of" in masses.note
    assert masses.status is Status.BUDGET and "budget ended" in repr(masses)
    assert (masses.value > 0).sum() <= 5
    assert masses.total.upper == 1.0
    assert masses.total.note == masses.note
    full = found.masses(LAW, rng=1, progress=None)
    assert (full.value <= masses.upper + 1e-9).all()  # half-space bounds are sure
    assert calls[-1][0] == 5
    # the most promising cells come first: they hold more than five average ones
    assert masses.value.sum() > 5 / len(found)


def test_an_interrupt_keeps_what_was_measured(found):
    def interrupt(done, text):
        if done >= 3:
            raise KeyboardInterrupt

    masses = found.masses(LAW, rng=1, progress=interrupt)
    assert "interrupted" in masses.note and masses.status is Status.INTERRUPTED
    assert (masses.value > 0).any()


def test_vanishing_cells_are_not_measured():
    bounds = {0: 3.0, 1: -9.0, 2: -8.0}
    asked = []

    def rows_of(cells):
        asked.append(list(cells))
        A = np.zeros((len(cells), 4))
        A[:, 0] = 1.0
        return A, np.array([bounds[int(c)] for c in cells]), np.arange(len(cells) + 1)

    options = {"tolerance": 1e-2, "relative": None, "level": 0.999, "rng": np.random.default_rng(0)}
    found = shared_error.measure_together(rows_of, 3, **options, budget=Budget(), report=lambda done, text: None)
    assert asked[1:] == [[0]]  # the first call is for the bounds
    assert found.value[0] == pytest.approx(0.9986501019683699, rel=1e-9)
    assert found.value[1] == found.value[2] == 0.0
    assert 0 < found.upper[1] < 1.2e-19


def test_wanted_half_widths_spend_where_it_pays():
    half, points = np.array([0.1, 0.01, 1e-9]), np.full(3, 1000.0)
    wanted = shared_error.wanted_half_widths(half, points, 0.02)
    assert wanted.sum() == pytest.approx(0.02)
    assert wanted[2] == half[2]
    assert wanted[0] / half[0] < wanted[1] / half[1]
    np.testing.assert_array_equal(shared_error.wanted_half_widths(half, points, 1.0), half)


def test_a_record_of_masses_behaves_like_a_sequence():
    value = np.array([0.5, 0.25, 0.25])
    masses = Answers(value, value - 0.01, value + 0.01, "confidence", 0.99)
    assert isinstance(masses[0], Answer)
    assert masses[-1].value == 0.25
    assert masses[np.int64(1)].upper == pytest.approx(0.26)
    assert [a.value for a in masses] == [0.5, 0.25, 0.25]
    assert len(masses[1:]) == 2 and masses[1:].level == 0.99
    assert len(masses[masses.value > 0.3]) == 1
    np.testing.assert_array_equal(np.asarray(masses), value)
    assert np.asarray(masses, dtype=np.float32).dtype == np.float32
    assert masses.total.upper == 1.0
    assert masses.total.lower == pytest.approx(1 - 0.01 * math.sqrt(3))
    exact = Answers(value, value - 1e-3, value, "exact")
    assert exact.total.lower == pytest.approx(1 - 3e-3)
    with pytest.raises(IndexError, match="there are 3"):
        masses[3]
    with pytest.raises(InputError, match="indexed like arrays"):
        masses["a"]


def test_masses_go_into_tables_and_pictures():
    pytest.importorskip("matplotlib").use("Agg")
    from reluscope.plot.regions import plot_regions

    net = random_net((2, 4, 1), 0)
    law = rs.Gaussian(np.zeros(2), np.eye(2))
    found = rs.regions(net, law=law, progress=None)
    masses = found.masses(law)
    table = found.to_dict(masses)
    np.testing.assert_array_equal(table["mass"], masses.value)
    assert "mass_upper" in table
    assert "mass_upper" not in found.to_dict(masses.value)
    ax = plot_regions(found, colour="mass", masses=masses, view=(-3, 3))
    assert ax.get_title().endswith("regions")
    with pytest.raises(InputError, match="one entry per region"):
        found.to_dict(masses.value[1:])


@pytest.mark.parametrize(
    "options, word",
    [({"level": 95}, "level"), ({"tolerance": 0.0}, "tolerance"), ({"relative": 2.0}, "relative")],
)
def test_bad_options_are_named_in_every_dimension(options, word, found):
    plane = rs.regions(random_net((2, 3, 1), 0), (-1, 1), progress=None)
    for regions, law in ((found, LAW), (plane, rs.Gaussian(np.zeros(2), np.eye(2)))):
        with pytest.raises(InputError, match=word):
            regions.masses(law, **options)
