"""Derivatives by the law against finite differences of exact probabilities and closed forms; two laws compared."""

import numpy as np
import pytest
from scipy.special import ndtr

import reluscope as rs
from nets import random_net
from reluscope.errors import InputError

STEP = 1e-4


def exact(net, law, event):
    return rs.probability(net, law, event, guarantee="exact").value


def differences(net, make, mean, cov, event):
    """Central differences by mean and covariance (a symmetric pair of entries moved together, half each)."""
    d = len(mean)
    by_mean = [
        (exact(net, make(mean + STEP * e, cov), event) - exact(net, make(mean - STEP * e, cov), event)) / (2 * STEP)
        for e in np.eye(d)
    ]
    by_cov = np.zeros((d, d))
    for i in range(d):
        for j in range(d):
            move = np.zeros((d, d))
            move[i, j] += 0.5 * STEP
            move[j, i] += 0.5 * STEP
            by_cov[i, j] = (exact(net, make(mean, cov + move), event) - exact(net, make(mean, cov - move), event)) / (
                2 * STEP
            )
    return np.array(by_mean), by_cov


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("kind", ["gaussian", "truncated"])
def test_against_finite_differences(dimension, kind):
    rng = np.random.default_rng(dimension)
    net = random_net((dimension, 5, 4, 2), dimension)
    root = rng.normal(size=(dimension, dimension))
    mean, cov = 0.3 * rng.normal(size=dimension), root @ root.T + 0.3 * np.eye(dimension)
    event = "y[0] > y[1] or x[0] > 0.7"

    def make(m, S):
        gaussian = rs.Gaussian(m, S)
        return gaussian if kind == "gaussian" else rs.Truncated(gaussian, -1.5, 1.8)

    found = rs.sensitivity(net, make(mean, cov), event)
    by_mean, by_cov = differences(net, make, mean, cov, event)
    assert found.guarantee == "exact"
    assert found.mean.value == pytest.approx(by_mean, abs=3e-8)
    assert found.cov.value == pytest.approx(by_cov, abs=3e-8)
    assert (found.mean.upper - found.mean.lower).max() < 1e-7
    guess = rs.sensitivity(net, make(mean, cov), event, guarantee="confidence", budget="0.3s", level=0.99999, rng=0)
    assert guess.guarantee == "confidence"
    for name in ("mean", "cov"):
        g, e = getattr(guess, name), getattr(found, name)
        assert ((g.lower - 1e-9 <= e.value) & (e.value <= g.upper + 1e-9)).all()


def test_closed_form_and_unseen_directions():
    # P(w x > t): dp/dm = w phi(z) / s, dp/dSigma = z phi(z) / (2 s^2) w w'.
    w = np.array([1.0, -2.0, 0.5, 0.0, 3.0])
    net = rs.Network([(w[None], [0.0])])
    root = np.random.default_rng(0).normal(size=(5, 5))
    law = rs.Gaussian(np.array([0.1, 0.2, -0.1, 0.4, 0.0]), root @ root.T + np.eye(5))
    s = np.sqrt(w @ law.cov @ w)
    z = (1.5 - w @ law.mean) / s
    phi = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    found = rs.sensitivity(net, law, "y > 1.5")
    assert found.probability.value == pytest.approx(ndtr(-z), rel=1e-11)
    assert found.mean.value == pytest.approx(w * phi / s, abs=1e-11)
    assert found.cov.value == pytest.approx(0.5 * z * phi / s**2 * np.outer(w, w), abs=1e-10)
    low = rs.Gaussian(np.zeros(3), np.array([0.5, 1.0, 2.0]), low_rank=np.array([[1.0], [0.5], [-1.0]]))
    v = np.array([1.0, 1.0, 1.0])
    t = np.sqrt(v @ low.cov @ v)
    found = rs.sensitivity(rs.Network([(v[None], [0.0])]), low, "y > 1")
    assert found.mean.value == pytest.approx(v * np.exp(-0.5 / t**2) / np.sqrt(2 * np.pi) / t, abs=1e-11)


def test_truncated_inputs_that_the_network_does_not_see():
    net = rs.Network([([[1.0, 0.0]], [0.0])])
    base = np.diag([1.0, 1.0])
    law = rs.Truncated(rs.Gaussian([0.0, 0.0], [1.0, 1.0]), [-2.0, 0.5], [2.0, 2.0])
    found = rs.sensitivity(net, law, "y > 0.3")

    def moved(rho):
        cov = base.copy()
        cov[0, 1] = cov[1, 0] = rho
        return exact(net, rs.Truncated(rs.Gaussian([0.0, 0.0], cov), [-2.0, 0.5], [2.0, 2.0]), "y > 0.3")

    slope = (moved(STEP) - moved(-STEP)) / (2 * STEP)  # both entries of the pair move
    assert abs(slope) > 0.1
    assert found.cov.value[0, 1] + found.cov.value[1, 0] == pytest.approx(slope, abs=1e-6)


