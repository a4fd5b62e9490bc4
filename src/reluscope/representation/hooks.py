"""Activations of any torch module, by forward hooks.

A network that is not piecewise affine, or that cannot be traced, can still be looked at layer by layer: hooks on its
submodules catch what they return. Nothing in the module is changed; hooks are removed and training flags restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from reluscope._check import FloatArray, describe, real_array
from reluscope._lazy import late
from reluscope.errors import InputError

ACTIVATIONS = (
    *("ReLU", "LeakyReLU", "PReLU", "ReLU6", "RReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Hardtanh"),
    *("Hardsigmoid", "Hardswish", "Softplus", "Softsign", "Tanh", "Sigmoid", "Threshold"),
)
"""Classes of torch.nn whose outputs are looked at when no modules are named."""

_BATCH = 256


def is_module(model: Any) -> bool:
    """Whether `model` is a live torch module (torch itself is not imported)."""
    return hasattr(model, "register_forward_hook") and hasattr(model, "named_modules")


def caught(module: Any, X: Any, names: Sequence[str] | None = None) -> list[tuple[str, str, FloatArray]]:
    """`(name, class, values)` of the chosen submodules in the order of the forward pass; values (n, ...).

    `names` are names as in `module.named_modules()`; by default every activation module, or every module without
    children when there is none. A module that is called several times appears once per call.
    """
    chosen = _chosen(module, names)
    rows = real_array(X, "X")
    if rows.ndim < 2:
        raise InputError(f"X must have a row per input, got shape {rows.shape}")
    calls: list[tuple[str, str, list[FloatArray]]] = []
    for start in range(0, len(rows), _BATCH):
        for k, (name, kind, values) in enumerate(_one_batch(module, chosen, rows[start : start + _BATCH])):
            if not start:
                calls.append((name, kind, []))
            calls[k][2].append(values)
    return [(name, kind, np.concatenate(parts)) for name, kind, parts in calls]


def _chosen(module: Any, names: Sequence[str] | None) -> dict[str, Any]:
    known = dict(module.named_modules())
    if names is not None:
        missing = [name for name in names if name not in known]
        if missing:
            some = ", ".join(repr(n) for n in list(known)[1:9])
            raise InputError(f"modules must be names from named_modules(), got {missing[0]!r}; there are {some}, ...")
        return {name: known[name] for name in names}
    found = {name: m for name, m in known.items() if type(m).__name__ in ACTIVATIONS}
    return found or {name: m for name, m in known.items() if not list(m.children())}


def _one_batch(module: Any, chosen: dict[str, Any], rows: FloatArray) -> Iterator[tuple[str, str, FloatArray]]:
    torch = late("torch")

    kept: list[tuple[str, str, FloatArray]] = []

    def keeper(name: str, kind: str) -> Any:
        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            value = output[0] if isinstance(output, (tuple, list)) else output
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim >= 2:
                kept.append((name, kind, value.detach().to("cpu", torch.float64).numpy().copy()))

        return keep

    parameter = next(iter(module.parameters()), None)
    like = {} if parameter is None else {"dtype": parameter.dtype, "device": parameter.device}
    with _evaluating(module), torch.no_grad():
        handles = [m.register_forward_hook(keeper(name, type(m).__name__)) for name, m in chosen.items()]
        try:
            module(torch.as_tensor(rows, **like))
        except RuntimeError as error:
            raise InputError(f"the module refused X, {describe(rows)}: {str(error).splitlines()[0]}") from error
        finally:
            for handle in handles:
                handle.remove()
    if not kept:
        raise InputError("none of the chosen modules returned a tensor; name others with modules=[...]")
    yield from kept


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    flags = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for m, training in flags:
            m.training = training
