"""Rows grouped by activation pattern, without ever holding all patterns in full.

A pattern is kept as its packed bits in 64-bit words. Rows are grouped by a 64-bit hash of the words; words are compared
afterwards, so a collision of hashes costs time and never correctness.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from reluscope._check import FloatArray
from reluscope.network import Network, Pattern
from reluscope.workers import jobs_at_hand, on_cluster, run

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_SALT = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def trace(net: Network, rows: FloatArray) -> tuple[Pattern, FloatArray]:
    """Patterns (n, units) and outputs (n, outputs) of rows in one forward pass."""
    pattern = np.empty((len(rows), net.n_units), dtype=np.uint8)
    z = rows
    for i, layer in enumerate(net.hidden):
        h = layer.affine(z)
        pattern[:, net.offsets[i] : net.offsets[i + 1]] = layer.units.pattern(h)
        z = layer.units(h)
    return pattern, net.layers[-1].affine(z)


def pack(net: Network, pattern: Pattern) -> Words:
    """Patterns as rows of 64-bit words, shape (n, words); units with one piece take no bits."""
    keys = net.key(pattern)
    width = keys.dtype.itemsize
    words = np.zeros((len(keys), -(-width // 8) * 8), dtype=np.uint8)
    words[:, :width] = keys.view(np.uint8).reshape(len(keys), width)
    return words.view(np.uint64)


def unpack(net: Network, words: Words) -> Pattern:
    """The patterns that `pack` packed, shape (n, units)."""
    planes = [
        np.flatnonzero(net.pieces > 1 << k) for k in range(int(net.pieces.max(initial=1) - 1).bit_length())
    ]  # the order in which `Network.key` writes its bits
    total = sum(len(plane) for plane in planes)
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, count=total) if total else None
    if bits is not None and len(planes) == 1 and total == net.n_units:
        return bits  # as they are
    pattern = np.zeros((len(words), net.n_units), dtype=np.uint8)
    start = 0
    for k, plane in enumerate(planes):
        assert bits is not None
        pattern[:, plane] |= bits[:, start : start + len(plane)] << k
        start += len(plane)
    return pattern


def hashes(words: Words) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each row of words."""
    total = np.full(len(words), _SALT, dtype=np.uint64)
    for k in range(words.shape[1]):
        total ^= words[:, k]
        total *= _MIX
        total ^= total >> np.uint64(29)
        total += _SALT
    total *= _MIX
    return total ^ (total >> np.uint64(32))


class Groups(NamedTuple):
    """Groups of rows, numbered by size, then by first row."""

    member: Index
    """The group of each row."""
    first: Index
    """The first row of each group."""
    rows: Index
    """All rows, by group and then by number."""


def group(words: Words) -> Groups:
    """Rows with the same words together."""
    n = len(words)
    hashed = hashes(words)
    order = _by_top_bits(hashed)
    new = None if order is None else _begins(words, order, hashed >> np.uint64(64 - _TOP_BITS))
    if order is None or new is None:
        order = np.argsort(hashed, kind="stable")
        new = _begins(words, order, hashed)
    if new is None:  # two patterns with one hash: sort the words themselves
        order = np.lexsort((np.arange(n), *words.T))
        new = np.ones(n, dtype=bool)
        new[1:] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    return _numbered(order, new)


