"""Chapter 2 of Hamidi's thesis: the polyhedral complex of networks, with every statement that can be counted.

The thesis prints no numbers there; what is compared is what its statements say. Arrangements in general position have
known counts, the Euler characteristic of a box is 1, and regions and connected components of the complement of the
bent hyperplanes are as many (Theorem 3).
"""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import generator
from reluscope._extras import require
from reluscope.cells.complex import polyhedral_complex
from reluscope.cells.hyperplanes import general_position
from reluscope.cells.reachable import reachable
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.representation.laboratory import random_network
from reluscope.reproduce import Reproduction

_BOX = (-2.0, 2.0)


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """Count faces of random networks, compare with the statements, draw one complex and its images."""
    require("matplotlib", "plot")
    rng = generator(rng)
    shapes = [[2, 5, 1], [2, 5, 4, 1]] if quick else [[1, 8, 8, 1], [2, 8, 1], [2, 8, 8, 1], [3, 6, 1], [3, 5, 4, 1]]
    rows = []
    with meter(progress, "complex") as report:
        for widths in shapes:
            net = random_network(widths, bias=0.5, rng=rng)
            rows.append(_row(net, widths))
            report(len(rows), f"{len(rows)} networks")
        net = random_network([2, 8, 6, 2], bias=0.5, rng=rng)
        files = _pictures(net, folder)
    remarks = [
        "first-layer faces: those of an arrangement of m hyperplanes in general position in R^n, sum over i of "
        "C(m, i) for the regions",
        "Euler characteristic: 1 in a box (Theorem 1: the faces are a polyhedral complex)",
        f"pictures in {folder}/: {', '.join(files)}",
    ]
    return Reproduction("complex", rows, remarks, files, compared=["the thesis prints no numbers for its chapter 2"])


def _row(net: Network, widths: list[int]) -> dict[str, Any]:
    first = net.layers[0]
    alone = Network([(first.weight, first.bias, first.units), (np.ones((1, first.width)), None)])
    space, inside = polyhedral_complex(alone, progress=None), polyhedral_complex(net, _BOX, progress=None)
    expected = sum(comb(first.width, i) for i in range(widths[0] + 1))
    return {
        "network": "-".join(map(str, widths)),
        "first layer generic": bool(general_position(first.dense(), -first.bias)),
        "regions of the first layer": space.f_vector[-1],
        "of that many hyperplanes": expected,
        "faces in the box": "-".join(map(str, inside.f_vector)),
        "Euler characteristic": inside.euler,
        "face to face": inside.face_to_face,
    }


def _pictures(net: Network, folder: Path) -> list[str]:
    from reluscope.plot._axes import save
    from reluscope.plot.complexes import plot_complex
    from reluscope.plot.regions import plot_images

    save(plot_complex(polyhedral_complex(net, _BOX, progress=None)), folder / "complex.png")
    found = reachable(net, _BOX, progress=None)
    files = ["complex.png"]
    for k in range(len(found)):
        files.append("images-output.png" if k == len(found) - 1 else f"images-layer-{k}.png")
        save(plot_images(found[k]), folder / files[-1])
    return files
