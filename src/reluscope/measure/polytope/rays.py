"""Gaussian mass of a polytope around the origin, along rays.

With u = r θ, θ uniform on the sphere and r² chi-squared, the mass of {g_k . u <= 1 for all k} is the mean of
F(1 / max_k g_k . θ), F being the cdf of r: one dimension is integrated exactly, and no direction is ever outside.
Directions come in families (Deák 1980): from one random orthonormal basis v_1..v_n all (±v_i ± v_j ± v_l)/√3,
each uniform on the sphere, cost a few additions per row, and being spread evenly they have less variance than
independent ones. Bases are independent, so the error is a plain standard error. Best for large masses, where the
sequential draws of `families` waste their cleverness; hopeless when the origin is outside or close to a facet.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from reluscope._kernels import kernel
from reluscope.measure.polytope.lanes import combine, quick_quantile
from reluscope.measure.polytope.tilt import LANES
from reluscope.measure.simd import BLOCK, load_vector, spread_vector, store_vector, vector_row

MOST_TRIPLES = 250
"""Triples of basis vectors taken from one basis (eight directions each); beyond, new bases teach more."""

_HALVES = LANES // BLOCK
_STEPS = 64
"""Steps of the table of F per unit of radius: its cubic pieces are then good to 1e-9."""

_MARGIN = 8.0


def _extents(typing: Any, products: Any, i: Any, j: Any, last: Any, rows: Any, out: Any) -> Any:
    """out[c] = max over k of s_c, out[4 + c] = max over k of -s_c, where s_c = p_i ± p_j ± p_l, c = 0 to 3.

    Row k of p_i is products[i rows + k]; all rows hold LANES numbers.
    """
    signature = types.void(products, types.int64, types.int64, types.int64, types.int64, out)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = ir.IntType(64)
        starts = [vector_row(context, builder, sig.args[0], args[0], builder.mul(args[q], args[4])) for q in (1, 2, 3)]
        target = vector_row(context, builder, sig.args[5], args[5], word(0))
        least = spread_vector(builder, ir.Constant(ir.DoubleType(), -math.inf))
        for half in range(_HALVES):
            best = [cgutils.alloca_once_value(builder, least) for _ in range(8)]
            with cgutils.for_range(builder, args[4]) as loop:
                place = builder.add(builder.mul(loop.index, word(_HALVES)), word(half))
                p, q, r = (load_vector(builder, start, place) for start in starts)
                plus, minus = builder.fadd(p, q), builder.fsub(p, q)
                sums = [f(x, r) for x in (plus, minus) for f in (builder.fadd, builder.fsub)]
                for c, x in enumerate(sums):
                    for slot, value in ((best[c], x), (best[4 + c], builder.fneg(x))):
                        old = builder.load(slot)
                        larger = builder.fcmp_ordered(">", value, old)
                        builder.store(builder.select(larger, value, old), slot)
            for c, slot in enumerate(best):
                store_vector(builder, builder.load(slot), target, word(c * _HALVES + half))
        return context.get_dummy_value()

    return signature, generate


def _plain_extents(products: Any, i: int, j: int, last: int, rows: int, out: Any) -> None:
    p, q, r = (products[x * rows : (x + 1) * rows] for x in (i, j, last))
    for c, s in enumerate((p + q + r, p + q - r, p - q + r, p - q - r)):
        out[c] = s.max(axis=0)
        out[4 + c] = (-s).max(axis=0)


extents: Any = _plain_extents if config.DISABLE_JIT else intrinsic(_extents)


@kernel
def radius_table(n: int) -> Any:
    """Cubic pieces of F(r) = P(|u| <= r), u ~ N(0, I_n): F(i/64 + x/64) = sum c[i, e] x^e; shape (pieces, 4).

    F_n+2 = F_n - (r²/2)^(n/2) exp(-r²/2) / Γ(n/2 + 1); absolute error about 1e-9. The last piece is constant.
    """
    pieces = int((math.sqrt(n) + _MARGIN) * _STEPS) + 1
    value = np.empty(pieces + 1)
    density = np.empty(pieces + 1)
    for i in range(pieces + 1):
        r = i / _STEPS
        half = 0.5 * r * r
        total = math.erf(r * math.sqrt(0.5)) if n % 2 else -math.expm1(-half)
        for d in range(1 if n % 2 else 2, n, 2):
            if half > 0.0:
                total -= math.exp(0.5 * d * math.log(half) - half - math.lgamma(0.5 * d + 1.0))
        value[i] = max(total, 0.0)
        density[i] = 0.0
        if r > 0.0:
            density[i] = math.exp((n - 1) * math.log(r) - half - (0.5 * n - 1.0) * math.log(2.0) - math.lgamma(0.5 * n))
        elif n == 1:
            density[i] = math.sqrt(2.0 / math.pi)
    table = np.zeros((pieces, 4))
    for i in range(pieces - 1):
        rise = value[i + 1] - value[i]
        left = density[i] / _STEPS
        right = density[i + 1] / _STEPS
        table[i, 0] = value[i]
        table[i, 1] = left
        table[i, 2] = 3.0 * rise - 2.0 * left - right
        table[i, 3] = left + right - 2.0 * rise
    table[pieces - 1, 0] = 1.0
    return table


@kernel
def scaled_rows(L: Any, lo: Any, hi: Any, rank: int) -> Any:
    """Rows g with {lo <= L u <= hi} = {g . u <= 1}; shape (0, rank) unless the origin is strictly inside."""
    m = L.shape[0]
    count = 0
    for i in range(m):
        if not (lo[i] < 0.0 < hi[i]):
            return np.empty((0, rank))
        count += (1 if lo[i] > -np.inf else 0) + (1 if hi[i] < np.inf else 0)
    rows = np.empty((count, rank))
    count = 0
    for i in range(m):
        for side in range(2):
            bound = hi[i] if side == 0 else lo[i]
            if abs(bound) < np.inf:
                for j in range(rank):
                    rows[count, j] = L[i, j] / bound
                count += 1
    return rows


@kernel
def random_bases(state: Any, bases: Any) -> None:
    """LANES independent uniformly random orthonormal bases: bases (n n, LANES), vector j in the rows j n to j n + n.

    Gram-Schmidt on normal vectors.
    """
    n = int(math.sqrt(bases.shape[0]) + 0.5)
    unit = 1.0 / 2.0**53
    for q in range(n * n):
        for w in range(LANES):
            state[0] = state[0] + np.uint64(0x9E3779B97F4A7C15)  # splitmix64
            z = state[0]
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            bases[q, w] = (np.float64(np.int64(z >> np.uint64(11))) + 0.5) * unit - 0.5
        for w in range(LANES):
            side = bases[q, w]
            size = quick_quantile(0.5 - abs(side))
            bases[q, w] = size if side > 0.0 else -size
    dot = np.empty(LANES)
    for j in range(n):
        for i in range(j):
            for w in range(LANES):
                dot[w] = 0.0
            for c in range(n):
                for w in range(LANES):
                    dot[w] += bases[i * n + c, w] * bases[j * n + c, w]
            for c in range(n):
                for w in range(LANES):
                    bases[j * n + c, w] -= dot[w] * bases[i * n + c, w]
        for w in range(LANES):
            dot[w] = 0.0
        for c in range(n):
            for w in range(LANES):
                dot[w] += bases[j * n + c, w] * bases[j * n + c, w]
        for w in range(LANES):
            dot[w] = 1.0 / math.sqrt(dot[w])
        for c in range(n):
            for w in range(LANES):
                bases[j * n + c, w] *= dot[w]


@kernel
def directions_per_basis(n: int) -> int:
    """How many directions one basis gives."""
    return 8 * min(n * (n - 1) * (n - 2) // 6, MOST_TRIPLES)


@kernel
def basis_cost(rows: int, n: int) -> float:
    """Nanoseconds for one basis, roughly: only to choose between methods."""
    return n * n * (7.0 + 0.6 * n + 0.1 * rows) + directions_per_basis(n) * (2.8 + 0.08 * rows)


@kernel
def ray_block(rows: Any, table: Any, state: Any, bases: Any, products: Any, ends: Any, means: Any) -> None:
    """One estimate of the mass for each lane, from one new basis each, into `means` (LANES,).

    `rows` (k, n) as in `scaled_rows`, `table` from `radius_table`; scratch: `bases` (n n, LANES), `products`
    (n k, LANES), `ends` (8, LANES). Wants n >= 3.
    """
    count, n = rows.shape
    random_bases(state, bases)
    for j in range(n):
        own = bases[j * n : (j + 1) * n]
        for k in range(count):
            for w in range(LANES):
                products[j * count + k, w] = 0.0
            combine(products, j * count + k, rows, k, own, n)
    for w in range(LANES):
        means[w] = 0.0
    scale = math.sqrt(3.0) * _STEPS
    last = table.shape[0] - 1.0
    triples = n * (n - 1) * (n - 2) // 6
    taken = min(triples, MOST_TRIPLES)
    i, j, h = 0, 1, 1
    for _ in range(taken):
        if triples > taken:
            i = _below(state, n)
            j = i
            while j == i:
                j = _below(state, n)
            h = i
            while h == i or h == j:  # noqa: SIM109 (no tuples in the loop)
                h = _below(state, n)
        else:
            h += 1
            if h == n:
                j += 1
                if j == n - 1:
                    i += 1
                    j = i + 1
                h = j + 1
        extents(products, i, j, h, count, ends)
        for c in range(8):
            for w in range(LANES):
                reach = ends[c, w]
                reach = reach if reach > 1e-9 else 1e-9
                place = scale / reach
                ends[c, w] = place if place < last else last
        for c in range(8):
            for w in range(LANES):
                piece = np.uint32(ends[c, w])
                x = ends[c, w] - np.float64(piece)
                means[w] += table[piece, 0] + x * (table[piece, 1] + x * (table[piece, 2] + x * table[piece, 3]))
    for w in range(LANES):
        means[w] /= 8.0 * taken


@njit(cache=True, nogil=True)
def _below(state: Any, n: int) -> int:
    """A random whole number below n."""
    state[0] = state[0] + np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return int(((z >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))
