"""Networks from live Keras 3 models (Sequential and Functional, nested ones too).

The graph is read from the model's public configuration and run on symbolic tensors; weights are read exactly and
the network is float64. The result is compared with the model on two random inputs before it is returned. Keras files
are not read here: loading them can run code, so load the model with keras and pass the object.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from reluscope._check import FloatArray, real_array
from reluscope._lazy import late
from reluscope.activations import Activation, absolute, clip, hard_sigmoid, leaky_relu, relu, relu6
from reluscope.errors import InputError, MissingExtraError, ReluscopeWarning, UnsupportedError
from reluscope.formats._terms import Window
from reluscope.formats.graph import GraphBuilder, Tensor
from reluscope.limits import DEFAULT_LIMITS, Limits, started
from reluscope.network import Network

__all__ = ["load_keras"]

_AGREEMENT = 1e-2
"""Largest difference from the model's own float32 output, relative to its size, that counts as rounding."""


def load_keras(model: Any, *, limits: Limits = DEFAULT_LIMITS, input_shape: Sequence[int] | None = None) -> Network:
    """The network that a live Keras model computes at inference.

    `input_shape` (without the batch axis) is needed only when the model leaves some of it open. Inputs keep the
    model's own layout, usually channels last. A final softmax or sigmoid is cut off with a warning: the outputs are
    then logits.
    """
    keras, limits = _keras(), started(limits)
    name = str(model.name)
    if not hasattr(model, "operations") and not _is(model, "Sequential"):
        raise UnsupportedError(
            f"{name} is a subclassed keras model, whose wiring is Python code; export it to ONNX, or build it with "
            "keras.Sequential or keras.Model(inputs, outputs)"
        )
    if not model.built:
        raise InputError(f"{name} has no weights yet; call it once on data, or model.build(input_shape)")
    shape = _input_shape(model, input_shape, name)
    translation = _Translation(keras, limits)
    try:
        result = translation.run(model, translation.graph.input((1, *shape)), "", ends=True)
    except UnsupportedError:
        raise
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error
    notes = [f"final {op} cut off: outputs are logits" for op in translation.cut]
    inside = result.shape[1:] if len(result.shape) > 1 and result.shape[0] == 1 else result.shape
    net = translation.graph.build(result, name=name, input_shape=shape, output_shape=inside or (1,), notes=notes)
    for note in notes:
        warnings.warn(f"{name}: {note}", ReluscopeWarning, stacklevel=3)
    if not translation.cut:
        _compare(keras, model, net, shape)
    return net


def _keras() -> Any:
    try:
        keras = late("keras")
    except ImportError as error:
        raise MissingExtraError("keras models need Keras 3: pip install keras") from error
    if int(keras.__version__.split(".")[0]) < 3:
        raise UnsupportedError(f"keras {keras.__version__} is too old; models of Keras 3 or newer are read")
    return keras


def _is(thing: Any, kind: str) -> bool:
    return any(c.__name__ == kind and c.__module__.startswith("keras.") for c in type(thing).__mro__)


def _input_shape(model: Any, given: Sequence[int] | None, name: str) -> tuple[int, ...]:
    declared: Any = model.input_shape
    if isinstance(declared, dict) and len(declared) == 1:
        declared = next(iter(declared.values()))
    if isinstance(declared, list) and len(declared) == 1:
        declared = declared[0]
    if isinstance(declared, (list, dict)) or not declared:
        raise InputError(f"{name} takes several inputs; build a model with one")
    batch, *rest = declared
    if batch not in (None, 1):
        raise InputError(f"{name} is built for batches of {batch}; build it with batch_size=None")
    if given is not None:
        try:
            shape = tuple(int(n) for n in given)
        except (TypeError, ValueError) as error:
            raise InputError(f"input_shape must be whole numbers such as (28, 28, 1), got {given!r}") from error
        fits = len(shape) == len(rest) and all(r is None or r == n for n, r in zip(shape, rest, strict=True))
        if not fits or any(n < 1 for n in shape):
            raise InputError(f"input_shape must fit the model's {tuple(rest)}, got {shape}")
        return shape
    if None in rest:
        raise InputError(f"input_shape is needed: {name} leaves it open, {tuple(rest)}")
    return tuple(int(n) for n in rest)


