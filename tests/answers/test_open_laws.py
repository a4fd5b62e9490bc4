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
