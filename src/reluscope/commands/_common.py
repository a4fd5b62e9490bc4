"""What the commands share: declaring one, printing its answer, reading lists of numbers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
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


def offer_workers(parser: argparse.ArgumentParser, run: Callable[[Options], int]) -> None:
    """`--jobs` and `--cluster`: who shares the work of a command whose calls all have `jobs=`."""
    parser.add_argument("--jobs", type=int, metavar="N", help="workers that share the work, -1 for all cores")
    parser.add_argument("--cluster", metavar="ADDRESS", help="a Dask scheduler whose workers share the work")

    def shared(options: Options) -> int:
        from reluscope.workers import cluster, sharing

        with cluster(options.cluster), sharing(options.jobs):
            return run(options)

    parser.set_defaults(run=shared)


_FILES = ("model", "data", "test", "law", "vnnlib", "weights", "answer")
"""Options of commands that name a file to be read."""


_IN_THE_SHELL = {
    'decision="smallest" in rs.report (--decision smallest in the shell)': "--decision smallest",
    'decision="smallest"': "--decision smallest",
    "guarantee='sound'": "--guarantee sound",
    "guarantee='exact'": "--guarantee exact",
    "guarantee='confidence'": "--guarantee confidence",
    "larger budget=": "larger --budget",
    "scale= sets": "--scale sets",
}
"""Advice as the library words it, and in the words of the command line."""


def in_the_shell(text: str) -> str:
    """Advice of the library with the options of a command in place of arguments."""
    for words, option in _IN_THE_SHELL.items():
        text = text.replace(words, option)
    return text


def show(options: Options, facts: dict[str, Any], text: str) -> None:
    """Print `text`, or as JSON `facts` with the version and the digests of the files that were read."""
    if not options.json:
        print(in_the_shell(text))
        return
    from reluscope._files import file_digest
    from reluscope._version import __version__

    read = [Path(file) for name in _FILES if isinstance(file := getattr(options, name, None), (str, Path))]
    sums = {str(file): file_digest(file) for file in read if file.is_file()}
    print(json.dumps({**facts, "reluscope": __version__, "sha256": sums}, allow_nan=False))


def numbers(text: str, option: str) -> Any:
    """A number, or a list of numbers separated by commas."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} must be a number, or several such as 0,0,-1, got {text!r}") from None
    return values[0] if len(values) == 1 else values


def names(text: str) -> list[str]:
    """The names in a list such as `a,b,c`."""
    return [name.strip() for name in text.split(",") if name.strip()]
