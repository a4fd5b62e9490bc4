"""The graph translator against plain loops and numpy, and the shape of the layered networks it makes."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from reluscope.activations import Activation, absolute, clip, identity, leaky_relu, relu
from reluscope.errors import InputError, InputLimitError
from reluscope.formats._terms import Window
from reluscope.formats.graph import GraphBuilder
from reluscope.limits import Limits

SEED = st.integers(0, 2**32 - 1)


def value(g, tensor, x):
    """The tensor's value at an input x, through the finished network."""
    return g.build(tensor)(np.asarray(x, dtype=float).ravel()).reshape(tensor.shape)


def windows(x, kernel, strides, pads, dilations, out):
    """Plain loops: the (possibly clipped) windows of x (C, *spatial) as lists of entries, one per output position."""
    n = len(kernel)
    for at in itertools.product(*(range(o) for o in out)):
        inside = []
        for tap in itertools.product(*(range(k) for k in kernel)):
            where = [at[i] * strides[i] + tap[i] * dilations[i] - pads[i] for i in range(n)]
            if all(0 <= w < s for w, s in zip(where, x.shape[1:], strict=True)):
                inside.append((tap, tuple(where)))
        yield at, inside


def slow_conv(x, w, b, strides, pads, dilations, groups):
    n = w.ndim - 2
    out = [
        (x.shape[1 + i] + pads[i] + pads[n + i] - dilations[i] * (w.shape[2 + i] - 1) - 1) // strides[i] + 1
        for i in range(n)
    ]
    y = np.tile(b.reshape(-1, *[1] * n), (1, *out))
    per_out, per_in = w.shape[0] // groups, w.shape[1]
    for o in range(w.shape[0]):
        first = (o // per_out) * per_in
        for at, inside in windows(x, w.shape[2:], strides, pads, dilations, out):
            y[(o, *at)] += sum(w[(o, c, *tap)] * x[(first + c, *where)] for c in range(per_in) for tap, where in inside)
    return y


# -- data movement -------------------------------------------------------------------------------------------


def test_move_takes_entries_and_fills_holes():
    g = GraphBuilder()
    x = g.input((2, 3))
    moved = g.move(x, [[5, -1], [0, 0]], fill=7.0)
    assert value(g, moved, [0, 1, 2, 3, 4, 5]).tolist() == [[5, 7], [0, 0]]


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: a.reshape(4, 3, 2),
        lambda a: a.transpose(2, 0, 1),
        lambda a: a[:, ::-2, 1:],
        lambda a: np.broadcast_to(a, (2, 2, 3, 4)),
        lambda a: np.take(a, [1, 1, 0], axis=0),
    ],
)
@pytest.mark.parametrize("through", ["input", "units", "affine", "constant"])
def test_apply_move_equals_the_numpy_operation(fn, through):
    g = GraphBuilder()
    x = np.random.default_rng(1).normal(size=(2, 3, 4))
    t = g.input(x.shape)
    expected = x
    if through == "units":
        t, expected = g.activate(t, relu()), np.maximum(x, 0)
    elif through == "affine":
        t, expected = g.add(g.scale(g.reduce_sum(t, [1]), 2.0), t), 2 * x.sum(axis=1, keepdims=True) + x
    elif through == "constant":
        t = g.add(g.scale(t, 0.0), x)
        assert t.value is not None
    np.testing.assert_allclose(value(g, g.apply_move(t, fn), x), fn(expected), rtol=1e-14)


def test_concat_mixes_blocks_and_constants():
    g = GraphBuilder()
    x = np.array([[1.0, -2.0, 3.0]])
    t = g.input((1, 3))
    parts = [g.activate(t, relu()), np.full((1, 2), 9.0), g.scale(t, 2.0), g.activate(t, absolute())]
    got = value(g, g.concat(parts, axis=1), x)
    assert got.tolist() == [[1, 0, 3, 9, 9, 2, -4, 6, 1, 2, 3]]


