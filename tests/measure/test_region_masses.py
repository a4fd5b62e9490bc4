"""Masses of regions and polytopes under every law, through the public door."""

import numpy as np
import pytest
from scipy.special import ndtr

import reluscope as rs
from nets import integer_net, random_net
from reluscope.errors import InputError

G2 = rs.Gaussian([0.3, -0.2], [[1.0, 0.3], [0.3, 2.0]])
MIXTURE = rs.GaussianMixture([0.3, 0.7], [rs.Gaussian([3.0, 0.0], [0.5, 0.1]), rs.Gaussian([-2.0, 1.0], 1.0)])


def inside_interval(count, n, answer):
    """The count lies in the binomial interval around the answer's bracket, at a false-alarm rate of 1e-9."""
    spread = 6.2 * np.sqrt(np.maximum(answer.upper * (1 - answer.lower), 1.0 / n) / n)
    return (count / n >= answer.lower - spread) & (count / n <= answer.upper + spread)


LAWS = {
    "gaussian 1": rs.Gaussian([0.5], 2.0),
    "gaussian 2": G2,
    "gaussian 3": rs.Gaussian([0.1, 0.2, 0.3], [1.0, 2.0, 0.5]),
    "gaussian 6": rs.Gaussian(np.zeros(6), 1.0),
    "singular": rs.Gaussian([1.0, 2.0, 0.0], factor=[[1.0], [2.0], [-1.0]]),
    "mixture": MIXTURE,
    "uniform 4": rs.Uniform(-np.ones(4), np.ones(4)),
    "uniform 8": rs.Uniform(-np.ones(8), np.ones(8)),
    "truncated": rs.Truncated(rs.Gaussian([0.0, 0.0], 1.0), [-1.0, -1.0], [1.0, 2.0]),
    "truncated, correlated": rs.Truncated(G2, [-1.0, -np.inf], [1.0, 2.0]),
    "particles": rs.Particles(np.random.default_rng(0).normal(size=(500, 2))),
}


@pytest.mark.parametrize("name", LAWS)
def test_mass_agrees_with_draws(name):
    law = LAWS[name]
    rng = np.random.default_rng(1)
    A, b = rng.normal(size=(4, law.n)), rng.random(4) + 0.3
    answer = rs.mass(A, b, law, rng=0)
    n = 400_000
    inside = ((law.sample(n, rng=2) @ A.T) <= b).all(axis=1).sum()
    assert inside_interval(inside, n, answer)
    assert answer.lower <= answer.value <= answer.upper
    assert answer.guarantee == ("confidence" if name in ("gaussian 6", "uniform 8") else "exact")


def test_known_masses():
    one = rs.Gaussian(np.zeros(5), 1.0)
    half = rs.mass([[1.0, 2.0, 0.0, -1.0, 0.5]], [0.0], one)
    assert half.value == 0.5
    assert half.guarantee == "exact"  # one row sees one direction, whatever the dimension
    assert rs.mass([[1.0, 0.0]], [-30.0], rs.Gaussian([0, 0], 1.0)).value == pytest.approx(ndtr(-30.0), rel=1e-12)
    box = np.concatenate([np.eye(3), -np.eye(3)])
    expected = (ndtr(0.7) - ndtr(-0.7)) ** 3
    assert rs.mass(box, [0.7] * 6, rs.Gaussian(np.zeros(3), 1.0)).value == pytest.approx(expected, rel=1e-9)
    assert rs.mass(
        [[-1.0, 0.0], [0.0, -1.0]], [0, 0], rs.Gaussian([0, 0], [[1, 0.5], [0.5, 1]])
    ).value == pytest.approx(1 / 3, rel=1e-14)
    assert rs.mass([[1.0, 1.0, 1.0, 1.0]], [0.0], rs.Uniform(np.zeros(4), np.ones(4))).value == 0.0
    assert rs.mass([[1.0, 1.0, 1.0]], [1.0], rs.Uniform(np.zeros(3), np.ones(3))).value == pytest.approx(
        1 / 6, rel=1e-13
    )
    assert rs.mass(np.zeros((0, 2)), [], G2).value == 1.0
    assert rs.mass([[1.0, 0.0], [-1.0, 0.0]], [0.0, -1.0], G2).value == 0.0  # empty
    assert rs.mass([[1.0, 0.0]], [1.0], rs.Gaussian([0.0, 5.0], [0.0, 1.0])).value == 1.0  # constant on the law


