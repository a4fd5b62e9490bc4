"""What lines and points cost, by fixed formulas of the network's shape: for plans that must not depend on the clock.

Seconds of one core of a Xeon of 2023, fitted to measured times of 22 networks and laws from 2-8-1 to 784-256-256-10;
most are within a quarter of what was measured, all within a factor of two. An error makes a run longer or shorter than
was meant, or takes the second best plan; it never makes an interval wrong.
"""

from __future__ import annotations

import itertools

from reluscope.network import Network

_SEGMENT, _SEGMENT_LAYER = 35e-9, 10e-9
_CARRY, _FRESH, _FIRST = 2e-10, 7e-11, 4e-11
"""A multiplication when pre-activations are carried along a line, when slopes are formed, and in the first layer."""
_LINE, _LINE_INPUT = 2e-7, 2e-8
_SINGLE = 5e-9, 4.5e-9, 1.95e-11
_SMALL = 4e-8, 6e-9, 5.5e-11
"""A point, each of its coordinates, each parameter: in single precision, and compiled in double precision."""
_PARAMETER, _UNIT, _COORDINATE = 5e-11, 1.3e-9, 6e-9
_SLOPE, _SLOPE_UNIT = 7e-11, 2e-9
_SAMPLED, _TURNED, _SURE = 1.5e-8, 1e-11, 8e-8
_FRAME = 4e-9
_STEP, _STEP_INPUT = 1e-7, 2.5e-8


def lines_seconds(net: Network, lines: float, segments: float) -> float:
    """Lines that were cut into so many segments in all: the operations that `trace.py` counts."""
    widths, depth = net.widths, max(len(net.widths) - 2, 1)
    each = segments / max(lines, 1.0)
    carried = fresh = 0.0
    for k, (n, more) in enumerate(itertools.pairwise(widths[1:]), start=1):
        before, here = max(each * (k - 1) / depth, 1.0), each * k / depth
        carried += 3.0 * here * more
        fresh += before * n * more
    line = _LINE + _LINE_INPUT * widths[0] + 2.0 * _FIRST * widths[0] * widths[1]
    line += each * (_SEGMENT + _SEGMENT_LAYER * depth) + _CARRY * carried + _FRESH * fresh
    return lines * line


def point_seconds(net: Network) -> float:
    """A point by matrix products in double precision."""
    return _PARAMETER * net.n_parameters + _UNIT * sum(net.widths[1:]) + _COORDINATE * net.n_inputs


def single_seconds(net: Network) -> float:
    """A point in single precision."""
    return _SINGLE[0] + _SINGLE[1] * net.n_inputs + _SINGLE[2] * net.n_parameters


def small_seconds(net: Network) -> float:
    """A point of a small network, compiled, in double precision."""
    return _SMALL[0] + _SMALL[1] * net.n_inputs + _SMALL[2] * net.n_parameters


def slope_seconds(net: Network, forms: int) -> float:
    """The gradients of so many forms at a point."""
    return 2.0 * point_seconds(net) + _SLOPE * net.n_parameters * forms + _SLOPE_UNIT * sum(net.widths[1:])


def frame_seconds(r: int) -> float:
    """Eigenvectors and bases in r dimensions."""
    return 1e-3 + _FRAME * float(r) ** 3


def drawn_seconds(inputs: int) -> float:
    """A draw of a law."""
    return _SAMPLED * inputs + _TURNED * inputs * inputs


def decided_seconds(net: Network) -> float:
    """A draw of a law of which floats and their error bounds say whether it is in an event."""
    return drawn_seconds(net.n_inputs) + 3.0 * point_seconds(net) + _SURE


def moved_seconds(net: Network) -> float:
    """A point of a population that takes one step: a normal for each coordinate, and the margin there."""
    return point_seconds(net) + _STEP + _STEP_INPUT * net.n_inputs