def _numbered(order: Index, new: npt.NDArray[np.bool_]) -> Groups:
    """Groups of rows in an order in which each is together, with its earliest row first (there `new` is true)."""
    n = len(order)
    cuts = [0, n]
    if n >= _MANY and not on_cluster():
        # Each worker has some groups to itself.
        cuts = [0, *(c + int(new[c:].argmax()) for c in range(n // _PARTS, n, n // _PARTS) if new[c:].any()), n]
    parts = list(itertools.pairwise(cuts))
    size = np.zeros(n, dtype=np.int64)  # of the group that begins in a row
    _share(lambda part: _measure(order, new, *part, size), parts)
    number, first, begin = _rank(size)
    member, rows = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    _share(lambda part: _sort_in(order, new, *part, number, begin, member, rows), parts)
    return Groups(member, first, rows)


def _share(work: Callable[[Any], None], parts: Sequence[Any]) -> None:
    """Work on parts of arrays in memory: by threads, or where there is one part by this one."""
    for _ in map(work, parts) if len(parts) == 1 else run(work, parts, jobs=jobs_at_hand()):
        pass


@njit(cache=True, nogil=True, error_model="numpy")
def _measure(order, new, start, stop, size):  # type: ignore[no-untyped-def]
    """Sizes of the groups in a part of the order, each at its first row."""
    begin = start
    for i in range(start + 1, stop + 1):
        if i == stop or new[i]:
            if begin < stop:
                size[order[begin]] = i - begin
            begin = i


@njit(cache=True, nogil=True, error_model="numpy")
def _rank(size):  # type: ignore[no-untyped-def]
    """The number of the group that begins in a row, the first row of each group, and the rows of groups before it."""
    n, n_groups, largest = len(size), 0, 0
    for r in range(n):
        largest = max(largest, size[r])
    place = np.zeros(largest + 1, dtype=np.int64)  # the next number of a group of a size: larger ones come before
    for r in range(n):
        if size[r] > 0:
            place[size[r]] += 1
            n_groups += 1
    before = rows = 0
    first = np.empty(n_groups, dtype=np.int64)
    begin = np.empty(n_groups, dtype=np.int64)
    for s in range(len(place) - 1, 0, -1):
        alike, place[s] = place[s], before
        for g in range(before, before + alike):
            begin[g] = rows
            rows += s
        before += alike
    number = np.empty(n, dtype=np.int64)
    for r in range(n):
        s = size[r]
        if s > 0:
            number[r] = place[s]
            first[place[s]] = r
            place[s] += 1
    return number, first, begin


@njit(cache=True, nogil=True, error_model="numpy")
def _sort_in(order, new, start, stop, number, begin, member, rows):  # type: ignore[no-untyped-def]
    """A part of the order: the group of each row, and the rows of each group."""
    g = at = 0
    for i in range(start, stop):
        if i == start or new[i]:
            g = number[order[i]]
            at = begin[g]
        member[order[i]] = g
        rows[at] = order[i]
        at += 1


_TOP_BITS = 43


def _by_top_bits(hashed: npt.NDArray[np.uint64]) -> Index | None:
    """Rows by the top bits of their hashes, then by number: plain numbers are sorted several times faster than rows.

    None for more rows than the other bits can number.
    """
    low = np.uint64((1 << (64 - _TOP_BITS)) - 1)
    if len(hashed) > int(low):
        return None
    return (_sorted((hashed & ~low) | np.arange(len(hashed), dtype=np.uint64)) & low).astype(np.int64)


_PARTS = 16
"""Parts of rows that are sorted and grouped by one worker each."""

_MANY = 1 << 16
"""Rows from which on that is done in parts."""


def _sorted(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Evenly spread numbers, sorted: those with the same top four bits by one worker each."""
    if len(keys) < _MANY or on_cluster():
        return np.sort(keys)
    part = (keys >> np.uint64(60)).astype(np.uint8)
    ends = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=_PARTS))])
    out = np.empty_like(keys)

    def sort(k: int) -> None:
        mine = keys[part == k]
        mine.sort()
        out[ends[k] : ends[k + 1]] = mine

    _share(sort, range(_PARTS))
    return out


def _begins(words: Words, order: Index, key: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_] | None:
    """Where a new key begins among rows in the order of their keys; None if two patterns have one key."""
    new = np.ones(len(order), dtype=bool)
    key = key[order]
    new[1:] = key[1:] != key[:-1]
    same = np.flatnonzero(~new)
    return None if (words[order[same]] != words[order[same - 1]]).any() else new


@dataclass(frozen=True, eq=False)
class Lookup:
    """Finds patterns among known ones (rows of words)."""

    words: Words

    @cached_property
    def _sorted(self) -> tuple[npt.NDArray[np.uint64], Index]:
        hashed = hashes(self.words)
        order = np.argsort(hashed, kind="stable")
        return hashed[order], order

    def find(self, words: Words) -> Index:
        """Index of each row among the known ones; -1 where it is not known."""
        known, order = self._sorted
        wanted = hashes(words)
        found = np.full(len(words), -1, dtype=np.int64)
        if not len(known):
            return found
        place = np.searchsorted(known, wanted)
        open_ = np.arange(len(words))
        while len(open_):  # a second round only when two patterns share a hash
            open_ = open_[place[open_] < len(known)]
            open_ = open_[known[place[open_]] == wanted[open_]]
            candidate = order[place[open_]]
            hit = (self.words[candidate] == words[open_]).all(axis=1)
            found[open_[hit]] = candidate[hit]
            open_ = open_[~hit]
            place[open_] += 1
        return found


def spans(n: int, size: int) -> Any:
    """Slices of at most `size` rows that cover `range(n)`."""
    return (slice(i, min(i + size, n)) for i in range(0, n, max(size, 1)))
