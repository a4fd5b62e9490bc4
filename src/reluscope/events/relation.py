"""Questions about several networks, or several inputs of one: which single network they are about.

Networks that share their input are stacked, networks with inputs of their own run in parallel; then a relational event
is an ordinary event of the joined network, and every engine answers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from scipy import sparse

from reluscope._check import FloatArray, describe
from reluscope.algebra import pair, parallel, stack
from reluscope.errors import InputError, InputTypeError
from reluscope.inputs import Law, check_law
from reluscope.network import Network, check_network


@dataclass(frozen=True)
class Tensor:
    """A tensor that a property declares.

    Attributes
    ----------
    kind : {"input", "hidden", "output"}
    name, dtype : str
    shape : tuple of int
    node : str
        Its name in the model file, if the property gives one.
    """

    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    node: str = ""

    @property
    def size(self) -> int:
        """Its number of entries."""
        return prod(self.shape)


@dataclass(frozen=True)
class Declared:
    """A network that a property declares, with its tensors in order.

    Attributes
    ----------
    name : str
    tensors : tuple of Tensor
    equal_to, isomorphic_to : str
        The network that it is or is built like, or "".
    """

    name: str
    tensors: tuple[Tensor, ...]
    equal_to: str = ""
    isomorphic_to: str = ""

    @property
    def n_inputs(self) -> int:
        """Entries of all input tensors."""
        return sum(t.size for t in self.tensors if t.kind == "input")

    @property
    def n_outputs(self) -> int:
        """Entries of all output tensors."""
        return sum(t.size for t in self.tensors if t.kind == "output")


@dataclass(frozen=True, eq=False)
class Relation:
    """The networks that an event of a property file speaks of, and how their inputs hang together.

    The inputs of all networks, one after the other, are `A u + c`; `u` are the inputs that are left when equations
    between inputs are solved. The outputs of the joined network are those of all networks, one after the other.

    Attributes
    ----------
    networks : tuple of Declared
    free : tuple of str
        What the entries of `u` are called in the file.
    A : csr_array, shape (all inputs, free inputs)
    c : (all inputs,) array
    """

    networks: tuple[Declared, ...]
    free: tuple[str, ...]
    A: Any
    c: FloatArray


def entry_name(tensor: Tensor, index: int) -> str:
    """The name of an entry, counted in row-major order: `X[0,3]`."""
    if not tensor.shape:
        return tensor.name
    return f"{tensor.name}[{','.join(str(int(i)) for i in np.unravel_index(index, tensor.shape))}]"


def entry_names(networks: tuple[Declared, ...], kind: str) -> list[str]:
    """The names of all entries of the tensors of one kind, in order."""
    tensors = [t for d in networks for t in d.tensors if t.kind == kind]
    return [entry_name(t, k) for t in tensors for k in range(t.size)]


def tensor_values(relation: Relation, x: FloatArray, y: FloatArray) -> list[tuple[Declared, Tensor, FloatArray]]:
    """The declared inputs and outputs at one input and output of the joined network."""
    values = {"input": relation.A @ x + relation.c, "output": y}
    at = {"input": 0, "output": 0}
    out = []
    for net in relation.networks:
        for tensor in net.tensors:
            if tensor.kind in at:
                start = at[tensor.kind]
                at[tensor.kind] = start + tensor.size
                out.append((net, tensor, values[tensor.kind][start : start + tensor.size]))
    return out


def join_declared(relation: Relation, nets: Any) -> Network:
    """The network from the free inputs to the outputs of all networks; `nets` by name, or the only one."""
    given = _by_name(relation, nets)
    for own in relation.networks:
        _fits(own, given)
    members = [given[d.name] for d in relation.networks]
    if len(members) == 1 and len(relation.free) == members[0].n_inputs:
        return members[0]
    if not relation.c.any() and _shared(relation):  # names of inputs travel
        both = stack(members)
    else:
        both = parallel(members).after(relation.A, relation.c)
    return Network(both.layers, name=" | ".join(d.name for d in relation.networks), schema=both.schema)


def _shared(relation: Relation) -> bool:
    """Whether all networks see the same inputs, all of them."""
    n = len(relation.free)
    if any(d.n_inputs != n for d in relation.networks):
        return False
    eye = sparse.vstack([sparse.eye_array(n, format="csr")] * len(relation.networks), format="csr")
    return bool((eye != relation.A).nnz == 0)


def _by_name(relation: Relation, nets: Any) -> dict[str, Network]:
    known = [d.name for d in relation.networks]
    own = [d.name for d in relation.networks if not d.equal_to]
    if isinstance(nets, Network):
        if len(own) > 1:
            raise InputError(f"the property speaks of the networks {', '.join(own)}: give each by its name")
        given = {own[0]: nets}
    elif isinstance(nets, Mapping):
        given = dict(nets)
    else:
        raise InputTypeError(f"net must be a Network, or a mapping from names to networks, got {describe(nets)}")
    for name in given:
        if name not in known:
            raise InputError(f"the property has no network {name!r}; it speaks of {', '.join(known)}")
    for declared in relation.networks:
        if declared.equal_to in given:
            given.setdefault(declared.name, given[declared.equal_to])
        if declared.name not in given:
            raise InputError(f"the property speaks of a network {declared.name!r}, which is not given")
    return given


def _fits(own: Declared, given: Mapping[str, Network]) -> None:
    net = check_network(given[own.name], f"network {own.name}")
    if (net.n_inputs, net.n_outputs) != (own.n_inputs, own.n_outputs):
        raise InputError(
            f"network {own.name} has {net.n_inputs} inputs and {net.n_outputs} outputs, the property says "
            f"{own.n_inputs} and {own.n_outputs}"
        )
    if own.equal_to and given[own.equal_to] is not net and not _same(net, given[own.equal_to]):
        raise InputError(f"network {own.name} must be equal to {own.equal_to}, and is another one")
    if own.isomorphic_to:
        other = given[own.isomorphic_to]
        alike = net.widths == other.widths and all(
            a.units == b.units for a, b in zip(net.layers, other.layers, strict=True)
        )
        if not alike:
            raise InputError(
                f"network {own.name} must have the structure of {own.isomorphic_to}: {net!r} and {other!r}"
            )


def joined(net: Any, law: Any, event: Any) -> Any:
    """The one network that a question is about; `net` itself if that is one network already.

    Several networks by name share their input, or have one each, as the number of the law's inputs says. One network
    and a law of twice as many inputs is a pair where the event speaks of x' or y'.
    """
    relation = getattr(event, "relation", None)
    if relation is not None:
        check_free(relation, law)
        if isinstance(net, Network) and (net.n_inputs, net.n_outputs) == (event.n_inputs, event.n_outputs):
            return net  # joined already, or the only one
        return join_declared(relation, net)
    if isinstance(net, Mapping):
        check_law(law)
        sizes = [check_network(one, f"network {name!r}").n_inputs for name, one in net.items()]
        if sizes and law.n == sizes[0] and len(set(sizes)) == 1:
            return stack(net)
        if law.n == sum(sizes):
            return parallel(net)
        raise InputError(
            f"law has {law.n} inputs; the networks take {', '.join(map(str, sizes))}: give a law of the input they "
            f"share, or one of all {sum(sizes)} inputs, one network after the other"
        )
    if (
        isinstance(net, Network)
        and not net.parts
        and isinstance(event, str)
        and "'" in event
        and isinstance(law, Law)
        and law.n == 2 * net.n_inputs
    ):
        return pair(net)
    return net


def check_free(relation: Relation, law: Any) -> None:
    """Refuse a law that is not one of the inputs that are left."""
    n = len(relation.free)
    if isinstance(law, Law) and law.n != n:
        shown = ", ".join(relation.free[:8]) + (", ..." if n > 8 else "")
        raise InputError(f"law has {law.n} inputs; equations of the property leave {n}: {shown}")


def _same(net: Network, other: Network) -> bool:
    return net.widths == other.widths and all(
        a.units == b.units and np.array_equal(a.dense(), b.dense()) and np.array_equal(a.bias, b.bias)
        for a, b in zip(net.layers, other.layers, strict=True)
    )
