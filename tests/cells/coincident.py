"""Small networks that are random, degenerate or nearly degenerate, and what all geometries say about their regions."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from rational import rational_cells

from reluscope.cells.regions import regions
from reluscope.network import Network

KINDS = (
    "random", "whole numbers", "no biases", "copies", "near copies", "near copies, layer 1", "near threes", "slivers",
)  # fmt: skip


class Verdict(NamedTuple):
    """How many regions there are, and how many patterns some geometry has more, fewer or twice: `different` if it calls
    itself complete all the same, `said` if it says that regions are missing for rounding."""

    regions: int
    different: int
    said: int


def coincident_net(kind: str, inputs: int, seed: int) -> Network:
    """A network of that kind with one or two hidden layers of 3 to 6 units.

    "Slivers" are near copies, but a few roundings apart, which a second layer cuts.
    """
    rng = np.random.default_rng([seed, inputs, KINDS.index(kind)])
    first, second = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    shallow = rng.random() < 0.4 and kind != "slivers"
    widths = (inputs, 2 * first) if shallow else (inputs, 2 * first, second)
    layers = []
    for inn, out in itertools.pairwise((*widths, 1)):
        W, b = rng.normal(size=(out, inn)) * np.sqrt(2 / inn), rng.uniform(-1, 1, out) / np.sqrt(inn)
        if kind == "whole numbers":
            W, b = rng.integers(-2, 3, (out, inn)).astype(float), rng.integers(-2, 3, out).astype(float)
        layers.append([W, 0.0 * b if kind == "no biases" else b])
    eps = 10.0 ** (rng.uniform(-15.5, -13) if kind == "slivers" else rng.uniform(-16.5, -6))
    W, b = layers[-2] if kind == "near copies, layer 1" and len(layers) > 2 else layers[0]
    half = len(W) // 2
    if kind == "copies":
        W[half : 2 * half], b[half : 2 * half] = -2.0 * W[:half], -2.0 * b[:half]
    elif kind.startswith("near") or kind == "slivers":
        times = 2 if kind == "near threes" and half > 1 else 1
        for k in range(times):
            to = slice(half, 2 * half) if k == 0 else slice(1, 2)
            source = slice(0, half) if k == 0 else slice(0, 1)
            W[to] = W[source] + eps * rng.normal(size=W[source].shape)
            b[to] = b[source] + eps * rng.normal(size=b[source].shape)
    return Network([(W, b) for W, b in layers])


def geometries(inputs: int, *, space: bool = False) -> list[str]:
    """What can enumerate the regions of a box, or of the whole space."""
    flat = ["polygon"] if inputs == 2 and not space else []
    return [*flat, *(["vertex"] if inputs <= 8 else []), "polytope"]


def compare(net: Network, *, rational: bool = True, space: bool = False) -> Verdict:
    """All geometries against rational arithmetic on [-1, 1]^d, or on the whole space.

    Or (quicker) against one another, with rational arithmetic for the patterns on which they differ.
    """
    found, complete = {}, {}
    wrong = 0
    box = None if space else (-1, 1)
    for geometry in geometries(net.n_inputs, space=space):
        made = regions(net, box, geometry=geometry, progress=None)
        complete[geometry] = made.complete
        assert made.complete or "closer together than rounding" in made.doubt
        patterns = [tuple(p) for p in made.pattern.tolist()]
        found[geometry] = set(patterns)
        wrong += len(patterns) - len(found[geometry])
    if rational:
        truth = set(rational_cells(net, *(box or (None, None))))
    else:
        named = set().union(*found.values())
        doubtful = {p for p in named if any(p not in f for f in found.values())}
        truth = named - {p for p in doubtful if p not in rational_cells(net, *(box or (None, None)), only=p)}
    said = 0
    for geometry, patterns_found in found.items():
        off = len(patterns_found ^ truth)
        if complete[geometry]:
            wrong += off
        else:
            said += off
    return Verdict(len(truth), wrong, said)
