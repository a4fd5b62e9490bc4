"""New networks from networks: composition, side by side, differences, rounded weights.

    (g @ f)(x) = g(f(x))      stack([f, g])(x) = (f(x), g(x))      parallel([f, g])(x, x') = (f(x), g(x'))

Networks run side by side in block-diagonal layers; the outputs of a shallower one are carried past the remaining
layers by identity units, exactly. `g @ f` folds the last layer of f into the first of g, so that no layer is added: the
numbers of the folded layer are rounded once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from reluscope._check import choice, describe, several
from reluscope.activations import Units
from reluscope.errors import InputError, InputTypeError
from reluscope.network import Layer, Matrix, Network, Origin, Part, check_network
from reluscope.schema import Schema

_FOLDED = 2
"""Sparse layers are folded when the product has at most so many times the numbers of its factors."""

_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NAMES_IN_EVENTS = ("x", "y", "X", "Y", "J", "P", "unit", "argmax", "argmin", "max", "min", "abs")
_WORDS_IN_EVENTS = ("norm", "norm1", "norm2", "norminf", "fro", "and", "or", "not", "in", "at", "is", "true", "false")
_RESERVED = frozenset((*_NAMES_IN_EVENTS, *_WORDS_IN_EVENTS))

KINDS = ("int8", "float16")


def compose(outer: Network, inner: Network) -> Network:
    """The network `x -> outer(inner(x))`; also `outer @ inner`."""
    check_network(outer, "outer")
    check_network(inner, "inner")
    if outer.n_inputs != inner.n_outputs:
        raise InputError(f"net @ other: net takes {outer.n_inputs} inputs but other has {inner.n_outputs} outputs")
    first, last = outer.layers[0], inner.layers[-1]
    thin = sparse.issparse(first.weight) or sparse.issparse(last.weight)
    folded: Any = first.weight @ last.weight
    if thin and _stored(folded) > _FOLDED * (_stored(first.weight) + _stored(last.weight)):
        join = [Layer(last.weight, last.bias, Units.uniform("identity", last.width)), first]
    else:
        join = [Layer(*_plain(folded, first.weight @ last.bias + first.bias), first.units, first.origin)]
    off = outer.approximation
    if inner.approximation is not None:
        off = outer.spread(inner.approximation) + (0.0 if off is None else off)
    return Network(
        [(a.weight, a.bias, a.units, a.origin) for a in (*inner.hidden, *join, *outer.layers[1:])],
        input_shape=inner.input_shape,
        output_shape=outer.output_shape,
        name=f"{outer.name} @ {inner.name}",
        notes=(*inner.notes, *outer.notes),
        schema=_joined_schema(inner.schema, outer.schema),
    ).approximating(off)


def subtract(net: Network, other: Network) -> Network:
    """The network `x -> net(x) - other(x)`; also `net - other`."""
    if net.n_outputs != other.n_outputs:
        raise InputError(f"net - other: both must have equally many outputs, got {net.n_outputs} and {other.n_outputs}")
    one = sparse.eye_array(net.n_outputs, format="csr")
    apart = stack([net, other]).then(sparse.hstack([one, -one], format="csr"))
    schema = None if net.schema is None else net.schema.of_inputs()
    return Network(
        apart.layers,
        input_shape=net.input_shape,
        output_shape=net.output_shape,
        name=f"{net.name} - {other.name}",
        schema=schema,
    ).approximating(apart.approximation)


def stack(nets: Sequence[Network] | Mapping[str, Network]) -> Network:
    """Several networks on the same input, their outputs side by side: `x -> (f(x), g(x), ...)`.

    Parameters
    ----------
    nets : sequence of Network, or mapping from names to Network
        With equally many inputs. With names, events of the joined network may speak of its parts: `f.y[0] > g.y[0]`,
        `argmax f != argmax g`.

    Returns
    -------
    Network
        Layers are block-diagonal, and sparse where that pays; its regions are the common refinement of theirs. Where
        units are from (`Network.origin`) is kept, with the name or number of the network before the name.

    Raises
    ------
    InputError
        If the numbers of inputs differ.

    Examples
    --------
    >>> from reluscope import Network, stack
    >>> f, g = Network([([[1.0]], [0.0]), ([[2.0]], None)]), Network([([[3.0]], [1.0])])
    >>> stack([f, g])([1.0])
    array([2., 4.])
    """
    names, members = _members(nets)
    first = members[0]
    for net in members[1:]:
        if net.n_inputs != first.n_inputs:
            raise InputError(
                f"nets must have equally many inputs to share them, got {first.n_inputs} and {net.n_inputs}; "
                "parallel gives each its own"
            )
    schema = None if first.schema is None else first.schema.of_inputs()
    return _joined(names, members, shared=True, schema=schema)


def parallel(nets: Sequence[Network] | Mapping[str, Network]) -> Network:
    """Several networks, each with its own input: `(x, x', ...) -> (f(x), g(x'), ...)`.

    Parameters
    ----------
    nets : sequence of Network, or mapping from names to Network
        With names, events of the joined network may speak of its parts: `f.x[0] < g.x[0] and f.y[0] > g.y[0]`.

    Returns
    -------
    Network
        Inputs and outputs are those of the networks, one after the other. Where units are from (`Network.origin`) is
        kept, with the name or number of the network before the name.

    Raises
    ------
    InputError
        If there is no network, or a name cannot be one.

    Examples
    --------
    >>> from reluscope import Network, parallel
    >>> f = Network([([[1.0]], [0.0]), ([[2.0]], None)])
    >>> parallel([f, f])([1.0, -1.0])
    array([2., 0.])
    """
    names, members = _members(nets)
    return _joined(names, members, shared=False, schema=None)


def pair(net: Network) -> Network:
    """Two copies of one network, `(x, x') -> (net(x), net(x'))`; events call the second x' and y'."""
    return _joined(("", "'"), (net, net), shared=False, schema=None)


def quantised(net: Network, kind: str = "int8") -> Network:
    """The network with its weights rounded to few bits, as deployed networks have them.

    Parameters
    ----------
    net : Network
    kind : {"int8", "float16"}
        "int8": the weights of each layer are whole numbers from -127 to 127 times one scale, the largest weight over
        127; biases stay, as integer runtimes keep them in 32 bits. "float16": weights and biases in half precision.

    Returns
    -------
    Network
        In float64, with the rounded numbers exactly. Values between layers are not rounded.

    Raises
    ------
    InputError
        If a number is too large for half precision.

    Examples
    --------
    >>> from reluscope import Network, quantised
    >>> net = Network([([[1.0, 0.3]], [0.1]), ([[2.0]], None)])
    >>> quantised(net).layers[0].weight.round(4).tolist()
    [[1.0, 0.2992]]
    """
    check_network(net)
    choice(kind, "kind", KINDS)
    layers = [
        (_rounded(a.weight, kind), a.bias if kind == "int8" else _rounded(a.bias, kind), a.units, a.origin)
        for a in net.layers
    ]
    return Network(
        layers,
        input_shape=net.input_shape,
        output_shape=net.output_shape,
        name=f"{net.name} ({kind})",
        notes=(*net.notes, f"weights rounded to {kind}"),
        schema=net.schema,
    ).approximating(None if net.approximation is None else np.full(net.n_outputs, np.inf))  # not that of other weights


def _rounded(values: Any, kind: str) -> Any:
    held = values.data if sparse.issparse(values) else values
    if kind == "int8":
        step = float(np.abs(held).max(initial=0.0)) / 127.0
        new = np.round(held / step) * step if step else held
    else:
        if np.abs(held).max(initial=0.0) > np.finfo(np.float16).max:
            raise InputError("a weight is too large for half precision (65504); scale the network, or use int8")
        new = held.astype(np.float16).astype(np.float64)
    if not sparse.issparse(values):
        return new
    return sparse.csr_array((new, values.indices, values.indptr), shape=values.shape)


# -- side by side --------------------------------------------------------------------------------------------------


def _members(nets: Any) -> tuple[tuple[str, ...] | None, tuple[Network, ...]]:
    """Names, if there are any, and networks."""
    if isinstance(nets, Mapping):
        for name in nets:
            if not isinstance(name, str) or not _PART.fullmatch(name) or name in _RESERVED:
                raise InputError(
                    f"names of networks are words such as f or retrained that mean nothing else, got {describe(name)}"
                )
        names: tuple[str, ...] | None = tuple(nets)
        members = tuple(nets.values())
    else:
        if isinstance(nets, Network):
            raise InputTypeError("nets must be a sequence of networks, or a mapping from names; got one Network")
        names, members = None, several(nets, "nets", "networks")
    if not members:
        raise InputError("nets must hold at least one network")
    for net in members:
        check_network(net, "each of nets")
    return names, members


def _joined(
    names: tuple[str, ...] | None, nets: tuple[Network, ...], *, shared: bool, schema: Schema | None
) -> Network:
    depth = max(len(net.layers) for net in nets)
    rows = [_padded(net, depth) for net in nets]
    layers = []
    for at in range(depth):
        beside = [row[at] for row in rows]
        weight = _beside([a.weight for a in beside], stacked=shared and at == 0)
        units = Units.concatenate([a.units for a in beside])
        origin = _joined_origin(names, nets, beside, at) if at + 1 < depth else None
        layers.append((weight, np.concatenate([a.bias for a in beside]), units, origin))
    off = None
    if any(net.approximation is not None for net in nets):
        off = np.concatenate([np.zeros(n.n_outputs) if n.approximation is None else n.approximation for n in nets])
    return Network(
        layers,
        name=" | ".join(net.name for net in nets) if names is None else " | ".join(n or nets[0].name for n in names),
        schema=schema,
        parts=() if names is None else _parts(names, nets, rows, shared),
    ).approximating(off)


def _joined_origin(
    names: tuple[str, ...] | None, nets: tuple[Network, ...], beside: list[Layer], at: int
) -> Origin | None:
    """Where the units of hidden layer `at` are from; a word before the name says in which network.

    Units that no file has are called after their layer; those that carry outputs past the layer after these.
    """
    known = [any(a.origin is not None for a in net.hidden) for net in nets]
    if not any(known):
        return None
    sources: list[tuple[str, str, tuple[int, ...]]] = []
    source, place = [], []
    for k, (net, layer) in enumerate(zip(nets, beside, strict=True)):
        found = layer.origin
        if found is None:
            here = at < len(net.hidden)
            one = (f"layer {at}", "layer", (layer.width,)) if here else ("y", "carried", (layer.width,))
            found = Origin((one,), np.zeros(layer.width, np.intp), np.arange(layer.width))
        source.append(found.source + len(sources))
        place.append(found.place)
        word = names[k] if names is not None else str(k) if sum(known) > 1 or not known[k] else ""
        sources += [(_told(word, name), operation, shape) for name, operation, shape in found.sources]
    return Origin(tuple(sources), np.concatenate(source), np.concatenate(place))


def _told(word: str, name: str) -> str:
    return f"{name}{word}" if word in ("", "'") else f"{word}.{name}"


def _parts(
    names: tuple[str, ...], nets: tuple[Network, ...], rows: list[list[Layer]], shared: bool
) -> tuple[Part, ...]:
    out = []
    for k, (name, net) in enumerate(zip(names, nets, strict=True)):
        before = 0 if shared else sum(n.n_inputs for n in nets[:k])
        outputs = sum(n.n_outputs for n in nets[:k])
        starts = [sum(row[at].width for row in rows[:k]) for at in range(len(net.hidden))]
        units = tuple(range(a, a + layer.width) for a, layer in zip(starts, net.hidden, strict=True))
        out.append(Part(name, range(before, before + net.n_inputs), range(outputs, outputs + net.n_outputs), units))
    return tuple(out)


def _padded(net: Network, depth: int) -> list[Layer]:
    """The layers, with identity layers at the end."""
    eye = sparse.eye_array(net.n_outputs, format="csr")
    carry = Layer(eye, np.zeros(net.n_outputs), Units.uniform("identity", net.n_outputs))
    return [*net.layers, *[carry] * (depth - len(net.layers))]


def _beside(weights: list[Matrix], *, stacked: bool) -> Any:
    """The weights below one another (one input) or on a block diagonal; `Network` makes small ones dense."""
    blocks = [sparse.csr_array(w) for w in weights]
    if stacked:
        if not any(sparse.issparse(w) for w in weights):
            return np.concatenate(weights)
        return sparse.vstack(blocks, format="csr")
    return sparse.block_diag(blocks, format="csr")


def _plain(weight: Any, bias: Any) -> tuple[Any, Any]:
    return (sparse.csr_array(weight) if sparse.issparse(weight) else weight), bias


def _stored(weight: Any) -> int:
    return int(weight.nnz if sparse.issparse(weight) else weight.size)


def _joined_schema(inner: Schema | None, outer: Schema | None) -> Schema | None:
    """The columns of the one and the outputs of the other."""
    columns = None if inner is None else inner.of_inputs()
    outputs = None if outer is None else outer.of_outputs()
    if columns is None or outputs is None:
        return columns or outputs
    return outputs.with_names(columns=columns.columns, groups=columns.groups, unused=columns.unused)
