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

from reluscope._kernels import kernel
from reluscope.network import Network, Pattern
from reluscope.workers import jobs_at_hand, on_cluster, run

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_SALT = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def pack(net: Network, pattern: Pattern) -> Words:
    """Patterns as rows of 64-bit words, shape (n, words); units with one piece take no bits."""
    keys = net.key(pattern)
    width = keys.dtype.itemsize
    words = np.zeros((len(keys), -(-width // 8) * 8), dtype=np.uint8)
    words[:, :width] = keys.view(np.uint8).reshape(len(keys), width)
    return words.view(np.uint64)


def n_words(net: Network) -> int:
    """The words that a pattern takes."""
    return pack(net, np.zeros((1, net.n_units), np.uint8)).shape[1]


def unpack(net: Network, words: Words) -> Pattern:
    """The patterns that `pack` packed, shape (n, units)."""
    planes = [
        np.flatnonzero(net.pieces > 1 << k) for k in range(int(net.pieces.max(initial=1) - 1).bit_length())
    ]  # the order in which `Network.key` writes its bits
    total = sum(len(plane) for plane in planes)
    # One run of bits: row by row it takes longer, and holds up other threads.
    run_of_bits = np.unpackbits(np.ascontiguousarray(words).reshape(-1).view(np.uint8))
    bits = run_of_bits.reshape(len(words), 64 * words.shape[1])
    if len(planes) == 1 and total == net.n_units:
        return np.ascontiguousarray(bits[:, :total])  # as they are
    pattern = np.zeros((len(words), net.n_units), dtype=np.uint8)
    start = 0
    for k, plane in enumerate(planes):
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
    """Rows with the same words together. Cost: a few passes over the rows."""
    n = len(words)
    hashed = hashes(words)
    # Each worker has some groups to itself: equal words have equal hashes.
    order, ends = _deal(hashed, _PART_BITS if n >= _MANY else 0)
    parts = list(itertools.pairwise(ends.tolist()))
    leader, size = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    _share(lambda part: _find_leaders(words, hashed, order[part[0] : part[1]], leader, size), parts)
    number, first, place = _rank(size)
    member, rows = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    _share(lambda part: _sort_in(order[part[0] : part[1]], leader, number, place, member, rows), parts)
    return Groups(member, first, rows)


_PART_BITS = 4
"""Rows with the same top bits of the hash are a part, sorted and grouped by one worker."""

_MANY = 1 << 16
"""Rows from which on that is done in parts."""


def _share(work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Work on parts of arrays in memory: by threads, or where there is one part, or a cluster, by this one."""
    return list(map(work, parts) if len(parts) == 1 or on_cluster() else run(work, parts, jobs=jobs_at_hand()))


@kernel
def _deal(hashed, bits):  # type: ignore[no-untyped-def]
    """All rows by the top bits of their hashes, in their order, and where each part begins and the last one ends."""
    shift = np.uint64(63 - bits)
    ends = np.zeros((1 << bits) + 1, dtype=np.int64)
    for r in range(len(hashed)):
        ends[1 + np.int64((hashed[r] >> np.uint64(1)) >> shift)] += 1
    for k in range(1 << bits):
        ends[k + 1] += ends[k]
    place = ends[:-1].copy()
    order = np.empty(len(hashed), dtype=np.int64)
    for r in range(len(hashed)):
        part = np.int64((hashed[r] >> np.uint64(1)) >> shift)
        order[place[part]] = r
        place[part] += 1
    return order, ends


@kernel
def _find_leaders(words, hashed, order, leader, size):  # type: ignore[no-untyped-def]
    """The first row with the words of each of some rows, and the number of such rows there (0 at the others)."""
    n_slots = 2
    while n_slots < 2 * len(order):
        n_slots *= 2
    table = np.full(n_slots, -1, dtype=np.int64)
    for r in order:
        slot = np.int64(hashed[r]) & (n_slots - 1)
        while True:
            first = table[slot]
            if first < 0:
                table[slot] = first = r
                break
            if hashed[first] == hashed[r]:
                alike = True
                for k in range(words.shape[1]):
                    if words[first, k] != words[r, k]:
                        alike = False
                if alike:
                    break
            slot = (slot + 1) & (n_slots - 1)
        leader[r] = first
        size[first] += 1


@kernel
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


@kernel
def _sort_in(order, leader, number, place, member, rows):  # type: ignore[no-untyped-def]
    """The group of some rows, and where each goes among all rows by group: `place` has the next place of each group."""
    for r in order:
        g = number[leader[r]]
        member[r] = g
        rows[place[g]] = r
        place[g] += 1


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
