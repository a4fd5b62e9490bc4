"""A network from queries: exact recovery, the walk, the pieces, and oracles that are not what they seem."""

import itertools
import json
from importlib import import_module

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import reluscope as rs
from nets import random_net
from reluscope.cli import main
from reluscope.errors import InputError
from reluscope.recovery import walk
from reluscope.recovery.align import align
from reluscope.recovery.balls import gram, lens_moments
from reluscope.recovery.critical import Chords, find_bends, normals, random_chords
from reluscope.recovery.exact import Peeled, Pool, _at_edges, _of_layer_before, _sharpened, _with_rows
from reluscope.recovery.last_layer import fit_outputs
from reluscope.recovery.nearest_error import nearest_error
from reluscope.recovery.oracle import QueryLimitError
from reluscope.recovery.peel import Candidate, Evidence
from reluscope.recovery.refine import Model, refine
from reluscope.recovery.samples import _pair_hessian, l1_path
from reluscope.recovery.signs import settle
from reluscope.recovery.trunk import Stage, Trunk
from reluscope.recovery.view import _bends_everywhere, look
from reluscope.recovery.weak import weak_unit

BOX = (-2.0, 2.0)


def net_of(*widths, seed=0):
    return random_net(widths, seed, bias=0.5)


def view_of(oracle, seed=0):
    n = oracle.n_inputs
    return look(oracle, np.full(n, -2.0), np.full(n, 2.0), np.random.default_rng(seed))


# -- the oracle ------------------------------------------------------------------------------------------------------


def test_oracle_counts_rows_and_hides_the_network():
    net = net_of(3, 5, 2)
    oracle = rs.Oracle(net)
    X = np.random.default_rng(0).normal(size=(7, 3))
    assert oracle.queries == 0
    np.testing.assert_array_equal(oracle(X), net(X))
    assert (oracle.queries, oracle.n_outputs, oracle.has_gradient) == (7, 2, False)
    assert not any(isinstance(getattr(oracle, name), rs.Network) for name in dir(oracle) if not name.startswith("_"))
    assert not hasattr(oracle, "layers")
    with pytest.raises(InputError, match="no gradients"):
        oracle.both(X)


def test_oracle_gradient_comes_with_the_value():
    net = net_of(3, 5, 2)
    oracle = rs.Oracle(net, gradient=True)
    X = np.random.default_rng(0).normal(size=(4, 3))
    values, slopes = oracle.both(X)
    np.testing.assert_array_equal(values, net(X))
    np.testing.assert_array_equal(slopes, net.jacobian(X))
    assert (oracle.queries, oracle.gradients) == (4, 4)


def test_oracle_in_single_precision_rounds_in_and_out():
    net = net_of(3, 20, 20, 1)
    X = np.random.default_rng(0).normal(size=(50, 3))
    single = rs.Oracle(net, dtype="float32")(X)
    assert (single == single.astype(np.float32)).all()
    gap = np.abs(single - net(X)).max()
    assert 0 < gap < 1e-5


def test_oracle_limit():
    oracle = rs.Oracle(net_of(2, 3, 1), limit=10)
    oracle(np.zeros((10, 2)))
    with pytest.raises(QueryLimitError, match="allows 10 queries"):
        oracle(np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"function": 3}, "function must be callable"),
        ({"function": abs}, "n_inputs is needed"),
        ({"function": lambda X: X[:, 0], "n_inputs": 2, "dtype": "int8"}, "dtype must be"),
        ({"function": lambda X: X[:, 0], "n_inputs": 2, "gradient": True}, "gradient must be callable"),
        ({"function": lambda X: np.zeros(5), "n_inputs": 2}, "one row per query"),
        ({"function": lambda X: X[:, 0] * np.nan, "n_inputs": 2}, "must be finite"),
    ],
)
def test_oracle_refuses(arguments, message):
    with pytest.raises(InputError, match=message):
        rs.Oracle(**arguments)


# -- critical points -------------------------------------------------------------------------------------------------


def test_bends_of_a_one_layer_network_are_the_zeros_of_its_units():
    net = net_of(4, 6, 1, seed=3)
    view = view_of(rs.Oracle(net))
    rng = np.random.default_rng(1)
    chords = random_chords(view, 30, rng)
    found = find_bends(view, chords, rng)
    W, b = net.layers[0].weight, net.layers[0].bias
    # h(2 (start + t way)) = 0, unit by unit: a closed form that knows the weights.
    t = -(2 * chords.start @ W.T + b) / (2 * chords.way @ W.T)
    line, unit = np.nonzero((t > 3e-3) & (t < 1 - 3e-3))
    expected = np.sort(line + 0.5 * t[line, unit])
    got = np.sort(found.line + 0.5 * found.t)
    near = np.abs(got[:, None] - expected).min(axis=0)
    assert found.lost == 0 and len(got) == len(expected) > 50 and near.max() < 1e-9
    measured = normals(view, found.x, chords.way[found.line], found.jump, found.reach)
    which = np.abs(found.x @ (2 * W).T + b).argmin(axis=1)
    cosine = np.abs((measured.normal * W[which]).sum(axis=1)) / np.linalg.norm(W[which], axis=1)
    assert measured.good.mean() > 0.9
    np.testing.assert_allclose(cosine[measured.good], 1, atol=1e-9)


