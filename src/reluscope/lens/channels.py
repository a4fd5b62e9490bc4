"""What the channels of a layer show on an image: strongest places, principal colours, overlays, grids, dead ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import integer, real, real_array, several
from reluscope.errors import InputError
from reluscope.lens.models import Model, OnnxModel, TorchModel
from reluscope.lens.receptive import ReceptiveField, receptive_field

__all__ = [
    "ColourBasis",
    "Strongest",
    "channel_maps",
    "colour_basis",
    "dead_channels",
    "kernels",
    "overlay",
    "strongest",
]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Strongest:
    """The k largest activations of a layer on one image, and where their receptive fields lie.

    Row i of `places` is (channel, row, column) of the i-th largest value; `heat` (height, width) counts, at each
    pixel, the fields that cover it; with `weighted` each counts its value.

    Attributes
    ----------
    layer : str
    values : (k,) array
    places : (k, 3) array
    heat : (height, width) array
    field : ReceptiveField
    """

    layer: str
    values: Floats
    places: npt.NDArray[np.int64]
    heat: Floats
    field: ReceptiveField

    def boxes(self) -> npt.NDArray[np.int64]:
        """Rows [top, bottom) and columns [left, right) of each field, one row per activation."""
        return np.array([self.field.box(int(r), int(c)) for _, r, c in self.places])


@dataclass(frozen=True, slots=True)
class ColourBasis:
    """Three principal directions of a layer's channels, fitted once and used for a whole sequence.

    Ordinary PCA: directions are eigenvectors of the channels' covariance over all positions of the images it was
    fitted on, each turned so that its entry of largest size is positive. `low` and `high` are the 1st and 99th
    percentile of each score; they become 0 and 1.

    Attributes
    ----------
    layer : str
    mean : (channels,) array
    directions : (3, channels) array
    explained, low, high : (3,) arrays
    """

    layer: str
    mean: Floats
    directions: Floats
    explained: Floats
    low: Floats
    high: Floats

    def colours(self, maps: npt.NDArray[Any]) -> Floats:
        """Maps (n, channels, rows, columns) as pictures (n, rows, columns, 3) in [0, 1].

        Parameters
        ----------
        maps : (n, channels, rows, columns) array

        Returns
        -------
        (n, rows, columns, 3) array
        """
        flat = np.moveaxis(np.asarray(maps, np.float64), 1, -1) - self.mean
        scores = flat @ self.directions.T
        span = np.where(self.high > self.low, self.high - self.low, 1.0)
        out = np.clip((scores - self.low) / span, 0, 1)
        if out.shape[-1] < 3:
            out = np.concatenate([out, np.full((*out.shape[:-1], 3 - out.shape[-1]), 0.5)], -1)
        return out


def channel_maps(model: Model, layer: str, images: Any) -> npt.NDArray[Any]:
    """Activations of a convolutional layer.

    Parameters
    ----------
    model : Model
        What `as_model` returns.
    layer : str
        A layer of the model by name.
    images : (n, rows, columns, channels)

    Returns
    -------
    (n, channels, rows, columns) array

    Raises
    ------
    InputError
        If the layer gives no maps of rows and columns; the message lists the convolutions.
    """
    maps = model.activations(images, [layer])[layer]
    if maps.ndim != 4:
        raise InputError(
            f"layer {layer!r} gives shape {maps.shape}, not (n, channels, rows, columns); convolutions of this model: "
            f"{', '.join(model.convolutions()[:20]) or 'none'}"
        )
    return maps


def strongest(
    model: Model, layer: str, image: Any, *, k: int = 500, channel: int | None = None, weighted: bool = False
) -> Strongest:
    """The k largest activations of a layer on one image, and where their receptive fields lie.

    Parameters
    ----------
    model : Model
    layer : str
    image : array_like (height, width, channels)
    k : int
    channel : int, optional
        Only this channel, from 0.
    weighted : bool
        Whether each field counts its value instead of one.

    Returns
    -------
    Strongest

    Notes
    -----
    Ties go to the earlier entry in (channel, row, column) order. Only positive activations count.
    """
    k = integer(k, "k", low=1)
    image = model.images(image)
    if len(image) != 1:
        raise InputError(f"image must be one image, got {len(image)}")
    maps = channel_maps(model, layer, image)[0]
    if channel is not None:
        integer(channel, "channel", low=0, high=len(maps) - 1)
        hidden = np.full_like(maps, -np.inf)
        hidden[channel] = maps[channel]
        maps = hidden
    flat = maps.reshape(-1)
    order = np.argsort(-flat, kind="stable")[:k]
    order = order[flat[order] > 0]
    places = np.stack(np.unravel_index(order, maps.shape), 1)
    field = receptive_field(model, layer)
    values = flat[order].astype(np.float64)
    height, width = model.image_shape[:2]
    corners = np.zeros((height + 1, width + 1))
    for (_, row, column), value in zip(places, values, strict=True):
        top, bottom, left, right = field.box(int(row), int(column))
        amount = value if weighted else 1.0
        corners[top, left] += amount
        corners[bottom, right] += amount
        corners[top, right] -= amount
        corners[bottom, left] -= amount
    heat = corners.cumsum(0).cumsum(1)[:height, :width]
    return Strongest(
        layer, values, places, np.where(np.abs(heat) < 1e-9 * max(1.0, np.abs(heat).max()), 0.0, heat), field
    )


def colour_basis(model: Model, layer: str, images: Any) -> ColourBasis:
    """Three principal colours of a layer, fitted once for a whole sequence.

    Parameters
    ----------
    model : Model
    layer : str
    images : array_like (n, height, width, channels)

    Returns
    -------
    ColourBasis
        `basis.colours(maps)` on every frame.
    """
    maps = channel_maps(model, layer, images).astype(np.float64)
    flat = np.moveaxis(maps, 1, -1).reshape(-1, maps.shape[1])
    mean = flat.mean(0)
    centred = flat - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / max(len(flat) - 1, 1))
    count = min(3, maps.shape[1])
    directions = vectors[:, ::-1][:, :count].T.copy()
    largest = np.abs(directions).argmax(1)
    directions *= np.where(directions[np.arange(count), largest] < 0, -1.0, 1.0)[:, None]
    scores = centred @ directions.T
    low, high = np.percentile(scores, [1, 99], axis=0)
    total = values.clip(0).sum()
    explained = values[::-1][:count].clip(0) / total if total > 0 else np.zeros(count)
    return ColourBasis(layer, mean, directions, explained, low, high)


def overlay(
    image: Any, maps: npt.NDArray[Any], *, channels: Sequence[int] | None = None, opacity: float = 0.6
) -> Floats:
    """One image with channel maps laid over it.

    Parameters
    ----------
    image : array_like (height, width, channels)
    maps : ndarray (channels, rows, columns)
    channels : sequence of int, optional
        From 0; all by default.
    opacity : float

    Returns
    -------
    ndarray (height, width, 3) in [0, 1]

    Notes
    -----
    Each chosen channel gets a hue; its activation, over the 98th percentile of its positive values, is its opacity.
    Negative values show nothing. Maps are enlarged by bilinear interpolation.

    Examples
    --------
    >>> import numpy as np
    >>> overlay(np.zeros((4, 4, 3)), np.ones((2, 2, 2))).shape
    (4, 4, 3)
    """
    opacity = real(opacity, "opacity", low=0.0, high=1.0)
    base = real_array(image, "image", ndim=3)
    if not base.size or base.shape[-1] not in (1, 3, 4):
        raise InputError(f"image must have shape (height, width, channels), got {base.shape}")
    base = base / 255 if np.asarray(image).dtype == np.uint8 else base
    base = np.repeat(base[..., :1], 3, -1) if base.shape[-1] == 1 else base[..., :3]
    maps = real_array(maps, "maps", ndim=3)
    if not maps.size:
        raise InputError(f"maps must have shape (channels, rows, columns), none of them 0, got {maps.shape}")
    every = range(len(maps)) if channels is None else several(channels, "channels", "whole numbers")
    chosen = [integer(c, "channels", low=0, high=len(maps) - 1) for c in every]
    grey = 0.5 * base + 0.5 * base.mean(-1, keepdims=True)
    alpha = np.zeros(base.shape[:2])
    colour = np.zeros(base.shape)
    for i, c in enumerate(chosen):
        positive = maps[c][maps[c] > 0]
        if positive.size == 0:
            continue
        top = float(np.quantile(positive, 0.98))  # one bright pixel would leave the rest invisible
        strength = enlarge(np.clip(maps[c] / top, 0, 1), base.shape[:2])
        alpha = np.maximum(alpha, strength)
        colour += strength[..., None] * hue(i / max(len(chosen), 1))
    weight = opacity * alpha[..., None]
    total = colour.max(-1, keepdims=True)
    shown = np.divide(colour, total, out=np.zeros_like(colour), where=total > 0)
    return np.clip((1 - weight) * grey + weight * shown, 0, 1)


def dead_channels(model: Model, layer: str, images: Any, *, batch: int = 64) -> tuple[int, ...]:
    """Channels whose value never changes, or that a ReLU leaves at zero, on the given images.

    Parameters
    ----------
    model : Model
    layer : str
    images : array_like (n, height, width, channels)
    batch : int

    Returns
    -------
    tuple of int
        Channels, from 0.

    Notes
    -----
    This is a statement about these images. For a ReLU layer a channel is dead if it is never positive; for others, if
    its largest and smallest value agree.
    """
    checked = model.images(images)
    low: Any = None
    high: Any = None
    for start in range(0, len(checked), batch):
        values = model.activations(checked[start : start + batch], [layer], batch=batch)[layer]
        axes = tuple(a for a in range(values.ndim) if a != 1)
        least, most = values.min(axes), values.max(axes)
        low = least if low is None else np.minimum(low, least)
        high = most if high is None else np.maximum(high, most)
    return tuple(int(c) for c in np.flatnonzero(high - low <= 1e-12 * np.maximum(1.0, np.abs(high))))


def kernels(model: Model, layer: str) -> npt.NDArray[Any]:
    """The weights of a convolution.

    Parameters
    ----------
    model : Model
        What `as_model` returns.
    layer : str
        A convolution of the model by name.

    Returns
    -------
    (outputs, inputs, rows, columns) array

    Raises
    ------
    InputError
        If the layer has no weights, or is no convolution of images.
    """
    model.find(layer)
    if isinstance(model, OnnxModel):
        weight = model.taps.kernel(layer)
    elif isinstance(model, TorchModel):
        part: Any = dict(model.module.named_modules())[layer]
        part = part if hasattr(part, "weight") else getattr(part, "layer", part)
        if not hasattr(part, "weight"):
            raise InputError(f"layer {layer!r} has no weights")
        weight = part.weight.detach().numpy()
    else:
        raise InputError(f"model must be a lens model, got {type(model).__name__}")
    if weight.ndim != 4:
        raise InputError(f"layer {layer!r} has weights of shape {weight.shape}; a 2-D convolution is expected")
    return np.asarray(weight)


def enlarge(picture: Floats, size: tuple[int, int]) -> Floats:
    """(rows, columns) to `size` by bilinear interpolation with aligned cell centres."""
    out = picture
    for axis in (0, 1):
        old, new = out.shape[axis], size[axis]
        at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
        below = np.floor(at).astype(int)
        above = np.minimum(below + 1, old - 1)
        part = at - below
        part = part[:, None] if axis == 0 else part[None, :]
        out = np.take(out, below, axis) * (1 - part) + np.take(out, above, axis) * part
    return out


def hue(turn: float) -> Floats:
    """A saturated colour; `turn` in [0, 1) goes round the colour circle."""
    return np.clip(np.abs((turn * 6 + np.array([0.0, 4.0, 2.0])) % 6 - 3) - 1, 0, 1)
