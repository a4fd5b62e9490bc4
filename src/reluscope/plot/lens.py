"""Pictures of convolutional networks and of attention over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import any_array, flag, integer, real_array, several, text
from reluscope._extras import require
from reluscope.errors import InputError
from reluscope.lens.ablation import Ablation
from reluscope.lens.attention import Recording
from reluscope.lens.attribution import Attribution
from reluscope.lens.bridge import LocalMap
from reluscope.lens.channels import Strongest
from reluscope.lens.frames import as_bytes
from reluscope.lens.interventions import Effects, Patching
from reluscope.lens.logits import LogitLens
from reluscope.lens.receptive import EffectiveField
from reluscope.plot._axes import BLUE, axes, expect, name_axes
from reluscope.plot._axes import figure as new_figure

Array = npt.NDArray[Any]


def tiles(pictures: Any, columns: int | None = None, gap: int = 1, background: float = 1.0) -> Array:
    """Pictures (n, h, w) or (n, h, w, 3) side by side in one array, `gap` pixels apart."""
    stack = np.asarray(pictures, np.float64)
    n, h, w = stack.shape[:3]
    columns = columns or max(1, math.ceil(math.sqrt(n * h / w)))
    rows = -(-n // columns)
    sheet = np.full((rows * (h + gap) - gap, columns * (w + gap) - gap, *stack.shape[3:]), background)
    for i, picture in enumerate(stack):
        top, left = (i // columns) * (h + gap), (i % columns) * (w + gap)
        sheet[top : top + h, left : left + w] = picture
    return sheet


def _images(frames: Any, name: str) -> Array:
    """Images as bytes, at least one."""
    found = as_bytes(frames, name)
    if not found.size:
        raise InputError(f"{name} must have at least one image, got shape {found.shape}")
    return found


def _words(values: Any, name: str) -> list[str]:
    return [text(word, f"an entry of {name}") for word in several(values, name, "texts")]


def _image(image: Any) -> Array:
    """One image as bytes."""
    return _images(any_array(image, "image", "numbers of shape (height, width, channels)")[None], "image")[0]


def plot_attention(
    recording: Recording, head: str | int | None = None, ax: Any = None, *, absolute: bool = False, **style: Any
) -> Any:
    """Time (across) and memory (up) of one head, or the maximum over all heads; white is 0, black is 1.

    In a memory recording a horizontal line is a fixed lag and a diagonal one a frame that is kept in sight; with
    `absolute` the upward axis is the attended frame itself, and that frame is a horizontal line. In a sequence
    recording both axes are positions.

    Parameters
    ----------
    recording : Recording
        What `reluscope.lens.record_attention` gives.
    head : str or int, optional
        Name "L.H" or index; by default the maximum over all heads.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    absolute : bool
        Show the attended frame itself instead of the lag.
    **style
        Goes to `imshow`.

    Returns
    -------
    matplotlib Axes
    """
    expect(recording, Recording, "recording", "reluscope.lens.record_attention(module, inputs)")
    flag(absolute, "absolute")
    name = "maximum over heads" if head is None else f"head {recording.heads[recording.index(head)]}"
    options = {"cmap": "Greys", "vmin": 0, "vmax": 1, "interpolation": "nearest"} | style
    if absolute and recording.kind == "memory":
        if head is None:
            raise InputError("absolute=True shows one head; name it")
        ax = axes(ax, figsize=(5, 4.6))
        ax.imshow(recording.absolute(head).T, origin="lower", **options)
        name_axes(ax, "time (frame)", "attended frame", name)
        return ax
    ax = axes(ax, figsize=(8, 2.6) if recording.kind == "memory" else (4.6, 4.2))
    weights = recording.maximum() if head is None else np.asarray(recording.weights[:, recording.index(head)], float)
    if recording.kind == "memory":
        ax.imshow(weights.T, origin="lower", aspect="auto", **options)
        name_axes(ax, "time (frame)", "frames back")
    else:
        ax.imshow(weights, aspect="equal", **options)
        name_axes(ax, "attended position", "position")
    _position_ticks(recording, ax, both=True)
    name_axes(ax, title=name)
    return ax


def plot_heads(recording: Recording, heads: Sequence[str] | None = None, figure: Any = None, columns: int = 0) -> Any:
    """Every head in a grid, named "L.H"; rows are layers unless `columns` says otherwise.

    White is 0; black is 1 in a memory recording and the largest weight of the grid in a sequence recording.

    Parameters
    ----------
    recording : Recording
        What `reluscope.lens.record_attention` gives.
    heads : sequence of str, optional
        Names of heads; by default all.
    figure : matplotlib Figure, optional
        Where to draw; by default in a new figure.
    columns : int
        Pictures per row; by default chosen.

    Returns
    -------
    ndarray of matplotlib Axes
    """
    expect(recording, Recording, "recording", "reluscope.lens.record_attention(module, inputs)")
    chosen = recording.heads if heads is None else several(heads, "heads", "names of heads")
    names = [recording.heads[recording.index(head)] for head in chosen] or list(recording.heads)
    columns = integer(columns, "columns", low=0)
    per_layer = max(1, sum(n.split(".")[0] == names[0].split(".")[0] for n in names))
    columns = columns or (per_layer if per_layer <= 16 else 8)
    rows = -(-len(names) // columns)
    memory = recording.kind == "memory"
    width, height = (1.7, 1.0) if memory else (1.15, 1.3)
    _, grid = _grid(figure, rows, columns, columns * width + 0.3, rows * height + 0.3)
    top = 1.0 if memory else max(float(recording.weights.max()), 1e-12)
    for name, ax in zip(names, grid.flat, strict=False):
        weights = np.asarray(recording.weights[:, recording.index(name)], float)
        shown = weights.T if memory else weights
        ax.imshow(shown, origin="lower" if memory else "upper", aspect="auto", cmap="Greys", vmin=0, vmax=top)
        ax.set_axis_on()
        ax.set(xticks=[], yticks=[])
        ax.set_title(name, fontsize=7, pad=2)
    return grid


def plot_frame_strip(frames: Any, ax: Any = None, *, count: int = 8, steps: int | None = None) -> Any:
    """Frames along the time axis: the left edge of each stands at its own time.

    Parameters
    ----------
    frames : (n, height, width, channels)
        The frames, in [0, 1] or as bytes.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    count : int
        How many frames.
    steps : int, optional
        Length of the time axis; by default all of it.

    Returns
    -------
    matplotlib Axes
    """
    pictures = _images(frames, "frames")
    steps = len(pictures) if steps is None else integer(steps, "steps", low=1)
    count = integer(count, "count", low=1)
    ax = axes(ax, figsize=(8, 1.2))
    width = steps / count
    for i in range(count):
        t = int(i * width)
        if t < len(pictures):
            _show(ax, pictures[t], extent=(t - 0.5, t - 0.5 + 0.94 * width, 0, 1))
    ax.set(xlim=(-0.5, steps - 0.5), ylim=(0, 1), aspect="auto", yticks=[], xlabel="time (frame)")
    return ax


def plot_trajectory(recording: Recording, frames: Any, head: str | int, figure: Any = None, *, count: int = 8) -> Any:
    """One head, the frames, and the maximum over heads, on one time axis.

    Parameters
    ----------
    recording : Recording
        What `reluscope.lens.record_attention` gives.
    frames : (n, height, width, channels)
        The frames, in [0, 1] or as bytes.
    head : str or int
        Name "L.H" or index of the head.
    figure : matplotlib Figure, optional
        Where to draw; by default in a new figure.
    count : int
        How many frames.

    Returns
    -------
    ndarray of three matplotlib Axes
    """
    expect(recording, Recording, "recording", "reluscope.lens.record_attention(module, inputs)")
    integer(count, "count", low=1)
    _images(frames, "frames")
    recording.index(head)
    three = new_figure(figure, (9, 5.2)).subplots(3, 1, sharex=True, height_ratios=[2, 1.1, 2])
    plot_attention(recording, head, three[0])
    plot_frame_strip(frames, three[1], count=count, steps=recording.steps)
    plot_attention(recording, None, three[2])
    for ax in three[:2]:
        ax.set_xlabel("")
    return three


def plot_attended(recording: Recording, frames: Any, step: int, ax: Any = None, *, columns: int = 0) -> Any:
    """For each head the frame it looks at most at one step, with its weight; faint frames have little weight.

    The title of each says head, how many frames back (or the position), and the weight.

    Parameters
    ----------
    recording : Recording
        What `reluscope.lens.record_attention` gives.
    frames : (n, height, width, channels)
        The frames, in [0, 1] or as bytes.
    step : int
        The step to look at.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    columns : int
        Pictures per row; by default chosen.

    Returns
    -------
    matplotlib Axes
    """
    expect(recording, Recording, "recording", "reluscope.lens.record_attention(module, inputs)")
    pictures = _images(frames, "frames").astype(float) / 255
    columns = integer(columns, "columns", low=0)
    pictures = np.repeat(pictures[..., :1], 3, -1) if pictures.shape[-1] == 1 else pictures[..., :3]
    where, weight = recording.attended(step)
    layers = len({h.split(".")[0] for h in recording.heads})
    columns = columns or max(1, len(recording.heads) // layers)
    strength = (0.3 + 0.7 * weight / max(float(weight.max()), 1e-12))[:, None, None, None]
    chosen = 1 - strength * (1 - pictures[np.minimum(where, len(pictures) - 1)])  # fading to white
    names = recording.labels
    titles = []
    for i, head in enumerate(recording.heads):
        at = int(where[i])
        place = f"t−{step - at}" if recording.kind == "memory" else (names[at] if names is not None else f"at {at}")
        titles.append(f"{head}  {place}  {weight[i]:.0%}")
    if recording.kind == "memory":
        title = f"most attended at step {step}"
    else:
        title = f"most attended from position {names[step] if names is not None else step}"
    return plot_pictures(chosen, ax, columns=columns, titles=titles, title=title)


def plot_on_image(
    recording: Recording, image: Any, position: int = 0, figure: Any = None, *, classes: int | None = None
) -> Any:
    """What each head of a vision transformer looks at from one position, as heat over the image; returns the Axes.

    Positions are patches of a square grid, row by row, after `classes` tokens that stand for no place (default: what
    is left over from the largest square). The title of each head gives the share that falls on patches.

    Parameters
    ----------
    recording : Recording
        What `reluscope.lens.record_attention` gives.
    image : (height, width, channels)
        The image, in [0, 1] or as bytes.
    position : int
        The position that looks.
    figure : matplotlib Figure, optional
        Where to draw; by default in a new figure.
    classes : int, optional
        Tokens in front that stand for no place.

    Returns
    -------
    ndarray of matplotlib Axes
    """
    expect(recording, Recording, "recording", "reluscope.lens.record_attention(module, inputs)")
    picture = _image(image)
    position = integer(position, "position", low=0, high=recording.steps - 1)
    count = int(recording.weights.shape[2])
    side = math.isqrt(count)
    before = count - side * side if classes is None else integer(classes, "classes", low=0, high=count - 1)
    side = math.isqrt(count - before)
    if side * side != count - before:
        raise InputError(f"{count} positions less {before} are no square of patches; pass classes=")
    weights = np.asarray(recording.weights[position], float)[:, before:].reshape(-1, side, side)
    layers = len({h.split(".")[0] for h in recording.heads})
    columns = max(1, len(recording.heads) // layers)
    rows = -(-len(recording.heads) // columns)
    figure, grid = _grid(figure, rows, columns, 1.35 * columns + 0.8, 1.5 * rows + 0.35)
    top = max(float(weights.max()), 1e-12)
    height, width = picture.shape[:2]
    shown: Any = None
    for head, weight, ax in zip(recording.heads, weights, grid.flat, strict=False):
        _show(ax, picture, alpha=0.8)
        options = {"cmap": "inferno", "vmin": 0, "vmax": top, "extent": (-0.5, width - 0.5, height - 0.5, -0.5)}
        shown = ax.imshow(weight, alpha=0.15 + 0.65 * weight / top, interpolation="nearest", **options)
        ax.set_title(f"{head}: {weight.sum():.0%}", fontsize=7, pad=2)
    figure.colorbar(shown, ax=grid, label="weight", shrink=0.8)
    return grid


def plot_z_scores(recording: Recording, head: str | int, ax: Any = None, *, steps: int | None = None) -> Any:
    """Outputs of one head over time, each standardised.

    Parameters
    ----------
    recording : Recording
        What `reluscope.lens.record_attention` gives.
    head : str or int
        Name "L.H" or index of the head.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    steps : int, optional
        Length of the time axis; by default all of it.

    Returns
    -------
    matplotlib Axes
    """
    expect(recording, Recording, "recording", "reluscope.lens.record_attention(module, inputs)")
    ax = axes(ax, figsize=(8, 2.8))
    scores = recording.z_scores(head)[: None if steps is None else integer(steps, "steps", low=1)]
    shown = ax.imshow(scores.T, aspect="auto", cmap="RdBu_r", vmin=-3, vmax=3, interpolation="nearest", origin="lower")
    ax.figure.colorbar(shown, ax=ax, label="z-score", pad=0.01)
    name_axes(ax, "time (frame)" if recording.kind == "memory" else "position", "output")
    _position_ticks(recording, ax)
    name_axes(ax, title=f"outputs of head {recording.heads[recording.index(head)]}")
    return ax


def plot_strongest(strongest: Strongest, image: Any, ax: Any = None) -> Any:
    """Receptive fields of the strongest activations as heat over the image.

    Parameters
    ----------
    strongest : Strongest
        What `reluscope.lens.strongest` gives.
    image : (height, width, channels)
        The image, in [0, 1] or as bytes.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib Axes
    """
    expect(strongest, Strongest, "strongest", "reluscope.lens.strongest(model, layer, image)")
    ax = axes(ax)
    _show(ax, _image(image), alpha=0.55)
    top = max(float(strongest.heat.max()), 1e-12)
    shown = ax.imshow(
        strongest.heat, cmap="inferno", alpha=0.15 + 0.6 * np.clip(strongest.heat / top, 0, 1), vmin=0, vmax=top
    )
    ax.figure.colorbar(shown, ax=ax, label="receptive fields over the pixel", shrink=0.8)
    ax.set_axis_off()
    name_axes(ax, title=f"top {len(strongest.values)} activations of\n{_short(strongest.layer)}")
    return ax


def plot_field(field: EffectiveField, ax: Any = None) -> Any:
    """Gradient of a unit at each pixel (log scale) with its nominal receptive field as a box.

    Parameters
    ----------
    field : EffectiveField
        What `reluscope.lens.effective_field` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib Axes
    """
    expect(field, EffectiveField, "field", "reluscope.lens.effective_field(model, layer, images)")
    require("matplotlib", "plot")
    from matplotlib.patches import Rectangle

    ax = axes(ax)
    top = max(float(field.heat.max()), 1e-300)
    shown = ax.imshow(np.log10(np.maximum(field.heat / top, 1e-6)), cmap="magma", vmin=-6, vmax=0)
    ax.figure.colorbar(shown, ax=ax, label="log10 |gradient| / largest", shrink=0.8)
    t, b, left, right = field.field.box(field.row, field.column)
    ax.add_patch(Rectangle((left - 0.5, t - 0.5), right - left, b - t, fill=False, color="#4cc9f0", lw=1.5))
    ax.set_axis_off()
    size = field.field.size
    name_axes(ax, title=f"{_short(field.field.layer)}\nnominal {size[0]}x{size[1]} (box) holds {field.inside:.1%}")
    return ax


def plot_channels(maps: Any, ax: Any = None, *, columns: int | None = None, title: str = "") -> Any:
    """All channels (channels, rows, columns) as tiles, each scaled to its own range; constant ones are mid-grey.

    Parameters
    ----------
    maps : (channels, rows, columns)
        Activations.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    columns : int
        Pictures per row; by default chosen.
    title : str
        Title of the picture.

    Returns
    -------
    matplotlib Axes
    """
    stack = real_array(maps, "maps", ndim=3)
    if not stack.size:
        raise InputError(f"maps must have shape (channels, rows, columns), got {stack.shape}")
    columns = None if columns is None else integer(columns, "columns", low=1)
    text(title, "title")
    low, high = stack.min((1, 2), keepdims=True), stack.max((1, 2), keepdims=True)
    scaled = np.where(high > low, (stack - low) / np.where(high > low, high - low, 1), 0.5)
    ax = axes(ax, figsize=(6, 6))
    sheet = tiles(scaled, columns, max(1, stack.shape[1] // 16), background=np.nan)
    ax.imshow(sheet, cmap="viridis", interpolation="nearest", vmin=0, vmax=1)
    ax.set_axis_off()
    name_axes(ax, title=title or f"{len(stack)} channels")
    return ax


def plot_kernels(kernels: Any, ax: Any = None, *, columns: int | None = None, title: str = "") -> Any:
    """Kernels (outputs, inputs, rows, columns): in colour for three inputs, else the mean over inputs; zero is grey.

    Parameters
    ----------
    kernels : (outputs, inputs, rows, columns)
        Weights of a convolution.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    columns : int
        Pictures per row; by default chosen.
    title : str
        Title of the picture.

    Returns
    -------
    matplotlib Axes
    """
    stack = real_array(kernels, "kernels", ndim=4)
    if not stack.size:
        raise InputError(f"kernels must have shape (outputs, inputs, rows, columns), got {stack.shape}")
    columns = None if columns is None else integer(columns, "columns", low=1)
    text(title, "title")
    scale = np.abs(stack).max((1, 2, 3), keepdims=True)
    stack = 0.5 + 0.5 * stack / np.where(scale > 0, scale, 1)
    colour = stack.shape[1] == 3
    shown = np.moveaxis(stack, 1, -1) if colour else stack.mean(1)
    ax = axes(ax, figsize=(5, 5))
    ax.imshow(tiles(shown, columns), cmap=None if colour else "gray", interpolation="nearest", vmin=0, vmax=1)
    ax.set_axis_off()
    name_axes(ax, title=title or f"{len(stack)} kernels {stack.shape[2]}x{stack.shape[3]}")
    return ax


def plot_pictures(
    pictures: Any, ax: Any = None, *, columns: int | None = None, titles: Sequence[str] = (), title: str = ""
) -> Any:
    """Images (n, h, w, c) in a grid, each under its short title if `titles` are given.

    Parameters
    ----------
    pictures : (n, height, width, channels)
        The images, in [0, 1] or as bytes.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    columns : int
        Pictures per row; by default chosen.
    titles : sequence of str
        A short title for each.
    title : str
        Title of the picture.

    Returns
    -------
    matplotlib Axes
    """
    stack = _images(pictures, "pictures").astype(float) / 255
    columns = None if columns is None else integer(columns, "columns", low=0)
    titles = [text(each, "an entry of titles") for each in several(titles, "titles", "texts")]
    text(title, "title")
    stack = stack[..., 0] if stack.shape[-1] == 1 else stack[..., :3]
    h, w = stack.shape[1:3]
    gap = max(1, h // 24)
    columns = columns or max(1, math.ceil(math.sqrt(len(stack) * h / w)))
    columns = min(columns, len(stack))
    rows = -(-len(stack) // columns)
    unit = min(max(1.1, 3.4 / columns), 10 / columns)
    room = max(1, round(0.13 / unit * w)) if titles else 0
    stack = np.pad(stack, ((0, 0), (room, 0), *((0, 0),) * (stack.ndim - 2)), constant_values=1.0)
    spare = 0.12 + 0.17 * (title.count("\n") + 1 if title else 0)
    ax = axes(ax, figsize=(unit * columns + 0.2, min(10.0, unit * rows * (h + room) / w + spare)))
    ax.imshow(tiles(stack, columns, gap), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    for i, each in enumerate(titles[: len(stack)]):
        across, down = (i % columns) * (w + gap), (i // columns) * (h + room + gap)
        ax.text(across - 0.5, down + room - 0.5, each, fontsize=6.5 if unit >= 1 else 5, va="bottom")
    ax.set_axis_off()
    ax.set_title(title, fontsize="small")
    return ax


def plot_templates(local_map: LocalMap, figure: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """The exact local template of each output: red raises it, blue lowers it.

    Parameters
    ----------
    local_map : LocalMap
        What `reluscope.lens.local_map` gives.
    figure : matplotlib Figure, optional
        Where to draw; by default in a new figure.
    names : sequence of str, optional
        Names of the outputs.

    Returns
    -------
    ndarray of matplotlib Axes
    """
    expect(local_map, LocalMap, "local_map", "reluscope.lens.local_map(model, image)")
    if names is not None:
        names = [text(name, "an entry of names") for name in several(names, "names", "texts")]
        if len(names) <= max(local_map.indices, default=0):
            raise InputError(f"names must name all outputs up to {max(local_map.indices)}, got {len(names)}")
    count = len(local_map.indices) + 1
    columns = min(count, 6)
    rows = -(-count // columns)
    _, grid = _grid(figure, rows, columns, 1.5 * columns, 1.75 * rows)
    _show(grid.flat[0], as_bytes(local_map.image[None])[0])
    grid.flat[0].set_title("image", fontsize=8)
    for i, j in enumerate(local_map.indices):
        ax = grid.flat[i + 1]
        template = local_map.templates[i].sum(-1)
        top = max(float(np.quantile(np.abs(template), 0.995)), 1e-12)
        ax.imshow(template, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest")
        name = names[j] if names is not None else f"output {j}"
        ax.set_title(f"{name}: {local_map.outputs[i]:.2f}", fontsize=8)
    return grid


def plot_ablation(effects: Ablation | Effects, ax: Any = None, *, most: int = 30, **style: Any) -> Any:
    """Mean divergence of the output when each part is removed, largest first.

    Parameters
    ----------
    effects : Ablation or Effects
        What `reluscope.lens.ablate`, `ablate_heads` or `ablate_channels` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    most : int
        How many parts, the largest first.
    **style
        Goes to `ax.barh`.

    Returns
    -------
    matplotlib Axes
    """
    expect(effects, (Ablation, Effects), "effects", "reluscope.lens.ablate_heads(module, inputs)")
    ranked = effects.ranked()[: integer(most, "most", low=1)][::-1]
    ax = axes(ax, figsize=(5, 0.19 * len(ranked) + 1.2))
    ax.barh([name for name, _ in ranked], [value for _, value in ranked], **({"color": BLUE} | style))
    ax.tick_params(axis="y", labelsize=7)
    measured = getattr(effects, "measure", "")
    ax.set_xlabel("KL of the output distribution (nats)" if measured[:2] in ("", "KL") else f"change of {measured}")
    ax.margins(y=0.01)
    return ax


def plot_patching(patching: Patching, ax: Any = None, *, labels: Sequence[str] | None = None) -> Any:
    """The share of the difference that each part brings back, as a table of colours: blue above 0, red below.

    Parameters
    ----------
    patching : Patching
        What `reluscope.lens.patch` or `patch_paths` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    labels : sequence of str, optional
        Names of the columns, such as the tokens.

    Returns
    -------
    matplotlib Axes
    """
    expect(patching, Patching, "patching", "reluscope.lens.patch(model, clean, corrupted)")
    rows, columns = patching.share.shape
    names = list(patching.columns) if labels is None else _words(labels, "labels")
    if len(names) != columns:
        raise InputError(f"labels must name {columns} columns, got {len(names)}")
    ax = axes(ax, figsize=(2.3 + 0.5 * columns, 1.9 + 0.28 * rows))
    most = max(1.0, float(np.abs(patching.share).max()))
    image = ax.imshow(patching.share, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    _table_ticks(ax, [_short(name) for name in patching.rows], [_short(name, 26) for name in names])
    if rows * columns <= 150:
        _write_in(ax, patching.share, most)
    ax.figure.colorbar(image, ax=ax, label="share", fraction=0.05)
    ax.set_title(
        f"values of the {'clean' if patching.into == 'corrupted' else 'corrupted'} input put into the other", fontsize=9
    )
    return ax


def plot_logit_lens(
    lens: LogitLens, ax: Any = None, *, labels: Sequence[str] | None = None, words: Sequence[str] | None = None
) -> Any:
    """What the model would say after each block at each position: the most probable class, shaded by its probability.

    Parameters
    ----------
    lens : LogitLens
        What `reluscope.lens.logit_lens` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    labels : sequence of str, optional
        Names of the positions, such as the tokens.
    words : sequence of str, optional
        Names of the classes, such as the vocabulary; their numbers by default.

    Returns
    -------
    matplotlib Axes
    """
    expect(lens, LogitLens, "lens", "reluscope.lens.logit_lens(model, inputs)")
    blocks, positions = lens.best.shape
    names = [str(i) for i in range(positions)] if labels is None else _words(labels, "labels")
    if len(names) != positions:
        raise InputError(f"labels must name {positions} positions, got {len(names)}")
    names_of = None if words is None else _words(words, "words")
    if names_of is not None and len(names_of) <= int(lens.best.max(initial=0)):
        raise InputError(f"words must name all classes up to {int(lens.best.max())}, got {len(names_of)}")
    ax = axes(ax, figsize=(2.2 + 0.5 * positions, 1.4 + 0.3 * blocks))
    top = np.exp(lens.log_probabilities.max(-1))
    image = ax.imshow(top, cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower")
    _table_ticks(ax, [_short(name) for name in lens.blocks], names)
    if blocks * positions <= 400:
        for (i, j), best in np.ndenumerate(lens.best):
            word = str(best) if names_of is None else names_of[int(best)]
            ax.text(j, i, word, ha="center", va="center", fontsize=7, color="white" if top[i, j] > 0.55 else "black")
    ax.figure.colorbar(image, ax=ax, label="probability", fraction=0.05)
    ax.set_xlabel("position")
    return ax


def plot_attribution(
    attribution: Attribution, ax: Any = None, *, labels: Sequence[str] | None = None, image: Any = None
) -> Any:
    """An attribution: bars where it is one number per position, else a picture, blue for more and red for less.

    Parameters
    ----------
    attribution : Attribution
        What `reluscope.lens.attribute` gives; values (positions, width) are added up over the width, (channels, height,
        width) over channels.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    labels : sequence of str, optional
        Names of the positions.
    image : (height, width) or (height, width, channels) array, optional
        Drawn below, in grey.

    Returns
    -------
    matplotlib Axes
    """
    expect(attribution, Attribution, "attribution", "reluscope.lens.attribute(model, inputs)")
    grey = None if image is None else real_array(image, "image", ndim=(2, 3))
    values = np.asarray(attribution.values, float)
    if values.ndim == 3:
        values = values.sum(0)
    elif values.ndim == 2 and (labels is not None or attribution.method in ("exact", "integrated_gradients")):
        values = attribution.by_position()
    said = attribution.method.replace("_", " ")
    if attribution.method == "integrated_gradients":
        said += f", gap {attribution.gap:.1g}, error about {attribution.error:.1g}"
    if values.ndim == 1:
        names = [str(i) for i in range(len(values))] if labels is None else _words(labels, "labels")
        if len(names) != len(values):
            raise InputError(f"labels must name {len(values)} positions, got {len(names)}")
        ax = axes(ax, figsize=(1.5 + 0.35 * len(values), 2.4))
        ax.bar(range(len(values)), values, color=BLUE)
        ax.set_xticks(range(len(values)), names, fontsize=7, rotation=90 if max(map(len, names)) > 3 else 0)
        ax.axhline(0, color="black", linewidth=0.6)
        ax.set_ylabel("adds to the output")
    else:
        ax = axes(ax, figsize=(3.6, 3.4))
        most = float(np.abs(values).max()) or 1.0
        box = (-0.5, values.shape[1] - 0.5, values.shape[0] - 0.5, -0.5)
        if grey is not None:
            ax.imshow(grey.mean(-1) if grey.ndim == 3 else grey, cmap="gray", extent=box, alpha=0.6)
        drawn = ax.imshow(values, cmap="RdBu", vmin=-most, vmax=most, alpha=1.0 if image is None else 0.6)
        ax.figure.colorbar(
            drawn, ax=ax, fraction=0.046, label="heat" if attribution.method == "grad_cam" else "adds to the output"
        )
        ax.set_xticks([])
        ax.set_yticks([])
    ax.set_title(said, fontsize=9)
    return ax


def plot_attributions(attributions: Sequence[Attribution], image: Any, figure: Any = None) -> Any:
    """Several attributions of one image side by side, over the image.

    Parameters
    ----------
    attributions : sequence of Attribution
        Of pixels, channels last, or of maps.
    image : (height, width, channels) array
    figure : matplotlib Figure, optional

    Returns
    -------
    Figure
    """
    attributions = several(attributions, "attributions", "attributions")
    for each in attributions:
        expect(each, Attribution, "an entry of attributions", "reluscope.lens.attribute(model, inputs)")
    if not attributions:
        raise InputError("attributions must have at least one attribution")
    figure, grid = _grid(figure, 1, max(1, len(attributions)), 3.6 * max(1, len(attributions)), 3.3)
    for ax, one in zip(grid.flat, attributions, strict=False):
        values = np.asarray(one.values, float)
        ax.set_axis_on()
        if values.ndim == 3:
            values = values.sum(-1)
        plot_attribution(replace(one, values=values[None] if values.ndim == 2 else values), ax, image=image)
    return figure


def _table_ticks(ax: Any, rows: Sequence[str], columns: Sequence[str]) -> None:
    ax.set_yticks(range(len(rows)), rows, fontsize=7)
    ax.set_xticks(range(len(columns)), columns, fontsize=7, rotation=90 if max(map(len, columns)) > 4 else 0)


def _write_in(ax: Any, values: Array, most: float) -> None:
    for (i, j), value in np.ndenumerate(values):
        shown = f"{value:.2f}" if abs(value) >= 0.005 else "0"
        ax.text(
            j, i, shown, ha="center", va="center", fontsize=6, color="white" if abs(value) > 0.6 * most else "black"
        )


def _position_ticks(recording: Recording, ax: Any, *, both: bool = False) -> None:
    """Whole numbers along the axes, or the labels of positions if there are few."""
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    labels = recording.labels
    if recording.kind == "sequence" and labels is not None and len(labels) <= 40:
        ax.set_xticks(range(len(labels)), labels, rotation=90, fontsize=6)
        if both:
            ax.set_yticks(range(len(labels)), labels, fontsize=6)


def _show(ax: Any, picture: Array, **options: Any) -> None:
    grey = picture.shape[-1] == 1
    ax.imshow(picture[..., 0] if grey else picture[..., :3], cmap="gray" if grey else None, **options)


def _short(layer: str, most: int = 34) -> str:
    return layer if len(layer) <= most else "…" + layer[-most:]


def _grid(figure: Any, rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    """A figure, and its empty Axes in rows and columns."""
    figure = new_figure(figure, (width, height))
    grid = figure.subplots(rows, columns, squeeze=False)
    for ax in grid.flat:
        ax.set_axis_off()
    return figure, grid
