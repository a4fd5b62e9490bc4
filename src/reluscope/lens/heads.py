"""Detectors: which heads look at the current, the previous or the last frames, every n-th or key frames, or switch;
and, where tokens are known, at earlier copies of the current token or at what followed them.

All scores are in [0, 1] and are shares of attention, so that they can be read on their own. A head that spreads its
attention evenly, or at random, scores near 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import instance, integer, real, several
from reluscope._tables import Tabular
from reluscope.errors import InputError
from reluscope.lens.attention import Recording

__all__ = ["HeadPattern", "Patterns", "detect_patterns"]

Array = npt.NDArray[Any]

_RECENT = 2
"""Lags 0 and 1 count as recent."""
_LAST = 4
"""Lags 0 to 3 are the last frames."""
_FAR = 4
"""A key frame is looked at from at least this far away."""


@dataclass(frozen=True, slots=True)
class HeadPattern:
    """Scores of one head.

    `current`: mean weight of the frame itself. `last`: mean weight of the last four frames without the strongest of
    them, times 4/3: 1 when all four share the attention, 0 when one has it. `previous`: mean weight of the frame
    before. `period_score`: how much more weight than its share 1/n goes to the frames one period n apart, rescaled to
    [0, 1]; `period` is n, and `period_in` says whether they are n apart as seen from now ("lag") or in absolute time
    ("time"). `key`: mean weight of the key frames while they can be seen, from at least four frames away; `key_frames`
    lists them. `modes`: how cleanly the weight of the last two frames splits into a high and a low level over time;
    `recent` is the share of time in the high one. With tokens, `duplicate` is the weight of earlier copies of the
    current token, and `induction` that of the tokens that followed them, over what an even head would give them,
    rescaled to [0, 1]; NaN where tokens are not known or hardly repeat.

    Attributes
    ----------
    head : str
    previous, period_score, key, modes, recent, current, last, duplicate, induction : float
    period : int
    period_in : {"lag", "time"}
    key_frames : tuple of int
    """

    head: str
    previous: float
    period_score: float
    period: int
    period_in: str
    key: float
    key_frames: tuple[int, ...]
    modes: float
    recent: float
    current: float = 0.0
    last: float = 0.0
    duplicate: float = float("nan")
    induction: float = float("nan")

    def detected(self, threshold: float = 0.5) -> tuple[str, ...]:
        """Names of the patterns whose score reaches the threshold.

        Parameters
        ----------
        threshold : float

        Returns
        -------
        tuple of str
        """
        named = {
            "current frame": self.current,
            "previous frame": self.previous,
            "last frames": self.last,
            f"every {_ordinal(self.period)} frame": self.period_score,
            "key frame": self.key,
            "two modes": self.modes,
            "duplicate token": self.duplicate,
            "induction": self.induction,
        }
        return tuple(name for name, score in named.items() if score >= threshold)


@dataclass(frozen=True, slots=True)
class Patterns(Tabular):
    """Scores of all heads.

    Attributes
    ----------
    heads : tuple of HeadPattern
    threshold : float
        From which a score counts as a pattern.
    """

    heads: tuple[HeadPattern, ...]
    threshold: float

    def __iter__(self) -> Any:
        return iter(self.heads)

    def __getitem__(self, head: str) -> HeadPattern:
        for pattern in self.heads:
            if pattern.head == head:
                return pattern
        raise InputError(f"there is no head {head!r}; heads are {self.heads[0].head} to {self.heads[-1].head}")

    def detected(self) -> dict[str, tuple[str, ...]]:
        """Heads with at least one pattern, and which."""
        return {p.head: names for p in self.heads if (names := p.detected(self.threshold))}

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns of a table, one row per head."""
        columns = (
            "head",
            "previous",
            "period_score",
            "period",
            "period_in",
            "key",
            "modes",
            "recent",
            "current",
            "last",
            "duplicate",
            "induction",
        )
        table: dict[str, list[Any]] = {c: [getattr(p, c) for p in self.heads] for c in columns}
        return table | {"detected": [", ".join(p.detected(self.threshold)) for p in self.heads]}

    def __repr__(self) -> str:
        detected = self.detected()
        shown = "; ".join(f"{head}: {', '.join(names)}" for head, names in list(detected.items())[:12])
        return f"<Patterns of {len(self.heads)} heads, {len(detected)} with a pattern{': ' + shown if shown else ''}>"


