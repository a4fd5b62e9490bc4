"""Chapter 5 of Hamidi's thesis: heads and filters of the agent VPT.

The trained weights and the game are not part of this project. So three things are set beside what is printed: the
sizes of the agent, built here from its published arguments; the patterns that the thesis names head by head, planted
in attention with noise and given to the detectors; and every figure that needs no game, drawn from an agent with random
weights on a synthetic video. The last show the instruments, and say nothing about VPT.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, generator
from reluscope._extras import require
from reluscope.progress import meter
from reluscope.reproduce import Reproduction

_PLANTED = {
    "0.9": ("previous frame", "0.9 and 1.9 look at the previous frame (Figures 5.3, 5.6)"),
    "1.2": ("every 4th frame", "1.2 mostly looks at every 4th frame (Figures 5.7, 5.10)"),
    "2.2": ("two modes", "2.2 has two modes: some frames of the past, or the last one (Figure 5.2)"),
    "2.13": ("current frame", "2.13 and 3.13 look at the current frame (Figure 5.3)"),
    "all": ("last frames", "the past 3-4 frames are always attended to (Figure 5.2, bottom)"),
    "keys": ("key frame", "some key frames, seen as diagonal lines (Figure 5.2, bottom)"),
}
"""Heads that the thesis names, the pattern our detectors should find in them, and its words."""


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """Count, detect what was planted, draw the figures."""
    torch = require("torch", "torch")
    require("matplotlib", "plot")
    rng = generator(rng)
    trials = 20 if quick else 200
    with meter(progress, "lens") as report:
        rows = [*_sizes(torch), *_planted(trials, rng)]
        report(1, "patterns")
        files, error = _figures(folder, "tiny" if quick else "1x", 40 if quick else 160, rng, report)
    remarks = [
        f"patterns: planted in attention over 240 frames with 1 % noise, {trials} recordings; found means that the "
        "detector names the pattern at its usual threshold",
        "recorded weights times values against the heads' own outputs: largest relative difference "
        f"{error:.1e} (float32)",
        "pictures are of random weights on a synthetic video: they show what each figure shows, not what VPT learned",
        "Figure 5.5 needs the game",
        f"pictures in {folder}/: {', '.join(files)}",
    ]
    return Reproduction("lens", rows, remarks, files, ("thesis",))


def _sizes(torch: Any) -> list[dict[str, Any]]:
    """What the thesis says about the agent, and what its published arguments make."""
    from reluscope.lens.vpt import SIZES, count_parameters

    big = SIZES["2x"]
    count = count_parameters(big, torch) / 1e6
    return [
        {"what": "parameters of VPT", "thesis": "250 million", "here": f"{count:.1f} million (2x)"},
        {
            "what": "attention layers x heads",
            "thesis": "4 x 16",
            "here": f"{big['n_recurrence_layers']} x {big['attention_heads']}",
        },
        {
            "what": "frames a head can see",
            "thesis": "128",
            "here": str(big["attention_memory_size"] - big["timesteps"]),
        },
        {"what": "outputs of a head (Figure 5.4)", "thesis": "128", "here": str(big["hidsize"] // 16)},
        {"what": "channels of the last convolutions (Figure 5.18)", "thesis": "256", "here": str(32 * 8)},
    ]


def _planted(trials: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """How often each pattern that the thesis names is found where it was planted, and where nothing was."""
    from reluscope.lens.attention import Recording
    from reluscope.lens.heads import detect_patterns

    found = dict.fromkeys(_PLANTED, 0)
    false = 0
    for _ in range(trials):
        weights = np.stack([*(_attention(name, rng) for name in _PLANTED), _attention("", rng)], axis=1)
        recording = Recording(weights.astype(np.float32), (*_PLANTED, "noise"), "memory")
        patterns = detect_patterns(recording)
        for name, (pattern, _) in _PLANTED.items():
            found[name] += pattern in patterns[name].detected()
        false += bool(patterns["noise"].detected())
    rows = [
        {"what": f"pattern: {pattern}", "thesis": words, "here": f"found in {found[name]} of {trials}"}
        for name, (pattern, words) in _PLANTED.items()
    ]
    return [*rows, {"what": "pattern: none planted", "thesis": "", "here": f"found in {false} of {trials}"}]


def _attention(name: str, rng: np.random.Generator, steps: int = 240, memory: int = 48) -> FloatArray:
    """Weights (steps, memory) by lag with one of the patterns, noise of 1 % beside it."""
    weights = rng.random((steps, memory)) ** 2 * 0.01
    up = (np.arange(steps) // 40) % 2 == 1
    for t in range(steps):
        if name == "0.9":
            weights[t, 1] += 1
        elif name == "1.2":
            weights[t, 4 : t + 1 : 4] += 0.2
        elif name == "2.2":
            weights[t, 0 if up[t] else 20] += 1
        elif name == "2.13":
            weights[t, 0] += 1
        elif name == "all":
            weights[t, :4] += 1
        elif name == "keys" and t >= 15:
            key = 15 + 60 * ((t - 15) // 60)
            weights[t, min(t - key, memory - 1)] += 1
        weights[t, t + 1 :] = 0
        weights[t] /= weights[t].sum()
    return weights


def _video(frames: int, side: int) -> npt.NDArray[np.uint8]:
    """A bright square that crosses a landscape of two colours; every 40 frames a panel opens for ten."""
    y, x = np.mgrid[:side, :side] / side
    out = np.empty((frames, side, side, 3), np.uint8)
    for t in range(frames):
        sky = (y < 0.5 + 0.06 * np.sin(6 * x + t / 9))[..., None]
        picture = np.where(sky, [110, 160, 230], [90, 140, 60]) + 12 * np.sin(40 * x + 23 * y)[..., None]
        left = (t / 50) % 1
        inside = (np.abs(x - left) < 0.1) & (np.abs(y - 0.6) < 0.15)
        picture[inside] = [200, 120, 40]
        if t % 40 >= 30:
            panel = (np.abs(x - 0.5) < 0.3) & (np.abs(y - 0.5) < 0.3)
            picture[panel] = 190 + 30 * (np.floor(x * 12) + np.floor(y * 12))[panel, None] % 60
        out[t] = picture.clip(0, 255)
    return out


def _figures(folder: Path, size: str, frames: int, rng: np.random.Generator, report: Any) -> tuple[list[str], float]:
    """Every figure that needs no game; also the error of the recording."""
    from reluscope.lens import attention, channels, filters, vpt
    from reluscope.plot import lens as plot
    from reluscope.plot._axes import save

    policy = vpt.vpt_policy(size, rng=int(rng.integers(2**31)))
    model = vpt.vpt_cnn(policy, f"VPT {size}")
    video = _video(frames, model.image_shape[0])
    recording = attention.record_stream(policy, video, outputs=True, chunk=16)
    report(2, "recorded")
    layers = model.convolutions()
    first, fifth, sixth = layers[0], layers[min(4, len(layers) - 1)], layers[min(5, len(layers) - 1)]
    per_layer = len(recording.heads) // 4
    head, step = recording.heads[2 * per_layer + 2], frames * 3 // 4
    image = video[step]
    maps = channels.channel_maps(model, sixth, image[None])[0]
    basis = channels.colour_basis(model, fifth, video[::4])
    colours = np.asarray(basis.colours(channels.channel_maps(model, fifth, image[None])))
    few = 4 if size == "tiny" else 12
    shown: dict[str, Any] = {
        "5.2": lambda: plot.plot_trajectory(recording, video, head),
        "5.3": lambda: plot.plot_attended(recording, video, step),
        "5.4": lambda: plot.plot_z_scores(recording, head),
        **{
            f"5.{6 + k}": lambda k=k: plot.plot_heads(recording, recording.heads[k * per_layer : (k + 1) * per_layer])
            for k in range(4)
        },
        "5.12": lambda: plot.plot_pictures(_optimised(filters, model, fifth, few), title=f"filters of {fifth}"),
        "5.13": lambda: plot.plot_pictures(_optimised(filters, model, first, few), title=f"filters of {first}"),
        "5.15": lambda: plot.plot_strongest(channels.strongest(model, sixth, image, k=500), image),
        "5.16": lambda: plot.plot_pictures(colours, title=f"three principal colours of {fifth}"),
        "5.17": lambda: plot.plot_pictures(channels.overlay(image, maps)[None], title=f"overlay of {sixth}"),
        "5.18": lambda: plot.plot_channels(maps, title=f"all {len(maps)} channels of {sixth}"),
    }
    files = []
    for number, draw in shown.items():
        save(np.ravel(np.asarray(draw(), dtype=object))[0], folder / f"figure-{number}.png")
        files.append(f"figure-{number}.png")
        report(2 + len(files), files[-1])
    return files, recording.error


def _optimised(filters: Any, model: Any, layer: str, count: int) -> FloatArray:
    """Images that drive the first channels of a layer."""
    found = [filters.visualise(model, filters.channel(layer, k), steps=48, rng=k).images[0] for k in range(count)]
    return np.asarray(found)