def test_two_opposite_bends_are_not_taken_for_one():
    # |t - 0.2| - 0.9 |t - 0.3|: the outer pieces meet outside [0.2, 0.3], on one of the pieces.
    oracle = rs.Oracle(lambda X: np.abs(X[:, 0] - 0.2) - 0.9 * np.abs(X[:, 0] - 0.3), 1)
    view = look(oracle, np.array([-1.0]), np.array([1.0]), np.random.default_rng(0))
    found = find_bends(view, Chords(np.array([[-0.93]]), np.array([[1.9]])), np.random.default_rng(1))
    np.testing.assert_allclose(np.sort(found.x[:, 0]), [0.2, 0.3], atol=1e-12)


# -- exact -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [(20, 10, 1), (5, 20, 1), (1, 4, 1), (6, 8, 3), (10, 15, 15, 1), (12, 8, 6, 5, 2)])
def test_exact_recovers_weights_up_to_order_and_scale(widths):
    net = net_of(*widths, seed=2)
    found = rs.recover(rs.Oracle(net), BOX, rng=0, check=2000)
    assert found
    assert found.sampled.largest < 1e-11
    assert found.total_queries < 131_000
    held = found.compare(net)
    assert held.sampled < 1e-10
    assert found.network.widths == net.widths
    assert held.sampled <= held.certified < 1e-6
    if widths[0] > 1:
        assert not any(held.alignment.missing)
        assert held.parameter_error < 1e-8
    else:  # in one dimension a unit and its mirror image differ by an affine function, which others can make up for
        assert held.parameter_error is None


def test_gradients_make_it_cheaper_and_give_the_same():
    net = net_of(8, 10, 6, 1, seed=5)
    plain = rs.recover(rs.Oracle(net), BOX, rng=0, check=0)
    helped = rs.recover(rs.Oracle(net, gradient=True), BOX, rng=0, check=0)
    assert plain and helped
    assert helped.queries["normals"] < 0.3 * plain.queries["normals"]
    assert helped.compare(net, certify=False).sampled < 1e-10


def test_single_precision_reaches_single_precision():
    net = net_of(20, 10, 1, seed=1)
    found = rs.recover(rs.Oracle(net, dtype="float32"), BOX, rng=0)
    assert found
    assert found.compare(net, certify=False).sampled < 1e-5
    assert any("noise" in line for line in found.statement)


def test_equivalence_is_proved_in_the_plane():
    net = net_of(2, 6, 1, seed=4)
    found = rs.recover(rs.Oracle(net), BOX, rng=0, check=0)
    assert rs.equivalent(net, found.network, BOX, max_difference=1e-10)


def test_same_seed_same_answer():
    net = net_of(6, 8, 1)
    one, two = (rs.recover(rs.Oracle(net), BOX, rng=7, check=0) for _ in range(2))
    assert one.total_queries == two.total_queries
    np.testing.assert_array_equal(one.network.layers[0].weight, two.network.layers[0].weight)


def test_units_that_never_switch_are_folded_in():
    W = np.array([[1.0, 0.5, -0.2], [0.3, -1.0, 0.4], [0.2, 0.1, 0.3], [0.5, 0.2, 0.1]])
    b = np.array([0.1, -0.2, 30.0, -30.0])  # the third is always on in the box, the fourth always off
    net = rs.Network([(W, b), ([[1.0, -2.0, 0.7, 5.0]], [0.3])])
    found = rs.recover(rs.Oracle(net), BOX, rng=0)
    assert found
    assert found.layers == (2,)
    assert found.sampled.largest < 1e-12
    # One linear unit for one output, not a copy of every input; and it is said which unit, and why.
    assert found.network.widths == (3, 3, 1)
    assert "complete as a function, weights open in layer 0" in repr(found)
    assert found.statement[0].startswith("complete as a function on the box, weights open in layer 0: hidden layers 2;")
    assert (
        "Unit 2, linear (identity), takes up the affine part" in found.statement[1]
        and "relu(-h) = relu(h) - h" in found.statement[1]
    )
    assert rs.equivalent(net, found.network, BOX, max_difference=1e-10)


def test_affine_and_constant_oracles():
    for function in (lambda X: X @ [1.0, -2.0] + 3, lambda X: np.full(len(X), 0.5)):
        found = rs.recover(rs.Oracle(function, 2), BOX, rng=0)
        assert found
        assert found.layers == ()
        assert found.sampled.largest < 1e-12


def test_smooth_oracles_are_told():
    rng = np.random.default_rng(0)
    W, v = rng.normal(size=(8, 5)), rng.normal(size=8)
    for function in (
        lambda X: np.tanh(X @ W.T) @ v,
        lambda X: np.tanh(0.05 * X @ W.T) @ v,
        lambda X: np.logaddexp(0, X @ W.T) @ v,
        lambda X: (X**2).sum(axis=1),
    ):
        found = rs.recover(rs.Oracle(function, 5), BOX, rng=0)
        assert not found
        assert found.result is None
        assert "not piecewise affine" in found.statement[0]
        with pytest.raises(InputError, match="not piecewise affine"):
            found(np.zeros((1, 5)))


