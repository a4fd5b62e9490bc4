"""From an index in a pattern back to the node or module of the model that was loaded, its channel, row and column."""

from __future__ import annotations

import json

import numpy as np
import pytest

import reluscope as rs
from reluscope.errors import InputError
from reluscope.network import Network, UnitOrigin

onnx = pytest.importorskip("onnx")
helper = onnx.helper


def model(path):
    """Conv, Relu, MaxPool, a skip around a Gemm, Relu without a name: every kind of place."""
    rng = np.random.default_rng(0)
    arrays = {
        "K": rng.normal(size=(3, 1, 3, 3)),
        "k": rng.normal(size=3),
        "shape": np.array([1, 27], np.int64),
        "W": rng.normal(size=(27, 27)),
        "V": rng.normal(size=(27, 4)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "K", "k"], ["c"], name="stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="stem/relu"),
        helper.make_node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("MatMul", ["f", "W"], ["m"], name="dense"),
        helper.make_node("Relu", ["m"], ["n"]),
        helper.make_node("Add", ["n", "f"], ["s"], name="skip"),
        helper.make_node("MatMul", ["s", "V"], ["y"], name="head"),
    ]
    kinds = {"shape": np.int64}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [1, 1, 6, 6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [1, 4])],
        [onnx.numpy_helper.from_array(np.asarray(a, kinds.get(k, np.float64)), k) for k, a in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return arrays


def test_each_unit_is_the_entry_it_says(tmp_path):
    arrays = model(tmp_path / "net.onnx")
    net = rs.load(tmp_path / "net.onnx")
    x = np.random.default_rng(1).normal(size=(6, 6))
    # The same network by hand: what the named entries are at x.
    padded = np.pad(x, 1)
    conv = np.array(
        [[[(padded[i : i + 3, j : j + 3] * K[0]).sum() for j in range(6)] for i in range(6)] for K in arrays["K"]]
    )
    relu = np.maximum(conv + arrays["k"][:, None, None], 0)
    pooled = relu.reshape(3, 3, 2, 3, 2).max((2, 4))
    values = {
        "stem/relu": relu,
        "n": np.maximum(pooled.ravel() @ arrays["W"], 0),
    }
    found = [net.origin(i) for i in range(net.n_units)]
    assert all(o is not None for o in found)
    z = np.concatenate([net.layers[k].units(h) for k, h in enumerate(net.preactivations(x.ravel())[:-1])])
    for name, wanted in values.items():
        mine = [(i, o) for i, o in enumerate(found) if o.name == name and o.operation == "Relu"]
        assert len(mine) == wanted.size
        assert all(abs(z[i] - wanted[o.index]) < 1e-12 for i, o in mine)
    carried = [(i, o) for i, o in enumerate(found) if o.operation == "carried" and o.name in values]
    assert all(abs(z[i] - values[o.name][o.index]) < 1e-12 for i, o in carried)
    pool = [o for o in found if o.operation == "MaxPool"]
    assert {o.name for o in pool} == {"pool"}
    assert len(pool) == 3 * 9 * 3  # three comparisons for each of 27 windows
    assert {o.index[0] for o in pool} == {0, 1, 2}
    assert net.unit_name(0) == "stem/relu[channel 0, row 0, column 0]"
    assert net.describe()[0]["from"] == "stem/relu"


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_files_keep_it(tmp_path, ending):
    if ending == "safetensors":
        pytest.importorskip("safetensors")
    model(tmp_path / "net.onnx")
    net = rs.load(tmp_path / "net.onnx")
    net.save(tmp_path / f"net.{ending}")
    again = rs.load(tmp_path / f"net.{ending}")
    assert [again.origin(i) for i in range(net.n_units)] == [net.origin(i) for i in range(net.n_units)]
    shifted = again.after(np.eye(36), np.ones(36)).then(np.ones((1, 4)))
    assert shifted.origin(5) == net.origin(5)
    schema = again.with_schema(outputs=["a", "b", "c", "d"])
    assert schema.origin(5) == net.origin(5)


def test_networks_side_by_side_and_rounded_keep_it(tmp_path):
    model(tmp_path / "net.onnx")
    net = rs.load(tmp_path / "net.onnx")
    plain = Network([(np.ones((2, 36)), None), (np.ones((1, 2)), None)])
    both = rs.stack({"g": plain, "f": net})
    part = {part.name: part for part in both.parts}
    inside = [o + i for o, units in zip(both.offsets, part["f"].units, strict=False) for i in units]
    assert len(inside) == net.n_units
    for mine, unit in enumerate(inside):
        old, new = net.origin(mine), both.origin(unit)
        assert (new.name, new.operation, new.index) == (f"f.{old.name}", old.operation, old.index)
    assert both.origin(1) == UnitOrigin("g.layer 0", "layer", (1,))
    assert both.origin(int(both.offsets[1])) == UnitOrigin("g.y", "carried", (0,))
    pair = rs.parallel([net, net])
    width = net.hidden[0].width
    assert [pair.origin(i).name for i in (0, width)] == ["0.stem/relu", "1.stem/relu"]
    alone = rs.stack([plain, net])
    assert [alone.origin(i).name for i in (0, 2)] == ["0.layer 0", "stem/relu"]
    assert (net - net).origin(0).name == "0.stem/relu"
    assert rs.stack([plain, plain]).origin(0) is None
    assert rs.quantised(net).origin(5) == net.origin(5)
    both.save(tmp_path / "both.npz")
    assert rs.load(tmp_path / "both.npz").origin(inside[5]) == both.origin(inside[5])


def test_a_network_of_arrays_has_none():
    net = Network([(np.eye(3), None), (np.eye(3), None), (np.ones((1, 3)), None)])
    assert net.origin(4) is None
    assert net.unit_name(4) == "unit 1 of hidden layer 1"
    assert "from" not in net.describe()[0]
    with pytest.raises(InputError, match="unit"):
        net.origin(6)


@pytest.mark.parametrize(
    "damage",
    [
        lambda header, arrays: header.__setitem__("origins", [None]),
        lambda header, arrays: header["origins"].__setitem__(0, [["a", "b", [0]]]),
        lambda header, arrays: header["origins"].__setitem__(0, [["a", 3, [2]]]),
        lambda header, arrays: header["origins"].__setitem__(0, [["a", "b", [2]]]),
        lambda header, arrays: header["origins"].__setitem__(0, "name"),
        lambda header, arrays: arrays.__setitem__("o0.place", arrays["o0.place"] + 10**6),
        lambda header, arrays: arrays.__setitem__("o0.place", arrays["o0.place"] - 10**6),
        lambda header, arrays: arrays.__setitem__("o0.source", arrays["o0.source"][:-1]),
        lambda header, arrays: arrays.__setitem__("o0.source", arrays["o0.source"] + 1),
        lambda header, arrays: arrays.pop("o0.source"),
    ],
)
def test_damaged_origins_are_refused(tmp_path, damage):
    model(tmp_path / "net.onnx")
    rs.load(tmp_path / "net.onnx").save(tmp_path / "net.npz")
    arrays = dict(np.load(tmp_path / "net.npz"))
    header = json.loads(arrays["reluscope"].tobytes())
    damage(header, arrays)
    arrays["reluscope"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(InputError, match=r"bad\.npz"):
        rs.load(tmp_path / "bad.npz")


def test_a_state_dict_has_the_names_of_its_layers(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"body.0.weight": rng.normal(size=(4, 3)), "body.0.bias": np.zeros(4), "body.2.weight": np.ones((1, 4))}
    np.savez(tmp_path / "state.npz", **arrays)
    net = rs.load(tmp_path / "state.npz")
    assert net.unit_name(2) == "body.0[2]"
    assert net.origin(2).operation == "row"


def test_torch_modules_have_their_names():
    torch = pytest.importorskip("torch")

    class Small(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = torch.nn.Conv2d(1, 2, 3), torch.nn.Linear(32, 5)
            self.act, self.out = torch.nn.ReLU(), torch.nn.Linear(5, 2)

        def forward(self, x):
            return self.out(torch.relu(self.fc(self.act(self.conv(x)).flatten(1))))

    net = rs.load(Small(), input_shape=(1, 6, 6))
    assert net.origin(17) == UnitOrigin("act", "ReLU", (1, 0, 1))
    assert net.origin(33) == UnitOrigin("relu(fc)", "relu", (1,))
    assert net.unit_name(17) == "act[channel 1, row 0, column 1]"
