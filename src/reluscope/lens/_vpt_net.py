"""The VPT architecture: an IMPALA convolutional network, four transformer blocks with memory, two action heads.

Written from the published description and its parameter names, so that public weight files fit. Attention is
`softmax(mask + r(x) b[lag] + Q Kᵀ / e)` with e the width of a head (1/e, not 1/√e), over the last `memory` frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

BASIS = 10
"""Basis functions of the relative bias."""

_MASKED = -1e9


class NormedLayer(nn.Module):
    """norm -> layer -> ReLU; the layer has a bias only without a norm."""

    def __init__(self, norm: nn.Module | None, layer: nn.Module, scale: float = 1.0, active: bool = True) -> None:
        super().__init__()
        self.norm = norm
        self.layer = layer
        self.active = active
        with torch.no_grad():
            dims = tuple(range(1, layer.weight.ndim))
            layer.weight *= scale / layer.weight.square().sum(dims, keepdim=True).sqrt()
            if layer.bias is not None:
                layer.bias.zero_()

    def forward(self, x: Any) -> Any:
        """The layer's value, (…, outputs) or (n, outputs, rows, columns)."""
        x = self.layer(x if self.norm is None else self.norm(x))
        return functional.relu(x) if self.active else x


def _convolution(inputs: int, outputs: int, groups: int | None, scale: float = 1.0) -> NormedLayer:
    norm = None if groups is None else nn.GroupNorm(groups, inputs)
    return NormedLayer(norm, nn.Conv2d(inputs, outputs, 3, padding=1, bias=norm is None), scale)


def _dense(inputs: int, outputs: int, scale: float = 1.0) -> NormedLayer:
    return NormedLayer(nn.LayerNorm(inputs), nn.Linear(inputs, outputs, bias=False), scale)


class Block(nn.Module):
    """x + conv1(conv0(x))."""

    def __init__(self, channels: int, groups: int, scale: float) -> None:
        super().__init__()
        self.conv0 = _convolution(channels, channels, groups, scale**0.5)
        self.conv1 = _convolution(channels, channels, groups, scale**0.5)

    def forward(self, x: Any) -> Any:
        """Same shape as `x`."""
        return x + self.conv1(self.conv0(x))


class Stack(nn.Module):
    """Convolution, max pooling 3/2/1, norm, two residual blocks."""

    def __init__(self, inputs: int, channels: int, first: bool, groups: int, pool_groups: int, scale: float) -> None:
        super().__init__()
        self.firstconv = _convolution(inputs, channels, None if first else groups)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.n = nn.GroupNorm(pool_groups, channels)
        self.blocks = nn.ModuleList(Block(channels, groups, scale / 2**0.5) for _ in range(2))

    def forward(self, x: Any) -> Any:
        """Half as many rows and columns as `x`."""
        x = self.n(self.pool(self.firstconv(x)))
        for block in self.blocks:
            x = block(x)
        return x


class Cnn(nn.Module):
    """Images (n, height, width, 3) with values in [0, 1] to (n, 256)."""

    def __init__(self, shape: Sequence[int], channels: Sequence[int], groups: int, pool_groups: int) -> None:
        super().__init__()
        rows, columns, colours = shape
        scale = len(channels) ** 0.5
        sizes = [colours, *channels]
        self.stacks = nn.ModuleList(
            Stack(sizes[i], sizes[i + 1], i == 0, groups, pool_groups, scale) for i in range(len(channels))
        )
        for _ in channels:
            rows, columns = (rows + 1) // 2, (columns + 1) // 2
        self.dense = _dense(sizes[-1] * rows * columns, 256, 1.4)

    def forward(self, images: Any) -> Any:
        """(n, height, width, 3) to (n, 256)."""
        x = images.permute(0, 3, 1, 2)
        for stack in self.stacks:
            x = stack(x)
        return self.dense(x.flatten(1))


