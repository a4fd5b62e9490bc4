"""Sums over lines or points of everything that was asked for, kept apart by replicate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._kernels import kernel
from reluscope.measure.shared import line_sums
from reluscope.measure.shared.draws import Batch
from reluscope.measure.shared.job import Flags, Job, Sides
from reluscope.measure.shared.trace import Segments, Tracer
from reluscope.network import Network, Pattern

Parts = list[tuple[int, int]]
"""Which groups a batch belongs to: (group, number of lines), in order, each group once."""

MOST_FLAT_VALUES = 1 << 16
"""Different values of constant stretches that are kept while looking for atoms."""


@dataclass(eq=False)
class PatternTable:
    """Masses of patterns by replicate; see `reluscope.measure.shared.line_sums.pattern_masses`."""

    codes: npt.NDArray[np.uint64]
    slots: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]
    known: Pattern
    total: FloatArray
    square: FloatArray
    most: FloatArray
    line_of: npt.NDArray[np.int64]
    line_mass: FloatArray
    rest: FloatArray
    used: int = 0

    @classmethod
    def empty(cls, net: Network, room: int, replicates: int, lead: int = 0) -> PatternTable:
        """A table for `room` patterns. The codes are fixed: they are a hash, not a draw; 0 for units left out of it."""
        pieces = int(net.pieces.max(initial=1))
        codes = np.random.default_rng(0).integers(0, 2**64, (net.n_units, pieces, 2), dtype=np.uint64)
        codes[:lead] = 0
        slots = np.zeros(1 << int(2 * room - 1).bit_length(), np.int64)
        return cls(
            codes,
            slots,
            np.zeros((room, 2), np.uint64),
            np.zeros((room, net.n_units), np.uint8),
            np.zeros((room, replicates)),
            np.zeros(room),
            np.zeros(room),
            np.full(room, -1, np.int64),
            np.zeros(room),
            np.zeros(replicates),
        )


@dataclass(eq=False)
class Tally:
    """Sums by replicate (`total[name]` of shape (replicates, ...)), and over all lines the sums of squares of what each
    contributes (`square[name]`) and the largest and smallest contribution (`most[name]`, `least[name]`).
    """

    job: Job
    net: Network
    replicates: int
    lead: int = 0
    """Units at the beginning that no pattern tells apart: those of the law's own layer."""
    total: dict[str, FloatArray] = field(default_factory=dict)
    square: dict[str, FloatArray] = field(default_factory=dict)
    most: dict[str, FloatArray] = field(default_factory=dict)
    least: dict[str, FloatArray] = field(default_factory=dict)
    count: FloatArray = field(default_factory=lambda: np.zeros(0))
    patterns: PatternTable | None = None
    flats: list[dict[int, FloatArray]] = field(default_factory=list)
    grids: list[float] = field(default_factory=list)
    lines: int = 0
    segments: int = 0
    """Pieces that the lines were cut into."""
    seconds: float = 0.0
    """CPU time that drawing and summing took, preparations left out."""
    largest: float = 1.0
    """What a line or point can contribute to a probability at the most."""
    cut: float = 0.0
    """Probability beyond the ends of the lines: no sum knows it."""
    counts: bool = False
    """Whether every contribution is 0 or 1."""
    flipped: dict[str, Flags] = field(default_factory=dict)
    """Where the numbers in [0, largest] that were drawn are 1 less the contributions (nowhere, for most)."""
    hidden: dict[str, FloatArray] = field(default_factory=dict)
    """Variance of a single contribution that is expected beyond what the sums show (none for most ways to draw)."""
    replicates_are_draws: bool = True
    """False when the sums are exact: finitely many points, or the one line there is."""

    def __post_init__(self) -> None:
        self.count = np.zeros(self.replicates)
        if self.job.patterns:
            self.patterns = PatternTable.empty(self.net, self.job.patterns, self.replicates, self.lead)
        self.flats = [{} for _ in self.job.atom_forms]
        self.grids = [0.0] * len(self.job.atom_forms)

    @property
    def adds_up(self) -> bool:
        """Whether sums of parts of the draws, added in order, are the sums of all, bit for bit."""
        return not (self.job.switches or self.job.atom_forms)

    def part(self) -> Tally:
        """An empty tally of the same kind, for some of the draws."""
        return Tally(self.job, self.net, self.replicates, self.lead)

    def add(self, part: Tally) -> None:
        """Add what a part holds (only where `adds_up`)."""
        for name, total in part.total.items():
            self._make(name, total.shape[1:])
            self.total[name] += total
            self.square[name] += part.square[name]
            np.maximum(self.most[name], part.most[name], out=self.most[name])
            np.minimum(self.least[name], part.least[name], out=self.least[name])
        self.count += part.count
        self.lines += part.lines
        self.segments += part.segments

    def ending_in(self, net: Network) -> Tally:
        """The same sums without the first units, which are the law's own: `net` is the end of the network."""
        if self.lead:
            for kept in (self.total, self.square, self.most, self.least):
                if "marginals" in kept:
                    kept["marginals"] = kept["marginals"][..., self.lead :, : int(net.pieces.max(initial=1))]
            if self.patterns is not None:
                self.patterns.known = self.patterns.known[:, self.lead :]
        return self

    def add_lines(self, tracer: Tracer, batch: Batch, parts: Parts) -> None:
        """Trace the lines of a batch and add what they contribute, each part of the batch to its group."""
        job = self.job
        found = tracer(batch.base, batch.direction, batch.low, batch.high, switches=job.switches)
        self.segments += len(found.t)
        n, r = len(batch.base), batch.base.shape[1]
        law = (batch.law, r, found.offsets, found.t, found.value, found.slope, batch.low, batch.high, batch.scale)
        if job.n_levels:
            below, above = np.empty((2, n, job.n_levels))
            density = np.empty((n if job.density else 0, job.n_levels))
            column = 0
            for form, thresholds in zip(job.level_forms, job.thresholds, strict=True):
                line_sums.levels(*law, form, thresholds, column, below, above, density)
                column += len(thresholds)
            self._add("below", below, parts)
            self._add("above", above, parts)
            if job.density:
                self._add("density", density, parts)
        rows = job.rows
        if rows.count:
            inside = np.empty((n, rows.count))
            line_sums.events(
                *law, rows.form, rows.bound, rows.strict, rows.parts, rows.part_start, rows.part_event, rows.part_size,
                inside,
            )  # fmt: skip
            self._add("events", inside, parts)
        k = len(job.moment_forms)
        if k:
            first, second = np.empty((n, k)), np.empty((n, k, k))
            line_sums.moments(*law, job.moment_forms, first, second)
            self._add("first", first, parts)
            self._add("second", second, parts)
        if job.switches or job.atom_forms:
            mass = np.zeros(len(found.t))
            line_sums.segment_masses(batch.law, r, found.offsets, found.t, batch.high, batch.scale, mass)
            for which, form in enumerate(job.atom_forms):
                self._add_flats(which, form, found, mass, parts)
            if job.switches:
                self._add_units(mass, found, parts)
        self._counted(parts)

    def add_points(self, U: FloatArray, parts: Parts, weights: FloatArray | None = None) -> None:
        """Add points, of weight 1 each by default: everything but densities."""
        job = self.job
        outputs = self.net(U) @ job.forms.T
        heavy = np.ones(len(U)) if weights is None else weights
        self._add_outputs(outputs, parts, weights)
        if weights is not None:
            if job.density:
                self._add("density", np.zeros((len(U), job.n_levels)), parts)
            for which, form in enumerate(job.atom_forms):
                values, inverse = np.unique(outputs[:, form], return_inverse=True)
                for i, (value, mass) in enumerate(zip(values, np.bincount(inverse, weights), strict=True)):
                    self.flats[which][2 * i] = np.array([mass, 2.0, value])
        if job.switches:
            n = len(U)
            none, each = np.zeros(0, np.int64), np.arange(n + 1)
            pattern = self.net.pattern(U)
            zero = np.zeros((n, 1))
            fake = Segments(
                each, zero[:, 0], zero, zero, zero[:, 0], zero[:, 0], np.zeros(n + 1, np.int64), none,
                none.astype(np.int32), none.astype(np.uint8), pattern,
            )  # fmt: skip
            self._add_units(heavy, fake, parts)
        self._counted(parts)

    def add_outputs(self, outputs: FloatArray, parts: Parts) -> None:
        """Add points of weight 1 that are known by their forms (n, forms): everything but units and densities."""
        self._add_outputs(outputs, parts, None)
        self._counted(parts)

    def _add_outputs(self, outputs: FloatArray, parts: Parts, weights: FloatArray | None) -> None:
        """Levels, events and moments of points."""
        job = self.job
        heavy = np.ones(len(outputs)) if weights is None else weights
        if job.n_levels and weights is None:
            self._count_levels(outputs, parts)
        elif job.n_levels:
            below = job.below(outputs)
            self._add("below", heavy[:, None] * below, parts)
            self._add("above", heavy[:, None] * ~below, parts)
        rows = job.rows
        if rows.count:
            self._add("events", heavy[:, None] * rows.inside(outputs), parts)
        if len(job.moment_forms):
            y = outputs[:, job.moment_forms]
            self._add("first", heavy[:, None] * y, parts)
            self._add("second", heavy[:, None, None] * y[:, :, None] * y[:, None, :], parts)

    def add_weighted(
        self, inside: Flags, sides: Sides, weights: FloatArray, hits: npt.NDArray[np.intp], parts: Parts
    ) -> None:
        """Add weighted points: point `hits[i]` is on the summed sides `inside[i]` and weighs `weights[i]`.

        Points that are not among the hits are on none. What the other side of a level or event has is 1 less.
        """
        groups, sizes = (np.array(x, np.int64) for x in zip(*parts, strict=True))
        total = np.zeros((len(parts), inside.shape[1]))
        square, most = np.zeros((2, inside.shape[1]))
        add_hits(inside, weights, hits, np.cumsum(sizes), total, square, most)
        for name, part, flip in sides.summed():
            self._make(name, flip.shape)
            x, x2, top = total[:, part], square[part], most[part]
            self.total[name][groups] += np.where(flip, sizes[:, None] - x, x)
            self.flipped[name] = flip
            self.square[name] += np.where(flip, sizes.sum() - 2.0 * x.sum(axis=0) + x2, x2)
            np.maximum(self.most[name], np.where(flip, 1.0, top), out=self.most[name])
            np.minimum(self.least[name], np.where(flip, 1.0 - top, 0.0), out=self.least[name])
        self._counted(parts)

    def _count_levels(self, outputs: FloatArray, parts: Parts) -> None:
        """Levels of points of weight 1: counts are sums, sums of squares, and tell the ends."""
        job = self.job
        found = np.empty(job.n_levels, np.int64)
        self._make("below", (job.n_levels,))
        self._make("above", (job.n_levels,))
        begin = 0
        for group, n in parts:
            column = 0
            for form, c in zip(job.level_forms, job.thresholds, strict=True):
                count_below(outputs, form, c, begin, begin + n, found[column : column + len(c)])
                column += len(c)
            begin += n
            for name, count in (("below", found), ("above", n - found)):
                self.total[name][group] += count
                self.square[name] += count
                np.maximum(self.most[name], count > 0, out=self.most[name])
                np.minimum(self.least[name], count == n, out=self.least[name])

    def add_weighted_points(self, U: FloatArray, weights: FloatArray) -> None:
        """The whole of a law that is finitely many points, their weights summing to 1."""
        self.add_points(U, [(0, len(U))], weights)
        self.count[0] = 1.0
        self.replicates_are_draws = False

    def means(self) -> dict[str, FloatArray]:
        """Mean over the lines of each replicate."""
        count = np.maximum(self.count, 1.0)
        return {k: v / count.reshape(-1, *[1] * (v.ndim - 1)) for k, v in self.total.items()}

    def _counted(self, parts: Parts) -> None:
        for group, n in parts:
            self.count[group] += n
            self.lines += n

    def _add(self, name: str, rows: FloatArray, parts: Parts) -> None:
        self._make(name, rows.shape[1:])
        if len(parts) == 1:
            self.total[name][parts[0][0]] += rows.sum(axis=0)
        else:
            starts = np.cumsum([0, *(n for _, n in parts[:-1])])
            self.total[name][[group for group, _ in parts]] += np.add.reduceat(rows, starts, axis=0)
        self.square[name] += np.einsum("i...,i...->...", rows, rows)
        np.maximum(self.most[name], rows.max(axis=0), out=self.most[name])
        np.minimum(self.least[name], rows.min(axis=0), out=self.least[name])

    def _make(self, name: str, shape: tuple[int, ...]) -> None:
        """Room for the sums of one kind of quantity."""
        if name not in self.total:
            self.total[name] = np.zeros((self.replicates, *shape))
            self.square[name] = np.zeros(shape)
            self.most[name], self.least[name] = np.full(shape, -np.inf), np.full(shape, np.inf)

    def _add_units(self, mass: FloatArray, found: Segments, parts: Parts) -> None:
        group = np.repeat([g for g, _ in parts], [n for _, n in parts])
        switched = (found.offsets, found.switch_offsets, found.at, found.unit, found.piece, found.pattern, group)
        if self.job.marginals:
            self._make("marginals", (self.net.n_units, int(self.net.pieces.max(initial=1))))
            sums = (kept["marginals"] for kept in (self.total, self.square, self.most, self.least))
            line_sums.unit_marginals(mass, *switched, *sums)
        table = self.patterns
        if table is not None:
            table.used = line_sums.pattern_masses(
                mass, *switched, table.codes, table.slots, table.keys, table.known, table.total, table.square,
                table.most, table.line_of, table.line_mass, table.rest, self.lines, table.used,
            )  # fmt: skip

    def _add_flats(self, which: int, form: int, found: Segments, mass: FloatArray, parts: Parts) -> None:
        """Constant stretches by value, on a grid of ten digits of the form's size so that equal values meet."""
        flat = np.zeros(len(found.t), bool)
        line_sums.flat_parts(found.offsets, found.slope, form, flat)
        if not flat.any():
            return
        value = found.value[flat, form]
        if self.grids[which] == 0.0:
            self.grids[which] = 1e-10 * max(float(np.abs(found.value[:, form]).max()), 1e-290)
        places, first, inverse = np.unique(
            np.round(value / self.grids[which]).astype(np.int64), return_index=True, return_inverse=True
        )
        line = np.repeat(np.arange(len(found)), np.diff(found.offsets))[flat]
        group = np.repeat([g for g, _ in parts], [n for _, n in parts])[line]
        lines = np.bincount(np.unique(np.stack([inverse, line]), axis=1)[0], minlength=len(places))
        weight = np.zeros((len(places), self.replicates + 2))
        np.add.at(weight, (inverse, group), mass[flat])
        weight[:, -2] = lines
        kept = self.flats[which]
        for i, place in enumerate(places.tolist()):
            if place in kept:
                kept[place] += weight[i]
            elif len(kept) < MOST_FLAT_VALUES:
                weight[i, -1] = value[first[i]]
                kept[place] = weight[i]

    def atoms(self, which: int) -> tuple[FloatArray, FloatArray]:
        """Values (k,) that the form takes on stretches of more than one line, and their mass by replicate (replicates,
        k).
        """
        kept = self.flats[which]
        merged: list[FloatArray] = []
        before: int | None = None
        for place in sorted(kept):
            if before is not None and place - before <= 1:
                merged[-1] = np.append(merged[-1][:-1] + kept[place][:-1], merged[-1][-1])
            else:
                merged.append(kept[place].copy())
            before = place
        rows = np.array([m for m in merged if m[-2] > 1 or self.lines == 1]).reshape(-1, self.replicates + 2)
        return rows[:, -1], (rows[:, :-2] / np.maximum(self.count, 1.0)).T


