"""`reluscope certify`: how much Gaussian noise the decisions on a data set bear, proved row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, numbers, offer_workers, show


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "certify", run, "how much Gaussian noise the decisions on a data set bear, proved")
    parser.add_argument("model", type=Path, help="a model file")
    parser.add_argument("--data", type=Path, required=True, help="a CSV file (may be gzipped), a row each")
    parser.add_argument("--sigma", required=True, help="standard deviation of the noise, or several, such as .02,.05")
    parser.add_argument("--probability", type=float, default=1e-6, help="of a change, at the most (default: 1e-6)")
    parser.add_argument("--target", help="the column with the right decisions, whole numbers from 0 on")
    parser.add_argument(
        "--decision",
        choices=("largest", "smallest"),
        help="which output decides (default: as the model's record says, else the largest)",
    )
    parser.add_argument("--scale", help="noise per input, as multiples of sigma: a list such as 1,1,0.5")
    parser.add_argument("--box", default="4.5", help='plain CROWN on boxes of this many sigmas beside, or "none" (4.5)')
    parser.add_argument("--budget", help='such as "60s": then units are split for undecided rows')
    parser.add_argument("--share", type=float, help="exit code 1 unless this share of rows is certified at every sigma")
    parser.add_argument("--out", type=Path, help="folder for the table (CSV) and the curve (PNG)")
    offer_workers(parser, run)


def run(options: Options) -> int:
    """Certify the rows and print the table."""
    from reluscope._check import real
    from reluscope.formats import load
    from reluscope.reporting.certify import certify_file

    if options.share is not None:
        real(options.share, "--share", low=0.0, high=1.0)
    scale = None if options.scale is None else numbers(options.scale, "--scale")
    facts, text = certify_file(
        load(options.model),
        str(options.model),
        options.data,
        numbers(options.sigma, "--sigma"),
        target=options.target,
        least=options.share,
        folder=options.out,
        probability=options.probability,
        decision=options.decision,
        scale=[scale] if isinstance(scale, float) else scale,
        box=None if options.box == "none" else numbers(options.box, "--box"),
        budget=options.budget,
        progress="auto",
    )
    show(options, facts, text)
    return 1 if facts["enough"] is False else 0
