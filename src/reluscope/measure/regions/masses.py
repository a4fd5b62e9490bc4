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
from reluscope.answer import Answers, Status
from reluscope.errors import InputError
from reluscope.measure.checkpoint import MASSES, Checkpoint, checkpoint_at_hand
from reluscope.measure.exactness import MOST_VOLUME_DIMENSIONS
from reluscope.progress import Report
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
    weakest = weaker(*(p.guarantee for p in parts))
    levels = [p.level for p in parts if p.level is not None]
    late = next((p for p in parts if not p.complete), parts[0])
    return Answers(
        np.sum([p.value for p in parts], axis=0),
        np.sum([p.lower for p in parts], axis=0),
        np.minimum(np.sum([p.upper for p in parts], axis=0), 1.0),
        weakest,
        # By the union bound the sum's interval misses with at most the sum of the parts' probabilities.
        max(0.0, 1.0 - sum(1.0 - x for x in levels)) if levels else None,
        note=late.note,
        status=late.status,
    )


_WEAKNESS = {"exact": 0, "sound": 1, "confidence": 2}


def weaker(*guarantees: str) -> str:
    """What holds of numbers that are made of others."""
    return max(guarantees, key=_WEAKNESS.__getitem__)


def exact(value: FloatArray, error: FloatArray) -> Answers:
    """Masses whose rounding (or quadrature) error is bounded by `error`."""
    return Answers(value, np.maximum(value - error, 0.0), np.minimum(value + error, 1.0), "exact")


def unmeasured(n: int, most: float, done: int, total: int) -> Answers:
    """What Ctrl-C leaves of cells that share at most the mass `most`."""
    words = f"interrupted: {done:,} of {total:,} cells measured"
    none = np.zeros(n)
    return Answers(none, none.copy(), np.full(n, most), "sound", note=words, status=Status.INTERRUPTED)


def gaussian_masses(
    cells: Any, report: Report | None = None, place: Callable[[Any], Any] = lambda part: part
) -> Answers:
    """Masses of cells in up to three dimensions under N(0, I) in the cells' own coordinates, exactly.

    With somebody to report to, Ctrl-C leaves those that were measured before; the others share what is left of 1.
    `place` puts some cells of two or three dimensions into those coordinates.
    """
    if cells.dimension == 1:
        from reluscope.measure.exact import interval_mass

        value = interval_mass(cells.low, cells.high)
        return exact(value, 1e-12 * value)
    file = checkpoint_at_hand(MASSES)
    if cells.dimension == 2:
        from reluscope.measure.exact import polygon_mass

        return _in_parts(lambda part: polygon_mass(*_outlines(place(part))), cells, _AT_ONCE_FLAT, report, file)
    from reluscope.measure.exact import polyhedra_mass

    _bounded(cells)
    # In portions, between which Ctrl-C comes through.
    return _in_parts(lambda part: polyhedra_mass(place(part).points, part.offsets), cells, _AT_ONCE, report, file)


def _in_parts(
    measure: Callable[[Any], tuple[FloatArray, FloatArray]],
    cells: Any,
    size: int,
    report: Report | None,
    file: Checkpoint | None,
) -> Answers:
    """The masses of all cells, so many at a time, by the workers of the call at hand."""
    n = len(cells)
    if n <= size:
        return exact(*measure(cells))
    value, error, done = np.zeros(n), np.zeros(n), 0
    key = "" if file is None else file.next_key()
    kept = None if file is None else file.states.get(key)
    if kept is not None:
        if len(kept["value"]) != n or len(kept["lower"]) != n or len(kept["done"]) != 1:
            raise InputError("checkpoint is damaged: it has another number of regions; remove it to begin anew")
        value, error, done = kept["value"].copy(), kept["lower"].copy(), int(np.clip(kept["done"][0], 0, n))

    def save() -> None:
        assert file is not None
        none = np.zeros(0)
        arrays = dict.fromkeys(MASSES.fields, none) | {"value": value.copy(), "lower": error.copy()}
        file.states[key] = arrays | {"turn": np.zeros(1), "done": np.array([float(done)])}
        file.save()

    parts = (cells.part(i, min(i + size, n)) for i in range(done, n, size))
    try:
        for mine, slack in run(measure, parts, jobs=jobs_at_hand()):
            value[done : done + len(mine)], error[done : done + len(mine)] = mine, slack
            done += len(mine)
            if file is not None and file.is_due():
                save()
            if report is not None:
                report(done, f"{done:,} of {n:,} cells measured")
    except KeyboardInterrupt:
        if done == 0 or report is None:
            raise
    finally:
        if file is not None:
            save()
    found = exact(value[:done], error[:done])
    if done == n:
        return found
    rest = unmeasured(n - done, min(1.0, max(0.0, 1.0 - float(found.lower.sum()) * (1.0 - n * EPS))), done, n)
    return replace(
        rest,
        value=np.concatenate([found.value, rest.value]),
        lower=np.concatenate([found.lower, rest.lower]),
        upper=np.concatenate([found.upper, rest.upper]),
    )


def uniform_masses(cells: Any, volume: float, report: Report | None = None) -> Answers:
    """Shares of the volume of a uniform law's box; `report` as in `gaussian_masses`."""
    d = cells.dimension
    if d > MOST_VOLUME_DIMENSIONS:
        raise InputError(
            f"volumes are computed for up to {MOST_VOLUME_DIMENSIONS} inputs, got {d}; "
            "reluscope.mass(A, b, law) gives one region's probability by counting draws"
        )

    def share(part: Any) -> tuple[FloatArray, FloatArray]:
        value = part.volumes() / volume
        if not np.isfinite(value).all():
            raise InputError("a region under a uniform law must be bounded; look for regions with law=")
        return value, 64 * EPS * d * value

    return _in_parts(share, cells, _AT_ONCE_FLAT, report, None) if d > 2 else exact(*share(cells))


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
        raise InputError("regions reach to infinity: look for them with law= or a box that holds the law")
