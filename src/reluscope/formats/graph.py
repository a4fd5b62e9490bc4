"""From a dataflow graph to a layered network, by running the graph on affine expressions.

The variables of a graph come in *blocks*: block 0 holds the network's inputs, and every nonlinear node makes
a block of units. A `Tensor` is a shape and one affine expression per entry,

    t = c + sum_b M_b v_b          (c of shape (size,), M_b of shape (size, block size), row-major entries),

so data movement is row selection, an affine operation is a sparse product, and a nonlinear one makes the
block `v = act(t)` and returns the identity on it. Adjacent affine operations fold into one map that way.

A block has level 1 + the highest level it reads. Layer l of the finished network holds the units of the
level-l blocks and identity units that carry the variables which a later layer still reads, so residual and
concatenating graphs become layered ones. Everything that counts weights is checked against `Limits` before
memory is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray
from reluscope.activations import Activation, Units, clip, identity, relu
from reluscope.errors import InputError, UnsupportedError
from reluscope.formats import _terms
from reluscope.formats._terms import IndexArray, Shape, Term, Window
from reluscope.limits import DEFAULT_LIMITS, Limits
from reluscope.network import Network, Origin

_Needed = dict[int, npt.NDArray[np.bool_]]
_Reads = dict[int, npt.NDArray[np.int64]]
"""By block: which variables are needed, and the last layer that reads each."""

_GROWTH = 8
"""A product of two affine maps is kept factored when it has more than this many times their non-zeros ..."""
_SMALL = 1 << 14
"""... unless it has fewer than this: there an extra layer of identity units would cost more than it saves."""
_NUMBERS_PER_INDEX = 4
"""Numbers that an entry of a window takes while the windows are laid out."""
_NUMBERS_PER_KIND = 256
"""Numbers that fit in the memory of one kind of unit, with its row in every table."""
_NUMBERS_PER_ENTRY = 16
"""Numbers that a symbolic entry takes on its way into a network: its constant, indices, a row, a unit's tables."""


@dataclass(eq=False)
class _Meter:
    """Numbers held by the blocks and the live tensors of one builder: non-zeros (shared ones once), constants."""

    live: int = 0
    holders: dict[int, int] = field(default_factory=dict)

    def hold(self, term: Term) -> None:
        key = id(term)
        self.holders[key] = self.holders.get(key, 0) + 1
        if self.holders[key] == 1:
            self.live += _terms.nnz(term)

    def release(self, term: Term) -> None:
        key = id(term)
        self.holders[key] -= 1
        if not self.holders[key]:
            del self.holders[key]
            self.live -= _terms.nnz(term)


class Tensor:
    """The entries of one value in the graph as affine expressions; made by a `GraphBuilder` only."""

    __slots__ = ("_carried", "_cost", "_meter", "const", "shape", "terms")

    def __init__(self, shape: Shape, terms: dict[int, Term], const: FloatArray, meter: _Meter) -> None:
        self.shape = shape
        self.terms = terms
        self.const = const
        self._meter = meter
        self._cost = sum(_terms.nnz(m) for m in terms.values())
        self._carried: Tensor | None = None
        meter.live += len(const)
        for m in terms.values():
            meter.hold(m)

    def __del__(self) -> None:
        self._meter.live -= len(self.const)
        for m in self.terms.values():
            self._meter.release(m)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.const)

    @property
    def value(self) -> FloatArray | None:
        """The entries as an array when none of them depends on the input, else None."""
        return None if self.terms else self.const.reshape(self.shape)

    def __repr__(self) -> str:
        reads = ", ".join(f"block {b}: {_terms.nnz(m)} non-zeros" for b, m in self.terms.items()) or "constant"
        return f"Tensor(shape {self.shape}, {reads})"


Operand = Tensor | npt.ArrayLike


@dataclass(frozen=True, eq=False)
class Comparison:
    """Where entries of `difference` are above 0 (at 0 too unless `strict`): what a comparison gives, for `select`."""

    difference: Tensor
    strict: bool

    @property
    def shape(self) -> Shape:
        """That of the result."""
        return self.difference.shape


_SAME_LINE = 1e-12
"""Relative difference up to which two affine expressions count as multiples of each other."""


@dataclass(eq=False)
class _Block:
    """Units `v = act(M_b v_b + ... + const)`; block 0 has no units, its variables are the inputs."""

    size: int
    level: int
    terms: dict[int, Term]
    const: FloatArray
    units: Units
    source: tuple[str, str, Shape]
    """Name, operation and shape (without a batch axis) of what made it ..."""
    place: IndexArray
    """... and the entry that each unit is."""
    error: float = 0.0
    """By how much its values may differ from those of the source."""


