"""Which inputs an output is due to: the exact local map, integrated gradients, occlusion, GradCAM.

Exact local maps hold for piecewise-affine models and are refused for others. The other three are baselines that work
for any model; integrated gradients come with two numbers that say how far the integral is from being done.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import choice, describe, integer, real
from reluscope._extras import require
from reluscope._tables import Tabular
from reluscope.errors import InputError, UnsupportedError
from reluscope.lens._affine import curved_operations
from reluscope.lens._probe import Probe
from reluscope.lens.models import TorchModel

__all__ = ["Attribution", "attribute"]

Array = npt.NDArray[Any]
_METHODS = ("exact", "integrated_gradients", "occlusion", "grad_cam")


@dataclass(frozen=True, slots=True, repr=False)
class Attribution(Tabular):
    """What each input number (or position, or pixel) adds to one output, for one element of the batch.

    Attributes
    ----------
    method : str
    values : array
        Of the shape of what was attributed to: the input, or the values of the layer that was named. Occlusion gives
        one number per window, GradCAM one per position.
    output, baseline_output : float
        The target at the input and at the baseline; for "exact" the latter is the offset of the local map.
    gap : float
        `|sum(values) - (output - baseline_output)|`: zero but for rounding where attributions are complete. NaN for
        occlusion and GradCAM, which are not meant to add up.
    error : float
        For integrated gradients the largest change of any value between the last two numbers of steps: an estimate, not
        a bound. For "exact" the relative miss of the map next to the input (rounding). NaN for the others.
    steps : int
        Points on the way from the baseline, for integrated gradients.
    guarantee : str
        "exact" or "estimate".
    """

    method: str
    values: Array
    output: float
    baseline_output: float
    gap: float
    error: float
    steps: int
    guarantee: str

    def by_position(self) -> npt.NDArray[np.float64]:
        """Sums over the last axis: one number per token where values are (positions, width)."""
        return np.asarray(self.values.sum(-1), np.float64)

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns of a table: the place of each value, and the value."""
        places = [", ".join(map(str, at)) for at in np.ndindex(self.values.shape)]
        return {"place": places, "value": np.asarray(self.values, float).ravel().tolist()}

    def __repr__(self) -> str:
        said = "" if np.isnan(self.gap) else f", completeness gap {self.gap:.1e}"
        if self.method == "integrated_gradients":
            said += f", error about {self.error:.1e} a value after {self.steps} steps"
        shape = "x".join(map(str, self.values.shape))
        return f"<Attribution by {self.method}, {self.guarantee}, {shape}, output {self.output:.4g}{said}>"


def attribute(
    model: Any,
    inputs: Any,
    target: Any,
    method: str = "integrated_gradients",
    *,
    layer: str | None = None,
    baseline: Any = None,
    relative: float = 1e-3,
    steps: int = 1024,
    window: Sequence[int] | int = 1,
    stride: Sequence[int] | int | None = None,
    element: int = 0,
) -> Attribution:
    """Attribute one output of any model to its inputs, or to the values of one of its layers.

    Parameters
    ----------
    model : torch module, or what `as_model` returns
    inputs : as in `ablate`
        The first floating-point tensor is attributed to. For tokens name their embedding as `layer`.
    target : int, tuple of int, or callable
        Which output: an index into one element's output (a class; for a language model (position, token)), or a
        function from the output tensor to a number.
    method : {"integrated_gradients", "exact", "occlusion", "grad_cam"}
        "exact": rows of the local map times the input less the baseline, for piecewise-affine models only.
    layer : str, optional
        A module whose output is attributed to, in place of the input; "grad_cam" needs it (a convolution, a block).
    baseline : number or array, optional
        What counts as no input; 0 by default. For occlusion, what windows are filled with.
    relative : float
        Integrated gradients double their steps until no value changes by more than this share of the largest.
    steps : int
        Most steps; when they are spent, `error` says what was reached.
    window, stride : int or sequence of int
        For occlusion: size and distance of windows along the axes after the batch (later axes are taken whole).
    element : int
        Which element of the batch; the others only go along.

    Returns
    -------
    Attribution

    Raises
    ------
    UnsupportedError
        For "exact", if an operation on the way is not piecewise affine; it is named.

    Notes
    -----
    Integrated gradients: `(x - x0) * mean over t of gradient f(x0 + t (x - x0))` at the midpoints of equal steps. Their
    sum is `f(x) - f(x0)` when the integral is done; `gap` is what is missing. Cost: one gradient per step. Occlusion:
    one run per window, `f(x)` minus f with the window filled. "exact" computes in float64, on a copy of the model.
    """
    method = choice(method, "method", _METHODS)
    torch = require("torch", "torch")
    probe = Probe(_in_double(torch, model) if method == "exact" else model)
    given = probe.inputs(inputs)
    if method == "exact":
        given = tuple(_as_double(v) for v in given[0]), {k: _as_double(v) for k, v in given[1].items()}
    place = _Place(probe, given, layer, target, integer(element, "element", low=0))
    relative = real(relative, "relative", low=0.0, open_=True)
    steps = integer(steps, "steps", low=2)
    if method == "grad_cam":
        return _grad_cam(torch, place)
    start = place.baseline(baseline)
    if method == "occlusion":
        return _occlusion(place, start, window, stride)
    if method == "exact":
        return _exact(torch, place, start)
    return _integrated(torch, place, start, relative, steps)


