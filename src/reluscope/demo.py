"""The demo: the report of a built-in network, with the network and its input law beside it to go on from."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from reluscope.examples import example
from reluscope.reporting.page import report


def run(name: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Do the demo, write its files to `folder`, and return the facts and the text to print."""
    from reluscope._files import atomic_write

    shown = example(name)
    print("preparing (the first run compiles, for up to a minute) ...", file=sys.stderr)
    started = time.perf_counter()
    law = shown.law if shown.classes is None else shown.classes
    done = report(shown.network, law, events=shown.events, title=f"{name}: {shown.about}", progress="auto")
    files = done.save(folder)
    with atomic_write(folder / f"{name}-law.json") as file:
        file.write((json.dumps(law.to_dict(), indent=1) + "\n").encode())
    shown.network.save(folder / f"{name}.npz")
    files += [f"{name}-law.json", f"{name}.npz"]
    facts = {
        "example": name,
        "model": str(folder / f"{name}.npz"),
        "about": shown.about,
        **done.to_dict(),
        "folder": str(folder),
        "files": files,
    }
    again = " ".join(f'--event "{event}"' for event in shown.events)
    lines = [
        f"{name}: {shown.about}",
        f"network  {shown.network!r}",
        f"inputs   {shown.law!r}",
        "",
        *(f"- {line}" for line in done.summary),
        "",
        f"report:   {(folder / 'report.html').resolve()}   ({time.perf_counter() - started:.0f} s)",
        f"tables:   {folder}/*.csv, {folder}/report.json",
        f"the same: reluscope report {folder}/{name}.npz --law {folder}/{name}-law.json {again}".rstrip(),
    ]
    return facts, "\n".join(lines)