@pytest.mark.parametrize(
    "name", ["gaussian 1", "gaussian 2", "gaussian 3", "mixture", "truncated", "truncated, correlated"]
)
def test_masses_of_a_subdivision_sum_to_one(name):
    law = LAWS[name]
    net = random_net((law.n, 8, 8, 2), 3, bias=0.7)
    found = rs.regions(net, law=law)
    masses = found.masses(law)
    assert masses.guarantee == "exact"
    np.testing.assert_allclose(masses.value.sum(), 1.0, atol=1e-8 if law.n == 3 else 1e-12)
    draws = found.find(law.sample(300_000, rng=4))
    assert (draws >= 0).all()
    counts = np.bincount(draws, minlength=len(found))
    assert inside_interval(counts, 300_000, masses).all()


@pytest.mark.parametrize("seed", range(8))
def test_masses_sum_to_one_in_three_dimensions_for_degenerate_nets(seed):
    rng = np.random.default_rng(seed)
    law = rs.Gaussian(rng.normal(size=3), rng.random(3) + 0.2)
    if seed % 2:
        law = rs.Truncated(law, rng.normal(size=3) - 1.5, rng.normal(size=3) + 1.5)
    masses = rs.regions(integer_net((3, 6, 5, 1), seed), law=law).masses(law)
    assert abs(masses.value.sum() - 1) < 1e-8


def test_masses_under_uniform_and_particles():
    net = random_net((3, 7, 7, 1), 0, bias=0.5)
    law = rs.Uniform([-1, 0, -2], [1, 2, 2])
    masses = rs.regions(net, law=law).masses(law)
    assert masses.value.sum() == pytest.approx(1.0, abs=1e-12)
    points = rs.Particles(np.random.default_rng(0).normal(size=(50, 3)))
    found = rs.regions(net, law=points)
    assert found.masses(points).value.sum() == pytest.approx(1.0)


def test_masses_in_five_dimensions_sum_to_one_within_their_intervals():
    law = rs.Gaussian(np.zeros(5), 1.0)
    found = rs.regions(random_net((5, 6, 4, 1), 1, bias=0.5), law=law)
    masses = found.masses(law, rng=0)
    assert masses.guarantee == "confidence"
    # Errors of the cells are independent: their sum is within 6 standard deviations (false alarms 2e-9).
    spread = np.sqrt((((masses.upper - masses.lower) / 2 / 3.29) ** 2).sum())
    assert abs(masses.value.sum() - 1) < 6 * spread + 1e-9


@pytest.mark.parametrize("name", [k for k in LAWS if k != "uniform 8"])
def test_moments_agree_with_draws(name):
    law = LAWS[name]
    rng = np.random.default_rng(5)
    A, b = rng.normal(size=(3, law.n)), rng.random(3) + 0.2
    found = rs.measure.moments(A, b, law, rng=0)
    n = 400_000
    x = law.sample(n, rng=6)
    w = (x @ A.T <= b).all(axis=1)
    assert found.mass == pytest.approx(rs.mass(A, b, law, rng=1).value, rel=5e-3)
    for value, sample in (
        (found.first, w[:, None] * x),
        (found.second, w[:, None, None] * x[:, :, None] * x[:, None, :]),
    ):
        error = sample.std(axis=0) / np.sqrt(n) + 1e-3 * np.abs(value)
        assert (np.abs(sample.mean(axis=0) - value) <= 6.5 * error + 1e-12).all()


def test_moments_closed_forms():
    z = rs.measure.moments([[-1.0]], [0.0], rs.Gaussian([0.0], 1.0))  # half line
    assert z.mass == 0.5
    assert z.first[0] == pytest.approx(1 / np.sqrt(2 * np.pi), rel=1e-14)
    assert z.second[0, 0] == pytest.approx(0.5, rel=1e-14)
    # relu(x) has variance 1/2 - 1/(2 pi)
    assert z.second[0, 0] - z.first[0] ** 2 == pytest.approx(0.5 - 1 / (2 * np.pi), rel=1e-13)
    # E relu(X) relu(Y) at correlation r
    r = 0.6
    q = rs.measure.moments(-np.eye(2), [0, 0], rs.Gaussian([0, 0], [[1, r], [r, 1]]))
    assert q.second[0, 1] == pytest.approx((np.sqrt(1 - r * r) + r * (np.pi - np.arccos(r))) / (2 * np.pi), rel=1e-13)
    whole = rs.measure.moments(np.zeros((0, 2)), [], G2)
    np.testing.assert_allclose(whole.mean, G2.mean)
    np.testing.assert_allclose(whole.cov, G2.cov)
    cube = rs.measure.moments([[1.0, 1.0]], [1.0], rs.Uniform([0, 0], [1, 1]))  # the triangle
    np.testing.assert_allclose(cube.mean, [1 / 3, 1 / 3])
    np.testing.assert_allclose(cube.cov, [[1 / 18, -1 / 36], [-1 / 36, 1 / 18]])