def _compare(keras: Any, model: Any, net: Network, shape: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    there = np.asarray(keras.ops.convert_to_numpy(model(X, training=False)), dtype=np.float64).reshape(2, -1)
    here = net(X.reshape(2, -1))
    if here.shape != there.shape or np.abs(here - there).max() > _AGREEMENT * max(1.0, np.abs(there).max()):
        raise UnsupportedError(
            f"{net.name} was translated, but the result differs from the model itself (keras's backends differ in "
            "some layers, such as unevenly padded average pooling); export it to ONNX and load that"
        )


class _Call(NamedTuple):
    """One application of a layer: what it reads, by key, in the structure of its arguments."""

    layer: Any
    key: tuple[str, int]
    args: Any
    kwargs: dict[str, Any]


class _Ref(NamedTuple):
    """A place in the arguments that another call fills."""

    key: tuple[str, int]
    number: int


class _Translation:
    """Runs the layers of a model on symbolic tensors."""

    def __init__(self, keras: Any, limits: Limits) -> None:
        self.keras, self.limits = keras, limits
        self.graph = GraphBuilder(limits)
        self.cut: list[str] = []
        self.ends = False
        """Whether only data movement lies between the layer at hand and the output."""

    def run(self, model: Any, value: Any, path: str, *, ends: bool) -> Any:
        """The model's output for the input `value`."""
        calls, start, final = _sequence(model) if _is(model, "Sequential") else _functional(model)
        self.limits.check("nodes", len(calls), f"model {model.name}")
        readers: dict[tuple[str, int], list[_Call]] = {}
        for call in calls:
            for ref in _refs((call.args, call.kwargs)):
                readers.setdefault(ref.key, []).append(call)
        values: dict[tuple[str, int], Any] = {start: value}
        waiting = [c for c in calls if c.key != start]
        while waiting:
            later = []
            for call in waiting:
                if all(ref.key in values for ref in _refs((call.args, call.kwargs))):
                    self.ends = ends and _ends(call.key, readers)
                    where = f"{path}{call.layer.name}"
                    args, kwargs = _filled(call.args, values), _filled(call.kwargs, values)
                    values[call.key] = self._apply(call.layer, args, kwargs, where)
                else:
                    later.append(call)
            if len(later) == len(waiting):
                raise InputError("the graph of layers has a cycle or a second input")
            waiting = later
        return _filled(_Ref(final, 0), values)

    def _apply(self, layer: Any, args: list[Any], kwargs: dict[str, Any], path: str) -> Any:
        kind = type(layer).__name__
        own = type(layer).__module__.startswith("keras.")
        if own and kind in ("Sequential", "Functional"):
            return self.run(layer, args[0], f"{path}/", ends=self.ends)
        table: dict[str, Callable[..., Any]] = _OPERATIONS if ".ops." in type(layer).__module__ else _LAYERS
        handler = table.get(kind) if own else None
        if handler is None:
            known = "a known piecewise-affine layer" if own else "one of keras's own layers"
            raise UnsupportedError(f"layer {path!r} is {kind}, which is not {known}")
        self.graph.at(path, kind)
        try:
            return handler(self, layer, *args) if table is _LAYERS else handler(self, *args)
        except UnsupportedError as error:
            text = str(error)
            raise UnsupportedError(text if text.startswith("layer ") else f"layer {path!r}: {text}") from error
        except InputError as error:
            raise type(error)(f"layer {path!r}: {error}") from error
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0][:160]
            raise UnsupportedError(f"layer {path!r} ({kind}) cannot be translated: {first}") from error

    # -- pieces --

    def array(self, value: Any, name: str) -> FloatArray:
        """A weight or constant as float64."""
        if hasattr(value, "dtype") and not isinstance(value, np.ndarray):
            value = self.keras.ops.convert_to_numpy(value)
        value = np.asarray(value)
        return real_array(value if value.dtype.kind in "fiub" else value.astype(np.float64), name)  # bfloat16

    def operand(self, value: Any) -> Any:
        """A tensor as it is, anything else as an array."""
        return value if isinstance(value, Tensor) else self.array(value, "a constant")

    def activated(self, layer: Any, x: Any) -> Any:
        """The layer's own activation, if it has one."""
        act = getattr(layer, "activation", None)
        if act is None:
            return x
        if _is(act, "Layer"):
            return self._apply(act, [x], {}, str(act.name))
        name = getattr(act, "__name__", type(act).__name__)
        own = str(getattr(act, "__module__", "")).startswith("keras.")
        if not own or name not in _ACTIVATIONS:
            return self.cut_or_refuse(name if own else f"the function {name}", x)
        found = _ACTIVATIONS[name]
        return x if found is None else self.graph.activate(x, found)

    def cut_or_refuse(self, name: str, x: Any) -> Any:
        """Leave out a final softmax or sigmoid; anything else that is not piecewise affine is an error."""
        final = name.lower() in ("softmax", "log_softmax", "sigmoid")
        if final and self.ends:
            self.cut.append(name.lower())
            return x
        hint = "; it may stand at the very end, where it is cut off" if final else ""
        raise UnsupportedError(f"activation {name} is not piecewise affine{hint}")

    def spatial(self, layer: Any, x: Any, apply: Callable[[Any], Any]) -> Any:
        """`apply` on channels first, whatever layout the layer has (some one-dimensional ones name none: last)."""
        if getattr(layer, "data_format", None) == "channels_first":
            return apply(x)
        moved = self.graph.apply_move(x, lambda i: np.moveaxis(i, -1, 1))
        return self.graph.apply_move(apply(moved), lambda i: np.moveaxis(i, 1, -1))


