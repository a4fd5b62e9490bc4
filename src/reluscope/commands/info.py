"""`reluscope info`: what a model file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, show


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "info", run, "what a model file holds: layers, activations, parameters, what was folded")
    parser.add_argument("model", type=Path, help="an .onnx, .npz, .safetensors, .pt or .pth file")


def run(options: Options) -> int:
    """Print what the file holds."""
    from reluscope._text import table
    from reluscope.formats import load

    net = load(options.model)
    layers = net.describe()
    facts: dict[str, Any] = {
        "model": str(options.model),
        "inputs": net.n_inputs,
        "input_shape": list(net.input_shape),
        "outputs": net.n_outputs,
        "output_shape": list(net.output_shape),
        "hidden_units": net.n_units,
        "switching_units": int((net.pieces > 1).sum()),
        "parameters": net.n_parameters,
        "layers": layers,
        "notes": list(net.notes),
    }
    lines = [
        f"{options.model}: {net}",
        f"inputs   {net.n_inputs:,} {_shape(net.input_shape)}",
        f"outputs  {net.n_outputs:,} {_shape(net.output_shape)}",
        f"units    {facts['switching_units']:,} that switch, {net.n_units - facts['switching_units']:,} that carry",
        "",
        table(layers),
    ]
    if net.notes:
        lines += ["", *(f"note: {note}" for note in net.notes)]
    show(options, facts, "\n".join(lines))
    return 0


def _shape(shape: tuple[int, ...]) -> str:
    return f"as {' x '.join(map(str, shape))}" if len(shape) > 1 else ""
