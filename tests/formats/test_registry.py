"""Operations and formats that users register, for torch and ONNX alike: exact, approximated, refused."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

import reluscope as rs
from reluscope.activations import piecewise
from reluscope.errors import InputError, ReluscopeWarning, UnsupportedError
from reluscope.formats import _rules

onnx = pytest.importorskip("onnx")
helper = onnx.helper
RNG = np.random.default_rng(0)
W1, B1, W2 = RNG.normal(size=(6, 4)), RNG.normal(size=6), RNG.normal(size=(2, 6))


@pytest.fixture(autouse=True)
def as_before():
    """What a test registers is gone after it."""
    tables = (_rules.TORCH, _rules.ONNX, _rules.FORMATS)
    kept = [dict(t) for t in tables]
    for table in tables:
        table.clear()
    yield
    for table, was in zip(tables, kept, strict=True):
        table.clear()
        table.update(was)


def hard_swish(segments):
    """Hardswish by segments between -3 and 3, and by how much it differs: a parabola between two points of a chord."""
    t = np.linspace(-3, 3, segments + 1)
    slopes = np.diff(t * (t + 3) / 6) / np.diff(t)
    return piecewise(t, [0.0, *slopes, 1.0], at_zero=float(np.interp(0.0, t, t * (t + 3) / 6))), (
        6 / segments
    ) ** 2 / 24


def onnx_model(path, middle, arrays=None, domains=(), opset=17):
    """A matrix, some nodes from `h` to `z`, and a matrix."""
    stored = {"W1": W1.T, "B1": B1, "W2": W2.T} | (arrays or {})
    nodes = [
        helper.make_node("MatMul", ["x", "W1"], ["m"]),
        helper.make_node("Add", ["m", "B1"], ["h"]),
        *middle,
        helper.make_node("MatMul", ["z", "W2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [
            onnx.numpy_helper.from_array(np.asarray(a, None if np.asarray(a).dtype.kind == "i" else np.float32), k)
            for k, a in stored.items()
        ],
    )
    sets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), path)
    return path


def true_swish(x):
    h = x @ np.float32(W1.T) + np.float32(B1)
    return (h * np.clip(h + 3, 0, 6) / 6) @ np.float32(W2.T)


X = RNG.normal(size=(200, 4)) * 3


def test_an_approximation_is_declared_bounded_and_said(tmp_path):
    path = onnx_model(tmp_path / "swish.onnx", [helper.make_node("HardSwish", ["h"], ["z"], name="act")])
    with pytest.raises(UnsupportedError, match=r"not piecewise affine; rs\.formats\.register_operation"):
        rs.load(path)
    act, error = hard_swish(16)
    rs.formats.register_operation(act, onnx="HardSwish", torch=["Hardswish", "hardswish"], error=error)
    with pytest.warns(ReluscopeWarning, match="HardSwish is approximated.*for any input"):
        net = rs.load(path)
    off = np.abs(net(X) - true_swish(X)).max(0)
    assert (off <= net.approximation + 1e-5).all()
    assert (off > 0.05 * net.approximation).all()  # the bound is no giant
    assert np.allclose(net.approximation, error * np.abs(np.float32(W2)).sum(1), rtol=1e-6)
    assert any("HardSwish is approximated" in note for note in net.notes)
    assert net.unit_name(3) == "act[3]"
    for ending in ("npz", "safetensors"):
        net.save(tmp_path / f"net.{ending}")
        assert np.array_equal(rs.load(tmp_path / f"net.{ending}").approximation, net.approximation)
    tripled = net.then([[3.0, -1.0]]).approximation
    assert np.allclose(tripled, [3 * net.approximation[0] + net.approximation[1]])
    assert np.array_equal(net.select_outputs([1]).approximation, net.approximation[1:])
    assert np.array_equal(net.fix({0: 1.0}).approximation, net.approximation)


def test_the_bound_goes_through_the_algebra(tmp_path):
    path = onnx_model(tmp_path / "swish.onnx", [helper.make_node("HardSwish", ["h"], ["z"])])
    act, error = hard_swish(8)
    rs.formats.register_operation(act, onnx="HardSwish", error=error)
    with pytest.warns(ReluscopeWarning):
        net = rs.load(path)
    plain = rs.Network([(RNG.normal(size=(5, 2)), None), (RNG.normal(size=(2, 5)), None)])
    other = rs.Network([(RNG.normal(size=(2, 4)), None)])
    assert (np.abs((plain @ net)(X) - plain(true_swish(X))).max(0) <= (plain @ net).approximation).all()
    assert np.array_equal((net - other).approximation, net.approximation * (1 + 1e-12))
    assert np.array_equal(rs.stack([net, other]).approximation, [*net.approximation, 0.0, 0.0])
    assert np.isinf(rs.quantised(net).approximation).all()
    assert (plain @ other).approximation is None


def test_an_error_that_is_too_small_is_refused(tmp_path):
    path = onnx_model(tmp_path / "swish.onnx", [helper.make_node("HardSwish", ["h"], ["z"])])
    act, error = hard_swish(16)
    for said in (0.0, 0.5 * error):
        rs.formats.register_operation(act, onnx="HardSwish", torch="Hardswish", error=said, replace=True)
        with pytest.raises(UnsupportedError, match="more than its error"):
            rs.load(path)
        torch = pytest.importorskip("torch")
        with pytest.raises(UnsupportedError, match="more than its error"):
            rs.load(torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Hardswish(), torch.nn.Linear(6, 2)))


def test_torch_modules_and_functions_by_the_same_rule():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2), torch.nn.Hardswish()

        def forward(self, x):
            return self.b(torch.nn.functional.hardswish(self.act(self.a(x))))

    module = Net().double()
    act, error = hard_swish(40)
    rs.formats.register_operation(act, torch=["Hardswish", "hardswish"], error=error)
    with pytest.warns(ReluscopeWarning, match="approximated"):
        net = rs.load(module)
    with torch.no_grad():
        off = np.abs(net(X) - module(torch.from_numpy(X)).numpy()).max(0)
    assert (off <= net.approximation).all() and (net.approximation < 0.1).all() and off.max() > 1e-5


def test_an_operation_in_place_is_seen_by_later_readers():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.act = torch.nn.Linear(4, 6), torch.nn.Hardswish(inplace=True)

        def forward(self, x):
            h = self.a(x)
            return self.act(h) + 2 * h  # torch changes h

    module = Net().double()
    act, error = hard_swish(60)
    rs.formats.register_operation(act, torch="Hardswish", error=error)
    with pytest.warns(ReluscopeWarning):
        net = rs.load(module)
    with torch.no_grad():
        off = np.abs(net(X) - module(torch.from_numpy(X)).numpy()).max(0)
    assert (off <= net.approximation).all() and (net.approximation <= 3.01 * error).all()


def maxout(graph, x, pieces=2, **_):
    """The largest of each `pieces` neighbours."""
    n = x.shape[-1] // pieces
    return graph.reduce_max(graph.reshape(x, (*x.shape[:-1], n, pieces)), [-1])


def test_an_operation_of_ones_own_for_torch_and_onnx(tmp_path):
    torch = pytest.importorskip("torch")

    class Maxout(torch.nn.Module):
        def __init__(self, pieces):
            super().__init__()
            self.pieces = pieces

        def forward(self, x):
            if x.sum() > 1e9:  # cannot be traced: the rule stands for it
                return x
            return x.reshape(*x.shape[:-1], -1, self.pieces).max(-1).values

    module = torch.nn.Sequential(torch.nn.Linear(4, 6), Maxout(3), torch.nn.Linear(2, 2)).double()
    with pytest.raises(UnsupportedError):
        rs.load(module)
    rs.formats.register_operation(maxout, torch="Maxout", onnx="mine::Maxout")
    net = rs.load(module)
    with torch.no_grad():
        assert np.abs(net(X) - module(torch.from_numpy(X)).numpy()).max() < 1e-12
    assert net.approximation is None
    assert "Maxout by a rule that was registered as exact" in net.notes
    assert net.origin(0).operation == "Maxout"
    path = onnx_model(
        tmp_path / "own.onnx",
        [helper.make_node("Maxout", ["h"], ["z"], domain="mine", pieces=3)],
        {"W2": W2[:, :2].T},
        domains=["mine"],
    )
    net = rs.load(path)
    want = (X @ np.float32(W1.T) + np.float32(B1)).reshape(-1, 2, 3).max(-1) @ np.float32(W2[:, :2].T)
    assert np.abs(net(X) - want).max() < 1e-5
    assert any("taken on trust" in note for note in net.notes)


def test_a_rule_that_is_wrong_is_found_out(tmp_path):
    rs.formats.register_operation(lambda graph, x, **_: graph.scale(x, 0.5), onnx="HardSwish", error=0.01)
    path = onnx_model(tmp_path / "swish.onnx", [helper.make_node("HardSwish", ["h"], ["z"])])
    with pytest.warns(ReluscopeWarning), pytest.raises(UnsupportedError, match="differs from the model itself"):
        rs.load(path)
    rs.formats.register_operation(lambda graph, x, **_: "text", onnx="HardSwish", replace=True)
    with pytest.raises(UnsupportedError, match="returned"):
        rs.load(path)
    rs.formats.register_operation(lambda graph, x: 1 / 0, onnx="HardSwish", replace=True)
    with pytest.raises(UnsupportedError, match="fails with ZeroDivisionError"):
        rs.load(path)


WHERE = {
    "leaky": (lambda t, x: t.where(x > 0, x, 0.1 * x), True),
    "clip": (lambda t, x: t.where(x >= 1, t.ones_like(x) if False else 1.0, x), True),
    "absolute": (lambda t, x: t.where(x < 0, -x, x), True),
    "masked": (lambda t, x: x * (x > 0), True),
    "filled": (lambda t, x: x.masked_fill(x < 0, 0.0), True),
    "between": (lambda t, x: t.where(x[:, :3] > x[:, 3:], x[:, :3], x[:, 3:]), True),
    "jump": (lambda t, x: t.where(x > 0, x + 1, x), False),
    "step": (lambda t, x: t.where(x > 0, 1.0, 0.0), False),
    "elsewhere": (lambda t, x: t.where(x > 1, x, 0.1 * x), False),
    "another": (lambda t, x: t.where(x[:, :3] > 0, x[:, 3:], 0.0), False),
}


@pytest.mark.parametrize("name", WHERE)
def test_where_is_known_where_it_does_not_jump(name):
    torch = pytest.importorskip("torch")
    choose, continuous = WHERE[name]

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 6)

        def forward(self, x):
            return choose(torch, self.a(x))

    module = Net().double()
    if not continuous:
        with pytest.raises(UnsupportedError, match="jumps"):
            rs.load(module)
        return
    net = rs.load(module)
    with torch.no_grad():
        assert np.abs(net(X) - module(torch.from_numpy(X)).numpy()).max() < 1e-12


MAXIMA = {
    "values": lambda t, x: x.reshape(-1, 3, 2).max(-1).values,
    "first": lambda t, x: t.max(x.reshape(-1, 3, 2), 1)[0],
    "kept": lambda t, x: x.reshape(-1, 3, 2).max(dim=1, keepdim=True)[0].flatten(1),
    "amax": lambda t, x: t.amax(x.reshape(-1, 2, 3), (1, 2)).unsqueeze(1),
    "amin": lambda t, x: x.reshape(-1, 2, 3).amin(dim=2),
    "min": lambda t, x: x.min(1, keepdim=True).values,
}


@pytest.mark.parametrize("name", MAXIMA)
def test_maxima_over_an_axis(name):
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 6)

        def forward(self, x):
            return MAXIMA[name](torch, self.a(x))

    module = Net().double()
    net = rs.load(module)
    with torch.no_grad():
        assert np.abs(net(X) - module(torch.from_numpy(X)).numpy()).max() < 1e-12


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_where_and_maxima_in_onnx(tmp_path, opset):
    pytest.importorskip("onnxruntime")
    axes = {"axes": [2], "keepdims": 0} if opset < 18 else {"keepdims": 0}
    more = [] if opset < 18 else ["axes"]
    arrays = {"zero": np.float32(0), "tenth": np.float32(0.1), "shape": np.array([1, 3, 2]), "W2": W2[:, :3].T}
    arrays |= {} if opset < 18 else {"axes": np.array([2])}
    middle = [
        helper.make_node("LessOrEqual", ["h", "zero"], ["c"]),
        helper.make_node("Not", ["c"], ["d"]),
        helper.make_node("Mul", ["h", "tenth"], ["s"]),
        helper.make_node("Where", ["d", "h", "s"], ["w"]),
        helper.make_node("Reshape", ["w", "shape"], ["r"]),
        helper.make_node("ReduceMax", ["r", *more], ["z"], **axes),
    ]
    path = onnx_model(tmp_path / "net.onnx", middle, arrays, opset=opset)
    net = rs.load(path)
    h = X @ np.float32(W1.T) + np.float32(B1)
    want = np.where(h > 0, h, np.float32(0.1) * h).reshape(-1, 3, 2).max(-1) @ np.float32(W2[:, :3].T)
    assert np.abs(net(X) - want).max() < 1e-9
    middle[3] = helper.make_node("Where", ["d", "h", "zero"], ["w"])
    onnx_model(path, middle, arrays, opset=opset)
    want = np.maximum(h, 0).reshape(-1, 3, 2).max(-1) @ np.float32(W2[:, :3].T)
    assert np.abs(rs.load(path)(X) - want).max() < 1e-9
    middle[3] = helper.make_node("Where", ["d", "tenth", "zero"], ["w"])
    onnx_model(path, middle, arrays, opset=opset)
    with pytest.raises(UnsupportedError, match="jumps"):
        rs.load(path)
    middle[3] = helper.make_node("Cast", ["d"], ["w"], to=1)
    onnx_model(path, middle, arrays, opset=opset)
    with pytest.raises((UnsupportedError, InputError)):
        rs.load(path)


def test_formats_are_added_by_ending(tmp_path):
    def rows(path, *, limits, activation="relu"):
        table = np.loadtxt(path, ndmin=2)
        return rs.Network([(table[:, :-1], table[:, -1]), (np.ones((1, len(table))), None)], activation)

    np.savetxt(tmp_path / "net.rows", np.column_stack([W1, B1]))
    with pytest.raises(InputError, match=r"unknown ending.*rs.formats.register_format"):
        rs.load(tmp_path / "net.rows")
    rs.formats.register_format(".rows", rows)
    net = rs.load(tmp_path / "net.rows")
    assert np.allclose(net(X), np.maximum(X @ W1.T + B1, 0).sum(1, keepdims=True))
    assert net.file_sha256 is not None
    assert rs.load(tmp_path / "net.rows", activation="abs").layers[0].units.kinds[0].name == "abs"
    with pytest.raises(InputError, match=r"has no option 'order'; known options are activation"):
        rs.load(tmp_path / "net.rows", order=["a"])
    with gzip.open(tmp_path / "net.rows.gz", "wb") as file:
        file.write((tmp_path / "net.rows").read_bytes())
    assert np.allclose(rs.load(tmp_path / "net.rows.gz")(X), net(X))
    rs.formats.register_format(".rows", lambda path, *, limits: [(W1, B1), (W2, None)], replace=True)
    assert rs.load(tmp_path / "net.rows").n_outputs == 2
    rs.formats.register_format(".rows", lambda path, *, limits: str(path), replace=True)
    with pytest.raises(InputError, match="not a network or a model"):
        rs.load(tmp_path / "net.rows")


def test_bad_registrations_are_named():
    act, _ = hard_swish(4)
    register, form = rs.formats.register_operation, rs.formats.register_format
    with pytest.raises(InputError, match="name an operation"):
        register(act)
    with pytest.raises(InputError, match="'Relu' has a rule already"):
        register(act, onnx="Relu")
    for ours in ("ReLU", "Conv2d", "relu", "view", "avg_pool2d"):
        with pytest.raises(InputError, match="has a rule already"):
            register(act, torch=ours)
    register(act, onnx="Softsign", error=1.0)
    with pytest.raises(InputError, match="replace=True"):
        register(act, onnx="Softsign")
    for wrong in (
        {"rule": 3, "onnx": "A"},
        {"rule": act, "onnx": 3},
        {"rule": act, "onnx": "A", "error": -1},
        {"rule": act, "onnx": "A", "replace": 1},
    ):
        with pytest.raises(InputError):
            register(**wrong)
    with pytest.raises(InputError, match="read already"):
        form(".onnx", print)
    for wrong in (("rows", print), (".a.b", print), (".rows", 3), (3, print)):
        with pytest.raises(InputError):
            form(*wrong)
    form(".rows", print)
    with pytest.raises(InputError, match="loader already"):
        form(".ROWS", print)
