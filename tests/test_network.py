import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from nets import random_net
from reluscope import activations as ac
from reluscope.errors import InputError
from reluscope.network import Network

ACTIVATIONS = [
    ac.relu(),
    ac.leaky_relu(0.2),
    ac.leaky_relu(-0.4),
    ac.relu6(),
    ac.hardtanh(),
    ac.hard_sigmoid(),
    ac.absolute(),
    ac.identity(),
    ac.clip(-0.5, 2.0),
    ac.piecewise([-1.0, 0.2, 0.9], [0.3, 1.1, -0.7, 0.9], at_zero=0.1),
]


def check_local_map(net, X):
    """`C x + d` equals the forward pass to 1e-12 of the sum of the terms' sizes."""
    maps = net.local(X)
    value = np.einsum("nij,nj->ni", maps.C, X) + maps.d
    size = np.einsum("nij,nj->ni", np.abs(maps.C), np.abs(X)) + np.abs(maps.d)
    assert (np.abs(value - net(X)) <= 1e-12 * size).all()
    return maps


@given(
    st.integers(0, 2**31),
    st.sampled_from(ACTIVATIONS),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(0, 20),
    st.integers(1, 12),
)
def test_local_affine_map_is_the_forward_pass(seed, act, inputs, outputs, depth, width):
    net = random_net((inputs, *[width] * depth, outputs), seed, act)
    X = np.random.default_rng(seed).normal(size=(7, inputs))
    maps = check_local_map(net, X)
    for i in (0, 3):
        p = maps.pattern[i]
        one = net.affine(p)
        scale = np.abs(maps.C).max() + np.abs(maps.d).max()
        np.testing.assert_allclose(one.C, maps.C[i], atol=1e-12 * scale)
        np.testing.assert_allclose(one.d, maps.d[i], atol=1e-12 * scale)
        for (C, d), h in zip(one.hidden, net.preactivations(X[i])[:-1], strict=True):
            np.testing.assert_allclose(C @ X[i] + d, h, atol=1e-11 * (np.abs(C) @ np.abs(X[i]) + np.abs(d) + 1).max())
        assert net.polytope(p).contains(X[i])


@given(st.integers(0, 2**31), st.sampled_from(ACTIVATIONS[:7]))
def test_polytope_holds_exactly_the_points_of_its_pattern(seed, act):
    net = random_net((2, 4, 3, 1), seed, act)
    X = np.random.default_rng(seed).normal(size=(200, 2)) * 2
    patterns = net.pattern(X)
    inside = net.polytope(patterns[0]).contains(X)
    np.testing.assert_array_equal(inside, (patterns == patterns[0]).all(axis=1))


def test_lemma_1_has_the_right_sign():
    # One unit, h = x + 3: it is on exactly where x > -3. (The printed formula `C x - d` would say x > 3.)
    net = Network([([[1.0]], [3.0]), ([[1.0]], [0.0])])
    on = net.polytope(np.array([1]))
    assert on.contains([[-2.0], [0.0], [4.0]]).all()
    assert not on.contains([[-3.0], [-4.0]]).any()


def test_ties_count_to_the_piece_below():
    net = Network([([[1.0], [1.0]], [0.0, -6.0], [ac.relu(), ac.relu6()]), ([[1.0, 1.0]], [0.0])])
    assert net.pattern([[0.0], [6.0], [12.0], [13.0]]).tolist() == [[0, 0], [1, 0], [1, 1], [1, 2]]
    at_tie = net.polytope(net.pattern([0.0]))
    assert at_tie.contains([0.0])
    assert not net.polytope(net.pattern([1.0])).contains([0.0])


