"""One run of any model with named places that are read and changed on the way: modules, units of modules, heads."""

from __future__ import annotations

import copy
import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reluscope._check import describe, text
from reluscope._extras import require
from reluscope.errors import InputError, InputTypeError, UnsupportedError
from reluscope.lens.models import Model, OnnxModel, TorchModel, evaluation, first_tensor

_HEAD = re.compile(r"(?:head )?([0-9]{1,4})\.([0-9]{1,4})")
_UNITS = re.compile(r"(?P<name>.+)\[(?P<first>[0-9]{1,9})(?::(?P<last>[0-9]{1,9}))?\]")

Edit = Callable[[int, Any], Any]
"""From the number of a call of a place and its value to what is used instead."""


@dataclass(frozen=True, slots=True)
class Part:
    """A head (`layer` and `head`), a module, or units `first` to `last` - 1 of a module's output."""

    label: str
    module: str = ""
    units: slice | None = None
    layer: int = -1
    head: int = -1

    @property
    def is_head(self) -> bool:
        """Whether it is a head, else it is (units of) a module."""
        return self.layer >= 0

    def where(self, value: Any, position: int | None = None) -> tuple[Any, ...]:
        """The entries of a place's value that belong to this part, at one position or at all."""
        at: list[Any] = [slice(None)] * value.ndim
        if self.is_head:
            at[1], along = self.head, 2
        else:
            along = 1
            if self.units is not None:
                at[1 if value.ndim == 4 else -1] = self.units
        if position is not None:
            at[along] = position
        return tuple(at)

    def put(self, value: Any, new: Any, position: int | None = None) -> Any:
        """`value` with this part's entries from `new` (a tensor of that shape, or a number)."""
        out, at = value.clone(), self.where(value, position)
        out[at] = new[at] if hasattr(new, "ndim") and new.ndim == value.ndim else new
        return out


@dataclass(slots=True)
class Run:
    """What one run gave: the output, values of modules and head outputs, each call of each place as it was before any
    edit."""

    output: Any
    values: dict[str, list[Any]] = field(default_factory=dict)
    heads: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def of(self, part: Part) -> list[Any]:
        """Values of the place that a part belongs to, one for each call."""
        return [self.heads[part.layer]] if part.is_head else self.values[part.module]