def test_relu_networks_are_never_called_smooth():
    for seed in range(20):
        widths = (2, 40, 40, 1) if seed % 2 else (10, 15, 15, 1)
        assert not view_of(rs.Oracle(net_of(*widths, seed=seed)), seed).smooth


def test_smoothness_is_judged_at_the_end_of_the_descent():
    steps = 2.0 ** -np.arange(2, 17)
    noise = 1e-16
    curve = np.maximum(steps**2, noise)[:, None] * np.ones(20)
    crowd = curve.copy()
    crowd[8:] = noise  # smooth from afar, then one step falls to the noise: affine pieces
    assert _bends_everywhere(curve, noise)
    assert not _bends_everywhere(crowd, noise)
    assert not _bends_everywhere(np.full((15, 20), noise), noise)


@pytest.mark.parametrize("size", [1e-10, 1e-6, 1e-4])
def test_noise_degrades_with_a_statement(size):
    net, rng = net_of(5, 8, 6, 1, seed=1), np.random.default_rng(5)
    noisy = rs.Oracle(lambda X: net(X) + size * rng.normal(size=(len(X), 1)), 5)
    found = rs.recover(noisy, BOX, rng=0, most_chords=120)
    assert 0.3 * size < found.noise < 5 * size
    assert any("noise of about" in line for line in found.statement)
    if size < 1e-5:
        assert found
        assert found.compare(net, certify=False).sampled < 100 * size
    else:
        assert not found
        assert "incomplete" in found.statement[0]
        assert isinstance(found.network, rs.Network)


@pytest.mark.parametrize(("widths", "seed"), [((5, 20, 1), 0), ((5, 8, 6, 1), 1)])
def test_single_precision_oracles_give_single_precision_weights(widths, seed):
    # 20 signs on 5 equations, then two layers: both need the rows refined before anything hangs on them.
    net = net_of(*widths, seed=seed)
    found = rs.recover(rs.Oracle(net, dtype="float32"), BOX, rng=0, check=2000)
    assert found
    held = found.compare(net, certify=False)
    assert held.sampled < 1e-5
    if len(widths) == 3:  # of two layers, all units are matched only where none is always on
        assert held.parameter_error < 1e-3
        assert held.certified < 1e-2
        assert "certified output error: at most" in str(held)


def test_a_unit_too_weak_to_bend_visibly_is_found_in_the_misfit():
    rng = np.random.default_rng(3)
    Z = np.column_stack([rng.uniform(-1, 1, (800, 4)), np.ones(800)])
    theta = np.array([0.5, -0.4, 0.3, 0.2, 0.1])
    known = np.column_stack([Z, np.maximum(Z @ rng.normal(size=5), 0)])
    Y = (known @ rng.normal(size=6) + 1e-3 * np.maximum(Z @ theta, 0))[:, None] + 1e-8 * rng.normal(size=(800, 1))
    none = np.zeros((0, 5))
    row = weak_unit(Z, known, Y, none, rng)
    assert np.abs(row @ theta) / np.linalg.norm(theta) > 0.999
    bends = Z[:40] - np.outer(Z[:40] @ theta, theta) / (theta @ theta)  # on the unit's surface, up to scale
    bends[:4] = Z[:4]
    row = weak_unit(Z, known, Y, bends, rng)
    assert np.abs(row @ theta) / np.linalg.norm(theta) > 0.9999
    assert weak_unit(Z, known, known[:, :1] + 1e-8 * rng.normal(size=(800, 1)), none, rng) is None


def test_rounded_answers_are_recognised():
    net = net_of(5, 8, 1, seed=1)
    found = rs.recover(rs.Oracle(lambda X: np.round(net(X), 1), 5), BOX, rng=0, most_chords=40, check=0)
    assert 0.02 < found.noise < 0.1
    assert not found


def test_a_query_limit_ends_with_what_is_known():
    net = net_of(10, 15, 15, 1)
    found = rs.recover(rs.Oracle(net, limit=12_000), BOX, rng=0)
    assert not found
    assert found.total_queries <= 12_000
    assert "allows 12,000 queries" in found.statement[0]
    assert sum(found.queries.values()) == found.total_queries
    more = rs.recover(rs.Oracle(net, limit=16_000), BOX, rng=0)
    assert not more
    assert more.layers[:1] == (15,)  # what was known when the queries ended
    few = rs.recover(rs.Oracle(net, limit=2500), BOX, rng=0)
    assert not few
    assert few.layers == ()
    with pytest.raises(InputError, match="limit of at least"):
        rs.recover(rs.Oracle(net, limit=1000), BOX)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "magic"}, "method must be one of"),
        ({"box": (1, -1)}, "lower < upper"),
        ({"samples": 1}, "samples must be at least 2"),
        ({"oracle": 5}, "oracle must be an Oracle"),
        ({"oracle": rs.Oracle(lambda X: X, 2), "method": "samples"}, "takes one output"),
        ({"oracle": rs.Oracle(lambda X: X[:, 0], 9), "method": "regions"}, "up to 6 inputs"),
    ],
)
def test_recover_refuses(arguments, message):
    given_ = {"oracle": net_of(2, 3, 1), "box": BOX} | arguments
    with pytest.raises(InputError, match=message):
        rs.recover(**given_)


