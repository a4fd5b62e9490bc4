"""The loader against onnxruntime, over generated graphs: the same numbers, or a refusal; never another function."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_graphs import MAKERS, Graph, random_graph, run, run_alone  # noqa: E402

from reluscope.errors import InputError, ReluscopeWarning, UnsupportedError  # noqa: E402
from reluscope.formats._onnx_ops import OPERATIONS  # noqa: E402
from reluscope.formats.onnx import load_onnx  # noqa: E402

REASONS = re.compile(
    r"runtimes compute differently"  # onnxruntime, the standard and its reference do not agree
    r"|does not fit into"  # a window larger than the data: onnxruntime rounds towards zero and makes one of it
    r"|must be finite|divides by zero|is infinite"
    r"|at least one entry|parts \[.*\] do not make up 0 entries"  # nothing is left
    r"|only 1-D and 2-D images"
    r"|multiplies two values that depend on the input"
    r"|slopes of shape \(1,\) do not broadcast to \(\)"  # by the standard they do not
)
"""Why the loader may refuse what onnxruntime runs."""


def compare(g: Graph) -> str:
    """How loader and runtime compare on one graph; fails where they give different numbers."""
    blob = g.model()
    there = run(blob, {"x": g.values["x"]})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReluscopeWarning)
            net = load_onnx(blob)
    except InputError as error:
        if isinstance(there, str):
            return "both refuse"
        assert REASONS.search(str(error)), str(error)
        return "only the loader refuses"
    if isinstance(there, str):
        # Node by node it ran, together it did not: onnxruntime contradicts itself (shapes under ceil_mode).
        assert not g.refused, there
        return "only onnxruntime refuses"
    for k in range(3):
        x = g.values["x"] if k == 0 else g.numbers(g.shape)
        y = there[0] if k == 0 else run(blob, {"x": x})[0]
        mine = net(x.reshape(1, -1).astype(np.float64))[0]
        assert mine.shape == (y.size,), (y.shape, net.output_shape)
        size = max(1.0, float(np.abs(y).max()))
        np.testing.assert_allclose(mine, y.ravel(), rtol=1e-5, atol=1e-5 * size)
        assert net.output_shape in (y.shape, y.shape[1:], (1,))
    return "equal"


def compare_all(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts[compare(random_graph(seed))] += 1
        except AssertionError as error:
            raise AssertionError(f"graph {seed}: {error}") from error
    print(dict(counts))
    assert counts["equal"] > 0.85 * len(seeds)
    assert counts["both refuse"] > 0
    assert counts["only the loader refuses"] + counts["only onnxruntime refuses"] < 0.05 * len(seeds)
    return counts


def test_every_operation_is_generated() -> None:
    assert set(MAKERS) == set(OPERATIONS)
    made = {node.op_type for seed in range(400) for node in random_graph(seed).nodes}
    assert not set(OPERATIONS) - made


def test_generated_graphs_agree_with_onnxruntime() -> None:
    compare_all(range(150))


@pytest.mark.slow
def test_many_generated_graphs_agree_with_onnxruntime() -> None:
    compare_all(range(1_000_000, 1_002_000))


def one_node(op: str, shape: tuple[int, ...], constants: tuple[Any, ...] = (), opset: int = 17, **attributes: Any):
    """A graph of one node on the input, and onnxruntime's answer to it (its complaint as text)."""
    g = Graph(0)
    g.opset, g.shape = opset, list(shape)
    g.values = {"x": np.arange(np.prod(shape)).reshape(shape).astype(np.float32)}
    names = ["x"]
    for i, value in enumerate(constants):
        g.values[f"c{i}"] = np.asarray(value)
        g.stored.append(onnx.numpy_helper.from_array(g.values[f"c{i}"], f"c{i}"))
        names.append(f"c{i}")
    outputs = attributes.pop("outputs", 1)
    node = onnx.helper.make_node(op, names, [f"v{i}" for i in range(outputs)], **attributes)
    g.nodes, g.wanted = [node], "v0"
    g.values["v0"] = g.values["x"]
    return g.model(), run_alone(node, {n: g.values[n] for n in names}, opset), g.values["x"]


