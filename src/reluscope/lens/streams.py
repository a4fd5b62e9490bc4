"""Attention and what happens in a stream: heads that follow events, edited streams, and how attention changes.

Record a stream, edit it (`edit_stream`: replace, shuffle or freeze frames), record it again and compare the two
(`attention_change`). `associate_events` says which heads attend otherwise while an event lasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import choice, generator, instance, integer, real_array
from reluscope._tables import Tabular
from reluscope.errors import InputError, InputTypeError
from reluscope.lens.attention import Recording

__all__ = ["AttentionChange", "EventHeads", "associate_events", "attention_change", "edit_stream"]

Array = npt.NDArray[Any]

EDITS = ("replace", "shuffle", "freeze")
_SHIFTS = 999
"""Shifted copies of an event, at the most, with which the true one is compared."""


@dataclass(frozen=True, eq=False)
class EventHeads(Tabular):
    """How much each head's attention differs while each event lasts.

    Attributes
    ----------
    heads, events : tuple of str
    effect : (heads, events) array
        Total variation distance, in [0, 1], of the head's mean attention by lag during the event and outside of it.
    p : (heads, events) array
        Share of shifted copies of the event (and the event itself) for which *any* head differs as much: small values
        are no chance finding among the heads. They are not corrected for several events.
    """

    heads: tuple[str, ...]
    events: tuple[str, ...]
    effect: Array
    p: Array

    def significant(self, p: float = 0.05) -> dict[str, tuple[str, ...]]:
        """For each event the heads that differ, the largest difference first.

        Parameters
        ----------
        p : float
            Heads with a p-value of at most this.

        Returns
        -------
        dict of tuples
        """
        out = {}
        for e, event in enumerate(self.events):
            order = np.argsort(-self.effect[:, e], kind="stable")
            out[event] = tuple(self.heads[h] for h in order if self.p[h, e] <= p)
        return out

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns of a table, one row per head and event."""
        pairs = [(h, e) for e in range(len(self.events)) for h in range(len(self.heads))]
        return {
            "event": [self.events[e] for _, e in pairs],
            "head": [self.heads[h] for h, _ in pairs],
            "effect": [float(self.effect[pair]) for pair in pairs],
            "p": [float(self.p[pair]) for pair in pairs],
        }