# -- affine operations ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=SEED, left=st.booleans())
def test_matmul_equals_numpy(data, seed, left):
    rng = np.random.default_rng(seed)
    sizes = st.integers(1, 3)
    i, k, j = data.draw(sizes), data.draw(sizes), data.draw(sizes)
    batch = data.draw(st.lists(sizes, max_size=2))
    shrink = [1 if data.draw(st.booleans()) else n for n in batch]
    drop = data.draw(st.integers(0, len(batch)))
    first = (k,) if data.draw(st.booleans()) and not drop else (*batch, i, k)
    second = (k,) if data.draw(st.booleans()) else (*shrink[drop:], k, j)
    a, b = rng.normal(size=first), rng.normal(size=second)
    g = GraphBuilder()
    t = g.input(b.shape if left else a.shape)
    got = g.matmul_left(a, t) if left else g.matmul(t, b)
    expected = np.matmul(a, b)
    assert got.shape == expected.shape
    np.testing.assert_allclose(value(g, got, b if left else a), expected, rtol=1e-12, atol=1e-12)


def test_linear_takes_dense_and_sparse_and_leaves_the_matrix_alone():
    rng = np.random.default_rng(2)
    M = rng.normal(size=(3, 4))
    M[0, 1] = 0.0
    S = sparse.csr_array((M.ravel(), np.tile(np.arange(4), 3), [0, 4, 8, 12]), shape=(3, 4))  # one stored zero
    x, b = rng.normal(size=4), rng.normal(size=3)
    for matrix in (M, S):
        g = GraphBuilder()
        got = value(g, g.linear(g.input((4,)), matrix, b, (3, 1)), x)
        np.testing.assert_allclose(got[:, 0], M @ x + b, rtol=1e-14)
    assert S.nnz == 12
    big = sparse.random_array((100, 90), density=0.05, rng=np.random.default_rng(4), format="csr")
    g = GraphBuilder()
    t = g.linear(g.input((90,)), big, None, (100,))
    first, second = g.build(t), g.build(t)
    big.data[:] = 0.0  # still writable, and a copy was taken
    z = rng.normal(size=90)
    assert first(z).any()
    assert (first(z) == second(z)).all()


CONV = st.tuples(
    st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2)
)


@settings(max_examples=40, deadline=None)
@given(
    axes=st.lists(CONV, min_size=1, max_size=2),
    groups=st.sampled_from([1, 2]),
    batch=st.sampled_from([1, 2]),
    seed=SEED,
)
def test_conv_equals_plain_loops_and_conv_transpose_is_its_adjoint(axes, groups, batch, seed):
    rng = np.random.default_rng(seed)
    strides, dilations, _, kernel, pads, extra = (list(v) for v in zip(*axes, strict=True))
    ends = [min(p, e) for p, e in zip(pads, extra, strict=True)]
    # sizes for which no data is left over at the end: then the adjoint needs no output padding
    size = [
        max(d * (k - 1) + 1 + s * e - p - q, 1)
        for d, k, s, e, p, q in zip(dilations, kernel, strides, extra, pads, ends, strict=True)
    ]
    room = [n + p + q - d * (k - 1) - 1 for n, p, q, d, k in zip(size, pads, ends, dilations, kernel, strict=True)]
    rest = [r % s for r, s in zip(room, strides, strict=True)]
    w = rng.normal(size=(2 * groups, 2, *kernel))
    b = rng.normal(size=2 * groups)
    x = rng.normal(size=(batch, 2 * groups, *size))
    g = GraphBuilder()
    window = Window(kernel, strides, [*pads, *ends], dilations)
    got = g.conv(g.input(x.shape), w, b, window, groups)
    expected = np.stack([slow_conv(s, w, b, strides, [*pads, *ends], dilations, groups) for s in x])
    y = value(g, got, x)
    np.testing.assert_allclose(y, expected, rtol=1e-11, atol=1e-12)

    # <conv x, z> = <x, conv^T z> for every z
    z = rng.normal(size=y.shape)
    back = GraphBuilder()
    c = rng.normal(size=2 * groups)
    t = back.conv_transpose(back.input(z.shape), w, c, window, groups, rest)
    assert t.shape == x.shape
    pulled = value(back, t, z) - c.reshape(-1, *[1] * len(kernel))
    plain = y - b.reshape(-1, *[1] * len(kernel))
    np.testing.assert_allclose((plain * z).sum(), (x * pulled).sum(), rtol=1e-10, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(
    axes=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.integers(3, 6)),
        min_size=1,
        max_size=2,
    ),
    include=st.booleans(),
    seed=SEED,
)
def test_pools_equal_plain_loops(axes, include, seed):
    rng = np.random.default_rng(seed)
    kernel, strides, dilations, pads, size = (list(v) for v in zip(*axes, strict=True))
    pads = [p if k > 1 else 0 for p, k in zip(pads, kernel, strict=True)]
    size = [max(n, d * (k - 1) + 1) for n, d, k in zip(size, dilations, kernel, strict=True)]
    both = [*pads, *pads]
    out = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(size, pads, dilations, kernel, strides, strict=True)
    ]
    x = rng.normal(size=(1, 2, *size))
    mean, top = np.zeros((1, 2, *out)), np.zeros((1, 2, *out))
    for channel in range(2):
        for at, inside in windows(x[0], kernel, strides, both, dilations, out):
            entries = [x[(0, channel, *where)] for _, where in inside]
            mean[(0, channel, *at)] = sum(entries) / (np.prod(kernel) if include else len(entries))
            top[(0, channel, *at)] = max(entries)
    g = GraphBuilder()
    t = g.input(x.shape)
    np.testing.assert_allclose(
        value(g, g.average_pool(t, Window(kernel, strides, both, dilations), include), x), mean, rtol=1e-12
    )
    g = GraphBuilder()
    t = g.input(x.shape)
    np.testing.assert_allclose(
        value(g, g.max_pool(t, Window(kernel, strides, both, dilations)), x), top, rtol=1e-12, atol=1e-12
    )


