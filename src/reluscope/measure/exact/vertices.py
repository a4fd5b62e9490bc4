"""Many cells as one array of vertices: what the kernels take for granted is checked here."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, describe, real_array
from reluscope.errors import InputError

_NUMBERS = {2: "two", 3: "three"}


def checked_vertices(
    vertices: Any, offsets: Any, noun: str, axes: tuple[str, ...], *, far: float
) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """The vertices (V, d) of many cells and their offsets (n + 1,): cell i owns vertices[offsets[i]:offsets[i + 1]]."""
    points = real_array(vertices, "vertices", ndim=2)
    if points.shape[1] != len(axes):
        raise InputError(
            f"vertices must have {_NUMBERS[len(axes)]} columns ({', '.join(axes)}), got shape {points.shape}"
        )
    if points.size and np.abs(points).max() > far:
        raise InputError(
            f"vertices must be within {far:g} standard deviations, got {np.abs(points).max():.3g}; clip "
            "unbounded cells to a box of +-40: the mass outside is below 1e-300"
        )
    starts = np.asarray(offsets)
    if starts.ndim != 1 or starts.size < 1 or starts.dtype.kind not in "iu":
        raise InputError(
            f"offsets must be a 1-D array of whole numbers, one more than there are {noun}s, got {describe(offsets)}"
        )
    starts = np.ascontiguousarray(starts, dtype=np.int64)
    if starts[0] != 0 or starts[-1] != len(points) or (np.diff(starts) < 0).any():
        raise InputError(
            f"offsets must rise from 0 to the number of vertices ({len(points)}), "
            f"got {int(starts[0])} to {int(starts[-1])}; {noun} i owns vertices[offsets[i]:offsets[i + 1]]"
        )
    return points, starts