def test_values_are_the_layers_one_by_one():
    """Equations (1)-(2) in plain numpy: h = W z + b, z = max(h, 0), and the last layer as it is."""
    rng = np.random.default_rng(5)
    weights = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in ((3, 7), (7, 5), (5, 2))]
    net, X = Network(weights), rng.normal(size=(40, 3))
    z, signs = X, []
    for W, b in weights[:-1]:
        h = np.array([[sum(w * v for w, v in zip(row, x, strict=True)) for row in W] for x in z]) + b
        signs.append(h > 0)
        z = np.maximum(h, 0)
    np.testing.assert_allclose(net(X), z @ weights[-1][0].T + weights[-1][1], atol=1e-12)
    np.testing.assert_array_equal(net.pattern(X), np.concatenate(signs, axis=1))
    assert net.n_parameters == sum(W.size + b.size for W, b in weights)


@pytest.mark.parametrize("act", [ac.relu(), ac.hardtanh()])
def test_regions_are_convex_and_signs_constant_in_them(act):
    """Between two inputs with one pattern every input has it, and the network is affine."""
    net = random_net((2, 6, 5, 1), 4, act)
    X = np.random.default_rng(2).uniform(-1, 1, (3000, 2))
    pattern = net.pattern(X)
    _, first, group = np.unique(net.key(pattern), return_index=True, return_inverse=True)
    assert len(first) > 8
    other = X[first[group]]
    for share in (0.1, 0.5, 0.9):
        between = share * X + (1 - share) * other
        np.testing.assert_array_equal(net.pattern(between), pattern)
        np.testing.assert_allclose(net(between), share * net(X) + (1 - share) * net(other), atol=1e-12)


def test_forward_and_backward_accumulation_agree():
    for widths in ((3, 9, 9, 2), (2, 9, 9, 5), (1, 4, 7), (5, 3)):
        net = random_net(widths, 3, ac.relu6())
        X = np.random.default_rng(0).normal(size=(31, widths[0]))
        p = net.pattern(X)
        C = np.empty((31, widths[-1], widths[0]))
        d = np.empty((31, widths[-1]))
        net._accumulate_backward(p, C, d)
        C2, d2 = np.empty_like(C), np.empty_like(d)
        if net.hidden:
            net._accumulate_forward(p, C2, d2)
            np.testing.assert_allclose(C, C2, atol=1e-13)
            np.testing.assert_allclose(d, d2, atol=1e-13)


def test_jacobian_is_the_derivative():
    net = random_net((4, 10, 10, 3), 1)
    X = np.random.default_rng(1).normal(size=(20, 4))
    J = net.jacobian(X)
    step = 1e-6
    for k in range(4):
        e = step * np.eye(4)[k]
        np.testing.assert_allclose((net(X + e) - net(X - e)) / (2 * step), J[:, :, k], atol=1e-6)
    assert net.jacobian(X[0]).shape == (3, 4)


def test_keys_tell_patterns_apart():
    net = random_net((2, 30, 20, 1), 0, "relu6")
    X = np.random.default_rng(2).normal(size=(3000, 2)) * 4
    p = net.pattern(X)
    keys = net.key(p)
    assert len(np.unique(keys)) == len(np.unique(p, axis=0)) > 100
    assert net.key(p[17]) == keys[17].tobytes()
    assert hash(net.key(p[17])) == hash(net.key(p[17].copy()))
    assert len(net.key(p[0])) == 13  # 50 units of 2 bits
    affine = Network([([[1.0, 2.0]], [0.0])])
    assert affine.key(affine.pattern([[1.0, 2.0]])).shape == (1,)


def test_chunks_do_not_change_the_answer():
    net = random_net((3, 40, 40, 2), 5)
    X = np.random.default_rng(3).normal(size=(20_000, 3))
    every = net(X)
    np.testing.assert_allclose(every[12_345], net(X[12_345]), rtol=1e-12)
    np.testing.assert_array_equal(net.pattern(X)[12_345], net.pattern(X[12_345]))
    np.testing.assert_allclose(net.local(X).C[19_999], net.jacobian(X[19_999]), rtol=1e-12, atol=1e-14)


