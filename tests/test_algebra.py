"""Networks made from networks: values, regions, sparse layers, files, names."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import reluscope as rs
from nets import random_net
from reluscope import activations as ac
from reluscope.network import Part

SHAPES = [(3, 2), (3, 4, 2), (3, 5, 4, 2)]


def thin(seed=0, width=200, inputs=100):
    rng = np.random.default_rng(seed)
    W = sparse.random_array((width, inputs), density=0.02, rng=rng, format="csr")
    return rs.Network([(W, rng.normal(size=width)), (np.ones((1, width)), [0.0])])


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from(SHAPES), st.sampled_from([(3, 1), (3, 2, 3), (3, 3, 3, 3, 2)]))
def test_side_by_side_computes_both(seed, one, two):
    net, other = random_net(one, seed, ac.hardtanh()), random_net(two, seed + 1, ac.leaky_relu(0.1))
    both, apart = rs.stack([net, other]), rs.parallel([net, other])
    rng = np.random.default_rng(seed)
    X, Z = 3 * rng.normal(size=(2, 50, 3))
    np.testing.assert_allclose(both(X), np.concatenate([net(X), other(X)], axis=1), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(
        apart(np.concatenate([X, Z], axis=1)), np.concatenate([net(X), other(Z)], axis=1), rtol=1e-13, atol=1e-13
    )
    assert len(both.layers) == len(apart.layers) == max(len(net.layers), len(other.layers))


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from(SHAPES), st.sampled_from([(2, 2), (2, 3, 3, 2)]))
def test_composition_and_difference_are_what_they_say(seed, one, two):
    f, g, h = random_net(one, seed), random_net(two, seed + 1), random_net((3, 6, 2), seed + 2)
    X = 3 * np.random.default_rng(seed).normal(size=(50, 3))
    chain = g @ f
    np.testing.assert_allclose(chain(X), g(f(X)), rtol=1e-12, atol=1e-12)
    assert len(chain.hidden) == len(f.hidden) + len(g.hidden)
    np.testing.assert_allclose((f - h)(X), f(X) - h(X), rtol=1e-12, atol=1e-12)
    assert np.array_equal((f - f).layers[-1].bias, np.zeros(2))


def test_regions_of_a_joined_network_are_the_common_refinement():
    f, g = random_net((2, 5, 4, 2), 1), random_net((2, 6, 2), 2)
    both = rs.regions(rs.stack([f, g]), (-1, 1))
    X = np.random.default_rng(0).uniform(-1, 1, size=(4000, 2))
    seen = {f.pattern(x).tobytes() + g.pattern(x).tobytes() for x in X}
    assert len(both) >= len(seen) > 20
    parts = rs.regions(f, (-1, 1)), rs.regions(g, (-1, 1))
    assert max(map(len, parts)) <= len(both) <= len(parts[0]) * len(parts[1])
    own = {f.pattern(x).tobytes() + g.pattern(x).tobytes() for x in both.interior}
    assert len(own) == len(both) and seen <= own


def test_layers_stay_sparse():
    net, other = thin(), random_net((100, 3, 1), 0)
    both = rs.stack([net, other])
    assert sparse.issparse(both.layers[0].weight)
    X = np.random.default_rng(0).normal(size=(5, 100))
    np.testing.assert_allclose(both(X), np.concatenate([net(X), other(X)], axis=1), rtol=1e-12)
    eye = rs.Network([(sparse.eye_array(100, format="csr"), np.zeros(100))])
    assert sparse.issparse((net @ eye).layers[0].weight) and len((net @ eye).layers) == 2
    # Few units between two wide sparse layers: the product would be much fuller, so these units stay as a layer.
    group = sparse.csr_array(np.kron(np.eye(8), np.ones((1, 75))))
    wide = rs.Network([(sparse.csr_array(group.T), np.zeros(600)), (np.ones((1, 600)), [0.0])])
    narrow = rs.Network([(group, np.zeros(8))])
    chain = wide @ narrow
    assert len(chain.layers) == 3 and chain.layers[0].width == 8 and sparse.issparse(chain.layers[1].weight)
    x = np.linspace(-1, 2, 600)
    np.testing.assert_allclose(chain(x), wide(narrow(x)), rtol=1e-12)


@pytest.mark.parametrize("end", ["npz", "safetensors"])
def test_joined_networks_are_saved_with_their_parts(tmp_path, end):
    pytest.importorskip("safetensors")
    f, g = random_net((2, 5, 4, 2), 1), random_net((2, 6, 2), 2)
    for both in (rs.stack({"f": f, "g": g}), rs.parallel({"f": f, "g": g})):
        both.save(tmp_path / f"net.{end}")
        back = rs.load(tmp_path / f"net.{end}")
        assert back.parts == both.parts and [p.name for p in back.parts] == ["f", "g"]
        X = np.random.default_rng(0).normal(size=(9, both.n_inputs))
        assert np.array_equal(back(X), both(X))
    assert both.parts[1] == Part("g", range(2, 4), range(2, 4), (range(5, 11),))


def test_inputs_are_fixed_and_outputs_selected_by_index_and_name():
    schema = rs.Schema(["range", rs.Column("SEX", "category", levels=["f", "m"])], ["a", "b"], rule="smallest")
    net = random_net((3, 4, 2), 0).with_schema(schema)
    x = np.array([0.3, -0.7, 1.1])
    held = net.fix({"range": 0.3})
    np.testing.assert_allclose(held(x[1:]), net(x), rtol=1e-14)
    assert held.schema.names == ("SEX",) and held.schema.rule == "smallest"
    half = net.fix({1: -0.7})  # half of a category: its name is gone
    np.testing.assert_allclose(half([0.3, 1.1]), net(x), rtol=1e-14)
    assert half.schema.columns == () and half.schema.output_names == ("a", "b")
    assert np.array_equal(net.select_outputs(["b"])(x), net(x)[1:])
    assert np.array_equal(net.select_outputs([1, 0])(x), net(x)[::-1])
    assert net.select_outputs("b").schema.output_names == ("b",)
    assert np.array_equal(thin().select_outputs(0)(np.ones(100)), thin()(np.ones(100)))


def test_names_travel_where_they_make_sense():
    f = random_net((2, 3, 2), 0).with_schema(columns=["a", "b"])
    g = random_net((2, 3, 2), 1).with_schema(columns=["u", "v"], outputs=["p", "q"])
    assert (g @ f).schema.names == ("a", "b") and (g @ f).schema.output_names == ("p", "q")
    assert (f - g).schema.names == ("a", "b") and (f - g).schema.outputs == ()
    assert rs.stack([f, g]).schema.names == ("a", "b") and rs.parallel([f, g]).schema is None


def test_quantised_weights_lie_on_the_grid():
    net = rs.stack([random_net((2, 20, 3), 0), random_net((2, 30, 3), 1)])
    for a, b in zip(net.layers, rs.quantised(net, "int8").layers, strict=True):
        steps = b.dense() * 127 / np.abs(a.dense()).max()
        np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
        assert np.abs(a.dense() - b.dense()).max() <= np.abs(a.dense()).max() / 254 * (1 + 1e-9)
        assert np.array_equal(a.bias, b.bias)
    half = rs.quantised(net, "float16")
    assert all(np.array_equal(a.dense().astype(np.float16), a.dense()) for a in half.layers)
    assert sparse.issparse(rs.quantised(thin()).layers[0].weight)
    zero = rs.Network([([[0.0]], [1.0])])
    assert rs.quantised(zero)([3.0]) == [1.0]


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda f: rs.stack([f, 3]), "each of nets must be a Network"),
        (lambda f: rs.stack([f, random_net((2, 1), 0)]), "equally many inputs"),
        (lambda f: rs.stack(f), "a sequence of networks"),
        (lambda f: rs.stack([]), "at least one network"),
        (lambda f: rs.parallel({"argmax": f}), "names of networks"),
        (lambda f: rs.parallel({"a b": f}), "names of networks"),
        (lambda f: f @ f, "takes 3 inputs but other has 2 outputs"),
        (lambda f: f - random_net((3, 1), 0), "equally many outputs"),
        (lambda f: f.fix({0: 1.0, 1: 1.0, 2: 1.0}), "fixes all inputs"),
        (lambda f: f.fix({3: 1.0}), "an input"),
        (lambda f: f.fix({"a": 1.0}), "no input is called 'a'"),
        (lambda f: f.fix([1.0]), "a mapping"),
        (lambda f: f.select_outputs([2]), "an output"),
        (lambda f: f.select_outputs("a"), "no output is called 'a'"),
        (lambda f: f.select_outputs([]), "at least one output"),
        (lambda f: rs.quantised(f, "int4"), "kind must be"),
        (lambda f: rs.quantised(rs.Network([([[1e9]], [0.0])]), "float16"), "too large for half precision"),
        (lambda f: rs.Network(f.layers, parts=[Part("f", range(9), range(2), ())]), "does not fit the layers"),
    ],
)
def test_refusals(call, text):
    with pytest.raises(rs.InputError, match=text):
        call(random_net((3, 4, 2), 0))


def test_other_things_are_not_networks():
    with pytest.raises(TypeError):
        random_net((3, 4, 2), 0) - 1.0
    with pytest.raises(TypeError):
        random_net((3, 4, 2), 0) @ np.eye(3)
