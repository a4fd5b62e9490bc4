"""A VNN-LIB property as a question: the law on its box, inputs that break it, and the verdict of an answer."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope.answer import Answer, Status
from reluscope.answers.witness import Witnesses, witness
from reluscope.errors import InputError
from reluscope.events import Event
from reluscope.inputs import Law, Uniform
from reluscope.network import Network

_MOST_NAMED = 16
"""Inputs that a message names."""


def box_law(event: Event) -> Uniform:
    """The uniform law on the one bounded box of a property; refuses a property that has none, or several."""
    if not event.cases:  # it can never happen, whatever the law
        return Uniform([0.0] * event.n_inputs, [1.0] * event.n_inputs)
    boxes = event.boxes
    if len(boxes) != 1:
        raise InputError(f"a law is needed: the property has {len(boxes)} boxes, so none is the obvious domain")
    lower, upper = _reached(event)
    entries = [f"X_{i}" for i in range(len(lower))] if event.relation is None else event.relation.free
    open_ = [entries[i] for i, (a, b) in enumerate(zip(lower, upper, strict=True)) if not (a > -inf and b < inf)]
    if open_:
        named = ", ".join(open_[:_MOST_NAMED]) + (", ..." if len(open_) > _MOST_NAMED else "")
        raise InputError(
            f"a law is needed: the property does not bound {named} on both sides, so there is no box to draw from"
        )
    return Uniform(lower, upper)


def _reached(event: Event) -> tuple[FloatArray, FloatArray]:
    """The box of the property; sides that it leaves open are taken from rows on inputs, such as x' <= x."""
    lower, upper = (side.copy() for side in event.boxes[0])
    lows: list[Any] = []
    highs: list[Any] = []
    for case in event.cases:
        low, high = lower.copy(), upper.copy()
        for k in [*np.flatnonzero(case.inputs_alone)] * 3:
            a = case.A[k]
            at = np.flatnonzero(a)
            least = np.where(a[at] > 0, a[at] * low[at], a[at] * high[at])
            for j, i in enumerate(at):
                rest = (case.g[k] - np.delete(least, j).sum()) / a[i]
                if a[i] > 0 and np.isposinf(upper[i]):
                    high[i] = min(high[i], rest)
                elif a[i] < 0 and np.isneginf(lower[i]):
                    low[i] = max(low[i], rest)
        lows.append(low)
        highs.append(high)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def verdict(answer: Answer, law: Law, event: Event, seen: bool, covers: bool = False) -> str:
    """The word of VNN-COMP: sat, unsat, unknown or timeout.

    `sat`: an input was found and replayed, or a part of positive mass is proved to be inside. `unsat`: the bracket is
    [0, 0], not an estimate, and the law reaches all of the property's box (`covers`: it was made from it).
    """
    certain = answer.guarantee != "confidence"
    if seen or (certain and answer.lower > 0):
        return "sat"
    low, high = law.support()
    covers = covers or all(
        bool(((low <= c.lower) | np.isneginf(low)).all() and ((high >= c.upper) | np.isposinf(high)).all())
        for c in event.cases
    )
    if certain and answer.upper == 0 and covers:
        return "unsat"
    return "timeout" if answer.status is Status.BUDGET else "unknown"


def counterexamples(
    net: Network, law: Law, event: Event, answer: Answer, *, model: str | PathLike[str] | None = None,
    budget: Any = 5.0, rng: Any = None,
) -> Witnesses:  # fmt: skip
    """Inputs of the event; nothing is searched where the bracket has ruled them out.

    `model` is the file of the network: an ONNX file runs them once more in onnxruntime, where that is installed.
    """
    if answer.upper == 0 and answer.guarantee != "confidence":
        return Witnesses((), True, "the probability is 0")
    if (
        model is not None
        and Path(model).suffix.lower() == ".onnx"
        and net.n_inputs == _inputs(event)
        and find_spec("onnxruntime") is not None
    ):
        try:
            return witness(net, law, event, rng=rng, budget=budget, replay=model)
        except Exception as error:  # whatever the runtime says about a model it cannot run: the witness is still one
            found = witness(net, law, event, rng=rng, budget=budget)
            return replace(found, note=f"{found.note}; not run by onnxruntime: {str(error).splitlines()[0]}")
    return witness(net, law, event, rng=rng, budget=budget)


def _inputs(event: Event) -> int:
    """Inputs of the one network that a model file can be replayed for; 0 if there are several."""
    networks = () if event.relation is None else event.relation.networks
    return event.n_inputs if len(networks) < 2 else 0
