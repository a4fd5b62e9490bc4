"""Published experiments, run again: `reluscope reproduce NAME`.

Each module has `run(folder, *, quick, rng, progress) -> Reproduction`: a table with the published numbers beside ours,
and the files it wrote. `quick` is a reduced version for tests: other data, fewer rows or runs, so the published numbers
are left out of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from reluscope._text import table

NAMES = (
    "moons",
    "mnist",
    "spectrum",
    "complex",
    "boundedness",
    "thesis4",
    "cocircles",
    "taiwancredit",
    "recover",
    "invariance",
    "lens",
)


@dataclass(frozen=True)
class Reproduction:
    """What came out: rows of a table, remarks in words, files written, and the `seed` that repeats it.

    `published` names the columns that hold published numbers or comparisons with them, `compared` are the remarks that
    do; a reduced run has neither.
    """

    name: str
    rows: list[dict[str, Any]]
    remarks: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    published: tuple[str, ...] = ()
    compared: list[str] = field(default_factory=list)
    quick: bool = False
    seed: int | None = None

    def reduced(self) -> Reproduction:
        """The same, as a reduced run: nothing published stands beside it."""
        rows = [{k: v for k, v in row.items() if k not in self.published} for row in self.rows]
        note = "a reduced run, for a look: the published numbers are of the full one and are left out here"
        return replace(self, rows=rows, remarks=[note, *self.remarks], published=(), compared=[], quick=True)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        facts = {"name": self.name, "quick": self.quick, "rows": self.rows, "remarks": [*self.compared, *self.remarks]}
        return facts | {"files": self.files, "seed": self.seed}

    def __str__(self) -> str:
        return "\n".join([f"{self.name}:", "", table(self.rows), "", *self.compared, *self.remarks])


def reproduce(name: str, folder: Path, *, quick: bool = False, rng: Any = None, progress: Any = None) -> Reproduction:
    """Run a published experiment again.

    Parameters
    ----------
    name : {"moons", "mnist", "spectrum", "complex", "boundedness", "thesis4", "cocircles", "taiwancredit", "recover", \
"invariance", "lens"}
    folder : Path
        Where its pictures are written.
    quick : bool
        A reduced version, for tests.
    rng : None, int, SeedSequence or Generator
    progress : optional

    Returns
    -------
    Reproduction

    Raises
    ------
    InputError
        If there is no experiment of that name, or its data are missing.
    """
    from reluscope._check import choice, seeded  # here, because the shell's `--help` reads NAMES and stays light

    choice(name, "name", NAMES)
    folder.mkdir(parents=True, exist_ok=True)
    module = import_module(f"reluscope.reproduce.{name}")
    generator, seed = seeded(rng)
    done: Reproduction = module.run(folder, quick=quick, rng=generator if seed is None else seed, progress=progress)
    return replace(done.reduced() if quick else done, seed=seed)
