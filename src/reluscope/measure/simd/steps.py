"""Vector steps for lines and points, written as vector instructions.

The compiler has to assume that any two arrays overlap, so a plain loop is guarded by overlap checks each time it is
entered; on layers of a few dozen units the guards cost more than the work. These steps work on blocks of eight
doubles, in arrays that are padded to whole blocks and never overlap, and need no guards. They hold no references and
round every product and every sum (no fused operations), so they give the same bits on every machine.

Places are counted in doubles from the start of an array and are unsigned, which spares the compiler the test for an
index from the end. With compilation switched off (`NUMBA_DISABLE_JIT=1`) the plain Python versions below are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK = 8
"""Doubles in a vector."""

WORD_BLOCKS = 8
"""Blocks whose marks fit into one word."""

POINTS = 16
"""Points that go through a network side by side."""

_DOUBLE = ir.DoubleType()
_BYTE = ir.IntType(8)
WORD = ir.IntType(64)
VECTOR = ir.VectorType(_DOUBLE, BLOCK)
_GROUP = 4


def choose(vector: Any, plain: Any) -> Any:
    """Vector instructions for compiled code; plain Python where numba is switched off."""
    return plain if config.DISABLE_JIT else intrinsic(vector)


def vector_at(context: Any, builder: Any, kind: Any, value: Any, place: Any) -> Any:
    """Pointer to one place of a contiguous 1-D array."""
    return builder.gep(context.make_array(kind)(context, builder, value=value).data, [place])


def vector_row(context: Any, builder: Any, kind: Any, value: Any, row: Any) -> Any:
    """Pointer to the first double of a row of a contiguous 2-D array."""
    array = context.make_array(kind)(context, builder, value=value)
    width = cgutils.unpack_tuple(builder, array.shape)[1]
    return builder.gep(array.data, [builder.mul(row, width)])


def _block(builder: Any, start: Any, index: Any) -> Any:
    """Pointer to the vector number `index` from `start` on."""
    place = builder.gep(start, [builder.mul(index, WORD(BLOCK))])
    return builder.bitcast(place, VECTOR.as_pointer())


def load_vector(builder: Any, start: Any, index: Any) -> Any:
    """Block `index` of the numbers from `start` on."""
    return builder.load(_block(builder, start, index), align=8)


def store_vector(builder: Any, vector: Any, start: Any, index: Any) -> None:
    """Write a block at `index`."""
    builder.store(vector, _block(builder, start, index), align=8)


def spread_vector(builder: Any, number: Any) -> Any:
    """A vector whose entries are all `number`."""
    single = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
    return builder.shuffle_vector(single, ir.Constant(VECTOR, ir.Undefined), lanes)


def sum_across(builder: Any, vector: Any) -> Any:
    """The sum of a vector's entries, halves first."""
    parts = [builder.extract_element(vector, ir.IntType(32)(i)) for i in range(BLOCK)]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [builder.fadd(parts[i], parts[i + half]) for i in range(half)]
    return parts[0]


def _walk_blocks(
    context: Any,
    builder: Any,
    sig: Any,
    args: Any,
    column: Any = None,
    factor: Any = None,
    skip: Any = None,
    weights: Any = None,
    total: Any = None,
) -> Any:
    """The body of the `advance` family: optionally add a column to the slopes first, and sum weights * slopes."""
    slopes, values, high, low = (vector_at(context, builder, sig.args[i], args[i], args[4]) for i in range(4))
    step = spread_vector(builder, args[5])
    word = cgutils.alloca_once(builder, WORD)
    builder.store(WORD(0), word)
    nothing = ir.Constant(VECTOR, [0.0] * BLOCK)
    if weights is not None:
        lanes = cgutils.alloca_once(builder, VECTOR)
        builder.store(nothing, lanes)
    with cgutils.for_range(builder, args[6]) as loop:
        g = loop.index
        s = load_vector(builder, slopes, g)
        if column is not None:
            s = builder.fadd(s, builder.fmul(load_vector(builder, column, builder.add(g, skip)), factor))
            store_vector(builder, s, slopes, g)
        if weights is not None:
            part = builder.fmul(s, load_vector(builder, weights, builder.add(g, skip)))
            builder.store(builder.fadd(builder.load(lanes), part), lanes)
        v = builder.fadd(load_vector(builder, values, g), builder.fmul(s, step))
        store_vector(builder, v, values, g)
        above = builder.fcmp_ordered(">", v, load_vector(builder, high, g))
        below = builder.fcmp_ordered("<", v, load_vector(builder, low, g))
        mark = builder.zext(builder.bitcast(builder.or_(above, below), _BYTE), WORD)
        mark = builder.shl(mark, builder.mul(g, WORD(8)))
        builder.store(builder.or_(builder.load(word), mark), word)
    if weights is not None:
        builder.store(builder.fadd(builder.load(total), sum_across(builder, builder.load(lanes))), total)
    return builder.load(word)


