"""Following receptive fields through a running torch module: every tensor operation is seen, no tracing needed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from reluscope.lens._tracks import Track
from reluscope.lens.models import evaluation, first_tensor

_POOLS = {"max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool2d"}
_MEAN_POOLS = {"avg_pool1d", "avg_pool2d", "avg_pool3d"}
_VIEWS = {"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand", "_reshape_alias", "unflatten", "flatten"}
_SUMS = {"mean", "sum", "amax", "amin", "prod", "norm", "std", "var"}
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "matmul"}
_NORMS = {"native_group_norm": "GroupNorm", "native_layer_norm": "LayerNorm", "_fused_rms_norm": "RMSNorm"}
_BATCH_NORMS = {"native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"}


def follow(module: Any, x: Any, start: Track) -> dict[str, Track]:
    """Tracks of every sub-module's output when `module` is run on `x`, whose own track is `start`."""
    found: dict[str, Track] = {}
    mode = _Follow()
    mode.tracks[x] = start
    handles = []

    def note(name: str) -> Any:
        def look(module: Any, inputs: Any, value: Any) -> None:
            tensor = first_tensor(value)
            if isinstance(tensor, torch.Tensor) and tensor in mode.tracks:
                found[name] = mode.tracks[tensor]

        return look

    for name, part in module.named_modules():
        handles.append(part.register_forward_hook(note(name or "output")))
    try:
        with evaluation(module), mode:
            module(x)
    finally:
        for handle in handles:
            handle.remove()
    return found


