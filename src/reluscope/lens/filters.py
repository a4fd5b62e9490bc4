"""Feature visualisation: the image that drives a neuron, a channel or a direction as far as it goes.

The image is `low + (high - low) * sigmoid(colour * ifft(spectrum / frequency))`: a Fourier parametrisation in which
every scale moves at the same pace, in decorrelated colours, and pixels that can never leave [low, high]. Each step
looks at the image after a small random shift, turn and change of size, so that only robust patterns survive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import generator, integer, real, real_array, seeded, several, text
from reluscope._extras import require
from reluscope.errors import InputError
from reluscope.lens.frames import picture_size, resize
from reluscope.lens.models import Model
from reluscope.progress import meter

_MOST_CROPS = 1_000_000

__all__ = ["Objective", "Visualisation", "channel", "crops", "direction", "measure", "neuron", "visualise"]


@dataclass(frozen=True, slots=True)
class Objective:
    """What to maximise at a layer: `kind` is "neuron", "channel" or "direction".

    Attributes
    ----------
    layer, kind : str
    index : tuple of int
        The channel, or the channel and the place of a neuron.
    vector : tuple of float
        The direction.
    """

    layer: str
    kind: str
    index: tuple[int, ...] = ()
    vector: tuple[float, ...] = ()

    def value(self, activation: Any) -> Any:
        """One number per image, from activations (n, channels, ...); numpy and torch alike.

        Parameters
        ----------
        activation : (n, channels, ...) array or tensor

        Returns
        -------
        (n,) array or tensor
        """
        axes = tuple(range(1, activation.ndim - 1))
        if self.kind == "neuron":
            return activation[(slice(None), *self.index)]
        if self.kind == "channel":
            chosen = activation[:, self.index[0]]
            return chosen.mean(axes) if axes else chosen
        flat = activation.mean(tuple(range(2, activation.ndim))) if activation.ndim > 2 else activation
        vector = np.asarray(self.vector, np.float32)
        if not isinstance(flat, np.ndarray):
            vector = flat.new_tensor(self.vector)
        return flat @ vector


def channel(layer: str, index: int) -> Objective:
    """The mean of one channel of a layer over all positions, as something to maximise.

    Parameters
    ----------
    layer : str
    index : int
        The channel, from 0.

    Returns
    -------
    Objective

    Examples
    --------
    >>> channel("conv1", 7).kind
    'channel'
    """
    return Objective(text(layer, "layer"), "channel", (integer(index, "index", low=0),))


def neuron(layer: str, *index: int) -> Objective:
    """One unit, as something to maximise.

    Parameters
    ----------
    layer : str
    *index : int
        (channel, row, column) of a convolution, or the number of a unit of a dense layer; all from 0.

    Returns
    -------
    Objective

    Examples
    --------
    >>> neuron("conv1", 7, 3, 4).index
    (7, 3, 4)
    """
    if not index:
        raise InputError("neuron needs the place of a unit: neuron(layer, channel, row, column)")
    return Objective(text(layer, "layer"), "neuron", tuple(integer(i, "index", low=0) for i in index))


def direction(layer: str, vector: Any) -> Objective:
    """A combination of the channels of a layer (averaged over positions), as something to maximise.

    Parameters
    ----------
    layer : str
    vector : array_like (channels,)
        Scaled to length 1.

    Returns
    -------
    Objective

    Examples
    --------
    >>> direction("conv1", [3.0, 4.0]).vector
    (0.6, 0.8)
    """
    v = real_array(vector, "vector", ndim=1)
    length = float(np.linalg.norm(v))
    if length == 0:
        raise InputError("vector must not be zero")
    return Objective(text(layer, "layer"), "direction", (), tuple((v / length).tolist()))


@dataclass(frozen=True, slots=True, repr=False)
class Visualisation:
    """Optimised images (n, h, w, c) with values in the given range, the value of each, best first, and the way there.

    `values` are measured on the images as they are, without shifts or turns; `history` (steps, n) is what each step
    saw, shifted and turned in all but the last steps. `origins` says what each image grew from: "noise", or where
    that did worse "plain colour", "dots" or "fallback". `seed` repeats the images as `rng=`.

    Attributes
    ----------
    objective : Objective
    images : (n, h, w, c) array
    values : (n,) array
    history : (steps, n) array
    origins : tuple of str
    seed : int or None
    """

    objective: Objective
    images: npt.NDArray[np.float32]
    values: npt.NDArray[np.float64]
    history: npt.NDArray[np.float64]
    origins: tuple[str, ...]
    seed: int | None

    @property
    def best(self) -> npt.NDArray[np.float32]:
        """The image with the largest value."""
        return self.images[0]

    def __repr__(self) -> str:
        o = self.objective
        what = f"{o.kind} {o.index or ''} of {o.layer}"
        return f"<Visualisation of {what}: {len(self.images)} images, best {self.values[0]:.4g} from {self.origins[0]}>"


def visualise(
    model: Model,
    objective: Objective,
    *,
    steps: int = 128,
    images: int = 1,
    diversity: float = 0.0,
    jitter: int | None = None,
    scale: float = 0.05,
    rotate: float = 5.0,
    low: float = 0.0,
    high: float = 1.0,
    rate: float = 0.05,
    decay: float = 1.0,
    polish: float = 0.25,
    rescue: bool = True,
    fallback: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Visualisation:
    """Images that maximise an objective, with every pixel in [low, high].

    Parameters
    ----------
    model : Model
    objective : Objective
        From `channel`, `neuron` or `direction`.
    steps : int
    images : int
        How many to start.
    diversity : float
        Pushes several images apart: weighs the mean cosine of the channel-by-channel products of their activations.
    jitter, scale, rotate : int, float, float
        Bounds of the random transformation of each step: pixels (default a 16th of the image), relative size, degrees.
    low, high : float
    rate : float
        Step size.
    decay : float
        Power of the frequency that damps fine detail.
    polish : float
        Share of the last steps without transformation; half of them move pixels, the only way to reach `low` and
        `high`.
    rescue : bool
        Whether plain colours and random dots compete where pixels begin to move. That drives a unit further, but dots
        make no good picture.
    fallback : array_like (n, height, width, channels), optional
        Images of your own that compete in the same way: the result is never below the best of them.
    rng : None, int, SeedSequence or Generator
    progress : optional

    Returns
    -------
    Visualisation
        Best first; `origins` says what each image grew from, `seed` repeats it.

    Raises
    ------
    MissingExtraError
        Without torch.

    Notes
    -----
    A unit behind a ReLU is flat almost everywhere, so the way from noise may end low; hence `rescue` and `fallback`.
    The best image seen is kept per start. Cost: one forward and one backward pass per step, and about 40 forward passes
    more.
    """
    torch = require("torch", "torch")
    steps, count = integer(steps, "steps", low=1), integer(images, "images", low=1)
    low, high = real(low, "low"), real(high, "high")
    if high <= low:
        raise InputError(f"high must be above low, got [{low}, {high}]")
    model.find(objective.layer)
    h, w, c = model.image_shape
    draw, seed = seeded(rng)
    seeds = torch.Generator().manual_seed(int(draw.integers(2**62)))
    rivals: dict[str, npt.NDArray[np.float32]] = {}
    if fallback is not None:
        rivals["fallback"] = np.clip(model.images(fallback), low, high)
    if rescue:
        for kind, pictures in (("plain colour", _plain_colours(h, w, c)), ("dots", _textures(h, w, c, draw))):
            rivals[kind] = (pictures * (high - low) + low).astype(np.float32)
    jitter = max(1, min(h, w) // 16) if jitter is None else integer(jitter, "jitter", low=0)
    damp = _damping(torch, h, w, decay)
    spectrum = torch.randn(count, c, h, w // 2 + 1, 2, generator=seeds).mul_(0.3).requires_grad_(True)
    colour = _colours(torch, c)
    optimiser = torch.optim.Adam([spectrum], lr=rate)

    def painted() -> Any:
        field = torch.fft.irfft2(torch.view_as_complex(spectrum) * damp, s=(h, w))
        mixed = torch.einsum("nchw,cd->nhwd", field, colour)
        return low + (high - low) * torch.sigmoid(mixed)

    fourier_steps = steps - int(steps * polish / 2)
    pixels: Any = None
    best_values = torch.full((count,), -math.inf)
    best_images = torch.zeros(count, h, w, c)
    history = np.empty((steps, count))
    origins = ["noise"] * count

    def let_rivals_in() -> None:
        worst = int(best_values.argmin())
        for kind, pictures in rivals.items():
            rival, value = _best_of(torch, model, objective, pictures)
            if value > float(best_values.max()):
                best_values[worst], best_images[worst], origins[worst] = value, rival, kind

    with meter(progress, "optimising") as report:
        for step in range(steps):
            if step == fourier_steps:  # from the best so far, pixel by pixel: only this way pixels reach the ends
                let_rivals_in()
                pixels = best_images.clone().requires_grad_(True)
            picture = painted() if pixels is None else pixels
            rough = step < steps * (1 - polish)
            seen = _moved(torch, picture, jitter, scale, rotate, seeds) if rough else picture
            activation = model.trace(seen, [objective.layer])[objective.layer]
            now = objective.value(activation)
            with torch.no_grad():
                history[step] = now.detach().numpy()
                if not rough or step % 8 == 0:  # only what the image as it is gives may count
                    plain = objective.value(model.trace(picture, [objective.layer])[objective.layer]) if rough else now
                    plain = plain.detach()
                    better = plain > best_values
                    best_values = torch.where(better, plain, best_values)
                    best_images[better] = picture.detach()[better]
            loss = -now.sum()
            if diversity > 0 and count > 1:
                loss = loss + diversity * now.detach().abs().mean() * _alike(torch, activation)
            if pixels is not None:
                (slope,) = torch.autograd.grad(loss, pixels)
                with torch.no_grad():
                    pace = 0.2 * (high - low) * (1 - (step - fourier_steps) / max(steps - fourier_steps, 1))
                    top = slope.abs().amax((1, 2, 3), keepdim=True).clamp_min(1e-30)
                    pixels -= pace * slope / top
                    pixels.clamp_(low, high)
            else:
                (spectrum.grad,) = torch.autograd.grad(loss, spectrum)  # the model's own parameters get no gradient
                if float(spectrum.grad.abs().max()) == 0.0:  # nothing is active yet: look elsewhere
                    with torch.no_grad():
                        spectrum += torch.randn(spectrum.shape, generator=seeds)
                else:
                    size = spectrum.grad.flatten(1).norm(dim=1).clamp_min(1e-20)
                    spectrum.grad /= size[:, None, None, None, None] / math.sqrt(spectrum[0].numel())
                    optimiser.step()
            report(step + 1, f"step {step + 1} of {steps}, best {float(best_values.max()):.4g}")
    if pixels is None:
        let_rivals_in()
    order = torch.argsort(-best_values, stable=True)
    clipped = best_images[order].clamp(low, high).numpy()
    values, places = best_values[order].double().numpy(), order.numpy()
    return Visualisation(objective, clipped, values, history[:, places], tuple(origins[i] for i in places), seed)


def measure(model: Model, objective: Objective, images: Any, *, batch: int = 64) -> npt.NDArray[np.float64]:
    """The objective's value on each image.

    Parameters
    ----------
    model : Model
        What `as_model` returns.
    objective : Objective
        What `neuron`, `channel` or `direction` gives.
    images : (n, rows, columns, channels)
    batch : int
        Images in one run of the model.

    Returns
    -------
    (n,) array
    """
    checked = model.images(images)
    out = []
    for start in range(0, len(checked), batch):
        part = model.activations(checked[start : start + batch], [objective.layer], batch=batch)[objective.layer]
        out.append(np.asarray(objective.value(part), np.float64))
    return np.concatenate(out)


def crops(
    images: Sequence[Any],
    size: tuple[int, int],
    count: int,
    *,
    largest: float = 1.0,
    rng: Any = None,
) -> npt.NDArray[np.float32]:
    """Random crops of real images of any size.

    Parameters
    ----------
    images : sequence of array_like (height, width, channels)
    size : tuple
        (height, width) of a crop.
    count : int
    largest : float
        Above 1 a crop is cut 1 to `largest` times as large (evenly in the logarithm, as far as the image allows) and
        made smaller, so things of many sizes are seen.
    rng : None, int, SeedSequence or Generator

    Returns
    -------
    ndarray (count, height, width, channels) in [0, 1], float32

    Examples
    --------
    >>> import numpy as np
    >>> crops([np.zeros((16, 20, 3))], (8, 8), 5, rng=0).shape
    (5, 8, 8, 3)
    """
    draw = generator(rng)
    largest = real(largest, "largest", low=1.0)
    size = picture_size(size)
    given = several(images, "images", "pictures")
    if not given:
        raise InputError("images must hold at least one picture")
    out = []
    for _ in range(integer(count, "count", low=1, high=_MOST_CROPS)):
        chosen = given[int(draw.integers(len(given)))]
        real_array(chosen, "images")
        image = np.asarray(chosen)
        if image.ndim != 3 or image.shape[0] < size[0] or image.shape[1] < size[1]:
            raise InputError(
                f"images must have shape (height, width, channels), at least {size[0]} x {size[1]}, got {image.shape}"
            )
        image = image.astype(np.float32) / (255 if image.dtype == np.uint8 else 1)
        factor = 1.0
        if largest > 1:
            most = min(largest, image.shape[0] / size[0], image.shape[1] / size[1])
            factor = most ** draw.random()
        height, width = int(size[0] * factor), int(size[1] * factor)
        top = int(draw.integers(image.shape[0] - height + 1))
        left = int(draw.integers(image.shape[1] - width + 1))
        cut = image[top : top + height, left : left + width]
        if cut.shape[:2] != tuple(size):
            cut = resize(cut[None], size)[0].astype(np.float32) / 255
        out.append(cut)
    return np.stack(out)


def _plain_colours(h: int, w: int, c: int) -> npt.NDArray[np.float32]:
    """Images of one colour in [0, 1]: every corner of the colour cube (of up to four channels) and grey."""
    corners = np.indices((2,) * c).reshape(c, -1).T if c <= 4 else np.array([[0] * c, [1] * c])
    shades = np.concatenate([corners, np.full((1, c), 0.5)])
    return np.ascontiguousarray(np.broadcast_to(shades[:, None, None, :], (len(shades), h, w, c)), np.float32)


def _textures(h: int, w: int, c: int, draw: np.random.Generator) -> npt.NDArray[np.float32]:
    """Random dots in {0, 1}: sides of 1, 2 and 4 pixels; few, half, many; grey and in colour."""
    out = []
    for side in (1, 2, 4):
        rows, columns = -(-h // side), -(-w // side)
        for share in (0.15, 0.5, 0.85):
            for depth in sorted({1, c}):
                dots = (draw.random((rows, columns, depth)) < share).astype(np.float32)
                dots = np.broadcast_to(dots, (rows, columns, c))
                out.append(dots.repeat(side, 0).repeat(side, 1)[:h, :w])
    return np.stack(out)


def _best_of(torch: Any, model: Model, objective: Objective, images: npt.NDArray[np.float32]) -> tuple[Any, float]:
    """The image with the largest value, as a tensor, and that value."""
    best, value = torch.from_numpy(images[0]), -math.inf
    with torch.no_grad():
        for start in range(0, len(images), 16):
            part = torch.from_numpy(images[start : start + 16])
            found = objective.value(model.trace(part, [objective.layer])[objective.layer])
            if float(found.max()) > value:
                best, value = part[int(found.argmax())], float(found.max())
    return best, value


def _damping(torch: Any, h: int, w: int, decay: float) -> Any:
    rows, columns = torch.fft.fftfreq(h)[:, None], torch.fft.rfftfreq(w)[None]
    radius = torch.sqrt(rows**2 + columns**2).clamp_min(1 / max(h, w))
    return radius**-decay * math.sqrt(h * w) * max(h, w) ** (1 - decay) / 4


def _colours(torch: Any, channels: int) -> Any:
    """Directions in colour space along which natural images vary independently, with their typical spread."""
    if channels != 3:
        return torch.eye(channels)
    light = torch.tensor([1.0, 1.0, 1.0]) / math.sqrt(3)
    warm = torch.tensor([1.0, 0.0, -1.0]) / math.sqrt(2)
    green = torch.tensor([1.0, -2.0, 1.0]) / math.sqrt(6)
    return torch.stack([light, 0.5 * warm, 0.3 * green]) * math.sqrt(3)


def _moved(torch: Any, picture: Any, jitter: int, scale: float, rotate: float, seeds: Any) -> Any:
    """A random shift, change of size and turn of each image; the border is reflected."""
    n, h, w, _ = picture.shape
    draw = torch.rand(n, 4, generator=seeds) * 2 - 1
    angle, size = draw[:, 0] * math.radians(rotate), 1 + draw[:, 1] * scale
    cos, sin = torch.cos(angle) / size, torch.sin(angle) / size
    shift = draw[:, 2:] * jitter * 2 / torch.tensor([w, h])
    theta = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    grid = torch.nn.functional.affine_grid(theta, [n, 1, h, w], align_corners=False)
    moved = torch.nn.functional.grid_sample(
        picture.permute(0, 3, 1, 2), grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )
    return moved.permute(0, 2, 3, 1)


def _alike(torch: Any, activation: Any) -> Any:
    """Mean cosine between the Gram matrices of the activations of different images."""
    flat = activation.flatten(2) if activation.ndim > 2 else activation[:, :, None]
    gram = torch.nn.functional.normalize((flat @ flat.transpose(1, 2)).flatten(1), dim=1)
    cosine = gram @ gram.T
    n = len(cosine)
    return (cosine.sum() - cosine.diagonal().sum()) / (n * (n - 1))
