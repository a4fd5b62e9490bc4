"""`reluscope regions`: the regions of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, numbers, offer_workers, show


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "regions", run, "enumerate the regions of a network: counts, table, picture")
    parser.add_argument("model", type=Path, help="a model file")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--box",
        nargs=2,
        metavar=("LO", "HI"),
        help="range of the inputs: numbers, or lists such as 0,0,-1 (default: all)",
    )
    where.add_argument(
        "--law",
        type=Path,
        help="a law.json file: look where it has probability, and give each region's",
    )
    parser.add_argument("--budget", help='stop early, such as "60s" or "10000 regions"')
    parser.add_argument("--faces", action="store_true", help="count faces of every dimension (up to 4 inputs)")
    parser.add_argument("--out", type=Path, help="folder for the table (CSV) and, with two inputs, the picture")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FOLDER",
        help="keep the regions in a folder as they are found, and go on from it; for lists larger than memory too",
    )
    offer_workers(parser, run)


def run(options: Options) -> int:
    """List the regions; 1 if they were not all listed."""
    from reluscope.formats import load
    from reluscope.reporting.regions import enumerate_regions

    box = None if options.box is None else tuple(numbers(side, "--box") for side in options.box)
    facts, text = enumerate_regions(
        load(options.model),
        str(options.model),
        box=box,
        law_file=options.law,
        budget=options.budget,
        faces=options.faces,
        folder=options.out,
        checkpoint=options.checkpoint,
    )
    show(options, facts, text)
    return 0 if facts["complete"] else 1
