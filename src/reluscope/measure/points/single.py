"""A network at many normal points in single precision, for questions of the form `y <= c`.

Units that bend elsewhere than at 0 become sums of units that do not. Sixty-four points go side by side in vector
registers of sixteen floats: four times the work of double precision per instruction, fused operations counted. A
point whose value comes near one of the thresholds is done again in double precision, so the answer to `y <= c` is
that of double precision. *Near* is `SAFETY` times the largest difference between the two precisions on some trial
points, more for points at which a hidden unit is larger than on all of those.

The points are what 32 random bits make them: each coordinate is the normal quantile of `(bits + 1/2) / 2^32`, at most
6.34, rounded so that its distribution function is within 1e-7 of the normal one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.measure.points.small import SmallForms, folded, n_weights, packed
from reluscope.measure.simd import vector_at, vector_row
from reluscope.network import Network

Bits = npt.NDArray[np.uint32]
Singles = npt.NDArray[np.float32]
Evaluate = Callable[[Bits, int], FloatArray]

SIDE = 64
"""Points side by side."""
TRIAL = 1024
_TRIAL_WORK = 1 << 26
"""Multiplications for the trial; large networks have fewer points, at least 128."""
_MOST_WEIGHTS = 1 << 20
_MOST_BENDS = 4
SAFETY = 32.0
_EPS = 2.0**-23
_MOST_AGAIN = 0.05
"""With a larger share of points to do again, double precision is the better way."""
_LARGEST = 1e30

_KEEP, _RECTIFY, _BEND = 0, 1, 2
_FLOATS = 16
_VECTORS = SIDE // _FLOATS
_ROWS = 4
_FLOAT = ir.FloatType()
_WORD = ir.IntType(64)
_HALFWORD = ir.IntType(_FLOATS)
_VECTOR = ir.VectorType(_FLOAT, _FLOATS)
_WHOLE = ir.VectorType(ir.IntType(32), _FLOATS)

# -Φ⁻¹(q) / (1 - 2q) as a polynomial in w - 2.5 for w = -log(4q(1-q)) <= 5 (relative error 6e-9), else in sqrt(w) - 3.5
# up to w = 22.3 (1e-7); log(1 + f) = f - f²/2 + f³ p(f) for sqrt(1/2) <= 1 + f <= sqrt(2) (7e-9). Weighted least
# squares at 400 Chebyshev points, reweighted towards equal ripples.
_CENTRE = (
    2.12331348e00, 3.48802038e-01, -5.90771704e-03, -1.77164455e-03, 3.08785667e-04, -7.01923385e-06, -4.89700403e-06,
    6.59264875e-07, 3.28559206e-08, -1.24324313e-08,
)  # fmt: skip
_TAIL = (
    4.71708879e00, 1.42463786e00, 4.64641291e-03, -2.95071281e-03, 1.47961450e-03, -8.66074542e-04, 7.34083808e-04,
    -4.32241773e-04, 1.92192781e-05, 5.33922536e-05,
)  # fmt: skip
_LOG = (0.33333332, -0.25000821, 0.20001227, -0.16623356, 0.14201762, -0.13160195, 0.1276155, -0.0763443)
_SQRT_HALF_BITS = 0x3F3504F3


class SingleForms:
    """Sides of thresholds for the forms `forms @ net(turn @ z)` at standard normal points z, given by random bits."""

    def __init__(self, net: Network, forms: FloatArray, turn: FloatArray, limits: Sequence[FloatArray]) -> None:
        """`limits[f]` holds the thresholds of form f."""
        self.exact: Callable[[FloatArray], FloatArray]
        if SmallForms.suits(net):
            self.exact = SmallForms(net, forms, turn)
        else:
            self.exact = lambda Z: net(Z @ turn.T) @ forms.T
        weights, biases, slopes = _bent(net, *folded(net, forms, turn))
        weights, biases = _levelled(weights, biases)
        height = [-(-len(w) // _ROWS) * _ROWS for w in weights]
        rows = [packed(w, h) for w, h in zip(weights, height, strict=True)]
        with np.errstate(over="ignore"):
            self._packed = np.concatenate(rows).astype(np.float32)
            padded = [np.pad(b, (0, h - len(b))) for b, h in zip(biases, height, strict=True)]
            self._bias = np.concatenate(padded).astype(np.float32)
            finite = [np.unique(np.asarray(c)[np.isfinite(c)]) for c in limits]
            self._limits = np.concatenate([*finite, np.zeros(0)]).astype(np.float32)
        self._limit_start = np.cumsum([0, *(len(c) for c in finite)])
        self._slopes = np.zeros((2, int(sum(height))), np.float32)
        row = 0
        for slope, h in zip(slopes, height, strict=False):
            self._slopes[:, row : row + len(slope)] = slope.T
            row += h
        self._kind = np.array([_RECTIFY if (s == [0.0, 1.0]).all() else _BEND for s in slopes] + [_KEEP], np.int64)
        self._inputs = np.array([w.shape[1] for w in weights], np.uint64)
        self._height = np.array(height, np.uint64)
        widest = int(max(self._inputs.max(), self._height.max()))
        self._lanes = np.zeros((2 * widest + net.n_inputs + 1, SIDE), np.float32)
        self._margin = np.zeros(len(forms), np.float32)
        self._scale = np.zeros(len(weights), np.float32)
        self._near = np.zeros(0, np.int64)
        self._again = np.zeros((0, net.n_inputs))
        self.share_again = self._calibrate(weights, biases, slopes, finite)

    @classmethod
    def suited(
        cls, net: Network, forms: FloatArray, turn: FloatArray, limits: Sequence[FloatArray]
    ) -> SingleForms | None:
        """The same if single precision pays: values of ordinary size, and few of them near a threshold."""
        bends = max((layer.units.breaks.shape[1] for layer in net.hidden), default=1)
        if n_weights(net) * max(bends, 1) ** 2 > _MOST_WEIGHTS or bends > _MOST_BENDS:
            return None
        made = cls(net, forms, turn, limits)
        return made if made.share_again <= _MOST_AGAIN else None

    def __call__(self, bits: Bits, n: int) -> FloatArray:
        """Values (n, forms) of the forms, good for comparison with the thresholds only.

        `bits` (inputs, m) holds the points in its first n columns; m is a multiple of `SIDE`.
        """
        out, count = self._rough(bits, n)
        if count:
            out[self._near[:count]] = self.exact(self._again[:count])
        return out

    def twin(self) -> SingleForms:
        """The same with buffers of its own, for another thread."""
        other = copy.copy(self)
        other._lanes, other._near, other._again = self._lanes.copy(), self._near.copy(), self._again.copy()
        return other

    def _rough(self, bits: Bits, n: int) -> tuple[FloatArray, int]:
        """The forms in single precision, and how many points are to be done again."""
        if len(self._near) < n:
            self._near, self._again = np.empty(n, np.int64), np.empty((n, self._again.shape[1]))
        out = np.empty((n, len(self._margin)))
        count = _screen(
            bits, self._packed, self._bias, self._slopes, self._inputs, self._height, self._kind, self._scale,
            self._lanes, self._margin, self._limits, self._limit_start, out, self._near, self._again,
        )  # fmt: skip
        return out, count

    def _calibrate(
        self,
        weights: list[FloatArray],
        biases: list[FloatArray],
        slopes: list[FloatArray],
        limits: list[FloatArray],
    ) -> float:
        """Set the margins from both precisions at some points; the share of them to do again."""
        n = int(np.clip(_TRIAL_WORK // sum(w.size for w in weights), 128, TRIAL)) // SIDE * SIDE
        bits = np.random.default_rng(0).integers(0, 2**32, (self._again.shape[1], n), dtype=np.uint32)
        # A margin that no value escapes, so that all the points are left in `_again`.
        self._margin[:] = np.float32(np.inf)
        rough, _ = self._rough(bits, n)
        points = self._again[:n]
        fine, largest = self.exact(points), []
        for w, b, slope in zip(weights, biases, [*slopes, np.ones((1, 2))], strict=True):
            points = points @ w.T + b
            points = np.where(points > 0.0, slope[:, 1], slope[:, 0]) * points
            largest.append(np.abs(points).max(initial=0.0))
        sizes = np.array(largest)
        with np.errstate(invalid="ignore", over="ignore"):
            margin = SAFETY * np.abs(rough - fine).max(axis=0) + 64.0 * _EPS * np.abs(fine).max(axis=0)
            margin += [_EPS * np.abs(c).max(initial=0.0) for c in limits]
        if not (np.isfinite(margin).all() and np.isfinite(sizes).all() and margin.max() < _LARGEST):
            return 1.0
        self._margin[:] = margin * (1.0 + 4.0 * _EPS)
        self._scale[:] = 1.0 / np.where(sizes > 1.0 / _LARGEST, sizes, np.inf)
        return self._rough(bits, n)[1] / n


def evaluator(net: Network, forms: FloatArray, limits: Sequence[FloatArray]) -> Evaluate:
    """The forms at standard normal points that are given by random bits (inputs, m); the first n columns count.

    Good for comparison with the thresholds only: in single precision where that pays.
    """
    unit = np.eye(net.n_inputs)
    single = SingleForms.suited(net, forms, unit, limits)
    if single is not None:
        return single
    exact = SmallForms(net, forms, unit) if SmallForms.suits(net) else None

    def double(bits: Bits, n: int) -> FloatArray:
        Z = np.empty((n, len(bits)))
        normals_of(bits, Z)
        return net(Z) @ forms.T if exact is None else exact(Z)

    return double


def _bent(
    net: Network, weights: list[FloatArray], biases: list[FloatArray]
) -> tuple[list[FloatArray], list[FloatArray], list[FloatArray]]:
    """Weights, biases and slopes (units, 2) below and above 0 of an equal network whose units bend at 0 only.

    A unit with breaks `t_1 < ... < t_k` is a constant, plus a unit that bends at t_1, plus multiples of
    `max(0, x - t_j)` for the others.
    """
    weights, biases, slopes = list(weights), list(biases), []
    for i, layer in enumerate(net.hidden):
        width = layer.width
        breaks, slope, intercept = (
            np.broadcast_to(part, (width, part.shape[1]))
            for part in (layer.units.breaks, layer.units.slopes, layer.units.intercepts)
        )
        if not breaks.shape[1]:
            breaks, slope, intercept = (
                np.zeros((width, 1)),
                np.repeat(slope, 2, axis=1),
                np.repeat(intercept, 2, axis=1),
            )
        real = np.isfinite(breaks)  # units of fewer pieces than others of their layer have infinite ones at the end
        breaks = np.where(real, breaks, 0.0)
        change = np.where(real, np.diff(slope, axis=1), 0.0)
        new_biases, new_slopes = [biases[i] - breaks[:, 0]], [slope[:, :1] + np.array([0.0, 1.0]) * change[:, :1]]
        parts, new_weights = [weights[i + 1]], [weights[i]]
        for j in range(1, breaks.shape[1]):
            some = change[:, j] != 0.0
            new_weights.append(weights[i][some])
            new_biases.append(biases[i][some] - breaks[some, j])
            new_slopes.append(np.tile([0.0, 1.0], (int(some.sum()), 1)))
            parts.append(weights[i + 1][:, some] * change[some, j])
        biases[i + 1] = biases[i + 1] + weights[i + 1] @ (slope[:, 0] * breaks[:, 0] + intercept[:, 0])
        weights[i], biases[i] = np.concatenate(new_weights), np.concatenate(new_biases)
        weights[i + 1] = np.concatenate(parts, axis=1)
        slopes.append(np.concatenate(new_slopes))
    return weights, biases, slopes


def _levelled(weights: list[FloatArray], biases: list[FloatArray]) -> tuple[list[FloatArray], list[FloatArray]]:
    """The same network with units scaled so that the largest weight out of each is 1 in size.

    Then a unit's value says how much it moves what comes behind it, and large values mean large errors.
    """
    weights, biases = list(weights), list(biases)
    for i in range(len(weights) - 1, 0, -1):
        size = np.abs(weights[i]).max(axis=0, initial=0.0)
        size = np.where((size > 0.0) & np.isfinite(size), size, 1.0)
        weights[i] = weights[i] / size
        weights[i - 1], biases[i - 1] = weights[i - 1] * size[:, None], biases[i - 1] * size
    return weights, biases


class _Lanes:
    """A vector of floats with the usual operations, each rounded by itself: the same bits on every machine."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _of(self, other: Any) -> Any:
        return other.value if isinstance(other, _Lanes) else _constant(float(other))

    def __add__(self, other: Any) -> _Lanes:
        return _Lanes(self.builder, self.builder.fadd(self.value, self._of(other)))

    def __sub__(self, other: Any) -> _Lanes:
        return _Lanes(self.builder, self.builder.fsub(self.value, self._of(other)))

    def __mul__(self, other: Any) -> _Lanes:
        return _Lanes(self.builder, self.builder.fmul(self.value, self._of(other)))

    def polynomial(self, coefficients: Sequence[float]) -> _Lanes:
        """Horner's rule for even and odd powers apart: the two do not wait for one another."""
        square = self * self
        halves = []
        for part in (coefficients[::2], coefficients[1::2]):
            total = square * part[-1] + part[-2]
            for c in reversed(part[:-2]):
                total = total * square + c
            halves.append(total)
        return halves[0] + halves[1] * self