class GraphBuilder:
    """Builds a layered `Network` from graph operations applied to symbolic tensors.

    >>> g = GraphBuilder()
    >>> x = g.input((1, 2))
    >>> h = g.activate(g.matmul(x, [[1.0, -1.0], [0.0, 2.0]]), relu())
    >>> net = g.build(g.add(h, x))                   # a skip connection
    >>> net([1.0, 1.0])
    array([2., 2.])
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._blocks: list[_Block] = []
        self._meter = _Meter()
        self._label = ("", "")
        self._compared: tuple[Shape, IndexArray] | None = None

    def at(self, name: str, operation: str) -> None:
        """From here on units are from this node of the source: `Network.origin` says so."""
        self._label = (name, operation)

    # -- variables -----------------------------------------------------------------------------------------

    def input(self, shape: Sequence[int]) -> Tensor:
        """The network's input, as a tensor of this shape (with a batch axis of 1 if the source has one)."""
        if self._blocks:
            raise InputError("a graph can have one input; this builder already has it")
        full = self._shape(shape, "the input")
        size = math.prod(full)
        if size == 0:
            raise InputError(f"the input must have at least one entry, got shape {full}")
        nothing = np.zeros(size)
        source = ("input", "input", _inside(full))
        units = Units.uniform(identity(), size)
        self._blocks.append(_Block(size, 0, {}, nothing, units, source, np.arange(size, dtype=np.intp)))
        return Tensor(full, {0: np.arange(size, dtype=np.intp)}, nothing, self._meter)

    def activate(self, t: Operand, activation: Any) -> Tensor:
        """`act(t)` elementwise: one `Activation`, or an array or list of them that broadcasts to `t`."""
        t = self._tensor(t)
        each = activation if isinstance(activation, np.ndarray) else np.asarray(activation, dtype=object)
        kinds = tuple(dict.fromkeys(each.ravel().tolist()))
        number = {a: i for i, a in enumerate(kinds)}
        small = np.array([number[a] for a in each.ravel().tolist()], dtype=np.intp).reshape(each.shape)
        try:
            which = np.ascontiguousarray(np.broadcast_to(small, t.shape)).ravel()
        except ValueError:
            raise InputError(f"activations of shape {each.shape} do not broadcast to {t.shape}") from None
        units = Units(kinds, which)
        if not t.terms:
            return self._make(t.shape, {}, units(t.const) if t.size else t.const)
        if all(len(set(a.slopes)) == 1 and len(set(a.intercepts)) == 1 for a in kinds):  # a line, whatever its breaks
            slope, intercept = units.slopes[:, 0].reshape(t.shape), units.intercepts[:, 0].reshape(t.shape)
            return self.add(t if (slope == 1).all() else self.scale(t, slope), intercept)
        shape, place = self._compared or (t.shape, np.arange(t.size, dtype=np.intp))
        return self._new_block(t, units, shape, place)

    # -- data movement -------------------------------------------------------------------------------------

    def move(self, t: Operand, index: npt.ArrayLike, fill: float = 0.0) -> Tensor:
        """The tensor with entries `t.flat[index]` and the shape of `index`; where the index is -1, `fill`."""
        t = self._tensor(t)
        wanted = np.asarray(index, dtype=np.intp)
        self.check_entries(wanted.size, "a tensor of the graph")
        return self._move(t, wanted.ravel(), wanted.shape, fill)

    def apply_move(self, t: Operand, fn: Callable[[IndexArray], npt.NDArray[Any]]) -> Tensor:
        """Apply a numpy operation that only moves entries (reshape, transpose, slicing, take, ...)."""
        t = self._tensor(t)
        return self.move(t, fn(np.arange(t.size, dtype=np.intp).reshape(t.shape)))

    def reshape(self, t: Operand, shape: Sequence[int]) -> Tensor:
        """The same entries in row-major order under another shape of the same size."""
        t = self._tensor(t)
        if math.prod(shape) != t.size:
            raise InputError(f"cannot reshape {t.shape} to {tuple(shape)}")
        return self._make(tuple(int(n) for n in shape), t.terms, t.const)

    def concat(self, parts: Sequence[Operand], axis: int) -> Tensor:
        """`numpy.concatenate`; parts may be arrays."""
        tensors = [self._tensor(p) for p in parts]
        starts = np.concatenate([[0], np.cumsum([t.size for t in tensors])]).astype(np.intp)
        self.check_entries(int(starts[-1]), "a concatenation")
        places = zip(starts, starts[1:], tensors, strict=False)
        index = np.concatenate([np.arange(a, b, dtype=np.intp).reshape(t.shape) for a, b, t in places], axis=axis)
        return self._move(self._stack(tensors), index.ravel(), index.shape, 0.0)

    # -- affine operations ---------------------------------------------------------------------------------

    def linear(self, t: Operand, matrix: Any, bias: npt.ArrayLike | None, shape: Sequence[int]) -> Tensor:
        """`matrix @ t.ravel() + bias` with the given shape; `matrix` of shape (out, in), dense or sparse.

        When the product with t's own matrices would have far more non-zeros than the factors have, t becomes
        a block of identity units first.
        """
        t = self._tensor(t)
        K = matrix if sparse.issparse(matrix) else np.asarray(matrix, dtype=np.float64)
        out = self._shape(shape, "the result of a linear map")
        if K.ndim != 2 or K.shape != (math.prod(out), t.size):
            raise InputError(
                f"a linear map from {t.shape} to {out} needs a matrix of shape "
                f"({math.prod(out)}, {t.size}), got {tuple(K.shape)}"
            )
        count = int(np.count_nonzero(K)) if isinstance(K, np.ndarray) else int(K.nnz)
        self._limits.check("weights", count, "a linear map")
        if isinstance(K, np.ndarray):
            K = _terms.full_csr(K)
        else:
            K = sparse.csr_array(K, dtype=np.float64, copy=True)  # the caller's matrix stays as it is
            K.sum_duplicates()
        return self._linear(t, K, None if bias is None else np.asarray(bias, dtype=np.float64).ravel(), out)

    def add(self, a: Operand, b: Operand) -> Tensor:
        """`a + b` with numpy broadcasting; either side may be an array."""
        return self._sum(a, b, 1.0)

    def subtract(self, a: Operand, b: Operand) -> Tensor:
        """`a - b` with numpy broadcasting; either side may be an array."""
        return self._sum(a, b, -1.0)

    def scale(self, t: Operand, factor: npt.ArrayLike) -> Tensor:
        """`t * factor` with numpy broadcasting; `factor` is constant."""
        t = self._tensor(t)
        by = np.asarray(factor, dtype=np.float64)
        t = self._broadcast(t, self._broadcast_shape(t.shape, by.shape))
        by = np.ascontiguousarray(np.broadcast_to(by, t.shape)).ravel()
        terms = {b: _terms.scaled(m, by, self._blocks[b].size) for b, m in t.terms.items()}
        return self._make(t.shape, terms, t.const * by)

    def matmul(self, t: Operand, W: npt.ArrayLike) -> Tensor:
        """`numpy.matmul(t, W)` with a constant right side, batch axes broadcast."""
        return self._matmul(self._tensor(t), np.asarray(W, dtype=np.float64), tensor_first=True)

    def matmul_left(self, W: npt.ArrayLike, t: Operand) -> Tensor:
        """`numpy.matmul(W, t)` with a constant left side, batch axes broadcast."""
        return self._matmul(self._tensor(t), np.asarray(W, dtype=np.float64), tensor_first=False)

    def conv(self, t: Operand, W: npt.ArrayLike, b: npt.ArrayLike | None, window: Window, groups: int = 1) -> Tensor:
        """Cross-correlation of `t` ``(N, C, *spatial)`` with `W` ``(out, C / groups, *kernel)``."""
        t, w = self._tensor(t), np.asarray(W, dtype=np.float64)
        self._check_window(t, window)
        if w.ndim != t.ndim or groups < 1 or w.shape[0] % groups or w.shape[1] * groups != t.shape[1]:
            raise InputError(f"a convolution of {t.shape} with weights {w.shape} in {groups} groups does not fit")
        out = window.counts(t.shape[2:])
        return self._per_sample(t, self._conv_matrix(t.shape[2:], out, w, window, groups), b, (w.shape[0], *out))

    def conv_transpose(
        self, t: Operand, W: npt.ArrayLike, b: npt.ArrayLike | None, window: Window, groups: int, extra: Sequence[int]
    ) -> Tensor:
        """The transpose of a convolution: `t` ``(N, C, *spatial)``, `W` ``(C, out / groups, *kernel)``."""
        t, w = self._tensor(t), np.asarray(W, dtype=np.float64)
        self._check_window(t, window)
        if w.ndim != t.ndim or groups < 1 or w.shape[0] != t.shape[1] or w.shape[0] % groups:
            raise InputError(
                f"a transposed convolution of {t.shape} with weights {w.shape} in {groups} groups does not fit"
            )
        n = t.ndim - 2
        reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], window.dilations, strict=True)]
        out = tuple(
            window.strides[i] * (t.shape[2 + i] - 1) + int(extra[i]) + reach[i] - window.pads[i] - window.pads[n + i]
            for i in range(n)
        )
        shape = self._shape((w.shape[1] * groups, *out), "the result of a transposed convolution")
        # Entry (o, i) of this map is entry (i, o) of the convolution that goes from the result to t.
        K = self._conv_matrix(out, t.shape[2:], w, window, groups)
        return self._per_sample(t, sparse.csr_array(K.T), b, shape)

    def average_pool(self, t: Operand, window: Window, count_include_pad: bool = False) -> Tensor:
        """Mean over windows of the spatial axes of `t` ``(N, C, *spatial)``.

        With `count_include_pad` the padding counts as zeros; what `ceil_mode` adds beyond it never counts.
        """
        t, index, out = self._windows_of(t, window)
        counted = index
        if count_include_pad:
            n = t.ndim - 2
            padded = [size + window.pads[i] + window.pads[n + i] for i, size in enumerate(t.shape[2:])]
            counted = self._windows(padded, out, replace(window, pads=[0] * 2 * n))
        counts = (counted >= 0).sum(axis=1)
        entry = index >= 0
        rows = np.nonzero(entry)[0]
        pool = sparse.csr_array(
            (1.0 / counts[rows], index[entry], _terms.row_starts(entry.sum(axis=1))),
            shape=(len(index), math.prod(t.shape[2:])),
        )
        self._limits.check("weights", t.shape[1] * pool.nnz, "an average pooling")
        return self._per_sample(t, _terms.repeat_diagonal(pool, t.shape[1]), None, (t.shape[1], *out))

    def batch_norm(
        self,
        t: Operand,
        scale: npt.ArrayLike,
        bias: npt.ArrayLike,
        mean: npt.ArrayLike,
        var: npt.ArrayLike,
        eps: float,
        axis: int = 1,
    ) -> Tensor:
        """`(t - mean) / sqrt(var + eps) * scale + bias` with one number of each per index of `axis`."""
        t = self._tensor(t)
        s, b, m, v = (np.asarray(p, dtype=np.float64).ravel() for p in (scale, bias, mean, var))
        channels = t.shape[axis] if -t.ndim <= axis < t.ndim else 1
        if any(len(p) != channels for p in (s, b, m, v)):
            raise InputError(f"a batch normalisation of {t.shape} needs {channels} of each parameter, got {len(s)}")
        if not (v + eps > 0).all():
            raise InputError(
                f"a batch normalisation has variance + epsilon = {(v + eps).min()}, which must be positive"
            )
        factor = s / np.sqrt(v + eps)
        along = [1] * t.ndim
        if t.ndim:
            along[axis] = -1
        return self.add(self.scale(t, factor.reshape(along)), (b - m * factor).reshape(along))

    def reduce_sum(self, t: Operand, axes: Sequence[int] | None, keepdims: bool = True) -> Tensor:
        """Sum over `axes` (None for all)."""
        return self._reduce(self._tensor(t), axes, keepdims, mean=False)

    def reduce_mean(self, t: Operand, axes: Sequence[int] | None, keepdims: bool = True) -> Tensor:
        """Mean over `axes` (None for all)."""
        return self._reduce(self._tensor(t), axes, keepdims, mean=True)

    # -- maxima --------------------------------------------------------------------------------------------

    def maximum(self, a: Operand, b: Operand) -> Tensor:
        """`max(a, b)` with broadcasting: `a + relu(b - a)`, or a one-break activation for a constant side."""
        a, b = self._tensor(a), self._tensor(b)
        if a.terms and b.terms:
            return self.add(a, self.activate(self.subtract(b, a), relu()))
        return self._against_constant(a, b, lambda c: clip(c, math.inf), np.maximum)

    def minimum(self, a: Operand, b: Operand) -> Tensor:
        """`min(a, b)` with broadcasting: `a - relu(a - b)`, or a one-break activation for a constant side."""
        a, b = self._tensor(a), self._tensor(b)
        if a.terms and b.terms:
            return self.subtract(a, self.activate(self.subtract(a, b), relu()))
        return self._against_constant(a, b, lambda c: clip(-math.inf, c), np.minimum)

    def max_pool(self, t: Operand, window: Window) -> Tensor:
        """Largest entry of each window of the spatial axes of `t` ``(N, C, *spatial)``; padding never wins.

        A balanced tree of `a + relu(b - a)`: `ceil(log2(window))` levels, up to `window - 1` units per entry.
        """
        t, index, out = self._windows_of(t, window)
        planes = t.shape[0] * t.shape[1]
        self._check_indices(planes * index.size)
        if (index < 0).all(axis=1).any():
            raise InputError("a max pooling has a window that lies wholly in the padding")
        first = np.arange(planes, dtype=np.intp)[:, None, None] * math.prod(t.shape[2:])
        full = np.where(index >= 0, first + index, -1).reshape(-1, index.shape[1])
        full = np.take_along_axis(full, np.argsort(full < 0, axis=1, kind="stable"), axis=1)  # padding last
        return self._max_tree(t, full, (*t.shape[:2], *out))

    def each_kind(self, parameters: FloatArray, make: Callable[[float], Activation]) -> npt.NDArray[Any]:
        """An activation for every parameter, equal ones made once; their number and the time they take are limited."""
        values, place = np.unique(parameters, return_inverse=True)
        self._limits.check("elements", _NUMBERS_PER_KIND * len(values), f"a layer of {len(values):,} kinds of units")
        kinds = np.empty(len(values), dtype=object)
        for i, value in enumerate(values.tolist()):
            if not i % 256:
                self._limits.check_time("the units of a layer")
            kinds[i] = make(value)
        return kinds[place]

    def reduce_max(self, t: Operand, axes: Sequence[int] | None, keepdims: bool = False) -> Tensor:
        """Largest entry over `axes` (None for all): a balanced tree of `a + relu(b - a)`."""
        t = self._tensor(t)
        if axes is not None and any(not -t.ndim <= a < t.ndim for a in axes):
            raise InputError(f"cannot reduce axes {tuple(axes)} of a tensor of shape {t.shape}")
        over = sorted(range(t.ndim) if axes is None else {a % t.ndim for a in axes})
        kept = [i for i in range(t.ndim) if i not in over]
        count = math.prod(t.shape[i] for i in over)
        if count == 0:
            raise InputError(f"the maximum over axes {tuple(over)} of a tensor of shape {t.shape} has no entries")
        index = np.arange(t.size, dtype=np.intp).reshape(t.shape).transpose([*kept, *over]).reshape(-1, count)
        shape = [1 if i in over else n for i, n in enumerate(t.shape) if keepdims or i not in over]
        return self._max_tree(t, index, tuple(shape))

    def reduce_min(self, t: Operand, axes: Sequence[int] | None, keepdims: bool = False) -> Tensor:
        """Smallest entry over `axes` (None for all)."""
        return self.scale(self.reduce_max(self.scale(t, -1.0), axes, keepdims), -1.0)

    # -- choices -------------------------------------------------------------------------------------------

    def compare(self, a: Operand, b: Operand, strict: bool = True) -> Comparison:
        """Where `a > b` (or `a >= b`), with broadcasting; only `select` can use it."""
        return Comparison(self.subtract(a, b), strict)

    def select(self, condition: Comparison, a: Operand, b: Operand) -> Tensor:
        """`where(condition, a, b)`, which is continuous only if a and b are equal where the condition changes.

        They must differ by a multiple of what is compared with 0, entry by entry: `a - b = k d` gives `b + k relu(d)`.
        Anything else jumps, and is refused.
        """
        shape = self._broadcast_shape(condition.shape, self._broadcast_shape(np.shape(a), np.shape(b)))
        d = self._broadcast(condition.difference, shape)
        b = self._broadcast(self._tensor(b), shape)
        gap = self.subtract(self._broadcast(self._tensor(a), shape), b)
        blocks = sorted({*d.terms, *gap.terms})

        def rows(t: Tensor) -> sparse.csr_array:
            parts = [_terms.as_csr(t.terms[k], self._blocks[k].size) for k in blocks if k in t.terms]
            wide = [parts.pop(0) if k in t.terms else sparse.csr_array((t.size, self._blocks[k].size)) for k in blocks]
            return sparse.csr_array(sparse.hstack([*wide, t.const[:, None]], format="csr"))

        left, right = rows(gap), rows(d)
        varies = self._row_nnz(d) > 0
        size = np.asarray(right.multiply(right).sum(axis=1)).ravel()
        k = np.asarray(left.multiply(right).sum(axis=1)).ravel() / np.where(varies, size, 1.0)
        rest = sparse.csr_array(left - sparse.diags_array(np.where(varies, k, 0.0)) @ right)
        most = np.zeros(t_size := d.size) + 0.0
        np.maximum.at(most, np.repeat(np.arange(t_size), np.diff(rest.indptr)), np.abs(rest.data))
        scale = np.sqrt(np.asarray(left.multiply(left).sum(axis=1)).ravel())
        if (varies & (most > _SAME_LINE * scale)).any():
            raise UnsupportedError(
                "a choice between two values that are not equal where the condition changes: it jumps, or their "
                "difference is not a multiple of what is compared"
            )
        chosen = ~varies & ((d.const > 0) if condition.strict else (d.const >= 0))
        bent = self.scale(self.activate(d, relu()), np.where(varies, k, 0.0).reshape(shape))
        out = self.add(b, bent)
        return self.add(out, self.scale(gap, chosen.astype(float).reshape(shape))) if chosen.any() else out

    def approximate(self, t: Operand, error: float) -> Tensor:
        """`t` as the values of an operation that they may differ from by `error`; `build` bounds what that does."""
        t = self._tensor(t)
        number = next(iter(t.terms), 0)
        block = self._blocks[number]
        fresh = len(t.terms) == 1 and number == len(self._blocks) - 1 and block.size == t.size and not t.const.any()
        if not fresh or not np.array_equal(t.terms[number], np.arange(t.size)):
            t = self._new_block(t, Units.uniform(identity(), t.size), t.shape, np.arange(t.size, dtype=np.intp))
        self._blocks[-1].error = float(error)
        return t

    # -- limits --------------------------------------------------------------------------------------------

    def check_entries(self, size: int, what: str) -> None:
        """Raise `InputLimitError` if a symbolic tensor of this size is beyond `limits.elements`.

        An entry counts as 16 numbers. Every operation here checks its result; a caller that builds a large index
        array for `move` can ask before.
        """
        if size > 4096:
            self._limits.check("elements", _NUMBERS_PER_ENTRY * size, f"{what} with {size:,} symbolic entries")
        self._limits.check("elements", size, what)

    # -- the network ---------------------------------------------------------------------------------------

    def build(
        self,
        output: Operand,
        *,
        name: str = "network",
        input_shape: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        notes: Sequence[str] = (),
    ) -> Network:
        """The layered network that computes `output`.

        Units that the output never reads are left out. Cost: one pass over all non-zeros; the result's size
        is checked against `limits.weights` and `limits.layers` before the layers are assembled.
        """
        out = self._tensor(output)
        if not self._blocks:
            raise InputError("a network needs an input: call input(shape) first")
        if out.size == 0:
            raise InputError(f"the output must have at least one entry, got shape {out.shape}")
        needed = self._needed(out)
        levels = self._levels(needed)
        last = self._last_reads(out, needed, levels)
        depth = 1 + max(levels.values())
        self._limits.check("layers", depth, "the network")
        self._check_total(out, needed, levels, last, depth)
        layers, carried, errors = self._assemble(out, needed, levels, last, depth)
        dropped = sum(
            int((~needed[b]).sum()) if b in needed else self._blocks[b].size for b in range(1, len(self._blocks))
        )
        remarks = list(notes)
        if carried:
            remarks.append(f"{carried} identity units carry values past layers")
        if dropped:
            remarks.append(f"{dropped} units that the output never reads were left out")
        net = Network(layers, input_shape=input_shape, output_shape=output_shape, name=name, notes=remarks)
        if any(e.any() for e in errors):
            net = net.approximating(net.spread(np.zeros(net.n_inputs), errors))
        return net

    # -- inside: tensors -----------------------------------------------------------------------------------

    def _tensor(self, value: Operand) -> Tensor:
        if isinstance(value, Tensor):
            return value
        array = np.asarray(value, dtype=np.float64)
        return self._make(array.shape, {}, np.ascontiguousarray(array).ravel())

    def _make(self, shape: Shape, terms: dict[int, Term], const: FloatArray) -> Tensor:
        t = Tensor(shape, {b: m for b, m in terms.items() if _terms.nnz(m)}, const, self._meter)
        self._limits.check("weights", self._meter.live, "the graph, with its intermediate affine maps,")
        return t

    def _shape(self, shape: Sequence[int], what: str) -> Shape:
        full = tuple(int(n) for n in shape)
        if any(n < 0 for n in full):
            raise InputError(f"{what} has a negative dimension: {full}")
        self.check_entries(math.prod(full), what)
        return full

    def _broadcast_shape(self, a: Shape, b: Shape) -> Shape:
        try:
            shape = np.broadcast_shapes(a, b)
        except ValueError:
            raise InputError(f"shapes {a} and {b} do not broadcast") from None
        return self._shape(shape, "a broadcast tensor")

    def _broadcast(self, t: Tensor, shape: Shape) -> Tensor:
        if shape == t.shape:
            return t
        if math.prod(shape) == t.size:
            return self.reshape(t, shape)  # only axes of length 1 were put in front
        return self.apply_move(t, lambda index: np.broadcast_to(index, shape))

    def _move(self, t: Tensor, index: IndexArray, shape: Shape, fill: float) -> Tensor:
        if index.size == t.size and np.array_equal(index, np.arange(t.size)):
            return self._make(shape, t.terms, t.const)
        hole = index < 0
        const = np.where(hole, fill, t.const[index]) if t.size else np.full(index.size, float(fill))
        weights = sum(_terms.nnz_of_rows(m, index) for m in t.terms.values())
        self._limits.check("weights", self._meter.live + weights, "the graph, with its intermediate affine maps,")
        return self._make(shape, {b: _terms.take_rows(m, index) for b, m in t.terms.items()}, const)

    def _stack(self, tensors: Sequence[Tensor]) -> Tensor:
        """All entries one after the other, as a 1-D tensor."""
        blocks = dict.fromkeys(b for t in tensors for b in t.terms)
        terms: dict[int, Term] = {}
        for b in blocks:
            parts = [t.terms.get(b, np.full(t.size, -1, dtype=np.intp)) for t in tensors]
            if all(isinstance(p, np.ndarray) for p in parts):
                terms[b] = np.concatenate(parts)
            else:
                size = self._blocks[b].size
                terms[b] = sparse.csr_array(sparse.vstack([_terms.as_csr(p, size) for p in parts], format="csr"))
        const = np.concatenate([t.const for t in tensors]) if tensors else np.zeros(0)
        return self._make((len(const),), terms, const)

    def _sum(self, a: Operand, b: Operand, sign: float) -> Tensor:
        a, b = self._tensor(a), self._tensor(b)
        a, b = self._carry_if_cheaper(a, self._level(b)), self._carry_if_cheaper(b, self._level(a))
        shape = self._broadcast_shape(a.shape, b.shape)
        a, b = self._broadcast(a, shape), self._broadcast(b, shape)
        terms: dict[int, Term] = dict(a.terms)
        for block, m in b.terms.items():
            size = self._blocks[block].size
            if block not in terms:
                terms[block] = m if sign > 0 else -_terms.as_csr(m, size)
                continue
            total = _terms.as_csr(terms[block], size) + _terms.as_csr(m, size) * sign
            total.eliminate_zeros()
            terms[block] = total
        return self._make(shape, terms, a.const + sign * b.const)

    def _linear(self, t: Tensor, K: sparse.csr_array, bias: FloatArray | None, shape: Shape) -> Tensor:
        """`K t + bias` for a matrix that nobody else holds, without duplicate entries."""
        if not K.data.all():
            K.eliminate_zeros()
        if t.terms and self._too_dense(K, t):
            t = self._carry(t)
        look = partial(self._limits.check_time, "a linear map of the graph")
        terms = {b: _terms.product(K, m, self._blocks[b].size, look) for b, m in t.terms.items()}
        const = K @ t.const
        if bias is not None:
            const = const + np.broadcast_to(bias, const.shape)
        return self._make(shape, terms, const)

    def _reduce(self, t: Tensor, axes: Sequence[int] | None, keepdims: bool, mean: bool) -> Tensor:
        over = tuple(range(t.ndim)) if axes is None else tuple(sorted({a % max(t.ndim, 1) for a in axes}))
        if axes is not None and any(not -t.ndim <= a < t.ndim for a in axes):
            raise InputError(f"cannot reduce axes {tuple(axes)} of a tensor of shape {t.shape}")
        kept = [i for i in range(t.ndim) if i not in over]
        count = math.prod(t.shape[i] for i in over)
        if mean and count == 0:
            raise InputError(f"the mean over axes {over} of a tensor of shape {t.shape} has no entries")
        shape = [1 if i in over else n for i, n in enumerate(t.shape) if keepdims or i not in over]
        index = np.arange(t.size, dtype=np.intp).reshape(t.shape).transpose([*kept, *over]).reshape(-1)
        rows = math.prod(t.shape[i] for i in kept)
        values = np.full(t.size, 1.0 / count if mean else 1.0)
        K = sparse.csr_array((values, index, np.arange(rows + 1) * count), shape=(rows, t.size))
        return self._linear(t, K, None, self._shape(shape, "a result"))

    def _matmul(self, t: Tensor, w: FloatArray, tensor_first: bool) -> Tensor:
        if t.ndim == 0 or w.ndim == 0:
            raise InputError("a matrix product needs at least one axis on either side")
        left, right = (t.shape, w.shape) if tensor_first else (w.shape, t.shape)
        index = np.arange(t.size, dtype=np.intp).reshape(t.shape)
        left2 = (1, *left) if len(left) == 1 else left
        right2 = (*right, 1) if len(right) == 1 else right
        if left2[-1] != right2[-2]:
            raise InputError(f"a matrix product of {left} and {right} does not fit")
        batch = self._broadcast_shape(left2[:-2], right2[:-2])
        rows, inner, columns = left2[-2], left2[-1], right2[-1]
        count = math.prod(batch) * rows * inner * columns
        self._limits.check("weights", count, "a matrix product")
        shape = (*batch, *([] if len(left) == 1 else [rows]), *([] if len(right) == 1 else [columns]))
        if tensor_first and t.size == inner and w.ndim <= 2:
            return self.linear(t, w.reshape(right2).T, None, shape)
        # One row of coefficients per result entry (batch, i, j), over the inner index k.
        first, second = (index, w) if tensor_first else (w, index)
        by_row = np.expand_dims(first.reshape(left2), -2)  # (..., i, 1, k)
        by_column = np.expand_dims(second.reshape(right2).swapaxes(-1, -2), -3)  # (..., 1, j, k)
        full = (*batch, rows, columns, inner)
        read, value = (by_row, by_column) if tensor_first else (by_column, by_row)
        out = math.prod(batch) * rows * columns
        values, columns = np.broadcast_to(value, full).flatten(), np.broadcast_to(read, full).flatten()
        K = sparse.csr_array((values, columns, np.arange(out + 1) * inner), shape=(out, t.size))
        return self._linear(t, K, None, self._shape(shape, "a result"))

    # -- inside: windows -----------------------------------------------------------------------------------

    def _check_window(self, t: Tensor, window: Window) -> None:
        kernel, strides, pads, dilations = window.kernel, window.strides, window.pads, window.dilations
        n = t.ndim - 2
        lengths = (len(kernel), len(strides), len(dilations), len(pads) / 2)
        if n < 1 or any(k != n for k in lengths):
            raise InputError(
                f"a convolution or pooling of shape {t.shape} (N, C, spatial) got kernel {tuple(kernel)}, "
                f"strides {tuple(strides)}, pads {tuple(pads)}, dilations {tuple(dilations)}"
            )
        if min((*kernel, *strides, *dilations)) < 1 or min(pads) < 0:
            raise InputError(
                "a convolution or pooling needs kernel, strides and dilations >= 1 and pads >= 0, "
                f"got {tuple(kernel)}, {tuple(strides)}, {tuple(dilations)}, {tuple(pads)}"
            )

    def _windows_of(self, t: Operand, window: Window) -> tuple[Tensor, IndexArray, Shape]:
        """A tensor, the entries that its windows read, and how many windows there are along each axis."""
        t = self._tensor(t)
        self._check_window(t, window)
        out = window.counts(t.shape[2:])
        return t, self._windows(t.shape[2:], out, window), out

    def _check_indices(self, count: int) -> None:
        """Raise `InputLimitError` if the entries that all windows read are too many to be listed."""
        what = f"a convolution or pooling whose windows read {count:,} entries"
        self._limits.check("elements", _NUMBERS_PER_INDEX * count, what)

    def _windows(self, size: Sequence[int], out: Sequence[int], window: Window) -> IndexArray:
        """Flat spatial index of each entry of each window, shape (windows, entries), -1 in the padding."""
        self._check_indices(math.prod(out) * math.prod(window.kernel))
        flat = np.zeros((1, 1), dtype=np.intp)
        for i, n in enumerate(size):
            at = window.positions(i, n, out[i])
            joint = flat[:, None, :, None] * n + at[None, :, None, :]
            hole = (flat < 0)[:, None, :, None] | (at < 0)[None, :, None, :]
            flat = np.where(hole, -1, joint).reshape(len(flat) * out[i], flat.shape[1] * window.kernel[i])
        return flat

    def _conv_matrix(
        self, size: Sequence[int], out: Sequence[int], w: FloatArray, window: Window, groups: int
    ) -> sparse.csr_array:
        """The convolution of one sample as a matrix (out channels * out, in channels * size)."""
        kernel = w.shape[2:]
        self._shape((w.shape[0], *out), "the result of a convolution")
        reads = 1  # (window, kernel entry) pairs inside the image: a product over the axes
        for i, n in enumerate(size):
            self._check_indices(out[i] * kernel[i])
            reads *= int((window.positions(i, n, out[i]) >= 0).sum())
        self._limits.check("weights", self._meter.live + w.shape[0] * w.shape[1] * reads, "a convolution, unrolled,")
        index = self._windows(size, out, window)
        n_in, per_group = w.shape[1], w.shape[0] // groups
        area, taps = math.prod(size), math.prod(kernel)
        self._check_indices(index.size * n_in)
        inside = np.broadcast_to((index >= 0)[:, None, :], (len(index), n_in, taps))
        channel = np.arange(n_in, dtype=np.intp)[None, :, None]
        small = np.int32 if groups * n_in * area < 2**31 else np.int64
        columns = (channel * area + index[:, None, :])[inside].astype(small)
        tap = np.broadcast_to(channel * taps + np.arange(taps)[None, None, :], inside.shape)[inside]
        counts = inside.sum(axis=(1, 2))
        indices = np.tile(columns, (groups, per_group))
        indices += np.arange(groups, dtype=small)[:, None] * n_in * area
        data = np.take(w.reshape(w.shape[0], -1), tap, axis=1).ravel()
        starts = _terms.row_starts(np.tile(counts, w.shape[0])).astype(small if len(data) < 2**31 else np.int64)
        K = sparse.csr_array((data, indices.ravel(), starts), shape=(w.shape[0] * len(index), groups * n_in * area))
        K.eliminate_zeros()
        return K

    def _per_sample(self, t: Tensor, K: sparse.csr_array, b: npt.ArrayLike | None, shape: Shape) -> Tensor:
        """`K x + b` for every sample x of t, with one number of `b` per channel."""
        n = t.shape[0]
        self._limits.check("weights", n * K.nnz, "a convolution or pooling")
        bias = None
        if b is not None:
            bias = np.tile(np.repeat(np.asarray(b, dtype=np.float64).ravel(), math.prod(shape[1:])), n)
        return self._linear(t, K if n == 1 else _terms.repeat_diagonal(K, n), bias, (n, *shape))

    # -- inside: nonlinear ---------------------------------------------------------------------------------

    def _against_constant(
        self, a: Tensor, b: Tensor, one_break: Callable[[float], Activation], fold: Callable[[Any, Any], FloatArray]
    ) -> Tensor:
        if b.terms:
            a, b = b, a
        if not a.terms:
            shape = self._broadcast_shape(a.shape, b.shape)
            return self._make(shape, {}, fold(a.const.reshape(a.shape), b.const.reshape(b.shape)).ravel())
        a = self._broadcast(a, self._broadcast_shape(a.shape, b.shape))
        return self.activate(a, self.each_kind(b.const, one_break).reshape(b.shape))

    def _max_tree(self, t: Tensor, index: IndexArray, shape: Shape) -> Tensor:
        current, leader = t, np.arange(t.size, dtype=np.intp)  # an entry of t that stands for each of `current`
        while index.shape[1] > 1:
            if index.shape[1] % 2:
                index = np.column_stack([index, np.full(len(index), -1, dtype=np.intp)])
            low, high = index[:, 0::2], index[:, 1::2]
            pair, alone = high >= 0, (high < 0) & (low >= 0)
            joint, which = np.unique(low[pair] * current.size + high[pair], return_inverse=True)
            single, where = np.unique(low[alone], return_inverse=True)
            a = self.move(current, joint // max(current.size, 1))
            b = self.move(current, joint % max(current.size, 1))
            first = leader[joint // max(current.size, 1)]
            self._compared = (t.shape, first)
            try:
                larger = self.maximum(a, b)
            finally:
                self._compared = None
            current = self.concat([larger, self.move(current, single)], axis=0)
            leader = np.concatenate([first, leader[single]])
            index = np.full(low.shape, -1, dtype=np.intp)
            index[pair] = which
            index[alone] = len(joint) + where
        return self.move(current, index[:, 0].reshape(shape))

    def _new_block(self, t: Tensor, units: Units, shape: Shape, place: IndexArray, carried: bool = False) -> Tensor:
        number = len(self._blocks)
        self._meter.live += t.size
        for m in t.terms.values():
            self._meter.hold(m)
        name, operation = self._label
        source = (name, "carried" if carried else operation, _inside(shape))
        self._blocks.append(_Block(t.size, 1 + self._level(t), t.terms, t.const, units, source, place))
        return self._make(t.shape, {number: np.arange(t.size, dtype=np.intp)}, np.zeros(t.size))

    def _level(self, t: Tensor) -> int:
        return max((self._blocks[b].level for b in t.terms), default=-1)

    def _carry(self, t: Tensor) -> Tensor:
        """t as a block of identity units (one for each entry that is not constant); made once per tensor."""
        if t._carried is None:
            vary = np.flatnonzero(self._row_nnz(t))
            inner = self._make(
                (len(vary),), {b: _terms.take_rows(m, vary) for b, m in t.terms.items()}, np.zeros(len(vary))
            )
            units = Units.uniform(identity(), len(vary))
            block = self._new_block(inner, units, t.shape, vary, carried=True)
            spread = np.full(t.size, -1, dtype=np.intp)
            spread[vary] = np.arange(len(vary))
            t._carried = self._make(t.shape, {next(iter(block.terms)): spread}, t.const)
        return t._carried

    def _carry_if_cheaper(self, t: Tensor, other_level: int) -> Tensor:
        """t, or identity units for it if it waits for a later level and they are fewer than what it reads.

        Without this a chain of skip connections would carry every branch to the end and repeat its weights.
        """
        if not t.terms or self._level(t) >= other_level:
            return t
        varying = int(np.count_nonzero(self._row_nnz(t)))
        reads = sum(int(_terms.used(m, self._blocks[b].size).sum()) for b, m in t.terms.items())
        if varying < reads or (varying == reads and t._cost > varying):
            return self._carry(t)
        return t

    def _row_nnz(self, t: Tensor) -> npt.NDArray[np.int64]:
        total = np.zeros(t.size, dtype=np.int64)
        for m in t.terms.values():
            total += _terms.row_counts(m)
        return total

    def _too_dense(self, K: sparse.csr_array, t: Tensor) -> bool:
        """Whether `K t` would have far more non-zeros than K and t (an upper bound, row by row)."""
        if len(t.terms) == 1 and all(isinstance(m, np.ndarray) for m in t.terms.values()):
            return False  # already as good as identity units
        bound = 0
        for b, m in t.terms.items():
            reach = np.concatenate([[0], np.cumsum(_terms.row_counts(m)[K.indices])])
            per_row = reach[K.indptr[1:]] - reach[K.indptr[:-1]]
            bound += int(np.minimum(per_row, self._blocks[b].size).sum())
        return bound > max(_SMALL, _GROWTH * (K.nnz + t._cost)) or self._meter.live + bound > self._limits.weights

    # -- inside: layers ------------------------------------------------------------------------------------

    def _needed(self, out: Tensor) -> dict[int, npt.NDArray[np.bool_]]:
        """Which variables of each block the output depends on; block 0 (the input) is always whole."""
        needed: dict[int, npt.NDArray[np.bool_]] = {0: np.ones(self._blocks[0].size, dtype=bool)}

        def mark(terms: dict[int, Term], rows: IndexArray | None) -> None:
            for b, m in terms.items():
                used = _terms.used(m if rows is None else _terms.take_rows(m, rows), self._blocks[b].size)
                needed[b] = needed[b] | used if b in needed else used

        mark(out.terms, None)
        for b in range(len(self._blocks) - 1, 0, -1):  # a block reads only blocks made before it
            if b in needed:
                rows = np.flatnonzero(needed[b])
                mark(self._blocks[b].terms, None if len(rows) == self._blocks[b].size else rows)
        return {b: needed[b] for b in sorted(needed) if needed[b].any()}

    def _levels(self, needed: dict[int, npt.NDArray[np.bool_]]) -> dict[int, int]:
        """Level of each needed block, from what its needed units still read."""
        levels = {0: 0}
        for b in sorted(needed):
            if b:
                rows = np.flatnonzero(needed[b])
                read = [c for c, m in self._blocks[b].terms.items() if _terms.nnz_of_rows(m, rows)]
                levels[b] = 1 + max((levels[c] for c in read), default=0)
        return levels

    def _last_reads(
        self, out: Tensor, needed: dict[int, npt.NDArray[np.bool_]], levels: dict[int, int]
    ) -> dict[int, npt.NDArray[np.int64]]:
        """The highest layer that reads each variable (0 when none does)."""
        last = {b: np.zeros(self._blocks[b].size, dtype=np.int64) for b in needed}
        for b in sorted(needed):
            if b:
                rows = np.flatnonzero(needed[b])
                for c, m in self._blocks[b].terms.items():
                    if c in last:
                        used = _terms.used(_terms.take_rows(m, rows), self._blocks[c].size)
                        last[c][used] = np.maximum(last[c][used], levels[b])
        for c, m in out.terms.items():
            last[c][_terms.used(m, self._blocks[c].size)] = 1 + max(levels.values())
        return last

    def _check_total(self, out: Tensor, needed: _Needed, levels: dict[int, int], last: _Reads, depth: int) -> None:
        total = out._cost
        for b in needed:
            rows = np.flatnonzero(needed[b])
            total += sum(_terms.nnz_of_rows(m, rows) for m in self._blocks[b].terms.values())
            total += int(np.maximum(last[b] - levels[b] - 1, 0).sum())  # one per layer a variable is carried past
        self._limits.check("weights", total, f"the network with {depth} layers")

    def _assemble(
        self, out: Tensor, needed: _Needed, levels: dict[int, int], last: _Reads, depth: int
    ) -> tuple[list[tuple[sparse.csr_array, FloatArray, Units, Origin | None]], int, list[FloatArray]]:
        by_level: dict[int, list[int]] = {}
        for b, level in levels.items():
            by_level.setdefault(level, []).append(b)
        # place[b][i]: where variable i of block b sits in the layer below (-1: not there)
        place = {0: np.arange(self._blocks[0].size, dtype=np.intp)}
        width, carried, layers = self._blocks[0].size, 0, []
        errors: list[FloatArray] = []
        for level in range(1, depth):
            rows: list[sparse.csr_array] = []
            bias: list[FloatArray] = []
            units: list[Units] = []
            sources: list[tuple[str, str, Shape]] = []
            places: list[IndexArray] = []
            off: list[FloatArray] = []
            above: dict[int, IndexArray] = {}
            top = 0
            for b in by_level[level]:
                block, wanted = self._blocks[b], np.flatnonzero(needed[b])
                rows.append(
                    _terms.lay_out(
                        {c: _terms.take_rows(m, wanted) for c, m in block.terms.items()}, place, width, len(wanted)
                    )
                )
                bias.append(block.const[wanted])
                units.append(block.units[wanted])
                sources.append(block.source)
                places.append(block.place[wanted])
                off.append(np.full(len(wanted), block.error))
                above[b] = np.full(block.size, -1, dtype=np.intp)
                above[b][wanted] = np.arange(top, top + len(wanted))
                top += len(wanted)
                carried += len(wanted) if block.units.is_identity else 0
            for b, at in place.items():
                keep = np.flatnonzero((at >= 0) & (last[b] > level))
                if len(keep):
                    rows.append(_terms.as_csr(at[keep], width))
                    bias.append(np.zeros(len(keep)))
                    units.append(Units.uniform(identity(), len(keep)))
                    name, _, shape = self._blocks[b].source
                    sources.append((name, "carried", shape))
                    places.append(self._blocks[b].place[keep])
                    off.append(np.zeros(len(keep)))
                    above[b] = np.full(len(at), -1, dtype=np.intp)
                    above[b][keep] = np.arange(top, top + len(keep))
                    top += len(keep)
                    carried += len(keep)
            weight = rows[0] if len(rows) == 1 else sparse.csr_array(sparse.vstack(rows, format="csr"))
            origin = Origin(
                tuple(sources),
                np.repeat(np.arange(len(places)), [len(p) for p in places]),
                np.concatenate(places),
            )
            named = all(name for name, _, _ in sources)
            layers.append((weight, np.concatenate(bias), Units.concatenate(units), origin if named else None))
            errors.append(np.concatenate(off))
            place, width = above, top
        layers.append(
            (_terms.lay_out(out.terms, place, width, out.size), out.const, Units.uniform(identity(), out.size), None)
        )
        return layers, carried, errors


def _inside(shape: Shape) -> Shape:
    """A shape without its batch axis."""
    return (shape[1:] if len(shape) > 1 and shape[0] == 1 else shape) or (1,)
