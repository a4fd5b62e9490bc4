"""Recording attention of torch modules and ablation, against the layers' own outputs and zeroing by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reluscope import lens
from reluscope.errors import InputError

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

from reluscope.lens._watch import Watch  # noqa: E402


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"kdim": 12, "vdim": 20}, {"add_bias_kv": True}, {"add_zero_attn": True}],
    ids=str,
)
@pytest.mark.parametrize("mask", ["none", "causal", "float", "padding"])
def test_weights_reproduce_the_layers_output(batch_first, options, mask):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=batch_first, **options).double().eval()
    q = torch.randn(3, 7, 16, dtype=torch.float64)
    k = torch.randn(3, 9, options.get("kdim", 16), dtype=torch.float64)
    v = torch.randn(3, 9, options.get("vdim", 16), dtype=torch.float64)
    named = {}
    if mask == "causal":
        named["attn_mask"] = torch.ones(7, 9, dtype=torch.bool).triu(3)
    elif mask == "float":
        named["attn_mask"] = torch.randn(12, 7, 9, dtype=torch.float64)
    elif mask == "padding":
        named["key_padding_mask"] = torch.arange(9)[None] >= torch.tensor([9, 5, 7])[:, None]
    inputs = (q, k, v) if batch_first else tuple(a.transpose(0, 1) for a in (q, k, v))
    with torch.no_grad():
        plain, averaged = layer(*inputs, **named)
        with Watch(layer) as seen:
            watched, again = layer(*inputs, **named)
    assert torch.equal(plain, watched)
    assert torch.equal(averaged, again)
    (call,) = seen.calls
    assert call.error < 1e-12
    assert torch.allclose(call.weights.mean(1), averaged, atol=1e-12)


def test_an_encoder_is_recorded_and_not_changed():
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    x = torch.randn(2, 11, 32)
    with torch.no_grad():
        before = encoder(x)
    made = lens.record_attention(encoder, x, element=1)
    with torch.no_grad():
        assert torch.equal(encoder(x), before)
    assert made.weights.shape == (11, 12, 11)
    assert made.outputs.shape == (11, 12, 8)
    assert made.heads[4] == "1.0"
    assert made.error < 1e-6
    assert np.allclose(made.weights.sum(2), 1, atol=1e-5)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in encoder.modules())


class Own(nn.Module):
    """Attention as models write it themselves."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        if self.way == "fused":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return ((q @ k.transpose(-1, -2)) / 2).softmax(-1) @ v


@pytest.mark.parametrize("way", ["fused", "by hand"])
def test_attention_without_a_module_is_seen(way):
    torch.manual_seed(0)
    module = Own(way)
    x = torch.randn(1, 6, 16)
    made = lens.record_attention(module, x)
    assert made.weights.shape == (6, 4, 6)
    if way == "fused":
        assert made.error < 1e-6
        assert np.allclose(made.weights.transpose(1, 0, 2), np.tril(made.weights.transpose(1, 0, 2)))
        assert np.allclose(made.outputs, module(x)[0].detach().numpy().transpose(1, 0, 2))
    with pytest.raises(InputError, match="ran no attention"):
        lens.record_attention(nn.Linear(16, 2), x)


def test_removing_a_head_is_zeroing_it_by_hand():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True).double().eval()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    kept = layer.out_proj.weight.clone()
    with torch.no_grad(), Watch(layer) as seen:
        layer(x, x, x)
    outputs = seen.calls[0].outputs.clone()
    outputs[:, 2] = 0
    wanted = layer.out_proj(outputs.transpose(1, 2).flatten(2))
    with torch.no_grad(), lens.head_removed(layer, "0.2"):
        removed = layer(x, x, x)[0]
    assert torch.allclose(removed, wanted, atol=1e-13)
    assert torch.equal(layer.out_proj.weight, kept)
    with pytest.raises(InputError, match=r"no head '1\.0'; heads are 0\.0 to 0\.3"), lens.head_removed(layer, "1.0"):
        pass
    with pytest.raises(RuntimeError), lens.head_removed(layer, "0.1"):
        raise RuntimeError
    assert torch.equal(layer.out_proj.weight, kept)


