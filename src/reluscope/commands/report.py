"""`reluscope report`: everything about a network on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, names, numbers, offer_workers, show


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "report", run, "write one HTML page: what a network does, where, and how likely that is")
    parser.add_argument("model", type=Path, help="a model file")
    about = parser.add_mutually_exclusive_group()
    about.add_argument("--law", type=Path, help="the law (distribution) of the inputs, a law.json file")
    about.add_argument("--data", type=Path, help="rows of inputs (CSV): a law is fitted, local models are shown")
    about.add_argument(
        "--box", nargs=2, metavar=("LO", "HI"), help="inputs uniform on this range: numbers or lists such as 0,0,-1"
    )
    parser.add_argument("--test", type=Path, help="new rows (CSV), shown beside those of --data")
    parser.add_argument("--target", help="the column of --data to be predicted (a name, or a number from 0)")
    parser.add_argument(
        "--features", help="input columns of --data in the network's order, such as a,b,c (default: all)"
    )
    parser.add_argument("--drop", help="columns of --data to leave out, such as id,date")
    parser.add_argument("--event", action="append", default=[], help='such as "y[0] > 1"; may be given several times')
    parser.add_argument("--decision", choices=("largest", "smallest"), help="which output decides (default: largest)")
    parser.add_argument(
        "--guarantee",
        choices=("auto", "exact", "sound", "confidence"),
        default="auto",
        help="of the events' probabilities",
    )
    parser.add_argument("--budget", default="60s", help='time for all sections together (default "60s")')
    parser.add_argument("--seed", type=int, default=0, help="seed of the random draws")
    parser.add_argument("--out", type=Path, default=Path("reluscope-report"), help="folder (default: reluscope-report)")
    offer_workers(parser, run)


def run(options: Options) -> int:
    """Write the report."""
    from reluscope.errors import InputError
    from reluscope.formats import load
    from reluscope.inputs import classes_from_json
    from reluscope.reporting.data import data_rows
    from reluscope.reporting.page import report

    for option in ("test", "target", "features", "drop"):
        if getattr(options, option) is not None and options.data is None:
            raise InputError(f"--{option} goes with --data; give --data too")
    net = load(options.model)
    rows = new = None
    if options.data is not None:
        features = None if options.features is None else names(options.features)
        drop = names(options.drop or "")
        rows = data_rows(net, options.data, options.target, features, drop)
        new = None if options.test is None else data_rows(net, options.test, options.target, features, drop)
    done = report(
        net,
        None if options.law is None else classes_from_json(options.law),
        X=None if rows is None else rows.X,
        y=None if rows is None else rows.y,
        X_test=None if new is None else new.X,
        y_test=None if new is None else new.y,
        feature_names=None if rows is None else rows.names,
        events=options.event,
        box=None if options.box is None else tuple(numbers(side, "--box") for side in options.box),
        decision=options.decision,
        guarantee=options.guarantee,
        budget=options.budget,
        rng=options.seed,
        title=options.model.name,
        progress="auto",
    )
    files = done.save(options.out)
    facts = {"model": str(options.model)} | done.to_dict() | {"folder": str(options.out), "files": files}
    show(options, facts, f"{done!r}\n\nreport: {options.out / 'report.html'} (and {len(files) - 1} files beside it)")
    return 0
