"""Density of several affine functions at once: the measure of the part of each cell where they take given values.

On cell i, `{u : A u <= b}` in R^r, the functions are `y = C[i] u + d[i]` with m independent rows. The points with a
given y are the *fibre* `P (y - d) + N s`, with P the pseudoinverse of C and N a basis of its null space. The density
at y is the measure of the fibre's part inside the cell over `sqrt(det C C')`: a point for m = r, a segment (a closed
form of two Phi's) for m = r - 1. Kernels do not validate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.measure.exact.interval import interval_mass_kernel
from reluscope.measure.normal import EPS

_ROW_ROUNDING = 1e-12
"""Rounding of an inequality, as a share of the terms that meet in it."""


def fibre_density(
    rows: tuple[FloatArray, FloatArray, npt.NDArray[np.int64]],
    C: FloatArray,
    d: FloatArray,
    scale: float,
    Y: FloatArray,
    gaussian: bool,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Density of `y = C u + d` at the rows of Y, summed over the cells, with bounds on it; each shape (len(Y),).

    rows: `A` (all rows, r), `b` and offsets of the cells. C: (n, m, r) with independent rows, m = r or r - 1. On
    the border of a cell's image, up to rounding, the bounds hold both what is on it and what is beyond it.
    """
    A, b, offsets = rows
    n, m, r = C.shape
    value, lower, upper = np.zeros(len(Y)), np.zeros(len(Y)), np.zeros(len(Y))
    if not n:
        return value, lower, upper
    left, size, right = np.linalg.svd(C, full_matrices=True)
    P = np.einsum("nji,nj,nkj->nik", right[:, :m], 1.0 / size, left)
    N = right[:, m] if m < r else np.zeros((n, r))
    in_order = np.ascontiguousarray
    _fibres(
        _Fibres(
            A, b, offsets, in_order(P), in_order(N), in_order(d), size, scale, in_order(Y), gaussian,
            m < r, value, lower, upper,
        )
    )  # fmt: skip
    return value, lower, upper


class _Fibres(NamedTuple):
    """What the kernel takes: sides of the cells, the fibre of each as `P (y - d) + N s`, points, results."""

    A: FloatArray
    b: FloatArray
    offsets: npt.NDArray[np.int64]
    P: FloatArray
    N: FloatArray
    d: FloatArray
    size: FloatArray
    scale: float
    Y: FloatArray
    gaussian: bool
    line: bool
    value: FloatArray
    lower: FloatArray
    upper: FloatArray


@kernel
def _fibres(given: _Fibres) -> None:
    A, b, offsets, P, N, d, size, scale, Y, gaussian, line, value, lower, upper = given
    n, r, m = P.shape
    u = np.empty(r)
    for i in range(n):
        norm = 1.0
        for k in range(m):
            norm *= size[i, k]
        worst = 16.0 * EPS * size[i, 0] / size[i, m - 1]
        for q in range(Y.shape[0]):
            square, blur = 0.0, 0.0
            for j in range(r):
                u[j] = 0.0
                for k in range(m):
                    u[j] += P[i, j, k] * (Y[q, k] - d[i, k])
                    blur += abs(P[i, j, k]) * (abs(Y[q, k]) + abs(d[i, k]))
                square += u[j] * u[j]
            blur *= 16.0 * EPS * r
            blur += worst * math.sqrt(square)
            # Ends of the segment: as computed, and as far in and out as rounding may move them.
            low, low_in, low_out = -np.inf, -np.inf, -np.inf
            high, high_in, high_out = np.inf, np.inf, np.inf
            holds, sure, possible = True, True, True
            for row in range(offsets[i], offsets[i + 1]):
                at, along, terms, length = 0.0, 0.0, abs(b[row]), 0.0
                for j in range(r):
                    at += A[row, j] * u[j]
                    along += A[row, j] * N[i, j]
                    terms += abs(A[row, j] * u[j])
                    length += abs(A[row, j])
                slack = b[row] - at
                rounding = _ROW_ROUNDING * terms + length * blur
                if line and abs(along) > 1e-13 * length:
                    s, shift = slack / along, rounding / abs(along)
                    if along > 0.0:
                        high, high_in, high_out = min(high, s), min(high_in, s - shift), min(high_out, s + shift)
                    else:
                        low, low_in, low_out = max(low, s), max(low_in, s + shift), max(low_out, s - shift)
                else:
                    holds = holds and slack >= 0.0
                    sure = sure and slack >= rounding
                    possible = possible and slack >= -rounding
                if not possible or low_out >= high_out:
                    possible = False
                    break
            if not possible:
                continue
            density = scale / norm
            if gaussian:
                density *= math.exp(-0.5 * square) * (2.0 * math.pi) ** (-0.5 * m)
            relative = 1e-12 + worst + math.sqrt(square) * blur
            inner, outer, middle = 1.0, 1.0, 1.0
            if line:
                if gaussian:
                    middle = interval_mass_kernel(low, high) if low < high else 0.0
                    inner = interval_mass_kernel(low_in, high_in) if low_in < high_in else 0.0
                    outer = interval_mass_kernel(low_out, high_out)
                else:
                    middle, inner, outer = max(high - low, 0.0), max(high_in - low_in, 0.0), high_out - low_out
            if holds:
                value[q] += density * middle
            if sure:
                lower[q] += density * inner * max(1.0 - relative, 0.0)
            upper[q] += density * outer * (1.0 + relative)