@dataclass(frozen=True, eq=False)
class AttentionChange(Tabular):
    """How attention differs between two recordings of as many steps, step by step.

    Attributes
    ----------
    heads : tuple of str
    distance : (steps, heads) array
        Total variation distance of the two rows of weights, in [0, 1].
    divergence : (steps, heads) array
        Kullback-Leibler divergence of the second from the first, in nats; infinite where the first looks at a place
        that the second gives no weight.
    """

    heads: tuple[str, ...]
    distance: Array
    divergence: Array

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns of a table, one row per head: mean and largest distance, its step, and the mean divergence."""
        return {
            "head": list(self.heads),
            "mean distance": self.distance.mean(axis=0).tolist(),
            "largest distance": self.distance.max(axis=0).tolist(),
            "at step": self.distance.argmax(axis=0).tolist(),
            "mean divergence": self.divergence.mean(axis=0).tolist(),
        }


def edit_stream(frames: Any, edit: str, start: int, stop: int, *, replacement: Any = None, rng: Any = None) -> Array:
    """A copy of a stream with the frames from `start` up to `stop` edited; nothing else changes.

    Parameters
    ----------
    frames : (steps, ...) array
    edit : {"replace", "shuffle", "freeze"}
        "replace" puts `replacement` (one frame, or one for each step) there; "shuffle" puts the frames in random order;
        "freeze" repeats frame `start`.
    start, stop : int
        Frames, from 0; `stop` itself is not edited.
    replacement : array, optional
        For "replace"; the mean frame of the stream if not given.
    rng : None, int, SeedSequence or Generator
        For "shuffle".

    Returns
    -------
    (steps, ...) array

    Raises
    ------
    InputError
        If the frames or the replacement do not fit.
    """
    if type(frames) is np.ndarray and frames.dtype == np.uint8:
        stream: Array = frames.copy()  # pictures stay bytes
    else:
        stream = np.array(real_array(frames, "frames"))
        if isinstance(frames, np.ndarray):
            stream = stream.astype(frames.dtype)
    if stream.ndim < 2 or not len(stream):
        raise InputError(f"frames must be an array of frames, (steps, ...), got shape {stream.shape}")
    choice(edit, "edit", EDITS)
    if replacement is not None and edit != "replace":
        raise InputError(f"replacement goes with edit='replace', not with {edit!r}")
    start = integer(start, "start", low=0, high=len(stream) - 1)
    stop = integer(stop, "stop", low=start + 1, high=len(stream))
    if edit == "freeze":
        stream[start:stop] = stream[start]
    elif edit == "shuffle":
        stream[start:stop] = generator(rng).permutation(stream[start:stop])
    else:
        given = stream.mean(axis=0) if replacement is None else real_array(replacement, "replacement")
        if given.shape not in (stream.shape[1:], (stop - start, *stream.shape[1:])):
            raise InputError(f"replacement must be a frame of shape {stream.shape[1:]}, or {stop - start} of them")
        stream[start:stop] = given.astype(stream.dtype)
    return stream


def attention_change(first: Recording, second: Recording) -> AttentionChange:
    """Compare two recordings head by head and step by step, such as those of a stream and of an edited copy.

    Parameters
    ----------
    first, second : Recording
        With the same heads, steps and positions.

    Returns
    -------
    AttentionChange

    Raises
    ------
    InputError
        If the recordings do not fit together.
    """
    for name, value in (("first", first), ("second", second)):
        instance(value, name, Recording, "a Recording")
    if first.weights.shape != second.weights.shape or first.heads != second.heads:
        raise InputError(
            f"the recordings must have the same heads and shape, got {first.weights.shape} and {second.weights.shape}"
        )
    p, q = (_shares(np.asarray(r.weights, np.float64)) for r in (first, second))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / q), 0.0)
    return AttentionChange(first.heads, 0.5 * np.abs(p - q).sum(axis=2), terms.sum(axis=2))


def associate_events(recording: Recording, events: Mapping[str, npt.ArrayLike]) -> EventHeads:
    """Which heads attend otherwise while an event lasts, such as an open menu.

    Parameters
    ----------
    recording : Recording
    events : mapping
        From the name of each event to one value per step: whether it happens (true or 1) or not.

    Returns
    -------
    EventHeads

    Raises
    ------
    InputError
        If a signal does not fit the recording, or never changes.

    Notes
    -----
    Each event is compared with copies of itself that are shifted in time, around the end: they keep how long it lasts
    and how often it comes. A recording of n steps can give no p below 1 / n.
    """
    instance(recording, "recording", Recording, "a Recording")
    if not isinstance(events, Mapping) or not events:
        raise InputTypeError("events must be a mapping from names to one value per step")
    names, signals = tuple(map(str, events)), []
    for name, values in zip(names, events.values(), strict=True):
        signal = real_array(np.asarray(values, dtype=float), f"events[{name!r}]", ndim=1)
        if len(signal) != recording.steps or not np.isin(signal, (0.0, 1.0)).all():
            raise InputError(f"events[{name!r}] must have {recording.steps} values, each 0 or 1")
        if signal.min() == signal.max():
            raise InputError(f"events[{name!r}] is the same at every step: nothing to compare")
        signals.append(signal)
    steps = recording.steps
    shifts = np.unique(np.linspace(0, steps - 1, min(steps, _SHIFTS + 1)).astype(int))
    effect = np.zeros((len(signals), len(shifts), len(recording.heads)))
    for h in range(len(recording.heads)):
        rows = _shares(np.asarray(recording.lags(h), np.float64)[:, None])[:, 0]
        total = rows.sum(axis=0)
        for e, signal in enumerate(signals):
            moved = np.stack([np.roll(signal, k) for k in shifts])
            count, inside = signal.sum(), moved @ rows
            gap = inside / count - (total - inside) / (steps - count)
            effect[e, :, h] = 0.5 * np.abs(gap).sum(axis=1)
    most = effect.max(axis=2)  # over the heads, for each shift
    p = (most[:, :, None] >= effect[:, :1] - 1e-12).mean(axis=1)
    return EventHeads(recording.heads, names, effect[:, 0].T, p.T)


def _shares(weights: Array) -> Array:
    """Weights that sum to 1 over the last axis (rows of zeros stay)."""
    total = weights.sum(axis=2, keepdims=True)
    return np.asarray(np.divide(weights, total, out=np.zeros_like(weights), where=total > 0))
