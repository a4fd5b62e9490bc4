"""Probability of regions and polytopes under any law: masses and moments in every dimension.

- `laws`: the mass of a polytope or of regions under a law
- `masses`: batches of cells in standard coordinates, by the room that suits their dimension
- `moments`: moments of a law restricted to a polytope
- `enumeration`: a law pushed through a network: the regions of each component and their masses
"""

from reluscope.measure.regions.enumeration import Enumerated, component_masses, enumerate_law
from reluscope.measure.regions.laws import gaussian_mass, mass, region_masses, standard_domain
from reluscope.measure.regions.masses import added, gaussian_masses, scaled, uniform_masses
from reluscope.measure.regions.moments import moments, simplices

__all__ = [
    "Enumerated",
    "added",
    "component_masses",
    "enumerate_law",
    "gaussian_mass",
    "gaussian_masses",
    "mass",
    "moments",
    "region_masses",
    "scaled",
    "simplices",
    "standard_domain",
    "uniform_masses",
]
