"""What inputs and outputs are called on the page, in which units, and events that fit the network."""

from __future__ import annotations

from typing import Any

from reluscope.network import Network
from reluscope.schema import input_labels, output_labels

_MOST_HINTS = 4


def labels(net: Network) -> dict[str, list[dict[str, Any]]]:
    """Name, unit, `scale` and `shift` of each input and output: the network's number is `scale * value + shift`.

    Without a schema the network's own numbers are shown; an output that is a probability is shown as its logit.
    """
    found = {"inputs": input_labels(net.schema, net.n_inputs), "outputs": output_labels(net.schema, net.n_outputs)}
    return {side: [dict(vars(label)) for label in some] for side, some in found.items()}


def hints(net: Network) -> list[str]:
    """A few events that can be asked of this network."""
    s = net.schema
    out = []
    if s is not None and s.classes:
        out.append(f"{_quoted(s.decision)} == {_quoted(str(s.classes[0]))}")
    if s is not None and s.outputs and s.outputs[0].link != "raw":
        out.append(f"{_quoted(s.outputs[0].name)} > 0.5" if len(s.outputs) == 1 else "")
    if net.n_outputs == 1:
        out += ["y[0] > 1", "|y[0]| < 0.5"]
    else:
        arg = "argmin" if s is not None and s.rule == "smallest" else "argmax"
        out += [f"{arg} == {net.n_outputs - 1}", "y[0] > y[1]"]
    if s is not None and s.columns and s.columns[0].kind in ("continuous", "integer"):
        column = s.columns[0]
        middle = sum(column.seen or column.within or (0.0, 0.0)) / 2
        out.append(f"{_quoted(column.name)} < {middle:.4g}{f' {column.unit}' if column.unit else ''}")
    else:
        out.append(f"y[0] > 0 and x[{net.n_inputs - 1}] < 0.5")
    if net.hidden:
        out.append(f"J[0,{net.n_inputs - 1}] < 0")
    return [text for text in out if text][:_MOST_HINTS]


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f'"{name}"'
