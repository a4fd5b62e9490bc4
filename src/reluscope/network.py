"""Network: affine layers with piecewise-linear units.

A network with input `x = z_0` computes, layer by layer,

    h_l = W_l z_{l-1} + b_l,      z_l = act_l(h_l)      (l = 1..L),      y = h_L,

where the last layer has no activation; `net.layers` counts from 0, so `W_l` is `net.layers[l - 1].weight`. Where no
unit sits on a break point the network is affine: with the slopes `s_l` and intercepts `t_l` of the pieces in force,
`h_l = C_l x + d_l` with

    C_1 = W_1,  d_1 = b_1,      C_l = W_l diag(s_{l-1}) C_{l-1},      d_l = W_l (s_{l-1} * d_{l-1} + t_{l-1}) + b_l.

The vector of piece indices of all hidden units is the *activation pattern*. Everything is float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray, any_array, describe, flag, integer, real, real_array, several, text
from reluscope._columns import columns_of
from reluscope._doors import door
from reluscope.activations import Activation, Units, activation
from reluscope.errors import InputError, InputTypeError
from reluscope.schema import Schema
from reluscope.threads import blas_threads

Pattern = npt.NDArray[np.uint8]
Matrix: TypeAlias = Any
"""A float64 ndarray, or a scipy `csr_array` when few weights are non-zero."""

_CHUNK_NUMBERS = 1 << 18
"""Numbers in the widest intermediate array of a chunk of rows: 2 MB, so that chunks stay in cache."""


@dataclass(frozen=True)
class UnitOrigin:
    """The place in a loaded model that one hidden unit is from.

    Attributes
    ----------
    name : str
        Of the node (ONNX: its name, or that of its output), module (torch) or layer (keras).
    operation : str
        What made the unit, such as "Relu" or "MaxPool"; "carried" for an identity unit that carries a value of that
        name past a layer.
    index : tuple of int
        The entry of its output, without the batch axis: (unit,) or, after a convolution, (channel, row, column). For a
        pooling, the first of the two entries of its input that the unit compares.
    """

    name: str
    operation: str
    index: tuple[int, ...]

    def __str__(self) -> str:
        if len(self.index) == 3:
            at = "channel {}, row {}, column {}".format(*self.index)
        else:
            at = ", ".join(map(str, self.index))
        return f"{self.name}[{at}]" + (", carried" if self.operation == "carried" else "")


@dataclass(frozen=True, eq=False)
class Origin:
    """Where the units of one layer are from: unit i is entry `place[i]` of the output of `sources[source[i]]`.

    Attributes
    ----------
    sources : tuple of (name, operation, shape)
    source, place : (units,) arrays of int
    """

    sources: tuple[tuple[str, str, tuple[int, ...]], ...]
    source: npt.NDArray[np.intp]
    place: npt.NDArray[np.intp]

    def __getitem__(self, unit: int) -> UnitOrigin:
        name, operation, shape = self.sources[self.source[unit]]
        return UnitOrigin(name, operation, tuple(int(i) for i in np.unravel_index(self.place[unit], shape)))

    def describe(self) -> str:
        """The sources of the layer's units, but for what is only carried past it."""
        names = list(dict.fromkeys(name for name, operation, _ in self.sources if operation != "carried"))
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    def check(self, width: int, where: str) -> Origin:
        """Itself, or an `InputError` if it does not fit a layer of `width` units.

        Parameters
        ----------
        width : int
        where : str
            The layer, for the message.

        Returns
        -------
        Origin
        """
        sizes = np.array([math.prod(shape) for _, _, shape in self.sources], dtype=np.int64)
        fits = self.source.shape == self.place.shape == (width,) and width > 0
        if not fits or self.source.min() < 0 or self.source.max() >= len(sizes):
            raise InputError(f"the origin of {where} does not fit its {width} units")
        if self.place.min() < 0 or (self.place >= sizes[self.source]).any():
            raise InputError(f"the origin of {where} has a unit outside the shape of its source")
        return self


