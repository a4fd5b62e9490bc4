"""Rare events in many dimensions: closed forms behind ReLU layers, and intervals that know what they have not seen.

Statistical tests run with fixed seeds; intervals at 99.9 % would fail with fresh seeds about once in 300 cases.
"""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import reluscope as rs
from nets import random_net
from reluscope.answer import Answer, Status
from reluscope.answers import probability as answers
from reluscope.events import as_event, place
from reluscope.measure.rare import RAYS_UP_TO, by_populations, rare_probability
from reluscope.measure.rare import probability as dispatch
from reluscope.measure.rare.few import few_directions
from reluscope.measure.rare.ladder import RUNS, Target, climb
from reluscope.measure.shared import CHI, Rays, ray_rows


def turned(r, seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(r, r)))[0]


def maximum_of(directions, distances):
    """y = max_i (d_i x - b_i), by a tournament of max(a, b) = relu(a - b) + relu(b) - relu(-b)."""
    W, c = np.asarray(directions, float), -np.asarray(distances, float)
    layers = []
    while len(W) > 1:
        k = len(W) // 2
        a, b = slice(0, k), slice(k, 2 * k)
        layers.append((np.concatenate([W[a] - W[b], W[b], -W[b]]), np.concatenate([c[a] - c[b], c[b], -c[b]])))
        W, c = np.hstack([np.eye(k), np.eye(k), -np.eye(k)]), np.zeros(k)
    return [*layers, (W, c)]


def behind_a_layer(layers, r):
    """The same function behind ReLU units that see all r inputs: x = Q' (relu(Qx) - relu(-Qx))."""
    Q = turned(r, 5)
    (first, bias), *rest = layers
    both = np.concatenate([Q.T, -Q.T], axis=1)
    return rs.Network([(np.concatenate([Q, -Q]), np.zeros(2 * r)), (first @ both, bias), *rest])


def half_space(r, p):
    w = turned(r, 1)[0]
    z = float(ndtri(p))
    net = behind_a_layer([(np.array([w, -w]), np.array([z, -z])), (np.array([[1.0, -1.0]]), np.zeros(1))], r)
    return net, rs.Gaussian(np.zeros(r)), "y[0] > 0", p


def union(r, distances):
    """Half-spaces at both ends of orthogonal axes: the two ends exclude one another, the axes are independent."""
    Q = turned(r, 2)
    directions = [(-1) ** i * Q[i // 2] for i in range(len(distances))]
    pairs = ndtr(-np.asarray(distances, float)).reshape(-1, 2).sum(axis=1)
    net = behind_a_layer(maximum_of(directions, distances), r)
    return net, rs.Gaussian(np.zeros(r)), "y[0] > 0", float(-np.expm1(np.log1p(-pairs).sum()))


# -- closed forms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(lambda: half_space(60, 1e-6), id="half-space, 60"),
        pytest.param(lambda: half_space(200, 1e-9), id="half-space, 200"),
        pytest.param(lambda: union(60, [4.0, 4.1, 4.2, 4.1]), id="four modes, 60"),
        pytest.param(lambda: union(220, [4.75, 4.8]), id="two-sided, 220"),
    ],
)
def test_closed_forms_in_many_dimensions(case):
    net, law, text, truth = case()
    event = as_event(text, net, law)
    assert place(net, law, event).components[0].r > RAYS_UP_TO
    for seed in range(2 if net.n_inputs < 100 else 1):
        found = rare_probability(net, law, event, rng=seed, level=0.999)
        assert found.lower <= truth <= found.upper
        assert found.value == pytest.approx(truth, rel=0.1) and found.upper < 1.3 * truth
        assert found.status in (Status.DONE, Status.TOLERANCE) and "populations" in found.method


def test_the_default_call_holds_the_truth():
    net, law, text, truth = union(200, [3.9, 4.0])
    found = rs.probability(net, law, text, rng=0)
    assert found.lower <= truth <= found.upper and 0.8 * truth < found.lower and found.upper < 1.3 * truth