class Probe:
    """Any model, run with places read and changed: a torch module, or what `as_model` returns."""

    def __init__(self, model: Any) -> None:
        self.torch = require("torch", "torch")
        self.images: Model | None = model if isinstance(model, Model) else None
        self.onnx = model if isinstance(model, OnnxModel) else None
        if isinstance(model, TorchModel):
            self.module: Any = model.module
            self.images = model if model.takes_images else None
        elif self.onnx is not None:
            self.module = None
        elif isinstance(model, self.torch.nn.Module):
            self.module = model
        else:
            raise InputTypeError(f"model must be a torch module or a lens model (see as_model), got {describe(model)}")
        self._counts: list[int] | None = None
        self.label = model.label if isinstance(model, Model) else type(model).__name__
        self.modules: dict[str, Any] = (
            {layer.name: layer.kind for layer in self.onnx.layers}
            if self.onnx is not None
            else dict(self.module.named_modules())
        )

    # -- inputs --

    def inputs(self, given: Any, name: str = "inputs") -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments of one run: a tensor or array, a tuple of these, or a mapping by name."""
        if self.images is not None and not isinstance(given, (tuple, Mapping)):
            if isinstance(given, self.torch.Tensor):
                return (given,), {}
            return (self.torch.from_numpy(self.images.images(given)).to(self.dtype),), {}
        if isinstance(given, Mapping):
            if not given or not all(isinstance(k, str) for k in given):
                raise InputError(f"{name} must name the arguments of the model, got {describe(given)}")
            return (), {k: self._tensor(v, f"{name}[{k!r}]") for k, v in given.items()}
        if isinstance(given, tuple):
            if not given:
                raise InputError(f"{name} must hold at least one tensor")
            return tuple(self._tensor(v, name) for v in given), {}
        return (self._tensor(given, name),), {}

    @property
    def dtype(self) -> Any:
        """Type of the model's weights."""
        if self.module is None:
            return self.torch.float32
        kinds = (p.dtype for p in self.module.parameters() if p.is_floating_point())
        return next(kinds, self.torch.float32)

    def _tensor(self, value: Any, name: str) -> Any:
        if isinstance(value, self.torch.Tensor) or value is None or isinstance(value, (bool, str)):
            return value
        try:
            array = np.asarray(value)
            if array.dtype.kind not in "iubf":
                raise TypeError
        except (TypeError, ValueError) as error:
            raise InputTypeError(f"{name} must be a tensor or an array of numbers, got {describe(value)}") from error
        tensor = self.torch.from_numpy(np.array(array))
        return (
            tensor.to(self.dtype)
            if tensor.is_floating_point()
            else tensor.long()
            if array.dtype.kind in "iu"
            else tensor
        )

    # -- running --

    def run(
        self,
        inputs: tuple[tuple[Any, ...], dict[str, Any]],
        *,
        keep: Iterable[str] = (),
        edits: Mapping[str, Edit] | None = None,
        heads: bool = False,
        head_edit: Edit | None = None,
        gradients: bool = False,
    ) -> Run:
        """Run once. `keep` names modules whose values are kept, `edits` changes them, `head_edit` head outputs."""
        edits = dict(edits or {})
        places = dict.fromkeys((*keep, *edits))
        run = Run(None)
        with nullcontext() if gradients else self.torch.no_grad():
            if self.onnx is not None:
                if heads or head_edit is not None:
                    raise UnsupportedError(
                        f"heads of {self.label}: those of an ONNX file can be removed by ablate_heads"
                    )
                return self._run_onnx(inputs, places, edits, run)
            return self._run_module(inputs, places, edits, heads, head_edit, run)

    def _run_onnx(self, inputs: Any, places: Any, edits: dict[str, Edit], run: Run) -> Run:
        assert self.onnx is not None

        def look(name: str) -> Callable[[Any], Any]:
            def edit(value: Any) -> Any:
                run.values.setdefault(name, []).append(value)
                return edits[name](0, value) if name in edits else value

            return edit

        found = self.onnx.trace(inputs[0][0], ["output"], edits={name: look(name) for name in places})
        run.output = found["output"]
        return run

    def _run_module(self, inputs: Any, places: Any, edits: Any, heads: bool, head_edit: Any, run: Run) -> Run:
        from reluscope.lens._watch import Watch

        handles = []

        def look(name: str) -> Callable[[Any, Any, Any], Any]:
            def hook(module: Any, taken: Any, value: Any) -> Any:
                mine = first_tensor(value)
                calls = run.values.setdefault(name, [])
                calls.append(mine.clone())  # a ReLU in place may follow
                return _with_first(value, edits[name](len(calls) - 1, mine)) if name in edits else None

            return hook

        watch = Watch(self.module, edit=head_edit, weights=False) if heads or head_edit is not None else None
        try:
            for name in places:
                handles.append(self.modules[name].register_forward_hook(look(name)))  # noqa: PERF401 (undone below)
            with evaluation(self.module), nullcontext() if watch is None else watch:
                positional, named = inputs
                if self.images is not None and len(positional) == 1 and not named:
                    positional = (self.images.preparation.apply(positional[0]),)
                run.output = first_tensor(self.module(*positional, **named))
        finally:
            for handle in handles:
                handle.remove()
        if watch is not None:
            run.heads, run.names = [c.outputs for c in watch.calls], [c.name for c in watch.calls]
        missing = [name for name in places if name not in run.values]
        if missing:
            raise InputError(f"modules {missing} of {self.label} are never run with these inputs")
        return run

    # -- parts --

    def parts(self, wanted: Any, inputs: Any, name: str = "parts") -> list[Part]:
        """Parts from "heads", "blocks", or names of heads ("2.3"), modules, units ("mlp.fc1[7]"); names may be patterns
        such as "*.mlp"."""
        if wanted == "heads":
            counts = self._head_counts(inputs)
            return [Part(f"{i}.{h}", layer=i, head=h) for i, count in enumerate(counts) for h in range(count)]
        if wanted == "blocks":
            return [Part(b, module=b) for b in self.blocks()]
        listed = [wanted] if isinstance(wanted, str) else wanted
        if not isinstance(listed, Sequence) or not listed:
            raise InputTypeError(f'{name} must be "heads", "blocks" or names of parts, got {describe(wanted)}')
        out = []
        for label in listed:
            out += self._named(text(label, f"a name in {name}"), inputs)
        return list({part.label: part for part in out}.values())

    def _head_counts(self, inputs: Any) -> list[int]:
        if self._counts is None:
            self._counts = [z.shape[1] for z in self.head_outputs(inputs).heads]
        return self._counts

    def head_outputs(self, inputs: Any) -> Run:
        """A run with all head outputs; an error says what is missing."""
        run = self.run(inputs, heads=True)
        if not run.heads:
            raise InputError(
                f"{self.label} ran no attention that can be seen: no MultiheadAttention, no "
                "scaled_dot_product_attention, no softmax over (batch, heads, queries, keys)"
            )
        hidden = [n for n, z in zip(run.names, run.heads, strict=True) if z is None]
        if hidden:
            raise UnsupportedError(
                f"the heads of {', '.join(hidden)} in {self.label} cannot be changed: their weights are not multiplied "
                "with values by matmul, einsum or scaled_dot_product_attention"
            )
        return run

    def _named(self, label: str, inputs: Any) -> list[Part]:
        matched = _HEAD.fullmatch(label)
        if matched and (label.startswith("head ") or label not in self.modules):
            layer, head = int(matched[1]), int(matched[2])
            counts = self._head_counts(inputs)
            if layer >= len(counts) or head >= counts[layer]:
                last = f"{len(counts) - 1}.{counts[-1] - 1}"
                raise InputError(f"{self.label} has no head {label!r}; heads are 0.0 to {last}")
            return [Part(f"{layer}.{head}", layer=layer, head=head)]
        if label in self.modules and label:
            return [Part(label, module=label)]
        units = _UNITS.fullmatch(label)
        if units and units["name"] in self.modules:
            first = int(units["first"])
            stop = first + 1 if units["last"] is None else int(units["last"])
            self._check_units(units["name"], first, stop, inputs)
            return [Part(label, module=units["name"], units=slice(first, stop))]
        matches = [n for n in self.modules if n and fnmatch.fnmatchcase(n, label)]
        if matches:
            return [Part(n, module=n) for n in matches]
        close = difflib.get_close_matches(label, [n for n in self.modules if n], 3)
        hint = f"; close names are {', '.join(close)}" if close else f"; it has {len(self.modules) - 1} modules"
        raise InputError(f"{self.label} has no part {label!r}{hint}. Heads are called '2.3', units 'module[7]'")

    def _check_units(self, module: str, first: int, last: int, inputs: Any) -> None:
        value = self.run(inputs, keep=[module]).values[module][0]
        size = value.shape[1 if value.ndim == 4 else -1]
        if not first < last <= size:
            raise InputError(f"{module} has units 0 to {size - 1}, got [{first}:{last}]")

    def blocks(self) -> list[str]:
        """Names of the model's blocks: the modules in lists of equal modules, the outermost such lists."""
        if self.onnx is not None:
            raise InputError(f'{self.label} is an ONNX file: name its layers instead of "blocks"')
        found: list[str] = []
        for name, part in self.modules.items():
            if any(name.startswith(f"{b}.") for b in found):
                continue
            children = list(part.named_children())
            kinds = {type(child) for _, child in children}
            listed = isinstance(part, (self.torch.nn.ModuleList, self.torch.nn.Sequential))
            if listed and len(children) > 1 and len(kinds) == 1 and any(True for _ in children[0][1].children()):
                found += [f"{name}.{child}" if name else child for child, _ in children]
        if not found:
            raise InputError(f"{self.label} has no list of equal blocks; name the modules")
        return found


def _with_first(value: Any, new: Any) -> Any:
    """What a module returns, with its first tensor replaced."""
    if isinstance(value, dict):
        out = copy.copy(value)
        key = next(iter(value))
        out[key] = _with_first(value[key], new)
        return out
    if isinstance(value, (tuple, list)):
        rest = [_with_first(value[0], new), *value[1:]]
        return rest if isinstance(value, list) else type(value)(*rest) if hasattr(value, "_fields") else tuple(rest)
    return new