@pytest.mark.parametrize("widths", [(3, 5, 2), (4, 6, 5, 1)])
def test_alignment_undoes_order_and_scale(widths):
    net, rng = net_of(*widths, seed=1), np.random.default_rng(0)
    layers, order, scale = [], np.arange(widths[0]), np.ones(widths[0])
    for layer in net.layers:
        W = layer.weight[:, order] / scale
        last = layer is net.layers[-1]
        order = np.arange(layer.width) if last else rng.permutation(layer.width)
        scale = np.ones(layer.width) if last else rng.uniform(0.1, 10, layer.width)
        layers.append((W[order] * scale[:, None], layer.bias[order] * scale))
    box = (np.full(widths[0], -2.0), np.full(widths[0], 2.0))
    same = align(net, rs.Network(layers), box)
    assert same.missing == (0,) * len(net.hidden)
    assert same.parameter_error < 1e-12
    assert same.bound < 1e-10
    W, b = layers[-1]
    off = align(net, rs.Network([*layers[:-1], (W, b + 1e-3)]), box)
    assert off.parameter_error == pytest.approx(1e-3)
    assert 1e-3 <= off.bound < 1.001e-3
    W, b = layers[0]
    lost = align(net, rs.Network([(np.vstack([-W[:1], W[1:]]), b), *layers[1:]]), box)
    assert lost.missing[0] == 1
    assert lost.parameter_error is None


# -- signs and refinement --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "units", "rows"), [(6, 4, 1), (3, 8, 6), (4, 18, 1)])
def test_signs_are_settled(inputs, units, rows):
    rng = np.random.default_rng(units)
    w, b, v = rng.normal(size=(units, inputs)), rng.normal(size=units), rng.normal(size=(rows, units))
    turned = rng.random(units) < 0.5
    sign = np.where(turned, -1.0, 1.0)
    # The truth is v relu(sign (w x + b)): over (relu(w x + b), x, 1) it reads as below, with relu(-h) = relu(h) - h.
    carried = Trunk(inputs).grown(np.column_stack([w, b]))
    read = np.column_stack([v, -(v * turned) @ w, -(v * turned) @ b])
    done = settle(carried, read, 1e-8)
    assert done.resolved
    assert not done.trunk.stages[-1].carries
    X = rng.normal(size=(50, inputs))
    expected = np.maximum(sign * (X @ w.T + b), 0) @ v.T
    np.testing.assert_allclose(Model(done.trunk, done.rows)(X), expected, atol=1e-10)


def test_signs_stay_open_when_a_unit_is_always_on():
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(3, 4)), rng.normal(size=3)
    carried = Trunk(4).grown(np.column_stack([w, b]))
    row = np.concatenate([rng.normal(size=3), rng.normal(size=4), [0.1]])[None]  # an affine part that is nobody's
    done = settle(carried, row, 1e-8)
    assert not done.resolved
    assert done.trunk is carried


def always_on(rng, linear, inputs=10, units=4, rows=6):
    """A layer of which `linear` units are always on and not known: what is known of it, rows of the next layer over
    that, and the function those rows describe."""
    w, b, v = rng.normal(size=(units, inputs)), rng.normal(size=units), rng.normal(size=(rows, units))
    on, read = rng.normal(size=(linear, inputs)), rng.normal(size=(rows, linear))
    turned = rng.random(units) < 0.5
    sign = np.where(turned, -1.0, 1.0)
    carried = Trunk(inputs).grown(np.column_stack([w, b]))
    over = np.column_stack([v, -(v * turned) @ w + read @ on, -(v * turned) @ b + read.sum(axis=1)])
    return carried, over, lambda X: np.maximum(sign * (X @ w.T + b), 0) @ v.T + (X @ on.T + 1) @ read.T


@pytest.mark.parametrize("linear", [1, 2])
def test_units_that_are_always_on_become_few_linear_features(linear):
    rng = np.random.default_rng(linear)
    carried, over, true = always_on(rng, linear)
    done = settle(carried, over, 1e-8)
    assert done.resolved
    stage = done.trunk.stages[-1]
    assert (stage.n_units, stage.linear, stage.n_free) == (4, linear, 4 + linear)
    X = rng.normal(size=(50, 10))
    np.testing.assert_allclose(Model(done.trunk, done.rows)(X), true(X), atol=1e-10)
    assert settle(done.trunk, done.rows, 1e-8).trunk is done.trunk
    # They are parameters: a refinement finds them again.
    off = Stage(stage.weight * (1 + 1e-6), stage.bias, stage.bends, linear=linear)
    better, residual = refine(Model(done.trunk.with_last(off), done.rows), X, true(X))
    assert np.abs(residual).max() < 1e-12 and better.n_parameters == (4 + linear) * 11 + over.shape[0] * (5 + linear)