def detect_patterns(
    recording: Recording,
    *,
    tokens: Sequence[Any] | None = None,
    periods: Sequence[int] = range(2, 17),
    threshold: float = 0.5,
) -> Patterns:
    """Score every head of a recording for patterns: current, previous, last, every n-th, key frames, two modes.

    Parameters
    ----------
    recording : Recording
        Of layers whose queries and keys are the same positions (not cross attention).
    tokens : sequence, optional
        The token at each position, as text or number: heads are scored for duplicate tokens and induction too.
    periods : sequence of int
        Periods to try.
    threshold : float
        Score from which a pattern counts as detected.

    Returns
    -------
    Patterns

    Notes
    -----
    Scores are in [0, 1]. Cost: a few passes over each head's weights. A head with a fixed lag cannot be told from an
    induction head on tokens that repeat at one distance only: record one with repeats at several distances.
    """
    instance(recording, "recording", Recording, "a Recording")
    threshold = real(threshold, "threshold", low=0.0, high=1.0)
    tried = sorted({integer(n, "periods", low=2) for n in several(periods, "periods", "whole numbers")})
    if recording.steps < 8:
        raise InputError(f"patterns over time need at least 8 steps, got {recording.steps}")
    steps, positions = recording.weights.shape[0], recording.weights.shape[2]
    if recording.kind == "sequence" and steps != positions:
        raise InputError(
            f"{recording.name or 'the recording'} has {steps} queries and {positions} keys: patterns over time need "
            "queries and keys at the same positions"
        )
    pairs = None if tokens is None else _token_pairs(recording, tokens)
    return Patterns(tuple(_scores(recording, i, tried, pairs) for i in range(len(recording.heads))), threshold)


_LEAST_REPEATS = 4
"""Steps whose token has come before, from which detectors of tokens give a score."""


def _token_pairs(recording: Recording, tokens: Sequence[Any]) -> tuple[Array, Array]:
    """Truth tables (steps, positions): earlier copies of a step's token, and the places after them.

    Lags 0 and 1 are left out of both, so that a head that looks at the current or previous token is none of these.
    """
    words = [str(w) for w in several(tokens, "tokens", "texts or numbers")]
    if len(words) != recording.steps:
        raise InputError(f"tokens must have {recording.steps} entries, one per step, got {len(words)}")
    _, number = np.unique(words, return_inverse=True)
    lag = np.arange(len(words))[:, None] - np.arange(len(words))[None]
    same = (number[:, None] == number[None]) & (lag > 0)
    after = np.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    return same & (lag > 1), after & (lag > 1)


def _share(weights: Array, wanted: Array) -> float:
    """Weight of the wanted places, over what they would get if every step spread its weight over all it can see."""
    rows = wanted.any(1)
    if rows.sum() < _LEAST_REPEATS:
        return float("nan")
    got = float((weights * wanted)[rows].sum(1).mean())
    seen = (weights > 0).any(0).sum() if (np.triu(weights, 1) > 0).any() else np.arange(1, len(weights) + 1)[rows]
    chance = float((wanted[rows].sum(1) / seen).mean())
    return max(0.0, (got - chance) / (1 - chance)) if chance < 1 else 0.0


