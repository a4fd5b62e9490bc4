"""What pictures of rows in the plane share: which part of it to show, and what its axes are called."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray
from reluscope.cells.domain import box_bounds
from reluscope.schema import Label, input_labels

if TYPE_CHECKING:
    from reluscope.local_models.unwrap import Unwrapped


def data_view(u: Unwrapped, view: Any) -> tuple[FloatArray, FloatArray]:
    """The rectangle to draw: `view` if given, else the box of the data and a little beyond."""
    if view is not None:
        return box_bounds(view, 2, "view")
    from reluscope.local_models.coverage import data_box

    low, high = data_box(u)
    margin = 0.04 * np.maximum(high - low, 1e-9)
    return low - margin, high + margin


def feature_labels(u: Unwrapped) -> list[Label]:
    """What each input is called, with its unit."""
    known = input_labels(u.network.schema, u.network.n_inputs)
    return [replace(label, name=name) for label, name in zip(known, u.feature_names, strict=True)]
