"""Witnesses: inside by an independent pass, nearest by a fine grid and by closed forms, empty where nothing is."""

import itertools

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.answers._nearest import lower_bounds, nearest_in_hull, nearest_in_polytope, prove
from reluscope.answers.witness import forward
from reluscope.budget import Budget
from reluscope.errors import InputError
from reluscope.events import as_event
from reluscope.events.placed import place
from reluscope.inputs import standard


@pytest.mark.parametrize("dimension", [1, 2, 3, 6])
def test_nearest_points(dimension):
    rng = np.random.default_rng(dimension)
    for _ in range(20):
        A, inside = rng.normal(size=(4 * dimension, dimension)), 3 * rng.normal(size=dimension)
        b = A @ inside + rng.random(len(A))
        u = nearest_in_polytope(A, b)
        assert (A @ u <= b + 1e-7).all()
        # Optimal: -u is a non-negative combination of the rows that hold it back.
        for v in (inside, u + 0.1 * (inside - u)):
            assert u @ (v - u) >= -1e-6
        points = rng.normal(size=(5 * dimension, dimension)) + rng.normal(size=dimension) * 3
        p = nearest_in_hull(points)
        assert (points @ p >= p @ p - 1e-9).all()  # the supporting plane at p
    assert nearest_in_polytope(np.array([[1.0] * dimension, [-1.0] * dimension]), np.array([-1.0, -1.0])) is None
    assert nearest_in_polytope(np.ones((1, dimension)), np.ones(1)).tolist() == [0.0] * dimension


def test_forward_is_the_network():
    for activation in ("relu", "hardtanh", "abs", "leaky_relu"):
        net = random_net((3, 7, 6, 2), 0, activation)
        x = np.random.default_rng(0).normal(size=3)
        assert forward(net, x) == pytest.approx(net(x), abs=1e-13)


def test_affine_network_has_a_closed_form():
    net = rs.Network([([[1.0, 2.0, -1.0]], [0.5])])
    law = rs.Gaussian([0.1, 0.0, -0.2], [[1.0, 0.3, 0.0], [0.3, 2.0, 0.1], [0.0, 0.1, 0.5]])
    w = np.array([1.0, 2.0, -1.0])
    sd = np.sqrt(w @ law.cov @ w)
    gap = 4.0 - 0.5 - w @ law.mean
    found = rs.witness(net, law, "y >= 4", margin=0, rng=0)
    assert found.proved_nearest and found.distance == pytest.approx(gap / sd, rel=1e-7)
    assert found.x == pytest.approx(law.mean + law.cov @ w * gap / sd**2, rel=1e-6)
    assert found.y[0] >= 4


@pytest.mark.parametrize("seed", range(4))
def test_nearest_in_the_plane_against_a_grid(seed):
    net = random_net((2, 10, 8, 1), seed)
    mean = np.array([0.3, -0.1])
    law = rs.Gaussian(mean, [[1.0, 0.3], [0.3, 0.6]])
    L = np.linalg.cholesky(law.cov)
    side = np.linspace(-4, 4, 801)
    U = np.array(list(itertools.product(side, side)))
    y = net(mean + U @ L.T)[:, 0]
    level = float(np.quantile(y, 0.9))
    best = np.linalg.norm(U[y > level], axis=1).min()
    found = rs.witness(net, law, f"y > {level!r}", n=3, rng=seed)
    assert found.proved_nearest and best - 0.02 < found.distance <= best * (1 + 1e-9)
    for w in found:
        assert w.margin > 0 and forward(net, w.x) == pytest.approx(w.y, abs=0)
        assert w.distance == pytest.approx(np.linalg.norm(np.linalg.solve(L, w.x - mean)), rel=1e-6)
    assert [w.distance for w in found] == sorted(w.distance for w in found)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_bounds_on_the_distance_of_cells(dimension):
    net = random_net((dimension, 8, 1), 0)
    cells = rs.regions(net, (np.full(dimension, 0.2), np.full(dimension, 3.0))).cells
    distance = np.array([np.linalg.norm(nearest_in_hull(cells.vertices(i))) for i in range(len(cells))])
    bounds = lower_bounds(cells)
    assert (bounds <= distance * (1 + 1e-9)).all() and (bounds > 0.5 * distance).all()


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
def test_enumeration_finds_the_nearest_without_help(dimension):
    net, law = random_net((dimension, 8, 6, 1), dimension + 2), rs.Gaussian(np.zeros(dimension))
    level = max(float(np.quantile(net(law.sample(2000, 0)), 0.98)), float(net(np.zeros(dimension))[0]) + 0.5)
    event = as_event(f"y >= {level!r}", net)
    asked = place(net, law, event)
    (component,) = standard(law, asked.network)
    known = rs.witness(net, law, event, margin=0, rng=0)
    assert known.proved_nearest and known.distance > 0.5
    # Nothing known, and a distance known that is far from the best.
    for best in ([], [1.4 * known.distance]):
        points, done = prove(component, asked, best, 1, Budget())
        assert done and min(np.linalg.norm(u) for u in points) == pytest.approx(known.distance, rel=1e-6)
    points, done = prove(component, asked, [0.9 * known.distance], 1, Budget())
    assert done and not points


