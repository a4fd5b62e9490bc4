"""`reluscope recover`: a network from queries; the model file is used only to answer them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, numbers, show


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "recover", run, "recover a network from queries to it, and compare the two")
    parser.add_argument("model", type=Path, help="a model file, used only as an oracle")
    parser.add_argument(
        "--box",
        nargs=2,
        metavar=("LO", "HI"),
        default=("-1", "1"),
        help="where to query: numbers or lists (default -1 1)",
    )
    parser.add_argument(
        "--method",
        choices=("exact", "regions", "samples", "labels"),
        default="exact",
        help="default: exact; labels: the oracle tells the largest output only",
    )
    parser.add_argument("--samples", type=int, default=200, help="method samples: how many (default 200)")
    parser.add_argument("--gradient", action="store_true", help="let the oracle give gradients as well")
    parser.add_argument("--float32", action="store_true", help="let the oracle answer in single precision")
    parser.add_argument("--limit", type=int, help="largest number of queries")
    parser.add_argument("--budget", help='time limit, such as "60s"; the result so far is reported')
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers (default 0)")
    parser.add_argument(
        "--out", type=Path, help="save the recovered network (.npz, .onnx, .safetensors) or surrogate (.npz)"
    )


_KINDS = {"exact": (".npz", ".onnx", ".safetensors"), "regions": (".npz",), "samples": (), "labels": ()}
"""File types that hold the result of each method."""


def run(options: Options) -> int:
    """Recover the network and compare it with the model."""
    from reluscope.errors import InputError
    from reluscope.formats import load
    from reluscope.recovery.oracle import Oracle
    from reluscope.recovery.recover import recover

    if options.out is not None and options.out.suffix not in _KINDS[options.method]:  # before any query is spent
        kinds = ", ".join(_KINDS[options.method]) or "none: its result is not saved"
        raise InputError(f"--out {options.out.name}: file types for method {options.method!r}: {kinds}")
    net = load(options.model)
    if options.method == "labels" and net.n_outputs == 1:
        raise InputError(f"--method labels needs a model with two or more outputs, {options.model.name} has one")
    oracle = Oracle(
        net if options.method != "labels" else lambda X: net(X).argmax(axis=1),
        net.n_inputs,
        gradient=True if options.gradient and options.method != "labels" else None,
        dtype="float32" if options.float32 else "float64",
        limit=options.limit,
    )
    box = tuple(numbers(side, "--box") for side in options.box)
    found = recover(
        oracle,
        box,
        method=options.method,
        samples=options.samples,
        budget=options.budget,
        rng=options.seed,
        progress=None if options.json else "auto",
    )
    facts = {"model": str(options.model), **found.to_dict()}
    lines = [str(found)]
    if options.method == "exact" and found.result is not None:
        comparison = found.compare(net)
        facts["comparison"] = comparison.to_dict()
        lines += ["", str(comparison)]
    if options.out is not None and found.result is not None:
        found.result.save(options.out)
        facts["saved"] = str(options.out)
        lines.append(f"saved to {options.out}")
    show(options, facts, "\n".join(lines))
    return 0 if found.complete else 1