def test_as_many_linear_features_as_rows_say_nothing():
    carried, over, _ = always_on(np.random.default_rng(0), 3, rows=4)
    assert not settle(carried, over, 1e-8).resolved


def test_rows_that_read_carried_features_only_are_units_of_the_layer_before():
    rng = np.random.default_rng(0)
    carried, over, _ = always_on(rng, 1)
    row = np.concatenate([np.zeros(4), rng.normal(size=11)])
    np.testing.assert_allclose(_of_layer_before(carried, np.stack([over[0], row]), 1e-7), [row[4:]])
    done = settle(carried, over, 1e-8)
    V = done.trunk.stages[-1].weight[4:]
    only = np.array([[0.0, 0.0, 0.0, 0.0, 2.0, 0.5]])
    found = _of_layer_before(done.trunk, np.concatenate([done.rows, only]), 1e-7)
    np.testing.assert_allclose(found, [np.append(2.0 * V[0], 0.5)])
    layer = _with_rows(Peeled(Trunk(10), rng.normal(size=(3, 11)), True, 2, ((0, 4), (2, 5))), found)
    assert (len(layer.rows), layer.firm, layer.silent) == (4, 3, ((0, 4), (3, 5)))
    np.testing.assert_allclose(layer.rows[2], found[0] / np.linalg.norm(found[0]))


def test_a_normal_of_another_surface_does_not_spoil_a_row():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=7)
    theta /= np.linalg.norm(theta)
    x = rng.uniform(-1, 1, (9, 6))
    x -= np.outer((x @ theta[:-1] + theta[-1]) / (theta[:-1] @ theta[:-1]), theta[:-1])
    normal = np.tile(theta[:-1] / np.linalg.norm(theta[:-1]), (9, 1))
    normal[3] = [0.6, 0.8, 0.0, 0.0, 0.0, 0.0]
    evidence = Evidence(np.arange(9), np.full(9, 0.5), x, normal, np.full(9, 1e-10))
    off = theta + 1e-8 * rng.normal(size=7)
    candidate = Candidate(off / np.linalg.norm(off), np.zeros((7, 0)), np.arange(9), x, np.ones(9, dtype=bool))
    assert np.abs(_sharpened(Trunk(6), candidate, evidence, 1e-6) - theta).max() < 1e-12


def test_a_misfit_of_few_samples_does_not_spoil_the_fit():
    rng = np.random.default_rng(0)
    U = rng.uniform(-1, 1, (400, 30))
    Y = U @ rng.normal(size=(30, 1)) + 0.3 + 0.5 * np.maximum(U[:, :1] + U[:, 1:2] - 1.0, 0)
    off = (U[:, 0] + U[:, 1] > 1.0).mean()
    assert 0.1 < off < 0.13
    found = fit_outputs(Trunk(30), U, Y, 1e-6)
    assert abs(found.share - (1 - off)) < 1e-9


def test_chords_at_edges_cross_the_surface_of_the_missing_unit():
    rng = np.random.default_rng(0)
    net = rs.Network([(rng.normal(size=(5, 6)), np.array([0.1, 0.2, -0.3, 0.4, -4.0])), (np.ones((1, 5)), [0.0])])
    view = view_of(rs.Oracle(net))
    W, b = 2 * net.layers[0].dense(), net.layers[0].bias
    trunk = Trunk(6, (Stage(W[:4], b[:4], np.ones(4, bool)),))
    pool = Pool.empty(view, rng, rs.budget.parse_budget(None))
    pool.sample(2000)
    fit = fit_outputs(trunk, pool.samples, pool.values, 1e-6)
    assert 0.6 < fit.share < 0.99
    before = view.oracle.queries
    chords = _at_edges(pool, Model(trunk, np.array([[1.0, 1.0, 1.0, 1.0, 0.0]])), fit, 1e-6)
    asked = view.oracle.queries - before
    at = np.stack([chords.start, chords.start + chords.way]) @ W[4] + b[4]
    assert len(chords) == 24 and asked == 120
    assert (np.sign(at[0]) != np.sign(at[1])).all()
    assert np.linalg.norm(chords.way, axis=1).max() < 0.5


def test_refinement_reaches_rounding():
    rng = np.random.default_rng(0)
    true = Model(
        Trunk(4, (Stage(rng.normal(size=(6, 4)), rng.normal(size=6), np.ones(6, bool)),)), rng.normal(size=(1, 7))
    )
    off = Model(
        Trunk(4, tuple(Stage(s.weight * (1 + 1e-6), s.bias + 1e-6, s.bends) for s in true.trunk.stages)),
        true.rows + 1e-6,
    )
    U = rng.uniform(-1, 1, (500, 4))
    _, residual = refine(off, U, true(U))
    assert np.abs(off(U) - true(U)).max() > 1e-7
    assert np.abs(residual).max() < 1e-13


