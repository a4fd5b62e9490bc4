"""Closed loops: a controller and a plant over several steps."""

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope import activations as ac

A, B = np.array([[1.0, 0.2], [0.0, 1.0]]), np.array([[0.02], [0.2]])


def simulate(controller, x, W, plant):
    out = []
    for t in range(W.shape[1]):
        x = plant(x, controller(x), W[:, t])
        out.append(x)
    return np.concatenate(out, axis=1)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_a_linear_plant_is_simulated_exactly(steps, k):
    controller = random_net((2, 6, 5, 1), 0)
    E = None if k == 0 else np.eye(2)[:, :k] * 0.3
    loop = rs.closed_loop(controller, A, B, steps, disturbance=E)
    rng = np.random.default_rng(1)
    X, W = rng.normal(size=(300, 2)), rng.normal(size=(300, steps, k))
    truth = simulate(controller, X, W, lambda x, u, w: x @ A.T + u @ B.T + (0 if E is None else w @ E.T))
    assert loop.n_inputs == 2 + steps * k and loop.output_shape == (steps, 2)
    np.testing.assert_allclose(loop(np.concatenate([X, W.reshape(300, -1)], axis=1)), truth, rtol=1e-9, atol=1e-9)


def hybrid():
    """A mass before a wall at 1: beyond it a spring pushes back. (x, u, w) -> x+."""
    push = [[1.0, 0.0, 0.0, 0.0]]
    first = (np.concatenate([np.eye(4), push]), np.array([0.0, 0, 0, 0, -1.0]), [ac.identity()] * 4 + [ac.relu()])
    last = (np.array([[1.0, 0.1, 0.0, 1.0, 0.0], [0.0, 1.0, 0.1, 0.0, -2.0]]), np.zeros(2))
    return rs.Network([first, last])


def test_a_hybrid_plant_is_a_network_of_its_own():
    plant, controller = hybrid(), random_net((2, 5, 1), 2)
    loop = rs.closed_loop(controller, plant, None, 4)
    rng = np.random.default_rng(0)
    X, W = 2 * rng.normal(size=(300, 2)), 0.1 * rng.normal(size=(300, 4, 1))
    truth = simulate(
        controller, X, W,
        lambda x, u, w: np.stack([
            x[:, 0] + 0.1 * x[:, 1] + w[:, 0],
            x[:, 1] + 0.1 * u[:, 0] - 2 * np.maximum(x[:, 0] - 1, 0),
        ], axis=1),
    )  # fmt: skip
    assert (truth[:, ::2] > 1).any() and loop.n_inputs == 6
    np.testing.assert_allclose(loop(np.concatenate([X, W.reshape(300, -1)], axis=1)), truth, rtol=1e-9, atol=1e-9)


def test_a_loop_in_one_dimension_has_its_closed_form():
    brake = rs.Network([([[1.0], [-1.0]], None), ([[-0.5, 0.5]], None)])  # u = -x / 2
    loop = rs.closed_loop(brake, [[1.0]], [[1.0]], 2, disturbance=[[1.0]])
    # x2 = x0 / 4 + w0 / 2 + w1, so that it is normal with variance 1/16 + 1/4 + 1
    answer = rs.probability(loop, rs.Gaussian([0.0, 0.0, 0.0]), "y[1] > 1")
    from scipy.stats import norm

    assert answer.guarantee == "exact" and answer.value == pytest.approx(norm.sf(1 / np.sqrt(21 / 16)), abs=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_leaving_the_safe_set_by_draws_and_exactly(steps):
    controller = random_net((2, 4, 1), 5)
    loop = rs.closed_loop(controller, A, B, steps, names=["pos", "vel"])
    law = rs.Gaussian([0.8, 0.3], [[0.2, 0.0], [0.0, 0.2]])
    text = " or ".join(f"abs(pos_{t}) > 1.5 or vel_{t} < -1" for t in range(1, steps + 1))
    answer = rs.probability(loop, law, text)
    X = law.sample(100_000, 0)
    states = simulate(controller, X, np.zeros((len(X), steps, 0)), lambda x, u, w: x @ A.T + u @ B.T)
    p = ((np.abs(states[:, ::2]) > 1.5) | (states[:, 1::2] < -1)).any(axis=1).mean()
    assert answer.guarantee == "exact" and 0.01 < p < 0.99 and abs(answer.value - p) < 5 * np.sqrt(p * (1 - p) / 1e5)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("n", [1, 2])
def test_loops_by_simulation(steps, n):
    """With disturbances, by a million simulated runs."""
    rng = np.random.default_rng(10 * n + steps)
    controller = random_net((n, 5, 1), steps)
    a, b = 0.9 * np.eye(n) + 0.1, rng.normal(size=(n, 1)) / 2
    loop = rs.closed_loop(controller, a, b, steps, disturbance=0.1 * np.eye(n))
    law = rs.Gaussian(np.zeros(loop.n_inputs))
    answer = rs.probability(loop, law, "max(abs(y)) > 2", budget="20s", rng=0)
    p = (np.abs(loop(law.sample(1_000_000, 1))).max(axis=1) > 2).mean()
    error = 5 * np.sqrt(max(p, 1e-6) / 1e6)
    assert answer.lower - error <= p <= answer.upper + error
    still = rs.closed_loop(controller, a, b, steps)
    exact = rs.probability(still, rs.Gaussian(np.zeros(n)), "max(abs(y)) > 2", guarantee="exact")
    p = (np.abs(still(rs.Gaussian(np.zeros(n)).sample(1_000_000, 1))).max(axis=1) > 2).mean()
    assert abs(exact.value - p) < 5 * np.sqrt(max(p, 1e-6) / 1e6)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"A": np.eye(3)}, r"A must have the shape \(2, 2\), got \(3, 3\)"),
        ({"B": None}, "B must be a matrix with 2 rows"),
        ({"disturbance": [[1.0]]}, r"disturbance must have the shape \(2, k\)"),
        ({"steps": 0}, "steps"),
        ({"names": ["a"]}, "names must name the 2 states"),
        ({"A": random_net((3, 2), 0)}, "B and disturbance belong to a linear plant"),
        ({"A": random_net((2, 2), 0), "B": None}, "the plant must take the state"),
    ],
)
def test_refusals(change, words):
    good = {"controller": random_net((2, 3, 1), 0), "A": A, "B": B, "steps": 2}
    with pytest.raises(rs.InputError, match=words):
        rs.closed_loop(**{**good, **change})
