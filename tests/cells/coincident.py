"""Small networks that are random, degenerate or nearly degenerate, and what all geometries say about their regions."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from rational import Cell, Row, _beyond, rational_cells

from reluscope.cells.regions import regions
from reluscope.network import Network

KINDS = ("random", "whole numbers", "no biases", "copies", "near copies", "near copies, layer 1", "near threes")
THIN = Fraction(1, 10**13)
"""Thinner regions of networks with weights and inputs of order 1 are below what double precision can tell apart."""

Pattern = tuple[int, ...]


class Verdict(NamedTuple):
    """How many regions there are, how many patterns some geometry has more, fewer or twice, and how many of the missing
    ones are thinner than `THIN`."""

    regions: int
    different: int
    thin: int


def coincident_net(kind: str, inputs: int, seed: int) -> Network:
    """A network of that kind with one or two hidden layers of 3 to 6 units."""
    rng = np.random.default_rng([seed, inputs, KINDS.index(kind)])
    first, second = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    widths = (inputs, 2 * first) if rng.random() < 0.4 else (inputs, 2 * first, second)
    layers = []
    for inn, out in itertools.pairwise((*widths, 1)):
        W, b = rng.normal(size=(out, inn)) * np.sqrt(2 / inn), rng.uniform(-1, 1, out) / np.sqrt(inn)
        if kind == "whole numbers":
            W, b = rng.integers(-2, 3, (out, inn)).astype(float), rng.integers(-2, 3, out).astype(float)
        layers.append([W, 0.0 * b if kind == "no biases" else b])
    eps = 10.0 ** rng.uniform(-12, -6)
    W, b = layers[-2] if kind == "near copies, layer 1" and len(layers) > 2 else layers[0]
    half = len(W) // 2
    if kind == "copies":
        W[half : 2 * half], b[half : 2 * half] = -2.0 * W[:half], -2.0 * b[:half]
    elif kind.startswith("near"):
        times = 2 if kind == "near threes" and half > 1 else 1
        for k in range(times):
            to = slice(half, 2 * half) if k == 0 else slice(1, 2)
            source = slice(0, half) if k == 0 else slice(0, 1)
            W[to] = W[source] + eps * rng.normal(size=W[source].shape)
            b[to] = b[source] + eps * rng.normal(size=b[source].shape)
    return Network([(W, b) for W, b in layers])


def geometries(inputs: int) -> list[str]:
    """What can enumerate the regions of a box."""
    return [*(["polygon"] if inputs == 2 else []), *(["vertex"] if inputs <= 8 else []), "polytope"]


def compare(net: Network, *, rational: bool = True) -> Verdict:
    """All geometries against rational arithmetic on [-1, 1]^d.

    Or (quicker) against one another, with rational arithmetic for the patterns on which they differ.
    """
    found = {}
    twice = 0
    for geometry in geometries(net.n_inputs):
        made = regions(net, (-1, 1), geometry=geometry, progress=None)
        assert made.complete
        patterns = [tuple(p) for p in made.pattern.tolist()]
        found[geometry] = set(patterns)
        twice += len(patterns) - len(found[geometry])
    if rational:
        truth = rational_cells(net, -1, 1)
    else:
        named = set().union(*found.values())
        doubtful = {p for p in named if any(p not in f for f in found.values())}
        cells = {p: _cell(net, p) for p in doubtful}
        truth = {p: cells.get(p) for p in named if p not in doubtful or cells[p] is not None}
    wrong = thin = 0
    for patterns_found in found.values():
        wrong += len(patterns_found - set(truth))
        for p in set(truth) - patterns_found:
            if _thicker(truth[p], THIN):
                wrong += 1
            else:
                thin += 1
    return Verdict(len(truth), wrong + twice, thin)


def _thicker(cell: Cell, width: Fraction) -> bool:
    """Whether a ball of that radius fits into the cell (norms are floats, rounded to fractions)."""
    rows = tuple(
        Row((*r.normal, Fraction(float(np.hypot.reduce([float(a) for a in r.normal])))), r.bound) for r in cell.rows
    )
    goal = (*(Fraction(0) for _ in cell.inside), Fraction(1))
    return _beyond(Cell(rows, (*cell.inside, Fraction(0))), goal, width) is not None


def _cell(net: Network, pattern: Pattern) -> Cell | None:
    """The open cell of a pattern in the box, with an inner point; None if it is empty."""
    return rational_cells(net, -1, 1, only=pattern).get(pattern)
