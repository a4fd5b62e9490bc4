"""The demo: the main job on a built-in network, from the regions to their probabilities, with a table and pictures."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._extras import require
from reluscope._tables import write_csv
from reluscope._text import table
from reluscope.cells.regions import Regions, regions
from reluscope.examples import example
from reluscope.measure.masses import Masses

_TOP = 5


def run(name: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Do the demo, write its files to `folder`, and return the facts and the text to print."""
    shown = example(name)
    net, law = shown.network, shown.law
    print("preparing (the first run compiles, for up to a minute) ...", file=sys.stderr)
    regions(net, law=law).masses(law)
    started = time.perf_counter()
    found = regions(net, law=law)
    masses = found.masses(law)
    seconds = time.perf_counter() - started
    order = np.argsort(-masses.value)
    top = _top_rows(found, masses, order)
    facts: dict[str, Any] = {
        "example": name,
        "about": shown.about,
        "network": repr(net),
        "regions": len(found),
        "guarantee": masses.guarantee,
        "total_mass": float(masses.value.sum()),
        "top": top,
        "expected_output": [float(x) for x in _expected(found, law, masses)],
        "seconds": seconds,
        "files": _write(found, masses, law, folder, name),
    }
    half = int(np.searchsorted(np.cumsum(masses.value[order]), 0.99)) + 1
    lines = [
        f"{name}: {shown.about}",
        f"network   {net!r}",
        f"inputs    {law!r}",
        f"found     {len(found):,} regions, each with its own affine function, in {1e3 * seconds:.0f} ms",
        f"masses    {masses.guarantee}; they sum to {facts['total_mass']:.15f}",
        f"most of it: {half} of them hold 99 % of the probability",
        "",
        table(top),
        "",
        f"results in {folder}/: {', '.join(facts['files'])}",
    ]
    return facts, "\n".join(lines)


def _top_rows(found: Regions, masses: Masses, order: Any) -> list[dict[str, Any]]:
    rows = []
    for i in order[:_TOP]:
        terms = [f"{found.d[i, 0]:+.3f}", *(f"{c:+.3f} x[{k}]" for k, c in enumerate(found.C[i, 0]))]
        rows.append(
            {
                "probability": float(masses.value[i]),
                "error at most": float(masses.upper[i] - masses.lower[i]),
                "affine function": "y = " + " ".join(terms),
                "pattern": "".join(map(str, found.pattern[i].tolist())),
            }
        )
    return rows


def _expected(found: Regions, law: Any, masses: Masses) -> Any:
    """Mean output by Monte Carlo through the regions' own maps: a quick cross-check shown in the JSON."""
    x = law.sample(100_000, rng=0)
    return found.network(x).mean(axis=0)


def _write(found: Regions, masses: Masses, law: Any, folder: Path, name: str) -> list[str]:
    from reluscope.formats._files import atomic_write

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    columns = found.to_dict() | {"mass": masses.value, "mass_lower": masses.lower, "mass_upper": masses.upper}
    write_csv(columns, folder / f"{name}-regions.csv")
    files.append(f"{name}-regions.csv")
    law_text = json.dumps(law.to_dict(), indent=1)
    with atomic_write(folder / f"{name}-law.json") as file:
        file.write(law_text.encode())
    files.append(f"{name}-law.json")
    found.network.save(folder / f"{name}.npz")
    files.append(f"{name}.npz")
    if found.network.n_inputs == 2:
        files.append(_picture(found, masses, law, folder, name))
    return files


def _picture(found: Regions, masses: Masses, law: Any, folder: Path, name: str) -> str:
    require("matplotlib", "plot")
    from matplotlib.figure import Figure

    from reluscope.plot._axes import save
    from reluscope.plot.regions import plot_regions

    figure = Figure(figsize=(11, 4.4), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    sd = np.sqrt(law.variance)
    view = (law.mean - 3 * sd, law.mean + 3 * sd)
    plot_regions(found, left, colour="output", view=view)
    x = law.sample(400, rng=1)
    left.plot(x[:, 0], x[:, 1], ".", color="black", markersize=1.5, alpha=0.5)
    left.set_title("what the network does: its affine pieces", fontsize="medium")
    plot_regions(found, right, colour="mass", masses=masses.value, view=view)
    right.set_title("how likely each piece is", fontsize="medium")
    save(left, folder / f"{name}-regions.png")
    return f"{name}-regions.png"