def test_laws_in_boxes_and_mixtures():
    r = 16
    eye = np.eye(r)
    # uniform on [-1, 1]^r: P(x0 + x1 > 2 - e) = e^2 / 8
    e = 0.01
    net = behind_a_layer(maximum_of([eye[0] + eye[1], eye[0] + eye[1] - eye[2] * 1e-9], [2 - e, 2 - e]), r)
    law = rs.Uniform(-np.ones(r), np.ones(r))
    found = rare_probability(net, law, as_event("y[0] > 0", net, law), rng=0, level=0.999)
    assert found.lower <= e * e / 8 <= found.upper < 1.4 * e * e / 8
    # a Gaussian in a box
    net, _, text, _ = half_space(r, 1e-5)
    net = behind_a_layer(maximum_of([eye[0], -eye[0]], [4.2, 4.3]), r)
    law = rs.Truncated(rs.Gaussian(np.zeros(r)), -4.5 * np.ones(r), 4.4 * np.ones(r))
    truth = (ndtr(-4.2) - ndtr(-4.4) + ndtr(-4.3) - ndtr(-4.5)) / (ndtr(4.4) - ndtr(-4.5))
    found = rare_probability(net, law, as_event(text, net, law), rng=0, level=0.999)
    assert found.lower <= truth <= found.upper < 1.4 * truth
    # a mixture: the second component hardly meets the event
    net, _, text, _ = half_space(30, 1e-5)
    w, z = turned(30, 1)[0], float(ndtri(1e-5))
    law = rs.GaussianMixture([0.7, 0.3], [rs.Gaussian(np.zeros(30)), rs.Gaussian(-2.0 * w)])
    truth = 0.7e-5 + 0.3 * ndtr(z - 2.0)
    found = rare_probability(net, law, as_event(text, net, law), rng=0, level=0.999)
    assert found.lower <= truth <= found.upper < 1.3 * truth


def test_correlated_inputs_in_a_box_divide_by_its_mass():
    r = 14
    net, _, text, p = half_space(r, 1e-4)
    cov = 0.999 * np.eye(r) + 0.001
    wide = rs.Truncated(rs.Gaussian(np.zeros(r), cov), np.full(r, -8.0), np.full(r, 8.0))  # the box has all of the mass
    w = turned(r, 1)[0]
    truth = float(ndtr(ndtri(p) / np.sqrt(w @ cov @ w)))
    found = rare_probability(net, wide, as_event(text, net, wide), rng=0, level=0.999)
    assert found.lower <= truth <= found.upper < 1.3 * truth
    with pytest.raises(rs.InputError, match="finite-sample"):
        rare_probability(net, wide, as_event(text, net, wide), rng=0, interval="finite-sample")


def test_derivatives_in_many_dimensions():
    net, law, text, p = half_space(40, 1e-6)
    z = float(ndtri(p))
    found = rs.sensitivity(net, law, text, guarantee="confidence", budget="15s", level=0.999, rng=0)
    slope = turned(40, 1)[0] * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    assert found.probability.lower <= p <= found.probability.upper < 1.4 * p
    assert ((found.mean.lower <= slope) & (slope <= found.mean.upper)).all()
    assert np.linalg.norm(found.mean.value - slope) < 0.3 * np.linalg.norm(slope)


# -- what was not seen ---------------------------------------------------------------------------------------------


def test_finite_sample_intervals_hold_and_have_a_tight_lower_bound():
    net, law, text, truth = half_space(40, 1e-7)
    for seed in range(3):
        found = rare_probability(
            net, law, as_event(text, net, law), rng=seed, interval="finite-sample", budget="3s", level=0.99
        )
        assert 0.3 * truth < found.lower <= truth <= found.upper < 0.02


def test_a_climb_without_time_gives_no_narrow_interval():
    net, law, text, truth = half_space(200, 1e-9)
    found = rare_probability(net, law, as_event(text, net, law), rng=0, budget=0.02)
    assert found.lower <= truth <= found.upper and found.upper > 1e-4


