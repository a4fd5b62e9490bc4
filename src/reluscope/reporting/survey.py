"""Everything about one model and one set of images, on one page: what `reluscope lens` does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from reluscope.errors import InputError, ReluscopeError
from reluscope.lens.attention import Recording, record_onnx, record_stream
from reluscope.lens.channels import channel_maps, colour_basis, dead_channels, kernels, overlay, strongest
from reluscope.lens.frames import as_bytes, load_frames, resize
from reluscope.lens.heads import detect_patterns
from reluscope.lens.models import Model, OnnxModel, as_model
from reluscope.lens.receptive import receptive_fields
from reluscope.lens.study import write_study


def survey(
    model: str | PathLike[str],
    images: str | PathLike[str],
    out: str | PathLike[str],
    *,
    weights: str | PathLike[str] | None = None,
    layers: Sequence[str] | None = None,
    top: int = 500,
    filters: int = 0,
    attributed: int = 0,
    most: int = 1000,
    image_shape: Sequence[int] | None = None,
    scale: float = 1.0,
    mean: tuple[float, ...] = (0.0,),
    std: tuple[float, ...] = (1.0,),
    bgr: bool = False,
    cache: str | PathLike[str] | None = None,
) -> tuple[dict[str, Any], str]:
    """Write the page; returns facts for a program and a text for a person."""
    policy, notes = _policy(str(model), weights)
    recording: Recording | None = None
    if policy is not None:
        from reluscope.lens.vpt import vpt_cnn

        seen: Model = vpt_cnn(policy, Path(str(model)).name)
        frames = load_frames(images, shape=seen.image_shape, most=most)
        recording = record_stream(policy, frames, cache=cache, progress="auto")
        shown = frames
    else:
        seen = as_model(model, image_shape=image_shape, scale=scale, mean=mean, std=std, bgr=bgr)
        frames = load_frames(images, shape=seen.image_shape, most=most)
        recording, shown = _image_attention(seen, frames)
    notes.append(f"{seen.label}: {len(frames):,} images of {' x '.join(map(str, seen.image_shape))}.")
    chosen = list(layers) if layers else _three(seen.convolutions())
    if not chosen and recording is None:
        raise InputError(
            f"{seen.label} has no convolution and no attention over positions, so there is nothing to picture; "
            "`reluscope layers` and `reluscope report` are about networks of flat vectors"
        )
    if filters and find_spec("torch") is None:
        notes.append("Filters by optimisation need torch, which is not installed: pip install 'reluscope[torch]'.")
    pictures = [p for layer in chosen for p in _layer_pictures(seen, layer, frames, top, filters)]
    if attributed and (policy is not None or find_spec("torch") is None):
        why = "that is for models of images" if policy is not None else "torch is not installed"
        notes.append(f"Nothing is attributed: {why}.")
    elif attributed:
        pictures += [_attributed(seen, frames[i : i + 1], i, notes) for i in range(min(attributed, len(frames)))]
    over_time = recording is not None and recording.kind == "memory" and recording.steps >= 8
    patterns = detect_patterns(recording) if recording is not None and over_time else None
    if recording is not None and recording.kind == "sequence":
        notes.append(
            "Attention is that of the first image; positions are its patches (the class token shows it whole)."
        )
        if shown is not None:
            from reluscope.plot.lens import plot_on_image

            text = "What each head looks at from the first position, as heat over the image; the share on patches."
            pictures.insert(0, (text, plot_on_image(recording, frames[0])))
    size = write_study(
        out,
        title=f"Lens: {seen.label}",
        recording=recording,
        frames=shown,
        patterns=patterns,
        pictures=pictures,
        notes=notes,
    )
    found = {} if patterns is None else patterns.detected()
    facts: dict[str, Any] = {
        "model": seen.label,
        "images": len(frames),
        "layers": chosen,
        "heads": 0 if recording is None else len(recording.heads),
        "patterns": {head: list(names) for head, names in found.items()},
        "page": str(out),
        "bytes": size,
    }
    lines = [*notes, f"{len(pictures)} pictures of {', '.join(chosen) or 'no convolution'}"]
    lines += [f"head {head}: {', '.join(names)}" for head, names in list(found.items())[:20]]
    lines.append(f"wrote {out} ({size / 1e6:.1f} MB)")
    return facts, "\n".join(lines)


def _policy(model: str, weights: Any) -> tuple[Any, list[str]]:
    from reluscope.lens.vpt import load_vpt, vpt_policy

    if model.startswith("vpt:"):
        return vpt_policy(model[4:], rng=0), [
            f"VPT {model[4:]} with random weights: patterns mean nothing about the agent."
        ]
    if model.endswith(".model"):
        policy, report = load_vpt(model, weights, strict=False)
        note = "no weights were given, so they are random" if weights is None else str(report)
        return policy, [f"VPT: {note}."]
    if weights is not None:
        raise InputError("weights go with a VPT .model file")
    return None, []


def _image_attention(model: Model, frames: Any) -> tuple[Recording | None, Any]:
    """Attention of a vision transformer on the first image, with its patches as frames."""
    if not isinstance(model, OnnxModel) or not model.taps.attention_layers():
        return None, None
    try:
        recording = record_onnx(model, frames[:1])
    except InputError:
        return None, None
    return recording, patches(frames[0], recording.weights.shape[2])


def patches(image: Any, tokens: int) -> Any:
    """An image cut into `tokens` patches; with one more token than a square, the whole image comes first."""
    picture = as_bytes(np.asarray(image)[None])[0]
    side = math.isqrt(tokens)
    whole = side * side != tokens
    if whole:
        side = math.isqrt(tokens - 1)
        if side * side != tokens - 1:
            return None
    h, w = picture.shape[0] // side, picture.shape[1] // side
    cut = [picture[i * h : (i + 1) * h, j * w : (j + 1) * w] for i in range(side) for j in range(side)]
    first = [resize(picture[None], (h, w))[0]] if whole else []
    return np.stack(first + cut)


def _attributed(model: Model, image: Any, number: int, notes: list[str]) -> tuple[str, Any]:
    """What the largest output for one image is due to, by every method that can say it."""
    from reluscope.lens.attribution import attribute
    from reluscope.plot.lens import plot_attributions

    output = model.activations(image, ["output"])["output"][0]
    target = tuple(int(i) for i in np.unravel_index(int(output.argmax()), output.shape))
    side = max(1, min(model.image_shape[:2]) // 8)
    asked: dict[str, dict[str, Any]] = {
        "exact": {},
        "integrated_gradients": {"steps": 128},
        "occlusion": {"window": (2 * side, 2 * side), "stride": (side, side)},
        "grad_cam": {"layer": (model.convolutions() or ("",))[-1]},
    }
    found = []
    for method, options in asked.items():
        try:
            found.append(attribute(model, image, target, method, **options))
        except ReluscopeError as error:
            notes.append(f"Image {number}, {method.replace('_', ' ')}: {error}.")
    shown = ", ".join(map(str, target))
    text = f"Image {number}: what output [{shown}] = {float(output[target]):.4g}, the largest, is due to."
    return text, plot_attributions(found, image[0])


def _three(names: Sequence[str]) -> list[str]:
    places = sorted({0, len(names) // 2, len(names) - 1}) if names else []
    return [names[i] for i in places]


def _layer_pictures(model: Model, layer: str, frames: Any, top: int, filters: int) -> list[tuple[str, Any]]:
    from reluscope.plot.lens import plot_channels, plot_kernels, plot_pictures, plot_strongest

    maps = channel_maps(model, layer, frames[: min(len(frames), 16)])
    (field,) = receptive_fields(model, [layer])
    dead = dead_channels(model, layer, frames[:256])
    about = f"{layer}: {maps.shape[1]} channels of {maps.shape[2]}x{maps.shape[3]}, "
    about += "receptive field: the whole image" if field.whole else f"receptive field {field.size[0]}x{field.size[1]}"
    about += f"; dead on these images: {', '.join(map(str, dead[:20]))}" if dead else "; no channel is dead"
    out: list[tuple[str, Any]] = [(about, plot_channels(maps[0], title=f"{layer}, first image"))]
    weight = kernels(model, layer)
    if weight.shape[1] in (1, 3):
        out.append((f"Kernels of {layer}.", plot_kernels(weight)))
    if not field.whole:
        found = strongest(model, layer, frames[0], k=top)
        out.append(
            (f"Where the {len(found.values)} strongest activations of {layer} look.", plot_strongest(found, frames[0]))
        )
    basis = colour_basis(model, layer, frames[:16])
    share = " + ".join(f"{e:.0%}" for e in basis.explained)
    colours = basis.colours(maps[:8])
    out.append(
        (f"Principal colours of {layer} ({share} of the variance), one basis for all images.", plot_pictures(colours))
    )
    best = np.argsort(-maps[0].max((1, 2)), kind="stable")[:3]
    mixed = overlay(frames[0], maps[0], channels=[int(b) for b in best])
    out.append(
        (
            f"Channels {', '.join(map(str, best))} of {layer} over the image (red, green, blue).",
            plot_pictures(mixed[None]),
        )
    )
    if filters and find_spec("torch") is not None:
        from reluscope.lens.filters import channel, visualise

        made = [visualise(model, channel(layer, c), rescue=False, rng=c) for c in range(min(filters, maps.shape[1]))]
        titles = [f"{c}: {v.values[0]:.2g}" for c, v in enumerate(made)]
        out.append(
            (
                f"Optimised images of channels of {layer}.",
                plot_pictures(np.stack([v.best for v in made]), titles=titles),
            )
        )
    return out
