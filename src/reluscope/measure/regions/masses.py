"""Probability of cells: one door to the measures of every dimension.

A batch of cells in standard coordinates `u ~ N(0, I_r)` is measured by closed form (r = 1, 2), by quadrature over
slices (r = 3), or by tilted quasi-Monte Carlo (r >= 4); cells under a uniform law by their volume.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray
from reluscope.answer import Answers
from reluscope.errors import InputError
from reluscope.measure.exactness import MOST_VOLUME_DIMENSIONS
from reluscope.workers import jobs_at_hand, run

_AT_ONCE, _AT_ONCE_FLAT = 256, 2048
"""Cells of three and of two dimensions measured together: hundredths of a second."""


def scaled(masses: Answers, factor: float) -> Answers:
    """All masses times a number known to rounding."""
    slack = 4 * EPS * factor
    return replace(
        masses,
        value=factor * masses.value,
        lower=np.maximum(factor * masses.lower - slack * masses.value, 0.0),
        upper=factor * masses.upper + slack * masses.value,
    )


def added(parts: list[Answers]) -> Answers:
    """Sums over the components of a mixture, cell by cell; brackets add up (a safe bound for confidence too)."""
    weakest = next((p for p in parts if p.guarantee == "confidence"), parts[0])
    levels = [p.level for p in parts if p.level is not None]
    late = next((p for p in parts if not p.complete), parts[0])
    return Answers(
        np.sum([p.value for p in parts], axis=0),
        np.sum([p.lower for p in parts], axis=0),
        np.minimum(np.sum([p.upper for p in parts], axis=0), 1.0),
        weakest.guarantee,
        # By the union bound the sum's interval misses with at most the sum of the parts' probabilities.
        max(0.0, 1.0 - sum(1.0 - x for x in levels)) if levels else None,
        note=late.note,
        status=late.status,
    )


def exact(value: FloatArray, error: FloatArray) -> Answers:
    """Masses whose rounding (or quadrature) error is bounded by `error`."""
    return Answers(value, np.maximum(value - error, 0.0), np.minimum(value + error, 1.0), "exact")


def gaussian_masses(cells: Any) -> Answers:
    """Masses of cells in up to three dimensions under N(0, I) in the cells' own coordinates, exactly."""
    if cells.dimension == 1:
        from reluscope.measure.exact import interval_mass

        value = interval_mass(cells.low, cells.high)
        return exact(value, 1e-12 * value)
    if cells.dimension == 2:
        from reluscope.measure.exact import polygon_mass

        return exact(*_in_parts(lambda part: polygon_mass(*_outlines(part)), cells, _AT_ONCE_FLAT))
    from reluscope.measure.exact import polyhedra_mass

    _bounded(cells)
    # In portions, between which Ctrl-C comes through.
    return exact(*_in_parts(lambda part: polyhedra_mass(part.points, part.offsets), cells, _AT_ONCE))


def _in_parts(
    measure: Callable[[Any], tuple[FloatArray, FloatArray]], cells: Any, size: int
) -> tuple[FloatArray, FloatArray]:
    """Values and errors of all cells, so many at a time, by the workers of the call at hand."""
    if len(cells) <= size:
        return measure(cells)
    parts = (cells.part(i, min(i + size, len(cells))) for i in range(0, len(cells), size))
    found = list(run(measure, parts, jobs=jobs_at_hand()))
    return np.concatenate([value for value, _ in found]), np.concatenate([error for _, error in found])


def uniform_masses(cells: Any, volume: float) -> Answers:
    """Shares of the volume of a uniform law's box."""
    if cells.dimension > MOST_VOLUME_DIMENSIONS:
        raise InputError(
            f"volumes are computed for up to {MOST_VOLUME_DIMENSIONS} inputs, got {cells.dimension}; "
            "reluscope.mass(A, b, law) gives one region's probability by counting draws"
        )
    value = cells.volumes() / volume
    if not np.isfinite(value).all():
        raise InputError("a cell under a uniform law must be bounded; look for regions with law=")
    return exact(value, 64 * EPS * cells.dimension * value)


def _outlines(cells: Any) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Vertices of planar cells, counter-clockwise, and their offsets."""
    if not hasattr(cells, "rays"):
        return cells.points, cells.offsets
    _bounded(cells)  # cells with vertices in no order: sort each by angle
    owner = np.repeat(np.arange(len(cells)), np.diff(cells.offsets))
    arms = cells.points - cells.interior()[owner]
    return cells.points[np.lexsort((np.arctan2(arms[:, 1], arms[:, 0]), owner))], cells.offsets


def _bounded(cells: Any) -> None:
    rays: npt.NDArray[np.float64] = cells.rays
    if len(rays) and rays.any():
        raise InputError("cells reach to infinity: look for regions with law= or a box that holds the law")
