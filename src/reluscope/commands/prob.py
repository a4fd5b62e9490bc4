"""`reluscope prob`: how likely an event is, with a guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, show
from reluscope.errors import InputError


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "prob", run, "how likely an event is, with a guarantee")
    parser.add_argument("model", type=Path, help="a model file")
    parser.add_argument("--law", type=Path, help="law.json, or data.csv to which a law is fitted")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--event", help='such as "y[0] > y[1] and x[2] <= 0.3", "argmax != argmax at mean"')
    what.add_argument("--vnnlib", type=Path, help="a VNN-LIB property; prints its verdict too (sound by default)")
    parser.add_argument("--components", type=int, default=1, help="Gaussians to fit to data.csv (default: 1)")
    parser.add_argument("--guarantee", choices=("auto", "exact", "sound", "confidence"), help="default: auto")
    parser.add_argument("--tolerance", type=float, help="half-width of the bracket wanted")
    parser.add_argument("--budget", help='such as "60s"')
    parser.add_argument("--level", type=float, default=0.95, help="level of a confidence interval (default: 0.95)")
    parser.add_argument("--interval", choices=("finite-sample", "replicate"), help="kind of confidence interval")
    parser.add_argument("--below", type=float, help="exit code 1 unless the probability is certainly below this")
    parser.add_argument("--witness", action="store_true", help="also print the most probable input of the event found")
    parser.add_argument("--results-file", type=Path, help="with --vnnlib: write the verdict and a counterexample")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random draws")


def run(options: Options) -> int:
    """Do it."""
    from reluscope.answers.events import as_event
    from reluscope.answers.probability import probability
    from reluscope.formats import load
    from reluscope.formats.vnnlib import vnnlib

    net = load(options.model)
    asked: Any = options.event if options.vnnlib is None else vnnlib(options.vnnlib)
    if options.results_file is not None and options.vnnlib is None:
        raise InputError("--results-file goes with --vnnlib")
    law, names = _law(options, asked)
    event = as_event(asked, net, law, names=names)
    guarantee = options.guarantee or ("auto" if options.vnnlib is None else "sound")
    answer = probability(
        net,
        law,
        event,
        guarantee,
        tolerance=options.tolerance,
        budget=options.budget,
        level=options.level,
        interval=options.interval,
        rng=options.seed,
        progress="auto",
    )
    facts: dict[str, Any] = {"model": str(options.model), "event": event.text, "law": repr(law), **answer.to_dict()}
    lines = [f"P({event.short}) = {answer}", f"law       {law!r}", f"method    {answer.method}"]
    lines += [f"note      {answer.note}"] if answer.note else []
    lines.append(f"time      {answer.seconds:.3g} s")
    found = None
    if options.witness or options.vnnlib is not None:
        found = _witness(net, law, event, answer, options)
    if options.vnnlib is not None:
        word = verdict(answer, law, event, bool(found))
        facts["verdict"] = word
        lines.insert(0, word)
        if options.results_file is not None:
            _write(options.results_file, word, found)
    if found is not None and options.witness:
        facts["witness"] = [w.to_dict() for w in found]
        lines.append(f"witness   {found[0]!r}" if len(found) else f"witness   none: {found.note}")
    show(options, facts, "\n".join(lines))
    return 0 if options.below is None or answer.certainly_below(options.below) else 1


def verdict(answer: Any, law: Any, event: Any, seen: bool) -> str:
    """The word of VNN-COMP: sat, unsat, unknown or timeout.

    `sat`: an input was found and replayed, or a part of positive mass is proved to be inside. `unsat`: the bracket is
    [0, 0], not an estimate, and the law reaches all of the property's box.
    """
    import numpy as np

    from reluscope.answers._event_rows import support_sides

    certain = answer.guarantee != "confidence"
    if seen or (certain and answer.lower > 0):
        return "sat"
    low, high = support_sides(law)
    covers = all(
        bool(((low <= c.case.lower) | np.isneginf(low)).all() and ((high >= c.case.upper) | np.isposinf(high)).all())
        for c in event.cases
    )
    if certain and answer.upper == 0 and covers:
        return "unsat"
    return "timeout" if "budget" in answer.note else "unknown"


def _witness(net: Any, law: Any, event: Any, answer: Any, options: Options) -> Any:
    """Inputs of the event; nothing is searched where the bracket has ruled them out."""
    from reluscope.answers.witness import Witnesses, witness

    if answer.upper == 0 and answer.guarantee != "confidence":
        return Witnesses((), True, "the probability is 0")
    return witness(net, law, event, rng=options.seed, budget=5.0)


def _write(path: Path, word: str, found: Any) -> None:
    from reluscope.formats._files import atomic_write

    lines = [word]
    if word == "sat" and found:
        pairs = [f"(X_{i} {v!r})" for i, v in enumerate(found.x.tolist())]
        pairs += [f"(Y_{i} {v!r})" for i, v in enumerate(found.y.tolist())]
        lines.append("(" + "\n".join(pairs) + ")")
    with atomic_write(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def _law(options: Options, asked: Any) -> tuple[Any, list[str] | None]:
    """The law, and the names of the inputs if the data has a header."""
    from reluscope._tables import read_csv
    from reluscope.inputs import Gaussian, GaussianMixture, Uniform, law_from_json

    path: Path | None = options.law
    if path is None:
        if options.vnnlib is None:
            raise InputError("--law is needed: law.json, or data.csv to fit a law to")
        boxes = asked.boxes
        if len(boxes) != 1:
            raise InputError(f"--law is needed: the property has {len(boxes)} boxes, so none is the obvious domain")
        return Uniform(*boxes[0]), None
    if path.suffix.lower() != ".csv":
        return law_from_json(path), None
    rows = read_csv(path)
    names = list(rows.names) if len(set(rows.names)) == len(rows.names) else None
    if options.components == 1:
        return Gaussian.fit(rows.X), names
    return GaussianMixture.fit(rows.X, components=options.components, rng=options.seed), names