def _advance(typing: Any, S: Any, V: Any, HI: Any, LO: Any, place: Any, step: Any, blocks: Any) -> Any:
    """V += S * step from `place` on; bit i of the result tells whether number i left [LO, HI]. Blocks <= 8."""
    signature = types.uint64(S, V, HI, LO, types.uint64, types.float64, types.int64)
    return signature, _walk_blocks


def _advance_switched(
    typing: Any,
    S: Any,
    V: Any,
    HI: Any,
    LO: Any,
    place: Any,
    step: Any,
    blocks: Any,
    columns: Any,
    row: Any,
    skip: Any,
    factor: Any,
) -> Any:
    """First S += columns[row] * factor (from block `skip` of the column on), then `advance`."""
    signature = types.uint64(
        S, V, HI, LO, types.uint64, types.float64, types.int64, columns, types.uint64, types.int64, types.float64
    )  # fmt: skip

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        column = vector_row(context, builder, sig.args[7], args[7], args[8])
        return _walk_blocks(context, builder, sig, args, column, spread_vector(builder, args[10]), args[9])

    return signature, generate


def _advance_summed(
    typing: Any,
    S: Any,
    V: Any,
    HI: Any,
    LO: Any,
    place: Any,
    step: Any,
    blocks: Any,
    columns: Any,
    row: Any,
    skip: Any,
    factor: Any,
    weights: Any,
    total: Any,
) -> Any:
    """`advance_switched`; the new slopes times `weights` (from block `skip` on) are added to total[0]."""
    signature = types.uint64(
        S, V, HI, LO, types.uint64, types.float64, types.int64, columns, types.uint64, types.int64, types.float64,
        weights, total,
    )  # fmt: skip

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        column = vector_row(context, builder, sig.args[7], args[7], args[8])
        factors = vector_at(context, builder, sig.args[11], args[11], WORD(0))
        goal = vector_at(context, builder, sig.args[12], args[12], WORD(0))
        return _walk_blocks(
            context, builder, sig, args, column, spread_vector(builder, args[10]), args[9], factors, goal
        )

    return signature, generate


