"""Live torch modules and state-dict files, against torch itself in float64."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest

from reluscope.errors import InputError, InputLimitError, ReluscopeWarning, UnsupportedError
from reluscope.formats import load
from reluscope.limits import Limits

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional


def make(function):
    """A module with a few parameters whose forward is `function(self, x)`."""

    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(6, 6)
            self.b = nn.Linear(6, 6)
            self.conv = nn.Conv2d(2, 3, 3, padding=1)
            self.norm = nn.BatchNorm2d(2)
            self.w = nn.Parameter(torch.randn(6, 6))
            self.v = nn.Parameter(torch.randn(6))
            self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
            self.register_buffer("order", torch.tensor([5, 3, 1, 0]))

        def forward(self, x):
            return function(self, x)

    return Made()


def agree(module, shape=None, *, n=20, tolerance=1e-10, given=True) -> None:
    torch.manual_seed(0)
    for m in module.modules():  # weights and statistics away from their defaults
        for p in list(m.parameters(recurse=False)) + [b for b in m.buffers(recurse=False) if b.is_floating_point()]:
            with torch.no_grad():
                p.copy_(torch.rand_like(p) + 0.5 if p.ndim == 1 and "Norm" in type(m).__name__ else torch.randn_like(p))
    module = module.double()
    net = load(module, **({"input_shape": shape} if given else {}))
    module.eval()
    X = np.random.default_rng(1).normal(size=(n, *net.input_shape)) * 2
    with torch.no_grad():
        want = np.concatenate([np.ravel(module(torch.as_tensor(x[None])).numpy())[None] for x in X])
    got = net(X)
    scale = np.abs(want).max()
    assert scale > 0
    np.testing.assert_allclose(got, want, atol=tolerance * max(1.0, scale), rtol=0)


IMAGE = (2, 6, 8)
ACTIVATIONS = [
    nn.ReLU(), nn.LeakyReLU(0.3), nn.PReLU(), nn.PReLU(6), nn.ReLU6(), nn.Hardtanh(-0.5, 2.0), nn.Hardsigmoid(),
    nn.Threshold(0.25, 0.25), nn.RReLU(), nn.Softshrink(0.3), nn.Identity(), nn.Dropout(0.9), nn.ReLU(inplace=True),
]  # fmt: skip


@pytest.mark.parametrize("act", ACTIVATIONS, ids=repr)
def test_activation_modules(act) -> None:
    agree(nn.Sequential(nn.Linear(4, 6), act, nn.Linear(6, 3)), (4,))


SPATIAL = {
    "conv": nn.Conv2d(2, 3, 3),
    "conv with everything": nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(2, 1), dilation=2, groups=2),
    "conv same": nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)),
    "conv valid, no bias": nn.Conv2d(2, 3, 2, padding="valid", bias=False),
    "conv reflect": nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="reflect"),
    "conv circular": nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="circular"),
    "conv replicate": nn.Conv2d(2, 3, 3, padding=2, padding_mode="replicate"),
    "conv transpose": nn.ConvTranspose2d(2, 4, (3, 2), stride=2, padding=1, output_padding=1, groups=2, dilation=2),
    "batch norm": nn.BatchNorm2d(2),
    "batch norm plain": nn.BatchNorm2d(2, affine=False),
    "average pool": nn.AvgPool2d(3, stride=2, padding=1),
    "average pool uncounted": nn.AvgPool2d((2, 3), stride=(1, 2), padding=1, count_include_pad=False),
    "average pool ceil": nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True),
    "max pool": nn.MaxPool2d(2),
    "max pool padded": nn.MaxPool2d(3, stride=2, padding=1),
    "max pool dilated": nn.MaxPool2d(2, stride=1, dilation=(2, 3)),
    "max pool ceil": nn.MaxPool2d((4, 3), stride=(3, 2), ceil_mode=True),
    "adaptive average": nn.AdaptiveAvgPool2d((3, 4)),
    "adaptive average to one": nn.AdaptiveAvgPool2d(1),
    "adaptive average, one axis": nn.AdaptiveAvgPool2d((2, None)),
    "adaptive max": nn.AdaptiveMaxPool2d(2),
    "zero pad": nn.ZeroPad2d((1, 0, 2, 1)),
    "constant pad": nn.ConstantPad2d((0, 1, 1, 0), 3.5),
    "negative pad": nn.ConstantPad2d((-1, 2, 1, -2), 1.5),
    "reflection pad": nn.ReflectionPad2d((1, 2, 0, 3)),
    "replication pad": nn.ReplicationPad2d(2),
    "prelu per channel": nn.PReLU(2),
    "channel dropout": nn.Dropout2d(),
    "unflatten": nn.Sequential(nn.Flatten(2), nn.Unflatten(2, (8, 6)), nn.Conv2d(2, 2, 3)),
    "flatten middle": nn.Flatten(1, 2),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch on even kernels
@pytest.mark.parametrize("module", SPATIAL.values(), ids=SPATIAL.keys())
def test_spatial_modules(module) -> None:
    agree(nn.Sequential(module, nn.ReLU(), nn.Flatten()), IMAGE)


ONE_DIMENSION = {
    "conv": nn.Conv1d(2, 3, 3, stride=2, padding=1),
    "conv transpose": nn.ConvTranspose1d(2, 3, 4, stride=3, padding=1),
    "batch norm": nn.BatchNorm1d(2),
    "max pool": nn.MaxPool1d(3, stride=2, padding=1),
    "average pool": nn.AvgPool1d(3, stride=2),
    "adaptive": nn.AdaptiveAvgPool1d(3),
    "pad": nn.ConstantPad1d(2, -1.0),
}


@pytest.mark.parametrize("module", ONE_DIMENSION.values(), ids=ONE_DIMENSION.keys())
def test_one_dimensional_modules(module) -> None:
    agree(nn.Sequential(module, nn.ReLU()), (2, 9))


def _stacked(self, x):
    for layer in self.layers:
        x = F.relu(layer(x)) + x
    return x


def _in_place(self, x):
    y = self.a(x)
    z = F.relu(y, inplace=True)
    return z + y  # y has changed too


VECTOR_CODE = {
    "residual over a ModuleList": _stacked,
    "in-place relu seen by another reader": _in_place,
    "in-place method": lambda self, x: self.b(self.a(x).relu_()).clamp_(-0.5, 0.5),
    "functional activations": lambda self, x: (
        F.leaky_relu(self.a(x), 0.2) + torch.relu(x) + F.hardtanh(x, -0.5, 1) + F.relu6(x) + F.hardsigmoid(x)
    ),
    "more activations": lambda self, x: F.prelu(x, self.v) + F.threshold(x, 0.5, 0.5) + F.softshrink(x) + F.rrelu(x),
    "arithmetic": lambda self, x: -(2 * self.a(x) - x / 4 + 1.5) * self.v + (3 - x),
    "torch arithmetic": lambda self, x: torch.add(x, self.a(x), alpha=2) + torch.sub(x, 1.0) + torch.mul(x, self.v)
    + torch.neg(x) + torch.rsub(x, 2.0),
    "augmented assignment": lambda self, x: _augmented(self, x),
    "matrix products": lambda self, x: x @ self.w.t() + torch.matmul(x, self.w) + F.linear(x, self.w, self.v)
    + torch.addmm(self.v, x, self.w, beta=0.5, alpha=2),
    "matrix on the left": lambda self, x: (self.w @ x.unsqueeze(-1)).squeeze(-1),
    "abs, clamp": lambda self, x: torch.abs(self.a(x)) + x.abs().clamp(0.25, 1.0) + x.clamp(min=0.1) + x.clamp(max=0.2),
    "clamp by tensors": lambda self, x: torch.clamp(x, min=self.v - 1, max=self.v),
    "max, min of branches": lambda self, x: torch.maximum(self.a(x), self.b(x)) - torch.min(self.a(x), x),
    "max with a constant": lambda self, x: torch.maximum(x, self.v) + torch.minimum(self.v, x),
    "cat, stack, mean, sum": lambda self, x: torch.stack(
        [torch.cat([x, self.a(x)], 1), torch.cat([self.b(x), x], dim=1)], 1
    ).mean(1) + torch.cat([x, x], -1).sum(dim=-1, keepdim=True),
    "chunk and split": lambda self, x: torch.cat([x.chunk(4, dim=1)[1], torch.split(self.a(x), [1, 3, 2], 1)[1]], 1)
    + x.split(2, -1)[0].sum(),
    "unbind": lambda self, x: torch.stack(x.unbind(1)[::2], 1),
    "indexing": lambda self, x: x[:, 1:5] + self.a(x)[..., ::2].repeat(1, 2)[:, :4] + x[:, self.order] + x[:, None, 2],
    "view and permute": lambda self, x: x.view(x.size(0), 2, 3).permute(0, 2, 1).reshape(x.shape[0], -1) @ self.w,
    "transpose, flip, roll": lambda self, x: x.view(-1, 2, 3).transpose(1, 2).flip(1).roll(1, 2).flatten(1),
    "expand": lambda self, x: x.view(-1, 6, 1).expand(-1, 6, 2).reshape(1, 12),
    "narrow, select": lambda self, x: x.narrow(1, 1, 3) + x.select(1, 0),
    "dropout, contiguous, to": lambda self, x: F.dropout(self.a(x), 0.5, self.training).contiguous().to(x.dtype),
    "constant arithmetic": lambda self, x: x * torch.cat([self.v[:3], self.v[3:] * 2]) + self.a(self.v),
    "named arguments": lambda self, x: F.linear(input=x, weight=self.w) + torch.add(x, other=self.v),
    "shared layer": lambda self, x: self.a(F.relu(self.a(F.relu(self.a(x))))),
    "scalar result": lambda self, x: self.a(x).relu().sum(),
}  # fmt: skip


def _augmented(self, x):
    y = self.a(x)
    y += x
    y *= 2
    return y - self.b(x)


@pytest.mark.parametrize("function", VECTOR_CODE.values(), ids=VECTOR_CODE.keys())
def test_code_on_vectors(function) -> None:
    agree(make(function), (6,))


IMAGE_CODE = {
    "functional convolution": lambda self, x: F.relu(
        F.conv2d(self.norm(x), self.conv.weight, self.conv.bias, 2, 1)
    ).mean((2, 3)),
    "functional pools": lambda self, x: F.max_pool2d(x, 2).flatten(1) + F.avg_pool2d(x, 2, 2).flatten(1),
    "adaptive pools": lambda self, x: F.adaptive_avg_pool2d(self.conv(x), 1)[:, :2] + F.adaptive_max_pool2d(x, (1, 1)),
    "pad": lambda self, x: F.pad(x, (1, 2, 0, 1), value=0.5) + F.pad(x, (2, 1, 1, 0), mode="reflect"),
    "residual": lambda self, x: torch.cat([x, F.relu(self.conv(x))], 1)[:, 1:4] + self.conv(x),
    "batch norm function": lambda self, x: F.batch_norm(x, self.norm.running_mean, self.norm.running_var, eps=0.1),
}  # fmt: skip


@pytest.mark.parametrize("function", IMAGE_CODE.values(), ids=IMAGE_CODE.keys())
def test_code_on_images(function) -> None:
    agree(make(function), IMAGE)


def test_float32_weights_are_taken_exactly() -> None:
    module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    net = load(module)
    assert net.input_shape == (3,)
    np.testing.assert_array_equal(net.layers[0].weight, module[0].weight.detach().double().numpy())
    np.testing.assert_array_equal(net.layers[1].bias, module[2].bias.detach().double().numpy())


def test_input_shape_is_inferred_for_linear_first() -> None:
    agree(nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), given=False)
    agree(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), given=False)
    with pytest.raises(InputError, match=r"input_shape is needed.*\(1, 28, 28\)"):
        load(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)))


def test_module_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.ReLU(), nn.Linear(5, 2))
    module.train()
    module[1].eval()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    load(module)
    assert [m.training for m in module.modules()] == [True, True, False, True, True]
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in module.parameters())


@pytest.mark.parametrize(
    "last", [nn.Softmax(dim=1), nn.LogSoftmax(dim=1), nn.Sigmoid(), nn.Sequential(nn.Softmax(1), nn.Flatten(0))]
)
def test_final_softmax_is_cut_off_with_a_warning(last) -> None:
    body = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4))
    with pytest.warns(ReluscopeWarning, match="outputs are logits"):
        net = load(nn.Sequential(body, last))
    X = np.random.default_rng(0).normal(size=(10, 3))
    np.testing.assert_allclose(net(X), load(body)(X), atol=1e-12)
    assert any("logits" in note for note in net.notes)


REFUSED = {
    "tanh": (nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)), r"module '1' is Tanh"),
    "nested gelu": (nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.GELU())), r"module '1\.0' is GELU"),
    "softmax inside": (nn.Sequential(nn.Softmax(1), nn.Linear(6, 6)), r"module '0' is Softmax.*at the very end"),
    "layer norm": (nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)), r"module '1' is LayerNorm"),
    "group norm": (nn.Sequential(nn.Linear(6, 6), nn.GroupNorm(2, 6)), r"GroupNorm"),
    "threshold that jumps": (nn.Sequential(nn.Linear(6, 6), nn.Threshold(1.0, 0.0)), "jumps"),
    "batch statistics": (nn.BatchNorm1d(6, track_running_stats=False), "depends on the whole batch"),
    "lstm": (nn.Sequential(nn.Linear(6, 6), nn.LSTM(6, 6)), "LSTM"),
    "product": (make(lambda s, x: s.a(x) * x), "product of two values"),
    "quotient": (make(lambda s, x: 1 / s.a(x)), "division"),
    "attention product": (make(lambda s, x: x.unsqueeze(2) @ x.unsqueeze(1)), "product of two values"),
    "exp": (make(lambda s, x: torch.exp(x)), r"'exp'.* is exp"),
    "sign": (make(lambda s, x: torch.sign(x)), "sign"),
    "argmax": (make(lambda s, x: x.max(dim=1).indices * s.a(x)), "indices of a maximum jump"),
    "rounding": (make(lambda s, x: x.to(torch.int64)), "rounds"),
    "branch on values": (make(lambda s, x: x if x.sum() > 0 else -x), "cannot be traced.*onnx"),
    "two outputs": (make(lambda s, x: (x, s.a(x))), "returns 2 outputs"),
    "constant": (make(lambda s, x: s.v), "does not depend on its input"),
    "always-on dropout": (make(lambda s, x: F.dropout(x, 0.5, True)), "random"),
    "hidden in-place change": (make(lambda s, x: _hidden_in_place(s, x)), "differs from the module itself"),
    "nan weight": (nn.Linear(6, 6), "finite"),
}


def _hidden_in_place(self, x):
    y = self.a(x)
    z = y
    z += 5.0  # torch changes y too; the trace does not see that
    return y + z


@pytest.mark.parametrize(("module", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals_name_the_place(module, message) -> None:
    if message == "finite":
        with torch.no_grad():
            module.weight[0, 0] = math.nan
    with pytest.raises(InputError, match=message) as caught:
        load(module, input_shape=(6,))
    assert "\n" not in str(caught.value)


def test_wrong_shapes_and_options() -> None:
    module = nn.Sequential(nn.Linear(6, 2))
    for bad in [(), (0,), (-1, 2), "abc", 3.5, (5,)]:
        with pytest.raises(InputError):
            load(module, input_shape=bad)
    with pytest.raises(InputError, match="no option 'batch'"):
        load(module, batch=3)
    with pytest.raises(InputLimitError, match="weights"):
        load(nn.Conv2d(3, 64, 7), input_shape=(3, 224, 224))
    with pytest.raises(InputLimitError, match="nodes"):
        load(module, limits=Limits(nodes=2))


# -- files --


def test_state_dict_file(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 5), nn.LeakyReLU(0.1), nn.Linear(5, 4), nn.LeakyReLU(0.1), nn.Linear(4, 2))
    X = np.random.default_rng(0).normal(size=(10, 3))
    from reluscope.activations import leaky_relu

    want = load(module)(X)
    for i, kept in enumerate([module.state_dict(), {"state_dict": module.state_dict(), "epoch": 3}]):
        path = tmp_path / f"m{i}.pt"
        torch.save(kept, path)
        np.testing.assert_array_equal(load(path, activation=leaky_relu(0.1))(X), want)
        np.testing.assert_array_equal(load(path, activation=leaky_relu(0.1), order=["0", "2", "4"])(X), want)
    torch.save(module.state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    np.testing.assert_array_equal(load(tmp_path / "old.pth", activation=leaky_relu(0.1))(X), want)


def test_whole_module_files_are_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(UnsupportedError, match=r"state_dict\(\)"):
        load(tmp_path / "module.pt")


def test_evil_pickle_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    class Evil:
        def __reduce__(self):
            return (Path.touch, (mark,))

    for new in (True, False):
        torch.save({"w.weight": Evil()}, tmp_path / "evil.pt", _use_new_zipfile_serialization=new)
        with pytest.raises(UnsupportedError):
            load(tmp_path / "evil.pt")
        assert not mark.exists()


def test_bad_torch_files(tmp_path: Path) -> None:
    def refuse(content, kind=InputError, **options):
        path = tmp_path / "x.pt"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
        with warnings.catch_warnings(), pytest.raises(kind) as caught:
            load(path, **options)
        assert "\n" not in str(caught.value)

    state = nn.Linear(3, 2).state_dict()
    torch.save(state, tmp_path / "good.pt")
    good = (tmp_path / "good.pt").read_bytes()
    refuse(b"")
    refuse(b"<html>not found</html>")
    refuse(good[: len(good) // 2])
    refuse(b"PK\x03\x04" + b"\0" * 100)
    refuse(b"\x80\x02garbage")
    refuse([1, 2, 3], UnsupportedError)
    refuse({"a": 1}, UnsupportedError)
    refuse({}, UnsupportedError)
    refuse(nn.BatchNorm1d(3).state_dict(), UnsupportedError)
    refuse(nn.Conv2d(1, 1, 3).state_dict(), UnsupportedError)
    refuse({"0.weight": torch.full((2, 3), math.inf)})
    refuse({"0.weight": torch.ones(2, 3, dtype=torch.complex64)}, UnsupportedError)
    refuse({"0.weight": torch.ones(2, 3), "1.weight": torch.ones(2, 3)})
    refuse({"0.weight": torch.ones(1).expand(10**6, 10**6)}, InputLimitError)
    refuse(state, InputLimitError, limits=Limits(elements=3))
    refuse(state, InputLimitError, limits=Limits(file_bytes=100))
    refuse(state, InputError, transpose=True)


def test_old_torch_is_refused_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "a.pt")
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(UnsupportedError, match=r"2\.10 or newer"):
        load(tmp_path / "a.pt")
