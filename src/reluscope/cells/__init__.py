"""How a network cuts space: one traversal, a geometry for each dimension.

The door for specialists holds `hyperplane_intersection`, `general_position` and `backward_patterns`; regions,
complexes, lines and comparisons are at the top of the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reluscope._lazy import lazy_door

if TYPE_CHECKING:
    from reluscope.cells.backward import backward_patterns
    from reluscope.cells.hyperplanes import general_position, hyperplane_intersection

__all__ = ["backward_patterns", "general_position", "hyperplane_intersection"]

__getattr__ = lazy_door(
    __name__,
    {
        "backward_patterns": "backward",
        "general_position": "hyperplanes",
        "hyperplane_intersection": "hyperplanes",
    },
)
