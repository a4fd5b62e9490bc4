"""What a head or a channel is for, measured by taking it away: Kullback-Leibler divergence of the outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import describe, integer
from reluscope._extras import require
from reluscope._tables import Tabular
from reluscope.errors import InputError
from reluscope.lens.models import Model, OnnxModel, evaluation

__all__ = ["Ablation", "ablate_channels", "ablate_heads", "head_removed"]


@dataclass(frozen=True, slots=True, repr=False)
class Ablation(Tabular):
    """`kl[i, r]` = KL(p || p without part i) on row r (an image or a frame), in nats, summed over output heads.

    Attributes
    ----------
    parts : tuple of str
    kl : (parts, rows) array
    """

    parts: tuple[str, ...]
    kl: npt.NDArray[np.float64]

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """Mean over rows, one number per part."""
        return self.kl.mean(1)

    def ranked(self) -> list[tuple[str, float]]:
        """Parts and mean divergence, largest first."""
        order = np.argsort(-self.mean, kind="stable")
        return [(self.parts[i], float(self.mean[i])) for i in order]

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns of a table, one row per part."""
        return {"part": list(self.parts), "kl": self.mean.tolist(), "largest": self.kl.max(1).tolist()}

    def __repr__(self) -> str:
        top = ", ".join(f"{name} {value:.3g}" for name, value in self.ranked()[:5])
        return f"<Ablation of {len(self.parts)} parts over {self.kl.shape[1]} rows; largest mean KL: {top}>"


def attention_modules(module: Any) -> list[tuple[str, Any]]:
    """Layers whose heads can be removed, in order: `MultiheadAttention` and the attention of VPT policies."""
    torch = require("torch", "torch")
    return [
        (name, part)
        for name, part in module.named_modules()
        if isinstance(part, torch.nn.MultiheadAttention) or (hasattr(part, "proj_layer") and hasattr(part, "heads"))
    ]


@contextmanager
def head_removed(module: Any, head: str) -> Iterator[None]:
    """A context in which `module` runs without the contribution of one head.

    Parameters
    ----------
    module : torch module
    head : str
        "L.H": layer and head, both from 0.

    Yields
    ------
    None

    Notes
    -----
    The head's columns of the output projection are zero inside the context and restored after it.
    """
    torch = require("torch", "torch")
    layers = attention_modules(module)
    names = [f"{i}.{h}" for i, (_, part) in enumerate(layers) for h in range(_heads(part))]
    if head not in names:
        shown = f"heads are {names[0]} to {names[-1]}" if names else "it has no attention layer that is known"
        raise InputError(f"{type(module).__name__} has no head {head!r}; {shown}")
    layer, number = (int(part) for part in head.split("."))
    part = layers[layer][1]
    weight = (part.out_proj if hasattr(part, "out_proj") else part.proj_layer).weight
    width = weight.shape[1] // _heads(part)
    columns = slice(number * width, (number + 1) * width)
    kept = weight[:, columns].detach().clone()
    try:
        with torch.no_grad():
            weight[:, columns] = 0
        yield
    finally:
        with torch.no_grad():
            weight[:, columns] = kept


def ablate_heads(
    module: Any, *inputs: Any, heads: Sequence[str] | None = None, distribution: Callable[[Any], Any] | None = None
) -> Ablation:
    """How much the output distribution changes when each head is removed.

    Parameters
    ----------
    module : torch module or OnnxModel
        For an ONNX transformer the input is images, and a head is a channel of a Softmax.
    *inputs
        `module(*inputs)` is run once as it is and once per head.
    heads : sequence of str, optional
        Such as "2.3" (layer 2, head 3, from 0); all by default.
    distribution : callable, optional
        From the output to logits or probabilities. By default the output is taken as logits over the last axis (a dict:
        one distribution per entry, "value" left out); log-probabilities and probabilities are recognised.

    Returns
    -------
    Ablation
        Kullback-Leibler divergence in nats, per head and row.

    Raises
    ------
    InputError
        If a head does not exist, or the output has no distribution.
    """
    torch = require("torch", "torch")
    read = distribution or log_distributions
    if isinstance(module, OnnxModel):
        return _onnx_heads(module, inputs, heads, read)
    layers = attention_modules(module)
    names = [f"{i}.{h}" for i, (_, part) in enumerate(layers) for h in range(_heads(part))]
    if not names:
        raise InputError(f"{type(module).__name__} has no attention layer whose heads can be removed")
    names = list(heads) if heads is not None else names
    with torch.no_grad(), evaluation(module):
        before = read(module(*inputs))
        rows = []
        for name in names:
            with head_removed(module, name):
                rows.append(divergence(before, read(module(*inputs))))
    return Ablation(tuple(names), np.stack(rows))