def batches(each: int, groups: int, chunk: int) -> Iterator[tuple[Parts, list[tuple[int, int, int]]]]:
    """All groups of `each` draws in chunks: whom the draws of a chunk belong to, and (group, begin, end) to fill."""
    fills: list[tuple[int, int, int]] = []
    filled = 0
    for group in range(groups):
        left = each
        while left:
            take = min(left, chunk - filled)
            fills.append((group, filled, filled + take))
            filled, left = filled + take, left - take
            if filled == chunk or (not left and group + 1 == groups):
                yield [(g, end - begin) for g, begin, end in fills], fills
                fills, filled = [], 0


@kernel
def count_below(Y: Any, form: int, thresholds: Any, begin: int, end: int, out: Any) -> None:
    """How many of the rows begin..end have `Y[:, form] <= c`, for each threshold c."""
    for q in range(thresholds.size):
        c = thresholds[q]
        found = 0
        for i in range(begin, end):
            found += Y[i, form] <= c
        out[q] = found


@kernel
def add_hits(inside: Any, weights: Any, hits: Any, ends: Any, total: Any, square: Any, most: Any) -> None:
    """Sums of weights, of their squares, and their maxima over the points inside each of some sets.

    Row i of `inside` belongs to point `hits[i]` (rising); `total[g]` is for points before `ends[g]`.
    """
    group = 0
    for i in range(hits.size):
        while hits[i] >= ends[group]:
            group += 1
        w = weights[i]
        for q in range(inside.shape[1]):
            if inside[i, q]:
                total[group, q] += w
                square[q] += w * w
                most[q] = max(most[q], w)
