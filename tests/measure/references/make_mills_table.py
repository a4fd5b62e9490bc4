"""Make the coefficient table of `reluscope.measure.normal.mills` with mpmath; prints rows to paste.

With y = 4/(4 + x) in (0, 1], the function F(y) = (x + 4) R(x), R(x) = Q(x)/phi(x), is smooth. On each of the eight
intervals [i/8, (i+1)/8] it is replaced by its Chebyshev interpolant, written in powers of t = 16 y - 2 i - 1.
Run: python make_mills_table.py [degree]
"""

from __future__ import annotations

import sys

import mpmath as mp

mp.mp.dps = 60
SHIFT = 4
PIECES = 8


def scaled_mills(y: mp.mpf) -> mp.mpf:
    """(x + 4) Q(x) / phi(x) at x = 4/y - 4."""
    if y == 0:
        return mp.mpf(1)
    x = SHIFT / y - SHIFT
    if x > 60:  # asymptotic series, far below 1e-40 there
        total, term = mp.mpf(1), mp.mpf(1)
        for k in range(1, 60):
            term *= -(2 * k - 1) / x**2
            total += term
        return (x + SHIFT) / x * total
    return (x + SHIFT) * mp.erfc(x / mp.sqrt(2)) * mp.sqrt(mp.pi / 2) * mp.exp(x**2 / 2)


def power_coefficients(piece: int, degree: int) -> list[mp.mpf]:
    """Chebyshev interpolant of degree `degree` on one piece, in powers of t in [-1, 1]."""
    n = degree + 1
    nodes = [mp.cos(mp.pi * (2 * j + 1) / (2 * n)) for j in range(n)]
    values = [scaled_mills((t + 2 * piece + 1) / (2 * PIECES)) for t in nodes]
    matrix = mp.matrix(n, n)
    for row, t in enumerate(nodes):
        for col in range(n):
            matrix[row, col] = t**col
    return list(mp.lu_solve(matrix, mp.matrix(values)))


def main(degree: int) -> None:
    """Print the table, and the largest relative error of each row before rounding."""
    for piece in range(PIECES):
        c = power_coefficients(piece, degree)
        worst = mp.mpf(0)
        for j in range(101):
            t = mp.mpf(2 * j) / 100 - 1
            exact = scaled_mills((t + 2 * piece + 1) / (2 * PIECES))
            worst = max(worst, abs(mp.polyval(c[::-1], t) / exact - 1))
        print("    (" + ", ".join(repr(float(v)) for v in c) + "),")
        print(f"    # row {piece}: relative error {mp.nstr(worst, 3)}", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