class Images(nn.Module):
    """The convolutional network and a dense layer."""

    def __init__(self, cnn: Cnn, width: int) -> None:
        super().__init__()
        self.cnn = cnn
        self.linear = _dense(256, width)

    def forward(self, images: Any) -> Any:
        """(batch, time, height, width, 3) to (batch, time, width of the transformer)."""
        flat = self.linear(self.cnn(images.flatten(0, 1)))
        return flat.reshape(*images.shape[:2], -1)


class MemoryAttention(nn.Module):
    """Attention over the current chunk and the `memory` frames before it.

    `state` is (keys, values, valid): (batch, memory, width) twice and (batch, memory) booleans.
    """

    def __init__(self, width: int, heads: int, memory: int) -> None:
        super().__init__()
        self.heads, self.memory = heads, memory
        self.q_layer = nn.Linear(width, width)
        self.k_layer = nn.Linear(width, width, bias=False)
        self.v_layer = nn.Linear(width, width, bias=False)
        self.proj_layer = nn.Linear(width, width)
        self.r_layer = nn.Linear(width, BASIS * heads)
        self.b_nd = nn.Parameter(torch.randn(BASIS, memory) * 0.2)

    def weights(self, x: Any, keys: Any, valid: Any) -> Any:
        """Attention weights (batch, heads, t, memory + t) of the frames `x` (batch, t, width)."""
        t, total = x.shape[1], keys.shape[1]
        q, k = self._split(self.q_layer(x)), self._split(keys)
        lag = torch.arange(total - t, total)[:, None] - torch.arange(total)[None]
        seen = (lag >= 0) & (lag < self.memory)
        band = torch.where(seen, self.b_nd[:, lag.clamp(0, self.memory - 1)], 0.0)
        relative = torch.einsum("bhtn,ntp->bhtp", self._split(self.r_layer(x)), band)
        allowed = seen & valid[:, None, None, :]
        logits = (q @ k.transpose(-1, -2)) / q.shape[-1] + relative + torch.where(allowed, 0.0, _MASKED)
        return torch.softmax(logits, -1)

    def forward(self, x: Any, state: Any, watch: Any = None) -> tuple[Any, Any]:
        """`x + projection of the attended values`, and the next state; `watch(weights, outputs, values)` may look on.

        Values are those of the frames of `x` alone.
        """
        keys = torch.cat([state[0], self.k_layer(x)], 1)
        values = torch.cat([state[1], self.v_layer(x)], 1)
        valid = torch.cat([state[2], torch.ones(x.shape[:2], dtype=torch.bool)], 1)
        weights = self.weights(x, keys, valid)
        out = weights @ self._split(values)
        if watch is not None:
            watch(weights, out, self._split(values[:, -x.shape[1] :]))
        mixed = self.proj_layer(out.transpose(1, 2).flatten(2))
        cut = keys.shape[1] - self.memory
        return x + mixed, (keys[:, cut:], values[:, cut:], valid[:, cut:])

    def _split(self, x: Any) -> Any:
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


class Recurrent(nn.Module):
    """Holds the attention under the name that weight files use."""

    def __init__(self, width: int, heads: int, memory: int) -> None:
        super().__init__()
        self.orc_block = MemoryAttention(width, heads, memory)


class TransformerBlock(nn.Module):
    """LayerNorm, attention with its own skip, and a pointwise network with a skip."""

    def __init__(self, width: int, heads: int, memory: int, ratio: int) -> None:
        super().__init__()
        self.pre_r_ln = nn.LayerNorm(width)
        self.r = Recurrent(width, heads, memory)
        self.mlp0 = _dense(width, width * ratio)
        self.mlp1 = NormedLayer(None, nn.Linear(width * ratio, width), 0.35, active=False)

    def forward(self, x: Any, state: Any, watch: Any = None) -> tuple[Any, Any]:
        """The block's value and next state. The skip starts after the first norm, as published."""
        x, state = self.r.orc_block(self.pre_r_ln(x), state, watch)
        return x + self.mlp1(self.mlp0(x)), state


