"""Mixtures of laws and mixtures given a box, in every engine: against quadrature, closed forms and draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

import reluscope as rs

BOX = ([0.0, -np.inf], [2.0, 1.5])
PLAIN = rs.GaussianMixture([0.4, 0.6], [rs.Gaussian([0.5, 0.0], [1.0, 2.0]), rs.Gaussian([1.5, 2.0], [0.5, 1.0])])
LAW = PLAIN.truncated(*BOX)
NET = rs.Network(
    [([[1.0, 0.5], [-1.0, 1.0], [0.5, -1.0]], [0.1, 0.2, -0.3]), ([[1.0, -1.0, 0.5], [0.3, 1.0, -1.0]], [0.0, 0.1])]
)
EVENT = "y[0] > y[1] + 0.2"


def two_dimensions(law: rs.GaussianMixture, inside, box) -> float:
    """The probability of `inside` given the box, by sums over a fine grid of the plain mixture's density."""
    (x0, x1), (y0, y1) = box
    x, y = (np.linspace(a, b, 1501)[:-1] + (b - a) / 3000 for a, b in ((x0, x1), (y0, y1)))
    grid = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    p = law.density(grid)
    return float((p * inside(grid)).sum() / p.sum())


@pytest.fixture(scope="module")
def truth() -> float:
    """Good to 1e-3 of itself: the event's edge runs between points of the grid."""
    return two_dimensions(PLAIN, lambda X: rs.event(EVENT, 2, 2).holds(NET, X), ((0.0, 2.0), (-12.0, 1.5)))


def test_one_dimension_against_quadrature():
    law = rs.GaussianMixture([0.5, 0.3, 0.2], [rs.Gaussian([0.0]), rs.Gaussian([3.0], 4.0), rs.Gaussian([9.0], 0.01)])
    cut = law.truncated(-0.5, 6.0)
    assert len(cut) == 3  # the last has 1e-197 inside, which float64 can tell
    net = rs.Network([([[1.0], [-1.0]], [-0.3, 1.0]), ([[1.0, 2.0]], [0.0])])
    assert net([[2.8], [-0.25], [2.7], [-0.2]]).ravel() == pytest.approx([2.5, 2.5, 2.4, 2.4])
    part = integrate.quad(lambda t: float(law.density([t])), 2.8, 6.0, epsabs=1e-13)[0]
    low = integrate.quad(lambda t: float(law.density([t])), -0.5, -0.25, epsabs=1e-13)[0]
    whole = integrate.quad(lambda t: float(law.density([t])), -0.5, 6.0, epsabs=1e-13, limit=200)[0]
    for guarantee in ("exact", "sound", "confidence"):
        found = rs.probability(net, cut, "y > 2.5", guarantee=guarantee, rng=0)
        assert found.lower - 1e-11 <= (part + low) / whole <= found.upper + 1e-11
        assert found.upper - found.lower < 1e-2


@pytest.mark.parametrize("guarantee", ["auto", "exact", "sound", "confidence"])
def test_two_dimensions_against_a_grid(guarantee, truth):
    found = rs.probability(NET, LAW, EVENT, guarantee=guarantee, rng=0, budget="5s")
    assert found.upper - found.lower < 0.02
    assert found.lower - 1e-3 <= truth <= found.upper + 1e-3
    assert 0.1 < truth < 0.9


def test_components_add_up():
    exact = rs.probability(NET, LAW, EVENT, guarantee="exact").value
    parts = [(w, rs.probability(NET, part, EVENT, guarantee="exact").value) for w, part in LAW.components]
    assert exact == pytest.approx(sum(w * p for w, p in parts), abs=1e-12)
    other = rs.probability(NET, LAW, "y[0] <= y[1] + 0.2", guarantee="exact").value
    assert exact + other == pytest.approx(1.0, abs=1e-11)


def test_bayes():
    """`P(event and box) / P(box)` under the plain mixture is `P(event)` under the mixture given the box."""
    both = rs.probability(NET, PLAIN, f"{EVENT} and x[0] >= 0 and x[0] <= 2 and x[1] <= 1.5", guarantee="exact")
    box = rs.probability(NET, PLAIN, "x[0] >= 0 and x[0] <= 2 and x[1] <= 1.5", guarantee="exact")
    given = rs.probability(NET, LAW, EVENT, guarantee="exact")
    assert given.value == pytest.approx(both.value / box.value, rel=1e-10)
    restriction = PLAIN.restrict(*BOX)
    assert restriction is not None
    assert np.exp(restriction.log_mass) == pytest.approx(box.value, rel=1e-11)