# -- regions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("widths", "seed"), [((1, 8, 1), 1), ((2, 5, 1), 0), ((2, 6, 5, 1), 1), ((3, 5, 2), 2)])
def test_walk_finds_every_piece(widths, seed, tmp_path):
    net = net_of(*widths, seed=seed)
    found = rs.recover(rs.Oracle(net), BOX, method="regions", rng=0, check=4000)
    assert found
    assert found.sampled.share == 1.0
    assert found.sampled.largest < 1e-8
    assert len(found.result) >= rs.regions(net, BOX, progress=None).merge_equal().count
    path = tmp_path / "pieces.npz"
    found.result.save(path)
    again = rs.recovery.Surrogate.load(path)
    X = np.random.default_rng(1).uniform(-2, 2, (300, widths[0]))
    np.testing.assert_allclose(again(X), found.result(X), rtol=1e-12, atol=1e-13)
    models = again.unwrap(X)
    assert models["rows"].sum() == 300
    assert len(again.to_pandas()) == len(again)
    assert (again.find(np.full((1, widths[0]), 5.0)) == -1).all()
    assert np.isnan(again(np.full((1, widths[0]), 5.0))).all()


@pytest.mark.parametrize("method", ["exact", "regions"])
def test_complete_says_what_was_checked(method):
    net = net_of(4, 5, 1) if method == "exact" else net_of(2, 4, 1)
    found = rs.recover(rs.Oracle(net), BOX, method=method, rng=0, check=1000)
    most = 1 - 0.01 ** (1 / 1000)  # a part of the box that 1,000 points miss with probability 1 %
    assert found and f"with 99% confidence at most {most:.2g} of the box differs by more" in found.statement[-1]
    unchecked = rs.recover(rs.Oracle(net), BOX, method=method, rng=0, check=0)
    assert unchecked.statement[-1] == "not checked at fresh points"


def test_walk_stops_at_a_budget():
    found = rs.recover(rs.Oracle(net_of(2, 10, 10, 1)), BOX, method="regions", rng=0, budget="5 regions", check=100)
    assert not found
    assert len(found.result) == 5
    assert any("5 regions" in line for line in found.statement)


def test_damaged_surrogates_are_refused(tmp_path):
    from reluscope.formats.arrays import write_npz

    found = rs.recover(rs.Oracle(net_of(1, 3, 1)), BOX, method="regions", rng=0, check=0).result
    arrays = {k: getattr(found, k) for k in ("lower", "upper", "A", "b", "start", "C", "d", "interior")}
    write_npz({k: v for k, v in arrays.items() if k != "C"}, tmp_path / "a.npz")
    write_npz(arrays | {"start": arrays["start"][::-1]}, tmp_path / "b.npz")
    for name, message in (("a.npz", "lacks C"), ("b.npz", "shapes do not fit")):
        with pytest.raises(InputError, match=message):
            rs.recovery.Surrogate.load(tmp_path / name)


# -- pieces ----------------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 3), seed=st.integers(0, 2**31))
def test_ball_integrals_against_cubature(n, seed):
    # Midpoint rule on a grid of 2 10^5 (or fewer) cells over the union's box; the boundary of the balls limits it.
    rng = np.random.default_rng(seed)
    centres, slopes = rng.uniform(-0.5, 0.5, (3, n)), rng.normal(size=(3, n))
    values, radii = rng.normal(size=3), rng.uniform(0.2, 1.0, 3)
    k = {1: 20_001, 2: 400, 3: 60}[n]
    axis = (np.arange(k) + 0.5) / k * 3.2 - 1.6
    X = np.stack([g.ravel() for g in np.meshgrid(*[axis] * n)], axis=1)
    local = np.where(
        ((X[:, None] - centres) ** 2).sum(axis=2) <= radii**2, ((X[:, None] - centres) * slopes).sum(axis=2) + values, 0
    )
    expected = local.T @ local * (3.2 / k) ** n
    bound = {1: 2e-3, 2: 2e-2, 3: 0.1}[n] * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(gram(centres, slopes, values, radii), expected, atol=bound)


def test_lens_of_equal_balls_in_three_dimensions():
    # Two unit balls at distance D: volume pi (4 + D)(2 - D)^2 / 12.
    D = np.array([0.0, 0.5, 1.0, 1.9])
    volume = lens_moments(np.ones(4), np.ones(4), D, 3)[0]
    np.testing.assert_allclose(volume, np.pi * (4 + D) * (2 - D) ** 2 / 12, rtol=1e-13)


def test_gram_matrix_is_positive_semidefinite_and_the_fit_is_its_minimum():
    found = rs.recover(rs.Oracle(net_of(2, 6, 1)), BOX, method="samples", samples=60, rng=0).result
    assert np.linalg.eigvalsh(found.gram).min() > -1e-12 * np.abs(found.gram).max()
    np.testing.assert_allclose(found.gram @ found.weights, found.linear, atol=1e-8 * np.abs(found.linear).max())
    assert found.hessian.smallest == pytest.approx(2 * np.linalg.eigvalsh(found.gram).min(), abs=1e-10)
    top = np.abs(found.linear).max()
    path = l1_path(found.gram, found.linear, top * np.array([1.01, 0.1, 1e-3]))
    assert not path[0].any()
    assert 0 < (path[1] != 0).sum() <= (path[2] != 0).sum()