# -- the graph of a model --------------------------------------------------------------------------------------------


def _sequence(model: Any) -> tuple[list[_Call], tuple[str, int], tuple[str, int]]:
    start = ("", -1)
    calls = []
    last = start
    for i, layer in enumerate(model.layers):
        if type(layer).__name__ == "InputLayer":
            continue
        calls.append(_Call(layer, (str(layer.name), i), [_Ref(last, 0)], {}))
        last = calls[-1].key
    return calls, start, last


def _functional(model: Any) -> tuple[list[_Call], tuple[str, int], tuple[str, int]]:
    config = model.get_config()
    by_name = {str(op.name): op for op in model.operations}
    if not {"layers", "input_layers", "output_layers"} <= config.keys():
        raise UnsupportedError(f"model {model.name} has its own get_config, so its graph cannot be read; use ONNX")
    inputs, outputs = _histories(config["input_layers"]), _histories(config["output_layers"])
    if len(inputs) != 1 or len(outputs) != 1:
        raise InputError(
            f"model {model.name} has {len(inputs)} inputs and {len(outputs)} outputs; build a keras.Model(inputs, "
            "output) with one of each"
        )
    calls = []
    for entry in config["layers"]:
        name = str(entry.get("name") or entry["config"]["name"])
        for i, node in enumerate(entry["inbound_nodes"]):
            args, kwargs = _parsed(node["args"]), _parsed(node["kwargs"])
            calls.append(_Call(by_name[name], (name, i), args, kwargs))
    return calls, inputs[0].key, outputs[0].key


def _histories(found: Any) -> list[_Ref]:
    """`['name', 0, 0]`, a list of such, or a dictionary of such."""
    if isinstance(found, dict):
        found = list(found.values())
    if len(found) == 3 and isinstance(found[0], str) and not isinstance(found[1], (list, str)):
        found = [found]
    return [_Ref((str(f[0]), int(f[1])), int(f[2])) for f in found]