def test_twice_is_once():
    twice = PLAIN.truncated(-1.0, np.inf).truncated(*BOX).truncated([0.2, -np.inf], np.inf)
    once = PLAIN.truncated([0.2, -1.0], [2.0, 1.5])
    np.testing.assert_allclose(twice.mean, once.mean, rtol=1e-10)
    assert rs.probability(NET, twice, EVENT).value == pytest.approx(rs.probability(NET, once, EVENT).value, rel=1e-9)


def test_correlated_components():
    """One restricted input has a closed form; several do not, and the message says how to make the law."""
    cov = [[1.0, 0.6], [0.6, 1.0]]
    law = rs.GaussianMixture([0.5, 0.5], [rs.Gaussian([0.0, 0.0], cov), rs.Gaussian([1.0, -1.0], cov)])
    one = law.truncated([0.5, -np.inf], np.inf)
    want = two_dimensions(law, lambda X: rs.event(EVENT, 2, 2).holds(NET, X), ((0.5, 9.0), (-9.0, 9.0)))
    for guarantee in ("exact", "sound", "confidence"):
        found = rs.probability(NET, one, EVENT, guarantee=guarantee, rng=0, budget="6s", tolerance=0.005)
        assert found.lower - 2e-3 <= want <= found.upper + 2e-3 and found.upper - found.lower < 0.05
    with pytest.raises(rs.InputError, match=r"component 0 is correlated .* reluscope.mass"):
        law.truncated(0.5, np.inf)
    assert law.restrict(0.5, np.inf) is None
    rows = -np.eye(2), [-0.5, -0.5]
    masses = np.array([w * rs.mass(*rows, g, rng=0).value for w, g in law.components])
    both = rs.Mixture(masses / masses.sum(), [rs.Truncated(g, 0.5, np.inf) for _, g in law.components])
    want = two_dimensions(law, lambda X: rs.event(EVENT, 2, 2).holds(NET, X), ((0.5, 9.0), (0.5, 9.0)))
    for guarantee in ("exact", "sound", "confidence"):
        found = rs.probability(NET, both, EVENT, guarantee=guarantee, rng=0, budget="6s", tolerance=0.005)
        assert found.lower - 2e-3 <= want <= found.upper + 2e-3


def test_six_dimensions_against_draws():
    rng = np.random.default_rng(5)
    net = rs.Network([(rng.normal(size=(12, 6)), rng.normal(size=12)), (rng.normal(size=(1, 12)), [0.0])])
    plain = rs.GaussianMixture([0.7, 0.3], [rs.Gaussian(np.zeros(6)), rs.Gaussian(np.ones(6), 0.5)])
    law = plain.truncated(-0.5, [np.inf] * 3 + [2.0] * 3)
    X = plain.sample(1_000_000, 0)
    X = X[((X >= -0.5) & (X[:, [3]] <= 2.0) & (X[:, [4]] <= 2.0) & (X[:, [5]] <= 2.0)).all(axis=1)]
    assert len(X) > 50_000
    threshold = float(np.quantile(net(X), 0.98))
    found = rs.probability(net, law, f"y > {threshold}", rng=0, budget="4s")
    error = 4.5 * np.sqrt(0.02 * 0.98 / len(X))
    assert found.lower - error <= 0.02 <= found.upper + error
    assert found.upper - found.lower < 0.01


def test_rare_events():
    """A tail of 1e-9 in one direction: the closed form of the mixture, with the box in the other inputs."""
    net = rs.Network([(np.eye(4), np.full(4, 60.0)), (np.full((1, 4), 0.5), [-120.0])])
    plain = rs.GaussianMixture([0.5, 0.5], [rs.Gaussian(np.zeros(4)), rs.Gaussian(np.full(4, 0.25))])
    law = plain.truncated([-np.inf] * 4, [np.inf] * 3 + [60.0])  # a side that does not matter
    want = 0.5 * (stats.norm.sf(6.0) + stats.norm.sf(6.0 - 0.5))
    found = rs.probability(net, law, "y > 6", guarantee="confidence", rng=0, budget="6s")
    assert found.lower <= want <= found.upper and found.upper < 100 * want