def test_many_dimensions_find_a_better_one_than_sampling():
    net = random_net((12, 24, 24, 2), 3)
    law = rs.Gaussian(np.zeros(12))
    X = law.sample(100_000, 0)
    y = net(X)[:, 0]
    level = float(np.quantile(y, 0.999))
    found = rs.witness(net, law, f"y[0] > {level!r}", rng=0, budget="3s")
    assert not found.proved_nearest
    assert found.distance < 0.9 * np.linalg.norm(X[y > level], axis=1).min()
    rare = rs.witness(net, law, f"y[0] > {float(y.max()) + 2.0!r}", rng=0, budget="3s")  # no draw is inside
    assert len(rare) == 1 and rare.y[0] > y.max() + 2


@pytest.mark.parametrize("seed", range(4))
def test_a_mean_in_the_event_is_the_witness_also_in_many_dimensions(seed):
    """The search starts from draws, all of them far from the mean in 200 dimensions."""
    net = random_net((200, 40, 40, 3), seed)
    law = rs.Gaussian(np.random.default_rng(seed).normal(size=200), 0.3)
    wins = int(net(law.mean).argmax())
    found = rs.witness(net, law, f"argmax == {wins}", budget="1s", rng=seed)
    assert len(found) == 1 and found[0].distance == 0.0 and found[0].proved_nearest
    np.testing.assert_allclose(found[0].x, law.mean)
    other = rs.witness(net, law, f"argmax != {wins}", budget="1s", rng=seed)
    assert all(w.distance > 0 for w in other)


def test_mixtures_truncated_laws_and_margins():
    net = random_net((2, 8, 2), 1)
    mixture = rs.GaussianMixture([0.5, 0.5], [rs.Gaussian([-3.0, 0.0], 0.1), rs.Gaussian([3.0, 0.0], 0.1)])
    found = rs.witness(net, mixture, "x[0] > 1", rng=0)
    assert found.distance == pytest.approx(0, abs=1e-6) and found[0].component == 1
    law = rs.Truncated(rs.Gaussian([0.0, 0.0]), 1.0, 3.0)
    inside = rs.witness(net, law, "x[0] + x[1] > 2.5", rng=0)
    assert inside.proved_nearest and inside.distance == pytest.approx(2.5 / np.sqrt(2), rel=1e-6)
    deep = rs.witness(net, rs.Gaussian([0.0, 0.0]), "x[0] >= 1", margin=0.5, rng=0)
    assert deep[0].margin == pytest.approx(0.5, rel=1e-6) and deep.distance == pytest.approx(1.5, rel=1e-6)


def test_events_on_the_function():
    net = random_net((2, 6, 5, 1), 2, bias=0.6)
    law = rs.Gaussian([0.0, 0.0])
    X = law.sample(20_000, 0)
    inside = as_event("J[0,0] < 0 and unit[0,2] off", net).holds(net, X)
    assert inside.any()
    found = rs.witness(net, law, "J[0,0] < 0 and unit[0,2] off", rng=0)
    assert net.jacobian(found.x)[0, 0] < 0 and net.pattern(found.x)[2] == 0
    assert found.distance <= np.linalg.norm(X[inside], axis=1).min() * (1 + 1e-9)


