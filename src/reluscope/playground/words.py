"""Patterns and linear models in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._text import count
from reluscope.network import Network, Pattern
from reluscope.schema import input_labels, output_labels

_MOST_UNITS, _MOST_TERMS = 12, 4


def pattern_in_words(net: Network, pattern: Pattern) -> list[str]:
    """One line per hidden layer: how many units are on, and which (or which are off, when those are fewer)."""
    lines = []
    for k in range(len(net.hidden)):
        part = slice(int(net.offsets[k]), int(net.offsets[k + 1]))
        piece, pieces = pattern[part], net.pieces[part]
        two, more = np.flatnonzero(pieces == 2), np.flatnonzero(pieces > 2)
        words = []
        if len(two):
            on, off = two[piece[two] == 1], two[piece[two] == 0]
            named = f"on: {_listed(on)}" if len(on) <= len(off) else f"off: {_listed(off)}"
            some = f" ({named})" if len(on) and len(off) else ""
            words.append(f"{len(on):,} of {count(len(two), 'unit')} on{some}")
        if len(more):
            shown = ", ".join(f"{u} on piece {piece[u]} of {pieces[u]}" for u in more[:_MOST_UNITS])
            words.append(f"units {shown}{', …' if len(more) > _MOST_UNITS else ''}")
        if words:
            lines.append(f"hidden layer {k}: {'; '.join(words)}")
    return lines or ["no unit switches: the network is affine"]


def function_in_words(net: Network, C: FloatArray, d: float, output: int, sd: FloatArray) -> str:
    """`y[o] = d + C_i x[i] + ...`; of more inputs than are listed, those that move the output most under the law first.

    Numbers are the network's own, so only inputs and outputs without a unit of their own go by their names.
    """
    x = [v.name if v.plain else f"x[{i}]" for i, v in enumerate(input_labels(net.schema, net.n_inputs))]
    y = output_labels(net.schema, net.n_outputs)[output]
    order = [int(i) for i in np.argsort(-np.abs(C) * sd, kind="stable") if C[i] != 0]
    order = order if net.n_inputs > _MOST_TERMS else sorted(order)
    terms = [f"{'−' if C[i] < 0 else '+'} {abs(C[i]):.3g} {x[i]}" for i in order[:_MOST_TERMS]]
    more = f" … ({len(order) - _MOST_TERMS} more)" if len(order) > _MOST_TERMS else ""
    return " ".join([f"{y.name if y.plain else f'y[{output}]'} = {_signed(d)}", *terms]) + more


def _signed(value: float) -> str:
    return f"{value:.3g}".replace("-", "−", 1) if value < 0 else f"{value:.3g}"


def _listed(units: Any) -> str:
    shown = ", ".join(map(str, units[:_MOST_UNITS].tolist()))
    return f"{shown}, …" if len(units) > _MOST_UNITS else shown
