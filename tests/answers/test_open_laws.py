"""Laws written from the page `docs/laws.md` alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import reluscope as rs
from reluscope.errors import InputError
from reluscope.inputs import OpenLaw

NET = rs.Network([([[1.0, 0.0], [-1.0, 0.0]], None), ([[1.0, 1.0]], None)])  # |x[0]|


class Laplace(OpenLaw):
    n = 2

    def _sample(self, count, rng):
        return rng.laplace(size=(count, 2))

    def _log_density(self, X):
        return -np.abs(X).sum(axis=1) - 2 * np.log(2)


class Student(OpenLaw):
    n = 2

    def _sample(self, count, rng):
        return rng.standard_t(3, size=(count, 2))


@pytest.mark.parametrize(
    ("law", "truth"), [(Laplace(), float(np.exp(-2.0))), (Student(), float(2 * stats.t.sf(2.0, 3)))]
)
@pytest.mark.parametrize("guarantee", ["auto", "confidence"])
def test_draws_are_enough(law, truth, guarantee):
    found = rs.probability(NET, law, "y[0] > 2", guarantee=guarantee, level=0.9999, tolerance=0.02, rng=1)
    assert found.guarantee == "confidence" and found.level == 0.9999
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower < 0.5


def test_what_draws_cannot_give_is_refused_in_words():
    for guarantee in ("exact", "sound"):
        with pytest.raises(InputError, match=r"only draws are known.*confidence"):
            rs.probability(NET, Student(), "y[0] > 2", guarantee=guarantee)
    with pytest.raises(InputError, match="only draws are known"):
        rs.outputs(NET, Student())
    with pytest.raises(InputError, match="does not say its mean"):
        Student().mean
    with pytest.raises(InputError, match="does not say its log density"):
        Student().log_density([0.0, 0.0])
    with pytest.raises(InputError, match="cannot be written"):
        Student().to_dict()
    assert Laplace().log_density([0.0, 0.0]) == pytest.approx(-2 * np.log(2))
    assert repr(Student()) == "Student(2 inputs, open)"


def test_bad_draws_are_named():
    class Short(OpenLaw):
        n = 2

        def _sample(self, count, rng):
            return rng.normal(size=count)

    class Broken(OpenLaw):
        n = 2

        def _sample(self, count, rng):
            return np.full((count, 2), np.nan)

    with pytest.raises(InputError, match=r"_sample of Short must return an array of shape \(8, 2\), got \(8,\)"):
        rs.probability(NET, Short(), "y[0] > 2", rng=0)
    with pytest.raises(InputError, match="finite numbers"):
        rs.probability(NET, Broken(), "y[0] > 2", rng=0)


class Triangular(OpenLaw):
    """On a box, as a uniform law is: what knows only the box must not take it for one."""

    n = 2
    mean = np.full(2, 1 / 3)
    variance = np.full(2, 1 / 18)

    def _sample(self, count, rng):
        return rng.triangular(0.0, 0.0, 1.0, size=(count, 2))

    def support(self):
        return np.zeros(2), np.ones(2)

    far_box = support


MIXED = rs.Mixture([0.5, 0.5], [Triangular(), rs.Uniform([0.0, 0.0], [1.0, 1.0])])


@pytest.mark.parametrize("law", [Triangular(), MIXED], ids=["open", "mixture"])
@pytest.mark.parametrize(
    "ask",
    {
        "masses": lambda law: rs.regions(NET, box=(0, 1)).masses(law),
        "mass": lambda law: rs.mass([[1.0, 1.0]], [1.0], law),
        "moments": lambda law: rs.measure.moments([[1.0, 1.0]], [1.0], law),
        "sensitivity": lambda law: rs.sensitivity(NET, law, "y[0] > 0.5"),
        "report": lambda law: rs.report(NET, law),
        "change": lambda law: rs.change(NET, law, [0]),
        "agreement": lambda law: rs.agreement(NET, NET, law),
        "exact": lambda law: rs.probability(NET, law, "y[0] > 0.5", guarantee="exact"),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_law_on_a_box_is_not_taken_for_a_uniform_one(law, ask):
    with pytest.raises(InputError, match=r"only draws are known.*confidence"):
        ask[1](law)


def test_a_mixture_with_such_a_law_is_drawn_too():
    truth = 0.5 * 0.25 + 0.5 * 0.5  # P(x > 1/2) of the two
    found = rs.probability(NET, MIXED, "y[0] > 0.5", level=0.9999, tolerance=0.02, rng=3)
    assert found.guarantee == "confidence" and found.lower <= truth <= found.upper and found.width < 0.1

    class Broken(OpenLaw):
        n = 2

        def _sample(self, count, rng):
            return np.full((count, 2), np.nan)

    with pytest.raises(InputError, match="_sample of Broken must return finite numbers"):
        rs.probability(NET, rs.Mixture([0.5, 0.5], [rs.Gaussian([0.0, 0.0]), Broken()]), "y[0] > 2", rng=0)


def test_witnesses_and_robustness_by_draws():
    for law in (Triangular(), MIXED):
        found = rs.witness(NET, law, "y[0] > 0.5", rng=0)
        assert found.x[0] > 0.5 and not found.proved_nearest and found.distance is None
        nothing = rs.witness(NET, law, "y[0] > 0.5 and y[0] < 0.5000001 and x[1] > 0.9999999", rng=0)
        assert len(nothing) == 0 and not nothing.proved_empty

    class Line(OpenLaw):
        n = 1

        def _sample(self, count, rng):
            return rng.uniform(-1.0, 1.0, size=(count, 1))

    near = rs.robust(rs.Network([([[1.0]], [0.0])]), Line(), 0.1, draws=2000, level=0.9999, rng=0)
    assert near.guarantee == "confidence" and near.lower <= 0.1 <= near.upper and near.width < 0.1


def test_a_law_is_named_once_in_messages():
    with pytest.raises(InputError, match=r"^Triangular\(2 inputs, open\) has no product"):
        rs.product(Triangular(), rs.Gaussian([0.0]))


def test_swapped_arguments_of_a_law_are_explained():
    class Swapped(OpenLaw):
        n = 1

        def _sample(self, rng, count):
            return rng.normal(size=(count, 1))

    with pytest.raises(InputError, match=r"_sample of Swapped failed .* it is called as _sample\(count, rng\)"):
        Swapped().sample(3, 0)
