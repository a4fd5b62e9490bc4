"""Live Keras models, against Keras itself.

Keras rounds some intermediate results to float32 even when everything is set to float64 (its matrix products on the
torch backend do), so agreement is asked to a few float32 roundings; a wrong weight, window or pad is off by order one.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from reluscope.errors import InputError, InputLimitError, ReluscopeWarning, UnsupportedError
from reluscope.formats import load
from reluscope.limits import Limits

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras")
L = keras.layers
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras itself


def agree(model, *, n=15, **options) -> None:
    rng = np.random.default_rng(0)
    model.set_weights(
        [rng.uniform(0.5, 1.5, w.shape) if w.ndim == 1 else rng.normal(size=w.shape) for w in model.get_weights()]
    )
    net = load(model, **options)
    X = rng.normal(size=(n, *net.input_shape))
    want = np.asarray(keras.ops.convert_to_numpy(model(X, training=False)), dtype=np.float64).reshape(n, -1)
    scale = np.abs(want).max()
    assert scale > 0
    np.testing.assert_allclose(net(X), want, atol=5e-6 * max(1.0, scale), rtol=0)


@pytest.fixture(autouse=True)
def float64():
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx(before)


IMAGE = {
    "dense on the last axis": lambda: [L.Dense(3, activation="relu"), L.Dense(2)],
    "conv": lambda: [L.Conv2D(3, 3, activation="relu")],
    "conv same strided": lambda: [L.Conv2D(3, (3, 2), strides=2, padding="same")],
    "conv same odd": lambda: [L.Conv2D(3, (4, 5), strides=(1, 3), padding="same", activation="relu")],
    "conv dilated, no bias": lambda: [L.Conv2D(3, 2, dilation_rate=(2, 1), padding="same", use_bias=False)],
    "conv groups": lambda: [L.Conv2D(4, 3, groups=2)],
    "depthwise": lambda: [L.DepthwiseConv2D(3, depth_multiplier=2, padding="same", strides=2, activation="relu")],
    "batch norm": lambda: [L.BatchNormalization(epsilon=0.01), L.ReLU()],
    "batch norm bare": lambda: [L.BatchNormalization(center=False, scale=False)],
    "batch norm other axis": lambda: [L.BatchNormalization(axis=1)],
    "relu variants": lambda: [L.ReLU(max_value=1.5, negative_slope=0.2), L.LeakyReLU(0.3)],
    "prelu": lambda: [L.PReLU(), L.Dense(2)],
    "prelu shared": lambda: [L.PReLU(shared_axes=[1, 2]), L.Dense(2)],
    "named activations": lambda: [
        L.Activation("relu6"), L.Dense(2, activation="leaky_relu"), L.Dense(2, activation="hard_sigmoid"),
        L.Dense(3, activation="hard_tanh"), L.Activation("linear"), L.Dense(2, activation=L.LeakyReLU(0.4)),
    ],
    "max pool": lambda: [L.MaxPooling2D(2)],
    "max pool same": lambda: [L.MaxPooling2D((3, 2), strides=(2, 1), padding="same")],
    "average pool": lambda: [L.AveragePooling2D(2, strides=1)],
    # Keras's backends differ when the padding is not symmetric (then the load is refused on torch), so it is here.
    "average pool same": lambda: [L.AveragePooling2D(3, strides=1, padding="same")],
    "global average": lambda: [L.Dense(2, activation="relu"), L.GlobalAveragePooling2D()],
    "global max": lambda: [L.Dense(2), L.GlobalMaxPooling2D(keepdims=True)],
    "flatten, reshape, permute": lambda: [
        L.Permute((3, 1, 2)), L.Reshape((-1, 3)), L.Dense(2, activation="relu"), L.Flatten(), L.Dense(2),
    ],
    "zero padding": lambda: [L.ZeroPadding2D(((1, 0), (2, 1))), L.Conv2D(2, 3)],
    "cropping, up-sampling": lambda: [L.Cropping2D(((1, 0), (1, 2))), L.UpSampling2D((2, 3)), L.Conv2D(2, 2)],
    "dropouts": lambda: [L.Dropout(0.5), L.SpatialDropout2D(0.5), L.GaussianNoise(1.0), L.Dense(2)],
    "rescaling": lambda: [L.Rescaling(0.25, offset=-1.0), L.Dense(2, activation="relu")],
    "channels first": lambda: [
        L.Conv2D(3, 3, padding="same", data_format="channels_first", activation="relu"),
        L.GlobalAveragePooling2D(data_format="channels_first"),
    ],
    "channels first flatten": lambda: [L.Flatten(data_format="channels_first"), L.Dense(2)],
}  # fmt: skip


@pytest.mark.parametrize("layers", IMAGE.values(), ids=IMAGE.keys())
def test_sequential_on_images(layers) -> None:
    with_channels_first = any(getattr(layer, "data_format", "") == "channels_first" for layer in layers())
    if with_channels_first and keras.backend.backend() == "tensorflow":
        pytest.skip("tensorflow on a CPU has no channels-first convolutions")
    agree(keras.Sequential([L.Input((6, 7, 2)), *layers()]))


SEQUENCES = {
    "conv": lambda: [L.Conv1D(3, 3, strides=2, padding="same", activation="relu")],
    "causal": lambda: [L.Conv1D(3, 3, dilation_rate=2, padding="causal")],
    "pools": lambda: [L.MaxPooling1D(2), L.AveragePooling1D(2, padding="same"), L.GlobalAveragePooling1D()],
    "padding": lambda: [L.ZeroPadding1D((1, 2)), L.Cropping1D((0, 1)), L.UpSampling1D(2), L.Conv1D(2, 3)],
    "depthwise": lambda: [L.DepthwiseConv1D(2, depth_multiplier=2)],
}


@pytest.mark.parametrize("layers", SEQUENCES.values(), ids=SEQUENCES.keys())
def test_sequential_on_sequences(layers) -> None:
    agree(keras.Sequential([L.Input((9, 2)), *layers()]))


def _residual():
    x = keras.Input((6,))
    h = L.Dense(6, activation="relu")(x)
    h = L.Add()([h, x, L.Dense(6)(h)])
    a, b = L.Dense(4)(h), L.Dense(4)(x)
    parts = [L.Subtract()([a, b]), L.Average()([a, b]), L.Maximum()([a, b]), L.Minimum()([a, b]), h]
    return keras.Model(x, L.Dense(3)(L.Concatenate()(parts)))


def _shared():
    x = keras.Input((5,))
    layer = L.Dense(5, activation="relu")
    return keras.Model(x, layer(layer(layer(x))))


def _nested():
    inner = keras.Sequential([L.Input((4,)), L.Dense(4, activation="relu")])
    x = keras.Input((4,))
    mid = keras.Model(x, L.Add()([inner(x), x]))
    return keras.Sequential([L.Input((4,)), mid, L.Dense(2), mid.__class__(*_small())])


def _small():
    x = keras.Input((2,))
    return x, L.Dense(2, activation="relu")(x)


def _operators():
    x = keras.Input((4,))
    h = L.Dense(4)(x)
    y = keras.ops.relu(h) * 2.0 + x - 1.0
    y = keras.ops.maximum(y, h) / 3.0 + keras.ops.abs(x) + (-h)
    return keras.Model(x, y)


def _normalised():
    layer = L.Normalization()
    layer.adapt(np.random.default_rng(0).normal(2.0, 3.0, size=(50, 4)))
    return keras.Sequential([L.Input((4,)), layer, L.Dense(3, activation="relu"), L.Dense(2)])


GRAPHS = {"residual": _residual, "shared layer": _shared, "nested": _nested, "operators": _operators}


@pytest.mark.parametrize("build", GRAPHS.values(), ids=GRAPHS.keys())
def test_functional_models(build) -> None:
    agree(build())


def test_normalization_layer() -> None:
    model = _normalised()
    net = load(model)
    X = np.random.default_rng(1).normal(size=(20, 4))
    want = np.asarray(keras.ops.convert_to_numpy(model(X, training=False)))
    np.testing.assert_allclose(net(X), want, atol=1e-6)  # Keras keeps mean and variance in float32 arithmetic


@pytest.mark.parametrize("last", ["softmax", "sigmoid", "layer"])
def test_final_softmax_is_cut_off_with_a_warning(last) -> None:
    tail = [L.Dense(3), L.Softmax(), L.Reshape((3, 1))] if last == "layer" else [L.Dense(3, activation=last)]
    model = keras.Sequential([L.Input((4,)), L.Dense(5, activation="relu"), *tail])
    with pytest.warns(ReluscopeWarning, match="outputs are logits"):
        net = load(model)
    weights = model.get_weights()
    x = np.random.default_rng(0).normal(size=4)
    want = np.maximum(x @ weights[0] + weights[1], 0) @ weights[2] + weights[3]
    np.testing.assert_allclose(net(x), want, atol=1e-12)
    assert any("logits" in note for note in net.notes)


def _model(*layers, shape=(4,)):
    return keras.Sequential([L.Input(shape), *layers])


class _Custom(L.Layer if hasattr(L, "Layer") else object):
    def call(self, x):
        return x * x


class _Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.d = L.Dense(2)

    def call(self, x):
        return self.d(x)


def _two_outputs():
    x = keras.Input((4,))
    return keras.Model(x, [L.Dense(2)(x), L.Dense(3)(x)])


def _two_inputs():
    x, z = keras.Input((4,)), keras.Input((4,))
    return keras.Model([x, z], L.Add()([x, z]))


def _product():
    x = keras.Input((4,))
    return keras.Model(x, L.Multiply()([x, L.Dense(4)(x)]))


REFUSED = {
    "tanh": (lambda: _model(L.Dense(3, activation="tanh", name="hid"), L.Dense(2)), r"layer 'hid'.*tanh"),
    "softmax inside": (lambda: _model(L.Dense(3, activation="softmax"), L.Dense(2)), "at the very end"),
    "layer norm": (lambda: _model(L.LayerNormalization(name="norm")), "layer 'norm' is LayerNormalization"),
    "nested": (lambda: _model(keras.Sequential([L.Input((4,)), L.ELU(name="e")], name="in")), r"layer 'in/e' is ELU"),
    "lstm": (lambda: _model(L.LSTM(3), shape=(4, 2)), "LSTM"),
    "product": (_product, "product of two values"),
    "relu that jumps": (lambda: _model(L.ReLU(threshold=1.0)), "jumps"),
    "custom layer": (lambda: _model(_Custom()), "not one of keras's own"),
    "own function": (lambda: _model(L.Dense(3, activation=lambda z: z * z), L.Dense(2)), "function"),
    "subclassed": (lambda: _Subclassed(), "subclassed"),
    "two outputs": (_two_outputs, "2 outputs"),
    "two inputs": (_two_inputs, "several inputs"),
    "unbuilt": (lambda: keras.Sequential([L.Dense(2)]), "no weights yet"),
    "open shape": (lambda: _model(L.Conv1D(2, 3), shape=(None, 2)), "input_shape is needed"),
    "batch of 8": (lambda: keras.Sequential([L.Input((4,), batch_size=8), L.Dense(2)]), "batches of 8"),
}


@pytest.mark.parametrize(("build", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals_name_the_layer(build, message) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(build())
    assert "\n" not in str(caught.value)


def test_open_shapes_and_limits() -> None:
    model = _model(L.Conv1D(2, 3, activation="relu"), L.GlobalAveragePooling1D(), shape=(None, 2))
    agree(model, input_shape=(7, 2))
    for bad in [(7, 3), (7,), (0, 2), "ab", 5]:
        with pytest.raises(InputError, match="input_shape"):
            load(model, input_shape=bad)
    with pytest.raises(InputLimitError, match="nodes"):
        load(model, input_shape=(7, 2), limits=Limits(nodes=1))


def test_keras_files_are_refused(tmp_path: Path) -> None:
    for name in ("m.keras", "m.h5"):
        with pytest.raises(UnsupportedError, match="pass the object"):
            load(tmp_path / name)