def ablate_channels(
    model: Model,
    layer: str,
    images: Any,
    *,
    channels: Sequence[int] | None = None,
    distribution: Callable[[Any], Any] | None = None,
) -> Ablation:
    """How much the output distribution changes when each channel of a layer is set to zero.

    Parameters
    ----------
    model : Model
    layer : str
    images : array_like (n, height, width, channels)
    channels : sequence of int, optional
        From 0; all by default.
    distribution : callable, optional
        As for `ablate_heads`.

    Returns
    -------
    Ablation

    Raises
    ------
    MissingExtraError
        Without torch.
    """
    torch = require("torch", "torch")
    if not isinstance(model, Model):
        raise InputError(f"model must be a lens model (see as_model), got {describe(model)}")
    read = distribution or log_distributions
    x = torch.from_numpy(model.images(images))
    with torch.no_grad():
        seen = model.trace(x, [layer, "output"])
        count = seen[layer].shape[1]
        chosen = range(count) if channels is None else [integer(c, "channels", low=0, high=count - 1) for c in channels]
        before = read(seen["output"])
        rows = []
        for c in chosen:
            after = model.trace(x, ["output"], edits={layer: _without(c)})["output"]
            rows.append(divergence(before, read(after)))
    return Ablation(tuple(f"{layer}[{c}]" for c in chosen), np.stack(rows))


def log_distributions(output: Any) -> dict[str, Any]:
    """Log-probabilities over the last axis in whatever a model returns, as float64 tensors."""
    while isinstance(output, (tuple, list)):
        output = output[0]
    if isinstance(output, Mapping):
        return {k: log_probabilities(v) for k, v in output.items() if k != "value" and hasattr(v, "shape")}
    return {"output": log_probabilities(output)}


def divergence(before: Any, after: Any) -> npt.NDArray[np.float64]:
    """KL(before || after) per row in nats, summed over the distributions of a row."""
    before = before if isinstance(before, Mapping) else {"output": before}
    after = after if isinstance(after, Mapping) else {"output": after}
    total: Any = 0.0
    for name, p in before.items():
        p, q = np.asarray(p, np.float64), np.asarray(after[name], np.float64)
        with np.errstate(invalid="ignore"):
            terms = np.where(p > -np.inf, np.exp(p) * (p - q), 0.0)
        total = total + np.maximum(terms.sum(-1), 0.0).reshape(-1)
    return np.asarray(total)


def log_probabilities(values: Any) -> npt.NDArray[np.float64]:
    """Logs of probabilities over the last axis, from logits or probabilities."""
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, np.float64)
    if array.shape[-1] > 1 and (array >= 0).all() and np.allclose(array.sum(-1), 1, atol=1e-4):
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(array, 1e-300))
    top = array.max(-1, keepdims=True)
    return array - top - np.log(np.exp(array - top).sum(-1, keepdims=True))


def _without(channel: int) -> Callable[[Any], Any]:
    def edit(value: Any) -> Any:
        value = value.clone()
        value[:, channel] = 0
        return value

    return edit


def _heads(part: Any) -> int:
    return int(part.num_heads if hasattr(part, "num_heads") else part.heads)


def _onnx_heads(model: OnnxModel, inputs: Any, heads: Sequence[str] | None, read: Any) -> Ablation:
    torch = require("torch", "torch")
    x = torch.from_numpy(model.images(inputs[0]))
    with torch.no_grad():
        layers = model.taps.attention_layers()
        seen = model.trace(x, [*layers, "output"])
        layers = tuple(n for n in layers if seen[n].ndim == 4)
        names = [f"{i}.{h}" for i, n in enumerate(layers) for h in range(seen[n].shape[1])]
        missing = [h for h in heads or () if h not in names]
        if missing or not names:
            raise InputError(f"{model.label} has no heads {missing}; heads are {', '.join(names) or 'none'}")
        before = read(seen["output"])
        rows = []
        for name in heads or names:
            layer, head = (int(p) for p in name.split("."))
            after = model.trace(x, ["output"], edits={layers[layer]: _without(head)})["output"]
            rows.append(divergence(before, read(after)))
    return Ablation(tuple(heads or names), np.stack(rows))