def test_ceil_mode_admits_a_last_window_but_none_that_starts_in_the_end_padding():
    g = GraphBuilder()
    t = g.input((1, 1, 4))
    assert g.max_pool(t, Window([3], [2], [0, 0], [1])).shape == (1, 1, 1)
    wide = g.max_pool(t, Window([3], [2], [0, 0], [1], ceil_mode=True))
    assert wide.shape == (1, 1, 2)
    assert value(g, wide, [4, 1, 2, 3]).ravel().tolist() == [4, 3]
    # windows would start at -1, 2 and 5; the input ends at 3
    assert g.max_pool(t, Window([2], [3], [1, 1], [1], ceil_mode=True)).shape == (1, 1, 2)
    mean = g.average_pool(t, Window([3], [2], [0, 0], [1], ceil_mode=True), count_include_pad=True)
    np.testing.assert_allclose(value(g, mean, [4, 1, 2, 3]).ravel(), [7 / 3, 2.5])


def test_batch_norm_and_reductions():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1, 3, 2, 2))
    s, b, m = rng.normal(size=(3, 3))
    v = rng.uniform(0.5, 2, size=3)
    g = GraphBuilder()
    t = g.input(x.shape)
    along = (1, 3, 1, 1)
    expected = (x - m.reshape(along)) / np.sqrt(v.reshape(along) + 1e-3) * s.reshape(along) + b.reshape(along)
    np.testing.assert_allclose(value(g, g.batch_norm(t, s, b, m, v, 1e-3), x), expected, rtol=1e-12)
    np.testing.assert_allclose(
        value(g, g.reduce_sum(t, [1, -1], True), x), x.sum(axis=(1, 3), keepdims=True), rtol=1e-12
    )
    np.testing.assert_allclose(value(g, g.reduce_mean(t, None, False), x), x.mean(), rtol=1e-12)
    with pytest.raises(InputError, match="positive"):
        g.batch_norm(t, s, b, m, -v, 1e-3)


# -- nonlinear operations ------------------------------------------------------------------------------------


def test_activate_takes_one_kind_or_an_array_of_kinds():
    g = GraphBuilder()
    t = g.input((1, 2, 2))
    each = np.array([[leaky_relu(0.5)], [leaky_relu(-1.0)]], dtype=object)
    assert value(g, g.activate(t, each), [-2, 2, -3, 3]).ravel().tolist() == [-1, 2, 3, 3]
    assert value(g, g.activate(t, [relu(), absolute()]), [-2, 2, -3, -3]).ravel().tolist() == [0, 2, 0, 3]
    with pytest.raises(InputError, match="broadcast"):
        g.activate(t, [relu(), relu(), relu()])


