"""`reluscope replay`: compute a recorded answer again, and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, show
from reluscope.errors import InputError


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(commands, "replay", run, "compute a recorded answer again, and compare")
    parser.add_argument(
        "answer",
        type=Path,
        help="what `prob`, `certify`, `regions` or `report` printed with --json, or results of `batch`",
    )
    parser.add_argument("--row", type=int, help="a row of the results of `batch`, from 0 on, in place of such a file")
    parser.add_argument("--model", type=Path, help="the model file (default: the one the answer names)")
    parser.add_argument("--data", type=Path, help="the rows of data, for a record that keeps only their digest")


def run(options: Options) -> int:
    """Replay the answer; exit code 1 if the two do not agree."""
    from reluscope._files import read_text
    from reluscope._json import parse_json
    from reluscope.answers.replay import replay
    from reluscope.batches.store import is_store
    from reluscope.formats import load
    from reluscope.reporting.data import data_rows

    if is_store(options.answer):
        facts = _kept_row(options)
    elif options.row is not None:
        raise InputError(f"--row is about results of `reluscope batch`, and {options.answer.name} is none")
    else:
        facts = parse_json(read_text(options.answer), options.answer.name)
    shared = facts.get("record") if isinstance(facts, dict) else None
    own = facts.get("records", [{}]) if isinstance(facts, dict) else []
    parts = [shared, *own] if isinstance(own, list) and own else []
    if not parts or not all(isinstance(part, dict) for part in parts):
        raise InputError(f"{options.answer.name} holds no record; make one with reluscope prob ... --json")
    model = options.model
    if model is None:
        if not isinstance(facts.get("model"), str):
            raise InputError(f"{options.answer.name} does not name its model; pass --model")
        model = Path(facts["model"])
    net = load(model)
    rows = None if options.data is None else data_rows(net, options.data, facts.get("target")).X
    found = [replay(kept, net, rows=rows, progress="auto") for kept in ({**parts[0], **part} for part in own)]
    texts = ["\n".join(_lines(one)) for one in found]
    shown = {"model": str(model), "agrees": all(found)}
    shown |= found[0].to_dict() if len(found) == 1 else {"replays": [one.to_dict() for one in found]}
    show(options, shown, "\n\n".join(texts))
    return 0 if all(found) else 1


def _kept_row(options: Options) -> dict[str, Any]:
    """A row of a batch, as `prob` would have printed it."""
    from reluscope.batches.store import open_store

    if options.row is None:
        raise InputError(f"{options.answer.name} holds the results of a batch; pass --row, such as --row 0")
    with open_store(options.answer) as store:
        record, model = store.kept(options.row)
    return {"record": record, **({"model": model} if model else {})}


def _lines(found: Any) -> list[str]:
    """What is printed of one replay: the two brackets of a probability, and whether the two agree."""
    from reluscope.answer import Answer

    lines = [f"question  {found.question}"]
    if isinstance(found.answer, Answer):
        before, now = found.recorded, found.answer.to_dict()
        lines += [
            f"{word:<9} {at['value']:.17g} in [{at['lower']:.17g}, {at['upper']:.17g}] ({at['guarantee']})"
            for word, at in (("recorded", before), ("now", now))
        ]
    lines.append(f"{'agrees' if found else 'DIFFERS'}    compared: {found.compared}")
    return lines + [f"note      {note}" for note in found.notes]
