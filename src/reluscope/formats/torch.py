"""Networks from PyTorch: live modules, and state dicts of plain multilayer perceptrons.

A live module is traced with `torch.fx` in evaluation mode and the trace is run on symbolic tensors, so whatever
Python code wires the layers together is fine as long as it does not branch on values. Weights are read exactly
and the network is float64. The result is compared with the module on two random inputs before it is returned.

Files are read with `torch.load(weights_only=True)`, which runs no code, and only with torch 2.10 or newer, where
the known holes of that mode are closed.
"""

from __future__ import annotations

import io
import pickle  # only for the name of its error: nothing is unpickled here
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from reluscope._files import as_path, looks_like, read_bytes
from reluscope._lazy import late
from reluscope._npy import quoted
from reluscope.errors import InputError, MissingExtraError, UnsupportedError
from reluscope.formats._rules import TORCH
from reluscope.formats._torch_ops import MODULES, Translation, first_line, kind_of, to_numpy, without_dimension
from reluscope.formats._torch_pickle import check_pickles
from reluscope.formats.arrays import network_from_tensors
from reluscope.limits import DEFAULT_LIMITS, Limits, started
from reluscope.network import Network

__all__ = ["load_torch", "load_torch_file"]

_OLDEST_FOR_FILES = (2, 10)
_AGREEMENT = 1e-2
"""Largest difference from the module's own float32 output, relative to its size, that counts as rounding."""


def load_torch(module: Any, *, limits: Limits = DEFAULT_LIMITS, input_shape: Sequence[int] | None = None) -> Network:
    """The network that a live `torch.nn.Module` computes in evaluation mode.

    `input_shape` is the shape of one input without the batch axis; it may be left out when the module begins with
    a `Linear` (or `BatchNorm1d`) layer. A final Softmax, LogSoftmax or Sigmoid is cut off with a warning: the
    outputs are then logits. The module is not changed.
    """
    torch, limits = _torch(), started(limits)
    flags = [(m, m.training) for m in module.modules()]
    try:
        module.eval()
        try:
            # A module of torch's own is traced as a whole only when something holds it.
            kind = type(module).__name__
            alone = kind in MODULES or without_dimension(kind) in MODULES or kind in TORCH
            traced = _traced(torch, torch.nn.Sequential(module) if alone else module)
        except Exception as error:
            raise UnsupportedError(
                f"{type(module).__name__} cannot be traced ({first_line(error)}); its forward may branch on values. "
                "Export it with torch.onnx.export and load the ONNX file"
            ) from error
        limits.check("nodes", len(traced.graph.nodes), type(module).__name__)
        shape = _input_shape(traced, input_shape)
        net, cut = Translation(torch, traced, limits).run(shape, type(module).__name__)
        if not cut:
            _compare(torch, module, net, shape)
    finally:
        for m, training in flags:
            m.training = training
    return net


def load_torch_file(
    path: str | PathLike[str],
    *,
    limits: Limits = DEFAULT_LIMITS,
    activation: Any = None,
    order: Sequence[str] | None = None,
) -> Network:
    """A multilayer perceptron from the state dict in a `.pt` or `.pth` file.

    Layers are taken in the order of the file (or `order`), with `activation` (default "relu") between them. Other
    architectures cannot be read off a state dict: build the module, load the state dict into it and pass it.
    """
    name, limits = as_path(path).name, started(limits)
    data = read_bytes(path, limits=limits)
    torch = _torch()
    version = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])
    if version < _OLDEST_FOR_FILES:
        raise UnsupportedError(
            f"reading {name} needs torch 2.10 or newer, this is {torch.__version__}: older ones can be made to run "
            "code by a file. Upgrade, use safetensors, or pass the live module"
        )
    if not data.startswith((b"PK", b"\x80")):
        raise InputError(f"{name} is not a torch file{looks_like(data)}")
    check_pickles(data, limits, name)
    try:
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsupportedError(
            f"{name} holds more than tensors (a whole pickled module?), and loading that would run its code; save "
            "model.state_dict() instead, or load it yourself and pass the live module"
        ) from error
    except Exception as error:
        raise InputError(f"{name} is damaged or not a torch file: {first_line(error)}") from error
    return network_from_tensors(
        _state_dict(torch, found, limits, name),
        what=name,
        limits=limits,
        activation=activation,
        order=order,
        ordered=True,
    )