def test_a_straight_activation_makes_no_units():
    g = GraphBuilder()
    t = g.input((3,))
    bent_nowhere = Activation((0.0, 1.0), (2.0, 2.0, 2.0), (1.0, 1.0, 1.0))
    net = g.build(g.activate(g.activate(t, bent_nowhere), identity()))
    assert not net.hidden
    assert net([1.0, -1.0, 0.0]).tolist() == [3, -1, 1]


@settings(max_examples=40, deadline=None)
@given(seed=SEED, constant=st.sampled_from(["none", "left", "right", "both"]))
def test_maximum_and_minimum_broadcast_like_numpy(seed, constant):
    rng = np.random.default_rng(seed)
    x, c = rng.normal(size=(2, 3)), rng.integers(-1, 2, size=(2, 1)).astype(float)
    for name, reference in (("maximum", np.maximum), ("minimum", np.minimum)):
        g = GraphBuilder()
        t = g.input(x.shape)
        double = g.scale(g.apply_move(t, lambda a: a[:, ::-1]), 2.0)
        flipped = 2 * x[:, ::-1]
        a, b, left, right = {
            "none": (t, double, x, flipped),
            "left": (c, t, c, x),
            "right": (t, c[0], x, c[0]),
            "both": (c, x, c, x),
        }[constant]
        got = getattr(g, name)(a, b)
        np.testing.assert_allclose(value(g, got, x), reference(left, right), rtol=1e-13, atol=1e-13)
        if constant == "right":
            assert g.build(got).n_units == x.size


def test_max_pool_uses_a_balanced_tree_and_no_unit_for_single_entries():
    g = GraphBuilder()
    t = g.input((1, 1, 9, 9))
    net = g.build(g.max_pool(t, Window([3, 3], [3, 3], [0, 0, 0, 0], [1, 1])))
    assert len(net.hidden) == 4  # 9 entries: ceil(log2 9)
    relus = sum(int((layer.units.pieces > 1).sum()) for layer in net.hidden)
    assert relus == 9 * 8
    assert g.build(g.max_pool(t, Window([1, 1], [2, 2], [0, 0, 0, 0], [1, 1]))).n_units == 0
    # in a corner window that holds one pixel and three pads, the pad never wins
    padded = g.max_pool(t, Window([2, 2], [9, 9], [1, 1, 0, 0], [1, 1]))
    assert value(g, padded, -np.arange(1.0, 82.0))[0, 0, 0, 0] == -1.0


# -- layering ------------------------------------------------------------------------------------------------


def residual_chain(depth, width=6, seed=0, normalise=True):
    """x_{k+1} = x_k + A relu(n x_k + c): a pre-activation residual network."""
    rng = np.random.default_rng(seed)
    g = GraphBuilder()
    x = g.input((1, width))
    first = rng.normal(size=(width, width))
    h, steps = g.matmul(x, first), []
    for _ in range(depth):
        n, c, A = rng.normal(size=width), rng.normal(size=width), rng.normal(size=(width, width)) / width
        h = g.add(h, g.matmul(g.activate(g.add(g.scale(h, n), c), relu()), A))
        steps.append((n, c, A))

    def reference(v):
        v = v @ first
        for n, c, A in steps:
            v = v + np.maximum(n * v + c, 0) @ A
        return v

    return g.build(h), reference


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_residual_networks_become_layered_ones(depth):
    net, reference = residual_chain(depth)
    X = np.random.default_rng(5).normal(size=(50, 6))
    np.testing.assert_allclose(net(X), reference(X), rtol=1e-11, atol=1e-11)
    assert len(net.hidden) == depth


def test_the_weights_of_a_residual_chain_grow_linearly():
    small, large = residual_chain(10)[0], residual_chain(20)[0]
    assert max(large.widths) <= 12  # the units of one step and the carried state, not all branches so far
    assert large.n_parameters < 2.2 * small.n_parameters