class _Follow(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.tracks: Any = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sources = [a for a in _tensors(args) if a in self.tracks]
        if sources:
            name = func.overloadpacket.__name__
            outs = [o for o in (result if isinstance(result, (tuple, list)) else (result,)) if _is_tensor(o)]
            for out in outs:
                self.tracks[out] = self._after(name, args, kwargs or {}, sources, out)
        return result

    def _after(self, name: str, args: Any, kwargs: Any, sources: list[Any], out: Any) -> Track:
        base = name.rstrip("_")
        first = sources[0]
        track: Track = self.tracks[first]
        n = out.ndim
        if base in ("convolution", "_convolution") and first is args[0]:
            return _windows(track, args[1].shape[2:], args[3], args[4], args[5], bool(args[6]))
        if base in _POOLS or base in _MEAN_POOLS:
            kernel = _many(args[1], n - 2)
            stride = _many(args[2] if len(args) > 2 and args[2] else kernel, n - 2)
            padding = _many(args[3] if len(args) > 3 else 0, n - 2)
            dilation = _many(args[4] if base in _POOLS and len(args) > 4 else 1, n - 2)
            return _windows(track, kernel, stride, padding, dilation, False)
        if base.startswith(("_adaptive_avg_pool", "adaptive_max_pool", "adaptive_avg_pool")):
            return _adaptive(track, first.shape, out.shape)
        if base in _NORMS:
            if any(s is not None for s in _normalised(base, track, args)):
                return track.with_norm(_NORMS[base])
            return track
        if base in _BATCH_NORMS and len(args) > 5 and args[5] is True:
            return track.with_norm("InstanceNorm")
        if base in ("native_batch_norm", *_BATCH_NORMS, "_native_batch_norm_legit_no_training"):
            return track
        if base in ("permute", "transpose", "t"):
            return track.permuted(_order(base, args, first.ndim))
        if base in _VIEWS or base == "alias":
            return track.reshaped(first.shape, out.shape)
        if base == "constant_pad_nd" or base.endswith("_pad2d"):
            pads = args[1]
            for k in range(len(pads) // 2):
                track = track.shifted(first.ndim - 1 - k, -int(pads[2 * k]))
            return track
        if base == "slice":
            dim = (args[1] if len(args) > 1 else 0) % first.ndim
            begin = int(args[2] or 0) if len(args) > 2 else 0
            begin = begin + first.shape[dim] if begin < 0 else begin
            return track.shifted(dim, begin, int(args[4]) if len(args) > 4 else 1)
        if base in ("split", "split_with_sizes", "chunk", "unbind", "select"):
            dim = int((kwargs.get("dim", args[2 if base.startswith("split") else 1] if len(args) > 2 else 0)) or 0)
            dim %= first.ndim
            if track.spans[dim] is None:
                return track if n == first.ndim else track.mix([dim], keep=False)
            return track.mix([dim], keep=n == first.ndim)
        if base == "cat":
            dim = (args[1] if len(args) > 1 else 0) % n
            joined = track
            for other in sources[1:]:
                joined = joined.join(self.tracks[other], n)
            return joined if joined.spans[dim] is None else joined.mix([dim])
        if base.startswith("upsample"):
            for axis in range(2, n):
                factor = Fraction(int(out.shape[axis]), int(first.shape[axis]))
                reach = {"upsample_nearest2d": 0}.get(base, 2 if "bicubic" in base else 1)
                track = track.resampled(axis, factor, reach)
            return track
        if base in _SUMS:
            dims = args[1] if len(args) > 1 and args[1] is not None else range(first.ndim)
            dims = [dims] if isinstance(dims, int) else list(dims) or list(range(first.ndim))
            return track.mix([d % first.ndim for d in dims], keep=n == first.ndim)
        if base in ("_softmax", "_log_softmax", "softmax", "cumsum"):
            dim = int(args[1]) % n
            return track if track.spans[dim] is None else track.mix([dim])
        if base in _PRODUCTS:
            return self._product(sources, args, out)
        if len(out.shape) >= max(s.ndim for s in sources) and all(_fits(s.shape, out.shape) for s in sources):
            joined = track if track.spans and len(track.spans) == n else Track((None,) * n).join(track, n)
            for other in sources[1:]:
                joined = joined.join(self.tracks[other], n)
            return joined
        return track.not_understood(name, n)

    def _product(self, sources: list[Any], args: Any, out: Any) -> Track:
        joined = Track((None,) * out.ndim)
        for source in sources:
            track = self.tracks[source]
            if source.ndim == out.ndim and len(sources) == 1:
                left = any(source is a for a in args[: 2 if len(args) > 2 else 1])
                contracted = source.ndim - 1 if left else source.ndim - 2
                track = track.mix([contracted])
            else:
                track = track.mix(range(source.ndim))
            joined = joined.join(
                track if len(track.spans) == out.ndim else track.mix(range(len(track.spans))), out.ndim
            )
        return joined


def _windows(track: Track, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any, transposed: bool) -> Track:
    count = len(kernel)
    for k in range(count):
        axis = len(track.spans) - count + k
        track = track.window(
            axis,
            int(kernel[k]),
            int(_many(stride, count)[k]),
            int(_many(padding, count)[k]),
            int(_many(dilation, count)[k]),
            transposed,
        )
    return track


def _adaptive(track: Track, old: Sequence[int], new: Sequence[int]) -> Track:
    for axis in range(2, len(old)):
        if new[axis] == old[axis]:
            continue
        if new[axis] > 1 and old[axis] % new[axis] == 0:
            step = old[axis] // new[axis]
            track = track.window(axis, step, step)
        else:
            track = track.mix([axis])
    return track


def _normalised(base: str, track: Track, args: Any) -> Sequence[Any]:
    if base == "native_group_norm":
        return track.spans[2:]
    return track.spans[len(track.spans) - len(args[1]) :]


def _order(base: str, args: Any, ndim: int) -> list[int]:
    if base == "permute":
        return [int(d) % ndim for d in args[1]]
    order = list(range(ndim))
    if base == "t":
        return order[::-1]
    a, b = int(args[1]) % ndim, int(args[2]) % ndim
    order[a], order[b] = order[b], order[a]
    return order


def _fits(shape: Sequence[int], out: Sequence[int]) -> bool:
    tail = out[len(out) - len(shape) :]
    return all(s in (1, o) for s, o in zip(shape, tail, strict=True))


def _many(value: Any, count: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _tensors(args: Any) -> list[Any]:
    found: list[Any] = []
    for a in args:
        if isinstance(a, torch.Tensor):
            found.append(a)
        elif isinstance(a, (tuple, list)):
            found += [b for b in a if isinstance(b, torch.Tensor)]
    return found
