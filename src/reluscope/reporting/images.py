"""Inputs of image networks as images: the mean, and the nearest input of the event."""

from __future__ import annotations

import base64
import math
import re
from html import escape

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.network import Network
from reluscope.reporting.blocks import Figure
from reluscope.reporting.charts import diverging, png
from reluscope.reporting.subject import Subject

_LEAST_SIDE = 7
"""Fewer pixels to a side are hardly an image."""

_MOST_SIDE = 256
_WIDE = 84
"""Pixels of the page to an image."""


def image_shape(net: Network) -> tuple[int, int, int, bool] | None:
    """Rows, columns, channels, and whether channels come first; None where inputs are no image.

    The network's own shape decides. A plain vector whose length is a square is taken row by row.
    """
    sides = tuple(n for n in net.input_shape if n > 1)
    if len(sides) == 1 and math.isqrt(sides[0]) ** 2 == sides[0]:
        sides = (math.isqrt(sides[0]),) * 2
    if len(sides) == 2:
        found = (sides[0], sides[1], 1, False)
    elif len(sides) == 3 and sides[0] == 3:
        found = (sides[1], sides[2], 3, True)
    elif len(sides) == 3 and sides[2] == 3:
        found = (sides[0], sides[1], 3, False)
    else:
        return None
    rows, columns = found[:2]
    fits = min(rows, columns) >= _LEAST_SIDE and max(rows, columns) <= _MOST_SIDE
    return found if fits and rows * columns * found[2] == net.n_inputs else None


def pixels_of(subject: Subject) -> tuple[int, int, int, bool] | None:
    """The shape of inputs that are images; None where they are not, or have names that are more than numbers."""
    names = subject.names or ()
    stems = {re.sub(r"\d+", "", name) for name in names}
    return None if subject.table or len(stems) > 1 else image_shape(subject.net)


def inputs_as_images(subject: Subject) -> Figure | None:
    """The mean of the law, the nearest input of the event that is known, and their difference."""
    shape = pixels_of(subject)
    if shape is None:
        return None
    mean = np.asarray(subject.law.mean, dtype=float)
    outside = subject.beyond()
    nearest = outside or subject.nearest()
    shown = {"the mean": mean}
    if nearest is not None:
        shown["in the event" if outside is None else "outside of the event"] = np.asarray(nearest.x, dtype=float)
    elif np.ptp(mean) == 0.0:
        return None  # one colour
    low, high = min(float(x.min()) for x in shown.values()), max(float(x.max()) for x in shown.values())
    span = high - low or 1.0
    parts = [_picture(np.rint(255 * (_placed(x, shape) - low) / span), name) for name, x in shown.items()]
    caption = f"Inputs as images of {shape[0]} × {shape[1]} pixels, black {_signed(low)} to white {_signed(high)}"
    if nearest is not None:
        which = "an input in the event" if outside is None else "which is in the event, an input outside of it"
        caption += f": the mean, {which}, and their difference"
    if nearest is not None:
        change = _placed(nearest.x - mean, shape).mean(axis=2)
        parts.append(_picture(diverging(change).astype(float), "difference"))
        top = float(np.abs(change).max())
        caption += f" (blue −{top:.2g} to red +{top:.2g})"
    return Figure(f'<div class="images">{"".join(parts)}</div>', f"{caption}.")


def row_as_images(
    shape: tuple[int, int, int, bool], row: npt.ArrayLike, parts: npt.ArrayLike, importance: npt.ArrayLike
) -> str:
    """One row of data, what each of its pixels adds to the output, and how important each pixel is over all rows."""
    x, added, share = (_placed(v, shape) for v in (row, parts, importance))
    low, span = float(x.min()), float(np.ptp(x)) or 1.0
    shown = [
        _picture(np.rint(255 * (x - low) / span), "the row"),
        _picture(diverging(added.mean(axis=2)).astype(float), "what each pixel adds"),
        _picture(np.rint(255 * share / (float(share.max()) or 1.0)), "importance over all rows"),
    ]
    return f'<div class="images wide">{"".join(shown)}</div>'


def _placed(x: npt.ArrayLike, shape: tuple[int, int, int, bool]) -> FloatArray:
    """An input as (rows, columns, 3)."""
    rows, columns, channels, first = shape
    x = np.asarray(x, dtype=float)
    pixels = np.moveaxis(x.reshape(channels, rows, columns), 0, -1) if first else x.reshape(rows, columns, channels)
    return np.broadcast_to(pixels, (rows, columns, 3))


def _picture(pixels: FloatArray, name: str) -> str:
    data = base64.b64encode(png(np.clip(pixels, 0, 255).astype(np.uint8))).decode()
    high = round(_WIDE * pixels.shape[0] / pixels.shape[1])
    image = f'<img width="{_WIDE}" height="{high}" alt="{escape(name)}" src="data:image/png;base64,{data}">'
    return f"<span>{image}<br>{escape(name)}</span>"


def _signed(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
