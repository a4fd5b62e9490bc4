"""Images and video frames from folders and archives, resizing, and small coded pictures for pages."""

from __future__ import annotations

import base64
import io
import re
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import any_array, describe, integer, several
from reluscope._extras import require
from reluscope._files import as_path, read_bytes
from reluscope._npy import read_npy, read_npz
from reluscope.errors import InputError, InputLimitError
from reluscope.limits import DEFAULT_LIMITS, Limits, started

__all__ = ["load_frames", "resize"]

Bytes = npt.NDArray[np.uint8]

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM")
_DIGITS = re.compile(r"([0-9]+)")
_PIXELS = 1 << 25
"""Largest single image that is decoded: 100 MB as bytes, and a few times that on the way."""
_LONGEST_SIDE = 1 << 15


def load_frames(
    source: str | PathLike[str],
    *,
    shape: tuple[int, int, int] | None = None,
    every: int = 1,
    most: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Bytes:
    """Frames from a folder of images or an `.npz` / `.npy` file.

    Parameters
    ----------
    source : path
        A folder is read in natural order of names (frame2 before frame10). Arrays hold uint8 or values in [0, 1]; an
        archive has one array, or one called "frames".
    shape : tuple, optional
        (height, width, channels) to resize to; without it all frames must agree.
    every : int
        Every `every`-th frame is kept,
    most : int, optional
        at most so many.
    limits : Limits

    Returns
    -------
    ndarray (n, height, width, channels), uint8

    Raises
    ------
    InputError
        If there are no frames, or they do not agree.
    """
    every, limits = integer(every, "every", low=1), started(limits)
    most = None if most is None else integer(most, "most", low=1)
    if shape is not None:
        shape = tuple(integer(n, "shape", low=1) for n in several(shape, "shape", "three whole numbers"))  # type: ignore[assignment]
        if len(shape) != 3:
            raise InputError(f"shape must be (height, width, channels), got {shape}")
    path = as_path(source, "source")
    if path.is_dir():
        names = sorted((p for p in path.iterdir() if p.suffix.lower() in _SUFFIXES), key=_natural)[::every][:most]
        if not names:
            raise InputError(f"{path} holds no images ({', '.join(_SUFFIXES)})")
        return _folder(names, shape, limits)
    if not path.exists():
        raise InputError(f"there is no folder or file {path} of images (in {Path.cwd()}); check the path")
    if path.suffix.lower() not in (".npz", ".npy"):
        raise InputError(f"{path.name}: frames come from a folder of images, an .npz or an .npy file")
    array = _archived(path, limits)[::every][:most]
    return array if shape is None else _channels(resize(array, shape[:2]), shape[2])


def resize(images: Any, size: tuple[int, int]) -> Bytes:
    """Images resized to (height, width), averaging when made smaller.

    Parameters
    ----------
    images : array_like (n, height, width, channels)
        uint8 or in [0, 1].
    size : tuple

    Returns
    -------
    ndarray (n, *size, channels), uint8

    Examples
    --------
    >>> import numpy as np
    >>> resize(np.full((1, 4, 4, 3), 255, np.uint8), (2, 2))[0, 0, 0].tolist()
    [255, 255, 255]
    """
    image = require("PIL.Image", "plot")
    array, size = as_bytes(images), picture_size(size)
    if not array.size:
        raise InputError(f"images must not be empty, got {describe(images)}")
    if array.shape[1:3] == size:
        return array
    out = []
    for one in array:
        planes = [
            image.fromarray(np.ascontiguousarray(one[:, :, c])).resize((size[1], size[0]), image.Resampling.BICUBIC)
            for c in range(one.shape[2])
        ]
        out.append(np.stack([np.asarray(p) for p in planes], -1))
    return np.stack(out)


def picture_size(size: Any) -> tuple[int, int]:
    """(height, width) in pixels."""
    sides = tuple(integer(n, "size", low=1, high=_LONGEST_SIDE) for n in several(size, "size", "two whole numbers"))
    if len(sides) != 2:
        raise InputError(f"size must be (height, width), got {describe(size)}")
    return sides[0], sides[1]


def as_bytes(images: Any, name: str = "images") -> Bytes:
    """Images as uint8 (n, h, w, c); floats are taken as [0, 1] and clipped; grey images get a channel axis."""
    array = any_array(images, name, "numbers of shape (n, height, width, channels)")
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be numbers of shape (n, height, width, channels), got {describe(images)}")
    if array.dtype == np.uint8 or not array.size:
        return array.astype(np.uint8, copy=False)
    out = np.empty(array.shape, np.uint8)
    for one, plane in zip(array.reshape(-1, *array.shape[2:]), out.reshape(-1, *array.shape[2:]), strict=True):
        values = one.astype(np.float64)  # a row of a picture at a time: doubles of all would take eight times the room
        if not np.isfinite(values).all():
            raise InputError(f"{name} must be finite, got NaN or infinity")
        plane[...] = np.clip(np.rint(values * 255), 0, 255)
    return out


def data_uri(picture: Bytes, kind: str = "PNG", quality: int = 70) -> str:
    """One picture (h, w) or (h, w, 3) as a `data:` address."""
    image = require("PIL.Image", "plot")
    if picture.ndim == 3 and picture.shape[2] == 1:
        picture = picture[:, :, 0]
    memory = io.BytesIO()
    options = {"quality": quality} if kind == "JPEG" else {"optimize": True}
    image.fromarray(np.ascontiguousarray(picture)).save(memory, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(memory.getvalue()).decode('ascii')}"


def sprite(frames: Bytes, columns: int) -> Bytes:
    """Frames side by side in rows of `columns`, as one RGB picture."""
    n, h, w, c = frames.shape
    rows = -(-n // columns)
    sheet = np.zeros((rows * columns, h, w, 3), np.uint8)
    sheet[:n] = frames if c == 3 else np.repeat(frames[..., :1], 3, -1)
    return sheet.reshape(rows, columns, h, w, 3).swapaxes(1, 2).reshape(rows * h, columns * w, 3)


def _natural(path: Path) -> list[Any]:
    return [(0, int(part), "") if _DIGITS.fullmatch(part) else (1, 0, part) for part in _DIGITS.split(path.name)]


def _folder(names: list[Path], shape: tuple[int, int, int] | None, limits: Limits) -> Bytes:
    """All images, in one array that is made once the first of them is known."""
    first = _decoded(names[0], shape, limits)
    limits.check("file_bytes", first.size * len(names), f"{names[0].parent}, decoded,")
    out = np.empty((len(names), *first.shape), np.uint8)
    out[0] = first
    for i, name in enumerate(names[1:], start=1):
        one = _decoded(name, shape, limits)
        if one.shape != first.shape:
            raise InputError(
                f"images differ in size: {names[0].name} is {first.shape}, {name.name} is not; pass shape="
            )
        out[i] = one
    return out


def _decoded(path: Path, shape: tuple[int, int, int] | None, limits: Limits) -> Bytes:
    image = require("PIL.Image", "plot")
    content = read_bytes(path, limits=limits)
    try:
        # Only the formats of the endings above: others may start programs or unpack without end.
        with image.open(io.BytesIO(content), formats=_FORMATS) as opened:
            if opened.width * opened.height > _PIXELS:
                raise InputLimitError(f"{path.name} has {opened.width}x{opened.height} pixels, more than {_PIXELS:,}")
            grey = (shape is not None and shape[2] == 1) or (shape is None and opened.mode in ("1", "L", "I;16"))
            converted = opened.convert("L" if grey else "RGB")
            if shape is not None:
                converted = converted.resize((shape[1], shape[0]), image.Resampling.BICUBIC)
            array = np.asarray(converted)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path.name} is not an image that can be read") from error
    return array[..., None] if array.ndim == 2 else array


def _archived(path: Path, limits: Limits) -> Bytes:
    if path.suffix.lower() == ".npy":
        return as_bytes(read_npy(path, limits))
    arrays = read_npz(path, limits)
    if len(arrays) != 1 and "frames" not in arrays:
        raise InputError(f"{path.name} holds {sorted(arrays)[:8]}; one array, or one called 'frames', is expected")
    return as_bytes(arrays["frames"] if "frames" in arrays else next(iter(arrays.values())))


def _channels(images: Bytes, count: int) -> Bytes:
    if images.shape[-1] == count:
        return images
    if images.shape[-1] == 1:
        return np.repeat(images, count, -1)
    if count == 1:
        return np.rint(images.mean(-1, keepdims=True)).astype(np.uint8)
    return images[..., :count]
