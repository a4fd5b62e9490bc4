"""Pictures of convolutional networks and of attention over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import integer
from reluscope._extras import require
from reluscope.errors import InputError
from reluscope.lens.ablation import Ablation
from reluscope.lens.attention import Recording
from reluscope.lens.bridge import LocalMap
from reluscope.lens.channels import Strongest
from reluscope.lens.frames import as_bytes
from reluscope.lens.receptive import EffectiveField
from reluscope.plot._axes import BLUE, axes, name_axes
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
    names = list(heads or recording.heads)
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
    pictures = as_bytes(frames)
    steps = len(pictures) if steps is None else steps
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
    pictures = as_bytes(frames).astype(float) / 255
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
    picture = as_bytes(np.asarray(image)[None])[0]
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
    ax = axes(ax, figsize=(8, 2.8))
    scores = recording.z_scores(head)[:steps]
    shown = ax.imshow(scores.T, aspect="auto", cmap="RdBu_r", vmin=-3, vmax=3, interpolation="nearest", origin="lower")
    ax.figure.colorbar(shown, ax=ax, label="z-score", pad=0.01)
    name_axes(ax, "time (frame)" if recording.kind == "memory" else "position", "output")
    _position_ticks(recording, ax)
    name_axes(ax, title=f"outputs of head {recording.heads[recording.index(head)]}")
    return ax


def plot_strongest(found: Strongest, image: Any, ax: Any = None) -> Any:
    """Receptive fields of the strongest activations as heat over the image.

    Parameters
    ----------
    found : Strongest
        What `reluscope.lens.strongest` gives.
    image : (height, width, channels)
        The image, in [0, 1] or as bytes.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib Axes
    """
    ax = axes(ax)
    _show(ax, as_bytes(np.asarray(image)[None])[0], alpha=0.55)
    top = max(float(found.heat.max()), 1e-12)
    shown = ax.imshow(found.heat, cmap="inferno", alpha=0.15 + 0.6 * np.clip(found.heat / top, 0, 1), vmin=0, vmax=top)
    ax.figure.colorbar(shown, ax=ax, label="receptive fields over the pixel", shrink=0.8)
    ax.set_axis_off()
    name_axes(ax, title=f"top {len(found.values)} activations of\n{_short(found.layer)}")
    return ax


def plot_field(found: EffectiveField, ax: Any = None) -> Any:
    """Gradient of a unit at each pixel (log scale) with its nominal receptive field as a box.

    Parameters
    ----------
    found : EffectiveField
        What `reluscope.lens.effective_field` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib Axes
    """
    require("matplotlib", "plot")
    from matplotlib.patches import Rectangle

    ax = axes(ax)
    top = max(float(found.heat.max()), 1e-300)
    shown = ax.imshow(np.log10(np.maximum(found.heat / top, 1e-6)), cmap="magma", vmin=-6, vmax=0)
    ax.figure.colorbar(shown, ax=ax, label="log10 |gradient| / largest", shrink=0.8)
    t, b, left, right = found.field.box(found.row, found.column)
    ax.add_patch(Rectangle((left - 0.5, t - 0.5), right - left, b - t, fill=False, color="#4cc9f0", lw=1.5))
    ax.set_axis_off()
    size = found.field.size
    name_axes(ax, title=f"{_short(found.field.layer)}\nnominal {size[0]}x{size[1]} (box) holds {found.inside:.1%}")
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
    stack = np.asarray(maps, np.float64)
    if stack.ndim != 3:
        raise InputError(f"maps must have shape (channels, rows, columns), got {stack.shape}")
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
    stack = np.asarray(kernels, np.float64)
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
    stack = as_bytes(pictures).astype(float) / 255
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
    for i, text in enumerate(titles):
        across, down = (i % columns) * (w + gap), (i // columns) * (h + room + gap)
        ax.text(across - 0.5, down + room - 0.5, text, fontsize=6.5 if unit >= 1 else 5, va="bottom")
    ax.set_axis_off()
    ax.set_title(title, fontsize="small")
    return ax


def plot_templates(found: LocalMap, figure: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """The exact local template of each output: red raises it, blue lowers it.

    Parameters
    ----------
    found : LocalMap
        What `reluscope.lens.local_map` gives.
    figure : matplotlib Figure, optional
        Where to draw; by default in a new figure.
    names : sequence of str, optional
        Names of the outputs.

    Returns
    -------
    ndarray of matplotlib Axes
    """
    count = len(found.indices) + 1
    columns = min(count, 6)
    rows = -(-count // columns)
    _, grid = _grid(figure, rows, columns, 1.5 * columns, 1.75 * rows)
    _show(grid.flat[0], as_bytes(found.image[None])[0])
    grid.flat[0].set_title("image", fontsize=8)
    for i, j in enumerate(found.indices):
        ax = grid.flat[i + 1]
        template = found.templates[i].sum(-1)
        top = max(float(np.quantile(np.abs(template), 0.995)), 1e-12)
        ax.imshow(template, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest")
        name = names[j] if names is not None else f"output {j}"
        ax.set_title(f"{name}: {found.outputs[i]:.2f}", fontsize=8)
    return grid


def plot_ablation(found: Ablation, ax: Any = None, *, most: int = 30, **style: Any) -> Any:
    """Mean divergence of the output when each part is removed, largest first.

    Parameters
    ----------
    found : Ablation
        What `reluscope.lens.ablate_heads` or `ablate_channels` gives.
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
    ranked = found.ranked()[:most][::-1]
    ax = axes(ax, figsize=(5, 0.19 * len(ranked) + 1.2))
    ax.barh([name for name, _ in ranked], [value for _, value in ranked], **({"color": BLUE} | style))
    ax.tick_params(axis="y", labelsize=7)
    ax.set_xlabel("KL of the output distribution (nats)")
    ax.margins(y=0.01)
    return ax


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
