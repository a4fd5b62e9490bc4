"""The largest output on boxes and balls, against closed forms, grids with their Lipschitz error, and other solvers."""

import numpy as np
import pytest
from scipy.optimize import minimize

import reluscope as rs
from nets import random_net
from reluscope.cells.sup_norm import linear_on_ball
from reluscope.errors import InputError


def ball_grid(n, T, count):
    """Points of the ball, and a distance within which every point of it has one of them."""
    ticks = np.linspace(-T, T, count)
    X = np.stack(np.meshgrid(*[ticks] * n), axis=-1).reshape(-1, n)
    length = np.linalg.norm(X, axis=1, keepdims=True)
    step = np.sqrt(n) * T / (count - 1)  # half the diagonal of a cell of the grid
    keep = length[:, 0] <= T + step
    X, length = X[keep], length[keep]
    return np.where(length > T, X * (T / np.maximum(length, 1e-300)), X), 2 * step


def test_closed_forms():
    net = rs.Network([(np.eye(2), None), ([[3.0, 4.0]], None)])
    assert rs.sup_norm(net, (-1, 2)).value == pytest.approx(14.0, rel=1e-12)
    assert rs.sup_norm(net, radius=2.0).value == pytest.approx(10.0, rel=1e-9)
    # |(relu x, relu y)| on a ball is the radius, for every number of outputs.
    for outputs in (2, 3, 4):
        same = rs.Network([(np.eye(outputs), None), (np.eye(outputs), None)])
        found = rs.sup_norm(same, radius=1.5, budget="100s")
        assert found.lower <= 1.5 <= found.upper and found.lower > 1.5 * (1 - 1e-6)
    # An offset and a hyperplane that keeps the best point of the sphere out of the region.
    cut = rs.Network([([[1.0, 0.0], [1.0, 0.0]], [0.0, -0.5]), ([[1.0, -3.0]], [0.25])])
    assert rs.sup_norm(cut, radius=1.0).value == pytest.approx(0.75, rel=1e-9)  # |0.25 + x - 3 (x - 0.5)+| at x = 0.5


@pytest.mark.parametrize(
    "widths, count", [((2, 8, 6, 1), 201), ((2, 8, 6, 2), 201), ((3, 6, 5, 3), 41), ((2, 6, 4), 201)]
)
def test_grids_agree_within_their_own_error(widths, count):
    net = random_net(widths, 1, bias=0.5)
    steep = rs.lipschitz(net).upper
    X, gap = ball_grid(widths[0], 1.3, count)
    seen = np.linalg.norm(net(X), axis=1).max()
    ball = rs.sup_norm(net, radius=1.3, budget="100s")
    assert seen <= ball.upper and ball.lower <= seen + steep * gap
    if widths[-1] == 1:
        assert ball.guarantee == "exact" and ball.upper - ball.lower < 1e-7 * ball.upper
    if widths[-1] in (2, 3):
        assert ball.upper / ball.lower < (1.003 if widths[-1] == 2 else 1.025)
    box = rs.sup_norm(net, (-1.3, 1.3))
    ticks = np.linspace(-1.3, 1.3, count)
    grid = np.stack(np.meshgrid(*[ticks] * widths[0]), axis=-1).reshape(-1, widths[0])
    seen = np.linalg.norm(net(grid), axis=1).max()
    assert seen <= box.upper and box.lower <= seen + steep * np.sqrt(widths[0]) * 1.3 / (count - 1)
    assert box.guarantee == "exact" and box.value >= ball.lower


def test_linear_functions_on_a_polytope_and_a_ball():
    """Against scipy's SLSQP, which knows nothing of projections; the multipliers prove the same number from above."""
    rng = np.random.default_rng(0)
    for n in (2, 3, 5):
        for _ in range(4):
            A, b, c = rng.normal(size=(7, n)), rng.random(7) + 0.1, rng.normal(size=n)
            x, upper = linear_on_ball(A, b, c, 0.7)
            limits = [
                {"type": "ineq", "fun": lambda v, A=A, b=b: b - A @ v},
                {"type": "ineq", "fun": lambda v: 0.49 - v @ v},
            ]
            other = -minimize(lambda v, c=c: -(c @ v), np.zeros(n), constraints=limits, options={"ftol": 1e-13}).fun
            assert c @ x == pytest.approx(other, abs=1e-6)
            assert 0 <= upper - c @ x < 1e-9
            assert (A @ x <= b + 1e-9).all() and np.linalg.norm(x) <= 0.7 + 1e-9
    far = np.array([[-1.0, 0.0]]), np.array([-2.0])  # x >= 2: out of reach
    assert linear_on_ball(*far, np.ones(2), 1.0)[0] is None


def test_a_budget_leaves_a_sound_bracket():
    net = random_net((2, 16, 16, 2), 2, bias=0.5)
    whole, part = rs.sup_norm(net, (-1, 1), budget="60s"), rs.sup_norm(net, (-1, 1), budget="20 regions")
    assert part.guarantee == "sound" and part.lower <= whole.lower and part.upper >= whole.upper
    ball = rs.sup_norm(net, radius=1.0, budget="20 regions")
    assert ball.guarantee == "sound" and ball.upper >= rs.sup_norm(net, radius=1.0, budget="60s").lower


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda net: rs.sup_norm(net), "either box"),
        (lambda net: rs.sup_norm(net, (-1, 1), radius=1.0), "either box"),
        (lambda net: rs.sup_norm(net, radius=0.0), "radius"),
        (lambda net: rs.sup_norm(random_net((7, 3, 1)), (-1, 1)), "up to 6 inputs"),
    ],
)
def test_bad_calls(call, says):
    with pytest.raises(InputError, match=says):
        call(random_net((2, 3, 1)))