def _count_below(typing: Any, numbers: Any, place: Any, n: Any, limit: Any) -> Any:
    """How many of the n numbers from `place` on are below `limit`; up to 7 numbers behind the last are read too."""
    signature = types.uint64(numbers, types.uint64, types.uint64, types.float64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start = vector_at(context, builder, sig.args[0], args[0], args[1])
        limit = spread_vector(builder, args[3])
        count = cgutils.alloca_once(builder, WORD)
        builder.store(WORD(0), count)

        def below(g: Any) -> Any:
            return builder.zext(
                builder.bitcast(builder.fcmp_ordered("<", load_vector(builder, start, g), limit), _BYTE), WORD
            )

        whole = builder.udiv(args[2], WORD(BLOCK))
        with cgutils.for_range(builder, whole) as loop:
            builder.store(builder.add(builder.load(count), builder.ctpop(below(loop.index))), count)
        rest = builder.and_(args[2], WORD(BLOCK - 1))
        mask = builder.sub(builder.shl(WORD(1), rest), WORD(1))
        return builder.add(builder.load(count), builder.ctpop(builder.and_(below(whole), mask)))

    return signature, generate


def _add_column(typing: Any, S: Any, place: Any, columns: Any, row: Any, factor: Any, blocks: Any) -> Any:
    """S += columns[row] * factor, from `place` on."""
    signature = types.void(S, types.uint64, columns, types.uint64, types.float64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        target = vector_at(context, builder, sig.args[0], args[0], args[1])
        column = vector_row(context, builder, sig.args[2], args[2], args[3])
        factor = spread_vector(builder, args[4])
        with cgutils.for_range(builder, args[5]) as loop:
            g = loop.index
            change = builder.fmul(load_vector(builder, column, g), factor)
            store_vector(builder, builder.fadd(load_vector(builder, target, g), change), target, g)
        return context.get_dummy_value()

    return signature, generate


def _add_columns(
    typing: Any, out: Any, place: Any, bias: Any, row: Any, columns: Any, live: Any, factors: Any, n: Any, blocks: Any
) -> Any:
    """out = bias[row] + sum over q < n of columns[live[q]] * factors[q], from `place` on."""
    signature = types.void(
        out, types.uint64, bias, types.int64, columns, live, factors, types.uint64, types.int64
    )  # fmt: skip

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        target = vector_at(context, builder, sig.args[0], args[0], args[1])
        begin = vector_row(context, builder, sig.args[2], args[2], args[3])
        table = context.make_array(sig.args[4])(context, builder, value=args[4])
        width = cgutils.unpack_tuple(builder, table.shape)[1]
        index = vector_at(context, builder, sig.args[5], args[5], WORD(0))
        weights = vector_at(context, builder, sig.args[6], args[6], WORD(0))
        sums = [cgutils.alloca_once(builder, VECTOR) for _ in range(_GROUP)]

        def columns_of(first: Any, count: int) -> None:
            places = [builder.add(first, WORD(i)) for i in range(count)]
            for i, where in enumerate(places):
                builder.store(load_vector(builder, begin, where), sums[i])
            with cgutils.for_range(builder, args[7]) as loop:
                source = builder.load(builder.gep(index, [loop.index]))
                weight = spread_vector(builder, builder.load(builder.gep(weights, [loop.index])))
                column = builder.gep(table.data, [builder.mul(source, width)])
                for i, where in enumerate(places):
                    part = builder.fmul(load_vector(builder, column, where), weight)
                    builder.store(builder.fadd(builder.load(sums[i]), part), sums[i])
            for i, where in enumerate(places):
                store_vector(builder, builder.load(sums[i]), target, where)

        whole = builder.sdiv(args[8], WORD(_GROUP))
        with cgutils.for_range(builder, whole) as group:
            columns_of(builder.mul(group.index, WORD(_GROUP)), _GROUP)
        done = builder.mul(whole, WORD(_GROUP))
        with cgutils.for_range(builder, builder.sub(args[8], done)) as rest:
            columns_of(builder.add(done, rest.index), 1)
        return context.get_dummy_value()

    return signature, generate


def _weighted_sum(typing: Any, rows: Any, form: Any, A: Any, S: Any, place: Any, blocks: Any) -> Any:
    """The sum over j of rows[form, j] * A[place + j] * S[place + j]."""
    signature = types.float64(rows, types.int64, A, S, types.uint64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        weights = vector_row(context, builder, sig.args[0], args[0], args[1])
        a = vector_at(context, builder, sig.args[2], args[2], args[4])
        s = vector_at(context, builder, sig.args[3], args[3], args[4])
        total = cgutils.alloca_once(builder, VECTOR)
        builder.store(ir.Constant(VECTOR, [0.0] * BLOCK), total)
        with cgutils.for_range(builder, args[5]) as loop:
            g = loop.index
            part = builder.fmul(
                builder.fmul(load_vector(builder, a, g), load_vector(builder, s, g)), load_vector(builder, weights, g)
            )
            builder.store(builder.fadd(builder.load(total), part), total)
        return sum_across(builder, builder.load(total))

    return signature, generate


def _mix_rows(
    typing: Any,
    lanes: Any,
    target: Any,
    source: Any,
    packed: Any,
    place: Any,
    bias: Any,
    row: Any,
    n: Any,
    rectify: Any,
) -> Any:
    """Four rows of `lanes`, from `target` on, become bias + weights @ (the n rows from `source` on), or 0 if negative.

    The weights of the four rows lie side by side in `packed`, four for each of the n rows in turn, from `place` on; the
    biases from `row` on. `rectify` 0 keeps negative values.
    """
    signature = types.void(
        lanes, types.uint64, types.uint64, packed, types.uint64, bias, types.uint64, types.uint64, types.int64
    )  # fmt: skip

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vectors = POINTS // BLOCK
        goal = vector_row(context, builder, sig.args[0], args[0], args[1])
        origin = vector_row(context, builder, sig.args[0], args[0], args[2])
        weights = vector_at(context, builder, sig.args[3], args[3], args[4])
        begin = vector_at(context, builder, sig.args[5], args[5], args[6])
        sums = [[cgutils.alloca_once(builder, VECTOR) for _ in range(vectors)] for _ in range(_GROUP)]
        for g, row in enumerate(sums):
            first = spread_vector(builder, builder.load(builder.gep(begin, [WORD(g)])))
            for one in row:
                builder.store(first, one)
        with cgutils.for_range(builder, args[7]) as loop:
            at = builder.mul(loop.index, WORD(vectors))
            x = [load_vector(builder, origin, builder.add(at, WORD(v))) for v in range(vectors)]
            four = builder.mul(loop.index, WORD(_GROUP))
            for g, row in enumerate(sums):
                weight = spread_vector(builder, builder.load(builder.gep(weights, [builder.add(four, WORD(g))])))
                for v, one in enumerate(row):
                    builder.store(builder.fadd(builder.load(one), builder.fmul(x[v], weight)), one)
        nothing = ir.Constant(VECTOR, [0.0] * BLOCK)
        keep = builder.icmp_signed("==", args[8], WORD(0))
        for g, row in enumerate(sums):
            for v, one in enumerate(row):
                total = builder.load(one)
                cut = builder.select(builder.fcmp_ordered(">", total, nothing), total, nothing)
                store_vector(builder, builder.select(keep, total, cut), goal, WORD(g * vectors + v))
        return context.get_dummy_value()

    return signature, generate


def _lowest_bit(typing: Any, word: Any) -> Any:
    """Position of the lowest set bit of a non-zero 64-bit word."""
    signature = types.uint64(types.uint64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return signature, generate


def _plain_advance(S: Any, V: Any, HI: Any, LO: Any, place: int, step: float, blocks: int) -> np.uint64:
    part = slice(int(place), int(place) + BLOCK * int(blocks))
    V[part] += S[part] * step
    out = (V[part] > HI[part]) | (V[part] < LO[part])
    return np.uint64(sum(1 << int(i) for i in np.flatnonzero(out)))


def _plain_advance_switched(
    S: Any,
    V: Any,
    HI: Any,
    LO: Any,
    place: int,
    step: float,
    blocks: int,
    columns: Any,
    row: int,
    skip: int,
    factor: float,
) -> np.uint64:
    n = BLOCK * int(blocks)
    S[int(place) : int(place) + n] += columns[int(row), BLOCK * skip : BLOCK * skip + n] * factor
    return _plain_advance(S, V, HI, LO, place, step, blocks)


def _plain_advance_summed(
    S: Any,
    V: Any,
    HI: Any,
    LO: Any,
    place: int,
    step: float,
    blocks: int,
    columns: Any,
    row: int,
    skip: int,
    factor: float,
    weights: Any,
    total: Any,
) -> np.uint64:
    word = _plain_advance_switched(S, V, HI, LO, place, step, blocks, columns, row, skip, factor)
    n = BLOCK * int(blocks)
    total[0] += S[int(place) : int(place) + n] @ weights[BLOCK * skip : BLOCK * skip + n]
    return word


def _plain_count_below(numbers: Any, place: int, n: int, limit: float) -> np.uint64:
    return np.uint64((numbers[int(place) : int(place) + int(n)] < limit).sum())


def _plain_add_column(S: Any, place: int, columns: Any, row: int, factor: float, blocks: int) -> None:
    n = BLOCK * int(blocks)
    S[int(place) : int(place) + n] += columns[int(row), :n] * factor


def _plain_add_columns(
    out: Any, place: int, bias: Any, row: int, columns: Any, live: Any, factors: Any, n: int, blocks: int
) -> None:
    width = BLOCK * int(blocks)
    chosen = columns[live[: int(n)].astype(np.int64), :width]
    out[int(place) : int(place) + width] = bias[row, :width] + factors[: int(n)] @ chosen


def _plain_weighted_sum(rows: Any, form: int, A: Any, S: Any, place: int, blocks: int) -> float:
    n = BLOCK * int(blocks)
    part = slice(int(place), int(place) + n)
    return float((rows[form, :n] * A[part]) @ S[part])


def _plain_mix_rows(
    lanes: Any,
    target: int,
    source: int,
    packed: Any,
    place: int,
    bias: Any,
    row: int,
    n: int,
    rectify: int,
) -> None:
    t, k, p, r = int(target), int(n), int(place), int(row)
    weights = packed[p : p + _GROUP * k].reshape(k, _GROUP)
    total = bias[r : r + _GROUP, None] + weights.T @ lanes[int(source) : int(source) + k]
    lanes[t : t + _GROUP] = np.maximum(total, 0.0) if rectify else total


def _plain_lowest_bit(word: int) -> np.uint64:
    return np.uint64((int(word) & -int(word)).bit_length() - 1)


advance: Any = choose(_advance, _plain_advance)
advance_switched: Any = choose(_advance_switched, _plain_advance_switched)
advance_summed: Any = choose(_advance_summed, _plain_advance_summed)
count_below: Any = choose(_count_below, _plain_count_below)
add_column: Any = choose(_add_column, _plain_add_column)
add_columns: Any = choose(_add_columns, _plain_add_columns)
weighted_sum: Any = choose(_weighted_sum, _plain_weighted_sum)
mix_rows: Any = choose(_mix_rows, _plain_mix_rows)
lowest_bit: Any = choose(_lowest_bit, _plain_lowest_bit)