@pytest.mark.parametrize(("n", "samples"), [(1, 12), (2, 60), (5, 60)])
def test_the_fit_is_least_squares_on_the_box(n, samples):
    # The stated problem: the mean squared error over the box, not over balls that stick out of it.
    net = net_of(n, 6, 4, 1, seed=2)
    found = rs.recover(rs.Oracle(net, gradient=True), BOX, method="samples", samples=samples, rng=0, check=0).result
    X = np.random.default_rng(1).uniform(-2, 2, (20_000, n))
    y, terms = net(X)[:, 0], found.terms(X)[:, : len(found)]
    best = np.linalg.lstsq(terms, y, rcond=None)[0]
    least, mine = ((terms @ best - y) ** 2).mean(), ((found(X, "balls") - y) ** 2).mean()
    assert mine <= 1.1 * least
    assert found.objective == pytest.approx(mine, rel=0.1)
    assert found.spread == pytest.approx(y.std(), rel=0.05)
    # Over whole balls in R^n, as it was: a different matrix, and a worse fit on the box.
    whole = np.linalg.lstsq(found.whole_balls(), found.linear, rcond=1e-10)[0]
    assert ((terms @ whole - y) ** 2).mean() > 1.2 * mine


def test_gram_matrix_is_the_closed_form_where_balls_lie_in_the_box():
    found = rs.recover(
        rs.Oracle(net_of(2, 6, 1)), BOX, method="samples", samples=100, points=1 << 17, rng=0, check=0
    ).result
    inside = np.flatnonzero((np.abs(found.centres) + found.radii[:, None] <= 1).all(axis=1))
    assert len(inside) > 20
    both = np.ix_(inside, inside)
    np.testing.assert_allclose(found.gram[both], found.whole_balls()[both], atol=2e-3 * found.gram.max())
    assert np.abs(found.gram - found.whole_balls()).max() > 0.05 * found.gram.max()


@pytest.mark.parametrize(("n", "samples"), [(1, 10), (2, 80), (5, 60)])
def test_interactions_never_fit_worse(n, samples):
    for seed in range(2):
        net = net_of(n, 8, 6, 1, seed=seed)
        found = rs.recover(
            rs.Oracle(net, gradient=True), BOX, method="samples", samples=samples, rng=seed, check=0
        ).result
        assert found.pair_objective <= found.objective
        X = np.random.default_rng(1).uniform(-2, 2, (10_000, n))
        y = net(X)[:, 0]
        plain, pairs = (((found(X, kind) - y) ** 2).mean() for kind in ("balls", "interactions"))
        assert pairs <= plain
        # All pairs of balls that overlap in the box, as far as points of the box say so.
        near = (((X / 2)[:, None] - found.centres) ** 2).sum(axis=2) <= found.radii**2
        meet = np.triu(near.T.astype(float) @ near, 1) > 20
        assert {*map(tuple, np.argwhere(meet))} <= {*map(tuple, found.pairs)}
        assert meet.sum() > samples / 2
        assert found.pair_hessian.terms == len(found) + len(found.pairs)


def test_hessians_are_semidefinite_with_interactions_and_beyond_the_eigenvalues():
    found = rs.recover(rs.Oracle(net_of(2, 6, 1)), BOX, method="samples", samples=60, rng=0, check=0).result
    T = found.terms(found.centre + found.half * found.points)
    H = 2 * 4 / len(T) * T.T @ T  # the scaled box has area 4
    values = np.linalg.eigvalsh(H)
    report = found.pair_hessian
    assert values[0] > -1e-12 * values[-1]
    assert (report.terms, report.points, report.bounds) == (len(H), len(T), False)
    assert report.largest == pytest.approx(values[-1])
    assert report.margin == pytest.approx((2 * np.diag(H) - np.abs(H).sum(axis=1)).min())
    large = _pair_hessian(scipy.sparse.csr_matrix(np.tile(T, (1, 8))), 8 / len(T), len(T))
    assert large.bounds and large.largest == pytest.approx(8 * values[-1])
    assert large.smallest <= H.diagonal().min() * (1 + 1e-12)


def test_nearest_piece_error_is_exact_in_the_plane():
    net = net_of(2, 6, 4, 1, seed=3)
    found = rs.recover(rs.Oracle(net), BOX, method="samples", samples=80, rng=0).result
    exact = nearest_error(net, found)
    X = np.random.default_rng(0).uniform(-2, 2, (200_000, 2))
    gap = found(X, "nearest") - net(X)[:, 0]
    # 6 standard errors of 200,000 draws: a false alarm in 5e8 runs.
    squared = gap**2
    assert abs(squared.mean() - exact.l2**2) < 6 * squared.std() / np.sqrt(len(X))
    same = np.abs(found.slopes[found.nearest(X)] / 2 - net.jacobian(X)[:, 0]).max(axis=1) < 1e-6
    assert abs(same.mean() - exact.right) < 6 * same.std() / np.sqrt(len(X)) + 1e-6
    assert np.abs(gap).max() <= exact.sup * (1 + 1e-9)
    assert np.abs(gap).max() > 0.9 * exact.sup