def test_mixtures_uniform_laws_and_particles():
    net = random_net((2, 6, 2), 4)
    event = "y[0] > y[1]"
    parts = [rs.Gaussian([0.0, 0.1], 0.5), rs.Gaussian([1.0, -1.0], [[1.0, 0.2], [0.2, 0.5]])]
    mixture = rs.GaussianMixture([0.3, 0.7], parts)
    found = rs.sensitivity(net, mixture, event)
    assert found.weights.value == pytest.approx([exact(net, p, event) for p in parts], abs=1e-12)
    one = rs.sensitivity(net, parts[1], event)
    assert found.mean.value[1] == pytest.approx(0.7 * one.mean.value, abs=1e-12)
    assert found.cov.value[1] == pytest.approx(0.7 * one.cov.value, abs=1e-12)
    box = rs.Uniform([-1.0, -1.0], [1.0, 2.0])
    found = rs.sensitivity(net, box, event)
    for i, e in enumerate(np.eye(2)):
        up = exact(net, rs.Uniform(box.lower, box.upper + STEP * e), event)
        down = exact(net, rs.Uniform(box.lower, box.upper - STEP * e), event)
        assert found.upper.value[i] == pytest.approx((up - down) / (2 * STEP), abs=1e-7)
        up = exact(net, rs.Uniform(box.lower + STEP * e, box.upper), event)
        down = exact(net, rs.Uniform(box.lower - STEP * e, box.upper), event)
        assert found.lower.value[i] == pytest.approx((up - down) / (2 * STEP), abs=1e-7)
    points = rs.Particles([[0.0, 0.0], [1.0, -1.0], [-2.0, 2.0]])
    inside = net(points.points)[:, 0] > net(points.points)[:, 1]
    assert rs.sensitivity(net, points, event).weights.value.tolist() == inside.astype(float).tolist()
    assert set(found.to_dict()) == {
        "probability",
        "guarantee",
        "mean",
        "cov",
        "weights",
        "lower",
        "upper",
        "note",
        "seed",
    }


def test_exact_is_refused_where_it_is_not_possible():
    net = random_net((5, 6, 2), 0)
    with pytest.raises(InputError, match="5 dimensions"):
        rs.sensitivity(net, rs.Gaussian(np.zeros(5)), "y[0] > 0", guarantee="exact")
    found = rs.sensitivity(net, rs.Gaussian(np.zeros(5)), "y[0] > 0", budget="0.2s", rng=0)
    assert found.guarantee == "confidence" and found.mean.shape == (5,)


def test_compare():
    net = random_net((3, 8, 2), 1)
    a, b = rs.Gaussian(np.zeros(3)), rs.Gaussian([0.002, 0.0, 0.0])
    event = "y[0] > y[1]"
    truth = exact(net, b, event) - exact(net, a, event)
    found = rs.compare(net, a, b, event)
    assert found.difference.guarantee == "exact" and found.difference.value == pytest.approx(truth, abs=1e-12)
    assert found.difference.lower <= truth <= found.difference.upper
    guess = rs.compare(net, a, b, event, guarantee="confidence", budget="1s", level=0.9999, rng=0)
    d = guess.difference
    assert d.guarantee == "confidence" and d.lower <= truth <= d.upper
    # Each interval by itself is from points in boxes, which need no common random numbers to be narrow.
    assert d.width <= guess.probability.width + guess.other_probability.width

    boxes = rs.compare(
        net, rs.Uniform(-np.ones(3), 1.0), rs.Uniform(-np.ones(3), 1.01), event, guarantee="confidence", budget="1s"
    )
    assert boxes.difference.lower <= 0.05 and set(boxes.to_dict()) == {
        "probability",
        "other_probability",
        "difference",
        "seed",
    }
    mixed = rs.compare(net, a, rs.Uniform(-np.ones(3), 1.0), event)
    assert mixed.difference.guarantee == "exact"


def test_common_random_numbers_are_worth_having():
    """More dimensions than boxes are for: the width is a fifth of this, on a busy machine less so."""
    net = random_net((70, 70, 2), 1)
    a, b = rs.Gaussian(np.zeros(70)), rs.Gaussian([0.002, *[0.0] * 69])
    guess = rs.compare(net, a, b, "y[0] > y[1]", guarantee="confidence", budget="1s", level=0.9999, rng=0)
    assert guess.difference.width < 0.5 * (guess.probability.width + guess.other_probability.width)


def test_thousands_of_covariances_are_refused_before_they_fill_the_memory():
    net = random_net((100, 4, 1), seed=0)
    law = rs.kde(np.random.default_rng(0).normal(size=(8000, 100)))
    with pytest.raises(rs.InputError, match=r"law has 8,000 components of 100 inputs.*GB; ask for fewer components"):
        rs.sensitivity(net, law, "y > 0", rng=0)


def test_more_components_than_the_budget_has_time_for_are_refused():
    law = rs.kde(np.random.default_rng(0).normal(size=(400, 8)))
    net = random_net((8, 12, 1), 0)
    with pytest.raises(InputError, match=r"400 components.*a budget of 6 s is needed, got 1 s"):
        rs.sensitivity(net, law, "y[0] > 1", budget="1s", rng=0)
