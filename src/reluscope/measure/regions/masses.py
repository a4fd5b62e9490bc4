"""Probability of cells: one door to the measures of every dimension.

A batch of cells in standard coordinates `u ~ N(0, I_r)` is measured by closed form (r = 1, 2), by quadrature over
slices (r = 3), or by tilted quasi-Monte Carlo (r >= 4); cells under a uniform law by their volume.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, describe
from reluscope._text import count
from reluscope.answer import Answer
from reluscope.errors import InputError

MOST_VOLUME_DIMENSIONS = 6
"""Up to here volumes are exact and quick; the number of vertices grows too fast above."""

MOST_EXACT_DIMENSIONS = 3
"""Up to here Gaussian masses are exact up to rounding; above, they are estimates with a confidence interval."""


@dataclass(frozen=True, eq=False, repr=False)
class Masses:
    """Masses of n cells: arrays `value`, `lower`, `upper`, and what they are (see `reluscope.answer`).

    With `guarantee="confidence"` each interval holds on its own with probability `level`. `masses[i]` and iteration
    give one `Answer` per cell, slices and index arrays give `Masses`, `numpy.asarray(masses)` the values. `stopped`
    says why the work ended before every cell had the accuracy asked for (None: it did not).
    """

    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    guarantee: str
    level: float | None = None
    stopped: str | None = None

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Answer]:
        return (self._answer(i) for i in range(len(self)))

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Answer: ...
    @overload
    def __getitem__(self, index: slice | npt.NDArray[Any] | list[int]) -> Masses: ...
    def __getitem__(self, index: Any) -> Answer | Masses:
        if isinstance(index, (slice, list, np.ndarray)):
            parts = self.value[index], self.lower[index], self.upper[index]
            return Masses(*parts, self.guarantee, self.level, self.stopped)
        if not hasattr(index, "__index__"):
            raise InputError(f"masses are indexed by whole numbers, slices or arrays, got {describe(index)}")
        if not -len(self) <= index < len(self):
            raise IndexError(f"cell {int(index)} does not exist: there are {len(self)}")
        return self._answer(int(index))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.value, dtype=dtype, copy=copy)

    @property
    def complete(self) -> bool:
        """Whether every cell has the accuracy asked for."""
        return self.stopped is None

    @property
    def total(self) -> Answer:
        """The mass of all cells together.

        Exact brackets add up. Errors of estimates are independent from cell to cell, so their half-widths add up as
        the root of the sum of squares; brackets of cells that were not measured add up in full.
        """
        value = math.fsum(self.value)
        down, up = self.value - self.lower, self.upper - self.value
        if self.guarantee == "confidence":
            known = self.value > 0
            below = math.sqrt(math.fsum(down[known] ** 2))
            above = math.sqrt(math.fsum(up[known] ** 2)) + math.fsum(up[~known])
        else:
            below, above = math.fsum(down), math.fsum(up)
        lower, upper = max(value - below, 0.0), min(value + above, 1.0)
        method = f"sum over {count(len(self), 'cell')}"
        return Answer(
            value, min(lower, value), max(upper, value), self.guarantee, self.level, method, self.stopped or ""
        )

    def __repr__(self) -> str:
        kind = self.guarantee if self.level is None else f"{self.guarantee} {100 * self.level:g} % each"
        state = "" if self.complete else f", incomplete: {self.stopped}"
        return f"Masses({count(len(self), 'cell')}, total {self.value.sum():.12g}, {kind}{state})"

    def _answer(self, i: int) -> Answer:
        ends = float(self.value[i]), float(self.lower[i]), float(self.upper[i])
        return Answer(*ends, self.guarantee, self.level, note=self.stopped or "")

    def scaled(self, factor: float) -> Masses:
        """All masses times a number known to rounding."""
        slack = 4 * EPS * factor
        return Masses(
            factor * self.value,
            np.maximum(factor * self.lower - slack * self.value, 0.0),
            factor * self.upper + slack * self.value,
            self.guarantee,
            self.level,
            self.stopped,
        )

    @staticmethod
    def added(parts: list[Masses]) -> Masses:
        """Sums over the components of a mixture, cell by cell; brackets add up (a safe bound for confidence too)."""
        weakest = next((p for p in parts if p.guarantee == "confidence"), parts[0])
        levels = [p.level for p in parts if p.level is not None]
        # By the union bound the sum's interval misses with at most the sum of the parts' probabilities.
        level = max(0.0, 1.0 - sum(1.0 - x for x in levels)) if levels else None
        return Masses(
            np.sum([p.value for p in parts], axis=0),
            np.sum([p.lower for p in parts], axis=0),
            np.minimum(np.sum([p.upper for p in parts], axis=0), 1.0),
            weakest.guarantee,
            level,
            next((p.stopped for p in parts if p.stopped is not None), None),
        )


def exact(value: FloatArray, error: FloatArray) -> Masses:
    """Masses whose rounding (or quadrature) error is bounded by `error`."""
    return Masses(value, np.maximum(value - error, 0.0), np.minimum(value + error, 1.0), "exact")


def gaussian_masses(cells: Any) -> Masses:
    """Masses of cells in up to three dimensions under N(0, I) in the cells' own coordinates, exactly."""
    if cells.dimension == 1:
        from reluscope.measure.exact import interval_mass

        value = interval_mass(cells.low, cells.high)
        return exact(value, 1e-12 * value)
    if cells.dimension == 2:
        from reluscope.measure.exact import polygon_mass

        return exact(*polygon_mass(*_outlines(cells)))
    from reluscope.measure.exact import polyhedra_mass

    _bounded(cells)
    return exact(*polyhedra_mass(cells.points, cells.offsets))


def uniform_masses(cells: Any, volume: float) -> Masses:
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