def test_sparse_layers_give_the_same_network():
    rng = np.random.default_rng(0)
    W = np.where(rng.random((90, 80)) < 0.05, rng.normal(size=(90, 80)), 0.0)
    W2 = rng.normal(size=(3, 90))
    dense = Network([(W, None), (W2, None)])
    thin = Network([(sparse.csr_matrix(W), None), (sparse.coo_array(W2), None)])
    assert sparse.issparse(thin.layers[0].weight)
    assert not sparse.issparse(thin.layers[1].weight)  # dense enough to store densely
    X = rng.normal(size=(40, 80))
    np.testing.assert_allclose(thin(X), dense(X), rtol=1e-13)
    np.testing.assert_allclose(thin.local(X).C, dense.local(X).C, atol=1e-13)
    np.testing.assert_allclose(thin.affine(thin.pattern(X[0])).C, dense.jacobian(X[0]), atol=1e-13)
    assert thin.polytope(thin.pattern(X[0])).contains(X[0])


def test_identity_units_carry_skip_connections():
    # y = x + relu(x), a residual block as one layer.
    net = Network([([[1.0], [1.0]], [0.0, 0.0], ["relu", "identity"]), ([[1.0, 1.0]], [0.0])])
    np.testing.assert_array_equal(net([[-2.0], [3.0]]), [[-2.0], [6.0]])
    assert net.pattern([[-2.0], [3.0]]).tolist() == [[0, 0], [1, 0]]
    np.testing.assert_array_equal(net.jacobian([[-2.0], [3.0]]).ravel(), [1.0, 2.0])


def test_activation_on_the_last_layer_gets_an_output_layer():
    net = Network([([[1.0], [-1.0]], [0.0, 0.0], "relu")])
    assert len(net.layers) == 2
    np.testing.assert_array_equal(net([[2.0], [-3.0]]), [[2.0, 0.0], [0.0, 3.0]])


def test_changes_of_input_and_output():
    net = random_net((3, 6, 2), 0)
    rng = np.random.default_rng(0)
    A, c, B, e = rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=(4, 2)), rng.normal(size=4)
    U = rng.normal(size=(9, 2))
    np.testing.assert_allclose(net.after(A, c)(U), net(U @ A.T + c), atol=1e-13)
    np.testing.assert_allclose(net.then(B, e)(U @ A.T + c), net(U @ A.T + c) @ B.T + e, atol=1e-13)


def test_networks_do_not_change():
    W = np.ones((2, 2))
    net = Network([(W, [0.0, 0.0]), (np.ones((1, 2)), [0.0])])
    before = net([1.0, 1.0])
    W[:] = 7
    np.testing.assert_array_equal(net([1.0, 1.0]), before)
    with pytest.raises(ValueError, match="read-only"):
        net.layers[0].weight[0, 0] = 5
    with pytest.raises(AttributeError):
        net.name = "other"


def test_images_may_keep_their_shape():
    net = Network([(np.ones((3, 12)), None), (np.ones((1, 3)), None)], input_shape=(3, 2, 2))
    X = np.arange(24.0).reshape(2, 3, 2, 2)
    np.testing.assert_array_equal(net(X), net(X.reshape(2, 12)))
    assert net(X[0]).shape == (1,)


def test_repr_and_description():
    net = random_net((5, 50, 50, 50, 5))
    assert repr(net) == "Network(5-50x3-5, relu, 5,655 parameters)"
    assert repr(random_net((3, 3, 3))) == "Network(3x3, relu, 24 parameters)"
    assert [row["units"] for row in net.describe()] == [50, 50, 50, 5]