def _constant(number: float) -> Any:
    return ir.Constant(_VECTOR, [float(np.float32(number))] * _FLOATS)


def _whole(number: int) -> Any:
    return ir.Constant(_WHOLE, [number] * _FLOATS)


def _block(builder: Any, start: Any, index: int | Any) -> Any:
    place = builder.gep(start, [_WORD(index * _FLOATS) if isinstance(index, int) else index])
    return builder.bitcast(place, _VECTOR.as_pointer())


def _spread(builder: Any, number: Any) -> Any:
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), _FLOATS), [0] * _FLOATS)
    return builder.shuffle_vector(single, ir.Constant(_VECTOR, ir.Undefined), lanes)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _normal_row(typing: Any, lanes: Any, row: Any, bits: Any, k: Any, begin: Any) -> Any:
    """Row `row` of `lanes` becomes the normal quantiles of (bits[k, begin:begin+64] + 1/2) / 2^32."""
    signature = types.void(lanes, types.uint64, bits, types.uint64, types.uint64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        goal = vector_row(context, builder, sig.args[0], args[0], args[1])
        origin = builder.gep(vector_row(context, builder, sig.args[2], args[2], args[3]), [args[4]])
        found = []
        # All vectors up to here side by side, so that none waits for another's branch.
        for v in range(_VECTORS):
            place = builder.gep(origin, [_WORD(v * _FLOATS)])
            word = builder.load(builder.bitcast(place, _WHOLE.as_pointer()), align=4)
            upper = builder.ashr(word, _whole(31))  # all ones above the median, else 0
            folded_bits = builder.xor(word, upper)
            q = (_Lanes(builder, builder.sitofp(folded_bits, _VECTOR)) + 0.5) * 2.0**-32
            x = _Lanes(builder, _constant(1.0)) - q * 2.0
            t = q * 4.0 * (_Lanes(builder, _constant(1.0)) - q)
            raw = builder.bitcast(t.value, _WHOLE)
            e = builder.ashr(builder.sub(raw, _whole(_SQRT_HALF_BITS)), _whole(23))
            f = _Lanes(builder, builder.bitcast(builder.sub(raw, builder.shl(e, _whole(23))), _VECTOR)) - 1.0
            f2 = f * f
            log = (f - f2 * 0.5) + f2 * f * f.polynomial(_LOG)
            w = _Lanes(builder, builder.sitofp(e, _VECTOR)) * -0.6931471805599453 - log
            w = _Lanes(builder, _larger(builder, w.value, _constant(0.0)))
            found.append((upper, x, w, (w - 2.5).polynomial(_CENTRE).value))
        for v, (upper, x, w, centre) in enumerate(found):
            ratio = cgutils.alloca_once_value(builder, centre)
            far = builder.fcmp_ordered(">", w.value, _constant(5.0))
            # One number in 280 is far: most vectors have none.
            with builder.if_then(builder.icmp_unsigned("!=", builder.bitcast(far, _HALFWORD), _HALFWORD(0)), False):
                root = _call(builder, "llvm.sqrt.v16f32", w.value)
                tail = (_Lanes(builder, root) - 3.5).polynomial(_TAIL)
                builder.store(builder.select(far, tail.value, builder.load(ratio)), ratio)
            z = x * _Lanes(builder, builder.load(ratio))
            sign = builder.and_(builder.xor(upper, _whole(-1)), _whole(-(2**31)))
            signed = builder.xor(builder.bitcast(z.value, _WHOLE), sign)
            builder.store(builder.bitcast(signed, _VECTOR), _block(builder, goal, v), align=4)
        return context.get_dummy_value()

    return signature, generate


def _call(builder: Any, name: str, *values: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * len(values))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


def _mix_singles(
    typing: Any,
    lanes: Any,
    target: Any,
    source: Any,
    packed: Any,
    place: Any,
    bias: Any,
    row: Any,
    n: Any,
    kind: Any,
    peak: Any,
    scale: Any,
    slopes: Any,
) -> Any:
    """`mix_rows` in single precision, the sums kept as they are (kind 0), rectified (1), or times `slopes` (2).

    The rows of `slopes` are for sums below and above 0. But for kind 0, sizes of the new rows times `scale` raise the
    row `peak` where they are larger.
    """
    signature = types.void(
        lanes, types.uint64, types.uint64, packed, types.uint64, bias, types.uint64, types.uint64, types.int64,
        types.uint64, types.float32, slopes,
    )  # fmt: skip

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        goal = vector_row(context, builder, sig.args[0], args[0], args[1])
        origin = vector_row(context, builder, sig.args[0], args[0], args[2])
        top = vector_row(context, builder, sig.args[0], args[0], args[9])
        weights = vector_at(context, builder, sig.args[3], args[3], args[4])
        begin = vector_at(context, builder, sig.args[5], args[5], args[6])
        sums = [[cgutils.alloca_once(builder, _VECTOR) for _ in range(_VECTORS)] for _ in range(_ROWS)]
        for g, row in enumerate(sums):
            first = _spread(builder, builder.load(builder.gep(begin, [_WORD(g)])))
            for one in row:
                builder.store(first, one)
        with cgutils.for_range(builder, args[7]) as loop:
            at = builder.mul(loop.index, _WORD(SIDE))
            x = [
                builder.load(_block(builder, origin, builder.add(at, _WORD(v * _FLOATS))), align=4)
                for v in range(_VECTORS)
            ]
            four = builder.mul(loop.index, _WORD(_ROWS))
            for g, row in enumerate(sums):
                weight = _spread(builder, builder.load(builder.gep(weights, [builder.add(four, _WORD(g))])))
                for v, one in enumerate(row):
                    # Fused where the machine can: whoever comes near a threshold is done again anyway.
                    builder.store(_call(builder, "llvm.fmuladd.v16f32", x[v], weight, builder.load(one)), one)
        nothing = _constant(0.0)

        def finish(unit: Any, size: Any) -> None:
            """Store unit(row, sum); the largest size of what is stored goes to the row `peak`."""
            scale = _spread(builder, args[10])
            for v in range(_VECTORS):
                most = nothing
                for g, row in enumerate(sums):
                    value = unit(g, builder.load(row[v]))
                    builder.store(value, _block(builder, goal, g * _VECTORS + v), align=4)
                    most = _larger(builder, size(value), most)
                place = _block(builder, top, v)
                known = builder.load(place, align=4)
                builder.store(_larger(builder, builder.fmul(most, scale), known), place, align=4)

        with builder.if_else(builder.icmp_signed("==", args[8], _WORD(_KEEP))) as (keep, otherwise):
            with keep:
                for g, row in enumerate(sums):
                    for v, one in enumerate(row):
                        builder.store(builder.load(one), _block(builder, goal, g * _VECTORS + v), align=4)
            with otherwise, builder.if_else(builder.icmp_signed("==", args[8], _WORD(_RECTIFY))) as (cut, bend):
                with cut:
                    finish(lambda g, x: _larger(builder, x, nothing), lambda x: x)
                with bend:
                    sides = [
                        builder.gep(vector_row(context, builder, sig.args[11], args[11], _WORD(i)), [args[6]])
                        for i in (0, 1)
                    ]
                    low, high = (
                        [_spread(builder, builder.load(builder.gep(side, [_WORD(g)]))) for g in range(_ROWS)]
                        for side in sides
                    )

                    def bent(g: int, x: Any) -> Any:
                        positive = builder.fcmp_ordered(">", x, nothing)
                        return builder.fmul(x, builder.select(positive, high[g], low[g]))

                    finish(bent, lambda x: _larger(builder, x, builder.fneg(x)))
        return context.get_dummy_value()

    return signature, generate


def _plain_normal_row(lanes: Any, row: int, bits: Any, k: int, begin: int) -> None:
    word = bits[int(k), int(begin) : int(begin) + SIDE].astype(np.int64)
    above = word >= 2**31
    single = np.float32

    def polynomial(x: Singles, coefficients: Sequence[float]) -> Singles:
        square = x * x
        halves = []
        for part in (coefficients[::2], coefficients[1::2]):
            total = square * single(part[-1]) + single(part[-2])
            for c in reversed(part[:-2]):
                total = total * square + single(c)
            halves.append(total)
        return halves[0] + halves[1] * x

    q = (np.where(above, 2**32 - 1 - word, word).astype(single) + single(0.5)) * single(2.0**-32)
    x, t = single(1.0) - q * single(2.0), q * single(4.0) * (single(1.0) - q)
    raw = t.view(np.int32)
    e = (raw - np.int32(_SQRT_HALF_BITS)) >> 23
    f = (raw - (e << 23)).view(single) - single(1.0)
    f2 = f * f
    log = (f - f2 * single(0.5)) + f2 * f * polynomial(f, _LOG)
    w = np.maximum(e.astype(single) * single(-0.6931471805599453) - log, single(0.0))
    tail, centre = polynomial(np.sqrt(w) - single(3.5), _TAIL), polynomial(w - single(2.5), _CENTRE)
    z = x * np.where(w <= 5.0, centre, tail)
    lanes[int(row)] = np.where(above, z, -z)


def _plain_mix_singles(
    lanes: Any,
    target: int,
    source: int,
    packed: Any,
    place: int,
    bias: Any,
    row: int,
    n: int,
    kind: int,
    peak: int,
    scale: float,
    slopes: Any,
) -> None:
    t, k, p, r = int(target), int(n), int(place), int(row)
    weights = packed[p : p + _ROWS * k].reshape(k, _ROWS)
    total = bias[r : r + _ROWS, None] + weights.T @ lanes[int(source) : int(source) + k]
    if kind == _RECTIFY:
        total = np.maximum(total, 0.0)
    elif kind == _BEND:
        total = total * np.where(total > 0.0, slopes[1, r : r + _ROWS, None], slopes[0, r : r + _ROWS, None])
    lanes[t : t + _ROWS] = total
    if kind != _KEEP:
        lanes[int(peak)] = np.maximum(lanes[int(peak)], np.abs(total).max(axis=0) * scale)


normal_row: Any = _plain_normal_row if config.DISABLE_JIT else intrinsic(_normal_row)
mix_singles: Any = _plain_mix_singles if config.DISABLE_JIT else intrinsic(_mix_singles)


@kernel
def normals_of(bits: Any, out: Any) -> None:
    """The first columns of random bits as standard normal points (n, r)."""
    n, r = out.shape
    lanes = np.empty((r, SIDE), np.float32)
    for begin in range(0, n, SIDE):
        for k in range(r):
            normal_row(lanes, np.uint64(k), bits, np.uint64(k), np.uint64(begin))
        for p in range(min(SIDE, n - begin)):
            for k in range(r):
                out[begin + p, k] = lanes[k, p]


@kernel
def _screen(
    bits: Any,
    packed: Any,
    bias: Any,
    slopes: Any,
    inputs: Any,
    height: Any,
    kind: Any,
    scale: Any,
    lanes: Any,
    margin: Any,
    limits: Any,
    limit_start: Any,
    out: Any,
    near: Any,
    again: Any,
) -> int:
    """The forms at the points; those too near a threshold are listed in `near`, their coordinates in `again`."""
    n, depth, forms = out.shape[0], inputs.size, out.shape[1]
    four = np.uint64(4)
    dimensions = bits.shape[0]
    peak = np.uint64(lanes.shape[0] - 1)
    points = np.uint64(lanes.shape[0] - 1 - dimensions)
    half = np.uint64(points // np.uint64(2))
    marked = np.empty(SIDE, np.bool_)
    nearest = np.empty(SIDE, np.float32)
    count = 0
    for begin in range(0, n, SIDE):
        for k in range(dimensions):
            normal_row(lanes, points + np.uint64(k), bits, np.uint64(k), np.uint64(begin))
        for p in range(SIDE):
            lanes[peak, p] = np.float32(1.0)
            marked[p] = False
        source, target = points, np.uint64(0)
        place, row = np.uint64(0), np.uint64(0)
        for layer in range(depth):
            fan = inputs[layer]
            j = np.uint64(0)
            while j < height[layer]:
                mix_singles(
                    lanes, target + j, source, packed, place, bias, row, fan, kind[layer], peak, scale[layer], slopes
                )
                place += four * fan
                row += four
                j += four
            source, target = target, half - target
        stop = min(SIDE, n - begin)
        for f in range(forms):
            for p in range(SIDE):
                nearest[p] = np.float32(_LARGEST)
            y = np.uint64(source + np.uint64(f))
            for q in range(limit_start[f], limit_start[f + 1]):
                c = limits[q]
                for p in range(SIDE):
                    d = abs(lanes[y, p] - c)
                    nearest[p] = nearest[p] if d >= nearest[p] else d
            m = margin[f]
            for p in range(SIDE):
                # Written so that values that are no numbers count as near, and huge ones too.
                inside = (nearest[p] > m * lanes[peak, p]) & (abs(lanes[y, p]) < np.float32(_LARGEST))
                marked[p] |= not inside
            for p in range(stop):
                out[begin + p, f] = lanes[y, p]
        for p in range(stop):
            if marked[p]:
                near[count] = begin + p
                for k in range(dimensions):
                    again[count, k] = lanes[points + np.uint64(k), p]
                count += 1
    return count