@dataclass(frozen=True, eq=False)
class Layer:
    """One affine map `h = W z + b` and the activations of its units. `weight` is dense or scipy CSR.

    Attributes
    ----------
    weight : (units, inputs) array or csr_array
    bias : (units,) array
    units : Units
    origin : Origin or None
        Where its units are from in the model that was loaded.
    """

    weight: Matrix
    bias: FloatArray
    units: Units
    origin: Origin | None = None

    @property
    def width(self) -> int:
        """Number of units."""
        return int(self.weight.shape[0])

    @property
    def n_inputs(self) -> int:
        """Number of inputs of this layer."""
        return int(self.weight.shape[1])

    @property
    def n_parameters(self) -> int:
        """Stored weights and biases (non-zeros for a sparse weight)."""
        stored = self.weight.nnz if sparse.issparse(self.weight) else self.weight.size
        return int(stored) + self.width

    @cached_property
    def squares(self) -> Matrix:
        """The squared weights, stored like the weights."""
        weight: Any = self.weight
        return weight.multiply(weight).tocsr() if sparse.issparse(weight) else weight * weight

    @cached_property
    def by_unit(self) -> FloatArray:
        """The weights as a dense array, one row for each input of this layer."""
        rows = np.ascontiguousarray(self.dense().T)
        rows.flags.writeable = False  # as a view of one row of weights is: kernels compile once for both
        return rows

    def dense(self) -> FloatArray:
        """The weight as a dense array (no copy when it is dense already)."""
        return self.weight.toarray() if sparse.issparse(self.weight) else self.weight

    def affine(self, z: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """`z W^T + b` for rows `z` of shape (n, inputs).

        Parameters
        ----------
        z : (n, inputs) array
        out : (n, units) array, optional
            Where to put it; else a new array is made.

        Returns
        -------
        (n, units) array
        """
        if sparse.issparse(self.weight):
            return np.add((self.weight @ z.T).T, self.bias, out=out)
        h = np.matmul(z, self.weight.T, out=out)
        h += self.bias
        return h


@dataclass(frozen=True, eq=False)
class AffineMaps:
    """The linear model of one pattern, `y = C x + d`, and those of its hidden layers, `h_l = C_l x + d_l`.

    `hidden[l]` is the pair for layer l, counted from 0: shapes (units, inputs) and (units,).

    Attributes
    ----------
    hidden : tuple of (C_l, d_l)
    C : (outputs, inputs) array
    d : (outputs,) array
    """

    hidden: tuple[tuple[FloatArray, FloatArray], ...]
    C: FloatArray
    d: FloatArray


@dataclass(frozen=True, eq=False)
class LocalMaps:
    """The linear model in force at each row: `y = C[i] x + d[i]`. Shapes (n, outputs, inputs) and (n, outputs).

    Attributes
    ----------
    pattern : (n, units) array
    C : (n, outputs, inputs) array
    d : (n, outputs) array
    """

    pattern: Pattern
    C: FloatArray
    d: FloatArray

    def __len__(self) -> int:
        return len(self.C)

    def __repr__(self) -> str:
        n, m, k = self.C.shape
        return f"LocalMaps({n} rows, each R^{k} -> R^{m})"


@dataclass(frozen=True, eq=False)
class Polytope:
    """The region `{x : A x <= b}` of one activation pattern; `strict` rows hold with `<`.

    `unit[i]` is the hidden unit (index into the pattern) that row i belongs to. By the tie rule the lower bound of a
    piece is strict, the upper bound is not.

    Attributes
    ----------
    A : (rows, inputs) array
    b, strict, unit : (rows,) arrays
    """

    A: FloatArray
    b: FloatArray
    strict: npt.NDArray[np.bool_]
    unit: npt.NDArray[np.intp]

    def contains(self, X: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each row of `X` satisfies every inequality, in plain float64 arithmetic.

        Parameters
        ----------
        X : (n, inputs) or (inputs,)

        Returns
        -------
        (n,) array of bool, or bool
        """
        X = real_array(X, "X", ndim=(1, 2))
        if X.shape[-1] != self.A.shape[1]:
            raise InputError(f"X must have {self.A.shape[1]} columns, got shape {X.shape}")
        slack = self.b - X @ self.A.T
        return np.asarray(np.where(self.strict, slack > 0, slack >= 0).all(axis=-1))

    def __repr__(self) -> str:
        return f"Polytope({self.A.shape[0]} inequalities in R^{self.A.shape[1]})"


@dataclass(frozen=True)
class Part:
    """One of the networks that a joined network is made of, by name, and where it is found there.

    Events call its numbers `name.x[i]`, `name.y[j]`, `name.J[j,i]` and `name.unit[layer,unit]`.

    Attributes
    ----------
    name : str
        Or "" and "'" for the two copies of one network.
    inputs, outputs : range
        Its inputs and outputs among those of the joined network.
    units : tuple of range
        Its units in each of its hidden layers.
    """

    name: str
    inputs: range
    outputs: range
    units: tuple[range, ...]


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Network:
    """An immutable piecewise-affine network.

    Parameters
    ----------
    layers : sequence of (W, b) or (W, b, activation)
        `W` of shape (outputs, inputs), dense or scipy sparse; `b` of shape (outputs,) or None.
    activation : str, Activation or list, default "relu"
        For every layer that does not bring its own, except the last, which is affine; a list has one per unit. If
        the last layer is given an activation, an identity output layer follows it.
    input_shape, output_shape : sequence of int, optional
        Shapes that multiply to the numbers of inputs and outputs, such as (1, 28, 28).
    name : str
    notes : sequence of str
        What a loader changed or left out.
    schema : Schema, optional
        What the inputs and outputs mean: names, units, categories, classes, decision rule.
    parts : sequence of Part
        The networks it is made of, if `stack` or `parallel` joined them by name.

    Raises
    ------
    InputError
        If shapes, the schema or the parts do not fit, or a number is not finite.

    Notes
    -----
    Layers, units, inputs and outputs count from 0. Numbers are float64; weights with fewer than a quarter of
    non-zeros stay sparse. A value exactly on a break point belongs to the piece below it. `file_sha256` is the digest
    of the file that `load` made the network from, and None for any other network. `approximation` is None where the
    network is the model that was loaded; where operations were approximated (`reluscope.formats.register_operation`),
    it bounds for each output, and every input, how far the network is from the model.

    Examples
    --------
    >>> net = Network([([[1.0, -1.0], [0.5, 2.0]], [0.0, -1.0]), ([[1.0, 1.0]], [0.0])])
    >>> net
    Network(2-2-1, relu, 9 parameters)
    >>> net([1.0, 2.0])
    array([3.5])
    >>> net.pattern([1.0, 2.0])
    array([0, 1], dtype=uint8)
    """

    layers: tuple[Layer, ...]
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    name: str
    notes: tuple[str, ...]
    schema: Schema | None
    parts: tuple[Part, ...]
    __array_ufunc__ = None  # arrays leave `net @ array` to the network, which refuses it
    file_sha256: str | None
    approximation: FloatArray | None

    def __init__(
        self,
        layers: Sequence[Any],
        activation: Any = "relu",
        *,
        input_shape: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        name: str = "network",
        notes: Sequence[str] = (),
        schema: Schema | None = None,
        parts: Sequence[Part] = (),
    ) -> None:
        built = _build_layers(layers, activation)
        n_in, n_out = built[0].n_inputs, built[-1].width
        object.__setattr__(self, "layers", built)
        object.__setattr__(self, "input_shape", _shape(input_shape, n_in, "input_shape"))
        object.__setattr__(self, "output_shape", _shape(output_shape, n_out, "output_shape"))
        object.__setattr__(self, "name", text(name, "name"))
        object.__setattr__(self, "notes", tuple(text(n, "a note") for n in several(notes, "notes", "texts")))
        if schema is not None:
            if not isinstance(schema, Schema):
                raise InputTypeError(f"schema must be a reluscope.Schema, got {describe(schema)}")
            schema.check(n_in, n_out)
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "parts", _checked_parts(parts, built))
        object.__setattr__(self, "file_sha256", None)
        object.__setattr__(self, "approximation", None)

    # -- shape ---------------------------------------------------------------------------------------------------

    @property
    def n_inputs(self) -> int:
        """Number of input variables."""
        return self.layers[0].n_inputs

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return self.layers[-1].width

    @property
    def hidden(self) -> tuple[Layer, ...]:
        """The layers that have units: all but the last."""
        return self.layers[:-1]

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Inputs, units of each hidden layer, outputs."""
        return (self.n_inputs, *(layer.width for layer in self.layers))

    @cached_property
    def offsets(self) -> npt.NDArray[np.intp]:
        """Where each hidden layer starts in a pattern; the last entry is the number of hidden units."""
        return np.concatenate([[0], np.cumsum([layer.width for layer in self.hidden])]).astype(np.intp)

    @property
    def n_units(self) -> int:
        """Number of hidden units, identity units included (they have one piece, index 0)."""
        return int(self.offsets[-1])

    @cached_property
    def pieces(self) -> npt.NDArray[np.int64]:
        """Number of pieces of each hidden unit, shape (n_units,)."""
        if not self.hidden:
            return np.zeros(0, dtype=np.int64)
        return np.concatenate([layer.units.pieces for layer in self.hidden])

    def origin(self, unit: int) -> UnitOrigin | None:
        """Where a hidden unit is from in the model that was loaded.

        Parameters
        ----------
        unit : int
            Its index in a pattern, from 0.

        Returns
        -------
        UnitOrigin or None
            Node or module, operation and entry; None where that is not known (a network made from arrays).

        Notes
        -----
        npz and safetensors files keep it. In networks side by side (`rs.stack`, `rs.parallel`) the name or number of
        the network comes first, as in `f.stem/relu`; the number only where several were loaded. Their units that no
        file has are called after their layer (`g.layer 0`).
        """
        unit = integer(unit, "unit", low=0, high=self.n_units - 1)
        layer = int(np.searchsorted(self.offsets, unit, side="right")) - 1
        found = self.layers[layer].origin
        return None if found is None else found[unit - int(self.offsets[layer])]

    def unit_name(self, unit: int) -> str:
        """A name for a hidden unit: its place in the model that was loaded, or else its layer and number.

        Parameters
        ----------
        unit : int
            Its index in a pattern, from 0.

        Returns
        -------
        str

        Examples
        --------
        >>> net = Network([([[1.0, -1.0], [0.5, 2.0]], [0.0, -1.0]), ([[1.0, 1.0]], [0.0])])
        >>> net.unit_name(1)
        'unit 1 of hidden layer 0'
        """
        found = self.origin(unit)
        if found is not None:
            return str(found)
        layer = int(np.searchsorted(self.offsets, unit, side="right")) - 1
        return f"unit {unit - int(self.offsets[layer])} of hidden layer {layer}"

    @property
    def n_parameters(self) -> int:
        """Stored weights and biases over all layers."""
        return sum(layer.n_parameters for layer in self.layers)

    # -- evaluation ----------------------------------------------------------------------------------------------

    def __call__(self, X: npt.ArrayLike) -> FloatArray:
        """The outputs.

        Parameters
        ----------
        X : array_like, shape (n, inputs), (n, *input_shape) or (inputs,), or a table
            A table with named columns (a data frame) is read by name, in the units of the schema, if there is one; an
            array holds the network's own numbers.

        Returns
        -------
        ndarray, shape (n, outputs), or (outputs,) for a single input
        """
        rows, single = input_rows(self, X)
        out = np.empty((len(rows), self.n_outputs))
        with blas_threads(max(self.widths)):
            for part in chunks(self, len(rows)):
                z = rows[part]
                for layer in self.layers:
                    z = layer.units(layer.affine(z))
                out[part] = z
        return out[0] if single else out

    def preactivations(self, X: npt.ArrayLike) -> tuple[FloatArray, ...]:
        """The pre-activations `h_l` of each hidden layer, and then the output.

        Parameters
        ----------
        X : array_like, as for calling the network

        Returns
        -------
        tuple of ndarray
            One per layer, from 0, each of shape (n, width), or (width,) for a single input.
        """
        rows, single = input_rows(self, X)
        values = []
        z = rows
        with blas_threads(max(self.widths)):
            for layer in self.layers:
                h = layer.affine(z)
                values.append(h[0] if single else h)
                z = layer.units(h)
        return tuple(values)

    def pattern(self, X: npt.ArrayLike) -> Pattern:
        """The activation pattern: index of the linear piece of every hidden unit.

        Parameters
        ----------
        X : array_like, as for calling the network

        Returns
        -------
        ndarray, shape (n, n_units) or (n_units,), one byte each
            Inputs with one pattern share one region and its linear model.

        Notes
        -----
        A pre-activation exactly on a break point belongs to the piece below it (a ReLU at 0 is off).
        """
        rows, single = input_rows(self, X)
        out = np.empty((len(rows), self.n_units), dtype=np.uint8)
        with blas_threads(max(self.widths)):
            for part in chunks(self, len(rows)):
                trace(self, rows[part], out[part])
        return out[0] if single else out

    def key(self, pattern: npt.ArrayLike) -> Any:
        """Patterns packed into as few bits as they need.

        One pattern gives hashable `bytes`; a batch (n, n_units) gives an array of n fixed-width byte strings
        (numpy void), fit for `np.unique` and, through `.tolist()`, for dictionaries. Units with one piece take no
        bits.

        Parameters
        ----------
        pattern : (units,) or (n, units)

        Returns
        -------
        bytes, or (n,) array
        """
        p = pattern_rows(self, pattern)
        batch = np.atleast_2d(p)
        bits = []
        planes = int(self.pieces.max(initial=1) - 1).bit_length()
        for k in range(planes):
            wide = self.pieces > 1 << k
            plane = batch if wide.all() else batch[:, wide]
            bits.append(plane if planes == 1 else (plane >> k) & 1)
        joined = (
            bits[0] if planes == 1 else np.concatenate(bits, axis=1) if bits else np.zeros((len(batch), 1), np.uint8)
        )
        if joined.shape[1] % 8 or not joined.shape[1]:
            joined = np.pad(joined, ((0, 0), (0, -joined.shape[1] % 8 or 8)))
        # One run of bits: row by row it takes longer, and holds up other threads.
        packed = np.packbits(joined.reshape(-1)).reshape(len(batch), joined.shape[1] // 8)
        keys = packed.view(f"V{packed.shape[1]}")[:, 0]
        return keys if p.ndim == 2 else keys[0].tobytes()

    # -- linear models -------------------------------------------------------------------------------------------

    def affine(self, pattern: npt.ArrayLike) -> AffineMaps:
        """The linear model of every layer on the region of one pattern.

        Parameters
        ----------
        pattern : array_like, shape (n_units,)

        Returns
        -------
        AffineMaps
            Dense; memory `n_units * n_inputs`.

        Examples
        --------
        >>> net = Network([([[1.0, -1.0], [0.5, 2.0]], [0.0, -1.0]), ([[1.0, 1.0]], [0.0])])
        >>> net.affine([0, 1]).C, net.affine([0, 1]).d
        (array([[0.5, 2. ]]), array([-1.]))
        """
        p = pattern_rows(self, pattern)
        if p.ndim != 1:
            raise InputError(f"pattern must be one pattern of shape ({self.n_units},), got shape {p.shape}")
        C, d = self.layers[0].dense(), self.layers[0].bias
        hidden = []
        with blas_threads(max(self.widths)):
            for i, layer in enumerate(self.layers[1:]):
                hidden.append((C, d))
                s, t = self.hidden[i].units.on(p[self.offsets[i] : self.offsets[i + 1]])
                C, d = layer.weight @ (s[:, None] * C), layer.weight @ (s * d + t) + layer.bias
        return AffineMaps(tuple(hidden), C, d)

    def output_maps(self, patterns: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """The linear models of the output on the regions of many patterns.

        Parameters
        ----------
        patterns : array_like, shape (n, n_units)

        Returns
        -------
        C, d : ndarray, shapes (n, outputs, inputs) and (n, outputs)

        Notes
        -----
        Reverse accumulation when there are fewer outputs than inputs, forward otherwise; either way the cost is
        `min(outputs, inputs)` matrix products per layer, done for many rows at once.
        """
        p = np.atleast_2d(pattern_rows(self, patterns))
        C = np.empty((len(p), self.n_outputs, self.n_inputs))
        d = np.empty((len(p), self.n_outputs))
        backward = self.n_outputs <= self.n_inputs
        accumulate = self._accumulate_backward if backward else self._accumulate_forward
        per_row = max(self.widths) * min(self.n_outputs, self.n_inputs)
        with blas_threads(max(self.widths)):
            for part in chunks(self, len(p), per_row):
                accumulate(p[part], C[part], d[part])
        return C, d

    def local(self, X: npt.ArrayLike) -> LocalMaps:
        """The linear model in force at each row of `X`.

        Parameters
        ----------
        X : array_like, as for calling the network

        Returns
        -------
        LocalMaps
            With `pattern`, `C` (n, outputs, inputs) and `d` (n, outputs): `y = C[i] x + d[i]` at row i.

        Examples
        --------
        >>> net = Network([([[1.0, -1.0], [0.5, 2.0]], [0.0, -1.0]), ([[1.0, 1.0]], [0.0])])
        >>> model = net.local([[1.0, 2.0]])
        >>> model.C.tolist(), model.d.tolist()
        ([[[0.5, 2.0]]], [[-1.0]])
        """
        rows, _ = input_rows(self, X)
        pattern = self.pattern(rows)
        C, d = self.output_maps(pattern)
        return LocalMaps(pattern, C, d)

    def jacobian(self, X: npt.ArrayLike) -> FloatArray:
        """Derivative of the outputs by the inputs.

        Parameters
        ----------
        X : array_like, as for calling the network

        Returns
        -------
        ndarray, shape (n, outputs, inputs) or (outputs, inputs)
            On a boundary between regions, the derivative on the region that the tie rule selects.
        """
        rows, single = input_rows(self, X)
        C = self.local(rows).C
        return C[0] if single else C

    def polytope(self, pattern: npt.ArrayLike) -> Polytope:
        """The region of a pattern, as inequalities `A x <= b`: two per unit at most (one for a ReLU).

        A unit with `h = C x + d` on the piece `(t, t']` gives `-C x < d - t` and `C x <= t' - d`.

        Parameters
        ----------
        pattern : (units,)

        Returns
        -------
        Polytope

        Examples
        --------
        >>> net = Network([([[1.0, -1.0], [0.5, 2.0]], [0.0, -1.0]), ([[1.0, 1.0]], [0.0])])
        >>> region = net.polytope([0, 1])
        >>> region
        Polytope(2 inequalities in R^2)
        >>> bool(region.contains([1.0, 2.0]))
        True
        """
        p = pattern_rows(self, pattern)
        maps = self.affine(p)
        A, b, strict, unit = [], [], [], []
        for i, (layer, (C, d)) in enumerate(zip(self.hidden, maps.hidden, strict=True)):
            piece = p[self.offsets[i] : self.offsets[i + 1]].astype(np.intp)
            edges = np.column_stack([np.full(layer.width, -np.inf), layer.units.breaks, np.full(layer.width, np.inf)])
            rows = np.arange(layer.width)
            low, high = edges[rows, piece], edges[rows, piece + 1]
            lower, upper = np.isfinite(low), np.isfinite(high)
            A += [-C[lower], C[upper]]
            b += [d[lower] - low[lower], high[upper] - d[upper]]
            strict += [np.ones(int(lower.sum()), bool), np.zeros(int(upper.sum()), bool)]
            unit += [self.offsets[i] + rows[lower], self.offsets[i] + rows[upper]]
        if not A:
            empty = np.zeros(0)
            return Polytope(np.zeros((0, self.n_inputs)), empty, empty.astype(bool), empty.astype(np.intp))
        return Polytope(np.concatenate(A), np.concatenate(b), np.concatenate(strict), np.concatenate(unit))

    # -- new networks from this one ------------------------------------------------------------------------------

    def after(self, A: Any, c: npt.ArrayLike) -> Network:
        """The network `u -> net(A u + c)`: an affine change of input, folded into the first layer.

        Parameters
        ----------
        A : array_like or sparse, shape (inputs, k)
        c : array_like, shape (inputs,)

        Returns
        -------
        Network

        Examples
        --------
        >>> net = Network([([[1.0]], [0.0]), ([[2.0]], [0.0])])
        >>> net.after([[3.0]], [1.0])([2.0])
        array([14.])
        """
        c = real_array(c, "c", ndim=1)
        A = A if sparse.issparse(A) else real_array(A, "A", ndim=2)
        if A.shape[0] != self.n_inputs or len(c) != self.n_inputs:
            raise InputError(f"A and c must have {self.n_inputs} rows, got {A.shape[0]} and {len(c)}")
        first = self.layers[0]
        with blas_threads(max(self.widths)):
            folded = (first.weight @ A, first.weight @ c + first.bias, first.units, first.origin)
        schema = None if self.schema is None else self.schema.of_outputs()
        named: dict[str, Any] = {"name": self.name, "notes": self.notes, "schema": schema}
        return Network([folded, *self.layers[1:]], output_shape=self.output_shape, **named).approximating(
            self.approximation
        )

    def then(self, A: Any, c: npt.ArrayLike | None = None) -> Network:
        """The network `x -> A net(x) + c`: an affine change of output, folded into the last layer.

        Parameters
        ----------
        A : array_like or sparse, shape (k, outputs)
        c : array_like, shape (k,), optional

        Returns
        -------
        Network

        Examples
        --------
        >>> net = Network([([[1.0]], [0.0]), ([[2.0]], [0.0])])
        >>> net.then([[1.0], [-1.0]])([3.0])
        array([ 6., -6.])
        """
        A = A if sparse.issparse(A) else real_array(A, "A", ndim=2)
        if A.shape[1] != self.n_outputs:
            raise InputError(f"A must have {self.n_outputs} columns, one per output, got {A.shape[1]}")
        k = A.shape[0]
        c = np.zeros(k) if c is None else real_array(c, "c", ndim=1)
        if len(c) != k:
            raise InputError(f"c must have {k} entries, one per row of A, got {len(c)}")
        last = self.layers[-1]
        folded = (A @ last.weight, A @ last.bias + c)
        schema = None if self.schema is None else self.schema.of_inputs()
        named: dict[str, Any] = {"name": self.name, "notes": self.notes, "schema": schema}
        off = None if self.approximation is None else (abs(A) @ self.approximation) * (1 + 1e-12)
        return Network([*self.layers[:-1], folded], input_shape=self.input_shape, **named).approximating(off)

    def __matmul__(self, other: Network) -> Network:
        """`net @ other` is the network `x -> net(other(x))`."""
        if not isinstance(other, Network):
            return NotImplemented
        return door("Network.__matmul__")(self, other)

    def __sub__(self, other: Network) -> Network:
        """`net - other` is the network `x -> net(x) - other(x)`."""
        if not isinstance(other, Network):
            return NotImplemented
        return door("Network.__sub__")(self, other)

    def fix(self, values: Mapping[int | str, float]) -> Network:
        """The network of the other inputs, with some inputs set to numbers.

        Parameters
        ----------
        values : mapping
            From the index of an input, or its name in the schema, to the network's own number for it.

        Returns
        -------
        Network
            Its inputs are those that are left, in their order.

        Raises
        ------
        InputError
            If there is no such input, or none would be left.

        Examples
        --------
        >>> net = Network([([[1.0, -1.0]], [0.0]), ([[2.0]], [0.0])])
        >>> net.fix({0: 1.5})([1.0])
        array([1.])
        """
        if not isinstance(values, Mapping):
            raise InputTypeError(f"values must be a mapping such as {{0: 1.5}}, got {describe(values)}")
        names = () if self.schema is None else self.schema.inputs
        c = np.zeros(self.n_inputs)
        free = np.ones(self.n_inputs, bool)
        for key, value in values.items():
            if isinstance(key, str) and key not in names:
                raise InputError(f"values: no input is called {key!r}")
            i = names.index(key) if isinstance(key, str) else integer(key, "an input", low=0, high=self.n_inputs - 1)
            c[i], free[i] = real(value, f"the value of input {i}"), False
        if not free.any():
            raise InputError("values fixes all inputs; leave at least one, or call the network")
        A = sparse.eye_array(self.n_inputs, format="csc")[:, np.flatnonzero(free)]
        fixed = self.after(A, c)
        columns = () if self.schema is None else self.schema.columns
        # A category whose inputs are fixed in part has no name any more: then none is kept.
        at = np.cumsum([0, *(column.width for column in columns)])
        kept = [free[a:b] for a, b in pairwise(at.tolist())]
        if not columns or any(part.any() and not part.all() for part in kept):
            return fixed
        left = [column for column, part in zip(columns, kept, strict=True) if part.all()]
        return fixed.with_schema(columns=left)

    def select_outputs(self, outputs: int | str | Sequence[int | str]) -> Network:
        """The network with some of its outputs only, in the order given.

        Parameters
        ----------
        outputs : int, str or sequence of these
            Indices, or names in the schema.

        Returns
        -------
        Network

        Raises
        ------
        InputError
            If there is no such output.

        Examples
        --------
        >>> net = Network([([[1.0], [-1.0]], [0.0, 0.0])])
        >>> net.select_outputs([1])([3.0])
        array([-3.])
        """
        names = () if self.schema is None else self.schema.output_names
        chosen = []
        for key in (outputs,) if isinstance(outputs, (str, int)) else several(outputs, "outputs", "indices or names"):
            if isinstance(key, str) and key not in names:
                raise InputError(f"outputs: no output is called {key!r}")
            chosen.append(
                names.index(key) if isinstance(key, str) else integer(key, "an output", low=0, high=self.n_outputs - 1)
            )
        if not chosen:
            raise InputError("outputs must name at least one output")
        last = self.layers[-1]
        rows = last.weight[chosen], last.bias[chosen]
        schema = None if self.schema is None else self.schema.of_inputs()
        if self.schema is not None and self.schema.outputs and len(set(chosen)) == len(chosen):
            # The decision was between all outputs; it does not carry over to some of them.
            picked = tuple(self.schema.outputs[i] for i in chosen)
            schema = Schema(self.schema.columns, picked, groups=self.schema.groups, unused=self.schema.unused)
        named: dict[str, Any] = {"name": self.name, "notes": self.notes, "schema": schema}
        off = None if self.approximation is None else self.approximation[chosen]
        return Network([*self.layers[:-1], rows], input_shape=self.input_shape, **named).approximating(off)

    def spread(self, error: npt.ArrayLike, own: Sequence[npt.ArrayLike] | None = None) -> FloatArray:
        """How far each output can move when each input moves by at most `error`, whatever the inputs are.

        Parameters
        ----------
        error : (inputs,) array
        own : sequence of (units,) arrays, optional
            By hidden layer, how far each unit may be off by itself.

        Returns
        -------
        (outputs,) array

        Notes
        -----
        `e_l = s_l |W_l| e_{l-1} + own_l` with the steepest slope `s_l` of each unit, rounded up by more than the sums
        can lose. A crude bound: it grows with depth.
        """
        e = real_array(error, "error", ndim=1, finite=False)
        if len(e) != self.n_inputs or not (e >= 0).all():
            raise InputError(f"error must have {self.n_inputs} numbers that are not negative, got {describe(error)}")
        listed = [] if own is None else several(own, "own", "arrays, one for each hidden layer")
        added = [real_array(a, "own", ndim=1) for a in listed]
        if own is not None and [len(a) for a in added] != [layer.width for layer in self.hidden]:
            raise InputError(f"own must have one number for each unit of {len(self.hidden)} hidden layers")
        with np.errstate(over="ignore", invalid="ignore"):
            for k, layer in enumerate(self.layers):
                e = abs(layer.weight) @ e
                if k < len(self.hidden):
                    e = np.abs(layer.units.slopes).max(axis=1) * e + (added[k] if added else 0.0)
            e = np.asarray(e * (1 + 1e-9))
        return np.where(np.isnan(e), np.inf, e)

    def approximating(self, error: npt.ArrayLike | None) -> Network:
        """The same network, known to differ from the model it stands for by at most `error` in each output.

        Parameters
        ----------
        error : (outputs,) array or None
            Not negative; `inf` where no bound is known.

        Returns
        -------
        Network

        Raises
        ------
        InputError
            If there is not one number for each output.
        """
        if error is None:
            return self
        bound = real_array(error, "error", ndim=1, finite=False)
        if bound.shape != (self.n_outputs,) or np.isnan(bound).any() or (bound < 0).any():
            raise InputError(f"error must have {self.n_outputs} numbers that are not negative, got {describe(error)}")
        out = Network(
            self.layers,
            input_shape=self.input_shape,
            output_shape=self.output_shape,
            name=self.name,
            notes=self.notes,
            schema=self.schema,
            parts=self.parts,
        )
        object.__setattr__(out, "file_sha256", self.file_sha256)
        object.__setattr__(out, "approximation", _frozen(bound))
        return out

    def with_schema(self, schema: Schema | None = None, **changes: Any) -> Network:
        """The same network with a schema, or with some fields of its schema changed.

        Parameters
        ----------
        schema : Schema, optional
            In place of the one it has.
        **changes
            Fields of `Schema`, such as `outputs="PD"` (the scale stays), `cutoff=0.2`, `groups={"PAY": [...]}`.

        Returns
        -------
        Network

        Raises
        ------
        InputError
            If the schema does not fit the network.

        Examples
        --------
        >>> net = Network([([[1.0, -1.0]], [0.0]), ([[2.0]], [0.0])])
        >>> net.with_schema(columns=["debt", "income"]).schema.names
        ('debt', 'income')
        """
        base = (self.schema or Schema()) if schema is None else schema
        if not isinstance(base, Schema):
            raise InputError(f"schema must be a reluscope.Schema, got {describe(schema)}")
        return Network(
            self.layers,
            input_shape=self.input_shape,
            output_shape=self.output_shape,
            name=self.name,
            notes=self.notes,
            schema=base.with_names(**changes),
            parts=self.parts,
        ).approximating(self.approximation)

    def in_units(self, *, inputs: bool = True, outputs: bool = True) -> Network:
        """The network that takes and gives values in the units of its schema: its scalings become part of it.

        Parameters
        ----------
        inputs, outputs : bool
            Whose scalings: False leaves those as they are.

        Returns
        -------
        Network
            Its inputs are the columns' own values (categories as codes), its outputs likewise, before any sigmoid.

        Examples
        --------
        >>> from reluscope import Column, Network, Schema
        >>> net = Network([([[2.0]], [0.0])], schema=Schema([Column("range", unit="ft", scale=0.001)]))
        >>> net.in_units()([500.0])  # 500 ft are 0.5 for the network
        array([1.])
        """
        if self.schema is None:
            raise InputError("net has no schema, so its units are not known; give one with net.with_schema(...)")
        net, schema = self, self.schema
        if flag(inputs, "inputs") and schema.columns:
            scale = np.concatenate([np.full(c.width, c.scale) for c in schema.columns])
            shift = np.concatenate([np.full(c.width, c.shift) for c in schema.columns])
            net = net.after(sparse.diags_array(scale, format="csr"), shift)
        if flag(outputs, "outputs") and schema.outputs:
            size = np.array([o.scale for o in schema.outputs])
            net = net.then(np.diag(1.0 / size), -np.array([o.shift for o in schema.outputs]) / size)
        return Network(
            net.layers,
            input_shape=self.input_shape,
            output_shape=self.output_shape,
            name=self.name,
            notes=self.notes,
            schema=schema.in_units(inputs=inputs, outputs=outputs),
            parts=self.parts,
        ).approximating(net.approximation)

    def deciding(self) -> Network:
        """The network whose decision is the largest output, or the sign of the only one: the schema's rule folded in.

        Returns
        -------
        Network
        """
        rule = "" if self.schema is None else self.schema.rule
        if rule == "smallest":
            return self.then(-np.eye(self.n_outputs))
        limit = None if self.schema is None else self.schema.threshold()
        if limit is None or limit == 0.0:
            return self
        if not np.isfinite(limit):
            raise InputError("cutoff is beyond every value of the output: the decision never changes")
        return self.then([[1.0]], [-limit])

    # -- files and text ------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the network to a file; `reluscope.load` reads it back.

        Parameters
        ----------
        path : path
            Ends in `.npz`, `.safetensors` or `.onnx`. The first two keep every number bit for bit.

        Raises
        ------
        InputError
            If the ending is another one.
        """
        door("Network.save")(self, path)

    def to_torch(self) -> Any:
        """The network as a `torch.nn.Sequential` in double precision: a `Linear` for each layer and its activation.

        Returns
        -------
        torch.nn.Sequential
        """
        return door("Network.to_torch")(self)

    def describe(self) -> list[dict[str, Any]]:
        """One row per layer, counted from 0: inputs, units, activation, parameters, storage, and what it is from."""
        known = any(layer.origin is not None for layer in self.layers)
        return [
            {
                "layer": i,
                "inputs": layer.n_inputs,
                "units": layer.width,
                "activation": "output" if layer is self.layers[-1] else layer.units.describe(),
                "parameters": layer.n_parameters,
                "storage": "sparse" if sparse.issparse(layer.weight) else "dense",
                **({"from": "" if layer.origin is None else layer.origin.describe()} if known else {}),
            }
            for i, layer in enumerate(self.layers)
        ]

    def __repr__(self) -> str:
        kinds = dict.fromkeys(layer.units.describe() for layer in self.hidden)
        act = ", ".join(list(kinds)[:3]) + (", ..." if len(kinds) > 3 else "") if kinds else "affine"
        return f"Network({_arrow(self.widths)}, {act}, {self.n_parameters:,} parameters)"

    # -- inside --------------------------------------------------------------------------------------------------

    def _accumulate_backward(self, p: Pattern, C: FloatArray, d: FloatArray) -> None:
        n, m = len(p), self.n_outputs
        last = self.layers[-1]
        d[:] = last.bias
        if not self.hidden:
            C[:] = last.dense()
            return
        g = np.broadcast_to(last.dense(), (n, m, last.n_inputs))
        for i in range(len(self.hidden) - 1, -1, -1):
            layer = self.hidden[i]
            piece = p[:, self.offsets[i] : self.offsets[i + 1]]
            if layer.units.has_intercepts:
                s, t = layer.units.on(piece)
                d += np.einsum("nmk,nk->nm", g, t)
            else:
                s = layer.units.slope(piece)
            scaled = (g * s[:, None, :]).reshape(n * m, layer.width)
            d += (scaled @ layer.bias).reshape(n, m)
            if sparse.issparse(layer.weight):
                g = (layer.weight.T @ scaled.T).T.reshape(n, m, layer.n_inputs)
            else:
                g = (scaled @ layer.weight).reshape(n, m, layer.n_inputs)
        C[:] = g

    def _accumulate_forward(self, p: Pattern, C: FloatArray, d: FloatArray) -> None:
        n, k = len(p), self.n_inputs
        first = self.layers[0]
        # Layout (units, rows, inputs + 1): one matrix product per layer serves all rows, the bias as last column.
        g = np.broadcast_to(np.column_stack([first.dense(), first.bias])[:, None, :], (first.width, n, k + 1))
        for i, layer in enumerate(self.layers[1:]):
            s, t = self.hidden[i].units.on(p[:, self.offsets[i] : self.offsets[i + 1]])
            scaled = g * s.T[:, :, None]
            scaled[:, :, k] += t.T
            g = (layer.weight @ scaled.reshape(len(scaled), n * (k + 1))).reshape(layer.width, n, k + 1)
            g[:, :, k] += layer.bias[:, None]
        C[:] = g[:, :, :k].transpose(1, 0, 2)
        d[:] = g[:, :, k].T


def _build_layers(layers: Sequence[Any], default: Any) -> tuple[Layer, ...]:
    if not isinstance(layers, Sequence) or isinstance(layers, (str, bytes)) or not layers:
        raise InputError(f"layers must be a non-empty sequence of (W, b) or (W, b, activation), got {describe(layers)}")
    built: list[Layer] = []
    for i, spec in enumerate(layers):
        last = i == len(layers) - 1
        layer = _build_layer(spec, "identity" if last else default, f"layer {i}")
        if built and layer.n_inputs != built[-1].width:
            raise InputError(
                f"layer {i} takes {layer.n_inputs} inputs but layer {i - 1} has {built[-1].width} units; "
                "weights have shape (outputs, inputs)"
            )
        built.append(layer)
    if not built[-1].units.is_identity:
        width = built[-1].width
        eye = _as_matrix(sparse.eye_array(width, format="csr"))
        built.append(Layer(eye, _frozen(np.zeros(width)), Units.uniform("identity", width)))
    return tuple(built)


def _build_layer(spec: Any, default: Any, where: str) -> Layer:
    if isinstance(spec, Layer):
        return spec
    if not isinstance(spec, (tuple, list)) or len(spec) not in (2, 3, 4):
        raise InputError(f"{where} must be (W, b) or (W, b, activation), got {describe(spec)}")
    W = _as_matrix(spec[0], f"W of {where}")
    if 0 in W.shape:
        raise InputError(f"W of {where} has shape {W.shape}; a layer needs at least one input and one unit")
    b = np.zeros(W.shape[0]) if spec[1] is None else real_array(spec[1], f"b of {where}", ndim=1)
    if len(b) != W.shape[0]:
        raise InputError(f"b of {where} has {len(b)} entries but W has {W.shape[0]} rows (outputs)")
    origin = spec[3] if len(spec) == 4 else None
    if origin is not None:
        if not isinstance(origin, Origin):
            raise InputError(f"{where} must be (W, b) or (W, b, activation), got {describe(spec)}")
        origin.check(W.shape[0], where)
    return Layer(W, _frozen(b), _units(spec[2] if len(spec) >= 3 else default, W.shape[0], where), origin)


def _units(spec: Any, width: int, where: str) -> Units:
    if isinstance(spec, Units):
        units = spec
    elif isinstance(spec, (list, tuple)) and not isinstance(spec, Activation):
        units = Units.of([activation(a, f"activation of {where}") for a in spec])
    else:
        units = Units.uniform(activation(spec, f"activation of {where}"), width)
    if len(units) != width:
        raise InputError(f"activation of {where} names {len(units)} units but W has {width} rows")
    return units


_SPARSE_BELOW = 0.25
"""Share of non-zeros below which a sparse weight stays sparse: above it a dense product is faster."""


def _as_matrix(value: Any, name: str = "W") -> Matrix:
    if not sparse.issparse(value):
        return _frozen(real_array(value, name, ndim=2))
    if value.dtype.kind not in "fiub":
        raise InputError(f"{name} must hold real numbers, got dtype {value.dtype}")
    matrix = sparse.csr_array(value, dtype=np.float64)
    matrix.sum_duplicates()
    if not np.isfinite(matrix.data).all():
        raise InputError(f"{name} must be finite, got {matrix.data[~np.isfinite(matrix.data)][0]}")
    rows, columns = matrix.shape
    if matrix.nnz > _SPARSE_BELOW * rows * columns or rows * columns <= 4096:
        return _frozen(matrix.toarray())
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.setflags(write=False)
    return matrix


def _frozen(array: FloatArray) -> FloatArray:
    out = np.array(array, dtype=np.float64, order="C")  # a copy: the caller's array may change later
    out.setflags(write=False)
    return out


def _shape(shape: Sequence[int] | None, size: int, name: str) -> tuple[int, ...]:
    if shape is None:
        return (size,)
    out = tuple(integer(n, f"an entry of {name}", low=-(1 << 62)) for n in several(shape, name, "whole numbers"))
    if math.prod(out) != size or min(out, default=1) < 1:
        raise InputError(f"{name} must multiply to {size}, got {out}")
    return out


def _checked_parts(parts: Any, layers: tuple[Layer, ...]) -> tuple[Part, ...]:
    """The parts, or an `InputError` where they speak of what the layers do not have."""
    out = several(parts, "parts", "Part records")
    if not all(isinstance(part, Part) for part in out):
        raise InputTypeError(f"parts must be reluscope.network.Part records, got {describe(parts)}")
    for part in out:
        spans = [(part.inputs, layers[0].n_inputs), (part.outputs, layers[-1].width)]
        spans += [(at, layer.width) for at, layer in zip(part.units, layers, strict=False)]
        if len(part.units) >= len(layers) or any(
            not isinstance(at, range) or at.step != 1 or not 0 <= at.start < at.stop <= size for at, size in spans
        ):
            raise InputError(f"part {part.name!r} does not fit the layers")
    if len({part.name for part in out}) != len(out):
        raise InputError("parts must have different names")
    return out


def _arrow(widths: tuple[int, ...]) -> str:
    """`5-50x6-5` for repeated widths."""
    parts: list[str] = []
    i = 0
    while i < len(widths):
        j = i
        while j < len(widths) and widths[j] == widths[i]:
            j += 1
        repeat = j - i
        parts.append(f"{widths[i]}x{repeat}" if repeat > 2 else "-".join([str(widths[i])] * repeat))
        i = j
    return "-".join(parts)


def check_network(net: Any, name: str = "net") -> Network:
    """`net` if it is a `Network`, else an `InputError` about the argument `name` that says how to get one."""
    if not isinstance(net, Network):
        inside = isinstance(getattr(net, "network", None), Network)
        how = "give its .network" if inside else "reluscope.load makes one from a model"
        raise InputTypeError(f"{name} must be a Network, got {describe(net)}; {how}")
    return net


def input_rows(net: Network, X: npt.ArrayLike) -> tuple[FloatArray, bool]:
    """`X` as rows of inputs, by name where there are names, and whether it was one row alone."""
    if net.schema is not None and net.schema.columns and columns_of(X) is not None:
        return net.schema.encode(X), getattr(X, "ndim", 2) == 1
    if net.schema is not None and np.shape(X)[1:] != (net.n_inputs,):
        table = net.schema.positional(X)
        if table is not None:
            return net.schema.encode(table), False
    x = real_array(X, "X")
    n = net.n_inputs
    if x.ndim == 2 and x.shape[1] == n:
        return x, False
    if x.shape == (n,) or x.shape == net.input_shape:
        return x.reshape(1, n), True
    if x.ndim > 1 and x.shape[1:] == net.input_shape:
        return x.reshape(len(x), n), False
    hint = "; a column of numbers needs reshape(-1, 1)" if n == 1 and x.ndim == 1 else ""
    image = f" or (n, {', '.join(map(str, net.input_shape))})" if net.input_shape != (n,) else ""
    raise InputError(f"X must have shape (n, {n}){image} or ({n},), got {x.shape}{hint}")


def pattern_rows(net: Network, pattern: npt.ArrayLike) -> Pattern:
    """One pattern or rows of them, checked: each entry is the number of a piece of its unit."""
    p = any_array(pattern, "pattern", "an array of whole numbers")
    if p.dtype.kind not in "iub" or p.ndim not in (1, 2) or p.shape[-1] != net.n_units:
        raise InputError(
            f"pattern must hold whole numbers in shape ({net.n_units},) or (n, {net.n_units}), got {describe(p)}"
        )
    if p.size and (p.min() < 0 or p.max() >= net.pieces.min()) and ((p < 0) | (p >= net.pieces)).any():
        bad = np.argwhere((np.atleast_2d(p) < 0) | (np.atleast_2d(p) >= net.pieces))[0, 1]
        raise InputError(
            f"pattern has an entry outside 0..{net.pieces[bad] - 1} for unit {bad}, which has {net.pieces[bad]} pieces"
        )
    return p.astype(np.uint8, copy=False)


def trace(net: Network, z: FloatArray, pattern: Pattern, room: Sequence[FloatArray] | None = None) -> FloatArray:
    """Write the patterns of rows `z` into `pattern` (n, units), and return the values of the last hidden layer.

    `room`, an array (at least n, width) for each hidden layer, is written over. Without it arrays are made afresh,
    which several threads at once pay for.
    """
    for i, layer in enumerate(net.hidden):
        h = layer.affine(z, None if room is None else room[i][: len(z)])
        pattern[:, net.offsets[i] : net.offsets[i + 1]] = layer.units.pattern(h)
        z = layer.units(h, out=h)
    return z


def chunks(net: Network, n: int, numbers_per_row: int | None = None) -> Iterator[slice]:
    """Parts of n rows, so few at a time that what the network makes of them stays small."""
    size = max(64, _CHUNK_NUMBERS // (numbers_per_row or max(net.widths)))
    return (slice(i, min(i + size, n)) for i in range(0, n, size))
