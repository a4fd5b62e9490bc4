"""The searches that work on one component of a law at a time, for all of its components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from reluscope._check import EPS
from reluscope.events import PlacedEvent
from reluscope.measure.sound.frame import Frame
from reluscope.measure.sound.relu_form import ReluForm, relu_form
from reluscope.measure.sound.slices import SliceSearch, can_slice
from reluscope.measure.sound.unit_search import ComponentSearch


class OneComponent(Protocol):
    """Bounds of the event's probability under one component, and work that narrows them."""

    weight: float
    scanned: bool
    exhausted: bool

    @property
    def upper(self) -> float:
        """The bound from above so far."""
        ...

    @property
    def lower(self) -> float:
        """The bound from below so far."""
        ...

    @property
    def nodes(self) -> int:
        """Nodes looked at."""
        ...

    def scan(self, spent: Callable[[], bool]) -> None:
        """First bounds."""
        ...

    def work(self, spent: Callable[[], bool]) -> None:
        """A little more work."""
        ...


@dataclass(eq=False)
class LawSearch:
    """One kind of search for all components of a law."""

    parts: list[OneComponent] = field(default_factory=list)
    frames: tuple[Frame, ...] = ()
    fixed: tuple[float, float] = (0.0, 0.0)
    """Bounds of what components that are one point add."""

    def advance(self, spent: Callable[[], bool]) -> None:
        """Work until time is up: the component that adds most to the bound comes first."""
        for part in sorted(self.parts, key=lambda p: -p.weight):
            if not part.scanned:
                if spent():
                    return
                part.scan(spent)
        while not spent():
            left = [p for p in self.parts if not p.exhausted and p.upper > p.lower]
            if not left:
                return
            max(left, key=lambda p: p.weight * (p.upper - p.lower)).work(spent)

    @property
    def nodes(self) -> int:
        """Nodes looked at."""
        return sum(p.nodes for p in self.parts)

    @property
    def exhausted(self) -> bool:
        """Whether no more work would help."""
        return all(p.exhausted for p in self.parts)

    def bracket(self) -> tuple[float, float]:
        """The bracket so far."""
        low, high = self.fixed
        for part, frame in zip(self.parts, self.frames, strict=True):
            high += frame.weight * min(1.0, part.upper / frame.total[0] + frame.beyond)
            if frame.total == (1.0, 1.0):
                low += frame.weight * part.lower
        return max(0.0, low * (1 - 1e-12)), min(1.0, high * (1 + 1e-12))


def unit_search(frames: tuple[Frame, ...], rows: PlacedEvent, fixed: tuple[float, float] = (0.0, 0.0)) -> LawSearch:
    """Splitting units, for a placed event; `rows` carries all of its box sides as rows."""
    parts: list[OneComponent] = []
    for frame in frames:
        form = relu_form(frame, rows)
        parts.append(ComponentSearch(frame.weight, form if frame.gaussian else _centred(form, frame), frame.gaussian))
    return LawSearch(parts, frames, fixed)


def slice_search(
    frames: tuple[Frame, ...], rows: PlacedEvent, fixed: tuple[float, float] = (0.0, 0.0)
) -> LawSearch | None:
    """Slices, for a placed event; None where a component is not Gaussian or the network is too large for them."""
    forms = [relu_form(frame, rows) for frame in frames]
    if not all(frame.gaussian and can_slice(form) for frame, form in zip(frames, forms, strict=True)):
        return None
    parts: list[OneComponent] = [SliceSearch(f.weight, form) for f, form in zip(frames, forms, strict=True)]
    return LawSearch(parts, frames, fixed)


def _centred(form: ReluForm, frame: Frame) -> ReluForm:
    """Uniform coordinates moved and scaled to mean 0 and variance 1; such a coordinate is sub-Gaussian.

    `E exp(s v) = sinh(sqrt(3) s) / (sqrt(3) s) <= exp(s^2 / 2)`, term by term of the two series.
    """
    first = form.layers[0]
    middle, sd = 0.5 * (frame.lower + frame.upper), frame.width / np.sqrt(12.0)
    W = first.W.multiply(sd).tocsr() if hasattr(first.W, "multiply") else first.W * sd
    size = abs(first.W) @ (np.abs(frame.lower) + np.abs(frame.upper)) + np.abs(first.b)
    error = first.error + 4 * EPS * (form.n_inputs + 8) * size
    layer = replace(first, W=W, b=first.b + first.W @ middle, error=np.asarray(error))
    return replace(form, layers=(layer, *form.layers[1:]))