F = np.float32


@pytest.mark.parametrize(
    ("op", "shape", "constants", "facts", "words"),
    [
        ("Flatten", (1, 2, 3), (), {"axis": 4}, "beyond the 3 axes"),
        ("Flatten", (1, 2, 3), (), {"axis": -4}, "beyond the 3 axes"),
        ("Split", (1, 5), (), {"axis": 1, "outputs": 2}, "equal parts"),
        ("Split", (1, 4), (), {"axis": 1, "outputs": 3, "num_outputs": 3, "opset": 18}, "equal parts"),
        ("Add", (1, 2), (np.ones(2),), {}, r"mixes the types tensor\(float\) and tensor\(double\)"),
        ("Concat", (1, 2), (np.ones((1, 2), np.int64),), {"axis": 1}, "mixes the types"),
        ("Gather", (1, 2), (np.array([0.0], F),), {}, "does not allow there"),
        ("Conv", (1, 1, 6), (np.ones((1, 1, 2), F),), {"auto_pad": "SAME_LOWER", "dilations": [2]}, "explicit pads"),
        ("Pad", (1, 2), (np.array([0, 0, 0, 2]),), {"mode": "reflect"}, "reflect more"),
        ("GlobalAveragePool", (1, 2), (), {}, "spatial axis"),
        ("Clip", (1, 2), (), {"min": 1.0, "max": 0.0, "opset": 9}, "above its upper bound"),
        ("Gemm", (1, 1), (np.ones((1, 1), F), np.ones(2, F)), {}, "does not broadcast"),
        ("ConvTranspose", (1, 1, 4), (np.ones((1, 1, 2), F),), {"output_padding": [1]}, "output_padding"),
    ],
)
def test_what_runtimes_refuse_is_refused(
    op: str, shape: Any, constants: Any, facts: dict[str, Any], words: str
) -> None:
    blob, there, _ = one_node(op, shape, constants, **facts)
    assert isinstance(there, str)  # a complaint
    with pytest.raises(InputError, match=words):
        load_onnx(blob)


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("auto", ["SAME_LOWER", "SAME_UPPER"])
def test_padding_that_runtimes_read_in_different_ways_is_refused(auto: str, ceil_mode: int) -> None:
    """onnxruntime forgets dilations in automatic padding, the standard does not: (4, 2) and (4, 4) entries here."""
    facts = {"kernel_shape": [1, 3], "dilations": [1, 2]}
    blob, there, _ = one_node("MaxPool", (1, 1, 4, 4), auto_pad=auto, ceil_mode=ceil_mode, **facts)
    assert there[0].shape == (1, 1, 4, 2)
    with pytest.raises(UnsupportedError, match="explicit pads"):
        load_onnx(blob)
    weight = np.ones((1, 1, 1, 2), F)
    blob, there, _ = one_node("ConvTranspose", (1, 1, 4, 3), (weight,), auto_pad=auto, strides=[1, 3])
    assert there[0].shape == (1, 1, 4, 8)  # and 9 by the text of the standard
    with pytest.raises(UnsupportedError, match="explicit pads"):
        load_onnx(blob)


@pytest.mark.parametrize("auto", ["SAME_LOWER", "SAME_UPPER"])
@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
def test_automatic_padding_that_all_agree_on(auto: str, kernel: int) -> None:
    weight = np.arange(1, kernel + 1, dtype=F).reshape(1, 1, kernel)
    for op, constants, more in (
        ("ConvTranspose", (weight,), {}),
        ("Conv", (weight,), {}),
        ("MaxPool", (), {"kernel_shape": [kernel], "ceil_mode": 1}),
        ("AveragePool", (), {"kernel_shape": [kernel]}),
    ):
        blob, there, x = one_node(op, (1, 1, 7), constants, auto_pad=auto, strides=[2], **more)
        np.testing.assert_allclose(load_onnx(blob)(x.reshape(1, -1))[0], there[0].ravel(), rtol=1e-6)