NAN, INF = np.nan, np.inf
GOOD = [(np.ones((2, 2)), np.zeros(2)), (np.ones((1, 2)), np.zeros(1))]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Network([]), "non-empty sequence"),
        (lambda: Network("relu"), "non-empty sequence"),
        (lambda: Network([(np.ones((2, 2)),)]), "layer 0 must be"),
        (lambda: Network([(np.ones((2, 0)), np.zeros(2))]), "layer 0 has shape"),
        (lambda: Network([(np.ones((0, 2)), np.zeros(0))]), "layer 0 has shape"),
        (lambda: Network([(np.ones(2), np.zeros(2))]), "W of layer 0 must be a 2-D"),
        (lambda: Network([(np.ones((2, 2)), np.zeros(3))]), "b of layer 0 has 3"),
        (lambda: Network([(np.ones((2, 2)), np.zeros((2, 1)))]), "b of layer 0 must be a 1-D"),
        (lambda: Network([GOOD[0], (np.ones((1, 3)), np.zeros(1))]), "layer 1 takes 3 inputs but layer 0 has 2"),
        (lambda: Network([([[NAN, 1]], [0.0])]), "W of layer 0 must be finite"),
        (lambda: Network([GOOD[0], ([[1, 1]], [INF])]), "b of layer 1 must be finite"),
        (lambda: Network([(sparse.csr_array([[NAN, 1.0]]), [0.0])]), "must be finite"),
        (lambda: Network([([["a", "b"]], [0.0])]), "real numbers"),
        (lambda: Network([([[1j, 2]], [0.0])]), "real numbers"),
        (lambda: Network([(np.array([[object(), 1]]), [0.0])]), "real numbers"),
        (lambda: Network([([[1, 2], [3]], [0.0, 0.0])]), "rectangular"),
        (lambda: Network([(np.ma.masked_invalid([[NAN, 1.0]]), [0.0])]), "masked"),
        (lambda: Network([([[2**60 + 1, 1]], [0.0])]), "2\\*\\*53"),
        (lambda: Network([([[np.longdouble("1e4000"), 1]], [0.0])]), "finite"),
        (lambda: Network(GOOD, "tanh"), "activation of layer 0 must be"),
        (lambda: Network([(*GOOD[0], ["relu"]), GOOD[1]]), "names 1 units"),
        (lambda: Network(GOOD, input_shape=(3,)), "input_shape must multiply to 2"),
        (lambda: Network(GOOD, output_shape=(-1, -1)), "output_shape must multiply"),
    ],
)
def test_bad_networks_say_what_is_wrong(build, says):
    with pytest.raises(InputError, match=says) as caught:
        build()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda net: net([1.0, 2.0, 3.0]), "X must have shape"),
        (lambda net: net(np.zeros((2, 3))), "X must have shape"),
        (lambda net: net(5.0), "X must have shape"),
        (lambda net: net([[NAN, 0.0]]), "X must be finite"),
        (lambda net: net([["a", "b"]]), "real numbers"),
        (lambda net: net(None), "real numbers"),
        (lambda net: net.affine([0, 1, 1]), "pattern must hold"),
        (lambda net: net.affine([0, 2]), "outside 0..1 for unit 1"),
        (lambda net: net.affine([0, -1]), "outside 0..1 for unit 1"),
        (lambda net: net.affine([0.0, 1.0]), "whole numbers"),
        (lambda net: net.affine([[0, 1]]), "one pattern"),
        (lambda net: net.polytope([[0, 1]]), "one pattern"),
        (lambda net: net.after(np.ones((3, 1)), [0, 0]), "2 rows"),
        (lambda net: net.then(np.ones((3, 3))), "1 columns"),
        (lambda net: net.then(np.ones((3, 1)), [1.0]), "3 entries"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, says):
    with pytest.raises(InputError, match=says) as caught:
        call(Network(GOOD))
    assert "\n" not in str(caught.value)


def test_a_column_of_numbers_gets_a_hint():
    net = Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])
    with pytest.raises(InputError, match="reshape"):
        net([1.0, 2.0, 3.0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.float16, np.float32, ">f8", bool])
def test_number_types_are_converted(dtype):
    X = np.array([[0, 1], [1, 1]], dtype=dtype)
    np.testing.assert_array_equal(Network(GOOD)(X), Network(GOOD)(X.astype(np.float64)))
    Y = np.asfortranarray(np.ones((4, 2), np.float32))[::2]
    Y.setflags(write=False)
    assert Network(GOOD)(Y).shape == (2, 1)
