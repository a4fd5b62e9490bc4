"""The exact local affine map of a piecewise-affine network, as images.

At an input x a ReLU network is `f(y) = J y + d` for all y in the region of x. With the statistics of its
normalisations (group, layer, instance norm) frozen at x, a normalised network is piecewise affine too, and the same
holds for the frozen network, whose value at x is the network's own. Row j of J, shaped like the image, is the template
that output j compares the image with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import integer
from reluscope._extras import require
from reluscope.errors import InputError, UnsupportedError
from reluscope.lens._affine import curved_operations
from reluscope.lens.models import Model, TorchModel

__all__ = ["LocalMap", "local_map"]

_WRONG = 1e-3
"""Share of the network's change that the map may miss next to the image; rounding leaves 1e-6 and less."""

_BENT = 1e-2
"""Relative second difference above which a map with unknown operations is not called affine."""


@dataclass(frozen=True, slots=True, repr=False)
class LocalMap:
    """`output[j] = sum(templates[j] * image) + offset[j]` on the region of `image`.

    `templates` (outputs, h, w, c) and `offset` (outputs,) are float64. `error` says how well the map predicts the
    (frozen) network next to the image: the largest difference over the largest change, at the best of a few steps along
    a ray of brightness; it is rounding only.

    Attributes
    ----------
    image : (h, w, c) array
    outputs : (outputs,) array
    indices : tuple of int
        Which outputs of the model.
    templates : (outputs, h, w, c) array
    offset : (outputs,) array
    error : float
    """

    image: npt.NDArray[np.float64]
    outputs: npt.NDArray[np.float64]
    indices: tuple[int, ...]
    templates: npt.NDArray[np.float64]
    offset: npt.NDArray[np.float64]
    error: float

    def contributions(self) -> npt.NDArray[np.float64]:
        """`templates * image`: what each pixel adds, (outputs, h, w, c); with `offset` they sum to the outputs."""
        return self.templates * self.image

    def __repr__(self) -> str:
        return f"<LocalMap of {len(self.indices)} outputs, error {self.error:.1e}>"


def local_map(
    model: Model, image: Any, outputs: Sequence[int] | None = None, *, layer: str = "output", freeze_norms: bool = True
) -> LocalMap:
    """The exact linear model of a network at one image.

    Parameters
    ----------
    model : Model
    image : array_like (height, width, channels)
    outputs : sequence of int, optional
        From 0; all by default.
    layer : str, default "output"
    freeze_norms : bool
        Keep the statistics of normalisations at the image: a normalised CNN is then piecewise affine too.

    Returns
    -------
    LocalMap
        `output[j] = sum(templates[j] * image) + offset[j]` on the region of the image.

    Raises
    ------
    UnsupportedError
        If an operation on the way is not piecewise affine (a GELU, a softmax, a product of two activations), which is
        read off the computation itself, or if the map does not predict the network next to the image.

    Notes
    -----
    Computed in float64 by one backward pass per output.
    """
    torch = require("torch", "torch")
    x = model.images(image)
    if len(x) != 1:
        raise InputError(f"image must be one image, got {len(x)}")
    point = torch.from_numpy(x.astype(np.float64)).requires_grad_(True)
    with _in_double(model), _frozen(torch, freeze_norms) as frozen:
        value = model.trace(point, [layer])[layer].flatten()
        curved, unknown = curved_operations(value, point)
        if curved:
            raise UnsupportedError(
                f"{model.label} is not affine around this image up to {layer!r}: on the way is {', '.join(curved)}, "
                "which is not piecewise affine; name an earlier layer"
            )
        count = len(value)
        chosen = range(count) if outputs is None else [integer(j, "outputs", low=0, high=count - 1) for j in outputs]
        rows = [torch.autograd.grad(value[j], point, retain_graph=True)[0][0].numpy() for j in chosen]
        frozen.replay = True
        here = value.detach()
        error, bending = _next_to_the_image(torch, model, point.detach(), layer, frozen, chosen, rows, here)
    templates = np.stack(rows)
    got = here.numpy()[list(chosen)]
    offset = got - (templates * x[0].astype(np.float64)).sum((1, 2, 3))
    if error > _WRONG or (unknown and bending > _BENT):
        what = f" (not known to be piecewise affine: {', '.join(unknown)})" if unknown else ""
        raise UnsupportedError(
            f"{model.label} could not be confirmed to be affine around this image up to {layer!r}: the map misses the "
            f"network's change next to the image by {error:.1e} of it{what}; name an earlier layer"
        )
    return LocalMap(x[0].astype(np.float64), got, tuple(chosen), templates, offset, error)


