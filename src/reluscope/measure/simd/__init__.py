"""Vector kernels: steps on many numbers at once, written as vector instructions.

- `steps`: one step of a traced line on all units: advance, count, sum; a layer of a small network at many points
- `rows`: rows of a matrix in double precision: products, absolute sums, relaxations
"""

from reluscope.measure.simd.rows import add_absolute, add_rows, axpy, copy, dot, dot_absolute, relax
from reluscope.measure.simd.steps import (
    BLOCK,
    POINTS,
    WORD_BLOCKS,
    add_column,
    add_columns,
    advance,
    advance_summed,
    advance_switched,
    count_below,
    load_vector,
    lowest_bit,
    mix_rows,
    spread_vector,
    store_vector,
    vector_at,
    vector_row,
    weighted_sum,
)

__all__ = [
    "BLOCK",
    "POINTS",
    "WORD_BLOCKS",
    "add_absolute",
    "add_column",
    "add_columns",
    "add_rows",
    "advance",
    "advance_summed",
    "advance_switched",
    "axpy",
    "copy",
    "count_below",
    "dot",
    "dot_absolute",
    "load_vector",
    "lowest_bit",
    "mix_rows",
    "relax",
    "spread_vector",
    "store_vector",
    "vector_at",
    "vector_row",
    "weighted_sum",
]
