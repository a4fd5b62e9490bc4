"""`reluscope prob`: how likely an event is, with a guarantee."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reluscope._text import percent
from reluscope.commands._common import Options, command, offer_workers, show
from reluscope.errors import InputError, ReluscopeWarning

if TYPE_CHECKING:
    from reluscope.inputs import Law

_MOST_SHOWN = 16

_SECONDS = 60.0
"""Time for a verdict when the limit of `--below` was decided first, without a budget."""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "prob", run, "how likely an event is, with a guarantee")
    parser.add_argument("model", type=Path, nargs="?", help="a model file")
    parser.add_argument(
        "--network",
        action="append",
        metavar="NAME=FILE",
        help="in place of the model, once for each network that the event or property speaks of by name",
    )
    parser.add_argument(
        "--law",
        type=Path,
        help="law (distribution) of the inputs: law.json, or data.csv to fit one to",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--event", help='such as "y[0] > y[1] and x[2] <= 0.3", "argmax != argmax at mean"')
    what.add_argument("--vnnlib", type=Path, help="a VNN-LIB property; prints its verdict too (sound by default)")
    parser.add_argument(
        "--components",
        type=int,
        help="Gaussians to fit to data.csv (default: 1, or a law with the categories and quantiles of the rows where "
        "the model knows its columns)",
    )
    parser.add_argument("--guarantee", choices=("auto", "exact", "sound", "confidence"), help="default: auto")
    parser.add_argument("--tolerance", type=float, help="half-width of the bracket wanted")
    parser.add_argument(
        "--budget",
        help='such as "60s" (default: 60 s for sound and with --below, 2 s for an estimate, 60 s with --tolerance; '
        "auto enumerates for up to 10 s before it)",
    )
    parser.add_argument("--level", type=float, help="level of a confidence interval (default: 0.99)")
    parser.add_argument("--interval", choices=("finite-sample", "replicate"), help="kind of confidence interval")
    parser.add_argument(
        "--below",
        type=float,
        help="ends as soon as it is decided whether the probability is below this; exit code 1 unless it certainly is",
    )
    parser.add_argument(
        "--witness",
        action="store_true",
        help="also print the most probable input that was found in the event, "
        "checked with onnxruntime if it is installed and the model is an .onnx file",
    )
    parser.add_argument("--results-file", type=Path, help="with --vnnlib: write the verdict and a counterexample")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random draws")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="keep the sound search in a file, and go on from it"
    )
    offer_workers(parser, run)


def run(options: Options) -> int:
    """Compute the probability and print it."""
    from reluscope.answers.probability import probability
    from reluscope.answers.properties import counterexamples, verdict
    from reluscope.answers.replay import record
    from reluscope.budget import parse_budget
    from reluscope.events import as_event, joined
    from reluscope.formats.vnnlib import vnnlib
    from reluscope.intervals import DEFAULT_LEVEL

    nets = _networks(options)
    if options.results_file is not None and options.vnnlib is None:
        raise InputError("--results-file goes with --vnnlib")
    if options.below is not None and not 0.0 <= options.below <= 1.0:
        raise InputError(f"--below must be a probability between 0 and 1, got {options.below:g}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReluscopeWarning)
        asked: Any = options.event if options.vnnlib is None else vnnlib(options.vnnlib)
        law, names, rows = _law(options, asked, next(iter(nets.values())) if isinstance(nets, dict) else nets)
    net = joined(nets, law, asked)
    doubts = [str(w.message) for w in caught if issubclass(w.category, ReluscopeWarning)]
    event = as_event(asked, net, law, names=names)
    share = None if rows is None or event.n_inputs != rows.shape[1] else float(event.holds(net, rows).mean())
    # Auto tries what decides a limit first; without one a property asks for a proof.
    alone = options.vnnlib is not None and (options.below is None or options.checkpoint is not None)
    guarantee = options.guarantee or ("sound" if alone else "auto")

    def asked_for(below: float | None, guarantee: str, budget: Any) -> Any:
        return probability(
            net,
            law,
            event,
            checkpoint=options.checkpoint,
            below=below,
            guarantee=guarantee,
            tolerance=options.tolerance,
            budget=budget,
            level=DEFAULT_LEVEL if options.level is None else options.level,
            interval=options.interval,
            rng=options.seed,
            progress="auto",
        )

    below, budget = options.below, options.budget
    answer, found, word = asked_for(below, guarantee, budget), None, ""
    if options.witness or options.vnnlib is not None:
        found = counterexamples(net, law, event, answer, model=options.model, rng=options.seed)
    if options.vnnlib is not None:
        word = verdict(answer, law, event, bool(found), covers=options.law is None)
    if word == "unknown" and below is not None and answer.guarantee == "sound":
        # The limit is decided, the property is not: the rest of the time is for a proof.
        rest = min(parse_budget(budget).seconds, _SECONDS) - answer.seconds
        again = asked_for(None, "sound", f"{rest:.3g}s") if rest > 0.1 else answer
        if again.upper == 0.0 or again.lower > 0.0:
            answer, below, guarantee, budget = again, None, "sound", f"{rest:.3g}s"
            word = verdict(answer, law, event, bool(found), covers=options.law is None)
    models: Any = str(options.model) if options.model else dict(n.split("=", 1) for n in options.network)
    facts: dict[str, Any] = {"model": models, "event": event.text, "law": repr(law), **answer.to_dict()}
    lines = [f"P({event.short}) = {answer}", f"law       {law!r}", f"method    {answer.method}"]
    if share is not None and rows is not None:
        facts["rows"] = {"count": len(rows), "share": share}
        lines.insert(0, f"rows      {percent(share)} of the {len(rows):,} rows are in the event")
    lines += [f"note      {answer.note}"] if answer.note else []
    lines += [f"advice    {answer.status.advice}"] if answer.status.advice else []
    lines += [f"warning   {doubt}" for doubt in doubts]
    facts["warnings"] = doubts
    facts["record"] = record(
        net, law, event, answer, below=below, guarantee=guarantee, tolerance=options.tolerance, budget=budget,
        interval=options.interval, **({} if options.level is None else {"level": options.level}),
    )  # fmt: skip
    if options.vnnlib is not None and options.law is None:
        given = _given_inputs(law, event, answer)
        if given is not None:
            facts["given_inputs"] = given
            lines.append("given     {:.6g} in [{:.6g}, {:.6g}] of the inputs that the property allows".format(*given))
    lines.append(f"time      {answer.seconds:.3g} s")
    holds = None
    if options.below is not None:
        holds, sentence = _below(answer, options.below)
        facts["below"] = {"limit": options.below, "holds": holds}
        lines.append(f"below     {sentence}")
    if options.vnnlib is not None:
        facts["verdict"] = word
        lines.insert(0, word)
        if options.results_file is not None:
            _write(options.results_file, word, found, event.relation)
    if found is not None and (options.witness or len(found)):
        facts["witness"] = [w.to_dict() for w in found]
        lines += _witness_lines(found, len(law.components) > 1, event.relation)
    show(options, facts, "\n".join(lines))
    return 0 if options.below is None or holds else 1


def _networks(options: Options) -> Any:
    """The model, or the networks by name."""
    from reluscope.formats import load

    if (options.model is None) == (not options.network):
        raise InputError("give a model file, or --network NAME=FILE for each network")
    if options.model is not None:
        return load(options.model)
    out = {}
    for entry in options.network:
        name, equals, path = entry.partition("=")
        if not equals or not name or not path:
            raise InputError(f"--network must be NAME=FILE, such as f=model.onnx, got {entry!r}")
        if name in out:
            raise InputError(f"--network {name} is given twice")
        out[name] = load(path)
    return out


def _given_inputs(law: Law, event: Any, answer: Any) -> tuple[float, float, float] | None:
    """The probability given the rows of the property that read inputs alone; None if there are none."""
    import numpy as np

    from reluscope.answers.probability import probability
    from reluscope.network import Network

    cases = tuple(case.chosen(case.inputs_alone) for case in event.cases)
    if not any(len(case.g) for case in cases):
        return None
    n = event.n_inputs
    plain = Network([(np.eye(n), np.zeros(n))])  # the rows read no output, so that no region of the network matters
    cases = tuple(replace(case, G=np.zeros((len(case.g), n))) for case in cases)
    rows = replace(event, cases=cases, n_outputs=n, relation=None)
    allowed = probability(plain, law, rows, guarantee="exact" if n <= 6 else "sound", budget="20s")
    if not allowed.lower > 0:
        return None
    ends = answer.value / allowed.value, answer.lower / allowed.upper, min(answer.upper / allowed.lower, 1.0)
    return None if allowed.lower == 1.0 else ends


def _witness_lines(found: Any, mixture: bool, relation: Any = None) -> list[str]:
    """The first witness in full: its input and output to the last digit, then what is known of it."""
    from reluscope.events import tensor_values

    if not len(found):
        return [f"witness   none: {found.note}"]
    first = found[0]
    facts = [f"margin {first.margin:.3g}"]
    if first.distance is not None:
        centre = f"centre of component {first.component}" if mixture else "mean"
        facts.append(f"{first.distance:.6g} standard deviations from the {centre}")
    if first.replayed is not None:
        facts.append("onnxruntime agrees" if first.replayed else "onnxruntime does NOT find it inside the event")
    values = [("x", first.x), ("y", first.y)]
    if relation is not None:
        values = [(f"{net.name}: {t.name}", v) for net, t, v in tensor_values(relation, first.x, first.y)]
    lines = [f"          {name} = {_numbers(v)}" for name, v in values]
    lines[:0] = [f"          {first.words}"] if first.words and relation is None else []
    return [f"witness   {lines[0].strip()}", *lines[1:], f"          {', '.join(facts)}; {found.note}"]


def _numbers(values: Any) -> str:
    shown = ", ".join(repr(v) for v in values[:_MOST_SHOWN].tolist())
    return f"[{shown}]" if len(values) <= _MOST_SHOWN else f"[{shown}, ...] ({len(values)} numbers; --json has all)"


def _below(answer: Any, limit: float) -> tuple[bool | None, str]:
    """Whether the probability is below a limit (None: not decided), and a sentence that says so.

    A replicate interval speaks of what sampling has met. A wide one, of sampling that ended early or disagreed, does
    not say yes.
    """
    from reluscope.answer import Status

    sure = "" if answer.level is None else f" (at the level of {100 * answer.level:g} %)"
    met = "(replicate)" in answer.method
    if answer.certainly_below(limit) and met and answer.status is not Status.DONE and answer.width > answer.value:
        return (
            None,
            f"not decided: the upper bound {answer.upper:.6g} is of sampling that ended early or disagreed",
        )
    if answer.certainly_below(limit):
        sure = sure if not met else f"{sure[:-1]}, for the parts of the event that sampling met)"
        return True, f"yes: the probability is below {limit:g}{sure}"
    if answer.lower >= limit:
        return False, f"no: the probability is at least {limit:g}{sure}"
    return None, f"not decided: {limit:g} lies between the bounds {answer.lower:.6g} and {answer.upper:.6g}"


def _write(path: Path, word: str, found: Any, relation: Any = None) -> None:
    """The verdict and the counterexample: as VNN-COMP writes it, or as the standard of version 2.0 does."""
    from reluscope._files import atomic_write
    from reluscope.events import tensor_values

    lines = [word]
    if word == "sat" and found and relation is not None:
        for _, tensor, values in tensor_values(relation, found.x, found.y):
            lines.append(f"{tensor.name} {tensor.dtype} [{','.join(map(str, tensor.shape))}]")
            lines += [repr(v) for v in values.tolist()]
    elif word == "sat" and found:
        pairs = [f"(X_{i} {v!r})" for i, v in enumerate(found.x.tolist())]
        pairs += [f"(Y_{i} {v!r})" for i, v in enumerate(found.y.tolist())]
        lines.append("(" + "\n".join(pairs) + ")")
    with atomic_write(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def _law(options: Options, asked: Any, net: Any) -> tuple[Any, list[str] | None, Any]:
    """The law, the names of the inputs if the data has a header, and the rows of the data if there are any."""
    from reluscope.answers.properties import box_law
    from reluscope.reporting.data import law_of_file

    if options.law is not None:
        return law_of_file(net, options.law, components=options.components, rng=options.seed)
    if options.vnnlib is None:
        raise InputError("--law is needed: law.json, or data.csv to fit a law to")
    try:
        return box_law(asked), None, None
    except InputError as error:
        raise InputError(str(error).replace("a law is", "--law is", 1)) from None
