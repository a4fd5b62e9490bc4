"""`reluscope demo`: the main job on a built-in network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, show


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "demo", run, "run the main job on a built-in network")
    parser.add_argument("name", nargs="?", default="moons", help="which built-in network (default: moons)")
    parser.add_argument("--out", type=Path, default=Path("reluscope-demo"), help="folder for the results")


def run(options: Options) -> int:
    """Run the main job and print its results."""
    from reluscope import demo

    facts, text = demo.run(options.name, options.out)
    show(options, facts, text)
    return 0
