"""Channels: strongest places, principal colours, overlays, dead channels, frames, one face for models."""

from __future__ import annotations

import numpy as np
import pytest
from test_lens_fields import small_graph

from reluscope import lens
from reluscope.errors import InputError
from reluscope.lens.channels import enlarge
from reluscope.lens.frames import data_uri, sprite


@pytest.fixture
def model(tmp_path):
    pytest.importorskip("onnxruntime")
    return lens.as_model(small_graph(tmp_path))


@pytest.fixture
def image():
    return np.random.default_rng(2).random((11, 11, 2)).astype(np.float32)


def test_strongest_counts_the_fields_over_each_pixel(model, image):
    found = lens.strongest(model, "second", image, k=9)
    maps = lens.channel_maps(model, "second", image)[0]
    assert np.allclose(found.values, np.sort(maps.ravel())[::-1][:9])
    heat = np.zeros((11, 11))
    for (c, r, s), value in zip(found.places, found.values, strict=True):
        assert maps[c, r, s] == np.float32(value)
        top, bottom, left, right = found.field.box(int(r), int(s))
        heat[top:bottom, left:right] += 1
    assert np.allclose(found.heat, heat)
    assert found.boxes().shape == (9, 4)
    one = lens.strongest(model, "second", image, k=5, channel=2)
    assert set(one.places[:, 0]) == {2}
    with pytest.raises(InputError, match="k must be"):
        lens.strongest(model, "second", image, k=0)


def test_colours_are_the_principal_components_with_one_sign(model):
    images = np.random.default_rng(0).random((6, 11, 11, 2))
    basis = lens.colour_basis(model, "first", images)
    flat = np.moveaxis(lens.channel_maps(model, "first", images).astype(float), 1, -1).reshape(-1, 4)
    _, s, vt = np.linalg.svd(flat - flat.mean(0), full_matrices=False)
    assert np.allclose(np.abs(np.diag(basis.directions @ vt[:3].T)), 1)
    assert np.allclose(basis.explained, (s**2 / (s**2).sum())[:3])
    assert all(row[np.abs(row).argmax()] > 0 for row in basis.directions)
    again = lens.colour_basis(model, "first", images[::-1])
    assert np.allclose(again.directions, basis.directions)
    pictures = basis.colours(lens.channel_maps(model, "first", images[:2]))
    assert pictures.shape == (2, 6, 6, 3)
    assert pictures.min() >= 0
    assert pictures.max() <= 1
    alone = basis.colours(lens.channel_maps(model, "first", images[1:2]))
    assert np.allclose(alone[0], pictures[1])


def test_overlay_leaves_quiet_pixels_grey_and_colours_active_ones():
    image = np.full((8, 8, 3), 0.5)
    maps = np.zeros((2, 4, 4))
    maps[0, 0, 0] = 3.0
    maps[1, 3, 3] = 1.0
    out = lens.overlay(image, maps, opacity=1.0)
    assert np.allclose(out[0, 7], 0.5)
    assert np.allclose(out[0, 0], [1, 0, 0], atol=0.05)
    assert out[7, 7, 0] < 0.1
    with pytest.raises(InputError, match="opacity"):
        lens.overlay(image, maps, opacity=2)


def test_enlarge_keeps_constants_and_means():
    assert np.allclose(enlarge(np.full((3, 4), 2.5), (9, 20)), 2.5)
    picture = np.random.default_rng(0).random((5, 5))
    assert enlarge(picture, (5, 5)) == pytest.approx(picture)


def test_dead_channels_are_listed(tmp_path):
    from onnx.helper import make_node
    from test_lens_fields import graph

    pytest.importorskip("onnxruntime")
    weights = np.zeros((3, 1, 1, 1))
    weights[:, 0, 0, 0] = [1, -1, 0]
    nodes = [
        make_node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        make_node("Relu", ["c"], ["out"], name="relu"),
    ]
    model = lens.as_model(graph(tmp_path, nodes, {"w": weights, "b": [0, -0.1, 2.0]}, (1, 1, 5, 5)))
    images = np.random.default_rng(0).random((3, 5, 5, 1))
    assert lens.dead_channels(model, "relu", images) == (1, 2)
    assert lens.dead_channels(model, "conv", images) == (2,)
    assert lens.kernels(model, "conv").shape == (3, 1, 1, 1)
    with pytest.raises(InputError, match="no weights"):
        lens.kernels(model, "relu")


