"""Receptive fields: the arithmetic, torch modules and ONNX graphs, against what really changes when a pixel does."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reluscope import lens
from reluscope.errors import InputError, ReluscopeWarning
from reluscope.lens._tracks import Span, Track


def start() -> Track:
    return Track((None, None, Span(0), Span(1)))


layer = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 2), st.integers(1, 3))


@given(st.lists(layer, min_size=1, max_size=5))
def test_a_stack_follows_the_product_of_earlier_strides(stack):
    """R_L = R_{L-1} + (K_L - 1) d_L S_1 ... S_{L-1}."""
    track, size, strides = start(), 1, 1
    for kernel, stride, padding, dilation in stack:
        track = track.window(2, kernel, stride, padding, dilation)
        size += (kernel - 1) * dilation * strides
        strides *= stride
    span = track.spans[2]
    assert span is not None
    assert span.high - span.low + 1 == size
    assert span.jump == strides


@given(st.lists(layer, min_size=1, max_size=4), st.integers(0, 3))
def test_spans_say_which_inputs_an_output_reads(stack, index):
    track = start()
    sets = [{i} for i in range(400)]
    for kernel, stride, padding, dilation in stack:
        track = track.window(3, kernel, stride, padding, dilation)
        count = (len(sets) + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        sets = [
            set().union(
                *(sets[p] for k in range(kernel) if 0 <= (p := i * stride - padding + k * dilation) < len(sets))
            )
            for i in range(count)
        ]
    span = track.spans[3]
    middle = min(len(sets) // 2 + index, len(sets) - 1)
    assert min(sets[middle]) == span.low + middle * span.jump
    assert max(sets[middle]) == span.high + middle * span.jump


def test_a_skip_takes_the_union_and_a_mismatch_everything():
    plain, wide = start().window(2, 1, 2).window(3, 1, 2), start().window(2, 3, 2, 1).window(3, 3, 2, 1)
    joined = plain.join(wide, 4)
    assert joined.spans[2] == Span(0, Fraction(2), Fraction(-1), Fraction(1))
    assert start().join(wide, 4).mixed == {0, 1}


def test_reshape_keeps_axes_that_survive_alone():
    track = start()
    assert track.reshaped((1, 3, 8, 6), (3, 1, 8, 6)).spans[2:] == track.spans[2:]
    assert track.reshaped((1, 3, 8, 6), (1, 144)).mixed == {0, 1}
    split = track.reshaped((1, 3, 8, 6), (1, 3, 8, 2, 3))
    assert split.spans[2] == Span(0)
    assert split.mixed == {1}


def graph(tmp_path, nodes, weights, shape=(1, 2, 11, 11), name="g.onnx"):
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    inits = [onnx.numpy_helper.from_array(np.asarray(w, np.float32), k) for k, w in weights.items()]
    out = h.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, list(shape))], [out], inits)
    model = h.make_model(g, opset_imports=[h.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, tmp_path / name)
    return tmp_path / name


def small_graph(tmp_path, side=11):
    """Convolution, pooling, a residual block with dilation, padding SAME."""
    from onnx.helper import make_node

    rng = np.random.default_rng(0)
    nodes = [
        make_node("Conv", ["x", "a"], ["a1"], name="first", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
        make_node("Relu", ["a1"], ["a2"], name="relu"),
        make_node("Conv", ["a2", "b"], ["b1"], name="second", dilations=[2, 2], pads=[2, 2, 2, 2]),
        make_node("Add", ["a2", "b1"], ["c"], name="add"),
        make_node("MaxPool", ["c"], ["d"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        make_node("GlobalAveragePool", ["d"], ["out"], name="mean"),
    ]
    return graph(tmp_path, nodes, {"a": rng.random((4, 2, 3, 3)), "b": rng.random((4, 4, 3, 3))}, (1, 2, side, side))


def test_onnx_fields_are_exactly_the_pixels_that_matter(tmp_path):
    pytest.importorskip("onnxruntime")
    model = lens.as_model(small_graph(tmp_path, 23))
    assert model.image_shape == (23, 23, 2)
    names = ["first", "second", "add", "pool"]
    fields = {f.layer: f for f in lens.receptive_fields(model, names)}
    rng = np.random.default_rng(1)
    base = rng.random((23, 23, 2)).astype(np.float32)
    before = model.activations(base, names)
    touched = {n: np.zeros((*before[n].shape[2:], 23, 23), bool) for n in names}
    for r in range(23):
        for c in range(23):
            for high in (0.0, 40.0):
                moved = base.copy()
                moved[r, c] = high
                after = model.activations(moved, names)
                for n in names:
                    touched[n][:, :, r, c] |= (after[n] != before[n]).any((0, 1))
    exact = 0
    for n in names:
        for i in range(touched[n].shape[0]):
            for j in range(touched[n].shape[1]):
                top, bottom, left, right = fields[n].box(i, j)
                rows, columns = np.flatnonzero(touched[n][i, j].any(1)), np.flatnonzero(touched[n][i, j].any(0))
                seen = (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1)
                assert seen[0] >= top and seen[1] <= bottom and seen[2] >= left and seen[3] <= right
                if bottom - top == fields[n].size[0] and right - left == fields[n].size[1]:
                    exact += 1  # at the border, holes of a dilated kernel may fall on the padding
                    assert seen == (top, bottom, left, right)
    assert exact > 150
    assert lens.receptive_field(model, "mean").whole


def test_a_missing_layer_lists_the_others(tmp_path):
    model = lens.as_model(small_graph(tmp_path))
    with pytest.raises(InputError, match=r"did you mean 'second'\?.*first \(Conv\), relu \(Relu\)"):
        lens.receptive_field(model, "secnd")
    with pytest.raises(InputError, match="has no layer"):
        model.activations(np.zeros((11, 11, 2)), ["nothing"])


def test_real_residual_networks(data_folder):
    model = lens.as_model(data_folder / "nets/cifar10_resnet/onnx/resnet_2b.onnx")
    sizes = {f.layer: (f.size[0], f.jump[0]) for f in lens.receptive_fields(model)}
    assert sizes == {
        "Conv_0": (3, 2), "Conv_2": (7, 4), "Conv_4": (15, 4), "Conv_5": (3, 4), "Conv_8": (23, 4), "Conv_10": (31, 4),
    }  # fmt: skip
    assert lens.receptive_field(model, "Add_6").size == (15, 15)


VPT = [3, 5, 9, 13, 17, 21, 25, 29, 37, 45, 53, 61, 69, 77, 93, 109, 125, 141]


def test_the_vpt_stack_has_its_published_fields():
    pytest.importorskip("torch")
    model = lens.vpt_cnn(lens.vpt_policy("tiny", rng=0))
    fields = lens.receptive_fields(model)
    assert [f.size[0] for f in fields] == VPT
    assert [f.jump[0] for f in fields] == [1, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 8, 8, 8, 8]
    assert fields[0].norms == () and all("GroupNorm" in f.norms for f in fields[2:])
    assert lens.receptive_field(model, "dense").whole


@pytest.fixture(scope="module")
def odd_module():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Odd(nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.a = nn.Conv2d(2, 4, (3, 5), stride=(1, 2), padding=(1, 0))
            self.norm = norm
            self.b = nn.Conv2d(4, 4, 3, padding=2, dilation=2)
            self.pool = nn.AvgPool2d(2)
            self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
            self.last = nn.Conv2d(8, 3, 3, padding=1)

        def forward(self, x):
            a = self.norm(self.a(x)).relu_()
            b = a + self.b(a)
            if b.sum() > -1e30:  # control flow is no obstacle
                c = self.up(self.pool(b))
            return self.last(torch.cat([c, b[:, :, : c.shape[2], : c.shape[3]]], 1)).flatten(2).mean(2)

    torch.manual_seed(0)
    return Odd


@pytest.mark.parametrize("name", ["a", "b", "pool", "last"])
def test_torch_fields_hold_every_gradient(odd_module, name):
    torch = pytest.importorskip("torch")
    model = lens.as_model(odd_module(torch.nn.BatchNorm2d(4)), image_shape=(16, 23, 2))
    images = np.random.default_rng(0).random((4, 16, 23, 2))
    found = lens.effective_field(model, name, images)
    assert found.touched == 0
    assert found.inside == 1
    top, bottom, left, right = found.field.box(found.row, found.column)
    rows, columns = np.flatnonzero(found.heat.any(1)), np.flatnonzero(found.heat.any(0))
    slack = 2 if name == "last" else 0  # a transposed convolution's field depends on parity; the box covers both
    assert rows.min() - top <= slack and bottom - 1 - rows.max() <= slack
    assert columns.min() - left <= 2 * slack and right - 1 - columns.max() <= 2 * slack
    assert lens.receptive_field(model, "output").whole


@pytest.mark.parametrize("norm", ["GroupNorm", "InstanceNorm"])
def test_a_norm_over_positions_warns(odd_module, norm):
    nn = pytest.importorskip("torch").nn
    layer = nn.GroupNorm(2, 4) if norm == "GroupNorm" else nn.InstanceNorm2d(4)
    model = lens.as_model(odd_module(layer), image_shape=(16, 23, 2))
    images = np.random.default_rng(0).random((2, 16, 23, 2))
    assert lens.receptive_field(model, "a").norms == ()
    with pytest.warns(ReluscopeWarning, match=f"comes after {norm}"):
        found = lens.effective_field(model, "b", images)
    assert found.touched > 0.9
    assert 0.5 < found.inside < 1