def _state_dict(torch: Any, found: Any, limits: Limits, name: str) -> dict[str, Any]:
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    good = isinstance(found, dict) and found and all(isinstance(k, str) for k in found)
    if not good or not all(isinstance(v, torch.Tensor) for v in found.values()):
        raise UnsupportedError(f"{name} does not hold a state dict (names and tensors); save model.state_dict()")
    limits.check("tensors", len(found), name)
    # An expanded tensor may claim any size over one stored number, so count before copying.
    limits.check("elements", sum(int(v.numel()) for v in found.values()), name)
    return {k: _stored_numbers(torch, v, f"{quoted(k)} in {name}", limits) for k, v in found.items()}


def _stored_numbers(torch: Any, tensor: Any, what: str, limits: Limits) -> Any:
    """The numbers of a tensor from a file, which must really be there, one by one."""
    limits.check_time(what)
    if tensor.device.type == "meta":
        raise InputError(f"{what} has no data (it is on the meta device); save it from a model with weights")
    try:
        limits.check("elements", max(tensor.shape, default=0), f"{what}, along one axis,")
        dense = tensor.layout == torch.strided
        if dense and tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise InputError(f"{what} claims {tensor.numel():,} numbers but stores fewer; save it after .contiguous()")
        return to_numpy(torch, tensor, what)
    except InputError:
        raise
    except Exception as error:  # torch has errors of many kinds for layouts and types it cannot convert
        raise InputError(f"{what} cannot be read as numbers: {first_line(error)}") from error


def _traced(torch: Any, module: Any) -> Any:
    """The graph of a module, in which modules with a rule of the user's stay whole."""

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: Any, qualified_name: str) -> bool:
            return type(m).__name__ in TORCH or super().is_leaf_module(m, qualified_name)

    tracer = Tracer()
    graph = tracer.trace(module)
    return torch.fx.GraphModule(tracer.root, graph)


def _torch() -> Any:
    try:
        torch = late("torch")
        late("torch.fx")
    except ImportError as error:
        raise MissingExtraError("torch models need PyTorch: pip install 'reluscope[torch]'") from error
    return torch


def _input_shape(traced: Any, given: Sequence[int] | None) -> tuple[int, ...]:
    if given is not None:
        try:
            shape = tuple(int(n) for n in given)
        except (TypeError, ValueError) as error:
            raise InputError(f"input_shape must be whole numbers such as (1, 28, 28), got {given!r}") from error
        if not shape or any(n < 1 for n in shape):
            raise InputError(f"input_shape must be positive and leave the batch axis out, got {shape}")
        return shape
    modules = dict(traced.named_modules())
    for node in traced.graph.nodes:
        if node.op != "call_module":
            continue
        kind = kind_of(modules[node.target])
        if kind == "Linear":
            return (int(modules[node.target].in_features),)
        if kind == "BatchNorm1d":
            return (int(modules[node.target].num_features),)
        if kind not in _WAITING:
            break
    raise InputError("input_shape is needed: the shape of one input without the batch axis, such as (1, 28, 28)")


_WAITING = frozenset(("Flatten", "Identity", "Dropout", "ReLU", "Hardtanh", "LeakyReLU"))
"""Modules before the first `Linear` that leave the number of features as it is."""


def _compare(torch: Any, module: Any, net: Network, shape: tuple[int, ...]) -> None:
    """Refuse a translation that differs from the module: tracing loses what in-place operations do to others."""
    numbers = next((p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), None)
    dtype, device = (torch.float32, "cpu") if numbers is None else (numbers.dtype, numbers.device)
    rows = np.random.default_rng(0).normal(size=(2, 1, *shape))
    for row in rows:
        with torch.no_grad():
            x = torch.as_tensor(row).to(device=device, dtype=dtype)
            try:
                there = module(x.clone())
            except Exception as error:
                raise InputError(
                    f"{net.name} itself fails on an input of shape {(1, *shape)}: {first_line(error)}"
                ) from error
            if isinstance(there, (tuple, list)):
                there = there[0]
            there = there.detach().to("cpu", torch.float64).numpy().ravel()
            here = net(x.to("cpu", torch.float64).numpy().reshape(1, -1))[0]
        off = 0.0 if net.approximation is None else net.approximation
        rounding = _AGREEMENT * max(1.0, np.abs(there).max())
        if there.shape != here.shape or (np.abs(there - here) > rounding + off).any():
            raise UnsupportedError(
                f"{net.name} was traced, but the result differs from the module itself: it may change tensors in place "
                "or keep state. Export it with torch.onnx.export and load the ONNX file"
            )