def test_boxes_and_particles():
    net = random_net((3, 8, 2), 0)
    found = rs.witness(net, rs.Uniform(-np.ones(3), 1.0), "y[0] > y[1]", n=2, rng=0)
    assert len(found) == 2 and found.distance is None and (np.abs(found.x) <= 1).all()
    assert found[0].margin >= found[1].margin > 0
    none = rs.witness(net, rs.Uniform(-np.ones(3), 1.0), "y[0] > 100", rng=0)
    assert not len(none) and none.proved_empty
    with pytest.raises(InputError, match="no witness"):
        _ = none.x
    points = rs.Particles([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [0.2, 0.3, 0.5])
    assert rs.witness(net, points, "x[0] + x[1] > 0.5").x.tolist() == [0, 1, 0]
    assert rs.witness(net, points, "x[0] > 2").proved_empty
    assert rs.witness(net, rs.Gaussian(np.zeros(3)), "y[0] > 0 and y[0] < 0").proved_empty


def test_replay_through_onnxruntime(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    net = random_net((3, 8, 2), 0)
    net.save(tmp_path / "net.onnx")
    found = rs.witness(
        net, rs.Gaussian(np.zeros(3)), "y[0] > y[1] + 1", margin=1e-4, replay=tmp_path / "net.onnx", rng=0
    )
    assert found[0].model_y == pytest.approx(found.y, abs=1e-5) and found[0].model_margin > 0
    assert set(found[0].to_dict()) >= {"x", "y", "distance", "proved_nearest", "model_margin"}


def test_witnesses_survive_float32():
    net, law = random_net((4, 16, 16, 3), 0), rs.Gaussian(np.full(4, -0.5), 0.3)
    for text in ("argmax != argmax at mean", "y[0] > 1.5 and x[1] > 0.25", "y[0] > 0.3 and y[0] <= 0.31"):
        edge, safe = rs.witness(net, law, text, margin=0.0, rng=0), rs.witness(net, law, text, rng=0)
        assert safe.proved_nearest and edge.proved_nearest
        assert safe[0].step == pytest.approx(safe.distance - edge.distance, abs=1e-7)
        assert 0 <= safe[0].step < 1e-3 and edge[0].step == 0
        # A pass in float32, in any order of summation, stays inside.
        event = as_event(text, net, law)
        rng = np.random.default_rng(1)
        for _ in range(20):
            z = safe.x.astype(np.float32)
            for layer in net.layers:
                order = rng.permutation(len(z))
                h = layer.weight.astype(np.float32)[:, order] @ z[order] + layer.bias.astype(np.float32)
                z = np.maximum(h, np.float32(0)) if layer is not net.layers[-1] else h
            assert event.contains(safe.x.astype(np.float32).astype(float), z.astype(float))


@pytest.mark.parametrize("seed", range(4))
def test_the_step_inwards_stays_small_in_deep_networks(seed):
    """Seven layers: rounding as the local slopes carry it on, and no step that leads to another input."""
    widths = (4, 30, 30, 30, 30, 30, 30, 3)
    rng = np.random.default_rng(seed)
    he = [(np.sqrt(2 / n), n, m) for n, m in itertools.pairwise(widths)]
    net = rs.Network([(s * rng.normal(size=(m, n)), rng.uniform(-1, 1, m) / np.sqrt(n)) for s, n, m in he])
    law = rs.Gaussian(rng.normal(size=4), 0.04)
    U = rng.standard_normal((200_000, 4))
    y = net(law.mean + 0.2 * U)[:, 0]
    c = float(np.quantile(y, 0.99))
    text = f"y[0] > {c!r}"
    found = rs.witness(net, law, text, rng=0, budget="20s")
    edge = rs.witness(net, law, text, margin=0.0, rng=0, budget="20s")
    assert found.distance <= edge.distance + 0.1 * (1 + edge.distance)
    assert found[0].step <= 0.1 * (1 + edge.distance) and found[0].margin > edge[0].margin
    # Against draws: none of them is nearer than what was proved.
    nearest = np.linalg.norm(U[y > c], axis=1).min()
    assert found.proved_nearest and nearest >= found.distance - found[0].step - 1e-6


def test_no_step_that_leads_far_away():
    """The output stays 1e-9 above the limit up to x = 5, and only there the margin grows: no step to there."""
    net = rs.Network([([[1.0], [1.0]], [-1.0, -5.0]), ([[1.0, 1.0]], [1.0])])
    flat = rs.Network([([[1.0], [1.0], [1.0]], [-1.0, -1.0 - 1e-9, -5.0]), ([[1.0, -1.0, 1.0]], [0.0])])
    found = rs.witness(flat, rs.Gaussian([0.0]), "y[0] > 5e-10", rng=0)
    assert found.distance == pytest.approx(1.0, abs=1e-6) and found[0].step < 1e-6
    assert "float32 may decide otherwise" in found.note
    found = rs.witness(net, rs.Gaussian([0.0]), "y[0] > 1", rng=0)
    assert found.distance < 1.001 and "float32" not in found.note
    assert "proved nearest" in repr(found) or "none is nearer than 1" in repr(found)


def test_fixed_inputs_do_not_stop_the_step():
    net, law = random_net((3, 8, 2), 0), rs.Gaussian([0.0, 0.0, 0.2], [1.0, 1.0, 0.0])
    text = "y[0] < y[1] - 1 and x[2] >= 0.2 and x[2] <= 0.2"
    edge, safe = rs.witness(net, law, text, margin=0.0, rng=0), rs.witness(net, law, text, rng=0)
    assert safe.x[2] == 0.2 and edge.proved_nearest and safe[0].step > 0
    assert safe.y[1] - safe.y[0] - 1 > 100 * (edge.y[1] - edge.y[0] - 1) > 0


def test_thin_events_keep_their_witness():
    # Thinner than float32 can tell: nothing to step into, and the witness says so by its margin.
    net, law = random_net((3, 8, 2), 0), rs.Gaussian(np.zeros(3))
    y = float(net(np.full(3, 0.4))[0])
    found = rs.witness(net, law, f"y[0] >= {y!r} and y[0] <= {y + 1e-9!r}", rng=0)
    assert len(found) and 0 <= found[0].margin <= 1e-9 and found[0].step == 0


def test_replay_says_no_and_steps_inwards(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    net, law = random_net((3, 8, 2), 0), rs.Gaussian(np.zeros(3))
    other = rs.Network([(layer.weight, layer.bias + 0.01 * (i == 1)) for i, layer in enumerate(net.layers)], "relu")
    for name, model in (("near", other), ("far", rs.Network([(np.zeros((2, 3)), np.zeros(2))]))):
        model.save(tmp_path / f"{name}.onnx")
    text = "y[0] < y[1] - 1 and y[0] < -0.5"
    stepped = rs.witness(net, law, text, replay=tmp_path / "near.onnx", rng=0)[0]
    plain = rs.witness(net, law, text, margin=0.0, rng=0)[0]
    assert stepped.replayed and stepped.model_margin >= 0 and "replayed: yes" in repr(stepped)
    assert stepped.distance - plain.distance == pytest.approx(stepped.step, abs=1e-6) and stepped.step > 1e-4
    refused = rs.witness(net, law, text, replay=tmp_path / "far.onnx", rng=0)[0]
    assert refused.replayed is False and refused.model_margin < 0 and "replayed: no" in repr(refused)
    assert refused.to_dict()["replayed"] is False and plain.replayed is None
    rs.Network([(np.zeros((3, 3)), np.zeros(3))]).save(tmp_path / "wrong.onnx")
    with pytest.raises(InputError, match="3 outputs"):
        rs.witness(net, law, text, replay=tmp_path / "wrong.onnx", rng=0)


def test_bad_inputs():
    net, law = random_net((2, 4, 2), 0), rs.Gaussian(np.zeros(2))
    with pytest.raises(InputError, match="a box is Uniform"):
        rs.witness(net, "law", "y[0] > 0")
    with pytest.raises(InputError, match="n must be"):
        rs.witness(net, law, "y[0] > 0", n=0)
    with pytest.raises(InputError, match="margin"):
        rs.witness(net, law, "y[0] > 0", margin=-1.0)
    with pytest.raises(InputError, match="net"):
        rs.witness(None, law, "y[0] > 0")
