"""From a report to the next question: the same numbers in Python, and the network in the playground."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from reluscope.answers.replay import fingerprint
from reluscope.examples import NAMES, example
from reluscope.reporting.charts import CATEGORIES
from reluscope.reporting.subject import Subject

_PORT = 8474
_SIGMAS = 3.5
_FILES = (".onnx", ".npz", ".safetensors", ".pt", ".pth")
_MOST_INPUTS = 64
"""Inputs whose means and spreads fit in a link."""


@dataclass(frozen=True)
class Playground:
    """Where the playground shows the network of a report.

    Attributes
    ----------
    address : str
    command : str
        What starts it.
    law : str
        Its law beside that of the report, in words.
    """

    address: str
    command: str
    law: str


def built_in(subject: Subject) -> str:
    """The name of the example that the network is, or nothing."""
    name = subject.net.name
    known = name in NAMES and fingerprint(example(name).network) == fingerprint(subject.net)
    return name if known else ""


def python_code(subject: Subject, title: str = "") -> str:
    """A script for the folder of a saved report that asks its first questions again.

    A title that is the name of a model file, as the command line gives it, names the file.
    """
    name, file = built_in(subject), title if _is_file(title) else "model.onnx"
    opened = f"rs.load({file!r})  # the file of the network; its sha256 is {fingerprint(subject.net)[:16]}..."
    if name and not _is_file(title):
        opened = f"rs.example({name!r}).network"
    lines = ["import json", "", "import reluscope as rs", "", f"net = {opened}"]
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
        used = any(name in subject.events[0] for name in subject.names or ())
        names = f", names={list(subject.names)!r}" if used and subject.names is not None else ""
        kind = "" if subject.guarantee == "auto" else f", guarantee={subject.guarantee!r}"
        lines += [
            f"answer = rs.probability(net, law, event{names}{kind}, budget={budget!r}, rng={subject.seed})",
            "print(answer)",
        ]
    listed = next((r["asked"] for r in subject.records if r["question"] == "linear_models"), None)
    if listed is not None:
        how = f"method={listed['method']!r}, budget={listed['budget']!r}, rng={subject.seed}"
        lines += [f"models = rs.linear_models(net, law, {how})", "print(models.top(10))"]
    return "\n".join(lines) + "\n"


def playground_link(subject: Subject, title: str = "") -> Playground:
    """The playground with the network, the event and the law of a report.

    An example has its own law there. Of a file, the law is Gaussians with the means and spreads of the law here.
    """
    net, n, name = subject.net, subject.net.n_inputs, built_in(subject)
    state: dict[str, Any] = {"network": f"net-{fingerprint(net)[:24]}", "title": net.name or "the network"}
    command = f"reluscope playground {title if _is_file(title) else 'FILE'}"
    if name and example(name).law.to_dict() == subject.law.to_dict():
        state["network"], command, law = f"example-{name}", "reluscope playground", "The law is the same there."
    elif n == 1:
        law = "There the law starts as a standard normal one."
    elif n > _MOST_INPUTS:
        law = "There two inputs vary, with a standard normal law to start with, and the others are held at 0."
    else:
        law = "There the inputs are independent Gaussians with the means and spreads of this law."
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
    if subject.events:
        state["event"] = str(subject.events[0])
    if 2 <= net.n_outputs <= len(CATEGORIES):
        state["colour"] = subject.deciding
    text = base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")
    return Playground(f"http://127.0.0.1:{_PORT}/#{text}", command, law)


def _is_file(title: str) -> bool:
    return PurePath(title).suffix in _FILES
