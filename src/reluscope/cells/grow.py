"""Buffers of kernels that grow.

They are copied element by element: a slice assigned to a slice compiles numba's error message too, which takes three
seconds.
"""

from __future__ import annotations

import numpy as np

from reluscope._kernels import inner


@inner
def grow_rows(a, need):  # type: ignore[no-untyped-def]
    """A matrix with the rows of `a` and room for at least `need`, twice as many as there were."""
    out = np.empty((max(need, 2 * len(a)), a.shape[1]), a.dtype)
    for i in range(len(a)):
        for q in range(a.shape[1]):
            out[i, q] = a[i, q]
    return out


@inner
def grow(a, need):  # type: ignore[no-untyped-def]
    """A vector with the entries of `a` and room for at least `need`, twice as many as there were."""
    out = np.empty(max(need, 2 * len(a)), a.dtype)
    for i in range(len(a)):
        out[i] = a[i]
    return out