def test_only_what_is_read_later_is_carried():
    g = GraphBuilder()
    x = g.input((4,))
    h = g.activate(g.activate(x, relu()), clip(0.0, 1.0))
    net = g.build(g.concat([h, g.move(x, [2])], axis=0))
    assert net.widths == (4, 5, 5, 5)
    assert net([0.5, -1.0, -3.0, 2.0]).tolist() == [0.5, 0, 0, 1, -3]
    assert any("2 identity units" in note for note in net.notes)


def test_units_that_the_output_never_reads_are_dropped():
    g = GraphBuilder()
    x = g.input((3,))
    h = g.activate(x, relu())
    g.activate(h, absolute())  # a whole branch that leads nowhere
    net = g.build(g.move(g.activate(g.move(h, [0, 1]), leaky_relu(0.1)), [1]))
    assert net.widths == (3, 1, 1, 1)
    assert any("6 units that the output never reads" in note for note in net.notes)
    assert net([9.0, 2.0, 9.0]).tolist() == [2.0]


def test_adjacent_affine_maps_fold_but_low_rank_products_stay_factored():
    rng = np.random.default_rng(6)
    g = GraphBuilder()
    x = g.input((1, 400))
    down, up = rng.normal(size=(400, 2)), rng.normal(size=(2, 400))
    net = g.build(g.matmul(g.matmul(x, down), up))
    assert net.widths == (400, 2, 400)
    X = rng.normal(size=(3, 400))
    np.testing.assert_allclose(net(X), X @ down @ up, rtol=1e-10, atol=1e-10)
    g = GraphBuilder()
    t = g.input((1, 30))
    for _ in range(5):
        t = g.add(g.matmul(t, rng.normal(size=(30, 30))), 1.0)
    assert len(g.build(t).layers) == 1


def test_outputs_that_ignore_the_input_or_copy_it():
    g = GraphBuilder()
    x = g.input((2,))
    assert g.build(g.scale(x, 0.0))([1.0, 2.0]).tolist() == [0, 0]
    assert g.build(np.array([3.0]))([1.0, 2.0]).tolist() == [3]
    assert g.build(x)([1.0, 2.0]).tolist() == [1, 2]
    assert g.build(g.activate(g.add(g.scale(x, 0.0), 5.0), relu())).n_units == 0


def test_names_shapes_and_notes_reach_the_network():
    g = GraphBuilder()
    net = g.build(g.input((1, 2, 3)), name="n", input_shape=(2, 3), output_shape=(3, 2), notes=["a note"])
    assert (net.name, net.input_shape, net.output_shape, net.notes) == ("n", (2, 3), (3, 2), ("a note",))


@settings(max_examples=60, deadline=None)
@given(
    seed=SEED,
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12),
)
def test_random_graphs_equal_numpy(seed, steps):
    rng = np.random.default_rng(seed)
    d = 3
    X = rng.normal(size=(20, d))
    g = GraphBuilder()
    tensors, values = [g.input((1, d))], [X]
    for op, i, j in steps:
        a, b, u, v = (
            tensors[i % len(tensors)],
            tensors[j % len(tensors)],
            values[i % len(values)],
            values[j % len(values)],
        )
        W, c = rng.normal(size=(d, d)), rng.normal(size=d)
        made = [
            lambda: (g.activate(a, relu()), np.maximum(u, 0)),
            lambda: (g.add(g.matmul(a, W), c), u @ W + c),
            lambda: (g.add(a, b), u + v),
            lambda: (g.subtract(a, b), u - v),
            lambda: (g.maximum(a, b), np.maximum(u, v)),
            lambda: (g.minimum(a, b), np.minimum(u, v)),
            lambda: (g.scale(a, c), u * c),
            lambda: (g.activate(a, clip(-1.0, 0.5)), np.clip(u, -1, 0.5)),
            lambda: (
                g.matmul(g.concat([a, b], 1), np.vstack([W, W.T])),
                np.hstack([u, v]) @ np.vstack([W, W.T]),
            ),
            lambda: (
                g.concat([g.move(a, [[2]]), g.move(b, [[0, 1]])], 1),
                np.column_stack([u[:, 2], v[:, :2]]),
            ),
        ][op]()
        tensors.append(made[0])
        values.append(made[1])
    got = g.build(tensors[-1])(X)
    scale = 1 + max(np.abs(v).max() for v in values)
    np.testing.assert_allclose(got, values[-1], rtol=1e-10, atol=1e-11 * scale)


