"""What the commands share: declaring one, printing its answer, reading lists of numbers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from reluscope.errors import InputError

Options = argparse.Namespace


def command(commands: Any, name: str, run: Callable[[Options], int], about: str) -> argparse.ArgumentParser:
    """A new command with `--json`; `about` is one line that starts in lower case."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=about[0].upper() + about[1:] + "."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)
    return parser


def show(options: Options, facts: dict[str, Any], text: str) -> None:
    """Print `facts` as JSON when asked for, else `text`."""
    print(json.dumps(facts, allow_nan=False) if options.json else text)


def numbers(text: str, option: str) -> Any:
    """A number, or a list of numbers separated by commas."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} takes numbers or lists such as 0,0,-1, got {text!r}") from None
    return values[0] if len(values) == 1 else values


def names(text: str) -> list[str]:
    """The names in a list such as `a,b,c`."""
    return [name.strip() for name in text.split(",") if name.strip()]
