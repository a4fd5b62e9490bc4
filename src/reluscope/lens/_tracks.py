"""Which inputs a tensor's entries can depend on, axis by axis: the arithmetic behind receptive fields.

An axis of an intermediate tensor that still follows axis a of the image carries a `Span`: entry i depends on input
positions `low + i * jump ... high + i * jump`. A window (convolution or pooling) of kernel k, stride s, dilation d
and padding p before the first entry turns (jump, low, high) into

    jump * s,    low - p * jump,    high + (d * (k - 1) - p) * jump,

so its own stride widens later fields, not its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Span:
    """Entry i of an axis sees positions `low + i * jump` to `high + i * jump` of image axis `axis`."""

    axis: int
    jump: Fraction = Fraction(1)
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Track:
    """Spans of the axes of one tensor (None: the axis follows no image axis).

    `mixed` holds the image axes that were summed over or flattened: every entry may depend on all of them.
    `norms` names the normalisations over positions on the way, `unknown` the operations that were not understood.
    """

    spans: tuple[Span | None, ...]
    mixed: frozenset[int] = frozenset()
    norms: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def window(
        self, axis: int, kernel: int, stride: int = 1, before: int = 0, dilation: int = 1, transposed: bool = False
    ) -> Track:
        """After a window that slides along one axis; `before` is the padding in front."""
        span = self.spans[axis]
        if span is None:
            return self
        reach = dilation * (kernel - 1)
        if transposed:  # entry o reads inputs (o + before - reach .. o + before) / stride, when whole
            jump = span.jump / stride
            new = Span(span.axis, jump, span.low + (before - reach) * jump, span.high + before * jump)
        else:
            low, high = span.low - before * span.jump, span.high + (reach - before) * span.jump
            new = Span(span.axis, span.jump * stride, low, high)
        return self._with(axis, new)

    def shifted(self, axis: int, start: int, step: int = 1) -> Track:
        """After a slice `start::step` of one axis (a negative start is padding)."""
        span = self.spans[axis]
        if span is None:
            return self
        move = start * span.jump
        return self._with(axis, Span(span.axis, span.jump * step, span.low + move, span.high + move))

    def resampled(self, axis: int, factor: Fraction, reach: int = 0) -> Track:
        """After an upsampling by `factor` that blends `reach` neighbours on each side."""
        span = self.spans[axis]
        if span is None or factor <= 0:
            return self
        grow = reach * span.jump
        return self._with(axis, Span(span.axis, span.jump / factor, span.low - grow - span.jump, span.high + grow))

    def permuted(self, order: Sequence[int]) -> Track:
        """After a transposition."""
        known = self.ranked(len(order))
        return replace(known, spans=tuple(known.spans[i] for i in order))

    def ranked(self, n_axes: int) -> Track:
        """The same with this number of axes; when the number differs, what they followed is taken as mixed."""
        if len(self.spans) == n_axes:
            return self
        return replace(self.mix(range(len(self.spans))), spans=(None,) * n_axes)

    def mix(self, axes: Iterable[int], *, keep: bool = True) -> Track:
        """After every entry of these axes was read; `keep` says whether the axes are still there."""
        axes = set(axes)
        lost = {s.axis for i, s in enumerate(self.spans) if i in axes and s is not None}
        if keep:
            spans = tuple(None if i in axes else s for i, s in enumerate(self.spans))
        else:
            spans = tuple(s for i, s in enumerate(self.spans) if i not in axes)
        return replace(self, spans=spans, mixed=self.mixed | lost)

    def reshaped(self, old: Sequence[int], new: Sequence[int]) -> Track:
        """After a reshape: an axis that survives alone keeps its span, one that is merged or split is mixed."""
        spans: list[Span | None] = [None] * len(new)
        kept: set[int] = set()
        i = j = 0
        while i < len(old) or j < len(new):
            a, b = i, j
            i, j = min(i + 1, len(old)), min(j + 1, len(new))
            left, right = _product(old[a:i]), _product(new[b:j])
            while left != right and (i < len(old) or j < len(new)):
                if (left < right and i < len(old)) or j >= len(new):
                    i += 1
                else:
                    j += 1
                left, right = _product(old[a:i]), _product(new[b:j])
            sources = [k for k in range(a, i) if old[k] != 1] or list(range(a, min(i, a + 1)))
            targets = [k for k in range(b, j) if new[k] != 1] or list(range(b, min(j, b + 1)))
            if len(sources) == 1 and len(targets) == 1:
                spans[targets[0]] = self.spans[sources[0]]
                kept.add(sources[0])
        lost = {s.axis for k, s in enumerate(self.spans) if s is not None and k not in kept}
        return replace(self, spans=tuple(spans), mixed=self.mixed | lost)

    def join(self, other: Track, n_axes: int) -> Track:
        """The track of an entry-by-entry combination of two tensors, aligned at the last axis."""
        mine, theirs = _padded(self.spans, n_axes), _padded(other.spans, n_axes)
        spans: list[Span | None] = []
        lost: set[int] = set()
        for a, b in zip(mine, theirs, strict=True):
            if a is None or b is None:
                spans.append(a or b)
            elif a.axis == b.axis and a.jump == b.jump:
                spans.append(Span(a.axis, a.jump, min(a.low, b.low), max(a.high, b.high)))
            else:
                spans.append(None)
                lost |= {a.axis, b.axis}
        return Track(
            tuple(spans),
            self.mixed | other.mixed | lost,
            _merged(self.norms, other.norms),
            _merged(self.unknown, other.unknown),
        )

    def with_norm(self, name: str) -> Track:
        """The same field, with a normalisation over positions noted."""
        return replace(self, norms=_merged(self.norms, (name,)))

    def not_understood(self, name: str, n_axes: int) -> Track:
        """After an operation that is not known: everything may depend on everything."""
        lost = {s.axis for s in self.spans if s is not None}
        return Track((None,) * n_axes, self.mixed | lost, self.norms, _merged(self.unknown, (name,)))

    def _with(self, axis: int, span: Span) -> Track:
        spans = list(self.spans)
        spans[axis] = span
        return replace(self, spans=tuple(spans))


def _product(numbers: Sequence[int]) -> int:
    out = 1
    for number in numbers:
        out *= int(number)
    return out


def _padded(spans: tuple[Span | None, ...], n_axes: int) -> tuple[Span | None, ...]:
    return (None,) * (n_axes - len(spans)) + spans[max(len(spans) - n_axes, 0) :]


def _merged(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*a, *b)))
