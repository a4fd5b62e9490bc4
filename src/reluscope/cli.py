"""The command line: `reluscope COMMAND ...`.

Exit codes: 0 done, 1 an asked-for condition is not met, 2 bad input. Errors are one line on standard error; `--json`
prints one JSON object on standard output. Heavy imports wait until a command needs them, so `--help` is quick.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reluscope._version import __version__
from reluscope.errors import InputError, ReluscopeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    parser = _parser()
    options = parser.parse_args(_protected(arguments))
    if options.run is None:
        parser.print_help()
        return 2
    try:
        return int(options.run(options))
    except ReluscopeError as error:
        print(f"reluscope: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"reluscope: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        print("reluscope: interrupted", file=sys.stderr)
        return 130


def _protected(arguments: Sequence[str] | None) -> list[str]:
    """Arguments with a space before negative lists such as `-1,0`, which argparse would take for options."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return [f" {a}" if a[:1] == "-" and a[1:2].isdigit() and "," in a else a for a in given]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reluscope", description="What a trained ReLU network does, where, and how likely that is."
    )
    parser.add_argument("--version", action="version", version=f"reluscope {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    info = _command(
        commands, "info", _info, "what a model file holds: layers, activations, parameters, what was folded"
    )
    info.add_argument("model", type=Path, help="an .onnx, .npz, .safetensors, .pt or .pth file")

    regions = _command(
        commands, "regions", _regions, "enumerate the regions of a network: counts, faces, table, picture"
    )
    regions.add_argument("model", type=Path, help="a model file")
    where = regions.add_mutually_exclusive_group()
    where.add_argument(
        "--box",
        nargs=2,
        metavar=("LO", "HI"),
        help="range of the inputs: numbers, or lists such as 0,0,-1 (default: all)",
    )
    where.add_argument(
        "--law", type=Path, help="a law.json file: look where it lives and add each region's probability"
    )
    regions.add_argument("--budget", help='stop early, such as "60s" or "10000 regions"')
    regions.add_argument("--faces", action="store_true", help="count faces of every dimension (up to 4 inputs)")
    regions.add_argument("--out", type=Path, help="folder for the table (CSV) and, with two inputs, the picture")

    again = _command(commands, "reproduce", _reproduce, "run a published experiment again")
    again.add_argument("name", help="which experiment: moons")
    again.add_argument("--quick", action="store_true", help="a reduced version")
    again.add_argument("--seed", type=int, default=0, help="seed of the random draws")
    again.add_argument("--out", type=Path, default=Path("reluscope-reproduce"), help="folder for the pictures")

    demo = _command(commands, "demo", _demo, "run the main job on a built-in network")
    demo.add_argument("name", nargs="?", default="moons", help="which built-in network (default: moons)")
    demo.add_argument("--out", type=Path, default=Path("reluscope-demo"), help="folder for the results")
    return parser


def _command(commands: Any, name: str, run: Any, about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=about[0].upper() + about[1:] + "."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)
    return parser


def _show(options: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    print(json.dumps(facts, allow_nan=False) if options.json else text)


def _info(options: argparse.Namespace) -> int:
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
    _show(options, facts, "\n".join(lines))
    return 0


def _regions(options: argparse.Namespace) -> int:
    from reluscope.cells.listing import enumerate_regions
    from reluscope.formats import load

    box = None if options.box is None else tuple(_numbers(side) for side in options.box)
    facts, text = enumerate_regions(
        load(options.model),
        str(options.model),
        box=box,
        law_file=options.law,
        budget=options.budget,
        faces=options.faces,
        folder=options.out,
    )
    _show(options, facts, text)
    return 0 if facts["complete"] else 1


def _numbers(text: str) -> Any:
    """A number, or a list of numbers separated by commas."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--box takes numbers or lists such as 0,0,-1, got {text!r}") from None
    return values[0] if len(values) == 1 else values


def _shape(shape: tuple[int, ...]) -> str:
    return f"as {' x '.join(map(str, shape))}" if len(shape) > 1 else ""


def _reproduce(options: argparse.Namespace) -> int:
    from reluscope.reproduce import reproduce

    done = reproduce(options.name, options.out, quick=options.quick, rng=options.seed, progress="auto")
    _show(options, done.to_dict(), str(done))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from reluscope.demo import run

    facts, text = run(options.name, options.out)
    _show(options, facts, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
