"""`reluscope layers`: what each layer does to a set of inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, numbers, offer_workers, show


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "layers", run, "measure what each layer does to a set of inputs: table, pictures")
    parser.add_argument("model", type=Path, help="a model file")
    parser.add_argument(
        "--data", type=Path, help="inputs: a CSV file (a header line may come first) or .npy, a row each"
    )
    parser.add_argument(
        "--box",
        nargs=2,
        metavar=("LO", "HI"),
        help="certify units that never switch there; without --data the inputs are drawn from it",
    )
    parser.add_argument("--points", type=int, default=2000, help="how many inputs to draw from the box (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random draws")
    parser.add_argument("--out", type=Path, help="folder for the table (CSV) and the pictures")
    offer_workers(parser, run)


def run(options: Options) -> int:
    """Measure the layers and print the table."""
    from reluscope.formats import load
    from reluscope.reporting.layers import list_layers

    box = None if options.box is None else tuple(numbers(side, "--box") for side in options.box)
    facts, text = list_layers(
        load(options.model),
        str(options.model),
        data=options.data,
        box=box,
        points=options.points,
        rng=options.seed,
        folder=options.out,
    )
    show(options, facts, text)
    return 0
