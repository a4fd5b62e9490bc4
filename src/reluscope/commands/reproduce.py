"""`reluscope reproduce`: published experiments, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, show
from reluscope.reproduce import NAMES


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "reproduce", run, "run a published experiment again")
    parser.add_argument("name", help=f"which experiment: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="a reduced version")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random draws")
    parser.add_argument("--out", type=Path, default=Path("reluscope-reproduce"), help="folder for the pictures")


def run(options: Options) -> int:
    """Run the experiment and print its table."""
    from reluscope.reproduce import reproduce

    done = reproduce(options.name, options.out, quick=options.quick, rng=options.seed, progress="auto")
    show(options, done.to_dict(), str(done))
    return 0
