"""`reluscope prob`: how likely an event is, with a guarantee."""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reluscope._text import count
from reluscope.commands._common import Options, command, show
from reluscope.errors import InputError, ReluscopeWarning

if TYPE_CHECKING:
    from reluscope.inputs import Law

_MOST_SHOWN = 16


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "prob", run, "how likely an event is, with a guarantee")
    parser.add_argument("model", type=Path, help="a model file")
    parser.add_argument(
        "--law",
        type=Path,
        help="law (distribution) of the inputs: law.json, or data.csv to fit one to",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--event", help='such as "y[0] > y[1] and x[2] <= 0.3", "argmax != argmax at mean"')
    what.add_argument("--vnnlib", type=Path, help="a VNN-LIB property; prints its verdict too (sound by default)")
    parser.add_argument("--components", type=int, default=1, help="Gaussians to fit to data.csv (default: 1)")
    parser.add_argument("--guarantee", choices=("auto", "exact", "sound", "confidence"), help="default: auto")
    parser.add_argument("--tolerance", type=float, help="half-width of the bracket wanted")
    parser.add_argument("--budget", help='such as "60s"')
    parser.add_argument("--level", type=float, help="level of a confidence interval (default: 0.99)")
    parser.add_argument("--interval", choices=("finite-sample", "replicate"), help="kind of confidence interval")
    parser.add_argument("--below", type=float, help="exit code 1 unless the probability is certainly below this")
    parser.add_argument(
        "--witness",
        action="store_true",
        help="also print the most probable input that was found in the event, "
        "checked with onnxruntime if it is installed and the model is an .onnx file",
    )
    parser.add_argument("--results-file", type=Path, help="with --vnnlib: write the verdict and a counterexample")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random draws")


def run(options: Options) -> int:
    """Compute the probability and print it."""
    from reluscope.answers.probability import probability
    from reluscope.events import as_event
    from reluscope.formats import load
    from reluscope.formats.vnnlib import vnnlib
    from reluscope.intervals import DEFAULT_LEVEL

    net = load(options.model)
    asked: Any = options.event if options.vnnlib is None else vnnlib(options.vnnlib)
    if options.results_file is not None and options.vnnlib is None:
        raise InputError("--results-file goes with --vnnlib")
    if options.below is not None and not 0.0 <= options.below <= 1.0:
        raise InputError(f"--below must be a probability between 0 and 1, got {options.below:g}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReluscopeWarning)
        law, names = _law(options, asked, net)
    doubts = [str(w.message) for w in caught if issubclass(w.category, ReluscopeWarning)]
    event = as_event(asked, net, law, names=names)
    guarantee = options.guarantee or ("auto" if options.vnnlib is None else "sound")
    answer = probability(
        net,
        law,
        event,
        guarantee=guarantee,
        tolerance=options.tolerance,
        budget=options.budget,
        level=DEFAULT_LEVEL if options.level is None else options.level,
        interval=options.interval,
        rng=options.seed,
        progress="auto",
    )
    facts: dict[str, Any] = {"model": str(options.model), "event": event.text, "law": repr(law), **answer.to_dict()}
    lines = [f"P({event.short}) = {answer}", f"law       {law!r}", f"method    {answer.method}"]
    lines += [f"note      {answer.note}"] if answer.note else []
    lines += [f"advice    {answer.status.advice}"] if answer.status.advice else []
    lines += [f"warning   {doubt}" for doubt in doubts]
    facts["warnings"] = doubts
    lines.append(f"time      {answer.seconds:.3g} s")
    if options.below is not None:
        holds, sentence = _below(answer, options.below)
        facts["below"] = {"limit": options.below, "holds": holds}
        lines.append(f"below     {sentence}")
    found = None
    if options.witness or options.vnnlib is not None:
        found = _witness(net, law, event, answer, options)
    if options.vnnlib is not None:
        word = verdict(answer, law, event, bool(found))
        facts["verdict"] = word
        lines.insert(0, word)
        if options.results_file is not None:
            _write(options.results_file, word, found)
    if found is not None and (options.witness or len(found)):
        facts["witness"] = [w.to_dict() for w in found]
        lines += _witness_lines(found, len(law.components) > 1)
    show(options, facts, "\n".join(lines))
    return 0 if options.below is None or answer.certainly_below(options.below) else 1


def verdict(answer: Any, law: Law, event: Any, seen: bool) -> str:
    """The word of VNN-COMP: sat, unsat, unknown or timeout.

    `sat`: an input was found and replayed, or a part of positive mass is proved to be inside. `unsat`: the bracket is
    [0, 0], not an estimate, and the law reaches all of the property's box.
    """
    import numpy as np

    from reluscope.answer import Status

    certain = answer.guarantee != "confidence"
    if seen or (certain and answer.lower > 0):
        return "sat"
    low, high = law.support()
    covers = all(
        bool(((low <= c.lower) | np.isneginf(low)).all() and ((high >= c.upper) | np.isposinf(high)).all())
        for c in event.cases
    )
    if certain and answer.upper == 0 and covers:
        return "unsat"
    return "timeout" if answer.status is Status.BUDGET else "unknown"


def _witness(net: Any, law: Law, event: Any, answer: Any, options: Options) -> Any:
    """Inputs of the event; nothing is searched where the bracket has ruled them out."""
    from reluscope.answers.witness import Witnesses, witness

    if answer.upper == 0 and answer.guarantee != "confidence":
        return Witnesses((), True, "the probability is 0")
    if options.model.suffix.lower() == ".onnx" and find_spec("onnxruntime") is not None:
        try:
            return witness(net, law, event, rng=options.seed, budget=5.0, replay=options.model)
        except Exception as error:  # whatever the runtime says about a model it cannot run: the witness is still one
            found = witness(net, law, event, rng=options.seed, budget=5.0)
            return replace(found, note=f"{found.note}; not run by onnxruntime: {str(error).splitlines()[0]}")
    return witness(net, law, event, rng=options.seed, budget=5.0)


def _witness_lines(found: Any, mixture: bool) -> list[str]:
    """The first witness in full: its input and output to the last digit, then what is known of it."""
    if not len(found):
        return [f"witness   none: {found.note}"]
    first = found[0]
    facts = [f"margin {first.margin:.3g}"]
    if first.distance is not None:
        centre = f"centre of component {first.component}" if mixture else "mean"
        facts.append(f"{first.distance:.6g} standard deviations from the {centre}")
    if first.replayed is not None:
        facts.append("onnxruntime agrees" if first.replayed else "onnxruntime does NOT find it inside the event")
    return [
        f"witness   x = {_numbers(first.x)}",
        f"          y = {_numbers(first.y)}",
        f"          {', '.join(facts)}; {found.note}",
    ]


def _numbers(values: Any) -> str:
    shown = ", ".join(repr(v) for v in values[:_MOST_SHOWN].tolist())
    return f"[{shown}]" if len(values) <= _MOST_SHOWN else f"[{shown}, ...] ({len(values)} numbers; --json has all)"


def _below(answer: Any, limit: float) -> tuple[bool | None, str]:
    """Whether the probability is below a limit (None: not decided), and a sentence that says so."""
    sure = "" if answer.level is None else f" (at the level of {100 * answer.level:g} %)"
    if answer.certainly_below(limit):
        return True, f"yes: the probability is below {limit:g}{sure}"
    if answer.lower >= limit:
        return False, f"no: the probability is at least {limit:g}{sure}"
    return None, f"not decided: {limit:g} lies between the bounds {answer.lower:.6g} and {answer.upper:.6g}"


def _write(path: Path, word: str, found: Any) -> None:
    from reluscope._files import atomic_write

    lines = [word]
    if word == "sat" and found:
        pairs = [f"(X_{i} {v!r})" for i, v in enumerate(found.x.tolist())]
        pairs += [f"(Y_{i} {v!r})" for i, v in enumerate(found.y.tolist())]
        lines.append("(" + "\n".join(pairs) + ")")
    with atomic_write(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def _law(options: Options, asked: Any, net: Any) -> tuple[Any, list[str] | None]:
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
        lower, upper = boxes[0]
        open_ = [f"X_{i}" for i, (a, b) in enumerate(zip(lower, upper, strict=True)) if not (a > -inf and b < inf)]
        if open_:
            named = ", ".join(open_[:_MOST_SHOWN]) + (", ..." if len(open_) > _MOST_SHOWN else "")
            raise InputError(
                f"--law is needed: the property does not bound {named} on both sides, so there is no box to draw from"
            )
        return Uniform(lower, upper), None
    if path.suffix.lower() != ".csv":
        return law_from_json(path), None
    rows = read_csv(path)
    if rows.X.shape[1] != net.n_inputs:
        raise InputError(
            f"{path.name} has {count(rows.X.shape[1], 'column')} but the network takes {count(net.n_inputs, 'input')}"
        )
    if len(rows.X) < 2:
        raise InputError(f"{path.name} has one row: a law cannot be fitted to it; give more rows, or a law.json")
    names = list(rows.names) if len(set(rows.names)) == len(rows.names) else None
    if options.components == 1:
        return Gaussian.fit(rows.X), names
    return GaussianMixture.fit(rows.X, components=options.components, rng=options.seed), names