@pytest.mark.parametrize(("widths", "law"), [((2, 6, 5, 2), G2), ((3, 5, 1), LAWS["gaussian 3"]), ((2, 6, 1), MIXTURE)])
def test_regions_of_the_whole_space_have_gaussian_masses(widths, law):
    net = random_net(widths, 4)
    regions = rs.regions(net)
    masses = regions.masses(law)
    assert masses.guarantee == "exact" and len(masses) == len(regions) > 10
    assert masses.lower.sum() <= 1.0 <= masses.upper.sum() and masses.value.sum() == pytest.approx(1.0, abs=1e-12)
    for i in range(0, len(regions), 3):  # one by one, by the half-spaces of the pattern
        alone = rs.mass(net.polytope(regions.pattern[i]), law)
        assert masses.value[i] == pytest.approx(alone.value, rel=1e-7, abs=1e-13)
    far = rs.Gaussian(np.full(net.n_inputs, 1e6), 1e-4)
    assert regions.masses(far).value.max() == pytest.approx(1.0, abs=1e-12)


def test_half_planes_have_their_closed_form():
    net = rs.Network([([[1.0, 1.0]], [-1.0]), ([[1.0]], None)])
    regions = rs.regions(net)
    masses = regions.masses(rs.Gaussian([0.0, 0.0]))
    wanted = ndtr(np.array([1.0, -1.0]) / np.sqrt(2.0))
    np.testing.assert_allclose(masses.value[np.argsort(regions.pattern[:, 0])], wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: rs.mass([[1.0, 2.0]], [0.0], "normal"), "law must be"),
        (lambda: rs.mass([[1.0, 2.0, 3.0]], [0.0], G2), "needs A of shape"),
        (lambda: rs.mass([[1.0, np.nan]], [0.0], G2), "finite"),
        (lambda: rs.mass([[1.0, 2.0]], [0.0], G2, relative=0), "relative"),
        (lambda: rs.mass([[1.0, 2.0]], [0.0], G2, level=1), "level"),
        (lambda: rs.mass([[1.0, 2.0]], [0.0], G2, rng=-1), "rng"),
        (lambda: rs.measure.moments([[1.0, 2.0]], [0.0], None), "law must be"),
        (lambda: rs.regions(random_net((2, 3, 1))).masses(rs.Uniform([-1, -1], [1, 1])), "beyond the box"),
        (lambda: rs.regions(random_net((2, 3, 1)), (-1, 1)).masses(rs.Gaussian([0.0], 1.0)), "1 inputs"),
        (lambda: rs.regions(random_net((2, 3, 1)), (-2, 2)).masses(rs.Uniform([-1, -1], [1, 1])), "beyond the box"),
        (lambda: rs.regions(random_net((2, 3, 1)), (-2, 2), law=G2), "not both"),
        (lambda: rs.regions(random_net((2, 3, 1)), law=rs.Gaussian([0.0], 1.0)), "1 inputs"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, says):
    with pytest.raises(InputError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_exact_masses_inside_other_calls(jobs):
    """What was not measured is left out and said to be; no other component is begun."""
    net = random_net((3, 10, 6, 1), 3)
    law = rs.Gaussian(np.zeros(3), 1.0)
    calls: list[int] = []

    def interrupt(done, text):
        calls.append(done)
        if text == "cells" and done >= 64:
            raise KeyboardInterrupt

    whole = rs.linear_models(net, law)
    found = rs.linear_models(net, law, progress=interrupt, jobs=jobs)
    assert found.stopped == "interrupted" and 0 < len(found) < len(whole)
    assert rs.outputs(net, law, progress=interrupt, jobs=jobs).stopped == "interrupted"
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        rs.linear_models(net, rs.GaussianMixture([0.5, 0.5], [law, law.move(mean=1.0)]), progress=interrupt, jobs=jobs)
    assert calls[-1] >= 64
