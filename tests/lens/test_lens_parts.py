"""Ablation, patching, attribution and the logit lens on torch modules of many makes, against doing it by hand."""

from __future__ import annotations

import numpy as np
import pytest

import reluscope as rs
from reluscope import lens
from reluscope.errors import InputError, UnsupportedError

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional


class Attention(nn.Module):
    """Attention in the ways that models write it: fused, by hand, by einsum (as timm and others do)."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.qkv, self.proj, self.drop = nn.Linear(16, 48), nn.Linear(16, 16), nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        if self.way == "fused":
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            weights = self.drop(((q @ k.transpose(-1, -2)) / 2).softmax(-1))
            if self.way == "einsum":
                return self.proj(torch.einsum("bhqk,bhkd->bqhd", weights, v).flatten(2))
            out = weights @ v
        return self.proj(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.norm, self.attn, self.mlp = (
            nn.LayerNorm(16),
            Attention(way),
            nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)),
        )

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class Small(nn.Module):
    """A vision transformer as timm builds it, for patches that are there already."""

    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.blocks, self.norm = nn.Sequential(Block(way), Block(way)), nn.LayerNorm(16)
        self.fc_norm, self.head = nn.Identity(), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.fc_norm(self.norm(self.blocks(x))[:, 0]))


X = torch.randn(3, 7, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("way", ["fused", "by hand", "einsum"])
def test_heads_are_changed_whatever_computes_them(way):
    model = Small(way).double()
    got = lens.ablate(model, X, "heads", metric=lambda o: o[:, 2])
    assert model.training  # flags are put back
    model.eval()
    assert got.parts == tuple(f"{layer}.{head}" for layer in (0, 1) for head in range(4))
    with torch.no_grad():
        plain = model(X)[:, 2]
        for row, name in zip(got.change, got.parts, strict=True):
            layer, head = map(int, name.split("."))
            weight = model.blocks[layer].attn.proj.weight
            kept = weight[:, 4 * head : 4 * head + 4].clone()
            weight[:, 4 * head : 4 * head + 4] = 0
            assert np.allclose(row, (model(X)[:, 2] - plain).numpy(), atol=1e-13)
            weight[:, 4 * head : 4 * head + 4] = kept
    assert lens.logit_lens(model, X).tail == ("norm", "fc_norm", "head")
    assert lens.record_attention(lens.as_model(model), X).modules[0] == "blocks.0.attn"


def test_heads_of_torchs_own_layers_are_changed():
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    got = lens.ablate(model, X, ["0.2", "1.3"], metric=lambda o: o[:, 0, 0])
    old = lens.ablate_heads(model, X, heads=["0.2", "1.3"], distribution=lambda o: {"o": o.numpy()})
    new = lens.ablate(model, X, ["0.2", "1.3"])
    with torch.no_grad():
        for row, name in zip(got.change, ("0.2", "1.3"), strict=True):
            with lens.head_removed(model, name):
                removed = model(X)[:, 0, 0]
            assert np.allclose(row, (removed - model(X)[:, 0, 0]).numpy(), atol=1e-13)
    assert old.kl.shape == new.change.shape == (2, 21)
    patched = lens.patch(model, X, X.flip(1), lambda o: o[0, 0, 0] - o[0, 1, 1], "heads")
    assert patched.share.shape == (8, 1)


def test_attention_that_cannot_be_followed_is_named():
    class Odd(nn.Module):
        def forward(self, x):
            weights = (x[:, None] @ x[:, None].transpose(-1, -2)).softmax(-1)
            return (weights[..., None] * x[:, None, None]).sum(-2)[:, 0]

    with pytest.raises(UnsupportedError, match="cannot be changed"):
        lens.ablate(Odd(), X)
    with pytest.raises(InputError, match="ran no attention"):
        lens.ablate(nn.Linear(16, 3).double(), X)


def cnn():
    torch.manual_seed(0)
    first, second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3)
    layers = first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)
    return nn.Sequential(*layers).double().eval()


IMAGES = torch.rand(2, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_channels_of_a_convolution_are_units():
    model = cnn()
    got = lens.ablate(model, IMAGES, ["0[2]", "3"], how="mean", metric=lambda o: o[:, 1])
    with torch.no_grad():
        z = model[0](IMAGES)
        z[:, 2] = z[:, 2].mean()
        assert np.allclose(got.change[0], (model[1:](z)[:, 1] - model(IMAGES)[:, 1]).numpy(), atol=1e-14)
        whole = model[3](model[:3](IMAGES))
        z = whole.mean((0, 2, 3), keepdim=True).expand_as(whole)
        assert np.allclose(got.change[1], (model[4:](z)[:, 1] - model(IMAGES)[:, 1]).numpy(), atol=1e-14)


def test_a_module_that_runs_twice_is_patched_call_by_call():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(4, 4)

        def forward(self, x):
            return self.f(torch.tanh(self.f(x)))

    torch.manual_seed(0)
    model = Twice().double()
    a, b = (torch.randn(1, 4, dtype=torch.float64) for _ in range(2))
    got = lens.patch(model, a, b, lambda o: o[0, 0], "f")
    assert abs(got.share[0, 0] - 1) < 1e-12


def test_exact_attribution_is_the_local_map():
    model = cnn()
    found = lens.attribute(model, IMAGES, 1, "exact", element=1)
    net = rs.load(model, input_shape=(1, 8, 8))
    local = net.local(IMAGES[1].numpy().reshape(1, -1))
    assert np.allclose(found.values.ravel(), local.C[0, 1] * IMAGES[1].numpy().ravel(), atol=1e-12)
    assert abs(found.baseline_output - local.d[0, 1]) < 1e-12
    assert (found.guarantee, found.gap < 1e-12, found.error < 1e-6) == ("exact", True, True)
    with pytest.raises(UnsupportedError, match="Gelu"):
        lens.attribute(nn.Sequential(nn.Linear(64, 2), nn.GELU()).double(), IMAGES.flatten(1), 0, "exact")
    single = lens.attribute(cnn().float(), IMAGES.float(), 1, "exact", element=1)  # computed in float64
    assert np.allclose(single.values, found.values, atol=1e-6)


def test_integrated_gradients_say_how_far_they_are():
    torch.manual_seed(0)
    smooth = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 2)).double()
    x = torch.randn(1, 6, dtype=torch.float64)
    found = lens.attribute(smooth, x, 1, relative=1e-6)
    # Gauss and Legendre's rule with 60 points is the integral to rounding.
    at, weight = np.polynomial.legendre.leggauss(60)
    total = 0.0
    for t, w in zip((at + 1) / 2, weight / 2, strict=True):
        point = (t * x).requires_grad_(True)
        total = total + w * torch.autograd.grad(smooth(point)[0, 1], point)[0][0].numpy()
    true = total * x[0].numpy()
    miss = np.abs(found.values - true).max()
    assert miss <= found.error <= 1e-6 * np.abs(true).max()
    assert found.gap <= 6 * found.error
    assert "completeness gap" in repr(found)
    few = lens.attribute(cnn(), IMAGES, 0, relative=1e-12, steps=16)
    assert few.steps == 16
    assert few.error > 1e-6  # a budget that is spent is said
    base = lens.attribute(smooth, x, 1, baseline=x[0].numpy())
    assert np.abs(base.values).max() == 0


def test_occlusion_and_grad_cam_are_what_they_are_called():
    model = cnn()
    with torch.no_grad():
        plain = model(IMAGES)[0, 2]
        found = lens.attribute(model, IMAGES, 2, "occlusion", window=(1, 3, 3), stride=(1, 2, 2), baseline=0.5)
        assert found.values.shape == (1, 4, 4)
        changed = IMAGES.clone()
        changed[0, 0, 2:5, 6:9] = 0.5
        assert abs(found.values[0, 1, 3] - float(plain - model(changed)[0, 2])) < 1e-14
    heat = lens.attribute(model, IMAGES, 2, "grad_cam", layer="0")
    maps = model[0](IMAGES).detach().requires_grad_(True)
    slope = torch.autograd.grad(model[1:](maps)[0, 2], maps)[0][0]
    wanted = torch.relu((slope.mean((1, 2))[:, None, None] * maps[0]).sum(0)).detach().numpy()
    assert np.allclose(heat.values, wanted, atol=1e-14)
    with pytest.raises(InputError, match="needs layer="):
        lens.attribute(model, IMAGES, 2, "grad_cam")
    with pytest.raises(InputError, match="target"):
        lens.attribute(model, IMAGES, 7)
    with pytest.raises(InputError, match="larger than"):
        lens.attribute(model, IMAGES, 1, "occlusion", window=(1, 9, 9))


def test_the_command_shows_attributions(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    from reluscope.cli import main

    onnx = pytest.importorskip("onnx")
    helper, numbers = onnx.helper, onnx.numpy_helper
    body = cnn()
    stored = {f"{i}.{k}": v.detach().float().numpy() for i in (0, 3, 6) for k, v in body[i].named_parameters()}
    nodes = [
        helper.make_node("Conv", ["x", "0.weight", "0.bias"], ["c0"], name="conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("MaxPool", ["r0"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "3.weight", "3.bias"], ["c1"], name="conv1"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Flatten", ["r1"], ["f"]),
        helper.make_node("Gemm", ["f", "6.weight", "6.bias"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3])],
        [numbers.from_array(v, k) for k, v in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    np.save(tmp_path / "images.npy", np.random.default_rng(0).integers(0, 255, (2, 8, 8, 1), dtype=np.uint8))
    words = ["lens", str(tmp_path / "net.onnx"), "--images", str(tmp_path / "images.npy"), "--attribute", "1"]
    assert main([*words, "--out", str(tmp_path / "p.html")]) == 0
    page = (tmp_path / "p.html").read_text("utf-8")
    assert "Image 0: what output [" in page and "is due to" in page
    assert "exact:" not in capsys.readouterr().out  # nothing was refused


def test_a_model_without_images_says_what_pictures_need():
    model = lens.as_model(nn.Linear(4, 2))
    assert "any inputs" in repr(model)
    with pytest.raises(InputError, match="image_shape"):
        lens.receptive_fields(model)


def test_onnx_layers_are_ablated_and_attributed_to(tmp_path):
    pytest.importorskip("onnxruntime")
    net = rs.load(cnn(), input_shape=(1, 8, 8))
    net.save(tmp_path / "net.onnx")
    model = lens.as_model(tmp_path / "net.onnx", image_shape=(8, 8, 1))
    images = IMAGES.numpy().transpose(0, 2, 3, 1)
    exact = lens.attribute(model, images, 1, "exact", element=1)
    assert np.allclose(exact.values[..., 0], lens.attribute(cnn(), IMAGES, 1, "exact", element=1).values[0], atol=1e-6)
    got = lens.ablate(model, images, "layer1_relu[3]", metric=lambda o: o[:, 1])
    assert got.change.shape == (1, 2)
    with pytest.raises(UnsupportedError, match="ablate_heads"):
        lens.ablate(model, images)


def test_models_of_timm():
    try:  # it needs torchvision, whose build must fit that of torch
        timm = pytest.importorskip("timm")
    except Exception as error:
        pytest.skip(f"timm cannot be imported: {error}")
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=5).double().eval()
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    got = lens.ablate(model, x, "1.2", metric=lambda o: o[:, 0])
    with torch.no_grad():
        plain = model(x)[:, 0]
        model.blocks[1].attn.proj.weight[:, 128:192] = 0
        assert np.allclose(got.change[0], (model(x)[:, 0] - plain).numpy(), atol=1e-12)
    assert lens.record_attention(lens.as_model(model), x).modules[0] == "blocks.0.attn"
    assert lens.logit_lens(model, x).error < 1e-12
