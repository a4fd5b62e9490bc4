"""What `reluscope regions` prints and writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._files import make_folder
from reluscope._tables import write_csv
from reluscope._text import table
from reluscope.answer import unless_interrupted
from reluscope.answers.replay import record
from reluscope.cells.regions import Regions, regions
from reluscope.errors import InputError
from reluscope.inputs import Law
from reluscope.network import Network

_MOST_FACE_INPUTS = 4
_MANY = 1_000_000
"""Regions of which linear models are compared with one another."""


def enumerate_regions(
    net: Network,
    name: str,
    *,
    box: Any = None,
    law_file: Path | None = None,
    budget: str | None = None,
    faces: bool = False,
    folder: Path | None = None,
    checkpoint: Path | None = None,
) -> tuple[dict[str, Any], str]:
    """Enumerate, write the table and picture to `folder` if given, and return the facts and the text to print.

    With `checkpoint` the regions are kept in that folder; of more than a million only what fits into little memory is
    said.
    """
    law = None
    if law_file is not None:
        from reluscope.inputs import law_from_json

        law = law_from_json(law_file)
    started = time.perf_counter()
    found = regions(net, box, law=law, budget=budget, out=checkpoint)
    seconds = time.perf_counter() - started
    facts: dict[str, Any] = {
        "model": name,
        "network": repr(net),
        "domain": str(found.domain),
        "complete": found.complete,
        "stopped": found.reason,
        "regions": len(found),
        "distinct_linear_models": found.distinct_maps() if len(found) <= _MANY else None,
        "seconds": seconds,
        "record": record(net, law, None, found, box=box, budget=budget),
    }
    state = "complete" if found.complete else f"incomplete: {found.reason}"
    lines = [
        f"{name}: {net!r}",
        f"domain    {found.domain}",
        f"regions   {len(found):,} ({state}), {seconds:.3g} s",
    ]
    if len(found) <= _MANY:
        lines.append(f"maps      {facts['distinct_linear_models']:,} different linear models")
    if checkpoint is not None:
        facts["checkpoint"] = str(checkpoint)
        lines.append(f"kept in   {checkpoint}: reluscope.Regions.load reads it, the same command goes on")
    if net.n_inputs <= 2 and found.complete and len(found) <= _MANY:
        facts["merged_regions"] = found.merge_equal().count
        lines.append(f"merged    {facts['merged_regions']:,} after joining neighbours with the same linear model")
    if faces:
        lines.append(_faces(net, box, found, facts))
    masses = None
    if law is not None:
        kept = checkpoint / "masses.npz" if checkpoint is not None and found.complete else None
        masses = found.masses(law, rng=0, checkpoint=kept)
        unless_interrupted(masses)
        facts |= {"mass": float(masses.value.sum()), "guarantee": masses.guarantee}
        lines.append(f"mass      {facts['mass']:.12g} in all ({masses.guarantee})")
        lines += ["", _most_probable(found, masses.value)]
    if folder is not None:
        columns = found.to_dict(masses)
        facts["files"] = _write(found, columns, folder, Path(name).stem, None if law is None else _where(law, found))
        lines += ["", f"results in {folder}/: {', '.join(facts['files'])}"]
    return facts, "\n".join(lines)


def _faces(net: Network, box: Any, found: Regions, facts: dict[str, Any]) -> str:
    from reluscope.cells.complex import polyhedral_complex

    if net.n_inputs > _MOST_FACE_INPUTS or not found.complete:
        raise InputError(f"faces are counted for up to {_MOST_FACE_INPUTS} inputs, when all regions were listed")
    box = found.domain.box if box is None else box
    counts = [int(n) for n in polyhedral_complex(net, box).f_vector]
    facts["f_vector"] = counts
    return f"faces     {', '.join(f'{n:,} of dimension {k}' for k, n in enumerate(counts))}"


def _most_probable(found: Regions, mass: Any, count: int = 5) -> str:
    rows = []
    for i in np.argsort(-mass, kind="stable")[:count].tolist():
        row: dict[str, Any] = {"region": i, "probability": float(mass[i])}
        row |= {f"x[{k}] inside": float(x) for k, x in enumerate(found.interior[i][:3])}
        rows.append(row)
    return table(rows)


def _where(law: Law, found: Regions) -> tuple[Any, Any]:
    """The rectangle that holds nearly all of the mass: four standard deviations, within the domain."""
    mean, sd = np.asarray(law.mean), np.sqrt(np.asarray(law.variance))
    lower, upper = mean - 4 * sd, mean + 4 * sd
    if found.domain.box is not None:
        lower, upper = np.maximum(lower, found.domain.box[0]), np.minimum(upper, found.domain.box[1])
    flat = ~(upper > lower)
    return np.where(flat, lower - 1.0, lower), np.where(flat, lower + 1.0, upper)


def _write(found: Regions, columns: dict[str, Any], folder: Path, stem: str, view: Any) -> list[str]:
    make_folder(folder)
    stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in stem) or "network"
    write_csv(columns, folder / f"{stem}-regions.csv")
    files = [f"{stem}-regions.csv"]
    if found.network.n_inputs == 2:
        from reluscope.plot._axes import save
        from reluscope.plot.regions import plot_regions

        mass = columns.get("mass")
        ax = plot_regions(found) if mass is None else plot_regions(found, colour="mass", masses=mass, view=view)
        save(ax, folder / f"{stem}-regions.png")
        files.append(f"{stem}-regions.png")
    return files