def test_lost_populations_widen_the_interval(monkeypatch):
    net, law, text, truth = half_space(20, 1e-4)
    event = as_event(text, net, law)
    whole = rare_probability(net, law, event, rng=0)

    def lossy(*arguments, **options):
        found = climb(*arguments, **options)
        found.inside[: RUNS // 2] = False
        return found

    monkeypatch.setattr(by_populations, "climb", lossy)
    monkeypatch.setattr(by_populations, "ATTEMPTS", 2)
    found = rare_probability(net, law, event, rng=0)
    assert f"only {RUNS // 2} of {RUNS} populations" in found.note and found.status is not Status.DONE
    assert found.lower < whole.lower and found.upper > whole.upper and found.lower <= truth <= found.upper


def test_known_inputs_alone_give_no_replicate_interval(monkeypatch):
    net, law, text, truth = half_space(20, 1e-6)
    event = as_event(text, net, law)

    def nowhere(*arguments, **options):
        found = climb(*arguments, **options)
        found.inside[:] = False
        return found

    monkeypatch.setattr(by_populations, "climb", nowhere)
    far = -5.0 * turned(20, 1)[0] * np.sign(ndtri(1e-6))
    assert event.holds(net, far[None])[0]
    found = rare_probability(net, law, event, rng=0, starts=far[None], budget="2s")
    assert "finite-sample" in found.method and 0.0 < found.lower <= truth <= found.upper and found.upper > 1e-5


@pytest.mark.parametrize("case", ["half-space", "four modes", "random"])
def test_rays_and_populations_agree(case, monkeypatch):
    """Two engines that share no draws: intervals at 99.9 % meet, and hold the truth where it is known."""
    if case == "random":
        net = random_net((8, 20, 20, 1), 4)
        law, text, truth = rs.Gaussian(np.zeros(8)), None, None
        text = f"y[0] > {np.quantile(net(law.sample(20_000, 0))[:, 0], 0.999) * 2.0}"
    else:
        net, law, text, truth = half_space(12, 1e-6) if case == "half-space" else union(10, [4.0, 4.1, 4.2, 4.1])
    event = as_event(text, net, law)
    rays = rare_probability(net, law, event, rng=0, level=0.999)
    monkeypatch.setattr(dispatch, "RAYS_UP_TO", 1)
    populations = rare_probability(net, law, event, rng=1, level=0.999)
    assert "rays" in rays.method and "populations" in populations.method
    assert 0.0 < max(rays.lower, populations.lower) <= min(rays.upper, populations.upper) < 0.01
    for found in (rays, populations):
        assert truth is None or found.lower <= truth <= found.upper
        assert found.upper < 1.3 * found.value


def test_the_pilot_is_a_second_opinion():
    low = Answer(1e-9, 0.5e-9, 2e-9, "confidence", 0.99, "populations (replicate)")
    assert answers._agreed(low, 1e-9, 0.0, 1e-3) is low
    both = answers._agreed(low, 1e-4, 2e-5, 4e-4)
    assert (both.lower, both.value, both.upper) == (0.5e-9, 1e-4, 4e-4)
    assert both.status is Status.TOLERANCE and "pilot" in both.note


# -- parts ---------------------------------------------------------------------------------------------------------


def test_gradients_of_the_margin():
    net = random_net((6, 9, 7, 3), 3)
    law = rs.Gaussian(np.zeros(6))
    placed = place(net, law, as_event("y[0] > y[1] + 1 and y[2] < 0.3 or x[0] + y[1] > 4", net, law))
    rows = ray_rows(placed, placed.components[0])
    scale = np.linspace(0.5, 2.0, len(rows.bound))
    V = np.random.default_rng(0).normal(size=(50, 6))
    slopes = rows.gradient(V, np.ones(len(rows.bound)))
    assert slopes.shape == V.shape
    h = 1e-6
    ones = np.ones(len(rows.bound))
    steps = np.eye(6) * h
    by_hand = np.stack([(rows.margin(V + s, ones) - rows.margin(V - s, ones)) / (2 * h) for s in steps], axis=1)
    assert (np.abs(by_hand - slopes).max(axis=1) < 1e-6).mean() > 0.9  # but for points at a kink
    assert rows.gradient(V, scale).shape == V.shape


def test_a_few_directions_have_a_density():
    """The mean of the law's weight over draws is 1, and directions that matter are found."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((6, 200, 40))
    points[:, :, 0] = 3.0 + 0.3 * points[:, :, 0]
    slopes = np.zeros((6, 20, 40))
    slopes[:, :, 0] = 1.0
    found = few_directions(points, slopes, rng)
    assert found.basis.shape[1] <= 2 and abs(found.basis[0, 0]) > 0.999
    assert np.allclose(found.basis.T @ found.basis, np.eye(found.basis.shape[1]))
    wide = few_directions(2.0 * rng.standard_normal((6, 300, 3)), rng.standard_normal((6, 20, 3)), rng)
    weight = np.exp(wide.log_weight(wide.draw(100_000, rng)))
    assert weight.mean() == pytest.approx(1.0, abs=0.02)


def test_climbs_estimate_the_probability():
    net, law, text, truth = half_space(30, 1e-4)
    placed = place(net, law, as_event(text, net, law))
    target = Target(ray_rows(placed, placed.components[0]), Rays(CHI, 30))
    found = climb(target, 400, np.random.default_rng(0), lambda: False)
    assert found.inside.all() and (target.margin(found.points.reshape(-1, 30)) <= 0.0).all()
    assert np.exp(found.log_probability).mean() == pytest.approx(truth, rel=0.4)
    assert RUNS < found.ancestors < RUNS * 400


# -- coverage ------------------------------------------------------------------------------------------------------


def mnist(folder, image, sigma):
    with gzip.open(folder / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)[image] / 255.0
    net = rs.load(folder / "nets" / "mnist_fc" / "onnx" / "mnist-net_256x2.onnx")
    return net, rs.Gaussian(pixels, sigma**2), "argmax != argmax at mean"


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(lambda: half_space(16, 1e-10), id="half-space, 16"),
        pytest.param(lambda: union(16, [5, 5, 5.1, 5.3, 5.1, 5.2, 5.1, 5.3]), id="eight modes, 16"),
        pytest.param(lambda: union(30, [3.2, 3.3, 3.3, 3.4]), id="four modes, 30"),
        pytest.param(lambda: half_space(60, 1e-6), id="half-space, 60"),
        pytest.param(lambda: union(60, [5, 5, 5.1, 5.3]), id="four modes, 60"),
        pytest.param(lambda: union(200, [4.75, 4.8]), id="two-sided, 200"),
    ],
)
def test_intervals_cover_in_many_dimensions(case):
    """100 runs at 95 %: at least 90 cover (chance of fewer at exactly 95 %: 0.01)."""
    net, law, text, truth = case()
    event = as_event(text, net, law)
    found = [rare_probability(net, law, event, rng=seed, level=0.95) for seed in range(9000, 9100)]
    assert sum(f.lower <= truth <= f.upper for f in found) >= 90
    assert np.mean([f.value for f in found]) == pytest.approx(truth, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "sigma", "truth", "error"),
    [(2, 0.1, 1.065e-4, 0.020), (1, 0.1, 1.697e-8, 0.07), (0, 0.05, 5.486e-8, 0.022)],
)
def test_images(data_folder, image, sigma, truth, error):
    """The reference is line sampling by a program that shares no code with the engine (docs/rare.md); `error` is two of
    its standard errors. For image 2 plain draws agree (490 hits in 4.6 million: 1.07e-4, 4.5 % standard error).
    """
    net, law, text = mnist(data_folder, image, sigma)
    event = as_event(text, net, law)
    found = [rare_probability(net, law, event, rng=seed, level=0.99) for seed in range(8)]
    assert sum(f.lower <= truth * (1 + error) and truth * (1 - error) <= f.upper for f in found) >= 7
    for seed in range(2):
        sure = rare_probability(net, law, event, rng=seed, interval="finite-sample", budget="20s")
        assert sure.lower <= truth <= sure.upper