def _scores(recording: Recording, head: int, periods: list[int], pairs: tuple[Array, Array] | None) -> HeadPattern:
    lags = recording.lags(head).astype(np.float64)
    absolute = recording.absolute(head).astype(np.float64)
    memory = lags.shape[1]
    previous = float(lags[1:, 1].mean()) if memory > 1 else 0.0
    by_lag = _best_period(lags, periods, warm=min(memory, recording.steps // 2))
    by_time = _best_period(absolute, periods, warm=min(memory, recording.steps // 2))
    (score, period), where = max((by_lag, "lag"), (by_time, "time"), key=lambda found: found[0][0])
    key, frames = _key_frames(absolute, memory if recording.kind == "memory" else absolute.shape[1], recording.kind)
    modes, recent = _two_modes(lags)
    means = lags[min(memory, recording.steps // 2) :, :_LAST].mean(axis=0)
    current, last = float(lags[1:, 0].mean()), float(means.sum() - means.max()) * _LAST / (_LAST - 1)
    tokens = (float("nan"), float("nan"))
    if pairs is not None:
        wide = np.zeros((recording.steps, recording.steps))
        wide[:, : absolute.shape[1]] = absolute
        tokens = (_share(wide, pairs[0]), _share(wide, pairs[1]))
    return HeadPattern(
        recording.heads[head], previous, score, period, where, key, frames, modes, recent, current, last, *tokens
    )


def _best_period(weights: Array, periods: list[int], warm: int) -> tuple[float, int]:
    """Best score and period of a comb along the last axis, with one phase for all steps.

    A comb has at least three teeth: the score is the smaller of two, with all weights and with the two largest of
    each step left out. So one or two fixed frames, however strong, are no comb.
    """
    rows = weights[warm:]
    found = [(0.0, periods[0] if periods else 2)]
    total = rows.sum()
    if total > 0:
        rest = rows.copy()
        np.put_along_axis(rest, np.argsort(-rows, 1)[:, :2], 0.0, 1)
        left = max(float(rest.sum()), 1e-6 * float(total))
        for n in periods:
            if 3 * n > rows.shape[1]:
                break
            phases = [rows[:, c::n].sum() for c in range(n)]
            best = int(np.argmax(phases))
            share = min(float(phases[best] / total), float(rest[:, best::n].sum() / left))
            found.append((max(0.0, (share - 1 / n) / (1 - 1 / n)), n))
    top = max(score for score, _ in found)
    return max(((s, n) for s, n in found if s >= 0.9 * top), key=lambda item: item[1])  # 4, not its divisor 2


def _key_frames(absolute: Array, memory: int, kind: str) -> tuple[float, tuple[int, ...]]:
    steps, positions = absolute.shape
    distance = np.arange(steps)[:, None] - np.arange(positions)[None]
    if kind == "memory":
        seen = (distance >= _FAR) & (distance < memory)
    else:
        seen = np.abs(distance) >= _FAR
    counts = seen.sum(0)
    far = np.where(seen, absolute, 0.0)
    mean = np.divide(far.sum(0), counts, out=np.zeros(positions), where=counts >= min(8, steps // 3))
    typical = float(np.median(mean[mean > 0])) if (mean > 0).any() else 0.0
    frames = np.flatnonzero((mean >= 0.15) & (mean >= 5 * typical))
    if len(frames) == 0:
        frames = np.flatnonzero(mean >= 0.5)
    if len(frames) == 0:
        return 0.0, ()
    usable = seen[:, frames].any(1)
    return float(far[np.ix_(usable, frames)].sum(1).mean()), tuple(int(f) for f in frames)


def _two_modes(lags: Array) -> tuple[float, float]:
    """Otsu's split of the recent weight: share of variance explained, times the gap, times balance."""
    recent = np.sort(lags[_RECENT * 2 :, :_RECENT].sum(1))
    n = len(recent)
    total = recent.var()
    if n < 8 or total <= 1e-12:
        return 0.0, float((recent > 0.5).mean()) if n else 0.0
    sums = recent.cumsum()
    count = np.arange(1, n)
    low, high = sums[:-1] / count, (sums[-1] - sums[:-1]) / (n - count)
    between = count * (n - count) / n**2 * (high - low) ** 2
    best = int(between.argmax())
    share_high = 1 - count[best] / n
    balance = min(1.0, min(share_high, 1 - share_high) / 0.1)
    return float(between[best] / total * (high[best] - low[best]) * balance), float(share_high)


def _ordinal(n: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(n, f"{n}th")