def _parsed(value: Any) -> Any:
    """Arguments from the configuration, with references in place of keras tensors."""
    if isinstance(value, dict):
        if value.get("class_name") == "__keras_tensor__":
            name, node, number = value["config"]["keras_history"]
            return _Ref((str(name), int(node)), int(number))
        if value.get("class_name") in ("__tensor__", "__numpy__"):
            return np.asarray(value["config"]["value"])
        return {k: _parsed(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_parsed(v) for v in value]
    return value


def _filled(value: Any, values: dict[tuple[str, int], Any]) -> Any:
    if isinstance(value, _Ref):
        found = values[value.key]
        return found[value.number] if isinstance(found, (list, tuple)) else found
    if isinstance(value, dict):
        return {k: _filled(v, values) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(v, values) for v in value]
    return value


def _refs(value: Any) -> list[_Ref]:
    if isinstance(value, _Ref):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [ref for part in value for ref in _refs(part)]
    return []


def _ends(key: tuple[str, int], readers: dict[tuple[str, int], list[_Call]]) -> bool:
    """Whether every way from this call leads to the output through data movement only."""
    todo = [key]
    while todo:
        for call in readers.get(todo.pop(), []):
            if type(call.layer).__name__ not in _MOVES:
                return False
            todo.append(call.key)
    return True


_MOVES = frozenset(("Flatten", "Reshape", "Permute", "Identity", "Dropout"))


# -- layers ----------------------------------------------------------------------------------------------------------

_ACTIVATIONS: dict[str, Activation | None] = {
    "linear": None,
    "relu": relu(),
    "relu6": relu6(),
    "leaky_relu": leaky_relu(0.2),
    "hard_sigmoid": hard_sigmoid(),
    "hard_tanh": clip(-1.0, 1.0),
}


def _bias(t: _Translation, layer: Any) -> FloatArray | None:
    return t.array(layer.bias, "bias") if layer.use_bias else None


def _dense(t: _Translation, layer: Any, x: Any) -> Any:
    y = t.graph.matmul(x, t.array(layer.kernel, "kernel"))
    bias = _bias(t, layer)
    return t.activated(layer, y if bias is None else t.graph.add(y, bias))


def _window(padding: str, x: Any, kernel: Any, strides: Any, dilations: Any = 1) -> Window:
    """The window of a layer; "same" fits ceil(size / stride) windows, where an odd zero goes to the end."""
    n = len(x.shape) - 2
    kernel, strides, dilations = _tuple(kernel, n), _tuple(strides, n), _tuple(dilations, n)
    if padding == "valid":
        pads = [0] * (2 * n)
    elif padding == "causal":
        pads = [(kernel[0] - 1) * dilations[0], 0]
    elif padding == "same":
        axes = zip(x.shape[2:], kernel, strides, dilations, strict=True)
        total = [max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0) for size, k, s, d in axes]
        pads = [p // 2 for p in total] + [p - p // 2 for p in total]
    else:
        raise UnsupportedError(f"padding {padding!r} is not known")
    return Window(kernel, strides, pads, dilations)


def _conv(t: _Translation, layer: Any, x: Any) -> Any:
    K = t.array(layer.kernel, "kernel")
    n = K.ndim - 2
    return _convolved(t, layer, x, K.transpose(n + 1, n, *range(n)), int(layer.groups))


def _depthwise(t: _Translation, layer: Any, x: Any) -> Any:
    K = t.array(layer.kernel, "kernel")
    n = K.ndim - 2
    channels, times = K.shape[n:]
    W = K.transpose(n, n + 1, *range(n)).reshape(channels * times, 1, *K.shape[:n])
    return _convolved(t, layer, x, W, channels)


def _convolved(t: _Translation, layer: Any, x: Any, W: FloatArray, groups: int) -> Any:
    def apply(z: Any) -> Any:
        window = _window(layer.padding, z, W.shape[2:], layer.strides, layer.dilation_rate)
        return t.graph.conv(z, W, _bias(t, layer), window, groups)

    return t.activated(layer, t.spatial(layer, x, apply))


def _batch_norm(t: _Translation, layer: Any, x: Any) -> Any:
    mean, var = t.array(layer.moving_mean, "moving_mean"), t.array(layer.moving_variance, "moving_variance")
    scale = t.array(layer.gamma, "gamma") if layer.scale else np.ones(len(mean))
    shift = t.array(layer.beta, "beta") if layer.center else np.zeros(len(mean))
    axis = layer.axis[0] if isinstance(layer.axis, (list, tuple)) else layer.axis
    return t.graph.batch_norm(x, scale, shift, mean, var, float(layer.epsilon), int(axis))


def _normalization(t: _Translation, layer: Any, x: Any) -> Any:
    if layer.invert:
        raise UnsupportedError("Normalization with invert=True is not known")
    scale = np.maximum(np.sqrt(t.array(layer.variance, "variance")), t.keras.config.epsilon())
    return t.graph.scale(t.graph.subtract(x, t.array(layer.mean, "mean")), 1.0 / scale)


def _rescaling(t: _Translation, layer: Any, x: Any) -> Any:
    return t.graph.add(t.graph.scale(x, t.array(layer.scale, "scale")), t.array(layer.offset, "offset"))


def _relu(t: _Translation, layer: Any, x: Any) -> Any:
    slope, threshold = float(layer.negative_slope), float(layer.threshold)
    if threshold != 0.0:
        raise UnsupportedError(f"ReLU with threshold={threshold} jumps; only continuous units are known")
    if layer.max_value is None:
        return t.graph.activate(x, leaky_relu(slope) if slope else relu())
    top = float(layer.max_value)
    act = Activation((0.0, top), (slope, 1.0, 0.0), (0.0, 0.0, top), f"relu({slope:g}, {top:g})")
    return t.graph.activate(x, act)


def _prelu(t: _Translation, layer: Any, x: Any) -> Any:
    slopes = t.array(layer.alpha, "alpha")
    each = np.array([leaky_relu(s) for s in slopes.ravel().tolist()], dtype=object)
    return t.graph.activate(x, each.reshape(slopes.shape))


def _flatten(t: _Translation, layer: Any, x: Any) -> Any:
    if layer.data_format == "channels_first" and len(x.shape) > 2:
        x = t.graph.apply_move(x, lambda i: np.moveaxis(i, 1, -1))
    return t.graph.reshape(x, (1, math.prod(x.shape)))


def _reshape(t: _Translation, layer: Any, x: Any) -> Any:
    return t.graph.apply_move(x, lambda i: i.reshape(1, *layer.target_shape))


def _permute(t: _Translation, layer: Any, x: Any) -> Any:
    return t.graph.apply_move(x, lambda i: i.transpose(0, *layer.dims))


def _repeat_vector(t: _Translation, layer: Any, x: Any) -> Any:
    return t.graph.apply_move(x, lambda i: np.repeat(i[:, None, :], int(layer.n), axis=1))


def _pool(largest: bool) -> Callable[[_Translation, Any, Any], Any]:
    def pool(t: _Translation, layer: Any, x: Any) -> Any:
        def apply(z: Any) -> Any:
            window = _window(layer.padding, z, layer.pool_size, layer.strides or layer.pool_size)
            return t.graph.max_pool(z, window) if largest else t.graph.average_pool(z, window)

        return t.spatial(layer, x, apply)

    return pool


def _global_pool(largest: bool) -> Callable[[_Translation, Any, Any], Any]:
    def pool(t: _Translation, layer: Any, x: Any) -> Any:
        def apply(z: Any) -> Any:
            if largest:
                return t.graph.max_pool(z, Window.whole(z.shape[2:]))
            return t.graph.reduce_mean(z, list(range(2, len(z.shape))), True)

        y = t.spatial(layer, x, apply)
        return y if layer.keepdims else t.graph.reshape(y, (1, y.size))

    return pool


def _zero_padding(t: _Translation, layer: Any, x: Any) -> Any:
    pairs = layer.padding if isinstance(layer.padding[0], (tuple, list)) else (layer.padding,)

    def apply(z: Any) -> Any:
        index = np.arange(z.size).reshape(z.shape)
        return t.graph.move(z, np.pad(index, [(0, 0), (0, 0), *map(tuple, pairs)], constant_values=-1))

    return t.spatial(layer, x, apply)


def _cropping(t: _Translation, layer: Any, x: Any) -> Any:
    pairs = layer.cropping if isinstance(layer.cropping[0], (tuple, list)) else (layer.cropping,)

    def apply(z: Any) -> Any:
        cut = tuple(slice(a, n - b) for (a, b), n in zip(pairs, z.shape[2:], strict=True))
        return t.graph.apply_move(z, lambda i: i[(slice(None), slice(None), *cut)])

    return t.spatial(layer, x, apply)


def _up_sampling(t: _Translation, layer: Any, x: Any) -> Any:
    if getattr(layer, "interpolation", "nearest") != "nearest":
        raise UnsupportedError(f"interpolation {layer.interpolation!r} is not known")

    def apply(z: Any) -> Any:
        for axis, times in enumerate(_tuple(layer.size, len(z.shape) - 2), start=2):
            z = t.graph.apply_move(z, lambda i, axis=axis, times=times: np.repeat(i, times, axis=axis))  # type: ignore[misc]
        return z

    return t.spatial(layer, x, apply)


def _merge(combine: Callable[[_Translation, Any, Any], Any]) -> Callable[[_Translation, Any, Any], Any]:
    def merge(t: _Translation, layer: Any, parts: Any) -> Any:
        if len({len(p.shape) for p in parts}) > 1:
            raise UnsupportedError("merging tensors with different numbers of axes is not known")
        result = parts[0]
        for part in parts[1:]:
            result = combine(t, result, part)
        return result

    return merge


def _binary(name: str) -> Callable[[_Translation, Any, Any], Any]:
    """An operation of the graph on two tensors or constants."""
    return lambda t, a, b: getattr(t.graph, name)(t.operand(a), t.operand(b))


def _multiply(t: _Translation, a: Any, b: Any) -> Any:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        raise UnsupportedError("a product of two values that both depend on the input is not piecewise affine")
    return t.graph.scale(a, t.operand(b)) if isinstance(a, Tensor) else t.graph.scale(b, t.operand(a))


def _divide(t: _Translation, a: Any, b: Any) -> Any:
    if isinstance(b, Tensor):
        raise UnsupportedError("division by a value that depends on the input is not piecewise affine")
    return t.graph.scale(a, 1.0 / t.operand(b))


def _average(t: _Translation, layer: Any, parts: Any) -> Any:
    return t.graph.scale(_merge(_binary("add"))(t, layer, parts), 1.0 / len(parts))


def _concatenate(t: _Translation, layer: Any, parts: Any) -> Any:
    return t.graph.concat(parts, int(layer.axis))


def _same(t: _Translation, layer: Any, x: Any, *_: Any) -> Any:
    return x


_LAYERS: dict[str, Callable[..., Any]] = {
    "Dense": _dense,
    "Conv1D": _conv,
    "Conv2D": _conv,
    "DepthwiseConv1D": _depthwise,
    "DepthwiseConv2D": _depthwise,
    "BatchNormalization": _batch_norm,
    "Normalization": _normalization,
    "Rescaling": _rescaling,
    "Activation": lambda t, layer, x: t.activated(layer, x),
    "ReLU": _relu,
    "LeakyReLU": lambda t, layer, x: t.graph.activate(x, leaky_relu(float(layer.negative_slope))),
    "PReLU": _prelu,
    "Softmax": lambda t, layer, x: t.cut_or_refuse("softmax", x),
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Permute": _permute,
    "RepeatVector": _repeat_vector,
    "MaxPooling1D": _pool(True),
    "MaxPooling2D": _pool(True),
    "AveragePooling1D": _pool(False),
    "AveragePooling2D": _pool(False),
    "GlobalMaxPooling1D": _global_pool(True),
    "GlobalMaxPooling2D": _global_pool(True),
    "GlobalAveragePooling1D": _global_pool(False),
    "GlobalAveragePooling2D": _global_pool(False),
    "ZeroPadding1D": _zero_padding,
    "ZeroPadding2D": _zero_padding,
    "Cropping1D": _cropping,
    "Cropping2D": _cropping,
    "UpSampling1D": _up_sampling,
    "UpSampling2D": _up_sampling,
    "Add": _merge(_binary("add")),
    "Subtract": _merge(_binary("subtract")),
    "Maximum": _merge(_binary("maximum")),
    "Minimum": _merge(_binary("minimum")),
    "Multiply": _merge(_multiply),
    "Average": _average,
    "Concatenate": _concatenate,
    "InputLayer": _same,
    "Identity": _same,
    "Dropout": _same,
    "SpatialDropout1D": _same,
    "SpatialDropout2D": _same,
    "AlphaDropout": _same,
    "GaussianDropout": _same,
    "GaussianNoise": _same,
    "ActivityRegularization": _same,
}

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "Add": _binary("add"),
    "Subtract": _binary("subtract"),
    "Multiply": _multiply,
    "Divide": _divide,
    "TrueDivide": _divide,
    "Maximum": _binary("maximum"),
    "Minimum": _binary("minimum"),
    "Negative": lambda t, x: t.graph.scale(x, -1.0),
    "Absolute": lambda t, x: t.graph.activate(x, absolute()),
    "Abs": lambda t, x: t.graph.activate(x, absolute()),
    "Relu": lambda t, x: t.graph.activate(x, relu()),
    "Relu6": lambda t, x: t.graph.activate(x, relu6()),
}
"""Operations of `keras.ops` and Python operators on keras tensors."""


def _tuple(value: Any, n: int) -> tuple[int, ...]:
    return tuple(int(v) for v in value) if isinstance(value, (tuple, list)) else (int(value),) * n
