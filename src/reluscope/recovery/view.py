"""A scalar view of an oracle on the unit box, with what one must know before trusting differences: noise and shape.

The box is mapped to [-1, 1]^n, so lengths mean the same for every oracle, and several outputs are mixed into one by
fixed random weights: a unit that is visible in any output is visible in almost every mixture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reluscope._check import FloatArray
from reluscope.recovery.oracle import Oracle

_SAMPLES = 48
_STEPS = 2.0 ** -np.arange(2, 17)
"""Half-lengths of the triples whose second differences are looked at, in the unit box."""

_NUMBERS = 1 << 22
"""Numbers in the rows of one call of the oracle: 32 MB."""


@dataclass(frozen=True, eq=False)
class View:
    """The oracle in unit-box coordinates, its outputs mixed to one.

    `noise` is the typical error of one value (rounding or worse), `scale` the spread of the values, `smooth` whether
    second differences shrink like the square of the step: then the function bends everywhere and is not piecewise
    affine.
    """

    oracle: Oracle
    centre: FloatArray
    half: FloatArray
    mix: FloatArray
    noise: float
    scale: float
    smooth: bool
    probable: bool = False
    """Whether all outputs seen lie between 0 and 1."""

    @property
    def n(self) -> int:
        """Number of inputs."""
        return self.oracle.n_inputs

    @property
    def relative(self) -> float:
        """Noise over spread."""
        return self.noise / self.scale

    @property
    def allowed(self) -> float:
        """The largest error of what is complete: rounding and noise explain it."""
        return max(1e-9 * self.scale, 100 * self.noise)

    def outputs(self, U: FloatArray) -> FloatArray:
        """All outputs at unit-box rows, shape (n, outputs)."""
        most = max(1, _NUMBERS // self.n)
        if len(U) > most:
            return np.concatenate([self.outputs(U[i : i + most]) for i in range(0, len(U), most)])
        return self.oracle(self.centre + self.half * U)

    def values(self, U: FloatArray) -> FloatArray:
        """The mixed output at unit-box rows, shape (n,)."""
        return self.outputs(U) @ self.mix

    def slopes(self, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mixed values and their derivatives in unit-box coordinates; only where the oracle gives gradients."""
        values, gradients = self.oracle.both(self.centre + self.half * U)
        return values @ self.mix, (self.mix @ gradients) * self.half

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Uniform points of the unit box."""
        return rng.uniform(-1, 1, (count, self.n))


def look(oracle: Oracle, lower: FloatArray, upper: FloatArray, rng: np.random.Generator) -> View:
    """Measure noise, spread and shape with about 1,500 queries and return the view.

    For triples `x - s e, x, x + s e` of shrinking half-length s, the second differences of a piecewise affine function
    fall to the noise at once when the triple fits into one piece; those of a smooth curved function fall like `s^2`.
    """
    centre, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    mix = rng.choice([-1.0, 1.0], oracle.n_outputs) * rng.uniform(0.5, 1.0, oracle.n_outputs)
    if oracle.n_outputs == 1:
        mix = np.ones(1)
    base = rng.uniform(-0.7, 0.7, (_SAMPLES, oracle.n_inputs))
    way = rng.normal(size=base.shape)
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    rows = [base] + [base + sign * s * way for s in _STEPS for sign in (-1.0, 1.0)]
    outputs = oracle(centre + half * rng.uniform(-1, 1, (4 * _SAMPLES, oracle.n_inputs)))
    spread = outputs @ mix
    values = (oracle(centre + half * np.concatenate(rows)) @ mix).reshape(len(rows), _SAMPLES)
    bends = np.abs(values[1::2] + values[2::2] - 2 * values[0])  # (steps, samples)
    scale = max(float(np.std(spread)), 1e-300)
    eps = float(np.finfo(oracle.dtype).eps)
    rounding = eps * float(np.median(np.abs(spread)) + scale)
    # At the shortest steps nearly every triple lies in one piece, so what is left there is noise.
    floor = float(np.quantile(bends[-4:], 0.95)) / 3.0
    noise = max(floor, 0.25 * rounding, 0.3 * _quantum(spread))
    return View(
        oracle,
        centre,
        half,
        mix,
        noise,
        scale,
        _bends_everywhere(bends, noise),
        bool(((outputs > 0) & (outputs < 1)).all()),
    )


def _bends_everywhere(bends: FloatArray, noise: float) -> bool:
    """Whether a low quantile of the second differences follows the square of the step down to the noise.

    Many bends close together look smooth from afar, so what counts is the end: a curve's second differences are
    quartered by each halving until they drown, those of affine pieces drop out of sight from one step to the next.
    """
    low = np.quantile(bends, 0.2, axis=1)
    seen = np.flatnonzero(low > 200 * noise)
    if not len(seen):
        return False
    end = min(int(seen[-1]) + 1, len(low) - 1)
    if end < 3:
        return False
    ratio = low[end - 3 : end] / np.maximum(low[end - 2 : end + 1], 1e-300)
    return bool(((ratio > 3.0) & (ratio < 5.0)).all())


def _quantum(values: FloatArray) -> float:
    """The step 10^-d if all values are rounded to d decimals (d < 12), else 0."""
    for digits in range(12):
        scaled = values * 10.0**digits
        if np.abs(scaled - np.round(scaled)).max() <= 1e-6 and np.ptp(values) > 0:
            return float(10.0**-digits) if digits or len(np.unique(values)) < len(values) else 0.0
    return 0.0


_CHORDS, _MARKS, _HALVINGS = 8, 33, 30
"""Lines on which a jump is looked for, points on each, and halvings of the step with the largest change."""
_JUMP = 0.02
"""A change over a billionth of the box that is this share of the spread of all values is a jump."""
_NOISY = 0.25
"""Noise above this share of the spread leaves nothing to recover."""


def not_continuous(view: View) -> str | None:
    """Why the oracle cannot be continuous and piecewise affine (labels, jumps, noise), in words; None if it may be.

    Takes about 500 queries: on some lines, the step with the largest change is halved until it is a billionth of the
    box. The change over it then vanishes for a continuous function, and stays for a jump or for noise.
    """
    if view.oracle.left < 4 * _CHORDS * (_MARKS + _HALVINGS):  # too few for anything to be recovered
        return None
    rng = np.random.default_rng(20261117)  # of its own: the draws of the caller stay what they are
    ends = rng.uniform(-1, 1, (2, _CHORDS, view.n))
    share = np.linspace(0.0, 1.0, _MARKS)[None, :, None]
    rows = ends[0][:, None] * (1 - share) + ends[1][:, None] * share

    def ask(points: FloatArray) -> FloatArray:
        return np.asarray(view.oracle(view.centre + view.half * points.reshape(-1, view.n))).reshape(
            *points.shape[:-1], -1
        )

    values = ask(rows)
    distinct = len(np.unique(values.reshape(-1, values.shape[-1]), axis=0))
    spread = np.maximum(np.ptp(values.reshape(-1, values.shape[-1]), axis=0), 1e-300)
    change = (np.abs(np.diff(values, axis=1)) / spread).max(axis=2)
    here, k = np.arange(_CHORDS), change.argmax(axis=1)
    low, high, low_value, high_value = rows[here, k], rows[here, k + 1], values[here, k], values[here, k + 1]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        value = ask(middle)
        left = (np.abs(value - low_value) / spread).max(axis=1) >= (np.abs(high_value - value) / spread).max(axis=1)
        low, high = np.where(left[:, None], low, middle), np.where(left[:, None], middle, high)
        low_value = np.where(left[:, None], low_value, value)
        high_value = np.where(left[:, None], value, high_value)
    jump = float((np.abs(high_value - low_value) / spread).max())
    if jump <= _JUMP:
        if view.noise > _NOISY * view.scale and view.scale > 1e-9 * float(np.abs(values).max()):
            return (
                f"nothing piecewise affine is seen: second differences over the shortest steps are {view.noise:.2g}, "
                f"the spread of all values is {view.scale:.2g} (noise, or pieces too small to see)"
            )
        return None
    again = float((np.abs(ask(low) - low_value) / spread).max())
    if again > _JUMP:
        return f"the oracle is noisy: the same input gave values that differ by {again:.0%} of their spread"
    if distinct <= max(16, values.shape[0] * values.shape[1] // 8):
        return (
            f"the oracle is not continuous: it took {distinct} different values only and jumps between them (labels, "
            "an argmax or a step); ask for scores instead of labels, or for the boundary alone: method='labels'"
        )
    return (
        f"the oracle is not continuous: its values jump by {jump:.0%} of their spread over a billionth of the box "
        "(a step, or noise that depends on the input)"
    )
