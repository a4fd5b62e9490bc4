"""Lists of different lengths stored back to back: entry i of the outer list is `values[offsets[i]:offsets[i + 1]]`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope.workers import at_once, jobs_at_hand, on_cluster

Index = npt.NDArray[np.int64]


def places(offsets: Index, rows: npt.NDArray[np.integer]) -> tuple[Index, Index]:
    """Where the values of some rows are, back to back, and the offsets of the list of those rows."""
    counts = offsets[rows + 1] - offsets[rows]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return np.arange(starts[-1]) - np.repeat(starts[:-1] - offsets[rows], counts), starts


def joined(parts: Sequence[Index]) -> Index:
    """The offsets of several lists one after the other."""
    starts = np.cumsum([0, *(p[-1] for p in parts)])
    return np.concatenate([*(p[:-1] + s for p, s in zip(parts, starts[:-1], strict=True)), starts[-1:]]).astype(
        np.int64
    )


_PORTION = 1 << 21
"""Bytes that one worker copies at a time."""


def stacked(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Arrays one after the other, copied by the workers of the call at hand."""
    jobs, size = jobs_at_hand(), sum(part.nbytes for part in parts)
    if jobs == 1 or size < 2 * _PORTION or on_cluster():
        return np.concatenate(parts)
    ends = np.cumsum([0, *(len(part) for part in parts)])
    out = np.empty((int(ends[-1]), *parts[0].shape[1:]), parts[0].dtype)
    filled = np.cumsum([0, *(part.nbytes for part in parts)])
    starts = np.unique(np.searchsorted(filled[:-1], np.arange(0, size, _PORTION)))

    def copy(place: tuple[int, int]) -> None:
        first, last = place
        np.concatenate(parts[first:last], out=out[ends[first] : ends[last]])

    places = itertools.pairwise([*starts[starts < len(parts)].tolist(), len(parts)])
    at_once([partial(copy, place) for place in places], jobs=jobs)
    return out


def rows_of(values: Index, offsets: Index, rows: Index) -> tuple[Index, Index]:
    """Some rows, back to back again, and their offsets."""
    place, starts = places(offsets, rows)
    return values[place], starts


def chains(values: Index, offsets: Index) -> Index:
    """Pairs of neighbours in each row , shape (2, pairs)."""
    inside = np.ones(max(len(values) - 1, 0), np.bool_)
    ends = offsets[1:-1] - 1
    inside[ends[(ends >= 0) & (ends < len(inside))]] = False
    return np.stack([values[:-1][inside], values[1:][inside]])