class Blocks(nn.Module):
    """The transformer blocks."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)


class Trunk(nn.Module):
    """Images to the latent vector of each frame."""

    def __init__(self, images: Images, blocks: Blocks, width: int) -> None:
        super().__init__()
        self.img_process = images
        self.recurrent_layer = blocks
        self.lastlayer = _dense(width, width)
        self.final_ln = nn.LayerNorm(width)


class Logits(nn.Module):
    """A linear layer under the name that weight files use."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.linear_layer = nn.Linear(width, outputs)


class Heads(nn.Module):
    """The two action heads."""

    def __init__(self, width: int, camera: int, buttons: int) -> None:
        super().__init__()
        self.camera = Logits(width, camera)
        self.buttons = Logits(width, buttons)


class Normaliser(nn.Module):
    """Running statistics of the value; only read."""

    def __init__(self) -> None:
        super().__init__()
        for name, size in (("running_mean", 1), ("running_mean_sq", 1), ("debiasing_term", 0)):
            start = torch.zeros(size) if size else torch.tensor(0.0)
            setattr(self, name, nn.Parameter(start, requires_grad=False))


class Value(nn.Module):
    """The value head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        self.normalizer = Normaliser()


class Policy(nn.Module):
    """Frames to action distributions, with a memory.

    `policy(frames, state)` takes images (batch, time, height, width, 3) with values in [0, 1] and returns
    ({"camera": log p, "buttons": log p, "value": normalised value}, next state).
    """

    def __init__(self, arguments: dict[str, Any], temperature: float, camera: int, buttons: int) -> None:
        super().__init__()
        width = arguments["hidsize"]
        self.memory = arguments["attention_memory_size"] - arguments["timesteps"]
        self.heads = arguments["attention_heads"]
        self.temperature = temperature
        self.image_shape = tuple(arguments["img_shape"])
        channels = [int(arguments["impala_width"] * c) for c in arguments["impala_chans"]]
        groups, pool_groups = arguments["group_norm_groups"], arguments["post_pool_groups"]
        cnn = Cnn(self.image_shape, channels, groups, pool_groups)
        blocks = [
            TransformerBlock(width, self.heads, self.memory, arguments["pointwise_ratio"])
            for _ in range(arguments["n_recurrence_layers"])
        ]
        self.net = Trunk(Images(cnn, width), Blocks(blocks), width)
        self.value_head = Value(width)
        self.pi_head = Heads(width, camera, buttons)

    def initial_state(self, batch: int = 1) -> list[Any]:
        """An empty memory."""
        shape = (batch, self.memory, self.net.final_ln.normalized_shape[0])
        like = self.net.final_ln.weight
        empty = torch.zeros(batch, self.memory, dtype=torch.bool)
        return [(like.new_zeros(shape), like.new_zeros(shape), empty) for _ in self.net.recurrent_layer.blocks]

    def forward(self, frames: Any, state: Any = None, watch: Any = None) -> tuple[dict[str, Any], list[Any]]:
        """Log-probabilities and value per frame; `watch(layer, weights, outputs, values)` sees each attention layer."""
        state = self.initial_state(len(frames)) if state is None else state
        x = self.net.img_process(frames)
        after = []
        for i, block in enumerate(self.net.recurrent_layer.blocks):
            look = None if watch is None else (lambda w, out, v, i=i: watch(i, w, out, v))
            x, new = block(x, state[i], look)
            after.append(new)
        x = self.net.final_ln(self.net.lastlayer(functional.relu(x)))
        out = {
            name: functional.log_softmax(getattr(self.pi_head, name).linear_layer(x) / self.temperature, -1)
            for name in ("camera", "buttons")
        }
        out["value"] = self.value_head.linear(x)[..., 0]
        return out, after