def test_pieces_know_the_pieces():
    net = net_of(3, 6, 1, seed=1)
    found = rs.recover(rs.Oracle(net), BOX, method="samples", samples=50, rng=0).result
    X = found.centres * 2
    np.testing.assert_allclose(found.slopes / 2, net.jacobian(X)[:, 0], atol=1e-9)
    np.testing.assert_allclose(found(X, "nearest"), net(X)[:, 0], atol=1e-12)
    for kind in ("balls", "interactions", "inverse distance"):
        assert np.isfinite(found(X + 0.01, kind)).all()
    with pytest.raises(InputError, match="kind must be one of"):
        found(X, "best")


# -- the shell -------------------------------------------------------------------------------------------------------


def test_command(tmp_path, capsys):
    model, out = tmp_path / "model.npz", tmp_path / "again.npz"
    net = net_of(6, 8, 1, seed=1)
    net.save(model)
    assert main(["recover", str(model), "--box", "-2", "2", "--out", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["complete"]
    assert facts["layers"] == [8]
    assert facts["comparison"]["parameter_error"] < 1e-9
    X = np.random.default_rng(0).uniform(-2, 2, (100, 6))
    np.testing.assert_allclose(rs.load(out)(X), net(X), atol=1e-10)
    assert main(["recover", str(model), "--limit", "5000"]) == 1
    assert "incomplete" in capsys.readouterr().out
    assert main(["recover", str(model), "--budget", "0.001s"]) == 1
    assert "budget of 0.001 s reached" in capsys.readouterr().out
    assert main(["recover", str(model), "--method", "regions", "--out", str(tmp_path / "a.onnx")]) != 0
    assert "file types for method 'regions': .npz" in capsys.readouterr().err


def test_reproduction_in_short(tmp_path):
    from reluscope.reproduce import reproduce

    done = reproduce("recover", tmp_path, quick=True, rng=0)
    assert all(row["largest error"] <= 1e-10 for row in done.rows)
    assert (tmp_path / "pieces.txt").exists()
    assert "a reduced run" in str(done) and "131,000" not in str(done)


@pytest.mark.slow
@pytest.mark.parametrize("widths", [(10, 15, 15, 1), (10, 20, 20, 1), (40, 20, 10, 10, 1)])
def test_published_sizes(widths):
    for seed in (1, 2, 3):  # benchmarks/recover.py takes all
        net = net_of(*widths, seed=seed)
        found = rs.recover(rs.Oracle(net), BOX, rng=seed, check=0)
        assert found.compare(net, certify=False).sampled < 1e-10
        assert found.total_queries < (131_000 if len(widths) == 4 else 150_000)


def test_every_width_in_turn_finds_its_units():
    for inputs, units in itertools.product((2, 7), (1, 3, 12)):
        net = net_of(inputs, units, 1, seed=units)
        found = rs.recover(rs.Oracle(net), BOX, rng=0, check=0)
        assert found.compare(net, certify=False).sampled < 1e-10


@pytest.mark.parametrize("seed", [15, 17])
def test_regions_that_were_cut_too_little_are_cut_further(seed):
    """Other regions reach in between the vertices of these: 0.2 % of the box was wrong and called complete."""
    rng = np.random.default_rng(seed)
    sizes = (2, 6, 4, 1)
    net = rs.Network(
        [(rng.normal(size=(o, i)) * np.sqrt(2 / i), 0.5 * rng.normal(size=o)) for i, o in itertools.pairwise(sizes)]
    )
    found = rs.recover(rs.Oracle(net), BOX, method="regions", rng=seed, check=2000)
    X = np.random.default_rng(1).uniform(-2, 2, (30_000, 2))
    assert found and np.abs(found(X) - net(X)).max() < 1e-6


def test_no_method_says_complete_beside_points_that_disagree():
    """A walk that never looks again leaves wrong regions: the fresh points say so, whatever the walk believes."""
    rng = np.random.default_rng(17)
    sizes = (2, 6, 4, 1)
    net = rs.Network(
        [(rng.normal(size=(o, i)) * np.sqrt(2 / i), 0.5 * rng.normal(size=o)) for i, o in itertools.pairwise(sizes)]
    )
    nothing = np.zeros((0, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk._Walker, "disagreeing", lambda self, X: nothing)
        patch.setattr(import_module("reluscope.recovery.recover"), "_failed", lambda *given: nothing)
        patch.setattr(walk, "_INSIDE", 1)
        patch.setattr(walk, "_ON_FACET", 1)
        found = rs.recover(rs.Oracle(net), BOX, method="regions", rng=17, check=10_000)
    assert found.sampled.share < 1.0 and not found and "incomplete" in found.statement[-1]
