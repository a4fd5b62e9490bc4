"""Seeing attention while a torch module runs; what it computes is changed only where an edit asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from reluscope.errors import UnsupportedError
from reluscope.lens.models import evaluation

_SOFTMAXES = {torch.softmax, functional.softmax, torch.Tensor.softmax}
_PRODUCTS = {torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__}

HeadEdit = Callable[[int, Any], Any]
"""From the number of an attention call and its head outputs (b, heads, q, width) to what is used instead."""


@dataclass(frozen=True, slots=True)
class Call:
    """One run of an attention layer: weights (b, heads, q, k), head outputs (b, heads, q, width), and how far the
    layer's own output is from what they give, relative to its largest entry.
    """

    name: str
    weights: Any
    outputs: Any
    error: float | None


class Watch:
    """A context in which the attention of `module` is noted in `calls`, in the order it is run.

    With `edit`, the outputs of all heads pass through it before the layer goes on; `calls` keeps them as they were.
    `weights=False` spares the weights of fused kernels, which have to be computed again.
    """

    def __init__(self, module: nn.Module, *, edit: HeadEdit | None = None, weights: bool = True) -> None:
        self.module = module
        self.calls: list[Call] = []
        self.edit, self.weights = edit, weights
        self._handles: list[Any] = []
        self._stack: list[tuple[str, nn.Module]] = []
        self._mode = _Mode(self)
        self._kept: Any = None

    def __enter__(self) -> Watch:
        for name, part in self.module.named_modules():
            self._handles.append(part.register_forward_pre_hook(self._entering(name)))
            if isinstance(part, nn.MultiheadAttention):
                self._handles.append(part.register_forward_hook(self._attended(name), with_kwargs=True))
            self._handles.append(part.register_forward_hook(self._leaving, always_call=True))
        self._fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # the fused path would skip the layers that are watched
        self._kept = ExitStack()
        self._kept.enter_context(evaluation(self.module))
        self._kept.enter_context(_seen_kernels(self.module))
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)
        self._kept.close()
        torch.backends.mha.set_fastpath_enabled(self._fast)
        for handle in self._handles:
            handle.remove()

    def inside_attention(self) -> bool:
        """Whether a `MultiheadAttention` is being run, whose own hook will note it."""
        return any(isinstance(part, nn.MultiheadAttention) for _, part in self._stack)

    def where(self) -> str:
        """Name of the innermost module that is running, but for a `Softmax`, which stands for the one around it."""
        return next((name for name, part in reversed(self._stack) if not isinstance(part, nn.Softmax)), "")

    def edited(self, number: int, outputs: Any) -> Any:
        """What the layer goes on with in place of its head outputs."""
        return outputs if self.edit is None else self.edit(number, outputs)

    def _entering(self, name: str) -> Any:
        def enter(part: Any, inputs: Any) -> None:
            self._stack.append((name, part))

        return enter

    def _leaving(self, part: Any, inputs: Any, value: Any) -> None:
        while self._stack and self._stack.pop()[1] is not part:
            pass

    def _attended(self, name: str) -> Any:
        def look(part: Any, inputs: Any, named: Any, value: Any) -> Any:
            weights, outputs, mixed = recompute(part, *inputs, **named)
            own = value[0]
            if own.ndim == 2:
                own = own[None]
            elif not part.batch_first:
                own = own.transpose(0, 1)
            error = _relative(mixed, own)
            number = len(self.calls)
            self.calls.append(Call(name, weights.detach(), outputs.detach(), error))
            if self.edit is None:
                return None
            mixed = part.out_proj(self.edited(number, outputs).transpose(1, 2).flatten(2))
            if value[0].ndim == 2:
                mixed = mixed[0]
            elif not part.batch_first:
                mixed = mixed.transpose(0, 1)
            return (mixed, *value[1:])

        return look


class _Mode(TorchFunctionMode):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch
        self.softmaxed: dict[int, tuple[int, Any]] = {}  # by id: number of the call, and the tensor, to keep its id

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.watch.inside_attention():
            return result
        if func is functional.scaled_dot_product_attention:
            return self._fused(result, args, kwargs)
        if func in _SOFTMAXES and result.ndim == 4:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else -1)
            if dim in (-1, 3):
                self.softmaxed[id(result)] = (len(self.watch.calls), result)
                self.watch.calls.append(Call(self.watch.where(), result.detach().clone(), None, None))
            return result
        if self.softmaxed and isinstance(result, torch.Tensor):
            return self._after_softmax(func, result, args)
        return result

    def _fused(self, result: Any, args: Any, kwargs: Any) -> Any:
        value = args[2] if len(args) > 2 else kwargs["value"]
        if result.ndim not in (3, 4):
            return result
        outputs = result if result.ndim == 4 else result[:, None]
        weights, error = None, None
        if self.watch.weights:
            weights = _dot_product_weights(*args, **kwargs)
            error = _relative(weights @ _like_heads(value, weights), result)
            weights = (weights if result.ndim == 4 else weights[:, None]).detach()
        number = len(self.watch.calls)
        self.watch.calls.append(Call(self.watch.where(), weights, outputs.detach().clone(), error))
        if self.watch.edit is None:
            return result
        edited = self.watch.edited(number, outputs)
        return edited if result.ndim == 4 else edited[:, 0]

    def _after_softmax(self, func: Any, result: Any, args: Any) -> Any:
        """Follow weights that a model made by hand to the product with the values: the outputs of its heads."""
        at = next((i for i, a in enumerate(args) if id(a) in self.softmaxed), None)
        if at is None:
            return result
        number, weights = self.softmaxed[id(args[at])]
        if func in _PRODUCTS and at == 0 and result.ndim == 4:
            order: tuple[int, ...] = (0, 1, 2, 3)
        elif func is torch.einsum:
            found = _einsum_order(args[0], at - 1)
            if found is None:
                return result
            order = found
        else:
            if result.shape == weights.shape:  # dropout, a cast, a mask: still the weights
                self.softmaxed[id(result)] = (number, result)
            return result
        outputs = result.permute(order)
        self.watch.calls[number] = replace(self.watch.calls[number], outputs=outputs.detach().clone())
        if self.watch.edit is None:
            return result
        back = sorted(range(4), key=order.__getitem__)
        return self.watch.edited(number, outputs).permute(back)


def _einsum_order(equation: Any, operand: int) -> tuple[int, ...] | None:
    """Where batch, heads, queries and width stand in the result of an einsum whose operand is (b, h, q, k)."""
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return None
    sides, out = equation.replace(" ", "").split("->")
    b, h, q, k = list(sides.split(",")[operand])
    width = [c for c in out if c not in (b, h, q)]
    if len(out) != 4 or len(width) != 1 or width[0] == k or {b, h, q} - set(out):
        return None
    return tuple(out.index(c) for c in (b, h, q, width[0]))


def _relative(made: Any, own: Any) -> float:
    return float((made - own).abs().max()) / (float(own.abs().max()) or 1.0)


@contextmanager
def _seen_kernels(module: Any) -> Iterator[None]:
    """Transformers whose attention is fused elsewhere (flash, flex) run by plain operations for a while."""
    config = getattr(module, "config", None)
    kind = getattr(config, "_attn_implementation", None)
    if kind in (None, "eager", "sdpa"):
        yield
        return
    change = getattr(module, "set_attn_implementation", None)
    try:
        if change is None:
            raise ValueError("it has no set_attn_implementation")
        change("eager")
    except Exception as error:
        raise UnsupportedError(
            f"{type(module).__name__} computes attention by {kind!r}, which shows no weights, and cannot be asked for "
            f'plain attention ({error}); build it with attn_implementation="eager"'
        ) from error
    try:
        yield
    finally:
        change(kind)


def _like_heads(x: Any, weights: Any) -> Any:
    return x if x.ndim < 4 or x.shape[1] == weights.shape[1] else x.repeat_interleave(weights.shape[1] // x.shape[1], 1)


def _dot_product_weights(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    key = _like_heads(key, query) if enable_gqa else key
    logits = query @ key.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        allowed = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        logits = logits.masked_fill(~allowed, -math.inf)
    if attn_mask is not None:
        logits = logits.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else logits + attn_mask
    return torch.softmax(logits, -1)


def recompute(
    layer: Any,
    query: Any,
    key: Any,
    value: Any,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any, Any]:
    """Weights (b, h, q, k), head outputs (b, h, q, e) and layer output (b, q, width) of a `MultiheadAttention`."""
    if query.ndim == 2:
        query, key, value = query[None], key[None], value[None]
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    elif not layer.batch_first:
        query, key, value = (a.transpose(0, 1) for a in (query, key, value))
    if layer._qkv_same_embed_dim:
        wq, wk, wv = layer.in_proj_weight.chunk(3)
    else:
        wq, wk, wv = layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight
    bq, bk, bv = (None,) * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
    q, k, v = functional.linear(query, wq, bq), functional.linear(key, wk, bk), functional.linear(value, wv, bv)
    batch, extra = len(q), 0
    if layer.bias_k is not None:
        k = torch.cat([k, layer.bias_k.expand(batch, -1, -1)], 1)
        v = torch.cat([v, layer.bias_v.expand(batch, -1, -1)], 1)
        extra += 1
    if layer.add_zero_attn:
        k = torch.cat([k, k.new_zeros(batch, 1, k.shape[2])], 1)
        v = torch.cat([v, v.new_zeros(batch, 1, v.shape[2])], 1)
        extra += 1
    q, k, v = (a.reshape(batch, -1, layer.num_heads, layer.head_dim).transpose(1, 2) for a in (q, k, v))
    logits = q @ k.transpose(-1, -2) / math.sqrt(layer.head_dim)
    if attn_mask is not None:
        mask = functional.pad(_added(attn_mask, logits), (0, extra))
        logits = logits + (mask if mask.ndim == 2 else mask.reshape(batch, -1, *mask.shape[1:]))
    if key_padding_mask is not None:
        logits = logits + functional.pad(_added(key_padding_mask, logits), (0, extra))[:, None, None]
    weights = torch.softmax(logits, -1)
    outputs = weights @ v
    return weights, outputs, layer.out_proj(outputs.transpose(1, 2).flatten(2))


def _added(mask: Any, like: Any) -> Any:
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=like.dtype).masked_fill(mask, -math.inf)
    return mask.to(like.dtype)
