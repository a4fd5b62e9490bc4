"""Which families of laws ReLU layers keep, after Macdonald and Wäldchen.

Their theorem: a parametrised family is invariant only if layers have width one, or its members have finite support, or
its parametrisation is not locally Lipschitz. Each restriction alone suffices for some family. The three families are
checked, two popular ones that have none of the restrictions are refuted, and what the lack costs is counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope import invariance
from reluscope._check import generator
from reluscope._extras import require
from reluscope.inputs import Gaussian
from reluscope.progress import meter
from reluscope.representation.laboratory import random_network
from reluscope.reproduce import Reproduction

_FAMILIES: dict[str, tuple[Any, bool]] = {
    "width one (clamped)": (invariance.WidthOne(), True),
    "finite support": (invariance.FiniteSupport(2), True),
    "not locally Lipschitz (coded)": (invariance.CodedFamily(2), True),
    "Gaussians": (invariance.Gaussians(2), False),
    "mixtures of 3 Gaussians": (invariance.Mixtures(2, 3), False),
}
"""Each family, and whether the theorem allows it to be invariant."""


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """Check the families, measure Lipschitz quotients, draw the growth of the exact law."""
    require("matplotlib", "plot")
    from reluscope.plot._axes import save

    rng = generator(rng)
    rows = []
    with meter(progress, "invariance") as report:
        for name, (family, theorem) in _FAMILIES.items():
            found = invariance.is_invariant(family, rng=rng)
            gap = None if found.counterexample is None else float(f"{found.counterexample.gap:.3g}")
            rows.append({"family": name, "invariant by the theorem": theorem, "found": bool(found), "gap": gap})
            report(len(rows), name)
        depths = (1, 2, 4) if quick else (1, 2, 4, 8, 16, 32)
        quotients = invariance.lipschitz_quotients(depths)
        net = random_network([2, 4, 4, 1] if quick else [2, 6, 6, 6, 6, 1], bias=0.3, rng=0)
        grown = invariance.growth(net, Gaussian([0.0, 0.0], 1.0), progress=None)
        save(grown.plot(), folder / "growth.png")
    agree = all(row["found"] == row["invariant by the theorem"] for row in rows)
    remarks = [
        f"the checker {'agrees' if agree else 'DISAGREES'} with the theorem on all {len(rows)} families; a gap is the "
        "distance from the image to the nearest member",
        "coded family: log2 of the quotient of distances (laws over parameters) at "
        + ", ".join(f"{q.layers} layers {q.log2_quotient:.0f}" for q in quotients),
        str(grown),
        f"picture in {folder}/: growth.png",
    ]
    compared = ["the abstract prints a theorem and no numbers"]
    return Reproduction("invariance", rows, remarks, ["growth.png"], ("invariant by the theorem",), compared)
