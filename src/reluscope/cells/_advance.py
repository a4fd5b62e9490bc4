"""Compiled step of the traversal: pre-activation maps of a layer become activation maps of its children."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from reluscope._check import EPS


@nb.njit(cache=True)
def after_layer(  # type: ignore[no-untyped-def]
    maps, error2, top, parent, piece, slopes, intercepts, relu, with_errors
) -> Any:
    """Maps `z = s (C x + d) + t` of each child, shape (children, rows, units), and the squared errors of `z`.

    The error of an activation is the error of its pre-activation times the slope, plus one rounding of its size. For
    ReLUs the pieces are the slopes: no table is looked up, and the loops run on whole vectors.
    """
    n, rows, m = len(parent), maps.shape[1], maps.shape[2]
    out = np.empty((n, rows, m))
    out_error2 = np.empty((n if with_errors else 0, m))
    s, t = np.empty(m), np.empty(m)
    for i in range(n):
        p = parent[i]
        if relu:
            for j in range(m):
                s[j] = piece[i, j]
            for r in range(rows):
                for j in range(m):
                    out[i, r, j] = maps[p, r, j] * s[j]
            if with_errors:
                for j in range(m):
                    out_error2[i, j] = (error2[p, j] + EPS * EPS * (top[p, j] * top[p, j])) * s[j]
            continue
        for j in range(m):
            s[j] = slopes[j, piece[i, j]]
            t[j] = intercepts[j, piece[i, j]]
        for r in range(rows):
            for j in range(m):
                out[i, r, j] = maps[p, r, j] * s[j]
        for j in range(m):
            out[i, rows - 1, j] += t[j]
        if with_errors:
            for j in range(m):
                size2 = top[p, j] * top[p, j] * (s[j] * s[j]) + t[j] * t[j]
                out_error2[i, j] = error2[p, j] * (s[j] * s[j]) + EPS * EPS * size2
    return out, out_error2