# -- limits and misuse ---------------------------------------------------------------------------------------


def test_a_convolution_of_a_large_image_is_refused_before_it_is_built():
    g = GraphBuilder()
    x = g.input((1, 64, 224, 224))
    start = time.process_time()
    with pytest.raises(InputLimitError, match="unrolled weights"):
        g.conv(x, np.ones((64, 64, 3, 3)), None, Window([3, 3], [1, 1], [1, 1, 1, 1], [1, 1]))
    with pytest.raises(InputLimitError):
        g.conv(x, np.ones((1, 64, 1, 1)), None, Window([1, 1], [1, 1], [2**30] * 4, [1, 1]))
    with pytest.raises(InputLimitError):
        g.matmul(x, np.ones((224, 224)))
    assert time.process_time() - start < 10.0


def test_live_expressions_count_together():
    g = GraphBuilder(Limits(weights=1000))
    x = g.input((1, 20))
    held = [g.matmul(x, np.ones((20, 20)))]
    held.append(g.add(held[0], 1.0))  # shares the matrix: not counted twice
    held.append(g.matmul(x, np.ones((20, 20))))
    with pytest.raises(InputLimitError, match="weights"):
        held.append(g.matmul(x, np.ones((20, 20))))
    del held
    assert g.matmul(x, np.ones((20, 20))).shape == (1, 20)


def test_the_finished_network_is_counted_with_what_it_carries():
    g = GraphBuilder(Limits(weights=300))
    x = g.input((20,))
    t = g.move(x, [0])
    for _ in range(20):
        t = g.activate(g.scale(t, 0.5), relu())
    with pytest.raises(InputLimitError, match="21 layers"):
        g.build(g.concat([t, x], axis=0))
    with pytest.raises(InputLimitError, match="layers"):
        g2 = GraphBuilder(Limits(layers=2))
        y = g2.activate(g2.activate(g2.input((1,)), relu()), absolute())
        g2.build(g2.activate(g2.add(y, -1.0), absolute()))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda g, x: g.input((3,)), "one input"),
        (lambda g, x: g.add(x, np.ones(4)), "broadcast"),
        (lambda g, x: g.matmul(x, np.ones((4, 2))), "does not fit"),
        (lambda g, x: g.linear(x, np.ones((2, 5)), None, (2,)), "needs a matrix"),
        (lambda g, x: g.reshape(x, (5,)), "reshape"),
        (lambda g, x: g.reduce_sum(x, [3]), "axes"),
        (lambda g, x: g.conv(x, np.ones((1, 1, 3)), None, Window([3], [1], [0, 0], [1])), "convolution"),
        (lambda g, x: g.max_pool(g.reshape(x, (1, 1, 3)), Window([5], [1], [0, 0], [1])), "does not fit"),
        (lambda g, x: g.max_pool(g.reshape(x, (1, 1, 3)), Window([1], [1], [1, 0], [1])), "padding"),
        (lambda g, x: g.max_pool(g.reshape(x, (1, 1, 3)), Window([1], [0], [0, 0], [1])), "strides"),
        (lambda g, x: g.build(np.zeros((0,))), "at least one entry"),
        (lambda g, x: g.build(g.scale(x, np.inf)), "finite"),
    ],
)
def test_misuse_is_one_clear_error(wrong, message):
    g = GraphBuilder()
    x = g.input((1, 3))
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message) as caught:
        wrong(g, x)
    assert "\n" not in str(caught.value)


def test_a_builder_without_input_cannot_build():
    with pytest.raises(InputError, match="input"):
        GraphBuilder().build(np.ones(2))
    with pytest.raises(InputError, match="at least one entry"):
        GraphBuilder().input((1, 0))
