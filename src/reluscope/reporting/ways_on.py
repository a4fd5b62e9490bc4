"""From a report to the next question: the same numbers in Python, and the network in the playground."""

from __future__ import annotations

import base64
import json
from pathlib import PurePath
from typing import Any

import numpy as np

from reluscope.answers.replay import fingerprint
from reluscope.reporting.subject import Subject

_PORT = 8474
_SIGMAS = 3.5
_FILES = (".onnx", ".npz", ".safetensors", ".pt", ".pth")
_MOST_INPUTS = 64
"""Inputs whose means and spreads fit in a link."""


def python_code(subject: Subject, title: str = "") -> str:
    """A script for the folder of a saved report that asks its first questions again.

    A title that is the name of a model file, as the command line gives it, names the file.
    """
    file = title if PurePath(title).suffix in _FILES else "model.onnx"
    lines = [
        "import json", "", "import reluscope as rs", "",
        f"net = rs.load({file!r})  # the file of the network; its sha256 is {fingerprint(subject.net)[:16]}...",
    ]  # fmt: skip
    asked = ("probability", "linear_models")  # questions about one law, not one for each class
    at = next((i for i, r in enumerate(subject.records) if r["question"] in asked and r.get("law")), None)
    if at is None:
        return ""
    lines += [
        "saved = json.load(open('report.json'))",
        f"law = rs.inputs.law_from_dict((saved['record'] | saved['records'][{at}])['law'])",
        "",
    ]
    if subject.events:
        budget = next((r["asked"]["budget"] for r in subject.records if r.get("event") is not None), "3s")
        lines += [f"event = {subject.events[0]!r}"]
        names = "" if subject.names is None else f", names={list(subject.names)!r}"
        kind = "" if subject.guarantee == "auto" else f", guarantee={subject.guarantee!r}"
        lines += [
            f"answer = rs.probability(net, law, event{names}{kind}, budget={budget!r}, rng={subject.seed})",
            "print(answer)",
        ]
    lines += [f"models = rs.linear_models(net, law, budget='10s', rng={subject.seed})", "print(models.top(10))"]
    return "\n".join(lines) + "\n"


def playground_link(subject: Subject) -> str:
    """The address of the playground with this network, this event, and Gaussians with the law's means and spreads."""
    net, n = subject.net, subject.net.n_inputs
    state: dict[str, Any] = {"network": f"net-{fingerprint(net)[:24]}", "title": net.name or "the network"}
    if subject.events:
        state["event"] = str(subject.events[0])
    if 2 <= n <= _MOST_INPUTS:
        mean, cov = subject.moments()
        sd = np.sqrt(np.maximum(np.diag(cov), 0.0))
        wide = np.where(sd > 0, sd, 1.0)
        state |= {
            "vary": "shown" if n == 2 else "all",
            "at": dict(enumerate(mean.tolist())),
            "sd": dict(enumerate(sd.tolist())),
            "axes": [0, 1],
            "lower": (mean - _SIGMAS * wide)[:2].tolist(),
            "upper": (mean + _SIGMAS * wide)[:2].tolist(),
        }
    text = base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")
    return f"http://127.0.0.1:{_PORT}/#{text}"
