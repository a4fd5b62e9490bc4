"""`reluscope unwrap`: a network as local linear models of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, names, offer_workers, show


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "unwrap", run, "a network as local linear models of a data set: table, pictures")
    parser.add_argument("model", type=Path, help="a model file")
    parser.add_argument("data", type=Path, help="a CSV file (may be gzipped) whose first line names the columns")
    parser.add_argument("--target", help="the column to predict")
    parser.add_argument("--test", type=Path, help="a second CSV file of new rows")
    parser.add_argument("--features", help="input columns in the network's order, such as a,b,c (default: all others)")
    parser.add_argument("--drop", help="columns to leave out, such as id,date")
    parser.add_argument("--task", default="auto", help="auto, regression, binary or multiclass")
    parser.add_argument("--cutoff", type=float, help="probability from which on the second of two classes is decided")
    parser.add_argument(
        "--merge", nargs="?", type=int, const=0, metavar="N", help="merge to N models (without N: by cross-validation)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the folds of --merge and of random draws")
    parser.add_argument("--out", type=Path, help="folder for the table (CSV, JSON) and the pictures")
    offer_workers(parser, run)


def run(options: Options) -> int:
    """Unwrap the network and print the tables."""
    from reluscope.formats import load
    from reluscope.reporting.unwrap import unwrap_file

    facts, text = unwrap_file(
        load(options.model),
        str(options.model),
        options.data,
        target_name=options.target,
        test=options.test,
        features=None if options.features is None else names(options.features),
        drop=None if options.drop is None else names(options.drop),
        task=options.task,
        cutoff=options.cutoff,
        merge=options.merge,
        rng=options.seed,
        folder=options.out,
        progress="auto",
    )
    show(options, facts, text)
    return 0
