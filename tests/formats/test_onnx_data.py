"""Real networks against onnxruntime. Needs the folder of networks named by RELUSCOPE_DATA."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from reluscope.errors import UnsupportedError
from reluscope.formats.onnx import load_onnx, save_onnx

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.needs_data

FOLDER = Path(os.environ.get("RELUSCOPE_DATA", "")) / "nets"
NETS = sorted(p.relative_to(FOLDER) for p in FOLDER.rglob("*.onnx")) if os.environ.get("RELUSCOPE_DATA") else []

# What the shipped properties say about the inputs of each family; pixels in [0, 1] otherwise.
RANGES = {
    "acasxu": (-0.5, 0.5),
    "cifar10_resnet": (-2.4, 2.7),
    "oval21": (-2.4, 2.7),
    "reach_prob_density": (-2.5, 2.5),
    "rl_benchmarks": (-1.0, 1.5),
    "safenlp_2024": (-0.5, 0.5),
    "test": (-1.0, 1.0),
    "tllverifybench": (-2.0, 2.0),
}

CURVED = {
    "lsnc_relu/onnx/relu_quadrotor2d_state.onnx": r"node 75 of 93 \(Mul '/lyapunov/Mul'",
    "marabou/onnx/self-attention-mnist-pgd-medium-sim.onnx": r"node 29 of 50 \(MatMul 'MatMul__102'",
    "vit_2023/onnx/ibp_3_3_8.onnx": r"node 52 of 189 \(MatMul '/1/1.0/1.0.0/fn/fn.1/MatMul'",
    "vit_2023/onnx/pgd_2_3_16.onnx": r"node 52 of 133 \(MatMul '/1/1.0/1.0.0/fn/fn.1/MatMul'",
}


def compare(path, net, family):
    low, high = RANGES.get(family, (0.0, 1.0))
    X = np.random.default_rng(0).uniform(low, high, size=(100, net.n_inputs)).astype(np.float32)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    takes = session.get_inputs()[0]
    shape = [n if isinstance(n, int) else 1 for n in takes.shape]
    expected = np.array([session.run(None, {takes.name: x.reshape(shape)})[0].ravel() for x in X])
    np.testing.assert_allclose(net(X), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", [str(n) for n in NETS if str(n) not in CURVED])
def test_network_agrees_with_onnxruntime(name):
    net = load_onnx(FOLDER / name)
    assert net.name == Path(name).stem
    compare(FOLDER / name, net, name.split("/")[0])


@pytest.mark.parametrize("name", [n for n in CURVED if Path(n) in NETS])
def test_curved_network_is_refused_naming_the_node(name):
    with pytest.raises(UnsupportedError, match=CURVED[name]):
        load_onnx(FOLDER / name)


def test_known_widths(data_folder):
    nets = data_folder / "nets"
    acas = load_onnx(nets / "acasxu/onnx/ACASXU_run2a_1_1_batch_2000.onnx")
    assert acas.widths == (5, 50, 50, 50, 50, 50, 50, 5)
    assert (acas.input_shape, acas.output_shape) == ((1, 1, 5), (5,))
    resnet = load_onnx(nets / "cifar10_resnet/onnx/resnet_2b.onnx")
    relus = [int((layer.units.pieces == 2).sum()) for layer in resnet.hidden]
    assert relus == [2048, 1024, 1024, 1024, 1024, 100]
    tiny = load_onnx(nets / "test/onnx/test_small.onnx")
    assert (tiny.input_shape, tiny.widths) == ((1,), (1, 2, 2, 1))


def test_a_wide_convolutional_network_loads_quickly_and_small(data_folder):
    data = (data_folder / "nets/oval21/onnx/cifar_wide_kw.onnx").read_bytes()
    tracemalloc.start()
    start = time.process_time()
    load_onnx(data)
    seconds, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 10.0
    assert peak < 500e6


def test_a_real_network_survives_writing(data_folder, tmp_path):
    net = load_onnx(data_folder / "nets/acasxu/onnx/ACASXU_run2a_2_1_batch_2000.onnx")
    save_onnx(net, tmp_path / "again.onnx")
    again = load_onnx(tmp_path / "again.onnx")
    X = np.random.default_rng(1).uniform(-0.5, 0.5, size=(200, 5))
    np.testing.assert_allclose(again(X), net(X), rtol=1e-12, atol=1e-12)
    assert (again.pattern(X) == net.pattern(X)).all()