def test_divergences_are_those_of_the_softmax():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 5)).eval()
    x = torch.randn(3, 4, 16)
    found = lens.ablate_heads(encoder, x)
    assert found.parts == ("0.0", "0.1")
    assert found.kl.shape == (2, 12)
    with torch.no_grad():
        p = encoder(x).double().log_softmax(-1)
        with lens.head_removed(encoder, "0.1"):
            q = encoder(x).double().log_softmax(-1)
    wanted = F.kl_div(q, p, log_target=True, reduction="none").sum(-1).flatten()
    assert np.allclose(found.kl[1], wanted.numpy(), atol=1e-6)
    assert found.ranked()[0][1] >= found.ranked()[1][1]
    assert list(found.to_pandas().columns) == ["part", "kl", "largest"]


def test_channels_are_removed_in_torch_and_onnx_alike(data_folder):
    model = lens.as_model(data_folder / "nets/marabou/onnx/cnn_max_mninst3.onnx")
    images = np.random.default_rng(0).random((3, 28, 28, 1))
    found = lens.ablate_channels(model, "conv2d", images)
    assert found.kl.shape == (2, 3)
    assert (found.kl > 0).all()

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 3, 3)
            self.last = nn.Linear(3, 4)

        def forward(self, x):
            return self.last(self.conv(x).relu().mean((2, 3)))

    module = Two()
    with torch.no_grad():
        module.last.weight[:, 1] = 0
    own = lens.ablate_channels(lens.as_model(module, image_shape=(28, 28, 1)), "conv", images)
    assert own.kl[1].max() < 1e-12 < own.kl[0].min()


def test_onnx_heads_are_removed(data_folder):
    model = lens.as_model(data_folder / "nets/vit_2023/onnx/pgd_2_3_16.onnx")
    found = lens.ablate_heads(model, np.random.default_rng(0).random((2, 32, 32, 3)))
    assert found.kl.shape == (6, 2)
    assert found.mean.max() > 1e-4


def test_a_stream_of_another_agent_is_recorded_by_lag():
    """A causal layer with its own cache, stepped in chunks, gives the same lags whatever the chunk."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(12, 3, batch_first=True).eval()

    def step(chunk, state):
        x = chunk.flatten(2)[:, :, :12]
        past = x if state is None else torch.cat([state, x], 1)
        t, total = x.shape[1], past.shape[1]
        lag = torch.arange(total - t, total)[:, None] - torch.arange(total)[None]
        out, _ = layer(x, past, past, attn_mask=(lag < 0) | (lag >= 5))
        return out, past[:, -4:]

    frames = np.random.default_rng(0).integers(0, 256, (23, 2, 2, 3), dtype=np.uint8)
    made = [lens.record_stream(layer, frames, step=step, memory=5, chunk=c, outputs=True) for c in (1, 6, 23)]
    for other in made[1:]:
        assert np.allclose(made[0].weights, other.weights, atol=1e-6)
        assert np.allclose(made[0].outputs, other.outputs, atol=1e-5)
    assert np.allclose(made[0].weights.sum(2), 1, atol=1e-5)
    assert made[0].error < 1e-6
    with pytest.raises(InputError, match="give step"):
        lens.record_stream(layer, frames)


def test_layers_of_another_shape_are_named():
    """Cross attention was left out without a word, and later layers got its number."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.cross, self.b = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(3))

        def forward(self, x, memory):
            x = self.a(x, x, x)[0]
            x = self.cross(x, memory, memory)[0]
            return self.b(x, x, x)[0]

    torch.manual_seed(0)
    made = lens.record_attention(Mixed(), torch.randn(1, 5, 8), torch.randn(1, 7, 8))
    assert made.heads == ("0.0", "0.1", "2.0", "2.1")
    assert made.modules == ("a", "a", "b", "b")
    (cross,) = made.others
    assert (cross.heads, cross.name, cross.weights.shape) == (("1.0", "1.1"), "cross", (5, 2, 7))
