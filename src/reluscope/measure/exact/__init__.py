"""Closed-form and quadrature masses and moments in one, two and three dimensions.

- `interval`: one dimension: closed forms
- `polygon`: two dimensions: sums over edges
- `polyhedron`: three dimensions: slices that are polygons, and quadrature along one axis
- `cut`: cells cut by levels of an affine function: mass below each level, and density at it
- `fibre`: density of several affine functions at once
- `vertices`: checks of vertices that users give
"""

from reluscope.measure.exact.cut import below, density, ranges
from reluscope.measure.exact.fibre import fibre_density
from reluscope.measure.exact.interval import interval_mass, interval_moments
from reluscope.measure.exact.polygon import polygon_mass, polygon_moments
from reluscope.measure.exact.polyhedron import polyhedra_mass, polyhedra_moments

__all__ = [
    "below",
    "density",
    "fibre_density",
    "interval_mass",
    "interval_moments",
    "polygon_mass",
    "polygon_moments",
    "polyhedra_mass",
    "polyhedra_moments",
    "ranges",
]