def test_models_say_what_they_want(model, tmp_path):
    assert "11x11x2" in repr(model)
    with pytest.raises(InputError, match=r"images must have shape \(n, 11, 11, 2\)"):
        model.activations(np.zeros((5, 5, 2)), ["first"])
    with pytest.raises(InputError, match="finite"):
        model.activations(np.full((11, 11, 2), np.nan), ["first"])
    with pytest.raises(InputError, match="pickled modules run code"):
        lens.as_model("model.pt")
    with pytest.raises(InputError, match="torch module or the path"):
        lens.as_model(3)
    (tmp_path / "bad.onnx").write_bytes(b"\x01nonsense")
    with pytest.raises(InputError, match="not an ONNX file"):
        lens.as_model(tmp_path / "bad.onnx")


def test_preparation_is_arithmetic_on_pixels(tmp_path, image):
    path = small_graph(tmp_path)
    plain, prepared = lens.as_model(path), lens.as_model(path, scale=2.0, mean=(1.0, 0.5), std=(4.0, 2.0))
    wanted = plain.activations((2 * image - [1.0, 0.5]) / [4.0, 2.0], ["first"])["first"]
    assert np.allclose(prepared.activations(image, ["first"])["first"], wanted, atol=1e-6)


def test_frames_come_in_natural_order(tmp_path):
    picture = pytest.importorskip("PIL.Image")
    folder = tmp_path / "frames"
    folder.mkdir()
    for i in range(12):
        picture.fromarray(np.full((4, 6, 3), i * 10, np.uint8)).save(folder / f"f{i}.png")
    (folder / "notes.txt").write_text("no image")
    frames = lens.load_frames(folder)
    assert frames.shape == (12, 4, 6, 3)
    assert frames[:, 0, 0, 0].tolist() == [10 * i for i in range(12)]
    assert lens.load_frames(folder, every=5, shape=(2, 3, 1)).shape == (3, 2, 3, 1)
    np.savez(tmp_path / "a.npz", frames=frames, other=1)
    assert np.array_equal(lens.load_frames(tmp_path / "a.npz", most=7), frames[:7])
    (folder / "f3.png").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"f3\.png is not an image"):
        lens.load_frames(folder)
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="never read from files"):
        lens.load_frames(tmp_path / "o.npy")
    with pytest.raises(InputError, match="holds no images"):
        lens.load_frames(tmp_path)
    assert sprite(frames, 5).shape == (12, 30, 3)
    assert data_uri(frames[0]).startswith("data:image/png;base64,")


def test_real_vision_models_give_intermediate_values(data_folder):
    model = lens.as_model(data_folder / "nets/vit_2023/onnx/pgd_2_3_16.onnx")
    recording = lens.record_onnx(model, np.random.default_rng(0).random((32, 32, 3)))
    assert recording.weights.shape == (5, 6, 5)
    assert np.allclose(recording.weights.sum(2), 1, atol=1e-5)
    assert recording.heads == ("0.0", "0.1", "0.2", "1.0", "1.1", "1.2")
    assert recording.outputs.shape[:2] == (5, 6) and recording.error < 1e-5
    assert lens.record_onnx(model, np.zeros((32, 32, 3)), outputs=False).outputs is None