class _Place:
    """What is attributed to: an input tensor or a layer's output, and the target as a function of it."""

    def __init__(self, probe: Probe, given: Any, layer: str | None, target: Any, element: int) -> None:
        self.probe, self.given, self.layer, self.target, self.element = probe, given, layer, target, element
        self.slot: Any = None
        if layer is not None:
            (part,) = probe.parts([layer], given, "layer")
            if part.is_head or part.units is not None:
                raise InputError(f"layer must name a module, got {layer!r}")
            self.layer = part.module
            self.value = probe.run(given, keep=[part.module]).values[part.module][0]
        else:
            positional, named = given
            places = [*enumerate(positional), *named.items()]
            found = [k for k, v in places if isinstance(v, probe.torch.Tensor) and v.is_floating_point()]
            if not found:
                raise InputError(
                    f"{probe.label} is given whole numbers (tokens): there is nothing between two of them. Name their "
                    'embedding, for instance layer="transformer.wte"'
                )
            self.slot = found[0]
            self.value = (dict(places))[found[0]]
        self.value = self.value.detach().clone()
        if element >= len(self.value):
            raise InputError(f"element must be below {len(self.value)}, the size of the batch, got {element}")

    def run(self, value: Any, gradients: bool = False) -> Any:
        """The target, a scalar tensor, with `value` in the place."""
        if self.layer is not None:
            run = self.probe.run(
                self.given, edits={self.layer: lambda k, v: value if k == 0 else v}, gradients=gradients
            )
        else:
            positional, named = self.given
            positional = tuple(value if i == self.slot else v for i, v in enumerate(positional))
            run = self.probe.run(
                (positional, {k: value if k == self.slot else v for k, v in named.items()}), gradients=gradients
            )
        output = run.output
        if callable(self.target):
            out = self.target(output)
        else:
            index = self.target if isinstance(self.target, tuple) else (self.target,)
            one = output[self.element]
            if len(index) != one.ndim or not all(isinstance(i, (int, np.integer)) for i in index):
                raise InputError(
                    f"target must be {one.ndim} whole numbers into an output of shape {tuple(one.shape)}, or a "
                    f"function, got {describe(self.target)}"
                )
            try:
                out = one[index]
            except IndexError as error:
                raise InputError(f"target {index} is not in an output of shape {tuple(one.shape)}") from error
        out = self.probe.torch.as_tensor(out)
        if out.numel() != 1:
            raise InputError(f"target must give one number, got shape {tuple(out.shape)}")
        return out.reshape(())

    def gradient(self, value: Any) -> tuple[float, Any]:
        torch = self.probe.torch
        point = value.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            out = self.run(point, gradients=True)
            if not out.requires_grad:
                raise InputError(f"the target does not depend on {self.layer or 'the input'}")
            (slope,) = torch.autograd.grad(out, point, allow_unused=True)
        return float(out.detach()), torch.zeros_like(value) if slope is None else slope.detach()

    def baseline(self, given: Any) -> Any:
        """The baseline as a tensor like the value; other elements of the batch stay as they are."""
        torch = self.probe.torch
        out = self.value.clone()
        if given is None:
            out[self.element] = 0
            return out
        try:
            wanted = torch.as_tensor(given, dtype=self.value.dtype)
            out[self.element] = wanted if wanted.ndim < self.value.ndim else wanted[0]
        except (TypeError, ValueError, RuntimeError) as error:
            shape = tuple(self.value.shape[1:])
            raise InputError(f"baseline must be a number or of shape {shape}, got {describe(given)}") from error
        return out

    def of_element(self, value: Any) -> Array:
        return np.asarray(value[self.element].detach().double().cpu().numpy())


def _integrated(torch: Any, place: _Place, start: Any, relative: float, most: int) -> Attribution:
    way = place.value - start
    with torch.no_grad():
        ends = float(place.run(place.value)), float(place.run(start))
    count, before, error = 4, None, float("nan")
    count = min(count, most)
    while True:
        total = torch.zeros_like(place.value, dtype=torch.float64)
        for k in range(count):
            total += place.gradient(start + (k + 0.5) / count * way)[1]
        values = place.of_element(way.double() * total / count)
        if before is not None:
            error = float(np.abs(values - before).max())
            if error <= relative * float(np.abs(values).max()):
                break
        if 2 * count > most:
            break
        before, count = values, 2 * count
    gap = abs(float(values.sum()) - (ends[0] - ends[1]))
    return Attribution("integrated_gradients", values, ends[0], ends[1], gap, error, count, "estimate")


