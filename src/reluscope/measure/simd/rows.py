"""Steps on padded rows of numbers, written as vector instructions (`steps` says why).

Rows start at a place counted in doubles, are whole blocks of eight long and never overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from reluscope.measure.simd.steps import (
    BLOCK,
    VECTOR,
    WORD,
    choose,
    load_vector,
    spread_vector,
    store_vector,
    sum_across,
    vector_at,
)


def _absolute(builder: Any, vector: Any) -> Any:
    words = ir.VectorType(ir.IntType(64), BLOCK)
    mask = ir.Constant(words, [(1 << 63) - 1] * BLOCK)
    return builder.bitcast(builder.and_(builder.bitcast(vector, words), mask), VECTOR)


def _update(change: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Code for `y += change(x, factor)`."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        target = vector_at(context, builder, sig.args[0], args[0], args[1])
        source = vector_at(context, builder, sig.args[2], args[2], args[3])
        factor = spread_vector(builder, args[4])
        with cgutils.for_range(builder, args[5]) as loop:
            g = loop.index
            part = change(builder, load_vector(builder, source, g), factor)
            store_vector(builder, builder.fadd(load_vector(builder, target, g), part), target, g)
        return context.get_dummy_value()

    return generate


def _sum(part: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Code for the sum of part(x, y)."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        left = vector_at(context, builder, sig.args[0], args[0], args[1])
        right = vector_at(context, builder, sig.args[2], args[2], args[3])
        total = cgutils.alloca_once(builder, VECTOR)
        builder.store(ir.Constant(VECTOR, [0.0] * BLOCK), total)
        with cgutils.for_range(builder, args[4]) as loop:
            g = loop.index
            term = part(builder, load_vector(builder, left, g), load_vector(builder, right, g))
            builder.store(builder.fadd(builder.load(total), term), total)
        return sum_across(builder, builder.load(total))

    return generate


def _axpy(typing: Any, y: Any, y_place: Any, x: Any, x_place: Any, factor: Any, blocks: Any) -> Any:
    """y += factor * x."""
    signature = types.void(y, types.uint64, x, types.uint64, types.float64, types.int64)
    return signature, _update(lambda b, v, f: b.fmul(v, f))


def _add_absolute(typing: Any, y: Any, y_place: Any, x: Any, x_place: Any, factor: Any, blocks: Any) -> Any:
    """y += factor * |x|."""
    signature = types.void(y, types.uint64, x, types.uint64, types.float64, types.int64)
    return signature, _update(lambda b, v, f: b.fmul(_absolute(b, v), f))


def _dot(typing: Any, x: Any, x_place: Any, y: Any, y_place: Any, blocks: Any) -> Any:
    """The sum of x * y."""
    signature = types.float64(x, types.uint64, y, types.uint64, types.int64)
    return signature, _sum(lambda b, v, w: b.fmul(v, w))


def _dot_absolute(typing: Any, x: Any, x_place: Any, y: Any, y_place: Any, blocks: Any) -> Any:
    """The sum of |x| * y."""
    signature = types.float64(x, types.uint64, y, types.uint64, types.int64)
    return signature, _sum(lambda b, v, w: b.fmul(_absolute(b, v), w))


def _copy(typing: Any, y: Any, y_place: Any, x: Any, x_place: Any, blocks: Any) -> Any:
    """y = x."""
    signature = types.void(y, types.uint64, x, types.uint64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        target = vector_at(context, builder, sig.args[0], args[0], args[1])
        source = vector_at(context, builder, sig.args[2], args[2], args[3])
        with cgutils.for_range(builder, args[4]) as loop:
            store_vector(builder, load_vector(builder, source, loop.index), target, loop.index)
        return context.get_dummy_value()

    return signature, generate


_LANES = ir.VectorType(ir.IntType(64), BLOCK)


def _relax(
    typing: Any,
    below: Any,
    above: Any,
    place: Any,
    low: Any,
    high: Any,
    intercept: Any,
    doubt: Any,
    unit: Any,
    count: Any,
    for_below: Any,
    for_above: Any,
    sums: Any,
) -> Any:
    """Replace `count` units from `unit` on by their linear bounds in two forms whose coefficients start at `place`.

    A coefficient x of the lower form becomes `x low` if positive, else `x high`, which adds `x intercept` to the form's
    constant; the upper form the other way round. The new coefficients go to `for_below`, `for_above` (from 0 on, whole
    blocks), the constants to sums[0], sums[1], and the sums of `|x| doubt` to sums[2], sums[3] (all added).
    """
    signature = types.void(
        below, above, types.uint64, low, high, intercept, doubt, types.uint64, types.int64, for_below, for_above, sums
    )  # fmt: skip

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        forms = [vector_at(context, builder, sig.args[i], args[i], args[2]) for i in (0, 1)]
        tables = [vector_at(context, builder, sig.args[i], args[i], args[7]) for i in (3, 4, 5, 6)]
        results = [vector_at(context, builder, sig.args[i], args[i], WORD(0)) for i in (9, 10)]
        totals = vector_at(context, builder, sig.args[11], args[11], WORD(0))
        nothing = ir.Constant(VECTOR, [0.0] * BLOCK)
        lanes = [cgutils.alloca_once(builder, VECTOR) for _ in range(4)]
        for lane in lanes:
            builder.store(nothing, lane)
        counting = ir.Constant(_LANES, list(range(BLOCK)))
        blocks = builder.sdiv(builder.add(args[8], WORD(BLOCK - 1)), WORD(BLOCK))
        with cgutils.for_range(builder, blocks) as loop:
            g = loop.index
            left = builder.sub(args[8], builder.mul(g, WORD(BLOCK)))
            single = builder.insert_element(ir.Constant(_LANES, ir.Undefined), left, ir.IntType(32)(0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
            limit = builder.shuffle_vector(single, ir.Constant(_LANES, ir.Undefined), zeros)
            mine = builder.icmp_signed("<", counting, limit)
            low, high, intercept, doubt = (load_vector(builder, t, g) for t in tables)
            for side in (0, 1):
                x = builder.select(mine, load_vector(builder, forms[side], g), nothing)
                comparison = ">" if side == 0 else "<"
                gentle = builder.fcmp_ordered(comparison, x, nothing)
                slope = builder.select(gentle, low, high)
                store_vector(builder, builder.fmul(x, slope), results[side], g)
                part = builder.fmul(x, builder.select(gentle, nothing, intercept))
                builder.store(builder.fadd(builder.load(lanes[side]), part), lanes[side])
                part = builder.fmul(_absolute(builder, x), doubt)
                builder.store(builder.fadd(builder.load(lanes[2 + side]), part), lanes[2 + side])
        for i, lane in enumerate(lanes):
            spot = builder.gep(totals, [WORD(i)])
            builder.store(builder.fadd(builder.load(spot), sum_across(builder, builder.load(lane))), spot)
        return context.get_dummy_value()

    return signature, generate


def _add_rows(
    typing: Any,
    below: Any,
    above: Any,
    rows: Any,
    place: Any,
    step: Any,
    count: Any,
    for_below: Any,
    for_above: Any,
    blocks: Any,
) -> Any:
    """below += sum_m for_below[m] * row m and above likewise; row m starts at `place + m * step` of `rows`."""
    signature = types.void(
        below, above, rows, types.uint64, types.uint64, types.int64, for_below, for_above, types.int64
    )  # fmt: skip

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        forms = [vector_at(context, builder, sig.args[i], args[i], WORD(0)) for i in (0, 1)]
        table = vector_at(context, builder, sig.args[2], args[2], args[3])
        factors = [vector_at(context, builder, sig.args[i], args[i], WORD(0)) for i in (6, 7)]
        sums = [cgutils.alloca_once(builder, VECTOR) for _ in range(2)]
        with cgutils.for_range(builder, args[8]) as outer:
            g = outer.index
            for side in (0, 1):
                builder.store(load_vector(builder, forms[side], g), sums[side])
            with cgutils.for_range(builder, args[5]) as loop:
                m = loop.index
                row = load_vector(builder, builder.gep(table, [builder.mul(m, args[4])]), g)
                for side in (0, 1):
                    factor = spread_vector(builder, builder.load(builder.gep(factors[side], [m])))
                    part = builder.fadd(builder.load(sums[side]), builder.fmul(row, factor))
                    builder.store(part, sums[side])
            for side in (0, 1):
                store_vector(builder, builder.load(sums[side]), forms[side], g)
        return context.get_dummy_value()

    return signature, generate


def _part(x: Any, place: int, blocks: int) -> Any:
    return x[int(place) : int(place) + BLOCK * int(blocks)]


def _plain_axpy(y: Any, y_place: int, x: Any, x_place: int, factor: float, blocks: int) -> None:
    _part(y, y_place, blocks)[:] += factor * _part(x, x_place, blocks)


def _plain_add_absolute(y: Any, y_place: int, x: Any, x_place: int, factor: float, blocks: int) -> None:
    _part(y, y_place, blocks)[:] += factor * np.abs(_part(x, x_place, blocks))


def _plain_dot(x: Any, x_place: int, y: Any, y_place: int, blocks: int) -> float:
    return float(_part(x, x_place, blocks) @ _part(y, y_place, blocks))


def _plain_dot_absolute(x: Any, x_place: int, y: Any, y_place: int, blocks: int) -> float:
    return float(np.abs(_part(x, x_place, blocks)) @ _part(y, y_place, blocks))


def _plain_copy(y: Any, y_place: int, x: Any, x_place: int, blocks: int) -> None:
    _part(y, y_place, blocks)[:] = _part(x, x_place, blocks)


def _plain_relax(
    below: Any,
    above: Any,
    place: int,
    low: Any,
    high: Any,
    intercept: Any,
    doubt: Any,
    unit: int,
    count: int,
    for_below: Any,
    for_above: Any,
    sums: Any,
) -> None:
    n, place, unit = int(count), int(place), int(unit)
    part = slice(unit, unit + n)
    for side, (form, result) in enumerate(((below, for_below), (above, for_above))):
        x = form[place : place + n]
        gentle = x > 0 if side == 0 else x < 0
        result[:n] = x * np.where(gentle, low[part], high[part])
        sums[side] += (x * np.where(gentle, 0.0, intercept[part])).sum()
        sums[2 + side] += (np.abs(x) * doubt[part]).sum()


def _plain_add_rows(
    below: Any,
    above: Any,
    rows: Any,
    place: int,
    step: int,
    count: int,
    for_below: Any,
    for_above: Any,
    blocks: int,
) -> None:
    for m in range(int(count)):
        row = _part(rows, int(place) + m * int(step), blocks)
        _part(below, 0, blocks)[:] += for_below[m] * row
        _part(above, 0, blocks)[:] += for_above[m] * row


axpy: Any = choose(_axpy, _plain_axpy)
add_absolute: Any = choose(_add_absolute, _plain_add_absolute)
dot: Any = choose(_dot, _plain_dot)
dot_absolute: Any = choose(_dot_absolute, _plain_dot_absolute)
copy: Any = choose(_copy, _plain_copy)
relax: Any = choose(_relax, _plain_relax)
add_rows: Any = choose(_add_rows, _plain_add_rows)
