"""One face for models of images: layers by name, activations at layers, in PyTorch or ONNX.

Images are arrays (n, height, width, channels) with values in [0, 1]; a `Preparation` turns them into what the model
was trained on. `as_model` accepts a live `torch.nn.Module`, the path of an ONNX file, or a model made earlier.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import choice, describe, integer
from reluscope._extras import require
from reluscope.errors import InputError
from reluscope.limits import DEFAULT_LIMITS, Limits

__all__ = ["Layer", "Model", "OnnxModel", "Preparation", "TorchModel", "as_model"]

Array = npt.NDArray[Any]
Edits = Mapping[str, Callable[[Any], Any]]

_SHOWN = 40
"""Layers listed in an error message."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One place in a model whose value can be looked at.

    Attributes
    ----------
    name, kind : str
    """

    name: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """`(scale * image - mean) / std`, channels reversed first if `bgr`, axes moved to `layout`.

    Parameters
    ----------
    layout : str
    scale : float
    mean, std : tuple of float
    bgr : bool
    """

    layout: str = "NCHW"
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    bgr: bool = False

    def __post_init__(self) -> None:
        choice(self.layout, "layout", ("NCHW", "NHWC", "flat"))
        if any(s <= 0 for s in self.std):
            raise InputError(f"std must be positive, got {self.std}")

    def apply(self, images: Any) -> Any:
        """Images (n, h, w, c), numpy or torch, as the model wants them.

        Parameters
        ----------
        images : (n, h, w, c) array or tensor

        Returns
        -------
        array or tensor
        """
        if self.bgr:
            images = images[..., [2, 1, 0]]
        if self != Preparation(layout=self.layout, bgr=self.bgr):
            if isinstance(images, np.ndarray):
                mean, std = np.asarray(self.mean, images.dtype), np.asarray(self.std, images.dtype)
            else:
                mean, std = images.new_tensor(self.mean), images.new_tensor(self.std)
            images = (self.scale * images - mean) / std
        if self.layout == "NCHW":
            return images.transpose(0, 3, 1, 2) if isinstance(images, np.ndarray) else images.permute(0, 3, 1, 2)
        if self.layout == "flat":
            return images.reshape(len(images), -1)
        return images


class Model(ABC):
    """A model of images whose layers have names.

    Attributes
    ----------
    layers : tuple of Layer
    image_shape : (h, w, c)
    preparation : Preparation
    label : str
    """

    layers: tuple[Layer, ...]
    image_shape: tuple[int, int, int]
    preparation: Preparation
    label: str

    @abstractmethod
    def activations(self, images: Any, layers: Sequence[str], *, batch: int = 64) -> dict[str, Array]:
        """Values at the named layers for images (n, h, w, c), as arrays with n in front; "output" is the last.

        Parameters
        ----------
        images : (n, h, w, c)
        layers : sequence of str
        batch : int
            Images at a time.

        Returns
        -------
        dict of arrays, by layer
        """

    @abstractmethod
    def trace(self, images: Any, layers: Sequence[str], *, edits: Edits | None = None) -> dict[str, Any]:
        """The same for a torch tensor of images, differentiable; `edits` replace a layer's value on the way.

        Parameters
        ----------
        images : torch tensor
        layers : sequence of str
        edits : dict of functions by layer, optional

        Returns
        -------
        dict of tensors, by layer
        """

    def find(self, name: str) -> Layer:
        """The layer of that name, or an error that lists what there is.

        Parameters
        ----------
        name : str

        Returns
        -------
        Layer

        Raises
        ------
        InputError
            If there is none.
        """
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise _no_such_layer(name, self.layers, self.label)

    def convolutions(self) -> tuple[str, ...]:
        """Names of the convolutions, in order."""
        return tuple(layer.name for layer in self.layers if layer.kind.lower().startswith("conv"))

    def images(self, images: Any) -> npt.NDArray[np.float32]:
        """`images` checked: float32 (n, h, w, c) of this model's shape; one image may come without n.

        Parameters
        ----------
        images : (n, h, w, c) or (h, w, c)

        Returns
        -------
        (n, h, w, c) array of float32

        Raises
        ------
        InputError
            If the shape is another.
        """
        array = np.asarray(images)
        if array.dtype == np.uint8:
            array = array.astype(np.float32) / 255
        if array.dtype.kind not in "fiub":
            raise InputError(f"images must hold real numbers, got {describe(images)}")
        array = array.astype(np.float32)
        if array.shape == self.image_shape:
            array = array[None]
        if array.ndim != 4 or array.shape[1:] != self.image_shape:
            raise InputError(
                f"images must have shape (n, {', '.join(map(str, self.image_shape))}), values in [0, 1] "
                f"(or uint8), got {describe(images)}; reluscope.lens.resize changes the size"
            )
        if not np.isfinite(array).all():
            raise InputError("images must be finite")
        return array

    def __repr__(self) -> str:
        h, w, c = self.image_shape
        return f"<{type(self).__name__} {self.label}: images {h}x{w}x{c}, {len(self.layers)} layers>"


class TorchModel(Model):
    """A live module. Layers are its sub-modules by their dotted names; hooks copy, so outputs are not changed.

    Without `image_shape` it takes whatever the module takes (tokens, embeddings, several arguments): attention,
    ablation, patching and attribution work, pictures of images do not.
    """

    def __init__(
        self,
        module: Any,
        image_shape: Sequence[int] | None = None,
        preparation: Preparation | None = None,
        label: str = "",
    ) -> None:
        self.module = module
        self._image_shape = None if image_shape is None else _image_shape(image_shape)
        self.preparation = preparation or Preparation()
        self.label = label or type(module).__name__
        self.layers = tuple(Layer(name, type(m).__name__) for name, m in module.named_modules() if name)
        self._modules = dict(module.named_modules())

    @property
    def dtype(self) -> Any:
        """Type of the module's weights."""
        return _dtype(self.module)

    @property
    def takes_images(self) -> bool:
        """Whether it was told the shape of its images."""
        return self._image_shape is not None

    @property
    def image_shape(self) -> tuple[int, int, int]:  # type: ignore[override]
        """(height, width, channels), which `as_model` must have been told."""
        if self._image_shape is None:
            raise InputError(
                f"image_shape=(height, width, channels) is needed for pictures of a torch module: "
                f"as_model({self.label}, image_shape=...)"
            )
        return self._image_shape

    def __repr__(self) -> str:
        return (
            super().__repr__()
            if self.takes_images
            else f"<{type(self).__name__} {self.label}: any inputs, {len(self.layers)} layers>"
        )

    def activations(self, images: Any, layers: Sequence[str], *, batch: int = 64) -> dict[str, Array]:
        """See `Model.activations`.

        Parameters
        ----------
        images, layers, batch
            As there.

        Returns
        -------
        dict of arrays, by layer
        """
        torch = require("torch", "torch")
        checked = self.images(images)
        batch = integer(batch, "batch", low=1)
        parts: dict[str, list[Array]] = {}
        with torch.no_grad():
            for start in range(0, len(checked), batch):
                x = torch.from_numpy(checked[start : start + batch]).to(_dtype(self.module))
                for name, value in self.trace(x, layers).items():
                    parts.setdefault(name, []).append(value.cpu().numpy())
        return {name: np.concatenate(pieces) for name, pieces in parts.items()}

    def trace(self, images: Any, layers: Sequence[str], *, edits: Edits | None = None) -> dict[str, Any]:
        """See `Model.trace`.

        Parameters
        ----------
        images, layers, edits
            As there.

        Returns
        -------
        dict of tensors, by layer
        """
        edits = edits or {}
        for name in (*layers, *edits):
            if name != "output":
                self.find(name)
        found: dict[str, Any] = {}
        handles = []

        def hook(name: str) -> Callable[[Any, Any, Any], Any]:
            def look(module: Any, inputs: Any, value: Any) -> Any:
                value = value[0] if isinstance(value, (tuple, list)) else value
                if name in edits:
                    value = edits[name](value)
                if name in wanted:
                    found[name] = value.clone()  # a ReLU in place may follow
                return value if name in edits else None

            return look

        wanted = set(layers)
        try:
            for name in [n for n in dict.fromkeys((*layers, *edits)) if n != "output"]:
                handles.append(self._modules[name].register_forward_hook(hook(name)))  # noqa: PERF401 (undone below)
            with evaluation(self.module):
                result = self.module(self.preparation.apply(images))
        finally:
            for handle in handles:
                handle.remove()
        if "output" in wanted:
            found["output"] = first_tensor(result)
        missing = wanted - set(found)
        if missing:
            raise InputError(f"layers {sorted(missing)} are never called by {self.label}; name a module that runs")
        return {name: found[name] for name in dict.fromkeys(layers)}