def _next_to_the_image(
    torch: Any, model: Model, x: Any, layer: str, frozen: Any, chosen: Any, rows: Any, here: Any
) -> tuple[float, float]:
    """How far the map is from the network along a ray of brightness: relative to the change, and second difference.

    The ray keeps equal pixels equal, so that ties (a max pool over a black corner) stay ties. The smallest of several
    steps counts, because a long one may leave the region and a short one drowns in rounding.
    """
    ray = 0.7 * x + 0.3
    change = np.array([float((torch.from_numpy(r) * ray[0]).sum()) for r in rows])
    size = max(1e-12, float(here.abs().max()))
    first, second = [], []
    for length in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
        frozen.place = 0
        with torch.no_grad():
            there = model.trace(x + length * ray, [layer])[layer].flatten()
        gap = float(np.abs((there - here).numpy()[list(chosen)] - length * change).max())
        first.append(gap / max(length * float(np.abs(change).max()), 1e-9 * length * size, 1e-300))
        second.append(gap / length**2 / size)
    return min(first), min(second)


@contextmanager
def _in_double(model: Model) -> Iterator[None]:
    """A torch module in float64 for a while (ONNX graphs follow the type of their input by themselves)."""
    module = model.module if isinstance(model, TorchModel) else None
    kind = None if module is None else next((p.dtype for p in module.parameters()), None)
    if module is None or kind is None:
        yield
        return
    kept = {k: v.detach().clone() for k, v in module.state_dict().items()}
    try:
        module.double()
        yield
    finally:
        module.to(kind)
        module.load_state_dict(kept)


def _frozen(torch: Any, on: bool) -> Any:
    from torch.overrides import TorchFunctionMode

    functional = torch.nn.functional
    norms = {functional.group_norm, functional.layer_norm, functional.instance_norm}

    class Frozen(TorchFunctionMode):
        """Norms with their mean and variance treated as constants; `replay` uses those of the first run again."""

        def __init__(self) -> None:
            super().__init__()
            self.replay, self.place = False, 0
            self.kept: list[tuple[Any, Any]] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if not on or func not in norms:
                return func(*args, **kwargs)
            x = args[0]
            named = dict(zip(_PARAMETERS[func.__name__], args[1:], strict=False)) | kwargs
            eps = named.get("eps", 1e-5)
            shape = x.shape
            if func is functional.layer_norm:
                dims = tuple(range(x.ndim - len(named["normalized_shape"]), x.ndim))
                grouped = x
            else:
                groups = named.get("num_groups", shape[1])
                grouped = x.reshape(shape[0], groups, -1)
                dims = (2,)
            if self.replay:
                mean, spread = self.kept[self.place]
                self.place += 1
            else:
                mean = grouped.mean(dims, keepdim=True).detach()
                spread = (grouped.var(dims, unbiased=False, keepdim=True) + eps).sqrt().detach()
                self.kept.append((mean, spread))
            out = ((grouped - mean) / spread).reshape(shape)
            weight, bias = named.get("weight"), named.get("bias")
            if func is not functional.layer_norm:
                side = (1, -1, *(1,) * (x.ndim - 2))
                weight = None if weight is None else weight.reshape(side)
                bias = None if bias is None else bias.reshape(side)
            out = out if weight is None else out * weight
            return out if bias is None else out + bias

    return Frozen()


_PARAMETERS = {
    "group_norm": ("num_groups", "weight", "bias", "eps"),
    "layer_norm": ("normalized_shape", "weight", "bias", "eps"),
    "instance_norm": ("running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps"),
}
