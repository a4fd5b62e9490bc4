"""The VPT architecture: names and sizes, memory, safe loading, random weights."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

from reluscope import lens
from reluscope.errors import InputError, InputLimitError
from reluscope.lens import attention
from reluscope.lens.vpt import SIZES, read_model_file

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def tiny():
    return lens.vpt_policy("tiny", rng=0)


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(0).integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)


def test_sizes_and_names_are_the_published_ones():
    from reluscope.lens._vpt_net import Policy

    totals = {}
    for size in ("1x", "2x", "3x"):
        with torch.device("meta"):
            policy = Policy(SIZES[size], 2.0, 121, 8641)
        totals[size] = round(sum(p.numel() for p in policy.parameters()) / 1e6, 1)
        state = {k: tuple(v.shape) for k, v in policy.state_dict().items()}
        assert len(state) == 134
        if size == "2x":
            block = "net.recurrent_layer.blocks.3."
            wanted = {
                "net.img_process.cnn.stacks.0.firstconv.layer.weight": (128, 3, 3, 3),
                "net.img_process.cnn.stacks.0.firstconv.layer.bias": (128,),
                "net.img_process.cnn.stacks.1.firstconv.layer.weight": (256, 128, 3, 3),
                "net.img_process.cnn.stacks.2.blocks.1.conv1.layer.weight": (256, 256, 3, 3),
                "net.img_process.cnn.stacks.1.firstconv.norm.weight": (128,),
                "net.img_process.cnn.dense.layer.weight": (256, 65536),
                "net.img_process.linear.layer.weight": (2048, 256),
                block + "r.orc_block.q_layer.bias": (2048,),
                block + "r.orc_block.r_layer.weight": (160, 2048),
                block + "r.orc_block.b_nd": (10, 128),
                block + "mlp0.layer.weight": (8192, 2048),
                block + "mlp1.layer.bias": (2048,),
                "net.lastlayer.layer.weight": (2048, 2048),
                "pi_head.camera.linear_layer.weight": (121, 2048),
                "pi_head.buttons.linear_layer.weight": (8641, 2048),
                "value_head.linear.weight": (1, 2048),
            }
            assert {k: state[k] for k in wanted} == wanted
            assert block + "r.orc_block.k_layer.bias" not in state
            assert "net.img_process.cnn.stacks.0.firstconv.norm.weight" not in state
    assert totals == {"1x": 71.3, "2x": 248.5, "3x": 531.5}


def test_the_memory_makes_chunks_irrelevant_and_ends(tiny, frames):
    by_one = lens.record_stream(tiny, frames, chunk=1, outputs=True)
    at_once = lens.record_stream(tiny, frames, chunk=50, outputs=True)
    assert by_one.weights.shape == (50, 16, 16)
    assert np.allclose(by_one.weights, at_once.weights, atol=1e-5)
    assert np.allclose(by_one.outputs, at_once.outputs, atol=1e-4)
    assert np.allclose(by_one.weights.sum(2), 1, atol=1e-5)
    # The heads' own outputs against what the recorded weights make of the values of each frame: float32, 16 terms.
    for made in (by_one, at_once, lens.record_stream(tiny, frames, chunk=7)):
        assert 0 < made.error < 1e-5
    for t in range(16):
        assert by_one.weights[t, :, t + 1 :].max(initial=0) == 0
    other = frames.copy()
    other[10] = 255 - other[10]
    moved = lens.record_stream(tiny, other)
    assert np.array_equal(moved.weights[:10], lens.record_stream(tiny, frames).weights[:10])
    assert np.abs(moved.weights[10] - at_once.weights[10]).max() > 1e-7


def test_lags_in_a_wrong_order_would_be_seen(tiny, frames, monkeypatch):
    right = attention._by_lag
    monkeypatch.setattr(attention, "_by_lag", lambda *given: right(*given)[:, :, ::-1])
    assert lens.record_stream(tiny, frames).error > 0.1


def test_attention_is_softmax_of_qk_over_e_with_a_relative_bias(tiny):
    """One step by hand, in float64, from the parameters."""
    layer = tiny.net.recurrent_layer.blocks[1].r.orc_block
    x = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    double = lens.vpt_policy("tiny", rng=0).double().net.recurrent_layer.blocks[1].r.orc_block
    keys = torch.cat([torch.zeros(1, 16, 32, dtype=torch.float64), double.k_layer(x)], 1)
    valid = torch.tensor([[False] * 16 + [True] * 3])
    weights = double.weights(x, keys, valid)[0].detach().numpy()
    p = {k: v.double().numpy() for k, v in layer.state_dict().items()}
    rows = x[0].numpy()
    q, k = rows @ p["q_layer.weight"].T + p["q_layer.bias"], rows @ p["k_layer.weight"].T
    r = rows @ p["r_layer.weight"].T + p["r_layer.bias"]
    for h in range(4):
        e, n = slice(8 * h, 8 * h + 8), slice(10 * h, 10 * h + 10)
        for t in range(3):
            logits = np.array([q[t, e] @ k[s, e] / 8 + r[t, n] @ p["b_nd"][:, t - s] for s in range(t + 1)])
            wanted = np.exp(logits - logits.max())
            assert np.allclose(weights[h, t, 16 : 17 + t], wanted / wanted.sum(), atol=1e-6)


def test_ablation_of_a_policy_measures_its_actions(tiny, frames):
    x = torch.from_numpy(frames[:6].astype(np.float32) / 255)[None]
    found = lens.ablate_heads(tiny, x, heads=["0.1", "3.2"])
    assert found.kl.shape == (2, 6)
    with torch.no_grad():
        p = tiny(x)[0]
        layer = tiny.net.recurrent_layer.blocks[3].r.orc_block
        handle = layer.proj_layer.register_forward_pre_hook(
            lambda m, a: (torch.cat([a[0][..., :16], torch.zeros_like(a[0][..., 16:24]), a[0][..., 24:]], -1),)
        )
        q = tiny(x)[0]
        handle.remove()
    wanted = sum((p[k].double().exp() * (p[k].double() - q[k].double())).sum(-1) for k in ("camera", "buttons"))
    assert np.allclose(found.kl[1], wanted[0].numpy(), atol=1e-6)


def test_random_weights_are_reproducible():
    a, b = lens.vpt_policy("tiny", rng=5), lens.vpt_policy("tiny", rng=5)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    with pytest.raises(InputError, match="size must be one of"):
        lens.vpt_policy("4x")


def arguments():
    return {k: v for k, v in SIZES["tiny"].items() if k not in ("post_pool_groups", "group_norm_groups")} | {
        "recurrence_type": "transformer",
        "use_pre_lstm_ln": False,
        "impala_kwargs": {"post_pool_groups": 1},
        "init_norm_kwargs": {"batch_norm": False, "group_norm_groups": 1},
    }


def model_file(path, net=None):
    data = {"model": {"args": {"net": {"args": net or arguments()}, "pi_head_opts": {"temperature": 2.0}}}}
    path.write_bytes(pickle.dumps(data))
    return path


def test_files_are_loaded_and_keys_reported(tmp_path, frames):
    path = model_file(tmp_path / "a.model")
    policy, report = lens.load_vpt(path)
    assert len(report.missing) == 134 and policy.temperature == 2.0
    state = policy.state_dict()
    changed = {k: v + 0.5 for k, v in state.items()}
    torch.save(changed, tmp_path / "a.weights")
    loaded, report = lens.load_vpt(path, tmp_path / "a.weights")
    assert report.complete and len(report.loaded) == 134
    assert all(torch.equal(v, changed[k]) for k, v in loaded.state_dict().items())
    del changed["net.final_ln.weight"]
    changed["net.extra"] = torch.zeros(2)
    changed["net.final_ln.bias"] = torch.zeros(3)
    torch.save(changed, tmp_path / "b.weights")
    wanted = r"1 missing: net\.final_ln\.weight; 1 not expected: net\.extra; 1 of the wrong shape: net\.final_ln\.bias"
    with pytest.raises(InputError, match=wanted):
        lens.load_vpt(path, tmp_path / "b.weights")
    _, report = lens.load_vpt(path, tmp_path / "b.weights", strict=False)
    assert re.search(wanted, str(report)) and not report.complete


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_model_file_can_run_nothing(tmp_path):
    mark = tmp_path / "mark"
    (tmp_path / "e.model").write_bytes(pickle.dumps({"model": Evil(mark)}))
    with pytest.raises(InputError, match="only plain containers"):
        read_model_file(tmp_path / "e.model")
    assert not mark.exists()
    torch.save({"a": Evil(mark)}, tmp_path / "e.weights")
    with pytest.raises(InputError, match="plain state dict"):
        lens.load_vpt(model_file(tmp_path / "ok.model"), tmp_path / "e.weights")
    assert not mark.exists()
    (tmp_path / "n.model").write_bytes(b"not a pickle")
    with pytest.raises(InputError, match=r"n\.model does not hold plain data"):
        read_model_file(tmp_path / "n.model")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidsize", 10**9), ("hidsize", -1), ("hidsize", "many"), ("hidsize", 1.5), ("n_recurrence_layers", 10**12),
        ("impala_width", float("inf")), ("impala_width", None), ("impala_chans", []), ("impala_chans", [1] * 100),
        ("impala_chans", {"a": 1}), ("img_shape", [128, 128]), ("img_shape", [10**9, 128, 3]), ("timesteps", True),
    ],
)  # fmt: skip
def test_a_model_file_cannot_ask_for_anything(tmp_path, name, value):
    """A key with a value that would fill the memory, or is no number at all, is refused by its name."""
    arguments = dict(SIZES["tiny"]) | {name: value}
    (tmp_path / "h.model").write_bytes(pickle.dumps({"model": {"args": {"net": {"args": arguments}}}}))
    with pytest.raises(InputError, match=name):
        lens.load_vpt(tmp_path / "h.model")


def test_a_model_larger_than_the_limits_is_refused_before_it_is_built(tmp_path):
    for size in ("2x", "3x"):
        (tmp_path / "l.model").write_bytes(pickle.dumps({"model": {"args": {"net": {"args": SIZES[size]}}}}))
        with pytest.raises(InputLimitError, match=r"l\.model, as a model, has .* bytes.*limits="):
            lens.load_vpt(tmp_path / "l.model")


def test_the_cache_is_found_again_and_belongs_to_its_frames(tiny, frames, tmp_path):
    first = lens.record_stream(tiny, frames, cache=tmp_path / "c")
    files = sorted((tmp_path / "c").iterdir())
    times = [f.stat().st_mtime_ns for f in files]
    again = lens.record_stream(tiny, frames, cache=tmp_path / "c")
    assert [f.stat().st_mtime_ns for f in files] == times
    assert np.array_equal(first.weights, again.weights)
    assert (tmp_path / "c" / "weights.bin").stat().st_size == 50 * 16 * 16 * 2
    with pytest.raises(InputError, match="another model or other frames"):
        lens.record_stream(tiny, frames[:20], cache=tmp_path / "c")


def test_random_agents_have_no_patterns(tiny, frames):
    assert lens.detect_patterns(lens.record_stream(tiny, frames)).detected() == {}


PLAIN = [
    None, True, 0, -1, 255, 65536, -(2**40), 2**200, 1.5, "text", "ü" * 300, b"ab",
    [], [1, [2, []]], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {}, {"a": {"b": [1, (2, {"c"})]}}, list(range(3000)),
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_is_read_as_it_was_written(protocol):
    from reluscope.lens._plain_data import read_plain

    shared = [1, 2]
    for value in [*PLAIN, {"x": shared, "y": shared}]:
        if protocol < 4 and ("c" in str(value) or isinstance(value, bytes)):
            continue  # sets and bytes are calls in the old protocols
        assert read_plain(pickle.dumps(value, protocol), "f") == value


def test_damaged_data_is_refused():
    from reluscope.lens._plain_data import read_plain

    whole = pickle.dumps(arguments())
    for end in range(len(whole)):
        with pytest.raises(InputError):
            read_plain(whole[:end], "f")
    for value in (Evil("x"), np.float32(1), complex(1), np.zeros(2), range(3), Evil):
        with pytest.raises(InputError, match="only plain containers"):
            read_plain(pickle.dumps(value), "f")