def test_heads_of_a_graph_keep_their_outputs(tmp_path):
    """Weights and outputs of a written-out attention of two heads over three positions, against numpy."""
    from onnx.helper import make_node
    from test_lens_fields import graph

    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    stored = {name: rng.normal(size=(1, 2, 4, 3)) for name in ("q", "k", "v")}
    nodes = [make_node("MatMul", ["x", name], [f"x{name}"], name=f"make {name}") for name in stored]
    nodes += [
        make_node("Transpose", ["xk"], ["kt"], perm=[0, 1, 3, 2]),
        make_node("MatMul", ["xq", "kt"], ["logits"]),
        make_node("Softmax", ["logits"], ["w"], name="attention", axis=-1),
        make_node("Identity", ["w"], ["w2"]),
        make_node("MatMul", ["w2", "xv"], ["out"], name="heads"),
    ]
    model = lens.as_model(graph(tmp_path, nodes, stored, (1, 2, 3, 4)))
    x = rng.random((2, 3, 4))  # as an image: two rows, three columns, four channels, passed on in this order
    found = lens.record_onnx(model, x[None])
    q, k, v = (x @ stored[name][0] for name in ("q", "k", "v"))
    logits = q @ k.transpose(0, 2, 1)
    weights = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(found.weights.transpose(1, 0, 2), weights, atol=1e-5)
    np.testing.assert_allclose(found.outputs.transpose(1, 0, 2), weights @ v, atol=1e-5)
    assert found.error < 1e-6
    again = lens.Recording(found.weights, found.heads, "sequence", found.outputs, None, 0.0)
    again.save(tmp_path / "kept")
    assert lens.load_recording(tmp_path / "kept").error == 0.0  # no error is not an unknown error


def test_the_command_writes_one_page(tmp_path, capsys):
    import json

    from onnx.helper import make_node
    from test_lens_fields import graph

    from reluscope.cli import main

    pytest.importorskip("onnxruntime")
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    nodes = [
        make_node("Conv", ["x", "a"], ["c"], name="conv"),
        make_node("Relu", ["c"], ["r"], name="relu"),
        make_node("Flatten", ["r"], ["out"], name="flat"),
    ]
    path = graph(tmp_path, nodes, {"a": rng.normal(size=(4, 3, 3, 3))}, ("n", 3, 12, 12))
    np.save(tmp_path / "frames.npy", rng.integers(0, 256, (5, 20, 20, 3), dtype=np.uint8))
    out = tmp_path / "page.html"
    assert main(["lens", str(path), "--images", str(tmp_path / "frames.npy"), "--out", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["images"] == 5 and facts["layers"] == ["conv"] and facts["heads"] == 0
    assert facts["bytes"] == out.stat().st_size
    assert out.read_text("utf-8").count("<figure>") == 5
    assert main(["lens", str(path), "--images", str(tmp_path / "frames.npy"), "--layer", "cnv", "--out", str(out)]) == 2
    assert "did you mean 'conv'" in capsys.readouterr().err
    assert main(["lens", "m.pt", "--images", str(tmp_path / "frames.npy")]) == 2


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    from onnx.helper import make_node
    from test_lens_fields import graph

    from reluscope.cli import main

    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    np.save(tmp_path / "frames.npy", rng.integers(0, 256, (2, 9, 9, 3), dtype=np.uint8))
    images = ["--images", str(tmp_path / "frames.npy"), "--out", str(tmp_path / "page.html")]
    conv = [make_node("Conv", ["x", "a"], ["out"], name="conv")]
    weight = {"a": rng.normal(size=(2, 3, 3, 3))}
    fixed = str(graph(tmp_path, conv, weight, ("n", 3, 12, 12)))

    def answer(*words):
        assert main(["lens", *words]) == 2
        return capsys.readouterr().err

    assert "there is no folder or file" in answer(fixed, "--images", str(tmp_path / "nowhere"))
    assert "mean must hold one number or one per channel (3 for" in answer(fixed, *images, "--mean", "1,2")
    assert "--shape takes height,width,channels" in answer(fixed, *images, "--shape", "12,12")
    flat = str(graph(tmp_path, [make_node("Relu", ["x"], ["out"], name="r")], {}, ("n", 243)))
    assert "does not say how large an image is" in answer(flat, *images)
    assert "nothing to picture" in answer(flat, *images, "--shape", "9,9,3")
    open_size = str(graph(tmp_path, conv, weight, ("n", 3, "h", "w")))
    assert "takes (?, 3, ?, ?), which does not say" in answer(open_size, *images)
    assert main(["lens", open_size, *images, "--shape", "12,14,3"]) == 0
    assert "2 images of 12 x 14 x 3" in capsys.readouterr().out
