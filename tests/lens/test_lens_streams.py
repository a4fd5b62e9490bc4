"""Heads that follow events, edited streams, changes of attention; detectors of the last frames. No torch needed."""

from __future__ import annotations

import numpy as np
import pytest

from reluscope import lens
from reluscope.errors import InputError, InputTypeError

STEPS, MEMORY = 240, 48


def recording(weights):
    for t in range(len(weights)):
        weights[t, :, t + 1 :] = 0
    return lens.Recording(
        (weights / weights.sum(2, keepdims=True)).astype(np.float32),
        tuple(f"0.{h}" for h in range(weights.shape[1])),
        "memory",
    )


def noise(seed, heads=1):
    return np.random.default_rng(seed).random((STEPS, heads, MEMORY)) ** 2 * 0.01 + 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_current_and_last_frames_are_found(seed):
    weights = noise(seed, 3)
    weights[:, 0, 0] += 1
    weights[:, 1, :4] += 1
    weights[:, 2, 1] += 1
    found = lens.detect_patterns(recording(weights))
    assert found.detected() == {"0.0": ("current frame",), "0.1": ("last frames",), "0.2": ("previous frame",)}
    assert found["0.1"].last > 0.8 and found["0.0"].last < 0.1 and found["0.0"].current > 0.7
    assert {"current", "last"} < set(found.to_dict())


@pytest.mark.parametrize("seed", range(3))
def test_heads_that_follow_an_event_are_found_and_others_are_not(seed):
    rng = np.random.default_rng(seed)
    menu, other = np.zeros((2, STEPS))
    for start in (40, 95, 160, 201):
        menu[start : start + 12] = 1
    for start in rng.choice(STEPS - 20, 4, replace=False):
        other[start : start + 10] = 1
    weights = noise(seed, 6)
    weights[:, :, 3] += 0.3
    weights[menu > 0, 4, 20] += 1  # head 4 looks 20 frames back while the menu is open
    found = lens.associate_events(recording(weights), {"menu": menu, "other": other})
    assert found.significant()["menu"] == ("0.4",)
    assert found.p[4, 0] <= 2 / STEPS and found.effect[4, 0] > 0.5
    assert found.significant(0.01)["other"] == ()
    assert len(found.to_dict()["p"]) == 12


def test_p_values_hold_as_often_as_they_say():
    # Events that have nothing to do with the heads: of 100, at most 13 below 0.05 (binomial, 1 in 1000).
    rng = np.random.default_rng(0)
    made = recording(noise(7, 4))
    below = 0
    for _ in range(100):
        signal = np.zeros(STEPS)
        start = rng.integers(STEPS - 60)
        signal[start : start + rng.integers(5, 60)] = 1
        below += bool((lens.associate_events(made, {"e": signal}).p <= 0.05).any())
    assert below <= 13


def test_streams_are_edited_where_asked_only():
    frames = np.arange(60, dtype=np.uint8).reshape(10, 2, 3)
    frozen = lens.edit_stream(frames, "freeze", 3, 6)
    assert (frozen[3:6] == frames[3]).all() and (frozen[6:] == frames[6:]).all() and (frozen[:3] == frames[:3]).all()
    mixed = lens.edit_stream(frames, "shuffle", 2, 8, rng=1)
    assert sorted(mixed[:, 0, 0]) == sorted(frames[:, 0, 0]) and (mixed != frames).any()
    assert (mixed[:2] == frames[:2]).all() and (mixed[8:] == frames[8:]).all()
    black = lens.edit_stream(frames, "replace", 0, 2, replacement=np.zeros((2, 3)))
    assert not black[:2].any() and black.dtype == np.uint8 and frames[1].any()
    assert (lens.edit_stream(frames.astype(float), "replace", 4, 5)[4] == frames.mean(0)).all()


def test_changes_of_attention_by_hand():
    one = lens.Recording(np.array([[[1.0, 0.0]], [[0.5, 0.5]]], np.float32), ("0.0",), "memory")
    two = lens.Recording(np.array([[[1.0, 0.0]], [[0.25, 0.75]]], np.float32), ("0.0",), "memory")
    change = lens.attention_change(one, two)
    assert change.distance[:, 0].tolist() == [0.0, 0.25]
    assert change.divergence[1, 0] == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3))
    assert change.to_dict()["at step"] == [1]
    gone = lens.Recording(np.array([[[1.0, 0.0]], [[0.0, 1.0]]], np.float32), ("0.0",), "memory")
    assert lens.attention_change(one, gone).divergence[1, 0] == np.inf


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: lens.associate_events(r, {"e": np.ones(STEPS)}), "same at every step"),
        (lambda r: lens.associate_events(r, {"e": np.ones(3)}), "240 values"),
        (lambda r: lens.associate_events(r, {}), "mapping"),
        (lambda r: lens.attention_change(r, recording(noise(0, 2))), "same heads"),
        (lambda r: lens.edit_stream(np.ones((4, 2)), "turn", 0, 1), "edit must be one of"),
        (lambda r: lens.edit_stream(np.ones((4, 2)), "freeze", 2, 2), "stop must be"),
        (lambda r: lens.edit_stream(np.ones((4, 2)), "replace", 0, 2, replacement=np.ones(5)), "replacement must be"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, words):
    with pytest.raises((InputError, InputTypeError), match=words):
        call(recording(noise(0)))