class OnnxModel(Model):
    """An ONNX file. Layers are its nodes by name (or by the name of their first output)."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        image_shape: Sequence[int] | None = None,
        preparation: Preparation | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        from reluscope.lens.onnx_taps import Taps

        self.taps = Taps(path, limits=limits)
        self.label = Path(path).name
        guessed, layout = _guess(self.taps.input_shape)
        self.preparation = preparation or Preparation(layout=layout)
        if image_shape is None and guessed is None:
            raise InputError(
                f"{self.label} takes {_sides(self.taps.input_shape)}, which does not say how large an image is; "
                "pass image_shape=(height, width, channels)"
            )
        self.image_shape = _image_shape(image_shape if image_shape is not None else guessed)
        self.layers = tuple(Layer(name, kind) for name, kind in self.taps.layers)

    def activations(self, images: Any, layers: Sequence[str], *, batch: int = 64) -> dict[str, Array]:
        """See `Model.activations`."""
        for name in layers:
            if name != "output":
                self.find(name)
        checked = self.images(images)
        return self.taps.run(self.prepared(checked), layers, batch=integer(batch, "batch", low=1))

    def prepared(self, images: Array) -> Array:
        """Images as the graph wants them, reshaped when it takes another number of axes."""
        x = self.preparation.apply(images)
        return self.taps.fitted(x)

    def trace(self, images: Any, layers: Sequence[str], *, edits: Edits | None = None) -> dict[str, Any]:
        """See `Model.trace`."""
        from reluscope.lens.onnx_torch import run_graph

        for name in (*layers, *(edits or {})):
            if name != "output":
                self.find(name)
        return run_graph(self.taps, self.preparation.apply(images), layers, edits or {})


def as_model(
    model: Any,
    *,
    image_shape: Sequence[int] | None = None,
    layout: str | None = None,
    scale: float = 1.0,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    bgr: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Model:
    """A model with named layers, from a torch module, an ONNX file, or a model made earlier.

    Parameters
    ----------
    model : torch module, path or Model
    image_shape : sequence of int, optional
        (height, width, channels); an ONNX file usually says it itself. A torch module without it takes what it takes
        (tokens, several arguments): attention, ablation, patching and attribution work, pictures of images do not.
    layout : {"NCHW", "NHWC", "flat"}, optional
        "NCHW" by default.
    scale, mean, std, bgr : float, sequence, sequence, bool
        The model is given `(scale * image - mean) / std` for images in [0, 1], channels reversed first if `bgr`.
    limits : Limits

    Returns
    -------
    Model

    Raises
    ------
    InputError
        If the file cannot be read, or the shape of its images is not known.

    Notes
    -----
    Nothing is run yet; files run no code.
    """
    if isinstance(model, Model):
        return model
    facts: dict[str, Any] = {"scale": float(scale), "mean": tuple(mean), "std": tuple(std), "bgr": bool(bgr)}
    if isinstance(model, (str, PathLike)):
        if Path(model).suffix.lower() != ".onnx":
            raise InputError(
                f"{Path(model).name}: pictures are made from an ONNX file or a live torch module. Whole pickled "
                "modules run code when loaded: build the module yourself, load its state dict and pass it"
            )
        made = OnnxModel(model, image_shape=image_shape, limits=limits)
        made.preparation = Preparation(layout=layout or made.preparation.layout, **facts)
        return _fitting(made)
    if hasattr(model, "named_modules"):
        if image_shape is None:
            return TorchModel(model)
        return _fitting(TorchModel(model, image_shape, Preparation(layout=layout or "NCHW", **facts)))
    raise InputError(f"model must be a torch module or the path of an ONNX file, got {describe(model)}")


def _fitting(model: Model) -> Model:
    """`model`, once mean and std are found to have one number, or one per channel."""
    channels = model.image_shape[2]
    for name, values in (("mean", model.preparation.mean), ("std", model.preparation.std)):
        if len(values) not in (1, channels):
            raise InputError(
                f"{name} must hold one number or one per channel ({channels} for {model.label}), got {values}"
            )
    return model


@contextmanager
def evaluation(module: Any) -> Iterator[None]:
    """`module` in evaluation mode for a while; every flag is put back."""
    flags = [(m, m.training) for m in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for m, training in flags:
            m.training = training


def first_tensor(value: Any) -> Any:
    """The first tensor in whatever a module returns."""
    while isinstance(value, (tuple, list, dict)):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return value


def _dtype(module: Any) -> Any:
    torch = require("torch", "torch")
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def _image_shape(shape: Any) -> tuple[int, int, int]:
    sides = tuple(shape) if isinstance(shape, Iterable) else ()
    if len(sides) != 3 or not all(isinstance(s, (int, np.integer)) and s > 0 for s in sides):
        raise InputError(f"image_shape must be (height, width, channels), got {describe(shape)}")
    return int(sides[0]), int(sides[1]), int(sides[2])


def _guess(shape: Sequence[int | None]) -> tuple[tuple[int, int, int] | None, str]:
    """(height, width, channels) and layout from the shape of a graph's input."""
    sides = list(shape)
    if len(sides) == 4 and all(sides[1:]):
        _, a, b, c = (int(s or 1) for s in sides)
        if a in (1, 3, 4) and c not in (1, 3, 4):
            return (b, c, a), "NCHW"
        if c in (1, 3, 4):
            return (a, b, c), "NHWC"
        return (b, c, a), "NCHW"
    if len(sides) == 4:  # sizes are open; only the place of the channels is known
        return None, "NHWC" if sides[3] in (1, 3, 4) and sides[1] not in (1, 3, 4) else "NCHW"
    return None, "flat"


def _sides(shape: Sequence[int | None]) -> str:
    return f"({', '.join('?' if side is None else str(side) for side in shape)})"


def _no_such_layer(name: str, layers: Sequence[Layer], label: str) -> InputError:
    names = [layer.name for layer in layers]
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    shown = ", ".join(f"{layer.name} ({layer.kind})" for layer in layers[:_SHOWN])
    more = f", and {len(layers) - _SHOWN} more" if len(layers) > _SHOWN else ""
    return InputError(f"{label} has no layer {name!r}; {hint}its layers are: {shown}{more}")
