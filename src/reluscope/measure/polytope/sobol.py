"""Scrambled Sobol points for compiled loops: a direction table from SciPy, a random scramble, and a small generator.

A Sobol point is an exclusive-or of direction numbers, so a scrambled sequence is just a scrambled table: the
random lower-triangular matrix (Matoušek's linear scramble) is applied once to the table and the random digital
shift once to the first point; each further point costs one exclusive-or per dimension.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from reluscope._lazy import late

DIGITS = 52
"""Binary digits of a point: all of a float64 fraction, so that a half-step offset keeps it inside (0, 1)."""

DirectionTable = npt.NDArray[np.uint64]


@lru_cache(maxsize=8)
def direction_table(dimensions: int, bits: int) -> DirectionTable:
    """Direction numbers of the first `dimensions` Sobol sequences, shape (dimensions, bits), leading digit 2**51.

    Enough for 2**bits points. Read off SciPy's unscrambled sequence: in Gray-code order, points 2**j - 1 and 2**j
    differ exactly by direction number j. The result is read-only and cached.
    """
    qmc = late("scipy.stats", "qmc")

    sequence = qmc.Sobol(dimensions, scramble=False, bits=30)
    table = np.zeros((dimensions, bits), dtype=np.uint64)
    before, after = sequence.random(1), sequence.random(1)
    for j in range(bits):
        if j == 1:
            before, after = after, sequence.random(1)
        elif j > 1:  # from just behind point 2**(j-1) to points 2**j - 1 and 2**j
            sequence.fast_forward((1 << (j - 1)) - 2)
            before, after = sequence.random(1), sequence.random(1)
        table[:, j] = ((before * 2.0**DIGITS).astype(np.uint64) ^ (after * 2.0**DIGITS).astype(np.uint64))[0]
    table.setflags(write=False)
    return table


@njit(cache=True, nogil=True)
def next_random(state: Any) -> Any:
    """Next 64 random bits of the splitmix64 generator whose state is `state[0]` (uint64, updated in place)."""
    state[0] = state[0] + np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def scramble(table: Any, dimensions: int, bits: int, state: Any, directions: Any, point: Any) -> None:
    """Write a randomly scrambled copy of `table` into `directions` and its first point into `point` (uint64)."""
    columns = np.empty(bits, dtype=np.uint64)
    top = np.uint64(1) << np.uint64(DIGITS - 1)
    for d in range(dimensions):
        for c in range(bits):  # column c of a unit lower-triangular random binary matrix
            lead = top >> np.uint64(c)
            columns[c] = lead | (next_random(state) & (lead - np.uint64(1)))
        for j in range(bits):
            word = table[d, j]
            mixed = np.uint64(0)
            for c in range(j + 1):
                if word & (top >> np.uint64(c)):
                    mixed ^= columns[c]
            directions[d, j] = mixed
        point[d] = next_random(state) >> np.uint64(64 - DIGITS)


@njit(cache=True, nogil=True)
def trailing_ones(index: int) -> int:
    """Position of the lowest zero bit of `index`: the direction number that leads from this point to the next."""
    j = 0
    while index & 1:
        index >>= 1
        j += 1
    return j
