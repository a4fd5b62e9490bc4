"""Orientation of the faces of a complex: boundary matrices with signs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from reluscope.errors import InputError


def boundary_matrices(incidence: list[Any]) -> tuple[Any, ...]:
    """Matrices (f_{k-1}, f_k) of -1 and 1 from the facets of all faces: `incidence[k - 1]` is (f_k, f_{k-1}), of ones.

    An edge runs from its first vertex to its second. The signs of a higher face's facets follow from one of them: where
    two meet in a ridge, they run through it in opposite directions. The product of two that follow is 0.
    """
    out: list[Any] = []
    for k, below in enumerate(incidence):
        signs = np.empty(len(below.indices), np.int8)
        if k == 0:
            signs[below.indptr[:-1]], signs[below.indptr[:-1] + 1] = -1, 1
        else:
            lower = out[-1].T.tocsr()  # facets of each facet, with signs
            start, ridges, sign = lower.indptr.tolist(), lower.indices.tolist(), lower.data.tolist()
            facets = below.indices.tolist()
            for a, b in pairwise(below.indptr.tolist()):
                _orient(facets, a, b, start, ridges, sign, signs)
        out.append(sparse.csr_array((signs, below.indices, below.indptr), shape=below.shape).T.tocsr())
    return tuple(out)


def _orient(
    facets: list[int], a: int, b: int, start: list[int], ridges: list[int], sign: list[int], signs: Any
) -> None:
    """The signs of the facets `a:b` of one face."""
    through: dict[int, list[tuple[int, int]]] = {}
    for i in range(a, b):
        for at in range(start[facets[i]], start[facets[i] + 1]):
            through.setdefault(ridges[at], []).append((i, sign[at]))
    chosen = {a: 1}
    waiting = [a]
    while waiting:
        i = waiting.pop()
        for at in range(start[facets[i]], start[facets[i] + 1]):
            pair = through[ridges[at]]
            if len(pair) != 2:
                raise InputError("the complex is not face to face: its faces have no orientation")
            (j, s), (k, t) = pair
            if k == i:
                (j, s), (k, t) = (k, t), (j, s)
            if k not in chosen:
                chosen[k] = -chosen[i] * s * t
                waiting.append(k)
    for i in range(a, b):
        signs[i] = chosen[i]
