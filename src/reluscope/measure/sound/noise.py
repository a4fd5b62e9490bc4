"""Gaussian noise around many points, at many strengths: the same coordinates and rows, prepared once.

For `x = m + t s z` the first layer is `t (W s) z + (W m + b)`: the coordinates belong to `W s` alone. A point changes
the offset, a strength t scales the weights.

**All smaller noise at once.** A root of `units` is a proof about inputs: linear inequalities that hold off some
half-spaces, and a half-space for each case of the event, none of them with the centre inside if the bound is below 1/2.
With t' < t those half-spaces are t / t' times as many standard deviations away, and the inequalities stay what they
are. So such a bound at t, of an event whose cases have one row each, holds for every t' <= t.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from reluscope._check import EPS, FloatArray
from reluscope.events import PlacedEvent, as_event, place
from reluscope.inputs import Gaussian
from reluscope.measure.sound.frame import BEYOND, Frame, frames
from reluscope.measure.sound.relu_form import ReluForm, relu_form
from reluscope.measure.sound.unit_search import ComponentSearch
from reluscope.measure.sound.units import Tree
from reluscope.network import Network


@dataclass(frozen=True)
class Root:
    """A bracket, and what its upper end is made of: `paid` for tails, `open` for the event off the tails."""

    upper: float
    lower: float
    paid: float
    open: float


@dataclass(eq=False)
class Noise:
    """Bounds of the probability that noise `t * scale` around a point changes what the network decides there.

    A decision is the index of the largest (`smallest`: the smallest) output, the first of equal ones, or for a single
    output 1 where `y > cutoff`, else 0.
    """

    net: Network
    scale: FloatArray
    smallest: bool = False
    cutoff: float = 0.0
    _rows: dict[int, PlacedEvent] = field(default_factory=dict)
    _forms: dict[int, ReluForm] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.law = Gaussian(np.zeros(self.net.n_inputs), self.scale**2)
        self.frame: Frame = frames(self.law, self.net, None)[0]

    def rows(self, decision: int) -> PlacedEvent:
        """The event that the decision is another one."""
        if decision not in self._rows:
            text = f"y[0] {'<=' if decision else '>'} {self.cutoff!r}"
            if self.net.n_outputs > 1:
                text = f"{'argmin' if self.smallest else 'argmax'} != {decision}"
            self._rows[decision] = place(self.net, self.law, as_event(text, self.net, self.law))
        return self._rows[decision]

    def form(self, x: FloatArray, t: float, decision: int) -> ReluForm:
        """The network around x at strength t, and the rows of the event."""
        if decision not in self._forms:
            self._forms[decision] = relu_form(self.frame, self.rows(decision))
        base, first = self._forms[decision], self.net.layers[0]
        offset = first.weight @ x + first.bias
        rounding = (self.net.n_inputs + 4) * EPS * (abs(first.weight) @ np.abs(x) + np.abs(first.bias))
        # The frame's own error is many roundings of each product of a weight and a coordinate; scaling and the square
        # root of a variance are two more: twice that error has room for them.
        error = 2 * t * base.layers[0].error + rounding
        layer = replace(base.layers[0], W=base.layers[0].W * t, b=np.asarray(offset), error=np.asarray(error))
        return replace(base, layers=(layer, *base.layers[1:]))

    def root(self, x: FloatArray, t: float, decision: int, radius: float) -> Root:
        """The bound by one relaxation, units within `radius` deviations; below 1/2 it holds for less noise too."""
        tree = Tree(self.form(x, t, decision), radius, self.frame.gaussian)
        return Root(self.whole(tree.upper), tree.lower * (1 - 1e-12), tree.paid, tree.open + tree.settled)

    def search(self, x: FloatArray, t: float, decision: int) -> ComponentSearch:
        """The search by splitting units, nothing done yet."""
        return ComponentSearch(1.0, self.form(x, t, decision), self.frame.gaussian)

    def whole(self, upper: float) -> float:
        """A bound in the frame as a bound of the probability: what lies beyond the frame comes on top."""
        return min(1.0, upper + BEYOND)
