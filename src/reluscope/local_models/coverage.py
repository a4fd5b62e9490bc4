"""Where there were no data: how many regions the data's box has, and how much of it no row informs.

The box is the smallest one that holds the rows (or one that is given). When its regions can be enumerated within the
budget, their number is exact, and with up to six varying inputs so is the share of volume in regions without
data. Otherwise the share is estimated from uniform draws, with a Clopper-Pearson interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, integer, real, seeded
from reluscope._text import percent, percent_ends
from reluscope.answer import Answer
from reluscope.cells.domain import box_bounds
from reluscope.cells.regions import Regions, uninterrupted
from reluscope.intervals import binomial
from reluscope.local_models._data import read
from reluscope.local_models._grouping import pack, spans
from reluscope.network import Network

if TYPE_CHECKING:
    from reluscope.local_models.unwrap import Unwrapped

_MOST_VOLUME_INPUTS = 5
"""Up to here volumes of all regions are quick."""

_MOST_LISTED_INPUTS = 8
"""Above this the regions of a box are too many to try."""


@dataclass(frozen=True, eq=False)
class Coverage:
    """How much of a box, and of new rows, lies in regions without data.

    Attributes
    ----------
    box : (lower, upper)
        The box, each side of shape (inputs,).
    n_regions : int or None
        Exact number of regions in the box; None when they were not all listed.
    listed_regions : int
        Regions that were listed: all of them, or as many as the budget allowed.
    seen_regions : int
        Regions with data that meet the inside of the box.
    unseen_volume : Answer
        Share of the box's volume in regions without data.
    unseen_rows : float or None
        Share of the new rows in regions without data; None if no rows were given.
    unseen : (n,) bool or None
        The same for each new row.
    stopped : str or None
        Why the regions were not all listed.
    seed : int or None
        `rng=seed` repeats the draws; None if there were none, or a Generator was given.
    """

    box: tuple[FloatArray, FloatArray]
    n_regions: int | None
    listed_regions: int
    seen_regions: int
    unseen_volume: Answer
    unseen_rows: float | None
    unseen: npt.NDArray[np.bool_] | None
    stopped: str | None
    seed: int | None = None

    def __str__(self) -> str:
        volume = self.unseen_volume
        about = "" if volume.guarantee == "exact" else "about "
        text = f"{about}{percent(volume.value, 2)} of the box of the data lies in regions without data"
        if volume.guarantee != "exact":
            text += f" (between {' and '.join(percent_ends(volume.lower, volume.upper, 2))})"
        if self.n_regions is not None:
            text += f"; {self.seen_regions:,} of its {self.n_regions:,} regions hold data"
        elif self.listed_regions:
            text += f"; it has more than {self.listed_regions:,} regions ({self.stopped})"
        else:
            text += f"; its regions were not counted: {self.stopped}"
        if self.unseen_rows is not None:
            text += f"; {percent(self.unseen_rows, 2)} of the new rows lie in regions without data"
        return text


def data_box(u: Unwrapped) -> tuple[FloatArray, FloatArray]:
    """The smallest box that holds the rows."""
    low, high = np.full(u.network.n_inputs, np.inf), np.full(u.network.n_inputs, -np.inf)
    for rows in spans(len(u.region), 8192):
        part = read(u.X, rows)
        low, high = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0))
    return low, high


def restricted(net: Network, low: FloatArray, high: FloatArray) -> tuple[Network, npt.NDArray[np.int64]]:
    """The network as a function of the inputs that vary in the box, the others held; and which those are."""
    varying = np.flatnonzero(high > low)
    if len(varying) == net.n_inputs:
        return net, varying
    A = np.zeros((net.n_inputs, len(varying)))
    A[varying, np.arange(len(varying))] = 1.0
    held = np.where(high > low, 0.0, low)
    return net.after(A, held), varying


def box_regions(
    u: Unwrapped, box: tuple[FloatArray, FloatArray], budget: Any, progress: Any = None
) -> tuple[Regions | None, npt.NDArray[np.int64]]:
    """The regions of the box as far as the budget goes (None: not tried), and the inputs that vary in it."""
    net, varying = restricted(u.network, *box)
    if not 0 < len(varying) <= _MOST_LISTED_INPUTS:
        return None, varying
    found = uninterrupted(net, (box[0][varying], box[1][varying]), budget=budget, progress=progress)
    return found, varying


def coverage(
    u: Unwrapped,
    X: Any,
    *,
    box: Any,
    draws: int,
    level: float,
    budget: Any,
    rng: Any,
    progress: Any,
) -> Coverage:
    """How much of a box, and of new rows, lies in regions without data."""
    bounds = data_box(u) if box is None else box_bounds(box, u.network.n_inputs)
    draws = integer(draws, "draws", low=1)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    generator, seed = seeded(rng)
    listed, varying = box_regions(u, bounds, "10s" if budget is None else budget, progress)
    unseen = None if X is None else u._assign(u._rows(X))[0] < 0
    rows = None if unseen is None else float(unseen.mean())
    if listed is None:
        share = _drawn(u, bounds, draws, level, generator)
        reason = "no input varies" if not len(varying) else f"{len(varying)} inputs that vary are too many"
        return Coverage(bounds, None, 0, len(u), share, rows, unseen, reason, seed)
    known = u._lookup.find(pack(listed.network, listed.pattern)) >= 0
    seen = len(u) if not listed.complete else int(known.sum())
    if listed.complete and len(varying) <= _MOST_VOLUME_INPUTS:
        volume = listed.volume
        value = float(volume[~known].sum() / volume.sum())
        slack = 1e-12
        share = Answer(value, max(0.0, value - slack), min(1.0, value + slack), "exact", method="volumes")
    else:
        share = _drawn(u, bounds, draws, level, generator)
    count = len(listed) if listed.complete else None
    used = seed if share.guarantee == "confidence" else None
    return Coverage(bounds, count, len(listed), seen, share, rows, unseen, listed.reason, used)


def _drawn(
    u: Unwrapped, box: tuple[FloatArray, FloatArray], draws: int, level: float, rng: np.random.Generator
) -> Answer:
    hits = 0
    for part in spans(draws, 4096):
        x = rng.uniform(box[0], box[1], size=(part.stop - part.start, u.network.n_inputs))
        hits += int((u._assign(x)[0] < 0).sum())
    lower, upper = binomial(hits, draws, level)
    method = f"{draws:,} uniform draws"
    return Answer(hits / draws, lower, upper, "confidence", level, method)