def _in_double(torch: Any, model: Any) -> Any:
    """The model in float64: a copy, unless it is (an ONNX graph follows the type of its input)."""
    module = model.module if isinstance(model, TorchModel) else model
    if not isinstance(module, torch.nn.Module) or all(
        p.dtype == torch.float64 for p in module.parameters() if p.is_floating_point()
    ):
        return model
    twin = copy.deepcopy(module).double()
    if not isinstance(model, TorchModel):
        return twin
    same = copy.copy(model)
    same.module = twin
    return same


def _as_double(value: Any) -> Any:
    return value.double() if hasattr(value, "is_floating_point") and value.is_floating_point() else value


def _exact(torch: Any, place: _Place, start: Any) -> Attribution:
    point = place.value.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        out = place.run(point, gradients=True)
        if not out.requires_grad:
            raise InputError(f"the target does not depend on {place.layer or 'the input'}")
        curved, unknown = curved_operations(out, point)
        if curved or unknown:
            raise UnsupportedError(
                f"{place.probe.label} is not affine around this input: on the way is {', '.join([*curved, *unknown])}, "
                'which is not known to be piecewise affine; method="integrated_gradients" works for any model'
            )
        (slope,) = torch.autograd.grad(out, point)
    here = float(out.detach())
    values = place.of_element(slope * (place.value - start))
    offset = here - float(values.sum())
    # The map must predict the model next to the input: the smallest of several steps, since a long one may leave the
    # region and a short one drowns in rounding.
    ray = place.value - start
    change = float(values.sum())
    misses = []
    for length in (1e-4, 1e-5, 1e-6, 1e-7):
        there = float(place.run(place.value + length * ray).detach())
        misses.append(
            abs(there - here - length * change) / max(length * abs(change), 1e-9 * length * abs(here), 1e-300)
        )
    error = min(misses)
    if error > 1e-3:
        raise UnsupportedError(
            f"{place.probe.label} could not be confirmed to be affine around this input: the map misses its change by "
            f"{error:.1e} of it"
        )
    return Attribution("exact", values, here, offset, abs(float(values.sum()) + offset - here), error, 0, "exact")


def _occlusion(place: _Place, start: Any, window: Any, stride: Any) -> Attribution:
    shape = place.value.shape[1:]
    size = _sides(window, "window", shape)
    step = size if stride is None else _sides(stride, "stride", shape)
    axes = shape[: len(size)]
    if any(w > n for w, n in zip(size, axes, strict=True)):
        raise InputError(f"window {size} is larger than {tuple(axes)}")
    counts = [-(-(n - w) // s) + 1 for n, w, s in zip(axes, size, step, strict=True)]
    here = float(place.run(place.value).detach())
    values = np.zeros(counts)
    for at in np.ndindex(*counts):
        cut = tuple(slice(i * s, i * s + w) for i, s, w in zip(at, step, size, strict=True))
        changed = place.value.clone()
        changed[(place.element, *cut)] = start[(place.element, *cut)]
        values[at] = here - float(place.run(changed).detach())
    blank = float(place.run(start).detach())
    return Attribution("occlusion", values, here, blank, float("nan"), float("nan"), 0, "estimate")


def _grad_cam(torch: Any, place: _Place) -> Attribution:
    if place.layer is None:
        raise InputError('method="grad_cam" needs layer=: a convolution, or a block of a transformer')
    out, slope = place.gradient(place.value)
    value = place.value[place.element]
    slope = slope[place.element]
    if value.ndim == 3:  # channels first: weights are means over the map
        heat = torch.relu((slope.mean((1, 2), keepdim=True) * value).sum(0))
    elif value.ndim == 2:  # positions by width
        heat = torch.relu((slope.mean(0, keepdim=True) * value).sum(1))
    else:
        raise InputError(f"{place.layer} gives shape {tuple(value.shape)}; GradCAM needs maps or positions")
    values = np.asarray(heat.double().cpu().numpy())
    return Attribution("grad_cam", values, out, float("nan"), float("nan"), float("nan"), 0, "estimate")


def _sides(value: Any, name: str, shape: Any) -> tuple[int, ...]:
    listed = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    if not 0 < len(listed) <= len(shape):
        raise InputError(f"{name} must have 1 to {len(shape)} numbers, got {describe(value)}")
    return tuple(integer(n, name, low=1) for n in listed)