def test_regions_outputs_and_linear_models(truth):
    found = rs.regions(NET, law=LAW)
    masses = found.masses(LAW, rng=0)
    assert masses.guarantee == "exact" and masses.value.sum() == pytest.approx(1.0, abs=1e-9)
    share = np.bincount(found.find(LAW.sample(200_000, 1)), minlength=len(found)) / 200_000
    assert np.abs(share - masses.value).max() < 0.006
    models = rs.linear_models(NET, LAW, rng=0)
    assert models.masses.value.sum() == pytest.approx(1.0, abs=1e-9)
    out = rs.outputs(NET, LAW, rng=0)
    np.testing.assert_allclose(out.mean.value, NET(LAW.sample(400_000, 2)).mean(axis=0), atol=0.01)
    assert rs.mass([[1.0, -1.0]], [0.5], LAW, rng=0).value == pytest.approx(
        rs.probability(NET, LAW, "x[0] - x[1] <= 0.5", guarantee="exact").value, abs=1e-10
    )


def test_moments_of_a_polytope():
    from reluscope.measure.regions import moments

    found = moments([[1.0, -1.0]], [0.5], LAW)
    X = LAW.sample(400_000, 3)
    inside = X[:, 0] - X[:, 1] <= 0.5
    np.testing.assert_allclose(found.first, (X * inside[:, None]).mean(axis=0), atol=0.01)
    np.testing.assert_allclose(found.mass, inside.mean(), atol=0.005)


def test_witnesses_lie_in_the_box():
    found = rs.witness(NET, LAW, EVENT, n=3, rng=0)
    assert len(found) == 3
    for w in found:
        assert (w.x >= np.array(BOX[0]) - 1e-12).all() and (w.x <= BOX[1]).all()
        assert rs.event(EVENT, 2, 2).holds(NET, w.x)
    with pytest.raises(rs.InputError, match="nearest inputs of a mixture"):
        rs.witness(NET, rs.Mixture([0.5, 0.5], [rs.Gaussian([0.0, 0.0]), rs.Uniform([0, 0], 1)]), EVENT)


def test_sensitivity_to_the_means_of_the_components():
    """Central differences of the exact probability, with the weights and the box of the mixture held."""
    found = rs.sensitivity(NET, LAW, EVENT, guarantee="exact")
    step = 1e-4

    def moved(k: int, i: int, by: float) -> float:
        parts = []
        for j, (_, part) in enumerate(LAW.components):
            mean = part.gaussian.mean.copy()
            mean[i] += by if j == k else 0.0
            parts.append(rs.Truncated(rs.Gaussian(mean, part.gaussian.variance), part.lower, part.upper))
        return rs.probability(NET, rs.Mixture(LAW.weights, parts), EVENT, guarantee="exact").value

    for k in range(2):
        for i in range(2):
            slope = (moved(k, i, step) - moved(k, i, -step)) / (2 * step)
            assert found.mean.value[k, i] == pytest.approx(slope, abs=1e-5)
    each = [rs.probability(NET, part, EVENT, guarantee="exact").value for _, part in LAW.components]
    np.testing.assert_allclose(found.weights.value, each, atol=1e-10)
    by_points = rs.sensitivity(NET, LAW, EVENT, guarantee="confidence", rng=0, budget="3s")
    assert (np.abs(by_points.mean.value - found.mean.value) <= 0.02).all()


def test_change_redraws_given_the_other_inputs():
    """Where one input decides the component, re-drawing the other keeps it."""
    near, far = rs.Gaussian([0.0, 0.0], [1.0, 0.01]), rs.Gaussian([10.0, 5.0], [1.0, 0.01])
    law = rs.GaussianMixture([0.5, 0.5], [near, far]).truncated([-2.0, -np.inf], np.inf)
    net = rs.Network([([[1.0, 0.0]], [-5.0]), ([[1.0]], [0.0])])
    found = rs.change(net, law, [0], draws=20_000, rng=0)
    assert found.pattern.upper < 1e-2
    free = rs.change(net, law, [0, 1], draws=20_000, rng=0)  # nothing stays: the component is drawn anew
    assert free.pattern.value == pytest.approx(0.5, abs=0.02)


