"""The command line: `reluscope COMMAND ...`.

Exit codes: 0 done, 1 a condition that was asked for does not hold, 2 bad input. Errors are one line on standard
error; `--json` prints one JSON object on standard output. Heavy imports wait until a command needs them, so
`--help` is quick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from reluscope._version import __version__
from reluscope.commands import (
    batch,
    certify,
    demo,
    info,
    layers,
    lens,
    playground,
    prob,
    recover,
    regions,
    replay,
    report,
    reproduce,
    unwrap,
    warm,
)
from reluscope.commands._common import in_the_shell
from reluscope.errors import ReluscopeError


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
        print(f"reluscope: {in_the_shell(str(error))}", file=sys.stderr)
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

    offered = (
        demo, report, playground, info, prob, batch, replay, certify, regions, unwrap, layers, lens, recover, reproduce,
        warm,
    )  # fmt: skip
    for module in offered:
        module.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
