"""Normal coordinates turned for the boxes, and bounds that hold on the boundary of the event alone."""

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope._kernels import kernel
from reluscope.events import as_event, place
from reluscope.measure.sound import bound_event
from reluscope.measure.sound.frame import frames
from reluscope.measure.sound.search import crosses, on_boundary
from reluscope.measure.sound.seen import seen
from reluscope.measure.sound.turn import _in_basis, turned


def uneven_net(widths, seed, scales):
    """Inputs that matter little, in directions of their own."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(widths[0], widths[0])))[0]
    return random_net(widths, seed).after((Q * scales) @ Q.T, np.zeros(widths[0]))


def placed(net, law, event):
    rows = seen(place(net, law, as_event(event, net, law), cut=True))
    return rows, frames(law, rows.network, rows.within)[0]


def test_the_turned_network_is_the_same_function():
    net, law = random_net((6, 20, 12, 1), 0), rs.Gaussian(np.zeros(6), np.linspace(0.2, 2.0, 6))
    _rows, frame = placed(net, law, "y[0] > 1")
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    new = _in_basis(frame, Q)
    v = np.random.default_rng(2).normal(size=(500, 6))
    assert np.allclose(new.network(v), frame.network(v @ Q.T), atol=1e-12)
    h = [n.layers[0].affine(u) for n, u in ((new.network, v), (frame.network, v @ Q.T))]
    assert (np.abs(h[0] - h[1]) <= new.first_error).all() and (new.first_error > frame.first_error).all()
    skew = Q.copy()
    skew[0, 0] += 1e-6  # a basis that is off is paid for
    off = _in_basis(frame, skew)
    assert (np.abs(off.network.layers[0].affine(v) - h[1]) <= off.first_error).all()


def test_coordinates_are_turned_where_that_saves_boxes():
    scales = np.array([3.0, 1.0, 0.02, 0.02, 0.02, 0.02])
    net, law = uneven_net((6, 20, 12, 1), 0, scales), rs.Gaussian(np.zeros(6))
    rows, frame = placed(net, law, "y[0] > 0.3")
    new = turned(frame, rows)
    assert new is not frame
    W, V = frame.network.layers[0].dense(), new.network.layers[0].dense()
    assert np.prod(np.abs(V).sum(axis=0)) < 0.01 * np.prod(np.abs(W).sum(axis=0))
    box = rs.Uniform(np.zeros(6), np.ones(6))
    rows, frame = placed(net, box, "y[0] > 0.3")
    assert turned(frame, rows) is frame  # a box has its own axes


@pytest.mark.parametrize("seed", range(6))
def test_turned_brackets_hold_against_draws(seed):
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-2, 0.5, 4)
    net, law = uneven_net((4, 10, 8, 2), seed, scales), rs.Gaussian(rng.normal(size=4), rng.uniform(0.3, 1.5, 4))
    X = law.sample(400_000, seed)
    y = net(X)
    c = float(np.quantile(y[:, 0], rng.uniform(0.1, 0.99)))
    for event, true in ((f"y[0] > {c!r}", y[:, 0] > c), ("argmax == 0", y[:, 0] >= y[:, 1])):
        p = true.mean()
        error = 5 * np.sqrt(p * (1 - p) / len(X)) + 1e-12
        found = bound_event(net, law, as_event(event, net, law), tolerance=0.0, budget="20000 regions")
        assert found.lower - error <= p <= found.upper + error
        assert found.upper - found.lower < 0.1 * max(p, 0.05)


@pytest.mark.parametrize("boxes", [30, 300, 3000])
def test_bounds_on_the_boundary_hold_with_few_large_boxes(boxes):
    """Few boxes: most of them have several units of open sign, where bounds on the boundary differ most from others."""
    rng = np.random.default_rng(boxes)
    for seed in range(12):
        d = int(rng.integers(2, 4))
        net = random_net((d, 7, 5, 1), 1000 + seed)
        law = rs.Uniform(np.full(d, -2.0), np.full(d, 2.0)) if seed % 2 else rs.Gaussian(np.zeros(d))
        c = float(np.quantile(net(law.sample(2000, seed)), rng.uniform(0.05, 0.95)))
        exact = rs.probability(net, law, f"y[0] > {c!r}", guarantee="exact")
        found = bound_event(net, law, as_event(f"y[0] > {c!r}", net, law), tolerance=0.0, budget=f"{boxes} regions")
        assert found.lower <= exact.upper + 1e-12 and exact.lower - 1e-12 <= found.upper


@kernel
def _on_boundary(*given):
    on_boundary(*given)


@kernel
def _crosses(*given):
    return crosses(*given)


def _units_on_the_boundary(seed):
    """Random units and a random row over a box: points on the boundary of the row, and the lines found there."""
    rng = np.random.default_rng(seed)
    d, k, head = 3, 6, 8
    centre, half, size = np.zeros(head), np.zeros(head), np.zeros(head + 8)
    centre[:d], half[:d] = rng.normal(size=d), rng.uniform(0.1, 1.0, d)
    size[:d], size[d] = np.abs(centre[:d]) + half[:d], 1.0
    moments = np.concatenate([centre[:d], half[:d] ** 2 / 3])
    centre[d] = 1.0
    edge, units = np.zeros(2 * head), np.zeros(k * head)
    a = rng.normal(size=d)
    middle = -a @ centre[:d]
    edge[:d] = edge[head : head + d] = a
    edge[d], edge[head + d] = middle - 0.05, middle + 0.05  # the row lies between these
    least, most = np.zeros(k), np.zeros(k)
    for j in range(k):
        u = a * rng.uniform(-1, 1) + 0.3 * rng.normal(size=d)
        c = -u @ centre[:d] + rng.uniform(-0.5, 0.5) * (np.abs(u) @ half[:d])
        units[j * head : j * head + d], units[j * head + d] = u, c
        least[j], most[j] = (u @ centre[:d] + c) + np.array([-1, 1]) * (np.abs(u) @ half[:d])
    kind = np.where((least < 0) & (most > 0), 2, 0).astype(np.int64)
    lines = [np.full(k + 8, np.nan) for _ in range(4)]
    _on_boundary(
        d, k, kind, np.ones(k), units.copy(), units.copy(), head, least, most, np.ones(k), np.zeros(k), 1e-15, edge,
        centre, half, size, moments, *lines, np.zeros(4 * head),
    )  # fmt: skip
    x = centre[:d] + half[:d] * rng.uniform(-1, 1, (40_000, d))
    x[::2] = centre[:d] + half[:d] * rng.choice([-1.0, 1.0], (20_000, d)) * (rng.random((20_000, d)) < 0.9)
    x = x[np.abs(x @ a + middle) <= 0.05]
    h = x @ units.reshape(k, head)[:, :d].T + units.reshape(k, head)[:, d]
    return kind == 2, h, lines, (least, most)


def test_lines_hold_on_the_boundary_and_are_narrower_there():
    narrower = []
    for seed in range(40):
        open_, h, (low, high, lift, _), (least, most) = _units_on_the_boundary(seed)
        for j in np.flatnonzero(open_):
            z = np.maximum(h[:, j], 0.0)
            assert (low[j] * h[:, j] <= z + 1e-12).all() and (z <= high[j] * h[:, j] + lift[j] + 1e-12).all()
            narrower.append(lift[j] / (-least[j] * most[j] / (most[j] - least[j])))
    assert len(narrower) > 150 and np.mean(narrower) < 0.85


def test_a_linear_function_must_cross_to_bound_from_outside():
    """Both functions positive somewhere in the box: else nothing is known."""
    centre, half, size = np.zeros(8), np.ones(8), np.ones(8)
    g, same, away = np.array([1.0, 0.5, 0.0]), np.array([0.9, 0.5, -0.1]), np.array([-1.0, -0.5, 0.0])
    assert _crosses(2, g, 0, same, centre, half, size, 1.0) and _crosses(2, g, 0, same, centre, half, size, -1.0)
    assert not _crosses(2, g, 0, away, centre, half, size, 1.0)
    assert not _crosses(2, g, 0, np.array([0.1, 0.1, -1.0]), centre, half, size, 1.0)  # nowhere positive