def test_mixed_kinds_of_components():
    """A Gaussian and a box: the mean of the two answers, in every engine."""
    parts = [rs.Gaussian([0.0, 0.0]), rs.Uniform([-1.0, -1.0], [2.0, 2.0])]
    law = rs.Mixture([0.25, 0.75], parts)
    exact = [rs.probability(NET, part, EVENT, guarantee="exact").value for part in parts]
    want = 0.25 * exact[0] + 0.75 * exact[1]
    for guarantee in ("exact", "sound", "confidence"):
        found = rs.probability(NET, law, EVENT, guarantee=guarantee, rng=0, budget="4s")
        assert found.lower - 1e-10 <= want <= found.upper + 1e-10 and found.upper - found.lower < 0.02


def test_atoms_on_a_face_of_the_box():
    """A component without spread on a side of the box belongs to the closed box."""
    law = rs.GaussianMixture([0.5, 0.5], [rs.Gaussian([1.0], 0.0), rs.Gaussian([0.0])])
    assert law.truncated(1.0, np.inf).weights[0] == pytest.approx(0.5 / (0.5 + 0.5 * stats.norm.sf(1.0)))
    only = law.truncated(1.0, 1.0)
    assert only.weights.tolist() == [1.0] and only.sample(3, 0).ravel().tolist() == [1.0] * 3
    with pytest.raises(rs.InputError, match="no mass under any component"):
        law.truncated(2.0, 2.0)


def test_other_laws_given_a_box():
    assert isinstance(rs.Gaussian([0.0], 1.0).truncated(0.0, 1.0), rs.Truncated)
    assert rs.Uniform([0.0], 4.0).truncated(1.0, np.inf).support()[0].tolist() == [1.0]
    assert rs.Particles([[0.0], [1.0], [2.0]], [0.5, 0.3, 0.2]).truncated(0.5, 3.0).weights.tolist() == [0.6, 0.4]
    half = rs.Gaussian([0.0, 0.0]).truncated(-1.0, 1.0).truncated([0.0, -np.inf], np.inf)
    assert half.support()[0].tolist() == [0.0, -1.0]
    for law in (rs.Particles([[0.0]]), rs.Uniform([0.0], 1.0), rs.Gaussian([0.0], 0.0)):
        with pytest.raises(rs.InputError, match="the box has"):
            law.truncated(5.0, 6.0)
    with pytest.raises(rs.InputError, match="zero mass"):
        rs.Gaussian([0.0]).truncated(0.0, 1.0).truncated(2.0, 3.0)
    with pytest.raises(rs.InputError, match=r"a box is law.truncated\(lower, upper\)"):
        rs.Truncated(PLAIN, 0.0, 1.0)


def test_what_a_mixture_refuses():
    for words, weights, parts in (
        ("non-empty list of laws", [1.0], "ab"[:0]),
        ("must be laws, got str 'a' at index 0", [1.0], "a"),
        ("must be laws, got int 3 at index 1", [0.5, 0.5], [rs.Gaussian([0.0]), 3]),
        ("same inputs, got 1 at index 0 and 2 at index 1", [0.5, 0.5], [rs.Gaussian([0.0]), rs.Gaussian([0.0, 0.0])]),
        ("weights must sum to 1", [0.5], [rs.Gaussian([0.0])]),
    ):
        with pytest.raises(rs.InputError, match=words):
            rs.Mixture(weights, parts)


def test_law_files():
    from reluscope.inputs import law_from_dict

    data = {"law": "truncated", "gaussian": PLAIN.to_dict(), "lower": [0.0, None], "upper": [2.0, 1.5]}
    np.testing.assert_array_equal(law_from_dict(data).mean, LAW.mean)
    with pytest.raises(rs.InputError, match="must describe a Gaussian, got a Uniform"):
        law_from_dict({**data, "gaussian": {"law": "uniform", "lower": 0, "upper": 1}})
    with pytest.raises(rs.InputError, match="components must be a list of laws"):
        law_from_dict({"law": "mixture of laws", "weights": [1.0], "components": {}})
