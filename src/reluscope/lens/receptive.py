"""Receptive fields: which pixels a unit can see, by arithmetic; and how strongly it does, by gradients.

For a stack of windows the field of layer L is `R_L = R_{L-1} + (K_L - 1) d_L S_1 ... S_{L-1}`: the product of strides
stops before the layer itself. Here the same rule is followed through any graph (`_tracks.py`): skips take the union,
dilation, pooling, slices, padding and transposed convolutions are understood, and a normalisation over positions
(group, layer, instance norm) is reported, because through its mean and variance every unit sees every pixel.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import integer
from reluscope._extras import require
from reluscope.errors import InputError, ReluscopeWarning
from reluscope.lens._tracks import Span, Track
from reluscope.lens.models import Model, OnnxModel, TorchModel

__all__ = ["EffectiveField", "ReceptiveField", "effective_field", "receptive_field", "receptive_fields"]


@dataclass(frozen=True, slots=True)
class ReceptiveField:
    """What a unit of one layer can see of an image.

    The unit at row i, column j sees rows `start[0] + i * jump[0]` and `size[0]` of them, columns alike. `whole` means
    the whole image (after a dense layer, a global pooling or attention); then `size` is the image's. `norms` names
    normalisations over positions on the way: they make the true field global while the nominal one stays `size`.

    Attributes
    ----------
    layer, kind : str
    size : (rows, columns)
    jump, start : (float, float)
    whole : bool
    norms : tuple of str
    unknown : tuple of str
        Operations on the way whose field is not known.
    image : (height, width)
    """

    layer: str
    kind: str
    size: tuple[int, int]
    jump: tuple[float, float]
    start: tuple[float, float]
    whole: bool
    norms: tuple[str, ...]
    unknown: tuple[str, ...]
    image: tuple[int, int]

    def box(self, row: int, column: int) -> tuple[int, int, int, int]:
        """Rows [top, bottom) and columns [left, right) of the image that this unit sees, cut at the border.

        Parameters
        ----------
        row, column : int

        Returns
        -------
        top, bottom, left, right : int
        """
        if self.whole:
            return 0, self.image[0], 0, self.image[1]
        sides = []
        for axis, index in ((0, row), (1, column)):
            low = int(np.floor(self.start[axis] + index * self.jump[axis]))
            sides += [min(max(low, 0), self.image[axis]), min(max(low + self.size[axis], 0), self.image[axis])]
        return sides[0], sides[1], sides[2], sides[3]

    def __str__(self) -> str:
        size = "whole image" if self.whole else f"{self.size[0]}x{self.size[1]}, step {self.jump[0]:g}"
        note = f"; global through {', '.join(self.norms)}" if self.norms else ""
        return f"{self.layer} ({self.kind}): {size}{note}"


@dataclass(frozen=True, slots=True)
class EffectiveField:
    """Mean absolute gradient of one unit with respect to each pixel, beside its nominal field.

    `heat` has the shape of the image; `inside` is the share of it within the nominal box, `touched` the share of
    pixels outside the box whose gradient is not zero.

    Attributes
    ----------
    field : ReceptiveField
    row, column : int
        The unit.
    heat : (height, width) array
    inside, touched : float
    """

    field: ReceptiveField
    row: int
    column: int
    heat: npt.NDArray[np.float64]
    inside: float
    touched: float


def receptive_fields(model: Model, layers: Sequence[str] | None = None) -> list[ReceptiveField]:
    """Receptive fields of the named layers, in order.

    Parameters
    ----------
    model : Model
    layers : sequence of str, optional
        Convolutions and poolings by default.

    Returns
    -------
    list of ReceptiveField

    Notes
    -----
    `R_L = R_{L-1} + (K_L - 1) d_L S_1 ... S_{L-1}` for kernels K, dilations d and strides S, followed through any
    graph. A torch module is run once on one image; an ONNX graph is read without running.
    """
    for name in layers or ():
        if name != "output":
            model.find(name)
    if isinstance(model, TorchModel):
        tracks = _torch_tracks(model)
    elif isinstance(model, OnnxModel):
        from reluscope.lens._onnx_tracks import onnx_tracks

        tracks = onnx_tracks(model)
    else:
        raise InputError(f"model must be a lens model (see as_model), got {type(model).__name__}")
    kinds = {layer.name: layer.kind for layer in model.layers} | {"output": "output"}
    if layers is None:
        layers = [n for n in tracks if "pool" in kinds[n].lower() or kinds[n].lower().startswith("conv")]
    lost = [name for name in layers if name not in tracks]
    if lost:
        raise InputError(f"layers {lost} are never called by {model.label} or do not depend on the image")
    return [_field(name, kinds[name], tracks[name], model.image_shape) for name in layers]


def receptive_field(model: Model, layer: str) -> ReceptiveField:
    """The receptive field of one layer.

    Parameters
    ----------
    model : Model
        What `as_model` returns.
    layer : str
        A layer of the model by name.

    Returns
    -------
    ReceptiveField
    """
    return receptive_fields(model, [layer])[0]


def effective_field(
    model: Model,
    layer: str,
    images: Any,
    *,
    channel: int | None = None,
    row: int | None = None,
    column: int | None = None,
    warn: bool = True,
) -> EffectiveField:
    """What a unit does see: the mean absolute gradient at each pixel, beside its nominal field.

    Parameters
    ----------
    model : Model
    layer : str
    images : array_like (n, height, width, channels)
    channel : int, optional
        From 0; the sum of all by default.
    row, column : int, optional
        Position; the middle by default.
    warn : bool
        Whether to warn when a normalisation over positions makes the true field larger than the nominal one.

    Returns
    -------
    EffectiveField

    Raises
    ------
    MissingExtraError
        Without torch.
    """
    torch = require("torch", "torch")
    field = receptive_field(model, layer)
    x = torch.from_numpy(model.images(images)).requires_grad_(True)
    value = model.trace(x, [layer])[layer]
    if value.ndim != 4:
        raise InputError(f"layer {layer!r} has values of shape {tuple(value.shape)}, not (n, channels, rows, columns)")
    row = value.shape[2] // 2 if row is None else integer(row, "row", low=0, high=value.shape[2] - 1)
    column = value.shape[3] // 2 if column is None else integer(column, "column", low=0, high=value.shape[3] - 1)
    if channel is not None:
        value = value[:, integer(channel, "channel", low=0, high=value.shape[1] - 1)][:, None]
    (gradient,) = torch.autograd.grad(value[:, :, row, column].sum(), x)
    heat = gradient.abs().sum(-1).mean(0).numpy().astype(np.float64)
    top, bottom, left, right = field.box(row, column)
    total = heat.sum()
    box = np.zeros(heat.shape, bool)
    box[top:bottom, left:right] = True
    inside = float(heat[box].sum() / total) if total > 0 else 1.0
    touched = float((heat[~box] > 0).mean()) if not box.all() else 0.0
    if warn and field.norms and touched > 0:
        warnings.warn(
            f"{layer!r} comes after {', '.join(field.norms)}: through its mean and variance a unit sees "
            f"{touched:.0%} of the pixels outside its nominal {field.size[0]}x{field.size[1]} field "
            f"(they hold {1 - inside:.1%} of the gradient)",
            ReluscopeWarning,
            stacklevel=2,
        )
    return EffectiveField(field, row, column, heat, inside, touched)


def _field(name: str, kind: str, track: Track, image_shape: tuple[int, int, int]) -> ReceptiveField:
    image = image_shape[:2]
    by_axis: dict[int, Span] = {s.axis: s for s in track.spans if s is not None}
    whole = bool(track.mixed) or len(by_axis) < 2
    if whole:
        size, jump, start = image, (0.0, 0.0), (0.0, 0.0)
    else:
        h, w = by_axis[0], by_axis[1]
        size = (_width(h), _width(w))
        jump, start = (float(h.jump), float(w.jump)), (float(h.low), float(w.low))
    return ReceptiveField(name, kind, size, jump, start, whole, track.norms, track.unknown, image)


def _width(span: Span) -> int:
    return math.ceil(span.high) - math.floor(span.low) + 1


def _torch_tracks(model: TorchModel) -> dict[str, Track]:
    torch = require("torch", "torch")
    from reluscope.lens._torch_tracks import follow

    h, w, c = model.image_shape
    layout = model.preparation.layout
    first = {"NCHW": (None, None, Span(0), Span(1)), "NHWC": (None, Span(0), Span(1), None)}.get(layout)
    if first is None:
        raise InputError("receptive fields need images as images, not flattened: use layout NCHW or NHWC")
    shape = (1, c, h, w) if layout == "NCHW" else (1, h, w, c)
    with torch.no_grad():
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        x = x.to(next((p.dtype for p in model.module.parameters()), torch.float32))
        return follow(model.module, x, Track(first))
