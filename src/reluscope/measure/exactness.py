"""When an answer can be exact: the numbers of dimensions up to which masses and moments have no sampling error.

Dimensions are those that the network (and the event) see of a component, not those of the input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from reluscope.inputs import Component
    from reluscope.network import Network

MOST_EXACT_DIMENSIONS = 3
"""Up to here Gaussian masses are exact up to rounding; above, they are estimates with a confidence interval."""

MOST_VOLUME_DIMENSIONS = 6
"""Up to here volumes are exact and quick; the number of vertices grows too fast above."""

MOST_SIMPLEX_DIMENSIONS = 5
"""Up to here cells are cut into simplices, for moments under uniform laws."""

_STEEP = 1e3
"""Slopes of units beyond this are ramps between the atoms of a law."""

LIMITS = f"at most {MOST_EXACT_DIMENSIONS} ({MOST_VOLUME_DIMENSIONS} for uniform laws)"
"""In words, for messages."""


def is_steep(network: Network) -> bool:
    """Whether units are so steep that values carried along lines are off by more than ties allow.

    A law with atoms has such units: ramps between its values.
    """
    return any(float(np.abs(layer.units.slopes).max(initial=0.0)) > _STEEP for layer in network.hidden)


def is_exact(component: Component) -> bool:
    """Whether enumeration gives exact masses of this component."""
    if component.kind == "point" or component.r == 0:
        return True
    return component.r <= (MOST_VOLUME_DIMENSIONS if component.kind == "uniform" else MOST_EXACT_DIMENSIONS)


def all_exact(components: Iterable[Component]) -> bool:
    """Whether enumeration gives exact masses of every component."""
    return all(is_exact(c) for c in components)


def not_exact(component: Component) -> str:
    """Why a component has no exact answer, and what to ask for."""
    kind = "uniform law" if component.kind == "uniform" else "Gaussian law"
    most = f"{MOST_VOLUME_DIMENSIONS} (by volume)" if component.kind == "uniform" else MOST_EXACT_DIMENSIONS
    return (
        f"guarantee='exact': the network and the event see this {kind} in {component.r} dimensions, and probabilities "
        f"are exact in at most {most}; ask for guarantee='sound' (a bracket that always holds) or 'confidence', or let "
        "'auto' choose"
    )
