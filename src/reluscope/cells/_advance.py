"""Compiled step of the traversal: pre-activation maps of a layer become activation maps of its children."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from reluscope._check import EPS


@nb.njit(cache=True, nogil=True, error_model="numpy")
def after_layer(  # type: ignore[no-untyped-def]
    maps, error2, top, parent, piece, slopes, intercepts, with_errors
) -> Any:
    """Maps `z = s (C x + d) + t` of each child, shape (children, rows, units), and the squared errors of `z`.

    The error of an activation is the error of its pre-activation times the slope, plus one rounding of its size.
    """
    n, rows, m = len(parent), maps.shape[1], maps.shape[2]
    out = np.empty((n, rows, m))
    out_error2 = np.empty((n if with_errors else 0, m))
    s, t = np.empty(m), np.empty(m)
    for i in range(n):
        p = parent[i]
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


@nb.njit(cache=True, nogil=True, error_model="numpy")
def after_relus(maps, error2, top, parent, piece, columns, with_errors):  # type: ignore[no-untyped-def]
    """The same for ReLUs, whose pieces are the slopes, and of the units `columns` alone: the others are off everywhere.

    Where these are all units no table is looked up, and the loops run on whole vectors.
    """
    n, rows, m = len(parent), maps.shape[1], len(columns)
    whole = m == maps.shape[2]
    out = np.empty((n, rows, m))
    out_error2 = np.empty((n if with_errors else 0, m))
    s = np.empty(m)
    for i in range(n):
        p = parent[i]
        if whole:
            for j in range(m):
                s[j] = piece[i, j]
            for r in range(rows):
                for j in range(m):
                    out[i, r, j] = maps[p, r, j] * s[j]
            if with_errors:
                for j in range(m):
                    out_error2[i, j] = (error2[p, j] + EPS * EPS * (top[p, j] * top[p, j])) * s[j]
            continue
        for q in range(m):
            s[q] = piece[i, columns[q]]
        for r in range(rows):
            for q in range(m):
                out[i, r, q] = maps[p, r, columns[q]] * s[q]
        if with_errors:
            for q in range(m):
                j = columns[q]
                out_error2[i, q] = (error2[p, j] + EPS * EPS * (top[p, j] * top[p, j])) * s[q]
    return out, out_error2


@nb.njit(cache=True, nogil=True, error_model="numpy")
def add_own(base, base_error2, family, own, maps, error2, top, parent, rows_of, with_errors):  # type: ignore[no-untyped-def]
    """The maps after a layer of ReLUs for each child: those of its family, plus those of the units it alone has on.

    `base[family[i]]` sums up the units that are on for all children of a cell, `own[i]` marks the others that are on
    for child i. Row j of `rows_of` has the weights that the following layer gives to unit j.
    """
    n, rows, m = len(family), base.shape[1], base.shape[2]
    out = np.empty((n, rows, m))
    out_error2 = np.empty((n if with_errors else 0, m))
    for i in range(n):
        f, p = family[i], parent[i]
        for r in range(rows):
            for k in range(m):
                out[i, r, k] = base[f, r, k]
        if with_errors:
            for k in range(m):
                out_error2[i, k] = base_error2[f, k]
        for j in range(own.shape[1]):
            if own[i, j]:
                for r in range(rows):
                    z = maps[p, r, j]
                    for k in range(m):
                        out[i, r, k] += z * rows_of[j, k]
                if with_errors:
                    e = error2[p, j] + EPS * EPS * (top[p, j] * top[p, j])
                    for k in range(m):
                        out_error2[i, k] += e * (rows_of[j, k] * rows_of[j, k])
    return out, out_error2


@nb.njit(cache=True, nogil=True)
def by_columns(first, error2, piece, listed, step, rise, columns, with_errors):  # type: ignore[no-untyped-def]
    """Maps `first` plus those that the units of a list add where they are above their break point; squared errors too.

    Unit `listed[k]` adds `step[:, k]` before the following layer; `columns` has that layer's weights unit by unit.
    """
    indptr, indices, data = columns
    n, (rows, m) = len(piece), first.shape
    out = np.empty((n, rows, m))
    out_error2 = np.empty((n if with_errors else 0, m))
    for i in range(n):
        for r in range(rows):
            for j in range(m):
                out[i, r, j] = first[r, j]
        if with_errors:
            for j in range(m):
                out_error2[i, j] = error2[j]
        for k in range(piece.shape[1]):
            if piece[i, k]:
                for q in range(indptr[listed[k]], indptr[listed[k] + 1]):
                    j, w = indices[q], data[q]
                    for r in range(rows):
                        out[i, r, j] += w * step[r, k]
                    if with_errors:
                        out_error2[i, j] += w * w * rise[k]
        if with_errors:
            for j in range(m):
                out_error2[i, j] = max(out_error2[i, j], 0.0)
    return out, out_error2
